//! Converts the output of a program to plain text: what a terminal would show, without colours.
//!
//! A progress bar that rewrites its line a thousand times leaves one line, and a full-screen
//! program its last screen. Only the lines that a terminal of [`ROWS`] rows could still change are
//! held back; lines that scroll off are passed on. Lines are not wrapped: a line is as long as the
//! program made it.

use std::collections::VecDeque;

use unicode_width::UnicodeWidthChar;
use vte::{Params, Parser, Perform};

use crate::capture::whole_characters;

/// The number of rows of the screen.
pub(crate) const ROWS: usize = 40;
/// The number of characters of a line that can still be rewritten; longer lines are passed on.
const MAX_CELLS: usize = 4096;
/// The number of bytes after which an unfinished escape sequence is dropped: the output is probably
/// binary.
const MAX_SILENT_BYTES: usize = 4096;
const TAB: usize = 8;
/// A placeholder in the further columns of a wide character or a tab.
const FILLER: char = '\0';

/// A converter that reads output piece by piece. Memory is bounded by one screen and the text of
/// one piece.
pub(crate) struct TerminalTextConverter {
    parser: Parser,
    screen: ScreenBuffer,
    /// The start of a character that was cut off at the end of a piece.
    carry: Vec<u8>,
    silent: usize,
}

impl TerminalTextConverter {
    pub(crate) fn new() -> Self {
        Self {
            parser: Parser::new(),
            screen: ScreenBuffer::default(),
            carry: Vec::new(),
            silent: 0,
        }
    }

    /// Takes a piece of output, and passes on the text that nothing can change any more.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) {
        let continued: Vec<u8>;
        let mut bytes = bytes;
        if !self.carry.is_empty() {
            continued = [&self.carry, bytes].concat();
            bytes = &continued;
        }
        let whole = whole_characters(bytes);
        self.carry = bytes.get(whole.len()..).unwrap_or_default().to_vec();
        let mut rest = whole;
        // Fast path: plain text at the end of the screen needs no parsing except for its last
        // screenful.
        if is_plain(whole) && self.screen.can_append() {
            let kept = last_screen(whole);
            if kept.len() < whole.len() {
                self.screen.scroll_all();
                self.screen.flush_scrolled(out);
                out(whole.get(..whole.len() - kept.len()).unwrap_or_default());
                rest = kept;
            }
        }
        self.parse_bytes(rest);
        self.screen.flush_scrolled(out);
    }

    /// Returns the number of line endings that are held back, and whether a line without one
    /// follows.
    pub(crate) fn pending_lines(&self) -> (usize, bool) {
        let open = self
            .screen
            .lines
            .back()
            .is_some_and(|line| !line.is_empty())
            || !self.carry.is_empty();
        (self.screen.lines.len() - 1, open)
    }

    /// Passes on the rest: the screen as it is.
    pub(crate) fn finish(&mut self, out: &mut impl FnMut(&[u8])) {
        if !self.carry.is_empty() {
            self.carry.clear();
            self.screen.print_char(char::REPLACEMENT_CHARACTER);
        }
        self.screen.scroll_all();
        self.screen.flush_scrolled(out);
    }

    fn parse_bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(MAX_SILENT_BYTES) {
            self.screen.has_effect = false;
            // The start of the last escape sequence, to find out afterwards whether it has ended.
            let escape = piece.iter().rposition(|byte| *byte == 0x1b).unwrap_or(0);
            let (before, after) = piece.split_at(escape);
            self.parser.advance(&mut self.screen, before);
            if after.first() == Some(&0x1b) {
                self.screen.is_idle = false;
            }
            self.parser.advance(&mut self.screen, after);
            self.silent = if self.screen.has_effect {
                0
            } else {
                self.silent + piece.len()
            };
            if self.silent >= MAX_SILENT_BYTES {
                self.parser = Parser::new();
                self.silent = 0;
                self.screen.is_idle = true;
            }
        }
    }
}

/// Returns true if a terminal would only append these bytes.
fn is_plain(bytes: &[u8]) -> bool {
    let special = |byte: u8| (byte < 0x20 && byte != b'\n' && byte != b'\t') || byte == 0x7f;
    // Blocks without branches, which the compiler turns into vector instructions.
    bytes.chunks(256).all(|block| {
        !block
            .iter()
            .fold(false, |found, &byte| found | special(byte))
    })
}

/// Returns the end of a text that a screen still holds.
fn last_screen(bytes: &[u8]) -> &[u8] {
    let mut start = bytes.len().saturating_sub(MAX_CELLS);
    while bytes.get(start).is_some_and(|byte| byte & 0xc0 == 0x80) {
        start += 1;
    }
    let long = bytes.get(start..).unwrap_or_default();
    let newlines = long
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    let first = newlines.map(|(at, _)| at + 1).nth(ROWS - 1).unwrap_or(0);
    long.get(first..).unwrap_or_default()
}

/// A screen of at least one and at most [`ROWS`] lines.
struct ScreenBuffer {
    lines: VecDeque<Vec<char>>,
    row: usize,
    column: usize,
    saved: (usize, usize),
    /// The normal screen, while a full-screen program shows its own.
    below: Option<VecDeque<Vec<char>>>,
    /// The text that scrolled off.
    gone: Vec<u8>,
    /// True if any byte had an effect since this was reset.
    has_effect: bool,
    /// True if no escape sequence is open.
    is_idle: bool,
}

impl Default for ScreenBuffer {
    fn default() -> Self {
        let lines = VecDeque::from([Vec::new()]);
        let saved = (0, 0);
        let below = None;
        let gone = Vec::new();
        Self {
            lines,
            row: 0,
            column: 0,
            saved,
            below,
            gone,
            has_effect: false,
            is_idle: true,
        }
    }
}

impl ScreenBuffer {
    fn can_append(&self) -> bool {
        let at_end = self
            .lines
            .get(self.row)
            .is_some_and(|line| line.len() == self.column);
        self.is_idle && self.below.is_none() && self.row + 1 == self.lines.len() && at_end
    }

    fn flush_scrolled(&mut self, out: &mut impl FnMut(&[u8])) {
        if !self.gone.is_empty() {
            out(&self.gone);
            self.gone.clear();
        }
    }

    /// Passes on all lines. The last one stays open, so that further output continues it.
    fn scroll_all(&mut self) {
        let lines = std::mem::replace(&mut self.lines, VecDeque::from([Vec::new()]));
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                self.gone.push(b'\n');
            }
            write_line(line, &mut self.gone);
        }
        self.row = 0;
        self.column = 0;
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the row is made first, where it is missing"
    )]
    fn current_line(&mut self) -> &mut Vec<char> {
        if self.lines.len() <= self.row {
            self.lines.resize_with(self.row + 1, Vec::new);
        }
        &mut self.lines[self.row]
    }

    fn print_char(&mut self, c: char) {
        let width = c.width().unwrap_or(0).max(1);
        if self.column + width > MAX_CELLS {
            if self.row + 1 < self.lines.len() {
                return;
            }
            self.scroll_all();
        }
        let column = self.column;
        let line = self.current_line();
        if line.len() < column {
            line.resize(column, ' ');
        }
        for at in 0..width {
            let cell = if at == 0 { c } else { FILLER };
            match line.get_mut(column + at) {
                Some(old) => *old = cell,
                None => line.push(cell),
            }
        }
        self.column += width;
    }

    fn print_tab(&mut self) {
        let column = self.column;
        let next = (column / TAB + 1) * TAB;
        let line = self.current_line();
        if line.len() == column && next <= MAX_CELLS {
            line.push('\t');
            line.resize(next, FILLER);
        }
        self.column = next.min(MAX_CELLS);
    }

    fn next_line(&mut self) {
        self.column = 0;
        self.row += 1;
        if self.row >= ROWS {
            self.row = ROWS - 1;
            if let Some(line) = self.lines.pop_front().filter(|_| self.below.is_none()) {
                write_line(&line, &mut self.gone);
                self.gone.push(b'\n');
            }
        }
        self.current_line();
    }

    fn move_cursor(&mut self, row: usize, column: usize) {
        self.row = row.min(ROWS - 1);
        self.column = column.min(MAX_CELLS - 1);
        self.current_line();
    }

    fn erase_line(&mut self, how: usize) {
        let column = self.column;
        let line = self.current_line();
        match how {
            0 => line.truncate(column),
            1 => line
                .iter_mut()
                .take(column + 1)
                .for_each(|cell| *cell = ' '),
            _ => line.clear(),
        }
    }

    fn erase_screen(&mut self, how: usize) {
        let row = self.row;
        match how {
            0 => {
                self.erase_line(0);
                self.lines.truncate(row + 1);
            }
            1 => {
                self.lines.iter_mut().take(row).for_each(Vec::clear);
                self.erase_line(1);
            }
            2 => self.lines.iter_mut().for_each(Vec::clear),
            // Text that scrolled off was already passed on.
            _ => {}
        }
    }

    fn insert_lines(&mut self, count: usize) {
        for _ in 0..count.min(ROWS) {
            self.lines.insert(self.row, Vec::new());
        }
        // Lines pushed off the bottom of the screen are lost, as on a terminal.
        self.lines.truncate(ROWS);
    }

    fn delete_lines(&mut self, count: usize) {
        let end = (self.row + count.min(ROWS)).min(self.lines.len());
        self.lines.drain(self.row.min(end)..end);
        self.current_line();
    }

    fn edit_cells(&mut self, action: char, count: usize) {
        let column = self.column;
        let count = count.min(MAX_CELLS);
        let line = self.current_line();
        let from = column.min(line.len());
        let to = (from + count).min(line.len());
        match action {
            'P' => drop(line.drain(from..to)),
            'X' => line
                .iter_mut()
                .take(to)
                .skip(from)
                .for_each(|cell| *cell = ' '),
            _ => {
                line.splice(from..from, std::iter::repeat_n(' ', count));
                line.truncate(MAX_CELLS);
            }
        }
    }

    /// Switches to or from the alternate screen, whose content is discarded on leaving.
    fn switch_screen(&mut self, other: bool) {
        match (other, self.below.take()) {
            (true, None) => {
                self.saved = (self.row, self.column);
                self.below = Some(std::mem::replace(
                    &mut self.lines,
                    VecDeque::from([Vec::new()]),
                ));
                self.row = 0;
                self.column = 0;
            }
            (true, below) => self.below = below,
            (false, Some(below)) => {
                self.lines = below;
                (self.row, self.column) = self.saved;
            }
            (false, None) => {}
        }
    }
}

impl Perform for ScreenBuffer {
    fn print(&mut self, c: char) {
        self.has_effect = true;
        self.is_idle = true;
        Self::print_char(self, c);
    }

    fn execute(&mut self, byte: u8) {
        self.has_effect = true;
        match byte {
            b'\n' | 0x0b | 0x0c => self.next_line(),
            b'\r' => self.column = 0,
            0x08 => self.column = self.column.saturating_sub(1),
            b'\t' => self.print_tab(),
            // A terminal shows nothing for it, but names separated by NUL bytes, as `find -print0`
            // writes them, must not run together.
            0 => self.print_char('\u{2400}'),
            _ => {}
        }
    }

    fn osc_dispatch(&mut self, _: &[&[u8]], _: bool) {
        self.has_effect = true;
        self.is_idle = true;
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _: bool, action: char) {
        self.has_effect = true;
        self.is_idle = true;
        let mut numbers = params
            .iter()
            .map(|param| usize::from(param.first().copied().unwrap_or(0)));
        let first = numbers.next().unwrap_or(0);
        let second = numbers.next().unwrap_or(0);
        let count = first.max(1);
        let row = self.row;
        let column = self.column;
        match (intermediates, action) {
            (b"?", 'h' | 'l') if matches!(first, 47 | 1047 | 1049) => {
                self.switch_screen(action == 'h')
            }
            ([], 'A') => self.move_cursor(row.saturating_sub(count), column),
            ([], 'B' | 'e') => self.move_cursor(row + count, column),
            ([], 'C' | 'a') => self.move_cursor(row, column + count),
            ([], 'D') => self.move_cursor(row, column.saturating_sub(count)),
            ([], 'E') => self.move_cursor(row + count, 0),
            ([], 'F') => self.move_cursor(row.saturating_sub(count), 0),
            ([], 'G' | '`') => self.move_cursor(row, count - 1),
            ([], 'd') => self.move_cursor(count - 1, column),
            ([], 'H' | 'f') => self.move_cursor(count - 1, second.max(1) - 1),
            ([], 'J') => self.erase_screen(first),
            ([], 'K') => self.erase_line(first),
            ([], 'L') => self.insert_lines(count),
            ([], 'M') => self.delete_lines(count),
            ([], 'P' | 'X' | '@') => self.edit_cells(action, count),
            ([], 's') => self.saved = (row, column),
            ([], 'u') => self.move_cursor(self.saved.0, self.saved.1),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], _: bool, byte: u8) {
        self.has_effect = true;
        self.is_idle = true;
        match (intermediates, byte) {
            ([], b'7') => self.saved = (self.row, self.column),
            ([], b'8') => self.move_cursor(self.saved.0, self.saved.1),
            ([], b'D') => self.move_cursor(self.row + 1, self.column),
            ([], b'E') => self.next_line(),
            ([], b'M') if self.row == 0 => self.insert_lines(1),
            ([], b'M') => self.row -= 1,
            ([], b'c') => self.erase_screen(2),
            _ => {}
        }
    }
}

fn write_line(line: &[char], out: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    for c in line.iter().filter(|c| **c != FILLER) {
        out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }
}

#[cfg(test)]
mod tests;
