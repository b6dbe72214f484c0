//! Sabotage: laws broken on purpose, between the real parts, to see that the simulator notices.

use crate::laws::Law;

/// One way to break a law. Nothing of the machine, the driver or the journal is changed for it: something that stands between
/// two of them does not do what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A result is left out of what the model sees.
    LoseResult,
    /// A result is written into the journal twice.
    RepeatResult,
    /// Two results change places in what the model sees.
    SwapResults,
    /// The end of a cut call is told as a proper one.
    CloseCutCalls,
    /// A tool says that it touches nothing.
    HideAccess,
    /// A no of the user's arrives as a yes.
    TurnNoIntoYes,
    /// Words of the user's arrive as a yes.
    TakeWordsForYes,
    /// The store says that a call is on record before it is.
    AcknowledgeEarly,
    /// The disk says that it has synced and has not.
    LieAboutSync,
    /// A tool does its work twice.
    RepeatEffect,
    /// A resumed task is not told which calls had begun.
    ForgetWhatRan,
    /// A tool that writes says that it only reads.
    CallWritesReads,
    /// Any end is told as a completion.
    ClaimCompletion,
    /// A reminder is not written down.
    ForgetReminders,
    /// Limits and interruptions do not arrive.
    NeverStop,
    /// The journal notes fewer tokens than were used.
    HideTokens,
    /// A record is shown before it is kept.
    ShowEarly,
    /// Some of the user's words do not arrive.
    SwallowWords,
    /// Words on the way arrive as a yes to the open question.
    HearWordsAsYes,
    /// That the user went away does not arrive.
    SwallowLeaving,
    /// Words are noted of which the machine never heard.
    WhisperWords,
    /// The newest words stand at the beginning of what the model sees.
    PutWordsFirst,
    /// The instructions are others after a compaction.
    ForgetInstructions,
    /// The todos are left out of what stands for a shortened history.
    ForgetTodos,
    /// Undoing a compaction brings back less than there was.
    RestoreLess,
    /// A compaction is not the one that was previewed.
    PreviewOther,
    /// The machine is told that todos may be left open.
    AllowOpenTodos,
    /// The machine is not told of the check.
    SkipCheck,
    /// The machine is told of no limits.
    RaiseLimits,
    /// A subtask goes on when its parent no longer waits for it.
    LetSubtasksGoOn,
    /// A subtask begins anew where it should go on.
    BeginSubtasksAnew,
}

/// Each, with the laws of which any may notice it first.
pub const SABOTAGES: [(Sabotage, &[Law]); 31] = [
    (Sabotage::LoseResult, &[Law::OneResult]),
    (Sabotage::RepeatResult, &[Law::OneResult]),
    (Sabotage::SwapResults, &[Law::CallOrder]),
    (Sabotage::CloseCutCalls, &[Law::NeverRuns]),
    (Sabotage::HideAccess, &[Law::Allowed]),
    (Sabotage::TurnNoIntoYes, &[Law::UserAnswers]),
    (Sabotage::TakeWordsForYes, &[Law::UserAnswers, Law::HonestEnd]),
    (Sabotage::AcknowledgeEarly, &[Law::RecordFirst]),
    (Sabotage::LieAboutSync, &[Law::Survives]),
    (Sabotage::RepeatEffect, &[Law::OneEffect]),
    (Sabotage::ForgetWhatRan, &[Law::OneEffect, Law::OneResult]),
    (Sabotage::CallWritesReads, &[Law::WritesInOrder]),
    (Sabotage::ClaimCompletion, &[Law::HonestEnd]),
    (Sabotage::ForgetReminders, &[Law::Replay]),
    (Sabotage::NeverStop, &[Law::Ends]),
    (Sabotage::HideTokens, &[Law::Totals]),
    (Sabotage::ShowEarly, &[Law::Shown]),
    (Sabotage::SwallowWords, &[Law::WordsKept]),
    (Sabotage::HearWordsAsYes, &[Law::UserAnswers]),
    (Sabotage::SwallowLeaving, &[Law::NobodyAsked]),
    (Sabotage::WhisperWords, &[Law::Conditions]),
    (Sabotage::PutWordsFirst, &[Law::Prefix]),
    (Sabotage::ForgetInstructions, &[Law::Verbatim]),
    (Sabotage::ForgetTodos, &[Law::Verbatim]),
    (Sabotage::RestoreLess, &[Law::Restores]),
    (Sabotage::PreviewOther, &[Law::Restores]),
    (Sabotage::AllowOpenTodos, &[Law::Conditions]),
    (Sabotage::SkipCheck, &[Law::Conditions]),
    (Sabotage::RaiseLimits, &[Law::Limits]),
    (Sabotage::LetSubtasksGoOn, &[Law::Family]),
    (Sabotage::BeginSubtasksAnew, &[Law::Replay]),
];
