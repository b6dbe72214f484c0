//! Implements `import`: converts another program's history into the journal of a task.
//!
//! An imported task can be read, checked and forked, but not resumed, because its calls were
//! another program's. The formats are parsed leniently, since none has a standard. Everything that
//! is left out is counted and reported, also in the first record.

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

/// A history in parsed form.
struct ImportedHistory {
    /// `cline`, `roo` or `claude_code`.
    program: &'static str,
    /// The file or folder.
    source: PathBuf,
    /// The user's first message.
    prompt: String,
    /// The folder in which the program worked, if known.
    workspace: String,
    /// The model's name, if known.
    model: String,
    protocol: ToolProtocol,
    /// The start time in milliseconds since 1970.
    at: u64,
    builder: RecordBuilder,
}

/// Runs `sabir import`.
pub(crate) fn run_import(arguments: &ImportArguments) -> Result<ExitStatus, CommandError> {
    let path = std::fs::canonicalize(&arguments.path).unwrap_or_else(|_| arguments.path.clone());
    let history = read_history(&path)?;
    let id = surroundings::host().new_task_id();
    let (entries, notes) = history_entries(history, &id);
    let folder = surroundings::tasks_folder()?;
    sabir_journal::write_journal(&folder, &id, &entries).map_err(|error| {
        CommandError::usage(format!(
            "{} cannot be imported: {error}",
            arguments.path.display()
        ))
    })?;
    match arguments.output {
        ReportFormat::Json => print::print_redacted_json(
            &json!({"task": id, "records": entries.len(), "notes": notes}),
        ),
        ReportFormat::Text => {
            for note in &notes {
                print::write_stderr(&print::sanitize_text(&format!("sabir: {note}\n")));
            }
            print::write_stderr(&format!(
                "sabir: {} as the task\n",
                print::count_noun(entries.len(), "record")
            ));
            print::write_stdout(&format!("{id}\n"));
        }
    }
    Ok(ExitStatus::Completed)
}

/// Returns the records of a history, and notes about what was left out.
fn history_entries(history: ImportedHistory, id: &TaskId) -> (Vec<JournalEntry>, Vec<String>) {
    let ImportedHistory {
        program,
        source,
        prompt,
        workspace,
        model,
        protocol,
        at,
        builder: scribe,
    } = history;
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
    entries.insert(
        0,
        JournalEntry {
            at,
            record: Record::Started(start),
        },
    );
    (entries, notes)
}

/// Reads a history, whose program follows from the names of the files.
fn read_history(path: &Path) -> Result<ImportedHistory, CommandError> {
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        return claude_code::read_transcript(path);
    }
    let folder = if path.is_file() {
        path.parent().unwrap_or(Path::new("."))
    } else {
        path
    };
    if folder.join(cline::MESSAGES_FILE).is_file() {
        return cline::read_task_folder(folder);
    }
    let found = if path.exists() {
        "holds none of them"
    } else {
        "does not exist"
    };
    Err(CommandError::usage(format!(
        "{} {found}: give the folder of a task of Cline's or Roo Code's, which has a file {}, or a .jsonl file of Claude Code's",
        path.display(),
        cline::MESSAGES_FILE
    )))
}

/// Reads a text file, replacing and noting invalid UTF-8.
fn read_text_lossy(path: &Path, notes: &mut ImportNotes) -> Result<String, CommandError> {
    let bytes = std::fs::read(path).map_err(|error| {
        CommandError::usage(format!("{} cannot be read: {error}", path.display()))
    })?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        notes.add_count("bytes that are no UTF-8, which were replaced: files", 1);
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// Reads a file with one JSON value.
fn read_json(path: &Path, notes: &mut ImportNotes) -> Result<Value, CommandError> {
    serde_json::from_str(&read_text_lossy(path, notes)?)
        .map_err(|error| CommandError::usage(format!("{} is no JSON: {error}", path.display())))
}

/// Returns the modification time of a file, for a history without times.
fn written_at(path: &Path, notes: &mut ImportNotes) -> u64 {
    notes.add_count(
        "histories without times, which begin when the file was written",
        1,
    );
    let modified = std::fs::metadata(path)
        .and_then(|found| found.modified())
        .ok();
    let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    since
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

/// Returns a string field of an object, unless it is empty.
fn string_field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value
        .get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}
