//! Keeps the message that a user is typing, so that a crash or a lost connection does not lose it.
//!
//! A file in the data folder that only its owner can read, one for the whole user: the last draft of an interrupted session is
//! offered to the next one. Known secret formats are redacted.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use sabir_call::redact;

use crate::environment::Environment;

/// The name of the file.
const FILE: &str = "draft";
/// The longest draft that is kept, in bytes.
const MAX_DRAFT: usize = 4 << 20;

/// The draft of an interrupted session, in a file.
#[derive(Debug, Clone)]
pub struct DraftStore {
    /// `None` without a data folder: then nothing is kept.
    path: Option<PathBuf>,
}

impl DraftStore {
    /// Returns the store in the data folder of this environment.
    pub fn in_environment(environment: &Environment) -> Self {
        let folder = environment.sabir_data_folder().ok();
        Self {
            path: folder.map(|folder| folder.join(FILE)),
        }
    }

    /// Takes the draft that an interrupted session has left; empty if there is none.
    pub fn take(&self) -> String {
        let Some(path) = &self.path else {
            return String::new();
        };
        let draft = std::fs::read(path).unwrap_or_default();
        _ = std::fs::remove_file(path);
        String::from_utf8_lossy(&draft).into_owned()
    }

    /// Keeps a draft in place of the one before; an empty one removes it. A draft that cannot be kept is no reason to fail.
    pub fn keep(&self, draft: &str) {
        let Some(path) = &self.path else {
            return;
        };
        if draft.is_empty() {
            _ = std::fs::remove_file(path);
            return;
        }
        if draft.len() <= MAX_DRAFT {
            _ = write_draft(path, &redact::redact_text(draft));
        }
    }
}

fn write_draft(path: &std::path::Path, draft: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(true).write(true).mode(0o600);
    options.open(&new)?.write_all(draft.as_bytes())?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = DraftStore {
            path: Some(folder.path().join("in").join(FILE)),
        };
        assert_eq!(store.take(), "");
        store.keep("one\ntwo ü");
        assert_eq!(store.take(), "one\ntwo ü");
        assert_eq!(store.take(), "");
        store.keep("one");
        store.keep("");
        assert_eq!(store.take(), "");
    }
}
