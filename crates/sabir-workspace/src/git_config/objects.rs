//! Reads the object store of a repository: loose objects, packs, and the stores that it borrows from.
//!
//! Only the data that gives the names of files is read: trees, and the kind of an object. Every
//! object of the store counts, whether a branch leads to it or not, because git shows any object
//! whose id is given to it. If something is missing or malformed, the whole store is refused, since
//! its names are not known then.
//!
//! In a pack most trees are deltas to other trees. Each chain of deltas is walked from its base, so that every object is
//! made once, and only one chain is in memory.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use sha2::{Digest, Sha256};

use super::GitConfigError;
use super::plain_file::{is_absent, read_plain_file};

/// The greatest size of an index of a pack: that of some five million objects.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// The greatest size of one tree, and of a loose object that may be one.
const MAX_TREE_BYTES: usize = 64 << 20;
/// The bytes of trees that are made before a store counts as too large. A second or two.
const MAX_TOTAL_BYTES: u64 = 2 << 30;
/// The most loose objects that are opened; git packs them from some thousand on.
const MAX_LOOSE: usize = 100_000;
/// The most stores that are followed from `objects/info/alternates`.
const MAX_STORES: usize = 16;
/// The longest chain of deltas. Git writes at most 4,095.
const MAX_CHAIN: usize = 10_000;
/// The longest header of an object in a pack: its size, and the id or the distance of its base.
const HEADER_BYTES: usize = 48;

/// An object id, padded with zeros where ids have 20 bytes.
pub(super) type ObjectId = [u8; 32];

/// A function that gets the id and the content of a tree.
pub(super) type TreeVisitor<'a> = dyn FnMut(&ObjectId, &[u8]) -> Result<(), GitConfigError> + 'a;

/// The object store of a repository, with those that it borrows from.
#[derive(Debug)]
pub(super) struct ObjectStore {
    folders: Vec<PathBuf>,
    pub(super) hash_bytes: usize,
}

/// The kind of an object in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PackedKind {
    Commit,
    Tree,
    Blob,
    Tag,
    /// A delta to the object with this position in the pack.
    Delta(usize),
}

/// An object in a pack, in the order of offsets.
#[derive(Debug, Clone, Copy)]
struct PackedObject {
    id: ObjectId,
    kind: PackedKind,
    offset: u64,
    /// The offset of the compressed bytes.
    data_at: u64,
    /// The end of the compressed bytes.
    end: u64,
    /// The length of the bytes when they are not compressed.
    size: usize,
}

/// A pack with its index.
struct Pack {
    file: File,
    path: PathBuf,
    /// The end of the last object.
    end: u64,
    hash_bytes: usize,
    /// The objects in the order of their offsets.
    entries: Vec<PackEntry>,
    /// The positions of the objects by id, for deltas that name their base so.
    by_id: OnceCell<HashMap<ObjectId, usize>>,
}

/// The rest of the work that a walk over trees may do.
struct WorkBudget(u64);

impl WorkBudget {
    fn take(&mut self, bytes: usize) -> Result<(), GitConfigError> {
        self.0 = self
            .0
            .checked_sub(bytes as u64)
            .ok_or(GitConfigError::TooMuch)?;
        Ok(())
    }
}

impl ObjectStore {
    /// Opens the object store of a git folder.
    pub(super) fn open(common: &Path, hash_bytes: usize) -> Result<Self, GitConfigError> {
        let mut folders = vec![common.join("objects")];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            at += 1;
            let list = folder.join("info/alternates");
            let Some(text) = read_plain_file(&list, 64 << 10)? else {
                continue;
            };
            let text = String::from_utf8(text).map_err(|_| GitConfigError::File(list.clone()))?;
            for line in text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
            {
                // Git reads quoted paths, too.
                if line.starts_with('"') || folders.len() >= MAX_STORES {
                    return Err(GitConfigError::File(list));
                }
                let more = folder.join(line);
                if !folders.contains(&more) {
                    folders.push(more);
                }
            }
        }
        Ok(Self {
            folders,
            hash_bytes,
        })
    }

    /// Returns a digest of the names, sizes and times of all files of the store. Git never changes a file of it, so the same
    /// digest means the same objects.
    pub(super) fn digest(&self) -> Result<[u8; 32], GitConfigError> {
        let mut digest = Sha256::new();
        for folder in &self.folders {
            digest.update(folder.as_os_str().as_encoded_bytes());
            let mut loose = self.loose_objects(folder)?;
            loose.sort();
            for file in &loose {
                digest.update(file.id);
            }
            for path in pack_files(folder)? {
                let data = fs::metadata(&path).map_err(|_| GitConfigError::File(path.clone()))?;
                digest.update(path.as_os_str().as_encoded_bytes());
                digest.update(data.len().to_be_bytes());
                digest.update(data.mtime_nsec().to_be_bytes());
                digest.update(data.mtime().to_be_bytes());
                digest.update(data.ino().to_be_bytes());
            }
        }
        Ok(digest.finalize().into())
    }

    /// Calls `visit` with the id and the content of every tree of the store.
    pub(super) fn visit_trees(&self, visit: &mut TreeVisitor<'_>) -> Result<(), GitConfigError> {
        let mut budget = WorkBudget(MAX_TOTAL_BYTES);
        for folder in &self.folders {
            for object in self.loose_objects(folder)? {
                if let Some(tree) = read_loose_tree(&object.path, &mut budget)? {
                    visit(&object.id, &tree)?;
                }
            }
            for index in pack_files(folder)? {
                Pack::open(&index, self.hash_bytes)?.visit_trees(&mut budget, visit)?;
            }
        }
        Ok(())
    }

    /// Reports whether an id, or the beginning of one, is that of a blob, the content of a file, which git would show without its path.
    pub(super) fn has_blob(&self, prefix: &str) -> Result<bool, GitConfigError> {
        for folder in &self.folders {
            for object in self.loose_objects(folder)? {
                if is_prefix(prefix, &object.id) && read_loose_kind(&object.path)? == b"blob" {
                    return Ok(true);
                }
            }
            for index in pack_files(folder)? {
                let pack = Pack::open(&index, self.hash_bytes)?;
                for (at, entry) in pack.entries.iter().enumerate() {
                    if is_prefix(prefix, &entry.id) && pack.base_kind(at)? == PackedKind::Blob {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Lists the loose objects of a folder. Other names are files that git has not finished.
    fn loose_objects(&self, folder: &Path) -> Result<Vec<LooseObject>, GitConfigError> {
        let mut objects = Vec::new();
        for first in 0..=u8::MAX {
            let place = folder.join(format!("{first:02x}"));
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if is_absent(&error) => continue,
                Err(_) => return Err(GitConfigError::File(place)),
            };
            for entry in entries {
                let entry = entry.map_err(|_| GitConfigError::File(place.clone()))?;
                let name = entry.file_name();
                let rest = name.to_str().and_then(decode_hex);
                let Some(rest) = rest.filter(|rest| rest.len() + 1 == self.hash_bytes) else {
                    continue;
                };
                let mut id = ObjectId::default();
                for (to, from) in id.iter_mut().zip([first].iter().chain(&rest)) {
                    *to = *from;
                }
                if objects.len() == MAX_LOOSE {
                    return Err(GitConfigError::TooMuch);
                }
                let path = entry.path();
                objects.push(LooseObject { id, path });
            }
        }
        Ok(objects)
    }
}

/// A file with one object.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LooseObject {
    id: ObjectId,
    path: PathBuf,
}

/// Lists the indexes of the packs of a folder, in a fixed order.
fn pack_files(folder: &Path) -> Result<Vec<PathBuf>, GitConfigError> {
    let place = folder.join("pack");
    let entries = match fs::read_dir(&place) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(_) => return Err(GitConfigError::File(place)),
    };
    let mut indexes = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|_| GitConfigError::File(place.clone()))?
            .path();
        // Without an index of its own, a pack may still be read through that of several packs.
        if path.extension().is_some_and(|end| end == "pack") {
            indexes.push(path.with_extension("idx"));
        }
    }
    indexes.sort();
    Ok(indexes)
}

/// Reads the kind in the head of a loose object.
fn read_loose_kind(path: &Path) -> Result<Vec<u8>, GitConfigError> {
    let broken = || GitConfigError::File(path.to_owned());
    let file = open_plain(path)?;
    let mut start = [0; 512];
    let length = file.read_at(&mut start, 0).map_err(|_| broken())?;
    // The limit is reached: the beginning is in the error.
    let head = match decompress_to_vec_zlib_with_limit(start.get(..length).unwrap_or_default(), 16)
    {
        Ok(whole) => whole,
        Err(error) => error.output,
    };
    let end = head
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or_else(broken)?;
    Ok(head.get(..end).unwrap_or_default().to_vec())
}

/// Reads a loose object if it is a tree.
fn read_loose_tree(
    path: &Path,
    budget: &mut WorkBudget,
) -> Result<Option<Vec<u8>>, GitConfigError> {
    if read_loose_kind(path)? != b"tree" {
        return Ok(None);
    }
    let broken = || GitConfigError::File(path.to_owned());
    let bytes = read_plain_file(path, MAX_TREE_BYTES as u64)?.ok_or_else(broken)?;
    let whole = decompress_to_vec_zlib_with_limit(&bytes, MAX_TREE_BYTES).map_err(|_| broken())?;
    budget.take(whole.len())?;
    let start = whole
        .iter()
        .position(|byte| *byte == 0)
        .ok_or_else(broken)?;
    Ok(Some(whole.get(start + 1..).unwrap_or_default().to_vec()))
}

/// Opens a regular file.
fn open_plain(path: &Path) -> Result<File, GitConfigError> {
    let file = OpenOptions::new()
        .read(true)
        // Does not wait for the other end of a pipe.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    file.ok()
        .filter(|file| file.metadata().is_ok_and(|data| data.is_file()))
        .ok_or_else(|| GitConfigError::File(path.to_owned()))
}

impl Pack {
    /// Opens a pack by the path of its index.
    fn open(index: &Path, hash_bytes: usize) -> Result<Self, GitConfigError> {
        let broken = || GitConfigError::File(index.to_owned());
        let bytes = read_plain_file(index, MAX_INDEX_BYTES)?.ok_or_else(broken)?;
        let entries = read_index(&bytes, hash_bytes).ok_or_else(broken)?;
        let path = index.with_extension("pack");
        let file = open_plain(&path)?;
        let broken = || GitConfigError::File(path.clone());
        let length = file.metadata().map_err(|_| broken())?.len();
        let end = length.checked_sub(hash_bytes as u64).ok_or_else(broken)?;
        let mut head = [0; 12];
        file.read_exact_at(&mut head, 0).map_err(|_| broken())?;
        let count = u32::try_from(entries.len()).map_err(|_| broken())?;
        if !head.starts_with(b"PACK\0\0\0\x02") || !head.ends_with(&count.to_be_bytes()) {
            return Err(broken());
        }
        Ok(Self {
            file,
            path,
            end,
            hash_bytes,
            entries,
            by_id: OnceCell::new(),
        })
    }

    fn broken(&self) -> GitConfigError {
        GitConfigError::File(self.path.clone())
    }

    /// Reads the head of an object.
    fn read_object(&self, at: usize) -> Result<PackedObject, GitConfigError> {
        let broken = || self.broken();
        let entry = self.entries.get(at).ok_or_else(broken)?;
        let end = self
            .entries
            .get(at + 1)
            .map_or(self.end, |next| next.offset);
        let mut bytes = [0; HEADER_BYTES];
        let length = usize::try_from(end.saturating_sub(entry.offset)).unwrap_or(usize::MAX);
        let bytes = bytes
            .get_mut(..length.min(HEADER_BYTES))
            .unwrap_or_default();
        let read = self.file.read_exact_at(bytes, entry.offset);
        read.map_err(|_| broken())?;
        let head = ObjectHead::parse(bytes, self.hash_bytes).ok_or_else(broken)?;
        let kind = match head.kind {
            HeadKind::Plain(kind) => kind,
            HeadKind::Delta(base) => {
                let base = self.find_base(entry.offset, &base);
                PackedKind::Delta(base.ok_or_else(broken)?)
            }
        };
        Ok(PackedObject {
            id: entry.id,
            kind,
            offset: entry.offset,
            data_at: entry.offset + head.length as u64,
            end,
            size: head.size,
        })
    }

    /// Returns the position of the base of a delta at an offset.
    fn find_base(&self, offset: u64, base: &DeltaBase) -> Option<usize> {
        match base {
            DeltaBase::Distance(distance) => {
                let offset = offset.checked_sub(*distance)?;
                let found = self
                    .entries
                    .binary_search_by_key(&offset, |entry| entry.offset);
                found.ok()
            }
            DeltaBase::Id(id) => {
                let by_id = self.by_id.get_or_init(|| {
                    let entries = self.entries.iter().enumerate();
                    entries.map(|(at, entry)| (entry.id, at)).collect()
                });
                by_id.get(id).copied()
            }
        }
    }

    /// Returns the kind of the object at the end of a chain of deltas, which all objects of the chain have.
    fn base_kind(&self, at: usize) -> Result<PackedKind, GitConfigError> {
        let mut at = at;
        for _ in 0..MAX_CHAIN {
            match self.read_object(at)?.kind {
                PackedKind::Delta(base) => at = base,
                kind => return Ok(kind),
            }
        }
        Err(self.broken())
    }

    /// Calls `visit` with every tree of the pack.
    fn visit_trees(
        &self,
        budget: &mut WorkBudget,
        visit: &mut TreeVisitor<'_>,
    ) -> Result<(), GitConfigError> {
        let mut objects = Vec::with_capacity(self.entries.len());
        let mut deltas: Vec<Vec<usize>> = vec![Vec::new(); self.entries.len()];
        for at in 0..self.entries.len() {
            let object = self.read_object(at)?;
            if let PackedKind::Delta(base) = object.kind {
                deltas
                    .get_mut(base)
                    .into_iter()
                    .for_each(|list| list.push(at));
            }
            objects.push(object);
        }
        // A delta whose chain has no end is not an object that git could show.
        let bases = objects
            .iter()
            .filter(|object| object.kind == PackedKind::Tree);
        for base in bases {
            let mut work = vec![(*base, Rc::new(self.inflate(base, budget)?))];
            while let Some((object, data)) = work.pop() {
                visit(&object.id, &data)?;
                let at = self
                    .entries
                    .binary_search_by_key(&object.offset, |entry| entry.offset);
                let children = at.ok().and_then(|at| deltas.get(at));
                for delta in children.into_iter().flatten() {
                    let delta = objects.get(*delta).ok_or_else(|| self.broken())?;
                    let change = self.inflate(delta, budget)?;
                    let made = apply_delta(&data, &change).ok_or_else(|| self.broken())?;
                    budget.take(made.len())?;
                    work.push((*delta, Rc::new(made)));
                }
            }
        }
        Ok(())
    }

    /// Reads the bytes of an object, or of its delta.
    fn inflate(
        &self,
        object: &PackedObject,
        budget: &mut WorkBudget,
    ) -> Result<Vec<u8>, GitConfigError> {
        let broken = || self.broken();
        let length = object.end.checked_sub(object.data_at).ok_or_else(broken)?;
        let length = usize::try_from(length).map_err(|_| GitConfigError::TooMuch)?;
        if object.size > MAX_TREE_BYTES || length > MAX_TREE_BYTES {
            return Err(GitConfigError::TooMuch);
        }
        budget.take(object.size)?;
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, object.data_at);
        read.map_err(|_| broken())?;
        let data = decompress_to_vec_zlib_with_limit(&bytes, object.size).map_err(|_| broken())?;
        (data.len() == object.size)
            .then_some(data)
            .ok_or_else(broken)
    }
}

/// The position and the id of an object in a pack.
#[derive(Debug, Clone, Copy)]
struct PackEntry {
    offset: u64,
    id: ObjectId,
}

/// Reads the index of a pack, version 2, sorted by offset.
fn read_index(bytes: &[u8], hash_bytes: usize) -> Option<Vec<PackEntry>> {
    const HEAD: usize = 8;
    const FANOUT: usize = 256 * 4;
    if bytes.get(..HEAD)? != b"\xfftOc\0\0\0\x02" {
        return None;
    }
    let count = usize::try_from(read_u32(bytes, HEAD + FANOUT - 4)?).ok()?;
    let ids_at = HEAD + FANOUT;
    let offsets_at = ids_at.checked_add(count.checked_mul(hash_bytes + 4)?)?;
    let large_at = offsets_at.checked_add(count.checked_mul(4)?)?;
    let mut entries = Vec::with_capacity(count.min(bytes.len() / hash_bytes));
    for at in 0..count {
        let mut id = ObjectId::default();
        let start = ids_at + at * hash_bytes;
        let own = bytes.get(start..start + hash_bytes)?;
        id.get_mut(..hash_bytes)?.copy_from_slice(own);
        let small = read_u32(bytes, offsets_at + at * 4)?;
        let offset = match small & 0x8000_0000 {
            0 => u64::from(small),
            _ => {
                let place = usize::try_from(small & 0x7fff_ffff).ok()?;
                let from = large_at.checked_add(place.checked_mul(8)?)?;
                u64::from_be_bytes(*bytes.get(from..)?.first_chunk()?)
            }
        };
        entries.push(PackEntry { offset, id });
    }
    entries.sort_unstable_by_key(|entry| entry.offset);
    Some(entries)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*number))
}

/// The head of an object in a pack.
struct ObjectHead {
    kind: HeadKind,
    size: usize,
    /// The length of the head itself.
    length: usize,
}

/// The kind of an object as its head gives it.
enum HeadKind {
    Plain(PackedKind),
    Delta(DeltaBase),
}

/// The base of a delta: so many bytes before it, or by its id.
enum DeltaBase {
    Distance(u64),
    Id(ObjectId),
}

impl ObjectHead {
    fn parse(bytes: &[u8], hash_bytes: usize) -> Option<Self> {
        let first = *bytes.first()?;
        let mut size = u64::from(first & 0x0f);
        let mut at = 1;
        let mut shift = 4;
        let mut byte = first;
        while byte & 0x80 != 0 {
            byte = *bytes.get(at)?;
            size |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            at += 1;
        }
        let kind = match (first >> 4) & 7 {
            1 => HeadKind::Plain(PackedKind::Commit),
            2 => HeadKind::Plain(PackedKind::Tree),
            3 => HeadKind::Plain(PackedKind::Blob),
            4 => HeadKind::Plain(PackedKind::Tag),
            6 => {
                let mut byte = *bytes.get(at)?;
                let mut distance = u64::from(byte & 0x7f);
                at += 1;
                while byte & 0x80 != 0 {
                    byte = *bytes.get(at)?;
                    at += 1;
                    // Git's number adds one for each further byte.
                    distance = distance.checked_add(1)?.checked_mul(128)?;
                    distance = distance.checked_add(u64::from(byte & 0x7f))?;
                }
                HeadKind::Delta(DeltaBase::Distance(distance))
            }
            7 => {
                let mut id = ObjectId::default();
                let own = bytes.get(at..at + hash_bytes)?;
                id.get_mut(..hash_bytes)?.copy_from_slice(own);
                at += hash_bytes;
                HeadKind::Delta(DeltaBase::Id(id))
            }
            _ => return None,
        };
        Some(Self {
            kind,
            size: usize::try_from(size).ok()?,
            length: at,
        })
    }
}

/// Makes an object from its base and a delta.
fn apply_delta(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut delta = delta.iter().copied();
    let mut read_size = || {
        let mut size = 0_u64;
        let mut shift = 0_u32;
        loop {
            let byte = delta.next()?;
            size |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return usize::try_from(size).ok();
            }
        }
    };
    let base_size = read_size()?;
    let size = read_size()?;
    if base_size != base.len() || size > MAX_TREE_BYTES {
        return None;
    }
    let mut made = Vec::with_capacity(size);
    while let Some(order) = delta.next() {
        if order & 0x80 == 0 {
            // An order of 0 is reserved.
            let literal = delta.by_ref().take(usize::from(order));
            let before = made.len();
            made.extend(literal);
            if order == 0 || made.len() != before + usize::from(order) {
                return None;
            }
            continue;
        }
        let mut number = |bits: std::ops::Range<u8>| {
            let mut value = 0_usize;
            for (place, bit) in bits.enumerate() {
                if order & (1 << bit) != 0 {
                    value |= usize::from(delta.next()?) << (8 * place);
                }
            }
            Some(value)
        };
        let from = number(0..4)?;
        let length = match number(4..7)? {
            0 => 0x1_0000,
            length => length,
        };
        made.extend_from_slice(base.get(from..from.checked_add(length)?)?);
        if made.len() > size {
            return None;
        }
    }
    (made.len() == size).then_some(made)
}

/// Decodes lower-case hexadecimal digits.
fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? * 16 + digit(low)?),
            _ => None,
        })
        .collect()
}

/// Reports whether an id begins with these hexadecimal digits.
fn is_prefix(digits: &str, id: &ObjectId) -> bool {
    let digits = digits.to_ascii_lowercase();
    let mut spelled = String::with_capacity(64);
    for byte in id.iter().take(digits.len().div_ceil(2)) {
        spelled.push_str(&format!("{byte:02x}"));
    }
    spelled.starts_with(&digits)
}

#[cfg(test)]
mod tests {
    use super::apply_delta;

    #[test]
    fn deltas_are_applied() {
        // Copies "world", then adds "!".
        let delta = [11, 6, 0x80 | 0x01 | 0x10, 6, 5, 1, b'!'];
        assert_eq!(apply_delta(b"hello world", &delta).unwrap(), b"world!");
        for end in 0..delta.len() {
            assert_eq!(apply_delta(b"hello world", &delta[..end]), None, "{end}");
        }
        assert_eq!(apply_delta(b"hello", &delta), None, "another base");
        assert_eq!(apply_delta(b"hello world", &[11, 1, 0]), None);
        assert_eq!(apply_delta(b"hello world", &[11, 200, 0x91, 6, 200]), None);
    }
}
