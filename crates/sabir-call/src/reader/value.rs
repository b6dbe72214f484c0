//! The value that is being read: its first and last line feed, and the closing tag that may end it.
//!
//! Models put a value on lines of its own. A value that begins and ends with a line feed loses exactly that pair, which is
//! known only at the end: the first one is remembered, and one that may be the last waits for what follows it.

use super::doubt::Before;

/// The value that is being read.
#[derive(Debug)]
pub(super) struct Value {
    /// The closing tag's name.
    pub(super) close: String,
    pub(super) phase: Phase,
    /// The line feed that the value began with.
    pub(super) lead: &'static str,
    /// A line feed that has not gone out yet, because it may be the last of the value.
    pub(super) pending: &'static str,
    /// How many complete examples of a call we are in.
    pub(super) depth: u32,
    /// Arguments opened inside the value and not closed there, with how often.
    pub(super) inner: Vec<(String, usize)>,
    /// The tag before, if only white space has followed it.
    pub(super) before: Before,
    /// A tool's name may stand behind a call's opening tag.
    pub(super) named: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the first byte.
    Start,
    /// In the value.
    Body,
    /// Behind a closing tag at that offset, which is held behind so many bytes of line feed.
    Closing(usize, usize),
}

impl Value {
    /// In JSON text, where the argument's tag says so, a line feed at the start means nothing.
    pub(super) fn new(close: String, json: bool, named: bool) -> Self {
        let phase = if json { Phase::Body } else { Phase::Start };
        Self { close, phase, lead: "", pending: "", depth: 0, inner: Vec::new(), before: Before::Nothing, named }
    }

    /// Length of the line feed at the end of `text` that would pair with the one at the start of the value.
    pub(super) fn trailing(&self, text: &str) -> usize {
        let pairs = match self.lead {
            "\r\n" => text.ends_with("\r\n"),
            "\n" => text.ends_with('\n') && !text.ends_with("\r\n"),
            _ => false,
        };
        if pairs { self.lead.len() } else { 0 }
    }

    /// Splits off the line feed at the end that must wait for what follows.
    pub(super) fn split_pending<'t>(&self, text: &'t str) -> (&'t str, &'static str) {
        let pending = match self.undecided(text) {
            0 => return (text, ""),
            2 => "\r\n",
            _ if text.ends_with('\r') => "\r",
            _ => "\n",
        };
        (text.get(..text.len() - pending.len()).unwrap_or_default(), pending)
    }

    /// Length of what must wait at the end of a chunk because it may become that line feed.
    pub(super) fn undecided(&self, text: &str) -> usize {
        match self.lead {
            "" => 0,
            _ if text.ends_with("\r\n") => 2,
            _ if text.ends_with('\n') || text.ends_with('\r') => 1,
            _ => 0,
        }
    }

    /// An argument's tag opens inside the value.
    pub(super) fn open_inner(&mut self, name: &str) {
        match self.inner.iter_mut().find(|(inner, _)| inner == name) {
            Some((_, count)) => *count += 1,
            None => self.inner.push((name.to_owned(), 1)),
        }
    }

    /// An argument's tag closes inside the value. False: it was not opened there.
    pub(super) fn close_inner(&mut self, name: &str) -> bool {
        match self.inner.iter_mut().find(|(inner, count)| inner == name && *count > 0) {
            Some((_, count)) => {
                *count -= 1;
                true
            }
            None => false,
        }
    }

    /// Takes note of text between two tags.
    pub(super) fn pass(&mut self, text: &str) {
        for byte in text.bytes() {
            let blank = byte.is_ascii_whitespace();
            let name = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':') || !byte.is_ascii();
            self.before = match self.before {
                Before::Nothing => return,
                Before::Naming if blank => Before::Named,
                Before::Open | Before::Naming if name && self.named => Before::Naming,
                before if blank => before,
                _ => Before::Nothing,
            };
        }
    }
}
