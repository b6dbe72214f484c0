//! The record store: the real journal, with the observer watching every append.
//!
//! The real journal is below it and the simulated disk below that, so an append can fail, tear or
//! be lost in any of the ways of a disk. The observer notes a record when the journal acknowledges
//! it, and compares all later events with the noted records.

use sabir_agent::{
    AssistantTurn, CompactionReason, ContextChange, DeliveryTime, Interactivity, MessageAuthor,
    Record, RecordStore, StoreError, control,
};
use sabir_call::{MessagePart, ToolResultStatus, Usage};
use sabir_journal::Journal;

use crate::sabotage::Sabotage;
use crate::simulation_state::SimulationHandle;

/// A journal that reports every append to the observations.
pub(crate) struct WatchedStore {
    pub(crate) simulation: SimulationHandle,
    /// The real journal, on the simulated disk.
    pub(crate) journal: Journal,
    /// A record that was acknowledged and not written (sabotage).
    pub(crate) held: Option<Record>,
}

// Sabotage happens here, between driver and journal. Without it, every append is passed on
// unchanged.
impl RecordStore for WatchedStore {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        // A record that was acknowledged too early is written before the next one.
        if let Some(held) = self.held.take() {
            self.append_record(&held)?;
            self.simulation
                .with_state(|state| state.observations.shown += 1);
        }
        let sabotage = self.simulation.with_state(|state| state.sabotage);
        match (sabotage, record) {
            (Some(Sabotage::AcknowledgeEarly), Record::Running { .. }) => {
                self.held = Some(record.clone());
                self.mark_tampered();
                Ok(())
            }
            (
                Some(Sabotage::ForgetReminders),
                Record::Said {
                    by: MessageAuthor::Sabir,
                    ..
                },
            ) => {
                self.mark_tampered();
                Ok(())
            }
            (Some(Sabotage::RepeatResult), Record::Result(_)) => {
                // The driver did not request the second append, so the next shown record is not
                // compared.
                self.append_record(record)?;
                self.mark_tampered();
                self.append_record(record)
            }
            (Some(Sabotage::HideTokens), Record::Answered(answered)) => {
                self.mark_tampered();
                let mut answered = answered.clone();
                answered.usage = Usage::default();
                self.append_record(&Record::Answered(answered))
            }
            (Some(Sabotage::RecordUnsentMessage), Record::Answered(answered))
                if self.is_completion_only(answered) =>
            {
                self.append_record(record)?;
                self.mark_tampered();
                let text = self.simulation.with_state(|state| {
                    let text = state.user_script.unique_message("wait");
                    state.observations.user.replied.push(text.clone());
                    text
                });
                self.append_record(&Record::Said {
                    by: MessageAuthor::User,
                    text,
                    images: Vec::new(),
                    when: DeliveryTime::Next,
                })
            }
            (Some(Sabotage::ShowEarly), record) => {
                self.simulation.with_state(|state| {
                    let checked = state.observations.check_shown(record);
                    state.record_check(checked);
                });
                self.append_record(record)
            }
            _ => self.append_record(record),
        }
    }
}

impl WatchedStore {
    /// Reports whether a response holds only a completion in a task without a user, so that nobody has to accept it.
    fn is_completion_only(&self, answered: &AssistantTurn) -> bool {
        // A message after any other answer would be read with the next request, and break no invariant.
        let mut calls = answered.parts.iter().filter_map(|part| {
            if let MessagePart::Call(call) = part {
                Some(call)
            } else {
                None
            }
        });
        let alone = calls
            .next()
            .is_some_and(|call| call.name == control::COMPLETION_TOOL)
            && calls.next().is_none();
        alone
            && self
                .simulation
                .with_state(|state| state.plan.user.attended == Interactivity::Headless)
    }

    /// Notes that sabotage changes the current record, which excuses the next comparison.
    fn mark_tampered(&self) {
        self.simulation
            .with_state(|state| state.observations.process.tampered = true);
    }

    /// Appends a record to the journal, and tells the observations if it was acknowledged.
    fn append_record(&mut self, record: &Record) -> Result<(), StoreError> {
        self.simulation.with_state(|state| {
            state.on_event(|| {
                format!(
                    "append {}",
                    serde_json::to_string(record).unwrap_or_default()
                )
            });
            // What the process still appends after a crash never reaches the disk.
            if !state.has_crashed() {
                state.observations.attempted = Some(record.clone());
            }
        });
        // Without the lock on the state, which the simulated disk takes when the journal calls it.
        let written = self.journal.append(record);
        self.simulation.with_state(|state| {
            if state.has_crashed() {
                return;
            }
            match &written {
                Ok(()) => {
                    state.counters.count_event("records");
                    // Counted when it is acknowledged, since only then the machine counts it too.
                    if matches!(record, Record::Answered(_)) {
                        state.task_tree.count_turn();
                    }
                    if let Some(name) = event_name(record) {
                        state.counters.count_event(name);
                    }
                    state.observations.attempted = None;
                    let checked = state.observations.record_acknowledged(record.clone());
                    state.record_check(checked);
                }
                Err(error) => {
                    state.trace_line(|| format!("not kept: {error}"));
                    // The invariant of honest ends allows the outcome `StoreFailed` only after this.
                    state.observations.process.store_failed = true;
                }
            }
        });
        written
    }
}

/// Returns the name of the event to count for a record, if there is one.
fn event_name(record: &Record) -> Option<&'static str> {
    match record {
        Record::Context(ContextChange::Restored) => Some("compactions undone"),
        Record::Context(ContextChange::Compacted(compacted)) => Some(match compacted.why {
            CompactionReason::Threshold => "compactions for fullness",
            CompactionReason::Overflow => "compactions for overflow",
            CompactionReason::Asked => "compactions by hand",
        }),
        Record::Said {
            by: MessageAuthor::Sabir,
            text,
            ..
        } if text.starts_with("The same") => Some("cycles told"),
        Record::Ended { message, .. } if message.contains("the same result") => {
            Some("cycles stopped")
        }
        Record::Result(result)
            if result.name == control::COMPLETION_TOOL
                && result.ending == ToolResultStatus::Rejected =>
        {
            let names = [
                ("not done", "completions over open todos"),
                ("not read", "completions over unread words"),
            ];
            names
                .into_iter()
                .find(|(words, _)| result.content.contains(words))
                .map(|(_, name)| name)
        }
        _ => None,
    }
}
