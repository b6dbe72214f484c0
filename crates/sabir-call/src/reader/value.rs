//! The value that is being read: its first and last line feed, and the closing tag that may end it.
//!
//! Models put a value on lines of its own. A value that begins and ends with a line feed loses exactly that pair, which is
//! known only at the end: the first one is remembered, and one that may be the last waits for what follows it.

use super::ambiguity::PrecedingTag;

/// The value that is being read.
#[derive(Debug)]
pub(super) struct ValueState {
    /// The closing tag's name.
    pub(super) close: Box<str>,
    pub(super) phase: ValuePhase,
    /// Arguments opened inside the value and not closed there, with how often.
    inner: Option<Box<NestedNames>>,
    /// How many complete examples of a call we are in.
    pub(super) depth: u32,
    /// The line feed that the value began with.
    pub(super) lead: LineFeed,
    /// A line feed that has not gone out yet, because it may be the last of the value.
    pub(super) pending: LineFeed,
    /// The tag before, if only white space has followed it.
    pub(super) before: PrecedingTag,
    /// A tool's name may stand behind a call's opening tag.
    pub(super) named: bool,
}

/// Names with how often each was opened.
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

    /// The whole line feed at the start of `text`.
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
    /// In the value.
    Body,
    /// Behind a closing tag at that offset, which is held behind so many bytes of line feed.
    Closing(usize, u8),
}

impl ValueState {
    /// In JSON text, where the argument's tag says so, a line feed at the start means nothing.
    pub(super) fn new(close: &str, json: bool, named: bool) -> Self {
        let phase = if json { ValuePhase::Body } else { ValuePhase::Start };
        let (lead, pending) = (LineFeed::None, LineFeed::None);
        Self { close: close.into(), phase, lead, pending, depth: 0, inner: None, before: PrecedingTag::Nothing, named }
    }

    /// Length of the line feed at the end of `text` that would pair with the one at the start of the value.
    pub(super) fn trailing_feed_len(&self, text: &str) -> u8 {
        match self.lead {
            LineFeed::Both if text.ends_with("\r\n") => 2,
            LineFeed::Line if text.ends_with('\n') && !text.ends_with("\r\n") => 1,
            _ => 0,
        }
    }

    /// Splits off the line feed at the end that must wait for what follows.
    pub(super) fn split_pending<'t>(&self, text: &'t str) -> (&'t str, LineFeed) {
        let pending = match self.undecided_len(text) {
            0 => return (text, LineFeed::None),
            2 => LineFeed::Both,
            _ if text.ends_with('\r') => LineFeed::Return,
            _ => LineFeed::Line,
        };
        (text.get(..text.len() - pending.as_str().len()).unwrap_or_default(), pending)
    }

    /// Length of what must wait at the end of a chunk because it may become that line feed.
    pub(super) fn undecided_len(&self, text: &str) -> usize {
        match self.lead {
            LineFeed::None => 0,
            _ if text.ends_with("\r\n") => 2,
            _ if text.ends_with('\n') || text.ends_with('\r') => 1,
            _ => 0,
        }
    }

    /// An argument's tag opens inside the value.
    pub(super) fn open_inner(&mut self, name: &str) {
        let inner = &mut self.inner.get_or_insert_default().names;
        match inner.iter_mut().find(|(inner, _)| **inner == *name) {
            Some((_, count)) => *count += 1,
            None => inner.push((name.into(), 1)),
        }
    }

    /// An argument's tag closes inside the value. False: it was not opened there.
    pub(super) fn close_inner(&mut self, name: &str) -> bool {
        let opened = |(inner, count): &&mut (Box<str>, usize)| **inner == *name && *count > 0;
        match self.inner.iter_mut().flat_map(|inner| &mut inner.names).find(opened) {
            Some((_, count)) => {
                *count -= 1;
                true
            }
            None => false,
        }
    }

    /// Takes note of text between two tags.
    pub(super) fn track_text(&mut self, text: &str) {
        for byte in text.bytes() {
            let blank = byte.is_ascii_whitespace();
            let name = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':') || !byte.is_ascii();
            self.before = match self.before {
                PrecedingTag::Nothing => return,
                PrecedingTag::Naming if blank => PrecedingTag::Named,
                PrecedingTag::Open | PrecedingTag::Naming if name && self.named => PrecedingTag::Naming,
                before if blank => before,
                _ => PrecedingTag::Nothing,
            };
        }
    }
}
