//! Evaluates the ignore files of a workspace for listing and searching.
//!
//! Supported: `.ignore` and `.gitignore` in every folder, `.git/info/exclude` beside them, and the
//! same files in the folders above the workspace up to the top of the git repository that contains
//! it. `.ignore` takes precedence over `.gitignore`, which takes precedence over `exclude`; the
//! nearer folder wins. At the top of a repository, the git rules of the folders above end.
//!
//! Unsupported on purpose: the user's own `core.excludesFile`, a `.gitignore` above a workspace
//! that is in no repository, and ignore files that are links, which git refuses too. Of a file over
//! 1 MiB only the first MiB counts.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::Workspace;
use crate::platform;

const MAX_FILE_BYTES: u64 = 1 << 20;

/// The rules of one folder that has any, linked to those of the folders above.
#[derive(Debug)]
pub(crate) struct IgnoreRules {
    above: Option<Arc<IgnoreRules>>,
    base: RuleBase,
    ignore: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    /// True if the folder is the top of a repository.
    top: bool,
}

/// The location of the folder that rules belong to.
#[derive(Debug)]
enum RuleBase {
    /// The folder is inside the workspace, at this relative path.
    Inside(PathBuf),
    /// The folder is above the workspace; this is the path from it to the workspace.
    Above(PathBuf),
}

/// The ignore files worth opening in a folder.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IgnoreFilesPresent {
    pub(super) ignore: bool,
    pub(super) git_ignore: bool,
    pub(super) git: bool,
}

impl IgnoreRules {
    /// Returns true if an entry is hidden. The path is relative to the workspace folder.
    pub(super) fn is_hidden(&self, path: &Path, is_folder: bool) -> bool {
        let mut ignore = Match::None;
        let mut git = Match::None;
        let mut exclude = Match::None;
        let mut rules = Some(self);
        let mut same_repository = true;
        while let Some(one) = rules {
            let longer;
            let path = match &one.base {
                RuleBase::Inside(folder) => path.strip_prefix(folder).unwrap_or(path),
                RuleBase::Above(way) => {
                    longer = way.join(path);
                    &longer
                }
            };
            ignore = ignore.or(one.ignore.matched(path, is_folder));
            if same_repository {
                git = git.or(one.git.matched(path, is_folder));
                exclude = exclude.or(one.exclude.matched(path, is_folder));
            }
            // `.ignore` files are not git's, so they keep applying above the top of a repository.
            same_repository &= !one.top;
            rules = one.above.as_deref();
        }
        ignore.or(git).or(exclude).is_ignore()
    }

    /// Returns the rules within a folder: those above it, and its own if it has any.
    pub(super) fn within_folder(
        above: Option<Arc<Self>>,
        folder: BorrowedFd<'_>,
        path: &Path,
        present: IgnoreFilesPresent,
    ) -> Option<Arc<Self>> {
        Self::read_folder(above, folder, RuleBase::Inside(path.to_path_buf()), present)
    }

    fn read_folder(
        above: Option<Arc<Self>>,
        folder: BorrowedFd<'_>,
        base: RuleBase,
        present: IgnoreFilesPresent,
    ) -> Option<Arc<Self>> {
        if !(present.ignore || present.git_ignore || present.git) {
            return above;
        }
        let rules = |wanted: bool, name: &str| {
            if wanted {
                read_rules(folder, name)
            } else {
                Gitignore::empty()
            }
        };
        let top =
            present.git && rustix::fs::statat(folder, ".git", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let ignore = rules(present.ignore, ".ignore");
        let git = rules(present.git_ignore, ".gitignore");
        let exclude = rules(present.git, ".git/info/exclude");
        if !top && ignore.is_empty() && git.is_empty() {
            return above;
        }
        Some(Arc::new(Self {
            above,
            base,
            ignore,
            git,
            exclude,
            top,
        }))
    }
}

impl Workspace {
    /// Returns a checker of paths against the ignore files as they are now.
    pub fn ignore_checker(&self) -> IgnoreChecker<'_> {
        IgnoreChecker {
            workspace: self,
            folders: HashMap::new(),
        }
    }

    /// Returns the rules that apply to a folder, without its own.
    pub(super) fn rules_above(&self, folder: &Path) -> Option<Arc<IgnoreRules>> {
        let all = IgnoreFilesPresent {
            ignore: true,
            git_ignore: true,
            git: true,
        };
        let mut rules = self.rules_outside();
        let mut above: Vec<&Path> = folder.ancestors().skip(1).collect();
        above.reverse();
        for path in above {
            let Ok(opened) = self.open_beneath(path) else {
                break;
            };
            rules = IgnoreRules::within_folder(rules, opened.as_fd(), path, all);
        }
        rules
    }

    /// Returns the rules of the folders above the workspace that are in the same repository.
    fn rules_outside(&self) -> Option<Arc<IgnoreRules>> {
        let is_top = |path: &&Path| path.join(".git").symlink_metadata().is_ok();
        let top = self.root().ancestors().find(is_top)?;
        let mut above: Vec<&Path> = self
            .root()
            .ancestors()
            .skip(1)
            .filter(|path| path.starts_with(top))
            .collect();
        above.reverse();
        let all = IgnoreFilesPresent {
            ignore: true,
            git_ignore: true,
            git: true,
        };
        above.into_iter().fold(None, |rules, path| {
            let flags = platform::FOLDER_HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(opened) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else {
                return rules;
            };
            let way = self
                .root()
                .strip_prefix(path)
                .unwrap_or(self.root())
                .to_path_buf();
            IgnoreRules::read_folder(rules, opened.as_fd(), RuleBase::Above(way), all)
        })
    }
}

/// Tells which paths of a workspace its ignore files hide from lists, whether or not they exist.
#[derive(Debug)]
pub struct IgnoreChecker<'a> {
    workspace: &'a Workspace,
    /// The rules for the entries of each folder, and whether the folder itself is ignored.
    folders: HashMap<PathBuf, CheckedFolder>,
}

/// A folder of an [`IgnoreChecker`].
#[derive(Debug, Clone)]
struct CheckedFolder {
    rules: Option<Arc<IgnoreRules>>,
    is_ignored: bool,
}

impl IgnoreChecker<'_> {
    /// Returns true if a path, relative to the workspace folder, is ignored itself or lies in an ignored folder.
    pub fn is_ignored(&mut self, path: &Path, is_folder: bool) -> bool {
        let Some(parent) = path.parent() else {
            return false;
        };
        let folder = self.check_folder(parent);
        folder.is_ignored
            || folder
                .rules
                .is_some_and(|rules| rules.is_hidden(path, is_folder))
    }

    fn check_folder(&mut self, folder: &Path) -> CheckedFolder {
        if let Some(known) = self.folders.get(folder) {
            return known.clone();
        }
        let checked = CheckedFolder {
            is_ignored: folder.parent().is_some() && self.is_ignored(folder, true),
            // The rules above a path in the folder are those of the folder, too.
            rules: self.workspace.rules_above(&folder.join("x")),
        };
        self.folders.insert(folder.to_path_buf(), checked.clone());
        checked
    }
}

/// Reads the rules of a file; empty if it is not a readable regular file. Invalid lines are
/// skipped.
fn read_rules(folder: BorrowedFd<'_>, name: &str) -> Gitignore {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from) else {
        return Gitignore::empty();
    };
    let mut bytes = Vec::new();
    let regular = file.metadata().is_ok_and(|found| found.is_file());
    if !regular || file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).is_err() {
        return Gitignore::empty();
    }
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes));
    let mut builder = GitignoreBuilder::new("");
    for line in text.lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
