//! Applies time limits to a connection: for sending a head, for being idle between requests, and
//! for reading nothing.
//!
//! hyper only has a limit for heads, which also runs while a connection is merely idle. Here each
//! phase has its own limit. A client that reads nothing is distinguished from one whose model is
//! silent: its time runs only while bytes are waiting for it.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::client_stream::ClientStream;
use crate::framing::{ConnectionPhase, RequestFraming};
use crate::settings::GatewayLimits;
use crate::web_socket::PendingSession;

/// The response to a client whose head did not arrive in time. Its wire is not known yet.
const TIMEOUT_RESPONSE: &str = concat!(
    "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 80\r\nconnection: close\r\n\r\n",
    r#"{"error": {"type": "timeout_error", "message": "the head did not come in time"}}"#,
);

/// The state that a connection shares with the responses on it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// True while a request is being answered.
    busy: AtomicBool,
    /// True if it is no longer known where a request ends.
    lost: AtomicBool,
    /// True if a head did not arrive in time.
    slow: AtomicBool,
    /// True once the connection is a WebSocket, which has limits of its own.
    upgraded: AtomicBool,
    /// True if the stream was flushed after the last bytes were written to it. hyper flushes it only when its
    /// own buffer is empty.
    flushed: AtomicBool,
    /// The session of the WebSocket, until it begins.
    session: Mutex<Option<PendingSession>>,
}

/// A guard that marks its connection as busy until it is dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<ConnectionState>);

impl ConnectionState {
    /// Marks the connection as busy while the guard lives.
    pub(crate) fn mark_busy(self: &Arc<Self>) -> BusyGuard {
        self.busy.store(true, Ordering::Relaxed);
        BusyGuard(Arc::clone(self))
    }

    /// Returns true if no further request on this connection may be answered.
    pub(crate) fn has_lost_framing(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Makes the connection a WebSocket after the response that is being sent. No bytes that follow
    /// are requests.
    pub(crate) fn upgrade(&self, session: PendingSession) {
        *self.lock_session() = Some(session);
        self.upgraded.store(true, Ordering::Relaxed);
    }

    /// Takes the session of the WebSocket out, if the connection has become one.
    pub(crate) fn take_session(&self) -> Option<PendingSession> {
        self.lock_session().take()
    }

    /// Returns true if all that was written to the stream was sent, and nothing waits in hyper's
    /// buffer. This is known only after hyper was polled.
    pub(crate) fn has_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Locks the place of the session.
    fn lock_session(&self) -> MutexGuard<'_, Option<PendingSession>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a head did not arrive in time, for the log.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The stream of a connection, with its time limits.
pub(crate) struct TimedStream {
    /// The connection itself.
    stream: ClientStream,
    /// Bytes that were read from the connection before, and are read again first.
    unread: Bytes,
    /// The boundaries of the requests, which tell the phase.
    framing: RequestFraming,
    /// The state that is shared with the responses.
    link: Arc<ConnectionState>,
    /// The limits when the connection was opened; a reload does not change them.
    limits: GatewayLimits,
    /// The phase in which the client is expected to write, and its timer.
    reading: Option<(ConnectionPhase, Pin<Box<Sleep>>)>,
    /// The timer for the client to read something.
    writing: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    /// Makes a stream without a running timer.
    pub(crate) fn new(
        stream: ClientStream,
        link: Arc<ConnectionState>,
        limits: GatewayLimits,
    ) -> Self {
        Self {
            stream,
            unread: Bytes::new(),
            framing: RequestFraming::new(),
            link,
            limits,
            reading: None,
            writing: None,
        }
    }

    /// Makes bytes that were read from this stream the next ones that are read from it.
    pub(crate) fn with_unread_bytes(self, bytes: Vec<u8>) -> Self {
        Self {
            unread: Bytes::from(bytes),
            ..self
        }
    }

    /// Polls the time limit for the client to write, which depends on the phase.
    fn poll_read_timeout(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let phase = self.framing.phase();
        // The limit of the body is in `request_body`, where its size is known. A busy connection
        // waits for the model, not for the client, so it has no limit here.
        let limit = match phase {
            _ if self.link.busy.load(Ordering::Relaxed) => None,
            _ if self.link.upgraded.load(Ordering::Relaxed) => None,
            ConnectionPhase::New | ConnectionPhase::Head => Some(self.limits.head),
            ConnectionPhase::Idle => Some(self.limits.idle),
            ConnectionPhase::Body => None,
        };
        let Some(limit) = limit else {
            self.reading = None;
            return Poll::Pending;
        };
        // The timer runs for a whole phase: single bytes now and then do not extend it.
        if self
            .reading
            .as_ref()
            .is_none_or(|(before, _)| *before != phase)
        {
            self.reading = Some((phase, Box::pin(sleep(limit))));
        }
        let Some((_, timer)) = &mut self.reading else {
            return Poll::Pending;
        };
        timer.as_mut().poll(context).map(|()| {
            if phase == ConnectionPhase::Head {
                self.link.slow.store(true, Ordering::Relaxed);
                self.send_timeout_response();
            }
            Err(timeout_error("the client did not write for too long"))
        })
    }

    /// Tells a client in the middle of a head why its connection ends.
    ///
    /// Best effort: only if no response is being written, and without waiting. The text is short
    /// enough for the socket's buffer.
    fn send_timeout_response(&self) {
        if self.writing.is_none() {
            self.stream.try_write(TIMEOUT_RESPONSE.as_bytes());
        }
    }

    /// Passes on the result of writing, or an error if the client has read nothing for too long.
    fn poll_write_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let timer = self
            .writing
            .get_or_insert_with(|| Box::pin(sleep(self.limits.stalled)));
        timer
            .as_mut()
            .poll(context)
            .map(|()| Err(timeout_error("the client read nothing for too long")))
    }
}

/// Makes the error that closes a connection.
fn timeout_error(what: &'static str) -> Error {
    Error::new(ErrorKind::TimedOut, what)
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = &mut *self;
        if !this.unread.is_empty() {
            // `framing` has seen them.
            let length = this.unread.len().min(buffer.remaining());
            buffer.put_slice(&this.unread.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let known = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                if !this.link.upgraded.load(Ordering::Relaxed)
                    && !this
                        .framing
                        .feed(buffer.filled().get(known..).unwrap_or_default())
                {
                    this.link.lost.store(true, Ordering::Relaxed);
                }
                Poll::Ready(Ok(()))
            }
            // Only while nothing arrives: bytes that are there are read first.
            Poll::Pending => this.poll_read_timeout(context),
            failed => failed,
        }
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        self.link.flushed.store(false, Ordering::Relaxed);
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_write_timeout(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.link.flushed.store(false, Ordering::Relaxed);
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.poll_write_timeout(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        // Over TLS, bytes can wait here that were written before.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        let is_flushed = matches!(flushed, Poll::Ready(Ok(())));
        self.link.flushed.store(is_flushed, Ordering::Relaxed);
        self.poll_write_timeout(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.poll_write_timeout(context, ended)
    }
}
