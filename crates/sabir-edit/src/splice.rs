//! Builds the new text from located changes.

use std::borrow::Cow;
use std::ops::Range;

use super::align::{align_lines, line_ending_sources};
use super::fault::{self, EditFault, EditOrigin};
use super::line_index::{IndentShift, LineIndex, line_ending};
use super::normalize::{leading_indent, normalize_unindented};
use super::{AppliedHunk, EditedText, MatchLevel};

/// A change of consecutive lines, from one block, hunk or matched place.
pub(super) struct LineChange<'a> {
    pub(super) origin: EditOrigin,
    pub(super) level: MatchLevel,
    /// The line indexes of the old text, from 0.
    pub(super) old: Range<usize>,
    pub(super) new: Vec<ResultLine<'a>>,
}

/// A line of the new text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResultLine<'a> {
    /// The line of the old text at this index, byte for byte.
    Kept(usize),
    /// A new line, without its ending.
    Fresh(Cow<'a, str>),
}

/// Returns the lines that replace those at `start`, where `wanted` was found at `level`. Returns `None` if the replacement cannot be
/// indented like the text.
pub(super) fn rewrite_lines<'a>(
    lines: &LineIndex<'a>,
    level: MatchLevel,
    start: usize,
    wanted: &[&'a str],
    replacement: &[&'a str],
) -> Option<Vec<ResultLine<'a>>> {
    let found = lines.bare_lines(start..start + wanted.len());
    let kept = align_lines(found, wanted, replacement);
    let shift = if level == MatchLevel::Shifted {
        lines.indent_shift(start, wanted)
    } else {
        None
    };
    replacement
        .iter()
        .zip(kept)
        .map(|(line, kept)| match (kept, &shift) {
            (Some(index), _) => Some(ResultLine::Kept(start + index)),
            (None, Some(shift)) => shift_indent(line, shift, wanted).map(ResultLine::Fresh),
            (None, None) => Some(ResultLine::Fresh(Cow::Borrowed(line))),
        })
        .collect()
}

/// Indents a line like the text. Returns `None` if the line lacks the indentation to remove, or if
/// adding indentation would mix tabs and spaces although no wanted line mixes them.
pub(super) fn shift_indent<'a>(
    line: &'a str,
    shift: &IndentShift<'_>,
    wanted: &[&str],
) -> Option<Cow<'a, str>> {
    if normalize_unindented(line).is_empty() {
        return Some(Cow::Borrowed(line));
    }
    match shift {
        IndentShift::Add("") => Some(Cow::Borrowed(line)),
        IndentShift::Add(more) => {
            let other = if more.contains('\t') { ' ' } else { '\t' };
            let mixes = |line: &str| leading_indent(line).contains(other);
            let is_pure = !more.contains(other);
            if is_pure && mixes(line) && !wanted.iter().any(|line| mixes(line)) {
                return None;
            }
            Some(Cow::Owned([more, line].concat()))
        }
        // A new line that is indented less than the removed amount cannot be shifted.
        IndentShift::Remove(less) => line.strip_prefix(less).map(Cow::Borrowed),
    }
}

/// Applies all changes, or reports the ones that overlap.
///
/// The changes refer to the old text, so they can be written in one pass from its start to its end.
pub(super) fn splice_changes(
    lines: &LineIndex<'_>,
    mut changes: Vec<LineChange<'_>>,
) -> Result<EditedText, Vec<EditFault>> {
    changes.sort_by_key(|change| (change.old.start, change.old.end));
    let overlaps: Vec<_> = changes
        .iter()
        .zip(changes.iter().skip(1))
        // Sorted by start, overlapping changes are neighbours. Empty ranges (pure insertions) at
        // the same line do not overlap.
        .filter(|(first, second)| second.old.start < first.old.end)
        .map(|(first, second)| {
            let (kept, other) = if first.origin.block < second.origin.block {
                (first, second)
            } else {
                (second, first)
            };
            fault::overlap_fault(&other.origin, kept.origin.block, second.old.start + 1)
        })
        .collect();
    if !overlaps.is_empty() {
        return Err(overlaps);
    }
    let mut content = String::new();
    let mut hunks = Vec::new();
    // Copy the unchanged lines before each change, then the change itself. `next` is the first old
    // line that is not written yet; `new_line` counts from 1 in the new text.
    let mut next = 0;
    let mut new_line = 1;
    for change in &changes {
        lines
            .raw_lines(next..change.old.start)
            .iter()
            .for_each(|line| content.push_str(line));
        new_line += change.old.start - next;
        write_change(&mut content, lines, change);
        hunks.push(AppliedHunk {
            block: change.origin.block,
            old_line: change.old.start + 1,
            old_lines: change.old.len(),
            new_line,
            new_lines: change.new.len(),
            level: change.level,
        });
        new_line += change.new.len();
        next = change.old.end;
    }
    lines
        .raw_lines(next..lines.len())
        .iter()
        .for_each(|line| content.push_str(line));
    // The removed lines at the end include the one without an ending. The new last line gets none
    // either, since the file had no final line ending.
    let ends_with_removal = changes
        .last()
        .is_some_and(|change| change.old.end == lines.len() && change.new.is_empty());
    if lines.is_last_unterminated() && ends_with_removal {
        content.truncate(content.len() - line_ending(&content).len());
    }
    Ok(EditedText { content, hunks })
}

/// Writes the lines of one change. A new line gets the ending of the line it replaces, or of the
/// line before it; a file without a final line ending keeps none.
fn write_change(content: &mut String, lines: &LineIndex<'_>, change: &LineChange<'_>) {
    let is_open = lines.is_last_unterminated() && change.old.end == lines.len();
    // Lines are added after a last line without an ending: that line needs one first.
    if is_open && change.old.is_empty() {
        content.push_str(lines.usual_ending());
    }
    let start = change.old.start;
    let kept: Vec<Option<usize>> = change
        .new
        .iter()
        .map(|line| line.kept_index().map(|index| index - start))
        .collect();
    let models = line_ending_sources(&kept, change.old.len());
    for (position, (line, model)) in change.new.iter().zip(models).enumerate() {
        let is_last = position + 1 == change.new.len();
        let near =
            || lines.ending_near(model.map_or(start.saturating_sub(1), |index| start + index));
        match line {
            ResultLine::Kept(index) => {
                let raw = lines
                    .raw_lines(*index..index + 1)
                    .first()
                    .copied()
                    .unwrap_or_default();
                if is_last && is_open {
                    // It may replace a removed last line that had no ending.
                    content.push_str(raw.strip_suffix(line_ending(raw)).unwrap_or(raw));
                } else {
                    content.push_str(raw);
                    if line_ending(raw).is_empty() && !is_last {
                        content.push_str(near());
                    }
                }
            }
            ResultLine::Fresh(line) => {
                content.push_str(line);
                if !(is_last && is_open) {
                    content.push_str(near());
                }
            }
        }
    }
}

impl ResultLine<'_> {
    /// Returns the old line's index; `None` for a new line.
    fn kept_index(&self) -> Option<usize> {
        match self {
            Self::Kept(index) => Some(*index),
            Self::Fresh(_) => None,
        }
    }
}
