//! Control calls: calls that speak to the task itself rather than to the world.
//!
//! Each has a file with what a model reads of it and what its arguments mean. The machine answers them in `task/completion.rs`,
//! `task/todos.rs` and `task/modes.rs`.

mod completion;
mod followup;
mod mode;
mod subtask;
mod todo;

use sabir_call::ToolSpec;
use sabir_policy::ToolGroup;
use serde_json::{Map, Value};

pub use completion::COMPLETION_TOOL;
pub use followup::FOLLOWUP_TOOL;
pub use mode::SWITCH_MODE_TOOL;
pub(crate) use mode::requested_mode;
pub use subtask::{NEW_TASK_TOOL, SubtaskRequest, SubtaskRequestError};
pub use todo::{TODO_LIST_TOOL, TodoError, TodoItem, TodoList, TodoState};

/// The control calls that every model is offered.
pub fn control_specs() -> [ToolSpec; 3] {
    [
        todo::todo_list_spec(),
        followup::followup_spec(),
        completion::completion_spec(),
    ]
}

/// The control calls that are offered only in some modes, and understood in all.
pub fn mode_dependent_specs() -> [ToolSpec; 1] {
    mode_dependent_calls().map(|(spec, _)| spec)
}

/// The same calls, each with the group by which modes offer it.
pub(crate) fn mode_dependent_calls() -> [(ToolSpec, ToolGroup); 1] {
    [(mode::switch_mode_spec(), ToolGroup::Switch)]
}

/// The control calls that have one, with their Markdown: what they do, what they take, and the exact words of their results.
#[must_use]
pub fn tool_manuals() -> [(&'static str, &'static str); 4] {
    [
        (TODO_LIST_TOOL, todo::MANUAL),
        (SWITCH_MODE_TOOL, mode::MANUAL),
        (COMPLETION_TOOL, completion::MANUAL),
        (NEW_TASK_TOOL, subtask::MANUAL),
    ]
}

/// Whether the machine answers calls of that name itself.
pub fn is_control(name: &str) -> bool {
    matches!(
        name,
        COMPLETION_TOOL | FOLLOWUP_TOOL | TODO_LIST_TOOL | SWITCH_MODE_TOOL
    )
}

/// `new_task`, as a model is offered it where subtasks are possible: by [`NewTaskTool`](crate::NewTaskTool), which does its work.
pub fn subtask_spec() -> ToolSpec {
    subtask::new_task_spec()
}

fn json_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
