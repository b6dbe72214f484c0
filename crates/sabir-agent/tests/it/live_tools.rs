//! Tools that appear and disappear while a task runs: the next request and the records show the change.

use std::sync::{Arc, Mutex};

use sabir_agent::{
    CallArguments, CallPermit, CancelToken, ContextChange, Interactivity, PreparedCall,
    ProgressSink, Record, RecordStore, StoreError, Task, TaskDriver, TaskOutcome, TaskSettings,
    Tool, ToolFuture, ToolOutput, ToolRegistry,
};
use sabir_call::{
    ArgumentEncoding, Event, EventSink, Message, MessagePart, Model, Request, ResponseFuture,
    ToolSpec,
};
use sabir_policy::Access;
use serde_json::json;

use crate::call_order::SilentFrontEnd;
use crate::machine::{settings, start};

/// The change that a call of a [`NamedTool`] tool makes to the registry.
type ToolAction = Arc<dyn Fn() + Send + Sync>;

/// A tool with this name.
#[derive(Clone)]
struct NamedTool(&'static str, ToolAction);

impl Tool for NamedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.0, "", json!({"type": "object", "properties": {}}))
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, _: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(self.clone())
    }
}

impl PreparedCall for NamedTool {
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        (self.1)();
        Box::pin(std::future::ready(ToolOutput::done(format!(
            "{} ran",
            self.0
        ))))
    }
}

fn nothing() -> ToolAction {
    Arc::new(|| {})
}

/// ScriptedCalls these tools, one per turn, then completes. Notes the tools of each request.
struct ScriptedCalls(Vec<&'static str>, Mutex<Vec<Vec<String>>>);

impl Model for ScriptedCalls {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let mut requests = self.1.lock().unwrap();
        let name = self
            .0
            .get(requests.len())
            .copied()
            .unwrap_or("attempt_completion");
        let tools = request.tools.iter().map(|spec| spec.name.clone());
        requests.push(
            tools
                .filter(|name| ["first", "late"].contains(&name.as_str()))
                .collect(),
        );
        let id = format!("c{}", requests.len());
        sink.push_event(Event::CallStart {
            index: 0,
            id: Some(&id),
            name,
            dialect: None,
            at: 0,
            name_at: 0,
        });
        if name == "attempt_completion" {
            sink.push_event(Event::ArgStart {
                index: 0,
                name: "result",
                form: ArgumentEncoding::String,
                at: 0,
            });
            sink.push_event(Event::ArgDelta {
                index: 0,
                text: "done",
            });
            sink.push_event(Event::ArgEnd {
                index: 0,
                lead: "",
                at: 0,
            });
        }
        sink.push_event(Event::CallEnd { index: 0, at: 0 });
        Box::pin(std::future::ready(Ok(())))
    }
}

struct MemoryStore(Vec<Record>);

impl RecordStore for MemoryStore {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.0.push(record.clone());
        Ok(())
    }
}

fn task_settings(registry: &ToolRegistry) -> TaskSettings {
    TaskSettings {
        tools: registry.tool_set().clone(),
        read_only_tools: registry.read_only_tool_names(),
        ..settings(Interactivity::Headless)
    }
}

fn drive(
    registry: &ToolRegistry,
    task: &mut Task,
    first: Option<Record>,
    model: &ScriptedCalls,
) -> Vec<Record> {
    let mut store = MemoryStore(Vec::new());
    let driver = TaskDriver {
        model,
        registry,
        store: &mut store,
        front_end: &mut SilentFrontEnd,
        observers: Vec::new(),
        cancel: CancelToken::default(),
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (outcome, message) = runtime.block_on(driver.run(task, first, None)).unwrap();
    assert_eq!(outcome, TaskOutcome::Completed, "{message}");
    store.0
}

fn results(history: &[Message]) -> Vec<String> {
    let parts = history.iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        MessagePart::Result(result) => Some(result.content.clone()),
        _ => None,
    });
    results.collect()
}

fn tool_changes(records: &[Record]) -> Vec<(Vec<&str>, Vec<&str>)> {
    let changes = records.iter().filter_map(|record| match record {
        Record::Context(ContextChange::Tools(change)) => Some((
            change
                .added
                .iter()
                .map(|tool| tool.spec.name.as_str())
                .collect(),
            change.removed.iter().map(String::as_str).collect(),
        )),
        _ => None,
    });
    changes.collect()
}

/// Builds a registry with a tool `first` that adds a tool `late`, which removes `first`.
fn changing_registry() -> ToolRegistry {
    let registry = ToolRegistry::new(Vec::new()).unwrap();
    let shared = registry.clone();
    let add = move || {
        let inner = shared.clone();
        let remove = move || assert!(inner.remove("first"));
        shared
            .add(Arc::new(NamedTool("late", Arc::new(remove))))
            .unwrap();
    };
    registry
        .add(Arc::new(NamedTool("first", Arc::new(add))))
        .unwrap();
    registry
}

#[test]
fn a_tool_change_is_recorded_and_sent_with_the_next_request() {
    let registry = changing_registry();
    let (mut task, first) = Task::new(start(), task_settings(&registry));
    let model = ScriptedCalls(vec!["first", "late", "first"], Mutex::default());
    let records = drive(&registry, &mut task, Some(first), &model);
    let requests = model.1.lock().unwrap().clone();
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        requests,
        [
            names(&["first"]),
            names(&["first", "late"]),
            names(&["late"]),
            names(&["late"])
        ],
        "the tools that each request offered"
    );
    assert_eq!(
        tool_changes(&records),
        [
            (vec!["first"], vec![]),
            (vec!["late"], vec![]),
            (vec![], vec!["first"])
        ]
    );
    let results = results(task.history());
    assert_eq!(results[..2], ["first ran", "late ran"]);
    assert!(
        results[2].contains("first"),
        "a tool that is gone is unknown: {results:?}"
    );
    // The same records make the same requests with any tools at the start.
    let bare = ToolRegistry::new(Vec::new()).unwrap();
    let again = Task::replay_for_message(records, task_settings(&bare)).unwrap();
    let (request, replayed) = (task.model_request(), again.model_request());
    assert_eq!(replayed.messages, request.messages);
    let offered = |request: &Request| {
        request
            .tools
            .iter()
            .map(|spec| spec.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(offered(&replayed), offered(&request));
}

#[test]
fn a_resumed_task_records_which_tools_are_gone() {
    let registry = changing_registry();
    let (mut task, first) = Task::new(start(), task_settings(&registry));
    let mut records = drive(
        &registry,
        &mut task,
        Some(first),
        &ScriptedCalls(vec!["first"], Mutex::default()),
    );
    records.pop();
    // `late` is gone, `first` is there from the beginning.
    let later = ToolRegistry::new(vec![Arc::new(NamedTool("first", nothing()))]).unwrap();
    let mut resumed = Task::replay(records, task_settings(&later)).unwrap();
    let model = ScriptedCalls(vec!["first"], Mutex::default());
    let records = drive(&later, &mut resumed, None, &model);
    assert_eq!(tool_changes(&records), [(vec![], vec!["late"])]);
    assert_eq!(model.1.lock().unwrap()[0], ["first"]);
}

#[test]
fn only_sound_tools_are_added() {
    let registry = ToolRegistry::new(vec![Arc::new(NamedTool("first", nothing()))]).unwrap();
    registry
        .add(Arc::new(NamedTool("first", nothing())))
        .unwrap_err();
    registry
        .add(Arc::new(NamedTool("attempt_completion", nothing())))
        .unwrap_err();
    registry
        .add(Arc::new(NamedTool("no name", nothing())))
        .unwrap_err();
    registry
        .replace(Arc::new(NamedTool("first", nothing())))
        .unwrap();
    assert!(!registry.remove("late"));
}
