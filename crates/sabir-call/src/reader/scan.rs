//! Identifies the construct at a trigger in prose.
//!
//! Supported: markers, tags of calls and wrappers, thoughts, guesses without any marker, closing
//! tags of calls that have ended.
//!
//! Unsupported: anything inside a region, which has its own parser.
//!
//! Decisions that need the text after a marker are made in `reader/pending_open.rs`.

use crate::dialect::grammar::{MESSAGE_ENDS, TagNotation};
use crate::event::MarkupRole;
use crate::fault::{Fault, FaultKind, Span};

use super::CallReader;
use super::bare_call_guess::BareCallGuess;
use super::diagnostics::{BareCall, ClosedCall};
use super::markers::{MarkerKind, MarkerMatch, is_special};
use super::pending_open::{OpenKind, PendingOpen, malformed_tag_fault};
use super::tag::{
    LexedTag, TAG_CAP, Tag, TagRelevance, lex_in_notation, lex_tag, name_length, names_match,
};
use super::tag_form::MESSAGE_CALL;
use super::thought::ThoughtBlock;
use super::triggers::is_between_words;
use super::vocabulary::{SHOWN, TagDialect, UnopenedCall};

/// The maximum length of the name of a tag that is looked up among the dialects that are not read, in bytes.
const FOREIGN_NAME_CAP: usize = 32;

/// The most text behind stray closing markup that is held back to learn whether the message ends there, in bytes.
const END_CAP: usize = 256;

/// The name in `</s>`, with which some models end a turn. HTML strikes text out with it.
const END_OF_TURN: &str = "s";

/// The reason for a mention in a message to the user.
const TO_USER: &str = "in a message that is addressed to the user";

/// The construct at a trigger.
pub(super) enum TriggerMatch {
    /// Plain text.
    Text,
    /// More text is needed.
    Wait,
    /// A tool's tag with attributes or a slash: a call that has already ended, its fault, and the
    /// tag's length.
    Malformed(PendingOpen, Box<Fault>, usize),
    /// Markup around calls, with its length.
    Skip(usize),
    /// Markup around the prose of a message, with its length.
    Frame(usize),
    /// A thought, with the length of its opening tag.
    Thought(ThoughtBlock, usize),
    /// Possibly a call, with the length of the marker.
    Open(PendingOpen, usize),
    /// Possibly calls without any marker.
    Guess(BareCallGuess),
}

impl CallReader {
    /// Identifies the construct at the start of `rest`, which is at `at` in the window.
    pub(super) fn scan_trigger(&mut self, rest: &str, at: usize, last: bool) -> TriggerMatch {
        // Depends only on the text before the trigger, so later chunks cannot change it.
        // Only the end of a quotation proves that special tokens in it are quoted, and then rejects
        // their calls.
        let is_special = rest.starts_with("<|") || rest.starts_with("<｜");
        let quoted = self
            .prose
            .mention_reason()
            .filter(|_| !(is_special && self.prose.is_inside_quotation()));
        let mention = quoted.or(self.prose.is_addressed_to_user.then_some(TO_USER));
        let first = self.prose.at_line_start() && mention.is_none();
        let fresh = first || (self.prose.is_after_wrapper() && mention.is_none());
        let markers = &self.vocabulary.markers;
        let spotted = match self.prose.bytes_read() {
            0 => markers.find_first_marker(rest, last),
            _ => markers.find_marker(rest, last),
        };
        match spotted {
            // Markers come before tags: `<tool_call>` is both, and only the text after it tells
            // which.
            MarkerMatch::Partial => return TriggerMatch::Wait,
            MarkerMatch::Marker(text) => {
                self.note_second_message_end(text, at);
                if self.vocabulary.markers.ends_thought(text) && mention.is_none() {
                    if self.diagnostics.has_thought() {
                        self.note_stray_end(
                            text,
                            Span::new(self.offset + at, self.offset + at + text.len()),
                        );
                        return TriggerMatch::Skip(text.len());
                    }
                    return self.end_prompted_thought(at, text.len());
                }
                if let Some(look) = self.scan_marker(text, at, quoted) {
                    return look;
                }
            }
            MarkerMatch::None => {
                if mention.is_none()
                    && self.prose.is_start()
                    && let Some(look) = self.scan_unopened_call(rest, at, last)
                {
                    return look;
                }
                // A word is a trigger only because it may be a marker or a tool's name.
                if rest.starts_with(|c: char| c.is_ascii_alphanumeric()) {
                    return TriggerMatch::Text;
                }
            }
        }
        // A bracket directly after a word is an index expression or a link.
        let index = rest.starts_with('[') && self.prose.previous_byte().is_ascii_alphanumeric();
        if mention.is_none()
            && !index
            && let Some(guess) = BareCallGuess::try_begin(
                rest,
                self.offset + at,
                self.prose.is_start(),
                &self.vocabulary,
            )
        {
            return TriggerMatch::Guess(guess);
        }
        if mention.is_some() && self.vocabulary.bare_anywhere && rest.starts_with(['{', '[']) {
            self.open_quotation();
        }
        if self.vocabulary.chosen && !self.note_foreign_tag(rest, last) {
            return TriggerMatch::Wait;
        }
        let first = fresh;
        let (tag, notation) = match self.lex_any(rest, last, first) {
            (LexedTag::No, _) => {
                if mention.is_none() {
                    let noted = self
                        .note_unfinished_tag(rest, self.offset + at, last)
                        .and_then(|()| self.note_unknown_marker(rest, self.offset + at, last));
                    if noted.is_none() {
                        return TriggerMatch::Wait;
                    }
                }
                return TriggerMatch::Text;
            }
            (LexedTag::Partial, _) => return TriggerMatch::Wait,
            (LexedTag::Tag(tag), notation) => (tag, notation),
        };
        if notation == TagNotation::Angle && self.may_end_turn(tag.name) && !tag.close {
            self.diagnostics.has_strikethrough |= tag.is_plain();
            return TriggerMatch::Text;
        }
        if notation == TagNotation::Angle
            && tag.is_plain()
            && self.vocabulary.find_exact_tool(tag.name).is_none()
            && self.prose.track_html_tag(tag.name, tag.close, first)
        {
            return TriggerMatch::Text;
        }
        // A frame's closing tag ends the message, so backticks right before it close the fence.
        let ends = tag.close
            && self.vocabulary.is_message_frame(tag.name, notation)
            && self.prose.ends_fence();
        // Whatever the tag would open, here it is shown and not called.
        if let Some(why) = mention.filter(|_| !ends) {
            // Closing tags are noted even inside a mention, since the value before them may extend
            // to here.
            if tag.close {
                self.note_stray_close(tag, at);
                let span = Span::new(self.offset + at, self.offset + at + tag.len);
                self.reject_inner_calls(tag.name, Some(notation), span);
                self.reject_calls_before_lone_close(tag.name, span);
            } else if self.vocabulary.thought_tag(tag.name).is_none() {
                self.open_quotation();
                self.diagnostics
                    .note_mention(why, tag.name, self.offset + at, tag.len);
            }
            return TriggerMatch::Text;
        }
        if self.vocabulary.is_message_frame(tag.name, notation) {
            self.diagnostics.note_mark(
                MarkupRole::Wrapper,
                self.offset + at,
                tag.len,
                "a tag around the words of a message",
            );
            return if tag.close {
                TriggerMatch::Skip(tag.len)
            } else {
                TriggerMatch::Frame(tag.len)
            };
        }
        if tag.close && notation == TagNotation::Angle && self.can_end_prompted_thought(tag) {
            return match self.is_word_in_sentence(rest, tag.len, last) {
                None => TriggerMatch::Wait,
                Some(true) => TriggerMatch::Text,
                Some(false) => self.end_prompted_thought(at, tag.len),
            };
        }
        if tag.close {
            let may_be_left_out = self.wrapped.is_none() && self.may_be_left_out(tag, notation);
            let behind = rest.get(tag.len..).unwrap_or_default();
            return match self.is_end_of_message(behind, last) {
                None if may_be_left_out => TriggerMatch::Wait,
                Some(true) => self.scan_close_tag(tag, at, notation, may_be_left_out),
                _ => self.scan_close_tag(tag, at, notation, false),
            };
        }
        if let Some(close) = self.vocabulary.thought_tag(tag.name) {
            if tag.is_plain() {
                self.preceding_words = None;
                self.diagnostics.note_mark(
                    MarkupRole::Thought,
                    self.offset + at,
                    tag.len,
                    "a thought begins",
                );
                return TriggerMatch::Thought(ThoughtBlock::new(close, self.offset + at), tag.len);
            }
            return TriggerMatch::Text;
        }
        self.scan_open_tag(tag, at, first, notation)
    }

    /// Identifies a call in keys and values whose opening tag is missing, since servers drop special tokens: a tool's name that the
    /// tag of a key follows directly. `None` means that it is not an opening tag.
    fn scan_unopened_call(&self, rest: &str, at: usize, last: bool) -> Option<TriggerMatch> {
        match self.vocabulary.find_unopened_call(rest, last) {
            UnopenedCall::None => None,
            UnopenedCall::Partial => Some(TriggerMatch::Wait),
            UnopenedCall::Echo(length) => Some(TriggerMatch::Skip(length)),
            UnopenedCall::Call(spelling, tag, name) => {
                let start = self.offset + at;
                let opening = PendingOpen {
                    kind: OpenKind::Keyed(spelling),
                    tag: tag.to_owned(),
                    name: name.to_owned(),
                    ..PendingOpen::from_marker(name, start, true)
                };
                Some(TriggerMatch::Open(opening, name.len()))
            }
        }
    }

    /// Records markup of a call that may begin a quotation.
    fn open_quotation(&mut self) {
        if self.prose.open_quotation() {
            let calls = self.diagnostics.calls;
            self.diagnostics.outer_signs_mut().calls_before_quotation = calls;
        }
    }

    /// Notes markup of a dialect that is not read, of this length.
    fn note_foreign_markup(&mut self, length: usize) {
        self.open_quotation();
        self.prose.note_foreign_markup(length);
    }

    /// Notes an opening tag of a dialect that is not read. Returns false if more text is needed.
    fn note_foreign_tag(&mut self, rest: &str, last: bool) -> bool {
        let Some(inside) = rest.strip_prefix('<') else {
            return true;
        };
        let is_possible = self.prose.is_in_sentence()
            || self.prose.is_after_foreign_markup()
            || self.prose.mention_reason().is_some();
        let length = name_length(inside.as_bytes());
        if length == 0 || length > FOREIGN_NAME_CAP || !is_possible {
            return true;
        }
        if length == inside.len() {
            return last;
        }
        let name = inside.get(..length).unwrap_or_default();
        if self.vocabulary.may_name(name) && self.vocabulary.is_inactive_tag(name) {
            // An attribute may follow the name; the end of the tag is all that counts.
            let tag = inside.as_bytes().get(..TAG_CAP.min(inside.len()));
            let end = memchr::memchr(b'>', tag.unwrap_or_default());
            if end.is_none() && !last && inside.len() < TAG_CAP {
                return false;
            }
            self.note_foreign_markup(end.unwrap_or(length) + 2);
        }
        true
    }

    /// Returns true if the tag closes a thought that the text did not open.
    fn can_end_prompted_thought(&self, tag: Tag<'_>) -> bool {
        tag.is_plain()
            && !self.diagnostics.has_thought()
            && self.vocabulary.thought_tag(tag.name).is_some()
    }

    /// Returns true if the markup is a word of a sentence about it: with a space before it, and more
    /// of the line behind it. `None` means that more text is needed.
    fn is_word_in_sentence(&self, rest: &str, length: usize, last: bool) -> Option<bool> {
        let before = self.prose.previous_byte();
        if !matches!(before, b' ' | b'(' | b'/') || self.prose.at_line_start() {
            return Some(false);
        }
        match rest.as_bytes().get(length) {
            Some(b'\n' | b'\r' | b'<') => Some(false),
            Some(_) => Some(true),
            None if last => Some(false),
            None => None,
        }
    }

    /// Ends the thought that the prompt opened: the text before was part of it, and so were calls.
    fn end_prompted_thought(&mut self, at: usize, length: usize) -> TriggerMatch {
        let span = Span::new(self.offset + at, self.offset + at + length);
        // Only the first closing tag without an opening one can end the thought of the prompt.
        // Later ones are text.
        self.diagnostics.note_thought();
        self.diagnostics.note_mark(
            MarkupRole::PromptedThought,
            span.start,
            length,
            "closes a thought that the prompt opened",
        );
        self.reject_calls_in_thought(span);
        self.prose.mark_after_wrapper();
        TriggerMatch::Skip(length)
    }

    /// Lexes the tag at the start of `rest`, in any active notation.
    pub(super) fn lex_any<'w>(
        &self,
        rest: &'w str,
        last: bool,
        first: bool,
    ) -> (LexedTag<'w>, TagNotation) {
        // Angle brackets first, since nearly all tags have them; the other notations are rare
        // tokens.
        let angle = match rest.starts_with('<') {
            true => lex_tag(rest, last, |name, close| {
                self.prose_tag_relevance(name, close, first)
            }),
            false => LexedTag::No,
        };
        if angle != LexedTag::No || self.vocabulary.is_empty() {
            return (angle, TagNotation::Angle);
        }
        for TagDialect { tagged, .. } in self.vocabulary.non_angle_dialects() {
            let interest =
                |name: &str, close| self.relevance_in_notation(name, close, tagged.notation);
            let lexed = lex_in_notation(tagged.notation, rest, last, interest);
            if lexed != LexedTag::No {
                return (lexed, tagged.notation);
            }
        }
        (LexedTag::No, TagNotation::Angle)
    }

    /// Returns the interest in a tag that the dialect tables define.
    fn relevance_in_notation(
        &self,
        name: &str,
        close: bool,
        notation: TagNotation,
    ) -> TagRelevance {
        let wrapped = self.wrapped.as_deref();
        if wrapped.is_some_and(|it| names_match(it, name)) {
            return TagRelevance::Quoted;
        }
        // Closing tags of HTML are frequent, and no table has most of their names.
        if self.vocabulary.may_name(name) {
            if self.vocabulary.is_message_frame(name, notation)
                || self.vocabulary.find_wrapper(name, notation).is_some()
            {
                return TagRelevance::Quoted;
            }
            if self
                .vocabulary
                .find_call_tag(name, notation, wrapped)
                .is_some()
            {
                return TagRelevance::Any;
            }
        }
        // Closing tags after the end of a call matter, since its last value may extend to here.
        let ends = |closed: &ClosedCall| {
            names_match(name, &closed.argument_close) || names_match(name, &closed.call_close)
        };
        if close && self.diagnostics.closed_calls().iter().any(ends) {
            return TagRelevance::Plain;
        }
        if close && self.vocabulary.is_call_close(name) {
            return TagRelevance::Plain;
        }
        if self.vocabulary.is_value_tag(name, notation) {
            return if close {
                TagRelevance::Plain
            } else {
                TagRelevance::Any
            };
        }
        TagRelevance::None
    }

    /// Returns the interest in a tag found in prose.
    fn prose_tag_relevance(&self, name: &str, close: bool, first: bool) -> TagRelevance {
        if self.vocabulary.thought_tag(name).is_some()
            || SHOWN.iter().any(|(shown, _)| *shown == name)
        {
            return TagRelevance::Plain;
        }
        // Without tools no tag can be a call, so apart from thoughts all of them are text.
        if self.vocabulary.is_empty() {
            return TagRelevance::None;
        }
        if self.may_end_turn(name) {
            return TagRelevance::Plain;
        }
        let may_name = self.vocabulary.may_name(name);
        if may_name || close {
            let interest = self.relevance_in_notation(name, close, TagNotation::Angle);
            if interest != TagRelevance::None {
                return interest;
            }
        }
        if may_name && self.vocabulary.find_keyed_call(name).is_some() {
            return TagRelevance::Plain;
        }
        if may_name && !close && self.vocabulary.find_misspelt_call(name).is_some() {
            return TagRelevance::Any;
        }
        if self.vocabulary.own_tag_dialect().is_none() {
            return match self.vocabulary.inactive_dialect(name) {
                Some(_) => TagRelevance::Any,
                None if first
                    && !close
                    && self.vocabulary.inactive_tool_dialect(name).is_some() =>
                {
                    TagRelevance::Plain
                }
                None => TagRelevance::None,
            };
        }
        match self.vocabulary.resolve_tool(name) {
            None if self.vocabulary.is_any_argument(name) => TagRelevance::Plain,
            Some(_) if close => TagRelevance::Plain,
            Some(_) => TagRelevance::Any,
            None if self.vocabulary.inactive_dialect(name).is_some() => TagRelevance::Any,
            // No tool has a name like a special token.
            // An unknown closing tag proves nothing, and prose about HTML is full of them.
            None if close || name.contains('|') => TagRelevance::None,
            // Tags are frequent in the middle of a line, so there only names close to a tool's are
            // examined.
            None if first || self.vocabulary.resembles_tool_strictly(name) => TagRelevance::Plain,
            None => TagRelevance::None,
        }
    }

    /// Identifies a marker of the marker table. `None` means that no active dialect has it; it may
    /// still be a tag.
    fn scan_marker(
        &mut self,
        text: &'static str,
        at: usize,
        quoted: Option<&'static str>,
    ) -> Option<TriggerMatch> {
        let start = self.offset + at;
        let shown = quoted.or(self.prose.is_addressed_to_user.then_some(TO_USER));
        let Some(meaning) = self.vocabulary.markers.main_meaning(text) else {
            let name = text.trim_matches(['<', '>']);
            let tag = self
                .vocabulary
                .find_wrapper(name, TagNotation::Angle)
                .or_else(|| self.vocabulary.find_keyed_call(name))
                .is_some();
            if !tag {
                self.note_foreign_markup(text.len());
            }
            // A person may type a marker in angle brackets, so in the middle of a line it is no
            // fault.
            let whole = text.starts_with('<') && text.ends_with('>');
            let meant = is_special(text) || (whole && self.prose.at_line_start() && !tag);
            if let Some(dialect) = self
                .vocabulary
                .markers
                .owner_dialect(text)
                .filter(|_| meant && shown.is_none())
            {
                self.diagnostics
                    .note_other_dialect(dialect, start, text.len());
            }
            return None;
        };
        if meaning.is_end() {
            return Some(self.scan_end_marker(meaning.kind, text, at, shown.is_some()));
        }
        // The next message begins whatever the one before was.
        let mention = match meaning.kind {
            MarkerKind::Section | MarkerKind::Channel | MarkerKind::Headless => quoted,
            _ => shown,
        };
        let section = matches!(meaning.kind, MarkerKind::Section | MarkerKind::Recipient);
        // A headless header is recognized only at the very beginning of a message.
        if meaning.kind == MarkerKind::Headless
            && !(self.prose.bytes_read() == 0 && self.diagnostics.calls == 0)
        {
            return None;
        }
        // A marker such as `Action:` consists of ordinary words, so it must be on its own line.
        // "The next step, Action: stop, …" is a sentence. Three angle brackets after a letter are a
        // shift operator or the end of nested types.
        let is_prompt = !self.vocabulary.chosen
            && matches!(meaning.kind, MarkerKind::Json(form) if form.is_headed_by_line());
        let is_apart = is_prompt && is_between_words(self.prose.previous_byte());
        let is_word = text.ends_with(':') || is_prompt && !is_apart;
        if is_word && !self.prose.is_start() {
            return None;
        }
        if let Some(why) = mention.filter(|_| !(section && self.prose.ends_fence())) {
            if !self.vocabulary.markers.is_turn_token(text) {
                self.open_quotation();
                self.diagnostics.note_mention(why, text, start, text.len());
            }
            return Some(TriggerMatch::Text);
        }
        if let MarkerKind::Thought(close) = meaning.kind {
            self.diagnostics
                .note_mark(MarkupRole::Thought, start, text.len(), "a thought begins");
            return Some(TriggerMatch::Thought(
                ThoughtBlock::between_markers(text, close, start),
                text.len(),
            ));
        }
        if section {
            let section = PendingOpen {
                kind: OpenKind::Section,
                ..PendingOpen::from_marker(text, start, self.prose.is_start())
            };
            return Some(TriggerMatch::Open(section, text.len()));
        }
        let opening = PendingOpen::from_marker(
            text,
            start,
            self.prose.at_line_start() || self.prose.is_after_wrapper(),
        );
        // The same tag may be a wrapper around calls in tags, which the text after it decides as
        // well.
        let name = text.trim_matches(['<', '>']);
        let tag = text.len() == name.len() + 2
            && (self
                .vocabulary
                .find_wrapper(name, TagNotation::Angle)
                .is_some()
                || self.vocabulary.find_keyed_call(name).is_some());
        let opening = match tag {
            true => PendingOpen {
                kind: OpenKind::Wrapper(TagNotation::Angle),
                tag: name.to_owned(),
                ..opening
            },
            false => opening,
        };
        Some(TriggerMatch::Open(opening, text.len()))
    }

    /// Identifies a marker that belongs inside or behind a call and is outside of any.
    fn scan_end_marker(
        &mut self,
        kind: MarkerKind,
        text: &'static str,
        at: usize,
        is_mention: bool,
    ) -> TriggerMatch {
        let span = Span::new(self.offset + at, self.offset + at + text.len());
        if kind == MarkerKind::HeaderEnd {
            if !is_mention {
                self.note_orphan_header(at, text.len());
            }
            return TriggerMatch::Text;
        }
        // A quotation keeps the marker in the text, but does not protect the calls before it: the
        // quotation mark may be part of their value.
        match kind {
            MarkerKind::Quote => self.note_quote(text, span),
            _ => self.reject_inner_calls(text, None, span),
        }
        match kind {
            // It ends a call without its opening marker, which may hold the calls before.
            MarkerKind::Closer if self.is_after_words() => self.reject_calls_from(0, span),
            _ => {}
        }
        if is_mention || kind == MarkerKind::Quote {
            return TriggerMatch::Text;
        }
        self.note_stray_end(text, span);
        TriggerMatch::Skip(text.len())
    }

    /// Notes markup that closes nothing and is left out of the text.
    fn note_stray_end(&mut self, text: &str, span: Span) {
        self.diagnostics.note_mark(
            MarkupRole::Wrapper,
            span.start,
            span.end - span.start,
            "closes nothing",
        );
        let message = format!("`{text}` closes no call of its own form and was left out");
        let fault = Fault::warning(FaultKind::StrayText, span, message);
        self.diagnostics
            .note_fault(fault.with_hint("close each call once, and write it in the form of its block, such as `<invoke name=\"…\">` in `<function_calls>`"));
    }

    /// Identifies a marker of special tokens inside a thought, with its length. `Some((None, _))`
    /// means that it only encloses calls.
    pub(super) fn special_marker(
        &mut self,
        text: &'static str,
        at: usize,
    ) -> Option<(Option<PendingOpen>, usize)> {
        let meaning = self.vocabulary.markers.main_meaning(text)?;
        let is_thought = matches!(
            meaning.kind,
            MarkerKind::Thought(_) | MarkerKind::ThoughtEnd
        );
        if is_thought || meaning.is_end() {
            return None;
        }
        let opening = (meaning.kind != MarkerKind::Section)
            .then(|| PendingOpen::from_marker(text, self.offset + at, true));
        Some((opening, text.len()))
    }

    /// Identifies a tag of special tokens inside a thought, like [`Self::special_marker`]. The flag
    /// is true if more text is needed.
    pub(super) fn special_tag(
        &self,
        rest: &str,
        at: usize,
        sectioned: bool,
        last: bool,
    ) -> (Option<(Option<PendingOpen>, usize)>, bool) {
        let (tag, notation) = match self.lex_any(rest, last, false) {
            (LexedTag::Tag(tag), notation) => (tag, notation),
            (LexedTag::Partial, notation) => return (None, notation != TagNotation::Angle),
            (LexedTag::No, _) => return (None, false),
        };
        let wrapped = self.wrapped.as_deref();
        let marked = |spelling: TagDialect| sectioned && !spelling.tagged.sections.is_empty();
        let section = self
            .vocabulary
            .find_call_tag(tag.name, notation, wrapped)
            .is_some_and(marked);
        // Stray quotes in tags are tolerated in prose only.
        let quoted = tag.attributes.starts_with('"');
        if notation == TagNotation::Angle
            && (quoted || (!section && !tag.name.contains(['|', '｜', '‖'])))
        {
            return (None, false);
        }
        let start = self.offset + at;
        let special = match self.vocabulary.find_call_tag(tag.name, notation, wrapped) {
            Some(spelling) if !tag.close => Some(OpenKind::Fixed(spelling)),
            _ if self.vocabulary.find_wrapper(tag.name, notation).is_none() => {
                return (None, false);
            }
            _ if tag.close => None,
            _ => Some(OpenKind::Wrapper(notation)),
        };
        let special = Some((
            special.map(|kind| PendingOpen::new(kind, tag, start, true)),
            tag.len,
        ));
        (special, false)
    }

    fn scan_open_tag(
        &mut self,
        tag: Tag<'_>,
        at: usize,
        first: bool,
        notation: TagNotation,
    ) -> TriggerMatch {
        let start = self.offset + at;
        self.note_orphan_argument(tag, at, notation);
        let kind = if self.vocabulary.find_wrapper(tag.name, notation).is_some()
            || self.vocabulary.find_keyed_call(tag.name).is_some()
        {
            OpenKind::Wrapper(notation)
        } else if let Some(spelling) =
            self.vocabulary
                .find_call_tag(tag.name, notation, self.wrapped.as_deref())
        {
            OpenKind::Fixed(spelling)
        } else {
            let tool = self.vocabulary.resolve_tool(tag.name);
            match (
                self.vocabulary
                    .own_tag_dialect()
                    .filter(|_| notation == TagNotation::Angle),
                tool,
            ) {
                (Some(spelling), Some(tool)) => OpenKind::Tool(spelling, tool),
                (Some(spelling), None)
                    if tag.is_plain()
                        && (first || self.vocabulary.resembles_tool_strictly(tag.name)) =>
                {
                    OpenKind::Unknown(spelling)
                }
                _ => {
                    self.note_misspelt_tag(tag, start);
                    let tool = || {
                        self.vocabulary
                            .inactive_tool_dialect(tag.name)
                            .filter(|_| first && tag.is_plain())
                    };
                    if let Some(dialect) = self.vocabulary.inactive_dialect(tag.name).or_else(tool)
                    {
                        self.diagnostics.note_other_dialect(dialect, start, tag.len);
                    }
                    return TriggerMatch::Text;
                }
            }
        };
        if self.wrapped.is_some() && matches!(kind, OpenKind::Fixed(_)) {
            self.note_words_in_block(Span::new(start, start + tag.len));
        }
        let opening = PendingOpen::new(kind, tag, start, first);
        match kind {
            // In the middle of a line a malformed tag is more likely prose than a call.
            OpenKind::Tool(_, tool)
                if !tag.is_plain() && (!first || self.vocabulary.is_foreign_tool(tool)) =>
            {
                TriggerMatch::Text
            }
            OpenKind::Fixed(_) if tag.empty && !first && self.wrapped.is_none() => {
                TriggerMatch::Text
            }
            OpenKind::Tool(..) if !tag.is_plain() => {
                let fault = malformed_tag_fault(&opening, tag);
                TriggerMatch::Malformed(opening, Box::new(fault), tag.len)
            }
            OpenKind::Fixed(_) if tag.empty => {
                let fault = malformed_tag_fault(&opening, tag);
                TriggerMatch::Malformed(opening, Box::new(fault), tag.len)
            }
            _ => TriggerMatch::Open(opening, tag.len),
        }
    }

    /// Returns true if this is the name in the token that ends a turn, and not one of the user's tools or their arguments.
    fn may_end_turn(&self, name: &str) -> bool {
        name == END_OF_TURN
            && self.vocabulary.resolve_tool(name).is_none()
            && !self.vocabulary.is_any_argument(name)
    }

    /// Returns true if a closing tag that closes nothing is removed from the text, directly after a call or at the end of the message. A
    /// tag after a space is a word, and one after other markup may belong to that.
    fn may_be_left_out(&self, tag: Tag<'_>, notation: TagNotation) -> bool {
        notation == TagNotation::Angle
            && tag.is_plain()
            && self.is_end_name(tag.name)
            && self.prose.previous_byte() != b' '
            && self.diagnostics.is_empty()
    }

    /// Returns true if a closing tag of this name ends a call or a turn.
    fn is_end_name(&self, name: &str) -> bool {
        self.vocabulary.is_call_close(name)
            || self.may_end_turn(name) && !self.diagnostics.has_strikethrough
    }

    /// Returns true if nothing but closing tags of calls follows in the message. `None` means that more text is needed.
    fn is_end_of_message(&self, behind: &str, last: bool) -> Option<bool> {
        if behind.len() > END_CAP {
            return Some(false);
        }
        let mut behind = behind.trim_ascii_start();
        while let Some(inside) = behind.strip_prefix("</") {
            let Some((name, after)) = inside.split_once('>') else {
                return last.then_some(false);
            };
            if !self.is_end_name(name) {
                return Some(false);
            }
            behind = after.trim_ascii_start();
        }
        match behind {
            "" | "<" if !last => None,
            _ => Some(behind.is_empty()),
        }
    }

    fn scan_close_tag(
        &mut self,
        tag: Tag<'_>,
        at: usize,
        notation: TagNotation,
        is_left_out: bool,
    ) -> TriggerMatch {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        if self
            .wrapped
            .as_deref()
            .is_some_and(|wrapper| names_match(wrapper, tag.name))
        {
            self.wrapped = None;
            // If the call's own closing tag is missing, an argument's closing tag right before this
            // one ended the call's last value.
            let ended_twice = |closed: &ClosedCall| {
                closed
                    .noted
                    .is_some_and(|noted| self.prose.blank_since(noted))
            };
            let closed_calls = self.diagnostics.closed_calls();
            if let Some(at) = closed_calls.iter().position(ended_twice) {
                self.report_ambiguous_end(at, span);
            }
            // Words after the last call have a warning of their own, as at the end of any message.
            self.diagnostics.take_call_end();
            self.diagnostics.note_mark(
                MarkupRole::Wrapper,
                span.start,
                tag.len,
                "the wrapper ends",
            );
            self.diagnostics.end_wrapper_words();
            return TriggerMatch::Skip(tag.len);
        }
        let malformed = self.diagnostics.closes_malformed(tag.name);
        if malformed || self.closes_unopened_wrapper(tag) {
            self.diagnostics.note_mark(
                MarkupRole::Wrapper,
                span.start,
                tag.len,
                "the end of what was understood without it",
            );
            return TriggerMatch::Skip(tag.len);
        }
        self.note_stray_close(tag, at);
        self.reject_inner_calls(tag.name, Some(notation), span);
        self.reject_calls_before_lone_close(tag.name, span);
        self.diagnostics.end_wrapper_without_call(tag.name, span);
        if let Some(bare) = self.diagnostics.take_bare_call(tag.name) {
            self.note_bare_call(&bare, span);
        }
        let follows_call = self
            .diagnostics
            .last_call_end()
            .is_some_and(|position| self.prose.blank_since(position));
        if follows_call && tag.is_plain() && self.is_end_name(tag.name) || is_left_out {
            self.note_stray_end(&format!("</{}>", tag.name), span);
            return TriggerMatch::Skip(tag.len);
        }
        TriggerMatch::Text
    }

    /// Notes words between the last call of a block and this markup.
    fn note_words_in_block(&mut self, span: Span) {
        let ended = self.diagnostics.take_call_end();
        if ended.is_none_or(|position| self.prose.blank_since(position)) {
            return;
        }
        let message = "there is text between the calls of a block, before this tag";
        let fault = Fault::warning(FaultKind::StrayText, span, message);
        self.diagnostics
            .note_fault(fault.with_hint("write words before the block of calls"));
    }

    /// Returns true if the tag closes a wrapper directly after a call that had no wrapper.
    fn closes_unopened_wrapper(&self, tag: Tag<'_>) -> bool {
        let Some(position) = self.diagnostics.unopened else {
            return false;
        };
        tag.is_plain()
            && self.prose.blank_since(position)
            && self.vocabulary.is_wrapper_name(tag.name)
    }

    /// Notes an unfinished tag of a call to a known tool: another tag begins inside it, or its arguments follow the name in an
    /// unknown notation, because its own end is missing. `None` means that more text is needed.
    fn note_unfinished_tag(&mut self, rest: &str, start: usize, last: bool) -> Option<()> {
        let mut dialects = self.vocabulary.non_angle_dialects().iter();
        let other = dialects.find_map(|TagDialect { tagged, .. }| match tagged.notation {
            TagNotation::Marked(marker) => {
                let inside = rest.strip_prefix(marker)?.strip_prefix('<')?;
                Some((tagged.notation, inside, ">"))
            }
            TagNotation::Delimited { open, end, .. } => {
                Some((tagged.notation, rest.strip_prefix(open)?, end))
            }
            TagNotation::Angle => None,
        });
        let angle = rest
            .strip_prefix('<')
            .map(|inside| (TagNotation::Angle, inside, ">"));
        let Some((notation, inside, close)) = other.or(angle) else {
            return Some(());
        };
        let name_end = name_length(inside.as_bytes());
        let (name, attributes) = inside.split_at_checked(name_end).unwrap_or_default();
        let is_delimited = matches!(notation, TagNotation::Delimited { .. });
        // Most `<` are comparisons, and most tags end with the tag.
        let follows = attributes.as_bytes().first();
        let may_begin = follows.is_some_and(|byte| b"({[= \t\n\r".contains(byte));
        if !may_begin || name.is_empty() && !is_delimited {
            return Some(());
        }
        let own = self.vocabulary.own_tag_dialect();
        let own = own.filter(|_| self.prose.at_line_start());
        let tool = own.and_then(|_| self.vocabulary.find_exact_tool(name.trim_end_matches(':')));
        // The lexer looks no farther.
        let cap = TAG_CAP.saturating_sub(1 + name_end);
        let head = attributes
            .get(..attributes.floor_char_boundary(cap))
            .unwrap_or_default();
        let end = head.find(['<', '>']).unwrap_or(head.len());
        let (head, behind) = head.split_at_checked(end).unwrap_or_default();
        let (is_unread, is_fault) = match follows {
            Some(b'(' | b'{' | b'[' | b' ' | b'\t' | b'\n' | b'\r') if tool.is_some() => {
                let is_unread = self.starts_unknown_arguments(tool, attributes, last)?;
                (is_unread, is_unread)
            }
            // The lexer has waited for more text only if one of these bytes follows the name. A note that ignored this would depend
            // on the chunks.
            Some(b'=' | b' ' | b'\t' | b'\n' | b'\r') if !behind.starts_with(close) => {
                let wrapped = self.wrapped.as_deref();
                let is_call = self.vocabulary.may_name(name)
                    && self
                        .vocabulary
                        .find_call_tag(name, notation, wrapped)
                        .is_some();
                let named = is_call.then(|| self.find_tool_name(head)).flatten();
                let is_unread = named.is_some_and(|(tool, text)| {
                    self.starts_unknown_arguments(Some(tool), text, true) == Some(true)
                });
                // Special tokens are never written by accident, so the tag is one of a call or of a value, unless it is around calls.
                let is_of_call =
                    is_delimited && self.vocabulary.find_wrapper(name, notation).is_none();
                let is_cut = named.is_some() && behind.starts_with('<');
                (is_unread || is_of_call, is_unread || is_cut)
            }
            _ => (false, false),
        };
        let span = Span::new(start, start + rest.len() - attributes.len());
        if is_unread {
            self.note_unread_call(span);
        }
        if is_fault {
            let message = format!("the tag `{name}` is not finished: its `{close}` is missing");
            let fault = Fault::error(FaultKind::MalformedTag, span, message);
            self.diagnostics
                .note_failed_open(fault.with_hint(format!("end each tag with `{close}`")));
        }
        Some(())
    }

    /// Finds the first name of a declared tool in the attributes of a tag. Returns the tool, and the text behind its name.
    fn find_tool_name<'t>(&self, attributes: &'t str) -> Option<(usize, &'t str)> {
        let separates = |c: char| c.is_whitespace() || "=\"'([{:".contains(c);
        let mut at = 0;
        for word in attributes.split(separates) {
            if let Some(tool) = self.vocabulary.find_exact_tool(word) {
                return Some((tool, attributes.get(at + word.len()..)?));
            }
            at += word.len();
            at += attributes
                .get(at..)?
                .chars()
                .next()
                .map_or(0, char::len_utf8);
        }
        None
    }

    /// Notes a misspelt tag that was meant to open a call of a known tool.
    fn note_misspelt_tag(&mut self, tag: Tag<'_>, start: usize) {
        let Some(spelling) = self.vocabulary.find_misspelt_call(tag.name) else {
            return;
        };
        let opening = PendingOpen::new(OpenKind::Fixed(spelling), tag, start, false);
        if self.vocabulary.resolve_tool(&opening.name).is_none()
            && !self.vocabulary.is_near_tool(&opening.name)
        {
            return;
        }
        let message = format!("the tag `{}` opens no call: it is misspelt", tag.name);
        let fault = Fault::error(
            FaultKind::MalformedTag,
            Span::new(start, start + tag.len),
            message,
        );
        self.diagnostics.note_failed_open(
            fault.with_hint(format!("write `{}`", self.format_correct_call(&opening))),
        );
    }

    /// Notes the end of a message that ends a call which has already ended, behind the closing tag of its argument.
    fn note_second_message_end(&mut self, text: &str, at: usize) {
        let name = text.trim_matches(['<', '>']);
        if !MESSAGE_ENDS.contains(&name) {
            return;
        }
        let is_end = |closed: &ClosedCall| {
            let is_noted = closed
                .noted
                .is_some_and(|noted| self.prose.blank_since(noted));
            is_noted && *closed.call_close == *MESSAGE_CALL
        };
        if let Some(doubtful) = self.diagnostics.closed_calls().iter().position(is_end) {
            let start = self.offset + at;
            self.report_ambiguous_end(doubtful, Span::new(start, start + text.len()));
        }
    }

    /// Notes closing tags of a call that has already ended.
    fn note_stray_close(&mut self, tag: Tag<'_>, at: usize) {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        let position = self.prose.bytes_read();
        // A tag is at most a few hundred bytes long.
        let length = u32::try_from(tag.len).unwrap_or_default();
        // Both closing tags must come in this order with only white space between them, as at the
        // end of a call; either one alone occurs in prose about the format.
        let mut doubtful = None;
        if self.diagnostics.closed_calls().is_empty() {
            return;
        }
        for (at, closed) in self.diagnostics.closed_calls_mut().iter_mut().enumerate() {
            if names_match(tag.name, &closed.argument_close) {
                // The call's close directly after this position completes the pair.
                closed.noted = Some(position.saturating_add(length));
            } else if closed.noted.is_some_and(|noted| {
                names_match(tag.name, &closed.call_close) && self.prose.blank_since(noted)
            }) {
                doubtful = doubtful.or(Some(at));
            }
        }
        if let Some(at) = doubtful {
            self.report_ambiguous_end(at, span);
        }
    }

    /// Notes a tool's tag with words or JSON inside instead of argument tags, as a fault: the words may also be prose about the tool. Calls
    /// among the words may be content.
    fn note_bare_call(&mut self, bare: &BareCall, close: Span) {
        // The words may have been a value that reaches past this tag.
        self.diagnostics
            .outer_signs_mut()
            .note_bare_call(&bare.tag, bare.calls);
        let name = &bare.name;
        let right = &bare.right;
        let (kind, message) = if bare.json {
            (
                FaultKind::JsonInTag,
                format!("`{name}` holds JSON, but each argument belongs in a tag of its own"),
            )
        } else {
            (
                FaultKind::StrayText,
                format!("`{name}` holds words but no argument tags, so it is not a call"),
            )
        };
        let fault = Fault::error(kind, Span::new(bare.span.start, close.end), message);
        self.diagnostics
            .note_fault(fault.with_hint(format!("put each argument into its own tag: `{right}`")));
        if self.diagnostics.calls > bare.calls {
            self.reject_calls_from(bare.calls, close);
        }
    }

    /// Renders the correct form of a call that this marker may open.
    pub(super) fn format_correct_call(&self, opening: &PendingOpen) -> String {
        let tool = self
            .vocabulary
            .resolve_tool(&opening.name)
            .and_then(|at| self.vocabulary.tool_at(at));
        let argument = tool
            .and_then(|tool| tool.arguments.first())
            .map_or("…", String::as_str);
        opening
            .tag_form()
            .map(|form| form.format_call_tag(&opening.name, argument))
            .unwrap_or_default()
    }

    /// Reports that the closing tags of a call occur twice, so its last value may extend to here.
    fn report_ambiguous_end(&mut self, at: usize, span: Span) {
        let closed = self.diagnostics.closed_calls_mut().swap_remove(at);
        let message = format!(
            "the value of `{}` could end in two places: the closing tags of its call occur twice",
            closed.argument
        );
        // Every later call may be content of this call's value, so all of them are rejected.
        for index in closed.index..self.diagnostics.calls {
            let fault =
                Fault::error(FaultKind::DoubledArgument, span, message.clone()).in_call(index);
            let fault = fault.in_argument(closed.argument.to_string());
            self.diagnostics.note_fault(
                fault.with_hint(
                    "write each call's closing tags once, or keep them out of its values",
                ),
            );
        }
    }
}
