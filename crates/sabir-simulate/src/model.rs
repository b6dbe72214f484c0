//! The model: sees each request, which is where law 7 and replay are checked, and answers with whatever chance wants.

use std::time::Duration;

use sabir_agent::{Registry, Task};
use sabir_call::dialect::Selection;
use sabir_call::{
    Answer, ArgForm, Cut, Event, Model, ModelError, ModelErrorKind, Prompted, Request, Sink, StopReason, Usage,
};
use tokio::time::sleep;

use crate::answer::{End, Reply, Spoken, draw};
use crate::laws::Law;
use crate::reading;
use crate::sabotage::Sabotage;
use crate::scene::{Scene, State};

/// The simulated model.
pub(crate) struct SimulatedModel {
    pub(crate) scene: Scene,
    pub(crate) registry: Registry,
}

/// Says that the model no longer answers, however that came.
struct Answering(Scene);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.with(|state| (state.moment.answering, state.moment.summarising) = (false, false));
    }
}

impl Model for SimulatedModel {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        Box::pin(async move {
            if request.tools.is_empty() {
                return self.summarise(sink).await;
            }
            let reply = self.scene.with(|state| {
                self.look_at(state, request);
                state.moment.answering = true;
                draw(state)
            });
            let _answering = Answering(self.scene.clone());
            let closes = self.scene.with(|state| state.sabotage == Some(Sabotage::CloseCutCalls));
            let mut pass = |event: Event<'_>| match event {
                Event::CallCut { index, at, .. } if closes => sink.event(Event::CallEnd { index, at }),
                event => sink.event(event),
            };
            self.pause().await;
            if let End::FailedBefore(kind) = reply.end {
                return Err(error(kind));
            }
            if self.scene.with(|state| state.plan.model.prompted) {
                let mut reading = Prompted::new(Selection::AUTO, self.registry.set(), &mut pass);
                for chunk in chunks(&self.scene, &text_of(&reply)) {
                    self.pause().await;
                    reading.event(Event::Text { text: &chunk });
                }
                let _ = reading.finish(if reply.breaks() { Cut::Broken } else { Cut::Ended });
            } else {
                for (spoken, index) in numbered(&reply) {
                    self.pause().await;
                    speak(spoken, index, reply.breaks(), &mut pass);
                }
            }
            self.pause().await;
            self.end(&reply, &mut pass)
        })
    }
}

impl SimulatedModel {
    async fn pause(&self) {
        let time = self.scene.with(|state| {
            state.happens(|| "the model is at it".to_owned());
            let most = state.chance.pick(2, &[0, 20, 500]);
            state.chance.below(most)
        });
        sleep(Duration::from_millis(time)).await;
    }

    /// The summary of a history that was too long, or none.
    async fn summarise(&self, sink: &mut (dyn Sink + Send)) -> Result<(), ModelError> {
        let fails = self.scene.with(|state| {
            state.happens(|| "a summary is asked for".to_owned());
            state.figures.count("summaries");
            state.moment.summarising = true;
            state.perhaps_tell(true);
            state.chance.below(3) == 0
        });
        let _answering = Answering(self.scene.clone());
        self.pause().await;
        if fails {
            return Err(error(ModelErrorKind::Broken));
        }
        sink.event(Event::Text { text: "Some of the work is done, and the rest comes next." });
        self.pause().await;
        sink.event(Event::Stop { reason: StopReason::End, raw: "" });
        Ok(())
    }

    fn end(&self, reply: &Reply, sink: &mut dyn FnMut(Event<'_>)) -> Result<(), ModelError> {
        sink(Event::Usage(reply.usage));
        match reply.end {
            End::Whole(reason) => {
                sink(Event::Stop { reason, raw: "" });
                self.scene.with(|state| {
                    for token in reply.tokens() {
                        if let Some(written) = state.witness.written.get_mut(token) {
                            written.delivered += 1;
                        }
                    }
                });
                Ok(())
            }
            End::BrokenOff(kind) | End::FailedBefore(kind) => Err(error(kind)),
        }
    }

    /// What the model is asked: the history in order, and the one that replay gives.
    fn look_at(&self, state: &mut State, request: &Request) {
        state.happens(|| format!("request of {} messages", request.messages.len()));
        if state.crashed() {
            return;
        }
        state.figures.count("requests");
        reading::look(state, request);
        let settings = state.plan.settings(self.registry.set().clone(), self.registry.readers(), state.sabotage);
        match Task::replay(state.witness.records.iter().cloned(), settings) {
            Ok(again) if again.request().messages == request.messages => {}
            Ok(again) => {
                let replayed = again.request().messages;
                let seen = format!("the model sees {:?}, a replay {replayed:?}", request.messages);
                state.broken(Law::Replay, seen);
            }
            Err(error) => state.broken(Law::Replay, format!("the records so far cannot be replayed: {error}")),
        }
    }
}

fn error(kind: ModelErrorKind) -> ModelError {
    ModelError { kind, message: format!("simulated: {kind:?}") }
}

/// The calls of an answer with their indexes.
fn numbered(reply: &Reply) -> impl Iterator<Item = (&Spoken, u32)> {
    let mut calls = 0;
    reply.parts.iter().map(move |part| {
        let index = calls;
        calls += u32::from(matches!(part, Spoken::Call { .. }));
        (part, index)
    })
}

fn speak(spoken: &Spoken, index: u32, breaks: bool, sink: &mut dyn FnMut(Event<'_>)) {
    match spoken {
        Spoken::Text(text) => sink(Event::Text { text }),
        Spoken::Thought(text) => sink(Event::Thought { text }),
        Spoken::Call { name, id, arguments, cut } => {
            let (id, dialect) = (id.as_deref(), None);
            sink(Event::CallStart { index, id, name, dialect, at: 0, name_at: 0 });
            for (name, value) in arguments {
                sink(Event::ArgStart { index, name, form: ArgForm::String, at: 1 });
                let (head, tail) = value.split_at_checked(value.len() / 2).unwrap_or((value, ""));
                for text in [head, tail].into_iter().filter(|text| !text.is_empty()) {
                    sink(Event::ArgDelta { index, text });
                }
                sink(Event::ArgEnd { index, lead: "", at: 2 });
            }
            if *cut {
                let why = if breaks { Cut::Broken } else { Cut::Limit };
                sink(Event::CallCut { index, why, at: 3 });
            } else {
                sink(Event::CallEnd { index, at: 3 });
            }
        }
    }
}

/// An answer as the text of a dialect.
fn text_of(reply: &Reply) -> String {
    let mut all = String::new();
    for part in &reply.parts {
        match part {
            Spoken::Text(text) | Spoken::Thought(text) => all.push_str(&format!("{text}\n")),
            Spoken::Call { name, arguments, cut, .. } => {
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

fn chunks(scene: &Scene, text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let mut rest = letters.as_slice();
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let length = scene.with(|state| state.chance.between(1, 200));
        let (chunk, later) = rest.split_at(rest.len().min(usize::try_from(length).unwrap_or(1)));
        chunks.push(chunk.iter().collect());
        rest = later;
    }
    chunks
}

/// What an answer is said to have taken.
pub(crate) fn usage(state: &mut State) -> Usage {
    let asked = state.witness.reading.asked;
    let count = |state: &mut State, most| (state.chance.below(5) > 0).then(|| state.chance.between(most / 2, most));
    Usage { input: count(state, asked + 400), output: count(state, 900), ..Usage::default() }
}

/// Why a whole answer stopped.
pub(crate) fn stop(has_calls: bool, cut: bool) -> StopReason {
    match (has_calls, cut) {
        (_, true) => StopReason::Length,
        (true, _) => StopReason::Calls,
        _ => StopReason::End,
    }
}
