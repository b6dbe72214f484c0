//! Subtasks: tasks of their own that answer a call of their parent's.
//!
//! A subtask has a journal of its own and is driven inside the process of its parent, by a tool: [`NewTask`]. What it is made of
//! (journal, tools, model, user) comes from a [`Household`], because only the binary can make such things. The parent's journal
//! names the subtask before it begins and says what it took when it ends ([`Record::Subtask`]); its name follows from the call, so
//! a call that was running when its process ended is simply run again, and the household opens the journal that is there.
//!
//! The call is answered once. Where a subtask is completed its result is the call's; where it was cancelled the call was
//! interrupted; any other end is a failure that says how it ended, how far it came, and where its records are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{CallId, Model, ToolSpec};

use crate::control::Delegation;
use crate::drive::{Cancel, Driver, User};
use crate::permit::Permit;
use crate::record::{Outcome, Record, Store, SubtaskEnd};
use crate::task::{Limits, Task, Totals};
use crate::tool::{Access, Arguments, Progress, Registry, Tool, ToolOutput, ToolWork};

/// Makes subtasks, and finds those that were begun.
pub trait Household: Send + Sync {
    /// Opens the subtask of a call: a new one, or, where it was begun before, the one that its journal tells of. Its name is
    /// [`TaskId::child`](crate::TaskId::child) of the parent's, its origin [`Origin::Subtask`](crate::Origin::Subtask) with
    /// [`Start::depth`](crate::Start::depth) one more than the parent's. `left` is what the parent's limits allow the subtask: its own
    /// are at most these. Where `left.subtasks.depth` is 0 it is not offered `new_task`.
    ///
    /// # Errors
    /// In words for the model, where there can be none: no such mode, a mode that allows more than the parent's, a journal that
    /// another process works on.
    fn child(&self, call: &CallId, delegation: &Delegation, left: Limits) -> Result<Opened, String>;
}

/// A subtask that was opened.
pub enum Opened {
    /// One that is to work.
    Working(Box<Child>),
    /// One that was completed before its parent knew. No model is asked.
    Completed(Completed),
}

/// All that a subtask is driven with.
pub struct Child {
    /// The task: new, or as its records tell.
    pub task: Task,
    /// The record of its start, if it is new.
    pub first: Option<Record>,
    /// Its journal.
    pub store: Box<dyn Store>,
    /// Its tools.
    pub registry: Registry,
    /// Where its answers come from.
    pub model: Arc<dyn Model>,
    /// Who watches it. Whoever cancels it alone says so with [`Heard::Cancelled`](crate::Heard::Cancelled).
    pub user: Box<dyn User>,
    /// The most time, from now, beside what its parent has.
    pub max_time: Option<Duration>,
}

/// What a completed subtask tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// The result, as it gave it.
    pub result: String,
    /// What it took in all.
    pub end: SubtaskEnd,
}

/// The tool behind `new_task`. One for each task that has subtasks.
pub struct NewTask {
    household: Arc<dyn Household>,
    /// How to end those that run, or are about to.
    running: Mutex<HashMap<CallId, Cancel>>,
}

impl NewTask {
    /// A tool for the subtasks of that household.
    pub fn new(household: Arc<dyn Household>) -> Self {
        Self { household, running: Mutex::default() }
    }

    fn cancel(&self, call: &CallId) -> Cancel {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.entry(call.clone()).or_default().clone()
    }
}

impl Tool for NewTask {
    fn spec(&self) -> ToolSpec {
        crate::control::subtask_spec()
    }

    fn reads_only(&self) -> bool {
        false
    }

    /// Nothing: each call of the subtask's own is judged when it is made.
    fn access(&self, arguments: &Arguments) -> Access {
        match Delegation::read(arguments) {
            Ok(_) => Access::Nothing,
            Err(error) => Access::Invalid { reason: format!("{error}.") },
        }
    }

    fn run<'a>(&'a self, permit: &'a Permit, arguments: &'a Arguments, _: Progress<'a>) -> ToolWork<'a> {
        Box::pin(async move {
            let delegation = match Delegation::read(arguments) {
                Ok(delegation) => delegation,
                Err(error) => return ToolOutput::failed(format!("{error}.")),
            };
            match self.household.child(&permit.call, &delegation, permit.left) {
                Ok(Opened::Working(child)) => work(*child, self.cancel(&permit.call)).await,
                Ok(Opened::Completed(completed)) => completed.output(),
                Err(words) => ToolOutput::failed(words),
            }
        })
    }

    fn give_up(&self, call: &CallId) {
        self.cancel(call).cancel();
    }
}

impl Completed {
    /// What the records of a subtask tell; `None` where it is not completed.
    pub fn of(records: &[Record]) -> Option<Self> {
        let Some(Record::Ended { outcome: Outcome::Completed, message }) = records.last() else { return None };
        let mut totals = Totals::default();
        records.iter().for_each(|record| totals.note(record));
        let turns = records.iter().filter(|record| matches!(record, Record::Answered(_))).count();
        let turns = u32::try_from(turns).unwrap_or(u32::MAX);
        let Totals { usage, estimate, cost } = totals;
        let end = SubtaskEnd { outcome: Outcome::Completed, turns, usage, estimate, cost };
        Some(Self { result: message.clone(), end })
    }

    fn output(self) -> ToolOutput {
        ToolOutput { subtask: Some(self.end), ..ToolOutput::done(self.result) }
    }
}

/// Drives a subtask to its end.
async fn work(child: Child, cancel: Cancel) -> ToolOutput {
    let Child { mut task, first, mut store, registry, model, mut user, max_time } = child;
    let (model, registry) = (model.as_ref(), &registry);
    let driver = Driver { model, registry, store: store.as_mut(), user: user.as_mut(), cancel, max_time };
    let (_outcome, message) = driver.run(&mut task, first, None).await;
    ToolOutput::failed(message)
}
