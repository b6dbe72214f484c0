//! Subtasks in the machine: when one may begin, what they take, and how a task ends while some are at work.
//!
//! A call of `new_task` is the one call that goes on when its task is resumed: its subtask has a journal of its own, so nothing is
//! done twice and nothing is in doubt. It stays open through an interrupt, a limit and a crash, and is weighed and run again.
//!
//! What a subtask takes is told by its records in this task alone. Each says what no earlier one told, so they are added up like
//! answers, here as in a journal that somebody looks through.

use sabir_call::{Call, CallId, Cost, Dollars, ToolResultStatus, Usage};

use crate::control;
use crate::record::{Record, SubtaskEnd, TaskId, TaskOutcome};
use crate::tool::ToolOutput;

use super::calls::OpenTurn;
use super::limits::{SubtaskLimits, TaskLimits};
use super::usage::{UsageDelta, UsageTotals};
use super::{Task, TaskEffect, TaskPhase};

/// A subtask that a call began.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StartedSubtask {
    task: TaskId,
    /// What it took, as far as records told.
    reported: UsageTotals,
    turns: u32,
}

impl StartedSubtask {
    fn new(task: TaskId) -> Self {
        Self {
            task,
            reported: UsageTotals::default(),
            turns: 0,
        }
    }

    fn note_end(&mut self, end: &SubtaskEnd) {
        self.reported.add_delta(UsageDelta::from_subtask(end));
        self.turns = self.turns.saturating_add(end.turns);
    }

    /// What no record told yet of a subtask that took so much in all its life.
    fn unreported_usage(&self, end: SubtaskEnd) -> SubtaskEnd {
        SubtaskEnd {
            outcome: end.outcome,
            turns: end.turns.saturating_sub(self.turns),
            usage: usage_difference(end.usage, self.reported.usage),
            estimate: usage_difference(end.estimate, self.reported.estimate),
            cost: Cost {
                known: end.cost.known.saturating_sub(self.reported.cost.known),
                ..end.cost
            },
        }
    }
}

/// What is in the first and not in the second.
fn usage_difference(all: Usage, told: Usage) -> Usage {
    let rest =
        |all: Option<u64>, told: Option<u64>| all.map(|all| all.saturating_sub(told.unwrap_or(0)));
    Usage {
        input: rest(all.input, told.input),
        output: rest(all.output, told.output),
        cache_read: rest(all.cache_read, told.cache_read),
        cache_write: rest(all.cache_write, told.cache_write),
        reasoning: rest(all.reasoning, told.reasoning),
    }
}

impl Task {
    /// What the task took, with all its subtasks as far as it knows, as a parent is told of it.
    pub(crate) fn subtask_usage(&self, outcome: TaskOutcome) -> SubtaskEnd {
        let UsageTotals {
            usage,
            estimate,
            cost,
        } = self.totals;
        let turns = self
            .counters
            .turns
            .saturating_add(self.counters.subtask_turns);
        SubtaskEnd {
            outcome,
            turns,
            usage,
            estimate,
            cost,
        }
    }

    /// Turns since the task was begun or resumed, those of its subtasks included.
    pub(super) fn total_turns(&self) -> u32 {
        self.turn_count().saturating_add(
            self.counters
                .subtask_turns
                .saturating_sub(self.counters.earlier_subtask_turns),
        )
    }

    /// The family has used up what it may take.
    pub(super) fn handle_budget_exhausted(&mut self, message: &str, effects: &mut Vec<TaskEffect>) {
        if matches!(
            self.phase,
            TaskPhase::AwaitingModel | TaskPhase::AwaitingSummary(_)
        ) {
            self.end_task(TaskOutcome::Limit, message, effects);
        }
    }

    /// What a subtask that begins now may take.
    pub(super) fn remaining_limits(&self) -> TaskLimits {
        let (limits, counts) = (self.settings.limits, &self.counters);
        // A cost that is not known leaves nothing.
        let money = |limit: Dollars| {
            if counts.cost.at_least {
                Dollars::default()
            } else {
                limit.saturating_sub(counts.cost.known)
            }
        };
        let SubtaskLimits {
            depth,
            max_concurrent: at_once,
            max_total: most,
        } = limits.subtasks;
        TaskLimits {
            turns: limits
                .turns
                .map(|limit| limit.saturating_sub(self.total_turns())),
            tokens: limits
                .tokens
                .map(|limit| limit.saturating_sub(counts.tokens)),
            cost: limits.cost.map(money),
            subtasks: SubtaskLimits {
                depth: depth.saturating_sub(1),
                max_concurrent: at_once,
                max_total: most,
            },
            ..limits
        }
    }

    /// Why a call begins no subtask, in words for the model, if it does not. One that was begun goes on.
    pub(super) fn subtask_refusal(&self, call: &Call) -> Option<String> {
        let SubtaskLimits {
            depth,
            max_total: most,
            ..
        } = self.settings.limits.subtasks;
        if call.name != control::NEW_TASK_TOOL || self.started_subtask(&call.id).is_some() {
            return None;
        }
        if depth == 0 {
            return Some("A task as deep as this one has no subtasks. Do it yourself.".to_owned());
        }
        (self.counters.subtasks >= most)
            .then(|| format!("{most} subtasks were begun, and a task has no more than that. Do the rest yourself."))
    }

    /// The subtask that a call of this task began, if it did.
    fn started_subtask(&self, call: &CallId) -> Option<&StartedSubtask> {
        // A fork has its own: that of the other task is the other's.
        let own = self.start.task.child_id(call);
        self.turn
            .as_ref()
            .and_then(|turn| turn.find_subtask(call))
            .filter(|begun| begun.task == own)
    }

    /// Keeps that a call is about to begin its subtask, unless that was kept before.
    pub(super) fn begin_subtask(&mut self, call: &CallId, effects: &mut Vec<TaskEffect>) {
        let is_one = self
            .open_call(call)
            .is_some_and(|call| call.name == control::NEW_TASK_TOOL);
        if is_one && self.started_subtask(call).is_none() {
            let task = self.start.task.child_id(call);
            self.commit_record(
                Record::Subtask {
                    call: call.clone(),
                    task,
                    ended: None,
                },
                effects,
            );
        }
    }

    /// Keeps how the subtask of a call ended.
    pub(super) fn end_subtask(
        &mut self,
        call: &CallId,
        end: SubtaskEnd,
        effects: &mut Vec<TaskEffect>,
    ) {
        if let Some(begun) = self.started_subtask(call) {
            let (task, ended) = (begun.task.clone(), Some(begun.unreported_usage(end)));
            self.commit_record(
                Record::Subtask {
                    call: call.clone(),
                    task,
                    ended,
                },
                effects,
            );
        }
    }

    /// Takes a record of a subtask.
    pub(super) fn apply_subtask(
        &mut self,
        call: &CallId,
        task: &TaskId,
        ended: Option<&SubtaskEnd>,
    ) {
        let slot = self.turn.as_mut().and_then(|turn| turn.subtask_slot(call));
        match (slot, ended) {
            (Some(slot), None) => *slot = Some(StartedSubtask::new(task.clone())),
            (Some(Some(begun)), Some(end)) => begun.note_end(end),
            _ => {}
        }
        match ended {
            None => self.counters.subtasks = self.counters.subtasks.saturating_add(1),
            Some(end) => {
                self.counters.subtask_turns = self.counters.subtask_turns.saturating_add(end.turns);
                self.apply_usage(UsageDelta::from_subtask(end));
            }
        }
    }

    /// Calls whose subtasks were at work when the process ended wait for their turn again.
    pub(super) fn requeue_subtasks(&mut self) {
        for (call, _) in self
            .turn
            .as_ref()
            .map(OpenTurn::unanswered_calls)
            .unwrap_or_default()
        {
            if self.survives_resume(&call.name)
                && let Some(turn) = &mut self.turn
            {
                turn.mark_waiting(&call.id);
            }
        }
    }

    /// Whether a running call of that name goes on when the task is resumed.
    pub(super) fn survives_resume(&self, name: &str) -> bool {
        name == control::NEW_TASK_TOOL && self.settings.tools.get(name).is_some()
    }

    /// Ends the task from outside. Subtasks end first, and say what they took; their calls stay open.
    pub(super) fn shut_down(
        &mut self,
        outcome: TaskOutcome,
        message: &'static str,
        effects: &mut Vec<TaskEffect>,
    ) {
        effects.push(TaskEffect::StopAll);
        if self.phase == TaskPhase::Paused {
            // Nothing is at work yet.
            self.requeue_subtasks();
        }
        self.interrupt_running(super::INTERRUPTED, effects);
        self.question = None;
        self.phase = TaskPhase::Ending(outcome, message);
        self.end_when_idle(outcome, message, effects);
    }

    /// A subtask is over while the task ends. What it completed is its call's result; all else is gone on with when the task is.
    pub(super) fn handle_result_while_ending(
        &mut self,
        id: &CallId,
        output: ToolOutput,
        effects: &mut Vec<TaskEffect>,
    ) {
        let TaskPhase::Ending(outcome, message) = self.phase else {
            return;
        };
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_running(id)) else {
            return;
        };
        match output.subtask {
            Some(SubtaskEnd {
                outcome: TaskOutcome::Completed,
                ..
            }) => self.commit_output(id, output, effects),
            end => {
                turn.mark_waiting(id);
                end.into_iter()
                    .for_each(|end| self.end_subtask(id, end, effects));
            }
        }
        self.end_when_idle(outcome, message, effects);
    }

    fn end_when_idle(
        &mut self,
        outcome: TaskOutcome,
        message: &str,
        effects: &mut Vec<TaskEffect>,
    ) {
        let unanswered = self
            .turn
            .as_ref()
            .map(OpenTurn::unanswered_calls)
            .unwrap_or_default();
        if !unanswered.iter().any(|(_, running)| *running) {
            self.end_task(outcome, message, effects);
        }
    }

    /// Asks the subtasks that are at work to end, and answers the calls whose subtasks were to go on.
    pub(super) fn stop_subtasks(&mut self, effects: &mut Vec<TaskEffect>) {
        for (call, running) in self
            .turn
            .as_ref()
            .map(OpenTurn::unanswered_calls)
            .unwrap_or_default()
        {
            if running && self.survives_resume(&call.name) {
                effects.push(TaskEffect::StopSubtask(call.id));
            } else if let Some(StartedSubtask { task, .. }) = self.started_subtask(&call.id) {
                let words = format!(
                    "The subtask {task} was begun and interrupted, and the user said something, or switched the mode, before it went on. \
                     What it did stands: look before you repeat it."
                );
                self.answer_call(&call, ToolResultStatus::Interrupted, words, effects);
            }
        }
    }
}
