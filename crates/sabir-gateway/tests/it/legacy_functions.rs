//! Tests clients that know only the older form of functions: `functions` and `function_call`.

use sabir_gateway::{ModelRoute, RepairMode, RouteTable};
use sabir_testkit::{ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::test_gateway::{TestGateway, route_on};

const PATH: &str = "/v1/chat/completions";

/// The providers' wires.
const BACKS: [Wire; 3] = [Wire::OpenAiChat, Wire::Anthropic, Wire::Gemini];

fn asked(streamed: bool) -> Value {
    json!({
        "model": "model", "stream": streamed, "function_call": {"name": "read_file"},
        "functions": [{"name": "read_file", "description": "Reads.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}],
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "function_call": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}},
            {"role": "function", "name": "read_file", "content": "text of a"},
        ],
    })
}

async fn start(wire: Wire, mode: RepairMode, reply: ProviderReply) -> TestGateway {
    let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| reply.clone())).await;
    let route = ModelRoute {
        repair_mode: mode,
        ..route_on(&setup.provider, wire)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    setup
}

/// The call and the finish reasons of a stream.
fn joined(text: &str) -> Value {
    let mut found = json!({"name": "", "arguments": "", "content": "", "reasons": []});
    let chunks = text.lines().filter_map(|line| line.strip_prefix("data: "));
    for chunk in chunks.filter(|chunk| *chunk != "[DONE]") {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        for choice in chunk["choices"].as_array().unwrap() {
            let delta = &choice["delta"];
            assert_eq!(delta.get("tool_calls"), None, "{text}");
            for (key, more) in [
                ("name", &delta["function_call"]["name"]),
                ("arguments", &delta["function_call"]["arguments"]),
                ("content", &delta["content"]),
            ] {
                let more = more.as_str().unwrap_or_default();
                found[key] = json!(format!("{}{more}", found[key].as_str().unwrap()));
            }
            if choice["finish_reason"].is_string() {
                let reasons = found["reasons"].as_array_mut().unwrap();
                reasons.push(choice["finish_reason"].clone());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_call_comes_back_in_the_form_of_the_client() {
    let native = || ProviderReply::default().with_call("c", "read_file", json!({"path": "b"}));
    for wire in BACKS {
        for reply in [native(), native().in_dialect("qwen_coder").in_deltas(3)] {
            let setup = start(wire, RepairMode::Repair, reply).await;
            let got = setup.ask(PATH, &asked(true)).await;
            let found = joined(&got.text());
            assert_eq!(found["name"], "read_file", "{wire} {}", got.text());
            let arguments: Value =
                serde_json::from_str(found["arguments"].as_str().unwrap()).unwrap();
            assert_eq!(arguments, json!({"path": "b"}), "{wire}");
            assert_eq!(found["reasons"], json!(["function_call"]), "{wire}");
            let whole = setup.ask(PATH, &asked(false)).await.json();
            let choice = &whole["choices"][0];
            assert_eq!(choice["finish_reason"], "function_call", "{wire} {whole}");
            assert_eq!(choice["message"]["function_call"]["name"], "read_file");
            assert_eq!(choice["message"].get("tool_calls"), None, "{whole}");
            for request in setup.provider.received_requests() {
                let sent = request.incoming.unwrap().unwrap().request;
                assert!(sent.tools.get("read_file").is_some(), "{wire}");
                let history = format!("{:?}", sent.messages);
                assert!(history.contains("text of a"), "{wire} {history}");
                assert!(!request.body.to_string().contains("\"functions\""));
            }
        }
    }
}

#[tokio::test]
async fn a_provider_of_the_same_wire_gets_tools() {
    let reply = ProviderReply::text("hello");
    let setup = start(Wire::OpenAiChat, RepairMode::Repair, reply).await;
    let mut body = asked(false);
    body["min_p"] = json!(0.1);
    let whole = setup.ask(PATH, &body).await.json();
    assert_eq!(
        whole["choices"][0]["message"]["content"], "hello",
        "{whole}"
    );
    let sent = &setup.provider.received_requests()[0].body;
    let id = &sent["messages"][1]["tool_calls"][0]["id"];
    assert!(id.is_string(), "{sent}");
    assert_eq!(sent["messages"][2]["tool_call_id"], *id, "{sent}");
    assert_eq!(sent["messages"][2]["role"], "tool");
    assert_eq!(sent["tools"][0]["function"]["name"], "read_file");
    assert_eq!(sent["tool_choice"]["function"]["name"], "read_file");
    assert_eq!(sent["min_p"], json!(0.1));
    // Some servers refuse the last one.
    for old in ["functions", "function_call", "parallel_tool_calls"] {
        assert_eq!(sent.get(old), None, "{sent}");
    }
}

/// The older form has room for one call, also where nothing is repaired.
#[tokio::test]
async fn only_the_first_of_several_calls_is_sent() {
    let reply = ProviderReply::default()
        .with_call("c", "read_file", json!({"path": "b"}))
        .with_call("d", "read_file", json!({"path": "c"}));
    for mode in [RepairMode::Repair, RepairMode::Pass] {
        let setup = start(Wire::OpenAiChat, mode, reply.clone()).await;
        let found = joined(&setup.ask(PATH, &asked(true)).await.text());
        assert_eq!(found["arguments"], r#"{"path":"b"}"#, "{mode:?}");
        assert_eq!(found["name"], "read_file");
        let whole = setup.ask(PATH, &asked(false)).await.json();
        let call = &whole["choices"][0]["message"]["function_call"];
        assert_eq!(call["arguments"], r#"{"path":"b"}"#, "{mode:?}");
    }
}

#[tokio::test]
async fn wrong_members_of_the_older_form_are_refused_by_their_names() {
    let setup = start(
        Wire::Anthropic,
        RepairMode::Repair,
        ProviderReply::text("x"),
    )
    .await;
    let mut body = asked(false);
    body["tool_choice"] = json!("auto");
    let got = setup.ask(PATH, &body).await;
    assert_eq!(got.status, 400, "{got:?}");
    assert_eq!(got.json()["error"]["param"], "function_call", "{got:?}");
    assert!(setup.provider.received_requests().is_empty());
}
