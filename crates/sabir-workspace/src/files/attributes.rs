//! Copies the attributes of a file to the file that replaces it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Gid, Mode, RawMode, Stat, Uid, XattrFlags};

/// The limit of the kernel for attribute lists and values.
const MAX_XATTR_BYTES: usize = 64 << 10;
const ACL: &[u8] = b"system.posix_acl_access";

/// Mode, owner, access control list and the user's extended attributes.
#[derive(Debug)]
pub(super) struct FileAttributes {
    mode: RawMode,
    uid: u32,
    gid: u32,
    /// The names without their NUL, and the values.
    extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FileAttributes {
    /// Reads the attributes of a file. Without a handle, which needs read permission, the extended
    /// ones are empty.
    pub(super) fn from_stat(found: &Stat, file: Option<BorrowedFd<'_>>) -> Self {
        // Set-user-id and set-group-id are not carried over to new content, as with any write.
        let mode = found.st_mode & 0o1777;
        Self {
            mode,
            uid: found.st_uid,
            gid: found.st_gid,
            extended: file.map(read_extended).unwrap_or_default(),
        }
    }

    /// Applies the attributes to a file.
    pub(super) fn apply_to(&self, file: &File) -> io::Result<()> {
        // Only root may change owners; for anyone else the file already has the right owner, or
        // cannot get it.
        let _ = rustix::fs::fchown(
            file,
            Some(Uid::from_raw(self.uid)),
            Some(Gid::from_raw(self.gid)),
        );
        // Set afterwards, because the umask narrows the mode that a file is created with.
        rustix::fs::fchmod(file, Mode::from_raw_mode(self.mode))?;
        for (name, value) in &self.extended {
            // If the file system cannot store them, the content still matters more.
            let _ =
                rustix::fs::fsetxattr(file.as_fd(), name.as_slice(), value, XattrFlags::empty());
        }
        Ok(())
    }
}

/// Reads the access control list and the user's attributes, but not the system's: a capability must
/// not carry over to new content, and security labels are assigned by their policy.
fn read_extended(file: BorrowedFd<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    // Most files have none, so the buffers are not worth allocating.
    if rustix::fs::flistxattr_query(file).unwrap_or_default() == 0 {
        return Vec::new();
    }
    let mut list = Vec::with_capacity(MAX_XATTR_BYTES);
    if rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut list)).is_err() {
        return Vec::new();
    }
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || *name == ACL);
    let value = |name: &[u8]| {
        let mut value = Vec::with_capacity(MAX_XATTR_BYTES);
        rustix::fs::fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
        Some((name.to_vec(), value))
    };
    names.filter_map(value).collect()
}
