//! The patch format: `*** Begin Patch`, files to add, delete, update and move, `*** End Patch`.

use super::Edited;
use super::fault::{self, EditFault};

/// A patch as it was read. Paths are as the model wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// What is to become of each file, in the order of the patch. No path is named twice.
    pub files: Vec<FilePatch>,
}

/// What is to become of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file.
    pub path: String,
    /// What to do with it.
    pub action: FileAction,
}

/// What to do with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAction {
    /// Make it, with this content.
    Add(String),
    /// Delete it.
    Delete,
    /// Change parts of it, and then perhaps move it.
    Update(Update),
}

/// Changes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Where it is moved to, if it is.
    pub move_to: Option<String>,
    /// The text of its hunks.
    hunks: String,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// Every fault of its form, in the order of the patch.
    pub fn parse(text: &str) -> Result<Self, Vec<EditFault>> {
        let _ = text;
        Err(vec![fault::no_blocks()])
    }
}

impl Update {
    /// Makes the changes in a text. An update that only moves gives the text unchanged, with no hunks.
    ///
    /// # Errors
    /// Every fault of every hunk.
    pub fn apply(&self, original: &str) -> Result<Edited, Vec<EditFault>> {
        let _ = (original, &self.hunks);
        Err(vec![fault::no_blocks()])
    }
}
