//! Faults: what was wrong with what a model wrote, where, and what would be right.
//!
//! A fault is data. Parsers note a byte span, which costs nothing on the hot path; line, column and the caret are worked
//! out from the source text when somebody wants to read them ([`Fault::position_in`], [`Fault::render_diagnostic`]).

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthStr;

/// Bytes `start..end` of a source text. Written as `[start, end]` in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[usize; 2]", into = "[usize; 2]")]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one; never below `start`.
    pub end: usize,
}

/// What kind of mistake it is. The snake-case name is part of the public contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// The call was opened and never closed.
    CutCall,
    /// A closing tag is missing or wrong.
    WrongClose,
    /// A tag lacks its `name` attribute.
    MissingName,
    /// A tag carries something that it must not (attributes, spaces, capitals, a self-closing slash).
    MalformedTag,
    /// A tag that should hold arguments closes itself (`<read_file/>`).
    SelfClosing,
    /// A placeholder of the instructions was left in (`TOOL_NAME`, `PARAM_VALUE`).
    Placeholder,
    /// No tool has this name.
    UnknownTool,
    /// The tool has no such argument.
    UnknownArgument,
    /// A required argument is missing.
    MissingArgument,
    /// An argument is given twice, or could be read in two ways.
    DoubledArgument,
    /// A value has the wrong type.
    WrongType,
    /// A value breaks another rule of the schema.
    InvalidValue,
    /// Arguments are no valid JSON.
    MalformedJson,
    /// A raw control character, such as a line feed, stands in a string that wants it escaped. A warning of the parsers, which
    /// read it as it stands; the gates make a repair of it, or an error.
    ControlCharacter,
    /// A comma stands before a closing bracket. A warning of the parsers, like `control_character`.
    TrailingComma,
    /// JSON strings stand in single quotes. A warning of the parsers, like `control_character`.
    SingleQuotes,
    /// A closing bracket too many stands behind a call that is whole. A warning of the parsers, like `control_character`.
    ExtraBracket,
    /// The arguments stand as JSON where each belongs into a tag of its own.
    JsonInTag,
    /// The arguments stand in tags where JSON belongs.
    TagInJson,
    /// Entities (`&amp;`) stand where raw text is read as it stands; a warning, never a change.
    Entities,
    /// Something stands between the tags of a call that belongs to no argument.
    StrayText,
    /// The wrapper around the calls is missing; they are understood all the same.
    MissingWrapper,
    /// A code fence stands around the call, so that it is only shown.
    FencedCall,
    /// Markup of a dialect that is not listened for.
    OtherDialect,
    /// More calls than the message may hold.
    ExtraCall,
    /// Words stand behind the last call; they were written before its result could be known.
    TextAfterCall,
    /// Markup of a call stands in a place where it is only mentioned (a thought that was never closed, say).
    Mentioned,
    /// Bytes that are no UTF-8, replaced by U+FFFD.
    InvalidUtf8,
    /// The provider reported an error inside the stream, or broke its own format.
    Provider,
    /// A limit of Sabir's was reached.
    Limit,
}

impl FaultKind {
    /// The name used in JSON and diagnostics.
    pub fn name(self) -> &'static str {
        match self {
            Self::CutCall => "cut_call",
            Self::WrongClose => "wrong_close",
            Self::MissingName => "missing_name",
            Self::MalformedTag => "malformed_tag",
            Self::SelfClosing => "self_closing",
            Self::Placeholder => "placeholder",
            Self::UnknownTool => "unknown_tool",
            Self::UnknownArgument => "unknown_argument",
            Self::MissingArgument => "missing_argument",
            Self::DoubledArgument => "doubled_argument",
            Self::WrongType => "wrong_type",
            Self::InvalidValue => "invalid_value",
            Self::MalformedJson => "malformed_json",
            Self::ControlCharacter => "control_character",
            Self::TrailingComma => "trailing_comma",
            Self::SingleQuotes => "single_quotes",
            Self::ExtraBracket => "extra_bracket",
            Self::JsonInTag => "json_in_tag",
            Self::TagInJson => "tag_in_json",
            Self::Entities => "entities",
            Self::StrayText => "stray_text",
            Self::MissingWrapper => "missing_wrapper",
            Self::FencedCall => "fenced_call",
            Self::OtherDialect => "other_dialect",
            Self::ExtraCall => "extra_call",
            Self::TextAfterCall => "text_after_call",
            Self::Mentioned => "mentioned",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::Provider => "provider",
            Self::Limit => "limit",
        }
    }
}

/// How much a fault weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The call that it concerns must not run.
    Error,
    /// Worth telling; nothing is stopped.
    Warning,
}

/// The text that a fault's span counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanOrigin {
    /// The assistant text of the response.
    Text,
    /// The argument text of the native call that the fault names.
    Arguments,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// How much it weighs.
    pub severity: Severity,
    /// The call that it concerns, by index; `None` where no call could be made out.
    pub call: Option<u32>,
    /// The argument that it concerns.
    pub argument: Option<String>,
    /// Where.
    pub span: Span,
    /// What `span` counts in.
    pub origin: SpanOrigin,
    /// One sentence: what is wrong, what was expected, what was found.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A position that a person can find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcePosition<'a> {
    /// Counted from 1; LF, CRLF and CR end a line.
    pub line: usize,
    /// Counted from 1, in characters (Unicode scalar values).
    pub column: usize,
    /// The line itself, without its end.
    pub text: &'a str,
}

impl Span {
    /// Bytes `start..end`; an `end` before `start` counts as empty.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }
}

impl From<[usize; 2]> for Span {
    fn from([start, end]: [usize; 2]) -> Self {
        Self::new(start, end)
    }
}

impl From<Span> for [usize; 2] {
    fn from(span: Span) -> Self {
        [span.start, span.end]
    }
}

impl Fault {
    /// A fault in the assistant text that stops whatever call it names.
    pub fn error(kind: FaultKind, span: Span, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity: Severity::Error,
            call: None,
            argument: None,
            span,
            origin: SpanOrigin::Text,
            message: message.into(),
            hint: None,
        }
    }

    /// A fault that stops nothing.
    pub fn warning(kind: FaultKind, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(kind, span, message) }
    }

    /// Names the call.
    #[must_use]
    pub fn in_call(mut self, index: u32) -> Self {
        self.call = Some(index);
        self
    }

    /// Names the argument.
    #[must_use]
    pub fn in_argument(mut self, name: impl Into<String>) -> Self {
        self.argument = Some(name.into());
        self
    }

    /// Counts the span in the call's argument text.
    #[must_use]
    pub fn in_arguments_text(mut self) -> Self {
        self.origin = SpanOrigin::Arguments;
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Line and column of the fault's first byte in `source`. A span past the end points behind the last character.
    pub fn position_in<'a>(&self, source: &'a str) -> SourcePosition<'a> {
        let mut at = self.span.start.min(source.len());
        while !source.is_char_boundary(at) {
            at -= 1;
        }
        let (before, after) = source.split_at(at);
        let is_end = |c: char| c == '\n' || c == '\r';
        let count = |byte: u8| memchr::memchr_iter(byte, before.as_bytes()).count();
        // Nearly no text has a CR, and looking for pairs is slow.
        let returns = match count(b'\r') {
            0 => 0,
            returns => returns - before.matches("\r\n").count(),
        };
        let ends = count(b'\n') + returns;
        // A position between CR and LF still belongs to the line that they end.
        let split_pair = before.ends_with('\r') && after.starts_with('\n');
        let head = if split_pair { before.trim_end_matches('\r') } else { before };
        let head = head.rsplit(is_end).next().unwrap_or_default();
        let tail = if split_pair { "" } else { after.split(is_end).next().unwrap_or_default() };
        let start = at - head.len() - usize::from(split_pair);
        let text = source.get(start..start + head.len() + tail.len()).unwrap_or_default();
        SourcePosition { line: ends + 1 - usize::from(split_pair), column: head.chars().count() + 1, text }
    }

    /// The fault as a compiler would print it: message, line, caret, hint.
    ///
    /// The caret stands under the right cell of a terminal, whatever stands before it: wide characters take two cells,
    /// combining ones none, tabs are kept in both lines. The column still counts characters. A line of more than 120 cells is
    /// shown around the caret, with `…` where it was cut. What a terminal would obey, or draw as it likes, is shown as
    /// U+FFFD: control characters, direction marks, joiners, invisible letters. Variation selectors are left out.
    pub fn render_diagnostic(&self, source: &str) -> String {
        let place = self.position_in(source);
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let gutter = place.line.to_string().len();
        let AnnotatedLine { line, marks } = AnnotatedLine::new(&place, self.span.end - self.span.start);
        let mut text = format!(
            "{word}[{}]: {}\n{:gutter$}--> line {}, column {}\n{:gutter$} |\n{} | {line}\n{:gutter$} | {marks}\n",
            self.kind.name(),
            self.message,
            "",
            place.line,
            place.column,
            "",
            place.line,
            "",
        );
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{:gutter$} = hint: {hint}\n", ""));
        }
        text
    }
}

/// A line as a terminal shows it, and the line of marks below.
struct AnnotatedLine {
    line: String,
    marks: String,
}

impl AnnotatedLine {
    /// The cells that a line may take.
    const CELLS: usize = 120;
    /// Those of them that may stand before the marks.
    const BEFORE: usize = 90;

    /// Marks `length` bytes of the line from the place on, and at least one cell.
    fn new(place: &SourcePosition<'_>, length: usize) -> Self {
        let at = place.text.char_indices().nth(place.column - 1).map_or(place.text.len(), |(at, _)| at);
        let (head, tail) = place.text.split_at_checked(at).unwrap_or((place.text, ""));
        let from = head.len() - bytes_within(head.chars().rev(), Self::BEFORE);
        let before = head.get(from..).unwrap_or_default();
        // A mark of its own would stand over the cell of a letter that was cut off.
        let before = if from > 0 { before.trim_start_matches(is_zero_width) } else { before };
        let room = Self::CELLS.saturating_sub(cell_width(&visible_text(before)));
        let until = bytes_within(tail.chars(), room);
        let marked = tail.get(..tail.floor_char_boundary(length.min(until))).unwrap_or_default();
        let cut = |cut: bool| if cut { "…" } else { "" };
        let line = format!(
            "{}{}{}{}",
            cut(from > 0),
            visible_text(before),
            visible_text(tail.get(..until).unwrap_or_default()),
            cut(until < tail.len())
        );
        let mut marks = " ".repeat(usize::from(from > 0));
        // A combining character has no cell of its own: what it stands on is marked.
        let (before, marked) = match marked.chars().next() {
            Some(first) if is_zero_width(first) => {
                let base = before.trim_end_matches(is_zero_width).char_indices().next_back().map_or(0, |(at, _)| at);
                (before.get(..base).unwrap_or_default(), "")
            }
            _ => (before, marked),
        };
        // Tabs go on where the terminal says, so they are repeated, never counted.
        let text = marked.trim_start_matches('\t');
        let tabs = if text.is_empty() { 0 } else { marked.len() - text.len() };
        push_cells(&mut marks, before, " ");
        marks.push_str(&"\t".repeat(tabs));
        let text = text.trim_end_matches('\t');
        if cell_width(&visible_text(text)) == 0 {
            marks.push('^');
        } else {
            push_cells(&mut marks, text, "^");
        }
        Self { line, marks }
    }
}

/// How many bytes of the characters fit into `room` cells. Characters without a cell are bounded too, at twice as many.
fn bytes_within(chars: impl Iterator<Item = char>, room: usize) -> usize {
    let (mut used, mut bytes) = (0, 0);
    for (count, c) in chars.enumerate() {
        used += cell_width(&visible_text(c.encode_utf8(&mut [0; 4])));
        if used > room || count >= 2 * room {
            break;
        }
        bytes += c.len_utf8();
    }
    bytes
}

/// As many of `mark` as `text` takes cells; its tabs are kept.
fn push_cells(marks: &mut String, text: &str, mark: &str) {
    for (index, run) in text.split('\t').enumerate() {
        if index > 0 {
            marks.push('\t');
        }
        marks.push_str(&mark.repeat(cell_width(&visible_text(run))));
    }
}

/// The cells that a terminal gives a text without tabs.
fn cell_width(text: &str) -> usize {
    text.width()
}

fn is_zero_width(c: char) -> bool {
    // What is shown as U+FFFD has a cell, whatever it had before.
    cell_width(&visible_text(c.encode_utf8(&mut [0; 4]))) == 0
}

/// The text as it is shown. Everything whose look depends on the terminal, or has none, becomes U+FFFD.
fn visible_text(text: &str) -> String {
    let show = |c: char| match c {
        '\t' => Some(c),
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => None,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
            Some(char::REPLACEMENT_CHARACTER)
        }
        '\u{e0000}'..='\u{e007f}' => Some(char::REPLACEMENT_CHARACTER),
        _ if c.is_control() => Some(char::REPLACEMENT_CHARACTER),
        _ => Some(c),
    };
    text.chars().filter_map(show).collect()
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{Fault, FaultKind, Span};

    /// Marks the bytes of `source` between `«` and `»` and returns column, line and marks.
    fn marked(source: &str) -> (usize, String, String) {
        let (before, rest) = source.split_once('«').unwrap();
        let (inside, after) = rest.split_once('»').unwrap();
        let span = Span::new(before.len(), before.len() + inside.len());
        let fault = Fault::error(FaultKind::WrongType, span, "m");
        let text = format!("{before}{inside}{after}");
        let shown = fault.render_diagnostic(&text);
        let mut lines = shown.lines().skip(3);
        let bare = |line: Option<&str>| line.unwrap().split_once(" | ").unwrap().1.to_owned();
        (fault.position_in(&text).column, bare(lines.next()), bare(lines.next()))
    }

    #[test]
    fn the_caret_stands_under_its_cell() {
        let rows = [
            // (source, column in characters, line, marks)
            ("a «bc» d", 3, "a bc d", "  ^^"),
            ("x\n\ta\t«b»\n", 4, "\ta\tb", "\t \t^"),
            ("«\tb»", 1, "\tb", "\t^"),
            ("a«\t»b", 2, "a\tb", " ^"),
            ("«a\tb\t»c", 1, "a\tb\tc", "^\t^"),
            ("漢字「«値»」", 4, "漢字「値」", "      ^^"),
            ("e\u{301}te\u{301} «x»", 7, "e\u{301}te\u{301} x", "    ^"),
            ("ae«\u{301}»b", 3, "ae\u{301}b", " ^"),
            ("«\u{301}»b", 1, "\u{301}b", "^"),
            ("🌍🌍«x»", 3, "🌍🌍x", "    ^"),
            // Terminals join such sequences or do not; shown apart, they take the same cells in all of them.
            ("👨\u{200d}👩«x»", 4, "👨\u{fffd}👩x", "     ^"),
            ("👍\u{1f3fd}«x»", 3, "👍\u{1f3fd}x", "  ^"),
            ("🇩🇪«x»", 3, "🇩🇪x", "  ^"),
            ("❤\u{fe0f}«x»", 3, "❤x", " ^"),
            ("\u{1b}[31m\u{202e}«x»", 7, "\u{fffd}[31m\u{fffd}x", "      ^"),
            ("\u{ad5c}\u{3000}«\u{ff21}»", 3, "\u{ad5c}\u{3000}\u{ff21}", "    ^^"),
            ("a\r\n漢«b»\r\nc", 2, "漢b", "  ^"),
            ("ab«\r\n»c", 3, "ab", "  ^"),
            ("ab«»", 3, "ab", "  ^"),
            ("ab\n«»", 1, "", "^"),
            ("a«bc\nd»e", 2, "abc", " ^^"),
        ];
        for (source, column, line, marks) in rows {
            assert_eq!(marked(source), (column, line.to_owned(), marks.to_owned()), "{source:?}");
        }
    }

    #[test]
    fn lines_end_in_three_ways() {
        let rows = [
            ("«a»", (1, 1, "a")),
            ("a\nb\r\nc\rd«e»", (4, 2, "de")),
            ("a\r\n\r\n«b»", (3, 1, "b")),
            ("a\n\r«b»", (3, 1, "b")),
            ("é\r«\n»b", (1, 2, "é")),
            ("a\n«»", (2, 1, "")),
        ];
        for (source, expected) in rows {
            let (before, rest) = source.split_once('«').unwrap();
            let text = format!("{before}{}", rest.replace('»', ""));
            let fault = Fault::error(FaultKind::WrongType, Span::new(before.len(), before.len()), "m");
            let place = fault.position_in(&text);
            assert_eq!((place.line, place.column, place.text), expected, "{source:?}");
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_caret() {
        for filler in ["a", "漢", "e\u{301}", "🌍", "\u{1b}", "👍\u{1f3fd}"] {
            for (before, after) in [(0, 1000), (1000, 0), (1000, 1000), (20, 5)] {
                let source = format!("{}«!»{}", filler.repeat(before), filler.repeat(after));
                let (_, line, marks) = marked(&source);
                let cell = line.split('!').next().unwrap().width();
                assert_eq!(marks, format!("{}^", " ".repeat(cell)), "{filler:?} {before} {after}");
                assert!(line.width() <= 122, "{} cells: {line}", line.width());
                assert_eq!(line.starts_with('…'), before == 1000, "{line}");
                assert_eq!(line.ends_with('…'), after == 1000, "{line}");
            }
        }
        let (_, line, marks) = marked(&format!("x«{}»", "y".repeat(500)));
        assert_eq!((line.width(), marks.as_str()), (121, format!(" {}", "^".repeat(119)).as_str()));
        let (_, line, _) = marked(&format!("x«{}»", "\u{301}".repeat(100_000)));
        assert!(line.len() < 2_000);
    }

    #[test]
    fn a_span_that_fits_no_text_is_shown_at_its_end() {
        for span in [Span::new(3, 9), Span::new(9, 9), Span::new(1, 9)] {
            let shown = Fault::error(FaultKind::CutCall, span, "m").render_diagnostic("aé");
            assert!(shown.contains("1 | aé\n  | ") && shown.contains('^'), "{shown}");
        }
        // Inside a character: the character is marked.
        let shown = Fault::error(FaultKind::CutCall, Span::new(2, 3), "m").render_diagnostic("aé");
        assert!(shown.ends_with("  |  ^\n"), "{shown}");
    }
}
