//! `new_task`: hands a part of the work to a subtask, a task of its own that knows only the
//! message.
//!
//! The machine names the subtask and counts what it uses; a tool does the work
//! ([`NewTaskTool`](crate::NewTaskTool)). It is offered only where subtasks are possible, so that
//! no other task pays for its description.

use sabir_call::ToolSpec;
use serde_json::{Value, json};

use super::json_object;
use super::todo::{TodoError, TodoList};
use crate::tool::CallArguments;

/// The name of the call that begins a subtask.
pub const NEW_TASK_TOOL: &str = "new_task";

/// The manual of `new_task`. It has no example runs, since the answers of a subtask come from a model.
pub(super) const MANUAL: &str = include_str!("new_task.md");

/// The work that a call hands to a subtask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtaskRequest {
    /// The message to the subtask, which sees nothing else of its parent.
    pub message: String,
    /// The name of its mode; `None` means the mode of its parent.
    pub mode: Option<String>,
    /// Its first todo list.
    pub todos: Option<TodoList>,
}

/// The reason why arguments describe no subtask. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubtaskRequestError {
    /// The message is empty.
    #[error("The message is empty. Say what to do: the subtask knows nothing else")]
    NoMessage,
    /// The todo list is invalid.
    #[error("{0}")]
    Todos(#[from] TodoError),
}

impl SubtaskRequest {
    /// Parses the arguments of a call.
    ///
    /// # Errors
    /// If the message is missing or the todo list is invalid.
    pub fn parse(arguments: &CallArguments) -> Result<Self, SubtaskRequestError> {
        let text = |name: &str| {
            arguments
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.trim().is_empty())
        };
        let message = text("message")
            .ok_or(SubtaskRequestError::NoMessage)?
            .to_owned();
        let mode = text("mode").map(|mode| mode.trim().to_owned());
        let todos = text("todos").map(TodoList::parse).transpose()?;
        Ok(Self {
            message,
            mode,
            todos,
        })
    }
}

/// Returns the spec of `new_task`.
pub(crate) fn new_task_spec() -> ToolSpec {
    let mut spec = ToolSpec::new(
        NEW_TASK_TOOL,
        "Hand a separable part of the work to a subtask, which works on its own in the same folder and answers with its result. \
         Several in one message work at the same time: give them different files.",
        json!({"type": "object", "required": ["message"], "additionalProperties": false, "properties": {
            "message": {"type": "string", "description": "What to do, and everything needed for it: the subtask sees nothing else of this task. Say what its result should tell."},
            "mode": {"type": "string", "description": "The mode it works in. Default: yours."},
            "todos": {"type": "string", "description": "Its first checklist: a line each, `[ ] open`."},
        }}),
    );
    spec.examples.push(json_object(json!({"message": "Find every place that reads the port from PORT. Change nothing. Answer with file:line and the code of each."})));
    spec
}
