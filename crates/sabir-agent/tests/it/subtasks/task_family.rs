//! A task and its subtasks in memory: every record of every task and every effect of a tool, in one ordered list. A crash is
//! simulated by truncating the list.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sabir_agent::control::SubtaskRequest;
use sabir_agent::{
    CallArguments, CallPermit, CancelToken, CommandQueue, CompletedSubtask, FrontEnd,
    Interactivity, NewTaskTool, PreparedCall, ProgressSink, Record, RecordStore, StoreError,
    SubtaskHandle, SubtaskRun, SubtaskSpawnError, SubtaskSpawner, Task, TaskDriver, TaskEvent,
    TaskId, TaskLimits, TaskOrigin, TaskOutcome, TaskSettings, TaskStart, Tool, ToolFuture,
    ToolOutput, ToolRegistry, UserQuestion, UserReply,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    CallId, Event, EventSink, Message, MessagePart, Model, ModelError, ModelErrorKind,
    PromptedSink, Request, ResponseFuture, ToolSpec, Truncation,
};
use sabir_policy::Access;
use serde_json::json;

use crate::machine::{settings, start};

/// A scripted reply of a model.
#[derive(Debug, Clone)]
pub(super) enum ScriptedReply {
    Text(String),
    Fail(ModelErrorKind),
    /// Nothing, ever.
    Hang,
}

/// A function that returns the next reply for the task with this prompt.
pub(super) type ReplyFunction = dyn Fn(&str, &[Message]) -> ScriptedReply + Send + Sync;

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are records")]
pub(super) enum FamilyEvent {
    Recorded(TaskId, Record),
    /// A tool did something.
    Touched(TaskId, String),
}

/// A prompt, and the queue of commands for its subtask.
pub(super) type NamedQueue = (String, CommandQueue);

/// A task and all its subtasks, with the state that they share.
#[derive(Clone)]
pub(super) struct TaskFamily {
    pub(super) entries: Arc<Mutex<Vec<FamilyEvent>>>,
    pub(super) script: Arc<ReplyFunction>,
    /// The number of requests that were made, and the most that were open at the same time.
    pub(super) asked: Arc<AtomicUsize>,
    /// The prompts of tasks with an open model request.
    pub(super) open: Arc<Mutex<Vec<String>>>,
    /// The command queues of subtasks, by their prompts.
    pub(super) queues: Arc<Mutex<Vec<NamedQueue>>>,
    pub(super) settings: TaskSettings,
}

/// The spawner of the subtasks of one task.
struct FamilySpawner {
    family: TaskFamily,
    start: TaskStart,
}

struct FamilyStore(TaskFamily, TaskId);

struct ScriptedModel(TaskFamily, String);

struct CommandSource(Option<CommandQueue>);

/// Does something that can be seen.
struct TouchTool(TaskFamily, TaskId);

impl TaskFamily {
    pub(super) fn new(
        script: impl Fn(&str, &[Message]) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        Self {
            entries: Arc::default(),
            script: Arc::new(script),
            asked: Arc::default(),
            open: Arc::default(),
            queues: Arc::default(),
            settings: settings(Interactivity::Headless),
        }
    }

    /// Returns the same family after a crash: with these entries, and nothing running.
    pub(super) fn after_crash(&self, entries: Vec<FamilyEvent>) -> Self {
        let script = Arc::clone(&self.script);
        let fresh = Self::new(|_, _| ScriptedReply::Hang);
        Self {
            entries: Arc::new(Mutex::new(entries)),
            script,
            settings: self.settings.clone(),
            ..fresh
        }
    }

    pub(super) fn events(&self) -> Vec<FamilyEvent> {
        self.entries.lock().unwrap().clone()
    }

    pub(super) fn records(&self, task: &TaskId) -> Vec<Record> {
        let own = |entry| match entry {
            FamilyEvent::Recorded(of, record) if of == *task => Some(record),
            _ => None,
        };
        self.events().into_iter().filter_map(own).collect()
    }

    /// Returns the names of the tasks, the root first.
    pub(super) fn task_ids(&self) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        for entry in self.events() {
            if let FamilyEvent::Recorded(task, Record::Started(_)) = entry {
                tasks.push(task);
            }
        }
        tasks
    }

    /// Returns the paths that tools touched, in order.
    pub(super) fn touched_paths(&self) -> Vec<String> {
        let touched = |entry| {
            if let FamilyEvent::Touched(_, path) = entry {
                Some(path)
            } else {
                None
            }
        };
        self.events().into_iter().filter_map(touched).collect()
    }

    /// Begins the root task, or resumes it.
    pub(super) async fn run(&self, cancel: CancelToken) -> (TaskOutcome, String, Task) {
        self.run_root(cancel, CommandSource(None)).await
    }

    /// Runs like [`run`](Self::run), with other tools.
    pub(super) async fn run_with(
        &self,
        registry: &ToolRegistry,
        cancel: CancelToken,
    ) -> (TaskOutcome, String, Task) {
        self.drive(registry, cancel, CommandSource(None)).await
    }

    async fn run_root(
        &self,
        cancel: CancelToken,
        user: CommandSource,
    ) -> (TaskOutcome, String, Task) {
        self.drive(&self.registry(&start(), self.settings.limits), cancel, user)
            .await
    }

    async fn drive(
        &self,
        registry: &ToolRegistry,
        cancel: CancelToken,
        mut user: CommandSource,
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
        let model = ScriptedModel(self.clone(), start().prompt);
        let mut store = FamilyStore(self.clone(), start().task);
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
        let (outcome, message) = driver.run(&mut task, first, None).await.unwrap();
        (outcome, message, task)
    }

    /// Runs like [`run`](Self::run), with a queue of commands for the root.
    pub(super) async fn run_with_commands(
        &self,
        queues: CommandQueue,
    ) -> (TaskOutcome, String, Task) {
        self.run_root(CancelToken::default(), CommandSource(Some(queues)))
            .await
    }

    fn registry(&self, start: &TaskStart, limits: TaskLimits) -> ToolRegistry {
        let mut tools: Vec<Arc<dyn Tool>> =
            vec![Arc::new(TouchTool(self.clone(), start.task.clone()))];
        if limits.subtasks.depth > 0 {
            tools.push(Arc::new(NewTaskTool::new(Arc::new(FamilySpawner {
                family: self.clone(),
                start: start.clone(),
            }))));
        }
        ToolRegistry::new(tools).unwrap()
    }

    /// Waits until this number of model requests is open.
    pub(super) async fn wait_for(&self, models: usize) {
        while self.open.lock().unwrap().len() < models {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

impl SubtaskSpawner for FamilySpawner {
    fn spawn(
        &self,
        call: &CallId,
        delegation: &SubtaskRequest,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskSpawnError> {
        if let Some(mode) = &delegation.mode {
            return Err(SubtaskSpawnError::Mode(format!(
                "There is no mode `{mode}`."
            )));
        }
        let (family, task) = (self.family.clone(), self.start.task.child_id(call));
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
        let registry = family.registry(&start, left);
        let settings = TaskSettings {
            tools: registry.tool_set().clone(),
            limits: left,
            ..family.settings.clone()
        };
        let kept = family.records(&task);
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
        let queue = CommandQueue::default();
        let queues = queue.clone();
        family.queues.lock().unwrap().push((prompt.clone(), queue));
        Ok(SubtaskHandle::Working(Box::new(SubtaskRun {
            store: Box::new(FamilyStore(
                family.clone(),
                task.start_record().task.clone(),
            )),
            task,
            first,
            registry,
            model: Arc::new(ScriptedModel(family, prompt)),
            front_end: Box::new(CommandSource(Some(queues))),
            max_time: None,
            observers: Vec::new(),
        })))
    }
}

impl RecordStore for FamilyStore {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.0
            .entries
            .lock()
            .unwrap()
            .push(FamilyEvent::Recorded(self.1.clone(), record.clone()));
        Ok(())
    }
}

impl Model for ScriptedModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let Self(family, prompt) = self;
        family.asked.fetch_add(1, Ordering::SeqCst);
        family.open.lock().unwrap().push(prompt.clone());
        Box::pin(async move {
            let said = (family.script)(prompt, &request.messages);
            // Other tasks get their turn.
            tokio::task::yield_now().await;
            let answer = match said {
                ScriptedReply::Hang => std::future::pending().await,
                ScriptedReply::Fail(kind) => Err(ModelError {
                    kind,
                    message: "no".to_owned(),
                }),
                ScriptedReply::Text(text) => {
                    let pass = |event: Event<'_>| sink.push_event(event);
                    let mut prompted =
                        PromptedSink::new(DialectSet::built_in().all(), &request.tools, pass);
                    prompted.push_event(Event::Text { text: &text });
                    let _ = prompted.finish(Truncation::Ended);
                    Ok(())
                }
            };
            family.open.lock().unwrap().retain(|open| open != prompt);
            answer
        })
    }
}

impl FrontEnd for CommandSource {
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

impl Tool for TouchTool {
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
            family: self.0.clone(),
            task: self.1.clone(),
            path,
        })
    }
}

struct TouchCall {
    family: TaskFamily,
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

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            self.family
                .entries
                .lock()
                .unwrap()
                .push(FamilyEvent::Touched(self.task, self.path));
            ToolOutput::done("touched")
        })
    }
}

/// Returns the results in a history, as `name ending: content`, in order.
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

/// Runs a future on a runtime with a timer.
pub(super) fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}
