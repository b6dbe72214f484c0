//! Tests that nothing is lost between a client and a provider of the same wire.

use sabir_call::ToolProtocol;
use sabir_gateway::{ModelLimits, ModelRoute, RepairMode, RouteTable};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::repairs::runnable;
use crate::test_gateway::{Got, TestGateway, route, route_on};

/// Starts a gateway whose model speaks that wire.
async fn start_gateway(wire: Wire, script: ReplyScript) -> TestGateway {
    let setup = TestGateway::new(script).await;
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route_on(&setup.provider, wire)));
    setup
}

/// A body of each wire with members that the common form has no place for, on every level.
fn rich_body(wire: Wire) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let function = json!({"name": "read_file", "parameters": schema, "x_tool": 1});
    match wire {
        Wire::OpenAiChat => json!({
            "model": "model", "max_tokens": 99, "min_p": 0.1, "chat_template_kwargs": {"enable_thinking": false},
            "guided_json": {"type": "object"}, "structured_outputs": {"regex": "a+"}, "logit_bias": {"5": -1},
            "logprobs": true, "top_logprobs": 3, "metadata": {"a": "b"}, "repetition_penalty": 1.1, "user": "u",
            "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},
            "tools": [{"type": "function", "function": function, "x": 2}],
            "messages": [
                {"role": "system", "content": "first", "x": 3},
                {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "video_url", "video_url": {"url": "http://v"}}]},
                {"role": "developer", "content": "in the middle", "name": "d"},
                {"role": "user", "content": "b"},
            ],
        }),
        Wire::Anthropic => json!({
            "model": "model", "max_tokens": 99, "context_management": {"edits": []}, "mcp_servers": [{"type": "url", "url": "http://m", "name": "m"}],
            "container": "c_1", "inference_geo": "eu", "stream": true, "x_unknown": {"deep": [1, {"a": null}]},
            "system": [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"type": "text", "text": "two"}],
            "tools": [{"name": "read_file", "input_schema": schema, "cache_control": {"type": "ephemeral"}, "defer_loading": true}, {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}],
            "messages": [{"role": "user", "content": [
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "citations": {"enabled": true}, "title": "t"},
                {"type": "container_upload", "file_id": "f"}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            ]}],
        }),
        Wire::OpenAiResponses => json!({
            "model": "model", "max_output_tokens": 99, "instructions": "i", "max_tool_calls": 3, "context_management": [{"type": "compaction"}],
            "prompt_cache_retention": "24h", "x_unknown": 1, "truncation": "auto", "stream": true, "store": false,
            "include": ["reasoning.encrypted_content", "file_search_call.results"],
            "tools": [{"type": "function", "name": "read_file", "parameters": schema, "x": 1}, {"type": "web_search", "filters": {"allowed_domains": ["a"]}}],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}}]},
                {"type": "message", "role": "developer", "content": "in the middle"},
                {"role": "user", "content": "b", "x": 1},
            ],
        }),
        _ => json!({
            "model": "model", "stream": true, "keep_alive": "5m", "truncate": false, "x_unknown": [1],
            "options": {"num_ctx": 4096, "mirostat": 1, "num_predict": 99},
            "tools": [{"type": "function", "function": function}],
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a", "x": 1}],
        }),
    }
}

const PATHS: [(Wire, &str); 4] = [
    (Wire::OpenAiChat, "/v1/chat/completions"),
    (Wire::Anthropic, "/v1/messages"),
    (Wire::OpenAiResponses, "/v1/responses"),
    (Wire::Ollama, "/api/chat"),
];

#[tokio::test]
async fn a_provider_of_the_same_wire_gets_the_body_of_the_client() {
    for (wire, path) in PATHS {
        let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello")).with_any_body();
        let setup = start_gateway(wire, script).await;
        let sent = rich_body(wire);
        let got = setup.ask(path, &sent).await;
        assert_eq!(got.status, 200, "{wire} {}", got.text());
        let mut expected = sent;
        expected["model"] = json!("behind");
        let requests = setup.provider.received_requests();
        assert_eq!(requests[0].body, expected, "{wire}");
    }
}

#[tokio::test]
async fn feedback_is_added_to_the_history_of_the_client() {
    const BROKEN: &str =
        "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": oops}}\n</tool_call>";
    for (wire, path) in PATHS {
        let script = ReplyScript::from_fn(|turn, _| {
            ProviderReply::text(if turn == 0 { BROKEN } else { "hello" })
        })
        .with_any_body();
        let setup = start_gateway(wire, script).await;
        let route = ModelRoute {
            repair_mode: RepairMode::Retry(1),
            ..route_on(&setup.provider, wire)
        };
        setup
            .gateway
            .replace_routes(RouteTable::default().with_route("model", route));
        let sent = rich_body(wire);
        let got = setup.ask(path, &sent).await;
        assert_eq!(got.status, 200, "{wire} {}", got.text());
        let requests = setup.provider.received_requests();
        let [first, second] = requests.as_slice() else {
            panic!("{wire} {}", requests.len())
        };
        let key = wire.history_member();
        let history = |body: &Value| body[key].as_array().cloned().unwrap();
        let (asked, again) = (history(&first.body), history(&second.body));
        assert_eq!(again[..asked.len()], asked, "{wire}");
        assert!(again.len() > asked.len(), "{wire}");
        let mut rest = second.body.clone();
        rest[key] = first.body[key].clone();
        assert_eq!(rest, first.body, "{wire}");
    }
}

/// OpenRouter and LiteLLM answer with another model if a request has these members.
#[tokio::test]
async fn a_client_cannot_choose_a_model_that_the_gateway_does_not_serve() {
    for (wire, path) in PATHS {
        let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello")).with_any_body();
        let setup = start_gateway(wire, script).await;
        let mut sent = rich_body(wire);
        let mut expected = sent.clone();
        expected["model"] = json!("behind");
        sent["models"] = json!(["other"]);
        sent["fallbacks"] = json!([{"model": ["other"]}]);
        let got = setup.ask(path, &sent).await;
        assert_eq!(got.status, 200, "{wire} {}", got.text());
        assert_eq!(
            setup.provider.received_requests()[0].body,
            expected,
            "{wire}"
        );
    }
}

/// The common form moves instructions and splits messages at them; the client's own history has all
/// of it already.
#[tokio::test]
async fn instructions_in_the_midst_of_a_history_are_sent_once() {
    const BROKEN: &str =
        "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": oops}}\n</tool_call>";
    for (wire, path) in PATHS {
        let script = ReplyScript::from_fn(|turn, _| {
            ProviderReply::text(if turn == 0 { BROKEN } else { "hello" })
        })
        .with_any_body();
        let setup = start_gateway(wire, script).await;
        let route = ModelRoute {
            repair_mode: RepairMode::Retry(1),
            ..route_on(&setup.provider, wire)
        };
        setup
            .gateway
            .replace_routes(RouteTable::default().with_route("model", route));
        let key = wire.history_member();
        let mut sent = rich_body(wire);
        sent[key] = json!([
            {"role": "user", "content": "a"}, {"role": "system", "content": "between"}, {"role": "user", "content": "b"},
        ]);
        let got = setup.ask(path, &sent).await;
        assert_eq!(got.status, 200, "{wire} {}", got.text());
        let requests = setup.provider.received_requests();
        let histories: Vec<_> = requests
            .iter()
            .map(|request| request.body[key].as_array().cloned().unwrap())
            .collect();
        assert_eq!(json!(histories[0]), sent[key], "{wire}");
        assert_eq!(histories[1][..3], histories[0][..], "{wire}");
        let added = json!(histories[1][3..]).to_string();
        assert!(
            added.contains("oops") && !added.contains("between"),
            "{wire} {added}"
        );
    }
}

/// Without its history, a request would be answered as if nothing had been said.
#[tokio::test]
async fn a_history_that_must_be_written_anew_is_refused_if_it_cannot_be_read() {
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello")).with_any_body();
    let setup = start_gateway(Wire::OpenAiChat, script).await;
    let video = json!([{"type": "video_url", "video_url": {"url": "http://v"}}, {"type": "text", "text": "a"}]);
    let mut sent = json!({"model": "model", "messages": [{"role": "user", "content": video}]});
    sent["tools"] = json!([{"type": "custom", "custom": {"name": "patch"}}]);
    let got = setup.ask("/v1/chat/completions", &sent).await;
    assert_eq!(got.status, 200, "{}", got.text());
    sent["tools"] = json!([]);
    let got = setup.ask("/v1/chat/completions", &sent).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let route = ModelRoute {
        protocol: ToolProtocol::Prompted("hermes".to_owned()),
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    let got = setup.ask("/v1/chat/completions", &sent).await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(
        got.text().contains("messages[0].content[0]"),
        "{}",
        got.text()
    );
    // The history before was not written anew.
    let requests = setup.provider.received_requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.body["messages"], sent["messages"]);
    }
}

#[tokio::test]
async fn a_prompted_model_gets_the_members_beside_the_history() {
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello")).with_any_body();
    let setup = start_gateway(Wire::OpenAiChat, script).await;
    let route = ModelRoute {
        protocol: ToolProtocol::Prompted("hermes".to_owned()),
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    let mut sent = rich_body(Wire::OpenAiChat);
    sent["messages"] = json!([{"role": "user", "content": "a"}]);
    let got = setup.ask("/v1/chat/completions", &sent).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let requests = setup.provider.received_requests();
    let body = &requests[0].body;
    for member in ["min_p", "chat_template_kwargs", "guided_json", "logprobs"] {
        assert_eq!(body[member], sent[member], "{body}");
    }
    assert_eq!(body.get("tools"), None, "{body}");
}

/// A stream of Chat Completions with everything that servers add, and with a call in the text.
fn rich_stream() -> String {
    let chunk = |delta: Value, more: Value| {
        let mut choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        let members = choice.as_object_mut().unwrap();
        members.extend(more.as_object().cloned().unwrap());
        json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "system_fingerprint": "fp_1", "service_tier": "flex", "choices": [choice]})
    };
    let probability = |token: &str| json!({"logprobs": {"content": [{"token": token, "logprob": -0.5, "top_logprobs": []}]}});
    let chunks = [
        chunk(
            json!({"role": "assistant", "content": "Hello"}),
            probability("Hello"),
        ),
        chunk(json!({"reasoning": "hm"}), json!({})),
        chunk(
            json!({"content": " there", "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]}),
            probability(" there"),
        ),
        chunk(
            json!({"content": "\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}\n</tool_call>"}),
            probability("<tool_call>"),
        ),
        chunk(
            json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "other", "arguments": "{}"}, "extra_content": {"signature": "s"}}]}),
            json!({}),
        ),
        chunk(
            json!({}),
            json!({"finish_reason": "tool_calls", "stop_reason": 151645}),
        ),
        json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "cost": 0.5, "completion_tokens_details": {"reasoning_tokens": 1, "accepted_prediction_tokens": 0}}}),
    ];
    let mut body: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    body.push_str("data: [DONE]\n\n");
    body
}

#[tokio::test]
async fn a_client_of_the_same_wire_gets_what_the_provider_adds() {
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: rich_stream(),
    });
    let setup = start_gateway(
        Wire::OpenAiChat,
        ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body(),
    )
    .await;
    let mut sent = rich_body(Wire::OpenAiChat);
    let got = setup.ask("/v1/chat/completions", &sent).await;
    let text = got.text();
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["system_fingerprint"] == "fp_1" && chunk["service_tier"] == "flex"),
        "{text}"
    );
    let first = &chunks[0]["choices"][0];
    assert_eq!(
        (
            &first["delta"]["content"],
            &first["logprobs"]["content"][0]["token"]
        ),
        (&json!("Hello"), &json!("Hello"))
    );
    for part in [
        r#""delta":{"reasoning":"hm"}"#,
        r#""annotations":[{"type":"url_citation""#,
        r#""name":"other","arguments":""},"extra_content":{"signature":"s"}}"#,
        r#""stop_reason":151645"#,
        r#""cost":0.5"#,
        r#""accepted_prediction_tokens":0"#,
        r#""reasoning_tokens":1"#,
    ] {
        assert!(text.contains(part), "{part} {text}");
    }
    let (draft, _) = got.read(Wire::OpenAiChat);
    assert_eq!(
        runnable(&draft),
        [r#"read_file {"path":"a.rs"}"#, "other {}"],
        "{text}"
    );

    sent["stream"] = json!(false);
    let whole = setup.ask("/v1/chat/completions", &sent).await.json();
    let choice = &whole["choices"][0];
    let tokens = choice["logprobs"]["content"].as_array().map(Vec::len);
    assert_eq!(
        (
            tokens,
            &whole["system_fingerprint"],
            &whole["usage"]["cost"],
            &choice["stop_reason"],
            &choice["message"]["reasoning"],
            choice["message"]["annotations"].as_array().map(Vec::len)
        ),
        (
            Some(3),
            &json!("fp_1"),
            &json!(0.5),
            &json!(151_645),
            &json!("hm"),
            Some(1)
        ),
        "{whole}"
    );
}

/// Starts a gateway whose provider answers with these chunks.
async fn start_with_chunks(chunks: &[Value]) -> TestGateway {
    let mut body: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    body.push_str("data: [DONE]\n\n");
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body,
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    start_gateway(Wire::OpenAiChat, script).await
}

/// Perplexity repeats its list of sources in each chunk.
#[tokio::test]
async fn a_list_that_each_chunk_repeats_does_not_grow() {
    let sources = json!(["https://a.example", "https://b.example"]);
    let chunks: Vec<_> = (0..50)
        .map(|count| {
            json!({
                "id": "c", "citations": sources, "usage": {"prompt_tokens": 1, "completion_tokens": count, "costs": [count]},
                "choices": [{"index": 0, "delta": {"content": "w "}, "finish_reason": if count == 49 { json!("stop") } else { Value::Null }}],
            })
        })
        .collect();
    let setup = start_with_chunks(&chunks).await;
    for streamed in [true, false] {
        let asked = crate::test_gateway::body(Wire::OpenAiChat, "x", streamed);
        let text = setup.ask("/v1/chat/completions", &asked).await.text();
        let lines = text.lines().filter_map(|line| {
            let line = line.strip_prefix("data: ").unwrap_or(line);
            serde_json::from_str::<Value>(line).ok()
        });
        for whole in lines {
            assert_eq!(whole["citations"], sources, "{whole}");
            if let Some(usage) = whole.get("usage") {
                assert_eq!(usage["costs"], json!([49]), "{whole}");
            }
        }
    }
}

/// Clients would take a piece of a call that has no name for a call.
#[tokio::test]
async fn a_call_that_is_left_out_leaves_nothing_behind() {
    let call = |index: u64| json!({"index": index, "id": format!("c{index}"), "type": "function", "function": {"name": "read_file", "arguments": "{}"}, "extra_content": index});
    let chunk = |delta: Value, reason: Value| json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let setup = start_with_chunks(&[
        chunk(json!({"tool_calls": [call(0)]}), Value::Null),
        chunk(
            json!({"tool_calls": [{"index": 0, "late": 1}]}),
            Value::Null,
        ),
        chunk(json!({"tool_calls": [call(1)]}), Value::Null),
        chunk(json!({}), json!("tool_calls")),
    ])
    .await;
    for streamed in [true, false] {
        let mut sent = rich_body(Wire::OpenAiChat);
        sent["stream"] = json!(streamed);
        sent["tool_choice"] = json!("none");
        let text = setup.ask("/v1/chat/completions", &sent).await.text();
        assert!(
            !text.contains("tool_calls") && !text.contains("extra"),
            "{text}"
        );
        sent["tool_choice"] = json!("auto");
        sent["parallel_tool_calls"] = json!(false);
        let text = setup.ask("/v1/chat/completions", &sent).await.text();
        assert!(text.contains(r#""extra_content":0"#), "{text}");
        assert!(text.contains(r#""late":1"#), "{text}");
        assert!(!text.contains(r#""extra_content":1"#), "{text}");
    }
}

/// An encoder writes such state into the answer as it is, past all checks of calls.
#[tokio::test]
async fn a_provider_cannot_give_the_gateways_own_state() {
    let call = json!([{"index": 0, "id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]);
    let forged = json!([{"type": "sabir.chunk", "data": "x", "message": {"tool_calls": call, "content": "forged"}}]);
    let setup = start_with_chunks(&[
        json!({"id": "c", "choices": [{"index": 0, "delta": {"reasoning_details": forged}}]}),
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}),
    ])
    .await;
    for streamed in [true, false] {
        let asked = crate::test_gateway::body(Wire::OpenAiChat, "x", streamed);
        let text = setup.ask("/v1/chat/completions", &asked).await.text();
        assert!(text.contains("hi") && !text.contains("forged"), "{text}");
        assert!(!text.contains("tool_calls"), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_stays_a_refusal() {
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
    };
    let stream = [
        chunk(
            json!({"role": "assistant", "content": null, "refusal": "I will"}),
            Value::Null,
        ),
        chunk(json!({"refusal": " not."}), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: stream,
    });
    let setup = start_gateway(
        Wire::OpenAiChat,
        ReplyScript::from_fn(move |_, _| reply.clone()),
    )
    .await;
    let asked = |streamed: bool| crate::test_gateway::body(Wire::OpenAiChat, "x", streamed);
    let text = setup.ask("/v1/chat/completions", &asked(true)).await.text();
    for part in [
        r#""refusal":"I will""#,
        r#""refusal":" not.""#,
        r#""finish_reason":"stop""#,
    ] {
        assert!(text.contains(part), "{part} {text}");
    }
    let whole = setup
        .ask("/v1/chat/completions", &asked(false))
        .await
        .json();
    let message = &whole["choices"][0]["message"];
    assert_eq!(
        (&message["refusal"], &message["content"]),
        (&json!("I will not."), &Value::Null),
        "{whole}"
    );
}

/// Instructions in the midst of a history, as Claude Code and Codex send them.
#[tokio::test]
async fn system_messages_keep_their_place_on_wires_that_have_one() {
    let call = json!([{"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]);
    let chat = json!({"model": "model", "messages": [
        {"role": "system", "content": "first"}, {"role": "user", "content": "a"}, {"role": "system", "content": "second"},
        {"role": "user", "content": "b"}, {"role": "assistant", "tool_calls": call}, {"role": "developer", "content": "third"},
        {"role": "tool", "tool_call_id": "c1", "content": "r"}, {"role": "system", "content": "last"},
    ]});
    let spoken = |item: &Value| {
        let role = item["role"].as_str().or(item["type"].as_str()).unwrap();
        let text = item["content"]
            .as_str()
            .or(item["content"][0]["text"].as_str());
        format!("{role} {}", text.unwrap_or("-"))
    };
    let rows = [
        (
            Wire::OpenAiResponses,
            "input",
            [
                "user a",
                "developer second",
                "user b",
                "function_call -",
                "function_call_output -",
                "developer third",
                "developer last",
            ]
            .as_slice(),
        ),
        (
            Wire::Ollama,
            "messages",
            &[
                "system first",
                "user a",
                "system second",
                "user b",
                "assistant ",
                "tool r",
                "system third",
                "system last",
            ],
        ),
    ];
    for (wire, key, expected) in rows {
        let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello")).with_any_body();
        let setup = start_gateway(wire, script).await;
        let got = setup.ask("/v1/chat/completions", &chat).await;
        assert_eq!(got.status, 200, "{wire} {}", got.text());
        let body = setup.provider.received_requests()[0].body.clone();
        let found: Vec<_> = body[key].as_array().unwrap().iter().map(spoken).collect();
        assert_eq!(found, expected, "{wire}: {body}");
    }
    // Where there is no such place, all of them are in the system prompt.
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello"));
    let setup = start_gateway(Wire::Anthropic, script).await;
    setup.ask("/v1/chat/completions", &chat).await;
    let body = setup.provider.received_requests()[0].body.to_string();
    assert!(body.contains(r"first\n\nsecond\n\nthird\n\nlast"), "{body}");
    // From a front whose own API has them, to Chat Completions.
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello"));
    let setup = start_gateway(Wire::OpenAiChat, script).await;
    let anthropic = json!({"model": "model", "max_tokens": 9, "system": "first", "messages": [
        {"role": "user", "content": "a"}, {"role": "system", "content": "second"}, {"role": "user", "content": "b"},
    ]});
    setup.ask("/v1/messages", &anthropic).await;
    let body = setup.provider.received_requests()[0].body.clone();
    let found: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(spoken)
        .collect();
    assert_eq!(found, ["system first", "user a", "system second", "user b"]);
}

#[tokio::test]
async fn annotations_and_probabilities_of_responses_reach_the_client() {
    let cited = |start: u64| json!({"type": "url_citation", "url": "https://example.com", "title": "T", "start_index": start, "end_index": start + 2});
    let part = |text: &str, annotations: Value| json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": [{"token": text, "logprob": -1}]});
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [part("Grün is ", json!([cited(1)])), part("moss.", json!([cited(2)]))]});
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "output": [item],
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}});
    let mut begun = item.clone();
    begun["content"] = json!([]);
    begun["status"] = json!("in_progress");
    let delta = |number: u64, text: &str| json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": number, "delta": text});
    let events = [
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        delta(0, "Grün is "),
        delta(1, "moss."),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response}),
    ];
    let stream: String = events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect();
    // The positions in the second part follow the text of the first.
    let expected = json!([cited(1), cited(10)]);
    for (body, kind, streamed) in [
        (stream, "text/event-stream", true),
        (response.to_string(), "application/json", false),
    ] {
        let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
            content_type: Some(kind.to_owned()),
            body,
        });
        let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
        let setup = start_gateway(Wire::OpenAiResponses, script).await;
        let mut asked = rich_body(Wire::OpenAiResponses);
        asked["stream"] = json!(streamed);
        asked["top_logprobs"] = json!(1);
        asked["include"] = json!(["message.output_text.logprobs"]);
        let got = setup.ask("/v1/responses", &asked).await;
        let sent = setup.provider.received_requests()[0].body.clone();
        assert_eq!(
            (&sent["top_logprobs"], &sent["include"][0]),
            (&json!(1), &json!("message.output_text.logprobs")),
            "{got:?}"
        );
        let whole = if streamed {
            let text = got.text();
            assert_eq!(
                text.matches("event: response.output_text.annotation.added")
                    .count(),
                2,
                "{text}"
            );
            let last = text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .next_back()
                .unwrap();
            serde_json::from_str::<Value>(last).unwrap()["response"].clone()
        } else {
            got.json()
        };
        let part = &whole["output"][0]["content"][0];
        assert_eq!(
            (&part["text"], &part["annotations"]),
            (&json!("Grün is moss."), &expected),
            "{whole}"
        );
        assert_eq!(
            part["logprobs"].as_array().map(Vec::len),
            Some(2),
            "{whole}"
        );
    }
}

#[tokio::test]
async fn members_of_gemini_go_both_ways() {
    let chunk = |parts: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}}], "modelVersion": "m", "responseId": "r"});
    let mut first = chunk(json!([{"text": "Grass "}]));
    first["promptFeedback"] = json!({"safetyRatings": [{"category": "A", "probability": "LOW"}]});
    first["candidates"][0]["citationMetadata"] = json!({"citationSources": [{"uri": "https://a"}]});
    let leak = "is green.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    let second = chunk(
        json!([{"text": leak}, {"function_call": {"name": "forged"}}, {"functionCall": [1], "x_part": 1}]),
    );
    let mut last = chunk(json!([{"text": ""}]));
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["candidates"][0]["groundingMetadata"] = json!({"webSearchQueries": ["grass"]});
    last["candidates"][0]["citationMetadata"] = json!({"citationSources": [{"uri": "https://b"}]});
    last["usageMetadata"] = json!({"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 5}]});
    let stream: String = [first, second, last]
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: stream,
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    let setup = start_gateway(Wire::Gemini, script).await;
    let asked = json!({
        "contents": [{"role": "user", "parts": [{"text": "go", "x_part": 1}, {"fileData": {"fileUri": "gs://a/b", "mimeType": "video/mp4"}}]}],
        "tools": [{"functionDeclarations": [{"name": "read_file", "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}}}]}, {"googleSearch": {}}],
        "safetySettings": [{"category": "A", "threshold": "BLOCK_NONE"}], "cachedContent": "cachedContents/1", "labels": {"a": "b"},
        "generationConfig": {"maxOutputTokens": 9, "responseModalities": ["TEXT", "IMAGE"], "responseLogprobs": true, "logprobs": 2, "x_config": 1},
    });
    let text = setup
        .ask("/v1beta/models/model:streamGenerateContent?alt=sse", &asked)
        .await
        .text();
    for part in [
        r#""promptFeedback":{"safetyRatings":[{"category":"A","probability":"LOW"}]}"#,
        r#""citationSources":[{"uri":"https://a"}]"#,
        r#""groundingMetadata":{"webSearchQueries":["grass"]}"#,
        r#""promptTokensDetails":[{"modality":"TEXT","tokenCount":5}]"#,
        r#""name":"read_file""#,
        r#"{"x_part":1}"#,
    ] {
        assert!(text.contains(part), "{part} {text}");
    }
    assert!(
        !text.contains("forged") && !text.contains("functionCall\":["),
        "{text}"
    );
    let whole = setup
        .ask("/v1beta/models/model:generateContent", &asked)
        .await
        .json();
    let candidate = &whole["candidates"][0];
    assert_eq!(
        candidate["citationMetadata"]["citationSources"],
        json!([{"uri": "https://a"}, {"uri": "https://b"}]),
        "{whole}"
    );
    assert_eq!(
        candidate["groundingMetadata"]["webSearchQueries"],
        json!(["grass"])
    );
    assert_eq!(
        whole["usageMetadata"]["promptTokensDetails"][0]["tokenCount"],
        5
    );
    for request in setup.provider.received_requests() {
        assert_eq!(request.body, asked);
    }
}

/// Gemini's API takes each member in two spellings, and names the model in the path.
#[tokio::test]
async fn limits_of_a_gemini_model_hold_in_every_spelling() {
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("application/json".to_owned()),
        body:
            json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]})
                .to_string(),
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    let setup = TestGateway::new(script).await;
    let limits = ModelLimits {
        output: Some(50),
        never_thinks: true,
    };
    let route = ModelRoute {
        limits,
        ..route_on(&setup.provider, Wire::Gemini)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    let contents = json!([{"role": "user", "parts": [{"text": "go"}]}]);
    let path = "/v1beta/models/model:generateContent";
    let ask = async |more: Value| {
        let mut asked = json!({"model": "models/other", "contents": contents});
        let members = more.as_object().cloned().unwrap();
        asked.as_object_mut().unwrap().extend(members);
        setup.ask(path, &asked).await
    };
    let snake =
        json!({"max_output_tokens": 9000, "thinking_config": {"thinking_budget": 99}, "seed": 1});
    let camel =
        json!({"maxOutputTokens": 9000, "thinkingConfig": {"thinkingBudget": 99}, "seed": 1});
    for config in [&snake, &camel] {
        for key in ["generationConfig", "generation_config"] {
            let got = ask(json!({key: config})).await;
            assert_eq!(got.status, 200, "{}", got.text());
        }
    }
    let expected =
        json!({"contents": contents, "generationConfig": {"maxOutputTokens": 50, "seed": 1}});
    let requests = setup.provider.received_requests();
    assert_eq!(requests.len(), 4);
    for request in requests {
        assert_eq!(request.body, expected);
    }
    let got = ask(json!({"generationConfig": {"seed": 1}, "generation_config": snake})).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("generationConfig"), "{}", got.text());
}

/// A stream of two choices, interleaved, of which the second leaks its call into text.
fn two_choices() -> String {
    let chunk = |choices: Value| json!({"id": "c", "object": "chat.completion.chunk", "system_fingerprint": "fp", "choices": choices});
    let piece = |index: u64, delta: Value| {
        chunk(json!([{"index": index, "delta": delta, "finish_reason": null}]))
    };
    let end = |index: u64, reason: &str| {
        chunk(json!([{"index": index, "delta": {}, "finish_reason": reason}]))
    };
    let native = json!([{"index": 0, "id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}]);
    let mut logged = piece(0, json!({"content": " zero"}));
    logged["choices"][0]["logprobs"] = json!({"content": [{"token": "zero"}]});
    let mut usage = chunk(json!([]));
    usage["usage"] =
        json!({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14, "x_counts": 1});
    let chunks = [
        piece(
            1,
            json!({"role": "assistant", "content": "I read.\n<tool_call>\n{\"name\": \"read"}),
        ),
        piece(0, json!({"role": "assistant", "content": "Choice"})),
        // Both in one chunk.
        chunk(json!([
            {"index": 0, "delta": {"content": " number"}, "finish_reason": null},
            {"index": 1, "delta": {"content": "_file\", \"arguments\": {\"path\": "}, "finish_reason": null},
        ])),
        logged,
        piece(0, json!({"tool_calls": native})),
        end(0, "tool_calls"),
        piece(1, json!({"content": "\"b\"}}\n</tool_call>"})),
        end(1, "stop"),
        usage,
    ];
    let events: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    format!("{events}data: [DONE]\n\n")
}

/// A gateway after an exchange, with the response of it.
struct Exchange {
    setup: TestGateway,
    got: Got,
}

async fn ask_choices(reply: &str, content_type: &str, asked: &Value) -> Exchange {
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some(content_type.to_owned()),
        body: reply.to_owned(),
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    let setup = start_gateway(Wire::OpenAiChat, script).await;
    let headers = "sabir-report: 1\r\n";
    let request = setup.request("POST", "/v1/chat/completions", headers, &asked.to_string());
    let got = setup.raw(&request).await;
    Exchange { setup, got }
}

/// The choices of a stream, put together: text, calls with their arguments, and the reason.
fn joined_choices(text: &str) -> Vec<Value> {
    let mut choices = vec![json!({"text": "", "calls": [], "reasons": []}); 2];
    let chunks = text.lines().filter_map(|line| line.strip_prefix("data: "));
    for chunk in chunks.filter(|chunk| *chunk != "[DONE]") {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        for choice in chunk["choices"].as_array().unwrap() {
            let known = &mut choices[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()];
            let more = choice["delta"]["content"].as_str().unwrap_or_default();
            known["text"] = json!(format!("{}{more}", known["text"].as_str().unwrap()));
            for call in choice["delta"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let calls = known["calls"].as_array_mut().unwrap();
                let function = &call["function"];
                let arguments = function["arguments"].as_str().unwrap_or_default();
                if function["name"].is_string() {
                    calls.push(json!({"name": function["name"], "arguments": arguments}));
                } else {
                    let last = calls.last_mut().unwrap();
                    last["arguments"] = json!(format!(
                        "{}{arguments}",
                        last["arguments"].as_str().unwrap()
                    ));
                }
            }
            if choice["finish_reason"].is_string() {
                known["reasons"]
                    .as_array_mut()
                    .unwrap()
                    .push(choice["finish_reason"].clone());
            }
        }
    }
    choices
}

#[tokio::test]
async fn each_of_several_choices_is_repaired_on_its_own() {
    let mut asked = rich_body(Wire::OpenAiChat);
    asked["n"] = json!(2);
    let Exchange { setup, got } = ask_choices(&two_choices(), "text/event-stream", &asked).await;
    let text = got.text();
    let call = |path: &str| json!([{"name": "read_file", "arguments": format!("{{\"path\":\"{path}\"}}")}]);
    let choices = joined_choices(&text);
    assert_eq!(
        choices[0],
        json!({"text": "Choice number zero", "calls": call("a"), "reasons": ["tool_calls"]}),
        "{text}"
    );
    assert_eq!(choices[1]["reasons"], json!(["tool_calls"]), "{text}");
    assert_eq!(
        choices[1]["text"].as_str().unwrap().trim(),
        "I read.",
        "{text}"
    );
    let arguments: Value =
        serde_json::from_str(choices[1]["calls"][0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"path": "b"}), "{text}");
    for part in [
        r#""logprobs":{"content":[{"token":"zero"}]}"#,
        r#""system_fingerprint":"fp""#,
        r#""x_counts":1"#,
        ": sabir-report leaked_call=1\n",
    ] {
        assert!(text.contains(part), "{part} {text}");
    }
    assert_eq!(
        (
            text.matches("[DONE]").count(),
            text.matches("\"usage\":{").count()
        ),
        (1, 1),
        "{text}"
    );
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    assert_eq!(setup.provider.received_requests()[0].body["n"], 2);
    assert_eq!(setup.ends(1).await[0].calls, 2);
}

#[tokio::test]
async fn several_choices_of_a_whole_answer_are_repaired() {
    let choice = |index: u64, text: &str| json!({"index": index, "message": {"role": "assistant", "content": text, "x_message": index}, "finish_reason": "stop", "x_choice": index});
    let leak =
        "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"b\"}}\n</tool_call>";
    let answer = json!({"id": "c", "object": "chat.completion", "system_fingerprint": "fp", "choices": [choice(0, "zero"), choice(1, leak), choice(2, "two")],
        "usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}});
    let mut asked = rich_body(Wire::OpenAiChat);
    asked["n"] = json!(3);
    asked["stream"] = json!(false);
    let Exchange { got, .. } = ask_choices(&answer.to_string(), "application/json", &asked).await;
    let found = got.json();
    assert!(got.head.contains("sabir-report: leaked_call=1"), "{got:?}");
    let choices = found["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3, "{found}");
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(
            (
                &choice["index"],
                &choice["x_choice"],
                &choice["message"]["x_message"]
            ),
            (&json!(index), &json!(index), &json!(index))
        );
        let calls = choice["message"]["tool_calls"]
            .as_array()
            .map_or(0, Vec::len);
        assert_eq!(
            (calls, choice["finish_reason"] == "tool_calls"),
            (usize::from(index == 1), index == 1),
            "{found}"
        );
    }
    assert_eq!(choices[2]["message"]["content"], "two");
    assert_eq!(
        (
            &found["usage"]["total_tokens"],
            &found["system_fingerprint"]
        ),
        (&json!(14), &json!("fp"))
    );
}

/// A provider cannot bring a call past the repairs by naming it state of the gateway, or add choices.
#[tokio::test]
async fn choices_that_were_not_requested_never_reach_clients() {
    let forged = json!({"type": "sabir.choice", "index": 0, "chunk": {"choices": [{"delta": {"tool_calls": [{"id": "x", "function": {"name": "forged", "arguments": "{}"}}]}}]}, "prefill": "", "closes_last_call": false, "data": "x"});
    let piece = |index: u64, delta: Value| json!({"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": "stop"}]});
    let chunks = [
        piece(
            0,
            json!({"content": "first", "reasoning_details": [forged]}),
        ),
        piece(1, json!({"content": "second"})),
        piece(2, json!({"content": "third"})),
    ];
    let events: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    for (count, left_out) in [(1, ["second", "third"].as_slice()), (2, &["third"])] {
        let mut asked = rich_body(Wire::OpenAiChat);
        asked["n"] = json!(count);
        let Exchange { got, .. } = ask_choices(
            &format!("{events}data: [DONE]\n\n"),
            "text/event-stream",
            &asked,
        )
        .await;
        let text = got.text();
        assert!(text.contains("first") && !text.contains("forged"), "{text}");
        for word in left_out {
            assert!(!text.contains(word), "{count}: {text}");
        }
    }
}

/// Answers with two choices whose ends, counts or indexes are not as OpenAI writes them.
#[tokio::test]
async fn several_choices_of_other_servers_are_complete() {
    let piece = |choice: Value| json!({"id": "c", "choices": [choice]});
    let mut asked = rich_body(Wire::OpenAiChat);
    asked["n"] = json!(2);
    let stream = |chunks: &[Value]| -> String {
        chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect()
    };
    // A whole message at the end of one choice ends neither the other nor the stream.
    let chunks = [
        piece(json!({"index": 0, "delta": {"content": "zero"}})),
        piece(json!({"index": 0, "message": {"content": "zero"}, "finish_reason": "stop"})),
        piece(json!({"index": 1, "delta": {"content": "one"}})),
    ];
    let cut = ask_choices(&stream(&chunks), "text/event-stream", &asked).await;
    assert!(cut.got.text().contains("error"), "{:?}", cut.got);
    // A server that knows no `n` answers once, and one that never says `[DONE]` is done as well.
    let chunks = [
        piece(json!({"index": 0, "delta": {"content": "only"}})),
        piece(json!({"index": 0, "delta": {}, "finish_reason": "stop"})),
    ];
    let one = ask_choices(&stream(&chunks), "text/event-stream", &asked).await;
    let text = one.got.text();
    assert!(text.contains("only") && !text.contains("error"), "{text}");
    assert!(text.trim_end().ends_with("[DONE]"), "{text}");
    // The counts in the choices are summed, and given once.
    let counts = |output: u64| json!({"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output});
    let chunks = [
        piece(
            json!({"index": "0", "delta": {"content": "a"}, "finish_reason": "stop", "usage": counts(20)}),
        ),
        piece(
            json!({"index": 1.0, "delta": {"content": "b"}, "finish_reason": "stop", "usage": counts(30)}),
        ),
    ];
    let counted = ask_choices(&stream(&chunks), "text/event-stream", &asked).await;
    let text = counted.got.text();
    assert_eq!(
        text.matches("\"completion_tokens\":50").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("\"prompt_tokens\":10").count(), 1, "{text}");
    assert_eq!(counted.setup.ends(1).await[0].output, Some(50));
    // Without indexes, the places in the list tell the choices apart.
    asked["stream"] = json!(false);
    let whole = json!({"choices": [{"message": {"content": "A"}}, {"message": {"content": "B"}}]});
    let whole = ask_choices(&whole.to_string(), "application/json", &asked).await;
    let found = whole.got.json();
    let contents = [0, 1].map(|index| found["choices"][index]["message"]["content"].clone());
    assert_eq!(contents, ["A", "B"], "{found}");
}

/// What belongs to a chunk is not copied for each of its choices, and one chunk has each choice once.
#[tokio::test]
async fn a_chunk_with_many_choices_stays_small() {
    let mut asked = rich_body(Wire::OpenAiChat);
    asked["n"] = json!(128);
    let choices = vec![json!({}); 100_000];
    let chunk = json!({"id": "c", "pad": "x".repeat(1 << 20), "choices": choices});
    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    let Exchange { got, .. } = ask_choices(&body, "text/event-stream", &asked).await;
    assert!(got.body.len() < 4 << 20, "{}", got.body.len());
}

#[tokio::test]
async fn the_number_of_choices_is_a_whole_number() {
    let mut asked = rich_body(Wire::OpenAiChat);
    for count in [json!("2"), json!(2.0), json!(-1), json!(129), json!([2])] {
        asked["n"] = count.clone();
        let Exchange { setup, got } = ask_choices("", "text/event-stream", &asked).await;
        assert_eq!(got.status, 400, "{count}: {got:?}");
        assert!(
            got.text().contains("a whole number from 1 to 128"),
            "{got:?}"
        );
        assert!(setup.provider.received_requests().is_empty(), "{count}");
    }
}

/// In a prompted protocol tools and history are written anew, also for the same wire.
#[tokio::test]
async fn members_that_a_prompted_protocol_loses_are_reported() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))).await;
    let mut asked = crate::test_gateway::body(Wire::OpenAiChat, "go", false);
    asked["min_p"] = json!(0.1);
    asked["messages"][0]["x_message"] = json!(1);
    asked["tools"][0]["function"]["x_tool"] = json!(1);
    for (protocol, report) in [
        (ToolProtocol::Native, "sabir-report: none\r\n"),
        (
            ToolProtocol::Prompted("hermes".to_owned()),
            "sabir-report: left_out:messages[].x_message=1, left_out:tools[].function.x_tool=1\r\n",
        ),
    ] {
        let changed = ModelRoute {
            protocol,
            ..route(&setup.provider)
        };
        setup
            .gateway
            .replace_routes(RouteTable::default().with_route("model", changed));
        let headers = "sabir-report: 1\r\n";
        let request = setup.request("POST", "/v1/chat/completions", headers, &asked.to_string());
        let got = setup.raw(&request).await;
        assert!(got.head.contains(report), "{got:?}");
    }
    let requests = setup.provider.received_requests();
    assert!(requests.iter().all(|request| request.body["min_p"] == 0.1));
}

#[tokio::test]
async fn choices_of_a_prompted_model_become_calls() {
    let call = |path: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"read_file\", \"arguments\": {{\"path\": \"{path}\"}}}}\n</tool_call>"
        )
    };
    let piece = |index: u64, text: &str| json!({"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": "stop"}]});
    let body = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        piece(1, &call("b")),
        piece(0, &call("a"))
    );
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body,
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    let setup = TestGateway::new(script).await;
    let prompted = ModelRoute {
        protocol: ToolProtocol::Prompted("hermes".to_owned()),
        repair_mode: RepairMode::Retry(2),
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", prompted));
    let mut asked = crate::test_gateway::body(Wire::OpenAiChat, "go", true);
    asked["n"] = json!(2);
    let text = setup.ask("/v1/chat/completions", &asked).await.text();
    for (index, choice) in joined_choices(&text).iter().enumerate() {
        let path = ["a", "b"][index];
        let arguments: Value =
            serde_json::from_str(choice["calls"][0]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"path": path}), "{text}");
        assert_eq!(choice["reasons"], json!(["tool_calls"]), "{text}");
    }
    let sent = setup.provider.received_requests()[0].body.clone();
    assert_eq!((&sent["n"], sent.get("tools")), (&json!(2), None), "{sent}");
}

#[tokio::test]
async fn a_broken_choice_is_an_error() {
    let cut = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"b";
    let piece = |index: u64, text: &str| json!({"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": "stop"}]});
    let mut asked = rich_body(Wire::OpenAiChat);
    asked["n"] = json!(2);
    let whole = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        piece(0, "zero"),
        piece(1, cut)
    );
    let text = ask_choices(&whole, "text/event-stream", &asked)
        .await
        .got
        .text();
    assert!(
        text.contains("\"error\"") && !text.contains("[DONE]"),
        "{text}"
    );
    // The connection breaks off before the second choice has ended.
    let mut begun = piece(1, "one");
    begun["choices"][0]["finish_reason"] = Value::Null;
    let half = format!("data: {}\n\ndata: {begun}\n\n", piece(0, "zero"));
    let text = ask_choices(&half, "text/event-stream", &asked)
        .await
        .got
        .text();
    assert!(
        text.contains("\"error\"") && !text.contains("[DONE]"),
        "{text}"
    );
    asked["n"] = json!(129);
    let Exchange { setup, got } = ask_choices(&half, "text/event-stream", &asked).await;
    assert_eq!(got.status, 400, "{got:?}");
    assert!(setup.provider.received_requests().is_empty());
}

/// Starts a gateway whose model answers each request with these events of Anthropic.
async fn start_with_events(events: &[Value]) -> TestGateway {
    let write = |event: &Value| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: events.iter().map(write).collect(),
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    start_gateway(Wire::Anthropic, script).await
}

/// Ends that could begin markup are held back until more is known, and must not come behind the block that follows.
#[tokio::test]
async fn blocks_of_anthropic_keep_their_ends_in_order() {
    let block = |index: u64, start: Value, deltas: &[Value]| {
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
    for end in ["[secret]", "a[", "a <", "a[0]"] {
        let tool = json!({"type": "tool_use", "id": "t", "name": "read_file", "input": {}});
        let events = [
            vec![json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}})],
            block(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[
                    json!({"type": "thinking_delta", "thinking": format!("thought {end}")}),
                    json!({"type": "signature_delta", "signature": "SIG"}),
                ],
            ),
            block(
                1,
                json!({"type": "text", "text": ""}),
                &[json!({"type": "text_delta", "text": format!("text {end}")})],
            ),
            block(
                2,
                tool,
                &[json!({"type": "input_json_delta", "partial_json": "{\"path\": \"a\"}"})],
            ),
            vec![
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ],
        ]
        .concat();
        let setup = start_with_events(&events).await;
        let mut asked = rich_body(Wire::Anthropic);
        asked["stream"] = json!(false);
        let request = setup.request("POST", "/v1/messages", "", &asked.to_string());
        let whole = setup.raw(&request).await.json();
        assert_eq!(
            whole["content"],
            json!([
                {"type": "thinking", "thinking": format!("thought {end}"), "signature": "SIG"},
                {"type": "text", "text": format!("text {end}")},
                {"type": "tool_use", "id": "t", "name": "read_file", "input": {"path": "a"}},
            ]),
            "{end}"
        );
    }
}

#[tokio::test]
async fn citations_and_beta_members_of_anthropic_go_both_ways() {
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "container": {"id": "c_1"},
            "usage": {"input_tokens": 5, "output_tokens": 1, "service_tier": "standard"}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grass "}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "g"}}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "is green."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "So is moss."}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}, "context_management": {"applied_edits": []},
            "usage": {"output_tokens": 9, "server_tool_use": {"web_search_requests": 1}}}),
        json!({"type": "message_stop"}),
    ];
    let setup = start_with_events(&events).await;
    let ask = |streamed: bool| {
        let mut asked = rich_body(Wire::Anthropic);
        asked["stream"] = json!(streamed);
        let headers = "anthropic-beta: context-management-2025-06-27,files-api-2025-04-14\r\n";
        let request = setup.request(
            "POST",
            "/v1/messages?beta=true",
            headers,
            &asked.to_string(),
        );
        let setup = &setup;
        async move { setup.raw(&request).await }
    };
    let text = ask(true).await.text();
    for part in [
        r#""container":{"id":"c_1"}"#,
        r#""service_tier":"standard""#,
        r#""type":"citations_delta","citation":{"type":"char_location","cited_text":"g"}"#,
        r#""stop_reason":"stop_sequence","stop_sequence":"END""#,
        r#""server_tool_use":{"web_search_requests":1}"#,
        r#""context_management":{"applied_edits":[]}"#,
        r#""index":1,"delta":{"type":"text_delta","text":"So is moss."#,
    ] {
        assert!(text.contains(part), "{part} {text}");
    }
    let requests = setup.provider.received_requests();
    assert_eq!(
        requests[0].header_value("anthropic-beta"),
        Some("context-management-2025-06-27,files-api-2025-04-14")
    );
    let whole = ask(false).await.json();
    let citations = json!([{"type": "char_location", "cited_text": "g"}]);
    assert_eq!(
        whole["content"],
        json!([{"type": "text", "text": "Grass is green.", "citations": citations}, {"type": "text", "text": "So is moss."}])
    );
    assert_eq!(
        (
            &whole["stop_sequence"],
            &whole["container"]["id"],
            &whole["usage"]["server_tool_use"]["web_search_requests"]
        ),
        (&json!("END"), &json!("c_1"), &json!(1)),
        "{whole}"
    );
}
