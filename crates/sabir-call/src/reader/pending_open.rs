//! Decides whether a tag in prose opens a call, by the text that follows it.
//!
//! A known tool's tag opens a call if an argument's tag or its own close follows. Followed by words
//! it is prose; if a closing tag comes later, a fault is reported, because a call without argument
//! tags was probably meant. A tag that belongs to no tool opens a call to an unknown tool if its
//! name resembles a tool's (more closely in the middle of a line) and a tag named like some tool's
//! argument follows, or if it is a whole element of the shape of a call (`reader/element.rs`). The model
//! then learns what is wrong.

use std::borrow::Cow;

use crate::dialect::grammar::{TagNotation, TagScheme};
use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan, Truncation};
use crate::fault::{Fault, FaultKind, Span};

use super::call::OpenTagCall;
use super::diagnostics::BareCall;
use super::element::{ElementShape, ElementVerdict, MAX_PROSE_ELEMENTS};
use super::markers::{MarkerMatch, is_special};
use super::tag::{LexedTag, Tag, TagRelevance};
use super::tag_form::{MESSAGE_CALL, TagForm};
use super::vocabulary::TagDialect;
use super::{CallReader, ReaderState, ReaderStep, TextWindow, take_whitespace, thought};

/// The tag between a tool's name and its arguments in some dialects with keys.
const SEPARATOR: &str = "tool_sep";

/// The separator with the suffix that all tags of Hy3 have.
const HY3_SEPARATOR: &str = "tool_sep:opensource";

impl TagNotation {
    /// Returns the number of bytes before the name in an opening tag.
    fn name_offset(self) -> usize {
        match self {
            Self::Angle => 1,
            Self::Marked(marker) => marker.len() + 1,
            Self::Delimited { open, .. } => open.len(),
        }
    }
}

/// Placeholders for a tool's name in instructions; models copy them.
const PLACEHOLDERS: [&str; 3] = ["tool_name", "function_name", "actual_tool_name"];

/// A marker that may open a call.
#[derive(Debug)]
pub(super) struct PendingOpen {
    pub(super) kind: OpenKind,
    /// The tag's name with its prefix; for any other marker, its text.
    pub(super) tag: String,
    /// The tool's name as written.
    pub(super) name: String,
    /// The offset of that name.
    pub(super) name_at: usize,
    /// The offset of the marker.
    pub(super) at: usize,
    /// The length of the marker, in bytes.
    pub(super) len: usize,
    /// True if it came first on its line.
    pub(super) first: bool,
    /// True if words follow it on the next line.
    pub(super) words: bool,
    /// The element that it opens, while that may be a call of an unknown tool.
    pub(super) element: Option<Box<ElementShape>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum OpenKind {
    /// The tag of the tool with that index.
    Tool(TagDialect, usize),
    /// A tag that belongs to no tool.
    Unknown(TagDialect),
    /// A tag that names the tool: `<invoke …>`.
    Fixed(TagDialect),
    /// A tag around a tool's name.
    Keyed(TagDialect),
    /// A tag around calls, in this notation.
    Wrapper(TagNotation),
    /// A marker with a region parser.
    Marker,
    /// A marker around calls.
    Section,
}

impl PendingOpen {
    /// Creates a pending open for a tag at that offset.
    pub(super) fn new(kind: OpenKind, tag: Tag<'_>, at: usize, first: bool) -> Self {
        let (name_at, name) = match kind {
            OpenKind::Fixed(TagDialect { tagged, .. }) => match tagged.tags {
                TagScheme::Fixed { call_name, .. } => call_name.find_name(&tag),
                TagScheme::Own | TagScheme::Keyed { .. } => (1, tag.name),
            },
            _ => (1, tag.name),
        };
        let name = match kind {
            OpenKind::Fixed(spelling) => TagForm::new(spelling, "").decode_name(name).into_owned(),
            _ => name.to_owned(),
        };
        let tag_name = tag.name.to_owned();
        Self {
            kind,
            tag: tag_name,
            name,
            name_at: at + name_at,
            at,
            len: tag.len,
            first,
            words: false,
            element: None,
        }
    }

    /// Creates a pending open for a marker at that offset.
    pub(super) fn from_marker(text: &str, at: usize, first: bool) -> Self {
        Self {
            kind: OpenKind::Marker,
            tag: text.to_owned(),
            name: String::new(),
            name_at: at,
            at,
            len: text.len(),
            first,
            words: false,
            element: None,
        }
    }

    /// Returns the dialect of the call that it may open.
    pub(super) fn tag_dialect(&self) -> Option<TagDialect> {
        match self.kind {
            OpenKind::Tool(spelling, _)
            | OpenKind::Unknown(spelling)
            | OpenKind::Keyed(spelling)
            | OpenKind::Fixed(spelling) => Some(spelling),
            OpenKind::Wrapper(_) | OpenKind::Marker | OpenKind::Section => None,
        }
    }

    /// Returns the tags that make up that call.
    pub(super) fn tag_form(&self) -> Option<TagForm> {
        Some(TagForm::new(self.tag_dialect()?, &self.tag))
    }

    /// Returns the text of the marker as in the marker table.
    pub(super) fn marker_text(&self) -> Cow<'_, str> {
        match self.kind {
            OpenKind::Wrapper(TagNotation::Angle) => Cow::Owned(format!("<{}>", self.tag)),
            _ => Cow::Borrowed(&self.tag),
        }
    }

    /// Returns the position of the tag's name within the opening tag.
    fn name_offset(&self) -> usize {
        match self.kind {
            OpenKind::Fixed(TagDialect { tagged, .. }) => tagged.notation.name_offset(),
            OpenKind::Wrapper(notation) => notation.name_offset(),
            OpenKind::Tool(..) | OpenKind::Unknown(_) | OpenKind::Keyed(_) => 1,
            OpenKind::Marker | OpenKind::Section => 0,
        }
    }

    /// Returns true if it is written as a tag, and first on its line.
    pub(super) fn is_first_tag(&self) -> bool {
        let is_tag = self.tag.starts_with('<') || matches!(self.kind, OpenKind::Wrapper(_));
        self.first && is_tag && !is_special(&self.tag)
    }

    /// Returns true if only a call can begin with this marker.
    fn is_certain(&self) -> bool {
        match self.kind {
            OpenKind::Fixed(spelling) if spelling.tagged.notation != TagNotation::Angle => true,
            OpenKind::Tool(..) | OpenKind::Fixed(_) => self.first,
            OpenKind::Marker => is_special(&self.tag) || self.is_first_tag(),
            OpenKind::Wrapper(TagNotation::Angle) => self.first || is_special(&self.tag),
            OpenKind::Wrapper(_) => true,
            OpenKind::Unknown(_) | OpenKind::Keyed(_) | OpenKind::Section => false,
        }
    }
}

impl CallReader {
    /// Emits a call whose tag is malformed. It ends directly after its start, rejected.
    pub(super) fn malformed_call(
        &mut self,
        opening: &PendingOpen,
        fault: Fault,
        out: &mut dyn EventSink,
    ) {
        let index = self.begin_call(opening, out);
        let at = fault.span.end;
        out.push_event(Event::Fault(&fault.in_call(index)));
        out.push_event(Event::CallEnd { index, at });
        self.diagnostics.note_malformed(&opening.tag);
        self.state = self.state_after_call();
    }

    /// Reads the white space after a marker, then the text that decides about it.
    pub(super) fn read_opening(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let at = from + take_whitespace(window.text_from(from), &mut self.held);
        let rest = window.text_from(at);
        if rest.is_empty() {
            return ReaderStep::To(at);
        }
        let ReaderState::Opening(mut opening) =
            std::mem::replace(&mut self.state, ReaderState::Prose)
        else {
            return ReaderStep::To(at);
        };
        if matches!(opening.kind, OpenKind::Section) {
            return self.read_section(opening, window, at, out);
        }
        if matches!(opening.kind, OpenKind::Wrapper(_) | OpenKind::Marker) {
            let line = self
                .held
                .get(opening.len..)
                .is_some_and(|blank| blank.contains('\n'));
            opening.words =
                opening.first && line && rest.starts_with(|c: char| c.is_alphanumeric());
            return self.dispatch_marker(opening, window, at, out);
        }
        // A partial tag at the end of the text stays undecided (`last` is false): the call was cut,
        // not mentioned.
        let form = opening.tag_form();
        let lexed = form.as_ref().map_or(LexedTag::No, |form| {
            form.lex_tag(rest, false, |_, _| TagRelevance::Any)
        });
        let next = match lexed {
            LexedTag::Partial => {
                self.state = ReaderState::Opening(opening);
                return ReaderStep::Wait(at);
            }
            LexedTag::Tag(tag) => Some(tag),
            LexedTag::No => None,
        };
        // Hunyuan separates the tool's name from what follows.
        if let Some(tag) = next
            && matches!(opening.kind, OpenKind::Keyed(_))
            && [SEPARATOR, HY3_SEPARATOR].contains(&tag.name)
            && tag.is_plain()
            && !tag.close
        {
            self.held.push_str(rest.get(..tag.len).unwrap_or_default());
            self.state = ReaderState::Opening(opening);
            return ReaderStep::To(at + tag.len);
        }
        if next.is_some_and(|tag| self.try_open_call(&opening, tag, at, out)) {
            return ReaderStep::To(at + next.map_or(0, |tag| tag.len));
        }
        if let Some(tag) = next
            && self.begin_json_block(&opening, tag, out)
        {
            return ReaderStep::To(at + tag.len);
        }
        if let Some(tag) = next {
            match self.read_element(&mut opening, tag, rest, window.last) {
                ElementVerdict::Wait => {
                    self.state = ReaderState::Opening(opening);
                    return ReaderStep::Wait(at);
                }
                ElementVerdict::Call => {
                    self.begin_with(&opening, tag, self.offset + at, out);
                    return ReaderStep::To(at + tag.len);
                }
                ElementVerdict::Prose => {}
            }
        }
        // The header of a message is certainly meant as a call.
        if let OpenKind::Fixed(spelling) = opening.kind
            && spelling.tagged.header_opens
            && opening.tag == MESSAGE_CALL
        {
            let place = self.offset + at;
            let message = format!("a message to `{}` holds no arguments in tags", opening.name);
            let fault = Fault::error(FaultKind::StrayText, Span::new(place, place), message);
            let hint = "write an `rfl:parameter` tag for each argument, or end the message with `<|call|>`";
            self.malformed_call(&opening, fault.with_hint(hint), out);
            // All that follows may be a value whose tag is missing.
            let calls = self.diagnostics.calls;
            let signs = self.diagnostics.outer_signs_mut();
            signs.note_rejected(calls);
            signs.note_unterminated_call(calls, Span::new(place, place));
            return ReaderStep::To(at);
        }
        let is_weak = self.is_weak_open(&opening);
        if rest.starts_with('{') && !is_weak && self.begin_json_body(&opening, out) {
            return ReaderStep::To(at);
        }
        if next.is_none()
            && let Some(tool) = self.named_tool(&opening)
        {
            let begins = self.starts_unknown_arguments(Some(tool), rest, window.last);
            let Some(begins) = begins else {
                self.state = ReaderState::Opening(opening);
                return ReaderStep::Wait(at);
            };
            // The tag of the call ends JSON that is not in tags.
            let is_json = || {
                let object = rest.strip_prefix('{').map(str::trim_start);
                let is_ended_by_tag =
                    matches!(opening.kind, OpenKind::Tool(..) | OpenKind::Fixed(_));
                is_ended_by_tag && object.is_some_and(|members| members.starts_with('"'))
            };
            if begins && !is_json() {
                self.note_unread_call(Span::new(opening.at, opening.at + opening.len));
            }
        }
        let fault = self.diagnose_mismatch(&opening, next, rest, at);
        // A tag that names the tool certainly begins a call, so even another tag after it counts as
        // misplaced content.
        if fault.is_some() {
            // Calls that follow may be content of the argument that was not understood.
            let calls = self.diagnostics.calls;
            self.diagnostics.outer_signs_mut().note_failed_open(calls);
        }
        let bare = fault.is_none()
            && !is_weak
            && (next.is_none() || matches!(opening.kind, OpenKind::Fixed(_)));
        let json = rest.starts_with('{');
        self.release_as_prose(*opening, bare.then_some(json), out);
        if let Some(fault) = fault {
            out.push_event(Event::Fault(&fault));
        }
        ReaderStep::To(at)
    }

    /// Returns the tool that the markup names.
    fn named_tool(&self, opening: &PendingOpen) -> Option<usize> {
        match opening.kind {
            // In the middle of a line a tool's name in angle brackets may be a type or an element.
            OpenKind::Tool(_, tool) => {
                Some(tool).filter(|_| opening.first && !self.is_weak_open(opening))
            }
            OpenKind::Fixed(_) | OpenKind::Keyed(_) => {
                let name = opening.name.trim_end_matches(':');
                self.vocabulary.resolve_tool(name)
            }
            _ => None,
        }
    }

    /// Reads an element that belongs to no tool, up to the end of the text. `tag` is the first one in
    /// it, at the start of `rest`.
    fn read_element(
        &mut self,
        opening: &mut PendingOpen,
        tag: Tag<'_>,
        rest: &str,
        last: bool,
    ) -> ElementVerdict {
        let is_candidate = matches!(opening.kind, OpenKind::Unknown(_))
            && opening.first
            && self.vocabulary.elements
            && !tag.close
            && self.diagnostics.missed_elements() < MAX_PROSE_ELEMENTS;
        if !is_candidate {
            return ElementVerdict::Prose;
        }
        let begun = opening.element.take().or_else(|| {
            ElementShape::try_begin(&opening.name, tag.name, &self.vocabulary).map(Box::new)
        });
        let Some(mut element) = begun else {
            return ElementVerdict::Prose;
        };
        let verdict = element.read_text(&opening.name, rest, last, &self.vocabulary);
        match verdict {
            ElementVerdict::Wait | ElementVerdict::Call => opening.element = Some(element),
            ElementVerdict::Prose => self.diagnostics.count_missed_element(),
        }
        verdict
    }

    /// Returns the fault for an argument's tag that does not match the call's tag.
    fn diagnose_mismatch(
        &self,
        opening: &PendingOpen,
        next: Option<Tag<'_>>,
        rest: &str,
        at: usize,
    ) -> Option<Fault> {
        let form = opening.tag_form()?;
        let hint = format!("write `{}`", self.format_correct_call(opening));
        match opening.kind {
            OpenKind::Fixed(_) => {
                let tag = next.filter(|tag| form.lacks_call_prefix(tag))?;
                let span = Span::new(self.offset + at, self.offset + at + tag.len);
                let message = format!(
                    "the tag `{}` does not belong to `{}`: their prefixes differ",
                    tag.name, opening.tag
                );
                Some(Fault::error(FaultKind::MalformedTag, span, message).with_hint(hint))
            }
            OpenKind::Keyed(_)
                if form.begins_half_pair(rest)
                    && self.vocabulary.resolve_tool(&opening.name).is_some() =>
            {
                let span = Span::new(opening.at, opening.at + opening.len);
                let message = format!(
                    "`{}` holds a key without a value, or a value without a key",
                    opening.name
                );
                Some(Fault::error(FaultKind::StrayText, span, message).with_hint(hint))
            }
            _ => None,
        }
    }

    /// Opens the call whose tag follows a wrapper. Returns false if that tag opens no call.
    pub(super) fn open_wrapped(
        &mut self,
        wrapper: &PendingOpen,
        tag: Tag<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> bool {
        let OpenKind::Wrapper(notation) = wrapper.kind else {
            return false;
        };
        let Some(spelling) = self
            .vocabulary
            .find_call_tag(tag.name, notation, Some(&wrapper.tag))
            .filter(|_| !tag.close)
        else {
            return false;
        };
        // A wrapper is not text, unless its content turns out not to be a call; `release_as_prose`
        // then undoes this.
        self.wrapped = Some(wrapper.tag.as_str().into());
        self.diagnostics.begin_block();
        let opening = PendingOpen::new(
            OpenKind::Fixed(spelling),
            tag,
            self.offset + at,
            wrapper.first,
        );
        if tag.empty {
            self.malformed_call(&opening, malformed_tag_fault(&opening, tag), out);
        } else {
            self.state = ReaderState::Opening(Box::new(opening));
        }
        true
    }

    /// Opens the call if the tag after the opening makes it one. Returns true if the call began and
    /// the tag was consumed.
    fn try_open_call(
        &mut self,
        opening: &PendingOpen,
        tag: Tag<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> bool {
        let tag_at = self.offset + at;
        match opening.kind {
            OpenKind::Wrapper(_) | OpenKind::Marker | OpenKind::Section => false,
            OpenKind::Fixed(_) => self.try_open_fixed(opening, tag, tag_at, out),
            OpenKind::Keyed(_) => {
                let form = opening.tag_form();
                let opens = tag.is_closing_tag(&opening.tag)
                    || form.is_some_and(|form| form.argument_name(&tag).is_some());
                if opens {
                    let index = self.begin_with(opening, tag, tag_at, out);
                    if opening.name_at == opening.at {
                        let span = Span::new(opening.at, opening.at + opening.len);
                        let message = format!("the opening tag `<{}>` is missing", opening.tag);
                        let fault = Fault::warning(FaultKind::MissingWrapper, span, message);
                        let hint = format!("begin each call with `<{}>`", opening.tag);
                        out.push_event(Event::Fault(&fault.in_call(index).with_hint(hint)));
                    }
                }
                opens
            }
            OpenKind::Tool(_, tool) => {
                let opens = self.is_tool_open(opening, tool, tag);
                if opens {
                    self.begin_with(opening, tag, tag_at, out);
                }
                opens
            }
            OpenKind::Unknown(_) => {
                let by_argument = !tag.close
                    && self.vocabulary.is_any_argument(tag.name)
                    && self.vocabulary.resembles_tool(&opening.name)
                    || !tag.close
                        && self.vocabulary.is_any_alias(tag.name)
                        && self.vocabulary.is_near_tool(&opening.name);
                // A closing tag alone proves little, so the name must be very similar to a tool's.
                let empty = tag.is_closing_tag(&opening.name)
                    && self.vocabulary.is_near_tool(&opening.name);
                // A placeholder may mean any tool.
                let placeholder = !tag.close
                    && PLACEHOLDERS
                        .iter()
                        .any(|name| opening.name.eq_ignore_ascii_case(name));
                if !tag.is_plain() || !(by_argument || empty || placeholder) {
                    return false;
                }
                self.begin_with(opening, tag, tag_at, out);
                true
            }
        }
    }

    fn try_open_fixed(
        &mut self,
        opening: &PendingOpen,
        tag: Tag<'_>,
        tag_at: usize,
        out: &mut dyn EventSink,
    ) -> bool {
        let Some(form) = opening.tag_form() else {
            return false;
        };
        let closes = tag.is_closing_tag(&opening.tag);
        // Two dialects may have the same tag around a call; the tag of its first argument
        // identifies the dialect.
        if !closes
            && !form.has_argument_tags()
            && form.argument_name(&tag).is_none()
            && let Some(spelling) = self.vocabulary.find_call_with_argument(&opening.tag, &tag)
        {
            return self.open_fixed_as(spelling, opening, tag, tag_at, out);
        }
        let argues = match form.has_argument_tags() {
            true => {
                !tag.close
                    && self
                        .vocabulary
                        .declares_argument(self.vocabulary.resolve_tool(&opening.name), tag.name)
            }
            false => form.argument_name(&tag).is_some(),
        };
        if !closes && !argues {
            return false;
        }
        let span = Span::new(opening.at, opening.at + opening.len);
        let unwrapped = self.wrapped.is_none();
        let before = self.prose.bytes_read();
        let index = self.begin_with(opening, tag, tag_at, out);
        if opening.name.is_empty() {
            let message = format!(
                "`<{}>` does not say which tool: it has no name",
                opening.tag
            );
            let fault = Fault::error(FaultKind::MissingName, span, message);
            let hint = format!(
                "write `{}` with the tool's name",
                form.format_call_tag("…", "…")
            );
            out.push_event(Event::Fault(&fault.in_call(index).with_hint(hint)));
        }
        if let Some(wrapper) = form.wrapper_name().filter(|_| unwrapped) {
            // The wrapper's closing tag may still follow, and must not become text then.
            self.diagnostics.unopened = Some(before);
            let message = format!("the call is outside of `<{wrapper}>`");
            let fault = Fault::warning(FaultKind::MissingWrapper, span, message);
            let hint = format!("put calls between `<{wrapper}>` and `</{wrapper}>`");
            out.push_event(Event::Fault(&fault.in_call(index).with_hint(hint)));
        }
        true
    }

    /// Opens a call whose tag two dialects share, as one of this dialect.
    fn open_fixed_as(
        &mut self,
        spelling: TagDialect,
        opening: &PendingOpen,
        tag: Tag<'_>,
        tag_at: usize,
        out: &mut dyn EventSink,
    ) -> bool {
        let other = PendingOpen {
            kind: OpenKind::Fixed(spelling),
            tag: opening.tag.clone(),
            name: opening.name.clone(),
            name_at: opening.name_at,
            at: opening.at,
            len: opening.len,
            first: opening.first,
            words: opening.words,
            element: None,
        };
        self.try_open_fixed(&other, tag, tag_at, out)
    }

    /// Returns true if the tag is a word that also occurs in other markup, such as `<view>`: only an
    /// argument's tag behind it makes it a call.
    pub(super) fn is_weak_open(&self, opening: &PendingOpen) -> bool {
        matches!(opening.kind, OpenKind::Tool(_, tool) if self.vocabulary.is_foreign_tool(tool))
            && !opening.name.contains('_')
    }

    fn is_tool_open(&self, opening: &PendingOpen, tool: usize, tag: Tag<'_>) -> bool {
        let declared = self.vocabulary.declares_argument(Some(tool), tag.name);
        let other_tool = self.vocabulary.find_exact_tool(tag.name).is_some();
        if self.vocabulary.is_foreign_tool(tool) {
            // Names such as `<view>` and `<task>` occur in other markup too.
            let understood = self
                .vocabulary
                .understands_argument(Some(tool), tag.name, |_| false);
            let is_like_call = opening.name.contains('_') && tag.is_plain() && !other_tool;
            return !tag.close && (declared || understood || is_like_call);
        }
        if tag.close {
            tag.is_closing_tag(&opening.name)
        } else {
            declared || (tag.is_plain() && !other_tool)
        }
    }

    fn begin_with(
        &mut self,
        opening: &PendingOpen,
        tag: Tag<'_>,
        tag_at: usize,
        out: &mut dyn EventSink,
    ) -> u32 {
        let tool = match opening.kind {
            OpenKind::Tool(_, tool) => Some(tool),
            _ => self.vocabulary.resolve_tool(&opening.name),
        };
        let tool = tool.filter(|at| !self.vocabulary.has_any_argument(*at));
        let Some(form) = opening.tag_form() else {
            return self.diagnostics.calls;
        };
        let index = self.begin_call(opening, out);
        if tag.close {
            self.note_empty_call(index, opening, tool);
            out.push_event(Event::CallEnd {
                index,
                at: tag_at + tag.len,
            });
            self.state = self.state_after_call();
        } else {
            let mut open = OpenTagCall::new(index, form, tool);
            open.begin_argument(tag, tag_at, out);
            self.state = ReaderState::Call(Box::new(open));
        }
        index
    }

    fn begin_call(&mut self, opening: &PendingOpen, out: &mut dyn EventSink) -> u32 {
        let index = self.diagnostics.calls;
        self.diagnostics.begin_call();
        // Inside a value neither buffer is needed, and the value may be long.
        self.held.release_memory();
        self.blank.release_memory();
        self.prose.clear_after_wrapper();
        let PendingOpen {
            name,
            name_at,
            at,
            len,
            ..
        } = opening;
        let dialect = opening.tag_dialect().map(|spelling| spelling.dialect);
        let chosen = self.vocabulary.chosen;
        let sure = if chosen {
            Certainty::Certain
        } else {
            Certainty::Likely
        };
        let rule = match opening.kind {
            OpenKind::Tool(..) => "a tool's tag, followed by an argument's tag or its own close",
            OpenKind::Unknown(_) if opening.element.is_some() => {
                "an element of the shape of a call"
            }
            OpenKind::Unknown(_) => "a tag like a tool's, followed by an argument's tag",
            _ => "a call's tag, followed by an argument's tag or its own close",
        };
        let span = Span::new(*at, at + len);
        out.push_event(Event::Mark(MarkupSpan {
            role: MarkupRole::Call,
            dialect,
            span,
            sure,
            rule,
        }));
        out.push_event(Event::CallStart {
            index,
            id: None,
            name,
            dialect,
            at: *at,
            name_at: *name_at,
        });
        index
    }

    /// Emits the marker as prose. `bare` is set if text that is not an argument follows; it is true if that text is JSON.
    pub(super) fn release_as_prose(
        &mut self,
        opening: PendingOpen,
        bare: Option<bool>,
        out: &mut dyn EventSink,
    ) {
        if opening.words && self.release_wrapper_words(&opening, out) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        // Another tag follows directly, so the text is not about the tag. If the tag of its first
        // argument is missing, later calls may be content of that argument.
        let after = held.get(opening.len..).unwrap_or_default();
        if bare.is_none()
            && matches!(
                opening.kind,
                OpenKind::Tool(..) | OpenKind::Fixed(_) | OpenKind::Keyed(_)
            )
            && after.trim_start_matches(char::is_whitespace).is_empty()
            && self.vocabulary.resolve_tool(&opening.name).is_some()
        {
            let calls = self.diagnostics.calls;
            self.diagnostics.outer_signs_mut().note_failed_open(calls);
        }
        if let Some(inside) = self.inside.take() {
            thought::emit_thought(&held, out);
            self.state = ReaderState::Thought(inside);
        } else {
            self.prose.read_text(&held);
            self.emit_prose(&held, out);
        }
        if matches!(opening.kind, OpenKind::Wrapper(_)) && opening.first {
            self.diagnostics
                .note_wrapper_without_call(&opening.tag, opening.at, opening.len);
        }
        // The wrapper was emitted as text with the rest, so its closing tag will be text too.
        if held.find(&opening.tag) != Some(opening.name_offset()) {
            self.wrapped = None;
        }
        self.held = held;
        self.held.clear();
        if let Some(json) = bare
            && matches!(opening.kind, OpenKind::Tool(..) | OpenKind::Fixed(_))
        {
            let span = Span::new(opening.at, opening.at + opening.len);
            let right = self.format_correct_call(&opening);
            self.diagnostics.note_bare_call(BareCall {
                tag: opening.tag,
                name: opening.name,
                span,
                right,
                json,
                calls: self.diagnostics.calls,
            });
        }
    }

    /// Emits the words after a wrapper on a line of its own: the wrapper remains markup, and the
    /// words are text. Returns false if the marker is not such a wrapper.
    fn release_wrapper_words(&mut self, opening: &PendingOpen, out: &mut dyn EventSink) -> bool {
        if self.inside.is_some() || self.vocabulary.resolve_tool(&opening.name).is_some() {
            return false;
        }
        let held = std::mem::take(&mut self.held);
        let words = held
            .get(opening.len..)
            .unwrap_or_default()
            .trim_ascii_start();
        self.diagnostics
            .note_wrapper_words(&opening.tag, opening.at, opening.len);
        let sure = Certainty::Likely;
        let span = Span::new(opening.at, opening.at + opening.len);
        let rule = "a wrapper on a line of its own, with words behind it";
        out.push_event(Event::Mark(MarkupSpan {
            role: MarkupRole::Wrapper,
            dialect: None,
            span,
            sure,
            rule,
        }));
        self.wrapped = Some(opening.tag.as_str().into());
        self.diagnostics.begin_block();
        self.blank.clear();
        self.prose.read_text(words);
        self.emit_prose(words, out);
        true
    }

    /// Decides about a marker around calls or messages: it is markup if more markup follows, if
    /// calls came before, or at the start of a line or message; otherwise it is text.
    fn read_section(
        &mut self,
        mut opening: Box<PendingOpen>,
        window: TextWindow<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let rest = window.text_from(at);
        // The same marker opens a list of calls in another dialect.
        if rest.starts_with('[') && self.vocabulary.markers.opens_json(&opening.tag) {
            opening.kind = OpenKind::Marker;
            return self.dispatch_marker(opening, window, at, out);
        }
        let follows = match self
            .vocabulary
            .markers
            .find_special_marker(rest, window.last)
        {
            MarkerMatch::Marker(_) => Some(true),
            MarkerMatch::Partial => None,
            MarkerMatch::None => match self.lex_any(rest, window.last, true).0 {
                LexedTag::Partial => None,
                LexedTag::Tag(_) => Some(true),
                LexedTag::No => Some(false),
            },
        };
        let Some(follows) = follows else {
            self.state = ReaderState::Opening(opening);
            return ReaderStep::Wait(at);
        };
        // Hardly any text begins like arguments, so the marker is looked at last.
        let is_unread = match follows {
            true => Some(false),
            false => self.starts_unknown_arguments(None, rest, window.last),
        };
        match is_unread {
            Some(false) => {}
            _ if self.is_role_marker(&opening) => {}
            None => {
                self.state = ReaderState::Opening(opening);
                return ReaderStep::Wait(at);
            }
            Some(true) => self.note_unread_call(Span::new(opening.at, opening.at + opening.len)),
        }
        if follows || opening.first || self.diagnostics.calls > 0 {
            self.drop_section(&opening);
            self.diagnostics.emit_notes(out);
            self.state = self.state_after_call();
        } else {
            self.release_as_prose(*opening, None, out);
        }
        ReaderStep::To(at)
    }

    /// Drops a marker around calls, which is not text.
    pub(super) fn drop_section(&mut self, opening: &PendingOpen) {
        self.prose.is_addressed_to_user = false;
        self.diagnostics.note_mark(
            MarkupRole::Wrapper,
            opening.at,
            opening.len,
            "a marker around calls",
        );
        // White space after it is not text either, unless words follow.
        self.blank.clear();
        self.blank
            .push_str(self.held.get(opening.len..).unwrap_or_default());
        self.held.clear();
        self.prose.mark_after_wrapper();
    }

    /// Ends the text after a marker that may have opened a call.
    pub(super) fn cut_opening(
        &mut self,
        opening: PendingOpen,
        why: Truncation,
        rest: &str,
        out: &mut dyn EventSink,
    ) {
        if matches!(opening.kind, OpenKind::Section) {
            self.drop_section(&opening);
            return self.diagnostics.emit_notes(out);
        }
        let named = matches!(opening.kind, OpenKind::Keyed(_))
            && self.vocabulary.resolve_tool(&opening.name).is_some();
        let certain =
            (opening.is_certain() && !self.is_weak_open(&opening)) || (named && opening.first);
        if !certain && self.is_cut_in_call(&opening, rest) {
            return self.cut_in_call(opening, rest, why, out);
        }
        if !certain {
            self.release_as_prose(opening, None, out);
            return self.emit_prose(rest, out);
        }
        if opening.tag_form().is_none() {
            return self.cut_marker(&opening, why, out);
        }
        let index = self.begin_call(&opening, out);
        out.push_event(Event::CallCut {
            index,
            why,
            at: self.offset,
        });
    }
}

pub(super) fn malformed_tag_fault(opening: &PendingOpen, tag: Tag<'_>) -> Fault {
    let (kind, message) = if tag.empty {
        let message = format!(
            "the tag `{}` closes itself; it must stay open for the arguments",
            tag.name
        );
        (FaultKind::SelfClosing, message)
    } else {
        let message = format!(
            "the tag `{}` carries attributes; arguments are tags of their own",
            tag.name
        );
        (FaultKind::MalformedTag, message)
    };
    let right = opening
        .tag_form()
        .map(|form| form.format_call_tag(&opening.name, "…"))
        .unwrap_or_default();
    let span = Span::new(opening.at, opening.at + tag.len);
    let hint = format!("write one tag for each argument between the tags of the call: `{right}`");
    Fault::error(kind, span, message).with_hint(hint)
}
