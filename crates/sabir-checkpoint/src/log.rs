//! The log: which checkpoints there are, in the order in which they were taken, and the small objects among what they hold.
//!
//! ```text
//! SABIRLG1 │ frame │ frame │ …        frame: length (4) │ CRC-32 (4) │ record │ objects
//! ```
//!
//! A frame is appended at once. One that is cut off or does not fit its sum ends the log: nobody was told that it was kept. The
//! next append goes over it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::encoding::{Reader, Writer};
use super::object::{Kind, ObjectId};
use super::pack::Span;
use super::{After, Checkpoint, Mark, What};

const HEAD: &[u8; 8] = b"SABIRLG1";
const FRAME_BYTES: usize = 8;

/// An object that stands in the log.
pub(super) type Inline = (Kind, ObjectId, Vec<u8>);

/// One thing that the log says.
#[derive(Debug, Clone)]
pub(super) enum Record {
    Taken(Checkpoint),
    Sealed {
        id: u64,
        after: After,
    },
    /// The call changed nothing: its checkpoint is none.
    Void {
        id: u64,
    },
    /// The checkpoints of a task up to this number were removed.
    Pruned {
        task: String,
        through: u32,
    },
    /// Numbers of checkpoints up to this one were given away.
    Counted {
        id: u64,
    },
}

/// What a log held.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    pub(super) objects: Vec<(ObjectId, Span)>,
    /// How much of the file is good.
    pub(super) good_bytes: u64,
    pub(super) inode: u64,
}

/// Whether an append has to be on disk when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    Yes,
    No,
}

/// Reads a log. `None`: the file is no log of this version. A file that is not there holds nothing.
pub(super) fn read(path: &Path) -> io::Result<Option<Contents>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Contents::default())),
        opened => opened?,
    };
    let mut contents = Contents { inode: file.metadata()?.ino(), ..Contents::default() };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let Some(mut rest) = bytes.strip_prefix(HEAD) else {
        // A crash may have come before the head was whole.
        return Ok(HEAD.starts_with(&bytes).then_some(contents));
    };
    contents.good_bytes = HEAD.len() as u64;
    while let Some((payload, behind)) = frame(rest) {
        let at = contents.good_bytes + FRAME_BYTES as u64;
        let Some((record, objects)) = decode(payload) else { return Ok(None) };
        contents.objects.extend(objects.into_iter().map(|(id, span)| (id, Span { offset: span.offset + at, ..span })));
        contents.records.push(record);
        contents.good_bytes = at + payload.len() as u64;
        rest = behind;
    }
    Ok(Some(contents))
}

/// Appends behind what is good of the log. Returns where the objects came to stand, and the new size in bytes.
pub(super) fn append(
    path: &Path,
    good_bytes: u64,
    (record, objects): (&Record, &[Inline]),
    durable: Durable,
) -> io::Result<(Vec<(ObjectId, Span)>, u64)> {
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut bytes = if good_bytes == 0 { HEAD.to_vec() } else { Vec::new() };
    let at = good_bytes + bytes.len() as u64 + FRAME_BYTES as u64;
    let spans = encode(record, objects, &mut bytes);
    if file.metadata()?.len() > good_bytes {
        file.set_len(good_bytes)?;
    }
    file.write_all_at(&bytes, good_bytes)?;
    if durable == Durable::Yes {
        file.sync_data()?;
    }
    let spans = spans.into_iter().map(|(id, span)| (id, Span { offset: span.offset + at, ..span })).collect();
    Ok((spans, good_bytes + bytes.len() as u64))
}

/// Puts a log of these records in the place of the old one, without objects.
pub(super) fn replace(path: &Path, records: &[Record]) -> io::Result<()> {
    let mut bytes = HEAD.to_vec();
    for record in records {
        encode(record, &[], &mut bytes);
    }
    let temp = path.with_extension("tmp");
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
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

/// The first frame and what is behind it.
fn frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = Reader::new(bytes);
    let (length, crc) = (from.u32()? as usize, from.u32()?);
    let payload = from.take(length)?;
    (crc32fast::hash(payload) == crc).then(|| (payload, bytes.get(FRAME_BYTES + length..).unwrap_or_default()))
}

/// Writes a frame. The spans are counted from the start of its payload.
fn encode(record: &Record, objects: &[Inline], out: &mut Vec<u8>) -> Vec<(ObjectId, Span)> {
    let mut payload = Writer::default();
    record.write(&mut payload);
    payload.u32(u32::try_from(objects.len()).unwrap_or(u32::MAX));
    let mut spans = Vec::new();
    for (kind, id, bytes) in objects {
        payload.u8(kind.number());
        payload.id(*id);
        let offset = payload.0.len() as u64 + 4;
        payload.bytes(bytes);
        spans.push((*id, Span { kind: *kind, offset, length: bytes.len() as u64 }));
    }
    let mut head = Writer::default();
    head.u32(u32::try_from(payload.0.len()).unwrap_or(u32::MAX));
    head.u32(crc32fast::hash(&payload.0));
    out.extend_from_slice(&head.0);
    out.extend_from_slice(&payload.0);
    spans
}

fn decode(payload: &[u8]) -> Option<(Record, Vec<(ObjectId, Span)>)> {
    let mut from = Reader::new(payload);
    let record = Record::read(&mut from)?;
    let count = from.u32()?;
    let mut objects = Vec::new();
    for _ in 0..count {
        let (kind, id) = (Kind::of(from.u8()?)?, from.id()?);
        let offset = from.position() as u64 + 4;
        let length = from.bytes()?.len() as u64;
        objects.push((id, Span { kind, offset, length }));
    }
    Some((record, objects))
}

impl Record {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Taken(checkpoint) => {
                out.u8(1);
                checkpoint.write(out);
            }
            Self::Sealed { id, after } => {
                out.u8(2);
                out.u64(*id);
                out.id(after.root);
                out.u8(u8::from(after.late));
            }
            Self::Void { id } => {
                out.u8(3);
                out.u64(*id);
            }
            Self::Pruned { task, through } => {
                out.u8(4);
                out.text(task);
                out.u32(*through);
            }
            Self::Counted { id } => {
                out.u8(5);
                out.u64(*id);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            1 => Self::Taken(Checkpoint::read(from)?),
            2 => Self::Sealed { id: from.u64()?, after: After { root: from.id()?, late: from.u8()? == 1 } },
            3 => Self::Void { id: from.u64()? },
            4 => Self::Pruned { task: from.text()?, through: from.u32()? },
            5 => Self::Counted { id: from.u64()? },
            _ => return None,
        })
    }
}

impl Checkpoint {
    fn write(&self, out: &mut Writer) {
        out.u64(self.id);
        out.u32(self.number);
        for text in [&self.mark.task, &self.mark.call, &self.mark.tool, &self.mark.label] {
            out.text(text);
        }
        out.u64(self.mark.time_ms);
        match self.what {
            What::Call => out.u8(0),
            What::Back { to } => {
                out.u8(1);
                out.u32(to);
            }
            What::Part => out.u8(2),
        }
        out.u8(u8::from(self.whole));
        out.id(self.before);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (id, number) = (from.u64()?, from.u32()?);
        let (task, call, tool, label) = (from.text()?, from.text()?, from.text()?, from.text()?);
        let mark = Mark { task, call, tool, label, time_ms: from.u64()? };
        let what = match from.u8()? {
            0 => What::Call,
            1 => What::Back { to: from.u32()? },
            2 => What::Part,
            _ => return None,
        };
        Some(Self { id, number, mark, what, whole: from.u8()? == 1, before: from.id()?, after: None })
    }
}
