//! Finds the place in a text that wanted lines most likely refer to, although they are not in it.

use std::collections::HashMap;

use super::line_index::LineIndex;
use super::normalize::{leading_indent, normalize_line, normalize_unindented};

/// The number of occurrences above which a line is ignored. Frequent lines such as `}` would outvote the significant ones.
const MAX_VOTES: usize = 64;
/// The number of bytes of a line that are compared when searching for a resembling one.
const MAX_COMPARED: usize = 200;

/// Returns the line index where the wanted lines were most likely meant to begin: the one that the
/// most lines agree on, ignoring indentation and typography; otherwise that of the line most
/// similar to the first non-blank one. Returns `None` if nothing is similar.
pub(super) fn find_nearest(lines: &LineIndex<'_>, wanted: &[&str]) -> Option<usize> {
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (offset, line) in wanted
        .iter()
        .enumerate()
        .filter(|(_, line)| !normalize_unindented(line).is_empty())
    {
        let found = lines.find_similar(line);
        if found.len() <= MAX_VOTES {
            found
                .iter()
                .for_each(|index| *votes.entry(index.saturating_sub(offset)).or_default() += 1);
        }
    }
    // Ties go to the earlier place, so that the result does not depend on the order of the map.
    let agreed = votes
        .into_iter()
        .max_by_key(|&(start, count)| (count, std::cmp::Reverse(start)));
    agreed
        .map(|(start, _)| start)
        .or_else(|| find_resembling(lines, wanted))
}

/// Describes in a clause how a line of the text differs from the wanted one.
pub(super) fn describe_difference(found: Option<&str>, wanted: &str) -> &'static str {
    let Some(found) = found else {
        return "lies behind the end of the text";
    };
    if normalize_line(found) == normalize_line(wanted) {
        return "differs only in blanks at its end or in quotes, dashes and spaces";
    }
    if normalize_unindented(found) != normalize_unindented(wanted) {
        return "differs";
    }
    match (
        leading_indent(found).contains('\t'),
        leading_indent(wanted).contains('\t'),
    ) {
        (true, false) => "differs only in its indentation, which has tabs in the text",
        (false, true) => "differs only in its indentation, which has no tabs in the text",
        _ => "differs only in its indentation",
    }
}

/// Returns the line that shares the longest prefix plus suffix with the first non-blank wanted
/// line, if together they are at least half of that line.
fn find_resembling(lines: &LineIndex<'_>, wanted: &[&str]) -> Option<usize> {
    let (offset, first) = wanted
        .iter()
        .enumerate()
        .find(|(_, line)| !normalize_unindented(line).is_empty())?;
    let first = first.trim();
    let score = |line: &str| {
        let line = line.trim();
        let room = line.len().min(first.len()).min(MAX_COMPARED);
        let start = line
            .bytes()
            .zip(first.bytes())
            .take(room)
            .take_while(|(a, b)| a == b)
            .count();
        start
            + line
                .bytes()
                .rev()
                .zip(first.bytes().rev())
                .take(room - start)
                .take_while(|(a, b)| a == b)
                .count()
    };
    let scored = lines
        .bare_lines(0..lines.len())
        .iter()
        .enumerate()
        .map(|(index, line)| (score(line), index));
    let (best, index) = scored.max_by_key(|&(score, index)| (score, std::cmp::Reverse(index)))?;
    (best * 2 >= first.len().min(MAX_COMPARED)).then(|| index.saturating_sub(offset))
}
