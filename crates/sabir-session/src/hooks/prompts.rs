//! Runs the hooks about sessions and messages of the user: `SessionStart`, `UserPromptSubmit`, `SessionEnd` and a compaction between two runs.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sabir_agent::{CompactionObjection, CompactionReason};
use serde_json::json;

use super::event::{END_SECONDS, HookEvent};
use super::runner::{EventSubject, HookRunner, quote_for_model};

/// A message that a hook holds back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a hook held the message back: {0}")]
pub(crate) struct PromptRefused(String);

impl HookRunner {
    /// Runs the hooks of a beginning. What they print is added to the next message. `source` is `startup`, `resume` or `compact`.
    pub(crate) async fn run_session_start_hooks(&self, source: &str) {
        if let Some(text) = self.run_beginning(source).await {
            self.waiting_context
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(text);
        }
    }

    /// Runs the `SessionStart` hooks after a compaction in the middle of a run, and returns their
    /// output for the model.
    pub(super) async fn run_compact_start_hooks(&self) -> Option<String> {
        self.run_beginning("compact").await
    }

    async fn run_beginning(&self, source: &str) -> Option<String> {
        let subject = EventSubject {
            names: &[source],
            ..EventSubject::default()
        };
        let verdict = self
            .run_event(HookEvent::SessionStart, subject, json!({"source": source}))
            .await;
        if let Some(reason) = verdict.block.or(verdict.stop) {
            // A beginning cannot be refused; the reason is for the user.
            self.notify(reason);
        }
        (!verdict.context.is_empty())
            .then(|| quote_for_model(HookEvent::SessionStart, &verdict.context))
    }

    /// Runs the hooks about a message, and returns it with the texts that they add.
    ///
    /// # Errors
    /// When a hook holds it back.
    pub(crate) async fn check_prompt(&self, text: String) -> Result<String, PromptRefused> {
        // New words: hooks may let the model continue again.
        self.objections.store(0, Ordering::Relaxed);
        let verdict = self
            .run_event(
                HookEvent::UserPromptSubmit,
                EventSubject::default(),
                json!({"prompt": text}),
            )
            .await;
        if let Some(reason) = verdict.block.or(verdict.stop) {
            return Err(PromptRefused(reason));
        }
        // Taken once: what a beginning has printed belongs to the message that follows it.
        let waiting = std::mem::take(
            &mut *self
                .waiting_context
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let own = (!verdict.context.is_empty())
            .then(|| quote_for_model(HookEvent::UserPromptSubmit, &verdict.context));
        Ok(waiting.into_iter().chain(own).fold(text, |mut all, more| {
            all.push_str("\n\n");
            all.push_str(&more);
            all
        }))
    }

    /// Runs the hooks of an end. `reason` is `prompt_input_exit` if the user left, else `other`.
    pub(crate) async fn run_session_end_hooks(&self, reason: &str) {
        let subject = EventSubject {
            names: &[reason],
            ..EventSubject::default()
        };
        let hooks = self.run_event(HookEvent::SessionEnd, subject, json!({"reason": reason}));
        // Many hooks, or slow ones, must not keep the user from leaving.
        let time = Duration::from_secs(END_SECONDS);
        if tokio::time::timeout(time, hooks).await.is_err() {
            self.notify(format!(
                "the hooks of SessionEnd took more than {END_SECONDS} s and were ended"
            ));
        }
        self.stop_background();
    }

    /// Runs the hooks before a compaction, and says in a notice if one refuses it.
    ///
    /// # Errors
    /// When a hook refuses it, unless the last request was too long.
    pub(crate) async fn run_pre_compact_hooks(
        &self,
        reason: CompactionReason,
    ) -> Result<(), CompactionObjection> {
        let trigger = match reason {
            CompactionReason::Asked => "manual",
            _ => "auto",
        };
        let subject = EventSubject {
            names: &[trigger],
            ..EventSubject::default()
        };
        let fields = json!({"trigger": trigger, "custom_instructions": ""});
        let verdict = self.run_event(HookEvent::PreCompact, subject, fields).await;
        let Some(objection) = verdict.block.or(verdict.stop) else {
            return Ok(());
        };
        if reason == CompactionReason::Overflow {
            self.notify(format!(
                "a hook refused a compaction, which happens anyway: the last request was too long; {objection}"
            ));
            return Ok(());
        }
        self.notify(format!("a hook refused a compaction: {objection}"));
        Err(CompactionObjection)
    }
}
