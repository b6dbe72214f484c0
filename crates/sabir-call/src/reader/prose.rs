//! Tracks Markdown-like prose to find the places where markup only mentions a call.
//!
//! Supported: fences of any length (`` ``` `` and `~~~`), inline code (a run of backticks, up to an equal run or the end of the paragraph), indented code after a blank line, block quotes, HTML comments, `<code>` (up to its close or the end of the paragraph), `<pre>` at the start of a line (up to its close), and an opening quotation mark directly before the tag. A quotation that begins with markup of a call continues up to its closing mark or the end of the paragraph.
//!
//! Unsupported: nested list indentation (four spaces after an empty line are code everywhere).
//!
//! Reads one byte at a time with bounded state, so chunk boundaries cannot matter.

use std::sync::LazyLock;

use super::triggers::TriggerTable;
use super::vocabulary::SHOWN;

/// The reason for a mention in a fence.
pub(crate) const IN_FENCE: &str = "in a code fence";

/// The reason for a mention in a quotation.
const IN_QUOTATION: &str = "behind a quotation mark";

/// The bytes at which text that cannot be markup is read one by one.
static TAGS_ONLY: LazyLock<TriggerTable> = LazyLock::new(|| {
    let mut triggers = TriggerTable::default();
    triggers.add_byte(b'<');
    triggers
});

/// The value of [`ProseTracker::quotation`] behind the end of a quotation.
const QUOTATION_ENDED: u8 = 1;

/// The maximum length of a name between two pieces of markup of an inactive dialect, in bytes.
const FOREIGN_NAME_CAP: u32 = 64;

/// The state of the prose at the current position.
#[derive(Debug, Clone)]
pub(crate) struct ProseTracker {
    line: LineState,
    /// The width of the white space at the start of the line, in columns.
    indent: u8,
    /// True if the preceding line was blank, with text before it: a text that begins with an indented line does not begin with code.
    after_blank: bool,
    fence: Option<CodeFence>,
    /// The length of the backtick run that opened inline code; 0 if none is open.
    code: u16,
    /// The length of the current run of backticks or tildes.
    run: u16,
    run_of: u8,
    escaped: bool,
    /// True inside an HTML comment.
    comment: bool,
    /// The index in [`SHOWN`] of the enclosing HTML element.
    shown: Option<u8>,
    /// True if nothing has been read since markup around calls.
    fresh: bool,
    /// True if an odd number of straight quotation marks precedes on this line.
    quote: bool,
    /// The last byte of the mark that opened a quotation of markup; 0 if none is open, and [`QUOTATION_ENDED`] right behind
    /// its closing mark.
    quotation: u8,
    /// The strings of JSON or Python on this line.
    strings: LineStrings,
    /// True if a call or a thought precedes on this line.
    is_resumed: bool,
    /// True in a message that is addressed to the user, in which calls are only shown.
    pub(super) is_addressed_to_user: bool,
    /// The last four bytes, newest last: enough to see a quotation mark and the text before it.
    last: [u8; 4],
    /// The number of bytes read so far; saturates at 4 GiB.
    read: u32,
    /// The value of `read` after the last byte that was not white space.
    solid: u32,
    /// The value of `read` at the last new start.
    resumed: u32,
    /// The value of `read` after the last markup of an inactive dialect in the middle of a sentence.
    foreign_end: u32,
}

/// The part of the line at the current position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// Only white space so far.
    Start,
    /// A run of fence characters that began the line.
    Run,
    /// The info string after the characters that open a fence.
    Info,
    /// The white space after the characters that close a fence.
    Close,
    /// Ordinary text.
    Inside,
    /// A block quote.
    Quote,
    /// Indented code.
    Code,
}

/// The strings of a payload, such as `{"path": "a` or `f(path="a`, on one line. A call that begins inside such a string is part of a value
/// whose own call was not understood. It is one byte, since each reader holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineStrings(u8);

impl LineStrings {
    /// Inside a string in double quotes.
    const DOUBLE: u8 = 1;
    /// Inside a string in single quotes.
    const SINGLE: u8 = 2;
    /// Behind an odd number of backslashes in a string.
    const ESCAPED: u8 = 4;
    /// In a string that begins directly after a bracket or an equals sign. In prose, colons and commas precede quotation marks, too.
    const PAYLOAD: u8 = 8;

    fn is_open(self) -> bool {
        self.0 & (Self::DOUBLE | Self::SINGLE) != 0
    }

    /// Processes a byte; `before` returns the last one before it that is not white space.
    fn push_byte(&mut self, byte: u8, before: impl FnOnce() -> u8) {
        let mark = match byte {
            b'"' => Self::DOUBLE,
            b'\'' => Self::SINGLE,
            _ => 0,
        };
        if self.is_open() {
            let is_escaped = self.0 & Self::ESCAPED != 0;
            self.0 &= !Self::ESCAPED;
            if !is_escaped {
                self.0 &= !mark;
                self.0 |= Self::ESCAPED * u8::from(byte == b'\\');
            }
        } else if mark != 0 {
            let before = before();
            let is_payload = self.0 & Self::PAYLOAD != 0;
            let begins = matches!(before, b'{' | b'[' | b'(' | b'=');
            if begins || is_payload && matches!(before, b':' | b',') {
                self.0 = Self::PAYLOAD | mark;
            }
        }
    }
}

/// An open fence: its character, and the length that its close must at least have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CodeFence {
    mark: u8,
    length: u16,
}

impl Default for ProseTracker {
    fn default() -> Self {
        Self {
            line: LineState::Start,
            indent: 0,
            after_blank: false,
            fence: None,
            code: 0,
            run: 0,
            run_of: 0,
            escaped: false,
            comment: false,
            shown: None,
            fresh: false,
            quote: false,
            quotation: 0,
            strings: LineStrings::default(),
            is_resumed: false,
            is_addressed_to_user: false,
            last: [b'\n'; 4],
            read: 0,
            solid: 0,
            resumed: 0,
            foreign_end: 0,
        }
    }
}

impl ProseTracker {
    /// Returns the reason why markup at this place is only mentioned, or `None` if it is not.
    pub(crate) fn mention_reason(&self) -> Option<&'static str> {
        let indented = self.line == LineState::Start && self.indent >= 4 && self.after_blank;
        // A run that has just ended is not processed yet: if it equals the open run, it closes the
        // code.
        let code = match (self.code, self.run) {
            (code, 0) => code > 0,
            (open, run) => open != run,
        };
        if self.fence.is_some() || self.line == LineState::Info {
            Some(IN_FENCE)
        } else if self.comment {
            Some("in an HTML comment")
        } else if let Some((_, why)) = self.shown.and_then(|at| SHOWN.get(usize::from(at))) {
            Some(why)
        } else if code {
            Some("in inline code")
        } else if indented || self.line == LineState::Code {
            Some("in indented code")
        } else if self.line == LineState::Quote {
            Some("in a block quote")
        } else {
            (self.quotation != 0 || self.is_quoted()).then_some(IN_QUOTATION)
        }
    }

    /// Records that markup of a call is mentioned here. If a quotation mark directly precedes it, the whole quotation is a mention,
    /// including later markup in it. Returns true if a quotation begins.
    pub(crate) fn open_quotation(&mut self) -> bool {
        let begins = self.quotation == 0 && self.mention_reason() == Some(IN_QUOTATION);
        if begins {
            self.quotation = self.previous_byte();
        }
        begins
    }

    /// Closes the quotation of markup if `byte` is the last one of its closing mark. The quotation may hold quotation marks of
    /// its own, so a straight one closes it only directly behind the end of markup.
    fn close_quotation(&mut self, byte: u8) {
        let [_, second, third, _] = self.last;
        let closes = match self.quotation {
            mark @ (b'"' | b'\'') => byte == mark && matches!(third, b'>' | b']' | b'}' | b')'),
            0xab => (third, byte) == (0xc2, 0xbb),
            _ => (second, third) == (0xe2, 0x80) && matches!(byte, 0x98 | 0x99 | 0x9c | 0x9d),
        };
        if closes {
            self.quotation = QUOTATION_ENDED;
        }
    }

    /// Returns true if a mention here depends on the end of the quotation that is open.
    pub(crate) fn is_inside_quotation(&self) -> bool {
        self.quotation != 0 && !self.is_quoted() && self.mention_reason() == Some(IN_QUOTATION)
    }

    /// Returns true, once, behind the closing mark of a quotation of markup.
    pub(crate) fn take_quotation_end(&mut self) -> bool {
        let ends = self.quotation == QUOTATION_ENDED;
        if ends {
            self.quotation = 0;
        }
        ends
    }

    /// Tracks an HTML tag. Returns true if it belongs to an element whose content is only shown.
    pub(crate) fn track_html_tag(&mut self, name: &str, close: bool, first: bool) -> bool {
        let Some(at) = (0_u8..)
            .zip(SHOWN)
            .find(|(_, (shown, _))| *shown == name)
            .map(|(at, _)| at)
        else {
            return false;
        };
        if close {
            self.shown = self.shown.filter(|open| *open != at);
        } else if self.mention_reason().is_none() && (first || name == "code") {
            // `<pre>` in the middle of a line is usually a mention of the tag, and would hide all text after it.
            self.shown = Some(at);
        }
        true
    }

    /// Returns true if the run of characters right before this place would close the open fence,
    /// provided that only the end of the message follows.
    pub(crate) fn ends_fence(&self) -> bool {
        let closes = |fence: CodeFence| fence.mark == self.run_of && self.run >= fence.length;
        self.line == LineState::Run && self.fence.is_some_and(closes)
    }

    /// Returns true if markup around calls ended right before this place.
    pub(crate) fn is_after_wrapper(&self) -> bool {
        self.fresh
    }

    /// Records that markup around calls ends here.
    pub(crate) fn mark_after_wrapper(&mut self) {
        self.fresh = true;
    }

    /// Records that a call begins here.
    pub(crate) fn clear_after_wrapper(&mut self) {
        self.fresh = false;
    }

    /// Returns true if only white space precedes on this line.
    pub(crate) fn at_line_start(&self) -> bool {
        self.line == LineState::Start
    }

    /// Returns true if only white space precedes on this line, or since the last new start.
    pub(crate) fn is_start(&self) -> bool {
        self.at_line_start() || self.blank_since(self.resumed)
    }

    /// Returns the number of bytes read.
    pub(crate) fn bytes_read(&self) -> u32 {
        self.read
    }

    /// Returns true if only white space was read since that position.
    pub(crate) fn blank_since(&self, position: u32) -> bool {
        self.solid <= position
    }

    /// Returns the byte before this place.
    pub(crate) fn previous_byte(&self) -> u8 {
        let [.., last] = self.last;
        last
    }

    /// Returns the last byte before this place that is not white space, or a line feed if more white space
    /// precedes than the tracker remembers.
    pub(crate) fn last_non_whitespace(&self) -> u8 {
        find_last_non_whitespace(self.last)
    }

    /// Returns true if a sentence continues at this place: words and white space precede it on the line, without a mark that ends or
    /// introduces a sentence. After a call on the same line, the words are about that call.
    pub(crate) fn is_in_sentence(&self) -> bool {
        let ends = matches!(
            self.last_non_whitespace(),
            b'.' | b'!' | b'?' | b':' | b'>' | b'\n'
        );
        let is_apart = matches!(self.previous_byte(), b' ' | b'\t' | b'(' | b'[');
        !self.is_start() && !self.is_resumed && is_apart && !ends
    }

    /// Returns true inside a string of JSON or Python that began on this line.
    pub(crate) fn is_in_string(&self) -> bool {
        self.strings.is_open()
    }

    /// Returns true if a sentence continues with markup of an inactive dialect that ends right before this place.
    pub(crate) fn is_after_foreign_markup(&self) -> bool {
        self.foreign_end > 0 && self.blank_since(self.foreign_end)
    }

    /// Returns true if a name without blanks is between such markup and this place, as in a header between special tokens.
    fn is_after_foreign_name(&self) -> bool {
        let is_near = self.read.saturating_sub(self.foreign_end) <= FOREIGN_NAME_CAP;
        self.foreign_end > 0 && is_near && !self.previous_byte().is_ascii_whitespace()
    }

    /// Records markup of an inactive dialect at this place, which has this length.
    pub(crate) fn note_foreign_markup(&mut self, length: usize) {
        if self.is_in_sentence() || self.is_after_foreign_markup() || self.is_after_foreign_name() {
            self.foreign_end = self.read.saturating_add(to_u32(length));
        }
    }

    /// Reads up to the next trigger in `text` or to its end. Returns the number of bytes read.
    pub(crate) fn skip_to_trigger(&mut self, text: &str, triggers: &TriggerTable) -> usize {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.quotation == QUOTATION_ENDED {
                return at;
            }
            if triggers.is_trigger(byte, self.previous_byte(), self.is_start()) {
                return at;
            }
            self.push_byte(byte);
            at += 1;
            if self.may_skip_after(byte) {
                at = self.skip_plain(bytes, at, triggers);
            }
        }
        at
    }

    /// Returns true if nothing but triggers can change anything behind this byte, so that the search can skip ahead.
    fn may_skip_after(&self, byte: u8) -> bool {
        self.line == LineState::Inside
            && !self.is_start()
            && self.run == 0
            && !self.escaped
            && !self.comment
            && self.quotation == 0
            && !matches!(byte, b'!' | b'-')
    }

    /// Reads all of `text`, including any `<`.
    pub(crate) fn read_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            self.push_byte(byte);
            at += 1;
            // An HTML comment may begin here.
            if byte != b'<' && self.may_skip_after(byte) {
                at = self.skip_plain(bytes, at, &TAGS_ONLY);
            }
        }
    }

    /// Records bytes that precede the next place but are not prose.
    pub(crate) fn note_preceding(&mut self, text: &str) {
        for byte in text.bytes() {
            self.remember_byte(byte);
        }
    }

    /// Starts over in the middle of a line, after a call or a thought.
    pub(crate) fn resume_line(&mut self) {
        let Self {
            read,
            solid,
            fresh,
            is_addressed_to_user,
            quotation,
            strings,
            ..
        } = *self;
        let line = LineState::Inside;
        // As if the markup's `>` and nothing else came before.
        let last = *b"   >";
        *self = Self {
            line,
            last,
            read,
            solid,
            fresh,
            is_addressed_to_user,
            quotation,
            strings,
            is_resumed: true,
            resumed: read,
            ..Self::default()
        };
    }

    /// Starts over at the start of a line, for a new message.
    pub(crate) fn begin_message(&mut self) {
        let read = self.read;
        let solid = self.solid;
        *self = Self {
            read,
            solid,
            resumed: read,
            ..Self::default()
        };
    }

    /// Skips ahead inside a line, where only triggers, backticks, backslashes and the line's end
    /// matter.
    fn skip_plain(&mut self, bytes: &[u8], from: usize, triggers: &TriggerTable) -> usize {
        let rest = bytes.get(from..).unwrap_or_default();
        let mut stop = 0;
        let mut has_quote = false;
        loop {
            let (plain, is_quoted) = triggers.count_plain(rest.get(stop..).unwrap_or_default());
            stop += plain;
            has_quote |= is_quoted;
            let Some(&byte) = rest.get(stop) else {
                break;
            };
            // A trigger that begins words depends on the byte before it, which may precede this text.
            let before = stop
                .checked_sub(1)
                .and_then(|at| rest.get(at))
                .copied()
                .unwrap_or(self.previous_byte());
            if triggers.is_prose_byte(byte) || triggers.is_trigger(byte, before, false) {
                break;
            }
            stop += 1;
        }
        let last = self.last;
        // Only the last four bytes can matter later, so a leap over a megabyte costs four steps
        // here.
        for &byte in rest.get(stop.saturating_sub(4)..stop).unwrap_or_default() {
            self.remember_byte(byte);
        }
        let leapt = rest.get(..stop).unwrap_or_default();
        if has_quote {
            let marks = leapt.iter().copied().enumerate();
            for (at, mark) in marks.filter(|(_, byte)| matches!(byte, b'"' | b'\'')) {
                self.quote ^= mark == b'"';
                if at > 0 {
                    self.strings.0 &= !LineStrings::ESCAPED;
                }
                self.strings.push_byte(mark, || {
                    let before = leapt.get(..at).unwrap_or_default();
                    let near = last.iter().chain(before).rev().take(last.len());
                    let is_solid = |byte: &u8| !byte.is_ascii_whitespace();
                    near.copied().find(is_solid).unwrap_or(b'\n')
                });
            }
        }
        if !leapt.is_empty() {
            // A backslash ends a leap, so there is none in it.
            self.strings.0 &= !LineStrings::ESCAPED;
        }
        let solid = leapt.iter().rposition(|byte| !byte.is_ascii_whitespace());
        if let Some(solid) = solid {
            self.solid = self.read.saturating_add(to_u32(solid + 1));
        }
        self.read = self.read.saturating_add(to_u32(stop));
        from + stop
    }

    /// Shifts a byte into the four last ones.
    fn remember_byte(&mut self, byte: u8) {
        self.last = shift_in(self.last, byte);
    }

    /// Reads one byte.
    pub(crate) fn push_byte(&mut self, byte: u8) {
        if byte == b'\n' {
            return self.push_line_feed();
        }
        if self.strings.0 != 0 || matches!(byte, b'-' | b'>' | b'"' | b'\'') {
            self.push_special_byte(byte);
        }
        self.remember_byte(byte);
        if self.quotation != 0 {
            self.close_quotation(byte);
        }
        self.fresh = false;
        self.quote ^= byte == b'"';
        self.read = self.read.saturating_add(1);
        if !byte.is_ascii_whitespace() {
            self.solid = self.read;
        }
        match self.line {
            LineState::Start => self.push_leading_byte(byte),
            LineState::Run if byte == self.run_of => self.run = self.run.saturating_add(1),
            LineState::Run => self.end_fence_run(byte),
            LineState::Info => self.push_info_byte(byte),
            LineState::Close if !byte.is_ascii_whitespace() => self.line = LineState::Inside,
            LineState::Inside if self.fence.is_none() => self.push_inline_byte(byte),
            LineState::Inside | LineState::Quote | LineState::Code | LineState::Close => {}
        }
    }

    /// Tracks HTML comments and strings; what `last` holds precedes the byte.
    fn push_special_byte(&mut self, byte: u8) {
        match (byte, self.last) {
            // `<!--` begins a comment, but in code it is text.
            (b'-', [_, b'<', b'!', b'-']) => self.comment |= self.fence.is_none() && self.code == 0,
            (b'>', [_, _, b'-', b'-']) => self.comment = false,
            _ => {}
        }
        let last = self.last;
        self.strings
            .push_byte(byte, || find_last_non_whitespace(last));
    }

    /// Reads a line feed. It begins no comment, and strings and quotation marks end with their line.
    fn push_line_feed(&mut self) {
        self.remember_byte(b'\n');
        if self.quotation != 0 {
            self.close_quotation(b'\n');
        }
        self.fresh = false;
        self.read = self.read.saturating_add(1);
        self.end_line();
    }

    /// Processes a byte before the first one of a line that is not white space.
    fn push_leading_byte(&mut self, byte: u8) {
        match byte {
            b' ' => self.indent = self.indent.saturating_add(1),
            // A tab counts as four columns.
            b'\t' => self.indent = self.indent.saturating_add(4),
            // Part of the line end, not of the indentation.
            b'\r' => {}
            // Four columns of indentation make indented code instead of a fence (CommonMark).
            b'`' | b'~' if self.indent < 4 => {
                self.line = LineState::Run;
                self.run = 1;
                self.run_of = byte;
            }
            _ if self.fence.is_some() => self.line = LineState::Inside,
            _ if self.indent >= 4 && self.after_blank => self.line = LineState::Code,
            b'>' if self.indent < 4 => self.line = LineState::Quote,
            _ => {
                self.line = LineState::Inside;
                self.push_inline_byte(byte);
            }
        }
    }

    /// Processes the first byte after a run of fence characters at the start of a line.
    fn end_fence_run(&mut self, byte: u8) {
        let run = std::mem::take(&mut self.run);
        let mark = self.run_of;
        match self.fence {
            Some(fence)
                if fence.mark == mark && run >= fence.length && byte.is_ascii_whitespace() =>
            {
                self.line = LineState::Close;
            }
            Some(_) => self.line = LineState::Inside,
            // A fence needs three characters, and the paragraph must not have open inline code.
            None if run >= 3 && self.code == 0 => {
                self.fence = Some(CodeFence { mark, length: run });
                self.line = LineState::Info;
                self.push_info_byte(byte);
            }
            None => {
                self.line = LineState::Inside;
                if mark == b'`' {
                    self.toggle_code(run);
                }
                self.push_inline_byte(byte);
            }
        }
    }

    /// Processes a byte of a fence's info string. A backtick there means that the run opened inline
    /// code, not a fence.
    fn push_info_byte(&mut self, byte: u8) {
        if byte != b'`' {
            return;
        }
        if let Some(CodeFence { mark: b'`', length }) = self.fence.take() {
            self.code = length;
        }
        self.line = LineState::Inside;
        self.push_inline_byte(byte);
    }

    /// Processes a byte of ordinary text: runs of backticks open or close inline code.
    fn push_inline_byte(&mut self, byte: u8) {
        if byte == b'`' && !(self.escaped && self.code == 0) {
            self.run = self.run.saturating_add(1);
            self.run_of = b'`';
            self.escaped = false;
            return;
        }
        let run = std::mem::take(&mut self.run);
        if run > 0 {
            self.toggle_code(run);
        }
        self.escaped = byte == b'\\' && !self.escaped;
    }

    /// Opens inline code, or closes it if the run is as long as the one that opened it (CommonMark
    /// 6.1).
    fn toggle_code(&mut self, run: u16) {
        self.code = match self.code {
            0 => run,
            open if open == run => 0,
            open => open,
        };
    }

    /// Processes a line feed. Fences, inline code and HTML elements continue over it; a blank line
    /// ends the paragraph, and with it inline code and `<code>`.
    fn end_line(&mut self) {
        if self.line == LineState::Run {
            self.end_fence_run(b'\n');
        }
        match self.line {
            LineState::Close => self.fence = None,
            LineState::Inside if self.fence.is_none() => self.push_inline_byte(b'\n'),
            _ => {}
        }
        let blank = self.line == LineState::Start;
        // Indented code continues over the next indented line.
        self.after_blank = (blank && self.solid > 0) || self.line == LineState::Code;
        if blank {
            self.code = 0;
            self.quotation = 0;
            self.shown = self.shown.filter(|at| *at > 0);
        }
        self.line = LineState::Start;
        self.indent = 0;
        self.escaped = false;
        self.is_resumed = false;
        // A stray mark must not turn every later tag into a mention, so each line counts anew.
        self.quote = false;
        self.strings = LineStrings::default();
    }

    /// Returns true if an opening quotation mark comes directly before this place.
    fn is_quoted(&self) -> bool {
        let ends_word = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'!' | b'?' | b')' | b']' | b'}')
        };
        match self.last {
            // The second mark of a pair, directly after a word, closes the quotation.
            [_, _, before, b'"'] => self.quote || !ends_word(before),
            [_, _, _, b'\''] | [_, _, 0xc2, 0xab] => true,
            // Closing quotation marks in UTF-8 open a quotation if white space precedes them
            // (German and Swedish usage).
            [before, 0xe2, 0x80, 0x9d | 0x99] => before.is_ascii_whitespace(),
            // U+2018, U+201A, U+201C and U+201E; above, 0xC2 0xAB is U+00AB.
            [_, 0xe2, 0x80, 0x98 | 0x9a | 0x9c | 0x9e] => true,
            _ => false,
        }
    }
}

/// Shifts a byte into the four last ones.
fn shift_in([_, second, third, fourth]: [u8; 4], byte: u8) -> [u8; 4] {
    [second, third, fourth, byte]
}

/// Returns the last of these bytes that is not white space, or a line feed if there is none.
fn find_last_non_whitespace(last: [u8; 4]) -> u8 {
    let is_solid = |byte: &u8| !byte.is_ascii_whitespace();
    last.into_iter().rev().find(is_solid).unwrap_or(b'\n')
}

/// Converts a length that is no longer than a chunk.
fn to_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::ProseTracker;
    use crate::ToolSet;
    use crate::dialect::DialectSet;
    use crate::reader::vocabulary::Vocabulary;

    /// Returns the letter of a place: `m` for a mention, `s` inside a string, `c` where markup would be a call.
    fn letter(prose: &ProseTracker) -> char {
        match prose.mention_reason() {
            Some(_) => 'm',
            None if prose.is_in_string() => 's',
            None => 'c',
        }
    }

    /// Returns one letter for each `<` of the text.
    fn places(text: &str) -> String {
        let mut prose = ProseTracker::default();
        let mut found = String::new();
        for byte in text.bytes() {
            if byte == b'<' {
                found.push(letter(&prose));
            }
            prose.push_byte(byte);
        }
        let mut skipping = ProseTracker::default();
        let triggers = Vocabulary::new(DialectSet::built_in().all(), &ToolSet::default()).triggers;
        let (mut again, mut at) = (String::new(), 0);
        loop {
            at += skipping.skip_to_trigger(text.get(at..).unwrap_or_default(), &triggers);
            if at == text.len() {
                break;
            }
            again.push(letter(&skipping));
            skipping.push_byte(b'<');
            at += 1;
        }
        assert_eq!(found, again, "leaping changes the result: {text}");
        found
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(places(text), expected, "{text}");
    }

    #[test]
    fn fences() {
        check("<", "c");
        check("```xml\n<\n```\n<", "mc");
        check("````\n<\n```\n<\n````\n<", "mmc");
        check("~~~\n<\n```\n<\n~~~\n<", "mmc");
        check("   ```\n<\n   ```  \n<", "mc");
        check("```\n<\n``` x\n<", "mm");
        check("```a`b``` <\n<", "cc");
    }

    #[test]
    fn inline_code() {
        check("a `<` b <", "mc");
        check("a ``<`<`` b <", "mmc");
        check("a ` b\n<", "m");
        check("a ` b\n\n<", "c");
        check("a \\` b <", "c");
        check("`<` <", "mc");
        check("`a`<", "c");
    }

    #[test]
    fn strings_of_payloads() {
        check("[{\"name\": \"a < b", "s");
        check("f(path=\"a < b\", content=\"c < d\") <", "ssc");
        check("{'a': 'b < c', 'd': 2} <", "sc");
        check("{\"a\": \"b \\\" < \\\\\" <", "sc");
        // A line feed ends each string, since a string of a payload contains no raw line feed.
        check("{\"a\": \"b < c\n<", "sc");
        // Quotation marks of prose.
        check("He said: \"a < b", "c");
        check("it's (see the docs), isn't it? <", "c");
        check("a 5\" screen, \"b <", "c");
        check("{   \"a <", "s");
        check("{          \"a <", "c");
    }

    #[test]
    fn quotes_and_indentation() {
        check("> <\n<", "mc");
        check("a\n\n    <\n    <\n<", "mmc");
        check("a\n    <", "c");
        check("say \"<\" or “<” or «<» or '<", "mmmm");
        check("it's <", "c");
        check("he said \"x\"<", "c");
        check("he said “x”<", "c");
        check("he said \"x\" and \"<", "m");
        check("a\"<", "m");
        check("\"\"<", "m");
        check("”x” ”<", "m");
        check("a <!-- < -- > < --> <", "cmmc");
        check("`<!--` <", "mc");
    }
}
