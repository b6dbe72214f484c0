//! `switch_mode`: the model's own word for another mode.
//!
//! The result of the call is what is remembered: one that is `done` makes the mode of its arguments the task's
//! ([`ModeHistory`](crate::ModeHistory)). Whether it may is judged by the rules alone (`sabir-policy`).

use sabir_call::{Call, ToolSpec};
use sabir_policy::Mode;
use serde_json::{Value, json};

use super::json_object;

/// Switches to another mode.
pub const SWITCH_MODE_TOOL: &str = "switch_mode";

/// Its Markdown.
pub(super) const MANUAL: &str = include_str!("specs/switch_mode.md");

pub(super) fn switch_mode_spec() -> ToolSpec {
    let mut spec = ToolSpec::new(
        SWITCH_MODE_TOOL,
        "Go on in another mode, where this one lacks what the task needs. A mode that permits more is asked about for you.",
        json!({"type": "object", "required": ["mode", "reason"], "additionalProperties": false, "properties": {
            "mode": {"type": "string", "description": "Its name. A name that is none is answered with all of them."},
            "reason": {"type": "string", "description": "What is to be done there, in a sentence. The user reads it."},
        }}),
    );
    spec.examples.push(json_object(
        json!({"mode": "code", "reason": "The plan is accepted; it is to be carried out."}),
    ));
    spec
}

/// The mode that a call names, by its own name.
pub(crate) fn requested_mode(call: &Call) -> &str {
    Mode::canonical_name(
        call.arguments
            .get("mode")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .trim(),
    )
}
