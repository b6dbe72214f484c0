//! Task events: everything that screens, JSON lines and tests see of a task.
//!
//! A task event is a [`Record`], which is also in the journal, or a [`TransientEvent`], which is
//! not. Both are objects with a `kind`; there are sixteen kinds in all, and no delta repeats what
//! came before. An `answered` record holds the whole answer once more, since the journal keeps no
//! deltas. `docs/events.schema.json` describes each kind; a test compares it with these types.

use sabir_call::{CallId, Event, Fault};
use serde::{Serialize, Serializer};

use crate::record::{EchoSource, Record};
use crate::task::UserMessage;

/// An event for front ends: a record, or a transient event.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TaskEvent<'a> {
    /// A record, which is also in the journal.
    Record(&'a Record),
    /// A transient event, which is not kept.
    Transient(TransientEvent<'a>),
}

/// An event that is shown and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransientEvent<'a> {
    /// A request was sent to the model.
    Asking {
        /// The turn, counted from 1.
        turn: u32,
        /// The used share of the context window, in percent; absent if the window's size is not
        /// known.
        #[serde(skip_serializing_if = "Option::is_none")]
        full: Option<u64>,
    },
    /// A piece of the answer, whose calls are not checked yet.
    Delta(#[serde(serialize_with = "serialize_delta")] Event<'a>),
    /// A piece of a running tool's output.
    Output {
        /// The call.
        call: &'a CallId,
        /// The piece.
        text: &'a str,
    },
    /// The provider is asked again after a pause, or the model is asked for a summary first.
    Waiting {
        /// The reason, as text.
        reason: &'a str,
        /// The length of the pause, in milliseconds.
        milliseconds: u64,
    },
    /// The user is asked.
    Question(&'a UserQuestion),
}

/// Serializes an event of the model. A fault is nested, since its `kind` would collide with that of the transient event.
fn serialize_delta<S: Serializer>(event: &Event<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct SerializedDelta<'a> {
        event: &'static str,
        fault: &'a Fault,
    }
    match event {
        Event::Fault(fault) => SerializedDelta {
            event: "fault",
            fault,
        }
        .serialize(serializer),
        event => event.serialize(serializer),
    }
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
#[non_exhaustive]
pub enum UserQuestion {
    /// Asks for the approval of a call.
    Approval {
        /// The call.
        call: CallId,
        /// The name of the tool.
        tool: String,
        /// The path that the call would touch, or its whole command.
        subject: String,
        /// The text that the call would write, in full; empty if it writes nothing.
        detail: String,
        /// The reason why the call is not allowed without asking.
        reason: String,
        /// Rules that the user may approve with the call; with all of them approved, the question would not have been asked. Empty if only this one
        /// call can be approved.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        proposals: Vec<RuleProposal>,
        /// True if the question is asked because the call was read out of text although the session is native.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        recovered_from_text: bool,
        /// The text from which the model may have copied the call, if the call was written as text.
        #[serde(skip_serializing_if = "Option::is_none")]
        echo_of: Option<EchoSource>,
    },
    /// Asks the model's own question.
    Followup {
        /// The call.
        call: CallId,
        /// The question.
        question: String,
        /// Answers that the model proposes.
        options: Vec<String>,
    },
    /// Asks for the review of a completion.
    Completion {
        /// The call.
        call: CallId,
        /// The result, in the model's words.
        result: String,
    },
    /// Asks for a message: the model has answered without a call, or has made too many mistakes.
    Next {
        /// The reason for asking; empty after a reply without a call.
        reason: String,
    },
}

impl UserQuestion {
    /// Returns the call that the question is about, if there is one.
    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            Self::Approval { call, .. }
            | Self::Followup { call, .. }
            | Self::Completion { call, .. } => Some(call),
            Self::Next { .. } => None,
        }
    }
}

/// A narrow rule that would answer questions of this kind in the rest of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleProposal {
    /// The rule, in the form that
    /// [`PolicyRules::add_approval`](sabir_policy::PolicyRules::add_approval) accepts.
    pub rule: String,
    /// A description of what the rule allows.
    pub words: String,
}

/// A user's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserReply {
    /// Yes: run the call, or accept the completion.
    Yes,
    /// Yes, and the task follows these proposed rules from now on. Rules that were not proposed are
    /// ignored. The rules are not recorded, so a resumed task asks again.
    YesWithRules(Vec<String>),
    /// No, with a message for the model; empty if there is none.
    No(String),
    /// A message, which may hold images.
    Text(UserMessage),
    /// Leave the task, which can be resumed later.
    Leave,
}
