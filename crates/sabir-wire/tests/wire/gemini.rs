//! Gemini streams, each tested with hand-written bodies.

mod details;
pub(crate) mod requests;

use proptest::prelude::*;
use sabir_call::{
    ArgumentEncoding, Call, CallId, DraftCall, DraftPart, DraftResponse, DraftState, Event,
    FaultKind, Message, MessagePart, ModelErrorKind, OpaqueState, Request, Role, StopReason,
    Truncation, Usage,
};
use sabir_wire::{
    BodyEnd, BodyForm, ResponseDecoder, ResponseEncoder, ResponseMetadata, Wire, WireOptions,
    replay_draft,
};
use serde_json::{Map, Value, json};

use crate::merged::{decode, decode_all, runnable};
use crate::splits::split;

const WIRE: Wire = Wire::Gemini;

/// Encodes chunks as a stream with the API's line ends.
fn stream(chunks: &[Value]) -> String {
    chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\r\n\r\n"))
        .collect()
}

/// Builds a chunk with these parts.
fn chunk(parts: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}]})
}

fn finish(word: &str) -> Value {
    json!({"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": word, "index": 0}]})
}

/// Builds a chunk whose last bytes name the call that ends with it.
fn ends(parts: Value, name: &str) -> Value {
    let mut chunk = chunk(parts);
    chunk["responseId"] = json!(format!("ends {name}"));
    chunk
}

fn chunks() -> Vec<Value> {
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    let mut signed = call(
        "write",
        json!({"path": "ä.rs", "n": [1, {"x": "}\"]"}], "t": "😀\n"}),
    );
    signed["thoughtSignature"] = json!("c2ln");
    let piece = |path: &str, text: &str| json!({"jsonPath": path, "stringValue": text, "willContinue": true});
    vec![
        chunk(json!([{"text": "hmm ü", "thought": true}])),
        chunk(json!([{"text": "Wörter 😀"}, {"text": " signed", "thoughtSignature": "dGV4dA"}])),
        ends(json!([signed]), "write"),
        chunk(
            json!([{"functionCall": {"name": "edit", "willContinue": true}, "thoughtSignature": "ZWRpdA"}]),
        ),
        chunk(
            json!([{"functionCall": {"partialArgs": [piece("$.path", "ö")], "willContinue": true}}]),
        ),
        chunk(
            json!([{"functionCall": {"partialArgs": [piece("$.path", ".rs"), {"jsonPath": "$.n[0]", "numberValue": 1}], "willContinue": true}}]),
        ),
        ends(json!([{"functionCall": {}}]), "edit"),
        chunk(json!([{"executableCode": {"code": "1"}}, {"text": "end"}])),
        ends(json!([call("list", json!({}))]), "list"),
        finish("STOP"),
        json!({"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}}),
    ]
}

/// A stream with every feature that a split could damage.
pub(crate) fn body() -> String {
    stream(&chunks())
}

/// The same objects as a list, which the API sends without `alt=sse`.
pub(crate) fn list() -> String {
    let chunks: Vec<_> = chunks().iter().map(Value::to_string).collect();
    format!("[{}]\n", chunks.join("\n,\r\n"))
}

/// Returns the parts that a history takes from a draft.
fn parts(draft: &DraftResponse) -> Vec<MessagePart> {
    let calls = runnable(draft);
    let mut calls = calls.iter();
    let mut parts: Vec<MessagePart> = Vec::new();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => parts.push(MessagePart::text(text.as_str())),
            DraftPart::Thought(text) => parts.push(MessagePart::Thought {
                text: text.clone(),
                opaque: None,
            }),
            // As the task does it: state after a thought belongs to the thought.
            DraftPart::Opaque(state) => match parts.last_mut() {
                Some(MessagePart::Thought {
                    opaque: slot @ None,
                    ..
                }) => *slot = Some(state.clone()),
                _ => parts.push(MessagePart::Opaque(state.clone())),
            },
            DraftPart::Call(call) => {
                let (name, arguments) = calls.next().unwrap();
                let id = CallId::new(
                    call.id
                        .clone()
                        .unwrap_or_else(|| format!("c{}", call.index)),
                );
                let arguments = arguments.as_object().unwrap().clone();
                parts.push(MessagePart::Call(Call {
                    id,
                    name: name.clone(),
                    arguments,
                    dialect: None,
                }));
            }
        }
    }
    parts
}

/// Returns the parts that a request sends for a response with these parts.
fn sent(parts: Vec<MessagePart>, model: &str) -> Value {
    let messages = vec![Message {
        role: Role::Assistant,
        parts,
    }];
    let request = Request {
        model: model.into(),
        messages: messages.into(),
        ..Request::default()
    };
    WIRE.encode_request(&request, &WireOptions::default())["contents"][0]["parts"].clone()
}

fn opaque(data: Value) -> DraftPart {
    DraftPart::Opaque(OpaqueState {
        wire: WIRE.name().into(),
        origin: None,
        data,
    })
}

#[test]
fn calls_come_whole_with_ids_or_without() {
    let check = |chunks: &[Value], expected: Value| {
        let mut chunks = chunks.to_vec();
        chunks.push(finish("STOP"));
        let (merged, report) = decode_all(WIRE, &stream(&chunks));
        assert_eq!(json!(runnable(&merged.draft)), expected);
        assert_eq!(
            merged.draft.stop,
            Some((StopReason::Calls, "STOP".into())),
            "a stop with calls waits for results"
        );
        assert!(report.ended && report.skipped == 0, "{report:?}");
    };
    let add = |id: Value| json!({"functionCall": {"name": "add", "args": {"a": 2}, "id": id}});
    let two = json!([["add", {"a": 2}], ["add", {"a": 2}]]);
    // Several in one chunk (recordings 75 and 88), or one in each (recordings 70 and 80).
    check(
        &[chunk(json!([add(Value::Null), add(Value::Null)]))],
        two.clone(),
    );
    check(
        &[
            chunk(json!([add("8hd01vsf".into())])),
            chunk(json!([add("k0srpqrc".into())])),
        ],
        two.clone(),
    );
    // A repeated id still means another call: this API never repeats a call.
    check(
        &[
            chunk(json!([add("x".into())])),
            chunk(json!([add("x".into())])),
        ],
        two,
    );
    // No arguments: an empty object (recording 271), null, or nothing at all.
    for args in [json!({"args": {}}), json!({"args": null}), json!({})] {
        let mut call = json!({"name": "f"});
        call.as_object_mut()
            .unwrap()
            .extend(args.as_object().unwrap().clone());
        check(
            &[chunk(json!([{"functionCall": call}]))],
            json!([["f", {}]]),
        );
    }
}

#[test]
fn signatures_follow_their_part_and_return_into_it() {
    let check = |chunks: &[Value], expected: Value| {
        let (merged, _) = decode_all(WIRE, &stream(chunks));
        assert_eq!(
            sent(parts(&merged.draft), "gemini-3-pro"),
            expected,
            "{:#?}",
            merged.draft.parts
        );
    };
    let call = |id: &str| json!({"functionCall": {"id": id, "name": "f", "args": {"a": 1}}});
    let signed = |mut part: Value, signature: &str| {
        part["thoughtSignature"] = json!(signature);
        part
    };
    // On the first of two calls (recordings 70 and 75), behind a thought (recording 146).
    check(
        &[
            chunk(json!([{"text": "hm", "thought": true}])),
            chunk(json!([signed(call("x"), "s"), call("y")])),
        ],
        json!([signed(call("x"), "s"), call("y")]),
    );
    // On each of two.
    let both = json!([signed(call("x"), "1"), signed(call("y"), "2")]);
    check(&[chunk(both.clone())], both);
    // On an empty text at the end (recordings 69 and 101).
    let empty = signed(json!({"text": ""}), "s");
    check(
        &[
            chunk(json!([{"text": "a"}])),
            chunk(json!([{"text": "b"}])),
            chunk(json!([empty])),
        ],
        json!([{"text": "ab"}, empty]),
    );
    // On the first piece of a text (recording 76), and on a later one: never on more than it came
    // with.
    let first = signed(json!({"text": "one ü"}), "s");
    check(
        &[chunk(json!([first])), chunk(json!([{"text": " two"}]))],
        json!([first, {"text": " two"}]),
    );
    check(
        &[
            chunk(json!([{"text": "zero "}])),
            chunk(json!([first])),
            chunk(json!([{"text": " two"}])),
        ],
        json!([{"text": "zero "}, first, {"text": " two"}]),
    );
    // On a thought.
    let thought = signed(json!({"text": "hm", "thought": true}), "s");
    check(
        &[chunk(
            json!([{"text": "a", "thought": true}, thought, {"text": "b"}]),
        )],
        json!([{"text": "a", "thought": true}, thought, {"text": "b"}]),
    );
    // On a server tool's work (recordings 273 and 274), which goes back unchanged.
    let done = json!([
        signed(json!({"executableCode": {"language": "PYTHON", "code": "1", "id": "a"}}), "s"),
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "a"}},
        signed(json!({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "d"}}), "t"),
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        {"text": "so"},
    ]);
    check(&[chunk(done.clone())], done);
}

#[test]
fn lost_text_takes_no_other_signature() {
    let state = |data: Value| {
        MessagePart::Opaque(OpaqueState {
            wire: WIRE.name().into(),
            origin: None,
            data,
        })
    };
    let signs = |what: &str, bytes: u64| {
        state(json!({"signs": what, "bytes": bytes, "thoughtSignature": "s"}))
    };
    let check = |parts: Vec<MessagePart>, expected: Value| {
        assert_eq!(sent(parts, "gemini-2.5-pro"), expected)
    };
    // A text that is shorter than it was, missing, or of another kind.
    check(
        vec![MessagePart::text("ab"), signs("text", 9)],
        json!([{"text": "ab", "thoughtSignature": "s"}]),
    );
    check(
        vec![MessagePart::text("aü"), signs("text", 1)],
        json!([{"text": "a"}, {"text": "ü", "thoughtSignature": "s"}]),
    );
    check(
        vec![signs("text", 2)],
        json!([{"text": "", "thoughtSignature": "s"}]),
    );
    let thought = json!({"text": "", "thought": true, "thoughtSignature": "s"});
    check(
        vec![MessagePart::text("ab"), signs("thought", 2)],
        json!([{"text": "ab"}, thought]),
    );
    // A call's signature without its call.
    check(
        vec![
            MessagePart::text("ab"),
            state(json!({"signs": "call", "thoughtSignature": "s"})),
        ],
        json!([{"text": "ab"}]),
    );
}

#[test]
fn arguments_may_come_in_pieces() {
    let (merged, report) = decode_all(WIRE, &body());
    assert_eq!(
        json!(runnable(&merged.draft)[1]),
        json!(["edit", {"path": "ö.rs", "n": [1]}])
    );
    let call = merged.draft.calls().nth(1).unwrap();
    let forms: Vec<_> = call
        .arguments
        .iter()
        .map(|argument| argument.form)
        .collect();
    assert_eq!(
        (forms, report.skipped),
        (vec![ArgumentEncoding::String, ArgumentEncoding::Json], 0)
    );
    let position = merged
        .draft
        .parts
        .iter()
        .position(|part| matches!(part, DraftPart::Call(call) if call.index == 1));
    let expected = opaque(json!({"signs": "call", "thoughtSignature": "ZWRpdA"}));
    assert_eq!(merged.draft.parts[position.unwrap() + 1], expected);
    // In one chunk, without a part that only ends the call.
    let piece = json!({"jsonPath": "$.a", "boolValue": true});
    let call = json!({"functionCall": {"name": "f", "partialArgs": [piece]}});
    let (merged, _) = decode_all(WIRE, &stream(&[chunk(json!([call])), finish("STOP")]));
    assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": true}]]));
}

#[test]
fn a_call_in_pieces_is_cut_where_its_end_is_missing() {
    let open = |name: &str| json!([{"functionCall": {"name": name, "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": true}}]);
    let check = |chunks: &[Value], expected: &[DraftState]| {
        let (merged, _) = decode_all(WIRE, &stream(chunks));
        let states: Vec<_> = merged.draft.calls().map(|call| call.state).collect();
        assert_eq!(states, expected, "{chunks:?}");
    };
    check(&[chunk(open("f"))], &[DraftState::Cut(Truncation::Broken)]);
    check(
        &[chunk(open("f")), finish("MAX_TOKENS")],
        &[DraftState::Cut(Truncation::Limit)],
    );
    check(
        &[chunk(open("f")), finish("STOP")],
        &[DraftState::Cut(Truncation::Ended)],
    );
    // Another call begins instead.
    let next = chunk(json!([{"functionCall": {"name": "g", "args": {}}}]));
    check(
        &[chunk(open("f")), next, finish("STOP")],
        &[DraftState::Cut(Truncation::Broken), DraftState::Closed],
    );
    // A piece that arrives too late.
    let piece = |path: &str| json!({"jsonPath": path, "numberValue": 1});
    let late = json!([{"functionCall": {"name": "f", "partialArgs": [piece("$.a.b"), piece("$.c"), piece("$.a.d")]}}]);
    check(
        &[chunk(late), finish("STOP")],
        &[DraftState::Cut(Truncation::Broken)],
    );
}

#[test]
fn every_finish_reason_maps_to_a_stop_reason() {
    let check = |chunk: Value, reason: StopReason, word: &str, faults: usize| {
        let (merged, report) = decode_all(WIRE, &stream(&[chunk]));
        assert_eq!(merged.draft.stop, Some((reason, word.to_owned())));
        assert_eq!(
            (merged.draft.faults.len(), report.ended, report.error),
            (faults, true, None),
            "{word}"
        );
    };
    for (word, reason) in [
        ("STOP", StopReason::End),
        ("MAX_TOKENS", StopReason::Length),
        ("SAFETY", StopReason::Refused),
        ("RECITATION", StopReason::Refused),
        ("PROHIBITED_CONTENT", StopReason::Refused),
        ("UNEXPECTED_TOOL_CALL", StopReason::Other),
        ("A_NEW_ONE", StopReason::Other),
    ] {
        check(finish(word), reason, word, 0);
    }
    let malformed = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: f(", "index": 0}]});
    let (merged, _) = decode_all(WIRE, &stream(&[malformed.clone()]));
    assert_eq!(merged.draft.faults[0].kind, FaultKind::MalformedJson);
    assert!(
        merged.draft.faults[0]
            .message
            .ends_with("Malformed function call: f(")
    );
    check(malformed, StopReason::Other, "MALFORMED_FUNCTION_CALL", 1);
    // A blocked prompt has no candidate at all.
    check(
        json!({"promptFeedback": {"blockReason": "SAFETY"}}),
        StopReason::Refused,
        "SAFETY",
        0,
    );
}

#[test]
fn errors_during_a_stream_cut_open_calls() {
    let open = json!([{"functionCall": {"name": "f", "willContinue": true}}]);
    let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    for body in [
        stream(&[chunk(open.clone()), error.clone()]),
        json!([chunk(open), error]).to_string(),
    ] {
        let (merged, report) = decode_all(WIRE, &body);
        let error = report.error.unwrap();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ModelErrorKind::Unavailable, "The model is overloaded.")
        );
        assert_eq!(
            merged.draft.calls().next().unwrap().state,
            DraftState::Cut(Truncation::Broken)
        );
    }
}

#[test]
fn usage_counts_thoughts_and_server_tools() {
    // The sum of recording 274: 147 + 360 in, 108 + 168 out, 783 in all.
    let usage = json!({
        "promptTokenCount": 147, "candidatesTokenCount": 108, "totalTokenCount": 783, "toolUsePromptTokenCount": 360,
        "thoughtsTokenCount": 168, "cachedContentTokenCount": 40,
    });
    let mut last = finish("STOP");
    last["usageMetadata"] = usage;
    let (merged, _) = decode_all(WIRE, &stream(&[last]));
    let expected = Usage {
        input: Some(507),
        output: Some(276),
        cache_read: Some(40),
        cache_write: None,
        reasoning: Some(168),
    };
    assert_eq!(merged.draft.usage, expected);
}

#[test]
fn unknown_things_are_skipped_and_counted() {
    let other = json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "two"}]}}]});
    let chunks = [
        chunk(json!([{"text": "one"}, 7, {}, {"text": null}])),
        other,
        json!({"future": 1}),
        chunk(json!({"text": "no list"})),
        chunk(json!([{"functionCall": {}}])),
        finish("STOP"),
    ];
    let (merged, report) = decode_all(WIRE, &stream(&chunks));
    assert_eq!(
        (merged.draft.text().as_str(), report.skipped, report.ended),
        ("one", 4, true)
    );
    assert_eq!(merged.draft.parts.len(), 1);
}

#[test]
fn a_list_is_read_while_it_comes() {
    let list = list();
    let half = list.find("Wörter").unwrap() + 200;
    let mut decoder = ResponseDecoder::new(WIRE);
    let mut draft = DraftResponse::default();
    decoder.push(&list.as_bytes()[..half], &mut draft);
    assert!(
        decoder.event_count() >= 2 && draft.text() == "Wörter 😀 signed",
        "{}",
        draft.text()
    );
    decoder.push(&list.as_bytes()[half..], &mut draft);
    assert!(decoder.is_ended());
    let report = decoder.finish(BodyEnd::Clean, &mut draft);
    let (streamed, whole) = decode_all(WIRE, &body());
    assert_eq!(draft, streamed.draft);
    assert_eq!(
        (report.form, report.events),
        (BodyForm::Whole, whole.events)
    );
}

#[test]
fn a_signed_call_survives_both_directions() {
    let (merged, _) = decode_all(WIRE, &body());
    // Text is never held for its signature, which follows it, as in the API's own streams.
    let expected = merged.draft.parts.iter().cloned().map(|part| match part {
        DraftPart::Opaque(OpaqueState { data, .. }) if data["signs"] == "text" => {
            opaque(json!({"text": "", "thoughtSignature": data["thoughtSignature"]}))
        }
        part => part,
    });
    let expected: Vec<_> = expected.collect();
    let whole = WIRE
        .encode_response(&ResponseMetadata::default(), &merged.draft)
        .to_string();
    assert_eq!(
        without_ids(&decode_all(WIRE, &whole).0.draft.parts),
        without_ids(&merged.draft.parts)
    );
    for size in [0, 3] {
        let mut encoder = ResponseEncoder::new(WIRE, ResponseMetadata::default());
        let mut bytes = Vec::new();
        replay_draft(&merged.draft, size, &mut |event: Event<'_>| {
            encoder.encode_event(event, &mut bytes)
        });
        encoder.finish(&mut bytes);
        let (again, _) = decode(WIRE, [&bytes[..]], BodyEnd::Clean);
        assert_eq!(without_ids(&again.draft.parts), without_ids(&expected));
    }
}

/// Removes ids and positions, which may differ.
fn without_ids(parts: &[DraftPart]) -> Vec<String> {
    let values = |call: &DraftCall| -> Vec<_> {
        call.arguments
            .iter()
            .map(|argument| format!("{}={}", argument.name, argument.text))
            .collect()
    };
    let show = |part: &DraftPart| match part {
        DraftPart::Call(call) => format!("{} {:?}", call.name, values(call)),
        other => format!("{other:?}"),
    };
    parts.iter().map(show).collect()
}

/// Generates a part with few names, ids and pieces, so that they collide often.
fn random_part() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("f")),
        Just(json!("g"))
    ];
    let path = proptest::sample::select(&["$.a", "$.a.b", "$.a[0]", "$.c", "$", "x"][..]);
    let value = prop_oneof![
        Just(json!({"stringValue": "\"}"})),
        Just(json!({"numberValue": 1.5})),
        Just(json!({"nullValue": "NULL_VALUE"})),
        Just(json!({})),
    ];
    let more = any::<bool>();
    let args = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({"a": "}"})),
        Just(json!("text")),
        Just(json!([1]))
    ];
    (name, path, value, more, args, 0_usize..7).prop_map(
        |(name, path, mut value, more, args, kind)| {
            value["jsonPath"] = json!(path);
            let mut call = Map::from_iter([("name".to_owned(), name)]);
            if kind > 3 {
                call.insert("partialArgs".to_owned(), json!([value]));
            }
            if kind == 3 {
                call.insert("args".to_owned(), args);
            }
            call.insert("willContinue".to_owned(), json!(more));
            match kind {
                0 => json!({"text": "a", "thought": more, "thoughtSignature": "s"}),
                1 => json!({"thoughtSignature": "s"}),
                _ => json!({"functionCall": call, "thoughtSignature": if more { "s" } else { "" }}),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_parts_keep_the_contract(parts in proptest::collection::vec(random_part(), 0..9), word in proptest::sample::select(&["STOP", "MAX_TOKENS", ""][..]), at in 0_usize..9, sizes in proptest::collection::vec(1_usize..90, 1..9)) {
        let mut chunks: Vec<_> = parts.iter().map(|part| chunk(json!([part]))).collect();
        chunks.insert(at.min(chunks.len()), finish(word));
        for body in [stream(&chunks), json!(chunks).to_string()] {
            for how in [BodyEnd::Clean, BodyEnd::Broken] {
                // `decode` checks the contract: one start and one end per call, nothing outside of
                // it.
                let expected = decode(WIRE, [body.as_bytes()], how);
                prop_assert_eq!(&decode(WIRE, split(body.as_bytes(), &sizes), how), &expected);
                for call in expected.0.draft.calls().filter(|call| call.state == DraftState::Closed) {
                    let whole = call.arguments.iter().all(|argument| !argument.partial);
                    let faulty = expected.0.draft.errors_of(call.index).next().is_some();
                    prop_assert!(whole || faulty, "an unfinished call was closed: {:?}", call);
                }
            }
        }
    }
}
