//! Tracks the boundaries of requests in a connection, outside of hyper.
//!
//! A request with both `Content-Length` and `Transfer-Encoding` may be read differently by a proxy
//! in front, which allows request smuggling. RFC 9112 (6.1) allows a server to ignore the former,
//! and hyper does that; here such a request is refused, which needs a look at the heads before
//! hyper sees them.

/// The largest head in bytes. hyper answers longer ones with 431.
pub(crate) const MAX_HEAD: usize = 64 << 10;

/// The largest number of headers, the same as hyper's.
const MAX_HEADERS: usize = 100;

/// A tracker of the requests in a connection.
#[derive(Debug)]
pub(crate) struct RequestFraming {
    /// The position in the current request.
    state: FramingState,
    /// True if a request has begun on this connection.
    used: bool,
}

/// The position in a request.
#[derive(Debug)]
enum FramingState {
    /// In a head, with its bytes so far.
    Head(Vec<u8>),
    /// In a body, with the number of bytes left.
    Body(u64),
    /// In the line with the size of the next chunk: the size so far, and whether its digits have
    /// ended.
    Size(u64, bool),
    /// In a chunk, with the number of bytes left, its line end included.
    Chunk(u64),
    /// In the trailers after the last chunk, with the length of the current line.
    Trailer(usize),
    /// The position is unknown.
    Lost,
}

/// The phase of a connection, as far as the client's sending is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// Before the first request.
    New,
    /// Between two requests.
    Idle,
    /// In the middle of a head.
    Head,
    /// In the middle of a body, or at an unknown position.
    Body,
}

impl RequestFraming {
    /// Makes a tracker for a new connection.
    pub(crate) fn new() -> Self {
        Self {
            state: FramingState::Head(Vec::new()),
            used: false,
        }
    }

    /// Returns the phase, on which the time limit depends.
    pub(crate) fn phase(&self) -> ConnectionPhase {
        match &self.state {
            FramingState::Head(bytes) if bytes.is_empty() && self.used => ConnectionPhase::Idle,
            FramingState::Head(bytes) if bytes.is_empty() => ConnectionPhase::New,
            FramingState::Head(_) => ConnectionPhase::Head,
            _ => ConnectionPhase::Body,
        }
    }

    /// Takes the bytes that were read. Returns false if the end of a request is unknown; nothing
    /// that follows may be answered then.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                FramingState::Head(_) => self.read_head(bytes),
                FramingState::Body(left) | FramingState::Chunk(left) => {
                    let taken = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    *left -= taken as u64;
                    if *left == 0 {
                        let whole = matches!(self.state, FramingState::Body(_));
                        self.state = if whole {
                            FramingState::Head(Vec::new())
                        } else {
                            FramingState::Size(0, false)
                        };
                    }
                    taken
                }
                FramingState::Size(..) | FramingState::Trailer(_) => {
                    let taken = bytes
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .map_or(bytes.len(), |at| at + 1);
                    self.read_line(bytes.get(..taken).unwrap_or_default());
                    taken
                }
                FramingState::Lost => return false,
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        !matches!(self.state, FramingState::Lost)
    }

    /// Takes bytes of a head, and returns their number.
    fn read_head(&mut self, bytes: &[u8]) -> usize {
        let FramingState::Head(head) = &mut self.state else {
            return 0;
        };
        // Empty lines before a request are ignored (RFC 9112, 2.2).
        let blank = if head.is_empty() {
            bytes
                .iter()
                .take_while(|byte| matches!(byte, b'\r' | b'\n'))
                .count()
        } else {
            0
        };
        let bytes = bytes.get(blank..).unwrap_or_default();
        let known = head.len();
        self.used |= !bytes.is_empty();
        head.extend_from_slice(bytes);
        // The end may be split over two reads, so the search starts two bytes back.
        let Some(end) = find_head_end(head, known.saturating_sub(2)) else {
            // hyper refuses such a head and closes the connection.
            if head.len() > MAX_HEAD {
                self.state = FramingState::Lost;
            }
            return blank + bytes.len();
        };
        let head = std::mem::take(head);
        self.state = body_after(head.get(..end).unwrap_or_default());
        blank + end - known
    }

    /// Takes a piece of a line, up to and including its line feed if there is one.
    fn read_line(&mut self, piece: &[u8]) {
        let ended = piece.last() == Some(&b'\n');
        match &mut self.state {
            FramingState::Size(size, over) => {
                for byte in piece {
                    match char::from(*byte).to_digit(16).filter(|_| !*over) {
                        Some(digit) => {
                            // A size that overflows is clamped, so the rest of the connection is
                            // treated as one chunk.
                            *size = size.saturating_mul(16).saturating_add(u64::from(digit))
                        }
                        None => *over = true,
                    }
                }
                if ended {
                    let size = *size;
                    self.state = if size == 0 {
                        FramingState::Trailer(0)
                    } else {
                        FramingState::Chunk(size.saturating_add(2))
                    };
                }
            }
            FramingState::Trailer(length) => {
                *length += piece
                    .iter()
                    .filter(|byte| !matches!(byte, b'\r' | b'\n'))
                    .count();
                if ended {
                    self.state = if *length == 0 {
                        FramingState::Head(Vec::new())
                    } else {
                        FramingState::Trailer(0)
                    };
                }
            }
            _ => {}
        }
    }
}

/// Finds the end of a head, which is after an empty line. The search starts at `from`.
fn find_head_end(head: &[u8], from: usize) -> Option<usize> {
    let lines = head
        .iter()
        .enumerate()
        .skip(from)
        .filter(|(_, byte)| **byte == b'\n');
    lines
        .map(|(at, _)| at + 1)
        .find_map(|next| match head.get(next..)? {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        })
}

/// Returns true if a line of the head ends without a carriage return.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let mut before = None;
    head.iter().any(|byte| {
        let bare = *byte == b'\n' && before != Some(b'\r');
        before = Some(*byte);
        bare
    })
}

/// Determines the state after a head.
fn body_after(head: &[u8]) -> FramingState {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    // A bare line feed ends a line for hyper, and none for some proxies (RFC 9112, 2.2).
    if has_bare_line_feed(head) {
        return FramingState::Lost;
    }
    // hyper refuses a head that it cannot parse, and closes the connection.
    if !request.parse(head).is_ok_and(|status| status.is_complete()) {
        return FramingState::Lost;
    }
    let named = |name: &'static str| {
        request
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value.trim_ascii())
    };
    let length = named("content-length").next().map(std::str::from_utf8);
    let coded = named("transfer-encoding").next().is_some();
    // Repeated headers, even with equal values, and other codings can be interpreted in two ways.
    let is_clear = named("content-length").count() < 2
        && named("transfer-encoding").count() < 2
        && named("transfer-encoding").all(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    // Both headers: the smuggling case of the module's description.
    match (length, coded) {
        (Some(_), true) => FramingState::Lost,
        _ if !is_clear => FramingState::Lost,
        (None, true) => FramingState::Size(0, false),
        (None, false) => FramingState::Head(Vec::new()),
        (Some(length), false) => match length.ok().and_then(|length| length.parse().ok()) {
            // No body: the next byte begins a head.
            Some(0) => FramingState::Head(Vec::new()),
            Some(length) => FramingState::Body(length),
            None => FramingState::Lost,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POST: &str = "POST /v1/messages HTTP/1.1\r\nHost: x\r\n";

    /// Checks in every split of these bytes whether all request boundaries are found, and the
    /// phase after them.
    fn check(bytes: &str, fine: bool, phase: ConnectionPhase) {
        for size in [1, 2, 3, 7, bytes.len().max(1)] {
            let mut framing = RequestFraming::new();
            let all = bytes
                .as_bytes()
                .chunks(size)
                .all(|piece| framing.feed(piece));
            assert_eq!((all, framing.phase()), (fine, phase), "{size}: {bytes:?}");
        }
    }

    #[test]
    fn pipelined_requests_are_separated() {
        check("", true, ConnectionPhase::New);
        check("\r\n", true, ConnectionPhase::New);
        check("PO", true, ConnectionPhase::Head);
        check(&format!("{POST}\r\n"), true, ConnectionPhase::Idle);
        check(
            &format!("{POST}Content-Length: 3\r\n\r\nab"),
            true,
            ConnectionPhase::Body,
        );
        check(
            &format!("{POST}Content-Length: 3\r\n\r\nabc"),
            true,
            ConnectionPhase::Idle,
        );
        check(
            &format!("{POST}Content-Length: 3\r\n\r\nabc{POST}"),
            true,
            ConnectionPhase::Head,
        );
        let chunked = format!("{POST}Transfer-Encoding: chunked\r\n\r\n");
        check(
            &format!("{chunked}3\r\nabc\r\n"),
            true,
            ConnectionPhase::Body,
        );
        check(
            &format!("{chunked}3;x=f\r\nabc\r\n0\r\n\r\n"),
            true,
            ConnectionPhase::Idle,
        );
        check(
            &format!("{chunked}a\r\n0\r\n\r\nGET \r\n0\r\nx: y\r\n\r\n{POST}"),
            true,
            ConnectionPhase::Head,
        );
    }

    #[test]
    fn a_repeated_content_length_is_invalid() {
        let both = [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding: x\r\ncontent-length: 0\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: x\r\n",
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "X: y\nContent-Length: 2\r\n",
        ];
        for both in both {
            check(&format!("{POST}{both}\r\n"), false, ConnectionPhase::Body);
            check(
                &format!("{POST}\r\n{POST}{both}\r\n"),
                false,
                ConnectionPhase::Body,
            );
            check(
                &format!("{POST}Content-Length: 2\r\n\r\nab{POST}{both}\r\n"),
                false,
                ConnectionPhase::Body,
            );
            check(
                &format!("{POST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{POST}{both}\r\n"),
                false,
                ConnectionPhase::Body,
            );
        }
        check(
            &format!("{POST}Content-Length: x\r\n\r\n"),
            false,
            ConnectionPhase::Body,
        );
        check("nonsense\r\n\r\n", false, ConnectionPhase::Body);
    }

    proptest! {
        #[test]
        fn any_bytes_are_framed_without_panic(bytes: Vec<u8>, size in 1_usize..9) {
            let mut framing = RequestFraming::new();
            bytes.chunks(size).for_each(|piece| _ = framing.feed(piece));
        }

        #[test]
        fn a_body_is_never_read_as_a_head(body in "[ -~\r\n]{0,80}", chunked: bool, size in 1_usize..20) {
            let request = if chunked {
                let chunks = body.as_bytes().chunks(7).map(|chunk| (chunk.len(), String::from_utf8_lossy(chunk)));
                let chunks: String = chunks.map(|(size, chunk)| format!("{size:x}\r\n{chunk}\r\n")).collect();
                format!("{POST}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
            } else {
                format!("{POST}Content-Length: {}\r\n\r\n{body}", body.len())
            };
            let mut framing = RequestFraming::new();
            for _ in 0..2 {
                prop_assert!(request.as_bytes().chunks(size).all(|piece| framing.feed(piece)));
                prop_assert_eq!(framing.phase(), ConnectionPhase::Idle);
            }
        }
    }
}
