//! Defines the interface that Sabir's bindings for Python, JavaScript and C share.
//!
//! The main decision: **what crosses a language boundary is text.** Options go in as one JSON
//! object ([`ReaderOptions`]), results come out as JSON in the public shapes of Sabir's commands,
//! and every error has a code, a message and a span ([`BindingError`]). A binding is then a thin
//! layer that converts texts and keeps handles, and all of them give the same results because they
//! share all other code. Only the hot path is different: [`StreamReader`] returns an
//! [`EventBatch`], which a binding may convert to objects of its language without going through
//! JSON.
//!
//! The crate does no I/O, reads no clock, and never panics on any input.
//!
//! ```
//! use sabir_bindings::{ReaderOptions, parse_message};
//!
//! let options = ReaderOptions::from_json(
//!     r#"{"tools": [{"name": "look", "inputSchema": {"type": "object", "properties": {"line": {"type": "integer"}}}}]}"#,
//! )?;
//! let report = parse_message(b"<look><line>7</line></look>", &options);
//! assert!(report.contains(r#""arguments":{"line":7}"#));
//! # Ok::<(), sabir_bindings::BindingError>(())
//! ```

mod error;
mod event_batch;
mod openai_deltas;
mod reader_options;
mod stream_reader;
mod text_functions;

pub use error::{BindingError, ErrorReport};
pub use event_batch::EventBatch;
pub use openai_deltas::OpenAiDeltas;
pub use reader_options::ReaderOptions;
pub use sabir_call::{Event, Span};
pub use stream_reader::StreamReader;
pub use text_functions::{
    apply_edit, check_message, decode_response, detect_dialects, explain_message, guess_tools,
    lint_definitions, list_known_dialects, parse_message, render_calls, render_tool_prompt,
    render_tool_result,
};

/// The version of Sabir.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
