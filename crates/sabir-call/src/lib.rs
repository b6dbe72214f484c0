//! Reads tool calls out of model output, in any dialect, as one stream of events.
//!
//! Models write tool calls in about fifty notations, and the text arrives a few bytes at a time.
//! The main design decision: **a parser only ever appends.** It takes a chunk, emits [`Event`]s
//! that borrow from that chunk, and forgets it. Nothing is parsed twice when more text arrives, no
//! event carries accumulated text, and a parser's memory does not grow with the values that pass
//! through it. A one-megabyte file sent in 16-byte chunks therefore costs little more than a scan
//! for `<`, where parsers that start over with each chunk take minutes. See `docs/measurements.md`
//! for figures.
//!
//! Three rules follow from that decision:
//!
//! * **Hold only what is undecided.** A partial tag waits for its rest; a closing tag waits until
//!   the text after it shows that it really closes; JSON without any marker waits for the end of
//!   the message, because only then can it be distinguished from an example. Everything else is emitted at
//!   once, so a screen can show a file while the model writes it. Chunk boundaries never change the
//!   result.
//! * **Dialects are tables, not parsers.** Dialects differ in their markers and agree in everything
//!   hard: where a value ends, what is only a mention, what counts as a truncated call. One
//!   [`CallReader`] with a few parsers reads them all. A dialect ([`dialect`]) is a row of markers
//!   and a spec whose examples are its tests.
//! * **Reading never fails and never validates.** Any bytes produce events, and [`Fault`]s with
//!   positions. Whether a call may run is decided by the checks in `sabir-check`, in the same way
//!   for every dialect.
//!
//! # Example
//!
//! A response arrives in chunks, is shown while it arrives, and is collected in a
//! [`DraftResponse`]:
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
//! Native calls produce the same events: a wire feeds their argument text to a
//! [`json::ArgumentScanner`], and code behind the events does not need to know how a call was
//! written. For a model without native tool calling, [`render_request`] describes the tools in the
//! prompt and [`PromptedSink`] reads the calls out of the response.

pub mod compatibility;
mod cost;
pub mod dialect;
mod draft;
pub mod escaping;
mod event;
mod fault;
mod history;
pub mod json;
mod known_tool;
mod message;
mod model;
mod prompt;
mod prompt_arguments;
mod prompted;
mod provider_report;
mod reader;
pub mod redact;
mod small_name_set;
mod swar;
mod tool;

pub use cost::{BYTES_PER_TOKEN, Cost, Dollars, DollarsError, TokenPrices};
pub use draft::{DraftArgument, DraftCall, DraftPart, DraftResponse, DraftState};
pub use event::{
    ArgumentEncoding, Certainty, Event, EventSink, MarkupRole, MarkupSpan, StopReason, Truncation,
    Usage,
};
pub use fault::{Fault, FaultKind, Severity, SourceLines, SourcePosition, Span, SpanOrigin};
pub use history::History;
pub use message::{
    Call, CallId, CallResult, Image, Message, MessagePart, OpaqueState, Role, ToolResultStatus,
};
pub use model::{
    CacheControl, ClientBody, InlineInstruction, McpServerInfo, Model, ModelError, ModelErrorKind,
    ParallelCalls, ParseParallelCallsError, ParseTextRecoveryError, ReasoningConfig,
    ReasoningEffort, Request, RequestOptions, ResponseFormat, ResponseFuture, SamplingParams,
    TextRecovery, ToolChoice, ToolProtocol,
};
pub use prompt::{ToolInstructions, render_example};
pub use prompted::{PromptedSink, render_message, render_request, render_result};
pub use provider_report::{ProviderReport, ProviderReportSlot};
pub use reader::CallReader;
pub use tool::{
    ArgumentSpec, ToolError, ToolSet, ToolSpec, ToolSpecs, json_type_name, nearest_candidate,
    resolve_reference,
};
