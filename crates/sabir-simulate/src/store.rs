//! The store: the real journal, with the witness beside it.

use sabir_agent::{Answered, Attended, Record, Shift, Speaker, Store, StoreError, When, Why, control};
use sabir_call::{Ending, Part, Usage};
use sabir_journal::Journal;

use crate::sabotage::Sabotage;
use crate::scene::Scene;

/// A journal that is watched.
pub(crate) struct WatchedStore {
    pub(crate) scene: Scene,
    pub(crate) journal: Journal,
    /// What was acknowledged and not written (sabotage).
    pub(crate) held: Option<Record>,
}

impl Store for WatchedStore {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        if let Some(held) = self.held.take() {
            self.write(&held)?;
            self.scene.with(|state| state.witness.shown += 1);
        }
        let sabotage = self.scene.with(|state| state.sabotage);
        match (sabotage, record) {
            (Some(Sabotage::AcknowledgeEarly), Record::Running { .. }) => {
                self.held = Some(record.clone());
                self.tamper();
                Ok(())
            }
            (Some(Sabotage::ForgetReminders), Record::Said { by: Speaker::Sabir, .. }) => {
                self.tamper();
                Ok(())
            }
            (Some(Sabotage::RepeatResult), Record::Result(_)) => {
                self.write(record)?;
                self.tamper();
                self.write(record)
            }
            (Some(Sabotage::HideTokens), Record::Answered(answered)) => {
                self.tamper();
                let mut answered = answered.clone();
                answered.usage = Usage::default();
                self.write(&Record::Answered(answered))
            }
            (Some(Sabotage::WhisperWords), Record::Answered(answered)) if self.completes(answered) => {
                self.write(record)?;
                self.tamper();
                let text = self.scene.with(|state| {
                    let text = state.talk.words("wait");
                    state.witness.user.replied.push(text.clone());
                    text
                });
                self.write(&Record::Said { by: Speaker::User, text, images: Vec::new(), when: When::Next })
            }
            (Some(Sabotage::ShowEarly), record) => {
                self.scene.with(|state| {
                    let checked = state.witness.show(record);
                    state.check(checked);
                });
                self.write(record)
            }
            _ => self.write(record),
        }
    }
}

impl WatchedStore {
    /// Whether nothing but a completion stands there, which nobody has to accept.
    fn completes(&self, answered: &Answered) -> bool {
        let mut calls =
            answered.parts.iter().filter_map(|part| if let Part::Call(call) = part { Some(call) } else { None });
        let alone = calls.next().is_some_and(|call| call.name == control::COMPLETION) && calls.next().is_none();
        alone && self.scene.with(|state| state.plan.user.attended == Attended::No)
    }

    fn tamper(&self) {
        self.scene.with(|state| state.witness.life.tampered = true);
    }

    fn write(&mut self, record: &Record) -> Result<(), StoreError> {
        self.scene.with(|state| {
            state.happens(|| format!("append {}", serde_json::to_string(record).unwrap_or_default()));
            if !state.crashed() {
                state.witness.attempted = Some(record.clone());
            }
        });
        let written = self.journal.append(record);
        self.scene.with(|state| {
            if state.crashed() {
                return;
            }
            match &written {
                Ok(()) => {
                    state.figures.count("records");
                    if matches!(record, Record::Answered(_)) {
                        state.family.count_turn();
                    }
                    if let Some(name) = name(record) {
                        state.figures.count(name);
                    }
                    state.witness.attempted = None;
                    let checked = state.witness.acknowledged(record.clone());
                    state.check(checked);
                }
                Err(error) => {
                    state.say(|| format!("not kept: {error}"));
                    state.witness.life.store_failed = true;
                }
            }
        });
        written
    }
}

/// The row of the figures that tells of such a record, if there is one.
fn name(record: &Record) -> Option<&'static str> {
    match record {
        Record::Context(Shift::Restored) => Some("compactions undone"),
        Record::Context(Shift::Compacted(compacted)) => Some(match compacted.why {
            Why::Threshold => "compactions for fullness",
            Why::Overflow => "compactions for overflow",
            Why::Asked => "compactions by hand",
        }),
        Record::Said { by: Speaker::Sabir, text, .. } if text.starts_with("The same") => Some("cycles told"),
        Record::Ended { message, .. } if message.contains("the same result") => Some("cycles stopped"),
        Record::Result(result) if result.name == control::COMPLETION && result.ending == Ending::Rejected => {
            let names = [("not done", "completions over open todos"), ("not read", "completions over unread words")];
            names.into_iter().find(|(words, _)| result.content.contains(words)).map(|(_, name)| name)
        }
        _ => None,
    }
}
