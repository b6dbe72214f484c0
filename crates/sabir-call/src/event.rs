//! The contract: one stream of events for every spelling of a call.
//!
//! Bytes from a provider go wire → (text) dialect → events → gates. Past the events nobody needs to know how a call was
//! spelled. The table is the whole contract; parsers emit it, [`DraftResponse`](crate::DraftResponse) and the task machine read it.
//!
//! | event | carries | promise |
//! | --- | --- | --- |
//! | `Source` | a delta of raw assistant text | where a dialect is read: everything the model wrote, ahead of the events read from it |
//! | `Text` | a delta of prose | concatenated: the words outside calls and thoughts, byte for byte |
//! | `Thought` | a delta of reasoning | never prose; of calls only those in special tokens are read out of it |
//! | `Mark` | a [`MarkupSpan`] | markup, and what the reader took it for: for whoever wants to know why (`sabir explain`) |
//! | `CallStart` | index, id, name, dialect, at, name_at | opens call `index`; indexes count 0, 1, 2 … within one response; the name is final |
//! | `ArgStart` | index, name, form, at | opens one argument of an open call; arguments of one call never overlap |
//! | `ArgDelta` | index, text | a piece of the value: decoded text for `Raw` and `String`, source text for `Json` |
//! | `ArgEnd` | index, lead, at | closes the argument; `lead` goes before its deltas (see below) |
//! | `CallEnd` | index, at | the call was properly closed; the gates decide whether it runs |
//! | `CallCut` | index, why, at | the call was opened and never properly closed; it never runs (law 3) |
//! | `Fault` | a [`Fault`] | what was wrong, where; with severity `error` it stops the call that it names |
//! | `Usage` | a [`Usage`] | tokens of this response so far; a later event replaces the fields it carries |
//! | `Stop` | reason, raw | why the provider says it stopped; never proof that a call is whole |
//! | `Opaque` | an [`OpaqueState`] | provider state that must go back unchanged, in this place |
//!
//! * Each call gets exactly one `CallStart` and exactly one of `CallEnd` and `CallCut`. Calls may interleave (native
//!   parallel calls do); `index` says which is meant.
//! * Events are deltas and never carry accumulated text. A delta is never empty. How a text is split into deltas may
//!   depend on the chunks; once adjacent deltas are merged, nothing else may (law 1).
//! * `lead`: a raw value that begins with a line feed may turn out to be *wrapped* (a line feed after the opening tag
//!   and one before the closing tag, both dropped). That is known only at the close. The first line feed is therefore
//!   held until then, and `ArgEnd` carries it where it did belong to the value: value = `lead` + deltas.
//! * Positions (`at`, spans) are byte offsets into the assistant text of this response, counted after invalid UTF-8 was
//!   replaced by U+FFFD. In a native call they count within the call's argument text.

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Span};
use crate::message::OpaqueState;

/// One event. Borrowed from the chunk wherever possible, hence cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A delta of the raw assistant text, for diagnostics: positions count in it.
    Source {
        /// The piece; never empty.
        text: &'a str,
    },
    /// A delta of prose.
    Text {
        /// The piece; never empty.
        text: &'a str,
    },
    /// A delta of reasoning.
    Thought {
        /// The piece; never empty.
        text: &'a str,
    },
    /// Markup was understood.
    Mark(MarkupSpan<'a>),
    /// A call opens.
    CallStart {
        /// Counts 0, 1, 2 … within one response, whatever label the provider used.
        index: u32,
        /// The provider's id, if it sent one.
        id: Option<&'a str>,
        /// The tool's name as written; it may be unknown.
        name: &'a str,
        /// The dialect's name; `None` for a native call.
        dialect: Option<&'a str>,
        /// Offset of the first byte of the call.
        at: usize,
        /// Offset of the first byte of the name; 0 in a native call, whose name stands outside of the text.
        name_at: usize,
    },
    /// An argument opens.
    ArgStart {
        /// The call.
        index: u32,
        /// The argument's name as written; it may be unknown.
        name: &'a str,
        /// How the deltas are to be read.
        form: ArgForm,
        /// Offset of the value's first byte.
        at: usize,
    },
    /// A piece of the argument that is open in this call.
    ArgDelta {
        /// The call.
        index: u32,
        /// The piece; never empty.
        text: &'a str,
    },
    /// The open argument ends.
    ArgEnd {
        /// The call.
        index: u32,
        /// Text that belongs before the first delta: empty, `"\n"` or `"\r\n"`.
        lead: &'a str,
        /// Offset just past the value's last byte.
        at: usize,
    },
    /// The call was properly closed.
    CallEnd {
        /// The call.
        index: u32,
        /// Offset just past the call's last byte.
        at: usize,
    },
    /// The call will never be closed.
    CallCut {
        /// The call.
        index: u32,
        /// What ended it.
        why: Truncation,
        /// Offset at which it ended.
        at: usize,
    },
    /// Something was wrong.
    Fault(&'a Fault),
    /// Tokens so far.
    Usage(Usage),
    /// The provider's reason for stopping.
    Stop {
        /// The reason, in our words.
        reason: StopReason,
        /// The provider's own word.
        raw: &'a str,
    },
    /// Provider state to be sent back.
    Opaque(&'a OpaqueState),
}

/// A piece of markup, and what it was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MarkupSpan<'a> {
    /// What it was taken for.
    pub role: MarkupRole,
    /// The dialect that it belongs to, where that is known.
    pub dialect: Option<&'a str>,
    /// Where it stands.
    pub span: Span,
    /// How sure the reader is of it.
    pub sure: Certainty,
    /// Why, in a few words.
    pub rule: &'static str,
}

/// What markup was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkupRole {
    /// Opens a call; the next event is its `CallStart`.
    Call,
    /// Stands around calls.
    Wrapper,
    /// Opens or closes a thought.
    Thought,
    /// Looks like a call, and is only mentioned.
    Mention,
    /// Looks like the end of a value or a call, and is content.
    Content,
}

/// How sure the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The dialect was chosen, or the marker is a special token that is nothing else.
    Certain,
    /// The marker could be words, but what follows it is a call's.
    Likely,
    /// Only the shape and the place of the text say so (JSON at the end of a message).
    Guess,
}

/// How the deltas of an argument are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgForm {
    /// Text whose type only the schema knows (XML dialects): `10` may mean a string or a number.
    Raw,
    /// A string that was written as such; escapes are decoded.
    String,
    /// The source text of a JSON value that is no string.
    Json,
}

/// What ended a call that was never closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncation {
    /// The message ended inside the call.
    Ended,
    /// The output limit was reached inside the call.
    Limit,
    /// The stream broke (connection lost, error event, idle limit).
    Broken,
    /// The user cancelled.
    Cancelled,
}

/// Why a provider stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model was finished.
    End,
    /// The model waits for the results of calls.
    Calls,
    /// The output limit.
    Length,
    /// A stop sequence of the request.
    Sequence,
    /// The model or the provider refused.
    Refused,
    /// The provider paused a long turn; asking again continues it.
    Paused,
    /// A word that Sabir does not know; see `raw`.
    Other,
}

/// Tokens of one response. A field is absent where the provider said nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens in all, cached ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output tokens in all, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Input tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Input tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Output tokens spent on reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

impl Usage {
    /// Takes over every field that `later` carries.
    pub fn update(&mut self, later: Self) {
        let take = |field: &mut Option<u64>, value: Option<u64>| *field = value.or(*field);
        take(&mut self.input, later.input);
        take(&mut self.output, later.output);
        take(&mut self.cache_read, later.cache_read);
        take(&mut self.cache_write, later.cache_write);
        take(&mut self.reasoning, later.reasoning);
    }

    /// Adds another response's tokens; a field unknown in both stays unknown.
    pub fn add(&mut self, other: Self) {
        let sum = |field: &mut Option<u64>, value: Option<u64>| {
            if let Some(value) = value {
                *field = Some(field.unwrap_or(0).saturating_add(value));
            }
        };
        sum(&mut self.input, other.input);
        sum(&mut self.output, other.output);
        sum(&mut self.cache_read, other.cache_read);
        sum(&mut self.cache_write, other.cache_write);
        sum(&mut self.reasoning, other.reasoning);
    }
}

/// Whoever takes events. Any `FnMut(Event)` is one.
pub trait EventSink {
    /// Takes the next event.
    fn push_event(&mut self, event: Event<'_>);
}

impl<F: FnMut(Event<'_>)> EventSink for F {
    fn push_event(&mut self, event: Event<'_>) {
        self(event);
    }
}
