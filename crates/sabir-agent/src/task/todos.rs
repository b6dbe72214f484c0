//! The todo list in the machine: the newest one that a call gave, when the model is told of it again, and what is left of it.
//!
//! A list needs no record of its own: a result of `update_todo_list` that is `done` makes the arguments of its call the list. The model
//! finds it where it wrote it, in the history, which only grows so that providers can cache it; when the list has been out of sight
//! for some turns, it follows the results of a turn once more.

use sabir_call::{Call, CallResult, Ending};
use serde_json::Value;

use crate::control::{self, Todo, Todos};
use crate::record::{Origin, Speaker, Start};

use super::{Effect, Task};

/// After so many turns a list that is not done is told again.
const OUT_OF_SIGHT: u32 = 10;
/// How many of the todos that are left are named.
const NAMED: usize = 3;

/// The list, with when the model has last seen it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Listed {
    todos: Todos,
    seen: u32,
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
    pub fn todos(&self) -> &Todos {
        &self.listed.todos
    }

    /// Takes the words that a task begins with, and the list that a parent gave it.
    pub(super) fn take_start(&mut self, start: &Start) {
        self.hear(Speaker::User, start.prompt.as_str().into());
        if let Some(Origin::Subtask { todos: Some(text), .. }) = &start.from
            && let Ok(todos) = Todos::read(text)
        {
            self.hear(Speaker::User, format!("Your todo list to begin with:\n<todos>\n{text}\n</todos>").into());
            self.listed = Listed { todos, seen: 0 };
        }
    }

    /// Answers a call that gives a list.
    pub(super) fn list(&mut self, call: &Call, effects: &mut Vec<Effect>) {
        match Todos::read(given(call)) {
            Ok(todos) => self.answer(call, Ending::Done, format!("Kept. {todos}."), effects),
            Err(error) => self.answer(call, Ending::Failed, format!("{error}."), effects),
        }
    }

    /// Takes over the list of a call that was answered so.
    pub(super) fn note_list(&mut self, call: &Call, result: &CallResult) {
        if result.name == control::TODOS
            && result.ending == Ending::Done
            && let Ok(todos) = Todos::read(given(call))
        {
            self.listed = Listed { todos, seen: self.counts.turns };
        }
    }

    /// What the model is told of its list behind the results of a turn, if it is time.
    pub(super) fn list_again(&mut self) -> Option<String> {
        let turns = self.counts.turns;
        let due = turns.saturating_sub(self.listed.seen) >= OUT_OF_SIGHT && self.todos().left().next().is_some();
        due.then(|| {
            self.listed.seen = turns;
            format!("Your todo list, as you left it:\n<todos>\n{}\n</todos>", self.todos().text())
        })
    }

    /// What speaks against completing, where todos must be done.
    pub(super) fn todos_left(&self) -> Option<String> {
        let left: Vec<&Todo> = self.todos().left().collect();
        if left.is_empty() || self.settings.completion.todos == OpenTodos::Allowed {
            return None;
        }
        let count = if left.len() == 1 { "1 todo is".to_owned() } else { format!("{} todos are", left.len()) };
        let mut names = left.iter().take(NAMED).map(|todo| format!("`{}`", todo.text)).collect::<Vec<_>>().join(", ");
        if left.len() > NAMED {
            names.push_str(&format!(" and {} more", left.len() - NAMED));
        }
        Some(format!(
            "{count} not done: {names}. Do them, or bring the list up to date with {}, then complete",
            control::TODOS
        ))
    }
}

fn given(call: &Call) -> &str {
    call.arguments.get("todos").and_then(Value::as_str).unwrap_or_default()
}
