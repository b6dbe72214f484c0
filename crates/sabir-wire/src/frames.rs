//! Decodes and encodes binary event streams (`application/vnd.amazon.eventstream`).
//!
//! # Supported
//! Frames of Amazon's event stream encoding, split anywhere: both checksums, headers of all ten
//! types, any payload.
//!
//! # Unsupported
//! Frames above [`MAX_EVENT`], and headers whose name or text is not UTF-8: such a frame is
//! damaged.
//!
//! # Grammar as implemented
//! ```text
//! stream  = *frame
//! frame   = total headers crc *header *any crc    ; the last crc is over all that precedes it in the frame
//! total   = u32                                  ; of the whole frame, checksums included
//! headers = u32                                  ; of the headers alone
//! crc     = u32                                  ; CRC-32 (IEEE); the first one is over total and headers
//! header  = u8 name type value                   ; the number counts the bytes of the name, at least one
//! type    = 0 / 1                                ; true, false: no value
//!         / 2 / 3 / 4 / 5                        ; i8, i16, i32, i64
//!         / 6 / 7                                ; u16 and so many bytes; u16 and so many bytes of UTF-8
//!         / 8 / 9                                ; i64, milliseconds since 1970; 16 bytes, a UUID
//! ```
//! All numbers are big-endian.
//!
//! If a frame's checksum is wrong but its prelude is right, the next frame begins where the prelude
//! says. If the prelude itself is wrong, the length is unknown: the decoder searches for the next
//! valid prelude. Each case is one [`FrameEvent::Damaged`]. JSON contains no zero byte, so a JSON
//! payload is never taken for a prelude.
//!
//! Every byte is checked once and copied at most once; a frame within one chunk is borrowed from
//! it.

use crc32fast::hash;

use crate::sse::MAX_EVENT;

/// The bytes of the prelude: total length, header length, checksum.
const PRELUDE: usize = 12;

/// The smallest frame: the prelude and the checksum at the end.
const MIN_FRAME_BYTES: usize = PRELUDE + 4;

/// A result of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A frame with valid checksums.
    Frame(EventFrame<'a>),
    /// Bytes that are not a frame, with a description of the defect.
    Damaged(&'static str),
    /// A frame above [`MAX_EVENT`], which is dropped.
    TooLong,
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFrame<'a> {
    /// The encoded headers, which were validated by the decoder.
    headers: &'a [u8],
    /// The payload; the headers tell its type.
    pub payload: &'a [u8],
}

/// The value of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderValue<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed integer of one byte.
    Byte(i8),
    /// A signed integer of two bytes.
    Short(i16),
    /// A signed integer of four bytes.
    Int(i32),
    /// A signed integer of eight bytes.
    Long(i64),
    /// At most 65,535 bytes.
    Bytes(&'a [u8]),
    /// At most 65,535 bytes of text.
    Text(&'a str),
    /// A time in milliseconds since 1970.
    Time(i64),
    /// The sixteen bytes of a UUID.
    Uuid([u8; 16]),
}

/// The error of data that exceeds a limit: the frame [`MAX_EVENT`], or a header its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a frame holds at most {MAX_EVENT} bytes, and a header a name of 1 to 255 and a value of at most 65535 bytes"
)]
pub struct FrameError;

/// An incremental decoder without I/O. Memory is bounded by [`MAX_EVENT`].
#[derive(Debug, Default)]
pub struct FrameDecoder {
    /// The unfinished frame of the last chunk.
    held: Vec<u8>,
    /// The bytes that are still to be skipped of a frame that is dropped.
    skip: u64,
    /// True since damage was reported until the next valid prelude.
    lost: bool,
}

/// The result of checking a prelude.
enum PreludeCheck {
    /// A valid prelude; the length of its frame in bytes.
    Total(usize),
    /// A valid prelude of a frame that is too long; the length in bytes.
    TooLong(u64),
    /// No prelude: the checksum is wrong, or the headers do not fit into the frame.
    Invalid,
}

impl FrameDecoder {
    /// Creates a decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the next bytes and delivers every frame that they complete.
    pub fn push(&mut self, chunk: &[u8], out: &mut impl FnMut(FrameEvent<'_>)) {
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.skip > 0 {
                let skip = usize::try_from(self.skip)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                rest = rest.get(skip..).unwrap_or_default();
                self.skip -= skip as u64;
            } else if self.held.is_empty() {
                rest = self.read_new_frame(rest, out);
            } else {
                rest = self.extend_held_frame(rest, out);
            }
        }
    }

    /// Reports an unfinished frame at the end of the stream. The decoder can be used again
    /// afterwards.
    pub fn finish(&mut self, out: &mut impl FnMut(FrameEvent<'_>)) {
        if !self.held.is_empty() && !self.lost {
            out(FrameEvent::Damaged("the stream ended inside a frame"));
        }
        *self = Self::default();
    }

    /// Reads at the start of a frame and returns the remaining bytes.
    fn read_new_frame<'c>(
        &mut self,
        bytes: &'c [u8],
        out: &mut impl FnMut(FrameEvent<'_>),
    ) -> &'c [u8] {
        // A prelude may be cut by the end of a chunk, and is checked only as a whole.
        let Some(prelude) = bytes.get(..PRELUDE) else {
            self.held.extend_from_slice(bytes);
            return &[];
        };
        match self.frame_length(prelude, out) {
            Some(total) => {
                let Some((frame, rest)) = bytes.split_at_checked(total) else {
                    self.held.extend_from_slice(bytes);
                    return &[];
                };
                out(decode_frame(frame));
                rest
            }
            // The skipped bytes still include the prelude. After an invalid prelude, only its first
            // byte is known not to start a frame.
            None if self.skip > 0 => bytes,
            None => bytes.get(1..).unwrap_or_default(),
        }
    }

    /// Adds bytes to the held frame and returns the remaining bytes.
    fn extend_held_frame<'c>(
        &mut self,
        bytes: &'c [u8],
        out: &mut impl FnMut(FrameEvent<'_>),
    ) -> &'c [u8] {
        // A complete held prelude was checked when its last byte arrived.
        let known = self.held.len() >= PRELUDE;
        let wanted = if known {
            read_u32(&self.held) as usize
        } else {
            PRELUDE
        };
        let missing = wanted.saturating_sub(self.held.len());
        let (more, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
        self.held.extend_from_slice(more);
        if self.held.len() < wanted {
            return rest;
        }
        if known {
            out(decode_frame(&self.held));
            self.held.clear();
            return rest;
        }
        let held = std::mem::take(&mut self.held);
        let measured = self.frame_length(&held, out);
        self.held = held;
        if measured.is_none() {
            if self.skip > 0 {
                self.skip -= PRELUDE as u64;
                self.held.clear();
            } else {
                // Shifts the search by one byte.
                self.held.remove(0);
            }
        }
        rest
    }

    /// Returns the length of the frame that a prelude begins; `None` for an invalid prelude or a
    /// frame to be skipped.
    fn frame_length(
        &mut self,
        prelude: &[u8],
        out: &mut impl FnMut(FrameEvent<'_>),
    ) -> Option<usize> {
        match check_prelude(prelude) {
            PreludeCheck::Total(total) => {
                self.lost = false;
                Some(total)
            }
            // Right after damage, an oversized length is probably garbage: `ff ff ff ff 00 00 00
            // 00` has the valid checksum `ff ff ff ff`.
            PreludeCheck::TooLong(total) if !self.lost => {
                self.skip = total;
                out(FrameEvent::TooLong);
                None
            }
            PreludeCheck::TooLong(_) | PreludeCheck::Invalid => {
                if !std::mem::replace(&mut self.lost, true) {
                    out(FrameEvent::Damaged("the beginning of a frame is damaged"));
                }
                None
            }
        }
    }
}

impl<'a> EventFrame<'a> {
    /// Iterates over the headers in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, HeaderValue<'a>)> {
        let mut rest = self.headers;
        std::iter::from_fn(move || {
            let (header, after) = decode_header(rest)?;
            rest = after;
            Some(header)
        })
    }

    /// Returns the first header of this name, if it is text.
    pub fn text_header(&self, name: &str) -> Option<&'a str> {
        self.headers()
            .find(|(known, _)| *known == name)
            .and_then(|(_, value)| match value {
                HeaderValue::Text(text) => Some(text),
                _ => None,
            })
    }
}

/// Encodes one frame.
///
/// # Errors
/// A limit is exceeded; nothing was written then.
pub fn encode_frame(
    headers: &[(&str, HeaderValue<'_>)],
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(
            u8::try_from(name.len())
                .ok()
                .filter(|length| *length > 0)
                .ok_or(FrameError)?,
        );
        head.extend_from_slice(name.as_bytes());
        write_value(*value, &mut head)?;
    }
    let total = MIN_FRAME_BYTES + head.len() + payload.len();
    if total > MAX_EVENT {
        return Err(FrameError);
    }
    let number = |length: usize| u32::try_from(length).unwrap_or_default().to_be_bytes();
    // The checksums cover this frame only, and `out` may hold earlier ones.
    let start = out.len();
    out.extend_from_slice(&number(total));
    out.extend_from_slice(&number(head.len()));
    let sum = hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    let sum = hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Encodes the type and the value of a header.
fn write_value(value: HeaderValue<'_>, out: &mut Vec<u8>) -> Result<(), FrameError> {
    match value {
        // The type is the value: 0 is true and 1 is false.
        HeaderValue::Bool(yes) => out.push(u8::from(!yes)),
        HeaderValue::Byte(number) => write_fixed_value(2, &number.to_be_bytes(), out),
        HeaderValue::Short(number) => write_fixed_value(3, &number.to_be_bytes(), out),
        HeaderValue::Int(number) => write_fixed_value(4, &number.to_be_bytes(), out),
        HeaderValue::Long(number) => write_fixed_value(5, &number.to_be_bytes(), out),
        HeaderValue::Bytes(bytes) => write_sized_value(6, bytes, out)?,
        HeaderValue::Text(text) => write_sized_value(7, text.as_bytes(), out)?,
        HeaderValue::Time(number) => write_fixed_value(8, &number.to_be_bytes(), out),
        HeaderValue::Uuid(bytes) => write_fixed_value(9, &bytes, out),
    }
    Ok(())
}

/// Writes a type and a value of fixed length.
fn write_fixed_value(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(bytes);
}

/// Writes a type and a value with its length in two bytes.
fn write_sized_value(kind: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let length = u16::try_from(bytes.len()).map_err(|_| FrameError)?;
    write_fixed_value(kind, &length.to_be_bytes(), out);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Checks the checksum and the lengths of a prelude.
fn check_prelude(prelude: &[u8]) -> PreludeCheck {
    let total = read_u32(prelude);
    let headers = read_u32(prelude.get(4..).unwrap_or_default());
    let sum = read_u32(prelude.get(8..).unwrap_or_default());
    // The headers must fit into the frame. Together with the checksum this rejects random bytes.
    let fits = (total as usize)
        .checked_sub(MIN_FRAME_BYTES)
        .is_some_and(|room| headers as usize <= room);
    if !fits || prelude.get(..8).map(hash) != Some(sum) {
        return PreludeCheck::Invalid;
    }
    if total as usize > MAX_EVENT {
        PreludeCheck::TooLong(u64::from(total))
    } else {
        PreludeCheck::Total(total as usize)
    }
}

/// Decodes a complete frame with a valid prelude.
fn decode_frame(frame: &[u8]) -> FrameEvent<'_> {
    let parts = frame.split_last_chunk().and_then(|(body, sum)| {
        let (headers, payload) = body
            .get(PRELUDE..)?
            .split_at_checked(read_u32(body.get(4..)?) as usize)?;
        Some((body, u32::from_be_bytes(*sum), headers, payload))
    });
    let Some((_, _, headers, payload)) = parts.filter(|(body, sum, ..)| hash(body) == *sum) else {
        return FrameEvent::Damaged("the checksum of a frame is wrong");
    };
    // All headers are validated once, so that reading them later cannot fail.
    let mut rest = headers;
    while let Some((_, after)) = decode_header(rest) {
        rest = after;
    }
    if !rest.is_empty() {
        return FrameEvent::Damaged("the headers of a frame cannot be read");
    }
    FrameEvent::Frame(EventFrame { headers, payload })
}

/// Decodes the first header and returns the rest; `None` at the end, and for an invalid header.
fn decode_header(bytes: &[u8]) -> Option<((&str, HeaderValue<'_>), &[u8])> {
    let (length, rest) = bytes.split_first().filter(|(length, _)| **length > 0)?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let name = std::str::from_utf8(name).ok()?;
    let (kind, rest) = rest.split_first()?;
    let (value, rest) = match kind {
        0 => (HeaderValue::Bool(true), rest),
        1 => (HeaderValue::Bool(false), rest),
        2 => decode_fixed(rest, |bytes| HeaderValue::Byte(i8::from_be_bytes(bytes)))?,
        3 => decode_fixed(rest, |bytes| HeaderValue::Short(i16::from_be_bytes(bytes)))?,
        4 => decode_fixed(rest, |bytes| HeaderValue::Int(i32::from_be_bytes(bytes)))?,
        5 => decode_fixed(rest, |bytes| HeaderValue::Long(i64::from_be_bytes(bytes)))?,
        8 => decode_fixed(rest, |bytes| HeaderValue::Time(i64::from_be_bytes(bytes)))?,
        9 => decode_fixed(rest, HeaderValue::Uuid)?,
        6 | 7 => {
            let (length, rest) = rest.split_first_chunk()?;
            let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let value = if *kind == 6 {
                HeaderValue::Bytes(bytes)
            } else {
                HeaderValue::Text(std::str::from_utf8(bytes).ok()?)
            };
            (value, rest)
        }
        _ => return None,
    };
    Some(((name, value), rest))
}

/// Decodes a value of fixed length.
fn decode_fixed<'a, const N: usize>(
    bytes: &'a [u8],
    value: impl FnOnce([u8; N]) -> HeaderValue<'a>,
) -> Option<(HeaderValue<'a>, &'a [u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((value(*number), rest))
}

/// Returns the number at the start, or 0 if there are not enough bytes.
fn read_u32(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
