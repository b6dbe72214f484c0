//! Holds the state of one response of the model: its calls, and the disposition of each.

use std::collections::HashSet;

use sabir_call::{
    DraftResponse, Fault, FaultKind, ModelError, ModelErrorKind, StopReason, Truncation, Usage,
};
use sabir_check::{CheckedCall, RULES};

use super::fingerprint::CallFingerprint;
use super::markup_filter::MarkupFilter;
use super::outgoing_call::OutgoingCall;
use super::value_start::ValueStart;

/// One response of the model, as far as it has arrived.
#[derive(Default)]
pub(crate) struct Attempt {
    /// The attempt's number, from 0.
    pub(crate) number: u32,
    /// All calls in the order of their starts, also those that the client never sees.
    pub(crate) calls: Vec<AttemptCall>,
    /// The waiting calls; if the model may be asked again, the whole response.
    pub(crate) draft: DraftResponse,
    /// Detects whether the open raw value begins with a line feed.
    pub(crate) beginning: ValueStart,
    /// The filter of the text.
    pub(crate) words: MarkupFilter,
    /// The filter of the thoughts, which may hold leaked markup too.
    pub(crate) thoughts: MarkupFilter,
    /// The tokens of this attempt.
    pub(crate) usage: Usage,
    /// The provider's stop reason. It waits, because it depends on the calls that are really sent.
    pub(crate) stop: Option<(StopReason, String)>,
    /// The first problem. No waiting call is sent after it.
    pub(crate) problem: Option<CallProblem>,
    /// The part of the response that is being read.
    pub(crate) position: ResponsePosition,
    /// True if the provider delivers the current piece as reasoning, apart from the text.
    pub(crate) is_reasoning: bool,
    /// True if nothing more is sent after the currently streaming calls.
    pub(crate) stops_after_call: bool,
}

/// The state of everything that was sent to the client, over all attempts.
#[derive(Debug, Default)]
pub(crate) struct SentState {
    /// The number of calls that were opened.
    pub(crate) calls: u32,
    /// The ids of sent calls. A client would take a repeated id for the same call.
    pub(crate) ids: HashSet<String>,
    /// True if any text was sent.
    pub(crate) words: bool,
    /// The usage of earlier attempts.
    pub(crate) usage: Usage,
}

/// The problem of a call that cannot be sent to the client, or that is missing.
#[derive(Debug, Clone)]
pub(crate) struct CallProblem {
    /// The description for the client.
    pub(crate) message: String,
    /// True if the output limit is the reason. The answer then ends as one that the limit cut.
    pub(crate) limit: bool,
    /// The result of the gates for the call.
    pub(crate) checked: Option<CheckedCall>,
}

/// A part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ResponsePosition {
    /// The text.
    #[default]
    Text,
    /// A thought that is written into the text.
    Thought,
    /// Reasoning that the provider delivers apart from the text.
    Reasoning,
}

/// A call of an attempt.
pub(crate) struct AttemptCall {
    /// The call's index in the model's response.
    pub(crate) index: u32,
    /// The provider's id; `None` for a call in text.
    pub(crate) id: Option<String>,
    /// The tool's name, repaired if possible.
    pub(crate) name: String,
    /// The dialect of a call in text; `None` for a native call.
    pub(crate) dialect: Option<String>,
    /// The offset of its first byte in the text of the response.
    pub(crate) at: usize,
    /// True for a call in a thought. Models draft calls there, so it counts only if no other call follows the thought.
    pub(crate) from_thought: bool,
    /// The state with regard to the client.
    pub(crate) disposition: CallDisposition,
    /// The state with regard to the model.
    pub(crate) end: CallEnd,
    /// The parser's reason why the call is unreadable.
    pub(crate) broken: Option<String>,
}

/// The state of a call with regard to the client.
pub(crate) enum CallDisposition {
    /// It is sent while it arrives.
    Streaming(Box<OutgoingCall>),
    /// It waits in the draft.
    Waiting,
    /// It was sent.
    Sent(CallFingerprint),
    /// It is never sent.
    Dropped,
}

/// The end of a call in the model's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The model is still writing it.
    Open,
    /// It was closed properly, but its arguments may still be wrong.
    Closed,
    /// It was never closed, and must not run.
    Cut(Truncation),
}

impl Attempt {
    /// Returns true if the output limit ended the response.
    pub(crate) fn hit_output_limit(&self) -> bool {
        matches!(self.stop, Some((StopReason::Length, _)))
    }
}

impl AttemptCall {
    /// Returns true if both may be the same call: the same tool, once as text and once natively, or
    /// with the same id.
    pub(crate) fn may_duplicate(&self, other: &Self) -> bool {
        let id = self.id.is_some() && self.id == other.id;
        self.name == other.name && (id || self.dialect.is_some() != other.dialect.is_some())
    }

    /// Makes a placeholder for a call that is temporarily taken out of the list.
    pub(crate) fn placeholder() -> Self {
        Self {
            index: 0,
            id: None,
            name: String::new(),
            dialect: None,
            at: 0,
            from_thought: false,
            disposition: CallDisposition::Dropped,
            end: CallEnd::Closed,
            broken: None,
        }
    }

    /// Returns true if the model must get a result for this call in a retry, because the client did
    /// not get the call.
    pub(crate) fn needs_feedback(&self) -> bool {
        matches!(
            self.disposition,
            CallDisposition::Dropped | CallDisposition::Waiting
        )
    }
}

impl CallProblem {
    /// Makes the error for the client.
    pub(crate) fn into_model_error(self) -> ModelError {
        ModelError {
            kind: ModelErrorKind::Format,
            message: format!("the model's call cannot be used: {}", self.message),
        }
    }
}

/// Returns true if a call with this fault cannot be read. All other faults are left to the client's
/// own validation, as with a native API.
pub(crate) fn is_unreadable(fault: &Fault) -> bool {
    !matches!(
        fault.kind,
        FaultKind::UnknownTool
            | FaultKind::UnknownArgument
            | FaultKind::MissingArgument
            | FaultKind::WrongType
            | FaultKind::InvalidValue
            | FaultKind::Placeholder
    )
}

/// Describes why a cut call cannot be used.
pub(crate) fn describe_cut(name: &str, why: Truncation) -> String {
    let why = match why {
        Truncation::Limit => {
            "the output limit was reached inside it; ask for more tokens, or for less in one call"
        }
        Truncation::Ended => "the message ended inside it",
        Truncation::Broken => "the connection to the model broke inside it",
        Truncation::Cancelled => "it was cancelled",
    };
    format!("the call of `{name}` was cut: {why}")
}

/// Returns the static name of a repair rule.
pub(crate) fn rule_name(name: &str) -> Option<&'static str> {
    RULES
        .iter()
        .find(|rule| rule.name == name)
        .map(|rule| rule.name)
}
