//! A model whose key is fetched anew when the provider no longer takes it.
//!
//! Keys that a command prints are often short-lived. When such a key is refused before anything of the answer came, the
//! command is asked once more and the request is sent with the new key. However many requests fail with the same key, one of
//! them renews it and the others take what it got. A key that was new and is refused as well is not renewed again: that
//! would be a loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sabir_call::{Event, EventSink, Model, ModelError, ModelErrorKind, Request, ResponseFuture};
use tokio::sync::Mutex;

use crate::secret::Secret;

/// A new key on its way; the error is a sentence for the user, without any key.
pub type KeyFuture = Pin<Box<dyn Future<Output = Result<Secret, String>> + Send>>;

type ModelFactory<M> = Box<dyn Fn(Option<Secret>) -> M + Send + Sync>;
type KeyRefresher = Box<dyn Fn() -> KeyFuture + Send + Sync>;

/// A model that is made anew with each new key.
pub struct KeyRefreshingModel<M> {
    make: ModelFactory<M>,
    renew: Option<KeyRefresher>,
    state: Mutex<KeyState<M>>,
}

struct KeyState<M> {
    model: Arc<M>,
    /// Counts the keys.
    key_number: u64,
    /// Whether this key may be renewed: the first may, and one that has been accepted once.
    renewable: bool,
}

impl<M: Model> KeyRefreshingModel<M> {
    /// A model with a key that stays.
    pub fn with_key(key: Option<Secret>, make: impl Fn(Option<Secret>) -> M + Send + Sync + 'static) -> Self {
        let state = KeyState { model: Arc::new(make(key)), key_number: 0, renewable: true };
        Self { make: Box::new(make), renew: None, state: Mutex::new(state) }
    }

    /// Says where a new key comes from.
    #[must_use]
    pub fn with_renewal(mut self, renew: impl Fn() -> KeyFuture + Send + Sync + 'static) -> Self {
        self.renew = Some(Box::new(renew));
        self
    }

    async fn answer_with_refresh(
        &self,
        request: &Request,
        sink: &mut (dyn EventSink + Send),
    ) -> Result<(), ModelError> {
        let (model, number) = {
            let state = self.state.lock().await;
            (Arc::clone(&state.model), state.key_number)
        };
        let mut watched = StartObserver { sink, begun: false };
        let answer = model.stream_response(request, &mut watched).await;
        match (answer, &self.renew) {
            (Err(error), Some(renew)) if error.kind == ModelErrorKind::Key && !watched.begun => {
                let (model, number) = self.refresh_key(number, renew, error).await?;
                let answer = model.stream_response(request, sink).await;
                self.record_outcome(number, &answer).await;
                answer
            }
            (answer, _) => {
                self.record_outcome(number, &answer).await;
                answer
            }
        }
    }

    /// The model with a newer key than that one.
    async fn refresh_key(
        &self,
        refused: u64,
        renew: &KeyRefresher,
        error: ModelError,
    ) -> Result<(Arc<M>, u64), ModelError> {
        // The lock is held while the command runs, so that whoever else was refused waits for it.
        let mut state = self.state.lock().await;
        if state.key_number == refused {
            if !state.renewable {
                return Err(error);
            }
            state.renewable = false;
            let key = renew().await.map_err(|message| ModelError { kind: ModelErrorKind::Key, message })?;
            state.model = Arc::new((self.make)(Some(key)));
            state.key_number += 1;
        }
        Ok((Arc::clone(&state.model), state.key_number))
    }

    async fn record_outcome(&self, number: u64, answer: &Result<(), ModelError>) {
        let mut state = self.state.lock().await;
        if answer.is_ok() && state.key_number == number {
            state.renewable = true;
        }
    }
}

impl<M: Model> Model for KeyRefreshingModel<M> {
    fn stream_response<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn EventSink + Send)) -> ResponseFuture<'a> {
        Box::pin(self.answer_with_refresh(request, sink))
    }
}

impl<M> std::fmt::Debug for KeyRefreshingModel<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewing").field("renewable", &self.renew.is_some()).finish_non_exhaustive()
    }
}

/// Notes whether anything came.
struct StartObserver<'a> {
    sink: &'a mut (dyn EventSink + Send),
    begun: bool,
}

impl EventSink for StartObserver<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        self.begun = true;
        self.sink.push_event(event);
    }
}

#[cfg(test)]
mod tests;
