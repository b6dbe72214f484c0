//! Sabotage: breaks a law on purpose between the real parts, to test that the simulator notices it.

use crate::laws::Law;

/// One way to break a law. The machine, the driver and the journal stay unchanged; a simulated part between them misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A result is left out of what the model sees.
    LoseResult,
    /// A result is written into the journal twice.
    RepeatResult,
    /// Two results change places in what the model sees.
    SwapResults,
    /// The end of a cut call is reported as a proper end.
    CloseCutCalls,
    /// A tool claims that it touches nothing.
    HideAccess,
    /// A denial by the user arrives as an approval.
    TurnNoIntoYes,
    /// A text answer of the user arrives as an approval.
    TakeWordsForYes,
    /// The store acknowledges the record of a call before it is written.
    AcknowledgeEarly,
    /// The disk claims to have synced and has not.
    LieAboutSync,
    /// A tool does its work twice.
    RepeatEffect,
    /// A resumed task does not learn which calls had begun.
    ForgetWhatRan,
    /// A tool that writes claims to only read.
    CallWritesReads,
    /// Every outcome is reported as a completion.
    ClaimCompletion,
    /// A reminder is not written to the journal.
    ForgetReminders,
    /// Limits and interruptions do not arrive.
    NeverStop,
    /// The journal records fewer tokens than were used.
    HideTokens,
    /// A record is shown before it is kept.
    ShowEarly,
    /// Some of the user's messages do not arrive.
    SwallowWords,
    /// A message arrives as an approval of the open question.
    HearWordsAsYes,
    /// The message that the user went away does not arrive.
    SwallowLeaving,
    /// A message is recorded that the machine never received.
    WhisperWords,
    /// The newest message is moved to the beginning of the request.
    PutWordsFirst,
    /// The instructions are different after a compaction.
    ForgetInstructions,
    /// The todos are missing in the summary of a compacted history.
    ForgetTodos,
    /// Undoing a compaction restores only a part of the history.
    RestoreLess,
    /// A compaction differs from its preview.
    PreviewOther,
    /// The machine gets settings that allow open todos.
    AllowOpenTodos,
    /// The machine gets settings without the completion check.
    SkipCheck,
    /// The machine gets settings without limits.
    RaiseLimits,
    /// A subtask continues after its parent stopped waiting for it.
    LetSubtasksGoOn,
    /// A subtask starts over instead of continuing.
    BeginSubtasksAnew,
}

/// Every kind of sabotage, with the laws that may notice it first.
pub const SABOTAGES: [(Sabotage, &[Law]); 31] = [
    (Sabotage::LoseResult, &[Law::OneResult]),
    (Sabotage::RepeatResult, &[Law::OneResult]),
    (Sabotage::SwapResults, &[Law::CallOrder]),
    (Sabotage::CloseCutCalls, &[Law::NeverRuns]),
    (Sabotage::HideAccess, &[Law::Allowed]),
    (Sabotage::TurnNoIntoYes, &[Law::UserAnswers]),
    (
        Sabotage::TakeWordsForYes,
        &[Law::UserAnswers, Law::HonestEnd],
    ),
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
