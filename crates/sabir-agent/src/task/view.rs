//! The context view: what the model sees of a task, which is the whole history until a compaction
//! leaves out its beginning.
//!
//! The history never changes. A compaction puts a summary in place of the first messages; undoing it
//! restores what was there, message by message, with everything that came since.

use sabir_call::{History, Message, MessagePart, Role};

use super::transcript::message_bytes;
use super::usage::estimate_tokens;
use crate::context::{ContextFragment, RequestContext, fragment};

/// The part of the history that the model sees, with its size.
#[derive(Debug, Default)]
pub(super) struct ContextView {
    /// The present context: the fragments and the size of the window.
    pub(super) context: RequestContext,
    /// The fragments in the requests; `None`: none were announced yet.
    prefix: Option<Vec<ContextFragment>>,
    prefix_bytes: usize,
    /// The fragments as the model last saw them.
    pub(super) announced: Option<Vec<ContextFragment>>,
    /// The shortened history; `None`: all of it is seen.
    compacted: Option<CompactedView>,
    /// The views before each compaction.
    snapshots: Vec<ViewSnapshot>,
    /// The bytes of a measured request and its tokens.
    pub(super) measured: Option<(usize, u64)>,
    /// The user's messages after the first one.
    pub(super) user_texts: Vec<String>,
    /// The compactions in a row that were made because a request was refused.
    pub(super) overflows: u32,
    /// The tokens of a request that was too long.
    pub(super) refused_tokens: Option<u64>,
    /// True after the user undid a compaction. Then a full context causes no compaction.
    pub(super) auto_compaction_paused: bool,
}

/// A shortened history.
#[derive(Debug, Clone)]
struct CompactedView {
    /// The number of messages that are left out.
    left_out_messages: usize,
    /// The summary, which is the last piece of the head.
    summary: String,
    messages: History,
    /// The bytes that are left out; `head_bytes` are those in their place.
    left_out_bytes: usize,
    head_bytes: usize,
}

/// The view at the time of a compaction, when the history had this many messages and the last of
/// them this many parts.
#[derive(Debug)]
struct ViewSnapshot {
    compacted: Option<CompactedView>,
    messages: usize,
    parts: usize,
}

impl ContextView {
    /// Returns the messages for a request if they are not the whole history. They are shared, not
    /// copied.
    pub(super) fn compacted_messages(&self) -> Option<History> {
        self.compacted.as_ref().map(|short| short.messages.clone())
    }

    /// Returns the number of messages that are left out.
    pub(super) fn left_out_count(&self) -> usize {
        self.compacted
            .as_ref()
            .map_or(0, |short| short.left_out_messages)
    }

    /// Returns the summary of what is left out.
    pub(super) fn summary(&self) -> Option<&str> {
        self.compacted.as_ref().map(|short| short.summary.as_str())
    }

    /// Returns the fragments in the requests.
    pub(super) fn prefix_fragments(&self) -> &[ContextFragment] {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// Converts the bytes of a request with the whole history into those of a request with this
    /// view.
    pub(super) fn request_bytes(&self, all: usize) -> usize {
        let (gone, head) = self
            .compacted
            .as_ref()
            .map_or((0, 0), |short| (short.left_out_bytes, short.head_bytes));
        all.saturating_add(self.prefix_bytes)
            .saturating_add(head)
            .saturating_sub(gone)
    }

    /// Estimates the tokens of a request with this many bytes: the provider's count of the last
    /// one, and bytes / 4 for the rest.
    pub(super) fn request_tokens(&self, bytes: usize) -> u64 {
        match self.measured {
            Some((measured, known)) if bytes >= measured => {
                known.saturating_add(estimate_tokens(bytes - measured))
            }
            // The request is shorter than the counted one, so the count is scaled.
            Some((measured, known)) => {
                let [bytes, measured] =
                    [bytes, measured.max(1)].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
                known.saturating_mul(bytes) / measured
            }
            None => estimate_tokens(bytes),
        }
    }

    /// Returns the size of the context window in tokens: the known size, or that of a refused request, if that is less.
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

    /// Adds a message of the history to the view.
    pub(super) fn push_message(&mut self, message: &Message) {
        if let Some(short) = &mut self.compacted {
            short.messages.push(message.clone());
        }
    }

    /// Adds a part of the history's last message to the view.
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
        // The last message may still grow by parts, which an undo must not lose.
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
        // Later text may have been merged into the message that was the last one then.
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

    /// Reports whether there is a compaction to undo.
    pub(super) fn is_compacted(&self) -> bool {
        self.compacted.is_some()
    }
}
