//! Counters: how often each kind of event happened.
//!
//! A simulator that never reaches a rare case proves nothing about it. All counted events are in one table, and a run over many seeds
//! fails if one of them never happened.
//!
//! The simulated parts count an event where it happens. A subtask counts in its own state, and the
//! report of a seed adds up all states.

use std::collections::BTreeMap;
use std::fmt;

/// The counted events: a name and its meaning. Each must happen within [`EventCounters::ENOUGH_SEEDS`] seeds.
///
/// The names are keys of [`EventCounters`]. A row that begins with "of these" is a part of a row
/// above it.
pub const COUNTED_EVENTS: [(&str, &str); 102] = [
    ("seeds", "simulated tasks"),
    ("lives", "processes that worked on one of them"),
    (
        "happenings",
        "moments after which the invariants were checked",
    ),
    ("records", "records that a journal acknowledged"),
    ("requests", "requests that a model saw"),
    (
        "requests of a shortened history",
        "of these: after a compaction",
    ),
    ("summaries", "summaries that were asked for"),
    ("compactions for fullness", "compactions at the threshold"),
    (
        "compactions for overflow",
        "compactions after a request that was too long",
    ),
    (
        "compactions by hand",
        "compactions between two lives, because the user asked",
    ),
    ("compactions undone", "compactions that the user undid"),
    (
        "rules changed",
        "changes of the instructions in the folder between two lives",
    ),
    ("calls written", "calls that a model wrote"),
    ("calls native", "of these: in the wire's own form"),
    ("calls prompted", "of these: as text in a dialect"),
    (
        "calls missing an argument",
        "of these: without what the tool requires",
    ),
    (
        "calls of a wrong type",
        "of these: with a value of a wrong type",
    ),
    (
        "calls of unknown tools",
        "of these: of a tool that does not exist",
    ),
    (
        "calls misspelled",
        "of these: with a name that only a repair understands",
    ),
    ("calls cut", "of these: never closed"),
    ("calls doubled", "of these: written twice, with the same id"),
    ("calls repeated", "of these: the same as one before"),
    ("cycles told", "cycles of which the model was told"),
    (
        "cycles stopped",
        "cycles that ended in a question or with the task",
    ),
    ("todos left open", "lists with something that is not done"),
    ("todos done", "lists in which all is done"),
    (
        "todos that are not a list",
        "calls with something that is not a list",
    ),
    (
        "completions over open todos",
        "completions that were refused for them",
    ),
    (
        "completions over unread words",
        "completions that were refused for them",
    ),
    ("checks", "checks of a completion"),
    ("checks failed", "of these: without success"),
    ("ids used again", "calls with an id of an earlier turn"),
    (
        "answers of several calls",
        "answers with more than one call",
    ),
    ("answers without a call", "answers of words alone"),
    ("answers refused", "answers in which the provider refused"),
    (
        "answers failed before",
        "requests that failed before their answer began",
    ),
    ("answers broken off", "answers that failed in the middle"),
    ("calls run", "calls that reached their tool"),
    ("side effects", "calls that changed something"),
    (
        "reads at once",
        "calls that only read and ran beside another",
    ),
    (
        "ends out of order",
        "calls that ended before one that was begun earlier",
    ),
    ("tools failed", "calls whose tool failed"),
    ("tools crashed", "calls whose tool panicked"),
    ("tools hung", "calls whose tool never came back"),
    ("tools dropped", "calls that were dropped while they ran"),
    (
        "dropped after the effect",
        "of these: after they had changed something",
    ),
    (
        "things moved",
        "calls that had become others between decision and run",
    ),
    ("accesses invalid", "calls whose access could not be known"),
    ("results rejected", "results of calls that a check stopped"),
    ("results denied", "results of calls that were denied"),
    (
        "results interrupted",
        "results of calls whose end is unknown",
    ),
    ("user said yes", "approvals"),
    (
        "user said always",
        "answers that held for more than one call",
    ),
    ("user said no", "denials"),
    ("user said words", "answers in words"),
    ("user left", "questions at which the user left"),
    ("user never answered", "questions that were never answered"),
    (
        "answers by the channel",
        "answers that came where words come",
    ),
    (
        "answers to no question",
        "answers to a question that was not open",
    ),
    ("user went away", "users that went away for good"),
    ("words that wait", "words that were said unasked"),
    ("words that steer", "words that were not to wait"),
    ("blank words", "words without a letter"),
    ("words in a question", "of these: while a question was open"),
    ("words in an answer", "of these: while the model answered"),
    (
        "words in a summary",
        "of these: while a summary was written",
    ),
    (
        "words in a check",
        "of these: while a completion was checked",
    ),
    ("words while tools ran", "of these: while tools ran"),
    ("user cancelled", "interruptions by the user"),
    (
        "cancelled in a question",
        "of these: while a question was open",
    ),
    ("cancelled while tools ran", "of these: while tools ran"),
    (
        "cancelled in an answer",
        "of these: while the model answered",
    ),
    (
        "completions sent back",
        "completions that the user did not accept",
    ),
    (
        "ended completed",
        "lives that ended with the task completed",
    ),
    ("ended unfinished", "lives that ended without"),
    ("ended denied", "lives that ended because of denials"),
    ("ended by turns", "lives that the limit of turns ended"),
    ("ended by tokens", "lives that the limit of tokens ended"),
    ("ended by cost", "lives that the limit of cost ended"),
    ("ended by time", "lives that the limit of time ended"),
    (
        "ended by the provider",
        "lives that ended because the model could not be asked",
    ),
    ("ended cancelled", "lives that the user ended"),
    (
        "ended by the store",
        "lives that ended because a record could not be kept",
    ),
    ("subtasks begun", "subtasks that began"),
    (
        "subtasks continued",
        "subtasks that continued after their process had ended",
    ),
    (
        "subtasks found completed",
        "subtasks that were completed before their parent knew",
    ),
    ("subtasks at once", "subtasks that began beside another"),
    ("kills", "processes killed; what they had written stays"),
    (
        "power cuts",
        "machines that lost power; what was not synced may be lost",
    ),
    (
        "crashes between two lives",
        "of these: while no process ran",
    ),
    (
        "crashes inside an append",
        "of these: while a record was being written",
    ),
    ("crashes with calls running", "of these: while tools ran"),
    ("writes torn", "writes of which a power cut left a part"),
    ("writes lost", "writes of which a power cut left nothing"),
    ("writes short", "writes that failed half way"),
    ("disk full", "writes that found no room"),
    ("syncs failed", "syncs that failed"),
    ("pages dropped", "writes that a failed sync forgot"),
    (
        "journals with a torn end",
        "journals that were opened with an unfinished record",
    ),
    (
        "journals with a damaged end",
        "journals that were opened with a damaged record that was never acknowledged",
    ),
    (
        "unacknowledged records found",
        "records that came back though nobody had been told that they were kept",
    ),
    (
        "prefixes replayed",
        "beginnings of journals that were replayed and forked",
    ),
];

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCounters(BTreeMap<&'static str, u64>);

impl EventCounters {
    /// The number of seeds after which every event must have happened.
    ///
    /// The rarest events happen a few times in this many seeds. With fewer seeds a missing event
    /// proves nothing, so the check is left out.
    pub const ENOUGH_SEEDS: u64 = 10_000;

    /// Counts one event.
    pub(crate) fn count_event(&mut self, name: &'static str) {
        self.add_events(name, 1);
    }

    /// Counts several events of the same name. The name must be in [`COUNTED_EVENTS`]; a test finds
    /// others.
    pub(crate) fn add_events(&mut self, name: &'static str, by: u64) {
        *self.0.entry(name).or_default() += by;
    }

    /// Adds the counts of other seeds.
    pub fn merge(&mut self, other: &Self) {
        for (name, by) in &other.0 {
            self.add_events(name, *by);
        }
    }

    /// Returns how often an event happened.
    #[must_use]
    pub fn count_of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the events that never happened, in the order of the table.
    ///
    /// Such an event is a gap in the simulation: its case was not tested.
    #[must_use]
    pub fn missing_events(&self) -> Vec<&'static str> {
        COUNTED_EVENTS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| self.count_of(name) == 0)
            .collect()
    }

    /// Returns the counted events that the table does not list.
    #[must_use]
    pub fn unlisted_events(&self) -> Vec<&'static str> {
        self.0
            .keys()
            .copied()
            .filter(|name| !COUNTED_EVENTS.iter().any(|(listed, _)| listed == name))
            .collect()
    }
}

impl fmt::Display for EventCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, meaning) in &COUNTED_EVENTS {
            writeln!(f, "{:>12}  {name:<32} {meaning}", self.count_of(name))?;
        }
        Ok(())
    }
}
