//! What is done about calls that are not right, between the model's events and the client.
//!
//! The main decision: **a call reaches the client as a native one that is whole, or not at all.** What cannot be read ends the
//! answer with an error, or is told to the model, which is asked again; it is never closed on the model's behalf. What can be read
//! and is only not what the tool wants goes out, as it would behind a native API: the client's own validation answers it better
//! than a gateway can, unless the model may be asked again, in which case the gates decide.
//!
//! | what | `heal` | `retry` |
//! | --- | --- | --- |
//! | a call in text or thoughts | is a call | the same |
//! | remains of markup in words | are dropped | the same |
//! | a call told twice | goes out once | the same |
//! | a call too many, or where none was asked for | is dropped | the same |
//! | a call that is cut or cannot be read | an error | the model is told; then the words alone, or the error |
//! | an unknown tool, or arguments that the schema refuses | goes out as it is | the model is told |
//! | no call where one was asked for | goes out as it is | the model is told |

use std::fmt;
use std::str::FromStr;

use sabir_call::{ParallelCalls, Request, ToolChoice, ToolProtocol};

mod attempt;
mod attempt_end;
mod call_repairer;
mod fingerprint;
mod markup_filter;
mod outgoing_call;
mod repair_log;
mod retry_request;
mod strict_json;
#[cfg(test)]
mod tests;
mod value_start;

pub(crate) use attempt_end::NextStep;
pub(crate) use call_repairer::CallRepairer;
pub(crate) use repair_log::RepairLog;

/// What is done about calls that are not right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RepairMode {
    /// Nothing: what the model's API calls text is text, and calls go to the client as they come.
    Pass,
    /// Calls that leaked into text or thoughts are calls; what came twice goes out once; a call that is cut or broken ends the
    /// answer with an error. Everything streams.
    #[default]
    Heal,
    /// As `Heal`, and a broken call is told to the model, which is asked again, at most so many times for an answer. For that a
    /// call waits until it is whole.
    Retry(u32),
}

/// The word, as configuration and flags have it.
impl fmt::Display for RepairMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Heal => f.write_str("heal"),
            Self::Retry(times) => write!(f, "retry {times}"),
        }
    }
}

/// The error says what can be written.
impl FromStr for RepairMode {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let times = |rest: &str| rest.trim().parse().ok().filter(|times| (1..=9).contains(times));
        match words.split_at_checked(5) {
            _ if words == "pass" => Ok(Self::Pass),
            _ if words == "heal" => Ok(Self::Heal),
            Some(("retry", "")) => Ok(Self::Retry(1)),
            Some(("retry", rest)) if rest.starts_with(' ') && times(rest).is_some() => {
                Ok(Self::Retry(times(rest).unwrap_or(1)))
            }
            _ => Err(format!("`{words}` is no way to mend: write pass, heal, retry, or retry N with N from 1 to 9")),
        }
    }
}

/// How the client takes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDelivery {
    /// While it is written.
    InPieces,
    /// In one piece, so that nothing is gained by sending what is not certain yet.
    Whole,
}

/// What an answer is held to.
#[derive(Debug, Clone)]
pub(crate) struct RepairPolicy {
    /// Nothing is touched.
    passes_through: bool,
    /// How often the model may be asked again.
    max_retries: u32,
    choice: ToolChoice,
    parallel: ParallelCalls,
    /// Whether the model was asked to call natively, so that a call in its text has leaked.
    native: bool,
    /// Whether markup is looked for in the text.
    parses_text: bool,
    /// The most bytes of a raw string that wait for their beginning to be certain.
    max_held_start: usize,
}

impl RepairPolicy {
    fn from_request(request: &Request, mending: RepairMode, taken: CallDelivery) -> Self {
        let native = request.protocol == ToolProtocol::Native;
        let tries = if let RepairMode::Retry(tries) = mending { tries } else { 0 };
        Self {
            // A model that is taught to call in words has no calls of its own that could pass.
            passes_through: mending == RepairMode::Pass && native,
            max_retries: tries,
            choice: request.tool_choice.clone(),
            parallel: request.parallel_calls,
            native,
            parses_text: !request.tools.is_empty() && request.tool_choice != ToolChoice::None,
            max_held_start: if taken == CallDelivery::Whole { usize::MAX } else { outgoing_call::MAX_HELD_START },
        }
    }
}
