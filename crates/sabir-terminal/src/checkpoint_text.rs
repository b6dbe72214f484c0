//! Renders checkpoints: the changes of a task, and the plan and result of a restore.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_session::checkpoint_history::{
    Checkpoint, CheckpointKind, CheckpointList, ListedCheckpoint, PathChange, PathKind,
    RestoreConflict, RestoreItem, RestoreOutcome, RestorePreview, TaskDiff, TreeNode, UndoReport,
    display_path,
};
use serde_json::{Value, json};

use crate::print;

/// The maximum number of paths in a preview; the rest is counted.
const MAX_SHOWN_PATHS: usize = 100;

/// Renders the checkpoints of a task, one per line.
pub fn list_text(list: &CheckpointList) -> String {
    let mut text = format!("task {}\n", list.task);
    if let Some(through) = list.pruned_through {
        text.push_str(&format!(
            "calls up to {through}: removed to keep the store under its cap\n"
        ));
    }
    text.extend(list.checkpoints.iter().map(checkpoint_line));
    text
}

/// Renders the checkpoints of a task as the JSON of `sabir checkpoints`.
pub fn list_json(list: &CheckpointList) -> Value {
    json!({
        "task": list.task,
        "removed_through": list.pruned_through,
        "checkpoints": list.checkpoints.iter().map(checkpoint_json).collect::<Vec<_>>(),
    })
}

/// Renders the changes of a task as the JSON of `sabir diff`. Paths that are not UTF-8 lose their
/// other bytes, since JSON has only text.
pub fn diff_json(diff: &TaskDiff) -> Value {
    let changes = diff.changes.iter().map(|change| {
        json!({
            "path": change.path.to_string_lossy(), "before": node_text(&change.before), "after": node_text(&change.after),
            "kind": change.kind.name(), "diff": change.diff,
        })
    });
    let names = |paths: &[PathBuf]| {
        let names = paths.iter().map(|path| path.to_string_lossy().into_owned());
        names.collect::<Vec<_>>()
    };
    json!({
        "task": diff.task, "changes": changes.collect::<Vec<_>>(),
        "shared": names(&diff.shared), "by_others": names(&diff.by_others),
    })
}

/// Describes a checkpoint in a few words.
fn describe_checkpoint(checkpoint: &Checkpoint) -> String {
    let label = display_path(Path::new(&checkpoint.mark.label));
    match checkpoint.kind {
        CheckpointKind::Call => format!("{}: {label}", checkpoint.mark.tool),
        CheckpointKind::Restore { to } => format!("restored to before call {to}"),
        CheckpointKind::PartialRestore => format!("brought back: {label}"),
    }
}

fn checkpoint_line(listed: &ListedCheckpoint) -> String {
    let checkpoint = &listed.checkpoint;
    let state = match (checkpoint.is_sealed(), listed.is_active) {
        (false, _) => "  (at work, or interrupted)",
        // A restore itself is never marked as undone: undoing it is another restore.
        (true, false) if checkpoint.kind == CheckpointKind::Call => "  (undone)",
        _ => "",
    };
    format!(
        "{:>4}  {}{state}\n",
        checkpoint.number,
        describe_checkpoint(checkpoint)
    )
}

fn checkpoint_json(listed: &ListedCheckpoint) -> Value {
    let checkpoint = &listed.checkpoint;
    let mark = &checkpoint.mark;
    let (kind, to) = match checkpoint.kind {
        CheckpointKind::Call => ("call", None),
        CheckpointKind::Restore { to } => ("back", Some(to)),
        CheckpointKind::PartialRestore => ("part", None),
    };
    json!({
        "number": checkpoint.number, "kind": kind, "to": to, "call": mark.call, "tool": mark.tool, "label": mark.label,
        "at": mark.time_ms, "stands": listed.is_active, "sealed": checkpoint.is_sealed(),
    })
}

/// Renders the paths that a restore would change and those that it would skip, with the reasons.
pub fn preview_text(preview: &RestorePreview) -> String {
    let plan = &preview.plan;
    let call = preview
        .checkpoint
        .as_ref()
        .map(describe_checkpoint)
        .unwrap_or_default();
    let mut text = String::new();
    if preview.is_of_earlier_message {
        text.push_str("Your last message changed nothing; an earlier one did.\n");
    }
    text.push_str(&format!(
        "Before call {} of task {} ({call}):\n",
        plan.to, plan.task
    ));
    // They say nothing to a reader, and there may be many.
    for kind in [PathKind::Git, PathKind::Ignored] {
        let items = preview.restored_items();
        let folded = items.filter(|item| preview.path_kind(&item.path) == kind);
        text.push_str(&folded_line(kind, folded.map(action_name)));
    }
    let own = || {
        preview
            .restored_items()
            .filter(|item| preview.path_kind(&item.path) == PathKind::Own)
    };
    for item in own().take(MAX_SHOWN_PATHS) {
        let lost = if matches!(item.now, Some(TreeNode::Omitted { .. })) {
            " (the present content is not kept)"
        } else {
            ""
        };
        // What is missing now comes back without a loss for anybody.
        let who = if item.is_unattributed && item.now.is_some() {
            " (changed while a command ran, perhaps not by it)"
        } else {
            ""
        };
        text.push_str(&format!(
            "  {:<11}  {}{lost}{who}\n",
            action_name(item),
            display_path(&item.path)
        ));
    }
    text.push_str(&count_unshown(own().skip(MAX_SHOWN_PATHS).map(action_name)));
    text.push_str(&skipped_text(preview));
    if plan.items.is_empty() {
        text.push_str("  everything is as it was\n");
    }
    let has_conflict = |wanted: &RestoreConflict| {
        let mut skipped = preview.skipped_items();
        skipped.any(|item| item.conflict.as_ref() == Some(wanted))
    };
    if has_conflict(&RestoreConflict::UnobservedCall) {
        text.push_str(
            "Nothing tells the changes of a command that is not watched from those of others. --force undoes them all, and \
             `sabir restore @N PATH…` those that you name.\n",
        );
    } else if preview.skipped_items().any(|item| item.is_restored(true)) {
        text.push_str("--force overwrites what others have changed.\n");
    }
    text
}

/// Renders the paths that a restore would skip. They come last, next to the question, however long the list is.
fn skipped_text(preview: &RestorePreview) -> String {
    let mut text = String::new();
    // As among restored paths, git's own and ignored paths are only counted if they share a reason.
    let is_folded = |item: &RestoreItem, kind: PathKind| {
        item.conflict == Some(RestoreConflict::UnobservedCall)
            && preview.path_kind(&item.path) == kind
    };
    for kind in [PathKind::Git, PathKind::Ignored] {
        let folded = preview.skipped_items().filter(|item| is_folded(item, kind));
        text.push_str(&folded_line(kind, folded.map(|_| "leave alone")));
    }
    let listed = || {
        let is_shown = |item: &&RestoreItem| {
            !is_folded(item, PathKind::Git) && !is_folded(item, PathKind::Ignored)
        };
        preview.skipped_items().filter(is_shown)
    };
    for item in listed().take(MAX_SHOWN_PATHS) {
        text.push_str(&format!(
            "  leave alone  {}: {}\n",
            display_path(&item.path),
            conflict_text(item).unwrap_or_default()
        ));
    }
    let unshown = listed().skip(MAX_SHOWN_PATHS);
    text.push_str(&count_unshown(unshown.map(|_| "leave alone")));
    text
}

/// Renders the changed files that are not the user's own as one line; empty if there are none.
fn folded_line<'a>(kind: PathKind, actions: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for action in actions {
        *counts.entry(action).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let paths = print::count_noun(counts.values().sum(), "path");
    let each: Vec<_> = counts
        .iter()
        .map(|(action, count)| format!("{action} {count}"))
        .collect();
    let each = each.join(", ");
    match kind {
        PathKind::Git => format!("  {paths} of git itself, in .git: {each}\n"),
        _ => format!("  {paths} that git ignores: {each}\n"),
    }
}

/// Renders whose changes a diff shows, and what it leaves out.
pub fn diff_heading(diff: &TaskDiff) -> String {
    let title = match diff.title.as_str() {
        "" => String::new(),
        title => format!(" ({})", print::quote_short(title)),
    };
    let calls = match diff.count {
        None => "all its calls".to_owned(),
        Some(1) => "its last changing call".to_owned(),
        Some(count) => format!("its last {count} changing calls"),
    };
    let others = if diff.has_unwatched {
        "; what others changed while its commands ran may be among them"
    } else {
        ""
    };
    let mut text = format!("changes of task {}{title} by {calls}{others}\n", diff.task);
    for kind in [PathKind::Git, PathKind::Ignored] {
        let changes = diff.changes.iter().filter(|change| change.kind == kind);
        let line = folded_line(kind, changes.map(change_name));
        if !line.is_empty() {
            text.push_str(&format!("not shown: {}", line.trim_start()));
        }
    }
    text.push_str(&paths_line(
        "changed by others too, while a command ran: ",
        &diff.shared,
    ));
    text.push_str(&paths_line(
        "not shown, because others wrote them while a command ran: ",
        &diff.by_others,
    ));
    if diff.changes.is_empty() && diff.by_others.is_empty() {
        text.push_str("nothing of it is left: its changes are undone\n");
    }
    text
}

/// Renders a line that lists paths; empty if there are none.
fn paths_line(label: &str, paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let shown: Vec<_> = paths
        .iter()
        .take(MAX_SHOWN_PATHS)
        .map(|path| display_path(path))
        .collect();
    let more = if paths.len() > MAX_SHOWN_PATHS {
        ", …"
    } else {
        ""
    };
    format!("{label}{}{more}\n", shown.join(", "))
}

/// Renders the changes of the user's files as a unified diff, which can be applied.
pub fn diff_text(diff: &TaskDiff) -> String {
    let own = diff
        .changes
        .iter()
        .filter(|change| change.kind == PathKind::Own);
    own.map(|change| change.diff.as_str()).collect()
}

/// Describes what happened to a path.
fn change_name(change: &PathChange) -> &'static str {
    match (&change.before, &change.after) {
        (None, _) => "new",
        (_, None) => "deleted",
        _ => "changed",
    }
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

/// Names the action that applies to a path. The names are public: they appear in JSON.
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

/// Describes the outcome of `undo` or `restore`, on standard error after the preview.
pub fn outcome_text(report: &UndoReport) -> String {
    let Some(RestoreOutcome {
        number,
        restored,
        skipped,
    }) = &report.outcome
    else {
        let has_items = report.preview.restored_items().next().is_some();
        return match (has_items, report.is_agreed) {
            (false, _) => "Nothing was changed.\n".to_owned(),
            (true, true) => String::new(),
            (true, false) => "Nothing was changed. Give --yes to apply it.\n".to_owned(),
        };
    };
    let mut text = format!(
        "{} restored. To undo that: sabir restore @{number}\n",
        print::count_noun(*restored, "path")
    );
    let to = report.preview.plan.to;
    if !skipped.is_empty() && !report.preview.is_forced && !report.preview.plan.part {
        // The calls count as undone now, so that another undo would begin before them.
        text.push_str(&format!(
            "{} left alone; to overwrite them as well: sabir restore @{to} --force\n",
            print::count_noun(skipped.len(), "path")
        ));
    }
    for (path, why) in skipped.iter().take(MAX_SHOWN_PATHS) {
        text.push_str(&format!("left alone: {}: {why}\n", display_path(path)));
    }
    if skipped.len() > MAX_SHOWN_PATHS {
        let more = print::count_noun(skipped.len() - MAX_SHOWN_PATHS, "path");
        text.push_str(&format!("… and {more}\n"));
    }
    text
}

/// Renders a restore as the JSON of `sabir undo` and `sabir restore`.
pub fn outcome_json(report: &UndoReport) -> Value {
    let plan = &report.preview.plan;
    let paths = plan.items.iter().map(|item| {
        let left = conflict_text(item).filter(|_| !item.is_restored(report.preview.is_forced));
        json!({
            "path": item.path.to_string_lossy(), "action": action_name(item), "left_alone": left,
            "now": node_text(&item.now), "then": node_text(&item.target), "unattributed": item.is_unattributed,
        })
    });
    let restored = report.outcome.as_ref().map(|outcome| {
        let left = outcome
            .skipped
            .iter()
            .map(|(path, why)| json!({"path": path.to_string_lossy(), "why": why}));
        json!({"number": outcome.number, "paths": outcome.restored, "left_alone": left.collect::<Vec<_>>()})
    });
    json!({
        "task": plan.task, "before_call": plan.to, "whole_folder": plan.whole, "paths": paths.collect::<Vec<_>>(),
        "restored": restored,
    })
}

fn node_text(node: &Option<TreeNode>) -> Option<String> {
    node.as_ref().map(TreeNode::to_string)
}

fn conflict_text(item: &RestoreItem) -> Option<String> {
    item.conflict.as_ref().map(ToString::to_string)
}
