//! Open denials: calls that the policy denied, and that no later call has replaced.
//!
//! In a headless task a completion says nothing about them, so a task with such denials does not
//! end as completed. Denials by the user do not count, because they are the user's decision.

use sabir_call::{Call, CallId, CallResult, ToolResultStatus};

use super::Task;
use crate::record::{DecisionMaker, TaskOutcome};

/// The most denied calls that the message at the end names.
const MAX_NAMED: usize = 5;
/// The longest name of a call's subject, in characters.
const MAX_SUBJECT_CHARS: usize = 120;
/// The arguments that name the subject of a call, in the order in which they are tried.
const SUBJECT_ARGUMENTS: [&str; 5] = ["path", "command", "url", "regex", "query"];

/// The treatment of a completion if denied calls were not replaced by later ones and there is no
/// reviewer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnresolvedDenials {
    /// The task ends as denied.
    #[default]
    EndDenied,
    /// The task ends as completed.
    Accepted,
}

/// The denied calls that no later call has replaced.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DenialTracker(Vec<DeniedCall>);

/// A call that the policy denied.
#[derive(Debug, Clone, PartialEq)]
struct DeniedCall {
    tool: String,
    subject: String,
    is_path: bool,
}

impl DeniedCall {
    fn from_call(call: &Call) -> Self {
        let is_path = call.arguments.contains_key("path");
        Self {
            tool: call.name.clone(),
            subject: call_subject(call),
            is_path,
        }
    }

    /// Returns true if a successful call did the work of this one: the same with the same tool, or a change of the same file with another
    /// tool.
    fn is_replaced_by(&self, call: &Call, readers: &[String]) -> bool {
        let reads = |tool: &String| readers.contains(tool);
        let is_same_kind = self.tool == call.name
            || self.is_path
                && call.arguments.contains_key("path")
                && !reads(&self.tool)
                && !reads(&call.name);
        is_same_kind && self.subject == call_subject(call)
    }
}

/// Returns the subject of a call on one line: its path, command or address, or else its arguments
/// as JSON.
pub fn call_subject(call: &Call) -> String {
    let named = SUBJECT_ARGUMENTS
        .iter()
        .find_map(|name| call.arguments.get(*name))
        .and_then(serde_json::Value::as_str);
    match named {
        Some(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        None => serde_json::to_string(&call.arguments).unwrap_or_default(),
    }
}

impl DenialTracker {
    /// Notes a verdict that denies a call. The user's own refusals are decisions, and are left out.
    pub(super) fn note_denial(&mut self, call: &Call, by: DecisionMaker) {
        let denied = DeniedCall::from_call(call);
        if by == DecisionMaker::Policy && !self.0.contains(&denied) {
            self.0.push(denied);
        }
    }

    /// Notes the result of a call. A successful call cancels earlier denials of equal calls.
    pub(super) fn note_result(&mut self, call: &Call, result: &CallResult, readers: &[String]) {
        if result.ending == ToolResultStatus::Done {
            self.0
                .retain(|denied| !denied.is_replaced_by(call, readers));
        }
    }

    /// Forgets all denials.
    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Names the calls; `None` if there are none.
    fn describe(&self) -> Option<String> {
        let count = self.0.len();
        let named: Vec<String> = self
            .0
            .iter()
            .take(MAX_NAMED)
            .map(|denied| {
                let subject: String = denied.subject.chars().take(MAX_SUBJECT_CHARS).collect();
                format!("{} {subject}", denied.tool)
            })
            .collect();
        let more = match count.saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let calls = if count == 1 { "call was" } else { "calls were" };
        (count > 0).then(|| {
            format!(
                "{count} {calls} denied and not replaced by another ({}{more})",
                named.join("; ")
            )
        })
    }
}

impl Task {
    /// Notes a verdict that denies an open call.
    pub(super) fn note_denial(&mut self, id: &CallId, by: DecisionMaker) {
        if let Some(call) = self.open_call(id).cloned() {
            self.denials.note_denial(&call, by);
        }
    }

    /// Returns the outcome and the message of a result without a reviewer. A task whose calls
    /// were denied did not do its work, even if the model says so.
    pub(super) fn decide_outcome(&self, result: String) -> (TaskOutcome, String) {
        let is_reviewed = self.settings.interactivity.is_interactive();
        let accepts = self.settings.completion.denials == UnresolvedDenials::Accepted;
        match self.denials.describe().filter(|_| !is_reviewed && !accepts) {
            None => (TaskOutcome::Completed, result),
            Some(denied) => (
                TaskOutcome::Denied,
                format!(
                    "the result is incomplete: {denied}; --approve allows such calls, and \
                     --allow-denied accepts a result without them. The model says: {result}"
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: serde_json::Value) -> Call {
        Call {
            id: CallId::new("c"),
            name: name.to_owned(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            dialect: None,
        }
    }

    fn done(name: &str) -> CallResult {
        CallResult {
            id: CallId::new("c"),
            name: name.to_owned(),
            ending: ToolResultStatus::Done,
            content: String::new(),
            images: Vec::new(),
        }
    }

    #[test]
    fn only_a_write_of_the_same_path_makes_up_for_a_denial() {
        let readers = vec!["read_file".to_owned()];
        let check = |name: &str, arguments: serde_json::Value, is_good: bool| {
            let mut ledger = DenialTracker::default();
            let denied = call("write_to_file", json!({"path": "a", "content": "1"}));
            ledger.note_denial(&denied, DecisionMaker::Policy);
            let later = call(name, arguments);
            ledger.note_result(&later, &done(name), &readers);
            assert_eq!(ledger.describe().is_none(), is_good, "{name}");
        };
        check("write_to_file", json!({"path": "a", "content": "2"}), true);
        check("replace_in_file", json!({"path": "a", "diff": "x"}), true);
        check("write_to_file", json!({"path": "b", "content": "1"}), false);
        check("read_file", json!({"path": "a"}), false);
        check("execute_command", json!({"command": "ls"}), false);
    }

    #[test]
    fn denials_by_the_user_do_not_count() {
        let mut ledger = DenialTracker::default();
        ledger.note_denial(&call("x", json!({})), DecisionMaker::User);
        assert_eq!(ledger.describe(), None);
    }
}
