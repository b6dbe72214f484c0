//! Failed requests: decides which are asked again, which with less, and which end the task.

use sabir_call::{DraftResponse, ModelError, ModelErrorKind};

use super::usage::UsageDelta;
use super::{Task, TaskEffect};
use crate::record::{FailedTurn, Record, TaskOutcome};

impl Task {
    /// Records that an answer failed or broke off, and asks again, compacts or ends. No part of the
    /// answer is kept.
    pub(super) fn handle_model_failure(
        &mut self,
        error: &ModelError,
        effects: &mut Vec<TaskEffect>,
    ) {
        // The model has already repeated requests that failed before an answer began, with pauses.
        let began = self.draft != DraftResponse::default();
        // A refused request costs nothing; a broken answer costs what arrived of it.
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
        if began && error.kind.is_transient() && self.progress.allows_retry(&self.settings.limits) {
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
