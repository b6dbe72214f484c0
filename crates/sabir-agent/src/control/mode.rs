//! `switch_mode`: the model's request for another mode.
//!
//! The result of the call is what is remembered: if it is `done`, the mode in its arguments becomes
//! the task's ([`ModeHistory`](crate::ModeHistory)). The rules alone (`sabir-policy`) decide if the
//! switch is allowed.

use sabir_call::{Call, ToolSpec};
use sabir_policy::Mode;
use serde_json::{Value, json};

use super::json_object;

/// The name of the call that switches to another mode.
pub const SWITCH_MODE_TOOL: &str = "switch_mode";

/// The manual of `switch_mode`.
pub(super) const MANUAL: &str = include_str!("specs/switch_mode.md");

pub(super) fn switch_mode_spec() -> ToolSpec {
    let mut spec = ToolSpec::new(
        SWITCH_MODE_TOOL,
        "Switches to another mode if this one lacks something that the task needs. The user is asked before a mode that permits more.",
        json!({"type": "object", "required": ["mode", "reason"], "additionalProperties": false, "properties": {
            "mode": {"type": "string", "description": "The name of the mode. An unknown name is answered with the list of modes."},
            "reason": {"type": "string", "description": "What to do there, in a sentence. The user reads it."},
        }}),
    );
    spec.examples.push(json_object(
        json!({"mode": "code", "reason": "The plan is accepted; carry it out."}),
    ));
    spec
}

/// Returns the mode that a call names, by its canonical name.
pub(crate) fn requested_mode(call: &Call) -> &str {
    Mode::canonical_name(
        call.arguments
            .get("mode")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .trim(),
    )
}
