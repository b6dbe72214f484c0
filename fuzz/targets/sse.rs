//! Server-sent events: any bytes in any chunks give the same events, and what is encoded is decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_wire::sse::{SseDecoder, SseEvent, encode_event};

fn events(bytes: &[u8], size: usize) -> Vec<String> {
    let mut decoder = SseDecoder::default();
    let mut events = Vec::new();
    for chunk in bytes.chunks(size.max(1)) {
        decoder.push(chunk, &mut |event: SseEvent<'_>| events.push(format!("{event:?}")));
    }
    decoder.finish(&mut |event: SseEvent<'_>| events.push(format!("{event:?}")));
    events
}

// The first byte says how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [size, bytes @ ..] = input else { return };
    let whole = events(bytes, usize::MAX);
    assert_eq!(events(bytes, 1), whole);
    assert_eq!(events(bytes, usize::from(*size)), whole);
    let text = String::from_utf8_lossy(bytes).replace(['\r', '\0'], " ");
    let mut stream = Vec::new();
    encode_event("", &text, &mut stream);
    assert_eq!(events(&stream, usize::from(*size)).len(), 1, "{text:?}");
});
