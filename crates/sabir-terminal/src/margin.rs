//! Puts a margin before every line of foreign text at a terminal, so that none of it can be
//! mistaken for a line of Sabir.
//!
//! Questions and their prompts begin in the first column. A model or a program that prints `allow it? [y]es` could imitate one,
//! so each of their lines begins with a margin. A line that is wider than the terminal would continue in the first column below, so
//! it is broken before that.

use std::io::stderr;

use unicode_width::UnicodeWidthChar;

use crate::sanitizer::Sanitizer;

/// The margin before each line.
pub(crate) const MARGIN: &str = "│ ";
/// The width of the margin, in columns.
const MARGIN_COLUMNS: usize = 2;
/// The beginning of a row that continues one of our own lines.
const CONTINUED: &str = "  ";
/// The width of a tab at most, and of a character beyond ASCII.
const TAB_COLUMNS: usize = 8;
const WIDE_COLUMNS: usize = 2;
/// A word that ends nearer than this to the end of the row may be held back until it is complete.
const MAX_HELD_COLUMNS: usize = 16;
/// The default width of a terminal, and the minimum width.
const MIN_COLUMNS: usize = 20;

/// Fills the rows of a terminal with words.
///
/// A word that does not fit begins the next row; one that is wider than a row is broken.
#[derive(Debug, Default)]
struct RowFiller {
    /// The column in which the next character goes.
    column: usize,
    /// The word that was begun, and is not written yet.
    word: String,
    word_width: usize,
}

impl RowFiller {
    /// Adds a character, which is not a line feed. `continued` begins a row that continues a line.
    fn push(&mut self, c: char, columns: usize, continued: &str, filled: &mut String) {
        let width = width_of(c);
        if matches!(c, ' ' | '\t') {
            self.write_word(columns, continued, filled);
            if self.column + width > columns {
                // A row does not begin with the blank behind the last word of the row above.
                self.column = columns;
            } else {
                filled.push(c);
                self.column += width;
            }
            return;
        }
        // Scripts with wide characters have no blanks between their words.
        let is_wide = c.width() == Some(2);
        if is_wide {
            self.write_word(columns, continued, filled);
        }
        self.word.push(c);
        self.word_width += width;
        if is_wide {
            self.write_word(columns, continued, filled);
        }
    }

    /// Writes the word that was begun.
    fn write_word(&mut self, columns: usize, continued: &str, filled: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let indent = continued.chars().count();
        let fits = self.column + self.word_width <= columns;
        let fits_alone = indent + self.word_width <= columns;
        if !fits && fits_alone {
            self.begin_row(continued, filled);
        }
        for c in self.word.chars().collect::<Vec<_>>() {
            let width = width_of(c);
            if self.column + width > columns {
                self.begin_row(continued, filled);
            }
            self.column += width;
            filled.push(c);
        }
        self.word.clear();
        self.word_width = 0;
    }

    fn begin_row(&mut self, continued: &str, filled: &mut String) {
        filled.push('\n');
        filled.push_str(continued);
        self.column = continued.chars().count();
    }
}

/// Writes foreign text that arrives in pieces.
///
/// The text is cleaned first, since cleaning turns carriage returns into line feeds and invisible characters into words.
#[derive(Debug, Default)]
pub(crate) struct Margin {
    sanitizer: Sanitizer,
    rows: RowFiller,
}

impl Margin {
    /// Returns a piece of text with margins. `in_line` is true if the last written text ended inside a line. The end of the piece
    /// ends a word.
    pub(crate) fn add_piece(&mut self, text: &str, in_line: bool) -> String {
        let marked = self.add_to_width(text, in_line, terminal_columns());
        marked + &self.finish_word()
    }

    /// Returns a piece of text that streams, with margins. A word at its end that may not fit into the row is held back until it is
    /// complete, or until [`finish_word`](Self::finish_word).
    pub(crate) fn stream_piece(&mut self, text: &str, in_line: bool) -> String {
        self.add_to_width(text, in_line, terminal_columns())
    }

    /// Returns the word that was held back.
    pub(crate) fn finish_word(&mut self) -> String {
        let mut marked = String::new();
        let columns = terminal_columns().unwrap_or(usize::MAX);
        self.rows.write_word(columns, MARGIN, &mut marked);
        marked
    }

    fn add_to_width(&mut self, text: &str, in_line: bool, columns: Option<usize>) -> String {
        let text = self.sanitizer.sanitize_chunk(text);
        let columns = columns.unwrap_or(usize::MAX);
        let mut marked = String::with_capacity(text.len() + MARGIN.len());
        let mut at_start = !in_line;
        for c in text.chars() {
            if at_start {
                marked.push_str(MARGIN);
                self.rows.column = MARGIN_COLUMNS;
            }
            at_start = c == '\n';
            if at_start {
                self.rows.write_word(columns, MARGIN, &mut marked);
                marked.push(c);
            } else {
                self.rows.push(c, columns, MARGIN, &mut marked);
            }
        }
        let end = self.rows.column + self.rows.word_width;
        if columns.saturating_sub(end) >= MAX_HELD_COLUMNS {
            self.rows.write_word(columns, MARGIN, &mut marked);
        }
        marked
    }
}

/// Breaks lines of clean text before the terminal does, so that none continues in the first column. This includes Sabir's own lines, since
/// they quote names and reasons.
#[derive(Debug, Default)]
pub(crate) struct RowWrapper {
    rows: RowFiller,
    /// True inside a line that has a margin.
    is_marked: bool,
}

impl RowWrapper {
    /// Returns a piece of text with further line feeds. `in_line` is true if the last written text ended inside a line.
    pub(crate) fn wrap_piece(&mut self, text: &str, in_line: bool) -> String {
        self.wrap_to_width(text, in_line, terminal_columns())
    }

    fn wrap_to_width(&mut self, text: &str, in_line: bool, columns: Option<usize>) -> String {
        let Some(columns) = columns else {
            return text.to_owned();
        };
        let mut wrapped = String::with_capacity(text.len());
        let mut at_start = !in_line;
        for c in text.chars() {
            if at_start {
                self.rows.column = 0;
                self.is_marked = MARGIN.starts_with(c);
            }
            let continued = if self.is_marked { MARGIN } else { CONTINUED };
            at_start = c == '\n';
            if at_start {
                self.rows.write_word(columns, continued, &mut wrapped);
                wrapped.push(c);
            } else {
                self.rows.push(c, columns, continued, &mut wrapped);
            }
        }
        let continued = if self.is_marked { MARGIN } else { CONTINUED };
        self.rows.write_word(columns, continued, &mut wrapped);
        wrapped
    }
}

/// Returns a whole text whose lines are broken before the terminal breaks them.
pub(crate) fn wrap_rows(text: &str) -> String {
    RowWrapper::default().wrap_piece(text, false)
}

/// Returns the maximum number of columns of a character.
fn width_of(c: char) -> usize {
    match c {
        '\t' => TAB_COLUMNS,
        c if c.is_ascii() || MARGIN.starts_with(c) => 1,
        _ => WIDE_COLUMNS,
    }
}

/// Returns a whole text with margins, ending with a line feed.
pub(crate) fn mark_lines(text: &str) -> String {
    let mut marked = Margin::default().add_piece(text.trim_end_matches('\n'), false);
    if marked.is_empty() {
        marked.push_str(MARGIN);
    }
    marked.push('\n');
    marked
}

/// Returns the width of the terminal that questions are asked at; `None` if there is none.
fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stderr()).ok()?;
    let columns = usize::from(size.ws_col);
    (columns > 0).then(|| columns.max(MIN_COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], columns: Option<usize>, expected: &str) {
        let mut margin = Margin::default();
        let mut shown = String::new();
        for piece in pieces {
            let in_line = !shown.is_empty() && !shown.ends_with('\n');
            shown.push_str(&margin.add_to_width(piece, in_line, columns));
        }
        let end = columns.unwrap_or(usize::MAX);
        margin.rows.write_word(end, MARGIN, &mut shown);
        assert_eq!(shown, expected);
    }

    #[test]
    fn rows_are_broken_before_the_terminal_does() {
        let wrap = |pieces: &[&str], columns| {
            let mut rows = RowWrapper::default();
            let mut in_line = false;
            let mut shown = String::new();
            for piece in pieces {
                shown.push_str(&rows.wrap_to_width(piece, in_line, columns));
                in_line = !shown.ends_with('\n');
            }
            shown
        };
        assert_eq!(wrap(&["abcdef"], Some(4)), "abcd\n  ef");
        assert_eq!(
            wrap(&["ab", "cdef\n", "ghijk"], Some(4)),
            "abcd\n  ef\nghij\n  k"
        );
        assert_eq!(wrap(&["abcdef"], None), "abcdef");
        assert_eq!(wrap(&["one two six"], Some(9)), "one two \n  six");
        assert_eq!(wrap(&["│ one two six"], Some(9)), "│ one two\n│ six");
        assert_eq!(wrap(&["ab字"], Some(3)), "ab\n  字");
    }

    #[test]
    fn lines_that_cleaning_makes_have_a_margin() {
        check(&["a\rb"], None, "│ a\n│ b");
        check(&["a\r", "\nb"], None, "│ a\n│ b");
        check(&["a\u{200b}b"], Some(20), "│ a<U+200B>b");
    }

    #[test]
    fn every_line_has_a_margin() {
        check(&["a\nb\n\nc"], None, "│ a\n│ b\n│ \n│ c");
        check(&["a", "b\n", "\n", "c\n"], None, "│ ab\n│ \n│ c\n");
        check(&["\nallow it? "], None, "│ \n│ allow it? ");
        check(&[""], None, "");
        assert_eq!(mark_lines("a\n\n"), "│ a\n");
        assert_eq!(mark_lines(""), "│ \n");
    }

    #[test]
    fn lines_are_broken_between_words() {
        check(&["one two ", "six\n"], Some(9), "│ one two\n│ six\n");
        check(&["one tw", "enty\n"], Some(9), "│ one \n│ twenty\n");
        check(&["abcdefghi jk\n"], Some(9), "│ abcdefg\n│ hi jk\n");
        // Breaking the rows once more changes nothing: the margin counts as one column and a blank.
        let mut margin = Margin::default();
        let marked = margin.add_to_width(&"a few words ".repeat(40), false, Some(40));
        let again = RowWrapper::default().wrap_to_width(&marked, false, Some(40));
        assert_eq!(again, marked);
    }

    #[test]
    fn wide_lines_do_not_reach_the_first_column() {
        check(&["abcdef "], Some(5), "│ abc\n│ def");
        check(&["ab", "cd", "ef "], Some(5), "│ abc\n│ def");
        check(&["\u{4e2d}\u{4e2d}"], Some(5), "│ \u{4e2d}\n│ \u{4e2d}");
        check(&["a\tb "], Some(12), "│ a\tb");
        check(&["a\tbc "], Some(12), "│ a\t\n│ bc ");
    }
}
