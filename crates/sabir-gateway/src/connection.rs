//! A connection with its patience: how long a client may take over a head, be silent between requests, or not take what is sent.
//!
//! hyper has a time for heads alone, which counts while a connection is merely idle. Here each phase has its own, and a client
//! that takes nothing is told from one whose model is silent: only where bytes wait for the client does its time run.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::framing::{ConnectionPhase, RequestFraming};
use crate::settings::GatewayLimits;

/// What a client is told whose head did not come in time. Which wire it speaks is not known.
const TIMEOUT_RESPONSE: &str = concat!(
    "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 80\r\nconnection: close\r\n\r\n",
    r#"{"error": {"type": "timeout_error", "message": "the head did not come in time"}}"#,
);

/// What a connection and the answers on it know of each other.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// Whether a request is being answered.
    busy: AtomicBool,
    /// Whether it cannot be said any more where a request ends.
    lost: AtomicBool,
    /// Whether a head did not come in time.
    slow: AtomicBool,
}

/// While it lives, a request is being answered.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<ConnectionState>);

impl ConnectionState {
    pub(crate) fn mark_busy(self: &Arc<Self>) -> BusyGuard {
        self.busy.store(true, Ordering::Relaxed);
        BusyGuard(Arc::clone(self))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The stream of a connection.
pub(crate) struct TimedStream {
    stream: TcpStream,
    framing: RequestFraming,
    link: Arc<ConnectionState>,
    limits: GatewayLimits,
    /// What the client is waited for, and until when.
    reading: Option<(ConnectionPhase, Pin<Box<Sleep>>)>,
    /// Until when it must have taken something.
    writing: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    pub(crate) fn new(stream: TcpStream, link: Arc<ConnectionState>, limits: GatewayLimits) -> Self {
        Self { stream, framing: RequestFraming::new(), link, limits, reading: None, writing: None }
    }

    /// Waits for the client to write, as long as it may take.
    fn poll_read_timeout(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let phase = self.framing.phase();
        let limit = match phase {
            _ if self.link.busy.load(Ordering::Relaxed) => None,
            ConnectionPhase::New | ConnectionPhase::Head => Some(self.limits.head),
            ConnectionPhase::Idle => Some(self.limits.idle),
            ConnectionPhase::Body => None,
        };
        let Some(limit) = limit else {
            self.reading = None;
            return Poll::Pending;
        };
        if self.reading.as_ref().is_none_or(|(before, _)| *before != phase) {
            self.reading = Some((phase, Box::pin(sleep(limit))));
        }
        let Some((_, timer)) = &mut self.reading else { return Poll::Pending };
        timer.as_mut().poll(context).map(|()| {
            if phase == ConnectionPhase::Head {
                self.link.slow.store(true, Ordering::Relaxed);
                self.send_timeout_response();
            }
            Err(timeout_error("the client did not write for too long"))
        })
    }

    /// Tells a client that began a head why its connection ends, if that goes at once: no answer is being written, and what
    /// is as short as this fits.
    fn send_timeout_response(&self) {
        if self.writing.is_none() {
            let _ = self.stream.try_write(TIMEOUT_RESPONSE.as_bytes());
        }
    }

    /// What came of writing, within the time that a client may take nothing.
    fn poll_write_timeout<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let timer = self.writing.get_or_insert_with(|| Box::pin(sleep(self.limits.stalled)));
        timer.as_mut().poll(context).map(|()| Err(timeout_error("the client took nothing for too long")))
    }
}

fn timeout_error(what: &'static str) -> Error {
    Error::new(ErrorKind::TimedOut, what)
}

impl AsyncRead for TimedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let known = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                if !this.framing.feed(buffer.filled().get(known..).unwrap_or_default()) {
                    this.link.lost.store(true, Ordering::Relaxed);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending => this.poll_read_timeout(context),
            failed => failed,
        }
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_write_timeout(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.poll_write_timeout(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
