//! What a session works on and how: a serializable description, built from flags, an editor's request, a queue message or a test.

use std::path::PathBuf;

use sabir_call::Dollars;
use serde::{Deserialize, Serialize};

/// What to work on, with what, and within which limits. Fields that are left out take the configuration's value, then the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSpec {
    /// The folder to work in. Without it a new task works in the current folder, and a resumed one in its own.
    pub workspace: Option<PathBuf>,
    /// The configuration file; without it the user's.
    pub config: Option<PathBuf>,
    /// Files with dialects of the user's own, besides those of the configuration.
    pub dialect_files: Vec<PathBuf>,
    /// The model: `PROVIDER/NAME`, a name that implies its provider, or `http://HOST:PORT/v1#NAME`.
    pub model: Option<String>,
    /// How calls are asked for: `native`, or a dialect that the prompt teaches.
    pub protocol: Option<String>,
    /// The edit tool that the model is offered: `replace_in_file`, `edit_file` or `apply_patch`.
    pub edit_tool: Option<String>,
    /// The mode, such as `code`, `plan` or `ask`.
    pub mode: Option<String>,
    /// Rules besides those of the configuration.
    pub rules: RuleSpec,
    /// When to stop.
    pub limits: LimitSpec,
    /// What must hold before the task is completed.
    pub completion: CompletionSpec,
    /// What confines commands.
    pub sandbox: SandboxSpec,
    /// Whether the model may start subtasks.
    pub subtasks: SubtaskSpec,
    /// Takes no checkpoints: changes of the task cannot be undone.
    pub no_checkpoints: bool,
    /// Whether provider traffic is recorded or replayed.
    pub record: RecordMode,
    /// Who answers questions.
    pub interactivity: Interactivity,
}

/// Rules that allow, ask about or deny calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSpec {
    /// What runs without a question: `reads`, `edits`, `commands`, `all`, `network`, `none`, `command=LINE`, `kind=NAME`, …
    pub approve: Vec<String>,
    /// Patterns of what is allowed.
    pub allow: Vec<String>,
    /// Patterns of what is asked about, whatever allows it.
    pub ask: Vec<String>,
    /// Patterns of what is denied, whatever else applies.
    pub deny: Vec<String>,
}

/// When a task stops.
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

/// What must hold before a completion is accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompletionSpec {
    /// A command that must succeed. An empty one switches off the configuration's.
    pub check: Option<String>,
    /// Refuses a completion while the model's todos are open.
    pub require_todos: bool,
}

/// What confines commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSpec {
    /// `off`, `1`, `2` or `best`.
    pub level: Option<String>,
    /// Gives commands the network.
    pub network: bool,
}

/// Whether the model may hand work to subtasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubtaskSpec {
    /// Offers the tool that starts subtasks.
    pub offered: bool,
}

/// Whether what the provider is asked and answers is recorded or replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordMode {
    /// Neither.
    #[default]
    Off,
    /// Recorded into a new file.
    Record(PathBuf),
    /// Replayed from a recording: no network, no key.
    Replay(PathBuf),
}

/// Who answers the questions of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interactivity {
    /// A person: replies without a call hand the turn over, completions are confirmed, and the session stays open afterwards.
    Interactive,
    /// A program: it answers approvals and questions, and does not converse.
    Controlled,
    /// Nobody: what would be asked is denied.
    #[default]
    Headless,
}

impl Interactivity {
    /// The same for the task machine.
    pub(crate) fn attended(self) -> sabir_agent::Interactivity {
        match self {
            Self::Interactive => sabir_agent::Interactivity::Interactive,
            Self::Controlled => sabir_agent::Interactivity::Controlled,
            Self::Headless => sabir_agent::Interactivity::Headless,
        }
    }
}
