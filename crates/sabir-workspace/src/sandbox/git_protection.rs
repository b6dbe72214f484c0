//! Finds the files of git in a workspace that a command may not change, because git would run
//! programs for them later: outside of the sandbox, for a shell's prompt or an editor.
//!
//! Git works in the rest of its folder: it creates and renames files beside the protected ones
//! (`index.lock`, `HEAD`, `MERGE_MSG`, `rebase-merge/` …), so the folder itself must be writable,
//! and the protected names are listed. It holds every file by which git finds configuration,
//! attributes or hooks:
//!
//! | name | leads git to |
//! | --- | --- |
//! | `config`, `config.worktree` | configuration |
//! | `commondir` | another git folder, with its configuration and hooks |
//! | `hooks` | programs |
//! | `info/attributes` | filters and drivers, which run programs |
//! | `modules`, `worktrees` | further git folders |
//! | `branches`, `remotes` | the addresses that a push or fetch connects to |
//!
//! The same names are protected in every git folder of a submodule (`modules/…`). Also protected are the
//! folder that `core.hooksPath` names, the files that `include.path` names and the programs of settings such as
//! `core.fsmonitor`, in the repository's configuration or the user's, if they are in the workspace, and what
//! a link among the names leads to.
//!
//! Not protected: git folders below the top of the workspace that are not submodules (`sub/.git`). Those that the index links
//! to are compared when the command has ended (`protected_restore.rs`), since `git status` looks into them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::protected_entries::GIT;
use crate::git_config::{NamedPath, named_paths};

/// The names in a git folder that are protected, and the kind of mask for a missing one.
pub(super) const GUARDED: [(&str, GitMaskKind); 9] = [
    ("hooks", GitMaskKind::Folder),
    ("config", GitMaskKind::File),
    ("config.worktree", GitMaskKind::File),
    ("commondir", GitMaskKind::Pointer),
    ("info/attributes", GitMaskKind::File),
    ("modules", GitMaskKind::Folder),
    ("worktrees", GitMaskKind::Folder),
    ("branches", GitMaskKind::Folder),
    ("remotes", GitMaskKind::Folder),
];

/// The maximum number of submodules whose git folders are examined; the others are read-only.
const MAX_MODULES: usize = 64;

/// The mask that a missing protected name of git can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitMaskKind {
    Folder,
    File,
    /// A file that git must be able to read.
    Pointer,
}

/// A git folder in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitFolder {
    pub(super) path: PathBuf,
    /// True for the git folder of a submodule, in the `modules` of another.
    pub(super) is_module: bool,
}

/// A path in the workspace that git's configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProtectedGitPath {
    /// It exists.
    Existing(PathBuf),
    /// The first part of it that does not exist.
    Missing { path: PathBuf, is_file: bool },
}

/// The protected parts of git in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GitProtection {
    /// The git folders, in each of which the [`GUARDED`] names are protected.
    pub(super) folders: Vec<GitFolder>,
    pub(super) named: Vec<ProtectedGitPath>,
}

/// Finds the protected parts of git in a workspace. `home` is the user's home folder.
pub(super) fn find_git_protection(top: &Path, home: Option<&Path>) -> GitProtection {
    let mut guards = GitProtection::default();
    let git = top.join(GIT);
    // The target of a link or of a `.git` file is protected only if it is in the workspace.
    let Ok(git) = git.canonicalize() else {
        return guards;
    };
    if !git.is_dir() || !git.starts_with(top) || git == top {
        return guards;
    }
    let mut open = vec![GitFolder {
        path: git,
        is_module: false,
    }];
    while let Some(folder) = open.pop() {
        let modules = folder.path.join("modules");
        let room = MAX_MODULES.saturating_sub(guards.folders.len() + open.len());
        open.extend(find_modules(&modules, room));
        for named in named_paths(&folder.path, top, home) {
            guards.named.extend(locate_inside(top, &named));
        }
        // A link among the guarded names is nothing by itself: what it leads to counts.
        for (name, kind) in GUARDED {
            let path = folder.path.join(name);
            if let Ok(target) = path.read_link() {
                let path = path.parent().unwrap_or(top).join(target);
                let is_file = kind != GitMaskKind::Folder;
                guards
                    .named
                    .extend(locate_inside(top, &NamedPath { path, is_file }));
            }
        }
        guards.folders.push(folder);
    }
    guards
}

/// Finds the git folders below a `modules` folder; the name of a submodule may have several parts.
fn find_modules(modules: &Path, room: usize) -> Vec<GitFolder> {
    let mut found = Vec::new();
    let mut open = vec![modules.to_path_buf()];
    let mut looked = 0;
    while let Some(folder) = open.pop() {
        looked += 1;
        if looked > MAX_MODULES * 4 || found.len() >= room {
            break;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if path.join("HEAD").symlink_metadata().is_err() {
                open.push(path);
            } else if found.len() < room {
                found.push(GitFolder {
                    path,
                    is_module: true,
                });
            }
        }
    }
    found
}

/// Returns the part of a named path that has to be protected, if the path leads into the workspace.
fn locate_inside(top: &Path, named: &NamedPath) -> Option<ProtectedGitPath> {
    let path = resolve_dots(&named.path)?;
    let existing = path
        .ancestors()
        .find(|path| path.symlink_metadata().is_ok())?;
    // The workspace itself cannot be protected as a whole, and nothing above it can be changed.
    let real = existing
        .canonicalize()
        .ok()
        .filter(|real| real.starts_with(top))?;
    let missing = path.strip_prefix(existing).ok()?;
    match missing.components().next() {
        None if real == top => None,
        None => Some(ProtectedGitPath::Existing(real)),
        Some(first) => Some(ProtectedGitPath::Missing {
            path: real.join(first),
            is_file: named.is_file && missing.components().count() == 1,
        }),
    }
}

/// Resolves `.` and `..` in an absolute path, by its text.
fn resolve_dots(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved.is_absolute().then_some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn files_that_git_follows_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let home = folder.path().join("elsewhere");
        write(
            &top.join(".git/config"),
            "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../more.conf\n\tpath = /etc/other\n",
        );
        write(&top.join(".git/modules/a/b/HEAD"), "ref: refs/heads/main\n");
        write(&top.join(".git/modules/a/b/modules/c/HEAD"), "");
        write(&top.join("tools/x"), "");
        write(&home.join(".gitconfig"), "[core]\nhooksPath = .githooks\n");
        let found = find_git_protection(&top, Some(&home));
        let folders: Vec<_> = found
            .folders
            .iter()
            .map(|folder| folder.path.strip_prefix(&top).unwrap().to_owned())
            .collect();
        let expected = [".git", ".git/modules/a/b", ".git/modules/a/b/modules/c"];
        assert_eq!(folders, expected.map(PathBuf::from));
        let missing = |path: &str, is_file| ProtectedGitPath::Missing {
            path: top.join(path),
            is_file,
        };
        for expected in [
            missing("tools/hooks", false),
            missing("more.conf", true),
            missing(".githooks", false),
        ] {
            assert!(found.named.contains(&expected), "{expected:?}: {found:?}");
        }
        write(&top.join("tools/hooks/pre-commit"), "");
        let found = find_git_protection(&top, None);
        assert!(
            found
                .named
                .contains(&ProtectedGitPath::Existing(top.join("tools/hooks")))
        );
        assert_eq!(found.named.len(), 2, "{found:?}");
    }
}
