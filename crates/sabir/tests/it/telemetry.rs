//! Tests telemetry through the binary: the spans that a collector receives, and that a missing collector does not matter.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::gateway_ways::{Running, TOKEN, message, send_request};
use crate::world::{Turn, WAYS, Way, World, code, stderr, stdout, turn};

const WAY: Way = WAYS[1];

fn turns() -> [Turn; 2] {
    let write = (
        "write_to_file",
        json!({"path": "a.txt", "content": "some words\n"}),
    );
    [
        turn("", vec![write]),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ]
}

/// A collector: its address, and the requests it gets, head and body.
fn collector() -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            loop {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap_or(0) > 0 {}
                let Some(length) = head
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .map(str::to_owned)
                else {
                    break;
                };
                let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
                stream.read_exact(&mut body).unwrap();
                _ = sender.send((head, serde_json::from_slice(&body).unwrap()));
                _ = stream
                    .get_mut()
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
            }
        }
    });
    (format!("http://{address}"), requests)
}

/// The spans of a run, of which the last has no parent.
fn spans(requests: &Receiver<(String, Value)>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    while all
        .last()
        .is_none_or(|span| !span["parentSpanId"].is_null())
    {
        let (head, body) = requests.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(
            head.starts_with("POST /v1/traces HTTP/1.1\r\n") && head.contains("x-team: blue"),
            "{head}"
        );
        all.extend(
            body["resourceSpans"][0]["scopeSpans"][0]["spans"]
                .as_array()
                .unwrap()
                .clone(),
        );
    }
    all
}

fn attribute<'a>(span: &'a Value, name: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter()
        .find(|one| one["key"] == name)
        .map_or(&Value::Null, |one| &one["value"])
}

fn configured(world: &World, text: &str) {
    let path = world.configure(text);
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn a_collector_gets_the_spans_of_the_gateway() {
    let world = World::new();
    let (address, requests) = collector();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("some words")
    }));
    let text = format!(
        "[telemetry]\nendpoint = \"{address}\"\n[gateway.models.m]\nto = \"http://{}\"\n",
        provider.address()
    );
    let running = Running::start(&world, &text, &[]);
    // A list of models is no exchange with a model.
    send_request(&running.address, "GET /v1/models", TOKEN, "");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    // The client's tracer does not export this trace.
    let unsampled = "5bf92f3577b34da6a3ce929d0e0e4736";
    let head = format!("{TOKEN}traceparent: 00-{unsampled}-00f067aa0ba902b7-00\r\n");
    let got = running.ask("/v1/messages", &head, &message("m"));
    assert!(got.contains("some words"), "{got}");
    let head = format!("{TOKEN}traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let got = running.ask("/v1/messages", &head, &message("m"));
    assert!(got.contains("some words"), "{got}");
    let (_, body) = requests.recv_timeout(Duration::from_secs(60)).unwrap();
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans.as_array().unwrap().len(), 1, "{spans}");
    let span = &spans[0];
    assert_eq!(span["name"], "chat m");
    assert_eq!(span["traceId"], trace);
    assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(
        attribute(span, "http.response.status_code")["intValue"],
        "200"
    );
    assert!(!body.to_string().contains("some words"));
}

#[test]
fn a_collector_gets_the_spans_of_a_task() {
    let world = World::new();
    let (address, requests) = collector();
    let table =
        format!("[telemetry]\nendpoint = \"{address}\"\nheaders = {{ x-team = \"blue\" }}\n");
    configured(&world, &table);
    let provider = world.plays(WAY, &turns());
    let output = world.run(&provider, WAY, &["--approve", "all", "some words"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told = spans(&requests);
    let names: Vec<_> = told
        .iter()
        .map(|span| span["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "chat scripted",
            "execute_tool write_to_file",
            "chat scripted",
            "invoke_agent sabir"
        ]
    );
    let root = told.last().unwrap();
    assert!(
        told[..3].iter().all(
            |span| span["parentSpanId"] == root["spanId"] && span["traceId"] == root["traceId"]
        )
    );
    assert_eq!(
        attribute(root, "gen_ai.conversation.id")["stringValue"],
        world.only_task()
    );
    assert_eq!(
        attribute(&told[0], "gen_ai.provider.name")["stringValue"],
        "openai"
    );
    assert_eq!(
        attribute(&told[1], "gen_ai.tool.call.id")["stringValue"],
        "call_1_0"
    );
    assert_eq!(
        attribute(root, "sabir.task.tool_calls")["arrayValue"]["values"],
        json!([{"stringValue": "attempt_completion=1"}, {"stringValue": "write_to_file=1"}])
    );
    assert!(attribute(root, "sabir.task.output_tokens")["intValue"].is_string());
    assert!(!json!(told).to_string().contains("some words"));
    configured(&world, &(table + "content = true\n"));
    let provider = world.plays(WAY, &turns());
    world.run(&provider, WAY, &["--approve", "all", "some words"]);
    let told = spans(&requests);
    assert!(
        attribute(&told[1], "gen_ai.tool.call.arguments")["stringValue"]
            .as_str()
            .unwrap()
            .contains("some words")
    );
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_dead_collector_changes_nothing() {
    let run = |world: &World| {
        let provider = world.plays(WAY, &turns());
        let output = world.run(&provider, WAY, &["--approve", "all", "go"]);
        (code(&output), stdout(&output), world.read("a.txt"))
    };
    let plain = run(&World::new());
    let world = World::new();
    // Nothing listens there any more.
    let gone = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap();
    configured(
        &world,
        &format!("[telemetry]\nendpoint = \"http://{gone}\"\n"),
    );
    assert_eq!(run(&world), plain);
    // A server accepts and never answers.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    configured(
        &world,
        &format!(
            "[telemetry]\nendpoint = \"http://{}\"\n",
            silent.local_addr().unwrap()
        ),
    );
    assert_eq!(run(&world), plain);
}

#[test]
fn nothing_is_sent_unless_it_is_configured() {
    let world = World::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let provider = world.plays(WAY, &turns());
    let mut command = world.sabir_with(&provider);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &address)
        .env("OTEL_TRACES_EXPORTER", "otlp");
    let output = command
        .args(["run", "--model", WAY.model(), "--approve", "all", "go"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(listener.accept().is_err(), "somebody connected");
    let wrong = |text: &str, said: &str| {
        configured(&world, text);
        let output = world.sabir().arg("modes").output().unwrap();
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains(said) && !stderr(&output).contains("s3cret"),
            "{}",
            stderr(&output)
        );
    };
    wrong(
        "[telemetry]\ncontent = true\n",
        "[telemetry] has no endpoint",
    );
    wrong(
        "[telemetry]\nendpoint = \"127.0.0.1:4318\"\n",
        "endpoint has to be an address",
    );
    wrong(
        "[telemetry]\nendpoint = \"http://a\"\nheaders = { \"a b\" = \"s3cret\" }\n",
        "`a b` under headers",
    );
    let path =
        world.configure("[telemetry]\nendpoint = \"http://a\"\nheaders = { a = \"s3cret\" }\n");
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(stderr(&world.sabir().arg("modes").output().unwrap()).contains("chmod 600"));
}
