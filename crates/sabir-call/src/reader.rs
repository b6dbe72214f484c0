//! The reader: assistant text in, events out, for every dialect that it listens for.
//!
//! Supported: prose with calls in it, in the dialects [`cline`](crate::dialect) and [`invoke`](crate::dialect), one or
//! both at once; `<thinking>` and `<think>`; mentions (see `reader/prose.rs`), which stay text.
//!
//! The text is cut by the network, never by meaning. Whatever cannot be decided yet is held: the start of a tag (at most
//! 256 bytes), and an opening or closing tag together with the white space behind it, because what follows decides what
//! the tag was. Everything else goes out at once. With `window` for the held text plus the new chunk, each state takes a
//! prefix of the window and says where the next state goes on, or that it needs more; nothing is looked at again but a
//! tag that was broken off.
//!
//! Grammar as implemented, with `ws` for white space:
//!
//! ```text
//! text    = (prose | thought | call)*
//! thought = "<thinking>" … "</thinking>"                     also "think"
//! call    = open ws? (arg ws? …)* close                      cline:  open = "<tool>",             close = "</tool>"
//!                                                            invoke: open = '<invoke name="f">', close = "</invoke>"
//! arg     = argopen value argclose                           cline:  "<name>" … "</name>"
//!                                                            invoke: '<parameter name="k">' … "</parameter>"
//! ```
//!
//! A call opens only where its tag is followed by the tag of an argument or by its own close; a tag followed by words is
//! prose. A value ends at its closing tag only where that is followed by the call's close or by another argument
//! (`reader/call.rs`).

mod call;
mod doubt;
mod opening;
mod payload;
mod prose;
mod region;
mod tag;
mod utf8;
mod value;
mod vocabulary;

use crate::dialect::Selection;
use crate::event::{Cut, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};
use crate::lanes::find;
use crate::tool::ToolSet;

use call::Open;
use opening::{Look, Opening};
use prose::Prose;
use tag::{Interest, Lexed, Tag, lex};
use utf8::Utf8;
use vocabulary::Vocabulary;

/// White space that is held behind a tag or a call before the reader stops waiting for what follows, in bytes.
const BLANK_CAP: usize = 64 * 1024;

/// Reads assistant text.
#[derive(Debug)]
pub struct Reader {
    vocabulary: Vocabulary,
    state: State,
    prose: Prose,
    utf8: Utf8,
    /// Text that could not be decided in the last push.
    hold: String,
    /// A tag, with the white space behind it, that what follows will decide.
    held: String,
    /// White space behind a call.
    blank: String,
    /// Offset of the window's first byte.
    offset: usize,
    past: Past,
    /// Faults found by looking at a tag, which wait for the prose before it.
    faults: Vec<Fault>,
    /// Inside the wrapper of the invoke dialect.
    wrapped: bool,
}

/// What was read before.
#[derive(Debug, Default)]
struct Past {
    /// Calls opened so far.
    calls: u32,
    /// Where markup of a call was only mentioned.
    mention: Option<Mention>,
    /// The last tag that words followed instead of arguments.
    bare: Option<Bare>,
    /// The first call that closed with each pair of tags, to notice when its end could be read in two places.
    closed: Vec<Closed>,
}

#[derive(Debug)]
enum State {
    Prose,
    /// Behind a call.
    Gap,
    /// Inside a thought that began at the offset, until this closing tag.
    Thought(&'static str, usize),
    /// Behind a tag that may open a call.
    Opening(Opening),
    /// Inside a call.
    Call(Box<Open>),
}

#[derive(Debug)]
struct Mention {
    why: &'static str,
    name: String,
    span: Span,
}

#[derive(Debug)]
struct Bare {
    /// The tag's name, and the tool's.
    tag: String,
    name: String,
    span: Span,
}

#[derive(Debug)]
struct Closed {
    index: u32,
    argument: String,
    argument_close: String,
    call_close: String,
    /// Where in the prose the argument's closing tag was seen again.
    noted: Option<usize>,
}

/// The text that is looked at: what was held, and the new chunk.
#[derive(Debug, Clone, Copy)]
struct Window<'w> {
    text: &'w str,
    /// No more will come.
    last: bool,
}

/// What a state did with the window.
enum Step {
    /// Went on to this byte.
    To(usize),
    /// Went as far as this byte and needs more text.
    Wait(usize),
}

impl Reader {
    /// A reader for the dialects of `selection` and the tools on offer. Without tools nothing is a call.
    pub fn new(selection: Selection, tools: &ToolSet) -> Self {
        Self {
            vocabulary: Vocabulary::new(selection, tools),
            state: State::Prose,
            prose: Prose::default(),
            utf8: Utf8::default(),
            hold: String::new(),
            held: String::new(),
            blank: String::new(),
            offset: 0,
            past: Past::default(),
            faults: Vec::new(),
            wrapped: false,
        }
    }

    /// Takes the next bytes; a character may be cut anywhere. Invalid UTF-8 becomes U+FFFD, with a warning.
    pub fn push_bytes(&mut self, chunk: &[u8], out: &mut dyn Sink) {
        let mut utf8 = std::mem::take(&mut self.utf8);
        utf8.push(chunk, |text, invalid| {
            if invalid {
                self.invalid(out);
            }
            self.push(text, out);
        });
        self.utf8 = utf8;
    }

    /// Takes the next piece of text.
    #[inline]
    pub fn push(&mut self, chunk: &str, out: &mut dyn Sink) {
        // Nearly all of a stream is the inside of values.
        let taken = match &mut self.state {
            State::Call(open) if self.hold.is_empty() => open.take(chunk, &self.vocabulary, out),
            _ => false,
        };
        if taken {
            self.offset += chunk.len();
        } else {
            self.read(chunk, out);
        }
    }

    /// Takes a piece of text that may hold anything. Apart from [`Self::push`], so that this costs nothing where it is not needed.
    #[inline(never)]
    fn read(&mut self, chunk: &str, out: &mut dyn Sink) {
        if self.hold.is_empty() {
            let taken = self.run(Window { text: chunk, last: false }, out);
            self.hold.push_str(chunk.get(taken..).unwrap_or_default());
        } else {
            let mut text = std::mem::take(&mut self.hold);
            text.push_str(chunk);
            let taken = self.run(Window { text: &text, last: false }, out);
            text.drain(..taken);
            self.hold = text;
        }
    }

    /// Ends the text. `why` is what a call that is still open is cut by. Nothing may be pushed afterwards.
    pub fn finish(&mut self, why: Cut, out: &mut dyn Sink) {
        if std::mem::take(&mut self.utf8).is_cut() {
            self.invalid(out);
            self.push("\u{fffd}", out);
        }
        let text = std::mem::take(&mut self.hold);
        let taken = self.run(Window { text: &text, last: true }, out);
        self.offset += text.len() - taken;
        match std::mem::replace(&mut self.state, State::Prose) {
            State::Prose | State::Gap => {}
            State::Thought(close, start) => self.unclosed_thought(close, start, out),
            State::Opening(opening) => self.cut_opening(opening, why, text.get(taken..).unwrap_or_default(), out),
            State::Call(open) => self.cut_call(*open, why, out),
        }
        self.report_mention(out);
    }

    fn run(&mut self, window: Window<'_>, out: &mut dyn Sink) -> usize {
        let mut at = 0;
        while at < window.text.len() {
            let step = match self.state {
                State::Prose => self.prose(window, at, out),
                State::Gap => self.gap(window, at),
                State::Thought(close, _) => self.thought(window, at, close, out),
                State::Opening(_) => self.opening(window, at, out),
                State::Call(_) => self.call(window, at, out),
            };
            match step {
                Step::To(next) => at = next,
                Step::Wait(next) => {
                    at = next;
                    break;
                }
            }
        }
        self.offset += at;
        at
    }

    /// Prose, up to a tag that may be more than that.
    fn prose(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let mut at = from;
        let mut said = from;
        let look = loop {
            at += self.prose.skip(window.from(at));
            let rest = window.from(at);
            if rest.is_empty() {
                self.say(window.from(said), out);
                return Step::To(window.text.len());
            }
            let look = self.look(rest, at, window.last);
            let text = matches!(look, Look::Text);
            if !text || !self.faults.is_empty() {
                self.say(window.between(said, at), out);
                said = at;
            }
            for fault in self.faults.drain(..) {
                out.event(Event::Fault(&fault));
            }
            if !text {
                break look;
            }
            self.prose.byte(b'<');
            at += 1;
        };
        match look {
            Look::Text | Look::Wait => Step::Wait(at),
            Look::Malformed(opening, fault, len) => {
                self.malformed_call(&opening, *fault, out);
                Step::To(at + len)
            }
            Look::Unwrap(len) => {
                self.wrapped = false;
                self.blank.clear();
                self.state = State::Gap;
                Step::To(at + len)
            }
            Look::Thought(close, len) => {
                self.state = State::Thought(close, self.offset + at);
                Step::To(at + len)
            }
            Look::Open(opening, len) => {
                self.held.clear();
                self.held.push_str(window.between(at, at + len));
                self.state = State::Opening(opening);
                Step::To(at + len)
            }
        }
    }

    /// White space behind a call: no text if another call or nothing follows.
    fn gap(&mut self, window: Window<'_>, from: usize) -> Step {
        let rest = window.from(from);
        let taken = take_blank(rest, &mut self.blank);
        if taken < rest.len() {
            self.state = State::Prose;
            self.prose.resume();
            self.prose.read(&self.blank);
        }
        Step::To(from + taken)
    }

    /// Emits prose, after the white space that turned out to belong to it.
    fn say(&mut self, text: &str, out: &mut dyn Sink) {
        if text.is_empty() {
            return;
        }
        if !self.blank.is_empty() {
            out.event(Event::Text { text: &self.blank });
            self.blank.clear();
        }
        out.event(Event::Text { text });
    }

    fn thought(&mut self, window: Window<'_>, from: usize, close: &'static str, out: &mut dyn Sink) -> Step {
        let mut at = from;
        loop {
            let Some(found) = find(b'<', window.from(at).as_bytes()) else {
                thought(window.from(from), out);
                self.prose.read(last_char(window.from(from)).unwrap_or_default());
                return Step::To(window.text.len());
            };
            at += found;
            let before = last_char(window.between(from, at));
            let ticked = before.map_or(self.prose.previous() == b'`', |c| c == "`");
            let tail = window.from(at);
            let lexed = lex(tail, window.last, |name, _| match name == close {
                true => Interest::Plain,
                false => self.vocabulary.interest_in_thought(name),
            });
            // Between backticks the closing tag is only mentioned, which takes one more character to see.
            let after = |tag: Tag<'_>| tail.as_bytes().get(tag.len).copied();
            let lexed = match lexed {
                Lexed::Tag(tag) if ticked && tag.closes(close) && after(tag).is_none() && !window.last => {
                    Lexed::Partial
                }
                lexed => lexed,
            };
            match lexed {
                Lexed::Tag(tag) if tag.closes(close) && !(ticked && after(tag) == Some(b'`')) => {
                    thought(window.between(from, at), out);
                    self.state = State::Gap;
                    return Step::To(at + tag.len);
                }
                Lexed::Tag(tag) => {
                    let (name, len) = (tag.name.to_owned(), tag.len);
                    if !tag.close {
                        self.note_mention("inside a thought", name, at, len);
                    }
                    at += len;
                }
                Lexed::Partial => {
                    thought(window.between(from, at), out);
                    self.prose.read(before.unwrap_or_default());
                    return Step::Wait(at);
                }
                Lexed::No => at += 1,
            }
        }
    }

    fn note_mention(&mut self, why: &'static str, name: String, at: usize, len: usize) {
        let start = self.offset + at;
        self.past.mention.get_or_insert(Mention { why, name, span: Span::new(start, start + len) });
    }

    fn unclosed_thought(&self, close: &str, start: usize, out: &mut dyn Sink) {
        let message =
            format!("`<{close}>` was opened here and never closed, so all that follows was read as a thought");
        let span = Span::new(start, start + close.len() + 2);
        let hint = format!("write `</{close}>` before calling a tool");
        let fault = Fault::warning(FaultKind::WrongClose, span, message.clone()).hint(hint.clone());
        out.event(Event::Fault(&fault));
        // What was swallowed may have been the rest of a value whose closing tags were taken for its end.
        for index in 0..self.past.calls {
            let fault = Fault::error(FaultKind::WrongClose, span, message.clone()).in_call(index);
            out.event(Event::Fault(&fault.hint(hint.clone())));
        }
    }

    /// A message without calls that mentions one: perhaps a call was meant.
    fn report_mention(&mut self, out: &mut dyn Sink) {
        let Some(mention) = self.past.mention.take().filter(|_| self.past.calls == 0) else { return };
        let message =
            format!("`{}` stands {}, where a call is only mentioned; nothing was run", mention.name, mention.why);
        let fault = Fault::warning(FaultKind::Mentioned, mention.span, message);
        out.event(Event::Fault(
            &fault.hint("if a call was meant, write it outside of fences, quotations and thoughts"),
        ));
    }

    fn invalid(&self, out: &mut dyn Sink) {
        let at = self.offset + self.hold.len();
        let message = "bytes that are no UTF-8 were replaced by U+FFFD";
        out.event(Event::Fault(&Fault::warning(FaultKind::InvalidUtf8, Span::new(at, at + 3), message)));
    }
}

impl<'w> Window<'w> {
    fn from(self, at: usize) -> &'w str {
        self.text.get(at..).unwrap_or_default()
    }

    fn between(self, from: usize, to: usize) -> &'w str {
        self.text.get(from..to).unwrap_or_default()
    }
}

/// Moves white space from the start of `rest` to `held`, up to [`BLANK_CAP`] bytes in all.
fn take_blank(rest: &str, held: &mut String) -> usize {
    let room = BLANK_CAP.saturating_sub(held.len());
    let taken = rest.bytes().take(room).take_while(u8::is_ascii_whitespace).count();
    held.push_str(rest.get(..taken).unwrap_or_default());
    taken
}

fn thought(text: &str, out: &mut dyn Sink) {
    if !text.is_empty() {
        out.event(Event::Thought { text });
    }
}

/// The last character, as text.
fn last_char(text: &str) -> Option<&str> {
    text.char_indices().next_back().and_then(|(at, _)| text.get(at..))
}
