//! Openings: whether a tag in prose opens a call, decided by what follows it.
//!
//! A known tool's tag opens a call where the tag of an argument, or its own close, follows. Followed by words it is
//! prose; a closing tag later on then earns a fault, since a call without argument tags was probably meant. A tag that
//! no tool has opens a call to an unknown tool where it reads like a tool's name, in the middle of a line still more so, and
//! a tag named like some tool's argument follows: the model then hears what is wrong instead of nothing.

use crate::dialect::grammar::{Notation, Tags};
use crate::event::{Certainty, Cut, Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::call::Open;
use super::form::Form;
use super::markers::{Spotted, is_special};
use super::report::Bare;
use super::tag::{Interest, Lexed, Tag};
use super::vocabulary::Spelling;
use super::{Reader, State, Step, Window, take_blank, thought};

impl Notation {
    /// Length of what stands before the name in an opening tag.
    fn name_offset(self) -> usize {
        match self {
            Self::Angle => 1,
            Self::Marked(marker) => marker.len() + 1,
            Self::Delimited { open, .. } => open.len(),
        }
    }
}

/// What instructions write where the name of a tool belongs; models write it too.
const PLACEHOLDERS: [&str; 3] = ["tool_name", "function_name", "actual_tool_name"];

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
    /// Words stand behind it, on the next line.
    pub(super) words: bool,
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
    /// A marker around calls.
    Section,
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
        let name = match kind {
            Kind::Fixed(spelling) => Form::new(spelling, "").decode(name).into_owned(),
            _ => name.to_owned(),
        };
        let tag_name = tag.name.to_owned();
        Self { kind, tag: tag_name, name, name_at: at + name_at, at, len: tag.len, first, words: false }
    }

    /// A marker that stands at that offset.
    pub(super) fn marker(text: &str, at: usize, first: bool) -> Self {
        Self {
            kind: Kind::Marker,
            tag: text.to_owned(),
            name: String::new(),
            name_at: at,
            at,
            len: text.len(),
            first,
            words: false,
        }
    }

    /// The dialect of the call that it may open.
    fn spelling(&self) -> Option<Spelling> {
        match self.kind {
            Kind::Tool(spelling, _) | Kind::Unknown(spelling) | Kind::Keyed(spelling) | Kind::Fixed(spelling) => {
                Some(spelling)
            }
            Kind::Wrapper(_) | Kind::Marker | Kind::Section => None,
        }
    }

    /// Which tags spell that call.
    pub(super) fn form(&self) -> Option<Form> {
        Some(Form::new(self.spelling()?, &self.tag))
    }

    /// The text of the marker as the tables have it.
    pub(super) fn text(&self) -> String {
        match self.kind {
            Kind::Wrapper(Notation::Angle) => format!("<{}>", self.tag),
            _ => self.tag.clone(),
        }
    }

    /// Where in the opening its tag's name stands.
    fn name_offset(&self) -> usize {
        match self.kind {
            Kind::Fixed(Spelling { tagged, .. }) => tagged.notation.name_offset(),
            Kind::Wrapper(notation) => notation.name_offset(),
            Kind::Tool(..) | Kind::Unknown(_) | Kind::Keyed(_) => 1,
            Kind::Marker | Kind::Section => 0,
        }
    }

    /// Whether nothing but a call begins so.
    fn certain(&self) -> bool {
        match self.kind {
            Kind::Tool(..) | Kind::Fixed(_) => self.first,
            Kind::Marker => is_special(&self.tag),
            Kind::Wrapper(Notation::Angle) => self.first || is_special(&self.tag),
            Kind::Wrapper(_) => true,
            Kind::Unknown(_) | Kind::Keyed(_) | Kind::Section => false,
        }
    }
}

impl Reader {
    /// A call whose tag cannot be understood: over as soon as it began.
    pub(super) fn malformed_call(&mut self, opening: &Opening, fault: Fault, out: &mut dyn Sink) {
        let (index, at) = (self.begin(opening, out), fault.span.end);
        out.event(Event::Fault(&fault.in_call(index)));
        out.event(Event::CallEnd { index, at });
        self.past.malformed(&opening.tag);
        self.state = self.outside();
    }

    /// White space, then whatever decides.
    pub(super) fn opening(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let at = from + take_blank(window.from(from), &mut self.held);
        let rest = window.from(at);
        if rest.is_empty() {
            return Step::To(at);
        }
        let State::Opening(mut opening) = std::mem::replace(&mut self.state, State::Prose) else { return Step::To(at) };
        if matches!(opening.kind, Kind::Section) {
            return self.section(*opening, window, at, out);
        }
        if matches!(opening.kind, Kind::Wrapper(_) | Kind::Marker) {
            let line = self.held.get(opening.len..).is_some_and(|blank| blank.contains('\n'));
            opening.words = opening.first && line && rest.starts_with(|c: char| c.is_alphanumeric());
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
        let fault = self.misread(&opening, next, (rest, at));
        // A tag that names the tool names it beyond doubt: whatever stands in it that is no argument was meant as one.
        let bare = fault.is_none() && (next.is_none() || matches!(opening.kind, Kind::Fixed(_)));
        let json = rest.starts_with('{');
        self.mention_only(*opening, bare.then_some(json), out);
        if let Some(fault) = fault {
            out.event(Event::Fault(&fault));
        }
        Step::To(at)
    }

    /// What is wrong where a tag of an argument follows that does not fit the call's.
    fn misread(&self, opening: &Opening, next: Option<Tag<'_>>, (rest, at): (&str, usize)) -> Option<Fault> {
        let form = opening.form()?;
        let hint = format!("write `{}`", self.right(opening));
        match opening.kind {
            Kind::Fixed(_) => {
                let tag = next.filter(|tag| form.is_prefixed_otherwise(tag))?;
                let span = Span::new(self.offset + at, self.offset + at + tag.len);
                let message =
                    format!("the tag `{}` does not belong to `{}`: their prefixes differ", tag.name, opening.tag);
                Some(Fault::error(FaultKind::MalformedTag, span, message).hint(hint))
            }
            Kind::Keyed(_) if form.begins_half(rest) && self.vocabulary.resolve(&opening.name).is_some() => {
                let span = Span::new(opening.at, opening.at + opening.len);
                let message = format!("`{}` holds a key without a value, or a value without a key", opening.name);
                Some(Fault::error(FaultKind::StrayText, span, message).hint(hint))
            }
            _ => None,
        }
    }

    /// The tag that stands in a wrapper, if it opens a call.
    pub(super) fn open_wrapped(&mut self, wrapper: &Opening, tag: Tag<'_>, at: usize, out: &mut dyn Sink) -> bool {
        let Kind::Wrapper(notation) = wrapper.kind else { return false };
        let Some(spelling) = self.vocabulary.call(tag.name, notation, Some(&wrapper.tag)).filter(|_| !tag.close) else {
            return false;
        };
        // The wrapper is no text, unless what it wraps turns out to be none either.
        self.wrapped = Some(wrapper.tag.as_str().into());
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
            Kind::Wrapper(_) | Kind::Marker | Kind::Section => false,
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
        let before = self.prose.position();
        let index = self.begin_with(opening, tag, tag_at, out);
        if opening.name.is_empty() {
            let message = format!("`<{}>` does not say which tool: it has no name", opening.tag);
            let fault = Fault::error(FaultKind::MissingName, span, message);
            let hint = format!("write `{}` with the tool's name", form.spell_call("…", "…"));
            out.event(Event::Fault(&fault.in_call(index).hint(hint)));
        }
        if let Some(wrapper) = form.wrapper().filter(|_| unwrapped) {
            self.past.unopened = Some(before);
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
            let mut open = Open::new(index, form, tool);
            open.begin_argument(tag, tag_at, out);
            self.state = State::Call(Box::new(open));
        }
        index
    }

    fn begin(&mut self, opening: &Opening, out: &mut dyn Sink) -> u32 {
        let index = self.past.calls;
        self.past.begin_call();
        // A value needs neither; what they have taken is given back.
        self.held.free();
        self.blank.free();
        self.prose.settle();
        let Opening { name, name_at, at, len, .. } = opening;
        let dialect = opening.spelling().map(|spelling| spelling.dialect);
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
        if opening.words && self.words_only(&opening, out) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        if let Some(inside) = self.inside.take() {
            thought::say(&held, out);
            self.state = State::Thought(inside);
        } else {
            self.prose.read(&held);
            self.say(&held, out);
        }
        // The wrapper went out as text with the rest, and so will its end.
        if held.find(&opening.tag) != Some(opening.name_offset()) {
            self.wrapped = None;
        }
        self.held = held;
        self.held.clear();
        if let Some(json) = bare
            && matches!(opening.kind, Kind::Tool(..) | Kind::Fixed(_))
        {
            let (span, right) = (Span::new(opening.at, opening.at + opening.len), self.right(&opening));
            self.past.bare(Bare { tag: opening.tag, name: opening.name, span, right, json });
        }
    }

    /// Words follow a wrapper that stands on a line of its own: the wrapper is markup all the same, and the words are text.
    fn words_only(&mut self, opening: &Opening, out: &mut dyn Sink) -> bool {
        if self.inside.is_some() || self.vocabulary.resolve(&opening.name).is_some() {
            return false;
        }
        let held = std::mem::take(&mut self.held);
        let words = held.get(opening.len..).unwrap_or_default().trim_ascii_start();
        self.past.words(&opening.tag, opening.at, opening.len);
        let (sure, span) = (Certainty::Likely, Span::new(opening.at, opening.at + opening.len));
        let rule = "a wrapper on a line of its own, with words behind it";
        out.event(Event::Mark(Mark { role: MarkRole::Wrapper, dialect: None, span, sure, rule }));
        self.wrapped = Some(opening.tag.as_str().into());
        self.blank.clear();
        self.prose.read(words);
        self.say(words, out);
        true
    }

    /// Behind a marker around calls or messages: it is markup where more markup follows, where calls came before, or at a
    /// start; else a word about it.
    fn section(&mut self, opening: Opening, window: Window<'_>, at: usize, out: &mut dyn Sink) -> Step {
        let rest = window.from(at);
        let follows = match self.vocabulary.markers.spot_special(rest, window.last) {
            Spotted::Marker(_) => Some(true),
            Spotted::Partial => None,
            Spotted::None => match self.lex_any(rest, window.last, true).0 {
                Lexed::Partial => None,
                Lexed::Tag(_) => Some(true),
                Lexed::No => Some(false),
            },
        };
        let Some(follows) = follows else {
            self.state = State::Opening(Box::new(opening));
            return Step::Wait(at);
        };
        if follows || opening.first || self.past.calls > 0 {
            self.drop_section(&opening);
            self.past.tell(out);
            self.state = self.outside();
        } else {
            self.mention_only(opening, None, out);
        }
        Step::To(at)
    }

    /// A marker around calls is no text.
    fn drop_section(&mut self, opening: &Opening) {
        self.past.mark(MarkRole::Wrapper, opening.at, opening.len, "a marker around calls");
        // White space behind it is none either, unless words follow.
        self.blank.clear();
        self.blank.push_str(self.held.get(opening.len..).unwrap_or_default());
        self.held.clear();
        self.prose.refresh();
    }

    /// The text ended behind a marker that may have opened a call.
    pub(super) fn cut_opening(&mut self, opening: Opening, why: Cut, rest: &str, out: &mut dyn Sink) {
        if matches!(opening.kind, Kind::Section) {
            self.drop_section(&opening);
            return self.past.tell(out);
        }
        let named = matches!(opening.kind, Kind::Keyed(_)) && self.vocabulary.resolve(&opening.name).is_some();
        let certain = opening.certain() || (named && opening.first);
        if !certain {
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

pub(super) fn malformed(opening: &Opening, tag: Tag<'_>) -> Fault {
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
