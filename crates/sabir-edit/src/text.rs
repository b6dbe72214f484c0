//! Decodes the bytes of files as text, without loss, and encodes text in the same encoding.
//!
//! Supported: UTF-8 and UTF-16, with or without a byte order mark; the legacy encodings of the web
//! (Windows, ISO 8859, KOI8, Shift JIS, EUC, GBK, Big5 and similar), detected from the bytes; UTF-8
//! with a few invalid bytes.
//!
//! Unsupported: binary content, see [`NotText`]; stateful encodings with escape sequences
//! (ISO-2022).
//!
//! As implemented: an encoding is accepted only if encoding the decoded text gives the very same
//! bytes, so no wrong guess can damage a file; at worst its characters look wrong. UTF-8 is tried
//! first. UTF-16 without a mark must be half ASCII. An invalid byte is shown as a private-use
//! character, from U+10FF80 on, if the file has at least as many multi-byte characters as invalid
//! bytes. NUL occurs in no text; other control characters besides layout and escape are refused
//! where the encoding was guessed.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{EncoderResult, WINDOWS_1252};

/// The content of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText {
    /// The decoded text, with its line endings, without the byte order mark.
    pub content: String,
    /// The encoding of the file.
    pub encoding: TextEncoding,
}

/// An encoding of text. `decode` then `encode` returns the same bytes for every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextEncoding {
    /// UTF-8.
    Utf8,
    /// UTF-8 after a byte order mark.
    Utf8Bom,
    /// UTF-8 with invalid bytes, each shown as the character U+10FF00 plus its value.
    Utf8Invalid,
    /// UTF-16, little-endian, after a byte order mark.
    Utf16LeBom,
    /// UTF-16, big-endian, after a byte order mark.
    Utf16BeBom,
    /// UTF-16, little-endian.
    Utf16Le,
    /// UTF-16, big-endian.
    Utf16Be,
    /// A legacy encoding.
    Legacy(LegacyEncoding),
}

/// An encoding from before Unicode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyEncoding(&'static encoding_rs::Encoding);

/// The reason that bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotText {
    /// They contain a NUL, or are in no known encoding.
    #[error("it is binary: byte {at} cannot occur in text")]
    Binary {
        /// The offset, from 0, of the first byte that shows it.
        at: usize,
    },
}

/// The error for a character that an encoding cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{character:?} cannot be written in {encoding}, the encoding of the file")]
pub struct UnmappableCharacter {
    /// The character.
    pub character: char,
    /// The encoding's name.
    pub encoding: &'static str,
}

/// The byte order mark in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// The byte order mark in UTF-16, little-endian.
const MARK_LE: &[u8] = b"\xff\xfe";
/// The byte order mark in UTF-16, big-endian.
const MARK_BE: &[u8] = b"\xfe\xff";
/// The code point that an invalid byte's value is added to.
/// The characters from U+10FF80 on are at the very end of plane 16, which is for private use;
/// hardly any text contains them.
const STRAY: u32 = 0x0010_ff00;
/// The size below which files are not taken for UTF-16 without a mark. A few bytes with zeros between them may be UTF-16 or a small binary
/// file.
const MIN_UNMARKED_BYTES: usize = 8;
/// The number of non-ASCII bytes below which detection cannot tell one legacy encoding from
/// another.
const MIN_TELLING_BYTES: usize = 6;

impl DecodedText {
    /// Decodes bytes as text.
    ///
    /// # Errors
    /// [`NotText`] for bytes that no supported encoding reproduces.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotText> {
        let marked = [
            (MARK, TextEncoding::Utf8Bom),
            (MARK_LE, TextEncoding::Utf16LeBom),
            (MARK_BE, TextEncoding::Utf16BeBom),
        ];
        let mark = marked.into_iter().find(|(mark, _)| bytes.starts_with(mark));
        if let Some((mark, encoding)) = mark
            && let Some(content) = bytes
                .strip_prefix(mark)
                .and_then(|rest| encoding.decode_without_bom(rest))
        {
            return Ok(Self { content, encoding });
        }
        let nul = bytes.iter().position(|byte| *byte == 0);
        // A UTF-16 mark with invalid content is binary; a UTF-8 mark may still be followed by stray
        // bytes.
        if mark.is_some_and(|(_, encoding)| encoding != TextEncoding::Utf8Bom) {
            return Err(NotText::Binary {
                at: nul.unwrap_or_default(),
            });
        }
        if let Some(at) = nul {
            // Only UTF-16 has NUL bytes in its text; in every other supported encoding they mean
            // binary.
            return detect_utf16(bytes).ok_or(NotText::Binary { at });
        }
        let error = match std::str::from_utf8(bytes) {
            Ok(content) => {
                return Ok(Self {
                    content: content.to_owned(),
                    encoding: TextEncoding::Utf8,
                });
            }
            Err(error) => error,
        };
        // Stray bytes are tried first: a legacy encoding accepts nearly any bytes, and would garble
        // every multi-byte character of a UTF-8 file.
        let text = decode_stray(bytes).or_else(|| decode_legacy(bytes));
        // The round trip is the safety net: a guess that does not reproduce the file is dropped.
        text.filter(|text| text.encoding.encode(&text.content).as_deref() == Ok(bytes))
            .ok_or(NotText::Binary {
                at: error.valid_up_to(),
            })
    }
}

impl TextEncoding {
    /// Returns the common name of the encoding.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with a byte order mark",
            Self::Utf8Invalid => "UTF-8 with stray bytes",
            Self::Utf16LeBom => "UTF-16LE with a byte order mark",
            Self::Utf16BeBom => "UTF-16BE with a byte order mark",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Legacy(LegacyEncoding(encoding)) => encoding.name(),
        }
    }

    /// Encodes text in this encoding.
    ///
    /// # Errors
    /// [`UnmappableCharacter`] for the first character that the encoding cannot represent.
    pub fn encode(self, content: &str) -> Result<Vec<u8>, UnmappableCharacter> {
        let units = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
            let mut all = mark.to_vec();
            content
                .encode_utf16()
                .for_each(|unit| all.extend(bytes(unit)));
            Ok(all)
        };
        match self {
            Self::Utf8 => Ok(content.as_bytes().to_vec()),
            Self::Utf8Bom => Ok([MARK, content.as_bytes()].concat()),
            Self::Utf8Invalid => {
                let mut bytes = Vec::with_capacity(content.len());
                for c in content.chars() {
                    match stray_byte(c) {
                        Some(byte) => bytes.push(byte),
                        None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                Ok(bytes)
            }
            Self::Utf16LeBom => units(MARK_LE, u16::to_le_bytes),
            Self::Utf16BeBom => units(MARK_BE, u16::to_be_bytes),
            Self::Utf16Le => units(b"", u16::to_le_bytes),
            Self::Utf16Be => units(b"", u16::to_be_bytes),
            Self::Legacy(LegacyEncoding(encoding)) => encode_legacy(encoding, content),
        }
    }

    /// Decodes bytes that follow the mark, or have none, if they are text.
    fn decode_without_bom(self, bytes: &[u8]) -> Option<String> {
        let units = |unit: fn([u8; 2]) -> u16| {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
            // A `String` cannot hold a lone surrogate or an odd byte at the end, so it could not be
            // written back.
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        };
        let text = match self {
            Self::Utf16LeBom | Self::Utf16Le => units(u16::from_le_bytes),
            Self::Utf16BeBom | Self::Utf16Be => units(u16::from_be_bytes),
            _ => std::str::from_utf8(bytes).ok().map(str::to_owned),
        };
        text.filter(|text| !text.contains('\0'))
    }
}

/// Detects UTF-16 without a mark. ASCII read in the wrong byte order contains no ASCII, so at most
/// one order passes.
fn detect_utf16(bytes: &[u8]) -> Option<DecodedText> {
    if bytes.len() < MIN_UNMARKED_BYTES {
        return None;
    }
    [TextEncoding::Utf16Le, TextEncoding::Utf16Be]
        .into_iter()
        .find_map(|encoding| {
            let content = encoding.decode_without_bom(bytes)?;
            let ascii = content.chars().filter(char::is_ascii).count();
            // Text that begins with a mark would be decoded as marked the next time, and lose the
            // mark. A list whose items end with NUL, as of `find -print0`, looks the same if its
            // items have odd lengths; but text has spaces or line ends between its words.
            let has_spaces = content.contains(|c: char| c.is_ascii_whitespace());
            let is_text = ascii * 4 >= bytes.len()
                && has_spaces
                && is_clean(&content)
                && !content.starts_with(['\u{feff}', '\u{fffe}']);
            is_text.then_some(DecodedText { content, encoding })
        })
}

/// Decodes UTF-8 that contains a few invalid bytes.
fn decode_stray(bytes: &[u8]) -> Option<DecodedText> {
    let mut content = String::with_capacity(bytes.len());
    let mut wide = 0;
    let mut strays = 0;
    for chunk in bytes.utf8_chunks() {
        wide += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        strays += chunk.invalid().len();
        content.push_str(chunk.valid());
        content.extend(
            chunk
                .invalid()
                .iter()
                .filter_map(|byte| char::from_u32(STRAY + u32::from(*byte))),
        );
    }
    // A text that contains these private-use characters itself would not survive the round trip.
    let own = content.chars().filter(|c| stray_byte(*c).is_some()).count();
    (wide >= strays && own == strays && is_clean(&content)).then_some(DecodedText {
        content,
        encoding: TextEncoding::Utf8Invalid,
    })
}

/// Returns the invalid byte that a private-use character represents. ASCII bytes are never invalid.
fn stray_byte(c: char) -> Option<u8> {
    u32::from(c)
        .checked_sub(STRAY)
        .and_then(|byte| u8::try_from(byte).ok())
        .filter(|byte| *byte >= 0x80)
}

/// Decodes a legacy encoding: the most likely one, then Windows-1252; in the other order if there are too few bytes to decide.
fn decode_legacy(bytes: &[u8]) -> Option<DecodedText> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    let likeliest = detector.guess(None, Utf8Detection::Deny);
    let telling = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    let order = if telling < MIN_TELLING_BYTES {
        [WINDOWS_1252, likeliest]
    } else {
        [likeliest, WINDOWS_1252]
    };
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

/// Encodes text in a legacy encoding. The encoder's own replacement (`&#8364;`) is never used,
/// since it would put markup into a file unnoticed.
fn encode_legacy(
    encoding: &'static encoding_rs::Encoding,
    content: &str,
) -> Result<Vec<u8>, UnmappableCharacter> {
    let mut encoder = encoding.new_encoder();
    let mut bytes = Vec::new();
    let mut rest = content;
    loop {
        // The reserved size suffices, so the encoder never stops for lack of space.
        let size = encoder
            .max_buffer_length_from_utf8_without_replacement(rest.len())
            .unwrap_or(rest.len());
        bytes.reserve(size);
        let (result, read) =
            encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut bytes, true);
        match result {
            EncoderResult::InputEmpty => return Ok(bytes),
            EncoderResult::Unmappable(character) => {
                return Err(UnmappableCharacter {
                    character,
                    encoding: encoding.name(),
                });
            }
            EncoderResult::OutputFull => rest = rest.get(read..).unwrap_or_default(),
        }
    }
}

/// Returns true if a text has no control characters except those of layout and escape; binary data
/// is full of others.
fn is_clean(content: &str) -> bool {
    content
        .chars()
        .all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1b}'))
}

#[cfg(test)]
mod tests;
