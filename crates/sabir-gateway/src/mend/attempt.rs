//! One answer of the model, as far as it has come: its calls, and what became of each.

use std::collections::HashSet;

use sabir_call::{Cut, Draft, Fault, FaultKind, ModelError, ModelErrorKind, StopReason, Usage};
use sabir_check::{Checked, RULES};

use super::beginning::Beginning;
use super::twin::Print;
use super::typed::Outgoing;
use super::words::Words;

/// One answer of the model.
#[derive(Default)]
pub(crate) struct Attempt {
    /// Which, from 0.
    pub(crate) number: u32,
    pub(crate) calls: Vec<Call>,
    /// The calls that wait; where the model may be asked again, all that it said.
    pub(crate) draft: Draft,
    pub(crate) beginning: Beginning,
    pub(crate) words: Words,
    pub(crate) thoughts: Words,
    pub(crate) usage: Usage,
    pub(crate) stop: Option<(StopReason, String)>,
    pub(crate) trouble: Option<Trouble>,
    /// Nothing that follows goes out, once the calls that are going out have ended.
    pub(crate) enough: bool,
}

/// What went out, in all attempts.
#[derive(Debug, Default)]
pub(crate) struct Sent {
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
pub(crate) struct Trouble {
    /// What is wrong, for the client.
    pub(crate) message: String,
    /// Whether the output limit is the reason.
    pub(crate) limit: bool,
    /// What the gates say of the call.
    pub(crate) checked: Option<Checked>,
}

/// A call of an attempt.
pub(crate) struct Call {
    /// Its index among the model's.
    pub(crate) index: u32,
    pub(crate) id: Option<String>,
    /// The tool that is meant, as far as it is known.
    pub(crate) name: String,
    pub(crate) dialect: Option<String>,
    pub(crate) way: Way,
    pub(crate) end: End,
    /// Why it cannot be read, by the parser.
    pub(crate) broken: Option<String>,
}

pub(crate) enum Way {
    /// It goes out as it comes.
    Going(Box<Outgoing>),
    /// It waits, in the draft.
    Waiting,
    /// It has gone out.
    Gone(Print),
    /// It never goes out.
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Closed,
    Cut(Cut),
}

impl Attempt {
    /// Whether the output limit ended it.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self.stop, Some((StopReason::Length, _)))
    }
}

impl Call {
    /// Whether both may be one call told twice: the same tool, as text and natively, or under the same id.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let id = self.id.is_some() && self.id == other.id;
        self.name == other.name && (id || self.dialect.is_some() != other.dialect.is_some())
    }

    /// Stands for a call while it is taken out.
    pub(crate) fn nobody() -> Self {
        let (name, way, end) = (String::new(), Way::Dropped, End::Closed);
        Self { index: 0, id: None, name, dialect: None, way, end, broken: None }
    }

    /// Whether the model has to be told of it.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.way, Way::Dropped | Way::Waiting)
    }
}

impl Trouble {
    /// What the client is told. What more room would have mended is no use to ask again.
    pub(crate) fn error(self) -> ModelError {
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
pub(crate) fn cut(name: &str, why: Cut) -> String {
    let why = match why {
        Cut::Limit => "the output limit was reached inside it; ask for more tokens, or for less in one call",
        Cut::Ended => "the message ended inside it",
        Cut::Broken => "the connection to the model broke inside it",
        Cut::Cancelled => "it was cancelled",
    };
    format!("the call of `{name}` was cut: {why}")
}

/// The repair rule of that name.
pub(crate) fn rule(name: &str) -> Option<&'static str> {
    RULES.iter().find(|rule| rule.name == name).map(|rule| rule.name)
}
