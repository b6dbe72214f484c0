//! Sabotage: breaks an invariant on purpose between the real parts, to test that the simulator notices it.
//!
//! A check that never fails may be a check that sees nothing. So each invariant has at least one kind of
//! sabotage which that invariant must notice, within a thousand seeds, while the same seed without
//! sabotage breaks none.

use crate::invariants::Invariant;

/// One way to break an invariant. The machine, the driver and the journal stay unchanged; a simulated part between them misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A result is left out of what the model sees. Changes only the request that is checked, not
    /// the machine's.
    LoseResult,
    /// A result is written into the journal twice.
    /// The store appends the record of a result a second time.
    RepeatResult,
    /// Two results are swapped in what the model sees. Reverses the results of each message in the
    /// checked request.
    SwapResults,
    /// The end of a cut call is reported as a proper end.
    /// The model reports `CallEnd` in place of `CallCut`, as a provider does that closes calls by
    /// itself.
    CloseCutCalls,
    /// A tool claims that it touches nothing.
    /// Its access is `Nothing`, so the rules have nothing to ask about.
    HideAccess,
    /// A denial by the user arrives as an approval.
    /// The observer knows the user's answer, so it notices an approval that the user never gave.
    ApproveDenied,
    /// A text answer of the user arrives as an approval.
    /// A completion may be accepted by it, which makes the end dishonest as well.
    ApproveTextAnswer,
    /// The store acknowledges the record of a call before it is written.
    /// The record is held back until the next one, and the call begins in between.
    AcknowledgeEarly,
    /// The disk claims to have synced and has not.
    /// Only a power cut shows it: until then the bytes can still be read.
    LieAboutSync,
    /// A tool does its work twice.
    /// The effect is counted twice, although the tool runs once.
    RepeatEffect,
    /// A resumed task does not learn which calls had begun.
    /// The `running` records are left out of the replay, so the calls look as if they had never
    /// begun.
    DropRunningRecords,
    /// A tool that writes claims to only read.
    /// The driver then runs writes beside other calls.
    ClaimReadOnly,
    /// Every outcome is reported as a completion.
    /// Only the outcome that the check sees is changed, not the record of the end.
    ClaimCompletion,
    /// A reminder is not written to the journal.
    /// The running task has the reminder and its replay has not.
    ForgetReminders,
    /// Limits and interruptions do not arrive.
    /// The time limit and the user's interruptions are dropped, so a tool that hangs never ends.
    NeverStop,
    /// The journal records fewer tokens than were used.
    /// The usage in the records of answers is emptied.
    HideTokens,
    /// A record is shown before it is kept.
    /// The check of a shown record comes before the append.
    ShowEarly,
    /// Some of the user's messages do not arrive.
    /// Every second one is dropped, so that tasks still make progress.
    DropMessages,
    /// A message arrives as an approval of the open question.
    /// A message that waits in the queue becomes the answer to the question that is open.
    ApproveByMessage,
    /// The message that the user went away does not arrive. The machine continues as if a user could be asked.
    DropDetach,
    /// A message is recorded that the machine never received.
    /// It goes into the journal after an answer that completes, so that the completion leaves it
    /// unread.
    RecordUnsentMessage,
    /// The newest message is moved to the beginning of the request.
    /// The model would read it before the work that it is about, and no prefix could be cached.
    MoveMessageFirst,
    /// The instructions are different after a compaction.
    /// The system prompt of the request is replaced.
    ForgetInstructions,
    /// The todos are missing in the summary of a compacted history.
    /// The list disappears from the summary; the call that wrote it is already left out.
    ForgetTodos,
    /// Undoing a compaction restores only a part of the history. All messages but the first are
    /// missing in the request after that.
    RestoreLess,
    /// A compaction differs from its preview.
    /// The comparison is made to fail, as if the preview had said something else.
    PreviewOther,
    /// The machine gets settings that allow open todos.
    /// The observer still has the settings of the plan, in which they are refused.
    AllowOpenTodos,
    /// The machine gets settings without the completion check.
    /// The observer still waits for the tool that checks.
    SkipCheck,
    /// The machine gets settings without limits.
    /// Turns, tokens, cost and cycles have no end; the observer still adds them up.
    RaiseLimits,
    /// A subtask continues after its parent stopped waiting for it.
    /// The tool runs on a separate runtime task, which is never dropped.
    KeepSubtasksRunning,
    /// A subtask starts over instead of continuing.
    /// Its journal then holds a second start.
    RestartSubtasks,
}

/// Every kind of sabotage, with the invariants that may notice it first.
///
/// A test runs seeds with each of them until one invariant breaks, and fails if it is another one or
/// none.
pub const SABOTAGES: [(Sabotage, &[Invariant]); 31] = [
    (Sabotage::LoseResult, &[Invariant::OneResult]),
    (Sabotage::RepeatResult, &[Invariant::OneResult]),
    (Sabotage::SwapResults, &[Invariant::CallOrder]),
    (Sabotage::CloseCutCalls, &[Invariant::NeverRuns]),
    (Sabotage::HideAccess, &[Invariant::Allowed]),
    (Sabotage::ApproveDenied, &[Invariant::UserAnswers]),
    (
        Sabotage::ApproveTextAnswer,
        &[Invariant::UserAnswers, Invariant::TrueOutcome],
    ),
    (Sabotage::AcknowledgeEarly, &[Invariant::RecordFirst]),
    (Sabotage::LieAboutSync, &[Invariant::Survives]),
    (Sabotage::RepeatEffect, &[Invariant::OneEffect]),
    (
        Sabotage::DropRunningRecords,
        &[Invariant::OneEffect, Invariant::OneResult],
    ),
    (Sabotage::ClaimReadOnly, &[Invariant::WritesInOrder]),
    (Sabotage::ClaimCompletion, &[Invariant::TrueOutcome]),
    (Sabotage::ForgetReminders, &[Invariant::Replay]),
    (Sabotage::NeverStop, &[Invariant::Ends]),
    (Sabotage::HideTokens, &[Invariant::Totals]),
    (Sabotage::ShowEarly, &[Invariant::Shown]),
    (Sabotage::DropMessages, &[Invariant::MessagesKept]),
    (Sabotage::ApproveByMessage, &[Invariant::UserAnswers]),
    // An unanswered question also keeps the task from ending.
    (
        Sabotage::DropDetach,
        &[Invariant::NobodyAsked, Invariant::Ends],
    ),
    (
        Sabotage::RecordUnsentMessage,
        &[Invariant::Conditions, Invariant::Replay],
    ),
    (Sabotage::MoveMessageFirst, &[Invariant::Prefix]),
    (Sabotage::ForgetInstructions, &[Invariant::Verbatim]),
    (Sabotage::ForgetTodos, &[Invariant::Verbatim]),
    (Sabotage::RestoreLess, &[Invariant::Restores]),
    (Sabotage::PreviewOther, &[Invariant::Restores]),
    (Sabotage::AllowOpenTodos, &[Invariant::Conditions]),
    (Sabotage::SkipCheck, &[Invariant::Conditions]),
    (Sabotage::RaiseLimits, &[Invariant::Limits]),
    (Sabotage::KeepSubtasksRunning, &[Invariant::Family]),
    (Sabotage::RestartSubtasks, &[Invariant::Replay]),
];
