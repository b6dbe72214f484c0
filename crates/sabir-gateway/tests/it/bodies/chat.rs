//! Response bodies of OpenAI Chat Completions.

use sabir_wire::Wire;
use serde_json::{Value, json};

use super::{LEAK, Recording, events, row};

const WIRE: Wire = Wire::OpenAiChat;

pub(super) fn all() -> Vec<Recording> {
    [words(), calls(), shapes(), troubles()].concat()
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(word: &str) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
}

fn call(index: Value, id: &str, name: &str, arguments: Value) -> Value {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn more(index: u32, arguments: &str) -> Value {
    delta(json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
}

/// Makes the first delta of a call.
fn open() -> Value {
    delta(
        json!({"role": "assistant", "content": null, "tool_calls": [call(json!(0), "c1", "read_file", json!(""))]}),
    )
}

fn done() -> [Value; 2] {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}});
    [usage, json!("[DONE]")]
}

/// Makes a stream of these chunks, a finish reason and an end.
fn ended(chunks: &[Value], word: &str) -> String {
    events(&[chunks, &[finish(word)], &done()].concat())
}

fn words() -> Vec<Recording> {
    vec![row(
        WIRE,
        "words",
        [0, 0],
        ended(
            &[
                delta(json!({"role": "assistant", "content": ""})),
                delta(json!({"content": "Wörter "})),
                delta(json!({"content": "😀"})),
            ],
            "stop",
        ),
    )]
}

fn shapes() -> Vec<Recording> {
    vec![
        row(
            WIRE,
            "reasoning, then words, then a call",
            [1, 1],
            ended(
                &[
                    delta(json!({"reasoning_content": "hmm "})),
                    delta(json!({"reasoning_content": "ü"})),
                    delta(json!({"content": "Reading."})),
                    open(),
                    more(0, "{\"path\":\"a\"}"),
                ],
                "tool_calls",
            ),
        ),
        row(
            WIRE,
            "line ends of two bytes, and comments",
            [1, 1],
            format!(
                ": OPENROUTER PROCESSING\n\n{}",
                ended(&[open(), more(0, "{\"path\":\"a\"}")], "tool_calls")
            )
            .replace('\n', "\r\n"),
        ),
    ]
}

fn calls() -> Vec<Recording> {
    let letters: Vec<Value> = "{\"path\": \"ä \\\"b\\\"\\n\\ud83d\\ude00.rs\"}"
        .chars()
        .map(|c| more(0, &c.to_string()))
        .collect();
    let second = delta(json!({"tool_calls": [call(json!(1), "c2", "list", json!(""))]}));
    let whole = |index: Value, number: u32| {
        call(
            index,
            &format!("c{number}"),
            "read_file",
            json!(format!("{{\"path\":\"{number}\"}}")),
        )
    };
    vec![
        row(
            WIRE,
            "a call letter by letter",
            [1, 1],
            ended(&[&[open()][..], &letters].concat(), "tool_calls"),
        ),
        // 5, 10
        row(
            WIRE,
            "two calls that begin before one ends",
            [2, 2],
            ended(
                &[
                    open(),
                    second,
                    more(0, "{\"pa"),
                    more(1, "{\"n\":"),
                    more(0, "th\":\"a\"}"),
                    more(1, "[1,2]}"),
                ],
                "tool_calls",
            ),
        ),
        row(
            WIRE,
            "calls without an index",
            [2, 2],
            ended(
                &[delta(
                    json!({"tool_calls": [whole(Value::Null, 1), whole(Value::Null, 2)]}),
                )],
                "tool_calls",
            ),
        ),
        row(
            WIRE,
            "calls under one index",
            [2, 2],
            ended(
                &[
                    delta(json!({"tool_calls": [whole(json!(0), 1)]})),
                    delta(json!({"tool_calls": [whole(json!(0), 2)]})),
                ],
                "stop",
            ),
        ),
        row(
            WIRE,
            "arguments as an object, as null, as nothing",
            [3, 3],
            ended(
                &[delta(json!({"tool_calls": [
                    call(json!(0), "c1", "read_file", json!({"path": "a", "lines": [1, 1.50, 1e3]})),
                    call(json!(1), "c2", "list", json!("null")),
                    call(json!(2), "c3", "now", json!("")),
                ]}))],
                "tool_calls",
            ),
        ),
    ]
}

fn troubles() -> Vec<Recording> {
    let open =
        || delta(json!({"tool_calls": [call(json!(0), "c1", "read_file", json!("{\"path\":"))]}));
    let leaked = |text: &str| -> Vec<Value> {
        text.split_inclusive(' ')
            .map(|piece| delta(json!({"content": piece})))
            .collect()
    };
    let both = [
        leaked(LEAK),
        vec![delta(json!({"tool_calls": [call(json!(0), "c1", "read_file", json!("{\"path\":\"a.rs\"}"))]}))],
    ]
    .concat();
    vec![
        row(WIRE, "a leaked call", [0, 1], ended(&leaked(LEAK), "stop")),
        row(
            WIRE,
            "a call as words and natively",
            [1, 1],
            ended(&both, "tool_calls"),
        ),
        row(
            WIRE,
            "a call in reasoning",
            [0, 1],
            ended(
                &[delta(
                    json!({"reasoning_content": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{\"path\": \"a\"}<|tool_call_end|><|tool_calls_section_end|>"}),
                )],
                "stop",
            ),
        ),
        row(
            WIRE,
            "markup that is only told of",
            [0, 0],
            ended(
                &leaked(
                    "It says `<tool_call>` there, and\n```\n<read_file><path>a</path></read_file>\n```\n",
                ),
                "stop",
            ),
        ),
        // 276, 351
        row(
            WIRE,
            "reasoning as words",
            [0, 0],
            ended(&leaked("<think>\nhmm ü\n</think>\n\nSo it is."), "stop"),
        ),
        row(
            WIRE,
            "a leaked call that is cut",
            [0, 0],
            ended(&leaked(&LEAK[..60]), "length"),
        ),
        row(
            WIRE,
            "a call that is cut by the limit",
            [0, 0],
            ended(&[open(), more(0, "\"a.r")], "length"),
        ),
        row(
            WIRE,
            "a call that is cut by the connection",
            [0, 0],
            events(&[delta(json!({"content": "Hm."})), open(), more(0, "\"a.r")]),
        ),
        row(
            WIRE,
            "one whole call, and one that is cut",
            [1, 1],
            events(&[
                open(),
                more(0, "\"a\"}"),
                delta(
                    json!({"tool_calls": [call(json!(1), "c2", "read_file", json!("{\"path\":\"b"))]}),
                ),
            ]),
        ),
        row(
            WIRE,
            "an error in the middle",
            [0, 0],
            events(&[
                delta(json!({"content": "Hm."})),
                json!({"error": {"message": "Overloaded", "code": 529}}),
            ]),
        ),
        row(WIRE, "an empty answer", [0, 0], ended(&[], "stop")),
    ]
}
