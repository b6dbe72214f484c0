//! Implements `checkpoints` and `diff`: lists what a task changed in a folder, by its checkpoints.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use sabir_checkpoint::{
    Checkpoint, CheckpointError, CheckpointKind, CheckpointStore, RestorePoint, StoreLimits,
    display_path,
};
use sabir_workspace::Workspace;
use serde_json::{Value, json};

use crate::cli::{HistoryArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::checkpointer;

/// A folder and its checkpoints.
pub(crate) struct CheckpointFolder {
    /// The folder.
    pub(crate) workspace: Arc<Workspace>,
    /// The store of its checkpoints.
    pub(crate) checkpoints: CheckpointStore,
}

/// Runs `sabir checkpoints`.
pub(crate) fn run_checkpoints(arguments: &HistoryArguments) -> Result<ExitStatus, CommandError> {
    let place = CheckpointFolder::open(arguments.folder.as_deref())?;
    let (name, count) = arguments.task_and_count();
    let task = place.find_task(name.as_deref())?;
    let mut list = place
        .checkpoints
        .list_checkpoints(Some(&task))
        .map_err(checkpoint_error)?;
    list.drain(..list.len().saturating_sub(count.unwrap_or(usize::MAX)));
    let standing = place
        .checkpoints
        .active_calls(&task)
        .map_err(checkpoint_error)?;
    let pruned = place
        .checkpoints
        .pruned_through(&task)
        .map_err(checkpoint_error)?;
    let stands = |checkpoint: &Checkpoint| standing.contains(&checkpoint.number);
    match arguments.output {
        ReportFormat::Json => print::print_json(&json!({
            "task": task,
            "removed_through": pruned,
            "checkpoints": list.iter().map(|one| to_json(one, stands(one))).collect::<Vec<_>>(),
        })),
        ReportFormat::Text => {
            print::write_stdout(&print::sanitize_text(&format!("task {task}\n")));
            if let Some(through) = pruned {
                print::write_stdout(&format!(
                    "calls up to {through}: removed to keep the store under its cap\n"
                ));
            }
            list.iter().for_each(|one| {
                print::write_stdout(&print::sanitize_text(&checkpoint_line(one, stands(one))))
            });
        }
    }
    Ok(ExitStatus::Completed)
}

/// Runs `sabir diff`.
pub(crate) fn run_diff(arguments: &HistoryArguments) -> Result<ExitStatus, CommandError> {
    let place = CheckpointFolder::open(arguments.folder.as_deref())?;
    let (name, count) = arguments.task_and_count();
    let task = place.find_task(name.as_deref())?;
    let goal = count.map_or(RestorePoint::Start, RestorePoint::Last);
    let differences = place
        .checkpoints
        .list_differences(&task, &goal)
        .map_err(checkpoint_error)?;
    let pruned = place
        .checkpoints
        .pruned_through(&task)
        .map_err(checkpoint_error)?;
    if let (RestorePoint::Start, Some(through)) = (&goal, pruned) {
        print::write_stderr(&format!(
            "sabir: the checkpoints up to call {through} were removed; this is what changed since\n"
        ));
    }
    match arguments.output {
        ReportFormat::Json => {
            let one =
                |difference: &sabir_checkpoint::PathDifference| -> Result<Value, CommandError> {
                    let diff = place
                        .checkpoints
                        .render_diff(std::slice::from_ref(difference))
                        .map_err(checkpoint_error)?;
                    let words =
                        |node: &Option<_>| node.as_ref().map(sabir_checkpoint::TreeNode::to_string);
                    let before = words(&difference.before);
                    let after = words(&difference.after);
                    Ok(
                        json!({"path": difference.path.to_string_lossy(), "before": before, "after": after, "diff": diff}),
                    )
                };
            let changes = differences.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            print::print_json(&json!({"task": task, "changes": changes}));
        }
        ReportFormat::Text => {
            let text = place
                .checkpoints
                .render_diff(&differences)
                .map_err(checkpoint_error)?;
            // Unchanged when redirected, so that the patch can be applied.
            print::write_stdout(&if std::io::stdout().is_terminal() {
                print::sanitize_text(&text)
            } else {
                text
            });
        }
    }
    Ok(ExitStatus::Completed)
}

impl CheckpointFolder {
    /// Opens the checkpoints of that folder, or of the current one.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, CommandError> {
        let folder = folder.unwrap_or(Path::new("."));
        let workspace = Arc::new(
            Workspace::open(folder).map_err(|error| CommandError::usage(error.to_string()))?,
        );
        // The size limits matter little here, because the checkpoints taken by an undo are small.
        let checkpoints = checkpointer::open_store(
            &workspace,
            StoreLimits::default(),
            surroundings::environment(),
        )?;
        Ok(Self {
            workspace,
            checkpoints,
        })
    }

    /// Finds the task whose id begins with `name`, or the newest one of the folder.
    pub(crate) fn find_task(&self, name: Option<&str>) -> Result<String, CommandError> {
        let list = self
            .checkpoints
            .list_checkpoints(None)
            .map_err(checkpoint_error)?;
        let here = self.workspace.root().display();
        let Some(name) = name else {
            return list.last().map(|newest| newest.mark.task.clone()).ok_or_else(|| {
                CommandError::usage(format!(
                    "there are no checkpoints of {here}: no task has changed anything in it; if the folder was moved, its \
                     checkpoints belong to where it was (give that with -C, once it is there again)"
                ))
            });
        };
        let mut found: Vec<_> = list
            .into_iter()
            .map(|one| one.mark.task)
            .filter(|task| task.starts_with(name))
            .collect();
        found.dedup();
        found.sort();
        found.dedup();
        match found.as_slice() {
            [task] => Ok(task.clone()),
            [first, _, ..] if !found.iter().any(|task| task == name) => {
                Err(CommandError::usage(format!(
                    "`{name}` begins {} tasks, among them {first}; give more of the name",
                    found.len()
                )))
            }
            [_, ..] => Ok(name.to_owned()),
            [] => Err(self.unknown_task(name)),
        }
    }

    /// Explains why a task has no checkpoint here: it worked elsewhere, it changed nothing, its
    /// checkpoints were removed, or it does not exist.
    fn unknown_task(&self, name: &str) -> CommandError {
        let tasks = surroundings::tasks_folder()
            .and_then(|folder| Ok((sabir_session::find_task(&folder, name)?, folder)));
        let (id, folder) = match tasks {
            Ok(found) => found,
            Err(failure) => return failure,
        };
        if let Ok(Some(through)) = self.checkpoints.pruned_through(id.as_str()) {
            return checkpoint_error(CheckpointError::Pruned {
                task: id.to_string(),
                through,
            });
        }
        let all = sabir_journal::list_journals(&folder)
            .unwrap_or_default()
            .into_iter();
        let start = all
            .filter(|listed| listed.id == id)
            .find_map(|listed| listed.summary.ok());
        match start {
            Some(summary) if Path::new(&summary.workspace) != self.workspace.root() => {
                CommandError::usage(format!(
                    "the task {id} worked in {there}: give that folder with -C {there}; if it was moved, move it back first",
                    there = summary.workspace
                ))
            }
            _ => CommandError::usage(format!(
                "the task {id} has changed nothing here, or took no checkpoints"
            )),
        }
    }
}

impl HistoryArguments {
    /// Returns the task's name and the number of calls. A single argument of up to three digits is
    /// the number of calls.
    pub(crate) fn task_and_count(&self) -> (Option<String>, Option<usize>) {
        let number = |text: &String| Some(text.parse().ok()?).filter(|_| text.len() <= 3);
        match (&self.task, self.count) {
            (Some(task), None) => match number(task) {
                Some(count) => (None, Some(count)),
                None => (Some(task.clone()), None),
            },
            (task, count) => (task.clone(), count),
        }
    }
}

/// Converts a checkpoint error into a command error with its exit code.
pub(crate) fn checkpoint_error(error: CheckpointError) -> CommandError {
    let exit = match &error {
        CheckpointError::NoTask { .. }
        | CheckpointError::NoCall { .. }
        | CheckpointError::Pruned { .. }
        | CheckpointError::NothingToUndo { .. }
        | CheckpointError::UnknownPath { .. }
        | CheckpointError::Workspace(_) => ExitStatus::Usage,
        CheckpointError::Stale => ExitStatus::Unfinished,
        _ => ExitStatus::Internal,
    };
    CommandError {
        message: error.to_string(),
        exit,
    }
}

/// Describes a checkpoint in a few words.
pub(crate) fn describe_checkpoint(checkpoint: &Checkpoint) -> String {
    let Checkpoint {
        mark, kind: what, ..
    } = checkpoint;
    match what {
        CheckpointKind::Call => format!("{}: {}", mark.tool, display_path(Path::new(&mark.label))),
        CheckpointKind::Restore { to } => format!("went back before call {to}"),
        CheckpointKind::PartialRestore => {
            format!("brought back: {}", display_path(Path::new(&mark.label)))
        }
    }
}

/// Renders a checkpoint on one line; `stands` is false if it was undone.
fn checkpoint_line(checkpoint: &Checkpoint, stands: bool) -> String {
    let state = match (checkpoint.is_sealed(), stands) {
        (false, _) => "  (at work, or interrupted)",
        (true, false) if checkpoint.kind == CheckpointKind::Call => "  (gone back on)",
        _ => "",
    };
    format!(
        "{:>4}  {}{state}\n",
        checkpoint.number,
        describe_checkpoint(checkpoint)
    )
}

fn to_json(checkpoint: &Checkpoint, stands: bool) -> Value {
    let Checkpoint {
        mark, kind: what, ..
    } = checkpoint;
    let (kind, to) = match what {
        CheckpointKind::Call => ("call", None),
        CheckpointKind::Restore { to } => ("back", Some(*to)),
        CheckpointKind::PartialRestore => ("part", None),
    };
    json!({
        "number": checkpoint.number, "kind": kind, "to": to, "call": mark.call, "tool": mark.tool, "label": mark.label,
        "at": mark.time_ms, "stands": stands, "sealed": checkpoint.is_sealed(),
    })
}
