//! Reading calls run concurrently; their results are in the order of the calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{
    CallArguments, CancelToken, FrontEnd, Interactivity, PreparedCall, ProgressSink, Record,
    RecordStore, StoreError, Task, TaskDriver, TaskEvent, TaskOutcome, Tool, ToolFuture,
    ToolOutput, ToolRegistry, UserQuestion, UserReply,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    CallResult, Event, EventSink, MessagePart, Model, PromptedSink, Request, ResponseFuture,
    ToolSpec, Truncation,
};
use sabir_policy::Access;
use serde_json::json;

use crate::machine::{settings, start};

/// Reads for as many milliseconds as its path says.
struct Look {
    all_here: Arc<tokio::sync::Barrier>,
}

impl Tool for Look {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("look", "", schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        let path = arguments["path"].as_str().unwrap().to_owned();
        Box::new(LookCall {
            path,
            all_here: Arc::clone(&self.all_here),
        })
    }
}

struct LookCall {
    path: String,
    all_here: Arc<tokio::sync::Barrier>,
}

impl PreparedCall for LookCall {
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(
        self: Box<Self>,
        _: &'a sabir_agent::CallPermit,
        _: ProgressSink<'a>,
    ) -> ToolFuture<'a> {
        let Self { path, all_here } = *self;
        Box::pin(async move {
            // No call passes before all have arrived.
            let together = tokio::time::timeout(Duration::from_secs(120), all_here.wait()).await;
            assert!(together.is_ok(), "they do not run at once");
            tokio::time::sleep(Duration::from_millis(path.parse().unwrap())).await;
            ToolOutput::done(path)
        })
    }
}

/// Calls `look` with each of these paths in one message, then completes.
pub(crate) struct LookingModel {
    pub(crate) paths: [&'static str; 3],
}

impl Model for LookingModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let look = |path: &str| format!("<look>\n<path>{path}</path>\n</look>\n");
        let text = if request.messages.len() == 1 {
            self.paths.map(look).concat()
        } else {
            "<attempt_completion>\n<result>r</result>\n</attempt_completion>".to_owned()
        };
        let pass = |event: Event<'_>| sink.push_event(event);
        let mut prompted = PromptedSink::new(DialectSet::built_in().all(), &request.tools, pass);
        prompted.push_event(Event::Text { text: &text });
        let _ = prompted.finish(Truncation::Ended);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Runs a task to its completion whose model calls the tool `look` with these paths, and returns the results.
pub(crate) fn look_at(tool: impl Tool + 'static, paths: [&'static str; 3]) -> Vec<CallResult> {
    let registry = ToolRegistry::new(vec![Arc::new(tool)]).unwrap();
    let settings = sabir_agent::TaskSettings {
        tools: registry.tool_set().clone(),
        ..settings(Interactivity::Headless)
    };
    let (mut task, first) = Task::new(start(), settings);
    let driver = TaskDriver {
        model: &LookingModel { paths },
        registry: &registry,
        store: &mut DiscardingStore,
        front_end: &mut SilentFrontEnd,
        observers: Vec::new(),
        cancel: CancelToken::default(),
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (outcome, message) = runtime
        .block_on(driver.run(&mut task, Some(first), None))
        .unwrap();
    assert_eq!(outcome, TaskOutcome::Completed, "{message}");
    let parts = task.history().iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        MessagePart::Result(result) => Some(result.clone()),
        _ => None,
    });
    results.collect()
}

pub(crate) struct SilentFrontEnd;

impl FrontEnd for SilentFrontEnd {
    fn on_event(&mut self, _event: TaskEvent<'_>) {}

    fn request<'a>(
        &'a mut self,
        _question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        Box::pin(std::future::ready(UserReply::Leave))
    }
}

pub(crate) struct DiscardingStore;

impl RecordStore for DiscardingStore {
    fn append(&mut self, _: &Record) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn results_come_in_the_order_of_their_calls() {
    let tool = Look {
        all_here: Arc::new(tokio::sync::Barrier::new(3)),
    };
    let results = look_at(tool, ["300", "150", "1"]);
    let contents = results.iter().map(|result| result.content.as_str());
    assert_eq!(
        contents.collect::<Vec<_>>(),
        ["300", "150", "1", "Accepted."]
    );
}
