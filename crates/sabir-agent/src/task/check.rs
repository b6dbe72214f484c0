//! The check: a command of the user's that must succeed before a completion is accepted, or shown.
//!
//! It is run as the work of the completion's own call: weighed, sealed, recorded as running, and answered once, as any call. So it
//! can be cancelled, runs into the time limit, and a crash in it is told like any other. It is the user's own, so no rule judges it.

use std::borrow::Cow;

use sabir_call::{Call, CallId, Ending};
use sabir_policy::Access;
use serde_json::Value;

use crate::control;
use crate::permit::{Bound, Permit, Seal};
use crate::tool::{Arguments, ToolOutput};

use super::todos::OpenTodos;
use super::{Effect, Task};

/// What must hold before a completion is accepted, besides that no call of its message failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions {
    /// Whether todos may be left.
    pub todos: OpenTodos,
    /// A tool, and the arguments with which it must succeed. It comes from the user alone: no rule judges it.
    pub check: Option<(String, Arguments)>,
}

impl Task {
    /// The call that is weighed and run for the call of that id: itself, or, for a completion, the check.
    pub fn work(&self, id: &CallId) -> Option<Cow<'_, Call>> {
        let call = self.call(id)?;
        if call.name != control::COMPLETION {
            return Some(Cow::Borrowed(call));
        }
        let (name, arguments) = self.settings.completion.check.clone()?;
        Some(Cow::Owned(Call { id: id.clone(), name, arguments, dialect: None }))
    }

    /// The check has been weighed.
    pub(super) fn weighed_check(&mut self, call: &Call, access: &Access, bound: Bound, effects: &mut Vec<Effect>) {
        let Some((tool, arguments)) = &self.settings.completion.check else { return };
        let seal = Seal::of(tool, arguments, &bound);
        let permit = Permit { seal, bound, ..Permit::unjudged(call.id.clone()) };
        if !self.turn.as_mut().is_some_and(|turn| turn.permit(&call.id, permit)) {
            return;
        }
        match access {
            Access::Invalid { reason } => self.checked(call, &ToolOutput::failed(reason.clone()), effects),
            _ => self.run(&call.id, effects),
        }
    }

    /// The check is over.
    pub(super) fn checked(&mut self, call: &Call, output: &ToolOutput, effects: &mut Vec<Effect>) {
        if !output.failed && self.objects(call, effects) {
            return self.advance(effects);
        }
        if !output.failed {
            return self.accept(call, effects);
        }
        let content = format!(
            "Not completed: the check{} did not succeed. Put that right, then complete again.\n{}",
            self.named_check(),
            output.content
        );
        self.answer(call, Ending::Rejected, content, effects);
        self.advance(effects);
    }

    /// The check by what it runs, where that is a command.
    fn named_check(&self) -> String {
        let check = self.settings.completion.check.as_ref();
        let command = check.and_then(|(_, arguments)| arguments.get("command")).and_then(Value::as_str);
        command.map(|command| format!(" `{command}`")).unwrap_or_default()
    }
}
