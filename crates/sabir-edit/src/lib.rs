//! Applies the edits that language models write to a text: SEARCH/REPLACE blocks, patches, string
//! replacement, whole files. All functions are pure.
//!
//! [`apply_blocks`] takes any number of blocks. Two families of markers are supported; each marker
//! is alone on its line and starts in the first column:
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
//! [`Patch`] reads the `*** Begin Patch` format, [`apply_string_replacement`] replaces one text by another, and
//! [`replace_whole_text`] replaces the whole content.
//!
//! **Matching.** The place of an edit is searched at three levels ([`MatchLevel`]): first exactly;
//! then ignoring white space at line ends, typographic quotes, dashes and spaces, and the
//! composition of accents; then also ignoring indentation, provided that every line is off by the
//! same amount, in which case the new lines are shifted by it too. The first level that finds
//! anything decides, and it must find exactly one place. Line hints choose the nearest of several
//! places. Line endings never matter.
//!
//! **Preserved bytes.** Lines that the replacement shares with the replaced text keep the bytes of
//! the file, and everything outside is untouched. A new line gets the ending of the line it
//! replaces. If the last line of a file has no line ending, it still has none afterwards.
//!
//! **Unsupported on purpose:** anchors, similarity scores and ellipses. An edit that does not
//! identify one place changes nothing, and the fault shows the nearest place; guessing is how edits
//! end up in the wrong function. Truncated input is never applied: a block or patch without its
//! closing marker is refused.
//!
//! **Grammar of blocks as implemented:**
//!
//! - A marker has three or more signs; an opening marker may be followed by one `>`.
//! - A block ends with the closing marker of its own family, so markers of the other family are
//!   ordinary lines inside it.
//! - If a row of `=` as long as the opening marker exists, rows of other lengths are ordinary
//!   lines.
//! - A second divider is a fault, and so is a line in an angle block that looks like a
//!   merge-conflict marker, because nothing tells where the content ends.
//! - A backslash before a marker makes the line content. The backslash is removed, unless the text
//!   contains the line with it.
//! - If every SEARCH line begins with a line number and `|`, and they count up, the block is also
//!   tried without the numbers: at the numbered place first, else at the only one. REPLACE may have
//!   such numbers too, in all of its lines or in none. The strings of [`apply_string_replacement`] likewise, if
//!   they are found nowhere as written; without the numbers they are whole lines.
//! - If SEARCH begins or ends with blank lines, it is finally tried without them.
//! - Lines between blocks are skipped, except closing markers, which show that something was
//!   misread.
//! - All blocks are matched against the original text, in any order.
//!
//! [`DecodedText`] reads the bytes of a file as text and writes them back without loss.
//!
//! ```
//! use sabir_edit::{DecodedText, MatchLevel, apply_blocks};
//!
//! // Windows line endings, and trailing spaces that no model repeats.
//! let text = DecodedText::decode(b"fn main() {  \r\n    greet();\r\n}\r\n")?;
//! let diff = "------- SEARCH\nfn main() {\n    greet();\n=======\nfn main() {\n    greet_all();\n+++++++ REPLACE\n";
//!
//! let edited = apply_blocks(&text.content, diff).expect("one place matches");
//! assert_eq!(edited.content, "fn main() {  \r\n    greet_all();\r\n}\r\n");
//! assert_eq!(edited.hunks[0].level, MatchLevel::Normalised);
//!
//! // An edit that does not identify one place changes nothing and reports the nearest place.
//! let faults = apply_blocks(&text.content, &diff.replace("greet()", "meet()")).unwrap_err();
//! assert!(faults[0].to_string().contains("greet();"), "{}", faults[0]);
//! # Ok::<(), sabir_edit::NotText>(())
//! ```

use blocks::{BlockVariant, EditBlock};
use line_index::LineIndex;
use splice::{LineChange, ResultLine, rewrite_lines, splice_changes};

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

pub use blocks::partial_marker_len;
pub use fault::{EditFault, EditFaultKind, NumberedLine};
pub use patch::{FileAction, FilePatch, FileUpdate, Patch};
pub use string_replace::{StringReplacement, apply_string_replacement, replace_whole_text};
pub use text::{DecodedText, LegacyEncoding, NotText, TextEncoding, UnmappableCharacter};

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedText {
    /// The whole new text.
    pub content: String,
    /// The changes, in the order of the text.
    pub hunks: Vec<AppliedHunk>,
}

/// The place where one block was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedHunk {
    /// The block's number in the diff, or the hunk's in the patch, from 1.
    pub block: usize,
    /// The first line, from 1, that the block's SEARCH matched in the old text.
    pub old_line: usize,
    /// The number of old lines that it matched.
    pub old_lines: usize,
    /// The line, from 1, of the new text where the block's REPLACE begins.
    pub new_line: usize,
    /// The number of lines that it inserted there.
    pub new_lines: usize,
    /// The level at which it was found.
    pub level: MatchLevel,
}

/// The strictness at which the lines that an edit expects equal the lines of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchLevel {
    /// Equal, except for line endings.
    Exact,
    /// Equal, except for white space at line ends, blank lines around SEARCH, typographic quotes,
    /// dashes and spaces, and the composition of accents.
    Normalised,
    /// Equal as in [`Normalised`](Self::Normalised), with every line indented more, or less, by the
    /// same amount.
    Shifted,
}

impl MatchLevel {
    /// All levels, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Normalised, Self::Shifted];
}

/// The formats of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditSyntax {
    /// Blocks between `------- SEARCH` and `+++++++ REPLACE`, or `<<<<<<< SEARCH` and `>>>>>>>
    /// REPLACE`.
    SearchReplace,
    /// `*** Begin Patch`.
    ApplyPatch,
    /// One text replaced by another.
    StringReplace,
    /// The whole new content.
    WholeFile,
}

impl EditSyntax {
    /// Returns the format whose markers a text contains: `*** Begin Patch`, or the opening marker
    /// of a block.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        match () {
            () if patch::has_patch_start(text) => Some(Self::ApplyPatch),
            () if blocks::has_opener(text) => Some(Self::SearchReplace),
            () => None,
        }
    }
}

/// The number of places after which a search without a line hint stops, since the edit is ambiguous anyway. A fault shows ten of them, and
/// a search for the line `}` in a large file would collect thousands.
const MAX_PLACES: usize = 1000;

/// Applies all blocks of the diff, or none.
///
/// If the text is empty, a block with an empty SEARCH (or one blank line) supplies its whole
/// content. Time and memory are linear in the text and the diff; a block whose every line is
/// frequent in the text costs one more pass over the text.
///
/// # Errors
/// Returns every fault of every block, in the order of the diff.
pub fn apply_blocks(original: &str, diff: &str) -> Result<EditedText, Vec<EditFault>> {
    let (blocks, mut faults) = blocks::parse_blocks(diff);
    if original.is_empty()
        && faults.is_empty()
        && let [block] = blocks.as_slice()
        && let Some(lines) = block.whole_content()
    {
        let content: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        return Ok(EditedText {
            content,
            hunks: vec![AppliedHunk::whole_text(0, lines.len())],
        });
    }
    // Every block is located in the original text, so their order does not matter.
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
            // All faults are reported together, so that the model can fix every block in one
            // answer.
            faults.extend(edited.err().unwrap_or_default());
            faults.sort_by_key(|fault| fault.line);
            Err(faults)
        }
    }
}

impl AppliedHunk {
    /// The hunk of a text that was replaced as a whole.
    fn whole_text(old_lines: usize, new_lines: usize) -> Self {
        Self {
            block: 1,
            old_line: 1,
            old_lines,
            new_line: 1,
            new_lines,
            level: MatchLevel::Exact,
        }
    }
}

/// Finds the one place where a block applies.
///
/// The variants are tried from the most literal to the most lenient, and each of them at all levels, so that a block that matches as
/// written is never read in another way.
fn locate_block<'a>(
    lines: &LineIndex<'a>,
    block: &EditBlock<'a>,
) -> Result<LineChange<'a>, Box<EditFault>> {
    let origin = &block.origin;
    let variants = block.to_variants();
    for variant in variants.iter().filter(|variant| !variant.search.is_empty()) {
        for level in MatchLevel::ALL {
            // With a hint every place matters, because the nearest one is chosen among all of them.
            let limit = if variant.hint.is_some() || variant.numbered.is_some() {
                usize::MAX
            } else {
                MAX_PLACES
            };
            let places = lines.find_matches(level, &variant.search, limit);
            if places.is_empty() {
                continue;
            }
            // Reported only if SEARCH is found: the fault of a block that is not found helps more.
            if variant.search == variant.replace {
                return Err(Box::new(fault::no_effect_fault(origin)));
            }
            // The numbers that a reader showed are exact: a place near them is only a guess.
            let numbered = variant
                .numbered
                .and_then(|line| line.checked_sub(1))
                .filter(|line| places.contains(line));
            let chosen = numbered.or_else(|| pick_match(&places, variant.hint));
            let Some(start) = chosen else {
                return Err(Box::new(fault::ambiguous_fault(
                    origin, lines, &places, limit,
                )));
            };
            return build_change(lines, block, variant, level, start);
        }
    }
    // The last variant is the most lenient one, which the model most likely meant.
    let meant = variants
        .iter()
        .rev()
        .find(|variant| !variant.search.is_empty());
    Err(Box::new(match meant {
        Some(variant) if variant.search == variant.replace => fault::no_effect_fault(origin),
        Some(variant) => fault::not_found_fault(origin, lines, &variant.search),
        None => fault::empty_search_fault(origin),
    }))
}

/// Builds the change for a block whose place is known; fails if the indentation cannot be followed
/// or nothing would change.
fn build_change<'a>(
    lines: &LineIndex<'a>,
    block: &EditBlock<'a>,
    variant: &BlockVariant<'a>,
    level: MatchLevel,
    start: usize,
) -> Result<LineChange<'a>, Box<EditFault>> {
    let origin = block.origin;
    // From here on the place is certain; only the indentation or an unchanged result can still
    // fail.
    let old = start..start + variant.search.len();
    let Some(new) = rewrite_lines(lines, level, start, &variant.search, &variant.replace) else {
        return Err(Box::new(fault::indentation_fault(&origin, lines, old)));
    };
    if new.len() == old.len()
        && new
            .iter()
            .zip(old.clone())
            .all(|(line, index)| *line == ResultLine::Kept(index))
    {
        return Err(Box::new(fault::no_effect_fault(&origin)));
    }
    Ok(LineChange {
        origin,
        // A variant that drops blank lines never counts as exact, even if the rest matched exactly.
        level: level.max(variant.min_level),
        old,
        new,
    })
}

/// Returns the only place, or the one nearest to the hinted line if no other is equally near.
///
/// Two places at the same distance remain ambiguous: hints are often off by the lines that earlier
/// blocks added.
fn pick_match(places: &[usize], hint: Option<usize>) -> Option<usize> {
    match (places, hint) {
        (&[place], _) => Some(place),
        (_, None) => None,
        (places, Some(line)) => {
            let distance = |place: &usize| place.abs_diff(line.saturating_sub(1));
            let nearest = places.iter().min_by_key(|place| distance(place))?;
            let as_near = places
                .iter()
                .filter(|place| distance(place) == distance(nearest))
                .count();
            (as_near == 1).then_some(*nearest)
        }
    }
}

#[cfg(test)]
mod tests;
