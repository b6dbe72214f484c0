//! The task state machine, its records, and the traits of tools, stores and front ends.
//!
//! The model proposes, [`Task`] decides, and a driver acts: inputs go in, effects come out. [`TaskDriver`] is a driver with tools, a
//! model and a user; the example below drives a task by hand.
//!
//! ```
//! use sabir_agent::{Record, Task, TaskEffect, TaskId, TaskInput, TaskSettings, TaskStart};
//! use sabir_call::{Event, ToolProtocol};
//!
//! let start = TaskStart {
//!     task: TaskId::new("t1"),
//!     prompt: "Greet.".to_owned(),
//!     workspace: "/w".to_owned(),
//!     model: "m".to_owned(),
//!     protocol: ToolProtocol::Native,
//!     version: "1".to_owned(),
//!     edit_tool: None,
//!     mode: None,
//!     from: None,
//! };
//! let settings = TaskSettings::new("m");
//! let (mut task, started) = Task::new(start, settings.clone());
//! assert_eq!(task.step(TaskInput::Begin), [TaskEffect::RequestModel]);
//!
//! // An answer without a call does not end the task: the model is reminded and asked again.
//! task.step(TaskInput::ModelEvent(Event::Text { text: "Hello!" }));
//! let effects = task.step(TaskInput::ModelFinished);
//! assert!(matches!(
//!     effects.as_slice(),
//!     [
//!         TaskEffect::PersistRecord(Record::Answered(_)),
//!         TaskEffect::PersistRecord(Record::Said { .. }),
//!         TaskEffect::RequestModel
//!     ]
//! ));
//!
//! // The records are the whole state: replaying them makes the same task.
//! let kept = effects.into_iter().filter_map(|effect| match effect {
//!     TaskEffect::PersistRecord(record) => Some(record),
//!     _ => None,
//! });
//! let again = Task::replay(std::iter::once(started).chain(kept), settings)?;
//! assert_eq!(again.history(), task.history());
//! # Ok::<(), sabir_agent::ReplayError>(())
//! ```

mod context;
pub mod control;
mod driver;
mod event;
mod mode_history;
mod observer;
mod permit;
mod record;
mod subtask;
mod task;
mod tool;
mod user_command;

pub use context::{
    ContextFragment, ContextSource, DEFAULT_THRESHOLD_PERCENT, EnvironmentFacts, FragmentKind,
    InstructionFile, InstructionTemplate, RequestContext, WorkspaceListing,
};
pub use driver::{CancelToken, DriveError, FrontEnd, TaskDriver};
pub use event::{RuleProposal, TaskEvent, TransientEvent, UserQuestion, UserReply};
pub use mode_history::ModeHistory;
pub use observer::{
    CompactionObjection, DriverObserver, ObservedCall, ObserverFuture, StopObjection, ToolRefusal,
};
pub use permit::{CallDigest, CallPermit, Preconditions};
pub use record::{
    AddedTool, AssistantTurn, CallCheck, CompactionReason, CompactionRecord, ContextChange,
    DecisionMaker, DeliveryTime, EchoSource, FailedTurn, MessageAuthor, OTHER_TOOL, Record,
    RecordStore, StoreError, SubtaskEnd, SummaryAuthor, TaskId, TaskOrigin, TaskOutcome, TaskStart,
    TaskUsage, ToolUsage, ToolUsageTable, ToolsChange,
};
pub use subtask::{
    CompletedSubtask, NewTaskTool, SharedBudget, SubtaskHandle, SubtaskRun, SubtaskSpawnError,
    SubtaskSpawner,
};
pub use task::{
    BudgetPeriod, CompactionPreview, CompactionTiming, CompletionConditions, CompletionForm,
    ContextUsage, Interactivity, MessageDelivery, ModeConfig, OpenTodos, ReplayError,
    SubtaskLimits, Task, TaskEffect, TaskInput, TaskLimits, TaskSettings, UnresolvedDenials,
    UsageTotals, UserMessage, call_paths, call_subject,
};
pub use tool::{
    CallArguments, CallFailure, GroupFilter, InvalidCall, PreparedCall, ProgressSink,
    RefreshFuture, Tool, ToolFuture, ToolOutput, ToolRegistry,
};
pub use user_command::{CommandQueue, UserCommand, UserNotice};
