//! The past: the history, with what is asked of it at every turn counted as it grows.
//!
//! A turn looks at what is new alone. A request shares the messages instead of copying them, which ids are taken is a set that is
//! kept, and so is the number of bytes.

use std::collections::HashSet;

use sabir_call::{CallId, History, Message, MessagePart, Role};
use serde_json::{Map, Value};

use super::dedup::ReadDedup;
use super::view::ContextView;

/// What one picture is taken for, in bytes of text; its true size says nothing about its tokens.
const IMAGE_BYTES: usize = 4000;

/// The history and what is counted of it.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    messages: History,
    ids: HashSet<CallId>,
    bytes: usize,
    /// What calls have read.
    pub(super) read_dedup: ReadDedup,
    /// What the model sees of it.
    pub(super) view: ContextView,
}

impl Transcript {
    /// An empty one. `bytes`: those of what goes with it in every request.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The messages, not copied.
    pub(super) fn shared_history(&self) -> History {
        self.messages.clone()
    }

    /// The messages for a request, not copied.
    pub(super) fn request_messages(&self) -> History {
        self.view
            .compacted_messages()
            .unwrap_or_else(|| self.messages.clone())
    }

    /// Whether a call of it has that id.
    pub(super) fn has_call(&self, id: &CallId) -> bool {
        self.ids.contains(id)
    }

    /// The bytes of the text of the next request, roughly.
    pub(super) fn request_bytes(&self) -> usize {
        self.view.request_bytes(self.bytes)
    }

    /// From now on so many bytes go with every request, and not so many as before.
    pub(super) fn replace_fixed_bytes(&mut self, before: usize, now: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(now);
    }

    /// Adds a message; one without parts is none.
    pub(super) fn push_message(&mut self, role: Role, parts: Vec<MessagePart>) {
        if parts.is_empty() {
            return;
        }
        let message = Message { role, parts };
        self.ids.extend(message.calls().map(|call| call.id.clone()));
        self.count_bytes(&message.parts);
        self.view.push_message(&message);
        self.messages.push(message);
    }

    /// Words for the model, or a picture, joined to the message that is already waiting for it.
    pub(super) fn append_user_part(&mut self, part: MessagePart) {
        self.count_bytes(std::slice::from_ref(&part));
        self.view.append_user_part(&part);
        match self.messages.last_mut() {
            Some(message) if message.role == Role::User => message.parts.push(part),
            _ => self.messages.push(Message {
                role: Role::User,
                parts: vec![part],
            }),
        }
    }

    /// Leaves the first messages out of what the model sees, for that head.
    pub(super) fn compact(&mut self, messages: usize, head: &[String]) {
        self.view.compact(&self.messages, messages, head);
    }

    /// Goes back on the last [`compact`](Self::compact).
    pub(super) fn undo_compaction(&mut self) {
        self.view.undo_compaction(&self.messages);
    }

    fn count_bytes(&mut self, parts: &[MessagePart]) {
        self.bytes = self
            .bytes
            .saturating_add(parts.iter().map(part_bytes).sum());
    }
}

/// The bytes of the text of a message, roughly.
pub(super) fn message_bytes(message: &Message) -> usize {
    message.parts.iter().map(part_bytes).sum()
}

/// Those of a part.
pub(super) fn part_bytes(part: &MessagePart) -> usize {
    match part {
        MessagePart::Text { text } | MessagePart::Thought { text, .. } => text.len(),
        MessagePart::Image(_) => IMAGE_BYTES,
        MessagePart::Call(call) => call.name.len() + arguments_bytes(&call.arguments),
        MessagePart::Result(result) => result.content.len() + result.images.len() * IMAGE_BYTES,
        _ => 0,
    }
}

fn arguments_bytes(arguments: &Map<String, Value>) -> usize {
    arguments
        .iter()
        .map(|(name, value)| {
            name.len()
                + value
                    .as_str()
                    .map_or_else(|| value.to_string().len(), str::len)
        })
        .sum()
}
