//! Encodes and decodes one record as a frame: length, checksum, link to the previous frame, JSON.

use std::borrow::Cow;
use std::io::{self, Read};

use sabir_agent::Record;
use sabir_call::redact;
use serde::{Deserialize, Serialize};

/// The first line of a journal, without the version and the line feed.
pub(crate) const HEADER_START: &[u8] = b"sabir journal ";
/// The length of the first line in bytes, the same in every version.
pub(crate) const HEADER_BYTES: usize = 16;
/// The largest payload in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// The deepest nesting of a record. Reading a deeper value back would need a deep stack.
const MAX_DEPTH: usize = 256;
/// The first bytes of every payload.
pub(crate) const PAYLOAD_START: &[u8] = b"{\"at\":";

/// A reason why a record cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The record does not fit into a frame.
    #[error("the record has {bytes} bytes, and at most {MAX_PAYLOAD_BYTES} are allowed")]
    TooLarge {
        /// The length of its payload.
        bytes: usize,
    },
    /// A record to write nests too deep.
    #[error("the record nests values {depth} deep, and at most {MAX_DEPTH} is allowed")]
    TooDeep {
        /// The depth of its nesting.
        depth: usize,
    },
    /// A record that was read nests too deep.
    #[error("it nests values more than {MAX_DEPTH} deep")]
    DeepPayload,
    /// Not the JSON of a record that this version knows.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A record with the time at which it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Milliseconds since 1970, by the clock of the process that wrote it.
    pub at: u64,
    /// The record.
    #[serde(flatten)]
    pub record: Record,
}

/// The version of a journal's format, which its first line names. A journal keeps the version in which it was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormatVersion {
    /// Frames are independent: a missing, repeated or moved one is not detected.
    Unchained,
    /// Each frame names the checksum of the one before it.
    Chained,
}

impl FormatVersion {
    /// The version of new journals.
    pub(crate) const CURRENT: Self = Self::Chained;

    /// All versions.
    pub(crate) const ALL: [Self; 2] = [Self::Unchained, Self::Chained];

    /// Returns the first line of a journal of this version.
    pub(crate) fn header(self) -> &'static [u8; HEADER_BYTES] {
        // `1` and `2` differ in two bits, so no single flipped bit makes one version of the other.
        match self {
            Self::Unchained => b"sabir journal 1\n",
            Self::Chained => b"sabir journal 2\n",
        }
    }

    /// Returns the length of a frame's head in bytes: four each of length and checksum, and four of the link if there is one.
    pub(crate) fn head_bytes(self) -> usize {
        match self {
            Self::Unchained => 8,
            Self::Chained => 12,
        }
    }
}

/// The end of a sequence of frames, to which the next one is linked.
///
/// The link is the CRC-32 of the frame before, and is itself covered by the checksum of its frame. It detects accidents of disks and
/// copies; it does not prevent forgery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameChain {
    pub(crate) version: FormatVersion,
    /// The checksum of the last frame; before the first frame, the checksum of the first line.
    last_checksum: u32,
}

impl FrameChain {
    /// Returns the chain before the first frame of a journal.
    pub(crate) fn new(version: FormatVersion) -> Self {
        Self {
            version,
            last_checksum: crc32fast::hash(version.header()),
        }
    }

    /// Returns the link of the next frame; `None` in a version without links.
    fn link(self) -> Option<u32> {
        (self.version == FormatVersion::Chained).then_some(self.last_checksum)
    }

    /// Returns the chain after a frame with this head.
    pub(crate) fn advanced_by(self, head: FrameHeader) -> Self {
        Self {
            last_checksum: head.checksum,
            ..self
        }
    }

    /// Reads the payload of the next frame. Returns `None` at the end, and if the frame is torn, damaged or not linked to
    /// the one before it.
    pub(crate) fn read_next(
        &mut self,
        input: &mut impl Read,
        payload: &mut Vec<u8>,
    ) -> io::Result<Option<FrameHeader>> {
        let linked =
            read_frame(input, payload, self.version)?.filter(|head| head.link == self.link());
        if let Some(head) = linked {
            *self = self.advanced_by(head);
        }
        Ok(linked)
    }
}

/// Reads the payload of a frame, regardless of the frames before it. Returns `None` at the end, and if the frame is torn or
/// damaged.
pub(crate) fn read_frame(
    input: &mut impl Read,
    payload: &mut Vec<u8>,
    version: FormatVersion,
) -> io::Result<Option<FrameHeader>> {
    payload.clear();
    input
        .by_ref()
        .take(version.head_bytes() as u64)
        .read_to_end(payload)?;
    let Some(head) = FrameHeader::parse(payload, version).filter(|head| head.is_possible()) else {
        return Ok(None);
    };
    payload.clear();
    input
        .by_ref()
        .take(head.length as u64)
        .read_to_end(payload)?;
    let whole = payload.len() == head.length && head.matches_payload(payload);
    Ok(whole.then_some(head))
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The length of the payload in bytes.
    pub(crate) length: usize,
    checksum: u32,
    /// The checksum of the frame before; `None` in a version without links.
    link: Option<u32>,
}

impl FrameHeader {
    /// Parses a head; `None` if there are too few bytes.
    pub(crate) fn parse(bytes: &[u8], version: FormatVersion) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let link = match version {
            FormatVersion::Unchained => None,
            FormatVersion::Chained => Some(u32::from_le_bytes(*rest.first_chunk::<4>()?)),
        };
        Some(Self {
            length: usize::try_from(u32::from_le_bytes(*length)).ok()?,
            checksum: u32::from_le_bytes(*checksum),
            link,
        })
    }

    /// Returns true if a frame of this length can have been written.
    ///
    /// Checked before the payload is read: a damaged length could name up to 4 GiB.
    pub(crate) fn is_possible(self) -> bool {
        (1..=MAX_PAYLOAD_BYTES).contains(&self.length)
    }

    /// Returns true if the checksum matches this payload.
    pub(crate) fn matches_payload(self, payload: &[u8]) -> bool {
        u32::try_from(self.length)
            .is_ok_and(|length| compute_checksum(length, self.link, payload) == self.checksum)
    }
}

/// Replaces the contents of `buffer` by the frame of a record that is next in the chain, and returns the frame's head. Known
/// secret formats in the record's texts are redacted.
///
/// # Errors
/// [`FrameError`] if the record is too large or too deep to be read back.
pub(crate) fn encode_frame(
    buffer: &mut Vec<u8>,
    chain: FrameChain,
    at: u64,
    record: &Record,
) -> Result<FrameHeader, FrameError> {
    #[derive(Serialize)]
    struct FramePayload<'a> {
        at: u64,
        #[serde(flatten)]
        record: &'a Record,
    }
    // The head is filled in last, when length and checksum are known; the payload needs no copy.
    let head_bytes = chain.version.head_bytes();
    buffer.clear();
    buffer.resize(head_bytes, 0);
    serde_json::to_writer(&mut *buffer, &FramePayload { at, record })?;
    // Checked before and after redaction: redacting a record that is too large is useless, and a
    // redaction mark can be longer than its secret.
    check_payload_size(buffer, head_bytes)?;
    redact_payload(buffer, head_bytes);
    let length = check_payload_size(buffer, head_bytes)?;
    let payload = buffer.get(head_bytes..).unwrap_or_default();
    let depth = measure_nesting(payload).max_depth;
    if depth > MAX_DEPTH {
        return Err(FrameError::TooDeep { depth });
    }
    let head = FrameHeader {
        length: payload.len(),
        checksum: compute_checksum(length, chain.link(), payload),
        link: chain.link(),
    };
    let numbers = [Some(length), Some(head.checksum), head.link];
    let bytes = numbers.into_iter().flatten().flat_map(u32::to_le_bytes);
    for (place, byte) in buffer.iter_mut().zip(bytes) {
        *place = byte;
    }
    Ok(head)
}

/// Returns the length of the frame's payload, if it is within the limit.
fn check_payload_size(frame: &[u8], head_bytes: usize) -> Result<u32, FrameError> {
    let bytes = frame.len().saturating_sub(head_bytes);
    u32::try_from(bytes)
        .ok()
        .filter(|_| bytes <= MAX_PAYLOAD_BYTES)
        .ok_or(FrameError::TooLarge { bytes })
}

/// Redacts text with the format of a secret, because a journal outlives its task and other people read it.
fn redact_payload(buffer: &mut Vec<u8>, head_bytes: usize) {
    let payload = buffer
        .get(head_bytes..)
        .and_then(|payload| std::str::from_utf8(payload).ok());
    if let Some(Cow::Owned(redacted)) = payload.map(redact::redact_json) {
        buffer.truncate(head_bytes);
        buffer.extend_from_slice(redacted.as_bytes());
    }
}

/// Decodes a payload whose checksum was right.
///
/// # Errors
/// [`FrameError`] if the record comes from another version of Sabir, since damage is excluded by the checksum.
pub(crate) fn decode_payload(payload: &[u8]) -> Result<JournalEntry, FrameError> {
    if measure_nesting(payload).max_depth > MAX_DEPTH {
        return Err(FrameError::DeepPayload);
    }
    let mut reader = serde_json::Deserializer::from_slice(payload);
    // The depth was checked above; serde_json's own limit is 128.
    // A tool's JSON arguments inside a record may nest deeper than that.
    reader.disable_recursion_limit();
    let entry = JournalEntry::deserialize(&mut reader)?;
    reader.end()?;
    Ok(entry)
}

/// Computes the CRC-32 of length, link and payload. With the length included, neither a changed length nor a run of zeros matches.
fn compute_checksum(length: u32, link: Option<u32>, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    if let Some(link) = link {
        hasher.update(&link.to_le_bytes());
    }
    hasher.update(payload);
    hasher.finalize()
}

/// Returns true if the bytes are an incomplete payload: they begin like one, and its object is not closed.
pub(crate) fn is_unfinished(payload: &[u8]) -> bool {
    let common = payload.len().min(PAYLOAD_START.len());
    let begins = payload.get(..common) == PAYLOAD_START.get(..common);
    // serde_json escapes control characters, and the payload is written without line breaks.
    begins
        && payload.iter().all(|byte| *byte >= b' ')
        && (payload.is_empty() || !measure_nesting(payload).is_closed)
}

/// The nesting of the objects and arrays in a JSON text.
#[derive(Debug, Default)]
struct JsonNesting {
    max_depth: usize,
    /// True if all of them were closed at some point.
    is_closed: bool,
}

/// Measures the nesting in one pass over the bytes. It does not recurse, because its result limits the recursion of the parser, and it
/// accepts any bytes.
fn measure_nesting(json: &[u8]) -> JsonNesting {
    let mut nesting = JsonNesting::default();
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut escaped = false;
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                nesting.max_depth = nesting.max_depth.max(depth);
            }
            b'}' | b']' if !quoted => {
                depth = depth.saturating_sub(1);
                nesting.is_closed |= depth == 0;
            }
            _ => {}
        }
    }
    nesting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_depths_are_measured() {
        for (json, expected) in [
            ("1", 0),
            ("{}", 1),
            (r#"{"a":[[1],"]]{{{\"{\\"]}"#, 3),
            ("[][]", 1),
        ] {
            assert_eq!(
                measure_nesting(json.as_bytes()).max_depth,
                expected,
                "{json}"
            );
        }
    }

    #[test]
    fn frames_are_encoded_as_documented() {
        for version in FormatVersion::ALL {
            let mut buffer = vec![1, 2, 3];
            let record = Record::Running {
                call: sabir_call::CallId::new("a"),
                seal: None,
            };
            let chain = FrameChain::new(version);
            let written = encode_frame(&mut buffer, chain, 7, &record).unwrap();
            let (bytes, payload) = buffer.split_at(version.head_bytes());
            assert_eq!(payload, br#"{"at":7,"kind":"running","call":"a"}"#);
            assert_eq!(bytes[..4], [36, 0, 0, 0]);
            let head = FrameHeader::parse(bytes, version).unwrap();
            assert_eq!(head, written);
            assert!(head.is_possible() && head.matches_payload(payload));
            assert!(!head.matches_payload(b"x"));
            let zeros = FrameHeader::parse(&[0; 12], version).unwrap();
            assert!(!zeros.is_possible() && !zeros.matches_payload(b""));
            // With links, the same record after a different frame gives different bytes.
            let mut second = Vec::new();
            encode_frame(&mut second, chain.advanced_by(head), 7, &record).unwrap();
            assert_eq!(second == buffer, version == FormatVersion::Unchained);
            let mut payload = Vec::new();
            let mut reader = chain;
            assert!(
                reader
                    .read_next(&mut &buffer[..], &mut payload)
                    .unwrap()
                    .is_some()
            );
            let repeated = reader.read_next(&mut &buffer[..], &mut payload).unwrap();
            assert_eq!(repeated.is_none(), version == FormatVersion::Chained);
        }
    }
}
