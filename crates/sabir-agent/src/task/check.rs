//! The check: a command of the user's that must succeed before a completion is accepted, or shown.
//!
//! It is run as the work of the completion's own call: weighed, sealed, recorded as running, and answered once, as any call. So it
//! can be cancelled, runs into the time limit, and a crash in it is told like any other. It is the user's own, so no rule judges it.

use std::borrow::Cow;

use sabir_call::{Call, CallId, ToolResultStatus};
use sabir_policy::Access;
use serde_json::Value;

use crate::control;
use crate::permit::{CallDigest, CallPermit, Preconditions};
use crate::tool::{CallArguments, ToolOutput};

use super::todos::OpenTodos;
use super::{Task, TaskEffect};

/// What must hold before a completion is accepted, besides that no call of its message failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompletionConditions {
    /// Whether todos may be left.
    pub open_todos: OpenTodos,
    /// A tool, and the arguments with which it must succeed. It comes from the user alone: no rule judges it.
    pub check: Option<(String, CallArguments)>,
}

impl Task {
    /// The call that is weighed and run for the call of that id: itself, or, for a completion, the check.
    pub fn effective_call(&self, id: &CallId) -> Option<Cow<'_, Call>> {
        let call = self.open_call(id)?;
        if call.name != control::COMPLETION_TOOL {
            return Some(Cow::Borrowed(call));
        }
        let (name, arguments) = self.settings.completion.check.clone()?;
        Some(Cow::Owned(Call {
            id: id.clone(),
            name,
            arguments,
            dialect: None,
        }))
    }

    /// The check has been weighed.
    pub(super) fn handle_check_assessment(
        &mut self,
        call: &Call,
        access: &Access,
        bound: Preconditions,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some((tool, arguments)) = &self.settings.completion.check else {
            return;
        };
        let seal = CallDigest::for_call(tool, arguments, &bound);
        let permit = CallPermit {
            digest: seal,
            preconditions: bound,
            ..CallPermit::unchecked(call.id.clone())
        };
        if !self
            .turn
            .as_mut()
            .is_some_and(|turn| turn.set_permit(&call.id, permit))
        {
            return;
        }
        match access {
            Access::Invalid { reason } => {
                self.handle_check_result(call, &ToolOutput::failed(reason.clone()), effects)
            }
            _ => self.run_call(&call.id, effects),
        }
    }

    /// The check is over.
    pub(super) fn handle_check_result(
        &mut self,
        call: &Call,
        output: &ToolOutput,
        effects: &mut Vec<TaskEffect>,
    ) {
        if !output.failed && self.reject_completion(call, effects) {
            return self.advance_calls(effects);
        }
        if !output.failed {
            return self.accept_completion(call, effects);
        }
        let content = format!(
            "Not completed: the check{} did not succeed. Put that right, then complete again.\n{}",
            self.check_description(),
            output.content
        );
        self.answer_call(call, ToolResultStatus::Rejected, content, effects);
        self.advance_calls(effects);
    }

    /// The check by what it runs, where that is a command.
    fn check_description(&self) -> String {
        let check = self.settings.completion.check.as_ref();
        let command = check
            .and_then(|(_, arguments)| arguments.get("command"))
            .and_then(Value::as_str);
        command
            .map(|command| format!(" `{command}`"))
            .unwrap_or_default()
    }
}
