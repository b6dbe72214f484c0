//! Limits: when a task stops that would go on.

use sabir_call::Dollars;

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// The most turns; `None`: no limit.
    pub turns: Option<u32>,
    /// Mistakes in a row (a bad call, a failed or denied one) before the user is asked, or a headless task ends.
    pub mistakes: u32,
    /// Replies without a call in a row that a headless task answers with a reminder.
    pub reminders: u32,
    /// How often a completion is refused before the user is asked, or a headless task ends.
    pub refusals: u32,
    /// How often the same calls may come round with the same results before the user is asked, or a headless task ends.
    pub cycles: u32,
    /// How often a turn is asked again after its answer broke off.
    pub retries: u32,
    /// The most tokens, read and written, as the provider reports them or as they are guessed, counted as the money is.
    pub tokens: Option<u64>,
    /// The most money, counted since the task was begun or resumed; `None`: no limit. It is looked at before the model is
    /// asked, so the turn that reaches it is finished.
    pub cost: Option<Dollars>,
    /// How far subtasks go.
    pub subtasks: SubtaskLimits,
}

/// How far subtasks go. What they take is counted with the task's own: turns, tokens and money are limits of the whole family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubtaskLimits {
    /// How many levels of subtasks may stand below the task; 0: it has none.
    pub depth: u32,
    /// How many of a task run at the same time; more wait for their turn.
    pub max_concurrent: usize,
    /// How many a task may begin, counted since it was begun or resumed.
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
