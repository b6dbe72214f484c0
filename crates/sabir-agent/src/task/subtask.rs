//! Subtasks in the machine: when one may begin, what they take, and how a task ends while some are at work.
//!
//! A call of `new_task` is the one call that goes on when its task is resumed: its subtask has a journal of its own, so nothing is
//! done twice and nothing is in doubt. It stays open through an interrupt, a limit and a crash, and is weighed and run again.
//!
//! What a subtask takes is told by its records in this task alone. Each says what no earlier one told, so they are added up like
//! answers, here as in a journal that somebody looks through.

use sabir_call::{Call, CallId, Cost, Dollars, Ending, Usage};

use crate::control;
use crate::record::{Outcome, Record, SubtaskEnd, TaskId};
use crate::tool::ToolOutput;

use super::calls::Turn;
use super::charge::{Charge, Totals};
use super::limits::{Limits, SubtaskLimits};
use super::{Effect, Phase, Task};

/// A subtask that a call began.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Begun {
    task: TaskId,
    /// What it took, as far as records told.
    told: Totals,
    turns: u32,
}

impl Begun {
    fn new(task: TaskId) -> Self {
        Self { task, told: Totals::default(), turns: 0 }
    }

    fn note(&mut self, end: &SubtaskEnd) {
        self.told.add(Charge::of_subtask(end));
        self.turns = self.turns.saturating_add(end.turns);
    }

    /// What no record told yet of a subtask that took so much in all its life.
    fn untold(&self, end: SubtaskEnd) -> SubtaskEnd {
        SubtaskEnd {
            outcome: end.outcome,
            turns: end.turns.saturating_sub(self.turns),
            usage: beyond(end.usage, self.told.usage),
            estimate: beyond(end.estimate, self.told.estimate),
            cost: Cost { known: end.cost.known.minus(self.told.cost.known), ..end.cost },
        }
    }
}

/// What is in the first and not in the second.
fn beyond(all: Usage, told: Usage) -> Usage {
    let rest = |all: Option<u64>, told: Option<u64>| all.map(|all| all.saturating_sub(told.unwrap_or(0)));
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
    pub(crate) fn taken(&self, outcome: Outcome) -> SubtaskEnd {
        let Totals { usage, estimate, cost } = self.totals;
        let turns = self.counts.turns.saturating_add(self.counts.family_turns);
        SubtaskEnd { outcome, turns, usage, estimate, cost }
    }

    /// Turns since the task was begun or resumed, those of its subtasks included.
    pub(super) fn turns_in_all(&self) -> u32 {
        self.turns().saturating_add(self.counts.family_turns.saturating_sub(self.counts.earlier_family_turns))
    }

    /// The family has used up what it may take.
    pub(super) fn spent(&mut self, message: &str, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Asking | Phase::Summarising(_)) {
            self.end(Outcome::Limit, message, effects);
        }
    }

    /// What a subtask that begins now may take.
    pub(super) fn allowance(&self) -> Limits {
        let (limits, counts) = (self.settings.limits, &self.counts);
        // A cost that is not known leaves nothing.
        let money =
            |limit: Dollars| if counts.spent.at_least { Dollars::default() } else { limit.minus(counts.spent.known) };
        let SubtaskLimits { depth, at_once, most } = limits.subtasks;
        Limits {
            turns: limits.turns.map(|limit| limit.saturating_sub(self.turns_in_all())),
            tokens: limits.tokens.map(|limit| limit.saturating_sub(counts.tokens)),
            cost: limits.cost.map(money),
            subtasks: SubtaskLimits { depth: depth.saturating_sub(1), at_once, most },
            ..limits
        }
    }

    /// Why a call begins no subtask, in words for the model, if it does not. One that was begun goes on.
    pub(super) fn no_subtask(&self, call: &Call) -> Option<String> {
        let SubtaskLimits { depth, most, .. } = self.settings.limits.subtasks;
        if call.name != control::SUBTASK || self.begun(&call.id).is_some() {
            return None;
        }
        if depth == 0 {
            return Some("A task as deep as this one has no subtasks. Do it yourself.".to_owned());
        }
        (self.counts.subtasks >= most)
            .then(|| format!("{most} subtasks were begun, and a task has no more than that. Do the rest yourself."))
    }

    /// The subtask that a call of this task began, if it did.
    fn begun(&self, call: &CallId) -> Option<&Begun> {
        // A fork has its own: that of the other task is the other's.
        let own = self.start.task.child(call);
        self.turn.as_ref().and_then(|turn| turn.begun(call)).filter(|begun| begun.task == own)
    }

    /// Keeps that a call is about to begin its subtask, unless that was kept before.
    pub(super) fn begin_subtask(&mut self, call: &CallId, effects: &mut Vec<Effect>) {
        let is_one = self.call(call).is_some_and(|call| call.name == control::SUBTASK);
        if is_one && self.begun(call).is_none() {
            let task = self.start.task.child(call);
            self.keep(Record::Subtask { call: call.clone(), task, ended: None }, effects);
        }
    }

    /// Keeps how the subtask of a call ended.
    pub(super) fn end_subtask(&mut self, call: &CallId, end: SubtaskEnd, effects: &mut Vec<Effect>) {
        if let Some(begun) = self.begun(call) {
            let (task, ended) = (begun.task.clone(), Some(begun.untold(end)));
            self.keep(Record::Subtask { call: call.clone(), task, ended }, effects);
        }
    }

    /// Takes a record of a subtask.
    pub(super) fn take_subtask(&mut self, call: &CallId, task: &TaskId, ended: Option<&SubtaskEnd>) {
        let slot = self.turn.as_mut().and_then(|turn| turn.subtask(call));
        match (slot, ended) {
            (Some(slot), None) => *slot = Some(Begun::new(task.clone())),
            (Some(Some(begun)), Some(end)) => begun.note(end),
            _ => {}
        }
        match ended {
            None => self.counts.subtasks = self.counts.subtasks.saturating_add(1),
            Some(end) => {
                self.counts.family_turns = self.counts.family_turns.saturating_add(end.turns);
                self.take_charge(Charge::of_subtask(end));
            }
        }
    }

    /// Calls whose subtasks were at work when the process ended wait for their turn again.
    pub(super) fn reopen(&mut self) {
        for (call, _) in self.turn.as_ref().map(Turn::unanswered).unwrap_or_default() {
            if self.goes_on(&call.name)
                && let Some(turn) = &mut self.turn
            {
                turn.rest(&call.id);
            }
        }
    }

    /// Whether a running call of that name goes on when the task is resumed.
    pub(super) fn goes_on(&self, name: &str) -> bool {
        name == control::SUBTASK && self.settings.tools.get(name).is_some()
    }

    /// Ends the task from outside. Subtasks end first, and say what they took; their calls stay open.
    pub(super) fn wind_up(&mut self, outcome: Outcome, message: &'static str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Stop);
        if self.phase == Phase::Paused {
            // Nothing is at work yet.
            self.reopen();
        }
        self.give_up_running(super::INTERRUPTED, effects);
        self.question = None;
        self.phase = Phase::Ending(outcome, message);
        self.end_when_quiet(outcome, message, effects);
    }

    /// A subtask is over while the task ends. What it completed is its call's result; all else is gone on with when the task is.
    pub(super) fn ran_out(&mut self, id: &CallId, output: ToolOutput, effects: &mut Vec<Effect>) {
        let Phase::Ending(outcome, message) = self.phase else { return };
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_running(id)) else { return };
        match output.subtask {
            Some(SubtaskEnd { outcome: Outcome::Completed, .. }) => self.take_output(id, output, effects),
            end => {
                turn.rest(id);
                end.into_iter().for_each(|end| self.end_subtask(id, end, effects));
            }
        }
        self.end_when_quiet(outcome, message, effects);
    }

    fn end_when_quiet(&mut self, outcome: Outcome, message: &str, effects: &mut Vec<Effect>) {
        let unanswered = self.turn.as_ref().map(Turn::unanswered).unwrap_or_default();
        if !unanswered.iter().any(|(_, running)| *running) {
            self.end(outcome, message, effects);
        }
    }

    /// Asks the subtasks that are at work to end, and answers the calls whose subtasks were to go on.
    pub(super) fn give_up_subtasks(&mut self, effects: &mut Vec<Effect>) {
        for (call, running) in self.turn.as_ref().map(Turn::unanswered).unwrap_or_default() {
            if running && self.goes_on(&call.name) {
                effects.push(Effect::GiveUp(call.id));
            } else if let Some(Begun { task, .. }) = self.begun(&call.id) {
                let words = format!(
                    "The subtask {task} was begun and interrupted, and the user said something, or switched the mode, before it went on. \
                     What it did stands: look before you repeat it."
                );
                self.answer(&call, Ending::Interrupted, words, effects);
            }
        }
    }
}
