//! Response bodies as providers write them, one for each quirk, written by hand. A number above a body names the recording that
//! showed the quirk.

use sabir_wire::Wire;
use serde_json::Value;

mod chat;
mod messages;
mod others;
mod responses;

/// A body with its name and the number of calls in it that a client can run: passed on, and repaired.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) wire: Wire,
    pub(crate) body: Vec<u8>,
    /// `None` if not counted.
    pub(crate) calls: Option<[usize; 2]>,
}

const LEAK: &str = "I read it.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}\n</tool_call>";

pub(crate) fn all() -> Vec<Recording> {
    [
        chat::all(),
        messages::all(),
        responses::all(),
        others::all(),
    ]
    .concat()
}

fn row(wire: Wire, name: &str, calls: [usize; 2], body: impl Into<Vec<u8>>) -> Recording {
    Recording {
        name: name.to_owned(),
        wire,
        body: body.into(),
        calls: Some(calls),
    }
}

/// Makes events with only `data`; strings are used as they are.
fn events(chunks: &[Value]) -> String {
    chunks
        .iter()
        .map(|chunk| {
            format!(
                "data: {}\n\n",
                chunk.as_str().map_or(chunk.to_string(), str::to_owned)
            )
        })
        .collect()
}

/// Makes events with names.
fn named(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}
