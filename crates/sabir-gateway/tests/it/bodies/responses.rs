//! Response bodies of OpenAI Responses.

use sabir_wire::Wire;
use serde_json::{Value, json};

use super::{LEAK, Recording, named, row};

const WIRE: Wire = Wire::OpenAiResponses;

pub(super) fn all() -> Vec<Recording> {
    [answers(), troubles()].concat()
}

fn item(event: &str, index: u32, item: Value) -> Value {
    json!({"type": format!("response.output_item.{event}"), "output_index": index, "item": item})
}

/// Makes an event with that text in all fields that hold it.
fn piece(event: &str, index: u32, id: &str, text: &str) -> Value {
    json!({"type": format!("response.{event}"), "output_index": index, "item_id": id, "content_index": 0, "delta": text,
        "text": text, "arguments": text})
}

fn function(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": format!("call_{id}"), "name": "read_file", "arguments": arguments})
}

fn message(text: &str) -> Value {
    let content = if text.is_empty() {
        json!([])
    } else {
        json!([{"type": "output_text", "text": text}])
    };
    json!({"type": "message", "id": "m", "role": "assistant", "content": content})
}

fn reasoning(content: Value) -> Value {
    json!({"type": "reasoning", "id": "r", "summary": [], "content": content})
}

/// Makes the last event.
fn end(kind: &str, why: Value) -> Value {
    let usage = json!({"input_tokens": 12, "output_tokens": 5});
    json!({"type": format!("response.{kind}"), "response": {"status": kind, "output": [], "usage": usage,
        "incomplete_details": why, "error": why}})
}

fn completed() -> Vec<Value> {
    vec![end("completed", Value::Null)]
}

fn words(index: u32, text: &str) -> Vec<Value> {
    vec![
        item("added", index, message("")),
        piece("output_text.delta", index, "m", text),
        item("done", index, message(text)),
    ]
}

fn one(index: u32, id: &str) -> Vec<Value> {
    let text = "{\"path\":\"ä.rs\"}";
    vec![
        item("added", index, function(id, "")),
        piece("function_call_arguments.delta", index, id, &text[..9]),
        piece("function_call_arguments.delta", index, id, &text[9..]),
        piece("function_call_arguments.done", index, id, text),
        item("done", index, function(id, text)),
    ]
}

fn body(events: &[Vec<Value>]) -> String {
    named(&events.concat())
}

fn answers() -> Vec<Recording> {
    let custom = |input: &str| json!({"type": "custom_tool_call", "id": "t", "call_id": "call_t", "name": "patch", "input": input});
    let parts = json!([{"type": "reasoning_text", "text": "hmm ü"}]);
    let summary = json!([{"type": "summary_text", "text": "hmm ü"}]);
    vec![
        row(
            WIRE,
            "words and two calls",
            [2, 2],
            body(&[
                words(0, "Wörter 😀"),
                one(1, "f1"),
                one(2, "f2"),
                completed(),
            ]),
        ),
        row(
            WIRE,
            "a call that is told only when it is done",
            [1, 1],
            body(&[
                vec![item("done", 0, function("f", "{\"path\":\"a\"}"))],
                completed(),
            ]),
        ),
        // 1284
        row(
            WIRE,
            "a call of a tool whose input is text",
            [1, 1],
            body(&[
                vec![
                    item("added", 0, custom("")),
                    item("done", 0, custom("*** \"ü\"\nEnd")),
                ],
                completed(),
            ]),
        ),
        row(
            WIRE,
            "reasoning with state, then a call",
            [1, 1],
            body(&[
                vec![
                    item("added", 0, reasoning(json!([]))),
                    json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "r", "summary_index": 0, "delta": "hmm ü"}),
                    item(
                        "done",
                        0,
                        json!({"type": "reasoning", "id": "r", "summary": summary, "encrypted_content": "x"}),
                    ),
                ],
                one(1, "f"),
                completed(),
            ]),
        ),
        // 307
        row(
            WIRE,
            "reasoning that ends behind the message",
            [0, 0],
            body(&[
                vec![
                    item("added", 0, reasoning(json!([]))),
                    piece("reasoning_text.delta", 0, "r", "hmm ü"),
                ],
                words(1, "Wörter 😀"),
                vec![item("done", 0, reasoning(parts))],
                completed(),
            ]),
        ),
    ]
}

fn troubles() -> Vec<Recording> {
    vec![
        row(
            WIRE,
            "an answer that failed",
            [0, 0],
            body(&[
                words(0, "Wörter 😀"),
                vec![end(
                    "failed",
                    json!({"code": "server_error", "message": "Overloaded"}),
                )],
            ]),
        ),
        row(
            WIRE,
            "a call that is cut by the limit",
            [0, 0],
            body(&[
                one(0, "f")[..2].to_vec(),
                vec![end("incomplete", json!({"reason": "max_output_tokens"}))],
            ]),
        ),
        row(
            WIRE,
            "a call that is cut by the connection",
            [0, 0],
            body(&[words(0, "Wörter 😀"), one(1, "f")[..2].to_vec()]),
        ),
        row(
            WIRE,
            "a leaked call",
            [0, 1],
            body(&[words(0, LEAK), completed()]),
        ),
    ]
}
