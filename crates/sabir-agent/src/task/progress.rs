//! The progress of a task: counts failures, and detects when the model is stuck.
//!
//! Like the budget, it is a separate state machine: it owns its counts, changes by records alone,
//! and only answers questions. The task decides what follows from an answer.

use sabir_call::ToolResultStatus;
use sabir_check::{CheckedOutcome, MistakeCounter};

use super::cycles::{CallCycle, CycleDetector};
use super::limits::TaskLimits;

/// The progress of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskProgress {
    /// The calls in a row that went wrong.
    mistakes: u32,
    /// The replies without a call in a row.
    replies_without_call: u32,
    /// The requests in a row that got no whole answer.
    failures: u32,
    /// The calls that were denied since the last call that was done.
    denials: u32,
    /// True if a call that does more than read has begun since the user's last message.
    has_acted: bool,
    /// The valid completions that were refused since the user's last message.
    refusals: u32,
    /// The cycles of calls since the user's last message.
    pub(super) cycles: CycleDetector,
    /// The mistakes that the model has already got feedback on.
    reported_mistakes: MistakeCounter,
}

impl TaskProgress {
    /// Begins a run: what stopped the last one does not stop it at once.
    pub(super) fn begin_run(&mut self) {
        *self = Self {
            // The model still sees the feedback on them.
            reported_mistakes: std::mem::take(&mut self.reported_mistakes),
            // A resumed task has still changed what it changed.
            has_acted: self.has_acted,
            ..Self::default()
        };
    }

    /// Notes a message of the user: they know what went wrong, so counting starts again.
    pub(super) fn note_user_message(&mut self) {
        self.mistakes = 0;
        self.replies_without_call = 0;
        self.refusals = 0;
        self.failures = 0;
        self.has_acted = false;
        self.cycles = CycleDetector::default();
        // Denials still count: they explain in the end why a task could not be completed.
    }

    /// Notes that the model reads a user message that waited for its answer. That answer does not count as a reply, since it did not see
    /// the message.
    pub(super) fn note_user_message_delivered(&mut self) {
        self.replies_without_call = 0;
    }

    /// Notes an answer.
    pub(super) fn note_answer(&mut self, has_calls: bool) {
        self.failures = 0;
        self.replies_without_call = if has_calls {
            0
        } else {
            self.replies_without_call.saturating_add(1)
        };
    }

    /// Notes a request that got no whole answer.
    pub(super) fn note_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes the checked calls of an answer, and which mistakes the model gets feedback on.
    pub(super) fn note_checks<'a>(&mut self, outcomes: impl Iterator<Item = CheckedOutcome<'a>>) {
        self.reported_mistakes.record_message(outcomes);
    }

    /// Notes the end of a call.
    pub(super) fn note_result(&mut self, ending: ToolResultStatus) {
        match ending {
            ToolResultStatus::Done => self.denials = 0,
            ToolResultStatus::Denied => {
                self.denials = self.denials.saturating_add(1);
                self.mistakes = self.mistakes.saturating_add(1);
            }
            _ => self.mistakes = self.mistakes.saturating_add(1),
        }
    }

    /// Notes that a call begins that does more than read.
    pub(super) fn note_action(&mut self) {
        self.has_acted = true;
    }

    /// Reports whether a call that does more than read has begun since the user's last message.
    pub(super) fn has_acted(&self) -> bool {
        self.has_acted
    }

    /// Notes that a valid completion was refused.
    pub(super) fn note_refusal(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Notes a turn in which nothing went wrong.
    pub(super) fn note_clean_turn(&mut self) {
        self.mistakes = 0;
    }

    /// Returns the mistakes that the model has already got feedback on.
    pub(super) fn reported_mistakes(&self) -> &MistakeCounter {
        &self.reported_mistakes
    }

    /// Returns the number of replies without a call in a row.
    pub(super) fn replies_without_call(&self) -> u32 {
        self.replies_without_call
    }

    /// Returns the number of calls that were denied since the last one that was done.
    pub(super) fn denials(&self) -> u32 {
        self.denials
    }

    /// Reports whether a request whose answer broke off may be sent again.
    pub(super) fn allows_retry(&self, limits: &TaskLimits) -> bool {
        self.failures <= limits.retries
    }

    /// Returns the reason why the model should not simply continue, if there is one.
    pub(super) fn stuck_reason(&self, limits: &TaskLimits) -> Option<String> {
        if self.mistakes >= limits.mistakes {
            return Some(format!("{} calls in a row failed", self.mistakes));
        }
        if self.refusals >= limits.refusals {
            return Some(format!(
                "the completion was refused {} times",
                self.refusals
            ));
        }
        self.cycles
            .current_cycle()
            .filter(|cycle| cycle.times >= limits.cycles)
            .map(CallCycle::stop_reason)
    }
}
