//! Tests the endpoints that need no model.

use sabir_testkit::{ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::json;

use crate::test_gateway::{FRONTS, TestGateway, body};

#[tokio::test]
async fn models_are_listed_for_every_client() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))).await;
    assert_eq!(
        setup.get("/v1/models").await.json()["data"][0]["id"],
        "model"
    );
    assert_eq!(setup.get("/v1/models/model").await.json()["id"], "model");
    assert_eq!(setup.get("/v1/models/other").await.status, 404);
    let got = setup
        .raw(&setup.request(
            "GET",
            "/v1/models/other",
            "anthropic-version: 2023-06-01\r\n",
            "",
        ))
        .await;
    assert_eq!((got.status, &got.json()["type"]), (404, &json!("error")));
    assert_eq!(
        setup.get("/api/tags").await.json()["models"][0]["name"],
        "model"
    );
    assert!(setup.get("/api/version").await.json()["version"].is_string());
    assert_eq!(setup.get("/api/ps").await.json(), json!({"models": []}));
    assert!(
        setup
            .ask("/api/show", &json!({"model": "model:latest"}))
            .await
            .json()["capabilities"]
            .is_array()
    );
    assert_eq!(
        setup
            .ask("/api/show", &json!({"model": "other"}))
            .await
            .status,
        404
    );
    assert_eq!(setup.ask("/api/show", &json!({})).await.status, 400);
    assert_eq!(setup.get("/").await.status, 200);
    let head = setup.raw(&setup.request("HEAD", "/", "", "")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(setup.ask("/v1/models", &json!({})).await.status, 405);
    assert_eq!(setup.get("/v1/nothing").await.status, 404);
    assert!(setup.provider.received_requests().is_empty());
}

#[tokio::test]
async fn tokens_are_counted_without_the_model() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))).await;
    let mut asked = body(Wire::Anthropic, &"word ".repeat(400), false);
    asked.as_object_mut().unwrap().remove("max_tokens");
    let got = setup
        .ask("/v1/messages/count_tokens?beta=true", &asked)
        .await;
    let count = got.json()["input_tokens"]
        .as_u64()
        .unwrap_or_else(|| panic!("{got:?}"));
    assert!((400..900).contains(&count), "{count}");
    asked["model"] = json!("other");
    assert_eq!(
        setup.ask("/v1/messages/count_tokens", &asked).await.status,
        404
    );
    assert!(setup.provider.received_requests().is_empty());
}

#[tokio::test]
async fn every_exchange_is_counted_and_logged_once() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("x").with_call("c", "read_file", json!({"path": "a"}))
    }))
    .await;
    for (front, path) in FRONTS {
        for streamed in [true, false] {
            assert_eq!(
                setup.ask(path, &body(front, "x", streamed)).await.status,
                200
            );
        }
    }
    setup.ask("/v1/messages", &json!({})).await;
    let ends = setup.ends(9).await;
    assert!(
        ends.iter()
            .take(8)
            .all(|end| end.whole && end.calls == 1 && end.model == "model"),
        "{ends:?}"
    );
    for (name, count) in [
        (
            "sabir_gateway_requests_total{front=\"anthropic\",status=\"200\"}",
            2,
        ),
        (
            "sabir_gateway_requests_total{front=\"anthropic\",status=\"400\"}",
            1,
        ),
        (
            "sabir_gateway_requests_total{front=\"ollama\",status=\"200\"}",
            2,
        ),
        (
            "sabir_gateway_answers_total{model=\"model\",end=\"whole\"}",
            8,
        ),
        ("sabir_gateway_calls_total", 8),
        (
            "sabir_gateway_first_byte_seconds_count{front=\"openai-chat\"}",
            2,
        ),
        // The request for the metrics itself.
        ("sabir_gateway_requests_open", 1),
        ("sabir_gateway_connections_open", 1),
    ] {
        assert_eq!(setup.metric(name).await, count, "{name}");
    }
}
