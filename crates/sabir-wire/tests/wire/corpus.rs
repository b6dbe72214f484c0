//! Recordings of real providers, if they are present.

use std::collections::BTreeMap;

use sabir_wire::{BodyEnd, Wire};
use serde_json::{Value, json};

use crate::merged::{decode, runnable};

/// Recordings whose calls differ from what a naive reader finds, with the reason.
const DIFFERENT: [(u64, &str); 1] = [(
    1284,
    "the call of a custom tool is the client's to answer, like any other call",
)];

/// The number of recordings of each wire; the others belong to no known wire.
const COUNTS: [(&str, usize); 6] = [
    ("anthropic", 52),
    ("bedrock", 20),
    ("gemini", 64),
    ("ollama", 1),
    ("openai-chat", 207),
    ("openai-responses", 87),
];

/// The calls of recordings in which a naive reader finds none, because they are binary.
const BEDROCK_CALLS: [(u64, &str, &str); 5] = [
    (109, "weather", r#"{"location": "Florence, Italy"}"#),
    (112, "weather", r#"{"location": "Florence, Italy"}"#),
    (115, "weather", r#"{"location": "Florence,Italy"}"#),
    (371, "final_result", r#"{"result": 7006652.0}"#),
    (372, "get_temperature", r#"{"city": "Paris"}"#),
];

/// A recorded body.
pub(crate) struct Recording {
    pub(crate) id: u64,
    /// The name of its wire, which may be unknown to this build.
    pub(crate) wire: String,
    pub(crate) body: Vec<u8>,
    /// The name and arguments of each call, if a naive reader could tell.
    calls: Option<Vec<(String, Value)>>,
}

/// Loads all recordings, or none where they are absent.
pub(crate) fn recordings() -> Option<Vec<Recording>> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/corpus/streams.jsonl"
    );
    let lines = std::fs::read_to_string(path).ok()?;
    Some(
        lines
            .lines()
            .map(|line| recording(&serde_json::from_str(line).unwrap()))
            .collect(),
    )
}

fn recording(line: &Value) -> Recording {
    let id = line["id"].as_u64().unwrap();
    let text = line["body"].as_str().unwrap();
    let wire = line["wire"]
        .as_str()
        .unwrap()
        .rsplit_once('-')
        .unwrap()
        .0
        .to_owned();
    // Binary bodies are stored as text with one character per byte.
    let body = if wire == "bedrock" {
        text.chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect()
    } else {
        text.as_bytes().to_vec()
    };
    let mut calls = line["calls"]
        .as_array()
        .map(|calls| calls.iter().filter_map(call).collect());
    if wire == "bedrock" {
        let known = BEDROCK_CALLS.iter().filter(|(known, ..)| *known == id);
        calls = Some(
            known
                .map(|(_, name, arguments)| {
                    (name.to_string(), serde_json::from_str(arguments).unwrap())
                })
                .collect(),
        );
    }
    Recording {
        id,
        wire,
        body,
        calls,
    }
}

/// A name and arguments; `None` if the arguments are not JSON.
fn call(call: &Value) -> Option<(String, Value)> {
    let arguments = serde_json::from_str::<Value>(call[1].as_str()?).ok()?;
    Some((
        call[0].as_str()?.to_owned(),
        if arguments.is_null() {
            json!({})
        } else {
            arguments
        },
    ))
}

#[test]
fn recordings_decode_the_same_in_any_chunks() {
    let Some(recordings) = recordings() else {
        return crate::skipped("no recordings beside the workspace");
    };
    let mut counts = BTreeMap::new();
    let mut wrong = Vec::new();
    for Recording {
        id,
        wire: name,
        body,
        calls,
    } in &recordings
    {
        let Some(wire) = Wire::from_name(name) else {
            // No decoder may panic, whatever the bytes are.
            Wire::ALL
                .iter()
                .for_each(|wire| drop(same_in_any_chunks(*wire, *id, body)));
            continue;
        };
        *counts.entry(name.as_str()).or_insert(0) += 1;
        let (draft, report) = same_in_any_chunks(wire, *id, body);
        if report.unreadable > 0 || !(report.ended || report.error.is_some()) {
            wrong.push(format!("{id}: {report:?}"));
        }
        let found = runnable(&draft);
        if let Some(expected) = calls
            && found != *expected
            && !DIFFERENT.iter().any(|(known, _)| known == id)
        {
            wrong.push(format!("{id}: found {found:?}, expected {expected:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {counts:?}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let known = COUNTS
        .iter()
        .filter(|(name, _)| Wire::from_name(name).is_some());
    assert_eq!(counts, known.copied().collect());
}

fn same_in_any_chunks(
    wire: Wire,
    id: u64,
    body: &[u8],
) -> (sabir_call::DraftResponse, sabir_wire::DecodeReport) {
    let whole = decode(wire, [body], BodyEnd::Clean);
    for size in [1, 7, 64] {
        assert_eq!(
            decode(wire, body.chunks(size), BodyEnd::Clean),
            whole,
            "recording {id}, {wire}, chunks of {size}"
        );
    }
    (whole.0.draft, whole.1)
}
