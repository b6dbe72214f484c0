//! How fast are bytes turned into events?

use sabir_call::Event;
use sabir_wire::sse::{SseDecoder, encode};
use sabir_wire::{Close, Decoder, Wire};

fn main() {
    divan::main();
}

/// About a megabyte of chunks as OpenAI sends them.
fn stream() -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < 1 << 20 {
        let chunk = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt","choices":[{"index":0,"delta":{"content":" some words"},"logprobs":null,"finish_reason":null}]}"#;
        encode("", chunk, &mut body);
    }
    body
}

#[divan::bench(args = [64, 1024, 16384])]
fn sse(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = stream();
    bencher.counter(divan::counter::BytesCount::new(body.len())).bench_local(|| {
        let (mut decoder, mut count) = (SseDecoder::new(), 0_usize);
        for chunk in body.chunks(size) {
            decoder.push(chunk, &mut |_| count += 1);
        }
        count
    });
}

#[divan::bench(args = [64, 1024, 16384])]
fn openai_chat(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = stream();
    bencher.counter(divan::counter::BytesCount::new(body.len())).bench_local(|| {
        let mut count = 0_usize;
        let mut sink = |_: Event<'_>| count += 1;
        let mut decoder = Decoder::new(Wire::OpenAiChat);
        for chunk in body.chunks(size) {
            decoder.push(chunk, &mut sink);
        }
        decoder.finish(Close::Clean, &mut sink);
        count
    });
}
