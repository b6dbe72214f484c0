//! Rules for merging deltas, each tested with hand-written bodies.

use sabir_call::{DraftPart, DraftState, Event, FaultKind, ModelErrorKind, StopReason, Truncation};
use sabir_wire::{BodyEnd, BodyForm, ResponseEncoder, ResponseMetadata, Wire};
use serde_json::{Value, json};

use crate::merged::{decode, decode_all, runnable};

/// Encodes chunks of OpenAI Chat as a stream; strings are written unchanged.
pub(crate) fn chat(chunks: &[Value]) -> String {
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

/// Encodes events of Anthropic as a stream.
pub(crate) fn anthropic(events: &[Value]) -> String {
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

/// Builds a chunk with call deltas.
pub(crate) fn delta(calls: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": null}]})
}

/// Builds a chunk with a finish reason.
pub(crate) fn finish(word: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
}

/// Builds one call delta; `null` leaves a member out.
fn call(index: Value, id: Value, name: Value, arguments: Value) -> Value {
    let mut function = json!({"name": name, "arguments": arguments});
    function
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    let mut call = json!({"index": index, "id": id, "function": function});
    call.as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    call
}

/// Returns the calls that would run after these chunks and the finish reason `tool_calls`.
fn check_chat(chunks: &[Value], expected: Value) {
    let mut chunks = chunks.to_vec();
    chunks.push(finish("tool_calls"));
    chunks.push(json!("[DONE]"));
    let (merged, report) = decode_all(Wire::OpenAiChat, &chat(&chunks));
    assert_eq!(
        json!(runnable(&merged.draft)),
        expected,
        "{:#?}",
        merged.events
    );
    assert!(report.ended);
}

const N: Value = Value::Null;

#[test]
fn an_index_is_a_label() {
    let x = json!(["f", {"a": 1}]);
    let y = json!(["g", {"b": 2}]);
    let both = json!([x, y]);
    // Mistral omits it; each chunk has whole calls.
    let whole = |index: [Value; 2]| {
        let [first, second] = index;
        delta(json!([
            call(first, "c1".into(), "f".into(), "{\"a\":1}".into()),
            call(second, "c2".into(), "g".into(), "{\"b\":2}".into())
        ]))
    };
    check_chat(&[whole([N, N])], both.clone());
    // Counted from 1 and with gaps (Anthropic behind OpenAI gateways), and reused.
    check_chat(&[whole([json!(1), json!(2)])], both.clone());
    check_chat(&[whole([json!(0), json!(7)])], both.clone());
    check_chat(&[whole([json!(0), json!(0)])], both.clone());
    // Without an index the deltas belong to the latest call.
    let rest = delta(json!([call(N, N, N, "1}".into())]));
    check_chat(
        &[
            delta(json!([call(N, "c1".into(), "f".into(), "{\"a\":".into())])),
            rest,
        ],
        json!([x]),
    );
    // Interleaved calls (recordings 5 and 10 start both before they end).
    let chunks = [
        delta(json!([call(json!(0), "c1".into(), "f".into(), "".into())])),
        delta(json!([call(json!(1), "c2".into(), "g".into(), "".into())])),
        delta(json!([call(json!(0), N, N, "{\"a\"".into())])),
        delta(json!([call(json!(1), N, N, "{\"b\":".into())])),
        delta(json!([
            call(json!(0), N, N, ":1}".into()),
            call(json!(1), N, N, "2}".into())
        ])),
    ];
    check_chat(&chunks, both);
}

#[test]
fn ids_replace_and_names_in_pieces_are_joined() {
    let first = call(json!(0), "c1".into(), "f".into(), "{\"a\":".into());
    let again = call(json!(0), "c1".into(), "f".into(), "1}".into());
    let one = json!([["f", {"a": 1}]]);
    check_chat(&[delta(json!([first])), delta(json!([again]))], one.clone());
    // The name in a later chunk than the id, with arguments before it.
    let chunks = [
        delta(json!([call(json!(0), "c1".into(), N, "{\"a\"".into())])),
        delta(json!([call(json!(0), N, "f".into(), ":1}".into())])),
    ];
    check_chat(&chunks, one.clone());
    // Empty and missing ids.
    check_chat(
        &[delta(json!([call(
            json!(0),
            "".into(),
            "f".into(),
            "{\"a\":1}".into()
        )]))],
        one.clone(),
    );
    // Whole calls without any id under one index (Gemini's OpenAI endpoint).
    let chunks = [
        delta(json!([call(
            json!(0),
            "".into(),
            "f".into(),
            "{\"a\":1}".into()
        )])),
        delta(json!([call(
            json!(0),
            "".into(),
            "f".into(),
            "{\"a\":2}".into()
        )])),
    ];
    check_chat(&chunks, json!([["f", {"a": 1}], ["f", {"a": 2}]]));
    // A name in pieces, repeated, or growing; with the id in the first delta or in each.
    let arguments = || Value::from("{\"a\":1}");
    let check_names = |id: Value, names: &[&str], expected: &str| {
        let mut chunks: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let id = if at == 0 { "c1".into() } else { id.clone() };
                delta(json!([call(json!(0), id, Value::from(*name), "".into())]))
            })
            .collect();
        chunks.push(delta(json!([call(json!(0), id, N, arguments())])));
        check_chat(&chunks, json!([[expected, {"a": 1}]]));
    };
    for id in ["c1".into(), N] {
        check_names(id.clone(), &["read", "_", "file"], "read_file");
        check_names(id.clone(), &["read_file", "read_file"], "read_file");
        check_names(id, &["read", "read_file"], "read_file");
    }
    // The last piece comes with the arguments, and so does the name of a call that has none.
    let chunks = [
        delta(json!([call(json!(0), "c1".into(), "f".into(), N)])),
        delta(json!([call(
            json!(0),
            "c1".into(),
            "g".into(),
            arguments()
        )])),
    ];
    check_chat(&chunks, json!([["fg", {"a": 1}]]));
    // Calls without arguments keep the order in which they came.
    let chunks = [
        delta(json!([call(json!(0), "c1".into(), "f".into(), N)])),
        delta(json!([call(
            json!(1),
            "c2".into(),
            "g".into(),
            "{}".into()
        )])),
    ];
    check_chat(&chunks, json!([["f", {}], ["g", {}]]));
    // Another name after arguments is not a new call, and the call never runs.
    let chunks = [
        delta(json!([call(
            json!(0),
            "c1".into(),
            "f".into(),
            "{\"a\"".into()
        )])),
        delta(json!([call(
            json!(0),
            "c1".into(),
            "g".into(),
            ":1}".into()
        )])),
    ];
    check_chat(&chunks, json!([]));
}

#[test]
fn a_repeated_call_counts_once() {
    let one = json!([["f", {"a": 1}]]);
    let start = delta(json!([call(
        json!(0),
        "c1".into(),
        "f".into(),
        "{\"a\":1}".into()
    )]));
    check_chat(&[start.clone(), start.clone()], one.clone());
    check_chat(
        &[
            start.clone(),
            delta(json!([call(json!(0), N, "f".into(), "{\"a\":1}".into())])),
        ],
        one.clone(),
    );
    // As a whole message behind the deltas.
    let message = json!({"choices": [{"index": 0, "message": {"tool_calls":
        [{"id": "c1", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}]});
    check_chat(&[start, message], one);
}

#[test]
fn arguments_come_in_many_shapes() {
    let check = |arguments: Value, expected: Value| {
        check_chat(
            &[delta(json!([call(
                json!(0),
                "c".into(),
                "f".into(),
                arguments
            )]))],
            json!([["f", expected]]),
        );
    };
    check(json!({"a": [1, {"b": 1.0}]}), json!({"a": [1, {"b": 1.0}]}));
    // Groq writes "null" for no arguments; others nothing, or an empty object.
    for none in [json!("null"), json!(""), json!("{}"), json!({}), N] {
        check(none, json!({}));
    }
    // Encoded twice: kept unchanged, for the checks to repair.
    check(json!("\"{\\\"a\\\":1}\""), json!({"": "{\"a\":1}"}));
    // The old form.
    let old =
        json!({"choices": [{"delta": {"function_call": {"name": "f", "arguments": "{\"a\":1}"}}}]});
    check_chat(&[old], json!([["f", {"a": 1}]]));
}

#[test]
fn a_call_without_a_name_never_runs() {
    let (merged, _) = decode_all(
        Wire::OpenAiChat,
        &chat(&[
            delta(json!([call(json!(3), N, N, "{\"a\":1}".into())])),
            finish("tool_calls"),
        ]),
    );
    assert!(runnable(&merged.draft).is_empty());
    assert_eq!(merged.draft.faults[0].kind, FaultKind::MissingName);
}

#[test]
fn unfinished_arguments_are_cut_for_every_finish_reason() {
    for (word, native, why) in [
        ("length", N, Truncation::Limit),
        ("tool_calls", N, Truncation::Ended),
        // OpenRouter's word hides the model's own reason.
        ("tool_calls", json!("MAX_TOKENS"), Truncation::Limit),
    ] {
        for arguments in ["{\"a\":\"x", ""] {
            let mut end = finish(word);
            end["choices"][0]["native_finish_reason"] = native.clone();
            let body = chat(&[
                delta(json!([call(
                    json!(0),
                    "c".into(),
                    "f".into(),
                    arguments.into()
                )])),
                end,
            ]);
            let (merged, _) = decode_all(Wire::OpenAiChat, &body);
            // No arguments mean a whole call, unless the limit may have cut them.
            let whole = arguments.is_empty() && why == Truncation::Ended;
            let expected = if whole {
                DraftState::Closed
            } else {
                DraftState::Cut(why)
            };
            assert_eq!(
                merged.draft.calls().next().unwrap().state,
                expected,
                "{word} {arguments}"
            );
        }
    }
}

#[test]
fn broken_json_ends_with_a_fault() {
    let body = chat(&[
        delta(json!([call(
            json!(0),
            "c".into(),
            "f".into(),
            "{\"a\" 1}".into()
        )])),
        finish("tool_calls"),
    ]);
    let (merged, _) = decode_all(Wire::OpenAiChat, &body);
    assert_eq!(
        merged.draft.calls().next().unwrap().state,
        DraftState::Closed
    );
    assert!(runnable(&merged.draft).is_empty(), "{:#?}", merged.events);
    assert!(
        merged
            .draft
            .errors_of(0)
            .any(|fault| fault.kind == FaultKind::MalformedJson)
    );
}

#[test]
fn reasoning_has_many_names() {
    let thought = |delta: Value| {
        let (merged, _) = decode_all(
            Wire::OpenAiChat,
            &chat(&[json!({"choices": [{"delta": delta}]}), finish("stop")]),
        );
        merged.draft.parts
    };
    let expected = vec![DraftPart::Thought("hm".into())];
    assert_eq!(
        thought(json!({"reasoning_content": "hm", "content": null})),
        expected
    );
    assert_eq!(thought(json!({"reasoning": "hm", "content": ""})), expected);
    assert_eq!(
        thought(json!({"reasoning": "hm", "reasoning_content": "hm"})),
        expected
    );
    // Only details, as recording 347; and Mistral's parts, as recording 295.
    assert_eq!(
        thought(json!({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]})),
        expected
    );
    assert_eq!(
        thought(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]})
        ),
        expected
    );
    // Encrypted reasoning goes back, as recording 14.
    let parts = thought(
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]}),
    );
    assert!(matches!(&parts[..], [DraftPart::Opaque(opaque)] if opaque.data["data"] == "x"));
}

#[test]
fn usage_counts_each_token_once() {
    // xAI counts reasoning separately, as recording 121; the chunk has no choices.
    let tokens = json!({"prompt_tokens": 496, "completion_tokens": 77, "total_tokens": 694,
        "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 121}});
    let (merged, _) = decode_all(
        Wire::OpenAiChat,
        &chat(&[finish("stop"), json!({"choices": [], "usage": tokens})]),
    );
    let usage = merged.draft.usage;
    assert_eq!(
        (usage.input, usage.output, usage.cache_read, usage.reasoning),
        (Some(496), Some(198), Some(2), Some(121))
    );
    // Anthropic counts cached input separately, and sends the output count twice.
    let start = json!({"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1});
    let body = anthropic(&[
        json!({"type": "message_start", "message": {"usage": start}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ]);
    let usage = decode_all(Wire::Anthropic, &body).0.draft.usage;
    assert_eq!(
        (
            usage.input,
            usage.output,
            usage.cache_read,
            usage.cache_write
        ),
        (Some(17), Some(9), Some(5), Some(2))
    );
}

#[test]
fn errors_during_a_stream_cut_open_calls() {
    let open = delta(json!([call(
        json!(0),
        "c".into(),
        "f".into(),
        "{\"a\":1}".into()
    )]));
    // As recordings 349 and 360: an error object in a stream of status 200.
    let error = json!({"error": {"code": 502, "message": "upstream"}, "choices": [{"delta": {}, "finish_reason": "error"}]});
    let (merged, report) = decode_all(Wire::OpenAiChat, &chat(&[open, error, json!("[DONE]")]));
    assert_eq!(
        merged.draft.calls().next().unwrap().state,
        DraftState::Cut(Truncation::Broken)
    );
    assert_eq!(report.error.unwrap().kind, ModelErrorKind::Unavailable);
    let body = anthropic(&[
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ]);
    let (merged, report) = decode_all(Wire::Anthropic, &body);
    assert_eq!(
        merged.draft.calls().next().unwrap().state,
        DraftState::Cut(Truncation::Broken)
    );
    assert_eq!(report.error.unwrap().kind, ModelErrorKind::Unavailable);
    assert!(!report.ended);
}

#[test]
fn a_line_without_an_end_is_reported_with_its_limit() {
    let piece = vec![b'x'; 1 << 20];
    let line = std::iter::once(&b"data: "[..]).chain(std::iter::repeat_n(&piece[..], 17));
    let (merged, report) = decode(Wire::OpenAiChat, line, BodyEnd::Clean);
    let fault = &merged.draft.faults[0].message;
    assert!(
        fault.contains("16 MiB") && fault.contains("check"),
        "{fault}"
    );
    assert_eq!(report.unreadable_cause, *fault);
}

#[test]
fn an_unreadable_event_damages_only_open_calls() {
    let open = delta(json!([call(
        json!(0),
        "c".into(),
        "f".into(),
        "{\"a\":\"".into()
    )]));
    let rest = delta(json!([call(json!(0), N, N, "\"}".into())]));
    let text = json!({"choices": [{"delta": {"content": "still here"}}]});
    let (merged, report) = decode_all(
        Wire::OpenAiChat,
        &chat(&[open, json!("{oops"), rest, text, finish("tool_calls")]),
    );
    assert_eq!(
        merged.draft.calls().next().unwrap().state,
        DraftState::Cut(Truncation::Broken)
    );
    assert_eq!(
        (merged.draft.text().as_str(), report.unreadable),
        ("still here", 1)
    );
    assert_eq!(merged.draft.faults[0].kind, FaultKind::Provider);
}

#[test]
fn an_answer_with_more_skipped_deltas_than_events_is_an_answer() {
    let choice = |index: u8, words: &str| json!({"index": index, "message": {"content": words}, "finish_reason": "stop"});
    let body = json!({"choices": [choice(0, "hi"), choice(1, "ho"), choice(2, "hu")]}).to_string();
    let (merged, report) = decode_all(Wire::OpenAiChat, &body);
    assert_eq!(
        (merged.draft.text().as_str(), report.ended, report.skipped),
        ("hi", true, 2)
    );
    assert_eq!(report.error, None);
}

#[test]
fn state_whose_end_never_came_is_lost_with_a_warning() {
    let block =
        |block: Value| json!({"type": "content_block_start", "index": 0, "content_block": block});
    let check = |block: Value, faults: usize| {
        let (merged, report) = decode_all(
            Wire::Anthropic,
            &anthropic(&[block, json!({"type": "message_stop"})]),
        );
        assert!(report.ended, "{report:?}");
        assert_eq!(merged.draft.faults.len(), faults, "{:?}", merged.draft);
        assert!(
            !merged
                .draft
                .parts
                .iter()
                .any(|part| matches!(part, DraftPart::Opaque(_)))
        );
    };
    check(
        block(json!({"type": "thinking", "thinking": "hm", "signature": "s"})),
        1,
    );
    check(block(json!({"type": "redacted_thinking", "data": "x"})), 1);
    check(block(json!({"type": "text", "text": "hi"})), 0);
}

#[test]
fn unknown_things_are_skipped_and_counted() {
    let body = anthropic(&[
        json!({"type": "ping"}),
        json!({"type": "brand_new", "index": 4}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_stop"}),
    ]);
    let (merged, report) = decode_all(Wire::Anthropic, &body);
    assert_eq!(
        (
            merged.draft.text().as_str(),
            report.skipped,
            report.unreadable
        ),
        ("hi", 2, 0)
    );
}

#[test]
fn server_tools_are_no_calls() {
    // As recordings 117 and 341; the input streams like a call's.
    for kind in ["server_tool_use", "mcp_tool_use"] {
        let body = anthropic(&[
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": kind, "id": "s", "name": "web_search", "input": {}}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"query\":"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "\"x\"}"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_stop"}),
        ]);
        let (merged, _) = decode_all(Wire::Anthropic, &body);
        let [DraftPart::Opaque(opaque)] = &merged.draft.parts[..] else {
            panic!("{:?}", merged.draft.parts)
        };
        assert_eq!(
            opaque.data,
            json!({"type": kind, "id": "s", "name": "web_search", "input": {"query": "x"}})
        );
    }
}

#[test]
fn thinking_is_signed_and_may_be_hidden() {
    // As recordings 67, 152 (signature only) and 342 (redacted).
    let block = |index: u32, start: Value, deltas: &[Value]| {
        let mut events =
            vec![json!({"type": "content_block_start", "index": index, "content_block": start})];
        events.extend(
            deltas.iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    };
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let mut events = block(
        0,
        thinking.clone(),
        &[
            json!({"type": "thinking_delta", "thinking": "hm"}),
            json!({"type": "signature_delta", "signature": "s1"}),
        ],
    );
    events.extend(block(
        1,
        thinking,
        &[json!({"type": "signature_delta", "signature": "s2"})],
    ));
    events.extend(block(
        2,
        json!({"type": "redacted_thinking", "data": "r"}),
        &[],
    ));
    events.push(json!({"type": "message_stop"}));
    let (merged, _) = decode_all(Wire::Anthropic, &anthropic(&events));
    let [
        DraftPart::Thought(words),
        DraftPart::Opaque(first),
        DraftPart::Opaque(second),
        DraftPart::Opaque(third),
    ] = &merged.draft.parts[..]
    else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(words, "hm");
    assert_eq!(first.data, json!({"type": "thinking", "signature": "s1"}));
    assert_eq!(second.data, json!({"type": "thinking", "signature": "s2"}));
    assert_eq!(
        third.data,
        json!({"type": "redacted_thinking", "data": "r"})
    );
}

#[test]
fn blocks_may_be_doubled_lost_or_never_stopped() {
    let start = |id: &str| {
        json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "tool_use", "id": id, "name": "f", "input": {}}})
    };
    let json_delta = |text: &str| {
        json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": text}})
    };
    let stop = json!({"type": "content_block_stop", "index": 0});
    let end = json!({"type": "message_stop"});
    let states = |events: &[Value]| -> Vec<DraftState> {
        decode_all(Wire::Anthropic, &anthropic(events))
            .0
            .draft
            .calls()
            .map(|call| call.state)
            .collect()
    };
    // A repeated start is not a new call; another call under an open index truncates the first.
    assert_eq!(
        states(&[
            start("a"),
            start("a"),
            json_delta("{}"),
            stop.clone(),
            end.clone()
        ]),
        [DraftState::Closed]
    );
    assert_eq!(
        states(&[
            start("a"),
            json_delta("{}"),
            start("b"),
            json_delta("{}"),
            stop.clone(),
            end.clone()
        ]),
        [DraftState::Cut(Truncation::Ended), DraftState::Closed]
    );
    // Never stopped: complete or not, it is truncated, and the message continues.
    assert_eq!(
        states(&[start("a"), json_delta("{}"), end.clone()]),
        [DraftState::Cut(Truncation::Ended)]
    );
    // A delta without a block is a fault.
    let (merged, report) = decode_all(
        Wire::Anthropic,
        &anthropic(&[json_delta("{}"), end.clone()]),
    );
    assert_eq!((merged.draft.faults.len(), report.unreadable), (1, 1));
    // Several starts of the message, as some gateways send, change nothing.
    let begin = json!({"type": "message_start", "message": {"id": "m"}});
    assert_eq!(
        states(&[
            begin.clone(),
            begin,
            start("a"),
            json_delta("{}"),
            stop.clone(),
            end.clone()
        ]),
        [DraftState::Closed]
    );
    // Input whole in the start, and repeated as deltas.
    let mut whole = start("a");
    whole["content_block"]["input"] = json!({"a": 1});
    let (merged, _) = decode_all(
        Wire::Anthropic,
        &anthropic(&[whole, json_delta("{\"a\":1}"), stop, end]),
    );
    assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": 1}]]));
}

#[test]
fn whole_bodies_decode_too() {
    let body = json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
        {"role": "assistant", "content": "go", "tool_calls": [
            {"id": "same", "function": {"name": "f", "arguments": "{\"a\":1}"}},
            {"id": "same", "function": {"name": "f", "arguments": {"a": 2}}}]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    let (merged, report) = decode_all(Wire::OpenAiChat, &body.to_string());
    assert_eq!(
        json!(runnable(&merged.draft)),
        json!([["f", {"a": 1}], ["f", {"a": 2}]])
    );
    assert_eq!(
        (report.form, report.ended, merged.draft.usage.output),
        (BodyForm::Whole, true, Some(4))
    );

    let body = |reason: &str| {
        json!({"type": "message", "role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "go"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "u", "name": "g", "input": {}}],
        "stop_reason": reason, "usage": {"input_tokens": 3, "output_tokens": 4}})
    };
    let (merged, report) = decode_all(Wire::Anthropic, &body("tool_use").to_string());
    assert_eq!(
        json!(runnable(&merged.draft)),
        json!([["f", {"a": 1}], ["g", {}]])
    );
    assert!(report.ended && report.error.is_none());
    // At the limit, the end of the last block proves nothing.
    let (merged, _) = decode_all(Wire::Anthropic, &body("max_tokens").to_string());
    assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": 1}]]));
    assert_eq!(
        merged.draft.call_by_index(1).unwrap().state,
        DraftState::Cut(Truncation::Limit)
    );
}

#[test]
fn foreign_bodies_are_reported() {
    let kind = |wire, body: &str| decode_all(wire, body).1.error.map(|error| error.kind);
    for wire in Wire::ALL {
        let (_, report) = decode_all(wire, "\u{feff} \n<!DOCTYPE html><h1>Sign in</h1>");
        assert_eq!(
            (report.form, report.error.map(|error| error.kind)),
            (BodyForm::Foreign, Some(ModelErrorKind::Format))
        );
        assert!(report.opening.starts_with("<!DOCTYPE"));
        assert_eq!(
            kind(wire, "upstream timed out"),
            Some(ModelErrorKind::Format)
        );
        assert_eq!(kind(wire, ""), Some(ModelErrorKind::Format));
        assert_eq!(kind(wire, "{\"ok\": true}"), Some(ModelErrorKind::Format));
        assert_eq!(
            kind(
                wire,
                r#"{"error":{"message":"no key","code":"invalid_api_key"}}"#
            ),
            Some(ModelErrorKind::Key)
        );
    }
}

#[test]
fn streams_end_in_many_ways() {
    let text = json!({"choices": [{"index": 0, "delta": {"content": "hi"}}]});
    let report = |chunks: &[Value]| decode_all(Wire::OpenAiChat, &chat(chunks));
    let ended = |chunks: &[Value]| report(chunks).1.ended;
    assert!(ended(&[text.clone(), finish("stop")]), "no [DONE]");
    assert!(ended(&[text.clone(), json!("[DONE]")]), "no finish reason");
    assert!(!ended(&[text.clone()]), "just closed");
    let (merged, _) = report(&[text.clone(), json!("[DONE]"), text.clone()]);
    assert_eq!(merged.draft.text(), "hi", "data behind [DONE]");
    let (merged, _) = report(&[text.clone(), finish("brand_new")]);
    assert_eq!(
        merged.draft.stop,
        Some((StopReason::Other, "brand_new".into()))
    );
    // The last event without its blank line.
    let body = chat(&[text, finish("stop")]);
    assert!(decode_all(Wire::OpenAiChat, body.trim_end()).1.ended);
}

#[test]
fn other_choices_are_left_out() {
    let second = json!({"choices": [{"index": 1, "delta": {"content": "two"}}, {"index": 0, "delta": {"content": "one"}}]});
    let first = json!({"choices": [{"index": 0, "delta": {"content": "one "}}]});
    let (merged, report) = decode_all(Wire::OpenAiChat, &chat(&[first, second, finish("stop")]));
    assert_eq!(
        (merged.draft.text().as_str(), report.skipped),
        ("one one", 1)
    );
}

#[test]
fn too_many_calls_are_reported_once() {
    for wire in Wire::ALL {
        let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
        let mut body = Vec::new();
        for index in 0..520 {
            let id = format!("c{index}");
            encoder.encode_event(
                Event::CallStart {
                    index,
                    id: Some(&id),
                    name: "f",
                    dialect: None,
                    at: 0,
                    name_at: 0,
                },
                &mut body,
            );
            encoder.encode_event(Event::CallEnd { index, at: 0 }, &mut body);
        }
        encoder.finish(&mut body);
        let (merged, report) = decode(wire, [&body[..]], BodyEnd::Clean);
        let faults: Vec<_> = merged
            .draft
            .faults
            .iter()
            .map(|fault| (fault.kind, fault.message.as_str()))
            .collect();
        assert_eq!(
            faults,
            [(FaultKind::Limit, "more than 512 calls in one response")],
            "{wire}"
        );
        assert_eq!(
            (runnable(&merged.draft).len(), report.ended),
            (512, true),
            "{wire}"
        );
    }
}

#[test]
fn too_much_state_is_reported_once() {
    let long = "x".repeat(9 << 20);
    let data = |index: u32| if index < 2 { long.as_str() } else { "x" };
    let block = |index: u32| {
        let block = json!({"type": "redacted_thinking", "data": data(index)});
        json!({"type": "content_block_start", "index": index, "content_block": block})
    };
    let item = |index: u32| {
        let item =
            json!({"type": "web_search_call", "id": index.to_string(), "action": data(index)});
        json!({"type": "response.output_item.done", "output_index": index, "item": item})
    };
    let part = |index: u32| json!({"candidates": [{"content": {"parts": [{"inlineData": {"data": data(index)}}]}}]});
    let three = |event: &dyn Fn(u32) -> Value| {
        (0..3)
            .map(|at| format!("data: {}\n\n", event(at)))
            .collect::<String>()
    };
    for (wire, body) in [
        (Wire::Anthropic, three(&block)),
        (Wire::OpenAiResponses, three(&item)),
        (Wire::Gemini, three(&part)),
    ] {
        let (merged, _) = decode_all(wire, &body);
        let limits = merged
            .draft
            .faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Limit)
            .count();
        let kept = merged
            .draft
            .parts
            .iter()
            .filter(|part| matches!(part, DraftPart::Opaque(_)))
            .count();
        // Content without an end is not kept, and nothing is kept after the limit.
        assert!(limits == 1 && kept <= 1, "{wire}: {limits} {kept}");
    }
}
