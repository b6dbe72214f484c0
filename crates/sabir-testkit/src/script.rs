//! Defines the scripts of a scripted provider: its replies and its faults, also as JSON files.

use std::fmt;
use std::sync::Arc;

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{
    ArgumentEncoding, Call, CallId, DraftResponse, Event, EventSink, OpaqueState, StopReason,
    ToolSet, ToolSpec, Usage, json_type_name,
};
use sabir_wire::{ProviderError, ResponseEncoder, ResponseMetadata, Wire, replay_draft};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::scripted_provider::ReceivedRequest;

/// A script that chooses the reply to each request.
#[derive(Clone)]
pub struct ReplyScript {
    /// Chooses the replies.
    choose: Arc<ReplyChooser>,
    /// True if requests may hold what the common form has no place for.
    pub(crate) takes_any_body: bool,
}

/// A function from the number of earlier requests, and the request, to the reply.
type ReplyChooser = dyn Fn(usize, &ReceivedRequest) -> ProviderReply + Send + Sync;

/// A reply of the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderReply {
    /// The parts of the response, in order.
    pub say: Vec<ReplyPart>,
    /// The stop reason. With `None` it is calls if there are any, else a normal end.
    pub stop: Option<StopReason>,
    /// The token counts of the response.
    pub usage: Usage,
    /// The maximum number of bytes of one delta; 0 means undivided.
    pub delta: usize,
    /// The split of the body's bytes on the network.
    pub chunks: ChunkSplit,
    /// The pause between two chunks, in milliseconds.
    pub pause: u64,
    /// A text that the request must contain; otherwise it is answered with an error.
    pub expects: Option<String>,
    /// The dialect in which calls are written as text; with `None` they are native calls of the
    /// wire.
    pub dialect: Option<String>,
    /// The fault to simulate.
    pub trouble: Option<ScriptedFault>,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum ReplyPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Thought {
        /// The text.
        text: String,
        /// The signature, on the wire that has one.
        #[serde(default)]
        signature: Option<String>,
    },
    /// A call.
    Call {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
}

/// The split of a body into chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkSplit {
    /// One chunk.
    #[default]
    Whole,
    /// Chunks of this many bytes.
    Size(usize),
    /// Chunks of 1 to 64 bytes, chosen by a seed.
    Random(u64),
}

/// A fault of the provider or the connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedFault {
    /// Nothing is sent, and the connection stays open.
    StallBeforeHeaders,
    /// The body stops after this many bytes; the connection stays open.
    StallAfter(usize),
    /// After this many bytes only comments are sent, one every 5 ms.
    PingAfter(usize),
    /// The connection is closed after this many bytes of the body, in the middle of the transfer.
    CutAfter(usize),
    /// Like `CutAfter`, after half of the body.
    CutHalf,
    /// The connection is reset after this many bytes of the body.
    ResetAfter(usize),
    /// The transfer ends properly after this many bytes of the body.
    EndAfter(usize),
    /// After this many bytes of the body a transfer chunk is announced; half of it is sent before
    /// the connection is closed.
    TruncateAfter(usize),
    /// After the body's events and before its end, comments are sent as fast as the client reads
    /// them.
    Flood,
    /// The whole body is sent, and the connection stays open.
    NeverClose,
    /// An error response.
    Status {
        /// The status.
        status: u16,
        /// Further headers.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// The body; empty: an error body of the wire.
        #[serde(default)]
        body: String,
    },
    /// This body with status 200 and this content type; without one, the header is missing.
    Body {
        /// The content type.
        content_type: Option<String>,
        /// The body.
        body: String,
    },
    /// An error event after the parts, in place of the end.
    Error {
        /// The code, such as `overloaded_error`.
        code: String,
        /// The error message.
        message: String,
    },
    /// The last event (`[DONE]`, `message_stop`) is missing.
    NoLastEvent,
}

impl fmt::Debug for ReplyScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyScript")
    }
}

impl ReplyScript {
    /// Creates a script with one reply after the other. Further requests get status 500.
    pub fn new(replies: impl IntoIterator<Item = ProviderReply>) -> Self {
        let replies: Vec<_> = replies.into_iter().collect();
        Self::from_fn(move |turn, _| {
            replies.get(turn).cloned().unwrap_or_else(|| {
                ProviderReply::error_status(500).with_body("the script is at its end")
            })
        })
    }

    /// Creates a script from a function of the number of earlier requests and the request.
    pub fn from_fn(
        choose: impl Fn(usize, &ReceivedRequest) -> ProviderReply + Send + Sync + 'static,
    ) -> Self {
        Self {
            choose: Arc::new(choose),
            takes_any_body: false,
        }
    }

    /// Accepts requests as the wire's own provider does, including members that other wires cannot
    /// express.
    #[must_use]
    pub fn with_any_body(mut self) -> Self {
        self.takes_any_body = true;
        self
    }

    /// Parses a JSON list of replies, such as `[{"say": [{"type": "text", "text": "hi"}], "chunks":
    /// {"size": 7}}]`.
    ///
    /// # Errors
    /// The JSON is invalid or has unknown members; the error names line and column.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::new(serde_json::from_str::<Vec<ProviderReply>>(text)?))
    }

    /// Returns the reply to a request.
    pub(crate) fn reply_to(&self, turn: usize, request: &ReceivedRequest) -> ProviderReply {
        (self.choose)(turn, request)
    }
}

impl ProviderReply {
    /// Creates a reply with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            say: vec![ReplyPart::Text { text: text.into() }],
            ..Self::default()
        }
    }

    /// Creates an error response.
    pub fn error_status(status: u16) -> Self {
        let trouble = ScriptedFault::Status {
            status,
            headers: Vec::new(),
            body: String::new(),
        };
        Self {
            trouble: Some(trouble),
            ..Self::default()
        }
    }

    /// Adds a call.
    #[must_use]
    pub fn with_call(mut self, id: &str, name: &str, arguments: Value) -> Self {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        self.say.push(ReplyPart::Call {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
        });
        self
    }

    /// Adds reasoning.
    #[must_use]
    pub fn with_thought(mut self, text: &str, signature: Option<&str>) -> Self {
        self.say.push(ReplyPart::Thought {
            text: text.to_owned(),
            signature: signature.map(str::to_owned),
        });
        self
    }

    /// Adds a header to an error response.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Some(ScriptedFault::Status { headers, .. }) = &mut self.trouble {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body of an error response.
    #[must_use]
    pub fn with_body(mut self, text: &str) -> Self {
        if let Some(ScriptedFault::Status { body, .. }) = &mut self.trouble {
            text.clone_into(body);
        }
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn with_fault(mut self, trouble: ScriptedFault) -> Self {
        self.trouble = Some(trouble);
        self
    }

    /// Splits the body into chunks.
    #[must_use]
    pub fn in_chunks(mut self, chunks: ChunkSplit) -> Self {
        self.chunks = chunks;
        self
    }

    /// Splits the parts into deltas of at most `size` bytes.
    #[must_use]
    pub fn in_deltas(mut self, size: usize) -> Self {
        self.delta = size;
        self
    }

    /// Writes calls as text in this dialect.
    #[must_use]
    pub fn in_dialect(mut self, name: &str) -> Self {
        self.dialect = Some(name.to_owned());
        self
    }

    /// Returns the reply as a draft.
    pub fn to_draft(&self) -> DraftResponse {
        let mut draft = DraftResponse::default();
        let mut index = 0;
        let spelled = self
            .dialect
            .as_deref()
            .and_then(|name| DialectSet::built_in().find(name))
            .map(|dialect| render_calls_as_text(dialect, &self.say));
        for say in spelled.as_ref().unwrap_or(&self.say) {
            match say {
                ReplyPart::Text { text } => draft.push_event(Event::Text { text }),
                ReplyPart::Thought { text, signature } => {
                    draft.push_event(Event::Thought { text });
                    if let Some(signature) = signature {
                        let data = json!({"type": "thinking", "signature": signature});
                        draft.push_event(Event::Opaque(&OpaqueState {
                            wire: Wire::Anthropic.name().to_owned(),
                            origin: None,
                            data,
                        }));
                    }
                }
                ReplyPart::Call {
                    id,
                    name,
                    arguments,
                } => {
                    draft.push_event(Event::CallStart {
                        index,
                        id: Some(id),
                        name,
                        dialect: None,
                        at: 0,
                        name_at: 0,
                    });
                    for (name, value) in arguments {
                        let (form, text) = match value {
                            Value::String(text) => (ArgumentEncoding::String, text.clone()),
                            other => (ArgumentEncoding::Json, other.to_string()),
                        };
                        draft.push_event(Event::ArgStart {
                            index,
                            name,
                            form,
                            at: 0,
                        });
                        draft.push_event(Event::ArgDelta { index, text: &text });
                        draft.push_event(Event::ArgEnd {
                            index,
                            lead: "",
                            at: 0,
                        });
                    }
                    draft.push_event(Event::CallEnd { index, at: 0 });
                    index += 1;
                }
            }
        }
        // As real providers do, a response with calls stops for them unless the script sets another
        // reason.
        let reason = if index > 0 {
            StopReason::Calls
        } else {
            StopReason::End
        };
        draft.push_event(Event::Stop {
            reason: self.stop.unwrap_or(reason),
            raw: "",
        });
        draft.push_event(Event::Usage(self.usage));
        draft
    }

    /// Encodes the reply as a stream.
    pub fn encode_stream(&self, wire: Wire, head: ResponseMetadata) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = ResponseEncoder::new(wire, head);
        replay_draft(&self.to_draft(), self.delta, &mut |event: Event<'_>| {
            encoder.encode_event(event, &mut bytes)
        });
        if let Some(ScriptedFault::Error { code, message }) = &self.trouble {
            // An error replaces the end of the stream.
            encoder.encode_error_event(
                &ProviderError::reported(code.as_str(), message.as_str()),
                &mut bytes,
            );
            return bytes;
        }
        encoder.finish(&mut bytes);
        if self.trouble == Some(ScriptedFault::NoLastEvent) {
            // The encoders write the end in one event, so the last one is it.
            bytes.truncate(last_event(&bytes));
        }
        bytes
    }

    /// Encodes the reply as one body.
    pub fn encode_body(&self, wire: Wire, head: &ResponseMetadata) -> Vec<u8> {
        wire.encode_response(head, &self.to_draft())
            .to_string()
            .into_bytes()
    }
}

/// Replaces calls by text. A run of calls is rendered at once, since a dialect may enclose them
/// together.
fn render_calls_as_text(dialect: &Dialect, say: &[ReplyPart]) -> Vec<ReplyPart> {
    let is_call = |say: &ReplyPart| matches!(say, ReplyPart::Call { .. });
    say.chunk_by(|one, other| is_call(one) && is_call(other))
        .flat_map(|run| {
            let calls: Vec<_> = run.iter().filter_map(as_call).collect();
            if calls.is_empty() {
                return run.to_vec();
            }
            // A set refuses a name twice, and a run may call one tool several times.
            let tools =
                calls
                    .iter()
                    .map(tool_of)
                    .fold(Vec::new(), |mut tools: Vec<ToolSpec>, tool| {
                        if tools.iter().all(|known| known.name != tool.name) {
                            tools.push(tool);
                        }
                        tools
                    });
            let tools = ToolSet::new(tools).unwrap_or_default();
            vec![ReplyPart::Text {
                text: format!("\n{}", dialect.render_calls(&calls, &tools)),
            }]
        })
        .collect()
}

/// Converts a part to a call, if it is one.
fn as_call(say: &ReplyPart) -> Option<Call> {
    let ReplyPart::Call {
        id,
        name,
        arguments,
    } = say
    else {
        return None;
    };
    Some(Call {
        id: CallId::new(id),
        name: name.clone(),
        arguments: arguments.clone(),
        dialect: None,
    })
}

/// Returns a tool with exactly the arguments of a call, which the dialect needs to render it.
fn tool_of(call: &Call) -> ToolSpec {
    let properties: Map<_, _> = call
        .arguments
        .iter()
        .map(|(name, value)| (name.clone(), json!({"type": json_type_name(value)})))
        .collect();
    ToolSpec::new(
        &call.name,
        "",
        json!({"type": "object", "properties": properties}),
    )
}

/// Returns the offset of the last event of a body: a block before a blank line, or a line.
pub(crate) fn last_event(bytes: &[u8]) -> usize {
    let blank = |window: &[u8]| window == b"\n\n";
    let (rest, width) = match bytes.strip_suffix(b"\n\n") {
        Some(rest) => (rest, 2),
        None => (bytes.strip_suffix(b"\n").unwrap_or(bytes), 1),
    };
    let found = if width == 2 {
        rest.windows(2).rposition(blank)
    } else {
        rest.iter().rposition(|byte| *byte == b'\n')
    };
    found.map_or(0, |at| at + width)
}

impl ChunkSplit {
    /// Splits bytes into chunks.
    pub fn split_bytes(self, bytes: &[u8]) -> Vec<&[u8]> {
        let mut state = match self {
            Self::Whole => return vec![bytes],
            Self::Size(size) => return bytes.chunks(size.max(1)).collect(),
            Self::Random(seed) => seed,
        };
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            // A linear congruential generator is enough here, and the same on every platform.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let size = usize::try_from((state >> 33) % 64 + 1).unwrap_or(1);
            let (piece, tail) = rest.split_at(size.min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_parsed_from_json() {
        let file = include_str!("../sdk/script.json");
        let lists: std::collections::HashMap<String, Vec<ProviderReply>> =
            serde_json::from_str(file).unwrap();
        assert_eq!(lists["busy"].len(), 2);
        assert!(
            ReplyScript::from_json(
                r#"[{"say": []}, {"trouble": "no_last_event"}, {"trouble": {"cut_after": 9}}]"#
            )
            .is_ok()
        );
        assert!(ReplyScript::from_json(r#"[{"sya": []}]"#).is_err());
    }

    #[test]
    fn a_run_of_calls_becomes_text() {
        let reply = ProviderReply::text("Both.")
            .with_call("1", "now", json!({}))
            .with_call("2", "look", json!({"path": "a"}));
        let draft = reply.in_dialect("cline").to_draft();
        assert_eq!(draft.calls().count(), 0);
        assert_eq!(
            draft.text(),
            "Both.\n<now>\n</now>\n<look>\n<path>a</path>\n</look>"
        );
    }

    #[test]
    fn the_last_event_is_found_on_any_wire() {
        for (body, expected) in [
            ("a\n\nb\nc\n\n", "a\n\n"),
            ("{}\n{}\n", "{}\n"),
            ("{}\n", ""),
            ("", ""),
        ] {
            assert_eq!(body.get(..last_event(body.as_bytes())), Some(expected));
        }
    }

    #[test]
    fn random_chunks_are_the_same_for_the_same_seed() {
        let bytes = [7_u8; 500];
        let pieces = ChunkSplit::Random(5).split_bytes(&bytes);
        assert_eq!(pieces.concat(), bytes);
        assert_eq!(pieces, ChunkSplit::Random(5).split_bytes(&bytes));
        assert!(pieces.iter().all(|piece| (1..=64).contains(&piece.len())));
    }
}
