//! Cancels calls of sessions whose clients have disconnected.
//!
//! In the older versions of the protocol the end of a connection does not cancel a call: the client
//! may come back for the result. If it does not, the call would keep running and occupying its slot
//! until it ends by itself.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::{Value, json};

/// The calls whose clients went away and may come back, each with its session.
#[derive(Clone, Default)]
pub(crate) struct AbandonedCalls(Arc<Mutex<Vec<AbandonedCall>>>);

struct AbandonedCall {
    session: String,
    /// True once a client of the session has come back.
    has_returned: Arc<AtomicBool>,
}

impl AbandonedCalls {
    /// Notes that a client has come back for the results of a session.
    pub(crate) fn note_reconnect(&self, session: &str) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| {
            let is_this = call.session == session;
            if is_this {
                call.has_returned.store(true, Ordering::Release);
            }
            !is_this
        });
    }

    fn add_call(&self, session: &str) -> Arc<AtomicBool> {
        let has_returned = Arc::new(AtomicBool::new(false));
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The others have ended: nobody waits for them any more.
        calls.retain(|call| Arc::strong_count(&call.has_returned) > 1);
        calls.push(AbandonedCall {
            session: session.to_owned(),
            has_returned: Arc::clone(&has_returned),
        });
        has_returned
    }
}

/// A call of a session that is being answered.
pub(crate) struct AnsweredCall {
    pub(crate) sessions: Arc<LocalSessionManager>,
    pub(crate) abandoned: AbandonedCalls,
    pub(crate) session: String,
    /// The id of the request.
    pub(crate) id: Value,
    /// The time in which the client may come back.
    pub(crate) return_time: Duration,
}

impl AnsweredCall {
    /// Cancels the call, unless its client comes back in time. It may have ended meanwhile, which makes the message meaningless.
    async fn cancel_later(self) {
        let has_returned = self.abandoned.add_call(&self.session);
        tokio::time::sleep(self.return_time).await;
        if has_returned.load(Ordering::Acquire) {
            return;
        }
        let params = json!({"requestId": self.id, "reason": "the client is gone"});
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        if let Ok(message) = serde_json::from_value(message) {
            // A session that has ended has no calls either.
            let _ = self
                .sessions
                .accept_message(&self.session.as_str().into(), message)
                .await;
        }
    }
}

/// The body of an answer, which notices that it was not read to its end.
pub(crate) struct AnswerBody<B> {
    inner: B,
    /// `None` once the answer was read to its end.
    call: Option<AnsweredCall>,
}

impl<B> AnswerBody<B> {
    pub(crate) fn new(inner: B, call: Option<AnsweredCall>) -> Self {
        Self { inner, call }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() {
            // The end comes after the result of the call.
            self.call = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for AnswerBody<B> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(call.cancel_later());
        }
    }
}
