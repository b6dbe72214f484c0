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
//! | `objects.rs`, `history.rs` | the names of the files that its commits hold |

mod files;
mod folders;
mod history;
mod index;
mod keys;
mod objects;
mod plain_file;
mod syntax;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use files::{ConfigReader, Entry};
use folders::{GitEntry, RepositoryFolders, find_repository, is_same, open_repository};
pub use history::PathFilter;
use history::find_paths;
use index::{find_name, read_gitlinks};
use keys::runs_programs;
use objects::ObjectStore;
pub(crate) use plain_file::read_plain_file;

use crate::trust::{GitPrograms, TrustReadError, command_words};

/// The git configuration of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitConfig {
    /// It could not be determined with certainty, for this reason.
    Unknown(GitConfigError),
    /// The folder belongs to no repository.
    NoRepository,
    /// A repository, with the programs that its own configuration makes git run.
    Repository(GitPrograms),
}

/// The reason that the programs of a repository cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GitConfigError {
    /// A file or folder cannot be read, or is not what git would write.
    #[error("{} cannot be read, or is not a file that git would write", .0.display())]
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
    /// The work tree is elsewhere than the repository, or its path is uncertain.
    #[error("it is not certain where the work tree of {} is", .0.display())]
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
    #[error("{0} in the environment of commands changes what git does")]
    Environment(String),
    /// There are too many files or repositories, or they are too large.
    #[error("it is too large to examine")]
    TooMuch,
}

/// The maximum number of nested repositories.
const MAX_REPOSITORIES: usize = 64;
/// The maximum number of repositories that are compared around a command.
const MAX_LINKED: usize = 1000;

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

/// The most characters of a branch name that are returned.
const MAX_BRANCH: usize = 200;

/// Returns the branch that is checked out in a folder, or the beginning of the commit without one. `None` outside of a repository,
/// and where it cannot be told. Reads files and starts no program.
#[must_use]
pub fn find_branch(folder: &Path) -> Option<String> {
    let folders = find_repository(folder).ok()??;
    let head = plain_file::read_plain_file(&folders.own.join("HEAD"), 4096).ok()??;
    let head = String::from_utf8(head).ok()?;
    let head = head.trim_end();
    let name = match head.strip_prefix("ref: ") {
        Some(reference) => reference.strip_prefix("refs/heads/").unwrap_or(reference),
        None => head.get(..head.len().min(8))?,
    };
    let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
    is_plain.then(|| name.chars().take(MAX_BRANCH).collect())
}

/// Returns the first path in the index of a folder's repository that does not pass `is_plain`, or `None` if all do or there
/// is not a repository. Reads files and starts no program.
///
/// # Errors
/// [`GitConfigError`] if the index cannot be read with certainty.
pub fn find_index_name(
    folder: &Path,
    environment: &[(String, String)],
    is_plain: &dyn Fn(&str) -> bool,
) -> Result<Option<String>, GitConfigError> {
    let reader = RepositoryReader { environment };
    reader.check_environment()?;
    let Some(folders) = find_repository(folder)? else {
        return Ok(None);
    };
    let configuration = reader.read_configuration(&folders)?;
    find_name(
        &folders.own.join("index"),
        configuration.hash_bytes,
        is_plain,
    )
}

/// The files of a repository's commits that matter to a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistorySearch {
    /// The wanted paths that any tree of the repository holds, longest first. See [`Workspace::search_history`].
    ///
    /// [`Workspace::search_history`]: crate::Workspace::search_history
    pub paths: Vec<String>,
    /// The ids among those asked about that name the content of a file.
    pub blob_ids: Vec<String>,
}

/// The paths found in the objects of a repository; valid while the digest of the objects stays the same.
#[derive(Debug, Clone)]
pub(crate) struct KnownHistory {
    digest: [u8; 32],
    found: Result<Vec<String>, GitConfigError>,
}

/// Finds wanted paths among the trees of a folder's repository, and blobs by their ids. `known` caches results by the path of the object
/// store.
pub(crate) fn search_history(
    folder: &Path,
    environment: &[(String, String)],
    filter: &PathFilter,
    ids: &[String],
    known: &Mutex<HashMap<PathBuf, KnownHistory>>,
) -> Result<HistorySearch, GitConfigError> {
    let reader = RepositoryReader { environment };
    reader.check_environment()?;
    let Some(folders) = find_repository(folder)? else {
        return Ok(HistorySearch::default());
    };
    let configuration = reader.read_configuration(&folders)?;
    let store = ObjectStore::open(&folders.common, configuration.hash_bytes)?;
    let digest = store.digest()?;
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    let earlier = lock().get(&folders.common).cloned();
    let found = match earlier.filter(|earlier| earlier.digest == digest) {
        Some(earlier) => earlier.found,
        None => {
            let found = find_paths(&store, filter);
            let known = KnownHistory {
                digest,
                found: found.clone(),
            };
            lock().insert(folders.common, known);
            found
        }
    };
    let mut blob_ids = Vec::new();
    for id in ids {
        if store.has_blob(id)? {
            blob_ids.push(id.clone());
        }
    }
    Ok(HistorySearch {
        paths: found?,
        blob_ids,
    })
}

/// Lists the remotes of a folder's repository with the addresses that `git push` sends to, as its own configuration gives them.
/// Reads files and starts no program.
///
/// # Errors
/// [`GitConfigError`] if the configuration cannot be read with certainty.
pub fn list_push_addresses(
    folder: &Path,
    environment: &[(String, String)],
) -> Result<Vec<(String, String)>, GitConfigError> {
    let reader = RepositoryReader { environment };
    reader.check_environment()?;
    let Some(folders) = find_repository(folder)? else {
        return Ok(Vec::new());
    };
    let configuration = reader.read_configuration(&folders)?;
    let with_name = |wanted: &str| {
        let found = configuration.entries.iter().filter_map(|entry| {
            let variable = &entry.variable;
            let name = variable.key.strip_prefix("remote.")?;
            let name = name.strip_suffix(wanted)?.strip_suffix('.')?;
            Some((name.to_owned(), variable.value.clone()?))
        });
        found.collect::<Vec<_>>()
    };
    // With an address for pushes, the other ones of that remote are only fetched from.
    let mut pushed = with_name("pushurl");
    let fetched = with_name("url");
    for (name, address) in fetched {
        if !pushed.iter().any(|(other, _)| *other == name) {
            pushed.push((name, address));
        }
    }
    Ok(pushed)
}

/// Returns true if the files of a folder that is not yet a repository would make git run programs once it becomes one, or if that is
/// uncertain.
pub(crate) fn would_run_programs(git: &Path, environment: &[(String, String)]) -> bool {
    let reader = RepositoryReader { environment };
    let mut programs = GitPrograms::of(git);
    git.join("commondir").symlink_metadata().is_ok()
        || reader.add_absorbed(git, &mut programs).is_err()
        || !programs.is_empty()
}

/// The state of a repository that the index of another links to, so that `git status` looks into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkedRepository {
    /// It makes git run nothing there.
    Harmless,
    /// It makes git run programs; with the hash of each item.
    Runs(BTreeMap<String, String>),
    /// What it makes git run is not certain.
    Unclear,
}

/// Returns the repositories that the index of a folder's repository links to, and those that these link to, by their folders. A link
/// without a repository is left out.
pub(crate) fn list_linked_repositories(
    top: &Path,
    environment: &[(String, String)],
) -> Result<BTreeMap<PathBuf, LinkedRepository>, GitConfigError> {
    let reader = RepositoryReader { environment };
    let mut found = BTreeMap::new();
    let git = top.join(".git");
    let folders = match git.is_dir() {
        // While a command runs, this folder has the mask of `commondir`, which looks like a pointer
        // to another folder.
        true => Some(RepositoryFolders {
            holder: top.to_owned(),
            own: git.clone(),
            common: git,
        }),
        false => find_repository(top)?,
    };
    let Some(folders) = folders else {
        return Ok(found);
    };
    let configuration = reader.read_configuration(&folders)?;
    let work = work_tree(&folders, &configuration)?;
    let mut open = open_gitlinks(&work, &folders, &configuration)?;
    while let Some(folder) = open.pop() {
        if found.len() + open.len() > MAX_LINKED {
            return Err(GitConfigError::TooMuch);
        }
        if found.contains_key(&folder) {
            continue;
        }
        let mut programs = GitPrograms::of(&folder);
        let state = match reader.add_gitlink(&folder, &mut programs) {
            Ok(None) => continue,
            Ok(Some(link)) if programs.is_empty() => {
                open.extend(link.further);
                LinkedRepository::Harmless
            }
            Ok(Some(link)) => {
                open.extend(link.further);
                LinkedRepository::Runs(programs.hashes())
            }
            Err(_) => LinkedRepository::Unclear,
        };
        found.insert(folder, state);
    }
    Ok(found)
}

/// A path that git's configuration names, and by which programs can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    /// The absolute path, which may not exist.
    pub(crate) path: PathBuf,
    /// True for an included file, false for a folder of hooks.
    pub(crate) is_file: bool,
}

/// Returns the hook folders and the included files that the configurations of a git folder, of the
/// user in `home` and of the machine name. A file that cannot be read names none: git fails there,
/// too.
pub(crate) fn named_paths(git: &Path, work_tree: &Path, home: Option<&Path>) -> Vec<NamedPath> {
    let variables: Vec<(String, String)> = home
        .and_then(Path::to_str)
        .map(|home| ("HOME".to_owned(), home.to_owned()))
        .into_iter()
        .collect();
    let own = ["config", "config.worktree"].map(|name| git.join(name));
    let users = [".gitconfig", ".config/git/config"];
    let users = home
        .into_iter()
        .flat_map(|home| users.map(|name| home.join(name)));
    let machine = PathBuf::from("/etc/gitconfig");
    let mut named = Vec::new();
    for file in own.into_iter().chain(users).chain([machine]) {
        let mut reader = ConfigReader::new(&variables);
        let entries = reader.read_file(&file).unwrap_or_default();
        named.extend(reader.included.into_iter().map(|path| NamedPath {
            path,
            is_file: true,
        }));
        for variable in entries.iter().map(|entry| &entry.variable) {
            let value = variable.value.as_deref().unwrap_or_default();
            let key = variable.key.to_lowercase();
            if key == "core.hookspath" {
                let path = match value.strip_prefix("~/") {
                    Some(rest) => home.map(|home| home.join(rest)),
                    None => Some(work_tree.join(value)),
                };
                named.extend(path.map(|path| NamedPath {
                    path,
                    is_file: false,
                }));
            } else if !is_include(&key) && runs_programs(&key, value) {
                named.extend(named_programs(value, work_tree));
            }
        }
    }
    named
}

/// Reports whether a key names a file of configuration.
fn is_include(key: &str) -> bool {
    key.starts_with("include.") || key.starts_with("includeif.") || key == "core.worktree"
}

/// Returns the files of the work tree that a shell command in a value names: those that exist, and the program even if it is missing.
fn named_programs(value: &str, work_tree: &Path) -> Vec<NamedPath> {
    let mut named = Vec::new();
    for (at, word) in command_words(value).enumerate() {
        let path = work_tree.join(word);
        let is_path = word.contains('/') && !word.contains(['$', '*', '%', '{']);
        let is_missing_program = at == 0 && is_path && path.symlink_metadata().is_err();
        if path.is_file() || is_missing_program {
            named.push(NamedPath {
                path,
                is_file: true,
            });
        }
    }
    named
}

impl From<TrustReadError> for GitConfigError {
    fn from(_: TrustReadError) -> Self {
        Self::TooMuch
    }
}

/// A reader of repositories as git would see them in some environment.
#[derive(Clone, Copy)]
struct RepositoryReader<'a> {
    environment: &'a [(String, String)],
}

/// A linked repository that was read.
struct OpenGitlink {
    /// The path of its files.
    common: PathBuf,
    /// The folders of the repositories that it links to.
    further: Vec<PathBuf>,
}

/// The repository's own configuration.
struct Configuration {
    entries: Vec<Entry>,
    /// The path of the work tree, as written there.
    work_tree: Option<String>,
    is_bare: bool,
    /// The length of an object id in bytes.
    hash_bytes: usize,
}

impl RepositoryReader<'_> {
    fn read_repository(self, folder: &Path) -> Result<Option<GitPrograms>, GitConfigError> {
        self.check_environment()?;
        let Some(folders) = find_repository(folder)? else {
            return Ok(None);
        };
        let configuration = self.read_configuration(&folders)?;
        // Without a work tree the paths in the configuration have no meaning here.
        if configuration.is_bare {
            return Err(GitConfigError::Bare(folders.own));
        }
        let top = work_tree(&folders, &configuration)?;
        let mut programs = GitPrograms::of(&top);
        add_entries("", &configuration.entries, &mut programs)?;
        programs.add_hooks("hooks/", &folders.common.join("hooks"))?;
        let links = open_gitlinks(&top, &folders, &configuration)?;
        let seen = self.add_linked(links, &mut programs)?;
        for folder in absorbed(&folders.common, &seen)? {
            self.add_absorbed(&folder, &mut programs)?;
        }
        Ok(Some(programs))
    }

    /// Refuses an environment that redirects git, or passes it configuration.
    fn check_environment(self) -> Result<(), GitConfigError> {
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
            Some((name, _)) => Err(GitConfigError::Environment(name.clone())),
            None => Ok(()),
        }
    }

    /// Reads the configuration of a repository and the layout that it defines. For the layout, git
    /// ignores included files, and in an additional work tree also the path of the main one.
    fn read_configuration(
        self,
        folders: &RepositoryFolders,
    ) -> Result<Configuration, GitConfigError> {
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
                Some(_) => return Err(GitConfigError::BrokenIndex),
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
                return Err(GitConfigError::WorkTree(folders.own.clone()));
            }
            layout.push(own.or_else(|| last(&entries, key).filter(|_| !is_further)));
        }
        let is_bare = layout.pop().flatten();
        let work_tree = layout.pop().flatten();
        let work_tree = match work_tree {
            None => None,
            Some(variable) if variable.is_exact && variable.value.is_some() => variable.value,
            Some(_) => return Err(GitConfigError::WorkTree(folders.own.clone())),
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
    /// set. Returns the paths of their files.
    fn add_linked(
        self,
        mut open: Vec<PathBuf>,
        programs: &mut GitPrograms,
    ) -> Result<BTreeSet<PathBuf>, GitConfigError> {
        let mut seen = BTreeSet::new();
        let mut count = 0;
        while let Some(folder) = open.pop() {
            count += 1;
            if count + open.len() > MAX_REPOSITORIES {
                return Err(GitConfigError::TooMuch);
            }
            if let Some(link) = self.add_gitlink(&folder, programs)? {
                seen.extend(link.common.canonicalize());
                open.extend(link.further);
            }
        }
        Ok(seen)
    }

    /// Adds the programs of a linked repository. Returns `None` if there is none in the folder.
    fn add_gitlink(
        self,
        folder: &Path,
        programs: &mut GitPrograms,
    ) -> Result<Option<OpenGitlink>, GitConfigError> {
        let GitEntry::Repository(folders) = open_repository(folder)? else {
            return Ok(None);
        };
        let configuration = self.read_configuration(&folders)?;
        // A repository whose work tree is elsewhere may have further links there.
        let work = work_tree(&folders, &configuration)?;
        if !is_same(folder, &work) {
            return Err(GitConfigError::WorkTree(folders.own));
        }
        let own = folder.join(".git");
        let shown = own.strip_prefix(&programs.top).unwrap_or(&own);
        let prefix = format!("{}: ", shown.display());
        let entries = configuration
            .entries
            .iter()
            .filter(|entry| entry.variable.key != "core.worktree");
        add_entries(&prefix, entries, programs)?;
        programs.add_hooks(&format!("{prefix}hooks/"), &folders.common.join("hooks"))?;
        let further = open_gitlinks(folder, &folders, &configuration)?;
        Ok(Some(OpenGitlink {
            common: folders.common,
            further,
        }))
    }

    /// Adds the programs of an absorbed repository, which has no work tree now.
    fn add_absorbed(self, folder: &Path, programs: &mut GitPrograms) -> Result<(), GitConfigError> {
        let prefix = format!(
            "{}: ",
            folder
                .strip_prefix(&programs.top)
                .unwrap_or(folder)
                .display()
        );
        let mut reader = ConfigReader::new(self.environment);
        for name in ["config", "config.worktree"] {
            let entries = reader.read_file(&folder.join(name))?;
            // The path of its work tree is set in any absorbed repository, so it does not count.
            let entries = entries
                .iter()
                .filter(|entry| entry.variable.key != "core.worktree");
            add_entries(&prefix, entries, programs)?;
        }
        Ok(programs.add_hooks(&format!("{prefix}hooks/"), &folder.join("hooks"))?)
    }
}

/// Adds the entries that can make git run programs.
fn add_entries<'a>(
    prefix: &str,
    entries: impl IntoIterator<Item = &'a Entry>,
    programs: &mut GitPrograms,
) -> Result<(), GitConfigError> {
    for Entry { variable, .. } in entries {
        let key = variable.key.to_lowercase();
        let value = variable.value.as_deref().unwrap_or("true");
        if !runs_programs(&key, value) {
            continue;
        }
        // Two different values must not look the same in the hash.
        if !variable.is_exact {
            return Err(GitConfigError::TooMuch);
        }
        programs.add_key(prefix, &key, value)?;
    }
    Ok(())
}

/// Returns the folder of a repository's work tree.
fn work_tree(
    folders: &RepositoryFolders,
    configuration: &Configuration,
) -> Result<PathBuf, GitConfigError> {
    let Some(work_tree) = &configuration.work_tree else {
        return Ok(folders.holder.clone());
    };
    folders
        .own
        .join(work_tree)
        .canonicalize()
        .map_err(|_| GitConfigError::WorkTree(folders.own.clone()))
}

/// Returns the linked folders of the work tree that contain something like a repository.
fn open_gitlinks(
    top: &Path,
    folders: &RepositoryFolders,
    configuration: &Configuration,
) -> Result<Vec<PathBuf>, GitConfigError> {
    let links = read_gitlinks(&folders.own.join("index"), configuration.hash_bytes)?;
    let links = links.into_iter().map(|link| top.join(link));
    Ok(links
        .filter(|folder| folder.join(".git").symlink_metadata().is_ok())
        .collect())
}

/// Returns the repositories that are absorbed into this one's files, except those already seen.
fn absorbed(common: &Path, seen: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, GitConfigError> {
    let mut found = Vec::new();
    let mut open = vec![common.join("modules")];
    while let Some(folder) = open.pop() {
        if found.len() + open.len() > MAX_REPOSITORIES {
            return Err(GitConfigError::TooMuch);
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
            Err(_) => return Err(GitConfigError::File(folder)),
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
