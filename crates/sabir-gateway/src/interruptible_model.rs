//! Models whose answers can be cut off from outside: when the gateway has to end and an answer has not.

use std::sync::Arc;

use sabir_call::{EventSink, Model, ModelError, ModelErrorKind, Request, ResponseFuture};
use tokio::sync::watch;

/// A model that stops answering when it is told to.
pub(crate) struct InterruptibleModel {
    model: Arc<dyn Model>,
    cut: watch::Receiver<bool>,
}

impl InterruptibleModel {
    pub(crate) fn new(model: Arc<dyn Model>, cut: watch::Receiver<bool>) -> Self {
        Self { model, cut }
    }
}

impl Model for InterruptibleModel {
    fn stream_response<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn EventSink + Send)) -> ResponseFuture<'a> {
        let mut cut = self.cut.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = self.model.stream_response(request, sink) => answer,
                // Without a sender nobody can cut any more; that is no reason to stop.
                Ok(_) = cut.wait_for(|cut| *cut) => Err(ModelError {
                    kind: ModelErrorKind::Unavailable,
                    message: "the gateway is ending; ask again".to_owned(),
                }),
            }
        })
    }
}
