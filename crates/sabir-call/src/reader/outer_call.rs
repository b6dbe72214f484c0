//! Finds calls inside a value whose own call was not understood: its opening tag is missing, or the
//! reader rejected it and could not tell where it ends.
//!
//! Such a call is content of the value, so it must not run. Two signs together show one: a tag or
//! marker of a call that begins a value before the calls, and one that ends it after them. Either
//! sign alone also occurs in prose about the format.
//!
//! A call that ended without any argument counts as the first sign too: the opening tag of its first value
//! may be missing, and then that value holds the closing tag that seemed to end the call.

use std::ops::Range;

use crate::dialect::grammar::{TagNotation, TagScheme};
use crate::fault::{Fault, FaultKind, Span};

use super::CallReader;
use super::pending_open::PendingOpen;
use super::tag::{Tag, names_match, split_name};
use super::vocabulary::{TagDialect, Vocabulary};

/// The maximum number of different tags that are remembered.
const OPENED_CAP: usize = 16;

/// The maximum number of different tags of calls without arguments that are remembered.
const EMPTY_CAP: usize = 16;

/// The signs of a call that was not understood.
#[derive(Debug, Default)]
pub(super) struct OuterCallSigns {
    /// The tags that would begin a value, each name once.
    opened: Vec<OrphanValue>,
    /// The first call without arguments of each tag and tool.
    empty: Vec<EmptyCall>,
    /// The number of calls before and including the first rejected one whose end is unknown.
    rejected: Option<u32>,
    /// True if no call precedes the rejected one, so that words after it that end like a call belong to it.
    explains_words: bool,
    /// The first tag of a call that held words.
    bare: Option<WordsInTag>,
    /// The number of calls before and including the first rejected one that other markup ended, and its span.
    endless: Option<(u32, Span)>,
    /// The number of calls before the first header of a call without its marker.
    headed: Option<(u32, Span)>,
    /// The rejected calls, as rising ranges that do not touch. Each is reported once, although several closing tags may end the same value.
    reported: Vec<Range<u32>>,
    /// The number of calls before the last quotation of markup.
    pub(super) calls_before_quotation: u32,
    /// The first argument that was closed outside of any call.
    lost: Option<Span>,
    /// The calls in thoughts that no call outside of a thought follows so far.
    in_thoughts: Option<ThoughtCalls>,
}

/// Calls in thoughts.
#[derive(Debug)]
struct ThoughtCalls {
    /// Their numbers.
    calls: Range<u32>,
    /// The opening markup of the first one.
    span: Span,
}

/// A tag outside of any call that would begin a value.
#[derive(Debug)]
struct OrphanValue {
    name: Box<str>,
    /// The number of calls before it.
    calls: u32,
    span: Span,
    /// True until its end.
    is_open: bool,
}

/// A tag of a call that held words instead of arguments, and its end.
#[derive(Debug)]
struct WordsInTag {
    tag: Box<str>,
    /// The number of calls before it.
    calls: u32,
}

/// A call that ended without any argument.
#[derive(Debug)]
struct EmptyCall {
    index: u32,
    spelling: TagDialect,
    /// The name of the call's tag.
    tag: Box<str>,
    tool: Option<usize>,
}

impl EmptyCall {
    /// Returns true if a tag of this name ends a value of such a call.
    fn is_value_close(&self, name: &str, vocabulary: &Vocabulary) -> bool {
        let tagged = self.spelling.tagged;
        let (prefix, base) = split_name(name);
        match tagged.tags {
            TagScheme::Own | TagScheme::Fixed { argument: "", .. } => match self.tool {
                Some(_) => vocabulary.declares_argument(self.tool, name),
                None => vocabulary.is_any_argument(name),
            },
            TagScheme::Fixed { argument, .. } => base == argument && tagged.has_prefix(prefix),
            TagScheme::Keyed { value, .. } => name == value,
        }
    }
}

impl OuterCallSigns {
    /// Records the tag or marker that would begin a value; `calls` come before it.
    fn note_value_open(&mut self, name: &str, calls: u32, span: Span) {
        let has_room = self.opened.len() < OPENED_CAP;
        let known = self.opened.iter_mut().find(|value| *value.name == *name);
        match known {
            // A later value of the same kind: only the calls behind its own tag can be inside it.
            Some(value) if !value.is_open => {
                value.is_open = true;
                value.calls = calls;
                value.span = span;
            }
            None if has_room => self.opened.push(OrphanValue {
                name: name.into(),
                calls,
                span,
                is_open: true,
            }),
            _ => {}
        }
    }

    /// Records a rejected call whose end is unknown. `calls` is the number of calls with it.
    pub(super) fn note_rejected(&mut self, calls: u32) {
        self.explains_words |= self.rejected.is_none() && calls <= 1;
        self.rejected.get_or_insert(calls);
    }

    /// Records markup that was meant to open a call and did not. `calls` is the number of calls before it.
    pub(super) fn note_failed_open(&mut self, calls: u32) {
        self.explains_words |= self.rejected.is_none() && calls == 0;
        self.rejected.get_or_insert(calls);
    }

    /// Records a tag of a call that holds words, and its end. Only the end of a value, or a second end of the call, shows that the words
    /// were a value.
    pub(super) fn note_bare_call(&mut self, tag: &str, calls: u32) {
        self.bare.get_or_insert_with(|| WordsInTag {
            tag: tag.into(),
            calls,
        });
    }

    /// Records a rejected call that ended without its closing marker: all text behind it may be part of it. `calls` is the
    /// number of calls with it.
    pub(super) fn note_unterminated_call(&mut self, calls: u32, span: Span) {
        self.endless.get_or_insert((calls, span));
    }

    /// Returns the first call that may be content of a value whose call was not understood, however it ends.
    pub(super) fn first_doubtful(&self) -> Option<u32> {
        let empty = self.empty.iter().map(|call| call.index);
        self.rejected.into_iter().chain(empty).min()
    }

    /// Returns the first call without arguments that may hold all text up to a closing tag of this name.
    fn find_empty_call(&self, name: &str, vocabulary: &Vocabulary) -> Option<u32> {
        let may_end = |call: &&EmptyCall| {
            // The end of the call itself is a sign only if arguments precede it.
            let has_arguments = || self.opened.iter().any(|value| value.calls > call.index);
            call.is_value_close(name, vocabulary) || names_match(&call.tag, name) && has_arguments()
        };
        let found = self.empty.iter().filter(may_end);
        found.map(|call| call.index).min()
    }

    /// Records that all calls from `first` to `calls` are reported. Returns those that were not before, the last ones first.
    fn note_reported(&mut self, first: u32, calls: u32) -> Vec<Range<u32>> {
        let mut fresh = Vec::new();
        let mut start = first;
        let mut end = calls;
        while let Some(known) = self.reported.pop_if(|known| known.end >= first) {
            fresh.push(known.end..end);
            end = known.start;
            start = start.min(known.start);
        }
        if first < end {
            fresh.push(first..end);
        }
        if start < calls {
            self.reported.push(start..calls);
        }
        fresh
    }

    /// Ends the value with this tag or marker. Returns the first call that it may hold. `empty` is the first call
    /// without arguments that may hold a value with this end. `is_fixed` is true for a tag that encloses values of any argument.
    fn end_value(&mut self, name: &str, empty: Option<u32>, is_fixed: bool) -> Option<u32> {
        let value = self
            .opened
            .iter_mut()
            .find(|value| names_match(&value.name, name));
        match value {
            Some(value) if value.is_open => {
                value.is_open = false;
                Some(value.calls)
            }
            Some(value) => Some(empty.map_or(value.calls, |empty| empty.min(value.calls))),
            None => {
                let is_end = |bare: &&WordsInTag| is_fixed || names_match(&bare.tag, name);
                let bare = self.bare.as_ref().filter(is_end).map(|bare| bare.calls);
                self.rejected.into_iter().chain(empty).chain(bare).min()
            }
        }
    }
}

impl CallReader {
    /// Records an argument's tag outside of any call.
    pub(super) fn note_orphan_argument(&mut self, tag: Tag<'_>, at: usize, notation: TagNotation) {
        let is_pair = self.vocabulary.is_value_tag(tag.name, notation);
        if is_pair && !tag.empty {
            let calls = self.diagnostics.calls;
            let span = Span::new(self.offset + at, self.offset + at + tag.len);
            self.diagnostics
                .outer_signs_mut()
                .note_value_open(tag.name, calls, span);
        }
    }

    /// Records a call that ended without any argument.
    pub(super) fn note_empty_call(
        &mut self,
        index: u32,
        opening: &PendingOpen,
        tool: Option<usize>,
    ) {
        let takes_none = |tool| {
            let known = self.vocabulary.tool_at(tool);
            known.is_some_and(|tool| tool.arguments.is_empty())
        };
        let Some(spelling) = opening.tag_dialect() else {
            return;
        };
        if tool.is_some_and(takes_none) {
            return;
        }
        let empty = &mut self.diagnostics.outer_signs_mut().empty;
        let is_known = |call: &EmptyCall| *call.tag == *opening.tag && call.tool == tool;
        if empty.len() < EMPTY_CAP && !empty.iter().any(is_known) {
            empty.push(EmptyCall {
                index,
                spelling,
                tag: opening.tag.as_str().into(),
                tool,
            });
        }
    }

    /// Processes a mark outside of any call that is written on both sides of a value.
    pub(super) fn note_quote(&mut self, mark: &str, span: Span) {
        let calls = self.diagnostics.calls;
        let signs = self.diagnostics.outer_signs_mut();
        let is_open = |value: &&OrphanValue| *value.name == *mark && value.is_open;
        let is_end = signs.rejected.is_some() || signs.opened.iter().any(|value| is_open(&value));
        match is_end {
            true => self.reject_inner_calls(mark, None, span),
            false => signs.note_value_open(mark, calls, span),
        }
    }

    /// Returns true if words precede the last call, and words that end like a call follow it, unless the first call was rejected, which
    /// would explain them.
    pub(super) fn is_after_words(&self) -> bool {
        let is_behind = |position| position > 0 && !self.prose.blank_since(position);
        let ends_payload = matches!(self.prose.last_non_whitespace(), b')' | b']' | b'}');
        let signs = self.diagnostics.outer_signs();
        let is_known = signs.is_some_and(|signs| signs.explains_words);
        ends_payload && !is_known && self.diagnostics.last_call_end().is_some_and(is_behind)
    }

    /// Rejects the calls before the closing tag of a call that has no opening marker, which may hold them.
    pub(super) fn reject_calls_before_lone_close(&mut self, name: &str, span: Span) {
        if self.vocabulary.markers.has_close_tag(name) && self.is_after_words() {
            self.reject_calls_from(0, span);
        }
    }

    /// Records the end of a call's header outside of any call.
    pub(super) fn note_orphan_header(&mut self, at: usize, len: usize) {
        let calls = self.diagnostics.calls;
        let span = Span::new(self.offset + at, self.offset + at + len);
        let signs = self.diagnostics.outer_signs_mut();
        signs.headed.get_or_insert((calls, span));
    }

    /// Rejects the calls that a value may hold which ends with this tag, in this notation, or with this marker.
    pub(super) fn reject_inner_calls(
        &mut self,
        name: &str,
        notation: Option<TagNotation>,
        span: Span,
    ) {
        // Most messages have no such sign, and prose about HTML often has closing tags, so nothing
        // is looked up before the first sign.
        let open_bare = self.diagnostics.calls_before_bare_call();
        if self.diagnostics.outer_signs().is_none() && open_bare.is_none() {
            return;
        }
        // A special token is never written by accident, whatever name follows it.
        let is_special = |notation: TagNotation| {
            notation != TagNotation::Angle && self.vocabulary.is_value_tag(name, notation)
        };
        let is_fixed = self.vocabulary.is_fixed_value_tag(name) || notation.is_some_and(is_special);
        let signs = self.diagnostics.outer_signs_mut();
        let empty = signs.find_empty_call(name, &self.vocabulary);
        let is_known = signs
            .opened
            .iter()
            .any(|value| names_match(&value.name, name));
        if is_fixed && is_known {
            signs.lost.get_or_insert(span);
        }
        // The end of that call may be hidden by a quotation or a fence in a later value.
        let open_bare = open_bare.filter(|_| is_fixed);
        let empty = empty.into_iter().chain(open_bare).min();
        let Some(first) = signs.end_value(name, empty, is_fixed) else {
            return;
        };
        self.reject_calls_from(first, span);
    }

    /// Rejects, at the end of the text, calls behind a header that has no marker, and behind a value
    /// whose end may belong to one of them. `is_cut_in_tags` is true if the text ended inside a call in tags, which may have
    /// swallowed that end.
    pub(super) fn reject_calls_without_end(&mut self, is_cut_in_tags: bool) {
        // The tag around JSON has no end, so the JSON may hold all calls behind it.
        if let Some((first, span)) = self.diagnostics.open_json_in_tag() {
            self.reject_calls_from(first, span);
        }
        let Some(signs) = self.diagnostics.outer_signs() else {
            return;
        };
        let headed = signs.headed;
        let endless = signs.endless;
        let is_fixed = |value: &&OrphanValue| {
            is_cut_in_tags || self.vocabulary.is_fixed_value_tag(&value.name)
        };
        let opened = signs.opened.iter().filter(|value| value.is_open);
        let opened = opened.filter(is_fixed).min_by_key(|value| value.calls);
        let opened = opened.map(|value| (value.calls, value.span));
        // A later call probably took the missing end, and read the value's closing tags as its own.
        for (first, span) in headed.into_iter().chain(endless).chain(opened) {
            self.reject_calls_from(first, span);
        }
        // If the message has a call, the faults of that call say more. Without one, the message
        // would pass as an answer although a call was meant.
        let lost = self.diagnostics.outer_signs().and_then(|signs| signs.lost);
        let span = lost.or(headed.map(|(_, span)| span));
        if let Some(span) =
            span.filter(|_| self.diagnostics.calls == 0 && !self.diagnostics.has_failed_open())
        {
            let message =
                "an argument is outside of any call: the call's opening markup is missing";
            let fault = Fault::error(FaultKind::NoCall, span, message);
            self.diagnostics
                .note_fault(fault.with_hint("write the whole call again"));
        }
    }

    /// Rejects all calls before the end of a thought that the prompt opened.
    pub(super) fn reject_calls_in_thought(&mut self, span: Span) {
        for index in 0..self.diagnostics.calls {
            let message = "the call is part of a thought that the prompt opened";
            let fault = Fault::error(FaultKind::Mentioned, span, message.to_owned());
            self.diagnostics.note_fault(
                fault
                    .in_call(index)
                    .with_hint("call a tool after the thought"),
            );
        }
    }

    /// Records the opening markup of a call in a thought.
    pub(super) fn note_call_in_thought(&mut self, span: Span) {
        self.diagnostics.note_call_in_thought();
        let calls = self.diagnostics.calls;
        let signs = self.diagnostics.outer_signs_mut();
        signs.in_thoughts.get_or_insert(ThoughtCalls {
            calls: calls..calls,
            span,
        });
    }

    /// Records where the calls of a thought end, or, after a call outside of thoughts, rejects those in the thoughts before it.
    ///
    /// Some models skip the end of a thought before a call, so a call in a thought alone is meant. Models also draft a call in a
    /// thought and then make it, perhaps with other arguments. `is_cut` is true if the text ended inside the opening markup of a call.
    pub(super) fn resolve_thought_calls(&mut self, is_cut: bool) {
        let has_drafts = |signs: &OuterCallSigns| signs.in_thoughts.is_some();
        if !self.diagnostics.outer_signs().is_some_and(has_drafts) {
            return;
        }
        let calls = self.diagnostics.calls;
        let is_inside = self.inside.is_some();
        // Markup that was meant as a call, but does not form one, counts as a call behind the
        // thought too.
        let has_failed = is_cut
            || self.diagnostics.has_failed_open()
            || self
                .diagnostics
                .outer_signs()
                .is_some_and(|signs| signs.endless.is_some());
        let known = &mut self.diagnostics.outer_signs_mut().in_thoughts;
        if is_inside {
            known.iter_mut().for_each(|drafts| drafts.calls.end = calls);
            return;
        }
        let Some(drafts) = known.take_if(|drafts| calls > drafts.calls.end || has_failed) else {
            return;
        };
        for index in drafts.calls {
            self.diagnostics
                .note_fault(Fault::call_in_thought(index, drafts.span));
        }
    }

    /// Records markup of a call that is not understood: all text behind it may be part of the call.
    pub(super) fn note_unread_call(&mut self, span: Span) {
        let calls = self.diagnostics.calls;
        self.diagnostics
            .outer_signs_mut()
            .note_unterminated_call(calls, span);
    }

    /// Rejects the calls from that number on, because of what this span shows.
    pub(super) fn reject_calls_from(&mut self, first: u32, span: Span) {
        let calls = self.diagnostics.calls;
        let fresh = self
            .diagnostics
            .outer_signs_mut()
            .note_reported(first, calls);
        for index in fresh.into_iter().rev().flatten() {
            let message = "the call may be part of a value whose own call was not understood";
            let fault = Fault::error(FaultKind::StrayText, span, message.to_owned());
            let fault = fault.in_call(index);
            self.diagnostics.note_fault(
                fault.with_hint("write each call with its opening and its closing markup"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OuterCallSigns;

    #[test]
    fn each_call_is_reported_once() {
        let mut signs = OuterCallSigns::default();
        let mut report = |first, calls| -> Vec<u32> {
            let fresh = signs.note_reported(first, calls);
            fresh.into_iter().rev().flatten().collect()
        };
        assert!(report(0, 0).is_empty());
        assert_eq!(report(2, 3), [2]);
        assert_eq!(report(5, 6), [5]);
        assert!(report(6, 6).is_empty());
        assert_eq!(report(4, 7), [4, 6]);
        assert_eq!(report(0, 9), [0, 1, 3, 7, 8]);
        assert!(report(3, 9).is_empty());
    }
}
