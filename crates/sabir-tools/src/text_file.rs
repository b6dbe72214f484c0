//! A text file that is to be changed: what it says, and the way back to its bytes.

use sabir_edit::{DecodedText, NotText, TextEncoding};
use sabir_workspace::{FileChange, FileVersion, WorkPath, WorkspaceError, WritePrecondition};

use crate::file_tracker::FileTracker;
use crate::text::{self, MAX_FILE_BYTES};

/// The file as it was when it was opened.
pub(crate) struct TextFile {
    pub(crate) path: WorkPath,
    /// What it says.
    pub(crate) content: String,
    encoding: TextEncoding,
    version: FileVersion,
}

impl TextFile {
    /// Opens a file in order to change parts of it, unless it is another than the model knows.
    pub(crate) fn open(ground: &FileTracker, path: WorkPath) -> Result<Self, String> {
        let found = ground
            .workspace()
            .read_file(&path, MAX_FILE_BYTES)
            .map_err(|error| match error {
                WorkspaceError::Missing { .. } => {
                    format!(
                        "{} To make a new file use write_to_file.",
                        ground.explain_error(&error)
                    )
                }
                error => ground.explain_error(&error),
            })?;
        if found.truncated {
            return Err(format!(
                "`{path}` has {}, and files up to {} can be edited. Use execute_command.",
                text::count_bytes(found.size_bytes),
                text::count_bytes(MAX_FILE_BYTES as u64)
            ));
        }
        let text = DecodedText::decode(&found.bytes);
        ground.check_fresh(
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
            Err(error) => Err(binary_message(&path, error)),
        }
    }

    /// The change that gives the file another content.
    pub(crate) fn content_change(&self, content: &str) -> Result<FileChange, String> {
        let content = encode_content(&self.path, self.encoding, content)?;
        Ok(FileChange::write(
            self.path.clone(),
            content,
            WritePrecondition::Version(self.version),
        ))
    }

    /// The two changes that give the file another content and another place, where nothing may be.
    pub(crate) fn move_change(
        &self,
        to: WorkPath,
        content: &str,
    ) -> Result<[FileChange; 2], String> {
        let content = encode_content(&self.path, self.encoding, content)?;
        Ok(FileChange::move_file(
            self.path.clone(),
            WritePrecondition::Version(self.version),
            to,
            content,
        ))
    }
}

/// Text in the encoding that the file has.
pub(crate) fn encode_content(
    path: &WorkPath,
    encoding: TextEncoding,
    content: &str,
) -> Result<Vec<u8>, String> {
    encoding.encode(content).map_err(|error| {
        format!(
            "`{path}`: {error}. Nothing was written. Use characters that it has, or first convert the file to UTF-8 with \
             execute_command (`iconv`)."
        )
    })
}

fn binary_message(path: &WorkPath, error: NotText) -> String {
    format!("`{path}` cannot be edited: {error}. Use execute_command.")
}
