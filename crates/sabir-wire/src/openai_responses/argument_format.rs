//! Writes the arguments of a call in the form that its client expects: JSON, or one text.

use sabir_call::{ArgumentEncoding, Event};

use crate::arguments::ArgumentWriter;
use crate::native_tools::INPUT;

/// Writes the arguments of a call.
#[derive(Debug)]
pub(crate) enum CallArgumentWriter {
    /// As one JSON object.
    Json(ArgumentWriter),
    /// As the text of one argument: the form of the open argument if it is that one, and the held
    /// part of a raw value.
    Text(Option<ArgumentEncoding>, String),
}

impl CallArgumentWriter {
    /// Creates a writer; `freeform` is true if the tool's input is text.
    pub(crate) fn new(freeform: bool) -> Self {
        if freeform {
            Self::Text(None, String::new())
        } else {
            Self::Json(ArgumentWriter::default())
        }
    }

    /// Returns true if the arguments are one text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text(..))
    }

    /// Writes an event of an argument; other events are ignored.
    pub(crate) fn encode_event(&mut self, event: Event<'_>, out: &mut String) {
        match event {
            Event::ArgStart { name, form, .. } => self.start_argument(name, form, out),
            Event::ArgDelta { text, .. } => self.push_delta(text, out),
            Event::ArgEnd { lead, .. } => self.end_argument(lead, out),
            _ => {}
        }
    }

    /// Opens an argument.
    pub(crate) fn start_argument(&mut self, name: &str, form: ArgumentEncoding, out: &mut String) {
        match self {
            Self::Json(writer) => writer.start_argument(name, form, out),
            // An argument without a name is text that the model wrote in place of an object.
            Self::Text(open, _) => *open = [INPUT, ""].contains(&name).then_some(form),
        }
    }

    /// Writes a piece of the open argument. A raw value is held back until its end, since its beginning is known only then.
    pub(crate) fn push_delta(&mut self, text: &str, out: &mut String) {
        match self {
            Self::Json(writer) => writer.push_delta(text, out),
            Self::Text(Some(ArgumentEncoding::String | ArgumentEncoding::Json), _) => {
                out.push_str(text)
            }
            Self::Text(Some(_), held) => held.push_str(text),
            Self::Text(None, _) => {}
        }
    }

    /// Closes the open argument.
    pub(crate) fn end_argument(&mut self, lead: &str, out: &mut String) {
        match self {
            Self::Json(writer) => writer.end_argument(lead, out),
            Self::Text(open, held) => {
                if open.take().is_some_and(|form| {
                    !matches!(form, ArgumentEncoding::String | ArgumentEncoding::Json)
                }) {
                    out.push_str(lead);
                    out.push_str(&std::mem::take(held));
                }
            }
        }
    }

    /// Closes the call.
    pub(crate) fn close_call(&mut self, out: &mut String) {
        if let Self::Json(writer) = self {
            writer.close_call(out);
        }
    }

    /// Leaves the call visibly unfinished.
    pub(crate) fn leave_truncated(&mut self, out: &mut String) {
        if let Self::Json(writer) = self {
            writer.leave_truncated(out);
        }
    }
}
