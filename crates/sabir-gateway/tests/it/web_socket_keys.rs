//! Tests WebSockets of clients with keys: their limits, and their end when a key is revoked.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabir_gateway::{
    ClientKey, DailyUsage, KEY_PREFIX, KeyHash, KeyStore, LimitReached, Reservation, ReserveError,
    Spending, StoreError, StoreFuture,
};
use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::test_gateway::{TestGateway, settings, until};
use crate::web_sockets::{Client, hello, limited};

/// A store with one key, which allows one request at a time and takes a while to settle it.
#[derive(Clone, Default)]
struct SingleStore {
    state: Arc<Mutex<SingleState>>,
}

#[derive(Default)]
struct SingleState {
    is_revoked: bool,
    open: HashSet<String>,
    reserved: Vec<Spending>,
    settled: Vec<Spending>,
}

/// The time that a settlement takes.
const SETTLE_TIME: Duration = Duration::from_millis(100);

impl SingleStore {
    fn revoke(&self) {
        self.state.lock().unwrap().is_revoked = true;
    }

    fn key() -> ClientKey {
        ClientKey {
            id: "k".to_owned(),
            name: "team".to_owned(),
            created_ms: 0,
            revoked_ms: None,
            limits: Vec::new(),
        }
    }
}

impl KeyStore for SingleStore {
    fn add_key<'a>(
        &'a self,
        _: &'a ClientKey,
        _: &'a KeyHash,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn list_keys(&self) -> StoreFuture<'_, Result<Vec<ClientKey>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn find_key<'a>(
        &'a self,
        _: &'a KeyHash,
    ) -> StoreFuture<'a, Result<Option<ClientKey>, StoreError>> {
        let is_revoked = self.state.lock().unwrap().is_revoked;
        Box::pin(async move { Ok((!is_revoked).then(Self::key)) })
    }

    fn revoke_key<'a>(
        &'a self,
        _: &'a str,
        _: u64,
    ) -> StoreFuture<'a, Result<ClientKey, StoreError>> {
        Box::pin(async { Ok(Self::key()) })
    }

    fn reserve<'a>(
        &'a self,
        reservation: &'a Reservation,
    ) -> StoreFuture<'a, Result<(), ReserveError>> {
        let mut state = self.state.lock().unwrap();
        let result = if state.is_revoked {
            Err(ReserveError::Revoked)
        } else if state.open.is_empty() {
            state.open.insert(reservation.lease.clone());
            state.reserved.push(reservation.most);
            Ok(())
        } else {
            Err(ReserveError::Limit(LimitReached {
                key: "team".to_owned(),
                limit: "1 request at a time".to_owned(),
                model: None,
                is_money: false,
                retry_after: Duration::from_secs(1),
            }))
        };
        Box::pin(async move { result })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a str,
        spent: Spending,
        _: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(SETTLE_TIME).await;
            let mut state = self.state.lock().unwrap();
            state.open.remove(lease);
            state.settled.push(spent);
            Ok(())
        })
    }

    fn renew<'a>(&'a self, _: &'a [String], _: u64) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn daily_usage<'a>(
        &'a self,
        _: &'a str,
        _: u32,
    ) -> StoreFuture<'a, Result<Vec<DailyUsage>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

async fn open(setup: &TestGateway, store: &SingleStore) -> Client {
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
    let store = SingleStore::default();
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
    let store = SingleStore::default();
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
    let store = SingleStore::default();
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
    assert_eq!(state.reserved, [*settled]);
}

#[tokio::test]
async fn a_revoked_key_ends_its_connection() {
    let setup = TestGateway::new(hello()).await;
    let store = SingleStore::default();
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
