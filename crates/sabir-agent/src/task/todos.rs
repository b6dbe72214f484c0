//! The todo list in the task state machine: keeps the newest list, repeats it to the model, and reports what
//! is left of it.
//!
//! A list needs no record of its own: a `done` result of `update_todo_list` makes the arguments of
//! its call the list. The model finds it where it wrote it, in the history, which only grows so
//! that providers can cache it. When the list has been out of sight for some turns, it is repeated
//! after the results of a turn.

use sabir_call::{Call, CallResult, ToolResultStatus};
use serde_json::Value;

use crate::control::{self, TodoItem, TodoList};
use crate::record::{MessageAuthor, TaskOrigin, TaskStart};

use super::{Task, TaskEffect};

/// The turns after which a list that is not done is repeated.
const REMINDER_TURNS: u32 = 10;
/// The most open todos that an objection names.
const MAX_NAMED_TODOS: usize = 3;

/// The todo list, with the turn in which the model last saw it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TodoTracker {
    todos: TodoList,
    last_seen_turn: u32,
}

/// The treatment of a completion while todos are not done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OpenTodos {
    /// It is accepted.
    #[default]
    Allowed,
    /// It is refused.
    Refused,
}

impl Task {
    /// Returns the todos in the model's last list.
    pub fn todos(&self) -> &TodoList {
        &self.todo_tracker.todos
    }

    /// Applies the start of a task: its first message, and the todo list that a parent gave it.
    pub(super) fn apply_start(&mut self, start: &TaskStart) {
        self.deliver_message(MessageAuthor::User, start.prompt.as_str().into());
        if let Some(TaskOrigin::Subtask {
            todos: Some(text), ..
        }) = &start.from
            && let Ok(todos) = TodoList::parse(text)
        {
            self.deliver_message(
                MessageAuthor::User,
                format!("Your todo list to begin with:\n<todos>\n{text}\n</todos>").into(),
            );
            self.todo_tracker = TodoTracker {
                todos,
                last_seen_turn: 0,
            };
        }
    }

    /// Answers a call that gives a list.
    pub(super) fn handle_todo_call(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        match TodoList::parse(todo_argument(call)) {
            Ok(todos) => self.record_call_result(
                call,
                ToolResultStatus::Done,
                format!("Kept. {todos}."),
                effects,
            ),
            Err(error) => self.record_call_result(
                call,
                ToolResultStatus::Failed,
                format!("{error}."),
                effects,
            ),
        }
    }

    /// Keeps the list of a call that succeeded.
    pub(super) fn apply_todo_result(&mut self, call: &Call, result: &CallResult) {
        if result.name == control::TODO_LIST_TOOL
            && result.ending == ToolResultStatus::Done
            // Parsed again from the call, since a replay has only the call and its result.
            && let Ok(todos) = TodoList::parse(todo_argument(call))
        {
            self.todo_tracker = TodoTracker {
                todos,
                last_seen_turn: self.budget.lifetime_turns(),
            };
        }
    }

    /// Returns the reminder of the list that follows the results of a turn, if it is due.
    pub(super) fn todo_reminder(&mut self) -> Option<String> {
        let turns = self.budget.lifetime_turns();
        let due = turns.saturating_sub(self.todo_tracker.last_seen_turn) >= REMINDER_TURNS
            && self.todos().open_items().next().is_some();
        due.then(|| {
            self.todo_tracker.last_seen_turn = turns;
            format!(
                "Your todo list, as you left it:\n<todos>\n{}\n</todos>",
                self.todos().text()
            )
        })
    }

    /// Returns the objection to a completion while todos are open, if they must be done.
    pub(super) fn open_todo_objection(&self) -> Option<String> {
        let left: Vec<&TodoItem> = self.todos().open_items().collect();
        if left.is_empty() || self.settings.completion.open_todos == OpenTodos::Allowed {
            return None;
        }
        let count = if left.len() == 1 {
            "1 todo is".to_owned()
        } else {
            format!("{} todos are", left.len())
        };
        let mut names = left
            .iter()
            .take(MAX_NAMED_TODOS)
            .map(|todo| format!("`{}`", todo.text))
            .collect::<Vec<_>>()
            .join(", ");
        if left.len() > MAX_NAMED_TODOS {
            names.push_str(&format!(" and {} more", left.len() - MAX_NAMED_TODOS));
        }
        Some(format!(
            "{count} not done: {names}. Do them, or bring the list up to date with {}, then complete",
            control::TODO_LIST_TOOL
        ))
    }
}

fn todo_argument(call: &Call) -> &str {
    call.arguments
        .get("todos")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
