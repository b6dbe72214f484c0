//! The sink between a model's events and the client: what goes out, what waits, and what never goes.
//!
//! | a call | goes out |
//! | --- | --- |
//! | of a declared tool | while it comes, typed ([`OutgoingCall`]) |
//! | of a tool that is not declared | when it is whole, since its arguments may say which tool is meant |
//! | that may be a repetition of another | when it is whole, unless it is one |
//! | of any kind, where the model may be asked again | when it passed the gates |
//! | behind the only one that was asked for, or where none was | never |
//!
//! Waiting calls keep their order among each other. Words do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_call::{Event, EventSink, Fault, ParallelCalls, Request, Severity, ToolChoice, Truncation};
use sabir_check::{CallChecker, CallState, CheckedCall, RepeatTracker};

use super::attempt::{
    Attempt, AttemptCall, CallDisposition, CallEnd, CallProblem, SentState, describe_cut, is_unreadable, rule_name,
};
use super::fingerprint::CallFingerprint;
use super::markup_filter::MarkupFilter;
use super::outgoing_call::{CallSink, OutgoingCall};
use super::repair_log::RepairLog;
use super::{CallDelivery, RepairMode, RepairPolicy};

/// A sink that sets right what can be set right, and hands everything on to `out`.
pub(crate) struct CallRepairer<'n, S> {
    pub(super) out: S,
    pub(super) policy: RepairPolicy,
    pub(super) checker: CallChecker,
    pub(super) log: RepairLog<'n>,
    pub(super) attempt: Attempt,
    pub(super) sent: SentState,
    pub(super) repeat_tracker: RepeatTracker,
    pub(super) stop_flag: Arc<AtomicBool>,
}

impl<'n, S: EventSink> CallRepairer<'n, S> {
    /// For answers to that request, of which the client takes calls in that way.
    pub(crate) fn new(
        request: &Request,
        mending: RepairMode,
        taken: CallDelivery,
        diary: RepairLog<'n>,
        out: S,
    ) -> Self {
        let terms = RepairPolicy::from_request(request, mending, taken);
        let mut mender = Self {
            out,
            policy: terms,
            checker: CallChecker::new(request.tools.clone()),
            log: diary,
            attempt: Attempt::default(),
            sent: SentState::default(),
            repeat_tracker: RepeatTracker::default(),
            stop_flag: Arc::default(),
        };
        mender.attempt = mender.new_attempt(0);
        mender
    }

    /// An attempt of which nothing has come.
    pub(super) fn new_attempt(&self, number: u32) -> Attempt {
        let words = || match self.policy.parses_text {
            true => MarkupFilter::new(self.checker.tools().all_tools().map(|tool| tool.name.as_str())),
            false => MarkupFilter::default(),
        };
        Attempt { number, words: words(), thoughts: words(), ..Attempt::default() }
    }

    /// Set when nothing more of the answer is wanted.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_flag)
    }

    /// What was done, for the client.
    pub(crate) fn render_report(&self) -> String {
        self.log.render_report()
    }

    fn push_text(&mut self, text: &str) {
        let spoken =
            |call: &AttemptCall| call.dialect.is_some() && matches!(call.disposition, CallDisposition::Sent(_));
        // What follows the only call was written before its result could be known.
        if self.policy.parallel == ParallelCalls::One && self.attempt.calls.iter().any(spoken) {
            self.attempt.enough |= !text.trim().is_empty();
            return self.check_finished();
        }
        if !self.policy.parses_text {
            self.sent.words |= !text.trim().is_empty();
            return self.out.push_event(Event::Text { text });
        }
        let (out, said) = (&mut self.out, &mut self.sent.words);
        self.attempt.words.push(text, &mut |text| {
            *said |= !text.trim().is_empty();
            out.push_event(Event::Text { text });
        });
    }

    fn push_thought(&mut self, text: &str) {
        let out = &mut self.out;
        if self.policy.parses_text {
            self.attempt.thoughts.push(text, &mut |text| out.push_event(Event::Thought { text }));
        } else {
            out.push_event(Event::Thought { text });
        }
    }

    /// Whether nothing more is wanted: no call is going out that has not ended.
    fn check_finished(&self) {
        let going = |call: &AttemptCall| {
            call.end == CallEnd::Open
                && matches!(call.disposition, CallDisposition::Streaming(_) | CallDisposition::Waiting)
        };
        if self.attempt.enough && !self.attempt.calls.iter().any(going) {
            self.stop_flag.store(true, Ordering::Relaxed);
        }
    }

    fn call_start(&mut self, index: u32, id: Option<&str>, name: &str, dialect: Option<&str>) {
        // What was held of the words stands before the call.
        self.flush_text();
        let (meant, rule) = match self.checker.guess_tool(name) {
            Some((tool, rule)) => (Some(tool.name.clone()), rule),
            None => (None, None),
        };
        let call = AttemptCall {
            index,
            id: id.filter(|id| !id.is_empty()).map(str::to_owned),
            name: meant.clone().unwrap_or_else(|| name.to_owned()),
            dialect: dialect.map(str::to_owned),
            disposition: CallDisposition::Waiting,
            end: CallEnd::Open,
            broken: None,
        };
        let known = self.attempt.calls.iter().filter(|known| !matches!(known.disposition, CallDisposition::Dropped));
        let (mut extra, mut twin) = (false, false);
        for known in known {
            extra |= self.policy.parallel == ParallelCalls::One;
            twin |= known.may_duplicate(&call);
        }
        let mut call = call;
        if self.policy.choice == ToolChoice::None {
            self.log.log_repair("unasked_call", &call.name);
            call.disposition = CallDisposition::Dropped;
        } else if extra {
            self.log.log_repair("extra_call", &call.name);
            self.attempt.enough = true;
            call.disposition = CallDisposition::Dropped;
        } else if let (Some(tool), 0, false) = (meant, self.policy.max_retries, twin) {
            if let Some(rule) = rule {
                self.log.log_repair(rule, &tool);
            }
            let outgoing = self.open_call(&call, &tool);
            call.disposition = CallDisposition::Streaming(Box::new(outgoing));
        } else if self.policy.max_retries == 0 {
            self.attempt.draft.push_event(Event::CallStart { index, id, name, dialect, at: 0, name_at: 0 });
        }
        self.attempt.calls.push(call);
        self.check_finished();
    }

    /// Opens a call for the client.
    fn open_call(&mut self, call: &AttemptCall, name: &str) -> OutgoingCall {
        let index = self.sent.calls;
        self.sent.calls += 1;
        // An id that was seen before would make one call of two.
        let id = call.id.as_deref().filter(|id| self.sent.ids.insert((*id).to_owned()));
        let dialect = call.dialect.as_deref();
        self.log.log_call(name, dialect);
        if dialect.is_some() && self.policy.native {
            self.log.log_repair("leaked_call", name);
        }
        self.out.push_event(Event::CallStart { index, id, name, dialect, at: 0, name_at: 0 });
        OutgoingCall::new(index, name, self.policy.max_held_start)
    }

    /// An event of one call.
    fn call_event(&mut self, index: u32, event: Event<'_>) {
        let Some(position) = self.attempt.calls.iter().rposition(|call| call.index == index) else { return };
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        match event {
            Event::CallEnd { .. } => call.end = CallEnd::Closed,
            Event::CallCut { why, .. } => call.end = CallEnd::Cut(why),
            _ => {}
        }
        let over = call.end != CallEnd::Open;
        let beginning = &mut self.attempt.beginning;
        match &mut call.disposition {
            CallDisposition::Streaming(outgoing) => {
                let desk = &mut CallSink { checker: &self.checker, diary: &mut self.log, out: &mut self.out };
                match event {
                    Event::ArgStart { name, form, at, .. } => {
                        beginning.open_value(index, at);
                        outgoing.start_argument(name, form, desk);
                    }
                    Event::ArgDelta { text, .. } => {
                        if beginning.starts_plain(index) {
                            outgoing.confirm_start();
                        }
                        outgoing.push_delta(text, desk);
                    }
                    Event::ArgEnd { lead, .. } => outgoing.end_argument(lead, desk),
                    _ => {}
                }
                if over {
                    self.end_streaming_call(position);
                }
            }
            CallDisposition::Waiting if self.policy.max_retries == 0 => self.attempt.draft.push_event(event),
            CallDisposition::Waiting | CallDisposition::Sent(_) | CallDisposition::Dropped => {}
        }
        if over {
            self.settle_calls(false);
            self.check_finished();
        }
    }

    /// A call that was going out has ended.
    fn end_streaming_call(&mut self, position: usize) {
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        let CallDisposition::Streaming(outgoing) = std::mem::replace(&mut call.disposition, CallDisposition::Dropped)
        else {
            return;
        };
        let desk = &mut CallSink { checker: &self.checker, diary: &mut self.log, out: &mut self.out };
        let broken = match (call.end, call.broken.take()) {
            (CallEnd::Cut(why), _) => Err(describe_cut(&call.name, why)),
            (_, Some(broken)) => Err(broken),
            (_, None) => outgoing.end_call(desk),
        };
        let limit = call.end == CallEnd::Cut(Truncation::Limit);
        call.disposition = CallDisposition::Sent(outgoing.fingerprint());
        if let Err(message) = broken {
            let limit = limit || self.attempt.is_short();
            self.record_problem(CallProblem { message, limit, checked: None });
        }
    }

    /// Something cannot go to the client. Where nobody can be asked again, nothing more is wanted.
    fn record_problem(&mut self, trouble: CallProblem) {
        if self.policy.max_retries == 0 {
            self.stop_flag.store(true, Ordering::Relaxed);
        }
        self.attempt.problem.get_or_insert(trouble);
    }

    fn handle_fault(&mut self, fault: &Fault) {
        self.log.log_fault(fault);
        let call = fault.call.and_then(|index| self.attempt.calls.iter_mut().rev().find(|call| call.index == index));
        let Some(call) = call else { return };
        let name = call.name.clone();
        match (&call.disposition, fault.severity) {
            (CallDisposition::Streaming(_), Severity::Error) if is_unreadable(fault) => {
                call.broken.get_or_insert_with(|| fault.message.clone());
            }
            (CallDisposition::Streaming(_), Severity::Warning) => {
                if let Some(rule) = rule_name(fault.kind.name()) {
                    self.log.log_repair(rule, &name);
                }
            }
            (CallDisposition::Sent(_), Severity::Error) if is_unreadable(fault) => {
                self.record_problem(CallProblem { message: fault.message.clone(), limit: false, checked: None });
            }
            (CallDisposition::Waiting, _) if self.policy.max_retries == 0 => {
                self.attempt.draft.push_event(Event::Fault(fault))
            }
            _ => {}
        }
    }

    /// Decides about waiting calls that have ended. `last`: nothing more will come.
    pub(super) fn settle_calls(&mut self, last: bool) {
        for position in 0..self.attempt.calls.len() {
            let Some(call) =
                self.attempt.calls.get(position).filter(|call| matches!(call.disposition, CallDisposition::Waiting))
            else {
                continue;
            };
            let open = |other: &AttemptCall| {
                other.end == CallEnd::Open && other.index != call.index && other.may_duplicate(call)
            };
            if call.end == CallEnd::Open && self.policy.max_retries > 0 {
                break;
            }
            if call.end != CallEnd::Open && (last || !self.attempt.calls.iter().any(open)) {
                self.judge_call(position);
            }
        }
    }

    /// Decides about a waiting call.
    fn judge_call(&mut self, position: usize) {
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        call.disposition = CallDisposition::Dropped;
        let Some(draft_call) = self.attempt.draft.call_by_index(call.index) else { return };
        // Behind what cannot be read, nothing goes out: it may build on it.
        if self.attempt.problem.is_some() {
            return;
        }
        let checked = self.checker.check_call(&self.attempt.draft, draft_call);
        call.name.clone_from(&checked.name);
        let print = CallFingerprint::of_arguments(&checked.arguments);
        let Some(call) = self.attempt.calls.get(position) else { return };
        let same = |other: &AttemptCall| {
            matches!(other.disposition, CallDisposition::Sent(known) if known == print) && other.may_duplicate(call)
        };
        if self.attempt.calls.iter().any(same) {
            return self.log.log_repair("doubled_call", &checked.name);
        }
        let error = |fault: &&Fault| fault.severity == Severity::Error;
        let wrong = match checked.state {
            CallState::Complete => self.unrequested_call(&checked.name),
            CallState::Cut => checked.faults.first().map(|fault| fault.message.clone()),
            CallState::Rejected if self.policy.max_retries > 0 => {
                checked.faults.iter().find(error).map(|fault| fault.message.clone())
            }
            CallState::Rejected => checked
                .faults
                .iter()
                .find(|fault| error(fault) && is_unreadable(fault))
                .map(|fault| fault.message.clone()),
        };
        if let Some(message) = wrong {
            let limit = call.end == CallEnd::Cut(Truncation::Limit) || self.attempt.is_short();
            return self.record_problem(CallProblem { message, limit, checked: Some(checked) });
        }
        self.release_call(position, &checked, print);
    }

    /// Why a right call is none that was asked for; only said where the model can be told.
    fn unrequested_call(&self, name: &str) -> Option<String> {
        match &self.policy.choice {
            ToolChoice::Tool(wanted) if wanted != name && self.policy.max_retries > 0 => {
                Some(format!("the answer must call `{wanted}`, and calls `{name}`"))
            }
            _ => None,
        }
    }

    /// Sends a call that waited.
    fn release_call(&mut self, position: usize, checked: &CheckedCall, print: CallFingerprint) {
        for repair in &checked.repairs {
            if let Some(rule) = rule_name(&repair.rule) {
                self.log.log_repair(rule, &checked.name);
            }
        }
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        let waiting = AttemptCall {
            disposition: CallDisposition::Dropped,
            ..std::mem::replace(call, AttemptCall::placeholder())
        };
        let mut outgoing = self.open_call(&waiting, &checked.name);
        let desk = &mut CallSink { checker: &self.checker, diary: &mut self.log, out: &mut self.out };
        for (name, value) in &checked.arguments {
            outgoing.send_value(name, value, desk);
        }
        let _ = outgoing.end_call(desk);
        if let Some(call) = self.attempt.calls.get_mut(position) {
            *call = AttemptCall { disposition: CallDisposition::Sent(print), ..waiting };
        }
    }
}

impl<S: EventSink> EventSink for CallRepairer<'_, S> {
    fn push_event(&mut self, event: Event<'_>) {
        if self.policy.passes_through {
            return self.out.push_event(event);
        }
        if self.stop_flag.load(Ordering::Relaxed) {
            return;
        }
        if self.policy.max_retries > 0 {
            self.attempt.draft.push_event(event);
        }
        match event {
            Event::Source { text } => self.attempt.beginning.push(text),
            Event::Mark(_) => {}
            Event::Text { text } => self.push_text(text),
            Event::Thought { text } => self.push_thought(text),
            Event::CallStart { index, id, name, dialect, .. } => self.call_start(index, id, name, dialect),
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. }
            | Event::CallEnd { index, .. }
            | Event::CallCut { index, .. } => self.call_event(index, event),
            Event::Fault(fault) => self.handle_fault(fault),
            Event::Usage(usage) => {
                self.attempt.usage.update(usage);
                let mut all = self.sent.usage;
                all.add(self.attempt.usage);
                self.out.push_event(Event::Usage(all));
            }
            Event::Stop { reason, raw } => self.attempt.stop = Some((reason, raw.to_owned())),
            Event::Opaque(_) => self.out.push_event(event),
        }
    }
}
