//! Encodes and decodes one record as a frame: length, checksum, JSON.

use std::borrow::Cow;

use sabir_agent::Record;
use sabir_call::redact;
use serde::{Deserialize, Serialize};

/// The first line of a journal, without the version and the line feed.
pub(crate) const HEADER_START: &[u8] = b"sabir journal ";
/// The first line of a journal in this version of the format.
pub(crate) const HEADER: &[u8] = b"sabir journal 1\n";
/// The length of a frame's head in bytes: four of length, four of checksum.
pub(crate) const HEAD_BYTES: usize = 8;
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
    #[error("the record has {bytes} bytes, and {MAX_PAYLOAD_BYTES} are the most")]
    TooLarge {
        /// The length of its payload.
        bytes: usize,
    },
    /// A record that is to be written nests too deep.
    #[error("the record nests values {depth} deep, and {MAX_DEPTH} is the most")]
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

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The length of the payload in bytes.
    pub(crate) length: usize,
    checksum: u32,
}

impl FrameHeader {
    /// Parses a head; `None` if there are too few bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, _) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        Some(Self {
            length,
            checksum: u32::from_le_bytes(*checksum),
        })
    }

    /// Returns true if a frame of this length can have been written.
    pub(crate) fn is_possible(self) -> bool {
        (1..=MAX_PAYLOAD_BYTES).contains(&self.length)
    }

    /// Returns true if the checksum matches this payload.
    pub(crate) fn matches_payload(self, payload: &[u8]) -> bool {
        u32::try_from(self.length)
            .is_ok_and(|length| compute_checksum(length, payload) == self.checksum)
    }
}

/// Replaces the contents of `buffer` by the frame of a record. Known secret formats in the record's texts are redacted.
///
/// # Errors
/// [`FrameError`] if the record is too large or too deep to be read back.
pub(crate) fn encode_frame(
    buffer: &mut Vec<u8>,
    at: u64,
    record: &Record,
) -> Result<(), FrameError> {
    #[derive(Serialize)]
    struct FramePayload<'a> {
        at: u64,
        #[serde(flatten)]
        record: &'a Record,
    }
    buffer.clear();
    buffer.resize(HEAD_BYTES, 0);
    serde_json::to_writer(&mut *buffer, &FramePayload { at, record })?;
    // Checked twice: a large record is not worth redacting, and a redaction mark can be longer than the secret it replaces.
    check_payload_size(buffer)?;
    redact_payload(buffer);
    let length = check_payload_size(buffer)?;
    let payload = buffer.get(HEAD_BYTES..).unwrap_or_default();
    let depth = measure_nesting(payload).max_depth;
    if depth > MAX_DEPTH {
        return Err(FrameError::TooDeep { depth });
    }
    let checksum = compute_checksum(length, payload);
    if let Some(head) = buffer.first_chunk_mut::<HEAD_BYTES>() {
        // In little endian the lower half comes first, which is the length.
        *head = (u64::from(checksum) << 32 | u64::from(length)).to_le_bytes();
    }
    Ok(())
}

/// Returns the length of the frame's payload, if it is within the limit.
fn check_payload_size(frame: &[u8]) -> Result<u32, FrameError> {
    let bytes = frame.len().saturating_sub(HEAD_BYTES);
    u32::try_from(bytes)
        .ok()
        .filter(|_| bytes <= MAX_PAYLOAD_BYTES)
        .ok_or(FrameError::TooLarge { bytes })
}

/// Redacts text with the format of a secret, because a journal outlives its task and other people read it.
fn redact_payload(buffer: &mut Vec<u8>) {
    let payload = buffer
        .get(HEAD_BYTES..)
        .and_then(|payload| std::str::from_utf8(payload).ok());
    if let Some(Cow::Owned(redacted)) = payload.map(redact::redact_json) {
        buffer.truncate(HEAD_BYTES);
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
    reader.disable_recursion_limit();
    let entry = JournalEntry::deserialize(&mut reader)?;
    reader.end()?;
    Ok(entry)
}

/// Computes the CRC-32 of length and payload. With the length included, neither a changed length nor a run of zeros matches.
fn compute_checksum(length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
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
    fn depths() {
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
    fn the_bytes_of_a_frame() {
        let mut buffer = vec![1, 2, 3];
        encode_frame(
            &mut buffer,
            7,
            &Record::Running {
                call: sabir_call::CallId::new("a"),
                seal: None,
            },
        )
        .unwrap();
        let (head, payload) = buffer.split_at(HEAD_BYTES);
        assert_eq!(payload, br#"{"at":7,"kind":"running","call":"a"}"#);
        assert_eq!(head[..4], [36, 0, 0, 0]);
        let head = FrameHeader::parse(head).unwrap();
        assert!(head.is_possible() && head.matches_payload(payload) && !head.matches_payload(b"x"));
        assert!(
            FrameHeader::parse(&[0; 8])
                .is_some_and(|head| !head.is_possible() && !head.matches_payload(b""))
        );
    }
}
