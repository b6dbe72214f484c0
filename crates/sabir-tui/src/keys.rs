//! Decodes the bytes of a terminal in raw mode: keys, pastes and changes of focus.
//!
//! The decoder is pure, so that tests feed it bytes. It understands the legacy keys of xterm and its descendants, the
//! modified ones, and those of the keyboard protocol with `u`. A paste may have any chunks, and up to 16 MiB. Of a terminal that
//! marks no pastes, a line break that other input follows in the same read counts as pasted: no person types that fast.

pub use sabir_session::config::key_bindings::{Key, KeyCode};

/// The end of a bracketed paste.
const PASTE_END: &[u8] = b"\x1b[201~";
/// The maximum number of bytes of a paste. The rest of a longer one is dropped, not read as keys: it may contain line breaks, which would
/// send messages.
const MAX_PASTE: usize = 16 << 20;
/// The end of a paste of which the rest was dropped.
const CUT_NOTE: &str = "\n[the paste was cut here: more than 16 MiB]\n";
/// The beginning of an answer about a colour.
const ANSWER_START: &[u8] = b"\x1b]1";
/// The longest escape sequence that is understood; a longer one is dropped.
const MAX_SEQUENCE: usize = 64;

/// The colour of a terminal's background, each part from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackgroundColor {
    /// Red.
    pub red: f64,
    /// Green.
    pub green: f64,
    /// Blue.
    pub blue: f64,
}

impl BackgroundColor {
    /// Returns true if dark text is readable on it.
    pub fn is_light(self) -> bool {
        // The parts as bright as they seem to the eye.
        0.2126 * self.red + 0.7152 * self.green + 0.0722 * self.blue > 0.5
    }

    /// Parses the answer to a query: `rgb:ffff/ffff/ffff`, with one to four digits a part.
    fn parse(text: &str) -> Option<Self> {
        let parts = text
            .strip_prefix("rgb:")
            .or_else(|| text.strip_prefix("rgba:"))?;
        let mut parts = parts.split('/').map(|digits| {
            let number = u16::from_str_radix(digits, 16).ok()?;
            let bits = u32::try_from(digits.len()).ok()?.checked_mul(4)?;
            let most = 1_u32.checked_shl(bits)?.saturating_sub(1);
            Some(f64::from(number) / f64::from(most.max(1)))
        });
        Some(Self {
            red: parts.next()??,
            green: parts.next()??,
            blue: parts.next()??,
        })
    }
}

/// An input of a terminal.
#[derive(Debug, Clone, PartialEq)]
pub enum TerminalInput {
    /// A key was pressed.
    Key(Key),
    /// A text was pasted, with its line breaks as line feeds.
    Paste(String),
    /// The terminal gained (true) or lost the focus.
    Focus(bool),
    /// The terminal answered a query for the colour of its background.
    Background(BackgroundColor),
}

/// Decodes terminal input, read by read.
#[derive(Debug, Default)]
pub struct KeyDecoder {
    /// The bytes of an incomplete character or escape sequence.
    pending: Vec<u8>,
    /// The bytes of a paste that is not complete.
    paste: Option<Vec<u8>>,
    /// True if the paste was too long, and its rest is dropped.
    is_cut: bool,
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
                    paste.truncate(paste.len() - PASTE_END.len());
                    inputs.extend(self.finish_paste());
                } else if self.is_cut {
                    // Enough to find the end.
                    paste.drain(..paste.len().saturating_sub(PASTE_END.len()));
                } else if paste.len() > MAX_PASTE + PASTE_END.len() {
                    let rest = paste.split_off(MAX_PASTE);
                    let text = paste_text(&std::mem::replace(paste, rest));
                    inputs.push(TerminalInput::Paste(text + CUT_NOTE));
                    self.is_cut = true;
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
        // The rest of an answer comes, however late: it must not be mistaken for typed text.
        let is_answer = self.pending.starts_with(ANSWER_START);
        self.paste.is_none() && self.pending.first() == Some(&0x1b) && !is_answer
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
            [_, b']'] => Key::alt(KeyCode::Char(']')),
            _ => return None,
        };
        Some(TerminalInput::Key(key))
    }

    /// Returns true if the end of a paste has not arrived yet.
    pub fn has_open_paste(&self) -> bool {
        self.paste.is_some()
    }

    /// Ends an open paste, because its end has come or nothing more has arrived. Otherwise all further keys would count as a part of it.
    pub fn finish_paste(&mut self) -> Option<TerminalInput> {
        let bytes = self.paste.take()?;
        // Its text was given out when it was cut.
        let is_cut = std::mem::take(&mut self.is_cut);
        (!is_cut).then(|| TerminalInput::Paste(paste_text(&bytes)))
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
        // A person who presses Alt-] types on, and the terminal answers with a number.
        if self.pending == *b"\x1b]" && byte != b'1' {
            self.pending.clear();
            inputs.push(TerminalInput::Key(Key::alt(KeyCode::Char(']'))));
            return self.take_byte(byte, has_more, inputs);
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
            [_, b'[' | b'O' | b']'] => false,
            [_, b']', .., last] => *last == 0x07 || self.pending.ends_with(b"\x1b\\"),
            [_, b'O', ..] => true,
            [_, b'[', .., last] => (0x40..0x7f).contains(last),
            [_, 0xc0..=0xdf, rest @ ..] => !rest.is_empty(),
            [_, 0xe0..=0xef, rest @ ..] => rest.len() >= 2,
            [_, 0xf0..=0xff, rest @ ..] => rest.len() >= 3,
            _ => true,
        };
        if !is_complete {
            // If the end of an answer is lost, typed text counts as part of the answer, so its
            // length is limited.
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
            [b']', answer @ ..] => inputs.extend(decode_answer(answer)),
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

/// Returns the text of a paste, with its line breaks as line feeds.
fn paste_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Decodes one byte of ASCII as a key.
fn decode_byte(byte: u8) -> Key {
    match byte {
        b'\r' => Key::plain(KeyCode::Enter),
        // In raw mode Enter is a carriage return.
        b'\n' => Key::control('j'),
        b'\t' => Key::plain(KeyCode::Tab),
        0x7f | 0x08 => Key::plain(KeyCode::Backspace),
        0x1b => Key::plain(KeyCode::Escape),
        0 => Key::control(' '),
        0x1c..=0x1f => Key::control(char::from(byte | 0x40)),
        0x01..=0x1a => Key::control(char::from(byte | 0x60)),
        _ => Key::plain(KeyCode::Char(char::from(byte))),
    }
}

/// Decodes the terminal's answer to a query, with its end; `None` if it is not about the background.
fn decode_answer(answer: &[u8]) -> Option<TerminalInput> {
    let text = std::str::from_utf8(answer).ok()?;
    let color = text.strip_prefix("11;")?;
    let color = color.trim_end_matches(['\x07', '\\', '\x1b']);
    BackgroundColor::parse(color).map(TerminalInput::Background)
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
        (b'P', _) => KeyCode::Function(1),
        (b'Q', _) => KeyCode::Function(2),
        // A cursor report ends with `R`, too, and has a row.
        (b'R', None | Some(1)) => KeyCode::Function(3),
        (b'S', _) => KeyCode::Function(4),
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
        (b'~', Some(number @ 11..=24)) => KeyCode::Function(function_number(number)?),
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

/// Returns the function key of a number in `CSI number ~`, which leaves out some numbers.
fn function_number(number: u32) -> Option<u8> {
    let key = match number {
        11..=15 => number - 10,
        17..=21 => number - 11,
        23 | 24 => number - 12,
        _ => return None,
    };
    u8::try_from(key).ok()
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
        assert_eq!(decode(b"\n"), key(Key::control('j')));
        for (bytes, number) in [
            (&b"\x1bOP"[..], 1),
            (b"\x1b[15~", 5),
            (b"\x1b[17~", 6),
            (b"\x1b[24~", 12),
        ] {
            assert_eq!(decode(bytes), key(Key::plain(KeyCode::Function(number))));
        }
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
    fn the_color_of_the_background_is_decoded_in_any_chunks() {
        for (answer, is_light) in [
            ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\", true),
            ("\x1b]11;rgb:1e/1e/2e\x07", false),
            ("\x1b]11;rgba:f/f/0/0\x07", true),
        ] {
            for size in 1..=answer.len() {
                let mut decoder = KeyDecoder::default();
                let chunks = answer.as_bytes().chunks(size);
                let inputs: Vec<_> = chunks.flat_map(|chunk| decoder.feed(chunk)).collect();
                let [TerminalInput::Background(color)] = inputs.as_slice() else {
                    panic!("{answer:?} in {size}: {inputs:?}");
                };
                assert_eq!(color.is_light(), is_light);
                assert_eq!(decoder.feed(b"a"), key(Key::plain(KeyCode::Char('a'))));
            }
        }
        for answer in [
            "\x1b]11;none\x07",
            "\x1b]10;rgb:0/0/0\x07",
            "\x1b]11;rgb:/\x07",
        ] {
            assert_eq!(decode(answer.as_bytes()), [], "{answer:?}");
        }
        // The key stays a key.
        let alt = TerminalInput::Key(Key::alt(KeyCode::Char(']')));
        let plain = TerminalInput::Key(Key::plain(KeyCode::Char('x')));
        assert_eq!(decode(b"\x1b]x"), [alt.clone(), plain]);
        let mut decoder = KeyDecoder::default();
        assert_eq!(decoder.feed(b"\x1b]"), []);
        assert_eq!(decoder.finish_escape(), Some(alt));
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
    fn a_paste_without_an_end_ends() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(decoder.feed(b"\x1b[200~a\rb"), []);
        assert!(decoder.has_open_paste());
        let paste = TerminalInput::Paste("a\nb".to_owned());
        assert_eq!(decoder.finish_paste(), Some(paste));
        assert_eq!(decoder.finish_paste(), None);
        assert_eq!(decoder.feed(b"c"), key(Key::plain(KeyCode::Char('c'))));
        // An end that comes late after all is no key.
        assert_eq!(decoder.feed(PASTE_END), []);
    }

    #[test]
    fn a_paste_that_is_too_long_is_cut() {
        let most = vec![b'a'; MAX_PASTE];
        let whole = [b"\x1b[200~", most.as_slice(), PASTE_END].concat();
        let cut = [b"\x1b[200~", most.as_slice(), b"rest of it\r~ and more\r"].concat();
        for size in [1 << 16, whole.len()] {
            let mut decoder = KeyDecoder::default();
            let mut feed = |bytes: &[u8]| -> Vec<TerminalInput> {
                let chunks = bytes.chunks(size);
                chunks.flat_map(|chunk| decoder.feed(chunk)).collect()
            };
            let length = |inputs: &[TerminalInput]| match inputs {
                [TerminalInput::Paste(text)] => text.len(),
                _ => panic!("{} inputs", inputs.len()),
            };
            assert_eq!(length(&feed(&whole)), MAX_PASTE);
            assert_eq!(length(&feed(&cut)), MAX_PASTE + CUT_NOTE.len());
            assert_eq!(feed(&[b'~'; 5000]), []);
            assert_eq!(feed(b"!rm\r"), []);
            assert_eq!(feed(PASTE_END), []);
            assert_eq!(feed(b"c"), key(Key::plain(KeyCode::Char('c'))));
            assert_eq!(length(&feed(&cut)), MAX_PASTE + CUT_NOTE.len());
            assert!(decoder.paste.as_ref().is_some_and(|kept| kept.len() < 100));
            assert_eq!(decoder.finish_paste(), None);
            assert!(!decoder.has_open_paste());
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
