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
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::control;
use crate::event::{Moment, Question, Reply, TaskEvent};
use crate::heard::{Aside, Heard};
use crate::permit::{Bound, Permit};
use crate::record::{Outcome, Record, Store, Why};
use crate::subtask::Purse;
use crate::task::{Effect, Input, Task};
use crate::tool::{Registry, Tool, ToolOutput};

/// Whoever watches a task and is asked.
pub trait User: Send {
    /// Shows something. Must be quick.
    fn show(&mut self, event: TaskEvent<'_>);

    /// Tells what the user asked for on his own account. Must be quick.
    fn tell(&mut self, _: Aside<'_>) {}

    /// What the user says on his own account, in its order, from the beginning of the task. Asked for once. `None`: nothing.
    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        None
    }

    /// Asks. Never called for a task that nobody attends. Dropping the future withdraws the question, or has it asked once more
    /// after words that came meanwhile were shown; it is shown as a moment only once.
    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;
}

/// How long a subtask may take to end when its task does.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ends a task from outside. Clones cancel the same task.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Notify>);

/// Everything that a task is driven with.
pub struct Driver<'a> {
    /// Where answers come from.
    pub model: &'a dyn Model,
    /// The tools.
    pub registry: &'a Registry,
    /// Where records are kept.
    pub store: &'a mut dyn Store,
    /// Who watches.
    pub user: &'a mut dyn User,
    /// How to interrupt.
    pub cancel: Cancel,
    /// The most time, from now.
    pub max_time: Option<Duration>,
}

impl Cancel {
    /// Interrupts the task. Asking twice does no more than asking once.
    pub fn cancel(&self) {
        self.0.notify_one();
    }

    async fn cancelled(&self) {
        self.0.notified().await;
    }
}

impl std::fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("registry", self.registry)
            .field("max_time", &self.max_time)
            .finish_non_exhaustive()
    }
}

/// What happens next.
enum Happening {
    Ran(CallId, Box<ToolOutput>),
    Output(CallId, String),
    Replied(Reply),
    Heard(Heard),
    Cancelled,
    Expired,
}

/// How a task ended, with the words for it.
type Ended = (Outcome, String);

/// What may end a wait from outside, beside the cancel.
struct Outside {
    deadline: Option<Instant>,
    /// What the user says; none if he says nothing.
    ears: Option<UnboundedReceiver<Heard>>,
}

/// A question that waits for its answer.
struct Open {
    question: Question,
    /// Whether it has been shown.
    shown: bool,
}

/// The tools that run, and what those said that ended before one that was started earlier: results come in the order of their
/// calls, so that the same answers make the same task. Subtasks do not wait for one another, since others wait for their turn.
#[derive(Default)]
struct Running {
    subtasks: JoinSet<(CallId, ToolOutput)>,
    /// Who asks those to end.
    enders: HashMap<CallId, Arc<dyn Tool>>,
    works: JoinSet<(CallId, ToolOutput)>,
    order: VecDeque<CallId>,
    early: HashMap<CallId, ToolOutput>,
}

type Outputs = (mpsc::Sender<(CallId, String)>, mpsc::Receiver<(CallId, String)>);

impl Driver<'_> {
    /// Drives a task to its end. `first` is the record of its start, for a new task; `words` are what the user says to a
    /// resumed one.
    ///
    /// Needs a tokio runtime with time enabled. The end has been kept and shown when this returns, unless keeping
    /// failed ([`Outcome::StoreFailed`]).
    pub async fn run(self, task: &mut Task, first: Option<Record>, words: Option<String>) -> (Outcome, String) {
        self.run_within(&Purse::default(), task, first, words).await
    }

    /// As [`run`](Self::run), with what the task shares with others of its family.
    pub(crate) async fn run_within(
        mut self,
        purse: &Purse,
        task: &mut Task,
        first: Option<Record>,
        words: Option<String>,
    ) -> Ended {
        let deadline = self.max_time.and_then(|time| Instant::now().checked_add(time));
        let mut outside = Outside { deadline, ears: self.user.hears() };
        let begin = words.map_or(Input::Begin, Input::Said);
        let mut queue: VecDeque<Effect> = first.map(Effect::Keep).into_iter().chain(task.step(begin)).collect();
        let mut tools = Running::default();
        let mut outputs: Outputs = mpsc::channel(64);
        let mut open = None;
        loop {
            while let Some(effect) = queue.pop_front() {
                match effect {
                    Effect::Keep(record) => {
                        if let Err(ended) = keep(self.store, self.user, &record) {
                            return ended;
                        }
                    }
                    Effect::Ask => match self.ask(task, &mut outside, purse).await {
                        Ok(effects) => queue.extend(effects),
                        Err(ended) => return ended,
                    },
                    Effect::Weigh(call) => queue.extend(self.weigh(task, call)),
                    Effect::Run(permit) => self.start(task, purse.pays(permit), &mut tools, &outputs.0),
                    Effect::GiveUp(call) => tools.give_up(&call),
                    Effect::Question(asked) => {
                        open = Some(Open { question: self.previewed(task, asked), shown: false });
                    }
                    Effect::Withdraw => open = None,
                    Effect::Stop => {
                        open = None;
                        let ended = tools.stop().await.into_iter();
                        queue.extend(ended.flat_map(|(call, output)| task.step(Input::Ran(call, output))));
                    }
                    Effect::Finish(outcome, message) => return (outcome, message),
                }
            }
            let happening = self.wait(&mut tools, &mut outputs.1, open.as_mut(), &mut outside).await;
            if let Some(input) = self.taken(happening, task, &mut open, &mut outputs.1) {
                queue.extend(task.step(input));
            }
        }
    }

    /// What happened, as the task is told it; `None`: it is not.
    fn taken(
        &mut self,
        happening: Happening,
        task: &Task,
        open: &mut Option<Open>,
        outputs: &mut mpsc::Receiver<(CallId, String)>,
    ) -> Option<Input<'static>> {
        Some(match happening {
            Happening::Output(call, text) => {
                self.user.show(TaskEvent::Moment(Moment::Output { call: &call, text: &text }));
                return None;
            }
            Happening::Ran(call, output) => {
                self.show_rest(outputs);
                Input::Ran(call, *output)
            }
            Happening::Replied(reply) => {
                *open = None;
                Input::Replied(reply)
            }
            Happening::Heard(Heard::Replied(call, reply)) => {
                // It may have been withdrawn while the answer was on its way.
                open.take_if(|open| open.question.call() == Some(&call))?;
                Input::Replied(reply)
            }
            Happening::Heard(heard) => return heard.put(task, self.user),
            Happening::Cancelled => Input::Cancel,
            Happening::Expired => Input::Expired,
        })
    }

    /// Asks the model. What the user says meanwhile is kept at once; only what gives up the answer ends it.
    async fn ask(&mut self, task: &mut Task, outside: &mut Outside, purse: &Purse) -> Result<Vec<Effect>, Ended> {
        let turn = match purse.begin_turn() {
            Ok(turn) => turn,
            Err(words) => return Ok(task.step(Input::Spent(words))),
        };
        let summarising = task.is_summarising();
        let looked = if summarising { None } else { self.registry.look() };
        for effect in looked.map(|fragments| task.step(Input::Looked(fragments))).unwrap_or_default() {
            let Effect::Keep(record) = effect else { continue };
            keep(self.store, self.user, &record)?;
        }
        let request = task.request();
        self.user.show(TaskEvent::Moment(asking(task)));
        let (model, cancel, store) = (self.model, &self.cancel, &mut *self.store);
        // The answer and the words take turns at it; both are polled here, so nobody ever waits for the lock.
        let desk = Mutex::new((&mut *self.user, task));
        let mut sink = |event: Event<'_>| {
            let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
            // A summary is for the model: its record has it whole.
            if !summarising {
                desk.0.show(TaskEvent::Moment(Moment::Delta(event)));
            }
            desk.1.step(Input::Event(event));
        };
        let mut answer = model.answer(&request, &mut sink);
        let input = loop {
            let heard = tokio::select! {
                biased;
                () = cancel.cancelled() => break Input::Cancel,
                () = until(outside.deadline) => break Input::Expired,
                Some(heard) = outside.hear() => heard,
                answer = &mut answer => break answer.map_or_else(Input::Failed, |()| Input::Answered),
            };
            let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
            let (user, task) = &mut *desk;
            let gives_up = heard.gives_up();
            match heard.put(task, *user) {
                // No question is open.
                None | Some(Input::Replied(_)) => {}
                Some(input) if gives_up => break input,
                Some(input) => {
                    for effect in task.step(input) {
                        let Effect::Keep(record) = effect else { continue };
                        keep(store, *user, &record)?;
                    }
                }
            }
        };
        drop(answer);
        drop(request);
        if matches!(input, Input::Answered) && !summarising {
            turn.made();
        }
        let (_, task) = desk.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(task.step(input))
    }

    fn weigh(&self, task: &mut Task, id: CallId) -> Vec<Effect> {
        let weighed = task.work(&id).and_then(|call| {
            let tool = self.registry.get(&call.name)?;
            // What it depends on is looked at first: what changes after that is noticed.
            let bound = tool.bound(&call.arguments);
            Some((tool.access(&call.arguments), bound))
        });
        let unknown = || (Access::Invalid { reason: "there is no such tool".to_owned() }, Bound::default());
        let (access, bound) = weighed.unwrap_or_else(unknown);
        task.step(Input::Weighed(id, access, bound))
    }

    /// The question with what the call would write as it would be written, where its tool can tell. A file that changes after the
    /// call was weighed makes the preview that of a call which will not run.
    fn previewed(&self, task: &Task, mut question: Question) -> Question {
        if let Question::Approval { call, detail, .. } = &mut question
            && let Some(call) = task.call(call)
            && let Some(preview) = self.registry.get(&call.name).and_then(|tool| tool.preview(&call.arguments))
        {
            *detail = preview;
        }
        question
    }

    fn start(&self, task: &Task, permit: Permit, tools: &mut Running, outputs: &mpsc::Sender<(CallId, String)>) {
        let id = permit.call.clone();
        let tool =
            task.work(&id).and_then(|call| Some((Arc::clone(self.registry.get(&call.name)?), call.arguments.clone())));
        let outputs = outputs.clone();
        let lasting = task.call(&id).is_some_and(|call| call.name == control::SUBTASK);
        let subtask = tool.as_ref().filter(|_| lasting).map(|(tool, _)| Arc::clone(tool));
        tools.spawn(id.clone(), subtask, async move {
            let Some((tool, arguments)) = tool else { return (id, ToolOutput::failed("There is no such tool.")) };
            let name = id.clone();
            let work = async move {
                // A full queue drops a piece of the preview, never of the result.
                let mut progress = |text: &str| _ = outputs.try_send((name.clone(), text.to_owned()));
                match permit.broken(&tool.bound(&arguments)) {
                    None => tool.run(&permit, &arguments, &mut progress).await,
                    Some(words) => ToolOutput::failed(words),
                }
            };
            let output = Guarded(Box::pin(work)).await;
            (id, output)
        });
    }

    async fn wait(
        &mut self,
        tools: &mut Running,
        outputs: &mut mpsc::Receiver<(CallId, String)>,
        open: Option<&mut Open>,
        outside: &mut Outside,
    ) -> Happening {
        let deadline = outside.deadline;
        let Some(Open { question, shown }) = open else {
            return tokio::select! {
                biased;
                () = self.cancel.cancelled() => Happening::Cancelled,
                () = until(deadline) => Happening::Expired,
                Some(heard) = outside.hear() => Happening::Heard(heard),
                Some((call, text)) = outputs.recv() => Happening::Output(call, text),
                Some((call, output)) = tools.next() => Happening::Ran(call, Box::new(output)),
            };
        };
        // Tools that still run go on; what they say waits, so that a question is asked once and read in peace.
        if !std::mem::replace(shown, true) {
            self.user.show(TaskEvent::Moment(Moment::Question(question)));
        }
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Happening::Cancelled,
            () = until(deadline) => Happening::Expired,
            Some(heard) = outside.hear() => Happening::Heard(heard),
            reply = self.user.ask(question) => Happening::Replied(reply),
        }
    }

    /// What a tool printed last must be seen before its result.
    fn show_rest(&mut self, outputs: &mut mpsc::Receiver<(CallId, String)>) {
        while let Ok((call, text)) = outputs.try_recv() {
            self.user.show(TaskEvent::Moment(Moment::Output { call: &call, text: &text }));
        }
    }
}

impl Outside {
    /// What the user says next; `None`: there is nobody who could say anything. Dropping the future loses nothing.
    async fn hear(&mut self) -> Option<Heard> {
        self.ears.as_mut()?.recv().await
    }
}

impl Running {
    /// The next result; `None` if nothing runs. Dropping the future loses nothing.
    async fn next(&mut self) -> Option<(CallId, ToolOutput)> {
        loop {
            if let Some(output) = self.order.front().and_then(|call| self.early.remove(call)) {
                return self.order.pop_front().map(|call| (call, output));
            }
            tokio::select! {
                biased;
                Some(done) = self.works.join_next() => {
                    if let Ok((call, output)) = done {
                        self.early.insert(call, output);
                    }
                }
                Some(done) = self.subtasks.join_next() => {
                    if let Ok((call, output)) = done {
                        self.enders.remove(&call);
                        return Some((call, output));
                    }
                }
                else => return None,
            }
        }
    }

    /// Starts work; `subtask`: who asks it to end, where it is a subtask's.
    fn spawn(
        &mut self,
        call: CallId,
        subtask: Option<Arc<dyn Tool>>,
        work: impl Future<Output = (CallId, ToolOutput)> + Send + 'static,
    ) {
        if let Some(tool) = subtask {
            self.enders.insert(call, tool);
            self.subtasks.spawn(work);
        } else {
            self.order.push_back(call);
            self.works.spawn(work);
        }
    }

    fn give_up(&self, call: &CallId) {
        if let Some(tool) = self.enders.get(call) {
            tool.give_up(call);
        }
    }

    /// Drops all work but subtasks, which are asked to end; how they did. One that takes too long is dropped as well.
    async fn stop(&mut self) -> Vec<(CallId, ToolOutput)> {
        self.enders.keys().for_each(|call| self.give_up(call));
        self.works.shutdown().await;
        self.order.clear();
        self.early.clear();
        let mut ended = Vec::new();
        let join = async {
            while let Some(done) = self.subtasks.join_next().await {
                ended.extend(done);
            }
        };
        // What could not end in time goes on from its journal, as after a crash.
        _ = tokio::time::timeout(PATIENCE, join).await;
        self.subtasks.shutdown().await;
        ended.iter().for_each(|(call, _)| _ = self.enders.remove(call));
        ended.extend(self.enders.drain().map(|(call, _)| (call, ToolOutput::failed("It did not end in time."))));
        ended
    }
}

/// What the model is asked for.
fn asking(task: &Task) -> Moment<'static> {
    let reason = match task.summary_is_for() {
        Some(Why::Asked) => Some("the model is asked for a summary of what came before"),
        Some(_) => Some("the context is full: the model is asked for a summary first"),
        None => None,
    };
    if let Some(reason) = reason {
        return Moment::Waiting { reason, milliseconds: 0 };
    }
    Moment::Asking { turn: task.turns().saturating_add(1), full: task.filling_percent() }
}

/// A tool's work whose panic is a failure of the tool, not of the task.
struct Guarded<F>(Pin<Box<F>>);

impl<F: Future<Output = ToolOutput>> Future for Guarded<F> {
    type Output = ToolOutput;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<ToolOutput> {
        let work = self.0.as_mut();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.poll(context))) {
            Ok(poll) => poll,
            Err(_) => {
                let words = "The tool broke down: a bug in Sabir. What it did is unknown; try another way.";
                std::task::Poll::Ready(ToolOutput::failed(words))
            }
        }
    }
}

/// Keeps a record, then shows it.
fn keep(store: &mut dyn Store, user: &mut dyn User, record: &Record) -> Result<(), Ended> {
    store.append(record).map_err(|error| (Outcome::StoreFailed, error.to_string()))?;
    user.show(TaskEvent::Record(record));
    Ok(())
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
