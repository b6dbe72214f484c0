//! The task machine: inputs in, effects out, no I/O.
//!
//! The terminal, headless mode, resume and tests drive the same machine. Every change of state is a [`Record`]: `step`
//! decides which records happen, [`Task::apply_record`] alone changes the state by them, and replaying a journal is applying
//! its records. So a resumed task is the same task.
//!
//! Architecture invariant: an assistant message with calls enters the history together with the results of all its
//! calls, when the last of them is there ([`calls::OpenTurn`]). A history with an unanswered or doubly answered call cannot be
//! written down (law 7).

mod approval;
pub(crate) mod calls;
mod check;
mod compaction;
mod completion;
mod counters;
mod cycles;
mod dedup;
mod digest;
mod failure;
mod limits;
mod modes;
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
use sabir_call::{
    CallId, CallResult, DraftResponse, Event, EventSink, Message, MessagePart, ModelError, Request,
    Role, StopReason, TokenPrices, ToolResultStatus, ToolSet,
};
use sabir_check::{CallChecker, RepairSet};
use sabir_policy::{Access, PolicyRules, Verdict};

use crate::context::ContextFragment;
use crate::event::{UserQuestion, UserReply};
use crate::permit::{CallPermit, Preconditions};
use crate::record::{
    CompactionReason, Delivery, MessageAuthor, Record, SummaryAuthor, TaskOutcome, TaskStart,
    ToolsChange,
};
use crate::tool::ToolOutput;

use calls::OpenTurn;
pub use check::CompletionConditions;
pub use compaction::{CompactionPreview, CompactionTiming, ContextUsage};
use counters::TaskCounters;
pub use limits::{SubtaskLimits, TaskLimits};
pub use modes::ModeConfig;
use modes::TaskModes;
pub use todos::OpenTodos;
use todos::TodoTracker;
use transcript::Transcript;
use usage::UsageDelta;
pub use usage::UsageTotals;
use user_input::PendingInput;
pub use user_input::{Interactivity, MessageDelivery, UserMessage};

/// The result of a call that was stopped while it ran.
const INTERRUPTED: &str =
    "This was interrupted. It may have happened in part: look before you repeat it.";

/// How a task is run. Not part of its history: a resumed task may be given others.
#[derive(Debug, Clone)]
pub struct TaskSettings {
    /// The system prompt, without any teaching of tools.
    pub system: String,
    /// The provider's name of the model.
    pub model: String,
    /// What the model is offered.
    pub tools: ToolSet,
    /// The dialects that the session knows.
    pub dialects: DialectSet,
    /// The names of the tools that only read.
    pub read_only_tools: Vec<String>,
    /// The names of the tools that look whether something has happened, and may be called again and again.
    pub polling_tools: Vec<String>,
    /// What is approved in advance.
    pub rules: PolicyRules,
    /// Whether somebody can be asked.
    pub interactivity: Interactivity,
    /// When to stop.
    pub limits: TaskLimits,
    /// What must hold before a completion is accepted.
    pub completion: CompletionConditions,
    /// The slips that are set right instead of rejected.
    pub repairs: RepairSet,
    /// The most tokens of one answer; `None`: the provider's default.
    pub max_output: Option<u64>,
    /// What the model costs today.
    pub prices: TokenPrices,
}

impl TaskSettings {
    /// Returns settings for the model of that name at its provider: no tools, no approvals, nobody to ask, no limits.
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
            max_output: None,
            prices: TokenPrices::default(),
        }
    }
}

/// What the machine is told.
#[derive(Debug, Clone)]
pub enum TaskInput<'a> {
    /// Go on: after the task was made, or made again from its records.
    Begin,
    /// The user says something. It is kept at once and answers no question but the one for words ([`UserQuestion::Next`]). A paused task
    /// continues with it.
    UserMessage {
        /// The text and the pictures.
        message: UserMessage,
        /// When the model reads it.
        delivery: MessageDelivery,
    },
    /// Compact the context, with a summary by whom. A model is then to be asked, once. A task that goes on does it with the model's
    /// summary, at the next moment that is possible ([`Task::compaction_timing`]).
    Compact(SummaryAuthor),
    /// Go back on the last compaction of a task that does not go on.
    Restore,
    /// The user switches to that mode. It holds at once, and what is asked about is judged anew; a name that is none changes nothing.
    SetMode(String),
    /// From now on nobody can be asked ([`Interactivity::Headless`]). What is asked about is denied.
    UserLeft,
    /// What is to be told of the place, looked at right before the model is asked. What is different from what it was told goes to the
    /// end of that request.
    ContextChanged(Vec<ContextFragment>),
    /// Tools have appeared or disappeared. Applied right before the model is asked.
    ToolsChanged(ToolsChange),
    /// A piece of the answer.
    ModelEvent(Event<'a>),
    /// The answer is whole.
    ModelFinished,
    /// The answer will not come, or broke off.
    ModelFailed(ModelError),
    /// What a call would touch, and what it depends on.
    CallAssessed(CallId, Access, Preconditions),
    /// The user's answer to the open question.
    UserReplied(UserReply),
    /// A tool is finished.
    ToolFinished(CallId, ToolOutput),
    /// The user interrupts.
    Cancel,
    /// The time is up.
    TimeExpired,
    /// What the task is a part of has used up what all of it may take, in words. It is not asked for any more.
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

    /// Returns the input for a message that interrupts what the model is doing.
    pub fn interrupting(message: impl Into<UserMessage>) -> Self {
        Self::UserMessage {
            message: message.into(),
            delivery: MessageDelivery::Interrupt,
        }
    }
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEffect {
    /// Keep the record, then show it. What follows must not be done unless it was kept.
    PersistRecord(Record),
    /// Ask the model, with [`Task::model_request`].
    RequestModel,
    /// Find out what a call would touch.
    AssessCall(CallId),
    /// Run a call, unless it is no longer the permitted one.
    RunCall(CallPermit),
    /// Ask the user.
    AskUser(UserQuestion),
    /// Take the open question back.
    WithdrawQuestion,
    /// Drop whatever is under way: the request, the running tools, the question. Subtasks are asked to end instead, and each is told
    /// of with [`TaskInput::ToolFinished`] when it has.
    StopAll,
    /// Ask the subtask of that call to end. Its result comes as always.
    StopSubtask(CallId),
    /// The task is over, for now.
    Finish(TaskOutcome, String),
}

/// Why records make no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The first record does not say how the task began.
    #[error("the journal does not begin with the start of a task")]
    NoStart,
    /// The task was completed.
    #[error("the task is completed; there is nothing to resume")]
    Completed,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    settings: TaskSettings,
    checker: CallChecker,
    start: TaskStart,
    transcript: Transcript,
    draft: DraftResponse,
    phase: TaskPhase,
    turn: Option<OpenTurn>,
    counters: TaskCounters,
    totals: UsageTotals,
    todo_tracker: TodoTracker,
    modes: TaskModes,
    /// The changes of the tools so far, merged.
    recorded_tools: ToolsChange,
    question: Option<UserQuestion>,
    /// Why the last answer stopped.
    last_stop_reason: Option<StopReason>,
    /// What waits for its moment.
    pending_input: PendingInput,
}

/// What the machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskPhase {
    /// For `Begin`.
    Paused,
    /// For the model.
    AwaitingModel,
    /// For the model's summary.
    AwaitingSummary(CompactionReason),
    /// For calls or the user.
    HandlingCalls,
    /// For subtasks to end, to end so.
    Ending(TaskOutcome, &'static str),
    /// For nothing.
    Finished,
}

impl Task {
    /// A new task. The record of its start must be kept before anything else; `step(Begin)` says so.
    pub fn new(start: TaskStart, settings: TaskSettings) -> (Self, Record) {
        let record = Record::Started(start.clone());
        let mut task = Self::without_history(start, settings);
        task.apply_record(&record);
        (task, record)
    }

    /// The task that these records tell of, ready to go on.
    ///
    /// # Errors
    /// When the records do not begin with a start, or the task was completed.
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

    /// The task that these records tell of, to go on with a message of the user's; it may be completed.
    ///
    /// # Errors
    /// When the records do not begin with a start.
    pub fn replay_for_message(
        records: impl IntoIterator<Item = Record>,
        settings: TaskSettings,
    ) -> Result<Self, ReplayError> {
        Self::replay_all(records, settings).map(|(task, _)| task)
    }

    /// The task of these records, and whether their last one completes it.
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

    /// Makes an ended task ready for the next run, which counts turns, mistakes and limits from its own beginning: what made the last
    /// run stop must not stop this one at once.
    pub fn prepare_next_run(&mut self) {
        let TaskCounters {
            turns,
            subtask_turns: family_turns,
            reported_mistakes: told,
            ..
        } = std::mem::take(&mut self.counters);
        self.counters = TaskCounters {
            turns,
            earlier_turns: turns,
            subtask_turns: family_turns,
            earlier_subtask_turns: family_turns,
            reported_mistakes: told,
            ..TaskCounters::default()
        };
        self.phase = TaskPhase::Paused;
    }

    fn without_history(start: TaskStart, settings: TaskSettings) -> Self {
        let past = Transcript::new(usage::fixed_bytes(&settings));
        Self {
            checker: CallChecker::new(settings.tools.clone()).with_repairs(settings.repairs),
            settings,
            start,
            transcript: past,
            draft: DraftResponse::default(),
            phase: TaskPhase::Paused,
            turn: None,
            counters: TaskCounters::default(),
            totals: UsageTotals::default(),
            todo_tracker: TodoTracker::default(),
            modes: TaskModes::default(),
            recorded_tools: ToolsChange::default(),
            question: None,
            last_stop_reason: None,
            pending_input: PendingInput::default(),
        }
    }

    /// How the task began.
    pub fn start_record(&self) -> &TaskStart {
        &self.start
    }

    /// The history so far; every call in it has its one result.
    pub fn history(&self) -> &[Message] {
        self.transcript.messages()
    }

    /// Tokens and money so far, those before a resume included.
    pub fn totals(&self) -> UsageTotals {
        self.totals
    }

    /// Answers so far, counted since the task was begun or resumed.
    pub fn turn_count(&self) -> u32 {
        self.counters
            .turns
            .saturating_sub(self.counters.earlier_turns)
    }

    /// The call of that id, while its turn is open: the tool's name and its arguments.
    pub fn open_call(&self, id: &CallId) -> Option<&sabir_call::Call> {
        self.turn.as_ref().and_then(|turn| turn.find_call(id))
    }

    /// What to ask the model now. The history is shared, not copied: whoever drops the request before the next step spares the
    /// task a copy.
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
            ..Request::default()
        }
    }

    /// Takes an input and says what is to be done. Inputs that do not fit the moment (the result of a call that was
    /// cancelled, say) change nothing.
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
            (TaskPhase::Paused, TaskInput::Restore) => self.undo_compaction(&mut effects),
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
            (TaskPhase::HandlingCalls, TaskInput::CallAssessed(call, access, bound)) => {
                self.handle_assessment(&call, &access, bound, &mut effects)
            }
            (TaskPhase::HandlingCalls, TaskInput::ToolFinished(call, output)) => {
                self.handle_tool_result(&call, output, &mut effects)
            }
            (TaskPhase::HandlingCalls, TaskInput::UserReplied(reply)) => {
                self.handle_reply(reply, &mut effects)
            }
            (TaskPhase::Finished, _) => {}
            (TaskPhase::Ending(..), TaskInput::ToolFinished(call, output)) => {
                self.handle_result_while_ending(&call, output, &mut effects)
            }
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

    /// Changes the state by a record: the only way in which it changes, but for the draft and the open question.
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
                self.apply_usage(UsageDelta::from_failure(failed));
                self.counters.failures = self.counters.failures.saturating_add(1);
                self.draft = DraftResponse::default();
                self.deliver_pending();
            }
            Record::Judged {
                call,
                verdict: Verdict::Deny,
                by,
                reason,
            } => {
                if let Some(turn) = &mut self.turn {
                    turn.mark_denied(call, *by, reason);
                }
            }
            Record::Judged { .. } => {}
            Record::Running { call, .. } => {
                if let Some(turn) = &mut self.turn {
                    turn.mark_running(call);
                }
            }
            Record::Result(result) => self.apply_result(result),
            Record::Subtask { call, task, ended } => self.apply_subtask(call, task, ended.as_ref()),
            Record::Context(shift) => self.apply_context_change(shift),
            Record::Ended { .. } => {
                self.phase = TaskPhase::Finished;
                self.deliver_pending();
            }
        }
    }

    fn apply_usage(&mut self, charge: UsageDelta) {
        self.totals.add_delta(charge);
        self.counters.cost += charge.cost;
        self.counters.tokens = self.counters.tokens.saturating_add(charge.total_tokens());
    }

    fn apply_result(&mut self, result: &CallResult) {
        match result.ending {
            ToolResultStatus::Done => self.counters.denials = 0,
            ToolResultStatus::Denied => {
                self.counters.denials = self.counters.denials.saturating_add(1);
                self.counters.mistakes = self.counters.mistakes.saturating_add(1);
            }
            _ => self.counters.mistakes = self.counters.mistakes.saturating_add(1),
        }
        if let Some(call) = self.open_call(&result.id).cloned() {
            self.apply_todo_result(&call, result);
            self.note_cycle(&call, result);
        }
        let Some(turn) = &mut self.turn else { return };
        if turn.rejects_completion(result) {
            self.counters.refusals = self.counters.refusals.saturating_add(1);
        }
        turn.mark_done(result);
        // One good call among bad ones is no progress: only a turn without mistakes ends the count.
        if turn.is_clean() {
            self.counters.mistakes = 0;
        }
        if let Some((parts, mut answers)) = turn.take_answers() {
            self.turn = None;
            answers.extend(self.todo_reminder().map(MessagePart::text));
            self.transcript.push_message(Role::Assistant, parts);
            self.transcript.push_message(Role::User, answers);
            self.transcript
                .note_readings(&self.settings.read_only_tools);
        }
    }

    /// Applies a record and has it kept.
    fn commit_record(&mut self, record: Record, effects: &mut Vec<TaskEffect>) {
        self.apply_record(&record);
        effects.push(TaskEffect::PersistRecord(record));
    }

    fn resume_work(&mut self, effects: &mut Vec<TaskEffect>) {
        self.record_lost_answer(effects);
        self.phase = TaskPhase::HandlingCalls;
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

    /// Asks the model, unless a limit says otherwise.
    fn request_next_turn(&mut self, effects: &mut Vec<TaskEffect>) {
        self.apply_current_mode();
        if let Some(message) = self
            .turn_limit()
            .or_else(|| self.token_limit())
            .or_else(|| self.cost_limit())
        {
            return self.end_task(TaskOutcome::Limit, &message, effects);
        }
        if self.compact_if_full(effects) {
            return;
        }
        self.phase = TaskPhase::AwaitingModel;
        effects.push(TaskEffect::RequestModel);
    }

    fn handle_model_finished(&mut self, effects: &mut Vec<TaskEffect>) {
        self.phase = TaskPhase::HandlingCalls;
        let draft = std::mem::take(&mut self.draft);
        let answered = self.check_answer(draft);
        let feedback = answered.feedback.clone();
        let (has_calls, spoken_to) = (!answered.checks.is_empty(), self.has_pending_message());
        self.commit_record(Record::Answered(answered), effects);
        if has_calls {
            self.advance_calls(effects);
        } else if spoken_to {
            self.continue_with_message(feedback, effects);
        } else {
            self.handle_reply_without_call(feedback, effects);
        }
    }

    /// Ends the task for now. Calls that have not begun keep waiting: a resumed task goes on with them.
    fn end_task(&mut self, outcome: TaskOutcome, message: &str, effects: &mut Vec<TaskEffect>) {
        self.commit_record(
            Record::Ended {
                outcome,
                message: message.to_owned(),
            },
            effects,
        );
        self.question = None;
        effects.push(TaskEffect::Finish(outcome, message.to_owned()));
    }

    /// Says something to the model on Sabir's behalf.
    fn send_reminder(&mut self, text: String, effects: &mut Vec<TaskEffect>) {
        self.commit_record(
            Record::Said {
                by: MessageAuthor::Sabir,
                text,
                images: Vec::new(),
                when: Delivery::Next,
            },
            effects,
        );
    }
}
