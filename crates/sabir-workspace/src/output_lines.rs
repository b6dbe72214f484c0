//! Reads a stored output as numbered lines of plain text: a page of them, or the matching ones.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

use crate::capture::{decode_printable, whole_characters};
use crate::output::{MAX_FILE_BYTES, OutputPiece, StoredOutput};
use crate::terminal_text::TerminalTextConverter;

/// The number of bytes of a line that are examined.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The number of first bytes in which a NUL makes an output binary.
const LOOKED_AT_BYTES: usize = 8 << 10;

/// The lines to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageOptions {
    /// The first line, from 1.
    pub first: u64,
    /// The last line.
    pub last: u64,
    /// The size at which the page ends; a page has at least one line.
    pub max_bytes: usize,
    /// The size to which longer lines are cut, in bytes.
    pub max_line_bytes: usize,
}

/// A line of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLine {
    /// The line number, from 1.
    pub number: u64,
    /// The line without its ending, invalid UTF-8 replaced.
    pub text: String,
    /// The number of bytes of it that are left out.
    pub cut_bytes: u64,
    /// True if the line has an ending.
    pub ended: bool,
    /// True if the line matches the search expression, if there is one.
    pub matched: bool,
}

/// A line as read, and the number of its bytes that are missing.
struct RawLine<'a> {
    number: u64,
    bytes: &'a [u8],
    missing: u64,
    ended: bool,
}

type LineVisitor<'a> = dyn FnMut(RawLine<'_>) -> ControlFlow<()> + 'a;

/// Returns the lines of a page.
pub(crate) fn read_page(
    output: &StoredOutput,
    lines: u64,
    options: &PageOptions,
) -> io::Result<Vec<OutputLine>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    visit_lines(output, lines, &mut |raw| {
        if raw.number > options.last {
            return ControlFlow::Break(());
        }
        if raw.number >= options.first {
            let line = to_output_line(&raw, options.max_line_bytes, false);
            bytes += line.text.len() + 1;
            if bytes > options.max_bytes && !found.is_empty() {
                return ControlFlow::Break(());
            }
            found.push(line);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Returns the matching lines with one line before and after each, and whether there are more.
/// `max` counts context lines too.
pub(crate) fn search_lines(
    output: &StoredOutput,
    lines: u64,
    matcher: &RegexMatcher,
    max: usize,
    max_line_bytes: usize,
) -> io::Result<(Vec<OutputLine>, bool)> {
    let mut found: Vec<OutputLine> = Vec::new();
    let mut before = VecDeque::new();
    let mut more = false;
    visit_lines(output, lines, &mut |raw| {
        let matched = matcher.is_match(raw.bytes).unwrap_or(false);
        let after = found
            .last()
            .is_some_and(|last| last.matched && last.number + 1 == raw.number);
        let line = to_output_line(&raw, max_line_bytes, matched);
        // One match beyond the limit proves that there are more, so the search can stop.
        if matched && found.len() >= max {
            more = true;
            return ControlFlow::Break(());
        }
        if matched {
            found.extend(before.drain(..));
        }
        if matched || after {
            before.clear();
            found.push(line);
        } else {
            before.clear();
            before.push_back(line);
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, more))
}

/// Counts the lines of an output without a gap; 0 if it cannot be read.
pub(crate) fn count_lines(output: &StoredOutput) -> u64 {
    let mut lines = 0;
    let counted = visit_lines(output, 0, &mut |raw| {
        lines = raw.number;
        ControlFlow::Continue(())
    });
    if counted.is_ok() { lines } else { 0 }
}

/// Returns true if the output is binary.
pub(crate) fn is_binary(output: &StoredOutput) -> io::Result<bool> {
    let mut binary = false;
    output.read_pieces(&mut |piece| {
        binary =
            matches!(piece, OutputPiece::Bytes(bytes) if bytes.iter().take(LOOKED_AT_BYTES).any(|byte| *byte == 0));
        ControlFlow::Break(())
    })?;
    Ok(binary)
}

fn to_output_line(raw: &RawLine<'_>, max_bytes: usize, matched: bool) -> OutputLine {
    let kept = raw
        .bytes
        .get(..max_bytes)
        .map_or(raw.bytes, whole_characters);
    let cut_bytes = raw.missing + (raw.bytes.len() - kept.len()) as u64;
    OutputLine {
        number: raw.number,
        text: decode_printable(kept),
        cut_bytes,
        ended: raw.ended,
        matched,
    }
}

/// Visits the lines. `lines` is the total number of lines: those after a gap are numbered from the
/// end.
fn visit_lines(output: &StoredOutput, lines: u64, visit: &mut LineVisitor<'_>) -> io::Result<()> {
    if output.total_bytes() <= MAX_FILE_BYTES {
        return visit_side(output, GapSide::BeforeGap, 1, visit);
    }
    let mut stopped = false;
    visit_side(output, GapSide::BeforeGap, 1, &mut |raw| {
        let flow = visit(raw);
        stopped = flow.is_break();
        flow
    })?;
    if stopped {
        return Ok(());
    }
    // The lines in the gap were never counted, so the lines after it are numbered backwards from
    // the known total.
    let mut behind = 0;
    visit_side(output, GapSide::AfterGap, 1, &mut |raw| {
        behind = raw.number;
        ControlFlow::Continue(())
    })?;
    visit_side(
        output,
        GapSide::AfterGap,
        (lines + 1).saturating_sub(behind),
        visit,
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GapSide {
    BeforeGap,
    AfterGap,
}

fn visit_side(
    output: &StoredOutput,
    wanted: GapSide,
    first: u64,
    visit: &mut LineVisitor<'_>,
) -> io::Result<()> {
    let mut liner = LineSplitter {
        line: Vec::new(),
        missing: 0,
        number: first,
        stopped: false,
        visit,
    };
    let mut plain = TerminalTextConverter::new();
    let mut current = GapSide::BeforeGap;
    output.read_pieces(&mut |piece| {
        match piece {
            OutputPiece::Gap if wanted == GapSide::BeforeGap => return ControlFlow::Break(()),
            OutputPiece::Gap => current = GapSide::AfterGap,
            OutputPiece::Bytes(bytes) if current == wanted => {
                plain.push(bytes, &mut |text| liner.push(text))
            }
            OutputPiece::Bytes(_) => {}
        }
        if liner.stopped {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    // The screen still holds the last lines, so they come only now.
    plain.finish(&mut |text| liner.push(text));
    if !liner.line.is_empty() {
        liner.end_line(false);
    }
    Ok(())
}

/// Splits text into lines.
struct LineSplitter<'a, 'b> {
    line: Vec<u8>,
    missing: u64,
    number: u64,
    stopped: bool,
    visit: &'a mut LineVisitor<'b>,
}

impl LineSplitter<'_, '_> {
    fn push(&mut self, text: &[u8]) {
        for (index, part) in text.split(|byte| *byte == b'\n').enumerate() {
            if self.stopped {
                return;
            }
            if index > 0 {
                self.end_line(true);
            }
            let room = MAX_LINE_BYTES - self.line.len();
            let (kept, rest) = part.split_at(part.len().min(room));
            self.line.extend_from_slice(kept);
            self.missing += rest.len() as u64;
        }
    }

    fn end_line(&mut self, ended: bool) {
        if !self.stopped {
            let raw = RawLine {
                number: self.number,
                bytes: &self.line,
                missing: self.missing,
                ended,
            };
            self.stopped = (self.visit)(raw).is_break();
        }
        self.number += 1;
        self.missing = 0;
        self.line.clear();
    }
}
