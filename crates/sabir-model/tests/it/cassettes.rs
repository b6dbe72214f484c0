//! Tests recordings: the same requests replay the same events.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sabir_call::{DraftResponse, Event, Model, ModelError, ModelErrorKind, Request, ToolProtocol};
use sabir_model::{Cassette, HttpModel};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::http::{KEY, for_every_wire, good, model, request};

/// A file in memory.
#[derive(Clone, Default)]
pub(crate) struct Tape(Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Tape {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn cassette(&self) -> Cassette {
        Cassette::parse(self.text().as_bytes()).unwrap()
    }
}

/// The result of one request: each event as it arrived, the retries, and the end.
#[derive(Debug, PartialEq)]
struct Heard {
    events: Vec<String>,
    result: Result<(), ModelError>,
}

async fn hear(model: &HttpModel, request: &Request) -> Heard {
    let mut events = Vec::new();
    let mut sink = |event: Event<'_>| events.push(serde_json::to_string(&event).unwrap());
    let result = model.stream_response(request, &mut sink).await;
    Heard { events, result }
}

type Retries = Arc<Mutex<Vec<(u32, Duration, String)>>>;

fn telling(model: HttpModel, retries: &Retries) -> HttpModel {
    let noted = Arc::clone(retries);
    model.on_retry(move |retry| {
        noted
            .lock()
            .unwrap()
            .push((retry.attempt, retry.wait, retry.error.message.clone()))
    })
}

/// Sends and records the requests, then replays the recording without the provider.
async fn twice(wire: Wire, replies: Vec<ProviderReply>, requests: &[Request]) -> Tape {
    let provider = ScriptedProvider::start(ReplyScript::new(replies))
        .await
        .unwrap();
    let (tape, retries, again) = (Tape::default(), Retries::default(), Retries::default());
    let recording = telling(model(wire, &provider.base_url(wire)), &retries);
    let recorder = recording
        .recorder(Box::new(tape.clone()), "model-1", json!({"is": "told"}))
        .unwrap();
    let recording = recording.recorded_by(&recorder);
    let (mut heard, begun) = (Vec::new(), Instant::now());
    for request in requests {
        heard.push(hear(&recording, request).await);
    }
    let (count, recorded) = (provider.received_requests().len(), begun.elapsed());
    drop((recording, provider));
    assert_eq!(recorder.error(), None);
    let cassette = tape.cassette();
    assert_eq!(
        (cassette.task["is"].as_str(), cassette.request_count()),
        (Some("told"), count)
    );
    let (playing, player) = HttpModel::from_cassette(&cassette).unwrap();
    let playing = telling(playing, &again);
    let begun = Instant::now();
    for (request, heard) in requests.iter().zip(&heard) {
        assert_eq!(&hear(&playing, request).await, heard, "{wire}");
    }
    let waited = recorded > Duration::from_secs(1) && begun.elapsed() >= recorded;
    assert!(
        !waited,
        "a replay waits for nothing: {:?}, recorded in {recorded:?}",
        begun.elapsed()
    );
    assert_eq!(*retries.lock().unwrap(), *again.lock().unwrap());
    assert_eq!(player.remaining_requests(), 0);
    assert!(!tape.text().contains(KEY), "{}", tape.text());
    tape
}

#[tokio::test]
async fn a_recording_is_replayed_to_the_last_event() {
    for wire in Wire::ALL {
        let mut prompted = request(wire);
        prompted.protocol = ToolProtocol::Prompted("cline".into());
        let text = "Look.\n<read_file>\n<path>ü</path>\n</read_file>";
        let replies = vec![
            good().in_chunks(ChunkSplit::Size(1)),
            good().in_chunks(ChunkSplit::Random(7)).in_deltas(2),
            ProviderReply::text(text)
                .in_chunks(ChunkSplit::Random(9))
                .in_deltas(3),
        ];
        let tape = twice(wire, replies, &[request(wire), request(wire), prompted]).await;
        assert!(
            tape.text().contains("\"hex\":\"c3\""),
            "a character that was split is kept as bytes"
        );
    }
}

#[tokio::test]
async fn failed_attempts_are_replayed() {
    for_every_wire(|wire| async move {
        let cases: Vec<Vec<ProviderReply>> = vec![
            vec![
                ProviderReply::error_status(429).with_header("retry-after-ms", "120"),
                good(),
            ],
            vec![
                ProviderReply::error_status(503),
                ProviderReply::error_status(529),
                good(),
            ],
            vec![good().with_fault(ScriptedFault::StallBeforeHeaders), good()],
            vec![good().with_fault(ScriptedFault::CutAfter(0)), good()],
            vec![good().with_fault(ScriptedFault::StallAfter(0)), good()],
            vec![
                ProviderReply::error_status(401)
                    .with_body(&format!("{{\"error\":{{\"message\":\"about {KEY}\"}}}}")),
            ],
        ];
        for replies in cases {
            twice(wire, replies, &[request(wire)]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn broken_answers_are_replayed() {
    for_every_wire(|wire| async move {
        let inside = crate::http::inside(wire);
        let broken = |trouble: ScriptedFault| vec![good().with_fault(trouble)];
        let cases: Vec<Vec<ProviderReply>> = vec![
            broken(ScriptedFault::CutAfter(inside)),
            broken(ScriptedFault::ResetAfter(inside)),
            broken(ScriptedFault::StallAfter(inside)),
            broken(ScriptedFault::PingAfter(inside)),
            broken(ScriptedFault::EndAfter(inside)),
            broken(ScriptedFault::NeverClose),
            broken(ScriptedFault::Body {
                content_type: Some("text/html".into()),
                body: "<html>".into(),
            }),
        ];
        for replies in cases {
            twice(wire, replies, &[request(wire)]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_echoed_key_is_not_recorded_in_any_chunks() {
    for chunks in [
        ChunkSplit::Size(1),
        ChunkSplit::Size(3),
        ChunkSplit::Random(2),
        ChunkSplit::Whole,
    ] {
        let reply = ProviderReply::text(format!("Your key is {KEY}. Yes: {KEY}")).in_chunks(chunks);
        let provider = ScriptedProvider::start(ReplyScript::new([reply]))
            .await
            .unwrap();
        let tape = Tape::default();
        let recording = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic));
        let recorder = recording
            .recorder(Box::new(tape.clone()), "m", Value::Null)
            .unwrap();
        let recording = recording.recorded_by(&recorder);
        let mut asked = request(Wire::Anthropic);
        asked.system = format!("My key is {KEY}.");
        recording
            .stream_response(&asked, &mut DraftResponse::default())
            .await
            .unwrap();
        assert!(!tape.text().contains(KEY), "{}", tape.text());
        let (playing, _) = HttpModel::from_cassette(&tape.cassette()).unwrap();
        asked.system = "My key is [secret].".to_owned();
        let mut draft = DraftResponse::default();
        playing.stream_response(&asked, &mut draft).await.unwrap();
        assert_eq!(draft.text(), "Your key is [secret]. Yes: [secret]");
    }
}

#[tokio::test]
async fn a_different_request_is_reported_and_nothing_is_sent() {
    for wire in Wire::ALL {
        let tape = twice(wire, vec![good(), good()], &[request(wire), request(wire)]).await;
        let play = async |change: fn(&mut Request)| {
            let (playing, player) = HttpModel::from_cassette(&tape.cassette()).unwrap();
            let mut asked = request(wire);
            assert_eq!(hear(&playing, &asked).await.result, Ok(()));
            change(&mut asked);
            let error = hear(&playing, &asked).await.result.unwrap_err();
            assert_eq!(
                (error.kind, player.remaining_requests()),
                (ModelErrorKind::Cassette, 0)
            );
            error.message
        };
        let words = play(|request| request.system.push_str("Be brief.")).await;
        assert!(
            words.starts_with("request 2 is not the recorded one at body."),
            "{words}"
        );
        assert!(
            words.contains("Be brief.") && words.contains("nothing was sent"),
            "{words}"
        );
        let words = play(|request| request.messages.push(sabir_call::Message::user("more"))).await;
        assert!(words.contains("more"), "{words}");
        // One request more than was recorded.
        let (playing, _) = HttpModel::from_cassette(&tape.cassette()).unwrap();
        for _ in 0..2 {
            hear(&playing, &request(wire)).await.result.unwrap();
        }
        let error = hear(&playing, &request(wire)).await.result.unwrap_err();
        assert!(error.message.contains("holds 2 requests"), "{error}");
    }
}

#[tokio::test]
async fn a_torn_cassette_is_replayed_to_its_end() {
    let tape = twice(
        Wire::OpenAiChat,
        vec![good().in_chunks(ChunkSplit::Size(40))],
        &[request(Wire::OpenAiChat)],
    )
    .await;
    let text = tape.text();
    let first = text.find('\n').unwrap() + 1;
    for cut in (first..text.len()).step_by(97) {
        let bytes = &text.as_bytes()[..cut];
        let cassette = Cassette::parse(bytes).unwrap();
        let (playing, _) = HttpModel::from_cassette(&cassette).unwrap();
        let heard = hear(&playing, &request(Wire::OpenAiChat)).await;
        match heard.result {
            // A response that the provider had ended is complete.
            Ok(()) => assert!(
                heard.events.last().unwrap().contains("\"calls\""),
                "cut at {cut}: {heard:?}"
            ),
            Err(error) => assert_eq!(
                error.kind,
                ModelErrorKind::Cassette,
                "cut at {cut}: {error}"
            ),
        }
    }
}

/// Makes a cassette whose only answer arrives in these pieces, each at a time in seconds.
fn timed(pieces: &[(u64, &str)], end: (u64, &str)) -> Cassette {
    let first = json!({"kind": "cassette", "version": 1, "by": "sabir", "task": null, "provider": {
        "name": "acme", "wire": "openai-chat", "base_url": "http://h/v1", "form": {"streamed": true, "cached": true},
        "output": null, "deadlines": {}, "retries": {"limit": 0},
    }});
    let asked = request(Wire::OpenAiChat);
    let form = sabir_wire::WireOptions {
        streamed: true,
        cached: true,
        ..Default::default()
    };
    let body = Wire::OpenAiChat.encode_request(&asked, &form);
    let headers = json!([["content-type", "application/json"]]);
    let mut lines = vec![
        first,
        json!({"kind": "request", "number": 1, "at": 0, "method": "POST", "path": "/v1/chat/completions",
            "headers": headers, "body": body}),
        json!({"kind": "response", "number": 1, "at": 0, "status": 200, "headers": []}),
    ];
    for (at, text) in pieces {
        lines.push(json!({"kind": "chunk", "number": 1, "at": at * 1_000_000, "text": text}));
    }
    lines.push(json!({"kind": "end", "number": 1, "at": end.0 * 1_000_000, "how": end.1}));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Cassette::parse(text.as_bytes()).unwrap()
}

async fn played(cassette: &Cassette) -> (Heard, Duration) {
    let begun = Instant::now();
    let (playing, _) = HttpModel::from_cassette(cassette).unwrap();
    (
        hear(&playing, &request(Wire::OpenAiChat)).await,
        begun.elapsed(),
    )
}

#[tokio::test]
async fn one_byte_every_ten_seconds_for_an_hour_reaches_the_progress_deadline() {
    let comment = ": so much to say, and nothing of it is an event\n";
    let bytes: Vec<String> = comment
        .chars()
        .cycle()
        .take(360)
        .map(String::from)
        .collect();
    let pieces: Vec<_> = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| (10 * at as u64, byte.as_str()))
        .collect();
    let (heard, took) = played(&timed(&pieces, (3600, "complete"))).await;
    let error = heard.result.unwrap_err();
    assert!(error.message.contains("no event for 600s"), "{error}");
    assert!(took < Duration::from_secs(300), "an hour took {took:?}");
}

#[tokio::test]
async fn recorded_gaps_count_against_the_deadlines() {
    let word = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let stop =
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let check = async |pieces: &[(u64, &str)], expected: &str| {
        let (heard, took) = played(&timed(pieces, (9999, "silent"))).await;
        let words = heard
            .result
            .map_or_else(|error| error.message, |()| "ended".to_owned());
        assert!(words.contains(expected), "{words}");
        // Less than any of the recorded waits.
        assert!(took < Duration::from_secs(50));
    };
    check(&[(1, word), (59, word), (118, stop)], "ended").await;
    check(&[(1, word), (62, word), (63, stop)], "sent nothing for 60s").await;
    check(&[(121, word), (122, stop)], "sent no byte within 120s").await;
    check(&[(119, word), (122, stop)], "ended").await;
}

#[tokio::test]
async fn silence_after_any_byte_keeps_the_received_events() {
    let words = ["I ", "look ", "für ", "you."];
    let mut body: String = words
        .iter()
        .map(|word| {
            format!(
                "data: {}\n\n",
                json!({"choices": [{"delta": {"content": word}}]})
            )
        })
        .collect();
    let call = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {
        "name": "read_file", "arguments": "{\"path\":\"a.rs\"}"}}]}}]});
    body += &format!("data: {call}\n\n");
    let asked = request(Wire::OpenAiChat);
    for at in 0..body.len() {
        let Some(come) = body.get(..at) else { continue };
        let (playing, _) = HttpModel::from_cassette(&timed(&[(0, come)], (0, "silent"))).unwrap();
        let mut draft = DraftResponse::default();
        let error = playing
            .stream_response(&asked, &mut draft)
            .await
            .unwrap_err();
        assert_eq!(
            error.kind,
            ModelErrorKind::Broken,
            "silent behind byte {at}"
        );
        assert!(
            words.concat().starts_with(&draft.text()),
            "{}",
            draft.text()
        );
        assert!(
            draft
                .calls()
                .all(|call| call.state != sabir_call::DraftState::Closed),
            "silent behind byte {at}"
        );
    }
}
