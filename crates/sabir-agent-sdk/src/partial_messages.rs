//! Builds the stream events of answers that are still being written, for programs that ask for partial messages.

use sabir_session::StreamEvent;
use sabir_session::agent::AssistantTurn;
use sabir_session::call::MessagePart;
use serde_json::{Value, json};

use crate::messages::{CallNames, NamedCall, stop_reason, usage_json};

/// The kinds of blocks that are streamed. Calls follow as a whole, once their arguments are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thought,
}

/// Turns the pieces of one answer after the other into events of the Messages API.
#[derive(Debug, Default)]
pub(crate) struct PartialMessages {
    is_started: bool,
    open: Option<BlockKind>,
    /// The number of blocks that were begun.
    blocks: u32,
}

impl PartialMessages {
    /// Returns the events for a piece of the answer.
    pub(crate) fn add_piece(&mut self, piece: &StreamEvent, model: &str) -> Vec<Value> {
        let (kind, text) = match piece {
            StreamEvent::Text { text } => (BlockKind::Text, text),
            StreamEvent::Thought { text } => (BlockKind::Thought, text),
            _ => return Vec::new(),
        };
        let mut events = self.start(model);
        if self.open != Some(kind) {
            events.extend(self.close_block());
            let block = match kind {
                BlockKind::Text => json!({"type": "text", "text": ""}),
                BlockKind::Thought => json!({"type": "thinking", "thinking": "", "signature": ""}),
            };
            events.push(self.open_block(&block));
            self.open = Some(kind);
        }
        let delta = match kind {
            BlockKind::Text => json!({"type": "text_delta", "text": text}),
            BlockKind::Thought => json!({"type": "thinking_delta", "thinking": text}),
        };
        let index = self.blocks - 1;
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events
    }

    /// Returns the events that end an answer: its calls, its stop reason and its tokens.
    pub(crate) fn finish(
        &mut self,
        turn: &AssistantTurn,
        model: &str,
        names: &CallNames,
    ) -> Vec<Value> {
        let mut events = self.start(model);
        events.extend(self.close_block());
        for part in &turn.parts {
            let MessagePart::Call(call) = part else {
                continue;
            };
            let NamedCall { name, input } = names.name_call(call);
            let block = json!({"type": "tool_use", "id": call.id, "name": name, "input": {}});
            events.push(self.open_block(&block));
            let index = self.blocks - 1;
            // In one piece: the names of the arguments change once the call is complete.
            let delta = json!({"type": "input_json_delta", "partial_json": input.to_string()});
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let delta = json!({"stop_reason": stop_reason(turn.stop), "stop_sequence": null});
        let usage = usage_json(&turn.usage);
        events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
        events.push(json!({"type": "message_stop"}));
        *self = Self::default();
        events
    }

    /// Returns the events that end an answer that broke off; none if no part of it was shown.
    pub(crate) fn abandon(&mut self) -> Vec<Value> {
        let mut events: Vec<_> = self.close_block().into_iter().collect();
        if self.is_started {
            events.push(json!({"type": "message_stop"}));
        }
        *self = Self::default();
        events
    }

    fn start(&mut self, model: &str) -> Vec<Value> {
        // With the first piece and not with the request, which may fail and be sent again.
        if std::mem::replace(&mut self.is_started, true) {
            return Vec::new();
        }
        let message = json!({
            "id": "msg_partial", "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0},
        });
        vec![json!({"type": "message_start", "message": message})]
    }

    fn open_block(&mut self, block: &Value) -> Value {
        let index = self.blocks;
        self.blocks += 1;
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn close_block(&mut self) -> Option<Value> {
        self.open.take()?;
        Some(json!({"type": "content_block_stop", "index": self.blocks - 1}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(events: &[Value]) -> Vec<&str> {
        events
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn blocks_are_opened_and_closed_in_order() {
        let mut partial = PartialMessages::default();
        let thought = StreamEvent::Thought {
            text: "hm".to_owned(),
        };
        let text = StreamEvent::Text {
            text: "hello".to_owned(),
        };
        let mut events = partial.add_piece(&thought, "m");
        events.extend(partial.add_piece(&text, "m"));
        events.extend(partial.add_piece(&text, "m"));
        events.extend(partial.abandon());
        assert_eq!(
            kinds(&events),
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_stop",
            ]
        );
        assert_eq!(events[4]["index"], 1);
        // The next answer starts from the beginning.
        assert_eq!(kinds(&partial.add_piece(&text, "m"))[0], "message_start");
        assert_eq!(PartialMessages::default().abandon(), [Value::Null; 0]);
    }
}
