//! The view: what the model sees of a task, which is the whole history until a compaction leaves the beginning of it out.
//!
//! The history is never changed by it. A compaction puts a head in place of the first messages; going back on it puts back what stood
//! there, message by message, with whatever came since.

use sabir_call::{History, Message, MessagePart, Role};

use super::transcript::message_bytes;
use super::usage::estimate_tokens;
use crate::context::{ContextFragment, RequestContext, fragment};

/// What the model sees, and how much that is.
#[derive(Debug, Default)]
pub(super) struct ContextView {
    /// What is told of the place, and the room there is, as of today.
    pub(super) context: RequestContext,
    /// The fragments in the requests; `None`: nothing was said of them yet.
    prefix: Option<Vec<ContextFragment>>,
    prefix_bytes: usize,
    /// The fragments as the model was last told of them.
    pub(super) announced: Option<Vec<ContextFragment>>,
    /// What stands in place of the history; `None`: all of it is seen.
    compacted: Option<CompactedView>,
    /// What was seen before each compaction.
    snapshots: Vec<ViewSnapshot>,
    /// The bytes of a request, and the tokens that it is known to have.
    pub(super) measured: Option<(usize, u64)>,
    /// What the user said after the first words.
    pub(super) user_texts: Vec<String>,
    /// Compactions in a row that a refused request made necessary.
    pub(super) overflows: u32,
    /// The tokens of a request that was too long.
    pub(super) refused_tokens: Option<u64>,
    /// Whether the user went back on a compaction: then none is made for fullness alone.
    pub(super) auto_compaction_paused: bool,
}

/// A shortened history.
#[derive(Debug, Clone)]
struct CompactedView {
    /// How many messages are left out.
    left_out_messages: usize,
    /// The last piece of the head: the summary.
    summary: String,
    messages: History,
    /// The bytes that are left out, and those that stand for them.
    left_out_bytes: usize,
    head_bytes: usize,
}

/// What was seen when the history had so many messages, the last of them with so many parts.
#[derive(Debug)]
struct ViewSnapshot {
    compacted: Option<CompactedView>,
    messages: usize,
    parts: usize,
}

impl ContextView {
    /// The messages for a request, where they are not the whole history. Shared, not copied.
    pub(super) fn compacted_messages(&self) -> Option<History> {
        self.compacted.as_ref().map(|short| short.messages.clone())
    }

    /// How many messages of the history are left out.
    pub(super) fn left_out_count(&self) -> usize {
        self.compacted
            .as_ref()
            .map_or(0, |short| short.left_out_messages)
    }

    /// The summary of what is left out.
    pub(super) fn summary(&self) -> Option<&str> {
        self.compacted.as_ref().map(|short| short.summary.as_str())
    }

    /// The fragments in the requests.
    pub(super) fn prefix_fragments(&self) -> &[ContextFragment] {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// The bytes of a request, where those with the whole history would be so many.
    pub(super) fn request_bytes(&self, all: usize) -> usize {
        let (gone, head) = self
            .compacted
            .as_ref()
            .map_or((0, 0), |short| (short.left_out_bytes, short.head_bytes));
        all.saturating_add(self.prefix_bytes)
            .saturating_add(head)
            .saturating_sub(gone)
    }

    /// The tokens of a request of so many bytes: as the provider counted the last one, and bytes / 4 of what came since.
    pub(super) fn request_tokens(&self, bytes: usize) -> u64 {
        match self.measured {
            Some((measured, known)) if bytes >= measured => {
                known.saturating_add(estimate_tokens(bytes - measured))
            }
            Some((measured, known)) => {
                let [bytes, measured] =
                    [bytes, measured.max(1)].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
                known.saturating_mul(bytes) / measured
            }
            None => estimate_tokens(bytes),
        }
    }

    /// The tokens of the model's context: what is known of it, and what it was seen to refuse.
    pub(super) fn context_window(&self) -> Option<u64> {
        [self.context.window, self.refused_tokens]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn set_prefix(&mut self, fragments: Vec<ContextFragment>) {
        self.prefix_bytes = fragment::render_fragments(&fragments).len();
        self.prefix = Some(fragments);
    }

    /// Follows the history.
    pub(super) fn push_message(&mut self, message: &Message) {
        if let Some(short) = &mut self.compacted {
            short.messages.push(message.clone());
        }
    }

    /// Follows the history.
    pub(super) fn append_user_part(&mut self, part: &MessagePart) {
        let Some(short) = &mut self.compacted else {
            return;
        };
        match short.messages.last_mut() {
            Some(message) if message.role == Role::User => message.parts.push(part.clone()),
            _ => short.messages.push(Message {
                role: Role::User,
                parts: vec![part.clone()],
            }),
        }
    }

    pub(super) fn compact(&mut self, all: &History, from: usize, head: &[String]) {
        let parts: Vec<_> = head.iter().map(MessagePart::text).collect();
        let head_bytes = head.iter().map(String::len).sum();
        let left = all.iter().take(from).map(message_bytes).sum();
        let kept = all.iter().skip(from).cloned();
        let short = CompactedView {
            left_out_messages: from,
            summary: head.last().cloned().unwrap_or_default(),
            messages: std::iter::once(Message {
                role: Role::User,
                parts,
            })
            .chain(kept)
            .collect(),
            left_out_bytes: left,
            head_bytes,
        };
        let last = all.last().map_or(0, |message| message.parts.len());
        let before = self.compacted.replace(short);
        self.snapshots.push(ViewSnapshot {
            compacted: before,
            messages: all.len(),
            parts: last,
        });
    }

    pub(super) fn undo_compaction(&mut self, all: &History) {
        let Some(ViewSnapshot {
            compacted: short,
            messages,
            parts,
        }) = self.snapshots.pop()
        else {
            return;
        };
        self.compacted = short;
        let last = messages.checked_sub(1).and_then(|at| all.get(at));
        // What was said since may have joined the last message of then.
        for part in last
            .into_iter()
            .flat_map(|message| message.parts.iter().skip(parts))
        {
            self.append_user_part(part);
        }
        for message in all.iter().skip(messages) {
            self.push_message(message);
        }
    }

    /// Whether there is a compaction to go back on.
    pub(super) fn is_compacted(&self) -> bool {
        self.compacted.is_some()
    }
}
