//! Faults of streams and of what carries them, each with its expected end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sabir_call::{Draft, DraftState, Event, Message, Model, ModelErrorKind, Opaque, Part, Role};
use sabir_model::{HttpModel, Provider, Retries};
use sabir_testkit::{Reply, Script, ScriptedProvider, Trouble, Untrusted};
use sabir_wire::Wire;
use serde_json::json;

use crate::http::{ask, check_good, good, inside, model, request};

/// A body of server-sent events.
fn events(lines: &[&str]) -> Reply {
    let body: String = lines.iter().map(|line| format!("{line}\n\n")).collect();
    Reply::default().but(Trouble::Body { content_type: Some("text/event-stream".to_owned()), body })
}

const WORD: &str = r#"data: {"choices":[{"delta":{"content":"Hm."}}]}"#;
const STOP: &str = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

async fn refused(base_url: &str) -> (sabir_call::ModelError, usize) {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let model = model(Wire::OpenAiChat, base_url).on_retry(move |_| *counted.lock().unwrap() += 1);
    let error = model.answer(&request(Wire::OpenAiChat), &mut Draft::default()).await.unwrap_err();
    let retries = *count.lock().unwrap();
    (error, retries)
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_named_and_tried_again() {
    let (error, retries) = refused("http://no-such-host.invalid/v1").await;
    assert_eq!((error.kind, retries), (ModelErrorKind::Unreachable, 2), "{error}");
    assert!(error.message.contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_signed_itself_is_refused_once_and_hears_nothing() {
    let server = Untrusted::start().unwrap();
    let (error, retries) = refused(&server.base_url()).await;
    assert_eq!((error.kind, retries), (ModelErrorKind::Unreachable, 0), "{error}");
    assert!(error.message.contains("certificate"), "{error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.counts(), (1, 0), "one connection, and nothing said on it");
}

#[tokio::test]
async fn a_truncated_transfer_is_tried_again_before_anything_came() {
    for wire in Wire::ALL {
        let outcome = ask(wire, vec![good().but(Trouble::TruncateAfter(0)), good()]).await;
        check_good(&outcome);
        assert_eq!(outcome.requests, 2);
        let outcome = ask(wire, vec![good().but(Trouble::TruncateAfter(inside(wire))), good()]).await;
        assert_eq!((outcome.error().kind, outcome.requests), (ModelErrorKind::Broken, 1), "{wire}");
        assert!(outcome.draft.calls().all(|call| call.state != DraftState::Closed));
    }
}

#[tokio::test]
async fn an_event_that_is_no_json_is_tried_again_and_never_passed_over() {
    let outcome = ask(Wire::OpenAiChat, vec![events(&["data: {oh", "data: [DONE]"]), good()]).await;
    check_good(&outcome);
    assert_eq!(outcome.requests, 2, "before anything came");
    let outcome = ask(Wire::OpenAiChat, vec![events(&[WORD, "data: {oh", STOP]), good()]).await;
    assert_eq!((outcome.error().kind, outcome.requests), (ModelErrorKind::Broken, 1), "in the middle");
    assert_eq!((outcome.draft.text().as_str(), outcome.draft.faults.len()), ("Hm.", 1));
}

#[tokio::test]
async fn a_delta_for_a_block_that_never_began_breaks_the_answer() {
    let delta =
        r#"data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    let stop = r#"data: {"type":"message_stop"}"#;
    let outcome = ask(Wire::Anthropic, vec![events(&[delta, stop]), good()]).await;
    check_good(&outcome);
    assert_eq!(outcome.requests, 2);
}

#[tokio::test]
async fn a_history_that_is_too_long_is_said_so_once_wherever_it_is_said() {
    for wire in Wire::ALL {
        for words in ["prompt is too long: 9 tokens > 8", "This model's maximum context length is 8 tokens"] {
            let overflow = Trouble::Error { code: "invalid_request".to_owned(), message: words.to_owned() };
            let outcome = ask(wire, vec![Reply::default().but(overflow), good()]).await;
            assert_eq!((outcome.error().kind, outcome.requests), (ModelErrorKind::TooLong, 1), "{wire}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_waits_for_whoever_reads_it() {
    let provider = ScriptedProvider::start(Script::new([good().but(Trouble::Flood)])).await.unwrap();
    let model = model(Wire::OpenAiChat, &provider.base_url(Wire::OpenAiChat));
    let before = resident();
    let mut first = true;
    let mut taken = 0;
    let mut sink = |_: Event<'_>| {
        if std::mem::take(&mut first) {
            std::thread::sleep(Duration::from_millis(500));
            taken = provider.flooded();
        }
    };
    let error = model.answer(&request(Wire::OpenAiChat), &mut sink).await;
    // The comments behind the answer are not waited for.
    assert_eq!(error, Ok(()));
    assert!(taken < 64 << 20, "{taken} bytes were taken while nobody read");
    assert!(resident() < before + (64 << 10), "memory grew from {before} to {} KiB", resident());
}

/// The memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test]
async fn signatures_of_another_model_are_left_out_when_they_are_refused() {
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}});
    let provider = ScriptedProvider::start(Script::by(move |_, request| {
        let stale = request.body.to_string().contains("of-another-model");
        if stale { Reply::status(400).with_body(&refusal.to_string()) } else { good() }
    }));
    let provider = provider.await.unwrap();
    let model = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic));
    let data = json!({"type": "thinking", "signature": "of-another-model"});
    let opaque = Some(Opaque { wire: Wire::Anthropic.name().to_owned(), data });
    let mut asked = request(Wire::Anthropic);
    let parts = vec![Part::Thought { text: "Hm.".to_owned(), opaque }, Part::text("Well.")];
    asked.messages.push(Message { role: Role::Assistant, parts });
    asked.messages.push(Message::user("Go on."));
    for requests in [2, 3] {
        model.answer(&asked, &mut Draft::default()).await.unwrap();
        assert_eq!(provider.requests().len(), requests, "once it is known, it is not tried again");
    }
    let body = &provider.requests()[2].body;
    assert!(body["messages"].to_string().contains("Well."), "{body}");
}

#[tokio::test]
async fn retries_have_a_budget_for_all_requests_together() {
    let provider =
        ScriptedProvider::start(Script::by(|count, _| if count % 2 == 0 { Reply::status(503) } else { good() }));
    let provider = provider.await.unwrap();
    let retries = Retries { limit: 4, budget: 2, base: Duration::from_millis(1), ..Retries::default() };
    let base_url = provider.base_url(Wire::OpenAiChat);
    let model = HttpModel::new(Provider::new("acme", Wire::OpenAiChat, base_url, None)).retries(retries);
    for _ in 0..2 {
        model.answer(&request(Wire::OpenAiChat), &mut Draft::default()).await.unwrap();
    }
    let error = model.answer(&request(Wire::OpenAiChat), &mut Draft::default()).await.unwrap_err();
    assert_eq!((error.kind, provider.requests().len()), (ModelErrorKind::Unavailable, 5));
    assert!(error.message.contains("all of its 2 retries"), "{error}");
}

#[tokio::test]
async fn whoever_asks_again_after_a_broken_answer_waits_and_is_told() {
    let broken = || good().but(Trouble::CutAfter(inside(Wire::Anthropic)));
    let overloaded = Trouble::Error { code: "overloaded_error".into(), message: "Overloaded".into() };
    let replies = vec![broken(), Reply::text("Hm.").but(overloaded), good(), good()];
    let provider = ScriptedProvider::start(Script::new(replies)).await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    let model = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic))
        .on_retry(move |retry| noted.lock().unwrap().push((retry.attempt, retry.error.kind)));
    let begun = Instant::now();
    for expected in [Err(ModelErrorKind::Broken), Err(ModelErrorKind::Unavailable), Ok(()), Ok(())] {
        let result = model.answer(&request(Wire::Anthropic), &mut Draft::default()).await;
        assert_eq!(result.map_err(|error| error.kind), expected);
    }
    assert_eq!(*told.lock().unwrap(), [(1, ModelErrorKind::Broken), (2, ModelErrorKind::Unavailable)]);
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

/// Each row of the stream faults with the tests that show its end, each as `crate/file::name`. The rows:
///
/// 1 refused connection, 2 unresolved name, 3 certificate, 4 silence before headers, 5 silence before the first event, 6 idle in
/// the middle, 7 only pings, 8 reset, 9 closed early, 10 cut at every byte, 11 cut behind a whole call, 12 overloaded in the
/// middle, 13 503 and 529, 14 to 17 waits that are asked for, or not, 18 bad request, 19 refused key, 20 forbidden or unknown, 21 too
/// large, 22 to 24 too long a history, 25 server errors, 26 HTML, 27 JSON error with 200, 28 no content type, 29 line ends, 30 the
/// event stream format, 31 split characters, 32 invalid UTF-8, 33 an event that is no JSON, 34 unknown events, 35 indices, 36 a delta
/// for nothing, 37 blocks twice or never stopped, 38 ids, 39 names, 40 arguments, 41 finish reasons, 42 output limit, 43 refusal, 44
/// empty answers, 45 behind and without `[DONE]`, 46 usage, 47 parallel calls, 48 flood, 49 a byte in ten seconds, 50 truncated
/// transfer, 51 cancel anywhere, 52 another model's signatures.
const TABLE: [(u32, &[&str]); 52] = [
    (1, &["sabir-model/http::what_does_not_pass_ends_in_one_error"]),
    (2, &["sabir-model/faults::a_name_that_does_not_resolve_is_named_and_tried_again"]),
    (3, &["sabir-model/faults::a_certificate_that_signed_itself_is_refused_once_and_hears_nothing"]),
    (4, &["sabir-model/http::what_may_pass_is_tried_again"]),
    (
        5,
        &[
            "sabir-model/http::what_may_pass_is_tried_again",
            "sabir-model/cassettes::recorded_gaps_count_against_the_deadlines",
        ],
    ),
    (
        6,
        &[
            "sabir-model/cassettes::silence_behind_any_byte_keeps_what_came",
            "sabir/faults::what_breaks_off_is_asked_again_with_a_pause_and_runs_once",
        ],
    ),
    (7, &["sabir-model/http::a_broken_answer_keeps_what_came_and_runs_nothing"]),
    (8, &["sabir-model/http::a_broken_answer_keeps_what_came_and_runs_nothing"]),
    (9, &["sabir-model/http::a_broken_answer_keeps_what_came_and_runs_nothing"]),
    (
        10,
        &[
            "sabir/cuts::every_byte_anthropic",
            "sabir/cuts::every_byte_openai",
            "sabir-wire/splits::no_cut_completes_a_call",
        ],
    ),
    (11, &["sabir/faults::what_breaks_off_is_asked_again_with_a_pause_and_runs_once"]),
    (
        12,
        &[
            "sabir/faults::what_breaks_off_is_asked_again_with_a_pause_and_runs_once",
            "sabir-model/faults::whoever_asks_again_after_a_broken_answer_waits_and_is_told",
        ],
    ),
    (13, &["sabir-model/http::what_may_pass_is_tried_again", "sabir/faults::a_wait_is_shown_and_can_be_interrupted"]),
    (
        14,
        &[
            "sabir-model/http::waits_follow_the_provider_within_reason",
            "sabir/faults::a_wait_is_shown_and_can_be_interrupted",
        ],
    ),
    (15, &["sabir-model/http::waits_follow_the_provider_within_reason"]),
    (16, &["sabir-model/http::waits_follow_the_provider_within_reason"]),
    (17, &["sabir-model/http::what_may_pass_is_tried_again", "sabir-model/retry::waits_double_within_their_jitter"]),
    (18, &["sabir-model/http::final_errors_are_final_and_say_what_to_change"]),
    (19, &["sabir-model/renewing/tests::one_renewal_serves_all_that_were_refused"]),
    (20, &["sabir-model/http::final_errors_are_final_and_say_what_to_change"]),
    (21, &["sabir-model/http::final_errors_are_final_and_say_what_to_change"]),
    // Nothing compacts a history yet; the loop is broken and the state saved.
    (22, &["sabir/faults::a_history_that_is_too_long_ends_the_task_once_and_it_can_be_resumed"]),
    (23, &["sabir-model/faults::a_history_that_is_too_long_is_said_so_once_wherever_it_is_said"]),
    (24, &["sabir/faults::a_history_that_is_too_long_ends_the_task_once_and_it_can_be_resumed"]),
    (25, &["sabir-model/http::what_may_pass_is_tried_again"]),
    (26, &["sabir-model/http::what_is_no_answer_is_said_to_be_none"]),
    (27, &["sabir-model/http::what_is_no_answer_is_said_to_be_none"]),
    (28, &["sabir-model/http::what_is_no_answer_is_said_to_be_none"]),
    (29, &["sabir-wire/splits::the_event_stream_format", "sabir-wire/splits::any_lines_in_any_chunks"]),
    (30, &["sabir-wire/splits::the_event_stream_format"]),
    (31, &["sabir-model/http::answers_come_whatever_the_chunks", "sabir-wire/splits::no_split_changes_the_events"]),
    (32, &["sabir-wire/splits::invalid_utf8_is_replaced_per_event", "sabir-wire/splits::any_bytes_in_any_chunks"]),
    (33, &["sabir-model/faults::an_event_that_is_no_json_is_tried_again_and_never_passed_over"]),
    (34, &["sabir-wire/rules::unknown_things_are_skipped_and_counted"]),
    (35, &["sabir-wire/rules::an_index_is_a_label"]),
    (36, &["sabir-model/faults::a_delta_for_a_block_that_never_began_breaks_the_answer"]),
    (37, &["sabir-wire/rules::blocks_may_be_doubled_lost_or_never_stopped"]),
    (38, &["sabir/faults::calls_of_one_id_or_none_have_one_result_each"]),
    (
        39,
        &[
            "sabir-wire/rules::ids_and_names_replace_and_never_append",
            "sabir-wire/rules::a_call_without_a_name_never_runs",
        ],
    ),
    (40, &["sabir-wire/rules::arguments_come_in_many_shapes"]),
    (41, &["sabir-wire/rules::streams_end_in_many_ways"]),
    (42, &["sabir/faults::the_output_limit_inside_a_call_runs_nothing_and_the_model_is_told"]),
    (43, &["sabir/faults::a_refusal_ends_the_task_and_is_not_asked_again"]),
    (44, &["sabir/faults::empty_answers_are_asked_again_at_most_three_times"]),
    (45, &["sabir-wire/rules::streams_end_in_many_ways", "sabir-model/http::answers_come_whatever_the_chunks"]),
    (46, &["sabir-wire/rules::usage_counts_each_token_once"]),
    (47, &["sabir-wire/rules::an_index_is_a_label"]),
    (48, &["sabir-model/faults::a_flood_waits_for_whoever_reads_it"]),
    (49, &["sabir-model/cassettes::one_byte_every_ten_seconds_for_an_hour_reaches_the_progress_deadline"]),
    (50, &["sabir-model/faults::a_truncated_transfer_is_tried_again_before_anything_came"]),
    (
        51,
        &["sabir/faults::a_task_can_be_cancelled_at_any_event", "sabir-agent/laws::every_call_has_exactly_one_result"],
    ),
    (52, &["sabir-model/faults::signatures_of_another_model_are_left_out_when_they_are_refused"]),
];

#[test]
fn every_fault_has_its_test() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (at, (row, tests)) in TABLE.iter().enumerate() {
        assert_eq!(*row as usize, at + 1);
        assert!(!tests.is_empty(), "row {row} has no test");
        for test in *tests {
            let (owner, name) = test.split_once('/').unwrap();
            let (file, name) = name.split_once("::").unwrap();
            let folders =
                ["tests/it", "tests/wire", "src"].map(|folder| format!("{crates}/{owner}/{folder}/{file}.rs"));
            let text = folders.iter().find_map(|path| std::fs::read_to_string(path).ok());
            let text = text.unwrap_or_else(|| panic!("row {row}: there is no file for {test}"));
            assert!(text.contains(&format!("fn {name}(")), "row {row}: there is no test {test}");
        }
    }
}
