//! Response bodies of Gemini, Ollama and Bedrock.

use sabir_call::StopReason;
use sabir_testkit::{ProviderReply, ScriptedFault};
use sabir_wire::{ResponseMetadata, Wire};
use serde_json::{Value, json};

use super::{LEAK, Recording, events, row};

pub(super) fn all() -> Vec<Recording> {
    [gemini(), broken_gemini(), ollama(), bedrock()].concat()
}

fn chunk(parts: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}]})
}

fn end(word: &str) -> Value {
    let usage = json!({"promptTokenCount": 12, "candidatesTokenCount": 5});
    json!({"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": word}], "usageMetadata": usage})
}

/// Makes a piece of an argument.
fn piece(text: &str) -> Value {
    let part = json!({"jsonPath": "$.path", "stringValue": text, "willContinue": true});
    json!({"functionCall": {"partialArgs": [part], "willContinue": true}})
}

fn gemini() -> Vec<Recording> {
    let call = |arguments: Value| json!({"functionCall": {"name": "read_file", "args": arguments}, "thoughtSignature": "c2ln"});
    vec![
        row(
            Wire::Gemini,
            "words",
            [0, 0],
            events(&[
                chunk(json!([{"text": "Wörter "}])),
                chunk(json!([{"text": "😀"}])),
                end("STOP"),
            ]),
        ),
        row(
            Wire::Gemini,
            "two calls in one event",
            [2, 2],
            events(&[
                chunk(
                    json!([{"text": "Both."}, call(json!({"path": "ä", "n": [1, 7_006_652.0]})), {"functionCall": {"name": "now"}}]),
                ),
                end("STOP"),
            ]),
        ),
        row(
            Wire::Gemini,
            "a thought and a call",
            [1, 1],
            events(&[
                chunk(json!([{"text": "hmm ü", "thought": true}])),
                chunk(json!([call(json!({"path": "a"}))])),
                end("STOP"),
            ])
            .replace('\n', "\r\n"),
        ),
        row(
            Wire::Gemini,
            "arguments in pieces",
            [1, 1],
            events(&[
                chunk(json!([{"functionCall": {"name": "read_file", "willContinue": true}}])),
                chunk(json!([piece("ä")])),
                chunk(json!([piece(".rs")])),
                chunk(json!([{"functionCall": {}}])),
                end("STOP"),
            ]),
        ),
    ]
}

fn broken_gemini() -> Vec<Recording> {
    vec![
        row(
            Wire::Gemini,
            "a call that is cut by the connection",
            [0, 0],
            events(&[
                chunk(json!([{"functionCall": {"name": "read_file", "willContinue": true}}])),
                chunk(json!([piece("ä")])),
            ]),
        ),
        row(
            Wire::Gemini,
            "a call that nobody can read",
            [0, 0],
            events(&[
                chunk(json!([{"text": "Hm."}])),
                end("MALFORMED_FUNCTION_CALL"),
            ]),
        ),
        row(
            Wire::Gemini,
            "a prompt that is refused",
            [0, 0],
            events(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]),
        ),
        row(
            Wire::Gemini,
            "a leaked call",
            [0, 1],
            events(&[chunk(json!([{"text": LEAK}])), end("STOP")]),
        ),
    ]
}

fn ollama() -> Vec<Recording> {
    let wire = Wire::Ollama;
    let lines = |lines: &[Value]| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let said = |message: Value| json!({"model": "m", "message": message, "done": false});
    let call = |id: Value, arguments: Value| json!({"id": id, "function": {"name": "read_file", "arguments": arguments}});
    let end = |word: &str| json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": word, "prompt_eval_count": 12, "eval_count": 5});
    vec![
        row(
            wire,
            "a thought, words and a call",
            [1, 1],
            lines(&[
                said(json!({"content": "", "thinking": "hmm ü"})),
                said(json!({"content": "Wörter 😀"})),
                said(
                    json!({"content": "", "tool_calls": [call(json!("c1"), json!({"path": "ä", "n": [1, {"x": "}"}]}))]}),
                ),
                end("stop"),
            ]),
        ),
        row(
            wire,
            "calls under one id",
            [2, 2],
            lines(&[
                said(
                    json!({"tool_calls": [call(json!("call_0"), json!({"path": "a"})), call(json!("call_0"), json!({"path": "b"}))]}),
                ),
                end("stop"),
            ]),
        ),
        row(
            wire,
            "a leaked call",
            [0, 1],
            lines(&[
                said(json!({"content": &LEAK[..40]})),
                said(json!({"content": &LEAK[40..]})),
                end("stop"),
            ]),
        ),
        row(
            wire,
            "an answer that is cut",
            [0, 0],
            lines(&[said(json!({"content": "Hm."}))]),
        ),
        row(
            wire,
            "an error in the middle",
            [0, 0],
            lines(&[
                said(json!({"content": "Hm."})),
                json!({"error": "out of memory"}),
            ]),
        ),
    ]
}

/// Frames are binary: the provider of the tests writes them.
fn bedrock() -> Vec<Recording> {
    let answer = || {
        ProviderReply::text("Wörter 😀")
            .with_call(
                "c1",
                "read_file",
                json!({"path": "ä.rs", "n": [1, 7_006_652.0]}),
            )
            .in_deltas(3)
    };
    let bytes =
        |reply: ProviderReply| reply.encode_stream(Wire::Bedrock, ResponseMetadata::default());
    let whole = bytes(answer());
    let (cut, flipped) = (whole[..whole.len() * 2 / 3].to_vec(), whole.len() / 2);
    let mut broken = whole.clone();
    broken[flipped] ^= 1;
    let row = |name: &str, calls: [usize; 2], body: Vec<u8>| row(Wire::Bedrock, name, calls, body);
    vec![
        row("words and a call", [1, 1], whole),
        row(
            "thinking and two calls",
            [2, 2],
            bytes(
                ProviderReply::default()
                    .with_thought("hmm ü", None)
                    .with_call("c1", "now", json!({}))
                    .with_call("c2", "read_file", json!({"path": "a"})),
            ),
        ),
        row(
            "a leaked call",
            [0, 1],
            bytes(ProviderReply::text(LEAK).in_deltas(7)),
        ),
        row("frames that are cut", [0, 0], cut),
        row("a frame that is damaged", [0, 0], broken),
        row(
            "an error behind a call",
            [1, 1],
            bytes(answer().with_fault(ScriptedFault::Error {
                code: "throttlingException".into(),
                message: "slow down".into(),
            })),
        ),
        row(
            "a call that is cut by the limit",
            [1, 1],
            bytes(ProviderReply {
                stop: Some(StopReason::Length),
                ..answer()
            }),
        ),
    ]
}
