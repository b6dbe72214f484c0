//! Renders the changes that a call would make, for the user who is asked about it.
//!
//! A preview computes the very change that the run would make, as a diff. It does not count as
//! reading: the versions that the model knows stay as they are. A call that would fail has no
//! preview; the front end shows its arguments then.

use sabir_edit::{FileAction, FilePatch, FileUpdate};

use crate::file_tracker::{FileTracker, decode_whole};
use crate::text;

/// Renders the change of one text file. `edit` computes the new text from the old one.
pub(crate) fn preview_edit(
    tracker: &FileTracker,
    path: &str,
    edit: impl FnOnce(&str) -> Option<String>,
) -> Option<String> {
    let old = read_text(tracker, path)?;
    let new = edit(&old)?;
    Some(if new == old {
        "(nothing changes)".to_owned()
    } else {
        text::render_diff(&old, &new)
    })
}

/// Renders all changes of a patch.
pub(crate) fn preview_patch<'a>(
    tracker: &FileTracker,
    files: impl Iterator<Item = &'a FilePatch>,
) -> Option<String> {
    let mut sections = Vec::new();
    for file in files {
        let path = &file.path;
        sections.push(match &file.action {
            FileAction::Add(content) => {
                let lines: Vec<_> = content.lines().map(|line| format!("+{line}")).collect();
                format!("new file {path}:\n{}", lines.join("\n"))
            }
            FileAction::Delete => format!("delete {path}"),
            FileAction::Update(update) => {
                let diff =
                    preview_edit(tracker, path, |old| Some(update.apply(old).ok()?.content))?;
                format!("{}:\n{diff}", update_heading(path, update))
            }
            // A preview with gaps would be worse than none.
            _ => return None,
        });
    }
    Some(sections.join("\n"))
}

/// Names the file that a section updates, and the path that it is moved to.
fn update_heading(path: &str, update: &FileUpdate) -> String {
    match &update.move_to {
        Some(to) => format!("move {path} to {to}"),
        None => format!("change {path}"),
    }
}

/// Reads a text file, without a record that the model has seen it.
fn read_text(tracker: &FileTracker, path: &str) -> Option<String> {
    let path = tracker.resolve_path(path).ok()?;
    // Not `FileTracker::read_file`: its errors list the workspace, and no error is shown here.
    let found = tracker.read_content(&path).ok()?;
    Some(decode_whole(&found)?.content)
}
