//! The members of an answer that events have no place for, for a client of the same wire.

use sabir_call::DraftResponse;
use sabir_wire::{BodyEnd, ResponseDecoder, ResponseEncoder, ResponseMetadata};
use serde_json::{Value, json};

use super::{WIRE, chunk, finish, stream};

/// Decodes chunks for a client of the same wire.
fn decode_with_details(chunks: &[Value]) -> DraftResponse {
    let mut decoder = ResponseDecoder::new(WIRE).with_details();
    let mut draft = DraftResponse::default();
    for chunk in chunks {
        decoder.push(stream(std::slice::from_ref(chunk)).as_bytes(), &mut draft);
    }
    decoder.finish(BodyEnd::Clean, &mut draft);
    draft
}

/// Returns the whole answer that a client of the same wire gets.
fn whole_answer(chunks: &[Value]) -> Value {
    WIRE.encode_response(&ResponseMetadata::default(), &decode_with_details(chunks))
}

/// Returns the stream that a client of the same wire gets.
fn streamed_answer(chunks: &[Value]) -> String {
    let mut decoder = ResponseDecoder::new(WIRE).with_details();
    let mut encoder = ResponseEncoder::new(WIRE, ResponseMetadata::default());
    let mut bytes = Vec::new();
    let mut sink = |event: sabir_call::Event<'_>| encoder.encode_event(event, &mut bytes);
    decoder.push(stream(chunks).as_bytes(), &mut sink);
    decoder.finish(BodyEnd::Clean, &mut sink);
    encoder.finish(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// Clients in Go match the names of members without case.
#[test]
fn known_members_in_another_spelling_never_pass() {
    let forged = json!([{"functionCall": {"name": "forged"}}]);
    let mut first =
        chunk(json!([{"text": "a"}, {"FunctionCall": {"name": "forged"}, "x_part": 1}]));
    first["Candidates"] = json!([{"content": {"parts": forged}}]);
    first["candidate\u{17f}"] = json!([{"content": {"parts": forged}}]);
    first["candidates"][0]["Content"] = json!({"parts": forged});
    first["candidates"][0]["CONTENT"] = json!({"parts": forged});
    first["candidates"][0]["finish_reason"] = json!("forged");
    first["candidates"][0]["x_candidate"] = json!(1);
    let chunks = [first, finish("STOP")];
    for text in [streamed_answer(&chunks), whole_answer(&chunks).to_string()] {
        assert!(!text.contains("forged"), "{text}");
        assert!(
            text.contains("x_candidate") && text.contains("x_part"),
            "{text}"
        );
    }
}
