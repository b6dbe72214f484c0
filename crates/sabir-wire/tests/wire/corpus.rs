//! The recordings of real providers, where they are present.

use sabir_wire::{Close, Wire};
use serde_json::Value;

use crate::merged::{decode, runnable};

/// Recordings where the calls differ from what a naive reader finds, and why.
const DIFFERENT: [(u64, &str); 1] =
    [(1284, "the call of a custom tool is the client's to answer, like any other call")];

#[test]
fn recordings_decode_the_same_in_any_chunks() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus/streams.jsonl");
    let Ok(recordings) = std::fs::read_to_string(path) else {
        eprintln!("skipped: no recordings beside the workspace");
        return;
    };
    let (mut count, mut wrong) = (0, Vec::new());
    for line in recordings.lines() {
        let recording: Value = serde_json::from_str(line).unwrap();
        let wire = match recording["wire"].as_str().unwrap() {
            "anthropic-sse" => Wire::Anthropic,
            "openai-chat-sse" => Wire::OpenAiChat,
            "openai-responses-sse" => Wire::OpenAiResponses,
            "gemini-sse" => Wire::Gemini,
            "ollama-ndjson" => Wire::Ollama,
            _ => continue,
        };
        count += 1;
        let (id, body) = (recording["id"].as_u64().unwrap(), recording["body"].as_str().unwrap());
        let (whole, report) = decode(wire, [body.as_bytes()], Close::Clean);
        for size in [1, 7, 64] {
            let (chunked, again) = decode(wire, body.as_bytes().chunks(size), Close::Clean);
            assert_eq!((&chunked, &again), (&whole, &report), "recording {id}, chunks of {size}");
        }
        if report.unreadable > 0 || !(report.ended || report.error.is_some()) {
            wrong.push(format!("{id}: {report:?}"));
        }
        let Some(calls) = recording["calls"].as_array() else { continue };
        let expected: Vec<(String, Value)> = calls
            .iter()
            .filter_map(|call| {
                let arguments = serde_json::from_str::<Value>(call[1].as_str()?).ok()?;
                Some((
                    call[0].as_str()?.to_owned(),
                    if arguments.is_null() { serde_json::json!({}) } else { arguments },
                ))
            })
            .collect();
        let found = runnable(&whole.draft);
        if found != expected && !DIFFERENT.iter().any(|(known, _)| *known == id) {
            wrong.push(format!("{id}: found {found:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(count, 346 + 64 + 1);
}
