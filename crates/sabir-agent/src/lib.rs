//! Who decides?

mod context;
pub mod control;
mod drive;
mod event;
mod policy;
mod record;
mod task;
mod tool;

pub use context::Instructions;
pub use drive::{Cancel, Driver, User};
pub use event::{Moment, Question, Reply, TaskEvent};
pub use policy::{Judgement, RuleError, Rules};
pub use record::{Answered, Check, Judge, Outcome, Record, Speaker, Start, Store, StoreError, TaskId, Verdict};
pub use task::{Attended, Effect, Input, Limits, ReplayError, Settings, Task};
pub use tool::{Access, Arguments, Progress, Registry, Tool, ToolOutput, ToolWork};
