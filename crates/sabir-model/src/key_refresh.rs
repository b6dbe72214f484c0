//! Wraps a model so that its key is refreshed when the provider rejects it.
//!
//! Keys that a command prints are often short-lived. If such a key is rejected before the first
//! event of a response, the command runs again and the request is sent with the new key. If several
//! requests fail with the same key, one of them refreshes it and the others use the result. A new
//! key that is rejected at once is not refreshed again, which would be an endless loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sabir_call::{Event, EventSink, Model, ModelError, ModelErrorKind, Request, ResponseFuture};
use tokio::sync::Mutex;

use crate::secret::Secret;

/// A failure to get a new key: a sentence for the user, without any key in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyRefreshError(String);

impl From<String> for KeyRefreshError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

/// A future that gets a new key.
pub type KeyFuture = Pin<Box<dyn Future<Output = Result<Secret, KeyRefreshError>> + Send>>;

/// Makes a model with a key.
type ModelFactory<M> = Box<dyn Fn(Option<Secret>) -> M + Send + Sync>;
/// Gets a new key, usually from a command of the user.
type KeyRefresher = Box<dyn Fn() -> KeyFuture + Send + Sync>;

/// A model that is rebuilt with each new key.
pub struct KeyRefreshingModel<M> {
    /// Rebuilds the model, since a model's key cannot be changed.
    make: ModelFactory<M>,
    /// Gets a new key; `None` for a fixed one.
    renew: Option<KeyRefresher>,
    /// The current model. The lock is held during a refresh, but never during a response.
    state: Mutex<KeyState<M>>,
}

/// The current key and the model with it.
struct KeyState<M> {
    /// The model with the current key. Running responses keep the one that they began with.
    model: Arc<M>,
    /// The number of keys used so far.
    key_number: u64,
    /// True if this key may be refreshed: the first key, and any that was accepted at least once.
    renewable: bool,
}

impl<M: Model> KeyRefreshingModel<M> {
    /// Makes a model with a fixed key.
    pub fn with_key(
        key: Option<Secret>,
        make: impl Fn(Option<Secret>) -> M + Send + Sync + 'static,
    ) -> Self {
        let state = KeyState {
            model: Arc::new(make(key)),
            key_number: 0,
            renewable: true,
        };
        Self {
            make: Box::new(make),
            renew: None,
            state: Mutex::new(state),
        }
    }

    /// Sets the function that gets a new key.
    #[must_use]
    pub fn with_refresh<F, E>(mut self, renew: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Secret, E>> + Send + 'static,
        E: Into<KeyRefreshError> + 'static,
    {
        self.renew = Some(Box::new(move || {
            let key = renew();
            Box::pin(async move { key.await.map_err(Into::into) })
        }));
        self
    }

    /// Sends a request, and once more with a new key if the key is rejected before any event.
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
            // After an event the caller has a part of the response, which must not begin again.
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

    /// Returns the model with a newer key than the rejected one, and the number of its key.
    async fn refresh_key(
        &self,
        refused: u64,
        renew: &KeyRefresher,
        error: ModelError,
    ) -> Result<(Arc<M>, u64), ModelError> {
        // The lock is kept while the command runs, so that other requests with the rejected key
        // wait for its result.
        let mut state = self.state.lock().await;
        // Otherwise another request has refreshed the key in the meantime.
        if state.key_number == refused {
            if !state.renewable {
                return Err(error);
            }
            // Set first, so that a new key that is rejected at once is not refreshed in a loop.
            state.renewable = false;
            let key = renew()
                .await
                .map_err(|KeyRefreshError(message)| ModelError {
                    kind: ModelErrorKind::Key,
                    message,
                })?;
            state.model = Arc::new((self.make)(Some(key)));
            state.key_number += 1;
        }
        Ok((Arc::clone(&state.model), state.key_number))
    }

    /// Records that a key works, so that it may be refreshed when it expires.
    async fn record_outcome(&self, number: u64, answer: &Result<(), ModelError>) {
        let mut state = self.state.lock().await;
        // An older key that still worked says nothing about the current one.
        if answer.is_ok() && state.key_number == number {
            state.renewable = true;
        }
    }
}

impl<M: Model> Model for KeyRefreshingModel<M> {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(self.answer_with_refresh(request, sink))
    }
}

impl<M> std::fmt::Debug for KeyRefreshingModel<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewing")
            .field("renewable", &self.renew.is_some())
            .finish_non_exhaustive()
    }
}

/// A sink that records whether any event was delivered.
struct StartObserver<'a> {
    sink: &'a mut (dyn EventSink + Send),
    /// True once an event was delivered.
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
