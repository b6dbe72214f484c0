//! Writes a streamed response to its client without hyper, to save memory.
//!
//! hyper holds a buffer of 8 KB for writing and one of 8 KB for reading as long as it has a connection, which would be most of the memory
//! of a stream that waits for its model. So a response of unknown length is put into a [`ResponseSlot`]; `serve` takes the connection out of
//! hyper, lets the response be written here, and gives the connection to a new hyper for the next request.
//!
//! The client sees what hyper would write. If it disconnects, the body is dropped at once. The body is polled only when all earlier
//! output was written.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Version, header};
use axum::response::Response;
use http_body::{Body as _, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;

/// The bytes that are gathered from a body before they are written.
const GATHERED_BYTES: usize = 16 << 10;

/// The length from which a piece of a body is written as it is, without a copy.
const LARGE_PIECE: usize = 4 << 10;

/// The bytes that are read at once while a response is written. Few clients send any.
const READ_BYTES: usize = 1 << 10;

/// The bytes of further requests that are kept until the response has ended. If there are more, the
/// client waits.
const MAX_RECEIVED: usize = 16 << 10;

/// The end of a chunk.
const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk of a body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The end of a chunk with data, followed by the last chunk.
const END_AND_LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// The last second that a `date` header can express, the end of the year 9999.
const MAX_DATE: u64 = 253_402_300_799;

/// The place where a streamed response waits until its connection has left hyper. Clones share it.
///
/// It is separate from the state of the connection, because the response refers to that state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseSlot(Arc<Mutex<SlotState>>);

/// The content of a slot.
#[derive(Debug, Default)]
struct SlotState {
    /// True if the response may be written here, in chunks.
    is_streamable: bool,
    /// True if the client wants to send further requests.
    keeps_alive: bool,
    /// True once the body of the request was read to its end.
    is_request_read: bool,
    /// The response.
    response: Option<StreamedResponse>,
}

/// A response whose length is not known.
#[derive(Debug)]
pub(crate) struct StreamedResponse {
    /// The response.
    response: Response,
    /// True if the connection can be used for further requests.
    keeps_alive: bool,
}

/// A connection outside of hyper.
#[derive(Debug)]
pub(crate) struct OpenConnection<S> {
    /// The stream.
    pub(crate) stream: S,
    /// Bytes of further requests, which were read and not used.
    pub(crate) received: Vec<u8>,
}

/// The body of a request, which notes in a slot that it was read.
struct WatchedBody<B> {
    /// The body.
    body: B,
    /// The slot.
    slot: ResponseSlot,
}

impl ResponseSlot {
    /// Locks the content.
    fn lock_state(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request, and tracks whether its body is read to the end.
    pub(crate) fn begin_request<B>(&self, request: Request<B>) -> Request
    where
        B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        *self.lock_state() = SlotState {
            is_streamable: request.version() == Version::HTTP_11
                && *request.method() == Method::POST,
            keeps_alive: !asks_to_close(request.headers()),
            is_request_read: request.body().is_end_stream(),
            response: None,
        };
        let slot = self.clone();
        request.map(|body| Body::new(WatchedBody { body, slot }))
    }

    /// Takes a response, if it is streamed. Returns any other, which hyper writes.
    pub(crate) fn offer_response(&self, response: Response) -> Option<Response> {
        let mut state = self.lock_state();
        // Bytes of a body that was not read would be taken for the next request.
        let is_streamed = state.is_streamable && state.is_request_read && is_streamed(&response);
        if !is_streamed {
            return Some(response);
        }
        let keeps_alive = state.keeps_alive && !asks_to_close(response.headers());
        state.response = Some(StreamedResponse {
            response,
            keeps_alive,
        });
        None
    }

    /// Returns true if a response waits.
    pub(crate) fn has_response(&self) -> bool {
        self.lock_state().response.is_some()
    }

    /// Takes the response out.
    pub(crate) fn take_response(&self) -> Option<StreamedResponse> {
        self.lock_state().response.take()
    }
}

/// Returns true if a `Connection` header asks for the connection to be closed.
fn asks_to_close(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("close"))
}

/// Returns true if a response has a body of unknown length.
fn is_streamed(response: &Response) -> bool {
    let status = response.status();
    let has_body = status.is_success()
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    let body = response.body();
    has_body
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && !response.headers().contains_key(header::CONTENT_LENGTH)
        && !response.headers().contains_key(header::TRANSFER_ENCODING)
}

impl<B: http_body::Body + Unpin> http_body::Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.slot.lock_state().is_request_read = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl StreamedResponse {
    /// Writes the response. Returns the connection if it can be used for a further request; otherwise
    /// it is closed.
    ///
    /// `date` is the current time in seconds since 1970. Once `draining` is true, the connection is
    /// closed after the response.
    // Not an `async fn`, whose future would hold its parameters twice.
    pub(crate) fn write_to<S>(
        self,
        connection: OpenConnection<S>,
        date: u64,
        draining: &watch::Receiver<bool>,
    ) -> impl Future<Output = Option<OpenConnection<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let keeps_alive = self.keeps_alive && !*draining.borrow();
        let head = encode_head(&self.response, keeps_alive, date);
        let mut writer = ResponseWriter {
            connection,
            body: Some(self.response.into_body()),
            is_broken: false,
            output: PendingOutput::new(head),
        };
        async move {
            match poll_fn(|context| writer.poll_response(context)).await {
                ResponseEnd::Complete if keeps_alive && !*draining.borrow() => {
                    return Some(writer.connection);
                }
                ResponseEnd::Complete => {
                    // The client has all of the response, whatever happens to the connection now.
                    _ = writer.connection.stream.shutdown().await;
                }
                // Without a shutdown, which would be a regular end over TLS.
                ResponseEnd::BodyFailed | ResponseEnd::ClientLeft => {}
            }
            None
        }
    }
}

/// Returns the bytes of the status line and the headers, in the form that hyper gives them.
fn encode_head(response: &Response, keeps_alive: bool, date: u64) -> Vec<u8> {
    let status = response.status();
    let headers = response.headers();
    let mut head = Vec::with_capacity(512);
    let mut push = |parts: &[&[u8]]| {
        for part in parts {
            head.extend_from_slice(part);
        }
        head.extend_from_slice(b"\r\n");
    };
    let reason = status.canonical_reason().unwrap_or("<none>");
    push(&[
        b"HTTP/1.1 ",
        status.as_str().as_bytes(),
        b" ",
        reason.as_bytes(),
    ]);
    // The connection and the framing of the body are decided here.
    let kept = headers
        .iter()
        .filter(|(name, _)| !is_framing_header(name.as_str()));
    for (name, value) in kept {
        push(&[name.as_str().as_bytes(), b": ", value.as_bytes()]);
    }
    if !keeps_alive {
        push(&[b"connection: close"]);
    }
    push(&[b"transfer-encoding: chunked"]);
    if !headers.contains_key(header::DATE) {
        let time = UNIX_EPOCH + Duration::from_secs(date.min(MAX_DATE));
        push(&[b"date: ", httpdate::fmt_http_date(time).as_bytes()]);
    }
    push(&[]);
    head
}

/// Returns true for a header that is about the connection, or about the framing of the body.
fn is_framing_header(name: &str) -> bool {
    matches!(
        name,
        "connection" | "content-length" | "keep-alive" | "trailer" | "transfer-encoding"
    )
}

/// The writer of one response.
struct ResponseWriter<S> {
    /// The connection.
    connection: OpenConnection<S>,
    /// The body, until its end.
    body: Option<Body>,
    /// True if the body has ended with an error.
    is_broken: bool,
    /// The bytes that are being written.
    output: PendingOutput,
}

/// A way in which the writing of a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseEnd {
    /// The whole response was written.
    Complete,
    /// The body has failed, so that the last chunk was not written.
    BodyFailed,
    /// The client has closed the connection, or it broke.
    ClientLeft,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ResponseWriter<S> {
    /// Polls the writing, up to its end.
    fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<ResponseEnd> {
        // After the end of the body, the rest is written to a client that has closed its side, too.
        if self.body.is_some() && self.receive_bytes(context).is_err() {
            return Poll::Ready(ResponseEnd::ClientLeft);
        }
        let mut is_waiting = false;
        loop {
            if ready!(self.output.poll_write(&mut self.connection.stream, context)).is_err() {
                return Poll::Ready(ResponseEnd::ClientLeft);
            }
            if self.body.is_none() {
                return Poll::Ready(match self.is_broken {
                    true => ResponseEnd::BodyFailed,
                    false => ResponseEnd::Complete,
                });
            }
            if is_waiting {
                self.output.release_memory();
                return Poll::Pending;
            }
            is_waiting = self.gather_output(context);
        }
    }

    /// Reads bytes that are there already.
    ///
    /// # Errors
    /// The client has closed the connection, or it broke.
    fn receive_bytes(&mut self, context: &mut Context<'_>) -> Result<()> {
        let OpenConnection { stream, received } = &mut self.connection;
        while received.len() < MAX_RECEIVED {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Ok(()),
            }
            if buffer.filled().is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            received.extend_from_slice(buffer.filled());
        }
        Ok(())
    }

    /// Gathers pieces of the body until they are enough for writing. Returns true if the body waits for
    /// its next piece.
    fn gather_output(&mut self, context: &mut Context<'_>) -> bool {
        while !self.output.is_full() {
            let Some(body) = &mut self.body else {
                return false;
            };
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else {
                return true;
            };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => {
                    let is_last = body.is_end_stream();
                    self.output.push_piece(piece, is_last);
                    if is_last {
                        self.body = None;
                    }
                }
                Some(Err(_)) => {
                    self.body = None;
                    self.is_broken = true;
                }
                // Trailers end a body. They are not sent: no response announces trailers.
                Some(Ok(Err(_))) | None => {
                    self.body = None;
                    self.output.push_piece(Bytes::new(), true);
                }
            }
        }
        false
    }
}

/// Bytes that are being written, in this order.
#[derive(Debug)]
struct PendingOutput {
    /// The head, small chunks, and the size of the large one.
    bytes: Vec<u8>,
    /// The number of those that were written.
    written: usize,
    /// The content of the large chunk.
    large: Bytes,
    /// The bytes after the large chunk.
    end: &'static [u8],
    /// True if the stream is flushed.
    is_flushed: bool,
}

impl PendingOutput {
    /// Makes an output that begins with these bytes.
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            written: 0,
            large: Bytes::new(),
            end: &[],
            is_flushed: false,
        }
    }

    /// Returns true if the output must be written now: it is long enough, or ends with a large chunk.
    fn is_full(&self) -> bool {
        !self.end.is_empty() || self.bytes.len() >= GATHERED_BYTES
    }

    /// Adds a piece of the body as a chunk, and the last chunk after the last piece. An empty piece is
    /// no chunk, since that would be the last one.
    fn push_piece(&mut self, piece: Bytes, is_last: bool) {
        let end = match is_last {
            true => END_AND_LAST_CHUNK,
            false => CHUNK_END,
        };
        self.is_flushed = false;
        if piece.is_empty() {
            if is_last {
                self.bytes.extend_from_slice(LAST_CHUNK);
            }
            return;
        }
        let size = format!("{:X}\r\n", piece.len());
        self.bytes.extend_from_slice(size.as_bytes());
        if piece.len() >= LARGE_PIECE {
            self.large = piece;
            self.end = end;
        } else {
            self.bytes.extend_from_slice(&piece);
            self.bytes.extend_from_slice(end);
        }
    }

    /// Writes everything, and waits until it was sent.
    fn poll_write<S>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        loop {
            let bytes = self.bytes.get(self.written..).unwrap_or_default();
            let stream = Pin::new(&mut *stream);
            let written = if !self.end.is_empty() {
                let pieces = [bytes, &self.large, self.end].map(IoSlice::new);
                stream.poll_write_vectored(context, &pieces)
            } else if !bytes.is_empty() {
                stream.poll_write(context, bytes)
            } else {
                break;
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.skip_bytes(written),
            }
        }
        self.bytes.clear();
        self.written = 0;
        if !self.is_flushed {
            ready!(Pin::new(stream).poll_flush(context))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Removes bytes that were written.
    fn skip_bytes(&mut self, mut count: usize) {
        let first = count.min(self.bytes.len().saturating_sub(self.written));
        self.written += first;
        count -= first;
        let second = count.min(self.large.len());
        // The memory of the piece is released with its last byte.
        drop(self.large.split_to(second));
        count -= second;
        self.end = self.end.get(count..).unwrap_or_default();
    }

    /// Releases the memory. Everything must have been written.
    fn release_memory(&mut self) {
        self.bytes = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::http::HeaderValue;
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// A timeout that no test reaches, even on a busy machine.
    const LONG: Duration = Duration::from_secs(60);

    /// A result of polling a test body.
    #[derive(Debug, Clone)]
    enum Step {
        Piece(Vec<u8>),
        LastPiece(Vec<u8>),
        Failure,
        Silence,
    }

    /// A body that plays steps, then those of a channel if there is one.
    #[derive(Default)]
    struct PlayedBody {
        steps: VecDeque<Step>,
        later: Option<mpsc::UnboundedReceiver<Step>>,
        polls: Arc<AtomicUsize>,
        is_over: bool,
        is_dropped: Arc<AtomicBool>,
    }

    impl Drop for PlayedBody {
        fn drop(&mut self) {
            self.is_dropped.store(true, Ordering::Relaxed);
        }
    }

    impl http_body::Body for PlayedBody {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>>>> {
            self.polls.fetch_add(1, Ordering::Relaxed);
            let step = match (self.steps.pop_front(), &mut self.later) {
                (None, Some(later)) => ready!(later.poll_recv(context)),
                (step, _) => step,
            };
            Poll::Ready(match step {
                Some(Step::Piece(bytes)) => Some(Ok(Frame::data(bytes.into()))),
                Some(Step::LastPiece(bytes)) => {
                    self.is_over = true;
                    Some(Ok(Frame::data(bytes.into())))
                }
                Some(Step::Failure) => Some(Err(ErrorKind::Other.into())),
                Some(Step::Silence) => return Poll::Pending,
                None => None,
            })
        }

        fn is_end_stream(&self) -> bool {
            self.is_over
        }
    }

    fn steps(steps: impl IntoIterator<Item = Step>) -> PlayedBody {
        let mut body = PlayedBody::default();
        body.steps.extend(steps);
        body
    }

    /// Makes a body whose steps are sent to it.
    fn later_steps() -> (mpsc::UnboundedSender<Step>, PlayedBody) {
        let (sender, later) = mpsc::unbounded_channel();
        let mut body = PlayedBody::default();
        body.later = Some(later);
        (sender, body)
    }

    fn piece(text: &str) -> Step {
        Step::Piece(text.into())
    }

    fn response(body: PlayedBody) -> StreamedResponse {
        StreamedResponse {
            response: Response::new(Body::new(body)),
            keeps_alive: true,
        }
    }

    fn open<S>(stream: S) -> OpenConnection<S> {
        OpenConnection {
            stream,
            received: Vec::new(),
        }
    }

    /// Writes a response, and returns what the client got and whether the connection is kept.
    async fn written(response: StreamedResponse, draining: bool) -> (String, bool) {
        let draining = watch::Sender::new(draining);
        let draining = draining.subscribe();
        let (server, mut client) = duplex(1 << 20);
        let kept = response.write_to(open(server), 0, &draining).await;
        let is_kept = kept.is_some();
        drop(kept);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        (text, is_kept)
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
    const CLOSING_HEAD: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";

    #[test]
    fn the_head_has_the_form_of_hyper() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::CREATED;
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("Set-Cookie", "a"),
            ("set-cookie", "b"),
            ("content-length", "5"),
            ("transfer-encoding", "gzip"),
            ("connection", "keep-alive"),
        ] {
            let name = axum::http::HeaderName::try_from(name).unwrap();
            response
                .headers_mut()
                .append(name, HeaderValue::from_static(value));
        }
        let head = String::from_utf8(encode_head(&response, false, 784_111_777)).unwrap();
        assert_eq!(
            head,
            "HTTP/1.1 201 Created\r\ncontent-type: text/event-stream\r\nset-cookie: a\r\nset-cookie: b\r\nconnection: close\r\n\
             transfer-encoding: chunked\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"
        );
        let date = HeaderValue::from_static("today");
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert(header::DATE, date);
        let head = String::from_utf8(encode_head(&response, true, 0)).unwrap();
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        // No clock may end the gateway.
        encode_head(&Response::new(Body::empty()), true, u64::MAX);
    }

    #[tokio::test]
    async fn pieces_become_chunks() {
        let large = "x".repeat(LARGE_PIECE);
        for (played, body) in [
            (vec![], "0\r\n\r\n".to_owned()),
            (
                vec![piece("one"), piece(""), piece("0123456789ab")],
                "3\r\none\r\nC\r\n0123456789ab\r\n0\r\n\r\n".to_owned(),
            ),
            (
                vec![piece("a"), Step::LastPiece("b".into()), Step::Silence],
                "1\r\na\r\n1\r\nb\r\n0\r\n\r\n".to_owned(),
            ),
            (
                vec![piece("a"), Step::LastPiece(Vec::new()), Step::Silence],
                "1\r\na\r\n0\r\n\r\n".to_owned(),
            ),
            (
                vec![piece("a"), piece(&large), piece("b")],
                format!("1\r\na\r\n1000\r\n{large}\r\n1\r\nb\r\n0\r\n\r\n"),
            ),
            (
                vec![Step::LastPiece(large.clone().into()), Step::Silence],
                format!("1000\r\n{large}\r\n0\r\n\r\n"),
            ),
        ] {
            let is_kept = written(response(steps(played)), false).await;
            assert_eq!(is_kept, (format!("{HEAD}{body}"), true));
        }
    }

    #[tokio::test]
    async fn a_failure_of_the_body_leaves_no_last_chunk() {
        let body = steps([piece("a"), Step::Failure]);
        let is_dropped = Arc::clone(&body.is_dropped);
        let is_kept = written(response(body), false).await;
        assert_eq!(is_kept, (format!("{HEAD}1\r\na\r\n"), false));
        assert!(is_dropped.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn the_connection_is_closed_if_client_or_gateway_want_it() {
        let expected = (format!("{CLOSING_HEAD}1\r\na\r\n0\r\n\r\n"), false);
        let closing = StreamedResponse {
            keeps_alive: false,
            ..response(steps([piece("a")]))
        };
        assert_eq!(written(closing, false).await, expected);
        let drained = response(steps([piece("a")]));
        assert_eq!(written(drained, true).await, expected);
        // The head was sent before the shutdown began.
        let (sender, body) = later_steps();
        let draining = watch::Sender::new(false);
        let receiver = draining.subscribe();
        let (server, mut client) = duplex(1 << 20);
        let writing = response(body).write_to(open(server), 0, &receiver);
        let reading = async {
            let mut head = vec![0; HEAD.len()];
            client.read_exact(&mut head).await.unwrap();
            draining.send_replace(true);
            sender.send(piece("a")).unwrap();
            drop(sender);
            let mut rest = String::new();
            client.read_to_string(&mut rest).await.unwrap();
            (String::from_utf8(head).unwrap(), rest)
        };
        let ended = timeout(LONG, async { tokio::join!(writing, reading) }).await;
        let ended = ended.unwrap();
        assert!(ended.0.is_none());
        let rest = "1\r\na\r\n0\r\n\r\n".to_owned();
        assert_eq!(ended.1, (HEAD.to_owned(), rest));
    }

    #[tokio::test]
    async fn a_disconnect_drops_the_body() {
        for has_sent in [false, true] {
            let body = steps([piece("a"), Step::Silence]);
            let is_dropped = Arc::clone(&body.is_dropped);
            let draining = watch::Sender::new(false);
            let (server, mut client) = duplex(1 << 20);
            let receiver = draining.subscribe();
            let writing = response(body).write_to(open(server), 0, &receiver);
            let leaving = async {
                let mut start = vec![0; HEAD.len()];
                client.read_exact(&mut start).await.unwrap();
                if has_sent {
                    client.write_all(b"POST ").await.unwrap();
                }
                assert!(!is_dropped.load(Ordering::Relaxed));
                drop(client);
            };
            let ended = timeout(LONG, async { tokio::join!(writing, leaving) }).await;
            assert!(ended.unwrap().0.is_none());
            assert!(is_dropped.load(Ordering::Relaxed));
        }
    }

    #[tokio::test]
    async fn early_requests_are_kept_up_to_a_limit() {
        let (sender, body) = later_steps();
        let draining = watch::Sender::new(false);
        let receiver = draining.subscribe();
        let (server, mut client) = duplex(4096);
        let connection = OpenConnection {
            stream: server,
            received: b"POST /first".to_vec(),
        };
        let writing = response(body).write_to(connection, 0, &receiver);
        let more = vec![b'x'; 2 * MAX_RECEIVED];
        let client = async {
            let mut head = vec![0; HEAD.len()];
            client.read_exact(&mut head).await.unwrap();
            let mut sent = 0;
            let mut pauses = 0;
            // The pipe and the kept bytes take this much, and no more.
            while pauses < 100 {
                match client.write(&more[sent..]).now_or_never() {
                    Some(written) => sent += written.unwrap(),
                    None => {
                        pauses += 1;
                        tokio::task::yield_now().await;
                    }
                }
            }
            drop(sender);
            (client, sent)
        };
        let ended = timeout(LONG, async { tokio::join!(writing, client) }).await;
        let ended = ended.unwrap();
        let received = ended.0.unwrap().received;
        assert!(received.starts_with(b"POST /firstxx"));
        let kept = received.len();
        assert!((MAX_RECEIVED..MAX_RECEIVED + READ_BYTES).contains(&kept));
        let sent = ended.1.1;
        assert!(sent <= kept + 4096, "{sent} and {kept}");
    }

    #[tokio::test]
    async fn a_slow_client_slows_the_body() {
        let body = steps((0..10_000).map(|_| piece(&"x".repeat(100))));
        let polls = Arc::clone(&body.polls);
        let draining = watch::Sender::new(false);
        let receiver = draining.subscribe();
        let (server, mut client) = duplex(64);
        let writing = response(body).write_to(open(server), 0, &receiver);
        let reading = async {
            let mut taken = 0;
            let mut bytes = vec![0; 4096];
            loop {
                // The writer runs as long as it can.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                let ahead = polls.load(Ordering::Relaxed) * 100;
                assert!(ahead <= taken + GATHERED_BYTES + 300, "{ahead} and {taken}");
                let count = client.read(&mut bytes).await.unwrap();
                taken += count;
                if bytes[..count].ends_with(LAST_CHUNK) {
                    return taken;
                }
            }
        };
        let ended = timeout(LONG, async { tokio::join!(writing, reading) }).await;
        let ended = ended.unwrap();
        assert!(ended.0.is_some());
        // Each chunk has 100 bytes and 6 around them.
        assert_eq!(ended.1, HEAD.len() + 10_000 * 106 + LAST_CHUNK.len());
    }

    /// A stream that counts the calls for writing, and gets nothing from its client.
    #[derive(Default)]
    struct CountingStream(Vec<Vec<u8>>);

    impl AsyncRead for CountingStream {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for CountingStream {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<Result<usize>> {
            let bytes = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            self.0.push(bytes);
            Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn each_piece_is_written_at_once_and_no_buffer_is_kept() {
        let (sender, body) = later_steps();
        let mut writer = ResponseWriter {
            connection: open(CountingStream::default()),
            body: Some(Body::new(body)),
            is_broken: false,
            output: PendingOutput::new(b"head".to_vec()),
        };
        let large = "x".repeat(LARGE_PIECE);
        let mut poll = || {
            let context = &mut Context::from_waker(std::task::Waker::noop());
            let ended = writer.poll_response(context);
            let memory = writer.output.bytes.capacity() + writer.output.large.len();
            let calls = std::mem::take(&mut writer.connection.stream.0);
            let calls: Vec<_> = calls
                .into_iter()
                .map(|call| String::from_utf8(call).unwrap())
                .collect();
            assert!(ended.is_ready() || memory == 0);
            (ended, calls)
        };
        assert_eq!(poll(), (Poll::Pending, vec!["head".to_owned()]));
        sender.send(piece("a")).unwrap();
        assert_eq!(poll(), (Poll::Pending, vec!["1\r\na\r\n".to_owned()]));
        sender.send(piece(&large)).unwrap();
        let chunk = format!("1000\r\n{large}\r\n");
        assert_eq!(poll(), (Poll::Pending, vec![chunk]));
        assert_eq!(poll(), (Poll::Pending, vec![]));
        sender.send(piece("b")).unwrap();
        drop(sender);
        let end = Poll::Ready(ResponseEnd::Complete);
        assert_eq!(poll(), (end, vec!["1\r\nb\r\n0\r\n\r\n".to_owned()]));
    }

    /// The request and response of one exchange, and whether it is streamed without hyper.
    fn is_taken(
        request: impl FnOnce(axum::http::request::Builder) -> axum::http::request::Builder,
        response: impl FnOnce(&mut Response),
    ) -> Option<bool> {
        let slot = ResponseSlot::default();
        let builder = request(Request::builder().method(Method::POST));
        _ = slot.begin_request(builder.body(Body::empty()).unwrap());
        let mut answer = Response::new(Body::new(steps([piece("a")])));
        response(&mut answer);
        let refused = slot.offer_response(answer);
        assert_eq!(refused.is_some(), !slot.has_response());
        slot.take_response().map(|response| response.keeps_alive)
    }

    #[test]
    fn only_streams_of_current_clients_leave_hyper() {
        let nothing = |_: &mut Response| {};
        let set = |name: &'static str, value: &'static str| {
            move |response: &mut Response| {
                let value = HeaderValue::from_static(value);
                response.headers_mut().insert(name, value);
            }
        };
        assert_eq!(is_taken(|request| request, nothing), Some(true));
        let closing = |request: axum::http::request::Builder| {
            request
                .header("connection", "keep-alive")
                .header("connection", "TE, Close")
        };
        assert_eq!(is_taken(closing, nothing), Some(false));
        let close = set("connection", "close");
        assert_eq!(is_taken(|request| request, close), Some(false));
        let old = |request: axum::http::request::Builder| request.version(Version::HTTP_10);
        assert_eq!(is_taken(old, nothing), None);
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(is_taken(|request| request.method(method), nothing), None);
        }
        let length = set("content-length", "1");
        assert_eq!(is_taken(|request| request, length), None);
        for status in [204, 205, 304, 400, 500] {
            let status = StatusCode::from_u16(status).unwrap();
            let change = |response: &mut Response| *response.status_mut() = status;
            assert_eq!(is_taken(|request| request, change), None, "{status}");
        }
        let known = |response: &mut Response| *response.body_mut() = Body::from("a");
        assert_eq!(is_taken(|request| request, known), None);
    }

    #[tokio::test]
    async fn a_response_leaves_hyper_only_after_the_body_of_its_request() {
        let slot = ResponseSlot::default();
        let request = Request::builder().method(Method::POST);
        let body = steps([piece("question"), piece("")]);
        let request = slot.begin_request(request.body(body).unwrap());
        let answer = || Response::new(Body::new(steps([piece("a")])));
        assert!(slot.offer_response(answer()).is_some());
        let read = axum::body::to_bytes(request.into_body(), 100).await;
        assert_eq!(read.unwrap(), "question");
        assert!(slot.offer_response(answer()).is_none());
    }

    #[test]
    fn a_stream_that_waits_is_small() {
        let draining = watch::Sender::new(false);
        let receiver = draining.subscribe();
        let (server, _client) = duplex(64);
        let response = response(steps([Step::Silence]));
        let writing = response.write_to(open(server), 0, &receiver);
        let own = size_of_val(&writing) - size_of::<DuplexStream>();
        assert!(own <= 256, "{own}");
    }
}
