//! Measures encoding a request with a long history, which happens anew each turn.

use divan::counter::BytesCount;
use sabir_call::{Call, CallId, CallResult, Message, MessagePart, Request, Role, ToolResultStatus};
use sabir_wire::{Wire, WireOptions};
use serde_json::json;

/// The number of turns of each history.
const TURNS: [usize; 3] = [50, 500, 2000];

fn main() {
    divan::main();
}

/// Builds a history with a call and its result each turn, as if files were read.
fn request(turns: usize) -> Request {
    let mut messages = vec![Message::user("Look.")];
    for turn in 0..turns {
        let id = CallId::new(format!("call_{turn}"));
        let arguments = json!({"path": format!("src/file_{turn}.rs")})
            .as_object()
            .cloned()
            .unwrap_or_default();
        let call = Call {
            id: id.clone(),
            name: "read_file".to_owned(),
            arguments,
            dialect: None,
        };
        let content = format!("{turn:>6} | let line = \"of a file\";\n").repeat(12);
        let result = CallResult {
            id,
            name: call.name.clone(),
            ending: ToolResultStatus::Done,
            content,
            images: Vec::new(),
        };
        messages.push(Message {
            role: Role::Assistant,
            parts: vec![MessagePart::text("I look."), MessagePart::Call(call)],
        });
        messages.push(Message {
            role: Role::User,
            parts: vec![MessagePart::Result(result)],
        });
    }
    Request {
        model: "m".to_owned(),
        messages: messages.into(),
        ..Request::default()
    }
}

/// Encodes the body as it is sent.
fn written(wire: Wire, request: &Request) -> Vec<u8> {
    serde_json::to_vec(&wire.encode_request(request, &WireOptions::default())).unwrap_or_default()
}

fn write(bencher: divan::Bencher<'_, '_>, wire: Wire, turns: usize) {
    let request = request(turns);
    let bytes = written(wire, &request).len();
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| written(wire, &request));
}

#[divan::bench(args = TURNS)]
fn anthropic(bencher: divan::Bencher<'_, '_>, turns: usize) {
    write(bencher, Wire::Anthropic, turns);
}

#[divan::bench(args = TURNS)]
fn openai_chat(bencher: divan::Bencher<'_, '_>, turns: usize) {
    write(bencher, Wire::OpenAiChat, turns);
}

#[divan::bench(args = TURNS)]
fn openai_responses(bencher: divan::Bencher<'_, '_>, turns: usize) {
    write(bencher, Wire::OpenAiResponses, turns);
}

#[divan::bench(args = TURNS)]
fn gemini(bencher: divan::Bencher<'_, '_>, turns: usize) {
    write(bencher, Wire::Gemini, turns);
}
