//! Draws history and viewport as bytes, without leaving the terminal's own screen.
//!
//! The history is printed once, as any program prints, so that the scrollback, the search and the selection of the terminal work
//! on it. The viewport is the rows below; it is drawn over when it changes, and it moves down as history is printed. Only
//! relative movements are used, so that the terminal need not be asked where the cursor is: that costs a round trip, and a
//! serial console never answers.
//!
//! When the width changes, some terminals wrap their rows anew and others cut them off. The lines that are surely still visible
//! are then erased and printed again; [`RowReflow`] says where they are. What is in the scrollback stays as it is. Of a terminal
//! that is not known, the whole screen is printed again: some lines may then be twice in the scrollback, but none is lost.

use std::collections::VecDeque;
use std::fmt::Write as _;

use ratatui_core::style::Style;
use ratatui_core::text::Line;
use unicode_segmentation::UnicodeSegmentation;

use crate::lines::{HistoryLine, line_width, text_width, write_line, write_style, write_text};
use crate::links::write_linked_rows;
use crate::view::{TerminalSize, View};

/// The maximum number of lines of the history that are kept to print the screen again.
const MAX_RECENT: usize = 500;
/// Begins an update that the terminal shows as one.
const BEGIN_UPDATE: &str = "\x1b[?2026h\x1b[?25l";
/// Ends such an update.
const END_UPDATE: &str = "\x1b[?25h\x1b[?2026l";

/// The effect of another width on the rows that a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowReflow {
    /// Rows that are too long continue in the next row.
    Rewraps,
    /// Rows stay where they are, and lose what is too long.
    Cuts,
    /// It is not known which.
    Unknown,
}

/// The state of the terminal's screen, as far as it is ours.
#[derive(Debug)]
pub struct InlineScreen {
    size: TerminalSize,
    reflow: RowReflow,
    /// The viewport as it was drawn; `None` if nothing is on the screen.
    drawn: Option<View>,
    /// The last lines of the history.
    recent: VecDeque<HistoryLine>,
    /// The rows of history that were printed since the beginning.
    printed_rows: usize,
    /// True if the terminal shows links.
    shows_links: bool,
}

impl InlineScreen {
    /// Creates the state of a screen whose cursor is at the beginning of a row.
    pub fn new(size: TerminalSize, reflow: RowReflow) -> Self {
        Self {
            size,
            reflow,
            drawn: None,
            recent: VecDeque::new(),
            printed_rows: 0,
            shows_links: false,
        }
    }

    /// Writes addresses and file names as links, if the terminal shows them.
    #[must_use]
    pub fn with_links(self, shows_links: bool) -> Self {
        Self {
            shows_links,
            ..self
        }
    }

    /// Returns the bytes that print these lines above the viewport, and draw the viewport.
    pub fn draw(&mut self, history: Vec<HistoryLine>, view: View) -> String {
        let mut out = String::new();
        match self.drawn.take() {
            Some(drawn) if history.is_empty() => {
                let shift = RowShift::find(&drawn, &view);
                let drawn = match shift {
                    Some(shift) => shift.apply(drawn, &mut out),
                    None => drawn,
                };
                self.draw_changes(&drawn, &view, &mut out);
                // A change of one row needs no frame around it.
                let breaks = out.matches('\n').count() + out.matches('\r').count();
                if shift.is_some() || breaks > 3 {
                    out = format!("{BEGIN_UPDATE}{out}{END_UPDATE}");
                }
            }
            drawn => {
                out.push_str(BEGIN_UPDATE);
                if let Some(drawn) = drawn {
                    move_up(drawn.cursor_row, &mut out);
                    out.push_str("\r\x1b[J");
                }
                for line in history {
                    self.print_line(&line, &mut out);
                    self.keep_recent(line);
                }
                print_view(&view, &mut out);
                out.push_str(END_UPDATE);
            }
        }
        self.drawn = Some(view);
        out
    }

    /// Returns the bytes that prepare the screen for another size. Draw the view afterwards.
    pub fn resize(&mut self, size: TerminalSize) -> String {
        let old = std::mem::replace(&mut self.size, size);
        let Some(drawn) = self.drawn.take() else {
            return String::new();
        };
        let mut out = String::from(BEGIN_UPDATE);
        if old.columns == size.columns {
            // Rows keep their place below the cursor's row, in every terminal.
            move_up(drawn.cursor_row.min(size.rows.saturating_sub(1)), &mut out);
            out.push_str("\r\x1b[J");
            out.push_str(END_UPDATE);
            return out;
        }
        if self.reflow != RowReflow::Unknown {
            self.print_visible_again(&drawn, old, &mut out);
            out.push_str(END_UPDATE);
            return out;
        }
        let height = old.rows.max(size.rows);
        let above = drawn.rows.iter().take(drawn.cursor_row);
        let rows_above: usize = above
            .map(|row| rows_of(line_width(row), size.columns))
            .sum();
        let cursor_rows = drawn.cursor_column / size.columns.max(1);
        let history_rows: usize = self.recent.iter().map(|line| self.row_count(line)).sum();
        let is_full = self.printed_rows + drawn.rows.len() >= old.rows
            || history_rows + rows_above >= size.rows;
        if is_full {
            out.push_str("\x1b[H\x1b[J");
        } else {
            let up = history_rows + rows_above + cursor_rows;
            move_up(up.min(size.rows.saturating_sub(1)), &mut out);
            out.push_str("\r\x1b[J");
        }
        // Everything that may have been visible.
        let mut start = self.recent.len();
        let mut rows = drawn.rows.len();
        while start > 0 && rows < height {
            start -= 1;
            rows += self.recent.get(start).map_or(1, |line| {
                let narrow = old.columns.max(size.columns);
                count_rows(line, narrow)
            });
        }
        let lines: Vec<_> = self.recent.iter().skip(start).cloned().collect();
        for line in &lines {
            self.print_line(line, &mut out);
        }
        out.push_str(END_UPDATE);
        out
    }

    /// Erases the lines that were visible before and after a change of the width, and prints them again.
    fn print_visible_again(&mut self, drawn: &View, old: TerminalSize, out: &mut String) {
        let size = self.size;
        let rows_now = |row: &Line<'_>| match self.reflow {
            RowReflow::Rewraps => rows_of(line_width(row), size.columns),
            _ => 1,
        };
        let viewport: usize = drawn.rows.iter().map(rows_now).sum();
        let above: usize = drawn.rows.iter().take(drawn.cursor_row).map(rows_now).sum();
        let wrapped_cursor = match self.reflow {
            RowReflow::Rewraps => drawn.cursor_column / size.columns.max(1),
            _ => 0,
        };
        let mut start = self.recent.len();
        let mut rows_before = drawn.rows.len();
        let mut rows_after = viewport;
        for line in self.recent.iter().rev() {
            let before = count_rows(line, old.columns);
            // Each row was ended with a line break, so it wraps on its own.
            let after = match self.reflow {
                RowReflow::Rewraps => line.rows(old.columns).iter().map(rows_now).sum(),
                _ => before,
            };
            rows_before += before;
            // A line that is partly in the scrollback stays as the terminal left it.
            if rows_before > old.rows || rows_after + after > size.rows {
                break;
            }
            rows_after += after;
            start -= 1;
        }
        let up = (rows_after - viewport) + above + wrapped_cursor;
        move_up(up.min(size.rows.saturating_sub(1)), out);
        out.push_str("\r\x1b[J");
        // Where the earlier ones are is not known from now on.
        self.recent.drain(..start);
        for line in self.recent.clone() {
            self.print_line(&line, out);
        }
    }

    /// Returns the bytes that erase the viewport, with the cursor below the history.
    pub fn leaving_bytes(&self) -> String {
        let mut out = String::new();
        if let Some(drawn) = &self.drawn {
            move_up(drawn.cursor_row, &mut out);
            out.push_str("\r\x1b[J");
        }
        out.push_str("\x1b[?25h");
        out
    }

    /// Forgets the viewport, because something else has used the terminal. The cursor is at the beginning of a row.
    pub fn forget_viewport(&mut self) {
        self.drawn = None;
    }

    fn print_line(&mut self, line: &HistoryLine, out: &mut String) {
        let rows = line.rows(self.size.columns);
        if self.shows_links {
            write_linked_rows(line, &rows, self.printed_rows, out);
        } else {
            for row in rows {
                write_line(&row, out);
                out.push_str("\r\n");
            }
        }
        self.printed_rows = self.printed_rows.saturating_add(self.row_count(line));
    }

    fn keep_recent(&mut self, line: HistoryLine) {
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
    }

    fn row_count(&self, line: &HistoryLine) -> usize {
        count_rows(line, self.size.columns)
    }

    /// Draws the rows that differ, and moves the cursor.
    fn draw_changes(&self, drawn: &View, view: &View, out: &mut String) {
        let mut row = drawn.cursor_row;
        let mut is_moved = false;
        let last_drawn = drawn.rows.len().saturating_sub(1);
        for (at, line) in view.rows.iter().enumerate() {
            let old = drawn.rows.get(at);
            if old == Some(line) {
                continue;
            }
            is_moved = true;
            match old {
                Some(old) => {
                    move_to_row(row, at, out);
                    self.draw_row_change(old, line, out);
                }
                None => {
                    // A new row at the end may have to scroll the screen.
                    let from = last_drawn.max(at.saturating_sub(1));
                    move_to_row(row, from, out);
                    out.push_str("\r\n");
                    write_line(line, out);
                }
            }
            row = at;
        }
        if view.rows.len() < drawn.rows.len() {
            is_moved = true;
            move_to_row(row, view.rows.len(), out);
            row = view.rows.len();
            out.push_str("\r\x1b[J");
        }
        let is_elsewhere =
            view.cursor_row != drawn.cursor_row || view.cursor_column != drawn.cursor_column;
        if is_moved || is_elsewhere {
            move_to_row(row, view.cursor_row, out);
            out.push('\r');
            move_right(view.cursor_column, out);
        }
    }

    /// Draws what differs between two versions of a row.
    fn draw_row_change(&self, old: &Line<'_>, new: &Line<'_>, out: &mut String) {
        let old_cells: Vec<_> = cells(old).collect();
        let new_cells: Vec<_> = cells(new).collect();
        let mut same = old_cells
            .iter()
            .zip(&new_cells)
            .take_while(|(one, other)| one == other)
            .count();
        // A combining mark belongs to the cell before it, which must be drawn with it.
        let is_mark = |cells: &[(&str, Style)], at: usize| {
            cells.get(at).is_some_and(|cell| text_width(cell.0) == 0)
        };
        while same > 0 && (is_mark(&old_cells, same) || is_mark(&new_cells, same)) {
            same -= 1;
        }
        let column: usize = new_cells
            .iter()
            .take(same)
            .map(|cell| text_width(cell.0))
            .sum();
        out.push('\r');
        move_right(column, out);
        let mut style = Style::new();
        for (text, wanted) in new_cells.iter().skip(same) {
            if *wanted != style {
                style = *wanted;
                write_style(style, out);
            }
            write_text(text, out);
        }
        if style != Style::new() {
            out.push_str("\x1b[m");
        }
        if line_width(new) < line_width(old) {
            out.push_str("\x1b[K");
        }
    }
}

/// The maximum number of rows that leave the viewport at once while the others move up.
const MAX_SHIFT: usize = 12;
/// The minimum number of rows that must move, so that moving them costs less than writing them.
const MIN_SHIFTED: usize = 3;

/// A move of the upper rows of the viewport, as text streams through it. The terminal moves them, so that only the new rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowShift {
    /// The number of rows that leave at the top.
    by: usize,
    /// The number of rows that move up.
    rows: usize,
}

impl RowShift {
    /// Finds the move that explains most rows of a view of the same height.
    fn find(drawn: &View, view: &View) -> Option<Self> {
        // Where the first row stays, nothing streams.
        if drawn.rows.len() != view.rows.len() || drawn.rows.first() == view.rows.first() {
            return None;
        }
        // Text streams by one or two rows a frame. A longer search would cost more than it saves.
        let shifts = (1..=MAX_SHIFT.min(drawn.rows.len())).map(|by| {
            let moved = drawn.rows.iter().skip(by).zip(&view.rows);
            let rows = moved.take_while(|(old, new)| old == new).count();
            Self { by, rows }
        });
        let best = shifts.max_by_key(|shift| shift.rows);
        best.filter(|shift| shift.rows >= MIN_SHIFTED)
    }

    /// Moves the rows on the screen, and returns the view as it is then drawn.
    fn apply(self, drawn: View, out: &mut String) -> View {
        move_up(drawn.cursor_row, out);
        // Deleted at the top, and inserted above the rows that stay: those come back to their place.
        _ = write!(out, "\r\x1b[{}M", self.by);
        move_to_row(0, self.rows, out);
        _ = write!(out, "\x1b[{}L", self.by);
        let mut rows = drawn.rows;
        rows.drain(..self.by);
        let blanks = std::iter::repeat_n(Line::default(), self.by);
        rows.splice(self.rows..self.rows, blanks);
        View {
            rows,
            cursor_row: self.rows,
            cursor_column: 0,
        }
    }
}

/// Returns the graphemes of a line with their styles.
fn cells<'a>(line: &'a Line<'_>) -> impl Iterator<Item = (&'a str, Style)> {
    line.spans.iter().flat_map(|piece| {
        piece
            .content
            .graphemes(true)
            .map(|text| (text, piece.style))
    })
}

fn print_view(view: &View, out: &mut String) {
    let last = view.rows.len().saturating_sub(1);
    for (at, row) in view.rows.iter().enumerate() {
        write_line(row, out);
        if at < last {
            out.push_str("\r\n");
        }
    }
    move_up(last.saturating_sub(view.cursor_row), out);
    out.push('\r');
    move_right(view.cursor_column, out);
}

/// Returns the rows that a line takes on a screen of this width.
fn count_rows(line: &HistoryLine, columns: usize) -> usize {
    line.rows(columns)
        .iter()
        .map(|row| rows_of(line_width(row), columns))
        .sum()
}

fn rows_of(width: usize, columns: usize) -> usize {
    width.div_ceil(columns.max(1)).max(1)
}

fn move_to_row(from: usize, to: usize, out: &mut String) {
    move_up(from.saturating_sub(to), out);
    let down = to.saturating_sub(from);
    if down > 0 {
        // Writing to a string cannot fail.
        _ = write!(out, "\x1b[{down}B");
    }
}

fn move_up(rows: usize, out: &mut String) {
    if rows > 0 {
        _ = write!(out, "\x1b[{rows}A");
    }
}

fn move_right(columns: usize, out: &mut String) {
    if columns > 0 {
        _ = write!(out, "\x1b[{columns}C");
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::text::Span;

    use super::*;

    const SIZE: TerminalSize = TerminalSize {
        columns: 20,
        rows: 8,
    };

    fn view(rows: &[&str], cursor_row: usize, cursor_column: usize) -> View {
        View {
            rows: rows
                .iter()
                .map(|row| Line::from(Span::raw((*row).to_owned())))
                .collect(),
            cursor_row,
            cursor_column,
        }
    }

    fn lines(texts: &[&str]) -> Vec<HistoryLine> {
        texts
            .iter()
            .map(|text| HistoryLine::words(Line::from(Span::raw((*text).to_owned())), 0))
            .collect()
    }

    fn nonzero(number: u16) -> std::num::NonZeroU16 {
        std::num::NonZeroU16::new(number).unwrap()
    }

    fn parser(rows: u16, columns: u16) -> vt100::Parser {
        vt100::Parser::new(nonzero(rows), nonzero(columns), 100)
    }

    fn rows(parser: &vt100::Parser) -> Vec<String> {
        let (_, columns) = parser.screen().size();
        let rows: Vec<String> = parser.screen().rows(0, columns.get()).collect();
        let last = rows
            .iter()
            .rposition(|row| !row.is_empty())
            .map_or(0, |at| at + 1);
        rows.into_iter().take(last).collect()
    }

    #[test]
    fn history_goes_above_the_viewport() {
        let mut parser = parser(8, 20);
        let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
        parser.process(
            screen
                .draw(Vec::new(), view(&["> ", "status"], 0, 2))
                .as_bytes(),
        );
        assert_eq!(rows(&parser), ["> ", "status"]);
        parser.process(
            screen
                .draw(
                    lines(&["one", "two"]),
                    view(&["live", "> x", "status"], 1, 3),
                )
                .as_bytes(),
        );
        assert_eq!(rows(&parser), ["one", "two", "live", "> x", "status"]);
        assert_eq!(parser.screen().cursor_position(), (3, 3));
        // Fewer rows.
        parser.process(
            screen
                .draw(Vec::new(), view(&["> xy", "status"], 0, 4))
                .as_bytes(),
        );
        assert_eq!(rows(&parser), ["one", "two", "> xy", "status"]);
        assert_eq!(parser.screen().cursor_position(), (2, 4));
        // More rows than are left on the screen.
        parser.process(
            screen
                .draw(
                    Vec::new(),
                    view(&["a", "b", "c", "d", "e", "> xy", "status"], 5, 4),
                )
                .as_bytes(),
        );
        assert_eq!(
            rows(&parser),
            ["two", "a", "b", "c", "d", "e", "> xy", "status"]
        );
        assert_eq!(parser.screen().cursor_position(), (6, 4));
        // The history is in the scrollback.
        parser.screen_mut().set_scrollback(1);
        assert_eq!(rows(&parser)[0], "one");
        parser.screen_mut().set_scrollback(0);
        parser.process(screen.leaving_bytes().as_bytes());
        assert_eq!(rows(&parser), ["two"]);
    }

    #[test]
    fn one_key_costs_few_bytes() {
        let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
        screen.draw(Vec::new(), view(&["> hello", "status"], 0, 7));
        let bytes = screen.draw(Vec::new(), view(&["> hellox", "status"], 0, 8));
        assert!(bytes.len() < 16, "{bytes:?}");
        assert_eq!(
            screen.draw(Vec::new(), view(&["> hellox", "status"], 0, 8)),
            ""
        );
    }

    #[test]
    fn streaming_rows_are_moved_by_the_terminal() {
        let words: Vec<_> = (0..40).map(|number| format!("row {number} text")).collect();
        for (height, by) in [(8, 1), (8, 3), (7, 2), (6, 1)] {
            let mut parser = parser(8, 20);
            let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
            for start in (0..30).step_by(by) {
                let live = words.iter().skip(start).take(height - 2);
                let mut shown: Vec<_> = live.map(String::as_str).collect();
                shown.extend(["> draft", "status"]);
                let drawn = screen.draw(Vec::new(), view(&shown, height - 2, 7));
                parser.process(drawn.as_bytes());
                assert_eq!(rows(&parser), shown, "{start}, {height}");
                let place = parser.screen().cursor_position();
                assert_eq!((usize::from(place.0), place.1), (height - 2, 7));
                let moves_enough = height - 2 - by >= MIN_SHIFTED;
                if start > 0 && moves_enough {
                    assert!(drawn.len() < 60 + 20 * by, "{drawn:?}");
                }
            }
        }
    }

    #[test]
    fn another_width_prints_the_screen_again() {
        let mut parser = parser(8, 20);
        let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
        let history = lines(&["1", "2", "3", "4", "5", "some more words here", "7"]);
        parser.process(
            screen
                .draw(history, view(&["> x", "status"], 0, 3))
                .as_bytes(),
        );
        parser.screen_mut().set_size(nonzero(8), nonzero(10));
        let size = TerminalSize {
            columns: 10,
            rows: 8,
        };
        parser.process(screen.resize(size).as_bytes());
        parser.process(
            screen
                .draw(Vec::new(), view(&["> x", "status"], 0, 3))
                .as_bytes(),
        );
        assert_eq!(
            rows(&parser),
            [
                "3",
                "4",
                "5",
                "some more",
                "words here",
                "7",
                "> x",
                "status"
            ]
        );
    }

    /// Returns everything in scrollback and screen, without the viewport's last row.
    fn everything(parser: &mut vt100::Parser) -> String {
        let mut text = String::new();
        parser.screen_mut().set_scrollback(usize::MAX);
        let mut left = parser.screen().scrollback();
        while left > 0 {
            parser.screen_mut().set_scrollback(left);
            text.push_str(&rows(parser)[0]);
            left -= 1;
        }
        parser.screen_mut().set_scrollback(0);
        text.push_str(&rows(parser).concat());
        text.split_whitespace().collect()
    }

    fn numbered_lines() -> Vec<HistoryLine> {
        let texts: Vec<_> = (10..30)
            .map(|number| format!("<{number}> some words"))
            .collect();
        lines(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[track_caller]
    fn assert_each_line_once(text: &str) {
        for number in 10..30 {
            let mark = format!("<{number}>");
            assert_eq!(text.matches(&mark).count(), 1, "{mark} in {text}");
        }
        assert_eq!(text.matches("status").count(), 1, "{text}");
    }

    #[test]
    fn a_terminal_that_cuts_rows_repeats_none() {
        for widths in [[20, 12], [12, 20]] {
            let [before, after] = widths.map(|columns| TerminalSize { columns, rows: 8 });
            let mut parser = parser(8, before.columns as u16);
            let mut screen = InlineScreen::new(before, RowReflow::Cuts);
            let drawn = screen.draw(numbered_lines(), view(&["> x", "status"], 0, 3));
            parser.process(drawn.as_bytes());
            parser
                .screen_mut()
                .set_size(nonzero(8), nonzero(after.columns as u16));
            parser.process(screen.resize(after).as_bytes());
            let drawn = screen.draw(Vec::new(), view(&["> x", "status"], 0, 3));
            parser.process(drawn.as_bytes());
            assert_each_line_once(&everything(&mut parser));
        }
    }

    #[test]
    fn a_terminal_that_wraps_rows_anew_repeats_none() {
        for widths in [[20, 12], [12, 20], [20, 9]] {
            let [before, after] = widths.map(|columns| TerminalSize { columns, rows: 8 });
            let mut screen = InlineScreen::new(before, RowReflow::Rewraps);
            let shown = view(&["a draft", "status"], 0, 7);
            screen.draw(numbered_lines(), shown.clone());
            // The terminal as it is after the change: the same rows, wrapped at the new width.
            let mut parser = parser(8, after.columns as u16);
            for line in numbered_lines() {
                for row in line.rows(before.columns) {
                    parser.process(format!("{row}\r\n").as_bytes());
                }
            }
            parser.process(b"a draft\r\nstatus\x1b[A\r\x1b[7C");
            parser.process(screen.resize(after).as_bytes());
            parser.process(screen.draw(Vec::new(), shown).as_bytes());
            let text = everything(&mut parser);
            assert_each_line_once(&text);
            assert_eq!(text.matches("adraft").count(), 1, "{text}");
        }
    }
}
