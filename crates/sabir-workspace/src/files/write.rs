//! Replaces whole files: a file always holds the old content or the new one, never a part.
//!
//! The new content goes to a temporary file in the same folder, is synced, and changes places with
//! the old file; then the folder is synced. The folders on the way are opened one by one from the
//! workspace's handle, and none may be a link, so the file that was checked is the one that is
//! written.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::change::ChangeRequest;
use super::{FileVersion, Workspace};
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// A condition that a write requires of the file it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePrecondition {
    /// No condition: write whatever is there.
    Any,
    /// The file does not exist. The kernel checks this in the moment of the rename.
    Missing,
    /// The file still has this version. Checked before anything is done and again right before the
    /// rename; afterwards the replaced file is compared with the checked one, and restored if it
    /// differs. Whatever another program writes into that same file within those microseconds is
    /// lost, as no file system can compare and rename at once.
    Version(FileVersion),
}

impl Workspace {
    /// Writes a whole file, creates missing folders, and returns the version written. Mode, access
    /// control list and the user's extended attributes are kept, and the owner if the system
    /// allows; a file with several hard links is separated from the others, and a sparse file is no
    /// longer sparse.
    ///
    /// # Errors
    /// [`WorkspaceError::Exists`], [`Stale`](WorkspaceError::Stale) and
    /// [`Missing`](WorkspaceError::Missing) if the precondition fails;
    /// [`Hidden`](WorkspaceError::Hidden) and [`WriteForbidden`](WorkspaceError::WriteForbidden) by the
    /// workspace's [bounds](crate::Bounds); [`LinkInPath`](WorkspaceError::LinkInPath) if the path
    /// is not the [resolved](Self::resolve_links) one; [`ReadOnly`](WorkspaceError::ReadOnly) for a
    /// file that nobody may write, even if the folder would let it be replaced, and even for root;
    /// [`LinkLeaves`](WorkspaceError::LinkLeaves), [`NotAFile`](WorkspaceError::NotAFile) and
    /// [`NotAFolder`](WorkspaceError::NotAFolder); [`Io`](WorkspaceError::Io) for anything else,
    /// such as a full disk. After an error the old file is in its place, and neither a temporary
    /// file nor a new folder is left; the one exception is
    /// [`NotRestored`](WorkspaceError::NotRestored).
    pub fn write_file(
        &self,
        path: &WorkPath,
        bytes: &[u8],
        expect: WritePrecondition,
    ) -> Result<FileVersion, WorkspaceError> {
        let versions = self.make_changes(&[ChangeRequest {
            path,
            expect,
            content: Some(bytes),
            like: None,
        }])?;
        // A single write has a single version.
        Ok(versions
            .into_iter()
            .flatten()
            .next()
            .unwrap_or_else(|| FileVersion::of_content(bytes)))
    }

    /// Deletes a regular file. Its folder stays, even if it becomes empty.
    ///
    /// # Errors
    /// Those of [`write_file`](Self::write_file); [`WorkspaceError::Missing`] even without a
    /// precondition.
    pub fn delete_file(
        &self,
        path: &WorkPath,
        expect: WritePrecondition,
    ) -> Result<(), WorkspaceError> {
        self.make_changes(&[ChangeRequest {
            path,
            expect,
            content: None,
            like: None,
        }])
        .map(drop)
    }

    /// Opens a folder through folders none of which is a link; `missing` creates a missing one or
    /// returns an error.
    pub(super) fn open_folder(
        &self,
        path: &Path,
        missing: impl FnMut(&OwnedFd, &Path) -> Result<(), Errno>,
    ) -> Result<OwnedFd, Errno> {
        self.open_each(path, missing, |_, _, _| Ok(()))
    }

    /// Opens a folder like [`open_folder`](Self::open_folder). Before each folder is opened,
    /// `enter` receives the handle of its parent, the parent's path, and its own path.
    pub(crate) fn open_each<E: From<Errno>>(
        &self,
        path: &Path,
        mut missing: impl FnMut(&OwnedFd, &Path) -> Result<(), Errno>,
        mut enter: impl FnMut(&OwnedFd, &Path, &Path) -> Result<(), E>,
    ) -> Result<OwnedFd, E> {
        // `O_NOFOLLOW` concerns the last name only, hence one openat per folder: whatever is
        // swapped for a link during the walk, no step follows it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = rustix::fs::openat(self.dir().as_fd(), ".", flags, Mode::empty())?;
        let mut way = PathBuf::new();
        for name in path.iter().map(Path::new) {
            let below = way.join(name);
            enter(&folder, &way, &below)?;
            way = below;
            let below = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    // Opened again instead of trusted: another program may have created it first,
                    // as a link.
                    missing(&folder, name)?;
                    rustix::fs::openat(&folder, name, flags, Mode::empty())?
                }
                opened => opened?,
            };
            folder = below;
        }
        Ok(folder)
    }
}
