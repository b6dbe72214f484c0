//! Arguments as JSON: events back into text, and text into an object.

use sabir_call::{ArgForm, DraftArgument};
use serde_json::{Map, Value};

use crate::mould::escape;

/// Writes the arguments of one call as fragments of one JSON text.
#[derive(Debug, Default)]
pub(crate) struct ArgumentWriter {
    open: Open,
    /// A raw value, until it ends.
    raw: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Open {
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
    pub(crate) fn start(&mut self, name: &str, form: ArgForm, out: &mut String) {
        self.raw.clear();
        if self.open == Open::Nothing && name.is_empty() && form == ArgForm::String {
            self.open = Open::Bare;
            out.push('"');
            return;
        }
        if name.is_empty() && form == ArgForm::Json {
            if self.open != Open::Nothing {
                out.push(',');
            }
            self.open = Open::Rest;
            return;
        }
        out.push(if self.open == Open::Nothing { '{' } else { ',' });
        out.push('"');
        escape(name, out);
        out.push_str("\":");
        if form == ArgForm::String {
            out.push('"');
        }
        self.open = Open::Argument(form);
    }

    /// Writes a piece of the open argument.
    pub(crate) fn delta(&mut self, text: &str, out: &mut String) {
        match self.open {
            Open::Argument(ArgForm::Json) | Open::Rest => out.push_str(text),
            Open::Argument(ArgForm::String) | Open::Bare => escape(text, out),
            Open::Argument(_) => self.raw.push_str(text),
            Open::Nothing | Open::Object => {}
        }
    }

    /// Closes the open argument.
    pub(crate) fn end(&mut self, lead: &str, out: &mut String) {
        match self.open {
            Open::Argument(ArgForm::Json) => {}
            Open::Argument(ArgForm::String) => out.push('"'),
            Open::Argument(_) => {
                out.push('"');
                escape(lead, out);
                escape(&self.raw, out);
                out.push('"');
                self.raw = String::new();
            }
            // Its quote or bracket is the end of the call.
            Open::Bare | Open::Rest | Open::Nothing | Open::Object => return,
        }
        self.open = Open::Object;
    }

    /// Closes the call.
    pub(crate) fn close(&mut self, out: &mut String) {
        match self.open {
            Open::Nothing => out.push_str("{}"),
            Open::Bare => out.push('"'),
            Open::Rest => {}
            Open::Object | Open::Argument(_) => out.push('}'),
        }
    }

    /// Leaves the call unfinished for every reader.
    pub(crate) fn cut(&mut self, out: &mut String) {
        if self.open == Open::Nothing {
            out.push('{');
        }
    }
}

/// The arguments of a draft as one value each; source text that is no JSON becomes a string.
pub(crate) fn object(arguments: &[DraftArgument]) -> Map<String, Value> {
    let value = |argument: &DraftArgument| match argument.form {
        ArgForm::Json => serde_json::from_str(&argument.text).unwrap_or_else(|_| Value::from(argument.text.as_str())),
        _ => Value::from(argument.text.as_str()),
    };
    arguments.iter().map(|argument| (argument.name.clone(), value(argument))).collect()
}

/// The text of arguments as an object. Text that is none becomes one argument without a name, as the decoder would deliver
/// it: whoever checks the call will refuse it.
pub(crate) fn parsed(text: &str) -> Map<String, Value> {
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
                writer.start(name, form, &mut text);
                writer.delta(value, &mut text);
                writer.end("", &mut text);
            }
            writer.close(&mut text);
            assert_eq!(text, expected);
        }
    }
}
