//! Requests without an answer: which are asked again, which with less, and which end the task.

use sabir_call::{DraftResponse, ModelError, ModelErrorKind};

use super::usage::UsageDelta;
use super::{Task, TaskEffect};
use crate::record::{FailedTurn, Record, TaskOutcome};

impl Task {
    /// The answer broke off: nothing of it is kept, and the same is asked again a few times.
    pub(super) fn handle_model_failure(
        &mut self,
        error: &ModelError,
        effects: &mut Vec<TaskEffect>,
    ) {
        // What failed before its answer began has been repeated by the model itself, with pauses.
        let began = self.draft != DraftResponse::default();
        // Nobody pays for a request that was refused; what broke off has been paid for as far as it came.
        let UsageDelta {
            usage,
            estimate,
            cost,
        } = if began {
            self.answer_usage(&self.draft)
        } else {
            UsageDelta::default()
        };
        let failed = FailedTurn {
            error: error.kind,
            message: error.message.clone(),
            usage,
            estimate,
            cost,
        };
        self.commit_record(Record::Failed(failed), effects);
        if began
            && error.kind.is_transient()
            && self.counters.failures <= self.settings.limits.retries
        {
            return self.request_next_turn(effects);
        }
        if self.recover_from_overflow(error.kind, effects) {
            return;
        }
        let outcome = match error.kind {
            ModelErrorKind::Key | ModelErrorKind::UnknownModel | ModelErrorKind::Cassette => {
                TaskOutcome::Misconfigured
            }
            _ => TaskOutcome::ProviderFailed,
        };
        self.end_task(outcome, &error.message, effects);
    }
}
