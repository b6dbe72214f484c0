//! Converts arguments between events, JSON text and JSON objects.

use sabir_call::{ArgumentEncoding, DraftArgument, Event};
use serde_json::{Map, Value};

use crate::delta_template::escape_json;
use crate::surrogates::parse_lossy;

/// Writes the arguments of one call as fragments of one JSON text.
#[derive(Debug, Default)]
pub(crate) struct ArgumentWriter {
    /// The position in the JSON text written so far.
    state: WriterState,
    /// The raw value so far; it is written when it ends.
    raw: String,
}

/// The position of the writer in the JSON text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    /// Nothing has been written.
    #[default]
    Nothing,
    /// Inside the object, between arguments.
    Object,
    /// Inside an argument of this form.
    Argument(ArgumentEncoding),
    /// Inside a string in place of the object: the model encoded the arguments twice.
    Bare,
    /// In the rest of the object as the model wrote it, from where it stopped being strict JSON,
    /// with its closing bracket.
    Rest,
}

impl ArgumentWriter {
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
    ///
    /// Put together, the fragments of a call are one JSON object, except where the model itself
    /// wrote something else. A fragment is final once written, so it can be sent at once.
    pub(crate) fn start_argument(&mut self, name: &str, form: ArgumentEncoding, out: &mut String) {
        self.raw.clear();
        // An argument without a name is not the model's: a string holds arguments that were encoded
        // twice.
        if self.state == WriterState::Nothing && name.is_empty() && form == ArgumentEncoding::String
        {
            self.state = WriterState::Bare;
            out.push('"');
            return;
        }
        // A nameless JSON argument is the rest of an object that stopped being strict JSON: written
        // unchanged.
        if name.is_empty() && form == ArgumentEncoding::Json {
            if self.state != WriterState::Nothing {
                out.push(',');
            }
            self.state = WriterState::Rest;
            return;
        }
        out.push(if self.state == WriterState::Nothing {
            // The first argument opens the object; a call without arguments opens and closes it at
            // its end.
            '{'
        } else {
            ','
        });
        out.push('"');
        escape_json(name, out);
        out.push_str("\":");
        if form == ArgumentEncoding::String {
            out.push('"');
        }
        self.state = WriterState::Argument(form);
    }

    /// Writes a piece of the open argument.
    pub(crate) fn push_delta(&mut self, text: &str, out: &mut String) {
        match self.state {
            WriterState::Argument(ArgumentEncoding::Json) | WriterState::Rest => out.push_str(text),
            WriterState::Argument(ArgumentEncoding::String) | WriterState::Bare => {
                escape_json(text, out)
            }
            // A raw value may lose its first line feed, which is known only at its end.
            WriterState::Argument(_) => self.raw.push_str(text),
            WriterState::Nothing | WriterState::Object => {}
        }
    }

    /// Closes the open argument. `lead` is the line feed at the start of a raw value, if it is
    /// content.
    pub(crate) fn end_argument(&mut self, lead: &str, out: &mut String) {
        match self.state {
            WriterState::Argument(ArgumentEncoding::Json) => {}
            WriterState::Argument(ArgumentEncoding::String) => out.push('"'),
            WriterState::Argument(_) => {
                out.push('"');
                escape_json(lead, out);
                escape_json(&self.raw, out);
                out.push('"');
                self.raw = String::new();
            }
            // The quote or bracket that closes these is written at the end of the call.
            WriterState::Bare | WriterState::Rest | WriterState::Nothing | WriterState::Object => {
                return;
            }
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

    /// Leaves the call visibly unfinished. An empty text would read as no arguments, so it gets its
    /// opening bracket.
    pub(crate) fn leave_truncated(&mut self, out: &mut String) {
        if self.state == WriterState::Nothing {
            out.push('{');
        }
    }
}

/// Returns a draft's arguments as an object. JSON source that does not parse becomes a string.
pub(crate) fn arguments_object(arguments: &[DraftArgument]) -> Map<String, Value> {
    let value = |argument: &DraftArgument| match argument.form {
        ArgumentEncoding::Json => parse_lossy(argument.text.as_bytes())
            .unwrap_or_else(|_| Value::from(argument.text.as_str())),
        _ => Value::from(argument.text.as_str()),
    };
    arguments
        .iter()
        .map(|argument| (argument.name.clone(), value(argument)))
        .collect()
}

/// Parses the text of arguments as an object. Any other text becomes one argument without a name,
/// as the decoder delivers it, and the checks refuse the call.
pub(crate) fn parse_arguments(text: &str) -> Map<String, Value> {
    match parse_lossy(text.as_bytes()) {
        Ok(Value::Object(arguments)) => arguments,
        // Some providers write `null` or nothing for a call without arguments.
        Ok(Value::Null) => Map::new(),
        _ if text.trim().is_empty() => Map::new(),
        _ => Map::from_iter([(String::new(), Value::from(text))]),
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgumentEncoding, ArgumentWriter};

    #[test]
    fn invalid_json_arguments_are_written_unchanged() {
        let json = ArgumentEncoding::Json;
        let string = ArgumentEncoding::String;
        let rows = [
            (vec![("", json, "{'a': 'b'}")], "{'a': 'b'}"),
            (
                vec![("a", json, "1"), ("", json, "'b': 'c'}")],
                r#"{"a":1,'b': 'c'}"#,
            ),
            (vec![("a", string, "b"), ("", json, "}")], r#"{"a":"b",}"#),
        ];
        for (arguments, expected) in rows {
            let mut writer = ArgumentWriter::default();
            let mut text = String::new();
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
