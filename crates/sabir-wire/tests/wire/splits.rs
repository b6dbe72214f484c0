//! Splits and cuts of streams: no split changes the events, no cut completes a call.

use proptest::prelude::*;
use sabir_call::{DraftState, Truncation};
use sabir_wire::sse::{self, MAX_EVENT, SseDecoder, SseEvent};
use sabir_wire::{BodyEnd, Wire};
use serde_json::{Value, json};

use crate::case_count::{case_count, sampled_positions};
use crate::merged::decode;
use crate::rules::{anthropic, chat, delta, finish};
use crate::{gemini, ollama};

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = SseDecoder::new();
    let mut found = Vec::new();
    let mut take = |event: SseEvent<'_>| found.push(format!("{event:?}"));
    for piece in pieces {
        decoder.push(piece, &mut take);
    }
    decoder.finish(&mut take);
    found
}

fn message(name: &str, data: &str, id: &str) -> String {
    format!("{:?}", SseEvent::Message { name, data, id })
}

#[test]
fn the_event_stream_format() {
    let check = |body: &str, expected: &[String]| {
        assert_eq!(events([body.as_bytes()]), expected, "{body:?}");
        for end in ["\n", "\r\n", "\r"] {
            let body = body.replace('\n', end);
            for split in sampled_positions(1, body.len() + 1, 3) {
                let (head, tail) = body.as_bytes().split_at(split);
                assert_eq!(events([head, tail]), expected, "{body:?} split at {split}");
            }
            assert_eq!(
                events(body.as_bytes().chunks(1)),
                expected,
                "{body:?} bytewise"
            );
        }
    };
    check("data: a\n\n", &[message("", "a", "")]);
    check(
        "\u{feff}data:a\n\ndata: ü€😀\n\n",
        &[message("", "a", ""), message("", "ü€😀", "")],
    );
    check(
        ": ping\n\nevent: x\nid: 7\ndata: a\ndata:  b\ndata\n\ndata: c\n\n",
        &[message("x", "a\n b\n", "7"), message("", "c", "7")],
    );
    check(
        "retry: 30\nretry: x\nnonsense: 1\nbare\ndata: a\n\n",
        &[format!("{:?}", SseEvent::Retry(30)), message("", "a", "")],
    );
    check("event: lost\n\ndata: a\n\n", &[message("", "a", "")]);
    // The last event may lack its blank line.
    check(
        "data: a\n\ndata: b",
        &[message("", "a", ""), message("", "b", "")],
    );
    check("data: a\ndata: b\n", &[message("", "a\nb", "")]);
    check("", &[]);
}

#[test]
fn invalid_utf8_is_replaced_per_event() {
    let body = b"data: a\xffb\n\ndata: \xe2\x82\n\n";
    let expected = [message("", "a\u{fffd}b", ""), message("", "\u{fffd}", "")];
    assert_eq!(events([&body[..]]), expected);
    assert_eq!(events(body.chunks(1)), expected);
}

#[test]
fn an_event_above_the_cap_is_dropped_as_one() {
    let mut body = b"data: a\n\ndata: ".to_vec();
    body.resize(body.len() + MAX_EVENT, b'x');
    body.extend_from_slice(b"\ndata: more\n\ndata: b\n\n");
    let expected = [
        message("", "a", ""),
        format!("{:?}", SseEvent::TooLong),
        message("", "b", ""),
    ];
    assert_eq!(events([&body[..]]), expected);
    assert_eq!(events(body.chunks(65_537)), expected);
    // Many lines that are together too long.
    let line = [&b"data: "[..], &vec![b'y'; MAX_EVENT / 4], b"\n"].concat();
    let body = [line.repeat(5), b"\ndata: b\n\n".to_vec()].concat();
    assert_eq!(events([&body[..]]), expected[1..]);
    assert_eq!(events(body.chunks(65_537)), expected[1..]);
}

/// Bodies with every feature that a split could damage.
fn bodies() -> Vec<(Wire, String)> {
    let text = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let thought = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hmm ü"}}]});
    let open =
        delta(json!([{"index": 0, "id": "c1", "function": {"name": "write", "arguments": ""}}]));
    let more =
        |index: u32, text: &str| delta(json!([{"index": index, "function": {"arguments": text}}]));
    let second =
        delta(json!([{"index": 1, "id": "c2", "function": {"name": "list", "arguments": "{}"}}]));
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let chunks = [
        thought,
        text("Wörter 😀"),
        open,
        more(0, "{\"path\":\"ä.rs\",\"n\":[1,"),
        second,
        more(0, "{\"x\":\"}\"}],\"t\":\"\\ud83d\\ude00\\n\"}"),
        text("end"),
        finish("tool_calls"),
        usage,
        json!("[DONE]"),
    ];
    let block = |index: u32, start: Value| json!({"type": "content_block_start", "index": index, "content_block": start});
    let part = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let input = |index: u32, text: &str| {
        part(
            index,
            json!({"type": "input_json_delta", "partial_json": text}),
        )
    };
    let messages = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        part(0, json!({"type": "thinking_delta", "thinking": "hmm ü"})),
        part(0, json!({"type": "signature_delta", "signature": "sig"})),
        stop(0),
        block(
            1,
            json!({"type": "tool_use", "id": "t1", "name": "write", "input": {}}),
        ),
        input(1, ""),
        input(1, "{\"path\":\"ä"),
        input(1, ".rs\",\"n\":1}"),
        stop(1),
        block(
            2,
            json!({"type": "tool_use", "id": "t2", "name": "list", "input": {}}),
        ),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let whole = json!({"choices": [{"message": {"content": "ü", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"a\":\"b\"}"}}]}, "finish_reason": "stop"}]});
    vec![
        (Wire::OpenAiResponses, crate::responses::everything()),
        (Wire::OpenAiChat, chat(&chunks)),
        (Wire::OpenAiChat, chat(&chunks).replace('\n', "\r\n")),
        (Wire::OpenAiChat, whole.to_string()),
        (Wire::Anthropic, anthropic(&messages)),
        (Wire::Anthropic, anthropic(&messages).replace('\n', "\r")),
        (Wire::Gemini, gemini::body()),
        (Wire::Gemini, gemini::list()),
        (Wire::Ollama, ollama::body()),
    ]
}

#[test]
fn no_split_changes_the_events() {
    for (wire, body) in bodies() {
        let expected = decode(wire, [body.as_bytes()], BodyEnd::Clean);
        assert_eq!(expected.0.draft.faults, []);
        for size in 1..9 {
            assert_eq!(
                decode(wire, body.as_bytes().chunks(size), BodyEnd::Clean),
                expected,
                "chunks of {size}"
            );
        }
        for split in sampled_positions(1, body.len() + 1, 3) {
            let (head, tail) = body.as_bytes().split_at(split);
            assert_eq!(
                decode(wire, [head, tail], BodyEnd::Clean),
                expected,
                "{wire} split at {split}"
            );
        }
    }
}

#[test]
fn no_cut_completes_a_call() {
    for (wire, body) in bodies() {
        let (whole, _) = decode(wire, [body.as_bytes()], BodyEnd::Clean);
        for cut in sampled_positions(2, body.len(), 3) {
            let head = &body.as_bytes()[..cut];
            for how in [BodyEnd::Clean, BodyEnd::Broken, BodyEnd::Cancelled] {
                let (part, report) = decode(wire, [head], how);
                assert!(
                    whole.draft.text().starts_with(&part.draft.text()),
                    "{wire} cut at {cut}: text"
                );
                for call in part
                    .draft
                    .calls()
                    .filter(|call| call.state == DraftState::Closed)
                {
                    let known = whole.draft.call_by_index(call.index).unwrap();
                    assert_eq!(
                        call, known,
                        "{wire} cut at {cut}: a closed call is the whole call"
                    );
                    assert!(
                        end_was_seen(wire, &body[..floor(&body, cut)], &call.name),
                        "{wire} cut at {cut}: {call:?}"
                    );
                }
                if how == BodyEnd::Cancelled && !report.ended {
                    let cut_calls = part
                        .draft
                        .calls()
                        .filter(|call| call.state != DraftState::Closed);
                    assert!(
                        cut_calls
                            .into_iter()
                            .all(|call| call.state == DraftState::Cut(Truncation::Cancelled))
                    );
                }
            }
        }
    }
}

fn floor(body: &str, mut at: usize) -> usize {
    while !body.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The text that must precede the close of each call in [`bodies`], written by hand.
fn end_was_seen(wire: Wire, head: &str, name: &str) -> bool {
    match (wire, name) {
        (Wire::OpenAiChat, _) => {
            head.contains("\"finish_reason\":\"tool_calls\"") || head.ends_with("\"stop\"}]}")
        }
        (Wire::Anthropic, "write") => {
            head.contains(r#"{"index":1,"type":"content_block_stop"}"#)
                || head.contains(r#"{"type":"content_block_stop","index":1}"#)
        }
        (Wire::Anthropic, _) => head.contains("\"stop_reason\":\"tool_use\""),
        (Wire::Gemini, name) => head.contains(&format!("\"responseId\":\"ends {name}\"}}")),
        (Wire::Ollama, name) => head.contains(&format!("\"created_at\":\"ends {name}\"}}")),
        _ => head.contains(&format!("\"name\":\"{name}\",\"status\":\"completed\"")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(case_count(50)))]

    #[test]
    fn any_bytes_in_any_chunks(bytes in proptest::collection::vec(any::<u8>(), 0..300), sizes in proptest::collection::vec(1_usize..40, 1..40)) {
        let pieces = split(&bytes, &sizes);
        prop_assert_eq!(events(pieces.iter().copied()), events([&bytes[..]]));
    }

    #[test]
    fn any_lines_in_any_chunks(lines in proptest::collection::vec("(data|event|id|retry|:|)(: ?[a-ü\\x00]{0,9})?(\n|\r|\r\n)", 0..30), sizes in proptest::collection::vec(1_usize..9, 1..40)) {
        let body = lines.concat();
        prop_assert_eq!(events(split(body.as_bytes(), &sizes)), events([body.as_bytes()]));
    }

    #[test]
    fn any_body_in_any_chunks(choice in any::<prop::sample::Index>(), sizes in proptest::collection::vec(1_usize..90, 1..60), noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let mut known = bodies();
        let (wire, body) = known.swap_remove(choice.index(known.len()));
        let mut body = body.into_bytes();
        for (at, byte) in noise {
            let at = at.index(body.len());
            body[at] = byte;
        }
        prop_assert_eq!(decode(wire, split(&body, &sizes), BodyEnd::Clean), decode(wire, [&body[..]], BodyEnd::Clean));
    }

    #[test]
    fn any_events_keep_the_contract(events in proptest::collection::vec(random_event(), 0..12), sizes in proptest::collection::vec(1_usize..90, 1..9)) {
        for (wire, body) in [
            (Wire::OpenAiChat, chat(&events.iter().map(|event| event.0.clone()).collect::<Vec<_>>())),
            (Wire::Anthropic, anthropic(&events.iter().map(|event| event.1.clone()).collect::<Vec<_>>())),
            (Wire::OpenAiResponses, anthropic(&events.iter().map(|event| event.2.clone()).collect::<Vec<_>>())),
        ] {
            for how in [BodyEnd::Clean, BodyEnd::Broken] {
                // `decode` checks the contract: one start and one end per call, nothing outside of
                // it.
                let expected = decode(wire, [body.as_bytes()], how);
                prop_assert_eq!(&decode(wire, split(body.as_bytes(), &sizes), how), &expected);
                for call in expected.0.draft.calls().filter(|call| call.state == DraftState::Closed) {
                    let whole = call.arguments.iter().all(|argument| !argument.partial);
                    let faulty = expected.0.draft.errors_of(call.index).next().is_some();
                    prop_assert!(whole || faulty, "an unfinished call was closed: {:?}", call);
                }
            }
        }
    }

    #[test]
    fn encoded_events_decode_to_themselves(name in "[a-z]{0,5}", data in "[a-ü\n :]{0,40}") {
        let mut bytes = Vec::new();
        sse::encode_event(&name, &data, &mut bytes);
        prop_assert_eq!(events([&bytes[..]]), vec![message(&name, &data, "")]);
    }
}

/// Generates an event of each wire with few labels, ids, names and pieces, so that they collide
/// often.
fn random_event() -> impl Strategy<Value = (Value, Value, Value)> {
    let label = prop_oneof![Just(Value::Null), Just(json!(0)), Just(json!(1))];
    let id = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("a")),
        Just(json!("b"))
    ];
    let name = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("f")),
        Just(json!("g"))
    ];
    const PIECES: [&str; 11] = [
        "",
        "{",
        "}",
        "{}",
        "{\"x\":",
        "\"y",
        "\"",
        "1",
        ",",
        "null",
        "{\"x\":\"y\"}",
    ];
    (label, id, name, proptest::sample::select(&PIECES[..]), 0_usize..9).prop_map(|(label, id, name, piece, kind)| {
        let call = json!([{"index": label, "id": id, "function": {"name": name, "arguments": piece}}]);
        let chunk = match kind {
            0 => finish(if piece.is_empty() { "length" } else { "tool_calls" }),
            1 => json!({"choices": [{"delta": {"content": piece}}]}),
            2 if piece.is_empty() => json!("[DONE]"),
            3 if piece.is_empty() => json!({"error": {"message": "no"}}),
            4 if piece.is_empty() => json!("{oops"),
            5 => json!({"choices": [{"message": {"tool_calls": call}}]}),
            _ => delta(call),
        };
        let kinds = ["text", "tool_use", "tool_use", "thinking", "server_tool_use"];
        let block = json!({"type": kinds[piece.len() % 5], "id": id, "name": name, "input": {}});
        let part = json!({"text": piece, "partial_json": piece, "signature": piece});
        let event = match kind {
            0..3 => json!({"type": "content_block_start", "index": label, "content_block": block}),
            3..6 => json!({"type": "content_block_delta", "index": label, "delta": part}),
            6 => json!({"type": "content_block_stop", "index": label}),
            7 if piece.is_empty() => json!({"type": "error", "error": {"message": "no"}}),
            7 => json!({"type": "message_delta", "delta": {"stop_reason": if piece.len() > 1 { "max_tokens" } else { "tool_use" }}}),
            _ if piece.is_empty() => json!({"type": "message_stop"}),
            _ => json!({"type": "ping"}),
        };
        let item = wild_item(&id, &name, piece, kind);
        (chunk, event, crate::responses::wild(kind, piece, &label, item))
    })
}

/// Generates an item of OpenAI Responses whose ids and call ids swap places.
fn wild_item(id: &Value, name: &Value, piece: &str, kind: usize) -> Value {
    let kinds = [
        "message",
        "function_call",
        "function_call",
        "reasoning",
        "custom_tool_call",
        "web_search_call",
    ];
    let status = ["completed", "incomplete"][usize::from(piece == "{")];
    let content = if piece == "1" {
        json!([{"type": "output_text", "text": piece}])
    } else {
        Value::Null
    };
    json!({"type": kinds[(piece.len() + kind) % 6], "id": if kind == 4 { name } else { id }, "call_id": id, "name": name,
        "arguments": piece, "input": piece, "status": status, "content": content, "encrypted_content": piece})
}

pub(crate) fn split<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (head, tail) = bytes.split_at((*size).min(bytes.len()));
        pieces.push(head);
        bytes = tail;
    }
    pieces
}
