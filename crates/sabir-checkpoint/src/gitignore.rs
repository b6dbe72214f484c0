//! Applies the ignore files of the workspace by git's rules, reading them through the folder's
//! handle.
//!
//! Ignoring affects only the limits: an ignored folder is kept as long as it is small.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

/// The size in bytes above which an ignore file is not read.
const MAX_BYTES: u64 = 1 << 20;

/// The ignore rules of a folder, linked to those of the folders above, up to the next repository.
pub(super) struct GitignoreChain<'a> {
    own: Option<Gitignore>,
    above: Option<&'a GitignoreChain<'a>>,
}

impl<'a> GitignoreChain<'a> {
    /// Loads the rules of a folder. A folder with a `.git` is a repository, so the rules of outer folders end there.
    pub(super) fn load_folder(
        folder: BorrowedFd<'_>,
        path: &Path,
        names: &[PathBuf],
        above: Option<&'a Self>,
    ) -> Self {
        let has = |name: &str| names.iter().any(|known| known == Path::new(name));
        let repository = has(".git");
        let texts = [
            (repository, ".git/info/exclude"),
            (has(".gitignore"), ".gitignore"),
        ];
        let mut builder = GitignoreBuilder::new(to_absolute(path));
        let mut some = false;
        for text in texts
            .iter()
            .filter(|(there, _)| *there)
            .filter_map(|(_, name)| read_ignore_file(folder, name))
        {
            for line in text.lines() {
                // An invalid pattern is skipped, as git does.
                some |= builder.add_line(None, line).is_ok();
            }
        }
        let own = if some {
            builder.build().ok().filter(|rules| !rules.is_empty())
        } else {
            None
        };
        Self {
            own,
            above: above.filter(|_| !repository),
        }
    }

    /// Returns true if a folder inside this one is ignored; the nearest matching rule decides.
    pub(super) fn ignores_folder(&self, path: &Path) -> bool {
        let place = to_absolute(path);
        let mut rules = Some(self);
        while let Some(here) = rules {
            match here.own.as_ref().map(|own| own.matched(&place, true)) {
                Some(found) if found.is_ignore() => return true,
                Some(found) if found.is_whitelist() => return false,
                _ => rules = here.above,
            }
        }
        false
    }
}

/// Makes a path absolute, as the matcher requires; the root itself does not matter.
fn to_absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// Reads an ignore file below a folder, part by part; `None` if it is missing, too large, or not a
/// regular file. Bytes that are not UTF-8 are replaced, so a pattern with such bytes matches
/// nothing.
fn read_ignore_file(folder: BorrowedFd<'_>, name: &str) -> Option<String> {
    // No link is followed and no FIFO can block the scan, as everywhere in snapshots.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut folder =
        rustix::fs::openat(folder, ".", flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let mut parts = Path::new(name).iter().peekable();
    while let Some(part) = parts.next() {
        let kind = if parts.peek().is_some() {
            OFlags::DIRECTORY
        } else {
            OFlags::empty()
        };
        folder = rustix::fs::openat(&folder, part, flags | kind, Mode::empty()).ok()?;
    }
    let file = File::from(folder);
    if !file
        .metadata()
        .is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES)
    {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
