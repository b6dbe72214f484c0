//! What calls would write, shown to the user before they do: the very change that would be made, as a diff.
//!
//! Nothing is learnt by it: what the model knows of a file stays as it is. A call that would fail has no preview; its arguments are
//! shown then.

use sabir_edit::{DecodedText, FileAction, FileUpdate, Patch};

use crate::file_tracker::FileTracker;
use crate::text::{self, MAX_FILE_BYTES};

/// A new content in place of the old one, if there is one.
pub(crate) fn preview_write(ground: &FileTracker, path: &str, content: &str) -> Option<String> {
    preview_edit(ground, path, |_| Some(content.to_owned()))
}

/// The change of one text file.
pub(crate) fn preview_edit(
    ground: &FileTracker,
    path: &str,
    edit: impl FnOnce(&str) -> Option<String>,
) -> Option<String> {
    let old = read_text(ground, path)?;
    let new = edit(&old)?;
    Some(if new == old {
        "(nothing changes)".to_owned()
    } else {
        text::render_diff(&old, &new)
    })
}

/// All changes of a patch.
pub(crate) fn preview_patch(ground: &FileTracker, patch: &Patch) -> Option<String> {
    let mut shown = Vec::new();
    for file in &patch.files {
        let path = &file.path;
        shown.push(match &file.action {
            FileAction::Add(content) => {
                let lines: Vec<_> = content.lines().map(|line| format!("+{line}")).collect();
                format!("new file {path}:\n{}", lines.join("\n"))
            }
            FileAction::Delete => format!("delete {path}"),
            FileAction::Update(update) => {
                let diff = preview_edit(ground, path, |old| Some(update.apply(old).ok()?.content))?;
                format!("{}:\n{diff}", patch_heading(path, update))
            }
            _ => return None,
        });
    }
    Some(shown.join("\n"))
}

fn patch_heading(path: &str, update: &FileUpdate) -> String {
    match &update.move_to {
        Some(to) => format!("move {path} to {to}"),
        None => format!("change {path}"),
    }
}

fn read_text(ground: &FileTracker, path: &str) -> Option<String> {
    let found = ground
        .workspace()
        .read_file(&ground.resolve_path(path).ok()?, MAX_FILE_BYTES)
        .ok()?;
    let text = DecodedText::decode(&found.bytes)
        .ok()
        .filter(|_| !found.truncated)?;
    Some(text.content)
}
