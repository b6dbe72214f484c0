//! Records which repositories the user trusts, by a hash of the configuration that makes git run
//! programs.
//!
//! Hashed are: each key of the repository's own configuration that can name a program, with its
//! values (included files count as part of it); the content of its hooks; the content of files in
//! the work tree that such a value names; and the same for nested repositories that git follows.
//! Not hashed are: programs elsewhere, what those files call in turn, and attributes, which only
//! choose among these programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::files::Workspace;
use crate::git_config::read_plain_file;

/// The size in bytes above which a file is not read; a repository that names such a file cannot be
/// trusted.
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_HOOKS: usize = 200;

/// The programs that a repository makes git run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitPrograms {
    /// The folder of the work tree, with links resolved.
    pub top: PathBuf,
    items: BTreeMap<String, HashedItem>,
}

/// A configuration key, a hook, or a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct HashedItem {
    /// Its values, for display; for a file its size.
    shown: Vec<String>,
    state: Sha256State,
    /// True if it runs for commands that only read the repository, such as `git status`.
    runs: bool,
}

/// The hash of everything added so far.
type Sha256State = Vec<u8>;

/// The repositories that the user trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The folder of each work tree, with the hash of each item by name.
    repositories: BTreeMap<PathBuf, BTreeMap<String, String>>,
    /// True if trust in a repository also lets its builds run unasked.
    covers_builds: bool,
}

/// The trust in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustState {
    /// The repository was never trusted.
    Unknown,
    /// The repository is in the trusted state.
    Trusted,
    /// The repository changed since it was trusted; lists the items that are new, gone or
    /// different, by name.
    Changed(Vec<String>),
}

/// The error for something that is too large, too much, or unreadable.
#[derive(Debug)]
pub(crate) struct TrustReadError;

impl GitPrograms {
    /// Creates an empty list for a work tree.
    pub(crate) fn of(top: &Path) -> Self {
        Self {
            top: top.canonicalize().unwrap_or_else(|_| top.to_owned()),
            items: BTreeMap::new(),
        }
    }

    /// Returns true if nothing runs for commands that only read the repository.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.items.values().any(|item| item.runs)
    }

    /// Returns the names of the items that run for commands that only read: keys in lower case, hooks
    /// as `hooks/NAME`. Sorted.
    #[must_use]
    pub fn running_keys(&self) -> Vec<String> {
        let keys = self.items.iter().filter(|(_, item)| item.runs);
        keys.map(|(name, _)| name.clone()).collect()
    }

    /// Iterates over everything that is hashed: the name, and the values or the size in bytes for
    /// display. Sorted.
    pub fn hashed_items(&self) -> impl Iterator<Item = (&str, String)> {
        self.items
            .iter()
            .map(|(name, item)| (name.as_str(), item.shown.join("; ")))
    }

    /// Returns the SHA-256 of each item by name, in hexadecimal.
    #[must_use]
    pub fn hashes(&self) -> BTreeMap<String, String> {
        self.items
            .iter()
            .map(|(name, item)| (name.clone(), hex(&item.state)))
            .collect()
    }

    /// Returns the SHA-256 of all items, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_hashes(&self.hashes())
    }

    /// Adds a key with one of its values; `prefix` is that of a nested repository.
    pub(crate) fn add_key(
        &mut self,
        prefix: &str,
        key: &str,
        value: &str,
    ) -> Result<(), TrustReadError> {
        self.add(
            format!("{prefix}{key}"),
            value.to_owned(),
            value.as_bytes(),
            true,
        );
        // A value is a shell command, so every word of it may be the name of a file in the work
        // tree.
        for word in command_words(value) {
            let named = self.top.join(word);
            let Ok(path) = named.canonicalize() else {
                continue;
            };
            // Programs outside of the work tree belong to the machine, not to the repository.
            if !named.starts_with(&self.top) {
                continue;
            }
            if !path.starts_with(&self.top) {
                let leads = path.to_string_lossy().into_owned();
                self.add(
                    format!("link {word}"),
                    leads.clone(),
                    leads.as_bytes(),
                    false,
                );
            } else if path.is_file() {
                self.add_file(format!("file {word}"), &path, false)?;
            } else if key == "core.hookspath" {
                self.add_hooks(&format!("{word}/"), &path)?;
            }
        }
        Ok(())
    }

    /// Adds the hooks in a folder; a missing folder has none.
    pub(crate) fn add_hooks(&mut self, prefix: &str, folder: &Path) -> Result<(), TrustReadError> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => return Err(TrustReadError),
        };
        for (at, entry) in entries.enumerate() {
            let entry = entry.map_err(|_| TrustReadError)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if at > MAX_HOOKS {
                return Err(TrustReadError);
            }
            if !name.ends_with(".sample") && entry.path().is_file() {
                // This hook runs when the index is refreshed, which `git status` does.
                self.add_file(
                    format!("{prefix}{name}"),
                    &entry.path(),
                    name == "post-index-change",
                )?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, name: String, path: &Path, runs: bool) -> Result<(), TrustReadError> {
        if self.items.contains_key(&name) {
            return Ok(());
        }
        let bytes = read_plain_file(path, MAX_FILE_BYTES)
            .ok()
            .flatten()
            .ok_or(TrustReadError)?;
        self.add(name, format!("{} bytes", bytes.len()), &bytes, runs);
        Ok(())
    }

    fn add(&mut self, name: String, shown: String, bytes: &[u8], runs: bool) {
        let item = self.items.entry(name).or_default();
        item.shown.push(shown);
        item.runs |= runs;
        let before = std::mem::take(&mut item.state);
        let mut hash = Sha256::new();
        hash.update(&before);
        hash.update(bytes);
        item.state = hash.finalize().to_vec();
    }
}

impl Trust {
    /// Trusts a repository whose items have these hashes.
    pub fn trust_repository(&mut self, top: PathBuf, hashes: BTreeMap<String, String>) {
        self.repositories.insert(top, hashes);
    }

    /// Sets that trust in a repository also covers its builds and tests, which then run unasked where a sandbox keeps them.
    #[must_use]
    pub fn with_builds(mut self, covers_builds: bool) -> Self {
        self.covers_builds = covers_builds;
        self
    }

    /// Returns true if trust in a repository also covers its builds and tests.
    #[must_use]
    pub fn covers_builds(&self) -> bool {
        self.covers_builds
    }

    /// Returns the trust in a repository.
    #[must_use]
    pub fn state_of(&self, programs: &GitPrograms) -> TrustState {
        let Some(then) = self.repositories.get(&programs.top) else {
            return TrustState::Unknown;
        };
        let now = programs.hashes();
        let other =
            |(name, hash): (&String, &String)| (then.get(name) != Some(hash)).then(|| name.clone());
        let gone = then
            .keys()
            .filter(|name| !now.contains_key(*name))
            .map(|name| format!("{name} is gone"));
        let changed: Vec<_> = now.iter().filter_map(other).chain(gone).collect();
        if changed.is_empty() {
            TrustState::Trusted
        } else {
            TrustState::Changed(changed)
        }
    }
}

impl Workspace {
    /// Sets the repositories that the user trusts. By default none is.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Returns the repositories that the user trusts.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// Iterates over the words of a value that is a command for the shell, each of which may name a file.
pub(crate) fn command_words(value: &str) -> impl Iterator<Item = &str> {
    let words = value
        .split(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>'));
    words
        .map(|word| word.trim_matches(|c| matches!(c, '\'' | '"' | '!')))
        .filter(|word| !word.is_empty())
}

/// Returns the SHA-256 of a list of item hashes, in hexadecimal.
#[must_use]
pub fn digest_hashes(hashes: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for field in hashes.iter().flat_map(|(name, state)| [name, state]) {
        // Each field is preceded by its length, so that different lists cannot produce the same
        // bytes.
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
