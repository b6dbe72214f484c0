//! Tests requests to models with limits, defaults and overrides.

use std::sync::Arc;

use sabir_gateway::{ModelLimits, ModelRoute, RouteTable};
use sabir_model::{BodyChanges, CallerScope, HttpModel, Provider};
use sabir_testkit::{ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::{Map, Value, json};

use crate::test_gateway::{FRONTS, TestGateway, body, route_on};

fn members(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// Sends a body on that front to a model with limits on another wire, and returns the body that its
/// provider got.
async fn sent_body(front: Wire, wire: Wire, asked: Value) -> Value {
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello")).with_any_body();
    let setup = TestGateway::new(script).await;
    let provider = Provider::new("scripted", wire, setup.provider.base_url(wire), None);
    let changes = BodyChanges {
        defaults: members(json!({"temperature": 0.25, "x_default": {"a": 1}})),
        overrides: members(json!({"x_override": [1, 2]})),
    };
    let model = HttpModel::new(provider)
        .caller_scope(CallerScope::Many)
        .body_changes(changes);
    let route = ModelRoute {
        model: Arc::new(model),
        limits: ModelLimits {
            output: Some(50),
            never_thinks: true,
        },
        ..route_on(&setup.provider, wire)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    let (_, path) = FRONTS
        .into_iter()
        .find(|(known, _)| *known == front)
        .unwrap();
    let mut sent = body(front, "x", true);
    sent.as_object_mut().unwrap().extend(members(asked));
    let got = setup.ask(path, &sent).await;
    assert_eq!(got.status, 200, "{}", got.text());
    setup.provider.received_requests()[0].body.clone()
}

#[tokio::test]
async fn the_limits_of_a_model_hold_on_every_way_to_it() {
    let asked = [
        (
            Wire::OpenAiChat,
            json!({"max_completion_tokens": 9000, "reasoning_effort": "high"}),
        ),
        (
            Wire::Anthropic,
            json!({"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ),
        (
            Wire::OpenAiResponses,
            json!({"max_output_tokens": 9000, "reasoning": {"effort": "high", "summary": "auto"}}),
        ),
        (
            Wire::Ollama,
            json!({"options": {"num_predict": 9000}, "think": true}),
        ),
    ];
    let limits = [
        "/max_tokens",
        "/max_completion_tokens",
        "/max_output_tokens",
        "/options/num_predict",
    ];
    let efforts = [
        "reasoning_effort",
        "reasoning",
        "thinking",
        "output_config",
        "think",
    ];
    for (front, asked) in asked {
        for wire in [
            Wire::OpenAiChat,
            Wire::Anthropic,
            Wire::OpenAiResponses,
            Wire::Ollama,
        ] {
            let body = sent_body(front, wire, asked.clone()).await;
            let found: Vec<_> = limits
                .iter()
                .filter_map(|place| body.pointer(place))
                .collect();
            assert_eq!(found, [&json!(50)], "{front} to {wire}: {body}");
            assert!(
                efforts.iter().all(|member| body.get(member).is_none()),
                "{front} to {wire}: {body}"
            );
            assert_eq!(
                (&body["x_default"], &body["x_override"]),
                (&json!({"a": 1}), &json!([1, 2])),
                "{front} to {wire}"
            );
        }
    }
}

#[tokio::test]
async fn a_smaller_limit_and_the_client_s_own_values_stay() {
    for wire in [Wire::OpenAiChat, Wire::Anthropic] {
        let asked = json!({"max_tokens": 20, "temperature": 0.75});
        let body = sent_body(Wire::OpenAiChat, wire, asked).await;
        assert_eq!(
            (&body["max_tokens"], &body["temperature"]),
            (&json!(20), &json!(0.75)),
            "{wire}"
        );
    }
}
