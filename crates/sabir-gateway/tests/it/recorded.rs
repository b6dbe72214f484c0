//! Tests recorded bodies of providers through the gateway: every body on every client wire, with and without repairs.
//!
//! The client must read from its own wire exactly the calls that the body contains without a gateway, and, if the body is
//! complete, exactly the same text. `SABIR_RECORDINGS=FILE cargo test -p sabir-gateway --test it recorded -- --nocapture` takes
//! the bodies of a file in addition to the built-in ones: JSON lines with `id`, `wire` and `body`; binary bodies as one character per byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use sabir_call::{
    DraftPart, DraftResponse, Message, Model, Request, StopReason, ToolSet, ToolSpec,
};
use sabir_check::{CallChecker, CallState};
use sabir_gateway::{ModelRoute, ProviderWire, RepairMode, RouteTable};
use sabir_model::{CallerScope, HttpModel, Provider, RetryPolicy, TextParsing};
use sabir_testkit::{ChunkSplit, ReplyScript};
use sabir_wire::{BodyEnd, DecodeReport, ResponseDecoder, Wire, WireOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bodies::{self, Recording};
use crate::repairs::runnable;
use crate::test_gateway::{FRONTS, Got, TestGateway};

/// The content of an answer.
#[derive(Debug, PartialEq)]
struct Said {
    calls: Vec<String>,
    /// True if it has an end and no error.
    whole: bool,
    text: String,
    thought: String,
}

impl Said {
    fn of(draft: &DraftResponse, report: &DecodeReport) -> Self {
        let thought = draft.parts.iter().filter_map(|part| match part {
            DraftPart::Thought(text) => Some(text.as_str()),
            _ => None,
        });
        let whole = report.error.is_none() && report.ended && report.unreadable == 0;
        Self {
            calls: runnable(draft),
            whole,
            text: draft.text(),
            thought: thought.collect(),
        }
    }
}

impl Said {
    /// The text of an incomplete answer may be shorter. Chat Completions marks the last call as complete only
    /// when the answer is.
    fn is(&self, expected: &Self, front: Wire) -> bool {
        if expected.whole {
            return self == expected;
        }
        let calls = expected.calls.as_slice();
        let shorter = calls.split_last().map_or(calls, |(_, shorter)| shorter);
        !self.whole && (self.calls == calls || (front == Wire::OpenAiChat && self.calls == shorter))
    }
}

/// Reads the bodies of a file, and counts the lines of unknown wires.
fn of_file(path: &str) -> (Vec<Recording>, usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let known = lines.iter().filter_map(|line| {
        let wire = Wire::from_name(line["wire"].as_str()?.rsplit_once('-')?.0)?;
        let body = line["body"].as_str()?;
        let body = match wire {
            Wire::Bedrock => body
                .chars()
                .map(|sign| u8::try_from(u32::from(sign)).unwrap())
                .collect(),
            _ => body.as_bytes().to_vec(),
        };
        Some(Recording {
            name: format!("{} of {path}", line["id"]),
            wire,
            body,
            calls: None,
        })
    });
    let known: Vec<_> = known.collect();
    let unknown = lines.len() - known.len();
    (known, unknown)
}

/// Serves each body to the request that names its number.
async fn back(recordings: Arc<Vec<Recording>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&recordings)));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, recordings: Arc<Vec<Recording>>) {
    let mut bytes = Vec::new();
    let number = loop {
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "a request without a number"
        );
        let text = String::from_utf8_lossy(&bytes);
        let number = text
            .split_once("recording ")
            .and_then(|(_, rest)| rest.split_once('.'));
        if let Some((number, _)) = number {
            break number.parse::<usize>().unwrap();
        }
    };
    let Recording { wire, body, .. } = &recordings[number];
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nConnection: close\r\n\r\n",
        wire.stream_type()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in ChunkSplit::Size(997).split_bytes(body) {
        // A client that needs no more of it disconnects.
        if stream.write_all(piece).await.is_err() {
            return;
        }
    }
    _ = stream.shutdown().await;
    // A connection that is closed before all of the request was read would be reset.
    _ = stream.read_to_end(&mut bytes).await;
}

fn model(address: SocketAddr, wire: Wire, reads: TextParsing) -> HttpModel {
    let version = if wire.name().starts_with("openai") {
        "/v1"
    } else {
        ""
    };
    let provider = Provider::new("recorded", wire, format!("http://{address}{version}"), None);
    HttpModel::new(provider)
        .caller_scope(CallerScope::Many)
        .retries(RetryPolicy {
            limit: 0,
            ..RetryPolicy::default()
        })
        .text_parsing(reads)
}

/// One model for each wire and protocol.
async fn gateway(address: SocketAddr) -> TestGateway {
    let mut routes = RouteTable::default();
    for wire in Wire::ALL {
        for (repair_mode, reads) in [
            (RepairMode::Pass, TextParsing::Nothing),
            (RepairMode::Repair, TextParsing::Text),
        ] {
            let route = ModelRoute {
                name: "model".to_owned(),
                model: Arc::new(model(address, wire, reads)),
                id: "behind".to_owned(),
                protocol: sabir_call::ToolProtocol::Native,
                repair_mode,
                provider_wires: vec![ProviderWire {
                    wire,
                    form: WireOptions {
                        streamed: true,
                        ..WireOptions::default()
                    },
                }],
                limits: sabir_gateway::ModelLimits::default(),
                prices: Vec::new(),
                group: None,
            };
            routes = routes.with_route(format!("{wire}-{repair_mode}"), route);
        }
    }
    let setup = TestGateway::new(ReplyScript::new([])).await;
    setup.gateway.replace_routes(routes);
    setup
}

/// Makes a request for that recording, with all the tools that it calls.
fn request(number: usize, model: String, direct: &DraftResponse) -> Request {
    let mut names: Vec<&str> = direct
        .calls()
        .map(|call| call.name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    names.push("read_file");
    names.sort_unstable();
    names.dedup();
    let tool = |name: &str| ToolSpec::new(name, "Does it.", json!({"type": "object"}));
    Request {
        model,
        messages: vec![Message::user(format!("recording {number}."))].into(),
        tools: ToolSet::new(names.into_iter().map(tool).collect()).unwrap(),
        max_output_tokens: Some(4096),
        ..Request::default()
    }
}

/// Reads the answer with the dialect parser and the gates, without a gateway.
async fn gated(
    address: SocketAddr,
    recording: &Recording,
    request: &Request,
    report: &DecodeReport,
) -> Said {
    let mut draft = DraftResponse::default();
    _ = model(address, recording.wire, TextParsing::Text)
        .stream_response(request, &mut draft)
        .await;
    let checked = CallChecker::new(request.tools.clone()).check_all(&draft);
    let cut = checked
        .iter()
        .any(|checked| checked.state == CallState::Cut);
    let complete = checked
        .into_iter()
        .filter(|checked| checked.state == CallState::Complete);
    let calls = complete
        .map(|checked| format!("{} {}", checked.name, Value::Object(checked.arguments)))
        .collect();
    let said = Said::of(&draft, report);
    // A cut call ends a repaired answer with an error, unless the stop reason says that it was cut.
    let limited = matches!(draft.stop, Some((StopReason::Length, _)));
    Said {
        calls,
        whole: said.whole && (limited || !cut),
        ..said
    }
}

async fn asked(setup: &TestGateway, front: Wire, path: &str, request: &Request) -> Got {
    let form = WireOptions {
        streamed: true,
        ..WireOptions::default()
    };
    let mut body = front.encode_request(request, &form);
    body["stream"] = json!(true);
    setup.ask(path, &body).await
}

#[tokio::test]
async fn recorded_responses_pass_through_every_front() {
    let mut recordings = bodies::all();
    if let Ok(path) = std::env::var("SABIR_RECORDINGS") {
        let (more, unknown) = of_file(&path);
        eprintln!(
            "{} bodies of {path}; {unknown} more are of no wire",
            more.len()
        );
        recordings.extend(more);
    }
    let recordings = Arc::new(recordings);
    let address = back(Arc::clone(&recordings)).await;
    let setup = gateway(address).await;
    let (mut pairs, mut found_calls, mut wrong) = (BTreeMap::new(), 0, Vec::new());
    for (number, recording) in recordings.iter().enumerate() {
        let (mut decoder, mut direct) = (
            ResponseDecoder::new(recording.wire),
            DraftResponse::default(),
        );
        decoder.push(&recording.body, &mut direct);
        let report = decoder.finish(BodyEnd::Clean, &mut direct);
        let plain = Said::of(&direct, &report);
        let repaired = gated(
            address,
            recording,
            &request(number, String::new(), &direct),
            &report,
        )
        .await;
        if let Some(calls) = recording.calls {
            assert_eq!(
                [plain.calls.len(), repaired.calls.len()],
                calls,
                "{}, {}",
                recording.wire,
                recording.name
            );
        }
        for (front, path) in FRONTS {
            for (repair_mode, expected) in
                [(RepairMode::Pass, &plain), (RepairMode::Repair, &repaired)]
            {
                let request = request(number, format!("{}-{repair_mode}", recording.wire), &direct);
                let got = asked(&setup, front, path, &request).await;
                *pairs
                    .entry((recording.wire.name(), front.name(), repair_mode.to_string()))
                    .or_insert(0) += 1;
                let (draft, report) = got.read(front);
                let found = Said::of(&draft, &report);
                found_calls += found.calls.len();
                if !found.is(expected, front) {
                    let Recording { name, wire, .. } = recording;
                    wrong.push(format!(
                        "{name}, {wire} to {front}, {repair_mode}, {}: found {found:#?}, expected {expected:#?}",
                        got.status
                    ));
                }
            }
        }
    }
    let all: usize = pairs.values().sum();
    eprintln!(
        "{} bodies, {all} pairs of body and front, {found_calls} calls",
        recordings.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {all}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(
        (pairs.len(), all),
        (
            Wire::ALL.len() * FRONTS.len() * 2,
            recordings.len() * FRONTS.len() * 2
        )
    );
}
