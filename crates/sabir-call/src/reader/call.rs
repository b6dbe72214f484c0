//! Inside a call: where a value ends.
//!
//! A raw value may hold its own closing tag (a file about this very format). Only the candidate is held, and what follows
//! it after white space decides:
//!
//! * the call's close, or an argument not yet given: the value ends;
//! * an argument already given: the value ends, and the call is rejected, since two readings are possible;
//! * anything else: it was content.
//!
//! Where every value stands on lines of its own and an argument not yet given opens a line, the closing tag is missing and
//! the value ends there, with a warning; a closing tag that then turns out to be content leaves two readings, which rejects
//! the call. A call's close never stands in for its argument's.
//!
//! A complete example of a call inside a value (its opening tag followed by an argument's tag, up to its close) nests, and
//! nothing in it ends the value. Whatever leaves a doubt is weighed in `reader/doubt.rs`; a call is rejected, never guessed.

use crate::event::{ArgForm, Cut, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};
use crate::lanes::find;
use crate::names::Names;

use super::buffer::Buffer;
use super::doubt::{Before, Doubt, Misplaced, Role};
use super::form::Form;
use super::report::Closed;
use super::tag::{Interest, Lexed, Tag};
use super::value::{Feed, Phase, Value};
use super::vocabulary::Vocabulary;
use super::{Reader, State, Step, Window, take_blank};

/// How many pairs of closing tags are remembered. A tool's name and its last argument make one; only text that is made to
/// do harm has more than this.
const CLOSED_CAP: usize = 256;

/// A call that is being read.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) index: u32,
    pub(super) form: Form,
    tool: Option<u32>,
    /// The arguments given so far, and the one that is being read.
    pub(super) given: Names,
    argument: Box<str>,
    pub(super) value: Value,
    /// `None`: there is none.
    pub(super) doubt: Option<Box<Doubt>>,
    /// The byte that every tag begins with.
    first: u8,
}

impl Open {
    pub(super) fn new(index: u32, form: Form, tool: Option<usize>) -> Self {
        let first = form.first_byte();
        Self {
            index,
            form,
            tool: tool.and_then(|tool| u32::try_from(tool).ok()),
            given: Names::default(),
            argument: Box::default(),
            value: Value::new("", false, false),
            doubt: None,
            first,
        }
    }

    /// Takes the tag that opens an argument.
    pub(super) fn begin_argument(&mut self, tag: Tag<'_>, at: usize, out: &mut dyn Sink) {
        let name = &*self.form.decode(self.form.argument(&tag).unwrap_or_default());
        let span = Span::new(at, at + tag.len);
        if self.given.contains(name) {
            let message = format!("`{name}` is given twice, so the value before it could end in two places");
            self.fault(FaultKind::DoubledArgument, span, message, "give each argument once");
        } else if name.is_empty() {
            let message = format!("`<{}>` does not say which argument: it has no name", tag.name);
            let hint = format!("write `{}`", self.form.spell_argument("…"));
            self.fault(FaultKind::MissingName, span, message, &hint);
        }
        let json = self.form.is_json(&tag);
        if self.form.own_arguments() && !tag.is_plain() && !json {
            let message = format!("the tag `{name}` carries attributes");
            self.fault(FaultKind::MalformedTag, span, message, &format!("write `<{name}>`"));
        }
        self.report(out);
        let form = if json { ArgForm::Json } else { ArgForm::Raw };
        out.event(Event::ArgStart { index: self.index, name, form, at: span.end });
        self.given.insert(name);
        self.argument = name.into();
        self.value = Value::new(self.form.value_close(&tag), json, self.form.names_behind());
        if let Some(doubt) = &mut self.doubt {
            (doubt.implied, doubt.stranger) = (false, None);
        }
    }

    pub(super) fn fault(&mut self, kind: FaultKind, span: Span, message: String, hint: &str) {
        let fault = Fault::error(kind, span, message).in_call(self.index).in_argument(&*self.argument);
        self.note(fault.hint(hint));
    }

    /// Takes note of a fault that waits for the text before it.
    pub(super) fn note(&mut self, fault: Fault) {
        self.doubt.get_or_insert_default().faults.push(fault);
    }

    /// The position of its tool.
    pub(super) fn tool(&self) -> Option<usize> {
        self.tool.and_then(|tool| usize::try_from(tool).ok())
    }

    pub(super) fn report(&mut self, out: &mut dyn Sink) {
        for fault in self.doubt.iter_mut().flat_map(|doubt| doubt.faults.drain(..)) {
            out.event(Event::Fault(&fault));
        }
    }
}

impl Reader {
    /// Goes on inside a call.
    pub(super) fn call(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let State::Call(open) = &mut self.state else { return Step::To(from) };
        match open.value.phase {
            Phase::Start => {
                let rest = window.from(from);
                if rest == "\r" && !window.last {
                    return Step::Wait(from);
                }
                open.value.lead = Feed::leads(rest);
                open.value.phase = Phase::Body;
                Step::To(from + open.value.lead.text().len())
            }
            Phase::Body => self.body(window, from, out),
            Phase::Closing(at, feed) => self.closing(window, from, (at, feed), out),
        }
    }

    fn body(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let State::Call(open) = &mut self.state else { return Step::To(from) };
        let (mut at, mut said) = (from, from);
        let first = open.form.first_byte();
        loop {
            let rest = window.from(at);
            let Some(found) = find(first, rest.as_bytes()) else {
                open.value.pass(rest);
                let run = window.from(said);
                let keep = if window.last { 0 } else { open.value.undecided(run) };
                open.emit(run.get(..run.len() - keep), out);
                return Step::Wait(window.text.len() - keep);
            };
            open.value.pass(rest.get(..found).unwrap_or_default());
            at += found;
            let tail = window.from(at);
            let vocabulary = &self.vocabulary;
            let interest = |name: &str, close| open.interest(name, close, vocabulary);
            let lexed = match open.may_matter(tail.as_bytes(), vocabulary) {
                true => open.form.lex(tail, window.last, interest),
                false => Lexed::No,
            };
            let run = window.between(said, at);
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
            if matches!(role, Role::ArgumentOpen) && open.ends_by(&tag, run, vocabulary) {
                open.end_unclosed(run, (tag, span), &mut self.held, out);
                return Step::To(at + tag.len);
            }
            if matches!(role, Role::ArgumentClose) && open.value.depth == 0 {
                let feed = open.emit_value(run, &mut self.held, out);
                self.held.push_str(window.between(at, at + tag.len));
                open.value.phase = Phase::Closing(span.start, feed);
                return Step::To(at + tag.len);
            }
            let ends = open.weigh(&role, tag.name, span);
            if ends || open.has_faults() {
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
    fn closing(&mut self, window: Window<'_>, from: usize, held: (usize, u8), out: &mut dyn Sink) -> Step {
        let at = from + take_blank(window.from(from), &mut self.held);
        let rest = window.from(at);
        if rest.is_empty() {
            return Step::To(at);
        }
        let State::Call(open) = &mut self.state else { return Step::To(at) };
        // Half a tag at the very end decides nothing any more: the argument had ended as far as anybody can see.
        let tag = match open.form.lex(rest, false, |_, _| Interest::Any) {
            Lexed::Partial => return Step::Wait(at),
            Lexed::Tag(tag) => Some(tag),
            Lexed::No => None,
        };
        let Some(tag) = tag else {
            if open.form.begins_half(rest) {
                open.doubt_half(self.offset + at);
            }
            return self.content(at, out);
        };
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        if tag.closes(&open.form.call) {
            self.end_value(held, out);
            self.end_call(span, span.end, out);
            return Step::To(at + tag.len);
        }
        let argument = open.form.argument(&tag);
        let opens = match open.form.own_arguments() {
            false => argument.is_some(),
            true => argument.is_some_and(|name| self.vocabulary.declares(open.tool(), name)),
        };
        if opens {
            self.end_value(held, out);
            let State::Call(open) = &mut self.state else { return Step::To(at) };
            open.begin_argument(tag, span.start, out);
            return Step::To(at + tag.len);
        }
        if tag.close {
            open.doubt.get_or_insert_default().misplaced = Some((Misplaced::Close, tag.name.to_owned(), span));
        } else if open.form.begins_call(&tag, &self.vocabulary) {
            let text = rest.get(..tag.len).unwrap_or_default().to_owned();
            open.doubt.get_or_insert_default().misplaced = Some((Misplaced::Open, text, span));
        } else if tag.is_plain() && self.vocabulary.exact(tag.name).is_none() {
            open.doubt.get_or_insert_default().stranger = Some((tag.name.to_owned(), span));
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
        if let Phase::Closing(close, _) = open.value.phase {
            open.doubt_implied(close);
        }
        open.report(out);
        open.value.phase = Phase::Body;
        open.value.before = Before::Nothing;
        Step::To(at)
    }

    fn end_value(&mut self, (at, feed): (usize, u8), out: &mut dyn Sink) {
        let State::Call(open) = &mut self.state else { return };
        // Only a pair of line feeds is a wrapper: without the second one the first belongs to the value.
        let lead = if feed == 0 { open.value.lead.text() } else { "" };
        out.event(Event::ArgEnd { index: open.index, lead, at: at - usize::from(feed) });
        self.held.clear();
    }

    fn end_call(&mut self, span: Span, value_end: usize, out: &mut dyn Sink) {
        let outside = self.outside();
        let State::Call(open) = std::mem::replace(&mut self.state, outside) else { return };
        if value_end == span.start {
            out.event(Event::ArgEnd { index: open.index, lead: open.value.lead.text(), at: value_end });
        }
        out.event(Event::CallEnd { index: open.index, at: span.end });
        let Open { index, argument, value, given, form, .. } = *open;
        // The end of any of its arguments may have been content, not only the last one's.
        let closes: Vec<&str> = if form.own_arguments() { given.sorted() } else { vec![&value.close] };
        for argument_close in closes {
            let known = |closed: &Closed| &*closed.argument_close == argument_close && closed.call_close == form.call;
            if self.past.closed().len() < CLOSED_CAP && !self.past.closed().iter().any(known) {
                let (argument, argument_close, call_close) =
                    (argument.clone(), argument_close.into(), form.call.clone());
                self.past.closed_mut().push(Closed { index, argument, argument_close, call_close, noted: None });
            }
        }
    }

    /// The text ended inside a call.
    pub(super) fn cut_call(&mut self, mut open: Open, why: Cut, out: &mut dyn Sink) {
        self.held.clear();
        if let Phase::Closing(at, feed) = open.value.phase {
            let lead = if feed == 0 { open.value.lead.text() } else { "" };
            out.event(Event::ArgEnd { index: open.index, lead, at: at - usize::from(feed) });
        }
        open.explain_cut(out);
        out.event(Event::CallCut { index: open.index, why, at: self.offset });
    }
}

impl Open {
    /// Whether an argument's tag ends the value before it, whose closing tag is missing: it stands first on its line in a
    /// value on lines of its own, and opens an argument of the tool that was not given yet.
    fn ends_by(&self, tag: &Tag<'_>, run: &str, vocabulary: &Vocabulary) -> bool {
        let value = &self.value;
        let line = run.ends_with('\n') || (run.is_empty() && value.pending.text().ends_with('\n'));
        if !self.form.on_lines()
            || value.lead == Feed::None
            || value.depth > 0
            || value.before != Before::Nothing
            || !line
        {
            return false;
        }
        let name = self.form.argument(tag).unwrap_or_default();
        self.tool.is_some() && vocabulary.declares(self.tool(), name) && !self.given.contains(name)
    }

    /// Ends the value by the tag of the next argument.
    fn end_unclosed(&mut self, run: &str, (tag, span): (Tag<'_>, Span), held: &mut Buffer, out: &mut dyn Sink) {
        let feed = self.emit_value(run, held, out);
        held.clear();
        let lead = if feed == 0 { self.value.lead.text() } else { "" };
        out.event(Event::ArgEnd { index: self.index, lead, at: span.start - usize::from(feed) });
        let close = self.form.spell_close(&self.value.close);
        let message =
            format!("`{close}` is missing before the next argument; the value of `{}` ends here", self.argument);
        let fault = Fault::error(FaultKind::WrongClose, span, message).in_call(self.index);
        let fault = fault.in_argument(&*self.argument);
        self.note(fault.hint(format!("close each argument with `{close}`")));
        self.begin_argument(tag, span.start, out);
        self.doubt.get_or_insert_default().implied = true;
    }

    /// Behind a closing tag stands a key without a value, or a value without a key: the argument may have ended there.
    fn doubt_half(&mut self, at: usize) {
        let span = Span::new(at, at + 1);
        let message = "a key without a value, or a value without a key, stands behind a closing tag".to_owned();
        let hint = format!("write `{}` for each argument", self.form.spell_argument("…"));
        self.fault(FaultKind::StrayText, span, message, &hint);
    }

    /// A closing tag at that offset that turned out to be content: if no closing tag was seen of the argument before, it
    /// may have closed an example inside that one.
    fn doubt_implied(&mut self, at: usize) {
        if self.doubt.as_mut().is_some_and(|doubt| std::mem::take(&mut doubt.implied)) {
            let close = self.form.spell_close(&self.value.close);
            let message = format!("`{close}` stands here, but more of the call follows: what it closes is not known");
            let span = Span::new(at, at + close.len());
            self.fault(FaultKind::DoubledArgument, span, message, &format!("close each argument with `{close}`"));
        }
    }

    /// The hot path: takes a whole chunk that is nothing but a piece of the value. False: look closer.
    #[inline]
    pub(super) fn take(&mut self, chunk: &str, vocabulary: &Vocabulary, out: &mut dyn Sink) -> bool {
        let value = &self.value;
        let inside = value.phase == Phase::Body && value.before == Before::Nothing && value.pending == Feed::None;
        if !inside || value.undecided(chunk) > 0 || chunk.is_empty() {
            return false;
        }
        let plain = match find(self.first, chunk.as_bytes()) {
            None => true,
            Some(at) => !self.tagged(chunk, at, vocabulary),
        };
        if plain {
            out.event(Event::ArgDelta { index: self.index, text: chunk });
        }
        plain
    }

    /// Whether a tag that matters stands in `chunk`, or begins there; `first` is where the first byte of one stands.
    #[inline(never)]
    fn tagged(&self, chunk: &str, first: usize, vocabulary: &Vocabulary) -> bool {
        let bytes = chunk.as_bytes();
        let mut at = first;
        loop {
            let tail = chunk.get(at..).unwrap_or_default();
            if self.may_matter(tail.as_bytes(), vocabulary)
                && self.form.lex(tail, false, |name, close| self.interest(name, close, vocabulary)) != Lexed::No
            {
                return true;
            }
            match find(self.first, bytes.get(at + 1..).unwrap_or_default()) {
                Some(next) => at += 1 + next,
                None => return false,
            }
        }
    }

    /// Whether a tag that stands at the start of `tail` could matter, by the first letter of its name: most of what begins
    /// with `<` in code is none, and need not be lexed.
    #[inline]
    fn may_matter(&self, tail: &[u8], vocabulary: &Vocabulary) -> bool {
        let letter = match tail {
            _ if self.first != b'<' || self.stranger().is_some() => return true,
            [_, b'/', letter, ..] | [_, letter, ..] => *letter,
            _ => return true,
        };
        let begins = |name: &str| name.as_bytes().first() == Some(&letter);
        matches!(letter, b'/' | b'|' | 0x80..)
            || begins(&self.value.close)
            || begins(&self.form.call)
            || (self.form.own_arguments() && vocabulary.begins_name(letter))
            || self.form.names_behind()
    }

    /// Emits a piece of the value, after the line feed that waited for it.
    fn emit(&mut self, text: Option<&str>, out: &mut dyn Sink) {
        if text.is_some_and(|text| !text.is_empty()) {
            self.flush(out);
            delta(self.index, text, out);
        }
    }

    /// Emits what precedes a closing tag, up to a line feed that may be the wrapper's, which goes to `held`. Returns the
    /// length of that.
    fn emit_value(&mut self, run: &str, held: &mut Buffer, out: &mut dyn Sink) -> u8 {
        held.clear();
        let feed = self.value.trailing(if run.is_empty() { self.value.pending.text() } else { run });
        if run.is_empty() && feed > 0 {
            held.push_str(std::mem::take(&mut self.value.pending).text());
        }
        self.flush(out);
        let (text, rest) = run.split_at_checked(run.len().saturating_sub(usize::from(feed))).unwrap_or((run, ""));
        self.emit(Some(text), out);
        held.push_str(rest);
        feed
    }

    fn flush(&mut self, out: &mut dyn Sink) {
        delta(self.index, Some(std::mem::take(&mut self.value.pending).text()), out);
    }

    fn has_faults(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| !doubt.faults.is_empty())
    }
}

fn delta(index: u32, text: Option<&str>, out: &mut dyn Sink) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        out.event(Event::ArgDelta { index, text });
    }
}
