//! The mode history: follows the mode of a task through its records.
//!
//! No mode is stored beside the records. The start names the first mode; a `switch_mode` call that
//! is done and a switch by the user ([`ContextChange::Moded`](crate::ContextChange)) each name the
//! next. Code that depends on a task's mode (the state machine, a resume, the paths that may be
//! written) reads it here.

use sabir_call::{MessagePart, ToolResultStatus};
use sabir_policy::Mode;

use crate::control;
use crate::record::{ContextChange, Record};

/// The mode of tasks that name none.
pub(crate) const DEFAULT_MODE: &str = "code";

/// Follows the mode of a task through its records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModeHistory {
    /// The current mode; `None` for the default one.
    mode: Option<String>,
    switched: bool,
    /// The switches that the last answer requests: each with its call and the mode's name.
    requested_switches: Vec<(sabir_call::CallId, String)>,
}

impl ModeHistory {
    /// Reads the history from records.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut history = Self::default();
        for record in records {
            history.apply_record(record);
        }
        history
    }

    /// Applies a record and returns true if it changes the mode.
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
                    // Other programs use other names for this call, and their modes are unknown
                    // here.
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
            // Only the result switches: a call that was denied or failed leaves the mode as it is.
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

    /// Returns the name of the current mode.
    pub fn current_mode(&self) -> &str {
        self.mode.as_deref().unwrap_or(DEFAULT_MODE)
    }

    /// Reports whether the mode has changed since the task began.
    pub fn has_switched(&self) -> bool {
        self.switched
    }

    fn enter_mode(&mut self, mode: String) -> bool {
        if self.current_mode() == mode {
            return false;
        }
        self.mode = Some(mode);
        self.switched = true;
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
            let history =
                ModeHistory::from_records(&[Record::Answered(answered), Record::Result(result)]);
            assert_eq!(history.current_mode(), expected);
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
