//! Inside a call: where a value ends.
//!
//! A raw value may hold its own closing tag (a file about this very format). Only the candidate is held, and what follows
//! it after white space decides:
//!
//! * the call's close, or an argument not yet given: the value ends;
//! * an argument already given: the value ends, and the call is rejected, since two readings are possible;
//! * anything else: it was content.
//!
//! A complete example of a call inside a value (its opening tag followed by an argument's tag, up to its close) nests, and
//! nothing in it ends the value. Whatever leaves a doubt (an unknown argument between two closing tags, a call's close
//! without its argument's, a closing tag of an argument that had ended before) is noted; if the doubt is confirmed by what
//! follows, the call is rejected and never guessed.

use crate::dialect::{CLINE, INVOKE as INVOKE_DIALECT};
use crate::event::{ArgForm, Cut, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::tag::{Interest, Lexed, Tag, lex};
use super::vocabulary::{PARAMETER, Vocabulary};
use super::{Closed, Reader, State, Step, take_blank};

/// Which tags spell a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// The tool's and the arguments' own names.
    Cline,
    /// `invoke` and `parameter`, with this prefix.
    Invoke(String),
}

/// A call that is being read.
#[derive(Debug)]
pub(super) struct Open {
    index: u32,
    form: Form,
    name: String,
    tool: Option<usize>,
    pub(super) call_close: String,
    given: Vec<String>,
    value: Value,
    doubt: Doubt,
    /// Faults that wait for the text before them.
    faults: Vec<Fault>,
}

/// The value that is being read.
#[derive(Debug)]
struct Value {
    /// The closing tag's name.
    close: String,
    phase: Phase,
    /// The line feed that the value began with.
    lead: &'static str,
    /// A line feed that stood behind a candidate which was content, and may yet be the last of the value.
    pending: &'static str,
    /// How many complete examples of a call we are in.
    depth: u32,
    /// Arguments opened inside the value and not closed there.
    inner: Vec<String>,
    /// The tag before, if only white space has followed it.
    before: Before,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the first byte.
    Start,
    /// In the value.
    Body,
    /// Behind a closing tag at that offset, which is held behind so many bytes of line feed.
    Closing(usize, usize),
}

/// What the last tag inside a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A call's opening tag.
    Open,
    /// A closing tag of an argument that had ended before.
    Ended,
    /// The closing tag of an unknown argument.
    Stranger,
}

/// What may be wrong with the call although its text can be read.
#[derive(Debug, Default)]
struct Doubt {
    /// A tag between a closing tag and a call's close that no argument has.
    stranger: Option<(String, Span)>,
    /// A call's close without the argument's.
    unclosed: Option<Span>,
    /// A closing tag in the wrong place.
    wrong_close: Option<(String, Span)>,
    /// The fault is out.
    told: bool,
}

/// What a tag inside a value means.
enum Role {
    /// Ends the argument.
    ArgumentClose,
    /// Ends a call of this kind.
    CallClose,
    /// Opens a call.
    CallOpen,
    /// Opens an argument.
    ArgumentOpen,
    /// Closes another argument.
    OtherClose,
    /// Closes the stranger.
    StrangerClose,
    /// Nothing.
    Content,
}

impl Form {
    /// The dialect's name.
    pub(super) fn dialect(&self) -> &'static str {
        match self {
            Self::Cline => CLINE,
            Self::Invoke(_) => INVOKE_DIALECT,
        }
    }

    /// The name of the argument that a tag opens.
    fn argument<'t>(&self, tag: &Tag<'t>) -> Option<&'t str> {
        match self {
            Self::Cline if !tag.close => Some(tag.name),
            Self::Invoke(prefix) if !tag.close && tag.split_name() == (prefix, PARAMETER) => {
                Some(tag.attribute("name").unwrap_or_default())
            }
            _ => None,
        }
    }
}

impl Open {
    pub(super) fn new(index: u32, form: Form, name: String, tool: Option<usize>) -> Self {
        let call_close = name.clone();
        let (given, doubt) = (Vec::new(), Doubt::default());
        let (value, faults) = (Value::new(String::new(), false), Vec::new());
        Self { index, form, name, tool, call_close, given, value, doubt, faults }
    }

    /// Takes the tag that opens an argument.
    pub(super) fn begin_argument(&mut self, tag: Tag<'_>, at: usize, out: &mut dyn Sink) {
        let name = self.form.argument(&tag).unwrap_or_default();
        let span = Span::new(at, at + tag.len);
        if self.given.iter().any(|given| given == name) {
            let message = format!("`{name}` is given twice, so the value before it could end in two places");
            self.fault(FaultKind::DoubledArgument, span, message, "give each argument once");
        } else if name.is_empty() {
            let message = "`<parameter>` does not say which argument: it has no name";
            self.fault(FaultKind::MissingName, span, message.to_owned(), "write `<parameter name=\"…\">`");
        }
        let json = tag.attribute("encoding") == Some("json");
        if self.form == Form::Cline && !tag.is_plain() && !json {
            let message = format!("the tag `{name}` carries attributes");
            self.fault(FaultKind::MalformedTag, span, message, &format!("write `<{name}>`"));
        }
        self.report(out);
        let form = if json { ArgForm::Json } else { ArgForm::Raw };
        out.event(Event::ArgStart { index: self.index, name, form, at: span.end });
        self.given.push(name.to_owned());
        self.value = Value::new(tag.name.to_owned(), json);
        self.doubt.stranger = None;
    }

    fn fault(&mut self, kind: FaultKind, span: Span, message: String, hint: &str) {
        let argument = self.given.last().cloned().unwrap_or_default();
        self.faults.push(Fault::error(kind, span, message).in_call(self.index).in_argument(argument).hint(hint));
    }

    fn report(&mut self, out: &mut dyn Sink) {
        for fault in self.faults.drain(..) {
            out.event(Event::Fault(&fault));
        }
    }

    fn role(&self, tag: &Tag<'_>, vocabulary: &Vocabulary) -> Role {
        if tag.closes(&self.value.close) {
            return Role::ArgumentClose;
        }
        if tag.closes(&self.call_close) {
            return Role::CallClose;
        }
        if self.doubt.stranger.as_ref().is_some_and(|(name, _)| tag.closes(name)) {
            return Role::StrangerClose;
        }
        match &self.form {
            Form::Invoke(_) if tag.opens(&self.call_close) => Role::CallOpen,
            Form::Invoke(_) if self.form.argument(tag).is_some() => Role::ArgumentOpen,
            Form::Invoke(_) => Role::Content,
            Form::Cline if vocabulary.declares(self.tool, tag.name) && self.tool.is_some() => {
                if tag.close {
                    Role::OtherClose
                } else {
                    Role::ArgumentOpen
                }
            }
            Form::Cline if !tag.close && (tag.name == self.name || vocabulary.exact(tag.name).is_some()) => {
                Role::CallOpen
            }
            Form::Cline => Role::Content,
        }
    }

    fn interest(&self, name: &str, close: bool, vocabulary: &Vocabulary) -> Interest {
        if name == self.value.close || name == self.call_close {
            return if close || self.form == Form::Cline { Interest::Plain } else { Interest::Any };
        }
        let stranger = self.doubt.stranger.as_ref().is_some_and(|(stranger, _)| close && name == stranger);
        let known = match &self.form {
            Form::Cline => {
                (self.tool.is_some() && vocabulary.declares(self.tool, name)) || vocabulary.exact(name).is_some()
            }
            Form::Invoke(_) => false,
        };
        if stranger || known { Interest::Plain } else { Interest::None }
    }

    /// Weighs a tag inside the value that does not end it. True: the call ends here, rejected.
    fn weigh(&mut self, role: &Role, name: &str, span: Span) -> bool {
        let before = std::mem::replace(&mut self.value.before, Before::Nothing);
        let top = self.value.depth == 0;
        match role {
            Role::CallOpen => {
                // An example of another tool has closing tags of its own and ends nothing here.
                if name == self.call_close {
                    self.value.before = Before::Open;
                }
                if top && self.doubt.unclosed.is_some() {
                    self.tell_unclosed();
                }
            }
            Role::ArgumentOpen if top && before == Before::Stranger => self.tell_stranger(),
            Role::ArgumentOpen if before == Before::Open => self.value.depth = self.value.depth.saturating_add(1),
            Role::ArgumentOpen | Role::CallClose if top && before == Before::Ended => {
                let message = "a value that had ended seems to go on: its closing tag stands twice".to_owned();
                self.tell(FaultKind::DoubledArgument, span, message, "give each argument once, whole");
            }
            Role::ArgumentOpen if top => self.value.inner.push(name.to_owned()),
            Role::CallClose if !top => self.value.depth -= 1,
            Role::CallClose if before == Before::Stranger => {
                self.tell_stranger();
                return true;
            }
            Role::CallClose if before != Before::Open => _ = self.doubt.unclosed.get_or_insert(span),
            Role::OtherClose if top => match self.value.inner.iter().rposition(|inner| inner == name) {
                Some(at) => _ = self.value.inner.remove(at),
                None if self.given.iter().any(|given| given == name) => self.value.before = Before::Ended,
                None => {}
            },
            Role::StrangerClose if top => self.value.before = Before::Stranger,
            _ => {}
        }
        false
    }

    fn tell(&mut self, kind: FaultKind, span: Span, message: String, hint: &str) {
        if !std::mem::replace(&mut self.doubt.told, true) {
            self.fault(kind, span, message, hint);
        }
    }

    fn tell_stranger(&mut self) {
        let Some((name, span)) = self.doubt.stranger.take() else { return };
        let message = format!("`{}` has no argument `{name}`", self.name);
        self.tell(FaultKind::UnknownArgument, span, message, "leave it out, or use a declared argument");
    }

    fn tell_unclosed(&mut self) {
        let Some(span) = self.doubt.unclosed else { return };
        let (call, argument) = (self.call_close.clone(), self.value.close.clone());
        let message = format!("`</{call}>` stands here while `{argument}` is still open: `</{argument}>` is missing");
        self.tell(FaultKind::WrongClose, span, message, &format!("close the argument with `</{argument}>` first"));
    }

    /// What the end of the text says about a call that was not closed.
    fn explain_cut(&mut self, out: &mut dyn Sink) {
        if let Some((name, span)) = self.doubt.wrong_close.take() {
            let message = format!("`</{name}>` stands where `</{}>` was expected", self.call_close);
            self.tell(FaultKind::WrongClose, span, message, &format!("close the call with `</{}>`", self.call_close));
        }
        self.tell_unclosed();
        self.report(out);
    }
}

impl Value {
    /// In JSON text, where the argument's tag says so, a line feed at the start means nothing.
    fn new(close: String, json: bool) -> Self {
        let phase = if json { Phase::Body } else { Phase::Start };
        Self { close, phase, lead: "", pending: "", depth: 0, inner: Vec::new(), before: Before::Nothing }
    }

    /// Length of the line feed at the end of `text` that would pair with the one at the start of the value.
    fn trailing(&self, text: &str) -> usize {
        let pairs = match self.lead {
            "\r\n" => text.ends_with("\r\n"),
            "\n" => text.ends_with('\n') && !text.ends_with("\r\n"),
            _ => false,
        };
        if pairs { self.lead.len() } else { 0 }
    }

    /// Splits off the line feed at the end that must wait for what follows.
    fn split_pending<'t>(&self, text: &'t str) -> (&'t str, &'static str) {
        let pending = match self.undecided(text) {
            0 => "",
            2 => "\r\n",
            _ if text.ends_with('\r') => "\r",
            _ => "\n",
        };
        (text.get(..text.len() - pending.len()).unwrap_or_default(), pending)
    }

    /// Length of what must wait at the end of a chunk because it may become that line feed.
    fn undecided(&self, text: &str) -> usize {
        match self.lead {
            "" => 0,
            _ if text.ends_with("\r\n") => 2,
            _ if text.ends_with('\n') || text.ends_with('\r') => 1,
            _ => 0,
        }
    }
}

impl Reader {
    /// Goes on inside a call.
    pub(super) fn call(&mut self, window: &str, from: usize, last: bool, out: &mut dyn Sink) -> Step {
        let State::Call(open) = &mut self.state else { return Step::To(from) };
        match open.value.phase {
            Phase::Start => {
                let rest = window.get(from..).unwrap_or_default();
                if rest == "\r" && !last {
                    return Step::Wait(from);
                }
                let lead = ["\r\n", "\n"].into_iter().find(|lead| rest.starts_with(lead));
                open.value.lead = lead.unwrap_or_default();
                open.value.phase = Phase::Body;
                Step::To(from + open.value.lead.len())
            }
            Phase::Body => self.body(window, from, last, out),
            Phase::Closing(at, feed) => self.closing(window, from, last, (at, feed), out),
        }
    }

    fn body(&mut self, window: &str, from: usize, last: bool, out: &mut dyn Sink) -> Step {
        let State::Call(open) = &mut self.state else { return Step::To(from) };
        let (mut at, mut said) = (from, from);
        loop {
            let rest = window.get(at..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'<', rest.as_bytes()) else {
                open.pass(rest);
                let run = window.get(said..).unwrap_or_default();
                let keep = if last { 0 } else { open.value.undecided(run) };
                open.emit(run.get(..run.len() - keep), out);
                return Step::Wait(window.len() - keep);
            };
            open.pass(rest.get(..found).unwrap_or_default());
            at += found;
            let tail = window.get(at..).unwrap_or_default();
            let vocabulary = &self.vocabulary;
            let lexed = lex(tail, last, |name, close| open.interest(name, close, vocabulary));
            let run = window.get(said..at).unwrap_or_default();
            let tag = match lexed {
                Lexed::No => {
                    open.value.before = Before::Nothing;
                    at += 1;
                    continue;
                }
                Lexed::Partial => {
                    let keep = open.value.undecided(run);
                    open.emit(run.get(..run.len() - keep), out);
                    return Step::Wait(at - keep);
                }
                Lexed::Tag(tag) => tag,
            };
            let role = open.role(&tag, vocabulary);
            let span = Span::new(self.offset + at, self.offset + at + tag.len);
            if matches!(role, Role::ArgumentClose) && open.value.depth == 0 {
                let mut feed = open.value.trailing(run);
                open.emit(run.get(..run.len() - feed), out);
                self.held.clear();
                if run.is_empty() {
                    feed = open.value.trailing(open.value.pending);
                    self.held.push_str(std::mem::take(&mut open.value.pending));
                }
                self.held.push_str(window.get(at - feed.min(run.len())..at + tag.len).unwrap_or_default());
                open.value.phase = Phase::Closing(span.start, feed);
                return Step::To(at + tag.len);
            }
            let ends = open.weigh(&role, tag.name, span);
            if ends || !open.faults.is_empty() {
                open.emit(Some(run), out);
                open.report(out);
                said = at;
            }
            if ends {
                open.flush(out);
                self.end_call(span, span.start, out);
                return Step::To(at + tag.len);
            }
            at += tag.len;
        }
    }

    /// Behind a candidate: white space, then whatever decides.
    fn closing(&mut self, window: &str, from: usize, last: bool, held: (usize, usize), out: &mut dyn Sink) -> Step {
        let rest = window.get(from..).unwrap_or_default();
        let at = from + take_blank(rest, &mut self.held);
        let Some(rest) = window.get(at..).filter(|rest| !rest.is_empty()) else { return Step::To(at) };
        let tag = match lex(rest, last, |_, _| Interest::Any) {
            Lexed::Partial => return Step::Wait(at),
            Lexed::Tag(tag) => Some(tag),
            Lexed::No => None,
        };
        let State::Call(open) = &mut self.state else { return Step::To(at) };
        let Some(tag) = tag else { return self.content(at, out) };
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        if tag.closes(&open.call_close) {
            self.end_value(held, out);
            self.end_call(span, span.end, out);
            return Step::To(at + tag.len);
        }
        let argument = open.form.argument(&tag);
        let opens = match &open.form {
            Form::Invoke(_) => argument.is_some(),
            Form::Cline => argument.is_some_and(|name| self.vocabulary.declares(open.tool, name)),
        };
        if opens {
            self.end_value(held, out);
            let State::Call(open) = &mut self.state else { return Step::To(at) };
            open.begin_argument(tag, span.start, out);
            return Step::To(at + tag.len);
        }
        if tag.close {
            open.doubt.wrong_close = Some((tag.name.to_owned(), span));
        } else if tag.is_plain() && self.vocabulary.exact(tag.name).is_none() {
            open.doubt.stranger = Some((tag.name.to_owned(), span));
        }
        self.content(at, out)
    }

    /// The candidate was content after all.
    fn content(&mut self, at: usize, out: &mut dyn Sink) -> Step {
        let State::Call(open) = &mut self.state else { return Step::To(at) };
        let (text, pending) = open.value.split_pending(&self.held);
        delta(open.index, Some(text), out);
        open.value.pending = pending;
        self.held.clear();
        open.value.phase = Phase::Body;
        open.value.before = Before::Nothing;
        Step::To(at)
    }

    fn end_value(&mut self, (at, feed): (usize, usize), out: &mut dyn Sink) {
        let State::Call(open) = &mut self.state else { return };
        // Only a pair of line feeds is a wrapper: without the second one the first belongs to the value.
        let lead = if feed == 0 { open.value.lead } else { "" };
        out.event(Event::ArgEnd { index: open.index, lead, at: at - feed });
        self.held.clear();
    }

    fn end_call(&mut self, span: Span, value_end: usize, out: &mut dyn Sink) {
        let State::Call(open) = std::mem::replace(&mut self.state, State::Gap) else { return };
        if value_end == span.start {
            out.event(Event::ArgEnd { index: open.index, lead: open.value.lead, at: value_end });
        }
        out.event(Event::CallEnd { index: open.index, at: span.end });
        let argument = open.given.last().cloned().unwrap_or_default();
        let (argument_close, call_close) = (open.value.close, open.call_close);
        let known = |closed: &Closed| closed.argument_close == argument_close && closed.call_close == call_close;
        if !self.closed.iter().any(known) {
            self.closed.push(Closed { index: open.index, argument, argument_close, call_close, noted: None });
        }
    }

    /// The text ended inside a call.
    pub(super) fn cut_call(&mut self, mut open: Open, why: Cut, out: &mut dyn Sink) {
        let held = std::mem::take(&mut self.held);
        if let Phase::Closing(at, feed) = open.value.phase {
            let lead = if feed == 0 { open.value.lead } else { "" };
            out.event(Event::ArgEnd { index: open.index, lead, at: at - feed });
        }
        self.held = held;
        self.held.clear();
        open.explain_cut(out);
        out.event(Event::CallCut { index: open.index, why, at: self.offset });
    }
}

impl Open {
    /// Emits a piece of the value, after the line feed that waited for it.
    fn emit(&mut self, text: Option<&str>, out: &mut dyn Sink) {
        if text.is_some_and(|text| !text.is_empty()) {
            self.flush(out);
            delta(self.index, text, out);
        }
    }

    fn flush(&mut self, out: &mut dyn Sink) {
        delta(self.index, Some(std::mem::take(&mut self.value.pending)), out);
    }

    /// Takes note of text between two tags of a value.
    fn pass(&mut self, text: &str) {
        if self.value.before != Before::Nothing && text.bytes().any(|byte| !byte.is_ascii_whitespace()) {
            self.value.before = Before::Nothing;
        }
    }
}

fn delta(index: u32, text: Option<&str>, out: &mut dyn Sink) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        out.event(Event::ArgDelta { index, text });
    }
}
