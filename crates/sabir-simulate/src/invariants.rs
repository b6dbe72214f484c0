//! The table of invariants: what each says, its number in the design, and how the simulator checks it.
//!
//! An invariant has a number where the design gives it one; the others follow from several invariants together.
//! The first broken invariant ends a simulation, since what comes after it is mostly a consequence.

use std::fmt;

/// An invariant that is checked after each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Each call gets exactly one result.
    /// A missing result leaves the model waiting and most providers refuse the request; a second
    /// one would look like a new result.
    OneResult,
    /// Results go back in the order of their calls.
    /// Some providers match results by position, so another order gives a call the result of its
    /// neighbour.
    CallOrder,
    /// A cut or rejected call never runs.
    /// A cut call may lack the half that limits what it does.
    NeverRuns,
    /// Only calls that were allowed run. They are allowed by the rules of the plan, by an approval
    /// of this call, or by an approval that the user extended to further calls.
    Allowed,
    /// Only the user answers for the user. A message that was queued before the question never answers it.
    UserAnswers,
    /// A call is on record before it runs.
    /// Without the record a resumed task would not know that the call may have happened.
    RecordFirst,
    /// Every acknowledged record survives any crash.
    /// Acknowledged means that the append returned without an error, which the journal does only
    /// after a sync.
    Survives,
    /// A side effect happens at most once.
    /// It is counted over all processes of a task, since a resume is where a call would run again.
    OneEffect,
    /// Writes run alone and in order.
    /// Calls that only read may run beside each other, and beside no write.
    WritesInOrder,
    /// The reported outcome of a task is true.
    /// `completed` needs an accepted call of `attempt_completion` in the last turn, and no failed
    /// call before it in that turn.
    TrueOutcome,
    /// Replay gives the same task.
    /// The records alone decide what a task is, so the same records must give the same history,
    /// totals and next step.
    Replay,
    /// Everything ends, or waits for the user.
    /// A process without any event is only allowed while a question is open or a tool hangs on
    /// purpose.
    Ends,
    /// Totals are the sum of the records.
    /// Usage that is lost would let a task spend more than its limits.
    Totals,
    /// The records that are shown are the records that were kept. A record that is shown before it
    /// is kept could be lost in a crash, although the user has acted on it.
    Shown,
    /// The user's messages are kept, and the model reads them.
    /// Each message of a run is unique, so that a lost, doubled or moved one is found by its text.
    MessagesKept,
    /// A user who went away is not asked.
    /// A question that nobody reads would wait forever, and a default answer would not be the user's.
    NobodyAsked,
    /// Each request begins with the content of the previous one.
    /// Providers cache by prefix: a change at the front makes the whole request as expensive as the
    /// first.
    Prefix,
    /// Instructions, messages of the user and open todos appear verbatim.
    /// A paraphrase of a rule is another rule. This holds for requests after a compaction, too.
    Verbatim,
    /// A compaction equals its preview and can be undone. The user decides by the preview, so the
    /// result must equal it.
    Restores,
    /// No task is completed before its conditions are met.
    /// The conditions are the user's: open todos, a check command, and messages that the model has
    /// not read yet.
    Conditions,
    /// Limits hold.
    /// The check adds up the records of the process by itself, and uses no counter of the task.
    Limits,
    /// Subtasks stay under the control of their parents.
    /// A subtask that outlives its parent would spend without a budget and change files that nobody
    /// watches.
    Family,
}

/// A row of the table: the invariant, its number in the design (0 if it has none), its text, and the way in which it is checked.
///
/// The table is the documentation of the simulator: `--invariants` prints it, and each row names the observation that reveals a broken invariant.
pub type InvariantRow = (Invariant, u8, &'static str, &'static str);

/// All invariants.
pub const INVARIANTS: [InvariantRow; 22] = [
    (
        Invariant::OneResult,
        7,
        "each call gets exactly one result",
        "in each request that the model sees, in the history of each replay, and in the records as they come",
    ),
    (
        Invariant::CallOrder,
        7,
        "results go back in call order, in the very next message",
        "in each request that the model sees, against the calls of the message before",
    ),
    (
        Invariant::NeverRuns,
        3,
        "a cut or rejected call never runs",
        "each call carries a token by which the tool knows how it was written",
    ),
    (
        Invariant::Allowed,
        8,
        "a denied call never runs, nor one that nobody allowed",
        "the tool asks what the rules and the user said of this very call in this process",
    ),
    (
        Invariant::UserAnswers,
        8,
        "no question is answered by anything but the user",
        "records that speak for the user are compared with what the user did",
    ),
    (
        Invariant::RecordFirst,
        9,
        "nothing runs whose record is not acknowledged and synced",
        "the tool looks at what the journal has acknowledged when it begins",
    ),
    (
        Invariant::Survives,
        9,
        "no acknowledged record is lost",
        "after each crash the journal is opened and compared with what it had acknowledged",
    ),
    (
        Invariant::OneEffect,
        9,
        "a call's side effect happens at most once, before its result, and never again after a resume",
        "effects are counted by call and by token over all processes",
    ),
    (
        Invariant::WritesInOrder,
        0,
        "writes run alone and in order; reads may run at once",
        "the tools that run are counted",
    ),
    (
        Invariant::TrueOutcome,
        10,
        "the outcome is what the last record says, and `completed` only after an accepted completion",
        "the outcome of each process is compared with its records and the user's answers",
    ),
    (
        Invariant::Replay,
        0,
        "replay gives the same task, from any record on",
        "each request and each end is compared with a replay of the records; every prefix is replayed twice",
    ),
    (
        Invariant::Ends,
        0,
        "a task ends or waits for the user",
        "a bound on happenings, and one on the simulated time",
    ),
    (
        Invariant::Totals,
        0,
        "totals are the sum over the records",
        "added up by hand at each end, and by a replay",
    ),
    (
        Invariant::Shown,
        9,
        "what is shown was kept, once and in order",
        "each record that is shown is compared with the journal",
    ),
    (
        Invariant::MessagesKept,
        0,
        "the user's words are kept once, in the order in which they were said, and read with the next request",
        "no two words are the same: records and requests are compared with what the user said",
    ),
    (
        Invariant::NobodyAsked,
        8,
        "a user who went away is not asked",
        "the simulated user reports questions after it went away",
    ),
    (
        Invariant::Prefix,
        0,
        "what was sent is the beginning of what is sent next, over all processes, except across a compaction",
        "each request is compared with the one before",
    ),
    (
        Invariant::Verbatim,
        0,
        "instructions, the user's messages and open todos appear verbatim in every request",
        "each request is searched for what the records hold",
    ),
    (
        Invariant::Restores,
        0,
        "a compaction is what its preview said, and undoing it brings back the exact history",
        "the last request before a compaction is the beginning of the first one after its undoing",
    ),
    (
        Invariant::Conditions,
        10,
        "nothing is completed over open todos where they are forbidden, without the check, or over unread words",
        "each completion is compared with the lists, the tool that checks, and what the user said since the last request",
    ),
    (
        Invariant::Limits,
        0,
        "no turn begins beyond a limit, and no cycle continues beyond its own",
        "turns, tokens, money, time and equal calls of a process are added up by hand at each request",
    ),
    (
        Invariant::Family,
        0,
        "no subtask is begun twice in a process, works beyond its parent, or too deep, or beside too many; its parent learns what it did",
        "who is opened and at work is noted apart; results and totals are compared with the subtasks' own journals",
    ),
];

/// An invariant that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The broken invariant.
    pub invariant: Invariant,
    // Free text for people. Nothing compares it, so a check may put whole messages into it.
    /// The observation that breaks it.
    pub seen: String,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match INVARIANTS.iter().find(|(invariant, ..)| invariant == self) {
            Some((_, 0, says, _)) => f.write_str(says),
            Some((_, number, says, _)) => write!(f, "invariant {number}: {says}"),
            None => write!(f, "{self:?}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.invariant, self.seen)
    }
}
