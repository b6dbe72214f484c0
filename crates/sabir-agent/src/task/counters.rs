//! Everything that is counted in a task. All of it follows from the records.

use sabir_call::Cost;
use sabir_check::RepeatTracker;

use super::cycles::CycleDetector;

/// The counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskCounters {
    pub(super) turns: u32,
    /// Those before the task was resumed.
    pub(super) earlier_turns: u32,
    /// Turns of subtasks, as far as records told.
    pub(super) subtask_turns: u32,
    /// Those before the task was resumed.
    pub(super) earlier_subtask_turns: u32,
    /// Subtasks that were begun, since the task was begun or resumed.
    pub(super) subtasks: u32,
    pub(super) mistakes: u32,
    pub(super) replies_without_call: u32,
    pub(super) failures: u32,
    pub(super) denials: u32,
    /// Completions that were understood and refused, since the user last said something.
    pub(super) refusals: u32,
    /// The same calls again and again, since the user last said something.
    pub(super) cycles: CycleDetector,
    /// What was spent since the task was begun or resumed.
    pub(super) cost: Cost,
    pub(super) tokens: u64,
    /// The mistakes that the model was told of.
    pub(super) reported_mistakes: RepeatTracker,
}

impl TaskCounters {
    /// The user's words begin a new count of what goes wrong.
    pub(super) fn reset_after_user(&mut self) {
        (
            self.mistakes,
            self.replies_without_call,
            self.refusals,
            self.failures,
        ) = (0, 0, 0, 0);
        self.cycles = CycleDetector::default();
    }
}
