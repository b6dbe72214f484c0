//! The budget of a task: counts what the task uses, compares it with the limits, and divides what
//! is left.
//!
//! The budget is a separate state machine: it owns its counts, changes by records alone, and only
//! answers questions. The task decides what follows from an answer.

use sabir_call::{Cost, Dollars, ToolResultStatus};

use crate::record::{SubtaskEnd, TaskOutcome, TaskUsage, ToolUsageTable};

use super::limits::{SubtaskLimits, TaskLimits};
use super::usage::{UsageDelta, UsageTotals};

/// The budget of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskBudget {
    /// The usage in the whole life of the task.
    totals: UsageTotals,
    /// The answers in the whole life of the task.
    turns: u32,
    /// The turns of subtasks in the whole life of the task, as far as they are recorded.
    subtask_turns: u32,
    /// The use of each tool in the whole life of the task.
    tools: ToolUsageTable,
    run: RunUsage,
}

/// The time between two requests to a task's model, in which its subtasks work. No subtask works in two periods, and all
/// earlier usage is recorded when a period begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetPeriod {
    /// The answers in the whole life of the task.
    turns: u32,
    /// The turns before this run, which has its own limits.
    earlier_turns: u32,
}

/// The usage since the start of the current run, to which its limits apply.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct RunUsage {
    /// The answers before the run.
    earlier_turns: u32,
    /// The turns of subtasks before the run.
    earlier_subtask_turns: u32,
    /// The subtasks that were begun in the run.
    subtasks: u32,
    tokens: u64,
    cost: Cost,
}

impl TaskBudget {
    /// Begins a run, which may use all that the limits allow.
    pub(super) fn begin_run(&mut self) {
        // Turns keep counting, since they number the records and the call ids.
        self.run = RunUsage {
            earlier_turns: self.turns,
            earlier_subtask_turns: self.subtask_turns,
            ..RunUsage::default()
        };
    }

    /// Adds a turn.
    pub(super) fn note_turn(&mut self) {
        self.turns = self.turns.saturating_add(1);
    }

    /// Adds tokens and cost.
    pub(super) fn note_usage(&mut self, delta: UsageDelta) {
        self.totals.add_delta(delta);
        self.run.cost += delta.cost;
        self.run.tokens = self.run.tokens.saturating_add(delta.total_tokens());
    }

    /// Adds the end of a call of this tool.
    pub(super) fn note_result(&mut self, tool: &str, ending: ToolResultStatus) {
        self.tools
            .entry(tool.to_owned())
            .or_default()
            .note_result(ending);
    }

    /// Adds a subtask that begins.
    pub(super) fn note_subtask_start(&mut self) {
        self.run.subtasks = self.run.subtasks.saturating_add(1);
    }

    /// Adds what a subtask used, as far as no earlier record has reported it.
    pub(super) fn note_subtask_end(&mut self, end: &SubtaskEnd) {
        self.subtask_turns = self.subtask_turns.saturating_add(end.turns);
        self.note_usage(UsageDelta::from_subtask(end));
    }

    /// Returns the usage in the whole life of the task.
    pub(super) fn totals(&self) -> UsageTotals {
        self.totals
    }

    /// Returns everything that was used in the whole life of the task, for its end.
    pub(super) fn task_usage(&self) -> TaskUsage {
        TaskUsage {
            usage: self.totals.usage,
            estimate: self.totals.estimate,
            cost: self.totals.cost,
            tools: self.tools.clone(),
        }
    }

    /// Returns the number of answers in the whole life of the task.
    pub(super) fn lifetime_turns(&self) -> u32 {
        self.turns
    }

    /// Returns the number of answers in this run.
    pub(super) fn run_turns(&self) -> u32 {
        self.turns.saturating_sub(self.run.earlier_turns)
    }

    /// Returns the number of turns in this run, including those of subtasks.
    fn turns_with_subtasks(&self) -> u32 {
        self.run_turns().saturating_add(
            self.subtask_turns
                .saturating_sub(self.run.earlier_subtask_turns),
        )
    }

    /// Returns the end of the task for its parent, with everything that it and its subtasks used.
    pub(super) fn to_subtask_end(&self, outcome: TaskOutcome) -> SubtaskEnd {
        SubtaskEnd {
            outcome,
            turns: self.turns.saturating_add(self.subtask_turns),
            usage: self.totals.usage,
            estimate: self.totals.estimate,
            cost: self.totals.cost,
        }
    }

    /// Describes the first limit that is reached, for the user.
    pub(super) fn describe_reached_limit(&self, limits: &TaskLimits) -> Option<String> {
        self.turn_limit(limits)
            .or_else(|| self.token_limit(limits))
            .or_else(|| self.cost_limit(limits))
    }

    fn turn_limit(&self, limits: &TaskLimits) -> Option<String> {
        let limit = limits.turns?;
        // Subtasks count as well, or a task could pass any limit by delegating.
        let turns = self.turns_with_subtasks();
        let unit = if turns == 1 { "turn" } else { "turns" };
        (turns >= limit).then(|| format!("the limit of {turns} {unit} was reached"))
    }

    fn token_limit(&self, limits: &TaskLimits) -> Option<String> {
        let limit = limits.tokens?;
        let tokens = self.run.tokens;
        (tokens >= limit).then(|| format!("the limit of {limit} tokens was reached: {tokens}"))
    }

    fn cost_limit(&self, limits: &TaskLimits) -> Option<String> {
        let limit = limits.cost?;
        let cost = self.run.cost;
        // A limit that cannot be kept counts as reached.
        if cost.at_least {
            return Some(format!(
                "the limit of {limit} cannot be kept any longer: what the task costs is not known ({cost})"
            ));
        }
        (cost.known >= limit).then(|| format!("the limit of {limit} was reached: {cost}"))
    }

    /// Reports whether the run may begin no further subtask.
    pub(super) fn is_out_of_subtasks(&self, limits: &SubtaskLimits) -> bool {
        self.run.subtasks >= limits.max_total
    }

    /// Returns the period that subtasks which begin now belong to.
    pub(super) fn period(&self) -> BudgetPeriod {
        BudgetPeriod {
            turns: self.turns,
            earlier_turns: self.run.earlier_turns,
        }
    }

    /// Returns the limits of a subtask that begins now.
    pub(super) fn remaining_limits(&self, limits: &TaskLimits) -> TaskLimits {
        let cost = self.run.cost;
        let remaining_cost = |limit: Dollars| {
            // A cost that is not known leaves nothing.
            if cost.at_least {
                Dollars::default()
            } else {
                limit.saturating_sub(cost.known)
            }
        };
        TaskLimits {
            turns: limits
                .turns
                .map(|limit| limit.saturating_sub(self.turns_with_subtasks())),
            tokens: limits
                .tokens
                .map(|limit| limit.saturating_sub(self.run.tokens)),
            cost: limits.cost.map(remaining_cost),
            subtasks: SubtaskLimits {
                // At 0 a subtask is not offered `new_task`, so the tree of tasks has a bottom.
                depth: limits.subtasks.depth.saturating_sub(1),
                ..limits.subtasks
            },
            ..*limits
        }
    }
}
