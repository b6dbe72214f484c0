//! Changes and reads files in a separate process, which can be killed, limited, or given another
//! disk.
//!
//! `change FOLDER CHANGE…` applies the changes as one set and prints `done` or the error. A change
//! is `PATH=CONTENT`, `-PATH` for a deletion or `FROM>PATH` for a move. `look FOLDER` prints a
//! listing and the result of a search for `needle`. `read FOLDER PATH…` prints why each file cannot
//! be read, with the files hidden that `.sabirignore` names. `storm FOLDER` changes files until it is
//! killed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use sabir_workspace::{
    Bounds, FileChange, ListOptions, SearchOptions, WorkPath, Workspace, WorkspaceError,
    WritePrecondition,
};

pub(crate) fn main(
    verb: &OsStr,
    mut args: impl Iterator<Item = std::ffi::OsString>,
) -> Option<ExitCode> {
    let workspace = Workspace::open(Path::new(&args.next()?)).ok()?;
    match verb.to_str()? {
        "change" => {
            let changes: Vec<String> = args
                .map(std::ffi::OsString::into_string)
                .collect::<Result<_, _>>()
                .ok()?;
            match change(&workspace, &changes) {
                Ok(()) => say("done"),
                Err(error) => say(&error.to_string()),
            }
        }
        "look" => look(&workspace).unwrap_or_else(|error| say(&error.to_string())),
        "read" => {
            let workspace = workspace.with_bounds(Bounds::new().ignore_files([".sabirignore"]));
            for path in args {
                let path = workspace.parse_path(path.to_str()?).ok()?;
                match workspace.read_file(&path, 0) {
                    Ok(_) => say("read"),
                    Err(error) => say(&error.to_string()),
                }
            }
        }
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
            all.push(FileChange::write(
                workspace.parse_path(path)?,
                content.as_bytes().to_vec(),
                WritePrecondition::Any,
            ));
        } else if let Some((from, to)) = text.split_once('>') {
            let from = workspace.parse_path(from)?;
            let to = workspace.parse_path(to)?;
            let old = workspace.read_file(&from, 1 << 20)?;
            all.extend(FileChange::move_file(
                from,
                WritePrecondition::Version(old.version),
                to,
                old.bytes,
            ));
        } else {
            all.push(FileChange::delete(
                workspace.parse_path(text.trim_start_matches('-'))?,
                WritePrecondition::Any,
            ));
        }
    }
    workspace.apply_changes(&all).map(drop)
}

fn look(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let options = ListOptions {
        recursive: true,
        ..ListOptions::default()
    };
    for entry in workspace.list_folder(&WorkPath::root(), &options)?.entries {
        say(&entry.path.to_string());
    }
    let found = workspace.search_files(&SearchOptions::new("needle"))?;
    found
        .matches
        .iter()
        .for_each(|found| say(&format!("{}:{}", found.path, found.text)));
    say(&format!(
        "{} searched, {} skipped",
        found.files, found.skipped
    ));
    Ok(())
}

/// Writes numbered content to several files at once and to a single one, and creates and deletes
/// another. Each content shows whether it is complete: a number, many times, and an end.
fn storm(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let path = |name: &str| workspace.parse_path(name);
    for number in 0_u32.. {
        let mut content = format!("{number} ").repeat(1 + (number as usize * 7919) % 9000);
        content.push_str("end");
        let content = content.into_bytes();
        let mut changes = Vec::new();
        for name in ["a", "deep/b", "deep/c"] {
            changes.push(FileChange::write(
                path(name)?,
                content.clone(),
                WritePrecondition::Any,
            ));
        }
        if workspace.exists(&path("deep/now and then")?)? {
            changes.push(FileChange::delete(
                path("deep/now and then")?,
                WritePrecondition::Any,
            ));
        } else {
            changes.push(FileChange::write(
                path("deep/now and then")?,
                content.clone(),
                WritePrecondition::Missing,
            ));
        }
        workspace.apply_changes(&changes)?;
        workspace.write_file(&path("alone")?, &content, WritePrecondition::Any)?;
    }
    Ok(())
}
