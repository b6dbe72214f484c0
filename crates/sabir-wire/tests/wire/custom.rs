//! Custom tools of OpenAI Chat, whose input is text.

use sabir_call::{ArgForm, DraftResponse, Event, EventSink, MessagePart, ToolChoice, Truncation};
use sabir_wire::{DecodedRequest, ResponseMetadata, Wire, WireOptions};
use serde_json::{Value, json};

use crate::fronts::{called, streamed};

fn body(choice: &Value) -> Value {
    let grammar = json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: begin_patch"}});
    json!({
        "model": "m", "tool_choice": choice,
        "tools": [
            {"type": "custom", "custom": {"name": "apply_patch", "description": "Edits files.", "format": grammar}},
            {"type": "custom", "custom": {"name": "note", "format": {"type": "text"}}},
            {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}},
        ],
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin \"ü\"\n"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "Success."},
        ],
    })
}

fn read(choice: Value) -> DecodedRequest {
    Wire::OpenAiChat
        .decode_request("/v1/chat/completions", body(&choice).to_string().as_bytes())
        .unwrap()
}

#[test]
fn a_custom_tool_is_a_function_with_one_text() {
    let incoming = read(json!("auto"));
    let request = &incoming.request;
    assert_eq!(incoming.preferences.freeform_tools, ["apply_patch", "note"]);
    let tool = request.tools.get("apply_patch").unwrap();
    assert!(
        tool.description.contains("start: begin_patch")
            && tool.find_argument("input").unwrap().required
    );
    let MessagePart::Call(call) = &request.messages[1].parts[0] else {
        panic!("{request:?}")
    };
    assert_eq!(
        (call.name.as_str(), &call.arguments["input"]),
        ("apply_patch", &json!("*** Begin \"ü\"\n"))
    );
    let MessagePart::Result(result) = &request.messages[2].parts[0] else {
        panic!("{request:?}")
    };
    assert_eq!(result.name, "apply_patch");
    // A wire that has only functions gets one, and a note says that its grammar does not bind.
    for back in Wire::ALL {
        let asked = back.encode_request(request, &WireOptions::default());
        let custom = asked["tools"]
            .as_array()
            .is_some_and(|tools| tools.iter().any(|tool| tool["type"] == "custom"));
        assert_eq!(custom, back == Wire::OpenAiResponses, "{back}: {asked}");
        let notes = back
            .check_support(request, &WireOptions::default())
            .unwrap();
        let told = notes
            .iter()
            .filter(|note| note.message.contains("grammar of `apply_patch`"))
            .count();
        assert_eq!(
            told,
            usize::from(back != Wire::OpenAiResponses),
            "{back}: {notes:?}"
        );
    }
    // The wire that knows grammars gets it in its own form.
    let asked = Wire::OpenAiResponses.encode_request(request, &WireOptions::default());
    let format = json!({"type": "grammar", "syntax": "lark", "definition": "start: begin_patch"});
    let patch = json!({"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": format});
    assert!(
        asked["tools"].as_array().unwrap().contains(&patch),
        "{asked}"
    );
    let kinds: Vec<_> = asked["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            Some("message"),
            Some("custom_tool_call"),
            Some("custom_tool_call_output")
        ]
    );
}

#[test]
fn a_custom_tool_can_be_chosen() {
    let patch = json!({"type": "custom", "custom": {"name": "apply_patch"}});
    assert_eq!(
        read(patch.clone()).request.tool_choice,
        ToolChoice::Tool("apply_patch".into())
    );
    let list =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [patch]}});
    let request = read(list).request;
    assert_eq!(
        (request.tool_choice, request.tools.iter().count()),
        (ToolChoice::Required, 1)
    );
}

#[test]
fn custom_tool_calls_round_trip() {
    let head = || read(json!("auto")).response_metadata("r", 0);
    let play = |cut: bool| {
        move |sink: &mut dyn EventSink| called("apply_patch", ArgForm::String, cut, sink)
    };
    let calls = |found: &[Value]| {
        let deltas = found.iter().filter_map(|chunk| {
            chunk["choices"][0]["delta"]["tool_calls"][0]
                .as_object()
                .cloned()
        });
        deltas.map(Value::Object).collect::<Vec<_>>()
    };
    let found = streamed(Wire::OpenAiChat, head(), play(false));
    let deltas = calls(&found);
    let opened = json!({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": ""}});
    assert_eq!(deltas[0], opened);
    assert!(
        deltas[1..]
            .iter()
            .all(|delta| delta["index"] == 0 && delta.get("function").is_none()),
        "{deltas:?}"
    );
    let input: String = deltas
        .iter()
        .map(|delta| delta["custom"]["input"].as_str().unwrap())
        .collect();
    assert_eq!(input, "*** Begin \"ü\"\n");
    let reason = |found: &[Value]| {
        found
            .iter()
            .find_map(|chunk| {
                chunk["choices"][0]["finish_reason"]
                    .as_str()
                    .map(str::to_owned)
            })
            .unwrap()
    };
    assert_eq!(reason(&found), "tool_calls");
    // A truncated text looks complete, so the response reports the limit.
    assert_eq!(
        reason(&streamed(Wire::OpenAiChat, head(), play(true))),
        "length"
    );
    let whole = |cut: bool| {
        let mut draft = DraftResponse::default();
        play(cut)(&mut |event: Event<'_>| draft.push_event(event));
        Wire::OpenAiChat.encode_response(&head(), &draft)["choices"][0]["message"]["tool_calls"]
            .clone()
    };
    let call = json!({"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin \"ü\"\n"}});
    assert_eq!((whole(false), whole(true)), (json!([call]), Value::Null));
    // A function next to it is called as usual.
    let found = streamed(Wire::OpenAiChat, ResponseMetadata::default(), |sink| {
        sink.push_event(Event::CallStart {
            index: 0,
            id: Some("c"),
            name: "ls",
            dialect: None,
            at: 0,
            name_at: 0,
        });
        sink.push_event(Event::CallCut {
            index: 0,
            why: Truncation::Ended,
            at: 0,
        });
    });
    assert_eq!(
        (calls(&found)[0]["type"].as_str(), reason(&found)),
        (Some("function"), "tool_calls".to_owned())
    );
}
