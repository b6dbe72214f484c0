//! Property tests: encoded requests decode to the same content.

use proptest::prelude::*;
use sabir_call::{
    CacheControl, Call, CallId, CallResult, Image, Message, MessagePart, OpaqueState,
    ParallelCalls, ReasoningConfig, ReasoningEffort, Request, Role, SamplingParams, ToolChoice,
    ToolResultStatus, ToolSet, ToolSpec,
};
use sabir_wire::{Wire, WireOptions};
use serde_json::{Map, Value, json};

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z<>&\"\\\\ü😀\n]{0,8}[a-z.]"
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        word().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!([1, {"x": null}]))
    ];
    proptest::collection::vec(("[a-z]{1,4}", value), 0..3)
        .prop_map(|pairs| pairs.into_iter().collect())
}

/// The thoughts that a wire carries back.
fn thoughts(wire: Wire) -> BoxedStrategy<Vec<MessagePart>> {
    let kept = move |data: Value| OpaqueState {
        wire: wire.name().to_owned(),
        origin: None,
        data,
    };
    match wire {
        Wire::Anthropic => proptest::collection::vec(
            prop_oneof![
                ("[a-z ]{0,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, signature)| {
                    let data = json!({"type": "thinking", "signature": signature});
                    MessagePart::Thought { text, opaque: Some(kept(data)) }
                }),
                "[a-z]{1,9}".prop_map(move |data| MessagePart::Opaque(kept(
                    json!({"type": "redacted_thinking", "data": data})
                ))),
            ],
            0..3,
        )
        .boxed(),
        Wire::Bedrock => bedrock_thoughts().boxed(),
        Wire::OpenAiResponses => proptest::collection::vec(
            ("[a-z]{0,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, encrypted)| {
                let part = json!({"type": "summary_text", "text": text});
                let summary = if text.is_empty() { vec![] } else { vec![part] };
                let item =
                    json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": encrypted});
                if text.is_empty() {
                    MessagePart::Opaque(kept(item))
                } else {
                    MessagePart::Thought { text, opaque: Some(kept(item)) }
                }
            }),
            0..3,
        )
        .boxed(),
        Wire::Gemini => proptest::collection::vec(
            prop_oneof![
                ("[a-zü]{1,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, signature)| {
                    let data = json!({"signs": "thought", "bytes": text.len(), "thoughtSignature": signature});
                    vec![MessagePart::Thought { text, opaque: Some(kept(data)) }]
                }),
                ("[a-zü]{1,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, signature)| {
                    let data = json!({"signs": "text", "bytes": text.len(), "thoughtSignature": signature});
                    vec![MessagePart::text(text), MessagePart::Opaque(kept(data))]
                }),
                Just(vec![MessagePart::Opaque(kept(json!({"text": "", "thoughtSignature": "x"})))]),
                Just(vec![MessagePart::Opaque(kept(
                    json!({"executableCode": {"code": "1"}, "thoughtSignature": "x"})
                ))]),
            ],
            0..3,
        )
        .prop_map(|parts| parts.concat())
        .boxed(),
        Wire::Ollama => ollama_thoughts().boxed(),
        _ => (proptest::option::of(word()), proptest::collection::vec(("[a-z ]{0,9}", "[a-z]{1,9}"), 0..3))
            .prop_map(move |(plain, signed)| {
                let plain = plain.map(|text| MessagePart::Thought { text, opaque: None });
                let signed = signed.into_iter().map(|(text, signature)| {
                    let data = kept(json!({"type": "reasoning.text", "signature": signature}));
                    if text.is_empty() {
                        MessagePart::Opaque(data)
                    } else {
                        MessagePart::Thought { text, opaque: Some(data) }
                    }
                });
                plain.into_iter().chain(signed).collect()
            })
            .boxed(),
    }
}

fn ollama_thoughts() -> impl Strategy<Value = Vec<MessagePart>> {
    proptest::option::of(word()).prop_map(|text| {
        text.into_iter()
            .map(|text| MessagePart::Thought { text, opaque: None })
            .collect()
    })
}

fn bedrock_thoughts() -> impl Strategy<Value = Vec<MessagePart>> {
    let kept = |data: Value| OpaqueState {
        wire: Wire::Bedrock.name().to_owned(),
        origin: None,
        data,
    };
    let signed = ("[a-z ]{0,9}", "[a-zA-Z0-9]{1,9}").prop_map(move |(text, signature)| {
        let data = json!({"reasoningContent": {"reasoningText": {"signature": signature}}});
        MessagePart::Thought {
            text,
            opaque: Some(kept(data)),
        }
    });
    let hidden = "[a-z]{4}".prop_map(move |data| {
        MessagePart::Opaque(kept(json!({"reasoningContent": {"redactedContent": data}})))
    });
    proptest::collection::vec(prop_oneof![signed, hidden], 0..3)
}

/// An image with unique data, whose type shows in its first bytes.
pub(crate) fn picture(number: usize) -> Image {
    Image {
        media_type: "image/png".into(),
        data: format!("iVBORw0KGgo{number}"),
    }
}

/// An assistant message with calls, and the user's message with their results.
fn turn(wire: Wire) -> impl Strategy<Value = (Vec<MessagePart>, Vec<MessagePart>)> {
    let call = (
        "[a-z_]{1,6}",
        arguments(),
        word(),
        any::<bool>(),
        0..3_usize,
    );
    (
        thoughts(wire),
        proptest::option::of(word()),
        proptest::collection::vec(call, 0..3),
        proptest::option::of(word()),
        any::<bool>(),
    )
        .prop_map(move |(mut parts, text, calls, reply, shown)| {
            parts.extend(text.map(MessagePart::text));
            if calls.is_empty()
                && parts
                    .iter()
                    .all(|part| !matches!(part, MessagePart::Text { .. }))
            {
                parts.push(MessagePart::text("ok"));
            }
            let mut results = Vec::new();
            for (number, (name, arguments, content, failed, pictures)) in
                calls.into_iter().enumerate()
            {
                let id = CallId::new("filled in later");
                let ending = if failed {
                    ToolResultStatus::Failed
                } else {
                    ToolResultStatus::Done
                };
                results.push(MessagePart::Result(CallResult {
                    id: id.clone(),
                    name: name.clone(),
                    ending,
                    content,
                    images: vec![picture(number); pictures],
                }));
                parts.push(MessagePart::Call(Call {
                    id,
                    name,
                    arguments,
                    dialect: None,
                }));
                // Only the first of parallel calls is signed.
                if wire == Wire::Gemini && number == 0 {
                    let data = json!({"signs": "call", "thoughtSignature": "s"});
                    parts.push(MessagePart::Opaque(OpaqueState {
                        wire: wire.name().into(),
                        origin: None,
                        data,
                    }));
                }
            }
            if shown {
                results.push(MessagePart::Image(picture(9)));
            }
            results.extend(
                reply
                    .or_else(|| results.is_empty().then(|| "go".into()))
                    .map(MessagePart::text),
            );
            (parts, results)
        })
}

/// The options that a wire supports, and a model that accepts them.
fn wish(wire: Wire) -> BoxedStrategy<(ReasoningConfig, &'static str)> {
    let efforts = [
        ReasoningEffort::Low,
        ReasoningEffort::Medium,
        ReasoningEffort::High,
    ];
    let efforts = proptest::sample::select(efforts.to_vec()).prop_map(ReasoningConfig::Effort);
    let silent = Just(ReasoningConfig::Default);
    let off = Just(ReasoningConfig::Off);
    match wire {
        Wire::Anthropic => prop_oneof![
            (silent, Just("m")),
            (off, Just("m")),
            (efforts, Just("claude-opus-4-8"))
        ]
        .boxed(),
        // Only Anthropic's models can be limited to one call, or none, on Bedrock.
        Wire::Bedrock => (
            prop_oneof![silent, off, efforts],
            Just("eu.anthropic.claude-opus-4-8"),
        )
            .boxed(),
        Wire::Gemini => {
            let tokens = (1_u64..9999).prop_map(ReasoningConfig::Tokens);
            (
                prop_oneof![
                    silent,
                    off,
                    efforts,
                    Just(ReasoningConfig::Effort(ReasoningEffort::Minimal)),
                    tokens
                ],
                Just("gemini-3-pro"),
            )
                .boxed()
        }
        Wire::Ollama => (
            prop_oneof![
                silent,
                off,
                Just(ReasoningConfig::Effort(ReasoningEffort::Medium))
            ],
            Just("m"),
        )
            .boxed(),
        _ => (
            prop_oneof![
                silent,
                off,
                efforts,
                Just(ReasoningConfig::Effort(ReasoningEffort::Minimal))
            ],
            Just("m"),
        )
            .boxed(),
    }
}

/// Returns the request as far as the wire can express it.
fn sayable(wire: Wire, mut request: Request) -> Request {
    if matches!(wire, Wire::Gemini | Wire::Ollama) {
        request.parallel_calls = ParallelCalls::Many;
    }
    if wire == Wire::Ollama {
        request.tool_choice = ToolChoice::Auto;
    }
    request
}

fn request(wire: Wire) -> impl Strategy<Value = Request> {
    let turns = proptest::collection::vec(turn(wire), 0..4);
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::Required),
        Just(ToolChoice::None),
        Just(ToolChoice::Tool("f".into()))
    ];
    let limits = (
        any::<bool>(),
        proptest::option::of(1_u64..9999),
        proptest::collection::vec("[a-z]{1,3}", 0..2),
    );
    (turns, choice, limits, wish(wire)).prop_map(move |(turns, choice, (one, limit, stop), (thinking, model))| {
        let mut messages = vec![Message::user("hello")];
        let mut count = 0;
        for (mut answer, mut reply) in turns {
            for (number, part) in answer.iter_mut().filter(|part| matches!(part, MessagePart::Call(_))).enumerate() {
                if let MessagePart::Call(call) = part {
                    call.id = CallId::new(format!("call-{}", count + number));
                }
            }
            for part in &mut reply {
                if let MessagePart::Result(result) = part {
                    result.id = CallId::new(format!("call-{count}"));
                    count += 1;
                    // This wire cannot mark a failure, so the text has to tell it.
                    if matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses | Wire::Ollama) {
                        result.ending = ToolResultStatus::Done;
                    }
                }
            }
            messages.push(Message { role: Role::Assistant, parts: answer });
            messages.push(Message { role: Role::User, parts: reply });
        }
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
        let parallel = if one && choice != ToolChoice::None { ParallelCalls::One } else { ParallelCalls::Many };
        // A thinking model accepts no temperature here.
        let cool = matches!(wire, Wire::Anthropic | Wire::Bedrock) && matches!(thinking, ReasoningConfig::Effort(_));
        let forced = matches!(choice, ToolChoice::Required | ToolChoice::Tool(_));
        let request = Request {
            model: model.into(),
            system: "Be brief.".into(),
            messages: messages.into(),
            tools: ToolSet::new(vec![ToolSpec::new("f", "does f", schema)]).unwrap(),
            tool_choice: choice,
            parallel_calls: parallel,
            max_output_tokens: limit.or((wire == Wire::Anthropic).then_some(8192)),
            sampling: SamplingParams {
                temperature: (!cool || forced).then_some(0.5),
                stop: if wire == Wire::OpenAiResponses { Vec::new() } else { stop },
                ..SamplingParams::default()
            },
            reasoning: thinking,
            ..Request::default()
        };
        sayable(wire, request)
    })
}

/// Returns the request as it is decoded again. If a result has no room for images, they follow the
/// results, after text that names their call. No image is lost.
fn read_back(wire: Wire, request: &Request) -> Request {
    let mut request = request.clone();
    if !matches!(wire, Wire::OpenAiChat | Wire::Ollama) {
        return request;
    }
    for message in request
        .messages
        .iter_mut()
        .filter(|message| message.role == Role::User)
    {
        let mut results = Vec::new();
        let mut moved = Vec::new();
        let mut own = Vec::new();
        for part in message.parts.drain(..) {
            let MessagePart::Result(mut result) = part else {
                own.push(part);
                continue;
            };
            let pictures = std::mem::take(&mut result.images);
            if !pictures.is_empty() {
                let noun = if pictures.len() == 1 {
                    "picture"
                } else {
                    "pictures"
                };
                moved.push(MessagePart::text(format!(
                    "[The {noun} of the result of `{}`, call {}:]",
                    result.name, result.id
                )));
                moved.extend(pictures.into_iter().map(MessagePart::Image));
            }
            results.push(MessagePart::Result(result));
        }
        moved.append(&mut own);
        if wire == Wire::Ollama {
            let (pictures, words): (Vec<_>, Vec<_>) = moved
                .into_iter()
                .partition(|part| matches!(part, MessagePart::Image(_)));
            moved = pictures;
            let words = words.iter().filter_map(|part| {
                if let MessagePart::Text { text } = part {
                    Some(text.as_str())
                } else {
                    None
                }
            });
            let words = words.collect::<Vec<_>>().join("\n\n");
            moved.extend((!words.is_empty()).then(|| MessagePart::text(words)));
        }
        results.append(&mut moved);
        message.parts = results;
    }
    request
}

fn check(wire: Wire, request: &Request) {
    for cached in [false, true] {
        let form = WireOptions {
            streamed: true,
            thought_field: Some("reasoning_content".into()),
            completion_limit: cached,
            custom_tools: cached,
            cached,
        };
        let body = wire.encode_request(request, &form).to_string();
        let path = wire.endpoint_path(&request.model, form.streamed);
        let back = wire
            .decode_request(&path, body.as_bytes())
            .unwrap_or_else(|error| panic!("{error}\n{body}"));
        assert!(back.streamed);
        // Every field of a request has a debug form, but tool sets have no equality.
        let mut expected = read_back(wire, request);
        if cached && matches!(wire, Wire::Anthropic | Wire::Bedrock) {
            expected.options.cache = CacheControl::Marked;
        }
        assert_eq!(
            format!("{:#?}", back.request),
            format!("{expected:#?}"),
            "{body}"
        );
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
    fn openai_responses_requests_come_back(request in request(Wire::OpenAiResponses)) {
        check(Wire::OpenAiResponses, &request);
    }

    #[test]
    fn budgets_come_back(tokens in 1024_u64..5000, room in 1_u64..5000) {
        let mut request = Request { model: "m".into(), messages: vec![Message::user("hi")].into(), ..Request::default() };
        request.reasoning = ReasoningConfig::Tokens(tokens);
        request.max_output_tokens = Some(tokens + room);
        check(Wire::Anthropic, &request);
    }

    #[test]
    fn reasoning_settings_survive_a_second_encoding(tokens in any::<u64>(), limit in proptest::option::of(1_u64..99_999), model in "(m|claude-opus-4-8|gemini-2.5-pro|gemini-3-pro|gpt-oss)") {
        for wire in Wire::ALL {
            for thinking in [ReasoningConfig::Tokens(tokens), ReasoningConfig::Effort(ReasoningEffort::Minimal), ReasoningConfig::Effort(ReasoningEffort::High)] {
                let request = Request { model: model.clone(), max_output_tokens: limit, reasoning: thinking, ..Request::default() };
                let body = wire.encode_request(&request, &WireOptions::default());
                if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
                    prop_assert!(budget >= 1024 && budget < body["max_tokens"].as_u64().unwrap(), "{}", body);
                }
                let path = wire.endpoint_path(&request.model, false);
                let back = wire.decode_request(&path, body.to_string().as_bytes()).unwrap().request.reasoning;
                // The decoded request encodes to the same body.
                let again = wire.encode_request(&Request { reasoning: back, ..request.clone() }, &WireOptions::default());
                prop_assert_eq!(again, body);
            }
        }
    }

    #[test]
    fn gemini_requests_come_back(request in request(Wire::Gemini)) {
        check(Wire::Gemini, &request);
    }

    #[test]
    fn ollama_requests_come_back(request in request(Wire::Ollama)) {
        check(Wire::Ollama, &request);
    }

    #[test]
    fn no_body_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for wire in Wire::ALL {
            let _ = wire.decode_request("", &bytes);
        }
    }
}

pub(crate) fn history() -> Vec<Message> {
    let call = |id: &str| {
        MessagePart::Call(Call {
            id: CallId::new(id),
            name: "f".into(),
            arguments: Map::new(),
            dialect: None,
        })
    };
    let result = |id: &str, ending| {
        MessagePart::Result(CallResult {
            id: CallId::new(id),
            name: "f".into(),
            ending,
            content: "no".into(),
            images: Vec::new(),
        })
    };
    let foreign = OpaqueState {
        wire: "other".into(),
        origin: None,
        data: json!({"x": 1}),
    };
    vec![
        Message {
            role: Role::Assistant,
            parts: vec![
                MessagePart::Thought {
                    text: "unsigned".into(),
                    opaque: None,
                },
                MessagePart::Opaque(foreign),
                MessagePart::text(" \n"),
                call("functions.f:0"),
                call("b"),
            ],
        },
        Message {
            role: Role::User,
            parts: vec![
                MessagePart::text("early words"),
                result("functions.f:0", ToolResultStatus::Denied),
            ],
        },
        Message {
            role: Role::User,
            parts: vec![result("b", ToolResultStatus::Done)],
        },
    ]
}

#[test]
fn anthropic_bodies_have_required_members() {
    let request = Request {
        model: "m".into(),
        messages: history().into(),
        ..Request::default()
    };
    let body = Wire::Anthropic.encode_request(&request, &WireOptions::default());
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(
        messages.len(),
        2,
        "one message for each role in turn: {body:#}"
    );
    let id = messages[0]["content"][0]["id"].as_str().unwrap();
    assert!(
        id.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'),
        "{id}"
    );
    let kinds = |message: &Value| -> Vec<String> {
        message["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        kinds(&messages[0]),
        ["tool_use", "tool_use"],
        "no blank text, no unsigned or foreign thought"
    );
    assert_eq!(
        kinds(&messages[1]),
        ["tool_result", "tool_result", "text"],
        "results first"
    );
    assert_eq!(messages[1]["content"][0]["tool_use_id"], id);
    assert_eq!(
        (
            &messages[1]["content"][0]["is_error"],
            &messages[1]["content"][1]["is_error"]
        ),
        (&json!(true), &Value::Null)
    );
    assert_eq!(
        (&body["max_tokens"], &body["system"], &body["tools"]),
        (&json!(8192), &Value::Null, &Value::Null)
    );
}

#[test]
fn cache_marks_are_at_the_ends() {
    let check = |last: MessagePart, marked: bool| {
        let messages = vec![
            Message::user("hi"),
            Message {
                role: Role::Assistant,
                parts: vec![MessagePart::text("a"), last],
            },
        ];
        let request = Request {
            model: "m".into(),
            system: "Be brief.".into(),
            messages: messages.into(),
            ..Request::default()
        };
        for cached in [false, true] {
            let body = Wire::Anthropic.encode_request(
                &request,
                &WireOptions {
                    cached,
                    ..WireOptions::default()
                },
            );
            let mark = |block: &Value| block["cache_control"] == json!({"type": "ephemeral"});
            let blocks = &body["messages"][1]["content"];
            assert_eq!(
                (mark(&body["system"][0]), mark(&blocks[1])),
                (cached, cached && marked),
                "{body:#}"
            );
            assert!(
                !mark(&blocks[0]) && !mark(&body["messages"][0]["content"][0]),
                "{body:#}"
            );
        }
    };
    check(MessagePart::text("b"), true);
    check(
        MessagePart::Call(Call {
            id: CallId::new("c"),
            name: "f".into(),
            arguments: Map::new(),
            dialect: None,
        }),
        true,
    );
    // The API refuses marks on thoughts.
    let data = json!({"type": "thinking", "signature": "s"});
    let opaque = OpaqueState {
        wire: "anthropic".into(),
        origin: None,
        data,
    };
    check(
        MessagePart::Thought {
            text: "hm".into(),
            opaque: Some(opaque),
        },
        false,
    );
}

#[test]
fn thinking_cannot_begin_inside_a_tool_loop() {
    let call = MessagePart::Call(Call {
        id: CallId::new("c"),
        name: "f".into(),
        arguments: Map::new(),
        dialect: None,
    });
    let result = CallResult {
        id: CallId::new("c"),
        name: "f".into(),
        ending: ToolResultStatus::Done,
        content: "ok".into(),
        images: Vec::new(),
    };
    let signed = |data: Value| {
        MessagePart::Opaque(OpaqueState {
            wire: "anthropic".into(),
            origin: None,
            data,
        })
    };
    let cool = || SamplingParams {
        temperature: Some(0.5),
        ..SamplingParams::default()
    };
    let thinks = |parts: Vec<MessagePart>, reply: MessagePart| {
        let reply = Message {
            role: Role::User,
            parts: vec![reply],
        };
        let messages = vec![
            Message::user("hi"),
            Message {
                role: Role::Assistant,
                parts,
            },
            reply,
        ];
        let thinking = ReasoningConfig::Tokens(2000);
        let request = Request {
            model: "m".into(),
            messages: messages.into(),
            reasoning: thinking,
            sampling: cool(),
            ..Request::default()
        };
        let body = Wire::Anthropic.encode_request(&request, &WireOptions::default());
        // It accepts a temperature exactly when it does not think.
        assert_eq!(
            body["temperature"].is_null(),
            !body["thinking"].is_null(),
            "{body:#}"
        );
        !body["thinking"].is_null()
    };
    assert!(!thinks(
        vec![call.clone()],
        MessagePart::Result(result.clone())
    ));
    assert!(thinks(
        vec![
            signed(json!({"type": "redacted_thinking", "data": "x"})),
            call.clone()
        ],
        MessagePart::Result(result)
    ));
    assert!(
        thinks(vec![call], MessagePart::text("go on")),
        "a turn of its own"
    );
}

#[test]
fn parameters_decode_in_the_forms_of_hosts() {
    let check = |wire: Wire, members: Value, expected: ReasoningConfig| {
        let mut body = json!({"model": "m", "messages": []});
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        let read = wire
            .decode_request("", body.to_string().as_bytes())
            .unwrap();
        assert_eq!(read.request.reasoning, expected, "{members}");
    };
    let high = ReasoningConfig::Effort(ReasoningEffort::High);
    check(Wire::OpenAiChat, json!({"reasoning_effort": "xhigh"}), high);
    check(
        Wire::OpenAiChat,
        json!({"reasoning_effort": null, "reasoning": {"effort": "high"}}),
        high,
    );
    check(
        Wire::OpenAiChat,
        json!({"reasoning": {"max_tokens": 7}}),
        ReasoningConfig::Tokens(7),
    );
    check(
        Wire::OpenAiChat,
        json!({"reasoning": {"enabled": false}}),
        ReasoningConfig::Off,
    );
    check(
        Wire::Anthropic,
        json!({"thinking": {"type": "adaptive"}}),
        high,
    );
    check(
        Wire::Anthropic,
        json!({"output_config": {"effort": "max"}}),
        high,
    );
    check(
        Wire::Anthropic,
        json!({"thinking": {"type": "enabled", "budget_tokens": 1}}),
        ReasoningConfig::Tokens(1),
    );
    check(
        Wire::Anthropic,
        json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}),
        ReasoningConfig::Off,
    );
    let body = json!({"model": "m", "messages": [], "thinking": {"type": "enabled"}});
    let error = Wire::Anthropic
        .decode_request("", body.to_string().as_bytes())
        .unwrap_err();
    assert_eq!(error.path, "thinking.budget_tokens");
}

#[test]
fn openai_chat_bodies_have_required_members() {
    let request = Request {
        model: "m".into(),
        messages: history().into(),
        max_output_tokens: Some(9),
        ..Request::default()
    };
    let body = Wire::OpenAiChat.encode_request(
        &request,
        &WireOptions {
            completion_limit: true,
            custom_tools: true,
            ..WireOptions::default()
        },
    );
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["assistant", "tool", "user", "tool"]);
    assert_eq!(
        messages[1]["tool_call_id"],
        messages[0]["tool_calls"][0]["id"]
    );
    assert_eq!(
        (&body["max_completion_tokens"], &body["stream"]),
        (&json!(9), &Value::Null)
    );
}

#[test]
fn system_messages_join_the_system_prompt() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let instructions =
        json!({"role": "system", "content": [{"type": "text", "text": "No, long."}]});
    let body = json!({"model": "m", "system": "Be short.", "messages": [user("a"), instructions, user("b")]});
    let request = Wire::Anthropic
        .decode_request("", body.to_string().as_bytes())
        .unwrap()
        .request;
    assert_eq!(request.system, "Be short.\n\nNo, long.");
    assert_eq!(request.messages.len(), 1);
}

#[test]
fn errors_name_their_place() {
    let check = |wire: Wire, body: Value, expected: &str| {
        assert_eq!(
            wire.decode_request("", body.to_string().as_bytes())
                .unwrap_err()
                .to_string(),
            expected
        );
    };
    check(
        Wire::Anthropic,
        json!({"model": "m", "messages": [{"role": "x"}]}),
        "messages[0].role: expected `user`, `assistant` or `system`, found \"x\"",
    );
    check(
        Wire::OpenAiChat,
        json!({"messages": []}),
        "model: expected a string, found null",
    );
    check(
        Wire::OpenAiChat,
        json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:x"}}]}]}),
        "messages[0].content[0].image_url.url: expected a base64 data URL, or an address, found \"file:x\"",
    );
}
