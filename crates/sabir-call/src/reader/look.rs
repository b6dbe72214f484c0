//! Looking: what stands at a trigger in prose.
//!
//! Supported: markers, tags of calls and wrappers, thoughts, guesses without any marker, closing tags of calls that are over.
//! Unsupported: whatever stands inside a region, which its machine reads.
//!
//! Nothing is decided here that needs the text behind a marker: that is what `reader/opening.rs` waits for.

use crate::dialect::grammar::Notation;
use crate::event::MarkRole;
use crate::fault::{Fault, FaultKind, Span};

use super::Reader;
use super::guess::Guess;
use super::markers::{MarkerKind, Spotted, is_special};
use super::opening::{Kind, Opening, malformed};
use super::report::{Bare, Closed};
use super::tag::{Interest, Lexed, TAG_CAP, Tag, alike, lex, lex_in, name_length};
use super::thought::Thought;
use super::vocabulary::{SHOWN, Spelling};

/// What stands at a trigger.
pub(super) enum Look {
    /// Text.
    Text,
    /// More text is needed.
    Wait,
    /// A tool's tag with attributes or a slash: a call that is over already, what is wrong with it, and its length.
    Malformed(Opening, Box<Fault>, usize),
    /// Markup around calls, of that length.
    Skip(usize),
    /// Markup around words, of that length.
    Frame(usize),
    /// A thought, and the length of its opening tag.
    Thought(Thought, usize),
    /// Perhaps a call; the length of the marker.
    Open(Opening, usize),
    /// Perhaps calls without any marker.
    Guess(Guess),
}

impl Reader {
    /// Judges what stands at the start of `rest`, at `at` in the window.
    pub(super) fn look(&mut self, rest: &str, at: usize, last: bool) -> Look {
        let mention = self.prose.mention();
        let first = self.prose.at_line_start() && mention.is_none();
        let fresh = first || (self.prose.is_fresh() && mention.is_none());
        match self.vocabulary.markers.spot(rest, last) {
            Spotted::Partial => return Look::Wait,
            Spotted::Marker(text) => {
                if let Some(look) = self.look_at_marker(text, at, mention) {
                    return look;
                }
            }
            // Words are triggers for the sake of markers alone.
            Spotted::None if rest.starts_with(|c: char| c.is_ascii_alphanumeric()) => return Look::Text,
            Spotted::None => {}
        }
        // A bracket right behind a word is an index of something.
        let index = rest.starts_with('[') && self.prose.previous().is_ascii_alphanumeric();
        if mention.is_none()
            && !index
            && let Some(guess) = Guess::begin(rest, (self.offset + at, self.prose.is_start()), &self.vocabulary)
        {
            return Look::Guess(guess);
        }
        let first = fresh;
        let (tag, notation) = match self.lex_any(rest, last, first) {
            (Lexed::No, _) => {
                if mention.is_none() {
                    self.unfinished_call(rest, self.offset + at);
                }
                return Look::Text;
            }
            (Lexed::Partial, _) => return Look::Wait,
            (Lexed::Tag(tag), notation) => (tag, notation),
        };
        if notation == Notation::Angle && tag.is_plain() && self.prose.show(tag.name, tag.close, first) {
            return Look::Text;
        }
        let ends = tag.close && self.vocabulary.frames(tag.name, notation) && self.prose.ends_fence();
        if let Some(why) = mention.filter(|_| !ends) {
            // Not even a fence hides that a value may have been meant to go on to here.
            if tag.close {
                self.weigh_end(tag, at);
            } else if self.vocabulary.thought(tag.name).is_none() {
                self.past.mention(why, tag.name, self.offset + at, tag.len);
            }
            return Look::Text;
        }
        if self.vocabulary.frames(tag.name, notation) {
            self.past.mark(MarkRole::Wrapper, self.offset + at, tag.len, "a tag around the words of a message");
            return if tag.close { Look::Skip(tag.len) } else { Look::Frame(tag.len) };
        }
        if tag.close {
            return self.look_at_close(tag, at);
        }
        if let Some(close) = self.vocabulary.thought(tag.name) {
            if tag.is_plain() {
                self.past.mark(MarkRole::Thought, self.offset + at, tag.len, "a thought begins");
                return Look::Thought(Thought::new(close, self.offset + at), tag.len);
            }
            return Look::Text;
        }
        self.look_at_open(tag, at, first, notation)
    }

    /// The tag at the start of `rest`, in whatever notation.
    pub(super) fn lex_any<'w>(&self, rest: &'w str, last: bool, first: bool) -> (Lexed<'w>, Notation) {
        let angle = match rest.starts_with('<') {
            true => lex(rest, last, |name, close| self.interest(name, close, first)),
            false => Lexed::No,
        };
        if angle != Lexed::No || self.vocabulary.is_empty() {
            return (angle, Notation::Angle);
        }
        for Spelling { tagged, .. } in self.vocabulary.others() {
            let interest = |name: &str, close| self.interest_in(name, close, tagged.notation);
            let lexed = lex_in(tagged.notation, rest, last, interest);
            if lexed != Lexed::No {
                return (lexed, tagged.notation);
            }
        }
        (Lexed::No, Notation::Angle)
    }

    /// How much a tag of the tables matters.
    fn interest_in(&self, name: &str, close: bool, notation: Notation) -> Interest {
        if self.vocabulary.frames(name, notation)
            || self.vocabulary.wrapper(name, notation).is_some()
            || self.wrapped.as_deref().is_some_and(|it| alike(it, name))
        {
            return Interest::Quoted;
        }
        let wrapped = self.wrapped.as_deref();
        if self.vocabulary.call(name, notation, wrapped).is_some() {
            return Interest::Any;
        }
        let ends = |closed: &Closed| alike(name, &closed.argument_close) || alike(name, &closed.call_close);
        if close && self.past.closed().iter().any(ends) {
            return Interest::Plain;
        }
        Interest::None
    }

    /// How much a tag in prose matters.
    fn interest(&self, name: &str, close: bool, first: bool) -> Interest {
        if self.vocabulary.thought(name).is_some() || SHOWN.iter().any(|(shown, _)| *shown == name) {
            return Interest::Plain;
        }
        if self.vocabulary.is_empty() {
            return Interest::None;
        }
        let may_name = self.vocabulary.may_name(name);
        if may_name || close {
            let interest = self.interest_in(name, close, Notation::Angle);
            if interest != Interest::None {
                return interest;
            }
        }
        if may_name && self.vocabulary.keyed(name).is_some() {
            return Interest::Plain;
        }
        if may_name && !close && self.vocabulary.misspelt(name).is_some() {
            return Interest::Any;
        }
        if self.vocabulary.own().is_none() {
            return match self.vocabulary.unheard(name) {
                Some(_) => Interest::Any,
                None if first && !close && self.vocabulary.unheard_tool(name).is_some() => Interest::Plain,
                None => Interest::None,
            };
        }
        match self.vocabulary.resolve(name) {
            Some(_) if close => Interest::Plain,
            Some(_) => Interest::Any,
            None if self.vocabulary.unheard(name).is_some() => Interest::Any,
            // No tool is named like a special token.
            None if close || name.contains('|') => Interest::None,
            // In the middle of a line only what reads like a tool's name is worth waiting for.
            None if first || self.vocabulary.recalls(name) => Interest::Plain,
            None => Interest::None,
        }
    }

    /// A marker of the tables. `None`: it is none of a dialect that is listened for; it may still be a tag.
    fn look_at_marker(&mut self, text: &'static str, at: usize, mention: Option<&'static str>) -> Option<Look> {
        let start = self.offset + at;
        let mut meanings = self.vocabulary.markers.meanings(text);
        let Some(meaning) = meanings.next() else {
            let name = text.trim_matches(['<', '>']);
            let tag = self.vocabulary.wrapper(name, Notation::Angle).or_else(|| self.vocabulary.keyed(name)).is_some();
            let whole = text.starts_with('<') && text.ends_with('>');
            let meant = is_special(text) || (whole && self.prose.at_line_start() && !tag);
            if let Some(dialect) = self.vocabulary.markers.owner(text).filter(|_| meant && mention.is_none()) {
                self.past.unheard(dialect, start, text.len());
            }
            return None;
        };
        let section = meaning.kind == MarkerKind::Section;
        // The rest of a header counts where everything begins.
        if meaning.kind == MarkerKind::Headless && !(self.prose.position() == 0 && self.past.calls == 0) {
            return None;
        }
        // Words of a prompt's form count on lines of their own.
        if text.ends_with(':') && !self.prose.is_start() {
            return None;
        }
        if let Some(why) = mention.filter(|_| !(section && self.prose.ends_fence())) {
            self.past.mention(why, text, start, text.len());
            return Some(Look::Text);
        }
        if let MarkerKind::Thought(close) = meaning.kind {
            self.past.mark(MarkRole::Thought, start, text.len(), "a thought begins");
            return Some(Look::Thought(Thought::between(text, close, start), text.len()));
        }
        if section {
            let section = Opening { kind: Kind::Section, ..Opening::marker(text, start, self.prose.is_start()) };
            return Some(Look::Open(section, text.len()));
        }
        let opening = Opening::marker(text, start, self.prose.at_line_start() || self.prose.is_fresh());
        // The same tag may stand around calls in tags: then what follows decides about those, too.
        let name = text.trim_matches(['<', '>']);
        let tag = text.len() == name.len() + 2
            && (self.vocabulary.wrapper(name, Notation::Angle).is_some() || self.vocabulary.keyed(name).is_some());
        let opening = match tag {
            true => Opening { kind: Kind::Wrapper(Notation::Angle), tag: name.to_owned(), ..opening },
            false => opening,
        };
        Some(Look::Open(opening, text.len()))
    }

    /// A marker of special tokens inside a thought, with its length. `Some(None)`: it only stands around calls.
    pub(super) fn special_marker(&mut self, text: &'static str, at: usize) -> Option<(Option<Opening>, usize)> {
        let meaning = self.vocabulary.markers.meanings(text).next()?;
        if matches!(meaning.kind, MarkerKind::Thought(_)) {
            return None;
        }
        let opening = (meaning.kind != MarkerKind::Section).then(|| Opening::marker(text, self.offset + at, true));
        Some((opening, text.len()))
    }

    /// A tag of special tokens inside a thought, likewise.
    /// The flag: more text is needed.
    pub(super) fn special_tag(
        &self,
        rest: &str,
        (at, sectioned): (usize, bool),
        last: bool,
    ) -> (Option<(Option<Opening>, usize)>, bool) {
        let (tag, notation) = match self.lex_any(rest, last, false) {
            (Lexed::Tag(tag), notation) => (tag, notation),
            (Lexed::Partial, notation) => return (None, notation != Notation::Angle),
            (Lexed::No, _) => return (None, false),
        };
        let wrapped = self.wrapped.as_deref();
        let marked = |spelling: Spelling| sectioned && !spelling.tagged.sections.is_empty();
        let section = self.vocabulary.call(tag.name, notation, wrapped).is_some_and(marked);
        // A stray quote is waited for in prose alone.
        let quoted = tag.attributes.starts_with('"');
        if notation == Notation::Angle && (quoted || (!section && !tag.name.contains(['|', '｜', '‖']))) {
            return (None, false);
        }
        let start = self.offset + at;
        let special = match self.vocabulary.call(tag.name, notation, wrapped) {
            Some(spelling) if !tag.close => Some(Kind::Fixed(spelling)),
            _ if self.vocabulary.wrapper(tag.name, notation).is_none() => return (None, false),
            _ if tag.close => None,
            _ => Some(Kind::Wrapper(notation)),
        };
        let special = Some((special.map(|kind| Opening::new(kind, tag, start, true)), tag.len));
        (special, false)
    }

    fn look_at_open(&mut self, tag: Tag<'_>, at: usize, first: bool, notation: Notation) -> Look {
        let start = self.offset + at;
        let kind = if self.vocabulary.wrapper(tag.name, notation).is_some() || self.vocabulary.keyed(tag.name).is_some()
        {
            Kind::Wrapper(notation)
        } else if let Some(spelling) = self.vocabulary.call(tag.name, notation, self.wrapped.as_deref()) {
            Kind::Fixed(spelling)
        } else {
            let tool = self.vocabulary.resolve(tag.name);
            match (self.vocabulary.own().filter(|_| notation == Notation::Angle), tool) {
                (Some(spelling), Some(tool)) => Kind::Tool(spelling, tool),
                (Some(spelling), None) if tag.is_plain() && (first || self.vocabulary.recalls(tag.name)) => {
                    Kind::Unknown(spelling)
                }
                _ => {
                    self.misspelt_call(tag, start);
                    let tool = || self.vocabulary.unheard_tool(tag.name).filter(|_| first && tag.is_plain());
                    if let Some(dialect) = self.vocabulary.unheard(tag.name).or_else(tool) {
                        self.past.unheard(dialect, start, tag.len);
                    }
                    return Look::Text;
                }
            }
        };
        let opening = Opening::new(kind, tag, start, first);
        match kind {
            Kind::Tool(..) if !tag.is_plain() && !first => Look::Text,
            Kind::Fixed(_) if tag.empty && !first && self.wrapped.is_none() => Look::Text,
            Kind::Tool(..) if !tag.is_plain() => {
                let fault = malformed(&opening, tag);
                Look::Malformed(opening, Box::new(fault), tag.len)
            }
            Kind::Fixed(_) if tag.empty => {
                let fault = malformed(&opening, tag);
                Look::Malformed(opening, Box::new(fault), tag.len)
            }
            _ => Look::Open(opening, tag.len),
        }
    }

    fn look_at_close(&mut self, tag: Tag<'_>, at: usize) -> Look {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        if self.wrapped.as_deref().is_some_and(|wrapper| alike(wrapper, tag.name)) {
            self.wrapped = None;
            self.past.mark(MarkRole::Wrapper, span.start, tag.len, "the wrapper ends");
            self.past.end_words();
            return Look::Skip(tag.len);
        }
        let malformed = self.past.closes_malformed(tag.name);
        if malformed || self.ends_unopened(tag) {
            self.past.mark(MarkRole::Wrapper, span.start, tag.len, "the end of what was understood without it");
            return Look::Skip(tag.len);
        }
        self.weigh_end(tag, at);
        if let Some(bare) = self.past.take_bare(tag.name) {
            self.bare_call(&bare, span);
        }
        Look::Text
    }

    /// Whether the tag closes a block right behind a call that stood in none.
    fn ends_unopened(&self, tag: Tag<'_>) -> bool {
        let Some(position) = self.past.unopened else { return false };
        tag.is_plain() && self.prose.blank_since(position) && self.vocabulary.wraps(tag.name)
    }

    /// The tag of a call of a known tool that another tag stands in, because its own end is missing.
    fn unfinished_call(&mut self, rest: &str, start: usize) {
        let inside = rest.strip_prefix('<').unwrap_or_default();
        // As far as the lexer reads a name, and only where it reads on behind it: else it did not wait for what follows.
        let name_end = name_length(inside.as_bytes());
        if !matches!(inside.as_bytes().get(name_end), Some(b'=' | b' ' | b'\t' | b'\n' | b'\r')) {
            return;
        }
        let (name, attributes) = inside.split_at_checked(name_end).unwrap_or_default();
        if name.is_empty() || self.vocabulary.call(name, Notation::Angle, self.wrapped.as_deref()).is_none() {
            return;
        }
        // Not farther than the lexer looks, or it would depend on the chunks.
        let room = TAG_CAP.saturating_sub(1 + name_end);
        let end = attributes.bytes().take(room).position(|byte| matches!(byte, b'<' | b'>'));
        let Some(end) = end.filter(|end| attributes.as_bytes().get(*end) == Some(&b'<')) else { return };
        let words = attributes.get(..end).unwrap_or_default().split(|c: char| c.is_whitespace() || "=\"'".contains(c));
        if !words.into_iter().any(|word| self.vocabulary.exact(word).is_some()) {
            return;
        }
        let span =
            Span::new(start, start + 1 + name_end + attributes.get(..end).map_or(0, |text| text.trim_end().len()));
        let message = format!("the tag `{name}` is not finished: another tag begins before its `>`");
        let fault = Fault::error(FaultKind::MalformedTag, span, message);
        self.past.slip(fault.hint("end each tag with `>`"));
    }

    /// A tag that was meant to open a call of a known tool.
    fn misspelt_call(&mut self, tag: Tag<'_>, start: usize) {
        let Some(spelling) = self.vocabulary.misspelt(tag.name) else { return };
        let opening = Opening::new(Kind::Fixed(spelling), tag, start, false);
        if self.vocabulary.resolve(&opening.name).is_none() && !self.vocabulary.near(&opening.name) {
            return;
        }
        let message = format!("the tag `{}` opens no call: it is misspelt", tag.name);
        let fault = Fault::error(FaultKind::MalformedTag, Span::new(start, start + tag.len), message);
        self.past.slip(fault.hint(format!("write `{}`", self.right(&opening))));
    }

    /// Notices the closing tags of a call that is over.
    fn weigh_end(&mut self, tag: Tag<'_>, at: usize) {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        let position = self.prose.position();
        // A tag is short.
        let length = u32::try_from(tag.len).unwrap_or_default();
        let mut doubtful = None;
        if self.past.closed().is_empty() {
            return;
        }
        for (at, closed) in self.past.closed_mut().iter_mut().enumerate() {
            if alike(tag.name, &closed.argument_close) {
                closed.noted = Some(position.saturating_add(length));
            } else if closed
                .noted
                .is_some_and(|noted| alike(tag.name, &closed.call_close) && self.prose.blank_since(noted))
            {
                doubtful = doubtful.or(Some(at));
            }
        }
        if let Some(at) = doubtful {
            self.doubtful_end(at, span);
        }
    }

    fn bare_call(&mut self, bare: &Bare, close: Span) {
        let (name, right) = (&bare.name, &bare.right);
        let (kind, message) = if bare.json {
            (FaultKind::JsonInTag, format!("`{name}` holds JSON, but each argument belongs into a tag of its own"))
        } else {
            (FaultKind::StrayText, format!("`{name}` holds words but no argument tags, so it is no call"))
        };
        let fault = Fault::error(kind, Span::new(bare.span.start, close.end), message);
        self.past.note(fault.hint(format!("put each argument into its own tag: `{right}`")));
    }

    /// How a call that this may open is spelled.
    pub(super) fn right(&self, opening: &Opening) -> String {
        let tool = self.vocabulary.resolve(&opening.name).and_then(|at| self.vocabulary.tool(at));
        let argument = tool.and_then(|tool| tool.arguments.first()).map_or("…", String::as_str);
        opening.form().map(|form| form.spell_call(&opening.name, argument)).unwrap_or_default()
    }

    /// The closing tags of a call once more: its last value may have been meant to go on to here.
    fn doubtful_end(&mut self, at: usize, span: Span) {
        let closed = self.past.closed_mut().swap_remove(at);
        let message = format!(
            "the value of `{}` could end in two places: the closing tags of its call stand twice",
            closed.argument
        );
        for index in closed.index..self.past.calls {
            let fault = Fault::error(FaultKind::DoubledArgument, span, message.clone()).in_call(index);
            let fault = fault.in_argument(closed.argument.to_string());
            self.past.note(fault.hint("write each call's closing tags once, or keep them out of its values"));
        }
    }
}
