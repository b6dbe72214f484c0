//! Defines hooks that are callbacks of the program that drives the session, in place of commands.

use std::fmt::Debug;

use sabir_agent::ObserverFuture;
use serde_json::Value;

use super::event::HookEvent;
use super::reply::{HookOutput, HookReply};
use super::runner::{LoadedHook, fail_closed};
use super::settings_file::HookSpec;
use super::sources::{FoundHook, HookState};

/// The place of a callback, where a message names that of a hook.
const PLACE: &str = "the program that drives this task";

/// Answers hooks in the program that drives a session. A host calls them in every task, after the
/// hooks of files.
pub trait HookCallbacks: Debug + Send + Sync {
    /// Lists the callbacks.
    fn list_hooks(&self) -> Vec<CallbackHook>;

    /// Calls a callback with the input of its event, and returns its answer: the JSON that a hook command would print. An error refuses the
    /// action that the event announces.
    fn call_hook(
        &self,
        callback: String,
        input: Value,
    ) -> ObserverFuture<'_, Result<Value, CallbackError>>;
}

/// The reasons why a callback gives no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallbackError {
    /// The program reads no requests any more.
    #[error("the program has closed its input")]
    Closed,
    /// The callback failed, with the program's reason.
    #[error("the program's callback failed: {0}")]
    Failed(String),
}

/// A callback with the events that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackHook {
    /// The id that [`HookCallbacks::call_hook`] gets.
    pub callback: String,
    /// The moment.
    pub event: HookEvent,
    /// The names of tools, or the reasons of the event, that it is for; empty for all.
    pub matcher: String,
    /// The time limit in seconds; by default that of a command.
    pub timeout_seconds: Option<u64>,
    /// True if a callback that fails blocks, as one that refuses.
    pub blocks_on_failure: bool,
}

impl CallbackHook {
    /// Compiles the patterns of the callback; `None` if its matcher is not a pattern.
    pub(super) fn load(self) -> Option<LoadedHook> {
        let longest = self.event.max_timeout_seconds();
        let spec = HookSpec {
            event: self.event,
            matcher: self.matcher,
            condition: None,
            command: self.callback.clone(),
            timeout_seconds: self
                .timeout_seconds
                .unwrap_or(self.event.default_timeout_seconds())
                .min(longest),
            blocks_on_failure: self.blocks_on_failure,
        };
        let found = FoundHook {
            spec,
            file: PLACE.to_owned(),
            from_repository: false,
            state: HookState::Allowed,
            sha256: String::new(),
            files: Default::default(),
        };
        let mut hook = LoadedHook::new(found)?;
        hook.callback = Some(self.callback);
        Some(hook)
    }
}

/// Calls a callback and reads its answer.
pub(super) async fn run_callback(
    callbacks: &dyn HookCallbacks,
    callback: &str,
    spec: &HookSpec,
    input: &[u8],
) -> HookReply {
    let input = serde_json::from_slice(input).unwrap_or_default();
    let called = callbacks.call_hook(callback.to_owned(), input);
    match tokio::time::timeout(spec.timeout(), called).await {
        Ok(Ok(answer)) => {
            let output = HookOutput {
                exit_code: Some(0),
                output: answer.to_string(),
                ..HookOutput::default()
            };
            HookReply::from_output(spec.event, &output, spec.blocks_on_failure).redacted()
        }
        Ok(Err(error)) => fail_closed(spec, &error.to_string()),
        Err(_) => fail_closed(
            spec,
            &format!("it has not answered in {} s", spec.timeout_seconds),
        ),
    }
}
