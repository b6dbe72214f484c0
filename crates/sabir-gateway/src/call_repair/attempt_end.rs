//! Decides at the end of a model's response: complete, failed, or asked again.

use std::sync::atomic::Ordering;

use sabir_call::{
    Event, EventSink, Fault, FaultKind, ModelError, Request, Severity, StopReason, ToolChoice,
};

use super::attempt::{Attempt, CallProblem};
use super::call_repairer::CallRepairer;
use super::retry_request;

/// The step after an attempt.
pub(crate) enum NextStep {
    /// The response is complete.
    Done,
    /// The model failed, or its response broke off.
    ModelFailed(ModelError),
    /// A call of the response cannot be used.
    CallFailed(ModelError),
    /// This request must be sent next.
    Ask(Box<Request>),
}

impl<S: EventSink> CallRepairer<'_, S> {
    /// Finishes an attempt whose response has ended, failed, or was stopped early.
    ///
    /// It must be called exactly once for each attempt.
    pub(crate) fn finish_attempt(
        &mut self,
        request: &Request,
        result: Result<(), ModelError>,
    ) -> NextStep {
        if self.policy.passes_through {
            return result.map_or_else(NextStep::ModelFailed, |()| NextStep::Done);
        }
        self.flush_text();
        self.resolve_waiting_calls(true);
        // Every attempt costs tokens, so the client sees the sum.
        self.sent.usage.add(self.attempt.usage);
        // The model itself has retried what can be retried, so an error here is final.
        if let Err(error) = result {
            return NextStep::ModelFailed(error);
        }
        let problem = self.attempt.problem.take().or_else(|| self.missing_call());
        match problem {
            None => self.finish_answer(),
            // Ends with the reason of the limit, as providers do; clients recover from it.
            Some(problem)
                if problem.limit
                    && (self.attempt.number >= self.policy.max_retries || self.sent.calls > 0) =>
            {
                self.log.log_repair("cut_call", "");
                self.finish_limited_answer()
            }
            // Without retries the client gets the error, which says what was wrong with the call.
            Some(problem) if self.policy.max_retries == 0 => {
                self.log.log_repair(
                    "broken_call",
                    problem.checked.as_ref().map_or("", |checked| &checked.name),
                );
                NextStep::CallFailed(problem.into_model_error())
            }
            // The sent calls are complete, and the client runs them. The model can repeat the rest
            // afterwards.
            Some(_) if self.sent.calls > 0 => {
                self.log.log_repair("dropped_call", "");
                self.finish_answer()
            }
            Some(problem) if self.attempt.number < self.policy.max_retries => {
                self.retry_attempt(request, &problem)
            }
            // The client has text already, which an error would make worthless.
            Some(_) if self.sent.words => {
                self.log.log_repair("given_up", "");
                self.finish_answer()
            }
            Some(problem) => NextStep::CallFailed(problem.into_model_error()),
        }
    }

    /// Begins another attempt, with feedback on the problem.
    fn retry_attempt(&mut self, request: &Request, problem: &CallProblem) -> NextStep {
        let number = self.attempt.number + 1;
        let (request, feedback) = retry_request::build_retry_request(
            request,
            &self.attempt,
            problem,
            &self.repeat_tracker,
        );
        let faults = problem
            .checked
            .as_ref()
            .map(|checked| sabir_check::CheckedOutcome {
                tool: &checked.name,
                passed: false,
                faults: &checked.faults,
            });
        self.repeat_tracker.record_message(faults);
        self.log.log_retry(number, &feedback);
        // The flag belonged to the attempt that ends here.
        self.stop_flag.store(false, Ordering::Relaxed);
        self.attempt = self.new_attempt(number);
        self.echoes.start_response();
        NextStep::Ask(Box::new(request))
    }

    /// Returns the problem of a missing call, if the model may be asked again.
    fn missing_call(&self) -> Option<CallProblem> {
        if self.policy.max_retries == 0 || self.sent.calls > 0 {
            return None;
        }
        let unread = |fault: &&Fault| {
            fault.call.is_none()
                && fault.severity == Severity::Error
                && fault.kind != FaultKind::Provider
        };
        let message = match (
            &self.policy.choice,
            self.attempt.draft.faults.iter().find(unread),
        ) {
            // A client that forbids calls misses none.
            (ToolChoice::None, _) => return None,
            // The model tried to write a call, and not even its beginning could be read.
            (_, Some(fault)) => fault.message.clone(),
            (ToolChoice::Required, _) => {
                "the answer must contain a call, and contains none".to_owned()
            }
            (ToolChoice::Tool(name), _) => format!("the answer must call `{name}`, and does not"),
            (ToolChoice::Auto, _) => return None,
        };
        Some(CallProblem {
            message,
            limit: false,
            checked: None,
        })
    }

    /// Sends the stop reason. It depends on the calls that were sent, not on the provider's reason.
    fn finish_answer(&mut self) -> NextStep {
        let (reason, raw) = self
            .attempt
            .stop
            .take()
            .unwrap_or((StopReason::End, String::new()));
        // Some clients run calls only if the reason says that there are some.
        let (reason, raw) = match reason {
            _ if self.sent.calls > 0 => (StopReason::Calls, ""),
            StopReason::Calls => (StopReason::End, ""),
            reason => (reason, raw.as_str()),
        };
        self.out.push_event(Event::Stop { reason, raw });
        NextStep::Done
    }

    /// Sends the stop reason of an answer whose last call the output limit cut.
    fn finish_limited_answer(&mut self) -> NextStep {
        let reported = self.attempt.stop.take();
        let raw = reported
            .as_ref()
            .filter(|(reason, _)| *reason == StopReason::Length)
            .map_or("", |(_, raw)| raw);
        self.out.push_event(Event::Stop {
            reason: StopReason::Length,
            raw,
        });
        NextStep::Done
    }

    /// Sends the held text, unless it is the remains of markup.
    pub(super) fn flush_text(&mut self) {
        let cut = self.attempt.hit_output_limit();
        let (
            out,
            Attempt {
                words, thoughts, ..
            },
        ) = (&mut self.out, &mut self.attempt);
        // Thoughts are sent before the text, in the order of the model.
        let mut dropped = thoughts.finish(cut, &mut |text| out.push_event(Event::Thought { text }));
        let said = &mut self.sent.words;
        dropped += words.finish(cut, &mut |text| {
            *said |= !text.trim().is_empty();
            out.push_event(Event::Text { text });
        });
        for _ in 0..dropped {
            self.log.log_repair("markup", "");
        }
    }
}
