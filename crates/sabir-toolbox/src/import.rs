//! Converts another program's history into the records of a task: the command `import`.
//!
//! An imported task can be read, checked and forked, but not resumed, because its calls were another program's. The formats are parsed
//! leniently, since none has a standard. Everything that is left out is counted and reported, also in the first record.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sabir_agent::{Record, TaskId, TaskOrigin, TaskStart};
use sabir_call::ToolProtocol;
use sabir_call::dialect::DialectSet;
use sabir_journal::JournalEntry;
use serde::Serialize;
use serde_json::Value;

use crate::report::{Report, write_redacted_line};
use crate::text::count_noun;

mod blocks;
mod claude_code;
mod cline;
mod record_builder;
mod source_files;
mod tools;

/// A reason why a history cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file that should hold JSON does not.
    #[error("{} is not JSON: {error}", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: serde_json::Error,
    },
    /// A path holds no history of a known program.
    #[error(
        "{} {found}: give the folder of a task of Cline's or Roo Code's, which has a file {}, or a .jsonl file of Claude Code's",
        path.display(), cline::MESSAGES_FILE
    )]
    UnknownHistory {
        /// The path.
        path: PathBuf,
        /// What was found there instead, as a phrase.
        found: &'static str,
    },
    /// A file that should hold messages does not.
    #[error("{} holds no array of messages", .0.display())]
    NoMessages(PathBuf),
    /// A history has no message of a user, with which a task must begin.
    #[error("{} contains no text of a user{advice}", path.display())]
    NoPrompt {
        /// The file or folder.
        path: PathBuf,
        /// A conclusion for the user; may be empty.
        advice: &'static str,
    },
}

/// A history in parsed form.
pub struct ImportedHistory {
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
    entries: Vec<JournalEntry>,
    notes: Vec<String>,
}

/// Reads a history, whose program follows from the names of the files: the folder of a task of Cline or Roo Code, a file in it, or a
/// `.jsonl` file of Claude Code. Calls in text are read in these `dialects`.
///
/// # Errors
/// There is no such history, or it cannot be read.
pub fn read_history(path: &Path, dialects: &DialectSet) -> Result<ImportedHistory, ImportError> {
    let path = source_files::resolve_path(path);
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        return claude_code::read_transcript(&path, dialects);
    }
    // Any file of a task's folder names the task.
    let folder = if path.is_file() {
        path.parent().unwrap_or(Path::new("."))
    } else {
        &path
    };
    if folder.join(cline::MESSAGES_FILE).is_file() {
        return cline::read_task_folder(folder, dialects);
    }
    let found = if path.exists() {
        "holds none of them"
    } else {
        "does not exist"
    };
    Err(ImportError::UnknownHistory { path, found })
}

impl ImportedHistory {
    /// Creates the records of a task with this id; the first record names their origin.
    pub fn into_task(self, id: TaskId) -> ImportedTask {
        let start = TaskStart {
            task: id.clone(),
            prompt: self.prompt,
            workspace: self.workspace,
            model: self.model,
            protocol: self.protocol,
            // The version of the journal's writer, not of the program that the history comes from.
            version: env!("CARGO_PKG_VERSION").to_owned(),
            edit_tool: None,
            mode: None,
            from: Some(TaskOrigin::Import {
                program: self.program.to_owned(),
                source: self.source.display().to_string(),
                notes: self.notes.clone(),
            }),
        };
        let first = JournalEntry {
            at: self.at,
            record: Record::Started(start),
        };
        ImportedTask {
            id,
            // A journal must begin with the start of its task.
            entries: std::iter::once(first).chain(self.entries).collect(),
            notes: self.notes,
        }
    }
}

/// The records of an imported task, ready to be written as a journal.
pub struct ImportedTask {
    /// The id of the task.
    pub id: TaskId,
    /// The records.
    pub entries: Vec<JournalEntry>,
    /// Notes about what was left out or changed.
    pub notes: Vec<String>,
}

impl ImportedTask {
    /// Returns the report of `import`.
    pub fn report(&self) -> ImportReport<'_> {
        ImportReport {
            task: &self.id,
            records: self.entries.len(),
            notes: &self.notes,
        }
    }
}

/// The report of `import`. Its text is the id of the task alone, for use in a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportReport<'a> {
    /// The id of the task.
    pub task: &'a TaskId,
    /// The number of records.
    pub records: usize,
    /// Notes about what was left out or changed.
    pub notes: &'a [String],
}

impl ImportReport<'_> {
    /// Returns the sentences that go with the text: the notes, and the number of records.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        let count = format!("{} as the task", count_noun(self.records, "record"));
        self.notes.iter().cloned().chain([count])
    }
}

impl Report for ImportReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.task)
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_redacted_line(self, out)
    }
}

/// Returns a string field of an object, unless it is empty.
fn string_field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value
        .get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}
