//! Limits what a client sends: the memory for a message that is not complete, and its time.
//!
//! The reader of messages holds a message until it is complete. Without this, every connection could
//! make it hold as much as the largest message.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::Refusal;
use crate::request_body::{BodyBudget, BodyShare, upload_time};
use crate::settings::GatewayLimits;

/// The stream below a WebSocket.
pub(crate) struct MeteredStream<S> {
    /// The stream.
    stream: S,
    /// The memory for the bodies of all requests.
    budget: BodyBudget,
    /// The limits.
    limits: GatewayLimits,
    /// The memory of the message that is arriving.
    share: BodyShare,
    /// The bytes of that message so far.
    received: usize,
    /// The start of that message, with the timer for its next bytes.
    upload: Option<Upload>,
    /// The time of the last bytes.
    heard: Instant,
    /// The reason why reading has failed, unless the connection broke.
    failure: Option<Refusal>,
}

/// A message that is arriving.
struct Upload {
    /// Its start.
    start: Instant,
    /// The timer for its next bytes.
    timer: Pin<Box<Sleep>>,
}

impl<S> MeteredStream<S> {
    /// Limits a stream.
    pub(crate) fn new(stream: S, budget: BodyBudget, limits: GatewayLimits) -> Self {
        Self {
            stream,
            budget,
            limits,
            share: BodyShare::default(),
            received: 0,
            upload: None,
            heard: Instant::now(),
            failure: None,
        }
    }

    /// Ends the message that has arrived, and returns the memory that it takes.
    pub(crate) fn take_share(&mut self) -> BodyShare {
        self.received = 0;
        self.upload = None;
        std::mem::take(&mut self.share)
    }

    /// Returns the time of the last bytes.
    pub(crate) fn last_heard(&self) -> Instant {
        self.heard
    }

    /// Returns true if a message has begun to arrive.
    pub(crate) fn is_receiving(&self) -> bool {
        self.upload.is_some()
    }

    /// Returns the stream itself, for reading what is not counted.
    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Takes the reason out why reading has failed.
    pub(crate) fn take_failure(&mut self) -> Option<Refusal> {
        self.failure.take()
    }

    /// Counts bytes that were read.
    fn count_bytes(&mut self, bytes: usize) -> Result<()> {
        self.heard = Instant::now();
        self.received = self.received.saturating_add(bytes);
        let deadline = |start| start + upload_time(&self.limits, self.received);
        match &mut self.upload {
            Some(upload) => upload.timer.as_mut().reset(deadline(upload.start)),
            None => {
                self.upload = Some(Upload {
                    start: self.heard,
                    timer: Box::pin(sleep_until(deadline(self.heard))),
                });
            }
        }
        if self.budget.grow_share(&mut self.share, self.received) {
            return Ok(());
        }
        self.failure = Some(Refusal::BodiesFull);
        Err(Error::from(ErrorKind::OutOfMemory))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = &mut *self;
        let known = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            let bytes = buffer.filled().len() - known;
            let counted = match bytes {
                // The end of the connection.
                0 => Ok(()),
                _ => this.count_bytes(bytes),
            };
            return Poll::Ready(read.and(counted));
        }
        let Some(upload) = &mut this.upload else {
            return Poll::Pending;
        };
        ready!(upload.timer.as_mut().poll(context));
        let took = upload.start.elapsed().as_secs();
        this.failure = Some(Refusal::TooSlow(took));
        Poll::Ready(Err(Error::from(ErrorKind::TimedOut)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
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
