//! What did the model write?
//!
//! Models ask for tools in some thirty spellings, a few bytes at a time. The main decision of this crate: **a parser is a
//! machine that only ever appends.** It takes a chunk, emits [`Event`]s that borrow from that chunk, and forgets it. Nothing
//! is parsed again when more text comes, no event carries what was accumulated, and the memory of a parser does not grow
//! with the values that pass through it. That is why a file of a megabyte, sent in chunks of 16 bytes, costs little more
//! than looking for `<` in it, where parsers that start anew with each chunk take minutes. (`docs/measurements.md` has the
//! figures.)
//!
//! Three things follow.
//!
//! * **Hold only what is undecided.** A tag that is broken off, a closing tag until what follows shows that it does close:
//!   these wait, and so does JSON without any marker, which only the end of the message can tell from an example. Everything
//!   else goes out at once, so that a screen shows a file while it is written. Where the chunks are
//!   cut never changes what comes out.
//! * **Dialects are tables, not parsers.** Spellings differ in their markers and agree in everything hard: when a value
//!   ends, what is only a mention, what a cut call is. One [`CallReader`] with a handful of machines reads them all; a dialect
//!   ([`dialect`]) is a row of markers and a spec whose examples are its tests.
//! * **Reading never fails and never judges.** Any bytes give events and [`Fault`]s with positions. Whether a call may run
//!   is for the gates (`sabir-check`) to say, for every spelling in the same way.
//!
//! A whole example: a stream in chunks, shown while it comes, collected in a [`DraftResponse`].
//!
//! ```
//! use sabir_call::dialect::DialectSet;
//! use sabir_call::{CallReader, DraftResponse, DraftState, Event, EventSink, ToolSet, Truncation};
//!
//! let tools = ToolSet::from_json(
//!     r#"[{"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}]"#,
//! )?;
//! let mut draft = DraftResponse::default();
//! let mut screen = String::new();
//! let mut sink = |event: Event<'_>| {
//!     if let Event::ArgDelta { text, .. } = event {
//!         screen.push_str(text); // before the call, or even the value, is whole
//!     }
//!     draft.push_event(event);
//! };
//! let mut reader = CallReader::new(DialectSet::built_in().all(), &tools);
//! for chunk in ["Now:\n<write_to", "_file>\n<path>a.c</path>\n<con", "tent>if (a < b) f();</content>\n</write_to_file>"] {
//!     reader.push(chunk, &mut sink);
//! }
//! reader.finish(Truncation::Ended, &mut sink);
//!
//! let call = draft.call_by_index(0).ok_or("a call")?;
//! assert_eq!((call.name.as_str(), call.state), ("write_to_file", DraftState::Closed));
//! assert_eq!(call.arguments.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), ["a.c", "if (a < b) f();"]);
//! assert_eq!(screen, "a.cif (a < b) f();");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Native calls take the same road: a wire feeds their argument text to a [`json::ArgumentScanner`], and past the events
//! nobody needs to know how a call was spelled. For a model that can only write, [`render_request`] teaches the tools in
//! words and [`PromptedSink`] reads the calls out of the answer.

mod cost;
pub mod dialect;
mod draft;
mod event;
mod fault;
mod history;
pub mod json;
mod message;
mod model;
mod prompt;
mod prompted;
mod reader;
pub mod redact;
mod small_name_set;
mod swar;
mod tool;

pub use cost::{BYTES_PER_TOKEN, Cost, Dollars, DollarsError, TokenPrices};
pub use draft::{DraftArgument, DraftCall, DraftPart, DraftResponse, DraftState};
pub use event::{ArgForm, Certainty, Event, EventSink, MarkupRole, MarkupSpan, StopReason, Truncation, Usage};
pub use fault::{Fault, FaultKind, Severity, SourcePosition, Span, SpanOrigin};
pub use history::History;
pub use message::{Call, CallId, CallResult, Image, Message, MessagePart, OpaqueState, Role, ToolResultStatus};
pub use model::{
    CacheControl, McpServerInfo, Model, ModelError, ModelErrorKind, ParallelCalls, ReasoningConfig, ReasoningEffort,
    Request, RequestOptions, ResponseFormat, ResponseFuture, SamplingParams, ToolChoice, ToolProtocol,
};
pub use prompt::{ToolInstructions, render_example};
pub use prompted::{PromptedSink, render_message, render_request, render_result};
pub use reader::CallReader;
pub use tool::{ArgumentSpec, ToolError, ToolSet, ToolSpec, json_type_name, nearest_candidate};
