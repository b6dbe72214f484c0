//! The strings of a value, and those that are the name of an argument.

use crate::event::{ArgForm, Event, Sink};
use crate::fault::{Fault, FaultKind};
use crate::json::WHOLE;

use super::{Literal, Next, Notation, Role, Scope, State};
use crate::reader::python::text::{Escape, Quote, Special, escape_json, starts};

/// From this length on a piece of text goes out as it stands, and is not collected with what surrounds it.
const LONG: usize = 64;

impl Literal {
    /// How the string at the start of `rest` is quoted, and how long its quote is; `Some(None)`: there is no string.
    /// `None`: more text must come.
    pub(super) fn opening(&self, rest: &str) -> Option<Option<(Quote, usize)>> {
        let quote = |byte, triple, len| Some(Some((Quote::Python { byte, triple, raw: false }, len)));
        match (self.notation, rest.as_bytes()) {
            (Notation::Python, [a @ (b'"' | b'\''), b, c, ..]) if a == b && b == c => quote(*a, true, 3),
            (Notation::Python, [a @ (b'"' | b'\'')]) | (Notation::Python, [a @ (b'"' | b'\''), _]) => {
                let two = rest.as_bytes().get(1);
                if two.is_none_or(|b| b == a) { None } else { quote(*a, false, 1) }
            }
            (Notation::Python, [a @ (b'"' | b'\''), ..]) => quote(*a, false, 1),
            (Notation::Gemma(_), [b'"', ..]) => Some(Some((Quote::Json, 1))),
            (Notation::Gemma(table), _) => {
                starts(rest, table.quote).map(|yes| yes.then_some((Quote::Marker(table), table.quote.len())))
            }
            _ => Some(None),
        }
    }

    /// Takes the quote that opens a string.
    pub(super) fn open_string(
        &mut self,
        scope: Scope<'_>,
        at: usize,
        (role, quote, len): (Role, Quote, usize),
        out: &mut dyn Sink,
    ) -> Next {
        self.start(scope, (ArgForm::String, at + len), role, out);
        if matches!(role, Role::Key | Role::Element) {
            self.text.push('"');
        }
        self.quote = quote;
        self.state = State::Text(role);
        Next::To(at + len)
    }

    /// Takes the quote that stands behind a word.
    pub(super) fn prefixed(&mut self, scope: Scope<'_>, at: usize, role: Role, out: &mut dyn Sink) -> Next {
        let (quote, len) = match self.opening(scope.rest(at)) {
            Some(Some(opening)) => opening,
            _ => return Next::Wait(at),
        };
        let raw = match self.word.as_str() {
            "r" | "R" => true,
            "u" | "U" => false,
            prefix if prefix.len() <= 2 && prefix.bytes().all(|b| b"rbfRBF".contains(&b)) => {
                let message = format!("`{prefix}` before a string: bytes and formatted strings are no values");
                let raw = prefix.contains(['r', 'R']);
                let span = self.word_span(scope, at);
                self.fault(
                    scope,
                    Fault::error(FaultKind::MalformedJson, span, message).hint("write a plain string"),
                    out,
                );
                raw
            }
            _ => return self.unknown_word(scope, at, out),
        };
        let quote = if raw { quote.raw() } else { quote };
        self.open_string(scope, at, (role, quote, len), out)
    }

    /// Inside a string.
    pub(super) fn string(&mut self, scope: Scope<'_>, from: usize, role: Role, out: &mut dyn Sink) -> Next {
        let special = Special::new(self.quote, matches!(role, Role::Key | Role::Element));
        let text = scope.view.text;
        let mut at = from;
        loop {
            let end = special.find(text.as_bytes(), at);
            let run = text.get(at..end).unwrap_or_default();
            if role != Role::Name && (run.len() >= LONG || (end == text.len() && self.text.is_empty())) {
                self.flush(scope, out);
                self.deliver(scope, run, out);
            } else {
                let put = self.put(role, run);
                if put < run.len() {
                    return self.too_long(scope, at + put, out);
                }
            }
            at = end;
            let Some(&byte) = text.as_bytes().get(at) else { return Next::Wait(at) };
            let taken = if byte == self.quote.byte() {
                match self.quote.ends(scope.rest(at)) {
                    None => return Next::Wait(at),
                    Some(Some(len)) => return self.end_string(scope, at, (role, len), out),
                    Some(None) => Some(self.itself(scope, at, (role, 1))),
                }
            } else if byte == b'\\' {
                self.escape(scope, at, role, out)
            } else {
                if matches!(byte, b'\n' | b'\r') && !self.quote.takes_lines() {
                    self.tell_line(scope, at, out);
                }
                Some(self.itself(scope, at, (role, 1)))
            };
            match taken {
                Some(len) => at += len,
                None => return Next::Wait(at),
            }
        }
    }

    /// Takes an escape: its length.
    fn escape(&mut self, scope: Scope<'_>, at: usize, role: Role, out: &mut dyn Sink) -> Option<usize> {
        match self.quote.escape(scope.rest(at)) {
            Escape::Wait => None,
            Escape::Char(c, len) => {
                self.put(role, c.encode_utf8(&mut [0; 4]));
                Some(len)
            }
            Escape::Nothing(len) => Some(len),
            Escape::Itself(len) => Some(self.itself(scope, at, (role, len))),
            Escape::Lone(len) => {
                self.tell_lone(scope, at, out);
                self.put(role, "\u{fffd}");
                Some(len)
            }
            Escape::Wrong(len) => {
                let message = format!("in `{}`: an escape that cannot be read", scope.name);
                let hint = "write `\\\\` for a backslash";
                self.fault(scope, Fault::error(FaultKind::MalformedJson, scope.span(at, len), message).hint(hint), out);
                Some(self.itself(scope, at, (role, 1)))
            }
        }
    }

    /// So many bytes stand for themselves.
    fn itself(&mut self, scope: Scope<'_>, at: usize, (role, len): (Role, usize)) -> usize {
        self.put(role, scope.view.text.get(at..at + len).unwrap_or_default());
        len
    }

    fn end_string(&mut self, scope: Scope<'_>, at: usize, (role, len): (Role, usize), out: &mut dyn Sink) -> Next {
        self.end = scope.view.offset + at;
        if self.notation == Notation::Python {
            self.state = State::AfterText(role);
            return Next::To(at + len);
        }
        self.finish_string(scope, at + len, role, out)
    }

    /// Behind a string: another one continues it.
    pub(super) fn after_text(&mut self, scope: Scope<'_>, at: usize, role: Role, out: &mut dyn Sink) -> Next {
        let rest = scope.rest(at);
        let letter = rest.bytes().next().filter(|byte| b"rRuU".contains(byte));
        let prefix = usize::from(letter.is_some());
        let behind = rest.get(prefix..).unwrap_or_default();
        if behind.is_empty() {
            return Next::Wait(at);
        }
        match self.opening(behind) {
            None => Next::Wait(at),
            Some(Some((quote, len))) => {
                self.quote = if matches!(letter, Some(b'r' | b'R')) { quote.raw() } else { quote };
                self.state = State::Text(role);
                Next::To(at + prefix + len)
            }
            Some(None) => self.finish_string(scope, at, role, out),
        }
    }

    fn finish_string(&mut self, scope: Scope<'_>, at: usize, role: Role, out: &mut dyn Sink) -> Next {
        self.state = match role {
            Role::Name => return Next::End(at),
            Role::Argument => {
                self.end_argument(scope, self.end, out);
                return Next::End(at);
            }
            Role::Key => State::Colon,
            Role::Element => State::After,
        };
        self.text.push('"');
        Next::To(at)
    }

    /// Adds decoded text: how many bytes of it, fewer than all where a name is too long.
    fn put(&mut self, role: Role, text: &str) -> usize {
        match role {
            Role::Name => return self.word.push(text),
            Role::Argument => self.text.push_str(text),
            Role::Key | Role::Element => escape_json(text, &mut self.text),
        }
        text.len()
    }

    fn deliver(&self, scope: Scope<'_>, text: &str, out: &mut dyn Sink) {
        if !text.is_empty() {
            out.event(Event::ArgDelta { index: scope.index, text });
        }
    }

    /// Tells the first line feed that stands where an escape belongs.
    fn tell_line(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) {
        if !std::mem::replace(&mut self.lined, true) {
            let message = "a line ends inside a string that may hold none; read as it stands";
            let fault = Fault::warning(FaultKind::ControlCharacter, scope.span(at, 1), message);
            self.warn(scope, fault.hint("write a line feed as `\\n`"), out);
        }
    }

    /// Tells the first lone surrogate.
    fn tell_lone(&mut self, scope: Scope<'_>, at: usize, out: &mut dyn Sink) {
        if !std::mem::replace(&mut self.lone, true) {
            let message = "a lone surrogate escape, which no text can hold";
            let fault = Fault::error(FaultKind::MalformedJson, scope.span(at, 1), message);
            self.warn(scope, fault.hint(WHOLE), out);
        }
    }

    fn warn(&mut self, scope: Scope<'_>, fault: Fault, out: &mut dyn Sink) {
        self.flush(scope, out);
        out.event(Event::Fault(&fault.in_call(scope.index)));
    }
}
