//! Tracks where the frames of a client begin and end (RFC 6455, 5.2).
//!
//! The reader of messages does not tell how many bytes it has read ahead. Its buffers can only be
//! replaced while nothing is in them.

/// The longest head of a frame: two bytes, eight of a length and four of a mask.
const MAX_HEAD: usize = 14;

/// The bit of the first byte that marks the last frame of a message.
const FINAL: u8 = 0x80;

/// The bits of the first byte with the kind of the frame.
const OPCODE: u8 = 0x0f;

/// The first of the kinds of control frames, which may come between the frames of a message.
const FIRST_CONTROL: u8 = 0x08;

/// The bit of the second byte that marks a mask.
const MASKED: u8 = 0x80;

/// Tracks the frames in a stream of bytes. It does not check them: the reader of messages does.
#[derive(Debug, Default)]
pub(crate) struct FrameTracker {
    /// The bytes of the head of a frame, as far as they are there.
    head: [u8; MAX_HEAD],
    /// The number of these bytes.
    head_length: usize,
    /// The bytes of the frame's content that are missing.
    missing: u64,
    /// True if a message has begun whose last frame is not there yet.
    is_fragmented: bool,
}

impl FrameTracker {
    /// Reads the next bytes.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            let content = usize::try_from(self.missing).unwrap_or(usize::MAX);
            let content = content.min(bytes.len());
            self.missing -= content as u64;
            bytes = bytes.get(content..).unwrap_or_default();
            let Some((byte, rest)) = bytes.split_first() else {
                return;
            };
            bytes = rest;
            if let Some(next) = self.head.get_mut(self.head_length) {
                *next = *byte;
            }
            self.head_length += 1;
            self.finish_head();
        }
    }

    /// Returns true if the bytes end with a whole message or a control frame between two messages.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.head_length == 0 && self.missing == 0 && !self.is_fragmented
    }

    /// Begins the content of a frame if its head is complete.
    fn finish_head(&mut self) {
        let [first, second, length @ ..] = &self.head;
        let length_bytes = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if second & MASKED == 0 { 0 } else { 4 };
        if self.head_length < 2 || self.head_length < 2 + length_bytes + mask_bytes {
            return;
        }
        self.missing = match length_bytes {
            0 => u64::from(second & !MASKED),
            _ => length
                .iter()
                .take(length_bytes)
                .fold(0, |all, byte| all << 8 | u64::from(*byte)),
        };
        if first & OPCODE < FIRST_CONTROL {
            self.is_fragmented = first & FINAL == 0;
        }
        self.head_length = 0;
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

    use super::*;

    /// Encodes a frame of a client.
    fn frame(opcode: OpCode, length: usize, is_final: bool) -> Vec<u8> {
        let head = FrameHeader {
            is_final,
            opcode,
            mask: Some([1, 2, 3, 4]),
            ..FrameHeader::default()
        };
        let mut bytes = Vec::new();
        head.format(length as u64, &mut bytes).unwrap();
        bytes.extend(vec![0x81; length]);
        bytes
    }

    #[test]
    fn only_ends_of_messages_are_between_messages() {
        let text = OpCode::Data(Data::Text);
        let rest = OpCode::Data(Data::Continue);
        let ping = OpCode::Control(Control::Ping);
        // Each frame with whether a message ends with it.
        let frames = [
            (frame(text, 0, true), true),
            (frame(text, 125, true), true),
            (frame(text, 126, true), true),
            (frame(text, 1 << 16, true), true),
            (frame(text, 3, false), false),
            (frame(ping, 4, true), false),
            (frame(rest, 200, false), false),
            (frame(rest, 0, true), true),
            (frame(ping, 0, true), true),
        ];
        let all: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.clone()).collect();
        let mut ends = vec![0];
        let mut length = 0;
        for (frame, is_end) in &frames {
            length += frame.len();
            if *is_end {
                ends.push(length);
            }
        }
        for step in [1, 2, 7, 13, 4096] {
            let mut tracker = FrameTracker::default();
            let mut fed = 0;
            for piece in all.chunks(step) {
                tracker.feed(piece);
                fed += piece.len();
                assert_eq!(tracker.is_between_messages(), ends.contains(&fed), "{fed}");
            }
        }
    }
}
