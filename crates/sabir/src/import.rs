//! `import`: another program's history as the journal of a task.
//!
//! The task can be read, checked and forked, not resumed: its calls were another program's. Each format is read leniently, since none has
//! a standard; whatever is not taken over is counted and said, in the first record as well.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sabir_agent::{Origin, Record, Start, TaskId};
use sabir_call::Protocol;
use sabir_journal::Entry;
use serde_json::{Value, json};

use crate::cli::{ImportArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use scribe::{Notes, Scribe};

mod blocks;
mod claude_code;
mod cline;
mod scribe;
mod tools;

/// A history as it was read.
struct History {
    /// `cline`, `roo` or `claude_code`.
    program: &'static str,
    /// The file or folder.
    source: PathBuf,
    /// The user's first words.
    prompt: String,
    /// The folder in which the program worked, as far as it says so.
    workspace: String,
    /// The model's name, as far as it is known.
    model: String,
    protocol: Protocol,
    /// When it began, in milliseconds since 1970.
    at: u64,
    scribe: Scribe,
}

/// `sabir import`.
pub(crate) fn import(arguments: &ImportArguments) -> Result<Exit, Failure> {
    let path = std::fs::canonicalize(&arguments.path).unwrap_or_else(|_| arguments.path.clone());
    let history = read(&path)?;
    let id = surroundings::host().new_task_id();
    let (entries, notes) = entries(history, &id);
    let folder = surroundings::tasks_folder()?;
    sabir_journal::write(&folder, &id, &entries)
        .map_err(|error| Failure::usage(format!("{} cannot be imported: {error}", arguments.path.display())))?;
    match arguments.output {
        Whole::Json => print::redacted(&json!({"task": id, "records": entries.len(), "notes": notes})),
        Whole::Text => {
            for note in &notes {
                print::err(&print::visible(&format!("sabir: {note}\n")));
            }
            print::err(&format!("sabir: {} as the task\n", print::counted(entries.len(), "record")));
            print::out(&format!("{id}\n"));
        }
    }
    Ok(Exit::Completed)
}

/// The records of a history, and what of it is not among them.
fn entries(history: History, id: &TaskId) -> (Vec<Entry>, Vec<String>) {
    let History { program, source, prompt, workspace, model, protocol, at, scribe } = history;
    let (mut entries, notes) = scribe.finish();
    let notes = notes.words();
    let start = Start {
        task: id.clone(),
        prompt,
        workspace,
        model,
        protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edit_tool: None,
        mode: None,
        from: Some(Origin::Import {
            program: program.to_owned(),
            source: source.display().to_string(),
            notes: notes.clone(),
        }),
    };
    entries.insert(0, Entry { at, record: Record::Started(start) });
    (entries, notes)
}

/// Finds out whose history it is: by the names of the files.
fn read(path: &Path) -> Result<History, Failure> {
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        return claude_code::read(path);
    }
    let folder = if path.is_file() { path.parent().unwrap_or(Path::new(".")) } else { path };
    if folder.join(cline::MESSAGES).is_file() {
        return cline::read(folder);
    }
    let found = if path.exists() { "holds none of them" } else { "does not exist" };
    Err(Failure::usage(format!(
        "{} {found}: give the folder of a task of Cline's or Roo Code's, which has a file {}, or a .jsonl file of Claude Code's",
        path.display(),
        cline::MESSAGES
    )))
}

/// The text of a file; what is no UTF-8 in it is noted.
fn text(path: &Path, notes: &mut Notes) -> Result<String, Failure> {
    let bytes =
        std::fs::read(path).map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        notes.add("bytes that are no UTF-8, which were replaced: files", 1);
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// A file that is one JSON value.
fn value(path: &Path, notes: &mut Notes) -> Result<Value, Failure> {
    serde_json::from_str(&text(path, notes)?)
        .map_err(|error| Failure::usage(format!("{} is no JSON: {error}", path.display())))
}

/// When a file was written, for a history that says no times.
fn written_at(path: &Path, notes: &mut Notes) -> u64 {
    notes.add("histories without times, which begin when the file was written", 1);
    let modified = std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// A string among the fields of an object.
fn string<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}
