//! Produces the body of a response while the client reads it.
//!
//! The body polls the task that reads from the model; the bytes that the task has written are the
//! next piece. hyper polls the body only when the client has room for more, so a slow client slows
//! the model down, and dropping the body ends the task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};

use crate::error::Refusal;

/// The buffer between the task that writes and the body that reads. Both run in one tokio task, so
/// the lock is never contended.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyBuffer(Arc<Mutex<BufferState>>);

/// The content of a buffer.
#[derive(Debug, Default)]
struct BufferState {
    /// The bytes that the client has not taken. They do not grow while it reads nothing, because
    /// the task runs only when the body is polled.
    bytes: Vec<u8>,
    /// The refusal, if nothing was written.
    refusal: Option<Refusal>,
}

impl BodyBuffer {
    /// Locks the content.
    fn lock_state(&self) -> MutexGuard<'_, BufferState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to the buffer.
    pub(crate) fn write_with(&self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.lock_state().bytes);
    }

    /// Refuses the request before anything was written, so that the response can have an error
    /// status.
    pub(crate) fn set_refusal(&self, refusal: Refusal) {
        self.lock_state().refusal = Some(refusal);
    }

    /// Takes all bytes out.
    fn take_bytes(&self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.lock_state().bytes))
    }
}

/// The task that fills a buffer.
pub(crate) type BodyTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The body of a response.
pub(crate) struct StreamingBody {
    /// The buffer that the task fills.
    buffer: BodyBuffer,
    /// The task; `None` when it is done.
    work: Option<BodyTask>,
    /// The keep-alive, on wires that have one.
    ping: Option<KeepAlive>,
}

/// The keep-alive of a stream.
struct KeepAlive {
    /// The bytes that clients skip.
    words: &'static str,
    /// The silence after which they are sent.
    every: Duration,
    /// The timer since the last bytes.
    timer: Pin<Box<Sleep>>,
}

impl StreamingBody {
    /// Makes a body from its buffer and the task that fills it. The task does not run before it is
    /// polled.
    pub(crate) fn new(buffer: BodyBuffer, work: BodyTask) -> Self {
        Self {
            buffer,
            work: Some(work),
            ping: None,
        }
    }

    /// Runs the task until there is something to send, or a reason for refusing the request.
    pub(crate) async fn wait_for_start(mut self) -> Result<Self, Refusal> {
        std::future::poll_fn(|context| {
            self.poll_task(context);
            // A refusal leaves no bytes, so the end of the task counts as well.
            let begun = !self.buffer.lock_state().bytes.is_empty();
            if begun || self.work.is_none() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        match self.buffer.lock_state().refusal.take() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }?;
        Ok(self)
    }

    /// Sends a text whenever nothing was sent for that time.
    pub(crate) fn with_keep_alive(mut self, words: &'static str, every: Duration) -> Self {
        if !words.is_empty() {
            self.ping = Some(KeepAlive {
                words,
                every,
                timer: Box::pin(sleep(every)),
            });
        }
        self
    }

    /// Polls the task, and drops it when it is done.
    fn poll_task(&mut self, context: &mut Context<'_>) {
        if self
            .work
            .as_mut()
            .is_some_and(|work| work.as_mut().poll(context).is_ready())
        {
            self.work = None;
        }
    }
}

impl KeepAlive {
    /// Starts the silence again.
    fn reset_timer(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.every);
    }
}

impl Body for StreamingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        // Bytes that are there go out before the model is read any further.
        let mut bytes = this.buffer.take_bytes();
        if bytes.is_empty() {
            this.poll_task(context);
            bytes = this.buffer.take_bytes();
        }
        if !bytes.is_empty() {
            this.ping.iter_mut().for_each(KeepAlive::reset_timer);
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if this.work.is_none() {
            return Poll::Ready(None);
        }
        // The task has registered its waker above; the timer registers its own.
        let Some(ping) = &mut this.ping else {
            return Poll::Pending;
        };
        ready!(ping.timer.as_mut().poll(context));
        ping.reset_timer();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(
            ping.words.as_bytes(),
        )))))
    }

    // The end is sent together with the last bytes.
    fn is_end_stream(&self) -> bool {
        self.work.is_none() && self.buffer.lock_state().bytes.is_empty()
    }
}
