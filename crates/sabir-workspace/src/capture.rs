//! Captures output of any length within a limit: its beginning and its end.

use std::collections::VecDeque;

use crate::terminal_text::TerminalTextConverter;

/// The beginning and the end of some output as plain text, and the amount missing in between.
///
/// Plain text is what a screen would show: without colours, and a line that was rewritten appears
/// once, in its last form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedOutput {
    /// The first bytes of the output.
    pub head: Vec<u8>,
    /// The number of bytes left out between head and tail.
    pub omitted_bytes: u64,
    /// The last bytes; empty if nothing was left out.
    pub tail: Vec<u8>,
    /// The number of lines of the whole output; a last line without an ending counts.
    pub lines: u64,
}

impl CapturedOutput {
    /// Returns the output as text, invalid UTF-8 replaced, with a separate line where something was
    /// left out.
    #[must_use]
    pub fn text(&self) -> String {
        match self.omitted_bytes {
            0 => decode_printable(&self.head),
            omitted => self.text_with_gap_line(&format!("[… {omitted} bytes left out …]")),
        }
    }

    /// Returns the output as text like [`text`](Self::text), with `line` where something was left
    /// out.
    #[must_use]
    pub fn text_with_gap_line(&self, line: &str) -> String {
        let head = decode_printable(&self.head);
        if self.omitted_bytes == 0 {
            return head;
        }
        let end = if head.is_empty() || head.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        format!("{head}{end}{line}\n{}", decode_printable(&self.tail))
    }

    /// Returns the size of the whole output in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.head.len() as u64 + self.omitted_bytes + self.tail.len() as u64
    }
}

/// Decodes text, replacing invalid bytes and removing the control characters that UTF-8 encodes in
/// two bytes.
pub(crate) fn decode_printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let control = |c: char| matches!(c, '\u{80}'..='\u{9f}');
    if text.contains(control) {
        text.replace(control, "")
    } else {
        text.into_owned()
    }
}

/// A collector of output that holds at most head, tail and one screen.
pub(crate) struct OutputCapture {
    plain: TerminalTextConverter,
    ends: HeadTail,
}

impl OutputCapture {
    pub(crate) fn new(head_max: usize, tail_max: usize) -> Self {
        let head = Vec::new();
        let tail = VecDeque::new();
        Self {
            plain: TerminalTextConverter::new(),
            ends: HeadTail {
                head,
                tail,
                omitted: 0,
                head_max,
                tail_max,
                newlines: 0,
                open: false,
            },
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.plain.push(bytes, &mut |text| self.ends.push(text));
    }

    /// Returns the number of lines so far.
    pub(crate) fn line_count(&self) -> u64 {
        let (newlines, open) = self.plain.pending_lines();
        let open = open || newlines == 0 && self.ends.open;
        self.ends.newlines + newlines as u64 + u64::from(open)
    }

    pub(crate) fn finish(mut self) -> CapturedOutput {
        self.plain.finish(&mut |text| self.ends.push(text));
        self.ends.finish()
    }
}

/// The beginning and the end of a text.
#[derive(Debug)]
struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
    head_max: usize,
    tail_max: usize,
    newlines: u64,
    /// True if the last line has no ending yet.
    open: bool,
}

impl HeadTail {
    fn push(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.open = *last != b'\n';
        self.newlines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        let (skipped, last) = rest.split_at(rest.len().saturating_sub(self.tail_max));
        self.omitted += skipped.len() as u64;
        // A deque keeps the last `tail_max` bytes without moving them.
        let surplus = (self.tail.len() + last.len()).saturating_sub(self.tail_max);
        self.tail.drain(..surplus);
        // What leaves the tail was shown nowhere, so it counts as left out.
        self.omitted += surplus as u64;
        self.tail.extend(last);
    }

    /// Joins both parts if nothing is missing; otherwise trims both to whole characters.
    fn finish(mut self) -> CapturedOutput {
        let lines = self.newlines + u64::from(self.open);
        let mut tail: Vec<u8> = self.tail.into();
        if self.omitted == 0 {
            self.head.append(&mut tail);
            return CapturedOutput {
                head: self.head,
                omitted_bytes: 0,
                tail,
                lines,
            };
        }
        let before = self.head.len() + tail.len();
        self.head.truncate(whole_characters(&self.head).len());
        // A UTF-8 character has at most three continuation bytes, so the tail loses at most those.
        let continuation = tail
            .iter()
            .take(3)
            .take_while(|&&byte| byte & 0xc0 == 0x80)
            .count();
        tail.drain(..continuation);
        let omitted_bytes = self.omitted + (before - self.head.len() - tail.len()) as u64;
        CapturedOutput {
            head: self.head,
            omitted_bytes,
            tail,
            lines,
        }
    }
}

/// Returns the bytes without a character that is cut off at the end. Bytes that are not UTF-8 stay
/// as they are.
pub(crate) fn whole_characters(bytes: &[u8]) -> &[u8] {
    let back = bytes
        .iter()
        .rev()
        .take(3)
        .take_while(|&&byte| byte & 0xc0 == 0x80)
        .count();
    let Some((start, _)) = bytes
        .len()
        .checked_sub(back + 1)
        .and_then(|at| bytes.split_at_checked(at))
    else {
        return bytes;
    };
    let lead = bytes.get(start.len()).copied().unwrap_or_default();
    let wanted = match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return bytes,
    };
    if back + 1 < wanted { start } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &str) {
        let lines = pieces.concat().lines().count() as u64;
        let mut capture = OutputCapture::new(8, 4);
        for piece in pieces {
            capture.push(piece.as_bytes());
        }
        assert_eq!(capture.line_count(), lines);
        let captured = capture.finish();
        assert_eq!(captured.text(), expected);
        assert_eq!(
            (captured.total_bytes(), captured.lines),
            (pieces.concat().len() as u64, lines)
        );
    }

    #[test]
    fn head_and_tail_are_kept() {
        check(&[], "");
        check(&["abc"], "abc");
        check(&["abcdefgh", "ijkl"], "abcdefghijkl");
        check(
            &["abcdefgh", "ijklm"],
            "abcdefgh\n[… 1 bytes left out …]\njklm",
        );
        check(
            &["abcdefghijklmnopqrstuvwxyz"],
            "abcdefgh\n[… 14 bytes left out …]\nwxyz",
        );
        check(
            &["12\n", "\n45678\n0", "123\n", "56"],
            "12\n\n4567\n[… 5 bytes left out …]\n3\n56",
        );
        check(
            &["a", "bcdefghij", "klmno", "p"],
            "abcdefgh\n[… 4 bytes left out …]\nmnop",
        );
    }

    #[test]
    fn characters_are_never_split() {
        check(
            &["1234567é", "xxxxxx", "é678"],
            "1234567\n[… 10 bytes left out …]\n678",
        );
        check(
            &["12345é8", "x", "abcd"],
            "12345é8\n[… 1 bytes left out …]\nabcd",
        );
    }

    #[test]
    fn whole_character_ends() {
        for (bytes, expected) in [
            (&b"a\xc3"[..], 1),
            (b"a\xc3\xa9", 3),
            (b"\xf0\x9f\x98", 0),
            (b"\xff", 1),
            (b"", 0),
        ] {
            assert_eq!(whole_characters(bytes).len(), expected, "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn chunks_do_not_change_the_capture(text in "[aé😀]{0,30}", at in 0_usize..60) {
            let bytes = text.as_bytes();
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            let mut whole = OutputCapture::new(8, 4);
            let mut parts = OutputCapture::new(8, 4);
            whole.push(bytes);
            parts.push(first);
            parts.push(second);
            assert_eq!(whole.finish(), parts.finish());
        }
    }
}
