//! The members of an answer that events have no place for, for a client of the same wire.

use sabir_call::{DraftPart, DraftResponse};
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

/// Builds a chunk with a text and a member of the candidate.
fn chunk_with(text: &str, key: &str, value: Value) -> Value {
    let mut chunk = chunk(json!([{"text": text}]));
    chunk["candidates"][0][key] = value;
    chunk
}

#[test]
fn equal_tokens_keep_their_probabilities() {
    let result = |tokens: &[&str]| {
        let chosen: Vec<_> = tokens
            .iter()
            .map(|token| json!({"token": token, "logProbability": -0.5}))
            .collect();
        let top: Vec<_> = tokens
            .iter()
            .map(|token| json!({"candidates": [{"token": token}]}))
            .collect();
        json!({"chosenCandidates": chosen, "topCandidates": top})
    };
    let texts: [&[&str]; 4] = [&["1", ","], &["2", ",", "3"], &[","], &[","]];
    let chunks: Vec<_> = texts
        .iter()
        .map(|tokens| chunk_with(&tokens.concat(), "logprobsResult", result(tokens)))
        .chain([finish("STOP")])
        .collect();
    let whole = whole_answer(&chunks);
    let all = result(&["1", ",", "2", ",", "3", ",", ","]);
    assert_eq!(whole["candidates"][0]["logprobsResult"], all, "{whole}");
    let streamed = streamed_answer(&chunks);
    assert_eq!(
        streamed.matches("chosenCandidates").count(),
        4,
        "{streamed}"
    );
}

#[test]
fn later_ratings_replace_earlier_ones() {
    let rating = |word: &str| json!([{"category": "A", "probability": word}]);
    let mut first = chunk_with("a", "safetyRatings", rating("LOW"));
    first["promptFeedback"] = json!({"safetyRatings": rating("LOW")});
    first["x_list"] = json!([1]);
    let mut second = chunk_with("b", "safetyRatings", rating("HIGH"));
    second["promptFeedback"] = json!({"safetyRatings": rating("HIGH")});
    second["x_list"] = json!([1, 2]);
    let whole = whole_answer(&[first, second, finish("STOP")]);
    assert_eq!(whole["candidates"][0]["safetyRatings"], rating("HIGH"));
    assert_eq!(whole["promptFeedback"]["safetyRatings"], rating("HIGH"));
    assert_eq!(whole["x_list"], json!([1, 2]));
}

#[test]
fn lists_of_sources_grow_or_continue() {
    let source = |name: &str| json!({"web": {"uri": name}});
    let support =
        |text: &str, at: &[u64]| json!({"segment": {"text": text}, "groundingChunkIndices": at});
    let merged = |grounding: [Value; 2]| {
        let chunks = grounding.map(|value| chunk_with("a", "groundingMetadata", value));
        whole_answer(&chunks)["candidates"][0]["groundingMetadata"].clone()
    };
    let first = json!({
        "webSearchQueries": ["q"], "groundingChunks": [source("a"), source("b")], "groundingSupports": [support("x", &[1])],
    });
    // Everything again, and more.
    let grown = json!({
        "webSearchQueries": ["q", "r"], "groundingChunks": [source("a"), source("b"), source("c")],
        "groundingSupports": [support("x", &[1]), support("y", &[2])],
    });
    assert_eq!(merged([first.clone(), grown.clone()]), grown);
    // Only the news: an equal source is listed twice, and each number still means its source.
    let news = json!({
        "webSearchQueries": ["q"], "groundingChunks": [source("c"), source("a")], "groundingSupports": [support("y", &[0, 1])],
    });
    let all = json!({
        "webSearchQueries": ["q"], "groundingChunks": [source("a"), source("b"), source("c"), source("a")],
        "groundingSupports": [support("x", &[1]), support("y", &[2, 3])],
    });
    assert_eq!(merged([first.clone(), news]), all);
    // Supports alone are about the sources that are known.
    let mut with_late_support = first.clone();
    with_late_support["groundingSupports"] = json!([support("x", &[1]), support("z", &[0])]);
    let late = json!({"groundingSupports": [support("z", &[0])]});
    assert_eq!(merged([first, late]), with_late_support);
}

#[test]
fn long_lists_of_distinct_items_are_merged() {
    let count = 300_000;
    let list = |from: u64| json!((from..from + count).collect::<Vec<_>>());
    let chunks = [
        chunk_with("a", "logprobsResult", json!({"chosenCandidates": list(0)})),
        chunk_with(
            "b",
            "logprobsResult",
            json!({"chosenCandidates": list(count)}),
        ),
    ];
    let whole = whole_answer(&chunks);
    let merged = &whole["candidates"][0]["logprobsResult"]["chosenCandidates"];
    assert_eq!(merged, &json!((0..2 * count).collect::<Vec<_>>()));
}

/// A large picture does not use up the limit of provider state twice.
#[test]
fn details_are_charged_for_their_own_size() {
    let picture = |letter: &str, size: usize| json!([{"inlineData": {"mimeType": "image/png", "data": letter.repeat(size)}}]);
    let mut first = chunk(picture("a", 9 << 20));
    first["candidates"][0]["safetyRatings"] = json!([{"category": "A", "probability": "LOW"}]);
    let mut second = chunk(picture("b", 6 << 20));
    second["candidates"][0]["safetyRatings"] = json!([{"category": "A", "probability": "HIGH"}]);
    let draft = decode_with_details(&[first, second, finish("STOP")]);
    let pictures = draft.parts.iter().filter(
        |part| matches!(part, DraftPart::Opaque(state) if state.data.get("inlineData").is_some()),
    );
    assert_eq!((pictures.count(), draft.faults.len()), (2, 0));
}

#[test]
fn details_that_did_not_change_are_kept_once() {
    let ratings = json!([{"category": "A", "probability": "LOW"}]);
    let part = |text: &str| chunk_with(text, "safetyRatings", ratings.clone());
    let draft = decode_with_details(&[part("a"), finish("STOP"), part("b"), part("c")]);
    let details = draft
        .parts
        .iter()
        .filter(|part| matches!(part, DraftPart::Opaque(_)));
    assert_eq!(details.count(), 1, "{:?}", draft.parts);
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
