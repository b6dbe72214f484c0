//! Control calls: calls that speak to the task itself rather than to the world.
//!
//! Each has a file with what a model reads of it, and what its arguments mean. What the machine does about one stands in
//! `task/completion.rs` and `task/todos.rs`.

mod ask;
mod completion;
mod subtask;
mod todo;

use sabir_call::ToolSpec;
use serde_json::{Map, Value};

pub use ask::FOLLOWUP;
pub use completion::COMPLETION;
pub use subtask::{Delegation, DelegationError, SUBTASK};
pub use todo::{TODOS, Todo, TodoError, TodoState, Todos};

/// The control calls, as the model is offered them.
pub fn specs() -> [ToolSpec; 3] {
    [todo::spec(), ask::spec(), completion::spec()]
}

/// The control calls that have one, with their Markdown: what they do, what they take, and the exact words of their results.
#[must_use]
pub fn manuals() -> [(&'static str, &'static str); 3] {
    [(TODOS, todo::MANUAL), (COMPLETION, completion::MANUAL), (SUBTASK, subtask::MANUAL)]
}

/// Whether the machine answers calls of that name itself.
pub fn is_control(name: &str) -> bool {
    matches!(name, COMPLETION | FOLLOWUP | TODOS)
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
