//! Keeps the message that a user is typing, so that a crash or a lost connection does not lose it.
//!
//! Each session has a file of its own in the data folder, which only its owner can read and which the session locks. A file
//! without a lock belongs to a session that is gone: its draft is offered to the next one. Known secret formats are redacted.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sabir_call::redact;

use crate::environment::Environment;

/// The name of the folder.
const FOLDER: &str = "drafts";
/// The longest draft that is kept, in bytes.
const MAX_DRAFT: usize = 4 << 20;

/// The draft of a session, in a file. Clones share it.
#[derive(Debug, Clone)]
pub struct DraftStore {
    /// `None` without a data folder: then nothing is kept.
    path: Option<PathBuf>,
    /// The file as it was written last, which is locked while it is open.
    kept: Arc<Mutex<Option<File>>>,
}

impl DraftStore {
    /// Returns a store of its own in the data folder of this environment.
    pub fn in_environment(environment: &Environment) -> Self {
        let folder = environment.sabir_data_folder().ok();
        let name = environment.unique_id().simple().to_string();
        Self::at(folder.map(|folder| folder.join(FOLDER).join(name)))
    }

    fn at(path: Option<PathBuf>) -> Self {
        Self {
            path,
            kept: Arc::default(),
        }
    }

    /// Takes the newest draft that a session has left; empty if there is none.
    pub fn take(&self) -> String {
        let Some(folder) = self.path.as_deref().and_then(Path::parent) else {
            return String::new();
        };
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        files.sort();
        let left = files.iter().rev().find_map(|(_, path)| take_left(path));
        left.unwrap_or_default()
    }

    /// Stores a draft in place of the previous one; an empty draft removes it. Failures are
    /// ignored.
    pub fn save(&self, draft: &str) {
        let Some(path) = &self.path else {
            return;
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if draft.is_empty() {
            if kept.take().is_some() {
                _ = std::fs::remove_file(path);
            }
        } else if draft.len() <= MAX_DRAFT
            && let Ok(file) = write_draft(path, &redact::redact_text(draft))
        {
            *kept = Some(file);
        }
    }
}

/// Takes the draft in a file, unless its session still has it locked.
fn take_left(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    file.try_lock().ok()?;
    // Its session may have replaced the file since it was opened: then the lock is on the old one.
    let opened = file.metadata().ok()?.ino();
    if std::fs::metadata(path).ok()?.ino() != opened {
        return None;
    }
    let mut draft = Vec::new();
    file.read_to_end(&mut draft).ok()?;
    std::fs::remove_file(path).ok()?;
    let draft = String::from_utf8_lossy(&draft).into_owned();
    Some(draft).filter(|draft| !draft.is_empty())
}

/// Replaces the file of a draft, and returns the new one, which is locked.
fn write_draft(path: &Path, draft: &str) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(&new)?;
    // Locked before it gets its name, so that no other session ever sees it without a lock. Some
    // file systems have no locks.
    _ = file.try_lock();
    file.write_all(draft.as_bytes())?;
    std::fs::rename(&new, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &Path, name: &str) -> DraftStore {
        DraftStore::at(Some(folder.join(FOLDER).join(name)))
    }

    #[test]
    fn a_draft_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path(), "first");
        assert_eq!(first.take(), "");
        first.save("one");
        first.save("one\ntwo ü");
        drop(first);
        let second = store(folder.path(), "second");
        assert_eq!(second.take(), "one\ntwo ü");
        assert_eq!(second.take(), "");
        second.save("one");
        second.save("");
        drop(second);
        assert_eq!(store(folder.path(), "third").take(), "");
        let left = std::fs::read_dir(folder.path().join(FOLDER)).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn two_sessions_have_a_draft_each() {
        let folder = tempfile::tempdir().unwrap();
        let one = store(folder.path(), "one");
        let other = store(folder.path(), "other");
        one.save("of one");
        other.save("of the other");
        // Both still work.
        assert_eq!(store(folder.path(), "third").take(), "");
        drop(one);
        assert_eq!(store(folder.path(), "third").take(), "of one");
        other.save("of the other, changed");
        drop(other);
        assert_eq!(
            store(folder.path(), "third").take(),
            "of the other, changed"
        );
    }
}
