//! Any body of a client, sent to a provider of the same wire.

use proptest::prelude::*;
use sabir_call::DraftResponse;
use sabir_wire::{BodyEnd, ResponseDecoder, ResponseMetadata, Wire, WireOptions};
use serde_json::{Map, Value, json};

/// A wire, its path, a body that it takes, and the members that are the gateway's own.
fn fronts() -> [(Wire, &'static str, Value, &'static [&'static str]); 4] {
    let messages = json!([{"role": "user", "content": "a"}]);
    let base = json!({"model": "m", "messages": messages, "stream": true});
    let mut anthropic = base.clone();
    anthropic["max_tokens"] = json!(9);
    let responses = json!({"model": "m", "input": messages, "stream": true, "store": false, "include": ["reasoning.encrypted_content"]});
    let mut chat = base.clone();
    chat["stream_options"] = json!({"include_usage": true});
    [
        (
            Wire::Anthropic,
            "/v1/messages",
            anthropic,
            &["model", "stream"],
        ),
        (
            Wire::OpenAiChat,
            "/v1/chat/completions",
            chat,
            &["model", "stream", "stream_options"],
        ),
        (
            Wire::OpenAiResponses,
            "/v1/responses",
            responses,
            &["model", "stream", "store", "include"],
        ),
        (Wire::Ollama, "/api/chat", base, &["model", "stream"]),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z é\"\\\\]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inside| {
        prop_oneof![
            prop::collection::vec(inside.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inside, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn members() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("x_[a-z]{1,5}", any_json(), 0..5)
        .prop_map(|members| members.into_iter().collect())
}

proptest! {
    #[test]
    fn no_member_on_any_level_is_lost(top in members(), of_message in members(), of_block in members()) {
        for (wire, path, mut body, own) in fronts() {
            body.as_object_mut().unwrap().extend(top.clone());
            let message = &mut body[wire.history_member()][0];
            // Ollama's content is a text, which has no members.
            if wire != Wire::Ollama {
                let kind = if wire == Wire::OpenAiResponses { "input_text" } else { "text" };
                message["content"] = json!([{"type": kind, "text": "a"}]);
                message["content"][0].as_object_mut().unwrap().extend(of_block.clone());
            }
            message.as_object_mut().unwrap().extend(of_message.clone());
            let decoded = wire.decode_for_same_wire(path, &body).unwrap();
            prop_assert!(decoded.notes.is_empty(), "{:?}", decoded.notes);
            let options = WireOptions { streamed: true, ..WireOptions::default() };
            let sent = wire.encode_request(&decoded.request, &options);
            prop_assert_eq!(&sent, &body, "{}", wire);
            // To another provider, what has no place is noted by its name.
            let elsewhere = wire.decode_request(path, body.to_string().as_bytes()).unwrap();
            for (name, value) in &top {
                let says_nothing = matches!(value, Value::Null | Value::Bool(false))
                    || value == &json!(0) || value == &json!("") || value == &json!([]) || value == &json!({});
                let is_noted = elsewhere.notes.iter().any(|note| note.path == *name);
                prop_assert!(says_nothing || is_noted, "{} {}", wire, name);
            }
            prop_assert!(own.iter().all(|member| sent.get(*member).is_some()));
        }
    }
}

/// Returns what a provider of the same wire gets if tools and history are written anew.
fn rewritten(wire: Wire, path: &str, body: &Value) -> Value {
    let decoded = wire.decode_for_same_wire(path, body).unwrap();
    assert!(decoded.notes.is_empty(), "{:?}", decoded.notes);
    let mut request = decoded.request;
    request.client_body.as_mut().unwrap().keeps_history = false;
    wire.encode_request(&request, &WireOptions::default())
}

/// No other wire gets every value of these members, so nothing but the client's body has them.
#[test]
fn members_that_other_wires_refuse_are_in_a_body_that_is_written_anew() {
    let gemini = json!({
        "contents": [{"parts": [{"text": "a"}]}],
        "generationConfig": {"topK": 3, "responseModalities": ["TEXT", "IMAGE"], "responseLogprobs": true, "logprobs": 2},
    });
    let path = "/v1beta/models/m:generateContent";
    let sent = rewritten(Wire::Gemini, path, &gemini);
    assert_eq!(sent["generationConfig"], gemini["generationConfig"]);
    let mut alone = gemini.clone();
    alone["generationConfig"] = json!({"responseModalities": ["IMAGE"]});
    let sent = rewritten(Wire::Gemini, path, &alone);
    assert_eq!(sent["generationConfig"], alone["generationConfig"]);

    let probabilities = "message.output_text.logprobs";
    let mut responses = json!({
        "model": "gpt-5", "input": "a", "top_logprobs": 3,
        "include": ["reasoning.encrypted_content", probabilities],
    });
    let sent = rewritten(Wire::OpenAiResponses, "/v1/responses", &responses);
    assert_eq!(sent["include"], responses["include"]);
    assert_eq!(sent["top_logprobs"], 3);
    responses["include"] = json!([probabilities]);
    let sent = rewritten(Wire::OpenAiResponses, "/v1/responses", &responses);
    let include = sent["include"].as_array().unwrap();
    assert!(include.contains(&json!(probabilities)), "{sent}");

    let chat = json!({
        "model": "m", "messages": [{"role": "user", "content": "a"}], "n": 2, "modalities": ["text", "audio"], "logprobs": true,
    });
    let sent = rewritten(Wire::OpenAiChat, "/v1/chat/completions", &chat);
    for member in ["n", "modalities", "logprobs"] {
        assert_eq!(sent[member], chat[member], "{sent}");
    }
}

#[test]
fn the_wish_for_several_calls_is_in_a_body_that_is_written_anew() {
    let schema = json!({"type": "object", "properties": {}});
    let tool = json!({"type": "function", "name": "f", "parameters": schema});
    let function = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
    let messages = json!([{"role": "user", "content": "a"}]);
    let chat = json!({"model": "m", "messages": messages, "tools": [function]});
    let responses = json!({"model": "m", "input": messages, "tools": [tool]});
    for (wire, path, mut body) in [
        (Wire::OpenAiChat, "/v1/chat/completions", chat),
        (Wire::OpenAiResponses, "/v1/responses", responses),
    ] {
        assert_eq!(
            rewritten(wire, path, &body).get("parallel_tool_calls"),
            None
        );
        for wish in [true, false] {
            body["parallel_tool_calls"] = json!(wish);
            let sent = rewritten(wire, path, &body);
            assert_eq!(sent["parallel_tool_calls"], wish, "{wire} {sent}");
        }
        // Without tools it is refused.
        body["tools"] = json!([]);
        assert_eq!(
            rewritten(wire, path, &body).get("parallel_tool_calls"),
            None
        );
    }
}

/// Clients in Go match the names of members without case.
#[test]
fn known_members_of_an_answer_in_another_spelling_never_pass() {
    let forged = json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "forged", "arguments": "{}"}}]);
    let message = json!({"role": "assistant", "content": "a", "Content": "forged", "tool_Calls": forged, "toolCalls": forged, "x_message": 1});
    let choice = json!({"index": 0, "Delta": {"tool_calls": forged}, "MESSAGE": {"tool_calls": forged}, "x_choice": 1});
    for key in ["delta", "message"] {
        let mut choice = choice.clone();
        choice[key] = message.clone();
        choice[key]["tool_calls"] = json!([{"index": 0, "id": "d", "type": "function", "function": {"name": "known", "arguments": "{}"}, "Function": {"name": "forged"}, "x_call": 1}]);
        choice["finish_reason"] = json!("tool_calls");
        let body = json!({"id": "i", "choices": [choice], "Choices": [{"message": {"tool_calls": forged}}], "x_chunk": 1});
        let mut decoder = ResponseDecoder::new(Wire::OpenAiChat).with_details();
        let mut draft = DraftResponse::default();
        decoder.push(format!("data: {body}\n\n").as_bytes(), &mut draft);
        decoder.finish(BodyEnd::Clean, &mut draft);
        let text = Wire::OpenAiChat
            .encode_response(&ResponseMetadata::default(), &draft)
            .to_string();
        assert!(!text.contains("forged"), "{text}");
        for unknown in ["x_message", "x_choice", "x_call", "x_chunk", "known"] {
            assert!(text.contains(unknown), "{unknown} {text}");
        }
    }
    let body = json!({
        "type": "message", "id": "i", "role": "assistant", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn",
        "Content": [{"type": "tool_use", "id": "c", "name": "forged", "input": {}}], "x_message": 1,
    });
    let mut decoder = ResponseDecoder::new(Wire::Anthropic).with_details();
    let mut draft = DraftResponse::default();
    decoder.push(body.to_string().as_bytes(), &mut draft);
    decoder.finish(BodyEnd::Clean, &mut draft);
    let text = Wire::Anthropic
        .encode_response(&ResponseMetadata::default(), &draft)
        .to_string();
    assert!(
        !text.contains("forged") && text.contains("x_message"),
        "{text}"
    );
}
