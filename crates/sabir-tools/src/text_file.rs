//! Opens a text file for an edit, and encodes the edited text as the file was.

use sabir_edit::{DecodedText, TextEncoding};
use sabir_workspace::{FileChange, FileVersion, WorkPath, WorkspaceError, WritePrecondition};

use crate::file_error::FileError;
use crate::file_tracker::FileTracker;

/// A text file as it was when it was opened.
pub(crate) struct TextFile {
    /// The file, links resolved.
    pub(crate) path: WorkPath,
    /// The decoded text.
    pub(crate) content: String,
    encoding: TextEncoding,
    version: FileVersion,
}

impl TextFile {
    /// Opens a file in order to change parts of it.
    ///
    /// # Errors
    /// When the file is missing, too large, binary, or not the version that the model knows.
    pub(crate) fn open_known(tracker: &FileTracker, path: WorkPath) -> Result<Self, FileError> {
        tracker.buffers().check_writable(&path)?;
        let found = tracker.read_file(&path).map_err(|error| match error {
            FileError::Missing(_) | FileError::Workspace(WorkspaceError::Missing { .. }) => {
                FileError::NothingToEdit(Box::new(error))
            }
            error => error,
        })?;
        if found.truncated {
            return Err(FileError::TooLarge {
                path,
                size_bytes: found.size_bytes,
            });
        }
        let text = DecodedText::decode(&found.bytes);
        // A file that became binary is first of all a file that changed.
        tracker.check_version(
            &path,
            found.version,
            text.as_ref().ok().map(|text| text.content.as_str()),
        )?;
        match text {
            Ok(DecodedText { content, encoding }) => Ok(Self {
                path,
                content,
                encoding,
                version: found.version,
            }),
            Err(reason) => Err(FileError::Binary { path, reason }),
        }
    }

    /// Returns the change that gives the file another content.
    pub(crate) fn content_change(&self, content: &str) -> Result<FileChange, FileError> {
        let content = encode_content(&self.path, self.encoding, content)?;
        Ok(FileChange::write(
            self.path.clone(),
            content,
            WritePrecondition::Version(self.version),
        ))
    }

    /// Returns the two changes that move the file and give it another content. Nothing may exist at
    /// the new path.
    pub(crate) fn move_change(
        &self,
        to: WorkPath,
        content: &str,
    ) -> Result<[FileChange; 2], FileError> {
        let content = encode_content(&self.path, self.encoding, content)?;
        Ok(FileChange::move_file(
            self.path.clone(),
            WritePrecondition::Version(self.version),
            to,
            content,
        ))
    }
}

/// Encodes text in the encoding that the file has.
///
/// # Errors
/// [`FileError::Unencodable`] if the encoding lacks a character.
pub(crate) fn encode_content(
    path: &WorkPath,
    encoding: TextEncoding,
    content: &str,
) -> Result<Vec<u8>, FileError> {
    encoding
        .encode(content)
        .map_err(|reason| FileError::Unencodable {
            path: path.clone(),
            reason,
        })
}
