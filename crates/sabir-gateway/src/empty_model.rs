//! Provides a model without answers, for tests that need none.

use sabir_call::{EventSink, Model, Request, ResponseFuture};

/// A model that says nothing.
pub(crate) struct EmptyModel;

impl Model for EmptyModel {
    fn stream_response<'a>(
        &'a self,
        _request: &'a Request,
        _sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(async { Ok(()) })
    }
}
