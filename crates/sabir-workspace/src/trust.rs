//! Trust: a repository whose configuration runs programs is trusted as it is, by a hash of exactly that.
//!
//! What is hashed: each key of the repository's own configuration that can name a program, with its values (files that it includes
//! count as its own); the content of its hooks; the content of files of the work tree that such a value names; and the same of the
//! repositories inside that git also follows. Not hashed: programs elsewhere, what those files call in turn, and attributes,
//! which choose among these programs and add none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::files::Workspace;
use crate::git_config::read_plain_file;

/// A larger file is not looked at, and a repository that names it cannot be trusted.
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_HOOKS: usize = 200;

/// What makes git run programs in a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitPrograms {
    /// The folder of the work tree, links resolved.
    pub top: PathBuf,
    things: BTreeMap<String, HashedItem>,
}

/// A key of the configuration, a hook, or a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct HashedItem {
    /// Its values, for the user; of a file its size.
    shown: Vec<String>,
    state: Sha256State,
    /// Whether looking at the repository is enough for it to run.
    runs: bool,
}

/// All that was hashed so far.
type Sha256State = Vec<u8>;

/// Repositories that the user trusts: the folder of the work tree, and each thing by name with its hash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust(BTreeMap<PathBuf, BTreeMap<String, String>>);

/// What is known of a repository's trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustState {
    /// It was never trusted.
    Unknown,
    /// It is as it was trusted.
    Trusted,
    /// It is not as it was trusted: the things that are new, gone or others, by name.
    Changed(Vec<String>),
}

/// Something is too large, too much, or cannot be read.
#[derive(Debug)]
pub(crate) struct Unseen;

impl GitPrograms {
    /// Nothing of that work tree yet.
    pub(crate) fn of(top: &Path) -> Self {
        Self { top: top.canonicalize().unwrap_or_else(|_| top.to_owned()), things: BTreeMap::new() }
    }

    /// Whether nothing runs when the repository is looked at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.things.values().any(|thing| thing.runs)
    }

    /// The names of what runs when the repository is looked at: keys in lower case, hooks as `hooks/NAME`. Sorted.
    #[must_use]
    pub fn running_keys(&self) -> Vec<String> {
        let keys = self.things.iter().filter(|(_, thing)| thing.runs);
        keys.map(|(name, _)| name.clone()).collect()
    }

    /// Everything that is hashed: its name, and its values or its size in bytes for the user. Sorted.
    pub fn hashed_items(&self) -> impl Iterator<Item = (&str, String)> {
        self.things.iter().map(|(name, thing)| (name.as_str(), thing.shown.join("; ")))
    }

    /// Each thing by name with its SHA-256, in hexadecimal.
    #[must_use]
    pub fn hashes(&self) -> BTreeMap<String, String> {
        self.things.iter().map(|(name, thing)| (name.clone(), hex(&thing.state))).collect()
    }

    /// The SHA-256 of all of it, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_hashes(&self.hashes())
    }

    /// A key with one of its values; `place` is what stands in front of it for a repository inside.
    pub(crate) fn key(&mut self, place: &str, key: &str, value: &str) -> Result<(), Unseen> {
        self.add(format!("{place}{key}"), value.to_owned(), value.as_bytes(), true);
        let words = value.split(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>'));
        for word in words {
            let word = word.trim_matches(|c| matches!(c, '\'' | '"' | '!'));
            let named = self.top.join(word);
            let Ok(path) = named.canonicalize() else { continue };
            if word.is_empty() || !named.starts_with(&self.top) {
                continue;
            }
            if !path.starts_with(&self.top) {
                let leads = path.to_string_lossy().into_owned();
                self.add(format!("link {word}"), leads.clone(), leads.as_bytes(), false);
            } else if path.is_file() {
                self.file(format!("file {word}"), &path, false)?;
            } else if key == "core.hookspath" {
                self.hooks(&format!("{word}/"), &path)?;
            }
        }
        Ok(())
    }

    /// The hooks in a folder; a folder that is not there has none.
    pub(crate) fn hooks(&mut self, place: &str, folder: &Path) -> Result<(), Unseen> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => return Err(Unseen),
        };
        for (at, entry) in entries.enumerate() {
            let entry = entry.map_err(|_| Unseen)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if at > MAX_HOOKS {
                return Err(Unseen);
            }
            if !name.ends_with(".sample") && entry.path().is_file() {
                // It freshens the index, which looking does.
                self.file(format!("{place}{name}"), &entry.path(), name == "post-index-change")?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: String, path: &Path, runs: bool) -> Result<(), Unseen> {
        if self.things.contains_key(&name) {
            return Ok(());
        }
        let bytes = read_plain_file(path, MAX_FILE_BYTES).ok().flatten().ok_or(Unseen)?;
        self.add(name, format!("{} bytes", bytes.len()), &bytes, runs);
        Ok(())
    }

    fn add(&mut self, name: String, shown: String, bytes: &[u8], runs: bool) {
        let thing = self.things.entry(name).or_default();
        thing.shown.push(shown);
        thing.runs |= runs;
        let before = std::mem::take(&mut thing.state);
        let mut hash = Sha256::new();
        hash.update(&before);
        hash.update(bytes);
        thing.state = hash.finalize().to_vec();
    }
}

impl Trust {
    /// Trusts a repository whose things have these hashes.
    pub fn trust_repository(&mut self, top: PathBuf, hashes: BTreeMap<String, String>) {
        self.0.insert(top, hashes);
    }

    /// How a repository stands.
    #[must_use]
    pub fn state_of(&self, programs: &GitPrograms) -> TrustState {
        let Some(then) = self.0.get(&programs.top) else { return TrustState::Unknown };
        let now = programs.hashes();
        let other = |(name, hash): (&String, &String)| (then.get(name) != Some(hash)).then(|| name.clone());
        let gone = then.keys().filter(|name| !now.contains_key(*name)).map(|name| format!("{name} is gone"));
        let changed: Vec<_> = now.iter().filter_map(other).chain(gone).collect();
        if changed.is_empty() { TrustState::Trusted } else { TrustState::Changed(changed) }
    }
}

impl Workspace {
    /// The workspace with the repositories that the user trusts. Without it none is.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// The repositories that the user trusts.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// The SHA-256 of all of these, in hexadecimal.
#[must_use]
pub fn digest_hashes(hashes: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for field in hashes.iter().flat_map(|(name, state)| [name, state]) {
        // With its length, so that no two of them make the same bytes.
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
