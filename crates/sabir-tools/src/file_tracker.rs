//! Tracks which version of each file the model has seen.
//!
//! Every file tool of a task shares one [`FileTracker`]. It resolves the paths that models write,
//! and refuses a write if the file is not the version that the model last read or wrote: a formatter
//! or the user changed it in between, and the model would overwrite their work unseen.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::RefreshFuture;
use sabir_call::escaping::restore_name;
use sabir_edit::DecodedText;
use sabir_policy::Access;
use sabir_workspace::{
    FileChange, FileContent, FileVersion, WorkPath, Workspace, WorkspaceError, WritePrecondition,
};

use crate::editor::{Editor, EditorBuffers, WriteDestination};
use crate::file_error::FileError;
use crate::missing_path::MissingPath;
use crate::text::{self, MAX_FILE_BYTES};

/// The number of files above which all are forgotten. An overwrite of a forgotten file is not
/// checked against the version that the model knows, only against the version that the tool itself
/// read.
const MAX_REMEMBERED: usize = 100_000;
/// The size of a content above which only the version is kept, so that a change cannot be shown.
const MAX_KEPT_BYTES: usize = 256 << 10;
/// The size of all kept contents together.
const MAX_ALL_KEPT_BYTES: usize = 16 << 20;
/// The size of a diff above which the model has to read the file again.
const MAX_SHOWN_DIFF_BYTES: usize = 4 << 10;

/// The workspace of a task, and the versions of its files that the model knows.
#[derive(Debug)]
pub(crate) struct FileTracker {
    workspace: Arc<Workspace>,
    known_files: Mutex<KnownFiles>,
    buffers: EditorBuffers,
}

/// A file that the model had seen before its task was resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenFile {
    /// The path as the model wrote it.
    pub path: String,
    /// The time until which the model knows the file, in milliseconds since 1970.
    pub seen_ms: u64,
}

/// The files that the model has read, in whole or in part, or has written.
#[derive(Debug, Default)]
struct KnownFiles {
    files: HashMap<WorkPath, KnownFile>,
    /// The files that the model saw before the task was resumed, with the time. Their versions are not kept on disk, so a file counts as
    /// changed by its modification time until the model sees it again.
    seen_before: HashMap<WorkPath, u64>,
    /// The size of all contents in `files`.
    kept_bytes: usize,
}

/// A file as the model last saw it.
#[derive(Debug, Clone)]
struct KnownFile {
    version: FileVersion,
    /// The whole content, if it is text and not too large.
    content: Option<Arc<str>>,
}

impl FileTracker {
    /// Creates the tracker of a task that has seen no file yet.
    pub(crate) fn new(workspace: Arc<Workspace>) -> Self {
        Self {
            workspace,
            known_files: Mutex::default(),
            buffers: EditorBuffers::default(),
        }
    }

    /// Connects the files with the user's editor, if there is one.
    pub(crate) fn with_editor(self, editor: Option<Arc<dyn Editor>>) -> Self {
        Self {
            buffers: EditorBuffers::new(editor),
            ..self
        }
    }

    /// Returns the work of asking the editor for its texts of these paths; `None` without an editor.
    pub(crate) fn refresh_buffers(self: &Arc<Self>, paths: Vec<String>) -> Option<RefreshFuture> {
        if !self.buffers.has_editor() {
            return None;
        }
        let tracker = Arc::clone(self);
        Some(Box::pin(async move {
            for path in paths {
                // A path that cannot be resolved fails when the call is prepared.
                if let Ok(real) = tracker.resolve_path(&path) {
                    tracker.buffers.refresh(&tracker.workspace, real).await;
                }
            }
        }))
    }

    /// Returns the buffers of the editor.
    pub(crate) fn buffers(&self) -> &EditorBuffers {
        &self.buffers
    }

    /// Adds the files that the model of a resumed task has seen. Of a path that is named twice the last one counts.
    pub(crate) fn with_seen_files(self, seen: &[SeenFile]) -> Self {
        // A path is resolved by a dozen system calls, and a long task names few paths very often.
        let mut named = HashSet::new();
        let last = seen.iter().rev().filter(|file| named.insert(&file.path));
        let resolved: Vec<_> = last
            .filter_map(|file| Some((self.resolve_path(&file.path).ok()?, file.seen_ms)))
            .collect();
        let oldest_first = resolved.into_iter().rev();
        self.lock_known().seen_before.extend(oldest_first);
        self
    }

    /// Returns the workspace.
    pub(crate) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Resolves a path as a model wrote it, following links.
    ///
    /// # Errors
    /// When the path is malformed, leaves the workspace or is hidden. Hidden paths are refused here,
    /// before the call is checked, so that the user is not asked about a call that cannot succeed.
    pub(crate) fn resolve_path(&self, path: &str) -> Result<WorkPath, WorkspaceError> {
        let named = self.parse_shown_path(path)?;
        self.workspace.resolve_readable(&named)
    }

    /// Parses a path that may be written as listings show it, with code points for control
    /// characters. A file that really has this name takes precedence.
    fn parse_shown_path(&self, path: &str) -> Result<WorkPath, WorkspaceError> {
        let named = self.workspace.parse_path(path)?;
        let Some(restored) =
            restore_name(path).filter(|_| !matches!(self.workspace.exists(&named), Ok(true)))
        else {
            return Ok(named);
        };
        let meant = self.workspace.parse_path(&restored)?;
        let exists = matches!(self.workspace.exists(&meant), Ok(true));
        Ok(if exists { meant } else { named })
    }

    /// Resolves a path like [`resolve_path`](Self::resolve_path), with an error for the model.
    pub(crate) fn find_path(&self, path: &str) -> Result<WorkPath, FileError> {
        self.resolve_path(path)
            .map_err(|error| self.explain_error(error))
    }

    /// Returns the access of a call that reads this path.
    pub(crate) fn read_access(&self, path: &str) -> Access {
        match self.resolve_path(path) {
            Ok(real) => Access::Read {
                path: real.to_string(),
                outside: false,
            },
            // The policy decides about the outside, and words its refusal for the model.
            Err(WorkspaceError::PathOutside { .. } | WorkspaceError::LinkLeaves { .. }) => {
                Access::Read {
                    path: path.to_owned(),
                    outside: true,
                }
            }
            Err(error) => Access::Invalid {
                reason: format!("{error}."),
            },
        }
    }

    /// Returns the access of a call that reads all these paths. Invalid paths are left out, unless
    /// all are invalid: the tool reports them together with the files that it can read.
    pub(crate) fn read_access_all<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Access {
        combine_accesses(paths.into_iter().map(|path| self.read_access(path)))
    }

    /// Reports whether something exists at a path.
    pub(crate) fn path_exists(&self, path: &WorkPath) -> Result<bool, FileError> {
        self.workspace
            .exists(path)
            .map_err(|error| self.explain_error(error))
    }

    /// Reads a file, at most [`MAX_FILE_BYTES`] of it.
    pub(crate) fn read_file(&self, path: &WorkPath) -> Result<FileContent, FileError> {
        self.read_content(path)
            .map_err(|error| self.explain_error(error))
    }

    /// Reads the text that the editor has not saved, else the file, at most [`MAX_FILE_BYTES`] of it.
    pub(crate) fn read_content(&self, path: &WorkPath) -> Result<FileContent, WorkspaceError> {
        match self.buffers.unsaved_content(path) {
            Some(unsaved) => Ok(unsaved),
            None => self.workspace.read_file(path, MAX_FILE_BYTES),
        }
    }

    /// Reports whether the model has seen the file.
    pub(crate) fn is_known(&self, path: &WorkPath) -> bool {
        let known = self.lock_known();
        known.files.contains_key(path) || known.seen_before.contains_key(path)
    }

    /// Remembers the version that the model has seen. `text` is the whole content, if it is text.
    pub(crate) fn record_version(&self, path: WorkPath, version: FileVersion, text: Option<&str>) {
        let content = text
            .filter(|text| text.len() <= MAX_KEPT_BYTES)
            .map(Arc::from);
        self.lock_known()
            .insert_file(path, KnownFile { version, content });
    }

    /// Checks that a file is the version that the model knows. A file that the model has never seen
    /// passes.
    ///
    /// # Errors
    /// [`FileError::Changed`] if the difference is short. The model has then seen it, so the present
    /// version becomes the known one. Otherwise [`FileError::Stale`].
    pub(crate) fn check_version(
        &self,
        path: &WorkPath,
        version: FileVersion,
        text: Option<&str>,
    ) -> Result<(), FileError> {
        if let Some(seen_ms) = self.seen_before(path) {
            let changed = self.workspace.metadata(path);
            let is_unsaved = self.buffers.unsaved_content(path).is_some();
            return match is_unsaved || changed.is_ok_and(|found| found.changed_ms > seen_ms) {
                true => Err(FileError::Stale {
                    path: path.to_string(),
                }),
                false => Ok(()),
            };
        }
        let known = self.lock_known().files.get(path).cloned();
        let Some(known) = known.filter(|known| known.version != version) else {
            return Ok(());
        };
        let diff = known
            .content
            .as_deref()
            .zip(text)
            .map(|(old, new)| text::render_diff(old, new));
        // An empty diff differs only in what a diff does not show, such as carriage returns.
        let Some(diff) = diff.filter(|diff| (1..=MAX_SHOWN_DIFF_BYTES).contains(&diff.len()))
        else {
            return Err(FileError::Stale {
                path: path.to_string(),
            });
        };
        self.record_version(path.clone(), version, text);
        Err(FileError::Changed {
            path: path.clone(),
            diff,
        })
    }

    /// Returns the time until which the model knows a file that it has not seen since the task was resumed.
    fn seen_before(&self, path: &WorkPath) -> Option<u64> {
        let known = self.lock_known();
        let seen_ms = known.seen_before.get(path)?;
        (!known.files.contains_key(path)).then_some(*seen_ms)
    }

    /// Plans the deletion of a file, if it is the version that the model knows.
    pub(crate) fn plan_deletion(&self, path: &WorkPath) -> Result<FileChange, FileError> {
        let found = self.read_file(path)?;
        let text = decode_whole(&found);
        self.check_version(
            path,
            found.version,
            text.as_ref().map(|text| text.content.as_str()),
        )?;
        // The version is passed on, so that a change between here and the deletion is noticed too.
        Ok(FileChange::delete(
            path.clone(),
            WritePrecondition::Version(found.version),
        ))
    }

    /// Makes all changes or none, and remembers the new versions. `contents` has the new text of
    /// each change, in the same order. The change of a single file goes through the editor, if that has the file.
    pub(crate) fn apply_changes(
        &self,
        changes: &[FileChange],
        contents: &[&str],
    ) -> Result<WriteDestination, FileError> {
        self.buffers.check_changes(changes)?;
        if let ([change], [text]) = (changes, contents)
            && let Some(written) = self.buffers.write_through(&self.workspace, change, text)?
        {
            let bytes = change.content.as_deref().unwrap_or_default();
            let version = FileVersion::of_content(bytes);
            self.record_version(change.path.clone(), version, Some(text));
            return Ok(written);
        }
        let versions = self
            .workspace
            .apply_changes(changes)
            .map_err(|error| match error {
                // The tools require absence only where nothing was a moment ago.
                WorkspaceError::Exists { path } => FileError::Stale { path },
                error => self.explain_error(error),
            })?;
        for ((change, version), content) in changes.iter().zip(versions).zip(contents) {
            match version {
                Some(version) => self.record_version(change.path.clone(), version, Some(content)),
                None => self.lock_known().remove_file(&change.path),
            }
        }
        Ok(WriteDestination::Disk)
    }

    /// Converts an error of the workspace. A missing path gets suggestions, which takes a listing.
    pub(crate) fn explain_error(&self, error: WorkspaceError) -> FileError {
        match error {
            WorkspaceError::Missing { path } => match self.workspace.parse_path(&path) {
                Ok(path) => {
                    FileError::Missing(Box::new(MissingPath::find_similar(&self.workspace, path)))
                }
                Err(_) => FileError::Workspace(WorkspaceError::Missing { path }),
            },
            WorkspaceError::Stale { path } => FileError::Stale { path },
            error => FileError::Workspace(error),
        }
    }

    /// Locks the known files. They are consistent after every statement, so a panic elsewhere while
    /// the lock was held is no reason to fail.
    fn lock_known(&self) -> MutexGuard<'_, KnownFiles> {
        self.known_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decodes a file that was read to its end; `None` if it was not, or is not text.
pub(crate) fn decode_whole(found: &FileContent) -> Option<DecodedText> {
    if found.truncated {
        return None;
    }
    DecodedText::decode(&found.bytes).ok()
}

/// Combines accesses into one, without the invalid ones unless all are invalid.
fn combine_accesses(all: impl Iterator<Item = Access>) -> Access {
    let (invalid, mut valid): (Vec<_>, Vec<_>) =
        all.partition(|access| matches!(access, Access::Invalid { .. }));
    match (valid.len(), invalid.into_iter().next()) {
        (0, Some(invalid)) => invalid,
        (1, _) => valid.remove(0),
        _ => Access::Several(valid),
    }
}

impl KnownFiles {
    /// Inserts a file, within the limits of memory: first contents are dropped, then all files.
    fn insert_file(&mut self, path: WorkPath, known: KnownFile) {
        self.remove_file(&path);
        if self.files.len() >= MAX_REMEMBERED {
            *self = Self::default();
        }
        let bytes = known.content.as_deref().map_or(0, str::len);
        // All contents at once: which of them is needed next cannot be known.
        if self.kept_bytes + bytes > MAX_ALL_KEPT_BYTES {
            self.files.values_mut().for_each(|file| file.content = None);
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
        self.files.insert(path, known);
    }

    /// Forgets a file.
    fn remove_file(&mut self, path: &WorkPath) {
        self.seen_before.remove(path);
        if let Some(content) = self.files.remove(path).and_then(|known| known.content) {
            self.kept_bytes -= content.len();
        }
    }
}
