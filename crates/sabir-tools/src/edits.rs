//! What became of the files that an edit tool changed, and how it is told.

use std::collections::BTreeSet;

use sabir_agent::ToolOutput;
use sabir_edit::{EditFault, EditedText, MatchLevel};
use sabir_workspace::WorkPath;

use crate::file_tracker::FileTracker;
use crate::text::{self, count_noun};
use crate::text_file::TextFile;

const MAX_FAULTS: usize = 10;
/// Of all diffs of one result together; beyond that files are only named.
const MAX_DIFF_BYTES: usize = 16 << 10;

/// What was done, in the order in which the model asked for it.
pub(crate) struct EditOutcome(pub(crate) Vec<FileEdit>);

/// What was done to one file.
pub(crate) enum FileEdit {
    /// It is new.
    Added {
        path: WorkPath,
        lines: usize,
    },
    Deleted {
        path: WorkPath,
    },
    Changed(ChangedFile),
}

/// A file that holds something else now, or is elsewhere.
pub(crate) struct ChangedFile {
    pub(crate) path: WorkPath,
    pub(crate) moved_to: Option<WorkPath>,
    /// What was changed: so many `block`s, `place`s, `hunk`s.
    pub(crate) count: usize,
    pub(crate) noun: &'static str,
    /// The changed lines, with the new line numbers.
    pub(crate) diff: String,
    /// What the model should know of how it was understood.
    pub(crate) notes: Vec<String>,
}

impl ChangedFile {
    /// A text before and after its change.
    pub(crate) fn new(path: WorkPath, old: &str, edited: &EditedText, noun: &'static str) -> Self {
        let diff = text::render_diff(old, &edited.content);
        Self {
            path,
            moved_to: None,
            count: edited.hunks.len(),
            noun,
            diff,
            notes: match_notes(edited, noun),
        }
    }

    fn describe_change(&self, room: usize) -> String {
        let Self {
            path,
            moved_to,
            count: times,
            noun,
            diff,
            notes,
        } = self;
        let times = count_noun(*times, noun);
        let mut words = match moved_to {
            None => format!("Changed `{path}`, {times}"),
            Some(to) if diff.is_empty() => format!("Moved `{path}` to `{to}`, unchanged"),
            Some(to) => format!("Moved `{path}` to `{to}`, and changed it, {times}"),
        };
        match diff.len() {
            0 => words.push('.'),
            length if length > room => words.push_str(". [No room for its diff.]"),
            _ => words.push_str(&format!(":\n{diff}")),
        }
        words.extend(notes.iter().map(|note| format!("\n[{note}]")));
        words
    }
}

/// What is to be said of parts that were not found exactly as the model wrote them.
fn match_notes(edited: &EditedText, noun: &str) -> Vec<String> {
    let inexact = [
        (
            MatchLevel::Normalised,
            "but for white space at the ends of lines or around it, or typographic characters",
        ),
        (
            MatchLevel::Shifted,
            "with other indentation, to which the new lines were shifted",
        ),
    ];
    let note = |(level, how)| {
        let found = edited
            .hunks
            .iter()
            .filter(|hunk| hunk.level == level)
            .map(|hunk| hunk.block);
        let numbers: BTreeSet<_> = found.collect();
        let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
        match numbers.as_slice() {
            [] => None,
            [_] if edited.hunks.iter().all(|hunk| hunk.level == level) => {
                Some(format!("Found {how}. Check the result."))
            }
            numbers => Some(format!(
                "Found {how}: {noun} {}. Check the result.",
                numbers.join(", ")
            )),
        }
    };
    inexact.into_iter().filter_map(note).collect()
}

impl From<EditOutcome> for ToolOutput {
    fn from(EditOutcome(all): EditOutcome) -> Self {
        let (mut words, mut room) = (Vec::new(), MAX_DIFF_BYTES);
        for done in &all {
            words.push(match done {
                FileEdit::Added { path, lines } => {
                    format!(
                        "Wrote {} to the new file `{path}`.",
                        count_noun(*lines, "line")
                    )
                }
                FileEdit::Deleted { path } => format!("Deleted `{path}`."),
                FileEdit::Changed(changed) => {
                    // A single diff is capped where it is made, and always shown.
                    let own = if all.len() == 1 { usize::MAX } else { room };
                    room = room.saturating_sub(changed.diff.len());
                    changed.describe_change(own)
                }
            });
        }
        Self::done(words.join("\n"))
    }
}

/// The whole edit of one file: all of it or nothing.
pub(crate) fn apply_edit(
    ground: &FileTracker,
    file: TextFile,
    edited: Result<EditedText, Vec<EditFault>>,
    noun: &'static str,
) -> Result<EditOutcome, String> {
    let edited = edited.map_err(|faults| explain_faults(&file.path, &faults))?;
    if edited.content == file.content {
        return Err(unchanged_message(&file.path));
    }
    ground.apply_changes(&[file.content_change(&edited.content)?], &[&edited.content])?;
    Ok(EditOutcome(vec![FileEdit::Changed(ChangedFile::new(
        file.path,
        &file.content,
        &edited,
        noun,
    ))]))
}

/// What is wrong with the edit of one file.
fn explain_faults(path: &WorkPath, faults: &[EditFault]) -> String {
    format!("Nothing was changed in `{path}`:{}", list_faults(faults))
}

/// Says that an edit makes no difference.
pub(crate) fn unchanged_message(path: &WorkPath) -> String {
    format!("`{path}` holds exactly that already; nothing was written.")
}

/// Faults, a line each and the lines of the text that help.
pub(crate) fn list_faults(faults: &[EditFault]) -> String {
    let mut words: String = faults
        .iter()
        .take(MAX_FAULTS)
        .map(|fault| format!("\n{fault}"))
        .collect();
    if let Some(more @ 1..) = faults.len().checked_sub(MAX_FAULTS) {
        words.push_str(&format!("\n[{more} more of the kind.]"));
    }
    words
}
