//! Caches the stamps of files with their content ids, so that a file with an unchanged stamp is not
//! read again.
//!
//! A file that was changed within two seconds before it was read is not cached: on file systems
//! with coarse times it can change again and look the same. (Git calls such entries "racily
//! clean".)

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use super::encoding::{ByteReader, ByteWriter};
use super::object::ObjectId;

/// The first bytes of the cache file; another version is discarded like a damaged file.
const HEAD: &[u8; 8] = b"SABIRST1";
/// The time, in milliseconds, for which a file must have been unchanged before it is cached.
const STABLE_AFTER_MS: i128 = 2000;

/// The metadata that shows whether a file changed.
/// Times are nanoseconds since 1970. The change time (ctime) is included, because a program can set
/// the modification time back but not the change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    size: u64,
    inode: u64,
    modified: i128,
    changed: i128,
}

/// A cached file.
#[derive(Debug, Clone)]
pub(super) struct StampEntry {
    pub(super) name: PathBuf,
    pub(super) stamp: FileStamp,
    pub(super) content: ObjectId,
}

/// The cached files of a workspace, by folder, sorted by name.
#[derive(Debug, Default)]
pub(super) struct StampCache {
    pub(super) folders: HashMap<PathBuf, Vec<StampEntry>>,
    /// The number of files read since the cache was last written.
    pub(super) fresh: usize,
}

impl FileStamp {
    /// Takes the stamp from what the system reports about a file.
    pub(super) fn from_stat(found: &Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: i128| i128::from(seconds) * 1_000_000_000 + rest;
        Self {
            size: found.st_size.cast_unsigned(),
            inode: found.st_ino,
            modified: nanoseconds(found.st_mtime, i128::from(found.st_mtime_nsec)),
            changed: nanoseconds(found.st_ctime, i128::from(found.st_ctime_nsec)),
        }
    }

    /// Returns true if the file was last changed long enough before `now_ms`.
    pub(super) fn is_stable(&self, now_ms: u64) -> bool {
        self.modified.max(self.changed) / 1_000_000 + STABLE_AFTER_MS < i128::from(now_ms)
    }

    /// Returns a hash of size, inode and modification time, which changes with the file. The change time is excluded: a new mode or link
    /// count changes it, and omitted content is compared by this number alone.
    pub(super) fn to_number(self) -> u64 {
        let mut out = ByteWriter::default();
        out.write_u64(self.size);
        out.write_u64(self.inode);
        out.0.extend_from_slice(&self.modified.to_le_bytes());
        let id = ObjectId::hash_of(&out.0);
        id.as_bytes()
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl StampCache {
    /// Returns the content id of a file if its stamp is unchanged.
    pub(super) fn find_content(
        &self,
        folder: &Path,
        name: &Path,
        stamp: FileStamp,
    ) -> Option<ObjectId> {
        let known = self.folders.get(folder)?;
        let at = known
            .binary_search_by(|known| known.name.as_os_str().cmp(name.as_os_str()))
            .ok()?;
        known
            .get(at)
            .filter(|known| known.stamp == stamp)
            .map(|known| known.content)
    }

    /// Returns the number of cached files.
    pub(super) fn file_count(&self) -> usize {
        self.folders.values().map(Vec::len).sum()
    }

    /// Loads the cache; a missing or damaged file gives an empty cache, which costs only time.
    pub(super) fn load_from(path: &Path) -> Self {
        std::fs::read(path)
            .ok()
            .and_then(|bytes| Self::decode(&bytes))
            .unwrap_or_default()
    }

    /// Writes the cache to a temporary file and renames it, so that readers never see a part of it.
    pub(super) fn save_to(&mut self, path: &Path) -> io::Result<()> {
        let bytes = self.encode();
        let temp = path.with_extension("tmp");
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temp)?;
        // Not synced: a damaged cache fails its checksum and is rebuilt.
        let written = file
            .write_all(&bytes)
            .and_then(|()| std::fs::rename(&temp, path));
        if written.is_err() {
            _ = std::fs::remove_file(&temp);
        }
        self.fresh = 0;
        written
    }

    /// Encodes the cache: head, CRC-32 of the rest, then each folder with its files.
    fn encode(&self) -> Vec<u8> {
        let mut out = ByteWriter::default();
        for (folder, files) in &self.folders {
            out.write_path(folder);
            out.write_u32(u32::try_from(files.len()).unwrap_or(u32::MAX));
            for file in files {
                out.write_path(&file.name);
                out.write_u64(file.stamp.size);
                out.write_u64(file.stamp.inode);
                out.0.extend_from_slice(&file.stamp.modified.to_le_bytes());
                out.0.extend_from_slice(&file.stamp.changed.to_le_bytes());
                out.write_id(file.content);
            }
        }
        let mut whole = ByteWriter(HEAD.to_vec());
        whole.write_u32(crc32fast::hash(&out.0));
        whole.0.extend_from_slice(&out.0);
        whole.0
    }

    /// Decodes a cache file; `None` if it is damaged or has another version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(HEAD)?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        if crc32fast::hash(rest) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut from = ByteReader::new(rest);
        let mut stamps = Self::default();
        while !from.is_empty() {
            let folder = from.read_path()?;
            let count = from.read_u32()?;
            let mut files = Vec::new();
            for _ in 0..count {
                let name = from.read_path()?;
                let size = from.read_u64()?;
                let inode = from.read_u64()?;
                let modified = i128::from_le_bytes(from.take_bytes(16)?.try_into().ok()?);
                let changed = i128::from_le_bytes(from.take_bytes(16)?.try_into().ok()?);
                files.push(StampEntry {
                    name,
                    stamp: FileStamp {
                        size,
                        inode,
                        modified,
                        changed,
                    },
                    content: from.read_id()?,
                });
            }
            stamps.folders.insert(folder, files);
        }
        Some(stamps)
    }
}
