//! The calls of one turn: each waits, is weighed, perhaps asked about, run, and answered exactly once.

use sabir_call::{Call, CallId, CallResult, MessagePart, ToolResultStatus};
use sabir_policy::{Access, Verdict};

use crate::control;
use crate::event::{UserQuestion, UserReply};
use crate::permit::{CallDigest, CallPermit, Preconditions};
use crate::record::{AssistantTurn, DecisionMaker, MessageAuthor, Record, TaskOutcome};
use crate::tool::ToolOutput;

use super::subtask::StartedSubtask;
use super::{Task, TaskEffect, UserMessage, approval};

/// The result of a completion whose check did not come to its end, or which was shown and not answered.
const UNCHECKED: &str =
    "Not completed: this was interrupted. Complete again when the task is done.";

/// A turn whose calls are not all answered.
#[derive(Debug)]
pub(crate) struct OpenTurn {
    parts: Vec<MessagePart>,
    calls: Vec<PendingCall>,
    /// What the model is to be told of mistakes that belong to no call.
    feedback: Option<String>,
    /// What was said while the calls were open.
    messages: Vec<(MessageAuthor, UserMessage)>,
}

#[derive(Debug)]
struct PendingCall {
    call: Call,
    state: PendingState,
    /// What it may run as, once it was weighed.
    permit: Option<CallPermit>,
    /// The subtask that it began.
    subtask: Option<StartedSubtask>,
}

#[derive(Debug, Clone, PartialEq)]
enum PendingState {
    /// A gate stopped it, or it was denied; these are the words for the model. It can never run.
    Refused(ToolResultStatus, String),
    Waiting,
    Assessing,
    /// The user is to be asked, or is being asked.
    Asking(UserQuestion),
    Running,
    Done(CallResult),
}

/// What the next call needs.
enum NextAction {
    Nothing,
    Refuse(Call, ToolResultStatus, String),
    Assess(CallId),
    Control(Call),
    Ask(UserQuestion),
}

impl OpenTurn {
    /// The turn of an answer, if it holds calls.
    pub(super) fn from_answer(answered: &AssistantTurn) -> Option<Self> {
        let calls = answered.parts.iter().filter_map(|part| match part {
            MessagePart::Call(call) => Some(PendingCall {
                state: PendingState::initial_state(call, answered),
                call: call.clone(),
                permit: None,
                subtask: None,
            }),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            None
        } else {
            let (parts, feedback) = (answered.parts.clone(), answered.feedback.clone());
            Some(Self {
                parts,
                calls,
                feedback,
                messages: Vec::new(),
            })
        }
    }

    /// The parts, and what answers them, once all calls are answered: the results in call order, then the feedback
    /// and what was said meanwhile.
    pub(super) fn take_answers(&mut self) -> Option<(Vec<MessagePart>, Vec<MessagePart>)> {
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

    /// Whether no call went wrong, and nothing else did.
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

    /// Words that the model is to read with the results.
    pub(super) fn add_message(&mut self, by: MessageAuthor, words: UserMessage) {
        self.messages.push((by, words));
    }

    /// The calls that the user is asked about, or is to be.
    pub(super) fn calls_awaiting_user(&self) -> Vec<Call> {
        let asked = self
            .calls
            .iter()
            .filter(|pending| matches!(pending.state, PendingState::Asking(_)));
        asked.map(|pending| pending.call.clone()).collect()
    }

    /// Whether that result refuses a completion which the gates had let pass.
    pub(super) fn rejects_completion(&self, result: &CallResult) -> bool {
        let passed = |pending: &PendingCall| {
            !matches!(
                pending.state,
                PendingState::Refused(..) | PendingState::Done(_)
            )
        };
        let completion =
            result.name == control::COMPLETION_TOOL && result.ending == ToolResultStatus::Rejected;
        completion
            && self
                .calls
                .iter()
                .any(|pending| pending.call.id == result.id && passed(pending))
    }

    /// Lets a call that is being weighed run as that; whether there is one.
    pub(super) fn set_permit(&mut self, id: &CallId, permit: CallPermit) -> bool {
        let pending = self
            .pending_call(id)
            .filter(|pending| pending.state == PendingState::Assessing);
        pending
            .map(|pending| pending.permit = Some(permit))
            .is_some()
    }

    /// Has the user asked about a call.
    pub(super) fn set_question(&mut self, id: &CallId, question: UserQuestion) {
        if let Some(pending) = self.pending_call(id) {
            pending.state = PendingState::Asking(question);
        }
    }

    /// Has the calls judged anew that the user is asked about, or is to be.
    pub(super) fn reassess_questions(&mut self) {
        for pending in self
            .calls
            .iter_mut()
            .filter(|pending| matches!(pending.state, PendingState::Asking(_)))
        {
            (pending.state, pending.permit) = (PendingState::Waiting, None);
        }
    }

    pub(super) fn mark_running(&mut self, id: &CallId) {
        if let Some(pending) = self.pending_call(id) {
            pending.state = PendingState::Running;
        }
    }

    /// The subtask that a call which is open began.
    pub(super) fn find_subtask(&self, id: &CallId) -> Option<&StartedSubtask> {
        self.calls
            .iter()
            .find(|pending| pending.call.id == *id)
            .and_then(|pending| pending.subtask.as_ref())
    }

    /// Where that is noted.
    pub(super) fn subtask_slot(&mut self, id: &CallId) -> Option<&mut Option<StartedSubtask>> {
        self.pending_call(id).map(|pending| &mut pending.subtask)
    }

    pub(super) fn is_running(&self, id: &CallId) -> bool {
        self.calls
            .iter()
            .any(|pending| pending.call.id == *id && pending.state == PendingState::Running)
    }

    /// A call that was running is to be weighed and run again.
    pub(super) fn mark_waiting(&mut self, id: &CallId) {
        if let Some(pending) = self
            .pending_call(id)
            .filter(|pending| pending.state == PendingState::Running)
        {
            pending.state = PendingState::Waiting;
        }
    }

    /// A denial that is on record holds, also for a task that is resumed before the call had its result.
    pub(super) fn mark_denied(&mut self, id: &CallId, by: DecisionMaker, reason: &str) {
        if let Some(pending) = self.pending_call(id) {
            pending.state =
                PendingState::Refused(ToolResultStatus::Denied, denial_message(by, reason));
        }
    }

    /// The first result of a call stands; there is no second.
    pub(super) fn mark_done(&mut self, result: &CallResult) {
        if let Some(pending) = self.pending_call(&result.id) {
            pending.state = PendingState::Done(result.clone());
        }
    }

    /// What speaks against completing by that call: another call of the turn that failed, was refused, or has not been
    /// made, or a part of the message that could not be read.
    pub(super) fn completion_objection(&self, id: &CallId) -> Option<String> {
        let others = self.calls.iter().filter(|pending| pending.call.id != *id);
        let bad = |pending: &&PendingCall| {
            pending
                .result()
                .is_none_or(|result| result.ending.is_error())
        };
        match others.filter(|pending| !control::is_control(&pending.call.name) || pending.result().is_some()).find(bad)
        {
            Some(pending) if pending.result().is_none() => Some(format!(
                "the call of {} stands behind it in the same message. Make that call first, and complete when you have \
                 seen its result",
                pending.call.name
            )),
            Some(pending) => Some(format!(
                "the call of {} in the same message did not succeed. Look at its result, put that right, then complete",
                pending.call.name
            )),
            None if self.feedback.is_some() => Some("a part of the same message could not be read".to_owned()),
            None => {
                self.messages.iter().any(|(by, _)| *by == MessageAuthor::User).then(|| {
                    "the user has said something that you have not read; it stands behind this result".to_owned()
                })
            }
        }
    }

    /// Calls that have no result, with whether they were running.
    pub(super) fn unanswered_calls(&self) -> Vec<(Call, bool)> {
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

    /// The next thing to do. Calls that only read go together, and so do subtasks, of which at most `max_concurrent` are at work;
    /// everything else waits for all calls before it.
    fn next_action(&mut self, readers: &[String], at_once: usize, asking: bool) -> NextAction {
        let (mut open, mut subtasks) = (false, 0);
        for pending in &mut self.calls {
            let subtask = pending.call.name == control::NEW_TASK_TOOL;
            let reads = subtask || readers.contains(&pending.call.name);
            subtasks += usize::from(subtask && !matches!(pending.state, PendingState::Done(_)));
            match &pending.state {
                PendingState::Done(_) => continue,
                PendingState::Refused(ending, words) => {
                    return NextAction::Refuse(pending.call.clone(), *ending, words.clone());
                }
                PendingState::Waiting if open && !reads => return NextAction::Nothing,
                PendingState::Waiting if subtask && subtasks > at_once.max(1) => open = true,
                PendingState::Waiting if control::is_control(&pending.call.name) => {
                    return NextAction::Control(pending.call.clone());
                }
                PendingState::Waiting => {
                    pending.state = PendingState::Assessing;
                    return NextAction::Assess(pending.call.id.clone());
                }
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

/// What the model is told of a denial.
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

/// Why a call is denied that somebody would have to be asked about.
pub(super) fn unapproved_reason(reason: &str) -> String {
    format!("it {reason}, which is not approved in advance, and nobody can be asked")
}

impl PendingState {
    fn initial_state(call: &Call, answered: &AssistantTurn) -> Self {
        let check = answered.checks.iter().find(|check| check.call == call.id);
        match check {
            Some(check) if check.passed => Self::Waiting,
            Some(check) => Self::Refused(ToolResultStatus::Rejected, check.feedback_text()),
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
    /// Sets everything in motion that can be.
    pub(super) fn advance_calls(&mut self, effects: &mut Vec<TaskEffect>) {
        loop {
            self.apply_current_mode();
            let Some(turn) = &mut self.turn else {
                return self.finish_turn(effects);
            };
            let at_once = self.settings.limits.subtasks.max_concurrent;
            match turn.next_action(
                &self.settings.read_only_tools,
                at_once,
                self.question.is_some(),
            ) {
                NextAction::Nothing => return,
                NextAction::Refuse(call, ending, words) => {
                    self.answer_call(&call, ending, words, effects)
                }
                NextAction::Assess(call) => effects.push(TaskEffect::AssessCall(call)),
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

    /// All calls are answered: the model's turn, unless it makes nothing but mistakes.
    fn finish_turn(&mut self, effects: &mut Vec<TaskEffect>) {
        if let Some(reason) = self.stuck_reason() {
            return self.stop_or_ask_user(reason, effects);
        }
        self.remind_of_cycle(effects);
        self.request_next_turn(effects);
    }

    /// Has a control call weighed that is more than words.
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
        bound: Preconditions,
        effects: &mut Vec<TaskEffect>,
    ) {
        // Only what was asked for is taken: a call that was refused or answered meanwhile is not judged again.
        let weighing = self
            .turn
            .as_mut()
            .and_then(|turn| turn.pending_call(id))
            .filter(|pending| pending.state == PendingState::Assessing);
        let Some(call) = weighing.map(|pending| pending.call.clone()) else {
            return;
        };
        if control::is_control(&call.name) {
            return self.handle_check_assessment(&call, access, bound, effects);
        }
        if let Access::Invalid { reason } = access {
            self.answer_call(&call, ToolResultStatus::Failed, reason.clone(), effects);
            return self.advance_calls(effects);
        }
        if let Some(words) = self.subtask_refusal(&call) {
            self.answer_call(&call, ToolResultStatus::Failed, words, effects);
            return self.advance_calls(effects);
        }
        let judgement = self.settings.rules.decide(access);
        if let Some(pending) = self.turn.as_mut().and_then(|turn| turn.pending_call(id)) {
            let seal = CallDigest::for_call(&call.name, &call.arguments, &bound);
            let only_reads = judgement.only_reads;
            pending.permit = Some(CallPermit {
                digest: seal,
                preconditions: bound,
                read_only: only_reads,
                ..CallPermit::unchecked(id.clone())
            });
        }
        match judgement.verdict {
            Verdict::Allow => return self.run_call(id, effects),
            Verdict::Ask if self.settings.interactivity.can_answer() => {
                let question =
                    approval::approval_question(call, access, judgement, &self.settings.rules);
                if let Some(turn) = &mut self.turn {
                    turn.set_question(id, question);
                }
            }
            Verdict::Ask => self.deny_call(
                &call,
                DecisionMaker::Policy,
                &unapproved_reason(&judgement.reason),
                effects,
            ),
            Verdict::Deny => {
                self.deny_call(&call, DecisionMaker::Policy, &judgement.reason, effects)
            }
        }
        self.advance_calls(effects);
    }

    pub(super) fn run_call(&mut self, id: &CallId, effects: &mut Vec<TaskEffect>) {
        let permit = self
            .turn
            .as_mut()
            .and_then(|turn| turn.pending_call(id))
            .and_then(|pending| pending.permit.take());
        // A call that was not weighed has none, and does not run.
        let Some(permit) = permit else { return };
        let permit = CallPermit {
            remaining_limits: self.remaining_limits(),
            ..permit
        };
        self.commit_record(
            Record::Running {
                call: id.clone(),
                seal: Some(permit.digest.clone()),
            },
            effects,
        );
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
        let judged = Record::Judged {
            call: call.id.clone(),
            verdict: Verdict::Deny,
            by,
            reason: reason.to_owned(),
        };
        self.commit_record(judged, effects);
        self.answer_call(
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

    /// Makes what a tool said the result of its call.
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
            _ if output.failed => ToolResultStatus::Failed,
            _ => ToolResultStatus::Done,
        };
        output
            .subtask
            .into_iter()
            .for_each(|end| self.end_subtask(id, end, effects));
        let readers = &self.settings.read_only_tools;
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

    /// Gives a call its result.
    pub(super) fn answer_call(
        &mut self,
        call: &Call,
        ending: ToolResultStatus,
        content: String,
        effects: &mut Vec<TaskEffect>,
    ) {
        let (id, name) = (call.id.clone(), call.name.clone());
        let result = CallResult {
            id,
            name,
            ending,
            content,
            images: Vec::new(),
        };
        self.commit_record(Record::Result(result), effects);
    }

    /// Answers the calls that were running: what they did is unknown. Subtasks go on.
    pub(super) fn interrupt_running(&mut self, content: &str, effects: &mut Vec<TaskEffect>) {
        let open = self
            .turn
            .as_ref()
            .map(OpenTurn::unanswered_calls)
            .unwrap_or_default();
        for (call, running) in open {
            let content = if control::is_control(&call.name) {
                UNCHECKED
            } else {
                content
            };
            if running && !self.survives_resume(&call.name) {
                self.answer_call(
                    &call,
                    ToolResultStatus::Interrupted,
                    content.to_owned(),
                    effects,
                );
            }
        }
    }

    /// Answers every call that is left, none of which was run.
    pub(super) fn reject_unanswered(&mut self, content: &str, effects: &mut Vec<TaskEffect>) {
        let open = self
            .turn
            .as_ref()
            .map(OpenTurn::unanswered_calls)
            .unwrap_or_default();
        for (call, _) in open {
            self.answer_call(
                &call,
                ToolResultStatus::Rejected,
                content.to_owned(),
                effects,
            );
        }
    }

    pub(super) fn handle_reply(&mut self, reply: UserReply, effects: &mut Vec<TaskEffect>) {
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
