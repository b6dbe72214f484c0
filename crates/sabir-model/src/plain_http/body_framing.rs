//! Finds the end of an HTTP/1.1 response's body, and decodes chunks (RFC 9112, sections 6 and 7).

use reqwest::StatusCode;
use reqwest::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};

/// The most bytes of a chunk's extensions, and of the trailers, which nothing reads.
const MAX_IGNORED_BYTES: u32 = 16 << 10;

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// The status.
    pub(super) status: StatusCode,
    /// True for HTTP/1.0, whose connections close unless the server says otherwise.
    pub(super) is_http_1_0: bool,
    /// The headers.
    pub(super) headers: HeaderMap,
}

/// The framing of a body, and how much of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// `Content-Length`: this many bytes are left.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(ChunkDecoder),
    /// The end of the connection ends the body.
    UntilClose,
}

/// A body that breaks the rules of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FramingError {
    /// The header `content-length` is not one number.
    #[error("its content-length is not a number")]
    ContentLength,
    /// An HTTP/1.0 response has a `Transfer-Encoding`, which HTTP/1.0 does not define: the end of its body is unknown.
    #[error("it has a transfer-encoding, which HTTP/1.0 has not")]
    TransferCodingInHttp10,
    /// The size of a chunk is not a hexadecimal number, or too large.
    #[error("the size of a chunk is not a hexadecimal number")]
    ChunkSize,
    /// A chunk does not end where its size says.
    #[error("a chunk does not end after the bytes of its size")]
    ChunkEnd,
    /// The extensions of a chunk, or the trailers, are too long.
    #[error("the extensions of a chunk or the trailers are longer than 16 KiB")]
    TooLong,
}

/// Decodes a body of chunks incrementally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkDecoder {
    /// The part that the next byte belongs to.
    part: ChunkPart,
    /// In a size, its value so far; in data, the number of bytes that follow.
    left: u64,
    /// The bytes of the chunk's extensions, or of the trailers, so far.
    ignored_bytes: u32,
}

/// The states of the chunk decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPart {
    /// The first digit of a size.
    SizeStart,
    /// Another digit of a size, or what follows it.
    Size,
    /// An extension of a size, up to the end of its line.
    Extension,
    /// The line feed after a size.
    SizeEnd,
    /// The bytes of a chunk.
    Data,
    /// The carriage return after the bytes.
    DataReturn,
    /// The line feed after the bytes.
    DataEnd,
    /// The start of a line after the last chunk.
    TrailerStart,
    /// The rest of a trailer, up to the end of its line.
    Trailer,
    /// The line feed of the empty line at the end.
    LastEnd,
    /// Nothing: the body is complete.
    Complete,
}

impl ResponseHead {
    /// Returns true if the server takes another request on the connection after the body.
    pub(super) fn keeps_connection(&self) -> bool {
        // With both headers, a proxy on the way may have used the other one (request smuggling).
        if self.headers.contains_key(TRANSFER_ENCODING) && self.headers.contains_key(CONTENT_LENGTH)
        {
            return false;
        }
        if self.is_http_1_0 {
            has_token(&self.headers, &CONNECTION, "keep-alive")
        } else {
            !has_token(&self.headers, &CONNECTION, "close")
        }
    }
}

impl BodyFraming {
    /// Finds the framing of the body that follows a head, in response to a POST.
    ///
    /// # Errors
    /// [`FramingError::ContentLength`] or [`FramingError::TransferCodingInHttp10`].
    pub(super) fn from_head(head: &ResponseHead) -> Result<Self, FramingError> {
        if matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        ) {
            return Ok(Self::Length(0));
        }
        // A transfer coding overrides a length. With another last coding than `chunked`, only the
        // end of the connection ends the body.
        if head.headers.contains_key(TRANSFER_ENCODING) {
            if head.is_http_1_0 {
                return Err(FramingError::TransferCodingInHttp10);
            }
            return Ok(if ends_with_chunked(&head.headers) {
                Self::Chunked(ChunkDecoder::new())
            } else {
                Self::UntilClose
            });
        }
        let mut length = None;
        for value in head.headers.get_all(CONTENT_LENGTH) {
            let value = value.to_str().map_err(|_| FramingError::ContentLength)?;
            for number in value.split(',').map(str::trim) {
                let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
                let number: u64 = number.parse().map_err(|_| FramingError::ContentLength)?;
                // `parse` also accepts a plus sign.
                if !is_number || length.is_some_and(|known| known != number) {
                    return Err(FramingError::ContentLength);
                }
                length = Some(number);
            }
        }
        Ok(length.map_or(Self::UntilClose, Self::Length))
    }

    /// Appends the bytes of the body in `input` to `output`, and returns the number of bytes of `input` that
    /// belong to the body. It is less than the length of `input` only if the body is complete.
    ///
    /// # Errors
    /// Chunks that break the rules.
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<usize, FramingError> {
        match self {
            Self::Length(left) => {
                let taken =
                    usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= taken as u64;
                output.extend_from_slice(input.get(..taken).unwrap_or(input));
                Ok(taken)
            }
            Self::Chunked(decoder) => decoder.decode(input, output),
            Self::UntilClose => {
                output.extend_from_slice(input);
                Ok(input.len())
            }
        }
    }

    /// Returns true if no byte of the body is missing. Always false for a body that ends with the connection.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.part == ChunkPart::Complete,
            Self::UntilClose => false,
        }
    }
}

impl ChunkDecoder {
    /// Makes a decoder at the start of a body.
    fn new() -> Self {
        Self {
            part: ChunkPart::SizeStart,
            left: 0,
            ignored_bytes: 0,
        }
    }

    /// Decodes what belongs to the body, see [`BodyFraming::decode`].
    fn decode(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<usize, FramingError> {
        let mut rest = input;
        while let Some((&byte, after)) = rest.split_first() {
            if self.part == ChunkPart::Complete {
                break;
            }
            if self.part == ChunkPart::Data {
                let taken =
                    usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
                self.left -= taken as u64;
                let (data, after) = rest.split_at(taken);
                output.extend_from_slice(data);
                rest = after;
                if self.left == 0 {
                    self.part = ChunkPart::DataReturn;
                }
                continue;
            }
            rest = after;
            self.part = self.next_part(byte)?;
        }
        Ok(input.len() - rest.len())
    }

    /// Returns the part after a byte that is not data.
    fn next_part(&mut self, byte: u8) -> Result<ChunkPart, FramingError> {
        Ok(match (self.part, byte) {
            (ChunkPart::SizeStart | ChunkPart::Size, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let left = self.left.checked_mul(16).ok_or(FramingError::ChunkSize)?;
                self.left = left + u64::from(digit);
                ChunkPart::Size
            }
            (ChunkPart::Size | ChunkPart::Extension, b'\r') => ChunkPart::SizeEnd,
            (ChunkPart::Size, b' ' | b'\t' | b';') => self.skip_byte(ChunkPart::Extension)?,
            // A line feed alone is rejected, because other parsers may take it for the end of the line.
            (ChunkPart::Extension, byte) if byte != b'\n' => {
                self.skip_byte(ChunkPart::Extension)?
            }
            (ChunkPart::SizeEnd, b'\n') => {
                // Some servers pad every size with blanks, in streams of any number of chunks.
                self.ignored_bytes = 0;
                match self.left {
                    0 => ChunkPart::TrailerStart,
                    _ => ChunkPart::Data,
                }
            }
            (ChunkPart::DataReturn, b'\r') => ChunkPart::DataEnd,
            (ChunkPart::DataEnd, b'\n') => ChunkPart::SizeStart,
            (ChunkPart::DataReturn | ChunkPart::DataEnd, _) => return Err(FramingError::ChunkEnd),
            (ChunkPart::TrailerStart, b'\r') => ChunkPart::LastEnd,
            (ChunkPart::Trailer, b'\n') => ChunkPart::TrailerStart,
            (ChunkPart::TrailerStart | ChunkPart::Trailer, _) => {
                self.skip_byte(ChunkPart::Trailer)?
            }
            (ChunkPart::LastEnd, b'\n') => ChunkPart::Complete,
            (ChunkPart::LastEnd, _) => return Err(FramingError::ChunkEnd),
            _ => return Err(FramingError::ChunkSize),
        })
    }

    /// Counts an ignored byte of an extension or a trailer, and returns the state after it.
    fn skip_byte(&mut self, part: ChunkPart) -> Result<ChunkPart, FramingError> {
        self.ignored_bytes += 1;
        if self.ignored_bytes > MAX_IGNORED_BYTES {
            return Err(FramingError::TooLong);
        }
        Ok(part)
    }
}

/// Returns true if `chunked` is the last transfer coding.
fn ends_with_chunked(headers: &HeaderMap) -> bool {
    let last = headers.get_all(TRANSFER_ENCODING).iter().next_back();
    let last = last.and_then(|value| value.to_str().ok());
    let last = last.and_then(|value| value.rsplit(',').next());
    last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
}

/// Returns true if a header with a list of tokens has that token.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut tokens = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    tokens.any(|known| known.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    /// Makes a head of HTTP/1.1 with these headers.
    fn head(status: u16, headers: &[(&'static str, &'static str)]) -> ResponseHead {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        ResponseHead {
            status: StatusCode::from_u16(status).unwrap(),
            is_http_1_0: false,
            headers: map,
        }
    }

    #[test]
    fn the_framing_follows_from_the_head() {
        let chunked = BodyFraming::Chunked(ChunkDecoder::new());
        for (status, headers, expected) in [
            (
                200,
                &[("content-length", "3")][..],
                Ok(BodyFraming::Length(3)),
            ),
            (
                200,
                &[("content-length", "3, 3")],
                Ok(BodyFraming::Length(3)),
            ),
            (
                200,
                &[("content-length", "3"), ("content-length", "4")],
                Err(FramingError::ContentLength),
            ),
            (
                200,
                &[("content-length", "+3")],
                Err(FramingError::ContentLength),
            ),
            (
                200,
                &[("content-length", "")],
                Err(FramingError::ContentLength),
            ),
            (
                200,
                &[("content-length", "99999999999999999999")],
                Err(FramingError::ContentLength),
            ),
            (200, &[("transfer-encoding", "Chunked")], Ok(chunked)),
            (
                200,
                &[
                    ("transfer-encoding", "gzip"),
                    ("transfer-encoding", "chunked"),
                ],
                Ok(chunked),
            ),
            (
                200,
                &[("transfer-encoding", "chunked"), ("content-length", "x")],
                Ok(chunked),
            ),
            (
                200,
                &[("transfer-encoding", "chunked, gzip")],
                Ok(BodyFraming::UntilClose),
            ),
            (200, &[], Ok(BodyFraming::UntilClose)),
            (204, &[], Ok(BodyFraming::Length(0))),
            (304, &[("content-length", "9")], Ok(BodyFraming::Length(0))),
        ] {
            assert_eq!(
                BodyFraming::from_head(&head(status, headers)),
                expected,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn connections_are_kept_as_the_version_and_the_header_say() {
        for (is_http_1_0, headers, expected) in [
            (false, &[][..], true),
            (false, &[("connection", "upgrade, Close")], false),
            (false, &[("transfer-encoding", "chunked")], true),
            (
                false,
                &[("transfer-encoding", "chunked"), ("content-length", "1")],
                false,
            ),
            (true, &[], false),
            (true, &[("connection", "Keep-Alive")], true),
        ] {
            let head = ResponseHead {
                is_http_1_0,
                ..head(200, headers)
            };
            assert_eq!(
                head.keeps_connection(),
                expected,
                "{is_http_1_0} {headers:?}"
            );
        }
    }

    /// Decodes a body of chunks in pieces of that many bytes.
    fn decode_chunks(text: &str, size: usize) -> Result<(String, usize, bool), FramingError> {
        let mut framing = BodyFraming::Chunked(ChunkDecoder::new());
        let mut output = Vec::new();
        let mut used = 0;
        for piece in text.as_bytes().chunks(size) {
            let taken = framing.decode(piece, &mut output)?;
            used += taken;
            if taken < piece.len() {
                break;
            }
        }
        Ok((
            String::from_utf8(output).unwrap(),
            used,
            framing.is_complete(),
        ))
    }

    #[test]
    fn chunks_are_decoded_in_pieces_of_any_size() {
        for (text, body, rest) in [
            ("3\r\nabc\r\n0\r\n\r\n", "abc", ""),
            ("3\r\nabc\r\n0\r\n\r\nHTTP/1.1", "abc", "HTTP/1.1"),
            (
                "a;x=\"1\"\r\n0123456789\r\n00\r\nx: y\r\n\r\n",
                "0123456789",
                "",
            ),
            ("1 \r\n\r\r\n1\r\n\n\r\n0\r\n\r\n", "\r\n", ""),
        ] {
            for size in 1..=text.len() {
                let expected = (body.to_owned(), text.len() - rest.len(), true);
                assert_eq!(decode_chunks(text, size), Ok(expected), "{text:?} {size}");
            }
        }
    }

    #[test]
    fn chunks_that_break_the_rules_are_errors() {
        for (text, expected) in [
            ("\r\n", FramingError::ChunkSize),
            ("x\r\n", FramingError::ChunkSize),
            ("-1\r\n", FramingError::ChunkSize),
            ("3\nabc", FramingError::ChunkSize),
            ("3;a\nabc", FramingError::ChunkSize),
            ("11111111111111111\r\n", FramingError::ChunkSize),
            ("3\r\nabcd\r\n", FramingError::ChunkEnd),
            ("3\r\nabc\rx", FramingError::ChunkEnd),
            ("0\r\n\rx", FramingError::ChunkEnd),
        ] {
            for size in 1..=text.len() {
                assert_eq!(decode_chunks(text, size), Err(expected), "{text:?} {size}");
            }
        }
        for long in [
            format!("1;{}", "x".repeat(20_000)),
            format!("0\r\nx: {}", "y".repeat(20_000)),
        ] {
            assert_eq!(decode_chunks(&long, 100), Err(FramingError::TooLong));
        }
    }

    #[test]
    fn any_number_of_chunks_may_have_extensions() {
        let text = format!("{}0\r\n\r\n", "1   \r\na\r\n1;x=y\r\nb\r\n".repeat(10_000));
        let expected = ("ab".repeat(10_000), text.len(), true);
        assert_eq!(decode_chunks(&text, 1000), Ok(expected));
    }

    #[test]
    fn a_body_without_its_end_is_not_complete() {
        let text = "3\r\nabc\r\n0\r\n\r\n";
        for end in 1..text.len() {
            let (_, used, complete) = decode_chunks(text.get(..end).unwrap(), 4).unwrap();
            assert_eq!((used, complete), (end, false));
        }
    }
}
