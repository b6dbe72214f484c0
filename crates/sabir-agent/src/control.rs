//! Control calls: calls that speak to the task itself rather than to the world.
//!
//! Each has a file with what a model reads of it, and what its arguments mean. What the machine does about one stands in
//! `task/completion.rs`, `task/todos.rs` and
//! `task/modes.rs`.

mod ask;
mod completion;
mod mode;
mod subtask;
mod todo;

use sabir_call::ToolSpec;
use serde_json::{Map, Value};

pub use ask::FOLLOWUP;
pub use completion::COMPLETION;
pub use mode::SWITCH;
pub(crate) use mode::wanted;
pub use subtask::{Delegation, DelegationError, SUBTASK};
pub use todo::{TODOS, Todo, TodoError, TodoState, Todos};

/// The control calls that every model is offered.
pub fn specs() -> [ToolSpec; 3] {
    [todo::spec(), ask::spec(), completion::spec()]
}

/// Those that are offered only in some modes, and understood in all.
pub fn rare_specs() -> [ToolSpec; 1] {
    [mode::spec()]
}

/// The control calls that have one, with their Markdown: what they do, what they take, and the exact words of their results.
#[must_use]
pub fn manuals() -> [(&'static str, &'static str); 4] {
    [(TODOS, todo::MANUAL), (SWITCH, mode::MANUAL), (COMPLETION, completion::MANUAL), (SUBTASK, subtask::MANUAL)]
}

/// Whether the machine answers calls of that name itself.
pub fn is_control(name: &str) -> bool {
    matches!(name, COMPLETION | FOLLOWUP | TODOS | SWITCH)
}

/// `new_task`, as a model is offered it where subtasks are possible: by [`NewTask`](crate::NewTask), which does its work.
pub fn subtask_spec() -> ToolSpec {
    subtask::spec()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
