//! Receives a model's events and repairs its calls: some are streamed, some wait, and some are
//! dropped.
//!
//! | a call | is sent |
//! | --- | --- |
//! | of a declared tool | while it arrives, typed ([`OutgoingCall`]) |
//! | of an undeclared tool | when it is complete, because its arguments may tell which tool is meant |
//! | in the text, if its beginning occurs in the result of an earlier call | when it is complete; as text if all of it occurs there ([`EchoDetector`]) |
//! | that may duplicate another | when it is complete and not a duplicate |
//! | of any kind, if the model may be asked again | when it has passed the checks |
//! | in the text, if the model may be asked again, and more calls are allowed | at the end of the answer: words behind it may show that it was only quoted |
//! | after the only allowed one, or if none is allowed | never |
//!
//! Waiting calls keep their order. Text does not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_call::{
    Event, EventSink, Fault, FaultKind, ParallelCalls, Request, Severity, Span, ToolChoice,
    Truncation,
};
use sabir_check::{CallChecker, CallState, CheckedCall, MistakeCounter};
use sabir_wire::is_answer_detail;

use super::attempt::{
    Attempt, AttemptCall, CallDisposition, CallEnd, CallProblem, ResponsePosition, SentState,
    describe_cut, is_unreadable, rule_name,
};
use super::echo::EchoDetector;
use super::fingerprint::CallFingerprint;
use super::markup_filter::MarkupFilter;
use super::outgoing_call::{CallSink, OutgoingCall};
use super::repair_log::RepairLog;
use super::{CallDelivery, RepairMode, RepairPolicy};

/// A sink that repairs calls and passes events on to `out`.
///
/// It lives for the whole exchange, over all attempts. The client sees one response, with calls
/// numbered from 0 without gaps.
pub(crate) struct CallRepairer<'n, S> {
    /// The sink of the client's wire.
    pub(super) out: S,
    /// The rules for this exchange.
    pub(super) policy: RepairPolicy,
    /// The gates and the coercion, with the client's tools.
    pub(super) checker: CallChecker,
    /// The log of repairs.
    pub(super) log: RepairLog<'n>,
    /// Finds calls that repeat what the model has read.
    pub(super) echoes: EchoDetector,
    /// The current response of the model.
    pub(super) attempt: Attempt,
    /// Everything that was sent, which cannot be undone.
    pub(super) sent: SentState,
    /// The mistakes so far, so that feedback on a repeated one says more.
    pub(super) repeat_tracker: MistakeCounter,
    /// True once the rest of the model's response can be skipped. It is shared with the reader of
    /// the response.
    pub(super) stop_flag: Arc<AtomicBool>,
}

impl<'n, S: EventSink> CallRepairer<'n, S> {
    /// Makes a repairer for the responses to a request.
    pub(crate) fn new(
        request: &Request,
        mode: RepairMode,
        delivery: CallDelivery,
        log: RepairLog<'n>,
        out: S,
    ) -> Self {
        let mut repairer = Self {
            out,
            policy: RepairPolicy::from_request(request, mode, delivery),
            checker: CallChecker::new(request.tools.clone()),
            log,
            echoes: EchoDetector::new(&request.messages),
            attempt: Attempt::default(),
            sent: SentState::default(),
            repeat_tracker: MistakeCounter::default(),
            stop_flag: Arc::default(),
        };
        repairer.attempt = repairer.new_attempt(0);
        repairer
    }

    /// Makes the state of an attempt that has not begun.
    pub(super) fn new_attempt(&self, number: u32) -> Attempt {
        let words = || match self.policy.parses_text {
            true => MarkupFilter::new(
                self.checker
                    .tools()
                    .all_tools()
                    .map(|tool| tool.name.as_str()),
            ),
            false => MarkupFilter::default(),
        };
        Attempt {
            number,
            words: words(),
            thoughts: words(),
            ..Attempt::default()
        }
    }

    /// Returns the flag that is set when the rest of the response is not wanted.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_flag)
    }

    /// Returns the log of repairs.
    pub(crate) fn repair_log(&self) -> &RepairLog<'n> {
        &self.log
    }

    /// Returns the sink of the client's wire.
    pub(crate) fn into_sink(self) -> S {
        self.out
    }

    /// Renders the report about repairs for the client.
    pub(crate) fn render_report(&self) -> String {
        self.log.render_report()
    }

    /// Sends a short held end of the thought, because something else follows.
    fn flush_short_thought(&mut self) {
        let out = &mut self.out;
        self.attempt
            .thoughts
            .flush_short_end(&mut |text| out.push_event(Event::Thought { text }));
    }

    /// Sends a short held end of the text, because something else follows.
    fn flush_short_text(&mut self) {
        let out = &mut self.out;
        let said = &mut self.sent.words;
        self.attempt.words.flush_short_end(&mut |text| {
            *said |= !text.trim().is_empty();
            out.push_event(Event::Text { text });
        });
    }

    /// Sends text, without leftover markup. Text after the only allowed call is dropped.
    fn push_text(&mut self, text: &str) {
        self.flush_short_thought();
        self.attempt.position = ResponsePosition::Text;
        let spoken = |call: &AttemptCall| {
            call.dialect.is_some() && matches!(call.disposition, CallDisposition::Sent(_))
        };
        // Text after the only allowed call was written before its result could be known.
        if self.policy.parallel == ParallelCalls::One && self.attempt.calls.iter().any(spoken) {
            self.attempt.stops_after_call |= !text.trim().is_empty();
            return self.check_finished();
        }
        if !self.policy.parses_text {
            self.sent.words |= !text.trim().is_empty();
            return self.out.push_event(Event::Text { text });
        }
        let out = &mut self.out;
        let said = &mut self.sent.words;
        self.attempt.words.push(text, &mut |text| {
            *said |= !text.trim().is_empty();
            out.push_event(Event::Text { text });
        });
    }

    /// Sends a thought, without leftover markup.
    fn push_thought(&mut self, text: &str) {
        self.flush_short_text();
        self.attempt.position = match self.attempt.is_reasoning {
            true => ResponsePosition::Reasoning,
            false => ResponsePosition::Thought,
        };
        let out = &mut self.out;
        if self.policy.parses_text {
            self.attempt
                .thoughts
                .push(text, &mut |text| out.push_event(Event::Thought { text }));
        } else {
            out.push_event(Event::Thought { text });
        }
    }

    /// Sets the stop flag if nothing more is wanted and no call is still being sent.
    fn check_finished(&self) {
        let going = |call: &AttemptCall| {
            call.end == CallEnd::Open
                && matches!(
                    call.disposition,
                    CallDisposition::Streaming(_) | CallDisposition::Waiting
                )
        };
        if self.attempt.stops_after_call && !self.attempt.calls.iter().any(going) {
            self.stop_flag.store(true, Ordering::Relaxed);
        }
    }

    /// Decides how a new call is delivered: at once, later, or never. `span` reaches from its first
    /// byte to the end of its name.
    fn call_start(
        &mut self,
        index: u32,
        id: Option<&str>,
        name: &str,
        dialect: Option<&str>,
        span: Span,
    ) {
        // The held text comes before the call.
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
            at: span.start,
            from_thought: dialect.is_some() && self.attempt.position != ResponsePosition::Text,
            disposition: CallDisposition::Waiting,
            end: CallEnd::Open,
            broken: None,
        };
        if !call.from_thought {
            self.drop_drafts();
        }
        // Dropped calls are neither extra nor duplicates. Which of the calls in thoughts counts is
        // decided at the end.
        let known = self.attempt.calls.iter().filter(|known| {
            !matches!(known.disposition, CallDisposition::Dropped)
                && (!call.from_thought || !known.from_thought)
        });
        let mut extra = false;
        let mut is_duplicate = false;
        for known in known {
            extra |= self.policy.parallel == ParallelCalls::One;
            is_duplicate |= known.may_duplicate(&call);
        }
        let may_repeat = dialect.is_some() && self.echoes.may_repeat(span.start, span.end);
        let mut call = call;
        if self.policy.choice == ToolChoice::None {
            self.log.log_repair("unasked_call", &call.name);
            call.disposition = CallDisposition::Dropped;
        } else if extra {
            self.log.log_repair("extra_call", &call.name);
            self.attempt.stops_after_call = true;
            call.disposition = CallDisposition::Dropped;
        } else if let (Some(tool), 0, false) = (
            meant,
            self.policy.max_retries,
            is_duplicate || may_repeat || call.from_thought,
        ) {
            // Streamed: the tool is known, retries are off, and the call neither duplicates another
            // call, nor repeats one that the model has read, nor is a draft.
            if let Some(rule) = rule {
                self.log.log_repair(rule, &tool);
            }
            let outgoing = self.open_call(&call, &tool);
            call.disposition = CallDisposition::Streaming(Box::new(outgoing));
        } else if self.policy.max_retries == 0 {
            self.attempt.draft.push_event(Event::CallStart {
                index,
                id,
                name,
                dialect,
                at: 0,
                name_at: 0,
            });
        }
        self.attempt.calls.push(call);
        self.check_finished();
    }

    /// Drops the waiting calls in thoughts, because a call behind them was made.
    fn drop_drafts(&mut self) {
        for draft in &mut self.attempt.calls {
            if draft.from_thought && matches!(draft.disposition, CallDisposition::Waiting) {
                draft.disposition = CallDisposition::Dropped;
            }
        }
    }

    /// Drops a call.
    fn drop_call(&mut self, position: usize) {
        if let Some(call) = self.attempt.calls.get_mut(position) {
            call.disposition = CallDisposition::Dropped;
        }
    }

    /// Opens a call for the client.
    fn open_call(&mut self, call: &AttemptCall, name: &str) -> OutgoingCall {
        let index = self.sent.calls;
        self.sent.calls += 1;
        // Two calls with the same id would be one call for the client; the second gets a new id.
        let id = call
            .id
            .as_deref()
            .filter(|id| self.sent.ids.insert((*id).to_owned()));
        let dialect = call.dialect.as_deref();
        self.log.log_call(name, dialect);
        if dialect.is_some() && self.policy.native {
            self.log.log_repair("leaked_call", name);
        }
        self.out.push_event(Event::CallStart {
            index,
            id,
            name,
            dialect,
            at: 0,
            name_at: 0,
        });
        OutgoingCall::new(index, name, self.policy.max_held_start)
    }

    /// Handles an event of one call.
    fn call_event(&mut self, index: u32, event: Event<'_>) {
        let Some(position) = self
            .attempt
            .calls
            .iter()
            .rposition(|call| call.index == index)
        else {
            return;
        };
        let Some(call) = self.attempt.calls.get_mut(position) else {
            return;
        };
        match event {
            Event::CallEnd { at, .. } => {
                call.end = CallEnd::Closed;
                self.leave_echo_as_text(position, at);
            }
            Event::CallCut { why, .. } => call.end = CallEnd::Cut(why),
            _ => {}
        }
        let Some(call) = self.attempt.calls.get_mut(position) else {
            return;
        };
        let over = call.end != CallEnd::Open;
        let beginning = &mut self.attempt.beginning;
        match &mut call.disposition {
            CallDisposition::Streaming(outgoing) => {
                let sink = &mut CallSink {
                    checker: &self.checker,
                    log: &mut self.log,
                    out: &mut self.out,
                };
                match event {
                    Event::ArgStart { name, form, at, .. } => {
                        beginning.open_value(index, at);
                        outgoing.start_argument(name, form, sink);
                    }
                    Event::ArgDelta { text, .. } => {
                        // Checked at each piece, because the first byte may arrive after the start
                        // event.
                        if beginning.starts_without_line_feed(index) {
                            outgoing.confirm_start();
                        }
                        outgoing.push_delta(text, sink);
                    }
                    Event::ArgEnd { lead, .. } => outgoing.end_argument(lead, sink),
                    _ => {}
                }
                if over {
                    self.end_streaming_call(position);
                }
            }
            CallDisposition::Waiting if self.policy.max_retries == 0 => {
                self.attempt.draft.push_event(event)
            }
            CallDisposition::Waiting | CallDisposition::Sent(_) | CallDisposition::Dropped => {}
        }
        // The end of one call may decide about others that wait for it.
        if over {
            self.resolve_waiting_calls(false);
            self.check_finished();
        }
    }

    /// Sends a waiting call that ends at `end` as text, if it repeats what the model has read.
    fn leave_echo_as_text(&mut self, position: usize, end: usize) {
        let Some(call) = self.attempt.calls.get_mut(position).filter(|call| {
            call.dialect.is_some() && matches!(call.disposition, CallDisposition::Waiting)
        }) else {
            return;
        };
        let Some(text) = self.echoes.find_repetition(call.at, end) else {
            return;
        };
        call.disposition = CallDisposition::Dropped;
        if call.from_thought {
            self.out.push_event(Event::Thought { text });
        } else {
            self.sent.words = true;
            self.out.push_event(Event::Text { text });
        }
        self.log.log_repair("repeated_call", &call.name);
    }

    /// Ends a call that was streamed.
    fn end_streaming_call(&mut self, position: usize) {
        let hit_output_limit = self.attempt.hit_output_limit();
        let Some(call) = self.attempt.calls.get_mut(position) else {
            return;
        };
        let CallDisposition::Streaming(outgoing) =
            std::mem::replace(&mut call.disposition, CallDisposition::Dropped)
        else {
            return;
        };
        let sink = &mut CallSink {
            checker: &self.checker,
            log: &mut self.log,
            out: &mut self.out,
        };
        let broken = match (call.end, call.broken.take()) {
            // A cut call gets no end event, so no client can take it for complete.
            (CallEnd::Cut(why), _) => Err(describe_cut(&call.name, why)),
            (_, Some(broken)) => Err(broken),
            (_, None) => outgoing.end_call(sink).map_err(|error| error.to_string()),
        };
        let limit =
            broken.is_err() && (hit_output_limit || call.end == CallEnd::Cut(Truncation::Limit));
        // A broken call counts as sent too: the client has its beginning, and the error or stop
        // reason that follows says that it must not run.
        call.disposition = CallDisposition::Sent(outgoing.fingerprint());
        if limit {
            outgoing.cut_call(sink);
        }
        if let Err(message) = broken {
            self.record_problem(CallProblem {
                message,
                limit,
                checked: None,
            });
        }
    }

    /// Records the first problem. Without retries, the rest of the response is skipped, unless the
    /// output limit cut the answer: its usage and stop reason are still needed.
    fn record_problem(&mut self, problem: CallProblem) {
        if self.policy.max_retries == 0 && !problem.limit {
            self.stop_flag.store(true, Ordering::Relaxed);
        }
        self.attempt.problem.get_or_insert(problem);
    }

    /// Logs a fault, and marks its call as unreadable if it is. Faults of the provider belong to no
    /// call.
    fn handle_fault(&mut self, fault: &Fault) {
        self.log.log_fault(fault);
        let call = fault.call.and_then(|index| {
            self.attempt
                .calls
                .iter_mut()
                .rev()
                .find(|call| call.index == index)
        });
        let Some(call) = call else {
            self.log.log_surrogate_replacement(fault);
            return;
        };
        if call.from_thought && fault.kind == FaultKind::Mentioned {
            call.disposition = CallDisposition::Dropped;
            return;
        }
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
                self.record_problem(CallProblem {
                    message: fault.message.clone(),
                    limit: false,
                    checked: None,
                });
            }
            (CallDisposition::Waiting, _) if self.policy.max_retries == 0 => {
                self.attempt.draft.push_event(Event::Fault(fault))
            }
            _ => {}
        }
    }

    /// Decides about waiting calls that have ended. `last` is true if the response has ended.
    ///
    /// A call waits as long as another one may turn out to be its duplicate.
    pub(super) fn resolve_waiting_calls(&mut self, last: bool) {
        for position in 0..self.attempt.calls.len() {
            let Some(call) = self
                .attempt
                .calls
                .get(position)
                .filter(|call| matches!(call.disposition, CallDisposition::Waiting))
            else {
                continue;
            };
            let open = |other: &AttemptCall| {
                other.end == CallEnd::Open && other.index != call.index && other.may_duplicate(call)
            };
            // With retries, calls are sent strictly in order, and those in the text last. If only
            // one call is allowed, the text after it is skipped, so nothing can show that it is
            // quoted.
            let may_be_quoted = call.dialect.is_some()
                && (self.policy.parallel != ParallelCalls::One || call.from_thought);
            let waits = call.end == CallEnd::Open || may_be_quoted && !last;
            if waits && self.policy.max_retries > 0 {
                break;
            }
            if call.from_thought && !last {
                continue;
            }
            let is_sent = |call: &AttemptCall| matches!(call.disposition, CallDisposition::Sent(_));
            let is_extra = self.policy.parallel == ParallelCalls::One
                && self.attempt.calls.iter().any(is_sent);
            if call.from_thought && is_extra {
                let name = call.name.clone();
                self.drop_call(position);
                self.log.log_repair("extra_call", &name);
                continue;
            }
            if call.end != CallEnd::Open && (last || !self.attempt.calls.iter().any(open)) {
                self.send_or_drop_call(position);
            }
        }
    }

    /// Sends a waiting call, or drops it with a problem.
    fn send_or_drop_call(&mut self, position: usize) {
        let Some(call) = self.attempt.calls.get_mut(position) else {
            return;
        };
        // Dropped unless one of the checks below lets it through.
        call.disposition = CallDisposition::Dropped;
        let Some(draft_call) = self.attempt.draft.call_by_index(call.index) else {
            return;
        };
        // Nothing is sent after a broken call, because it may depend on that call.
        if self.attempt.problem.is_some() {
            return;
        }
        let checked = self.checker.check_call(&self.attempt.draft, draft_call);
        call.name.clone_from(&checked.name);
        // Computed from the typed arguments, as for streamed calls, so that a native `10` equals a
        // `10` in tags.
        let print = CallFingerprint::of_arguments(&checked.arguments);
        let Some(call) = self.attempt.calls.get(position) else {
            return;
        };
        let same = |other: &AttemptCall| {
            matches!(other.disposition, CallDisposition::Sent(known) if known == print)
                && other.may_duplicate(call)
        };
        if self.attempt.calls.iter().any(same) {
            return self.log.log_repair("doubled_call", &checked.name);
        }
        let error = |fault: &&Fault| fault.severity == Severity::Error;
        let wrong = match checked.state {
            CallState::Complete => self.unrequested_call(&checked.name),
            CallState::Cut => checked.faults.first().map(|fault| fault.message.clone()),
            CallState::Rejected if self.policy.max_retries > 0 => checked
                .faults
                .iter()
                .find(error)
                .map(|fault| fault.message.clone()),
            CallState::Rejected => checked
                .faults
                .iter()
                .find(|fault| error(fault) && is_unreadable(fault))
                .map(|fault| fault.message.clone()),
        };
        if let Some(message) = wrong {
            let limit =
                call.end == CallEnd::Cut(Truncation::Limit) || self.attempt.hit_output_limit();
            return self.record_problem(CallProblem {
                message,
                limit,
                checked: Some(checked),
            });
        }
        self.release_call(position, &checked, print);
    }

    /// Returns the reason why a valid call is not the requested one, if the model may be asked
    /// again.
    fn unrequested_call(&self, name: &str) -> Option<String> {
        match &self.policy.choice {
            ToolChoice::Tool(wanted) if wanted != name && self.policy.max_retries > 0 => Some(
                format!("the answer must call `{wanted}`, and calls `{name}`"),
            ),
            _ => None,
        }
    }

    /// Sends a call that has waited.
    fn release_call(&mut self, position: usize, checked: &CheckedCall, print: CallFingerprint) {
        // Only calls that are sent count as repaired.
        for repair in &checked.repairs {
            if let Some(rule) = rule_name(&repair.rule) {
                self.log.log_repair(rule, &checked.name);
            }
        }
        let Some(call) = self.attempt.calls.get_mut(position) else {
            return;
        };
        let waiting = AttemptCall {
            disposition: CallDisposition::Dropped,
            ..std::mem::replace(call, AttemptCall::placeholder())
        };
        let mut outgoing = self.open_call(&waiting, &checked.name);
        let sink = &mut CallSink {
            checker: &self.checker,
            log: &mut self.log,
            out: &mut self.out,
        };
        for (name, value) in &checked.arguments {
            outgoing.send_value(name, value, sink);
        }
        // It cannot fail: the gates have read all of the arguments.
        let _ = outgoing.end_call(sink);
        if let Some(call) = self.attempt.calls.get_mut(position) {
            *call = AttemptCall {
                disposition: CallDisposition::Sent(print),
                ..waiting
            };
        }
    }
}

impl<S: EventSink> EventSink for CallRepairer<'_, S> {
    fn push_event(&mut self, event: Event<'_>) {
        // In this mode every event is passed on unchanged.
        if self.policy.passes_through {
            return self.out.push_event(event);
        }
        if self.stop_flag.load(Ordering::Relaxed) {
            return;
        }
        let is_detail = matches!(event, Event::Opaque(state) if is_answer_detail(state));
        if self.policy.max_retries > 0 && !is_detail {
            self.attempt.draft.push_event(event);
        }
        match event {
            Event::Source { text, is_thought } => {
                self.attempt.is_reasoning = is_thought;
                if is_thought {
                    self.attempt.position = ResponsePosition::Reasoning;
                } else if self.attempt.position == ResponsePosition::Reasoning {
                    self.attempt.position = ResponsePosition::Text;
                }
                self.attempt.beginning.push(text);
                self.echoes.push_source(text);
            }
            Event::Mark(mark) => match mark.role.is_in_thought() {
                _ if self.attempt.is_reasoning => {}
                Some(true) => self.attempt.position = ResponsePosition::Thought,
                Some(false) => self.attempt.position = ResponsePosition::Text,
                None => {}
            },
            Event::Text { text } => self.push_text(text),
            Event::Thought { text } => self.push_thought(text),
            Event::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => {
                let span = Span {
                    start: at,
                    end: name_at.saturating_add(name.len()),
                };
                self.call_start(index, id, name, dialect, span);
            }
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. }
            | Event::CallEnd { index, .. }
            | Event::CallCut { index, .. } => self.call_event(index, event),
            Event::Fault(fault) => self.handle_fault(fault),
            // Each report replaces the one before it, so earlier attempts are added every time.
            Event::Usage(usage) => {
                self.attempt.usage.update(usage);
                let mut all = self.sent.usage;
                all.add(self.attempt.usage);
                self.out.push_event(Event::Usage(all));
            }
            Event::Stop { reason, raw } => self.attempt.stop = Some((reason, raw.to_owned())),
            // Signatures are passed on in order; only clients of the same wire get them.
            Event::Opaque(_) => {
                if !is_detail {
                    self.flush_short_thought();
                    self.flush_short_text();
                }
                self.out.push_event(event);
            }
        }
    }
}
