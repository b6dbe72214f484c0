//! What is wrong with an edit, as data and in words.

use std::fmt;

use super::blocks::Block;
use super::find::Lines;

/// How many places or lines a fault shows at most.
const MAX_SHOWN: usize = 10;
const MAX_LINE_CHARS: usize = 200;

/// One thing that is wrong with an edit. The `Display` text says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditFault {
    /// What kind of fault.
    pub kind: EditFaultKind,
    /// The block's number in the diff, from 1; `None` when it is about no block.
    pub block: Option<usize>,
    /// The line in the diff, from 1.
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
    /// The diff holds no block.
    NoBlocks,
    /// A block has no closing marker.
    Unclosed,
    /// A block has no divider between SEARCH and REPLACE.
    NoDivider,
    /// A closing marker belongs to no block.
    StrayMarker,
    /// SEARCH is empty, and the text is not.
    EmptySearch,
    /// SEARCH is not in the text.
    NotFound,
    /// SEARCH is in the text more than once.
    Ambiguous,
    /// SEARCH and REPLACE are the same.
    NoEffect,
    /// Two blocks change the same lines.
    Overlap,
}

impl fmt::Display for EditFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(block) = self.block {
            write!(f, "block {block}, ")?;
        }
        write!(f, "line {} of the diff: {}; {}.", self.line, self.message, self.hint)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{:>6} | {}", line.number, line.text))
    }
}

impl std::error::Error for EditFault {}

fn new(kind: EditFaultKind, block: &Block<'_>, message: impl Into<String>, hint: &'static str) -> EditFault {
    EditFault { kind, block: Some(block.number), line: block.line, message: message.into(), hint, lines: Vec::new() }
}

pub(super) fn no_blocks() -> EditFault {
    EditFault {
        kind: EditFaultKind::NoBlocks,
        block: None,
        line: 1,
        message: "there is no SEARCH/REPLACE block, so nothing would change".to_owned(),
        hint: "begin each block with a line `------- SEARCH`, divide it with `=======`, end it with `+++++++ REPLACE`",
        lines: Vec::new(),
    }
}

pub(super) fn stray_marker(line: usize, marker: &str) -> EditFault {
    EditFault {
        kind: EditFaultKind::StrayMarker,
        block: None,
        line,
        message: format!("`{}` closes no block", marker.trim_end()),
        hint: "give each block exactly one opening and one closing marker; for text that holds such a line itself, use the other \
               family of markers",
        lines: Vec::new(),
    }
}

pub(super) fn unclosed(block: &Block<'_>, divided: bool, before: Option<usize>) -> EditFault {
    let part = if divided { "REPLACE" } else { "SEARCH" };
    let place = before.map_or("the end of the diff".to_owned(), |line| format!("the next block, in line {line}"));
    new(
        EditFaultKind::Unclosed,
        block,
        format!("the block is not closed, its {part} part goes on to {place}"),
        "close it with `+++++++ REPLACE` if it began with dashes and `>>>>>>> REPLACE` if it began with angles",
    )
}

pub(super) fn no_divider(block: &Block<'_>, closed: usize) -> EditFault {
    let message = format!("the block has no line `=======` before it is closed in line {closed}");
    new(EditFaultKind::NoDivider, block, message, "put `=======` between the lines to find and the lines instead")
}

pub(super) fn empty_search(block: &Block<'_>) -> EditFault {
    let message = "SEARCH is empty, and that stands for the whole content of an empty file only";
    new(EditFaultKind::EmptySearch, block, message, "put the lines to replace, or a line to add to, into SEARCH")
}

pub(super) fn no_effect(block: &Block<'_>) -> EditFault {
    let message = "SEARCH and REPLACE are the same, so nothing would change";
    new(EditFaultKind::NoEffect, block, message, "leave the block out, or write the new lines into REPLACE")
}

pub(super) fn overlap(block: &Block<'_>, other: usize, line: usize) -> EditFault {
    let message = format!("the block changes line {line} of the text, which block {other} changes too");
    new(EditFaultKind::Overlap, block, message, "join the two into one block")
}

pub(super) fn ambiguous(block: &Block<'_>, lines: &Lines<'_>, places: &[usize]) -> EditFault {
    let more = if places.len() > MAX_SHOWN { ", the first of which are" } else { "" };
    let message = format!("SEARCH is found at {} places in the text{more}", places.len());
    let hint = "add lines before or after to SEARCH and REPLACE, so that it is found once";
    let mut fault = new(EditFaultKind::Ambiguous, block, message, hint);
    fault.lines = places.iter().filter_map(|&index| numbered(lines, index)).take(MAX_SHOWN).collect();
    fault
}

/// Says which line differs first at the nearest place, and shows that place.
pub(super) fn not_found(block: &Block<'_>, lines: &Lines<'_>, search: &[&str]) -> EditFault {
    let hint = "read the file again and copy the lines exactly, indentation included";
    let Some(start) = lines.nearest(search) else {
        return new(EditFaultKind::NotFound, block, "SEARCH is not in the text, and nothing like it", hint);
    };
    let differs = search.iter().enumerate().find(|&(offset, wanted)| lines.bare(start + offset) != Some(wanted));
    let offset = differs.map_or(0, |(offset, _)| offset);
    let wanted = differs.map(|(_, wanted)| cut(wanted)).unwrap_or_default();
    let found = lines.bare(start + offset);
    let how = match found {
        Some(found) if found.trim() == wanted.trim() => "differs only in spaces or tabs at its beginning or end",
        Some(_) => "differs",
        None => "lies behind the end of the text",
    };
    let message = format!(
        "SEARCH is not in the text; the nearest place is line {}, where line {} of SEARCH, {wanted:?}, {how}",
        start + 1,
        offset + 1
    );
    let mut fault = new(EditFaultKind::NotFound, block, message, hint);
    // The window goes around the difference when the block is long.
    let first = start + offset.saturating_sub(MAX_SHOWN / 2);
    let shown = first..(start + search.len()).min(first + MAX_SHOWN);
    fault.lines = shown.filter_map(|index| numbered(lines, index)).collect();
    fault
}

fn numbered(lines: &Lines<'_>, index: usize) -> Option<NumberedLine> {
    Some(NumberedLine { number: index + 1, text: cut(lines.bare(index)?) })
}

fn cut(line: &str) -> String {
    let mut text: String = line.chars().take(MAX_LINE_CHARS).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}
