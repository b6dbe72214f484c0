//! What did the model write?
//!
//! Doc comes with the code.

pub mod dialect;
mod draft;
mod event;
mod fault;
pub mod json;
mod message;
mod model;
mod prompt;
mod prompted;
mod reader;
mod tool;

pub use draft::{Draft, DraftArgument, DraftCall, DraftPart, DraftState};
pub use event::{ArgForm, Cut, Event, Sink, StopReason, Usage};
pub use fault::{Fault, FaultKind, Origin, Place, Severity, Span};
pub use message::{Call, CallId, CallResult, Ending, Message, Opaque, Part, Role};
pub use model::{Answer, Model, ModelError, ModelErrorKind, Parallel, Protocol, Request, Server, ToolChoice};
pub use prompt::{Lesson, render_example};
pub use prompted::{Prompted, render_message, render_request, render_result};
pub use reader::Reader;
pub use tool::{Argument, ToolError, ToolSet, ToolSpec, nearest, type_of};
