//! `trust`: which repositories may make git run programs, each exactly as it was looked at. Kept beside the tasks, never in a
//! repository.

use std::io::IsTerminal;
use std::path::Path;

use sabir_session::trust::{TrustEntry, load_trust, read_trust_file, trust_path, write_trust_file};
use sabir_workspace::{GitConfig, Programs, Standing};
use serde_json::json;

use crate::cli::{TrustArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use sabir_session::remember;

/// `sabir trust`.
pub(crate) fn trust(arguments: &TrustArguments) -> Result<Exit, Failure> {
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    match (arguments.list, arguments.revoke) {
        (true, _) => list(arguments.output),
        (_, true) => revoke(folder),
        _ => add(folder, arguments),
    }
}

fn add(folder: &Path, arguments: &TrustArguments) -> Result<Exit, Failure> {
    let programs = match GitConfig::of(folder, &surroundings::environment().command_variables()) {
        GitConfig::Repository(programs) => programs,
        GitConfig::NoRepository => return Err(Failure::usage(format!("{} is in no repository", folder.display()))),
        GitConfig::Unknown(why) => {
            let place = folder.display();
            return Err(Failure::usage(format!("what git would run in {place} cannot be found out: {why}")));
        }
    };
    let top = programs.top.display().to_string();
    if programs.is_empty() {
        print::out(&print::visible(&format!("{top}: its configuration runs nothing; there is nothing to trust\n")));
        return Ok(Exit::Completed);
    }
    let standing = load_trust(surroundings::environment(), &surroundings::notice_sink()).of(&programs);
    show(&programs, &standing, arguments.output);
    if standing == Standing::Trusted {
        return Ok(Exit::Completed);
    }
    if !arguments.yes && !confirmed()? {
        print::err("sabir: nothing was changed\n");
        return Ok(Exit::Denied);
    }
    let _alone = remember::alone(&trust_path(surroundings::environment())?)?;
    let mut kept = read_trust_file(surroundings::environment())?;
    let entry = TrustEntry { sha256: programs.digest(), things: programs.hashes() };
    kept.repositories.insert(programs.top, entry);
    write_trust_file(surroundings::environment(), &kept)?;
    print::err(&print::visible(&format!("sabir: {top} is trusted as it is now\n")));
    Ok(Exit::Completed)
}

fn show(programs: &Programs, standing: &Standing, output: Whole) {
    let runs = programs.keys();
    let (known, changed) = match standing {
        Standing::Unknown => ("unknown", [].as_slice()),
        Standing::Trusted => ("trusted", [].as_slice()),
        Standing::Changed(things) => ("changed", things.as_slice()),
    };
    let hashes = programs.hashes();
    if output == Whole::Json {
        let things = programs.things().map(|(name, shown)| {
            json!({"name": name, "value": shown, "sha256": hashes.get(name), "runs": runs.iter().any(|key| key == name)})
        });
        print::json(&json!({
            "folder": programs.top, "sha256": programs.digest(), "standing": known, "changed": changed,
            "things": things.collect::<Vec<_>>(),
        }));
        return;
    }
    let mut text = format!("{}\nWhat its own configuration makes git run, or use:\n", programs.top.display());
    for (name, shown) in programs.things() {
        let new = if changed.iter().any(|thing| thing == name) { " (changed since you trusted it)" } else { "" };
        let hash = hashes.get(name).and_then(|hash| hash.get(..16)).unwrap_or_default();
        text.push_str(&format!("  {name} = {}{new}  [{hash}]\n", print::quoted(&shown)));
    }
    for gone in changed.iter().filter(|thing| thing.ends_with(" is gone")) {
        text.push_str(&format!("  {gone}\n"));
    }
    text.push_str(&format!("SHA-256 of all: {}\n", programs.digest()));
    if *standing == Standing::Trusted {
        text.push_str("It is trusted as it is.\n");
    }
    print::out(&print::visible(&text));
}

/// Whether the user says yes, who must be there.
fn confirmed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here: look at what is listed, and give --yes to trust it"));
    }
    print::err("Trust exactly this? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::internal(format!("standard input cannot be read: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn list(output: Whole) -> Result<Exit, Failure> {
    let kept = read_trust_file(surroundings::environment())?;
    if output == Whole::Json {
        print::json(&kept);
        return Ok(Exit::Completed);
    }
    let lines: String = kept
        .repositories
        .iter()
        .map(|(top, entry)| format!("{}  {}\n", entry.sha256.get(..16).unwrap_or_default(), top.display()))
        .collect();
    print::out(&print::visible(if lines.is_empty() { "no repository is trusted\n" } else { &lines }));
    Ok(Exit::Completed)
}

/// Takes back the trust in the repository of a folder; one that is gone is named by the path that `--list` shows.
fn revoke(folder: &Path) -> Result<Exit, Failure> {
    let _alone = remember::alone(&trust_path(surroundings::environment())?)?;
    let mut kept = read_trust_file(surroundings::environment())?;
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let trusted = real.ancestors().find(|folder| kept.repositories.contains_key(*folder)).map(Path::to_owned);
    let Some(top) = trusted else {
        return Err(Failure::usage(format!("{} is not trusted; `sabir trust --list` lists what is", real.display())));
    };
    kept.repositories.remove(&top);
    write_trust_file(surroundings::environment(), &kept)?;
    print::err(&print::visible(&format!("sabir: {} is no longer trusted\n", top.display())));
    Ok(Exit::Completed)
}
