//! A call that is brought up to date before it is checked holds up neither a cancel nor, if that work breaks down, the task.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabir_agent::{
    CallArguments, CallPermit, CancelToken, Interactivity, PreparedCall, ProgressSink,
    RefreshFuture, Task, TaskDriver, TaskOutcome, Tool, ToolFuture, ToolOutput, ToolRegistry,
};
use sabir_call::{ToolResultStatus, ToolSpec};
use sabir_policy::Access;
use serde_json::json;

use crate::call_order::{DiscardingStore, LookingModel, SilentFrontEnd, look_at};
use crate::machine::{settings, start};

/// Cancels the task while a call is brought up to date for the first time, panics then, or does neither, depending on the call's path.
#[derive(Clone, Default)]
struct Refreshed {
    cancel: CancelToken,
    hung: Arc<AtomicBool>,
}

struct RefreshedCall {
    path: String,
    tool: Refreshed,
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
            tool: self.clone(),
        })
    }
}

impl PreparedCall for RefreshedCall {
    fn refresh(&self) -> Option<RefreshFuture> {
        let path = self.path.clone();
        let Refreshed { cancel, hung } = self.tool.clone();
        Some(Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(path != "breaks", "it breaks down");
            if path == "hangs" && !hung.swap(true, Ordering::Relaxed) {
                cancel.cancel();
                pending::<()>().await;
            }
        }))
    }

    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(ToolOutput::done(self.path)))
    }
}

#[test]
fn a_panic_while_a_call_is_refreshed_fails_that_call_alone() {
    let tool = Refreshed::default();
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
    assert!(results[1].content.contains("crashed"), "{results:?}");
}

#[test]
fn a_call_that_is_being_refreshed_can_be_cancelled() {
    let tool = Refreshed::default();
    let cancel = tool.cancel.clone();
    let registry = ToolRegistry::new(vec![Arc::new(tool)]).unwrap();
    let settings = sabir_agent::TaskSettings {
        tools: registry.tool_set().clone(),
        ..settings(Interactivity::Headless)
    };
    let (mut task, first) = Task::new(start(), settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut drive = |first, cancel| {
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
        task.prepare_next_run();
        let run = driver.run(&mut task, first, None);
        let limited = async { tokio::time::timeout(Duration::from_secs(60), run).await };
        runtime.block_on(limited).expect("it hangs").unwrap().0
    };
    assert_eq!(drive(Some(first), cancel), TaskOutcome::Cancelled);
    // The work was dropped, so the next run does it again instead of waiting for it.
    let outcome = drive(None, CancelToken::default());
    assert_eq!(outcome, TaskOutcome::Completed);
}
