//! Reads and writes packs: immutable files that hold objects.
//!
//! ```text
//! SABIRPK1 │ object bytes, one after the other │ index │ trailer
//! index entry: kind (1) │ SHA-256 (32) │ offset (8) │ length (8)
//! trailer: offset of the index (8) │ CRC-32 of the index (4) │ SABIREND
//! ```
//!
//! A pack is written under a temporary name, synced, and renamed. A file named like a pack but
//! without a valid trailer was never relied on by any checkpoint.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::encoding::{ByteReader, ByteWriter};
use super::object::{ObjectId, ObjectKind};

/// The first bytes of a pack; the digit is the version of the format.
const HEAD: &[u8; 8] = b"SABIRPK1";
/// The last bytes of a complete pack.
const TAIL: &[u8; 8] = b"SABIREND";
/// The length of the trailer: offset of the index, checksum and tail.
const TRAILER_BYTES: u64 = 20;
/// The length of an index entry: kind, id, offset and length.
const ENTRY_BYTES: u64 = 49;
/// The end of a file name that marks an unfinished pack.
pub(super) const TEMP_END: &str = ".tmp";
/// The end of a pack's file name.
pub(super) const PACK_END: &str = ".pack";

/// The position of an object in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectSpan {
    pub(super) kind: ObjectKind,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The objects of a pack.
pub(super) type PackIndex = Vec<(ObjectId, ObjectSpan)>;

/// A pack under construction. Dropping it unfinished removes the file.
#[derive(Debug)]
pub(super) struct PackWriter {
    file: BufWriter<File>,
    temp: PathBuf,
    objects: PackIndex,
    written: u64,
    finished: bool,
}

impl PackWriter {
    /// Starts a pack under its temporary name, replacing one that a crash left.
    pub(super) fn create(folder: &Path, number: u64) -> io::Result<Self> {
        let temp = folder.join(format!("{number:08}{TEMP_END}"));
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temp)?;
        let mut pack = Self {
            file: BufWriter::new(file),
            temp,
            objects: Vec::new(),
            written: 0,
            finished: false,
        };
        pack.write_bytes(HEAD)?;
        Ok(pack)
    }

    /// Appends an object. The caller makes sure that the id is the hash of the bytes.
    pub(super) fn add_object(
        &mut self,
        kind: ObjectKind,
        id: ObjectId,
        bytes: &[u8],
    ) -> io::Result<()> {
        let span = ObjectSpan {
            kind,
            offset: self.written,
            length: bytes.len() as u64,
        };
        self.write_bytes(bytes)?;
        self.objects.push((id, span));
        Ok(())
    }

    /// Syncs the pack and gives it its final name. Returns its index and its size in bytes.
    pub(super) fn finish(mut self, folder: &Path, number: u64) -> io::Result<(PackIndex, u64)> {
        let at = self.written;
        let mut index = ByteWriter::default();
        for (id, span) in &self.objects {
            index.write_u8(span.kind.to_number());
            index.write_id(*id);
            index.write_u64(span.offset);
            index.write_u64(span.length);
        }
        let mut trailer = ByteWriter::default();
        trailer.write_u64(at);
        trailer.write_u32(crc32fast::hash(&index.0));
        self.write_bytes(&index.0)?;
        self.write_bytes(&trailer.0)?;
        self.write_bytes(TAIL)?;
        self.file.flush()?;
        // Synced before the rename: a name without its bytes could survive a power cut otherwise.
        self.file.get_ref().sync_all()?;
        std::fs::rename(&self.temp, folder.join(pack_file_name(number)))?;
        self.finished = true;
        // The rename lasts only once the folder is synced too.
        File::open(folder)?.sync_all()?;
        Ok((std::mem::take(&mut self.objects), self.written))
    }

    /// Returns the number of bytes so far, those in the buffer included.
    pub(super) fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Writes bytes and counts them.
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        // Counted here rather than asked of the file, since the writer buffers.
        self.written += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        if !self.finished {
            _ = std::fs::remove_file(&self.temp);
        }
    }
}

/// Returns the file name of a pack. Eight digits keep a listing in order; higher numbers still
/// work.
pub(super) fn pack_file_name(number: u64) -> String {
    format!("{number:08}{PACK_END}")
}

/// Reads the index and the size in bytes of a pack; the index is `None` if the file is not a
/// complete pack.
pub(super) fn read_index(path: &Path) -> io::Result<(Option<PackIndex>, u64)> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let Some(end) = size.checked_sub(TRAILER_BYTES) else {
        return Ok((None, size));
    };
    let mut trailer = [0; 20];
    file.read_exact_at(&mut trailer, end)?;
    let mut from = ByteReader::new(&trailer);
    let head = (from.read_u64(), from.read_u32(), from.take_bytes(8));
    let (Some(at), Some(crc), Some(tail)) = head else {
        return Ok((None, size));
    };
    // The trailer is written last, so a file without a valid one was never completed.
    let Some(length) = end
        .checked_sub(at)
        .filter(|length| length % ENTRY_BYTES == 0 && tail == TAIL)
    else {
        return Ok((None, size));
    };
    let mut index = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut index, at)?;
    if crc32fast::hash(&index) != crc {
        return Ok((None, size));
    }
    let mut from = ByteReader::new(&index);
    let mut objects = Vec::new();
    while let (Some(kind), Some(id), Some(offset), Some(length)) = (
        from.read_u8(),
        from.read_id(),
        from.read_u64(),
        from.read_u64(),
    ) {
        // Objects of an unknown kind are left out; nothing that this version reads refers to them.
        if let Some(kind) = ObjectKind::from_number(kind) {
            objects.push((
                id,
                ObjectSpan {
                    kind,
                    offset,
                    length,
                },
            ));
        }
    }
    Ok((Some(objects), size))
}

/// Reads the bytes of a span in a file.
pub(super) fn read_span(path: &Path, span: ObjectSpan) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // Checked before allocating, since a damaged index could name any length.
    if span.offset.saturating_add(span.length) > file.metadata()?.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; usize::try_from(span.length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, span.offset)?;
    Ok(bytes)
}
