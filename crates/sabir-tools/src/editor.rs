//! Connects the file tools to an editor in which the user has files open.
//!
//! The text of a buffer counts, also where it is not saved: the tools read it in place of the file, and change it through the editor.
//! An editor that fails or does not answer is left out, unless unsaved text would be lost by that.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_call::CallId;
use sabir_edit::{DecodedText, TextEncoding};
use sabir_workspace::{
    CommandExit, FileChange, FileContent, FileVersion, WorkPath, Workspace, WorkspaceError,
    WritePrecondition,
};

use crate::file_error::FileError;
use crate::file_tracker::decode_whole;
use crate::text::MAX_FILE_BYTES;

/// The number of buffers above which all are forgotten, until they are asked for again.
const MAX_BUFFERS: usize = 10_000;

/// A future of the answer of an editor. The editor ends it with an error if it takes too long.
pub type EditorFuture<T> = Pin<Box<dyn Future<Output = Result<T, EditorFailure>> + Send>>;

/// An editor with buffers of files in the workspace.
pub trait Editor: Send + Sync + std::fmt::Debug {
    /// Reports whether buffers can be written.
    fn can_write(&self) -> bool;

    /// Reads the text of a file as the editor has it. `path` is absolute, without links.
    fn read_text(&self, path: &Path) -> EditorFuture<String>;

    /// Gives a file another text, in its buffer and on disk. `path` is absolute, without links.
    fn write_text(&self, path: &Path, text: &str) -> EditorFuture<()>;

    /// Reports whether the editor runs commands in terminals.
    fn has_terminals(&self) -> bool {
        false
    }

    /// Runs a command in a terminal until it ends. Dropping the future kills the command.
    ///
    /// [`EditorFailure::Refused`] means that nothing ran, [`EditorFailure::NoResponse`] that the outcome is unknown.
    fn run_command(&self, _: TerminalCommand) -> EditorFuture<TerminalOutcome> {
        let refusal = EditorFailure::Refused("it has no terminals".to_owned());
        Box::pin(std::future::ready(Err(refusal)))
    }
}

/// A command for a terminal of an editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalCommand {
    /// The call that the command belongs to.
    pub call: CallId,
    /// The command line as the model wrote it.
    pub text: String,
    /// The program that runs the line.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The folder in which it runs: absolute, without links.
    pub folder: PathBuf,
    /// All its variables. It gets none of the editor's own, which may hold keys.
    pub environment: Vec<(String, String)>,
    /// The time after which it is killed.
    pub time_limit: Duration,
    /// The limit of kept output in bytes. The newest output is kept.
    pub output_bytes: u64,
}

/// The end of a command in a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalOutcome {
    /// The way in which it ended.
    pub end: TerminalEnd,
    /// Its output, as the terminal keeps it.
    pub output: String,
    /// True if the beginning of the output is missing.
    pub is_truncated: bool,
}

/// The way a command in a terminal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEnd {
    /// With this exit code.
    Exited(i32),
    /// By the signal of this name, such as `SIGTERM`.
    Signaled(String),
    /// By its time limit.
    TimedOut,
}

/// The reason why a request to an editor failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditorFailure {
    /// It refused, with this message.
    #[error("{0}")]
    Refused(String),
    /// It did not answer in time, or its connection is closed.
    #[error("it does not answer")]
    NoResponse,
}

/// A buffer, as the editor described it last.
#[derive(Debug, Clone)]
enum Buffer {
    /// It has the text of the file.
    Saved,
    /// It has another text, which is given here in the encoding of the file.
    Unsaved(Arc<[u8]>),
}

/// The place of a written text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteDestination {
    /// The file has it.
    Disk,
    /// The editor has it in a buffer and has not saved it.
    Buffer,
}

impl TerminalEnd {
    /// Returns the end in the form of a command that was run here.
    pub(crate) fn to_exit(&self) -> CommandExit {
        const SIGNALS: [(&str, i32); 9] = [
            ("HUP", 1),
            ("INT", 2),
            ("QUIT", 3),
            ("ABRT", 6),
            ("KILL", 9),
            ("SEGV", 11),
            ("PIPE", 13),
            ("TERM", 15),
            ("XFSZ", 25),
        ];
        match self {
            Self::Exited(code) => CommandExit::Exited(*code),
            Self::TimedOut => CommandExit::TimedOut,
            Self::Signaled(name) => {
                let short = name.trim_start_matches("SIG");
                let known = SIGNALS.iter().find(|(known, _)| *known == short);
                let number = known.map_or_else(|| short.parse().ok(), |(_, number)| Some(*number));
                CommandExit::Signaled(number.unwrap_or_default())
            }
        }
    }
}

impl WriteDestination {
    /// Returns the remark for the model, if there is one.
    pub(crate) fn note(self) -> Option<&'static str> {
        match self {
            Self::Disk => None,
            Self::Buffer => Some(
                "[The user's editor has this and has not saved it yet: commands see the old file.]",
            ),
        }
    }
}

/// The buffers of the editor, as far as the tools asked for them. Without an editor there are none.
#[derive(Debug, Default)]
pub(crate) struct EditorBuffers {
    editor: Option<Arc<dyn Editor>>,
    buffers: Mutex<HashMap<WorkPath, Buffer>>,
}

impl EditorBuffers {
    pub(crate) fn new(editor: Option<Arc<dyn Editor>>) -> Self {
        Self {
            editor,
            buffers: Mutex::default(),
        }
    }

    pub(crate) fn has_editor(&self) -> bool {
        self.editor.is_some()
    }

    /// Asks the editor for its text of a file. The file on disk is used if the editor has no such text, or does not answer and had nothing
    /// unsaved at its last answer.
    pub(crate) async fn refresh(&self, workspace: &Workspace, path: WorkPath) {
        let Some(editor) = &self.editor else {
            return;
        };
        // A file that is no text, or too large, has no buffer that could be used.
        let is_text = |path: &WorkPath| match workspace.read_file(path, MAX_FILE_BYTES) {
            Ok(found) => decode_whole(&found).is_some(),
            Err(error) => matches!(error, WorkspaceError::Missing { .. }),
        };
        let buffer = if is_text(&path) {
            let answer = editor.read_text(&workspace.root().join(path.as_path()));
            match answer.await {
                // Compared with the file as it is after the answer: it may have been saved
                // meanwhile.
                Ok(text) => Buffer::compare(&text, workspace.read_file(&path, MAX_FILE_BYTES)),
                // It still has what it had. On disk an edit would go behind the user's back.
                Err(EditorFailure::NoResponse) if self.unsaved_content(&path).is_some() => return,
                Err(_) => None,
            }
        } else {
            None
        };
        let mut buffers = self.lock();
        if buffers.len() >= MAX_BUFFERS {
            buffers.clear();
        }
        match buffer {
            Some(buffer) => _ = buffers.insert(path, buffer),
            None => _ = buffers.remove(&path),
        }
    }

    /// Returns the text of a buffer that is not saved, as the content of its file.
    pub(crate) fn unsaved_content(&self, path: &WorkPath) -> Option<FileContent> {
        match self.lock().get(path)? {
            Buffer::Saved => None,
            Buffer::Unsaved(bytes) => Some(FileContent {
                bytes: bytes.to_vec(),
                version: FileVersion::of_content(bytes),
                size_bytes: bytes.len() as u64,
                truncated: false,
            }),
        }
    }

    /// Checks that changes lose no unsaved text.
    ///
    /// # Errors
    /// When a change would delete unsaved text, or the editor cannot apply it, or not together with the other files.
    pub(crate) fn check_changes(&self, changes: &[FileChange]) -> Result<(), FileError> {
        let unsaved = |change: &&FileChange| self.unsaved_content(&change.path).is_some();
        let Some(change) = changes.iter().find(unsaved) else {
            return Ok(());
        };
        let path = change.path.clone();
        if change.content.is_none() {
            return Err(FileError::UnsavedDeletion { path });
        }
        self.check_writable(&path)?;
        match changes.len() {
            1 => Ok(()),
            _ => Err(FileError::UnsavedAmongOthers { path }),
        }
    }

    /// Checks that a file has no unsaved text that could not be changed.
    ///
    /// # Errors
    /// When it has, and the editor takes no text.
    pub(crate) fn check_writable(&self, path: &WorkPath) -> Result<(), FileError> {
        let can_write = self.editor.as_ref().is_some_and(|one| one.can_write());
        match self.unsaved_content(path) {
            Some(_) if !can_write => Err(FileError::UnsavedOnly { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// Writes a text through the editor, if it has the file open and accepts writes; returns `None` if the file on disk must be written
    /// instead. Blocks.
    ///
    /// # Errors
    /// When the buffer's text is not the one that the change was made for, or the editor fails to change unsaved text.
    pub(crate) fn write_through(
        &self,
        workspace: &Workspace,
        change: &FileChange,
        text: &str,
    ) -> Result<Option<WriteDestination>, FileError> {
        let path = &change.path;
        let known = self.lock().get(path).cloned();
        let editor = self.editor.as_ref().filter(|editor| editor.can_write());
        let (Some(known), Some(editor), Some(content)) = (known, editor, &change.content) else {
            return Ok(None);
        };
        // Only a task of a runtime can wait for the editor.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return Ok(None);
        };
        let place = workspace.root().join(path.as_path());
        let before = workspace.read_file(path, MAX_FILE_BYTES);
        let is_unsaved = matches!(known, Buffer::Unsaved(_));
        // The editor could write it in another encoding than the file has.
        if !is_unsaved && content.as_slice() != text.as_bytes() {
            return Ok(None);
        }
        let stale = || FileError::Stale {
            path: path.to_string(),
        };
        let failed = |error: EditorFailure| match is_unsaved {
            true => Err(FileError::EditorFailed {
                path: path.clone(),
                error,
            }),
            // Nothing is lost: the editor reads the file again when it changes on disk.
            false => Ok(None),
        };
        let expected = match (&known, &before) {
            (Buffer::Unsaved(bytes), _) => FileVersion::of_content(bytes),
            (Buffer::Saved, Ok(found)) => found.version,
            (Buffer::Saved, Err(_)) => return Ok(None),
        };
        if change.expect != WritePrecondition::Version(expected) {
            return Err(stale());
        }
        // The user may type while a call waits for its approval.
        match runtime.block_on(editor.read_text(&place)) {
            Err(error) => return failed(error),
            Ok(now) => {
                let is_same = match &known {
                    Buffer::Unsaved(bytes) => has_text(bytes, &now),
                    Buffer::Saved => before.as_ref().is_ok_and(|old| has_text(&old.bytes, &now)),
                };
                if !is_same {
                    return Err(stale());
                }
            }
        }
        if let Err(error) = runtime.block_on(editor.write_text(&place, text)) {
            return failed(error);
        }
        let after = workspace.read_file(path, MAX_FILE_BYTES).ok();
        // If the file is neither the old nor the new one, the editor formatted it. The next read
        // shows that.
        let is_untouched = after.as_ref().map(|after| after.version)
            == before.as_ref().ok().map(|before| before.version);
        let is_saved = after.is_some_and(|after| has_text(&after.bytes, text));
        let (buffer, written) = if is_saved || !is_untouched {
            (Buffer::Saved, WriteDestination::Disk)
        } else {
            let bytes = Arc::from(content.as_slice());
            (Buffer::Unsaved(bytes), WriteDestination::Buffer)
        };
        self.lock().insert(path.clone(), buffer);
        Ok(Some(written))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkPath, Buffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// Compares the text of a buffer with the file; `None` if the file shows that there is no such buffer.
    fn compare(text: &str, found: Result<FileContent, WorkspaceError>) -> Option<Self> {
        let encoding = match found {
            Ok(found) => {
                if has_text(&found.bytes, text) {
                    return Some(Self::Saved);
                }
                decode_whole(&found)?.encoding
            }
            // Some editors have an empty text for every path.
            Err(WorkspaceError::Missing { .. }) if !text.is_empty() => TextEncoding::Utf8,
            Err(_) => return None,
        };
        let encoded = encoding.encode(text);
        let bytes = encoded.unwrap_or_else(|_| text.as_bytes().to_vec());
        Some(Self::Unsaved(Arc::from(bytes)))
    }
}

/// Reports whether the bytes of a file are this text. Editors show all line ends alike and no byte order mark.
fn has_text(bytes: &[u8], text: &str) -> bool {
    let Ok(decoded) = DecodedText::decode(bytes) else {
        return false;
    };
    decoded.content == text
        || plain_lines(&decoded.content).eq(plain_lines(text))
            && decoded.content.ends_with('\n') == text.ends_with('\n')
}

/// Returns the lines without their ends, whatever these are.
fn plain_lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_start_matches('\u{feff}').lines()
}
