//! Tests the report about repairs and durations that a client can request.

use sabir_call::ToolProtocol;
use sabir_gateway::{GatewaySettings, ModelRoute, RepairMode, RouteTable};
use sabir_testkit::{ProviderReply, ReplyScript};
use sabir_wire::Wire;
use serde_json::Value;

use crate::test_gateway::{FRONTS, Got, TestGateway, body, route, settings};

const LEAK: &str = "I read it.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}\n</tool_call>";
const CUT: &str = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.r";

async fn ask(
    setup: &TestGateway,
    (front, path): (Wire, &str),
    streamed: bool,
    headers: &str,
) -> Got {
    setup
        .raw(&setup.request(
            "POST",
            path,
            headers,
            &body(front, "go", streamed).to_string(),
        ))
        .await
}

async fn start_gateway(protocol: ToolProtocol, text: &str) -> TestGateway {
    let setup = TestGateway::new(ReplyScript::new(vec![
        ProviderReply::text(text).in_deltas(5);
        24
    ]))
    .await;
    let route = ModelRoute {
        repair_mode: RepairMode::Repair,
        protocol,
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    setup
}

#[tokio::test]
async fn repair_reports_reach_clients_on_every_front() {
    let setup = start_gateway(ToolProtocol::Native, LEAK).await;
    for front in FRONTS {
        for streamed in [true, false] {
            let told = ask(&setup, front, streamed, "sabir-report: 1\r\n").await;
            let asked = ask(&setup, front, streamed, "").await;
            assert!(
                !asked.head.contains("sabir-report") && !asked.text().contains("sabir-report"),
                "{asked:?}"
            );
            assert_eq!(
                told.head.contains("sabir-report: leaked_call=1"),
                !streamed,
                "{told:?}"
            );
            // The report does not disturb any client.
            let (draft, report) = told.read(front.0);
            assert_eq!(
                (draft.text(), report.error),
                (asked.read(front.0).0.text(), None),
                "{told:?}"
            );
            let text = told.text();
            let said = match front.0 {
                Wire::Ollama => "\"done\":false,\"sabir-report\":\"leaked_call=1\"}\n",
                _ => ": sabir-report leaked_call=1\n\n",
            };
            assert_eq!(text.contains(said), streamed, "{text}");
        }
    }
}

#[tokio::test]
async fn an_error_before_the_first_byte_has_a_report_as_well() {
    let setup = start_gateway(ToolProtocol::Native, CUT).await;
    for front in FRONTS {
        let told = ask(&setup, front, false, "sabir-report: 1\r\n").await;
        assert_eq!(told.status, 502, "{told:?}");
        assert!(
            told.head
                .contains("sabir-report: broken_call=1, leaked_call=1"),
            "{told:?}"
        );
    }
    // Ollama's stream begins with the call, which never becomes complete, so nothing was sent yet.
    let told = ask(&setup, FRONTS[3], true, "sabir-report: 1\r\n").await;
    assert_eq!(
        (
            told.status,
            told.head.contains("sabir-report: broken_call=1")
        ),
        (502, true),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_value_that_begins_with_a_line_feed_is_exact_in_one_piece() {
    let path = "a".repeat(100);
    let setup = start_gateway(
        ToolProtocol::Prompted("cline".into()),
        &format!("<read_file><path>\n{path}</path></read_file>"),
    )
    .await;
    for (front, streamed) in FRONTS
        .into_iter()
        .flat_map(|front| [(front, true), (front, false)])
    {
        let got = ask(&setup, front, streamed, "").await;
        let (draft, _) = got.read(front.0);
        let text = draft.calls().next().unwrap().arguments[0].text.clone();
        // Only a stream that sends calls in pieces has dropped the line feed before the end of the
        // value shows what it was.
        let lost = streamed && front.0 != Wire::Ollama;
        assert_eq!(
            text,
            if lost {
                path.clone()
            } else {
                format!("\n{path}")
            },
            "{}",
            front.0
        );
    }
}

#[tokio::test]
async fn ollama_clients_get_measured_durations() {
    let setup = start_gateway(ToolProtocol::Native, LEAK).await;
    for streamed in [true, false] {
        let got = ask(&setup, FRONTS[3], streamed, "").await;
        let last: Value =
            serde_json::from_str(got.text().trim_end().rsplit('\n').next().unwrap()).unwrap();
        let [all, answer] =
            ["total_duration", "eval_duration"].map(|key| last[key].as_u64().unwrap());
        assert!(0 < answer && answer <= all, "{last}");
        assert!(last.get("load_duration").is_none(), "{last}");
    }
}

#[tokio::test]
async fn new_settings_apply_to_later_requests() {
    let setup = start_gateway(ToolProtocol::Native, "hi").await;
    let front = FRONTS[0];
    assert_eq!(ask(&setup, front, false, "").await.status, 200);
    let token = Some(sabir_model::Secret::new("another-token"));
    setup.gateway.replace_settings(GatewaySettings {
        token,
        hosts: vec!["gate.example".into()],
        seed: 99,
        ..settings()
    });
    assert_eq!(ask(&setup, front, false, "").await.status, 401);
    let head = "x-api-key: another-token\r\n";
    let request = String::from_utf8(setup.request(
        "POST",
        front.1,
        head,
        &body(front.0, "go", false).to_string(),
    ));
    let request = request
        .unwrap()
        .replace("Authorization: Bearer token-for-tests\r\n", "");
    let elsewhere = request.replace(&format!("Host: {}", setup.address), "Host: gate.example");
    assert_eq!(setup.raw(request.as_bytes()).await.status, 200);
    assert_eq!(setup.raw(elsewhere.as_bytes()).await.status, 200);
    // A token can be changed but not removed, and ids keep their prefix.
    setup.gateway.replace_settings(GatewaySettings {
        token: None,
        seed: 1,
        ..settings()
    });
    assert_eq!(ask(&setup, front, false, "").await.status, 401);
    let got = setup.raw(request.as_bytes()).await;
    assert!(
        got.status == 200 && got.text().contains("sabir_0000000000000007"),
        "{got:?}"
    );
}

#[tokio::test]
async fn the_report_names_what_another_wire_has_no_place_for() {
    let setup = start_gateway(ToolProtocol::Native, LEAK).await;
    let mut asked = body(Wire::Anthropic, "go", false);
    asked["top_k"] = Value::from(5);
    asked["x odd\r\n"] = Value::from(1);
    asked["inference_geo"] = Value::from("eu");
    let ask = |headers: &'static str, streamed: bool| {
        let mut asked = asked.clone();
        asked["stream"] = Value::Bool(streamed);
        let request = setup.request("POST", "/v1/messages", headers, &asked.to_string());
        let setup = &setup;
        async move { setup.raw(&request).await }
    };
    let expected = "leaked_call=1, left_out:inference_geo=1, left_out:top_k=1, left_out:x?odd??=1";
    let whole = ask("sabir-report: 1\r\n", false).await;
    assert!(
        whole
            .head
            .contains(&format!("sabir-report: {expected}\r\n")),
        "{whole:?}"
    );
    let streamed = ask("sabir-report: 1\r\n", true).await;
    assert!(
        streamed
            .text()
            .contains(&format!("\n: sabir-report {expected}\n\n")),
        "{}",
        streamed.text()
    );
    let unasked = ask("", false).await;
    assert!(!unasked.head.contains("left_out"), "{unasked:?}");
}

/// Official clients show the id in their errors, and the operator finds it in the request log.
#[tokio::test]
async fn every_response_carries_its_id() {
    let setup = start_gateway(ToolProtocol::Native, LEAK).await;
    let mut ids = Vec::new();
    for (front, path) in FRONTS {
        let name = if front == Wire::Anthropic {
            "\r\nrequest-id: "
        } else {
            "\r\nx-request-id: "
        };
        let unknown = serde_json::json!({"model": "no", "messages": [], "input": "x"});
        for got in [
            setup.ask(path, &body(front, "go", true)).await,
            setup.ask(path, &body(front, "go", false)).await,
            setup.ask(path, &unknown).await,
            setup.get(path).await,
        ] {
            let (_, rest) = got
                .head
                .split_once(name)
                .unwrap_or_else(|| panic!("{got:?}"));
            ids.push(rest.lines().next().unwrap_or_default().to_owned());
        }
    }
    ids.sort_unstable();
    let logged = setup.end_ids(ids.len()).await;
    assert_eq!(ids, logged);
}
