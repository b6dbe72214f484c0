//! Recognises the dialect of tool calls that a chat template teaches.
//!
//! The template renders a conversation with one tool and one call of it, as a server would for the
//! model. The reader of every dialect then reads the text of the call. A dialect is a candidate if
//! its reader finds exactly this call, with the same arguments; the closer the text is to what
//! Sabir itself would write in that dialect, the better the candidate.
//!
//! A template comes from the author of a model, so it is untrusted input. It can neither load other
//! templates nor reach anything but the conversation, and [`render_conversations`] limits its
//! steps, nesting and output. The engine does not count the work of constants, or of printing a
//! list that contains another list twice, which contains another one twice, and so on. So programs
//! call [`render_conversations`] in a process of its own, with a limit of time and memory, and give
//! the result to [`recognize_template`]. `sabir-session` does that.

mod conversation;
mod engine;
mod recognition;
mod rendering;
mod source;

pub use conversation::ArgumentForm;
pub use engine::TemplateError;
pub use recognition::{
    DialectCandidate, MatchLevel, RecognizedCall, TemplateEvidence, TemplateReport,
    TemplateVerdict, recognize_template,
};
pub use rendering::{RENDER_ARGUMENT, RenderedTemplate, render_conversations};
pub use source::{ChatTemplate, SourceError, read_templates};
