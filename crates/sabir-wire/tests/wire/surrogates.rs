//! Tests that answers with halves of characters are read, on every wire.

use sabir_call::{ArgumentEncoding, DraftResponse, Event, EventSink, FaultKind, StopReason};
use sabir_wire::frames::{FrameDecoder, FrameEvent, HeaderValue, encode_frame};
use sabir_wire::{
    BodyEnd, ResponseDecoder, ResponseEncoder, ResponseMetadata, Wire, parse_request_body,
};
use serde_json::{Value, json};

use crate::merged::decode;

/// The placeholders of both halves of a character, as long as the escapes that replace them.
const HALVES: [(&str, &str); 2] = [("@HIGH@", "\\ud83d"), ("@@LOW@", "\\ude00")];

/// Replaces the placeholders in a JSON text.
fn with_halves(json: &str) -> String {
    HALVES
        .iter()
        .fold(json.to_owned(), |json, (from, to)| json.replace(from, to))
}

/// Replaces the placeholders in a body; frames get new checksums.
fn body_with_halves(wire: Wire, body: &[u8]) -> Vec<u8> {
    if wire != Wire::Bedrock {
        return with_halves(std::str::from_utf8(body).unwrap()).into_bytes();
    }
    let mut bytes = Vec::new();
    FrameDecoder::new().push(body, &mut |event| {
        let FrameEvent::Frame(frame) = event else {
            panic!("{event:?}")
        };
        let headers: Vec<(&str, HeaderValue<'_>)> = frame.headers().collect();
        let payload = with_halves(std::str::from_utf8(frame.payload).unwrap());
        encode_frame(&headers, payload.as_bytes(), &mut bytes).unwrap();
    });
    bytes
}

/// Encodes a stream with these texts, and a call with the same pieces of an argument.
fn stream(wire: Wire, texts: &[&str]) -> Vec<u8> {
    let head = ResponseMetadata {
        id: "a".to_owned(),
        model: "m".to_owned(),
        ..ResponseMetadata::default()
    };
    let mut encoder = ResponseEncoder::new(wire, head);
    let mut bytes = Vec::new();
    for text in texts {
        encoder.encode_event(Event::Text { text }, &mut bytes);
    }
    let start = Event::CallStart {
        index: 0,
        id: Some("c"),
        name: "say",
        dialect: None,
        at: 0,
        name_at: 0,
    };
    let form = ArgumentEncoding::String;
    let argument = Event::ArgStart {
        index: 0,
        name: "text",
        form,
        at: 0,
    };
    encoder.encode_event(start, &mut bytes);
    encoder.encode_event(argument, &mut bytes);
    for text in texts {
        encoder.encode_event(Event::ArgDelta { index: 0, text }, &mut bytes);
    }
    let end = Event::ArgEnd {
        index: 0,
        lead: "",
        at: 0,
    };
    encoder.encode_event(end, &mut bytes);
    encoder.encode_event(Event::CallEnd { index: 0, at: 0 }, &mut bytes);
    let reason = StopReason::Calls;
    encoder.encode_event(Event::Stop { reason, raw: "" }, &mut bytes);
    encoder.finish(&mut bytes);
    body_with_halves(wire, &bytes)
}

/// Decodes a body. Returns the draft after checking that the body was read whole.
fn read(wire: Wire, body: &[u8]) -> DraftResponse {
    let (whole, report) = decode(wire, [body], BodyEnd::Clean);
    assert_eq!((report.unreadable, &report.error), (0, &None), "{wire}");
    assert!(report.ended, "{wire}");
    let bytes = body.chunks(1);
    let (split, _) = decode(wire, bytes, BodyEnd::Clean);
    assert_eq!(whole.events, split.events, "{wire}");
    whole.draft
}

/// Returns the number of warnings about replaced halves.
fn warnings(draft: &DraftResponse) -> usize {
    let is_warning = |kind: FaultKind| kind == FaultKind::InvalidUtf8;
    let faults = draft.faults.iter();
    faults.filter(|fault| is_warning(fault.kind)).count()
}

/// Returns the argument of the only call.
fn argument(draft: &DraftResponse) -> String {
    let call = draft.calls().next().unwrap();
    assert_eq!(call.arguments[0].name, "text", "{call:?}");
    call.arguments[0].text.clone()
}

#[test]
fn half_a_character_in_a_stream_becomes_a_replacement_character() {
    for wire in Wire::ALL {
        let draft = read(wire, &stream(wire, &["a@HIGH@b", "c@@LOW@", "d"]));
        assert_eq!(draft.text(), "a\u{fffd}bc\u{fffd}d", "{wire}");
        assert_eq!(argument(&draft), "a\u{fffd}bc\u{fffd}d", "{wire}");
        assert_eq!(warnings(&draft), 1, "{wire}");
    }
}

#[test]
fn halves_in_two_events_are_not_joined() {
    for wire in Wire::ALL {
        let draft = read(wire, &stream(wire, &["a@HIGH@", "@@LOW@b", "@HIGH@@@LOW@"]));
        assert_eq!(draft.text(), "a\u{fffd}\u{fffd}b😀", "{wire}");
        // These send arguments whole, so the halves are in one event.
        let is_whole = [Wire::Gemini, Wire::Ollama].contains(&wire);
        let expected = match is_whole {
            true => "a😀b😀",
            false => "a\u{fffd}\u{fffd}b😀",
        };
        assert_eq!(argument(&draft), expected, "{wire}");
        assert_eq!(warnings(&draft), 1, "{wire}");
    }
}

#[test]
fn an_answer_that_ends_with_half_a_character_is_ended() {
    let wire = Wire::OpenAiChat;
    let event =
        "{\"choices\":[{\"delta\":{\"content\":\"a\\ud83d\"},\"finish_reason\":\"length\"}]}";
    let mut decoder = ResponseDecoder::new(wire);
    decoder.push(format!("data: {event}\n\n").as_bytes(), &mut |_: Event<
        '_,
    >| {});
    // The connection may stay open behind it.
    assert!(decoder.is_ended());
}

#[test]
fn half_a_character_in_a_whole_answer_becomes_a_replacement_character() {
    for wire in Wire::ALL {
        let mut draft = DraftResponse::default();
        draft.push_event(Event::Text { text: "a@HIGH@b" });
        let reason = StopReason::End;
        draft.push_event(Event::Stop { reason, raw: "" });
        let head = ResponseMetadata::default();
        let body = with_halves(&wire.encode_response(&head, &draft).to_string());
        let draft = read(wire, body.as_bytes());
        assert_eq!(draft.text(), "a\u{fffd}b", "{wire}");
        assert_eq!(warnings(&draft), 1, "{wire}");
    }
}

#[test]
fn a_last_event_is_read_after_a_broken_connection() {
    let wire = Wire::OpenAiChat;
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"a\\ud83d\"}}]}\n\n";
    let (merged, _) = decode(wire, [body.as_bytes()], BodyEnd::Broken);
    assert_eq!(merged.draft.text(), "a\u{fffd}");
}

#[test]
fn a_request_with_half_a_character_is_refused_with_its_place() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "a@HIGH@b"}]});
    let error = parse_request_body(with_halves(&body.to_string()).as_bytes()).unwrap_err();
    assert_eq!(error.path, "messages[0].content");
    for part in ["`\\ud83d`", "send both halves"] {
        assert!(error.message.contains(part), "{error}");
    }
    let error = parse_request_body(br#"{"\ude00": 1}"#).unwrap_err();
    assert_eq!(error.path, "body");
    assert!(error.message.contains("at byte 2"), "{error}");
    let error = parse_request_body(b"{").unwrap_err();
    assert!(error.message.starts_with("EOF"), "{error}");
    assert_eq!(
        parse_request_body(b"{}").unwrap(),
        Value::from(serde_json::Map::new())
    );
}
