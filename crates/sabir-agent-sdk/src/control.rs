//! Sends control requests to the program, and calls its hooks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_session::agent::ObserverFuture;
use sabir_session::hooks::{CallbackError, CallbackHook, HookCallbacks, HookEvent};
use sabir_terminal::print;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::error::RequestError;
use crate::json::value_at;

/// The requests to the program that are open.
#[derive(Debug, Default)]
pub(crate) struct ControlChannel {
    state: Mutex<ChannelState>,
}

#[derive(Debug, Default)]
struct ChannelState {
    /// The number of requests so far.
    sent: u64,
    /// The requests that something waits for, by their ids.
    waiting: HashMap<String, oneshot::Sender<Value>>,
    /// The program has closed its input: nothing is answered any more.
    is_closed: bool,
}

impl ChannelState {
    /// Prints a request and returns its id. Called under the lock, so that requests are printed in the order of their ids.
    fn print_request(&mut self, request: &Value) -> String {
        self.sent += 1;
        let id = format!("sabir-{}", self.sent);
        print::print_redacted_json(
            &json!({"type": "control_request", "request_id": id, "request": request}),
        );
        id
    }
}

impl ControlChannel {
    fn lock(&self) -> std::sync::MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a request and returns its id.
    pub(crate) fn send(&self, request: &Value) -> String {
        self.lock().print_request(request)
    }

    /// Withdraws a request that needs no answer any more.
    pub(crate) fn cancel(id: &str) {
        print::print_redacted_json(&json!({"type": "control_cancel_request", "request_id": id}));
    }

    /// Passes an answer on, and returns whether something waited for it.
    pub(crate) fn resolve(&self, id: &str, response: &Value) -> bool {
        let waiting = self.lock().waiting.remove(id);
        waiting.is_some_and(|waiting| waiting.send(response.clone()).is_ok())
    }

    /// Notes that no answers come any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        // Requests that come after this fail at once.
        state.is_closed = true;
        // Dropped senders tell those that wait.
        state.waiting.clear();
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, request: Value) -> Result<Value, CallbackError> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            if state.is_closed {
                return Err(CallbackError::Closed);
            }
            let id = state.print_request(&request);
            state.waiting.insert(id.clone(), sender);
            id
        };
        // Withdrawn if nothing waits any more: the task was interrupted, or the time is over.
        let guard = WithdrawnOnDrop { channel: self, id };
        let answer = receiver.await;
        drop(guard);
        let answer = answer.map_err(|_| CallbackError::Closed)?;
        if value_at(&answer, "/subtype") == "success" {
            return Ok(value_at(&answer, "/response").clone());
        }
        let reason = value_at(&answer, "/error").as_str();
        Err(CallbackError::Failed(
            reason.unwrap_or("without a reason").to_owned(),
        ))
    }
}

/// Withdraws a request when dropped before its answer came.
struct WithdrawnOnDrop<'a> {
    channel: &'a ControlChannel,
    id: String,
}

impl Drop for WithdrawnOnDrop<'_> {
    fn drop(&mut self) {
        if self.channel.lock().waiting.remove(&self.id).is_some() {
            ControlChannel::cancel(&self.id);
        }
    }
}

/// The hooks that a program has registered.
#[derive(Debug)]
pub(crate) struct ProgramHooks {
    channel: Arc<ControlChannel>,
    hooks: Vec<CallbackHook>,
}

impl ProgramHooks {
    /// Parses the `hooks` of an `initialize` request; `None` if there are none.
    ///
    /// # Errors
    /// When an event is not known: a hook that never runs is worse than none.
    pub(crate) fn parse(
        hooks: &Value,
        channel: &Arc<ControlChannel>,
    ) -> Result<Option<Self>, RequestError> {
        let mut parsed = Vec::new();
        for (name, matchers) in hooks.as_object().into_iter().flatten() {
            let matchers = matchers.as_array().map(Vec::as_slice).unwrap_or_default();
            // Packages send the events that they know, most of them without a hook.
            if matchers.is_empty() {
                continue;
            }
            let event = HookEvent::from_name(name).ok_or_else(|| RequestError::HookEvent {
                event: name.clone(),
            })?;
            for matcher in matchers {
                let callbacks = value_at(matcher, "/hookCallbackIds").as_array();
                for callback in callbacks.into_iter().flatten() {
                    let Some(callback) = callback.as_str() else {
                        return Err(RequestError::HookId {
                            event: name.clone(),
                        });
                    };
                    parsed.push(CallbackHook {
                        callback: callback.to_owned(),
                        event,
                        matcher: value_at(matcher, "/matcher")
                            .as_str()
                            .unwrap_or_default()
                            .to_owned(),
                        timeout_seconds: whole_seconds(value_at(matcher, "/timeout")),
                        blocks_on_failure: value_at(matcher, "/onFailure")
                            .as_str()
                            .is_some_and(|value| value != "continue"),
                    });
                }
            }
        }
        let channel = Arc::clone(channel);
        Ok((!parsed.is_empty()).then_some(Self {
            channel,
            hooks: parsed,
        }))
    }
}

/// Returns a number of seconds, rounded up.
fn whole_seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let seconds = value.as_f64()?.ceil();
        // A negative or absurd number becomes the nearest possible one.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates"
        )]
        Some((seconds as u64).max(1))
    })
}

impl HookCallbacks for ProgramHooks {
    fn list_hooks(&self) -> Vec<CallbackHook> {
        self.hooks.clone()
    }

    fn call_hook(
        &self,
        callback: String,
        input: Value,
    ) -> ObserverFuture<'_, Result<Value, CallbackError>> {
        let call = input.get("tool_use_id").cloned();
        let request = json!({
            "subtype": "hook_callback", "callback_id": callback, "input": input, "tool_use_id": call,
        });
        Box::pin(self.channel.ask(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_of_unknown_events_are_refused() {
        let channel = Arc::default();
        let hooks = json!({"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["hook_0"], "timeout": 1.5, "onFailure": "block"}]});
        let parsed = ProgramHooks::parse(&hooks, &channel).unwrap().unwrap();
        assert_eq!(
            parsed.list_hooks(),
            [CallbackHook {
                callback: "hook_0".to_owned(),
                event: HookEvent::PreToolUse,
                matcher: "Bash".to_owned(),
                timeout_seconds: Some(2),
                blocks_on_failure: true,
            }]
        );
        let unknown = json!({"PermissionRequest": [{"hookCallbackIds": ["hook_0"]}]});
        assert!(ProgramHooks::parse(&unknown, &channel).is_err());
        assert!(
            ProgramHooks::parse(&Value::Null, &channel)
                .unwrap()
                .is_none()
        );
    }
}
