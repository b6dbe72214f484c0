//! Requests, responses and streams of each provider API, encoded and decoded in both directions.
//!
//! The crate does no I/O: bytes go in and events come out, or the reverse. The caller picks a
//! [`Wire`] once; no code after that asks which wire it is.
//!
//! The main decision: a response decodes into the same events as a call that a model wrote as text,
//! so nothing past [`ResponseDecoder`] knows how a call was spelled. No event is fatal. Fields that
//! are missing or of an undocumented type are normal, and so are streams that end in the middle.
//! Unreadable input becomes a fault, and a call that may lack a piece is truncated, so that it
//! never runs.
//!
//! ```
//! use sabir_call::DraftResponse;
//! use sabir_wire::{BodyEnd, ResponseDecoder, Wire};
//!
//! let body = concat!(
//!     r#"data: {"choices":[{"delta":{"content":"Reading."}}]}"#, "\n\n",
//!     r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read_file","arguments":"{\"pa"}}]}}]}"#, "\n\n",
//!     r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"th\":\"a.rs\"}"}}]}}]}"#, "\n\n",
//!     r#"data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, "\n\n",
//! );
//! let mut draft = DraftResponse::default();
//! let mut decoder = ResponseDecoder::new(Wire::OpenAiChat);
//! for chunk in body.as_bytes().chunks(7) {
//!     decoder.push(chunk, &mut draft);
//! }
//! let report = decoder.finish(BodyEnd::Clean, &mut draft);
//! assert!(report.ended);
//! let call = draft.calls().next().expect("one call");
//! assert_eq!((call.name.as_str(), call.arguments[0].text.as_str()), ("read_file", "a.rs"));
//! ```

mod anthropic;
mod arguments;
mod bedrock;
mod call_pairing;
mod check_support;
mod choice_chunk;
mod client_body;
mod client_request;
mod delta_template;
mod documents;
mod field;
mod field_disposition;
pub mod frames;
mod gemini;
mod identifier;
mod json_object;
mod json_splitter;
mod lenient;
pub mod model_listing;
mod native_call;
mod native_tools;
mod ollama;
mod open_blocks;
mod openai_chat;
mod openai_responses;
mod overflow;
mod params;
mod provider_error;
mod rate_limits;
mod read_tracker;
mod replay;
mod response_decoder;
mod role_turns;
pub mod sse;
mod stop_reason_names;
mod surrogates;
mod thinking;
mod timestamp;
mod unknown_members;
mod wire;

pub use choice_chunk::{ChoiceChunk, ChoiceMembers};
pub use client_request::{
    DecodedRequest, LossNote, RequestError, ResponseMetadata, ResponsePreferences, UsageReporting,
    parse_request_body,
};
pub use gemini::decode_request::decode_gemini_declaration;
pub use native_tools::NamespacedTool;
pub use provider_error::{MAX_MESSAGE_CHARS, ProviderError, classify_error};
pub use rate_limits::{is_limit_header, translate_rate_limits};
pub use replay::{replay_draft, split_text};
pub use response_decoder::{
    BodyEnd, BodyForm, DecodeReport, EventRedaction, ResponseDecoder, is_answer_detail,
};
pub use surrogates::parse_lossy;
pub use timestamp::format_timestamp;
pub use wire::{ResponseEncoder, Wire, WireOptions, percent_decode};
