//! Property tests: encoded responses decode to the same content.

use proptest::prelude::*;
use sabir_call::{
    ArgumentEncoding, DraftPart, DraftResponse, DraftState, Event, EventSink, ModelErrorKind,
    OpaqueState, StopReason, Truncation, Usage,
};
use sabir_wire::{BodyEnd, ProviderError, ResponseEncoder, ResponseMetadata, Wire};
use serde_json::{Value, json};

use crate::merged::{decode, runnable};

/// A part of a generated response.
#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Thought(String),
    Kept(Value),
    Call(
        String,
        Vec<(String, ArgumentEncoding, Vec<String>)>,
        Option<Truncation>,
    ),
}

fn words() -> impl Strategy<Value = String> {
    "[a-zü😀\n\"\\\\<]{1,6}"
}

fn argument() -> impl Strategy<Value = (String, ArgumentEncoding, Vec<String>)> {
    prop_oneof![
        ("[a-z]{1,4}", proptest::collection::vec(words(), 0..3)).prop_map(|(name, text)| (
            name,
            ArgumentEncoding::String,
            text
        )),
        (
            "[a-z]{1,4}",
            prop_oneof![Just("12"), Just("[1,{\"a\":\"}\"}]"), Just("null")]
        )
            .prop_map(|(name, text)| (name, ArgumentEncoding::Json, vec![text.to_owned()])),
    ]
}

fn piece(wire: Wire) -> BoxedStrategy<Piece> {
    let kept = match wire {
        Wire::Anthropic => Some(json!({"type": "redacted_thinking", "data": "x"})),
        Wire::OpenAiResponses => Some(
            json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}),
        ),
        Wire::Gemini => Some(json!({"executableCode": {"code": "1"}, "thoughtSignature": "x"})),
        Wire::Bedrock => Some(json!({"reasoningContent": {"redactedContent": "aGk="}})),
        Wire::Ollama => None,
        _ => Some(json!({"type": "reasoning.encrypted", "data": "x"})),
    };
    let kept = kept.map_or(words().prop_map(Piece::Text).boxed(), |kept| {
        Just(Piece::Kept(kept)).boxed()
    });
    let arguments = proptest::collection::vec(argument(), 0..3).prop_map(|mut arguments| {
        arguments.sort_by(|a, b| a.0.cmp(&b.0));
        arguments.dedup_by(|a, b| a.0 == b.0);
        arguments
    });
    prop_oneof![
        words().prop_map(Piece::Text),
        words().prop_map(Piece::Thought),
        kept,
        ("[a-z_]{1,6}", arguments).prop_map(|(name, arguments)| Piece::Call(name, arguments, None)),
    ]
    .boxed()
}

/// Emits parts as events. With `raw`, strings are raw values whose first line feed comes as the
/// lead.
fn play(wire: Wire, pieces: &[Piece], raw: bool, sink: &mut dyn EventSink) {
    let mut index = 0;
    for piece in pieces {
        match piece {
            Piece::Text(text) => sink.push_event(Event::Text { text }),
            Piece::Thought(text) => sink.push_event(Event::Thought { text }),
            Piece::Kept(data) => sink.push_event(Event::Opaque(&OpaqueState {
                wire: wire.name().into(),
                origin: None,
                data: data.clone(),
            })),
            Piece::Call(name, arguments, cut) => {
                let id = format!("call-{index}");
                sink.push_event(Event::CallStart {
                    index,
                    id: Some(&id),
                    name,
                    dialect: None,
                    at: 0,
                    name_at: 0,
                });
                for (name, form, deltas) in arguments {
                    let form = if raw && *form == ArgumentEncoding::String {
                        ArgumentEncoding::Raw
                    } else {
                        *form
                    };
                    sink.push_event(Event::ArgStart {
                        index,
                        name,
                        form,
                        at: 0,
                    });
                    let mut lead = "";
                    for (number, mut text) in deltas.iter().map(String::as_str).enumerate() {
                        if form == ArgumentEncoding::Raw && number == 0 && text.starts_with('\n') {
                            lead = "\n";
                            text = &text[1..];
                        }
                        if !text.is_empty() {
                            sink.push_event(Event::ArgDelta { index, text });
                        }
                    }
                    sink.push_event(Event::ArgEnd { index, lead, at: 0 });
                }
                match cut {
                    Some(why) => sink.push_event(Event::CallCut {
                        index,
                        why: *why,
                        at: 0,
                    }),
                    None => sink.push_event(Event::CallEnd { index, at: 0 }),
                }
                index += 1;
            }
        }
    }
    let limit = pieces
        .iter()
        .any(|piece| matches!(piece, Piece::Call(_, _, Some(Truncation::Limit))));
    let reason = match index {
        _ if limit => StopReason::Length,
        0 => StopReason::End,
        _ => StopReason::Calls,
    };
    sink.push_event(Event::Stop { reason, raw: "" });
    let usage = Usage {
        input: Some(9),
        output: Some(5),
        cache_read: Some(2),
        cache_write: Some(1),
        reasoning: None,
    };
    sink.push_event(Event::Usage(usage));
}

/// The features that a wire supports.
fn supported_usage(wire: Wire, usage: Usage) -> Usage {
    match wire {
        Wire::Gemini => Usage {
            cache_write: None,
            ..usage
        },
        Wire::Ollama => Usage {
            cache_read: None,
            cache_write: None,
            ..usage
        },
        _ => usage,
    }
}

/// Returns true if a wire can show that a call is unfinished; the others leave it out.
fn shows_cuts(wire: Wire) -> bool {
    !matches!(wire, Wire::Gemini | Wire::Ollama)
}

/// Returns the fields that two drafts must share. Positions and the provider's own words differ.
/// Some wires cannot express unknown counts of reasoning tokens.
fn essence(wire: Wire, draft: &DraftResponse) -> String {
    let usage = Usage {
        reasoning: draft.usage.reasoning.filter(|count| *count > 0),
        ..supported_usage(wire, draft.usage)
    };
    let mut parts = String::new();
    for part in &draft.parts {
        match part {
            DraftPart::Call(call) => {
                parts += &format!(
                    "call {} {:?} {} {:?}",
                    call.index, call.id, call.name, call.state
                );
                for argument in &call.arguments {
                    let text = match argument.form {
                        ArgumentEncoding::Json => serde_json::from_str::<Value>(&argument.text)
                            .unwrap()
                            .to_string(),
                        _ => json!(argument.text).to_string(),
                    };
                    parts += &format!(" {}={text}", argument.name);
                }
                parts += "\n";
            }
            other => parts += &format!("{other:?}\n"),
        }
    }
    format!(
        "{parts}{usage:?} {:?} {:?}",
        draft.stop.as_ref().map(|stop| stop.0),
        draft.faults
    )
}

fn check(wire: Wire, pieces: &[Piece]) {
    let head = || ResponseMetadata {
        id: "r1".into(),
        model: "m".into(),
        created: 1,
        ..ResponseMetadata::default()
    };
    for raw in [false, true] {
        let mut expected = DraftResponse::default();
        play(wire, pieces, raw, &mut expected);
        let mut encoder = ResponseEncoder::new(wire, head());
        let mut bytes = Vec::new();
        play(wire, pieces, raw, &mut |event: Event<'_>| {
            encoder.encode_event(event, &mut bytes)
        });
        encoder.finish(&mut bytes);
        let (found, report) = decode(wire, [&bytes[..]], BodyEnd::Clean);
        let shown = String::from_utf8_lossy(&bytes);
        assert_eq!(
            essence(wire, &found.draft),
            essence(wire, &expected),
            "{shown}"
        );
        assert!(report.ended && report.skipped == 0, "{report:?}");

        // The same calls run from a whole body.
        let whole = wire.encode_response(&head(), &expected).to_string();
        let (found, report) = decode(wire, [whole.as_bytes()], BodyEnd::Clean);
        assert_eq!(runnable(&found.draft), runnable(&expected), "{whole}");
        assert_eq!(
            (found.draft.text(), report.ended),
            (expected.text(), true),
            "{whole}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::case_count::case_count(40)))]

    #[test]
    fn anthropic_answers_come_back(pieces in proptest::collection::vec(piece(Wire::Anthropic), 0..7)) {
        check(Wire::Anthropic, &pieces);
    }

    #[test]
    fn openai_chat_answers_come_back(pieces in proptest::collection::vec(piece(Wire::OpenAiChat), 0..7)) {
        check(Wire::OpenAiChat, &pieces);
    }

    #[test]
    fn bedrock_answers_come_back(pieces in proptest::collection::vec(piece(Wire::Bedrock), 0..7)) {
        check(Wire::Bedrock, &pieces);
    }

    #[test]
    fn openai_responses_answers_come_back(pieces in proptest::collection::vec(piece(Wire::OpenAiResponses), 0..7)) {
        check(Wire::OpenAiResponses, &pieces);
    }

    #[test]
    fn gemini_answers_come_back(pieces in proptest::collection::vec(piece(Wire::Gemini), 0..7)) {
        check(Wire::Gemini, &pieces);
    }

    #[test]
    fn ollama_answers_come_back(pieces in proptest::collection::vec(piece(Wire::Ollama), 0..7)) {
        check(Wire::Ollama, &pieces);
    }

    #[test]
    fn a_cut_call_stays_cut(arguments in proptest::collection::vec(argument(), 0..2), limit in any::<bool>()) {
        let why = if limit { Truncation::Limit } else { Truncation::Ended };
        for wire in Wire::ALL.into_iter().filter(|wire| shows_cuts(*wire)) {
            // The same name twice would merge the arguments.
            let arguments = arguments.iter().take(1).cloned().collect();
            check(wire, &[Piece::Text("a".into()), Piece::Call("f".into(), arguments, Some(why))]);
        }
    }
}

#[test]
fn truncated_calls_are_left_out_where_they_would_look_complete() {
    for wire in Wire::ALL.into_iter().filter(|wire| !shows_cuts(*wire)) {
        for why in [Truncation::Limit, Truncation::Ended] {
            let arguments = vec![(
                "a".to_owned(),
                ArgumentEncoding::String,
                vec!["b".to_owned()],
            )];
            let sound = Piece::Call("f".into(), arguments.clone(), None);
            let pieces = [
                Piece::Text("a".into()),
                sound.clone(),
                Piece::Call("g".into(), arguments, Some(why)),
            ];
            let mut draft = DraftResponse::default();
            let mut bytes = Vec::new();
            play(wire, &pieces, false, &mut draft);
            let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
            play(wire, &pieces, false, &mut |event: Event<'_>| {
                encoder.encode_event(event, &mut bytes)
            });
            encoder.finish(&mut bytes);
            for body in [
                bytes,
                wire.encode_response(&ResponseMetadata::default(), &draft)
                    .to_string()
                    .into_bytes(),
            ] {
                let (found, _) = decode(wire, [&body[..]], BodyEnd::Clean);
                let names: Vec<_> = found.draft.calls().map(|call| call.name.as_str()).collect();
                assert_eq!(
                    (names, found.draft.text().as_str()),
                    (vec!["f"], "a"),
                    "{wire}"
                );
                let limit = found.draft.stop.as_ref().unwrap().0 == StopReason::Length;
                assert_eq!(limit, why == Truncation::Limit, "{wire}");
            }
        }
    }
}

#[test]
fn signatures_are_attached_to_their_thoughts() {
    let signed = |signature: &str| json!({"type": "thinking", "signature": signature});
    check(
        Wire::Anthropic,
        &[
            Piece::Thought("a".into()),
            Piece::Kept(signed("1")),
            Piece::Kept(signed("2")),
            Piece::Text("b".into()),
        ],
    );
    let signed =
        |signature: &str| json!({"reasoningContent": {"reasoningText": {"signature": signature}}});
    check(
        Wire::Bedrock,
        &[
            Piece::Thought("a".into()),
            Piece::Kept(signed("1")),
            Piece::Kept(signed("2")),
            Piece::Text("b".into()),
        ],
    );
}

#[test]
fn state_of_other_wires_is_left_out() {
    for wire in Wire::ALL {
        let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
        let mut bytes = Vec::new();
        let foreign = OpaqueState {
            wire: "other".into(),
            origin: None,
            data: json!({"secret": 1}),
        };
        encoder.encode_event(Event::Opaque(&foreign), &mut bytes);
        encoder.finish(&mut bytes);
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
    }
}

#[test]
fn errors_round_trip_and_truncate_calls() {
    for wire in Wire::ALL {
        let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
        let mut bytes = Vec::new();
        encoder.encode_event(
            Event::CallStart {
                index: 0,
                id: Some("c"),
                name: "f",
                dialect: None,
                at: 0,
                name_at: 0,
            },
            &mut bytes,
        );
        encoder.encode_error_event(
            &ProviderError::new("overloaded_error", "Overloaded"),
            &mut bytes,
        );
        let (found, report) = decode(wire, [&bytes[..]], BodyEnd::Clean);
        assert_eq!(report.error.unwrap().kind, ModelErrorKind::Unavailable);
        let states: Vec<_> = found.draft.calls().map(|call| call.state).collect();
        let expected = if shows_cuts(wire) {
            vec![DraftState::Cut(Truncation::Broken)]
        } else {
            Vec::new()
        };
        assert_eq!(states, expected, "{wire}");
    }
}
