//! Models whose answers can be cut off from outside: when the gateway has to end and an answer has not.

use std::sync::Arc;

use sabir_call::{Answer, Model, ModelError, ModelErrorKind, Request, Sink};
use tokio::sync::watch;

/// A model that stops answering when it is told to.
pub(crate) struct Cuttable {
    model: Arc<dyn Model>,
    cut: watch::Receiver<bool>,
}

impl Cuttable {
    pub(crate) fn new(model: Arc<dyn Model>, cut: watch::Receiver<bool>) -> Self {
        Self { model, cut }
    }
}

impl Model for Cuttable {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        let mut cut = self.cut.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = self.model.answer(request, sink) => answer,
                // Without a sender nobody can cut any more; that is no reason to stop.
                Ok(_) = cut.wait_for(|cut| *cut) => Err(ModelError {
                    kind: ModelErrorKind::Unavailable,
                    message: "the gateway is ending; ask again".to_owned(),
                }),
            }
        })
    }
}
