//! Gemini requests: what the API requires, and variants that clients send.

use std::collections::HashSet;

use sabir_call::{
    MessagePart, ReasoningConfig, ReasoningEffort, Request, ToolChoice, ToolSet, ToolSpec,
};
use sabir_wire::{Wire, WireOptions};
use serde_json::{Value, json};

use super::WIRE;
use crate::histories::history;

#[test]
fn requests_have_required_members() {
    let schema = json!({"$schema": "x", "type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": false});
    let request = Request {
        model: "models/gemini-3-pro".into(),
        messages: history().into(),
        tools: ToolSet::new(vec![ToolSpec::new("f", "does f", schema)]).unwrap(),
        tool_choice: ToolChoice::Tool("f".into()),
        ..Request::default()
    };
    let body = WIRE.encode_request(&request, &WireOptions::default());
    let contents = body["contents"].as_array().unwrap();
    let roles: Vec<_> = contents
        .iter()
        .map(|content| content["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["model", "user"],
        "one content for each role in turn: {body:#}"
    );
    let kinds = |content: &Value| -> Vec<String> {
        content["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part.as_object().unwrap().keys().next().unwrap().clone())
            .collect()
    };
    assert_eq!(
        kinds(&contents[0]),
        ["text", "functionCall", "functionCall"],
        "no unsigned or foreign thought"
    );
    assert_eq!(
        kinds(&contents[1]),
        ["functionResponse", "functionResponse", "text"],
        "results first"
    );
    let first = &contents[1]["parts"][0]["functionResponse"];
    assert_eq!(
        (&first["id"], &first["name"]),
        (&json!("functions.f:0"), &json!("f"))
    );
    assert_eq!(
        (
            &first["response"],
            &contents[1]["parts"][1]["functionResponse"]["response"]
        ),
        (&json!({"error": "no"}), &json!({"output": "no"}))
    );
    // Calls of another model: one of them needs a placeholder signature, which only newer models
    // accept.
    assert_eq!(
        contents[0]["parts"][1]["thoughtSignature"],
        "skip_thought_signature_validator"
    );
    assert_eq!(contents[0]["parts"][2]["thoughtSignature"], Value::Null);
    for model in ["gemini-2.5-pro", "gemma-4"] {
        let old = Request {
            model: model.into(),
            messages: history().into(),
            ..Request::default()
        };
        assert!(
            !WIRE
                .encode_request(&old, &WireOptions::default())
                .to_string()
                .contains("thoughtSignature"),
            "{model}"
        );
    }
    let declared = &body["tools"][0]["functionDeclarations"][0];
    assert_eq!(
        declared["parametersJsonSchema"],
        json!({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": false})
    );
    assert_eq!(declared["parameters"], Value::Null);
    let calling = json!({"mode": "ANY", "allowedFunctionNames": ["f"]});
    assert_eq!(body["toolConfig"]["functionCallingConfig"], calling);
    // The placeholder is not taken for a signature.
    let back = WIRE
        .decode_request("", body.to_string().as_bytes())
        .unwrap()
        .request;
    assert!(!format!("{:?}", back.messages).contains("skip_thought"));
}

#[test]
fn thinking_is_encoded_for_the_models_version() {
    let check = |model: &str, thinking: ReasoningConfig, expected: Value| {
        let request = Request {
            model: model.into(),
            reasoning: thinking,
            ..Request::default()
        };
        assert_eq!(
            WIRE.encode_request(&request, &WireOptions::default())["generationConfig"]["thinkingConfig"],
            expected
        );
    };
    check("gemini-3-pro", ReasoningConfig::Default, Value::Null);
    check(
        "gemini-3-pro",
        ReasoningConfig::Effort(ReasoningEffort::Low),
        json!({"includeThoughts": true, "thinkingLevel": "LOW"}),
    );
    check(
        "models/gemini-2.5-pro",
        ReasoningConfig::Effort(ReasoningEffort::Low),
        json!({"includeThoughts": true, "thinkingBudget": 1024}),
    );
    check(
        "gemini-2.5-flash",
        ReasoningConfig::Off,
        json!({"thinkingBudget": 0}),
    );
    check(
        "gemini-2.5-flash",
        ReasoningConfig::Tokens(5),
        json!({"includeThoughts": true, "thinkingBudget": 5}),
    );
}

#[test]
fn alternative_spellings_decode() {
    let body = json!({
        "system_instruction": {"parts": [{"text": "a"}, {"text": "b"}]},
        "contents": [
            {"parts": [{"text": "hi"}, {"inline_data": {"mime_type": "image/png", "data": "aGk="}}]},
            {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"a": 1}}, "thought_signature": "s"}]},
            {"role": "function", "parts": [{"function_response": {"name": "f", "response": {"b": 2}}}]},
        ],
        "tools": [{"function_declarations": [{"name": "f", "description": "d", "parameters": {
            "type": "OBJECT", "properties": {"type": {"type": "STRING", "nullable": true}, "l": {"type": "ARRAY", "items": {"type": "INTEGER"}}},
        }}]}],
        "tool_config": {"function_calling_config": {"mode": "any"}},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_budget": -1}},
    });
    let path = "/v1beta/models/gemini-x:streamGenerateContent?alt=sse";
    let incoming = WIRE
        .decode_request(path, body.to_string().as_bytes())
        .unwrap();
    let request = incoming.request;
    assert_eq!(
        (
            request.model.as_str(),
            incoming.streamed,
            request.system.as_str()
        ),
        ("gemini-x", true, "a\n\nb")
    );
    assert_eq!(
        (
            request.max_output_tokens,
            request.tool_choice,
            request.reasoning
        ),
        (Some(5), ToolChoice::Required, ReasoningConfig::Default)
    );
    assert_eq!(request.messages.len(), 3);
    assert!(
        matches!(&request.messages[1].parts[1], MessagePart::Opaque(opaque) if opaque.data["thoughtSignature"] == "s")
    );
    assert!(
        matches!(&request.messages[2].parts[0], MessagePart::Result(result) if result.content == r#"{"b":2}"#)
    );
    let expected = json!({"type": "object", "properties": {"type": {"type": ["string", "null"]}, "l": {"type": "array", "items": {"type": "integer"}}}});
    assert_eq!(request.tools.get("f").unwrap().parameters, expected);
    for (body, place) in [
        (
            json!({"contents": [{"role": "tool", "parts": []}]}),
            "contents[0].role",
        ),
        (
            json!({"contents": [{"parts": [{"fileData": {}}]}]}),
            "contents[0].parts[0]",
        ),
        (
            json!({"generationConfig": {"candidateCount": 2}}),
            "generationConfig.candidateCount",
        ),
        (
            json!({"generation_config": {"response_modalities": ["AUDIO"]}}),
            "generation_config.response_modalities",
        ),
        (
            json!({"generationConfig": {"responseLogprobs": true}}),
            "generationConfig.responseLogprobs",
        ),
        (
            json!({"cachedContent": "cachedContents/1"}),
            "cachedContent",
        ),
    ] {
        assert_eq!(
            WIRE.decode_request("", body.to_string().as_bytes())
                .unwrap_err()
                .path,
            place
        );
    }
}

#[test]
fn tools_of_the_provider_are_kept_and_reported() {
    let function = json!({"functionDeclarations": [{"name": "f"}]});
    let ask = |tools: Value| {
        let body = json!({"contents": [{"parts": [{"text": "hi"}]}], "tools": tools});
        WIRE.decode_request("", body.to_string().as_bytes())
            .unwrap()
    };
    let options = WireOptions::default();
    // In one object with the functions, and in objects of their own.
    let mut joined = function.clone();
    joined["googleSearch"] = json!({});
    for tools in [json!([joined]), json!([function, {"googleSearch": {}}])] {
        let request = ask(tools).request;
        let notes = Wire::OpenAiChat.check_support(&request, &options).unwrap();
        assert!(
            notes
                .iter()
                .any(|note| note.path == "tools" && note.message.contains("`googleSearch`")),
            "{notes:?}"
        );
        assert_eq!(WIRE.check_support(&request, &options), Ok(Vec::new()));
        assert_eq!(
            WIRE.encode_request(&request, &options)["tools"][1],
            json!({"googleSearch": {}})
        );
    }
    let alone = ask(json!([{"googleSearch": {}}])).request;
    assert_eq!(
        Wire::OpenAiChat
            .check_support(&alone, &options)
            .unwrap_err()
            .path,
        "tools"
    );
    assert!(WIRE.check_support(&alone, &options).is_ok());
}

#[test]
fn only_the_allowed_functions_are_offered() {
    for (mode, offered) in [
        ("ANY", ["f", "h"].as_slice()),
        ("VALIDATED", &["f", "h"]),
        ("AUTO", &["f", "g", "h"]),
    ] {
        let body = json!({
            "contents": [{"parts": [{"text": "hi"}]}], "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}, {"name": "h"}]}],
            "toolConfig": {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["f", "h"]}},
        });
        let request = WIRE
            .decode_request("", body.to_string().as_bytes())
            .unwrap()
            .request;
        let names: Vec<_> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(names, offered, "{mode}");
    }
}

#[test]
fn only_pictures_are_pictures() {
    let body = json!({"contents": [{"parts": [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0=", "displayName": "a.pdf"}},
    ]}]});
    let request = WIRE
        .decode_request("", body.to_string().as_bytes())
        .unwrap()
        .request;
    let options = WireOptions::default();
    let part = |wire: Wire, pointer: &str| {
        wire.encode_request(&request, &options)
            .pointer(pointer)
            .cloned()
            .unwrap()
    };
    let url = "data:application/pdf;base64,JVBERi0=";
    assert_eq!(
        part(Wire::OpenAiChat, "/messages/0/content/1"),
        json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}})
    );
    assert_eq!(
        part(Wire::OpenAiResponses, "/input/0/content/1"),
        json!({"type": "input_file", "filename": "a.pdf", "file_data": url})
    );
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="});
    assert_eq!(
        part(Wire::Anthropic, "/messages/0/content/1"),
        json!({"type": "document", "source": source, "title": "a.pdf"})
    );
    assert_eq!(
        part(Wire::Bedrock, "/messages/0/content"),
        json!([
            {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0="}}},
            {"text": "a"},
        ])
    );
    let error = Wire::Ollama.check_support(&request, &options).unwrap_err();
    assert!(
        error.message.contains("ollama takes no documents"),
        "{error}"
    );
}

#[test]
fn results_find_their_calls_without_ids() {
    let call =
        |id: Value, n: u64| json!({"functionCall": {"name": "f", "args": {"n": n}, "id": id}});
    let result = |id: Value, n: u64| json!({"functionResponse": {"name": "f", "id": id, "response": {"output": n.to_string()}}});
    let none = Value::Null;
    // Missing ids, then ids that repeat from turn to turn, with the results in another order.
    let contents = json!([
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call(none.clone(), 1), call(none.clone(), 2)]},
        {"role": "user", "parts": [result(none.clone(), 1), result(none, 2)]},
        {"role": "model", "parts": [call("0".into(), 3), call("1".into(), 4)]},
        {"role": "user", "parts": [result("1".into(), 4), result("0".into(), 3)]},
        {"role": "model", "parts": [call("0".into(), 5), call("1".into(), 6)]},
        {"role": "user", "parts": [result("0".into(), 5), result("1".into(), 6)]},
    ]);
    let body = json!({"contents": contents}).to_string();
    let mut request = WIRE
        .decode_request("/v1beta/models/m:generateContent", body.as_bytes())
        .unwrap()
        .request;
    // The result of each call is its number, on this wire and on every other one.
    for wire in Wire::ALL {
        let encoded = wire
            .encode_request(&request, &WireOptions::default())
            .to_string();
        request = wire
            .decode_request(&wire.endpoint_path("m", false), encoded.as_bytes())
            .unwrap()
            .request;
        check_pairs(&request, 6);
    }
}

/// Checks that each call has a unique id, and that the result of that id is the call's number.
pub(crate) fn check_pairs(request: &Request, count: usize) {
    let parts = || request.messages.iter().flat_map(|message| &message.parts);
    let mut ids = HashSet::new();
    for part in parts() {
        let MessagePart::Call(call) = part else {
            continue;
        };
        assert!(ids.insert(call.id.clone()), "{} stands twice", call.id);
        let results: Vec<_> = parts()
            .filter_map(|part| match part {
                MessagePart::Result(result) if result.id == call.id => {
                    Some((result.name.as_str(), result.content.clone()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            results,
            [("f", call.arguments["n"].to_string())],
            "{}",
            call.id
        );
    }
    assert_eq!(ids.len(), count);
}

/// The path of requests to a model.
const PATH: &str = "/v1beta/models/named:generateContent";

/// Returns what a provider of the same wire gets of a body.
fn passed(body: &Value, limit: Option<u64>) -> Value {
    let mut request = WIRE.decode_for_same_wire(PATH, body).unwrap().request;
    assert_eq!(request.model, "named");
    if limit.is_some() && request.max_output_tokens > limit {
        request.max_output_tokens = limit;
    }
    WIRE.encode_request(&request, &WireOptions::default())
}

/// The gateway's routes say which models a client may use.
#[test]
fn a_model_in_the_body_is_not_passed_on() {
    let mut body = json!({"model": "models/other", "contents": [{"parts": [{"text": "a"}]}], "labels": {"a": "b"}, "x_own": 1});
    let sent = passed(&body, None);
    body.as_object_mut().unwrap().shift_remove("model");
    assert_eq!(sent.to_string(), body.to_string());
}

#[test]
fn limits_hold_in_either_spelling() {
    let contents = json!([{"parts": [{"text": "a"}]}]);
    for body in [
        json!({"contents": contents, "generationConfig": {"maxOutputTokens": 900, "topK": 3}}),
        json!({"contents": contents, "generation_config": {"maxOutputTokens": 900, "top_k": 3}}),
        json!({"contents": contents, "generationConfig": {"max_output_tokens": 900, "top_k": 3}}),
        json!({"contents": contents, "generation_config": {"max_output_tokens": 900, "topK": 3}}),
        json!({"contents": contents, "generation_config": {"max_outputTokens": 900, "top_K": 3}}),
    ] {
        let sent = passed(&body, Some(50));
        let generation = json!({"maxOutputTokens": 50, "topK": 3});
        assert_eq!(sent["generationConfig"], generation, "{body}");
        assert_eq!(sent.as_object().unwrap().len(), 2, "{sent}");
    }
}

#[test]
fn a_member_in_two_spellings_is_refused() {
    let contents = json!([{"parts": [{"text": "a"}]}]);
    for (more, path) in [
        (
            json!({"generationConfig": {"topK": 1}, "generation_config": {"maxOutputTokens": 9}}),
            "generationConfig",
        ),
        (
            json!({"generation_config": {}, "generationConfig": {"maxOutputTokens": 9}}),
            "generationConfig",
        ),
        (
            json!({"system_instruction": "a", "systemInstruction": "b"}),
            "systemInstruction",
        ),
        (
            json!({"generationConfig": {"max_output_tokens": 1, "maxOutputTokens": 9}}),
            "generationConfig.maxOutputTokens",
        ),
        (
            json!({"generation_config": {"maxOutputTokens": 1, "max_output_tokens": 9}}),
            "generationConfig.maxOutputTokens",
        ),
    ] {
        let mut body = json!({"contents": contents});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap());
        let error = WIRE.decode_for_same_wire(PATH, &body).unwrap_err();
        assert_eq!(error.path, path, "{body}");
        assert!(error.message.contains("two spellings"), "{error}");
    }
}

#[test]
fn the_same_wire_gets_every_spelling_of_what_others_refuse() {
    let body = json!({
        "contents": [{"parts": [{"text": "a"}]}], "x_own": {"y_own": 1}, "safety_settings": [],
        "generation_config": {"response_modalities": ["IMAGE"], "response_logprobs": true, "logprobs": 2, "_responseJsonSchema": {}, "z_own": 1},
    });
    let expected = json!({
        "contents": [{"parts": [{"text": "a"}]}], "x_own": {"y_own": 1}, "safetySettings": [],
        "generationConfig": {"responseModalities": ["IMAGE"], "responseLogprobs": true, "logprobs": 2, "_responseJsonSchema": {}, "z_own": 1},
    });
    assert_eq!(passed(&body, None).to_string(), expected.to_string());
    assert!(WIRE.decode_request_value(PATH, &body).is_err());
}
