//! Reads a code fence around the whole argument text of a native call, or around arguments in a
//! longer text.
//!
//! Supported: three or more backticks, a word, an object, as many backticks. The whole text,
//! including the fence, becomes one argument with an empty name; the checks decide how to treat it.
//!
//! Unsupported: anything but white space between the object and the fence lines. It produces a
//! `malformed_json` fault.
//!
//! Grammar as implemented: "```" "`"* word? ws* balanced ws* "```" "`"*, with `balanced` as in `json/balance.rs`.

use crate::event::{ArgumentEncoding, Event, EventSink};

use super::balance::{BalanceScanner, ScanStop, UNGUARDED};
use super::{ArgumentScanner, ScannerState};

/// The progress within a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FencePhase {
    /// In the opening backticks.
    Ticks,
    /// After the opening backticks.
    Word,
    Object,
    /// After the object, with the number of closing backticks still missing.
    Close(u32),
}

impl ArgumentScanner {
    /// Begins a fenced text at its first backtick.
    pub(super) fn begin_fence(&mut self, at: usize, out: &mut dyn EventSink) -> usize {
        out.push_event(Event::ArgStart {
            index: self.index,
            name: "",
            form: ArgumentEncoding::Json,
            at: self.offset + at,
        });
        self.state = ScannerState::Fenced(FencePhase::Ticks, 0);
        at
    }

    /// Continues a fenced text. Must be called in state `Fenced` only.
    pub(super) fn read_fence(
        &mut self,
        chunk: &str,
        from: usize,
        out: &mut dyn EventSink,
    ) -> usize {
        let ScannerState::Fenced(fence, ticks) = self.state else {
            return from;
        };
        let bytes = chunk.as_bytes();
        let Some(&byte) = bytes.get(from) else {
            return from;
        };
        let next = match (fence, byte) {
            // Phase changes that consume no byte return early; the caller calls again with the same
            // byte.
            (FencePhase::Ticks, b'`') => {
                ScannerState::Fenced(FencePhase::Ticks, ticks.saturating_add(1))
            }
            (FencePhase::Ticks, _) if ticks >= 3 => {
                self.state = ScannerState::Fenced(FencePhase::Word, ticks);
                return from;
            }
            (FencePhase::Word, b'{') => {
                self.balance = BalanceScanner::at_value();
                self.state = ScannerState::Fenced(FencePhase::Object, ticks);
                return from;
            }
            // The info string, such as `json`, and white space before the object.
            (FencePhase::Word, _) if byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() => {
                self.state
            }
            (FencePhase::Object, _) => {
                let (to, state) = match self.balance.scan(bytes, from, UNGUARDED, false) {
                    ScanStop::End(to) => {
                        (to, ScannerState::Fenced(FencePhase::Close(ticks), ticks))
                    }
                    ScanStop::Guard(to) => (to, self.state),
                    ScanStop::More => (bytes.len(), self.state),
                };
                self.state = state;
                return self.emit_source(chunk, from, to, out);
            }
            // White space may precede the closing backticks, but not interrupt them.
            (FencePhase::Close(left), _) if left == ticks && byte.is_ascii_whitespace() => {
                self.state
            }
            (FencePhase::Close(1), b'`') => ScannerState::End,
            (FencePhase::Close(left), b'`') => {
                ScannerState::Fenced(FencePhase::Close(left - 1), ticks)
            }
            _ => {
                self.close_argument(from, out);
                self.report_malformed(
                    from,
                    "an object `{…}` was expected in the code fence, and nothing else",
                    out,
                );
                self.state = ScannerState::Broken;
                return from;
            }
        };
        self.emit_source(chunk, from, from + 1, out);
        self.state = next;
        if next == ScannerState::End {
            self.close_argument(from + 1, out);
        }
        from + 1
    }

    fn emit_source(&self, chunk: &str, from: usize, to: usize, out: &mut dyn EventSink) -> usize {
        if let Some(text) = chunk.get(from..to).filter(|text| !text.is_empty()) {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text,
            });
        }
        to
    }
}
