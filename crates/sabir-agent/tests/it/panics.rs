//! A tool that panics fails, and the task continues.

use std::sync::Arc;

use sabir_agent::{
    CallArguments, CancelToken, Interactivity, PreparedCall, ProgressSink, Task, TaskDriver,
    TaskOutcome, Tool, ToolOutput, ToolRegistry, ToolWork,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{
    Event, EventSink, MessagePart, Model, PromptedSink, Request, ResponseFuture, ToolResultStatus,
    ToolSpec, Truncation,
};
use sabir_policy::Access;
use serde_json::json;

use crate::call_order::{DiscardingStore, SilentFrontEnd};
use crate::machine::{settings, start};

/// Panics at once, after a while, or not at all, depending on its path.
struct Fragile;

impl Tool for Fragile {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("look", "", schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(FragileCall(arguments["path"].as_str().unwrap().to_owned()))
    }
}

struct FragileCall(String);

impl PreparedCall for FragileCall {
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(
        self: Box<Self>,
        _: &'a sabir_agent::CallPermit,
        _: ProgressSink<'a>,
    ) -> ToolWork<'a> {
        let path = self.0;
        Box::pin(async move {
            assert!(path != "now", "it breaks down");
            tokio::task::yield_now().await;
            assert!(path != "later", "it breaks down");
            ToolOutput::done(path)
        })
    }
}

struct ReadingModel;

impl Model for ReadingModel {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let first = request.messages.len() == 1;
        let look = |path: &str| format!("<look>\n<path>{path}</path>\n</look>\n");
        let done = || "<attempt_completion>\n<result>r</result>\n</attempt_completion>".to_owned();
        let text = if first {
            ["now", "fine", "later"].map(look).concat()
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

#[test]
fn a_panicking_tool_fails_and_the_task_continues() {
    let registry = ToolRegistry::new(vec![Arc::new(Fragile)]).unwrap();
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
    let results: Vec<_> = parts
        .filter_map(|part| match part {
            MessagePart::Result(result) => {
                Some((result.ending, result.content.contains("broke down")))
            }
            _ => None,
        })
        .collect();
    let failed = (ToolResultStatus::Failed, true);
    assert_eq!(
        results,
        [
            failed,
            (ToolResultStatus::Done, false),
            failed,
            (ToolResultStatus::Done, false)
        ]
    );
}
