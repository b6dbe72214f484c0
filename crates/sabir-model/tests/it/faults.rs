//! Tests faults of streams and connections, each with its expected outcome. The list of all faults is in
//! `crates/sabir/tests/it/faults/held.md`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sabir_call::{
    DraftResponse, DraftState, Event, Message, MessagePart, Model, ModelErrorKind, OpaqueState,
    Role,
};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider, UntrustedServer};
use sabir_wire::Wire;
use serde_json::json;

use crate::http::{ask, check_good, good, inside, model, request};

/// A body of server-sent events.
fn events(lines: &[&str]) -> ProviderReply {
    let body: String = lines.iter().map(|line| format!("{line}\n\n")).collect();
    ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body,
    })
}

const WORD: &str = r#"data: {"choices":[{"delta":{"content":"Hm."}}]}"#;
const STOP: &str = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

async fn refused(base_url: &str) -> (sabir_call::ModelError, usize) {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let model = model(Wire::OpenAiChat, base_url).on_retry(move |_| *counted.lock().unwrap() += 1);
    let error = model
        .stream_response(&request(Wire::OpenAiChat), &mut DraftResponse::default())
        .await
        .unwrap_err();
    let retries = *count.lock().unwrap();
    (error, retries)
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_named_and_tried_again() {
    let (error, retries) = refused("http://no-such-host.invalid/v1").await;
    assert_eq!(
        (error.kind, retries),
        (ModelErrorKind::Unreachable, 2),
        "{error}"
    );
    assert!(error.message.contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused_before_anything_is_sent() {
    let server = UntrustedServer::start().unwrap();
    let (error, retries) = refused(&server.base_url()).await;
    assert_eq!(
        (error.kind, retries),
        (ModelErrorKind::Unreachable, 0),
        "{error}"
    );
    assert!(error.message.contains("certificate"), "{error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        server.connection_counts(),
        (1, 0),
        "one connection, and nothing said on it"
    );
}

#[tokio::test]
async fn a_truncated_transfer_is_tried_again_before_anything_came() {
    for wire in Wire::ALL {
        let outcome = ask(
            wire,
            vec![good().with_fault(ScriptedFault::TruncateAfter(0)), good()],
        )
        .await;
        check_good(&outcome);
        assert_eq!(outcome.requests, 2);
        let outcome = ask(
            wire,
            vec![
                good().with_fault(ScriptedFault::TruncateAfter(inside(wire))),
                good(),
            ],
        )
        .await;
        assert_eq!(
            (outcome.error().kind, outcome.requests),
            (ModelErrorKind::Broken, 1),
            "{wire}"
        );
        assert!(
            outcome
                .draft
                .calls()
                .all(|call| call.state != DraftState::Closed)
        );
    }
}

#[tokio::test]
async fn an_invalid_event_is_retried_and_never_skipped() {
    let outcome = ask(
        Wire::OpenAiChat,
        vec![events(&["data: {oh", "data: [DONE]"]), good()],
    )
    .await;
    check_good(&outcome);
    assert_eq!(outcome.requests, 2, "before anything came");
    let outcome = ask(
        Wire::OpenAiChat,
        vec![events(&[WORD, "data: {oh", STOP]), good()],
    )
    .await;
    assert_eq!(
        (outcome.error().kind, outcome.requests),
        (ModelErrorKind::Broken, 1),
        "in the middle"
    );
    assert_eq!(
        (outcome.draft.text().as_str(), outcome.draft.faults.len()),
        ("Hm.", 1)
    );
}

#[tokio::test]
async fn a_delta_for_a_block_that_never_began_breaks_the_answer() {
    let delta = r#"data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    let stop = r#"data: {"type":"message_stop"}"#;
    let outcome = ask(Wire::Anthropic, vec![events(&[delta, stop]), good()]).await;
    check_good(&outcome);
    assert_eq!(outcome.requests, 2);
}

#[tokio::test]
async fn a_context_overflow_is_recognized_in_every_form() {
    for wire in Wire::ALL {
        for words in [
            "prompt is too long: 9 tokens > 8",
            "This model's maximum context length is 8 tokens",
        ] {
            let overflow = ScriptedFault::Error {
                code: "invalid_request".to_owned(),
                message: words.to_owned(),
            };
            let outcome = ask(
                wire,
                vec![ProviderReply::default().with_fault(overflow), good()],
            )
            .await;
            assert_eq!(
                (outcome.error().kind, outcome.requests),
                (ModelErrorKind::TooLong, 1),
                "{wire}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_waits_for_its_reader() {
    let provider =
        ScriptedProvider::start(ReplyScript::new([good().with_fault(ScriptedFault::Flood)]))
            .await
            .unwrap();
    let model = model(Wire::OpenAiChat, &provider.base_url(Wire::OpenAiChat));
    let before = resident();
    let mut first = true;
    let mut taken = 0;
    let mut sink = |_: Event<'_>| {
        if std::mem::take(&mut first) {
            std::thread::sleep(Duration::from_millis(500));
            taken = provider.flooded_byte_count();
        }
    };
    let error = model
        .stream_response(&request(Wire::OpenAiChat), &mut sink)
        .await;
    // The comments after the answer are not awaited.
    assert_eq!(error, Ok(()));
    assert!(
        taken < 64 << 20,
        "{taken} bytes were taken while nobody read"
    );
    assert!(
        resident() < before + (64 << 10),
        "memory grew from {before} to {} KiB",
        resident()
    );
}

/// The memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test]
async fn signatures_of_another_model_are_left_out_when_they_are_refused() {
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}});
    let provider = ScriptedProvider::start(ReplyScript::from_fn(move |_, request| {
        let stale = request.body.to_string().contains("of-another-model");
        if stale {
            ProviderReply::error_status(400).with_body(&refusal.to_string())
        } else {
            good()
        }
    }));
    let provider = provider.await.unwrap();
    let model = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic));
    let data = json!({"type": "thinking", "signature": "of-another-model"});
    let opaque = Some(OpaqueState {
        wire: Wire::Anthropic.name().to_owned(),
        origin: None,
        data,
    });
    let mut asked = request(Wire::Anthropic);
    let parts = vec![
        MessagePart::Thought {
            text: "Hm.".to_owned(),
            opaque,
        },
        MessagePart::text("Well."),
    ];
    asked.messages.push(Message {
        role: Role::Assistant,
        parts,
    });
    asked.messages.push(Message::user("Go on."));
    for requests in [2, 3] {
        model
            .stream_response(&asked, &mut DraftResponse::default())
            .await
            .unwrap();
        assert_eq!(
            provider.received_requests().len(),
            requests,
            "once it is known, it is not tried again"
        );
    }
    let body = &provider.received_requests()[2].body;
    assert!(body["messages"].to_string().contains("Well."), "{body}");
}

#[tokio::test]
async fn a_retry_after_a_broken_answer_waits_and_is_reported() {
    let broken = || good().with_fault(ScriptedFault::CutAfter(inside(Wire::Anthropic)));
    let overloaded = ScriptedFault::Error {
        code: "overloaded_error".into(),
        message: "Overloaded".into(),
    };
    let replies = vec![
        broken(),
        ProviderReply::text("Hm.").with_fault(overloaded),
        good(),
        good(),
    ];
    let provider = ScriptedProvider::start(ReplyScript::new(replies))
        .await
        .unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    let model =
        model(Wire::Anthropic, &provider.base_url(Wire::Anthropic)).on_retry(move |retry| {
            noted
                .lock()
                .unwrap()
                .push((retry.attempt, retry.error.kind))
        });
    let begun = Instant::now();
    for expected in [
        Err(ModelErrorKind::Broken),
        Err(ModelErrorKind::Unavailable),
        Ok(()),
        Ok(()),
    ] {
        let result = model
            .stream_response(&request(Wire::Anthropic), &mut DraftResponse::default())
            .await;
        assert_eq!(result.map_err(|error| error.kind), expected);
    }
    assert_eq!(
        *told.lock().unwrap(),
        [
            (1, ModelErrorKind::Broken),
            (2, ModelErrorKind::Unavailable)
        ]
    );
    assert!(begun.elapsed() >= Duration::from_millis(200));
}
