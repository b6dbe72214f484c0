//! The witness: an independent record of what happened, and the checks of the laws against it.
//!
//! It sees every record that the journal acknowledged, every token that the model wrote, every action of the user and every running
//! tool, and checks for each of them whether the laws allow it.

use std::collections::{BTreeMap, VecDeque};

use sabir_agent::{
    AssistantTurn, CallArguments, ContextChange, DecisionMaker, Delivery, MessageAuthor, OpenTodos,
    Record, TaskOutcome, control,
};
use sabir_call::{CallId, CallResult, MessagePart, ToolResultStatus};
use sabir_policy::Verdict;

use crate::laws::{Law, Violation};
use crate::plan::TaskTerms;
use crate::request_checks::{RequestTracker, has_open_todos};
use crate::simulated_tools::ToolActivity;
use crate::simulation_state::KeyCounts;

/// Everything that was observed of one task.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// The records that the journal acknowledged, over all processes.
    pub(crate) records: Vec<Record>,
    /// The record that is being appended.
    pub(crate) attempted: Option<Record>,
    /// The number of records that were shown, counted from the beginning of the journal.
    pub(crate) shown: usize,
    pub(crate) process: ProcessFacts,
    pub(crate) calls: BTreeMap<CallId, RecordedCall>,
    /// The calls of the last answer, in order.
    pub(crate) turn: Vec<CallId>,
    pub(crate) written: BTreeMap<String, WrittenCall>,
    pub(crate) user: UserActions,
    pub(crate) tools: ToolActivity,
    pub(crate) request_tracker: RequestTracker,
    pub(crate) terms: TaskTerms,
}

/// Facts about the current process.
#[derive(Debug, Default)]
pub(crate) struct ProcessFacts {
    /// True if sabotage replaced the current record.
    pub(crate) tampered: bool,
    /// True if an append failed.
    pub(crate) store_failed: bool,
    /// The number of records before this process.
    pub(crate) from: usize,
    /// The time when it opened the task, in milliseconds of the simulated clock.
    pub(crate) began: u64,
}

/// A call as the records describe it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedCall {
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) arguments: CallArguments,
    pub(crate) passed: bool,
    pub(crate) begun: bool,
    pub(crate) denied: bool,
    pub(crate) result: Option<ToolResultStatus>,
}

/// A call as the model wrote it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WrittenCall {
    pub(crate) quality: CallQuality,
    /// The number of times that it was written.
    pub(crate) times: u32,
    /// The number of times that it reached its tool.
    pub(crate) runs: u32,
    /// The number of complete responses that hold it.
    pub(crate) delivered: u32,
    /// The name of the tool; empty for a call with a flaw.
    pub(crate) name: &'static str,
    /// The number of calls that were written before.
    pub(crate) number: usize,
}

/// The quality of a written call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallQuality {
    /// It may run.
    #[default]
    Good,
    /// It must be rejected.
    Bad,
    /// It was never closed.
    Cut,
}

/// The actions of the user in the current process.
#[derive(Debug, Default)]
pub(crate) struct UserActions {
    /// The calls that they approved.
    pub(crate) yes: Vec<CallId>,
    /// The calls that they denied.
    pub(crate) no: Vec<CallId>,
    /// The questions of the model that they answered.
    pub(crate) answered: Vec<CallId>,
    /// The completion that they accepted.
    pub(crate) accepted: Option<CallId>,
    /// The rules by which they allowed more than one call.
    pub(crate) always: Vec<String>,
    /// Messages that they sent without a question and that no record holds yet, in order.
    pub(crate) said: VecDeque<String>,
    /// Messages that they sent as the answer to what to do next.
    pub(crate) replied: Vec<String>,
    pub(crate) cancelled: bool,
    pub(crate) left: bool,
    /// True if they went away, so that nobody can be asked.
    pub(crate) gone: bool,
}

/// Returns a violation as an error.
fn new_violation(law: Law, seen: impl Into<String>) -> Result<(), Violation> {
    Err(Violation {
        law,
        seen: seen.into(),
    })
}

impl Witness {
    pub(crate) fn begin_process(&mut self) {
        self.user.cancelled = false;
        self.user.gone = false;
        self.tools.begin_process();
        self.process = ProcessFacts::default();
        self.shown = self.records.len();
    }

    /// Forgets the work of the process before: no request waits for a response, and its subtasks may run again.
    pub(crate) fn on_task_opened(&mut self) {
        self.request_tracker.waits = false;
        let subtasks = self
            .calls
            .values_mut()
            .filter(|call| call.name == control::NEW_TASK_TOOL && call.result.is_none());
        subtasks.for_each(|call| call.begun = false);
    }

    /// Adds a record that the journal acknowledged, and checks it.
    pub(crate) fn record_acknowledged(&mut self, record: Record) -> Result<(), Violation> {
        let checked = self.check_record(&record);
        self.records.push(record);
        checked
    }

    /// Checks a record that is shown to the user.
    pub(crate) fn check_shown(&mut self, record: &Record) -> Result<(), Violation> {
        // Sabotage changed what is on record, so a difference proves nothing about the machine.
        if std::mem::take(&mut self.process.tampered) {
            self.shown = self.records.len();
            return Ok(());
        }
        let at = self.shown;
        self.shown += 1;
        match self.records.get(at) {
            Some(kept) if kept == record => Ok(()),
            Some(kept) => new_violation(
                Law::Shown,
                format!("record {at} is {kept:?}, and {record:?} was shown"),
            ),
            None => new_violation(
                Law::Shown,
                format!("{record:?} was shown and is not in the journal"),
            ),
        }
    }

    /// Checks a record before it is added.
    fn check_record(&mut self, record: &Record) -> Result<(), Violation> {
        // These records end a request, whatever its outcome was.
        if matches!(
            record,
            Record::Answered(_) | Record::Failed(_) | Record::Ended { .. }
        ) {
            self.request_tracker.end_request();
        }
        match record {
            Record::Started(_) if !self.records.is_empty() => {
                new_violation(Law::Replay, "the task began twice")
            }
            Record::Answered(answered) => self.note_answer(answered),
            Record::Judged {
                call, verdict, by, ..
            } => self.note_verdict(call, *verdict, *by),
            Record::Running { call, .. } => self.note_running(call),
            Record::Result(result) => self.note_result(result),
            Record::Said {
                by: MessageAuthor::User,
                text,
                when,
                ..
            } => self.note_words(text, *when),
            Record::Context(ContextChange::Compacted(_)) => {
                self.request_tracker.record_compaction();
                Ok(())
            }
            Record::Context(ContextChange::Restored) => {
                self.request_tracker.record_restore();
                Ok(())
            }
            Record::Ended {
                outcome: TaskOutcome::Completed,
                ..
            } => self.note_completion(),
            _ => Ok(()),
        }
    }

    /// Checks that a message of the user is recorded once and in order.
    fn note_words(&mut self, text: &str, when: Delivery) -> Result<(), Violation> {
        self.request_tracker.record_words(text, when)?;
        if let Some(at) = self.user.replied.iter().position(|words| words == text) {
            self.user.replied.remove(at);
            return Ok(());
        }
        match self.user.said.iter().position(|words| words == text) {
            // Messages must be recorded in the order in which they were sent.
            Some(0) => {
                self.user.said.pop_front();
                Ok(())
            }
            Some(_) => new_violation(
                Law::WordsKept,
                format!("{text:?} is kept and {:?} is not", self.user.said.front()),
            ),
            None => new_violation(Law::UserAnswers, format!("the user never said {text:?}")),
        }
    }

    /// Notes that the user accepts a completion, which settles all messages before it.
    pub(crate) fn accept_words(&mut self) {
        self.request_tracker.accept_words(self.user.said.iter());
    }

    /// Checks a response: all calls of the turn before must have results, and ids must be new.
    fn note_answer(&mut self, answered: &AssistantTurn) -> Result<(), Violation> {
        if let Some(open) = self.turn.iter().find(|id| self.call_result(id).is_none()) {
            return new_violation(
                Law::OneResult,
                format!("the model answered while {open} had no result"),
            );
        }
        self.turn.clear();
        for part in &answered.parts {
            let MessagePart::Call(call) = part else {
                continue;
            };
            let passed = answered
                .checks
                .iter()
                .any(|check| check.call == call.id && check.passed);
            let token = call_token(&call.arguments);
            let seen = RecordedCall {
                name: call.name.clone(),
                token,
                arguments: call.arguments.clone(),
                passed,
                ..RecordedCall::default()
            };
            if self.calls.insert(call.id.clone(), seen).is_some() {
                return new_violation(
                    Law::OneResult,
                    format!("the id {} was given twice", call.id),
                );
            }
            self.turn.push(call.id.clone());
        }
        Ok(())
    }

    /// Checks that a verdict of the user is one that the user gave.
    fn note_verdict(
        &mut self,
        id: &CallId,
        verdict: Verdict,
        by: DecisionMaker,
    ) -> Result<(), Violation> {
        if verdict == Verdict::Deny
            && let Some(call) = self.calls.get_mut(id)
        {
            call.denied = true;
        }
        match (by, verdict) {
            (DecisionMaker::User, Verdict::Allow) if !self.user.yes.contains(id) => {
                new_violation(Law::UserAnswers, format!("the user never allowed {id}"))
            }
            (DecisionMaker::User, Verdict::Deny) if !self.user.no.contains(id) => {
                new_violation(Law::UserAnswers, format!("the user never denied {id}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a call may begin to run.
    fn note_running(&mut self, id: &CallId) -> Result<(), Violation> {
        let Some(call) = self.calls.get_mut(id) else {
            return new_violation(Law::NeverRuns, format!("{id} runs and no answer holds it"));
        };
        let begun = std::mem::replace(&mut call.begun, true);
        let call = call.clone();
        match call {
            _ if begun => new_violation(Law::OneEffect, format!("{id} runs a second time")),
            RecordedCall {
                result: Some(_), ..
            } => new_violation(Law::OneEffect, format!("{id} runs after its result")),
            RecordedCall { passed: false, .. } => new_violation(
                Law::NeverRuns,
                format!("{id} runs and did not pass the gates"),
            ),
            RecordedCall { denied: true, .. } => {
                new_violation(Law::Allowed, format!("{id} runs and was denied"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a call has no result yet and that a control call has the result that the user gave.
    fn note_result(&mut self, result: &CallResult) -> Result<(), Violation> {
        let id = &result.id;
        let Some(call) = self.calls.get_mut(id).filter(|call| call.result.is_none()) else {
            return new_violation(
                Law::OneResult,
                format!("{id} has a second result, or is no call"),
            );
        };
        call.result = Some(result.ending);
        let call = call.clone();
        let ran = matches!(result.ending, ToolResultStatus::Done);
        match call.name.as_str() {
            control::TODO_LIST_TOOL if ran => {
                let open = has_open_todos(&call.name, &call.token);
                self.request_tracker.todos = if open { call.token } else { String::new() };
                Ok(())
            }
            control::FOLLOWUP_TOOL if ran && !self.user.answered.contains(id) => {
                new_violation(Law::UserAnswers, format!("the user never answered {id}"))
            }
            name if ran && !control::is_control(name) && !call.begun => new_violation(
                Law::OneResult,
                format!("{id} has the result of a run and never ran"),
            ),
            _ => Ok(()),
        }
    }

    /// Checks a completed task: the completion must be a call of the last turn, no call of that turn may have failed before it, and the
    /// conditions of the task must be met.
    fn note_completion(&self) -> Result<(), Violation> {
        let done = |id: &&CallId| {
            let call = self.calls.get(*id);
            call.is_some_and(|call| {
                call.name == control::COMPLETION_TOOL && call.result == Some(ToolResultStatus::Done)
            })
        };
        let Some(at) = self.turn.iter().rposition(|id| done(&id)) else {
            return new_violation(
                Law::HonestEnd,
                "completed without a completion that was accepted",
            );
        };
        // A completion after a failed call of the same turn was written before the model saw the failure.
        let before = self.turn.get(..at).unwrap_or_default();
        if let Some(failed) = before
            .iter()
            .find(|id| self.call_result(id) != Some(ToolResultStatus::Done))
        {
            return new_violation(
                Law::HonestEnd,
                format!("completed although {failed} of the same turn failed"),
            );
        }
        if self.terms.todos == OpenTodos::Refused && !self.request_tracker.todos.is_empty() {
            return new_violation(
                Law::Conditions,
                format!("completed over {:?}", self.request_tracker.todos),
            );
        }
        if self.terms.check
            && !self
                .turn
                .get(at)
                .is_some_and(|id| self.tools.has_passed(id))
        {
            return new_violation(
                Law::Conditions,
                "completed although the check did not succeed",
            );
        }
        match self.request_tracker.unread.first() {
            Some(words) => new_violation(
                Law::Conditions,
                format!("completed, and nobody has read {words:?}"),
            ),
            None => Ok(()),
        }
    }

    /// Checks the outcome of a process that ended without a crash.
    pub(crate) fn check_end(&self, outcome: TaskOutcome, attended: bool) -> Result<(), Violation> {
        // A failed store cannot record the outcome, so there is no end record to compare.
        if outcome == TaskOutcome::StoreFailed {
            return if self.process.store_failed {
                Ok(())
            } else {
                new_violation(Law::HonestEnd, "no append failed")
            };
        }
        match self.records.last() {
            Some(Record::Ended { outcome: kept, .. }) if *kept == outcome => {}
            last => {
                return new_violation(
                    Law::HonestEnd,
                    format!("the end is {outcome:?}, the last record {last:?}"),
                );
            }
        }
        let accepted = self
            .user
            .accepted
            .as_ref()
            .is_some_and(|id| self.turn.contains(id));
        match outcome {
            TaskOutcome::Completed if attended && !accepted => {
                new_violation(Law::HonestEnd, "completed, and the user did not accept")
            }
            TaskOutcome::Cancelled if !self.user.cancelled => {
                new_violation(Law::HonestEnd, "the user did not interrupt")
            }
            _ => Ok(()),
        }
    }

    /// Checks the records that were found after a crash. Returns true if they include one that was not acknowledged.
    pub(crate) fn check_recovered(&mut self, found: Vec<Record>) -> Result<bool, Violation> {
        let kept = self.records.len();
        if found.get(..kept) != Some(self.records.as_slice()) {
            let at = found
                .iter()
                .zip(&self.records)
                .take_while(|(found, kept)| found == kept)
                .count();
            let seen = format!(
                "of {kept} acknowledged records {at} came back, then {:?}",
                found.get(at)
            );
            return new_violation(Law::Survives, seen).map(|()| false);
        }
        // A crash may strike after a record reached the disk and before its acknowledgement, so one more record is allowed.
        let mut extra = found.into_iter().skip(kept);
        let Some(record) = extra.next() else {
            return Ok(false);
        };
        if Some(&record) != self.attempted.as_ref() || extra.next().is_some() {
            return new_violation(
                Law::Survives,
                format!("{record:?} came back and was not being written"),
            )
            .map(|()| false);
        }
        // It belongs to the process before the crash, and so do the recorded actions of the user.
        self.record_acknowledged(record)?;
        Ok(true)
    }

    pub(crate) fn call_result(&self, id: &CallId) -> Option<ToolResultStatus> {
        self.calls.get(id).and_then(|call| call.result)
    }

    /// Returns the calls of the turn that precede a call and have no result.
    pub(crate) fn open_before<'a>(&'a self, id: &CallId) -> impl Iterator<Item = &'a CallId> {
        let at = self.turn.iter().position(|other| other == id).unwrap_or(0);
        self.turn
            .iter()
            .take(at)
            .filter(|other| self.call_result(other).is_none())
    }

    /// Returns the sum of the output tokens in the records.
    pub(crate) fn output_tokens(&self) -> u64 {
        let output = |record: &Record| match record {
            Record::Answered(answered) => answered.usage.output,
            Record::Failed(failed) => failed.usage.output,
            Record::Subtask {
                ended: Some(end), ..
            } => end.usage.output,
            _ => None,
        };
        self.records.iter().filter_map(output).sum()
    }

    /// Returns the output tokens that the records report for a subtask.
    pub(crate) fn reported_tokens(&self, subtask: &CallId) -> u64 {
        let output = |record: &Record| match record {
            Record::Subtask {
                call,
                ended: Some(end),
                ..
            } if call == subtask => end.usage.output,
            _ => None,
        };
        self.records.iter().filter_map(output).sum()
    }

    pub(crate) fn count_endings(&self) -> KeyCounts<&'static str> {
        let mut counts = KeyCounts::default();
        for call in self.calls.values() {
            let name = match call.result {
                Some(ToolResultStatus::Rejected) => "results rejected",
                Some(ToolResultStatus::Denied) => "results denied",
                Some(ToolResultStatus::Interrupted) => "results interrupted",
                _ => continue,
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

/// Returns the token that identifies a call, from whichever argument holds it.
pub(crate) fn call_token(arguments: &sabir_agent::CallArguments) -> String {
    let text = |name| arguments.get(name).and_then(serde_json::Value::as_str);
    ["path", "note", "result", "question", "message", "todos"]
        .into_iter()
        .find_map(text)
        .unwrap_or_default()
        .to_owned()
}
