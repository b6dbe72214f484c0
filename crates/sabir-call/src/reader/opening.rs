//! Openings: whether a tag in prose opens a call, decided by what follows it.
//!
//! A known tool's tag opens a call where the tag of an argument, or its own close, follows. Followed by words it is
//! prose; a closing tag later on then earns a fault, since a call without argument tags was probably meant. A tag that
//! no tool has opens a call to an unknown tool where it stands first on its line, reads like a tool's name, and a tag
//! named like some tool's argument follows: the model then hears what is wrong instead of nothing.

use crate::dialect::{CLINE, INVOKE as INVOKE_DIALECT};
use crate::event::{Cut, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::call::{Form, Open};
use super::tag::{Interest, Lexed, Tag, lex};
use super::vocabulary::{INVOKE, PARAMETER, THOUGHTS, base, is_wrapper};
use super::{Reader, State, Step, Window, take_blank};

/// What instructions write where the name of a tool belongs; models write it too.
const PLACEHOLDERS: [&str; 3] = ["tool_name", "function_name", "actual_tool_name"];

/// What a tag in prose is.
pub(super) enum Look {
    /// Text.
    Text,
    /// More text is needed.
    Wait,
    /// A tool's tag with attributes or a slash: a call that is over already, what is wrong with it, and its length.
    Malformed(Opening, Box<Fault>, usize),
    /// The end of the wrapper, of that length.
    Unwrap(usize),
    /// A thought that this tag closes, and the length of its opening tag.
    Thought(&'static str, usize),
    /// Perhaps a call; the length of the tag.
    Open(Opening, usize),
}

/// A tag that may open a call.
#[derive(Debug)]
pub(super) struct Opening {
    kind: Kind,
    /// The tag's name, prefix included.
    tag: String,
    /// The tool's name as written.
    name: String,
    /// Offset of that name.
    name_at: usize,
    /// Offset and length of the tag.
    at: usize,
    len: usize,
    /// Whether the tag stood first on its line.
    first: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The tag of the tool at that position.
    Tool(usize),
    /// A tag that no tool has.
    Unknown,
    /// The wrapper of the invoke dialect.
    Wrapper,
    /// `<invoke …>`.
    Invoke,
}

impl Opening {
    /// The tag that stands at that offset.
    fn new(kind: Kind, tag: Tag<'_>, at: usize, first: bool) -> Self {
        let (name_at, name) = match kind {
            Kind::Invoke => tag.find_attribute("name").unwrap_or_default(),
            _ => (1, tag.name),
        };
        let (tag_name, name) = (tag.name.to_owned(), name.to_owned());
        Self { kind, tag: tag_name, name, name_at: at + name_at, at, len: tag.len, first }
    }

    /// Which tags spell the call that it may open.
    fn form(&self) -> Form {
        match self.kind {
            Kind::Invoke => Form::Invoke(self.tag.strip_suffix(INVOKE).unwrap_or_default().to_owned()),
            _ => Form::Cline,
        }
    }
}

impl Reader {
    /// Judges the tag at the start of `rest`, which stands at `at` in the window.
    pub(super) fn look(&mut self, rest: &str, at: usize, last: bool) -> Look {
        let mention = self.prose.mentions();
        let first = self.prose.at_line_start() && !mention;
        let tag = match lex(rest, last, |name, close| self.interest(name, close, first)) {
            Lexed::No => return Look::Text,
            Lexed::Partial => return Look::Wait,
            Lexed::Tag(tag) => tag,
        };
        if mention {
            // Not even a fence hides that a value may have been meant to go on to here.
            if tag.close {
                self.weigh_end(tag, at);
            } else if !THOUGHTS.contains(&tag.name) {
                self.note_mention("in a code span, a fence or a quotation", tag.name.to_owned(), at, tag.len);
            }
            return Look::Text;
        }
        if tag.close {
            return self.look_at_close(tag, at);
        }
        if let Some(close) = THOUGHTS.into_iter().find(|name| *name == tag.name) {
            return if tag.is_plain() { Look::Thought(close, tag.len) } else { Look::Text };
        }
        self.look_at_open(tag, at, first)
    }

    /// How much a tag in prose matters.
    fn interest(&self, name: &str, close: bool, first: bool) -> Interest {
        let selection = &self.vocabulary.selection;
        if THOUGHTS.contains(&name) {
            return Interest::Plain;
        }
        if self.vocabulary.is_empty() {
            return Interest::None;
        }
        match base(name) {
            _ if is_wrapper(name) && selection.includes(INVOKE_DIALECT) => return Interest::Quoted,
            INVOKE if selection.includes(INVOKE_DIALECT) => return Interest::Any,
            _ => {}
        }
        let ends = |closed: &super::Closed| name == closed.argument_close || name == closed.call_close;
        if close && self.past.closed.iter().any(ends) {
            return Interest::Plain;
        }
        if !selection.includes(CLINE) {
            return Interest::None;
        }
        match self.vocabulary.resolve(name) {
            Some(_) if close => Interest::Plain,
            Some(_) => Interest::Any,
            None if first && !close => Interest::Plain,
            None => Interest::None,
        }
    }

    fn look_at_open(&self, tag: Tag<'_>, at: usize, first: bool) -> Look {
        let start = self.offset + at;
        let (_, base) = tag.split_name();
        let invoke = self.vocabulary.selection.includes(INVOKE_DIALECT);
        let kind = match base {
            _ if invoke && is_wrapper(tag.name) => Kind::Wrapper,
            INVOKE if invoke => Kind::Invoke,
            _ => match self.vocabulary.resolve(tag.name) {
                Some(tool) => Kind::Tool(tool),
                None => Kind::Unknown,
            },
        };
        let opening = Opening::new(kind, tag, start, first);
        match kind {
            Kind::Tool(_) if !tag.is_plain() && !first => Look::Text,
            Kind::Invoke if tag.empty && !first && !self.wrapped => Look::Text,
            Kind::Tool(_) | Kind::Invoke if tag.empty || (kind != Kind::Invoke && !tag.is_plain()) => {
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
        self.state = State::Gap;
    }

    fn look_at_close(&mut self, tag: Tag<'_>, at: usize) -> Look {
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        if self.wrapped && is_wrapper(tag.name) {
            return Look::Unwrap(tag.len);
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
            if tag.name == closed.argument_close {
                closed.noted = Some(position + tag.len);
            } else if closed.noted.is_some_and(|noted| tag.name == closed.call_close && self.prose.blank_since(noted)) {
                doubtful = doubtful.or(Some(at));
            }
        }
        if let Some(at) = doubtful {
            self.doubtful_end(at, span);
        }
    }

    fn bare_call(&mut self, bare: &super::Bare, close: Span) {
        let tool = self.vocabulary.resolve(&bare.name).and_then(|at| self.vocabulary.tool(at));
        let argument = tool.and_then(|tool| tool.arguments.first()).map_or("…", String::as_str);
        let (tag, name) = (&bare.tag, &bare.name);
        let form = if tag == name { Form::Cline } else { Form::Invoke(String::new()) };
        let right = match form {
            Form::Cline => format!("<{name}><{argument}>…</{argument}></{name}>"),
            Form::Invoke(_) => format!("<{tag} name=\"{name}\"><parameter name=\"{argument}\">…</parameter></{tag}>"),
        };
        let message = format!("`{name}` holds words but no argument tags, so it is no call");
        let fault = Fault::error(FaultKind::StrayText, Span::new(bare.span.start, close.end), message);
        self.faults.push(fault.hint(format!("put each argument into its own tag: `{right}`")));
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
            self.faults.push(fault.hint("write each call's closing tags once, or keep them out of its values"));
        }
    }

    /// White space, then whatever decides.
    pub(super) fn opening(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let at = from + take_blank(window.from(from), &mut self.held);
        let rest = window.from(at);
        if rest.is_empty() {
            return Step::To(at);
        }
        // Half a tag at the very end is waited for in vain: the call was cut, not mentioned.
        let next = match lex(rest, false, |_, _| Interest::Any) {
            Lexed::Partial => return Step::Wait(at),
            Lexed::Tag(tag) => Some(tag),
            Lexed::No => None,
        };
        let State::Opening(opening) = std::mem::replace(&mut self.state, State::Prose) else { return Step::To(at) };
        if let (Kind::Wrapper, Some(tag)) = (opening.kind, next.filter(|tag| !tag.close && base(tag.name) == INVOKE)) {
            // The wrapper is no text, unless what it wraps turns out to be none either.
            self.wrapped = true;
            if tag.empty {
                let opening = Opening::new(Kind::Invoke, tag, self.offset + at, opening.first);
                self.malformed_call(&opening, malformed(&opening, tag), out);
                return Step::To(at + tag.len);
            }
            self.held.push_str(rest.get(..tag.len).unwrap_or_default());
            self.state = State::Opening(Opening::new(Kind::Invoke, tag, self.offset + at, opening.first));
            return Step::To(at + tag.len);
        }
        if next.is_some_and(|tag| self.opens(&opening, tag, at, out)) {
            return Step::To(at + next.map_or(0, |tag| tag.len));
        }
        // An invoke tag names a tool beyond doubt: whatever stands in it that is no parameter was meant as one.
        let bare = next.is_none() || opening.kind == Kind::Invoke;
        self.mention_only(opening, bare, out);
        Step::To(at)
    }

    /// Whether the tag behind the opening makes it a call; if so, the call has begun and the tag is taken.
    fn opens(&mut self, opening: &Opening, tag: Tag<'_>, at: usize, out: &mut dyn Sink) -> bool {
        let tag_at = self.offset + at;
        match opening.kind {
            Kind::Wrapper => false,
            Kind::Invoke => self.opens_invoke(opening, tag, tag_at, out),
            Kind::Tool(tool) => {
                let opens = self.opens_tool(opening, tool, tag);
                if opens {
                    self.begin_with(opening, tag, tag_at, out);
                }
                opens
            }
            Kind::Unknown => {
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

    fn opens_invoke(&mut self, opening: &Opening, tag: Tag<'_>, tag_at: usize, out: &mut dyn Sink) -> bool {
        let (prefix, name) = tag.split_name();
        let own = opening.tag.strip_suffix(INVOKE) == Some(prefix);
        if !own || (tag.close && name != INVOKE) || (!tag.close && name != PARAMETER) {
            return false;
        }
        let span = Span::new(opening.at, opening.at + opening.len);
        let (unnamed, unwrapped) = (opening.name.is_empty(), !self.wrapped);
        let index = self.begin_with(opening, tag, tag_at, out);
        if unnamed {
            let fault =
                Fault::error(FaultKind::MissingName, span, "`<invoke>` does not say which tool: it has no name");
            out.event(Event::Fault(&fault.in_call(index).hint("write `<invoke name=\"…\">` with the tool's name")));
        }
        if unwrapped {
            let fault =
                Fault::warning(FaultKind::MissingWrapper, span, "the call stands outside of `<function_calls>`");
            out.event(Event::Fault(
                &fault.in_call(index).hint("put calls between `<function_calls>` and `</function_calls>`"),
            ));
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
            Kind::Tool(tool) => Some(tool),
            _ => self.vocabulary.resolve(&opening.name),
        };
        let index = self.begin(opening, out);
        if tag.close {
            out.event(Event::CallEnd { index, at: tag_at + tag.len });
            self.state = State::Gap;
        } else {
            let mut open = Open::new(index, opening.form(), opening.name.clone(), tool, opening.tag.clone());
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
        let Opening { name, name_at, at, .. } = opening;
        let dialect = Some(opening.form().dialect());
        out.event(Event::CallStart { index, id: None, name, dialect, at: *at, name_at: *name_at });
        index
    }

    /// The tag turned out to be prose.
    fn mention_only(&mut self, opening: Opening, bare: bool, out: &mut dyn Sink) {
        let held = std::mem::take(&mut self.held);
        self.prose.read(&held);
        self.say(&held, out);
        // The wrapper went out as text with the rest, and so will its end.
        self.wrapped &= held.starts_with(&format!("<{}", opening.tag));
        self.held = held;
        self.held.clear();
        if bare && matches!(opening.kind, Kind::Tool(_) | Kind::Invoke) {
            let span = Span::new(opening.at, opening.at + opening.len);
            self.past.bare = Some(super::Bare { tag: opening.tag, name: opening.name, span });
        }
    }

    /// The text ended behind a tag that may have opened a call.
    pub(super) fn cut_opening(&mut self, opening: Opening, why: Cut, rest: &str, out: &mut dyn Sink) {
        let certain = matches!(opening.kind, Kind::Tool(_) | Kind::Invoke) && opening.first;
        if !certain {
            self.mention_only(opening, false, out);
            return self.say(rest, out);
        }
        let index = self.begin(&opening, out);
        out.event(Event::CallCut { index, why, at: self.offset });
    }
}

fn malformed(opening: &Opening, tag: Tag<'_>) -> Fault {
    let message = if tag.empty {
        format!("the tag `{}` closes itself; it must stay open for the arguments", tag.name)
    } else {
        format!("the tag `{}` carries attributes; arguments are tags of their own", tag.name)
    };
    let whole = match opening.kind {
        Kind::Invoke => format!("{} name=\"{}\"", tag.name, opening.name),
        _ => tag.name.to_owned(),
    };
    let span = Span::new(opening.at, opening.at + tag.len);
    let hint = format!("write `<{whole}>`, then one tag for each argument, then `</{}>`", tag.name);
    Fault::error(FaultKind::MalformedTag, span, message).hint(hint)
}
