//! Decodes the bytes of a terminal in raw mode: keys, pastes and changes of focus.
//!
//! The decoder is pure, so that tests feed it bytes. It understands the legacy keys of xterm and its descendants, the
//! modified ones, and those of the keyboard protocol with `u`. A paste may have any size and any chunks. Of a terminal that
//! marks no pastes, a line break that other input follows in the same read counts as pasted: no person types that fast.

/// The end of a bracketed paste.
const PASTE_END: &[u8] = b"\x1b[201~";
/// The longest escape sequence that is understood; a longer one is dropped.
const MAX_SEQUENCE: usize = 64;

/// A key without its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyCode {
    /// A key that writes this character.
    Char(char),
    /// Enter.
    Enter,
    /// Tab.
    Tab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Escape.
    Escape,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// The arrow to the left.
    Left,
    /// The arrow to the right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
}

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The key.
    pub code: KeyCode,
    /// True with Ctrl.
    pub control: bool,
    /// True with Alt.
    pub alt: bool,
    /// True with Shift, if the terminal reports it.
    pub shift: bool,
}

impl Key {
    /// Creates a key without modifiers.
    pub const fn plain(code: KeyCode) -> Self {
        Self {
            code,
            control: false,
            alt: false,
            shift: false,
        }
    }

    /// Creates a key with Ctrl.
    pub const fn control(c: char) -> Self {
        Self {
            control: true,
            ..Self::plain(KeyCode::Char(c))
        }
    }

    /// Creates a key with Alt.
    pub const fn alt(code: KeyCode) -> Self {
        Self {
            alt: true,
            ..Self::plain(code)
        }
    }

    /// Returns the character that the key writes; `None` for a key that does something.
    pub fn written_char(self) -> Option<char> {
        match self.code {
            KeyCode::Char(c) if !self.control && !self.alt => Some(c),
            _ => None,
        }
    }
}

/// An input of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalInput {
    /// A key was pressed.
    Key(Key),
    /// A text was pasted, with its line breaks as line feeds.
    Paste(String),
    /// The terminal gained (true) or lost the focus.
    Focus(bool),
}

/// Decodes terminal input, read by read.
#[derive(Debug, Default)]
pub struct KeyDecoder {
    /// The bytes of an incomplete character or escape sequence.
    pending: Vec<u8>,
    /// The bytes of a paste that is not complete.
    paste: Option<Vec<u8>>,
    /// True if the last byte was a carriage return, whose line feed is skipped.
    after_return: bool,
}

impl KeyDecoder {
    /// Decodes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<TerminalInput> {
        let mut inputs = Vec::new();
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            if let Some(paste) = &mut self.paste {
                // Whole spans are copied, so that a long paste costs little.
                let span = rest
                    .iter()
                    .position(|byte| *byte == b'~')
                    .map_or(rest.len(), |at| at + 1);
                let (taken, after) = rest.split_at(span);
                paste.extend_from_slice(taken);
                rest = after;
                if paste.ends_with(PASTE_END) {
                    self.end_paste(&mut inputs);
                }
                continue;
            }
            rest = after;
            self.take_byte(*byte, !rest.is_empty(), &mut inputs);
        }
        inputs
    }

    /// Returns true if an Escape key may be waiting for more bytes.
    pub fn has_open_escape(&self) -> bool {
        self.paste.is_none() && self.pending.first() == Some(&0x1b)
    }

    /// Decodes the pending bytes because no more have arrived: an Escape key, or a truncated sequence.
    pub fn finish_escape(&mut self) -> Option<TerminalInput> {
        if !self.has_open_escape() {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        let key = match pending.as_slice() {
            [_] => Key::plain(KeyCode::Escape),
            [_, b'['] => Key::alt(KeyCode::Char('[')),
            [_, b'O'] => Key::alt(KeyCode::Char('O')),
            _ => return None,
        };
        Some(TerminalInput::Key(key))
    }

    fn take_byte(&mut self, byte: u8, has_more: bool, inputs: &mut Vec<TerminalInput>) {
        let after_return = std::mem::take(&mut self.after_return);
        if self.pending.is_empty() {
            match byte {
                b'\n' if after_return => {}
                b'\r' | b'\n' if has_more => {
                    self.after_return = byte == b'\r';
                    inputs.push(TerminalInput::Paste("\n".to_owned()));
                }
                b'\r' => {
                    self.after_return = true;
                    inputs.push(TerminalInput::Key(Key::plain(KeyCode::Enter)));
                }
                0x1b | 0x80.. => self.pending.push(byte),
                _ => inputs.push(TerminalInput::Key(decode_byte(byte))),
            }
            return;
        }
        // Escape twice is two keys, not a sequence.
        if self.pending == [0x1b] && byte == 0x1b {
            inputs.push(TerminalInput::Key(Key::plain(KeyCode::Escape)));
            return;
        }
        self.pending.push(byte);
        if self.pending.first() == Some(&0x1b) {
            self.continue_sequence(inputs);
        } else {
            self.continue_character(inputs);
        }
    }

    fn end_paste(&mut self, inputs: &mut Vec<TerminalInput>) {
        let Some(mut bytes) = self.paste.take() else {
            return;
        };
        bytes.truncate(bytes.len().saturating_sub(PASTE_END.len()));
        let text = String::from_utf8_lossy(&bytes);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        inputs.push(TerminalInput::Paste(text));
    }

    fn continue_character(&mut self, inputs: &mut Vec<TerminalInput>) {
        let expected = match self.pending.first() {
            Some(0xc0..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..=0xf7) => 4,
            _ => 1,
        };
        let is_broken = self
            .pending
            .last()
            .is_none_or(|byte| !(0x80..0xc0).contains(byte));
        if self.pending.len() >= expected || is_broken {
            let bytes = std::mem::take(&mut self.pending);
            let text = String::from_utf8_lossy(&bytes);
            let keys = text
                .chars()
                .map(|c| TerminalInput::Key(Key::plain(KeyCode::Char(c))));
            inputs.extend(keys);
        }
    }

    fn continue_sequence(&mut self, inputs: &mut Vec<TerminalInput>) {
        let is_complete = match self.pending.as_slice() {
            [_, b'[' | b'O'] => false,
            [_, b'O', ..] => true,
            [_, b'[', .., last] => (0x40..0x7f).contains(last),
            [_, 0xc0..=0xdf, rest @ ..] => !rest.is_empty(),
            [_, 0xe0..=0xef, rest @ ..] => rest.len() >= 2,
            [_, 0xf0..=0xff, rest @ ..] => rest.len() >= 3,
            _ => true,
        };
        if !is_complete {
            if self.pending.len() > MAX_SEQUENCE {
                self.pending.clear();
            }
            return;
        }
        let sequence = std::mem::take(&mut self.pending);
        match sequence.get(1..).unwrap_or_default() {
            b"[200~" => self.paste = Some(Vec::new()),
            b"[I" => inputs.push(TerminalInput::Focus(true)),
            b"[O" => inputs.push(TerminalInput::Focus(false)),
            [b'[', parameters @ .., end] => {
                inputs.extend(decode_control_sequence(parameters, *end).map(TerminalInput::Key));
            }
            [b'O', end] => {
                inputs.extend(decode_control_sequence(b"", *end).map(TerminalInput::Key))
            }
            [byte] => {
                let key = decode_byte(*byte);
                inputs.push(TerminalInput::Key(Key { alt: true, ..key }));
            }
            _ => {}
        }
    }
}

/// Decodes one byte of ASCII as a key.
fn decode_byte(byte: u8) -> Key {
    match byte {
        b'\r' | b'\n' => Key::plain(KeyCode::Enter),
        b'\t' => Key::plain(KeyCode::Tab),
        0x7f | 0x08 => Key::plain(KeyCode::Backspace),
        0x1b => Key::plain(KeyCode::Escape),
        0 => Key::control(' '),
        0x1c..=0x1f => Key::control(char::from(byte | 0x40)),
        0x01..=0x1a => Key::control(char::from(byte | 0x60)),
        _ => Key::plain(KeyCode::Char(char::from(byte))),
    }
}

/// Decodes a control sequence; `None` if it is not a key.
fn decode_control_sequence(parameters: &[u8], end: u8) -> Option<Key> {
    let text = std::str::from_utf8(parameters).ok()?;
    let mut numbers = text
        .split(';')
        .map(|part| part.split(':').next().and_then(|n| n.parse::<u32>().ok()));
    let first = numbers.next().flatten();
    let modifiers = numbers.next().flatten().unwrap_or(1).saturating_sub(1);
    let third = numbers.next().flatten();
    let code = match (end, first) {
        (b'A', _) => KeyCode::Up,
        (b'B', _) => KeyCode::Down,
        (b'C', _) => KeyCode::Right,
        (b'D', _) => KeyCode::Left,
        (b'H', _) => KeyCode::Home,
        (b'F', _) => KeyCode::End,
        (b'M', None) => KeyCode::Enter,
        (b'Z', _) => {
            return Some(Key {
                shift: true,
                ..Key::plain(KeyCode::Tab)
            });
        }
        (b'~', Some(1 | 7)) => KeyCode::Home,
        (b'~', Some(4 | 8)) => KeyCode::End,
        (b'~', Some(3)) => KeyCode::Delete,
        (b'~', Some(5)) => KeyCode::PageUp,
        (b'~', Some(6)) => KeyCode::PageDown,
        // xterm's form of other modified keys.
        (b'~', Some(27)) => code_of_number(third?)?,
        (b'u', Some(number)) => code_of_number(number)?,
        _ => return None,
    };
    Some(Key {
        code,
        shift: modifiers & 1 != 0,
        alt: modifiers & 2 != 0,
        control: modifiers & 4 != 0,
    })
}

fn code_of_number(number: u32) -> Option<KeyCode> {
    Some(match number {
        13 | 57414 => KeyCode::Enter,
        9 => KeyCode::Tab,
        27 => KeyCode::Escape,
        127 | 8 => KeyCode::Backspace,
        _ => KeyCode::Char(char::from_u32(number).filter(|c| !c.is_control())?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Vec<TerminalInput> {
        KeyDecoder::default().feed(bytes)
    }

    fn key(key: Key) -> Vec<TerminalInput> {
        vec![TerminalInput::Key(key)]
    }

    #[test]
    fn keys_are_decoded() {
        assert_eq!(decode(b"a"), key(Key::plain(KeyCode::Char('a'))));
        assert_eq!(decode("ü".as_bytes()), key(Key::plain(KeyCode::Char('ü'))));
        assert_eq!(decode(b"\x01"), key(Key::control('a')));
        assert_eq!(decode(b"\x1f"), key(Key::control('_')));
        assert_eq!(decode(b"\x1b[A"), key(Key::plain(KeyCode::Up)));
        assert_eq!(decode(b"\x1bOA"), key(Key::plain(KeyCode::Up)));
        assert_eq!(decode(b"\x1bb"), key(Key::alt(KeyCode::Char('b'))));
        assert_eq!(decode(b"\x1b\r"), key(Key::alt(KeyCode::Enter)));
        assert_eq!(decode(b"\x1b\x7f"), key(Key::alt(KeyCode::Backspace)));
        let shifted = Key {
            shift: true,
            ..Key::plain(KeyCode::Enter)
        };
        assert_eq!(decode(b"\x1b[13;2u"), key(shifted));
        assert_eq!(decode(b"\x1b[27;2;13~"), key(shifted));
        let moved = Key {
            control: true,
            ..Key::plain(KeyCode::Left)
        };
        assert_eq!(decode(b"\x1b[1;5D"), key(moved));
        assert_eq!(
            decode(b"\x1b[I\x1b[O"),
            [TerminalInput::Focus(true), TerminalInput::Focus(false)]
        );
        assert_eq!(decode(b"\x1b[99;99R"), []);
    }

    #[test]
    fn a_lone_escape_waits_for_more() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(decoder.feed(b"\x1b"), []);
        assert!(decoder.has_open_escape());
        assert_eq!(
            decoder.finish_escape(),
            Some(TerminalInput::Key(Key::plain(KeyCode::Escape)))
        );
        assert_eq!(decoder.feed(b"\x1b"), []);
        assert_eq!(decoder.feed(b"[A"), key(Key::plain(KeyCode::Up)));
    }

    #[test]
    fn a_paste_is_whole_in_any_chunks() {
        let body = "a~b\r\n\tü\rc\x1b[31m".repeat(100);
        let expected = "a~b\n\tü\nc\x1b[31m".repeat(100);
        let bytes = format!("\x1b[200~{body}\x1b[201~");
        for size in [1, 2, 3, 5, 64, bytes.len()] {
            let mut decoder = KeyDecoder::default();
            let inputs: Vec<_> = bytes
                .as_bytes()
                .chunks(size)
                .flat_map(|chunk| decoder.feed(chunk))
                .collect();
            assert_eq!(inputs, [TerminalInput::Paste(expected.clone())], "{size}");
        }
    }

    #[test]
    fn a_line_break_within_a_read_is_pasted() {
        let inputs = decode(b"a\rb\r");
        assert_eq!(
            inputs,
            [
                TerminalInput::Key(Key::plain(KeyCode::Char('a'))),
                TerminalInput::Paste("\n".to_owned()),
                TerminalInput::Key(Key::plain(KeyCode::Char('b'))),
                TerminalInput::Key(Key::plain(KeyCode::Enter)),
            ]
        );
    }
}
