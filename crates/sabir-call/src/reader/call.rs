//! Reads a call in tags and decides where each value ends.
//!
//! A raw value may contain its own closing tag, for example a file about this very format. Such a
//! candidate is held back, and the text after it, beyond white space, decides:
//!
//! * the call's close, or an argument not given yet: the value ends;
//! * an argument already given: the value ends, and the call is rejected because it has two
//!   readings;
//! * anything else: the candidate was content.
//!
//! In dialects that put every value on its own lines, a missing closing tag is recognized: if an
//! argument not given yet opens a line, the value ends there, with an error. If a later closing tag
//! turns out to be content, the call has two readings and is rejected. A call's close never
//! replaces its argument's close.
//!
//! A complete example of a call inside a value (its opening tag followed by an argument's tag, up
//! to its close) nests, and nothing in it ends the value. `reader/ambiguity.rs` assesses everything
//! else; an ambiguous call is rejected, never guessed.

use crate::event::{ArgumentEncoding, Event, EventSink, Truncation};
use crate::fault::{Fault, FaultKind, Span};
use crate::small_name_set::SmallNameSet;
use crate::swar::find_byte;

use super::ambiguity::{CallAmbiguity, MisplacedTag, PrecedingTag, TagRole};
use super::buffer::LazyBuffer;
use super::diagnostics::ClosedCall;
use super::tag::{LexedTag, Tag, TagRelevance};
use super::tag_form::TagForm;
use super::value::{LineFeed, ValuePhase, ValueState, is_quote};
use super::vocabulary::Vocabulary;
use super::{CallReader, ReaderState, ReaderStep, TextWindow, take_whitespace};

/// The maximum number of remembered pairs of closing tags. A tool's name and its last argument make
/// one pair, so only hostile text reaches the limit.
const CLOSED_CAP: usize = 256;

/// The marks of a CDATA section.
const SECTION_OPEN: &str = "<![CDATA[";
const SECTION_CLOSE: &str = "]]>";

/// A call in tags that is being read.
#[derive(Debug)]
pub(super) struct OpenTagCall {
    pub(super) index: u32,
    pub(super) form: TagForm,
    tool: Option<u32>,
    /// The names of the arguments so far, including the current one.
    pub(super) given: SmallNameSet,
    /// The name of the current argument.
    pub(super) argument: Box<str>,
    pub(super) value: ValueState,
    /// Possible mistakes; `None` if there are none, which keeps the common case small.
    pub(super) ambiguity: Option<Box<CallAmbiguity>>,
    /// The first byte of every tag in this notation.
    first: u8,
}

impl OpenTagCall {
    /// Creates the state of a call that has just been opened, before its first argument. `tool` is
    /// its position in the vocabulary; `None` for an unknown tool.
    pub(super) fn new(index: u32, form: TagForm, tool: Option<usize>) -> Self {
        let first = form.first_byte();
        Self {
            index,
            form,
            tool: tool.and_then(|tool| u32::try_from(tool).ok()),
            given: SmallNameSet::default(),
            argument: Box::default(),
            value: ValueState::new("", false, false),
            ambiguity: None,
            first,
        }
    }

    /// Processes the tag that opens an argument.
    pub(super) fn begin_argument(&mut self, tag: Tag<'_>, at: usize, out: &mut dyn EventSink) {
        let name = &*self
            .form
            .decode_name(self.form.argument_name(&tag).unwrap_or_default());
        let span = Span::new(at, at + tag.len);
        // Ambiguous: the first value may have contained this tag. Not guessed, since
        // `…</content><path>evil</path>` inside a file must not redirect a write.
        if self.given.contains(name) {
            let message =
                format!("`{name}` is given twice, so the value before it could end in two places");
            self.add_fault(
                FaultKind::DoubledArgument,
                span,
                message,
                "give each argument once",
            );
        } else if name.is_empty() {
            let message = format!(
                "`<{}>` does not say which argument: it has no name",
                tag.name
            );
            let hint = format!("write `{}`", self.form.format_argument_tag("…"));
            self.add_fault(FaultKind::MissingName, span, message, &hint);
        }
        let json = self.form.is_json(&tag);
        if self.form.has_argument_tags() && !tag.is_plain() && !json {
            let message = format!("the tag `{name}` carries attributes");
            self.add_fault(
                FaultKind::MalformedTag,
                span,
                message,
                &format!("write `<{name}>`"),
            );
        }
        self.emit_faults(out);
        let form = if json {
            ArgumentEncoding::Json
        } else {
            ArgumentEncoding::Raw
        };
        out.push_event(Event::ArgStart {
            index: self.index,
            name,
            form,
            at: span.end,
        });
        self.given.insert(name);
        self.argument = name.into();
        self.value = ValueState::new(
            self.form.value_close(&tag),
            json || self.form.has_exact_values(),
            self.form.has_name_after_tag(),
        );
        if let Some(doubt) = &mut self.ambiguity {
            doubt.implied = false;
            doubt.unknown_tag = None;
        }
    }

    /// Queues an error about the current argument, which stops the call.
    pub(super) fn add_fault(&mut self, kind: FaultKind, span: Span, message: String, hint: &str) {
        let fault = Fault::error(kind, span, message)
            .in_call(self.index)
            .in_argument(&*self.argument);
        self.queue_fault(fault.with_hint(hint));
    }

    /// Records a fault that must follow the text before it.
    pub(super) fn queue_fault(&mut self, fault: Fault) {
        self.ambiguity.get_or_insert_default().faults.push(fault);
    }

    /// Returns the name of the current argument.
    pub(super) fn argument_name(&self) -> &str {
        &self.argument
    }

    /// Returns the position of the call's tool.
    pub(super) fn tool_index(&self) -> Option<usize> {
        self.tool.and_then(|tool| usize::try_from(tool).ok())
    }

    /// Emits the queued faults. The caller has emitted the text before them, so their order does
    /// not depend on the chunks.
    pub(super) fn emit_faults(&mut self, out: &mut dyn EventSink) {
        for fault in self
            .ambiguity
            .iter_mut()
            .flat_map(|doubt| doubt.faults.drain(..))
        {
            out.push_event(Event::Fault(&fault));
        }
    }
}

impl CallReader {
    /// Continues a call.
    pub(super) fn read_call(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let ReaderState::Call(open) = &mut self.state else {
            return ReaderStep::To(from);
        };
        match open.value.phase {
            ValuePhase::Start => {
                let rest = window.text_from(from);
                // The other half of a CRLF may follow.
                // Without the wait, the split of a CRLF would decide whether the value is wrapped.
                if rest == "\r" && !window.last {
                    return ReaderStep::Wait(from);
                }
                if open.form.has_text_sections() {
                    if rest.starts_with(SECTION_OPEN) {
                        open.value.phase = ValuePhase::Section;
                        return ReaderStep::To(from + SECTION_OPEN.len());
                    }
                    if SECTION_OPEN.starts_with(rest) && !window.last {
                        return ReaderStep::Wait(from);
                    }
                }
                open.value.lead = LineFeed::parse_leading(rest);
                open.value.phase = ValuePhase::Body;
                ReaderStep::To(from + open.value.lead.as_str().len())
            }
            ValuePhase::Section => open.read_section(window, from, out),
            ValuePhase::AfterSection => {
                // A section cannot hold its own end, so the rest of such a text is in another one.
                let rest = window.text_from(from);
                let is_next = rest.starts_with(SECTION_OPEN);
                if !is_next && SECTION_OPEN.starts_with(rest) && !window.last {
                    return ReaderStep::Wait(from);
                }
                open.value.phase = match is_next {
                    true => ValuePhase::Section,
                    false => ValuePhase::Body,
                };
                ReaderStep::To(from + if is_next { SECTION_OPEN.len() } else { 0 })
            }
            ValuePhase::Body => self.read_value_body(window, from, out),
            ValuePhase::Closing(..) => self.read_closing(window, from, out),
        }
    }

    /// Reads a value up to a candidate for its end, to a tag that ends the call, or to the end of
    /// the window. Everything before that is emitted at once, so a large file streams.
    fn read_value_body(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let ReaderState::Call(open) = &mut self.state else {
            return ReaderStep::To(from);
        };
        let mut at = from;
        let mut emitted_to = from;
        let first = open.form.first_byte();
        loop {
            let rest = window.text_from(at);
            // No candidate in the rest of the window: all of it is content, except a last line
            // feed.
            let Some(found) = find_byte(first, rest.as_bytes()) else {
                open.value.track_text(rest);
                let run = window.text_from(emitted_to);
                // At the end of the text nothing can pair with a held line feed any more.
                let keep = if window.last {
                    0
                } else {
                    open.value.undecided_len(run)
                };
                open.emit_piece(run.get(..run.len() - keep), out);
                return ReaderStep::Wait(window.text.len() - keep);
            };
            open.value.track_text(rest.get(..found).unwrap_or_default());
            at += found;
            let tail = window.text_from(at);
            let vocabulary = &self.vocabulary;
            let interest = |name: &str, close| open.tag_relevance(name, close, vocabulary);
            let lexed = match open.may_matter(tail.as_bytes(), vocabulary) {
                true => open.form.lex_tag(tail, window.last, interest),
                false => LexedTag::No,
            };
            let run = window.text_between(emitted_to, at);
            let tag = match lexed {
                LexedTag::No => {
                    open.value.before = PrecedingTag::Nothing;
                    at += 1;
                    continue;
                }
                LexedTag::Partial => {
                    let keep = open.value.undecided_len(run);
                    open.emit_piece(run.get(..run.len() - keep), out);
                    return ReaderStep::Wait(at - keep);
                }
                LexedTag::Tag(tag) => tag,
            };
            let role = open.tag_role(&tag, vocabulary);
            let span = Span::new(self.offset + at, self.offset + at + tag.len);
            if matches!(role, TagRole::ArgumentOpen) && open.is_ended_by(&tag, run, vocabulary) {
                let feed = open.emit_value(run, &mut self.held, out);
                self.held.clear();
                open.end_unclosed_value(feed, tag, span, out);
                return ReaderStep::To(at + tag.len);
            }
            // Only a candidate: `read_closing` decides when it sees the text after it.
            if matches!(role, TagRole::ArgumentClose) && open.value.depth == 0 {
                open.value.note_before_close(run);
                let feed = open.emit_value(run, &mut self.held, out);
                self.held.push_str(window.text_between(at, at + tag.len));
                // From here on only white space and one tag are held back, never a value.
                open.value.phase = ValuePhase::Closing(span.start, feed);
                return ReaderStep::To(at + tag.len);
            }
            let opened = match role {
                TagRole::ArgumentOpen => open.form.argument_name(&tag),
                _ => None,
            };
            if opened.is_some() || open.form.opens_value_without_key(&tag) {
                let before = open.value.byte_before(run);
                let after = tail.as_bytes().get(tag.len);
                if is_quote(before) && after.is_none() && !window.last {
                    let keep = open.value.undecided_len(run);
                    open.emit_piece(run.get(..run.len() - keep), out);
                    return ReaderStep::Wait(at - keep);
                }
                if let Some(name) = opened {
                    open.note_sibling(name, span, vocabulary);
                }
                // Between quotation marks it is only mentioned.
                if !is_quote(before) || after != Some(&before) {
                    open.note_inner_open(opened, span, vocabulary);
                }
            }
            let ends = open.assess_tag(&role, tag.name, span);
            // Faults must follow the text before them.
            if ends || open.has_faults() {
                open.emit_piece(Some(run), out);
                open.emit_faults(out);
                emitted_to = at;
            }
            if ends {
                open.flush_pending(out);
                self.end_call(span, span.start, out);
                return ReaderStep::To(at + tag.len);
            }
            at += tag.len;
        }
    }

    /// Reads the white space after a candidate, then the text that decides about it.
    fn read_closing(
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
        let is_apart = self.held.ends_with(|c: char| c.is_ascii_whitespace());
        let ReaderState::Call(open) = &mut self.state else {
            return ReaderStep::To(at);
        };
        let is_quoted = !is_apart && open.value.is_close_quoted(rest);
        let ValuePhase::Closing(close_at, feed) = open.value.phase else {
            return ReaderStep::To(at);
        };
        // `last` is false even at the end of the text: a partial tag stays undecided there, and the
        // argument then ends at the candidate, the last certain end.
        let tag = match open.form.lex_tag(rest, false, |_, _| TagRelevance::Any) {
            LexedTag::Partial => return ReaderStep::Wait(at),
            LexedTag::Tag(tag) => Some(tag),
            LexedTag::No => None,
        };
        let Some(tag) = tag else {
            if open.form.begins_half_pair(rest) {
                open.flag_half_pair(self.offset + at);
            }
            return self.resume_content(at, is_quoted, out);
        };
        let span = Span::new(self.offset + at, self.offset + at + tag.len);
        // Both closing tags in a row end the call. If the value contained that pair, the real one
        // comes later and is reported then (`report_ambiguous_end`).
        if tag.is_closing_tag(&open.form.call) {
            self.end_value(close_at, feed, out);
            self.end_call(span, span.end, out);
            return ReaderStep::To(at + tag.len);
        }
        let argument = open.form.argument_name(&tag);
        let opens = match open.form.has_argument_tags() {
            false => argument.is_some(),
            true => argument.is_some_and(|name| {
                let tool = open.tool_index();
                self.vocabulary.declares_argument(tool, name)
                    || self
                        .vocabulary
                        .understands_argument(tool, name, |name| open.given.contains(name))
            }),
        };
        if opens {
            self.end_value(close_at, feed, out);
            let ReaderState::Call(open) = &mut self.state else {
                return ReaderStep::To(at);
            };
            open.begin_argument(tag, span.start, out);
            return ReaderStep::To(at + tag.len);
        }
        // The candidate is content, but its follower may explain later why the call never closed.
        if tag.close {
            open.ambiguity.get_or_insert_default().misplaced =
                Some((MisplacedTag::Close, tag.name.to_owned(), span));
        } else if open.form.begins_call(&tag, &self.vocabulary) {
            let text = rest.get(..tag.len).unwrap_or_default().to_owned();
            open.ambiguity.get_or_insert_default().misplaced =
                Some((MisplacedTag::Open, text, span));
        } else if tag.is_plain() && self.vocabulary.find_exact_tool(tag.name).is_none() {
            open.ambiguity.get_or_insert_default().unknown_tag = Some((tag.name.to_owned(), span));
        }
        self.resume_content(at, is_quoted, out)
    }

    /// Continues the value: the candidate was content.
    fn resume_content(
        &mut self,
        at: usize,
        is_quoted: bool,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let ReaderState::Call(open) = &mut self.state else {
            return ReaderStep::To(at);
        };
        let (text, pending) = open.value.split_pending(&self.held);
        emit_delta(open.index, Some(text), out);
        open.value.last_byte = self.held.as_bytes().last().copied().unwrap_or(0);
        open.value.pending = pending;
        self.held.clear();
        if let ValuePhase::Closing(close, _) = open.value.phase {
            open.flag_implied_close(close);
            open.close_inner_open();
            // In quotation marks it is only mentioned, as in `echo '</parameter>'`.
            if !is_quoted {
                let length = open.form.format_close_tag(&open.value.close).len();
                open.note_inner_close(Span::new(close, close + length));
            }
        }
        open.emit_faults(out);
        open.value.phase = ValuePhase::Body;
        // The candidate and the white space after it were content, so nothing precedes the next
        // tag.
        open.value.before = PrecedingTag::Nothing;
        ReaderStep::To(at)
    }

    /// Ends the value at a candidate that turned out to be its end. `feed` is the length of the held-back line feed before it.
    fn end_value(&mut self, at: usize, feed: u8, out: &mut dyn EventSink) {
        let ReaderState::Call(open) = &mut self.state else {
            return;
        };
        open.push_value_end(at, feed, out);
        open.keep_unclosed_open();
        self.held.clear();
    }

    /// Ends the call at its closing tag, and remembers its pairs of closing tags: if they come
    /// again, the value could have ended there too.
    fn end_call(&mut self, span: Span, value_end: usize, out: &mut dyn EventSink) {
        let outside = self.state_after_call();
        let ReaderState::Call(mut open) = std::mem::replace(&mut self.state, outside) else {
            return;
        };
        open.report_inner_tags(&self.vocabulary);
        open.emit_faults(out);
        // The call's close also ends the value, because the argument's close is missing.
        if value_end == span.start {
            out.push_event(Event::ArgEnd {
                index: open.index,
                lead: open.value.lead.as_str(),
                at: value_end,
            });
        }
        out.push_event(Event::CallEnd {
            index: open.index,
            at: span.end,
        });
        let OpenTagCall {
            index,
            argument,
            value,
            given,
            form,
            tool,
            ..
        } = *open;
        // The end of any argument may have been content, so all are remembered, including those of
        // arguments that can only come after the last one.
        let declared = tool.and_then(|tool| usize::try_from(tool).ok());
        let closes: Vec<&str> = if form.has_argument_tags() {
            let mut names = given.sorted_names();
            names.extend(self.vocabulary.absent_arguments(declared, &given));
            names
        } else {
            vec![&value.close]
        };
        for argument_close in closes {
            let known = |closed: &ClosedCall| {
                &*closed.argument_close == argument_close && closed.call_close == form.call
            };
            if self.diagnostics.closed_calls().len() < CLOSED_CAP
                && !self.diagnostics.closed_calls().iter().any(known)
            {
                self.diagnostics.closed_calls_mut().push(ClosedCall {
                    index,
                    argument: argument.clone(),
                    argument_close: argument_close.into(),
                    call_close: form.call.clone(),
                    noted: None,
                });
            }
        }
    }

    /// Ends a call without its closing tag, at the end of the last value.
    pub(super) fn close_last_call(&mut self, open: OpenTagCall, out: &mut dyn EventSink) {
        self.held.clear();
        let close = open.form.format_close_tag(&open.form.call);
        let end = open.end_last_value(out);
        out.push_event(Event::Fault(&missing_last_close(open.index, &close, end)));
        out.push_event(Event::CallEnd {
            index: open.index,
            at: end,
        });
    }

    /// Cuts a call because the text ended inside it.
    pub(super) fn cut_call(
        &mut self,
        mut open: OpenTagCall,
        why: Truncation,
        out: &mut dyn EventSink,
    ) {
        self.held.clear();
        open.end_last_value(out);
        open.explain_cut(out);
        // Even a call whose last argument was complete is cut, since more arguments may be
        // missing.
        out.push_event(Event::CallCut {
            index: open.index,
            why,
            at: self.offset,
        });
    }
}

impl OpenTagCall {
    /// Returns true if the call's closing tag is all that it lacks, and its last value can end nowhere else.
    pub(super) fn lacks_only_close(&self) -> bool {
        // Anything that was noted about the value is a second reading of it.
        matches!(self.value.phase, ValuePhase::Closing(..)) && self.ambiguity.is_none()
    }

    /// Emits the end of the value. `feed` is the length of the line feed before it that was held back.
    fn push_value_end(&self, at: usize, feed: u8, out: &mut dyn EventSink) {
        // Only a pair of line feeds is a wrapper; without the second one the first belongs to the
        // value.
        let lead = if feed == 0 {
            self.value.lead.as_str()
        } else {
            ""
        };
        out.push_event(Event::ArgEnd {
            index: self.index,
            lead,
            at: at - usize::from(feed),
        });
    }

    /// Ends the last value at its closing tag, if that has been read; returns the offset after the tag.
    fn end_last_value(&self, out: &mut dyn EventSink) -> usize {
        let ValuePhase::Closing(at, feed) = self.value.phase else {
            return 0;
        };
        self.push_value_end(at, feed, out);
        at + self.form.format_close_tag(&self.value.close).len()
    }

    /// Reads a CDATA section up to its end, or to the end of the window.
    fn read_section(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let rest = window.text_from(from);
        if let Some((text, _)) = rest.split_once(SECTION_CLOSE) {
            self.emit_piece(Some(text), out);
            self.value.phase = ValuePhase::AfterSection;
            return ReaderStep::To(from + text.len() + SECTION_CLOSE.len());
        }
        // A part of the end may be the last of the window.
        let is_part = |length: &usize| rest.ends_with(SECTION_CLOSE.get(..*length).unwrap_or("]"));
        let keep = match window.last {
            true => 0,
            false => (1..SECTION_CLOSE.len()).rev().find(is_part).unwrap_or(0),
        };
        let end = rest.len() - keep;
        self.emit_piece(rest.get(..end), out);
        ReaderStep::Wait(from + end)
    }

    /// Returns true if an argument's tag ends the value before it, whose closing tag is missing.
    /// The tag must come first on its line, in a value on its own lines, and open an argument of
    /// the tool that was not given yet.
    fn is_ended_by(&self, tag: &Tag<'_>, run: &str, vocabulary: &Vocabulary) -> bool {
        let value = &self.value;
        let line =
            run.ends_with('\n') || (run.is_empty() && value.pending.as_str().ends_with('\n'));
        // All of these must hold; in any other layout the tag is content, and the value continues.
        if !self.form.has_value_lines()
            || value.lead == LineFeed::None
            || value.depth > 0
            || value.before != PrecedingTag::Nothing
            || !line
        {
            return false;
        }
        let name = self.form.argument_name(tag).unwrap_or_default();
        self.tool.is_some()
            && vocabulary.declares_argument(self.tool_index(), name)
            && !self.given.contains(name)
    }

    /// Ends the value, whose text was emitted, at the tag of the next argument.
    fn end_unclosed_value(&mut self, feed: u8, tag: Tag<'_>, span: Span, out: &mut dyn EventSink) {
        self.push_value_end(span.start, feed, out);
        // The value is kept for the feedback; the error stops the call.
        let close = self.form.format_close_tag(&self.value.close);
        let message = format!(
            "`{close}` is missing before the next argument; the value of `{}` ends here",
            self.argument
        );
        let fault = Fault::error(FaultKind::WrongClose, span, message).in_call(self.index);
        let fault = fault.in_argument(&*self.argument);
        self.queue_fault(fault.with_hint(format!("close each argument with `{close}`")));
        self.begin_argument(tag, span.start, out);
        self.ambiguity.get_or_insert_default().implied = true;
    }

    /// Reports a key without a value, or a value without a key, after a closing tag: the argument
    /// may have ended there.
    fn flag_half_pair(&mut self, at: usize) {
        let span = Span::new(at, at + 1);
        let message =
            "a key without a value, or a value without a key, follows a closing tag".to_owned();
        let hint = format!(
            "write `{}` for each argument",
            self.form.format_argument_tag("…")
        );
        self.report_once(FaultKind::StrayText, span, message, &hint);
    }

    /// Reports a closing tag that turned out to be content. If the argument before had no closing
    /// tag, this one may have closed an example inside it.
    fn flag_implied_close(&mut self, at: usize) {
        if self
            .ambiguity
            .as_mut()
            .is_some_and(|doubt| std::mem::take(&mut doubt.implied))
        {
            let close = self.form.format_close_tag(&self.value.close);
            let message =
                format!("more of the call follows `{close}`, so it is not known what that closes");
            let span = Span::new(at, at + close.len());
            self.add_fault(
                FaultKind::DoubledArgument,
                span,
                message,
                &format!("close each argument with `{close}`"),
            );
        }
    }

    /// Consumes a whole chunk that lies inside the value. Returns false if the chunk needs a closer
    /// look. This is the hot path.
    #[inline]
    pub(super) fn take_chunk(
        &mut self,
        chunk: &str,
        vocabulary: &Vocabulary,
        out: &mut dyn EventSink,
    ) -> bool {
        let value = &self.value;
        let inside = value.phase == ValuePhase::Body
            && value.before == PrecedingTag::Nothing
            && value.pending == LineFeed::None;
        if !inside || value.undecided_len(chunk) > 0 || chunk.is_empty() {
            return false;
        }
        let plain = match find_byte(self.first, chunk.as_bytes()) {
            // No byte of this chunk can begin a tag: it is content as a whole, whatever follows.
            None => true,
            Some(at) => !self.has_relevant_tag(chunk, at, vocabulary),
        };
        if plain {
            self.value.last_byte = chunk.as_bytes().last().copied().unwrap_or(0);
            out.push_event(Event::ArgDelta {
                index: self.index,
                text: chunk,
            });
        }
        plain
    }

    /// Returns true if a relevant tag occurs or begins in `chunk`; `first` is the position of the
    /// first possible one.
    #[inline(never)]
    fn has_relevant_tag(&self, chunk: &str, first: usize, vocabulary: &Vocabulary) -> bool {
        let bytes = chunk.as_bytes();
        let mut at = first;
        loop {
            let tail = chunk.get(at..).unwrap_or_default();
            if self.may_matter(tail.as_bytes(), vocabulary)
                && self.form.lex_tag(tail, false, |name, close| {
                    self.tag_relevance(name, close, vocabulary)
                }) != LexedTag::No
            {
                return true;
            }
            match find_byte(self.first, bytes.get(at + 1..).unwrap_or_default()) {
                Some(next) => at += 1 + next,
                None => return false,
            }
        }
    }

    /// Returns true if a tag at the start of `tail` could be relevant, by the first letter
    /// of its name. Most `<` in code are ruled out here without lexing.
    #[inline]
    fn may_matter(&self, tail: &[u8], vocabulary: &Vocabulary) -> bool {
        // Of wrappers only the closing tag has a meaning inside a value.
        let (letter, closing) = match tail {
            // In other notations the first byte is rare, so every candidate is lexed.
            _ if self.first != b'<' || self.unknown_tag_name().is_some() => return true,
            [_, b'/', letter, ..] => (*letter, tail.get(2..).unwrap_or_default()),
            [_, letter, ..] => (*letter, &[][..]),
            _ => return true,
        };
        let begins = |name: &str| name.as_bytes().first() == Some(&letter);
        // The bars of a sentinel come in several shapes, so names that may begin with one are
        // lexed.
        matches!(letter, b'/' | b'|' | 0x80..)
            || begins(&self.value.close)
            || begins(&self.form.call)
            || (self.form.has_argument_tags() && vocabulary.begins_name(letter))
            || self.form.has_name_after_tag()
            || !closing.is_empty() && self.form.may_begin_wrapper(closing)
    }

    /// Emits a piece of the value, after the line feed that was held back.
    fn emit_piece(&mut self, text: Option<&str>, out: &mut dyn EventSink) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.flush_pending(out);
            self.value.last_byte = text.as_bytes().last().copied().unwrap_or(0);
            emit_delta(self.index, Some(text), out);
        }
    }

    /// Emits the value before a closing tag. A line feed at its end that may belong to the wrapper
    /// goes to `held`; returns its length.
    fn emit_value(&mut self, run: &str, held: &mut LazyBuffer, out: &mut dyn EventSink) -> u8 {
        held.clear();
        let feed = self.value.trailing_feed_len(if run.is_empty() {
            self.value.pending.as_str()
        } else {
            run
        });
        if run.is_empty() && feed > 0 {
            held.push_str(std::mem::take(&mut self.value.pending).as_str());
        }
        self.flush_pending(out);
        let (text, rest) = run
            .split_at_checked(run.len().saturating_sub(usize::from(feed)))
            .unwrap_or((run, ""));
        self.emit_piece(Some(text), out);
        held.push_str(rest);
        feed
    }

    /// Emits the line feed that was held back: more text follows, so it belongs to the value.
    fn flush_pending(&mut self, out: &mut dyn EventSink) {
        emit_delta(
            self.index,
            Some(std::mem::take(&mut self.value.pending).as_str()),
            out,
        );
    }

    /// Returns true if faults are queued.
    fn has_faults(&self) -> bool {
        self.ambiguity
            .as_ref()
            .is_some_and(|doubt| !doubt.faults.is_empty())
    }
}

/// Creates the warning about a last call without its closing markup, which an option accepts. `end` is the position of the missing markup.
pub(super) fn missing_last_close(call: u32, close: &str, end: usize) -> Fault {
    let message = format!("`{close}` is missing at the end of the message");
    Fault::warning(FaultKind::CutCall, Span::new(end, end), message)
        .in_call(call)
        .with_hint("close each call")
}

/// Emits a piece of a value; an empty one is not an event, as the contract of events demands.
fn emit_delta(index: u32, text: Option<&str>, out: &mut dyn EventSink) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        out.push_event(Event::ArgDelta { index, text });
    }
}
