//! One answer of the model, as far as it has come: its calls, and what became of each.

use std::collections::HashSet;

use sabir_call::{DraftResponse, Fault, FaultKind, ModelError, ModelErrorKind, StopReason, Truncation, Usage};
use sabir_check::{CheckedCall, RULES};

use super::fingerprint::CallFingerprint;
use super::markup_filter::MarkupFilter;
use super::outgoing_call::OutgoingCall;
use super::value_start::ValueStart;

/// One answer of the model.
#[derive(Default)]
pub(crate) struct Attempt {
    /// Which, from 0.
    pub(crate) number: u32,
    pub(crate) calls: Vec<AttemptCall>,
    /// The calls that wait; where the model may be asked again, all that it said.
    pub(crate) draft: DraftResponse,
    pub(crate) beginning: ValueStart,
    pub(crate) words: MarkupFilter,
    pub(crate) thoughts: MarkupFilter,
    pub(crate) usage: Usage,
    pub(crate) stop: Option<(StopReason, String)>,
    pub(crate) problem: Option<CallProblem>,
    /// Nothing that follows goes out, once the calls that are going out have ended.
    pub(crate) enough: bool,
}

/// What went out, in all attempts.
#[derive(Debug, Default)]
pub(crate) struct SentState {
    /// How many calls were opened.
    pub(crate) calls: u32,
    pub(crate) ids: HashSet<String>,
    /// Whether any words were said.
    pub(crate) words: bool,
    /// What earlier attempts cost.
    pub(crate) usage: Usage,
}

/// A call that cannot go to the client, or one that is missing.
#[derive(Debug, Clone)]
pub(crate) struct CallProblem {
    /// What is wrong, for the client.
    pub(crate) message: String,
    /// Whether the output limit is the reason.
    pub(crate) limit: bool,
    /// What the gates say of the call.
    pub(crate) checked: Option<CheckedCall>,
}

/// A call of an attempt.
pub(crate) struct AttemptCall {
    /// Its index among the model's.
    pub(crate) index: u32,
    pub(crate) id: Option<String>,
    /// The tool that is meant, as far as it is known.
    pub(crate) name: String,
    pub(crate) dialect: Option<String>,
    pub(crate) disposition: CallDisposition,
    pub(crate) end: CallEnd,
    /// Why it cannot be read, by the parser.
    pub(crate) broken: Option<String>,
}

pub(crate) enum CallDisposition {
    /// It goes out as it comes.
    Streaming(Box<OutgoingCall>),
    /// It waits, in the draft.
    Waiting,
    /// It has gone out.
    Sent(CallFingerprint),
    /// It never goes out.
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Open,
    Closed,
    Cut(Truncation),
}

impl Attempt {
    /// Whether the output limit ended it.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self.stop, Some((StopReason::Length, _)))
    }
}

impl AttemptCall {
    /// Whether both may be one call told twice: the same tool, as text and natively, or under the same id.
    pub(crate) fn may_duplicate(&self, other: &Self) -> bool {
        let id = self.id.is_some() && self.id == other.id;
        self.name == other.name && (id || self.dialect.is_some() != other.dialect.is_some())
    }

    /// Stands for a call while it is taken out.
    pub(crate) fn placeholder() -> Self {
        let (name, way, end) = (String::new(), CallDisposition::Dropped, CallEnd::Closed);
        Self { index: 0, id: None, name, dialect: None, disposition: way, end, broken: None }
    }

    /// Whether the model has to be told of it.
    pub(crate) fn needs_feedback(&self) -> bool {
        matches!(self.disposition, CallDisposition::Dropped | CallDisposition::Waiting)
    }
}

impl CallProblem {
    /// What the client is told. What more room would have mended is no use to ask again.
    pub(crate) fn into_model_error(self) -> ModelError {
        let kind = if self.limit { ModelErrorKind::Rejected } else { ModelErrorKind::Format };
        ModelError { kind, message: format!("the model's call cannot be used: {}", self.message) }
    }
}

/// Whether a call with this fault cannot be read. Everything else is for whoever knows the tool to say: a client's own
/// validation answers the model as it would behind a native API.
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

/// Why a call that was cut cannot be used.
pub(crate) fn describe_cut(name: &str, why: Truncation) -> String {
    let why = match why {
        Truncation::Limit => "the output limit was reached inside it; ask for more tokens, or for less in one call",
        Truncation::Ended => "the message ended inside it",
        Truncation::Broken => "the connection to the model broke inside it",
        Truncation::Cancelled => "it was cancelled",
    };
    format!("the call of `{name}` was cut: {why}")
}

/// The repair rule of that name.
pub(crate) fn rule_name(name: &str) -> Option<&'static str> {
    RULES.iter().find(|rule| rule.name == name).map(|rule| rule.name)
}
