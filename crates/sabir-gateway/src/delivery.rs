//! A response on its way: what holds as long as it is being taken, and what is known of it then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as _, Frame, SizeHint};

use crate::connection::Busy;
use crate::ledger::Ledger;

/// A body that writes into the ledger what the client took, and lets go of everything when it ends or is dropped.
struct Delivery {
    body: Body,
    ledger: Ledger,
    _busy: Busy,
}

/// The response, watched from now on.
pub(crate) fn watched(response: Response, ledger: Ledger, busy: Busy) -> Response {
    ledger.status(response.status().as_u16());
    response.map(|body| {
        let delivery = Delivery { body, ledger, _busy: busy };
        delivery.look();
        Body::new(delivery)
    })
}

impl Delivery {
    /// Notes whether that was the last of it: a body of a known length is not asked for its end.
    fn look(&self) {
        if self.body.is_end_stream() {
            self.ledger.taken();
        }
    }
}

impl http_body::Body for Delivery {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                self.ledger.sent(frame.data_ref().map_or(0, Bytes::len));
                self.look();
            }
            Some(Err(_)) => {}
            None => self.ledger.taken(),
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
