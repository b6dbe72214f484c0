//! Tests calls that leak, break or are cut, as clients of every wire see them.

use std::sync::Arc;

use sabir_call::{ArgumentEncoding, DraftState, MessagePart, StopReason, ToolProtocol};
use sabir_gateway::{ModelRoute, RepairMode, RouteTable};
use sabir_model::{CallerScope, HttpModel, Provider, RetryPolicy, TextParsing};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::test_gateway::{FRONTS, LONG, TestGateway, body, got, route};

async fn start_gateway(
    repair_mode: RepairMode,
    protocol: ToolProtocol,
    replies: Vec<ProviderReply>,
) -> TestGateway {
    let setup = TestGateway::new(ReplyScript::new(replies)).await;
    let route = ModelRoute {
        repair_mode,
        protocol,
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    setup
}

fn native() -> ToolProtocol {
    ToolProtocol::Native
}

const LEAK: &str = "I read it.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}\n</tool_call>";
const BROKEN: &str = "I read it.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": oops}}\n</tool_call>";
const CUT: &str =
    "I read it.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.r";

/// Returns the calls that a client would run.
pub(crate) fn runnable(draft: &sabir_call::DraftResponse) -> Vec<String> {
    let value = |argument: &sabir_call::DraftArgument| match argument.form {
        ArgumentEncoding::Json => {
            serde_json::from_str(&argument.text).unwrap_or_else(|_| panic!("{draft:?}"))
        }
        _ => Value::from(argument.text.as_str()),
    };
    let closed = draft
        .calls()
        .filter(|call| call.state == DraftState::Closed);
    let whole = closed.filter(|call| draft.errors_of(call.index).next().is_none());
    let row = |call: &sabir_call::DraftCall| {
        let arguments = call
            .arguments
            .iter()
            .map(|argument| (argument.name.clone(), value(argument)));
        format!("{} {}", call.name, Value::Object(arguments.collect()))
    };
    whole.map(row).collect()
}

#[tokio::test]
async fn a_leaked_call_is_native_on_every_front() {
    for chunks in [ChunkSplit::Whole, ChunkSplit::Size(1)] {
        let replies = vec![ProviderReply::text(LEAK).in_deltas(3).in_chunks(chunks); 8];
        let setup = start_gateway(RepairMode::Repair, native(), replies).await;
        for (front, path) in FRONTS {
            for streamed in [true, false] {
                let got = setup.ask(path, &body(front, "go", streamed)).await;
                let (draft, report) = got.read(front);
                assert_eq!(
                    runnable(&draft),
                    [r#"read_file {"path":"a.rs"}"#],
                    "{front} {}",
                    got.text()
                );
                assert_eq!(
                    (draft.text().trim_end(), report.error),
                    ("I read it.", None),
                    "{front}"
                );
                assert_eq!(
                    draft.stop.map(|(reason, _)| reason),
                    Some(StopReason::Calls),
                    "{front} {}",
                    got.text()
                );
                assert!(!got.text().contains("tool_call>"), "{front} {}", got.text());
            }
        }
    }
}

#[tokio::test]
async fn a_cut_or_broken_call_is_an_error_and_no_call() {
    for text in [CUT, BROKEN] {
        let setup = start_gateway(
            RepairMode::Repair,
            native(),
            vec![ProviderReply::text(text).in_deltas(5); 8],
        )
        .await;
        for (front, path) in FRONTS {
            let got = setup.ask(path, &body(front, "go", true)).await;
            let (draft, report) = got.read(front);
            assert_eq!(
                (got.status, runnable(&draft).len()),
                (200, 0),
                "{front} {}",
                got.text()
            );
            assert!(report.error.is_some(), "{front} {}", got.text());
            assert_eq!(draft.stop, None, "{front} {}", got.text());

            let got = setup.ask(path, &body(front, "go", false)).await;
            assert_eq!(got.status, 502, "{front} {}", got.text());
            assert!(got.text().contains("read_file"), "{front} {}", got.text());
        }
        let ends = setup.ends(8).await;
        assert!(
            ends.iter().all(|end| !end.whole && end.error.is_some()),
            "{ends:?}"
        );
    }
}

/// A native stream of Chat Completions: a whole call, and one that the output limit cut.
const CUT_NATIVE: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"I read it."}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read_file","arguments":"{\"path\": \"a.r"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":99}}

data: [DONE]

"#;

#[tokio::test]
async fn a_call_cut_by_the_output_limit_ends_the_answer_with_the_reason_of_the_limit() {
    let leaked = ProviderReply {
        stop: Some(StopReason::Length),
        usage: sabir_call::Usage {
            input: Some(7),
            output: Some(99),
            ..Default::default()
        },
        ..ProviderReply::text(CUT).in_deltas(5)
    };
    let spoken = ProviderReply::text("").with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: CUT_NATIVE.to_owned(),
    });
    for (reply, mode, asked) in [
        (&leaked, RepairMode::Repair, 1),
        (&spoken, RepairMode::Repair, 1),
        (&leaked, RepairMode::Retry(1), 2),
        (&spoken, RepairMode::Retry(1), 2),
    ] {
        let replies = vec![reply.clone(); 8 * asked];
        let setup = start_gateway(mode, native(), replies).await;
        for (front, path) in FRONTS {
            for streamed in [true, false] {
                let got = setup.ask(path, &body(front, "go", streamed)).await;
                let (draft, report) = got.read(front);
                assert_eq!(
                    (got.status, report.error, runnable(&draft).len()),
                    (200, None, 0),
                    "{front} {}",
                    got.text()
                );
                assert_eq!(
                    (
                        draft.stop.as_ref().map(|(reason, _)| *reason),
                        draft.text().replace('\n', ""),
                        draft.usage.output.is_some_and(|count| count >= 99)
                    ),
                    (
                        Some(StopReason::Length),
                        "I read it.".repeat(asked),
                        front != Wire::OpenAiChat || !streamed
                    ),
                    "{front} {}",
                    got.text()
                );
            }
        }
        let ends = setup.ends(8).await;
        assert!(
            ends.iter().all(|end| end.whole && end.error.is_none()),
            "{ends:?}"
        );
        assert_eq!(setup.provider.received_requests().len(), 8 * asked);
    }
}

#[tokio::test]
async fn whole_calls_before_the_cut_one_reach_the_client() {
    let body_text = CUT_NATIVE.replacen(
        r#"{"index":0,"id":"c1","#,
        r#"{"index":0,"id":"c0","function":{"name":"read_file","arguments":"{\"path\": \"b.rs\"}"}},{"index":1,"id":"c1","#,
        1,
    );
    let spoken = ProviderReply::text("").with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: body_text,
    });
    for mode in [RepairMode::Repair, RepairMode::Retry(1)] {
        let setup = start_gateway(mode, native(), vec![spoken.clone(); 8]).await;
        for (front, path) in FRONTS {
            for streamed in [true, false] {
                let got = setup.ask(path, &body(front, "go", streamed)).await;
                let (draft, report) = got.read(front);
                // Read by the rule that the last call before this reason may be cut, the whole
                // call of a body that leaves the cut one out counts as cut too.
                assert!(
                    got.text().contains("b.rs")
                        && runnable(&draft).iter().all(|call| call.contains("b.rs")),
                    "{front} {mode} {}",
                    got.text()
                );
                assert_eq!(report.error, None, "{front} {mode}");
                assert_eq!(
                    draft.stop.map(|(reason, _)| reason),
                    Some(StopReason::Length),
                    "{front} {mode} {}",
                    got.text()
                );
            }
        }
    }
}

/// F-GAT-03: at most one silent retry, then the text and `stop`; never an invented call.
#[tokio::test]
async fn a_broken_call_is_retried_and_the_client_sees_one_answer() {
    for (front, path) in FRONTS {
        for (streamed, protocol) in [
            (true, native()),
            (false, native()),
            (true, ToolProtocol::Prompted("hermes".into())),
        ] {
            let replies = vec![
                ProviderReply::text(BROKEN),
                ProviderReply::text(LEAK),
                ProviderReply::text(BROKEN),
                ProviderReply::text(BROKEN),
            ];
            let setup = start_gateway(RepairMode::Retry(1), protocol.clone(), replies).await;
            let got = setup.ask(path, &body(front, "go", streamed)).await;
            let (draft, _) = got.read(front);
            assert_eq!(
                runnable(&draft),
                [r#"read_file {"path":"a.rs"}"#],
                "{front} {}",
                got.text()
            );
            let asked = setup.provider.received_requests();
            let again = asked[1].incoming.as_ref().unwrap().as_ref().unwrap();
            let [.., said, told] = again.request.messages.as_slice() else {
                panic!("no history")
            };
            let called = said.calls().count();
            let answered = told
                .parts
                .iter()
                .filter(|part| matches!(part, MessagePart::Result(_)))
                .count();
            let as_result = usize::from(protocol == native());
            assert_eq!(
                (called, answered),
                (as_result, as_result),
                "{front} {:?}",
                asked[1].body
            );
            assert!(
                asked[1].body.to_string().contains("was not run"),
                "{front} {:?}",
                asked[1].body
            );

            let got = setup.ask(path, &body(front, "go", streamed)).await;
            let (draft, report) = got.read(front);
            assert_eq!(
                (got.status, runnable(&draft).len(), report.error),
                (200, 0, None),
                "{front} {}",
                got.text()
            );
            assert_eq!(
                draft.stop.clone().map(|(reason, _)| reason),
                Some(StopReason::End),
                "{front} {}",
                got.text()
            );
            assert!(
                draft.text().starts_with("I read it."),
                "{front} {}",
                got.text()
            );
            assert!(!got.text().contains("oops"), "{front} {}", got.text());
        }
    }
}

/// Words behind a call can show that it is only mentioned: a call that the model may be asked about again does not leave before.
#[tokio::test]
async fn a_mentioned_call_is_never_sent_where_the_model_can_be_asked_again() {
    let mentioned = format!(
        "You could write {} to read it.",
        &LEAK[LEAK.find('<').unwrap()..]
    );
    for (front, path) in FRONTS {
        for streamed in [true, false] {
            let replies = vec![
                ProviderReply::text(&mentioned).in_deltas(3),
                ProviderReply::text("It is read."),
            ];
            let setup = start_gateway(RepairMode::Retry(1), native(), replies).await;
            let got = setup.ask(path, &body(front, "go", streamed)).await;
            let (draft, report) = got.read(front);
            assert_eq!(runnable(&draft), [""; 0], "{front} {}", got.text());
            assert_eq!(report.error, None, "{front} {}", got.text());
            assert!(
                draft.text().contains("It is read."),
                "{front} {}",
                got.text()
            );
            assert_eq!(setup.provider.received_requests().len(), 2);
        }
    }
}

#[tokio::test]
async fn a_repair_report_is_sent_on_request() {
    let replies = vec![
        ProviderReply::text(LEAK),
        ProviderReply::text(LEAK),
        ProviderReply::text("hi"),
        ProviderReply::text(LEAK),
    ];
    let setup = start_gateway(RepairMode::Repair, native(), replies).await;
    let report = |headers: &'static str, streamed: bool| {
        let (front, path) = (Wire::OpenAiChat, "/v1/chat/completions");
        let request = setup.request(
            "POST",
            path,
            headers,
            &body(front, "go", streamed).to_string(),
        );
        let setup = &setup;
        async move { setup.raw(&request).await }
    };
    let whole = report("sabir-report: 1\r\n", false).await;
    assert!(
        whole.head.contains("sabir-report: leaked_call=1\r\n"),
        "{}",
        whole.head
    );
    let streamed = report("sabir-report: 1\r\n", true).await;
    assert!(
        streamed
            .text()
            .contains("\n: sabir-report leaked_call=1\n\n"),
        "{}",
        streamed.text()
    );
    let (draft, told) = streamed.read(Wire::OpenAiChat);
    assert_eq!(
        (runnable(&draft).len(), told.ended, told.unreadable),
        (1, true, 0)
    );
    let plain = report("sabir-report: 1\r\n", false).await;
    assert!(
        plain.head.contains("sabir-report: none\r\n"),
        "{}",
        plain.head
    );
    let unasked = report("", true).await;
    assert!(
        !unasked.text().contains("sabir-report"),
        "{}",
        unasked.text()
    );
}

#[tokio::test]
async fn pass_mode_only_converts_the_wire() {
    let provider = TestGateway::new(ReplyScript::new(vec![ProviderReply::text(LEAK)])).await;
    let wire = Wire::OpenAiChat;
    let reached = Provider::new("scripted", wire, provider.provider.base_url(wire), None);
    let model = HttpModel::new(reached)
        .caller_scope(CallerScope::Many)
        .text_parsing(TextParsing::Nothing);
    let route = ModelRoute {
        model: Arc::new(model),
        repair_mode: RepairMode::Pass,
        ..route(&provider.provider)
    };
    provider
        .gateway
        .replace_routes(RouteTable::default().with_route("model", route));
    let got = provider
        .ask("/v1/messages", &body(Wire::Anthropic, "go", true))
        .await;
    assert_eq!(got.read(Wire::Anthropic).0.text(), LEAK);
}

/// A provider that sends exactly the bytes that the test orders, when it orders them.
struct Spoken {
    stream: TcpStream,
}

impl Spoken {
    /// Accepts a request and begins a stream.
    async fn take(listener: &TcpListener) -> Self {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        let begin =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        stream.write_all(begin).await.unwrap();
        Self { stream }
    }

    async fn say(&mut self, text: &str) {
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        self.stream
            .write_all(format!("data: {chunk}\n\n").as_bytes())
            .await
            .unwrap();
    }

    async fn stop(&mut self) {
        let chunk = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        self.stream
            .write_all(format!("data: {chunk}\n\ndata: [DONE]\n\n").as_bytes())
            .await
            .unwrap();
        self.stream.shutdown().await.unwrap();
    }
}

/// A client that reads an answer piece by piece.
struct Reading {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Reading {
    /// Returns the number of received bytes of arguments.
    fn arguments(&self) -> usize {
        let (draft, _) = got(&self.bytes).read(Wire::OpenAiChat);
        draft
            .calls()
            .flat_map(|call| &call.arguments)
            .map(|argument| argument.text.len())
            .sum()
    }

    /// Reads until this number of bytes of arguments has arrived.
    async fn until(&mut self, count: usize) {
        let read = async {
            while self.arguments() < count {
                assert!(
                    self.stream.read_buf(&mut self.bytes).await.unwrap() > 0,
                    "the answer ended"
                );
            }
        };
        tokio::time::timeout(LONG, read)
            .await
            .unwrap_or_else(|_| panic!("{count} bytes of arguments did not come"));
    }
}

/// The bytes that may be held back: a candidate for the end of the value, and the beginning of a raw value.
const HELD: usize = 64 + 256;

#[tokio::test]
async fn an_argument_streams_while_it_is_written() {
    let line = "0123456789abcde\n";
    let spellings = [
        ("<read_file><path>\n", "\n</path></read_file>", line),
        (
            "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"",
            "\"}}\n</tool_call>",
            "0123456789abcdef",
        ),
    ];
    for (open, close, piece) in spellings {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let setup = TestGateway::new(ReplyScript::new(Vec::new())).await;
        let provider = Provider::new(
            "spoken",
            Wire::OpenAiChat,
            format!("http://{address}/v1"),
            None,
        );
        let model = HttpModel::new(provider)
            .caller_scope(CallerScope::Many)
            .retries(RetryPolicy {
                limit: 0,
                ..RetryPolicy::default()
            });
        let route = ModelRoute {
            model: Arc::new(model),
            ..route(&setup.provider)
        };
        setup
            .gateway
            .replace_routes(RouteTable::default().with_route("model", route));
        let asked = body(Wire::OpenAiChat, "go", true).to_string();
        let mut stream = setup.open().await;
        stream
            .write_all(&setup.request("POST", "/v1/chat/completions", "", &asked))
            .await
            .unwrap();
        let mut reading = Reading {
            stream,
            bytes: Vec::new(),
        };
        let mut spoken = Spoken::take(&listener).await;
        spoken.say(open).await;
        // The provider sends nothing more until the client has everything except the bytes that may
        // be held back.
        let mut said = 0;
        while said < 100 << 10 {
            let block = piece.repeat(256);
            spoken.say(&block).await;
            said += block.len();
            reading.until(said - HELD).await;
        }
        spoken.say(close).await;
        spoken.stop().await;
        reading.until(said - 1).await;
    }
}

/// If one call is allowed, the text that the model makes up after it is not awaited.
#[tokio::test]
async fn a_call_is_sent_before_the_rest_of_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let setup = TestGateway::new(ReplyScript::new(Vec::new())).await;
    let provider = Provider::new(
        "spoken",
        Wire::OpenAiChat,
        format!("http://{address}/v1"),
        None,
    );
    let model = HttpModel::new(provider).caller_scope(CallerScope::Many);
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route(
            "model",
            ModelRoute {
                model: Arc::new(model),
                ..route(&setup.provider)
            },
        ));
    let mut asked = body(Wire::OpenAiChat, "go", true);
    asked["parallel_tool_calls"] = json!(false);
    let speak = async {
        let mut spoken = Spoken::take(&listener).await;
        spoken.say(LEAK).await;
        spoken.say("\n\nThe file says: made up").await;
        // It never ends, so the gateway disconnects.
        let mut rest = Vec::new();
        spoken.stream.read_to_end(&mut rest).await.is_ok()
    };
    let (got, _) = tokio::join!(setup.ask("/v1/chat/completions", &asked), speak);
    let (draft, report) = got.read(Wire::OpenAiChat);
    assert_eq!(
        (runnable(&draft).len(), report.ended),
        (1, true),
        "{}",
        got.text()
    );
    assert!(!got.text().contains("made up"), "{}", got.text());
}
