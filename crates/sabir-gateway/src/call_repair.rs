//! Repairs the calls of a model between its events and the client.
//!
//! The main decision: **a call reaches the client as a complete native call, or not at all.** An
//! unreadable call ends the response with an error, or is reported to the model, which is then
//! asked again; it is never completed on the model's behalf. A readable call that the tool would
//! reject is sent, as a native API would do: the client's own validation answers it better than a
//! gateway can. Only if the model may be asked again do the checks of `sabir-check` decide.
//!
//! | situation | `repair` | `retry` |
//! | --- | --- | --- |
//! | a call in text or thoughts | sent as a call | the same |
//! | the same, but it occurs in the result of an earlier call | text | the same |
//! | leftover markup in text | dropped | the same |
//! | a duplicated call | sent once | the same |
//! | one call too many, or an unrequested one | dropped | the same |
//! | a call that the output limit cut | not a call, and the stop reason of the limit | feedback to the model; finally the same |
//! | another call that is cut or unreadable | an error | feedback to the model; finally the text alone, or the error |
//! | an unknown tool, or arguments that the schema rejects | sent unchanged | feedback to the model |
//! | no call although one was required | sent unchanged | feedback to the model |

use std::fmt;
use std::str::FromStr;

use sabir_call::{ParallelCalls, Request, ToolChoice, ToolProtocol};

mod attempt;
mod attempt_end;
mod call_repairer;
mod echo;
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

/// The handling of broken calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RepairMode {
    /// No repairs: text stays text, and calls are passed on as they are.
    Pass,
    /// Calls that leaked into text or thoughts become native calls; a duplicated call is sent once; a
    /// cut or broken call ends the response with an error. Everything streams.
    #[default]
    Repair,
    /// The same as `Repair`, and the model gets feedback about a broken call and is asked again, at
    /// most that many times for one response. For that, calls are held back until they are
    /// complete.
    Retry(u32),
}

/// Formats the mode as in configuration and flags.
impl fmt::Display for RepairMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Repair => f.write_str("repair"),
            Self::Retry(times) => write!(f, "retry {times}"),
        }
    }
}

/// The error of an unknown [`RepairMode`], with the possible values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a way to handle calls: write pass, repair, retry, or retry N with N from 1 to 9"
)]
pub struct UnknownRepairMode(String);

impl FromStr for RepairMode {
    type Err = UnknownRepairMode;

    fn from_str(words: &str) -> Result<Self, UnknownRepairMode> {
        let times = |rest: &str| {
            rest.trim()
                .parse()
                .ok()
                .filter(|times| (1..=9).contains(times))
        };
        match words.split_at_checked(5) {
            _ if words == "pass" => Ok(Self::Pass),
            // `heal` is the name that earlier versions had.
            _ if words == "repair" || words == "heal" => Ok(Self::Repair),
            Some(("retry", "")) => Ok(Self::Retry(1)),
            Some(("retry", rest)) if rest.starts_with(' ') && times(rest).is_some() => {
                Ok(Self::Retry(times(rest).unwrap_or(1)))
            }
            _ => Err(UnknownRepairMode(words.to_owned())),
        }
    }
}

/// The way in which the client's wire delivers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDelivery {
    /// In pieces, while the model writes it.
    InPieces,
    /// In one piece, so sending uncertain parts early gains nothing.
    Whole,
}

/// The rules for repairing one response.
#[derive(Debug, Clone)]
pub(crate) struct RepairPolicy {
    /// True if all events are passed on unchanged.
    passes_through: bool,
    /// The number of times that the model may be asked again.
    max_retries: u32,
    /// The client's tool choice.
    choice: ToolChoice,
    /// The client's limit on calls in one response.
    parallel: ParallelCalls,
    /// True if native calls were requested, so that a call in the text has leaked.
    native: bool,
    /// True if markup is removed from the text.
    parses_text: bool,
    /// The number of bytes of a raw string that are held back until its beginning is certain.
    max_held_start: usize,
}

impl RepairPolicy {
    /// Derives the rules from a request, the route's mode and the client's wire.
    fn from_request(request: &Request, repair_mode: RepairMode, delivery: CallDelivery) -> Self {
        let native = request.protocol == ToolProtocol::Native;
        let tries = if let RepairMode::Retry(tries) = repair_mode {
            tries
        } else {
            0
        };
        Self {
            // A prompted model has no native calls that could be passed on.
            passes_through: repair_mode == RepairMode::Pass && native,
            max_retries: tries,
            choice: request.tool_choice.clone(),
            parallel: request.parallel_calls,
            native,
            // Where no call is possible, markup in the text can only be a mention.
            parses_text: !request.tools.is_empty() && request.tool_choice != ToolChoice::None,
            // In one piece nothing is sent early, so each value can wait for its end and is exact.
            max_held_start: if delivery == CallDelivery::Whole {
                usize::MAX
            } else {
                outgoing_call::MAX_HELD_START
            },
        }
    }
}
