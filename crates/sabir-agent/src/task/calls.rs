//! The calls of one turn: each waits, is weighed, perhaps asked about, run, and answered exactly once.

use sabir_call::{Call, CallId, CallResult, Ending, Part};
use sabir_policy::{Access, Verdict};

use crate::control;
use crate::event::{Question, Reply};
use crate::permit::{Bound, Permit, Seal};
use crate::record::{Answered, Judge, Outcome, Record, Speaker};
use crate::tool::ToolOutput;

use super::subtask::Begun;
use super::{Effect, Task, Words, approval};

/// The result of a completion whose check did not come to its end, or which was shown and not answered.
const UNCHECKED: &str = "Not completed: this was interrupted. Complete again when the task is done.";

/// A turn whose calls are not all answered.
#[derive(Debug)]
pub(crate) struct Turn {
    parts: Vec<Part>,
    calls: Vec<Pending>,
    /// What the model is to be told of mistakes that belong to no call.
    feedback: Option<String>,
    /// What was said while the calls were open.
    said: Vec<(Speaker, Words)>,
}

#[derive(Debug)]
struct Pending {
    call: Call,
    state: State,
    /// What it may run as, once it was weighed.
    permit: Option<Permit>,
    /// The subtask that it began.
    subtask: Option<Begun>,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    /// A gate stopped it, or it was denied; these are the words for the model. It can never run.
    Refused(Ending, String),
    Waiting,
    Weighing,
    /// The user is to be asked, or is being asked.
    Asking(Question),
    Running,
    Done(CallResult),
}

/// What the next call needs.
enum Next {
    Nothing,
    Refuse(Call, Ending, String),
    Weigh(CallId),
    Control(Call),
    Ask(Question),
}

impl Turn {
    /// The turn of an answer, if it holds calls.
    pub(super) fn open(answered: &Answered) -> Option<Self> {
        let calls = answered.parts.iter().filter_map(|part| match part {
            Part::Call(call) => {
                Some(Pending { state: State::first(call, answered), call: call.clone(), permit: None, subtask: None })
            }
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            None
        } else {
            let (parts, feedback) = (answered.parts.clone(), answered.feedback.clone());
            Some(Self { parts, calls, feedback, said: Vec::new() })
        }
    }

    /// The parts, and what answers them, once all calls are answered: the results in call order, then the feedback
    /// and what was said meanwhile.
    pub(super) fn close(&mut self) -> Option<(Vec<Part>, Vec<Part>)> {
        let results: Option<Vec<_>> = self.calls.iter().map(|pending| pending.result().cloned()).collect();
        let mut answers: Vec<_> = results?.into_iter().map(Part::Result).collect();
        answers.extend(self.feedback.take().map(Part::text));
        answers.extend(self.said.drain(..).flat_map(|(_, words)| words.parts()));
        Some((std::mem::take(&mut self.parts), answers))
    }

    /// Whether no call went wrong, and nothing else did.
    pub(super) fn is_clean(&self) -> bool {
        let failed = |pending: &Pending| pending.result().is_none_or(|result| result.ending.is_error());
        self.feedback.is_none() && !self.calls.iter().any(failed)
    }

    pub(super) fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.iter().map(|pending| &pending.call).find(|call| call.id == *id)
    }

    /// Words that the model is to read with the results.
    pub(super) fn hear(&mut self, by: Speaker, words: Words) {
        self.said.push((by, words));
    }

    /// The calls that the user is asked about, or is to be.
    pub(super) fn asked_about(&self) -> Vec<Call> {
        let asked = self.calls.iter().filter(|pending| matches!(pending.state, State::Asking(_)));
        asked.map(|pending| pending.call.clone()).collect()
    }

    /// Whether that result refuses a completion which the gates had let pass.
    pub(super) fn refuses(&self, result: &CallResult) -> bool {
        let passed = |pending: &Pending| !matches!(pending.state, State::Refused(..) | State::Done(_));
        let completion = result.name == control::COMPLETION && result.ending == Ending::Rejected;
        completion && self.calls.iter().any(|pending| pending.call.id == result.id && passed(pending))
    }

    /// Lets a call that is being weighed run as that; whether there is one.
    pub(super) fn permit(&mut self, id: &CallId, permit: Permit) -> bool {
        let pending = self.pending(id).filter(|pending| pending.state == State::Weighing);
        pending.map(|pending| pending.permit = Some(permit)).is_some()
    }

    /// Has the user asked about a call.
    pub(super) fn ask(&mut self, id: &CallId, question: Question) {
        if let Some(pending) = self.pending(id) {
            pending.state = State::Asking(question);
        }
    }

    /// Has the calls judged anew that the user is asked about, or is to be.
    pub(super) fn reconsider(&mut self) {
        for pending in self.calls.iter_mut().filter(|pending| matches!(pending.state, State::Asking(_))) {
            (pending.state, pending.permit) = (State::Waiting, None);
        }
    }

    pub(super) fn start(&mut self, id: &CallId) {
        if let Some(pending) = self.pending(id) {
            pending.state = State::Running;
        }
    }

    /// The subtask that a call which is open began.
    pub(super) fn begun(&self, id: &CallId) -> Option<&Begun> {
        self.calls.iter().find(|pending| pending.call.id == *id).and_then(|pending| pending.subtask.as_ref())
    }

    /// Where that is noted.
    pub(super) fn subtask(&mut self, id: &CallId) -> Option<&mut Option<Begun>> {
        self.pending(id).map(|pending| &mut pending.subtask)
    }

    pub(super) fn is_running(&self, id: &CallId) -> bool {
        self.calls.iter().any(|pending| pending.call.id == *id && pending.state == State::Running)
    }

    /// A call that was running is to be weighed and run again.
    pub(super) fn rest(&mut self, id: &CallId) {
        if let Some(pending) = self.pending(id).filter(|pending| pending.state == State::Running) {
            pending.state = State::Waiting;
        }
    }

    /// A denial that is on record holds, also for a task that is resumed before the call had its result.
    pub(super) fn deny(&mut self, id: &CallId, by: Judge, reason: &str) {
        if let Some(pending) = self.pending(id) {
            pending.state = State::Refused(Ending::Denied, denial(by, reason));
        }
    }

    /// The first result of a call stands; there is no second.
    pub(super) fn finish(&mut self, result: &CallResult) {
        if let Some(pending) = self.pending(&result.id) {
            pending.state = State::Done(result.clone());
        }
    }

    /// What speaks against completing by that call: another call of the turn that failed, was refused, or has not been
    /// made, or a part of the message that could not be read.
    pub(super) fn objection(&self, id: &CallId) -> Option<String> {
        let others = self.calls.iter().filter(|pending| pending.call.id != *id);
        let bad = |pending: &&Pending| pending.result().is_none_or(|result| result.ending.is_error());
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
                self.said.iter().any(|(by, _)| *by == Speaker::User).then(|| {
                    "the user has said something that you have not read; it stands behind this result".to_owned()
                })
            }
        }
    }

    /// Calls that have no result, with whether they were running.
    pub(super) fn unanswered(&self) -> Vec<(Call, bool)> {
        let open = self.calls.iter().filter(|pending| pending.result().is_none());
        open.map(|pending| (pending.call.clone(), pending.state == State::Running)).collect()
    }

    fn pending(&mut self, id: &CallId) -> Option<&mut Pending> {
        self.calls.iter_mut().find(|pending| pending.call.id == *id && !matches!(pending.state, State::Done(_)))
    }

    /// The next thing to do. Calls that only read go together, and so do subtasks, of which at most `at_once` are at work;
    /// everything else waits for all calls before it.
    fn next(&mut self, readers: &[String], at_once: usize, asking: bool) -> Next {
        let (mut open, mut subtasks) = (false, 0);
        for pending in &mut self.calls {
            let subtask = pending.call.name == control::SUBTASK;
            let reads = subtask || readers.contains(&pending.call.name);
            subtasks += usize::from(subtask && !matches!(pending.state, State::Done(_)));
            match &pending.state {
                State::Done(_) => continue,
                State::Refused(ending, words) => return Next::Refuse(pending.call.clone(), *ending, words.clone()),
                State::Waiting if open && !reads => return Next::Nothing,
                State::Waiting if subtask && subtasks > at_once.max(1) => open = true,
                State::Waiting if control::is_control(&pending.call.name) => {
                    return Next::Control(pending.call.clone());
                }
                State::Waiting => {
                    pending.state = State::Weighing;
                    return Next::Weigh(pending.call.id.clone());
                }
                State::Asking(question) if !asking => return Next::Ask(question.clone()),
                _ if !reads => return Next::Nothing,
                _ => open = true,
            }
        }
        Next::Nothing
    }
}

/// What the model is told of a denial.
fn denial(by: Judge, reason: &str) -> String {
    let who = if by == Judge::User { "The user" } else { "The policy" };
    format!("{who} did not allow this call: {reason}. It was not run. Find another way, or say what you need.")
}

/// Why a call is denied that somebody would have to be asked about.
pub(super) fn unapproved(reason: &str) -> String {
    format!("it {reason}, which is not approved in advance, and nobody can be asked")
}

impl State {
    fn first(call: &Call, answered: &Answered) -> Self {
        let check = answered.checks.iter().find(|check| check.call == call.id);
        match check {
            Some(check) if check.passed => Self::Waiting,
            Some(check) => Self::Refused(Ending::Rejected, check.words()),
            None => Self::Refused(Ending::Rejected, "The call was not checked and was not run.".to_owned()),
        }
    }
}

impl Pending {
    fn result(&self) -> Option<&CallResult> {
        match &self.state {
            State::Done(result) => Some(result),
            _ => None,
        }
    }
}

impl Task {
    /// Sets everything in motion that can be.
    pub(super) fn advance(&mut self, effects: &mut Vec<Effect>) {
        loop {
            self.settle();
            let Some(turn) = &mut self.turn else { return self.turn_over(effects) };
            let at_once = self.settings.limits.subtasks.at_once;
            match turn.next(&self.settings.readers, at_once, self.question.is_some()) {
                Next::Nothing => return,
                Next::Refuse(call, ending, words) => self.answer(&call, ending, words, effects),
                Next::Weigh(call) => effects.push(Effect::Weigh(call)),
                Next::Control(_) if self.question.is_some() => return,
                Next::Control(call) => {
                    if !self.control(&call, effects) {
                        return;
                    }
                }
                Next::Ask(question) => {
                    self.question = Some(question.clone());
                    effects.push(Effect::Question(question));
                }
            }
        }
    }

    /// All calls are answered: the model's turn, unless it makes nothing but mistakes.
    fn turn_over(&mut self, effects: &mut Vec<Effect>) {
        if let Some(reason) = self.stuck() {
            return self.stop_here(reason, effects);
        }
        self.tell_cycle(effects);
        self.ask(effects);
    }

    /// Has a control call weighed that is more than words.
    pub(super) fn weigh(&mut self, id: &CallId, effects: &mut Vec<Effect>) {
        if let Some(pending) = self.turn.as_mut().and_then(|turn| turn.pending(id)) {
            pending.state = State::Weighing;
            effects.push(Effect::Weigh(id.clone()));
        }
    }

    pub(super) fn weighed(&mut self, id: &CallId, access: &Access, bound: Bound, effects: &mut Vec<Effect>) {
        // Only what was asked for is taken: a call that was refused or answered meanwhile is not judged again.
        let weighing =
            self.turn.as_mut().and_then(|turn| turn.pending(id)).filter(|pending| pending.state == State::Weighing);
        let Some(call) = weighing.map(|pending| pending.call.clone()) else { return };
        if control::is_control(&call.name) {
            return self.weighed_check(&call, access, bound, effects);
        }
        if let Access::Invalid { reason } = access {
            self.answer(&call, Ending::Failed, reason.clone(), effects);
            return self.advance(effects);
        }
        if let Some(words) = self.no_subtask(&call) {
            self.answer(&call, Ending::Failed, words, effects);
            return self.advance(effects);
        }
        let judgement = self.settings.rules.decide(access);
        if let Some(pending) = self.turn.as_mut().and_then(|turn| turn.pending(id)) {
            let seal = Seal::of(&call.name, &call.arguments, &bound);
            let only_reads = judgement.only_reads;
            pending.permit = Some(Permit { seal, bound, only_reads, ..Permit::unjudged(id.clone()) });
        }
        match judgement.verdict {
            Verdict::Allow => return self.run(id, effects),
            Verdict::Ask if self.settings.attended.answers() => {
                let question = approval::question(call, access, judgement, &self.settings.rules);
                if let Some(turn) = &mut self.turn {
                    turn.ask(id, question);
                }
            }
            Verdict::Ask => self.deny(&call, Judge::Policy, &unapproved(&judgement.reason), effects),
            Verdict::Deny => self.deny(&call, Judge::Policy, &judgement.reason, effects),
        }
        self.advance(effects);
    }

    pub(super) fn run(&mut self, id: &CallId, effects: &mut Vec<Effect>) {
        let permit = self.turn.as_mut().and_then(|turn| turn.pending(id)).and_then(|pending| pending.permit.take());
        // A call that was not weighed has none, and does not run.
        let Some(permit) = permit else { return };
        let permit = Permit { left: self.allowance(), ..permit };
        self.keep(Record::Running { call: id.clone(), seal: Some(permit.seal.clone()) }, effects);
        self.begin_subtask(id, effects);
        effects.push(Effect::Run(permit));
        self.advance(effects);
    }

    pub(super) fn deny(&mut self, call: &Call, by: Judge, reason: &str, effects: &mut Vec<Effect>) {
        let judged = Record::Judged { call: call.id.clone(), verdict: Verdict::Deny, by, reason: reason.to_owned() };
        self.keep(judged, effects);
        self.answer(call, Ending::Denied, denial(by, reason), effects);
    }

    pub(super) fn ran(&mut self, id: &CallId, output: ToolOutput, effects: &mut Vec<Effect>) {
        let running =
            self.turn.as_mut().and_then(|turn| turn.pending(id)).filter(|pending| pending.state == State::Running);
        let Some(call) = running.map(|pending| pending.call.clone()) else { return };
        if control::is_control(&call.name) {
            return self.checked(&call, &output, effects);
        }
        self.take_output(&call.id, output, effects);
        self.advance(effects);
    }

    /// Makes what a tool said the result of its call.
    pub(super) fn take_output(&mut self, id: &CallId, output: ToolOutput, effects: &mut Vec<Effect>) {
        let Some(call) = self.call(id).cloned() else { return };
        let ending = match output.subtask.map(|end| end.outcome) {
            Some(Outcome::Cancelled) => Ending::Interrupted,
            _ if output.failed => Ending::Failed,
            _ => Ending::Done,
        };
        output.subtask.into_iter().for_each(|end| self.end_subtask(id, end, effects));
        let readers = &self.settings.readers;
        let output = if readers.contains(&call.name) { self.past.unless_seen(&call, output) } else { output };
        let ToolOutput { content, images, .. } = output;
        let result = CallResult { id: call.id, name: call.name, ending, content, images };
        self.keep(Record::Result(result), effects);
    }

    /// Gives a call its result.
    pub(super) fn answer(&mut self, call: &Call, ending: Ending, content: String, effects: &mut Vec<Effect>) {
        let (id, name) = (call.id.clone(), call.name.clone());
        let result = CallResult { id, name, ending, content, images: Vec::new() };
        self.keep(Record::Result(result), effects);
    }

    /// Answers the calls that were running: what they did is unknown. Subtasks go on.
    pub(super) fn give_up_running(&mut self, content: &str, effects: &mut Vec<Effect>) {
        let open = self.turn.as_ref().map(Turn::unanswered).unwrap_or_default();
        for (call, running) in open {
            let content = if control::is_control(&call.name) { UNCHECKED } else { content };
            if running && !self.goes_on(&call.name) {
                self.answer(&call, Ending::Interrupted, content.to_owned(), effects);
            }
        }
    }

    /// Answers every call that is left, none of which was run.
    pub(super) fn skip_rest(&mut self, content: &str, effects: &mut Vec<Effect>) {
        let open = self.turn.as_ref().map(Turn::unanswered).unwrap_or_default();
        for (call, _) in open {
            self.answer(&call, Ending::Rejected, content.to_owned(), effects);
        }
    }

    pub(super) fn replied(&mut self, reply: Reply, effects: &mut Vec<Effect>) {
        let Some(question) = self.question.take() else { return };
        if reply == Reply::Leave {
            return self.leave(&question, effects);
        }
        match question {
            Question::Approval { call, proposals, .. } => self.approved(&call, &proposals, reply, effects),
            Question::Followup { call, .. } => self.followed_up(&call, reply, effects),
            Question::Completion { call, .. } => self.reviewed(&call, reply, effects),
            Question::Next { .. } => self.next_words(reply, effects),
        }
    }
}
