//! A tool that panics fails, and the task continues.

use sabir_agent::{CallArguments, PreparedCall, ProgressSink, Tool, ToolFuture, ToolOutput};
use sabir_call::{ToolResultStatus, ToolSpec};
use sabir_policy::Access;
use serde_json::json;

use crate::call_order::look_at;

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
    ) -> ToolFuture<'a> {
        let path = self.0;
        Box::pin(async move {
            assert!(path != "now", "it breaks down");
            tokio::task::yield_now().await;
            assert!(path != "later", "it breaks down");
            ToolOutput::done(path)
        })
    }
}

#[test]
fn a_panicking_tool_fails_and_the_task_continues() {
    let results = look_at(Fragile, ["now", "fine", "later"]);
    let ends = results
        .iter()
        .map(|result| (result.ending, result.content.contains("crashed")));
    let failed = (ToolResultStatus::Failed, true);
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [
            failed,
            (ToolResultStatus::Done, false),
            failed,
            (ToolResultStatus::Done, false)
        ]
    );
}
