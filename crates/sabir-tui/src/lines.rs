//! Wraps styled lines, and writes them as bytes for a terminal.
//!
//! [`write_line`] is the only way from text to the terminal. It cleans what it writes, although the text was cleaned where it
//! came in: a later step, such as the decoding of Markdown's `&#27;`, may have made a control character again.

use std::fmt::Write as _;

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};
use sabir_terminal::sanitizer::{is_invisible_char, sanitize_text};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthChar;

use crate::links::LineLink;

/// The columns of a tab.
const TAB: &str = "    ";
/// The minimum width of the drawing.
pub const MIN_WIDTH: usize = 8;

/// The way in which a line that is too long continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapping {
    /// Between words, under this column.
    Words(usize),
    /// Wherever the terminal breaks it, so that it is copied as one line.
    Terminal,
}

/// A line above the viewport, for any width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryLine {
    /// The styled text.
    pub line: Line<'static>,
    /// The way in which it continues.
    pub wrapping: Wrapping,
    /// The parts that lead somewhere, beside the addresses in its text.
    pub links: Vec<LineLink>,
}

impl HistoryLine {
    /// Creates a line that wraps between words, under this column.
    pub fn words(line: Line<'static>, hanging: usize) -> Self {
        Self {
            line,
            wrapping: Wrapping::Words(hanging),
            links: Vec::new(),
        }
    }

    /// Creates a line that the terminal wraps.
    pub fn whole(line: Line<'static>) -> Self {
        Self {
            line,
            wrapping: Wrapping::Terminal,
            links: Vec::new(),
        }
    }

    /// Makes a path in the line a link to the file.
    pub fn link_path(&mut self, path: &str, folder: &str) {
        let text = self.line.to_string();
        self.links.extend(LineLink::to_path(path, folder, &text));
    }

    /// Adds links to the line.
    #[must_use]
    pub fn with_links(self, links: Vec<LineLink>) -> Self {
        Self { links, ..self }
    }

    /// Creates an empty line.
    pub fn empty() -> Self {
        Self::whole(Line::default())
    }

    /// Returns the rows of the line on a screen of this width. A line that the terminal wraps is one element.
    pub fn rows(&self, width: usize) -> Vec<Line<'static>> {
        match self.wrapping {
            Wrapping::Words(hanging) => wrap_words(&self.line, width, hanging),
            Wrapping::Terminal => vec![self.line.clone()],
        }
    }
}

/// Returns a styled piece of text for a line: cleaned, without line feeds and tabs.
pub fn span(text: &str, style: Style) -> Span<'static> {
    Span::styled(one_line(text), style)
}

/// Returns a text without anything that would leave its line or act on the terminal.
pub fn one_line(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !is_invisible_char(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    sanitize_text(text).replace('\n', " ⏎ ").replace('\t', TAB)
}

/// Returns the number of columns of a text: the sum over its characters, as in most terminals. A few draw a composed emoji in the
/// columns of one character; there a row is shorter than counted.
pub fn text_width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// Returns the beginning of a text that fits into this many columns, with an ellipsis if something is left out.
pub fn fit_text(text: &str, columns: usize) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    let mut fitting = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        used += text_width(grapheme);
        if used + 1 > columns {
            break;
        }
        fitting.push_str(grapheme);
    }
    if columns > 0 {
        fitting.push('…');
    }
    fitting
}

/// Truncates a line after this many columns.
pub fn fit_line(line: Line<'static>, columns: usize) -> Line<'static> {
    if line_width(&line) <= columns {
        return line;
    }
    let mut fitting = Vec::new();
    let mut left = columns;
    for piece in line.spans {
        let width = text_width(&piece.content);
        if width <= left {
            left -= width;
            fitting.push(piece);
            continue;
        }
        fitting.push(Span::styled(fit_text(&piece.content, left), piece.style));
        break;
    }
    Line::from(fitting)
}

/// Returns the columns of a line.
pub fn line_width(line: &Line<'_>) -> usize {
    line.spans
        .iter()
        .map(|piece| text_width(&piece.content))
        .sum()
}

/// Wraps a line between words; a word longer than a row breaks anywhere.
pub fn wrap_words(line: &Line<'static>, width: usize, hanging: usize) -> Vec<Line<'static>> {
    let width = width.max(MIN_WIDTH);
    let hanging = if hanging + MIN_WIDTH > width {
        0
    } else {
        hanging
    };
    if line_width(line) <= width {
        return vec![line.clone()];
    }
    let mut wrapper = WordWrapper {
        rows: Vec::new(),
        row: Vec::new(),
        used: 0,
        width,
        hanging,
        is_row_empty: true,
    };
    for word in split_words(line) {
        wrapper.push_word(word);
    }
    wrapper.rows.push(Line::from(wrapper.row));
    wrapper.rows
}

/// A word, possibly of several styles, or a run of blanks.
struct StyledWord {
    pieces: Vec<(String, Style)>,
    width: usize,
    is_blank: bool,
}

/// Splits a line into words and the blanks between them.
fn split_words(line: &Line<'static>) -> Vec<StyledWord> {
    let mut words: Vec<StyledWord> = Vec::new();
    for piece in &line.spans {
        for part in piece.content.split_word_bounds() {
            let is_blank = part.chars().all(|c| c == ' ');
            let width = text_width(part);
            // Punctuation stays with its word.
            let joins = words
                .last()
                .is_some_and(|last| last.is_blank == is_blank && !is_wide(part));
            match words.last_mut() {
                Some(last) if joins => {
                    last.width += width;
                    last.pieces.push((part.to_owned(), piece.style));
                }
                _ => words.push(StyledWord {
                    pieces: vec![(part.to_owned(), piece.style)],
                    width,
                    is_blank,
                }),
            }
        }
    }
    words
}

/// Returns true for text of scripts that break between any two characters.
fn is_wide(text: &str) -> bool {
    text.chars().next().is_some_and(|c| u32::from(c) >= 0x2e80)
}

struct WordWrapper {
    rows: Vec<Line<'static>>,
    row: Vec<Span<'static>>,
    used: usize,
    width: usize,
    hanging: usize,
    /// True if the row contains only its indentation.
    is_row_empty: bool,
}

impl WordWrapper {
    fn push_word(&mut self, word: StyledWord) {
        if self.used + word.width <= self.width {
            // Blanks at a break vanish.
            if word.is_blank && self.is_row_empty && !self.rows.is_empty() {
                return;
            }
            self.used += word.width;
            self.is_row_empty = false;
            let spans = word.pieces.into_iter();
            return self
                .row
                .extend(spans.map(|(text, style)| Span::styled(text, style)));
        }
        if word.is_blank {
            return self.break_row();
        }
        if !self.is_row_empty {
            self.break_row();
            if self.used + word.width <= self.width {
                return self.push_word(word);
            }
        }
        for (text, style) in word.pieces {
            for grapheme in text.graphemes(true) {
                let width = text_width(grapheme);
                if self.used + width > self.width {
                    self.break_row();
                }
                self.used += width;
                self.is_row_empty = false;
                self.row.push(Span::styled(grapheme.to_owned(), style));
            }
        }
    }

    fn break_row(&mut self) {
        if self.is_row_empty && !self.rows.is_empty() {
            return;
        }
        let mut row = std::mem::take(&mut self.row);
        while row.len() > 1
            && row
                .last()
                .is_some_and(|piece| piece.content.trim().is_empty())
        {
            row.pop();
        }
        self.rows.push(Line::from(row));
        self.used = self.hanging;
        self.is_row_empty = true;
        if self.hanging > 0 {
            self.row.push(Span::raw(" ".repeat(self.hanging)));
        }
    }
}

/// Appends the bytes of a line, without a line end. The style is the usual one before and after.
pub fn write_line(line: &Line<'_>, out: &mut String) {
    let mut last = Style::new();
    for piece in &line.spans {
        let style = line.style.patch(piece.style);
        if style != last {
            write_style(last, style, out);
            last = style;
        }
        write_text(&piece.content, out);
    }
    write_style(last, Style::new(), out);
}

/// Appends text, cleaned.
pub fn write_text(text: &str, out: &mut String) {
    let is_plain = |c: char| !c.is_control() && !is_invisible_char(c);
    if text.chars().all(is_plain) {
        out.push_str(text);
    } else {
        // A joiner may follow its emoji in another grapheme of the same text.
        out.push_str(&one_line(text));
    }
}

/// Appends the sequence that turns a style into another one, if they differ.
pub fn write_style(last: Style, style: Style, out: &mut String) {
    if style == last {
        return;
    }
    if style == Style::new() {
        return out.push_str("\x1b[m");
    }
    let mut codes = String::new();
    // What is set stays until it is reset; only a colour replaces another.
    let is_kept =
        style.add_modifier.contains(last.add_modifier) && (last.fg.is_none() || style.fg.is_some());
    let kept = match is_kept {
        true => last,
        false => {
            codes.push_str(";0");
            Style::new()
        }
    };
    let modifiers = [
        (Modifier::BOLD, 1),
        (Modifier::DIM, 2),
        (Modifier::ITALIC, 3),
        (Modifier::UNDERLINED, 4),
        (Modifier::REVERSED, 7),
        (Modifier::CROSSED_OUT, 9),
    ];
    for (modifier, code) in modifiers {
        if style.add_modifier.contains(modifier) && !kept.add_modifier.contains(modifier) {
            // Writing to a string cannot fail.
            _ = write!(codes, ";{code}");
        }
    }
    match style.fg.filter(|_| style.fg != kept.fg) {
        Some(Color::Rgb(red, green, blue)) => _ = write!(codes, ";38;2;{red};{green};{blue}"),
        Some(Color::Indexed(number)) => _ = write!(codes, ";38;5;{number}"),
        Some(color) => {
            if let Some(code) = color_code(color) {
                _ = write!(codes, ";{code}");
            }
        }
        None => {}
    }
    // Without a code, the sequence would reset.
    if let Some(codes) = codes.strip_prefix(';') {
        _ = write!(out, "\x1b[{codes}m");
    }
}

/// Returns the code that sets a colour of the palette as the foreground.
fn color_code(color: Color) -> Option<u8> {
    Some(match color {
        Color::Black => 30,
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::Gray => 37,
        Color::DarkGray => 90,
        Color::LightRed => 91,
        Color::LightGreen => 92,
        Color::LightYellow => 93,
        Color::LightBlue => 94,
        Color::LightMagenta => 95,
        Color::LightCyan => 96,
        Color::White => 97,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize, hanging: usize) -> Vec<String> {
        let line = Line::from(span(text, Style::new()));
        let rows = wrap_words(&line, width, hanging);
        rows.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_wrap_between_words() {
        assert_eq!(wrapped("one two three", 9, 0), ["one two", "three"]);
        assert_eq!(wrapped("- one two three", 11, 2), ["- one two", "  three"]);
        assert_eq!(wrapped("abcdefghijkl", 10, 0), ["abcdefghij", "kl"]);
        assert_eq!(wrapped("世界世界世界", 8, 0), ["世界世界", "世界"]);
        for width in 8..40 {
            for row in wrapped(
                "a long: (line) with, punctuation and 世界 wide_characters_in_it",
                width,
                2,
            ) {
                assert!(text_width(&row) <= width, "{row:?} in {width}");
            }
        }
    }

    #[test]
    fn nothing_that_acts_on_a_terminal_is_written() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{7}\u{202e}b\r\n\u{8}\u{7f}";
        let mut out = String::new();
        write_line(&Line::from(Span::raw(hostile.to_owned())), &mut out);
        write_line(&Line::from(span(hostile, Style::new())), &mut out);
        assert!(
            out.chars()
                .all(|c| !c.is_control() && !is_invisible_char(c)),
            "{out:?}"
        );
    }

    #[test]
    fn a_style_is_changed_with_few_codes() {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let red = Style::new().fg(Color::Red);
        let steps = [
            (Style::new(), red, "\x1b[31m"),
            (red, red.fg(Color::Blue), "\x1b[34m"),
            (red, red.patch(bold), "\x1b[1m"),
            (red.patch(bold), red, "\x1b[0;31m"),
            (red, bold, "\x1b[0;1m"),
            (bold, bold, ""),
            (bold, Style::new(), "\x1b[m"),
        ];
        for (last, style, expected) in steps {
            let mut out = String::new();
            write_style(last, style, &mut out);
            assert_eq!(out, expected, "{last:?} to {style:?}");
        }
    }

    #[test]
    fn texts_are_cut_at_columns() {
        assert_eq!(fit_text("abc", 3), "abc");
        assert_eq!(fit_text("abcd", 3), "ab…");
        assert_eq!(fit_text("世界世", 5), "世界…");
        assert_eq!(fit_text("世界世", 4), "世…");
        assert_eq!(fit_text("abc", 0), "");
    }
}
