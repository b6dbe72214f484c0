//! Finds the unix sockets of the machine, so that level 2 can cover them.
//!
//! A read-only mount does not keep a process from connecting to a socket below it, and a network
//! namespace separates only abstract sockets. Commands may use unix sockets of their own, so every
//! socket in the file system that exists when a command starts is covered: those that the kernel
//! lists for this network namespace, and those that are mounts of their own, as a container engine
//! passes its socket on. `/run` is replaced as a whole.
//!
//! If a socket of the machine has a name that does not say where it is, such as a relative path, commands get no unix sockets.
//!
//! Not covered: a socket that a program outside of `/run` and the temporary folders creates later,
//! or in another network namespace.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

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
    ///
    /// # Errors
    /// The lists cannot be read, or name a socket by a path that cannot be located: the kernel keeps the path that the program gave, which
    /// may be relative or contain a line feed.
    pub(super) fn list_sockets(&self) -> io::Result<Vec<PathBuf>> {
        let listed = read_list(&self.sockets)?;
        let mounts = read_list(&self.mounts)?;
        let mut sockets = socket_paths(&listed)?;
        sockets.extend(lines_of(&mounts).filter_map(mounted_file));
        sockets.retain(|path| {
            fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        });
        sockets.sort();
        sockets.dedup();
        Ok(sockets)
    }
}

/// Lists the sockets in the file system; `None` if the kernel does not list them all.
pub(super) fn list_host_sockets() -> Option<Vec<PathBuf>> {
    HostSocketLists::open().ok()?.list_sockets().ok()
}

/// Reads a list that the kernel generates while it is read. Each read generates its part again, so
/// a few large reads are much faster than many small ones, with which a file of unknown length is
/// usually read.
fn read_list(mut list: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(32 << 10);
    list.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lines_of(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// Returns the paths in `/proc/net/unix`; an abstract name begins with `@`.
fn socket_paths(list: &[u8]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    // The first line names the columns.
    for line in lines_of(list).skip(1) {
        match socket_name(line) {
            Some([]) | Some([b'@', ..]) => {}
            Some(path @ [b'/', ..]) => paths.push(PathBuf::from(OsStr::from_bytes(path))),
            // A relative path, or the rest of a name with a line feed.
            Some(_) | None => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Ok(paths)
}

/// Returns the name in a line of a socket, which is empty for one without; `None` for any other line.
fn socket_name(line: &[u8]) -> Option<&[u8]> {
    // The number, and a colon.
    let begins = line
        .split(|byte| *byte == b':')
        .next()
        .is_some_and(|number| number.len() >= 8 && number.iter().all(u8::is_ascii_hexdigit));
    let mut rest = line;
    for field in 0..FIELDS {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        rest = rest.get(start..)?;
        match rest.iter().position(|byte| *byte == b' ') {
            Some(end) => rest = rest.get(end..)?,
            None if field + 1 == FIELDS => rest = &[],
            None => return None,
        }
    }
    // One blank precedes the name, which may begin with others.
    begins.then(|| rest.get(1..).unwrap_or_default())
}

/// Returns the mount point in a line of `/proc/self/mountinfo`, unless a whole file system is
/// mounted there.
fn mounted_file(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ').skip(MOUNT_ROOT);
    let root = fields.next()?;
    let mount_point = fields.next()?;
    (root != b"/").then(|| unescape_mount(mount_point))
}

/// Replaces the octal escapes that the kernel writes for blanks and backslashes in paths.
fn unescape_mount(mount_point: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(mount_point.len());
    let mut rest = mount_point;
    while let Some((first, behind)) = rest.split_first() {
        let digit = |byte: u8| {
            (b'0'..=b'7')
                .contains(&byte)
                .then(|| u32::from(byte - b'0'))
        };
        let escaped = match (first, behind) {
            (b'\\', [a, b, c, ..]) => match (digit(*a), digit(*b), digit(*c)) {
                (Some(a), Some(b), Some(c)) => u8::try_from(a * 64 + b * 8 + c).ok(),
                _ => None,
            },
            _ => None,
        };
        path.push(escaped.unwrap_or(*first));
        rest = match escaped {
            Some(_) => behind.get(3..).unwrap_or_default(),
            None => behind,
        };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_parsed_from_proc_net_unix() {
        let paths = |lines: &[u8]| {
            let header: &[u8] = b"Num       RefCount Protocol Flags    Type St Inode Path\n";
            socket_paths(&[header, lines].concat()).ok()
        };
        let listed =
            b"0000000000000000: 00000002 00000000 00010000 0001 01 18432 /srv/a b/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01   432 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 18433\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 18432 /srv/\xff.sock\n";
        let strange = PathBuf::from(OsStr::from_bytes(b"/srv/\xff.sock"));
        assert_eq!(
            paths(listed),
            Some(vec![PathBuf::from("/srv/a b/x.sock"), strange])
        );
        // Nobody knows where these are.
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 18432 ";
        for name in ["rel.sock", "/srv/a\nb.sock", " /srv/x", "/srv/a\n/srv/b"] {
            assert_eq!(
                paths(format!("{line}{name}\n").as_bytes()),
                None,
                "{name:?}"
            );
        }
    }

    #[test]
    fn mounted_files_are_parsed() {
        let line =
            b"36 35 98:0 /docker.sock /srv/a\\040b\xff rw,noatime master:1 - ext4 /dev/root rw";
        let mount_point = PathBuf::from(OsStr::from_bytes(b"/srv/a b\xff"));
        assert_eq!(mounted_file(line), Some(mount_point));
        let line = b"36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw";
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
