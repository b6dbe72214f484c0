//! Reads from an index file the repositories (submodules) that it links to.
//!
//! A sparse or split index leaves entries out; the rest is in objects or in another file. Git
//! fetches missing objects with a program that the repository names, so such an index is refused
//! instead of completed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::GitConfigError;
use super::plain_file::read_plain_file;

/// The maximum size of an index: that of half a million files.
const MAX_BYTES: u64 = 64 << 20;

/// The length of the file header, and of the part of an entry before its object id.
const HEAD: usize = 12;
const STAT: usize = 40;
/// The flags of an entry: a bit for two further bytes of flags, and the path length, which is
/// capped.
const EXTENDED: u16 = 0x4000;
const LENGTH: u16 = 0x0fff;
/// The kind of an entry in its mode: a link to a repository, and a folder in a sparse index.
const KIND: u32 = 0o170_000;
const LINK: u32 = 0o160_000;
const FOLDER: u32 = 0o040_000;

/// Reads the paths of the repositories that an index links to, in the order of the index. A missing index links
/// to none.
pub(super) fn read_gitlinks(
    file: &Path,
    hash_bytes: usize,
) -> Result<Vec<PathBuf>, GitConfigError> {
    let Some(bytes) = read_plain_file(file, MAX_BYTES)? else {
        return Ok(Vec::new());
    };
    let links = links_of(&bytes, hash_bytes)?;
    Ok(links
        .into_iter()
        .map(|path| PathBuf::from(OsStr::from_bytes(&path)))
        .collect())
}

/// Returns the first path of an index that does not pass `is_plain`. A missing index holds none.
pub(super) fn find_name(
    file: &Path,
    hash_bytes: usize,
    is_plain: &dyn Fn(&str) -> bool,
) -> Result<Option<String>, GitConfigError> {
    let Some(bytes) = read_plain_file(file, MAX_BYTES)? else {
        return Ok(None);
    };
    // Refuses what leaves out entries.
    links_of(&bytes, hash_bytes)?;
    let broken = GitConfigError::BrokenIndex;
    let count = read_u32(&bytes, 8).ok_or(broken.clone())?;
    let mut entries = Entries {
        body: &bytes,
        at: HEAD,
        hash_bytes,
        is_packed: read_u32(&bytes, 4) == Some(4),
        path: Vec::new(),
        blocks: Vec::new(),
    };
    for _ in 0..count {
        entries.read_next().ok_or(broken.clone())?;
        // A name that is not UTF-8 is quoted by git, with quotes around it.
        match std::str::from_utf8(&entries.path) {
            Ok(path) if is_plain(path) => {}
            _ => return Ok(Some(String::from_utf8_lossy(&entries.path).into_owned())),
        }
    }
    Ok(None)
}

fn links_of(bytes: &[u8], hash_bytes: usize) -> Result<Vec<Vec<u8>>, GitConfigError> {
    let broken = GitConfigError::BrokenIndex;
    let end = bytes.len().checked_sub(hash_bytes).ok_or(broken.clone())?;
    let body = bytes.get(..end).ok_or(broken.clone())?;
    let (version, count) = match (body.get(..4), read_u32(body, 4), read_u32(body, 8)) {
        (Some(b"DIRC"), Some(version @ 2..=4), Some(count)) => (version, count),
        _ => return Err(broken),
    };
    let mut entries = Entries {
        body,
        at: HEAD,
        hash_bytes,
        is_packed: version == 4,
        path: Vec::new(),
        blocks: Vec::new(),
    };
    let mut links = Vec::new();
    for _ in 0..count {
        match entries.read_next().ok_or(broken.clone())? & KIND {
            LINK if links.last() != Some(&entries.path) => links.push(entries.path.clone()),
            FOLDER => return Err(GitConfigError::SparseIndex),
            _ => {}
        }
    }
    let extensions = Extensions {
        body,
        entries_end: entries.at,
        hash_bytes,
        blocks: &entries.blocks,
    };
    extensions.check()?;
    Ok(links)
}

/// An iterator over the entries of an index.
struct Entries<'a> {
    body: &'a [u8],
    at: usize,
    hash_bytes: usize,
    /// True if each path is stored as a difference from the one before (version 4).
    is_packed: bool,
    path: Vec<u8>,
    /// The start of each entry.
    blocks: Vec<EntryStart>,
}

/// The start of an entry, and the number of path bytes it shares with the previous entry.
#[derive(Debug, Clone, Copy)]
struct EntryStart {
    offset: usize,
    kept: usize,
}

impl Entries<'_> {
    /// Reads the next entry into `path`, and returns its mode.
    fn read_next(&mut self) -> Option<u32> {
        let start = self.at;
        let mode = read_u32(self.body, start + 24)?;
        let flags_at = start + STAT + self.hash_bytes;
        let flags = read_u16(self.body, flags_at)?;
        let path_at = flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
        let (rest_at, kept) = if self.is_packed {
            self.kept(path_at)?
        } else {
            (path_at, 0)
        };
        let tail = self.body.get(rest_at..)?;
        let length = tail.iter().position(|byte| *byte == 0)?;
        self.path.truncate(kept);
        self.path.extend_from_slice(tail.get(..length)?);
        // Git uses this length if it fits, and the NUL otherwise; both have to agree.
        let told = usize::from(flags & LENGTH);
        if told != self.path.len().min(usize::from(LENGTH)) || self.path.is_empty() {
            return None;
        }
        self.at = if self.is_packed {
            rest_at + length + 1
        } else {
            start + ((rest_at - start + length + 8) & !7)
        };
        self.blocks.push(EntryStart {
            offset: start,
            kept,
        });
        (self.at <= self.body.len()).then_some(mode)
    }

    /// Reads the number of path bytes shared with the previous entry, and the start of the rest.
    fn kept(&self, mut at: usize) -> Option<(usize, usize)> {
        let mut byte = *self.body.get(at)?;
        let mut cut = usize::from(byte & 0x7f);
        // Git's variable-length number adds one per continuation byte.
        while byte & 0x80 != 0 {
            at += 1;
            byte = *self.body.get(at)?;
            cut = cut
                .checked_add(1)?
                .checked_mul(128)?
                .checked_add(usize::from(byte & 0x7f))?;
        }
        Some((at + 1, self.path.len().checked_sub(cut)?))
    }
}

/// The extensions after the entries.
struct Extensions<'a> {
    body: &'a [u8],
    entries_end: usize,
    hash_bytes: usize,
    blocks: &'a [EntryStart],
}

impl Extensions<'_> {
    /// Refuses extensions that leave out entries, or that make git read others.
    fn check(&self) -> Result<(), GitConfigError> {
        self.check_end().ok_or(GitConfigError::BrokenIndex)?;
        let mut at = self.entries_end;
        while at < self.body.len() {
            let (Some(name), Some(size)) = (self.body.get(at..at + 4), read_u32(self.body, at + 4))
            else {
                return Err(GitConfigError::BrokenIndex);
            };
            let data = usize::try_from(size)
                .ok()
                .and_then(|size| self.body.get(at + 8..at.checked_add(8 + size)?));
            let data = data.ok_or(GitConfigError::BrokenIndex)?;
            match name {
                b"sdir" => return Err(GitConfigError::SparseIndex),
                b"link" => return Err(GitConfigError::SplitIndex),
                b"IEOT" => self.check_blocks(data).ok_or(GitConfigError::BrokenIndex)?,
                [b'A'..=b'Z', ..] => {}
                // Git itself refuses an index with an unknown required extension (lower case).
                _ => return Err(GitConfigError::BrokenIndex),
            }
            at += 8 + data.len();
        }
        Ok(())
    }

    /// Checks the end-of-entries extension, which git reads first.
    fn check_end(&self) -> Option<()> {
        let Some(at) = self.body.len().checked_sub(8 + 4 + self.hash_bytes) else {
            return Some(());
        };
        // Git checks these bytes before it parses the entries, so it accepts them even within an
        // entry.
        let has_end_offset = self.body.get(at..at + 4) == Some(b"EOIE");
        (!has_end_offset || read_u32(self.body, at + 8) == u32::try_from(self.entries_end).ok())
            .then_some(())
    }

    /// Checks that the blocks which git's threads read are these entries, each starting with a full
    /// path.
    fn check_blocks(&self, data: &[u8]) -> Option<()> {
        let mut first = 0_usize;
        for block in data.get(4..)?.chunks(8) {
            let start = self.blocks.get(first)?;
            if read_u32(block, 0) != u32::try_from(start.offset).ok() || start.kept != 0 {
                return None;
            }
            first = first.checked_add(usize::try_from(read_u32(block, 4)?).ok()?)?;
        }
        (first == self.blocks.len()).then_some(())
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::{GitConfigError, links_of};

    fn entry(mode: u32, path: &str) -> Vec<u8> {
        let mut bytes = vec![0; 62];
        bytes[24..28].copy_from_slice(&mode.to_be_bytes());
        bytes[60..62].copy_from_slice(&u16::try_from(path.len()).unwrap().to_be_bytes());
        bytes.extend(path.as_bytes());
        bytes.resize((bytes.len() + 8) & !7, 0);
        bytes
    }

    fn index(entries: &[Vec<u8>], extensions: &[u8]) -> Vec<u8> {
        let count = u32::try_from(entries.len()).unwrap();
        let head = [
            b"DIRC".as_slice(),
            &2_u32.to_be_bytes(),
            &count.to_be_bytes(),
        ]
        .concat();
        [head, entries.concat(), extensions.to_vec(), vec![0; 20]].concat()
    }

    fn extension(name: &str, data: &[u8]) -> Vec<u8> {
        [
            name.as_bytes(),
            &u32::try_from(data.len()).unwrap().to_be_bytes(),
            data,
        ]
        .concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<&[&str], GitConfigError>) {
        let expected = expected.map(|links| {
            links
                .iter()
                .map(|link| link.as_bytes().to_vec())
                .collect::<Vec<_>>()
        });
        assert_eq!(links_of(bytes, 20), expected);
    }

    #[test]
    fn submodules_of_an_index_are_listed() {
        let entries = [
            entry(0o100_644, "a"),
            entry(0o160_000, "sub"),
            entry(0o160_000, "sub"),
            entry(0o160_000, "t/u"),
        ];
        check(&index(&entries, b""), Ok(&["sub", "t/u"]));
        check(
            &index(&entries, &extension("TREE", b"xyz")),
            Ok(&["sub", "t/u"]),
        );
        check(&index(&[], b""), Ok(&[]));
    }

    fn broken_links() -> Result<Vec<Vec<u8>>, GitConfigError> {
        Err(GitConfigError::BrokenIndex)
    }

    #[test]
    fn unreadable_indexes_are_refused() {
        let plain = [entry(0o100_644, "a")];
        check(
            &index(&plain, &extension("sdir", b"")),
            Err(GitConfigError::SparseIndex),
        );
        check(
            &index(&[entry(0o040_000, "b/")], b""),
            Err(GitConfigError::SparseIndex),
        );
        check(
            &index(&plain, &extension("link", &[0; 20])),
            Err(GitConfigError::SplitIndex),
        );
        let broken = Err(GitConfigError::BrokenIndex);
        check(&index(&plain, &extension("else", b"")), broken.clone());
        check(&index(&plain, b"TREE"), broken.clone());
        check(b"DIRC", broken.clone());
        // Indexes from which git's threads would read other entries.
        let blocks =
            |offset: u32, count: u32| [1_u32, offset, count].map(u32::to_be_bytes).concat();
        check(&index(&plain, &extension("IEOT", &blocks(12, 1))), Ok(&[]));
        check(
            &index(&plain, &extension("IEOT", &blocks(20, 1))),
            broken.clone(),
        );
        check(
            &index(&plain, &extension("IEOT", &blocks(12, 0))),
            broken.clone(),
        );
        let end = |offset: u32| {
            extension(
                "EOIE",
                &[offset.to_be_bytes().as_slice(), &[0; 20]].concat(),
            )
        };
        check(&index(&plain, &end(76)), Ok(&[]));
        check(&index(&plain, &end(12)), broken.clone());
        let mut long = entry(0o100_644, "a");
        long[61] = 2;
        check(&index(&[long], b""), broken.clone());
        // An index that is cut anywhere is refused, except where only the extension is cut off and
        // the checksum is complete: that is another valid index.
        let whole = index(&[entry(0o160_000, "sub")], &extension("TREE", b"xyz"));
        for end in (0..whole.len()).filter(|end| *end != whole.len() - 11) {
            assert_eq!(links_of(&whole[..end], 20), broken_links(), "{end}");
        }
    }
}
