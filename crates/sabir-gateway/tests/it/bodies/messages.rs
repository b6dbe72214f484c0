//! Response bodies of Anthropic Messages.

use sabir_wire::Wire;
use serde_json::{Value, json};

use super::{LEAK, Recording, named, row};

const WIRE: Wire = Wire::Anthropic;

pub(super) fn all() -> Vec<Recording> {
    [answers(), troubles()].concat()
}

fn begin() -> Value {
    json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 12, "output_tokens": 1}}})
}

/// Makes a block with its deltas.
fn block(index: u32, block: Value, deltas: &[Value]) -> Vec<Value> {
    let start = json!({"type": "content_block_start", "index": index, "content_block": block});
    let deltas = deltas
        .iter()
        .map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta}));
    [
        vec![start],
        deltas.collect(),
        vec![json!({"type": "content_block_stop", "index": index})],
    ]
    .concat()
}

fn text(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

fn input(text: &str) -> Value {
    json!({"type": "input_json_delta", "partial_json": text})
}

fn tool(id: &str, name: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": {}})
}

fn words() -> Vec<Value> {
    block(
        0,
        json!({"type": "text", "text": ""}),
        &[text("Wörter "), text("😀")],
    )
}

fn one() -> Vec<Value> {
    block(
        1,
        tool("t1", "read_file"),
        &[
            input(""),
            input("{\"path\": \"ä"),
            input(".rs\", \"lines\": [1, 50]}"),
        ],
    )
}

fn end(word: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ]
}

fn body(blocks: &[Vec<Value>], end: &[Value]) -> String {
    named(
        &[
            &[begin(), json!({"type": "ping"})][..],
            &blocks.concat(),
            end,
        ]
        .concat(),
    )
}

fn answers() -> Vec<Recording> {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = [
        json!({"type": "thinking_delta", "thinking": "hmm ü"}),
        json!({"type": "signature_delta", "signature": "sig"}),
    ];
    let search = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    vec![
        row(
            WIRE,
            "words and a call",
            [1, 1],
            body(&[words(), one()], &end("tool_use")),
        ),
        row(
            WIRE,
            "two calls, one without arguments",
            [2, 2],
            body(
                &[words(), one(), block(2, tool("t2", "now"), &[])],
                &end("tool_use"),
            ),
        ),
        row(
            WIRE,
            "thinking with a signature",
            [1, 1],
            body(&[block(0, thinking, &thought), one()], &end("tool_use")),
        ),
        row(
            WIRE,
            "thinking that nobody can read",
            [1, 1],
            body(
                &[
                    block(0, json!({"type": "redacted_thinking", "data": "x"}), &[]),
                    one(),
                ],
                &end("tool_use"),
            ),
        ),
        row(
            WIRE,
            "a search that the provider made",
            [0, 0],
            body(
                &[
                    block(0, search, &[input("{\"query\": \"x\"}")]),
                    block(1, found, &[]),
                    block(2, json!({"type": "text", "text": ""}), &[text("Found.")]),
                ],
                &end("end_turn"),
            ),
        ),
    ]
}

fn troubles() -> Vec<Recording> {
    let cut = [&[begin()][..], &words(), &one()[..2]].concat();
    vec![
        row(
            WIRE,
            "an error in the middle",
            [0, 0],
            body(
                &[words()],
                &[
                    json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                ],
            ),
        ),
        row(
            WIRE,
            "a call that is cut by the connection",
            [0, 0],
            named(&cut),
        ),
        row(
            WIRE,
            "a call that is cut by the limit",
            [0, 0],
            body(
                &[block(
                    0,
                    tool("t1", "read_file"),
                    &[input("{\"path\": \"ä")],
                )],
                &end("max_tokens"),
            ),
        ),
        row(WIRE, "a refusal", [0, 0], body(&[words()], &end("refusal"))),
        row(
            WIRE,
            "a leaked call",
            [0, 1],
            body(
                &[block(0, json!({"type": "text", "text": ""}), &[text(LEAK)])],
                &end("end_turn"),
            ),
        ),
    ]
}
