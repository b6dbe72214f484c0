//! Tracks the value that is being read: its first and last line feed, and its possible closing tag.
//!
//! Models put a value on its own lines. A value that begins and ends with a line feed loses exactly
//! that pair, which is known only at the end. So the first one is remembered, and one that may be
//! the last is held back.

use super::ambiguity::PrecedingTag;

/// The value that is being read.
#[derive(Debug)]
pub(super) struct ValueState {
    /// The closing tag's name.
    pub(super) close: Box<str>,
    pub(super) phase: ValuePhase,
    /// The arguments opened and not yet closed inside the value, with counts.
    inner: Option<Box<NestedNames>>,
    /// The nesting depth of complete examples of a call.
    pub(super) depth: u32,
    /// The number of opening tags in the value that no closing tag in it has followed.
    pub(super) unclosed_opens: u32,
    /// The line feed at the start of the value.
    pub(super) lead: LineFeed,
    /// A line feed that is held back because it may be the last of the value.
    pub(super) pending: LineFeed,
    /// The preceding tag, if only white space has followed it.
    pub(super) before: PrecedingTag,
    /// True if a tool's name may follow a call's opening tag.
    pub(super) named: bool,
    /// The last byte of the value that was emitted.
    pub(super) last_byte: u8,
    /// The byte before the closing tag that is held back.
    pub(super) before_close: u8,
}

/// Names with the number of times that each was opened.
#[derive(Debug, Default)]
struct NestedNames {
    names: Vec<(Box<str>, usize)>,
}

/// A line feed, or a part of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LineFeed {
    #[default]
    None,
    Line,
    Return,
    Both,
}

impl LineFeed {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Line => "\n",
            Self::Return => "\r",
            Self::Both => "\r\n",
        }
    }

    /// Returns the line feed at the start of `text`.
    pub(super) fn parse_leading(text: &str) -> Self {
        match text.as_bytes() {
            [b'\n', ..] => Self::Line,
            [b'\r', b'\n', ..] => Self::Both,
            _ => Self::None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuePhase {
    /// Before the first byte.
    Start,
    /// In a CDATA section.
    Section,
    /// Behind a CDATA section.
    AfterSection,
    /// In the value.
    Body,
    /// After a closing tag at that offset, which is held back together with a line feed of that
    /// length.
    Closing(usize, u8),
}

/// Returns true for the quotation marks of code.
pub(super) fn is_quote(byte: u8) -> bool {
    matches!(byte, b'\'' | b'"' | b'`')
}

impl ValueState {
    /// Creates the state for a value. `exact` is true if a line feed at its start has no meaning, as in a JSON value.
    pub(super) fn new(close: &str, exact: bool, named: bool) -> Self {
        let phase = if exact {
            ValuePhase::Body
        } else {
            ValuePhase::Start
        };
        Self {
            close: close.into(),
            phase,
            lead: LineFeed::None,
            pending: LineFeed::None,
            depth: 0,
            unclosed_opens: 0,
            inner: None,
            before: PrecedingTag::Nothing,
            named,
            last_byte: 0,
            before_close: 0,
        }
    }

    /// Remembers the byte before a closing tag; `run` is the text before it that was not emitted yet.
    pub(super) fn note_before_close(&mut self, run: &str) {
        self.before_close = self.byte_before(run);
    }

    /// Returns the byte before a tag; `run` is the text before it that was not emitted yet.
    pub(super) fn byte_before(&self, run: &str) -> u8 {
        let pending = self.pending.as_str().as_bytes();
        let last = run.as_bytes().last().or(pending.last());
        last.copied().unwrap_or(self.last_byte)
    }

    /// Returns true if the closing tag that is held back is between two quotation marks of a kind.
    pub(super) fn is_close_quoted(&self, after: &str) -> bool {
        is_quote(self.before_close) && after.as_bytes().first() == Some(&self.before_close)
    }

    /// Returns the length of the line feed at the end of `text` that would pair with the one at the
    /// start of the value.
    pub(super) fn trailing_feed_len(&self, text: &str) -> u8 {
        match self.lead {
            LineFeed::Both if text.ends_with("\r\n") => 2,
            // Both line feeds of a pair must be of the same kind.
            LineFeed::Line if text.ends_with('\n') && !text.ends_with("\r\n") => 1,
            _ => 0,
        }
    }

    /// Splits off the final line feed that must be held back.
    pub(super) fn split_pending<'t>(&self, text: &'t str) -> (&'t str, LineFeed) {
        let pending = match self.undecided_len(text) {
            0 => return (text, LineFeed::None),
            2 => LineFeed::Both,
            _ if text.ends_with('\r') => LineFeed::Return,
            _ => LineFeed::Line,
        };
        (
            text.get(..text.len() - pending.as_str().len())
                .unwrap_or_default(),
            pending,
        )
    }

    /// Returns the length of the text at the end of a chunk that must be held back because it may
    /// become that line feed.
    pub(super) fn undecided_len(&self, text: &str) -> usize {
        match self.lead {
            LineFeed::None => 0,
            _ if text.ends_with("\r\n") => 2,
            _ if text.ends_with('\n') || text.ends_with('\r') => 1,
            _ => 0,
        }
    }

    /// Records that an argument's tag opens inside the value.
    pub(super) fn open_inner(&mut self, name: &str) {
        let inner = &mut self.inner.get_or_insert_default().names;
        match inner.iter_mut().find(|(inner, _)| **inner == *name) {
            Some((_, count)) => *count += 1,
            None => inner.push((name.into(), 1)),
        }
    }

    /// Records that an argument's tag closes inside the value. Returns false if it was not opened
    /// there.
    pub(super) fn close_inner(&mut self, name: &str) -> bool {
        let opened = |(inner, count): &&mut (Box<str>, usize)| **inner == *name && *count > 0;
        match self
            .inner
            .iter_mut()
            .flat_map(|inner| &mut inner.names)
            .find(opened)
        {
            Some((_, count)) => {
                *count -= 1;
                true
            }
            None => false,
        }
    }

    /// Tracks text between two tags.
    pub(super) fn track_text(&mut self, text: &str) {
        for byte in text.bytes() {
            let blank = byte.is_ascii_whitespace();
            let name = byte.is_ascii_alphanumeric()
                || matches!(byte, b'_' | b'-' | b'.' | b':')
                || !byte.is_ascii();
            self.before = match self.before {
                // Nothing to track until the next tag; most text is skipped here.
                PrecedingTag::Nothing => return,
                PrecedingTag::Naming if blank => PrecedingTag::Named,
                PrecedingTag::Open | PrecedingTag::Naming if name && self.named => {
                    PrecedingTag::Naming
                }
                before if blank => before,
                _ => PrecedingTag::Nothing,
            };
        }
    }
}
