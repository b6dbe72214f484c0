//! The state of the simulated disk: the content that processes see, and the content that survives a power cut.
//!
//! It models only the guarantees that every file system gives. Bytes that were written since the last sync reach the disk in part, in
//! any order or not at all; if only the new length reached it, the bytes are zeros. A failed sync forgets some of them for good: a
//! later sync succeeds without them, although they can still be read until the power is cut. A name survives once its folder was
//! synced.
//!
//! A real disk often keeps more than that. The model never relies on it, so a journal that survives here
//! does not depend on the habits of one file system.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::counters::EventCounters;
use crate::rng::SeededRng;

/// All files and folders. The `safe_` fields survive a power cut.
#[derive(Debug, Default)]
pub(crate) struct DiskState {
    /// The content of all files. A file is its index here, which is never used again.
    files: Vec<FileState>,
    /// The files by their path, as processes see them.
    names: BTreeMap<PathBuf, usize>,
    /// The names whose folder was synced since.
    safe_names: BTreeMap<PathBuf, usize>,
    /// The folders, as processes see them. The root is not in it, and always exists.
    folders: BTreeSet<PathBuf>,
    /// The folders whose parent was synced since.
    safe_folders: BTreeSet<PathBuf>,
}

/// The content of one file.
#[derive(Debug, Default)]
struct FileState {
    /// The bytes that processes read.
    seen: Vec<u8>,
    /// The bytes that survive a power cut.
    safe: Vec<u8>,
    /// The ranges that were written since the last sync.
    dirty: Vec<Range<usize>>,
    /// The shortest length since the last sync.
    shortened: Option<usize>,
    /// True while a process holds the lock, which a kill releases.
    locked: bool,
}

impl DiskState {
    /// Returns true if there is a file or a folder with this path.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        path == Path::new("/") || self.folders.contains(path) || self.names.contains_key(path)
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// When it exists.
    pub(crate) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        if self.folders.insert(path.to_path_buf()) {
            Ok(())
        } else {
            Err(io::ErrorKind::AlreadyExists.into())
        }
    }

    /// Makes the names in a folder durable: after a power cut, new ones exist and removed ones do
    /// not.
    pub(crate) fn sync_folder(&mut self, folder: &Path) {
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        self.safe_folders
            .extend(self.folders.iter().filter(|path| inside(path)).cloned());
        // Replaced as a whole, so that a removal becomes safe as well.
        self.safe_names.retain(|path, _| !inside(path));
        self.safe_names.extend(
            self.names
                .iter()
                .filter(|(path, _)| inside(path))
                .map(|(path, at)| (path.clone(), *at)),
        );
    }

    /// Creates an empty file and returns its index.
    ///
    /// # Errors
    /// When the name is taken.
    pub(crate) fn create_file(&mut self, path: &Path) -> io::Result<usize> {
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.files.push(FileState::default());
        let file = self.files.len() - 1;
        self.names.insert(path.to_path_buf(), file);
        Ok(file)
    }

    /// Returns the index of a file.
    ///
    /// # Errors
    /// When there is no such file.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Removes a name. The content stays for handles that are open.
    ///
    /// # Errors
    /// When there is no such file.
    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.names
            .remove(path)
            .map(|_| ())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns true if a file still has a name. Data written to a file without a name is lost.
    pub(crate) fn is_named(&self, file: usize) -> bool {
        self.names.values().any(|named| *named == file)
    }

    pub(crate) fn is_file_at(&self, file: usize, path: &Path) -> bool {
        self.names.get(path) == Some(&file)
    }

    /// Takes the lock of a file. Returns false if it was taken already.
    pub(crate) fn lock_file(&mut self, file: usize) -> bool {
        self.files
            .get_mut(file)
            .is_some_and(|content| !std::mem::replace(&mut content.locked, true))
    }

    /// Releases the lock of a file.
    pub(crate) fn unlock_file(&mut self, file: usize) {
        if let Some(content) = self.files.get_mut(file) {
            content.locked = false;
        }
    }

    /// Returns the length of a file in bytes.
    pub(crate) fn byte_length(&self, file: usize) -> usize {
        self.files.get(file).map_or(0, |content| content.seen.len())
    }

    /// Reads into a buffer from an offset, and returns the number of bytes; 0 at the end of the
    /// file.
    pub(crate) fn read_bytes(&self, file: usize, buffer: &mut [u8], at: usize) -> usize {
        let rest = self
            .files
            .get(file)
            .and_then(|content| content.seen.get(at..))
            .unwrap_or_default();
        let read = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        read
    }

    /// Writes bytes at an offset. They are read at once, and safe after the next sync.
    pub(crate) fn write_bytes(&mut self, file: usize, bytes: &[u8], at: usize) {
        if let Some(content) = self.files.get_mut(file) {
            overwrite_at(&mut content.seen, at, bytes);
            content.dirty.push(at..at + bytes.len());
        }
    }

    /// Cuts a file, or fills it with zeros up to the length.
    pub(crate) fn set_length(&mut self, file: usize, length: usize) {
        if let Some(content) = self.files.get_mut(file) {
            content.seen.resize(length, 0);
            content.shortened = Some(
                content
                    .shortened
                    .map_or(length, |before| before.min(length)),
            );
        }
    }

    /// Makes the content of a file safe.
    pub(crate) fn sync_file(&mut self, file: usize) {
        if let Some(content) = self.files.get_mut(file) {
            content.sync_content();
        }
    }

    /// Fails a sync: forgets about half of the unsynced ranges, as Linux does with pages that could not be written.
    pub(crate) fn fail_sync(
        &mut self,
        file: usize,
        rng: &mut SeededRng,
        counters: &mut EventCounters,
    ) {
        if let Some(content) = self.files.get_mut(file) {
            let before = content.dirty.len();
            content.dirty.retain(|_| rng.below(2) == 0);
            counters.add_events("pages dropped", (before - content.dirty.len()) as u64);
        }
    }

    /// Releases all locks, because the process is gone.
    pub(crate) fn release_locks(&mut self) {
        self.files
            .iter_mut()
            .for_each(|content| content.locked = false);
    }

    /// Cuts the power: only the safe content is left, with a random part of the unsynced writes.
    pub(crate) fn cut_power(&mut self, rng: &mut SeededRng, counters: &mut EventCounters) {
        self.release_locks();
        // A name that was never synced is gone, with everything that was synced into its file.
        self.names = self.safe_names.clone();
        self.folders = self.safe_folders.clone();
        for content in &mut self.files {
            content.lose_unsynced(rng, counters);
        }
    }
}

impl FileState {
    /// Makes the current content safe, except for ranges that a failed sync has forgotten.
    fn sync_content(&mut self) {
        // First the cut, then the writes: a write beyond the new end must not be cut off again.
        if let Some(length) = self.shortened.take() {
            self.safe.truncate(length);
        }
        for range in std::mem::take(&mut self.dirty) {
            let range = range.start..range.end.min(self.seen.len());
            overwrite_at(
                &mut self.safe,
                range.start,
                self.seen.get(range.clone()).unwrap_or_default(),
            );
        }
        // The sync writes the length even if a failed sync has forgotten some of the bytes.
        self.safe.resize(self.seen.len(), 0);
    }

    /// Drops, keeps or tears each unsynced write.
    fn lose_unsynced(&mut self, rng: &mut SeededRng, counters: &mut EventCounters) {
        // The new length may have reached the disk without the bytes, or the other way round.
        if let Some(length) = self.shortened.take().filter(|_| rng.below(2) == 0) {
            self.safe.truncate(length);
        }
        for range in std::mem::take(&mut self.dirty) {
            let range = range.start..range.end.min(self.seen.len());
            let bytes = self.seen.get(range.clone()).unwrap_or_default();
            match rng.below(6) {
                0 | 1 => counters.count_event("writes lost"),
                2 => overwrite_at(&mut self.safe, range.start, bytes),
                // Only the new length reached the disk: the bytes are zeros.
                3 => {
                    counters.count_event("writes torn");
                    self.safe.resize(self.safe.len().max(range.end), 0);
                }
                // The end of the write reached the disk without its beginning.
                4 => {
                    counters.count_event("writes torn");
                    let from = rng.index(bytes.len());
                    overwrite_at(
                        &mut self.safe,
                        range.start + from,
                        bytes.get(from..).unwrap_or_default(),
                    );
                }
                // The beginning of the write reached the disk, as after a crash inside of it.
                _ => {
                    counters.count_event("writes torn");
                    overwrite_at(
                        &mut self.safe,
                        range.start,
                        bytes.get(..rng.index(bytes.len())).unwrap_or_default(),
                    );
                }
            }
        }
        // The next process reads what the disk has.
        self.seen.clone_from(&self.safe);
    }
}

/// Writes bytes at an offset, and fills a gap before it with zeros.
fn overwrite_at(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    if let Some(place) = content.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
