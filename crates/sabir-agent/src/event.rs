//! Task events: what screens, JSON lines and tests see of a task.
//!
//! A task event is a [`Record`], which is also in the journal, or a [`TransientEvent`], which is not. Both are objects with a
//! `kind`; there are fifteen kinds in all, and no delta repeats what came before. An `answered` record holds the
//! whole answer once more, since the journal keeps no deltas. `docs/events.schema.json` says what each holds; a test keeps it true.

use sabir_call::{CallId, Event, Fault};
use serde::{Serialize, Serializer};

use crate::record::Record;

/// Something to show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TaskEvent<'a> {
    /// Something that is remembered.
    Record(&'a Record),
    /// Something that passes.
    Moment(TransientEvent<'a>),
}

/// Something that passes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransientEvent<'a> {
    /// The model is being asked.
    Asking {
        /// The turn, counted from 1.
        turn: u32,
        /// How full the context is, in percent, where it is known how much there is room for.
        #[serde(skip_serializing_if = "Option::is_none")]
        full: Option<u64>,
    },
    /// A piece of the answer. Calls are not checked yet.
    Delta(#[serde(serialize_with = "delta")] Event<'a>),
    /// A piece of a running tool's output.
    Output {
        /// The call.
        call: &'a CallId,
        /// The piece.
        text: &'a str,
    },
    /// The provider is asked again in a while, or something else comes first.
    Waiting {
        /// Why, in words.
        reason: &'a str,
        /// For how long.
        milliseconds: u64,
    },
    /// The user is asked.
    Question(&'a UserQuestion),
}

/// A fault has a kind of its own, which must not stand beside that of the moment.
fn delta<S: Serializer>(event: &Event<'_>, serializer: S) -> Result<S::Ok, S::Error> {
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

/// What the user is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "about", rename_all = "snake_case")]
#[non_exhaustive]
pub enum UserQuestion {
    /// Whether a call may run.
    Approval {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it would touch: the path, or the whole command.
        subject: String,
        /// What it would write, in full; empty where it writes nothing.
        detail: String,
        /// Why it is not allowed without asking.
        reason: String,
        /// What the user may answer beyond a yes; together they would have answered the question. Empty where only this very
        /// call can be approved.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        proposals: Vec<RuleProposal>,
    },
    /// What the model wants to know.
    Followup {
        /// The call.
        call: CallId,
        /// The question.
        question: String,
        /// Answers that the model proposes.
        options: Vec<String>,
    },
    /// Whether the result is what was wanted.
    Completion {
        /// The call.
        call: CallId,
        /// The result, in the model's words.
        result: String,
    },
    /// The model has answered without a call, or has made too many mistakes: what next?
    Next {
        /// Why the user is asked.
        reason: String,
    },
}

impl UserQuestion {
    /// The call that it is about, where it is about one.
    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            Self::Approval { call, .. }
            | Self::Followup { call, .. }
            | Self::Completion { call, .. } => Some(call),
            Self::Next { .. } => None,
        }
    }
}

/// A narrow rule that would answer questions of a kind in the rest of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleProposal {
    /// The rule, as [`Rules::add_approval`](sabir_policy::PolicyRules::add_approval) takes it.
    pub rule: String,
    /// What it would allow, in words.
    pub words: String,
}

/// What the user answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserReply {
    /// Yes: run the call, accept the completion.
    Yes,
    /// Yes, and these of the rules that the question proposed hold for the rest of the task. Anything else among them is left out.
    /// They are nowhere kept: a resumed task asks again.
    YesWithRules(Vec<String>),
    /// No, with words for the model if there are any.
    No(String),
    /// Words.
    Text(String),
    /// End the task, for now.
    Leave,
}
