//! The file that is edited, and the workspace it is in.

use std::path::{Path, PathBuf};

use sabir_edit::Text;
use sabir_workspace::{Version, WorkPath, Workspace, WorkspaceError};

use super::Refusal;
use crate::exit::Failure;

/// Larger files are not edited.
const MAX_BYTES: usize = 64 << 20;

/// A folder, opened as a workspace.
pub(super) struct Target {
    pub(super) workspace: Workspace,
}

/// A file that is there.
pub(super) struct Held {
    pub(super) text: Text,
    pub(super) version: Version,
}

impl Target {
    /// The folder of a file, and the file in it. What a link leads to is what is meant.
    pub(super) fn of_file(file: &Path) -> Result<(Self, WorkPath), Refusal> {
        let real = file.canonicalize().or_else(|_| std::path::absolute(file));
        let real = real.map_err(|error| failure(format!("{}: {error}", file.display())))?;
        let target = Self::open(real.parent().unwrap_or(&real))?;
        let path = target.path(&real.to_string_lossy())?;
        Ok((target, path))
    }

    /// Opens the folder, or the nearest one above it that is there: the missing ones are made with their first file.
    pub(super) fn open(folder: &Path) -> Result<Self, Refusal> {
        let there = folder.ancestors().find(|folder| folder.is_dir()).map(PathBuf::from);
        let there = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| PathBuf::from("."));
        Ok(Self { workspace: Workspace::open(&there).map_err(refused)? })
    }

    /// The real path of a file.
    pub(super) fn path(&self, text: &str) -> Result<WorkPath, Refusal> {
        let path = self.workspace.path(text).map_err(refused)?;
        self.workspace.resolve(&path).map_err(refused)
    }

    /// Reads a text file, if there is one.
    pub(super) fn read(&self, path: &WorkPath) -> Result<Option<Held>, Refusal> {
        let found = match self.workspace.read(path, MAX_BYTES) {
            Ok(found) => found,
            Err(WorkspaceError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(refused(error)),
        };
        if found.truncated {
            let words = format!("`{path}` has {} bytes, and files up to {MAX_BYTES} are edited", found.size_bytes);
            return Err(failure(words));
        }
        let text = Text::decode(&found.bytes).map_err(|error| failure(format!("`{path}` is no text: {error}")))?;
        Ok(Some(Held { text, version: found.version }))
    }
}

fn refused(error: WorkspaceError) -> Refusal {
    failure(error.to_string())
}

pub(super) fn failure(message: String) -> Refusal {
    Refusal::Failure(Failure::usage(message))
}
