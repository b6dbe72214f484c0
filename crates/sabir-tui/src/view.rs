//! Describes the rows of the viewport, and lays the draft out in rows.

use ratatui_core::text::{Line, Span};

use crate::composer::{Composer, DraftPiece};
use crate::lines::{one_line, span, text_width};
use crate::theme::{Role, Theme};

/// The size of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// The columns.
    pub columns: usize,
    /// The rows.
    pub rows: usize,
}

/// The viewport as it is drawn below the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The rows; none is wider than the terminal.
    pub rows: Vec<Line<'static>>,
    /// The row of the cursor.
    pub cursor_row: usize,
    /// The column of the cursor.
    pub cursor_column: usize,
}

/// A draft in rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftRows {
    /// The rows, with the prompt before the first one.
    pub rows: Vec<Line<'static>>,
    /// The row of the cursor.
    pub cursor_row: usize,
    /// The column of the cursor.
    pub cursor_column: usize,
}

/// Lays out a draft after a prompt, in at most this many rows around the cursor.
pub fn lay_out_draft(
    composer: &Composer,
    prompt: Span<'static>,
    theme: Theme,
    width: usize,
    max_rows: usize,
) -> DraftRows {
    let indent = text_width(&prompt.content).min(width.saturating_sub(4));
    let mut layout = DraftLayout {
        rows: vec![Line::from(prompt)],
        used: indent,
        indent,
        width: width.max(indent + 2),
        cursor: None,
    };
    for (at, piece) in composer.pieces() {
        if at == composer.cursor() {
            layout.note_cursor(&piece);
        }
        match piece {
            DraftPiece::Text("\n") => layout.break_row(),
            DraftPiece::Text(text) => layout.push_text(&one_line(text), theme, Role::Plain),
            DraftPiece::Fold(label) => {
                for c in label.chars() {
                    layout.push_text(c.encode_utf8(&mut [0; 4]), theme, Role::Accent);
                }
            }
        }
    }
    if layout.used >= layout.width && layout.cursor.is_none() {
        layout.break_row();
    }
    let last = (layout.rows.len() - 1, layout.used);
    let (cursor_row, cursor_column) = layout.cursor.unwrap_or(last);
    let max_rows = max_rows.max(1);
    let first = (cursor_row + 1).saturating_sub(max_rows).min(cursor_row);
    let rows: Vec<_> = layout.rows.into_iter().skip(first).take(max_rows).collect();
    DraftRows {
        rows,
        cursor_row: cursor_row - first,
        cursor_column: cursor_column.min(width.saturating_sub(1)),
    }
}

struct DraftLayout {
    rows: Vec<Line<'static>>,
    used: usize,
    indent: usize,
    width: usize,
    cursor: Option<(usize, usize)>,
}

impl DraftLayout {
    /// Notes that the cursor is before the next piece.
    fn note_cursor(&mut self, next: &DraftPiece<'_>) {
        let width = match next {
            DraftPiece::Text("\n") => 1,
            DraftPiece::Text(text) => text_width(&one_line(text)),
            DraftPiece::Fold(_) => 1,
        };
        if self.used + width > self.width {
            self.break_row();
        }
        self.cursor = Some((self.rows.len() - 1, self.used));
    }

    fn push_text(&mut self, text: &str, theme: Theme, role: Role) {
        let width = text_width(text);
        if self.used + width > self.width && self.used > self.indent {
            self.break_row();
        }
        self.used += width;
        let style = theme.style(role);
        if let Some(row) = self.rows.last_mut() {
            match row.spans.last_mut() {
                // The prompt is the first span and stays alone.
                Some(last) if last.style == style && self.used > self.indent + width => {
                    last.content.to_mut().push_str(text);
                }
                _ => row.spans.push(span(text, style)),
            }
        }
    }

    fn break_row(&mut self) {
        self.rows
            .push(Line::from(Span::raw(" ".repeat(self.indent))));
        self.used = self.indent;
    }
}
