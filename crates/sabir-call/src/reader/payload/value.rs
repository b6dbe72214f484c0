//! The values of a call's object: what belongs to the call, and what is passed over.
//!
//! Supported: arguments that stream because the name is known, arguments that wait for it, an object or an array that
//! holds calls itself.
//!
//! Unsupported: calls more than sixteen brackets deep; they are passed over.
//!
//! Grammar as implemented: see `payload.rs`.

use crate::event::EventSink;
use crate::fault::{Fault, FaultKind, Span};
use crate::json::balance::{BalanceScanner, ScanStop};
use crate::json::{ArgumentScanner, ScanProgress};
use crate::reader::region::TextView;

use super::call_item::{JsonCallState, KeyMeaning};
use super::{
    AllowedTail, BracketFrame, CallEdge, CommaCount, JsonRegionParser, PayloadState, PayloadStep, single_quotes,
};

/// Brackets that calls may be wrapped in.
const DEPTH: usize = 16;

impl JsonRegionParser {
    /// The first byte of a value. True: it was a bracket that opens what holds calls or what belongs to one.
    pub(super) fn begin_value(&mut self, place: usize, byte: u8, key: KeyMeaning, out: &mut dyn EventSink) -> bool {
        self.balance = BalanceScanner::at_value();
        let roomy = self.frames.len() < DEPTH;
        let quoted = matches!(byte, b'"' | b'\'');
        self.state = match key {
            KeyMeaning::Name(true) | KeyMeaning::Inner if byte == b'{' && roomy && self.item.is_some() => {
                self.frames.push(BracketFrame::Inner);
                self.state = PayloadState::FirstKey;
                return true;
            }
            KeyMeaning::Calls if byte == b'[' && roomy && self.wrap_calls() => {
                self.frames.push(BracketFrame::List);
                self.state = PayloadState::Item(CommaCount::None);
                return true;
            }
            KeyMeaning::Name(_) if quoted => self.begin_word(place, key, false),
            KeyMeaning::Id if byte != b'n' => self.begin_word(place, key, false),
            KeyMeaning::Arguments => self.begin_arguments(place, out),
            _ => PayloadState::Skip,
        };
        false
    }

    fn begin_word(&mut self, place: usize, key: KeyMeaning, long: bool) -> PayloadState {
        self.word.get_or_insert_default().begin_at(place, long);
        PayloadState::Word(key)
    }

    /// Takes the object for a wrapper around calls, unless it has begun to be a call.
    fn wrap_calls(&mut self) -> bool {
        if self.frames.last() != Some(BracketFrame::Item) || self.item.as_ref().is_none_or(|item| item.arguments) {
            return self.frames.last() == Some(BracketFrame::Wrapper);
        }
        let item = self.item.take();
        self.frames.pop();
        self.frames.push_wrapper(item.as_ref().and_then(JsonCallState::single_quote_span));
        self.edge = item.and_then(|item| item.region_start()).map_or(CallEdge::None, CallEdge::First);
        true
    }

    /// The arguments: streamed where the name is known, else held until it is.
    fn begin_arguments(&mut self, place: usize, out: &mut dyn EventSink) -> PayloadState {
        let Some(mut item) = self.item.take() else { return PayloadState::Skip };
        let state = if std::mem::replace(&mut item.arguments, true) {
            let message = "the arguments of the call are given twice";
            let fault = Fault::error(FaultKind::DoubledArgument, Span::new(place, place + 1), message);
            item.queue_fault(fault.with_hint("give them once"), out);
            PayloadState::Skip
        } else if item.name.is_none() {
            self.begin_word(place, KeyMeaning::Arguments, true)
        } else {
            self.start_call(&mut item, out);
            self.word = None;
            let mut scanner = ArgumentScanner::embedded_in_text(item.index, self.guard_bytes());
            if item.relaxed {
                scanner.begin_lenient(place, out);
            }
            self.scanner = Some(scanner);
            PayloadState::Arguments
        };
        self.item = Some(item);
        state
    }

    /// Text that brackets and strings alone lead through.
    pub(super) fn read_balanced(
        &mut self,
        view: TextView<'_>,
        at: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let stop = self.balance.scan(view.text.as_bytes(), at, self.guard_bytes(), pass);
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
            (_, PayloadState::Broken) => {
                while let Some(BracketFrame::Item | BracketFrame::Inner | BracketFrame::Wrapper) = self.frames.last() {
                    self.frames.pop();
                }
                self.finish_call(view.offset + to, out);
                return self.end_item(view, to, out);
            }
            (_, PayloadState::Key) => {
                let end = view.offset + to;
                match (&mut self.item, &self.word) {
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

    pub(super) fn read_arguments(
        &mut self,
        view: TextView<'_>,
        at: usize,
        pass: bool,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let Some(scanner) = &mut self.scanner else { return PayloadStep::Over(at) };
        let text = view.text.get(at..).unwrap_or_default();
        match scanner.read_value((text, view.offset + at), pass, out) {
            ScanProgress::More => PayloadStep::Wait(view.text.len()),
            ScanProgress::Guard(to) => PayloadStep::Guard(at + to),
            ScanProgress::Ended(to) => {
                let headed = self.is_headed();
                self.scanner = None;
                if !headed {
                    self.state = PayloadState::Comma;
                    return PayloadStep::To(at + to);
                }
                self.finish_call(view.offset + at + to, out);
                self.end_json(view, at + to, AllowedTail::Nothing, out)
            }
        }
    }
}
