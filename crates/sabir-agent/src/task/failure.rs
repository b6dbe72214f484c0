//! Requests without an answer: which are asked again, which with less, and which end the task.

use sabir_call::{Draft, ModelError, ModelErrorKind};

use super::charge::Charge;
use super::{Effect, Task};
use crate::record::{Failed, Outcome, Record};

impl Task {
    /// The answer broke off: nothing of it is kept, and the same is asked again a few times.
    pub(super) fn failed(&mut self, error: &ModelError, effects: &mut Vec<Effect>) {
        // What failed before its answer began has been repeated by the model itself, with pauses.
        let began = self.draft != Draft::default();
        // Nobody pays for a request that was refused; what broke off has been paid for as far as it came.
        let Charge { usage, estimate, cost } = if began { self.charge(&self.draft) } else { Charge::default() };
        let failed = Failed { error: error.kind, message: error.message.clone(), usage, estimate, cost };
        self.keep(Record::Failed(failed), effects);
        if began && error.kind.is_transient() && self.counts.failures <= self.settings.limits.retries {
            return self.ask(effects);
        }
        if self.recover(error.kind, effects) {
            return;
        }
        let outcome = match error.kind {
            ModelErrorKind::Key | ModelErrorKind::UnknownModel | ModelErrorKind::Cassette => Outcome::Misconfigured,
            _ => Outcome::ProviderFailed,
        };
        self.end(outcome, &error.message, effects);
    }
}
