//! The simulated disk's state: what a process sees, what would survive a power cut, and how the two come apart.
//!
//! The model is the least that file systems promise. Bytes written since the last sync reach the platter in part, in any order
//! or not at all, and where only the length did, zeros stand. A sync that fails forgets some of them for good: a later sync
//! succeeds without them, though they are still to be read until the power goes. A name is safe once its folder was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::counters::EventCounters;
use crate::rng::SeededRng;

/// All files and folders.
#[derive(Debug, Default)]
pub(crate) struct DiskState {
    files: Vec<FileState>,
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    safe_folders: BTreeSet<PathBuf>,
}

#[derive(Debug, Default)]
struct FileState {
    /// What is read.
    seen: Vec<u8>,
    /// What survives.
    safe: Vec<u8>,
    /// What was written since the last sync.
    dirty: Vec<Range<usize>>,
    /// The shortest length since the last sync.
    shortened: Option<usize>,
    locked: bool,
}

impl DiskState {
    pub(crate) fn exists(&self, path: &Path) -> bool {
        path == Path::new("/") || self.folders.contains(path) || self.names.contains_key(path)
    }

    pub(crate) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        if self.folders.insert(path.to_path_buf()) { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    }

    pub(crate) fn sync_folder(&mut self, folder: &Path) {
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        self.safe_folders.extend(self.folders.iter().filter(|path| inside(path)).cloned());
        self.safe_names.retain(|path, _| !inside(path));
        self.safe_names
            .extend(self.names.iter().filter(|(path, _)| inside(path)).map(|(path, at)| (path.clone(), *at)));
    }

    pub(crate) fn create_file(&mut self, path: &Path) -> io::Result<usize> {
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.files.push(FileState::default());
        let file = self.files.len() - 1;
        self.names.insert(path.to_path_buf(), file);
        Ok(file)
    }

    pub(crate) fn open_file(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.names.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn is_named(&self, file: usize) -> bool {
        self.names.values().any(|named| *named == file)
    }

    /// True: the lock was free, and is taken.
    pub(crate) fn lock_file(&mut self, file: usize) -> bool {
        self.files.get_mut(file).is_some_and(|content| !std::mem::replace(&mut content.locked, true))
    }

    pub(crate) fn unlock_file(&mut self, file: usize) {
        if let Some(content) = self.files.get_mut(file) {
            content.locked = false;
        }
    }

    pub(crate) fn byte_length(&self, file: usize) -> usize {
        self.files.get(file).map_or(0, |content| content.seen.len())
    }

    pub(crate) fn read_bytes(&self, file: usize, buffer: &mut [u8], at: usize) -> usize {
        let rest = self.files.get(file).and_then(|content| content.seen.get(at..)).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        read
    }

    pub(crate) fn write_bytes(&mut self, file: usize, bytes: &[u8], at: usize) {
        if let Some(content) = self.files.get_mut(file) {
            overwrite_at(&mut content.seen, at, bytes);
            content.dirty.push(at..at + bytes.len());
        }
    }

    pub(crate) fn set_length(&mut self, file: usize, length: usize) {
        if let Some(content) = self.files.get_mut(file) {
            content.seen.resize(length, 0);
            content.shortened = Some(content.shortened.map_or(length, |before| before.min(length)));
        }
    }

    pub(crate) fn sync_file(&mut self, file: usize) {
        if let Some(content) = self.files.get_mut(file) {
            content.sync_content();
        }
    }

    /// A sync that fails: what was to be written is written, or forgotten.
    pub(crate) fn fail_sync(&mut self, file: usize, chance: &mut SeededRng, figures: &mut EventCounters) {
        if let Some(content) = self.files.get_mut(file) {
            let before = content.dirty.len();
            content.dirty.retain(|_| chance.below(2) == 0);
            figures.add_events("pages dropped", (before - content.dirty.len()) as u64);
        }
    }

    /// The process is gone: nothing is locked any more.
    pub(crate) fn release_locks(&mut self) {
        self.files.iter_mut().for_each(|content| content.locked = false);
    }

    /// The power is gone.
    pub(crate) fn cut_power(&mut self, chance: &mut SeededRng, figures: &mut EventCounters) {
        self.release_locks();
        self.names = self.safe_names.clone();
        self.folders = self.safe_folders.clone();
        for content in &mut self.files {
            content.lose_unsynced(chance, figures);
        }
    }
}

impl FileState {
    fn sync_content(&mut self) {
        if let Some(length) = self.shortened.take() {
            self.safe.truncate(length);
        }
        for range in std::mem::take(&mut self.dirty) {
            let range = range.start..range.end.min(self.seen.len());
            overwrite_at(&mut self.safe, range.start, self.seen.get(range.clone()).unwrap_or_default());
        }
        // The length is known by now, whatever became of the bytes.
        self.safe.resize(self.seen.len(), 0);
    }

    fn lose_unsynced(&mut self, chance: &mut SeededRng, figures: &mut EventCounters) {
        if let Some(length) = self.shortened.take().filter(|_| chance.below(2) == 0) {
            self.safe.truncate(length);
        }
        for range in std::mem::take(&mut self.dirty) {
            let range = range.start..range.end.min(self.seen.len());
            let bytes = self.seen.get(range.clone()).unwrap_or_default();
            match chance.below(6) {
                0 | 1 => figures.count_event("writes lost"),
                2 => overwrite_at(&mut self.safe, range.start, bytes),
                3 => {
                    figures.count_event("writes torn");
                    self.safe.resize(self.safe.len().max(range.end), 0);
                }
                4 => {
                    figures.count_event("writes torn");
                    let from = chance.index(bytes.len());
                    overwrite_at(&mut self.safe, range.start + from, bytes.get(from..).unwrap_or_default());
                }
                _ => {
                    figures.count_event("writes torn");
                    overwrite_at(
                        &mut self.safe,
                        range.start,
                        bytes.get(..chance.index(bytes.len())).unwrap_or_default(),
                    );
                }
            }
        }
        self.seen.clone_from(&self.safe);
    }
}

/// Writes over whatever is there, with zeros before it where there is a gap.
fn overwrite_at(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    if let Some(place) = content.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
