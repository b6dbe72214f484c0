//! Draws history and viewport as bytes, without leaving the terminal's own screen.
//!
//! The history is printed once, as any program prints, so that the scrollback, the search and the selection of the terminal work
//! on it. The viewport is the rows below; it is drawn over when it changes, and it moves down as history is printed. Only
//! relative movements are used, so that the terminal need not be asked where the cursor is: that costs a round trip, and a
//! serial console never answers.
//!
//! When the width changes, some terminals rewrap their rows and others cut them off. The lines that
//! are surely still visible are then erased and printed again; [`RowReflow`] says where they are.
//! What is in the scrollback stays as it is. In an unknown terminal the whole screen is printed
//! again: some lines may then be twice in the scrollback, but none is lost.

use std::collections::VecDeque;
use std::fmt::Write as _;

use ratatui_core::style::Style;
use ratatui_core::text::Line;
use unicode_segmentation::UnicodeSegmentation;

use crate::lines::{HistoryLine, line_width, text_width, write_line, write_style, write_text};
use crate::links::linked_rows;
use crate::view::{TerminalSize, View};

/// The maximum number of lines of the history that are kept to print the screen again.
const MAX_RECENT: usize = 500;
/// Begins an update that the terminal shows as one.
const BEGIN_UPDATE: &str = "\x1b[?2026h\x1b[?25l";
/// Ends such an update.
const END_UPDATE: &str = "\x1b[?25h\x1b[?2026l";

/// The effect of a new width on the rows that a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowReflow {
    /// Rows that are too long continue in the next row.
    Rewraps,
    /// Rows stay where they are, and are cut off.
    Cuts,
    /// The effect is unknown.
    Unknown,
}

/// The state of the part of the terminal's screen that Sabir draws.
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
        let is_framed = match self.drawn.take() {
            Some(drawn) => self.draw_over(drawn, &history, &view, &mut out),
            None => {
                self.print_all(&history, &view, &mut out);
                true
            }
        };
        if is_framed {
            out = format!("{BEGIN_UPDATE}{out}{END_UPDATE}");
        }
        for line in history {
            self.keep_recent(line);
        }
        self.drawn = Some(view);
        out
    }

    /// Prints lines and the viewport from the cursor on.
    fn print_all(&mut self, history: &[HistoryLine], view: &View, out: &mut String) {
        for line in history {
            self.print_line(line, out);
        }
        print_view(view, out);
    }

    /// Prints lines and draws the viewport over the old one. Returns true if the terminal should show it as one update.
    fn draw_over(
        &mut self,
        drawn: View,
        history: &[HistoryLine],
        view: &View,
        out: &mut String,
    ) -> bool {
        let shift = RowShift::find(&drawn, view).filter(|_| history.is_empty());
        let drawn = match shift {
            Some(shift) => shift.apply(drawn, out),
            None => drawn,
        };
        let rows = self.single_rows(history).map(|mut rows| {
            rows.extend(view.rows.iter().cloned().map(NewRow::plain));
            rows
        });
        let Some(change) = rows.and_then(|rows| RowChange::find(&drawn, rows, self.size)) else {
            self.print_over(&drawn, history, view, out);
            return true;
        };
        for line in history {
            self.count_printed(line);
        }
        change.draw(&drawn, view, out);
        // A change of one row needs no frame around it.
        let breaks = out.matches('\n').count() + out.matches('\r').count();
        shift.is_some() || breaks > 3
    }

    /// Prints lines and the viewport over the old one, below the rows that show the same already.
    fn print_over(&mut self, drawn: &View, history: &[HistoryLine], view: &View, out: &mut String) {
        let mut kept = 0;
        let mut lines = history;
        while let Some((line, rest)) = lines.split_first() {
            let Some(rows) = self.single_rows(std::slice::from_ref(line)) else {
                break;
            };
            let old = drawn.rows.get(kept..kept + rows.len()).unwrap_or_default();
            let is_shown = rows.len() == old.len()
                && kept + rows.len() < drawn.rows.len()
                && old.iter().zip(&rows).all(|(old, new)| new.is_shown_by(old));
            if !is_shown {
                break;
            }
            self.count_printed(line);
            kept += rows.len();
            lines = rest;
        }
        move_to_row(drawn.cursor_row, kept, out);
        out.push_str("\r\x1b[J");
        self.print_all(lines, view, out);
    }

    /// Returns the rows of these lines; `None` if one of them continues in further rows of the terminal, or they are more than it shows.
    fn single_rows(&self, history: &[HistoryLine]) -> Option<Vec<NewRow>> {
        let mut new = Vec::new();
        let mut number = self.printed_rows;
        for line in history {
            let rows = line.rows(self.size.columns);
            if new.len() + rows.len() > self.size.rows
                || rows.iter().any(|row| line_width(row) > self.size.columns)
            {
                return None;
            }
            let mut linked = match self.shows_links {
                true => linked_rows(line, &rows, number).unwrap_or_default(),
                false => Vec::new(),
            };
            number = number.saturating_add(rows.len());
            linked.resize(rows.len(), String::new());
            let linked = linked
                .into_iter()
                .map(|bytes| Some(bytes).filter(|bytes| !bytes.is_empty()));
            new.extend(
                rows.into_iter()
                    .zip(linked)
                    .map(|(line, linked)| NewRow { line, linked }),
            );
        }
        Some(new)
    }

    /// Returns the size for which the screen is drawn.
    pub fn size(&self) -> TerminalSize {
        self.size
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

    /// Returns the bytes that erase the screen and print its lines again, because something else may have written over them. Draw the
    /// view afterwards.
    pub fn redraw(&mut self) -> String {
        let viewport = self.drawn.take().map_or(0, |drawn| drawn.rows.len());
        let mut start = self.recent.len();
        let mut rows = viewport;
        for line in self.recent.iter().rev() {
            rows += self.row_count(line);
            if rows > self.size.rows {
                break;
            }
            start -= 1;
        }
        let mut out = format!("{BEGIN_UPDATE}\x1b[H\x1b[J");
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
    pub fn exit_bytes(&self) -> String {
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
        let linked = match self.shows_links {
            true => linked_rows(line, &rows, self.printed_rows),
            false => None,
        };
        match linked {
            Some(linked) => {
                for row in linked {
                    out.push_str(&row);
                    out.push_str("\r\n");
                }
            }
            None => {
                for row in rows {
                    write_line(&row, out);
                    out.push_str("\r\n");
                }
            }
        }
        self.count_printed(line);
    }

    /// Counts the rows of a line that was printed.
    fn count_printed(&mut self, line: &HistoryLine) {
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
}

/// A row that should be on the screen.
#[derive(Debug)]
struct NewRow {
    line: Line<'static>,
    /// The bytes of the row, if there are links in it.
    linked: Option<String>,
}

impl NewRow {
    fn plain(line: Line<'static>) -> Self {
        Self { line, linked: None }
    }

    /// Returns true if the row looks like this one, and needs no links.
    fn is_shown_by(&self, old: &Line<'_>) -> bool {
        self.linked.is_none() && look_equal(old, &self.line)
    }

    fn write(&self, out: &mut String) {
        match &self.linked {
            Some(bytes) => out.push_str(bytes),
            None => write_line(&self.line, out),
        }
    }

    /// Draws the row over another one. `row` is the row of the cursor, and `at` that of both. Returns where the cursor is then.
    fn draw_over(&self, old: &Line<'_>, row: usize, at: usize, out: &mut String) -> usize {
        if self.is_shown_by(old) {
            return row;
        }
        move_to_row(row, at, out);
        if self.linked.is_some() {
            out.push('\r');
            self.write(out);
            if line_width(&self.line) < line_width(old) {
                out.push_str("\x1b[K");
            }
        } else {
            draw_row_change(old, &self.line, out);
        }
        at
    }
}

/// A change of the viewport and of the rows above it that were printed meanwhile. Unchanged rows are not written again: the rows of a
/// streamed block become history in place, and the terminal itself moves the draft below them.
#[derive(Debug)]
struct RowChange {
    /// The rows from the first one of the old viewport on.
    rows: Vec<NewRow>,
    /// The number of rows at the end that belong together in both.
    below: usize,
}

impl RowChange {
    /// Finds the change; `None` if some of the rows would leave the screen before they are drawn.
    fn find(drawn: &View, rows: Vec<NewRow>, size: TerminalSize) -> Option<Self> {
        let mut below = 0;
        let mut differing = 0;
        let pairs = drawn.rows.iter().rev().zip(rows.iter().rev());
        for (at, (old, new)) in pairs.enumerate() {
            if new.is_shown_by(old) {
                below = at + 1;
                differing = 0;
            } else {
                differing += 1;
            }
            // One row, such as that of the status, may change between others that stay.
            if differing > 1 {
                break;
            }
        }
        let added = rows.len().saturating_sub(drawn.rows.len());
        let fits = drawn.rows.len() <= size.rows && added + below <= size.rows;
        (fits && !drawn.rows.is_empty()).then_some(Self { rows, below })
    }

    /// Draws the rows that differ, and moves the cursor to its place in the view, whose rows are the last ones.
    fn draw(&self, drawn: &View, view: &View, out: &mut String) {
        let begun = out.len();
        let mut row = drawn.cursor_row;
        let old_above = drawn.rows.len() - self.below;
        let new_above = self.rows.len() - self.below;
        let pairs = drawn.rows.iter().zip(&self.rows).enumerate();
        for (at, (old, new)) in pairs.take(old_above.min(new_above)) {
            row = new.draw_over(old, row, at, out);
        }
        if new_above > old_above {
            row = self.insert_rows(drawn, row, out);
        } else if new_above < old_above {
            move_to_row(row, new_above, out);
            row = new_above;
            match self.below {
                0 => out.push_str("\r\x1b[J"),
                // Writing to a string cannot fail.
                _ => _ = write!(out, "\r\x1b[{}M", old_above - new_above),
            }
        }
        let below = drawn.rows.iter().skip(old_above);
        let pairs = below.zip(self.rows.iter().skip(new_above));
        for (at, (old, new)) in pairs.enumerate() {
            row = new.draw_over(old, row, new_above + at, out);
        }
        let cursor_row = self.rows.len() - view.rows.len() + view.cursor_row;
        let is_elsewhere =
            cursor_row != drawn.cursor_row || view.cursor_column != drawn.cursor_column;
        if out.len() > begun || is_elsewhere {
            move_to_row(row, cursor_row, out);
            out.push('\r');
            move_right(view.cursor_column, out);
        }
    }

    /// Inserts the rows that are more than before. Returns the row of the cursor.
    fn insert_rows(&self, drawn: &View, mut row: usize, out: &mut String) -> usize {
        let old_above = drawn.rows.len() - self.below;
        let new_above = self.rows.len() - self.below;
        let last = drawn.rows.len().saturating_sub(1);
        let added = new_above - old_above;
        move_to_row(row, last, out);
        row = last;
        if self.below > 0 {
            // The screen may have to scroll; then the rows below are moved to its end.
            out.extend(std::iter::repeat_n('\n', added));
            move_to_row(last + added, old_above, out);
            // Writing to a string cannot fail.
            _ = write!(out, "\r\x1b[{added}L");
            row = old_above;
        }
        for (at, new) in self.rows.iter().enumerate().take(new_above).skip(old_above) {
            if at > row {
                out.push_str("\r\n");
            }
            new.write(out);
            row = at;
        }
        row
    }
}

/// Returns true if two rows look the same, however their pieces are cut.
fn look_equal(one: &Line<'_>, other: &Line<'_>) -> bool {
    fn styled_chars(line: &Line<'_>) -> impl Iterator<Item = (char, Style)> {
        let pieces = line.spans.iter();
        pieces.flat_map(|piece| piece.content.chars().map(|c| (c, piece.style)))
    }
    one == other || one.style == other.style && styled_chars(one).eq(styled_chars(other))
}

/// Returns true for a character that takes one column in every terminal.
fn has_certain_width(c: char) -> bool {
    c.is_ascii() || "›…·│─┼└●✓✗".contains(c)
}

/// Draws what differs between two versions of a row. The cursor is in the row.
fn draw_row_change(old: &Line<'_>, new: &Line<'_>, out: &mut String) {
    let old_cells: Vec<_> = cells(old).collect();
    let new_cells: Vec<_> = cells(new).collect();
    // A combining mark belongs to the cell before it, which must be drawn with it.
    let is_mark = |cells: &[(&str, Style)], at: usize| {
        cells.get(at).is_some_and(|cell| text_width(cell.0) == 0)
    };
    let pairs = old_cells.iter().zip(&new_cells);
    let mut same = pairs.take_while(|(one, other)| one == other).count();
    while same > 0 && (is_mark(&old_cells, same) || is_mark(&new_cells, same)) {
        same -= 1;
    }
    let width =
        |cells: &[(&str, Style)]| cells.iter().map(|cell| text_width(cell.0)).sum::<usize>();
    // What follows stays where it is, if it is as far from the beginning as before.
    let pairs = old_cells
        .iter()
        .skip(same)
        .rev()
        .zip(new_cells.iter().skip(same).rev());
    // Of other characters a terminal may think differently.
    let is_certain = |line: &Line<'_>| {
        line.spans
            .iter()
            .all(|piece| piece.content.chars().all(has_certain_width))
    };
    let is_in_place = line_width(old) == line_width(new) && is_certain(old) && is_certain(new);
    let same_after = match is_in_place {
        true => pairs.take_while(|(one, other)| one == other).count(),
        false => 0,
    };
    out.push('\r');
    move_right(width(new_cells.get(..same).unwrap_or_default()), out);
    let mut style = Style::new();
    for (text, wanted) in new_cells
        .iter()
        .take(new_cells.len() - same_after)
        .skip(same)
    {
        if *wanted != style {
            write_style(style, *wanted, out);
            style = *wanted;
        }
        write_text(text, out);
    }
    write_style(style, Style::new(), out);
    if line_width(new) < line_width(old) {
        out.push_str("\x1b[K");
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
        // Deleted at the top, and inserted above the rows that stay: those come back to their
        // place.
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
        parser.process(screen.exit_bytes().as_bytes());
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
    fn streamed_rows_become_history_where_they_are() {
        // At the bottom of the screen, and above it.
        for used in [0, 6] {
            let mut parser = parser(8, 20);
            let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
            let before: Vec<_> = (0..used).map(|number| format!("old {number}")).collect();
            let before: Vec<_> = before.iter().map(String::as_str).collect();
            let begun = screen.draw(lines(&before), view(&["one", "two", "> d", "status"], 2, 3));
            parser.process(begun.as_bytes());
            // The time in the status changes meanwhile.
            let drawn = screen.draw(
                lines(&["one"]),
                view(&["two and", "three", "four", "> d", "status 1"], 3, 3),
            );
            parser.process(drawn.as_bytes());
            let shown = rows(&parser);
            let end = ["one", "two and", "three", "four", "> d", "status 1"];
            assert_eq!(shown[shown.len() - end.len()..], end);
            for kept in ["one", "two", "> d", "status"] {
                assert!(!drawn.contains(kept), "{kept} in {drawn:?}");
            }
            assert_eq!(
                usize::from(parser.screen().cursor_position().0),
                shown.len() - 2
            );
            // All of it is decided, and the viewport shrinks.
            let drawn = screen.draw(
                lines(&["two and", "three", "four"]),
                view(&["> d", "status 1"], 0, 3),
            );
            parser.process(drawn.as_bytes());
            assert_eq!(rows(&parser), shown);
            assert_eq!(drawn, "");
            let drawn = screen.draw(Vec::new(), view(&["> de", "status 1"], 0, 4));
            parser.process(drawn.as_bytes());
            let shown = rows(&parser);
            assert_eq!(shown[shown.len() - 2..], ["> de", "status 1"]);
        }
    }

    #[test]
    fn a_screen_that_something_else_wrote_on_is_drawn_again() {
        let mut parser = parser(8, 20);
        let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
        let shown = view(&["live", "> x", "status"], 1, 3);
        let drawn = screen.draw(numbered_lines(), shown.clone());
        parser.process(drawn.as_bytes());
        let before = rows(&parser);
        parser.process(b"\x1b[Ha warning\r\nof the kernel");
        parser.process(screen.redraw().as_bytes());
        parser.process(screen.draw(Vec::new(), shown).as_bytes());
        assert_eq!(rows(&parser), before);
        assert_eq!(parser.screen().cursor_position(), (6, 3));
    }

    #[test]
    fn rows_with_links_are_written_again() {
        let mut parser = parser(8, 20);
        let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown).with_links(true);
        let row = "http://a.b/c and";
        let drawn = screen.draw(Vec::new(), view(&[row, "> ", "status"], 1, 2));
        parser.process(drawn.as_bytes());
        let drawn = screen.draw(lines(&[row]), view(&["> ", "status"], 0, 2));
        assert!(drawn.contains("\x1b]8;id="), "{drawn:?}");
        parser.process(drawn.as_bytes());
        assert_eq!(rows(&parser), [row, "> ", "status"]);
    }

    #[test]
    fn the_middle_of_a_row_is_drawn_alone() {
        let mut screen = InlineScreen::new(SIZE, RowReflow::Unknown);
        screen.draw(Vec::new(), view(&["> ", "working 12 s, Esc"], 0, 2));
        let drawn = screen.draw(Vec::new(), view(&["> ", "working 13 s, Esc"], 0, 2));
        assert_eq!(drawn, "\x1b[1B\r\x1b[9C3\x1b[1A\r\x1b[2C");
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
