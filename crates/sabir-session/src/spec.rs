//! The specification of a session: a serializable description of its work, built from flags, an editor's request, a queue message or
//! a test.

use std::path::PathBuf;

use sabir_call::Dollars;
use serde::{Deserialize, Serialize};

/// The specification of a session: the folder, the model, the rules and the limits.
///
/// Fields that are left out take the configuration's value, then the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSpec {
    /// The folder to work in. Without it a new task works in the current folder, and a resumed one in its own.
    pub workspace: Option<PathBuf>,
    /// The configuration file; without it the user's.
    pub config: Option<PathBuf>,
    /// Files with further dialects, besides those of the configuration.
    pub dialect_files: Vec<PathBuf>,
    /// The model: `PROVIDER/NAME`, a name that implies its provider, or `http://HOST:PORT/v1#NAME`.
    pub model: Option<String>,
    /// The protocol for tool calls: `native`, or a dialect that the prompt teaches.
    pub protocol: Option<String>,
    /// The edit tool that the model is offered: `replace_in_file`, `edit_file` or `apply_patch`.
    pub edit_tool: Option<String>,
    /// The mode, such as `code`, `plan` or `ask`.
    pub mode: Option<String>,
    /// Rules besides those of the configuration.
    pub rules: RuleSpec,
    /// The limits that stop the task.
    pub limits: LimitSpec,
    /// The conditions of a completion.
    pub completion: CompletionSpec,
    /// The sandbox of commands.
    pub sandbox: SandboxSpec,
    /// The use of subtasks.
    pub subtasks: SubtaskSpec,
    /// Takes no checkpoints: changes of the task cannot be undone.
    pub no_checkpoints: bool,
    /// The recording or replay of provider traffic.
    pub record: RecordMode,
    /// The kind of user that answers questions.
    pub interactivity: Interactivity,
}

/// Rules that allow, ask about or deny calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSpec {
    /// Calls that run without a question: `reads`, `edits`, `commands`, `all`, `network`, `none`, `command=LINE`, `kind=NAME`, …
    pub approve: Vec<String>,
    /// Patterns of allowed accesses.
    pub allow: Vec<String>,
    /// Patterns of accesses that need a question, even if another rule allows them.
    pub ask: Vec<String>,
    /// Patterns of denied accesses; they override all other rules.
    pub deny: Vec<String>,
}

/// The limits that stop a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSpec {
    /// The most turns, counted from the start or the resume.
    pub max_turns: Option<u32>,
    /// The most tokens, read and written.
    pub max_tokens: Option<u64>,
    /// The most money, in US dollars.
    pub max_cost: Option<Dollars>,
    /// The most time, in seconds.
    pub max_seconds: Option<u64>,
}

/// The conditions that must hold before a completion is accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompletionSpec {
    /// A shell command that must succeed. An empty one switches off the configured check.
    pub check: Option<String>,
    /// Refuses a completion while the model's todos are open.
    pub require_todos: bool,
}

/// The sandbox of a task's commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSpec {
    /// The level: `off`, `1`, `2` or `best`.
    pub level: Option<String>,
    /// Gives commands access to the network.
    pub network: bool,
}

/// The use of subtasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubtaskSpec {
    /// Offers the tool that starts subtasks.
    pub offered: bool,
}

/// The recording or replay of the requests to a provider and its responses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordMode {
    /// Neither of both.
    #[default]
    Off,
    /// Records into a new file.
    Record(PathBuf),
    /// Replays a recording, without network and key.
    Replay(PathBuf),
}

/// The kind of user that answers the questions of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interactivity {
    /// A person: replies without a call hand the turn over, completions are confirmed, and the session stays open afterwards.
    Interactive,
    /// A program: it answers approvals and questions, and does not converse.
    Controlled,
    /// Nobody: calls that need a question are denied.
    #[default]
    Headless,
}

impl Interactivity {
    /// Converts to the type of the task machine.
    pub(crate) fn attended(self) -> sabir_agent::Interactivity {
        match self {
            Self::Interactive => sabir_agent::Interactivity::Interactive,
            Self::Controlled => sabir_agent::Interactivity::Controlled,
            Self::Headless => sabir_agent::Interactivity::Headless,
        }
    }
}
