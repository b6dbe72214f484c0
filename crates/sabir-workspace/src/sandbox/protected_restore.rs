//! Restores protected paths of a workspace after a command, if nothing could prevent the command
//! from creating or changing them.
//!
//! In level 2 these are paths without a mask (`masks.rs`), and links, which cannot be mounted over. In
//! level 1 these are all protected paths: Landlock can only allow folders with all that is in them, so a workspace in
//! which files can be created has no protected ones. The check runs when all processes of the
//! command have ended, so it cannot be raced by them; a program outside that reads such a file
//! while the command runs sees what the command wrote.
//!
//! Nothing is deleted. Files that the command made are renamed to `withheld-NAME` at the top of the
//! workspace, where no program looks for it, and the report names it. The same happens to
//! files that another program creates meanwhile, because they look the same.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::EffectiveLevel;
use super::git_protection::{GUARDED, ProtectedGitPath, find_git_protection};
use super::masks::has_mask_mode;
use super::protected_entries::{EntryShape, GIT, list_protected_entries};
use crate::git_config::{
    GitConfig, GitConfigError, LinkedRepository, list_linked_repositories, would_run_programs,
};

/// The prefix of the names that withheld files get.
const PREFIX: &str = "withheld-";
/// The maximum size of a remembered file, of all of them, and the number of entries. For others
/// only changes are noticed.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_BYTES: u64 = 16 << 20;
const MAX_ENTRIES: usize = 4096;
/// The maximum number of paths in a report.
const MAX_REPORTED: usize = 100;
/// The entries of a folder that git takes for a repository, whatever the folder's name.
const BARE_LAYOUT: [&str; 3] = ["HEAD", "objects", "refs"];

/// The commands that `git rebase --continue` runs.
const REBASE: &str = ".git/rebase-merge/git-rebase-todo";

/// A protected path that a command created or changed, and that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldPath {
    /// The path, relative to the workspace, without control characters.
    pub path: String,
    /// The name at the top of the workspace that the command's version has now; `None` if the
    /// command removed it.
    pub kept_as: Option<String>,
    /// False if the path could not be restored.
    pub restored: bool,
}

impl WithheldPath {
    /// Formats the path as one line.
    pub(crate) fn to_line(&self) -> String {
        let kept = self.kept_as.as_deref().unwrap_or_default();
        format!("{}\t{}\t{kept}", u8::from(self.restored), self.path)
    }

    /// Parses a line of [`to_line`](Self::to_line).
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, '\t');
        let restored = fields.next()? == "1";
        let path = fields.next()?.to_owned();
        let kept = fields.next()?;
        Some(Self {
            path,
            kept_as: (!kept.is_empty()).then(|| kept.to_owned()),
            restored,
        })
    }
}

/// Writes a sentence without a full stop.
impl fmt::Display for WithheldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        write!(f, "`{path}` is protected, and commands may not change it: ")?;
        match (&self.kept_as, self.restored) {
            (_, false) => f.write_str("it could not be restored"),
            (Some(name), true) => write!(f, "what the command wrote there is now `{name}`"),
            (None, true) => f.write_str("it was restored"),
        }
    }
}

/// The protected paths of a workspace before a command.
#[derive(Debug)]
pub(super) struct ProtectedState {
    top: PathBuf,
    home: Option<PathBuf>,
    /// The protected entries that exist, relative to the top.
    known: HashSet<PathBuf>,
    /// The entries that must be the same afterwards, by absolute path.
    saved: Vec<(PathBuf, SavedTree)>,
    /// The paths that must not exist afterwards.
    missing: Vec<PathBuf>,
    /// The folders of submodules' git folders, with their entries.
    modules: Vec<(PathBuf, HashSet<PathBuf>)>,
    had_git: bool,
    had_bare_layout: bool,
    /// The repositories that the index links to; `None` if it cannot be read.
    linked: Option<BTreeMap<PathBuf, GitlinkState>>,
    /// The commands of a rebase that the user has begun.
    rebase: Option<Vec<u8>>,
    withheld: Vec<WithheldPath>,
}

/// A repository that the index links to, before a command.
#[derive(Debug)]
struct GitlinkState {
    programs: LinkedRepository,
    /// The content of its `.git`, if that is a file.
    pointer: Option<Vec<u8>>,
}

/// A file, link or folder with everything below, by path relative to it.
type SavedTree = BTreeMap<PathBuf, SavedNode>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct SavedNode {
    mode: u32,
    /// The time of the last change, which no program can set.
    changed: (i64, i64),
    content: SavedContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SavedContent {
    Folder,
    Link(PathBuf),
    File(Vec<u8>),
    /// Too large to be remembered, or something special.
    Unknown,
}

/// The rest of the limits.
struct SaveBudget {
    bytes: u64,
    entries: usize,
}

impl ProtectedState {
    /// Remembers the protected paths that a command of this level could change.
    pub(super) fn capture(top: &Path, home: Option<&Path>, level: EffectiveLevel) -> Self {
        let mut state = Self {
            top: top.to_path_buf(),
            home: home.map(Path::to_path_buf),
            known: HashSet::new(),
            saved: Vec::new(),
            missing: Vec::new(),
            modules: Vec::new(),
            had_git: exists(&top.join(GIT)),
            had_bare_layout: has_bare_layout(top),
            linked: None,
            rebase: read_small(&top.join(REBASE)),
            withheld: Vec::new(),
        };
        state.linked = state.list_gitlinks().ok().map(|links| {
            let links = links.into_iter().map(|(folder, programs)| {
                let pointer = read_small(&folder.join(GIT));
                (folder, GitlinkState { programs, pointer })
            });
            links.collect()
        });
        let mut budget = SaveBudget {
            bytes: MAX_BYTES,
            entries: MAX_ENTRIES,
        };
        for entry in list_protected_entries(top) {
            if level == EffectiveLevel::One || entry.shape == EntryShape::Other {
                let path = top.join(&entry.path);
                let tree = save_tree(&path, &mut budget);
                state.saved.push((path, tree));
            }
            state.known.insert(entry.path);
        }
        if level == EffectiveLevel::One {
            state.capture_git(&mut budget);
        }
        state
    }

    fn capture_git(&mut self, budget: &mut SaveBudget) {
        let guards = find_git_protection(&self.top, self.home.as_deref());
        let mut paths = Vec::new();
        for folder in &guards.folders {
            // The folders of submodules hold objects, so only their protected parts are remembered.
            let names = GUARDED.iter().filter(|(name, _)| *name != "modules");
            paths.extend(names.map(|(name, _)| folder.path.join(name)));
        }
        for named in guards.named {
            match named {
                ProtectedGitPath::Existing(path) | ProtectedGitPath::Missing { path, .. } => {
                    paths.push(path)
                }
            }
        }
        paths.sort();
        paths.dedup();
        for path in paths {
            if exists(&path) {
                let tree = save_tree(&path, budget);
                self.saved.push((path, tree));
            } else {
                self.missing.push(path);
            }
        }
        let modules = guards
            .folders
            .into_iter()
            .map(|folder| folder.path.join("modules"));
        self.modules = modules
            .map(|folder| {
                let inside = list_modules(&folder).into_iter().collect();
                (folder, inside)
            })
            .collect();
    }

    /// Restores everything, and returns the paths that needed it.
    pub(super) fn restore(mut self) -> Vec<WithheldPath> {
        for (root, tree) in std::mem::take(&mut self.saved) {
            self.restore_tree(&root, &tree);
        }
        for path in std::mem::take(&mut self.missing) {
            if exists(&path) {
                self.withhold(&path);
            }
        }
        for entry in list_protected_entries(&self.top) {
            if !self.known.contains(&entry.path) {
                let path = self.top.join(entry.path);
                self.withhold(&path);
            }
        }
        for (folder, known) in std::mem::take(&mut self.modules) {
            for path in list_modules(&folder) {
                // The content of a folder that was just moved away is gone.
                if !known.contains(&path) && exists(&path) {
                    self.withhold(&path);
                }
            }
        }
        if !self.had_git && !self.is_harmless_repository() {
            self.withhold(&self.top.join(GIT));
        }
        self.check_gitlinks();
        self.check_rebase();
        // Git would take the workspace itself for a repository, with the configuration in it.
        if !self.had_bare_layout && has_bare_layout(&self.top) {
            self.withhold(&self.top.join("HEAD"));
        }
        self.withheld
    }

    fn environment(&self) -> Vec<(String, String)> {
        let home = self.home.as_deref().and_then(Path::to_str);
        home.map(|home| ("HOME".to_owned(), home.to_owned()))
            .into_iter()
            .collect()
    }

    fn list_gitlinks(&self) -> Result<BTreeMap<PathBuf, LinkedRepository>, GitConfigError> {
        list_linked_repositories(&self.top, &self.environment())
    }

    /// Puts aside repositories that the command made the index link to, or changed, and that make `git status` run programs.
    fn check_gitlinks(&mut self) {
        // An index that could not be read before is the user's.
        let Some(before) = self.linked.take() else {
            return;
        };
        let Ok(now) = self.list_gitlinks() else {
            // What it links to now cannot be found out.
            let index = self.top.join(GIT).join("index");
            if exists(&index) {
                self.withhold(&index);
            }
            return;
        };
        for (folder, programs) in now {
            let path = folder.join(GIT);
            let earlier = before.get(&folder);
            let pointer = earlier.and_then(|earlier| earlier.pointer.as_ref());
            if let Some(pointer) = pointer {
                if read_small(&path).as_ref() != Some(pointer) {
                    let kept_as = self.move_away(&path);
                    let restored = kept_as.is_some() && fs::write(&path, pointer).is_ok();
                    self.report(&path, kept_as, restored);
                }
                continue;
            }
            let is_same = earlier.is_some_and(|earlier| earlier.programs == programs);
            if programs != LinkedRepository::Harmless && !is_same {
                self.withhold(&path);
            }
        }
    }

    /// Puts back the commands of a rebase if the command added one that runs a program: `git rebase --continue` would run it.
    fn check_rebase(&mut self) {
        let path = self.top.join(REBASE);
        let Ok(now) = fs::read(&path) else {
            return;
        };
        let before = self.rebase.take();
        let known: Vec<&[u8]> = exec_lines(before.as_deref().unwrap_or_default()).collect();
        if exec_lines(&now).all(|line| known.contains(&line)) {
            return;
        }
        let kept_as = self.move_away(&path);
        let is_free = kept_as.is_some();
        let restored = is_free && before.is_none_or(|before| fs::write(&path, before).is_ok());
        self.report(&path, kept_as, restored);
    }

    /// Returns true unless the repository that the command created makes git run programs.
    fn is_harmless_repository(&self) -> bool {
        let git = self.top.join(GIT);
        if !exists(&git) {
            return true;
        }
        let environment = self.environment();
        match GitConfig::of(&self.top, &environment) {
            GitConfig::Repository(programs) => programs.is_empty(),
            // The next command, or another program, may complete it.
            GitConfig::NoRepository => !would_run_programs(&git, &environment),
            GitConfig::Unknown(_) => false,
        }
    }

    fn restore_tree(&mut self, root: &Path, saved: &SavedTree) {
        let mut budget = SaveBudget {
            bytes: MAX_BYTES,
            entries: MAX_ENTRIES * 2,
        };
        let now = list_tree(root, &mut budget);
        let mut gone: Vec<&PathBuf> = Vec::new();
        for path in &now {
            let is_inside_gone = gone.iter().any(|folder| path.starts_with(folder));
            if !saved.contains_key(path) && !is_inside_gone {
                self.withhold(&join(root, path));
                gone.push(path);
            }
        }
        for (path, node) in saved {
            let path = join(root, path);
            let found = fs::symlink_metadata(&path).ok();
            if found
                .as_ref()
                .is_some_and(|found| node.is_unchanged(&path, found))
            {
                continue;
            }
            let kept_as = match &found {
                Some(_) => self.move_away(&path),
                None => None,
            };
            let is_free = found.is_none() || kept_as.is_some();
            let restored = is_free && node.recreate(&path).is_ok();
            self.report(&path, kept_as, restored);
        }
    }

    /// Renames the entries that the command made.
    fn withhold(&mut self, path: &Path) {
        let kept_as = self.move_away(path);
        let restored = kept_as.is_some();
        self.report(path, kept_as, restored);
    }

    fn report(&mut self, path: &Path, kept_as: Option<String>, restored: bool) {
        if self.withheld.len() < MAX_REPORTED {
            self.withheld.push(WithheldPath {
                path: plain_name(path.strip_prefix(&self.top).unwrap_or(path)),
                kept_as,
                restored,
            });
        }
    }

    /// Renames a path to a free name at the top of the workspace, and returns the name.
    fn move_away(&self, path: &Path) -> Option<String> {
        let name = plain_name(path.strip_prefix(&self.top).unwrap_or(path)).replace('/', "-");
        let name: String = name.chars().take(60).collect();
        let mut kept = format!("{PREFIX}{name}");
        for number in 2..1000 {
            if !exists(&self.top.join(&kept)) {
                fs::rename(path, self.top.join(&kept)).ok()?;
                return Some(kept);
            }
            kept.clear();
            let _ = write!(kept, "{PREFIX}{name}-{number}");
        }
        None
    }
}

impl SavedNode {
    fn new(path: &Path, found: &Metadata, budget: &mut SaveBudget) -> Self {
        let content = if found.is_dir() {
            SavedContent::Folder
        } else if found.is_symlink() {
            fs::read_link(path).map_or(SavedContent::Unknown, SavedContent::Link)
        } else if found.is_file() && found.len() <= budget.bytes.min(MAX_FILE_BYTES) {
            budget.bytes -= found.len();
            fs::read(path).map_or(SavedContent::Unknown, SavedContent::File)
        } else {
            SavedContent::Unknown
        };
        Self {
            mode: found.mode(),
            changed: (found.ctime(), found.ctime_nsec()),
            content,
        }
    }

    fn is_unchanged(&self, path: &Path, found: &Metadata) -> bool {
        // The entries of a folder are compared one by one.
        if found.is_dir() && self.content == SavedContent::Folder {
            return found.mode() == self.mode;
        }
        if (found.ctime(), found.ctime_nsec()) == self.changed {
            return true;
        }
        found.mode() == self.mode
            && match &self.content {
                SavedContent::File(bytes) => {
                    found.len() == bytes.len() as u64
                        && fs::read(path).is_ok_and(|now| now == *bytes)
                }
                SavedContent::Link(target) => fs::read_link(path).is_ok_and(|now| now == *target),
                SavedContent::Folder | SavedContent::Unknown => false,
            }
    }

    fn recreate(&self, path: &Path) -> io::Result<()> {
        let permissions = Permissions::from_mode(self.mode & 0o7777);
        match &self.content {
            SavedContent::Folder => fs::create_dir(path)?,
            SavedContent::Link(target) => return symlink(target, path),
            SavedContent::File(bytes) => fs::write(path, bytes)?,
            SavedContent::Unknown => return Err(io::ErrorKind::InvalidData.into()),
        }
        fs::set_permissions(path, permissions)
    }
}

fn save_tree(root: &Path, budget: &mut SaveBudget) -> SavedTree {
    let paths = list_tree(root, budget);
    let nodes = paths.into_iter().filter_map(|path| {
        let real = join(root, &path);
        let found = fs::symlink_metadata(&real).ok()?;
        Some((path, SavedNode::new(&real, &found, budget)))
    });
    nodes.collect()
}

/// Lists a path and everything below, relative to it, parents first. Links are not followed.
fn list_tree(root: &Path, budget: &mut SaveBudget) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        let real = join(root, &path);
        let Ok(metadata) = fs::symlink_metadata(&real) else {
            continue;
        };
        let Some(entries) = budget.entries.checked_sub(1) else {
            break;
        };
        budget.entries = entries;
        if metadata.is_dir() {
            let inside = fs::read_dir(&real).into_iter().flatten().flatten();
            open.extend(inside.map(|entry| path.join(entry.file_name())));
        }
        found.push(path);
    }
    found
}

/// Lists the entries of a folder of submodules' git folders, parents first, without the git folders' content.
fn list_modules(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        if found.len() >= MAX_ENTRIES {
            break;
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && !exists(&path.join("HEAD")) {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// Joins two paths; the second may be empty, for the first itself.
fn join(root: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        root.to_path_buf()
    } else {
        root.join(path)
    }
}

/// Iterates over the lines of a rebase that run a program.
fn exec_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| {
        let word = line.split(u8::is_ascii_whitespace).next();
        matches!(word, Some(b"exec" | b"x"))
    })
}

/// Reads a regular file of moderate size; `None` for anything else.
fn read_small(path: &Path) -> Option<Vec<u8>> {
    let found = fs::symlink_metadata(path).ok()?;
    (found.is_file() && found.len() <= MAX_FILE_BYTES)
        .then(|| fs::read(path).ok())
        .flatten()
}

/// Returns true if something is at this path that is not a mask.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !has_mask_mode(&found))
}

fn has_bare_layout(top: &Path) -> bool {
    BARE_LAYOUT.iter().all(|name| exists(&top.join(name)))
}

/// Returns a path as text in which no character can forge a line.
fn plain_name(path: &Path) -> String {
    let name = path.to_string_lossy();
    name.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\n"),
            (".git/hooks/old", "old"),
            (".vscode/tasks.json", "{}"),
            ("docs/agents.md", "be good"),
            ("src/main.rs", ""),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("docs/agents.md", folder.path().join("AGENTS.md")).unwrap();
        folder
    }

    fn state(top: &Path) -> BTreeMap<String, Option<String>> {
        let mut budget = SaveBudget {
            bytes: 0,
            entries: MAX_ENTRIES,
        };
        list_tree(top, &mut budget)
            .into_iter()
            .map(|path| {
                let text = fs::read_to_string(top.join(&path)).ok();
                (path.display().to_string(), text)
            })
            .filter(|(path, _)| !path.starts_with(PREFIX))
            .collect()
    }

    /// Runs the change of a command, and checks the paths that are restored in both levels.
    #[track_caller]
    fn check(level: EffectiveLevel, change: impl Fn(&Path), expected: &[&str]) {
        let folder = folder();
        let top = folder.path();
        let before = state(top);
        let captured = ProtectedState::capture(top, None, level);
        change(top);
        let withheld = captured.restore();
        let paths: Vec<_> = withheld.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, expected, "{withheld:?}");
        assert!(withheld.iter().all(|one| one.restored), "{withheld:?}");
        if !expected.is_empty() {
            assert_eq!(state(top), before);
        }
    }

    #[test]
    fn unprotected_changes_are_kept() {
        for level in [EffectiveLevel::One, EffectiveLevel::Two] {
            check(
                level,
                |top| {
                    fs::write(top.join("src/new.rs"), "x").unwrap();
                    fs::write(top.join(".git/ORIG_HEAD"), "x").unwrap();
                    fs::write(top.join("docs/agents.md"), "be better").unwrap();
                },
                &[],
            );
        }
    }

    #[test]
    fn new_protected_names_are_moved_away() {
        for level in [EffectiveLevel::One, EffectiveLevel::Two] {
            let write = |name: &'static str| {
                move |top: &Path| {
                    let path = top.join(name);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, "x").unwrap();
                }
            };
            check(level, write(".travis.yml"), &[".travis.yml"]);
            check(
                level,
                write("azure-pipelines-2.yml"),
                &["azure-pipelines-2.yml"],
            );
            check(level, write("mise.toml"), &["mise.toml"]);
        }
    }

    #[test]
    fn protected_links_are_restored() {
        for level in [EffectiveLevel::One, EffectiveLevel::Two] {
            check(
                level,
                |top| {
                    fs::remove_file(top.join("AGENTS.md")).unwrap();
                    fs::write(top.join("AGENTS.md"), "be bad").unwrap();
                },
                &["AGENTS.md"],
            );
        }
    }

    #[test]
    fn protected_files_are_restored_without_mounts() {
        let level = EffectiveLevel::One;
        let write = |name: &'static str| {
            move |top: &Path| {
                let path = top.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
        };
        check(
            level,
            write(".git/hooks/pre-commit"),
            &[".git/hooks/pre-commit"],
        );
        check(level, write(".git/hooks/old"), &[".git/hooks/old"]);
        check(level, write(".git/config"), &[".git/config"]);
        check(level, write(".git/commondir"), &[".git/commondir"]);
        check(level, write(".vscode/tasks.json"), &[".vscode/tasks.json"]);
        check(
            level,
            |top| fs::remove_dir_all(top.join(".git/hooks")).unwrap(),
            &[".git/hooks", ".git/hooks/old"],
        );
        check(
            level,
            |top| {
                fs::set_permissions(top.join(".git/hooks/old"), Permissions::from_mode(0o755))
                    .unwrap()
            },
            &[".git/hooks/old"],
        );
    }

    #[test]
    fn a_new_repository_that_runs_programs_is_moved_away() {
        let check = |config: &str, expected: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let top = folder.path();
            let captured = ProtectedState::capture(top, None, EffectiveLevel::Two);
            fs::create_dir_all(top.join(".git/objects")).unwrap();
            fs::create_dir_all(top.join(".git/refs")).unwrap();
            fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(top.join(".git/config"), config).unwrap();
            let withheld = captured.restore();
            let paths: Vec<_> = withheld.iter().map(|one| one.path.as_str()).collect();
            assert_eq!(paths, expected, "{config}");
        };
        let folder = tempfile::tempdir().unwrap();
        let captured = ProtectedState::capture(folder.path(), None, EffectiveLevel::Two);
        fs::create_dir(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join(".git/config"), "[core]\n").unwrap();
        assert_eq!(captured.restore(), []);
        let captured = ProtectedState::capture(folder.path(), None, EffectiveLevel::Two);
        fs::remove_dir_all(folder.path().join(".git")).unwrap();
        assert_eq!(captured.restore(), []);
        let captured = ProtectedState::capture(folder.path(), None, EffectiveLevel::Two);
        fs::create_dir(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join(".git/config"), "[core]\nfsmonitor=x\n").unwrap();
        assert_eq!(captured.restore().len(), 1);
        check("[core]\n\tbare = false\n", &[]);
        check("[core]\n\tfsmonitor = ./evil\n", &[".git"]);
        check("[core", &[".git"]);
    }

    #[test]
    fn withheld_paths_parse_from_their_lines() {
        for kept_as in [None, Some("withheld-x".to_owned())] {
            let path = WithheldPath {
                path: "a b/.envrc".to_owned(),
                kept_as,
                restored: true,
            };
            assert_eq!(WithheldPath::from_line(&path.to_line()), Some(path));
        }
        assert_eq!(WithheldPath::from_line("1"), None);
    }
}
