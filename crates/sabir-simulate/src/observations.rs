//! Records what happened, independently of the task machine, and checks the invariants against it.
//!
//! It sees every record that the journal acknowledged, every token that the model wrote, every action of the user and every running
//! tool, and checks for each of them whether the invariants allow it.
//!
//! Facts come from the places where things happen, never from the task machine. A check compares
//! two of them: the record of a call with the way in which it was written, the verdict in a record
//! with the user's own action, the end of a run with the last record.

use std::collections::{BTreeMap, VecDeque};

use sabir_agent::{
    AssistantTurn, CallArguments, ContextChange, DecisionMaker, DeliveryTime, MessageAuthor,
    OpenTodos, Record, TaskOutcome, control,
};
use sabir_call::{CallId, CallResult, MessagePart, ToolResultStatus};
use sabir_policy::Verdict;

use crate::invariants::{Invariant, Violation};
use crate::plan::TaskConstraints;
use crate::request_checks::{RequestTracker, has_open_todos};
use crate::simulated_tools::ToolActivity;
use crate::simulation_state::KeyCounts;

/// Everything that was observed of one task.
#[derive(Debug, Default)]
pub(crate) struct TaskObservations {
    /// The records that the journal acknowledged, over all processes.
    pub(crate) records: Vec<Record>,
    /// The record that is being appended.
    /// A crash may leave it on the disk although it was never acknowledged.
    pub(crate) attempted: Option<Record>,
    /// The number of records that were shown, counted from the beginning of the journal.
    pub(crate) shown: usize,
    /// Facts about the current process.
    pub(crate) process: ProcessFacts,
    /// All calls of all processes, as the records describe them.
    pub(crate) calls: BTreeMap<CallId, RecordedCall>,
    /// The calls of the last answer, in order.
    pub(crate) turn: Vec<CallId>,
    /// All calls of all processes, as the model wrote them, by their token.
    pub(crate) written: BTreeMap<String, WrittenCall>,
    /// The user's actions in the current process, which records that speak for the user must match.
    pub(crate) user: UserActions,
    /// The running calls, and all effects so far.
    pub(crate) tools: ToolActivity,
    /// The requests and the user's messages so far.
    pub(crate) request_tracker: RequestTracker,
    /// The terms of the plan, even if sabotage gives the machine different ones.
    pub(crate) terms: TaskConstraints,
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
    /// The name of the tool.
    pub(crate) name: String,
    /// The unique text in the arguments, by which the written call is found.
    pub(crate) token: String,
    /// The arguments after any repair.
    pub(crate) arguments: CallArguments,
    /// True if the checks let it through.
    pub(crate) passed: bool,
    /// True if a record says that it began to run.
    pub(crate) begun: bool,
    /// True if a record says that it was denied.
    pub(crate) denied: bool,
    /// The status of its result; `None` while it is open.
    pub(crate) result: Option<ToolResultStatus>,
}

/// A call as the model wrote it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WrittenCall {
    /// The way in which it was written, which decides if it may run.
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
    /// True if they interrupted the task.
    pub(crate) cancelled: bool,
    /// True if they left at a question.
    pub(crate) left: bool,
    /// True if the user has left, so that nobody can be asked.
    pub(crate) gone: bool,
}

/// Returns a violation as an error.
fn new_violation(invariant: Invariant, seen: impl Into<String>) -> Result<(), Violation> {
    Err(Violation {
        invariant,
        seen: seen.into(),
    })
}

impl TaskObservations {
    /// Clears the state of the previous process: the user's actions, the running tools, the
    /// facts.
    pub(crate) fn begin_process(&mut self) {
        // The other actions stay until the journal is compared, since a record that was being
        // written may need them.
        self.user.cancelled = false;
        self.user.gone = false;
        self.tools.begin_process();
        self.process = ProcessFacts::default();
        // Records of earlier processes are not shown again.
        self.shown = self.records.len();
    }

    /// Clears the work of the previous process: no request waits for a response, and its subtasks may run again.
    pub(crate) fn on_task_opened(&mut self) {
        self.request_tracker.waits = false;
        let subtasks = self
            .calls
            .values_mut()
            .filter(|call| call.name == control::NEW_TASK_TOOL && call.result.is_none());
        // `new_task` is the only call that runs again after a resume, because it finds its own
        // journal.
        subtasks.for_each(|call| call.begun = false);
    }

    /// Adds a record that the journal acknowledged, and checks it.
    pub(crate) fn record_acknowledged(&mut self, record: Record) -> Result<(), Violation> {
        // Checked against what came before, so the record is added afterwards.
        let checked = self.check_record(&record);
        self.records.push(record);
        checked
    }

    /// Checks a record that is shown to the user.
    ///
    /// Records are shown once, in the order of the journal, and not before they are in it.
    pub(crate) fn check_shown(&mut self, record: &Record) -> Result<(), Violation> {
        // Sabotage changed the record, so a difference proves nothing about the machine. Each
        // tampered record excuses one comparison.
        if std::mem::take(&mut self.process.tampered) {
            self.shown = self.records.len();
            return Ok(());
        }
        let at = self.shown;
        self.shown += 1;
        match self.records.get(at) {
            Some(kept) if kept == record => Ok(()),
            Some(kept) => new_violation(
                Invariant::Shown,
                format!("record {at} is {kept:?}, and {record:?} was shown"),
            ),
            None => new_violation(
                Invariant::Shown,
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
                new_violation(Invariant::Replay, "the task began twice")
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
            } => self.note_user_message(text, *when),
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
    fn note_user_message(&mut self, text: &str, when: DeliveryTime) -> Result<(), Violation> {
        // First the answers to questions about what to do next, then what was said without a
        // question.
        self.request_tracker.record_message(text, when)?;
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
                Invariant::MessagesKept,
                format!("{text:?} is kept and {:?} is not", self.user.said.front()),
            ),
            None => new_violation(
                Invariant::UserAnswers,
                format!("the user never said {text:?}"),
            ),
        }
    }

    /// Notes that the user accepts a completion, which settles all messages before it.
    pub(crate) fn accept_messages(&mut self) {
        self.request_tracker.accept_messages(self.user.said.iter());
    }

    /// Checks a response: all calls of the previous turn must have results, and ids must be new.
    fn note_answer(&mut self, answered: &AssistantTurn) -> Result<(), Violation> {
        if let Some(open) = self.turn.iter().find(|id| self.call_result(id).is_none()) {
            return new_violation(
                Invariant::OneResult,
                format!("the model answered while {open} had no result"),
            );
        }
        // From here on the new calls are the open turn.
        self.turn.clear();
        for part in &answered.parts {
            let MessagePart::Call(call) = part else {
                continue;
            };
            // A call without a check on record did not pass: the checks fail closed.
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
                    Invariant::OneResult,
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
        // A denial counts regardless of who gave it. An approval counts only if the user gave it.
        if verdict == Verdict::Deny
            && let Some(call) = self.calls.get_mut(id)
        {
            call.denied = true;
        }
        match (by, verdict) {
            (DecisionMaker::User, Verdict::Allow) if !self.user.yes.contains(id) => new_violation(
                Invariant::UserAnswers,
                format!("the user never allowed {id}"),
            ),
            (DecisionMaker::User, Verdict::Deny) if !self.user.no.contains(id) => new_violation(
                Invariant::UserAnswers,
                format!("the user never denied {id}"),
            ),
            _ => Ok(()),
        }
    }

    /// Checks that a call may begin to run.
    ///
    /// It is the first of two checks: this one when the record is acknowledged, and the tool's own
    /// when it is called.
    fn note_running(&mut self, id: &CallId) -> Result<(), Violation> {
        let Some(call) = self.calls.get_mut(id) else {
            return new_violation(
                Invariant::NeverRuns,
                format!("{id} runs and no answer holds it"),
            );
        };
        // Marked before the checks, so that a second record is found whatever the first one was.
        let begun = std::mem::replace(&mut call.begun, true);
        let call = call.clone();
        match call {
            _ if begun => new_violation(Invariant::OneEffect, format!("{id} runs a second time")),
            RecordedCall {
                result: Some(_), ..
            } => new_violation(Invariant::OneEffect, format!("{id} runs after its result")),
            RecordedCall { passed: false, .. } => new_violation(
                Invariant::NeverRuns,
                format!("{id} runs and did not pass the checks"),
            ),
            RecordedCall { denied: true, .. } => {
                new_violation(Invariant::Allowed, format!("{id} runs and was denied"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a call has no result yet and that a control call has the result that the user gave.
    fn note_result(&mut self, result: &CallResult) -> Result<(), Violation> {
        let id = &result.id;
        let Some(call) = self.calls.get_mut(id).filter(|call| call.result.is_none()) else {
            return new_violation(
                Invariant::OneResult,
                format!("{id} has a second result, or is not a call"),
            );
        };
        // Kept even if the check below fails, so that one mistake is not reported twice.
        call.result = Some(result.ending);
        let call = call.clone();
        let ran = matches!(result.ending, ToolResultStatus::Done);
        match call.name.as_str() {
            // Only an accepted list replaces the one before.
            control::TODO_LIST_TOOL if ran => {
                let open = has_open_todos(&call.name, &call.token);
                self.request_tracker.todos = if open { call.token } else { String::new() };
                Ok(())
            }
            // A follow-up question is answered by the user alone; no tool runs for it.
            control::FOLLOWUP_TOOL if ran && !self.user.answered.contains(id) => new_violation(
                Invariant::UserAnswers,
                format!("the user never answered {id}"),
            ),
            name if ran && !control::is_control(name) && !call.begun => new_violation(
                Invariant::OneResult,
                format!("{id} has the result of a run and never ran"),
            ),
            _ => Ok(()),
        }
    }

    /// Checks a completed task: the completion must be a call of the last turn, no call of that turn may have failed before it, and the
    /// conditions of the task must be met.
    ///
    /// Checks the invariant of honest ends and the invariant of conditions. It looks at the calls and results on record, at the check's own
    /// tool, and at the messages that no request has contained yet.
    fn note_completion(&self) -> Result<(), Violation> {
        let done = |id: &&CallId| {
            let call = self.calls.get(*id);
            call.is_some_and(|call| {
                call.name == control::COMPLETION_TOOL && call.result == Some(ToolResultStatus::Done)
            })
        };
        // The last one counts: an earlier completion of the turn may have been refused.
        let Some(at) = self.turn.iter().rposition(|id| done(&id)) else {
            return new_violation(
                Invariant::TrueOutcome,
                "completed without a completion that was accepted",
            );
        };
        // A completion after a failed call of the same turn was written before the model saw the
        // failure.
        let before = self.turn.get(..at).unwrap_or_default();
        if let Some(failed) = before
            .iter()
            .find(|id| self.call_result(id) != Some(ToolResultStatus::Done))
        {
            return new_violation(
                Invariant::TrueOutcome,
                format!("completed although {failed} of the same turn failed"),
            );
        }
        if self.terms.todos == OpenTodos::Refused && !self.request_tracker.todos.is_empty() {
            return new_violation(
                Invariant::Conditions,
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
                Invariant::Conditions,
                "completed although the check did not succeed",
            );
        }
        match self.request_tracker.unread.first() {
            Some(words) => new_violation(
                Invariant::Conditions,
                format!("completed, and nobody has read {words:?}"),
            ),
            None => Ok(()),
        }
    }

    /// Checks the outcome of a process that ended without a crash.
    ///
    /// `attended` says that a user reviews completions in this process.
    pub(crate) fn check_end(&self, outcome: TaskOutcome, attended: bool) -> Result<(), Violation> {
        // A failed store cannot record the outcome, so there is no end record to compare.
        if outcome == TaskOutcome::StoreFailed {
            return if self.process.store_failed {
                Ok(())
            } else {
                new_violation(Invariant::TrueOutcome, "no append failed")
            };
        }
        match self.records.last() {
            Some(Record::Ended { outcome: kept, .. }) if *kept == outcome => {}
            last => {
                return new_violation(
                    Invariant::TrueOutcome,
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
            // Nobody reviews a completion without a user; then the conditions alone decide.
            TaskOutcome::Completed if attended && !accepted => new_violation(
                Invariant::TrueOutcome,
                "completed, and the user did not accept",
            ),
            TaskOutcome::Cancelled if !self.user.cancelled => {
                new_violation(Invariant::TrueOutcome, "the user did not interrupt")
            }
            _ => Ok(()),
        }
    }

    /// Checks the records that were found after a crash. Returns true if they include one that was not acknowledged.
    ///
    /// All acknowledged records must be there, in order and unchanged. One more is allowed if it
    /// was being appended when the crash struck: it may have reached the disk before its
    /// acknowledgement.
    pub(crate) fn check_recovered(&mut self, found: Vec<Record>) -> Result<bool, Violation> {
        let kept = self.records.len();
        // Every acknowledged record must be there, in order, with nothing changed.
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
            return new_violation(Invariant::Survives, seen).map(|()| false);
        }
        // A crash may happen after a record reached the disk and before its acknowledgement, so one
        // more record is allowed.
        let mut has_more = false;
        for record in found.into_iter().skip(kept) {
            // The driver appends one record at a time, so there is at most one, and it is known. A
            // power cut may leave any part of it, which the journal reports as damage.
            let is_damage = matches!(record, Record::Damaged { .. });
            if !is_damage && (has_more || Some(&record) != self.attempted.as_ref()) {
                return new_violation(
                    Invariant::Survives,
                    format!("{record:?} came back and was not being written"),
                )
                .map(|()| false);
            }
            // It belongs to the process before the crash, and so do the recorded actions of the
            // user.
            self.record_acknowledged(record)?;
            has_more = true;
        }
        Ok(has_more)
    }

    /// Returns the status of a call's result; `None` while the call is open or unknown.
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

    /// Counts the calls by the way in which they ended without running to their end.
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
    // `note` comes after `path`: a call that lacks its required path carries its token there.
    ["path", "note", "result", "question", "message", "todos"]
        .into_iter()
        .find_map(text)
        .unwrap_or_default()
        .to_owned()
}
