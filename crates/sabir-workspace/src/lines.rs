//! A kept output as numbered lines of plain text: a page of them, or those that match.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

use crate::capture::{readable, whole_characters};
use crate::output::{MAX_FILE_BYTES, Output, Piece};
use crate::plain::Plain;

/// What of a line is looked at.
const MAX_LINE_BYTES: usize = 64 << 10;
/// A NUL in the first so many bytes makes an output binary.
const LOOKED_AT_BYTES: usize = 8 << 10;

/// How much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageOptions {
    /// The first line, from 1.
    pub first: u64,
    /// The last line.
    pub last: u64,
    /// The page ends before a line that would exceed this; one line is always there.
    pub max_bytes: usize,
    /// A longer line is cut to this many bytes.
    pub max_line_bytes: usize,
}

/// One line of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// The line without its ending, invalid UTF-8 replaced.
    pub text: String,
    /// How many bytes of it are left out.
    pub cut_bytes: u64,
    /// Whether its line ending is there.
    pub ended: bool,
    /// Whether it met the expression, where one was searched.
    pub matched: bool,
}

/// A line as it was read, and how many of its bytes are missing.
struct Raw<'a> {
    number: u64,
    bytes: &'a [u8],
    missing: u64,
    ended: bool,
}

type Visit<'a> = dyn FnMut(Raw<'_>) -> ControlFlow<()> + 'a;

/// The lines of a page.
pub(crate) fn page(output: &Output, lines: u64, options: &PageOptions) -> io::Result<Vec<Line>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    walk(output, lines, &mut |raw| {
        if raw.number > options.last {
            return ControlFlow::Break(());
        }
        if raw.number >= options.first {
            let line = line(&raw, options.max_line_bytes, false);
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

/// The lines that match with one before and after each, and whether there are more. `max` counts lines of context too.
pub(crate) fn search(
    output: &Output,
    lines: u64,
    matcher: &RegexMatcher,
    (max, max_line_bytes): (usize, usize),
) -> io::Result<(Vec<Line>, bool)> {
    let mut found: Vec<Line> = Vec::new();
    let (mut before, mut more) = (VecDeque::new(), false);
    walk(output, lines, &mut |raw| {
        let matched = matcher.is_match(raw.bytes).unwrap_or(false);
        let after = found.last().is_some_and(|last| last.matched && last.number + 1 == raw.number);
        let line = line(&raw, max_line_bytes, matched);
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

/// The number of lines of an output without a gap; 0 when it cannot be read.
pub(crate) fn count(output: &Output) -> u64 {
    let mut lines = 0;
    let counted = walk(output, 0, &mut |raw| {
        lines = raw.number;
        ControlFlow::Continue(())
    });
    if counted.is_ok() { lines } else { 0 }
}

/// Whether it can only be shown as bytes.
pub(crate) fn is_binary(output: &Output) -> io::Result<bool> {
    let mut binary = false;
    output.read(&mut |piece| {
        binary = matches!(piece, Piece::Bytes(bytes) if bytes.iter().take(LOOKED_AT_BYTES).any(|byte| *byte == 0));
        ControlFlow::Break(())
    })?;
    Ok(binary)
}

fn line(raw: &Raw<'_>, max_bytes: usize, matched: bool) -> Line {
    let kept = raw.bytes.get(..max_bytes).map_or(raw.bytes, whole_characters);
    let cut_bytes = raw.missing + (raw.bytes.len() - kept.len()) as u64;
    Line { number: raw.number, text: readable(kept), cut_bytes, ended: raw.ended, matched }
}

/// Goes through the lines. `lines` is the number of all of them: those behind a gap are numbered from the end.
fn walk(output: &Output, lines: u64, visit: &mut Visit<'_>) -> io::Result<()> {
    if output.total() <= MAX_FILE_BYTES {
        return part(output, Part::BeforeGap, 1, visit);
    }
    let mut stopped = false;
    part(output, Part::BeforeGap, 1, &mut |raw| {
        let flow = visit(raw);
        stopped = flow.is_break();
        flow
    })?;
    if stopped {
        return Ok(());
    }
    let mut behind = 0;
    part(output, Part::AfterGap, 1, &mut |raw| {
        behind = raw.number;
        ControlFlow::Continue(())
    })?;
    part(output, Part::AfterGap, (lines + 1).saturating_sub(behind), visit)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    BeforeGap,
    AfterGap,
}

fn part(output: &Output, wanted: Part, first: u64, visit: &mut Visit<'_>) -> io::Result<()> {
    let mut liner = Liner { line: Vec::new(), missing: 0, number: first, stopped: false, visit };
    let (mut plain, mut current) = (Plain::new(), Part::BeforeGap);
    output.read(&mut |piece| {
        match piece {
            Piece::Gap if wanted == Part::BeforeGap => return ControlFlow::Break(()),
            Piece::Gap => current = Part::AfterGap,
            Piece::Bytes(bytes) if current == wanted => plain.push(bytes, &mut |text| liner.push(text)),
            Piece::Bytes(_) => {}
        }
        if liner.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    plain.finish(&mut |text| liner.push(text));
    if !liner.line.is_empty() {
        liner.end_line(false);
    }
    Ok(())
}

/// Cuts text into lines.
struct Liner<'a, 'b> {
    line: Vec<u8>,
    missing: u64,
    number: u64,
    stopped: bool,
    visit: &'a mut Visit<'b>,
}

impl Liner<'_, '_> {
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
            let raw = Raw { number: self.number, bytes: &self.line, missing: self.missing, ended };
            self.stopped = (self.visit)(raw).is_break();
        }
        self.number += 1;
        self.missing = 0;
        self.line.clear();
    }
}
