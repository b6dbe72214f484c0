//! Implements a model with scripted replies, for the tour without a key and for tests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{
    DraftResponse, Event, EventSink, Model, ModelError, ModelErrorKind, Request, ResponseFuture,
    StopReason, Truncation,
};
use sabir_wire::{replay_draft, split_text};

use crate::http::TextParsing;
use crate::response_pipeline::{AnswerBoundaries, ResponsePipeline};

/// One reply of a script.
#[derive(Debug, Clone)]
pub enum ScriptedReply {
    /// The text of a model, with calls in any dialect. It is parsed exactly like a prompted model's
    /// text.
    Text(String),
    /// A native response.
    Events(DraftResponse),
    /// A failed request.
    Error(ModelError),
}

/// A model that gives its replies one after the other, regardless of the requests.
#[derive(Debug, Default)]
pub struct ScriptedModel {
    /// The replies, in order.
    replies: Vec<ScriptedReply>,
    /// The size of pieces in bytes; 0 for undivided text.
    size: usize,
    /// The pause between pieces.
    pause: Duration,
    /// The requests so far; their number is the position in the script.
    asked: Mutex<Vec<Request>>,
}

impl ScriptedModel {
    /// Makes a model with these replies.
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        Self {
            replies: replies.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Splits each reply into pieces of at most `size` bytes; 0 disables splitting.
    #[must_use]
    pub fn piece_size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// Sets the pause between two pieces of text, so that a person can follow.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records the request and returns its reply.
    fn next_reply(&self, request: &Request) -> Result<&ScriptedReply, ModelError> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.clone());
        self.replies.get(asked.len() - 1).ok_or_else(|| ModelError {
            kind: ModelErrorKind::Rejected,
            message: format!(
                "the script has {} replies; it was asked for one more",
                self.replies.len()
            ),
        })
    }

    /// Delivers a text in pieces, then the stop reason.
    async fn stream_text(&self, text: &str, front: &mut ResponsePipeline<'_>) {
        let mut first = true;
        for text in split_text(text, self.size) {
            if !first && !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            first = false;
            front.push_event(Event::Text { text });
        }
        front.push_event(Event::Stop {
            reason: StopReason::End,
            raw: "",
        });
    }
}

impl Model for ScriptedModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(async move {
            let reply = self.next_reply(request)?;
            // The same pipeline as for a real model, so that a script tests the parsing too.
            let mut front = ResponsePipeline::new(
                request,
                TextParsing::Text,
                None,
                AnswerBoundaries::default(),
                sink,
            );
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
