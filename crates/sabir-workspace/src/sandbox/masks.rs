//! Places masks: empty files and folders under missing protected names, so that a command of tier 2
//! cannot create them.
//!
//! Only existing paths can be mounted over, so the masks are in the real workspace while such a
//! command runs. A mask is recognized by itself, not by its creator: it is an empty folder or file
//! with a mode that nobody else uses. Listing, searching and snapshots skip it ([`is_mask`]), git
//! sees no empty folder, and the next command recognizes what a killed supervisor left.
//!
//! Commands that run at the same time share the masks. Each holds a shared lock on the workspace
//! folder; a command that ends tries to get the exclusive lock, which succeeds only if no other
//! command is left, and then removes all masks. On a file system without locks the masks are left
//! to the next command, as after a kill.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, flock, fstat, mkdir, statat};
use rustix::process::umask;

use super::ProtectedPaths;
use crate::protected_paths;

/// The protected names that a command cannot create at the top of the workspace, and the kind of
/// their masks. Mostly an empty folder, even for names of files: git does not see it, so it cannot
/// be committed.
const MASKED: [(&str, MaskKind); 23] = [
    (".git/hooks", MaskKind::Folder),
    (".git/config", MaskKind::File),
    (".git/config.worktree", MaskKind::File),
    (".husky", MaskKind::Folder),
    (".vscode", MaskKind::Folder),
    (".idea", MaskKind::Folder),
    (".zed", MaskKind::Folder),
    (".devcontainer", MaskKind::Folder),
    (".envrc", MaskKind::Folder),
    (".npmrc", MaskKind::Folder),
    (".yarnrc.yml", MaskKind::Folder),
    (".cargo/config.toml", MaskKind::Nothing),
    (".cargo/config", MaskKind::Nothing),
    (".github/workflows", MaskKind::Folder),
    (".gitlab-ci.yml", MaskKind::Folder),
    (".circleci", MaskKind::Folder),
    (".claude", MaskKind::Folder),
    (".cursor", MaskKind::Folder),
    (".codex", MaskKind::Folder),
    (".mcp.json", MaskKind::Folder),
    (".sabir", MaskKind::Folder),
    ("AGENTS.md", MaskKind::Folder),
    ("CLAUDE.md", MaskKind::Folder),
];

/// Git's folder, in which a command may write everything that does not make a program run.
const GIT: &str = ".git";

/// The modes that make an empty folder or file a mask. They are readable, so that git outside does
/// not complain.
const FOLDER_MODE: u32 = 0o1555;
const FILE_MODE: u32 = 0o1444;
const MODE_BITS: u32 = 0o7777;

/// The number of attempts to get the lock, and the pause between them: a holder of the exclusive
/// lock is about to finish, or is some unrelated program.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MaskKind {
    File,
    Folder,
    /// No mask: Cargo does not accept a folder here, and an empty file would show up in the
    /// repository. Only a missing parent is masked.
    Nothing,
}

/// The masks of one workspace, held as long as a command needs them.
#[derive(Debug)]
pub(super) struct WorkspaceMasks {
    top: PathBuf,
    /// The lock on the workspace folder: shared, and exclusive while removing.
    lock: File,
}

impl WorkspaceMasks {
    /// Finds the protected paths at the top of the workspace, and places masks for missing ones.
    pub(super) fn put_masks(top: &Path) -> io::Result<(Self, ProtectedPaths)> {
        let masks = Self {
            top: top.to_path_buf(),
            lock: File::open(top)?,
        };
        for _ in 0..TRIES {
            if flock(&masks.lock, FlockOperation::NonBlockingLockShared).is_ok() {
                break;
            }
            sleep(PAUSE);
        }
        let mut protected = ProtectedPaths::default();
        for entry in fs::read_dir(top)?.flatten() {
            let name = entry.file_name();
            // A link is not covered here; its target is, if that is protected.
            let plain = entry
                .file_type()
                .is_ok_and(|kind| kind.is_file() || (kind.is_dir() && name != GIT));
            if plain && protected_paths::find_protection_reason(Path::new(&name)).is_some() {
                protected.existing.push(entry.path());
            }
        }
        // Hooks and configuration of submodules run programs just like the repository's own.
        let modules = fs::read_dir(top.join(".git/modules"))
            .into_iter()
            .flatten()
            .flatten();
        let modules =
            modules.flat_map(|module| ["hooks", "config"].map(|name| module.path().join(name)));
        protected
            .existing
            .extend(modules.filter(|path| path.exists()));
        // Created with their final mode, since a later change of mode would cost as much as
        // creating them. The umask may be changed because this process has one thread.
        let usual = umask(Mode::empty());
        let put = MASKED
            .iter()
            .try_for_each(|(name, kind)| guard_name(top, name, *kind, &mut protected));
        umask(usual);
        put?;
        protected.existing.sort();
        protected.existing.dedup();
        protected.pinned.dedup();
        Ok((masks, protected))
    }
}

/// Removes all masks, unless another command needs them.
impl Drop for WorkspaceMasks {
    fn drop(&mut self) {
        // Another command still holds a shared lock, so its masks have to stay.
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        for (name, _) in MASKED {
            let path = self.top.join(name);
            remove_mask(&path);
            if let Some(parent) = path.parent().filter(|parent| *parent != self.top) {
                remove_mask(parent);
            }
        }
    }
}

fn guard_name(
    top: &Path,
    name: &str,
    kind: MaskKind,
    protected: &mut ProtectedPaths,
) -> io::Result<()> {
    let path = top.join(name);
    let parent = path.parent().filter(|parent| *parent != top);
    let exists = |path: &Path| fs::symlink_metadata(path).ok();
    let covered = |parent: &Path| {
        protected
            .existing
            .iter()
            .chain(&protected.missing)
            .any(|path| path == parent)
    };
    match (exists(&path), parent.map(|parent| (parent, exists(parent)))) {
        // The parent is covered as a whole, or is a file or a link to elsewhere.
        (_, Some((parent, Some(found)))) if !found.is_dir() || covered(parent) => {}
        // The parent is another command's mask.
        (_, Some((parent, Some(found)))) if has_mask_mode(&found) => {
            protected.missing.push(parent.to_path_buf())
        }
        // A command may create a repository; git's programs in it are checked whenever git is to
        // run.
        (_, Some((parent, None))) if parent.ends_with(GIT) => {}
        (_, Some((parent, None))) => make_mask(parent, MaskKind::Folder, protected)?,
        (Some(found), parent) => {
            protected
                .pinned
                .extend(parent.map(|(parent, _)| parent.to_path_buf()));
            if !found.is_symlink() {
                protected.existing.push(path);
            }
        }
        (None, parent) => {
            protected
                .pinned
                .extend(parent.map(|(parent, _)| parent.to_path_buf()));
            make_mask(&path, kind, protected)?;
        }
    }
    Ok(())
}

fn make_mask(path: &Path, kind: MaskKind, protected: &mut ProtectedPaths) -> io::Result<()> {
    let made = match kind {
        MaskKind::Folder => mkdir(path, Mode::from_raw_mode(FOLDER_MODE)).map_err(io::Error::from),
        MaskKind::File => File::create_new(path)
            .and_then(|_| fs::set_permissions(path, Permissions::from_mode(FILE_MODE))),
        MaskKind::Nothing => return Ok(()),
    };
    match made {
        Ok(()) => {}
        // Another command created it a moment ago.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    protected.missing.push(path.to_path_buf());
    Ok(())
}

/// Removes a mask. If somebody outside has put content there, it stays, as if they had created it.
fn remove_mask(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else {
        return;
    };
    if !has_mask_mode(&found) {
        return;
    }
    let gone = if found.is_dir() {
        fs::remove_dir(path)
    } else {
        fs::remove_file(path)
    };
    if gone.is_err() {
        // The mask is not empty any more, so it becomes a normal folder; if its mode cannot be
        // changed, it keeps it.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o755));
    }
}

fn has_mask_mode(found: &fs::Metadata) -> bool {
    is_mask_mode(found.mode(), found.len())
}

/// Returns true if an entry with this mode and length is a mask, provided that it is empty and has
/// the name of one.
fn is_mask_mode(mode: u32, length: u64) -> bool {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => mode & MODE_BITS == FOLDER_MODE,
        FileType::RegularFile => mode & MODE_BITS == FILE_MODE && length == 0,
        _ => false,
    }
}

/// Returns the names at the top of a workspace that a command may not create.
pub(super) fn masked_names() -> impl Iterator<Item = &'static str> {
    MASKED.iter().map(|(name, _)| *name)
}

/// Returns true if this name in a folder is a mask: it does not belong to the user, and disappears
/// with the command.
pub fn is_mask(folder: BorrowedFd<'_>, name: &OsStr) -> bool {
    // The name is compared first, which avoids a system call for nearly all names.
    let is_name = |(masked, _): &(&str, MaskKind)| {
        masked
            .split('/')
            .any(|part| part.as_bytes() == name.as_bytes())
    };
    MASKED.iter().any(is_name)
        && statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| is_mask_mode(found.st_mode, found.st_size.cast_unsigned()))
}

/// Returns true if a mask is at this path, relative to the top of a workspace.
pub(crate) fn is_masked_at(top: BorrowedFd<'_>, path: &Path) -> bool {
    MASKED
        .iter()
        .any(|(name, _)| Path::new(name).starts_with(path))
        && statat(top, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| is_mask_mode(found.st_mode, found.st_size.cast_unsigned()))
}

/// Returns true if an open folder is a mask, whatever its name.
pub(crate) fn is_mask_itself(folder: impl AsFd) -> bool {
    fstat(folder).is_ok_and(|found| is_mask_mode(found.st_mode, 0))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn names(top: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(top)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn masks_are_shared_and_go_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join("CLAUDE.md"), "be good").unwrap();
        let (first, protected) = WorkspaceMasks::put_masks(folder.path()).unwrap();
        assert!(
            protected
                .missing
                .contains(&folder.path().join(".git/config")),
            "{protected:?}"
        );
        let (second, _) = WorkspaceMasks::put_masks(folder.path()).unwrap();
        drop(first);
        assert!(folder.path().join(".vscode").exists());
        let handle = File::open(folder.path()).unwrap();
        for name in names(folder.path()) {
            let ours = is_mask(handle.as_fd(), name.as_ref());
            assert_eq!(
                ours,
                !["CLAUDE.md", ".git"].contains(&name.as_str()),
                "{name}"
            );
        }
        drop(second);
        assert_eq!(names(folder.path()), [".git", "CLAUDE.md"]);
        assert_eq!(names(&folder.path().join(".git")), [""; 0]);
    }

    #[test]
    fn what_was_left_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let (killed, _) = WorkspaceMasks::put_masks(folder.path()).unwrap();
        // What a kill does: the lock goes, the masks stay.
        let WorkspaceMasks { top, lock } = &killed;
        flock(lock, FlockOperation::Unlock).unwrap();
        let (next, protected) = WorkspaceMasks::put_masks(top).unwrap();
        assert!(
            protected
                .missing
                .iter()
                .chain(&protected.existing)
                .any(|path| path.ends_with(".idea"))
        );
        fs::write(folder.path().join(".idea/made-by-the-user"), "").unwrap();
        drop(next);
        assert_eq!(names(folder.path()), [".idea"]);
        drop(killed);
        assert_eq!(names(folder.path()), [".idea"]);
    }
}
