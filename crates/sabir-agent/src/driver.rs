//! The driver: executes the machine's effects over any model, store, front end and tools.
//!
//! A record is kept before its consequences begin. Dropping the future, or cancelling, drops the
//! request and the running tools with everything that they started.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{CallId, Event, Model};
use sabir_policy::Access;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::control;
use crate::event::{TaskEvent, TransientEvent, UserQuestion, UserReply};
use crate::observer::{
    CompactionObjection, DriverObserver, ObservedCall, StopObjection, ToolRefusal,
};
use crate::permit::{CallPermit, Preconditions};
use crate::record::{CompactionReason, Record, RecordStore, TaskOutcome};
use crate::subtask::SharedBudget;
use crate::task::{Task, TaskEffect, TaskInput};
use crate::tool::{CallFailure, PreparedCall, ProgressSink, ToolOutput, ToolRegistry};
use crate::user_command::{CommandQueue, UserCommand, UserNotice};

/// A front end: receives the events of a task and answers its requests.
pub trait FrontEnd: Send {
    /// Shows an event. Must be quick.
    fn on_event(&mut self, event: TaskEvent<'_>);

    /// Shows the answer to a command that the user gave unasked. Must be quick.
    fn notify(&mut self, _: UserNotice<'_>) {}

    /// Returns the queue of the user's commands, from the beginning of the task. Called once. `None` if there are no commands.
    fn commands(&mut self) -> Option<CommandQueue> {
        None
    }

    /// Asks a question. Never called for a headless task. Dropping the future withdraws the question, or delays it until commands that
    /// arrived meanwhile were handled; its event is shown only once.
    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>>;
}

/// The time that subtasks get to end when their task does.
const SUBTASK_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Cancels a task from outside. Clones cancel the same task.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Notify>);

/// Drives a task: holds its model, tools, store, front end and observers.
pub struct TaskDriver<'a> {
    /// The model that answers.
    pub model: &'a dyn Model,
    /// The tools.
    pub registry: &'a ToolRegistry,
    /// The store that keeps the records.
    pub store: &'a mut dyn RecordStore,
    /// The front end.
    pub front_end: &'a mut dyn FrontEnd,
    /// The observers of the task. They are called in this order, before the front end.
    pub observers: Vec<Arc<dyn DriverObserver>>,
    /// The token that interrupts the task.
    pub cancel: CancelToken,
    /// The most time that the run may take; `None`: no limit.
    pub max_time: Option<Duration>,
}

impl CancelToken {
    /// Interrupts the task. Calling it twice does no more than calling it once.
    pub fn cancel(&self) {
        self.0.notify_one();
    }

    async fn wait_cancelled(&self) {
        self.0.notified().await;
    }
}

impl std::fmt::Debug for TaskDriver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("registry", self.registry)
            .field("max_time", &self.max_time)
            .finish_non_exhaustive()
    }
}

/// The reason why a driver cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The task was stepped before, and the effects of that step went to another caller.
    /// [`Task::prepare_next_run`] makes it ready to be driven.
    #[error(
        "the task has begun already: it must be prepared for another run before it can be driven"
    )]
    AlreadyBegun,
}

/// An event that the driver waits for.
enum DriverEvent {
    ToolFinished(CallId, Box<ToolOutput>),
    ToolOutput(CallId, String),
    /// The refresh of a call is done, and the call can be checked.
    CallRefreshed(CallId, Box<dyn PreparedCall>),
    UserReplied(UserReply),
    UserCommand(UserCommand),
    /// An observer wants the model to continue instead of a question for the next message.
    Objected(StopObjection),
    Cancelled,
    Expired,
}

/// The end of a task: the outcome and the message for the user.
type TaskEnd = (TaskOutcome, String);

/// The things that can end a wait from outside, besides the cancel token.
struct Interrupts {
    deadline: Option<Instant>,
    /// The user's commands; `None` if there are none.
    commands: Option<CommandQueue>,
}

/// A question that waits for its answer.
struct OpenQuestion {
    question: UserQuestion,
    /// True once the question has been shown.
    shown: bool,
}

/// The calls that are prepared or running.
///
/// Results are returned in the order of the calls, so that the same answers give the same task. Results of subtasks are returned at once,
/// since other subtasks wait for a free slot.
#[derive(Default)]
struct RunningTools {
    /// The calls that were assessed and have neither begun nor been answered.
    prepared: HashMap<CallId, AssessedCall>,
    /// The calls that are brought up to date before they are checked.
    refreshing: JoinSet<(CallId, Box<dyn PreparedCall>)>,
    subtasks: JoinSet<(CallId, ToolOutput)>,
    /// The tokens that ask the running subtasks to end.
    subtask_stops: HashMap<CallId, Option<CancelToken>>,
    tool_work: JoinSet<(CallId, ToolOutput)>,
    order: VecDeque<CallId>,
    early_results: HashMap<CallId, ToolOutput>,
}

/// The reaction of an observer before the model is asked.
enum PreRequestAction {
    /// It allowed a compaction, or objected.
    Compaction(Result<(), CompactionObjection>),
    /// It added a text to the next turn, or none.
    Turn(Option<String>),
}

/// The task and its audience while an answer is streamed.
struct SharedTask<'a> {
    broadcaster: Broadcaster<'a>,
    task: &'a mut Task,
}

/// A call between its decision and its run.
struct AssessedCall {
    prepared: Box<dyn PreparedCall>,
    /// The tool's name and the access that the call was checked by.
    observed: ObservedCall,
}

type OutputChannel = (
    mpsc::Sender<(CallId, String)>,
    mpsc::Receiver<(CallId, String)>,
);

impl TaskDriver<'_> {
    /// Drives a task to its end. `first` is the record of its start, for a new task; `message` is
    /// the user's message to a resumed one.
    ///
    /// Needs a tokio runtime with time enabled. The end has been kept and shown when this returns,
    /// unless keeping failed ([`TaskOutcome::StoreFailed`]).
    ///
    /// # Errors
    /// If the task is not paused: another caller has stepped it, so the driver would wait forever.
    pub async fn run(
        self,
        task: &mut Task,
        first: Option<Record>,
        message: Option<String>,
    ) -> Result<(TaskOutcome, String), DriveError> {
        self.run_with_budget(&SharedBudget::default(), task, first, message)
            .await
    }

    /// Drives a task like [`run`](Self::run), within the budget that it shares with other tasks.
    pub(crate) async fn run_with_budget(
        mut self,
        budget: &SharedBudget,
        task: &mut Task,
        first: Option<Record>,
        message: Option<String>,
    ) -> Result<TaskEnd, DriveError> {
        // Any other phase ignores the first input, so the driver would wait forever.
        if !task.is_paused() {
            return Err(DriveError::AlreadyBegun);
        }
        let deadline = self
            .max_time
            .and_then(|time| Instant::now().checked_add(time));
        let mut interrupts = Interrupts {
            deadline,
            commands: self.front_end.commands(),
        };
        let begin = message.map_or(TaskInput::Begin, TaskInput::queued);
        let mut queue: VecDeque<TaskEffect> = first
            .map(TaskEffect::PersistRecord)
            .into_iter()
            .chain(task.step(begin))
            .collect();
        let mut tools = RunningTools::default();
        let mut outputs: OutputChannel = mpsc::channel(64);
        let mut open = None;
        loop {
            while let Some(effect) = queue.pop_front() {
                match effect {
                    TaskEffect::PersistRecord(record) => {
                        if let Record::Result(result) = &record {
                            // A call that is denied or rejected gets its result without running.
                            // Its prepared work is dropped.
                            tools.prepared.remove(&result.id);
                        }
                        // A record that was not kept has no consequences. All later effects
                        // are dropped with the queue.
                        if let Err(ended) = self.broadcaster().store_record(&record) {
                            return Ok(ended);
                        }
                    }
                    TaskEffect::RequestModel => {
                        match self.stream_answer(task, &mut interrupts, budget).await {
                            Ok(effects) => queue.extend(effects),
                            Err(ended) => return Ok(ended),
                        }
                    }
                    TaskEffect::AssessCall(call) => {
                        // A call that is checked again must not keep state that was read for the
                        // first decision.
                        tools.prepared.remove(&call);
                        let prepared = self.prepare_call(task, &call);
                        let is_unknown = prepared.is_none();
                        let current = prepared.and_then(|one| tools.refresh_call(&call, one));
                        if is_unknown || current.is_some() {
                            let input = assess_call(task, call, current, &mut tools);
                            queue.extend(task.step(input));
                        }
                    }
                    TaskEffect::RunCall(permit) => {
                        // The `running` record precedes this effect, so it is on disk before the
                        // tool starts.
                        self.start_call(task, budget.attach_to(permit), &mut tools, &outputs.0)
                    }
                    TaskEffect::StopSubtask(call) => tools.stop_subtask(&call),
                    TaskEffect::AskUser(asked) => {
                        let question = self.with_preview(task, asked, &mut tools);
                        open = Some(OpenQuestion {
                            question,
                            shown: false,
                        });
                    }
                    TaskEffect::WithdrawQuestion => open = None,
                    TaskEffect::StopAll => {
                        open = None;
                        // The task waits for its subtasks, since they report their usage at their
                        // end.
                        let ended = tools.stop_all().await.into_iter();
                        queue.extend(ended.flat_map(|(call, output)| {
                            task.step(TaskInput::ToolFinished(call, output))
                        }));
                    }
                    TaskEffect::Finish(TaskOutcome::Completed, message) => {
                        let objection = tokio::select! {
                            biased;
                            // The end is already kept, so the observers may be dropped.
                            () = self.cancel.wait_cancelled() => None,
                            () = wait_deadline(interrupts.deadline) => None,
                            objection = find_return_objection(&self.observers, &message) => objection,
                        };
                        let Some(objection) = objection else {
                            return Ok((TaskOutcome::Completed, message));
                        };
                        task.reopen_run();
                        queue.extend(task.step(TaskInput::Objection(objection.0)));
                    }
                    TaskEffect::Finish(outcome, message) => return Ok((outcome, message)),
                }
            }
            let event = self
                .wait_event(&mut tools, &mut outputs.1, open.as_mut(), &mut interrupts)
                .await;
            if let Some(input) =
                self.event_input(event, task, &mut open, &mut tools, &mut outputs.1)
            {
                queue.extend(task.step(input));
            }
        }
    }

    /// Translates an event into the task's input; `None` for an event that does not concern the
    /// task.
    fn event_input(
        &mut self,
        event: DriverEvent,
        task: &Task,
        open: &mut Option<OpenQuestion>,
        tools: &mut RunningTools,
        outputs: &mut mpsc::Receiver<(CallId, String)>,
    ) -> Option<TaskInput<'static>> {
        Some(match event {
            // Output of a running tool is only shown. The machine gets only the result, as a replay
            // does.
            DriverEvent::ToolOutput(call, text) => {
                self.broadcaster().show_event(TransientEvent::Output {
                    call: &call,
                    text: &text,
                });
                return None;
            }
            DriverEvent::ToolFinished(call, output) => {
                self.flush_output(outputs);
                TaskInput::ToolFinished(call, *output)
            }
            DriverEvent::CallRefreshed(call, prepared) => {
                assess_call(task, call, Some(prepared), tools)
            }
            DriverEvent::UserReplied(reply) => {
                *open = None;
                TaskInput::UserReplied(reply)
            }
            DriverEvent::UserCommand(UserCommand::Answer(call, reply)) => {
                // It may have been withdrawn while the answer was on its way.
                open.take_if(|open| open.question.call_id() == Some(&call))?;
                TaskInput::UserReplied(reply)
            }
            DriverEvent::UserCommand(command) => return command.into_input(task, self.front_end),
            DriverEvent::Objected(objection) => {
                *open = None;
                TaskInput::Objection(objection.0)
            }
            DriverEvent::Cancelled => TaskInput::Cancel,
            DriverEvent::Expired => TaskInput::TimeExpired,
        })
    }

    /// Asks the model and streams its answer. Commands of the user are applied at once; only those
    /// that interrupt the answer end it.
    async fn stream_answer(
        &mut self,
        task: &mut Task,
        interrupts: &mut Interrupts,
        budget: &SharedBudget,
    ) -> Result<Vec<TaskEffect>, TaskEnd> {
        // Reserved before asking: two subtasks that only looked could both take the last turn.
        let turn = match budget.reserve_turn() {
            Ok(turn) => turn,
            Err(limit) => return Ok(task.step(TaskInput::BudgetExhausted(limit.to_string()))),
        };
        let summarising = task.is_summarizing();
        // A request for a summary offers no tools and does not describe the folder; the next turn
        // does both.
        if !summarising {
            if let Some(fragments) = self.registry.poll_context() {
                let effects = task.step(TaskInput::ContextChanged(fragments));
                self.broadcaster().store_records(effects)?;
            }
            if let Some(change) = self.registry.take_changes(task.recorded_tools()) {
                let effects = task.step(TaskInput::ToolsChanged(change));
                self.broadcaster().store_records(effects)?;
            }
        }
        let summary_reason = task.summary_reason();
        let mut notes = Vec::new();
        for observer in &self.observers {
            let observed = async {
                match summary_reason {
                    Some(reason) => {
                        PreRequestAction::Compaction(observer.before_compaction(reason).await)
                    }
                    None => PreRequestAction::Turn(observer.before_request().await),
                }
            };
            let observed = tokio::select! {
                biased;
                () = self.cancel.wait_cancelled() => return Ok(task.step(TaskInput::Cancel)),
                () = wait_deadline(interrupts.deadline) => return Ok(task.step(TaskInput::TimeExpired)),
                observed = observed => observed,
            };
            match observed {
                PreRequestAction::Compaction(Err(_)) => {
                    let effects = task.step(TaskInput::CompactionRefused);
                    // An objection that has no effect leaves the task where it was.
                    if !effects.is_empty() || !task.is_summarizing() {
                        return Ok(effects);
                    }
                }
                PreRequestAction::Turn(Some(text)) => notes.push(text),
                PreRequestAction::Compaction(Ok(())) | PreRequestAction::Turn(None) => {}
            }
        }
        for note in notes {
            let effects = task.step(TaskInput::Note(note));
            self.broadcaster().store_records(effects)?;
        }
        let request = task.model_request();
        self.broadcaster().show_event(asking_event(task));
        let model = self.model;
        let cancel = self.cancel.clone();
        // The answer and the user's commands both change the task. Both are polled here, so the
        // lock is never contended.
        let shared = Mutex::new(SharedTask {
            broadcaster: self.broadcaster(),
            task,
        });
        let mut sink = |event: Event<'_>| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            // A summary is for the model: its record has it whole.
            if !summarising {
                shared.broadcaster.show_event(TransientEvent::Delta(event));
            }
            shared.task.step(TaskInput::ModelEvent(event));
        };
        let mut answer = model.stream_response(&request, &mut sink);
        let input = loop {
            let command = tokio::select! {
                biased;
                // `biased`: an interrupt wins over an answer that is ready at the same moment.
                () = cancel.wait_cancelled() => break TaskInput::Cancel,
                () = wait_deadline(interrupts.deadline) => break TaskInput::TimeExpired,
                Some(command) = interrupts.next_command() => command,
                answer = &mut answer => break answer.map_or_else(TaskInput::ModelFailed, |()| TaskInput::ModelFinished),
            };
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let SharedTask { broadcaster, task } = &mut *shared;
            let gives_up = command.interrupts_answer();
            match command.into_input(task, broadcaster.front_end) {
                // No question is open.
                None | Some(TaskInput::UserReplied(_)) => {}
                Some(input) if gives_up => break input,
                Some(input) => broadcaster.store_records(task.step(input))?,
            }
        };
        drop(answer);
        // The request shares the history. Stepping the task while it lives would copy all messages.
        drop(request);
        // A failed turn and a summary return their reservation when it is dropped, since limits
        // count answers.
        if matches!(input, TaskInput::ModelFinished) && !summarising {
            turn.commit();
        }
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(shared.task.step(input))
    }

    /// Prepares an open call; `None`: no tool has that name.
    fn prepare_call(&self, task: &Task, id: &CallId) -> Option<Box<dyn PreparedCall>> {
        let call = task.effective_call(id)?;
        let mut prepared = self.registry.get(&call.name)?.prepare(&call.arguments);
        prepared.note_values_on_own_lines(task.values_on_own_lines(id));
        Some(prepared)
    }

    /// Takes an assessed call to run it. A call that was approved before the driver was started is prepared again.
    fn take_prepared(
        &self,
        task: &Task,
        id: &CallId,
        tools: &mut RunningTools,
    ) -> Option<AssessedCall> {
        if !tools.prepared.contains_key(id) {
            let prepared = self.prepare_call(task, id)?;
            tools.observe_call(task, id, prepared)?;
        }
        tools.prepared.remove(id)
    }

    /// Adds a preview of what the call would write to the question about it, if its tool has one. If a file changes after the check, the
    /// preview may differ, but then the call does not run.
    fn with_preview(
        &self,
        task: &Task,
        mut question: UserQuestion,
        tools: &mut RunningTools,
    ) -> UserQuestion {
        if let UserQuestion::Approval { call, detail, .. } = &mut question {
            if !tools.prepared.contains_key(call)
                && let Some(prepared) = self.prepare_call(task, call)
            {
                _ = tools.observe_call(task, call, prepared);
            }
            if let Some(preview) = tools
                .prepared
                .get(call)
                .and_then(|assessed| assessed.prepared.preview())
            {
                *detail = preview;
            }
        }
        question
    }

    fn start_call(
        &self,
        task: &Task,
        permit: CallPermit,
        tools: &mut RunningTools,
        outputs: &mpsc::Sender<(CallId, String)>,
    ) {
        let id = permit.call.clone();
        let assessed = self.take_prepared(task, &id, tools);
        let outputs = outputs.clone();
        let observers = self.observers.clone();
        // Subtasks have their own list, since they are asked to end when other work is dropped.
        let is_subtask = task
            .open_call(&id)
            .is_some_and(|call| call.name == control::NEW_TASK_TOOL);
        let stop = assessed
            .as_ref()
            .filter(|_| is_subtask)
            .map(|assessed| assessed.prepared.stop_token());
        tools.spawn_work(id.clone(), stop, async move {
            let Some(assessed) = assessed else {
                return (id, ToolOutput::failed("There is no such tool."));
            };
            // A full queue drops a piece of the preview, never of the result.
            let mut progress = |text: &str| _ = outputs.try_send((id.clone(), text.to_owned()));
            let output = PanicGuard(Box::pin(run_call(
                assessed,
                &permit,
                &observers,
                &mut progress,
            )))
            .await;
            (id, output)
        });
    }

    fn broadcaster(&mut self) -> Broadcaster<'_> {
        Broadcaster {
            store: &mut *self.store,
            front_end: &mut *self.front_end,
            observers: &self.observers,
        }
    }

    async fn wait_event(
        &mut self,
        tools: &mut RunningTools,
        outputs: &mut mpsc::Receiver<(CallId, String)>,
        open: Option<&mut OpenQuestion>,
        interrupts: &mut Interrupts,
    ) -> DriverEvent {
        let deadline = interrupts.deadline;
        let Some(OpenQuestion { question, shown }) = open else {
            return tokio::select! {
                // The order is the priority: a cancel first, a result last, after the output that
                // precedes it.
                biased;
                () = self.cancel.wait_cancelled() => DriverEvent::Cancelled,
                () = wait_deadline(deadline) => DriverEvent::Expired,
                Some(command) = interrupts.next_command() => DriverEvent::UserCommand(command),
                Some((call, text)) = outputs.recv() => DriverEvent::ToolOutput(call, text),
                Some(event) = tools.next_event() => event,
            };
        };
        if !*shown {
            // The observers first: an objection withdraws a question that nobody has seen.
            let objection = tokio::select! {
                biased;
                () = self.cancel.wait_cancelled() => return DriverEvent::Cancelled,
                () = wait_deadline(deadline) => return DriverEvent::Expired,
                Some(command) = interrupts.next_command() => return DriverEvent::UserCommand(command),
                objection = find_question_objection(&self.observers, question) => objection,
            };
            if let Some(objection) = objection {
                return DriverEvent::Objected(objection);
            }
        }
        // Running tools continue, but their output waits, so that it does not interrupt the
        // question.
        if !std::mem::replace(shown, true) {
            self.broadcaster()
                .show_event(TransientEvent::Question(question));
        }
        tokio::select! {
            biased;
            () = self.cancel.wait_cancelled() => DriverEvent::Cancelled,
            () = wait_deadline(deadline) => DriverEvent::Expired,
            Some(command) = interrupts.next_command() => DriverEvent::UserCommand(command),
            reply = self.front_end.request(question) => DriverEvent::UserReplied(reply),
        }
    }

    /// Shows the output that is still in the channel, so that it is seen before the result.
    fn flush_output(&mut self, outputs: &mut mpsc::Receiver<(CallId, String)>) {
        while let Ok((call, text)) = outputs.try_recv() {
            self.broadcaster().show_event(TransientEvent::Output {
                call: &call,
                text: &text,
            });
        }
    }
}

impl Interrupts {
    /// Waits for the user's next command; `None` without a queue. Dropping the future loses no command.
    async fn next_command(&mut self) -> Option<UserCommand> {
        Some(self.commands.as_ref()?.receive().await)
    }
}

impl RunningTools {
    /// Begins to refresh a call, which [`next_event`](Self::next_event) returns afterwards. Returns a call that needs no refresh.
    fn refresh_call(
        &mut self,
        id: &CallId,
        call: Box<dyn PreparedCall>,
    ) -> Option<Box<dyn PreparedCall>> {
        let Some(work) = call.refresh() else {
            return Some(call);
        };
        let id = id.clone();
        self.refreshing.spawn(async move {
            // In a task of its own, so that a panic leaves the call as it was.
            let mut refresh = JoinSet::new();
            refresh.spawn(work);
            _ = refresh.join_next().await;
            (id, call)
        });
        None
    }

    /// Reads the preconditions and the access of a prepared call, and keeps it for its run; `None`: the call is not open any more.
    fn observe_call(
        &mut self,
        task: &Task,
        id: &CallId,
        prepared: Box<dyn PreparedCall>,
    ) -> Option<(&mut AssessedCall, Preconditions)> {
        let call = task.effective_call(id)?;
        // Preconditions are read before the access, so that a change between the two is noticed
        // before the run.
        let preconditions = prepared.preconditions();
        let observed = ObservedCall {
            id: id.clone(),
            tool: call.name.clone(),
            arguments: call.arguments.clone(),
            access: prepared.access(),
        };
        let slot = self
            .prepared
            .entry(id.clone())
            .insert_entry(AssessedCall { prepared, observed });
        Some((slot.into_mut(), preconditions))
    }

    /// Waits for the next result, or the next call that can be checked; `None` if nothing runs. Dropping the future loses nothing.
    async fn next_event(&mut self) -> Option<DriverEvent> {
        loop {
            // The order of the calls makes the journal independent of the speed of the tools.
            if let Some(output) = self
                .order
                .front()
                .and_then(|call| self.early_results.remove(call))
            {
                let call = self.order.pop_front()?;
                return Some(DriverEvent::ToolFinished(call, Box::new(output)));
            }
            tokio::select! {
                biased;
                Some(done) = self.tool_work.join_next() => {
                    if let Ok((call, output)) = done {
                        self.early_results.insert(call, output);
                    }
                }
                // Returned at once, in any order: a waiting subtask can begin when another has
                // ended.
                Some(done) = self.subtasks.join_next() => {
                    if let Ok((call, output)) = done {
                        self.subtask_stops.remove(&call);
                        return Some(DriverEvent::ToolFinished(call, Box::new(output)));
                    }
                }
                Some(refreshed) = self.refreshing.join_next() => {
                    if let Ok((call, prepared)) = refreshed {
                        return Some(DriverEvent::CallRefreshed(call, prepared));
                    }
                }
                else => return None,
            }
        }
    }

    /// Starts a tool's work. `subtask` is set for a subtask, and holds the token that asks it to end, if it has one.
    fn spawn_work(
        &mut self,
        call: CallId,
        subtask: Option<Option<CancelToken>>,
        work: impl Future<Output = (CallId, ToolOutput)> + Send + 'static,
    ) {
        if let Some(stop) = subtask {
            self.subtask_stops.insert(call, stop);
            self.subtasks.spawn(work);
        } else {
            self.order.push_back(call);
            self.tool_work.spawn(work);
        }
    }

    fn stop_subtask(&self, call: &CallId) {
        if let Some(Some(stop)) = self.subtask_stops.get(call) {
            stop.cancel();
        }
    }

    /// Drops all work except subtasks, which are asked to end, and returns the outputs of the subtasks. Drops a subtask that takes too
    /// long.
    async fn stop_all(&mut self) -> Vec<(CallId, ToolOutput)> {
        self.subtask_stops
            .keys()
            .for_each(|call| self.stop_subtask(call));
        self.refreshing.shutdown().await;
        self.tool_work.shutdown().await;
        self.order.clear();
        self.early_results.clear();
        self.prepared.clear();
        let mut ended = Vec::new();
        let join = async {
            while let Some(done) = self.subtasks.join_next().await {
                ended.extend(done);
            }
        };
        // Subtasks that could not end in time resume from their journals, as after a crash.
        _ = tokio::time::timeout(SUBTASK_STOP_TIMEOUT, join).await;
        self.subtasks.shutdown().await;
        ended
            .iter()
            .for_each(|(call, _)| _ = self.subtask_stops.remove(call));
        // Those that were dropped must report an end too, or the task would wait for them for ever.
        ended.extend(
            self.subtask_stops
                .drain()
                .map(|(call, _)| (call, ToolOutput::failed("It did not end in time."))),
        );
        ended
    }
}

/// Returns the event that says what the model is asked for.
fn asking_event(task: &Task) -> TransientEvent<'static> {
    let reason = match task.summary_reason() {
        Some(CompactionReason::Asked) => {
            Some("the model is asked for a summary of what came before")
        }
        Some(_) => Some("the context is full: the model is asked for a summary first"),
        None => None,
    };
    if let Some(reason) = reason {
        return TransientEvent::Waiting {
            reason,
            milliseconds: 0,
        };
    }
    TransientEvent::Asking {
        turn: task.turn_count().saturating_add(1),
        full: task.context_usage_percent(),
    }
}

/// The work of a tool; its panic is a failure of the tool and not of the task.
struct PanicGuard<F>(Pin<Box<F>>);

impl<F: Future<Output = ToolOutput>> Future for PanicGuard<F> {
    type Output = ToolOutput;

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<ToolOutput> {
        let work = self.0.as_mut();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.poll(context))) {
            Ok(poll) => poll,
            Err(_) => {
                let words =
                    "The tool crashed: a bug in Sabir. What it did is unknown; try another way.";
                std::task::Poll::Ready(ToolOutput::failed(words))
            }
        }
    }
}

/// Keeps records and shows events to the observers and the front end, which see the same.
struct Broadcaster<'a> {
    store: &'a mut dyn RecordStore,
    front_end: &'a mut dyn FrontEnd,
    observers: &'a [Arc<dyn DriverObserver>],
}

impl Broadcaster<'_> {
    /// Keeps a record, then shows it.
    fn store_record(&mut self, record: &Record) -> Result<(), TaskEnd> {
        // Kept first: an observer or a screen must never have seen what a crash then forgets.
        self.store
            .append(record)
            .map_err(|error| (TaskOutcome::StoreFailed, error.to_string()))?;
        self.observers
            .iter()
            .for_each(|observer| observer.on_record_stored(record));
        self.front_end.on_event(TaskEvent::Record(record));
        Ok(())
    }

    /// Stores the records among these effects. During a request, an input has no other effects.
    fn store_records(&mut self, effects: Vec<TaskEffect>) -> Result<(), TaskEnd> {
        for effect in effects {
            if let TaskEffect::PersistRecord(record) = effect {
                self.store_record(&record)?;
            }
        }
        Ok(())
    }

    fn show_event(&mut self, event: TransientEvent<'_>) {
        self.observers
            .iter()
            .for_each(|observer| observer.on_event(&event));
        self.front_end.on_event(TaskEvent::Transient(event));
    }
}

/// Assesses a prepared call for the policy; `None`: no tool has its name.
fn assess_call(
    task: &Task,
    id: CallId,
    prepared: Option<Box<dyn PreparedCall>>,
    tools: &mut RunningTools,
) -> TaskInput<'static> {
    let assessed = prepared
        .and_then(|prepared| tools.observe_call(task, &id, prepared))
        .map(|(call, preconditions)| {
            let access = call.observed.access.clone();
            // Asked about and then failing would cost the user a decision for nothing.
            let failure = if task.should_try_before_asking(&access) {
                call.prepared.dry_run().err()
            } else {
                None
            };
            let access = match failure {
                Some(CallFailure(reason)) => Access::Invalid { reason },
                None => access,
            };
            (access, preconditions)
        });
    let unknown = || {
        (
            Access::Invalid {
                reason: "there is no such tool".to_owned(),
            },
            Preconditions::default(),
        )
    };
    let (access, preconditions) = assessed.unwrap_or_else(unknown);
    TaskInput::CallAssessed(id, access, preconditions)
}

/// Runs an approved call between its observers, unless something that it depends on has changed.
async fn run_call(
    assessed: AssessedCall,
    permit: &CallPermit,
    observers: &[Arc<dyn DriverObserver>],
    progress: ProgressSink<'_>,
) -> ToolOutput {
    let AssessedCall { prepared, observed } = assessed;
    if let Some(refresh) = prepared.refresh() {
        refresh.await;
    }
    // The approval covers only the state that the user saw, so a call whose files or programs have
    // changed does not run.
    if let Some(words) = permit.violation_message(&prepared.preconditions()) {
        return ToolOutput::failed(words);
    }
    let watchers = observers
        .iter()
        .filter(|observer| observer.wants_previews());
    let watchers: Vec<_> = watchers.collect();
    if !watchers.is_empty()
        && let Some(preview) = prepared.preview()
    {
        for watcher in watchers {
            watcher.on_preview(&observed, &preview);
        }
    }
    let mut begun = observers.len();
    let mut obstacle = None;
    for (at, observer) in observers.iter().enumerate() {
        if let Err(ToolRefusal(words)) = observer.before_tool(&observed).await {
            begun = at;
            obstacle = Some(words);
            break;
        }
    }
    // Looked at once more, since the observers may have taken a while.
    if obstacle.is_none() && !observers.is_empty() {
        if let Some(refresh) = prepared.refresh() {
            refresh.await;
        }
        obstacle = permit.violation_message(&prepared.preconditions());
    }
    let has_run = obstacle.is_none();
    let mut output = match obstacle {
        Some(words) => ToolOutput::failed(words),
        // Guarded by itself, so that the observers hear of its end also when it panics.
        None => PanicGuard(Box::pin(async { prepared.run(permit, progress).await })).await,
    };
    // Exactly the observers that were notified of the beginning are notified of the end.
    for observer in observers.iter().take(begun) {
        observer.after_tool(&observed, &output).await;
    }
    if has_run {
        for note in observers
            .iter()
            .filter_map(|one| one.take_result_note(&observed))
        {
            output.content.push_str("\n\n");
            output.content.push_str(&note);
        }
    }
    output
}

/// Asks the observers before a run that has ended with a completion returns.
async fn find_return_objection(
    observers: &[Arc<dyn DriverObserver>],
    message: &str,
) -> Option<StopObjection> {
    for observer in observers {
        if let Err(objection) = observer.before_return(message).await {
            return Some(objection);
        }
    }
    None
}

/// Asks the observers before a question is shown.
async fn find_question_objection(
    observers: &[Arc<dyn DriverObserver>],
    question: &UserQuestion,
) -> Option<StopObjection> {
    for observer in observers {
        if let Err(objection) = observer.before_question(question).await
            && matches!(question, UserQuestion::Next { .. })
        {
            return Some(objection);
        }
    }
    None
}

async fn wait_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
