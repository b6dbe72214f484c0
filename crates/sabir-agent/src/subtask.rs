//! Subtasks: tasks of their own that answer a call of their parent's.
//!
//! A subtask has a journal of its own and is driven inside the process of its parent, by a tool: [`NewTaskTool`]. What it is made of
//! (journal, tools, model, user) comes from a [`SubtaskSpawner`], because only the binary can make such things. The parent's journal
//! names the subtask before it begins and says what it took when it ends ([`Record::Subtask`]); its name follows from the call, so
//! a call that was running when its process ended is simply run again, and the household opens the journal that is there.
//!
//! The call is answered once. Where a subtask is completed its result is the call's; where it was cancelled the call was
//! interrupted; any other end is a failure that says how it ended, how far it came, and where its records are.

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
    CallArguments, InvalidCall, PreparedCall, ProgressSink, Tool, ToolOutput, ToolRegistry,
    ToolWork,
};

pub use shared_budget::SharedBudget;
use shared_budget::{BudgetMeter, BudgetSlot};

/// The most bytes of the last words of a subtask that did not complete.
const MAX_FINAL_TEXT_BYTES: usize = 4 * 1024;

/// Makes subtasks, and finds those that were begun.
pub trait SubtaskSpawner: Send + Sync {
    /// Opens the subtask of a call: a new one, or, where it was begun before, the one that its journal tells of. Its name is
    /// [`TaskId::child_id`](crate::TaskId::child_id) of the parent's, its origin [`TaskOrigin::Subtask`](crate::TaskOrigin::Subtask) with
    /// [`TaskStart::depth`](crate::TaskStart::depth) one more than the parent's. `left` is what the parent's limits allow the subtask: its own
    /// are at most these. Where `left.subtasks.depth` is 0 it is not offered `new_task`.
    ///
    /// # Errors
    /// In words for the model, where there can be none: no such mode, a parent's mode that hands no work on, one that was begun in
    /// a mode that now allows more than the parent's, a journal that another process works on.
    fn spawn(
        &self,
        call: &CallId,
        delegation: &SubtaskRequest,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, String>;
}

/// A subtask that was opened.
pub enum SubtaskHandle {
    /// One that is to work.
    Working(Box<SubtaskRun>),
    /// One that was completed before its parent knew. No model is asked.
    Completed(CompletedSubtask),
}

/// All that a subtask is driven with.
pub struct SubtaskRun {
    /// The task: new, or as its records tell.
    pub task: Task,
    /// The record of its start, if it is new.
    pub first: Option<Record>,
    /// Its journal.
    pub store: Box<dyn RecordStore>,
    /// Its tools.
    pub registry: ToolRegistry,
    /// Where its answers come from.
    pub model: Arc<dyn Model>,
    /// The front end that shows it. [`UserCommand::Cancel`](crate::UserCommand::Cancel) cancels this subtask alone.
    pub front_end: Box<dyn FrontEnd>,
    /// The most time, from now, beside what its parent has.
    pub max_time: Option<Duration>,
    /// Who else follows it, in this order.
    pub observers: Vec<Arc<dyn DriverObserver>>,
}

/// What a completed subtask tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedSubtask {
    /// The result, as it gave it.
    pub result: String,
    /// What it took in all.
    pub end: SubtaskEnd,
}

/// The tool behind `new_task`. Each task that has subtasks has one.
pub struct NewTaskTool {
    shared: Arc<SpawnerState>,
}

/// What all calls of one task's `new_task` share.
struct SpawnerState {
    spawner: Arc<dyn SubtaskSpawner>,
    /// The budget of the subtasks at work, where the task itself shares none with others.
    budget_slot: BudgetSlot,
}

/// A call of `new_task` whose arguments are understood.
struct SubtaskCall {
    shared: Arc<SpawnerState>,
    request: SubtaskRequest,
    /// Ends the subtask, also before it has begun.
    cancel: CancelToken,
}

impl NewTaskTool {
    /// Makes the tool for the subtasks that this spawner opens.
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
    /// Nothing: each call of the subtask's own is judged when it is made.
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn stop_token(&self) -> Option<CancelToken> {
        Some(self.cancel.clone())
    }

    fn run<'a>(self: Box<Self>, permit: &'a CallPermit, _: ProgressSink<'a>) -> ToolWork<'a> {
        Box::pin(async move {
            let Self {
                shared,
                request,
                cancel,
            } = *self;
            let budget = permit
                .shared_budget
                .or_else(|| shared.budget_slot.shared_budget(permit.remaining_limits));
            match shared
                .spawner
                .spawn(&permit.call, &request, permit.remaining_limits)
            {
                Ok(SubtaskHandle::Working(child)) => run_subtask(*child, cancel, budget).await,
                Ok(SubtaskHandle::Completed(completed)) => completed.into_output(),
                Err(words) => ToolOutput::failed(words),
            }
        })
    }
}

impl CompletedSubtask {
    /// What the records of a subtask tell; `None` where it is not completed.
    pub fn from_records(records: &[Record]) -> Option<Self> {
        let Some(Record::Ended {
            outcome: TaskOutcome::Completed,
            message,
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
async fn run_subtask(child: SubtaskRun, cancel: CancelToken, purse: SharedBudget) -> ToolOutput {
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
    observers.insert(0, Arc::new(BudgetMeter(purse.clone())));
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
    let (outcome, message) = Box::pin(driver.run_with_budget(&purse, &mut task, first, None)).await;
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

/// What the parent is told of a subtask that did not complete.
fn failure_message(task: &Task, outcome: TaskOutcome, message: &str) -> String {
    let why = match outcome {
        TaskOutcome::Cancelled => "was cancelled",
        TaskOutcome::Limit => "reached a limit",
        TaskOutcome::Denied => "could not go on, since calls were denied",
        TaskOutcome::ProviderFailed => "ended because the provider failed",
        TaskOutcome::Misconfigured => "cannot be answered as things are set up",
        TaskOutcome::StoreFailed => "ended because its journal could not be written",
        TaskOutcome::Completed | TaskOutcome::Unfinished => "ended without completing",
    };
    let task_id = &task.start_record().task;
    let mut words =
        format!("The subtask {task_id} {why}: {message}. What it changed so far stands.");
    let said = final_text(task.history());
    if !said.is_empty() {
        words.push_str(&format!("\nThe last that it said:\n{said}"));
    }
    words.push_str(&format!(
        "\nThe user can see all of it with `sabir log {task_id}`."
    ));
    words
}

/// The last words of a model's, cut where they are long; empty where it said none.
fn final_text(history: &[Message]) -> &str {
    let said = history
        .iter()
        .rev()
        .filter(|message| message.role == Role::Assistant);
    let mut texts = said
        .flat_map(|message| message.parts.iter().rev())
        .filter_map(|part| match part {
            MessagePart::Text { text } if !text.trim().is_empty() => Some(text.trim()),
            _ => None,
        });
    truncate_text(texts.next().unwrap_or_default(), MAX_FINAL_TEXT_BYTES)
}
