//! Goes to another task, or back to an earlier message of this one.

use std::collections::HashMap;

use sabir_session::agent::{MessageAuthor, Record, TaskId, UserMessage};
use sabir_session::call::MessagePart;
use sabir_session::checkpoint_history::{CheckpointFolder, RestorePreview};
use sabir_session::draft_store::DraftStore;
use sabir_session::{Host, Session, SessionError, SessionSpec, TaskList};

/// A message of the user in the records of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// The number of records before it.
    pub records_before: usize,
    /// The number of answers before it.
    pub answers_before: usize,
    /// The text.
    pub text: String,
}

/// The user's messages in a task, for a rewind.
#[derive(Debug, Default)]
pub struct SentMessages {
    messages: Vec<SentMessage>,
    /// The number of records before the answer that each call is in.
    calls: HashMap<String, usize>,
    /// The number of records so far.
    records: usize,
}

impl SentMessages {
    /// Notes the next record of the task. `answers` is the number of answers before it.
    pub fn note_record(&mut self, record: &Record, answers: usize) {
        if let Record::Answered(turn) = record {
            let calls = turn.parts.iter().filter_map(|part| match part {
                MessagePart::Call(call) => Some((call.id.as_str().to_owned(), self.records)),
                _ => None,
            });
            // Before the counter is raised: a fork before the call must not contain the answer with
            // the call.
            self.calls.extend(calls);
        }
        let text = match record {
            Record::Started(start) => Some(&start.prompt),
            Record::Said {
                by: MessageAuthor::User,
                text,
                ..
            } => Some(text),
            // Answers to questions are not messages: they cannot be sent again.
            _ => None,
        };
        if let Some(text) = text {
            self.messages.push(SentMessage {
                records_before: self.records,
                answers_before: answers,
                text: text.clone(),
            });
        }
        self.records += 1;
    }

    /// Returns the number of records before the answer that a call is in.
    pub fn records_before_call(&self, call: &str) -> Option<usize> {
        self.calls.get(call).copied()
    }

    /// Returns the messages, the oldest first.
    pub fn messages(&self) -> &[SentMessage] {
        &self.messages
    }
}

/// The session that the user has switched to.
#[derive(Debug, Clone, PartialEq)]
pub enum NextSession {
    /// A new task.
    New(UserMessage),
    /// A task that continues.
    Resumed {
        /// The task.
        task: TaskId,
        /// The message that it continues with.
        message: UserMessage,
    },
    /// A new task that begins with records of another.
    Forked {
        /// The other task.
        task: TaskId,
        /// The number of its records; `None` for all, and 0 for none.
        records: Option<usize>,
        /// True if files are restored to their state after these records.
        restores_files: bool,
        /// The message that it continues with.
        message: UserMessage,
    },
}

impl NextSession {
    /// Returns the message of the session.
    pub fn message(&self) -> &UserMessage {
        match self {
            Self::New(message) | Self::Resumed { message, .. } | Self::Forked { message, .. } => {
                message
            }
        }
    }

    /// Returns the message of the session, to change it.
    pub fn message_mut(&mut self) -> &mut UserMessage {
        match self {
            Self::New(message) | Self::Resumed { message, .. } | Self::Forked { message, .. } => {
                message
            }
        }
    }
}

/// Opens the next session. `spec` is the spec of the previous session, whose settings apply if a task has none. If it
/// cannot be opened, its message becomes the draft of the interface.
///
/// # Errors
/// When there is no such task, its files cannot be restored, or it cannot be continued.
pub async fn open_next_session(
    host: &Host,
    spec: &SessionSpec,
    next: NextSession,
) -> Result<Session, SessionError> {
    let draft = next.message().text.clone();
    let opened = start_next_session(host, spec, next).await;
    if opened.is_err() {
        save_draft(host, &draft);
    }
    opened
}

/// Keeps a message that could not be sent as the draft of the next interface.
pub fn save_draft(host: &Host, text: &str) {
    DraftStore::in_environment(host.environment()).save(text);
}

async fn start_next_session(
    host: &Host,
    spec: &SessionSpec,
    next: NextSession,
) -> Result<Session, SessionError> {
    // A task keeps its own model, protocol and mode.
    let own = SessionSpec {
        model: None,
        protocol: None,
        mode: None,
        ..spec.clone()
    };
    match next {
        NextSession::New(message) => host.start(spec.clone(), message).await,
        NextSession::Resumed { task, message } => host.load(&task, own, Some(message)).await,
        NextSession::Forked {
            task,
            records,
            restores_files,
            message,
        } => {
            if restores_files {
                // Before the fork, so that a conflict leaves no task behind.
                restore_files(host, &task, records)?;
            }
            // Without any record there is nothing to fork: the first message begins a new task.
            if records == Some(0) {
                return host.start(spec.clone(), message).await;
            }
            let fork = host.fork(&task, records, &own)?;
            host.load(&fork, own, Some(message)).await
        }
    }
}

/// Restores the files of a task to their state after its first records. Returns the number of restored paths.
///
/// # Errors
/// When a path has changed since, or cannot be written; then nothing was changed.
pub fn restore_files(
    host: &Host,
    task: &TaskId,
    records: Option<usize>,
) -> Result<usize, SessionError> {
    let (folder, entries) = read_until(host, task, records)?;
    let restored = folder
        .restore_for_fork(task, &entries)
        .map_err(|error| SessionError::invalid(error.to_string()))?;
    Ok(restored.map_or(0, |outcome| outcome.restored))
}

/// Returns the paths that [`restore_files`] would change, as lines for the user.
pub fn preview_restore(host: &Host, task: &TaskId, records: usize) -> String {
    let preview = read_until(host, task, Some(records)).and_then(|(folder, entries)| {
        folder
            .preview_for_fork(task, &entries)
            .map_err(|error| SessionError::invalid(error.to_string()))
    });
    match preview {
        Ok(Some(preview)) => preview_lines(&preview),
        Ok(None) => "no file has changed since".to_owned(),
        Err(error) => format!("files cannot be restored: {error}"),
    }
}

/// Returns the paths that a restore would change, as lines for the user.
pub(crate) fn preview_lines(preview: &RestorePreview) -> String {
    let restored = preview
        .restored_items()
        .map(|item| format!("restores {}\n", item.path.display()));
    let skipped = preview.skipped_items().map(|item| {
        let reason = item.conflict.as_ref().map(ToString::to_string);
        format!(
            "cannot restore {}: {}\n",
            item.path.display(),
            reason.unwrap_or_default()
        )
    });
    restored.chain(skipped).collect()
}

type Entries = Vec<sabir_session::JournalEntry>;

fn read_until(
    host: &Host,
    task: &TaskId,
    records: Option<usize>,
) -> Result<(CheckpointFolder, Entries), SessionError> {
    let mut entries = TaskList::read(host.environment(), None, &[])?.read_records(task);
    let folder = entries.iter().find_map(|entry| match &entry.record {
        Record::Started(start) => Some(std::path::PathBuf::from(&start.workspace)),
        _ => None,
    });
    entries.truncate(records.unwrap_or(entries.len()));
    let folder = CheckpointFolder::open(host, folder.as_deref())
        .map_err(|error| SessionError::invalid(error.to_string()))?;
    Ok((folder, entries))
}
