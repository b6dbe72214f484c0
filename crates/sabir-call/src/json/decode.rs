//! Decodes JSON strings for the argument scanner: plain text is passed through, escapes need a
//! copy.
//!
//! Supported: a chunk that lies inside a string value is emitted as one delta; every other string
//! content is read character by character.
//!
//! Unsupported: merging deltas over chunks; each delta is emitted with the chunk that it came in.
//!
//! Grammar as implemented: see `json/string.rs`.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind};

use super::string::{
    EscapeState, EscapeStep, SURROGATE_HINT, SpecialMask, plain_end, unescape_letter,
};
use super::{ArgumentScanner, ScannerState};

/// The state of the string that is being decoded.
#[derive(Debug, Default)]
pub(super) struct StringDecoder {
    pub(super) escape: EscapeState,
    /// Decoded text that has not been emitted yet; empty between pushes.
    pub(super) decoded: String,
    /// The kinds of mistakes already reported for this call, as bits to keep the scanner small.
    reported: u8,
}

/// A lone surrogate was reported.
const LONE: u8 = 1;
/// A raw control character was reported.
const RAW: u8 = 2;
/// An unknown escape was reported.
const UNKNOWN: u8 = 4;

impl StringDecoder {
    /// Returns true the first time it is called with this kind of mistake.
    fn is_first(&mut self, kind: u8) -> bool {
        let first = self.reported & kind == 0;
        self.reported |= kind;
        first
    }
}

impl ArgumentScanner {
    /// Consumes a chunk longer than [`super::PIECE`] if it is all plain text.
    pub(super) fn take_long(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        let plain = self.strings.escape == EscapeState::None
            && plain_end(chunk.as_bytes(), 0) == chunk.len();
        if plain {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text: chunk,
            });
        }
        plain
    }

    /// Reads a key or a string value, up to its end, the chunk's end, or an escape longer than one
    /// letter.
    #[inline(never)]
    pub(super) fn read_string(
        &mut self,
        chunk: &str,
        from: usize,
        out: &mut dyn EventSink,
    ) -> usize {
        let bytes = chunk.as_bytes();
        // `run` is the start of plain text that has not been copied; without escapes nothing is
        // copied at all.
        let mut run = from;
        let mut at = from;
        loop {
            at = plain_end(bytes, at);
            let text = chunk.get(run..at).unwrap_or_default();
            match bytes.get(at) {
                None => {
                    self.emit_decoded(text, out);
                    return at;
                }
                Some(b'"') => {
                    self.emit_decoded(text, out);
                    self.end_string(at, out);
                    return at + 1;
                }
                Some(b'\\') => {
                    self.strings.decoded.push_str(text);
                    // One-letter escapes are decoded here; `\u…` and escapes split between chunks
                    // take the slow path.
                    let Some(c) = bytes.get(at + 1).copied().and_then(unescape_letter) else {
                        self.strings.escape = EscapeState::Open;
                        return at + 1;
                    };
                    self.strings.decoded.push(c);
                    at += 2;
                    run = at;
                }
                // `plain_end` stops only at a quote, a backslash or a control character, so this is
                // a control character.
                Some(_) => {
                    self.strings.decoded.push_str(text);
                    self.report_raw_control(at, out);
                    self.strings
                        .decoded
                        .push_str(chunk.get(at..=at).unwrap_or_default());
                    at += 1;
                    run = at;
                }
            }
        }
    }

    /// Implements [`Self::take_chunk`] for a short chunk with escapes. Emits nothing unless the
    /// chunk contains neither the end of the string nor a mistake.
    #[inline(never)]
    pub(super) fn take_escaped(
        &mut self,
        chunk: &str,
        marks: SpecialMask,
        out: &mut dyn EventSink,
    ) -> bool {
        let StringDecoder {
            escape, decoded, ..
        } = &mut self.strings;
        let open = match escape {
            EscapeState::None => false,
            EscapeState::Open => true,
            _ => return false,
        };
        // Decoding never makes text longer, so this reserves enough.
        decoded.reserve_exact(chunk.len());
        let ends = marks.decode_piece(chunk, open, decoded);
        if let Some(open) = ends {
            *escape = if open {
                EscapeState::Open
            } else {
                EscapeState::None
            };
            if !decoded.is_empty() {
                out.push_event(Event::ArgDelta {
                    index: self.index,
                    text: decoded,
                });
            }
        }
        decoded.clear();
        ends.is_some()
    }

    /// Emits the decoded text, followed by `tail`. Inside a key, appends both to the key instead.
    #[inline]
    pub(super) fn emit_decoded(&mut self, tail: &str, out: &mut dyn EventSink) {
        let decoded = &mut self.strings.decoded;
        if decoded.is_empty() && self.state != ScannerState::Key {
            if !tail.is_empty() {
                out.push_event(Event::ArgDelta {
                    index: self.index,
                    text: tail,
                });
            }
            return;
        }
        decoded.push_str(tail);
        if self.state == ScannerState::Key {
            if let Some(head) = self.head.as_mut().filter(|head| !head.over) {
                head.key.push_str(decoded);
            }
        } else {
            out.push_event(Event::ArgDelta {
                index: self.index,
                text: decoded,
            });
        }
        decoded.clear();
    }

    /// Reports the first raw control character.
    fn report_raw_control(&mut self, at: usize, out: &mut dyn EventSink) {
        if self.strings.is_first(RAW) {
            let message = "a raw control character in a string; JSON wants it escaped";
            let fault = Fault::warning(FaultKind::ControlCharacter, self.span_at(at), message);
            self.emit_warning(
                fault.with_hint("write it escaped, a line feed as `\\n`"),
                out,
            );
        }
    }

    /// Reports the first lone surrogate.
    fn report_lone_surrogate(&mut self, at: usize, out: &mut dyn EventSink) {
        if self.strings.is_first(LONE) {
            let message = "a lone surrogate escape, which no text can hold";
            let fault = Fault::error(FaultKind::MalformedJson, self.span_at(at), message);
            self.emit_warning(fault.with_hint(SURROGATE_HINT), out);
        }
    }

    fn end_string(&mut self, at: usize, out: &mut dyn EventSink) {
        self.state = match self.state {
            ScannerState::Key => ScannerState::Colon,
            ScannerState::Text(top) => {
                self.close_argument(at, out);
                if top {
                    ScannerState::End
                } else {
                    ScannerState::Comma
                }
            }
            state => state,
        };
    }

    /// Reads one byte of an escape. Returns the next position, which is the same byte if it does
    /// not belong to the escape.
    pub(super) fn read_escape(&mut self, byte: u8, at: usize, out: &mut dyn EventSink) -> usize {
        match self.strings.escape.push_byte(byte) {
            EscapeStep::Taken(c) => {
                self.strings.decoded.extend(c);
                at + 1
            }
            EscapeStep::Lone(taken) => {
                self.report_lone_surrogate(at, out);
                self.strings.decoded.push(char::REPLACEMENT_CHARACTER);
                at + usize::from(taken)
            }
            EscapeStep::Unknown => {
                self.emit_decoded("", out);
                if self.strings.is_first(UNKNOWN) {
                    self.report_malformed(at, "no such escape in a JSON string", out);
                }
                let StringDecoder {
                    escape, decoded, ..
                } = &mut self.strings;
                escape.write_unknown(decoded);
                at
            }
        }
    }
}
