//! Compares two states of the workspace, path by path.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use super::object::{ObjectId, PathStates, TreeEntries, TreeNode};
use super::store::ObjectStore;

/// A path with its states before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDifference {
    /// The path, relative to the workspace folder.
    pub path: PathBuf,
    /// The earlier state; `None` if nothing existed.
    pub before: Option<TreeNode>,
    /// The later state; `None` if nothing exists.
    pub after: Option<TreeNode>,
}

/// The changed paths of a task's calls, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskDifferences {
    /// Those that a call changed, or may have changed.
    pub paths: Vec<PathDifference>,
    /// Those of them that others changed too, while a command ran.
    pub shared: Vec<PathBuf>,
    /// Those that are attributed to others alone, because others wrote them while a command ran.
    pub by_others: Vec<PathBuf>,
}

/// A state of the workspace, as far as it was scanned.
#[derive(Debug, Clone)]
pub(super) enum WorkspaceState {
    /// The whole workspace, by the id of its root tree.
    Whole(ObjectId),
    /// Single paths.
    Paths(PathStates),
}

/// A reader of trees, from a scan in memory or from the store.
pub(super) struct TreeReader<'a> {
    pub(super) store: &'a ObjectStore,
    pub(super) memory: &'a HashMap<ObjectId, TreeEntries>,
}

impl TreeReader<'_> {
    /// Loads a tree: from memory, where a scan of the current state put it, or else from the store.
    pub(super) fn load_tree(&self, id: &ObjectId) -> Result<TreeEntries, CheckpointError> {
        self.memory
            .get(id)
            .cloned()
            .map_or_else(|| self.store.load_tree(id), Ok)
    }

    /// Returns every path that differs, sorted, with folders before their content.
    pub(super) fn diff_states(
        &self,
        before: &WorkspaceState,
        after: &WorkspaceState,
    ) -> Result<Vec<PathDifference>, CheckpointError> {
        let mut found = Vec::new();
        match (before, after) {
            (WorkspaceState::Whole(before), WorkspaceState::Whole(after)) => {
                self.diff_trees(Path::new(""), Some(before), Some(after), &mut found)?;
            }
            (WorkspaceState::Paths(before), WorkspaceState::Paths(after)) => {
                self.diff_path_states(Path::new(""), before, after, &mut found)?
            }
            // Cannot occur: sealing scans the same scope as taking the snapshot.
            _ => {}
        }
        Ok(found)
    }

    /// Adds the differences below a folder; `None` means that the folder does not exist. The time
    /// depends on the changed folders, not on the size of the workspace.
    fn diff_trees(
        &self,
        path: &Path,
        before: Option<&ObjectId>,
        after: Option<&ObjectId>,
        found: &mut Vec<PathDifference>,
    ) -> Result<(), CheckpointError> {
        // Equal ids mean equal trees, so unchanged folders are never opened.
        if before == after {
            return Ok(());
        }
        let rows = |id: Option<&ObjectId>| -> Result<PathStates, CheckpointError> {
            let tree = id.map_or(Ok(TreeEntries::new()), |id| self.load_tree(id))?;
            Ok(tree
                .into_iter()
                .map(|(name, node)| (name, Some(node)))
                .collect())
        };
        self.diff_path_states(path, &rows(before)?, &rows(after)?, found)
    }

    /// Adds the differences of two sorted lists of entries below `path`.
    fn diff_path_states(
        &self,
        path: &Path,
        before: &PathStates,
        after: &PathStates,
        found: &mut Vec<PathDifference>,
    ) -> Result<(), CheckpointError> {
        // Both lists are sorted, so one merge pass pairs the entries of the same name.
        let mut before = before.iter().peekable();
        let mut after = after.iter().peekable();
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let old = if order.is_le() { before.next() } else { None };
            let new = if order.is_ge() { after.next() } else { None };
            let Some((name, _)) = old.or(new) else {
                return Ok(());
            };
            let node =
                |row: Option<&(PathBuf, Option<TreeNode>)>| row.and_then(|(_, node)| node.clone());
            self.diff_nodes(path.join(name), node(old), node(new), found)?;
        }
    }

    /// Adds the difference of one path, then those below it.
    fn diff_nodes(
        &self,
        path: PathBuf,
        before: Option<TreeNode>,
        after: Option<TreeNode>,
        found: &mut Vec<PathDifference>,
    ) -> Result<(), CheckpointError> {
        let old_tree = tree_of(before.as_ref());
        let new_tree = tree_of(after.as_ref());
        let unknown = [&before, &after]
            .iter()
            .any(|node| matches!(node, Some(TreeNode::Omitted { folder: true, .. })));
        let alike = match (&before, &after) {
            (Some(before), Some(after)) => before.is_same_entry(after),
            (None, None) => true,
            _ => false,
        };
        // If one side was scanned without its content, the contents cannot be compared.
        let alone = [&before, &after]
            .iter()
            .any(|node| matches!(node, Some(TreeNode::Folder { tree: None, .. })));
        if !alike {
            found.push(PathDifference {
                path: path.clone(),
                before,
                after,
            });
        }
        if unknown || alone {
            Ok(())
        } else {
            self.diff_trees(&path, old_tree.as_ref(), new_tree.as_ref(), found)
        }
    }

    /// Returns the node at a path below a root tree.
    pub(super) fn find_node(
        &self,
        root: &ObjectId,
        path: &Path,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let mut tree = self.load_tree(root)?;
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let found = tree
                .into_iter()
                .find(|(known, _)| known.as_os_str() == name)
                .map(|(_, node)| node);
            match (found, names.peek()) {
                (found, None) => return Ok(found),
                (Some(TreeNode::Folder { tree: Some(id), .. }), Some(_)) => {
                    tree = self.load_tree(&id)?
                }
                // The content of an omitted folder is unknown.
                (Some(left @ TreeNode::Omitted { folder: true, .. }), Some(_)) => {
                    return Ok(Some(left));
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(TreeNode::Folder {
            mode: 0o755,
            tree: Some(*root),
        }))
    }

    /// Returns a node and everything below it, as path states.
    pub(super) fn list_below(
        &self,
        path: &Path,
        node: Option<TreeNode>,
    ) -> Result<PathStates, CheckpointError> {
        let mut found = Vec::new();
        self.diff_nodes(path.to_path_buf(), None, node, &mut found)?;
        Ok(found
            .into_iter()
            .map(|difference| (difference.path, difference.after))
            .collect())
    }
}

/// Returns the tree of a scanned folder; `None` for everything else.
fn tree_of(node: Option<&TreeNode>) -> Option<ObjectId> {
    match node {
        Some(TreeNode::Folder { tree, .. }) => *tree,
        _ => None,
    }
}
