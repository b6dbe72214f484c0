//! Binary event streams: Amazon's own examples, every split, each kind of damage, and encoding.

use proptest::prelude::*;
use sabir_wire::frames::{FrameDecoder, FrameEvent, HeaderValue, encode_frame};
use sabir_wire::sse::MAX_EVENT;

/// Returns the events of a stream as lines.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = FrameDecoder::new();
    let mut found = Vec::new();
    let mut take = |event: FrameEvent<'_>| found.push(shown(event));
    for piece in pieces {
        decoder.push(piece, &mut take);
    }
    decoder.finish(&mut take);
    found
}

fn shown(event: FrameEvent<'_>) -> String {
    let FrameEvent::Frame(frame) = event else {
        return format!("{event:?}");
    };
    let headers: Vec<String> = frame
        .headers()
        .map(|(name, value)| format!("{name}={value:?} "))
        .collect();
    format!(
        "{}{}",
        headers.concat(),
        String::from_utf8_lossy(frame.payload)
    )
}

/// Checks that every split gives the same events.
fn check(stream: &[u8], expected: &[&str]) {
    assert_eq!(events([stream]), expected);
    for split in 0..=stream.len() {
        let (head, tail) = stream.split_at(split);
        assert_eq!(events([head, tail]), expected, "split at {split}");
    }
    for size in 1..20 {
        assert_eq!(events(stream.chunks(size)), expected, "chunks of {size}");
    }
}

fn frame(payload: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(
        &[("kind", HeaderValue::Text("x"))],
        payload.as_bytes(),
        &mut bytes,
    )
    .unwrap();
    bytes
}

const PRELUDE: &str = r#"Damaged("the beginning of a frame is damaged")"#;
const SUM: &str = r#"Damaged("the checksum of a frame is wrong")"#;
const CUT: &str = r#"Damaged("the stream ended inside a frame")"#;

/// The examples that Amazon's SDKs are tested with.
#[test]
fn published_examples_are_read_and_written() {
    type Row<'a> = (
        &'a [u8],
        &'a [(&'a str, HeaderValue<'a>)],
        &'a [u8],
        &'a str,
    );
    let rows: [Row<'_>; 4] = [
        (b"\0\0\0\x10\0\0\0\0\x05\xc2\x48\xeb\x7d\x98\xc8\xff", &[], b"", ""),
        (
            b"\0\0\0\x2b\0\0\0\x0e\x34\x8b\xec\x7b\x08event-id\x04\0\0\xa0\x0c{'foo':'bar'}\xd3\x89\x02\x85",
            &[("event-id", HeaderValue::Int(0xa00c))],
            b"{'foo':'bar'}",
            "event-id=Int(40972) {'foo':'bar'}",
        ),
        (b"\0\0\0\x1d\0\0\0\0\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36", &[], b"{'foo':'bar'}", "{'foo':'bar'}"),
        (
            b"\0\0\0\x3d\0\0\0\x20\x07\xfd\x83\x96\x0ccontent-type\x07\0\x10application/json{'foo':'bar'}\x8d\x9c\x08\xb1",
            &[("content-type", HeaderValue::Text("application/json"))],
            b"{'foo':'bar'}",
            "content-type=Text(\"application/json\") {'foo':'bar'}",
        ),
    ];
    for (bytes, headers, payload, expected) in rows {
        check(bytes, &[expected]);
        let mut written = Vec::new();
        encode_frame(headers, payload, &mut written).unwrap();
        assert_eq!(written, bytes);
    }
    // Invalid ones: a wrong header, header length, total length, payload.
    let head =
        b"\0\0\0\x3d\0\0\0\x20\x07\xfd\x83\x96\x0ccontent+type\x07\0\x10application/json{'foo':'bar'}\x8d\x9c\x08\xb1";
    check(head, &[SUM]);
    check(&[&head[..6], b"\x01", &head[7..]].concat(), &[PRELUDE]);
    check(
        b"\x01\0\0\x1d\0\0\0\0\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36",
        &[PRELUDE],
    );
    check(
        b"\0\0\0\x1d\0\0\0\0\xfd\x52\x8c\x5a{'foo':'bar'\x8d\xc3\x65\x39\x36",
        &[SUM],
    );
}

#[test]
fn damage_loses_only_the_damaged_frame() {
    let one = frame("one");
    let two = frame("two");
    let three = frame("three");
    let whole = |payload: &str| format!("kind=Text(\"x\") {payload}");
    let first = whole("one");
    let second = whole("two");
    let third = whole("three");
    check(
        &[&one[..], &two, &three].concat(),
        &[&first, &second, &third],
    );
    // A damaged payload: the prelude tells where the next frame begins.
    let mut wrong = two.clone();
    wrong[21] ^= 1;
    check(&[&one[..], &wrong, &three].concat(), &[&first, SUM, &third]);
    // A damaged prelude, at each of its bytes: the next valid one is searched.
    for at in 0..12 {
        let mut wrong = two.clone();
        wrong[at] ^= 0x55;
        check(
            &[&one[..], &wrong, &three].concat(),
            &[&first, PRELUDE, &third],
        );
    }
    // Too many bytes, too few bytes, and no frame at all.
    check(
        &[&one[..], b"\0\0\0", &three].concat(),
        &[&first, PRELUDE, &third],
    );
    check(
        &[&one[..], &two[3..], &three].concat(),
        &[&first, PRELUDE, &third],
    );
    // Bytes that look like a prelude of four gigabytes, found by a fuzzer.
    check(
        &[
            &one[..],
            b"\0\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff",
            &three,
        ]
        .concat(),
        &[&first, PRELUDE, &third],
    );
    check(&[&one[..], &two[..9]].concat(), &[&first, CUT]);
    check(&[&one[..], &two[..two.len() - 1]].concat(), &[&first, CUT]);
    check(b"no frame at all, but words", &[PRELUDE]);
    check(b"words", &[CUT]);
    check(b"", &[]);
    // Unreadable headers with valid checksums.
    for header in [
        &b"\x04kind\x0a"[..],
        b"\x00\x00",
        b"\x04kin",
        b"\x01k\x07\x00\x09x",
        b"\x01k\x07\x00\x01\xff",
    ] {
        check(
            &[by_hand(header), three.clone()].concat(),
            &[
                r#"Damaged("the headers of a frame cannot be read")"#,
                &third,
            ],
        );
    }
}

/// Builds a frame with headers that no encoder writes.
fn by_hand(headers: &[u8]) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let mut bytes = [number(16 + headers.len()), number(headers.len())].concat();
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend_from_slice(headers);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

#[test]
fn a_frame_above_the_cap_is_skipped() {
    let mut long = [u32::try_from(MAX_EVENT + 1).unwrap().to_be_bytes(), [0; 4]].concat();
    long.extend_from_slice(&crc32fast::hash(&long).to_be_bytes());
    long.resize(MAX_EVENT + 1, 0);
    long.extend_from_slice(&frame("next"));
    let expected = ["TooLong", "kind=Text(\"x\") next"];
    assert_eq!(events([&long[..]]), expected);
    assert_eq!(events(long.chunks(65_537)), expected);
    let (head, tail) = long.split_at(5);
    assert_eq!(events([head, tail]), expected);

    // The encoder refuses such a frame, and a header without room.
    let text = "x".repeat(70_000);
    let mut bytes = Vec::new();
    assert!(encode_frame(&[], &long[..MAX_EVENT], &mut bytes).is_err());
    assert!(encode_frame(&[("", HeaderValue::Bool(true))], b"", &mut bytes).is_err());
    assert!(encode_frame(&[(&text[..256], HeaderValue::Bool(true))], b"", &mut bytes).is_err());
    assert!(encode_frame(&[("a", HeaderValue::Text(&text))], b"", &mut bytes).is_err());
    assert!(bytes.is_empty());
}

#[test]
fn headers_have_ten_types() {
    let headers = [
        ("a", HeaderValue::Bool(true)),
        ("b", HeaderValue::Bool(false)),
        ("c", HeaderValue::Byte(-1)),
        ("d", HeaderValue::Short(-2)),
        ("e", HeaderValue::Int(-3)),
        ("f", HeaderValue::Long(-4)),
        ("g", HeaderValue::Bytes(b"\0\xff")),
        ("h", HeaderValue::Text("ü")),
        ("i", HeaderValue::Time(1_440_938_160_000)),
        ("j", HeaderValue::Uuid([7; 16])),
    ];
    let mut bytes = Vec::new();
    let mut found = 0;
    encode_frame(&headers, b"p", &mut bytes).unwrap();
    FrameDecoder::new().push(&bytes, &mut |event| {
        let FrameEvent::Frame(frame) = event else {
            panic!("{event:?}")
        };
        assert!(frame.headers().eq(headers));
        assert_eq!(
            (
                frame.payload,
                frame.text_header("h"),
                frame.text_header("g"),
                frame.text_header("z")
            ),
            (&b"p"[..], Some("ü"), None, None)
        );
        found += 1;
    });
    assert_eq!(found, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_in_any_chunks(
        parts in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        sizes in proptest::collection::vec(1_usize..30, 1..20),
    ) {
        let mut stream = Vec::new();
        for (framed, bytes) in &parts {
            if *framed {
                encode_frame(&[("k", HeaderValue::Bytes(bytes))], bytes, &mut stream).unwrap();
            } else {
                stream.extend_from_slice(bytes);
            }
        }
        for (at, byte) in noise.iter().filter(|_| !stream.is_empty()).collect::<Vec<_>>() {
            let at = at.index(stream.len());
            stream[at] = *byte;
        }
        let mut pieces = Vec::new();
        let mut rest = &stream[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (head, tail) = rest.split_at((*size).min(rest.len()));
            pieces.push(head);
            rest = tail;
        }
        prop_assert_eq!(events(pieces), events([&stream[..]]));
    }
}
