//! Measures decoding bytes to events, and encoding them.

use sabir_call::{ArgumentEncoding, DraftResponse, Event, EventSink};
use sabir_wire::sse::{SseDecoder, encode_event};
use sabir_wire::{BodyEnd, ResponseDecoder, ResponseEncoder, ResponseMetadata, Wire, replay_draft};

fn main() {
    divan::main();
}

/// Builds about a megabyte of chunks as OpenAI sends them.
fn stream() -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < 1 << 20 {
        let chunk = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt","choices":[{"index":0,"delta":{"content":" some words"},"logprobs":null,"finish_reason":null}]}"#;
        encode_event("", chunk, &mut body);
    }
    body
}

#[divan::bench(args = [64, 1024, 16384])]
fn sse(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = stream();
    bencher
        .counter(divan::counter::BytesCount::new(body.len()))
        .bench_local(|| {
            let mut decoder = SseDecoder::new();
            let mut count = 0_usize;
            for chunk in body.chunks(size) {
                decoder.push(chunk, &mut |_| count += 1);
            }
            count
        });
}

#[divan::bench(args = [64, 1024, 16384])]
fn openai_chat(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = stream();
    bencher
        .counter(divan::counter::BytesCount::new(body.len()))
        .bench_local(|| {
            let mut count = 0_usize;
            let mut sink = |_: Event<'_>| count += 1;
            let mut decoder = ResponseDecoder::new(Wire::OpenAiChat);
            for chunk in body.chunks(size) {
                decoder.push(chunk, &mut sink);
            }
            decoder.finish(BodyEnd::Clean, &mut sink);
            count
        });
}

/// One call whose arguments of a megabyte arrive in deltas of 4 bytes: the time must be linear.
#[divan::bench(args = [Wire::Anthropic, Wire::OpenAiChat])]
fn arguments(bencher: divan::Bencher<'_, '_>, wire: Wire) {
    let text = "line of text\n".repeat(80_000);
    let mut draft = DraftResponse::default();
    draft.push_event(Event::CallStart {
        index: 0,
        id: Some("c"),
        name: "write",
        dialect: None,
        at: 0,
        name_at: 0,
    });
    draft.push_event(Event::ArgStart {
        index: 0,
        name: "content",
        form: ArgumentEncoding::String,
        at: 0,
    });
    draft.push_event(Event::ArgDelta {
        index: 0,
        text: &text,
    });
    draft.push_event(Event::ArgEnd {
        index: 0,
        lead: "",
        at: 0,
    });
    draft.push_event(Event::CallEnd { index: 0, at: 0 });
    let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
    let mut body = Vec::new();
    replay_draft(&draft, 4, &mut |event: Event<'_>| {
        encoder.encode_event(event, &mut body)
    });
    encoder.finish(&mut body);
    bencher
        .counter(divan::counter::BytesCount::new(body.len()))
        .bench_local(|| {
            let mut count = 0_usize;
            let mut sink = |_: Event<'_>| count += 1;
            let mut decoder = ResponseDecoder::new(wire);
            for chunk in body.chunks(1024) {
                decoder.push(chunk, &mut sink);
            }
            decoder.finish(BodyEnd::Clean, &mut sink);
            count
        });
}
