//! Requests of OpenAI Responses: encoding, decoding, and errors.

use sabir_call::{
    Message, MessagePart, OpaqueState, ReasoningConfig, ReasoningEffort, Request, Role, ToolSet,
    ToolSpec,
};
use sabir_wire::{Wire, WireOptions};
use serde_json::{Value, json};

const WIRE: Wire = Wire::OpenAiResponses;

#[test]
fn requests_have_required_members() {
    let kept = |data: Value| {
        MessagePart::Opaque(OpaqueState {
            wire: WIRE.name().into(),
            origin: None,
            data,
        })
    };
    let reasoning =
        json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"});
    let parts = vec![
        MessagePart::Opaque(OpaqueState {
            wire: "gemini".into(),
            origin: None,
            data: json!({"type": "reasoning"}),
        }),
        kept(reasoning.clone()),
        kept(json!({"type": "message", "phase": "commentary"})),
        MessagePart::text("words"),
        MessagePart::Thought {
            text: "unsigned".into(),
            opaque: None,
        },
        // No item follows it: the API would refuse it.
        kept(json!({"type": "reasoning", "id": "s", "summary": [], "encrypted_content": "y"})),
    ];
    let mut request = Request {
        model: "gpt-5".into(),
        messages: vec![Message {
            role: Role::Assistant,
            parts,
        }]
        .into(),
        tools: ToolSet::new(vec![ToolSpec::new("f", "does f", json!({}))]).unwrap(),
        reasoning: ReasoningConfig::Effort(ReasoningEffort::Low),
        ..Request::default()
    };
    let body = WIRE.encode_request(&request, &WireOptions::default());
    let message =
        json!({"type": "message", "role": "assistant", "content": "words", "phase": "commentary"});
    assert_eq!(body["input"], json!([reasoning, message]));
    assert_eq!(body["tools"][0]["strict"], json!(false));
    assert_eq!(
        (&body["store"], &body["include"]),
        (&json!(false), &json!(["reasoning.encrypted_content"]))
    );
    assert_eq!(
        body["reasoning"],
        json!({"effort": "low", "summary": "auto"})
    );
    request.reasoning = ReasoningConfig::Off;
    assert_eq!(
        WIRE.encode_request(&request, &WireOptions::default())["reasoning"],
        json!({"effort": "none"})
    );
    // Models without reasoning refuse a request for it.
    request.model = "gpt-4.1-mini".into();
    assert_eq!(
        WIRE.encode_request(&request, &WireOptions::default())["include"],
        Value::Null
    );
}

#[test]
fn alternative_forms_decode() {
    let read = |input: Value| {
        let body = json!({"model": "m", "instructions": "Be brief.", "input": input});
        WIRE.decode_request("/v1/responses", body.to_string().as_bytes())
            .unwrap()
            .request
    };
    let roles = |input: Value| {
        read(input)
            .messages
            .iter()
            .map(|message| message.parts.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(roles(json!("hi")), [1]);
    let request = read(json!([
        {"role": "developer", "content": "And kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "data:image/png;base64,aGk="}]},
        {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "ok", "annotations": []}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "text"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}]},
    ]));
    assert_eq!(request.system, "Be brief.\n\nAnd kind.");
    let kinds: Vec<_> = request
        .messages
        .iter()
        .map(|message| message.parts.len())
        .collect();
    assert_eq!(kinds, [2, 2, 1]);
    let call = request.messages[1].calls().next().unwrap();
    assert_eq!(
        (call.name.as_str(), &call.arguments["input"]),
        ("patch", &json!("text"))
    );
}

#[test]
fn errors_name_unsupported_members() {
    let check = |body: Value, expected: &str| {
        let mut full = json!({"model": "m", "input": "hi"});
        full.as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let error = WIRE
            .decode_request("", full.to_string().as_bytes())
            .unwrap_err();
        assert_eq!(error.path, expected, "{error}");
    };
    check(
        json!({"previous_response_id": "resp_1"}),
        "previous_response_id",
    );
    check(json!({"conversation": "conv_1"}), "conversation");
    check(json!({"prompt": {"id": "p"}}), "prompt");
    check(json!({"background": true}), "background");
    check(
        json!({"text": {"format": {"type": "xml"}}}),
        "text.format.type",
    );
    check(json!({"top_logprobs": 2}), "top_logprobs");
    check(
        json!({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}),
        "include[1]",
    );
    check(
        json!({"input": [{"type": "item_reference", "id": "x"}]}),
        "input[0].type",
    );
    check(
        json!({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
        "input[0].content[0].type",
    );
    check(
        json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "file:x"}]}]}),
        "input[0].content[0].image_url",
    );
    check(
        json!({"input": [{"role": "tool", "content": "x"}]}),
        "input[0].role",
    );
    check(
        json!({"tool_choice": {"type": "web_search"}}),
        "tool_choice",
    );
    check(
        json!({"tool_choice": {"type": "function", "name": "g"}}),
        "tool_choice",
    );
    check(json!({"tool_choice": "required"}), "tool_choice");
    check(
        json!({"reasoning": {"effort": "enormous"}}),
        "reasoning.effort",
    );
}
