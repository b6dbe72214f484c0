//! Places masks: empty files and folders under missing protected names, so that a command of level 2
//! cannot create them.
//!
//! Only existing paths can be mounted over, so the masks are in the real workspace while such a
//! command runs. A mask is recognized by its own properties: it is an empty folder or file
//! with a mode that no other program uses. Listing, searching and snapshots skip it ([`is_mask`]), git
//! sees no empty folder, and the next command recognizes what a killed supervisor left.
//!
//! Not every protected name has a mask: they would be more than a hundred in each workspace, and a
//! name with a pattern cannot have one. Masks are for the names that a program outside may read at
//! any moment, such as git from a shell's prompt, an editor, a language server or another agent.
//! The others are moved aside after the command (`protected_restore.rs`).
//!
//! Commands that run at the same time share the masks. Each holds a shared lock on the workspace
//! folder; a command that ends tries to get the exclusive lock, which succeeds only if no other
//! command is left, and then removes all masks. On a file system without locks the masks are left
//! to the next command, as after a kill.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, flock, fstat, mkdir, statat};
use rustix::process::umask;

use super::git_protection::{GUARDED, GitMaskKind, ProtectedGitPath, find_git_protection};
use super::mask_pool::MaskPool;
use super::protected_entries::{EntryShape, list_protected_entries};
use super::removed_folders::RemovedFolders;
use super::{ProtectedPaths, SandboxPlan};
use crate::platform;

/// The protected names that a command cannot create at the top of the workspace, and the kind of
/// their masks. Most are empty folders, even for names of files: git ignores them, so they cannot
/// be committed.
const MASKED: [(&str, MaskKind); 22] = [
    (".husky", MaskKind::Folder),
    (".vscode", MaskKind::Folder),
    (".idea", MaskKind::Folder),
    (".zed", MaskKind::Folder),
    (".devcontainer", MaskKind::Folder),
    (".envrc", MaskKind::Folder),
    (".npmrc", MaskKind::Folder),
    (".yarnrc.yml", MaskKind::Folder),
    (".cargo/config.toml", MaskKind::Parent),
    (".cargo/config", MaskKind::Parent),
    // A language server that runs Cargo in the background reads it at once.
    ("rust-toolchain.toml", MaskKind::Folder),
    ("rust-toolchain", MaskKind::Folder),
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

/// The number of masks that are passed on together.
const PART: usize = 6;

/// A sign of a folder that Cargo uses as its home, which commands have to write.
const CARGO_HOME: &str = "registry";

/// The modes that make an empty folder or file a mask. They are readable, so that git outside does
/// not complain.
pub(super) const FOLDER_MODE: u32 = 0o1555;
/// The mode of a mask while it moves: only a folder that its owner can write can move into another one.
pub(super) const MOVING_MODE: u32 = 0o1755;
const FILE_MODE: u32 = 0o1444;
const MODE_BITS: u32 = 0o7777;

/// The content of the mask of git's `commondir`. Git refuses an empty file; this one points to its
/// own folder, which has the same effect as a missing file.
const POINTER: &[u8] = b".\n";

/// The number of attempts to get the lock: its holder is about to finish, or is an unrelated program.
const TRIES: u32 = 50;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MaskKind {
    File,
    /// A file that points git to the folder that it is in.
    Pointer,
    Folder,
    /// No mask: Cargo does not accept a folder here, and an empty file would show up in the
    /// repository. The parent folder is protected as a whole instead.
    Parent,
}

/// The masks of one workspace, held as long as a command needs them.
#[derive(Debug)]
pub(super) struct WorkspaceMasks {
    /// The masks to remove, those of other commands included.
    masks: Vec<PathBuf>,
    /// The lock on the workspace folder: shared, and exclusive while removing.
    lock: File,
    /// The folders that commands can write, and the pool for the masks when the command has ended.
    writable: Vec<PathBuf>,
    pool: Option<PathBuf>,
}

impl WorkspaceMasks {
    /// Finds the protected paths of the workspace of a plan, and places masks for missing ones. Passes all of them to `pass_on` in parts;
    /// the last part is passed when all masks are in place.
    pub(super) fn put_masks(
        plan: &SandboxPlan,
        top: &Path,
        mut pass_on: impl FnMut(&ProtectedPaths),
    ) -> io::Result<Self> {
        let lock = File::open(top)?;
        for _ in 0..TRIES {
            if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
                break;
            }
            // Bounded: on a file system without locks every attempt fails, and the command must
            // start anyway.
            sleep(PAUSE);
        }
        let mut guard = ProtectedPathCollector {
            top,
            protected: ProtectedPaths::default(),
            pool: open_pool(plan.mask_pool.as_deref(), &plan.write, &lock),
            passed: Vec::new(),
            pass_on: &mut pass_on,
        };
        for entry in list_protected_entries(top) {
            // A link cannot be mounted over; it is restored after the command.
            if entry.shape == EntryShape::Plain {
                guard.protect_existing(&top.join(entry.path));
            }
        }
        // Created with their final mode, since a later change of mode would cost as much as
        // creating them. The umask may be changed because this process has one thread.
        let usual = umask(Mode::empty());
        let put = guard.guard_all(plan.home.as_deref());
        umask(usual);
        let ProtectedPathCollector {
            mut protected,
            mut passed,
            ..
        } = guard;
        protected.missing.retain(|path| !passed.contains(path));
        for list in [
            &mut protected.existing,
            &mut protected.pinned,
            &mut protected.missing,
            &mut protected.reopened,
        ] {
            list.sort();
            list.dedup();
        }
        passed.extend_from_slice(&protected.missing);
        let masks = Self {
            masks: passed,
            lock,
            writable: plan.write.clone(),
            pool: plan.mask_pool.clone(),
        };
        put?;
        pass_on(&protected);
        Ok(masks)
    }
}

impl WorkspaceMasks {
    /// Removes all masks, unless another command needs them. Their folders are freed with `removed`.
    pub(super) fn remove_masks(&mut self, removed: &mut RemovedFolders) {
        let masks = std::mem::take(&mut self.masks);
        // Another command still holds a shared lock, so its masks have to stay.
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let mut pool = open_pool(self.pool.as_deref(), &self.writable, &self.lock);
        for path in &masks {
            remove_mask(path, pool.as_mut(), removed);
        }
        // Others may place masks while the folders are freed.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Drop for WorkspaceMasks {
    fn drop(&mut self) {
        self.remove_masks(&mut RemovedFolders::default());
    }
}

/// Collects the protected paths of a workspace.
struct ProtectedPathCollector<'a> {
    top: &'a Path,
    protected: ProtectedPaths,
    pool: Option<MaskPool>,
    /// The masks that were passed on.
    passed: Vec<PathBuf>,
    pass_on: &'a mut dyn FnMut(&ProtectedPaths),
}

/// Opens the pool for the masks of a workspace, if there is one.
fn open_pool(pool: Option<&Path>, writable: &[PathBuf], top: &File) -> Option<MaskPool> {
    MaskPool::open_for(pool?, writable, top)
}

impl ProtectedPathCollector<'_> {
    fn guard_all(&mut self, home: Option<&Path>) -> io::Result<()> {
        let git = find_git_protection(self.top, home);
        for folder in git.folders {
            if folder.is_module {
                self.protected.reopened.push(folder.path.clone());
            } else {
                self.protected.pinned.push(folder.path.clone());
            }
            for (name, kind) in GUARDED {
                let kind = match kind {
                    GitMaskKind::Folder => MaskKind::Folder,
                    GitMaskKind::File => MaskKind::File,
                    GitMaskKind::Pointer => MaskKind::Pointer,
                };
                self.guard_name(&folder.path, name, kind)?;
            }
        }
        for names in MASKED.chunks(PART) {
            for (name, kind) in names {
                self.guard_name(self.top, name, *kind)?;
            }
            self.pass_masks();
        }
        for path in git.named {
            match path {
                ProtectedGitPath::Existing(path) => self.protect_existing(&path),
                ProtectedGitPath::Missing { path, is_file } => {
                    self.pin_parents(&path);
                    let kind = if is_file {
                        MaskKind::File
                    } else {
                        MaskKind::Folder
                    };
                    self.make_mask(&path, kind)?;
                }
            }
        }
        Ok(())
    }

    /// Passes on the new masks that are directly in the workspace. They can be mounted over before anything else, since no other mount
    /// covers them.
    fn pass_masks(&mut self) {
        let is_new =
            |path: &&PathBuf| path.parent() == Some(self.top) && !self.passed.contains(path);
        let missing: Vec<PathBuf> = self
            .protected
            .missing
            .iter()
            .filter(is_new)
            .cloned()
            .collect();
        self.passed.extend_from_slice(&missing);
        (self.pass_on)(&ProtectedPaths {
            missing,
            ..ProtectedPaths::default()
        });
    }

    /// Makes an existing path read-only, and keeps the folders above it from being renamed.
    fn protect_existing(&mut self, path: &Path) {
        self.pin_parents(path);
        self.protected.existing.push(path.to_path_buf());
    }

    fn pin_parents(&mut self, path: &Path) {
        let parents = path.ancestors().skip(1);
        let inside =
            parents.take_while(|parent| *parent != self.top && parent.starts_with(self.top));
        self.protected.pinned.extend(inside.map(Path::to_path_buf));
    }

    fn is_covered(&self, path: &Path) -> bool {
        self.protected
            .existing
            .iter()
            .chain(&self.protected.missing)
            .any(|covered| covered == path)
    }

    /// Protects a name of one or two components in a folder.
    fn guard_name(&mut self, folder: &Path, name: &str, kind: MaskKind) -> io::Result<()> {
        let path = folder.join(name);
        let parent = path.parent().filter(|parent| *parent != folder);
        let exists = |path: &Path| fs::symlink_metadata(path).ok();
        match (exists(&path), parent.map(|parent| (parent, exists(parent)))) {
            // The parent is covered as a whole, or is a file or a link to elsewhere.
            (_, Some((parent, Some(found)))) if !found.is_dir() || self.is_covered(parent) => {}
            // The parent is another command's mask.
            (_, Some((parent, Some(found)))) if has_mask_mode(&found) => {
                self.protected.missing.push(parent.to_path_buf());
            }
            (_, Some((parent, None))) => self.make_mask(parent, MaskKind::Folder)?,
            (Some(found), _) if has_mask_mode(&found) => self.protected.missing.push(path),
            (Some(found), parent) => {
                if let Some((parent, _)) = parent {
                    self.protected.pinned.push(parent.to_path_buf());
                }
                if !found.is_symlink() {
                    self.protected.existing.push(path);
                }
            }
            (None, Some((parent, _))) if kind == MaskKind::Parent => {
                if exists(&parent.join(CARGO_HOME)).is_none() {
                    self.protect_existing(parent);
                }
            }
            (None, parent) => {
                if let Some((parent, _)) = parent {
                    self.protected.pinned.push(parent.to_path_buf());
                }
                self.make_mask(&path, kind)?;
            }
        }
        Ok(())
    }

    fn make_mask(&mut self, path: &Path, kind: MaskKind) -> io::Result<()> {
        let made = match kind {
            MaskKind::Folder => self.make_folder(path),
            MaskKind::File => create_mask_file(path, b""),
            MaskKind::Pointer => create_mask_file(path, POINTER),
            MaskKind::Parent => return Ok(()),
        };
        match made {
            Ok(()) => {}
            // Another command created it a moment ago.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.protected.missing.push(path.to_path_buf());
        Ok(())
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        if let Some(pool) = &mut self.pool
            && pool.place_folder(path)?
        {
            return Ok(());
        }
        Ok(mkdir(path, platform::to_mode(FOLDER_MODE))?)
    }
}

fn create_mask_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}

/// Removes a mask. If another program has put content there, it stays, as if that program had created it.
fn remove_mask(path: &Path, pool: Option<&mut MaskPool>, removed: &mut RemovedFolders) {
    let Ok(found) = fs::symlink_metadata(path) else {
        return;
    };
    if !has_mask_mode(&found) {
        return;
    }
    if found.is_dir() && pool.is_some_and(|pool| pool.take_folder(path)) {
        return;
    }
    let gone = if found.is_dir() {
        removed.remove_folder(path)
    } else {
        fs::remove_file(path)
    };
    if gone.is_err() {
        // The mask is not empty any more, so it becomes a normal folder. If its mode cannot be
        // changed, it keeps the mask's mode.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o755));
    }
}

pub(super) fn has_mask_mode(found: &fs::Metadata) -> bool {
    is_mask_mode(found.mode(), found.len())
}

/// Returns true if an entry with this mode and length is a mask, provided that it is empty and has
/// the name of one.
fn is_mask_mode(mode: u32, length: u64) -> bool {
    match FileType::from_raw_mode(platform::to_mode_bits(mode)) {
        FileType::Directory => [FOLDER_MODE, MOVING_MODE].contains(&(mode & MODE_BITS)),
        FileType::RegularFile => {
            mode & MODE_BITS == FILE_MODE && (length == 0 || length == POINTER.len() as u64)
        }
        _ => false,
    }
}

/// Returns the names at the top of a workspace that a command may not create.
pub(super) fn masked_names() -> impl Iterator<Item = String> {
    let git = GUARDED.iter().map(|(name, _)| format!(".git/{name}"));
    git.chain(MASKED.iter().map(|(name, _)| (*name).to_owned()))
}

/// Returns true if this name in a folder is a mask: it does not belong to the user, and disappears
/// with the command.
pub fn is_mask(folder: BorrowedFd<'_>, name: &OsStr) -> bool {
    // The name is compared first, which avoids a system call for nearly all names.
    let names = GUARDED
        .iter()
        .map(|(masked, _)| *masked)
        .chain(MASKED.iter().map(|(masked, _)| *masked));
    names
        .flat_map(|masked| masked.split('/'))
        .any(|part| part.as_bytes() == name.as_bytes())
        && statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            is_mask_mode(
                platform::widen(found.st_mode),
                found.st_size.cast_unsigned(),
            )
        })
}

/// Returns true if a mask is at this path, relative to the top of a workspace.
pub(crate) fn is_masked_at(top: BorrowedFd<'_>, path: &Path) -> bool {
    let inside_git = path.strip_prefix(".git").ok();
    let is_masked = MASKED
        .iter()
        .any(|(name, _)| Path::new(name).starts_with(path))
        || inside_git.is_some_and(|inside| {
            GUARDED
                .iter()
                .any(|(name, _)| Path::new(name).starts_with(inside))
        });
    is_masked
        && statat(top, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            is_mask_mode(
                platform::widen(found.st_mode),
                found.st_size.cast_unsigned(),
            )
        })
}

/// Returns true if an open folder is a mask, whatever its name.
pub(crate) fn is_mask_itself(folder: impl AsFd) -> bool {
    fstat(folder).is_ok_and(|found| is_mask_mode(platform::widen(found.st_mode), 0))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn plan(top: &Path) -> SandboxPlan {
        let workspace = crate::Workspace::open(top).unwrap();
        let sandbox = crate::Sandbox::new(crate::SandboxLevel::Two);
        sandbox.build_plan(workspace.root(), &[]).unwrap().unwrap()
    }

    fn names(top: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(top)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn put_masks(top: &Path, pass_on: impl FnMut(&ProtectedPaths)) -> WorkspaceMasks {
        WorkspaceMasks::put_masks(&plan(top), top, pass_on).unwrap()
    }

    #[test]
    fn masks_are_shared_and_removed_by_the_last_user() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join("CLAUDE.md"), "be good").unwrap();
        let mut parts = Vec::new();
        let first = put_masks(folder.path(), |part| parts.push(part.clone()));
        let all: Vec<&PathBuf> = parts.iter().flat_map(|part| &part.missing).collect();
        assert!(
            all.contains(&&folder.path().join(".git/config")),
            "{parts:?}"
        );
        let each: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(each.len(), all.len(), "none is passed on twice");
        let second = put_masks(folder.path(), |_| {});
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
    fn masks_of_a_killed_process_are_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let killed = put_masks(folder.path(), |_| {});
        // A kill releases the lock and leaves the masks.
        let WorkspaceMasks { lock, .. } = &killed;
        flock(lock, FlockOperation::Unlock).unwrap();
        let mut paths = Vec::new();
        let next = put_masks(folder.path(), |part| {
            paths.extend(part.missing.iter().chain(&part.existing).cloned());
        });
        assert!(paths.iter().any(|path| path.ends_with(".idea")));
        fs::write(folder.path().join(".idea/made-by-the-user"), "").unwrap();
        drop(next);
        assert_eq!(names(folder.path()), [".idea"]);
        drop(killed);
        assert_eq!(names(folder.path()), [".idea"]);
    }
}
