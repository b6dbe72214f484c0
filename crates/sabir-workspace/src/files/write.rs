//! Replacing a file as a whole: it holds the old content or the new, never a part, whatever happens in between.
//!
//! The new content goes to a temporary file in the same folder, is synced, changes places with the old file, and the folder is
//! synced. The folders on the way are opened one by one from the workspace's handle, and none may be a link, so what was judged
//! is what is written.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::change::ChangeRequest;
use super::{FileVersion, Workspace};
use crate::error::WorkspaceError;
use crate::path::WorkPath;

/// What a write takes for granted about the file it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePrecondition {
    /// Nothing: write whatever is there.
    Any,
    /// That there is no such file. Checked by the kernel in the moment of the rename.
    Missing,
    /// That the file is still this version. Checked before anything is done, again right before the rename, and the file that
    /// was then taken away is the one that was checked, or it is put back. What another program writes into that same file
    /// within those microseconds is lost, as no file system offers to compare and rename at once.
    Version(FileVersion),
}

impl Workspace {
    /// Writes a whole file, and its missing folders, and returns the version written. Kept are the mode, the access control list
    /// and the user's extended attributes, and the owner where the system allows; a file with more than one name is split from
    /// the others, and a sparse one is no longer so.
    ///
    /// # Errors
    /// [`WorkspaceError::Exists`], [`Stale`](WorkspaceError::Stale) and [`Missing`](WorkspaceError::Missing) when the
    /// expectation fails; [`Hidden`](WorkspaceError::Hidden) and [`Limited`](WorkspaceError::Limited) by the workspace's
    /// [bounds](crate::Bounds); [`LinkPassed`](WorkspaceError::LinkPassed) when the path is not the [resolved](Self::resolve_links) one;
    /// [`ReadOnly`](WorkspaceError::ReadOnly) for a file that nobody may write, also where the folder would let it be replaced,
    /// and also for root; [`LinkLeaves`](WorkspaceError::LinkLeaves), [`NotAFile`](WorkspaceError::NotAFile) and
    /// [`NotAFolder`](WorkspaceError::NotAFolder); [`Io`](WorkspaceError::Io) for anything else, such as a full disk. After an
    /// error the old file is in its place, and neither a temporary file nor a new folder is left; the one exception has an error
    /// of its own, [`NotRestored`](WorkspaceError::NotRestored).
    pub fn write_file(
        &self,
        path: &WorkPath,
        bytes: &[u8],
        expect: WritePrecondition,
    ) -> Result<FileVersion, WorkspaceError> {
        let versions = self.make_changes(&[ChangeRequest { path, expect, content: Some(bytes), like: None }])?;
        // One write has one version.
        Ok(versions.into_iter().flatten().next().unwrap_or_else(|| FileVersion::of_content(bytes)))
    }

    /// Deletes a regular file. Its folder stays, also when nothing is left in it.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file); [`WorkspaceError::Missing`] also when nothing was expected.
    pub fn delete_file(&self, path: &WorkPath, expect: WritePrecondition) -> Result<(), WorkspaceError> {
        self.make_changes(&[ChangeRequest { path, expect, content: None, like: None }]).map(drop)
    }

    /// Opens a folder through folders of which none is a link; `missing` makes one that is not there, or gives an error.
    pub(super) fn open_folder(
        &self,
        path: &Path,
        missing: impl FnMut(&OwnedFd, &Path) -> Result<(), Errno>,
    ) -> Result<OwnedFd, Errno> {
        self.open_each(path, missing, |_, _, _| Ok(()))
    }

    /// As [`open_folder`](Self::open_folder); before each folder is opened, `enter` gets the one that it is in, the path of that
    /// one, and its own.
    pub(crate) fn open_each<E: From<Errno>>(
        &self,
        path: &Path,
        mut missing: impl FnMut(&OwnedFd, &Path) -> Result<(), Errno>,
        mut enter: impl FnMut(&OwnedFd, &Path, &Path) -> Result<(), E>,
    ) -> Result<OwnedFd, E> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = rustix::fs::openat(self.dir().as_fd(), ".", flags, Mode::empty())?;
        let mut way = PathBuf::new();
        for name in path.iter().map(Path::new) {
            let below = way.join(name);
            enter(&folder, &way, &below)?;
            way = below;
            let below = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
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
