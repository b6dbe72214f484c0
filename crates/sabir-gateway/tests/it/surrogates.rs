//! Tests that halves of characters, which Python and JavaScript write as `"\ud83d"`, break no answer,
//! and that a request with one is refused with its place.

use sabir_gateway::RouteTable;
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::json;

use crate::test_gateway::{FRONTS, TestGateway, body, route_on};

/// Starts a gateway whose model answers with this body on that wire.
async fn start_gateway(wire: Wire, content_type: &str, body: &str) -> TestGateway {
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some(content_type.to_owned()),
        body: body.to_owned(),
    });
    let script = ReplyScript::from_fn(move |_, _| reply.clone()).with_any_body();
    let setup = TestGateway::new(script).await;
    let route = route_on(&setup.provider, wire);
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    setup
}

#[tokio::test]
async fn a_streamed_answer_with_halves_of_characters_is_read() {
    let delta = |text: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let split = [delta("a\\ud83d"), delta("\\ude00b")].concat() + end;
    let lone = [delta("a\\ud83d!"), delta("b")].concat() + end;
    for (front, path) in FRONTS {
        for streamed in [true, false] {
            for (upstream, text) in [(&split, "a\u{fffd}\u{fffd}b"), (&lone, "a\u{fffd}!b")] {
                let setup = start_gateway(Wire::OpenAiChat, "text/event-stream", upstream).await;
                let asked = body(front, "go", streamed).to_string();
                let request = setup.request("POST", path, "sabir-report: 1\r\n", &asked);
                let got = setup.raw(&request).await;
                assert_eq!(got.status, 200, "{front} {}", got.text());
                let (draft, report) = got.read(front);
                assert_eq!(
                    (draft.text().as_str(), report.error),
                    (text, None),
                    "{front}"
                );
                let all = got.head.clone() + &got.text();
                assert!(all.contains("lone_surrogate=1"), "{front} {all}");
            }
        }
    }
}

#[tokio::test]
async fn several_choices_with_halves_of_characters_are_read() {
    let upstream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\ud83d\"},\"finish_reason\":\"stop\"},\
                    {\"index\":1,\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let setup = start_gateway(Wire::OpenAiChat, "text/event-stream", upstream).await;
    let mut asked = body(Wire::OpenAiChat, "go", false);
    asked["n"] = json!(2);
    let path = "/v1/chat/completions";
    let request = setup.request("POST", path, "sabir-report: 1\r\n", &asked.to_string());
    let got = setup.raw(&request).await;
    let answer = got.json();
    let text = &answer["choices"][0]["message"]["content"];
    assert_eq!(text, "a\u{fffd}", "{answer}");
    assert!(got.head.contains("lone_surrogate=1"), "{}", got.head);
}

#[tokio::test]
async fn a_whole_answer_with_half_a_character_is_read() {
    let upstream = "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\\ud83d!\"},\"finish_reason\":\"stop\"}]}";
    for (front, path) in FRONTS {
        let setup = start_gateway(Wire::OpenAiChat, "application/json", upstream).await;
        let got = setup.ask(path, &body(front, "go", false)).await;
        assert_eq!(got.status, 200, "{front} {}", got.text());
        assert_eq!(got.read(front).0.text(), "a\u{fffd}!", "{front}");
    }
}

#[tokio::test]
async fn a_request_with_half_a_character_names_its_place() {
    let setup = TestGateway::new(ReplyScript::new([])).await;
    let paths = FRONTS.map(|(front, path)| (path, body(front, "HALF", false)));
    let embedded = json!({"model": "model", "input": ["a", "HALF"]});
    let all = paths.into_iter().chain([("/v1/embeddings", embedded)]);
    for (path, asked) in all {
        let asked = asked.to_string().replace("HALF", "x\\ud83d");
        let got = setup.raw(&setup.request("POST", path, "", &asked)).await;
        assert_eq!(got.status, 400, "{path} {}", got.text());
        let text = got.text();
        let has_place = ["messages[0].content", "input[0].content", "input[1]"]
            .iter()
            .any(|place| text.contains(place));
        assert!(
            has_place && text.contains("send both halves"),
            "{path} {text}"
        );
    }
}
