//! Records: what happened to a task, in the only form in which it is remembered.
//!
//! A record is written before its consequences are: a call's `running` record is on disk before the tool starts. State is
//! never stored; it is what [`Task`](crate::Task) makes of the records, which is also how a task is resumed.
//!
//! Each record is one JSON object with a `kind`; the same objects are printed by `--output events` and by `sabir log`.

use sabir_call::{
    CallId, CallResult, Cost, Fault, Image, MessagePart, ModelErrorKind, Severity, StopReason,
    ToolProtocol, ToolSpec, Usage,
};
use sabir_check::Repair;
use sabir_policy::{ToolGroup, Verdict};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::context::ContextFragment;
use crate::permit::CallDigest;

/// The name of a task: a UUID or whatever else the binary chose; letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(String);

impl TaskId {
    /// Wraps a name.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the subtask that a call of this task begins: this name, `-`, and 8 hexadecimal digits of SHA-256 over this name,
    /// a NUL and the call's. So whoever knows the call knows the subtask's journal.
    #[must_use]
    pub fn child_id(&self, call: &CallId) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.as_bytes());
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

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// The task began. Always the first record.
    Started(TaskStart),
    /// Somebody said something that the model is to read.
    Said {
        /// Who.
        by: MessageAuthor,
        /// What; empty where nothing but pictures are shown.
        text: String,
        /// Pictures that belong to it; the model sees them before the words. Earlier versions took none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// When the model reads it. Earlier versions said nothing while an answer was written.
        #[serde(default, skip_serializing_if = "Delivery::is_next")]
        when: Delivery,
    },
    /// The model answered in full.
    Answered(AssistantTurn),
    /// The model could not be asked, or its answer broke off. Nothing of it is kept.
    Failed(FailedTurn),
    /// A call was judged.
    Judged {
        /// The call.
        call: CallId,
        /// The verdict.
        verdict: Verdict,
        /// Who judged.
        by: DecisionMaker,
        /// Why, in words.
        reason: String,
    },
    /// A call is about to run. On disk before anything is done.
    Running {
        /// The call.
        call: CallId,
        /// What it was permitted as, for whoever looks through the journal. Earlier versions wrote none. Nothing is ever permitted by
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<CallDigest>,
    },
    /// A subtask is about to begin, or has ended for now. Its own records are in a journal of its own.
    Subtask {
        /// The call that it answers.
        call: CallId,
        /// Its name, which follows from the parent's and the call's ([`TaskId::child_id`]). As JSON `child`, since `task` on a line of
        /// `--output events` says whose line it is.
        #[serde(rename = "child")]
        task: TaskId,
        /// How it ended. Absent before it begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<SubtaskEnd>,
    },
    /// A call has its result.
    Result(CallResult),
    /// What the model sees besides, or instead of, what happened.
    Context(ContextChange),
    /// The task ended, for now: an end that is not `completed` can be resumed.
    Ended {
        /// How.
        outcome: TaskOutcome,
        /// In words.
        message: String,
    },
}

/// How a task began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStart {
    /// Its name.
    pub task: TaskId,
    /// The user's words.
    pub prompt: String,
    /// The folder in which it works.
    pub workspace: String,
    /// The model's name as the user gives it.
    pub model: String,
    /// Locked for the task.
    pub protocol: ToolProtocol,
    /// The version of Sabir that wrote the record.
    pub version: String,
    /// The tool that the model is offered to change parts of files, locked for the task. Records of earlier versions do not
    /// say it: it was `replace_in_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_tool: Option<String>,
    /// The mode it was begun in, if it was not the usual one. It holds when the task is resumed, unless another is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Where it comes from, if it is a fork or a subtask, or was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TaskOrigin>,
}

impl TaskStart {
    /// How many tasks stand above it; 0 for one that is no subtask.
    pub fn depth(&self) -> u32 {
        match &self.from {
            Some(TaskOrigin::Subtask { depth, .. }) => *depth,
            _ => 0,
        }
    }
}

/// Where a task comes from that no user began.
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
    /// Its records were made of another program's history. It can be read and forked, not resumed.
    Import {
        /// The program: `cline`, `roo` or `claude_code`.
        program: String,
        /// The file or folder that was read.
        source: String,
        /// What of it is not in the records, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A call of another task began it. The message of that call is its prompt.
    Subtask {
        /// The other task.
        task: TaskId,
        /// The call.
        call: CallId,
        /// How many tasks stand above it: 1 for the subtask of a task that is none itself.
        depth: u32,
        /// Its first list of todos, as the call gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        todos: Option<String>,
    },
}

/// How a subtask ended, for now, and what it took, its own subtasks included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtaskEnd {
    /// How.
    pub outcome: TaskOutcome,
    /// Answers. In a record these, and what follows, are those that no earlier record of the task tells.
    pub turns: u32,
    /// Tokens as the provider reported them.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub usage: Usage,
    /// Guesses (bytes / 4) for what it did not report.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub estimate: Usage,
    /// What that cost, as far as it was known then.
    #[serde(default = "unknown", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantTurn {
    /// Counted from 1.
    pub turn: u32,
    /// What it wrote; calls have ids that are unique in the task.
    pub parts: Vec<MessagePart>,
    /// What the gates said, one for each call in `parts`.
    pub checks: Vec<CallCheck>,
    /// Faults that concern no call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Tokens, as the provider reported them.
    pub usage: Usage,
    /// Guesses (bytes / 4) for what it did not report.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub estimate: Usage,
    /// What it cost, as far as that was known then.
    #[serde(default = "unknown", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
    /// Why the provider says it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// What the model is to be told of its mistakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// Why there is no answer, and what that took all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTurn {
    /// What kind of failure.
    pub error: ModelErrorKind,
    /// In words.
    pub message: String,
    /// Tokens of an answer that broke off, as far as the provider reported them.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub usage: Usage,
    /// Guesses (bytes / 4) for what it did not report.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub estimate: Usage,
    /// What it cost, as far as that was known then.
    #[serde(default = "unknown", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
}

/// What the gates said of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallCheck {
    /// The call.
    pub call: CallId,
    /// Whether it may run.
    pub passed: bool,
    /// What was repaired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
    /// What was wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Why it may not run, in words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// What changes in what the model sees of a task. The history itself never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContextChange {
    /// What stands behind the instructions in every request.
    Begun {
        /// In this order.
        fragments: Vec<ContextFragment>,
    },
    /// Those are no longer what they were. The beginning of the requests stays as it is until the next compaction.
    Changed {
        /// What they are now.
        fragments: Vec<ContextFragment>,
        /// What the model is told of that, at the end.
        told: String,
    },
    /// Earlier messages stand for themselves no more.
    Compacted(Box<CompactionRecord>),
    /// The last compaction is undone.
    Restored,
    /// The user has switched to another mode, or resumed the task in it.
    Moded {
        /// The mode.
        mode: String,
        /// What the model is told of that.
        told: String,
        /// When it reads that. The mode holds at once.
        #[serde(default, skip_serializing_if = "Delivery::is_next")]
        when: Delivery,
    },
    /// Tools have appeared or disappeared. Requests offer the present ones from now on.
    Tools(ToolsChange),
}

/// A change of the tools while the task is under way. Removals come before additions: a tool that is replaced is in both lists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsChange {
    /// The tools that there are from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<AddedTool>,
    /// The names of the tools that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// A tool that was added, with all that the task has to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddedTool {
    /// The name, the description and the schema.
    #[serde(flatten)]
    pub spec: ToolSpec,
    /// The group by which modes offer or withhold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ToolGroup>,
    /// Whether it only reads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_only: bool,
    /// Whether it polls for something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub polls: bool,
    /// Whether models are not shown it.
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
        self.added.retain(|known| known.spec.name != name);
        if !self.removed.iter().any(|known| known == name) {
            self.removed.push(name.to_owned());
        }
    }
}

/// A compaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionRecord {
    /// Why.
    pub why: CompactionReason,
    /// Who wrote the summary.
    pub by: SummaryAuthor,
    /// Why the model did not write it, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How many messages of the history, counted from its beginning, are left out.
    pub messages: usize,
    /// What the model reads instead of them; the summary is the last of it.
    pub head: Vec<String>,
    /// The tokens of a request before it, as far as that is known.
    pub before: u64,
    /// Those after it, as an estimate.
    pub after: u64,
    /// Tokens of the summary's request, as the provider reported them.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub usage: Usage,
    /// Guesses (bytes / 4) for what it did not report.
    #[serde(default, skip_serializing_if = "is_silent")]
    pub estimate: Usage,
    /// What that cost, as far as it was known then.
    #[serde(default = "unknown", skip_serializing_if = "Cost::is_unknown")]
    pub cost: Cost,
}

/// Why a context is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// It is as full as it may get.
    Threshold,
    /// The provider refused a request as too long.
    Overflow,
    /// The user asked for it.
    Asked,
}

/// Who writes a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryAuthor {
    /// The model of the task.
    Model,
    /// Sabir: a line for each call, made without a model.
    Sabir,
}

/// Records of earlier versions tell no cost.
fn unknown() -> Cost {
    Cost::UNKNOWN
}

fn is_silent(usage: &Usage) -> bool {
    *usage == Usage::default()
}

impl CallCheck {
    /// Why the call may not run, in words for the model.
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

/// Who spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageAuthor {
    /// The user.
    User,
    /// Sabir: a reminder.
    Sabir,
}

/// When the model reads what was said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// With what it is asked next.
    #[default]
    Next,
    /// An answer was being written to a request that did not hold the words: they stand behind that answer. Where it never
    /// comes, they are read with what is asked next.
    Later,
}

impl Delivery {
    fn is_next(&self) -> bool {
        *self == Self::Next
    }
}

/// Who judged a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionMaker {
    /// The rules.
    Policy,
    /// The user.
    User,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskOutcome {
    /// The completion was accepted.
    Completed,
    /// The model stopped without completing.
    Unfinished,
    /// The model could not go on because calls were denied.
    Denied,
    /// A limit of the user's was reached.
    Limit,
    /// The provider failed.
    ProviderFailed,
    /// The provider cannot be asked as things are set up (no key, no such model).
    Misconfigured,
    /// The user interrupted.
    Cancelled,
    /// The journal could not be written.
    StoreFailed,
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Where records are kept.
pub trait RecordStore: Send {
    /// Keeps a record and returns when it would survive a power cut. Records come back in the order of their appending.
    ///
    /// # Errors
    /// When the record may not survive. The task then ends, since it could no longer be resumed.
    fn append(&mut self, record: &Record) -> Result<(), StoreError>;
}
