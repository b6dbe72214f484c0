//! What a file has besides its content, and keeps when the content is replaced by another file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags};

/// No file system keeps longer lists or values.
const MAX_XATTR_BYTES: usize = 64 << 10;
const ACL: &[u8] = b"system.posix_acl_access";

/// Mode, owner, access control list and the user's extended attributes.
#[derive(Debug)]
pub(super) struct FileAttributes {
    mode: u32,
    uid: u32,
    gid: u32,
    /// Names without their NUL, and values.
    extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FileAttributes {
    /// Takes them from a file. Without a handle, which needs the right to read, the extended ones are not seen.
    pub(super) fn from_stat(found: &Stat, file: Option<BorrowedFd<'_>>) -> Self {
        // Set-user-id and set-group-id do not pass to new content, as with any write.
        let mode = found.st_mode & 0o1777;
        Self { mode, uid: found.st_uid, gid: found.st_gid, extended: file.map(read_extended).unwrap_or_default() }
    }

    /// Gives them to a file.
    pub(super) fn apply_to(&self, file: &File) -> io::Result<()> {
        // Only root may give files away, and for anyone else the file is already theirs or cannot be.
        let _ = rustix::fs::fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
        rustix::fs::fchmod(file, Mode::from_raw_mode(self.mode))?;
        for (name, value) in &self.extended {
            // A file system without room for them still holds the content, which is what was asked for.
            let _ = rustix::fs::fsetxattr(file.as_fd(), name.as_slice(), value, XattrFlags::empty());
        }
        Ok(())
    }
}

/// The access control list, and what users set. Not the system's: a capability must not pass to new content, and a security
/// label is given by its policy.
fn read_extended(file: BorrowedFd<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    // Most files have none, and are not worth the buffers.
    if rustix::fs::flistxattr_query(file).unwrap_or_default() == 0 {
        return Vec::new();
    }
    let mut list = Vec::with_capacity(MAX_XATTR_BYTES);
    if rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut list)).is_err() {
        return Vec::new();
    }
    let names = list.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.") || *name == ACL);
    let value = |name: &[u8]| {
        let mut value = Vec::with_capacity(MAX_XATTR_BYTES);
        rustix::fs::fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
        Some((name.to_vec(), value))
    };
    names.filter_map(value).collect()
}
