//! Sends requests over HTTP/1.1 without TLS, with little memory for each connection.
//!
//! A gateway holds thousands of answers that are being streamed. With reqwest, hyper takes 25 KB of memory for each: a buffer of 8 KB
//! for reading, one of 8 KB for writing, and a queue of requests of 9 KB, all of fixed size. Here a connection that waits for the next
//! piece of an answer has no buffer at all, and no task of its own.
//!
//! reqwest still sends requests over TLS or through a proxy, and the requests of tasks.

use std::future::Future;
use std::io::{Error, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use reqwest::header::{
    ACCEPT, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, USER_AGENT,
};
use reqwest::{StatusCode, Url};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout_at};

use crate::network::move_timer;
use crate::transport::{
    HttpRequest, ResponseBody, TransportError, TransportErrorKind, TransportFuture,
};

mod body_framing;
mod connect;
#[cfg(test)]
mod tests;

use body_framing::{BodyFraming, ResponseHead};

/// The maximum size of a response's head in bytes. A longer one is an error.
const MAX_HEAD_BYTES: usize = 400 << 10;

/// The most headers of a response.
const MAX_HEADERS: usize = 100;

/// The bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The time for which an unused connection is kept.
const IDLE_LIMIT: Duration = Duration::from_secs(90);

/// The interval at which unused connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// A client that keeps its connections between requests.
pub(crate) struct PlainHttpClient {
    /// The time to connect.
    connect: Duration,
    /// The start of the transport's clock.
    begun: Instant,
    /// The connections that no request uses.
    pool: Arc<ConnectionPool>,
}

/// The host of a request and the path there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainHttpTarget {
    /// The name or address, without brackets.
    host: String,
    /// The port.
    port: u16,
    /// The host and the port, as the header `host` has them.
    authority: String,
    /// The path with its query.
    path: String,
}

/// A response whose head has arrived.
pub(crate) struct PlainHttpResponse {
    /// The status.
    pub(crate) status: StatusCode,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: PlainHttpBody,
}

/// The body of a response. Dropping it before its end closes the connection.
pub(crate) struct PlainHttpBody {
    /// The connection; `None` once the body is complete or has failed.
    connection: Option<Connection>,
    /// The rest of the body.
    framing: BodyFraming,
    /// The bytes that arrived with the head.
    early: Vec<u8>,
    /// The rest of the request, which the server reads after it has begun its response.
    unsent: UnsentRequest,
    /// The pool that gets the connection after the body; empty if it cannot be used again.
    pool: Weak<ConnectionPool>,
    /// The error of the connection, until it is returned.
    failure: Option<Error>,
    /// The start of the transport's clock.
    begun: Instant,
    /// The timer of the deadline for the next piece. Moving a timer to a later time, as each piece
    /// does, costs far less than making one.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The rest of a request.
#[derive(Default)]
struct UnsentRequest {
    /// The bytes.
    bytes: Vec<u8>,
    /// The number of these bytes that have been sent.
    sent: usize,
}

/// An open connection.
struct Connection {
    /// The host and the port.
    authority: String,
    /// The stream.
    stream: TcpStream,
}

/// A pool of the connections that no request uses.
#[derive(Default)]
struct ConnectionPool(Mutex<PoolState>);

/// The content of [`ConnectionPool`].
#[derive(Default)]
struct PoolState {
    /// The connections, the one used last at the end.
    connections: Vec<IdleConnection>,
    /// True while a background task closes those that cannot be used any more.
    is_swept: bool,
}

/// A connection that no request uses.
struct IdleConnection {
    /// The end of the last request.
    since: Instant,
    /// The connection.
    connection: Connection,
}

impl PlainHttpTarget {
    /// Returns the target of an address that this client can reach: `http`, without a password.
    pub(crate) fn from_url(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        let is_plain = url.scheme() == "http" && url.username().is_empty();
        let host = url
            .host_str()
            .filter(|_| is_plain && url.password().is_none())?;
        let port = url.port_or_known_default()?;
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Some(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            authority,
            path,
        })
    }
}

impl PlainHttpClient {
    /// Makes a client with a time limit for connecting. Deadlines are counted from `begun`.
    pub(crate) fn new(connect: Duration, begun: Instant) -> Self {
        Self {
            connect,
            begun,
            pool: Arc::default(),
        }
    }

    /// Sends a request and receives the head of its response, until the moment `until` of the clock.
    ///
    /// # Errors
    /// The deadline passed, there is no connection, or it broke.
    pub(crate) async fn send(
        &self,
        target: &PlainHttpTarget,
        post: &HttpRequest,
        until: Duration,
    ) -> Result<PlainHttpResponse, TransportError> {
        timeout_at(self.begun + until, self.send_request(target, post))
            .await
            .unwrap_or_else(|_| Err(TransportError::timed_out()))
    }

    /// Sends a request without a deadline.
    async fn send_request(
        &self,
        target: &PlainHttpTarget,
        post: &HttpRequest,
    ) -> Result<PlainHttpResponse, TransportError> {
        let mut connection = match self.pool.take(&target.authority) {
            Some(connection) => connection,
            None => {
                // Boxed, because most requests have a connection already.
                let connecting = connect::connect(&target.host, target.port, self.connect);
                let stream = Box::pin(connecting).await.map_err(|error| {
                    TransportError::new(TransportErrorKind::Connect, error.to_string())
                })?;
                Connection {
                    authority: target.authority.clone(),
                    stream,
                }
            }
        };
        let mut exchange = Box::new(HeadExchange::new(encode_head(target, post)));
        let head = std::future::poll_fn(|context| {
            exchange.poll(&mut connection.stream, &post.body, context)
        });
        let head = head
            .await
            .map_err(|error| broken_connection_error(&error))?;
        let framing = BodyFraming::from_head(&head)
            .map_err(|error| broken_connection_error(&Error::new(ErrorKind::InvalidData, error)))?;
        // A server that has refused the request does not need the rest of it.
        let is_refused = head.status.is_client_error() || head.status.is_server_error();
        let unsent = exchange.unsent_bytes(&post.body);
        let is_reusable = head.keeps_connection() && (unsent.is_empty() || !is_refused);
        let pool = match is_reusable && framing != BodyFraming::UntilClose {
            true => Arc::downgrade(&self.pool),
            false => Weak::new(),
        };
        Ok(PlainHttpResponse {
            status: head.status,
            headers: head.headers,
            body: PlainHttpBody {
                connection: Some(connection),
                framing,
                early: exchange.take_early(),
                unsent: match is_refused {
                    true => UnsentRequest::default(),
                    false => unsent,
                },
                pool,
                failure: None,
                begun: self.begun,
                timer: None,
            },
        })
    }
}

/// The exchange of a request for the head of its response.
struct HeadExchange {
    /// The head of the request.
    head: Vec<u8>,
    /// The bytes of head and body that are written.
    written: usize,
    /// The error that ended the writing. The server may have answered before, as it does when a body is
    /// too large for it.
    write_error: Option<Error>,
    /// The bytes of the response so far.
    received: Vec<u8>,
}

impl HeadExchange {
    /// Makes an exchange that has not begun.
    fn new(head: Vec<u8>) -> Self {
        Self {
            head,
            written: 0,
            write_error: None,
            received: Vec::new(),
        }
    }

    /// Returns true if the whole request was sent.
    fn is_sent(&self, body: &[u8]) -> bool {
        self.written == self.head.len() + body.len()
    }

    /// Copies the bytes that were not sent. There are some if the server began its response before it had read
    /// the whole request.
    fn unsent_bytes(&self, body: &[u8]) -> UnsentRequest {
        UnsentRequest {
            bytes: self.unsent_parts(body).concat(),
            sent: 0,
        }
    }

    /// Returns the parts of the head and of the body that were not sent.
    fn unsent_parts<'b>(&'b self, body: &'b [u8]) -> [&'b [u8]; 2] {
        let head = self.head.get(self.written..).unwrap_or_default();
        let body_start = self.written.saturating_sub(self.head.len());
        [head, body.get(body_start..).unwrap_or_default()]
    }

    /// Removes and returns the bytes that arrived after the head.
    fn take_early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Writes what can be written, and reads until the head is there.
    fn poll(
        &mut self,
        stream: &mut TcpStream,
        body: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<ResponseHead>> {
        while self.write_error.is_none() && !self.is_sent(body) {
            let pieces = self.unsent_parts(body).map(IoSlice::new);
            match Pin::new(&mut *stream).poll_write_vectored(context, &pieces) {
                Poll::Ready(Ok(0)) => self.write_error = Some(ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => self.write_error = Some(error),
                Poll::Pending => break,
            }
        }
        loop {
            let known = self.received.len();
            let count = match ready!(poll_read_some(stream, context, &mut self.received)) {
                Ok(count) => count,
                Err(error) => return Poll::Ready(Err(self.write_error.take().unwrap_or(error))),
            };
            if count == 0 {
                let closed = || {
                    Error::new(
                        ErrorKind::UnexpectedEof,
                        "connection closed before message completed",
                    )
                };
                return Poll::Ready(Err(self.write_error.take().unwrap_or_else(closed)));
            }
            if let Some(head) = self.parse_head(known)? {
                return Poll::Ready(Ok(head));
            }
            if self.received.len() > MAX_HEAD_BYTES {
                return Poll::Ready(Err(Error::new(
                    ErrorKind::InvalidData,
                    "the head of its answer is too long",
                )));
            }
        }
    }

    /// Parses the head of the response, and removes its bytes; `None` if it is not complete. Responses
    /// that only announce the final one (100 to 199) are skipped.
    fn parse_head(&mut self, known: usize) -> std::io::Result<Option<ResponseHead>> {
        // The end may be split between the last bytes that were known and the new ones.
        let mut searched = known.saturating_sub(3);
        // Parsing begins at the start each time, so it waits for the end of a head.
        while has_blank_line(self.received.get(searched..).unwrap_or_default()) {
            let Some((head, length)) = parse_response(&self.received)? else {
                return Ok(None);
            };
            self.received.drain(..length);
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Error::new(
                    ErrorKind::InvalidData,
                    "it switched to another protocol without being asked to",
                ));
            }
            if !head.status.is_informational() {
                return Ok(Some(head));
            }
            searched = 0;
        }
        Ok(None)
    }
}

impl UnsentRequest {
    /// Returns the bytes that are left.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Returns true if no byte is left.
    fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// Removes bytes that were sent, and releases the memory with the last one.
    fn skip(&mut self, count: usize) {
        self.sent += count;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

impl PlainHttpBody {
    /// Polls for the next piece of the body.
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, TransportError>> {
        let mut chunk = Vec::new();
        let early = std::mem::take(&mut self.early);
        self.decode(&early, &mut chunk);
        while chunk.is_empty() {
            if let Some(error) = self.failure.take() {
                return Poll::Ready(Err(broken_connection_error(&error)));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Ok(None));
            };
            if !self.unsent.is_empty() {
                let rest = self.unsent.rest();
                match Pin::new(&mut connection.stream).poll_write(context, rest) {
                    Poll::Ready(Ok(count)) if count > 0 => {
                        self.unsent.skip(count);
                        continue;
                    }
                    // The server may still send the rest of its response.
                    Poll::Ready(_) => {
                        self.unsent = UnsentRequest::default();
                        self.pool = Weak::new();
                    }
                    Poll::Pending => {}
                }
            }
            // On the stack, so that a connection that waits has no buffer.
            let mut received = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut received);
            let read = Pin::new(&mut connection.stream).poll_read(context, &mut buffer);
            match ready!(read) {
                Ok(()) if buffer.filled().is_empty() => self.end(),
                Ok(()) => self.decode(buffer.filled(), &mut chunk),
                Err(error) => self.fail(error),
            }
        }
        Poll::Ready(Ok(Some(chunk)))
    }

    /// Decodes bytes that arrived, and appends those of the body to `chunk`. What was decoded before an error is
    /// kept, and the error follows it.
    fn decode(&mut self, input: &[u8], chunk: &mut Vec<u8>) {
        match self.framing.decode(input, chunk) {
            Ok(used) if self.framing.is_complete() => self.finish(used == input.len()),
            Ok(_) => {}
            Err(error) => self.fail(Error::new(ErrorKind::InvalidData, error)),
        }
    }

    /// Ends the body where the server has closed the connection.
    fn end(&mut self) {
        match self.framing {
            BodyFraming::UntilClose => self.connection = None,
            BodyFraming::Length(_) | BodyFraming::Chunked(_) => self.fail(Error::new(
                ErrorKind::UnexpectedEof,
                "the connection was closed before the end of the body",
            )),
        }
    }

    /// Closes the connection after an error.
    fn fail(&mut self, error: Error) {
        self.connection = None;
        self.failure = Some(error);
    }

    /// Keeps the connection for the next request, if the server keeps it open and sent nothing after the body.
    fn finish(&mut self, is_clean: bool) {
        let is_clean = is_clean && self.unsent.is_empty();
        let pool = self.pool.upgrade().filter(|_| is_clean);
        if let (Some(connection), Some(pool)) = (self.connection.take(), pool) {
            pool.put(connection);
        }
    }
}

impl ResponseBody for PlainHttpBody {
    fn next_chunk(
        &mut self,
        until: Duration,
    ) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>> {
        Box::pin(std::future::poll_fn(move |context| {
            if let Poll::Ready(chunk) = self.poll_chunk(context) {
                return Poll::Ready(chunk);
            }
            let deadline = self.begun + until;
            let timer = move_timer(&mut self.timer, deadline);
            ready!(timer.poll(context));
            Poll::Ready(Err(TransportError::timed_out()))
        }))
    }
}

impl Connection {
    /// Returns true if the server has neither closed the connection nor sent anything unasked.
    fn is_open(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        // Asks the kernel: the runtime may not have seen the end yet.
        let peeked = SockRef::from(&self.stream).peek(&mut byte);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

impl ConnectionPool {
    /// Locks the content.
    fn lock_state(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the connection to that host that was used last.
    fn take(&self, authority: &str) -> Option<Connection> {
        let mut state = self.lock_state();
        loop {
            let mut connections = state.connections.iter();
            let index = connections.rposition(|idle| idle.connection.authority == authority)?;
            let idle = state.connections.remove(index);
            if idle.is_usable() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    fn put(self: &Arc<Self>, connection: Connection) {
        let mut state = self.lock_state();
        state.connections.push(IdleConnection {
            since: Instant::now(),
            connection,
        });
        if !state.is_swept {
            state.is_swept = true;
            tokio::spawn(sweep_connections(Arc::downgrade(self)));
        }
    }
}

impl IdleConnection {
    /// Returns true if the next request may use the connection.
    fn is_usable(&self) -> bool {
        self.since.elapsed() < IDLE_LIMIT && self.connection.is_open()
    }
}

/// Closes connections that were unused for too long, or that the server has closed, until none is left.
async fn sweep_connections(pool: Weak<ConnectionPool>) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut state = pool.lock_state();
        state.connections.retain(IdleConnection::is_usable);
        if state.connections.is_empty() {
            *state = PoolState::default();
            return;
        }
    }
}

/// Encodes the head of a request.
fn encode_head(target: &PlainHttpTarget, post: &HttpRequest) -> Vec<u8> {
    let mut head = format!("POST {} HTTP/1.1\r\n", target.path).into_bytes();
    let mut add = |name: &HeaderName, value: &[u8]| {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    for (name, value) in [
        (HOST, target.authority.as_str()),
        (USER_AGENT, crate::network::PRODUCT),
        (ACCEPT, "*/*"),
    ] {
        // A provider may have its own.
        if !post.headers.contains_key(&name) {
            add(&name, value.as_bytes());
        }
    }
    for (name, value) in &post.headers {
        // These say where the body ends, which follows from the body alone.
        if !matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING) {
            add(name, value.as_bytes());
        }
    }
    add(&CONTENT_LENGTH, post.body.len().to_string().as_bytes());
    head.extend_from_slice(b"\r\n");
    head
}

/// Parses the head of a response, and returns it with its length in bytes; `None` if it is not complete.
fn parse_response(bytes: &[u8]) -> std::io::Result<Option<(ResponseHead, usize)>> {
    let invalid = |cause: String| {
        Error::new(
            ErrorKind::InvalidData,
            format!("its answer is not HTTP: {cause}"),
        )
    };
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes);
    let httparse::Status::Complete(length) = parsed.map_err(|error| invalid(error.to_string()))?
    else {
        return Ok(None);
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let mut map = HeaderMap::with_capacity(response.headers.len());
    for header in response.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_bytes(header.value);
        map.append(
            name.map_err(|error| invalid(error.to_string()))?,
            value.map_err(|error| invalid(error.to_string()))?,
        );
    }
    let head = ResponseHead {
        status: status.map_err(|error| invalid(error.to_string()))?,
        is_http_1_0: response.version == Some(0),
        headers: map,
    };
    Ok(Some((head, length)))
}

/// Returns true if a line of the text is empty, as it is at the end of a head.
fn has_blank_line(bytes: &[u8]) -> bool {
    let mut ends = memchr::memchr_iter(b'\n', bytes);
    ends.any(|end| {
        let after = bytes.get(end + 1..).unwrap_or_default();
        after.starts_with(b"\n") || after.starts_with(b"\r\n")
    })
}

/// Appends what can be read to `received`, and returns its size, which is 0 at the end.
fn poll_read_some(
    stream: &mut TcpStream,
    context: &mut Context<'_>,
    received: &mut Vec<u8>,
) -> Poll<std::io::Result<usize>> {
    let mut space = [MaybeUninit::uninit(); READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    received.extend_from_slice(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Converts an I/O error of a connection to a transport error.
fn broken_connection_error(error: &Error) -> TransportError {
    TransportError::new(TransportErrorKind::Broken, error.to_string())
}
