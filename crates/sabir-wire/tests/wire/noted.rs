//! Notes on what a request loses: failed results, cache marks with a time, blocks of a system
//! prompt; and comments in streams.

use sabir_call::{Request, ToolProtocol};
use sabir_wire::{
    DecodedRequest, ResponseDecoder, ResponseEncoder, ResponseMetadata, Wire, WireOptions,
};
use serde_json::{Value, json};

fn read(body: &Value) -> DecodedRequest {
    Wire::Anthropic
        .decode_request("/v1/messages", body.to_string().as_bytes())
        .unwrap()
}

fn with_system(system: Value) -> DecodedRequest {
    read(
        &json!({"model": "m", "max_tokens": 9, "system": system, "messages": [{"role": "user", "content": "hi"}]}),
    )
}

#[test]
fn failed_results_are_noted_where_unsupported() {
    let result = |id: &str, failed: bool| json!({"type": "tool_result", "tool_use_id": id, "is_error": failed, "content": "no such file"});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let request =
        read(&json!({"model": "m", "max_tokens": 9, "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [call("a"), call("b")]},
            {"role": "user", "content": [result("a", true), result("b", false)]}]}))
        .request;
    let told = |request: &Request, back: Wire| {
        let notes = back
            .check_support(request, &WireOptions::default())
            .unwrap();
        notes.into_iter().any(|note| {
            note.message.contains("`is_error`") && note.message.contains("text of 1 can")
        })
    };
    let prompted = Request {
        protocol: ToolProtocol::Prompted("cline".into()),
        ..request.clone()
    };
    for back in Wire::ALL {
        let asked = back
            .encode_request(&request, &WireOptions::default())
            .to_string();
        let said = ["\"is_error\":true", "\"status\":\"error\"", "{\"error\":"]
            .iter()
            .any(|word| asked.contains(word));
        assert_eq!(told(&request, back), !said, "{back}: {asked}");
        assert!(!told(&prompted, back), "{back}");
    }
}

#[test]
fn lost_marks_and_blocks_are_noted() {
    let block = |text: &str| json!({"type": "text", "text": text});
    let marked = |ttl: Value| {
        let mut block = block("be brief");
        block["cache_control"] = json!({"type": "ephemeral", "ttl": ttl});
        json!([block])
    };
    let check = |system: Value, expected: &[&str]| {
        let incoming = with_system(system);
        let paths: Vec<_> = incoming
            .notes
            .iter()
            .map(|note| note.path.as_str())
            .collect();
        assert_eq!(paths, expected, "{:?}", incoming.notes);
    };
    check(json!("be brief"), &[]);
    check(json!([block("be brief")]), &[]);
    check(marked(json!("5m")), &[]);
    check(marked(json!("1h")), &["cache_control.ttl"]);
    check(json!([block("be"), block("brief")]), &["system"]);
    let result = json!([{"type": "tool_result", "tool_use_id": "a", "content": "x",
        "cache_control": {"type": "ephemeral", "ttl": "1h"}}]);
    let incoming = read(
        &json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": result}]}),
    );
    assert_eq!(incoming.notes[0].path, "cache_control.ttl");
}

#[test]
fn comments_in_streams_are_skipped() {
    for wire in Wire::ALL {
        let play = |remark: bool| {
            let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
            let mut bytes = Vec::new();
            encoder.encode_event(sabir_call::Event::Text { text: "hi" }, &mut bytes);
            if remark {
                encoder.encode_comment("sabir-report", "leaked_call=1", &mut bytes);
            }
            encoder.finish(&mut bytes);
            let mut draft = sabir_call::DraftResponse::default();
            let mut decoder = ResponseDecoder::new(wire);
            decoder.push(&bytes, &mut draft);
            let report = decoder.finish(sabir_wire::BodyEnd::Clean, &mut draft);
            assert!(report.ended && report.unreadable == 0, "{wire}");
            (
                draft.text(),
                String::from_utf8_lossy(&bytes).contains("leaked_call=1"),
            )
        };
        assert_eq!(play(false), ("hi".to_owned(), false), "{wire}");
        assert_eq!(
            play(true),
            ("hi".to_owned(), wire != Wire::Bedrock),
            "{wire}"
        );
    }
}
