//! Breaks the message that a user types into the rows of a terminal.

use sabir_toolbox::text::is_invisible_char;
use unicode_width::UnicodeWidthChar;

/// The width of a tab in a draft, in columns.
const TAB: usize = 4;

/// The size of a terminal, in columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScreenSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// A draft as rows, with the place of the cursor in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DraftRows {
    pub(crate) rows: Vec<String>,
    pub(crate) cursor_row: usize,
    pub(crate) cursor_column: usize,
}

/// Lays out a draft whose first row begins at a column. `cursor` is a byte offset in the text.
pub(crate) fn lay_out(text: &str, cursor: usize, start: usize, columns: usize) -> DraftRows {
    let columns = columns.max(2);
    let mut laid = DraftRows {
        rows: Vec::new(),
        cursor_row: 0,
        cursor_column: start,
    };
    let mut row = String::new();
    let mut column = start;
    for (at, c) in text.char_indices() {
        let shown = shown_character(c);
        let width = if c == '\n' {
            0
        } else {
            shown.chars().filter_map(char::width).sum()
        };
        // The cursor needs a column of its own, so a full row is broken before the next character.
        if column + width.max(1) > columns {
            laid.rows.push(std::mem::take(&mut row));
            column = 0;
        }
        if at == cursor {
            laid.cursor_row = laid.rows.len();
            laid.cursor_column = column;
        }
        if c == '\n' {
            laid.rows.push(std::mem::take(&mut row));
            column = 0;
        } else {
            row.push_str(&shown);
            column += width;
        }
    }
    if cursor >= text.len() {
        if column >= columns {
            laid.rows.push(std::mem::take(&mut row));
            column = 0;
        }
        laid.cursor_row = laid.rows.len();
        laid.cursor_column = column;
    }
    laid.rows.push(row);
    laid
}

/// Returns a character as it is shown: nothing in a draft may control the terminal.
fn shown_character(c: char) -> String {
    match c {
        '\t' => " ".repeat(TAB),
        c if c.is_control() || is_invisible_char(c) => char::REPLACEMENT_CHARACTER.to_string(),
        c => c.to_string(),
    }
}

impl DraftRows {
    /// Keeps the rows around the cursor, at most this many, and says how many were left out.
    pub(crate) fn limit_rows(mut self, most: usize) -> Self {
        let most = most.max(3);
        let total = self.rows.len();
        if total <= most {
            return self;
        }
        let last_start = total - most;
        let start = self.cursor_row.saturating_sub(most / 2).min(last_start);
        self.rows = self.rows.into_iter().skip(start).take(most).collect();
        self.cursor_row -= start;
        let below = total - start - most;
        if start > 0
            && self.cursor_row > 0
            && let Some(first) = self.rows.first_mut()
        {
            *first = format!("[{} rows above]", start + 1);
        }
        if below > 0
            && self.cursor_row + 1 < most
            && let Some(last) = self.rows.last_mut()
        {
            *last = format!("[{} rows below]", below + 1);
        }
        self
    }
}

/// Returns the column after a text that is written at a column. The text has no sequences that move
/// the cursor.
pub(crate) fn column_after(text: &str, start: usize, columns: usize) -> usize {
    let columns = columns.max(2);
    let (line, start) = match text.rsplit_once('\n') {
        Some((_, line)) => (line, 0),
        None => (text, start),
    };
    let mut column = start;
    for c in line.chars() {
        let width = match c {
            '\t' => 8 - column % 8,
            '\r' => {
                column = 0;
                0
            }
            c => c.width().unwrap_or(0),
        };
        if column + width > columns {
            column = 0;
        }
        column += width;
    }
    column
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_at_the_margin_and_at_line_breaks() {
        let laid = lay_out("abcdef\ngh", 9, 2, 5);
        assert_eq!(laid.rows, ["abc", "def", "gh"]);
        assert_eq!((laid.cursor_row, laid.cursor_column), (2, 2));
        let laid = lay_out("abc", 3, 2, 5);
        assert_eq!(laid.rows, ["abc", ""]);
        assert_eq!((laid.cursor_row, laid.cursor_column), (1, 0));
        let laid = lay_out("\u{4e2d}\u{4e2d}\u{4e2d}", 3, 0, 5);
        assert_eq!(laid.rows, ["\u{4e2d}\u{4e2d}", "\u{4e2d}"]);
        assert_eq!((laid.cursor_row, laid.cursor_column), (0, 2));
        assert_eq!(lay_out("a\x1b[2Jb", 0, 0, 80).rows, ["a\u{fffd}[2Jb"]);
    }

    #[test]
    fn a_long_draft_shows_the_rows_around_the_cursor() {
        let text: String = (0..100).map(|number| format!("{number}\n")).collect();
        let shown = lay_out(&text, 0, 0, 80).limit_rows(4);
        assert_eq!(shown.rows, ["0", "1", "2", "[98 rows below]"]);
        let shown = lay_out(&text, text.len(), 0, 80).limit_rows(4);
        assert_eq!(shown.rows, ["[98 rows above]", "98", "99", ""]);
        assert_eq!(shown.cursor_row, 3);
    }

    #[test]
    fn the_column_follows_what_is_written() {
        assert_eq!(column_after("ab\ncd", 7, 80), 2);
        assert_eq!(column_after("abc", 78, 80), 1);
        assert_eq!(column_after("ab", 78, 80), 80);
        assert_eq!(column_after("ab\n", 78, 80), 0);
        assert_eq!(column_after("\t", 3, 80), 8);
    }
}
