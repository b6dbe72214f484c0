//! Notices: what a user should know beside the events of a task, such as which sandbox is in force.

use std::fmt;
use std::sync::Arc;

use sabir_agent::TaskId;
use serde::{Deserialize, Serialize};

/// Something a user should know. Its text is one or more whole sentences without a line feed at the end; it may quote foreign text, so a
/// terminal must sanitize it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What it is about.
    pub about: NoticeTopic,
    /// The subtask that it concerns; `None` for the session's own task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The message.
    pub text: String,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoticeTopic {
    /// Which sandbox commands get.
    Sandbox,
    /// Checkpoints are off.
    Checkpoints,
    /// The folder: it is too wide, or holds configuration that is not read.
    Workspace,
    /// An instruction file could not be read in full.
    Instructions,
    /// A journal was recovered.
    Recovery,
    /// The mode, or the model that belongs to it.
    Mode,
    /// Subtasks that cannot be offered.
    Subtasks,
    /// A recording.
    Recording,
    /// A command that prints a key wrote to standard error.
    KeyCommand,
    /// Trust in repositories.
    Trust,
    /// A new task was forked from another.
    Fork,
}

/// Takes notices. Clones share the receiver; the default one discards them.
#[derive(Clone)]
pub struct NoticeSink(Arc<dyn Fn(Notice) + Send + Sync>);

impl NoticeSink {
    /// A sink that calls a function, which must be quick.
    pub fn new(receive: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// Sends a notice about the session's own task.
    pub fn send(&self, about: NoticeTopic, text: impl Into<String>) {
        (self.0)(Notice { about, task: None, text: text.into() });
    }

    /// Sends a notice about a subtask.
    pub fn send_about(&self, task: &TaskId, about: NoticeTopic, text: impl Into<String>) {
        (self.0)(Notice { about, task: Some(task.clone()), text: text.into() });
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
