//! Control calls: speak to the task itself instead of acting on the world.
//!
//! Each has a file with its spec for the model and its arguments. The machine answers the calls in
//! `task/completion.rs`, `task/todos.rs` and `task/modes.rs`.

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

/// Returns the specs of the control calls that every model is offered.
pub fn control_specs() -> [ToolSpec; 3] {
    [
        todo::todo_list_spec(),
        followup::followup_spec(),
        completion::completion_spec(),
    ]
}

/// Returns the specs of the control calls that only some modes offer. A call of them is understood
/// in every mode.
pub fn mode_dependent_specs() -> [ToolSpec; 1] {
    mode_dependent_calls().map(|(spec, _)| spec)
}

/// Returns the mode-dependent control calls, each with the group by which modes offer it.
pub(crate) fn mode_dependent_calls() -> [(ToolSpec, ToolGroup); 1] {
    [(mode::switch_mode_spec(), ToolGroup::Switch)]
}

/// Returns the manuals of control calls and of `new_task`, in Markdown: what each does, its
/// arguments, and the exact texts of its results.
#[must_use]
pub fn tool_manuals() -> [(&'static str, &'static str); 4] {
    [
        (TODO_LIST_TOOL, todo::MANUAL),
        (SWITCH_MODE_TOOL, mode::MANUAL),
        (COMPLETION_TOOL, completion::MANUAL),
        (NEW_TASK_TOOL, subtask::MANUAL),
    ]
}

/// Reports whether the machine itself answers calls of that name.
pub fn is_control(name: &str) -> bool {
    matches!(
        name,
        COMPLETION_TOOL | FOLLOWUP_TOOL | TODO_LIST_TOOL | SWITCH_MODE_TOOL
    )
}

/// Returns the spec of `new_task`, which [`NewTaskTool`](crate::NewTaskTool) offers where subtasks
/// are possible.
pub fn subtask_spec() -> ToolSpec {
    subtask::new_task_spec()
}

fn json_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
