//! Arguments as JSON: events back into text, and text into an object.

use sabir_call::{ArgForm, DraftArgument};
use serde_json::{Map, Value};

use crate::delta_template::escape_json;

/// Writes the arguments of one call as fragments of one JSON text.
#[derive(Debug, Default)]
pub(crate) struct ArgumentWriter {
    state: WriterState,
    /// A raw value, until it ends.
    raw: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    /// Nothing has been written.
    #[default]
    Nothing,
    /// The object, and between its arguments.
    Object,
    /// An argument of that form.
    Argument(ArgForm),
    /// A string in place of the object: arguments that were encoded twice.
    Bare,
    /// The rest of the object as the model wrote it, from where that stopped being strict JSON, with its closing bracket.
    Rest,
}

impl ArgumentWriter {
    /// Opens an argument.
    pub(crate) fn start_argument(&mut self, name: &str, form: ArgForm, out: &mut String) {
        self.raw.clear();
        if self.state == WriterState::Nothing && name.is_empty() && form == ArgForm::String {
            self.state = WriterState::Bare;
            out.push('"');
            return;
        }
        if name.is_empty() && form == ArgForm::Json {
            if self.state != WriterState::Nothing {
                out.push(',');
            }
            self.state = WriterState::Rest;
            return;
        }
        out.push(if self.state == WriterState::Nothing { '{' } else { ',' });
        out.push('"');
        escape_json(name, out);
        out.push_str("\":");
        if form == ArgForm::String {
            out.push('"');
        }
        self.state = WriterState::Argument(form);
    }

    /// Writes a piece of the open argument.
    pub(crate) fn push_delta(&mut self, text: &str, out: &mut String) {
        match self.state {
            WriterState::Argument(ArgForm::Json) | WriterState::Rest => out.push_str(text),
            WriterState::Argument(ArgForm::String) | WriterState::Bare => escape_json(text, out),
            WriterState::Argument(_) => self.raw.push_str(text),
            WriterState::Nothing | WriterState::Object => {}
        }
    }

    /// Closes the open argument.
    pub(crate) fn end_argument(&mut self, lead: &str, out: &mut String) {
        match self.state {
            WriterState::Argument(ArgForm::Json) => {}
            WriterState::Argument(ArgForm::String) => out.push('"'),
            WriterState::Argument(_) => {
                out.push('"');
                escape_json(lead, out);
                escape_json(&self.raw, out);
                out.push('"');
                self.raw = String::new();
            }
            // Its quote or bracket is the end of the call.
            WriterState::Bare | WriterState::Rest | WriterState::Nothing | WriterState::Object => return,
        }
        self.state = WriterState::Object;
    }

    /// Closes the call.
    pub(crate) fn close_call(&mut self, out: &mut String) {
        match self.state {
            WriterState::Nothing => out.push_str("{}"),
            WriterState::Bare => out.push('"'),
            WriterState::Rest => {}
            WriterState::Object | WriterState::Argument(_) => out.push('}'),
        }
    }

    /// Leaves the call unfinished for every reader.
    pub(crate) fn leave_truncated(&mut self, out: &mut String) {
        if self.state == WriterState::Nothing {
            out.push('{');
        }
    }
}

/// The arguments of a draft as one value each; source text that is no JSON becomes a string.
pub(crate) fn arguments_object(arguments: &[DraftArgument]) -> Map<String, Value> {
    let value = |argument: &DraftArgument| match argument.form {
        ArgForm::Json => serde_json::from_str(&argument.text).unwrap_or_else(|_| Value::from(argument.text.as_str())),
        _ => Value::from(argument.text.as_str()),
    };
    arguments.iter().map(|argument| (argument.name.clone(), value(argument))).collect()
}

/// The text of arguments as an object. Text that is none becomes one argument without a name, as the decoder would deliver
/// it: whoever checks the call will refuse it.
pub(crate) fn parse_arguments(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => arguments,
        Ok(Value::Null) => Map::new(),
        _ if text.trim().is_empty() => Map::new(),
        _ => Map::from_iter([(String::new(), Value::from(text))]),
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgForm, ArgumentWriter};

    #[test]
    fn what_is_no_strict_json_stays_as_it_was_written() {
        let (json, string) = (ArgForm::Json, ArgForm::String);
        let rows = [
            (vec![("", json, "{'a': 'b'}")], "{'a': 'b'}"),
            (vec![("a", json, "1"), ("", json, "'b': 'c'}")], r#"{"a":1,'b': 'c'}"#),
            (vec![("a", string, "b"), ("", json, "}")], r#"{"a":"b",}"#),
        ];
        for (arguments, expected) in rows {
            let (mut writer, mut text) = (ArgumentWriter::default(), String::new());
            for (name, form, value) in arguments {
                writer.start_argument(name, form, &mut text);
                writer.push_delta(value, &mut text);
                writer.end_argument("", &mut text);
            }
            writer.close_call(&mut text);
            assert_eq!(text, expected);
        }
    }
}
