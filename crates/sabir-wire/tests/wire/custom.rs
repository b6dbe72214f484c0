//! Custom tools of OpenAI Chat, whose input is text.

use sabir_call::{
    ArgumentEncoding, DraftResponse, Event, EventSink, Message, MessagePart, Role, ToolChoice,
    Truncation,
};
use sabir_wire::{BodyEnd, DecodedRequest, ResponseDecoder, ResponseMetadata, Wire, WireOptions};
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
    assert_eq!(
        incoming.preferences.custom_tool_names,
        ["apply_patch", "note"]
    );
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

/// OpenAI itself has custom tools.
fn openai() -> WireOptions {
    WireOptions {
        custom_tools: true,
        ..WireOptions::default()
    }
}

fn same_wire_body() -> Value {
    let mut body = body(&json!({"type": "custom", "custom": {"name": "apply_patch"}}));
    body["x_unknown"] = json!(1);
    body["messages"][0]["x_mark"] = json!(2);
    body["messages"][1]["tool_calls"][0]["x_call"] = json!(3);
    body["tools"][2]["function"]["x_tool"] = json!(4);
    body
}

fn read_same_wire(body: &Value) -> DecodedRequest {
    Wire::OpenAiChat
        .decode_for_same_wire("/v1/chat/completions", body)
        .unwrap()
}

#[test]
fn a_provider_of_the_same_wire_gets_the_clients_body() {
    let body = same_wire_body();
    let decoded = read_same_wire(&body);
    assert_eq!(decoded.notes, []);
    assert_eq!(
        decoded.preferences.custom_tool_names,
        ["apply_patch", "note"]
    );
    let sent = Wire::OpenAiChat.encode_request(&decoded.request, &openai());
    assert_eq!(sent, body);
    let notes = Wire::OpenAiChat.check_passthrough_body(&decoded.request, &openai());
    assert_eq!(notes, []);
}

#[test]
fn a_server_without_custom_tools_gets_functions_in_the_clients_body() {
    let body = same_wire_body();
    let decoded = read_same_wire(&body);
    let options = WireOptions::default();
    let sent = Wire::OpenAiChat.encode_request(&decoded.request, &options);
    let notes = Wire::OpenAiChat.check_passthrough_body(&decoded.request, &options);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].message.contains("grammar of `apply_patch`"));
    let function = &sent["tools"][0]["function"];
    assert_eq!(sent["tools"][0]["type"], "function");
    assert_eq!(function["name"], "apply_patch");
    let description = function["description"].as_str().unwrap();
    assert!(description.contains("start: begin_patch"), "{sent}");
    assert_eq!(function["parameters"]["required"], json!(["input"]));
    assert_eq!(
        sent["tool_choice"],
        json!({"type": "function", "function": {"name": "apply_patch"}})
    );
    let call = &sent["messages"][1]["tool_calls"][0];
    assert_eq!(
        *call,
        json!({"id": "c1", "type": "function", "x_call": 3, "function": {
            "name": "apply_patch", "arguments": "{\"input\":\"*** Begin \\\"ü\\\"\\n\"}"
        }})
    );
    // Everything else is the client's.
    let mut rest = sent.clone();
    for pointer in [
        "/tools/0",
        "/tools/1",
        "/tool_choice",
        "/messages/1/tool_calls/0",
    ] {
        *rest.pointer_mut(pointer).unwrap() = body.pointer(pointer).unwrap().clone();
    }
    assert_eq!(rest, body);
    let mut listed = body.clone();
    let patch = listed["tool_choice"].clone();
    listed["tool_choice"] =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [patch]}});
    let sent = Wire::OpenAiChat.encode_request(&read_same_wire(&listed).request, &options);
    let chosen = json!([{"type": "function", "function": {"name": "apply_patch"}}]);
    assert_eq!(sent["tool_choice"]["allowed_tools"]["tools"], chosen);
    assert_eq!(sent["tools"][1]["function"]["name"], "note", "{sent}");
}

/// Feedback to the model repeats its call.
#[test]
fn a_call_that_is_added_to_the_history_is_a_custom_one() {
    let mut request = read_same_wire(&same_wire_body()).request;
    let call = request.messages[1].parts[0].clone();
    request.messages.push(Message {
        role: Role::Assistant,
        parts: vec![call],
    });
    let sent = Wire::OpenAiChat.encode_request(&request, &openai());
    let call = json!({"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin \"ü\"\n"}});
    assert_eq!(sent["messages"][3]["tool_calls"], json!([call]), "{sent}");
}

#[test]
fn tools_of_the_responses_wire_are_custom_tools_of_openai() {
    let format = json!({"type": "grammar", "syntax": "lark", "definition": "start: begin_patch"});
    let asked = json!({
        "model": "m", "tool_choice": {"type": "custom", "name": "apply_patch"},
        "tools": [{"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": format}],
        "input": [
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ],
    });
    let decoded = Wire::OpenAiResponses
        .decode_request("/v1/responses", asked.to_string().as_bytes())
        .unwrap();
    let sent = Wire::OpenAiChat.encode_request(&decoded.request, &openai());
    let grammar = json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: begin_patch"}});
    let tool = json!({"type": "custom", "custom": {"name": "apply_patch", "description": "Edits files.", "format": grammar}});
    assert_eq!(sent["tools"], json!([tool]));
    assert_eq!(
        sent["tool_choice"],
        json!({"type": "custom", "custom": {"name": "apply_patch"}})
    );
    assert_eq!(sent["messages"][0]["tool_calls"][0]["custom"]["input"], "x");
    let notes = Wire::OpenAiChat
        .check_support(&decoded.request, &openai())
        .unwrap();
    assert_eq!(notes, []);
}

/// Decodes a stream with these calls, in pieces of a number of bytes.
fn decode(deltas: &[Value], reason: &str, size: usize) -> DraftResponse {
    let mut text = String::new();
    for delta in deltas {
        let chunk = json!({"id": "i", "choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]});
        text.push_str(&format!("data: {chunk}\n\n"));
    }
    let last = json!({"id": "i", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    text.push_str(&format!("data: {last}\n\ndata: [DONE]\n\n"));
    let mut decoder = ResponseDecoder::new(Wire::OpenAiChat);
    let mut draft = DraftResponse::default();
    for piece in text.as_bytes().chunks(size) {
        decoder.push(piece, &mut draft);
    }
    decoder.finish(BodyEnd::Clean, &mut draft);
    draft
}

/// Returns the names and inputs of the complete calls of an answer.
fn inputs(draft: &DraftResponse) -> Vec<Value> {
    let answer =
        Wire::OpenAiChat.encode_response(&read(json!("auto")).response_metadata("r", 0), draft);
    let calls = answer["choices"][0]["message"]["tool_calls"]
        .as_array()
        .cloned();
    let calls = calls.unwrap_or_default().into_iter();
    calls
        .map(|call| json!([call["id"], call["custom"]["name"], call["custom"]["input"]]))
        .collect()
}

#[test]
fn streamed_calls_of_custom_tools_are_read() {
    let open = |index: u64, id: &str, name: &str| json!({"index": index, "id": id, "type": "custom", "custom": {"name": name, "input": ""}});
    let more = |index: u64, input: &str| json!({"index": index, "custom": {"input": input}});
    let deltas = [
        open(0, "c1", "apply_patch"),
        more(0, "*** \"ü\""),
        open(1, "c2", "note"),
        more(0, "\n\\"),
        open(2, "c3", "note"),
        more(2, "{}"),
    ];
    let expected = [
        json!(["c1", "apply_patch", "*** \"ü\"\n\\"]),
        json!(["c2", "note", ""]),
        json!(["c3", "note", "{}"]),
    ];
    for size in [1, 7, 4096] {
        assert_eq!(inputs(&decode(&deltas, "tool_calls", size)), expected);
    }
    // The limit or a filter may have cut any of them.
    for reason in ["length", "content_filter", "abort"] {
        let cut = decode(&deltas, reason, 4096);
        assert_eq!(inputs(&cut), [] as [Value; 0], "{reason}");
    }
    // The tool comes behind the id, and its name with each piece.
    let late = [
        json!({"index": 0, "id": "c1", "type": "custom"}),
        json!({"index": 0, "custom": {"name": "note", "input": "*"}}),
        json!({"index": 0, "custom": {"name": "note", "input": "*"}}),
    ];
    assert_eq!(
        inputs(&decode(&late, "tool_calls", 4096)),
        [json!(["c1", "note", "**"])]
    );
    // A server that sends the whole call in one delta, and then again.
    let whole =
        json!({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "note", "input": "a"}});
    let twice = [whole.clone(), whole];
    assert_eq!(
        inputs(&decode(&twice, "stop", 4096)),
        [json!(["c1", "note", "a"])]
    );
}

#[test]
fn whole_calls_of_custom_tools_are_read() {
    let call = json!({"id": "c1", "type": "custom", "custom": {"name": "note", "input": "a\nb"}});
    let function =
        json!({"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call, function]});
    let body = json!({"id": "i", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let mut decoder = ResponseDecoder::new(Wire::OpenAiChat);
    let mut draft = DraftResponse::default();
    decoder.push(body.to_string().as_bytes(), &mut draft);
    decoder.finish(BodyEnd::Clean, &mut draft);
    let answer =
        Wire::OpenAiChat.encode_response(&read(json!("auto")).response_metadata("r", 0), &draft);
    let calls = &answer["choices"][0]["message"]["tool_calls"];
    assert_eq!(*calls, json!([call, function]));
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
        move |sink: &mut dyn EventSink| called("apply_patch", ArgumentEncoding::String, cut, sink)
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
