//! The store: the real journal, with the witness beside it.

use sabir_agent::{Record, Speaker, Store, StoreError};
use sabir_call::Usage;
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
    fn tamper(&self) {
        self.scene.with(|state| state.witness.tampered = true);
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
                    state.witness.attempted = None;
                    let checked = state.witness.acknowledged(record.clone());
                    state.check(checked);
                }
                Err(error) => {
                    state.say(|| format!("not kept: {error}"));
                    state.witness.store_failed = true;
                }
            }
        });
        written
    }
}
