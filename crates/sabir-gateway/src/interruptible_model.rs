//! Wraps a model so that its responses can be cut off when the gateway shuts down.

use std::sync::Arc;

use sabir_call::{
    EventSink, Model, ModelError, ModelErrorKind, ProviderReport, Request, ResponseFuture,
};
use tokio::sync::watch;

/// The error of a response that a shutdown cut off.
const SHUTDOWN_MESSAGE: &str = "the gateway is shutting down; ask again";

/// A model whose responses end with an error once `cut` becomes true.
pub(crate) struct InterruptibleModel {
    /// The model of the route.
    model: Arc<dyn Model>,
    /// Becomes true when the time for draining is over.
    cut: watch::Receiver<bool>,
}

impl InterruptibleModel {
    /// Wraps a model.
    pub(crate) fn new(model: Arc<dyn Model>, cut: watch::Receiver<bool>) -> Self {
        Self { model, cut }
    }
}

impl Model for InterruptibleModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let mut cut = self.cut.clone();
        Box::pin(async move {
            tokio::select! {
                // A response that is complete at the same moment wins.
                biased;
                answer = self.model.stream_response(request, sink) => answer,
                // An error means that the sender is gone; then nothing can cut the response any
                // more.
                Ok(_) = cut.wait_for(|cut| *cut) => {
                    request.report.update(|report| {
                        *report = ProviderReport {
                            upstream: report.upstream.take(),
                            status: Some(503),
                            message: SHUTDOWN_MESSAGE.to_owned(),
                            ..ProviderReport::default()
                        }
                    });
                    Err(ModelError {
                        kind: ModelErrorKind::Unavailable,
                        message: SHUTDOWN_MESSAGE.to_owned(),
                    })
                }
            }
        })
    }
}
