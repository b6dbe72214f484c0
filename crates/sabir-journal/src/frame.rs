//! One record as bytes: length, checksum, JSON.

use std::borrow::Cow;

use sabir_agent::Record;
use sabir_call::redact;
use serde::{Deserialize, Serialize};

/// The first line of a journal, without version and line end.
pub(crate) const HEADER_START: &[u8] = b"sabir journal ";
/// The first line of a journal of this version.
pub(crate) const HEADER: &[u8] = b"sabir journal 1\n";
/// The bytes of a frame before its payload.
pub(crate) const HEAD_BYTES: usize = 8;
/// The most bytes of a payload.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Deeper values are not written: reading them back would need a deep stack.
const MAX_DEPTH: usize = 256;
/// How every payload begins.
pub(crate) const PAYLOAD_START: &[u8] = b"{\"at\":";

/// A record and when it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Milliseconds since 1970, by the clock of the process that wrote it.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub record: Record,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The bytes of the payload.
    pub(crate) length: usize,
    checksum: u32,
}

impl FrameHeader {
    /// Reads a head; `None` where there are too few bytes for one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, _) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        Some(Self { length, checksum: u32::from_le_bytes(*checksum) })
    }

    /// Whether a frame of this length is ever written.
    pub(crate) fn is_possible(self) -> bool {
        (1..=MAX_PAYLOAD_BYTES).contains(&self.length)
    }

    /// Whether this is the payload that was written.
    pub(crate) fn matches_payload(self, payload: &[u8]) -> bool {
        u32::try_from(self.length).is_ok_and(|length| compute_checksum(length, payload) == self.checksum)
    }
}

/// Writes a whole frame into `buffer`, whatever was in there before. Secrets are taken out of the record's texts.
///
/// # Errors
/// In words, when the record is too large or too deep to be read back.
pub(crate) fn encode_frame(buffer: &mut Vec<u8>, at: u64, record: &Record) -> Result<(), String> {
    #[derive(Serialize)]
    struct FramePayload<'a> {
        at: u64,
        #[serde(flatten)]
        record: &'a Record,
    }
    buffer.clear();
    buffer.resize(HEAD_BYTES, 0);
    serde_json::to_writer(&mut *buffer, &FramePayload { at, record }).map_err(|error| error.to_string())?;
    // Signs can be longer than what they stand for.
    check_payload_size(buffer)?;
    redact_payload(buffer);
    check_payload_size(buffer)?;
    let (head, payload) = buffer.split_first_chunk_mut::<HEAD_BYTES>().ok_or("the frame has no head")?;
    let deepest = measure_nesting(payload).max_depth;
    if deepest > MAX_DEPTH {
        return Err(format!("the record nests values {deepest} deep, and {MAX_DEPTH} is the most"));
    }
    let length = u32::try_from(payload.len()).map_err(|error| error.to_string())?;
    *head = (u64::from(compute_checksum(length, payload)) << 32 | u64::from(length)).to_le_bytes();
    Ok(())
}

fn check_payload_size(frame: &[u8]) -> Result<(), String> {
    match frame.len().saturating_sub(HEAD_BYTES) {
        ..=MAX_PAYLOAD_BYTES => Ok(()),
        bytes => Err(format!("the record has {bytes} bytes, and {MAX_PAYLOAD_BYTES} are the most")),
    }
}

/// A journal outlives its task, and is read by others: what has the shape of a secret is not written into it.
fn redact_payload(buffer: &mut Vec<u8>) {
    let payload = buffer.get(HEAD_BYTES..).and_then(|payload| std::str::from_utf8(payload).ok());
    if let Some(Cow::Owned(redacted)) = payload.map(redact::redact_json) {
        buffer.truncate(HEAD_BYTES);
        buffer.extend_from_slice(redacted.as_bytes());
    }
}

/// Reads a payload whose checksum was right.
///
/// # Errors
/// In words: it is the record of another version, then.
pub(crate) fn decode_payload(payload: &[u8]) -> Result<JournalEntry, String> {
    if measure_nesting(payload).max_depth > MAX_DEPTH {
        return Err(format!("it nests values more than {MAX_DEPTH} deep"));
    }
    let mut reader = serde_json::Deserializer::from_slice(payload);
    reader.disable_recursion_limit();
    let entry = JournalEntry::deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(entry)
}

/// The length is part of it, so that neither a changed length nor a stretch of zeros passes.
fn compute_checksum(length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Whether the bytes are the beginning of a payload and no more: the object is not closed yet.
pub(crate) fn is_unfinished(payload: &[u8]) -> bool {
    let common = payload.len().min(PAYLOAD_START.len());
    let begins = payload.get(..common) == PAYLOAD_START.get(..common);
    // What is written has no control characters, not even in strings.
    begins && payload.iter().all(|byte| *byte >= b' ') && (payload.is_empty() || !measure_nesting(payload).is_closed)
}

/// How the objects and arrays of a JSON text nest.
#[derive(Debug, Default)]
struct JsonNesting {
    max_depth: usize,
    /// Whether all were closed at some point.
    is_closed: bool,
}

fn measure_nesting(json: &[u8]) -> JsonNesting {
    let mut nesting = JsonNesting::default();
    let mut depth = 0_usize;
    let (mut quoted, mut escaped) = (false, false);
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
        for (json, expected) in [("1", 0), ("{}", 1), (r#"{"a":[[1],"]]{{{\"{\\"]}"#, 3), ("[][]", 1)] {
            assert_eq!(measure_nesting(json.as_bytes()).max_depth, expected, "{json}");
        }
    }

    #[test]
    fn the_bytes_of_a_frame() {
        let mut buffer = vec![1, 2, 3];
        encode_frame(&mut buffer, 7, &Record::Running { call: sabir_call::CallId::new("a"), seal: None }).unwrap();
        let (head, payload) = buffer.split_at(HEAD_BYTES);
        assert_eq!(payload, br#"{"at":7,"kind":"running","call":"a"}"#);
        assert_eq!(head[..4], [36, 0, 0, 0]);
        let head = FrameHeader::parse(head).unwrap();
        assert!(head.is_possible() && head.matches_payload(payload) && !head.matches_payload(b"x"));
        assert!(FrameHeader::parse(&[0; 8]).is_some_and(|head| !head.is_possible() && !head.matches_payload(b"")));
    }
}
