//! The calls of one turn: each is assessed, perhaps asked about, run, and answered exactly once.

use sabir_call::{Call, CallId, CallResult, MessagePart, ToolResultStatus};
use sabir_policy::{Access, PolicyRules, Verdict};

use crate::control;
use crate::event::{UserQuestion, UserReply};
use crate::permit::{CallDigest, CallPermit, Preconditions};
use crate::record::{AssistantTurn, DecisionMaker, EchoSource, MessageAuthor, Record, TaskOutcome};
use crate::tool::ToolOutput;

use super::subtask::StartedSubtask;
use super::{Task, TaskEffect, UserMessage, approval};

/// The result of a completion whose check was interrupted, or that was shown and not answered.
const UNCHECKED: &str =
    "Not completed: this was interrupted. Complete again when the task is done.";

/// The result of a call whose record may be lost.
const LOST_RESULT: &str = "The records of this call are lost. It may have happened in full, in part, or not at all: look before you repeat it.";

/// A turn whose calls are not all answered yet.
///
/// It owns the parts of the message until [`take_results`](Self::take_results) releases them with
/// all results, so the history never holds a call without its result.
#[derive(Debug)]
pub(crate) struct OpenTurn {
    parts: Vec<MessagePart>,
    calls: Vec<PendingCall>,
    /// Feedback for the model on mistakes that concern no call.
    feedback: Option<String>,
    /// The messages that arrived while the calls were open.
    messages: Vec<(MessageAuthor, UserMessage)>,
}

#[derive(Debug)]
struct PendingCall {
    call: Call,
    state: PendingState,
    /// The permit that the call may run with, once it is assessed.
    permit: Option<CallPermit>,
    /// The subtask that the call began.
    subtask: Option<StartedSubtask>,
    /// The text that the model had read and in which the call occurs.
    echo_of: Option<EchoSource>,
    /// The arguments whose values were written on lines of their own.
    wrapped: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum PendingState {
    /// A check stopped the call, or it was denied; the text is for the model. It can never run.
    Refused(ToolResultStatus, String),
    /// Not assessed yet, or to be assessed again.
    Waiting,
    /// The driver was asked for the call's access.
    Assessing,
    /// The user is being asked about the call, or will be.
    Asking(UserQuestion),
    /// The call was permitted, and its `running` record is kept.
    Running,
    /// The call has its one result.
    Done(CallResult),
}

/// The next step of a turn.
enum NextAction {
    Nothing,
    Refuse(Call, ToolResultStatus, String),
    Assess(CallId),
    Control(Call),
    Ask(UserQuestion),
}

impl OpenTurn {
    /// Opens the turn of an answer; `None` if the answer holds no calls.
    pub(super) fn from_answer(answered: &AssistantTurn) -> Option<Self> {
        let calls = answered.parts.iter().filter_map(|part| match part {
            MessagePart::Call(call) => {
                let check = answered.checks.iter().find(|check| check.call == call.id);
                Some(PendingCall {
                    state: PendingState::initial_state(call, answered),
                    call: call.clone(),
                    permit: None,
                    subtask: None,
                    echo_of: check.and_then(|check| check.echo_of.clone()),
                    wrapped: check.map(|check| check.wrapped.clone()).unwrap_or_default(),
                })
            }
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            None
        } else {
            Some(Self {
                parts: answered.parts.clone(),
                calls,
                feedback: answered.feedback.clone(),
                messages: Vec::new(),
            })
        }
    }

    /// Returns the arguments of a call whose values were written on lines of their own.
    pub(super) fn values_on_own_lines(&self, id: &CallId) -> &[String] {
        self.calls
            .iter()
            .find(|pending| pending.call.id == *id)
            .map_or(&[], |pending| &pending.wrapped)
    }

    /// Takes the parts of the message and of its answer, once all calls are answered: the results
    /// in call order, then the feedback and the messages that arrived meanwhile.
    pub(super) fn take_results(&mut self) -> Option<(Vec<MessagePart>, Vec<MessagePart>)> {
        // `None` as soon as one result is missing: then nothing may leave the turn.
        let results: Option<Vec<_>> = self
            .calls
            .iter()
            .map(|pending| pending.result().cloned())
            .collect();
        let mut answers: Vec<_> = results?.into_iter().map(MessagePart::Result).collect();
        answers.extend(self.feedback.take().map(MessagePart::text));
        answers.extend(
            self.messages
                .drain(..)
                .flat_map(|(_, words)| words.to_parts()),
        );
        Some((std::mem::take(&mut self.parts), answers))
    }

    /// Reports whether everything has succeeded so far: all calls are answered without an error,
    /// and there is no feedback.
    pub(super) fn is_clean(&self) -> bool {
        let failed = |pending: &PendingCall| {
            pending
                .result()
                .is_none_or(|result| result.ending.is_error())
        };
        self.feedback.is_none() && !self.calls.iter().any(failed)
    }

    pub(super) fn find_call(&self, id: &CallId) -> Option<&Call> {
        self.calls
            .iter()
            .map(|pending| &pending.call)
            .find(|call| call.id == *id)
    }

    /// Returns the text that the model had read and in which this call occurs.
    pub(super) fn echo_source(&self, id: &CallId) -> Option<&EchoSource> {
        self.calls
            .iter()
            .find(|pending| pending.call.id == *id)
            .and_then(|pending| pending.echo_of.as_ref())
    }

    /// Adds a message that the model reads after the results.
    pub(super) fn add_message(&mut self, by: MessageAuthor, words: UserMessage) {
        self.messages.push((by, words));
    }

    /// Returns the calls that the user is being asked about, or will be.
    pub(super) fn calls_awaiting_user(&self) -> Vec<Call> {
        let asked = self
            .calls
            .iter()
            .filter(|pending| matches!(pending.state, PendingState::Asking(_)));
        asked.map(|pending| pending.call.clone()).collect()
    }

    /// Reports whether this result refuses a completion that the checks had let pass.
    pub(super) fn rejects_completion(&self, result: &CallResult) -> bool {
        let passed = |pending: &PendingCall| {
            !matches!(
                pending.state,
                PendingState::Refused(..) | PendingState::Done(_)
            )
        };
        // A completion that a check rejected, or that has its result, counts as a mistake and not
        // as a refusal.
        let completion =
            result.name == control::COMPLETION_TOOL && result.ending == ToolResultStatus::Rejected;
        completion
            && self
                .calls
                .iter()
                .any(|pending| pending.call.id == result.id && passed(pending))
    }

    /// Sets the permit of a call that is being assessed, and returns false if there is no such
    /// call.
    pub(super) fn set_permit(&mut self, id: &CallId, permit: CallPermit) -> bool {
        let pending = self
            .pending_call(id)
            .filter(|pending| pending.state == PendingState::Assessing);
        pending
            .map(|pending| pending.permit = Some(permit))
            .is_some()
    }

    /// Makes the call wait for the user's answer to this question.
    pub(super) fn set_question(&mut self, id: &CallId, question: UserQuestion) {
        if let Some(pending) = self.pending_call(id) {
            pending.state = PendingState::Asking(question);
        }
    }

    /// Returns the calls that wait for the user to their beginning, so that they are checked again.
    pub(super) fn reassess_questions(&mut self) {
        for pending in self
            .calls
            .iter_mut()
            .filter(|pending| matches!(pending.state, PendingState::Asking(_)))
        {
            pending.state = PendingState::Waiting;
            pending.permit = None;
        }
    }

    pub(super) fn mark_running(&mut self, id: &CallId) {
        if let Some(pending) = self.pending_call(id) {
            pending.state = PendingState::Running;
        }
    }

    /// Returns the subtask that an open call began.
    pub(super) fn find_subtask(&self, id: &CallId) -> Option<&StartedSubtask> {
        self.calls
            .iter()
            .find(|pending| pending.call.id == *id)
            .and_then(|pending| pending.subtask.as_ref())
    }

    /// Returns the place of an unanswered call's subtask.
    pub(super) fn subtask_slot(&mut self, id: &CallId) -> Option<&mut Option<StartedSubtask>> {
        self.pending_call(id).map(|pending| &mut pending.subtask)
    }

    pub(super) fn is_running(&self, id: &CallId) -> bool {
        self.calls
            .iter()
            .any(|pending| pending.call.id == *id && pending.state == PendingState::Running)
    }

    /// Returns a running call to its beginning, so that it is assessed and run again.
    pub(super) fn requeue_call(&mut self, id: &CallId) {
        if let Some(pending) = self
            .pending_call(id)
            .filter(|pending| pending.state == PendingState::Running)
        {
            pending.state = PendingState::Waiting;
        }
    }

    /// Resets the calls that are being assessed: the driver has dropped that work, and another run must assess them again.
    pub(super) fn forget_assessments(&mut self) {
        for pending in &mut self.calls {
            if pending.state == PendingState::Assessing {
                pending.state = PendingState::Waiting;
            }
        }
    }

    /// Denies a call. The denial also holds for a task that is resumed before the call had its
    /// result.
    pub(super) fn mark_denied(&mut self, id: &CallId, by: DecisionMaker, reason: &str) {
        if let Some(pending) = self.pending_call(id) {
            pending.state =
                PendingState::Refused(ToolResultStatus::Denied, denial_message(by, reason));
        }
    }

    /// Refuses to run any call without a result: the records that would show if it ran are lost. Subtasks are left out if
    /// `continue_subtasks` is set.
    pub(super) fn refuse_unrecorded_calls(&mut self, continue_subtasks: bool) {
        for pending in &mut self.calls {
            let is_subtask = pending.call.name == control::NEW_TASK_TOOL;
            let may_have_run = !matches!(
                pending.state,
                PendingState::Refused(..) | PendingState::Done(_)
            );
            if may_have_run && !(is_subtask && continue_subtasks) {
                pending.state =
                    PendingState::Refused(ToolResultStatus::Interrupted, LOST_RESULT.to_owned());
            }
        }
    }

    /// Answers a call. The first result is final: a later one finds no open call.
    pub(super) fn mark_done(&mut self, result: &CallResult) {
        if let Some(pending) = self.pending_call(&result.id) {
            pending.state = PendingState::Done(result.clone());
        }
    }

    /// Returns the objection to completing by this call: another call of the turn failed, was refused, or has not run, a part of the
    /// message could not be read, or the user has sent a message.
    pub(super) fn completion_objection(&self, id: &CallId) -> Option<String> {
        let others = self.calls.iter().filter(|pending| pending.call.id != *id);
        let bad = |pending: &&PendingCall| {
            pending
                .result()
                .is_none_or(|result| result.ending.is_error())
        };
        match others
            .filter(|pending| {
                !control::is_control(&pending.call.name) || pending.result().is_some()
            })
            .find(bad)
        {
            Some(pending) if pending.result().is_none() => Some(format!(
                "the call of {} follows it in the same message. Make that call first, and complete when you have \
                 seen its result",
                pending.call.name
            )),
            Some(pending) => Some(format!(
                "the call of {} in the same message did not succeed. Look at its result, put that right, then complete",
                pending.call.name
            )),
            None if self.feedback.is_some() => {
                Some("a part of the same message could not be read".to_owned())
            }
            None => self.has_user_message().then(|| {
                "the user has said something that you have not read; it follows this result"
                    .to_owned()
            }),
        }
    }

    /// Reports whether the user said something since the calls were made.
    pub(super) fn has_user_message(&self) -> bool {
        self.messages
            .iter()
            .any(|(by, _)| *by == MessageAuthor::User)
    }

    /// Returns the calls without a result, and whether each of them is running.
    pub(super) fn calls_without_result(&self) -> Vec<(Call, bool)> {
        let open = self
            .calls
            .iter()
            .filter(|pending| pending.result().is_none());
        open.map(|pending| (pending.call.clone(), pending.state == PendingState::Running))
            .collect()
    }

    fn pending_call(&mut self, id: &CallId) -> Option<&mut PendingCall> {
        self.calls.iter_mut().find(|pending| {
            pending.call.id == *id && !matches!(pending.state, PendingState::Done(_))
        })
    }

    /// Determines the next step. Calls that only read run together, and so do subtasks, of which at
    /// most `max_concurrent` work at a time; everything else waits for all calls before it.
    fn next_action(
        &mut self,
        readers: &[String],
        max_concurrent: usize,
        asking: bool,
    ) -> NextAction {
        let mut open = false;
        let mut subtasks = 0;
        for pending in &mut self.calls {
            let subtask = pending.call.name == control::NEW_TASK_TOOL;
            let reads = subtask || readers.contains(&pending.call.name);
            subtasks += usize::from(subtask && !matches!(pending.state, PendingState::Done(_)));
            match &pending.state {
                PendingState::Done(_) => continue,
                // Refused calls are answered in order too, so that results are recorded in call
                // order unless calls run concurrently.
                PendingState::Refused(ending, words) => {
                    return NextAction::Refuse(pending.call.clone(), *ending, words.clone());
                }
                // A call that may write must see the effects of all calls before it, and of none
                // after it.
                PendingState::Waiting if open && !reads => return NextAction::Nothing,
                // Over the limit: the call keeps waiting, and calls behind it that only read may
                // pass it.
                PendingState::Waiting if subtask && subtasks > max_concurrent.max(1) => open = true,
                PendingState::Waiting if control::is_control(&pending.call.name) => {
                    return NextAction::Control(pending.call.clone());
                }
                PendingState::Waiting => {
                    pending.state = PendingState::Assessing;
                    return NextAction::Assess(pending.call.id.clone());
                }
                // One question at a time.
                PendingState::Asking(question) if !asking => {
                    return NextAction::Ask(question.clone());
                }
                _ if !reads => return NextAction::Nothing,
                _ => open = true,
            }
        }
        NextAction::Nothing
    }
}

/// Reports whether all files that an access writes may be read without asking.
fn may_read(rules: &PolicyRules, access: &Access) -> bool {
    match access {
        Access::Write { path, .. } => {
            let read = Access::Read {
                path: path.clone(),
                outside: false,
            };
            rules.decide(&read).verdict == Verdict::Allow
        }
        Access::Several(all) => all.iter().all(|one| may_read(rules, one)),
        _ => false,
    }
}

/// Describes a denial to the model.
fn denial_message(by: DecisionMaker, reason: &str) -> String {
    let who = if by == DecisionMaker::User {
        "The user"
    } else {
        "The policy"
    };
    format!(
        "{who} did not allow this call: {reason}. It was not run. Find another way, or say what you need."
    )
}

/// Returns the reason for denying a call that needs an approval when there is no user to give it.
pub(super) fn unapproved_reason(reason: &str) -> String {
    format!("it {reason}, which is not approved in advance, and nobody can be asked")
}

impl PendingState {
    fn initial_state(call: &Call, answered: &AssistantTurn) -> Self {
        let check = answered.checks.iter().find(|check| check.call == call.id);
        match check {
            Some(check) if check.passed => Self::Waiting,
            Some(check) => Self::Refused(ToolResultStatus::Rejected, check.feedback_text()),
            // Occurs only in an edited journal: the machine records a check for each call. A call
            // without a check never runs.
            None => Self::Refused(
                ToolResultStatus::Rejected,
                "The call was not checked and was not run.".to_owned(),
            ),
        }
    }
}

impl PendingCall {
    fn result(&self) -> Option<&CallResult> {
        match &self.state {
            PendingState::Done(result) => Some(result),
            _ => None,
        }
    }
}

impl Task {
    /// Takes all steps that are possible now: assesses, refuses and answers calls and asks about them, until it must wait for one.
    pub(super) fn advance_calls(&mut self, effects: &mut Vec<TaskEffect>) {
        loop {
            self.apply_current_mode();
            let Some(turn) = &mut self.turn else {
                return self.finish_turn(effects);
            };
            let max_concurrent = self.settings.limits.subtasks.max_concurrent;
            match turn.next_action(
                &self.settings.read_only_tools,
                max_concurrent,
                self.question.is_some(),
            ) {
                NextAction::Nothing => return,
                NextAction::Refuse(call, ending, words) => {
                    self.record_call_result(&call, ending, words, effects)
                }
                NextAction::Assess(call) => effects.push(TaskEffect::AssessCall(call)),
                // A control call may need to ask as well.
                NextAction::Control(_) if self.question.is_some() => return,
                NextAction::Control(call) => {
                    if !self.handle_control_call(&call, effects) {
                        return;
                    }
                }
                NextAction::Ask(question) => {
                    self.question = Some(question.clone());
                    effects.push(TaskEffect::AskUser(question));
                }
            }
        }
    }

    /// Continues with the model's next turn after all calls are answered, unless the model is
    /// stuck.
    fn finish_turn(&mut self, effects: &mut Vec<TaskEffect>) {
        if let Some(reason) = self.progress.stuck_reason(&self.settings.limits) {
            return self.stop_or_ask_user(reason, effects);
        }
        // Before the request, so that the reminder follows the results it is about.
        self.remind_of_cycle(effects);
        self.request_next_turn(effects);
    }

    /// Requests the assessment of a control call that runs a check.
    pub(super) fn assess_control_call(&mut self, id: &CallId, effects: &mut Vec<TaskEffect>) {
        if let Some(pending) = self.turn.as_mut().and_then(|turn| turn.pending_call(id)) {
            pending.state = PendingState::Assessing;
            effects.push(TaskEffect::AssessCall(id.clone()));
        }
    }

    pub(super) fn handle_assessment(
        &mut self,
        id: &CallId,
        access: &Access,
        preconditions: Preconditions,
        effects: &mut Vec<TaskEffect>,
    ) {
        // Ignores an assessment that is not pending: a call that was refused or answered meanwhile
        // is not checked again.
        let assessing = self
            .turn
            .as_mut()
            .and_then(|turn| turn.pending_call(id))
            .filter(|pending| pending.state == PendingState::Assessing);
        let Some(call) = assessing.map(|pending| pending.call.clone()) else {
            return;
        };
        if control::is_control(&call.name) {
            return self.handle_check_assessment(&call, access, preconditions, effects);
        }
        if let Access::Invalid { reason } = access {
            self.record_call_result(&call, ToolResultStatus::Failed, reason.clone(), effects);
            return self.advance_calls(effects);
        }
        if let Some(words) = self.subtask_refusal(&call) {
            self.record_call_result(&call, ToolResultStatus::Failed, words, effects);
            return self.advance_calls(effects);
        }
        // Checked by the current rules: a mode switch by an earlier call of the turn already
        // applies.
        let decision = self.settings.rules.decide(access);
        let caution = self.text_call_risk(&call);
        let decision = self.require_approval(&call, access, decision, &caution);
        if let Some(pending) = self.turn.as_mut().and_then(|turn| turn.pending_call(id)) {
            let digest = CallDigest::for_call(&call.name, &call.arguments, &preconditions);
            pending.permit = Some(CallPermit {
                digest,
                preconditions,
                read_only: decision.only_reads,
                user_approved: decision.is_allowed_by_rule(),
                ..CallPermit::unchecked(id.clone())
            });
        }
        match decision.verdict {
            Verdict::Allow => return self.run_call(id, effects),
            Verdict::Ask if self.settings.interactivity.can_answer() => {
                let rules = &self.settings.rules;
                let question = approval::approval_question(call, access, decision, rules, caution);
                if let Some(turn) = &mut self.turn {
                    turn.set_question(id, question);
                }
            }
            Verdict::Ask => self.deny_call(
                &call,
                DecisionMaker::Policy,
                &(unapproved_reason(&decision.reason) + &caution.advice(&call.name)),
                effects,
            ),
            Verdict::Deny => {
                self.deny_call(&call, DecisionMaker::Policy, &decision.reason, effects)
            }
        }
        self.advance_calls(effects);
    }

    /// Returns true if a call of this access should be tried before the user is asked about it. It is tried only if the user would
    /// be asked, and if the model may read the files, because a failure reveals their content.
    pub fn should_try_before_asking(&self, access: &Access) -> bool {
        let rules = &self.settings.rules;
        rules.decide(access).verdict == Verdict::Ask && may_read(rules, access)
    }

    /// Notes that the user said yes to a call.
    pub(super) fn mark_user_approved(&mut self, id: &CallId) {
        let pending = self.turn.as_mut().and_then(|turn| turn.pending_call(id));
        if let Some(permit) = pending.and_then(|pending| pending.permit.as_mut()) {
            permit.user_approved = true;
        }
    }

    pub(super) fn run_call(&mut self, id: &CallId, effects: &mut Vec<TaskEffect>) {
        let permit = self
            .turn
            .as_mut()
            .and_then(|turn| turn.pending_call(id))
            .and_then(|pending| pending.permit.take());
        // A call that was not weighed has none, and does not run.
        let Some(permit) = permit else { return };
        // Completed only now: calls that ran since the decision may have used a part of the limits.
        let permit = CallPermit {
            remaining_limits: self.budget.remaining_limits(&self.settings.limits),
            budget_period: self.budget.period(),
            ..permit
        };
        // The record precedes the effect, so that after a crash the call is known to have begun,
        // and is not repeated.
        self.commit_record(
            Record::Running {
                call: id.clone(),
                seal: Some(permit.digest.clone()),
            },
            effects,
        );
        // Also before the effect: a crash right after the start must not lose which journal belongs
        // to the call.
        self.begin_subtask(id, effects);
        effects.push(TaskEffect::RunCall(permit));
        self.advance_calls(effects);
    }

    pub(super) fn deny_call(
        &mut self,
        call: &Call,
        by: DecisionMaker,
        reason: &str,
        effects: &mut Vec<TaskEffect>,
    ) {
        // The verdict is recorded before the result. If the process ends in between, the resumed
        // task still denies the call.
        let record = Record::Judged {
            call: call.id.clone(),
            verdict: Verdict::Deny,
            by,
            reason: reason.to_owned(),
        };
        self.commit_record(record, effects);
        self.record_call_result(
            call,
            ToolResultStatus::Denied,
            denial_message(by, reason),
            effects,
        );
    }

    pub(super) fn handle_tool_result(
        &mut self,
        id: &CallId,
        output: ToolOutput,
        effects: &mut Vec<TaskEffect>,
    ) {
        // The result of a call that was cancelled, or set back to waiting, finds no running call
        // and is dropped.
        let running = self
            .turn
            .as_mut()
            .and_then(|turn| turn.pending_call(id))
            .filter(|pending| pending.state == PendingState::Running);
        let Some(call) = running.map(|pending| pending.call.clone()) else {
            return;
        };
        if control::is_control(&call.name) {
            return self.handle_check_result(&call, &output, effects);
        }
        self.commit_output(&call.id, output, effects);
        self.advance_calls(effects);
    }

    /// Makes a tool's output the result of its call.
    pub(super) fn commit_output(
        &mut self,
        id: &CallId,
        output: ToolOutput,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some(call) = self.open_call(id).cloned() else {
            return;
        };
        let ending = match output.subtask.map(|end| end.outcome) {
            Some(TaskOutcome::Cancelled) => ToolResultStatus::Interrupted,
            _ if output.failed && !output.found_nothing => ToolResultStatus::Failed,
            _ => ToolResultStatus::Done,
        };
        output
            .subtask
            .into_iter()
            .for_each(|end| self.end_subtask(id, end, effects));
        let readers = &self.settings.read_only_tools;
        // Deduplicated before the record is made, so that a replay uses the recorded text.
        let output = if readers.contains(&call.name) {
            self.transcript.dedup_output(&call, output)
        } else {
            output
        };
        let ToolOutput {
            content, images, ..
        } = output;
        let result = CallResult {
            id: call.id,
            name: call.name,
            ending,
            content,
            images,
        };
        self.commit_record(Record::Result(result), effects);
    }

    /// Answers a call.
    pub(super) fn record_call_result(
        &mut self,
        call: &Call,
        ending: ToolResultStatus,
        content: String,
        effects: &mut Vec<TaskEffect>,
    ) {
        let result = CallResult {
            id: call.id.clone(),
            name: call.name.clone(),
            ending,
            content,
            images: Vec::new(),
        };
        self.commit_record(Record::Result(result), effects);
    }

    /// Answers the running calls as interrupted, since their effects are unknown. Subtasks stay
    /// open.
    pub(super) fn interrupt_running(&mut self, content: &str, effects: &mut Vec<TaskEffect>) {
        let open = self
            .turn
            .as_ref()
            .map(OpenTurn::calls_without_result)
            .unwrap_or_default();
        for (call, running) in open {
            let content = if control::is_control(&call.name) {
                UNCHECKED
            } else {
                content
            };
            // It is not run again: half of it may have happened. The result asks the model to look.
            if running && !self.survives_resume(&call.name) {
                self.record_call_result(
                    &call,
                    ToolResultStatus::Interrupted,
                    content.to_owned(),
                    effects,
                );
            }
        }
    }

    /// Answers all open calls as not run.
    pub(super) fn reject_calls_without_result(
        &mut self,
        content: &str,
        effects: &mut Vec<TaskEffect>,
    ) {
        let open = self
            .turn
            .as_ref()
            .map(OpenTurn::calls_without_result)
            .unwrap_or_default();
        for (call, _) in open {
            self.record_call_result(
                &call,
                ToolResultStatus::Rejected,
                content.to_owned(),
                effects,
            );
        }
    }

    pub(super) fn handle_reply(&mut self, reply: UserReply, effects: &mut Vec<TaskEffect>) {
        // A reply to a question that was withdrawn meanwhile approves nothing.
        let Some(question) = self.question.take() else {
            return;
        };
        if reply == UserReply::Leave {
            return self.handle_leave(&question, effects);
        }
        match question {
            UserQuestion::Approval {
                call, proposals, ..
            } => self.handle_approval(&call, &proposals, reply, effects),
            UserQuestion::Followup { call, .. } => {
                self.handle_followup_reply(&call, reply, effects)
            }
            UserQuestion::Completion { call, .. } => self.handle_review(&call, reply, effects),
            UserQuestion::Next { .. } => self.handle_next_reply(reply, effects),
        }
    }
}
