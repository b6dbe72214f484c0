//! Tests `wire encode` over real pipes.

use serde_json::{Value, json};

use crate::parse::pipe;
use crate::world::World;

fn encoded(world: &World, arguments: &[&str], input: &Value) -> Value {
    let arguments = [&["wire", "encode", "--output", "json"], arguments].concat();
    let (code, out) = pipe(world, &arguments, &input.to_string());
    assert_eq!(code, 0, "{out}");
    serde_json::from_str(&out).unwrap()
}

fn request() -> Value {
    let call =
        json!({"type": "call", "id": "c1", "name": "read_file", "arguments": {"path": "a.rs"}});
    let images = json!([{"media_type": "image/png", "data": "iVBORw0KGgo="}]);
    let result = json!({
        "type": "result", "id": "c1", "name": "read_file", "ending": "done", "content": "fn a() {}", "images": images,
    });
    json!({
        "model": "m-1",
        "messages": [
            {"role": "user", "parts": [{"type": "text", "text": "Read a.rs."}]},
            {"role": "assistant", "parts": [call]},
            {"role": "user", "parts": [result]},
        ],
        "tools": [{"name": "read_file", "description": "Reads.", "parameters": {"properties": {"path": {"type": "string"}}}}],
    })
}

#[test]
fn every_wire_writes_the_same_history() {
    let world = World::new();
    for wire in sabir_wire::Wire::ALL {
        let out = encoded(&world, &["--wire", wire.name()], &request());
        assert_eq!(
            (&out["wire"], &out["path"]),
            (&json!(wire.name()), &json!(wire.endpoint_path("m-1", true))),
            "{out}"
        );
        let body = out["body"].to_string();
        for words in [
            "read_file",
            "a.rs",
            "fn a() {}",
            "Read a.rs.",
            "iVBORw0KGgo=",
        ] {
            assert!(body.contains(words), "{wire}: no {words} in {body}");
        }
        // Another wire can read the encoded request.
        let again = encoded(
            &world,
            &["--wire", "anthropic", "--from", wire.name()],
            &out["body"],
        );
        assert_eq!(
            again["body"]["messages"][1]["content"][0]["input"],
            json!({"path": "a.rs"}),
            "{wire}: {again}"
        );
        assert!(
            again["body"].to_string().contains("iVBORw0KGgo="),
            "{wire}: {again}"
        );
    }
}

#[test]
fn a_prompted_request_has_text_instead_of_tools() {
    let world = World::new();
    let out = encoded(
        &world,
        &[
            "--wire",
            "openai-chat",
            "--protocol",
            "cline",
            "--model",
            "other",
        ],
        &request(),
    );
    let body = &out["body"];
    assert_eq!((&body["model"], body.get("tools")), (&json!("other"), None));
    assert!(
        body["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("<read_file>"),
        "{body}"
    );
    assert!(
        body["messages"][2]["content"]
            .as_str()
            .unwrap()
            .contains("<path>a.rs</path>"),
        "{body}"
    );
    let shown = &body["messages"][3]["content"];
    assert!(
        shown[0]["text"].as_str().unwrap().contains("fn a() {}"),
        "{body}"
    );
    assert_eq!(
        shown[1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgo=",
        "{body}"
    );
}

#[test]
fn invalid_requests_are_refused() {
    let world = World::new();
    let check = |arguments: &[&str], input: &str, words: &[&str]| {
        let output = world.piped(&[&["wire", "encode"], arguments].concat(), input);
        let error = crate::world::stderr(&output);
        assert_eq!(crate::world::code(&output), 2, "{error}");
        for word in words {
            assert!(error.contains(word), "no {word} in {error}");
        }
    };
    check(
        &["--wire", "smoke"],
        "{}",
        &["`smoke`", "anthropic", "openai-chat"],
    );
    check(
        &["--wire", "anthropic"],
        "{\"messages\": [], \"color\": 1}",
        &["color", "line 1"],
    );
    check(&["--wire", "anthropic"], "", &["standard input"]);
    let misplaced = |role: &str, part: Value| {
        json!({"messages": [{"role": role, "parts": [part]}]}).to_string()
    };
    let image = json!({"type": "image", "media_type": "image/png", "data": "AA"});
    let result =
        json!({"type": "result", "id": "c", "name": "f", "ending": "done", "content": "x"});
    let call = json!({"type": "call", "id": "c", "name": "f", "arguments": {}});
    check(
        &["--wire", "gemini"],
        &misplaced("assistant", image),
        &["messages[0].parts[0]", "an image", "user"],
    );
    check(
        &["--wire", "openai-chat"],
        &misplaced("assistant", result),
        &["a result", "user"],
    );
    check(
        &["--wire", "ollama"],
        &misplaced("user", call),
        &["a call", "assistant"],
    );
    check(
        &["--wire", "ollama"],
        &misplaced("user", json!({"type": "thought", "text": "x"})),
        &["a thought"],
    );
    check(
        &["--wire", "anthropic", "--protocol", "clyne"],
        "{\"messages\": []}",
        &["`clyne`", "cline"],
    );
    check(
        &["--wire", "anthropic", "--from", "openai-chat"],
        "{\"messages\": [{\"role\": \"x\"}]}",
        &["messages[0].role"],
    );
}

#[test]
fn unsupported_fields_are_noted_or_refused() {
    let world = World::new();
    let check = |arguments: &[&str], members: &Value, code: i32, words: &[&str]| {
        let mut body =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        let output = world.piped(
            &[&["wire", "encode", "--from", "anthropic"], arguments].concat(),
            &body.to_string(),
        );
        let error = crate::world::stderr(&output);
        assert_eq!(crate::world::code(&output), code, "{error}");
        assert!(
            words.iter().all(|word| error.contains(word)),
            "{words:?} in {error}"
        );
    };
    let odd = json!({"top_k": 5, "context_management": {"edits": [1]}});
    check(
        &["--wire", "openai-chat"],
        &odd,
        0,
        &[
            "note: top_k: openai-chat",
            "note: context_management: left out",
        ],
    );
    check(
        &["--wire", "gemini"],
        &json!({"container": "c"}),
        2,
        &["standard input", "container", "nothing is kept"],
    );
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    for arguments in [
        &["--wire", "openai-chat"][..],
        &["--wire", "anthropic", "--protocol", "cline"],
    ] {
        check(
            arguments,
            &json!({"tools": [search, tool]}),
            0,
            &["note: tools: left out: `web_search_20250305`"],
        );
        check(
            arguments,
            &json!({"tools": [search]}),
            2,
            &["no other tool is asked for"],
        );
    }
}

/// Responses as providers send them, each in the form that its API documents.
const RESPONSES: [(&str, &str); 9] = [
    (
        "openai-chat",
        r#"{"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}"#,
    ),
    (
        "openai-chat",
        "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    ),
    (
        "openai-responses",
        r#"{"id": "r", "object": "response", "status": "completed", "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}]}"#,
    ),
    (
        "anthropic",
        r#"{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}"#,
    ),
    (
        "anthropic",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ),
    (
        "gemini",
        r#"{"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}"#,
    ),
    (
        "gemini",
        r#"[{"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}]"#,
    ),
    (
        "ollama",
        "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"hi\"},\"done\":false}\n{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
    ),
    (
        "bedrock",
        r#"{"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn"}"#,
    ),
];

#[test]
fn a_saved_response_is_recognised() {
    let world = World::new();
    for (wire, body) in RESPONSES {
        let (code, out) = pipe(&world, &["wire", "decode", "--output", "json"], body);
        assert_eq!(code, 0, "{wire}: {out}");
        let named = ["wire", "decode", "--output", "json", "--wire", wire];
        assert_eq!(out, pipe(&world, &named, body).1, "{wire}");
        let read: Value = serde_json::from_str(&out).unwrap();
        assert!(read.to_string().contains("hi"), "{wire}: {out}");
        let note = world.piped(&["parse"], body);
        let note = crate::world::stderr(&note);
        assert!(
            note.contains(&format!(
                "a response of the wire {wire}; `sabir wire decode`"
            )),
            "{wire}: {note}"
        );
    }
    let (code, _) = pipe(&world, &["wire", "decode"], "hi there");
    assert_eq!(code, 2);
    assert!(!crate::world::stderr(&world.piped(&["parse"], "hi there")).contains("note"));
}

/// The same tools as OpenAI's API and MCP write them: understood by `parse`, and findings point into the original.
#[test]
fn tools_of_other_apis_are_understood() {
    let world = World::new();
    let schema =
        json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
    let lists = [
        json!([{"type": "function", "function": {"name": "look", "parameters": schema}}]),
        json!({"result": {"tools": [{"name": "look", "inputSchema": schema}]}}),
    ];
    for (list, pointer) in lists.iter().zip(["/0/function", "/result/tools/0"]) {
        let file = world.write("tools.json", &list.to_string());
        let file = file.display().to_string();
        let call = "<look>\n<at>a.rs</at>\n</look>";
        let (code, out) = pipe(&world, &["parse", "--tools", &file], call);
        assert!(code == 0 && out.contains("call look"), "{out}");
        let out = crate::world::stdout(&world.piped(&["lint", &file], ""));
        assert!(out.contains(&format!("#{pointer}")), "{out}");
    }
}
