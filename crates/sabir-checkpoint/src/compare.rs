//! What is different between two states, path by path.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use super::object::{Node, ObjectId, Places, Tree};
use super::store::Store;

/// One path that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// From the workspace folder.
    pub path: PathBuf,
    /// What was there; `None`: nothing.
    pub before: Option<Node>,
    /// What is there; `None`: nothing.
    pub after: Option<Node>,
}

/// A state of the workspace, as far as it was looked at.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// All of it: the root's tree.
    Whole(ObjectId),
    /// Single paths.
    Places(Places),
}

/// Where trees are read from: the store, and what was looked at just now.
pub(super) struct Trees<'a> {
    pub(super) store: &'a Store,
    pub(super) memory: &'a HashMap<ObjectId, Tree>,
}

impl Trees<'_> {
    pub(super) fn tree(&self, id: &ObjectId) -> Result<Tree, CheckpointError> {
        self.memory.get(id).cloned().map_or_else(|| self.store.tree(id), Ok)
    }

    /// Every path that differs, sorted; folders before what they hold.
    pub(super) fn differences(&self, before: &State, after: &State) -> Result<Vec<Difference>, CheckpointError> {
        let mut found = Vec::new();
        match (before, after) {
            (State::Whole(before), State::Whole(after)) => {
                self.trees(Path::new(""), Some(before), Some(after), &mut found)?;
            }
            (State::Places(before), State::Places(after)) => self.rows(Path::new(""), (before, after), &mut found)?,
            // A seal looks at what its checkpoint looked at.
            _ => {}
        }
        Ok(found)
    }

    fn trees(
        &self,
        path: &Path,
        before: Option<&ObjectId>,
        after: Option<&ObjectId>,
        found: &mut Vec<Difference>,
    ) -> Result<(), CheckpointError> {
        if before == after {
            return Ok(());
        }
        let rows = |id: Option<&ObjectId>| -> Result<Places, CheckpointError> {
            let tree = id.map_or(Ok(Tree::new()), |id| self.tree(id))?;
            Ok(tree.into_iter().map(|(name, node)| (name, Some(node))).collect())
        };
        self.rows(path, (&rows(before)?, &rows(after)?), found)
    }

    fn rows(
        &self,
        path: &Path,
        (before, after): (&Places, &Places),
        found: &mut Vec<Difference>,
    ) -> Result<(), CheckpointError> {
        let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
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
            let node = |row: Option<&(PathBuf, Option<Node>)>| row.and_then(|(_, node)| node.clone());
            self.pair(path.join(name), (node(old), node(new)), found)?;
        }
    }

    fn pair(
        &self,
        path: PathBuf,
        (before, after): (Option<Node>, Option<Node>),
        found: &mut Vec<Difference>,
    ) -> Result<(), CheckpointError> {
        let inside = (tree_of(before.as_ref()), tree_of(after.as_ref()));
        let unknown = [&before, &after].iter().any(|node| matches!(node, Some(Node::NotKept { folder: true, .. })));
        let alike = match (&before, &after) {
            (Some(before), Some(after)) => before.same(after),
            (None, None) => true,
            _ => false,
        };
        // A folder that was looked at alone on one side says nothing of what it holds.
        let alone = [&before, &after].iter().any(|node| matches!(node, Some(Node::Folder { tree: None, .. })));
        if !alike {
            found.push(Difference { path: path.clone(), before, after });
        }
        if unknown || alone { Ok(()) } else { self.trees(&path, inside.0.as_ref(), inside.1.as_ref(), found) }
    }

    /// What stands at a path of a whole state.
    pub(super) fn find(&self, root: &ObjectId, path: &Path) -> Result<Option<Node>, CheckpointError> {
        let mut tree = self.tree(root)?;
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let found = tree.into_iter().find(|(known, _)| known.as_os_str() == name).map(|(_, node)| node);
            match (found, names.peek()) {
                (found, None) => return Ok(found),
                (Some(Node::Folder { tree: Some(id), .. }), Some(_)) => tree = self.tree(&id)?,
                // Nothing is known of what such a folder holds.
                (Some(left @ Node::NotKept { folder: true, .. }), Some(_)) => return Ok(Some(left)),
                _ => return Ok(None),
            }
        }
        Ok(Some(Node::Folder { mode: 0o755, tree: Some(*root) }))
    }

    /// A node and all below it, as rows.
    pub(super) fn below(&self, path: &Path, node: Option<Node>) -> Result<Places, CheckpointError> {
        let mut found = Vec::new();
        self.pair(path.to_path_buf(), (None, node), &mut found)?;
        Ok(found.into_iter().map(|difference| (difference.path, difference.after)).collect())
    }
}

fn tree_of(node: Option<&Node>) -> Option<ObjectId> {
    match node {
        Some(Node::Folder { tree, .. }) => *tree,
        _ => None,
    }
}
