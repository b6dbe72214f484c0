//! The tools that change parts of files, of which a model is offered one.

use std::fmt;
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

/// A name that no edit tool has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditToolError(String);

impl EditTool {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReplaceInFile, Self::EditFile, Self::ApplyPatch];

    /// The tool's name.
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
            .ok_or_else(|| EditToolError(name.to_owned()))
    }
}

impl fmt::Display for EditToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = EditTool::ALL
            .map(|tool| format!("`{}`", tool.name()))
            .join(", ");
        write!(
            f,
            "`{}` is no edit tool: the edit tools are {names}",
            self.0
        )
    }
}

impl std::error::Error for EditToolError {}
