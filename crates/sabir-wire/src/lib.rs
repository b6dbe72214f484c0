//! How do provider APIs spell it?
//!
//! Requests, responses and streams of each provider API, in both directions. The crate does no I/O: bytes go in, events
//! come out, and the other way round. A [`Wire`] is picked once; nothing after that asks which it is.
//!
//! The main decision: a response is decoded into the same events as a call that a model wrote as text, so that past
//! [`Decoder`] nobody knows how a call was spelled. No event is fatal. Fields that are missing, of another type or of
//! another kind than documented are normal, and so are streams that end in the middle; what could not be read is a fault,
//! and a call that may lack a piece is cut.
//!
//! ```
//! use sabir_call::Draft;
//! use sabir_wire::{Close, Decoder, Wire};
//!
//! let body = concat!(
//!     r#"data: {"choices":[{"delta":{"content":"Reading."}}]}"#, "\n\n",
//!     r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read_file","arguments":"{\"pa"}}]}}]}"#, "\n\n",
//!     r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"th\":\"a.rs\"}"}}]}}]}"#, "\n\n",
//!     r#"data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, "\n\n",
//! );
//! let mut draft = Draft::default();
//! let mut decoder = Decoder::new(Wire::OpenAiChat);
//! for chunk in body.as_bytes().chunks(7) {
//!     decoder.push(chunk, &mut draft);
//! }
//! let report = decoder.finish(Close::Clean, &mut draft);
//! assert!(report.ended);
//! let call = draft.calls().next().expect("one call");
//! assert_eq!((call.name.as_str(), call.arguments[0].text.as_str()), ("read_file", "a.rs"));
//! ```

mod anthropic;
mod arguments;
mod bedrock;
mod blocks;
mod calls;
mod client;
mod failure;
mod fate;
mod field;
pub mod frames;
mod gemini;
mod identifier;
pub mod listing;
mod loose;
mod moment;
mod mould;
mod native;
mod ollama;
mod openai_chat;
mod openai_responses;
mod pairing;
mod replay;
mod response;
pub mod sse;
mod stop;
mod thinking;
mod turns;
mod values;
mod weigh;
mod wire;
mod wishes;

pub use client::{Counts, Head, Incoming, Note, RequestError, Wants};
pub use failure::{MAX_WORDS, ProviderError, classify};
pub use moment::moment;
pub use native::Spaced;
pub use replay::{pieces, play};
pub use response::{BodyForm, Close, Decoder, Report};
pub use wire::{Encoder, Form, Wire};
