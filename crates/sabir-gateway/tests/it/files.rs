//! Tests requests about files, which are forwarded to the upstreams of a model.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use sabir_gateway::{
    BalancePolicy, GroupRules, KEY_PREFIX, ModelLimit, ModelRoute, RouteTable, Spending, Upstream,
    UpstreamGroup,
};
use sabir_model::{Provider, ProviderClient, Secret};
use sabir_testkit::{ProviderReply, ReplyScript};
use sabir_wire::Wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::test_gateway::{Got, LONG, TestGateway, route};
use crate::test_store::TestStore;

/// A server that gives every request the same status, and remembers the requests.
struct FileServer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl FileServer {
    async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                // Every form in these tests ends with this boundary.
                while !(bytes.ends_with(b"\r\n\r\n") && !bytes.starts_with(b"POST")
                    || bytes.ends_with(b"--q--\r\n"))
                {
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let text = String::from_utf8_lossy(&bytes).into_owned();
                kept.lock().unwrap().push(text);
                let body = format!(
                    r#"{{"id": "file-1", "for": "sk-of-the-provider", "at": "{address}", "usage": {{"prompt_tokens": 600}}}}"#
                );
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, received }
    }

    /// Returns the first lines of the requests.
    fn lines(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let lines = received.iter().map(|request| request.lines().next());
        lines.map(|line| line.unwrap().to_owned()).collect()
    }
}

/// Makes a route to these servers.
fn route_to(setup: &TestGateway, name: &str, servers: &[&FileServer]) -> ModelRoute {
    let chat = route(&setup.provider);
    let upstreams = servers.iter().map(|server| {
        let base = format!("http://{}/v1", server.address);
        let key = Some(Secret::new("sk-of-the-provider"));
        let provider = Provider::new("files", Wire::OpenAiChat, base, key);
        Upstream {
            name: server.address.to_string(),
            model: Arc::clone(&chat.model),
            id: "large".to_owned(),
            weight: 1,
            probe: None,
            client: Some(Arc::new(ProviderClient::new(provider, LONG, LONG))),
        }
    });
    // A policy by which equal upstreams take turns.
    let rules = GroupRules {
        balance: BalancePolicy::Least,
        ..GroupRules::default()
    };
    let group = UpstreamGroup::new(upstreams.collect(), rules).unwrap();
    ModelRoute {
        name: name.to_owned(),
        group: Some(Arc::new(group)),
        ..chat
    }
}

async fn start() -> TestGateway {
    TestGateway::new(ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))).await
}

async fn ask(setup: &TestGateway, method: &str, path: &str) -> Got {
    setup.raw(&setup.request(method, path, "", "")).await
}

#[tokio::test]
async fn files_are_uploaded_listed_read_and_deleted() {
    let setup = start().await;
    let server = FileServer::start(200).await;
    let route = Arc::new(route_to(&setup, "model", &[&server]));
    let routes = RouteTable::default()
        .with_route("model", Arc::clone(&route))
        .with_route("other", route);
    setup.gateway.replace_routes(routes);
    // As the official client sends it: with no model.
    let form = "--q\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\ntext\r\n--q--\r\n";
    let kind =
        "Content-Type: multipart/form-data; boundary=q\r\nanthropic-beta: files-api-2025-04-14\r\n";
    let got = setup
        .raw(&setup.request("POST", "/v1/files", kind, form))
        .await;
    assert_eq!((got.status, got.text().contains("file-1")), (200, true));
    let sent = server.received.lock().unwrap()[0].clone();
    assert!(sent.ends_with(form), "{sent}");
    assert!(sent.contains("files-api-2025-04-14"), "{sent}");
    assert!(sent.contains("sk-of-the-provider"), "{sent}");
    for (method, path, forwarded) in [
        (
            "GET",
            "/v1/files?limit=2&after=file-0",
            "/v1/files?limit=2&after=file-0",
        ),
        ("GET", "/v1/files/file-1?model=other", "/v1/files/file-1"),
        (
            "GET",
            "/v1/files/file-1/content",
            "/v1/files/file-1/content",
        ),
        ("DELETE", "/v1/files/file-1", "/v1/files/file-1"),
    ] {
        let got = ask(&setup, method, path).await;
        assert_eq!(got.status, 200, "{path} {got:?}");
        let line = server.lines().pop().unwrap();
        assert_eq!(line, format!("{method} {forwarded} HTTP/1.1"));
    }
    for end in setup.ends(5).await {
        assert_eq!((end.status, end.whole), (200, true));
        assert!(["model", "other"].contains(&end.model.as_str()), "{end:?}");
    }
    for (method, path, status) in [
        ("PUT", "/v1/files/file-1", 405),
        ("DELETE", "/v1/files", 405),
        ("DELETE", "/v1/files/file-1/content", 405),
        ("GET", "/v1/files/%2e%2e%2fmodels", 404),
        ("GET", "/v1/files/file-1/content/x", 404),
        ("GET", "/v1/files/file-1?model=unknown", 404),
    ] {
        let got = ask(&setup, method, path).await;
        assert_eq!(got.status, status, "{path} {got:?}");
    }
    let stranger = format!(
        "GET /v1/files HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        setup.address
    );
    assert_eq!(setup.raw(stranger.as_bytes()).await.status, 401);
    assert_eq!(server.lines().len(), 5);
}

#[tokio::test]
async fn a_file_is_found_at_the_upstream_that_has_it() {
    let setup = start().await;
    let without = FileServer::start(404).await;
    let with = FileServer::start(200).await;
    let routes = RouteTable::default()
        .with_route("e", route_to(&setup, "e", &[&without, &with]))
        .with_route("f", route_to(&setup, "f", &[&without]));
    setup.gateway.replace_routes(routes);
    for _ in 0..3 {
        let got = ask(&setup, "GET", "/v1/files/file-1?model=e").await;
        assert_eq!(got.status, 200, "{got:?}");
    }
    assert_eq!((without.lines().len(), with.lines().len()), (3, 3));
    // Nothing says which of the models is meant.
    let got = ask(&setup, "GET", "/v1/files/file-1").await;
    assert_eq!(got.status, 400, "{got:?}");
    assert!(got.text().contains("?model=NAME"), "{got:?}");
}

#[tokio::test]
async fn a_file_is_not_missing_while_an_upstream_cannot_be_asked() {
    let setup = start().await;
    let without = FileServer::start(404).await;
    let failing = FileServer::start(500).await;
    let dead = FileServer {
        // No program listens on this port.
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        received: Arc::default(),
    };
    let routes = RouteTable::default()
        .with_route("e", route_to(&setup, "e", &[&dead, &without]))
        .with_route("f", route_to(&setup, "f", &[&without, &dead]))
        .with_route("g", route_to(&setup, "g", &[&without, &without]))
        .with_route("h", route_to(&setup, "h", &[&failing, &without]))
        .with_route("i", route_to(&setup, "i", &[&without, &failing]))
        .with_route("k", route_to(&setup, "k", &[&failing, &dead]));
    setup.gateway.replace_routes(routes);
    for (model, status) in [
        ("e", 502),
        ("f", 502),
        ("g", 404),
        ("h", 500),
        ("i", 500),
        ("k", 502),
    ] {
        let got = ask(&setup, "GET", &format!("/v1/files/file-1?model={model}")).await;
        assert_eq!(got.status, status, "{model} {got:?}");
    }
}

#[tokio::test]
async fn errors_of_upstreams_do_not_show_the_key_and_address_of_the_provider() {
    let setup = start().await;
    let server = FileServer::start(401).await;
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("m", route_to(&setup, "m", &[&server])));
    let got = ask(&setup, "GET", "/v1/files/file-1").await;
    assert_eq!(got.status, 401, "{got:?}");
    assert!(got.text().contains("file-1"), "{got:?}");
    assert!(!got.text().contains("sk-of-the-provider"), "{got:?}");
    let address = server.address.to_string();
    assert!(!got.text().contains(&address), "{got:?}");
    assert!(got.text().contains("[address]"), "{got:?}");
}

/// Makes a store whose key may use everything, as far as the price is known. Nobody knows the price of
/// the models in these tests.
fn budget_store() -> TestStore {
    TestStore::with_limits(vec![ModelLimit {
        nano_usd_per_day: Some(1),
        ..ModelLimit::default()
    }])
}

/// The files of a provider belong to all clients, so a key finds those whose ids its client knows.
#[tokio::test]
async fn a_key_reads_the_files_that_it_knows_and_does_not_list_those_of_others() {
    let setup = start().await;
    let server = FileServer::start(200).await;
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("m", route_to(&setup, "m", &[&server])));
    let store = budget_store();
    setup.gateway.use_key_store(Arc::new(store.clone()));
    let ask = async |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY_PREFIX}abc\r\nConnection: close\r\n\r\n",
            setup.address
        );
        setup.raw(request.as_bytes()).await
    };
    let list = ask("/v1/files").await;
    assert_eq!(list.status, 403, "{list:?}");
    assert!(server.lines().is_empty());
    assert_eq!(ask("/v1/files/file-1").await.status, 200);
    assert_eq!(store.state.lock().unwrap().reserved.len(), 1);
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn files_cost_nothing_and_no_browser_runs_them() {
    let setup = start().await;
    let server = FileServer::start(200).await;
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("m", route_to(&setup, "m", &[&server])));
    let store = budget_store();
    setup.gateway.use_key_store(Arc::new(store.clone()));
    let file = "text".repeat(1000);
    let form = format!(
        "--q\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{file}\r\n--q--\r\n"
    );
    let length = form.len();
    let upload = format!(
        "Content-Type: multipart/form-data; boundary=q\r\nContent-Length: {length}\r\n\r\n{form}"
    );
    for (line, rest) in [
        ("GET /v1/files/file-1/content", "\r\n"),
        ("POST /v1/files", upload.as_str()),
    ] {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY_PREFIX}abc\r\n\
             Connection: close\r\n{rest}",
            setup.address
        );
        let got = setup.raw(request.as_bytes()).await;
        assert_eq!(got.status, 200, "{got:?}");
        let head = got.head.to_ascii_lowercase();
        for header in [
            "x-content-type-options: nosniff",
            "content-security-policy: sandbox",
        ] {
            assert!(head.contains(header), "{got:?}");
        }
    }
    for end in setup.ends(2).await {
        assert_eq!((end.status, end.whole), (200, true));
    }
    let reserved = std::mem::take(&mut store.state.lock().unwrap().reserved);
    assert_eq!(reserved.len(), 2);
    for one in reserved {
        assert_eq!(one.most, Spending::default());
    }
    // The spending is stored after the answer was sent.
    while store.state.lock().unwrap().settled.len() < 2 {
        tokio::task::yield_now().await;
    }
    let state = store.state.lock().unwrap();
    assert_eq!(state.settled, [Spending::default(); 2]);
}
