//! What a relay costs beside a decode: the same stream decoded alone, and decoded, read for calls in every dialect, and
//! written again for a client.

use std::fmt::Write;
use std::hint::black_box;

use sabir_call::dialect::DialectSet;
use sabir_call::{Truncation, Event, PromptedSink, EventSink, ToolSet};
use sabir_wire::{BodyEnd, ResponseDecoder, ResponseEncoder, ResponseMetadata, Wire};

use crate::{answer, median, stream, typed};

/// How many bytes come at once, and how many a delta has.
const CHUNK: usize = 1400;
const DELTA: usize = 12;

/// Whoever writes what it hears.
struct Relay {
    encoder: ResponseEncoder,
    out: Vec<u8>,
}

impl EventSink for Relay {
    fn push_event(&mut self, event: Event<'_>) {
        self.encoder.encode_event(event, &mut self.out);
        // A server sends what it has.
        if self.out.len() > 16 << 10 {
            black_box(&self.out);
            self.out.clear();
        }
    }
}

/// A table of ratios: each wire that is read with each that is written.
pub(crate) fn table() -> String {
    let draft = answer(400_000);
    let mut text = "### A relay beside the decode alone, ns a delta\n\n| read | typed decode | decode to events | written | relay | of the typed decode | of the decode to events |\n| --- | --- | --- | --- | --- | --- | --- |\n".to_owned();
    for from in Wire::ALL {
        let body = stream(from, &draft, DELTA);
        let mut deltas = 0_usize;
        decode(from, &body, &mut |_: Event<'_>| deltas += 1);
        let ns = |pass: &mut dyn FnMut()| median(pass).as_nanos() as f64 / deltas as f64;
        let alone = ns(&mut || {
            let mut count = 0_usize;
            decode(from, &body, &mut |_: Event<'_>| count += 1);
            black_box(count);
        });
        let typed = typed::decode(from, &body, CHUNK).map(|()| ns(&mut || _ = typed::decode(from, &body, CHUNK)));
        let shown = typed.map_or("–".to_owned(), |typed| format!("{typed:.0}"));
        for to in Wire::ALL {
            let relayed = ns(&mut || relay(from, to, &body));
            let ratio = typed.map_or("–".to_owned(), |typed| format!("{:.2}", relayed / typed));
            _ = writeln!(
                text,
                "| {from} | {shown} | {alone:.0} | {to} | {relayed:.0} | {ratio} | {:.2} |",
                relayed / alone
            );
        }
    }
    text
}

fn decode(wire: Wire, body: &[u8], sink: &mut dyn EventSink) {
    let mut decoder = ResponseDecoder::new(wire);
    body.chunks(CHUNK).for_each(|chunk| decoder.push(chunk, sink));
    decoder.finish(BodyEnd::Clean, sink);
}

fn relay(from: Wire, to: Wire, body: &[u8]) {
    let tools =
        r#"[{"name": "write", "description": "", "parameters": {"properties": {"content": {"type": "string"}}}}]"#;
    let tools = ToolSet::from_json(tools).unwrap_or_default();
    let relay = Relay { encoder: ResponseEncoder::new(to, ResponseMetadata::default()), out: Vec::new() };
    let mut reading = PromptedSink::new(DialectSet::built_in().all(), &tools, relay);
    decode(from, body, &mut reading);
    let mut relay = reading.finish(Truncation::Ended);
    relay.encoder.finish(&mut relay.out);
    black_box(&relay.out);
}
