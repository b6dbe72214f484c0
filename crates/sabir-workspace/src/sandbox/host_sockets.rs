//! Finds the unix sockets of the machine, so that tier 2 can cover them.
//!
//! A read-only mount does not keep a process from connecting to a socket below it, and a network
//! namespace separates only abstract sockets. Commands may use unix sockets of their own, so every
//! socket in the file system that exists when a command starts is covered: those that the kernel
//! lists for this network namespace, and those that are mounts of their own, as a container engine
//! passes its socket on. `/run` is replaced as a whole.
//!
//! Not covered: a socket that a program outside of `/run` and the temporary folders creates later,
//! or in another network namespace.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The number of fields in front of the path in a line of `/proc/net/unix`.
const FIELDS: usize = 7;
/// The field of `/proc/self/mountinfo` that holds the mounted part, which is `/` for a whole file
/// system, and the next one, the mount point.
const MOUNT_ROOT: usize = 3;

/// The kernel's lists of sockets and mounts, open. They keep showing those of the namespaces in which they were opened, as they are when
/// they are read.
pub(super) struct HostSocketLists {
    sockets: File,
    mounts: File,
}

impl HostSocketLists {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            sockets: File::open("/proc/net/unix")?,
            mounts: File::open("/proc/self/mountinfo")?,
        })
    }

    /// Lists the sockets in the file system that this process sees.
    pub(super) fn list_sockets(&self) -> io::Result<Vec<PathBuf>> {
        let listed = read_list(&self.sockets)?;
        let listed = String::from_utf8_lossy(&listed);
        let mounts = read_list(&self.mounts)?;
        let mounts = String::from_utf8_lossy(&mounts);
        let mut sockets: Vec<PathBuf> = listed
            .lines()
            .filter_map(socket_path)
            .chain(mounts.lines().filter_map(mounted_file))
            .filter(|path| {
                fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            })
            .collect();
        sockets.sort();
        sockets.dedup();
        Ok(sockets)
    }
}

/// Lists the sockets in the file system; `None` if the kernel does not list them.
pub(super) fn list_host_sockets() -> Option<Vec<PathBuf>> {
    HostSocketLists::open().ok()?.list_sockets().ok()
}

/// Reads a list that the kernel makes while it is read. Each call makes a part anew, so few large ones are much faster than many that
/// begin small, as they do for a file without a length.
fn read_list(mut list: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(32 << 10);
    list.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the path in a line of `/proc/net/unix`; an abstract name begins with `@`.
fn socket_path(line: &str) -> Option<PathBuf> {
    let path = line
        .match_indices(|c: char| c != ' ')
        .map(|(at, _)| at)
        .filter(|&at| at == 0 || line.as_bytes().get(at - 1) == Some(&b' '))
        .nth(FIELDS)
        .and_then(|at| line.get(at..))?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Returns the mount point in a line of `/proc/self/mountinfo`, unless a whole file system is
/// mounted there.
fn mounted_file(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ').skip(MOUNT_ROOT);
    let root = fields.next()?;
    let place = fields.next()?;
    (root != "/").then(|| unescape_mount(place))
}

/// Replaces the escapes that the kernel writes for blanks and backslashes in paths.
fn unescape_mount(place: &str) -> PathBuf {
    let plain = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let path = plain.iter().fold(place.to_owned(), |path, (escape, byte)| {
        path.replace(escape, byte)
    });
    Path::new(&path).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_parsed_from_proc_net_unix() {
        let path = |line| socket_path(line).map(|path| path.display().to_string());
        let header = "Num       RefCount Protocol Flags    Type St Inode Path";
        assert_eq!(path(header), None);
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 18432 /srv/a b/x.sock";
        assert_eq!(path(line).as_deref(), Some("/srv/a b/x.sock"));
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 18432 @abstract";
        assert_eq!(path(line), None);
        let line = "0000000000000000: 00000003 00000000 00000000 0001 03 18433";
        assert_eq!(path(line), None);
        let line = "36 35 98:0 /docker.sock /srv/a\\040b rw,noatime master:1 - ext4 /dev/root rw";
        assert_eq!(mounted_file(line), Some(PathBuf::from("/srv/a b")));
        let line = "36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw";
        assert_eq!(mounted_file(line), None);
    }

    #[test]
    fn a_socket_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(list_host_sockets().unwrap().contains(&path));
    }
}
