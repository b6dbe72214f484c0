//! Parses calls in Gemma's notation: `call:f{k:<|"|>v<|"|>, n:3}` between markers.
//!
//! Supported: text between quote markers, which is raw up to the next one; numbers, `true`,
//! `false`, `null`, lists and maps with bare keys (`reader/python/literal.rs`). Common deviations
//! are accepted: strings and names in JSON quotes, a missing `call:` or one after a colon, and a
//! missing comma after a string. Several calls between two markers are read one after another. If
//! other markup replaces the closing marker, the call is complete, with a warning.
//!
//! Unsupported: a quote marker inside a string between quote markers; strings without quotes. A
//! mistake produces an error fault, and the text up to the closing marker is skipped.
//!
//! Grammar as implemented, white space between all tokens:
//!
//! ```text
//! region   = call call* close
//! call     = "call:"? name "{" (argument ("," argument)* ","?)? "}"
//! argument = (name | string) ":" value
//! ```

#[cfg(test)]
mod tests;

use crate::dialect::grammar::GemmaCalls;
use crate::event::{Certainty, Event, EventSink, MarkupRole, MarkupSpan, Truncation};
use crate::fault::{Fault, FaultKind, Span};

use super::call::missing_last_close;
use super::python::given_arguments::GivenArguments;
use super::python::literal::{LiteralNotation, LiteralProgress, LiteralReader, ValueScope};
use super::python::skip::RegionSkipper;
use super::python::text::starts_with_marker;
use super::python::word_buffer::{
    WORD_CAP, WordBuffer, WordEnd, describe_found, is_name_byte, whitespace_len,
};
use super::region::{RegionParser, RegionProgress, StepOutcome, TextView, run_steps};

/// The text before a tool's name.
const CALL: &str = "call:";

/// A region parser for calls in Gemma's notation.
#[derive(Debug)]
pub(super) struct GemmaRegionParser {
    grammar: &'static GemmaCalls,
    /// True without the markers around the call.
    bare: bool,
    dialect: &'static str,
    state: GemmaState,
    /// The offset at which the first call begins, until it is open.
    at: Option<usize>,
    /// The index of the next call.
    next: u32,
    /// True while a call is open; its index is the one before `next`.
    open: bool,
    /// The offset just past the last word or call.
    end: usize,
    given: GivenArguments,
    word: WordBuffer,
    literal: LiteralReader,
    /// The skipper for the text after a mistake.
    skip: Option<Box<RegionSkipper>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GemmaState {
    /// Before a call.
    Start,
    /// Inside a tool's name.
    Name,
    /// After a tool's name.
    Brace,
    /// Before an argument or the end of the call.
    Argument,
    /// Inside a bare name.
    ArgumentName,
    /// Inside a quoted name.
    Quoted,
    /// After a name; `true` for a quoted one.
    Colon(bool),
    /// Inside a value.
    Value,
    /// After a value; `true` for a string between markers.
    Comma(bool),
    /// After a call's `}`.
    Closed,
    /// After a mistake.
    Skip,
}

impl GemmaRegionParser {
    /// Creates a parser whose first call begins at that offset and has that index.
    pub(super) fn new(
        grammar: &'static GemmaCalls,
        bare: bool,
        dialect: &'static str,
        index: u32,
        at: usize,
    ) -> Self {
        Self {
            grammar,
            bare,
            dialect,
            state: GemmaState::Start,
            at: Some(at),
            next: index,
            open: false,
            end: 0,
            given: GivenArguments::default(),
            word: WordBuffer::default(),
            literal: LiteralReader::new(LiteralNotation::Gemma(grammar)),
            skip: None,
        }
    }

    fn parse_step(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        match self.state {
            GemmaState::Skip => return self.skip_rest(view, from, out),
            GemmaState::Value | GemmaState::Quoted => return self.read_value(view, from, out),
            GemmaState::Name | GemmaState::ArgumentName => return self.read_name(view, from, out),
            _ => {}
        }
        let at = from + whitespace_len(rest_from(view, from));
        let Some(&byte) = rest_from(view, at).as_bytes().first() else {
            return StepOutcome::Wait(at);
        };
        self.state = match (self.state, byte) {
            (GemmaState::Start, _) if is_name_byte(byte) => {
                self.word.clear();
                self.state = GemmaState::Name;
                return StepOutcome::To(at);
            }
            // Some responses put a colon before `call:`.
            (GemmaState::Start, b':') => return StepOutcome::To(at + 1),
            (GemmaState::Start, _) => {
                return self.report_unexpected(view, at, "`call:` and a name were expected", out);
            }
            (GemmaState::Brace, b'{') => return self.begin_call(view, at, out),
            (GemmaState::Brace, _) => {
                return self.report_unexpected(
                    view,
                    at,
                    "`{` was expected behind the tool's name",
                    out,
                );
            }
            (GemmaState::Argument | GemmaState::Comma(_), b'}') => {
                self.end = view.offset + at + 1;
                if self.close_marker().is_empty() {
                    self.end_call(self.end, out);
                    return StepOutcome::Over(at + 1);
                }
                GemmaState::Closed
            }
            // After a string between markers the comma may be missing, because the end of the
            // string is certain.
            (GemmaState::Comma(true), _) if is_name_byte(byte) => return self.begin_name(at, byte),
            (GemmaState::Argument, _) => return self.begin_name(at, byte),
            (GemmaState::Colon(quoted), b':') => return self.begin_value(view, at, quoted, out),
            (GemmaState::Colon(_), _) => {
                return self.report_unexpected(view, at, "`:` was expected behind the name", out);
            }
            (GemmaState::Comma(_), b',') => GemmaState::Argument,
            (GemmaState::Closed, _) => return self.after_call(view, at, out),
            _ => {
                return self.report_unexpected(
                    view,
                    at,
                    "`,` or `}` was expected behind the value",
                    out,
                );
            }
        };
        StepOutcome::To(at + 1)
    }

    /// Reads a name without quotes.
    fn read_name(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let tool = self.state == GemmaState::Name;
        let (taken, end) = self.word.take_word(rest_from(view, from), |byte| {
            is_name_byte(byte) || (tool && byte == b':')
        });
        let at = from + taken;
        match end {
            WordEnd::Open => return StepOutcome::Wait(at),
            WordEnd::TooLong => {
                let span = Span::new(
                    (view.offset + at).saturating_sub(self.word.len()),
                    view.offset + at,
                );
                let message = format!("a name is longer than {WORD_CAP} bytes");
                return self.report_and_skip(
                    Fault::error(FaultKind::Limit, span, message),
                    view,
                    at,
                    out,
                );
            }
            WordEnd::Here => {}
        }
        self.end = view.offset + at;
        self.state = if tool {
            GemmaState::Brace
        } else {
            GemmaState::Colon(false)
        };
        if tool && matches!(self.word.as_str(), CALL | "") {
            return self.report_unexpected(view, at, "a name was expected behind `call:`", out);
        }
        StepOutcome::To(at)
    }

    fn begin_call(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let word_at = self.end.saturating_sub(self.word.len());
        let name = self.word.as_str();
        let (name, name_at) = name
            .strip_prefix(CALL)
            .map_or((name, word_at), |name| (name, word_at + CALL.len()));
        let start = self.at.take().unwrap_or_else(|| {
            let span = Span::new(word_at, view.offset + at + 1);
            let sure = Certainty::Certain;
            let rule = "another call behind the first";
            out.push_event(Event::Mark(MarkupSpan {
                role: MarkupRole::Call,
                dialect: Some(self.dialect),
                span,
                sure,
                rule,
            }));
            word_at
        });
        let index = self.next;
        out.push_event(Event::CallStart {
            index,
            id: None,
            name,
            dialect: Some(self.dialect),
            at: start,
            name_at,
        });
        self.next = index.saturating_add(1);
        self.open = true;
        self.given.clear();
        self.literal.begin_call();
        self.state = GemmaState::Argument;
        StepOutcome::To(at + 1)
    }

    /// Processes the first byte of an argument's name.
    fn begin_name(&mut self, at: usize, byte: u8) -> StepOutcome {
        if is_name_byte(byte) {
            self.word.clear();
            self.state = GemmaState::ArgumentName;
        } else {
            self.literal.begin_name();
            self.state = GemmaState::Quoted;
        }
        StepOutcome::To(at)
    }

    /// Begins the value of an argument, after its name and the byte at `at`.
    fn begin_value(
        &mut self,
        view: TextView<'_>,
        at: usize,
        quoted: bool,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let span = Span::new(view.offset + at, view.offset + at + 1);
        let name = if quoted {
            self.literal.name()
        } else {
            self.word.as_str()
        };
        if !self.given.add_name(name, self.call_index(), span, out) {
            return self.give_up(view, at, out);
        }
        self.word.release_memory();
        self.literal.begin_value();
        self.state = GemmaState::Value;
        StepOutcome::To(at + 1)
    }

    /// Reads a value or a quoted name.
    fn read_value(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let scope = ValueScope {
            view,
            index: self.call_index(),
            name: self.given.current_name(),
        };
        match self.literal.read_value(scope, from, out) {
            LiteralProgress::More(at) => StepOutcome::Wait(at),
            LiteralProgress::Wrong(at) => self.give_up(view, at, out),
            LiteralProgress::End(at) => {
                // Only after a string between markers may the comma be missing, see `parse_step`.
                let text = view
                    .text
                    .get(..at)
                    .is_some_and(|text| text.ends_with(self.grammar.quote));
                self.state = if self.state == GemmaState::Quoted {
                    GemmaState::Colon(true)
                } else {
                    GemmaState::Comma(text)
                };
                StepOutcome::To(at)
            }
        }
    }

    /// Processes the text after a call's `}`: the marker, or another call.
    fn after_call(
        &mut self,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let text = rest_from(view, at);
        let close = self.close_marker();
        match (
            starts_with_marker(text, close),
            starts_with_marker(text, CALL),
        ) {
            (Some(true), _) => {
                self.end_call(view.offset + at + close.len(), out);
                StepOutcome::Over(at + close.len())
            }
            (_, Some(true)) => {
                self.end_call(self.end, out);
                self.state = GemmaState::Start;
                StepOutcome::To(at)
            }
            (Some(false), Some(false)) if starts_with_markup(text) => {
                let span = Span::new(self.end, self.end);
                let fault =
                    Fault::warning(FaultKind::WrongClose, span, format!("`{close}` is missing"));
                out.push_event(Event::Fault(
                    &fault
                        .in_call(self.call_index())
                        .with_hint("close each call"),
                ));
                self.end_call(self.end, out);
                StepOutcome::Over(at)
            }
            // The next byte shows whether this is markup.
            (Some(false), Some(false)) if !view.last && text == "<" => StepOutcome::Wait(at),
            (Some(false), Some(false)) => self.report_unexpected(
                view,
                at,
                &format!("`{close}` was expected behind the call"),
                out,
            ),
            _ => StepOutcome::Wait(at),
        }
    }

    fn end_call(&mut self, at: usize, out: &mut dyn EventSink) {
        if std::mem::take(&mut self.open) {
            out.push_event(Event::CallEnd {
                index: self.call_index(),
                at,
            });
        }
    }

    /// Skips text after a mistake.
    fn skip_rest(
        &mut self,
        view: TextView<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let (taken, over) = self
            .skip
            .as_mut()
            .map_or((0, true), |skip| skip.skip_text(rest_from(view, from)));
        let at = from + taken;
        if !over {
            return StepOutcome::Wait(at);
        }
        self.end_call(view.offset + at, out);
        StepOutcome::Over(at)
    }

    /// Reports unexpected text.
    fn report_unexpected(
        &mut self,
        view: TextView<'_>,
        at: usize,
        expected: &str,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let (found, len) = describe_found(rest_from(view, at));
        let message = format!("{expected}, {found}");
        let span = Span::new(view.offset + at, view.offset + at + len);
        let GemmaCalls { open, quote, .. } = self.grammar;
        let open = if self.bare { "" } else { open };
        let close = self.close_marker();
        let hint = format!(
            "write `{open}call:`, the tool's name, the arguments in braces with each text between `{quote}`, and `{close}`"
        );
        self.report_and_skip(
            Fault::error(FaultKind::StrayText, span, message).with_hint(hint),
            view,
            at,
            out,
        )
    }

    /// Reports a mistake and skips the rest.
    fn report_and_skip(
        &mut self,
        fault: Fault,
        view: TextView<'_>,
        at: usize,
        out: &mut dyn EventSink,
    ) -> StepOutcome {
        let fault = if self.open {
            fault.in_call(self.call_index())
        } else {
            fault
        };
        out.push_event(Event::Fault(&fault));
        self.give_up(view, at, out)
    }

    fn give_up(&mut self, view: TextView<'_>, at: usize, out: &mut dyn EventSink) -> StepOutcome {
        if self.close_marker().is_empty() {
            self.end_call(view.offset + at, out);
            return StepOutcome::Over(at);
        }
        self.state = GemmaState::Skip;
        self.skip = Some(Box::new(RegionSkipper::new(self.close_marker(), 0, false)));
        StepOutcome::To(at)
    }

    fn close_marker(&self) -> &'static str {
        if self.bare { "" } else { self.grammar.close }
    }

    /// Returns the index of the open call.
    fn call_index(&self) -> u32 {
        self.next.saturating_sub(1)
    }
}

impl RegionParser for GemmaRegionParser {
    fn parse_view(&mut self, view: TextView<'_>, out: &mut dyn EventSink) -> RegionProgress {
        run_steps(|at| self.parse_step(view, at, out))
    }

    #[inline]
    fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        self.state == GemmaState::Value && self.literal.take_chunk(self.call_index(), chunk, out)
    }

    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink) {
        if std::mem::take(&mut self.open) {
            out.push_event(Event::CallCut {
                index: self.call_index(),
                why,
                at,
            });
        } else if self.state != GemmaState::Skip {
            let message = "the text ended before the call's arguments";
            let fault = Fault::error(FaultKind::CutCall, Span::new(at, at), message);
            let hint = "write the whole call again and close it";
            out.push_event(Event::Fault(&fault.with_hint(hint)));
        }
    }

    fn close_whole_call(&mut self, out: &mut dyn EventSink) -> bool {
        if !self.open || self.state != GemmaState::Closed || self.skip.is_some() {
            return false;
        }
        self.open = false;
        let index = self.call_index();
        let fault = missing_last_close(index, self.grammar.close, self.end);
        out.push_event(Event::Fault(&fault));
        out.push_event(Event::CallEnd {
            index,
            at: self.end,
        });
        true
    }

    fn next_index(&self) -> u32 {
        self.next
    }

    fn was_skipped(&self) -> bool {
        self.skip.is_some()
    }

    fn close_marker(&self) -> &'static str {
        self.grammar.close
    }
}

/// Returns true if a tag or a special token starts here.
fn starts_with_markup(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('<')
        && chars
            .next()
            .is_some_and(|c| c.is_alphabetic() || matches!(c, '|' | '/'))
}

fn rest_from(view: TextView<'_>, at: usize) -> &str {
    view.text.get(at..).unwrap_or_default()
}
