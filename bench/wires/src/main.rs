//! Server-sent events beside other decoders, and what a relay costs beside a decode.
//!
//! Prints Markdown. Times are medians of CPU time of one process. The relay reads a provider's stream, looks for calls in its
//! text in every dialect, and writes the stream that a client of a wire gets; it is compared with the decode alone.

#![expect(clippy::print_stdout, reason = "a benchmark prints its tables")]

mod relay;
mod sse;
mod typed;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sabir_call::{ArgumentEncoding, DraftResponse, Event, EventSink, StopReason};
use sabir_wire::{ResponseEncoder, ResponseMetadata, Wire, replay_draft};

fn main() {
    let bodies = match std::env::args().nth(1).map(|path| recorded(&path)) {
        None => written(),
        Some(Ok(bodies)) if !bodies.is_empty() => bodies,
        Some(Ok(_)) => return println!("The file holds no bodies of server-sent events."),
        Some(Err(error)) => return println!("The file cannot be read: {error}."),
    };
    let total: usize = bodies.iter().map(Vec::len).sum();
    println!("{} bodies, {:.1} MB.\n", bodies.len(), total as f64 / 1e6);
    println!("{}", sse::table(&bodies));
    println!("{}", relay::table());
}

/// The bodies of a file that are server-sent events.
fn recorded(path: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let bodies = lines.filter_map(|line| {
        line.get("wire")?.as_str()?.strip_suffix("-sse")?;
        Some(line.get("body")?.as_str()?.as_bytes().to_vec())
    });
    Ok(bodies.collect())
}

/// Bodies as our own encoders write them: words, and a call.
fn written() -> Vec<Vec<u8>> {
    let wires = Wire::ALL.into_iter().filter(|wire| wire.stream_type() == "text/event-stream");
    wires.map(|wire| stream(wire, &answer(400_000), 12)).collect()
}

/// An answer of words, and a call that writes a file, of so many bytes in all.
fn answer(size: usize) -> DraftResponse {
    let words = "Some words of an answer, one after the other, and a line now and then.\n".repeat(size / 2 / 71);
    let file = "fn line(of: &str) -> \"text\" { call(of) }\n".repeat(size / 2 / 41);
    let mut draft = DraftResponse::default();
    draft.push_event(Event::Text { text: &words });
    draft.push_event(Event::CallStart { index: 0, id: Some("c"), name: "write", dialect: None, at: 0, name_at: 0 });
    draft.push_event(Event::ArgStart { index: 0, name: "content", form: ArgumentEncoding::String, at: 0 });
    draft.push_event(Event::ArgDelta { index: 0, text: &file });
    draft.push_event(Event::ArgEnd { index: 0, lead: "", at: 0 });
    draft.push_event(Event::CallEnd { index: 0, at: 0 });
    draft.push_event(Event::Stop { reason: StopReason::Calls, raw: "" });
    draft
}

/// An answer as a stream of that wire, in deltas of so many bytes.
fn stream(wire: Wire, draft: &DraftResponse, delta: usize) -> Vec<u8> {
    let head = ResponseMetadata { id: "chatcmpl-9f8e7d6c5b4a".to_owned(), model: "gpt-5-mini".to_owned(), created: 1_790_000_000, ..ResponseMetadata::default() };
    let (mut encoder, mut body) = (ResponseEncoder::new(wire, head), Vec::new());
    replay_draft(draft, delta, &mut |event: Event<'_>| encoder.encode_event(event, &mut body));
    encoder.finish(&mut body);
    body
}

/// The median CPU time of a pass, which is repeated for half a second and five times at least.
fn median(mut pass: impl FnMut()) -> Duration {
    let (mut times, mut spent) = (Vec::new(), Duration::ZERO);
    while times.len() < 5 || (spent.as_millis() < 500 && times.len() < 301) {
        let start = now();
        pass();
        let time = now().saturating_sub(start);
        spent += time;
        times.push(time);
        if spent.as_secs() >= 5 {
            break;
        }
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
