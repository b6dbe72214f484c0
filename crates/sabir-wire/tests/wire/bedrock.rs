//! Rules of the Bedrock wire, each tested with hand-written bodies.

use sabir_call::{
    DraftPart, DraftResponse, DraftState, FaultKind, Message, MessagePart, ModelErrorKind,
    OpaqueState, ParallelCalls, ReasoningConfig, ReasoningEffort, Request, Role, SamplingParams,
    StopReason, ToolChoice, ToolSet, ToolSpec, Truncation, Usage,
};
use sabir_wire::frames::{HeaderValue, encode_frame};
use sabir_wire::{BodyEnd, BodyForm, DecodeReport, Wire, WireOptions};
use serde_json::{Value, json};

use crate::merged::{Merged, decode, runnable};

/// Encodes events, given by name and payload, as a binary stream.
fn stream(events: &[(&str, Value)]) -> Vec<u8> {
    events
        .iter()
        .flat_map(|(kind, body)| frame(":event-type", kind, "event", &body.to_string()))
        .collect()
}

fn frame(key: &str, kind: &str, message: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (key, HeaderValue::Text(kind)),
        (":content-type", HeaderValue::Text("application/json")),
        (":message-type", HeaderValue::Text(message)),
    ];
    let mut bytes = Vec::new();
    encode_frame(&headers, payload.as_bytes(), &mut bytes).unwrap();
    bytes
}

fn start(index: u32, id: &str, name: &str) -> (&'static str, Value) {
    let start = json!({"toolUse": {"toolUseId": id, "name": name}});
    (
        "contentBlockStart",
        json!({"contentBlockIndex": index, "start": start, "p": "abcdef"}),
    )
}

fn delta(index: u32, delta: Value) -> (&'static str, Value) {
    (
        "contentBlockDelta",
        json!({"contentBlockIndex": index, "delta": delta, "p": "abc"}),
    )
}

fn input(index: u32, text: &str) -> (&'static str, Value) {
    delta(index, json!({"toolUse": {"input": text}}))
}

fn stop(index: u32) -> (&'static str, Value) {
    ("contentBlockStop", json!({"contentBlockIndex": index}))
}

fn end(reason: &str) -> (&'static str, Value) {
    ("messageStop", json!({"stopReason": reason}))
}

/// Checks that every split gives the same events.
fn check(body: &[u8]) -> (Merged, DecodeReport) {
    let whole = decode(Wire::Bedrock, [body], BodyEnd::Clean);
    for split in 0..=body.len() {
        let (head, tail) = body.split_at(split);
        assert_eq!(
            decode(Wire::Bedrock, [head, tail], BodyEnd::Clean),
            whole,
            "split at {split}"
        );
    }
    assert_eq!(decode(Wire::Bedrock, body.chunks(1), BodyEnd::Clean), whole);
    whole
}

fn states(draft: &DraftResponse) -> Vec<DraftState> {
    draft.calls().map(|call| call.state).collect()
}

#[test]
fn a_stream_of_every_event() {
    // As recordings 365 (empty text, reasoning without a start), 367 (a signature), 372 (a call).
    let body = stream(&[
        ("messageStart", json!({"role": "assistant", "p": "ab"})),
        delta(0, json!({"text": ""})),
        stop(0),
        delta(1, json!({"reasoningContent": {"text": "hm "}})),
        delta(1, json!({"reasoningContent": {"text": "ü"}})),
        delta(1, json!({"reasoningContent": {"signature": "si"}})),
        delta(1, json!({"reasoningContent": {"signature": "g"}})),
        stop(1),
        delta(2, json!({"text": "Now "})),
        delta(2, json!({"text": "😀"})),
        stop(2),
        start(3, "t1", "write"),
        input(3, ""),
        input(3, "{\"path\":"),
        input(3, "\"ä\"}"),
        stop(3),
        start(4, "t2", "list"),
        stop(4),
        end("tool_use"),
        (
            "metadata",
            json!({"usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 22, "cacheReadInputTokens": 9,
            "cacheWriteInputTokens": 1}, "metrics": {"latencyMs": 3}}),
        ),
    ]);
    let (merged, report) = check(&body);
    assert_eq!(
        (report.form, report.ended, report.skipped, report.unreadable),
        (BodyForm::Frames, true, 0, 0)
    );
    let draft = &merged.draft;
    assert_eq!(
        json!(runnable(draft)),
        json!([["write", {"path": "ä"}], ["list", {}]])
    );
    assert_eq!(
        (draft.text().as_str(), &draft.faults[..]),
        ("Now 😀", &[][..])
    );
    let [
        DraftPart::Thought(thought),
        DraftPart::Opaque(signature),
        ..,
    ] = &draft.parts[..]
    else {
        panic!("{draft:?}")
    };
    assert_eq!(thought, "hm ü");
    assert_eq!(
        signature.data,
        json!({"reasoningContent": {"reasoningText": {"signature": "sig"}}})
    );
    // Cached input is not part of the provider's input count.
    let usage = Usage {
        input: Some(15),
        output: Some(7),
        cache_read: Some(9),
        cache_write: Some(1),
        reasoning: None,
    };
    assert_eq!(
        (draft.usage, draft.stop.clone()),
        (usage, Some((StopReason::Calls, "tool_use".into())))
    );
}

#[test]
fn redacted_reasoning_goes_back_as_it_came() {
    // As recording 369; in pieces, each with its own padding, as the SDKs join them.
    let body = stream(&[
        delta(0, json!({"reasoningContent": {"redactedContent": "aGk="}})),
        delta(0, json!({"reasoningContent": {"redactedContent": "aG8="}})),
        stop(0),
        delta(
            1,
            json!({"reasoningContent": {"redactedContent": "no base64!"}}),
        ),
        stop(1),
        end("end_turn"),
    ]);
    let (merged, _) = check(&body);
    let [DraftPart::Opaque(hidden)] = &merged.draft.parts[..] else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(
        hidden.data,
        json!({"reasoningContent": {"redactedContent": "aGlobw=="}})
    );
    assert_eq!(merged.draft.faults.len(), 1);
    let message = Message {
        role: sabir_call::Role::Assistant,
        parts: vec![MessagePart::Opaque(hidden.clone())],
    };
    let request = Request {
        messages: vec![message].into(),
        ..Request::default()
    };
    assert_eq!(
        Wire::Bedrock.encode_request(&request, &WireOptions::default())["messages"][0]["content"]
            [0],
        hidden.data
    );
}

#[test]
fn tools_of_the_server_are_not_called() {
    // As recording 371: a call of a server tool, its result, and a client call.
    let server =
        json!({"toolUse": {"toolUseId": "s", "name": "interpreter", "type": "server_tool_use"}});
    let result = json!({"toolResult": {"toolUseId": "s", "status": "success", "type": "interpreter_result"}});
    let body = stream(&[
        (
            "contentBlockStart",
            json!({"contentBlockIndex": 0, "start": server}),
        ),
        input(0, "{\"snippet\":"),
        input(0, "\"1\"}"),
        stop(0),
        (
            "contentBlockStart",
            json!({"contentBlockIndex": 1, "start": result}),
        ),
        delta(1, json!({"toolResult": [{"json": {"out": "1"}}]})),
        stop(1),
        start(2, "t", "f"),
        input(2, "{}"),
        stop(2),
        end("tool_use"),
    ]);
    let (merged, report) = check(&body);
    assert_eq!(
        (json!(runnable(&merged.draft)), report.skipped),
        (json!([["f", {}]]), 0)
    );
    let [
        DraftPart::Opaque(call),
        DraftPart::Opaque(result),
        DraftPart::Call(_),
    ] = &merged.draft.parts[..]
    else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(call.data["toolUse"]["input"], json!({"snippet": "1"}));
    assert_eq!(
        result.data["toolResult"]["content"],
        json!([{"json": {"out": "1"}}])
    );
    // Both are encoded as they came, and decoded from a client's history to the same kinds.
    let mut bytes = Vec::new();
    let mut encoder =
        sabir_wire::ResponseEncoder::new(Wire::Bedrock, sabir_wire::ResponseMetadata::default());
    sabir_wire::replay_draft(&merged.draft, 0, &mut |event: sabir_call::Event<'_>| {
        encoder.encode_event(event, &mut bytes)
    });
    encoder.finish(&mut bytes);
    assert_eq!(
        decode(Wire::Bedrock, [&bytes[..]], BodyEnd::Clean)
            .0
            .draft
            .parts,
        merged.draft.parts
    );
    let history = json!({"messages": [{"role": "assistant", "content": [call.data, result.data]}]});
    let back = Wire::Bedrock
        .decode_request("", history.to_string().as_bytes())
        .unwrap()
        .request;
    assert_eq!(
        back.messages[0].parts,
        [
            MessagePart::Opaque(call.clone()),
            MessagePart::Opaque(result.clone())
        ]
    );
}

#[test]
fn events_of_anthropic_come_in_base64() {
    // As recordings 108 to 116 and 165.
    let chunk = |event: &str| {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.encode(event);
        ("chunk", json!({"bytes": bytes, "p": "abcd"}))
    };
    let mut events = vec![
        chunk(r#"{"type":"message_start","message":{"usage":{"input_tokens":5}}}"#),
        chunk(
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        ),
        chunk(
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
        ),
        chunk(r#"{"type":"content_block_stop","index":0}"#),
        chunk(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#),
        chunk(r#"{"type":"message_stop"}"#),
    ];
    let (merged, report) = check(&stream(&events));
    assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": 1}]]));
    assert!(
        report.ended && report.skipped == 0 && report.events == 6,
        "{report:?}"
    );
    // Invalid base64 is an unreadable event, and a call that lacks it is truncated.
    events[2].1 = json!({"bytes": "?"});
    let (merged, report) = check(&stream(&events));
    assert_eq!(
        (states(&merged.draft), report.unreadable),
        (vec![DraftState::Cut(Truncation::Broken)], 1)
    );
    // Events of the one kind do not count in a stream of the other.
    let (_, report) = check(&stream(&[
        events[0].clone(),
        delta(0, json!({"text": "x"})),
    ]));
    assert_eq!((report.events, report.skipped), (2, 1));
    let (_, report) = check(&stream(&[
        delta(0, json!({"text": "x"})),
        events[0].clone(),
    ]));
    assert_eq!((report.events, report.skipped), (2, 1));
}

#[test]
fn errors_come_as_exceptions() {
    let open = [stream(&[start(0, "t", "f"), input(0, "{}")])].concat();
    let rows = [
        (
            frame(
                ":exception-type",
                "throttlingException",
                "exception",
                r#"{"message":"slow"}"#,
            ),
            ModelErrorKind::RateLimited,
            "slow",
        ),
        (
            frame(
                ":exception-type",
                "serviceUnavailableException",
                "exception",
                "{}",
            ),
            ModelErrorKind::Unavailable,
            "{}",
        ),
        (
            frame(
                ":exception-type",
                "validationException",
                "exception",
                r#"{"message":"Input is too long for requested model."}"#,
            ),
            ModelErrorKind::TooLong,
            "Input is too long for requested model.",
        ),
        (
            frame(":error-code", "InternalError", "error", "oops"),
            ModelErrorKind::Unavailable,
            "oops",
        ),
    ];
    for (bytes, kind, words) in rows {
        let (merged, report) =
            check(&[&open[..], &bytes, &stream(&[stop(0), end("tool_use")])].concat());
        let error = report.error.unwrap();
        assert_eq!((error.kind, error.message.as_str()), (kind, words));
        assert_eq!(states(&merged.draft), [DraftState::Cut(Truncation::Broken)]);
    }
    // Whole bodies; an unknown operation also answers with status 200.
    for (body, kind) in [
        (
            r#"{"message":"The security token is expired","__type":"ExpiredTokenException"}"#,
            ModelErrorKind::Unavailable,
        ),
        (
            r#"{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}"#,
            ModelErrorKind::Rejected,
        ),
    ] {
        let (_, report) = decode(Wire::Bedrock, [body.as_bytes()], BodyEnd::Clean);
        assert_eq!(report.error.unwrap().kind, kind, "{body}");
    }
}

#[test]
fn damage_cuts_the_calls_that_are_open() {
    let first = stream(&[start(0, "a", "f"), input(0, "{}"), stop(0)]);
    let second = stream(&[start(1, "b", "g")]);
    let mut hurt = stream(&[input(1, "{\"x\":1}")]);
    for at in [3, 20, hurt.len() - 1] {
        hurt[at] ^= 1;
        let body = [
            &first[..],
            &second,
            &hurt,
            &stream(&[input(1, "{}"), stop(1), end("tool_use")]),
        ]
        .concat();
        let (merged, report) = check(&body);
        assert_eq!(
            states(&merged.draft),
            [DraftState::Closed, DraftState::Cut(Truncation::Broken)]
        );
        assert_eq!((report.unreadable, report.ended), (1, true));
        hurt[at] ^= 1;
    }
}

#[test]
fn no_cut_completes_a_call() {
    let body = stream(&[
        delta(0, json!({"text": "ü"})),
        stop(0),
        start(1, "a", "f"),
        input(1, "{\"x\":1}"),
        stop(1),
        start(2, "b", "g"),
        stop(2),
        end("tool_use"),
    ]);
    let known = |events: &[(&str, Value)]| stream(events).len();
    // The first call ends with its block; the second, which has no arguments, with the message.
    let stopped = known(&[
        delta(0, json!({"text": "ü"})),
        stop(0),
        start(1, "a", "f"),
        input(1, "{\"x\":1}"),
        stop(1),
    ]);
    for cut in 0..body.len() {
        for how in [BodyEnd::Clean, BodyEnd::Broken, BodyEnd::Cancelled] {
            let (merged, _) = decode(Wire::Bedrock, [&body[..cut]], how);
            let closed = states(&merged.draft)
                .iter()
                .filter(|state| **state == DraftState::Closed)
                .count();
            assert_eq!(closed, usize::from(cut >= stopped), "cut at {cut}");
        }
    }
}

#[test]
fn limits_and_irregular_blocks_cut_unfinished_calls() {
    let check = |events: &[(&str, Value)], expected: &[DraftState]| {
        let (merged, _) = check(&stream(events));
        assert_eq!(states(&merged.draft), expected, "{events:?}");
        merged
    };
    use DraftState as S;
    // Without arguments at the limit: they may be missing.
    check(
        &[start(0, "a", "f"), stop(0), end("max_tokens")],
        &[S::Cut(Truncation::Limit)],
    );
    check(
        &[
            start(0, "a", "f"),
            input(0, "{\"x\":"),
            stop(0),
            end("max_tokens"),
        ],
        &[S::Cut(Truncation::Limit)],
    );
    check(
        &[start(0, "a", "f"), input(0, "{}"), end("tool_use")],
        &[S::Cut(Truncation::Ended)],
    );
    check(&[start(0, "a", "f"), input(0, "{}"), stop(0)], &[S::Closed]);
    // A repeated start, or another call under an open index.
    check(
        &[
            start(0, "a", "f"),
            start(0, "a", "f"),
            input(0, "{}"),
            stop(0),
            end("tool_use"),
        ],
        &[S::Closed],
    );
    check(
        &[
            start(0, "a", "f"),
            input(0, "{}"),
            start(0, "b", "f"),
            input(0, "{}"),
            stop(0),
            end("tool_use"),
        ],
        &[S::Cut(Truncation::Ended), S::Closed],
    );
    // Input as an object, not as text.
    let object = delta(0, json!({"toolUse": {"input": {"a": 1}}}));
    let merged = check(
        &[start(0, "a", "f"), object, stop(0), end("tool_use")],
        &[S::Closed],
    );
    assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": 1}]]));
    // A delta without a block is a fault, and may belong to an open call.
    let merged = check(
        &[start(0, "a", "f"), input(5, "{}"), stop(0), end("tool_use")],
        &[S::Cut(Truncation::Broken)],
    );
    assert_eq!(merged.draft.faults[0].kind, FaultKind::Provider);
}

#[test]
fn unknown_events_are_counted() {
    let body = stream(&[
        ("initial-response", json!({})),
        delta(0, json!({"text": "a"})),
        delta(0, json!({"citation": {"title": "x"}})),
        (
            "contentBlockStart",
            json!({"contentBlockIndex": 1, "start": {"image": {"format": "png"}}}),
        ),
        delta(1, json!({"image": {"source": {"bytes": "aGk="}}})),
        stop(1),
        ("later", json!({"x": 1})),
        end("guardrail_intervened"),
    ]);
    let (merged, report) = check(&body);
    assert_eq!(
        (
            report.skipped,
            report.unreadable,
            merged.draft.text().as_str()
        ),
        (5, 0, "a")
    );
    assert_eq!(merged.draft.stop.unwrap().0, StopReason::Refused);
}

#[test]
fn whole_answers_are_read() {
    let content = json!([
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"text": "a"},
        {"toolUse": {"toolUseId": "1", "name": "f", "input": {}}},
        {"toolUse": {"toolUseId": "2", "name": "g", "input": {"x": [1]}}},
        {"guardContent": {"text": {"text": "kept"}}},
    ]);
    let answer = |reason: &str| {
        json!({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": reason,
            "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {"latencyMs": 1}})
    };
    let (merged, report) = check(answer("tool_use").to_string().as_bytes());
    assert!(report.ended && report.form == BodyForm::Whole);
    assert_eq!(
        json!(runnable(&merged.draft)),
        json!([["f", {}], ["g", {"x": [1]}]])
    );
    let kinds: Vec<_> = merged
        .draft
        .parts
        .iter()
        .map(|part| format!("{part:?}").chars().take(4).collect::<String>())
        .collect();
    assert_eq!(kinds, ["Thou", "Opaq", "Text", "Call", "Call", "Opaq"]);
    // At the limit, the end of the last block proves nothing.
    let mut cut = answer("max_tokens");
    cut["output"]["message"]["content"]
        .as_array_mut()
        .unwrap()
        .pop();
    let (merged, _) = check(cut.to_string().as_bytes());
    assert_eq!(
        states(&merged.draft),
        [DraftState::Closed, DraftState::Cut(Truncation::Limit)]
    );
}

fn request(model: &str) -> Request {
    let tools = ToolSet::new(vec![ToolSpec::new("f", "", json!({}))]).unwrap();
    Request {
        model: model.into(),
        messages: vec![Message::user("x")].into(),
        tools,
        ..Request::default()
    }
}

const CLAUDE: &str = "eu.anthropic.claude-sonnet-4-6";

#[test]
fn tool_choice_is_encoded_once() {
    // The provider refuses an Anthropic field that contradicts its own.
    let check =
        |model: &str, choice: ToolChoice, parallel: ParallelCalls, own: Value, native: Value| {
            let body = Wire::Bedrock.encode_request(
                &Request {
                    tool_choice: choice,
                    parallel_calls: parallel,
                    ..request(model)
                },
                &WireOptions::default(),
            );
            assert_eq!(body["toolConfig"]["toolChoice"], own, "{body}");
            assert_eq!(
                body["additionalModelRequestFields"]["tool_choice"], native,
                "{body}"
            );
        };
    let null = Value::Null;
    use {ParallelCalls as P, ToolChoice as C};
    check(CLAUDE, C::Auto, P::Many, null.clone(), null.clone());
    check(
        CLAUDE,
        C::Tool("f".into()),
        P::Many,
        json!({"tool": {"name": "f"}}),
        null.clone(),
    );
    let one = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
    check(CLAUDE, C::Tool("f".into()), P::One, null.clone(), one);
    check(
        CLAUDE,
        C::Auto,
        P::One,
        null.clone(),
        json!({"type": "auto", "disable_parallel_tool_use": true}),
    );
    check(
        CLAUDE,
        C::None,
        P::One,
        null.clone(),
        json!({"type": "none"}),
    );
    check(
        "amazon.nova-lite-v1:0",
        C::Required,
        P::One,
        json!({"any": {}}),
        null.clone(),
    );
    check(
        "amazon.nova-lite-v1:0",
        C::None,
        P::One,
        null.clone(),
        null.clone(),
    );
    // Without tools nothing is declared, unless the history has calls.
    let bare = Request {
        tools: ToolSet::default(),
        parallel_calls: P::One,
        ..request(CLAUDE)
    };
    let body = Wire::Bedrock.encode_request(&bare, &WireOptions::default());
    assert_eq!(
        (&body["toolConfig"], &body["additionalModelRequestFields"]),
        (&null, &null)
    );
    let call = json!({"messages": [{"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "g", "input": {}}}]}]});
    let mut called = Wire::Bedrock
        .decode_request("", call.to_string().as_bytes())
        .unwrap()
        .request;
    called.model = CLAUDE.into();
    let body = Wire::Bedrock.encode_request(&called, &WireOptions::default());
    assert_eq!(body["toolConfig"]["tools"][0]["toolSpec"]["name"], "g");
    assert_eq!(
        body["additionalModelRequestFields"]["tool_choice"],
        json!({"type": "none"})
    );
}

#[test]
fn thinking_is_encoded_in_the_makers_form() {
    let check = |model: &str, wish: ReasoningConfig, expected: Value, back: ReasoningConfig| {
        let body = Wire::Bedrock.encode_request(
            &Request {
                reasoning: wish,
                ..request(model)
            },
            &WireOptions::default(),
        );
        assert_eq!(body["additionalModelRequestFields"], expected);
        let read = Wire::Bedrock
            .decode_request("", body.to_string().as_bytes())
            .unwrap()
            .request;
        assert_eq!(read.reasoning, back, "{body}");
    };
    use {ReasoningConfig as T, ReasoningEffort as E};
    let high = T::Effort(E::High);
    let adaptive = json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}});
    let budget = |tokens: u64| json!({"thinking": {"type": "enabled", "budget_tokens": tokens}});
    let off = json!({"thinking": {"type": "disabled"}});
    check(CLAUDE, T::Default, Value::Null, T::Default);
    check(CLAUDE, high, adaptive, high);
    check(CLAUDE, T::Off, off, T::Off);
    check(
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        T::Tokens(2000),
        budget(2000),
        T::Tokens(2000),
    );
    check(
        "anthropic.claude-3-7-sonnet-20250219-v1:0",
        high,
        budget(16_384),
        T::Tokens(16_384),
    );
    let nova = "us.amazon.nova-2-lite-v1:0";
    check(
        nova,
        high,
        json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        high,
    );
    check(
        nova,
        T::Off,
        json!({"reasoningConfig": {"type": "disabled"}}),
        T::Off,
    );
    check(
        "openai.gpt-oss-120b-1:0",
        high,
        json!({"reasoning_effort": "high"}),
        high,
    );
    check(
        "arn:aws:bedrock:eu-west-1:1:application-inference-profile/a",
        high,
        budget(16_384),
        T::Tokens(16_384),
    );
    // A thinking model accepts no temperature, and this one no limit either.
    for (model, limit) in [(CLAUDE, json!(9000)), (nova, Value::Null)] {
        let sampling = SamplingParams {
            temperature: Some(0.5),
            ..SamplingParams::default()
        };
        let request = Request {
            reasoning: high,
            sampling,
            max_output_tokens: Some(9000),
            ..request(model)
        };
        let inference =
            &Wire::Bedrock.encode_request(&request, &WireOptions::default())["inferenceConfig"];
        assert_eq!(
            (&inference["temperature"], &inference["maxTokens"]),
            (&Value::Null, &limit),
            "{model}"
        );
    }
}

#[test]
fn prefixes_are_marked_where_the_model_caches() {
    let check = |model: &str, cached: bool| {
        let request = Request {
            system: "s".into(),
            ..request(model)
        };
        let body = Wire::Bedrock.encode_request(
            &request,
            &WireOptions {
                cached: true,
                ..WireOptions::default()
            },
        );
        let mark = if cached {
            json!({"cachePoint": {"type": "default"}})
        } else {
            Value::Null
        };
        assert_eq!(
            (&body["system"][1], &body["messages"][0]["content"][1]),
            (&mark, &mark),
            "{body}"
        );
    };
    check(CLAUDE, true);
    check("amazon.nova-lite-v1:0", true);
    check("anthropic.claude-3-haiku-20240307-v1:0", false);
    check("meta.llama3-1-70b-instruct-v1:0", false);
}

#[test]
fn errors_name_their_place() {
    let check = |body: Value, expected: &str| {
        let error = Wire::Bedrock
            .decode_request("", body.to_string().as_bytes())
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        json!({"messages": [{"role": "user", "content": [{"document": {"name": "x"}}]}]}),
        r#"messages[0].content[0]: expected a block that a history can hold, found {"document":{"name":"x"}}"#,
    );
    check(
        json!({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}}),
        r#"toolConfig.tools[0]: expected a tool of the client (`toolSpec`), found {"systemTool":{"name":"nova_grounding"}}"#,
    );
    check(
        json!({"messages": [{"role": "user", "content": [{"image": {"format": "png", "source": {"s3Location": {}}}}]}]}),
        "messages[0].content[0].image.source.bytes: expected a string, found null",
    );
}

/// The API refuses two documents with the same name.
#[test]
fn every_document_has_a_name_of_its_own() {
    let encoded_names = |given: &[String]| -> Vec<String> {
        let parts = given.iter().map(|name| {
            MessagePart::Opaque(OpaqueState {
                wire: "openai-chat".into(),
                origin: None,
                data: json!({"type": "file", "file": {"filename": name, "file_data": "data:application/pdf;base64,eA=="}}),
            })
        });
        let message = Message {
            role: Role::User,
            parts: parts.collect(),
        };
        let request = Request {
            messages: vec![message].into(),
            ..request(CLAUDE)
        };
        let body = Wire::Bedrock.encode_request(&request, &WireOptions::default());
        let blocks = body["messages"][0]["content"].as_array().unwrap();
        let names = blocks
            .iter()
            .filter_map(|block| block.pointer("/document/name")?.as_str());
        names.map(str::to_owned).collect()
    };
    for (given, expected) in [
        (["a", "a", "b"], ["a", "a (2)", "b"]),
        (["a (2)", "a", "a"], ["a (2)", "a", "a (3)"]),
        (["a", "a", "a (2)"], ["a", "a (2)", "a (2) (2)"]),
    ] {
        assert_eq!(encoded_names(&given.map(str::to_owned)), expected);
    }
    let given: Vec<_> = (0..400)
        .map(|number| match number % 3 {
            0 => format!("a ({})", number / 3),
            _ => "a".to_owned(),
        })
        .collect();
    let names = encoded_names(&given);
    let different: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!((names.len(), different.len()), (400, 400));
}
