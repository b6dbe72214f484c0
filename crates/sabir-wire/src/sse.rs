//! Decodes and encodes server-sent events.
//!
//! # Supported
//! The event stream format of the WHATWG HTML standard: LF, CRLF and CR line ends split anywhere, a
//! byte order mark, comments, `data` over several lines, `event`, `id` and `retry`. Invalid UTF-8
//! is replaced by U+FFFD once per event, never because a chunk ended inside a character.
//!
//! # Unsupported
//! Reconnecting: a model's response cannot be resumed. An id that contains NUL is ignored, as the
//! standard says.
//!
//! # Grammar as implemented
//! ```text
//! stream  = [BOM] *event
//! event   = *(comment / field) end            ; delivered at the blank line, if it has a data field
//! comment = ":" *any end
//! field   = name [":" [" "] *any] end          ; name: data / event / id / retry, others are skipped
//! end     = LF / CR LF / CR
//! ```
//! One deviation: [`SseDecoder::finish`] delivers a last event without a blank line after it.
//! Providers do leave the line out, and the event's reader can tell a complete JSON text from half
//! of one.
//!
//! Every byte is searched once for a line end and copied at most once; an event that lies in one
//! chunk is borrowed from it.

use std::borrow::Cow;
use std::mem;

/// The maximum number of bytes of one event's data, or of one line: 16 MiB. Anything longer becomes
/// [`SseEvent::TooLong`].
pub const MAX_EVENT: usize = 16 << 20;

/// One event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseEvent<'a> {
    /// A message.
    Message {
        /// The `event` field; empty if there was none.
        name: &'a str,
        /// The `data` lines, joined by line feeds.
        data: &'a str,
        /// The last `id` field of the stream so far; empty if there was none.
        id: &'a str,
    },
    /// The server's request to wait this many milliseconds before reconnecting.
    Retry(u64),
    /// An event above [`MAX_EVENT`], which was dropped.
    TooLong,
}

/// An incremental decoder without I/O. Memory is bounded by twice [`MAX_EVENT`].
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// The unfinished line of the last chunk.
    line: Vec<u8>,
    /// The data of the event so far, starting at `data_start`.
    data: Vec<u8>,
    /// The offset of the data in its buffer, which may begin with `data: ` of a line that was
    /// carried over.
    data_start: usize,
    /// True once the event has a `data` field, which may be empty.
    has_data: bool,
    /// The `event` field of the event so far.
    name: Vec<u8>,
    /// The `id` field, which stays for later events.
    id: Vec<u8>,
    /// True after the start of the first line, which may begin with a byte order mark.
    begun: bool,
    /// True if the last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// True if the event's data was too long and was dropped.
    too_long: bool,
    /// True if the unfinished line was too long and was dropped.
    line_dropped: bool,
}

/// The byte order mark, which some servers send at the start of a stream.
const BOM: &[u8] = b"\xef\xbb\xbf";

impl SseDecoder {
    /// Creates a decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the next bytes and delivers every event that they complete.
    ///
    /// `out` is called during this call only, and in the order of the stream. Its event borrows
    /// from the chunk or from the decoder.
    pub fn push(&mut self, chunk: &[u8], out: &mut impl FnMut(SseEvent<'_>)) {
        let mut rest = chunk;
        // The event's data while it is a single line of this chunk: borrowed, not copied.
        let mut held: Option<&[u8]> = None;
        // The CR at the end of the last chunk may have been the first half of a CR LF.
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            let is_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();
            if is_cr {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            if self.line.is_empty() && !self.line_dropped {
                self.process_line(line, &mut held, out);
            } else {
                self.carried_line(line, &mut held, out);
            }
        }
        if let Some(data) = held {
            self.append_data(data);
        }
        self.carry_line(rest);
    }

    /// Delivers the unfinished rest of the stream. The decoder can be used again afterwards.
    ///
    /// The rest counts as an event even without its blank line, see the module.
    pub fn finish(&mut self, out: &mut impl FnMut(SseEvent<'_>)) {
        if !self.line.is_empty() || self.line_dropped {
            self.carried_line(b"", &mut None, out);
        }
        self.dispatch_event(None, out);
        *self = Self::default();
    }

    /// Keeps the unfinished line for the next chunk.
    fn carry_line(&mut self, rest: &[u8]) {
        if rest.is_empty() || self.line_dropped {
            return;
        }
        // The rest of the line is skipped, and its event is reported as too long.
        if self.line.len() + rest.len() > MAX_EVENT {
            self.line_dropped = true;
            self.line = Vec::new();
            return;
        }
        self.line.extend_from_slice(rest);
    }

    /// Completes the unfinished line with `tail` and reads it.
    fn carried_line(
        &mut self,
        tail: &[u8],
        held: &mut Option<&[u8]>,
        out: &mut impl FnMut(SseEvent<'_>),
    ) {
        self.carry_line(tail);
        if mem::take(&mut self.line_dropped) {
            self.begun = true;
            self.drop_event();
            return;
        }
        let line = mem::take(&mut self.line);
        let skip = if self.begun || !line.starts_with(BOM) {
            0
        } else {
            BOM.len()
        };
        let body = line.get(skip..).unwrap_or_default();
        match data_value(body) {
            // The line's buffer becomes the data buffer: this saves a second copy.
            Some(value) if !self.has_data && held.is_none() => {
                self.begun = true;
                let start = line.len() - value.len();
                self.line = mem::replace(&mut self.data, line);
                self.line.clear();
                self.data_start = start;
                self.has_data = true;
            }
            _ => {
                // Data is copied, since it cannot borrow from the decoder's own buffer. Other
                // fields are read in place.
                if let Some(first) = held.take() {
                    self.append_data(first);
                }
                let mut own = None;
                self.process_line(&line, &mut own, out);
                if let Some(data) = own {
                    self.append_data(data);
                }
                self.line = line;
                self.line.clear();
            }
        }
    }

    /// Reads one line without its end.
    fn process_line<'c>(
        &mut self,
        mut line: &'c [u8],
        held: &mut Option<&'c [u8]>,
        out: &mut impl FnMut(SseEvent<'_>),
    ) {
        if line.len() > MAX_EVENT {
            self.begun = true;
            *held = None;
            self.drop_event();
            return;
        }
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch_event(held.take(), out);
        } else if let Some(value) = data_value(line) {
            if !self.has_data && held.is_none() {
                *held = Some(value);
            } else {
                if let Some(first) = held.take() {
                    self.append_data(first);
                }
                self.append_data(value);
            }
        } else {
            self.process_other_field(line, out);
        }
    }

    /// Reads a field other than `data`. Unknown fields are skipped.
    fn process_other_field(&mut self, line: &[u8], out: &mut impl FnMut(SseEvent<'_>)) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (line.get(..colon), line.get(colon + 1..)),
            None => (Some(line), None),
        };
        let value = value.unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            Some(b"event") => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // The standard ignores an id with a NUL.
            Some(b"id") if memchr::memchr(0, value).is_none() => {
                self.id.clear();
                self.id.extend_from_slice(value);
            }
            Some(b"retry") => {
                // `parse` alone would also accept a plus sign.
                let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(value)
                    .ok()
                    .filter(|_| digits)
                    .and_then(|text| text.parse().ok());
                if let Some(milliseconds) = number {
                    out(SseEvent::Retry(milliseconds));
                }
            }
            _ => {}
        }
    }

    /// Adds a `data` line to the event.
    fn append_data(&mut self, value: &[u8]) {
        if self.too_long {
            return;
        }
        let known = self.data.len() - self.data_start;
        // One byte more for the line feed between lines.
        if known + value.len() + 1 > MAX_EVENT {
            self.drop_event();
            return;
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    /// Drops the data of the event, which is then reported as too long.
    fn drop_event(&mut self) {
        self.too_long = true;
        self.data = Vec::new();
        self.data_start = 0;
    }

    /// Delivers the event at its blank line, if it has a data field.
    fn dispatch_event(&mut self, held: Option<&[u8]>, out: &mut impl FnMut(SseEvent<'_>)) {
        if mem::take(&mut self.too_long) {
            out(SseEvent::TooLong);
        } else if self.has_data || held.is_some() {
            let data = held
                .or_else(|| self.data.get(self.data_start..))
                .unwrap_or_default();
            let name = lossy_text(&self.name);
            let id = lossy_text(&self.id);
            out(SseEvent::Message {
                name: &name,
                data: &lossy_text(data),
                id: &id,
            });
        }
        self.name.clear();
        self.data.clear();
        self.data_start = 0;
        self.has_data = false;
    }
}

/// Encodes one event: `event` if there is a name, then one `data` field per line, then the blank
/// line.
///
/// Line ends inside `data` become LF for the reader; a name ends at its first line end.
///
/// A provider's text thus cannot end its event early, nor begin a field of its own.
pub fn encode_event(name: &str, data: &str, out: &mut Vec<u8>) {
    if let Some(name) = name
        .split(['\r', '\n'])
        .next()
        .filter(|name| !name.is_empty())
    {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    let mut rest = data.as_bytes();
    loop {
        let end = memchr::memchr2(b'\n', b'\r', rest);
        let (line, tail) = rest.split_at(end.unwrap_or(rest.len()));
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
        if end.is_none() {
            break;
        }
        let tail = tail.strip_prefix(b"\r").unwrap_or(tail);
        rest = tail.strip_prefix(b"\n").unwrap_or(tail);
    }
    out.push(b'\n');
}

/// Returns the value of a `data` line, without the one space that may follow the colon.
fn data_value(line: &[u8]) -> Option<&[u8]> {
    let value = match line.strip_prefix(b"data")? {
        [] => &[],
        [b':', value @ ..] => value,
        _ => return None,
    };
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Returns the bytes as text with invalid UTF-8 replaced.
pub(crate) fn lossy_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
