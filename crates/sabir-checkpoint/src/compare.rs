//! What is different between two states, path by path.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use super::object::{ObjectId, PathStates, TreeEntries, TreeNode};
use super::store::ObjectStore;

/// One path that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDifference {
    /// From the workspace folder.
    pub path: PathBuf,
    /// What was there; `None`: nothing.
    pub before: Option<TreeNode>,
    /// What is there; `None`: nothing.
    pub after: Option<TreeNode>,
}

/// A state of the workspace, as far as it was looked at.
#[derive(Debug, Clone)]
pub(super) enum WorkspaceState {
    /// All of it: the root's tree.
    Whole(ObjectId),
    /// Single paths.
    Paths(PathStates),
}

/// Where trees are read from: the store, and what was looked at just now.
pub(super) struct TreeReader<'a> {
    pub(super) store: &'a ObjectStore,
    pub(super) memory: &'a HashMap<ObjectId, TreeEntries>,
}

impl TreeReader<'_> {
    pub(super) fn load_tree(&self, id: &ObjectId) -> Result<TreeEntries, CheckpointError> {
        self.memory.get(id).cloned().map_or_else(|| self.store.load_tree(id), Ok)
    }

    /// Every path that differs, sorted; folders before what they hold.
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
                self.diff_path_states(Path::new(""), (before, after), &mut found)?
            }
            // A seal looks at what its checkpoint looked at.
            _ => {}
        }
        Ok(found)
    }

    fn diff_trees(
        &self,
        path: &Path,
        before: Option<&ObjectId>,
        after: Option<&ObjectId>,
        found: &mut Vec<PathDifference>,
    ) -> Result<(), CheckpointError> {
        if before == after {
            return Ok(());
        }
        let rows = |id: Option<&ObjectId>| -> Result<PathStates, CheckpointError> {
            let tree = id.map_or(Ok(TreeEntries::new()), |id| self.load_tree(id))?;
            Ok(tree.into_iter().map(|(name, node)| (name, Some(node))).collect())
        };
        self.diff_path_states(path, (&rows(before)?, &rows(after)?), found)
    }

    fn diff_path_states(
        &self,
        path: &Path,
        (before, after): (&PathStates, &PathStates),
        found: &mut Vec<PathDifference>,
    ) -> Result<(), CheckpointError> {
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
            let Some((name, _)) = old.or(new) else { return Ok(()) };
            let node = |row: Option<&(PathBuf, Option<TreeNode>)>| row.and_then(|(_, node)| node.clone());
            self.diff_nodes(path.join(name), (node(old), node(new)), found)?;
        }
    }

    fn diff_nodes(
        &self,
        path: PathBuf,
        (before, after): (Option<TreeNode>, Option<TreeNode>),
        found: &mut Vec<PathDifference>,
    ) -> Result<(), CheckpointError> {
        let inside = (tree_of(before.as_ref()), tree_of(after.as_ref()));
        let unknown = [&before, &after].iter().any(|node| matches!(node, Some(TreeNode::Omitted { folder: true, .. })));
        let alike = match (&before, &after) {
            (Some(before), Some(after)) => before.is_same_entry(after),
            (None, None) => true,
            _ => false,
        };
        // A folder that was looked at alone on one side says nothing of what it holds.
        let alone = [&before, &after].iter().any(|node| matches!(node, Some(TreeNode::Folder { tree: None, .. })));
        if !alike {
            found.push(PathDifference { path: path.clone(), before, after });
        }
        if unknown || alone { Ok(()) } else { self.diff_trees(&path, inside.0.as_ref(), inside.1.as_ref(), found) }
    }

    /// What stands at a path of a whole state.
    pub(super) fn find_node(&self, root: &ObjectId, path: &Path) -> Result<Option<TreeNode>, CheckpointError> {
        let mut tree = self.load_tree(root)?;
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let found = tree.into_iter().find(|(known, _)| known.as_os_str() == name).map(|(_, node)| node);
            match (found, names.peek()) {
                (found, None) => return Ok(found),
                (Some(TreeNode::Folder { tree: Some(id), .. }), Some(_)) => tree = self.load_tree(&id)?,
                // Nothing is known of what such a folder holds.
                (Some(left @ TreeNode::Omitted { folder: true, .. }), Some(_)) => return Ok(Some(left)),
                _ => return Ok(None),
            }
        }
        Ok(Some(TreeNode::Folder { mode: 0o755, tree: Some(*root) }))
    }

    /// A node and all below it, as rows.
    pub(super) fn list_below(&self, path: &Path, node: Option<TreeNode>) -> Result<PathStates, CheckpointError> {
        let mut found = Vec::new();
        self.diff_nodes(path.to_path_buf(), (None, node), &mut found)?;
        Ok(found.into_iter().map(|difference| (difference.path, difference.after)).collect())
    }
}

fn tree_of(node: Option<&TreeNode>) -> Option<ObjectId> {
    match node {
        Some(TreeNode::Folder { tree, .. }) => *tree,
        _ => None,
    }
}
