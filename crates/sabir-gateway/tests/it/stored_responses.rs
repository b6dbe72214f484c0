//! Tests the Responses API with references to earlier answers, as the AI SDK and OpenAI's own SDKs
//! send them.

use sabir_gateway::{GatewayLimits, GatewaySettings, RouteTable};
use sabir_testkit::{ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::test_gateway::{Got, TestGateway, route_on, settings};

/// A gateway before a model that calls a tool, and then answers with text.
async fn start_gateway(wire: Wire, settings: GatewaySettings) -> TestGateway {
    let script = ReplyScript::from_fn(|turn, _| {
        if turn % 2 == 0 {
            ProviderReply::text("Let me look.").with_call(
                "call_1",
                "read_file",
                json!({"path": "a.rs"}),
            )
        } else {
            ProviderReply::text("It is empty.")
        }
    });
    let setup = TestGateway::with(script, settings).await;
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route_on(&setup.provider, wire)));
    setup
}

async fn ask(setup: &TestGateway, more: Value) -> Got {
    let mut body = json!({
        "model": "model",
        "tools": [{"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}],
    });
    let members = body.as_object_mut().unwrap();
    members.extend(more.as_object().cloned().unwrap());
    setup.ask("/v1/responses", &body).await
}

/// Returns the response of a body, or the final one of a stream.
fn response(got: &Got, streamed: bool) -> Value {
    if !streamed {
        return got.json();
    }
    let text = got.text();
    let last = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: {\"type\":\"response.completed\""))
        .next_back()
        .unwrap_or_else(|| panic!("no end: {text}"));
    let event: Value = serde_json::from_str(&format!("{{{}", &last[1..])).unwrap();
    event["response"].clone()
}

/// Returns who spoke in the last request to the provider, and what.
fn history(setup: &TestGateway) -> Vec<String> {
    let requests = setup.provider.received_requests();
    let incoming = requests.last().unwrap().incoming.as_ref().unwrap();
    let messages = &incoming.as_ref().unwrap().request.messages;
    messages
        .iter()
        .flat_map(|message| {
            let role = format!("{:?}", message.role);
            message.parts.iter().map(move |part| match part {
                sabir_call::MessagePart::Text { text } => format!("{role}: {text}"),
                sabir_call::MessagePart::Call(call) => format!("{role} calls {}", call.name),
                sabir_call::MessagePart::Result(result) => format!("{role} returns {result:?}")
                    .chars()
                    .take(12)
                    .collect(),
                other => format!("{role} {other:?}"),
            })
        })
        .collect()
}

const WHOLE: [&str; 4] = [
    "User: What is in a.rs?",
    "Assistant: Let me look.",
    "Assistant calls read_file",
    "User returns",
];

#[tokio::test]
async fn references_stand_for_the_items_of_earlier_answers() {
    for wire in [Wire::OpenAiChat, Wire::Anthropic, Wire::OpenAiResponses] {
        for streamed in [true, false] {
            let setup = start_gateway(wire, settings()).await;
            let question = json!({"role": "user", "content": [{"type": "input_text", "text": "What is in a.rs?"}]});
            let first = ask(&setup, json!({"input": [question], "stream": streamed})).await;
            let first = response(&first, streamed);
            assert_eq!(first["store"], json!(true), "{first}");
            let mut input = vec![question.clone()];
            for item in first["output"].as_array().unwrap() {
                input.push(json!({"type": "item_reference", "id": item["id"]}));
            }
            let result =
                json!({"type": "function_call_output", "call_id": "call_1", "output": "empty"});
            input.push(result.clone());
            let second = ask(&setup, json!({"input": input, "stream": streamed})).await;
            assert_eq!(second.status, 200, "{second:?}");
            assert_eq!(history(&setup), WHOLE, "{wire}");

            // The same by the id of the answer, and once more from there.
            let first_id = first["id"].clone();
            let third = ask(
                &setup,
                json!({"input": [result], "previous_response_id": first_id, "stream": streamed}),
            )
            .await;
            assert_eq!(third.status, 200, "{third:?}");
            assert_eq!(history(&setup), WHOLE, "{wire}");
            let third = response(&third, streamed);
            assert_eq!(third["previous_response_id"], first_id);
            let fourth = ask(
                &setup,
                json!({"input": "Thanks.", "previous_response_id": third["id"], "stream": streamed}),
            )
            .await;
            assert_eq!(fourth.status, 200, "{fourth:?}");
            assert_eq!(history(&setup).first().map(String::as_str), Some(WHOLE[0]));
            assert_eq!(
                history(&setup).last().map(String::as_str),
                Some("User: Thanks."),
                "{wire}"
            );
        }
    }
}

#[tokio::test]
async fn unknown_references_are_refused() {
    let unstored = GatewaySettings {
        limits: GatewayLimits {
            store: 0,
            ..GatewayLimits::default()
        },
        ..settings()
    };
    for settings in [settings(), unstored] {
        let setup = start_gateway(Wire::OpenAiChat, settings).await;
        let unstored = ask(&setup, json!({"input": "hi", "store": false}))
            .await
            .json();
        assert_eq!(unstored["store"], json!(false));
        for (body, place) in [
            (
                json!({"input": "x", "previous_response_id": unstored["id"]}),
                "previous_response_id",
            ),
            (
                json!({"input": [{"type": "item_reference", "id": "msg_no"}]}),
                "input[0]",
            ),
        ] {
            let got = ask(&setup, body).await;
            let error = got.json()["error"].clone();
            assert_eq!(got.status, 400, "{got:?}");
            assert!(
                error["param"]
                    .as_str()
                    .is_some_and(|param| param.starts_with(place)),
                "{error}"
            );
        }
    }
}
