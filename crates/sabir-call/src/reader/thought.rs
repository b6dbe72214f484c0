//! Thoughts: reasoning between tags, on a channel of its own, or on a wire of its own. It is never parsed for calls, but for
//! those in special tokens, which a model emits and nobody types.

use crate::event::{Event, MarkRole, Sink};

use super::markers::Spotted;
use super::tag::{Interest, Lexed, Tag, lex};
use super::{Reader, State, Step, Window};
use crate::lanes::find;

/// The names of the tokens that end a thought of the harmony dialect; the last two open the next message.
const HARMONY: [&str; 5] = ["|end|", "|return|", "|call|", "|start|", "|channel|"];

/// A thought that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thought {
    end: End,
    /// Offset of its opening tag.
    start: usize,
    /// A marker around calls opened in it.
    section: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The closing tag of this name.
    Tag(&'static str),
    /// The closing one of these markers.
    Marker(&'static str, &'static str),
    /// A token of the harmony dialect.
    Harmony,
    /// The end of the text.
    Never,
}

impl Thought {
    /// A thought between tags of that name.
    pub(super) fn new(name: &'static str, start: usize) -> Self {
        Self { end: End::Tag(name), start, section: false }
    }

    /// A thought between markers.
    pub(super) fn between(open: &'static str, close: &'static str, start: usize) -> Self {
        Self { end: End::Marker(open, close), start, section: false }
    }

    /// A message on the analysis channel.
    pub(super) fn channel(start: usize) -> Self {
        Self { end: End::Harmony, start, section: false }
    }

    /// All of a text.
    pub(super) fn endless() -> Self {
        Self { end: End::Never, start: 0, section: false }
    }

    /// What opened it, what should have closed it, and where it began.
    pub(super) fn unclosed(self) -> Option<(String, String, usize)> {
        match self.end {
            End::Tag(name) => Some((format!("<{name}>"), format!("</{name}>"), self.start)),
            End::Marker(open, close) => Some((open.to_owned(), close.to_owned(), self.start)),
            End::Harmony | End::Never => None,
        }
    }

    /// Whether a tag of this name may end it.
    fn names(self, name: &str) -> bool {
        match self.end {
            End::Tag(close) => name == close,
            End::Harmony => HARMONY.contains(&name),
            End::Marker(..) | End::Never => false,
        }
    }

    /// Length of the marker at the start of `text` that ends it. `None`: more text is needed.
    fn marker(self, text: &str, last: bool) -> Option<usize> {
        match self.end {
            End::Marker(_, close) if text.starts_with(close) => Some(close.len()),
            End::Marker(_, close) if !last && close.starts_with(text) => None,
            _ => Some(0),
        }
    }

    /// Whether the tag ends it, and how much of the tag goes with it.
    fn ends(self, tag: Tag<'_>) -> Option<usize> {
        match self.end {
            End::Tag(close) => tag.closes(close).then_some(tag.len),
            End::Harmony if matches!(tag.name, "|start|" | "|channel|") => Some(0),
            End::Harmony => HARMONY.contains(&tag.name).then_some(tag.len),
            End::Marker(..) | End::Never => None,
        }
    }
}

impl Reader {
    /// Goes on in a thought.
    pub(super) fn thought(&mut self, window: Window<'_>, from: usize, thought: Thought, out: &mut dyn Sink) -> Step {
        let (mut at, mut said) = (from, from);
        loop {
            let Some(found) = first_tag(window.from(at).as_bytes(), self.vocabulary.marked) else {
                say(window.from(said), out);
                self.prose.saw(last_char(window.from(from)).unwrap_or_default());
                return Step::To(window.text.len());
            };
            at += found;
            let tail = window.from(at);
            match thought.marker(tail, window.last) {
                Some(0) => {}
                Some(len) => {
                    self.end_thought(window.between(said, at), (at, len), out);
                    return Step::To(at + len);
                }
                None => {
                    say(window.between(said, at), out);
                    return Step::Wait(at);
                }
            }
            if let Some(step) = self.special(window, (said, at), thought, out) {
                return step;
            }
            let before = last_char(window.between(from, at));
            let ticked = before.map_or(self.prose.previous() == b'`', |c| c == "`");
            let interest = |name: &str, _| match thought.names(name) {
                true => Interest::Plain,
                false => self.vocabulary.interest_in_thought(name),
            };
            let lexed = if tail.starts_with('<') { lex(tail, window.last, interest) } else { Lexed::No };
            // Between backticks the closing tag is only mentioned, which takes one more character to see.
            let after = |tag: Tag<'_>| tail.as_bytes().get(tag.len).copied();
            let ends = |tag: Tag<'_>| thought.ends(tag).filter(|_| !(ticked && after(tag) == Some(b'`')));
            let lexed = match lexed {
                Lexed::Tag(tag) if ticked && thought.ends(tag).is_some() && after(tag).is_none() && !window.last => {
                    Lexed::Partial
                }
                lexed => lexed,
            };
            match lexed {
                Lexed::Tag(tag) => {
                    if let Some(len) = ends(tag) {
                        self.end_thought(window.between(said, at), (at, len), out);
                        return Step::To(at + len);
                    }
                    if !tag.close && !thought.names(tag.name) {
                        self.past.mention("inside a thought", tag.name, self.offset + at, tag.len);
                        say(window.between(said, at), out);
                        said = at;
                        self.past.tell(out);
                    }
                    at += tag.len;
                }
                Lexed::Partial => {
                    say(window.between(said, at), out);
                    self.prose.saw(before.unwrap_or_default());
                    return Step::Wait(at);
                }
                Lexed::No => at += 1,
            }
        }
    }

    fn end_thought(&mut self, rest: &str, (at, len): (usize, usize), out: &mut dyn Sink) {
        say(rest, out);
        self.past.mark(MarkRole::Thought, self.offset + at, len, "the thought ends");
        self.past.tell(out);
        self.state = State::Gap;
    }

    /// A call in special tokens at `at`, which no fence and no quotation hides here.
    fn special(
        &mut self,
        window: Window<'_>,
        (said, at): (usize, usize),
        thought: Thought,
        out: &mut dyn Sink,
    ) -> Option<Step> {
        let rest = window.from(at);
        if thought.end == End::Harmony {
            return None;
        }
        let (special, waits) = match self.vocabulary.markers.spot_special(rest, window.last) {
            Spotted::None => self.special_tag(rest, (at, thought.section), window.last),
            Spotted::Partial => (None, true),
            Spotted::Marker(text) => (self.special_marker(text, at), false),
        };
        if special.is_none() && !waits {
            return None;
        }
        say(window.between(said, at), out);
        let Some((opening, len)) = special else {
            self.prose.saw(last_char(window.between(said, at)).unwrap_or_default());
            return Some(Step::Wait(at));
        };
        // What stood before the markup says nothing of what stands behind it.
        self.prose.saw(">");
        self.inside = Some(Box::new(thought));
        let Some(opening) = opening else {
            self.wrapped = None;
            let section = self.vocabulary.opens_section(window.between(at, at + len));
            self.state = State::Thought(Box::new(Thought { section, ..thought }));
            self.inside = None;
            return Some(Step::To(at + len));
        };
        self.held.clear();
        self.held.push_str(window.between(at, at + len));
        self.state = State::Opening(Box::new(opening));
        Some(Step::To(at + len))
    }
}

/// Where a tag may begin.
fn first_tag(hay: &[u8], marked: Option<u8>) -> Option<usize> {
    match marked {
        Some(byte) => memchr::memchr2(b'<', byte, hay),
        None => find(b'<', hay),
    }
}

/// Emits a piece of a thought.
pub(super) fn say(text: &str, out: &mut dyn Sink) {
    if !text.is_empty() {
        out.event(Event::Thought { text });
    }
}

/// The last character, as text.
fn last_char(text: &str) -> Option<&str> {
    text.char_indices().next_back().and_then(|(at, _)| text.get(at..))
}
