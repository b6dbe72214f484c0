//! Tests access control, and requests that must never be forwarded.

use std::sync::Arc;

use sabir_gateway::GatewaySettings;
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::test_gateway::{FRONTS, TOKEN, TestGateway, body, finished, settings};

fn hello() -> ReplyScript {
    ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))
}

#[tokio::test]
async fn requests_without_the_token_are_refused() {
    let setup = TestGateway::new(hello()).await;
    for (request, status) in [
        ("GET /", 401),
        ("POST /session", 401),
        ("POST /pty", 401),
        ("GET /events", 401),
        ("GET /metrics", 401),
        ("GET /v1/models", 401),
        ("POST /v1/messages", 401),
        (
            "POST /v1/chat/completions?token=token-for-tests&api_key=token-for-tests&key=token-for-tests",
            401,
        ),
        ("OPTIONS /", 403),
        ("OPTIONS /v1/messages", 403),
        ("GET /healthz", 200),
    ] {
        for key in [
            "",
            "Authorization: Bearer wrong\r\n",
            "Authorization: Basic dG9rZW4=\r\n",
            "x-api-key: \r\n",
        ] {
            let address = setup.address;
            let request = format!(
                "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{key}Content-Length: 2\r\n\r\n{{}}"
            );
            let got = setup.raw(request.as_bytes()).await;
            assert_eq!(got.status, status, "{request} {got:?}");
            assert!(!got.text().contains(TOKEN), "{got:?}");
        }
    }
    assert!(setup.provider.received_requests().is_empty());
}

#[tokio::test]
async fn the_token_is_taken_from_every_usual_header() {
    let setup = TestGateway::new(hello()).await;
    for key in [
        "Authorization: Bearer token-for-tests",
        "authorization: bearer token-for-tests",
        "x-api-key: token-for-tests",
        "api-key: token-for-tests",
    ] {
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{key}\r\n\r\n",
            setup.address
        );
        assert_eq!(setup.raw(request.as_bytes()).await.status, 200, "{key}");
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let setup = TestGateway::with(
        hello(),
        GatewaySettings {
            origins: vec!["https://app.example".into()],
            ..settings()
        },
    )
    .await;
    let port = setup.address.port();
    let check = async |headers: String, status: u16| {
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\n{headers}Authorization: Bearer {TOKEN}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        let got = setup.raw(request.as_bytes()).await;
        assert_eq!(got.status, status, "{headers} {got:?}");
        assert_eq!(
            got.head.contains("access-control"),
            headers.contains("app.example"),
            "{got:?}"
        );
    };
    // Status 400 means that it passed the access control.
    check(format!("Host: 127.0.0.1:{port}\r\n"), 400).await;
    check(format!("Host: localhost:{port}\r\n"), 400).await;
    check("Host: 127.0.0.1.nip.io\r\n".into(), 403).await;
    check(format!("Host: 127.0.0.1.nip.io:{port}\r\n"), 403).await;
    check("Host: localhost.evil.test\r\n".into(), 403).await;
    check(format!("Host: localhost.evil.test:{port}\r\n"), 403).await;
    check(String::new(), 403).await;
    check(
        format!("Host: localhost:{port}\r\nHost: evil.test\r\n"),
        400,
    )
    .await;
    let host = format!("Host: localhost:{port}\r\n");
    check(format!("{host}Origin: https://evil.test\r\n"), 403).await;
    check(format!("{host}Origin: null\r\n"), 403).await;
    check(
        format!("{host}Origin: http://127.0.0.1:{}\r\n", port ^ 1),
        403,
    )
    .await;
    check(
        format!("{host}Origin: https://evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"),
        403,
    )
    .await;
    check(format!("{host}Origin: https://app.example\r\n"), 400).await;
    let asked = format!(
        "OPTIONS /v1/messages HTTP/1.1\r\n{host}Origin: https://app.example\r\nAccess-Control-Request-Headers: x-api-key\r\nConnection: close\r\n\r\n"
    );
    let got = setup.raw(asked.as_bytes()).await;
    assert_eq!(got.status, 204, "{got:?}");
    assert!(
        got.head.contains("access-control-allow-headers: x-api-key"),
        "{got:?}"
    );
    assert!(setup.provider.received_requests().is_empty());
}

#[tokio::test]
async fn a_repeated_content_length_is_refused() {
    let setup = TestGateway::new(hello()).await;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n",
        setup.address
    );
    let hidden = format!(
        "GET /v1/models HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
        setup.address
    );
    let both = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\nContent-Length: 4\r\n",
    ];
    for both in both {
        let got = setup
            .raw(format!("{head}{both}\r\n0\r\n\r\n{hidden}").as_bytes())
            .await;
        assert_eq!(
            (got.status, got.text().matches("HTTP/1.1").count()),
            (400, 0),
            "{got:?}"
        );
        // As the second request of a connection, and in two pieces.
        let mut stream = setup.open().await;
        stream
            .write_all(format!("{hidden}{head}Content").as_bytes())
            .await
            .unwrap();
        tokio::task::yield_now().await;
        stream
            .write_all(format!("-Length: 4\r\n{both}\r\n0\r\n\r\n{hidden}").as_bytes())
            .await
            .unwrap();
        let got = finished(stream).await;
        let statuses: Vec<_> = got
            .text()
            .match_indices("HTTP/1.1 ")
            .map(|(at, _)| got.text()[at + 9..at + 12].to_owned())
            .collect();
        assert!(statuses.iter().all(|status| status == "400"), "{got:?}");
    }
}

/// A page can send these types to any server without asking first.
#[tokio::test]
async fn bodies_of_pages_are_refused() {
    let setup = TestGateway::new(hello()).await;
    for (front, path) in FRONTS {
        let asked = body(front, "x", false).to_string();
        for kind in [
            "text/plain",
            "Text/Plain;charset=UTF-8",
            "multipart/form-data",
        ] {
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\
                 Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{asked}",
                setup.address,
                asked.len()
            );
            let got = setup.raw(request.as_bytes()).await;
            assert_eq!(got.status, 415, "{kind}: {got:?}");
        }
    }
    assert!(setup.provider.received_requests().is_empty());
}

#[tokio::test]
async fn a_client_cannot_choose_the_upstream_server() {
    let setup = TestGateway::new(hello()).await;
    for (front, path) in FRONTS {
        let mut asked = body(front, "x", false);
        let headers = "X-Base-Url: http://127.0.0.1:1\r\nX-Forwarded-Host: evil.test\r\n";
        let got = setup
            .raw(&setup.request("POST", path, headers, &asked.to_string()))
            .await;
        assert_eq!(got.status, 200, "{got:?}");
        for name in ["../../admin", "http://127.0.0.1:1/v1#x", "openai/gpt-5", ""] {
            asked["model"] = json!(name);
            let got = setup.ask(path, &asked).await;
            assert!(matches!(got.status, 400 | 404), "{name}: {got:?}");
        }
    }
    let requests = setup.provider.received_requests();
    assert_eq!(requests.len(), FRONTS.len());
    assert!(
        requests
            .iter()
            .all(|request| request.path == "/v1/chat/completions"
                && request.body["model"] == "behind")
    );
    assert!(
        requests
            .iter()
            .all(|request| request.header_value("x-base-url").is_none())
    );
}

#[tokio::test]
async fn provider_keys_never_reach_clients() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(401)
            .with_body("{\"error\": {\"message\": \"bad key sk-secret-1-of-the-provider\"}}")
    }))
    .await;
    for (front, path) in FRONTS {
        let got = setup.ask(path, &body(front, "x", true)).await;
        // The client's token itself was valid.
        assert_eq!(got.status, 502, "{got:?}");
        assert!(!got.text().contains("sk-secret"), "{got:?}");
    }
    let ends = setup.ends(FRONTS.len()).await;
    assert!(
        ends.iter()
            .all(|end| !end.error.as_ref().unwrap().contains("sk-secret")),
        "{ends:?}"
    );
    assert_eq!(
        ends.iter()
            .filter(|end| end.front == Some(Wire::Ollama))
            .count(),
        1
    );
}

/// `SABIR_STREAMS=10000` sets the number of pairs, of which some hundred are streaming at any time.
#[tokio::test]
async fn concurrent_streams_never_mix() {
    const AT_ONCE: usize = 600;
    let pairs = std::env::var("SABIR_STREAMS")
        .ok()
        .and_then(|pairs| pairs.parse().ok())
        .unwrap_or(150);
    let words = |name: &str| format!("<{name}> ").repeat(40);
    let script = ReplyScript::from_fn(move |_, request| ProviderReply {
        pause: 1,
        ..ProviderReply::text(words(&request.last_text()))
            .in_deltas(16)
            .in_chunks(ChunkSplit::Size(1500))
    });
    let setup = Arc::new(TestGateway::new(script).await);
    let (mut asking, mut bytes) = (JoinSet::new(), 0);
    for number in 0..2 * pairs {
        if asking.len() >= AT_ONCE {
            bytes += asking.join_next().await.unwrap().unwrap();
        }
        let (front, path) = FRONTS[number % FRONTS.len()];
        let (name, setup) = (format!("client-{number}"), Arc::clone(&setup));
        asking.spawn(async move {
            let got = setup.ask(path, &body(front, &name, true)).await;
            let (draft, report) = got.read(front);
            assert_eq!((draft.text(), report.error), (words(&name), None), "{name}");
            got.body.len()
        });
    }
    while let Some(asked) = asking.join_next().await {
        bytes += asked.unwrap();
    }
    let ends = setup.ends(2 * pairs).await;
    assert!(ends.iter().all(|end| end.whole), "{ends:?}");
    eprintln!("{pairs} pairs of streams, {bytes} bytes, none crossed");
}
