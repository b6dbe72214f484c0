//! Unifies what Linux and macOS offer for the metadata of files.
//!
//! | | Linux | macOS |
//! | --- | --- | --- |
//! | [`device_number`], [`mode_bits`] | as they are | widened, as the standard library does |
//! | [`sync_file_system`] | `syncfs` | `sync`, then `F_FULLFSYNC` of one folder |
//! | [`set_folder_mode`] | through an `O_PATH` handle | `fchmodat` that follows no link |

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::Stat;

#[cfg(target_os = "linux")]
pub(super) use linux::{device_number, set_folder_mode, sync_file_system};
#[cfg(target_os = "macos")]
pub(super) use macos::{device_number, set_folder_mode, sync_file_system};

/// Returns the mode, with the bits for the type.
pub(super) fn mode_bits(found: &Stat) -> u32 {
    /// Converts without a warning where the types are the same.
    fn widen(bits: impl Into<u32>) -> u32 {
        bits.into()
    }
    widen(found.st_mode)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::Permissions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{Mode, OFlags};

    use super::{BorrowedFd, OsStr, OwnedFd, Stat, io};

    /// Returns the device, as `MetadataExt::dev` does.
    pub(crate) fn device_number(found: &Stat) -> u64 {
        found.st_dev
    }

    /// Writes all files of the file system to the disk.
    pub(crate) fn sync_file_system(folder: &OwnedFd) -> io::Result<()> {
        Ok(rustix::fs::syncfs(folder)?)
    }

    /// Sets a folder's mode through a handle that cannot be a link.
    pub(crate) fn set_folder_mode(
        folder: BorrowedFd<'_>,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(folder, name, flags, Mode::empty())?;
        // `fchmod` refuses `O_PATH` handles, so the mode is set through `/proc/self/fd`.
        std::fs::set_permissions(
            format!("/proc/self/fd/{}", found.as_raw_fd()),
            Permissions::from_mode(mode),
        )
    }
}

/// Compiled by CI, but not run there.
#[cfg(target_os = "macos")]
mod macos {
    use rustix::fs::{AtFlags, FileType, Mode, RawMode};

    use super::{BorrowedFd, OsStr, OwnedFd, Stat, io};

    /// Returns the device, as `MetadataExt::dev` does.
    pub(crate) fn device_number(found: &Stat) -> u64 {
        i64::from(found.st_dev).cast_unsigned()
    }

    /// Writes all files to the disk: `sync` sends them to the drive, and the second call flushes the drive's cache.
    pub(crate) fn sync_file_system(folder: &OwnedFd) -> io::Result<()> {
        rustix::fs::sync();
        Ok(rustix::fs::fcntl_fullfsync(folder)?)
    }

    /// Sets a folder's mode. A link that takes its name is not followed.
    pub(crate) fn set_folder_mode(
        folder: BorrowedFd<'_>,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<()> {
        let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let mode = Mode::from_raw_mode(RawMode::try_from(mode & 0o7777).unwrap_or_default());
        Ok(rustix::fs::chmodat(
            folder,
            name,
            mode,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }
}
