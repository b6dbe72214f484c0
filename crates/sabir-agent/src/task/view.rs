//! The view: what the model sees of a task, which is the whole history until a compaction leaves the beginning of it out.
//!
//! The history is never changed by it. A compaction puts a head in place of the first messages; going back on it puts back what stood
//! there, message by message, with whatever came since.

use sabir_call::{History, Message, Part, Role};

use super::charge::tokens;
use super::past::message_bytes;
use crate::context::{Context, Fragment, fragment};

/// What the model sees, and how much that is.
#[derive(Debug, Default)]
pub(super) struct View {
    /// What is told of the place, and the room there is, as of today.
    pub(super) context: Context,
    /// The fragments in the requests; `None`: nothing was said of them yet.
    prefix: Option<Vec<Fragment>>,
    prefix_bytes: usize,
    /// The fragments as the model was last told of them.
    pub(super) told: Option<Vec<Fragment>>,
    /// What stands in place of the history; `None`: all of it is seen.
    short: Option<Short>,
    /// What was seen before each compaction.
    before: Vec<Snapshot>,
    /// The bytes of a request, and the tokens that it is known to have.
    pub(super) measured: Option<(usize, u64)>,
    /// What the user said after the first words.
    pub(super) words: Vec<String>,
    /// Compactions in a row that a refused request made necessary.
    pub(super) overflows: u32,
    /// The tokens of a request that was too long.
    pub(super) refused: Option<u64>,
    /// Whether the user went back on a compaction: then none is made for fullness alone.
    pub(super) held: bool,
}

/// A shortened history.
#[derive(Debug, Clone)]
struct Short {
    /// How many messages are left out.
    from: usize,
    /// The last piece of the head: the summary.
    summary: String,
    messages: History,
    /// The bytes that are left out, and those that stand for them.
    gone: usize,
    head: usize,
}

/// What was seen when the history had so many messages, the last of them with so many parts.
#[derive(Debug)]
struct Snapshot {
    short: Option<Short>,
    messages: usize,
    parts: usize,
}

impl View {
    /// The messages for a request, where they are not the whole history. Shared, not copied.
    pub(super) fn messages(&self) -> Option<History> {
        self.short.as_ref().map(|short| short.messages.clone())
    }

    /// How many messages of the history are left out.
    pub(super) fn from(&self) -> usize {
        self.short.as_ref().map_or(0, |short| short.from)
    }

    /// The summary of what is left out.
    pub(super) fn summary(&self) -> Option<&str> {
        self.short.as_ref().map(|short| short.summary.as_str())
    }

    /// The fragments in the requests.
    pub(super) fn prefix(&self) -> &[Fragment] {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// The bytes of a request, where those with the whole history would be so many.
    pub(super) fn bytes(&self, all: usize) -> usize {
        let (gone, head) = self.short.as_ref().map_or((0, 0), |short| (short.gone, short.head));
        all.saturating_add(self.prefix_bytes).saturating_add(head).saturating_sub(gone)
    }

    /// The tokens of a request of so many bytes: as the provider counted the last one, and bytes / 4 of what came since.
    pub(super) fn tokens(&self, bytes: usize) -> u64 {
        match self.measured {
            Some((measured, known)) if bytes >= measured => known.saturating_add(tokens(bytes - measured)),
            Some((measured, known)) => {
                let [bytes, measured] = [bytes, measured.max(1)].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
                known.saturating_mul(bytes) / measured
            }
            None => tokens(bytes),
        }
    }

    /// The tokens of the model's context: what is known of it, and what it was seen to refuse.
    pub(super) fn window(&self) -> Option<u64> {
        [self.context.window, self.refused].into_iter().flatten().min()
    }

    pub(super) fn set_prefix(&mut self, fragments: Vec<Fragment>) {
        self.prefix_bytes = fragment::words(&fragments).len();
        self.prefix = Some(fragments);
    }

    /// Follows the history.
    pub(super) fn push(&mut self, message: &Message) {
        if let Some(short) = &mut self.short {
            short.messages.push(message.clone());
        }
    }

    /// Follows the history.
    pub(super) fn hear(&mut self, part: &Part) {
        let Some(short) = &mut self.short else { return };
        match short.messages.last_mut() {
            Some(message) if message.role == Role::User => message.parts.push(part.clone()),
            _ => short.messages.push(Message { role: Role::User, parts: vec![part.clone()] }),
        }
    }

    pub(super) fn shorten(&mut self, all: &History, from: usize, head: &[String]) {
        let parts: Vec<_> = head.iter().map(Part::text).collect();
        let head_bytes = head.iter().map(String::len).sum();
        let left = all.iter().take(from).map(message_bytes).sum();
        let kept = all.iter().skip(from).cloned();
        let short = Short {
            from,
            summary: head.last().cloned().unwrap_or_default(),
            messages: std::iter::once(Message { role: Role::User, parts }).chain(kept).collect(),
            gone: left,
            head: head_bytes,
        };
        let last = all.last().map_or(0, |message| message.parts.len());
        let before = self.short.replace(short);
        self.before.push(Snapshot { short: before, messages: all.len(), parts: last });
    }

    pub(super) fn lengthen(&mut self, all: &History) {
        let Some(Snapshot { short, messages, parts }) = self.before.pop() else { return };
        self.short = short;
        let last = messages.checked_sub(1).and_then(|at| all.get(at));
        // What was said since may have joined the last message of then.
        for part in last.into_iter().flat_map(|message| message.parts.iter().skip(parts)) {
            self.hear(part);
        }
        for message in all.iter().skip(messages) {
            self.push(message);
        }
    }

    /// Whether there is a compaction to go back on.
    pub(super) fn is_short(&self) -> bool {
        self.short.is_some()
    }
}
