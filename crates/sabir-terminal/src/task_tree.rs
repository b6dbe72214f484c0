//! Renders the list of tasks: one line per task, with subtasks below their parents.
//!
//! A line begins with the names by which commands know the task: `@N`, where the tasks are those of one
//! folder, and the end of its id.

use sabir_session::agent::{TaskId, TaskOrigin};
use sabir_session::call::redact;
use sabir_session::{JournalListing, TaskList, short_name};
use sabir_toolbox::task_log::sum_usage;
use serde_json::{Value, json};

use crate::print;

/// The maximum length of a prompt in the list, in characters.
const MAX_PROMPT_CHARS: usize = 80;

/// The form of a task list.
#[derive(Debug, Clone)]
pub struct TaskTree<'a> {
    /// Shows subtasks below their parents. Otherwise they are counted.
    pub shows_subtasks: bool,
    /// Numbers these tasks as `@1`, `@2`, …: those of the folder, the newest first.
    pub numbered: &'a [TaskId],
    /// Shows the folder of each task.
    pub shows_folders: bool,
    /// The present time, in milliseconds since 1970.
    pub now: u64,
}

impl TaskTree<'_> {
    /// Renders one line per task. A subtask whose parent is not listed appears at the top level.
    pub fn render(&self, list: &TaskList) -> String {
        let mut text = String::new();
        for task in list.top_tasks() {
            if self.shows_subtasks {
                self.push_branch(list, task, 0, &mut text);
            } else {
                text.push_str(&self.task_line(list, task, list.count_descendants(&task.id)));
            }
        }
        text
    }

    /// Appends a task and its subtasks, oldest first.
    fn push_branch(&self, list: &TaskList, task: &JournalListing, depth: usize, text: &mut String) {
        text.push_str(&"  ".repeat(depth));
        text.push_str(&self.task_line(list, task, 0));
        for child in list.subtasks(&task.id) {
            self.push_branch(list, child, depth + 1, text);
        }
    }

    /// Renders a task on one line, with the number of hidden subtasks.
    fn task_line(&self, list: &TaskList, listed: &JournalListing, hidden: usize) -> String {
        let number = self.numbered.iter().position(|id| *id == listed.id);
        let number = number.map_or_else(String::new, |at| format!("@{}", at + 1));
        let times = listed.summary.as_ref().ok();
        let age = times.map(|summary| age_text(self.now.saturating_sub(summary.last_at)));
        let cost = sum_usage(&list.read_records(&listed.id)).cost;
        let cost = if cost.is_unknown() {
            "?".to_owned()
        } else {
            cost.to_string()
        };
        let folder = times
            .filter(|_| self.shows_folders)
            .map(|summary| format!("  [{}]", summary.workspace))
            .unwrap_or_default();
        let name = short_name(&listed.id);
        let age = age.unwrap_or_default();
        format!(
            "{number:<4} {name}  {age:<12}  {cost:>9}  {}{folder}\n",
            state_and_title(listed, hidden)
        )
    }
}

/// Formats how long ago something was.
pub fn age_text(milliseconds: u64) -> String {
    let minutes = milliseconds / 60_000;
    match minutes {
        0 => "just now".to_owned(),
        1..60 => format!("{minutes} min ago"),
        60..1440 => format!("{} h ago", minutes / 60),
        _ => format!(
            "{} ago",
            print::count_noun((minutes / 1440) as usize, "day")
        ),
    }
}

/// Renders the state and the first line of a task, with the number of hidden subtasks.
fn state_and_title(listed: &JournalListing, hidden: usize) -> String {
    let (end, prompt) = match &listed.summary {
        Err(error) => ("unreadable".to_owned(), error.to_string()),
        Ok(summary) => {
            let is_foreign = matches!(summary.from, Some(TaskOrigin::Import { .. }));
            let open = if is_foreign { "imported" } else { "open" };
            let end = summary.ended.as_ref().and_then(|end| {
                // The name in JSON is the one that users know from `--output json`.
                let name = serde_json::to_value(end).ok()?;
                Some(name.as_str()?.to_owned())
            });
            (
                end.unwrap_or_else(|| open.to_owned()),
                summary.prompt.clone(),
            )
        }
    };
    let prompt: String = redact::redact_text(prompt.lines().next().unwrap_or_default())
        .chars()
        .take(MAX_PROMPT_CHARS)
        .collect();
    let hidden = if hidden == 0 {
        String::new()
    } else {
        format!(" (+{})", print::count_noun(hidden, "subtask"))
    };
    format!("{end:<15}  {prompt}{hidden}")
}

/// Renders a task as the JSON of `sabir tasks`. It counts the records of the task, which reads its journal.
pub fn task_json(list: &TaskList, listed: &JournalListing) -> Value {
    match &listed.summary {
        Err(error) => json!({"task": listed.id, "error": error.to_string()}),
        Ok(summary) => json!({
            "task": listed.id, "prompt": summary.prompt, "model": summary.model, "protocol": summary.protocol,
            "workspace": summary.workspace, "started_at": summary.started_at, "last_at": summary.last_at,
            "ended": summary.ended, "records": list.count_records(&listed.id), "from": summary.from,
        }),
    }
}

/// Returns the message for an empty list of a folder's tasks, which were searched for these words.
pub fn no_tasks_text(words: &[String]) -> &'static str {
    if words.is_empty() {
        "sabir: there are no tasks of this folder; `sabir tasks --everywhere` lists those of all folders\n"
    } else {
        "sabir: there are no such tasks of this folder; `sabir tasks --everywhere` searches those of all folders\n"
    }
}
