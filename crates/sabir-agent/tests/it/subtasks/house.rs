//! A household in memory: every record of every task, and everything that a tool did, in one list in its order. So a crash is the
//! list cut off somewhere.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sabir_agent::control::SubtaskRequest;
use sabir_agent::{
    CallArguments, CallPermit, CancelToken, CommandQueue, CompletedSubtask, FrontEnd,
    Interactivity, NewTaskTool, PreparedCall, ProgressSink, Record, RecordStore, StoreError,
    SubtaskHandle, SubtaskRun, SubtaskSpawner, Task, TaskDriver, TaskEvent, TaskId, TaskLimits,
    TaskOrigin, TaskOutcome, TaskSettings, TaskStart, Tool, ToolOutput, ToolRegistry, ToolWork,
    UserQuestion, UserReply,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    CallId, Event, EventSink, Message, MessagePart, Model, ModelError, ModelErrorKind,
    PromptedSink, Request, ResponseFuture, ToolSpec, Truncation,
};
use sabir_policy::Access;
use serde_json::json;

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
pub(super) type Mouth = (String, CommandQueue);

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
    pub(super) settings: TaskSettings,
}

/// A member's view: whose subtasks it makes.
struct Parent {
    house: House,
    start: TaskStart,
}

struct Journal(House, TaskId);

struct Scripted(House, String);

struct Watcher(Option<CommandQueue>);

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
            settings: settings(Interactivity::Headless),
        }
    }

    /// The same house after a crash: what was kept is there, nothing runs.
    pub(super) fn after(&self, entries: Vec<Entry>) -> Self {
        let script = Arc::clone(&self.script);
        let fresh = Self::new(|_, _| Say::Hang);
        Self {
            entries: Arc::new(Mutex::new(entries)),
            script,
            settings: self.settings.clone(),
            ..fresh
        }
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
        let touched = |entry| {
            if let Entry::Touched(_, path) = entry {
                Some(path)
            } else {
                None
            }
        };
        self.all().into_iter().filter_map(touched).collect()
    }

    /// Begins the root, or goes on with it.
    pub(super) async fn run(&self, cancel: CancelToken) -> (TaskOutcome, String, Task) {
        self.hear(cancel, Watcher(None)).await
    }

    /// As [`run`](Self::run), with other tools.
    pub(super) async fn run_with(
        &self,
        registry: &ToolRegistry,
        cancel: CancelToken,
    ) -> (TaskOutcome, String, Task) {
        self.drive(registry, cancel, Watcher(None)).await
    }

    async fn hear(&self, cancel: CancelToken, user: Watcher) -> (TaskOutcome, String, Task) {
        self.drive(&self.registry(&start(), self.settings.limits), cancel, user)
            .await
    }

    async fn drive(
        &self,
        registry: &ToolRegistry,
        cancel: CancelToken,
        mut user: Watcher,
    ) -> (TaskOutcome, String, Task) {
        let settings = TaskSettings {
            tools: registry.tool_set().clone(),
            ..self.settings.clone()
        };
        let kept = self.records(&start().task);
        let (mut task, first) = match kept.is_empty() {
            true => Some(Task::new(start(), settings))
                .map(|(task, first)| (task, Some(first)))
                .unwrap(),
            false => (Task::replay(kept, settings).unwrap(), None),
        };
        let model = Scripted(self.clone(), start().prompt);
        let mut store = Journal(self.clone(), start().task);
        let max_time = None;
        let driver = TaskDriver {
            model: &model,
            registry,
            store: &mut store,
            front_end: &mut user,
            observers: Vec::new(),
            cancel,
            max_time,
        };
        let (outcome, message) = driver.run(&mut task, first, None).await;
        (outcome, message, task)
    }

    /// As [`run`](Self::run), with somebody who can speak to the root.
    pub(super) async fn spoken_to(&self, ears: CommandQueue) -> (TaskOutcome, String, Task) {
        self.hear(CancelToken::default(), Watcher(Some(ears))).await
    }

    fn registry(&self, start: &TaskStart, limits: TaskLimits) -> ToolRegistry {
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Touch(self.clone(), start.task.clone()))];
        if limits.subtasks.depth > 0 {
            tools.push(Arc::new(NewTaskTool::new(Arc::new(Parent {
                house: self.clone(),
                start: start.clone(),
            }))));
        }
        ToolRegistry::new(tools).unwrap()
    }

    /// Waits until so many models are at it.
    pub(super) async fn wait_for(&self, models: usize) {
        while self.open.lock().unwrap().len() < models {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

impl SubtaskSpawner for Parent {
    fn spawn(
        &self,
        call: &CallId,
        delegation: &SubtaskRequest,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, String> {
        if let Some(mode) = &delegation.mode {
            return Err(format!("There is no mode `{mode}`."));
        }
        let (house, task) = (self.house.clone(), self.start.task.child_id(call));
        let (depth, todos) = (
            self.start.depth() + 1,
            delegation
                .todos
                .as_ref()
                .map(|todos| todos.text().to_owned()),
        );
        let from = Some(TaskOrigin::Subtask {
            task: self.start.task.clone(),
            call: call.clone(),
            depth,
            todos,
        });
        let start = TaskStart {
            task: task.clone(),
            prompt: delegation.message.clone(),
            from,
            ..start()
        };
        let registry = house.registry(&start, left);
        let settings = TaskSettings {
            tools: registry.tool_set().clone(),
            limits: left,
            ..house.settings.clone()
        };
        let kept = house.records(&task);
        if let Some(completed) = CompletedSubtask::from_records(&kept) {
            return Ok(SubtaskHandle::Completed(completed));
        }
        let prompt = start.prompt.clone();
        let (task, first) = match kept.is_empty() {
            true => Some(Task::new(start, settings))
                .map(|(task, first)| (task, Some(first)))
                .unwrap(),
            false => (Task::replay(kept, settings).unwrap(), None),
        };
        let mouth = CommandQueue::default();
        let ears = mouth.clone();
        house.ears.lock().unwrap().push((prompt.clone(), mouth));
        Ok(SubtaskHandle::Working(Box::new(SubtaskRun {
            store: Box::new(Journal(house.clone(), task.start_record().task.clone())),
            task,
            first,
            registry,
            model: Arc::new(Scripted(house, prompt)),
            front_end: Box::new(Watcher(Some(ears))),
            max_time: None,
            observers: Vec::new(),
        })))
    }
}

impl RecordStore for Journal {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.0
            .entries
            .lock()
            .unwrap()
            .push(Entry::Kept(self.1.clone(), record.clone()));
        Ok(())
    }
}

impl Model for Scripted {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let Self(house, prompt) = self;
        house.asked.fetch_add(1, Ordering::SeqCst);
        house.open.lock().unwrap().push(prompt.clone());
        Box::pin(async move {
            let said = (house.script)(prompt, &request.messages);
            // Others of the family get their turn.
            tokio::task::yield_now().await;
            let answer = match said {
                Say::Hang => std::future::pending().await,
                Say::Fail(kind) => Err(ModelError {
                    kind,
                    message: "no".to_owned(),
                }),
                Say::Text(text) => {
                    let pass = |event: Event<'_>| sink.push_event(event);
                    let mut prompted =
                        PromptedSink::new(DialectSet::built_in().all(), &request.tools, pass);
                    prompted.push_event(Event::Text { text: &text });
                    let _ = prompted.finish(Truncation::Ended);
                    Ok(())
                }
            };
            house.open.lock().unwrap().retain(|open| open != prompt);
            answer
        })
    }
}

impl FrontEnd for Watcher {
    fn on_event(&mut self, _: TaskEvent<'_>) {}

    fn commands(&mut self) -> Option<CommandQueue> {
        self.0.take()
    }

    fn request<'a>(
        &'a mut self,
        _: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        Box::pin(std::future::ready(UserReply::Leave))
    }
}

impl Tool for Touch {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("touch", "", schema)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        let path = arguments["path"].as_str().unwrap().to_owned();
        Box::new(TouchCall {
            house: self.0.clone(),
            task: self.1.clone(),
            path,
        })
    }
}

struct TouchCall {
    house: House,
    task: TaskId,
    path: String,
}

impl PreparedCall for TouchCall {
    fn access(&self) -> Access {
        Access::Write {
            path: self.path.clone(),
            protected: None,
        }
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolWork<'a> {
        Box::pin(async move {
            self.house
                .entries
                .lock()
                .unwrap()
                .push(Entry::Touched(self.task, self.path));
            ToolOutput::done("touched")
        })
    }
}

/// The results in a history, as `name ending: content`, in their order.
pub(super) fn results(history: &[Message]) -> Vec<String> {
    let results = history
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            MessagePart::Result(result) => Some(format!(
                "{} {}: {}",
                result.name,
                format!("{:?}", result.ending).to_lowercase(),
                result.content
            )),
            _ => None,
        });
    results.collect()
}

/// Runs it where time passes.
pub(super) fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}
