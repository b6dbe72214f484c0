//! What follows a marker decides which of the dialects that have it is meant, and which machine reads on.
//!
//! `<tool_call>` alone opens calls in three dialects: an object behind it is hermes, a `<function=…>` tag qwen_coder, a
//! name with an `<arg_key>` behind it glm. Behind `[TOOL_CALLS]` stands an array, or a name and `[ARGS]`. Whatever fits none
//! of them was prose; a special token, which nobody writes by accident, then earns a fault.

use crate::dialect::grammar::{Head, JsonForm};
use crate::event::{Certainty, Cut, Event, Mark, MarkRole, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::gemma::Gemma;
use super::markers::{GEMMA, Marker, MarkerKind, is_special};
use super::opening::{Kind, Opening};
use super::payload::{self, Markers, Payload};
use super::python::{METHOD, Python};
use super::region::Machine;
use super::tag::{Interest, Lexed, lex_in};
use super::thought::Thought;
use super::{Reader, State, Step, Window};

/// The longest text between a marker and the JSON of the arguments, in bytes.
const HEAD_CAP: usize = 256;
/// Ends the header of a message of the harmony dialect.
const MESSAGE: &str = "<|message|>";
/// The longest word behind a fence, in bytes.
const LANGUAGE_CAP: usize = 16;
/// A fence of Markdown.
const FENCE: &str = "```";

/// Behind a marker, before the JSON that the tool's name stands before.
#[derive(Debug)]
pub(super) struct Heading {
    opening: Opening,
    dialect: &'static str,
    /// How the call is written; `None`: a message of the harmony dialect.
    form: Option<JsonForm>,
}

/// What stands behind a marker.
enum Follow {
    /// More text is needed.
    Wait,
    /// What this machine reads.
    Region(&'static str, Machine),
    /// A name, or a header.
    Head(&'static str, Option<JsonForm>),
    /// A name of that length, which tags follow.
    Word(usize),
    /// Nothing that belongs to it.
    No,
}

/// Where a head ends.
enum Ends {
    /// More text is needed.
    Wait,
    /// Before this byte; what belongs to the call goes on at that one.
    At(usize, usize),
    /// Nowhere: it is none.
    No,
    /// The text ends in it.
    Cut,
}

impl Heading {
    fn ends(&self, rest: &str, last: bool) -> Ends {
        let end = self.form.and_then(|form| form.head).map_or(MESSAGE, |head| head.end);
        let special = is_special(&self.opening.tag);
        let cap = rest.floor_char_boundary(rest.len().min(HEAD_CAP + end.len()));
        let head = rest.get(..cap).unwrap_or_default();
        // No name holds a brace, so that what ends the name may be missing behind a special token.
        let brace = head.find('{').filter(|_| special && self.form.is_some()).map(|at| (at, at));
        let ended = head.find(end).map(|at| (at, at + end.len()));
        let found = ended.filter(|(at, _)| brace.is_none_or(|(brace, _)| *at < brace)).or(brace);
        let Some((at, next)) = found else {
            return match last {
                true => Ends::Cut,
                false if rest.len() < HEAD_CAP + end.len() => Ends::Wait,
                false => Ends::No,
            };
        };
        let Some(form) = self.form.filter(|_| !special) else { return Ends::At(at, next) };
        // Words, not tokens, are a head only with JSON behind them, or with what closes the call.
        let behind = rest.get(next..).unwrap_or_default();
        let text = behind.trim_ascii_start();
        let closes = !form.close.is_empty() && text.starts_with(form.close);
        if closes || text.starts_with(['{', '"', '`']) {
            return Ends::At(at, next);
        }
        match begins(text, form.close, false) || text.is_empty() {
            true if behind.len() - text.len() > HEAD_CAP => Ends::No,
            true if last => Ends::Cut,
            true => Ends::Wait,
            false => Ends::No,
        }
    }
}

impl Reader {
    /// Behind a marker and white space, at text that decides.
    pub(super) fn follow(&mut self, opening: Opening, window: Window<'_>, at: usize, out: &mut dyn Sink) -> Step {
        let rest = window.from(at);
        if let Kind::Wrapper(notation) = opening.kind {
            match lex_in(notation, rest, false, |_, _| Interest::Any) {
                Lexed::Partial => {
                    self.state = State::Opening(Box::new(opening));
                    return Step::Wait(at);
                }
                Lexed::Tag(tag) if self.open_wrapped(&opening, tag, at, out) => {
                    self.held.push_str(rest.get(..tag.len).unwrap_or_default());
                    return Step::To(at + tag.len);
                }
                Lexed::Tag(_) | Lexed::No => {}
            }
        }
        match self.what_follows(&opening, rest, window.last) {
            Follow::Wait => {
                self.state = State::Opening(Box::new(opening));
                Step::Wait(at)
            }
            Follow::Region(dialect, region) => {
                self.take_marker(&opening, dialect, out);
                self.state = State::Region(region);
                Step::To(at)
            }
            Follow::Head(dialect, form) => {
                self.state = State::Heading(Box::new(Heading { opening, dialect, form }));
                Step::To(at)
            }
            Follow::Word(len) => {
                let tag = opening.tag.trim_matches(['<', '>']).to_owned();
                let Some(spelling) = self.vocabulary.keyed(&tag) else { return Step::To(at) };
                let name = rest.get(..len).unwrap_or_default();
                self.held.push_str(name);
                let (kind, name_at) = (Kind::Keyed(spelling), self.offset + at);
                let named = Opening { kind, tag, name: name.to_owned(), name_at, ..opening };
                self.state = State::Opening(Box::new(named));
                Step::To(at + len)
            }
            Follow::No => {
                if let Some(dialect) = self.unheard_behind(&opening, rest) {
                    self.past.unheard(dialect, opening.at, opening.len);
                }
                self.not_followed(opening, out);
                Step::To(at)
            }
        }
    }

    fn what_follows(&self, opening: &Opening, rest: &str, last: bool) -> Follow {
        let text = opening.text();
        let wrapper = opening.tag.trim_matches(['<', '>']);
        let inner = rest.get(1..).unwrap_or_default().trim_ascii_start();
        let list = rest.starts_with('[');
        if list && inner.is_empty() && rest.len() <= HEAD_CAP && !last {
            return Follow::Wait;
        }
        let word = word_length(rest);
        // At the very end half a name is waited for in vain: the call was cut, not mentioned.
        let headed = |marker: &Marker| matches!(marker.kind, MarkerKind::Json(JsonForm { head: Some(_), .. }));
        let named = self.vocabulary.keyed(wrapper).is_some() || self.vocabulary.markers.meanings(&text).any(headed);
        if word == rest.len() && word <= HEAD_CAP && (!last || named) {
            return Follow::Wait;
        }
        let called = rest.get(word..).is_some_and(|behind| behind.starts_with('('));
        let python = (list && word_length(inner) > 0) || (word > 0 && called);
        let special = is_special(&text);
        // Behind a word or a tag that prose may hold, an array is one of calls only if it holds objects.
        let json = rest.starts_with('{') || (list && !python && (special || inner.starts_with('{')));
        let (index, at) = (self.past.calls, opening.at);
        for Marker { dialect, kind, .. } in self.vocabulary.markers.meanings(&text) {
            match *kind {
                MarkerKind::Json(JsonForm { head: None, close, .. })
                    if (special || !close.is_empty()) && fenced(rest, last).is_none() =>
                {
                    return Follow::Wait;
                }
                MarkerKind::Json(JsonForm { head: None, close, stop, .. })
                    if json || ((special || !close.is_empty()) && fenced(rest, last) == Some(true)) =>
                {
                    let markers = Markers { dialect, close, stop, sure: self.certainty(&text) };
                    return Follow::Region(dialect, Machine::Json(Box::new(Payload::calls(markers, index, at))));
                }
                MarkerKind::Python(table) if python => {
                    return Follow::Region(dialect, Machine::Python(Box::new(Python::new(table, dialect, index, at))));
                }
                MarkerKind::Gemma(table, bare) => match notes(rest, bare, last) {
                    Some(true) => {
                        let gemma = Gemma::new((table, bare), dialect, index, at);
                        return Follow::Region(dialect, Machine::Gemma(Box::new(gemma)));
                    }
                    Some(false) => {}
                    None => return Follow::Wait,
                },
                MarkerKind::Json(form) => match form.head.map_or(Some(false), |head| heads(rest, &form, head, last)) {
                    Some(true) => return Follow::Head(dialect, Some(form)),
                    Some(false) => {}
                    None => return Follow::Wait,
                },
                MarkerKind::Methods if python && !list && self.names_method(rest.get(..word).unwrap_or_default()) => {
                    let python = Python::methods(dialect, index, at);
                    return Follow::Region(dialect, Machine::Python(Box::new(python)));
                }
                MarkerKind::Channel | MarkerKind::Headless => return Follow::Head(dialect, None),
                _ => {}
            }
        }
        if word > 0 && !called && self.vocabulary.keyed(wrapper).is_some() { Follow::Word(word) } else { Follow::No }
    }

    /// Whether a word means a tool, or the method that calls one.
    fn names_method(&self, word: &str) -> bool {
        self.vocabulary.means(word.strip_suffix(METHOD).unwrap_or(word))
    }

    /// The dialect that is not listened for and has this marker with what stands behind it.
    fn unheard_behind(&self, opening: &Opening, rest: &str) -> Option<&'static str> {
        if !opening.first {
            return None;
        }
        if rest.starts_with('{') {
            return self.vocabulary.markers.owner(&opening.text());
        }
        let name = rest.get(..word_length(rest)).unwrap_or_default();
        self.vocabulary.unheard_keyed(opening.tag.trim_matches(['<', '>']), name)
    }

    /// How sure a marker makes us.
    fn certainty(&self, marker: &str) -> Certainty {
        let certain = self.vocabulary.selection.is_chosen() || is_special(marker);
        if certain { Certainty::Certain } else { Certainty::Likely }
    }

    /// The marker is none of the text.
    fn take_marker(&mut self, opening: &Opening, dialect: &'static str, out: &mut dyn Sink) {
        let (sure, span) = (self.certainty(&opening.tag), Span::new(opening.at, opening.at + opening.len));
        let rule = "a marker before calls, with what belongs behind it";
        out.event(Event::Mark(Mark { role: MarkRole::Wrapper, dialect: Some(dialect), span, sure, rule }));
        // A value needs neither; what they have taken is given back.
        self.held.free();
        self.blank.free();
    }

    /// A call whose name stands before the JSON of its arguments.
    fn begin_arguments(
        &mut self,
        opening: &Opening,
        (dialect, close, stop): (&'static str, &'static str, bool),
        (name, name_at, id): (&str, usize, Option<&str>),
        out: &mut dyn Sink,
    ) {
        self.take_marker(opening, dialect, out);
        let markers = Markers { dialect, close, stop, sure: self.certainty(&opening.tag) };
        let head = payload::Head { index: self.past.calls, id, name, at: opening.at, name_at };
        self.state = State::Region(Machine::Json(Box::new(Payload::arguments(markers, head, out))));
    }

    /// The marker was prose after all.
    fn not_followed(&mut self, opening: Opening, out: &mut dyn Sink) {
        // In the middle of a line it is a word about the marker.
        let meant = is_special(&opening.tag) && !opening.words && opening.first && self.past.stray();
        let stray = meant.then(|| {
            let span = Span::new(opening.at, opening.at + opening.len);
            let message = format!("`{}` opens a call, but no call follows", opening.tag);
            let fault = Fault::error(FaultKind::StrayText, span, message);
            fault.hint("write the call right behind the marker, or leave the marker out")
        });
        self.mention_only(opening, None, out);
        if let Some(fault) = stray {
            out.event(Event::Fault(&fault));
        }
    }

    /// JSON in a tag that names the tool behind an equals sign (`<function=f>{…}</function>`).
    pub(super) fn json_body(&mut self, opening: &Opening, out: &mut dyn Sink) -> bool {
        let Kind::Fixed(spelling) = opening.kind else { return false };
        let Some(close) = spelling.json_close() else { return false };
        let name = (opening.name.as_str(), opening.name_at, None);
        self.begin_arguments(opening, (spelling.dialect, close, false), name, out);
        true
    }

    /// Reads a head up to its end.
    pub(super) fn heading(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let State::Heading(heading) = &self.state else { return Step::To(from) };
        let rest = window.from(from);
        let ends = heading.ends(rest, window.last);
        if let Ends::Wait = ends {
            return Step::Wait(from);
        }
        let State::Heading(heading) = std::mem::replace(&mut self.state, State::Prose) else { return Step::To(from) };
        let Ends::At(length, next) = ends else {
            if let Ends::Cut = ends {
                self.cut_heading(*heading, Cut::Ended, rest, out);
                return Step::To(window.text.len());
            }
            self.not_followed(heading.opening, out);
            return Step::To(from);
        };
        let head = rest.get(..length).unwrap_or_default();
        let Heading { opening, dialect, form } = *heading;
        match form {
            Some(form) => self.begin_headed((&opening, dialect, form), head, self.offset + from, out),
            None => self.begin_channel(&opening, head, self.offset + from, out),
        }
        Step::To(from + next)
    }

    fn begin_headed(
        &mut self,
        (opening, dialect, form): (&Opening, &'static str, JsonForm),
        head: &str,
        at: usize,
        out: &mut dyn Sink,
    ) {
        let Some(Head { prefix, id, .. }) = form.head else { return };
        let text = head.trim();
        let start = at + head.len() - head.trim_start().len();
        let (name, call_id) = match id {
            Some(":") => match text.rsplit_once(':') {
                Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => (name, Some(text)),
                _ => (text, None),
            },
            Some(separator) => match text.split_once(separator) {
                Some((name, id)) => (name.trim_end(), Some(id.trim())),
                None => (text, None),
            },
            None => (text, None),
        };
        let bare = name.strip_prefix(prefix).unwrap_or(name);
        let name_at = start + name.len() - bare.len();
        self.begin_arguments(opening, (dialect, form.close, form.stop), (bare, name_at, call_id), out);
    }

    /// A message of the harmony dialect, by its header.
    fn begin_channel(&mut self, opening: &Opening, header: &str, at: usize, out: &mut dyn Sink) {
        // Where the marker is a part of the header, the recipient follows it.
        let headless = if is_special(&opening.tag) { "" } else { &opening.tag };
        let (header, at) = (&*format!("{headless}{header}"), at.saturating_sub(headless.len()));
        let until = |text: &str| text.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(text.len());
        let channel = if opening.tag == "<|channel|>" { Some(header) } else { header.split("<|channel|>").nth(1) };
        let channel = channel.map(str::trim_start).map_or("", |text| text.get(..until(text)).unwrap_or_default());
        let recipient = header.find("to=").map(|found| found + "to=".len());
        let recipient = recipient.and_then(|start| {
            let text = header.get(start..)?;
            Some((start, text.get(..until(text))?)).filter(|(_, name)| !matches!(*name, "" | "assistant" | "user"))
        });
        if let Some((start, name)) = recipient {
            let bare = name.strip_prefix("functions.").unwrap_or(name);
            let name_at = at + start + name.len() - bare.len();
            return self.begin_arguments(opening, ("harmony", "<|call|>", true), (bare, name_at, None), out);
        }
        let span = Span::new(opening.at, at + header.len() + MESSAGE.len());
        let (role, rule) = match channel {
            "analysis" => (MarkRole::Thought, "a message on the analysis channel"),
            _ => (MarkRole::Wrapper, "a message to the user"),
        };
        let sure = Certainty::Certain;
        out.event(Event::Mark(Mark { role, dialect: Some("harmony"), span, sure, rule }));
        self.held.clear();
        self.state = match self.inside.take() {
            _ if channel == "analysis" => State::Thought(Box::new(Thought::channel(opening.at))),
            Some(inside) => State::Thought(inside),
            None => {
                self.begin_message();
                State::Prose
            }
        };
    }

    /// The text ended in a head.
    pub(super) fn cut_heading(&mut self, heading: Heading, why: Cut, rest: &str, out: &mut dyn Sink) {
        if is_special(&heading.opening.tag) {
            return self.cut_marker(&heading.opening, why, out);
        }
        self.mention_only(heading.opening, None, out);
        self.say(rest, out);
    }

    /// The text ended behind a special token, before any name: what was cut is not known.
    pub(super) fn cut_marker(&mut self, opening: &Opening, _why: Cut, out: &mut dyn Sink) {
        let span = Span::new(opening.at, opening.at + opening.len);
        let message = format!("the message ends behind `{}`, before the call's name", opening.tag);
        let fault = Fault::error(FaultKind::CutCall, span, message);
        out.event(Event::Fault(&fault.hint("write the whole call again and close it")));
        self.held.clear();
    }
}

/// Whether a name stands at the start of `text`, with what ends it or what may stand behind it. `None`: more text is
/// needed to say.
fn heads(text: &str, form: &JsonForm, head: Head, last: bool) -> Option<bool> {
    let name: usize = text.chars().take(HEAD_CAP + 1).take_while(is_name).map(char::len_utf8).sum();
    let special = is_special(form.open);
    let behind = text.get(name..).unwrap_or_default().trim_start();
    let id = head.id.filter(|id| *id != ":").unwrap_or_default();
    let (brace, fence) = if special { ("{", FENCE) } else { ("", "") };
    let follows = [head.end.trim(), id, form.close, brace, fence];
    let mut known = follows.iter().filter(|text| !text.is_empty());
    if known.clone().any(|text| behind.starts_with(text)) {
        return Some(name > 0 || special);
    }
    // A name that the end of the text cuts off is one all the same.
    let waits = text.len() - behind.len() <= HEAD_CAP && known.any(|text| begins(behind, text, false));
    match (waits, last) {
        (true, false) => None,
        (waits, _) => Some(waits && special),
    }
}

/// Whether a call in Gemma's notation stands at the start of `text`. `None`: more text is needed to say.
fn notes(text: &str, bare: bool, last: bool) -> Option<bool> {
    // Where nothing stands before `call:`, that is the marker, and a name and its brace must follow.
    if bare {
        let name = word_length(text);
        return Some(name > 0 && text.get(name..).is_some_and(|behind| behind.starts_with('{')));
    }
    let call = text.strip_prefix(':').unwrap_or(text);
    if begins(call, GEMMA, last) { None } else { Some(call.starts_with(GEMMA)) }
}

/// Whether the text ends where `marker` may go on.
fn begins(text: &str, marker: &str, last: bool) -> bool {
    !last && text.len() < marker.len() && marker.starts_with(text)
}

/// Whether a fence with JSON in it stands at the start of `text`. `None`: more text is needed.
fn fenced(text: &str, last: bool) -> Option<bool> {
    let Some(behind) = text.strip_prefix(FENCE) else {
        return if !last && FENCE.starts_with(text) { None } else { Some(false) };
    };
    let language = behind.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if behind.len() - language.len() > LANGUAGE_CAP {
        return Some(false);
    }
    let inside = language.trim_ascii_start();
    let blank = language.len() - inside.len();
    if inside.is_empty() && blank <= HEAD_CAP && !last { None } else { Some(inside.starts_with(['{', '['])) }
}

/// Length of the word at the start of `text` that could be a tool's name.
fn word_length(text: &str) -> usize {
    if !text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return 0;
    }
    text.chars().take(HEAD_CAP + 1).take_while(is_name).map(char::len_utf8).sum()
}

/// What a tool's name is made of, with whatever stands before and behind it in some dialects.
fn is_name(c: &char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}
