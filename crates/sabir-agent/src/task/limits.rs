//! Limits at which a task stops.

use sabir_call::Dollars;

/// The limits of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// The most turns; `None`: no limit.
    pub turns: Option<u32>,
    /// The mistakes in a row (a bad, failed or denied call) after which the user is asked, or a
    /// headless task ends.
    pub mistakes: u32,
    /// The replies without a call in a row that a headless task answers with a reminder.
    pub reminders: u32,
    /// The refused completions after which the user is asked, or a headless task ends.
    pub refusals: u32,
    /// The rounds of the same calls with the same results after which the user is asked, or a
    /// headless task ends.
    pub cycles: u32,
    /// The number of times in a row that a turn is asked again because its answer broke off.
    pub retries: u32,
    /// The most tokens, read and written, reported or guessed, counted since the task was started
    /// or resumed; `None`: no limit.
    pub tokens: Option<u64>,
    /// The most money, counted since the task was started or resumed; `None`: no limit. It is
    /// checked before the model is asked, so the turn that reaches it is finished.
    pub cost: Option<Dollars>,
    /// The limits of subtasks.
    pub subtasks: SubtaskLimits,
}

/// The limits of subtasks. What subtasks use counts as the task's own: turns, tokens and money are
/// limits of the whole family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubtaskLimits {
    /// The levels of subtasks that are allowed below the task; 0: none.
    pub depth: u32,
    /// The most subtasks of a task that run at the same time; the others wait for their turn.
    pub max_concurrent: usize,
    /// The most subtasks that a task may begin, counted since it was started or resumed.
    pub max_total: u32,
}

impl Default for SubtaskLimits {
    fn default() -> Self {
        Self {
            depth: 2,
            max_concurrent: 3,
            max_total: 20,
        }
    }
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            turns: None,
            mistakes: 6,
            reminders: 2,
            refusals: 5,
            cycles: 6,
            retries: 3,
            tokens: None,
            cost: None,
            subtasks: SubtaskLimits::default(),
        }
    }
}
