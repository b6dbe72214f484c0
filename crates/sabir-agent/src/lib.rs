//! Who decides?
//!
//! The model proposes, [`Task`] decides, and whoever drives it acts: inputs in, effects out. [`TaskDriver`] is one that has tools,
//! a model and a user; here it is done by hand.
//!
//! ```
//! use sabir_agent::{Attended, Effect, Input, Limits, Record, Settings, Start, Task, TaskId};
//! use sabir_policy::Rules;
//! use sabir_call::{Event, Protocol, ToolSet};
//!
//! let [prompt, workspace, model, version] = ["Greet.", "/w", "m", "1"].map(str::to_owned);
//! let (task, protocol, edit_tool, mode, from) = (TaskId::new("t1"), Protocol::Native, None, None, None);
//! let start = Start { task, prompt, workspace, model, protocol, version, edit_tool, mode, from };
//! let (system, model, tools) = (String::new(), "m".to_owned(), ToolSet::default());
//! let (readers, pollers, max_output) = (Vec::new(), Vec::new(), None);
//! let (rules, limits, repairs) = (Rules::default(), Limits::default(), Default::default());
//! let (attended, prices, completion) = (Attended::No, Default::default(), Default::default());
//! let settings =
//!     Settings { system, model, tools, readers, pollers, rules, attended, limits, completion, repairs, max_output, prices };
//! let (mut task, started) = Task::new(start, settings.clone());
//! assert_eq!(task.step(Input::Begin), [TaskEffect::RequestModel]);
//!
//! // An answer without a call ends nothing: the model is reminded, and asked again.
//! task.step(Input::Event(Event::Text { text: "Hello!" }));
//! let effects = task.step(Input::Answered);
//! assert!(matches!(effects.as_slice(), [Effect::Keep(Record::Answered(_)), Effect::Keep(Record::Said { .. }), Effect::Ask]));
//!
//! // What was kept is all that there is to the task.
//! let kept = effects.into_iter().filter_map(|effect| if let Effect::Keep(record) = effect { Some(record) } else { None });
//! let again = Task::replay(std::iter::once(started).chain(kept), settings)?;
//! assert_eq!(again.history(), task.history());
//! # Ok::<(), sabir_agent::ReplayError>(())
//! ```

mod context;
pub mod control;
mod driver;
mod event;
mod mode_history;
mod permit;
mod record;
mod subtask;
mod task;
mod tool;
mod user_command;

pub use context::{
    ContextFragment, ContextSource, DEFAULT_THRESHOLD_PERCENT, EnvironmentFacts, FragmentKind, InstructionFile,
    InstructionTemplate, RequestContext, WorkspaceListing,
};
pub use driver::{CancelToken, FrontEnd, TaskDriver};
pub use event::{RuleProposal, TaskEvent, TransientEvent, UserQuestion, UserReply};
pub use mode_history::ModeHistory;
pub use permit::{CallDigest, CallPermit, Preconditions};
pub use record::{
    AssistantTurn, CallCheck, CompactionReason, CompactionRecord, ContextChange, DecisionMaker, Delivery, FailedTurn,
    MessageAuthor, Record, RecordStore, StoreError, SubtaskEnd, SummaryAuthor, TaskId, TaskOrigin, TaskOutcome,
    TaskStart,
};
pub use subtask::{CompletedSubtask, NewTaskTool, SharedBudget, SubtaskHandle, SubtaskRun, SubtaskSpawner};
pub use task::{
    CompactionPreview, CompactionTiming, CompletionConditions, ContextUsage, Interactivity, ModeConfig, OpenTodos,
    ReplayError, SubtaskLimits, Task, TaskEffect, TaskInput, TaskLimits, TaskSettings, UsageTotals, UserMessage,
};
pub use tool::{CallArguments, ProgressSink, Tool, ToolOutput, ToolRegistry, ToolWork};
pub use user_command::{CommandQueue, UserCommand, UserNotice};
