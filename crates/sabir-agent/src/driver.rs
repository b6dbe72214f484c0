//! The driver: what the machine asks for is done here, over any model, store and user.
//!
//! A record is kept before its consequences are begun. Dropping the future, or cancelling, drops the request and the
//! running tools with everything that they started.

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
use crate::observer::{DriverObserver, ObservedCall, ToolRefusal};
use crate::permit::{CallPermit, Preconditions};
use crate::record::{CompactionReason, Record, RecordStore, TaskOutcome};
use crate::subtask::SharedBudget;
use crate::task::{Task, TaskEffect, TaskInput};
use crate::tool::{PreparedCall, ProgressSink, ToolOutput, ToolRegistry};
use crate::user_command::{CommandQueue, UserCommand, UserNotice};

/// A front end: receives the events of a task and answers its requests.
pub trait FrontEnd: Send {
    /// Shows something. Must be quick.
    fn on_event(&mut self, event: TaskEvent<'_>);

    /// Tells what the user asked for on his own account. Must be quick.
    fn notify(&mut self, _: UserNotice<'_>) {}

    /// What the user says on his own account, in its order, from the beginning of the task. Asked for once. `None`: nothing.
    fn commands(&mut self) -> Option<CommandQueue> {
        None
    }

    /// Asks. Never called for a task that nobody attends. Dropping the future withdraws the question, or has it asked once more
    /// after words that came meanwhile were shown; it is shown as a moment only once.
    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>>;
}

/// How long a subtask may take to end when its task does.
const SUBTASK_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends a task from outside. Clones cancel the same task.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Notify>);

/// Everything that a task is driven with.
pub struct TaskDriver<'a> {
    /// Where answers come from.
    pub model: &'a dyn Model,
    /// The tools.
    pub registry: &'a ToolRegistry,
    /// Where records are kept.
    pub store: &'a mut dyn RecordStore,
    /// The front end.
    pub front_end: &'a mut dyn FrontEnd,
    /// Who else follows the task. Each is told of everything in this order, before the front end is.
    pub observers: Vec<Arc<dyn DriverObserver>>,
    /// How to interrupt.
    pub cancel: CancelToken,
    /// The most time, from now.
    pub max_time: Option<Duration>,
}

impl CancelToken {
    /// Interrupts the task. Asking twice does no more than asking once.
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

/// What happens next.
enum DriverEvent {
    ToolFinished(CallId, Box<ToolOutput>),
    ToolOutput(CallId, String),
    UserReplied(UserReply),
    UserCommand(UserCommand),
    Cancelled,
    Expired,
}

/// How a task ended, with the words for it.
type TaskEnd = (TaskOutcome, String);

/// What may end a wait from outside, beside the cancel.
struct Interrupts {
    deadline: Option<Instant>,
    /// What the user says; none if he says nothing.
    commands: Option<CommandQueue>,
}

/// A question that waits for its answer.
struct OpenQuestion {
    question: UserQuestion,
    /// Whether it has been shown.
    shown: bool,
}

/// The calls that are prepared or run.
///
/// Results are returned in the order of the calls, so that the same answers make the same task: the result of a call that ends before
/// one that was started earlier waits. Subtasks do not wait for one another, since others wait for their turn.
#[derive(Default)]
struct RunningTools {
    /// The calls that were assessed and have neither begun nor been answered.
    prepared: HashMap<CallId, AssessedCall>,
    subtasks: JoinSet<(CallId, ToolOutput)>,
    /// The subtasks that run, with what asks each to end.
    subtask_stops: HashMap<CallId, Option<CancelToken>>,
    tool_work: JoinSet<(CallId, ToolOutput)>,
    order: VecDeque<CallId>,
    early_results: HashMap<CallId, ToolOutput>,
}

/// A call from its judgement to its run.
struct AssessedCall {
    prepared: Box<dyn PreparedCall>,
    /// The tool's name and what the call was judged by.
    observed: ObservedCall,
}

type OutputChannel = (
    mpsc::Sender<(CallId, String)>,
    mpsc::Receiver<(CallId, String)>,
);

impl TaskDriver<'_> {
    /// Drives a task to its end. `first` is the record of its start, for a new task; `words` are what the user says to a
    /// resumed one.
    ///
    /// Needs a tokio runtime with time enabled. The end has been kept and shown when this returns, unless keeping
    /// failed ([`TaskOutcome::StoreFailed`]).
    pub async fn run(
        self,
        task: &mut Task,
        first: Option<Record>,
        words: Option<String>,
    ) -> (TaskOutcome, String) {
        self.run_with_budget(&SharedBudget::default(), task, first, words)
            .await
    }

    /// As [`run`](Self::run), with what the task shares with others of its family.
    pub(crate) async fn run_with_budget(
        mut self,
        purse: &SharedBudget,
        task: &mut Task,
        first: Option<Record>,
        words: Option<String>,
    ) -> TaskEnd {
        let deadline = self
            .max_time
            .and_then(|time| Instant::now().checked_add(time));
        let mut outside = Interrupts {
            deadline,
            commands: self.front_end.commands(),
        };
        let begin = words.map_or(TaskInput::Begin, TaskInput::queued);
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
                            tools.prepared.remove(&result.id);
                        }
                        if let Err(ended) = self.broadcaster().store_record(&record) {
                            return ended;
                        }
                    }
                    TaskEffect::RequestModel => {
                        match self.stream_answer(task, &mut outside, purse).await {
                            Ok(effects) => queue.extend(effects),
                            Err(ended) => return ended,
                        }
                    }
                    TaskEffect::AssessCall(call) => {
                        let effects = self.assess_call(task, call, &mut tools);
                        queue.extend(effects);
                    }
                    TaskEffect::RunCall(permit) => {
                        self.start_call(task, purse.attach_to(permit), &mut tools, &outputs.0)
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
                        let ended = tools.stop_all().await.into_iter();
                        queue.extend(ended.flat_map(|(call, output)| {
                            task.step(TaskInput::ToolFinished(call, output))
                        }));
                    }
                    TaskEffect::Finish(outcome, message) => return (outcome, message),
                }
            }
            let happening = self
                .wait_event(&mut tools, &mut outputs.1, open.as_mut(), &mut outside)
                .await;
            if let Some(input) = self.event_input(happening, task, &mut open, &mut outputs.1) {
                queue.extend(task.step(input));
            }
        }
    }

    /// What happened, as the task is told it; `None`: it is not.
    fn event_input(
        &mut self,
        happening: DriverEvent,
        task: &Task,
        open: &mut Option<OpenQuestion>,
        outputs: &mut mpsc::Receiver<(CallId, String)>,
    ) -> Option<TaskInput<'static>> {
        Some(match happening {
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
            DriverEvent::UserReplied(reply) => {
                *open = None;
                TaskInput::UserReplied(reply)
            }
            DriverEvent::UserCommand(UserCommand::Answer(call, reply)) => {
                // It may have been withdrawn while the answer was on its way.
                open.take_if(|open| open.question.call_id() == Some(&call))?;
                TaskInput::UserReplied(reply)
            }
            DriverEvent::UserCommand(heard) => return heard.into_input(task, self.front_end),
            DriverEvent::Cancelled => TaskInput::Cancel,
            DriverEvent::Expired => TaskInput::TimeExpired,
        })
    }

    /// Asks the model. What the user says meanwhile is kept at once; only what gives up the answer ends it.
    async fn stream_answer(
        &mut self,
        task: &mut Task,
        outside: &mut Interrupts,
        purse: &SharedBudget,
    ) -> Result<Vec<TaskEffect>, TaskEnd> {
        let turn = match purse.reserve_turn() {
            Ok(turn) => turn,
            Err(words) => return Ok(task.step(TaskInput::BudgetExhausted(words))),
        };
        let summarising = task.is_summarising();
        let looked = if summarising {
            None
        } else {
            self.registry.poll_context()
        };
        for effect in looked
            .map(|fragments| task.step(TaskInput::ContextChanged(fragments)))
            .unwrap_or_default()
        {
            let TaskEffect::PersistRecord(record) = effect else {
                continue;
            };
            self.broadcaster().store_record(&record)?;
        }
        let changed = if summarising {
            None
        } else {
            self.registry.take_changes(task.recorded_tools())
        };
        for effect in changed
            .map(|change| task.step(TaskInput::ToolsChanged(change)))
            .unwrap_or_default()
        {
            let TaskEffect::PersistRecord(record) = effect else {
                continue;
            };
            self.broadcaster().store_record(&record)?;
        }
        let request = task.model_request();
        self.broadcaster().show_event(asking_event(task));
        let model = self.model;
        let cancel = self.cancel.clone();
        // The answer and the user's messages take turns at it; both are polled here, so nobody ever waits for the lock.
        let desk = Mutex::new((self.broadcaster(), task));
        let mut sink = |event: Event<'_>| {
            let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
            // A summary is for the model: its record has it whole.
            if !summarising {
                desk.0.show_event(TransientEvent::Delta(event));
            }
            desk.1.step(TaskInput::ModelEvent(event));
        };
        let mut answer = model.stream_response(&request, &mut sink);
        let input = loop {
            let heard = tokio::select! {
                biased;
                () = cancel.wait_cancelled() => break TaskInput::Cancel,
                () = wait_deadline(outside.deadline) => break TaskInput::TimeExpired,
                Some(heard) = outside.next_command() => heard,
                answer = &mut answer => break answer.map_or_else(TaskInput::ModelFailed, |()| TaskInput::ModelFinished),
            };
            let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
            let (broadcaster, task) = &mut *desk;
            let gives_up = heard.interrupts_answer();
            match heard.into_input(task, broadcaster.front_end) {
                // No question is open.
                None | Some(TaskInput::UserReplied(_)) => {}
                Some(input) if gives_up => break input,
                Some(input) => {
                    for effect in task.step(input) {
                        let TaskEffect::PersistRecord(record) = effect else {
                            continue;
                        };
                        broadcaster.store_record(&record)?;
                    }
                }
            }
        };
        drop(answer);
        drop(request);
        if matches!(input, TaskInput::ModelFinished) && !summarising {
            turn.commit();
        }
        let (_, task) = desk.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(task.step(input))
    }

    /// Prepares a call and has it judged.
    fn assess_call(
        &self,
        task: &mut Task,
        id: CallId,
        tools: &mut RunningTools,
    ) -> Vec<TaskEffect> {
        tools.prepared.remove(&id);
        let assessed = self
            .prepare_call(task, &id, tools)
            .map(|(call, preconditions)| {
                let access = call.observed.access.clone();
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
        task.step(TaskInput::CallAssessed(id, access, preconditions))
    }

    /// Prepares an open call, with its preconditions from before it was looked at; `None`: no tool has that name.
    fn prepare_call<'t>(
        &self,
        task: &Task,
        id: &CallId,
        tools: &'t mut RunningTools,
    ) -> Option<(&'t mut AssessedCall, Preconditions)> {
        let call = task.effective_call(id)?;
        let prepared = self.registry.get(&call.name)?.prepare(&call.arguments);
        // Preconditions come before the access: what changes between the two is then noticed before the run.
        let preconditions = prepared.preconditions();
        let observed = ObservedCall {
            id: id.clone(),
            tool: call.name.clone(),
            access: prepared.access(),
        };
        let slot = tools
            .prepared
            .entry(id.clone())
            .insert_entry(AssessedCall { prepared, observed });
        Some((slot.into_mut(), preconditions))
    }

    /// Takes the call that was assessed for its run. A call that was approved before the driver was started is prepared again.
    fn take_prepared(
        &self,
        task: &Task,
        id: &CallId,
        tools: &mut RunningTools,
    ) -> Option<AssessedCall> {
        if !tools.prepared.contains_key(id) {
            self.prepare_call(task, id, tools)?;
        }
        tools.prepared.remove(id)
    }

    /// Adds to the question about a call what the call would write, where its tool can tell. If a file changes after the call was
    /// judged, the preview is that of a call which will not run.
    fn with_preview(
        &self,
        task: &Task,
        mut question: UserQuestion,
        tools: &mut RunningTools,
    ) -> UserQuestion {
        if let UserQuestion::Approval { call, detail, .. } = &mut question {
            if !tools.prepared.contains_key(call) {
                _ = self.prepare_call(task, call, tools);
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
        outside: &mut Interrupts,
    ) -> DriverEvent {
        let deadline = outside.deadline;
        let Some(OpenQuestion { question, shown }) = open else {
            return tokio::select! {
                biased;
                () = self.cancel.wait_cancelled() => DriverEvent::Cancelled,
                () = wait_deadline(deadline) => DriverEvent::Expired,
                Some(heard) = outside.next_command() => DriverEvent::UserCommand(heard),
                Some((call, text)) = outputs.recv() => DriverEvent::ToolOutput(call, text),
                Some((call, output)) = tools.next_result() => DriverEvent::ToolFinished(call, Box::new(output)),
            };
        };
        // Tools that still run go on; what they say waits, so that a question is asked once and read in peace.
        if !std::mem::replace(shown, true) {
            self.broadcaster()
                .show_event(TransientEvent::Question(question));
        }
        tokio::select! {
            biased;
            () = self.cancel.wait_cancelled() => DriverEvent::Cancelled,
            () = wait_deadline(deadline) => DriverEvent::Expired,
            Some(heard) = outside.next_command() => DriverEvent::UserCommand(heard),
            reply = self.front_end.request(question) => DriverEvent::UserReplied(reply),
        }
    }

    /// What a tool printed last must be seen before its result.
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
    /// What the user says next; `None`: there is nobody who could say anything. Dropping the future loses nothing.
    async fn next_command(&mut self) -> Option<UserCommand> {
        Some(self.commands.as_ref()?.receive().await)
    }
}

impl RunningTools {
    /// The next result; `None` if nothing runs. Dropping the future loses nothing.
    async fn next_result(&mut self) -> Option<(CallId, ToolOutput)> {
        loop {
            if let Some(output) = self
                .order
                .front()
                .and_then(|call| self.early_results.remove(call))
            {
                return self.order.pop_front().map(|call| (call, output));
            }
            tokio::select! {
                biased;
                Some(done) = self.tool_work.join_next() => {
                    if let Ok((call, output)) = done {
                        self.early_results.insert(call, output);
                    }
                }
                Some(done) = self.subtasks.join_next() => {
                    if let Ok((call, output)) = done {
                        self.subtask_stops.remove(&call);
                        return Some((call, output));
                    }
                }
                else => return None,
            }
        }
    }

    /// Starts work; `subtask`: for the work of a subtask, what asks it to end.
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

    /// Drops all work but subtasks, which are asked to end; how they did. One that takes too long is dropped as well.
    async fn stop_all(&mut self) -> Vec<(CallId, ToolOutput)> {
        self.subtask_stops
            .keys()
            .for_each(|call| self.stop_subtask(call));
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
        // What could not end in time goes on from its journal, as after a crash.
        _ = tokio::time::timeout(SUBTASK_STOP_TIMEOUT, join).await;
        self.subtasks.shutdown().await;
        ended
            .iter()
            .for_each(|(call, _)| _ = self.subtask_stops.remove(call));
        ended.extend(
            self.subtask_stops
                .drain()
                .map(|(call, _)| (call, ToolOutput::failed("It did not end in time."))),
        );
        ended
    }
}

/// What the model is asked for.
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

/// A tool's work whose panic is a failure of the tool, not of the task.
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
                    "The tool broke down: a bug in Sabir. What it did is unknown; try another way.";
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
        self.store
            .append(record)
            .map_err(|error| (TaskOutcome::StoreFailed, error.to_string()))?;
        self.observers
            .iter()
            .for_each(|observer| observer.on_record_kept(record));
        self.front_end.on_event(TaskEvent::Record(record));
        Ok(())
    }

    fn show_event(&mut self, event: TransientEvent<'_>) {
        self.observers
            .iter()
            .for_each(|observer| observer.on_event(&event));
        self.front_end.on_event(TaskEvent::Moment(event));
    }
}

/// Runs an approved call between its observers, unless something that it depends on has changed.
async fn run_call(
    assessed: AssessedCall,
    permit: &CallPermit,
    observers: &[Arc<dyn DriverObserver>],
    progress: ProgressSink<'_>,
) -> ToolOutput {
    let AssessedCall { prepared, observed } = assessed;
    if let Some(words) = permit.violation_message(&prepared.preconditions()) {
        return ToolOutput::failed(words);
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
        obstacle = permit.violation_message(&prepared.preconditions());
    }
    let output = match obstacle {
        Some(words) => ToolOutput::failed(words),
        // Guarded by itself, so that the observers hear of its end also when it panics.
        None => PanicGuard(Box::pin(async { prepared.run(permit, progress).await })).await,
    };
    for observer in observers.iter().take(begun) {
        observer.after_tool(&observed, &output).await;
    }
    output
}

async fn wait_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
