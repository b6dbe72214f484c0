//! Binds a write to the file that was checked.
//!
//! Minutes may pass between the decision about a call and its run, and a symbolic link can change in
//! between. The path is therefore resolved once when the call is prepared, and the run compares.

use sabir_policy::Access;
use sabir_workspace::{EntryKind, WorkPath, Workspace, WorkspaceError};

use crate::file_error::FileError;
use crate::file_tracker::FileTracker;

/// Returns the reason to ask about a file with several hard links. A write replaces the file under this name only, and the other names
/// cannot be found.
fn hard_link_reason(workspace: &Workspace, file: &WorkPath) -> Option<&'static str> {
    let found = workspace.metadata(file).ok()?;
    (found.kind == EntryKind::File && found.links > 1)
        .then_some("a hard link, whose other name may lie outside of the workspace")
}

/// The path that a prepared call would write.
#[derive(Debug)]
pub(crate) struct WriteTarget {
    /// The path as the model wrote it.
    path: String,
    /// The file that the path led to, or the reason that it may not be written.
    checked: Result<CheckedFile, WorkspaceError>,
}

/// A file that may be written, if the policy or the user agrees.
#[derive(Debug)]
struct CheckedFile {
    real: WorkPath,
    /// The reason that the write needs a person's approval even where edits are approved.
    protected: Option<&'static str>,
}

impl WriteTarget {
    /// Resolves the path of a write, as it leads now.
    pub(crate) fn resolve(tracker: &FileTracker, path: String) -> Self {
        let checked = tracker.resolve_path(&path).and_then(|real| {
            let workspace = tracker.workspace();
            // `resolve_path` has checked that it is visible.
            workspace.check_write_limit(&real)?;
            let protected = workspace
                .protection_reason(&real)
                .or_else(|| hard_link_reason(workspace, &real));
            Ok(CheckedFile { real, protected })
        });
        Self { path, checked }
    }

    /// Resolves the path again, for a trial that leaves this target to the run.
    pub(crate) fn resolve_again(&self, tracker: &FileTracker) -> Self {
        Self::resolve(tracker, self.path.clone())
    }

    /// Returns the path as the model wrote it.
    pub(crate) fn written_path(&self) -> &str {
        &self.path
    }

    /// Returns the access of the write.
    pub(crate) fn write_access(&self) -> Access {
        match &self.checked {
            Ok(file) => Access::Write {
                path: file.real.to_string(),
                protected: file.protected.map(str::to_owned),
            },
            Err(error) => Access::Invalid {
                reason: format!("{error}."),
            },
        }
    }

    /// Returns the file to write, right before the write.
    ///
    /// # Errors
    /// When the path leads elsewhere than when it was checked, or may not be written.
    pub(crate) fn confirm_file(self, tracker: &FileTracker) -> Result<WorkPath, FileError> {
        // A target that was refused stays refused, even if its path could be written by now.
        let checked = self.checked.map_err(|error| tracker.explain_error(error))?;
        let now = tracker.find_path(&self.path)?;
        if now != checked.real {
            return Err(FileError::Redirected {
                path: self.path,
                now,
                approved: checked.real,
            });
        }
        Ok(now)
    }
}
