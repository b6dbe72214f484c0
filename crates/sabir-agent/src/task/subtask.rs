//! Subtasks in the task state machine: their beginning, their usage, and the end of a task while some are at
//! work.
//!
//! A call of `new_task` is the one call that continues when its task is resumed: its subtask has
//! its own journal, so nothing is done twice and its state is never unknown. The call stays open
//! through an interrupt, a limit and a crash, and is assessed and run again.
//!
//! The usage of a subtask is known from its records in this task alone. Each record counts what no
//! earlier one has counted, so they add up like answers, in the machine and for readers of a
//! journal.

use sabir_call::{Call, CallId, Cost, ToolResultStatus, Usage};

use crate::control;
use crate::record::{Record, SubtaskEnd, TaskId, TaskOutcome};
use crate::tool::ToolOutput;

use super::calls::OpenTurn;
use super::limits::SubtaskLimits;
use super::usage::{UsageDelta, UsageTotals};
use super::{Task, TaskEffect, TaskPhase};

/// A subtask that a call began.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StartedSubtask {
    task: TaskId,
    /// The usage that is recorded so far.
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

    /// Subtracts what is recorded so far from everything that the subtask has used in its life.
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

/// Subtracts usage, field by field.
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
    /// Returns the end of this task for its parent, with everything that it and its subtasks used.
    pub(crate) fn subtask_usage(&self, outcome: TaskOutcome) -> SubtaskEnd {
        self.budget.to_subtask_end(outcome)
    }

    /// Ends the task because the shared budget is used up, if it is about to ask the model.
    pub(super) fn handle_budget_exhausted(&mut self, message: &str, effects: &mut Vec<TaskEffect>) {
        if matches!(
            self.phase,
            TaskPhase::AwaitingModel | TaskPhase::AwaitingSummary(_)
        ) {
            self.end_task(TaskOutcome::Limit, message, effects);
        }
    }

    /// Returns the reason, for the model, why a call cannot begin a subtask. A subtask that has
    /// begun may always continue.
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
        self.budget
            .is_out_of_subtasks(&self.settings.limits.subtasks)
            .then(|| format!("{most} subtasks were begun, and a task has no more than that. Do the rest yourself."))
    }

    /// Returns the subtask that a call of this task began.
    fn started_subtask(&self, call: &CallId) -> Option<&StartedSubtask> {
        // A fork has its own: that of the other task is the other's.
        let own = self.start.task.child_id(call);
        self.turn
            .as_ref()
            .and_then(|turn| turn.find_subtask(call))
            .filter(|begun| begun.task == own)
    }

    /// Records that a call is about to begin its subtask, unless that was recorded before.
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

    /// Records the end of a call's subtask.
    pub(super) fn end_subtask(
        &mut self,
        call: &CallId,
        end: SubtaskEnd,
        effects: &mut Vec<TaskEffect>,
    ) {
        if let Some(begun) = self.started_subtask(call) {
            let task = begun.task.clone();
            let ended = Some(begun.unreported_usage(end));
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

    /// Applies the record of a subtask's beginning or end.
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
            None => self.budget.note_subtask_start(),
            Some(end) => self.budget.note_subtask_end(end),
        }
    }

    /// Makes calls wait again whose subtasks were at work when the process ended.
    pub(super) fn requeue_subtasks(&mut self) {
        for (call, _) in self
            .turn
            .as_ref()
            .map(OpenTurn::calls_without_result)
            .unwrap_or_default()
        {
            if self.survives_resume(&call.name)
                && let Some(turn) = &mut self.turn
            {
                turn.requeue_call(&call.id);
            }
        }
    }

    /// Reports whether a running call of that name continues when the task is resumed.
    pub(super) fn survives_resume(&self, name: &str) -> bool {
        name == control::NEW_TASK_TOOL && self.settings.tools.get(name).is_some()
    }

    /// Ends the task from outside. Its subtasks end first and report their usage; their calls stay
    /// open.
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
        // Other tools have been dropped. Their calls are answered before the end is recorded, so
        // that no result is missing.
        self.interrupt_running(super::INTERRUPTED, effects);
        if let Some(turn) = &mut self.turn {
            turn.forget_assessments();
        }
        // An answer on its way to the old question must find none.
        self.question = None;
        self.phase = TaskPhase::Ending(outcome, message);
        self.end_when_idle(outcome, message, effects);
    }

    /// Handles the end of a subtask while the task ends. The result of a completed one answers its
    /// call; any other continues when the task is resumed.
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
                // Its call stays open without a result, so that the resumed task runs it again and
                // the subtask continues.
                turn.requeue_call(id);
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
            .map(OpenTurn::calls_without_result)
            .unwrap_or_default();
        if !unanswered.iter().any(|(_, running)| *running) {
            self.end_task(outcome, message, effects);
        }
    }

    /// Asks the running subtasks to end, and answers the calls whose subtasks are not running.
    pub(super) fn stop_subtasks(&mut self, effects: &mut Vec<TaskEffect>) {
        for (call, running) in self
            .turn
            .as_ref()
            .map(OpenTurn::calls_without_result)
            .unwrap_or_default()
        {
            if running && self.survives_resume(&call.name) {
                effects.push(TaskEffect::StopSubtask(call.id));
            } else if let Some(StartedSubtask { task, .. }) = self.started_subtask(&call.id) {
                let words = format!(
                    "The subtask {task} was started and interrupted, and the user sent a message, or switched the mode, before it continued. Its work is kept: look before you repeat it."
                );
                self.record_call_result(&call, ToolResultStatus::Interrupted, words, effects);
            }
        }
    }
}
