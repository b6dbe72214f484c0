//! Images in tool results: wires that support them, and their position on wires that do not.

use sabir_call::{
    Call, CallId, CallResult, Image, Message, MessagePart, Request, Role, ToolResultStatus,
};
use sabir_wire::{Wire, WireOptions};
use serde_json::{Map, Value, json};

use crate::histories::picture;

/// The results of two calls: one with an image and no text, one with two images.
#[track_caller]
fn check(wire: Wire, model: &str, pointer: &str, expected: Value) {
    let call = |id: &str| {
        MessagePart::Call(Call {
            id: CallId::new(id),
            name: "look".into(),
            arguments: Map::new(),
            dialect: None,
        })
    };
    let result = |id: &str, content: &str, images: usize| {
        let images = (0..images)
            .map(|number| Image {
                data: format!("iVBORw0KGgo{id}{number}"),
                ..picture(0)
            })
            .collect();
        let id = CallId::new(id);
        let name = "look".to_owned();
        let content = content.to_owned();
        MessagePart::Result(CallResult {
            id,
            name,
            ending: ToolResultStatus::Done,
            content,
            images,
        })
    };
    let messages = vec![
        Message {
            role: Role::Assistant,
            parts: vec![call("a"), call("b")],
        },
        Message {
            role: Role::User,
            parts: vec![
                MessagePart::text("go on"),
                result("a", "", 1),
                result("b", "two", 2),
            ],
        },
    ];
    let request = Request {
        model: model.into(),
        messages: messages.into(),
        ..Request::default()
    };
    let body = wire.encode_request(&request, &WireOptions::default());
    assert_eq!(body.pointer(pointer), Some(&expected), "{body:#}");
}

#[test]
fn images_stay_in_their_result_where_supported() {
    let block = |name: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": format!("iVBORw0KGgo{name}")}});
    let expected = json!([
        {"type": "tool_result", "tool_use_id": "a", "content": [block("a0")]},
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}, block("b0"), block("b1")]},
        {"type": "text", "text": "go on"},
    ]);
    check(Wire::Anthropic, "m", "/messages/1/content", expected);
    let block = |name: &str| json!({"image": {"format": "png", "source": {"bytes": format!("iVBORw0KGgo{name}")}}});
    let expected = json!([
        {"toolResult": {"toolUseId": "a", "content": [block("a0")]}},
        {"toolResult": {"toolUseId": "b", "content": [{"text": "two"}, block("b0"), block("b1")]}},
        {"text": "go on"},
    ]);
    check(Wire::Bedrock, "m", "/messages/1/content", expected);
    let item = |name: &str| json!({"type": "input_image", "detail": "auto", "image_url": format!("data:image/png;base64,iVBORw0KGgo{name}")});
    let expected = json!({"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}, item("b0"), item("b1")]});
    check(Wire::OpenAiResponses, "m", "/input/3", expected);
    let part = |name: &str| json!({"inlineData": {"mimeType": "image/png", "data": format!("iVBORw0KGgo{name}")}});
    let expected = json!([
        {"functionResponse": {"id": "a", "name": "look", "response": {"output": ""}, "parts": [part("a0")]}},
        {"functionResponse": {"id": "b", "name": "look", "response": {"output": "two"}, "parts": [part("b0"), part("b1")]}},
        {"text": "go on"},
    ]);
    check(Wire::Gemini, "gemini-3-pro", "/contents/1/parts", expected);
}

#[test]
fn other_images_follow_the_results() {
    let (one, two) = (
        "[The picture of the result of `look`, call a:]",
        "[The pictures of the result of `look`, call b:]",
    );
    let part = |name: &str| json!({"inlineData": {"mimeType": "image/png", "data": format!("iVBORw0KGgo{name}")}});
    let expected = json!([
        {"functionResponse": {"id": "a", "name": "look", "response": {"output": ""}}},
        {"functionResponse": {"id": "b", "name": "look", "response": {"output": "two"}}},
        {"text": one}, part("a0"), {"text": two}, part("b0"), part("b1"), {"text": "go on"},
    ]);
    check(
        Wire::Gemini,
        "gemini-2.5-pro",
        "/contents/1/parts",
        expected,
    );
    let part = |name: &str| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,iVBORw0KGgo{name}")}});
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!({"role": "user", "content": [text(one), part("a0"), text(two), part("b0"), part("b1"), text("go on")]});
    check(Wire::OpenAiChat, "m", "/messages/3", expected);
    let images: Vec<_> = ["a0", "b0", "b1"]
        .map(|name| format!("iVBORw0KGgo{name}"))
        .into();
    let expected =
        json!({"role": "user", "content": format!("{one}\n\n{two}\n\ngo on"), "images": images});
    check(Wire::Ollama, "m", "/messages/3", expected);
}

#[test]
fn images_in_client_results_decode() {
    let check = |wire: Wire, messages: Value| {
        let body = json!({"model": "m", "messages": messages}).to_string();
        let read = wire.decode_request("", body.as_bytes()).unwrap().request;
        let pictures = read
            .messages
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(|part| match part {
                MessagePart::Result(result) => {
                    Some((result.content.as_str(), result.images.as_slice()))
                }
                _ => None,
            });
        assert_eq!(
            pictures.collect::<Vec<_>>(),
            [("x", [picture(1)].as_slice())]
        );
    };
    let url =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo1"}});
    let content = json!([{"type": "text", "text": "x"}, url]);
    check(
        Wire::OpenAiChat,
        json!([{"role": "tool", "tool_call_id": "c", "content": content}]),
    );
    check(
        Wire::Ollama,
        json!([{"role": "tool", "content": "x", "images": ["iVBORw0KGgo1"]}]),
    );
}
