//! The files of a repository's own configuration, with the files that they include.
//!
//! Of an `includeIf` the condition is not looked at: what any condition could bring in counts, so that what was trusted still holds on
//! another branch. The system's and the user's own configuration are not read: what they name is the user's affair.

use std::path::{Path, PathBuf};

use super::Unreadable;
use super::plain_file::read_plain_file;
use super::syntax::{Variable, read_variables};

/// How much all files of one configuration may hold.
const MAX_BYTES: u64 = 4 << 20;
/// How many files there may be, and how deep they may include one another. Git's limit of the latter is the same.
const MAX_FILES: usize = 256;
const MAX_DEPTH: usize = 10;

/// A variable, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) variable: Variable,
    /// Whether it stands in a file that was included. Git does not look there for what says how a repository is laid out.
    pub(super) is_included: bool,
}

/// Reads configuration files, within one limit for all of them.
#[derive(Debug)]
pub(super) struct ConfigReader<'a> {
    home: Option<&'a Path>,
    bytes: u64,
    files: usize,
}

impl<'a> ConfigReader<'a> {
    /// A reader that finds the user's home in the environment that git would get.
    pub(super) fn new(environment: &'a [(String, String)]) -> Self {
        let home = environment.iter().rev().find(|(name, value)| name == "HOME" && !value.is_empty());
        Self { home: home.map(|(_, value)| Path::new(value)), bytes: MAX_BYTES, files: MAX_FILES }
    }

    /// Reads a file with all that it includes; of one that is not there nothing.
    pub(super) fn read_file(&mut self, file: &Path) -> Result<Vec<Entry>, Unreadable> {
        let mut entries = Vec::new();
        self.read_included(file, 0, &mut entries)?;
        Ok(entries)
    }

    fn read_included(&mut self, file: &Path, depth: usize, entries: &mut Vec<Entry>) -> Result<(), Unreadable> {
        self.files = self.files.checked_sub(1).filter(|_| depth <= MAX_DEPTH).ok_or(Unreadable::TooMuch)?;
        let Some(text) = read_plain_file(file, self.bytes)? else { return Ok(()) };
        self.bytes = self.bytes.saturating_sub(text.len() as u64);
        let variables = read_variables(&text).ok_or_else(|| Unreadable::Syntax(file.to_owned()))?;
        for variable in variables {
            let included = is_include(&variable.key).then(|| self.included_path(file, &variable)).transpose()?;
            entries.push(Entry { variable, is_included: depth > 0 });
            if let Some(path) = included {
                self.read_included(&path, depth + 1, entries)?;
            }
        }
        Ok(())
    }

    /// The file that an entry includes, as git understands its path.
    fn included_path(&self, file: &Path, variable: &Variable) -> Result<PathBuf, Unreadable> {
        let unclear = || Unreadable::Include(file.to_owned());
        let value =
            variable.value.as_deref().filter(|value| variable.is_exact && !value.is_empty()).ok_or_else(unclear)?;
        if let Some(rest) = value.strip_prefix('~') {
            let below = rest.strip_prefix('/').or(rest.is_empty().then_some("")).ok_or_else(unclear)?;
            // Two slashes would make `join` forget the home.
            return Ok(self.home.ok_or_else(unclear)?.join(below.trim_start_matches('/')));
        }
        // Prefixes whose meaning depends on how, and which, git was built.
        if value.starts_with("%(") || value.starts_with(":(") {
            return Err(unclear());
        }
        Ok(file.parent().ok_or_else(unclear)?.join(value))
    }
}

fn is_include(key: &str) -> bool {
    key == "include.path" || key.starts_with("includeif.") && key.ends_with(".path")
}
