//! What the ignore files of a user hide, from the top of the workspace down to one folder.
//!
//! Each name of ignore file is judged by itself, nearer folders before those above, and within a file the last line that matches,
//! as git does; what is in a hidden folder cannot be shown again. A file that is there and cannot be read hides all of its
//! folder: not knowing what is hidden means that everything is. A link is followed inside the workspace. A line that is no glob
//! is left out, as git does.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::{OpenOptions, OpenOptionsExt};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Bounds, HiddenBy};
use crate::files::Workspace;

const MAX_FILE_BYTES: u64 = 1 << 20;
/// So many different texts are kept compiled.
const MAX_CACHED: usize = 256;

/// Texts of ignore files, compiled: they are read each time, and rarely another.
#[derive(Debug, Clone, Default)]
pub(crate) struct IgnoreFileCache(Arc<Mutex<HashMap<Vec<u8>, Arc<Gitignore>>>>);

/// The ignore files of one folder, and those of the folders above.
#[derive(Debug)]
pub(crate) struct HiddenRules {
    above: Option<Arc<HiddenRules>>,
    /// The folder, from the workspace folder.
    base: PathBuf,
    found: Vec<IgnoreFile>,
}

/// One ignore file.
#[derive(Debug)]
struct IgnoreFile {
    /// Which of the names it has.
    name: usize,
    /// Its lines, if they can be read.
    list: Option<Arc<Gitignore>>,
}

impl IgnoreFileCache {
    fn get_or_compile(&self, text: Vec<u8>) -> Arc<Gitignore> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = kept.get(&text) {
            return Arc::clone(list);
        }
        let list = Arc::new(compile_ignore_file(&text));
        if kept.len() >= MAX_CACHED {
            kept.clear();
        }
        kept.insert(text, Arc::clone(&list));
        list
    }
}

impl Bounds {
    /// Who hides an entry of a folder that is not hidden itself.
    pub(crate) fn hidden_by(
        &self,
        root: &Path,
        hiding: Option<&HiddenRules>,
        path: &Path,
        is_folder: bool,
    ) -> Option<HiddenBy> {
        if self.hidden.matches_path(root, path) {
            return Some(HiddenBy::Rule);
        }
        // As with git, ignore files say nothing of what git keeps: `main` may be a branch as well.
        if hiding.is_none() || is_in_repository(path) {
            return None;
        }
        // They say what is hidden, which is no secret; and a `*` would hide them.
        if path.file_name().is_some_and(|name| self.is_ignore_file(name.as_encoded_bytes())) && !is_folder {
            return None;
        }
        let mut names = self.ignore_files.iter().enumerate();
        names.find_map(|(index, name)| {
            HiddenRules::decide_hidden(hiding, index, path, is_folder).map(|by| by(name.clone()))
        })
    }
}

impl HiddenRules {
    /// What the files of one name say, the nearest that says something.
    fn decide_hidden(
        nearest: Option<&Self>,
        name: usize,
        path: &Path,
        is_folder: bool,
    ) -> Option<fn(String) -> HiddenBy> {
        let mut one = nearest;
        while let Some(folder) = one {
            one = folder.above.as_deref();
            let Ok(below) = path.strip_prefix(&folder.base) else { continue };
            for found in folder.found.iter().filter(|found| found.name == name) {
                let Some(list) = &found.list else { return Some(HiddenBy::Unreadable) };
                match list.matched(below, is_folder) {
                    Match::Ignore(_) => return Some(HiddenBy::File),
                    Match::Whitelist(_) => return None,
                    Match::None => {}
                }
            }
        }
        None
    }
}

impl Workspace {
    /// The ignore files that hold within a folder, which is read through its handle: those above it, and its own.
    pub(crate) fn hidden_rules_in(
        &self,
        above: Option<Arc<HiddenRules>>,
        folder: BorrowedFd<'_>,
        base: &Path,
    ) -> Option<Arc<HiddenRules>> {
        let bounds = self.bounds();
        let names = bounds.ignore_files.iter().enumerate();
        let list = |(name, file): (usize, &String)| {
            let list = self.read_ignore_file(folder, base, file)?;
            Some(IgnoreFile { name, list: list.ok().map(|text| bounds.lists.get_or_compile(text)) })
        };
        let found: Vec<IgnoreFile> = names.filter_map(list).collect();
        if found.is_empty() { above } else { Some(Arc::new(HiddenRules { above, base: base.to_path_buf(), found })) }
    }

    /// The text of an ignore file; `None` where there is none.
    fn read_ignore_file(&self, folder: BorrowedFd<'_>, base: &Path, name: &str) -> Option<io::Result<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) => return None,
            // A link: where it leads inside of the workspace.
            Err(Errno::LOOP) => {
                let mut options = OpenOptions::new();
                options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
                self.dir().open_with(base.join(name), &options).map(cap_std::fs::File::into_std)
            }
            opened => opened.map(File::from).map_err(io::Error::from),
        };
        Some(opened.and_then(read_text))
    }
}

/// Whether a path lies below a `.git`.
fn is_in_repository(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.iter().any(|name| name == ".git"))
}

fn read_text(file: File) -> io::Result<Vec<u8>> {
    let regular = file.metadata()?.is_file();
    let mut text = Vec::new();
    if !regular || file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)? as u64 > MAX_FILE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(text)
}

fn compile_ignore_file(bytes: &[u8]) -> Gitignore {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let mut builder = GitignoreBuilder::new("");
    for line in text.lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
