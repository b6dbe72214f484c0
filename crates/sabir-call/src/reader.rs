//! Reads assistant text in all active dialects and emits events.
//!
//! Supported: prose with calls in it, in one dialect or in all at once; thoughts, in which only
//! calls in special tokens are read; mentions (`reader/prose.rs`), which stay text; a byte order
//! mark at the start, which is dropped.
//!
//! Unsupported: a call in a call; markers inside another region; calls described in prose ("now I
//! call read_file").
//!
//! Chunk boundaries have no meaning, so the reader holds back whatever it cannot decide yet: a
//! partial marker (a tag of at most 256 bytes), an opening or closing marker together with the
//! white space after it, a name before its JSON, and a guess. Everything else is emitted at once.
//! The `window` is the held text plus the new chunk. Each state consumes a prefix of the window and
//! returns the position for the next state, or reports that it needs more text. Only held text is
//! examined again.
//!
//! Grammar as implemented, with `ws` for white space:
//!
//! ```text
//! text    = (prose | thought | section | call | region | guess)*
//! thought = "<thinking>" … "</thinking>"      also "think" and others, tokens of a dialect,
//!                                             and an analysis channel
//! section = a marker around calls or messages no text where calls or other markers are adjacent
//! call    = open ws? (arg ws? …)* close       call.rs
//!                                             cline:  open = "<tool>", close = "</tool>"
//!                                             invoke: open = '<invoke name="f">',
//!                                                     close = "</invoke>"
//! arg     = argopen value argclose            cline:  "<name>" … "</name>"
//!                                             invoke: '<parameter name="k">' … "</parameter>"
//! region  = marker ws? (json | python | gemma | header json)
//!                                             marker_dispatch.rs, payload.rs, python.rs, gemma.rs
//! guess   = json | python                     bare_call_guess.rs: without a marker, at the end
//! ```
//!
//! A tag opens a call only if an argument's tag or the call's own close follows it; a tag followed
//! by words is prose. A value ends at its closing tag only if the call's close or another argument
//! follows (`reader/call.rs`).

mod ambiguity;
mod bare_call_guess;
mod buffer;
mod call;
mod diagnostics;
mod element;
mod gemma;
mod marker_dispatch;
mod markers;
mod outer_call;
mod payload;
mod pending_open;
mod preceding_words;
mod prose;
mod python;
mod region;
mod scan;
mod tag;
mod tag_form;
mod thought;
mod triggers;
mod unknown_marker;
mod unknown_notation;
mod utf8;
mod value;
mod vocabulary;

use std::sync::Arc;

use crate::dialect::DialectSelection;
use crate::event::{Event, EventSink, Truncation};
use crate::fault::{Fault, FaultKind, Span};
use crate::tool::ToolSet;

use bare_call_guess::BareCallGuess;
use buffer::LazyBuffer;
use call::OpenTagCall;
use diagnostics::ReaderDiagnostics;
use marker_dispatch::CallHeader;
use markers::MarkerMatch;
use pending_open::{OpenKind, PendingOpen};
use preceding_words::PrecedingWords;
use prose::ProseTracker;
use region::{AnyRegionParser, RegionParser, RegionProgress, TextView};
use scan::TriggerMatch;
use thought::ThoughtBlock;
use utf8::Utf8Decoder;
use vocabulary::Vocabulary;

/// The maximum white space that is held back after a tag or a call until more text comes, in bytes. Beyond it the reader decides without
/// that text, so that a stream of blanks cannot fill the memory.
const BLANK_CAP: usize = 8 * 1024;
/// The length of the end of that white space that is examined for line ends and indentation, in
/// bytes.
const BLANK_END: usize = 256;

/// The bars of special tokens.
const BARS: [char; 2] = ['|', '｜'];

/// The length up to which held text is allocated exactly, in bytes; longer text may over-allocate.
const SHORT: usize = 64;
/// The longest held end of a text in bytes that is emitted when something else follows. A longer one is probably the beginning of
/// markup, whose rest may follow behind it.
const MAX_SHORT_END: usize = 3;
/// The spare capacity of the hold buffer beyond a chunk that is kept for reuse, in bytes.
const SPARE: usize = 8;

/// A streaming parser of assistant text.
#[derive(Debug)]
pub struct CallReader {
    vocabulary: Arc<Vocabulary>,
    state: ReaderState,
    prose: ProseTracker,
    utf8: Utf8Decoder,
    /// True once text has arrived.
    begun: bool,
    /// The text that the last push left undecided.
    hold: String,
    /// A tag and the white space after it; the text that follows decides about both.
    held: LazyBuffer,
    /// White space after a call.
    blank: LazyBuffer,
    /// The offset of the window's first byte.
    offset: usize,
    diagnostics: ReaderDiagnostics,
    /// The name of the enclosing wrapper.
    wrapped: Option<Box<str>>,
    /// The thought that encloses a call in special tokens.
    inside: Option<Box<ThoughtBlock>>,
    /// The words before the calls that end at this place.
    preceding_words: Option<PrecedingWords>,
    /// True if a last call that lacks only closing markup is read as whole.
    closes_last_call: bool,
}

/// The state of the reader: the construct at the current position.
#[derive(Debug)]
enum ReaderState {
    Prose,
    /// After a call.
    Gap,
    /// Inside a thought.
    Thought(Box<ThoughtBlock>),
    /// After a marker that may open a call.
    Opening(Box<PendingOpen>),
    /// After a marker, in the name before its JSON.
    Heading(Box<CallHeader>),
    /// Inside a call in tags.
    Call(Box<OpenTagCall>),
    /// Inside a region with a parser of its own.
    Region(AnyRegionParser),
    /// Inside text that may turn out to be calls without a marker.
    Guess(Box<BareCallGuess>),
}

/// The text under examination: the held text and the new chunk.
#[derive(Debug, Clone, Copy)]
struct TextWindow<'w> {
    text: &'w str,
    /// True if no more text will arrive.
    last: bool,
}

/// The result of running one state on the window.
enum ReaderStep {
    /// Consumed the text up to this byte.
    To(usize),
    /// Consumed the text up to this byte and needs more.
    Wait(usize),
}

impl CallReader {
    /// Creates a reader for the dialects of `selection` and these tools. Without tools nothing is a
    /// call.
    pub fn new(selection: DialectSelection<'_>, tools: &ToolSet) -> Self {
        Self::at_text_start(Arc::new(Vocabulary::new(selection, tools)))
            .after_prefill(selection.prefill())
    }

    /// Creates a reader at the start of a text, behind the marker with which the prompt may end.
    fn at_text_start(vocabulary: Arc<Vocabulary>) -> Self {
        let marker = vocabulary.markers.prompted_marker();
        let state = marker.map_or(ReaderState::Prose, |marker| {
            let opening = PendingOpen {
                len: 0,
                ..PendingOpen::from_marker(marker, 0, true)
            };
            ReaderState::Opening(Box::new(opening))
        });
        Self::with_vocabulary(vocabulary, state)
    }

    /// Creates a reader for another text, which continues no prompt, with the same dialects and tools. Compiling those costs more
    /// than reading a short text.
    #[must_use]
    pub fn for_next_text(&self) -> Self {
        Self::at_text_start(Arc::clone(&self.vocabulary))
            .with_missing_last_close(self.closes_last_call)
    }

    /// Continues the thought that the end of the prompt opens, if it opens one.
    fn after_prefill(mut self, prefill: &str) -> Self {
        if prefill.is_empty() {
            return self;
        }
        let vocabulary = Arc::clone(&self.vocabulary);
        let mut prompt = Self::with_vocabulary(vocabulary, ReaderState::Prose);
        prompt.push(prefill, &mut |_: Event<'_>| {});
        // Other constructs that the prompt opens are not continued: the prompt is not part of the
        // response, so a call that began there could not be shown.
        if let ReaderState::Thought(thought) = prompt.state {
            self.state = ReaderState::Thought(Box::new(thought.opened_by_prompt()));
            self.diagnostics.note_thought();
        }
        self
    }

    /// Leaves the thought that the prompt opened, if no text has come yet.
    pub(crate) fn drop_prefill(&mut self) {
        let is_prompted =
            matches!(&self.state, ReaderState::Thought(thought) if thought.is_prompted());
        if is_prompted && !self.begun {
            self.state = ReaderState::Prose;
        }
    }

    /// Creates a reader that begins in this state. The vocabulary is shared, since compiling the
    /// dialects costs more than reading a short message.
    fn with_vocabulary(vocabulary: Arc<Vocabulary>, state: ReaderState) -> Self {
        Self {
            vocabulary,
            state,
            prose: ProseTracker::default(),
            utf8: Utf8Decoder::default(),
            begun: false,
            hold: String::new(),
            held: LazyBuffer::default(),
            blank: LazyBuffer::default(),
            offset: 0,
            diagnostics: ReaderDiagnostics::default(),
            wrapped: None,
            inside: None,
            preceding_words: None,
            closes_last_call: false,
        }
    }

    /// Creates a reader for reasoning that a wire delivers separately. All of it is a thought; only
    /// calls in special tokens, which are never written by accident, are read out of it.
    pub fn for_reasoning(selection: DialectSelection<'_>, tools: &ToolSet) -> Self {
        Self::with_vocabulary(
            Arc::new(Vocabulary::new(selection, tools)),
            ReaderState::Thought(Box::new(ThoughtBlock::whole_text())),
        )
    }

    /// The name of the repair of a last call without its closing markup, which is off by default; see
    /// [`Self::with_missing_last_close`].
    pub const MISSING_LAST_CLOSE: &'static str = "missing_last_close";

    /// Makes this reader accept a last call that is complete except for closing markup at the end
    /// of the text. The call then ends with a warning of the kind `cut_call`, from which the checks
    /// make the repair `missing_last_close`.
    ///
    /// Off by default, and meant for texts that the provider reports as complete: only then it is certain that no further argument was
    /// coming. A text that [ends](Self::finish) in any other way than [`Truncation::Ended`] is not affected, nor is a call whose last value
    /// could end elsewhere.
    #[must_use]
    pub fn with_missing_last_close(mut self, is_accepted: bool) -> Self {
        self.closes_last_call = is_accepted;
        self
    }

    /// Cuts a last call without its closing markup after all, because the text may not be complete.
    pub(crate) fn reject_missing_last_close(&mut self) {
        self.closes_last_call = false;
    }

    /// Creates a reader like [`Self::for_reasoning`] with the dialects and tools of this reader, without compiling them again.
    #[must_use]
    pub fn reasoning_reader(&self) -> Self {
        Self::with_vocabulary(
            Arc::clone(&self.vocabulary),
            ReaderState::Thought(Box::new(ThoughtBlock::whole_text())),
        )
    }

    /// Advances the position by bytes of the source that another reader consumed.
    pub(crate) fn skip_bytes(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_add(bytes);
    }

    /// Consumes bytes, split at any position. Invalid UTF-8 becomes U+FFFD, with a warning.
    pub fn push_bytes(&mut self, chunk: &[u8], out: &mut dyn EventSink) {
        // Taken out of `self`, because the closure below borrows the whole reader.
        let mut utf8 = std::mem::take(&mut self.utf8);
        utf8.push(chunk, |text, invalid| {
            if invalid {
                self.report_invalid_utf8(out);
            }
            self.push(text, out);
        });
        self.utf8 = utf8;
    }

    /// Consumes the next piece of text.
    #[inline]
    pub fn push(&mut self, chunk: &str, out: &mut dyn EventSink) {
        // Nearly all of a stream lies inside values, so that case comes first and is inlined.
        let taken = match &mut self.state {
            ReaderState::Call(open) if self.hold.is_empty() => {
                open.take_chunk(chunk, &self.vocabulary, out)
            }
            ReaderState::Region(region) if self.hold.is_empty() => region.take_chunk(chunk, out),
            _ => false,
        };
        if taken {
            self.offset += chunk.len();
        } else {
            self.read_chunk(chunk, out);
        }
    }

    /// Consumes a piece of text with any content. Separate from [`Self::push`] to keep that
    /// function small.
    #[inline(never)]
    fn read_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) {
        let chunk = if self.begun {
            chunk
        } else {
            self.strip_bom(chunk)
        };
        if self.hold.is_empty() {
            let taken = self.run_states(
                TextWindow {
                    text: chunk,
                    last: false,
                },
                out,
            );
            self.hold.push_str(chunk.get(taken..).unwrap_or_default());
        } else {
            let mut text = std::mem::take(&mut self.hold);
            if text.len() <= SHORT {
                text.reserve_exact(chunk.len());
            }
            text.push_str(chunk);
            let state = std::mem::discriminant(&self.state);
            let taken = self.run_states(
                TextWindow {
                    text: &text,
                    last: false,
                },
                out,
            );
            text.drain(..taken);
            // Text held before a value is usually longer than text held inside one, so its memory
            // is released. A buffer of the size of a chunk is kept, since the next chunk in the
            // same state needs it again.
            let same = state == std::mem::discriminant(&self.state)
                && text.capacity() <= chunk.len() + SPARE;
            if !text.is_empty() || same {
                self.hold = text;
            }
        }
    }

    /// Emits the held end of the text or thought, because something follows that is neither, such as a native call: the held text
    /// must not come behind it. Does nothing if the end is long enough to be the beginning of markup.
    pub(crate) fn flush_short_end(&mut self, out: &mut dyn EventSink) {
        let is_between = matches!(self.state, ReaderState::Prose | ReaderState::Thought(_));
        if !is_between || self.hold.is_empty() || self.hold.len() > MAX_SHORT_END {
            return;
        }
        let text = std::mem::take(&mut self.hold);
        let taken = self.run_states(
            TextWindow {
                text: &text,
                last: true,
            },
            out,
        );
        self.hold.push_str(text.get(taken..).unwrap_or_default());
    }

    /// Removes a byte order mark from the first text.
    fn strip_bom<'t>(&mut self, chunk: &'t str) -> &'t str {
        self.begun = !chunk.is_empty();
        let text = chunk.strip_prefix('\u{feff}').unwrap_or(chunk);
        self.offset += chunk.len() - text.len();
        text
    }

    /// Ends the text. A call that is still open is cut with the reason `why`. Nothing may be pushed
    /// afterwards.
    pub fn finish(&mut self, why: Truncation, out: &mut dyn EventSink) {
        if std::mem::take(&mut self.utf8).is_cut() {
            self.report_invalid_utf8(out);
            // The text ended inside a character; the replacement is one character for all of its
            // bytes.
            self.push("\u{fffd}", out);
        }
        let text = std::mem::take(&mut self.hold);
        let is_cut_in_opening = self.is_cut_in_opening(&text);
        let taken = self.run_states(
            TextWindow {
                text: &text,
                last: true,
            },
            out,
        );
        if is_cut_in_opening {
            let end = self.offset + text.len() - taken;
            let message = "the message ends inside markup that opens a call";
            let fault = Fault::error(
                FaultKind::CutCall,
                Span::new(end.saturating_sub(text.len()), end),
                message,
            );
            out.push_event(Event::Fault(
                &fault.with_hint("write the whole call again and close it"),
            ));
        }
        // Text that no state consumed still counts, so that cuts are reported at the end of the
        // text.
        self.offset += text.len() - taken;
        self.report_unclosed_wrapper();
        let rest = text.get(taken..).unwrap_or_default();
        // Even the beginning of other markup shows that the call was not at its end.
        let closes = self.closes_last_call
            && why == Truncation::Ended
            && self.inside.is_none()
            && rest.trim_ascii().is_empty();
        let mut is_cut_in_tags = false;
        let is_in_thought = matches!(self.state, ReaderState::Thought(_));
        let is_cut_in_opening = is_cut_in_opening
            || matches!(
                self.state,
                ReaderState::Opening(_) | ReaderState::Heading(_)
            );
        match std::mem::replace(&mut self.state, ReaderState::Prose) {
            ReaderState::Prose | ReaderState::Gap => {}
            ReaderState::Thought(thought) => {
                self.diagnostics.report_unclosed_thought(*thought, out)
            }
            ReaderState::Opening(opening) => self.cut_opening(*opening, why, rest, out),
            ReaderState::Heading(heading) => self.cut_header(*heading, why, rest, out),
            ReaderState::Call(open) if closes && open.lacks_only_close() => {
                self.close_last_call(*open, out)
            }
            ReaderState::Call(open) => {
                self.cut_call(*open, why, out);
                is_cut_in_tags = true;
            }
            ReaderState::Region(mut region) => {
                if !closes || !region.close_whole_call(out) {
                    region.cut_region(why, self.offset, out);
                }
                self.diagnostics.calls = region.next_index();
                // It is part of a string, which may hold the calls before, too.
                if region.is_escaped() {
                    self.reject_calls_from(0, Span::new(self.offset, self.offset));
                }
            }
            // Only now is it known that nothing follows, which is what makes bare JSON a call.
            ReaderState::Guess(guess) => self.end_guess(*guess, why, out),
        }
        // Nothing follows a thought without an end.
        if !is_in_thought {
            self.resolve_thought_calls(is_cut_in_opening);
        }
        self.reject_run_in_string(self.offset);
        self.reject_calls_without_end(is_cut_in_tags);
        self.diagnostics.report_missed_calls(out);
    }

    /// Returns true if the text ends inside the opening markup of a call: a tag right behind another call, or a marker of several
    /// special tokens. `held` is the text that is not decided.
    fn is_cut_in_opening(&self, held: &str) -> bool {
        let markup = held.trim_ascii_start();
        let follows = |position| self.prose.blank_since(position);
        let is_behind_call = self.diagnostics.last_call_end().is_some_and(follows);
        let is_known = || {
            let found = self.vocabulary.markers.find_marker(markup, false);
            self.prose.is_start() && matches!(found, MarkerMatch::Partial)
        };
        let may_open = match markup.strip_prefix('<') {
            // One special token is whole or not there.
            Some(name) if name.starts_with(BARS) => {
                let has_token = name.trim_start_matches(BARS).contains(BARS);
                has_token && (is_behind_call || is_known())
            }
            Some(name) => is_behind_call && !name.starts_with('/') && !name.is_empty(),
            None => is_behind_call && markup.starts_with(']') && markup.len() > 1,
        };
        let is_between = match &self.state {
            ReaderState::Prose | ReaderState::Gap => true,
            ReaderState::Opening(opening) => matches!(opening.kind, OpenKind::Section),
            _ => false,
        };
        may_open && is_between
    }

    /// Reports a wrapper that was not closed although its calls were.
    fn report_unclosed_wrapper(&mut self) {
        let is_between = matches!(self.state, ReaderState::Prose | ReaderState::Gap);
        let Some(wrapper) = self.wrapped.take().filter(|_| is_between) else {
            return;
        };
        // White space after the last call is not part of the block.
        let blank = match self.state {
            ReaderState::Gap => self.blank.len(),
            _ => 0,
        };
        let close = self.vocabulary.format_wrapper_close(&wrapper);
        self.diagnostics
            .note_unclosed_wrapper(&close, self.offset.saturating_sub(blank));
    }

    /// Runs one state after the other until the window is consumed or one of them needs more text.
    /// Returns the number of consumed bytes.
    fn run_states(&mut self, window: TextWindow<'_>, out: &mut dyn EventSink) -> usize {
        let mut at = 0;
        while at < window.text.len() {
            let step = match &self.state {
                ReaderState::Prose => self.read_prose(window, at, out),
                ReaderState::Gap => self.read_gap(window, at, out),
                ReaderState::Thought(thought) => {
                    // Copied, because the state may be replaced while the thought is read.
                    let thought = **thought;
                    self.read_thought(window, at, thought, out)
                }
                ReaderState::Opening(_) => self.read_opening(window, at, out),
                ReaderState::Heading(_) => self.read_header(window, at, out),
                ReaderState::Call(_) => self.read_call(window, at, out),
                ReaderState::Region(_) => self.read_region(window, at, out),
                ReaderState::Guess(_) => self.read_guess(window, at, out),
            };
            match step {
                ReaderStep::To(next) => at = next,
                ReaderStep::Wait(next) => {
                    at = next;
                    break;
                }
            }
        }
        self.offset += at;
        at
    }

    /// Reads prose up to a marker that may be markup.
    fn read_prose(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let mut at = from;
        let mut emitted_to = from;
        let look = loop {
            // Nearly all prose is skipped here, at a table look-up for each byte.
            // The first byte may belong to a header whose beginning is in the prompt.
            if self.prose.bytes_read() > 0 || !self.vocabulary.markers.may_start_in_header() {
                at += self
                    .prose
                    .skip_to_trigger(window.text_from(at), &self.vocabulary.triggers);
            }
            if self.prose.take_quotation_end() {
                self.emit_prose(window.text_between(emitted_to, at), out);
                emitted_to = at;
                let signs = self.diagnostics.outer_signs();
                let first = signs.map_or(0, |signs| signs.calls_before_quotation);
                self.reject_mentions(first, "in a quotation", self.offset + at, out);
                // What follows the quotation mark need not be a trigger.
                continue;
            }
            let rest = window.text_from(at);
            if rest.is_empty() {
                self.emit_prose(window.text_from(emitted_to), out);
                return ReaderStep::To(window.text.len());
            }
            let look = self.scan_trigger(rest, at, window.last);
            let text = matches!(look, TriggerMatch::Text);
            // A note is a fault about this position, so the prose before it must be emitted first.
            if !text || self.diagnostics.has_notes() {
                self.emit_prose(window.text_between(emitted_to, at), out);
                emitted_to = at;
            }
            self.diagnostics.emit_notes(out);
            if !text {
                break look;
            }
            // One character only: the next trigger may be right behind this one, as in `<<tool>`.
            at += match rest.as_bytes().first() {
                Some(byte) if byte.is_ascii() => {
                    self.prose.push_byte(*byte);
                    1
                }
                _ => {
                    let length = rest.chars().next().map_or(0, char::len_utf8);
                    self.prose.read_text(window.text_between(at, at + length));
                    length
                }
            };
        };
        let (state, len) = match look {
            TriggerMatch::Text | TriggerMatch::Wait => return ReaderStep::Wait(at),
            TriggerMatch::Malformed(opening, fault, len) => {
                self.malformed_call(&opening, *fault, out);
                return ReaderStep::To(at + len);
            }
            TriggerMatch::Skip(len) => {
                self.blank.clear();
                self.prose.mark_after_wrapper();
                (ReaderState::Gap, len)
            }
            TriggerMatch::Frame(len) => {
                self.begin_message();
                (ReaderState::Prose, len)
            }
            TriggerMatch::Thought(thought, len) => {
                self.diagnostics.note_thought();
                (ReaderState::Thought(Box::new(thought)), len)
            }
            TriggerMatch::Open(opening, len) => {
                self.note_preceding_words(&opening);
                self.held.clear();
                self.held.push_str(window.text_between(at, at + len));
                (ReaderState::Opening(Box::new(opening)), len)
            }
            // Nothing is consumed: the guess reads its own first bracket.
            TriggerMatch::Guess(guess) => (ReaderState::Guess(Box::new(guess)), 0),
        };
        self.state = state;
        ReaderStep::To(at + len)
    }

    /// Continues a region.
    fn read_region(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let ReaderState::Region(region) = &mut self.state else {
            return ReaderStep::To(from);
        };
        let view = TextView {
            text: window.text_from(from),
            offset: self.offset + from,
            last: window.last,
        };
        match region.parse_view(view, out) {
            RegionProgress::More(taken) => ReaderStep::Wait(from + taken),
            RegionProgress::Over(taken) => {
                // The region numbered its calls itself, since a list may hold many.
                self.diagnostics.calls = region.next_index();
                let end = view.offset + taken;
                let is_escaped = region.is_escaped();
                if region.was_skipped() {
                    let calls = self.diagnostics.calls;
                    let close = region.close_marker();
                    let read = view.text.get(..taken).unwrap_or_default();
                    let is_closed =
                        !close.is_empty() && read.trim_ascii_end().ends_with(close.trim());
                    let signs = self.diagnostics.outer_signs_mut();
                    signs.note_rejected(calls);
                    if !is_closed {
                        signs.note_unterminated_call(calls, Span::new(end, end));
                    }
                }
                if is_escaped {
                    self.reject_calls_from(0, Span::new(end, end));
                }
                self.state = self.state_after_call();
                ReaderStep::To(from + taken)
            }
        }
    }

    /// Begins a message, whose first line counts as the start of a line whatever precedes it.
    fn begin_message(&mut self) {
        self.blank.clear();
        self.prose.begin_message();
    }

    /// Returns the state after a call: the enclosing thought, or the gap between calls.
    fn state_after_call(&mut self) -> ReaderState {
        self.diagnostics.note_call_end(self.prose.bytes_read());
        self.resolve_thought_calls(false);
        self.inside
            .take()
            .map_or(ReaderState::Gap, ReaderState::Thought)
    }

    /// Reads white space after a call, which is not text if another call or nothing follows.
    fn read_gap(
        &mut self,
        window: TextWindow<'_>,
        from: usize,
        out: &mut dyn EventSink,
    ) -> ReaderStep {
        let taken = take_whitespace(window.text_from(from), &mut self.blank);
        let at = from + taken;
        let rest = window.text_from(at);
        if rest.is_empty() {
            return ReaderStep::To(at);
        }
        let blank = std::mem::take(&mut self.blank);
        let is_decided =
            self.reject_mentioned_calls(rest, &blank, window.last, self.offset + at, out);
        self.blank = blank;
        if !is_decided {
            return ReaderStep::Wait(at);
        }
        self.state = ReaderState::Prose;
        self.prose.resume_line();
        // The end of the white space determines the line state. All of it may already have been
        // read after another thought.
        let end = self.blank.len().saturating_sub(BLANK_END);
        self.prose
            .read_text(self.blank.get(end..).unwrap_or_default());
        ReaderStep::To(at)
    }

    /// Emits prose, preceded by white space that turned out to belong to it.
    fn emit_prose(&mut self, text: &str, out: &mut dyn EventSink) {
        if text.is_empty() {
            return;
        }
        self.preceding_words = None;
        if !self.blank.is_empty() {
            out.push_event(Event::Text { text: &self.blank });
            self.blank.clear();
        }
        out.push_event(Event::Text { text });
    }

    fn report_invalid_utf8(&self, out: &mut dyn EventSink) {
        let at = self.offset + self.hold.len();
        let message = "bytes that are not UTF-8 were replaced by U+FFFD";
        out.push_event(Event::Fault(&Fault::warning(
            FaultKind::InvalidUtf8,
            Span::new(at, at + 3),
            message,
        )));
    }
}

impl<'w> TextWindow<'w> {
    fn text_from(self, at: usize) -> &'w str {
        self.text.get(at..).unwrap_or_default()
    }

    fn text_between(self, from: usize, to: usize) -> &'w str {
        self.text.get(from..to).unwrap_or_default()
    }
}

/// Moves white space from the start of `rest` to `held`, up to [`BLANK_CAP`] bytes in all. Returns
/// the number of bytes moved.
fn take_whitespace(rest: &str, held: &mut LazyBuffer) -> usize {
    let room = BLANK_CAP.saturating_sub(held.len());
    let taken = rest
        .bytes()
        .take(room)
        .take_while(u8::is_ascii_whitespace)
        .count();
    held.push_str(rest.get(..taken).unwrap_or_default());
    taken
}
