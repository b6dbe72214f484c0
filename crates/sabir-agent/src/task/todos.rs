//! The todo list in the machine: the newest one that a call gave, when the model is told of it again, and what is left of it.
//!
//! A list needs no record of its own: a result of `update_todo_list` that is `done` makes the arguments of its call the list. The model
//! finds it where it wrote it, in the history, which only grows so that providers can cache it; when the list has been out of sight
//! for some turns, it follows the results of a turn once more.

use sabir_call::{Call, CallResult, ToolResultStatus};
use serde_json::Value;

use crate::control::{self, TodoItem, TodoList};
use crate::record::{MessageAuthor, TaskOrigin, TaskStart};

use super::{Task, TaskEffect};

/// After so many turns a list that is not done is told again.
const REMINDER_TURNS: u32 = 10;
/// How many of the todos that are left are named.
const MAX_NAMED_TODOS: usize = 3;

/// The list, with when the model has last seen it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TodoTracker {
    todos: TodoList,
    last_seen_turn: u32,
}

/// Whether a task may be completed while todos are not done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OpenTodos {
    /// It may.
    #[default]
    Allowed,
    /// It may not.
    Refused,
}

impl Task {
    /// The todos, as the model last gave them.
    pub fn todos(&self) -> &TodoList {
        &self.todo_tracker.todos
    }

    /// Takes the words that a task begins with, and the list that a parent gave it.
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
            Ok(todos) => self.answer_call(
                call,
                ToolResultStatus::Done,
                format!("Kept. {todos}."),
                effects,
            ),
            Err(error) => {
                self.answer_call(call, ToolResultStatus::Failed, format!("{error}."), effects)
            }
        }
    }

    /// Takes over the list of a call that was answered so.
    pub(super) fn apply_todo_result(&mut self, call: &Call, result: &CallResult) {
        if result.name == control::TODO_LIST_TOOL
            && result.ending == ToolResultStatus::Done
            && let Ok(todos) = TodoList::parse(todo_argument(call))
        {
            self.todo_tracker = TodoTracker {
                todos,
                last_seen_turn: self.counters.turns,
            };
        }
    }

    /// What the model is told of its list behind the results of a turn, if it is time.
    pub(super) fn todo_reminder(&mut self) -> Option<String> {
        let turns = self.counters.turns;
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

    /// What speaks against completing, where todos must be done.
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
