//! Indexes a text by lines and finds given lines in it.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::ops::Range;

use super::MatchLevel;
use super::normalize::{leading_indent, normalize_line, normalize_unindented};

/// A text split into lines, with a lookup table for each match level that is built on first use.
pub(super) struct LineIndex<'a> {
    raw: Vec<&'a str>,
    bare: Vec<&'a str>,
    tables: [OnceCell<LineTable<'a>>; 3],
    /// The number of nearest-place searches that are left.
    nearest_searches_left: Cell<usize>,
}

/// The limit for nearest-place searches: each scans the whole text, and the first ones help most.
const MAX_HUNTS: usize = 10;

/// The lines of a text as numbers; lines that are equal at the match level have the same number.
///
/// Comparing numbers instead of strings makes matching independent of the lengths of lines.
struct LineTable<'a> {
    numbers: HashMap<Cow<'a, str>, u32>,
    lines: Vec<u32>,
    /// The start of each number's positions in `places`.
    starts: Vec<usize>,
    places: Vec<usize>,
}

/// The difference between the indentation of the wanted lines and that of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IndentShift<'a> {
    /// The lines of the text have this in front.
    Add(&'a str),
    /// The lines of the text lack this.
    Remove(&'a str),
}

impl<'a> LineIndex<'a> {
    /// Splits a text at line feeds or, if it has none, at carriage returns.
    pub(super) fn from_text(text: &'a str) -> Self {
        let end = if text.contains('\n') { '\n' } else { '\r' };
        let raw: Vec<&str> = text.split_inclusive(end).collect();
        let bare = raw.iter().map(|line| without_ending(line)).collect();
        Self {
            raw,
            bare,
            tables: Default::default(),
            nearest_searches_left: Cell::new(MAX_HUNTS),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns the lines with their endings.
    pub(super) fn raw_lines(&self, range: Range<usize>) -> &[&'a str] {
        self.raw.get(range).unwrap_or_default()
    }

    /// Returns the lines without their endings.
    pub(super) fn bare_lines(&self, range: Range<usize>) -> &[&'a str] {
        self.bare.get(range).unwrap_or_default()
    }

    /// Returns a line without its ending; `None` past the end.
    pub(super) fn bare_line(&self, index: usize) -> Option<&'a str> {
        self.bare.get(index).copied()
    }

    /// Returns true if the last line has no line ending.
    pub(super) fn is_last_unterminated(&self) -> bool {
        self.raw
            .last()
            .is_some_and(|line| line_ending(line).is_empty())
    }

    /// Returns the ending of a line; if it has none or is past the end, that of the line before;
    /// failing that, the usual ending.
    pub(super) fn ending_near(&self, index: usize) -> &'a str {
        let own = |index: Option<usize>| {
            let line = self.raw.get(index?)?;
            Some(line_ending(line)).filter(|ending| !ending.is_empty())
        };
        own(Some(index))
            .or_else(|| own(index.checked_sub(1)))
            .unwrap_or_else(|| self.usual_ending())
    }

    /// Returns the ending that most lines have.
    pub(super) fn usual_ending(&self) -> &'a str {
        let with = |wanted: &str| {
            self.raw
                .iter()
                .filter(|line| line_ending(line) == wanted)
                .count()
        };
        let crlf = with("\r\n");
        let lf = with("\n");
        match () {
            () if crlf > lf => "\r\n",
            () if lf == 0 && with("\r") > 0 => "\r",
            () => "\n",
        }
    }

    /// Returns up to `limit` line indexes at which the wanted lines begin, including overlapping
    /// places. The time is linear in the text at worst.
    pub(super) fn find_matches(
        &self,
        level: MatchLevel,
        wanted: &[&str],
        limit: usize,
    ) -> Vec<usize> {
        let table = self.level_table(level);
        // A line without a number occurs nowhere in the text, so the whole block cannot match.
        let Some(numbers) = wanted
            .iter()
            .map(|line| table.number_of(level, line))
            .collect::<Option<Vec<u32>>>()
        else {
            return Vec::new();
        };
        // Only the places of the rarest wanted line need checking, unless even that line is so
        // frequent that one pass over the text is cheaper.
        let Some((rare, offset)) = numbers
            .iter()
            .zip(0..)
            .min_by_key(|(number, _)| table.positions_of(**number).len())
        else {
            return Vec::new();
        };
        let candidates = table.positions_of(*rare);
        let is_here = |start: usize| {
            table.lines.get(start..start + numbers.len()) == Some(numbers.as_slice())
        };
        let fits = |start: &usize| {
            level != MatchLevel::Shifted || self.indent_shift(*start, wanted).is_some()
        };
        if candidates.len().saturating_mul(numbers.len()) <= 4 * table.lines.len() {
            let starts = candidates
                .iter()
                .filter_map(|place| place.checked_sub(offset));
            return starts
                .filter(|start| is_here(*start))
                .filter(fits)
                .take(limit)
                .collect();
        }
        find_all(&table.lines, &numbers)
            .filter(fits)
            .take(limit)
            .collect()
    }

    /// Returns the indexes of lines that equal `line`, ignoring indentation and typography.
    pub(super) fn find_similar(&self, line: &str) -> &[usize] {
        let table = self.level_table(MatchLevel::Shifted);
        table
            .number_of(MatchLevel::Shifted, line)
            .map_or(&[], |number| table.positions_of(number))
    }

    /// Uses up one nearest-place search; returns false if none is left.
    pub(super) fn spend_nearest_search(&self) -> bool {
        let left = self.nearest_searches_left.get().checked_sub(1);
        self.nearest_searches_left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Returns the shift between the indentation of the wanted lines and of the text at `start`:
    /// all lines have the same amount more, or the same amount less. Blank lines are ignored.
    pub(super) fn indent_shift<'b>(
        &self,
        start: usize,
        wanted: &[&'b str],
    ) -> Option<IndentShift<'b>>
    where
        'a: 'b,
    {
        let mut shift = None;
        for (&text, &wanted) in self
            .bare_lines(start..start + wanted.len())
            .iter()
            .zip(wanted)
        {
            if normalize_unindented(wanted).is_empty() {
                continue;
            }
            let text = leading_indent(text);
            let wanted = leading_indent(wanted);
            let here = match text.strip_suffix(wanted) {
                Some(more) => IndentShift::Add(more),
                None => IndentShift::Remove(wanted.strip_suffix(text)?),
            };
            if *shift.get_or_insert(here.clone()) != here {
                return None;
            }
        }
        shift
    }

    /// Returns the table of a level. Most edits match exactly, so the other tables are rarely
    /// built.
    fn level_table(&self, level: MatchLevel) -> &LineTable<'a> {
        let [exact, normalised, shifted] = &self.tables;
        let cell = match level {
            MatchLevel::Exact => exact,
            MatchLevel::Normalised => normalised,
            MatchLevel::Shifted => shifted,
        };
        cell.get_or_init(|| {
            LineTable::from_keys(self.bare.iter().map(|line| level_key(level, line)))
        })
    }
}

impl<'a> LineTable<'a> {
    /// Numbers the keys in order of first appearance and groups the positions of each number.
    fn from_keys(keys: impl Iterator<Item = Cow<'a, str>>) -> Self {
        let mut numbers = HashMap::new();
        let lines: Vec<u32> = keys
            .map(|key| {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                *numbers.entry(key).or_insert(next)
            })
            .collect();
        // A counting sort groups the positions by number, without a vector for each number.
        let mut starts = vec![0; numbers.len() + 1];
        for &number in &lines {
            if let Some(count) = starts.get_mut(number as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut free = starts.clone();
        let mut places = vec![0; lines.len()];
        for (index, &number) in lines.iter().enumerate() {
            if let Some(at) = free.get_mut(number as usize) {
                if let Some(place) = places.get_mut(*at) {
                    *place = index;
                }
                *at += 1;
            }
        }
        Self {
            numbers,
            lines,
            starts,
            places,
        }
    }

    /// Returns the number of the lines that equal `line` at the level.
    fn number_of(&self, level: MatchLevel, line: &str) -> Option<u32> {
        self.numbers.get(&level_key(level, line)).copied()
    }

    /// Returns the indexes of the lines with this number, rising.
    fn positions_of(&self, number: u32) -> &[usize] {
        let start = self
            .starts
            .get(number as usize)
            .copied()
            .unwrap_or_default();
        let end = self
            .starts
            .get(number as usize + 1)
            .copied()
            .unwrap_or_default();
        self.places.get(start..end).unwrap_or_default()
    }
}

/// Returns the ending of a line, or an empty string.
pub(super) fn line_ending(line: &str) -> &str {
    line.strip_prefix(without_ending(line)).unwrap_or_default()
}

/// Removes `\n`, `\r\n` or a lone `\r` from the end of a line.
fn without_ending(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Returns the form of a line that decides equality at a level.
fn level_key(level: MatchLevel, line: &str) -> Cow<'_, str> {
    match level {
        MatchLevel::Exact => Cow::Borrowed(line),
        MatchLevel::Normalised => normalize_line(line),
        MatchLevel::Shifted => normalize_unindented(line),
    }
}

/// Yields every index at which the wanted numbers begin. Uses Knuth-Morris-Pratt, so that a
/// thousand equal lines cost no more than a thousand different ones.
fn find_all<'b>(text: &'b [u32], wanted: &'b [u32]) -> impl Iterator<Item = usize> + 'b {
    let borders = prefix_borders(wanted);
    let mut matched = 0;
    text.iter().enumerate().filter_map(move |(index, number)| {
        matched = advance_match(wanted, &borders, matched, *number);
        (matched == wanted.len()).then(|| index + 1 - matched)
    })
}

/// Returns, for each prefix of the wanted numbers, the length of its longest proper prefix that is
/// also its suffix.
fn prefix_borders(wanted: &[u32]) -> Vec<usize> {
    let mut borders = vec![0; wanted.len().min(1)];
    let mut matched = 0;
    for number in wanted.iter().skip(1) {
        matched = advance_match(wanted, &borders, matched, *number);
        borders.push(matched);
    }
    borders
}

/// Returns the number of matched numbers after reading one more, when `matched` were matched
/// before.
fn advance_match(wanted: &[u32], borders: &[usize], mut matched: usize, number: u32) -> usize {
    loop {
        if wanted.get(matched) == Some(&number) {
            return matched + 1;
        }
        match matched.checked_sub(1).and_then(|last| borders.get(last)) {
            Some(&shorter) => matched = shorter,
            None => return 0,
        }
    }
}
