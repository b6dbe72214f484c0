//! What follows a marker decides which of the dialects that have it is meant, and which machine reads on.
//!
//! `<tool_call>` alone opens calls in three dialects: an object behind it is hermes, a `<function=…>` tag qwen_coder, a
//! name with an `<arg_key>` behind it glm. Behind `[TOOL_CALLS]` stands an array, or a name and `[ARGS]`. Whatever fits none
//! of them was prose; a special token, which nobody writes by accident, then earns a fault.

use crate::dialect::grammar::{HeaderFormat, JsonForm};
use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan, Truncation};
use crate::fault::{Fault, FaultKind, Span};

use super::gemma::GemmaRegionParser;
use super::markers::{GEMMA, MarkerEntry, MarkerKind, is_special};
use super::payload::{self, JsonRegionParser, RegionMarkers};
use super::pending_open::{OpenKind, PendingOpen};
use super::python::{METHOD, PythonRegionParser};
use super::region::AnyRegionParser;
use super::tag::{LexedTag, TagInterest, lex_in_notation};
use super::thought::ThoughtBlock;
use super::{CallReader, ReaderState, ReaderStep, TextWindow};

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
pub(super) struct CallHeader {
    opening: PendingOpen,
    dialect: &'static str,
    /// How the call is written; `None`: a message of the harmony dialect.
    form: Option<JsonForm>,
}

/// What stands behind a marker.
enum MarkerContent {
    /// More text is needed.
    Wait,
    /// What this machine reads.
    Region(&'static str, AnyRegionParser),
    /// A name, or a header.
    Head(&'static str, Option<JsonForm>),
    /// A name of that length, which tags follow.
    Word(usize),
    /// Nothing that belongs to it.
    No,
}

/// Where a head ends.
enum HeaderEnd {
    /// More text is needed.
    Wait,
    /// Before this byte; what belongs to the call goes on at that one.
    At(usize, usize),
    /// Nowhere: it is none.
    No,
    /// The text ends in it.
    Cut,
}

impl CallHeader {
    fn find_end(&self, rest: &str, last: bool) -> HeaderEnd {
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
                true => HeaderEnd::Cut,
                false if rest.len() < HEAD_CAP + end.len() => HeaderEnd::Wait,
                false => HeaderEnd::No,
            };
        };
        let Some(form) = self.form.filter(|_| !special) else { return HeaderEnd::At(at, next) };
        // Words, not tokens, are a head only with JSON behind them, or with what closes the call.
        let behind = rest.get(next..).unwrap_or_default();
        let text = behind.trim_ascii_start();
        let closes = !form.close.is_empty() && text.starts_with(form.close);
        if closes || text.starts_with(['{', '"', '`']) {
            return HeaderEnd::At(at, next);
        }
        match is_partial_marker(text, form.close, false) || text.is_empty() {
            true if behind.len() - text.len() > HEAD_CAP => HeaderEnd::No,
            true if last => HeaderEnd::Cut,
            true => HeaderEnd::Wait,
            false => HeaderEnd::No,
        }
    }
}

impl CallReader {
    /// Behind a marker and white space, at text that decides.
    pub(super) fn dispatch_marker(
        &mut self,
        opening: PendingOpen,
        window: TextWindow<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let rest = window.text_from(at);
        if let OpenKind::Wrapper(notation) = opening.kind {
            match lex_in_notation(notation, rest, false, |_, _| TagInterest::Any) {
                LexedTag::Partial => {
                    self.state = ReaderState::Opening(Box::new(opening));
                    return ReaderStep::Wait(at);
                }
                LexedTag::Tag(tag) if self.open_wrapped(&opening, tag, at, out) => {
                    self.held.push_str(rest.get(..tag.len).unwrap_or_default());
                    return ReaderStep::To(at + tag.len);
                }
                LexedTag::Tag(_) | LexedTag::No => {}
            }
        }
        match self.classify_content(&opening, rest, window.last) {
            MarkerContent::Wait => {
                self.state = ReaderState::Opening(Box::new(opening));
                ReaderStep::Wait(at)
            }
            MarkerContent::Region(dialect, region) => {
                self.take_marker(&opening, dialect, out);
                self.state = ReaderState::Region(region);
                ReaderStep::To(at)
            }
            MarkerContent::Head(dialect, form) => {
                self.state = ReaderState::Heading(Box::new(CallHeader { opening, dialect, form }));
                ReaderStep::To(at)
            }
            MarkerContent::Word(len) => {
                let tag = opening.tag.trim_matches(['<', '>']).to_owned();
                let Some(spelling) = self.vocabulary.find_keyed_call(&tag) else { return ReaderStep::To(at) };
                let name = rest.get(..len).unwrap_or_default();
                self.held.push_str(name);
                let (kind, name_at) = (OpenKind::Keyed(spelling), self.offset + at);
                let named = PendingOpen { kind, tag, name: name.to_owned(), name_at, ..opening };
                self.state = ReaderState::Opening(Box::new(named));
                ReaderStep::To(at + len)
            }
            MarkerContent::No => {
                if let Some(dialect) = self.inactive_dialect_behind(&opening, rest) {
                    self.diagnostics.note_other_dialect(dialect, opening.at, opening.len);
                }
                self.release_marker(opening, out);
                ReaderStep::To(at)
            }
        }
    }

    fn classify_content(&self, opening: &PendingOpen, rest: &str, last: bool) -> MarkerContent {
        let text = opening.marker_text();
        let wrapper = opening.tag.trim_matches(['<', '>']);
        let inner = rest.get(1..).unwrap_or_default().trim_ascii_start();
        let list = rest.starts_with('[');
        if list && inner.is_empty() && rest.len() <= HEAD_CAP && !last {
            return MarkerContent::Wait;
        }
        let word = word_length(rest);
        // At the very end half a name is waited for in vain: the call was cut, not mentioned.
        let headed = |marker: &MarkerEntry| matches!(marker.kind, MarkerKind::Json(JsonForm { head: Some(_), .. }));
        let named = self.vocabulary.find_keyed_call(wrapper).is_some()
            || self.vocabulary.markers.active_meanings(&text).any(headed);
        if word == rest.len() && word <= HEAD_CAP && (!last || named) {
            return MarkerContent::Wait;
        }
        let called = rest.get(word..).is_some_and(|behind| behind.starts_with('('));
        let python = (list && word_length(inner) > 0) || (word > 0 && called);
        let special = is_special(&text);
        // Behind a word or a tag that prose may hold, an array is one of calls only if it holds objects.
        let json = rest.starts_with('{') || (list && !python && (special || inner.starts_with('{')));
        let (index, at) = (self.diagnostics.calls, opening.at);
        for MarkerEntry { dialect, kind, .. } in self.vocabulary.markers.active_meanings(&text) {
            match *kind {
                MarkerKind::Json(JsonForm { head: None, close, .. })
                    if (special || !close.is_empty()) && starts_with_json_fence(rest, last).is_none() =>
                {
                    return MarkerContent::Wait;
                }
                MarkerKind::Json(JsonForm { head: None, close, stop, .. })
                    if json || ((special || !close.is_empty()) && starts_with_json_fence(rest, last) == Some(true)) =>
                {
                    let markers = RegionMarkers { dialect, close, stop, sure: self.marker_certainty(&text) };
                    return MarkerContent::Region(
                        dialect,
                        AnyRegionParser::Json(Box::new(JsonRegionParser::for_calls(markers, index, at))),
                    );
                }
                MarkerKind::Python(table) if python => {
                    return MarkerContent::Region(
                        dialect,
                        AnyRegionParser::Python(Box::new(PythonRegionParser::new(table, dialect, index, at))),
                    );
                }
                MarkerKind::Gemma(table, bare) => match starts_with_gemma_call(rest, bare, last) {
                    Some(true) => {
                        let gemma = GemmaRegionParser::new((table, bare), dialect, index, at);
                        return MarkerContent::Region(dialect, AnyRegionParser::Gemma(Box::new(gemma)));
                    }
                    Some(false) => {}
                    None => return MarkerContent::Wait,
                },
                MarkerKind::Json(form) => {
                    match form.head.map_or(Some(false), |head| starts_with_header(rest, &form, head, last)) {
                        Some(true) => return MarkerContent::Head(dialect, Some(form)),
                        Some(false) => {}
                        None => return MarkerContent::Wait,
                    }
                }
                MarkerKind::Methods if python && !list && self.names_method(rest.get(..word).unwrap_or_default()) => {
                    let python = PythonRegionParser::with_methods(dialect, index, at);
                    return MarkerContent::Region(dialect, AnyRegionParser::Python(Box::new(python)));
                }
                MarkerKind::Channel | MarkerKind::Headless => return MarkerContent::Head(dialect, None),
                _ => {}
            }
        }
        if word > 0 && !called && self.vocabulary.find_keyed_call(wrapper).is_some() {
            MarkerContent::Word(word)
        } else {
            MarkerContent::No
        }
    }

    /// Whether a word means a tool, or the method that calls one.
    fn names_method(&self, word: &str) -> bool {
        self.vocabulary.is_tool_name(word.strip_suffix(METHOD).unwrap_or(word))
    }

    /// The dialect that is not listened for and has this marker with what stands behind it.
    fn inactive_dialect_behind(&self, opening: &PendingOpen, rest: &str) -> Option<&'static str> {
        if !opening.first {
            return None;
        }
        if rest.starts_with('{') {
            return self.vocabulary.markers.owner_dialect(&opening.marker_text());
        }
        let name = rest.get(..word_length(rest)).unwrap_or_default();
        self.vocabulary.inactive_keyed_dialect(opening.tag.trim_matches(['<', '>']), name)
    }

    /// How sure a marker makes us.
    fn marker_certainty(&self, marker: &str) -> Certainty {
        let certain = self.vocabulary.chosen || is_special(marker);
        if certain { Certainty::Certain } else { Certainty::Likely }
    }

    /// The marker is none of the text.
    fn take_marker(&mut self, opening: &PendingOpen, dialect: &'static str, out: &mut dyn EventSink) {
        let (sure, span) = (self.marker_certainty(&opening.tag), Span::new(opening.at, opening.at + opening.len));
        let rule = "a marker before calls, with what belongs behind it";
        out.push_event(Event::Mark(MarkupSpan { role: MarkupRole::Wrapper, dialect: Some(dialect), span, sure, rule }));
        // A value needs neither; what they have taken is given back.
        self.held.release_memory();
        self.blank.release_memory();
    }

    /// A call whose name stands before the JSON of its arguments.
    fn begin_arguments(
        &mut self,
        opening: &PendingOpen,
        (dialect, close, stop): (&'static str, &'static str, bool),
        (name, name_at, id): (&str, usize, Option<&str>),
        out: &mut dyn EventSink,
    ) {
        self.take_marker(opening, dialect, out);
        let markers = RegionMarkers { dialect, close, stop, sure: self.marker_certainty(&opening.tag) };
        let head = payload::ParsedHeader { index: self.diagnostics.calls, id, name, at: opening.at, name_at };
        self.state =
            ReaderState::Region(AnyRegionParser::Json(Box::new(JsonRegionParser::for_arguments(markers, head, out))));
    }

    /// The marker was prose after all.
    fn release_marker(&mut self, opening: PendingOpen, out: &mut dyn EventSink) {
        // In the middle of a line it is a word about the marker.
        let meant =
            is_special(&opening.tag) && !opening.words && opening.first && self.diagnostics.count_stray_marker();
        let stray = meant.then(|| {
            let span = Span::new(opening.at, opening.at + opening.len);
            let message = format!("`{}` opens a call, but no call follows", opening.tag);
            let fault = Fault::error(FaultKind::StrayText, span, message);
            fault.with_hint("write the call right behind the marker, or leave the marker out")
        });
        self.release_as_prose(opening, None, out);
        if let Some(fault) = stray {
            out.push_event(Event::Fault(&fault));
        }
    }

    /// JSON in a tag that names the tool behind an equals sign (`<function=f>{…}</function>`).
    pub(super) fn begin_json_body(&mut self, opening: &PendingOpen, out: &mut dyn EventSink) -> bool {
        let OpenKind::Fixed(spelling) = opening.kind else { return false };
        let Some(close) = spelling.json_close() else { return false };
        let name = (opening.name.as_str(), opening.name_at, None);
        self.begin_arguments(opening, (spelling.dialect, close, false), name, out);
        true
    }

    /// Reads a head up to its end.
    pub(super) fn read_header(&mut self, window: TextWindow<'_>, from: usize, out: &mut dyn EventSink) -> ReaderStep {
        let ReaderState::Heading(heading) = &self.state else { return ReaderStep::To(from) };
        let rest = window.text_from(from);
        let ends = heading.find_end(rest, window.last);
        if let HeaderEnd::Wait = ends {
            return ReaderStep::Wait(from);
        }
        let ReaderState::Heading(heading) = std::mem::replace(&mut self.state, ReaderState::Prose) else {
            return ReaderStep::To(from);
        };
        let HeaderEnd::At(length, next) = ends else {
            if let HeaderEnd::Cut = ends {
                self.cut_header(*heading, Truncation::Ended, rest, out);
                return ReaderStep::To(window.text.len());
            }
            self.release_marker(heading.opening, out);
            return ReaderStep::To(from);
        };
        let head = rest.get(..length).unwrap_or_default();
        let CallHeader { opening, dialect, form } = *heading;
        match form {
            Some(form) => self.begin_headed((&opening, dialect, form), head, self.offset + from, out),
            None => self.begin_channel(&opening, head, self.offset + from, out),
        }
        ReaderStep::To(from + next)
    }

    fn begin_headed(
        &mut self,
        (opening, dialect, form): (&PendingOpen, &'static str, JsonForm),
        head: &str,
        at: usize,
        out: &mut dyn EventSink,
    ) {
        let Some(HeaderFormat { prefix, id, .. }) = form.head else { return };
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
    fn begin_channel(&mut self, opening: &PendingOpen, header: &str, at: usize, out: &mut dyn EventSink) {
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
            "analysis" => (MarkupRole::Thought, "a message on the analysis channel"),
            _ => (MarkupRole::Wrapper, "a message to the user"),
        };
        let sure = Certainty::Certain;
        out.push_event(Event::Mark(MarkupSpan { role, dialect: Some("harmony"), span, sure, rule }));
        self.held.clear();
        self.state = match self.inside.take() {
            _ if channel == "analysis" => ReaderState::Thought(Box::new(ThoughtBlock::analysis_channel(opening.at))),
            Some(inside) => ReaderState::Thought(inside),
            None => {
                self.begin_message();
                ReaderState::Prose
            }
        };
    }

    /// The text ended in a head.
    pub(super) fn cut_header(&mut self, heading: CallHeader, why: Truncation, rest: &str, out: &mut dyn EventSink) {
        if is_special(&heading.opening.tag) {
            return self.cut_marker(&heading.opening, why, out);
        }
        self.release_as_prose(heading.opening, None, out);
        self.emit_prose(rest, out);
    }

    /// The text ended behind a special token, before any name: what was cut is not known.
    pub(super) fn cut_marker(&mut self, opening: &PendingOpen, _why: Truncation, out: &mut dyn EventSink) {
        let span = Span::new(opening.at, opening.at + opening.len);
        let message = format!("the message ends behind `{}`, before the call's name", opening.tag);
        let fault = Fault::error(FaultKind::CutCall, span, message);
        out.push_event(Event::Fault(&fault.with_hint("write the whole call again and close it")));
        self.held.clear();
    }
}

/// Whether a name stands at the start of `text`, with what ends it or what may stand behind it. `None`: more text is
/// needed to say.
fn starts_with_header(text: &str, form: &JsonForm, head: HeaderFormat, last: bool) -> Option<bool> {
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
    let waits = text.len() - behind.len() <= HEAD_CAP && known.any(|text| is_partial_marker(behind, text, false));
    match (waits, last) {
        (true, false) => None,
        (waits, _) => Some(waits && special),
    }
}

/// Whether a call in Gemma's notation stands at the start of `text`. `None`: more text is needed to say.
fn starts_with_gemma_call(text: &str, bare: bool, last: bool) -> Option<bool> {
    // Where nothing stands before `call:`, that is the marker, and a name and its brace must follow.
    if bare {
        let name = word_length(text);
        return Some(name > 0 && text.get(name..).is_some_and(|behind| behind.starts_with('{')));
    }
    let call = text.strip_prefix(':').unwrap_or(text);
    if is_partial_marker(call, GEMMA, last) { None } else { Some(call.starts_with(GEMMA)) }
}

/// Whether the text ends where `marker` may go on.
fn is_partial_marker(text: &str, marker: &str, last: bool) -> bool {
    !last && text.len() < marker.len() && marker.starts_with(text)
}

/// Whether a fence with JSON in it stands at the start of `text`. `None`: more text is needed.
fn starts_with_json_fence(text: &str, last: bool) -> Option<bool> {
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
