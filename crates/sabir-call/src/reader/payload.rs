//! Parses JSON between markers: complete calls, or the arguments after a name that the reader has
//! read.
//!
//! Supported, in any dialect: one object; a sequence of objects, separated by white space, `;` or
//! `,`; an array of objects; a code fence around all of that. In an object: the name, the arguments
//! and the id under any of their usual keys, in any order; an object under `function`, `tool` or
//! `function_call`, which then contains them; an array under `tool_calls`, `calls` or `tool_uses`,
//! which then contains calls. Names and keys in single quotes: the arguments are then passed to the
//! checks unchanged, and so is a code fence around the arguments. One closing brace too many,
//! directly before the text that closes or separates calls, is a warning. Other keys are skipped.
//!
//! Unsupported: arguments beside the name instead of under `arguments` (a fault says so), bare
//! words as keys, comments, and missing brackets or commas. The call is rejected, and it ends where
//! its brackets end.
//!
//! Grammar as implemented, with `ws` between all tokens; `close` is the dialect's closing marker,
//! if there is one:
//!
//! ```text
//! calls     = fence? (item ((";" | ",")* item)* | "[" (item ("," item)* ","?)? "]") fence? close
//! arguments = fence? value? fence? close                             value: see `json.rs`
//! item      = "{" (pair ("," pair)* ","?)? "}"
//! pair      = key ":" (name | id | value | item | "[" items "]")
//! ```
//!
//! A marker inside a string is content. Outside of strings no JSON contains a `<`, so the closing
//! marker, or any other, ends unfinished JSON there. The fault names the missing bracket
//! (`payload/region_end.rs`).

mod call_item;
mod frames;
mod json_faults;
mod region_end;
#[cfg(test)]
mod tests;
mod value;

use crate::event::{Certainty, Event, EventSink, Truncation};
use crate::fault::Fault;
use crate::json::ArgumentScanner;
use crate::json::balance::{BalanceScanner, GuardBytes};

use super::region::{RegionParser, RegionProgress, TextView};
use call_item::{HeldSource, JsonCallState, KeyMeaning, key_meaning};
use frames::{BracketFrame, FrameStack};
use json_faults::{
    extra_comma, malformed_json, report_missing_json, single_quotes, trailing_comma,
};
use region_end::MarkerCheck;

/// The properties of a region that its dialect defines.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionMarkers {
    pub(super) dialect: &'static str,
    /// The closing marker; `""` if the region ends with the JSON.
    pub(super) close: &'static str,
    /// True if servers strip that marker because it ends the message.
    pub(super) stop: bool,
    /// True if another dialect writes this marker before a list that nothing closes.
    pub(super) open_ended: bool,
    /// True if a call's only key is the tool's name.
    pub(super) named_by_key: bool,
    /// The confidence of the reader in the region.
    pub(super) sure: Certainty,
}

/// A call whose name precedes its JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParsedHeader<'h> {
    pub(super) index: u32,
    pub(super) id: Option<&'h str>,
    pub(super) name: &'h str,
    /// The offset of the call's first byte.
    pub(super) at: usize,
    /// The offset of the name's first byte.
    pub(super) name_at: usize,
}

/// A region parser for calls as JSON.
#[derive(Debug)]
pub(super) struct JsonRegionParser {
    markers: RegionMarkers,
    state: PayloadState,
    /// The open brackets around and in the call.
    frames: FrameStack,
    /// True while the JSON is in a code fence that has not been closed.
    fenced: bool,
    /// The index of the next call.
    next: u32,
    edge: CallEdge,
    item: Option<JsonCallState>,
    /// The source of the current key or value, if it is needed.
    word: Option<Box<HeldSource>>,
    balance: BalanceScanner,
    scanner: Option<ArgumentScanner>,
    /// The number of bytes after the JSON that were examined but not consumed.
    seen: usize,
    /// True once a mistake made the end of a call uncertain.
    broken: bool,
}

/// The state around a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEdge {
    None,
    /// Before the first call; holds the offset of its first byte.
    First(usize),
    /// After a call that is complete except for its closing marker: its index, and the offset at
    /// which its JSON ended.
    Pending(u32, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadState {
    /// Before the JSON.
    Before,
    /// In the word after a fence's backticks.
    Language,
    /// Before a possible call, after this number of commas.
    Item(CommaCount),
    /// After a call in an array.
    Next,
    /// After `{`.
    FirstKey,
    /// After `,`.
    NextKey,
    /// In a key.
    Key,
    /// After a key.
    Colon,
    /// After `:`.
    Value(KeyMeaning),
    /// In a value whose source is needed.
    Word(KeyMeaning),
    /// In a value that is skipped.
    Skip,
    /// After a value.
    Comma,
    /// In the arguments.
    Arguments,
    /// In text in the place of the arguments that is not JSON, until a marker ends it.
    NoJson,
    /// In a call that cannot be read, until it ends; `true` if a backslash precedes the quotation mark of a key, as in JSON
    /// inside a string.
    Broken(bool),
    /// After the JSON.
    After(AllowedTail),
}

/// The number of commas before a call in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommaCount {
    None,
    One,
    /// Too many; a fault was already emitted.
    Many,
}

/// The text that may follow the JSON, beside the closing marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AllowedTail {
    /// Another call.
    Calls,
    /// Nothing.
    Nothing,
    /// Extra brackets, for which a fault was already emitted; also used when the text ended inside
    /// the marker.
    Brackets,
}

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadStep {
    /// Consumed the text up to this byte.
    To(usize),
    /// Consumed the text up to this byte and needs more.
    Wait(usize),
    /// The region ended before this byte.
    Over(usize),
    /// Stopped at a byte that may begin a marker.
    Guard(usize),
}

impl JsonRegionParser {
    /// Creates a parser for JSON that contains calls. `index` is the first call's index, `at` the
    /// offset of its opening marker.
    pub(super) fn for_calls(markers: RegionMarkers, index: u32, at: usize) -> Self {
        Self {
            markers,
            state: PayloadState::Before,
            frames: FrameStack::default(),
            fenced: false,
            next: index,
            edge: CallEdge::First(at),
            item: None,
            word: None,
            balance: BalanceScanner::at_value(),
            scanner: None,
            seen: 0,
            broken: false,
        }
    }

    /// Creates a parser for JSON that contains the arguments of this call, and begins the call.
    pub(super) fn for_arguments(
        markers: RegionMarkers,
        head: ParsedHeader<'_>,
        out: &mut dyn EventSink,
    ) -> Self {
        let mut payload = Self::for_calls(markers, head.index, head.at);
        let mut item = JsonCallState::with_header(&head);
        payload.start_call(&mut item, out);
        payload.edge = CallEdge::None;
        payload.item = Some(item);
        payload.scanner = Some(ArgumentScanner::embedded_in_text(
            head.index,
            payload.guard_bytes(),
        ));
        payload
    }

    /// Returns the bytes with which a marker may begin.
    fn guard_bytes(&self) -> GuardBytes {
        [
            b'<',
            self.markers
                .close
                .as_bytes()
                .first()
                .copied()
                .unwrap_or(b'<'),
        ]
    }

    /// Returns true if the name precedes the JSON.
    fn is_headed(&self) -> bool {
        self.frames.is_empty() && self.scanner.is_some()
    }

    fn parse_step(
        &mut self,
        view: TextView<'_>,
        at: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let Some(&byte) = view.text.as_bytes().get(at) else {
            return PayloadStep::Wait(at);
        };
        match self.state {
            PayloadState::Key
            | PayloadState::Word(_)
            | PayloadState::Skip
            | PayloadState::Broken(_) => {
                return self.read_balanced(view, at, pass, out);
            }
            PayloadState::Arguments => return self.read_arguments(view, at, pass, out),
            PayloadState::NoJson => return Self::skip_text(view, at, pass),
            _ if self.guard_bytes().contains(&byte) && !pass => return PayloadStep::Guard(at),
            PayloadState::Language if byte.is_ascii_alphanumeric() => {
                return PayloadStep::To(at + 1);
            }
            PayloadState::Language => self.state = PayloadState::Before,
            _ if byte.is_ascii_whitespace() => return PayloadStep::To(at + 1),
            PayloadState::Before => return self.begin_json(view, at, byte, out),
            PayloadState::Item(_) => return self.begin_item(view, at, byte, out),
            PayloadState::Next => return self.after_list_item(view, at, byte, out),
            PayloadState::FirstKey | PayloadState::NextKey => {
                return self.begin_key(view, at, byte, out);
            }
            PayloadState::Colon if byte == b':' => {
                let meaning = self
                    .word
                    .as_ref()
                    .map(|word| match self.markers.named_by_key {
                        true => KeyMeaning::Arguments,
                        false => key_meaning(&word.decoded_text()),
                    });
                self.state = PayloadState::Value(meaning.unwrap_or(KeyMeaning::Unknown));
                return PayloadStep::To(at + 1);
            }
            PayloadState::Value(key) => {
                let opened = self.begin_value(view.offset + at, byte, key, out);
                return PayloadStep::To(at + usize::from(opened));
            }
            PayloadState::Comma if byte == b',' => {
                self.state = PayloadState::NextKey;
                return PayloadStep::To(at + 1);
            }
            PayloadState::Comma if byte == b'}' => return self.end_object(view, at, out),
            PayloadState::Colon => {
                self.skip_broken_call(view.offset + at, "`:` was expected after a key", out)
            }
            PayloadState::Comma => self.skip_broken_call(
                view.offset + at,
                "`,` or `}` was expected after a value",
                out,
            ),
            PayloadState::After(_) => {}
        }
        PayloadStep::To(at)
    }

    /// Processes the first byte that is not white space.
    fn begin_json(
        &mut self,
        view: TextView<'_>,
        at: usize,
        byte: u8,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let rest = view.text.get(at..).unwrap_or_default();
        if rest.starts_with(FENCE) && !self.fenced {
            self.fenced = true;
            self.state = PayloadState::Language;
            return PayloadStep::To(at + FENCE.len());
        }
        if FENCE.starts_with(rest) && !self.fenced && !view.last {
            return PayloadStep::Wait(at);
        }
        if self.is_headed() {
            self.state = PayloadState::Arguments;
            return PayloadStep::To(at);
        }
        match byte {
            b'{' => {
                self.state = PayloadState::Item(CommaCount::None);
                PayloadStep::To(at)
            }
            b'[' => {
                self.frames.push(BracketFrame::List);
                self.state = PayloadState::Item(CommaCount::None);
                PayloadStep::To(at + 1)
            }
            _ => {
                report_missing_json(view.offset + at, out);
                // The arguments may be written in another way.
                self.broken = true;
                PayloadStep::Over(at)
            }
        }
    }

    /// Processes the first byte of a possible call.
    fn begin_item(
        &mut self,
        view: TextView<'_>,
        at: usize,
        byte: u8,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let PayloadState::Item(commas) = self.state else {
            return PayloadStep::To(at);
        };
        let offset = view.offset + at;
        if byte == b']' && self.frames.last() == Some(BracketFrame::List) {
            if commas == CommaCount::One {
                self.emit_last_call_fault(trailing_comma(offset), out);
            }
            return self.end_list(view, at, out);
        }
        // Extra commas have no meaning, so any number of them is reported once.
        if byte == b',' && commas != CommaCount::None {
            if commas == CommaCount::One {
                self.emit_last_call_fault(extra_comma(offset), out);
            }
            self.state = PayloadState::Item(CommaCount::Many);
            return PayloadStep::To(at + 1);
        }
        // Another call follows, so the one before it is complete.
        self.close_pending(None, out);
        let first = match std::mem::replace(&mut self.edge, CallEdge::None) {
            CallEdge::First(at) => Some(at),
            CallEdge::None | CallEdge::Pending(..) => None,
        };
        let mut item = JsonCallState::new(self.next, first.unwrap_or(offset), first.is_some());
        self.frames
            .take_quote_spans()
            .for_each(|slip| item.queue_fault(single_quotes(slip), out));
        self.item = Some(item);
        if byte == b'{' {
            self.frames.push(BracketFrame::Item);
            self.state = PayloadState::FirstKey;
            return PayloadStep::To(at + 1);
        }
        self.skip_broken_call(offset, "an object with a call was expected", out);
        PayloadStep::To(at)
    }

    /// Processes a byte after a call in an array.
    fn after_list_item(
        &mut self,
        view: TextView<'_>,
        at: usize,
        byte: u8,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        match byte {
            b']' => self.end_list(view, at, out),
            b',' => {
                self.close_pending(None, out);
                self.state = PayloadState::Item(CommaCount::One);
                PayloadStep::To(at + 1)
            }
            _ => {
                if byte == b'}' {
                    match self.is_extra_bracket(
                        view.text.get(at..).unwrap_or_default(),
                        &["]", ","],
                        view.last,
                    ) {
                        None => return PayloadStep::Wait(at),
                        Some(true) => {
                            self.emit_pending_fault(
                                region_end::extra_bracket(view.offset + at),
                                out,
                            );
                            return PayloadStep::To(at + 1);
                        }
                        Some(false) => {}
                    }
                }
                self.emit_pending_fault(
                    malformed_json(view.offset + at, "`,` or `]` was expected after a call"),
                    out,
                );
                if byte == b'{' {
                    self.state = PayloadState::Item(CommaCount::None);
                    return PayloadStep::To(at);
                }
                self.close_pending(None, out);
                self.frames.clear();
                self.end_json(view, at, AllowedTail::Brackets, out)
            }
        }
    }

    /// Processes the first byte of a key, or the end of the object.
    fn begin_key(
        &mut self,
        view: TextView<'_>,
        at: usize,
        byte: u8,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let offset = view.offset + at;
        match byte {
            b'"' | b'\'' => {
                self.word.get_or_insert_default().begin_at(offset, false);
                self.balance = BalanceScanner::at_value();
                self.state = PayloadState::Key;
            }
            b'}' => {
                if self.state == PayloadState::NextKey {
                    match &mut self.item {
                        Some(item) => item.queue_fault(trailing_comma(offset), out),
                        None => self.emit_last_call_fault(trailing_comma(offset), out),
                    }
                }
                return self.end_object(view, at, out);
            }
            _ => {
                self.skip_broken_call(offset, "a key in double quotes was expected", out);
                self.state = PayloadState::Broken(byte == b'\\');
            }
        }
        PayloadStep::To(at)
    }

    /// Processes a closing brace.
    fn end_object(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        if self.frames.pop() == Some(BracketFrame::Inner) {
            self.state = PayloadState::Comma;
            return PayloadStep::To(at + 1);
        }
        self.finish_call(view.offset + at + 1, out);
        self.end_item(view, at + 1, out)
    }

    /// Processes the closing bracket of an array of calls.
    fn end_list(&mut self, view: TextView<'_>, at: usize, out: &mut dyn EventSink) -> PayloadStep {
        self.frames.pop();
        if self.frames.is_empty() {
            return self.end_json(view, at + 1, AllowedTail::Nothing, out);
        }
        self.state = PayloadState::Comma;
        PayloadStep::To(at + 1)
    }

    /// Processes the end of an object that is a call by itself.
    fn end_item(&mut self, view: TextView<'_>, at: usize, out: &mut dyn EventSink) -> PayloadStep {
        if self.frames.is_empty() {
            return self.end_json(view, at, AllowedTail::Calls, out);
        }
        self.state = PayloadState::Next;
        PayloadStep::To(at)
    }

    /// Reports a call that cannot be read, and skips to the end of its brackets.
    fn skip_broken_call(&mut self, offset: usize, message: &str, out: &mut dyn EventSink) {
        let fault = malformed_json(offset, message);
        match &mut self.item {
            Some(item) => item.queue_fault(fault, out),
            None => self.emit_pending_fault(fault, out),
        }
        // Only brackets of the call itself are skipped; an enclosing array continues after it.
        let inner = self
            .frames
            .innermost_first()
            .take_while(|frame| *frame == BracketFrame::Inner)
            .count();
        let object = matches!(
            self.frames.innermost_first().nth(inner),
            Some(BracketFrame::Item | BracketFrame::Wrapper)
        );
        let depth = u32::try_from(inner + usize::from(object)).unwrap_or(u32::MAX);
        self.balance = BalanceScanner::inside_brackets(depth, true);
        self.state = PayloadState::Broken(false);
        self.broken = true;
    }

    /// Returns true if the markup at that place is content of text that is not JSON.
    fn is_content(&self, view: TextView<'_>, at: usize) -> bool {
        let text = view.text.get(at..).unwrap_or_default();
        self.state == PayloadState::NoJson && !text.starts_with("<|") && !text.starts_with("<｜")
    }

    /// Emits the start of the call, unless that was already done.
    fn start_call(&mut self, item: &mut JsonCallState, out: &mut dyn EventSink) {
        if !item.has_started() {
            item.emit_start(&self.markers, out);
            self.next = item.index.saturating_add(1);
        }
    }

    /// Ends the call's JSON at that offset. Its closing marker is still to come.
    fn finish_call(&mut self, end: usize, out: &mut dyn EventSink) {
        let Some(mut item) = self.item.take() else {
            return;
        };
        self.start_call(&mut item, out);
        item.finish_call(out);
        self.edge = CallEdge::Pending(item.index, end);
    }

    /// Emits a fault and attributes it to the last call that began.
    fn emit_last_call_fault(&self, fault: Fault, out: &mut dyn EventSink) {
        out.push_event(Event::Fault(&match self.next.checked_sub(1) {
            Some(index) => fault.in_call(index),
            None => fault,
        }));
    }

    /// Emits a fault and attributes it to the call that waits for its closing marker, if any.
    fn emit_pending_fault(&self, fault: Fault, out: &mut dyn EventSink) {
        out.push_event(Event::Fault(&match self.edge {
            CallEdge::Pending(index, _) => fault.in_call(index),
            CallEdge::None | CallEdge::First(_) => fault,
        }));
    }
}

impl RegionParser for JsonRegionParser {
    fn parse_view(&mut self, view: TextView<'_>, out: &mut dyn EventSink) -> RegionProgress {
        let mut at = 0;
        // A guarded byte that turned out to be no marker is passed over on the next step.
        let mut pass = None;
        loop {
            let go = match self.state {
                PayloadState::After(tail) => self.read_tail(view, at, tail, out),
                _ => match self.parse_step(view, at, pass == Some(at), out) {
                    PayloadStep::Guard(to) => {
                        match self.check_marker(view.text.get(to..).unwrap_or_default(), view.last)
                        {
                            MarkerCheck::No => {
                                pass = Some(to);
                                PayloadStep::To(to)
                            }
                            // A tag in text that is not JSON is content.
                            MarkerCheck::Other if self.is_content(view, to) => {
                                pass = Some(to);
                                PayloadStep::To(to)
                            }
                            MarkerCheck::Wait => PayloadStep::Wait(to),
                            MarkerCheck::Close => {
                                self.end_unfinished(view, to, self.markers.close.len(), out)
                            }
                            MarkerCheck::Other => self.end_unfinished(view, to, 0, out),
                        }
                    }
                    go => go,
                },
            };
            match go {
                PayloadStep::To(to) | PayloadStep::Guard(to) => at = to,
                PayloadStep::Wait(to) => return RegionProgress::More(to),
                PayloadStep::Over(to) => return RegionProgress::Over(to),
            }
        }
    }

    #[inline]
    fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        match &mut self.scanner {
            Some(scanner) => scanner.take_chunk(chunk, out),
            None => false,
        }
    }

    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink) {
        self.cut_call(why, at, out);
    }

    fn close_whole_call(&mut self, out: &mut dyn EventSink) -> bool {
        self.end_whole_call(out)
    }

    fn next_index(&self) -> u32 {
        self.next
    }

    fn was_skipped(&self) -> bool {
        self.broken
    }

    fn is_escaped(&self) -> bool {
        let is_scanner_escaped = || {
            self.scanner
                .as_ref()
                .is_some_and(ArgumentScanner::is_escaped)
        };
        self.state == PayloadState::Broken(true) || is_scanner_escaped()
    }

    fn close_marker(&self) -> &'static str {
        self.markers.close
    }
}

/// A Markdown code fence.
const FENCE: &str = "```";
