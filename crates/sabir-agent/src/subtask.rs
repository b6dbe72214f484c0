//! Subtasks: tasks of their own that answer a call of their parent's.
//!
//! A subtask has a journal of its own and is driven inside the process of its parent, by a tool: [`NewTask`]. What it is made of
//! (journal, tools, model, user) comes from a [`Household`], because only the binary can make such things. The parent's journal
//! names the subtask before it begins and says what it took when it ends ([`Record::Subtask`]); its name follows from the call, so
//! a call that was running when its process ended is simply run again, and the household opens the journal that is there.
//!
//! The call is answered once. Where a subtask is completed its result is the call's; where it was cancelled the call was
//! interrupted; any other end is a failure that says how it ended, how far it came, and where its records are.

mod purse;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{CallId, Message, Model, Part, Role, ToolSpec};
use sabir_policy::Access;

use crate::context::fragment::beginning;
use crate::control::{self, Delegation};
use crate::drive::{Cancel, Driver, User};
use crate::permit::Permit;
use crate::record::{Outcome, Record, Store, SubtaskEnd};
use crate::task::{Limits, Task, Totals};
use crate::tool::{Arguments, Progress, Registry, Tool, ToolOutput, ToolWork};

pub use purse::Purse;
use purse::{Counted, Shared};

/// The most bytes of the last words of a subtask that did not complete.
const LAST_WORDS: usize = 4 * 1024;

/// Makes subtasks, and finds those that were begun.
pub trait Household: Send + Sync {
    /// Opens the subtask of a call: a new one, or, where it was begun before, the one that its journal tells of. Its name is
    /// [`TaskId::child`](crate::TaskId::child) of the parent's, its origin [`Origin::Subtask`](crate::Origin::Subtask) with
    /// [`Start::depth`](crate::Start::depth) one more than the parent's. `left` is what the parent's limits allow the subtask: its own
    /// are at most these. Where `left.subtasks.depth` is 0 it is not offered `new_task`.
    ///
    /// # Errors
    /// In words for the model, where there can be none: no such mode, a parent's mode that hands no work on, one that was begun in
    /// a mode that now allows more than the parent's, a journal that another process works on.
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
    /// What those share that run, where the task itself shares nothing with others.
    shared: Shared,
}

impl NewTask {
    /// A tool for the subtasks of that household.
    pub fn new(household: Arc<dyn Household>) -> Self {
        Self { household, running: Mutex::default(), shared: Shared::default() }
    }

    fn cancel(&self, call: &CallId) -> Cancel {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.entry(call.clone()).or_default().clone()
    }

    fn forget(&self, call: &CallId) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(call);
    }
}

impl std::fmt::Debug for NewTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTask").finish_non_exhaustive()
    }
}

impl Tool for NewTask {
    fn spec(&self) -> ToolSpec {
        control::subtask_spec()
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
            let purse = permit.purse.or(|| self.shared.purse(permit.left));
            let cancel = self.cancel(&permit.call);
            let output = match self.household.child(&permit.call, &delegation, permit.left) {
                Ok(Opened::Working(child)) => work(*child, cancel, purse).await,
                Ok(Opened::Completed(completed)) => completed.output(),
                Err(words) => ToolOutput::failed(words),
            };
            self.forget(&permit.call);
            output
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
        let turns = records.iter().map(|record| match record {
            Record::Answered(_) => 1,
            Record::Subtask { ended: Some(end), .. } => end.turns,
            _ => 0,
        });
        let turns = turns.fold(0, u32::saturating_add);
        let Totals { usage, estimate, cost } = totals;
        let end = SubtaskEnd { outcome: Outcome::Completed, turns, usage, estimate, cost };
        Some(Self { result: message.clone(), end })
    }

    fn output(self) -> ToolOutput {
        ToolOutput { subtask: Some(self.end), ..ToolOutput::done(self.result) }
    }
}

/// Drives a subtask to its end.
async fn work(child: Child, cancel: Cancel, purse: Purse) -> ToolOutput {
    let Child { mut task, first, store, registry, model, mut user, max_time } = child;
    let mut store = Counted { store, purse: purse.clone() };
    let (model, registry) = (model.as_ref(), &registry);
    let driver = Driver { model, registry, store: &mut store, user: user.as_mut(), cancel, max_time };
    // On the heap, since a subtask may have subtasks.
    let (outcome, message) = Box::pin(driver.run_within(&purse, &mut task, first, None)).await;
    let end = task.taken(outcome);
    if outcome == Outcome::Completed {
        return Completed { result: message, end }.output();
    }
    ToolOutput { subtask: Some(end), ..ToolOutput::failed(failure(&task, outcome, &message)) }
}

/// What the parent is told of a subtask that did not complete.
fn failure(task: &Task, outcome: Outcome, message: &str) -> String {
    let why = match outcome {
        Outcome::Cancelled => "was cancelled",
        Outcome::Limit => "reached a limit",
        Outcome::Denied => "could not go on, since calls were denied",
        Outcome::ProviderFailed => "ended because the provider failed",
        Outcome::Misconfigured => "cannot be answered as things are set up",
        Outcome::StoreFailed => "ended because its journal could not be written",
        Outcome::Completed | Outcome::Unfinished => "ended without completing",
    };
    let task_id = &task.start().task;
    let mut words = format!("The subtask {task_id} {why}: {message}. What it changed so far stands.");
    let said = last_words(task.history());
    if !said.is_empty() {
        words.push_str(&format!("\nThe last that it said:\n{said}"));
    }
    words.push_str(&format!("\nThe user can see all of it with `sabir log {task_id}`."));
    words
}

/// The last words of a model's, cut where they are long; empty where it said none.
fn last_words(history: &[Message]) -> &str {
    let said = history.iter().rev().filter(|message| message.role == Role::Assistant);
    let mut texts = said.flat_map(|message| message.parts.iter().rev()).filter_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(text.trim()),
        _ => None,
    });
    beginning(texts.next().unwrap_or_default(), LAST_WORDS)
}
