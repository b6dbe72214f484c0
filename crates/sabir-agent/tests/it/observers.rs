//! Observers: they see records and events in order, and wrap the work of every tool.

use std::sync::{Arc, Mutex};

use sabir_agent::{
    CallArguments, CallPermit, CancelToken, DriverObserver, Interactivity, ObservedCall,
    ObserverFuture, Preconditions, PreparedCall, ProgressSink, Record, RefreshFuture,
    StopObjection, Task, TaskDriver, TaskOutcome, Tool, ToolFuture, ToolOutput, ToolRefusal,
    ToolRegistry, TransientEvent,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    Event, EventSink, MessagePart, Model, PromptedSink, Request, ResponseFuture, ToolSpec,
    Truncation,
};
use sabir_policy::Access;
use serde_json::json;

use crate::call_order::{DiscardingStore, SilentFrontEnd};
use crate::machine::{settings, start};

type Log = Arc<Mutex<Vec<String>>>;

/// A tool that prepares calls which record the methods called on them.
struct Look(Log);

struct LookCall(Log, String);

impl Tool for Look {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("look", "", schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        self.0.lock().unwrap().push("prepare".to_owned());
        Box::new(LookCall(
            Arc::clone(&self.0),
            arguments["path"].as_str().unwrap().to_owned(),
        ))
    }
}

impl PreparedCall for LookCall {
    fn refresh(&self) -> Option<RefreshFuture> {
        let log = Arc::clone(&self.0);
        (self.1 == "unsaved").then(|| {
            Box::pin(async move {
                tokio::task::yield_now().await;
                log.lock().unwrap().push("refresh".to_owned());
            }) as RefreshFuture
        })
    }

    fn access(&self) -> Access {
        self.0.lock().unwrap().push("access".to_owned());
        Access::Read {
            path: self.1.clone(),
            outside: false,
        }
    }

    fn preconditions(&self) -> Preconditions {
        let mut log = self.0.lock().unwrap();
        log.push("preconditions".to_owned());
        let mut preconditions = Preconditions::default();
        let is_late = self.1 == "moved" && log.iter().any(|line| line.starts_with("before"));
        preconditions.insert("the thing", if is_late { "new" } else { "old" });
        preconditions
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        self.0.lock().unwrap().push("run".to_owned());
        Box::pin(async move {
            assert!(self.1 != "panics", "it breaks down");
            ToolOutput::done("seen")
        })
    }
}

struct Observer(Log, &'static str);

impl DriverObserver for Observer {
    fn on_record_stored(&self, record: &Record) {
        if let Record::Running { .. } | Record::Result(_) = record {
            let kind = if matches!(record, Record::Running { .. }) {
                "running"
            } else {
                "result"
            };
            self.0.lock().unwrap().push(kind.to_owned());
        }
    }

    fn on_event(&self, event: &TransientEvent<'_>) {
        if let TransientEvent::Asking { turn, .. } = event {
            self.0.lock().unwrap().push(format!("asking {turn}"));
        }
    }

    fn before_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
    ) -> ObserverFuture<'a, Result<(), ToolRefusal>> {
        Box::pin(async move {
            self.0
                .lock()
                .unwrap()
                .push(format!("before {} {:?}", call.tool, call.access));
            if self.1.is_empty() {
                Ok(())
            } else {
                Err(ToolRefusal(self.1.to_owned()))
            }
        })
    }

    fn after_tool<'a>(
        &'a self,
        _: &'a ObservedCall,
        output: &'a ToolOutput,
    ) -> ObserverFuture<'a, ()> {
        Box::pin(async move {
            self.0
                .lock()
                .unwrap()
                .push(format!("after, failed: {}", output.failed))
        })
    }
}

/// Makes one call with this path, then completes.
struct ReadingModel(&'static str);

impl Model for ReadingModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let text = match request.messages.len() {
            1 => format!("<look>\n<path>{}</path>\n</look>\n", self.0),
            _ => "<attempt_completion>\n<result>r</result>\n</attempt_completion>".to_owned(),
        };
        let pass = |event: Event<'_>| sink.push_event(event);
        let mut prompted = PromptedSink::new(DialectSet::built_in().all(), &request.tools, pass);
        prompted.push_event(Event::Text { text: &text });
        let _ = prompted.finish(Truncation::Ended);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Runs a call with this path between two observers, of which the second may refuse it; returns the steps and the result.
fn observed(path: &'static str, refusal: &'static str) -> (Vec<String>, String) {
    let log = Log::default();
    let registry = ToolRegistry::new(vec![Arc::new(Look(Arc::clone(&log)))]).unwrap();
    let (mut task, first) = Task::new(start(), settings(Interactivity::Headless));
    let driver = TaskDriver {
        model: &ReadingModel(path),
        registry: &registry,
        store: &mut DiscardingStore,
        front_end: &mut SilentFrontEnd,
        observers: vec![Arc::new(Observer(Arc::clone(&log), refusal))],
        cancel: CancelToken::default(),
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(driver.run(&mut task, Some(first), None))
        .unwrap();
    let parts = task.history().iter().flat_map(|message| &message.parts);
    let result = parts.into_iter().find_map(|part| match part {
        MessagePart::Result(result) => Some(result.content.clone()),
        _ => None,
    });
    let log = log.lock().unwrap().clone();
    let end = log.iter().position(|line| line == "result").unwrap();
    (log[..end].to_vec(), result.unwrap())
}

const BEFORE: [&str; 7] = [
    "asking 1",
    "prepare",
    "preconditions",
    "access",
    "running",
    "preconditions",
    "before look Read { path: \"x\", outside: false }",
];

#[test]
fn a_call_is_prepared_once_and_runs_between_its_observers() {
    let (log, result) = observed("x", "");
    assert_eq!(
        log,
        [
            &BEFORE[..],
            &["preconditions", "run", "after, failed: false"]
        ]
        .concat()
    );
    assert_eq!(result, "seen");
}

#[test]
fn a_call_is_refreshed_before_each_look_at_its_preconditions() {
    let (log, result) = observed("unsaved", "");
    let is_of_the_call = |line: &&String| *line == "refresh" || *line == "preconditions";
    let looks: Vec<_> = log.iter().filter(is_of_the_call).collect();
    assert_eq!(looks.len(), 6, "{log:?}");
    assert!(
        looks
            .chunks(2)
            .all(|pair| pair == ["refresh", "preconditions"]),
        "{log:?}"
    );
    assert_eq!(result, "seen");
}

#[test]
fn an_observer_can_refuse_a_call() {
    let (log, result) = observed("x", "The disk is full.");
    assert_eq!(log, BEFORE);
    assert_eq!(result, "The disk is full.");
}

#[test]
fn a_call_whose_preconditions_change_meanwhile_does_not_run() {
    let (log, result) = observed("moved", "");
    assert_eq!(log[7..], ["preconditions", "after, failed: true"]);
    assert!(result.starts_with(
        "Not run: this changed between the approval of the call and its run: the thing."
    ));
}

#[test]
fn observers_hear_of_a_call_that_panics() {
    let (log, result) = observed("panics", "");
    assert_eq!(log[7..], ["preconditions", "run", "after, failed: true"]);
    assert!(result.starts_with("The tool crashed"), "{result}");
}

/// Adds a note to each result, and objects to the first end.
#[derive(Default)]
struct Inspector {
    ends: Mutex<Vec<String>>,
}

impl DriverObserver for Inspector {
    fn take_result_note(&self, call: &ObservedCall) -> Option<String> {
        Some(format!("Inspected {}.", call.arguments["path"]))
    }

    fn before_return<'a>(
        &'a self,
        message: &'a str,
    ) -> ObserverFuture<'a, Result<(), StopObjection>> {
        let mut ends = self.ends.lock().unwrap();
        ends.push(message.to_owned());
        let objection = match ends.len() {
            1 => Err(StopObjection("The tests are missing.".to_owned())),
            _ => Ok(()),
        };
        Box::pin(std::future::ready(objection))
    }
}

/// Runs a task with an inspector and at most this many turns.
fn run_inspected(inspector: &Arc<Inspector>, turns: Option<u32>) -> (Task, TaskOutcome, String) {
    let registry = ToolRegistry::new(vec![Arc::new(Look(Log::default()))]).unwrap();
    let mut terms = settings(Interactivity::Headless);
    terms.limits.turns = turns;
    let (mut task, first) = Task::new(start(), terms);
    let driver = TaskDriver {
        model: &ReadingModel("x"),
        registry: &registry,
        store: &mut DiscardingStore,
        front_end: &mut SilentFrontEnd,
        observers: vec![Arc::clone(inspector) as Arc<dyn DriverObserver>],
        cancel: CancelToken::default(),
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let end = runtime.block_on(driver.run(&mut task, Some(first), None));
    let (outcome, message) = end.unwrap();
    (task, outcome, message)
}

#[test]
fn an_objection_does_not_extend_the_limits() {
    let inspector = Arc::new(Inspector::default());
    let (_, outcome, message) = run_inspected(&inspector, Some(2));
    assert_eq!(outcome, TaskOutcome::Limit, "{message}");
    assert_eq!(*inspector.ends.lock().unwrap(), ["r"]);
}

#[test]
fn an_observer_adds_a_note_to_a_result_and_lets_a_task_go_on() {
    let inspector = Arc::new(Inspector::default());
    let (task, outcome, message) = run_inspected(&inspector, None);
    assert_eq!((outcome, message.as_str()), (TaskOutcome::Completed, "r"));
    assert_eq!(*inspector.ends.lock().unwrap(), ["r", "r"]);
    let said: Vec<String> = task
        .history()
        .iter()
        .flat_map(|message| &message.parts)
        .map(|part| match part {
            MessagePart::Result(result) => result.content.clone(),
            MessagePart::Text { text } => text.clone(),
            _ => String::new(),
        })
        .collect();
    let place = |text: &str| said.iter().position(|part| part.contains(text));
    assert!(place("seen\n\nInspected \"x\".").is_some(), "{said:?}");
    assert!(
        place("Accepted.") < place("The tests are missing."),
        "{said:?}"
    );
}
