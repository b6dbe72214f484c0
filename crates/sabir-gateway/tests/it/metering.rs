//! Tests the tokens that count for the key of a client, for answers of every end.

use sabir_call::Usage;
use sabir_gateway::{ModelRoute, RepairMode, RouteTable};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::test_gateway::{TestGateway, body, route, until};

/// The path of most requests.
const CHAT: &str = "/v1/chat/completions";

/// Returns a request with some input.
fn asked(streamed: bool) -> Value {
    body(Wire::OpenAiChat, &"word ".repeat(100), streamed)
}

/// A reply with a large call, and no usage.
fn large_call() -> ProviderReply {
    ProviderReply::text("Here.").with_call("call_1", "read_file", large_arguments())
}

fn large_arguments() -> Value {
    json!({"path": "x".repeat(8000)})
}

/// Sends a request, reads the answer until it contains a text, and leaves. With an empty text it leaves once the
/// model was asked.
async fn leave_at(setup: &TestGateway, path: &str, asked: &Value, text: &str) {
    let mut stream = setup.open().await;
    let request = setup.request("POST", path, "", &asked.to_string());
    stream.write_all(&request).await.unwrap();
    if text.is_empty() {
        until("the request", || {
            !setup.provider.received_requests().is_empty()
        })
        .await;
    }
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
    }
}

/// Returns the tokens that count for the only exchange: input and output.
async fn counted(setup: &TestGateway) -> [u64; 2] {
    let ends = setup.ends(1).await;
    let counted = ends[0].counted;
    [counted.input.unwrap_or(0), counted.output.unwrap_or(0)]
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_pays_for_its_input() {
    for streamed in [true, false] {
        let silent = ProviderReply::text("hello").with_fault(ScriptedFault::StallBeforeHeaders);
        let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| silent.clone())).await;
        leave_at(&setup, CHAT, &asked(streamed), "").await;
        let [input, output] = counted(&setup).await;
        assert!(input > 100, "{streamed}: {input}");
        assert_eq!(output, 0);
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_whole_answer_pays_for_what_was_read() {
    let long = ProviderReply {
        pause: 10,
        ..ProviderReply::text("word ".repeat(4000))
            .in_deltas(50)
            .in_chunks(ChunkSplit::Size(2000))
    };
    let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| long.clone())).await;
    let mut stream = setup.open().await;
    let request = setup.request("POST", CHAT, "", &asked(false).to_string());
    stream.write_all(&request).await.unwrap();
    until("the request", || {
        !setup.provider.received_requests().is_empty()
    })
    .await;
    // Nothing of a whole answer arrives before its end, so only time tells that some of it was
    // read.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    drop(stream);
    let [input, output] = counted(&setup).await;
    assert!(input > 100 && output > 0, "{input} {output}");
}

#[tokio::test]
async fn calls_count_in_whole_answers_and_in_those_that_are_left() {
    for (streamed, text) in [(false, "finish_reason"), (true, "finish_reason\":\"tool")] {
        let setup = TestGateway::new(ReplyScript::from_fn(|_, _| large_call())).await;
        leave_at(&setup, CHAT, &asked(streamed), text).await;
        let [_, output] = counted(&setup).await;
        assert!(output >= 2000, "{streamed}: {output}");
    }
    let slow = ProviderReply {
        pause: 5,
        ..large_call()
            .in_deltas(100)
            .in_chunks(ChunkSplit::Size(1000))
    };
    let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| slow.clone())).await;
    leave_at(&setup, CHAT, &asked(true), &"x".repeat(50)).await;
    let [_, output] = counted(&setup).await;
    assert!(output >= 20, "{output}");
}

#[tokio::test]
async fn an_error_in_the_middle_counts_alike_streamed_and_whole() {
    let mut both = Vec::new();
    for streamed in [true, false] {
        let script = ReplyScript::from_fn(|_, _| {
            let words = ProviderReply::text("word ".repeat(100)).in_deltas(10);
            words.with_fault(ScriptedFault::CutHalf)
        });
        let setup = TestGateway::new(script).await;
        setup.ask(CHAT, &asked(streamed)).await;
        both.push(counted(&setup).await);
    }
    assert_eq!(both.first(), both.last());
    let [input, output] = both[0];
    assert!(input > 100 && output > 50, "{both:?}");
}

#[tokio::test]
async fn every_attempt_of_a_retry_counts() {
    let script = ReplyScript::from_fn(|turn, _| match turn {
        // The tool does not exist.
        0 => ProviderReply::default().with_call("call_1", "write_everything", large_arguments()),
        _ => ProviderReply {
            pause: 5,
            ..ProviderReply::text("word ".repeat(2000))
                .in_deltas(50)
                .in_chunks(ChunkSplit::Size(1000))
        },
    });
    let setup = TestGateway::new(script).await;
    let retrying = ModelRoute {
        repair_mode: RepairMode::Retry(2),
        ..route(&setup.provider)
    };
    setup
        .gateway
        .replace_routes(RouteTable::default().with_route("model", retrying));
    leave_at(&setup, CHAT, &asked(true), "word").await;
    let [input, output] = counted(&setup).await;
    assert!(input > 250 && output > 2000, "{input} {output}");
}

#[tokio::test]
async fn an_answer_whose_rest_is_not_wanted_has_a_usage() {
    let two = || large_call().with_call("call_2", "read_file", json!({"path": "b"}));
    let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| two())).await;
    let mut one = asked(false);
    one["parallel_tool_calls"] = json!(false);
    let got = setup.ask(CHAT, &one).await.json();
    let calls = &got["choices"][0]["message"]["tool_calls"];
    assert_eq!(calls.as_array().map(Vec::len), Some(1), "{got}");
    let [input, output] = counted(&setup).await;
    assert!(input > 100 && output >= 2000, "{input} {output}");
    // The client learns the estimate too.
    assert_eq!(got["usage"]["prompt_tokens"], json!(input), "{got}");
    assert_eq!(got["usage"]["completion_tokens"], json!(output), "{got}");
}

#[tokio::test]
async fn reported_usage_is_counted_as_it_is() {
    let reported = Usage {
        input: Some(7),
        output: Some(3),
        ..Usage::default()
    };
    for streamed in [true, false] {
        let script = ReplyScript::from_fn(move |_, _| ProviderReply {
            usage: reported,
            ..large_call()
        });
        let setup = TestGateway::new(script).await;
        setup.ask(CHAT, &asked(streamed)).await;
        assert_eq!(counted(&setup).await, [7, 3]);
    }
}

#[tokio::test]
async fn a_refused_request_counts_nothing() {
    for status in [400, 401, 429, 500] {
        let script = ReplyScript::from_fn(move |_, _| ProviderReply::error_status(status));
        let setup = TestGateway::new(script).await;
        setup.ask(CHAT, &asked(true)).await;
        assert_eq!(counted(&setup).await, [0, 0], "{status}");
    }
}
