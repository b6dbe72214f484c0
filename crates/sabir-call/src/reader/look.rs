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
use super::opening::{Kind, Opening, malformed};
use super::report::{Bare, Closed};
use super::tag::{Interest, Lexed, Tag, alike, lex, lex_in};
use super::vocabulary::{MarkerKind, Spelling, Spotted, THOUGHTS, is_special};

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
    /// A thought that this tag closes, and the length of its opening tag.
    Thought(&'static str, usize),
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
        match self.vocabulary.spot(rest, last) {
            Spotted::Partial => return Look::Wait,
            Spotted::Marker(text) => {
                if let Some(look) = self.look_at_marker(text, at, mention) {
                    return look;
                }
            }
            Spotted::None => {}
        }
        if mention.is_none()
            && let Some(guess) = Guess::begin(rest, (self.offset + at, first), &self.vocabulary)
        {
            return Look::Guess(guess);
        }
        let (tag, notation) = match self.lex_any(rest, last, first) {
            (Lexed::No, _) => return Look::Text,
            (Lexed::Partial, _) => return Look::Wait,
            (Lexed::Tag(tag), notation) => (tag, notation),
        };
        if let Some(why) = mention {
            // Not even a fence hides that a value may have been meant to go on to here.
            if tag.close {
                self.weigh_end(tag, at);
            } else if !THOUGHTS.contains(&tag.name) {
                self.past.mention(why, tag.name, self.offset + at, tag.len);
            }
            return Look::Text;
        }
        if tag.close {
            return self.look_at_close(tag, at);
        }
        if let Some(close) = THOUGHTS.into_iter().find(|name| *name == tag.name) {
            if tag.is_plain() {
                self.past.mark(MarkRole::Thought, self.offset + at, tag.len, "a thought begins");
                return Look::Thought(close, tag.len);
            }
            return Look::Text;
        }
        self.look_at_open(tag, at, first, notation)
    }

    /// The tag at the start of `rest`, in whatever notation.
    fn lex_any<'w>(&self, rest: &'w str, last: bool, first: bool) -> (Lexed<'w>, Notation) {
        let angle = match rest.starts_with('<') {
            true => lex(rest, last, |name, close| self.interest(name, close, first)),
            false => Lexed::No,
        };
        if angle != Lexed::No || self.vocabulary.is_empty() {
            return (angle, Notation::Angle);
        }
        for Spelling { tagged, .. } in self.vocabulary.spellings() {
            if tagged.notation == Notation::Angle {
                continue;
            }
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
        if self.vocabulary.wrapper(name, notation).is_some()
            || self.wrapped.as_deref().is_some_and(|it| alike(it, name))
        {
            return Interest::Quoted;
        }
        let wrapped = self.wrapped.as_deref();
        if self.vocabulary.call(name, notation, wrapped).is_some() {
            return Interest::Any;
        }
        let ends = |closed: &Closed| alike(name, &closed.argument_close) || alike(name, &closed.call_close);
        if close && self.past.closed.iter().any(ends) {
            return Interest::Plain;
        }
        Interest::None
    }

    /// How much a tag in prose matters.
    fn interest(&self, name: &str, close: bool, first: bool) -> Interest {
        if THOUGHTS.contains(&name) {
            return Interest::Plain;
        }
        if self.vocabulary.is_empty() {
            return Interest::None;
        }
        let interest = self.interest_in(name, close, Notation::Angle);
        if interest != Interest::None {
            return interest;
        }
        if self.vocabulary.keyed(name).is_some() {
            return Interest::Plain;
        }
        if self.vocabulary.own().is_none() {
            return if self.vocabulary.unheard(name).is_some() { Interest::Any } else { Interest::None };
        }
        match self.vocabulary.resolve(name) {
            Some(_) if close => Interest::Plain,
            Some(_) => Interest::Any,
            None if self.vocabulary.unheard(name).is_some() => Interest::Any,
            None if first && !close => Interest::Plain,
            None => Interest::None,
        }
    }

    /// A marker of the tables. `None`: it is none of a dialect that is listened for; it may still be a tag.
    fn look_at_marker(&mut self, text: &'static str, at: usize, mention: Option<&'static str>) -> Option<Look> {
        let start = self.offset + at;
        let mut meanings = self.vocabulary.meanings(text);
        let Some(meaning) = meanings.next() else {
            if let Some(dialect) = self.vocabulary.owner(text).filter(|_| is_special(text) && mention.is_none()) {
                self.past.unheard(dialect, start, text.len());
            }
            return None;
        };
        let section = meaning.kind == MarkerKind::Section;
        // Words of a prompt's form count on lines of their own.
        if text.ends_with(':') && !self.prose.at_line_start() {
            return None;
        }
        if let Some(why) = mention {
            self.past.mention(why, text, start, text.len());
            return Some(Look::Text);
        }
        if section {
            self.past.mark(MarkRole::Wrapper, start, text.len(), "a marker around calls");
            return Some(Look::Skip(text.len()));
        }
        Some(Look::Open(Opening::marker(text, start, self.prose.at_line_start()), text.len()))
    }

    /// A marker of special tokens inside a thought, with its length. `Some(None)`: it only stands around calls.
    pub(super) fn special_marker(&mut self, text: &'static str, at: usize) -> Option<(Option<Opening>, usize)> {
        let meaning = self.vocabulary.meanings(text).next()?;
        let opening = (meaning.kind != MarkerKind::Section).then(|| Opening::marker(text, self.offset + at, true));
        Some((opening, text.len()))
    }

    /// A tag of special tokens inside a thought, likewise.
    pub(super) fn special_tag(&self, rest: &str, at: usize, last: bool) -> Option<(Option<Opening>, usize)> {
        let (Lexed::Tag(tag), notation) = self.lex_any(rest, last, false) else { return None };
        if notation == Notation::Angle && !tag.name.contains(['|', '｜', '‖']) {
            return None;
        }
        let start = self.offset + at;
        let wrapped = self.wrapped.as_deref();
        let kind = match self.vocabulary.call(tag.name, notation, wrapped) {
            Some(spelling) if !tag.close => Kind::Fixed(spelling),
            _ => return self.vocabulary.wrapper(tag.name, notation).map(|_| (None, tag.len)),
        };
        Some((Some(Opening::new(kind, tag, start, true)), tag.len))
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
                (Some(spelling), None) if first && tag.is_plain() => Kind::Unknown(spelling),
                _ => {
                    if let Some(dialect) = self.vocabulary.unheard(tag.name) {
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
            return Look::Skip(tag.len);
        }
        self.weigh_end(tag, at);
        if let Some(bare) = self.past.bare.take_if(|bare| bare.tag == tag.name) {
            self.bare_call(&bare, span);
        }
        Look::Text
    }

    /// Notices the closing tags of a call that is over.
    fn weigh_end(&mut self, tag: Tag<'_>, at: usize) {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        let position = self.prose.position();
        let mut doubtful = None;
        for (at, closed) in self.past.closed.iter_mut().enumerate() {
            if alike(tag.name, &closed.argument_close) {
                closed.noted = Some(position + tag.len);
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
        let closed = self.past.closed.swap_remove(at);
        let message = format!(
            "the value of `{}` could end in two places: the closing tags of its call stand twice",
            closed.argument
        );
        for index in closed.index..self.past.calls {
            let fault = Fault::error(FaultKind::DoubledArgument, span, message.clone()).in_call(index);
            let fault = fault.in_argument(closed.argument.clone());
            self.past.note(fault.hint("write each call's closing tags once, or keep them out of its values"));
        }
    }
}
