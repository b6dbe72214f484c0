//! A household in memory: every record of every task, and everything that a tool did, in one list in its order. So a crash is the
//! list cut off somewhere.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sabir_agent::control::Delegation;
use sabir_agent::{
    Arguments, Attended, Cancel, Child, Completed, Driver, Heard, Household, Limits, NewTask, Opened, Origin, Outcome,
    Permit, Progress, Question, Record, Registry, Reply, Settings, Start, Store, StoreError, Task, TaskEvent, TaskId,
    Tool, ToolOutput, ToolWork, User,
};
use sabir_call::dialect::Selection;
use sabir_call::{
    Answer, CallId, Cut, Event, Message, Model, ModelError, ModelErrorKind, Part, Prompted, Request, Sink, ToolSpec,
};
use sabir_policy::Access;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::machine::{settings, start};

/// What a model says.
#[derive(Debug, Clone)]
pub(super) enum Say {
    Text(String),
    Fail(ModelErrorKind),
    /// Nothing, ever.
    Hang,
}

/// Says what the task of that prompt hears next.
pub(super) type Script = dyn Fn(&str, &[Message]) -> Say + Send + Sync;

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are records")]
pub(super) enum Entry {
    Kept(TaskId, Record),
    /// A tool did something.
    Touched(TaskId, String),
}

/// A way to speak to the subtask of that prompt.
pub(super) type Mouth = (String, UnboundedSender<Heard>);

/// What everybody in the house shares.
#[derive(Clone)]
pub(super) struct House {
    pub(super) entries: Arc<Mutex<Vec<Entry>>>,
    pub(super) script: Arc<Script>,
    /// Requests that were made, and the most that were open at the same time.
    pub(super) asked: Arc<AtomicUsize>,
    /// Tasks whose model is at it now.
    pub(super) open: Arc<Mutex<Vec<String>>>,
    /// A way to speak to subtasks, by their prompts.
    pub(super) ears: Arc<Mutex<Vec<Mouth>>>,
    pub(super) settings: Settings,
}

/// A member's view: whose subtasks it makes.
struct Parent {
    house: House,
    start: Start,
}

struct Journal(House, TaskId);

struct Scripted(House, String);

struct Watcher(Option<UnboundedReceiver<Heard>>);

/// Does something that can be seen.
struct Touch(House, TaskId);

impl House {
    pub(super) fn new(script: impl Fn(&str, &[Message]) -> Say + Send + Sync + 'static) -> Self {
        Self {
            entries: Arc::default(),
            script: Arc::new(script),
            asked: Arc::default(),
            open: Arc::default(),
            ears: Arc::default(),
            settings: settings(Attended::No),
        }
    }

    /// The same house after a crash: what was kept is there, nothing runs.
    pub(super) fn after(&self, entries: Vec<Entry>) -> Self {
        let script = Arc::clone(&self.script);
        let fresh = Self::new(|_, _| Say::Hang);
        Self { entries: Arc::new(Mutex::new(entries)), script, settings: self.settings.clone(), ..fresh }
    }

    pub(super) fn all(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    pub(super) fn records(&self, task: &TaskId) -> Vec<Record> {
        let own = |entry| match entry {
            Entry::Kept(of, record) if of == *task => Some(record),
            _ => None,
        };
        self.all().into_iter().filter_map(own).collect()
    }

    /// The names of the tasks, the root first.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        for entry in self.all() {
            if let Entry::Kept(task, Record::Started(_)) = entry {
                tasks.push(task);
            }
        }
        tasks
    }

    /// What tools did, in its order.
    pub(super) fn touched(&self) -> Vec<String> {
        let touched = |entry| if let Entry::Touched(_, path) = entry { Some(path) } else { None };
        self.all().into_iter().filter_map(touched).collect()
    }

    /// Begins the root, or goes on with it.
    pub(super) async fn run(&self, cancel: Cancel) -> (Outcome, String, Task) {
        self.hear(cancel, Watcher(None)).await
    }

    /// As [`run`](Self::run), with other tools.
    pub(super) async fn run_with(&self, registry: &Registry, cancel: Cancel) -> (Outcome, String, Task) {
        self.drive(registry, cancel, Watcher(None)).await
    }

    async fn hear(&self, cancel: Cancel, user: Watcher) -> (Outcome, String, Task) {
        self.drive(&self.registry(&start(), self.settings.limits), cancel, user).await
    }

    async fn drive(&self, registry: &Registry, cancel: Cancel, mut user: Watcher) -> (Outcome, String, Task) {
        let settings = Settings { tools: registry.set().clone(), ..self.settings.clone() };
        let kept = self.records(&start().task);
        let (mut task, first) = match kept.is_empty() {
            true => Some(Task::new(start(), settings)).map(|(task, first)| (task, Some(first))).unwrap(),
            false => (Task::replay(kept, settings).unwrap(), None),
        };
        let model = Scripted(self.clone(), start().prompt);
        let mut store = Journal(self.clone(), start().task);
        let max_time = None;
        let driver = Driver { model: &model, registry, store: &mut store, user: &mut user, cancel, max_time };
        let (outcome, message) = driver.run(&mut task, first, None).await;
        (outcome, message, task)
    }

    /// As [`run`](Self::run), with somebody who can speak to the root.
    pub(super) async fn spoken_to(&self, ears: UnboundedReceiver<Heard>) -> (Outcome, String, Task) {
        self.hear(Cancel::default(), Watcher(Some(ears))).await
    }

    fn registry(&self, start: &Start, limits: Limits) -> Registry {
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Touch(self.clone(), start.task.clone()))];
        if limits.subtasks.depth > 0 {
            tools.push(Arc::new(NewTask::new(Arc::new(Parent { house: self.clone(), start: start.clone() }))));
        }
        Registry::new(tools).unwrap()
    }

    /// Waits until so many models are at it.
    pub(super) async fn wait_for(&self, models: usize) {
        while self.open.lock().unwrap().len() < models {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

impl Household for Parent {
    fn child(&self, call: &CallId, delegation: &Delegation, left: Limits) -> Result<Opened, String> {
        if let Some(mode) = &delegation.mode {
            return Err(format!("There is no mode `{mode}`."));
        }
        let (house, task) = (self.house.clone(), self.start.task.child(call));
        let (depth, todos) = (self.start.depth() + 1, delegation.todos.as_ref().map(|todos| todos.text().to_owned()));
        let from = Some(Origin::Subtask { task: self.start.task.clone(), call: call.clone(), depth, todos });
        let start = Start { task: task.clone(), prompt: delegation.message.clone(), from, ..start() };
        let registry = house.registry(&start, left);
        let settings = Settings { tools: registry.set().clone(), limits: left, ..house.settings.clone() };
        let kept = house.records(&task);
        if let Some(completed) = Completed::of(&kept) {
            return Ok(Opened::Completed(completed));
        }
        let prompt = start.prompt.clone();
        let (task, first) = match kept.is_empty() {
            true => Some(Task::new(start, settings)).map(|(task, first)| (task, Some(first))).unwrap(),
            false => (Task::replay(kept, settings).unwrap(), None),
        };
        let (mouth, ears) = unbounded_channel();
        house.ears.lock().unwrap().push((prompt.clone(), mouth));
        Ok(Opened::Working(Box::new(Child {
            store: Box::new(Journal(house.clone(), task.start().task.clone())),
            task,
            first,
            registry,
            model: Arc::new(Scripted(house, prompt)),
            user: Box::new(Watcher(Some(ears))),
            max_time: None,
        })))
    }
}

impl Store for Journal {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.0.entries.lock().unwrap().push(Entry::Kept(self.1.clone(), record.clone()));
        Ok(())
    }
}

impl Model for Scripted {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        let Self(house, prompt) = self;
        house.asked.fetch_add(1, Ordering::SeqCst);
        house.open.lock().unwrap().push(prompt.clone());
        Box::pin(async move {
            let said = (house.script)(prompt, &request.messages);
            // Others of the family get their turn.
            tokio::task::yield_now().await;
            let answer = match said {
                Say::Hang => std::future::pending().await,
                Say::Fail(kind) => Err(ModelError { kind, message: "no".to_owned() }),
                Say::Text(text) => {
                    let pass = |event: Event<'_>| sink.event(event);
                    let mut prompted = Prompted::new(Selection::AUTO, &request.tools, pass);
                    prompted.event(Event::Text { text: &text });
                    let _ = prompted.finish(Cut::Ended);
                    Ok(())
                }
            };
            house.open.lock().unwrap().retain(|open| open != prompt);
            answer
        })
    }
}

impl User for Watcher {
    fn show(&mut self, _: TaskEvent<'_>) {}

    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.0.take()
    }

    fn ask<'a>(&'a mut self, _: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(std::future::ready(Reply::Leave))
    }
}

impl Tool for Touch {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("touch", "", schema)
    }

    fn reads_only(&self) -> bool {
        false
    }

    fn access(&self, arguments: &Arguments) -> Access {
        Access::Write { path: arguments["path"].as_str().unwrap().to_owned(), protected: None }
    }

    fn run<'a>(&'a self, _: &'a Permit, arguments: &'a Arguments, _: Progress<'a>) -> ToolWork<'a> {
        let path = arguments["path"].as_str().unwrap().to_owned();
        Box::pin(async move {
            self.0.entries.lock().unwrap().push(Entry::Touched(self.1.clone(), path));
            ToolOutput::done("touched")
        })
    }
}

/// The results in a history, as `name ending: content`, in their order.
pub(super) fn results(history: &[Message]) -> Vec<String> {
    let results = history.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Result(result) => {
            Some(format!("{} {}: {}", result.name, format!("{:?}", result.ending).to_lowercase(), result.content))
        }
        _ => None,
    });
    results.collect()
}

/// Runs it where time passes.
pub(super) fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
