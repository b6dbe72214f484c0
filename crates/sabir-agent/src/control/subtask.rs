//! `new_task`: hands a part of the work to a subtask, a task of its own that knows no more than the message says.
//!
//! The machine gives the subtask its name and counts what it takes; a tool does the work ([`NewTaskTool`](crate::NewTaskTool)). It is
//! offered only where subtasks are possible, so that nobody else pays for its words.

use sabir_call::ToolSpec;
use serde_json::{Value, json};

use super::json_object;
use super::todo::{TodoError, TodoList};
use crate::tool::CallArguments;

/// Begins a subtask.
pub const NEW_TASK_TOOL: &str = "new_task";

/// Its Markdown; it has no runs of its own, since what a subtask says comes from a model.
pub(super) const MANUAL: &str = include_str!("new_task.md");

/// What a subtask is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtaskRequest {
    /// All that it knows.
    pub message: String,
    /// The mode it works in, by its name; `None`: that of its parent.
    pub mode: Option<String>,
    /// Its first list.
    pub todos: Option<TodoList>,
}

/// Why arguments make no subtask, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubtaskRequestError {
    /// Nothing is said.
    #[error("The message is empty. Say what is to be done: the subtask knows nothing else")]
    NoMessage,
    /// The todos cannot be read.
    #[error("{0}")]
    Todos(#[from] TodoError),
}

impl SubtaskRequest {
    /// Reads what a call gives.
    ///
    /// # Errors
    /// In words for the model.
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

/// As the model is offered it.
pub(crate) fn new_task_spec() -> ToolSpec {
    let mut spec = ToolSpec::new(
        NEW_TASK_TOOL,
        "Hand a separable part of the work to a subtask, which works on its own in the same folder and answers with its result. \
         Several in one message work at the same time: give them different files.",
        json!({"type": "object", "required": ["message"], "additionalProperties": false, "properties": {
            "message": {"type": "string", "description": "What is to be done and all that must be known for it: the subtask sees nothing else of this task. Say what its result should tell."},
            "mode": {"type": "string", "description": "The mode it works in. Default: yours."},
            "todos": {"type": "string", "description": "Its first checklist: a line each, `[ ] open`."},
        }}),
    );
    spec.examples.push(json_object(json!({"message": "Find every place that reads the port from PORT. Change nothing. Answer with file:line and the code of each."})));
    spec
}
