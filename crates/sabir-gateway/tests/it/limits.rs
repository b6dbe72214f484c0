//! Tests clients that are slow, silent, or exceed the limits.

use std::time::Duration;

use sabir_gateway::{GatewayLimits, GatewaySettings};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::test_gateway::{FRONTS, LONG, TOKEN, TestGateway, body, finished, settings, until};

fn limited(change: impl Fn(&mut GatewayLimits)) -> GatewaySettings {
    let mut settings = settings();
    change(&mut settings.limits);
    settings
}

fn hello() -> ReplyScript {
    ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))
}

/// The form of errors on each wire.
fn is_error_of(front: Wire, body: &serde_json::Value) -> bool {
    match front {
        Wire::Anthropic => body["type"] == "error" && body["error"]["message"].is_string(),
        Wire::Ollama => body["error"].is_string(),
        _ => body["error"]["message"].is_string() && body["error"].get("type").is_some(),
    }
}

#[tokio::test]
async fn errors_have_the_form_of_the_clients_api() {
    let setup = TestGateway::with(hello(), limited(|limits| limits.body = 1 << 20)).await;
    let large = "x".repeat(50 << 20);
    for (front, path) in FRONTS {
        let check = async |request: Vec<u8>, status: u16, words: &str| {
            let got = setup.raw(&request).await;
            assert_eq!(got.status, status, "{front}: {}", got.text());
            assert!(
                is_error_of(front, &got.json()) && got.text().contains(words),
                "{front}: {}",
                got.text()
            );
            assert!(
                got.head.contains("content-type: application/json"),
                "{}",
                got.head
            );
        };
        check(
            setup.request("POST", path, "", &large),
            413,
            "1048576 bytes",
        )
        .await;
        check(setup.request("POST", path, "", "{\"model\": "), 400, "EOF").await;
        check(setup.request("POST", path, "", ""), 400, "body").await;
        check(setup.request("POST", path, "", "[]"), 400, "").await;
        let mut unknown = body(front, "x", true);
        unknown["model"] = json!("mode1");
        check(
            setup.request("POST", path, "", &unknown.to_string()),
            404,
            "mode1",
        )
        .await;
        check(setup.request("GET", path, "", ""), 405, "POST").await;
        check(
            setup.request("POST", path, "Content-Encoding: zstd\r\n", "{}"),
            415,
            "zstd",
        )
        .await;
        let chunked = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nx-api-key: {TOKEN}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
            setup.address
        );
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20)).repeat(3);
        check(
            [chunked.as_bytes(), chunk.as_bytes(), b"0\r\n\r\n"].concat(),
            413,
            "1048576 bytes",
        )
        .await;
        let got = setup.ask(path, &body(front, "x", true)).await;
        assert_eq!(got.read(front).0.text(), "hello");
    }
    let ends = setup.ends(FRONTS.len() * 9).await;
    assert!(
        ends.iter()
            .all(|end| end.whole == (end.status == 200)
                && end.error.is_some() == (end.status != 200)),
        "{ends:?}"
    );
}

#[tokio::test]
async fn a_head_that_never_arrives_times_out() {
    let setup = TestGateway::with(
        hello(),
        limited(|limits| limits.head = Duration::from_secs(1)),
    )
    .await;
    let mut half = setup.open().await;
    half.write_all(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n")
        .await
        .unwrap();
    let got = finished(half).await;
    assert_eq!(
        (got.status, got.json()["error"]["type"].as_str()),
        (408, Some("timeout_error")),
        "{got:?}"
    );
    assert!(
        got.head
            .contains(&format!("content-length: {}\r\n", got.body.len())),
        "{got:?}"
    );
    let mut slow = setup.open().await;
    let (mut silent, mut other) = (setup.open().await, setup.open().await);
    // Sending single bytes does not extend the deadline.
    let drip = async {
        for byte in format!(
            "GET /v1/models HTTP/1.1\r\nHost: {}\r\nx: {}",
            setup.address,
            "y".repeat(10_000)
        )
        .bytes()
        {
            if slow.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody minds");
    };
    tokio::time::timeout(LONG, drip).await.unwrap();
    let mut rest = Vec::new();
    _ = tokio::time::timeout(LONG, silent.read_to_end(&mut rest))
        .await
        .expect("an end");
    assert!(rest.is_empty());
    other.shutdown().await.unwrap();
    let ends = setup.ends(2).await;
    assert!(
        ends.iter()
            .all(|end| (end.status, end.front) == (408, None)),
        "{ends:?}"
    );
    assert_eq!(setup.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_never_arrives_times_out() {
    let setup = TestGateway::with(
        hello(),
        limited(|limits| limits.upload = Duration::from_millis(300)),
    )
    .await;
    for (front, path) in FRONTS {
        let mut stream = setup.open().await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nx-api-key: {TOKEN}\r\nContent-Length: 1000\r\n\r\n{{",
            setup.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let got = finished(stream).await;
        assert_eq!(got.status, 408, "{got:?}");
        assert!(is_error_of(front, &got.json()), "{got:?}");
    }
    assert!(
        setup
            .ends(FRONTS.len())
            .await
            .iter()
            .all(|end| end.status == 408)
    );
}

#[tokio::test]
async fn a_connection_that_is_idle_between_requests_is_closed() {
    let setup = TestGateway::with(
        hello(),
        limited(|limits| limits.idle = Duration::from_millis(200)),
    )
    .await;
    let mut stream = setup.open().await;
    let request = format!(
        "GET /v1/models HTTP/1.1\r\nHost: {}\r\nx-api-key: {TOKEN}\r\n\r\n",
        setup.address
    );
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut piece = vec![0; 4096];
        assert!(stream.read(&mut piece).await.unwrap() > 100);
    }
    assert_eq!(finished(stream).await.head, "");
    assert_eq!(setup.ends(2).await.len(), 2);
}

#[tokio::test]
async fn idle_connections_harm_no_stream() {
    const CONNECTIONS: usize = 40;
    let settings = limited(|limits| {
        limits.connections = CONNECTIONS;
        limits.head = Duration::from_millis(500);
    });
    let reply = || ProviderReply {
        pause: 20,
        ..ProviderReply::text("word ".repeat(200))
            .in_deltas(5)
            .in_chunks(ChunkSplit::Size(400))
    };
    let setup = TestGateway::with(ReplyScript::from_fn(move |_, _| reply()), settings).await;
    let asked = body(Wire::Anthropic, "x", true);
    let streaming = setup.ask("/v1/messages", &asked);
    let flood = async {
        until("the stream", || {
            !setup.provider.received_requests().is_empty()
        })
        .await;
        let mut idle = Vec::new();
        for _ in 0..5 * CONNECTIONS {
            idle.push(setup.open().await);
        }
        // A later client is served once the connections before it time out.
        let got = setup.get("/v1/models").await;
        drop(idle);
        got
    };
    let (streamed, got) = tokio::join!(streaming, flood);
    assert_eq!((streamed.status, got.status), (200, 200));
    assert_eq!(streamed.read(Wire::Anthropic).0.text(), "word ".repeat(200));
}

#[tokio::test]
async fn answers_over_the_limit_are_refused() {
    let setup = TestGateway::with(
        ReplyScript::from_fn(|_, request| {
            if request.last_text() == "slow" {
                ProviderReply {
                    pause: 20,
                    ..ProviderReply::text("x".repeat(4000))
                        .in_deltas(20)
                        .in_chunks(ChunkSplit::Size(300))
                }
            } else {
                ProviderReply::text("hello")
            }
        }),
        limited(|limits| limits.answers = 1),
    )
    .await;
    let asked = body(Wire::Anthropic, "slow", true);
    let slow = setup.ask("/v1/messages", &asked);
    let more = async {
        until("the stream", || {
            !setup.provider.received_requests().is_empty()
        })
        .await;
        for (front, path) in FRONTS {
            let got = setup.ask(path, &body(front, "x", true)).await;
            let status = if front == Wire::Anthropic { 529 } else { 503 };
            assert_eq!(got.status, status, "{got:?}");
            assert!(
                got.head.contains("retry-after: 1") && is_error_of(front, &got.json()),
                "{got:?}"
            );
        }
    };
    let (slow, ()) = tokio::join!(slow, more);
    assert_eq!(slow.read(Wire::Anthropic).0.text().len(), 4000);
    assert_eq!(
        setup
            .ask("/v1/messages", &body(Wire::Anthropic, "x", true))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_throttled_and_dropped() {
    let long = || ProviderReply {
        pause: 1,
        ..ProviderReply::text("x".repeat(24 << 20))
            .in_deltas(8 << 10)
            .in_chunks(ChunkSplit::Size(256 << 10))
    };
    let setup = TestGateway::with(
        ReplyScript::from_fn(move |_, request| {
            if request.last_text() == "long" {
                long()
            } else {
                ProviderReply::text("hello")
            }
        }),
        limited(|limits| limits.stalled = Duration::from_secs(2)),
    )
    .await;
    let mut stalled = Vec::new();
    for (front, path) in FRONTS {
        let mut client = setup.open().await;
        client
            .write_all(&setup.request("POST", path, "", &body(front, "long", true).to_string()))
            .await
            .unwrap();
        stalled.push(client);
    }
    // Other clients are served meanwhile, and finally the provider's connections are closed before
    // their answers are complete.
    for (front, path) in FRONTS {
        assert_eq!(
            setup
                .ask(path, &body(front, "x", true))
                .await
                .read(front)
                .0
                .text(),
            "hello"
        );
    }
    until("the end of the model's answers", || {
        setup.provider.abandoned_requests().len() == FRONTS.len()
    })
    .await;
    let ends = setup.ends(2 * FRONTS.len()).await;
    assert_eq!(
        ends.iter()
            .filter(|end| end.status == 200 && !end.whole && end.error.is_none())
            .count(),
        FRONTS.len(),
        "{ends:?}"
    );
    assert_eq!(setup.metric("sabir_gateway_requests_open").await, 1);
}
