//! Describes mistakes in what a model wrote: the kind, the position, and the correction.
//!
//! A fault is data. Parsers record only a byte span, which costs nothing on the hot path. Line,
//! column and caret are computed from the source text when a fault is displayed
//! ([`Fault::position_in`], [`Fault::render_diagnostic`]).

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthStr;

/// A range of bytes `start..end` in a source text. Serialized as `[start, end]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[usize; 2]", into = "[usize; 2]")]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset just past the last byte; never below `start`.
    pub end: usize,
}

/// The kind of a mistake. The snake-case name is part of the public contract.
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
    /// A tag has something that it must not have (attributes, spaces, capitals, a self-closing
    /// slash).
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
    /// An argument is given twice, or its text can be read in two ways.
    DoubledArgument,
    /// A value has the wrong type.
    WrongType,
    /// A value breaks another rule of the schema.
    InvalidValue,
    /// Arguments are not valid JSON.
    MalformedJson,
    /// A string holds a raw control character, such as a line feed, that JSON requires to be
    /// escaped. Parsers emit it as a warning and keep the character; the checks decide whether to
    /// repair or reject the call.
    ControlCharacter,
    /// A comma precedes a closing bracket. A parser warning, like `control_character`.
    TrailingComma,
    /// JSON strings are in single quotes. A parser warning, like `control_character`.
    SingleQuotes,
    /// A complete call is followed by one closing bracket too many. A parser warning, like
    /// `control_character`.
    ExtraBracket,
    /// The arguments are one JSON text, but the dialect needs a tag for each argument.
    JsonInTag,
    /// The arguments are in tags, but the dialect needs JSON.
    TagInJson,
    /// A raw value contains entities (`&amp;`), which are not decoded. A warning; the value is
    /// never changed.
    Entities,
    /// A call contains text between its tags that belongs to no argument.
    StrayText,
    /// A wrapper around calls holds none.
    NoCall,
    /// The wrapper around the calls is missing; the calls are understood anyway.
    MissingWrapper,
    /// The call is inside a code fence and therefore only shown.
    FencedCall,
    /// Markup of a dialect that the reader was not asked to read.
    OtherDialect,
    /// The message holds more calls than it may.
    ExtraCall,
    /// The last call is followed by text, written before its result could be known.
    TextAfterCall,
    /// Markup of a call in a position where it is only mentioned, such as an unclosed thought.
    Mentioned,
    /// Bytes that are not UTF-8, replaced by U+FFFD.
    InvalidUtf8,
    /// The provider reported an error inside the stream, or broke its own format.
    Provider,
    /// A limit of Sabir was reached.
    Limit,
}

impl FaultKind {
    /// Returns the name used in JSON and diagnostics.
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
            Self::NoCall => "no_call",
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

/// The effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The call must not run.
    Error,
    /// Nothing is stopped.
    Warning,
}

/// The text in which a fault's span counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanOrigin {
    /// The assistant text of the response.
    Text,
    /// The argument text of the native call that the fault names.
    Arguments,
}

/// One mistake in a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind of mistake.
    pub kind: FaultKind,
    /// The effect on the call.
    pub severity: Severity,
    /// The index of the affected call; `None` where no call could be identified.
    pub call: Option<u32>,
    /// The affected argument, if one is known.
    pub argument: Option<String>,
    /// The position of the mistake, in bytes.
    pub span: Span,
    /// The text in which `span` counts.
    pub origin: SpanOrigin,
    /// One sentence: the mistake, the expectation, and the text found instead.
    pub message: String,
    /// An instruction for correcting it.
    pub hint: Option<String>,
}

/// A position as line and column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcePosition<'a> {
    /// The line number, counted from 1; LF, CRLF and CR each end a line.
    pub line: usize,
    /// The column, counted from 1 in characters (Unicode scalar values).
    pub column: usize,
    /// The line itself, without its line ending.
    pub text: &'a str,
}

impl Span {
    /// Creates the span `start..end`; an `end` before `start` counts as empty.
    pub fn new(start: usize, end: usize) -> Self {
        Self {
            start,
            end: end.max(start),
        }
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
    /// Creates a fault in the assistant text that stops the call it names.
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

    /// Creates a fault that stops nothing.
    pub fn warning(kind: FaultKind, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(kind, span, message)
        }
    }

    /// Creates the fault that stops a call in a thought, because a call behind the thought was made. `span` is its opening markup.
    pub(crate) fn call_in_thought(index: u32, span: Span) -> Self {
        let message = "the call is part of a thought, and another call follows the thought";
        Self::error(FaultKind::Mentioned, span, message)
            .in_call(index)
            .with_hint("if both calls were meant, write both of them after the thought")
    }

    /// Sets the affected call.
    #[must_use]
    pub fn in_call(mut self, index: u32) -> Self {
        self.call = Some(index);
        self
    }

    /// Sets the affected argument.
    #[must_use]
    pub fn in_argument(mut self, name: impl Into<String>) -> Self {
        self.argument = Some(name.into());
        self
    }

    /// Makes the span count in the call's argument text.
    #[must_use]
    pub fn in_arguments_text(mut self) -> Self {
        self.origin = SpanOrigin::Arguments;
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the line and column of the fault's first byte in `source`. A span past the end gives
    /// the position after the last character. For many faults of one text, use [`SourceLines`].
    pub fn position_in<'a>(&self, source: &'a str) -> SourcePosition<'a> {
        SourceLines::new(source).position_at(self.span.start)
    }

    /// Renders the fault like a compiler diagnostic: message, line, caret, hint.
    ///
    /// The caret is aligned to terminal cells: wide characters take two cells, combining ones none, and tabs are repeated in the caret
    /// line. The column still counts characters. A line of more than 120 cells is cut around the caret, with `…` at each cut. Characters
    /// that a terminal would interpret or draw unpredictably (control characters, direction marks, joiners, invisible letters) are shown as
    /// U+FFFD, so a model cannot manipulate the user's terminal. Variation selectors are removed.
    pub fn render_diagnostic(&self, source: &str) -> String {
        self.render_diagnostic_at(&self.position_in(source))
    }

    /// Renders the fault like [`Self::render_diagnostic`], at a position that is known already.
    pub fn render_diagnostic_at(&self, place: &SourcePosition<'_>) -> String {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let gutter = place.line.to_string().len();
        let AnnotatedLine { line, marks } =
            AnnotatedLine::new(place, self.span.end - self.span.start);
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

/// The lines of a text, for the positions of many faults. Positions that are asked for in rising order take
/// time in proportion to the text as a whole.
#[derive(Debug)]
pub struct SourceLines<'a> {
    source: &'a str,
    /// The offset of each line's first byte.
    starts: Vec<usize>,
    /// The last position that was asked for.
    last: KnownColumn,
}

/// The column of an offset.
#[derive(Debug, Clone, Copy, Default)]
struct KnownColumn {
    at: usize,
    column: usize,
}

impl<'a> SourceLines<'a> {
    /// Finds the lines of a text. They end with CR LF, LF or CR.
    pub fn new(source: &'a str) -> Self {
        let bytes = source.as_bytes();
        let ends = memchr::memchr2_iter(b'\n', b'\r', bytes).filter(|at| {
            // A pair ends one line.
            bytes.get(*at) == Some(&b'\n') || bytes.get(at + 1) != Some(&b'\n')
        });
        Self {
            source,
            starts: std::iter::once(0).chain(ends.map(|at| at + 1)).collect(),
            last: KnownColumn::default(),
        }
    }

    /// Returns the position of a byte. An offset past the end gives the position after the last character.
    pub fn position_at(&mut self, offset: usize) -> SourcePosition<'a> {
        let at = self.source.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= at);
        let start = line
            .checked_sub(1)
            .and_then(|line| self.starts.get(line))
            .copied()
            .unwrap_or_default();
        let end = self.starts.get(line).copied().unwrap_or(self.source.len());
        let whole = self.source.get(start..end).unwrap_or_default();
        let text = match line < self.starts.len() {
            true => whole
                .strip_suffix("\r\n")
                .or_else(|| whole.strip_suffix(['\n', '\r']))
                .unwrap_or(whole),
            false => whole,
        };
        // A position inside the line's end is the one after its text.
        let at = at.min(start + text.len());
        let known = Some(self.last).filter(|known| (start..=at).contains(&known.at));
        let known = known.filter(|known| known.column > 0);
        let KnownColumn { at: from, column } = known.unwrap_or(KnownColumn {
            at: start,
            column: 1,
        });
        let between = self.source.get(from..at).unwrap_or_default();
        let column = column + between.chars().count();
        self.last = KnownColumn { at, column };
        SourcePosition { line, column, text }
    }
}

/// A line as a terminal shows it, and the caret line below it.
struct AnnotatedLine {
    line: String,
    marks: String,
}

impl AnnotatedLine {
    /// The maximum width of a line, in cells.
    const CELLS: usize = 120;
    /// The maximum width of the text before the carets, in cells. The rest stays free for the
    /// marked text.
    const BEFORE: usize = 90;

    /// Marks `length` bytes of the line, starting at the position; marks at least one cell.
    fn new(place: &SourcePosition<'_>, length: usize) -> Self {
        let at = place
            .text
            .char_indices()
            .nth(place.column - 1)
            .map_or(place.text.len(), |(at, _)| at);
        let (head, tail) = place.text.split_at_checked(at).unwrap_or((place.text, ""));
        let from = head.len() - bytes_within(head.chars().rev(), Self::BEFORE);
        let before = head.get(from..).unwrap_or_default();
        // A leading combining mark belongs to a letter that was cut off, and would be drawn over
        // the `…`.
        let before = if from > 0 {
            before.trim_start_matches(is_zero_width)
        } else {
            before
        };
        let room = Self::CELLS.saturating_sub(cell_width(&visible_text(before)));
        let until = bytes_within(tail.chars(), room);
        let marked = tail
            .get(..tail.floor_char_boundary(length.min(until)))
            .unwrap_or_default();
        let cut = |cut: bool| if cut { "…" } else { "" };
        let line = format!(
            "{}{}{}{}",
            cut(from > 0),
            visible_text(before),
            visible_text(tail.get(..until).unwrap_or_default()),
            cut(until < tail.len())
        );
        let mut marks = " ".repeat(usize::from(from > 0));
        // A combining character has no cell of its own, so the caret goes under its base character.
        let (before, marked) = match marked.chars().next() {
            Some(first) if is_zero_width(first) => {
                let base = before
                    .trim_end_matches(is_zero_width)
                    .char_indices()
                    .next_back()
                    .map_or(0, |(at, _)| at);
                (before.get(..base).unwrap_or_default(), "")
            }
            _ => (before, marked),
        };
        // The terminal decides the width of a tab, so tabs are repeated in the caret line, never
        // counted.
        let text = marked.trim_start_matches('\t');
        let tabs = if text.is_empty() {
            0
        } else {
            marked.len() - text.len()
        };
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

/// Returns the number of bytes whose characters fit into `room` cells. Zero-width characters are
/// limited too, to twice as many, so that a line of them stays bounded.
fn bytes_within(chars: impl Iterator<Item = char>, room: usize) -> usize {
    let mut used = 0;
    let mut bytes = 0;
    for (count, c) in chars.enumerate() {
        used += cell_width(&visible_text(c.encode_utf8(&mut [0; 4])));
        if used > room || count >= 2 * room {
            break;
        }
        bytes += c.len_utf8();
    }
    bytes
}

/// Appends `mark` once for each cell of `text`, and keeps the tabs of `text`.
fn push_cells(marks: &mut String, text: &str, mark: &str) {
    for (index, run) in text.split('\t').enumerate() {
        if index > 0 {
            marks.push('\t');
        }
        marks.push_str(&mark.repeat(cell_width(&visible_text(run))));
    }
}

/// Returns the number of terminal cells of a text without tabs.
fn cell_width(text: &str) -> usize {
    text.width()
}

fn is_zero_width(c: char) -> bool {
    // Measured after replacement: a control character has no width, but its U+FFFD has one cell.
    cell_width(&visible_text(c.encode_utf8(&mut [0; 4]))) == 0
}

/// Returns the text in the form in which it is displayed: characters that are invisible or depend
/// on the terminal become U+FFFD.
fn visible_text(text: &str) -> String {
    let show = |c: char| match c {
        '\t' => Some(c),
        // Variation selectors have no width and change only the look of the character before them.
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => None,
        // Direction marks, joiners and other invisible characters can disguise text.
        '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => Some(char::REPLACEMENT_CHARACTER),
        // Tag characters are invisible and can carry hidden text.
        '\u{e0000}'..='\u{e007f}' => Some(char::REPLACEMENT_CHARACTER),
        _ if c.is_control() => Some(char::REPLACEMENT_CHARACTER),
        _ => Some(c),
    };
    text.chars().filter_map(show).collect()
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{Fault, FaultKind, SourceLines, Span};

    /// Marks the bytes of `source` between `«` and `»`. Returns the column, the line and the caret
    /// line.
    fn marked(source: &str) -> (usize, String, String) {
        let (before, rest) = source.split_once('«').unwrap();
        let (inside, after) = rest.split_once('»').unwrap();
        let span = Span::new(before.len(), before.len() + inside.len());
        let fault = Fault::error(FaultKind::WrongType, span, "m");
        let text = format!("{before}{inside}{after}");
        let shown = fault.render_diagnostic(&text);
        let mut lines = shown.lines().skip(3);
        let bare = |line: Option<&str>| line.unwrap().split_once(" | ").unwrap().1.to_owned();
        (
            fault.position_in(&text).column,
            bare(lines.next()),
            bare(lines.next()),
        )
    }

    #[test]
    fn caret_is_aligned_to_terminal_cells() {
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
            // Terminals may or may not join such sequences. Shown separately, they take the same
            // cells in every terminal.
            ("👨\u{200d}👩«x»", 4, "👨\u{fffd}👩x", "     ^"),
            ("👍\u{1f3fd}«x»", 3, "👍\u{1f3fd}x", "  ^"),
            ("🇩🇪«x»", 3, "🇩🇪x", "  ^"),
            ("❤\u{fe0f}«x»", 3, "❤x", " ^"),
            (
                "\u{1b}[31m\u{202e}«x»",
                7,
                "\u{fffd}[31m\u{fffd}x",
                "      ^",
            ),
            (
                "\u{ad5c}\u{3000}«\u{ff21}»",
                3,
                "\u{ad5c}\u{3000}\u{ff21}",
                "    ^^",
            ),
            ("a\r\n漢«b»\r\nc", 2, "漢b", "  ^"),
            ("ab«\r\n»c", 3, "ab", "  ^"),
            ("ab«»", 3, "ab", "  ^"),
            ("ab\n«»", 1, "", "^"),
            ("a«bc\nd»e", 2, "abc", " ^^"),
        ];
        for (source, column, line, marks) in rows {
            assert_eq!(
                marked(source),
                (column, line.to_owned(), marks.to_owned()),
                "{source:?}"
            );
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
            let fault = Fault::error(
                FaultKind::WrongType,
                Span::new(before.len(), before.len()),
                "m",
            );
            let place = fault.position_in(&text);
            assert_eq!(
                (place.line, place.column, place.text),
                expected,
                "{source:?}"
            );
        }
    }

    #[test]
    fn positions_in_any_order_are_the_same() {
        for source in ["", "a", "a\nb\r\nc\rd\n\n\r\r\né🌍x\u{2028}y", "\r\n\r\n\r"] {
            let mut rising = SourceLines::new(source);
            let mut falling = SourceLines::new(source);
            let offsets: Vec<usize> = (0..=source.len() + 1).collect();
            let forward: Vec<_> = offsets.iter().map(|at| rising.position_at(*at)).collect();
            let backward = offsets.iter().rev().map(|at| falling.position_at(*at));
            let backward: Vec<_> = backward.collect();
            for (at, (one, other)) in forward.iter().zip(backward.iter().rev()).enumerate() {
                let fault = Fault::error(FaultKind::WrongType, Span::new(at, at), "m");
                assert_eq!(one, other, "{source:?} at {at}");
                assert_eq!(*one, fault.position_in(source), "{source:?} at {at}");
            }
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_caret() {
        for filler in ["a", "漢", "e\u{301}", "🌍", "\u{1b}", "👍\u{1f3fd}"] {
            for (before, after) in [(0, 1000), (1000, 0), (1000, 1000), (20, 5)] {
                let source = format!("{}«!»{}", filler.repeat(before), filler.repeat(after));
                let (_, line, marks) = marked(&source);
                let cell = line.split('!').next().unwrap().width();
                assert_eq!(
                    marks,
                    format!("{}^", " ".repeat(cell)),
                    "{filler:?} {before} {after}"
                );
                assert!(line.width() <= 122, "{} cells: {line}", line.width());
                assert_eq!(line.starts_with('…'), before == 1000, "{line}");
                assert_eq!(line.ends_with('…'), after == 1000, "{line}");
            }
        }
        let (_, line, marks) = marked(&format!("x«{}»", "y".repeat(500)));
        assert_eq!(
            (line.width(), marks.as_str()),
            (121, format!(" {}", "^".repeat(119)).as_str())
        );
        let (_, line, _) = marked(&format!("x«{}»", "\u{301}".repeat(100_000)));
        assert!(line.len() < 2_000);
    }

    #[test]
    fn out_of_range_spans_are_shown_at_the_end() {
        for span in [Span::new(3, 9), Span::new(9, 9), Span::new(1, 9)] {
            let shown = Fault::error(FaultKind::CutCall, span, "m").render_diagnostic("aé");
            assert!(
                shown.contains("1 | aé\n  | ") && shown.contains('^'),
                "{shown}"
            );
        }
        // A span inside a character marks the whole character.
        let shown = Fault::error(FaultKind::CutCall, Span::new(2, 3), "m").render_diagnostic("aé");
        assert!(shown.ends_with("  |  ^\n"), "{shown}");
    }
}
