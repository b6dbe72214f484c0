//! Decides by the text after a marker which dialect is meant, and starts its parser.
//!
//! `<tool_call>` alone opens calls in three dialects: followed by an object it is hermes, by a
//! `<function=…>` tag qwen_coder, by a name and `<arg_key>` glm. `[TOOL_CALLS]` is followed by an
//! array, or by a name and `[ARGS]`. A marker that fits none of them was prose; for a special
//! token, which is never written by accident, a fault is reported.

use crate::dialect::grammar::{HeaderFormat, JsonForm, TagNotation};
use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan, Truncation};
use crate::fault::{Fault, FaultKind, Span};
use crate::swar::find_byte;

use super::gemma::GemmaRegionParser;
use super::markers::{GEMMA, MarkerEntry, MarkerKind, MarkerMatch, is_headless, is_special};
use super::payload::{JsonRegionParser, ParsedHeader, RegionMarkers};
use super::pending_open::{OpenKind, PendingOpen};
use super::python::{METHOD, PythonRegionParser};
use super::region::AnyRegionParser;
use super::tag::{LexedTag, Tag, TagRelevance, lex_in_notation, lex_tag, names_match};
use super::tag_form::MESSAGE_CALL;
use super::thought::ThoughtBlock;
use super::unknown_marker::is_role_token;
use super::unknown_notation::bounded_prefix;
use super::vocabulary::TagDialect;
use super::{CallReader, ReaderState, ReaderStep, TextWindow};

/// The maximum length of the text between a marker and the JSON of the arguments, in bytes.
pub(super) const HEAD_CAP: usize = 256;
/// The end of the header of a harmony message.
const MESSAGE: &str = "<|message|>";
/// The dialect in which a message to a tool holds JSON.
const HARMONY: &str = "harmony";
/// The beginning of a call in tags in a message that is addressed to a tool.
const TAGGED_CALL: &str = "<atem:";
/// The end of the header of such a message.
const MESSAGE_FORMAT: &str = "<|constrain|>xml";
/// The maximum length of the word after a fence's backticks, in bytes.
const LANGUAGE_CAP: usize = 16;
/// A Markdown code fence.
const FENCE: &str = "```";

/// The state after a marker, inside the name before the JSON.
#[derive(Debug)]
pub(super) struct CallHeader {
    opening: PendingOpen,
    dialect: &'static str,
    /// The form of the call; `None` for a message of the harmony dialect.
    form: Option<JsonForm>,
}

/// The content found after a marker.
enum MarkerContent {
    /// More text is needed.
    Wait,
    /// Content for this region parser.
    Region(&'static str, AnyRegionParser),
    /// A name before JSON, or a harmony header.
    Head(&'static str, Option<JsonForm>),
    /// A name of that length, followed by tags.
    Word(usize),
    /// Content that does not belong to the marker.
    No,
}

/// The reason for which a marker has no meaning.
enum MarkerRedundancy {
    /// It may have one.
    None,
    /// Another marker of a call follows.
    Doubled,
    /// Its end follows, which has this length.
    Empty(usize),
}

/// The end of a header.
enum HeaderEnd {
    /// More text is needed.
    Wait,
    /// Before the first position; the call continues at the second.
    At(usize, usize),
    /// There is no end: the text is not a header.
    No,
    /// The text ends inside the header.
    Cut,
}

impl CallHeader {
    /// Searches the end of the name, in a bounded prefix of the text.
    fn find_end(&self, rest: &str, last: bool) -> HeaderEnd {
        let end = self
            .form
            .and_then(|form| form.head)
            .map_or(MESSAGE, |head| head.end);
        if self.form.is_none() && self.opening.tag.ends_with(MESSAGE) {
            return HeaderEnd::At(0, 0);
        }
        let special = is_special(&self.opening.tag);
        // A bounded prefix: a marker without an end would otherwise be searched to the end of the
        // text with every chunk.
        let cap = rest.floor_char_boundary(rest.len().min(HEAD_CAP + end.len()));
        let head = rest.get(..cap).unwrap_or_default();
        // No name contains a brace. After a special token, which certainly opens a call, the end
        // marker may be missing.
        let brace = match special && self.form.is_some() {
            true => find_byte(b'{', head.as_bytes()).map(|at| (at, at)),
            false => None,
        };
        let ended = find_marker_text(head, end).map(|at| (at, at + end.len()));
        let found = ended
            .filter(|(at, _)| brace.is_none_or(|(brace, _)| *at < brace))
            .or(brace);
        // The words are checked even after the end marker has come, since in small chunks they
        // would have become prose before it. They include the end marker, so that a token that
        // breaks off before it does not count as unfinished.
        let words = found.map_or(head, |(_, next)| head.get(..next).unwrap_or_default());
        if self.form.is_none() && !may_be_header(words) {
            return HeaderEnd::No;
        }
        let Some((at, next)) = found else {
            return match last {
                true => HeaderEnd::Cut,
                // A name is never this long, so waiting ends here whatever follows.
                false if rest.len() < HEAD_CAP + end.len() => HeaderEnd::Wait,
                false => HeaderEnd::No,
            };
        };
        let Some(form) = self.form.filter(|_| !special) else {
            return HeaderEnd::At(at, next);
        };
        // A marker made of ordinary words opens a header only with JSON or the closing marker after
        // it.
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
    /// Decides about a marker, at the text after its white space.
    pub(super) fn dispatch_marker(
        &mut self,
        opening: Box<PendingOpen>,
        window: TextWindow<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let rest = window.text_from(at);
        if let OpenKind::Wrapper(notation) = opening.kind {
            match lex_in_notation(notation, rest, false, |_, _| TagRelevance::Any) {
                LexedTag::Partial => {
                    self.state = ReaderState::Opening(opening);
                    return ReaderStep::Wait(at);
                }
                LexedTag::Tag(tag) if self.is_keyed_in_block(&opening, tag) => {
                    return self.enter_keyed_block(&opening, tag, rest, at);
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
                self.state = ReaderState::Opening(opening);
                ReaderStep::Wait(at)
            }
            MarkerContent::Region(dialect, region) => {
                self.take_marker(&opening, dialect, out);
                self.state = ReaderState::Region(region);
                ReaderStep::To(at)
            }
            MarkerContent::Head(dialect, form) => {
                self.state = ReaderState::Heading(Box::new(CallHeader {
                    opening: *opening,
                    dialect,
                    form,
                }));
                ReaderStep::To(at)
            }
            MarkerContent::Word(len) => {
                let tag = opening.tag.trim_matches(['<', '>']).to_owned();
                let Some(spelling) = self.vocabulary.find_keyed_call(&tag) else {
                    return ReaderStep::To(at);
                };
                let begins = self.starts_unknown_arguments(None, rest, window.last);
                let Some(begins) = begins else {
                    self.state = ReaderState::Opening(opening);
                    return ReaderStep::Wait(at);
                };
                if begins {
                    self.note_unread_call(Span::new(opening.at, opening.at + opening.len));
                }
                let name = rest.get(..len).unwrap_or_default();
                self.held.push_str(name);
                let kind = OpenKind::Keyed(spelling);
                let name_at = self.offset + at;
                let named = PendingOpen {
                    kind,
                    tag,
                    name: name.to_owned(),
                    name_at,
                    ..*opening
                };
                self.state = ReaderState::Opening(Box::new(named));
                ReaderStep::To(at + len)
            }
            MarkerContent::No if window.last && self.is_cut_in_call(&opening, rest) => {
                self.cut_in_call(*opening, rest, Truncation::Ended, out);
                ReaderStep::To(window.text.len())
            }
            MarkerContent::No => {
                match self.find_redundancy(&opening, rest, window.last) {
                    None => {
                        self.state = ReaderState::Opening(opening);
                        return ReaderStep::Wait(at);
                    }
                    Some(MarkerRedundancy::None) => {}
                    Some(MarkerRedundancy::Doubled) => {
                        self.drop_redundant_marker(&opening, 0, out);
                        return ReaderStep::To(at);
                    }
                    Some(MarkerRedundancy::Empty(length)) => {
                        self.drop_redundant_marker(&opening, length, out);
                        return ReaderStep::To(at + length);
                    }
                }
                let Some(begins_value) =
                    self.starts_value_after_marker(&opening, rest, window.last)
                else {
                    self.state = ReaderState::Opening(opening);
                    return ReaderStep::Wait(at);
                };
                if begins_value {
                    self.note_unread_call(Span::new(opening.at, opening.at + opening.len));
                }
                // The header of a message that is not a call.
                if (opening.first || self.prose.is_start())
                    && self.vocabulary.markers.is_section(&opening.tag)
                {
                    self.drop_section(&opening);
                    self.diagnostics.emit_notes(out);
                    self.state = self.state_after_call();
                    return ReaderStep::To(at);
                }
                if let Some(dialect) = self.inactive_dialect_of_marker(&opening, rest) {
                    self.diagnostics
                        .note_other_dialect(dialect, opening.at, opening.len);
                }
                self.release_marker(*opening, out);
                ReaderStep::To(at)
            }
        }
    }

    /// Returns true if the text behind a marker may be a value of a call whose beginning is missing: a string, perhaps behind a bracket,
    /// or arguments of a tool in an unknown notation. `None` while that is undecided.
    fn starts_value_after_marker(
        &self,
        opening: &PendingOpen,
        rest: &str,
        last: bool,
    ) -> Option<bool> {
        // Hardly any text begins like arguments, so the marker is looked at last.
        let starts = self.starts_unknown_arguments(None, rest, last);
        if starts != Some(false) && !self.is_role_marker(opening) {
            return starts;
        }
        // Where the prompt ends with the marker, words may begin with a quotation mark.
        if opening.len == 0 {
            return Some(false);
        }
        let (head, is_whole) = bounded_prefix(rest, last);
        let text = head.strip_prefix('[').unwrap_or(head).trim_ascii_start();
        if text.is_empty() && !is_whole {
            return None;
        }
        Some(text.starts_with('"'))
    }

    /// Returns true if the marker begins or ends a message or a result, and no call: a tool's name behind it may be a word.
    pub(super) fn is_role_marker(&self, opening: &PendingOpen) -> bool {
        let text = opening.marker_text();
        is_role_token(&text) && !self.vocabulary.markers.opens_call(&text)
    }

    /// Returns true if the end of the text behind a marker can only be the beginning of a call.
    pub(super) fn is_cut_in_call(&self, opening: &PendingOpen, rest: &str) -> bool {
        let rest = rest.trim_ascii_end();
        let (name, behind) = rest.split_at_checked(word_length(rest)).unwrap_or_default();
        let begins_header_end = |marker: &MarkerEntry| match marker.kind {
            MarkerKind::Json(JsonForm {
                head: Some(head), ..
            }) => head.end.starts_with(behind.trim_ascii_start()),
            _ => behind.is_empty(),
        };
        let is_name = !name.is_empty()
            && (self.vocabulary.begins_tool_name(name) || GEMMA.starts_with(name))
            && self
                .vocabulary
                .markers
                .active_meanings(&opening.marker_text())
                .any(begins_header_end);
        let is_meant = opening.is_first_tag() && !opening.words
            || opening.first && self.vocabulary.chosen && (!is_name || self.names_tool(name));
        is_meant && (rest == "[" || is_name)
    }

    /// Returns true if a block for calls is followed by the tag around a tool's name and its keys.
    fn is_keyed_in_block(&self, block: &PendingOpen, tag: Tag<'_>) -> bool {
        let is_opening = tag.is_plain() && !tag.close;
        is_opening
            && self
                .vocabulary
                .has_keyed_call_in_block(tag.name, &block.tag)
    }

    /// Continues with the tag of the first call in a block. Both are text if no call follows.
    fn enter_keyed_block(
        &mut self,
        block: &PendingOpen,
        tag: Tag<'_>,
        rest: &str,
        at: usize,
    ) -> ReaderStep {
        self.wrapped = Some(block.tag.as_str().into());
        self.diagnostics.begin_block();
        self.held.push_str(rest.get(..tag.len).unwrap_or_default());
        let inner = PendingOpen::new(
            OpenKind::Wrapper(TagNotation::Angle),
            tag,
            block.at,
            block.first,
        );
        self.state = ReaderState::Opening(Box::new(PendingOpen {
            len: self.held.len(),
            ..inner
        }));
        ReaderStep::To(at + tag.len)
    }

    /// Decides whether a marker that opens no call has no meaning: another one follows it directly, or
    /// its own end. `None` means that more text is needed.
    fn find_redundancy(
        &self,
        opening: &PendingOpen,
        rest: &str,
        last: bool,
    ) -> Option<MarkerRedundancy> {
        // In the middle of a line the markup is more likely a word about itself.
        let is_whole = opening.tag.starts_with('<') || !matches!(opening.kind, OpenKind::Marker);
        if !opening.first || self.inside.is_some() || !is_whole || !rest.starts_with('<') {
            return Some(MarkerRedundancy::None);
        }
        let markers = &self.vocabulary.markers;
        match markers.find_marker(rest, last) {
            MarkerMatch::Partial => return None,
            MarkerMatch::Marker(text) if markers.closes(&opening.marker_text(), text) => {
                return Some(MarkerRedundancy::Empty(text.len()));
            }
            MarkerMatch::Marker(text) if markers.opens_call(text) => {
                return Some(MarkerRedundancy::Doubled);
            }
            MarkerMatch::Marker(_) | MarkerMatch::None => {}
        }
        let name = opening.tag.trim_matches(['<', '>']);
        let interest = |found: &str, _| match names_match(found, name) {
            true => TagRelevance::Plain,
            false => TagRelevance::None,
        };
        match lex_tag(rest, last, interest) {
            LexedTag::Partial => None,
            // A block for calls without a call is an error that is reported to the model.
            LexedTag::Tag(tag) if tag.close && matches!(opening.kind, OpenKind::Wrapper(_)) => {
                Some(MarkerRedundancy::None)
            }
            LexedTag::Tag(tag) if tag.close => Some(MarkerRedundancy::Empty(tag.len)),
            LexedTag::Tag(_) => Some(MarkerRedundancy::Doubled),
            LexedTag::No => Some(MarkerRedundancy::None),
        }
    }

    /// Leaves out a marker without a meaning, and the `length` bytes of its end.
    fn drop_redundant_marker(
        &mut self,
        opening: &PendingOpen,
        length: usize,
        out: &mut dyn EventSink,
    ) {
        let end = opening.at + self.held.len() + length;
        let span = Span::new(
            opening.at,
            if length > 0 {
                end
            } else {
                opening.at + opening.len
            },
        );
        let dialect = self
            .vocabulary
            .markers
            .owner_dialect(&opening.marker_text());
        self.take_marker(opening, dialect.unwrap_or_default(), out);
        let message = match length {
            0 => format!("`{}` occurs twice and was left out once", opening.tag),
            _ => format!("`{}` holds nothing and was left out", opening.tag),
        };
        let fault = Fault::warning(FaultKind::StrayText, span, message);
        out.push_event(Event::Fault(
            &fault.with_hint("write the markup only around a call"),
        ));
        self.prose.mark_after_wrapper();
        self.state = ReaderState::Gap;
    }

    /// Chooses the dialect of a marker, among those that share it, by the text after it.
    fn classify_content(&self, opening: &PendingOpen, rest: &str, last: bool) -> MarkerContent {
        let text = opening.marker_text();
        let wrapper = opening.tag.trim_matches(['<', '>']);
        let inner = rest.get(1..).unwrap_or_default().trim_ascii_start();
        let list = rest.starts_with('[');
        if list && inner.is_empty() && rest.len() <= HEAD_CAP && !last {
            return MarkerContent::Wait;
        }
        let word = word_length(rest);
        // At the end of the text a partial name stays undecided if a name belongs here: the call
        // was cut, not mentioned.
        let headed = |marker: &MarkerEntry| {
            matches!(
                marker.kind,
                MarkerKind::Json(JsonForm { head: Some(_), .. })
            )
        };
        let named = self.vocabulary.find_keyed_call(wrapper).is_some()
            || self.vocabulary.markers.active_meanings(&text).any(headed);
        if word == rest.len() && word <= HEAD_CAP && (!last || named) {
            return MarkerContent::Wait;
        }
        let called = rest
            .get(word..)
            .is_some_and(|behind| behind.starts_with('('));
        let python = (list && word_length(inner) > 0) || (word > 0 && called);
        let special = is_special(&text);
        // After a marker that prose may contain, an array counts as calls only if it contains
        // objects.
        let json =
            rest.starts_with('{') || (list && !python && (special || inner.starts_with('{')));
        let index = self.diagnostics.calls;
        let at = opening.at;
        for MarkerEntry { dialect, kind, .. } in self.vocabulary.markers.active_meanings(&text) {
            match *kind {
                MarkerKind::Json(JsonForm {
                    head: None, close, ..
                }) if (special || !close.is_empty())
                    && starts_with_json_fence(rest, last).is_none() =>
                {
                    return MarkerContent::Wait;
                }
                MarkerKind::Json(JsonForm {
                    head: None,
                    close,
                    stop,
                    named_by_key,
                    ..
                }) if json
                    || ((special || !close.is_empty())
                        && starts_with_json_fence(rest, last) == Some(true)) =>
                {
                    // Another dialect writes a list behind the same marker, and does not close it.
                    let is_open_ended = |marker: &MarkerEntry| {
                        matches!(
                            marker.kind,
                            MarkerKind::Json(JsonForm {
                                head: None,
                                close: "",
                                ..
                            })
                        )
                    };
                    let mut meanings = self.vocabulary.markers.active_meanings(&text);
                    let is_open = list && meanings.any(is_open_ended);
                    let markers = RegionMarkers {
                        dialect,
                        close,
                        stop: stop || is_open,
                        open_ended: is_open,
                        named_by_key,
                        sure: self.marker_certainty(&text),
                    };
                    return MarkerContent::Region(
                        dialect,
                        AnyRegionParser::Json(Box::new(JsonRegionParser::for_calls(
                            markers, index, at,
                        ))),
                    );
                }
                MarkerKind::Python(table) if python => {
                    return MarkerContent::Region(
                        dialect,
                        AnyRegionParser::Python(Box::new(PythonRegionParser::new(
                            table, dialect, index, at,
                        ))),
                    );
                }
                MarkerKind::Gemma(table, bare) => match starts_with_gemma_call(rest, bare, last) {
                    Some(true) if bare && !self.vocabulary.chosen && !self.names_tool(rest) => {}
                    Some(true) => {
                        let gemma = GemmaRegionParser::new(table, bare, dialect, index, at);
                        return MarkerContent::Region(
                            dialect,
                            AnyRegionParser::Gemma(Box::new(gemma)),
                        );
                    }
                    Some(false) => {}
                    None => return MarkerContent::Wait,
                },
                MarkerKind::Json(form)
                    if form.is_headed_by_line()
                        && !self.vocabulary.chosen
                        && !self.is_line_of_tool(opening, rest.get(..word).unwrap_or_default()) => {
                }
                MarkerKind::Json(form) => {
                    match form.head.map_or(Some(false), |head| {
                        starts_with_header(rest, &form, head, last)
                    }) {
                        Some(true) => return MarkerContent::Head(dialect, Some(form)),
                        Some(false) => {}
                        None => return MarkerContent::Wait,
                    }
                }
                MarkerKind::Methods
                    if python
                        && !list
                        && self.names_method(rest.get(..word).unwrap_or_default()) =>
                {
                    let python = PythonRegionParser::with_methods(dialect, index, at);
                    return MarkerContent::Region(
                        dialect,
                        AnyRegionParser::Python(Box::new(python)),
                    );
                }
                MarkerKind::Channel | MarkerKind::Headless => {
                    return MarkerContent::Head(dialect, None);
                }
                _ => {}
            }
        }
        if word > 0 && !called && self.vocabulary.find_keyed_call(wrapper).is_some() {
            MarkerContent::Word(word)
        } else {
            MarkerContent::No
        }
    }

    /// Returns true if a line that names a tool begins here. After Python's prompt a space precedes the code, and in the middle of a line
    /// only a declared tool counts.
    fn is_line_of_tool(&self, opening: &PendingOpen, name: &str) -> bool {
        let is_known = match opening.first {
            true => self.vocabulary.is_tool_name(name),
            false => self.vocabulary.find_exact_tool(name).is_some(),
        };
        is_known && self.held.len() == opening.len
    }

    /// Returns true if the text begins with the name of a declared tool.
    fn names_tool(&self, rest: &str) -> bool {
        let name = rest.get(..word_length(rest)).unwrap_or_default();
        self.vocabulary.find_exact_tool(name).is_some()
    }

    /// Returns true if a word is a tool's name, or the method that calls one.
    fn names_method(&self, word: &str) -> bool {
        self.vocabulary
            .is_tool_name(word.strip_suffix(METHOD).unwrap_or(word))
    }

    /// Returns the inactive dialect that uses this marker with this content.
    fn inactive_dialect_of_marker(
        &self,
        opening: &PendingOpen,
        rest: &str,
    ) -> Option<&'static str> {
        if !opening.first {
            return None;
        }
        if rest.starts_with('{') {
            return self
                .vocabulary
                .markers
                .owner_dialect(&opening.marker_text());
        }
        let name = rest.get(..word_length(rest)).unwrap_or_default();
        self.vocabulary
            .inactive_keyed_dialect(opening.tag.trim_matches(['<', '>']), name)
    }

    /// Returns the certainty that a marker gives.
    fn marker_certainty(&self, marker: &str) -> Certainty {
        let certain = self.vocabulary.chosen || is_special(marker);
        if certain {
            Certainty::Certain
        } else {
            Certainty::Likely
        }
    }

    /// Consumes the marker, which is not text.
    fn take_marker(
        &mut self,
        opening: &PendingOpen,
        dialect: &'static str,
        out: &mut dyn EventSink,
    ) {
        let sure = self.marker_certainty(&opening.tag);
        let span = Span::new(opening.at, opening.at + opening.len);
        let rule = "a marker before calls, followed by the start of a call";
        out.push_event(Event::Mark(MarkupSpan {
            role: MarkupRole::Wrapper,
            dialect: Some(dialect),
            span,
            sure,
            rule,
        }));
        // Inside a region neither buffer is needed, and the region may be long.
        self.held.release_memory();
        self.blank.release_memory();
    }

    /// Begins a call whose name precedes the JSON of its arguments.
    fn begin_arguments(
        &mut self,
        opening: &PendingOpen,
        markers: RegionMarkers,
        head: ParsedHeader<'_>,
        out: &mut dyn EventSink,
    ) {
        self.take_marker(opening, markers.dialect, out);
        self.state = ReaderState::Region(AnyRegionParser::Json(Box::new(
            JsonRegionParser::for_arguments(markers, head, out),
        )));
    }

    /// Emits the marker as prose, with a fault if it was certainly meant as a call.
    fn release_marker(&mut self, opening: PendingOpen, out: &mut dyn EventSink) {
        // In the middle of a line a special token is a word about itself.
        let meant = is_special(&opening.tag)
            && !opening.words
            && opening.first
            && self.diagnostics.count_stray_marker();
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

    /// Begins a call whose tag names the tool after an equals sign and contains JSON
    /// (`<function=f>{…}</function>`).
    pub(super) fn begin_json_body(
        &mut self,
        opening: &PendingOpen,
        out: &mut dyn EventSink,
    ) -> bool {
        let OpenKind::Fixed(spelling) = opening.kind else {
            return false;
        };
        let Some(close) = spelling.json_close(&opening.tag) else {
            return false;
        };
        self.begin_json_until(opening, spelling, close, out);
        true
    }

    /// Begins a call whose arguments are one block of JSON between tags of its own, if this is such a
    /// tag: `<|open|>json type="object"<|sep|>`.
    pub(super) fn begin_json_block(
        &mut self,
        opening: &PendingOpen,
        tag: Tag<'_>,
        out: &mut dyn EventSink,
    ) -> bool {
        let OpenKind::Fixed(spelling) = opening.kind else {
            return false;
        };
        let is_block = spelling.dialect == "kimi_k3" && tag.name == "json" && !tag.close;
        if is_block {
            let close = "<|close|>json<|sep|><|close|>call<|sep|>";
            self.begin_json_until(opening, spelling, close, out);
        }
        is_block
    }

    fn begin_json_until(
        &mut self,
        opening: &PendingOpen,
        spelling: TagDialect,
        close: &'static str,
        out: &mut dyn EventSink,
    ) {
        let sure = self.marker_certainty(&opening.tag);
        let markers = RegionMarkers {
            dialect: spelling.dialect,
            close,
            stop: false,
            open_ended: false,
            named_by_key: false,
            sure,
        };
        let head = ParsedHeader {
            index: self.diagnostics.calls,
            id: None,
            name: &opening.name,
            at: opening.at,
            name_at: opening.name_at,
        };
        self.begin_arguments(opening, markers, head, out);
    }

    /// Reads a header up to its end.
    pub(super) fn read_header(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let ReaderState::Heading(heading) = &self.state else {
            return ReaderStep::To(from);
        };
        let rest = window.text_from(from);
        let ends = heading.find_end(rest, window.last);
        if let HeaderEnd::Wait = ends {
            return ReaderStep::Wait(from);
        }
        // The body shows if the message holds tags or JSON.
        if let HeaderEnd::At(_, next) = ends
            && heading.form.is_none()
            && !window.last
            && self.reads_tagged_messages()
        {
            let body = rest.get(next..).unwrap_or_default();
            let text = body.trim_ascii_start();
            let is_undecided = text.len() < TAGGED_CALL.len() && TAGGED_CALL.starts_with(text);
            if is_undecided && body.len() - text.len() <= HEAD_CAP {
                return ReaderStep::Wait(from);
            }
        }
        let is_unread = match ends {
            HeaderEnd::No if heading.form.is_some() => {
                self.starts_unknown_arguments(None, rest, window.last)
            }
            HeaderEnd::No => self.header_has_unknown_arguments(rest, window.last),
            _ => Some(false),
        };
        let Some(is_unread) = is_unread else {
            return ReaderStep::Wait(from);
        };
        let ReaderState::Heading(heading) = std::mem::replace(&mut self.state, ReaderState::Prose)
        else {
            return ReaderStep::To(from);
        };
        let HeaderEnd::At(length, next) = ends else {
            if let HeaderEnd::Cut = ends {
                self.cut_header(*heading, Truncation::Ended, rest, out);
                return ReaderStep::To(window.text.len());
            }
            // The header of a call has no end, so the text after it may be a value of the call.
            // Only the words of the header are checked: in small chunks, nothing after them has
            // come yet.
            let head = rest
                .get(..rest.floor_char_boundary(HEAD_CAP))
                .unwrap_or_default();
            let is_addressed = heading.form.is_none() && header_words(head).contains("to=");
            if is_unread || is_addressed {
                let at = heading.opening.at;
                self.note_unread_call(Span::new(at, at + heading.opening.len));
            }
            self.release_marker(heading.opening, out);
            return ReaderStep::To(from);
        };
        let head = rest.get(..length).unwrap_or_default();
        let at = self.offset + from;
        if let Some(spelling) = self.find_message_call(&heading, head) {
            self.open_message_call(&heading, spelling, rest.get(..next).unwrap_or_default(), at);
            return ReaderStep::To(from + next);
        }
        match heading.form {
            Some(_) => self.begin_headed(&heading, head, at, out),
            None => {
                let body = rest.get(next..).unwrap_or_default();
                let tags = body.trim_ascii_start();
                let is_tagged = tags.starts_with(TAGGED_CALL) && self.reads_tagged_messages();
                self.begin_channel(&heading, head, at, is_tagged, out);
                if is_tagged {
                    // The white space before the tags is not text of the message.
                    return ReaderStep::To(from + next + body.len() - tags.len());
                }
            }
        }
        ReaderStep::To(from + next)
    }

    fn begin_headed(
        &mut self,
        heading: &CallHeader,
        head: &str,
        at: usize,
        out: &mut dyn EventSink,
    ) {
        let CallHeader {
            opening,
            dialect,
            form: Some(form),
        } = heading
        else {
            return;
        };
        let Some(HeaderFormat {
            prefix,
            id,
            id_first,
            echo,
            ..
        }) = form.head
        else {
            return;
        };
        let text = head.trim();
        let start = at + head.len() - head.trim_start().len();
        // Kimi uses the whole header `functions.NAME:INDEX` as the id; Mistral separates name and
        // id by a marker.
        let (name, call_id) = match id {
            Some(":") => match text.rsplit_once(':') {
                Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (name, Some(text))
                }
                _ => (text, None),
            },
            Some(separator) if id_first => match text.split_once(separator) {
                Some((id, name)) => (
                    name.trim_start(),
                    Some(id.trim()).filter(|id| !id.is_empty()),
                ),
                None => (text, None),
            },
            Some(separator) => match text.split_once(separator) {
                Some((name, id)) => (name.trim_end(), Some(id.trim())),
                None => (text, None),
            },
            None => (text, None),
        };
        let bare = name.strip_prefix(prefix).unwrap_or(name);
        let before = if id_first { text.len() - name.len() } else { 0 };
        let name_at = start + before + name.len() - bare.len();
        let sure = self.marker_certainty(&opening.tag);
        let markers = RegionMarkers {
            dialect,
            close: form.close,
            stop: form.stop,
            open_ended: false,
            named_by_key: false,
            sure,
        };
        if echo {
            let index = self.diagnostics.calls;
            self.take_marker(opening, dialect, out);
            let calls = JsonRegionParser::for_calls(markers, index, opening.at);
            self.state = ReaderState::Region(AnyRegionParser::Json(Box::new(calls)));
            return;
        }
        let head = ParsedHeader {
            index: self.diagnostics.calls,
            id: call_id,
            name: bare,
            at: opening.at,
            name_at,
        };
        self.begin_arguments(opening, markers, head, out);
    }

    /// Returns the dialect in which a header like this opens a call to the recipient of its message.
    fn find_message_call(&self, heading: &CallHeader, head: &str) -> Option<TagDialect> {
        let is_format = heading.form.is_none() && head.trim_ascii_end().ends_with(MESSAGE_FORMAT);
        let is_addressed = || head.contains("to=") || heading.opening.tag.ends_with("to=");
        // Without the token the name would run into the word behind it.
        if !is_format || !head.contains("<|channel|>") || !is_addressed() {
            return None;
        }
        let spelling = self
            .vocabulary
            .find_call_tag(MESSAGE_CALL, TagNotation::Angle, None)?;
        spelling.tagged.header_opens.then_some(spelling)
    }

    /// Waits after a header that opens a call for the first argument, or the end of the message. `header` includes its end marker and
    /// begins at `at`, after the marker.
    fn open_message_call(
        &mut self,
        heading: &CallHeader,
        spelling: TagDialect,
        header: &str,
        at: usize,
    ) {
        let opening = &heading.opening;
        // The marker itself may be a part of the header.
        let to = match opening.tag.ends_with("to=") {
            true => 0,
            false => header.find("to=").map_or(0, |found| found + "to=".len()),
        };
        let text = header.get(to..).unwrap_or_default();
        let end = text.find(|c: char| c.is_whitespace() || c == '<');
        let name = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
        let bare = name.strip_prefix("functions.").unwrap_or(name);
        self.held.push_str(header);
        self.state = ReaderState::Opening(Box::new(PendingOpen {
            kind: OpenKind::Fixed(spelling),
            tag: MESSAGE_CALL.to_owned(),
            name: bare.to_owned(),
            name_at: at + to + name.len() - bare.len(),
            len: at + header.len() - opening.at,
            ..PendingOpen::from_marker("", opening.at, true)
        }));
    }

    /// Returns true if a message that is addressed to a tool may hold its call in tags.
    fn reads_tagged_messages(&self) -> bool {
        self.vocabulary
            .find_call_tag("atem:invoke", TagNotation::Angle, None)
            .is_some_and(|spelling| spelling.tagged.channels)
    }

    /// Begins a message with a header. `is_tagged` is true if its body begins with a call in tags.
    fn begin_channel(
        &mut self,
        heading: &CallHeader,
        header: &str,
        at: usize,
        is_tagged: bool,
        out: &mut dyn EventSink,
    ) {
        let opening = &heading.opening;
        let markers = &self.vocabulary.markers;
        let is_harmony = |marker: &MarkerEntry| marker.dialect == HARMONY;
        let reads_json = markers.active_meanings(&opening.tag).any(is_harmony);
        let dialect = match reads_json && !is_tagged {
            true => HARMONY,
            false => heading.dialect,
        };
        // Without the preceding tokens, the matched marker itself is a part of the header.
        let is_headless = is_headless(&opening.tag);
        let begun = if is_headless {
            opening.tag.as_str()
        } else {
            ""
        };
        let header = &*format!("{begun}{header}");
        let at = at.saturating_sub(begun.len());
        let until = |text: &str| {
            text.find(|c: char| c.is_whitespace() || c == '<')
                .unwrap_or(text.len())
        };
        let channel = header.split("<|channel|>").nth(1);
        let is_bare = opening.tag == "<|channel|>" || is_headless;
        let channel = channel.or(is_bare.then_some(header));
        let channel = channel
            .map(str::trim_start)
            .map_or("", |text| text.get(..until(text)).unwrap_or_default());
        let recipient = header.find("to=").map(|found| found + "to=".len());
        let recipient = recipient.and_then(|start| {
            // Messages to the model itself or to the user are not calls.
            let text = header.get(start..)?;
            Some((start, text.get(..until(text))?))
        });
        let addressee = recipient.map_or("", |(_, name)| name);
        let is_tool =
            |(_, name): &(usize, &str)| !matches!(*name, "" | "assistant" | "user" | "self");
        let tool = recipient.filter(is_tool);
        if let Some((start, name)) = tool.filter(|_| !is_tagged && reads_json) {
            let bare = name.strip_prefix("functions.").unwrap_or(name);
            let name_at = at + start + name.len() - bare.len();
            let sure = self.marker_certainty(&opening.tag);
            let markers = RegionMarkers {
                dialect: HARMONY,
                close: "<|call|>",
                stop: true,
                open_ended: false,
                named_by_key: false,
                sure,
            };
            let head = ParsedHeader {
                index: self.diagnostics.calls,
                id: None,
                name: bare,
                at: opening.at,
                name_at,
            };
            return self.begin_arguments(opening, markers, head, out);
        }
        let header_end = match header.ends_with(MESSAGE) {
            true => at + header.len(),
            false => at + header.len() + MESSAGE.len(),
        };
        let span = Span::new(opening.at, header_end);
        // Only arguments of a call are constrained, so this is the header of a call without its
        // recipient, and the text after it may be a value of the call.
        if tool.is_none() && header.contains("<|constrain|>") {
            self.note_unread_call(span);
        }
        let is_thought = channel.starts_with("analysis") || addressee == "self";
        let (role, rule) = match tool {
            _ if is_thought => (MarkupRole::Thought, "a message on the analysis channel"),
            Some(_) => (MarkupRole::Wrapper, "a message to a tool"),
            None => (MarkupRole::Wrapper, "a message to the user"),
        };
        let sure = Certainty::Certain;
        out.push_event(Event::Mark(MarkupSpan {
            role,
            dialect: Some(dialect),
            span,
            sure,
            rule,
        }));
        self.held.clear();
        self.state = match self.inside.take() {
            _ if is_thought => {
                self.diagnostics.note_thought();
                ReaderState::Thought(Box::new(ThoughtBlock::analysis_channel(opening.at)))
            }
            Some(inside) => ReaderState::Thought(inside),
            None => {
                self.begin_message();
                self.prose.is_addressed_to_user = addressee == "user";
                ReaderState::Prose
            }
        };
    }

    /// Ends the text inside a header.
    pub(super) fn cut_header(
        &mut self,
        heading: CallHeader,
        why: Truncation,
        rest: &str,
        out: &mut dyn EventSink,
    ) {
        let tag = &heading.opening.tag;
        let is_named = || {
            let end = heading.form.and_then(|form| form.head)?.end;
            let name = rest.split_once(end).map_or(rest, |(name, _)| name);
            self.vocabulary.find_exact_tool(name.trim())
        };
        let is_named = heading.opening.first && is_named().is_some();
        if is_named {
            return self.cut_in_call(heading.opening, rest, why, out);
        }
        // Markup that is no part of a header may end a value that holds the calls before, and this
        // marker.
        let tokens = ["<|channel|>", "<|constrain|>", MESSAGE];
        let words = tokens
            .iter()
            .fold(rest.to_owned(), |words, token| words.replace(token, ""));
        if words.contains(['<', '"']) {
            let span = Span::new(heading.opening.at, heading.opening.at + heading.opening.len);
            self.reject_calls_from(0, span);
        }
        if is_special(tag) && !is_headless(tag) {
            return self.cut_marker(&heading.opening, why, out);
        }
        self.release_as_prose(heading.opening, None, out);
        self.emit_prose(rest, out);
    }

    /// Reports that the text ended at the beginning of a call. Its text is still shown.
    pub(super) fn cut_in_call(
        &mut self,
        opening: PendingOpen,
        rest: &str,
        why: Truncation,
        out: &mut dyn EventSink,
    ) {
        if opening.is_first_tag() {
            return self.cut_marker(&opening, why, out);
        }
        let fault = cut_marker_fault(&opening);
        self.release_as_prose(opening, None, out);
        self.prose.read_text(rest);
        self.emit_prose(rest, out);
        out.push_event(Event::Fault(&fault));
    }

    /// Reports that the text ended after a special token, before any name: there is no call to cut.
    pub(super) fn cut_marker(
        &mut self,
        opening: &PendingOpen,
        _why: Truncation,
        out: &mut dyn EventSink,
    ) {
        out.push_event(Event::Fault(&cut_marker_fault(opening)));
        self.held.clear();
    }
}

/// Makes the fault about a text that ends at the beginning of a call.
fn cut_marker_fault(opening: &PendingOpen) -> Fault {
    let span = Span::new(opening.at, opening.at + opening.len);
    let message = format!(
        "the message ends at the beginning of the call that `{}` opens",
        opening.tag
    );
    Fault::error(FaultKind::CutCall, span, message)
        .with_hint("write the whole call again and close it")
}

/// Checks whether `text` begins with a name and the text that ends it or may follow it. `None`
/// means that more text is needed.
fn starts_with_header(text: &str, form: &JsonForm, head: HeaderFormat, last: bool) -> Option<bool> {
    let name: usize = text
        .chars()
        .take(HEAD_CAP + 1)
        .take_while(is_name)
        .map(char::len_utf8)
        .sum();
    let behind = text.get(name..).unwrap_or_default();
    if form.is_headed_by_line() {
        return starts_with_json_line(behind, head.end, last).map(|starts| starts && name > 0);
    }
    let special = is_special(form.open);
    let behind = behind.trim_start();
    let id = head.id.filter(|id| *id != ":").unwrap_or_default();
    let (brace, fence) = if special { ("{", FENCE) } else { ("", "") };
    let follows = [head.end.trim(), id, form.close, brace, fence];
    let mut known = follows.iter().filter(|text| !text.is_empty());
    if known.clone().any(|text| behind.starts_with(text)) {
        return Some(name > 0 || special);
    }
    // After a special token, a name that the end of the text cuts off still counts.
    let waits = text.len() - behind.len() <= HEAD_CAP
        && known.any(|text| is_partial_marker(behind, text, false));
    match (waits, last) {
        (true, false) => None,
        (waits, _) => Some(waits && special),
    }
}

/// Checks whether `text` begins with the end of a line, and an object behind it. `None` means that more text is needed.
fn starts_with_json_line(text: &str, end: &str, last: bool) -> Option<bool> {
    let Some(behind) = text.strip_prefix(end) else {
        return match text.is_empty() && !last {
            true => None,
            false => Some(false),
        };
    };
    let json = behind.trim_ascii_start();
    match json.is_empty() && !last && behind.len() <= HEAD_CAP {
        true => None,
        false => Some(json.starts_with('{')),
    }
}

/// Checks whether `text` begins with a call in Gemma's notation. `None` means that more text is
/// needed.
fn starts_with_gemma_call(text: &str, bare: bool, last: bool) -> Option<bool> {
    // If `call:` itself was the marker, a name and its brace must follow.
    if bare {
        let name = word_length(text);
        return Some(
            name > 0
                && text
                    .get(name..)
                    .is_some_and(|behind| behind.starts_with('{')),
        );
    }
    let call = text.strip_prefix(':').unwrap_or(text);
    if call.starts_with(GEMMA) {
        return Some(true);
    }
    // Some responses have only the colon of `call:`.
    let name = word_length(call);
    let behind = call.get(name..).unwrap_or_default();
    let is_named = call.len() < text.len() && name > 0 && behind.starts_with('{');
    let may_be_named = call.len() < text.len() && behind.is_empty() && name <= HEAD_CAP && !last;
    match is_partial_marker(call, GEMMA, last) || may_be_named {
        true => None,
        false => Some(is_named),
    }
}

/// Returns the position of a marker in a short text. The search of the standard library prepares tables for each call, which takes longer
/// than to read a header.
fn find_marker_text(text: &str, marker: &str) -> Option<usize> {
    let first = marker.as_bytes().first()?;
    let mut candidates = memchr::memchr_iter(*first, text.as_bytes());
    let begins = |at: &usize| text.get(*at..).is_some_and(|rest| rest.starts_with(marker));
    candidates.find(begins)
}

/// Returns true if the text ends inside a possible `marker`.
fn is_partial_marker(text: &str, marker: &str, last: bool) -> bool {
    !last && text.len() < marker.len() && marker.starts_with(text)
}

/// Checks whether `text` begins with a code fence that contains JSON. `None` means that more text
/// is needed.
fn starts_with_json_fence(text: &str, last: bool) -> Option<bool> {
    let Some(behind) = text.strip_prefix(FENCE) else {
        return if !last && FENCE.starts_with(text) {
            None
        } else {
            Some(false)
        };
    };
    let language = behind.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if behind.len() - language.len() > LANGUAGE_CAP {
        return Some(false);
    }
    let inside = language.trim_ascii_start();
    let blank = language.len() - inside.len();
    if inside.is_empty() && blank <= HEAD_CAP && !last {
        None
    } else {
        Some(inside.starts_with(['{', '[']))
    }
}

/// Returns the length of the word at the start of `text` that could be a tool's name.
pub(super) fn word_length(text: &str) -> usize {
    if !text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return 0;
    }
    text.chars()
        .take(HEAD_CAP + 1)
        .take_while(is_name)
        .map(char::len_utf8)
        .sum()
}

/// Returns true if the text may be an unfinished header: words, and the token of a channel. Prose that begins like a header is held for at
/// most a line.
fn may_be_header(head: &str) -> bool {
    header_words(head).len() == head.len()
}

/// Returns the beginning of a text that may be a header: up to a line's end, or to markup that no header holds.
pub(super) fn header_words(head: &str) -> &str {
    let mut at = 0;
    loop {
        let rest = head.get(at..).unwrap_or_default();
        let Some(end) = memchr::memchr2(b'\n', b'<', rest.as_bytes()) else {
            return head;
        };
        let tag = rest.get(end..).unwrap_or_default();
        let is_token = |token: &str| is_partial_marker(tag, token, false) || tag.starts_with(token);
        let tokens = ["<|channel|>", "<|constrain|>", MESSAGE];
        if !tag.starts_with('<') || !tokens.into_iter().any(is_token) {
            return head.get(..at + end).unwrap_or_default();
        }
        at += end + 1;
    }
}

/// Returns true for characters of a tool's name, including the separators that some dialects put
/// around it.
fn is_name(c: &char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}
