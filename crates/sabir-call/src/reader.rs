//! The reader: assistant text in, events out, for every dialect that it listens for.
//!
//! Supported: prose with calls in it, in one dialect or in all at once; thoughts, in which only calls in special tokens are
//! read; mentions (`reader/prose.rs`), which stay text; a mark of the byte order before everything, which is dropped.
//!
//! Unsupported: a call in a call; markers inside another region; calls in words ("now I call read_file").
//!
//! The text is cut by the network, never by meaning. Whatever cannot be decided yet is held: a marker that is broken off (a
//! tag at most 256 bytes), an opening or closing one together with the white space behind it, a name before its JSON, and a
//! guess. Everything else goes out at once. With `window` for the held text plus the new chunk, each state takes a prefix of
//! the window and says where the next state goes on, or that it needs more; nothing is looked at again but what was held.
//!
//! Grammar as implemented, with `ws` for white space:
//!
//! ```text
//! text    = (prose | thought | section | call | region | guess)*
//! thought = "<thinking>" … "</thinking>"                     also "think" and others, tokens of a dialect, an analysis channel
//! section = a marker around calls or messages                no text where calls or other markers stand next to it
//! call    = open ws? (arg ws? …)* close                      call.rs;   cline:  open = "<tool>",             close = "</tool>"
//!                                                                       invoke: open = '<invoke name="f">', close = "</invoke>"
//! arg     = argopen value argclose                           cline:  "<name>" … "</name>"
//!                                                            invoke: '<parameter name="k">' … "</parameter>"
//! region  = marker ws? (json | python | gemma | header json) follow.rs, payload.rs, python.rs, gemma.rs
//! guess   = json | python                                    guess.rs:  without a marker, at the end of the text
//! ```
//!
//! A call in tags opens only where its tag is followed by the tag of an argument or by its own close; a tag followed by words
//! is prose. A value ends at its closing tag only where that is followed by the call's close or by another argument
//! (`reader/call.rs`).

mod buffer;
mod call;
mod doubt;
mod follow;
mod form;
mod gemma;
mod guess;
mod look;
mod markers;
mod opening;
mod payload;
mod prose;
mod python;
mod region;
mod report;
mod tag;
mod thought;
mod triggers;
mod utf8;
mod value;
mod vocabulary;

use std::sync::Arc;

use crate::dialect::Selection;
use crate::event::{Cut, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};
use crate::tool::ToolSet;

use buffer::Buffer;
use call::Open;
use follow::Heading;
use guess::Guess;
use look::Look;
use opening::Opening;
use prose::Prose;
use region::{Machine, Region, Taken, View};
use report::Past;
use thought::Thought;
use utf8::Utf8;
use vocabulary::Vocabulary;

/// White space that is held behind a tag or a call before the reader stops waiting for what follows, in bytes.
const BLANK_CAP: usize = 8 * 1024;
/// So much of its end is looked at for line ends and indentation, in bytes.
const BLANK_END: usize = 256;

/// Held text up to this length takes no more memory than it needs, in bytes; longer text may go on to grow.
const SHORT: usize = 64;
/// So much longer than a chunk may be what is kept of that memory, in bytes.
const SPARE: usize = 8;

/// Reads assistant text.
#[derive(Debug)]
pub struct Reader {
    vocabulary: Arc<Vocabulary>,
    state: State,
    prose: Prose,
    utf8: Utf8,
    /// The first text has come.
    begun: bool,
    /// Text that could not be decided in the last push.
    hold: String,
    /// A tag, with the white space behind it, that what follows will decide.
    held: Buffer,
    /// White space behind a call.
    blank: Buffer,
    /// Offset of the window's first byte.
    offset: usize,
    past: Past,
    /// The name of the wrapper that we are in.
    wrapped: Option<Box<str>>,
    /// The thought in which a call of special tokens stands.
    inside: Option<Box<Thought>>,
}

#[derive(Debug)]
enum State {
    Prose,
    /// Behind a call.
    Gap,
    /// Inside a thought.
    Thought(Box<Thought>),
    /// Behind a marker that may open a call.
    Opening(Box<Opening>),
    /// Behind a marker, before the JSON that its name stands before.
    Heading(Box<Heading>),
    /// Inside a call in tags.
    Call(Box<Open>),
    /// Inside a region that another machine reads.
    Region(Machine),
    /// Inside what may turn out to be calls without any marker.
    Guess(Box<Guess>),
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
        Self::over(Arc::new(Vocabulary::new(selection, tools)), State::Prose)
    }

    fn over(vocabulary: Arc<Vocabulary>, state: State) -> Self {
        Self {
            vocabulary,
            state,
            prose: Prose::default(),
            utf8: Utf8::default(),
            begun: false,
            hold: String::new(),
            held: Buffer::default(),
            blank: Buffer::default(),
            offset: 0,
            past: Past::default(),
            wrapped: None,
            inside: None,
        }
    }

    /// A reader for reasoning that a wire tells apart from the text. All of it is a thought; only calls in special tokens,
    /// which nobody writes by accident, are read out of it.
    pub fn reasoning(selection: Selection, tools: &ToolSet) -> Self {
        Self::over(Arc::new(Vocabulary::new(selection, tools)), State::Thought(Box::new(Thought::endless())))
    }

    /// The reader of the reasoning that belongs to the text which this one reads.
    pub(crate) fn twin(&self) -> Self {
        Self::over(Arc::clone(&self.vocabulary), State::Thought(Box::new(Thought::endless())))
    }

    /// So many bytes of the source belonged to something else: positions count on behind them.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_add(bytes);
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
            State::Region(region) if self.hold.is_empty() => region.take(chunk, out),
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
        let chunk = if self.begun { chunk } else { self.unmark(chunk) };
        if self.hold.is_empty() {
            let taken = self.run(Window { text: chunk, last: false }, out);
            self.hold.push_str(chunk.get(taken..).unwrap_or_default());
        } else {
            let mut text = std::mem::take(&mut self.hold);
            if text.len() <= SHORT {
                text.reserve_exact(chunk.len());
            }
            text.push_str(chunk);
            let state = std::mem::discriminant(&self.state);
            let taken = self.run(Window { text: &text, last: false }, out);
            text.drain(..taken);
            // What is held in front of a value is mostly longer than what is held inside: that memory is given back.
            let same = state == std::mem::discriminant(&self.state) && text.capacity() <= chunk.len() + SPARE;
            if !text.is_empty() || same {
                self.hold = text;
            }
        }
    }

    /// The first text, without a mark of the byte order, which says nothing of the text.
    fn unmark<'t>(&mut self, chunk: &'t str) -> &'t str {
        self.begun = !chunk.is_empty();
        let text = chunk.strip_prefix('\u{feff}').unwrap_or(chunk);
        self.offset += chunk.len() - text.len();
        text
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
            State::Thought(thought) => self.past.unclosed_thought(*thought, out),
            State::Opening(opening) => self.cut_opening(*opening, why, text.get(taken..).unwrap_or_default(), out),
            State::Heading(heading) => self.cut_heading(*heading, why, text.get(taken..).unwrap_or_default(), out),
            State::Call(open) => self.cut_call(*open, why, out),
            State::Region(mut region) => {
                region.cut(why, self.offset, out);
                self.past.calls = region.next_index();
            }
            State::Guess(guess) => self.end_guess(*guess, why, out),
        }
        self.past.report(out);
    }

    fn run(&mut self, window: Window<'_>, out: &mut dyn Sink) -> usize {
        let mut at = 0;
        while at < window.text.len() {
            let step = match &self.state {
                State::Prose => self.prose(window, at, out),
                State::Gap => self.gap(window, at),
                State::Thought(thought) => {
                    let thought = **thought;
                    self.thought(window, at, thought, out)
                }
                State::Opening(_) => self.opening(window, at, out),
                State::Heading(_) => self.heading(window, at, out),
                State::Call(_) => self.call(window, at, out),
                State::Region(_) => self.region(window, at, out),
                State::Guess(_) => self.guess(window, at, out),
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

    /// Prose, up to a marker that may be more than that.
    fn prose(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let mut at = from;
        let mut said = from;
        let look = loop {
            at += self.prose.skip(window.from(at), &self.vocabulary.triggers);
            let rest = window.from(at);
            if rest.is_empty() {
                self.say(window.from(said), out);
                return Step::To(window.text.len());
            }
            let look = self.look(rest, at, window.last);
            let text = matches!(look, Look::Text);
            if !text || self.past.has_notes() {
                self.say(window.between(said, at), out);
                said = at;
            }
            self.past.tell(out);
            if !text {
                break look;
            }
            self.prose.byte(rest.as_bytes().first().copied().unwrap_or_default());
            at += 1;
        };
        let (state, len) = match look {
            Look::Text | Look::Wait => return Step::Wait(at),
            Look::Malformed(opening, fault, len) => {
                self.malformed_call(&opening, *fault, out);
                return Step::To(at + len);
            }
            Look::Skip(len) => {
                self.blank.clear();
                self.prose.refresh();
                (State::Gap, len)
            }
            Look::Frame(len) => {
                self.begin_message();
                (State::Prose, len)
            }
            Look::Thought(thought, len) => (State::Thought(Box::new(thought)), len),
            Look::Open(opening, len) => {
                self.held.clear();
                self.held.push_str(window.between(at, at + len));
                (State::Opening(Box::new(opening)), len)
            }
            Look::Guess(guess) => (State::Guess(Box::new(guess)), 0),
        };
        self.state = state;
        Step::To(at + len)
    }

    /// Goes on in a region.
    fn region(&mut self, window: Window<'_>, from: usize, out: &mut dyn Sink) -> Step {
        let State::Region(region) = &mut self.state else { return Step::To(from) };
        let view = View { text: window.from(from), offset: self.offset + from, last: window.last };
        match region.read(view, out) {
            Taken::More(taken) => Step::Wait(from + taken),
            Taken::Over(taken) => {
                self.past.calls = region.next_index();
                self.state = self.outside();
                Step::To(from + taken)
            }
        }
    }

    /// A message begins: its first line is the start of a line, whatever stood before.
    fn begin_message(&mut self) {
        self.blank.clear();
        self.prose.begin();
    }

    /// Where the text goes on behind a call: in the thought that it stood in, or outside.
    fn outside(&mut self) -> State {
        self.inside.take().map_or(State::Gap, State::Thought)
    }

    /// White space behind a call: no text if another call or nothing follows.
    fn gap(&mut self, window: Window<'_>, from: usize) -> Step {
        let rest = window.from(from);
        let taken = take_blank(rest, &mut self.blank);
        if taken < rest.len() {
            self.state = State::Prose;
            self.prose.resume();
            // What white space says of lines, its end says. All of it may have been read before, behind another thought.
            let end = self.blank.len().saturating_sub(BLANK_END);
            self.prose.read(self.blank.get(end..).unwrap_or_default());
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
fn take_blank(rest: &str, held: &mut Buffer) -> usize {
    let room = BLANK_CAP.saturating_sub(held.len());
    let taken = rest.bytes().take(room).take_while(u8::is_ascii_whitespace).count();
    held.push_str(rest.get(..taken).unwrap_or_default());
    taken
}
