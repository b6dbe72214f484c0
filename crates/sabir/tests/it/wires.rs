//! `wire encode` over real pipes: what would be sent.

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
    let call = json!({"type": "call", "id": "c1", "name": "read_file", "arguments": {"path": "a.rs"}});
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
        assert_eq!((&out["wire"], &out["path"]), (&json!(wire.name()), &json!(wire.endpoint("m-1", true))), "{out}");
        let body = out["body"].to_string();
        for words in ["read_file", "a.rs", "fn a() {}", "Read a.rs.", "iVBORw0KGgo="] {
            assert!(body.contains(words), "{wire}: no {words} in {body}");
        }
        // What one wire wrote, another reads.
        let again = encoded(&world, &["--wire", "anthropic", "--from", wire.name()], &out["body"]);
        assert_eq!(again["body"]["messages"][1]["content"][0]["input"], json!({"path": "a.rs"}), "{wire}: {again}");
        assert!(again["body"].to_string().contains("iVBORw0KGgo="), "{wire}: {again}");
    }
}

#[test]
fn a_prompted_request_has_words_instead_of_tools() {
    let world = World::new();
    let out = encoded(&world, &["--wire", "openai-chat", "--protocol", "cline", "--model", "other"], &request());
    let body = &out["body"];
    assert_eq!((&body["model"], body.get("tools")), (&json!("other"), None));
    assert!(body["messages"][0]["content"].as_str().unwrap().contains("<read_file>"), "{body}");
    assert!(body["messages"][2]["content"].as_str().unwrap().contains("<path>a.rs</path>"), "{body}");
    let shown = &body["messages"][3]["content"];
    assert!(shown[0]["text"].as_str().unwrap().contains("fn a() {}"), "{body}");
    assert_eq!(shown[1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgo=", "{body}");
}

#[test]
fn what_is_no_request_is_told() {
    let world = World::new();
    let check = |arguments: &[&str], input: &str, words: &[&str]| {
        let output = world.piped(&[&["wire", "encode"], arguments].concat(), input);
        let error = crate::world::stderr(&output);
        assert_eq!(crate::world::code(&output), 2, "{error}");
        for word in words {
            assert!(error.contains(word), "no {word} in {error}");
        }
    };
    check(&["--wire", "smoke"], "{}", &["`smoke`", "anthropic", "openai-chat"]);
    check(&["--wire", "anthropic"], "{\"messages\": [], \"color\": 1}", &["color", "line 1"]);
    check(&["--wire", "anthropic"], "", &["standard input"]);
    let misplaced = |role: &str, part: Value| json!({"messages": [{"role": role, "parts": [part]}]}).to_string();
    let image = json!({"type": "image", "media_type": "image/png", "data": "AA"});
    let result = json!({"type": "result", "id": "c", "name": "f", "ending": "done", "content": "x"});
    let call = json!({"type": "call", "id": "c", "name": "f", "arguments": {}});
    check(&["--wire", "gemini"], &misplaced("assistant", image), &["messages[0].parts[0]", "an image", "user"]);
    check(&["--wire", "openai-chat"], &misplaced("assistant", result), &["a result", "user"]);
    check(&["--wire", "ollama"], &misplaced("user", call), &["a call", "assistant"]);
    check(&["--wire", "ollama"], &misplaced("user", json!({"type": "thought", "text": "x"})), &["a thought"]);
    check(&["--wire", "anthropic", "--protocol", "clyne"], "{\"messages\": []}", &["`clyne`", "cline"]);
    check(
        &["--wire", "anthropic", "--from", "openai-chat"],
        "{\"messages\": [{\"role\": \"x\"}]}",
        &["messages[0].role"],
    );
}
