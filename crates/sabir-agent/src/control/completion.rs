//! `attempt_completion`: the only way in which a task is completed.

use sabir_call::ToolSpec;
use serde_json::json;

use super::json_object;

/// The name of the call that completes the task.
pub const COMPLETION_TOOL: &str = "attempt_completion";

/// The manual of `attempt_completion`.
pub(super) const MANUAL: &str = include_str!("specs/attempt_completion.md");

pub(super) fn completion_spec() -> ToolSpec {
    let mut completion = ToolSpec::new(
        COMPLETION_TOOL,
        "Say that the task is done, once the results of all earlier calls show that it is. Not in one message with a call \
         whose result you have not seen.",
        json!({"type": "object", "required": ["result"], "additionalProperties": false, "properties": {
            "result": {"type": "string", "description": "What was done, in a few sentences. No question, no offer of more."},
        }}),
    );
    completion.examples.push(json_object(
        json!({"result": "The server now listens on port 8080; the tests pass."}),
    ));
    completion
}
