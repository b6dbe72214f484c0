//! The check: a command of the user that must succeed before a completion is accepted or shown.
//!
//! It runs as the work of the completion's own call: assessed, permitted, recorded as running, and
//! answered once, as any call. So it can be cancelled, is subject to the time limit, and a crash in
//! it is reported like any other. It comes from the user, so no rule checks it.

use std::borrow::Cow;

use sabir_call::{Call, CallId, ToolResultStatus};
use sabir_policy::Access;
use serde_json::Value;

use crate::control;
use crate::permit::{CallDigest, CallPermit, Preconditions};
use crate::tool::{CallArguments, ToolOutput};

use super::denials::UnresolvedDenials;
use super::todos::OpenTodos;
use super::{Task, TaskEffect};

/// The conditions for accepting a completion, besides that no call of its message failed.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionConditions {
    /// The treatment of todos that are not done.
    pub open_todos: OpenTodos,
    /// The tool and the arguments of the check. They come from the user alone, so no rule checks
    /// them.
    pub check: Option<(String, CallArguments)>,
    /// The treatment of denied calls that no later call has replaced.
    pub denials: UnresolvedDenials,
    /// The form of a result in a task without a user to talk to.
    pub form: CompletionForm,
    /// True if the user, or the program that controls the task, is asked before a completion is
    /// accepted. A headless task accepts it.
    pub review: bool,
}

impl Default for CompletionConditions {
    fn default() -> Self {
        Self {
            open_todos: OpenTodos::default(),
            check: None,
            denials: UnresolvedDenials::default(),
            form: CompletionForm::default(),
            review: true,
        }
    }
}

/// The form in which a model gives its result in a task without a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CompletionForm {
    /// Depends on the protocol: a native task accepts an answer, and a prompted task needs a call.
    ByProtocol,
    /// Only a call of `attempt_completion` completes a task. A reply without a call is answered
    /// with a reminder.
    #[default]
    Call,
    /// A reply without a call is the result too, as long as nothing was changed.
    Answer,
}

impl Task {
    /// Returns the call that is assessed and run for the call with this id: itself, or, for a
    /// completion, the check.
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

    /// Returns the arguments of an open call whose values were written on lines of their own.
    pub fn values_on_own_lines(&self, id: &CallId) -> &[String] {
        self.turn
            .as_ref()
            .map_or(&[], |turn| turn.values_on_own_lines(id))
    }

    /// Runs the check after its assessment. Invalid arguments count as a failed check.
    pub(super) fn handle_check_assessment(
        &mut self,
        call: &Call,
        access: &Access,
        preconditions: Preconditions,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some((tool, arguments)) = &self.settings.completion.check else {
            return;
        };
        let digest = CallDigest::for_call(tool, arguments, &preconditions);
        let permit = CallPermit {
            digest,
            preconditions,
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

    /// Accepts or refuses the completion by the result of its check.
    pub(super) fn handle_check_result(
        &mut self,
        call: &Call,
        output: &ToolOutput,
        effects: &mut Vec<TaskEffect>,
    ) {
        // The user may have sent a message during the check, which the model has not read.
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
        self.record_call_result(call, ToolResultStatus::Rejected, content, effects);
        self.advance_calls(effects);
    }

    /// Names the command of the check; empty if it is another tool.
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
