//! Ollama streams and requests, each tested with hand-written bodies.

use proptest::prelude::*;
use sabir_call::{
    DraftResponse, DraftState, ModelErrorKind, ReasoningConfig, ReasoningEffort, Request,
    StopReason, ToolChoice, ToolSet, ToolSpec, Truncation, Usage,
};
use sabir_wire::{BodyEnd, BodyForm, ResponseDecoder, Wire, WireOptions};
use serde_json::{Value, json};

use crate::gemini::requests::check_pairs;
use crate::histories::history;
use crate::merged::{decode, decode_all, runnable};
use crate::splits::split;

const WIRE: Wire = Wire::Ollama;

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn said(message: Value) -> Value {
    json!({"model": "m", "created_at": "2026-04-10T13:19:59.948798825Z", "message": message, "done": false})
}

fn call(id: Value, name: &str, arguments: Value) -> Value {
    json!({"id": id, "function": {"index": 0, "name": name, "arguments": arguments}})
}

/// Builds a line whose last bytes name the call that ends with it.
fn ends(call: Value, name: &str) -> Value {
    json!({"message": {"content": "", "tool_calls": [call]}, "done": false, "created_at": format!("ends {name}")})
}

/// A line like the last one of recording 1293.
fn done(reason: &str) -> Value {
    json!({
        "model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": reason,
        "total_duration": 499_049_129, "prompt_eval_count": 21, "eval_count": 40,
    })
}

/// A stream with every feature that a split could damage.
pub(crate) fn body() -> String {
    lines(&[
        said(json!({"content": "", "thinking": "hmm ü"})),
        said(json!({"content": "Wörter 😀 {\"}"})),
        ends(
            call(
                "c1".into(),
                "write",
                json!({"path": "ä.rs", "n": [1, {"x": "}\"]"}]}),
            ),
            "write",
        ),
        ends(call(Value::Null, "list", json!({})), "list"),
        done("stop"),
    ])
}

#[test]
fn lines_are_read_while_they_come() {
    let body = body();
    let half = body.find("Wörter").unwrap() + 40;
    let mut decoder = ResponseDecoder::new(WIRE);
    let mut draft = DraftResponse::default();
    decoder.push(&body.as_bytes()[..half], &mut draft);
    assert_eq!(
        (decoder.event_count(), draft.text().as_str()),
        (2, "Wörter 😀 {\"}")
    );
    decoder.push(&body.as_bytes()[half..], &mut draft);
    assert!(decoder.is_ended());
    let report = decoder.finish(BodyEnd::Clean, &mut draft);
    assert_eq!(
        (report.form, report.events, report.skipped),
        (BodyForm::Whole, 5, 0)
    );
    assert_eq!(draft.stop, Some((StopReason::Calls, "stop".into())));
    let usage = Usage {
        input: Some(21),
        output: Some(40),
        ..Usage::default()
    };
    assert_eq!(draft.usage, usage);
    assert_eq!(
        json!(runnable(&draft)),
        json!([["write", {"path": "ä.rs", "n": [1, {"x": "}\"]"}]}], ["list", {}]])
    );
}

#[test]
fn each_listed_call_is_a_separate_complete_call() {
    let check = |calls: Value, expected: Value| {
        let (merged, _) = decode_all(
            WIRE,
            &lines(&[said(json!({"tool_calls": calls})), done("stop")]),
        );
        assert_eq!(json!(runnable(&merged.draft)), expected);
    };
    let x = json!(["f", {"a": 1}]);
    let y = json!(["f", {"a": 2}]);
    // Missing or repeated ids, and an index that is always the same.
    for id in [Value::Null, json!(""), json!("call_0")] {
        check(
            json!([
                call(id.clone(), "f", json!({"a": 1})),
                call(id, "f", json!({"a": 2}))
            ]),
            json!([x, y]),
        );
    }
    // Arguments as text, and a call that is not in a list.
    check(call(Value::Null, "f", json!("{\"a\":1}")), json!([x]));
    check(
        json!([call(Value::Null, "f", Value::Null)]),
        json!([["f", {}]]),
    );
    check(json!([{"function": {"name": "f"}}]), json!([["f", {}]]));
    // Without a name, or with invalid arguments: never run.
    check(json!([{"id": "a"}]), json!([]));
    check(json!([call(Value::Null, "f", json!([1]))]), json!([]));
}

#[test]
fn every_finish_reason_maps_to_a_stop_reason() {
    let check = |body: &str, stop: Option<(StopReason, &str)>, error: Option<ModelErrorKind>| {
        let (merged, report) = decode_all(WIRE, body);
        assert_eq!(
            merged.draft.stop,
            stop.map(|(reason, word)| (reason, word.to_owned())),
            "{body}"
        );
        assert_eq!(
            (report.ended, report.error.map(|error| error.kind)),
            (stop.is_some(), error),
            "{body}"
        );
    };
    check(
        &lines(&[done("stop")]),
        Some((StopReason::End, "stop")),
        None,
    );
    check(
        &lines(&[done("length")]),
        Some((StopReason::Length, "length")),
        None,
    );
    check(
        &lines(&[done("load")]),
        Some((StopReason::Other, "load")),
        None,
    );
    check(r#"{"done":true}"#, Some((StopReason::End, "")), None);
    check(&lines(&[said(json!({"content": "a"}))]), None, None);
    check(
        r#"{"error":"model 'x' not found"}"#,
        None,
        Some(ModelErrorKind::Unavailable),
    );
    // In the middle of a stream.
    check(
        &lines(&[
            said(json!({"content": "a"})),
            json!({"error": "an error was encountered"}),
        ]),
        None,
        Some(ModelErrorKind::Unavailable),
    );
    // A call without arguments is trusted only with the end of the response.
    let bare = said(json!({"tool_calls": [{"function": {"name": "f"}}]}));
    let states = |lines: &[Value]| -> Vec<DraftState> {
        decode_all(WIRE, &self::lines(lines))
            .0
            .draft
            .calls()
            .map(|call| call.state)
            .collect()
    };
    assert_eq!(
        states(&[bare.clone(), done("length")]),
        [DraftState::Cut(Truncation::Limit)]
    );
    assert_eq!(states(&[bare]), [DraftState::Cut(Truncation::Broken)]);
}

#[test]
fn invalid_lines_cost_one_event() {
    let body = format!(
        "{}oops {{not json\n{}",
        lines(&[said(json!({"content": "a"}))]),
        lines(&[done("stop")])
    );
    let (merged, report) = decode_all(WIRE, &body);
    assert_eq!(
        (
            merged.draft.text().as_str(),
            report.unreadable,
            report.ended
        ),
        ("a", 1, true)
    );
}

#[test]
fn requests_have_required_members() {
    let tool = |name: &str| ToolSpec::new(name, "", json!({"type": "object", "properties": {}}));
    let request = Request {
        model: "m".into(),
        system: "Be brief.".into(),
        messages: history().into(),
        tools: ToolSet::new(vec![tool("f"), tool("g")]).unwrap(),
        max_output_tokens: Some(9),
        ..Request::default()
    };
    let body = WIRE.encode_request(&request, &WireOptions::default());
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "assistant", "tool", "user", "tool"]);
    assert_eq!(
        (&messages[2]["tool_name"], &messages[2]["tool_call_id"]),
        (&json!("f"), &messages[1]["tool_calls"][0]["id"])
    );
    assert_eq!(
        messages[1]["tool_calls"][0]["function"]["arguments"],
        json!({}),
        "an object, not its text"
    );
    assert_eq!(
        (&body["options"], &body["stream"]),
        (&json!({"num_predict": 9}), &json!(false))
    );
    let offered = |choice: ToolChoice| {
        let body = WIRE.encode_request(
            &Request {
                tool_choice: choice,
                ..request.clone()
            },
            &WireOptions::default(),
        );
        body["tools"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(
        [
            offered(ToolChoice::Required),
            offered(ToolChoice::Tool("g".into())),
            offered(ToolChoice::None)
        ],
        [2, 1, 0]
    );
}

#[test]
fn thinking_is_encoded_for_the_models_version() {
    let check = |model: &str, thinking: ReasoningConfig, expected: Value, back: ReasoningConfig| {
        let request = Request {
            model: model.into(),
            reasoning: thinking,
            ..Request::default()
        };
        let body = WIRE.encode_request(&request, &WireOptions::default());
        assert_eq!(body["think"], expected);
        assert_eq!(
            WIRE.decode_request("", body.to_string().as_bytes())
                .unwrap()
                .request
                .reasoning,
            back
        );
    };
    let effort = ReasoningConfig::Effort;
    check(
        "qwen3",
        ReasoningConfig::Default,
        Value::Null,
        ReasoningConfig::Default,
    );
    check(
        "qwen3",
        ReasoningConfig::Off,
        json!(false),
        ReasoningConfig::Off,
    );
    check(
        "qwen3",
        effort(ReasoningEffort::High),
        json!(true),
        effort(ReasoningEffort::Medium),
    );
    check(
        "qwen3",
        ReasoningConfig::Tokens(7),
        json!(true),
        effort(ReasoningEffort::Medium),
    );
    check(
        "gpt-oss:20b",
        effort(ReasoningEffort::High),
        json!("high"),
        effort(ReasoningEffort::High),
    );
    check(
        "gpt-oss:20b",
        effort(ReasoningEffort::Minimal),
        json!("low"),
        effort(ReasoningEffort::Low),
    );
    check(
        "gpt-oss:20b",
        ReasoningConfig::Tokens(8000),
        json!("medium"),
        effort(ReasoningEffort::Medium),
    );
}

#[test]
fn minimal_requests_decode() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "", "images": ["/9j/4AAQ"]}], "options": {"num_predict": -1}});
    let incoming = WIRE
        .decode_request("/api/chat", body.to_string().as_bytes())
        .unwrap();
    assert!(
        incoming.streamed,
        "streaming is what it does unless told otherwise"
    );
    assert_eq!(incoming.request.max_output_tokens, None);
    let shown = format!("{:?}", incoming.request.messages[0].parts);
    assert!(shown.contains("image/jpeg"), "{shown}");
}

#[test]
fn results_find_their_calls_without_ids() {
    let call =
        |id: Value, n: u64| json!({"id": id, "function": {"name": "f", "arguments": {"n": n}}});
    let result = |id: Value, n: u64| json!({"role": "tool", "tool_name": "f", "tool_call_id": id, "content": n.to_string()});
    let calls = |calls: Value| json!({"role": "assistant", "content": "", "tool_calls": calls});
    let none = || Value::Null;
    let messages = json!([
        {"role": "user", "content": "go"},
        calls(json!([call(none(), 1), call(none(), 2)])),
        result(none(), 1),
        result(none(), 2),
        calls(json!([call("a".into(), 3), call("b".into(), 4)])),
        result("b".into(), 4),
        result("a".into(), 3),
        calls(json!([call("a".into(), 5), call(none(), 6)])),
        // Without a name, only the position tells.
        {"role": "tool", "content": "5"},
        {"role": "tool", "content": "6"},
    ]);
    let body = json!({"model": "m", "messages": messages}).to_string();
    let mut request = WIRE
        .decode_request("/api/chat", body.as_bytes())
        .unwrap()
        .request;
    for wire in Wire::ALL {
        let encoded = wire
            .encode_request(&request, &WireOptions::default())
            .to_string();
        request = wire
            .decode_request(&wire.endpoint_path("m", false), encoded.as_bytes())
            .unwrap()
            .request;
        check_pairs(&request, 6);
    }
}

/// Generates a line with few ids, names, arguments and ends, so that they collide often.
fn random_line() -> impl Strategy<Value = Value> {
    let id = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("a")),
        Just(json!(1))
    ];
    let name = prop_oneof![Just(Value::Null), Just(json!("")), Just(json!("f"))];
    let arguments = proptest::sample::select(
        &[
            "{}",
            "{\"x\":\"y\"}",
            "null",
            "\"{\"",
            "\"{\\\"x\\\":1}\"",
            "\"\"",
            "[1]",
            "3",
        ][..],
    );
    (id, name, arguments, 0_usize..8).prop_map(|(id, name, arguments, kind)| {
        let called = json!({"id": id, "function": {"name": name, "arguments": serde_json::from_str::<Value>(arguments).unwrap()}});
        match kind {
            0 => said(json!({"content": arguments})),
            1 => said(json!({"thinking": arguments, "content": null})),
            2 => done(if arguments == "{}" { "length" } else { "stop" }),
            3 => json!({"error": "no"}),
            4 => json!({"unheard": "of"}),
            5 => said(json!({"tool_calls": [called, called]})),
            6 => json!({"message": {"tool_calls": [called]}, "done": true}),
            _ => said(json!({"tool_calls": [called]})),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_lines_keep_the_contract(all in proptest::collection::vec(random_line(), 0..9), sizes in proptest::collection::vec(1_usize..90, 1..9)) {
        let body = lines(&all);
        for how in [BodyEnd::Clean, BodyEnd::Broken] {
            // `decode` checks the contract: one start and one end per call, nothing outside of it.
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
