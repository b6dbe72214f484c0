//! Chooses the tool that a model is offered to change parts of files.

use std::str::FromStr;

use crate::apply_patch::ApplyPatch;
use crate::edit_file::EditFile;
use crate::replace_in_file::ReplaceInFile;
use crate::typed_tool::TypedTool;

/// A tool that changes parts of files. Models differ in which one they were trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EditTool {
    /// `replace_in_file`: SEARCH/REPLACE blocks. Any model can write them.
    #[default]
    ReplaceInFile,
    /// `edit_file`: one text in place of another.
    EditFile,
    /// `apply_patch`: a patch of several files.
    ApplyPatch,
}

/// The error for a name that no edit tool has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not an edit tool: the edit tools are {}", list_names())]
pub struct EditToolError {
    name: String,
}

impl EditTool {
    /// All edit tools.
    pub const ALL: [Self; 3] = [Self::ReplaceInFile, Self::EditFile, Self::ApplyPatch];

    /// Returns the name that models write.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplaceInFile => ReplaceInFile::NAME,
            Self::EditFile => EditFile::NAME,
            Self::ApplyPatch => ApplyPatch::NAME,
        }
    }
}

impl FromStr for EditTool {
    type Err = EditToolError;

    fn from_str(name: &str) -> Result<Self, EditToolError> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.name() == name)
            .ok_or_else(|| EditToolError {
                name: name.to_owned(),
            })
    }
}

/// Lists the names of all edit tools.
fn list_names() -> String {
    EditTool::ALL
        .map(|tool| format!("`{}`", tool.name()))
        .join(", ")
}
