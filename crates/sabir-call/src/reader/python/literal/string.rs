//! Reads the strings of a value, and quoted argument names.

use crate::event::{ArgumentEncoding, Event, EventSink};
use crate::fault::{Fault, FaultKind};
use crate::json::SURROGATE_HINT;

use super::{
    LiteralNotation, LiteralReader, LiteralState, LiteralStep, StringRole, StringStart, ValueScope,
};
use crate::reader::python::text::{
    EscapeMeaning, QuoteStyle, SpecialBytes, escape_json, starts_with_marker,
};

/// The length from which a piece of text is emitted directly instead of being collected, in bytes.
const LONG: usize = 64;

impl LiteralReader {
    /// Returns the quote style of the string at the start of `rest`, and the length of its quote;
    /// `Some(None)` if there is no string. `None` means that more text is needed.
    pub(super) fn detect_quote(&self, rest: &str) -> Option<Option<(QuoteStyle, usize)>> {
        let quote = |byte, triple, len| {
            Some(Some((
                QuoteStyle::Python {
                    byte,
                    triple,
                    raw: false,
                },
                len,
            )))
        };
        match (self.notation, rest.as_bytes()) {
            (LiteralNotation::Python, [a @ (b'"' | b'\''), b, c, ..]) if a == b && b == c => {
                quote(*a, true, 3)
            }
            // `''` may be an empty string or the beginning of a triple quote.
            (LiteralNotation::Python, [a @ (b'"' | b'\'')])
            | (LiteralNotation::Python, [a @ (b'"' | b'\''), _]) => {
                let two = rest.as_bytes().get(1);
                if two.is_none_or(|b| b == a) {
                    None
                } else {
                    quote(*a, false, 1)
                }
            }
            (LiteralNotation::Python, [a @ (b'"' | b'\''), ..]) => quote(*a, false, 1),
            (LiteralNotation::Gemma(_), [b'"', ..]) => Some(Some((QuoteStyle::Json, 1))),
            (LiteralNotation::Gemma(table), _) => starts_with_marker(rest, table.quote)
                .map(|yes| yes.then_some((QuoteStyle::Marker(table), table.quote.len()))),
            _ => Some(None),
        }
    }

    /// Consumes the quote that opens a string.
    pub(super) fn open_string(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        start: StringStart,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let StringStart { role, quote, len } = start;
        if role == StringRole::Argument {
            out.push_event(scope.argument_start(ArgumentEncoding::String, at + len));
        }
        if matches!(role, StringRole::Key | StringRole::Element) {
            self.text.push('"');
        }
        self.quote = quote;
        self.state = LiteralState::Text(role);
        LiteralStep::To(at + len)
    }

    /// Consumes the quote after a string prefix.
    pub(super) fn open_prefixed_string(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let (quote, len) = match self.detect_quote(scope.rest_from(at)) {
            Some(Some(opening)) => opening,
            _ => return LiteralStep::Wait(at),
        };
        let raw = match self.word.as_str() {
            "r" | "R" => true,
            "u" | "U" => false,
            // The string is still read, so that its content cannot be taken for the rest of the
            // call.
            prefix if prefix.len() <= 2 && prefix.bytes().all(|b| b"rbfRBF".contains(&b)) => {
                let message = format!(
                    "`{prefix}` before a string: bytes and formatted strings are not values"
                );
                let raw = prefix.contains(['r', 'R']);
                let span = self.word_span(scope, at);
                self.emit_fault(
                    scope,
                    Fault::error(FaultKind::MalformedJson, span, message)
                        .with_hint("write a plain string"),
                    out,
                );
                raw
            }
            _ => return self.report_unknown_word(scope, at, out),
        };
        let quote = if raw { quote.without_escapes() } else { quote };
        self.open_string(scope, at, StringStart { role, quote, len }, out)
    }

    /// Reads the inside of a string.
    pub(super) fn read_string(
        &mut self,
        scope: ValueScope<'_>,
        from: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let special = SpecialBytes::new(
            self.quote,
            matches!(role, StringRole::Key | StringRole::Element),
        );
        let text = scope.view.text;
        let mut at = from;
        loop {
            let end = special.find_first(text.as_bytes(), at);
            let run = text.get(at..end).unwrap_or_default();
            // Long runs, and chunks that lie inside the string, are emitted without a copy.
            if role != StringRole::Name
                && (run.len() >= LONG || (end == text.len() && self.text.is_empty()))
            {
                self.flush_text(scope, out);
                self.emit_text(scope, run, out);
            } else {
                let put = self.push_text(role, run);
                // Only a name has a limit: it is kept in memory until its end.
                if put < run.len() {
                    return self.report_long_word(scope, at + put, out);
                }
            }
            at = end;
            let Some(&byte) = text.as_bytes().get(at) else {
                return LiteralStep::Wait(at);
            };
            let taken = if byte == self.quote.closing_byte() {
                match self.quote.closing_len(scope.rest_from(at)) {
                    None => return LiteralStep::Wait(at),
                    Some(Some(len)) => return self.end_string(scope, at, len, out),
                    Some(None) => Some(self.push_verbatim(scope, at, role, 1)),
                }
            } else if byte == b'\\' {
                self.read_escape(scope, at, role, out)
            } else {
                if matches!(byte, b'\n' | b'\r') && !self.quote.allows_newlines() {
                    self.warn_raw_newline(scope, at, out);
                }
                Some(self.push_verbatim(scope, at, role, 1))
            };
            match taken {
                Some(len) => at += len,
                None => return LiteralStep::Wait(at),
            }
        }
    }

    /// Decodes an escape. Returns its length, or `None` if more text is needed.
    fn read_escape(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> Option<usize> {
        match self.quote.decode_escape(scope.rest_from(at)) {
            EscapeMeaning::Wait => None,
            EscapeMeaning::Char(c, len) => {
                self.push_text(role, c.encode_utf8(&mut [0; 4]));
                Some(len)
            }
            EscapeMeaning::Nothing(len) => Some(len),
            EscapeMeaning::Itself(len) => Some(self.push_verbatim(scope, at, role, len)),
            EscapeMeaning::Lone(len) => {
                self.report_lone_surrogate(scope, at, out);
                self.push_text(role, "\u{fffd}");
                Some(len)
            }
            EscapeMeaning::Wrong(len) => {
                let message = format!("in `{}`: an escape that cannot be read", scope.name);
                let hint = "write `\\\\` for a backslash";
                self.emit_fault(
                    scope,
                    Fault::error(FaultKind::MalformedJson, scope.span_at(at, len), message)
                        .with_hint(hint),
                    out,
                );
                Some(self.push_verbatim(scope, at, role, 1))
            }
        }
    }

    /// Appends source bytes unchanged. Returns their number.
    fn push_verbatim(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        role: StringRole,
        len: usize,
    ) -> usize {
        self.push_text(role, scope.view.text.get(at..at + len).unwrap_or_default());
        len
    }

    fn end_string(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        len: usize,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let LiteralState::Text(role) = self.state else {
            return LiteralStep::To(at + len);
        };
        self.end = scope.view.offset + at;
        if self.notation == LiteralNotation::Python {
            // In Python an adjacent string continues this one.
            self.state = LiteralState::AfterText(role);
            return LiteralStep::To(at + len);
        }
        self.finish_string(scope, at + len, role, out)
    }

    /// Processes the text after a string, which another string may continue.
    pub(super) fn after_text(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        let rest = scope.rest_from(at);
        // Adjacent strings may have prefixes of their own; bytes and formatted strings end the
        // value.
        let letter = rest.bytes().next().filter(|byte| b"rRuU".contains(byte));
        let prefix = usize::from(letter.is_some());
        let behind = rest.get(prefix..).unwrap_or_default();
        if behind.is_empty() {
            return LiteralStep::Wait(at);
        }
        match self.detect_quote(behind) {
            None => LiteralStep::Wait(at),
            Some(Some((quote, len))) => {
                self.quote = if matches!(letter, Some(b'r' | b'R')) {
                    quote.without_escapes()
                } else {
                    quote
                };
                self.state = LiteralState::Text(role);
                LiteralStep::To(at + prefix + len)
            }
            Some(None) => self.finish_string(scope, at, role, out),
        }
    }

    fn finish_string(
        &mut self,
        scope: ValueScope<'_>,
        at: usize,
        role: StringRole,
        out: &mut dyn EventSink,
    ) -> LiteralStep {
        self.state = match role {
            StringRole::Name => return LiteralStep::End(at),
            StringRole::Argument => {
                self.end_argument(scope, self.end, out);
                return LiteralStep::End(at);
            }
            StringRole::Key => LiteralState::Colon,
            StringRole::Element => LiteralState::After,
        };
        self.text.push('"');
        LiteralStep::To(at)
    }

    /// Appends decoded text. Returns the number of bytes appended, which is smaller only if a name
    /// is too long.
    #[inline]
    fn push_text(&mut self, role: StringRole, text: &str) -> usize {
        match role {
            StringRole::Name => return self.word.push(text),
            StringRole::Argument => self.text.push_str(text),
            StringRole::Key | StringRole::Element => escape_json(text, &mut self.text),
        }
        text.len()
    }

    fn emit_text(&self, scope: ValueScope<'_>, text: &str, out: &mut dyn EventSink) {
        if !text.is_empty() {
            out.push_event(Event::ArgDelta {
                index: scope.index,
                text,
            });
        }
    }

    /// Reports the first line feed that should have been escaped.
    fn warn_raw_newline(&mut self, scope: ValueScope<'_>, at: usize, out: &mut dyn EventSink) {
        if !std::mem::replace(&mut self.lined, true) {
            let message = "a line ends inside a string that may hold none; read as it is";
            let fault = Fault::warning(FaultKind::ControlCharacter, scope.span_at(at, 1), message);
            self.emit_warning(scope, fault.with_hint("write a line feed as `\\n`"), out);
        }
    }

    /// Reports the first lone surrogate.
    fn report_lone_surrogate(&mut self, scope: ValueScope<'_>, at: usize, out: &mut dyn EventSink) {
        if !std::mem::replace(&mut self.lone, true) {
            let message = "a lone surrogate escape, which no text can hold";
            let fault = Fault::error(FaultKind::MalformedJson, scope.span_at(at, 1), message);
            self.emit_warning(scope, fault.with_hint(SURROGATE_HINT), out);
        }
    }

    fn emit_warning(&mut self, scope: ValueScope<'_>, fault: Fault, out: &mut dyn EventSink) {
        self.flush_text(scope, out);
        out.push_event(Event::Fault(&fault.in_call(scope.index)));
    }
}
