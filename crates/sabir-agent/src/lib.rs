//! Who decides?
//!
//! The model proposes, [`Task`] decides, and whoever drives it acts: inputs in, effects out. [`Driver`] is one that has tools,
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
//! assert_eq!(task.step(Input::Begin), [Effect::Ask]);
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
mod drive;
mod event;
mod heard;
mod permit;
mod record;
mod subtask;
mod task;
mod tool;
mod trail;

pub use context::{
    Context, Fragment, FragmentKind, InstructionFile, Instructions, Listing, Place, Surroundings, THRESHOLD,
};
pub use drive::{Cancel, Driver, User};
pub use event::{Moment, Proposal, Question, Reply, TaskEvent};
pub use heard::{Aside, Heard};
pub use permit::{Bound, Permit, Seal};
pub use record::{
    Answered, Author, Check, Compacted, Failed, Judge, Origin, Outcome, Record, Shift, Speaker, Start, Store,
    StoreError, SubtaskEnd, TaskId, When, Why,
};
pub use subtask::{Child, Completed, Household, NewTask, Opened, Purse};
pub use task::{
    Attended, Compaction, Conditions, Effect, Filling, Input, Limits, OpenTodos, Outfit, Preview, ReplayError,
    Settings, SubtaskLimits, Task, Totals, Words,
};
pub use tool::{Arguments, Progress, Registry, Tool, ToolOutput, ToolWork};
pub use trail::Trail;
