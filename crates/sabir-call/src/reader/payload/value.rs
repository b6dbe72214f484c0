//! Reads the values of a call's object: those that belong to the call, and those that are skipped.
//!
//! Supported: arguments that are streamed because the name is known, arguments that wait for the
//! name, and objects or arrays that contain calls.
//!
//! Unsupported: calls nested in more than sixteen brackets; they are skipped.
//!
//! Grammar as implemented: see `payload.rs`.

use crate::event::EventSink;
use crate::fault::{Fault, FaultKind, Span};
use crate::json::balance::{BalanceScanner, ScanStop};
use crate::json::{ArgumentScanner, ScanProgress};
use crate::reader::markers::is_special;
use crate::reader::region::TextView;
use crate::swar::find_byte;

use super::call_item::{JsonCallState, KeyMeaning};
use super::{
    AllowedTail, BracketFrame, CallEdge, CommaCount, JsonRegionParser, PayloadState, PayloadStep,
    single_quotes,
};

/// The maximum number of brackets around a call.
const DEPTH: usize = 16;

impl JsonRegionParser {
    /// Processes the first byte of a value. Returns true if it was a bracket around calls or around
    /// parts of a call.
    pub(super) fn begin_value(
        &mut self,
        offset: usize,
        byte: u8,
        key: KeyMeaning,
        out: &mut dyn EventSink,
    ) -> bool {
        self.balance = BalanceScanner::at_value();
        let roomy = self.frames.len() < DEPTH;
        let quoted = matches!(byte, b'"' | b'\'');
        self.state = match key {
            KeyMeaning::Name(true) | KeyMeaning::Inner
                if byte == b'{' && roomy && self.item.is_some() =>
            {
                self.frames.push(BracketFrame::Inner);
                self.state = PayloadState::FirstKey;
                return true;
            }
            KeyMeaning::Calls if byte == b'[' && roomy && self.wrap_calls() => {
                self.frames.push(BracketFrame::List);
                self.state = PayloadState::Item(CommaCount::None);
                return true;
            }
            KeyMeaning::Name(_) if quoted => self.begin_word(offset, key, false),
            // Any value but `null` is an id.
            KeyMeaning::Id if byte != b'n' => self.begin_word(offset, key, false),
            KeyMeaning::Arguments => self.begin_arguments(offset, out),
            _ => PayloadState::Skip,
        };
        false
    }

    fn begin_word(&mut self, offset: usize, key: KeyMeaning, long: bool) -> PayloadState {
        self.word.get_or_insert_default().begin_at(offset, long);
        PayloadState::Word(key)
    }

    /// Treats the current object as a wrapper around calls, unless it already began to be a call.
    fn wrap_calls(&mut self) -> bool {
        if self.frames.last() != Some(BracketFrame::Item)
            || self.item.as_ref().is_none_or(|item| item.arguments)
        {
            return self.frames.last() == Some(BracketFrame::Wrapper);
        }
        let item = self.item.take();
        self.frames.pop();
        self.frames
            .push_wrapper(item.as_ref().and_then(JsonCallState::single_quote_span));
        self.edge = item
            .and_then(|item| item.region_start())
            .map_or(CallEdge::None, CallEdge::First);
        true
    }

    /// Begins the arguments: streamed if the name is known, else held until it is.
    fn begin_arguments(&mut self, offset: usize, out: &mut dyn EventSink) -> PayloadState {
        let Some(mut item) = self.item.take() else {
            return PayloadState::Skip;
        };
        let state = if std::mem::replace(&mut item.arguments, true) {
            let message = "the arguments of the call are given twice";
            let fault = Fault::error(
                FaultKind::DoubledArgument,
                Span::new(offset, offset + 1),
                message,
            );
            item.queue_fault(fault.with_hint("give them once"), out);
            PayloadState::Skip
        } else if item.name.is_none() {
            self.begin_word(offset, KeyMeaning::Arguments, true)
        } else {
            self.start_call(&mut item, out);
            self.word = None;
            let mut scanner = ArgumentScanner::embedded_in_text(item.index, self.guard_bytes());
            if item.relaxed {
                scanner.begin_lenient(offset, out);
            }
            // From here on the scanner reads the text, until the arguments end.
            self.scanner = Some(scanner);
            PayloadState::Arguments
        };
        self.item = Some(item);
        state
    }

    /// Reads text for which brackets and strings alone are relevant.
    pub(super) fn read_balanced(
        &mut self,
        view: TextView<'_>,
        at: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let stop = self
            .balance
            .scan(view.text.as_bytes(), at, self.guard_bytes(), pass);
        let to = match stop {
            ScanStop::End(to) | ScanStop::Guard(to) => to,
            ScanStop::More => view.text.len(),
        };
        if let PayloadState::Key | PayloadState::Word(_) = self.state
            && let Some(word) = &mut self.word
        {
            word.push(view.text.get(at..to).unwrap_or_default());
        }
        match (stop, self.state) {
            (ScanStop::Guard(_), _) => return PayloadStep::Guard(to),
            (ScanStop::More, _) => return PayloadStep::Wait(to),
            (_, PayloadState::Broken(_)) => {
                // The broken call ends with all brackets of its own, but not with an array around
                // it.
                while let Some(BracketFrame::Item | BracketFrame::Inner | BracketFrame::Wrapper) =
                    self.frames.last()
                {
                    self.frames.pop();
                }
                self.finish_call(view.offset + to, out);
                return self.end_item(view, to, out);
            }
            (_, PayloadState::Key) => {
                let end = view.offset + to;
                match (&mut self.item, &self.word) {
                    (Some(item), Some(word)) if self.markers.named_by_key => {
                        item.record_name_key(word, out);
                    }
                    (Some(item), Some(word)) => item.record_key(word, end, out),
                    (None, Some(word)) if word.is_single_quoted() => {
                        self.emit_last_call_fault(single_quotes(Span::new(word.start, end)), out);
                    }
                    _ => {}
                }
                self.state = PayloadState::Colon;
            }
            (_, PayloadState::Word(key)) => {
                if let (Some(item), Some(word)) = (&mut self.item, &mut self.word) {
                    item.record_value(key, word, out);
                }
                self.state = PayloadState::Comma;
            }
            _ => self.state = PayloadState::Comma,
        }
        PayloadStep::To(to)
    }

    /// Skips text that is not JSON, up to a byte that may begin a marker.
    pub(super) fn skip_text(view: TextView<'_>, at: usize, pass: bool) -> PayloadStep {
        let from = at + usize::from(pass);
        let rest = view.text.as_bytes().get(from..).unwrap_or_default();
        match find_byte(b'<', rest) {
            Some(found) => PayloadStep::Guard(from + found),
            None => PayloadStep::Wait(view.text.len()),
        }
    }

    pub(super) fn read_arguments(
        &mut self,
        view: TextView<'_>,
        at: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let Some(scanner) = &mut self.scanner else {
            return PayloadStep::Over(at);
        };
        let text = view.text.get(at..).unwrap_or_default();
        match scanner.read_value(text, view.offset + at, pass, out) {
            ScanProgress::More => PayloadStep::Wait(view.text.len()),
            ScanProgress::Guard(to) => PayloadStep::Guard(at + to),
            ScanProgress::Ended(to) => {
                let headed = self.is_headed();
                let is_broken = scanner_is_broken(&self.scanner);
                if headed && is_broken && is_special(self.markers.close) {
                    // All text up to the marker belongs to the call, which was rejected.
                    self.state = PayloadState::NoJson;
                    return PayloadStep::To(at + to);
                }
                self.scanner = None;
                if !headed {
                    self.state = PayloadState::Comma;
                    return PayloadStep::To(at + to);
                }
                // What is no object of arguments may reach farther.
                self.broken |= is_broken;
                self.finish_call(view.offset + at + to, out);
                self.end_json(view, at + to, AllowedTail::Nothing, out)
            }
        }
    }
}

/// Returns true if the arguments can never be read.
fn scanner_is_broken(scanner: &Option<ArgumentScanner>) -> bool {
    scanner.as_ref().is_some_and(ArgumentScanner::is_broken)
}
