//! Implements `trust`: manages the repositories whose git configuration may run programs, each
//! pinned by hash to the reviewed content. The list is kept beside the tasks, never in a
//! repository.

use std::io::IsTerminal;
use std::path::Path;

use sabir_session::trust::{TrustEntry, load_trust, read_trust_file, trust_path, write_trust_file};
use sabir_workspace::{GitConfig, GitPrograms, TrustState};
use serde_json::json;

use crate::cli::{ReportFormat, TrustArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::remember;

/// Runs `sabir trust`.
pub(crate) fn run_trust(arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    match (arguments.list, arguments.revoke) {
        (true, _) => list_trusted(arguments.output),
        (_, true) => revoke_trust(folder),
        _ => trust_repository(folder, arguments),
    }
}

/// Shows the programs of a repository and trusts them after a confirmation.
fn trust_repository(folder: &Path, arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let programs = match GitConfig::of(folder, &surroundings::environment().command_variables()) {
        GitConfig::Repository(programs) => programs,
        GitConfig::NoRepository => {
            return Err(CommandError::usage(format!(
                "{} is in no repository",
                folder.display()
            )));
        }
        GitConfig::Unknown(why) => {
            let place = folder.display();
            return Err(CommandError::usage(format!(
                "what git would run in {place} cannot be found out: {why}"
            )));
        }
    };
    let top = programs.top.display().to_string();
    if programs.is_empty() {
        print::write_stdout(&print::sanitize_text(&format!(
            "{top}: its configuration runs nothing; there is nothing to trust\n"
        )));
        return Ok(ExitStatus::Completed);
    }
    let standing =
        load_trust(surroundings::environment(), &surroundings::notice_sink()).state_of(&programs);
    print_programs(&programs, &standing, arguments.output);
    if standing == TrustState::Trusted {
        return Ok(ExitStatus::Completed);
    }
    if !arguments.yes && !confirm_trust()? {
        print::write_stderr("sabir: nothing was changed\n");
        return Ok(ExitStatus::Denied);
    }
    // The lock covers reading and writing, so that two processes do not lose each other's entries.
    let _alone = remember::lock_folder(&trust_path(surroundings::environment())?)?;
    let mut kept = read_trust_file(surroundings::environment())?;
    let entry = TrustEntry {
        sha256: programs.digest(),
        things: programs.hashes(),
    };
    kept.repositories.insert(programs.top, entry);
    write_trust_file(surroundings::environment(), &kept)?;
    print::write_stderr(&print::sanitize_text(&format!(
        "sabir: {top} is trusted as it is now\n"
    )));
    Ok(ExitStatus::Completed)
}

/// Prints the programs of a repository, and which of them changed.
fn print_programs(programs: &GitPrograms, standing: &TrustState, output: ReportFormat) {
    let runs = programs.running_keys();
    let (known, changed) = match standing {
        TrustState::Unknown => ("unknown", [].as_slice()),
        TrustState::Trusted => ("trusted", [].as_slice()),
        TrustState::Changed(things) => ("changed", things.as_slice()),
    };
    let hashes = programs.hashes();
    if output == ReportFormat::Json {
        let things = programs.hashed_items().map(|(name, shown)| {
            json!({"name": name, "value": shown, "sha256": hashes.get(name), "runs": runs.iter().any(|key| key == name)})
        });
        print::print_json(&json!({
            "folder": programs.top, "sha256": programs.digest(), "standing": known, "changed": changed,
            "things": things.collect::<Vec<_>>(),
        }));
        return;
    }
    let mut text = format!(
        "{}\nWhat its own configuration makes git run, or use:\n",
        programs.top.display()
    );
    for (name, shown) in programs.hashed_items() {
        let new = if changed.iter().any(|thing| thing == name) {
            " (changed since you trusted it)"
        } else {
            ""
        };
        let hash = hashes
            .get(name)
            .and_then(|hash| hash.get(..16))
            .unwrap_or_default();
        text.push_str(&format!(
            "  {name} = {}{new}  [{hash}]\n",
            print::quote_short(&shown)
        ));
    }
    for gone in changed.iter().filter(|thing| thing.ends_with(" is gone")) {
        text.push_str(&format!("  {gone}\n"));
    }
    text.push_str(&format!("SHA-256 of all: {}\n", programs.digest()));
    if *standing == TrustState::Trusted {
        text.push_str("It is trusted as it is.\n");
    }
    print::write_stdout(&print::sanitize_text(&text));
}

/// Asks for a confirmation; an error if standard input is not a terminal.
fn confirm_trust() -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandError::usage(
            "nobody can be asked here: look at what is listed, and give --yes to trust it",
        ));
    }
    print::write_stderr("Trust exactly this? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| {
        CommandError::internal(format!("standard input cannot be read: {error}"))
    })?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Prints the trusted repositories.
fn list_trusted(output: ReportFormat) -> Result<ExitStatus, CommandError> {
    let kept = read_trust_file(surroundings::environment())?;
    if output == ReportFormat::Json {
        print::print_json(&kept);
        return Ok(ExitStatus::Completed);
    }
    let lines: String = kept
        .repositories
        .iter()
        .map(|(top, entry)| {
            format!(
                "{}  {}\n",
                entry.sha256.get(..16).unwrap_or_default(),
                top.display()
            )
        })
        .collect();
    print::write_stdout(&print::sanitize_text(if lines.is_empty() {
        "no repository is trusted\n"
    } else {
        &lines
    }));
    Ok(ExitStatus::Completed)
}

/// Revokes the trust in the repository of a folder. A repository that no longer exists is given by
/// the path that `--list` shows.
fn revoke_trust(folder: &Path) -> Result<ExitStatus, CommandError> {
    let _alone = remember::lock_folder(&trust_path(surroundings::environment())?)?;
    let mut kept = read_trust_file(surroundings::environment())?;
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let trusted = real
        .ancestors()
        .find(|folder| kept.repositories.contains_key(*folder))
        .map(Path::to_owned);
    let Some(top) = trusted else {
        return Err(CommandError::usage(format!(
            "{} is not trusted; `sabir trust --list` lists what is",
            real.display()
        )));
    };
    kept.repositories.remove(&top);
    write_trust_file(surroundings::environment(), &kept)?;
    print::write_stderr(&print::sanitize_text(&format!(
        "sabir: {} is no longer trusted\n",
        top.display()
    )));
    Ok(ExitStatus::Completed)
}
