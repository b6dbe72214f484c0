//! Who decides?

pub mod control;
mod event;
mod policy;
mod record;
mod tool;

pub use event::{Moment, Question, Reply, TaskEvent};
pub use policy::{Judgement, RuleError, Rules};
pub use record::{
    Answered, Check, Judge, Outcome, Record, Speaker, Start, Store, StoreError, TaskId, Verdict,
};
pub use tool::{Access, Arguments, Progress, Registry, Tool, ToolOutput, ToolRun};
