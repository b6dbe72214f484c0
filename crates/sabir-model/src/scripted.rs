//! A model that answers from a list: for the keyless tour, and for tests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{
    DraftResponse, Event, EventSink, Model, ModelError, ModelErrorKind, Request, ResponseFuture, StopReason, Truncation,
};
use sabir_wire::{replay_draft, split_text};

use crate::http::TextParsing;
use crate::response_pipeline::ResponsePipeline;

/// One answer of a script.
#[derive(Debug, Clone)]
pub enum ScriptedReply {
    /// What a model would write, calls included, in any dialect. It is read exactly as a prompted model's text is.
    Text(String),
    /// A native answer.
    Events(DraftResponse),
    /// No answer.
    Error(ModelError),
}

/// A model that gives its replies one after the other, whatever is asked.
#[derive(Debug, Default)]
pub struct ScriptedModel {
    replies: Vec<ScriptedReply>,
    size: usize,
    pause: Duration,
    asked: Mutex<Vec<Request>>,
}

impl ScriptedModel {
    /// A model with these replies.
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        Self { replies: replies.into_iter().collect(), ..Self::default() }
    }

    /// Splits each answer into pieces of at most so many bytes; 0: none is split.
    #[must_use]
    pub fn piece_size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// Waits so long between two pieces of text, so that a person can watch.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the request and finds its reply.
    fn next_reply(&self, request: &Request) -> Result<&ScriptedReply, ModelError> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.clone());
        self.replies.get(asked.len() - 1).ok_or_else(|| ModelError {
            kind: ModelErrorKind::Rejected,
            message: format!("the script has {} replies; it was asked for one more", self.replies.len()),
        })
    }

    async fn stream_text(&self, text: &str, front: &mut ResponsePipeline<'_>) {
        let mut first = true;
        for text in split_text(text, self.size) {
            if !first && !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            first = false;
            front.push_event(Event::Text { text });
        }
        front.push_event(Event::Stop { reason: StopReason::End, raw: "" });
    }
}

impl Model for ScriptedModel {
    fn stream_response<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn EventSink + Send)) -> ResponseFuture<'a> {
        Box::pin(async move {
            let reply = self.next_reply(request)?;
            let mut front = ResponsePipeline::new(request, TextParsing::Text, sink);
            match reply {
                ScriptedReply::Text(text) => self.stream_text(text, &mut front).await,
                ScriptedReply::Events(draft) => replay_draft(draft, self.size, &mut front),
                ScriptedReply::Error(error) => return Err(error.clone()),
            }
            front.finish(Truncation::Ended).deliver_held();
            Ok(())
        })
    }
}
