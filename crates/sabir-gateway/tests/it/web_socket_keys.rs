//! Tests WebSockets of clients with keys: their limits, and their end when a key is revoked.

use std::sync::Arc;
use std::time::Duration;

use sabir_gateway::KEY_PREFIX;
use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::test_gateway::{TestGateway, settings, until};
use crate::test_store::TestStore;
use crate::web_sockets::{Client, hello, limited};

async fn open(setup: &TestGateway, store: &TestStore) -> Client {
    setup.gateway.use_key_store(Arc::new(store.clone()));
    Client::open_with(setup, &format!("{KEY_PREFIX}abc")).await
}

#[tokio::test]
async fn a_request_starts_when_the_one_before_it_is_settled() {
    let setup = TestGateway::new(ReplyScript::from_fn(|turn, _| match turn {
        // One that fails has a lease too.
        1 => ProviderReply::error_status(429),
        _ => ProviderReply::text("hello"),
    }))
    .await;
    let store = TestStore::with_one_request();
    let mut client = open(&setup, &store).await;
    for _ in 0..3 {
        client.create(json!({})).await;
    }
    let mut ends = Vec::new();
    for _ in 0..3 {
        let end = client.answer().await.pop().unwrap();
        ends.push(end["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(ends, ["response.completed", "error", "response.completed"]);
    // A client that waits for the end of each answer need not wait for anything else.
    for stream_id in ["b", "c", "b"] {
        let event = client.ask(json!({"stream_id": stream_id})).await;
        assert_eq!(event["type"], "response.completed", "{event}");
    }
}

#[tokio::test]
async fn requests_one_after_the_other_are_no_requests_at_the_same_time() {
    let setup = TestGateway::new(hello()).await;
    let store = TestStore::with_one_request();
    setup.gateway.use_key_store(Arc::new(store));
    let body = json!({"model": "model", "input": "hi"}).to_string();
    let request = format!(
        "POST /v1/responses HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY_PREFIX}abc\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        setup.address,
        body.len()
    );
    for _ in 0..4 {
        let got = setup.raw(request.as_bytes()).await;
        assert_eq!(got.status, 200, "{got:?}");
    }
}

#[tokio::test]
async fn input_that_is_kept_without_an_answer_counts_against_the_tokens_of_a_key() {
    let setup = TestGateway::new(hello()).await;
    let store = TestStore::with_one_request();
    let mut client = open(&setup, &store).await;
    let input = "x".repeat(40_000);
    let event = client
        .ask(json!({"input": input, "generate": false, "store": false}))
        .await;
    assert_eq!(event["type"], "response.completed", "{event}");
    until("the settlement", || {
        !store.state.lock().unwrap().settled.is_empty()
    })
    .await;
    let state = store.state.lock().unwrap();
    let [settled] = state.settled.as_slice() else {
        panic!("{:?}", state.settled);
    };
    assert!(settled.tokens >= 10_000, "{settled:?}");
    assert_eq!(settled.nano_usd, 0);
    let reserved: Vec<_> = state.reserved.iter().map(|one| one.most).collect();
    assert_eq!(reserved, [*settled]);
}

#[tokio::test]
async fn a_revoked_key_ends_its_connection() {
    let setup = TestGateway::new(hello()).await;
    let store = TestStore::with_one_request();
    let mut client = open(&setup, &store).await;
    let event = client.ask(json!({})).await;
    assert_eq!(event["type"], "response.completed", "{event}");
    store.revoke();
    // The second one waits for its turn, and gets its own error.
    for _ in 0..2 {
        client.create(json!({})).await;
    }
    let (code, events) = client.closed().await;
    assert_eq!(code, Some(CloseCode::Policy));
    assert_eq!(events.len(), 2, "{events:?}");
    for event in events {
        assert_eq!(
            (&event["status"], &event["error"]["type"]),
            (&json!(401), &json!("authentication_error")),
            "{event}"
        );
    }
}

#[tokio::test]
async fn a_token_that_was_replaced_ends_an_idle_connection() {
    let limits = limited(|limits| limits.ping = Duration::from_millis(20));
    let setup = TestGateway::with(hello(), limits).await;
    let mut client = Client::open(&setup).await;
    assert_eq!(client.ask(json!({})).await["type"], "response.completed");
    setup
        .gateway
        .replace_settings(sabir_gateway::GatewaySettings {
            token: Some(sabir_model::Secret::new("another")),
            ..settings()
        });
    let (code, events) = client.closed().await;
    assert_eq!(code, Some(CloseCode::Policy));
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["status"], 401, "{events:?}");
}
