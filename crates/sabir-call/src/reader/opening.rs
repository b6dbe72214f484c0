//! Openings: whether a tag in prose opens a call, decided by what follows it.
//!
//! A known tool's tag opens a call where the tag of an argument, or its own close, follows. Followed by words it is
//! prose; a closing tag later on then earns a fault, since a call without argument tags was probably meant. A tag that
//! no tool has opens a call to an unknown tool where it stands first on its line, reads like a tool's name, and a tag
//! named like some tool's argument follows: the model then hears what is wrong instead of nothing.

use crate::dialect::grammar::{Notation, Tags};
use crate::event::{Certainty, Cut, Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::call::{Form, Open};
use super::guess::Guess;
use super::report::{Bare, Closed};
use super::tag::{Interest, Lexed, Tag, alike, lex, lex_in};
use super::vocabulary::{MarkerKind, Spelling, Spotted, THOUGHTS, is_special};
use super::{Reader, State, Step, Window, take_blank, thought};

/// What instructions write where the name of a tool belongs; models write it too.
const PLACEHOLDERS: [&str; 3] = ["tool_name", "function_name", "actual_tool_name"];

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

/// A marker that may open a call.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) kind: Kind,
    /// The tag's name, prefix included; of any other marker, its text.
    pub(super) tag: String,
    /// The tool's name as written.
    pub(super) name: String,
    /// Offset of that name.
    pub(super) name_at: usize,
    /// Offset and length of the marker.
    pub(super) at: usize,
    pub(super) len: usize,
    /// Whether it stood first on its line.
    pub(super) first: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The tag of the tool at that position.
    Tool(Spelling, usize),
    /// A tag that no tool has.
    Unknown(Spelling),
    /// A tag that names the tool: `<invoke …>`.
    Fixed(Spelling),
    /// A tag around a tool's name.
    Keyed(Spelling),
    /// A tag around calls, in this notation.
    Wrapper(Notation),
    /// A marker of another machine.
    Marker,
}

impl Opening {
    /// The tag that stands at that offset.
    pub(super) fn new(kind: Kind, tag: Tag<'_>, at: usize, first: bool) -> Self {
        let (name_at, name) = match kind {
            Kind::Fixed(Spelling { tagged, .. }) => match tagged.tags {
                Tags::Fixed { call_name, .. } => call_name.find(&tag),
                Tags::Own | Tags::Keyed { .. } => (1, tag.name),
            },
            _ => (1, tag.name),
        };
        let (tag_name, name) = (tag.name.to_owned(), name.to_owned());
        Self { kind, tag: tag_name, name, name_at: at + name_at, at, len: tag.len, first }
    }

    /// A marker that stands at that offset.
    fn marker(text: &str, at: usize, first: bool) -> Self {
        Self { kind: Kind::Marker, tag: text.to_owned(), name: String::new(), name_at: at, at, len: text.len(), first }
    }

    /// Which tags spell the call that it may open.
    fn form(&self) -> Option<Form> {
        match self.kind {
            Kind::Tool(spelling, _) | Kind::Unknown(spelling) | Kind::Keyed(spelling) => Some(Form::new(spelling, "")),
            Kind::Fixed(spelling) => Some(Form::new(spelling, super::tag::split_name(&self.tag).0)),
            Kind::Wrapper(_) | Kind::Marker => None,
        }
    }

    /// The text of the marker as the tables have it.
    pub(super) fn text(&self) -> String {
        match self.kind {
            Kind::Wrapper(Notation::Angle) => format!("<{}>", self.tag),
            _ => self.tag.clone(),
        }
    }

    /// Whether nothing but a call begins so.
    fn certain(&self) -> bool {
        match self.kind {
            Kind::Tool(..) | Kind::Fixed(_) => self.first,
            Kind::Marker => is_special(&self.tag),
            _ => false,
        }
    }
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
            && let Some(guess) = Guess::begin(rest, (self.offset + at, self.prose.is_fresh()), &self.vocabulary)
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
        let meaning = *meaning;
        let section = meaning.kind == MarkerKind::Section;
        // Words of a prompt's form count on lines of their own.
        if text.ends_with(':') && !self.prose.is_fresh() {
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
        if let MarkerKind::Thought(close) = meaning.kind {
            self.past.mark(MarkRole::Thought, start, text.len(), "a thought begins");
            return Some(Look::Thought(close, text.len()));
        }
        Some(Look::Open(Opening::marker(text, start, self.prose.at_line_start()), text.len()))
    }

    /// A marker of special tokens inside a thought, with its length. `Some(None)`: it only stands around calls.
    pub(super) fn special_marker(&mut self, text: &'static str, at: usize) -> Option<(Option<Opening>, usize)> {
        let meaning = self.vocabulary.meanings(text).next()?;
        if let MarkerKind::Thought(_) = meaning.kind {
            return None;
        }
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

    /// A call whose tag cannot be understood: over as soon as it began.
    pub(super) fn malformed_call(&mut self, opening: &Opening, fault: Fault, out: &mut dyn Sink) {
        let (index, at) = (self.begin(opening, out), fault.span.end);
        out.event(Event::Fault(&fault.in_call(index)));
        out.event(Event::CallEnd { index, at });
        self.state = self.outside();
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
    fn right(&self, opening: &Opening) -> String {
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

    /// White space, then whatever decides.
    pub(super) fn opening(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let at = from + take_blank(window.from(from), &mut self.held);
        let rest = window.from(at);
        if rest.is_empty() {
            return Step::To(at);
        }
        let State::Opening(opening) = std::mem::replace(&mut self.state, State::Prose) else { return Step::To(at) };
        if matches!(opening.kind, Kind::Wrapper(_) | Kind::Marker) {
            return self.follow(*opening, window, at, out);
        }
        // Half a tag at the very end is waited for in vain: the call was cut, not mentioned.
        let form = opening.form();
        let lexed = form.as_ref().map_or(Lexed::No, |form| form.lex(rest, false, |_, _| Interest::Any));
        let next = match lexed {
            Lexed::Partial => {
                self.state = State::Opening(opening);
                return Step::Wait(at);
            }
            Lexed::Tag(tag) => Some(tag),
            Lexed::No => None,
        };
        if next.is_some_and(|tag| self.opens(&opening, tag, at, out)) {
            return Step::To(at + next.map_or(0, |tag| tag.len));
        }
        if rest.starts_with('{') && self.json_body(&opening, out) {
            return Step::To(at);
        }
        // A tag that names the tool names it beyond doubt: whatever stands in it that is no argument was meant as one.
        let bare = next.is_none() || matches!(opening.kind, Kind::Fixed(_));
        let json = rest.starts_with('{');
        self.mention_only(*opening, bare.then_some(json), out);
        Step::To(at)
    }

    /// The tag that stands in a wrapper, if it opens a call.
    pub(super) fn open_wrapped(&mut self, wrapper: &Opening, tag: Tag<'_>, at: usize, out: &mut dyn Sink) -> bool {
        let Kind::Wrapper(notation) = wrapper.kind else { return false };
        let Some(spelling) = self.vocabulary.call(tag.name, notation, Some(&wrapper.tag)).filter(|_| !tag.close) else {
            return false;
        };
        // The wrapper is no text, unless what it wraps turns out to be none either.
        self.wrapped = Some(wrapper.tag.clone());
        let opening = Opening::new(Kind::Fixed(spelling), tag, self.offset + at, wrapper.first);
        if tag.empty {
            self.malformed_call(&opening, malformed(&opening, tag), out);
        } else {
            self.state = State::Opening(Box::new(opening));
        }
        true
    }

    /// Whether the tag behind the opening makes it a call; if so, the call has begun and the tag is taken.
    fn opens(&mut self, opening: &Opening, tag: Tag<'_>, at: usize, out: &mut dyn Sink) -> bool {
        let tag_at = self.offset + at;
        match opening.kind {
            Kind::Wrapper(_) | Kind::Marker => false,
            Kind::Fixed(_) => self.opens_fixed(opening, tag, tag_at, out),
            Kind::Keyed(_) => {
                let form = opening.form();
                let opens = tag.closes(&opening.tag) || form.is_some_and(|form| form.argument(&tag).is_some());
                if opens {
                    self.begin_with(opening, tag, tag_at, out);
                }
                opens
            }
            Kind::Tool(_, tool) => {
                let opens = self.opens_tool(opening, tool, tag);
                if opens {
                    self.begin_with(opening, tag, tag_at, out);
                }
                opens
            }
            Kind::Unknown(_) => {
                let by_argument =
                    !tag.close && self.vocabulary.any_declares(tag.name) && self.vocabulary.resembles(&opening.name);
                let empty = tag.closes(&opening.name) && self.vocabulary.near(&opening.name);
                // What instructions call a tool when they mean any.
                let placeholder = !tag.close && PLACEHOLDERS.iter().any(|name| opening.name.eq_ignore_ascii_case(name));
                if !tag.is_plain() || !(by_argument || empty || placeholder) {
                    return false;
                }
                self.begin_with(opening, tag, tag_at, out);
                true
            }
        }
    }

    fn opens_fixed(&mut self, opening: &Opening, tag: Tag<'_>, tag_at: usize, out: &mut dyn Sink) -> bool {
        let Some(form) = opening.form() else { return false };
        let closes = tag.closes(&opening.tag);
        let argues = match form.own_arguments() {
            true => !tag.close && self.vocabulary.declares(self.vocabulary.resolve(&opening.name), tag.name),
            false => form.argument(&tag).is_some(),
        };
        if !closes && !argues {
            return false;
        }
        let span = Span::new(opening.at, opening.at + opening.len);
        let unwrapped = self.wrapped.is_none();
        let index = self.begin_with(opening, tag, tag_at, out);
        if opening.name.is_empty() {
            let message = format!("`<{}>` does not say which tool: it has no name", opening.tag);
            let fault = Fault::error(FaultKind::MissingName, span, message);
            let hint = format!("write `{}` with the tool's name", form.spell_call("…", "…"));
            out.event(Event::Fault(&fault.in_call(index).hint(hint)));
        }
        if let Some(wrapper) = form.wrapper().filter(|_| unwrapped) {
            let message = format!("the call stands outside of `<{wrapper}>`");
            let fault = Fault::warning(FaultKind::MissingWrapper, span, message);
            let hint = format!("put calls between `<{wrapper}>` and `</{wrapper}>`");
            out.event(Event::Fault(&fault.in_call(index).hint(hint)));
        }
        true
    }

    fn opens_tool(&self, opening: &Opening, tool: usize, tag: Tag<'_>) -> bool {
        let declared = self.vocabulary.declares(Some(tool), tag.name);
        let other_tool = self.vocabulary.exact(tag.name).is_some();
        if tag.close { tag.closes(&opening.name) } else { declared || (tag.is_plain() && !other_tool) }
    }

    fn begin_with(&mut self, opening: &Opening, tag: Tag<'_>, tag_at: usize, out: &mut dyn Sink) -> u32 {
        let tool = match opening.kind {
            Kind::Tool(_, tool) => Some(tool),
            _ => self.vocabulary.resolve(&opening.name),
        };
        let Some(form) = opening.form() else { return self.past.calls };
        let index = self.begin(opening, out);
        if tag.close {
            out.event(Event::CallEnd { index, at: tag_at + tag.len });
            self.state = self.outside();
        } else {
            let mut open = Open::new(index, form, opening.name.clone(), tool, opening.tag.clone());
            open.begin_argument(tag, tag_at, out);
            self.state = State::Call(Box::new(open));
        }
        index
    }

    fn begin(&mut self, opening: &Opening, out: &mut dyn Sink) -> u32 {
        let index = self.past.calls;
        self.past.calls = self.past.calls.saturating_add(1);
        self.held.clear();
        self.blank.clear();
        let Opening { name, name_at, at, len, .. } = opening;
        let dialect = opening.form().map(|form| form.dialect);
        let chosen = self.vocabulary.selection.is_chosen();
        let sure = if chosen { Certainty::Certain } else { Certainty::Likely };
        let rule = match opening.kind {
            Kind::Tool(..) => "a tool's tag, with an argument's tag or its close behind it",
            Kind::Unknown(_) => "a tag like a tool's, with an argument's tag behind it",
            _ => "a call's tag, with an argument's tag or its close behind it",
        };
        let span = Span::new(*at, at + len);
        out.event(Event::Mark(Mark { role: MarkRole::Call, dialect, span, sure, rule }));
        out.event(Event::CallStart { index, id: None, name, dialect, at: *at, name_at: *name_at });
        index
    }

    /// The marker turned out to be prose. `bare`: words that are no arguments stand behind it, and whether they are JSON.
    pub(super) fn mention_only(&mut self, opening: Opening, bare: Option<bool>, out: &mut dyn Sink) {
        let held = std::mem::take(&mut self.held);
        if let Some(inside) = self.inside.take() {
            thought::say(&held, out);
            self.state = State::Thought(inside);
        } else {
            self.prose.read(&held);
            self.say(&held, out);
        }
        // The wrapper went out as text with the rest, and so will its end.
        if !held.starts_with(&format!("<{}", opening.tag)) {
            self.wrapped = None;
        }
        self.held = held;
        self.held.clear();
        if let Some(json) = bare
            && matches!(opening.kind, Kind::Tool(..) | Kind::Fixed(_))
        {
            let (span, right) = (Span::new(opening.at, opening.at + opening.len), self.right(&opening));
            self.past.bare = Some(Bare { tag: opening.tag, name: opening.name, span, right, json });
        }
    }

    /// The text ended behind a marker that may have opened a call.
    pub(super) fn cut_opening(&mut self, opening: Opening, why: Cut, rest: &str, out: &mut dyn Sink) {
        if !opening.certain() {
            self.mention_only(opening, None, out);
            return self.say(rest, out);
        }
        if opening.form().is_none() {
            return self.cut_marker(&opening, why, out);
        }
        let index = self.begin(&opening, out);
        out.event(Event::CallCut { index, why, at: self.offset });
    }
}

fn malformed(opening: &Opening, tag: Tag<'_>) -> Fault {
    let (kind, message) = if tag.empty {
        let message = format!("the tag `{}` closes itself; it must stay open for the arguments", tag.name);
        (FaultKind::SelfClosing, message)
    } else {
        let message = format!("the tag `{}` carries attributes; arguments are tags of their own", tag.name);
        (FaultKind::MalformedTag, message)
    };
    let right = opening.form().map(|form| form.spell_call(&opening.name, "…")).unwrap_or_default();
    let span = Span::new(opening.at, opening.at + tag.len);
    let hint = format!("write one tag for each argument between the tags of the call: `{right}`");
    Fault::error(kind, span, message).hint(hint)
}
