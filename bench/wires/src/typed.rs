//! The decode that a typed client does: server-sent events, each parsed into structs of the documented fields that own their
//! text. What is not documented is an error, so this reads less than [`sabir_wire::Decoder`] does, and finds no calls.

use std::hint::black_box;

use sabir_wire::Wire;
use sabir_wire::sse::{SseDecoder, SseEvent};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A chunk of OpenAI Chat Completions.
#[derive(Deserialize)]
#[expect(dead_code, reason = "a typed client has the fields, whoever reads them")]
struct Chunk {
    id: String,
    object: String,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    usage: Option<Tokens>,
    system_fingerprint: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "likewise")]
struct Choice {
    index: u32,
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "likewise")]
struct Delta {
    role: Option<String>,
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "likewise")]
struct ToolCall {
    index: u32,
    id: Option<String>,
    r#type: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "likewise")]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "likewise")]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// An event of Anthropic Messages.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "likewise")]
enum Message {
    MessageStart { message: serde_json::Value },
    ContentBlockStart { index: u32, content_block: serde_json::Value },
    ContentBlockDelta { index: u32, delta: Piece },
    ContentBlockStop { index: u32 },
    MessageDelta { delta: serde_json::Value, usage: serde_json::Value },
    MessageStop {},
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "likewise")]
enum Piece {
    TextDelta { text: String },
    ThinkingDelta { thinking: String },
    InputJsonDelta { partial_json: String },
    SignatureDelta { signature: String },
}

/// Decodes a body in chunks of so many bytes. `None`: there is no typed decode of that wire here.
pub(crate) fn decode(wire: Wire, body: &[u8], size: usize) -> Option<()> {
    match wire {
        Wire::Anthropic => events::<Message>(body, size),
        Wire::OpenAiChat => events::<Chunk>(body, size),
        _ => return None,
    }
    Some(())
}

fn events<T: DeserializeOwned>(body: &[u8], size: usize) {
    let mut decoder = SseDecoder::new();
    for chunk in body.chunks(size) {
        decoder.push(chunk, &mut |event| {
            if let SseEvent::Message { data, .. } = event
                && data != "[DONE]"
            {
                black_box(serde_json::from_str::<T>(data).ok());
            }
        });
    }
}
