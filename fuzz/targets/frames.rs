//! Binary event streams: any bytes in any chunks give the same events, and what is encoded is decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_wire::frames::{FrameDecoder, FrameEvent, HeaderValue, encode_frame};

fn events(bytes: &[u8], size: usize) -> Vec<String> {
    let mut decoder = FrameDecoder::default();
    let mut events = Vec::new();
    let mut take = |event: FrameEvent<'_>| {
        if let FrameEvent::Frame(frame) = event {
            events.extend(frame.headers().map(|header| format!("{header:?}")));
        }
        events.push(format!("{event:?}"));
    };
    for chunk in bytes.chunks(size.max(1)) {
        decoder.push(chunk, &mut take);
    }
    decoder.finish(&mut take);
    events
}

fn same_in_any_chunks(bytes: &[u8], size: u8) -> Vec<String> {
    let whole = events(bytes, usize::MAX);
    assert_eq!(events(bytes, 1), whole);
    assert_eq!(events(bytes, usize::from(size)), whole);
    whole
}

// The first byte says how the rest is cut, the second one where a frame is hurt. No fuzzer finds a checksum, so the rest
// stands in frames too, three bytes of header and a payload.
fuzz_target!(|input: &[u8]| {
    let [size, hurt, bytes @ ..] = input else { return };
    same_in_any_chunks(bytes, *size);
    let mut stream = Vec::new();
    let mut count = 0;
    for piece in bytes.chunks(20) {
        let (header, payload) = piece.split_at(piece.len().min(3));
        encode_frame(&[("k", HeaderValue::Bytes(header)), ("t", HeaderValue::Text("ü"))], payload, &mut stream)
            .expect("a small frame");
        count += 1;
    }
    assert_eq!(same_in_any_chunks(&stream, *size).len(), 3 * count);
    let length = stream.len().max(1);
    if let Some(byte) = stream.get_mut(usize::from(*hurt) * 7 % length) {
        *byte ^= 0x41;
        // One frame is lost, and told of once.
        assert_eq!(same_in_any_chunks(&stream, *size).len(), 3 * (count - 1) + 1);
    }
});
