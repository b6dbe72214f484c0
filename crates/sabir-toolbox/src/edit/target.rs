//! Opens the file to edit and the workspace that contains it.

use std::path::{Path, PathBuf};

use sabir_edit::DecodedText;
use sabir_workspace::{FileVersion, WorkPath, Workspace, WorkspaceError};

use super::file_edit::{EditError, FileError};

/// The maximum size of an edited file in bytes (64 MiB).
const MAX_BYTES: usize = 64 << 20;

/// A folder opened as a workspace.
pub(super) struct EditTarget {
    /// The opened workspace.
    pub(super) workspace: Workspace,
}

/// The text and version of an existing file.
pub(super) struct LoadedFile {
    /// The decoded text and its encoding.
    pub(super) text: DecodedText,
    /// The version that the file must still have when it is written.
    pub(super) version: FileVersion,
}

impl EditTarget {
    /// Opens the folder of a file and returns the path of the file in it. Follows links.
    pub(super) fn for_file(file: &Path) -> Result<(Self, WorkPath), EditError> {
        // A missing file has no canonical path, but the edit may create it.
        let real = file.canonicalize().or_else(|_| std::path::absolute(file));
        let real = real.map_err(|error| FileError::Unresolvable {
            file: file.to_path_buf(),
            error,
        })?;
        let target = Self::open(real.parent().unwrap_or(&real))?;
        let path = target.resolve_path(&real.to_string_lossy())?;
        Ok((target, path))
    }

    /// Opens the folder or its nearest existing ancestor; missing folders are created with their
    /// first file.
    pub(super) fn open(folder: &Path) -> Result<Self, EditError> {
        // A workspace needs a folder that exists.
        let there = folder
            .ancestors()
            .find(|folder| folder.is_dir())
            .map(PathBuf::from);
        let there = there
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or_else(|| PathBuf::from("."));
        Ok(Self {
            workspace: Workspace::open(&there)?,
        })
    }

    /// Returns the path of a file with links resolved.
    pub(super) fn resolve_path(&self, text: &str) -> Result<WorkPath, EditError> {
        let path = self.workspace.parse_path(text)?;
        Ok(self.workspace.resolve_links(&path)?)
    }

    /// Reads a text file; `None` if it does not exist.
    pub(super) fn read_file(&self, path: &WorkPath) -> Result<Option<LoadedFile>, EditError> {
        let found = match self.workspace.read_file(path, MAX_BYTES) {
            Ok(found) => found,
            Err(WorkspaceError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The rest of a truncated file would be lost when it is written.
        if found.truncated {
            return Err(EditError::File(FileError::TooLarge {
                path: path.to_string(),
                size_bytes: found.size_bytes,
                limit_bytes: MAX_BYTES,
            }));
        }
        let text = DecodedText::decode(&found.bytes).map_err(|error| FileError::NotText {
            path: path.to_string(),
            error,
        })?;
        Ok(Some(LoadedFile {
            text,
            version: found.version,
        }))
    }
}
