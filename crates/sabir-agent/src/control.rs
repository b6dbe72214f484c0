//! Control calls: calls that speak to the task itself rather than to the world.

use sabir_call::ToolSpec;
use serde_json::{Map, Value, json};

/// Ends the task, if nothing speaks against it.
pub const COMPLETION: &str = "attempt_completion";
/// Asks the user.
pub const FOLLOWUP: &str = "ask_followup_question";

/// The control calls, as the model is offered them.
pub fn specs() -> [ToolSpec; 2] {
    let mut followup = ToolSpec::new(
        FOLLOWUP,
        "Ask the user one question, when something is missing that no tool can find out. Do not ask for permission: that \
         is asked for you.",
        json!({"type": "object", "required": ["question"], "additionalProperties": false, "properties": {
            "question": {"type": "string", "description": "The question, clear without further context."},
            "follow_up": {"type": "array", "items": {"type": "string"}, "description": "Two to four answers to choose from."},
        }}),
    );
    followup
        .examples
        .push(object(json!({"question": "Which port should the server use?", "follow_up": ["8080", "3000"]})));
    let mut completion = ToolSpec::new(
        COMPLETION,
        "Say that the task is done, once the results of all earlier calls show that it is. Not in one message with a call \
         whose result you have not seen.",
        json!({"type": "object", "required": ["result"], "additionalProperties": false, "properties": {
            "result": {"type": "string", "description": "What was done, in a few sentences. No question, no offer of more."},
        }}),
    );
    completion.examples.push(object(json!({"result": "The server now listens on port 8080; the tests pass."})));
    [followup, completion]
}

/// Whether the machine answers calls of that name itself.
pub fn is_control(name: &str) -> bool {
    matches!(name, COMPLETION | FOLLOWUP)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
