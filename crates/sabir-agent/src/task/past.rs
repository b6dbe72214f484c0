//! The past: the history, with what is asked of it at every turn counted as it grows.
//!
//! A turn looks at what is new alone. A request shares the messages instead of copying them, which ids are taken is a set that is
//! kept, and so is the number of bytes.

use std::collections::HashSet;

use sabir_call::{CallId, History, Message, Part, Role};
use serde_json::{Map, Value};

use super::again::Readings;
use super::view::View;

/// What one picture is taken for, in bytes of text; its true size says nothing about its tokens.
const IMAGE_BYTES: usize = 4000;

/// The history and what is counted of it.
#[derive(Debug, Default)]
pub(super) struct Past {
    messages: History,
    ids: HashSet<CallId>,
    bytes: usize,
    /// What calls have read.
    pub(super) readings: Readings,
    /// What the model sees of it.
    pub(super) view: View,
}

impl Past {
    /// An empty one. `bytes`: those of what goes with it in every request.
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The messages, not copied.
    pub(super) fn shared_past(&self) -> History {
        self.messages.clone()
    }

    /// The messages for a request, not copied.
    pub(super) fn shared(&self) -> History {
        self.view.messages().unwrap_or_else(|| self.messages.clone())
    }

    /// Whether a call of it has that id.
    pub(super) fn has(&self, id: &CallId) -> bool {
        self.ids.contains(id)
    }

    /// The bytes of the text of the next request, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.view.bytes(self.bytes)
    }

    /// From now on so many bytes go with every request, and not so many as before.
    pub(super) fn exchange(&mut self, before: usize, now: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(now);
    }

    /// Adds a message; one without parts is none.
    pub(super) fn push(&mut self, role: Role, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        let message = Message { role, parts };
        self.ids.extend(message.calls().map(|call| call.id.clone()));
        self.count(&message.parts);
        self.view.push(&message);
        self.messages.push(message);
    }

    /// Words for the model, or a picture, joined to the message that is already waiting for it.
    pub(super) fn hear(&mut self, part: Part) {
        self.count(std::slice::from_ref(&part));
        self.view.hear(&part);
        match self.messages.last_mut() {
            Some(message) if message.role == Role::User => message.parts.push(part),
            _ => self.messages.push(Message { role: Role::User, parts: vec![part] }),
        }
    }

    /// Leaves the first messages out of what the model sees, for that head.
    pub(super) fn shorten(&mut self, messages: usize, head: &[String]) {
        self.view.shorten(&self.messages, messages, head);
    }

    /// Goes back on the last [`shorten`](Self::shorten).
    pub(super) fn lengthen(&mut self) {
        self.view.lengthen(&self.messages);
    }

    fn count(&mut self, parts: &[Part]) {
        self.bytes = self.bytes.saturating_add(parts.iter().map(part_bytes).sum());
    }
}

/// The bytes of the text of a message, roughly.
pub(super) fn message_bytes(message: &Message) -> usize {
    message.parts.iter().map(part_bytes).sum()
}

/// Those of a part.
pub(super) fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } | Part::Thought { text, .. } => text.len(),
        Part::Image(_) => IMAGE_BYTES,
        Part::Call(call) => call.name.len() + arguments_bytes(&call.arguments),
        Part::Result(result) => result.content.len() + result.images.len() * IMAGE_BYTES,
        _ => 0,
    }
}

fn arguments_bytes(arguments: &Map<String, Value>) -> usize {
    arguments
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or_else(|| value.to_string().len(), str::len))
        .sum()
}
