//! Checks the tool calls of a model before they run.
//!
//! A parser yields the calls as the model wrote them. This crate decides which of them may run, in one place for native and
//! prompted calls, so that no dialect has weaker checks than another. The main decision: **a call is typed, then checked,
//! and never guessed.** Text becomes values according to the tool's JSON Schema. Mistakes with exactly one possible reading
//! are repaired by named rules ([`RULES`]), and each [`Repair`] records the text before and after. Everything else is a
//! [`Fault`](sabir_call::Fault) with its position, the expected and the actual input. All faults of a call are collected,
//! because a model that learns of one mistake at a time needs a turn for each. [`render_feedback`] turns the faults into
//! text for the model, and into a different text if the same mistake is repeated ([`MistakeCounter`]).
//!
//! ```
//! use sabir_call::dialect::DialectSet;
//! use sabir_call::{ArgumentEncoding, DraftResponse, Event, EventSink, ToolProtocol, ToolSet};
//! use sabir_check::{CallChecker, CallState, FeedbackContext, MistakeCounter, render_feedback};
//!
//! let tools = ToolSet::from_json(
//!     r#"[{"name": "read_file", "description": "Reads a file.", "parameters": {
//!         "type": "object",
//!         "properties": {"path": {"type": "string"}, "start_line": {"type": "integer"}},
//!         "required": ["path"]}}]"#,
//! )?;
//!
//! // What a parser would emit for `<read_file><path>a.rs</path><start_line>ten</start_line></read_file>`.
//! let source = "<read_file><path>a.rs</path><start_line>ten</start_line></read_file>";
//! let mut draft = DraftResponse::default();
//! for event in [
//!     Event::CallStart { index: 0, id: None, name: "read_file", dialect: Some("cline"), at: 0, name_at: 0 },
//!     Event::ArgStart { index: 0, name: "path", form: ArgumentEncoding::Raw, at: 17 },
//!     Event::ArgDelta { index: 0, text: "a.rs" },
//!     Event::ArgEnd { index: 0, lead: "", at: 21 },
//!     Event::ArgStart { index: 0, name: "start_line", form: ArgumentEncoding::Raw, at: 40 },
//!     Event::ArgDelta { index: 0, text: "ten" },
//!     Event::ArgEnd { index: 0, lead: "", at: 43 },
//!     Event::CallEnd { index: 0, at: source.len() },
//! ] {
//!     draft.push_event(event);
//! }
//!
//! let checked = CallChecker::new(tools.clone()).check_all(&draft);
//! let call = checked.first().ok_or("a call")?;
//! assert_eq!(call.state, CallState::Rejected);
//! let fault = call.faults.first().ok_or("a fault")?;
//! assert_eq!(fault.message, "`start_line` must be an integer, but is \"ten\"");
//!
//! let repetition = MistakeCounter::default();
//! let context = FeedbackContext {
//!     protocol: &ToolProtocol::Native,
//!     dialects: DialectSet::built_in(),
//!     tools: &tools,
//!     repetition: &repetition,
//! };
//! let feedback = render_feedback(&checked, &draft.faults, source, &context);
//! assert!(feedback.is_some_and(|feedback| feedback.contains("^^^")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
mod call_checker;
mod call_diagnostics;
mod coerce;
mod compiled_schema;
mod feedback;
mod foreign;
mod hints;
mod lenient_json;
pub mod lint;
mod location_prefix;
mod misspelling;
mod plain_schema;
mod repair;
mod repetition;
mod schema;
mod schema_error;
mod similar_name;
mod trailing_arguments;
mod typing;
mod validate;
mod xml_arguments;
mod xml_element;

pub use call_checker::{CallChecker, CallState, CheckedCall};
pub use compiled_schema::can_validate as can_validate_schema;
pub use feedback::{CAP as FEEDBACK_CAP, FeedbackContext, render_feedback, render_missing_call};
pub use location_prefix::location_prefix_length;
pub use repair::{RULES, Repair, RepairRule, RepairSet};
pub use repetition::{CheckedOutcome, MistakeCounter};
pub use typing::{CoercionOutcome, StreamingMode};
