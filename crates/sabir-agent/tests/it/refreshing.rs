//! A call that is brought up to date before it is judged holds up neither a cancel nor, if that work breaks down, the task.

use std::future::pending;
use std::sync::Arc;

use sabir_agent::{
    CallArguments, CallPermit, CallRefresh, CancelToken, Interactivity, PreparedCall, ProgressSink,
    Task, TaskDriver, TaskOutcome, Tool, ToolOutput, ToolRegistry, ToolWork,
};
use sabir_call::{ToolResultStatus, ToolSpec};
use sabir_policy::Access;
use serde_json::json;

use crate::call_order::{DiscardingStore, LookingModel, SilentFrontEnd, look_at};
use crate::machine::{settings, start};

/// Cancels the task while a call is brought up to date, panics then, or does neither, depending on the call's path.
#[derive(Clone)]
struct Refreshed(CancelToken);

struct RefreshedCall {
    path: String,
    cancel: CancelToken,
}

impl Tool for Refreshed {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("look", "", schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(RefreshedCall {
            path: arguments["path"].as_str().unwrap().to_owned(),
            cancel: self.0.clone(),
        })
    }
}

impl PreparedCall for RefreshedCall {
    fn refresh(&self) -> Option<CallRefresh> {
        let path = self.path.clone();
        let cancel = self.cancel.clone();
        Some(Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(path != "breaks", "it breaks down");
            if path == "hangs" {
                cancel.cancel();
                pending::<()>().await;
            }
        }))
    }

    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolWork<'a> {
        Box::pin(std::future::ready(ToolOutput::done(self.path)))
    }
}

#[test]
fn a_panic_while_a_call_is_refreshed_fails_that_call_alone() {
    let tool = Refreshed(CancelToken::default());
    let results = look_at(tool, ["first", "breaks", "last"]);
    let ends: Vec<_> = results.iter().map(|result| result.ending).collect();
    assert_eq!(
        ends,
        [
            ToolResultStatus::Done,
            ToolResultStatus::Failed,
            ToolResultStatus::Done,
            ToolResultStatus::Done
        ]
    );
    assert!(results[1].content.contains("broke down"), "{results:?}");
}

#[test]
fn a_call_that_is_being_refreshed_can_be_cancelled() {
    let cancel = CancelToken::default();
    let registry = ToolRegistry::new(vec![Arc::new(Refreshed(cancel.clone()))]).unwrap();
    let settings = sabir_agent::TaskSettings {
        tools: registry.tool_set().clone(),
        ..settings(Interactivity::Headless)
    };
    let (mut task, first) = Task::new(start(), settings);
    let driver = TaskDriver {
        model: &LookingModel {
            paths: ["first", "hangs", "last"],
        },
        registry: &registry,
        store: &mut DiscardingStore,
        front_end: &mut SilentFrontEnd,
        observers: Vec::new(),
        cancel,
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (outcome, _) = runtime
        .block_on(driver.run(&mut task, Some(first), None))
        .unwrap();
    assert_eq!(outcome, TaskOutcome::Cancelled);
}
