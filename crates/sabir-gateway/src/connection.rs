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

use crate::framing::{Framing, Phase};
use crate::settings::Limits;

/// What a client is told whose head did not come in time. Which wire it speaks is not known.
const TOO_SLOW: &str = concat!(
    "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 80\r\nconnection: close\r\n\r\n",
    r#"{"error": {"type": "timeout_error", "message": "the head did not come in time"}}"#,
);

/// What a connection and the answers on it know of each other.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Whether a request is being answered.
    busy: AtomicBool,
    /// Whether it cannot be said any more where a request ends.
    lost: AtomicBool,
    /// Whether a head did not come in time.
    slow: AtomicBool,
}

/// While it lives, a request is being answered.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Link>);

impl Link {
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.store(true, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The stream of a connection.
pub(crate) struct Line {
    stream: TcpStream,
    framing: Framing,
    link: Arc<Link>,
    limits: Limits,
    /// What the client is waited for, and until when.
    reading: Option<(Phase, Pin<Box<Sleep>>)>,
    /// Until when it must have taken something.
    writing: Option<Pin<Box<Sleep>>>,
}

impl Line {
    pub(crate) fn new(stream: TcpStream, link: Arc<Link>, limits: Limits) -> Self {
        Self { stream, framing: Framing::new(), link, limits, reading: None, writing: None }
    }

    /// Waits for the client to write, as long as it may take.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let phase = self.framing.phase();
        let limit = match phase {
            _ if self.link.busy.load(Ordering::Relaxed) => None,
            Phase::New | Phase::Head => Some(self.limits.head),
            Phase::Idle => Some(self.limits.idle),
            Phase::Body => None,
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
            if phase == Phase::Head {
                self.link.slow.store(true, Ordering::Relaxed);
                self.last_words();
            }
            Err(late("the client did not write for too long"))
        })
    }

    /// Tells a client that began a head why its connection ends, if that goes at once: no answer is being written, and what
    /// is as short as this fits.
    fn last_words(&self) {
        if self.writing.is_none() {
            let _ = self.stream.try_write(TOO_SLOW.as_bytes());
        }
    }

    /// What came of writing, within the time that a client may take nothing.
    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let timer = self.writing.get_or_insert_with(|| Box::pin(sleep(self.limits.stalled)));
        timer.as_mut().poll(context).map(|()| Err(late("the client took nothing for too long")))
    }
}

fn late(what: &'static str) -> Error {
    Error::new(ErrorKind::TimedOut, what)
}

impl AsyncRead for Line {
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
            Poll::Pending => this.wait(context),
            failed => failed,
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(context, written)
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
