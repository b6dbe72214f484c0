//! A model whose key is fetched anew when the provider no longer takes it.
//!
//! Keys that a command prints are often short-lived. When such a key is refused before anything of the answer came, the
//! command is asked once more and the request is sent with the new key. However many requests fail with the same key, one of
//! them renews it and the others take what it got. A key that was new and is refused as well is not renewed again: that
//! would be a loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sabir_call::{Answer, Event, Model, ModelError, ModelErrorKind, Request, Sink};
use tokio::sync::Mutex;

use crate::secret::Secret;

/// A new key on its way; the error is a sentence for the user, without any key.
pub type Renewal = Pin<Box<dyn Future<Output = Result<Secret, String>> + Send>>;

type Make<M> = Box<dyn Fn(Option<Secret>) -> M + Send + Sync>;
type Renew = Box<dyn Fn() -> Renewal + Send + Sync>;

/// A model that is made anew with each new key.
pub struct Renewing<M> {
    make: Make<M>,
    renew: Option<Renew>,
    state: Mutex<State<M>>,
}

struct State<M> {
    model: Arc<M>,
    /// Counts the keys.
    number: u64,
    /// Whether this key may be renewed: the first may, and one that has been accepted once.
    renewable: bool,
}

impl<M: Model> Renewing<M> {
    /// A model with a key that stays.
    pub fn fixed(key: Option<Secret>, make: impl Fn(Option<Secret>) -> M + Send + Sync + 'static) -> Self {
        let state = State { model: Arc::new(make(key)), number: 0, renewable: true };
        Self { make: Box::new(make), renew: None, state: Mutex::new(state) }
    }

    /// Says where a new key comes from.
    #[must_use]
    pub fn with_renewal(mut self, renew: impl Fn() -> Renewal + Send + Sync + 'static) -> Self {
        self.renew = Some(Box::new(renew));
        self
    }

    async fn ask(&self, request: &Request, sink: &mut (dyn Sink + Send)) -> Result<(), ModelError> {
        let (model, number) = {
            let state = self.state.lock().await;
            (Arc::clone(&state.model), state.number)
        };
        let mut watched = Watched { sink, begun: false };
        let answer = model.answer(request, &mut watched).await;
        match (answer, &self.renew) {
            (Err(error), Some(renew)) if error.kind == ModelErrorKind::Key && !watched.begun => {
                let (model, number) = self.renewed(number, renew, error).await?;
                let answer = model.answer(request, sink).await;
                self.note(number, &answer).await;
                answer
            }
            (answer, _) => {
                self.note(number, &answer).await;
                answer
            }
        }
    }

    /// The model with a newer key than that one.
    async fn renewed(&self, refused: u64, renew: &Renew, error: ModelError) -> Result<(Arc<M>, u64), ModelError> {
        // The lock is held while the command runs, so that whoever else was refused waits for it.
        let mut state = self.state.lock().await;
        if state.number == refused {
            if !state.renewable {
                return Err(error);
            }
            state.renewable = false;
            let key = renew().await.map_err(|message| ModelError { kind: ModelErrorKind::Key, message })?;
            state.model = Arc::new((self.make)(Some(key)));
            state.number += 1;
        }
        Ok((Arc::clone(&state.model), state.number))
    }

    async fn note(&self, number: u64, answer: &Result<(), ModelError>) {
        let mut state = self.state.lock().await;
        if answer.is_ok() && state.number == number {
            state.renewable = true;
        }
    }
}

impl<M: Model> Model for Renewing<M> {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        Box::pin(self.ask(request, sink))
    }
}

impl<M> std::fmt::Debug for Renewing<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewing").field("renewable", &self.renew.is_some()).finish_non_exhaustive()
    }
}

/// Notes whether anything came.
struct Watched<'a> {
    sink: &'a mut (dyn Sink + Send),
    begun: bool,
}

impl Sink for Watched<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.begun = true;
        self.sink.event(event);
    }
}

#[cfg(test)]
mod tests;
