//! What the file tools of a task share: the workspace, and what the task knows of its files.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::Access;
use sabir_workspace::{Version, WorkPath, Workspace, WorkspaceError};

use crate::nearest;

/// Paths that are remembered; beyond that all are forgotten, which costs a check and never a file.
const MAX_REMEMBERED: usize = 100_000;

/// Where the file tools stand.
#[derive(Debug)]
pub(crate) struct Ground {
    workspace: Arc<Workspace>,
    /// The version of each file that the model has last seen whole or in part, or has written.
    known: Mutex<HashMap<WorkPath, Version>>,
    /// Where the path of a write led when it was judged.
    judged: Mutex<HashMap<String, WorkPath>>,
}

impl Ground {
    pub(crate) fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace, known: Mutex::default(), judged: Mutex::default() }
    }

    pub(crate) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The place that a path means, links followed.
    pub(crate) fn resolve(&self, path: &str) -> Result<WorkPath, WorkspaceError> {
        self.workspace.resolve(&self.workspace.path(path)?)
    }

    /// What reading that path would touch.
    pub(crate) fn reading(&self, path: &str) -> Access {
        match self.resolve(path) {
            Ok(real) => Access::Read { path: real.to_string(), outside: false },
            Err(WorkspaceError::PathOutside { .. } | WorkspaceError::LinkLeaves { .. }) => {
                Access::Read { path: path.to_owned(), outside: true }
            }
            Err(error) => Access::Invalid { reason: error.to_string() },
        }
    }

    /// What writing that path would touch. Remembers it for [`target`](Self::target).
    pub(crate) fn writing(&self, path: &str) -> Access {
        match self.resolve(path) {
            Ok(real) => {
                let protected = real.protected().map(str::to_owned);
                let shown = real.to_string();
                remember(&self.judged, path.to_owned(), real);
                Access::Write { path: shown, protected }
            }
            Err(error) => Access::Invalid { reason: error.to_string() },
        }
    }

    /// The place to write to: the one that was judged, or none.
    pub(crate) fn target(&self, path: &str) -> Result<WorkPath, String> {
        let real = self.resolve(path).map_err(|error| self.explain(&error))?;
        match recall(&self.judged, path) {
            Some(judged) if judged != real => Err(format!(
                "`{path}` now leads to `{real}`, and to `{judged}` when the call was approved. Nothing was written. Name the \
                 file by its real path."
            )),
            _ => Ok(real),
        }
    }

    /// The version that the model has last seen.
    pub(crate) fn known(&self, path: &WorkPath) -> Option<Version> {
        recall(&self.known, path)
    }

    /// Remembers what the model has seen.
    pub(crate) fn learn(&self, path: WorkPath, version: Version) {
        remember(&self.known, path, version);
    }

    /// A file error in words for the model. What is missing comes with the nearest names.
    pub(crate) fn explain(&self, error: &WorkspaceError) -> String {
        match error {
            WorkspaceError::Missing { path } => match self.workspace.path(path) {
                Ok(path) => nearest::missing(&self.workspace, &path),
                Err(_) => format!("{error}."),
            },
            _ => format!("{error}."),
        }
    }
}

fn remember<K: Eq + Hash, V>(map: &Mutex<HashMap<K, V>>, key: K, value: V) {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    if map.len() >= MAX_REMEMBERED {
        map.clear();
    }
    map.insert(key, value);
}

fn recall<K: Eq + Hash + std::borrow::Borrow<Q>, Q: Eq + Hash + ?Sized, V: Clone>(
    map: &Mutex<HashMap<K, V>>,
    key: &Q,
) -> Option<V> {
    map.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
}
