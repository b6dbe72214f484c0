//! A text file that is to be changed: what it says, and the way back to its bytes.

use sabir_edit::{Encoding, NotText, Text};
use sabir_workspace::{Change, Expect, Version, WorkPath, WorkspaceError};

use crate::ground::Ground;
use crate::words::{self, MAX_FILE_BYTES};

/// The file as it was when it was opened.
pub(crate) struct TextFile {
    pub(crate) path: WorkPath,
    /// What it says.
    pub(crate) content: String,
    encoding: Encoding,
    version: Version,
}

impl TextFile {
    /// Opens a file in order to change parts of it, unless it is another than the model knows.
    pub(crate) fn open(ground: &Ground, path: WorkPath) -> Result<Self, String> {
        let found = ground.workspace().read(&path, MAX_FILE_BYTES).map_err(|error| match error {
            WorkspaceError::Missing { .. } => {
                format!("{} To make a new file use write_to_file.", ground.explain(&error))
            }
            error => ground.explain(&error),
        })?;
        if found.truncated {
            return Err(format!(
                "`{path}` has {}, and files up to {} can be edited. Use execute_command.",
                words::bytes(found.size_bytes),
                words::bytes(MAX_FILE_BYTES as u64)
            ));
        }
        let text = Text::decode(&found.bytes);
        ground.fresh(&path, found.version, text.as_ref().ok().map(|text| text.content.as_str()))?;
        match text {
            Ok(Text { content, encoding }) => Ok(Self { path, content, encoding, version: found.version }),
            Err(error) => Err(binary(&path, error)),
        }
    }

    /// The change that gives the file another content.
    pub(crate) fn change(&self, content: &str) -> Result<Change, String> {
        let content = encode(&self.path, self.encoding, content)?;
        Ok(Change::write(self.path.clone(), content, Expect::Version(self.version)))
    }

    /// The two changes that give the file another content and another place, where nothing may be.
    pub(crate) fn moved(&self, to: WorkPath, content: &str) -> Result<[Change; 2], String> {
        let content = encode(&self.path, self.encoding, content)?;
        Ok(Change::moved(self.path.clone(), Expect::Version(self.version), to, content))
    }
}

/// Text in the encoding that the file has.
pub(crate) fn encode(path: &WorkPath, encoding: Encoding, content: &str) -> Result<Vec<u8>, String> {
    encoding.encode(content).map_err(|error| {
        format!(
            "`{path}`: {error}. Nothing was written. Use characters that it has, or first convert the file to UTF-8 with \
             execute_command (`iconv`)."
        )
    })
}

fn binary(path: &WorkPath, error: NotText) -> String {
    format!("`{path}` cannot be edited: {error}. Use execute_command.")
}
