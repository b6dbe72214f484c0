//! Defines the event stream that every dialect and every wire produces.
//!
//! Bytes from a provider pass through a wire, then (for text) a dialect, and become events; the
//! checks read the events. Code behind the events does not need to know how a call was written. The
//! table below is the whole contract: parsers emit these events,
//! [`DraftResponse`](crate::DraftResponse) and the task machine consume them.
//!
//! | event | carries | promise |
//! | --- | --- | --- |
//! | `Source` | a delta of raw assistant text | only where a dialect is read: everything the model wrote, emitted before the events that were read from it |
//! | `Text` | a delta of prose | concatenated: the words outside calls and thoughts, byte for byte |
//! | `Thought` | a delta of reasoning | never prose; only calls in special tokens are read out of reasoning |
//! | `Mark` | a [`MarkupSpan`] | a piece of markup and its role, for diagnostics such as `sabir explain`; the role `PromptedThought` says that the text before it was a thought |
//! | `CallStart` | index, id, name, dialect, at, name_at | opens call `index`; indexes count 0, 1, 2 … within one response; the name is final |
//! | `ArgStart` | index, name, form, at | opens one argument of an open call; arguments of one call never overlap |
//! | `ArgDelta` | index, text | a piece of the value: decoded text for `Raw` and `String`, source text for `Json` |
//! | `ArgEnd` | index, lead, at | closes the argument; `lead` goes before its deltas (see below) |
//! | `CallEnd` | index, at | the call was properly closed; the checks decide whether it runs |
//! | `CallCut` | index, why, at | the call was opened and never properly closed; it never runs |
//! | `Fault` | a [`Fault`] | a mistake and its position; with severity `error` it stops the call that it names |
//! | `Usage` | a [`Usage`] | tokens of this response so far; a later event replaces the fields it carries |
//! | `Stop` | reason, raw | the provider's reason for stopping; never proof that a call is complete |
//! | `Opaque` | an [`OpaqueState`] | provider state that must be sent back unchanged, at this position |
//!
//! * Each call gets exactly one `CallStart` and exactly one of `CallEnd` and `CallCut`. Calls may
//!   interleave (native parallel calls do); `index` identifies the call.
//! * Events are deltas and never carry accumulated text. A delta is never empty. The split of a
//!   text into deltas may depend on the chunks; after merging adjacent deltas, nothing else does.
//! * `lead`: a raw value that begins with a line feed may turn out to be *wrapped*: a line feed
//!   after the opening tag and another before the closing tag, both dropped. Only the closing tag
//!   shows which. The first line feed is therefore held back, and `ArgEnd` returns it where it
//!   belongs to the value: value = `lead` + deltas.
//! * Positions (`at`, spans) are byte offsets into the assistant text of this response, counted
//!   after invalid UTF-8 was replaced by U+FFFD. In a native call they count within the call's
//!   argument text.

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Span};
use crate::message::OpaqueState;

/// One event of a response. Borrows from the chunk wherever possible, so copies are cheap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A delta of the raw assistant text. Positions in all other events count in it.
    Source {
        /// The piece; never empty.
        text: &'a str,
        /// True if the provider delivered it as reasoning, apart from the text.
        is_thought: bool,
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
    /// A piece of markup and the role that the reader gave it.
    Mark(MarkupSpan<'a>),
    /// The start of a call.
    CallStart {
        /// The call's number: 0, 1, 2 … within one response, whatever label the provider used.
        index: u32,
        /// The provider's id, if it sent one.
        id: Option<&'a str>,
        /// The tool's name as written; no tool may have it.
        name: &'a str,
        /// The dialect's name; `None` for a native call.
        dialect: Option<&'a str>,
        /// Offset of the first byte of the call.
        at: usize,
        /// Offset of the first byte of the name; 0 in a native call, whose name is not part of the
        /// text.
        name_at: usize,
    },
    /// The start of an argument.
    ArgStart {
        /// The call.
        index: u32,
        /// The argument's name as written; the tool may not have it.
        name: &'a str,
        /// The encoding of the deltas.
        form: ArgumentEncoding,
        /// Offset of the value's first byte.
        at: usize,
    },
    /// A piece of the open argument of this call.
    ArgDelta {
        /// The call.
        index: u32,
        /// The piece; never empty.
        text: &'a str,
    },
    /// The end of the open argument.
    ArgEnd {
        /// The call.
        index: u32,
        /// Text that goes before the first delta: empty, `"\n"` or `"\r\n"`.
        lead: &'a str,
        /// Offset just past the value's last byte.
        at: usize,
    },
    /// The proper end of a call.
    CallEnd {
        /// The call.
        index: u32,
        /// Offset just past the call's last byte.
        at: usize,
    },
    /// The end of a call that was never closed.
    CallCut {
        /// The call.
        index: u32,
        /// The cause.
        why: Truncation,
        /// Offset at which it ended.
        at: usize,
    },
    /// A mistake in the response.
    Fault(&'a Fault),
    /// Token counts so far.
    Usage(Usage),
    /// The provider's reason for stopping.
    Stop {
        /// The reason as one of Sabir's values.
        reason: StopReason,
        /// The reason as the provider wrote it.
        raw: &'a str,
    },
    /// Provider state that must be sent back unchanged.
    Opaque(&'a OpaqueState),
}

/// A piece of markup and the role that the reader gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MarkupSpan<'a> {
    /// The role of the markup.
    pub role: MarkupRole,
    /// The dialect that it belongs to, if known.
    pub dialect: Option<&'a str>,
    /// Its position in the assistant text.
    pub span: Span,
    /// The confidence of the reader in the role.
    pub sure: Certainty,
    /// The reason, in a few words.
    pub rule: &'static str,
}

/// The role of a piece of markup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkupRole {
    /// Opens a call; the next event is its `CallStart`.
    Call,
    /// Encloses calls.
    Wrapper,
    /// Opens a thought.
    Thought,
    /// Closes a thought.
    #[serde(rename = "thought")]
    ThoughtEnd,
    /// Closes a thought that the prompt opened: all text before it was part of the thought.
    PromptedThought,
    /// Looks like a call but is only mentioned.
    Mention,
    /// Looks like the end of a value or a call but is content.
    Content,
}

impl MarkupRole {
    /// Returns true if a thought follows the markup, and false if the markup ends one; `None` if it does neither.
    pub fn is_in_thought(self) -> Option<bool> {
        match self {
            Self::Thought => Some(true),
            Self::ThoughtEnd | Self::PromptedThought => Some(false),
            Self::Call | Self::Wrapper | Self::Mention | Self::Content => None,
        }
    }
}

/// The confidence of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The dialect was chosen by name, or the marker is a special token that has no other meaning.
    Certain,
    /// The marker could be prose, but the text after it is a call.
    Likely,
    /// Only the shape and position of the text suggest a call (JSON at the end of a message).
    Guess,
}

/// The encoding of an argument's deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentEncoding {
    /// Text whose type only the schema knows (XML dialects): `10` may mean a string or a number.
    Raw,
    /// A value written as a string; escapes are decoded.
    String,
    /// The source text of a JSON value that is not a string.
    Json,
}

/// The cause that ended a call before it was closed.
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

/// The reason that a provider gives for stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model finished its message.
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The output limit was reached.
    Length,
    /// A stop sequence of the request occurred.
    Sequence,
    /// The model or the provider refused.
    Refused,
    /// The provider paused a long turn; sending the conversation again continues it.
    Paused,
    /// A reason that Sabir does not know; see `raw`.
    Other,
}

/// Token counts of one response. A field is `None` where the provider reported nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Total input tokens, including cached ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Total output tokens, including reasoning.
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
    /// Replaces every field that `later` carries.
    pub fn update(&mut self, later: Self) {
        // Providers report totals of the response, so a later count replaces an earlier one.
        let take = |field: &mut Option<u64>, value: Option<u64>| *field = value.or(*field);
        take(&mut self.input, later.input);
        take(&mut self.output, later.output);
        take(&mut self.cache_read, later.cache_read);
        take(&mut self.cache_write, later.cache_write);
        take(&mut self.reasoning, later.reasoning);
    }

    /// Adds the tokens of another response; a field unknown in both stays unknown.
    pub fn add(&mut self, other: Self) {
        let sum = |field: &mut Option<u64>, value: Option<u64>| {
            // Unknown plus known is the known part, so a sum over many responses is a lower bound.
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

/// A consumer of events. Any `FnMut(Event)` is one.
pub trait EventSink {
    /// Consumes the next event.
    fn push_event(&mut self, event: Event<'_>);
}

impl<F: FnMut(Event<'_>)> EventSink for F {
    fn push_event(&mut self, event: Event<'_>) {
        self(event);
    }
}
