//! `ask_followup_question`: the only way in which a model asks the user something.

use sabir_call::ToolSpec;
use serde_json::json;

use super::json_object;

/// The name of the call that asks the user.
pub const FOLLOWUP_TOOL: &str = "ask_followup_question";

pub(super) fn followup_spec() -> ToolSpec {
    let mut followup = ToolSpec::new(
        FOLLOWUP_TOOL,
        "Ask the user one question, when something is missing that no tool can find out. Do not ask for permission: that \
         is asked for you.",
        json!({"type": "object", "required": ["question"], "additionalProperties": false, "properties": {
            "question": {"type": "string", "description": "The question, clear without further context."},
            "follow_up": {"type": "array", "items": {"type": "string"}, "description": "Two to four answers to choose from."},
        }}),
    );
    followup.examples.push(json_object(
        json!({"question": "Which port should the server use?", "follow_up": ["8080", "3000"]}),
    ));
    followup
}
