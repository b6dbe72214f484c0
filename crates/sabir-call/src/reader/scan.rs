//! Looking: what stands at a trigger in prose.
//!
//! Supported: markers, tags of calls and wrappers, thoughts, guesses without any marker, closing tags of calls that are over.
//! Unsupported: whatever stands inside a region, which its machine reads.
//!
//! Nothing is decided here that needs the text behind a marker: that is what `reader/opening.rs` waits for.

use crate::dialect::grammar::TagNotation;
use crate::event::MarkupRole;
use crate::fault::{Fault, FaultKind, Span};

use super::CallReader;
use super::bare_call_guess::BareCallGuess;
use super::diagnostics::{BareCall, ClosedCall};
use super::markers::{MarkerKind, MarkerMatch, is_special};
use super::pending_open::{OpenKind, PendingOpen, malformed_tag_fault};
use super::tag::{LexedTag, TAG_CAP, Tag, TagInterest, lex_in_notation, lex_tag, name_length, names_match};
use super::thought::ThoughtBlock;
use super::vocabulary::{SHOWN, TagDialect};

/// What stands at a trigger.
pub(super) enum TriggerMatch {
    /// Text.
    Text,
    /// More text is needed.
    Wait,
    /// A tool's tag with attributes or a slash: a call that is over already, what is wrong with it, and its length.
    Malformed(PendingOpen, Box<Fault>, usize),
    /// Markup around calls, of that length.
    Skip(usize),
    /// Markup around words, of that length.
    Frame(usize),
    /// A thought, and the length of its opening tag.
    Thought(ThoughtBlock, usize),
    /// Perhaps a call; the length of the marker.
    Open(PendingOpen, usize),
    /// Perhaps calls without any marker.
    Guess(BareCallGuess),
}

impl CallReader {
    /// Judges what stands at the start of `rest`, at `at` in the window.
    pub(super) fn scan_trigger(&mut self, rest: &str, at: usize, last: bool) -> TriggerMatch {
        let mention = self.prose.mention_reason();
        let first = self.prose.at_line_start() && mention.is_none();
        let fresh = first || (self.prose.is_fresh() && mention.is_none());
        match self.vocabulary.markers.find_marker(rest, last) {
            MarkerMatch::Partial => return TriggerMatch::Wait,
            MarkerMatch::Marker(text) => {
                if let Some(look) = self.scan_marker(text, at, mention) {
                    return look;
                }
            }
            // Words are triggers for the sake of markers alone.
            MarkerMatch::None if rest.starts_with(|c: char| c.is_ascii_alphanumeric()) => return TriggerMatch::Text,
            MarkerMatch::None => {}
        }
        // A bracket right behind a word is an index of something.
        let index = rest.starts_with('[') && self.prose.previous_byte().is_ascii_alphanumeric();
        if mention.is_none()
            && !index
            && let Some(guess) =
                BareCallGuess::try_begin(rest, (self.offset + at, self.prose.is_start()), &self.vocabulary)
        {
            return TriggerMatch::Guess(guess);
        }
        let first = fresh;
        let (tag, notation) = match self.lex_any(rest, last, first) {
            (LexedTag::No, _) => {
                if mention.is_none() {
                    self.note_unfinished_tag(rest, self.offset + at);
                }
                return TriggerMatch::Text;
            }
            (LexedTag::Partial, _) => return TriggerMatch::Wait,
            (LexedTag::Tag(tag), notation) => (tag, notation),
        };
        if notation == TagNotation::Angle && tag.is_plain() && self.prose.track_html_tag(tag.name, tag.close, first) {
            return TriggerMatch::Text;
        }
        let ends = tag.close && self.vocabulary.is_message_frame(tag.name, notation) && self.prose.ends_fence();
        if let Some(why) = mention.filter(|_| !ends) {
            // Not even a fence hides that a value may have been meant to go on to here.
            if tag.close {
                self.note_stray_close(tag, at);
            } else if self.vocabulary.thought_tag(tag.name).is_none() {
                self.diagnostics.note_mention(why, tag.name, self.offset + at, tag.len);
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
            return if tag.close { TriggerMatch::Skip(tag.len) } else { TriggerMatch::Frame(tag.len) };
        }
        if tag.close {
            return self.scan_close_tag(tag, at);
        }
        if let Some(close) = self.vocabulary.thought_tag(tag.name) {
            if tag.is_plain() {
                self.diagnostics.note_mark(MarkupRole::Thought, self.offset + at, tag.len, "a thought begins");
                return TriggerMatch::Thought(ThoughtBlock::new(close, self.offset + at), tag.len);
            }
            return TriggerMatch::Text;
        }
        self.scan_open_tag(tag, at, first, notation)
    }

    /// The tag at the start of `rest`, in whatever notation.
    pub(super) fn lex_any<'w>(&self, rest: &'w str, last: bool, first: bool) -> (LexedTag<'w>, TagNotation) {
        let angle = match rest.starts_with('<') {
            true => lex_tag(rest, last, |name, close| self.prose_tag_interest(name, close, first)),
            false => LexedTag::No,
        };
        if angle != LexedTag::No || self.vocabulary.is_empty() {
            return (angle, TagNotation::Angle);
        }
        for TagDialect { tagged, .. } in self.vocabulary.non_angle_dialects() {
            let interest = |name: &str, close| self.interest_in_notation(name, close, tagged.notation);
            let lexed = lex_in_notation(tagged.notation, rest, last, interest);
            if lexed != LexedTag::No {
                return (lexed, tagged.notation);
            }
        }
        (LexedTag::No, TagNotation::Angle)
    }

    /// How much a tag of the tables matters.
    fn interest_in_notation(&self, name: &str, close: bool, notation: TagNotation) -> TagInterest {
        if self.vocabulary.is_message_frame(name, notation)
            || self.vocabulary.find_wrapper(name, notation).is_some()
            || self.wrapped.as_deref().is_some_and(|it| names_match(it, name))
        {
            return TagInterest::Quoted;
        }
        let wrapped = self.wrapped.as_deref();
        if self.vocabulary.find_call_tag(name, notation, wrapped).is_some() {
            return TagInterest::Any;
        }
        let ends =
            |closed: &ClosedCall| names_match(name, &closed.argument_close) || names_match(name, &closed.call_close);
        if close && self.diagnostics.closed_calls().iter().any(ends) {
            return TagInterest::Plain;
        }
        TagInterest::None
    }

    /// How much a tag in prose matters.
    fn prose_tag_interest(&self, name: &str, close: bool, first: bool) -> TagInterest {
        if self.vocabulary.thought_tag(name).is_some() || SHOWN.iter().any(|(shown, _)| *shown == name) {
            return TagInterest::Plain;
        }
        if self.vocabulary.is_empty() {
            return TagInterest::None;
        }
        let may_name = self.vocabulary.may_name(name);
        if may_name || close {
            let interest = self.interest_in_notation(name, close, TagNotation::Angle);
            if interest != TagInterest::None {
                return interest;
            }
        }
        if may_name && self.vocabulary.find_keyed_call(name).is_some() {
            return TagInterest::Plain;
        }
        if may_name && !close && self.vocabulary.find_misspelt_call(name).is_some() {
            return TagInterest::Any;
        }
        if self.vocabulary.own_tag_dialect().is_none() {
            return match self.vocabulary.inactive_dialect(name) {
                Some(_) => TagInterest::Any,
                None if first && !close && self.vocabulary.inactive_tool_dialect(name).is_some() => TagInterest::Plain,
                None => TagInterest::None,
            };
        }
        match self.vocabulary.resolve_tool(name) {
            Some(_) if close => TagInterest::Plain,
            Some(_) => TagInterest::Any,
            None if self.vocabulary.inactive_dialect(name).is_some() => TagInterest::Any,
            // No tool is named like a special token.
            None if close || name.contains('|') => TagInterest::None,
            // In the middle of a line only what reads like a tool's name is worth waiting for.
            None if first || self.vocabulary.resembles_tool_strictly(name) => TagInterest::Plain,
            None => TagInterest::None,
        }
    }

    /// A marker of the tables. `None`: it is none of a dialect that is listened for; it may still be a tag.
    fn scan_marker(&mut self, text: &'static str, at: usize, mention: Option<&'static str>) -> Option<TriggerMatch> {
        let start = self.offset + at;
        let mut meanings = self.vocabulary.markers.active_meanings(text);
        let Some(meaning) = meanings.next() else {
            let name = text.trim_matches(['<', '>']);
            let tag = self
                .vocabulary
                .find_wrapper(name, TagNotation::Angle)
                .or_else(|| self.vocabulary.find_keyed_call(name))
                .is_some();
            let whole = text.starts_with('<') && text.ends_with('>');
            let meant = is_special(text) || (whole && self.prose.at_line_start() && !tag);
            if let Some(dialect) = self.vocabulary.markers.owner_dialect(text).filter(|_| meant && mention.is_none()) {
                self.diagnostics.note_other_dialect(dialect, start, text.len());
            }
            return None;
        };
        let section = meaning.kind == MarkerKind::Section;
        // The rest of a header counts where everything begins.
        if meaning.kind == MarkerKind::Headless && !(self.prose.bytes_read() == 0 && self.diagnostics.calls == 0) {
            return None;
        }
        // Words of a prompt's form count on lines of their own.
        if text.ends_with(':') && !self.prose.is_start() {
            return None;
        }
        if let Some(why) = mention.filter(|_| !(section && self.prose.ends_fence())) {
            self.diagnostics.note_mention(why, text, start, text.len());
            return Some(TriggerMatch::Text);
        }
        if let MarkerKind::Thought(close) = meaning.kind {
            self.diagnostics.note_mark(MarkupRole::Thought, start, text.len(), "a thought begins");
            return Some(TriggerMatch::Thought(ThoughtBlock::between_markers(text, close, start), text.len()));
        }
        if section {
            let section =
                PendingOpen { kind: OpenKind::Section, ..PendingOpen::from_marker(text, start, self.prose.is_start()) };
            return Some(TriggerMatch::Open(section, text.len()));
        }
        let opening = PendingOpen::from_marker(text, start, self.prose.at_line_start() || self.prose.is_fresh());
        // The same tag may stand around calls in tags: then what follows decides about those, too.
        let name = text.trim_matches(['<', '>']);
        let tag = text.len() == name.len() + 2
            && (self.vocabulary.find_wrapper(name, TagNotation::Angle).is_some()
                || self.vocabulary.find_keyed_call(name).is_some());
        let opening = match tag {
            true => PendingOpen { kind: OpenKind::Wrapper(TagNotation::Angle), tag: name.to_owned(), ..opening },
            false => opening,
        };
        Some(TriggerMatch::Open(opening, text.len()))
    }

    /// A marker of special tokens inside a thought, with its length. `Some(None)`: it only stands around calls.
    pub(super) fn special_marker(&mut self, text: &'static str, at: usize) -> Option<(Option<PendingOpen>, usize)> {
        let meaning = self.vocabulary.markers.active_meanings(text).next()?;
        if matches!(meaning.kind, MarkerKind::Thought(_)) {
            return None;
        }
        let opening =
            (meaning.kind != MarkerKind::Section).then(|| PendingOpen::from_marker(text, self.offset + at, true));
        Some((opening, text.len()))
    }

    /// A tag of special tokens inside a thought, likewise.
    /// The flag: more text is needed.
    pub(super) fn special_tag(
        &self,
        rest: &str,
        (at, sectioned): (usize, bool),
        last: bool,
    ) -> (Option<(Option<PendingOpen>, usize)>, bool) {
        let (tag, notation) = match self.lex_any(rest, last, false) {
            (LexedTag::Tag(tag), notation) => (tag, notation),
            (LexedTag::Partial, notation) => return (None, notation != TagNotation::Angle),
            (LexedTag::No, _) => return (None, false),
        };
        let wrapped = self.wrapped.as_deref();
        let marked = |spelling: TagDialect| sectioned && !spelling.tagged.sections.is_empty();
        let section = self.vocabulary.find_call_tag(tag.name, notation, wrapped).is_some_and(marked);
        // A stray quote is waited for in prose alone.
        let quoted = tag.attributes.starts_with('"');
        if notation == TagNotation::Angle && (quoted || (!section && !tag.name.contains(['|', '｜', '‖']))) {
            return (None, false);
        }
        let start = self.offset + at;
        let special = match self.vocabulary.find_call_tag(tag.name, notation, wrapped) {
            Some(spelling) if !tag.close => Some(OpenKind::Fixed(spelling)),
            _ if self.vocabulary.find_wrapper(tag.name, notation).is_none() => return (None, false),
            _ if tag.close => None,
            _ => Some(OpenKind::Wrapper(notation)),
        };
        let special = Some((special.map(|kind| PendingOpen::new(kind, tag, start, true)), tag.len));
        (special, false)
    }

    fn scan_open_tag(&mut self, tag: Tag<'_>, at: usize, first: bool, notation: TagNotation) -> TriggerMatch {
        let start = self.offset + at;
        let kind = if self.vocabulary.find_wrapper(tag.name, notation).is_some()
            || self.vocabulary.find_keyed_call(tag.name).is_some()
        {
            OpenKind::Wrapper(notation)
        } else if let Some(spelling) = self.vocabulary.find_call_tag(tag.name, notation, self.wrapped.as_deref()) {
            OpenKind::Fixed(spelling)
        } else {
            let tool = self.vocabulary.resolve_tool(tag.name);
            match (self.vocabulary.own_tag_dialect().filter(|_| notation == TagNotation::Angle), tool) {
                (Some(spelling), Some(tool)) => OpenKind::Tool(spelling, tool),
                (Some(spelling), None)
                    if tag.is_plain() && (first || self.vocabulary.resembles_tool_strictly(tag.name)) =>
                {
                    OpenKind::Unknown(spelling)
                }
                _ => {
                    self.note_misspelt_tag(tag, start);
                    let tool = || self.vocabulary.inactive_tool_dialect(tag.name).filter(|_| first && tag.is_plain());
                    if let Some(dialect) = self.vocabulary.inactive_dialect(tag.name).or_else(tool) {
                        self.diagnostics.note_other_dialect(dialect, start, tag.len);
                    }
                    return TriggerMatch::Text;
                }
            }
        };
        let opening = PendingOpen::new(kind, tag, start, first);
        match kind {
            OpenKind::Tool(..) if !tag.is_plain() && !first => TriggerMatch::Text,
            OpenKind::Fixed(_) if tag.empty && !first && self.wrapped.is_none() => TriggerMatch::Text,
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

    fn scan_close_tag(&mut self, tag: Tag<'_>, at: usize) -> TriggerMatch {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        if self.wrapped.as_deref().is_some_and(|wrapper| names_match(wrapper, tag.name)) {
            self.wrapped = None;
            self.diagnostics.note_mark(MarkupRole::Wrapper, span.start, tag.len, "the wrapper ends");
            self.diagnostics.end_wrapper_words();
            return TriggerMatch::Skip(tag.len);
        }
        let malformed = self.diagnostics.closes_malformed(tag.name);
        if malformed || self.ends_unopened(tag) {
            self.diagnostics.note_mark(
                MarkupRole::Wrapper,
                span.start,
                tag.len,
                "the end of what was understood without it",
            );
            return TriggerMatch::Skip(tag.len);
        }
        self.note_stray_close(tag, at);
        if let Some(bare) = self.diagnostics.take_bare_call(tag.name) {
            self.note_bare_call(&bare, span);
        }
        TriggerMatch::Text
    }

    /// Whether the tag closes a block right behind a call that stood in none.
    fn ends_unopened(&self, tag: Tag<'_>) -> bool {
        let Some(position) = self.diagnostics.unopened else { return false };
        tag.is_plain() && self.prose.blank_since(position) && self.vocabulary.is_wrapper_name(tag.name)
    }

    /// The tag of a call of a known tool that another tag stands in, because its own end is missing.
    fn note_unfinished_tag(&mut self, rest: &str, start: usize) {
        let inside = rest.strip_prefix('<').unwrap_or_default();
        // As far as the lexer reads a name, and only where it reads on behind it: else it did not wait for what follows.
        let name_end = name_length(inside.as_bytes());
        if !matches!(inside.as_bytes().get(name_end), Some(b'=' | b' ' | b'\t' | b'\n' | b'\r')) {
            return;
        }
        let (name, attributes) = inside.split_at_checked(name_end).unwrap_or_default();
        if name.is_empty() || self.vocabulary.find_call_tag(name, TagNotation::Angle, self.wrapped.as_deref()).is_none()
        {
            return;
        }
        // Not farther than the lexer looks, or it would depend on the chunks.
        let room = TAG_CAP.saturating_sub(1 + name_end);
        let end = attributes.bytes().take(room).position(|byte| matches!(byte, b'<' | b'>'));
        let Some(end) = end.filter(|end| attributes.as_bytes().get(*end) == Some(&b'<')) else { return };
        let words = attributes.get(..end).unwrap_or_default().split(|c: char| c.is_whitespace() || "=\"'".contains(c));
        if !words.into_iter().any(|word| self.vocabulary.find_exact_tool(word).is_some()) {
            return;
        }
        let span =
            Span::new(start, start + 1 + name_end + attributes.get(..end).map_or(0, |text| text.trim_end().len()));
        let message = format!("the tag `{name}` is not finished: another tag begins before its `>`");
        let fault = Fault::error(FaultKind::MalformedTag, span, message);
        self.diagnostics.note_failed_open(fault.with_hint("end each tag with `>`"));
    }

    /// A tag that was meant to open a call of a known tool.
    fn note_misspelt_tag(&mut self, tag: Tag<'_>, start: usize) {
        let Some(spelling) = self.vocabulary.find_misspelt_call(tag.name) else { return };
        let opening = PendingOpen::new(OpenKind::Fixed(spelling), tag, start, false);
        if self.vocabulary.resolve_tool(&opening.name).is_none() && !self.vocabulary.is_near_tool(&opening.name) {
            return;
        }
        let message = format!("the tag `{}` opens no call: it is misspelt", tag.name);
        let fault = Fault::error(FaultKind::MalformedTag, Span::new(start, start + tag.len), message);
        self.diagnostics.note_failed_open(fault.with_hint(format!("write `{}`", self.correct_spelling(&opening))));
    }

    /// Notices the closing tags of a call that is over.
    fn note_stray_close(&mut self, tag: Tag<'_>, at: usize) {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        let position = self.prose.bytes_read();
        // A tag is short.
        let length = u32::try_from(tag.len).unwrap_or_default();
        let mut doubtful = None;
        if self.diagnostics.closed_calls().is_empty() {
            return;
        }
        for (at, closed) in self.diagnostics.closed_calls_mut().iter_mut().enumerate() {
            if names_match(tag.name, &closed.argument_close) {
                closed.noted = Some(position.saturating_add(length));
            } else if closed
                .noted
                .is_some_and(|noted| names_match(tag.name, &closed.call_close) && self.prose.blank_since(noted))
            {
                doubtful = doubtful.or(Some(at));
            }
        }
        if let Some(at) = doubtful {
            self.report_ambiguous_end(at, span);
        }
    }

    fn note_bare_call(&mut self, bare: &BareCall, close: Span) {
        let (name, right) = (&bare.name, &bare.right);
        let (kind, message) = if bare.json {
            (FaultKind::JsonInTag, format!("`{name}` holds JSON, but each argument belongs into a tag of its own"))
        } else {
            (FaultKind::StrayText, format!("`{name}` holds words but no argument tags, so it is no call"))
        };
        let fault = Fault::error(kind, Span::new(bare.span.start, close.end), message);
        self.diagnostics.note_fault(fault.with_hint(format!("put each argument into its own tag: `{right}`")));
    }

    /// How a call that this may open is spelled.
    pub(super) fn correct_spelling(&self, opening: &PendingOpen) -> String {
        let tool = self.vocabulary.resolve_tool(&opening.name).and_then(|at| self.vocabulary.tool_at(at));
        let argument = tool.and_then(|tool| tool.arguments.first()).map_or("…", String::as_str);
        opening.tag_form().map(|form| form.spell_call(&opening.name, argument)).unwrap_or_default()
    }

    /// The closing tags of a call once more: its last value may have been meant to go on to here.
    fn report_ambiguous_end(&mut self, at: usize, span: Span) {
        let closed = self.diagnostics.closed_calls_mut().swap_remove(at);
        let message = format!(
            "the value of `{}` could end in two places: the closing tags of its call stand twice",
            closed.argument
        );
        for index in closed.index..self.diagnostics.calls {
            let fault = Fault::error(FaultKind::DoubledArgument, span, message.clone()).in_call(index);
            let fault = fault.in_argument(closed.argument.to_string());
            self.diagnostics
                .note_fault(fault.with_hint("write each call's closing tags once, or keep them out of its values"));
        }
    }
}
