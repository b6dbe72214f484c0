//! A file of rules as it was found, for requests and for the report of `sabir context --folder`.

use serde::Serialize;

/// A file of rules, or a part of one that another file imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundInstructions {
    /// Its path, as a user would name it.
    pub path: String,
    /// The place that it belongs to.
    pub origin: InstructionOrigin,
    /// The file that imports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported_by: Option<String>,
    /// The globs of the paths that it is limited to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Its description, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes of it that are in the requests.
    pub sent_bytes: usize,
    /// Its use.
    #[serde(flatten)]
    pub state: InstructionState,
}

/// The place that rules belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionOrigin {
    /// The user's own folders.
    User,
    /// A folder of the repository above the workspace.
    Above,
    /// The workspace.
    Workspace,
    /// A folder below the workspace.
    Nested,
}

/// The use of a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum InstructionState {
    /// It is in the requests.
    Sent,
    /// It joins the requests when a path that it applies to is read or written.
    Waiting,
    /// Its name and description are in the requests; the model reads it when it applies.
    OnRequest,
    /// It is used only where a user names it.
    Manual,
    /// It has the same text as an earlier file.
    Repeated,
    /// It is empty.
    Blank,
    /// The size limit of all rules is reached.
    NoRoom,
    /// It is not read.
    Refused {
        /// The reason.
        reason: String,
    },
}
