//! Defines the commands of a session: everything that a user or a program can ask it to do.

pub use sabir_agent::MessageDelivery as Delivery;
use sabir_agent::{TaskId, UserMessage, UserReply};
use sabir_call::Image;
use serde::{Deserialize, Serialize};

use crate::event::RequestId;

/// A command to a session. Slash commands, control lines, editor requests and key bindings all become one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Command {
    /// Sends a message to the model.
    Send {
        /// The message.
        message: UserMessage,
        /// The time of its delivery.
        #[serde(default)]
        delivery: Delivery,
    },
    /// Answers an open question.
    Answer {
        /// The id of the question.
        request: RequestId,
        /// The answer.
        decision: Decision,
    },
    /// Switches the mode at once.
    SetMode {
        /// The name of the mode.
        mode: String,
    },
    /// Uses another model from the next turn on. Possible only while the session is idle.
    SetModel {
        /// The name of the model, as in [`SessionSpec::model`](crate::SessionSpec::model).
        model: String,
    },
    /// Compacts the context.
    Compact,
    /// Asks for the contents of the context; a [`ContextUsage`](crate::SessionEventKind::ContextUsage) event answers.
    ContextUsage,
    /// Logs in to an MCP server. Notices tell where, and how it ended.
    LogIn {
        /// The name of the server.
        server: String,
        /// The address at which the browser ended, where it cannot come back to this machine.
        #[serde(default)]
        address: Option<String>,
    },
    /// Stops the turn or the running command. An interactive session stays open.
    Interrupt,
    /// Undoes changes of files. Possible only while the session is idle.
    Undo {
        /// The number of changing calls to undo, counted back from the last one. Without it those since the user's last message
        /// are undone, as `sabir undo` does.
        #[serde(default)]
        calls: Option<usize>,
        /// The number of a checkpoint, as `sabir checkpoints` lists them: its call and all later ones are undone. An undo is a
        /// checkpoint too, so its number undoes the undo.
        #[serde(default)]
        checkpoint: Option<u32>,
    },
    /// Declares that nobody can be asked from now on: questions are denied.
    Detach,
    /// Ends the session.
    End,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Yes: run the call, accept the completion.
    Allow,
    /// Yes, and these of the proposed rules hold for the rest of the task.
    AllowAlways {
        /// The rules, as the question proposed them.
        rules: Vec<String>,
    },
    /// No, with a reason for the model if there is one.
    Deny {
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// The text of an answer, or a description of the missing part of a result.
    Text {
        /// The text.
        #[serde(default)]
        text: String,
        /// Images that belong to the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// Ends the task without an answer.
    Leave,
}

/// The reason why a command was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The session is over.
    #[error("the session is over")]
    Ended,
    /// No task with this id works in this session.
    #[error("no such task is running")]
    NoSuchTask(TaskId),
    /// The question is not open.
    #[error("no question about that call is open")]
    NoSuchRequest(RequestId),
    /// It is possible only while the session is idle.
    #[error("this is possible only while the task does not work: interrupt it first")]
    Busy,
    /// The command has no meaning here. The message says why.
    #[error("{0}")]
    Invalid(String),
}

impl From<Decision> for UserReply {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Allow => Self::Yes,
            Decision::AllowAlways { rules } => Self::YesWithRules(rules),
            Decision::Deny { reason } => Self::No(reason),
            Decision::Text { text, images } => Self::Text(UserMessage { text, images }),
            Decision::Leave => Self::Leave,
        }
    }
}

impl From<UserReply> for Decision {
    fn from(reply: UserReply) -> Self {
        match reply {
            UserReply::Yes => Self::Allow,
            UserReply::YesWithRules(rules) => Self::AllowAlways { rules },
            UserReply::No(reason) => Self::Deny { reason },
            UserReply::Text(UserMessage { text, images }) => Self::Text { text, images },
            _ => Self::Leave,
        }
    }
}
