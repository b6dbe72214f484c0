//! Defines the gateway's events, which feed the access log, `--explain` and the metrics.

use std::time::Duration;

use sabir_call::{Fault, Usage};
use sabir_wire::Wire;

/// An event of an exchange.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum GatewayEvent<'a> {
    /// The tools were described in the system prompt.
    ToolsInPrompt {
        /// The dialect.
        dialect: &'a str,
        /// The system prompt as sent to the model, including the client's own text.
        prompt: &'a str,
    },
    /// A part of the request is not supported by this model and was left out.
    LeftOut {
        /// Its path in the request.
        path: &'a str,
        /// A description of it and of its replacement.
        what: &'a str,
    },
    /// A call was sent to the client.
    CallSent {
        /// The tool.
        name: &'a str,
        /// The dialect in which it was written; `None` for a native call.
        dialect: Option<&'a str>,
    },
    /// A mistake was repaired, or kept from the client.
    Repaired {
        /// The short name of the repair, the same as in the metrics.
        rule: &'static str,
        /// The tool that was called; empty if unknown.
        name: &'a str,
    },
    /// A fault was found in the model's output.
    FaultFound(&'a Fault),
    /// The model gets another request because of a mistake.
    Retried {
        /// The number of the retry, from 1.
        attempt: u32,
        /// The feedback to the model.
        feedback: &'a str,
    },
    /// The exchange is over.
    Ended(&'a ExchangeSummary<'a>),
}

/// A summary of an exchange, for the access log. It contains nothing of the conversation.
#[derive(Debug, Clone)]
pub struct ExchangeSummary<'a> {
    /// The client's wire; `None` if the request was for none.
    pub front: Option<Wire>,
    /// The model's name as given by the client.
    pub model: &'a str,
    /// The name of the client's key; `None` for the gateway's own token.
    pub key: Option<&'a str>,
    /// The upstream that answered.
    pub upstream: Option<&'a str>,
    /// The time from the request to the model's first output.
    pub first_output: Option<Duration>,
    /// True if the request was one for a model that is served here.
    pub asks_model: bool,
    /// The cost of the counted tokens in billionths of a dollar; `None` if a price is unknown or no
    /// tokens count.
    pub nano_usd: Option<u64>,
    /// The short name of the gateway's own reason for a refusal.
    pub refusal: Option<&'static str>,
    /// The HTTP status of the response.
    pub status: u16,
    /// True if the response ended properly. A stream may fail after its status was sent.
    pub whole: bool,
    /// The time from the request to the end of the response.
    pub took: Duration,
    /// The time from the request to the first byte of the response.
    pub first: Option<Duration>,
    /// The length of the response's body in bytes.
    pub bytes: u64,
    /// The number of calls in the response.
    pub calls: u32,
    /// The tokens, as far as the provider reported them.
    pub usage: Usage,
    /// The tokens that count for the limits of the client's key: those that the provider reported, and
    /// estimates of the others.
    pub counted: Usage,
    /// The error, without secrets.
    pub error: Option<&'a str>,
    /// The client's `traceparent` header (W3C Trace Context), as it was sent.
    pub trace_parent: Option<&'a str>,
}

/// An observer of the gateway. It is called from within the exchange, so it must be quick.
pub trait GatewayObserver: Send + Sync {
    /// Handles an event of the exchange with that id.
    fn on_event(&self, id: &str, note: GatewayEvent<'_>);
}

/// Passes each event to all observers, in their order.
impl GatewayObserver for Vec<Box<dyn GatewayObserver>> {
    fn on_event(&self, id: &str, note: GatewayEvent<'_>) {
        for observer in self {
            observer.on_event(id, note);
        }
    }
}

/// An observer that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullObserver;

impl GatewayObserver for NullObserver {
    fn on_event(&self, _: &str, _: GatewayEvent<'_>) {}
}
