//! Renders differences for people: unified diffs, and one-line descriptions.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use similar::TextDiff;

use super::compare::PathDifference;
use super::object::{ObjectId, TreeNode};
use super::restore_plan::RestoreConflict;
use super::{CheckpointError, CheckpointStore};

/// The size, in bytes, above which contents are only reported as different.
const MAX_TEXT_BYTES: usize = 1 << 20;
// Bounds the time that a diff of unrelated texts can take; the rest is shown as replaced.
const MAX_TIME: Duration = Duration::from_millis(500);

impl CheckpointStore {
    /// Renders the differences as one text: unified diffs for text files, one line for everything
    /// else. Files over a megabyte, and those that are not UTF-8 or contain a NUL byte, get one
    /// line too.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] and [`CheckpointError::Io`].
    pub fn render_diff(&self, differences: &[PathDifference]) -> Result<String, CheckpointError> {
        let Some(work) = self.lock_existing()? else {
            return Ok(String::new());
        };
        let content = |path: &Path, id: &ObjectId| {
            work.store().read_object(id).or_else(|damaged| {
                // The content after an unsealed call is not in the store, only in the workspace.
                let now = self
                    .to_work_path(path)
                    .and_then(|path| self.workspace.read_file(&path, MAX_TEXT_BYTES).ok());
                now.map(|now| now.bytes)
                    .filter(|bytes| ObjectId::hash_of(bytes) == *id)
                    .ok_or(damaged)
            })
        };
        differences
            .iter()
            .map(|difference| render_difference(difference, &content))
            .collect()
    }
}

/// Formats a path on one line: unchanged, or quoted with escapes if it contains control characters.
#[must_use]
pub fn display_path(path: &Path) -> String {
    let plain = path.display().to_string();
    if plain.contains(char::is_control) {
        format!("{plain:?}")
    } else {
        plain
    }
}

/// A function that loads the content of a path by its id.
type ContentLoader<'a> = &'a dyn Fn(&Path, &ObjectId) -> Result<Vec<u8>, CheckpointError>;

/// Renders one difference: a line about a changed mode, then the diff or a line about the kinds.
fn render_difference(
    difference: &PathDifference,
    content: ContentLoader<'_>,
) -> Result<String, CheckpointError> {
    let PathDifference {
        path,
        before,
        after,
    } = difference;
    let shown = display_path(path);
    let mut lines = String::new();
    if let (Some(old), Some(new)) = (
        before.as_ref().and_then(node_mode),
        after.as_ref().and_then(node_mode),
    ) && old != new
    {
        lines.push_str(&format!("mode of {shown}: {old:03o} → {new:03o}\n"));
    }
    let text = |node: Option<&TreeNode>| -> Result<Option<String>, CheckpointError> {
        match node {
            None => Ok(Some(String::new())),
            Some(TreeNode::File {
                size, content: id, ..
            }) if *size <= MAX_TEXT_BYTES as u64 => Ok(String::from_utf8(content(path, id)?)
                .ok()
                .filter(|text| !text.contains('\0'))),
            Some(_) => Ok(None),
        }
    };
    let file = |node: &Option<TreeNode>| matches!(node, None | Some(TreeNode::File { .. }));
    match (before, after) {
        (Some(TreeNode::Folder { .. }), Some(TreeNode::Folder { .. })) => {}
        (Some(TreeNode::File { content: old, .. }), Some(TreeNode::File { content: new, .. }))
            if old == new => {}
        _ if file(before) && file(after) => match (text(before.as_ref())?, text(after.as_ref())?) {
            (Some(old), Some(new)) if !(old.is_empty() && new.is_empty()) => {
                lines.push_str(&render_unified(
                    &old,
                    &new,
                    path,
                    before.is_some(),
                    after.is_some(),
                ));
            }
            _ => lines.push_str(&describe_difference(difference)),
        },
        _ => lines.push_str(&describe_difference(difference)),
    }
    Ok(lines)
}

/// Renders a unified diff with three lines of context, with `a/` and `b/` before the paths as git
/// writes them.
fn render_unified(old: &str, new: &str, path: &Path, existed: bool, exists: bool) -> String {
    let side = |there: bool, letter: char| {
        if there {
            format!("{letter}/{}", display_path(path))
        } else {
            "/dev/null".to_owned()
        }
    };
    let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old, new);
    diff.unified_diff()
        .context_radius(3)
        .header(&side(existed, 'a'), &side(exists, 'b'))
        .to_string()
}

/// Describes the change of a path in one line.
fn describe_difference(difference: &PathDifference) -> String {
    let shown = display_path(&difference.path);
    let what = |node: &TreeNode| node.to_string();
    match (&difference.before, &difference.after) {
        (None, Some(new)) => format!("{shown}: new, {}\n", what(new)),
        (Some(old), None) => format!("{shown}: deleted, was {}\n", what(old)),
        (Some(old), Some(new)) => format!("{shown}: was {}, is {}\n", what(old), what(new)),
        (None, None) => String::new(),
    }
}

/// Returns the mode bits of a file or folder; links and special files have none that are kept.
fn node_mode(node: &TreeNode) -> Option<u32> {
    match node {
        TreeNode::File { mode, .. } | TreeNode::Folder { mode, .. } => Some(*mode),
        _ => None,
    }
}

/// Writes the node with its article: `a file of 12 bytes`.
impl fmt::Display for TreeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { size: 1, .. } => f.write_str("a file of 1 byte"),
            Self::File { size, .. } => write!(f, "a file of {size} bytes"),
            Self::Link { target } => write!(f, "a link to {}", display_path(target)),
            Self::Folder { .. } => f.write_str("a folder"),
            Self::Special => f.write_str("a FIFO, socket or device"),
            Self::Omitted {
                why, folder: true, ..
            } => write!(f, "a folder that is not kept ({})", why.describe()),
            Self::Omitted { why, size, .. } => {
                write!(
                    f,
                    "a file of {size} bytes that is not kept ({})",
                    why.describe()
                )
            }
        }
    }
}

impl fmt::Display for RestoreConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedWith(task) => write!(
                f,
                "a call of the task {task} ran at the same moment, and may have made this change"
            ),
            Self::ChangedSince => f.write_str("somebody else has changed it since"),
            Self::ChangedMeanwhile => {
                f.write_str("it changed while a command ran, and not by the command alone")
            }
            Self::UnobservedCall => {
                f.write_str("it changed while a command ran that could not be watched")
            }
            Self::OtherTask(task) => write!(f, "the task {task} has changed it since"),
            Self::Omitted(why) => write!(f, "it is not kept: {}", why.describe()),
            Self::Lost(why) => write!(
                f,
                "the present content could not be kept: {}",
                why.describe()
            ),
            Self::Special => f.write_str("it is a FIFO, socket or device"),
            Self::BlockedParent { path, .. } => {
                write!(
                    f,
                    "{} is left alone, and is not a folder",
                    display_path(path)
                )
            }
        }
    }
}
