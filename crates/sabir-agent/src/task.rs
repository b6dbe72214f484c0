//! The task state machine: takes inputs, returns effects, does no I/O.
//!
//! The terminal, headless mode, resume and tests drive the same machine. Every change of state is a
//! [`Record`]: `step` decides which records happen, [`Task::apply_record`] alone changes the state
//! by them, and replaying a journal applies the same records. So a resumed task is the same task.
//!
//! Architecture invariant: an assistant message with calls enters the history together with the
//! results of all its calls, once the last result is there ([`calls::OpenTurn`]). A history with an
//! unanswered or doubly answered call cannot be represented.

mod approval;
mod budget;
pub(crate) mod calls;
mod check;
mod compaction;
mod completion;
mod cycles;
mod dedup;
mod denials;
mod digest;
mod echo;
mod failure;
mod limits;
mod modes;
mod progress;
mod subtask;
#[cfg(test)]
mod tests;
mod todos;
mod tools;
mod transcript;
mod turn;
mod usage;
mod user_input;
mod view;

use sabir_call::dialect::DialectSet;
use sabir_call::escaping::ContentEscaping;
use sabir_call::{
    CallId, CallResult, DraftResponse, Event, EventSink, Message, MessagePart, ModelError,
    ParallelCalls, Request, Role, StopReason, TextRecovery, TokenPrices, ToolProtocol, ToolSet,
};
use sabir_check::{CallChecker, RepairSet};
use sabir_policy::{Access, PolicyRules, Verdict};

use crate::context::ContextFragment;
use crate::control;
use crate::event::{UserQuestion, UserReply};
use crate::permit::{CallPermit, Preconditions};
use crate::record::{
    CompactionReason, DeliveryTime, MessageAuthor, OTHER_TOOL, Record, SummaryAuthor, TaskOutcome,
    TaskStart, TaskUsage, ToolsChange,
};
use crate::tool::ToolOutput;

pub use budget::BudgetPeriod;
use budget::TaskBudget;
use calls::OpenTurn;
pub use check::{CompletionConditions, CompletionForm};
pub use compaction::{CompactionPreview, CompactionTiming, ContextUsage};
use denials::DenialTracker;
pub use denials::{UnresolvedDenials, call_subject};
pub use digest::call_paths;
pub use limits::{SubtaskLimits, TaskLimits};
pub use modes::ModeConfig;
use modes::TaskModes;
use progress::TaskProgress;
pub use todos::OpenTodos;
use todos::TodoTracker;
use transcript::Transcript;
use usage::UsageDelta;
pub use usage::UsageTotals;
use user_input::PendingInput;
pub use user_input::{Interactivity, MessageDelivery, UserMessage};

/// The note to the model about records that were lost.
const DAMAGE_MESSAGE: &str = "The stored record of this task was damaged, and what followed this point is lost. You may have done more than you see here: look at the present state before you repeat anything.";

/// The result of a call that was stopped while it ran.
const INTERRUPTED: &str =
    "This was interrupted. It may have happened in part: look before you repeat it.";

/// The settings of a task. They are not part of its history: a resumed task may get others.
#[derive(Debug, Clone)]
pub struct TaskSettings {
    /// The system prompt, without any teaching of tools.
    pub system: String,
    /// The provider's name of the model.
    pub model: String,
    /// The tools that the model is offered, and those it is not offered but may call.
    pub tools: ToolSet,
    /// The dialects that the session knows.
    pub dialects: DialectSet,
    /// The names of the tools that only read.
    pub read_only_tools: Vec<String>,
    /// The names of the tools that poll for something, so that repeating a call is not a cycle.
    pub polling_tools: Vec<String>,
    /// The rules that check calls, including approvals in advance.
    pub rules: PolicyRules,
    /// The kind of user, if any, that can be asked.
    pub interactivity: Interactivity,
    /// The limits at which the task stops.
    pub limits: TaskLimits,
    /// The conditions for accepting a completion.
    pub completion: CompletionConditions,
    /// The repairs that are made to calls instead of rejecting them.
    pub repairs: RepairSet,
    /// The treatment of calls in the text of a native session.
    pub recovery: TextRecovery,
    /// The number of calls that a message may hold.
    pub parallel_calls: ParallelCalls,
    /// True if the server of the model renders a chat template, so that special tokens in foreign
    /// text must be escaped. They always are in a prompted session.
    pub renders_template: bool,
    /// The most tokens of one answer; `None` leaves it to the provider.
    pub max_output: Option<u64>,
    /// The current prices of the model.
    pub prices: TokenPrices,
}

impl TaskSettings {
    /// Returns settings for the model that the provider knows by this name: no tools, no approvals,
    /// no user, no limits but the default ones.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            dialects: DialectSet::default(),
            system: String::new(),
            model: model.into(),
            tools: ToolSet::default(),
            read_only_tools: Vec::new(),
            polling_tools: Vec::new(),
            rules: PolicyRules::default(),
            interactivity: Interactivity::Headless,
            limits: TaskLimits::default(),
            completion: CompletionConditions::default(),
            repairs: RepairSet::default(),
            recovery: TextRecovery::default(),
            parallel_calls: ParallelCalls::default(),
            renders_template: false,
            max_output: None,
            prices: TokenPrices::default(),
        }
    }

    /// Creates the checks for calls of these tools.
    pub(crate) fn call_checker(&self, tools: ToolSet) -> CallChecker {
        CallChecker::new(tools)
            .with_repairs(self.repairs)
            .with_parallel(self.parallel_calls)
    }
}

/// An input of the machine: something that happened outside of it.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input lives for one step, so its size costs less than an allocation"
)]
pub enum TaskInput<'a> {
    /// Starts or continues the work, after the task was created or replayed.
    Begin,
    /// The user sends a message. It is recorded at once, and answers no question but the one for a
    /// message ([`UserQuestion::Next`]). A paused task continues with it.
    UserMessage {
        /// The text and the images.
        message: UserMessage,
        /// The moment at which the model reads it.
        delivery: MessageDelivery,
    },
    /// Compacts the context, with a summary by this author. The model is asked for its summary
    /// once. A running task always asks the model, at the next possible moment
    /// ([`Task::compaction_timing`]).
    Compact(SummaryAuthor),
    /// Undoes the last compaction of a paused task.
    UndoCompaction,
    /// The user switches to the mode of this name. It holds at once, and calls that wait for an
    /// approval are checked again. An unknown name changes nothing.
    SetMode(String),
    /// The user has left. The task becomes headless ([`Interactivity::Headless`]), and calls that
    /// wait for an answer are denied.
    UserLeft,
    /// The context fragments as they are right before the model is asked. The request ends with
    /// the changes since the last report to the model.
    ContextChanged(Vec<ContextFragment>),
    /// Tools have appeared or disappeared. Applied right before the model is asked.
    ToolsChanged(ToolsChange),
    /// A text for the model, right before it is asked.
    Note(String),
    /// The context must not be compacted now. A full one is tried again before the next turn.
    CompactionRefused,
    /// A piece of the model's answer.
    ModelEvent(Event<'a>),
    /// The model's answer is complete.
    ModelFinished,
    /// The request failed, or the answer broke off.
    ModelFailed(ModelError),
    /// The access that a call needs, and the preconditions it depends on.
    CallAssessed(CallId, Access, Preconditions),
    /// The user's answer to the open question.
    UserReplied(UserReply),
    /// The task is about to stop, because it is completed or waits for a message, and must continue for
    /// this reason. The model gets it as a message of Sabir.
    Objection(String),
    /// A tool has finished, with its output.
    ToolFinished(CallId, ToolOutput),
    /// The user interrupts the task.
    Cancel,
    /// The time limit was reached.
    TimeExpired,
    /// The budget that the task shares with others is used up, with a description of the limit. The
    /// model is not asked any more.
    BudgetExhausted(String),
}

impl TaskInput<'_> {
    /// Returns the input for a message that waits for its turn.
    pub fn queued(message: impl Into<UserMessage>) -> Self {
        Self::UserMessage {
            message: message.into(),
            delivery: MessageDelivery::Queue,
        }
    }

    /// Returns the input for a message that interrupts the model.
    pub fn interrupting(message: impl Into<UserMessage>) -> Self {
        Self::UserMessage {
            message: message.into(),
            delivery: MessageDelivery::Interrupt,
        }
    }
}

/// An action that the driver must execute. Effects are executed in the order in which they are
/// returned.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEffect {
    /// Persist the record, then show it. No later effect may be executed unless this succeeded.
    PersistRecord(Record),
    /// Ask the model, with [`Task::model_request`].
    RequestModel,
    /// Determine the access and the preconditions of a call.
    AssessCall(CallId),
    /// Run a call, unless it is no longer the permitted one.
    RunCall(CallPermit),
    /// Ask the user.
    AskUser(UserQuestion),
    /// Withdraw the open question.
    WithdrawQuestion,
    /// Stop the request, the running tools and the question. Subtasks are asked to end instead, and
    /// each reports its end with [`TaskInput::ToolFinished`].
    StopAll,
    /// Ask the subtask of this call to end. Its result arrives like any other.
    StopSubtask(CallId),
    /// End the run of the task, with the outcome and a message for the user.
    Finish(TaskOutcome, String),
}

/// The reason why records cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The first record is not the start of a task.
    #[error("the journal does not begin with the start of a task")]
    NoStart,
    /// The task was completed.
    #[error("the task is completed; there is nothing to resume")]
    Completed,
}

/// The state machine of a task: its settings, its history, and the state that follows from its
/// records.
#[derive(Debug)]
pub struct Task {
    settings: TaskSettings,
    checker: CallChecker,
    start: TaskStart,
    transcript: Transcript,
    draft: DraftResponse,
    phase: TaskPhase,
    turn: Option<OpenTurn>,
    budget: TaskBudget,
    progress: TaskProgress,
    denials: DenialTracker,
    todo_tracker: TodoTracker,
    modes: TaskModes,
    /// The changes of the tools on record, merged into one.
    recorded_tools: ToolsChange,
    question: Option<UserQuestion>,
    /// The stop reason of the last answer.
    last_stop_reason: Option<StopReason>,
    /// The input that takes effect later.
    pending_input: PendingInput,
}

/// The input that the machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskPhase {
    /// `Begin`, or a message of the user.
    Paused,
    /// The model's answer.
    AwaitingModel,
    /// The model's summary.
    AwaitingSummary(CompactionReason),
    /// Results of calls, or an answer of the user.
    HandlingCalls,
    /// The ends of subtasks. Then the task ends with this outcome and message.
    Ending(TaskOutcome, &'static str),
    /// Nothing: the run has ended.
    Finished,
}

impl Task {
    /// Creates a task, with the record of its start. The driver must persist that record before it
    /// executes any effect of `step(Begin)`.
    pub fn new(start: TaskStart, settings: TaskSettings) -> (Self, Record) {
        let record = Record::Started(start.clone());
        let mut task = Self::without_history(start, settings);
        task.apply_record(&record);
        (task, record)
    }

    /// Rebuilds a task from its records, ready to continue.
    ///
    /// # Errors
    /// If the records do not begin with a start, or the task was completed.
    pub fn replay(
        records: impl IntoIterator<Item = Record>,
        settings: TaskSettings,
    ) -> Result<Self, ReplayError> {
        let (task, is_completed) = Self::replay_all(records, settings)?;
        if is_completed {
            Err(ReplayError::Completed)
        } else {
            Ok(task)
        }
    }

    /// Rebuilds a task from its records, to continue it with a message of the user. The task may be
    /// completed.
    ///
    /// # Errors
    /// If the records do not begin with a start.
    pub fn replay_for_message(
        records: impl IntoIterator<Item = Record>,
        settings: TaskSettings,
    ) -> Result<Self, ReplayError> {
        Self::replay_all(records, settings).map(|(task, _)| task)
    }

    /// Rebuilds a task from its records, and reports whether the last one completes it.
    fn replay_all(
        records: impl IntoIterator<Item = Record>,
        settings: TaskSettings,
    ) -> Result<(Self, bool), ReplayError> {
        let mut records = records.into_iter();
        let Some(Record::Started(start)) = records.next() else {
            return Err(ReplayError::NoStart);
        };
        let mut task = Self::without_history(start.clone(), settings);
        task.apply_record(&Record::Started(start));
        let mut completed = false;
        for record in records {
            // Only the last record tells: a completed task may have been continued since.
            completed = matches!(
                record,
                Record::Ended {
                    outcome: TaskOutcome::Completed,
                    ..
                }
            );
            task.apply_record(&record);
        }
        task.prepare_next_run();
        Ok((task, completed))
    }

    /// Prepares an ended task for its next run. Turns, mistakes and limits count from the beginning
    /// of that run, so what stopped the last run does not stop it at once.
    pub fn prepare_next_run(&mut self) {
        self.budget.begin_run();
        self.progress.begin_run();
        self.phase = TaskPhase::Paused;
    }

    /// Prepares a task that has just ended to continue in the same run, whose limits keep counting.
    pub(crate) fn reopen_run(&mut self) {
        self.phase = TaskPhase::Paused;
    }

    /// Reports whether the task waits to be driven: it is new, replayed, or [prepared](Self::prepare_next_run) for another run.
    pub fn is_paused(&self) -> bool {
        self.phase == TaskPhase::Paused
    }

    fn without_history(start: TaskStart, settings: TaskSettings) -> Self {
        let transcript = Transcript::new(usage::fixed_bytes(&settings));
        Self {
            checker: settings.call_checker(settings.tools.clone()),
            settings,
            start,
            transcript,
            draft: DraftResponse::default(),
            phase: TaskPhase::Paused,
            turn: None,
            budget: TaskBudget::default(),
            progress: TaskProgress::default(),
            denials: DenialTracker::default(),
            todo_tracker: TodoTracker::default(),
            modes: TaskModes::default(),
            recorded_tools: ToolsChange::default(),
            question: None,
            last_stop_reason: None,
            pending_input: PendingInput::default(),
        }
    }

    /// Returns the start of the task.
    pub fn start_record(&self) -> &TaskStart {
        &self.start
    }

    /// Returns the history so far. Every call in it has exactly one result.
    pub fn history(&self) -> &[Message] {
        self.transcript.messages()
    }

    /// Returns the tokens and the cost so far, those before a resume included.
    pub fn totals(&self) -> UsageTotals {
        self.budget.totals()
    }

    /// Returns the total usage of the task, with the usage of each tool.
    pub fn task_usage(&self) -> TaskUsage {
        self.budget.task_usage()
    }

    /// Returns the number of answers since the task was started or resumed.
    pub fn turn_count(&self) -> u32 {
        self.budget.run_turns()
    }

    /// Returns the call with this id, while its turn is open.
    pub fn open_call(&self, id: &CallId) -> Option<&sabir_call::Call> {
        self.turn.as_ref().and_then(|turn| turn.find_call(id))
    }

    /// Builds the request for the model. It shares the history instead of copying it, but a driver
    /// that still holds the request during the next step makes the task copy it then.
    pub fn model_request(&self) -> Request {
        if let TaskPhase::AwaitingSummary(why) = self.phase {
            return self.summary_request(why);
        }
        Request {
            model: self.settings.model.clone(),
            system: self.system_prompt(),
            messages: self.transcript.request_messages(),
            tools: self.settings.tools.clone(),
            protocol: self.start.protocol.clone(),
            dialects: self.settings.dialects.clone(),
            max_output_tokens: self.settings.max_output,
            recovery: self.settings.recovery,
            parallel_calls: self.settings.parallel_calls,
            escaping: self.content_escaping(),
            ..Request::default()
        }
    }

    /// Returns the escaping of foreign text in requests, which is reversed in calls.
    fn content_escaping(&self) -> ContentEscaping {
        ContentEscaping {
            special_tokens: self.settings.renders_template
                || self.start.protocol != ToolProtocol::Native,
            hidden_characters: true,
        }
    }

    /// Takes an input and returns the effects that follow. An input that does not fit the current
    /// phase, such as the result of a cancelled call, changes nothing.
    pub fn step(&mut self, input: TaskInput<'_>) -> Vec<TaskEffect> {
        let mut effects = Vec::new();
        match (self.phase, input) {
            (TaskPhase::Paused, TaskInput::Begin) => {
                self.handle_user_message(UserMessage::default(), &mut effects)
            }
            (TaskPhase::Paused, TaskInput::Compact(by)) => {
                self.compact_on_request(by, &mut effects)
            }
            (_, TaskInput::Compact(_)) => self.schedule_compaction(&mut effects),
            (TaskPhase::Paused, TaskInput::UndoCompaction) => self.undo_compaction(&mut effects),
            (
                _,
                TaskInput::UserMessage {
                    message,
                    delivery: MessageDelivery::Queue,
                },
            ) => self.handle_user_message(message, &mut effects),
            (
                _,
                TaskInput::UserMessage {
                    message,
                    delivery: MessageDelivery::Interrupt,
                },
            ) => self.handle_steering(message, &mut effects),
            (_, TaskInput::SetMode(mode)) => self.handle_mode_change(&mode, &mut effects),
            (_, TaskInput::UserLeft) => self.handle_user_left(&mut effects),
            (
                TaskPhase::AwaitingSummary(why),
                input @ (TaskInput::ModelFinished | TaskInput::ModelFailed(_)),
            ) => {
                self.handle_summary(why, input, &mut effects);
            }
            (TaskPhase::AwaitingModel, TaskInput::ContextChanged(fragments)) => {
                self.handle_context_change(fragments, &mut effects)
            }
            (TaskPhase::AwaitingModel, TaskInput::ToolsChanged(change)) => {
                self.handle_tools_change(change, &mut effects)
            }
            (TaskPhase::AwaitingModel, TaskInput::Note(text)) => {
                self.note_for_model(text, &mut effects)
            }
            (TaskPhase::AwaitingSummary(why), TaskInput::CompactionRefused) => {
                self.refuse_compaction(why, &mut effects)
            }
            (
                TaskPhase::AwaitingModel | TaskPhase::AwaitingSummary(_),
                TaskInput::ModelEvent(event),
            ) => self.draft.push_event(event),
            (TaskPhase::AwaitingModel, TaskInput::ModelFinished) => {
                self.handle_model_finished(&mut effects)
            }
            (TaskPhase::AwaitingModel, TaskInput::ModelFailed(error)) => {
                self.handle_model_failure(&error, &mut effects)
            }
            (TaskPhase::HandlingCalls, TaskInput::CallAssessed(call, access, preconditions)) => {
                self.handle_assessment(&call, &access, preconditions, &mut effects)
            }
            (TaskPhase::HandlingCalls, TaskInput::ToolFinished(call, output)) => {
                self.handle_tool_result(&call, output, &mut effects)
            }
            (TaskPhase::HandlingCalls, TaskInput::UserReplied(reply)) => {
                self.handle_reply(reply, &mut effects)
            }
            (TaskPhase::Paused | TaskPhase::HandlingCalls, TaskInput::Objection(reason)) => {
                self.handle_objection(reason, &mut effects)
            }
            // Late inputs, such as a second cancel, must not restart an ended task.
            (TaskPhase::Finished, _) => {}
            (TaskPhase::Ending(..), TaskInput::ToolFinished(call, output)) => {
                self.handle_result_while_ending(&call, output, &mut effects)
            }
            // A second cancel does not wait for the subtasks. They stay open, as after a crash.
            (TaskPhase::Ending(outcome, message), TaskInput::Cancel | TaskInput::TimeExpired) => {
                self.end_task(outcome, message, &mut effects)
            }
            (_, TaskInput::BudgetExhausted(message)) => {
                self.handle_budget_exhausted(&message, &mut effects)
            }
            (_, TaskInput::Cancel) => {
                self.shut_down(TaskOutcome::Cancelled, "interrupted", &mut effects)
            }
            (_, TaskInput::TimeExpired) => self.shut_down(
                TaskOutcome::Limit,
                "the time limit was reached",
                &mut effects,
            ),
            _ => {}
        }
        effects
    }

    /// Changes the state by a record. State that is changed elsewhere (the phase, the draft, the open
    /// question, the settings) is lost when the task is resumed.
    fn apply_record(&mut self, record: &Record) {
        self.modes.history.apply_record(record);
        match record {
            Record::Started(start) => self.apply_start(start),
            Record::Said {
                by,
                text,
                images,
                when,
            } => {
                self.apply_message(
                    *by,
                    UserMessage {
                        text: text.clone(),
                        images: images.clone(),
                    },
                    *when,
                );
            }
            Record::Answered(answered) => self.apply_answer(answered),
            Record::Failed(failed) => {
                self.budget.note_usage(UsageDelta::from_failure(failed));
                self.progress.note_failure();
                // No part of a failed answer is kept, so a replay, which has no draft, is in the
                // same state.
                self.draft = DraftResponse::default();
                self.deliver_pending();
            }
            Record::Judged {
                call,
                verdict: Verdict::Deny,
                by,
                reason,
            } => {
                self.note_denial(call, *by);
                if let Some(turn) = &mut self.turn {
                    turn.mark_denied(call, *by, reason);
                }
            }
            // An approval changes nothing. A resumed task checks again and asks again.
            Record::Judged { .. } => {}
            Record::Running { call, .. } => {
                self.note_running(call);
                if let Some(turn) = &mut self.turn {
                    turn.mark_running(call);
                }
            }
            Record::Result(result) => self.apply_result(result),
            Record::Subtask { call, task, ended } => self.apply_subtask(call, task, ended.as_ref()),
            Record::Context(change) => self.apply_context_change(change),
            Record::Damaged { .. } => self.apply_damage(),
            Record::Ended { .. } => {
                self.phase = TaskPhase::Finished;
                // No answer will come for them to wait for: the next run reads them first.
                self.deliver_pending();
            }
        }
    }

    /// Notes that a call begins that does more than read.
    fn note_running(&mut self, id: &CallId) {
        let readers = &self.settings.read_only_tools;
        let reads = |call: &sabir_call::Call| readers.contains(&call.name);
        if self.open_call(id).is_some_and(|call| !reads(call)) {
            self.progress.note_action();
        }
    }

    /// Has every open call end as interrupted, because the lost records may hold that it ran, and tells the model.
    fn apply_damage(&mut self) {
        // A subtask continues from a journal of its own, which knows what it has done.
        let subtasks = self.survives_resume(control::NEW_TASK_TOOL);
        if let Some(turn) = &mut self.turn {
            turn.refuse_unrecorded_calls(subtasks);
        }
        self.deliver_message(MessageAuthor::Sabir, UserMessage::from_text(DAMAGE_MESSAGE));
    }

    fn apply_result(&mut self, result: &CallResult) {
        self.progress.note_result(result.ending);
        let is_known =
            control::is_control(&result.name) || self.settings.tools.get(&result.name).is_some();
        let tool = if is_known { &result.name } else { OTHER_TOOL };
        self.budget.note_result(tool, result.ending);
        // Before the call is marked as done: afterwards the turn may be closed, and the call is no
        // longer open.
        if let Some(call) = self.open_call(&result.id).cloned() {
            self.apply_todo_result(&call, result);
            self.note_cycle(&call, result);
            self.denials
                .note_result(&call, result, &self.settings.read_only_tools);
        }
        let Some(turn) = &mut self.turn else { return };
        if turn.rejects_completion(result) {
            self.progress.note_refusal();
        }
        turn.mark_done(result);
        // A good call among bad ones is no progress: only a turn without mistakes resets the count.
        if turn.is_clean() {
            self.progress.note_clean_turn();
        }
        // Calls and results enter the history in one step, when the last result is there.
        if let Some((parts, mut answers)) = turn.take_results() {
            self.turn = None;
            // Depends on the number of turns, which only records change, so a replay adds the
            // reminder to the same message.
            answers.extend(self.todo_reminder().map(MessagePart::text));
            self.transcript.push_message(Role::Assistant, parts);
            self.transcript.push_message(Role::User, answers);
            self.transcript
                .note_readings(&self.settings.read_only_tools);
        }
    }

    /// Applies a record and has the driver persist it.
    fn commit_record(&mut self, record: Record, effects: &mut Vec<TaskEffect>) {
        self.apply_record(&record);
        // Effects are executed in order, so those that are pushed later happen after the record is
        // kept.
        effects.push(TaskEffect::PersistRecord(record));
    }

    fn resume_work(&mut self, effects: &mut Vec<TaskEffect>) {
        // Recorded first, so that messages that waited for the lost answer precede all later ones.
        self.record_lost_answer(effects);
        self.phase = TaskPhase::HandlingCalls;
        // Looked at before the announcements below, which append to the history themselves.
        let waits = self
            .history()
            .last()
            .is_some_and(|message| message.role == Role::User);
        self.announce_context(effects);
        self.announce_mode(effects);
        if self.turn.is_some() {
            self.requeue_subtasks();
            self.interrupt_running("Sabir was stopped while this ran. It may have happened in full, in part, or not at all: look before you repeat it.", effects);
            return self.advance_calls(effects);
        }
        if waits {
            self.request_next_turn(effects)
        } else {
            self.handle_reply_without_call(None, effects)
        }
    }

    /// Asks the model, unless a limit was reached or the context must be compacted first.
    fn request_next_turn(&mut self, effects: &mut Vec<TaskEffect>) {
        // The mode determines the model and its context window, on which the compaction and the
        // request below depend.
        self.apply_current_mode();
        if let Some(message) = self.budget.describe_reached_limit(&self.settings.limits) {
            return self.end_task(TaskOutcome::Limit, &message, effects);
        }
        // Limits come first: a task that may not spend more does not pay for a summary either.
        if self.compact_if_full(effects) {
            return;
        }
        self.phase = TaskPhase::AwaitingModel;
        effects.push(TaskEffect::RequestModel);
    }

    fn handle_model_finished(&mut self, effects: &mut Vec<TaskEffect>) {
        self.phase = TaskPhase::HandlingCalls;
        // The draft is checked once. Its record holds the results, so a replay needs neither the
        // draft nor the checker.
        let draft = std::mem::take(&mut self.draft);
        let answered = self.check_answer(draft);
        let feedback = answered.feedback.clone();
        let has_calls = !answered.checks.is_empty();
        let has_message = self.has_pending_message();
        self.commit_record(Record::Answered(answered), effects);
        if has_calls {
            self.advance_calls(effects);
        } else if has_message {
            self.continue_with_message(feedback, effects);
        } else {
            self.handle_reply_without_call(feedback, effects);
        }
    }

    /// Ends the run. Calls that have not begun stay open, and a resumed task continues with them.
    fn end_task(&mut self, outcome: TaskOutcome, message: &str, effects: &mut Vec<TaskEffect>) {
        self.commit_record(
            Record::Ended {
                outcome,
                message: message.to_owned(),
                used: Some(Box::new(self.task_usage())),
            },
            effects,
        );
        // A resumed task checks the call again, and then asks again.
        self.question = None;
        effects.push(TaskEffect::Finish(outcome, message.to_owned()));
    }

    /// Sends the model a message of Sabir's own.
    fn send_reminder(&mut self, text: String, effects: &mut Vec<TaskEffect>) {
        self.commit_record(
            Record::Said {
                by: MessageAuthor::Sabir,
                text,
                images: Vec::new(),
                when: DeliveryTime::Next,
            },
            effects,
        );
    }
}
