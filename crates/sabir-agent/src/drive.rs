//! The driver: what the machine asks for is done here, over any model, store and user.
//!
//! A record is kept before its consequences are begun. Dropping the future, or cancelling, drops the request and the
//! running tools with everything that they started.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sabir_call::{CallId, Event, Model, ModelError};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::event::{Moment, Question, Reply, TaskEvent};
use crate::permit::{Bound, Permit};
use crate::record::{Outcome, Record, Store};
use crate::task::{Effect, Input, Task};
use crate::tool::{Access, Registry, ToolOutput};

/// Whoever watches a task and is asked.
pub trait User: Send {
    /// Shows something. Must be quick.
    fn show(&mut self, event: TaskEvent<'_>);

    /// Asks. Never called for a task that nobody attends. Dropping the future withdraws the question.
    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;
}

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
    Ran(CallId, ToolOutput),
    Output(CallId, String),
    Replied(Reply),
    Cancelled,
    Expired,
}

/// The tools that run, and what those said that ended before one that was started earlier: results come in the order of their
/// calls, so that the same answers make the same task.
#[derive(Default)]
struct Running {
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
    pub async fn run(mut self, task: &mut Task, first: Option<Record>, words: Option<String>) -> (Outcome, String) {
        let deadline = self.max_time.and_then(|time| Instant::now().checked_add(time));
        let begin = words.map_or(Input::Begin, Input::Said);
        let mut queue: VecDeque<Effect> = first.map(Effect::Keep).into_iter().chain(task.step(begin)).collect();
        let mut tools = Running::default();
        let mut outputs: Outputs = mpsc::channel(64);
        let mut question = None;
        loop {
            while let Some(effect) = queue.pop_front() {
                match effect {
                    Effect::Keep(record) => {
                        if let Err(error) = self.store.append(&record) {
                            return (Outcome::StoreFailed, error.to_string());
                        }
                        self.user.show(TaskEvent::Record(&record));
                    }
                    Effect::Ask => queue.extend(self.ask(task, deadline).await),
                    Effect::Weigh(call) => queue.extend(self.weigh(task, call)),
                    Effect::Run(permit) => self.start(task, permit, &mut tools, &outputs.0),
                    Effect::Question(asked) => question = Some(self.previewed(task, asked)),
                    Effect::Stop => {
                        question = None;
                        tools.stop().await;
                    }
                    Effect::Finish(outcome, message) => return (outcome, message),
                }
            }
            let input = match self.wait(&mut tools, &mut outputs.1, question.as_ref(), deadline).await {
                Happening::Output(call, text) => {
                    self.user.show(TaskEvent::Moment(Moment::Output { call: &call, text: &text }));
                    continue;
                }
                Happening::Ran(call, output) => {
                    self.show_rest(&mut outputs.1);
                    Input::Ran(call, output)
                }
                Happening::Replied(reply) => {
                    question = None;
                    Input::Replied(reply)
                }
                Happening::Cancelled => Input::Cancel,
                Happening::Expired => Input::Expired,
            };
            queue.extend(task.step(input));
        }
    }

    async fn ask(&mut self, task: &mut Task, deadline: Option<Instant>) -> Vec<Effect> {
        let request = task.request();
        let summarising = task.is_summarising();
        self.user.show(TaskEvent::Moment(asking(task)));
        let (user, cancel) = (&mut *self.user, &self.cancel);
        let mut sink = |event: Event<'_>| {
            // A summary is for the model: its record has it whole.
            if !summarising {
                user.show(TaskEvent::Moment(Moment::Delta(event)));
            }
            task.step(Input::Event(event));
        };
        let answer: Result<Result<(), ModelError>, Input<'_>> = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Input::Cancel),
            () = until(deadline) => Err(Input::Expired),
            answer = self.model.answer(&request, &mut sink) => Ok(answer),
        };
        drop(request);
        task.step(match answer {
            Ok(Ok(())) => Input::Answered,
            Ok(Err(error)) => Input::Failed(error),
            Err(input) => input,
        })
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
        tools.order.push_back(id.clone());
        tools.works.spawn(async move {
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
        question: Option<&Question>,
        deadline: Option<Instant>,
    ) -> Happening {
        let Some(question) = question else {
            return tokio::select! {
                biased;
                () = self.cancel.cancelled() => Happening::Cancelled,
                () = until(deadline) => Happening::Expired,
                Some((call, text)) = outputs.recv() => Happening::Output(call, text),
                Some((call, output)) = tools.next() => Happening::Ran(call, output),
            };
        };
        // Tools that still run go on; what they say waits, so that a question is asked once and read in peace.
        self.user.show(TaskEvent::Moment(Moment::Question(question)));
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Happening::Cancelled,
            () = until(deadline) => Happening::Expired,
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

impl Running {
    /// The next result; `None` if nothing runs. Dropping the future loses nothing.
    async fn next(&mut self) -> Option<(CallId, ToolOutput)> {
        loop {
            if let Some(output) = self.order.front().and_then(|call| self.early.remove(call)) {
                return self.order.pop_front().map(|call| (call, output));
            }
            if let Ok((call, output)) = self.works.join_next().await? {
                self.early.insert(call, output);
            }
        }
    }

    async fn stop(&mut self) {
        self.works.shutdown().await;
        self.order.clear();
        self.early.clear();
    }
}

/// What the model is asked for.
fn asking(task: &Task) -> Moment<'static> {
    if task.is_summarising() {
        return Moment::Waiting {
            reason: "the context is full: the model is asked for a summary first",
            milliseconds: 0,
        };
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

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
