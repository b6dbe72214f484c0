//! Opens the file to edit and the workspace that contains it.

use std::path::{Path, PathBuf};

use sabir_edit::DecodedText;
use sabir_workspace::{FileVersion, WorkPath, Workspace, WorkspaceError};

use super::EditRefusal;
use crate::exit::CommandError;

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
    pub(super) fn for_file(file: &Path) -> Result<(Self, WorkPath), EditRefusal> {
        let real = file.canonicalize().or_else(|_| std::path::absolute(file));
        let real = real.map_err(|error| usage_refusal(format!("{}: {error}", file.display())))?;
        let target = Self::open(real.parent().unwrap_or(&real))?;
        let path = target.resolve_path(&real.to_string_lossy())?;
        Ok((target, path))
    }

    /// Opens the folder or its nearest existing ancestor; missing folders are created with their
    /// first file.
    pub(super) fn open(folder: &Path) -> Result<Self, EditRefusal> {
        let there = folder
            .ancestors()
            .find(|folder| folder.is_dir())
            .map(PathBuf::from);
        let there = there
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or_else(|| PathBuf::from("."));
        Ok(Self {
            workspace: Workspace::open(&there).map_err(workspace_refusal)?,
        })
    }

    /// Returns the path of a file with links resolved.
    pub(super) fn resolve_path(&self, text: &str) -> Result<WorkPath, EditRefusal> {
        let path = self.workspace.parse_path(text).map_err(workspace_refusal)?;
        self.workspace
            .resolve_links(&path)
            .map_err(workspace_refusal)
    }

    /// Reads a text file; `None` if it does not exist.
    pub(super) fn read_file(&self, path: &WorkPath) -> Result<Option<LoadedFile>, EditRefusal> {
        let found = match self.workspace.read_file(path, MAX_BYTES) {
            Ok(found) => found,
            Err(WorkspaceError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(workspace_refusal(error)),
        };
        if found.truncated {
            let words = format!(
                "`{path}` has {} bytes, and files up to {MAX_BYTES} are edited",
                found.size_bytes
            );
            return Err(usage_refusal(words));
        }
        let text = DecodedText::decode(&found.bytes)
            .map_err(|error| usage_refusal(format!("`{path}` is no text: {error}")))?;
        Ok(Some(LoadedFile {
            text,
            version: found.version,
        }))
    }
}

fn workspace_refusal(error: WorkspaceError) -> EditRefusal {
    usage_refusal(error.to_string())
}

/// Creates a refusal that is a usage error.
pub(super) fn usage_refusal(message: String) -> EditRefusal {
    EditRefusal::Failure(CommandError::usage(message))
}
