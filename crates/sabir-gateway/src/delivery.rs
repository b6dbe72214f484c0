//! Tracks the delivery of a response to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as _, Frame, SizeHint};

use crate::connection::BusyGuard;
use crate::exchange_log::ExchangeLog;

/// A body that logs how many bytes the client read, and releases the exchange's resources when it
/// ends or is dropped.
struct TrackedBody {
    /// The body of the response.
    body: Body,
    /// The log of the exchange, which ends with its last clone.
    ledger: ExchangeLog,
    /// Marks the connection as busy, so that no limit for the client's writing runs.
    _busy: BusyGuard,
}

/// Wraps the body of a response so that its delivery is logged.
pub(crate) fn track_delivery(response: Response, ledger: ExchangeLog, busy: BusyGuard) -> Response {
    ledger.set_status(response.status().as_u16());
    response.map(|body| {
        let delivery = TrackedBody {
            body,
            ledger,
            _busy: busy,
        };
        delivery.check_end();
        Body::new(delivery)
    })
}

impl TrackedBody {
    /// Logs the end of the body. This is needed because hyper does not poll a body of known length
    /// for its end.
    fn check_end(&self) {
        if self.body.is_end_stream() {
            self.ledger.mark_read();
        }
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                self.ledger
                    .add_bytes(frame.data_ref().map_or(0, Bytes::len));
                self.check_end();
            }
            Some(Err(_)) => {}
            None => self.ledger.mark_read(),
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
