//! Subtasks: tasks that each answer a call of their parent.
//!
//! A subtask has its own journal and is driven inside the process of its parent by a tool,
//! [`NewTaskTool`]. Its parts (journal, tools, model, front end) come from a [`SubtaskSpawner`],
//! because this crate knows no files and no providers. The parent's journal names the subtask
//! before it begins and records what it used when it ends ([`Record::Subtask`]). Its name follows
//! from the call, so a call that was running when its process ended is simply run again, and the
//! spawner opens the existing journal.
//!
//! The call is answered once. If the subtask completes, its result is that of the call; if it is
//! cancelled, the call was interrupted; any other end is a failure that says how it ended, how far
//! it came, and where its records are.

mod shared_budget;

use std::sync::Arc;
use std::time::Duration;

use sabir_call::{CallId, Message, MessagePart, Model, Role, ToolSpec};
use sabir_policy::{Access, ToolGroup};

use crate::context::fragment::truncate_text;
use crate::control::{self, SubtaskRequest};
use crate::driver::{CancelToken, FrontEnd, TaskDriver};
use crate::observer::DriverObserver;
use crate::permit::CallPermit;
use crate::record::{Record, RecordStore, SubtaskEnd, TaskOutcome};
use crate::task::{Task, TaskLimits, UsageTotals};
use crate::tool::{
    CallArguments, InvalidCall, PreparedCall, ProgressSink, Tool, ToolFuture, ToolOutput,
    ToolRegistry,
};

pub use shared_budget::SharedBudget;
use shared_budget::{BudgetMeter, BudgetSlot};

/// The most bytes that are quoted of the last message of a subtask that did not complete.
const MAX_FINAL_TEXT_BYTES: usize = 4 * 1024;

/// Opens new subtasks, and those that were begun before.
pub trait SubtaskSpawner: Send + Sync {
    /// Opens the subtask of a call: a new one, or the one whose journal exists already.
    ///
    /// Its name is [`TaskId::child_id`](crate::TaskId::child_id) of the parent's; its origin is
    /// [`TaskOrigin::Subtask`](crate::TaskOrigin::Subtask) with a
    /// [`TaskStart::depth`](crate::TaskStart::depth) one more than the parent's. `left` is what the
    /// parent's limits still allow: the subtask's own limits are at most these. Where
    /// `left.subtasks.depth` is 0, it is not offered `new_task`.
    ///
    /// # Errors
    /// If the subtask cannot be opened: there is no such mode, the parent's mode does not delegate, the recorded mode now allows
    /// more than the parent's, or another process uses the journal.
    fn spawn(
        &self,
        call: &CallId,
        request: &SubtaskRequest,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskSpawnError>;
}

/// The reason why a spawner opens no subtask. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubtaskSpawnError {
    /// There is no such mode, or the parent may not give it to a subtask.
    #[error("{0}")]
    Mode(String),
    /// The journal cannot be created or opened, or another process works on it.
    #[error("{0}")]
    Journal(String),
    /// The task cannot be set up or resumed, for example because its model is unknown.
    #[error("{0}")]
    Setup(String),
}

/// A subtask that was opened.
pub enum SubtaskHandle {
    /// A subtask that has work to do.
    Working(Box<SubtaskRun>),
    /// A subtask that was completed before its parent learned of it. No model is asked.
    Completed(CompletedSubtask),
}

/// The parts of a subtask that a driver needs: its task, store, tools, model and front end.
pub struct SubtaskRun {
    /// The task, new or replayed.
    pub task: Task,
    /// The record of its start, for a new one.
    pub first: Option<Record>,
    /// The store of its journal.
    pub store: Box<dyn RecordStore>,
    /// Its tools.
    pub registry: ToolRegistry,
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// The front end that shows it. [`UserCommand::Cancel`](crate::UserCommand::Cancel) cancels this subtask alone.
    pub front_end: Box<dyn FrontEnd>,
    /// The most time that it may take, besides what its parent has left.
    pub max_time: Option<Duration>,
    /// The observers that follow it, in this order.
    pub observers: Vec<Arc<dyn DriverObserver>>,
}

/// The result and the usage of a completed subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedSubtask {
    /// The result, in the subtask's words.
    pub result: String,
    /// The outcome and everything that the subtask used.
    pub end: SubtaskEnd,
}

/// The tool that runs `new_task`. Each task that has subtasks has one.
pub struct NewTaskTool {
    shared: Arc<SpawnerState>,
}

/// The state that all calls of one task's `new_task` share.
struct SpawnerState {
    spawner: Arc<dyn SubtaskSpawner>,
    /// The budget of the subtasks of a period, if the task itself shares none with others.
    budget_slot: BudgetSlot,
}

/// A call of `new_task` with valid arguments.
struct SubtaskCall {
    shared: Arc<SpawnerState>,
    request: SubtaskRequest,
    /// The token that ends the subtask, even before it has begun.
    cancel: CancelToken,
}

impl NewTaskTool {
    /// Creates the tool for the subtasks that this spawner opens.
    pub fn new(spawner: Arc<dyn SubtaskSpawner>) -> Self {
        Self {
            shared: Arc::new(SpawnerState {
                spawner,
                budget_slot: BudgetSlot::default(),
            }),
        }
    }
}

impl std::fmt::Debug for NewTaskTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTaskTool").finish_non_exhaustive()
    }
}

impl Tool for NewTaskTool {
    fn spec(&self) -> ToolSpec {
        control::subtask_spec()
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Delegate)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        match SubtaskRequest::parse(arguments) {
            Ok(request) => {
                let shared = Arc::clone(&self.shared);
                Box::new(SubtaskCall {
                    shared,
                    request,
                    cancel: CancelToken::default(),
                })
            }
            Err(error) => InvalidCall::boxed(format!("{error}.")),
        }
    }
}

impl PreparedCall for SubtaskCall {
    /// Returns no access: each call of the subtask is checked when it is made.
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn stop_token(&self) -> Option<CancelToken> {
        Some(self.cancel.clone())
    }

    fn run<'a>(self: Box<Self>, permit: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            let Self {
                shared,
                request,
                cancel,
            } = *self;
            let budget = permit
                .shared_budget
                .or_else(|| shared.budget_slot.shared_budget(permit));
            match shared
                .spawner
                .spawn(&permit.call, &request, permit.remaining_limits)
            {
                Ok(SubtaskHandle::Working(child)) => run_subtask(*child, cancel, budget).await,
                Ok(SubtaskHandle::Completed(completed)) => completed.into_output(),
                Err(error) => ToolOutput::failed(error.to_string()),
            }
        })
    }
}

impl CompletedSubtask {
    /// Reads the result and the usage from the records of a subtask; `None` if it is not completed.
    pub fn from_records(records: &[Record]) -> Option<Self> {
        let Some(Record::Ended {
            outcome: TaskOutcome::Completed,
            message,
            ..
        }) = records.last()
        else {
            return None;
        };
        let mut totals = UsageTotals::default();
        records.iter().for_each(|record| totals.add_record(record));
        let turns = records.iter().map(|record| match record {
            Record::Answered(_) => 1,
            Record::Subtask {
                ended: Some(end), ..
            } => end.turns,
            _ => 0,
        });
        let turns = turns.fold(0, u32::saturating_add);
        let UsageTotals {
            usage,
            estimate,
            cost,
        } = totals;
        let end = SubtaskEnd {
            outcome: TaskOutcome::Completed,
            turns,
            usage,
            estimate,
            cost,
        };
        Some(Self {
            result: message.clone(),
            end,
        })
    }

    fn into_output(self) -> ToolOutput {
        ToolOutput {
            subtask: Some(self.end),
            ..ToolOutput::done(self.result)
        }
    }
}

/// Drives a subtask to its end.
async fn run_subtask(child: SubtaskRun, cancel: CancelToken, budget: SharedBudget) -> ToolOutput {
    let SubtaskRun {
        mut task,
        first,
        mut store,
        registry,
        model,
        mut front_end,
        max_time,
        mut observers,
    } = child;
    // First, so that the budget is charged before anybody sees the record.
    observers.insert(0, Arc::new(BudgetMeter(budget.clone())));
    let driver = TaskDriver {
        model: model.as_ref(),
        registry: &registry,
        store: store.as_mut(),
        front_end: front_end.as_mut(),
        observers,
        cancel,
        max_time,
    };
    // On the heap, since a subtask may have subtasks.
    let driven = Box::pin(driver.run_with_budget(&budget, &mut task, first, None)).await;
    let (outcome, message) = match driven {
        Ok(ended) => ended,
        Err(error) => return ToolOutput::failed(format!("The subtask was not run: {error}.")),
    };
    let end = task.subtask_usage(outcome);
    if outcome == TaskOutcome::Completed {
        return CompletedSubtask {
            result: message,
            end,
        }
        .into_output();
    }
    ToolOutput {
        subtask: Some(end),
        ..ToolOutput::failed(failure_message(&task, outcome, &message))
    }
}

/// Describes a subtask that did not complete, for the model of its parent.
fn failure_message(task: &Task, outcome: TaskOutcome, message: &str) -> String {
    let why = match outcome {
        TaskOutcome::Cancelled => "was cancelled",
        TaskOutcome::Limit => "reached a limit",
        TaskOutcome::Denied => "could not continue, since calls were denied",
        TaskOutcome::ProviderFailed => "ended because the provider failed",
        TaskOutcome::Misconfigured => "cannot be answered as things are set up",
        TaskOutcome::StoreFailed => "ended because its journal could not be written",
        TaskOutcome::Completed | TaskOutcome::Unfinished => "ended without completing",
    };
    let task_id = &task.start_record().task;
    let mut words =
        format!("The subtask {task_id} {why}: {message}. What it changed so far is kept.");
    let last_text = final_text(task.history());
    if !last_text.is_empty() {
        words.push_str(&format!("\nThe last that it said:\n{last_text}"));
    }
    words.push_str(&format!(
        "\nThe user can see all of it with `sabir log {task_id}`."
    ));
    words
}

/// Returns the end of the last message of the model, cut if it is long; empty if there is none.
fn final_text(history: &[Message]) -> &str {
    let answers = history
        .iter()
        .rev()
        .filter(|message| message.role == Role::Assistant);
    let mut texts = answers
        .flat_map(|message| message.parts.iter().rev())
        .filter_map(|part| match part {
            MessagePart::Text { text } if !text.trim().is_empty() => Some(text.trim()),
            _ => None,
        });
    truncate_text(texts.next().unwrap_or_default(), MAX_FINAL_TEXT_BYTES)
}
