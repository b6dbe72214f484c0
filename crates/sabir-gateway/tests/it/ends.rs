//! Tests the ends of exchanges, by the client, the provider or the gateway. Each is reported once.

use std::time::Duration;

use sabir_call::{DraftState, ToolProtocol};
use sabir_gateway::{GatewayLimits, GatewaySettings, ModelRoute, RouteTable};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::test_gateway::{FRONTS, TestGateway, body, finished, got, route, settings, until};

/// An answer with text and a call, in many small pieces.
fn answer() -> ProviderReply {
    ProviderReply::text("Let me look.")
        .with_call("call_1", "read_file", json!({"path": "src/main.rs"}))
        .in_deltas(4)
}

fn slow(pause: u64) -> ProviderReply {
    ProviderReply {
        pause,
        ..answer().in_chunks(ChunkSplit::Size(200))
    }
}

#[tokio::test]
async fn a_client_may_disconnect_at_any_event() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| slow(15))).await;
    let mut left = 0;
    for (front, path) in FRONTS {
        let whole = setup.ask(path, &body(front, "x", true)).await;
        let ending = if front == Wire::Ollama { "\n" } else { "\n\n" };
        let events = whole.text().matches(ending).count();
        assert!(events >= 5, "{}", whole.text());
        // The last few may be written before the disconnect is noticed.
        for count in 0..events.min(8) {
            let mut stream = setup.open().await;
            stream
                .write_all(&setup.request("POST", path, "", &body(front, "x", true).to_string()))
                .await
                .unwrap();
            let mut seen = Vec::new();
            while String::from_utf8_lossy(&seen).matches(ending).count() < count {
                assert!(
                    stream.read_buf(&mut seen).await.unwrap() > 0,
                    "{}",
                    String::from_utf8_lossy(&seen)
                );
            }
            drop(stream);
            left += 1;
        }
    }
    let ends = setup.ends(left + FRONTS.len()).await;
    assert_eq!(setup.metric("sabir_gateway_requests_open").await, 1);
    let gone = ends.iter().filter(|end| !end.whole).count();
    until("the requests to the model to be left", || {
        setup.provider.abandoned_requests().len() >= gone
    })
    .await;
    assert!(gone >= left / 2, "{gone} of {left}");
    assert!(ends.iter().all(|end| end.error.is_none()), "{ends:?}");
}

#[tokio::test]
async fn a_client_that_disconnects_early_cancels_the_request_to_the_model() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| slow(40))).await;
    for streamed in [true, false] {
        for (front, path) in FRONTS {
            let before = setup.provider.abandoned_requests().len();
            let mut stream = setup.open().await;
            stream
                .write_all(&setup.request(
                    "POST",
                    path,
                    "",
                    &body(front, "x", streamed).to_string(),
                ))
                .await
                .unwrap();
            let count = setup.provider.received_requests().len();
            until("the request", || {
                setup.provider.received_requests().len() > count
                    || setup.provider.abandoned_requests().len() > before
            })
            .await;
            drop(stream);
            until("the model to be left", || {
                setup.provider.abandoned_requests().len() > before
            })
            .await;
        }
    }
    let ends = setup.ends(2 * FRONTS.len()).await;
    assert!(
        ends.iter().all(|end| !end.whole && end.error.is_none()),
        "{ends:?}"
    );
}

#[tokio::test]
async fn a_provider_failure_in_a_stream_is_an_error_event() {
    let troubles = [
        ScriptedFault::CutHalf,
        ScriptedFault::ResetAfter(900),
        ScriptedFault::TruncateAfter(900),
        ScriptedFault::EndAfter(900),
        ScriptedFault::Error {
            code: "overloaded_error".into(),
            message: "too much to do".into(),
        },
    ];
    let count = troubles.len();
    let setup = TestGateway::new(ReplyScript::from_fn(move |turn, _| {
        slow(1).with_fault(troubles[turn % count].clone())
    }))
    .await;
    for (front, path) in FRONTS {
        for number in 0..count {
            let got = setup.ask(path, &body(front, "x", true)).await;
            let (draft, report) = got.read(front);
            assert_eq!(got.status, 200, "{got:?}");
            assert!(report.error.is_some(), "{front} {number}: {}", got.text());
            assert!(
                number > 0 || draft.calls().all(|call| call.state != DraftState::Closed),
                "{front} {number}: {}",
                got.text()
            );
        }
    }
    let ends = setup.ends(count * FRONTS.len()).await;
    assert!(
        ends.iter()
            .all(|end| end.status == 200 && !end.whole && end.error.is_some()),
        "{ends:?}"
    );
    assert!(ends.iter().all(|end| end.model == "model"));
}

#[tokio::test]
async fn a_provider_failure_before_the_stream_is_a_status() {
    let script = ReplyScript::from_fn(|turn, _| match turn % 4 {
        0 => ProviderReply::error_status(429),
        1 => ProviderReply::error_status(500),
        2 => ProviderReply::default().with_fault(ScriptedFault::CutAfter(0)),
        _ => ProviderReply::error_status(400).with_body(
            "{\"error\": {\"message\": \"no such tool\", \"type\": \"invalid_request_error\"}}",
        ),
    });
    let setup = TestGateway::new(script).await;
    for streamed in [true, false] {
        for (front, path) in FRONTS {
            let mut statuses = Vec::new();
            for _ in 0..4 {
                statuses.push(setup.ask(path, &body(front, "x", streamed)).await.status);
            }
            assert_eq!((statuses[0], statuses[3]), (429, 400), "{statuses:?}");
            assert!(
                statuses[1..3]
                    .iter()
                    .all(|status| (500..530).contains(status)),
                "{statuses:?}"
            );
        }
    }
}

#[tokio::test]
async fn responses_in_flight_end_or_report_that_they_were_cut() {
    let settings = GatewaySettings {
        limits: GatewayLimits {
            drain: Duration::from_secs(2),
            ..GatewayLimits::default()
        },
        ..settings()
    };
    let script = ReplyScript::from_fn(|_, request| match request.last_text().as_str() {
        "short" => slow(20),
        _ => slow(1).with_fault(ScriptedFault::StallAfter(700)),
    });
    let mut setup = TestGateway::with(script, settings).await;
    let (mut short, mut endless) = (Vec::new(), Vec::new());
    for (front, path) in FRONTS {
        for (words, streams) in [("short", &mut short), ("endless", &mut endless)] {
            let mut stream = setup.open().await;
            stream
                .write_all(&setup.request("POST", path, "", &body(front, words, true).to_string()))
                .await
                .unwrap();
            streams.push((front, stream));
        }
    }
    let mut whole = setup.open().await;
    let asked = body(Wire::Anthropic, "endless", false);
    whole
        .write_all(&setup.request("POST", "/v1/messages", "", &asked.to_string()))
        .await
        .unwrap();
    until("all requests", || {
        setup.provider.received_requests().len() == 2 * FRONTS.len() + 1
    })
    .await;
    let idle = setup.open().await;
    setup.tell_to_end();
    // No new connection is accepted during the shutdown.
    let refused = async {
        while tokio::net::TcpStream::connect(setup.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::test_gateway::LONG, refused)
        .await
        .expect("a closed door");
    for (front, stream) in short {
        let got = finished(stream).await;
        let (draft, report) = got.read(front);
        assert_eq!(
            (report.error, draft.calls().count(), draft.has_open_calls()),
            (None, 1, false),
            "{}",
            got.text()
        );
    }
    for (front, stream) in endless {
        let got = finished(stream).await;
        let (draft, report) = got.read(front);
        assert!(
            report
                .error
                .is_some_and(|error| error.message.contains("shutting down")),
            "{}",
            got.text()
        );
        assert!(
            draft.calls().all(|call| call.state != DraftState::Closed),
            "{}",
            got.text()
        );
    }
    let got = finished(whole).await;
    assert!(matches!(got.status, 503 | 529), "{got:?}");
    drop(idle);
    setup.end().await;
    assert_eq!(
        setup
            .ends(2 * FRONTS.len() + 1)
            .await
            .iter()
            .filter(|end| end.whole)
            .count(),
        FRONTS.len()
    );
}

#[tokio::test]
async fn a_provider_that_dies_in_the_middle_of_a_call_ends_the_stream_and_not_the_gateway() {
    let mut setup = TestGateway::new(ReplyScript::from_fn(|_, _| slow(20))).await;
    let mut streams = Vec::new();
    for (front, path) in FRONTS {
        let mut stream = setup.open().await;
        stream
            .write_all(&setup.request("POST", path, "", &body(front, "x", true).to_string()))
            .await
            .unwrap();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("Let") {
            assert!(
                stream.read_buf(&mut seen).await.unwrap() > 0,
                "{}",
                String::from_utf8_lossy(&seen)
            );
        }
        streams.push((front, stream, seen));
    }
    setup.provider = sabir_testkit::ScriptedProvider::start(ReplyScript::new([]))
        .await
        .unwrap();
    for (front, mut stream, mut seen) in streams {
        _ = stream.read_to_end(&mut seen).await;
        let (draft, report) = got(&seen).read(front);
        assert!(report.error.is_some(), "{}", String::from_utf8_lossy(&seen));
        assert!(
            draft.calls().all(|call| call.state != DraftState::Closed),
            "{}",
            String::from_utf8_lossy(&seen)
        );
    }
    for (front, path) in FRONTS {
        assert_eq!(setup.ask(path, &body(front, "x", true)).await.status, 502);
    }
    assert_eq!(setup.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn routes_can_be_replaced_during_a_stream() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| slow(15))).await;
    let asked = body(Wire::Anthropic, "x", true);
    let streaming = setup.ask("/v1/messages", &asked);
    let replace = async {
        until("the request", || {
            !setup.provider.received_requests().is_empty()
        })
        .await;
        setup.gateway.replace_routes(
            sabir_gateway::RouteTable::default()
                .with_route("other", crate::test_gateway::route(&setup.provider)),
        );
        assert_eq!(setup.ask("/v1/messages", &asked).await.status, 404);
        assert!(setup.get("/v1/models").await.text().contains("other"));
    };
    let (got, ()) = tokio::join!(streaming, replace);
    assert_eq!(
        got.read(Wire::Anthropic).0.calls().count(),
        1,
        "{}",
        got.text()
    );
}

#[tokio::test]
async fn fields_that_the_provider_lacks_are_refused_or_left_out() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))).await;
    let mut asked = body(Wire::Anthropic, "x", true);
    let document = |source: Value| json!([{"type": "document", "source": source}]);
    asked["messages"][0]["content"] =
        document(json!({"type": "url", "url": "https://example.com/a.pdf"}));
    let got = setup.ask("/v1/messages", &asked).await;
    assert_eq!(
        (got.status, got.json()["error"]["type"].as_str()),
        (400, Some("invalid_request_error")),
        "{got:?}"
    );
    assert!(setup.provider.received_requests().is_empty());
    let mut asked = body(Wire::Anthropic, "x", true);
    asked["top_k"] = json!(5);
    assert_eq!(setup.ask("/v1/messages", &asked).await.status, 200);
    // The data of a PDF is a file of the other wire.
    asked["messages"][0]["content"] =
        document(json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}));
    assert_eq!(setup.ask("/v1/messages", &asked).await.status, 200);
    let sent = setup.provider.received_requests()[1].body.clone();
    assert_eq!(
        sent["messages"][0]["content"][0]["file"]["file_data"],
        "data:application/pdf;base64,JVBERg=="
    );
}

#[tokio::test]
async fn documents_and_tools_are_not_lost_in_a_prompted_protocol() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))).await;
    let prompted = ModelRoute {
        protocol: ToolProtocol::Prompted("hermes".to_owned()),
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", prompted));
    let mut asked = body(Wire::OpenAiResponses, "x", false);
    asked["tools"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "web_search"}));
    let request = setup.request(
        "POST",
        "/v1/responses",
        "sabir-report: 1\r\n",
        &asked.to_string(),
    );
    let got = setup.raw(&request).await;
    assert!(
        got.status == 200 && got.head.contains("left_out:tools=1"),
        "{got:?}"
    );
    asked["input"][0]["content"] = json!([
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
    ]);
    assert_eq!(setup.ask("/v1/responses", &asked).await.status, 400);
    assert_eq!(setup.provider.received_requests().len(), 1);
}

#[tokio::test]
async fn a_wish_to_keep_an_answer_is_reported_where_none_are_kept() {
    let limits = GatewayLimits {
        store: 0,
        ..GatewayLimits::default()
    };
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello"));
    let setup = TestGateway::with(
        script,
        GatewaySettings {
            limits,
            ..settings()
        },
    )
    .await;
    for (wish, is_reported) in [(true, true), (false, false)] {
        let mut asked = body(Wire::OpenAiResponses, "x", false);
        asked["store"] = json!(wish);
        let request = setup.request(
            "POST",
            "/v1/responses",
            "sabir-report: 1\r\n",
            &asked.to_string(),
        );
        let got = setup.raw(&request).await;
        assert_eq!(
            got.head.contains("left_out:store=1"),
            is_reported,
            "{got:?}"
        );
    }
}
