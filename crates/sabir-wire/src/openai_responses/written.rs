//! The arguments of a call as a client of this wire gets them: JSON, or the one text of a tool whose input is text.

use sabir_call::ArgForm;

use crate::arguments::ArgumentWriter;
use crate::native::INPUT;

/// Writes what a call is given.
#[derive(Debug)]
pub(crate) enum Written {
    /// As one JSON object.
    Json(ArgumentWriter),
    /// As the text of one argument. The form of the argument that is open, if it is that one, and what is held of it.
    Text(Option<ArgForm>, String),
}

impl Written {
    /// `freeform`: whether the tool's input is text.
    pub(crate) fn new(freeform: bool) -> Self {
        if freeform { Self::Text(None, String::new()) } else { Self::Json(ArgumentWriter::default()) }
    }

    /// Whether it is text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text(..))
    }

    /// Opens an argument.
    pub(crate) fn start(&mut self, name: &str, form: ArgForm, out: &mut String) {
        match self {
            Self::Json(writer) => writer.start(name, form, out),
            // Arguments without a name are what a model wrote in place of an object.
            Self::Text(open, _) => *open = [INPUT, ""].contains(&name).then_some(form),
        }
    }

    /// Writes a piece of the open argument. One whose beginning is known only at its end is held until then.
    pub(crate) fn delta(&mut self, text: &str, out: &mut String) {
        match self {
            Self::Json(writer) => writer.delta(text, out),
            Self::Text(Some(ArgForm::String | ArgForm::Json), _) => out.push_str(text),
            Self::Text(Some(_), held) => held.push_str(text),
            Self::Text(None, _) => {}
        }
    }

    /// Closes the open argument.
    pub(crate) fn end(&mut self, lead: &str, out: &mut String) {
        match self {
            Self::Json(writer) => writer.end(lead, out),
            Self::Text(open, held) => {
                if open.take().is_some_and(|form| !matches!(form, ArgForm::String | ArgForm::Json)) {
                    out.push_str(lead);
                    out.push_str(&std::mem::take(held));
                }
            }
        }
    }

    /// Closes the call.
    pub(crate) fn close(&mut self, out: &mut String) {
        if let Self::Json(writer) = self {
            writer.close(out);
        }
    }

    /// Leaves the call unfinished.
    pub(crate) fn cut(&mut self, out: &mut String) {
        if let Self::Json(writer) = self {
            writer.cut(out);
        }
    }
}
