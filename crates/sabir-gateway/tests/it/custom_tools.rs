//! Custom tools of Chat Completions, between a client and a provider of this API.

use std::sync::Arc;

use sabir_gateway::{ModelRoute, ProviderWire, RouteTable};
use sabir_model::{HttpModel, Provider, Secret};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::test_gateway::{TestGateway, route};

const PATH: &str = "/v1/chat/completions";

/// Starts a gateway whose provider answers with these deltas. `has_custom` is true for OpenAI itself.
async fn start(deltas: &[Value], has_custom: bool) -> TestGateway {
    let chunk = |delta: &Value, reason: Value| json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let chunks = deltas.iter().map(|delta| chunk(delta, Value::Null));
    let mut body = String::new();
    for chunk in chunks.chain([chunk(&json!({}), json!("tool_calls"))]) {
        body.push_str(&format!("data: {chunk}\n\n"));
    }
    body.push_str("data: [DONE]\n\n");
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body,
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    let setup = TestGateway::new(script).await;
    let mut provider = Provider::new(
        "scripted",
        Wire::OpenAiChat,
        setup.provider.base_url(Wire::OpenAiChat),
        Some(Secret::new("sk-secret-1-of-the-provider")),
    );
    provider.form.custom_tools = has_custom;
    let form = provider.form.clone();
    let route = ModelRoute {
        model: Arc::new(HttpModel::new(provider)),
        provider_wires: vec![ProviderWire {
            wire: Wire::OpenAiChat,
            form,
        }],
        ..route(&setup.provider)
    };
    let routes = RouteTable::default().with_route("model", route);
    setup.gateway.replace_routes(routes);
    setup
}

fn asked(streamed: bool) -> Value {
    let grammar =
        json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}});
    let call = json!({"id": "c0", "type": "custom", "custom": {"name": "patch", "input": "old"}});
    json!({
        "model": "model", "stream": streamed, "min_p": 0.1,
        "tools": [{"type": "custom", "custom": {"name": "patch", "format": grammar}}],
        "tool_choice": {"type": "custom", "custom": {"name": "patch"}},
        "messages": [
            {"role": "user", "content": "go", "x_mark": 1},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c0", "content": "done"},
        ],
    })
}

/// Returns the name and the input of the call in an answer.
fn call_of(text: &str, streamed: bool) -> (Value, String) {
    if !streamed {
        let whole: Value = serde_json::from_str(text).unwrap();
        let call = &whole["choices"][0]["message"]["tool_calls"][0];
        assert_eq!(call["type"], "custom", "{whole}");
        let input = call["custom"]["input"].as_str().unwrap().to_owned();
        return (call["custom"]["name"].clone(), input);
    }
    let mut name = Value::Null;
    let mut input = String::new();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    for event in events.filter_map(|event| serde_json::from_str::<Value>(event).ok()) {
        let call = &event["choices"][0]["delta"]["tool_calls"][0];
        if call["type"] == "custom" {
            name = call["custom"]["name"].clone();
        }
        input.push_str(call["custom"]["input"].as_str().unwrap_or_default());
    }
    (name, input)
}

#[tokio::test]
async fn openai_gets_custom_tools_as_they_are() {
    let deltas = [
        json!({"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "patch", "input": ""}}]}),
        json!({"tool_calls": [{"index": 0, "custom": {"input": "a \"b\""}}]}),
        json!({"tool_calls": [{"index": 0, "custom": {"input": "\nc"}}]}),
    ];
    let setup = start(&deltas, true).await;
    for streamed in [true, false] {
        let asked = asked(streamed);
        let got = setup.ask(PATH, &asked).await;
        assert_eq!(got.status, 200, "{got:?}");
        let found = call_of(&got.text(), streamed);
        assert_eq!(found, (json!("patch"), "a \"b\"\nc".to_owned()));
        let requests = setup.provider.received_requests();
        let sent = &requests.last().unwrap().body;
        for member in ["tools", "tool_choice", "messages", "min_p"] {
            assert_eq!(sent[member], asked[member], "{sent}");
        }
    }
}

#[tokio::test]
async fn other_servers_get_functions_in_the_clients_body() {
    let arguments = "{\"input\": \"a \\\"b\\\"\\nc\"}";
    let function = json!({"name": "patch", "arguments": arguments});
    let deltas = [
        json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}),
    ];
    let setup = start(&deltas, false).await;
    for streamed in [true, false] {
        let asked = asked(streamed);
        let headers = "sabir-report: 1\r\n";
        let request = setup.request("POST", PATH, headers, &asked.to_string());
        let got = setup.raw(&request).await;
        assert_eq!(got.status, 200, "{got:?}");
        let whole = format!("{}{}", got.head, got.text());
        assert!(whole.contains("left_out:tools=1"), "{whole}");
        let found = call_of(&got.text(), streamed);
        assert_eq!(found, (json!("patch"), "a \"b\"\nc".to_owned()));
        let requests = setup.provider.received_requests();
        let sent = &requests.last().unwrap().body;
        assert_eq!(sent["tools"][0]["function"]["name"], "patch", "{sent}");
        assert_eq!(sent["tool_choice"]["function"]["name"], "patch");
        let call = &sent["messages"][1]["tool_calls"][0];
        assert_eq!(call["function"]["arguments"], "{\"input\":\"old\"}");
        assert_eq!(sent["messages"][0], asked["messages"][0]);
        assert_eq!(sent["min_p"], asked["min_p"]);
    }
}
