//! The laws, as a table: what each says, where the design has it, and how the simulator sees that it holds.

use std::fmt;

/// A law that is checked after each happening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// Each call gets exactly one result.
    OneResult,
    /// Results go back in the order of their calls.
    CallOrder,
    /// A cut or rejected call never runs.
    NeverRuns,
    /// Nothing runs that was not allowed.
    Allowed,
    /// Only the user answers for the user.
    UserAnswers,
    /// A call is on record before it runs.
    RecordFirst,
    /// What was acknowledged is there after any crash.
    Survives,
    /// A side effect happens at most once.
    OneEffect,
    /// Writes run alone and in order.
    WritesInOrder,
    /// Ends are honest.
    HonestEnd,
    /// Replay gives the same task.
    Replay,
    /// Everything ends, or waits for the user.
    Ends,
    /// Totals are the sum of the records.
    Totals,
    /// What is shown is what was kept.
    Shown,
    /// The user's words are kept and read.
    WordsKept,
    /// Who went away is not asked.
    NobodyAsked,
    /// What was sent is the beginning of what is sent next.
    Prefix,
    /// What must not be put in other words is not.
    Verbatim,
    /// A compaction can be seen before and undone after.
    Restores,
    /// Nothing is completed before its time.
    Conditions,
    /// Limits hold.
    Limits,
    /// Subtasks belong to their parents.
    Family,
}

/// One row: the law, its number in the design (0 where the design says it without one), what it says, how it is seen.
pub type LawRow = (Law, u8, &'static str, &'static str);

/// All laws.
pub const LAWS: [LawRow; 22] = [
    (
        Law::OneResult,
        7,
        "each call gets exactly one result",
        "in each request that the model sees, in the history of each replay, and in the records as they come",
    ),
    (
        Law::CallOrder,
        7,
        "results go back in call order, in the very next message",
        "in each request that the model sees, against the calls of the message before",
    ),
    (
        Law::NeverRuns,
        3,
        "a cut or rejected call never runs",
        "each call carries a token by which the tool knows how it was written",
    ),
    (
        Law::Allowed,
        8,
        "a denied call never runs, nor one that nobody allowed",
        "the tool asks what the rules and the user said of this very call in this life",
    ),
    (
        Law::UserAnswers,
        8,
        "no question is answered by anything but the user",
        "records that speak for the user are held against what the user did",
    ),
    (
        Law::RecordFirst,
        9,
        "nothing runs whose record is not acknowledged and synced",
        "the tool looks at what the journal has acknowledged when it begins",
    ),
    (
        Law::Survives,
        9,
        "no acknowledged record is lost",
        "after each crash the journal is opened and held against what it had acknowledged",
    ),
    (
        Law::OneEffect,
        9,
        "a call's side effect happens at most once, before its result, and never again after a resume",
        "effects are counted by call and by token over all lives",
    ),
    (Law::WritesInOrder, 0, "writes run alone and in order; reads may run at once", "the tools that run are counted"),
    (
        Law::HonestEnd,
        10,
        "the outcome is what the last record says, and `completed` only after an accepted completion",
        "the outcome of each life is held against its records and the user's answers",
    ),
    (
        Law::Replay,
        0,
        "replay gives the same task, from any record on",
        "each request and each end is held against a replay of the records; every prefix is replayed twice",
    ),
    (Law::Ends, 0, "a task ends or waits for the user", "a bound on happenings, and one on the simulated time"),
    (Law::Totals, 0, "totals are the sum over the records", "added up by hand at each end, and by a replay"),
    (
        Law::Shown,
        9,
        "what is shown was kept, once and in order",
        "each record that is shown is held against the journal",
    ),
    (
        Law::WordsKept,
        0,
        "the user's words are kept once, in the order in which they were said, and read with the next request",
        "no two words are the same: records and requests are held against what the user said",
    ),
    (Law::NobodyAsked, 8, "who went away is not asked", "the user who went away is still there to notice it"),
    (
        Law::Prefix,
        0,
        "what was sent is the beginning of what is sent next, over all lives, except across a compaction",
        "each request is held against the one before",
    ),
    (
        Law::Verbatim,
        0,
        "instructions, the user's first and later words and open todos stand verbatim in every request",
        "each request is searched for what the records hold",
    ),
    (
        Law::Restores,
        0,
        "a compaction is what its preview said, and undoing it brings back the exact history",
        "the last request before a compaction is the beginning of the first one after its undoing",
    ),
    (
        Law::Conditions,
        10,
        "nothing is completed over open todos where they are forbidden, without the check, or over unread words",
        "each completion is held against the lists, the tool that checks, and what the user said since the last request",
    ),
    (
        Law::Limits,
        0,
        "no turn begins beyond a limit, and no cycle goes on beyond its own",
        "turns, tokens, money, time and equal calls of a life are added up by hand at each request",
    ),
    (
        Law::Family,
        0,
        "no subtask is begun twice in a process, works beyond its parent, or too deep, or beside too many; its parent is told what it did",
        "who is opened and at work is noted apart; results and totals are held against the subtasks' own journals",
    ),
];

/// A law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match LAWS.iter().find(|(law, ..)| law == self) {
            Some((_, 0, says, _)) => f.write_str(says),
            Some((_, number, says, _)) => write!(f, "law {number}: {says}"),
            None => write!(f, "{self:?}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.law, self.seen)
    }
}
