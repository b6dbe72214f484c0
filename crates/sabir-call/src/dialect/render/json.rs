//! Renders JSON as models are trained to write it: with a space after `:` and `,`, like Python's
//! `json.dumps`.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value, json};

use super::NamedCall;
use crate::dialect::grammar::JsonCalls;

/// Renders an object as JSON text.
pub(super) fn render_object(map: &Map<String, Value>) -> String {
    let mut bytes = Vec::new();
    // Writing JSON values to memory cannot fail.
    let _ = map.serialize(&mut Serializer::with_formatter(&mut bytes, SpacedFormatter));
    String::from_utf8(bytes).unwrap_or_default()
}

/// Renders a call as one object that includes the tool's name.
pub(super) fn render_named_call(table: &JsonCalls, at: usize, call: &NamedCall<'_>) -> String {
    let (name, arguments) = call;
    let (name_key, arguments_key, id_key) = table.keys;
    let mut call = Map::new();
    if name_key.is_empty() {
        call.insert((*name).to_owned(), Value::Object((*arguments).clone()));
        return render_object(&call);
    }
    if let Some(key) = id_key {
        // Cohere numbers the calls of a message as text.
        call.insert(key.to_owned(), json!(at.to_string()));
    }
    call.insert(name_key.to_owned(), json!(name));
    call.insert(
        arguments_key.to_owned(),
        Value::Object((*arguments).clone()),
    );
    render_object(&call)
}

struct SpacedFormatter;

impl Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
