//! Lists, compares and restores the changes of tasks in a folder, by their checkpoints, while no
//! task runs.
//!
//! A restore has two steps, so that a front end can show the first and ask before the second: [`CheckpointFolder::preview_restore`] says
//! which paths would change, and [`CheckpointFolder::restore`] changes them. The state before a restore is a checkpoint too, so every
//! restore can itself be undone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{MessageAuthor, Record, TaskId};
use sabir_checkpoint::{CheckpointCall, CheckpointStore, StoreLimits, TaskDifferences};
use sabir_journal::JournalEntry;
use sabir_workspace::{IgnoreChecker, Workspace};

pub use sabir_checkpoint::{
    Checkpoint, CheckpointError, CheckpointKind, RestoreConflict, RestoreItem, RestoreOutcome,
    RestorePlan, RestorePoint, TreeNode, display_path,
};

use crate::checkpointer;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::host::Host;
use crate::setup;
use crate::task_lookup::TaskLookup;

/// The tool's name in checkpoints that a restore makes, beside those of the model's tools.
const RESTORE_TOOL: &str = "sabir";

/// A folder in which tasks worked, with its checkpoints.
#[derive(Debug)]
pub struct CheckpointFolder {
    workspace: Arc<Workspace>,
    checkpoints: CheckpointStore,
    lookup: TaskLookup,
    environment: Arc<Environment>,
}

/// The checkpoints of one task, oldest first.
#[derive(Debug, Clone)]
pub struct CheckpointList {
    /// The task.
    pub task: String,
    /// The last call whose checkpoint was removed to keep the store under its size limit, if any was.
    pub pruned_through: Option<u32>,
    /// The checkpoints.
    pub checkpoints: Vec<ListedCheckpoint>,
}

/// A checkpoint of a list.
#[derive(Debug, Clone)]
pub struct ListedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// False if the call was undone since.
    pub is_active: bool,
}

/// The changes of a task in its folder.
#[derive(Debug, Clone)]
pub struct TaskDiff {
    /// The task.
    pub task: String,
    /// The last call that the comparison does not cover, because its checkpoint was removed. `None` where only the last calls were
    /// asked for.
    pub pruned_through: Option<u32>,
    /// The first line of the task's first message; empty if its journal is gone.
    pub title: String,
    /// The number of its last changing calls that are compared; `None` for all.
    pub count: Option<usize>,
    /// True if changes of others may be among them: a command ran that could not be watched.
    pub has_unwatched: bool,
    /// The changed paths, sorted.
    pub changes: Vec<PathChange>,
    /// The paths among them that others changed too, while a command ran.
    pub shared: Vec<PathBuf>,
    /// The paths that were left out, because another program wrote them while a command ran.
    pub by_others: Vec<PathBuf>,
}

/// The class of a changed path: a file of the project, an ignored file, or one of git's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A file of the project, neither ignored nor git's.
    Own,
    /// A file that the ignore files of the folder hide, such as one that a build has made.
    Ignored,
    /// A file of git itself, in `.git`.
    Git,
}

impl PathKind {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Ignored => "ignored",
            Self::Git => "git",
        }
    }

    fn of_path(path: &Path, is_folder: bool, checker: &mut IgnoreChecker<'_>) -> Self {
        if path.components().any(|part| part.as_os_str() == ".git") {
            Self::Git
        } else if checker.is_ignored(path, is_folder) {
            Self::Ignored
        } else {
            Self::Own
        }
    }
}

/// Returns true if a path is a folder, before or after.
fn is_folder(nodes: [&Option<TreeNode>; 2]) -> bool {
    nodes
        .iter()
        .any(|node| matches!(node, Some(TreeNode::Folder { .. })))
}

/// One path of a [`TaskDiff`].
#[derive(Debug, Clone)]
pub struct PathChange {
    /// The path, relative to the folder.
    pub path: PathBuf,
    /// The state before; `None` if nothing existed.
    pub before: Option<TreeNode>,
    /// The state after; `None` if nothing exists.
    pub after: Option<TreeNode>,
    /// The kind of the path.
    pub kind: PathKind,
    /// The change as a unified diff. Its text is foreign: it must be sanitized before it reaches a terminal.
    pub diff: String,
}

/// A restore that has not happened yet.
#[derive(Debug, Clone)]
pub struct RestorePreview {
    /// The paths and what would happen to each.
    pub plan: RestorePlan,
    /// The checkpoint before which the files are restored, if it is known.
    pub checkpoint: Option<Checkpoint>,
    /// True if paths that somebody else has changed since are overwritten too.
    pub is_forced: bool,
    /// True if the user's last message changed nothing, and the changes of an earlier one would be undone.
    pub is_of_earlier_message: bool,
    /// The paths that are not the user's own files.
    kinds: HashMap<PathBuf, PathKind>,
    point: RestorePoint,
}

/// The result of `undo` and `restore`: the plan and the outcome.
#[derive(Debug, Clone)]
pub struct UndoReport {
    /// The preview that was shown.
    pub preview: RestorePreview,
    /// The result; `None` if nothing was done, because consent or a path to restore was missing.
    pub outcome: Option<RestoreOutcome>,
    /// True if the user agreed, on the command line or when asked.
    pub is_agreed: bool,
}

/// A failure of a command about checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The checkpoints cannot be read, or do not allow what was asked for.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The folder or the task cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// No task has changed anything in the folder.
    #[error(
        "there are no checkpoints of {}: no task has changed anything in it; if the folder was moved, its \
         checkpoints belong to its old path: move it back, and give that path with -C", .0.display()
    )]
    NoCheckpoints(PathBuf),
    /// The task worked in another folder.
    #[error(
        "the task {task} worked in {workspace}: give that folder with -C {workspace}; if it was moved, move it back first"
    )]
    WorkedElsewhere {
        /// The task.
        task: TaskId,
        /// Its folder.
        workspace: String,
    },
    /// The task worked here and has no checkpoint.
    #[error("the task {0} has changed nothing here, or took no checkpoints")]
    NothingChanged(TaskId),
    /// The folder itself was given as a path to restore.
    #[error("the folder itself is not a path to restore: leave the paths out")]
    FolderItself,
    /// A call is not written as `TASK@N` or `@N`.
    #[error(
        "`{0}` names no call: write TASK@N, or @N for the newest task; `sabir checkpoints` lists the calls"
    )]
    UnknownCall(String),
    /// No call was to be undone.
    #[error("0 calls cannot be undone: give 1 or more")]
    ZeroCalls,
    /// A fork would have to leave a path behind in a later state.
    #[error(
        "{path} cannot be restored ({reason}), so nothing was changed; `sabir restore {task}@{call}` shows all of it, and a fork \
         without --restore leaves files as they are"
    )]
    ForkConflict {
        /// The path, as it is shown.
        path: String,
        /// The reason for leaving it alone.
        reason: String,
        /// The task that is forked.
        task: TaskId,
        /// The first call after the fork.
        call: u32,
    },
}

impl HistoryError {
    /// Reports whether the machine or the program is at fault, not the request.
    pub fn is_internal(&self) -> bool {
        match self {
            Self::Session(error) => error.is_internal(),
            Self::Checkpoint(error) => !matches!(
                error,
                CheckpointError::NoTask { .. }
                    | CheckpointError::NoCall { .. }
                    | CheckpointError::Pruned { .. }
                    | CheckpointError::NothingToUndo { .. }
                    | CheckpointError::UnknownPath { .. }
                    | CheckpointError::Workspace(_)
                    | CheckpointError::Stale
            ),
            _ => false,
        }
    }
}

impl CheckpointFolder {
    /// Opens the checkpoints of that folder, or of the current one; in a subfolder without tasks, those of the folder above it.
    ///
    /// # Errors
    /// When the folder cannot be opened, or there is no data folder.
    pub fn open(host: &Host, folder: Option<&Path>) -> Result<Self, HistoryError> {
        let lookup = TaskLookup::open(host.environment(), folder)?;
        let workspace = Workspace::open(lookup.folder())
            .map_err(|error| SessionError::invalid(error.to_string()))?;
        let workspace = Arc::new(workspace);
        // The size limits matter little here, because the checkpoints taken by an undo are small.
        let limits = StoreLimits::default();
        let checkpoints = checkpointer::open_store(&workspace, limits, host.environment())?;
        Ok(Self {
            workspace,
            checkpoints,
            lookup,
            environment: Arc::clone(host.environment()),
        })
    }

    /// Finds the task whose id begins with `name`, or the newest one of the folder.
    ///
    /// # Errors
    /// When there is none, or `name` begins several; the message says where a known task worked.
    pub fn find_task(&self, name: Option<&str>) -> Result<String, HistoryError> {
        let list = self.checkpoints.list_checkpoints(None)?;
        let Some(name) = name else {
            let newest = list.last().map(|newest| newest.mark.task.clone());
            return newest
                .ok_or_else(|| HistoryError::NoCheckpoints(self.workspace.root().to_path_buf()));
        };
        let mut found: Vec<_> = list
            .into_iter()
            .map(|one| one.mark.task)
            .filter(|task| task.starts_with(name))
            .collect();
        found.sort();
        found.dedup();
        match found.as_slice() {
            [task] => Ok(task.clone()),
            // A whole id is never ambiguous, even where it begins another.
            [..] if found.iter().any(|task| task == name) => Ok(name.to_owned()),
            [first, ..] => Err(HistoryError::Session(SessionError::AmbiguousTask {
                name: name.to_owned(),
                count: found.len(),
                example: TaskId::new(first.clone()),
            })),
            [] => self.find_by_other_name(name),
        }
    }

    /// Finds a task by a name that is not a beginning of an id.
    fn find_by_other_name(&self, name: &str) -> Result<String, HistoryError> {
        let id = self.lookup.find(Some(name))?;
        let list = self.checkpoints.list_checkpoints(Some(id.as_str()))?;
        if list.is_empty() {
            return Err(self.explain_unknown_task(id.as_str()));
        }
        Ok(id.to_string())
    }

    /// Explains why a task has no checkpoint here: it worked elsewhere, it changed nothing, its checkpoints were removed, or it does
    /// not exist.
    fn explain_unknown_task(&self, name: &str) -> HistoryError {
        let tasks = self
            .environment
            .tasks_folder()
            .and_then(|folder| Ok((setup::find_task(&folder, name)?, folder)));
        let (id, folder) = match tasks {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        // The task exists; find the reason why it has no checkpoints.
        if let Ok(Some(through)) = self.checkpoints.pruned_through(id.as_str()) {
            return HistoryError::Checkpoint(CheckpointError::Pruned {
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
                HistoryError::WorkedElsewhere {
                    task: id,
                    workspace: summary.workspace,
                }
            }
            _ => HistoryError::NothingChanged(id),
        }
    }

    /// Lists the checkpoints of a task: the last `count`, or all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn list(&self, task: &str, count: Option<usize>) -> Result<CheckpointList, HistoryError> {
        let mut list = self.checkpoints.list_checkpoints(Some(task))?;
        list.drain(..list.len().saturating_sub(count.unwrap_or(usize::MAX)));
        let active = self.checkpoints.active_calls(task)?;
        Ok(CheckpointList {
            task: task.to_owned(),
            pruned_through: self.checkpoints.pruned_through(task)?,
            checkpoints: list
                .into_iter()
                .map(|checkpoint| ListedCheckpoint {
                    is_active: active.contains(&checkpoint.number),
                    checkpoint,
                })
                .collect(),
        })
    }

    /// Compares the folder after a task with the folder before its last `count` calls, or before all of them.
    ///
    /// # Errors
    /// When the store cannot be read, or has no checkpoint of these calls any more.
    pub fn diff(&self, task: &str, count: Option<usize>) -> Result<TaskDiff, HistoryError> {
        let point = count.map_or(RestorePoint::Start, RestorePoint::Last);
        let differences = match self.checkpoints.list_differences(task, &point) {
            // All its calls are undone, and the comparison of all of them shows that.
            Err(CheckpointError::NothingToUndo { .. }) if count.is_none() => {
                TaskDifferences::default()
            }
            differences => differences?,
        };
        let pruned = self.checkpoints.pruned_through(task)?;
        let mut checker = self.workspace.ignore_checker();
        let changes = differences
            .paths
            .into_iter()
            .map(|difference| {
                let is_folder = is_folder([&difference.before, &difference.after]);
                Ok(PathChange {
                    kind: PathKind::of_path(&difference.path, is_folder, &mut checker),
                    diff: self
                        .checkpoints
                        .render_diff(std::slice::from_ref(&difference))?,
                    path: difference.path,
                    before: difference.before,
                    after: difference.after,
                })
            })
            .collect::<Result<_, CheckpointError>>()?;
        Ok(TaskDiff {
            task: task.to_owned(),
            // The last calls are the ones that are removed last, so they need no warning.
            pruned_through: pruned.filter(|_| count.is_none()),
            title: self.title_of(task),
            has_unwatched: self.has_unwatched_calls(task, count)?,
            count,
            changes,
            shared: differences.shared,
            by_others: differences.by_others,
        })
    }

    /// Returns true if it is not known which changes are those of the task's last `count` active calls, or of all of them.
    fn has_unwatched_calls(&self, task: &str, count: Option<usize>) -> Result<bool, HistoryError> {
        let list = self.list(task, None)?;
        let active = list.checkpoints.iter().rev().filter(|one| one.is_active);
        let mut last = active.take(count.unwrap_or(usize::MAX));
        Ok(last.any(|one| !one.checkpoint.is_attributed()))
    }

    /// Returns the first line of a task's first message; empty if its journal cannot be read.
    fn title_of(&self, task: &str) -> String {
        let journals = self
            .environment
            .tasks_folder()
            .ok()
            .and_then(|folder| sabir_journal::list_journals(&folder).ok());
        let mut known = journals.into_iter().flatten();
        let summary = known
            .find(|listed| listed.id.as_str() == task)
            .and_then(|listed| listed.summary.ok());
        summary
            .and_then(|summary| Some(summary.prompt.lines().next()?.trim().to_owned()))
            .unwrap_or_default()
    }

    /// Plans to undo the last `count` changing calls of a task; without a count all those since the user's last message that
    /// changed something.
    ///
    /// # Errors
    /// When `count` is 0, or there are not so many calls.
    pub fn preview_undo(
        &self,
        task: &str,
        count: Option<usize>,
        is_forced: bool,
    ) -> Result<RestorePreview, HistoryError> {
        let (calls, is_of_earlier_message) = match count {
            Some(calls) => (calls, false),
            None => {
                let turn = last_changing_turn(&self.checkpoints, &self.environment, task)?;
                (turn.calls, turn.is_earlier)
            }
        };
        if calls == 0 {
            return Err(HistoryError::ZeroCalls);
        }
        Ok(RestorePreview {
            is_of_earlier_message,
            ..self.preview_point(task, RestorePoint::Last(calls), is_forced)?
        })
    }

    /// Plans to restore these paths as they were before the call `TASK@N`, or all paths that changed since.
    ///
    /// # Errors
    /// When there is no such task or call, or a path is not one in the folder.
    pub fn preview_restore(
        &self,
        call: &str,
        paths: &[String],
        is_forced: bool,
    ) -> Result<RestorePreview, HistoryError> {
        let unknown = || HistoryError::UnknownCall(call.to_owned());
        let (name, number) = call.rsplit_once('@').ok_or_else(unknown)?;
        let number: u32 = number.parse().map_err(|_| unknown())?;
        let task = self.find_task(Some(name).filter(|name| !name.is_empty()))?;
        let paths = paths
            .iter()
            .map(|text| match self.workspace.parse_path(text) {
                Ok(path) if path.is_root() => Err(HistoryError::FolderItself),
                Ok(path) => Ok(path.as_path().to_path_buf()),
                Err(error) => Err(SessionError::invalid(error.to_string()).into()),
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.preview_point(&task, RestorePoint::Before(number, paths), is_forced)
    }

    fn preview_point(
        &self,
        task: &str,
        point: RestorePoint,
        is_forced: bool,
    ) -> Result<RestorePreview, HistoryError> {
        let plan = self.checkpoints.plan_restore(task, &point)?;
        let checkpoint = self
            .checkpoints
            .list_checkpoints(Some(&plan.task))?
            .into_iter()
            .find(|checkpoint| checkpoint.number == plan.to);
        let mut checker = self.workspace.ignore_checker();
        let kinds = plan
            .items
            .iter()
            .map(|item| {
                let is_folder = is_folder([&item.now, &item.target]);
                let kind = PathKind::of_path(&item.path, is_folder, &mut checker);
                (item.path.clone(), kind)
            })
            .filter(|(_, kind)| *kind != PathKind::Own)
            .collect();
        Ok(RestorePreview {
            kinds,
            plan,
            checkpoint,
            is_forced,
            is_of_earlier_message: false,
            point,
        })
    }

    /// Carries out a restore, after taking a checkpoint of the present state.
    ///
    /// # Errors
    /// When the folder has changed since the preview, or cannot be written; then nothing was changed.
    pub fn restore(&self, preview: &RestorePreview) -> Result<RestoreOutcome, HistoryError> {
        let label = match &preview.point {
            RestorePoint::Before(_, paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
                paths.join(" ")
            }
            _ => String::new(),
        };
        self.restore_labelled(preview, label)
    }

    fn restore_labelled(
        &self,
        preview: &RestorePreview,
        label: String,
    ) -> Result<RestoreOutcome, HistoryError> {
        let mark = CheckpointCall {
            task: preview.plan.task.clone(),
            tool: RESTORE_TOOL.to_owned(),
            label,
            time_ms: self.environment.now_milliseconds(),
            ..CheckpointCall::default()
        };
        let RestorePreview {
            plan,
            point,
            is_forced,
            ..
        } = preview;
        Ok(self.checkpoints.restore(plan, point, mark, *is_forced)?)
    }

    /// Undoes the changes of those calls of a task that have no result among `entries`, for a fork that begins with these records.
    /// Restores everything or nothing; returns `None` if no such call changed anything.
    ///
    /// # Errors
    /// When a path would have to be left alone, or the folder cannot be written.
    pub fn restore_for_fork(
        &self,
        task: &TaskId,
        entries: &[JournalEntry],
    ) -> Result<Option<RestoreOutcome>, HistoryError> {
        let Some(preview) = self.preview_for_fork(task, entries)? else {
            return Ok(None);
        };
        // All or nothing: a fork must not begin in a state that no task has ever left.
        if let Some(item) = preview.skipped_items().next() {
            let reason = item.conflict.as_ref().map(ToString::to_string);
            return Err(HistoryError::ForkConflict {
                path: display_path(&item.path),
                reason: reason.unwrap_or_default(),
                task: task.clone(),
                call: preview.plan.to,
            });
        }
        self.restore_labelled(&preview, format!("fork {task}"))
            .map(Some)
    }

    /// Plans to undo the changes of those calls of a task that have no result among `entries`; `None` if no such call changed anything.
    ///
    /// # Errors
    /// When the checkpoints cannot be read.
    pub fn preview_for_fork(
        &self,
        task: &TaskId,
        entries: &[JournalEntry],
    ) -> Result<Option<RestorePreview>, HistoryError> {
        let is_taken = |checkpoint: &Checkpoint| {
            entries.iter().any(|entry| {
                matches!(&entry.record, Record::Result(result) if result.id.as_str() == checkpoint.mark.call)
            })
        };
        let list = self.list(task.as_str(), None)?;
        // The first call that the fork does not have. Restoring the state before it undoes all
        // later ones, too.
        let first = list.checkpoints.iter().find(|listed| {
            listed.is_active
                && listed.checkpoint.kind == CheckpointKind::Call
                && !is_taken(&listed.checkpoint)
        });
        let Some(first) = first else {
            return Ok(None);
        };
        let call = first.checkpoint.number;
        let point = RestorePoint::Before(call, Vec::new());
        self.preview_point(task.as_str(), point, false).map(Some)
    }
}

impl RestorePreview {
    /// Returns the kind of a path of the plan.
    pub fn path_kind(&self, path: &Path) -> PathKind {
        self.kinds.get(path).copied().unwrap_or(PathKind::Own)
    }

    /// Returns the paths that a restore would change.
    pub fn restored_items(&self) -> impl Iterator<Item = &RestoreItem> {
        let is_forced = self.is_forced;
        self.plan
            .items
            .iter()
            .filter(move |item| item.is_restored(is_forced))
    }

    /// Returns the paths that a restore would leave alone; each has a conflict.
    pub fn skipped_items(&self) -> impl Iterator<Item = &RestoreItem> {
        let is_forced = self.is_forced;
        self.plan
            .items
            .iter()
            .filter(move |item| !item.is_restored(is_forced))
    }
}

impl UndoReport {
    /// Returns false if a path that should have been restored was skipped. Without consent only the
    /// preview was requested, so showing it is all there was to do.
    pub fn is_complete(&self) -> bool {
        match &self.outcome {
            Some(outcome) => outcome.skipped.is_empty(),
            // Nothing was restored. That is complete if the user declined, or if the preview skips
            // no path.
            None => !self.is_agreed || self.preview.skipped_items().next().is_none(),
        }
    }
}

/// The changing calls at the end of a task that belong to one message of the user.
pub(crate) struct ChangingTurn {
    /// Their number.
    pub(crate) calls: usize,
    /// True if there is a later message, whose calls changed nothing.
    pub(crate) is_earlier: bool,
}

/// Finds the last message of the user whose calls changed something; a single call if the journal does not tell.
pub(crate) fn last_changing_turn(
    checkpoints: &CheckpointStore,
    environment: &Environment,
    task: &str,
) -> Result<ChangingTurn, HistoryError> {
    let folder = environment.tasks_folder()?;
    let entries = sabir_journal::read_journal(&folder, &TaskId::new(task))
        .map(|(entries, _)| entries)
        .unwrap_or_default();
    // The number of the message that each call answers.
    let mut turn = 0_usize;
    let mut turns: HashMap<&str, usize> = HashMap::new();
    for entry in &entries {
        match &entry.record {
            Record::Said {
                by: MessageAuthor::User,
                ..
            } => turn += 1,
            Record::Running { call, .. } => _ = turns.insert(call.as_str(), turn),
            _ => {}
        }
    }
    let active = checkpoints.active_calls(task)?;
    let list = checkpoints.list_checkpoints(Some(task))?;
    let mut calls = list
        .iter()
        .rev()
        .filter(|one| active.contains(&one.number))
        .map(|one| turns.get(one.mark.call.as_str()))
        .peekable();
    let Some(Some(last)) = calls.peek().copied() else {
        return Ok(ChangingTurn {
            calls: 1,
            is_earlier: false,
        });
    };
    Ok(ChangingTurn {
        calls: calls.take_while(|turn| *turn == Some(last)).count(),
        is_earlier: *last < turn,
    })
}
