//! Defines the specification of a session: a serializable description of its work, built from flags, an editor's request, a queue message or
//! a test.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sabir_call::{Dollars, ParallelCalls, TextRecovery};
use std::time::Duration;

use sabir_mcp::McpServerSpec;
use sabir_model::RetryPolicy;
use sabir_workspace::NetworkAccess;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::SessionError;

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
    /// The treatment of calls that the model writes as text although it was offered native calls.
    pub recovery: Option<TextRecovery>,
    /// The number of calls that a message of the model may hold; without it the configuration decides.
    pub parallel_calls: Option<ParallelCalls>,
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
    /// MCP servers that are added before those of the configuration.
    pub mcp_servers: Vec<McpServerSpec>,
    /// Takes no checkpoints: changes of the task cannot be undone.
    pub no_checkpoints: bool,
    /// The recording or replay of provider traffic.
    pub record: RecordMode,
    /// Publishes the change of files that each call is about to make: see
    /// [`Preview`](crate::SessionEventKind::Preview).
    pub previews: bool,
    /// The kind of user that answers questions.
    pub interactivity: Interactivity,
}

/// Rules that allow, ask about or deny calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSpec {
    /// Calls that run without a question: `reads`, `edits`, `commands`, `all`, `network`, `registries`, `none`, `command=LINE`, `kind=NAME`, …
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
    /// The limits of retries.
    pub retries: RetryLimits,
}

/// The limits of retries of requests that failed before their answer began. What is not set comes from the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryLimits {
    /// The most retries of one request.
    pub per_request: Option<u32>,
    /// The most retries between two complete answers.
    pub budget: Option<u32>,
}

/// The time for which a rate-limited request is retried while a person waits and sees the countdown.
const INTERACTIVE_PATIENCE: Duration = Duration::from_secs(600);
/// The same for a task without a conversation, unless the configuration sets another.
const HEADLESS_PATIENCE: Duration = Duration::from_secs(120);

impl Interactivity {
    /// Returns the time for which a rate-limited request is retried, unless the user has set the limits of retries.
    pub(crate) fn default_retry_duration(self) -> Duration {
        match self {
            Self::Interactive => INTERACTIVE_PATIENCE,
            Self::Controlled | Self::Headless => HEADLESS_PATIENCE,
        }
    }
}

impl RetryLimits {
    /// Replaces the limits of a policy by those that are set.
    pub(crate) fn apply_to(self, policy: &mut RetryPolicy) {
        policy.limit = self.per_request.unwrap_or(policy.limit);
        policy.budget = self.budget.unwrap_or(policy.budget);
    }
}

/// The conditions that must hold before a completion is accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompletionSpec {
    /// A shell command that must succeed. An empty one switches off the configured check.
    pub check: Option<String>,
    /// Refuses a completion while the model's todos are open.
    pub require_todos: bool,
    /// Accepts a result even if calls were denied and not replaced by later ones.
    pub allow_denied: bool,
    /// The form of a result in a task without a conversation. By default native tasks accept an answer.
    pub form: Option<ResultForm>,
    /// Asks the user, or the program that controls the task, to confirm a completion. Without a
    /// value the configuration decides; by default it asks.
    pub review: Option<bool>,
}

/// The form in which a model gives its result in a task without a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultForm {
    /// A call of `attempt_completion` only.
    Call,
    /// A plain answer too, as long as nothing was changed.
    Answer,
}

impl std::str::FromStr for ResultForm {
    type Err = SessionError;

    fn from_str(text: &str) -> Result<Self, SessionError> {
        match text {
            "call" => Ok(Self::Call),
            "answer" => Ok(Self::Answer),
            _ => Err(SessionError::invalid(format!(
                "`{text}` is not a form of a result: write `call` or `answer`"
            ))),
        }
    }
}

/// The sandbox of a task's commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSpec {
    /// The level: `off`, `1`, `2` or `best`.
    pub level: Option<String>,
    /// The network of commands; `None` for that of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkChoice>,
}

/// The network of commands: in JSON and TOML `false`, `"registries"` or `true`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkChoice {
    /// None.
    #[default]
    Denied,
    /// The hosts of package registries, through a proxy that records the connections.
    Registries,
    /// All of it.
    All,
}

/// The word for [`NetworkChoice::Registries`].
const REGISTRIES: &str = "registries";

impl Serialize for NetworkChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Denied => serializer.serialize_bool(false),
            Self::Registries => serializer.serialize_str(REGISTRIES),
            Self::All => serializer.serialize_bool(true),
        }
    }
}

impl<'de> Deserialize<'de> for NetworkChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworkVisitor)
    }
}

/// Reads a [`NetworkChoice`].
struct NetworkVisitor;

impl Visitor<'_> for NetworkVisitor {
    type Value = NetworkChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "true, false or \"{REGISTRIES}\"")
    }

    fn visit_bool<E>(self, is_on: bool) -> Result<NetworkChoice, E> {
        Ok(if is_on {
            NetworkChoice::All
        } else {
            NetworkChoice::Denied
        })
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<NetworkChoice, E> {
        if word == REGISTRIES {
            Ok(NetworkChoice::Registries)
        } else {
            Err(E::invalid_value(serde::de::Unexpected::Str(word), &self))
        }
    }
}

impl From<NetworkChoice> for NetworkAccess {
    fn from(choice: NetworkChoice) -> Self {
        match choice {
            NetworkChoice::Denied => Self::Denied,
            NetworkChoice::Registries => Self::Registries,
            NetworkChoice::All => Self::Allowed,
        }
    }
}

impl FromStr for NetworkChoice {
    type Err = SessionError;

    fn from_str(text: &str) -> Result<Self, SessionError> {
        match text {
            "all" => Ok(Self::All),
            REGISTRIES => Ok(Self::Registries),
            _ => Err(SessionError::invalid(format!(
                "`{text}` is not a network: `--network` allows all of it, `--network registries` package registries"
            ))),
        }
    }
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
    /// No recording and no replay.
    #[default]
    Off,
    /// Records into a new file.
    Record(PathBuf),
    /// Replays a recording, without network and key.
    Replay(PathBuf),
}

impl RecordMode {
    /// Refuses the user's pictures in a recorded or replayed task.
    ///
    /// # Errors
    /// When there are pictures: a recording cannot hold them.
    pub fn check_images(&self, pictures: &[PathBuf]) -> Result<(), SessionError> {
        if pictures.is_empty() || *self == Self::Off {
            return Ok(());
        }
        Err(SessionError::invalid(
            "a recording cannot hold your pictures: leave out --image, or --record and --replay",
        ))
    }
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
    pub(crate) fn to_machine(self) -> sabir_agent::Interactivity {
        match self {
            Self::Interactive => sabir_agent::Interactivity::Interactive,
            Self::Controlled => sabir_agent::Interactivity::Controlled,
            Self::Headless => sabir_agent::Interactivity::Headless,
        }
    }
}
