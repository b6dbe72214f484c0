//! Edits as models write them, as pure functions of a text: SEARCH/REPLACE blocks, patches, string replacement, whole files.
//!
//! Supported: [`apply_blocks`] for any number of blocks, in either family of markers, each marker alone on its line and in
//! its first column;
//!
//! ```text
//! ------- SEARCH        <<<<<<< SEARCH
//! the lines to find     :start_line:12
//! =======               -------
//! the lines instead     the lines to find
//! +++++++ REPLACE       =======
//!                       the lines instead
//!                       >>>>>>> REPLACE
//! ```
//!
//! [`Patch`] for `*** Begin Patch`; [`apply_string`] for one text in place of another, [`apply_whole`] for a new content.
//!
//! **Where an edit belongs** is looked for at three levels ([`MatchLevel`]): exactly; then without regard to blanks at the ends of
//! lines, to typographic quotes, dashes and spaces, and to how accents are put together; then without regard to how far the whole is indented, if it is
//! indented by the same more or less in each line, which the new lines then are too. The first level that finds anything
//! decides, and must find one place. Line hints choose the nearest of several. Line endings never matter.
//!
//! **What is kept**: lines that the replacement has in common with what it replaces keep the text's own bytes, and everything
//! outside is not touched. A new line ends like the line it stands for. Whether the last line of a file ends stays as it was.
//!
//! Unsupported, on purpose: anchors, similarity and ellipses. An edit that does not say precisely one place changes nothing,
//! and the fault says what is nearest; guessing is how edits end up in the wrong function. Nothing that is cut off is applied:
//! a block or patch without its end is refused.
//!
//! Grammar of blocks as implemented: a marker has three or more signs, an opening one perhaps one `>` behind it. A block ends
//! with the marker of the family it began with, so the other family's are ordinary lines in it. Rows of `=` that are not as
//! long as the opening marker are ordinary lines where one is. A second divider is a fault, as is a line that looks like a
//! marker of a merge conflict between angles: no guess says where content ends. A backslash before a marker makes it content
//! and goes, unless the text holds the line with it. Where every line of SEARCH begins with a line number and `|`, both sides
//! are tried without; where SEARCH begins or ends with blank lines, it is tried without them at last. Lines between blocks are skipped unless they are
//! closing markers, which mean that something was misread. All blocks are matched against the original text, in any order.
//!
//! [`DecodedText`] reads the bytes of a file as text and writes them again without loss.
//!
//! ```
//! use sabir_edit::{DecodedText, MatchLevel, apply_blocks};
//!
//! // Windows line endings, and blanks at an end of a line that no model repeats.
//! let text = DecodedText::decode(b"fn main() {  \r\n    greet();\r\n}\r\n")?;
//! let diff = "------- SEARCH\nfn main() {\n    greet();\n=======\nfn main() {\n    greet_all();\n+++++++ REPLACE\n";
//!
//! let edited = apply_blocks(&text.content, diff).expect("one place matches");
//! assert_eq!(edited.content, "fn main() {  \r\n    greet_all();\r\n}\r\n");
//! assert_eq!(edited.hunks[0].level, MatchLevel::Normalised);
//!
//! // An edit that does not say one place changes nothing, and says what is nearest.
//! let faults = apply_blocks(&text.content, &diff.replace("greet()", "meet()")).unwrap_err();
//! assert!(faults[0].to_string().contains("greet();"), "{}", faults[0]);
//! # Ok::<(), sabir_edit::NotText>(())
//! ```

use blocks::{BlockVariant, EditBlock};
use line_index::LineIndex;
use splice::{LineChange, NewLine, rewrite_lines, splice_changes};

mod align;
mod blocks;
mod fault;
mod hunk;
mod line_index;
mod nearest;
mod normalize;
mod patch;
mod splice;
mod string_replace;
mod text;

pub use fault::{EditFault, EditFaultKind, NumberedLine};
pub use patch::{FileAction, FilePatch, FileUpdate, Patch};
pub use string_replace::{StringReplacement, apply_string, apply_whole};
pub use text::{DecodedText, LegacyEncoding, NotInEncoding, NotText, TextEncoding};

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedText {
    /// The whole new text.
    pub content: String,
    /// What changed, in the order of the text.
    pub hunks: Vec<AppliedHunk>,
}

/// Where one block was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedHunk {
    /// The block's number in the diff, or the hunk's in the patch, from 1.
    pub block: usize,
    /// The first line, from 1, that the block's SEARCH matched in the old text.
    pub old_line: usize,
    /// How many lines it matched.
    pub old_lines: usize,
    /// The line, from 1, of the new text where the block's REPLACE begins.
    pub new_line: usize,
    /// How many lines it put there.
    pub new_lines: usize,
    /// How it was found.
    pub level: MatchLevel,
}

/// How what an edit expects compares with the text where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchLevel {
    /// Equal, line endings aside.
    Exact,
    /// Equal, blanks at the ends of lines, blank lines around SEARCH, typographic quotes, dashes and spaces, and the
    /// composition of accents aside.
    Normalised,
    /// As [`Normalised`](Self::Normalised), and indented by more or less, the same in each line.
    Shifted,
}

impl MatchLevel {
    /// All, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Normalised, Self::Shifted];
}

/// The formats of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditSyntax {
    /// Blocks between `------- SEARCH` and `+++++++ REPLACE`, or `<<<<<<< SEARCH` and `>>>>>>> REPLACE`.
    SearchReplace,
    /// `*** Begin Patch`.
    ApplyPatch,
    /// One text in place of another.
    StringReplace,
    /// The whole new content.
    WholeFile,
}

impl EditSyntax {
    /// The format that a text shows by its markers: an opening one of a block, or `*** Begin Patch`.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        match () {
            () if patch::has_patch_start(text) => Some(Self::ApplyPatch),
            () if blocks::has_opener(text) => Some(Self::SearchReplace),
            () => None,
        }
    }
}

/// More places than these are not looked for where no hint can choose among them.
const MAX_PLACES: usize = 1000;

/// Applies all blocks of the diff, or none.
///
/// An empty SEARCH, which may hold one blank line, gives an empty text its whole content. Time and memory are linear in text
/// and diff; a block whose every line is frequent in the text costs time linear in the text once more.
///
/// # Errors
/// Every fault of every block, in the order of the diff.
pub fn apply_blocks(original: &str, diff: &str) -> Result<EditedText, Vec<EditFault>> {
    let (blocks, mut faults) = blocks::parse_blocks(diff);
    if original.is_empty()
        && faults.is_empty()
        && let [block] = blocks.as_slice()
        && let Some(lines) = block.whole_content()
    {
        let content: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        return Ok(EditedText { content, hunks: vec![AppliedHunk::whole_text(0, lines.len())] });
    }
    let lines = LineIndex::from_text(original);
    let mut changes = Vec::new();
    for block in &blocks {
        match locate_block(&lines, block) {
            Ok(change) => changes.push(change),
            Err(fault) => faults.push(*fault),
        }
    }
    let edited = splice_changes(&lines, changes);
    match edited {
        Ok(edited) if faults.is_empty() => Ok(edited),
        edited => {
            faults.extend(edited.err().unwrap_or_default());
            faults.sort_by_key(|fault| fault.line);
            Err(faults)
        }
    }
}

impl AppliedHunk {
    /// A whole text in place of another.
    fn whole_text(old_lines: usize, new_lines: usize) -> Self {
        Self { block: 1, old_line: 1, old_lines, new_line: 1, new_lines, level: MatchLevel::Exact }
    }
}

/// Finds the one place of a block.
fn locate_block<'a>(lines: &LineIndex<'a>, block: &EditBlock<'a>) -> Result<LineChange<'a>, Box<EditFault>> {
    let origin = &block.origin;
    let readings = block.to_variants();
    for reading in readings.iter().filter(|reading| !reading.search.is_empty()) {
        for level in MatchLevel::ALL {
            let limit = if reading.hint.is_some() { usize::MAX } else { MAX_PLACES };
            let places = lines.find_places(level, &reading.search, limit);
            if places.is_empty() {
                continue;
            }
            if reading.search == reading.replace {
                return Err(Box::new(fault::no_effect_fault(origin)));
            }
            let Some(start) = pick_place(&places, reading.hint) else {
                return Err(Box::new(fault::ambiguous_fault(origin, lines, &places, limit)));
            };
            return build_change(lines, block, reading, (level, start));
        }
    }
    // The reading without escapes is the one that was meant most likely.
    let meant = readings.iter().rev().find(|reading| !reading.search.is_empty());
    Err(Box::new(match meant {
        Some(reading) if reading.search == reading.replace => fault::no_effect_fault(origin),
        Some(reading) => fault::not_found_fault(origin, lines, &reading.search),
        None => fault::empty_search_fault(origin),
    }))
}

fn build_change<'a>(
    lines: &LineIndex<'a>,
    block: &EditBlock<'a>,
    reading: &BlockVariant<'a>,
    (level, start): (MatchLevel, usize),
) -> Result<LineChange<'a>, Box<EditFault>> {
    let origin = block.origin;
    let old = start..start + reading.search.len();
    let Some(new) = rewrite_lines(lines, (level, start), &reading.search, &reading.replace) else {
        return Err(Box::new(fault::indentation_fault(&origin, lines, old)));
    };
    if new.len() == old.len() && new.iter().zip(old.clone()).all(|(line, index)| *line == NewLine::Kept(index)) {
        return Err(Box::new(fault::no_effect_fault(&origin)));
    }
    Ok(LineChange { origin, level: level.max(reading.least), old, new })
}

/// The only place, or the one nearest to the line of the hint, if no other is as near.
fn pick_place(places: &[usize], hint: Option<usize>) -> Option<usize> {
    match (places, hint) {
        (&[place], _) => Some(place),
        (_, None) => None,
        (places, Some(line)) => {
            let distance = |place: &usize| place.abs_diff(line.saturating_sub(1));
            let nearest = places.iter().min_by_key(|place| distance(place))?;
            let as_near = places.iter().filter(|place| distance(place) == distance(nearest)).count();
            (as_near == 1).then_some(*nearest)
        }
    }
}

#[cfg(test)]
mod tests;
