//! The simulated model: checks each request against the invariants and a replay, and sends a random response.
//!
//! A request is checked in three ways: against the invariants of histories, against what the observations
//! knows (messages, todos, instructions, limits), and against the request that a replay of the
//! records would make. The answer is drawn by `model_reply.rs` and sent either as the events of a
//! wire or as text, which the real dialect parser then reads.

use std::time::Duration;

use sabir_agent::{Task, ToolRegistry};
use sabir_call::{
    ArgumentEncoding, Event, EventSink, Model, ModelError, ModelErrorKind, PromptedSink, Request,
    ResponseFuture, StopReason, Truncation, Usage,
};
use tokio::time::sleep;

use crate::invariants::Invariant;
use crate::model_reply::{ModelReply, ModelReplyPart, ReplyEnd, draw_reply};
use crate::request_checks;
use crate::sabotage::Sabotage;
use crate::simulation_state::{SimulationHandle, SimulationState};

/// The simulated model. It checks each request before it answers; most invariants about the history are
/// checked here.
pub(crate) struct SimulatedModel {
    /// The state of the task.
    pub(crate) simulation: SimulationHandle,
    /// The tools, whose names a prompted answer is read with.
    pub(crate) registry: ToolRegistry,
}

/// Marks the end of a response when it is dropped, also for a response that is cancelled.
struct AnswerGuard(SimulationHandle);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.with_state(|state| {
            state.activity.answering = false;
            state.activity.summarising = false;
        });
    }
}

impl Model for SimulatedModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(async move {
            // Only requests for a summary have no tools.
            if request.tools.is_empty() {
                return self.send_summary(sink).await;
            }
            let reply = self.simulation.with_state(|state| {
                self.check_request(state, request);
                state.activity.answering = true;
                draw_reply(state)
            });
            // Held until the answer ends or is dropped.
            let _answering = AnswerGuard(self.simulation.clone());
            // A sink that turns cut calls into closed ones, for the sabotage of that name.
            let closes = self
                .simulation
                .with_state(|state| state.sabotage == Some(Sabotage::CloseCutCalls));
            let mut pass = |event: Event<'_>| match event {
                Event::CallCut { index, at, .. } if closes => {
                    sink.push_event(Event::CallEnd { index, at })
                }
                event => sink.push_event(event),
            };
            // An interruption or a crash may come here, before the first event.
            self.wait_random().await;
            if let ReplyEnd::FailedBefore(kind) = reply.end {
                return Err(simulated_error(kind));
            }
            if self
                .simulation
                .with_state(|state| state.plan.model.prompted)
            {
                let mut reading =
                    PromptedSink::new(request.dialects.all(), self.registry.tool_set(), &mut pass);
                // The real parser of the dialect reads the text, in chunks of any size.
                for chunk in random_chunks(&self.simulation, &render_text(&reply)) {
                    self.wait_random().await;
                    reading.push_event(Event::Text { text: &chunk });
                }
                // The result is not needed: the events already went to the sink.
                let _ = reading.finish(if reply.breaks_off() {
                    Truncation::Broken
                } else {
                    Truncation::Ended
                });
            } else {
                for (part, index) in number_calls(&reply) {
                    self.wait_random().await;
                    emit_part(part, index, reply.breaks_off(), &mut pass);
                }
            }
            self.wait_random().await;
            self.finish_answer(&reply, &mut pass)
        })
    }
}

impl SimulatedModel {
    /// Waits for a random time of the simulated clock. Crashes and interruptions may happen meanwhile.
    async fn wait_random(&self) {
        let time = self.simulation.with_state(|state| {
            state.on_event(|| "the model is at it".to_owned());
            let most = state.rng.pick_one(2, &[0, 20, 500]);
            state.rng.below(most)
        });
        sleep(Duration::from_millis(time)).await;
    }

    /// Sends the summary of a history that was too long, or fails.
    async fn send_summary(&self, sink: &mut (dyn EventSink + Send)) -> Result<(), ModelError> {
        let fails = self.simulation.with_state(|state| {
            state.on_event(|| "a summary is asked for".to_owned());
            // Requests for a summary are not checked, since they are not part of the history.
            state.counters.count_event("summaries");
            state.activity.summarising = true;
            // Messages during a summary are rare by chance and easy to lose.
            state.maybe_send_message(true);
            state.rng.below(3) == 0
        });
        let _answering = AnswerGuard(self.simulation.clone());
        self.wait_random().await;
        // The machine must write a summary by itself then.
        if fails {
            return Err(simulated_error(ModelErrorKind::Broken));
        }
        sink.push_event(Event::Text {
            text: "Some of the work is done, and the rest comes next.",
        });
        self.wait_random().await;
        sink.push_event(Event::Stop {
            reason: StopReason::End,
            raw: "",
        });
        Ok(())
    }

    /// Sends the end of a response, and counts its calls as delivered if it is complete.
    fn finish_answer(
        &self,
        reply: &ModelReply,
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ModelError> {
        sink(Event::Usage(reply.usage));
        match reply.end {
            // Calls may run only from here on: a broken answer has no valid calls, even if some
            // were closed in it.
            ReplyEnd::Whole(reason) => {
                sink(Event::Stop { reason, raw: "" });
                self.simulation.with_state(|state| {
                    for token in reply.call_tokens() {
                        if let Some(written) = state.observations.written.get_mut(token) {
                            written.delivered += 1;
                        }
                    }
                });
                Ok(())
            }
            ReplyEnd::BrokenOff(kind) | ReplyEnd::FailedBefore(kind) => Err(simulated_error(kind)),
        }
    }

    /// Checks that a request keeps the invariants and equals the request of a replay of the records.
    fn check_request(&self, state: &mut SimulationState, request: &Request) {
        state.on_event(|| format!("request of {} messages", request.messages.len()));
        if state.has_crashed() {
            return;
        }
        state.counters.count_event("requests");
        request_checks::check_request(state, request);
        // The machine's settings, sabotage included, so that a difference can only come from the
        // records.
        let settings = state.plan.task_settings(
            self.registry.tool_set().clone(),
            self.registry.read_only_tool_names(),
            state.sabotage,
        );
        match Task::replay(state.observations.records.iter().cloned(), settings) {
            Ok(again) if again.model_request().messages == request.messages => {}
            Ok(again) => {
                let replayed = again.model_request().messages;
                let seen = format!(
                    "the model sees {:?}, a replay {replayed:?}",
                    request.messages
                );
                state.report_violation(Invariant::Replay, seen);
            }
            Err(error) => state.report_violation(
                Invariant::Replay,
                format!("the records so far cannot be replayed: {error}"),
            ),
        }
    }
}

/// Creates the error of a request that fails on purpose.
fn simulated_error(kind: ModelErrorKind) -> ModelError {
    ModelError {
        kind,
        message: format!("simulated: {kind:?}"),
    }
}

/// Iterates over the parts of a response with the index that a call at this point has.
fn number_calls(reply: &ModelReply) -> impl Iterator<Item = (&ModelReplyPart, u32)> {
    let mut calls = 0;
    reply.parts.iter().map(move |part| {
        let index = calls;
        calls += u32::from(matches!(part, ModelReplyPart::Call { .. }));
        (part, index)
    })
}

/// Sends one part of a response as events.
fn emit_part(part: &ModelReplyPart, index: u32, breaks: bool, sink: &mut dyn FnMut(Event<'_>)) {
    match part {
        ModelReplyPart::Text(text) => sink(Event::Text { text }),
        ModelReplyPart::Thought(text) => sink(Event::Thought { text }),
        ModelReplyPart::Call {
            name,
            id,
            arguments,
            cut,
        } => {
            sink(Event::CallStart {
                index,
                id: id.as_deref(),
                name,
                dialect: None,
                // There is no text that the offsets could point into.
                at: 0,
                name_at: 0,
            });
            for (name, value) in arguments {
                sink(Event::ArgStart {
                    index,
                    name,
                    form: ArgumentEncoding::String,
                    at: 1,
                });
                // Every value comes in two pieces, as from a stream.
                let (head, tail) = value
                    .split_at_checked(value.len() / 2)
                    .unwrap_or((value, ""));
                for text in [head, tail].into_iter().filter(|text| !text.is_empty()) {
                    sink(Event::ArgDelta { index, text });
                }
                sink(Event::ArgEnd {
                    index,
                    lead: "",
                    at: 2,
                });
            }
            // A cut at the end of a whole answer means that the limit of output tokens was reached.
            if *cut {
                let why = if breaks {
                    Truncation::Broken
                } else {
                    Truncation::Limit
                };
                sink(Event::CallCut { index, why, at: 3 });
            } else {
                sink(Event::CallEnd { index, at: 3 });
            }
        }
    }
}

/// Writes a response as text in the Cline dialect.
fn render_text(reply: &ModelReply) -> String {
    let mut all = String::new();
    for part in &reply.parts {
        match part {
            ModelReplyPart::Text(text) | ModelReplyPart::Thought(text) => {
                all.push_str(&format!("{text}\n"))
            }
            ModelReplyPart::Call {
                name,
                arguments,
                cut,
                ..
            } => {
                all.push_str(&format!("<{name}>\n"));
                for (name, value) in arguments {
                    all.push_str(&format!("<{name}>{value}</{name}>\n"));
                }
                if !cut {
                    all.push_str(&format!("</{name}>\n"));
                }
            }
        }
    }
    all
}

/// Splits a text into chunks of random length.
fn random_chunks(simulation: &SimulationHandle, text: &str) -> Vec<String> {
    // Cut between characters: an answer's text reaches the parser as `str`, decoded by the wire.
    let letters: Vec<char> = text.chars().collect();
    let mut rest = letters.as_slice();
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let length = simulation.with_state(|state| state.rng.in_range(1, 200));
        let (chunk, later) = rest.split_at(rest.len().min(usize::try_from(length).unwrap_or(1)));
        chunks.push(chunk.iter().collect());
        rest = later;
    }
    chunks
}

/// Draws the token usage that the provider reports for a response. Each number may be missing.
pub(crate) fn draw_usage(state: &mut SimulationState) -> Usage {
    // In proportion to the request, so that a window fills as with a real provider.
    let asked = state.observations.request_tracker.asked;
    let count = |state: &mut SimulationState, most| {
        (state.rng.below(5) > 0).then(|| state.rng.in_range(most / 2, most))
    };
    Usage {
        input: count(state, asked + 400),
        output: count(state, 900),
        ..Usage::default()
    }
}

/// Returns the stop reason of a complete response.
pub(crate) fn stop_reason(has_calls: bool, cut: bool) -> StopReason {
    match (has_calls, cut) {
        (_, true) => StopReason::Length,
        (true, _) => StopReason::Calls,
        _ => StopReason::End,
    }
}
