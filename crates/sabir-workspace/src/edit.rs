//! Exact SEARCH/REPLACE edits, as a pure function of the text and the diff.
//!
//! Supported: any number of blocks, in either family of markers, each marker alone on its line.
//!
//! ```text
//! ------- SEARCH        <<<<<<< SEARCH
//! the lines to find     the lines to find
//! =======               =======
//! the lines instead     the lines instead
//! +++++++ REPLACE       >>>>>>> REPLACE
//! ```
//!
//! Unsupported, on purpose: anything inexact. A block that does not say precisely one place changes nothing, and the fault
//! says what is nearest; guessing is how edits end up in the wrong function.
//!
//! Grammar as implemented: a block ends with the markers of the family it began with, so the other family's are ordinary lines
//! in it. A `=======` within SEARCH or REPLACE is an ordinary line too: of all ways to divide the block, the one with the
//! longest SEARCH that is found counts, and the first where none is. Lines between blocks are skipped unless they are closing markers, which
//! mean that something was misread. All blocks are matched against the original text, in any order.
//!
//! Lines are compared without their endings, `\n` or `\r\n`; replaced lines get the ending of the place they replace, lines that
//! stay keep theirs, and so does the end of the file. Everything else is compared and kept byte by byte.

use std::ops::Range;

use blocks::Block;
use find::Lines;

mod blocks;
mod fault;
mod find;
mod patch;
mod string;

pub use fault::{EditFault, EditFaultKind, NumberedLine};
pub use patch::{FileAction, FilePatch, Patch, Update};
pub use string::{Replacement, apply_string};

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The whole new text.
    pub content: String,
    /// What changed, in the order of the text.
    pub hunks: Vec<Hunk>,
}

/// Where one block was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The block's number in the diff, from 1.
    pub block: usize,
    /// The first line, from 1, that the block's SEARCH matched in the old text.
    pub old_line: usize,
    /// How many lines it matched.
    pub old_lines: usize,
    /// The line, from 1, of the new text where the block's REPLACE begins.
    pub new_line: usize,
    /// How many lines it put there.
    pub new_lines: usize,
}

/// Applies all blocks of the diff, or none.
///
/// An empty SEARCH, which may hold one blank line, gives an empty text its whole content. Time and memory are linear in text and
/// diff, times the number of blocks for the text.
///
/// # Errors
/// Every fault of every block, in the order of the diff.
pub fn apply_blocks(original: &str, diff: &str) -> Result<Edited, Vec<EditFault>> {
    let (blocks, mut faults) = blocks::parse(diff);
    if original.is_empty()
        && faults.is_empty()
        && let [block] = blocks.as_slice()
        && let Some(lines) = block.whole_content()
    {
        let content: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        let hunk = Hunk { block: 1, old_line: 1, old_lines: 0, new_line: 1, new_lines: lines.len() };
        return Ok(Edited { content, hunks: vec![hunk] });
    }
    let lines = Lines::of(original);
    let mut changes = Vec::new();
    for block in &blocks {
        match place(&lines, block) {
            Ok(change) => changes.push(change),
            Err(fault) => faults.push(*fault),
        }
    }
    changes.sort_by_key(|change| change.old.start);
    for (first, second) in changes.iter().zip(changes.iter().skip(1)) {
        if second.old.start < first.old.end {
            let (kept, other) =
                if first.block.number < second.block.number { (first, second) } else { (second, first) };
            faults.push(fault::overlap(other.block, kept.block.number, second.old.start + 1));
        }
    }
    if !faults.is_empty() {
        faults.sort_by_key(|fault| fault.line);
        return Err(faults);
    }
    Ok(splice(&lines, &changes))
}

/// One block and the place it is for.
struct Change<'a> {
    block: &'a Block<'a>,
    /// Line indexes of the old text, from 0.
    old: Range<usize>,
    search: &'a [&'a str],
    replace: &'a [&'a str],
}

/// Finds the one place of a block.
fn place<'a>(lines: &Lines<'_>, block: &'a Block<'a>) -> Result<Change<'a>, Box<EditFault>> {
    for (search, replace) in block.divisions().rev().filter(|(search, _)| !search.is_empty()) {
        match lines.places(search).as_slice() {
            [] => {}
            _ if search == replace => return Err(Box::new(fault::no_effect(block))),
            &[start] => return Ok(Change { block, old: start..start + search.len(), search, replace }),
            places => return Err(Box::new(fault::ambiguous(block, lines, places))),
        }
    }
    Err(Box::new(match block.divisions().next() {
        Some((search, replace)) if search == replace => fault::no_effect(block),
        Some((search, _)) if !search.is_empty() => fault::not_found(block, lines, search),
        _ => fault::empty_search(block),
    }))
}

/// Builds the new text. The changes are sorted and do not overlap.
fn splice(lines: &Lines<'_>, changes: &[Change<'_>]) -> Edited {
    let mut content = String::new();
    let mut hunks = Vec::new();
    let (mut next, mut new_line) = (0, 1);
    for change in changes {
        content.extend(lines.raw(next..change.old.start));
        new_line += change.old.start - next;
        replace(&mut content, lines, change);
        hunks.push(Hunk {
            block: change.block.number,
            old_line: change.old.start + 1,
            old_lines: change.old.len(),
            new_line,
            new_lines: change.replace.len(),
        });
        new_line += change.replace.len();
        next = change.old.end;
    }
    content.extend(lines.raw(next..lines.len()));
    Edited { content, hunks }
}

/// Writes the new lines of one change. Lines that begin or end both sides stay as they were, endings included.
fn replace(content: &mut String, lines: &Lines<'_>, change: &Change<'_>) {
    let (old, new) = (change.search, change.replace);
    let same = |(a, b): &(&&str, &&str)| a == b;
    let prefix = old.iter().zip(new).take_while(same).count();
    let room = old.len().min(new.len()) - prefix;
    let suffix = old.iter().rev().zip(new.iter().rev()).take(room).take_while(same).count();
    let ending = lines.ending(change.old.clone());
    let ends_file = change.old.end == lines.len() && lines.last_is_open();

    content.extend(lines.raw(change.old.start..change.old.start + prefix));
    if prefix > 0 && prefix == old.len() && ends_file && new.len() > prefix {
        // Lines are added after what was the last line of the file, which had no ending.
        content.push_str(ending);
    }
    let fresh = new.get(prefix..new.len() - suffix).unwrap_or_default();
    for (index, line) in fresh.iter().enumerate() {
        content.push_str(line);
        let is_last = suffix == 0 && index + 1 == fresh.len();
        if !(is_last && ends_file) {
            content.push_str(ending);
        }
    }
    content.extend(lines.raw(change.old.end - suffix..change.old.end));
}

#[cfg(test)]
mod tests;
