//! Records: everything that happened to a task, in the only form in which it is remembered.
//!
//! A record is written before its consequences: a call's `running` record is on disk before the
//! tool starts. State is never stored; [`Task`](crate::Task) derives it from the records, which is
//! also how a task is resumed.
//!
//! Each record is one JSON object with a `kind`; the same objects are printed by `--output events`
//! and by `sabir log`.

use std::collections::BTreeMap;

use sabir_call::{
    CallId, CallResult, Cost, Fault, Image, MessagePart, ModelErrorKind, Severity, StopReason,
    ToolProtocol, ToolResultStatus, ToolSpec, Usage,
};
use sabir_check::Repair;
use sabir_policy::{ToolGroup, Verdict};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::context::ContextFragment;
use crate::permit::CallDigest;

/// The name of a task: letters, digits and `-`. The binary uses UUIDs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(String);

impl TaskId {
    /// Wraps a name.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Derives the name of the subtask that a call of this task begins: this name, `-`, and 8 hexadecimal digits of SHA-256 over this name,
    /// a NUL and the call's id. Thus the call determines the journal of its subtask.
    #[must_use]
    pub fn child_id(&self, call: &CallId) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.as_bytes());
        // A task's name holds no NUL: it ends here, and no two pairs of names hash the same bytes.
        hash.update([0]);
        hash.update(call.as_str().as_bytes());
        let digits: String = hash
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self(format!("{}-{digits}", self.0))
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entry of a task's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// The task began. Always the first record.
    Started(TaskStart),
    /// The user, or Sabir, sent a message to the model.
    Said {
        /// The author.
        by: MessageAuthor,
        /// The text; empty if only images are sent.
        text: String,
        /// Images that belong to the text; the model sees them before it. Absent in records of
        /// earlier versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// The moment at which the model reads it. Absent in records of earlier versions, which
        /// took no messages while an answer was written.
        #[serde(default, skip_serializing_if = "DeliveryTime::is_next")]
        when: DeliveryTime,
    },
    /// The model answered in full.
    Answered(AssistantTurn),
    /// The model could not be asked, or its answer broke off. No part of the answer is kept.
    Failed(FailedTurn),
    /// A call was allowed or denied.
    Judged {
        /// The call.
        call: CallId,
        /// The verdict.
        verdict: Verdict,
        /// The decision maker.
        by: DecisionMaker,
        /// The reason, as text.
        reason: String,
    },
    /// A call is about to run. The record is on disk before anything is done.
    Running {
        /// The call.
        call: CallId,
        /// The digest that the call was permitted with, for readers of the journal: no permission
        /// is ever derived from it. Absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<CallDigest>,
    },
    /// A subtask is about to begin, or its run has ended. Its records are in a journal of their
    /// own.
    Subtask {
        /// The call that it answers.
        call: CallId,
        /// Its name, which follows from the parent's name and the call's ([`TaskId::child_id`]). It
        /// is `child` in JSON, since `task` on a line of `--output events` names the task that the
        /// line belongs to.
        #[serde(rename = "child")]
        task: TaskId,
        /// The end, with the usage of the subtask. Absent before it begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<SubtaskEnd>,
    },
    /// A call has its result.
    Result(CallResult),
    /// The context changed: the fragments that the model sees besides the history, or the summary
    /// that replaces a part of it.
    Context(ContextChange),
    /// The journal was damaged after the previous record, and later records are lost: calls whose results they held may
    /// have run.
    Damaged {
        /// The number of bytes that could not be read.
        bytes: u64,
        /// The name of the file, beside the journal, that those bytes were saved to. None in a fork, whose original keeps them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saved_as: Option<String>,
    },
    /// A run of the task ended. Unless the outcome is `completed`, the task can be resumed.
    Ended {
        /// The outcome.
        outcome: TaskOutcome,
        /// A message for the user.
        message: String,
        /// Everything that the task used in its life so far. Absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        used: Option<Box<TaskUsage>>,
    },
}

/// The total usage of a task so far, including its subtasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// Tokens as the provider reported them.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub usage: Usage,
    /// Guesses (bytes / 4) of the tokens that the provider did not report.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub estimate: Usage,
    /// The cost, as far as it was known then.
    #[serde(default = "unknown_cost", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
    /// The calls of the task itself, by the names of their tools.
    #[serde(default, skip_serializing_if = "ToolUsageTable::is_empty")]
    pub tools: ToolUsageTable,
}

/// The use of each tool, by name. Calls of tools that do not exist are counted as
/// [`OTHER_TOOL`].
pub type ToolUsageTable = BTreeMap<String, ToolUsage>;

/// The name under which calls of all unknown tools are counted, because models may write any text
/// as a name. OpenTelemetry uses the same word for values that are not listed.
pub const OTHER_TOOL: &str = "_OTHER";

/// The use of one tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUsage {
    /// The calls that have a result.
    pub calls: u32,
    /// The calls among them that failed, were rejected or were interrupted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The calls among them that were denied.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denials: u32,
}

impl ToolUsage {
    /// Adds the end of a call.
    pub fn note_result(&mut self, ending: ToolResultStatus) {
        self.calls = self.calls.saturating_add(1);
        match ending {
            ToolResultStatus::Done => {}
            ToolResultStatus::Denied => self.denials = self.denials.saturating_add(1),
            _ => self.failures = self.failures.saturating_add(1),
        }
    }
}

/// The start of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStart {
    /// Its name.
    pub task: TaskId,
    /// The user's first message.
    pub prompt: String,
    /// The folder that it works in.
    pub workspace: String,
    /// The model's name as the user gave it.
    pub model: String,
    /// The protocol, which is fixed for the task.
    pub protocol: ToolProtocol,
    /// The version of Sabir that wrote the record.
    pub version: String,
    /// The tool for changing parts of files, which is fixed for the task. Absent in records of
    /// earlier versions, where it was `replace_in_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_tool: Option<String>,
    /// The mode that it began in; absent for the default one. It still holds when the task is
    /// resumed, unless another is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The origin, if the task is a fork, a subtask or an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TaskOrigin>,
}

impl TaskStart {
    /// Returns the number of tasks above it; 0 for a task that is not a subtask.
    pub fn depth(&self) -> u32 {
        match &self.from {
            Some(TaskOrigin::Subtask { depth, .. }) => *depth,
            _ => 0,
        }
    }
}

/// The origin of a task that was not started by a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskOrigin {
    /// Its first records are those of another task.
    Fork {
        /// The other task.
        task: TaskId,
        /// The number of the last record that was taken, counted from 1.
        record: u64,
    },
    /// Its records were converted from another program's history. It can be read and forked, but
    /// not resumed.
    Import {
        /// The program: `cline`, `roo` or `claude_code`.
        program: String,
        /// The file or folder that was read.
        source: String,
        /// Descriptions of what was not imported.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A call of another task began it. The message of that call is its prompt.
    Subtask {
        /// The other task.
        task: TaskId,
        /// The call.
        call: CallId,
        /// The number of tasks above it: 1 for the subtask of a task that is not a subtask itself.
        depth: u32,
        /// Its first todo list, as the call gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        todos: Option<String>,
    },
}

/// The end of a subtask's run, with the usage of the subtask and of its own subtasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskEnd {
    /// The outcome.
    pub outcome: TaskOutcome,
    /// The number of answers. In a record, this and the fields below count only what no earlier
    /// record of the task has counted.
    pub turns: u32,
    /// Tokens as the provider reported them.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub usage: Usage,
    /// Guesses (bytes / 4) of the tokens that the provider did not report.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub estimate: Usage,
    /// The cost, as far as it was known then.
    #[serde(default = "unknown_cost", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantTurn {
    /// The number of the turn, counted from 1.
    pub turn: u32,
    /// The parts of the answer. Calls have ids that are unique in the task.
    pub parts: Vec<MessagePart>,
    /// The results of the checks, one for each call in `parts`.
    pub checks: Vec<CallCheck>,
    /// Faults that concern no call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Tokens, as the provider reported them.
    pub usage: Usage,
    /// Guesses (bytes / 4) of the tokens that the provider did not report.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub estimate: Usage,
    /// The cost, as far as it was known then.
    #[serde(default = "unknown_cost", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
    /// The stop reason that the provider reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Feedback for the model on mistakes that concern no call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// A turn that failed before its answer was complete, with its usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTurn {
    /// The kind of failure.
    pub error: ModelErrorKind,
    /// The failure, as text.
    pub message: String,
    /// Tokens of an answer that broke off, as far as the provider reported them.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub usage: Usage,
    /// Guesses (bytes / 4) of the tokens that the provider did not report.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub estimate: Usage,
    /// The cost, as far as it was known then.
    #[serde(default = "unknown_cost", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
}

/// The result of the checks for one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallCheck {
    /// The call.
    pub call: CallId,
    /// True if the call may run.
    pub passed: bool,
    /// The repairs that were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
    /// The faults that were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Feedback for the model: the reason why the call may not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// True if the call was read out of text although the session is native. Absent in records of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recovered_from_text: bool,
    /// The text in which the call occurs, if it was written as text and the model had read that
    /// text. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo_of: Option<EchoSource>,
    /// The arguments whose values were written on lines of their own, between tags. Absent in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrapped: Vec<String>,
}

/// A text that the model had read and that contains a call that the model then wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EchoSource {
    /// The result of an earlier call.
    Result {
        /// The call.
        call: CallId,
        /// The name of its tool.
        tool: String,
    },
    /// A message of the user.
    Message,
    /// A text that describes the workspace, such as a file with instructions.
    Context {
        /// Its name.
        name: String,
    },
}

/// A change of the part of a task that the model sees. The history itself never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContextChange {
    /// The context was announced: these fragments follow the instructions in every request.
    Begun {
        /// The fragments, in this order.
        fragments: Vec<ContextFragment>,
    },
    /// The context changed. The beginning of the requests stays as it is until the next compaction.
    Changed {
        /// The fragments as they are now.
        fragments: Vec<ContextFragment>,
        /// The message that tells the model of the change, at the end of the request.
        told: String,
    },
    /// Earlier messages were replaced by a summary.
    Compacted(Box<CompactionRecord>),
    /// The last compaction was undone.
    Restored,
    /// The user switched to another mode, or resumed the task in it.
    Moded {
        /// The mode.
        mode: String,
        /// The message that tells the model of the switch.
        told: String,
        /// The moment at which the model reads it. The mode holds at once.
        #[serde(default, skip_serializing_if = "DeliveryTime::is_next")]
        when: DeliveryTime,
    },
    /// Tools have appeared or disappeared. Requests offer the present ones from now on.
    Tools(ToolsChange),
}

/// A change of the tools during a task. Removals come before additions: a replaced tool is in both
/// lists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsChange {
    /// The tools that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<AddedTool>,
    /// The names of the tools that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// A tool that was added, with everything that the task must know about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddedTool {
    /// The name, the description and the schema.
    #[serde(flatten)]
    pub spec: ToolSpec,
    /// The group by which modes offer or withhold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ToolGroup>,
    /// True if it only reads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_only: bool,
    /// True if it polls for something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub polls: bool,
    /// True if models are not shown it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl ToolsChange {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Adds a tool, in place of one of the same name.
    pub(crate) fn note_added(&mut self, tool: AddedTool) {
        self.added.retain(|known| known.spec.name != tool.spec.name);
        self.added.push(tool);
    }

    /// Removes the tool of that name.
    pub(crate) fn note_removed(&mut self, name: &str) {
        // The later change wins, so a tool that was added and then removed is in one list only.
        self.added.retain(|known| known.spec.name != name);
        if !self.removed.iter().any(|known| known == name) {
            self.removed.push(name.to_owned());
        }
    }
}

/// A compaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionRecord {
    /// The reason.
    pub why: CompactionReason,
    /// The author of the summary.
    pub by: SummaryAuthor,
    /// The reason why the model did not write the summary, if it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The number of messages at the beginning of the history that are left out.
    pub messages: usize,
    /// The texts that replace them for the model; the last one is the summary.
    pub head: Vec<String>,
    /// The tokens of a request before the compaction, as far as they are known.
    pub before: u64,
    /// The estimated tokens of a request after it.
    pub after: u64,
    /// Tokens of the summary's request, as the provider reported them.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub usage: Usage,
    /// Guesses (bytes / 4) of the tokens that the provider did not report.
    #[serde(default, skip_serializing_if = "is_unreported")]
    pub estimate: Usage,
    /// The cost of the summary, as far as it was known then.
    #[serde(default = "unknown_cost", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
}

/// The reason for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// The context has reached the threshold.
    Threshold,
    /// The provider refused a request as too long.
    Overflow,
    /// The user asked for it.
    Asked,
}

/// The author of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryAuthor {
    /// The model of the task.
    Model,
    /// Sabir, without a model: one line for each call.
    Sabir,
}

/// Returns the cost of records of earlier versions, which do not hold it.
fn unknown_cost() -> Cost {
    Cost::UNKNOWN
}

fn is_unreported(usage: &Usage) -> bool {
    *usage == Usage::default()
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

impl CallCheck {
    /// Returns the feedback for the model: the reason why the call may not run.
    pub fn feedback_text(&self) -> String {
        let error = self
            .faults
            .iter()
            .find(|fault| fault.severity == Severity::Error);
        let words = self.feedback.as_ref().or(error.map(|fault| &fault.message));
        words.map_or_else(
            || "The call was not understood and was not run.".to_owned(),
            String::clone,
        )
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageAuthor {
    /// The user.
    User,
    /// Sabir, with a reminder or an announcement.
    Sabir,
}

/// The moment at which the model reads a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryTime {
    /// With the next request.
    #[default]
    Next,
    /// After the answer that is being written, whose request did not contain the message. If that
    /// answer fails, the message goes with the next request.
    Later,
}

impl DeliveryTime {
    fn is_next(&self) -> bool {
        *self == Self::Next
    }
}

/// The author of a verdict on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionMaker {
    /// The rules.
    Policy,
    /// The user.
    User,
}

/// The outcome of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskOutcome {
    /// The completion was accepted.
    Completed,
    /// The model stopped without completing.
    Unfinished,
    /// The model could not continue because calls were denied.
    Denied,
    /// A limit was reached.
    Limit,
    /// The provider failed.
    ProviderFailed,
    /// The provider cannot be asked with this configuration (no key, no such model).
    Misconfigured,
    /// The user interrupted the task.
    Cancelled,
    /// The journal could not be written.
    StoreFailed,
}

/// The reason why a record could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// A store of records.
pub trait RecordStore: Send {
    /// Keeps a record and returns when it would survive a power cut. Records come back in the order
    /// in which they were appended.
    ///
    /// # Errors
    /// If the record may not survive. The task then ends, since it could no longer be resumed.
    fn append(&mut self, record: &Record) -> Result<(), StoreError>;
}
