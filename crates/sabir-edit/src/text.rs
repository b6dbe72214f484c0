//! Files as text, without loss: what a file's bytes say, and how to write other words in the same way.
//!
//! Supported: UTF-8 and UTF-16, with or without a byte order mark; the encodings of the web's past (Windows, ISO 8859, KOI8,
//! Shift JIS, EUC, GBK, Big5 and the like), recognised by their bytes; UTF-8 with a few bytes that are none.
//!
//! Unsupported: bytes that are not text, see [`NotText`]; encodings whose bytes mean different things behind an escape.
//!
//! As implemented: an encoding counts only when writing what was read gives the very same bytes, so that no guess can damage a
//! file: at worst its words look wrong. UTF-8 comes first. UTF-16 without a mark must be half ASCII. A byte that is no UTF-8
//! is shown as a character of private use, from U+10FF80 on, if the file has more characters of several bytes than such
//! bytes. NUL is in no text, other control characters are in UTF-8 only.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{EncoderResult, WINDOWS_1252};

/// The content of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText {
    /// What it says, line endings as they are, the byte order mark left out.
    pub content: String,
    /// How it is written in bytes.
    pub encoding: TextEncoding,
}

/// How text is written in bytes. `decode` then `encode` gives the same bytes for every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextEncoding {
    /// UTF-8.
    Utf8,
    /// UTF-8 behind a byte order mark.
    Utf8Mark,
    /// UTF-8 with stray bytes, each shown as the character U+10FF00 plus its value.
    Utf8Stray,
    /// UTF-16, the low byte first, behind a byte order mark.
    Utf16LeMark,
    /// UTF-16, the high byte first, behind a byte order mark.
    Utf16BeMark,
    /// UTF-16, the low byte first.
    Utf16Le,
    /// UTF-16, the high byte first.
    Utf16Be,
    /// An older encoding.
    Legacy(LegacyEncoding),
}

/// An encoding from before Unicode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyEncoding(&'static encoding_rs::Encoding);

/// Why bytes are no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotText {
    /// They hold a NUL, or are in no encoding that is known.
    #[error("it is binary: byte {at} is none that text has")]
    Binary {
        /// The first byte that says so, counted from 0.
        at: usize,
    },
}

/// A character that an encoding does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{character:?} cannot be written in {encoding}, in which the file is")]
pub struct NotInEncoding {
    /// The character.
    pub character: char,
    /// The encoding's name.
    pub encoding: &'static str,
}

const MARK: &[u8] = b"\xef\xbb\xbf";
const MARK_LE: &[u8] = b"\xff\xfe";
const MARK_BE: &[u8] = b"\xfe\xff";
/// What a stray byte is added to.
const STRAY: u32 = 0x0010_ff00;
/// Shorter files are not taken for UTF-16 without a mark.
const MIN_UNMARKED_BYTES: usize = 8;
/// Fewer bytes beyond ASCII do not tell one older encoding from another.
const MIN_TELLING_BYTES: usize = 6;

impl DecodedText {
    /// Reads bytes as text.
    ///
    /// # Errors
    /// [`NotText`] for bytes that no supported encoding gives back unchanged.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotText> {
        let marked = [
            (MARK, TextEncoding::Utf8Mark),
            (MARK_LE, TextEncoding::Utf16LeMark),
            (MARK_BE, TextEncoding::Utf16BeMark),
        ];
        let mark = marked.into_iter().find(|(mark, _)| bytes.starts_with(mark));
        if let Some((mark, encoding)) = mark
            && let Some(content) = bytes.strip_prefix(mark).and_then(|rest| encoding.decode_unmarked(rest))
        {
            return Ok(Self { content, encoding });
        }
        let nul = bytes.iter().position(|byte| *byte == 0);
        if mark.is_some_and(|(_, encoding)| encoding != TextEncoding::Utf8Mark) {
            return Err(NotText::Binary { at: nul.unwrap_or_default() });
        }
        if let Some(at) = nul {
            return detect_utf16(bytes).ok_or(NotText::Binary { at });
        }
        let error = match std::str::from_utf8(bytes) {
            Ok(content) => return Ok(Self { content: content.to_owned(), encoding: TextEncoding::Utf8 }),
            Err(error) => error,
        };
        let text = decode_stray(bytes).or_else(|| decode_legacy(bytes));
        text.filter(|text| text.encoding.encode(&text.content).as_deref() == Ok(bytes))
            .ok_or(NotText::Binary { at: error.valid_up_to() })
    }
}

impl TextEncoding {
    /// The name that people know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Mark => "UTF-8 with a byte order mark",
            Self::Utf8Stray => "UTF-8 with stray bytes",
            Self::Utf16LeMark => "UTF-16LE with a byte order mark",
            Self::Utf16BeMark => "UTF-16BE with a byte order mark",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Legacy(LegacyEncoding(encoding)) => encoding.name(),
        }
    }

    /// Writes text in this encoding.
    ///
    /// # Errors
    /// The first character that it does not have.
    pub fn encode(self, content: &str) -> Result<Vec<u8>, NotInEncoding> {
        let units = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
            let mut all = mark.to_vec();
            content.encode_utf16().for_each(|unit| all.extend(bytes(unit)));
            Ok(all)
        };
        match self {
            Self::Utf8 => Ok(content.as_bytes().to_vec()),
            Self::Utf8Mark => Ok([MARK, content.as_bytes()].concat()),
            Self::Utf8Stray => {
                let mut bytes = Vec::with_capacity(content.len());
                for c in content.chars() {
                    match stray_byte(c) {
                        Some(byte) => bytes.push(byte),
                        None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                Ok(bytes)
            }
            Self::Utf16LeMark => units(MARK_LE, u16::to_le_bytes),
            Self::Utf16BeMark => units(MARK_BE, u16::to_be_bytes),
            Self::Utf16Le => units(b"", u16::to_le_bytes),
            Self::Utf16Be => units(b"", u16::to_be_bytes),
            Self::Legacy(LegacyEncoding(encoding)) => encode_legacy(encoding, content),
        }
    }

    /// What bytes without a mark say, if that is text.
    fn decode_unmarked(self, bytes: &[u8]) -> Option<String> {
        let units = |unit: fn([u8; 2]) -> u16| {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        };
        let text = match self {
            Self::Utf16LeMark | Self::Utf16Le => units(u16::from_le_bytes),
            Self::Utf16BeMark | Self::Utf16Be => units(u16::from_be_bytes),
            _ => std::str::from_utf8(bytes).ok().map(str::to_owned),
        };
        text.filter(|text| !text.contains('\0'))
    }
}

/// UTF-16 without a mark: what the other order of bytes would make of ASCII is no text.
fn detect_utf16(bytes: &[u8]) -> Option<DecodedText> {
    if bytes.len() < MIN_UNMARKED_BYTES {
        return None;
    }
    [TextEncoding::Utf16Le, TextEncoding::Utf16Be].into_iter().find_map(|encoding| {
        let content = encoding.decode_unmarked(bytes)?;
        let ascii = content.chars().filter(char::is_ascii).count();
        // What begins with a mark would be read as marked, and without it, the next time.
        let is_text = ascii * 4 >= bytes.len() && is_clean(&content) && !content.starts_with(['\u{feff}', '\u{fffe}']);
        is_text.then_some(DecodedText { content, encoding })
    })
}

/// UTF-8 of which a few bytes are none.
fn decode_stray(bytes: &[u8]) -> Option<DecodedText> {
    let mut content = String::with_capacity(bytes.len());
    let (mut wide, mut strays) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        wide += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        strays += chunk.invalid().len();
        content.push_str(chunk.valid());
        content.extend(chunk.invalid().iter().filter_map(|byte| char::from_u32(STRAY + u32::from(*byte))));
    }
    // A text that has these characters itself would not come back.
    let own = content.chars().filter(|c| stray_byte(*c).is_some()).count();
    (wide >= strays && own == strays && is_clean(&content))
        .then_some(DecodedText { content, encoding: TextEncoding::Utf8Stray })
}

fn stray_byte(c: char) -> Option<u8> {
    u32::from(c).checked_sub(STRAY).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| *byte >= 0x80)
}

/// What an older encoding says: the one that is likeliest, else the commonest; this first where there is little to go by.
fn decode_legacy(bytes: &[u8]) -> Option<DecodedText> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    let likeliest = detector.guess(None, Utf8Detection::Deny);
    let telling = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    let order = if telling < MIN_TELLING_BYTES { [WINDOWS_1252, likeliest] } else { [likeliest, WINDOWS_1252] };
    order.into_iter().find_map(|encoding| {
        let content = encoding.decode_without_bom_handling_and_without_replacement(bytes)?;
        let is_same = encode_legacy(encoding, &content).as_deref() == Ok(bytes);
        let text = || DecodedText {
            content: content.clone().into_owned(),
            encoding: TextEncoding::Legacy(LegacyEncoding(encoding)),
        };
        (is_same && is_clean(&content)).then(text)
    })
}

fn encode_legacy(encoding: &'static encoding_rs::Encoding, content: &str) -> Result<Vec<u8>, NotInEncoding> {
    let mut encoder = encoding.new_encoder();
    let mut bytes = Vec::new();
    let mut rest = content;
    loop {
        // The size that is asked for suffices, so the encoder never stops for want of room.
        let size = encoder.max_buffer_length_from_utf8_without_replacement(rest.len()).unwrap_or(rest.len());
        bytes.reserve(size);
        let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut bytes, true);
        match result {
            EncoderResult::InputEmpty => return Ok(bytes),
            EncoderResult::Unmappable(character) => {
                return Err(NotInEncoding { character, encoding: encoding.name() });
            }
            EncoderResult::OutputFull => rest = rest.get(read..).unwrap_or_default(),
        }
    }
}

/// Whether a text has no control characters but those of layout, of which bytes that are no text are full.
fn is_clean(content: &str) -> bool {
    content.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1b}'))
}

#[cfg(test)]
mod tests;
