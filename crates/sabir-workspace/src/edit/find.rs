//! Finding lines in a text: exactly, in linear time, and nearly.

use std::collections::HashMap;
use std::ops::Range;

/// A line that occurs more often than this says nothing about where a block belongs.
const MAX_VOTES: usize = 64;

/// A text cut into lines.
pub(super) struct Lines<'a> {
    raw: Vec<&'a str>,
    bare: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let raw: Vec<&str> = text.split_inclusive('\n').collect();
        let bare = raw.iter().map(|line| without_ending(line)).collect();
        Self { raw, bare }
    }

    pub(super) fn len(&self) -> usize {
        self.raw.len()
    }

    /// The lines with their endings.
    pub(super) fn raw(&self, range: Range<usize>) -> impl Iterator<Item = &'a str> {
        self.raw.get(range).unwrap_or_default().iter().copied()
    }

    /// A line without its ending; `None` past the end.
    pub(super) fn bare(&self, index: usize) -> Option<&'a str> {
        self.bare.get(index).copied()
    }

    /// Whether the text ends without a newline.
    pub(super) fn last_is_open(&self) -> bool {
        self.raw.last().is_some_and(|line| !line.ends_with('\n'))
    }

    /// The ending that most lines of the range have, or of the text where the range has none.
    pub(super) fn ending(&self, range: Range<usize>) -> &'static str {
        let most = |lines: &[&str]| {
            let crlf = lines.iter().filter(|line| line.ends_with("\r\n")).count();
            let all = lines.iter().filter(|line| line.ends_with('\n')).count();
            (all > 0).then_some(if crlf * 2 > all { "\r\n" } else { "\n" })
        };
        most(self.raw.get(range).unwrap_or_default()).or_else(|| most(&self.raw)).unwrap_or("\n")
    }

    /// Every line index at which the wanted lines begin (Knuth, Morris and Pratt, so that a thousand equal lines cost no more
    /// than a thousand different ones). Overlapping places count.
    pub(super) fn places(&self, wanted: &[&str]) -> Vec<usize> {
        let borders = borders(wanted);
        let mut places = Vec::new();
        let mut matched = 0;
        for (index, line) in self.bare.iter().enumerate() {
            matched = advance(wanted, &borders, matched, line);
            if matched == wanted.len() {
                places.push(index + 1 - matched);
            }
        }
        places
    }

    /// Where the wanted lines most likely were meant to begin: the offset that the most lines agree on, indentation and spaces at
    /// the end aside. `None` when no line occurs in the text.
    pub(super) fn nearest(&self, wanted: &[&str]) -> Option<usize> {
        let mut where_is: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in self.bare.iter().enumerate() {
            where_is.entry(line.trim()).or_default().push(index);
        }
        let mut votes: HashMap<usize, usize> = HashMap::new();
        for (offset, line) in wanted.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let found = where_is.get(line.trim()).map(Vec::as_slice).unwrap_or_default();
            if found.len() <= MAX_VOTES {
                found.iter().for_each(|index| *votes.entry(index.saturating_sub(offset)).or_default() += 1);
            }
        }
        let agreed = votes.into_iter().max_by_key(|&(start, count)| (count, std::cmp::Reverse(start)));
        agreed.map(|(start, _)| start).or_else(|| self.resembling(wanted))
    }

    /// The line that shares the longest beginning and end with the first telling line of the wanted.
    fn resembling(&self, wanted: &[&str]) -> Option<usize> {
        let (offset, first) = wanted.iter().enumerate().find(|(_, line)| !line.trim().is_empty())?;
        let first = first.trim();
        let score = |line: &str| {
            let line = line.trim();
            let start = line.bytes().zip(first.bytes()).take_while(|(a, b)| a == b).count();
            let room = line.len().min(first.len()) - start;
            start + line.bytes().rev().zip(first.bytes().rev()).take(room).take_while(|(a, b)| a == b).count()
        };
        let scored = self.bare.iter().enumerate().map(|(index, line)| (score(line), index));
        let (best, index) = scored.max_by_key(|&(score, index)| (score, std::cmp::Reverse(index)))?;
        (best * 2 >= first.len()).then(|| index.saturating_sub(offset))
    }
}

/// For each start of the wanted lines, how many of its first lines are also its last.
fn borders(wanted: &[&str]) -> Vec<usize> {
    let mut borders = vec![0; wanted.len().min(1)];
    let mut matched = 0;
    for line in wanted.iter().skip(1) {
        matched = advance(wanted, &borders, matched, line);
        borders.push(matched);
    }
    borders
}

/// How many lines are matched after one more line of text, when `matched` were before it.
fn advance(wanted: &[&str], borders: &[usize], mut matched: usize, line: &str) -> usize {
    loop {
        if wanted.get(matched) == Some(&line) {
            return matched + 1;
        }
        match matched.checked_sub(1).and_then(|last| borders.get(last)) {
            Some(&shorter) => matched = shorter,
            None => return 0,
        }
    }
}

fn without_ending(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}
