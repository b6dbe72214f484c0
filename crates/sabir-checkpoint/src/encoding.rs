//! Encodes numbers and byte strings one after another: the format of all store files. Numbers are
//! little-endian; a byte string is preceded by its length as a 32-bit number.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::object::ObjectId;

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub(super) struct ByteWriter(pub(super) Vec<u8>);

/// Reads values from the start of a slice. Its methods return `None` if the data is too short or
/// malformed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteReader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl ByteWriter {
    /// Writes one byte.
    pub(super) fn write_u8(&mut self, number: u8) {
        self.0.push(number);
    }

    /// Writes four bytes, the lowest first.
    pub(super) fn write_u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes eight bytes, the lowest first.
    pub(super) fn write_u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes the 32 bytes of an id, without a length.
    pub(super) fn write_id(&mut self, id: ObjectId) {
        self.0.extend_from_slice(id.as_bytes());
    }

    /// Writes a byte string. Longer than 4 GiB cannot occur: objects are capped far below.
    pub(super) fn write_bytes(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.write_u32(length);
        self.0
            .extend_from_slice(bytes.get(..length as usize).unwrap_or(bytes));
    }

    pub(super) fn write_text(&mut self, text: &str) {
        self.write_bytes(text.as_bytes());
    }

    /// Writes the bytes of a path as they are: file names need not be UTF-8.
    pub(super) fn write_path(&mut self, path: &Path) {
        self.write_bytes(path.as_os_str().as_bytes());
    }
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes this many bytes without copying. A damaged length is larger than the rest, and gives
    /// `None` before anything is allocated.
    pub(super) fn take_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        self.at += count;
        Some(taken)
    }

    pub(super) fn read_u8(&mut self) -> Option<u8> {
        self.take_bytes(1)?.first().copied()
    }

    pub(super) fn read_u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take_bytes(4)?.try_into().ok()?))
    }

    pub(super) fn read_u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take_bytes(8)?.try_into().ok()?))
    }

    pub(super) fn read_id(&mut self) -> Option<ObjectId> {
        Some(ObjectId::from_bytes(self.take_bytes(32)?.try_into().ok()?))
    }

    /// Reads a byte string with its length.
    pub(super) fn read_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.read_u32()? as usize;
        self.take_bytes(length)
    }

    /// Reads a byte string that must be UTF-8.
    pub(super) fn read_text(&mut self) -> Option<String> {
        String::from_utf8(self.read_bytes()?.to_vec()).ok()
    }

    /// Reads a path, of any bytes.
    pub(super) fn read_path(&mut self) -> Option<PathBuf> {
        Some(OsString::from_vec(self.read_bytes()?.to_vec()).into())
    }
}
