//! What the gateway tells whoever runs it: one kind of note for the access log, for `--explain` and for metrics.

use std::time::Duration;

use sabir_call::{Fault, Usage};
use sabir_wire::Wire;

/// Something that happened in an exchange.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum GatewayEvent<'a> {
    /// The tools were taught in words: the system prompt as the model gets it.
    ToolsInPrompt {
        /// The dialect.
        dialect: &'a str,
        /// The prompt, the client's own words included.
        prompt: &'a str,
    },
    /// Something of the request cannot be had from this model and was left out.
    LeftOut {
        /// Where it stood in the request.
        path: &'a str,
        /// What it was, and what is done instead.
        what: &'a str,
    },
    /// A call was understood.
    CallSent {
        /// The tool.
        name: &'a str,
        /// The dialect in which it was written; `None`: natively.
        dialect: Option<&'a str>,
    },
    /// Something was set right, or kept from the client.
    Repaired {
        /// A short name of what was done: the same as in metrics.
        rule: &'static str,
        /// The tool that was called, where it is known.
        name: &'a str,
    },
    /// Something was wrong with what the model wrote.
    FaultFound(&'a Fault),
    /// The model is asked again.
    Retried {
        /// Which time, from 1.
        attempt: u32,
        /// What it is told.
        feedback: &'a str,
    },
    /// The exchange is over.
    Ended(&'a ExchangeSummary<'a>),
}

/// An exchange, for the access log. Holds nothing that was said.
#[derive(Debug, Clone)]
pub struct ExchangeSummary<'a> {
    /// The wire in front; `None`: the request was for none of them.
    pub front: Option<Wire>,
    /// The model as the client named it.
    pub model: &'a str,
    /// The HTTP status that was answered.
    pub status: u16,
    /// Whether the answer came to its proper end. A stream may fail after its status was sent.
    pub whole: bool,
    /// From the request to the end of the answer.
    pub took: Duration,
    /// From the request to the first byte of the answer.
    pub first: Option<Duration>,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Calls in the answer.
    pub calls: u32,
    /// Tokens, as far as they were told.
    pub usage: Usage,
    /// What went wrong, without secrets.
    pub error: Option<&'a str>,
}

/// Whoever wants to know. Called from within the exchange: it must be quick.
pub trait GatewayObserver: Send + Sync {
    /// Takes a note of the exchange of that id.
    fn on_event(&self, id: &str, note: GatewayEvent<'_>);
}

/// Nobody wants to know.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullObserver;

impl GatewayObserver for NullObserver {
    fn on_event(&self, _: &str, _: GatewayEvent<'_>) {}
}
