//! Evaluates the ignore files that hide paths, from the top of the workspace down to one folder.
//!
//! Each ignore file name is checked on its own. Nearer folders win over those above, and within a
//! file the last matching line wins, as in git; nothing inside a hidden folder can be shown again.
//! An ignore file that exists but cannot be read hides its whole folder, because what it hides is
//! unknown. A link to an ignore file is followed inside the workspace. Invalid lines are skipped,
//! as in git.

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
/// The number of different texts that are cached.
const MAX_CACHED: usize = 256;

/// A cache of compiled ignore files by their text: they are read each time, but rarely change.
#[derive(Debug, Clone, Default)]
pub(crate) struct IgnoreFileCache(Arc<Mutex<HashMap<Vec<u8>, Arc<Gitignore>>>>);

/// The ignore files of one folder, linked to those of the folders above.
#[derive(Debug)]
pub(crate) struct HiddenRules {
    above: Option<Arc<HiddenRules>>,
    /// The folder, relative to the workspace folder.
    base: PathBuf,
    found: Vec<IgnoreFile>,
}

/// An ignore file.
#[derive(Debug)]
struct IgnoreFile {
    /// The index of its name in `Bounds::ignore_files`.
    name: usize,
    /// The compiled lines; `None` if the file cannot be read.
    list: Option<Arc<Gitignore>>,
}

impl IgnoreFileCache {
    fn get_or_compile(&self, text: Vec<u8>) -> Arc<Gitignore> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = kept.get(&text) {
            return Arc::clone(list);
        }
        let list = Arc::new(compile_ignore_file(&text));
        // Clearing everything is crude but bounded, and the texts of one workspace rarely reach the
        // limit.
        if kept.len() >= MAX_CACHED {
            kept.clear();
        }
        kept.insert(text, Arc::clone(&list));
        list
    }
}

impl Bounds {
    /// Returns the source that hides an entry of a visible folder, if any.
    pub(crate) fn hidden_by(
        &self,
        root: &Path,
        hidden_rules: Option<&HiddenRules>,
        path: &Path,
        is_folder: bool,
    ) -> Option<HiddenBy> {
        if self.hidden.matches_path(root, path) {
            return Some(HiddenBy::Rule);
        }
        // As in git, ignore files do not apply inside `.git`: `main` may be the name of a branch
        // there.
        if hidden_rules.is_none() || is_in_repository(path) {
            return None;
        }
        // Ignore files stay visible: they hold no secret, and a `*` would hide them.
        if path
            .file_name()
            .is_some_and(|name| self.is_ignore_file(name.as_encoded_bytes()))
            && !is_folder
        {
            return None;
        }
        let mut names = self.ignore_files.iter().enumerate();
        names.find_map(|(index, name)| {
            HiddenRules::decide_hidden(hidden_rules, index, path, is_folder)
                .map(|by| by(name.clone()))
        })
    }
}

impl HiddenRules {
    /// Returns the verdict of the nearest ignore file of one name that matches the path.
    fn decide_hidden(
        nearest: Option<&Self>,
        name: usize,
        path: &Path,
        is_folder: bool,
    ) -> Option<fn(String) -> HiddenBy> {
        let mut one = nearest;
        while let Some(folder) = one {
            one = folder.above.as_deref();
            let Ok(below) = path.strip_prefix(&folder.base) else {
                continue;
            };
            for found in folder.found.iter().filter(|found| found.name == name) {
                // Fail closed: an unreadable ignore file might hide this very path.
                let Some(list) = &found.list else {
                    return Some(HiddenBy::Unreadable);
                };
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
    /// Returns the ignore rules that apply in a folder: those above it, and its own, which are read
    /// through its handle.
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
            Some(IgnoreFile {
                name,
                list: list.ok().map(|text| bounds.lists.get_or_compile(text)),
            })
        };
        let found: Vec<IgnoreFile> = names.filter_map(list).collect();
        if found.is_empty() {
            above
        } else {
            Some(Arc::new(HiddenRules {
                above,
                base: base.to_path_buf(),
                found,
            }))
        }
    }

    /// Reads an ignore file; `None` if there is none.
    fn read_ignore_file(
        &self,
        folder: BorrowedFd<'_>,
        base: &Path,
        name: &str,
    ) -> Option<io::Result<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty())
        {
            Err(Errno::NOENT) => return None,
            // The name is a link, which is followed inside the workspace.
            Err(Errno::LOOP) => {
                let mut options = OpenOptions::new();
                options
                    .read(true)
                    .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
                self.dir()
                    .open_with(base.join(name), &options)
                    .map(cap_std::fs::File::into_std)
            }
            opened => opened.map(File::from).map_err(io::Error::from),
        };
        Some(opened.and_then(read_text))
    }
}

/// Returns true if a path lies below a `.git`.
fn is_in_repository(path: &Path) -> bool {
    path.parent()
        .is_some_and(|folder| folder.iter().any(|name| name == ".git"))
}

fn read_text(file: File) -> io::Result<Vec<u8>> {
    let regular = file.metadata()?.is_file();
    let mut text = Vec::new();
    // Reading one byte over the limit tells a longer file from one of exactly that size.
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
