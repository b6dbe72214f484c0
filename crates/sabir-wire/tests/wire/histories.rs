//! Requests: written and read back.

use proptest::prelude::*;
use sabir_call::{
    Call, CallId, CallResult, Ending, Message, Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSet, ToolSpec,
};
use sabir_wire::{Form, Wire};
use serde_json::{Map, Value, json};

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z<>&\"\\\\ü😀\n]{0,8}[a-z.]"
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let value =
        prop_oneof![word().prop_map(Value::from), any::<i64>().prop_map(Value::from), Just(json!([1, {"x": null}]))];
    proptest::collection::vec(("[a-z]{1,4}", value), 0..3).prop_map(|pairs| pairs.into_iter().collect())
}

/// The thoughts that a wire carries back.
fn thoughts(wire: Wire) -> BoxedStrategy<Vec<Part>> {
    let kept = move |data: Value| Opaque { wire: wire.name().to_owned(), data };
    match wire {
        Wire::Anthropic => proptest::collection::vec(
            prop_oneof![
                ("[a-z ]{0,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, signature)| {
                    let data = json!({"type": "thinking", "signature": signature});
                    Part::Thought { text, opaque: Some(kept(data)) }
                }),
                "[a-z]{1,9}"
                    .prop_map(move |data| Part::Opaque(kept(json!({"type": "redacted_thinking", "data": data})))),
            ],
            0..3,
        )
        .boxed(),
        Wire::Bedrock => proptest::collection::vec(
            prop_oneof![
                ("[a-z ]{0,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, signature)| {
                    let data = json!({"reasoningContent": {"reasoningText": {"signature": signature}}});
                    Part::Thought { text, opaque: Some(kept(data)) }
                }),
                "[a-z]{4}"
                    .prop_map(move |data| Part::Opaque(kept(json!({"reasoningContent": {"redactedContent": data}})))),
            ],
            0..3,
        )
        .boxed(),
        _ => (proptest::option::of(word()), proptest::collection::vec(("[a-z ]{0,9}", "[a-z]{1,9}"), 0..3))
            .prop_map(move |(plain, signed)| {
                let plain = plain.map(|text| Part::Thought { text, opaque: None });
                let signed = signed.into_iter().map(|(text, signature)| {
                    let data = kept(json!({"type": "reasoning.text", "signature": signature}));
                    if text.is_empty() { Part::Opaque(data) } else { Part::Thought { text, opaque: Some(data) } }
                });
                plain.into_iter().chain(signed).collect()
            })
            .boxed(),
    }
}

/// One answer with its calls, and the user's message with their results.
fn turn(wire: Wire) -> impl Strategy<Value = (Vec<Part>, Vec<Part>)> {
    let call = ("[a-z_]{1,6}", arguments(), word(), any::<bool>());
    (
        thoughts(wire),
        proptest::option::of(word()),
        proptest::collection::vec(call, 0..3),
        proptest::option::of(word()),
        any::<bool>(),
    )
        .prop_map(|(mut parts, text, calls, reply, picture)| {
            parts.extend(text.map(Part::text));
            if calls.is_empty() && parts.iter().all(|part| !matches!(part, Part::Text { .. })) {
                parts.push(Part::text("ok"));
            }
            let mut results = Vec::new();
            for (name, arguments, content, failed) in calls {
                let id = CallId::new("filled in later");
                let ending = if failed { Ending::Failed } else { Ending::Done };
                results.push(Part::Result(CallResult { id: id.clone(), name: name.clone(), ending, content }));
                parts.push(Part::Call(Call { id, name, arguments, dialect: None }));
            }
            if picture {
                results.push(Part::Image { media_type: "image/png".into(), data: "aGk=".into() });
            }
            results.extend(reply.or_else(|| results.is_empty().then(|| "go".into())).map(Part::text));
            (parts, results)
        })
}

fn request(wire: Wire) -> impl Strategy<Value = Request> {
    let turns = proptest::collection::vec(turn(wire), 0..4);
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::Required),
        Just(ToolChoice::None),
        Just(ToolChoice::Tool("f".into()))
    ];
    (turns, choice, any::<bool>(), proptest::option::of(1_u64..9999), proptest::collection::vec("[a-z]{1,3}", 0..2))
        .prop_map(move |(turns, choice, one, limit, stop)| {
            let mut messages = vec![Message::user("hello")];
            let mut count = 0;
            for (mut answer, mut reply) in turns {
                for (number, part) in answer.iter_mut().filter(|part| matches!(part, Part::Call(_))).enumerate() {
                    if let Part::Call(call) = part {
                        call.id = CallId::new(format!("call-{}", count + number));
                    }
                }
                for part in &mut reply {
                    if let Part::Result(result) = part {
                        result.id = CallId::new(format!("call-{count}"));
                        count += 1;
                        // This wire has no word for a failure: what the model reads says it.
                        if wire == Wire::OpenAiChat {
                            result.ending = Ending::Done;
                        }
                    }
                }
                messages.push(Message { role: Role::Assistant, parts: answer });
                messages.push(Message { role: Role::User, parts: reply });
            }
            let schema =
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
            let parallel = if one && choice != ToolChoice::None { Parallel::One } else { Parallel::Many };
            Request {
                // Only a model of Anthropic's is told there to make one call, or none.
                model: if wire == Wire::Bedrock { "eu.anthropic.m:0" } else { "m" }.into(),
                system: "Be brief.".into(),
                messages,
                tools: ToolSet::new(vec![ToolSpec::new("f", "does f", schema)]).unwrap(),
                choice,
                parallel,
                max_output: limit.or((wire == Wire::Anthropic).then_some(8192)),
                temperature: Some(0.5),
                stop,
                ..Request::default()
            }
        })
}

fn check(wire: Wire, request: &Request) {
    for cached in [false, true] {
        let form =
            Form { streamed: true, thought_field: Some("reasoning_content".into()), completion_limit: cached, cached };
        let body = wire.encode_request(request, &form).to_string();
        let path = wire.endpoint(&request.model, form.streamed);
        let back = wire.decode_request(&path, body.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{body}"));
        assert!(back.streamed);
        // Every field of a request has a debug form; sets of tools have no equality.
        assert_eq!(format!("{:#?}", back.request), format!("{request:#?}"), "{body}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn anthropic_requests_come_back(request in request(Wire::Anthropic)) {
        check(Wire::Anthropic, &request);
    }

    #[test]
    fn openai_chat_requests_come_back(request in request(Wire::OpenAiChat)) {
        check(Wire::OpenAiChat, &request);
    }

    #[test]
    fn bedrock_requests_come_back(request in request(Wire::Bedrock)) {
        check(Wire::Bedrock, &request);
    }

    #[test]
    fn no_body_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for wire in Wire::ALL {
            let _ = wire.decode_request("", &bytes);
        }
    }
}

fn history() -> Vec<Message> {
    let call =
        |id: &str| Part::Call(Call { id: CallId::new(id), name: "f".into(), arguments: Map::new(), dialect: None });
    let result = |id: &str, ending| {
        Part::Result(CallResult { id: CallId::new(id), name: "f".into(), ending, content: "no".into() })
    };
    let foreign = Opaque { wire: "gemini".into(), data: json!({"x": 1}) };
    vec![
        Message {
            role: Role::Assistant,
            parts: vec![
                Part::Thought { text: "unsigned".into(), opaque: None },
                Part::Opaque(foreign),
                Part::text(" \n"),
                call("functions.f:0"),
                call("b"),
            ],
        },
        Message { role: Role::User, parts: vec![Part::text("early words"), result("functions.f:0", Ending::Denied)] },
        Message { role: Role::User, parts: vec![result("b", Ending::Done)] },
    ]
}

#[test]
fn anthropic_gets_what_it_insists_on() {
    let request = Request { model: "m".into(), messages: history(), ..Request::default() };
    let body = Wire::Anthropic.encode_request(&request, &Form::default());
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "one message for each role in turn: {body:#}");
    let id = messages[0]["content"][0]["id"].as_str().unwrap();
    assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{id}");
    let kinds = |message: &Value| -> Vec<String> {
        message["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&messages[0]), ["tool_use", "tool_use"], "no blank text, no unsigned or foreign thought");
    assert_eq!(kinds(&messages[1]), ["tool_result", "tool_result", "text"], "results first");
    assert_eq!(messages[1]["content"][0]["tool_use_id"], id);
    assert_eq!(
        (&messages[1]["content"][0]["is_error"], &messages[1]["content"][1]["is_error"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!((&body["max_tokens"], &body["system"], &body["tools"]), (&json!(8192), &Value::Null, &Value::Null));
}

#[test]
fn openai_chat_gets_what_it_insists_on() {
    let request = Request { model: "m".into(), messages: history(), max_output: Some(9), ..Request::default() };
    let body = Wire::OpenAiChat.encode_request(&request, &Form { completion_limit: true, ..Form::default() });
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool", "user", "tool"]);
    assert_eq!(messages[1]["tool_call_id"], messages[0]["tool_calls"][0]["id"]);
    assert_eq!((&body["max_completion_tokens"], &body["stream"]), (&json!(9), &Value::Null));
}

#[test]
fn errors_name_their_place() {
    let check = |wire: Wire, body: Value, expected: &str| {
        assert_eq!(wire.decode_request("", body.to_string().as_bytes()).unwrap_err().to_string(), expected);
    };
    check(
        Wire::Anthropic,
        json!({"model": "m", "messages": [{"role": "x"}]}),
        "messages[0].role: expected `user` or `assistant`, found \"x\"",
    );
    check(
        Wire::Anthropic,
        json!({"model": "m", "tools": [{"type": "web_search_20250305", "name": "w"}]}),
        "tools[0].type: expected a tool of the client (`custom`), found \"web_search_20250305\"",
    );
    check(Wire::OpenAiChat, json!({"messages": []}), "model: expected a string, found null");
    check(
        Wire::OpenAiChat,
        json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}]}),
        "messages[0].content[0].image_url.url: expected a base64 data URL, found \"https://x\"",
    );
}
