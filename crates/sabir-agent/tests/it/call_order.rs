//! Reading calls run concurrently; their results are in the order of the calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{
    CallArguments, CancelToken, FrontEnd, Interactivity, PreparedCall, ProgressSink, Record,
    RecordStore, StoreError, Task, TaskDriver, TaskEvent, TaskOutcome, Tool, ToolOutput,
    ToolRegistry, ToolWork, UserQuestion, UserReply,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    Event, EventSink, MessagePart, Model, PromptedSink, Request, ResponseFuture, ToolSpec,
    Truncation,
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
    ) -> ToolWork<'a> {
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

/// Makes three reading calls in one message, then completes.
struct ReadingModel;

impl Model for ReadingModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let first = request.messages.len() == 1;
        let look = |time: u32| format!("<look>\n<path>{time}</path>\n</look>\n");
        let done = || "<attempt_completion>\n<result>r</result>\n</attempt_completion>".to_owned();
        let text = if first {
            [300, 150, 1].map(look).concat()
        } else {
            done()
        };
        let pass = |event: Event<'_>| sink.push_event(event);
        let mut prompted = PromptedSink::new(DialectSet::built_in().all(), &request.tools, pass);
        prompted.push_event(Event::Text { text: &text });
        let _ = prompted.finish(Truncation::Ended);
        Box::pin(std::future::ready(Ok(())))
    }
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
    let registry = ToolRegistry::new(vec![Arc::new(Look {
        all_here: Arc::new(tokio::sync::Barrier::new(3)),
    })])
    .unwrap();
    let settings = sabir_agent::TaskSettings {
        tools: registry.tool_set().clone(),
        ..settings(Interactivity::Headless)
    };
    let (mut task, first) = Task::new(start(), settings);
    let driver = TaskDriver {
        model: &ReadingModel,
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
        MessagePart::Result(result) => Some(result.content.as_str()),
        _ => None,
    });
    assert_eq!(
        results.collect::<Vec<_>>(),
        ["300", "150", "1", "Accepted."]
    );
}
