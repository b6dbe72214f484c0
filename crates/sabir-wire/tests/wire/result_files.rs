//! Documents and addresses of pictures in the results of tools, which follow their results on other wires.

use sabir_call::ToolProtocol;
use sabir_wire::{DecodedRequest, Wire, WireOptions};
use serde_json::{Value, json};

/// A request of a client whose first result has a PDF and whose second one has none.
fn body(wire: Wire) -> (&'static str, Value) {
    let url = "data:application/pdf;base64,JVBERi0=";
    match wire {
        Wire::Anthropic => {
            let source =
                json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="});
            let document = json!({"type": "document", "source": source});
            let call =
                |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
            let results = json!([
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}, document]},
                {"type": "tool_result", "tool_use_id": "b", "content": "two"},
            ]);
            let messages = json!([{"role": "assistant", "content": [call("a"), call("b")]}, {"role": "user", "content": results}]);
            (
                "/v1/messages",
                json!({"model": "m", "max_tokens": 9, "messages": messages}),
            )
        }
        Wire::OpenAiResponses => {
            let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"});
            let file = json!({"type": "input_file", "filename": "a.pdf", "file_data": url});
            let input = json!([
                call("a"), call("b"),
                {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "one"}, file]},
                {"type": "function_call_output", "call_id": "b", "output": "two"},
            ]);
            ("/v1/responses", json!({"model": "m", "input": input}))
        }
        Wire::OpenAiChat => {
            let call = |id: &str| json!({"type": "function", "id": id, "function": {"name": "look", "arguments": "{}"}});
            let file = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}});
            let messages = json!([
                {"role": "assistant", "tool_calls": [call("a"), call("b")]},
                {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}, file]},
                {"role": "tool", "tool_call_id": "b", "content": "two"},
            ]);
            (
                "/v1/chat/completions",
                json!({"model": "m", "messages": messages}),
            )
        }
        _ => {
            let call = |id: &str| json!({"functionCall": {"id": id, "name": "look", "args": {}}});
            let part = json!({"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}});
            let parts = json!([
                {"functionResponse": {"id": "a", "name": "look", "response": {"output": "one"}, "parts": [part]}},
                {"functionResponse": {"id": "b", "name": "look", "response": {"output": "two"}}},
            ]);
            let contents = json!([{"role": "model", "parts": [call("a"), call("b")]}, {"role": "user", "parts": parts}]);
            (
                "/v1beta/models/m:generateContent",
                json!({"contents": contents}),
            )
        }
    }
}

const FRONTS: [Wire; 4] = [
    Wire::Anthropic,
    Wire::OpenAiChat,
    Wire::OpenAiResponses,
    Wire::Gemini,
];

const CAPTION: &str = "[The file of the result of `look`, call a:]";

fn read(wire: Wire, (path, body): (&str, Value)) -> DecodedRequest {
    wire.decode_request_value(path, &body)
        .unwrap_or_else(|error| panic!("{wire}: {error}"))
}

/// Returns the position of each text in the body of a request.
fn positions(sent: &Value, texts: &[&str]) -> Vec<usize> {
    let sent = sent.to_string();
    let find = |text: &&str| sent.find(*text).unwrap_or_else(|| panic!("{text}: {sent}"));
    texts.iter().map(find).collect()
}

#[test]
fn a_document_follows_the_results() {
    for front in FRONTS {
        let decoded = read(front, body(front));
        for back in Wire::ALL {
            let mut request = decoded.request.clone();
            request.model = "gemini-3-pro".to_owned();
            let options = WireOptions::default();
            let checked = back.check_support(&request, &options);
            if back == Wire::Ollama {
                let error = checked.unwrap_err();
                assert!(error.message.contains("takes no documents"), "{error}");
                continue;
            }
            checked.unwrap_or_else(|error| panic!("{front} {back}: {error}"));
            let sent = back.encode_request(&request, &options);
            let found = positions(&sent, &["one", "two", CAPTION, "JVBERi0="]);
            let is_in_order = match back {
                // Its results are items, which other items may separate.
                Wire::OpenAiResponses => found[0] < found[2] && found[2] < found[3],
                _ => found.is_sorted(),
            };
            assert!(is_in_order, "{front} {back}: {sent:#}");
        }
        let mut request = decoded.request;
        request.protocol = ToolProtocol::Prompted("cline".into());
        let error = Wire::OpenAiChat
            .check_support(&request, &WireOptions::default())
            .unwrap_err();
        assert!(
            error.message.contains("described in its prompt")
                && error.message.contains("send its text"),
            "{error}"
        );
    }
}

#[test]
fn documents_of_text_become_text() {
    for front in FRONTS {
        let (path, body) = body(front);
        let text = body
            .to_string()
            .replace("application/pdf", "text/plain")
            .replace("JVBERi0=", "aGVsbG8gd29ybGQ=");
        let decoded = read(front, (path, serde_json::from_str(&text).unwrap()));
        let mut request = decoded.request;
        for protocol in [ToolProtocol::Native, ToolProtocol::Prompted("cline".into())] {
            request.protocol = protocol;
            for back in Wire::ALL {
                let options = WireOptions::default();
                back.check_support(&request, &options)
                    .unwrap_or_else(|error| panic!("{front} {back}: {error}"));
            }
            let result = request.messages.iter().find_map(|message| {
                message.parts.iter().find_map(|part| match part {
                    sabir_call::MessagePart::Result(result) => Some(result.content.as_str()),
                    _ => None,
                })
            });
            let result = result.unwrap();
            assert!(
                result.starts_with("one") && result.ends_with("hello world"),
                "{front}: {result}"
            );
        }
    }
}

#[test]
fn the_address_of_a_picture_follows_its_result() {
    let (path, mut asked) = body(Wire::Anthropic);
    asked["messages"][1]["content"][0]["content"][1] =
        json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}});
    let decoded = read(Wire::Anthropic, (path, asked));
    for back in [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses] {
        let options = WireOptions::default();
        back.check_support(&decoded.request, &options).unwrap();
        let sent = back.encode_request(&decoded.request, &options);
        positions(&sent, &[CAPTION, "https://x/y.png"]);
    }
    let refused = Wire::Gemini.check_support(&decoded.request, &WireOptions::default());
    assert!(refused.unwrap_err().message.contains("by their address"));
}

/// A provider of the same wire gets the client's own body.
#[test]
fn the_same_wire_keeps_files_in_results() {
    for front in FRONTS {
        let (path, body) = body(front);
        let decoded = front.decode_for_same_wire(path, &body).unwrap();
        let sent = front.encode_request(&decoded.request, &WireOptions::default());
        let history = front.history_member();
        assert_eq!(sent[history], body[history], "{front}");
    }
}
