//! Applies the edit of one file, and reports changed files to the model.

use std::collections::BTreeSet;

use sabir_agent::ToolOutput;
use sabir_edit::{EditFault, EditedText, MatchLevel};
use sabir_workspace::WorkPath;

use crate::edit_error::{EditError, FaultList};
use crate::editor::WriteDestination;
use crate::file_tracker::FileTracker;
use crate::text::{self, count_noun};
use crate::text_file::TextFile;

/// The size of all diffs of one result together. Beyond it, files are only named.
const MAX_DIFF_BYTES: usize = 16 << 10;

/// The changes that a call made, in the order in which the model asked for them.
pub(crate) struct EditOutcome {
    edits: Vec<FileEdit>,
    written: WriteDestination,
}

impl EditOutcome {
    pub(crate) fn new(edits: Vec<FileEdit>, written: WriteDestination) -> Self {
        Self { edits, written }
    }
}

/// The change of one file.
pub(crate) enum FileEdit {
    /// The file is new.
    Added {
        /// The file.
        path: WorkPath,
        /// The number of its lines.
        lines: usize,
    },
    /// The file is gone.
    Deleted {
        /// The path that it had.
        path: WorkPath,
    },
    /// The file has another content, or another path.
    Changed(ChangedFile),
}

/// A file with a new content, a new path, or both.
pub(crate) struct ChangedFile {
    /// The file; its old path if it was moved.
    pub(crate) path: WorkPath,
    /// The new path, if the file was moved.
    pub(crate) moved_to: Option<WorkPath>,
    /// The number of changes in the file.
    count: usize,
    /// The unit of `count`: `block`, `place` or `hunk`.
    noun: &'static str,
    /// The changed lines, with the new line numbers.
    diff: String,
    /// Remarks on parts that were found only after their text was normalised or shifted.
    notes: Vec<String>,
}

impl ChangedFile {
    /// Describes the difference between a text and its edited form. `noun` names a part of the edit.
    pub(crate) fn from_edit(
        path: WorkPath,
        old: &str,
        edited: &EditedText,
        noun: &'static str,
    ) -> Self {
        Self {
            path,
            moved_to: None,
            count: edited.hunks.len(),
            noun,
            diff: text::render_diff(old, &edited.content),
            notes: match_notes(edited, noun),
        }
    }

    /// Describes the change, with its diff if that has at most `room` bytes.
    fn describe_change(&self, room: usize) -> String {
        let Self { path, moved_to, .. } = self;
        let times = count_noun(self.count, self.noun);
        let mut message = match moved_to {
            None => format!("Changed `{path}`, {times}"),
            Some(to) if self.diff.is_empty() => format!("Moved `{path}` to `{to}`, unchanged"),
            Some(to) => format!("Moved `{path}` to `{to}`, and changed it, {times}"),
        };
        match self.diff.len() {
            0 => message.push('.'),
            length if length > room => message.push_str(". [No room for its diff.]"),
            _ => message.push_str(&format!(":\n{}", self.diff)),
        }
        message.extend(self.notes.iter().map(|note| format!("\n[{note}]")));
        message
    }
}

/// Returns remarks on the parts that were not found exactly as the model wrote them.
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
        // A block that replaces several places has a hunk for each, and is named once.
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
    fn from(EditOutcome { edits, written }: EditOutcome) -> Self {
        let mut lines = Vec::new();
        let mut room = MAX_DIFF_BYTES;
        for edit in &edits {
            lines.push(match edit {
                FileEdit::Added { path, lines } => {
                    let lines = count_noun(*lines, "line");
                    format!("Wrote {lines} to the new file `{path}`.")
                }
                FileEdit::Deleted { path } => format!("Deleted `{path}`."),
                FileEdit::Changed(changed) => {
                    // A single diff is capped where it is made, and always shown.
                    let own = if edits.len() == 1 { usize::MAX } else { room };
                    // A diff that does not fit uses up the room too, so only a prefix of the diffs
                    // is shown.
                    room = room.saturating_sub(changed.diff.len());
                    changed.describe_change(own)
                }
            });
        }
        lines.extend(written.note().map(str::to_owned));
        Self::done(lines.join("\n"))
    }
}

/// Checks that an edit applies to a file and changes it.
///
/// # Errors
/// When the edit has faults or no effect.
pub(crate) fn check_edited(
    file: &TextFile,
    edited: Result<EditedText, Vec<EditFault>>,
) -> Result<EditedText, EditError> {
    let path = file.path.clone();
    match edited {
        Ok(edited) if edited.content == file.content => Err(EditError::NoEffect { path }),
        Ok(edited) => Ok(edited),
        Err(faults) => Err(EditError::Faulty {
            path,
            faults: FaultList(faults),
        }),
    }
}

/// Writes an edited file. All parts of the edit are applied, or none.
///
/// # Errors
/// When the edit has faults or no effect, or the file cannot be written.
pub(crate) fn write_edited(
    tracker: &FileTracker,
    file: TextFile,
    edited: Result<EditedText, Vec<EditFault>>,
    noun: &'static str,
) -> Result<EditOutcome, EditError> {
    let edited = check_edited(&file, edited)?;
    let change = file.content_change(&edited.content)?;
    let written = tracker.apply_changes(&[change], &[&edited.content])?;
    let changed = ChangedFile::from_edit(file.path, &file.content, &edited, noun);
    Ok(EditOutcome::new(vec![FileEdit::Changed(changed)], written))
}
