//! Reads the files of a repository's own configuration, with the files that they include.
//!
//! The condition of an `includeIf` is ignored: everything that any condition could include counts,
//! so that trust stays valid on another branch. The configuration of the system and the user is
//! trusted and not read.

use std::path::{Path, PathBuf};

use super::GitConfigError;
use super::plain_file::read_plain_file;
use super::syntax::{Variable, read_variables};

/// The maximum size of all files of one configuration together.
const MAX_BYTES: u64 = 4 << 20;
/// The maximum number of files, and the maximum include depth, which is the same as git's.
const MAX_FILES: usize = 256;
const MAX_DEPTH: usize = 10;

/// A variable, and the kind of file it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) variable: Variable,
    /// True if it is in an included file. Git ignores included files for the layout of a
    /// repository.
    pub(super) is_included: bool,
}

/// A reader of configuration files with a common limit.
#[derive(Debug)]
pub(super) struct ConfigReader<'a> {
    home: Option<&'a Path>,
    bytes: u64,
    files: usize,
    /// The included files so far, those that do not exist as well.
    pub(super) included: Vec<PathBuf>,
}

impl<'a> ConfigReader<'a> {
    /// Creates a reader that finds the user's home in the environment that git would get.
    pub(super) fn new(environment: &'a [(String, String)]) -> Self {
        let home = environment
            .iter()
            .rev()
            .find(|(name, value)| name == "HOME" && !value.is_empty());
        Self {
            home: home.map(|(_, value)| Path::new(value)),
            bytes: MAX_BYTES,
            files: MAX_FILES,
            included: Vec::new(),
        }
    }

    /// Reads a file with everything that it includes; a missing file is empty.
    pub(super) fn read_file(&mut self, file: &Path) -> Result<Vec<Entry>, GitConfigError> {
        let mut entries = Vec::new();
        self.read_included(file, 0, &mut entries)?;
        Ok(entries)
    }

    fn read_included(
        &mut self,
        file: &Path,
        depth: usize,
        entries: &mut Vec<Entry>,
    ) -> Result<(), GitConfigError> {
        self.files = self
            .files
            .checked_sub(1)
            .filter(|_| depth <= MAX_DEPTH)
            .ok_or(GitConfigError::TooMuch)?;
        let Some(text) = read_plain_file(file, self.bytes)? else {
            return Ok(());
        };
        // One budget for all files, so that includes cannot multiply the work.
        self.bytes = self.bytes.saturating_sub(text.len() as u64);
        let variables =
            read_variables(&text).ok_or_else(|| GitConfigError::Syntax(file.to_owned()))?;
        for variable in variables {
            let included = is_include(&variable.key)
                .then(|| self.included_path(file, &variable))
                .transpose()?;
            entries.push(Entry {
                variable,
                is_included: depth > 0,
            });
            if let Some(path) = included {
                self.included.push(path.clone());
                self.read_included(&path, depth + 1, entries)?;
            }
        }
        Ok(())
    }

    /// Returns the file that an entry includes, resolved as git does.
    fn included_path(&self, file: &Path, variable: &Variable) -> Result<PathBuf, GitConfigError> {
        let unclear = || GitConfigError::Include(file.to_owned());
        let value = variable
            .value
            .as_deref()
            .filter(|value| variable.is_exact && !value.is_empty())
            .ok_or_else(unclear)?;
        if let Some(rest) = value.strip_prefix('~') {
            let below = rest
                .strip_prefix('/')
                .or(rest.is_empty().then_some(""))
                .ok_or_else(unclear)?;
            // A leading slash would make `join` discard the home folder.
            return Ok(self
                .home
                .ok_or_else(unclear)?
                .join(below.trim_start_matches('/')));
        }
        // The meaning of these prefixes depends on how git was built.
        if value.starts_with("%(") || value.starts_with(":(") {
            return Err(unclear());
        }
        Ok(file.parent().ok_or_else(unclear)?.join(value))
    }
}

fn is_include(key: &str) -> bool {
    key == "include.path" || key.starts_with("includeif.") && key.ends_with(".path")
}
