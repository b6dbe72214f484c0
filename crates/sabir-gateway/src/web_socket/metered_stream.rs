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
use crate::request_body::{BodyBudget, BodyShare, upload_time_limit};
use crate::settings::GatewayLimits;
use crate::web_socket::frame_tracker::FrameTracker;

/// The bytes of a message that do not count against the budget, enough for control frames and read-ahead. A full budget must not end the
/// connections of clients that only answer a ping.
const FREE_BYTES: usize = 16 << 10;

/// The bytes that the frames of a message may have beside its content.
const MAX_OVERHEAD: usize = 1 << 20;

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
    /// The tracker of the frames that are arriving.
    frames: FrameTracker,
    /// The start of that message, with the timer for its next bytes.
    upload: Option<Upload>,
    /// The time of the last bytes.
    last_received: Instant,
    /// The reason for which reading has failed, unless the connection broke.
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
            frames: FrameTracker::default(),
            upload: None,
            last_received: Instant::now(),
            failure: None,
        }
    }

    /// Ends the message that has arrived, and returns the memory that it takes.
    pub(crate) fn take_share(&mut self) -> BodyShare {
        self.received = 0;
        self.upload = None;
        std::mem::take(&mut self.share)
    }

    /// Subtracts a control frame from the message that is arriving: one may come between the pieces of a message.
    pub(crate) fn subtract_control_frame(&mut self, payload: usize) {
        // Two bytes of head and four of a mask.
        self.received = self.received.saturating_sub(payload + 6);
        if self.received == 0 {
            self.upload = None;
        }
    }

    /// Returns the time of the last bytes.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Returns true if a message has begun to arrive.
    pub(crate) fn is_receiving(&self) -> bool {
        self.upload.is_some()
    }

    /// Returns true if what was read so far ends with a whole message or a control frame between two
    /// messages.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.frames.is_between_messages()
    }

    /// Returns the stream itself, for reading what is not counted.
    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Takes out the reason for which reading has failed.
    pub(crate) fn take_failure(&mut self) -> Option<Refusal> {
        self.failure.take()
    }

    /// Counts bytes that were read.
    fn count_bytes(&mut self, bytes: usize) -> Result<()> {
        self.last_received = Instant::now();
        self.received = self.received.saturating_add(bytes);
        let deadline = |start| start + upload_time_limit(&self.limits, self.received);
        match &mut self.upload {
            Some(upload) => upload.timer.as_mut().reset(deadline(upload.start)),
            None => {
                self.upload = Some(Upload {
                    start: self.last_received,
                    timer: Box::pin(sleep_until(deadline(self.last_received))),
                });
            }
        }
        let failure = if self.received <= FREE_BYTES {
            return Ok(());
        } else if self.received > self.limits.body.saturating_add(MAX_OVERHEAD) {
            // Frames without content are not in the size of the message.
            Refusal::TooLarge(self.limits.body)
        } else if self.budget.grow_share_to(&mut self.share, self.received) {
            return Ok(());
        } else {
            Refusal::BodiesFull
        };
        self.failure = Some(failure);
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
            this.frames
                .feed(buffer.filled().get(known..).unwrap_or_default());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    fn start_stream(budget: &BodyBudget) -> (MeteredStream<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(256 << 10);
        let stream = MeteredStream::new(near, budget.clone(), GatewayLimits::default());
        (stream, far)
    }

    #[tokio::test]
    async fn a_message_takes_memory_until_its_share_is_dropped() {
        let budget = BodyBudget::new();
        let mut others = BodyShare::default();
        // All but 32 KiB of 1 GiB.
        assert!(budget.grow_share_to(&mut others, (1 << 30) - (32 << 10)));
        let (mut stream, mut client) = start_stream(&budget);
        let mut buffer = [0; 32 << 10];
        client.write_all(&buffer).await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        assert!(stream.is_receiving());
        let first = stream.take_share();
        assert!(!stream.is_receiving());
        // What is small needs no memory of the budget.
        client.write_all(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        client.write_all(&buffer).await.unwrap();
        let error = stream.read_exact(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(stream.take_failure(), Some(Refusal::BodiesFull));
        drop(first);
        drop(stream.take_share());
        client.write_all(&buffer).await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
    }

    #[tokio::test]
    async fn control_frames_do_not_end_the_message_around_them() {
        let (mut stream, mut client) = start_stream(&BodyBudget::new());
        let mut buffer = [0; 100];
        client.write_all(&buffer).await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        stream.subtract_control_frame(4);
        assert!(stream.is_receiving());
        stream.subtract_control_frame(84);
        assert!(!stream.is_receiving());
    }

    #[tokio::test]
    async fn frames_without_content_are_limited() {
        let (near, mut client) = duplex(64 << 10);
        let limits = GatewayLimits {
            body: 1 << 10,
            ..GatewayLimits::default()
        };
        let mut stream = MeteredStream::new(near, BodyBudget::new(), limits);
        let sending = tokio::spawn(async move {
            let frames = vec![0; 64 << 10];
            while client.write_all(&frames).await.is_ok() {}
        });
        let error = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(stream.take_failure(), Some(Refusal::TooLarge(1 << 10)));
        drop(stream);
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_has_more_time_the_more_of_it_arrives() {
        let (mut stream, mut client) = start_stream(&BodyBudget::new());
        let begun = Instant::now();
        let mut buffer = vec![0; 160 << 10];
        client.write_all(&buffer).await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        let upload = GatewayLimits::default().upload;
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), upload + Duration::from_secs(10));
        assert_eq!(stream.take_failure(), Some(Refusal::TooSlow(40)));
        // Between two messages there is no limit.
        drop(stream.take_share());
        let waiting = tokio::time::timeout(Duration::from_secs(1000), stream.read_u8());
        assert!(waiting.await.is_err());
    }
}
