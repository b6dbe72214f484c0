//! Reads git configuration to find the programs that a repository makes git run, even for commands
//! that only look at it.
//!
//! `git status` runs the program in `core.fsmonitor`, `git diff` those in attributes and
//! `diff.*.textconv`, and filters cannot be switched off by any option. The repository's own
//! configuration is therefore examined before git runs. Git itself is not used for that: even `git
//! ls-files` runs a program of the repository if the index is sparse and an object is missing. The
//! files are read here, no program is started, and anything uncertain gives [`GitConfig::Unknown`].
//! The user's own configuration is trusted and not read.
//!
//! | file | reads |
//! | --- | --- |
//! | `folders.rs` | the location of a repository |
//! | `files.rs`, `syntax.rs` | its configuration, with included files |
//! | `keys.rs` | the keys that name programs |
//! | `index.rs` | the repositories that its index links to |

mod files;
mod folders;
mod index;
mod keys;
mod plain_file;
mod syntax;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use files::{ConfigReader, Entry};
use folders::{Folders, Opened, find_repository, is_same, open_repository};
use index::read_links;
use keys::runs_programs;
pub(crate) use plain_file::read_plain_file;

use crate::trust::{GitPrograms, Unseen};

/// The git configuration of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitConfig {
    /// It could not be determined with certainty, for this reason.
    Unknown(Unreadable),
    /// The folder belongs to no repository.
    NoRepository,
    /// A repository, with the programs that its own configuration makes git run.
    Repository(GitPrograms),
}

/// The reason that the programs of a repository cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// A file or folder cannot be read, or is not what git would write.
    #[error("{} cannot be read, or is not what git makes there", .0.display())]
    File(PathBuf),
    /// A configuration file has a syntax error.
    #[error("{} has an error in it, which git would stop at", .0.display())]
    Syntax(PathBuf),
    /// A configuration file includes another by a path that is ambiguous.
    #[error("it is not clear what {} includes", .0.display())]
    Include(PathBuf),
    /// A folder not called `.git` has the layout of git's own files.
    #[error("{} is laid out like git's own files, without being called `.git`", .0.display())]
    Embedded(PathBuf),
    /// The repository has no work tree.
    #[error("the repository {} has no work tree", .0.display())]
    Bare(PathBuf),
    /// The work tree is elsewhere than the repository, or its place is uncertain.
    #[error("it is not certain where the work tree of {} lies", .0.display())]
    WorkTree(PathBuf),
    /// The index is sparse: the entries it leaves out are in objects, which git may fetch.
    #[error(
        "the index is sparse, so it does not list all files; `git sparse-checkout reapply --no-sparse-index` makes it whole"
    )]
    SparseIndex,
    /// The index is split into two files.
    #[error("the index is split; `git update-index --no-split-index` makes it whole")]
    SplitIndex,
    /// The index is broken, or of an unknown kind.
    #[error("the index is broken, or of a kind that is not known")]
    BrokenIndex,
    /// An environment variable redirects git.
    #[error("{0} in the environment of commands says what git does")]
    Environment(String),
    /// There are too many files or repositories, or they are too large.
    #[error("there is too much of it to look through")]
    TooMuch,
}

/// The maximum number of nested repositories.
const MAX_REPOSITORIES: usize = 64;

impl GitConfig {
    /// Determines the git configuration of a folder, with the environment that commands get. Reads
    /// files and starts no program.
    #[must_use]
    pub fn of(folder: &Path, environment: &[(String, String)]) -> Self {
        match (RepositoryReader { environment }).read_repository(folder) {
            Ok(Some(programs)) => Self::Repository(programs),
            Ok(None) => Self::NoRepository,
            Err(why) => Self::Unknown(why),
        }
    }
}

impl From<Unseen> for Unreadable {
    fn from(_: Unseen) -> Self {
        Self::TooMuch
    }
}

/// A reader of repositories as git would see them in some environment.
#[derive(Clone, Copy)]
struct RepositoryReader<'a> {
    environment: &'a [(String, String)],
}

/// The repository's own configuration.
struct Configuration {
    entries: Vec<Entry>,
    /// The place of the work tree, as written there.
    work_tree: Option<String>,
    is_bare: bool,
    /// The length of an object id in bytes.
    hash_bytes: usize,
}

impl RepositoryReader<'_> {
    fn read_repository(self, folder: &Path) -> Result<Option<GitPrograms>, Unreadable> {
        self.check_environment()?;
        let Some(folders) = find_repository(folder)? else {
            return Ok(None);
        };
        let configuration = self.read_configuration(&folders)?;
        // Without a work tree the paths in the configuration have no meaning here.
        if configuration.is_bare {
            return Err(Unreadable::Bare(folders.own));
        }
        let top = work_tree(&folders, &configuration)?;
        let mut programs = GitPrograms::of(&top);
        add_entries("", &configuration.entries, &mut programs)?;
        programs.hooks("hooks/", &folders.common.join("hooks"))?;
        let links = open_links(&top, &folders, &configuration)?;
        let seen = self.add_linked(links, &mut programs)?;
        for folder in absorbed(&folders.common, &seen)? {
            self.add_absorbed(&folder, &mut programs)?;
        }
        Ok(Some(programs))
    }

    /// Refuses an environment that redirects git, or passes it configuration.
    fn check_environment(self) -> Result<(), Unreadable> {
        const HARMLESS: [&str; 3] = [
            "GIT_CONFIG_NOSYSTEM",
            "GIT_TERMINAL_PROMPT",
            "GIT_OPTIONAL_LOCKS",
        ];
        let is_harmless = |name: &str| {
            !name.starts_with("GIT_")
                || name.starts_with("GIT_AUTHOR_")
                || name.starts_with("GIT_COMMITTER_")
                || HARMLESS.contains(&name)
        };
        match self.environment.iter().find(|(name, _)| !is_harmless(name)) {
            Some((name, _)) => Err(Unreadable::Environment(name.clone())),
            None => Ok(()),
        }
    }

    /// Reads the configuration of a repository and the layout that it defines. For the layout git
    /// ignores included files, and in an additional work tree also the place of the main one.
    fn read_configuration(self, folders: &Folders) -> Result<Configuration, Unreadable> {
        let mut reader = ConfigReader::new(self.environment);
        let file = folders.common.join("config");
        let more = folders.own.join("config.worktree");
        let mut entries = reader.read_file(&file)?;
        // The last setting wins, and included files do not count for the layout.
        let last = |entries: &[Entry], key: &str| {
            let plain = entries.iter().rev().filter(|entry| !entry.is_included);
            plain
                .map(|entry| &entry.variable)
                .find(|variable| variable.key == key)
                .cloned()
        };
        let hash_bytes =
            match last(&entries, "extensions.objectformat").map(|variable| variable.value) {
                None => 20,
                Some(Some(name)) if name == "sha1" => 20,
                Some(Some(name)) if name == "sha256" => 32,
                Some(_) => return Err(Unreadable::BrokenIndex),
            };
        let own = reader.read_file(&more)?;
        let is_read = last(&entries, "extensions.worktreeconfig")
            .map(|variable| is_on(variable.value.as_deref()));
        let mut layout = Vec::new();
        let is_further = !is_same(&folders.own, &folders.common);
        for key in ["core.worktree", "core.bare"] {
            let own = last(&own, key);
            // Whether git reads this file depends on the extension, and on the version of git.
            if own.is_some() && is_read != Some(true) {
                return Err(Unreadable::WorkTree(folders.own.clone()));
            }
            layout.push(own.or_else(|| last(&entries, key).filter(|_| !is_further)));
        }
        let is_bare = layout.pop().flatten();
        let work_tree = layout.pop().flatten();
        let work_tree = match work_tree {
            None => None,
            Some(variable) if variable.is_exact && variable.value.is_some() => variable.value,
            Some(_) => return Err(Unreadable::WorkTree(folders.own.clone())),
        };
        entries.extend(own);
        let is_bare = is_bare.is_some_and(|variable| is_on(variable.value.as_deref()));
        Ok(Configuration {
            entries,
            work_tree,
            is_bare,
            hash_bytes,
        })
    }

    /// Adds the programs of the repositories that the index links to (submodules), recursively,
    /// because `git status` looks into each. Each is described as git would see it with `GIT_DIR`
    /// set. Returns the places of their files.
    fn add_linked(
        self,
        mut open: Vec<PathBuf>,
        programs: &mut GitPrograms,
    ) -> Result<BTreeSet<PathBuf>, Unreadable> {
        let mut seen = BTreeSet::new();
        let mut count = 0;
        let top = programs.top.clone();
        while let Some(folder) = open.pop() {
            count += 1;
            if count + open.len() > MAX_REPOSITORIES {
                return Err(Unreadable::TooMuch);
            }
            let Opened::Repository(folders) = open_repository(&folder)? else {
                continue;
            };
            let configuration = self.read_configuration(&folders)?;
            // A repository whose work tree is elsewhere may have further links there.
            let work = work_tree(&folders, &configuration)?;
            if !is_same(&folder, &work) {
                return Err(Unreadable::WorkTree(folders.own));
            }
            let own = folder.join(".git");
            let place = format!("{}: ", own.strip_prefix(&top).unwrap_or(&own).display());
            let entries = configuration
                .entries
                .iter()
                .filter(|entry| entry.variable.key != "core.worktree");
            add_entries(&place, entries, programs)?;
            programs.hooks(&format!("{place}hooks/"), &folders.common.join("hooks"))?;
            seen.extend(folders.common.canonicalize());
            open.extend(open_links(&folder, &folders, &configuration)?);
        }
        Ok(seen)
    }

    /// Adds the programs of an absorbed repository, which has no work tree now.
    fn add_absorbed(self, folder: &Path, programs: &mut GitPrograms) -> Result<(), Unreadable> {
        let place = format!(
            "{}: ",
            folder
                .strip_prefix(&programs.top)
                .unwrap_or(folder)
                .display()
        );
        let mut reader = ConfigReader::new(self.environment);
        for name in ["config", "config.worktree"] {
            let entries = reader.read_file(&folder.join(name))?;
            // The place of its work tree is set in any absorbed repository, so it does not count.
            let entries = entries
                .iter()
                .filter(|entry| entry.variable.key != "core.worktree");
            add_entries(&place, entries, programs)?;
        }
        Ok(programs.hooks(&format!("{place}hooks/"), &folder.join("hooks"))?)
    }
}

/// Adds the entries that can make git run programs.
fn add_entries<'a>(
    place: &str,
    entries: impl IntoIterator<Item = &'a Entry>,
    programs: &mut GitPrograms,
) -> Result<(), Unreadable> {
    for Entry { variable, .. } in entries {
        let key = variable.key.to_lowercase();
        let value = variable.value.as_deref().unwrap_or("true");
        if !runs_programs(&key, value) {
            continue;
        }
        // Two different values must not look the same in the hash.
        if !variable.is_exact {
            return Err(Unreadable::TooMuch);
        }
        programs.key(place, &key, value)?;
    }
    Ok(())
}

/// Returns the folder of a repository's work tree.
fn work_tree(folders: &Folders, configuration: &Configuration) -> Result<PathBuf, Unreadable> {
    let Some(work_tree) = &configuration.work_tree else {
        return Ok(folders.holder.clone());
    };
    folders
        .own
        .join(work_tree)
        .canonicalize()
        .map_err(|_| Unreadable::WorkTree(folders.own.clone()))
}

/// Returns the linked folders of the work tree that contain something like a repository.
fn open_links(
    top: &Path,
    folders: &Folders,
    configuration: &Configuration,
) -> Result<Vec<PathBuf>, Unreadable> {
    let links = read_links(&folders.own.join("index"), configuration.hash_bytes)?;
    let links = links.into_iter().map(|link| top.join(link));
    Ok(links
        .filter(|folder| folder.join(".git").symlink_metadata().is_ok())
        .collect())
}

/// Returns the repositories that are absorbed into this one's files, except those already seen.
fn absorbed(common: &Path, seen: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, Unreadable> {
    let mut found = Vec::new();
    let mut open = vec![common.join("modules")];
    while let Some(folder) = open.pop() {
        if found.len() + open.len() > MAX_REPOSITORIES {
            return Err(Unreadable::TooMuch);
        }
        if folder.join("HEAD").symlink_metadata().is_ok() && folder.join("config").is_file() {
            open.push(folder.join("modules"));
            found
                .extend(Some(folder).filter(|folder| {
                    !folder.canonicalize().is_ok_and(|real| seen.contains(&real))
                }));
            continue;
        }
        match std::fs::read_dir(&folder) {
            Ok(entries) => open.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return Err(Unreadable::File(folder)),
        }
    }
    Ok(found)
}

/// Returns true if git may take a value for true.
fn is_on(value: Option<&str>) -> bool {
    !value.is_some_and(|value| {
        matches!(
            value.to_lowercase().as_str(),
            "" | "false" | "no" | "off" | "0"
        )
    })
}
