//! What the ignore files of the workspace name: git's own rules, read beneath the folder's handle.
//!
//! Ignoring decides nothing but the caps: an ignored folder is kept as long as it is small.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

/// An ignore file larger than this names nothing.
const MAX_BYTES: u64 = 1 << 20;

/// The rules of a folder and of those above it, up to the next repository.
pub(super) struct GitignoreChain<'a> {
    own: Option<Gitignore>,
    above: Option<&'a GitignoreChain<'a>>,
}

impl<'a> GitignoreChain<'a> {
    /// The rules within a folder. A folder with a `.git` is a repository: rules from above end there.
    pub(super) fn load_folder(folder: BorrowedFd<'_>, path: &Path, names: &[PathBuf], above: Option<&'a Self>) -> Self {
        let has = |name: &str| names.iter().any(|known| known == Path::new(name));
        let repository = has(".git");
        let texts = [(repository, ".git/info/exclude"), (has(".gitignore"), ".gitignore")];
        let mut builder = GitignoreBuilder::new(to_absolute(path));
        let mut some = false;
        for text in texts.iter().filter(|(there, _)| *there).filter_map(|(_, name)| read_ignore_file(folder, name)) {
            for line in text.lines() {
                // A line that is no pattern names nothing, as with git.
                some |= builder.add_line(None, line).is_ok();
            }
        }
        let own = if some { builder.build().ok().filter(|rules| !rules.is_empty()) } else { None };
        Self { own, above: above.filter(|_| !repository) }
    }

    /// Whether a folder right here is ignored; the nearest rule decides.
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

/// The matcher wants paths with a root; which one does not matter.
fn to_absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

fn read_ignore_file(folder: BorrowedFd<'_>, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::openat(folder, ".", flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let mut parts = Path::new(name).iter().peekable();
    while let Some(part) = parts.next() {
        let kind = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        folder = rustix::fs::openat(&folder, part, flags | kind, Mode::empty()).ok()?;
    }
    let file = File::from(folder);
    if !file.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
