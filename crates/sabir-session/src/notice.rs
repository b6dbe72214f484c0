//! Defines notices: messages for the user besides the events of a task, such as the sandbox in force.

use std::fmt;
use std::sync::Arc;

use sabir_agent::TaskId;
use serde::{Deserialize, Serialize};

/// A message for the user.
///
/// Its text has no line feed at the end. It may quote untrusted text, so a terminal must sanitize it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The topic.
    pub about: NoticeTopic,
    /// The subtask that it concerns; `None` for the session's own task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The message.
    pub text: String,
}

/// The topic of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoticeTopic {
    /// The sandbox of commands.
    Sandbox,
    /// Checkpoints that are off, and the result of an undo.
    Checkpoints,
    /// The folder: for example, it is the whole home, or has configuration that is not read.
    Workspace,
    /// An instruction file that was not read in full.
    Instructions,
    /// A journal that was recovered.
    Recovery,
    /// The mode, or the model that belongs to it.
    Mode,
    /// Subtasks that cannot be offered.
    Subtasks,
    /// A recording.
    Recording,
    /// The standard error of a command that prints a key.
    KeyCommand,
    /// Trust in repositories.
    Trust,
    /// A task that was forked from another.
    Fork,
    /// An MCP server.
    Mcp,
    /// A hook.
    Hooks,
}

/// Receives notices. Clones share the receiver; the default one discards them.
#[derive(Clone)]
pub struct NoticeSink(Arc<dyn Fn(Notice) + Send + Sync>);

impl NoticeSink {
    /// Creates a sink that calls a function. The function must be quick, and may be called from any thread.
    pub fn new(receive: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// Sends a notice about the session's own task.
    pub fn send(&self, about: NoticeTopic, text: impl Into<String>) {
        (self.0)(Notice {
            about,
            task: None,
            text: text.into(),
        });
    }

    /// Sends a notice about a subtask.
    pub fn send_about(&self, task: &TaskId, about: NoticeTopic, text: impl Into<String>) {
        (self.0)(Notice {
            about,
            task: Some(task.clone()),
            text: text.into(),
        });
    }
}

impl Default for NoticeSink {
    fn default() -> Self {
        Self::new(drop)
    }
}

impl fmt::Debug for NoticeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoticeSink")
    }
}
