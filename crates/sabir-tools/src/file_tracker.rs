//! What the file tools of a task share: the workspace, and what the task knows of its files.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_edit::DecodedText;
use sabir_policy::Access;
use sabir_workspace::{
    FileChange, FileVersion, WorkPath, Workspace, WorkspaceError, WritePrecondition,
};

use crate::missing_path;
use crate::text::{self, MAX_FILE_BYTES};

/// Paths that are remembered; beyond that all are forgotten, which costs a check and never a file.
const MAX_REMEMBERED: usize = 100_000;
/// What is kept of the content of a file, and of all together, to tell later what changed. Beyond that only versions are known.
const MAX_KEPT_BYTES: usize = 256 << 10;
const MAX_ALL_KEPT_BYTES: usize = 16 << 20;
/// A change of a file that is told whole.
const MAX_TOLD_BYTES: usize = 4 << 10;

/// Where the file tools stand.
#[derive(Debug)]
pub(crate) struct FileTracker {
    workspace: Arc<Workspace>,
    /// Each file that the model has seen whole or in part, or has written, as it was then.
    known_files: Mutex<KnownFiles>,
    /// Where the path of a write led when it was judged.
    approved_targets: Mutex<HashMap<String, WorkPath>>,
}

/// What the model knows of files.
#[derive(Debug, Default)]
struct KnownFiles {
    files: HashMap<WorkPath, (FileVersion, Option<Arc<str>>)>,
    kept_bytes: usize,
}

impl FileTracker {
    pub(crate) fn new(workspace: Arc<Workspace>) -> Self {
        Self {
            workspace,
            known_files: Mutex::default(),
            approved_targets: Mutex::default(),
        }
    }

    pub(crate) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The place that a path means, links followed. A hidden one is none: what can be told early needs no question.
    pub(crate) fn resolve_path(&self, path: &str) -> Result<WorkPath, WorkspaceError> {
        let named = self.workspace.parse_path(path)?;
        self.workspace.check_readable(&named)?;
        self.workspace.resolve_links(&named)
    }

    /// What reading that path would touch.
    pub(crate) fn read_access(&self, path: &str) -> Access {
        match self.resolve_path(path) {
            Ok(real) => Access::Read {
                path: real.to_string(),
                outside: false,
            },
            Err(WorkspaceError::PathOutside { .. } | WorkspaceError::LinkLeaves { .. }) => {
                Access::Read {
                    path: path.to_owned(),
                    outside: true,
                }
            }
            Err(error) => Access::Invalid {
                reason: format!("{error}."),
            },
        }
    }

    /// What reading all these paths would touch. One that is no path touches nothing, unless all are such; the tool says so.
    pub(crate) fn read_access_all<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Access {
        combine_accesses(paths.into_iter().map(|path| self.read_access(path)))
    }

    /// What writing that path would touch. Remembers it for [`write_target`](Self::write_target).
    pub(crate) fn write_access(&self, path: &str) -> Access {
        let may_write = |real: WorkPath| self.workspace.check_writable(&real).map(|()| real);
        match self.resolve_path(path).and_then(may_write) {
            Ok(real) => {
                let protected = self.workspace.protection_reason(&real).map(str::to_owned);
                let shown = real.to_string();
                insert_bounded(&self.approved_targets, path.to_owned(), real);
                Access::Write {
                    path: shown,
                    protected,
                }
            }
            Err(error) => Access::Invalid {
                reason: format!("{error}."),
            },
        }
    }

    /// The place to write to: the one that was judged, or none.
    pub(crate) fn write_target(&self, path: &str) -> Result<WorkPath, String> {
        let real = self
            .resolve_path(path)
            .map_err(|error| self.explain_error(&error))?;
        match get_cloned(&self.approved_targets, path) {
            Some(judged) if judged != real => Err(format!(
                "`{path}` now leads to `{real}`, and to `{judged}` when the call was approved. Nothing was written. Name the \
                 file by its real path."
            )),
            _ => Ok(real),
        }
    }

    /// Whether the model has seen the file.
    pub(crate) fn is_known(&self, path: &WorkPath) -> bool {
        self.lock_known().files.contains_key(path)
    }

    /// Remembers what the model has seen. `text`: the whole content, as far as it is text.
    pub(crate) fn record_version(&self, path: WorkPath, version: FileVersion, text: Option<&str>) {
        let text = text
            .filter(|text| text.len() <= MAX_KEPT_BYTES)
            .map(Arc::from);
        self.lock_known().insert(path, version, text);
    }

    /// Forgets a file that is gone.
    pub(crate) fn forget_file(&self, path: &WorkPath) {
        self.lock_known().remove(path);
    }

    /// Fails for a file that is not as the model knows it. The failure says what changed, if that is short; the model then
    /// knows it.
    pub(crate) fn check_fresh(
        &self,
        path: &WorkPath,
        version: FileVersion,
        text: Option<&str>,
    ) -> Result<(), String> {
        let known = self.lock_known().files.get(path).cloned();
        let Some((_, old)) = known.filter(|(known, _)| *known != version) else {
            return Ok(());
        };
        let change = old
            .as_deref()
            .zip(text)
            .map(|(old, new)| text::render_diff(old, new));
        let Some(change) = change.filter(|change| (1..=MAX_TOLD_BYTES).contains(&change.len()))
        else {
            return Err(stale_message(path));
        };
        self.record_version(path.clone(), version, text);
        Err(format!(
            "`{path}` changed on disk since you last read or wrote it, so nothing was written. What changed:\n{change}\n[You know \
             it now: redo the change on what the file holds.]"
        ))
    }

    fn lock_known(&self) -> MutexGuard<'_, KnownFiles> {
        self.known_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The change that deletes a file, unless it is another than the model knows.
    pub(crate) fn plan_deletion(&self, path: &WorkPath) -> Result<FileChange, String> {
        let found = self
            .workspace
            .read_file(path, MAX_FILE_BYTES)
            .map_err(|error| self.explain_error(&error))?;
        let text = DecodedText::decode(&found.bytes)
            .ok()
            .filter(|_| !found.truncated);
        self.check_fresh(
            path,
            found.version,
            text.as_ref().map(|text| text.content.as_str()),
        )?;
        Ok(FileChange::delete(
            path.clone(),
            WritePrecondition::Version(found.version),
        ))
    }

    /// Makes all changes or none, and remembers what the model knows of the files then: `contents`, one for each change.
    pub(crate) fn apply_changes(
        &self,
        changes: &[FileChange],
        contents: &[&str],
    ) -> Result<(), String> {
        let versions = self
            .workspace
            .apply_changes(changes)
            .map_err(|error| match error {
                WorkspaceError::Exists { path } => stale_message(path),
                error => self.explain_error(&error),
            })?;
        for ((change, version), content) in changes.iter().zip(versions).zip(contents) {
            match version {
                Some(version) => self.record_version(change.path.clone(), version, Some(content)),
                None => self.forget_file(&change.path),
            }
        }
        Ok(())
    }

    /// A file error in words for the model. What is missing comes with the nearest names.
    pub(crate) fn explain_error(&self, error: &WorkspaceError) -> String {
        match error {
            WorkspaceError::Missing { path } => match self.workspace.parse_path(path) {
                Ok(path) => missing_path::missing_path_message(&self.workspace, &path),
                Err(_) => format!("{error}."),
            },
            WorkspaceError::Stale { path } => stale_message(path),
            _ => format!("{error}."),
        }
    }
}

/// One access of many. What is invalid is left out where anything else is not.
fn combine_accesses(all: impl Iterator<Item = Access>) -> Access {
    let (invalid, mut valid): (Vec<_>, Vec<_>) =
        all.partition(|access| matches!(access, Access::Invalid { .. }));
    match (valid.len(), invalid.into_iter().next()) {
        (0, Some(invalid)) => invalid,
        (1, _) => valid.remove(0),
        _ => Access::Several(valid),
    }
}

impl KnownFiles {
    fn insert(&mut self, path: WorkPath, version: FileVersion, text: Option<Arc<str>>) {
        self.remove(&path);
        if self.files.len() >= MAX_REMEMBERED {
            *self = Self::default();
        }
        let bytes = text.as_deref().map_or(0, str::len);
        if self.kept_bytes + bytes > MAX_ALL_KEPT_BYTES {
            self.files.values_mut().for_each(|(_, text)| *text = None);
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
        self.files.insert(path, (version, text));
    }

    fn remove(&mut self, path: &WorkPath) {
        if let Some((_, Some(text))) = self.files.remove(path) {
            self.kept_bytes -= text.len();
        }
    }
}

/// Says that a file is not the one that the model knows.
fn stale_message(path: impl Display) -> String {
    format!(
        "`{path}` changed on disk since you last read or wrote it, so nothing was written. Read it again, and redo the change on \
         what it holds now."
    )
}

fn insert_bounded<K: Eq + Hash, V>(map: &Mutex<HashMap<K, V>>, key: K, value: V) {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    if map.len() >= MAX_REMEMBERED {
        map.clear();
    }
    map.insert(key, value);
}

fn get_cloned<K: Eq + Hash + std::borrow::Borrow<Q>, Q: Eq + Hash + ?Sized, V: Clone>(
    map: &Mutex<HashMap<K, V>>,
    key: &Q,
) -> Option<V> {
    map.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(key)
        .cloned()
}
