//! `update_todo_list`: the model's own checklist, kept as it was written.
//!
//! # Supported
//! `[ ]` open, `[x]` or `[X]` done, `[-]` or `[~]` in progress, each followed by a text; before the
//! box a bullet (`-`, `*`, `+`) or a number (`1.`, `1)`), or nothing. Items nest by indentation.
//! Blank lines and line endings of any kind.
//!
//! # Unsupported
//! Headings, texts without a box, items of more than one line: they are rejected with their line,
//! so that the items checked at completion are all that the list says.
//!
//! # Grammar as implemented
//! ```text
//! list = (blank | item)*
//! item = (space | tab)* [bullet space+] "[" (" " | "x" | "X" | "-" | "~") "]" space+ text
//! ```
//! A tab counts as four columns. An item is one level deeper than the nearest item above it that is
//! indented less.

use std::fmt;

use sabir_call::ToolSpec;
use serde_json::json;

use super::json_object;

/// The name of the call that replaces the todo list.
pub const TODO_LIST_TOOL: &str = "update_todo_list";

/// The manual of `update_todo_list`.
pub(super) const MANUAL: &str = include_str!("specs/update_todo_list.md");

/// The most bytes of a list. It is limited because it is repeated to the model in full.
const MAX_LIST_BYTES: usize = 8 << 10;
/// The columns of a tab.
const TAB: usize = 4;
/// The most characters that are shown of an invalid line.
const SHOWN_CHARS: usize = 80;

/// The progress of a todo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TodoState {
    /// The todo has not been begun.
    Open,
    /// Begun.
    Active,
    /// Done.
    Done,
}

/// One item of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoItem {
    /// Its progress.
    pub state: TodoState,
    /// Its text.
    pub text: String,
    /// Its nesting depth; 0 for the outermost.
    pub depth: usize,
}

/// A todo list, with the text in which the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoList {
    text: String,
    items: Vec<TodoItem>,
}

/// The reason why a text is not a todo list. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TodoError {
    /// A line is not an item.
    #[error(
        "Line {line} of the todos is not an item: `{text}`. Write each todo on a line of its own behind a box: `[ ] not begun`, \
         `[-] in progress`, `[x] done`. The list is unchanged"
    )]
    Line {
        /// The line number, counted from 1.
        line: usize,
        /// The line, cut if it is long.
        text: String,
    },
    /// A box has no text.
    #[error(
        "Line {line} of the todos has a box and no text after it. Say what to do. The list is unchanged"
    )]
    Empty {
        /// The line number, counted from 1.
        line: usize,
    },
    /// The list is too long.
    #[error(
        "The todos are {bytes} bytes long; at most {MAX_LIST_BYTES} are kept. Shorten them. The list is unchanged"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl TodoList {
    /// Parses a list.
    ///
    /// # Errors
    /// The first line that is not an item.
    pub fn parse(text: &str) -> Result<Self, TodoError> {
        if text.len() > MAX_LIST_BYTES {
            return Err(TodoError::TooLong { bytes: text.len() });
        }
        let mut items = Vec::new();
        // The indentation of the items that the next one may be nested in.
        let mut above: Vec<usize> = Vec::new();
        for (line, content) in (1..).zip(text.split('\n')) {
            if content.trim().is_empty() {
                continue;
            }
            let (column, item) = parse_item(content, line)?;
            while above.last().is_some_and(|indent| *indent >= column) {
                above.pop();
            }
            items.push(TodoItem {
                depth: above.len(),
                ..item
            });
            above.push(column);
        }
        Ok(Self {
            text: text.to_owned(),
            items,
        })
    }

    /// Returns the text, byte for byte as the model wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the items in their order.
    pub fn items(&self) -> &[TodoItem] {
        &self.items
    }

    /// Reports whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the items that are not done.
    pub fn open_items(&self) -> impl Iterator<Item = &TodoItem> {
        self.items
            .iter()
            .filter(|todo| todo.state != TodoState::Done)
    }
}

/// Writes the number of items in each state.
impl fmt::Display for TodoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |state| self.items.iter().filter(|todo| todo.state == state).count();
        let all = self.items.len();
        write!(f, "{all} todo{}", if all == 1 { "" } else { "s" })?;
        let done = count(TodoState::Done);
        let active = count(TodoState::Active);
        let open = count(TodoState::Open);
        if all > 0 {
            write!(f, ": {done} done, {active} in progress, {open} open")
        } else {
            Ok(())
        }
    }
}

/// Parses a line into its item and the column at which it begins.
fn parse_item(line: &str, number: usize) -> Result<(usize, TodoItem), TodoError> {
    let bare = line.trim_start_matches([' ', '\t']);
    let indent = line.get(..line.len() - bare.len()).unwrap_or_default();
    let column = indent.chars().fold(0, |column, c| {
        if c == '\t' {
            (column / TAB + 1) * TAB
        } else {
            column + 1
        }
    });
    let no_item = || TodoError::Line {
        line: number,
        text: line.trim().chars().take(SHOWN_CHARS).collect(),
    };
    let mut rest = strip_bullet(bare)
        .strip_prefix('[')
        .ok_or_else(no_item)?
        .chars();
    let state = match rest.next() {
        Some(' ') => TodoState::Open,
        Some('x' | 'X') => TodoState::Done,
        Some('-' | '~') => TodoState::Active,
        _ => return Err(no_item()),
    };
    let words = rest.as_str().strip_prefix(']').ok_or_else(no_item)?;
    match words.trim() {
        "" => Err(TodoError::Empty { line: number }),
        text if words.starts_with([' ', '\t']) => Ok((
            column,
            TodoItem {
                state,
                text: text.to_owned(),
                depth: 0,
            },
        )),
        _ => Err(no_item()),
    }
}

/// Returns the line without its bullet or number, if it has one.
fn strip_bullet(line: &str) -> &str {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let marks: &[char] = if digits.len() < line.len() {
        &['.', ')']
    } else {
        &['-', '*', '+']
    };
    match digits.strip_prefix(marks) {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start_matches([' ', '\t']),
        _ => line,
    }
}

pub(super) fn todo_list_spec() -> ToolSpec {
    let mut spec = ToolSpec::new(
        TODO_LIST_TOOL,
        "Keep a checklist of a task's parts: the whole list each time one begins or is done.",
        json!({"type": "object", "required": ["todos"], "additionalProperties": false, "properties": {
            "todos": {"type": "string", "description": "A line each: `[ ] open`, `[-] in progress`, `[x] done`; indent parts of a part."},
        }}),
    );
    spec.examples.push(json_object(
        json!({"todos": "[x] Find the cause\n[-] Mend it\n[ ] Run the tests"}),
    ));
    spec
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The items as `depth state text`, or the error.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match TodoList::parse(text) {
            Err(error) => error.to_string(),
            Ok(todos) => {
                assert_eq!(todos.text(), text);
                let one =
                    |todo: &TodoItem| format!("{} {:?} {}", todo.depth, todo.state, todo.text);
                todos.items().iter().map(one).collect::<Vec<_>>().join("\n")
            }
        };
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn boxes_and_bullets() {
        check("", "");
        check(" \n\r\n", "");
        check(
            "[ ] a\n[x] b\n[X] c\n[-] d\n[~] e",
            "0 Open a\n0 Done b\n0 Done c\n0 Active d\n0 Active e",
        );
        check(
            "- [ ] a\r\n* [x] b\r\n+ [-] c\r\n",
            "0 Open a\n0 Done b\n0 Active c",
        );
        check("1. [ ] a\n22) [x]  b ", "0 Open a\n0 Done b");
        check("[ ] [x] in words", "0 Open [x] in words");
        check("[ ] größer", "0 Open größer");
    }

    #[test]
    fn items_nest_by_indentation() {
        check(
            "- [x] a\n  - [ ] b\n    - [-] c\n  - [ ] d\n- [ ] e",
            "0 Done a\n1 Open b\n2 Active c\n1 Open d\n0 Open e",
        );
        check("[ ] a\n\t[ ] b\n    [ ] c", "0 Open a\n1 Open b\n1 Open c");
        check(
            "    [ ] a\n  [ ] b\n   [ ] c",
            "0 Open a\n0 Open b\n1 Open c",
        );
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number() {
        let advice = "Write each todo on a line of its own behind a box: `[ ] not begun`, `[-] in progress`, `[x] done`. The list \
                      is unchanged";
        for (text, line, shown) in [
            ("# Plan\n[ ] a", 1, "# Plan"),
            ("[ ] a\n\n  and more", 3, "and more"),
            ("[] a", 1, "[] a"),
            ("[y] a", 1, "[y] a"),
            ("[x]a", 1, "[x]a"),
            ("[ x] a", 1, "[ x] a"),
            ("-[ ] a", 1, "-[ ] a"),
            ("- a", 1, "- a"),
        ] {
            check(
                text,
                &format!("Line {line} of the todos is not an item: `{shown}`. {advice}"),
            );
        }
        check(
            "[ ] a\n[x]  ",
            "Line 2 of the todos has a box and no text after it. Say what to do. The list is unchanged",
        );
        let long = format!("[ ] {}", "a".repeat(MAX_LIST_BYTES));
        check(
            &long,
            "The todos are 8196 bytes long; at most 8192 are kept. Shorten them. The list is unchanged",
        );
    }

    #[test]
    fn a_list_counts_its_items() {
        let count = |text: &str| TodoList::parse(text).unwrap().to_string();
        assert_eq!(
            count("[x] a\n[ ] b\n[-] c\n[ ] d"),
            "4 todos: 1 done, 1 in progress, 2 open"
        );
        assert_eq!(count("[ ] a"), "1 todo: 0 done, 0 in progress, 1 open");
        assert_eq!(count(""), "0 todos");
    }

    proptest! {
        #[test]
        fn any_text_is_kept_and_counted_or_refused(text in "[-*+~xX \\[\\]\n\ta1.)é]{0,60}") {
            if let Ok(todos) = TodoList::parse(&text) {
                prop_assert_eq!(todos.text(), text.as_str());
                let lines = text.split('\n').filter(|line| !line.trim().is_empty()).count();
                prop_assert_eq!(todos.items().len(), lines);
            }
        }
    }
}
