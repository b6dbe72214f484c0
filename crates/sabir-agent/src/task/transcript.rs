//! The transcript: the history of a task, with ids and sizes counted as it grows.
//!
//! A turn looks only at what is new. A request shares the messages instead of copying them; the set
//! of used ids and the number of bytes are kept up to date.

use std::collections::HashSet;

use sabir_call::{CallId, History, Message, MessagePart, Role};
use serde_json::{Map, Value};

use super::dedup::ReadDedup;
use super::view::ContextView;

/// The bytes of text that one image counts for. Its true size says nothing about its tokens.
const IMAGE_BYTES: usize = 4000;

/// The history with its counts.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    messages: History,
    ids: HashSet<CallId>,
    bytes: usize,
    /// The results of reading calls, to find repetitions.
    pub(super) read_dedup: ReadDedup,
    /// The part of the history that the model sees.
    pub(super) view: ContextView,
}

impl Transcript {
    /// Creates an empty transcript. `bytes` is the size of what goes with it in every request.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the messages without copying them.
    pub(super) fn shared_history(&self) -> History {
        self.messages.clone()
    }

    /// Returns the messages for a request without copying them.
    pub(super) fn request_messages(&self) -> History {
        self.view
            .compacted_messages()
            .unwrap_or_else(|| self.messages.clone())
    }

    /// Reports whether the model was given this character to read, in a result or in a description of
    /// the workspace.
    pub(super) fn was_read(&self, c: char) -> bool {
        let in_part = |part: &MessagePart| match part {
            MessagePart::Result(result) => result.content.contains(c),
            _ => false,
        };
        let messages = self.request_messages();
        messages
            .iter()
            .any(|message| message.parts.iter().any(in_part))
            || self
                .view
                .prefix_fragments()
                .iter()
                .any(|fragment| fragment.text.contains(c))
    }

    /// Reports whether a call in the history has that id.
    pub(super) fn has_call(&self, id: &CallId) -> bool {
        self.ids.contains(id)
    }

    /// Estimates the text of the next request, in bytes.
    pub(super) fn request_bytes(&self) -> usize {
        self.view.request_bytes(self.bytes)
    }

    /// Replaces the size of the parts that are in every request.
    pub(super) fn replace_fixed_bytes(&mut self, before: usize, now: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(now);
    }

    /// Adds a message, unless it has no parts.
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

    /// Adds a text or an image for the model to the message that already waits for it, or as a new
    /// message.
    pub(super) fn append_user_part(&mut self, part: MessagePart) {
        self.count_bytes(std::slice::from_ref(&part));
        self.view.append_user_part(&part);
        match self.messages.last_mut() {
            // Some providers expect the roles to alternate, so two user messages in a row become
            // one.
            Some(message) if message.role == Role::User => message.parts.push(part),
            _ => self.messages.push(Message {
                role: Role::User,
                parts: vec![part],
            }),
        }
    }

    /// Replaces the first messages with `head` in what the model sees.
    pub(super) fn compact(&mut self, messages: usize, head: &[String]) {
        self.view.compact(&self.messages, messages, head);
    }

    /// Undoes the last [`compact`](Self::compact).
    pub(super) fn undo_compaction(&mut self) {
        self.view.undo_compaction(&self.messages);
    }

    fn count_bytes(&mut self, parts: &[MessagePart]) {
        self.bytes = self
            .bytes
            .saturating_add(parts.iter().map(part_bytes).sum());
    }
}

/// Estimates the text of a message, in bytes.
pub(super) fn message_bytes(message: &Message) -> usize {
    message.parts.iter().map(part_bytes).sum()
}

/// Estimates the text of a part, in bytes.
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
