//! `import`: another program's history as the journal of a task.
//!
//! The task can be read, checked and forked, not resumed: its calls were another program's. Each format is read leniently, since none has
//! a standard; whatever is not taken over is counted and said, in the first record as well.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sabir_agent::{Record, TaskId, TaskOrigin, TaskStart};
use sabir_call::ToolProtocol;
use sabir_journal::JournalEntry;
use serde_json::{Value, json};

use crate::cli::{ImportArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use record_builder::{ImportNotes, RecordBuilder};

mod blocks;
mod claude_code;
mod cline;
mod record_builder;
mod tools;

/// A history as it was read.
struct ImportedHistory {
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
    protocol: ToolProtocol,
    /// When it began, in milliseconds since 1970.
    at: u64,
    builder: RecordBuilder,
}

/// `sabir import`.
pub(crate) fn run_import(arguments: &ImportArguments) -> Result<ExitStatus, CommandError> {
    let path = std::fs::canonicalize(&arguments.path).unwrap_or_else(|_| arguments.path.clone());
    let history = read_history(&path)?;
    let id = surroundings::host().new_task_id();
    let (entries, notes) = history_entries(history, &id);
    let folder = surroundings::tasks_folder()?;
    sabir_journal::write_journal(&folder, &id, &entries)
        .map_err(|error| CommandError::usage(format!("{} cannot be imported: {error}", arguments.path.display())))?;
    match arguments.output {
        ReportFormat::Json => {
            print::print_redacted_json(&json!({"task": id, "records": entries.len(), "notes": notes}))
        }
        ReportFormat::Text => {
            for note in &notes {
                print::write_stderr(&print::sanitize_text(&format!("sabir: {note}\n")));
            }
            print::write_stderr(&format!("sabir: {} as the task\n", print::count_noun(entries.len(), "record")));
            print::write_stdout(&format!("{id}\n"));
        }
    }
    Ok(ExitStatus::Completed)
}

/// The records of a history, and what of it is not among them.
fn history_entries(history: ImportedHistory, id: &TaskId) -> (Vec<JournalEntry>, Vec<String>) {
    let ImportedHistory { program, source, prompt, workspace, model, protocol, at, builder: scribe } = history;
    let (mut entries, notes) = scribe.finish();
    let notes = notes.to_sentences();
    let start = TaskStart {
        task: id.clone(),
        prompt,
        workspace,
        model,
        protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edit_tool: None,
        mode: None,
        from: Some(TaskOrigin::Import {
            program: program.to_owned(),
            source: source.display().to_string(),
            notes: notes.clone(),
        }),
    };
    entries.insert(0, JournalEntry { at, record: Record::Started(start) });
    (entries, notes)
}

/// Finds out whose history it is: by the names of the files.
fn read_history(path: &Path) -> Result<ImportedHistory, CommandError> {
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        return claude_code::read_transcript(path);
    }
    let folder = if path.is_file() { path.parent().unwrap_or(Path::new(".")) } else { path };
    if folder.join(cline::MESSAGES_FILE).is_file() {
        return cline::read_task_folder(folder);
    }
    let found = if path.exists() { "holds none of them" } else { "does not exist" };
    Err(CommandError::usage(format!(
        "{} {found}: give the folder of a task of Cline's or Roo Code's, which has a file {}, or a .jsonl file of Claude Code's",
        path.display(),
        cline::MESSAGES_FILE
    )))
}

/// The text of a file; what is no UTF-8 in it is noted.
fn read_text_lossy(path: &Path, notes: &mut ImportNotes) -> Result<String, CommandError> {
    let bytes = std::fs::read(path)
        .map_err(|error| CommandError::usage(format!("{} cannot be read: {error}", path.display())))?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        notes.add_count("bytes that are no UTF-8, which were replaced: files", 1);
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// A file that is one JSON value.
fn read_json(path: &Path, notes: &mut ImportNotes) -> Result<Value, CommandError> {
    serde_json::from_str(&read_text_lossy(path, notes)?)
        .map_err(|error| CommandError::usage(format!("{} is no JSON: {error}", path.display())))
}

/// When a file was written, for a history that says no times.
fn written_at(path: &Path, notes: &mut ImportNotes) -> u64 {
    notes.add_count("histories without times, which begin when the file was written", 1);
    let modified = std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// A string among the fields of an object.
fn string_field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}
