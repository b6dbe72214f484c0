//! What is wrong with an edit, as data and in words.

use std::fmt;

use super::EditSyntax;
use super::line_index::LineIndex;
use super::nearest::{describe_difference, find_nearest};

/// How many places or lines a fault shows at most.
pub(super) const MAX_SHOWN: usize = 10;
const MAX_LINE_CHARS: usize = 200;

/// One thing that is wrong with an edit. The `Display` text says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditFault {
    /// What kind of fault.
    pub kind: EditFaultKind,
    /// The format of the edit.
    pub format: EditSyntax,
    /// The number of the block, or of the hunk in the patch, from 1; `None` when it is about none.
    pub block: Option<usize>,
    /// The line in the diff or patch, from 1. Of no meaning in the other formats, where it is 1.
    pub line: usize,
    /// What is wrong, in one sentence without its full stop.
    pub message: String,
    /// What to do about it, in the same form.
    pub hint: &'static str,
    /// Lines of the text that help: where SEARCH was found, or what is nearest to it. At most ten, of at most 200 characters.
    pub lines: Vec<NumberedLine>,
}

/// A line of the text that is edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedLine {
    /// From 1.
    pub number: usize,
    /// Without its ending.
    pub text: String,
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditFaultKind {
    /// There is no block, or no patch.
    NoBlocks,
    /// A block or patch has no closing marker.
    Unclosed,
    /// A block has no divider between SEARCH and REPLACE.
    NoDivider,
    /// A block could be divided in two ways.
    UnclearDivider,
    /// A marker stands where it means nothing.
    StrayMarker,
    /// A line of a patch that is neither marker nor content.
    UnexpectedLine,
    /// A section of a patch that would do nothing.
    EmptySection,
    /// Two sections of a patch are about the same file.
    PathTwice,
    /// The text to find is empty, and the file is not.
    EmptySearch,
    /// What is to be replaced is not in the text.
    NotFound,
    /// A context line of a patch (`@@`) is not in the text.
    ContextNotFound,
    /// What is to be replaced is there with other indentation, which the replacement cannot follow.
    Indentation,
    /// What is to be replaced is in the text more than once.
    Ambiguous,
    /// What is to be replaced is in the text, but not as often as was said.
    WrongCount,
    /// Nothing would change.
    NoEffect,
    /// Two blocks change the same lines.
    Overlap,
}

impl EditFaultKind {
    /// The name, for machines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoBlocks => "no_blocks",
            Self::Unclosed => "unclosed",
            Self::NoDivider => "no_divider",
            Self::UnclearDivider => "unclear_divider",
            Self::StrayMarker => "stray_marker",
            Self::UnexpectedLine => "unexpected_line",
            Self::EmptySection => "empty_section",
            Self::PathTwice => "path_twice",
            Self::EmptySearch => "empty_search",
            Self::NotFound => "not_found",
            Self::ContextNotFound => "context_not_found",
            Self::Indentation => "indentation",
            Self::Ambiguous => "ambiguous",
            Self::WrongCount => "wrong_count",
            Self::NoEffect => "no_effect",
            Self::Overlap => "overlap",
        }
    }
}

impl fmt::Display for EditFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (block, whole) = match self.format {
            EditSyntax::SearchReplace => ("block", "diff"),
            EditSyntax::ApplyPatch => ("hunk", "patch"),
            EditSyntax::StringReplace | EditSyntax::WholeFile => ("", ""),
        };
        if !whole.is_empty() {
            if let Some(number) = self.block {
                write!(f, "{block} {number}, ")?;
            }
            write!(f, "line {} of the {whole}: ", self.line)?;
        }
        write!(f, "{}; {}.", self.message, self.hint)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{:>6} | {}", line.number, line.text))
    }
}

impl std::error::Error for EditFault {}

/// Which part of an edit something is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EditOrigin {
    pub(super) format: EditSyntax,
    /// From 1.
    pub(super) block: usize,
    /// In the diff or patch, from 1.
    pub(super) line: usize,
}

impl EditOrigin {
    /// A whole edit that has no blocks.
    pub(super) fn for_whole_edit(format: EditSyntax) -> Self {
        Self { format, block: 1, line: 1 }
    }

    /// What the text to find is called.
    fn wanted_name(self) -> &'static str {
        match self.format {
            EditSyntax::SearchReplace => "SEARCH",
            EditSyntax::ApplyPatch => "what the hunk expects",
            EditSyntax::StringReplace | EditSyntax::WholeFile => "the old text",
        }
    }
}

/// A fault about one part of an edit.
pub(super) fn fault_about(
    origin: &EditOrigin,
    kind: EditFaultKind,
    message: impl Into<String>,
    hint: &'static str,
) -> EditFault {
    let EditOrigin { format, block, line } = *origin;
    EditFault { kind, format, block: Some(block), line, message: message.into(), hint, lines: Vec::new() }
}

/// A fault about a line of an edit.
pub(super) fn fault_at_line(
    format: EditSyntax,
    line: usize,
    kind: EditFaultKind,
    message: impl Into<String>,
    hint: &'static str,
) -> EditFault {
    EditFault { kind, format, block: None, line, message: message.into(), hint, lines: Vec::new() }
}

pub(super) fn empty_search_fault(origin: &EditOrigin) -> EditFault {
    let message =
        format!("{} is empty, and that stands for the whole content of an empty file only", origin.wanted_name());
    let hint = match origin.format {
        EditSyntax::SearchReplace => "put the lines to replace, or a line to add to, into SEARCH",
        EditSyntax::ApplyPatch => "give the hunk a line of context, or an `@@` line, that says where",
        EditSyntax::StringReplace | EditSyntax::WholeFile => "give the text to replace, or the line to add to",
    };
    fault_about(origin, EditFaultKind::EmptySearch, message, hint)
}

pub(super) fn no_effect_fault(origin: &EditOrigin) -> EditFault {
    let (message, hint) = match origin.format {
        EditSyntax::SearchReplace => (
            "SEARCH and REPLACE are the same, so nothing would change",
            "leave the block out, or write the new lines into REPLACE",
        ),
        EditSyntax::ApplyPatch => {
            ("the hunk changes nothing", "leave it out, or mark what goes with `-` and what comes with `+`")
        }
        EditSyntax::StringReplace => {
            ("old and new text are the same, so nothing would change", "give the text as it is to be")
        }
        EditSyntax::WholeFile => {
            ("the file holds exactly this already", "leave the edit out, or write the new content")
        }
    };
    fault_about(origin, EditFaultKind::NoEffect, message, hint)
}

pub(super) fn overlap_fault(origin: &EditOrigin, other: usize, line: usize) -> EditFault {
    let part = if origin.format == EditSyntax::ApplyPatch { "hunk" } else { "block" };
    let message = format!("the {part} changes line {line} of the text, which {part} {other} changes too");
    fault_about(origin, EditFaultKind::Overlap, message, "join the two into one")
}

/// Shows the places, of which there may be more than `places` holds when it is as long as `limit`.
pub(super) fn ambiguous_fault(origin: &EditOrigin, lines: &LineIndex<'_>, places: &[usize], limit: usize) -> EditFault {
    let least = if places.len() >= limit { "at least " } else { "" };
    let more = if places.len() > MAX_SHOWN { ", the first of which are shown" } else { "" };
    let message = format!("{} is found at {least}{} places in the text{more}", origin.wanted_name(), places.len());
    let hint = match origin.format {
        EditSyntax::SearchReplace => "add lines before or after to SEARCH and REPLACE, so that it is found once",
        EditSyntax::ApplyPatch => "add lines of context, or an `@@` line that only this place stands behind",
        EditSyntax::StringReplace | EditSyntax::WholeFile => {
            "add text before or after to both, so that it is found once, or say that all are to be replaced"
        }
    };
    let mut fault = fault_about(origin, EditFaultKind::Ambiguous, message, hint);
    fault.lines = places.iter().filter_map(|&index| numbered_line(lines, index)).take(MAX_SHOWN).collect();
    fault
}

/// What was expected is there, indented otherwise, but the replacement cannot be indented like it.
pub(super) fn indentation_fault(
    origin: &EditOrigin,
    lines: &LineIndex<'_>,
    range: std::ops::Range<usize>,
) -> EditFault {
    let message = format!(
        "{} is found in line {} with other indentation, and its replacement cannot be indented in the same way",
        origin.wanted_name(),
        range.start + 1
    );
    let hint = "write both with the indentation of the file, tabs as tabs and spaces as spaces";
    let mut fault = fault_about(origin, EditFaultKind::Indentation, message, hint);
    fault.lines = range.filter_map(|index| numbered_line(lines, index)).take(MAX_SHOWN).collect();
    fault
}

/// Says which line differs first at the nearest place, and shows that place.
pub(super) fn not_found_fault(origin: &EditOrigin, lines: &LineIndex<'_>, wanted: &[&str]) -> EditFault {
    let hint = "read the file again and copy the lines exactly, indentation included";
    let name = origin.wanted_name();
    if !lines.can_search_nearest() {
        return fault_about(origin, EditFaultKind::NotFound, format!("{name} is not in the text"), hint);
    }
    let Some(start) = find_nearest(lines, wanted) else {
        let message = format!("{name} is not in the text, and nothing like it");
        return fault_about(origin, EditFaultKind::NotFound, message, hint);
    };
    let differs = wanted.iter().enumerate().find(|&(offset, wanted)| lines.bare_line(start + offset) != Some(wanted));
    let (offset, line) = differs.map_or((0, ""), |(offset, line)| (offset, *line));
    let how = describe_difference(lines.bare_line(start + offset), line);
    let message = format!(
        "{name} is not in the text; the nearest place is line {}, where line {} of {name}, {:?}, {how}",
        start + 1,
        offset + 1,
        truncate_line(line)
    );
    let mut fault = fault_about(origin, EditFaultKind::NotFound, message, hint);
    // The window goes around the difference when the block is long.
    let first = start + offset.saturating_sub(MAX_SHOWN / 2);
    let shown = first..(start + wanted.len()).min(first + MAX_SHOWN);
    fault.lines = shown.filter_map(|index| numbered_line(lines, index)).collect();
    fault
}

/// The lines at these indexes, for a fault to show.
pub(super) fn numbered_line(lines: &LineIndex<'_>, index: usize) -> Option<NumberedLine> {
    Some(NumberedLine { number: index + 1, text: truncate_line(lines.bare_line(index)?) })
}

pub(super) fn truncate_line(line: &str) -> String {
    let mut text: String = line.chars().take(MAX_LINE_CHARS).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}
