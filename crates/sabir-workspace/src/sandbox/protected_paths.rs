//! Passes the protected paths of the workspace to the process that mounts the sandbox.
//!
//! Finding them and placing masks takes about as long as to mount over them, so the supervisor does the former while the launcher does the
//! latter: it sends the paths in parts, through a pipe. At the end it captures their state, and confirms that all is done. Nothing of the
//! command runs before.

#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::io::{self, PipeWriter, Write as _};
#[cfg(target_os = "linux")]
use std::io::{PipeReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The length that confirms that there are no more paths. Those of a part are never empty.
const CONFIRMED: u32 = 0;
/// The word behind the last path.
const END: &[u8] = b"end";

/// The protected paths at the top of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProtectedPaths {
    /// Folders that contain protected paths and stay writable, but cannot be renamed.
    pub(crate) pinned: Vec<PathBuf>,
    pub(crate) existing: Vec<PathBuf>,
    /// Missing protected paths, each of which has a mask while the command runs.
    pub(crate) missing: Vec<PathBuf>,
    /// Folders inside existing protected ones that can be written nevertheless.
    pub(crate) reopened: Vec<PathBuf>,
}

impl ProtectedPaths {
    /// Sends the paths to the launcher, behind their length.
    pub(super) fn send(&self, pipe: &mut PipeWriter) -> io::Result<()> {
        let paths = self.encode();
        let length = u32::try_from(paths.len()).map_err(io::Error::other)?;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(paths);
        pipe.write_all(&bytes)
    }

    /// Tells the launcher that it has all paths, and that their state is captured.
    pub(super) fn confirm(mut pipe: PipeWriter) -> io::Result<()> {
        pipe.write_all(&CONFIRMED.to_ne_bytes())
    }

    /// Waits for the next part of the paths; `None` if that was all. Fails if the supervisor has ended, or could not protect everything.
    #[cfg(target_os = "linux")]
    pub(super) fn receive(pipe: &mut PipeReader) -> io::Result<Option<Self>> {
        let mut length = [0; size_of::<u32>()];
        pipe.read_exact(&mut length)?;
        let length = u32::from_ne_bytes(length);
        if length == CONFIRMED {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        pipe.read_exact(&mut bytes)?;
        let paths =
            Self::decode(&bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EPIPE))?;
        Ok(Some(paths))
    }

    /// Writes a kind and a path for each, and the end, all of them ended by NUL bytes, which no path can hold.
    fn encode(&self) -> Vec<u8> {
        let lists = [
            ("pin", &self.pinned),
            ("guard", &self.existing),
            ("mask", &self.missing),
            ("open", &self.reopened),
        ];
        let mut bytes = Vec::new();
        for (kind, list) in lists {
            for path in list {
                bytes.extend_from_slice(kind.as_bytes());
                bytes.push(0);
                bytes.extend_from_slice(path.as_os_str().as_bytes());
                bytes.push(0);
            }
        }
        // The pipe also closes if the supervisor dies while it sends. Without this end mark, a
        // partial list would be accepted as complete, and the other paths would stay writable.
        bytes.extend_from_slice(END);
        bytes.push(0);
        bytes
    }

    #[cfg(target_os = "linux")]
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let mut paths = Self::default();
        loop {
            let kind = words.next()?;
            if kind == END {
                return words.next().is_none().then_some(paths);
            }
            let list = match kind {
                b"pin" => &mut paths.pinned,
                b"guard" => &mut paths.existing,
                b"mask" => &mut paths.missing,
                b"open" => &mut paths.reopened,
                _ => return None,
            };
            list.push(OsStr::from_bytes(words.next()?).into());
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn paths_decode_from_their_bytes_and_from_no_part_of_them() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let all = ProtectedPaths {
            pinned: paths(&["/w/.git"]),
            existing: paths(&["/w/.git/hooks", "/w/end"]),
            missing: vec![OsStr::from_bytes(b"/w/\xff\n").into(), "/w/.idea".into()],
            reopened: paths(&["/w/.git/modules/a"]),
        };
        for paths in [all, ProtectedPaths::default()] {
            let bytes = paths.encode();
            for length in 0..bytes.len() {
                assert_eq!(ProtectedPaths::decode(&bytes[..length]), None, "{length}");
            }
            assert_eq!(ProtectedPaths::decode(&bytes), Some(paths));
        }
        assert_eq!(ProtectedPaths::decode(b"end\0end\0"), None);
        assert_eq!(ProtectedPaths::decode(b"other\0/w\0end\0"), None);
    }
}
