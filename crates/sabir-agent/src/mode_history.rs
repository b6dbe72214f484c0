//! The trail: which mode a task is in, as its records tell it.
//!
//! There is no state of it beside the records: the start names the first mode, a `switch_mode` that is done another, and so does the user's
//! own word ([`ContextChange::Moded`](crate::ContextChange)). Everything that follows a task's mode (the machine, a resume, the bounds of its files)
//! follows it by this.

use sabir_call::{MessagePart, ToolResultStatus};
use sabir_policy::Mode;

use crate::control;
use crate::record::{ContextChange, Record};

/// The mode of tasks that name none.
pub(crate) const DEFAULT_MODE: &str = "code";

/// Follows the mode of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModeHistory {
    /// `None`: the usual one.
    mode: Option<String>,
    switched: bool,
    /// The switches that the last answer asks for: the call, and the mode.
    requested_switches: Vec<(sabir_call::CallId, String)>,
}

impl ModeHistory {
    /// The trail of these records.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut trail = Self::default();
        for record in records {
            trail.apply_record(record);
        }
        trail
    }

    /// Takes a record; whether another mode holds from now on.
    pub fn apply_record(&mut self, record: &Record) -> bool {
        match record {
            Record::Started(start) => {
                self.mode = start
                    .mode
                    .as_deref()
                    .map(|name| Mode::canonical_name(name).to_owned());
                false
            }
            Record::Answered(answered) => {
                let calls = answered.parts.iter().filter_map(|part| match part {
                    // Other programs name it otherwise: what they switched to is no mode of ours.
                    MessagePart::Call(call)
                        if call.name == control::SWITCH_MODE_TOOL
                            && !control::requested_mode(call).is_empty() =>
                    {
                        Some(call)
                    }
                    _ => None,
                });
                self.requested_switches = calls
                    .map(|call| (call.id.clone(), control::requested_mode(call).to_owned()))
                    .collect();
                false
            }
            Record::Result(result)
                if result.name == control::SWITCH_MODE_TOOL
                    && result.ending == ToolResultStatus::Done =>
            {
                let asked = self
                    .requested_switches
                    .iter()
                    .find(|(call, _)| *call == result.id)
                    .map(|(_, mode)| mode.clone());
                asked.is_some_and(|mode| self.enter_mode(mode))
            }
            Record::Context(ContextChange::Moded { mode, .. }) => self.enter_mode(mode.clone()),
            _ => false,
        }
    }

    /// The name of the mode.
    pub fn current_mode(&self) -> &str {
        self.mode.as_deref().unwrap_or(DEFAULT_MODE)
    }

    /// Whether it was switched since the task began.
    pub fn has_switched(&self) -> bool {
        self.switched
    }

    fn enter_mode(&mut self, mode: String) -> bool {
        if self.current_mode() == mode {
            return false;
        }
        (self.mode, self.switched) = (Some(mode), true);
        true
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::{Call, CallId, CallResult};
    use serde_json::json;

    use super::*;
    use crate::record::AssistantTurn;

    #[test]
    fn only_a_call_that_names_a_mode_switches() {
        let check = |arguments: serde_json::Value, ending: ToolResultStatus, expected: &str| {
            let id = CallId::new("a");
            let arguments = arguments.as_object().cloned().unwrap();
            let name = control::SWITCH_MODE_TOOL.to_owned();
            let call = MessagePart::Call(Call {
                id: id.clone(),
                name: name.clone(),
                arguments,
                dialect: None,
            });
            let answered = json!({"turn": 1, "parts": [], "checks": [], "faults": [], "usage": {}, "stop": null, "feedback": null});
            let answered = AssistantTurn {
                parts: vec![call],
                ..serde_json::from_value(answered).unwrap()
            };
            let result = CallResult {
                id,
                name,
                ending,
                content: String::new(),
                images: Vec::new(),
            };
            let trail =
                ModeHistory::from_records(&[Record::Answered(answered), Record::Result(result)]);
            assert_eq!(trail.current_mode(), expected);
        };
        check(
            json!({"mode": "plan", "reason": "x"}),
            ToolResultStatus::Done,
            "plan",
        );
        check(
            json!({"mode": "plan", "reason": "x"}),
            ToolResultStatus::Denied,
            "code",
        );
        check(
            json!({"mode_slug": "architect", "reason": "x"}),
            ToolResultStatus::Done,
            "code",
        );
        check(json!({"mode": " "}), ToolResultStatus::Done, "code");
    }
}
