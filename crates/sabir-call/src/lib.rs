//! What did the model write?
//!
//! Doc comes with the code.

mod draft;
mod event;
mod fault;
pub mod json;
mod message;
mod model;
mod tool;

pub use draft::{Draft, DraftArgument, DraftCall, DraftPart, DraftState};
pub use event::{ArgForm, Cut, Event, Sink, StopReason, Usage};
pub use fault::{Fault, FaultKind, Origin, Place, Severity, Span};
pub use message::{Call, CallId, CallResult, Ending, Message, Opaque, Part, Role};
pub use model::{Answer, Model, ModelError, ModelErrorKind, Parallel, Protocol, Request, ToolChoice};
pub use tool::{Argument, ToolError, ToolSet, ToolSpec, nearest, type_of};
