//! Reads thoughts: reasoning between tags, on its own channel, or on its own wire. Only calls in
//! special tokens are read out of a thought, because models emit those only as markup.

use std::ops::Range;

use crate::event::{Event, EventSink, MarkupRole};
use crate::fault::Span;

use super::markers::MarkerMatch;
use super::tag::{LexedTag, Tag, TagRelevance, lex_tag};
use super::{CallReader, ReaderState, ReaderStep, TextWindow};
use crate::swar::find_byte;

/// The reason for a mention inside a thought.
pub(super) const IN_THOUGHT: &str = "inside a thought";

/// The tokens that end a thought in a dialect with channels; the last two open the next message.
const HARMONY: [&str; 7] = [
    "|end|",
    "|return|",
    "|call|",
    "|eom|",
    "|eot|",
    "|start|",
    "|channel|",
];

/// A thought that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThoughtBlock {
    end: ThoughtEnd,
    /// The offset of its opening tag.
    start: usize,
    /// True if a marker around calls was opened inside it.
    section: bool,
    /// True if the prompt opened it.
    prompted: bool,
}

/// The end of a thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThoughtEnd {
    /// The closing tag with this name.
    Tag(&'static str),
    /// The second of these markers.
    Marker(&'static str, &'static str),
    /// A token of the harmony dialect.
    Harmony,
    /// The end of the text.
    Never,
}

impl ThoughtBlock {
    /// Creates a thought between tags of that name.
    pub(super) fn new(name: &'static str, start: usize) -> Self {
        Self {
            end: ThoughtEnd::Tag(name),
            start,
            section: false,
            prompted: false,
        }
    }

    /// Creates a thought between markers.
    pub(super) fn between_markers(open: &'static str, close: &'static str, start: usize) -> Self {
        Self {
            end: ThoughtEnd::Marker(open, close),
            start,
            section: false,
            prompted: false,
        }
    }

    /// Creates the thought of a message on the analysis channel.
    pub(super) fn analysis_channel(start: usize) -> Self {
        Self {
            end: ThoughtEnd::Harmony,
            start,
            section: false,
            prompted: false,
        }
    }

    /// Creates a thought that extends to the end of the text.
    pub(super) fn whole_text() -> Self {
        Self {
            end: ThoughtEnd::Never,
            start: 0,
            section: false,
            prompted: false,
        }
    }

    /// Returns the thought for a text whose prompt opened it.
    pub(super) fn opened_by_prompt(self) -> Self {
        Self {
            start: 0,
            prompted: true,
            ..self
        }
    }

    /// Returns true if the prompt opened the thought.
    pub(super) fn is_prompted(self) -> bool {
        self.prompted
    }

    /// Returns the first byte of its closing markup, where that is not a tag.
    fn end_byte(self) -> Option<u8> {
        match self.end {
            ThoughtEnd::Marker(_, close) => close.bytes().next(),
            ThoughtEnd::Tag(_) | ThoughtEnd::Harmony | ThoughtEnd::Never => None,
        }
    }

    /// Returns the opening and closing text and the start offset, for a thought that must be
    /// closed.
    pub(super) fn unclosed_parts(self) -> Option<(String, String, usize)> {
        match self.end {
            ThoughtEnd::Tag(name) => Some((format!("<{name}>"), format!("</{name}>"), self.start)),
            ThoughtEnd::Marker(open, close) => {
                Some((open.to_owned(), close.to_owned(), self.start))
            }
            ThoughtEnd::Harmony | ThoughtEnd::Never => None,
        }
    }

    /// Returns true if a tag of this name may end the thought. Only its own closing tag counts: a mention of `</think>` in `<thinking>`
    /// does not end the thought.
    fn can_end_with(self, name: &str) -> bool {
        match self.end {
            ThoughtEnd::Tag(close) => name == close,
            ThoughtEnd::Harmony => HARMONY.contains(&name),
            ThoughtEnd::Marker(..) | ThoughtEnd::Never => false,
        }
    }

    /// Returns the length of the closing marker at the start of `text`, or 0 if there is none.
    /// `None` means that more text is needed.
    fn end_marker_len(self, text: &str, last: bool) -> Option<usize> {
        match self.end {
            ThoughtEnd::Marker(_, close) if text.starts_with(close) => Some(close.len()),
            // A part of the closing marker at the end of the chunk: its rest may follow.
            ThoughtEnd::Marker(_, close) if !last && close.starts_with(text) => None,
            _ => Some(0),
        }
    }

    /// Returns the length of the tag that belongs to the thought, if the tag ends it.
    fn end_tag_len(self, tag: Tag<'_>) -> Option<usize> {
        match self.end {
            ThoughtEnd::Tag(close) => tag.is_closing_tag(close).then_some(tag.len),
            // The next header must stay in the text, where it is read as a message.
            ThoughtEnd::Harmony if matches!(tag.name, "|start|" | "|channel|") => Some(0),
            ThoughtEnd::Harmony => HARMONY.contains(&tag.name).then_some(tag.len),
            ThoughtEnd::Marker(..) | ThoughtEnd::Never => None,
        }
    }
}

impl CallReader {
    /// Continues a thought.
    pub(super) fn read_thought(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        thought: ThoughtBlock,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let mut at = from;
        let mut emitted_to = from;
        loop {
            let hay = window.text_from(at).as_bytes();
            let Some(found) = first_tag(hay, self.vocabulary.marked, thought.end_byte()) else {
                emit_thought(window.text_from(emitted_to), out);
                self.prose
                    .note_preceding(last_char(window.text_from(from)).unwrap_or_default());
                return ReaderStep::To(window.text.len());
            };
            at += found;
            let tail = window.text_from(at);
            match thought.end_marker_len(tail, window.last) {
                Some(0) => {}
                Some(len) => {
                    self.end_thought(window.text_between(emitted_to, at), at, len, out);
                    return ReaderStep::To(at + len);
                }
                None => {
                    emit_thought(window.text_between(emitted_to, at), out);
                    return ReaderStep::Wait(at);
                }
            }
            if let Some(step) = self.read_special_call(window, emitted_to..at, thought, out) {
                return step;
            }
            // Records the marker of a call, which is lost if the thought is never closed. Otherwise
            // the message would pass as a thought without an answer.
            if let Some(text) = self.call_marker_at(tail, thought) {
                emit_thought(window.text_between(emitted_to, at), out);
                emitted_to = at;
                let start = self.offset + at;
                self.diagnostics
                    .note_mention(IN_THOUGHT, text, start, text.len());
                self.diagnostics.emit_notes(out);
            }
            let before = last_char(window.text_between(from, at));
            // The byte before the chunk counts as well, or the split would change the result.
            let ticked = before.map_or(self.prose.previous_byte() == b'`', |c| c == "`");
            let interest = |name: &str, _| match thought.can_end_with(name) {
                true => TagRelevance::Plain,
                false => self.vocabulary.relevance_in_thought(name),
            };
            let lexed = if tail.starts_with('<') {
                lex_tag(tail, window.last, interest)
            } else {
                LexedTag::No
            };
            // A closing tag between backticks is only mentioned. One more character is needed to
            // see the second backtick.
            let after = |tag: Tag<'_>| tail.as_bytes().get(tag.len).copied();
            let ends = |tag: Tag<'_>| {
                thought
                    .end_tag_len(tag)
                    .filter(|_| !(ticked && after(tag) == Some(b'`')))
            };
            let lexed = match lexed {
                LexedTag::Tag(tag)
                    if ticked
                        && thought.end_tag_len(tag).is_some()
                        && after(tag).is_none()
                        && !window.last =>
                {
                    LexedTag::Partial
                }
                lexed => lexed,
            };
            match lexed {
                LexedTag::Tag(tag) => {
                    if let Some(len) = ends(tag) {
                        self.end_thought(window.text_between(emitted_to, at), at, len, out);
                        return ReaderStep::To(at + len);
                    }
                    if !tag.close && !thought.can_end_with(tag.name) {
                        self.diagnostics.note_mention(
                            IN_THOUGHT,
                            tag.name,
                            self.offset + at,
                            tag.len,
                        );
                        emit_thought(window.text_between(emitted_to, at), out);
                        emitted_to = at;
                        self.diagnostics.emit_notes(out);
                    }
                    at += tag.len;
                }
                LexedTag::Partial => {
                    emit_thought(window.text_between(emitted_to, at), out);
                    self.prose.note_preceding(before.unwrap_or_default());
                    return ReaderStep::Wait(at);
                }
                // Just this `<`: a tag may begin right behind it.
                LexedTag::No => at += 1,
            }
        }
    }

    /// Returns the marker of calls at the start of `text` that is not made of special tokens. The
    /// search for special ones has waited for the rest of it.
    fn call_marker_at(&self, text: &str, thought: ThoughtBlock) -> Option<&'static str> {
        if thought.end == ThoughtEnd::Harmony {
            return None;
        }
        let MarkerMatch::Marker(marker) = self.vocabulary.markers.find_marker(text, true) else {
            return None;
        };
        self.vocabulary.markers.opens_call(marker).then_some(marker)
    }

    /// Ends the thought with its last text; `len` is the length of the closing markup at `at`.
    fn end_thought(&mut self, rest: &str, at: usize, len: usize, out: &mut dyn EventSink) {
        emit_thought(rest, out);
        self.diagnostics.note_mark(
            MarkupRole::ThoughtEnd,
            self.offset + at,
            len,
            "the thought ends",
        );
        self.diagnostics.emit_notes(out);
        self.diagnostics.end_thought();
        self.state = ReaderState::Gap;
    }

    /// Reads a call in special tokens after the `pending` part of the window, which was not emitted
    /// yet. In a thought neither a fence nor a quotation hides such a call.
    fn read_special_call(
        &mut self,
        window: TextWindow<'_>,
        pending: Range<usize>,
        thought: ThoughtBlock,
        out: &mut dyn EventSink,
    ) -> Option<ReaderStep> {
        let at = pending.end;
        let rest = window.text_from(at);
        // The tokens of harmony end the thought themselves.
        if thought.end == ThoughtEnd::Harmony {
            return None;
        }
        let (special, waits) = match self
            .vocabulary
            .markers
            .find_special_marker(rest, window.last)
        {
            MarkerMatch::None => self.special_tag(rest, at, thought.section, window.last),
            MarkerMatch::Partial => (None, true),
            MarkerMatch::Marker(text) => (self.special_marker(text, at), false),
        };
        if special.is_none() && !waits {
            return None;
        }
        emit_thought(window.text_between(pending.start, at), out);
        let Some((opening, len)) = special else {
            self.prose.note_preceding(
                last_char(window.text_between(pending.start, at)).unwrap_or_default(),
            );
            return Some(ReaderStep::Wait(at));
        };
        // The text before the markup has no influence on the text after it.
        self.prose.note_preceding(">");
        if opening.is_some() {
            let start = self.offset + at;
            self.note_call_in_thought(Span::new(start, start + len));
        }
        // The call interrupts the thought, which continues after it.
        self.inside = Some(Box::new(thought));
        let Some(opening) = opening else {
            self.wrapped = None;
            let section = self
                .vocabulary
                .opens_section(window.text_between(at, at + len));
            self.state = ReaderState::Thought(Box::new(ThoughtBlock { section, ..thought }));
            self.inside = None;
            return Some(ReaderStep::To(at + len));
        };
        self.held.clear();
        self.held.push_str(window.text_between(at, at + len));
        self.state = ReaderState::Opening(Box::new(opening));
        Some(ReaderStep::To(at + len))
    }
}

/// Returns the position of a possible tag.
fn first_tag(hay: &[u8], marked: Option<u8>, end: Option<u8>) -> Option<usize> {
    match (marked, end.filter(|byte| *byte != b'<')) {
        (Some(byte), Some(end)) => memchr::memchr3(b'<', byte, end, hay),
        (Some(byte), None) | (None, Some(byte)) => memchr::memchr2(b'<', byte, hay),
        (None, None) => find_byte(b'<', hay),
    }
}

/// Emits a piece of a thought.
pub(super) fn emit_thought(text: &str, out: &mut dyn EventSink) {
    if !text.is_empty() {
        out.push_event(Event::Thought { text });
    }
}

/// Returns the last character as text.
fn last_char(text: &str) -> Option<&str> {
    text.char_indices()
        .next_back()
        .and_then(|(at, _)| text.get(at..))
}
