//! Files changed and looked at by a process of its own, which can be killed, limited, or shown another disk.
//!
//! `change FOLDER CHANGE…` makes the changes as one and prints `done` or the error. A change is `PATH=CONTENT`, `-PATH` for a
//! deletion or `FROM>PATH` for a move. `look FOLDER` prints what is listed and what a search for `needle` finds. `storm FOLDER`
//! changes files until it is killed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use sabir_workspace::{Change, Expect, ListOptions, SearchOptions, WorkPath, Workspace, WorkspaceError};

pub(crate) fn main(verb: &OsStr, mut args: impl Iterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    let workspace = Workspace::open(Path::new(&args.next()?)).ok()?;
    match verb.to_str()? {
        "change" => {
            let changes: Vec<String> = args.map(std::ffi::OsString::into_string).collect::<Result<_, _>>().ok()?;
            match change(&workspace, &changes) {
                Ok(()) => say("done"),
                Err(error) => say(&error.to_string()),
            }
        }
        "look" => look(&workspace).unwrap_or_else(|error| say(&error.to_string())),
        "storm" => say(&storm(&workspace).err()?.to_string()),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn say(words: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{words}");
}

fn change(workspace: &Workspace, changes: &[String]) -> Result<(), WorkspaceError> {
    let mut all = Vec::new();
    for text in changes {
        if let Some((path, content)) = text.split_once('=') {
            all.push(Change::write(workspace.path(path)?, content.as_bytes().to_vec(), Expect::Any));
        } else if let Some((from, to)) = text.split_once('>') {
            let (from, to) = (workspace.path(from)?, workspace.path(to)?);
            let old = workspace.read(&from, 1 << 20)?;
            all.extend(Change::moved(from, Expect::Version(old.version), to, old.bytes));
        } else {
            all.push(Change::delete(workspace.path(text.trim_start_matches('-'))?, Expect::Any));
        }
    }
    workspace.apply(&all).map(drop)
}

fn look(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let options = ListOptions { recursive: true, ..ListOptions::default() };
    for entry in workspace.list(&WorkPath::root(), &options)?.entries {
        say(&entry.path.to_string());
    }
    let found = workspace.search(&SearchOptions::new("needle"))?;
    found.matches.iter().for_each(|found| say(&format!("{}:{}", found.path, found.text)));
    say(&format!("{} searched, {} skipped", found.files, found.skipped));
    Ok(())
}

/// Writes numbered content to some files at once, and to one alone, and makes and deletes another. Each content says itself
/// whether it is whole: a number, many times, and an end.
fn storm(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let path = |name: &str| workspace.path(name);
    for number in 0_u32.. {
        let mut content = format!("{number} ").repeat(1 + (number as usize * 7919) % 9000);
        content.push_str("end");
        let content = content.into_bytes();
        let mut changes = Vec::new();
        for name in ["a", "deep/b", "deep/c"] {
            changes.push(Change::write(path(name)?, content.clone(), Expect::Any));
        }
        if workspace.exists(&path("deep/now and then")?)? {
            changes.push(Change::delete(path("deep/now and then")?, Expect::Any));
        } else {
            changes.push(Change::write(path("deep/now and then")?, content.clone(), Expect::Missing));
        }
        workspace.apply(&changes)?;
        workspace.write(&path("alone")?, &content, Expect::Any)?;
    }
    Ok(())
}
