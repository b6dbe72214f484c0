//! A model that answers from a list: for the keyless tour, and for tests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{Answer, Cut, Draft, Event, Model, ModelError, ModelErrorKind, Request, Sink, StopReason};
use sabir_wire::{pieces, play};

use crate::front::Front;
use crate::http::Reads;

/// One answer of a script.
#[derive(Debug, Clone)]
pub enum Reply {
    /// What a model would write, calls included, in any dialect. It is read exactly as a prompted model's text is.
    Text(String),
    /// A native answer.
    Events(Draft),
    /// No answer.
    Error(ModelError),
}

/// A model that gives its replies one after the other, whatever is asked.
#[derive(Debug, Default)]
pub struct ScriptedModel {
    replies: Vec<Reply>,
    size: usize,
    pause: Duration,
    asked: Mutex<Vec<Request>>,
}

impl ScriptedModel {
    /// A model with these replies.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { replies: replies.into_iter().collect(), ..Self::default() }
    }

    /// Splits each answer into pieces of at most so many bytes; 0: none is split.
    #[must_use]
    pub fn pieces(mut self, size: usize) -> Self {
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
    fn reply(&self, request: &Request) -> Result<&Reply, ModelError> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.clone());
        self.replies.get(asked.len() - 1).ok_or_else(|| ModelError {
            kind: ModelErrorKind::Rejected,
            message: format!("the script has {} replies; it was asked for one more", self.replies.len()),
        })
    }

    async fn say(&self, text: &str, front: &mut Front<'_>) {
        let mut first = true;
        for text in pieces(text, self.size) {
            if !first && !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            first = false;
            front.event(Event::Text { text });
        }
        front.event(Event::Stop { reason: StopReason::End, raw: "" });
    }
}

impl Model for ScriptedModel {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        Box::pin(async move {
            let reply = self.reply(request)?;
            let mut front = Front::new(request, Reads::Text, sink);
            match reply {
                Reply::Text(text) => self.say(text, &mut front).await,
                Reply::Events(draft) => play(draft, self.size, &mut front),
                Reply::Error(error) => return Err(error.clone()),
            }
            front.finish(Cut::Ended).release();
            Ok(())
        })
    }
}
