//! Describes faults of an edit, as data and in words.

use std::fmt;

use super::EditSyntax;
use super::line_index::LineIndex;
use super::nearest::{describe_difference, find_nearest};

/// The number of places or lines that a fault shows at most.
pub(super) const MAX_SHOWN: usize = 10;
/// The length, in characters, at which shown lines are cut: minified files have a single line of megabytes, and a fault takes up the
/// model's context.
const MAX_LINE_CHARS: usize = 200;

/// A fault of an edit. Its `Display` text says what is wrong, where, and how to fix it.
///
/// The text is written for the model that made the edit; programs use `kind`, whose names are
/// stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditFault {
    /// The kind of fault.
    pub kind: EditFaultKind,
    /// The format of the edit.
    pub format: EditSyntax,
    /// The number of the block, or of the hunk in the patch, from 1; `None` if the fault concerns
    /// no single one.
    pub block: Option<usize>,
    /// The line in the diff or patch, from 1. Always 1 in the other formats, where it has no
    /// meaning.
    pub line: usize,
    /// The description of the fault, one sentence without its full stop.
    pub message: String,
    /// The advice, in the same form.
    pub hint: &'static str,
    /// Lines of the text that help: the places where SEARCH was found, or those nearest to it. At
    /// most ten, of at most 200 characters.
    pub lines: Vec<NumberedLine>,
}

/// A line of the edited text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedLine {
    /// The line number, from 1.
    pub number: usize,
    /// The line without its ending.
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
    /// A marker is in a place where it means nothing.
    StrayMarker,
    /// A line of a patch is neither marker nor content.
    UnexpectedLine,
    /// A section of a patch would do nothing.
    EmptySection,
    /// Two sections of a patch name the same file.
    PathTwice,
    /// The text to find is empty, and the file is not.
    EmptySearch,
    /// The text to replace is not in the file.
    NotFound,
    /// A context line of a patch (`@@`) is not in the text.
    ContextNotFound,
    /// The text to replace is there with another indentation, which the replacement cannot follow.
    Indentation,
    /// The text to replace occurs more than once.
    Ambiguous,
    /// The text to replace occurs, but not the expected number of times.
    WrongCount,
    /// Nothing would change.
    NoEffect,
    /// Two blocks change the same lines.
    Overlap,
}

impl EditFaultKind {
    /// Returns the name used in machine-readable output.
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
        self.lines
            .iter()
            .try_for_each(|line| write!(f, "\n{:>6} | {}", line.number, line.text))
    }
}

impl std::error::Error for EditFault {}

/// The part of an edit that a fault or change belongs to. A change contains it, so that a fault found late (an overlap) can name the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EditOrigin {
    pub(super) format: EditSyntax,
    /// The number of the block or hunk, from 1.
    pub(super) block: usize,
    /// The line in the diff or patch, from 1.
    pub(super) line: usize,
}

impl EditOrigin {
    /// Returns the origin of an edit that has no blocks.
    pub(super) fn for_whole_edit(format: EditSyntax) -> Self {
        Self {
            format,
            block: 1,
            line: 1,
        }
    }

    /// Returns the name that messages use for the text to find.
    fn wanted_name(self) -> &'static str {
        match self.format {
            EditSyntax::SearchReplace => "SEARCH",
            EditSyntax::ApplyPatch => "what the hunk expects",
            EditSyntax::StringReplace | EditSyntax::WholeFile => "the old text",
        }
    }
}

/// Builds a fault about one block or hunk.
pub(super) fn fault_about(
    origin: &EditOrigin,
    kind: EditFaultKind,
    message: impl Into<String>,
    hint: &'static str,
) -> EditFault {
    let EditOrigin {
        format,
        block,
        line,
    } = *origin;
    EditFault {
        kind,
        format,
        block: Some(block),
        line,
        message: message.into(),
        hint,
        lines: Vec::new(),
    }
}

/// Builds a fault about one line of an edit.
pub(super) fn fault_at_line(
    format: EditSyntax,
    line: usize,
    kind: EditFaultKind,
    message: impl Into<String>,
    hint: &'static str,
) -> EditFault {
    EditFault {
        kind,
        format,
        block: None,
        line,
        message: message.into(),
        hint,
        lines: Vec::new(),
    }
}

/// Builds the fault for an edit without a position. Appending or prepending would be a guess.
pub(super) fn empty_search_fault(origin: &EditOrigin) -> EditFault {
    let message = format!(
        "{} is empty, and an empty text can only mean the whole content of an empty file",
        origin.wanted_name()
    );
    let hint = match origin.format {
        EditSyntax::SearchReplace => "put the lines to replace, or a line to add to, into SEARCH",
        EditSyntax::ApplyPatch => {
            "give the hunk a line of context, or an `@@` line, that says where"
        }
        EditSyntax::StringReplace | EditSyntax::WholeFile => {
            "give the text to replace, or the line to add to"
        }
    };
    fault_about(origin, EditFaultKind::EmptySearch, message, hint)
}

/// Builds the fault for an edit that changes nothing. It is not a success, because the model expects a change.
pub(super) fn no_effect_fault(origin: &EditOrigin) -> EditFault {
    let (message, hint) = match origin.format {
        EditSyntax::SearchReplace => (
            "SEARCH and REPLACE are the same, so nothing would change",
            "leave the block out, or write the new lines into REPLACE",
        ),
        EditSyntax::ApplyPatch => (
            "the hunk changes nothing",
            "leave it out, or mark what goes with `-` and what comes with `+`",
        ),
        EditSyntax::StringReplace => (
            "old and new text are the same, so nothing would change",
            "give the text as it should be",
        ),
        EditSyntax::WholeFile => (
            "the file holds exactly this already",
            "leave the edit out, or write the new content",
        ),
    };
    fault_about(origin, EditFaultKind::NoEffect, message, hint)
}

/// Builds the fault for two changes of one line. In either order, the result would be a text that neither block describes.
pub(super) fn overlap_fault(origin: &EditOrigin, other: usize, line: usize) -> EditFault {
    let part = if origin.format == EditSyntax::ApplyPatch {
        "hunk"
    } else {
        "block"
    };
    let message =
        format!("the {part} changes line {line} of the text, which {part} {other} changes too");
    fault_about(
        origin,
        EditFaultKind::Overlap,
        message,
        "join the two into one",
    )
}

/// Builds the fault for several matches. If `places` is as long as `limit`, there may be more.
///
/// The places are shown with their line numbers, so that the model can add context or a line hint.
pub(super) fn ambiguous_fault(
    origin: &EditOrigin,
    lines: &LineIndex<'_>,
    places: &[usize],
    limit: usize,
) -> EditFault {
    let least = if places.len() >= limit {
        "at least "
    } else {
        ""
    };
    let more = if places.len() > MAX_SHOWN {
        ", the first of which are shown"
    } else {
        ""
    };
    let message = format!(
        "{} is found at {least}{} places in the text{more}",
        origin.wanted_name(),
        places.len()
    );
    let hint = match origin.format {
        EditSyntax::SearchReplace => {
            "add lines before or after to SEARCH and REPLACE, so that it is found once"
        }
        EditSyntax::ApplyPatch => {
            "add lines of context, or an `@@` line that only this place follows"
        }
        EditSyntax::StringReplace | EditSyntax::WholeFile => {
            "add text before or after to both, so that it is found once, or say that all are to be replaced"
        }
    };
    let mut fault = fault_about(origin, EditFaultKind::Ambiguous, message, hint);
    fault.lines = places
        .iter()
        .filter_map(|&index| numbered_line(lines, index))
        .take(MAX_SHOWN)
        .collect();
    fault
}

/// Builds the fault for a match whose indentation the replacement cannot follow.
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
    fault.lines = range
        .filter_map(|index| numbered_line(lines, index))
        .take(MAX_SHOWN)
        .collect();
    fault
}

/// Builds the fault for text that is not found: names the first differing line at the nearest
/// place, and shows that place.
///
/// The nearest place shows the model the real lines, which usually saves reading the whole file again.
pub(super) fn not_found_fault(
    origin: &EditOrigin,
    lines: &LineIndex<'_>,
    wanted: &[&str],
) -> EditFault {
    let hint = "read the file again and copy the lines exactly, indentation included";
    let name = origin.wanted_name();
    // Each search scans the whole text, so a diff of a thousand wrong blocks must not run them all.
    if !lines.spend_nearest_search() {
        return fault_about(
            origin,
            EditFaultKind::NotFound,
            format!("{name} is not in the text"),
            hint,
        );
    }
    let Some(start) = find_nearest(lines, wanted) else {
        let message = format!("{name} is not in the text, and nothing like it");
        return fault_about(origin, EditFaultKind::NotFound, message, hint);
    };
    let differs = wanted
        .iter()
        .enumerate()
        .find(|&(offset, wanted)| lines.bare_line(start + offset) != Some(wanted));
    let (offset, line) = differs.map_or((0, ""), |(offset, line)| (offset, *line));
    let how = describe_difference(lines.bare_line(start + offset), line);
    let message = format!(
        "{name} is not in the text; the nearest place is line {}, where line {} of {name}, {:?}, {how}",
        start + 1,
        offset + 1,
        truncate_line(line)
    );
    let mut fault = fault_about(origin, EditFaultKind::NotFound, message, hint);
    // In a long block, show the lines around the difference.
    let first = start + offset.saturating_sub(MAX_SHOWN / 2);
    let shown = first..(start + wanted.len()).min(first + MAX_SHOWN);
    fault.lines = shown
        .filter_map(|index| numbered_line(lines, index))
        .collect();
    fault
}

/// Returns the line at an index in the form that a fault shows.
pub(super) fn numbered_line(lines: &LineIndex<'_>, index: usize) -> Option<NumberedLine> {
    Some(NumberedLine {
        number: index + 1,
        text: truncate_line(lines.bare_line(index)?),
    })
}

/// Cuts a line to `MAX_LINE_CHARS` characters; `…` shows the cut.
pub(super) fn truncate_line(line: &str) -> String {
    let mut text: String = line.chars().take(MAX_LINE_CHARS).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}
