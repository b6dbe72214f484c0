//! Implements `undo` and `restore`: previews the changes, asks for confirmation, and restores
//! files.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use sabir_checkpoint::{
    CheckpointCall, RestoreItem, RestoreOutcome, RestorePlan, RestorePoint, TreeNode, display_path,
};
use serde_json::{Value, json};

use crate::cli::{ConsentFlags, ReportFormat, RestoreArguments, UndoArguments};
use crate::commands::checkpoint_history::{
    CheckpointFolder, checkpoint_error, describe_checkpoint,
};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;

/// The maximum number of paths in a preview; the rest is counted.
const MAX_SHOWN_PATHS: usize = 100;

/// Runs `sabir undo`.
pub(crate) fn run_undo(arguments: &UndoArguments) -> Result<ExitStatus, CommandError> {
    let place = CheckpointFolder::open(arguments.history.folder.as_deref())?;
    let (name, count) = arguments.history.task_and_count();
    let task = place.find_task(name.as_deref())?;
    let count = count.unwrap_or(1);
    if count == 0 {
        return Err(CommandError::usage(
            "0 calls are none to undo: give 1 or more",
        ));
    }
    restore_to(
        &place,
        &task,
        &RestorePoint::Last(count),
        (arguments.consent, arguments.history.output),
    )
}

/// Runs `sabir restore`.
pub(crate) fn run_restore(arguments: &RestoreArguments) -> Result<ExitStatus, CommandError> {
    let place = CheckpointFolder::open(arguments.folder.as_deref())?;
    let wrong = || {
        CommandError::usage(format!(
            "`{}` names no call: write TASK@N, or @N for the newest task; `sabir checkpoints` lists the calls",
            arguments.call
        ))
    };
    let (name, number) = arguments.call.rsplit_once('@').ok_or_else(wrong)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let task = place.find_task(Some(name).filter(|name| !name.is_empty()))?;
    let path = |text: &String| match place.workspace.parse_path(text) {
        Ok(path) if path.is_root() => Err(CommandError::usage(
            "the folder itself is no path to restore: leave the paths out",
        )),
        Ok(path) => Ok(path.as_path().to_path_buf()),
        Err(error) => Err(CommandError::usage(error.to_string())),
    };
    let paths = arguments
        .paths
        .iter()
        .map(path)
        .collect::<Result<Vec<_>, _>>()?;
    restore_to(
        &place,
        &task,
        &RestorePoint::Before(number, paths),
        (arguments.consent, arguments.output),
    )
}

/// Previews a restore, asks for consent, and carries it out.
fn restore_to(
    place: &CheckpointFolder,
    task: &str,
    goal: &RestorePoint,
    (consent, output): (ConsentFlags, ReportFormat),
) -> Result<ExitStatus, CommandError> {
    let plan = place
        .checkpoints
        .plan_restore(task, goal)
        .map_err(checkpoint_error)?;
    let going = plan
        .items
        .iter()
        .filter(|item| item.is_restored(consent.force))
        .count();
    if output == ReportFormat::Text {
        print::write_stdout(&print::sanitize_text(&preview_text(place, &plan, consent)?));
    }
    let agreed = consent.yes || (output == ReportFormat::Text && going > 0 && confirm_restore()?);
    let restored = if agreed && going > 0 {
        let mark = CheckpointCall {
            task: task.to_owned(),
            tool: "sabir".to_owned(),
            label: goal_label(goal),
            time_ms: surroundings::environment().now_milliseconds(),
            ..CheckpointCall::default()
        };
        Some(
            place
                .checkpoints
                .restore(&plan, goal, mark, consent.force)
                .map_err(checkpoint_error)?,
        )
    } else {
        None
    };
    match output {
        ReportFormat::Json => print::print_json(&to_json(&plan, restored.as_ref(), consent)),
        ReportFormat::Text => print::write_stderr(&print::sanitize_text(&result_text(
            restored.as_ref(),
            going,
            agreed,
        ))),
    }
    // Without consent only the preview was requested, so showing it is a success.
    let whole = restored
        .as_ref()
        .map_or(plan.items.len() == going || !agreed, |restored| {
            restored.skipped.is_empty()
        });
    Ok(if whole {
        ExitStatus::Completed
    } else {
        ExitStatus::Unfinished
    })
}

/// Asks for confirmation on the terminal; without a terminal the answer is no.
fn confirm_restore() -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    print::write_stderr("Do it? [y]es, [n]o: ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| {
        CommandError::internal(format!("standard input cannot be read: {error}"))
    })?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Renders the paths that would change and those that would be skipped, with the reasons.
fn preview_text(
    place: &CheckpointFolder,
    plan: &RestorePlan,
    consent: ConsentFlags,
) -> Result<String, CommandError> {
    let list = place
        .checkpoints
        .list_checkpoints(Some(&plan.task))
        .map_err(checkpoint_error)?;
    let call = list
        .iter()
        .find(|checkpoint| checkpoint.number == plan.to)
        .map(describe_checkpoint)
        .unwrap_or_default();
    let mut text = format!("Before call {} of task {} ({call}):\n", plan.to, plan.task);
    // Skipped paths come last, next to the question, however long the list is.
    let (going, alone): (Vec<&RestoreItem>, Vec<&RestoreItem>) = plan
        .items
        .iter()
        .partition(|item| item.is_restored(consent.force));
    for item in going.iter().take(MAX_SHOWN_PATHS) {
        let lost = if matches!(item.now, Some(TreeNode::Omitted { .. })) {
            " (what is there now is not kept)"
        } else {
            ""
        };
        text.push_str(&format!(
            "  {:<11}  {}{lost}\n",
            action_name(item),
            display_path(&item.path)
        ));
    }
    text.push_str(&count_unshown(
        going
            .iter()
            .skip(MAX_SHOWN_PATHS)
            .map(|item| action_name(item)),
    ));
    for item in alone.iter().take(MAX_SHOWN_PATHS) {
        let why = item
            .conflict
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        text.push_str(&format!(
            "  leave alone  {}: {why}\n",
            display_path(&item.path)
        ));
    }
    text.push_str(&count_unshown(
        alone.iter().skip(MAX_SHOWN_PATHS).map(|_| "leave alone"),
    ));
    if plan.items.is_empty() {
        text.push_str("  everything is as it was\n");
    }
    let forced = plan
        .items
        .iter()
        .any(|item| !item.is_restored(consent.force) && item.is_restored(true));
    if forced {
        text.push_str("--force goes over what somebody else has changed.\n");
    }
    Ok(text)
}

/// Counts the paths that are not shown by the action that applies to them.
fn count_unshown(actions: impl Iterator<Item = &'static str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for action in actions {
        *counts.entry(action).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let each: Vec<_> = counts
        .iter()
        .map(|(action, count)| format!("{action} {count}"))
        .collect();
    format!(
        "  … and {}: {}\n",
        print::count_noun(counts.values().sum(), "path"),
        each.join(", ")
    )
}

/// Names the action that applies to a path.
fn action_name(item: &RestoreItem) -> &'static str {
    match (&item.now, &item.target) {
        (None, _) => "bring back",
        (_, None) => "delete",
        (Some(TreeNode::File { content: now, .. }), Some(TreeNode::File { content: then, .. }))
            if now == then =>
        {
            "change mode"
        }
        (Some(TreeNode::Folder { .. }), Some(TreeNode::Folder { .. })) => "change mode",
        _ => "change back",
    }
}

/// Describes the outcome of a restore.
fn result_text(restored: Option<&RestoreOutcome>, going: usize, agreed: bool) -> String {
    let Some(RestoreOutcome {
        number,
        restored: done,
        skipped: left,
    }) = restored
    else {
        return match (going, agreed) {
            (0, _) => "Nothing was changed.\n".to_owned(),
            (_, true) => String::new(),
            _ => "Nothing was changed. --yes does it.\n".to_owned(),
        };
    };
    let mut text = format!(
        "{} restored. To go back on that: sabir restore @{number}\n",
        print::count_noun(*done, "path")
    );
    for (path, why) in left.iter().take(MAX_SHOWN_PATHS) {
        text.push_str(&format!("left alone: {}: {why}\n", display_path(path)));
    }
    if let Some(more) = left
        .len()
        .checked_sub(MAX_SHOWN_PATHS)
        .filter(|more| *more > 0)
    {
        text.push_str(&format!("… and {}\n", print::count_noun(more, "path")));
    }
    text
}

fn to_json(plan: &RestorePlan, restored: Option<&RestoreOutcome>, consent: ConsentFlags) -> Value {
    let item = |item: &RestoreItem| {
        let left = item
            .conflict
            .as_ref()
            .filter(|_| !item.is_restored(consent.force))
            .map(ToString::to_string);
        json!({
            "path": item.path.to_string_lossy(), "action": action_name(item), "left_alone": left,
            "now": item.now.as_ref().map(TreeNode::to_string), "then": item.target.as_ref().map(TreeNode::to_string),
        })
    };
    let restored = restored.map(|restored| {
        let left = restored.skipped.iter().map(|(path, why)| json!({"path": path.to_string_lossy(), "why": why}));
        json!({"number": restored.number, "paths": restored.restored, "left_alone": left.collect::<Vec<_>>()})
    });
    let paths = plan.items.iter().map(item).collect::<Vec<_>>();
    json!({"task": plan.task, "before_call": plan.to, "paths": paths, "restored": restored})
}

fn goal_label(goal: &RestorePoint) -> String {
    match goal {
        RestorePoint::Before(_, paths) => paths
            .iter()
            .map(|path| path.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" "),
        _ => String::new(),
    }
}
