//! Puts a margin before every line of foreign text at a terminal, so that none of it can pass for a line of ours.
//!
//! Questions and their prompts begin in the first column. A model or a program that prints `allow it? [y]es` could imitate one,
//! so each of their lines begins with a margin. A line that is wider than the terminal would continue in the first column below, so
//! it is broken before that.

use std::io::stderr;

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
/// The default width of a terminal, and the minimum width.
const MIN_COLUMNS: usize = 20;

/// Writes foreign text that arrives in pieces.
///
/// The text is cleaned first: cleaning makes lines of carriage returns, and words of invisible characters.
#[derive(Debug, Default)]
pub(crate) struct Margin {
    sanitizer: Sanitizer,
    /// The column in which the next character goes.
    column: usize,
}

impl Margin {
    /// Returns a piece of text with margins. `in_line` is true if the last written text ended inside a line.
    pub(crate) fn add_piece(&mut self, text: &str, in_line: bool) -> String {
        self.add_to_width(text, in_line, terminal_columns())
    }

    fn add_to_width(&mut self, text: &str, in_line: bool, columns: Option<usize>) -> String {
        let text = self.sanitizer.sanitize_chunk(text);
        let mut marked = String::with_capacity(text.len() + MARGIN.len());
        let mut at_start = !in_line;
        for c in text.chars() {
            if c == '\n' && !at_start {
                marked.push(c);
                at_start = true;
                continue;
            }
            if at_start {
                marked.push_str(MARGIN);
                self.column = MARGIN_COLUMNS;
                at_start = false;
            }
            if c == '\n' {
                marked.push(c);
                at_start = true;
                continue;
            }
            let width = width_of(c);
            if columns.is_some_and(|columns| self.column + width > columns) {
                marked.push('\n');
                marked.push_str(MARGIN);
                self.column = MARGIN_COLUMNS;
            }
            self.column += width;
            marked.push(c);
        }
        marked
    }
}

/// Breaks lines of clean text before the terminal does, so that none continues in the first column: our own lines, too, since
/// they quote names and reasons.
#[derive(Debug, Default)]
pub(crate) struct RowWrapper {
    /// The column in which the next character goes.
    column: usize,
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
        if !in_line {
            self.column = 0;
        }
        for c in text.chars() {
            if c == '\n' {
                wrapped.push(c);
                self.column = 0;
                continue;
            }
            let width = width_of(c);
            if self.column + width > columns {
                wrapped.push('\n');
                wrapped.push_str(CONTINUED);
                self.column = CONTINUED.len();
            }
            self.column += width;
            wrapped.push(c);
        }
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
        c if c.is_ascii() => 1,
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
    fn wide_lines_do_not_reach_the_first_column() {
        check(&["abcdef"], Some(5), "│ abc\n│ def");
        check(&["ab", "cd", "ef"], Some(5), "│ abc\n│ def");
        check(&["\u{4e2d}\u{4e2d}"], Some(5), "│ \u{4e2d}\n│ \u{4e2d}");
        check(&["a\tb"], Some(12), "│ a\tb");
        check(&["a\tbc"], Some(12), "│ a\tb\n│ c");
    }
}
