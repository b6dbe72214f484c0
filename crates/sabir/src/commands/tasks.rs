//! Implements `tasks`: lists the tasks that have a journal, with subtasks below their parents.

use sabir_agent::{TaskId, TaskOrigin};
use sabir_call::redact;
use sabir_journal::JournalListing;
use serde_json::json;

use crate::cli::{OutputFormat, TasksArguments};
use crate::commands::journal::json_word;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;

/// Runs `sabir tasks`.
pub(crate) fn run_tasks(arguments: &TasksArguments) -> Result<ExitStatus, CommandError> {
    let folder = surroundings::tasks_folder()?;
    let mut all = sabir_journal::list_journals(&folder)
        .map_err(|error| CommandError::internal(error.to_string()))?;
    let wanted: Vec<_> = arguments
        .words
        .iter()
        .flat_map(|words| words.split_whitespace())
        .map(str::to_lowercase)
        .collect();
    if !wanted.is_empty() {
        all.retain(|listed| {
            let prompt = listed
                .summary
                .as_ref()
                .map(|summary| summary.prompt.to_lowercase());
            prompt.is_ok_and(|prompt| wanted.iter().all(|word| prompt.contains(word)))
        });
    }
    let describe = |listed: &JournalListing| {
        to_json(
            listed,
            sabir_journal::count_records(&folder, &listed.id).ok(),
        )
    };
    match arguments.output {
        OutputFormat::Json => {
            print::print_redacted_json(&all.iter().map(describe).collect::<Vec<_>>())
        }
        OutputFormat::Events => all
            .iter()
            .for_each(|listed| print::print_redacted_json(&describe(listed))),
        OutputFormat::Text => {
            print::write_stdout(&print::sanitize_text(&render_tree(&all, arguments.all)))
        }
    }
    Ok(ExitStatus::Completed)
}

/// Renders one line per task, with its subtasks below it or counted. A subtask whose parent is not
/// listed appears at the top level.
fn render_tree(listed: &[JournalListing], all: bool) -> String {
    let is_here = |id: &TaskId| listed.iter().any(|other| other.id == *id);
    let tops = listed
        .iter()
        .filter(|one| parent_id(one).is_none_or(|parent| !is_here(parent)));
    let mut text = String::new();
    for top in tops {
        render_branch(listed, top, (0, all), &mut text);
    }
    text
}

/// Renders a task and its subtasks, oldest first.
fn render_branch(
    listed: &[JournalListing],
    task: &JournalListing,
    (depth, all): (usize, bool),
    text: &mut String,
) {
    let below = || {
        listed
            .iter()
            .rev()
            .filter(|one| parent_id(one) == Some(&task.id))
    };
    let hidden = if all {
        0
    } else {
        count_descendants(listed, &task.id)
    };
    text.push_str(&"  ".repeat(depth));
    text.push_str(&task_line(task, hidden));
    if all {
        below().for_each(|child| render_branch(listed, child, (depth + 1, all), text));
    }
}

/// Counts the subtasks of a task on all levels.
fn count_descendants(listed: &[JournalListing], id: &TaskId) -> usize {
    let children = listed.iter().filter(|one| parent_id(one) == Some(id));
    children
        .map(|child| 1 + count_descendants(listed, &child.id))
        .sum()
}

/// Returns the parent of a subtask.
fn parent_id(listed: &JournalListing) -> Option<&TaskId> {
    match &listed.summary.as_ref().ok()?.from {
        Some(TaskOrigin::Subtask { task, .. }) if *task != listed.id => Some(task),
        _ => None,
    }
}

/// Renders a task on one line, with the number of hidden subtasks.
fn task_line(listed: &JournalListing, hidden: usize) -> String {
    let (end, prompt) = match &listed.summary {
        Err(error) => ("unreadable".to_owned(), error.to_string()),
        Ok(summary) => {
            let foreign = matches!(summary.from, Some(TaskOrigin::Import { .. }));
            let open = if foreign { "imported" } else { "open" };
            (
                summary.ended.as_ref().map_or(open.to_owned(), json_word),
                summary.prompt.clone(),
            )
        }
    };
    let prompt: String = redact::redact_text(prompt.lines().next().unwrap_or_default())
        .chars()
        .take(80)
        .collect();
    let hidden = if hidden == 0 {
        String::new()
    } else {
        format!(" (+{})", print::count_noun(hidden, "subtask"))
    };
    format!("{}  {end:<15}  {prompt}{hidden}\n", listed.id)
}

fn to_json(listed: &JournalListing, records: Option<u64>) -> serde_json::Value {
    match &listed.summary {
        Err(error) => json!({"task": listed.id, "error": error.to_string()}),
        Ok(summary) => json!({
            "task": listed.id, "prompt": summary.prompt, "model": summary.model, "protocol": summary.protocol,
            "workspace": summary.workspace, "started_at": summary.started_at, "last_at": summary.last_at,
            "ended": summary.ended, "records": records, "from": summary.from,
        }),
    }
}
