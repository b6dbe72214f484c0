//! The trail: which mode a task is in, as its records tell it.
//!
//! There is no state of it beside the records: the start names the first mode, a `switch_mode` that is done another, and so does the user's
//! own word ([`Shift::Moded`](crate::Shift)). Whoever has to follow a task's mode (the machine, a resume, what bounds its files)
//! follows it by this.

use sabir_call::{Ending, Part};
use sabir_policy::Mode;

use crate::control;
use crate::record::{Record, Shift};

/// The mode of tasks that name none.
pub(crate) const USUAL: &str = "code";

/// Follows the mode of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// `None`: the usual one.
    mode: Option<String>,
    switched: bool,
    /// The switches that the last answer asks for: the call, and the mode.
    asked: Vec<(sabir_call::CallId, String)>,
}

impl Trail {
    /// The trail of these records.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut trail = Self::default();
        for record in records {
            trail.note(record);
        }
        trail
    }

    /// Takes a record; whether another mode holds from now on.
    pub fn note(&mut self, record: &Record) -> bool {
        match record {
            Record::Started(start) => {
                self.mode = start.mode.as_deref().map(|name| Mode::usual_name(name).to_owned());
                false
            }
            Record::Answered(answered) => {
                let calls = answered.parts.iter().filter_map(|part| match part {
                    // Other programs name it otherwise: what they switched to is no mode of ours.
                    Part::Call(call) if call.name == control::SWITCH && !control::wanted(call).is_empty() => Some(call),
                    _ => None,
                });
                self.asked = calls.map(|call| (call.id.clone(), control::wanted(call).to_owned())).collect();
                false
            }
            Record::Result(result) if result.name == control::SWITCH && result.ending == Ending::Done => {
                let asked = self.asked.iter().find(|(call, _)| *call == result.id).map(|(_, mode)| mode.clone());
                asked.is_some_and(|mode| self.enter(mode))
            }
            Record::Context(Shift::Moded { mode, .. }) => self.enter(mode.clone()),
            _ => false,
        }
    }

    /// The name of the mode.
    pub fn mode(&self) -> &str {
        self.mode.as_deref().unwrap_or(USUAL)
    }

    /// Whether it was switched since the task began.
    pub fn has_switched(&self) -> bool {
        self.switched
    }

    fn enter(&mut self, mode: String) -> bool {
        if self.mode() == mode {
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
    use crate::record::Answered;

    #[test]
    fn only_a_call_that_names_a_mode_switches() {
        let check = |arguments: serde_json::Value, ending: Ending, expected: &str| {
            let id = CallId::new("a");
            let arguments = arguments.as_object().cloned().unwrap();
            let name = control::SWITCH.to_owned();
            let call = Part::Call(Call { id: id.clone(), name: name.clone(), arguments, dialect: None });
            let answered = json!({"turn": 1, "parts": [], "checks": [], "faults": [], "usage": {}, "stop": null, "feedback": null});
            let answered = Answered { parts: vec![call], ..serde_json::from_value(answered).unwrap() };
            let result = CallResult { id, name, ending, content: String::new(), images: Vec::new() };
            let trail = Trail::of(&[Record::Answered(answered), Record::Result(result)]);
            assert_eq!(trail.mode(), expected);
        };
        check(json!({"mode": "plan", "reason": "x"}), Ending::Done, "plan");
        check(json!({"mode": "plan", "reason": "x"}), Ending::Denied, "code");
        check(json!({"mode_slug": "architect", "reason": "x"}), Ending::Done, "code");
        check(json!({"mode": " "}), Ending::Done, "code");
    }
}
