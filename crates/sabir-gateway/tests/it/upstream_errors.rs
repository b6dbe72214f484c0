//! Tests what clients learn when the model's provider refuses or fails: status, headers and words.

use sabir_gateway::RouteTable;
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::json;

use crate::test_gateway::{FRONTS, Got, TestGateway, body, route_on};

/// Starts a gateway with the model `openai` on Chat Completions and `anthropic` on Messages, whose
/// provider always gives this reply.
async fn start_gateway(reply: ProviderReply) -> TestGateway {
    let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| reply.clone())).await;
    let routes = RouteTable::default()
        .with_route("openai", route_on(&setup.provider, Wire::OpenAiChat))
        .with_route("anthropic", route_on(&setup.provider, Wire::Anthropic));
    setup.gateway.replace_routes(routes);
    setup
}

async fn ask(setup: &TestGateway, front: Wire, model: &str, streamed: bool) -> Got {
    let (_, path) = FRONTS
        .into_iter()
        .find(|(known, _)| *known == front)
        .unwrap();
    let mut body = body(front, "x", streamed);
    body["model"] = json!(model);
    setup.ask(path, &body).await
}

/// Returns the header lines of a response whose names contain one of these words.
fn header_lines<'g>(got: &'g Got, words: &[&str]) -> Vec<&'g str> {
    let mut lines: Vec<_> = got
        .head
        .lines()
        .filter(|line| words.iter().any(|word| line.contains(word)))
        .collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn waits_and_limits_reach_the_client_in_its_own_form() {
    let openai = ProviderReply::error_status(429)
        .with_header("retry-after", "7")
        .with_header("x-ratelimit-remaining-requests", "0")
        .with_header("x-ratelimit-reset-requests", "6.5s");
    let anthropic = ProviderReply::error_status(429)
        .with_header("retry-after-ms", "1500")
        .with_header("anthropic-ratelimit-requests-remaining", "0")
        .with_header("anthropic-ratelimit-requests-reset", "1970-01-01T00:00:07Z");
    let openai_lines = [
        "retry-after: 7",
        "x-ratelimit-remaining-requests: 0",
        "x-ratelimit-reset-requests: 6.5s",
    ];
    let converted_to_anthropic = [
        "anthropic-ratelimit-requests-remaining: 0",
        "anthropic-ratelimit-requests-reset: 1970-01-01t00:00:07z",
        "retry-after: 7",
    ];
    let converted_to_openai = [
        "retry-after-ms: 1500",
        "retry-after: 2",
        "x-ratelimit-remaining-requests: 0",
        "x-ratelimit-reset-requests: 7s",
    ];
    let anthropic_lines = [
        "anthropic-ratelimit-requests-remaining: 0",
        "anthropic-ratelimit-requests-reset: 1970-01-01t00:00:07z",
        "retry-after-ms: 1500",
        "retry-after: 2",
    ];
    let rows: [(&ProviderReply, &str, Wire, &[&str]); 6] = [
        (&openai, "openai", Wire::OpenAiChat, &openai_lines),
        (&openai, "openai", Wire::OpenAiResponses, &openai_lines),
        (&openai, "openai", Wire::Anthropic, &converted_to_anthropic),
        (&openai, "openai", Wire::Ollama, &["retry-after: 7"]),
        (
            &anthropic,
            "anthropic",
            Wire::OpenAiChat,
            &converted_to_openai,
        ),
        (&anthropic, "anthropic", Wire::Anthropic, &anthropic_lines),
    ];
    for (reply, model, front, expected) in rows {
        let setup = start_gateway(reply.clone()).await;
        for streamed in [true, false] {
            let got = ask(&setup, front, model, streamed).await;
            assert_eq!(got.status, 429, "{front} {got:?}");
            assert_eq!(
                header_lines(&got, &["retry", "ratelimit"]),
                expected,
                "{front} {got:?}"
            );
        }
    }
}

#[tokio::test]
async fn limits_are_in_the_head_of_an_answer_too() {
    let whole = json!({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]});
    let reply = ProviderReply::error_status(200)
        .with_body(&whole.to_string())
        .with_header("x-ratelimit-remaining-tokens", "149984");
    let setup = start_gateway(reply).await;
    for (front, name) in [
        (Wire::OpenAiChat, "x-ratelimit-remaining-tokens"),
        (Wire::OpenAiResponses, "x-ratelimit-remaining-tokens"),
        (Wire::Anthropic, "anthropic-ratelimit-tokens-remaining"),
    ] {
        for streamed in [true, false] {
            let got = ask(&setup, front, "openai", streamed).await;
            assert_eq!(got.read(front).0.text(), "hello", "{got:?}");
            let expected = format!("{name}: 149984");
            assert_eq!(header_lines(&got, &["ratelimit"]), [expected], "{got:?}");
        }
    }
}

/// Some proxies name the key whose limits the headers state.
#[tokio::test]
async fn headers_about_limits_do_not_show_the_key() {
    let whole = json!({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]});
    let reply = ProviderReply::error_status(200)
        .with_body(&whole.to_string())
        .with_header("x-ratelimit-key", "sk-secret-1-of-the-provider");
    let setup = start_gateway(reply).await;
    let got = ask(&setup, Wire::OpenAiChat, "openai", false).await;
    let lines = header_lines(&got, &["ratelimit"]);
    assert_eq!(lines, ["x-ratelimit-key: [secret]"], "{got:?}");
}

#[tokio::test]
async fn headers_do_not_show_the_key_in_a_name_or_the_address() {
    let whole = json!({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]});
    for status in [200, 429] {
        let server = TestGateway::new(ReplyScript::from_fn(move |_, _| {
            ProviderReply::error_status(status)
        }))
        .await;
        let place = server.provider.address().to_string();
        let reply = ProviderReply::error_status(status)
            .with_body(&whole.to_string())
            .with_header("x-ratelimit-SK-secret-1-of-the-provider", "1")
            .with_header("x-ratelimit-host", "http://127.0.0.1/v1")
            .with_header("x-should-retry", &format!("at {place}"));
        let setup = start_gateway(reply).await;
        let got = ask(&setup, Wire::OpenAiChat, "openai", false).await;
        let lines = header_lines(&got, &["ratelimit", "should"]);
        assert_eq!(
            lines,
            [
                "x-ratelimit-host: http://[address]/v1",
                &format!(
                    "x-should-retry: at [address]:{}",
                    server.provider.address().port()
                ),
            ],
            "{got:?}"
        );
    }
}

/// Every member of an answer may have it, and clients of the same wire see most of them.
#[tokio::test]
async fn answers_do_not_show_the_key() {
    let key = "sk-secret-1-of-the-provider";
    let escaped = r"sk\u002dsecret-1-of-the-provider";
    let whole = format!(
        r#"{{"id": "id-{key}", "system_fingerprint": "{key}", "x": {{"{escaped}": "{escaped}"}},
        "choices": [{{"message": {{"content": "hello {key}", "reasoning_content": "{key}",
        "tool_calls": [{{"id": "{key}", "type": "function", "function": {{"name": "f", "arguments": "{{\"a\": \"sk\\u002dsecret-1-of-the-provider\"}}"}}}}]}},
        "logprobs": {{"content": [{{"token": "{key}"}}]}}, "finish_reason": "{key}"}}]}}"#
    );
    let reply = ProviderReply::error_status(200).with_body(&whole);
    let setup = start_gateway(reply).await;
    for (front, _) in FRONTS {
        for streamed in [true, false] {
            let got = ask(&setup, front, "openai", streamed).await;
            assert_eq!(
                got.read(front).0.text(),
                "hello [secret]",
                "{front} {got:?}"
            );
            assert!(!got.text().contains("-of-the-provider"), "{front} {got:?}");
        }
    }
}

/// A part of the key would be left at the cut, which is not found any more.
#[tokio::test]
async fn a_cut_error_does_not_show_a_part_of_the_key() {
    let key = "sk-secret-1-of-the-provider";
    let long = format!("{}{key}", "x".repeat(576));
    let quoted = json!({"error": {"message": long}}).to_string();
    let raw = json!({"error": {"message": "e", "metadata": {"raw": long}}}).to_string();
    let replies = [
        ProviderReply::error_status(400).with_body(&quoted),
        ProviderReply::error_status(400).with_body(&raw),
        ProviderReply::error_status(500).with_body(&long),
        ProviderReply::error_status(500).with_body(&format!("{}{key}", " ".repeat(65_526))),
        ProviderReply::text("x").with_fault(ScriptedFault::Error {
            code: "api_error".to_owned(),
            message: long,
        }),
    ];
    for reply in replies {
        let setup = start_gateway(reply.clone()).await;
        for (front, _) in FRONTS {
            for streamed in [true, false] {
                let got = ask(&setup, front, "openai", streamed).await;
                let text = got.text();
                assert!(!text.contains("sk-secr"), "{front} {reply:?} {text}");
                assert!(text.contains("[secret]"), "{front} {reply:?} {text}");
            }
        }
    }
}

#[tokio::test]
async fn a_compressed_answer_is_an_error_that_says_so() {
    let reply = |status: u16| {
        ProviderReply::error_status(status)
            .with_body("\u{1f}\u{8b}")
            .with_header("content-encoding", "gzip")
    };
    for (status, expected) in [(200, 502), (400, 400)] {
        let setup = start_gateway(reply(status)).await;
        for (front, _) in FRONTS {
            for streamed in [true, false] {
                let got = ask(&setup, front, "openai", streamed).await;
                assert_eq!(got.status, expected, "{front} {got:?}");
                assert!(
                    got.text().contains("compressed its answer (`gzip`)"),
                    "{got:?}"
                );
            }
        }
    }
    let plain = ProviderReply::error_status(200)
        .with_body(r#"{"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}"#)
        .with_header("content-encoding", "identity");
    let setup = start_gateway(plain).await;
    let got = ask(&setup, Wire::OpenAiChat, "openai", false).await;
    assert_eq!(got.read(Wire::OpenAiChat).0.text(), "hello", "{got:?}");
}

#[tokio::test]
async fn a_failure_of_the_provider_is_not_an_overload() {
    let rows = [
        (500, 500, "api_error", 500, "server_error"),
        (502, 502, "api_error", 502, "server_error"),
        (503, 529, "overloaded_error", 503, "server_error"),
        (504, 504, "timeout_error", 504, "server_error"),
        (529, 529, "overloaded_error", 503, "server_error"),
        (402, 402, "billing_error", 402, "invalid_request_error"),
        (
            422,
            422,
            "invalid_request_error",
            422,
            "invalid_request_error",
        ),
        (401, 502, "api_error", 502, "server_error"),
    ];
    for (status, on_anthropic, anthropic, on_openai, openai) in rows {
        let setup = start_gateway(ProviderReply::error_status(status)).await;
        let got = ask(&setup, Wire::Anthropic, "openai", true).await;
        assert_eq!(
            (got.status, got.json()["error"]["type"].as_str()),
            (on_anthropic, Some(anthropic)),
            "{status}"
        );
        let got = ask(&setup, Wire::OpenAiChat, "openai", true).await;
        assert_eq!(
            (got.status, got.json()["error"]["type"].as_str()),
            (on_openai, Some(openai)),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_used_up_quota_is_named_as_openai_names_it() {
    let body = json!({"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}});
    let reply = ProviderReply::error_status(429).with_body(&body.to_string());
    let setup = start_gateway(reply).await;
    let got = ask(&setup, Wire::OpenAiChat, "openai", true).await;
    assert_eq!(
        (got.status, got.json()["error"]["code"].as_str()),
        (429, Some("insufficient_quota")),
        "{got:?}"
    );
}

/// Clients begin their compaction where they find these words, whatever the model's server said.
#[tokio::test]
async fn a_history_that_is_too_long_is_reported_in_the_words_of_the_front() {
    let vllm = json!({"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).", "type": "BadRequestError", "code": 400});
    let own = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 5000 tokens > 4096 maximum"}});
    for (model, reply) in [("openai", vllm), ("anthropic", own)] {
        let reply = ProviderReply::error_status(400).with_body(&reply.to_string());
        let setup = start_gateway(reply).await;
        for streamed in [true, false] {
            let got = ask(&setup, Wire::Anthropic, model, streamed).await;
            let error = got.json()["error"].clone();
            assert_eq!(
                (got.status, &error["message"]),
                (
                    400,
                    &json!("prompt is too long: 5000 tokens > 4096 maximum")
                ),
                "{got:?}"
            );
            for front in [Wire::OpenAiChat, Wire::OpenAiResponses] {
                let got = ask(&setup, front, model, streamed).await;
                let error = got.json()["error"].clone();
                assert_eq!(
                    (got.status, &error["code"], &error["type"]),
                    (
                        400,
                        &json!("context_length_exceeded"),
                        &json!("invalid_request_error")
                    ),
                    "{got:?}"
                );
                let message = error["message"].as_str().unwrap_or_default();
                assert!(
                    message.contains("maximum context length is 4096 tokens")
                        && message.contains("5000"),
                    "{message}"
                );
            }
        }
    }
}

/// The operator reads the address of the server in the log; clients read neither it nor a key.
#[tokio::test]
async fn errors_show_clients_no_address_and_no_key() {
    let setup = TestGateway::new(ReplyScript::new([])).await;
    let place = setup.provider.address().to_string();
    let quoted = json!({"error": {"message": format!("http://{place}/v1 and 10.0.0.8:8000 refused sk-secret-1-of-the-provider")}});
    let replies = [
        ProviderReply::error_status(400).with_body(&quoted.to_string()),
        ProviderReply::error_status(401).with_body(&quoted.to_string()),
        ProviderReply::error_status(404).with_body(&quoted.to_string()),
        ProviderReply::error_status(429).with_body(&quoted.to_string()),
        ProviderReply::error_status(500).with_body(&quoted.to_string()),
        ProviderReply::error_status(502).with_body(&format!("<html>{place}</html>")),
        ProviderReply::error_status(200).with_body(&format!("<html>{place}</html>")),
        ProviderReply::default().with_fault(sabir_testkit::ScriptedFault::CutAfter(0)),
        ProviderReply::text("x").with_fault(sabir_testkit::ScriptedFault::Error {
            code: "api_error".to_owned(),
            message: format!("lost {place}"),
        }),
    ];
    let mut logged = 0;
    for reply in replies {
        let setup = start_gateway(reply.clone()).await;
        let port = setup.provider.address().port().to_string();
        for (front, _) in FRONTS {
            for streamed in [true, false] {
                let got = ask(&setup, front, "openai", streamed).await;
                let text = got.text();
                for secret in [port.as_str(), "10.0.0.8", "sk-secret", "127.0.0.1"] {
                    assert!(!text.contains(secret), "{front} {secret} {reply:?} {text}");
                }
                assert!(got.status != 200 || text.contains("error"), "{text}");
            }
        }
        let ends = setup.ends(2 * FRONTS.len()).await;
        logged += ends
            .iter()
            .filter(|end| {
                end.error
                    .as_ref()
                    .is_some_and(|error| error.contains(&port))
            })
            .count();
    }
    assert!(logged > 0);
    // A server that does not answer at all.
    let gone = TestGateway::new(ReplyScript::new([])).await;
    let absent = sabir_testkit::ScriptedProvider::start(ReplyScript::new([]))
        .await
        .unwrap();
    let port = absent.address().port().to_string();
    gone.gateway.replace_routes(
        RouteTable::default().with_route("openai", route_on(&absent, Wire::OpenAiChat)),
    );
    drop(absent);
    let got = ask(&gone, Wire::OpenAiChat, "openai", true).await;
    assert_eq!(got.status, 502, "{got:?}");
    assert!(!got.text().contains(&port), "{got:?}");
    let ends = gone.ends(1).await;
    assert!(
        ends[0]
            .error
            .as_ref()
            .is_some_and(|error| error.contains(&port)),
        "{ends:?}"
    );
}
