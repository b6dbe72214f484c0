//! Reads and writes the log: the list of checkpoints in the order in which they were taken, with
//! their small objects inline.
//!
//! ```text
//! SABIRLG1 │ frame │ frame │ …        frame: length (4) │ CRC-32 (4) │ record │ objects
//! ```
//!
//! A frame is appended with one write. A frame that is truncated or fails its checksum ends the
//! log, since it was never acknowledged; the next append overwrites it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::encoding::{ByteReader, ByteWriter};
use super::object::{ObjectId, ObjectKind};
use super::pack::ObjectSpan;
use super::{Checkpoint, CheckpointCall, CheckpointKind, StateAfter};

/// The first bytes of a log; the digit is the version of the format.
const HEAD: &[u8; 8] = b"SABIRLG1";
/// The length of a frame's head: payload length and CRC-32, little-endian.
const FRAME_BYTES: usize = 8;

/// An object stored in the log.
pub(super) type InlineObject = (ObjectKind, ObjectId, Vec<u8>);

/// An entry of the log.
///
/// The log is only ever appended to or replaced as a whole, so the order of the records is the
/// order in which things happened.
#[derive(Debug, Clone)]
pub(super) enum LogRecord {
    /// A checkpoint was taken, and its call may begin.
    Taken(Checkpoint),
    Sealed {
        id: u64,
        after: StateAfter,
    },
    /// The call changed nothing, so its checkpoint is removed.
    Discarded {
        id: u64,
    },
    /// The checkpoints of a task up to this call number were removed.
    Pruned {
        task: String,
        through: u32,
    },
    /// Checkpoint ids up to this one are used.
    LastId {
        id: u64,
    },
    /// A sealed checkpoint records which of its changes were made by others.
    Attributed {
        id: u64,
        others: BTreeSet<PathBuf>,
    },
}

/// The content of a log.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    pub(super) records: Vec<LogRecord>,
    pub(super) objects: Vec<(ObjectId, ObjectSpan)>,
    /// The length of the valid part of the file, in bytes.
    pub(super) good_bytes: u64,
    pub(super) inode: u64,
}

/// The durability of an append when it returns.
/// `Synced` survives a power cut. `Deferred` survives the end of the process, and the next synced
/// append makes it durable as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppendDurability {
    Synced,
    Deferred,
}

/// Reads a log. Returns `None` if the file is not a log of this version. A missing file is an empty
/// log.
pub(super) fn read_log(path: &Path) -> io::Result<Option<LogContents>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(LogContents::default()));
        }
        opened => opened?,
    };
    let mut contents = LogContents {
        inode: file.metadata()?.ino(),
        ..LogContents::default()
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let Some(mut rest) = bytes.strip_prefix(HEAD) else {
        // A crash may have left an incomplete head.
        return Ok(HEAD.starts_with(&bytes).then_some(contents));
    };
    contents.good_bytes = HEAD.len() as u64;
    while let Some((payload, behind)) = split_frame(rest) {
        let at = contents.good_bytes + FRAME_BYTES as u64;
        // The checksum is right, so an unknown record was written by a newer version: refuse the
        // log instead of losing it.
        let Some((record, objects)) = decode_frame(payload) else {
            return Ok(None);
        };
        contents
            .objects
            .extend(objects.into_iter().map(|(id, span)| {
                (
                    id,
                    ObjectSpan {
                        offset: span.offset + at,
                        ..span
                    },
                )
            }));
        contents.records.push(record);
        contents.good_bytes = at + payload.len() as u64;
        rest = behind;
    }
    Ok(Some(contents))
}

/// Appends a record after the valid part of the log. Returns the positions of the objects and the
/// new size in bytes.
pub(super) fn append_record(
    path: &Path,
    good_bytes: u64,
    record: &LogRecord,
    objects: &[InlineObject],
    durable: AppendDurability,
) -> io::Result<(Vec<(ObjectId, ObjectSpan)>, u64)> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let mut bytes = if good_bytes == 0 {
        HEAD.to_vec()
    } else {
        Vec::new()
    };
    let at = good_bytes + bytes.len() as u64 + FRAME_BYTES as u64;
    let spans = encode_frame(record, objects, &mut bytes);
    // A crash may have left a broken frame after the valid part; without truncation its tail would
    // follow this frame.
    if file.metadata()?.len() > good_bytes {
        file.set_len(good_bytes)?;
    }
    file.write_all_at(&bytes, good_bytes)?;
    if durable == AppendDurability::Synced {
        file.sync_data()?;
    }
    let spans = spans
        .into_iter()
        .map(|(id, span)| {
            (
                id,
                ObjectSpan {
                    offset: span.offset + at,
                    ..span
                },
            )
        })
        .collect();
    Ok((spans, good_bytes + bytes.len() as u64))
}

/// Replaces the log by one with these records, without objects.
pub(super) fn replace_log(path: &Path, records: &[LogRecord]) -> io::Result<()> {
    let mut bytes = HEAD.to_vec();
    for record in records {
        encode_frame(record, &[], &mut bytes);
    }
    let temp = path.with_extension("tmp");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temp)?;
    // Synced before the rename: until then the old log is the valid one.
    let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| std::fs::rename(&temp, path)) {
        _ = std::fs::remove_file(&temp);
        return Err(error);
    }
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Splits off the first frame. Returns its payload and the rest; `None` if no valid frame follows.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = ByteReader::new(bytes);
    let length = from.read_u32()? as usize;
    let crc = from.read_u32()?;
    let payload = from.take_bytes(length)?;
    (crc32fast::hash(payload) == crc).then(|| {
        (
            payload,
            bytes.get(FRAME_BYTES + length..).unwrap_or_default(),
        )
    })
}

/// Encodes a frame. The returned offsets count from the start of its payload.
fn encode_frame(
    record: &LogRecord,
    objects: &[InlineObject],
    out: &mut Vec<u8>,
) -> Vec<(ObjectId, ObjectSpan)> {
    let mut payload = ByteWriter::default();
    record.write_to(&mut payload);
    payload.write_u32(u32::try_from(objects.len()).unwrap_or(u32::MAX));
    let mut spans = Vec::new();
    for (kind, id, bytes) in objects {
        payload.write_u8(kind.to_number());
        payload.write_id(*id);
        // The bytes of the object follow its four-byte length.
        let offset = payload.0.len() as u64 + 4;
        payload.write_bytes(bytes);
        spans.push((
            *id,
            ObjectSpan {
                kind: *kind,
                offset,
                length: bytes.len() as u64,
            },
        ));
    }
    let mut head = ByteWriter::default();
    head.write_u32(u32::try_from(payload.0.len()).unwrap_or(u32::MAX));
    head.write_u32(crc32fast::hash(&payload.0));
    out.extend_from_slice(&head.0);
    out.extend_from_slice(&payload.0);
    spans
}

/// Decodes a frame whose checksum was right. The offsets count from the start of the payload; the
/// bytes of the objects are not copied.
fn decode_frame(payload: &[u8]) -> Option<(LogRecord, Vec<(ObjectId, ObjectSpan)>)> {
    let mut from = ByteReader::new(payload);
    let record = LogRecord::read_from(&mut from)?;
    let count = from.read_u32()?;
    let mut objects = Vec::new();
    for _ in 0..count {
        let kind = ObjectKind::from_number(from.read_u8()?)?;
        let id = from.read_id()?;
        let offset = from.position() as u64 + 4;
        let length = from.read_bytes()?.len() as u64;
        objects.push((
            id,
            ObjectSpan {
                kind,
                offset,
                length,
            },
        ));
    }
    Some((record, objects))
}

impl LogRecord {
    fn write_to(&self, out: &mut ByteWriter) {
        match self {
            Self::Taken(checkpoint) => {
                out.write_u8(1);
                // The tag numbers are part of the format: new records get new ones.
                checkpoint.write_to(out);
            }
            Self::Sealed { id, after } => {
                out.write_u8(2);
                out.write_u64(*id);
                out.write_id(after.root);
                out.write_u8(u8::from(after.late));
            }
            Self::Discarded { id } => {
                out.write_u8(3);
                out.write_u64(*id);
            }
            Self::Pruned { task, through } => {
                out.write_u8(4);
                out.write_text(task);
                out.write_u32(*through);
            }
            Self::LastId { id } => {
                out.write_u8(5);
                out.write_u64(*id);
            }
            Self::Attributed { id, others } => {
                out.write_u8(6);
                out.write_u64(*id);
                out.write_u32(u32::try_from(others.len()).unwrap_or(u32::MAX));
                others.iter().for_each(|path| out.write_path(path));
            }
        }
    }

    fn read_from(from: &mut ByteReader<'_>) -> Option<Self> {
        Some(match from.read_u8()? {
            1 => Self::Taken(Checkpoint::read_from(from)?),
            2 => Self::Sealed {
                id: from.read_u64()?,
                after: StateAfter {
                    root: from.read_id()?,
                    late: from.read_u8()? == 1,
                },
            },
            3 => Self::Discarded {
                id: from.read_u64()?,
            },
            4 => Self::Pruned {
                task: from.read_text()?,
                through: from.read_u32()?,
            },
            5 => Self::LastId {
                id: from.read_u64()?,
            },
            6 => {
                let id = from.read_u64()?;
                let count = from.read_u32()?;
                let others: Option<_> = (0..count).map(|_| from.read_path()).collect();
                let others = others?;
                Self::Attributed { id, others }
            }
            _ => return None,
        })
    }
}

impl Checkpoint {
    fn write_to(&self, out: &mut ByteWriter) {
        out.write_u64(self.id);
        out.write_u32(self.number);
        for text in [
            &self.mark.task,
            &self.mark.call,
            &self.mark.tool,
            &self.mark.label,
        ] {
            out.write_text(text);
        }
        out.write_u64(self.mark.time_ms);
        match self.kind {
            CheckpointKind::Call => out.write_u8(0),
            CheckpointKind::Restore { to } => {
                out.write_u8(1);
                out.write_u32(to);
            }
            CheckpointKind::PartialRestore => out.write_u8(2),
        }
        out.write_u8(u8::from(self.whole));
        out.write_id(self.before);
    }

    fn read_from(from: &mut ByteReader<'_>) -> Option<Self> {
        let id = from.read_u64()?;
        let number = from.read_u32()?;
        let task = from.read_text()?;
        let call = from.read_text()?;
        let tool = from.read_text()?;
        let label = from.read_text()?;
        let mark = CheckpointCall {
            task,
            call,
            tool,
            label,
            time_ms: from.read_u64()?,
        };
        let what = match from.read_u8()? {
            0 => CheckpointKind::Call,
            1 => CheckpointKind::Restore {
                to: from.read_u32()?,
            },
            2 => CheckpointKind::PartialRestore,
            _ => return None,
        };
        Some(Self {
            id,
            number,
            mark,
            kind: what,
            whole: from.read_u8()? == 1,
            before: from.read_id()?,
            after: None,
            newest_at_seal: 0,
            others: None,
        })
    }
}
