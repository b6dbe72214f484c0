//! `checkpoints` and `diff`: what a task changed in a folder, by its checkpoints.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use sabir_checkpoint::{Caps, Checkpoint, CheckpointError, Checkpoints, Goal, What, name};
use sabir_workspace::Workspace;
use serde_json::{Value, json};

use crate::cli::{HistoryArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use sabir_session::checkpointer;

/// The checkpoints of a folder.
pub(crate) struct Place {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) checkpoints: Checkpoints,
}

/// `sabir checkpoints`.
pub(crate) fn checkpoints(arguments: &HistoryArguments) -> Result<Exit, Failure> {
    let place = Place::open(arguments.folder.as_deref())?;
    let (name, count) = arguments.names();
    let task = place.task(name.as_deref())?;
    let mut list = place.checkpoints.list(Some(&task)).map_err(failure)?;
    list.drain(..list.len().saturating_sub(count.unwrap_or(usize::MAX)));
    let standing = place.checkpoints.standing(&task).map_err(failure)?;
    let pruned = place.checkpoints.pruned(&task).map_err(failure)?;
    let stands = |checkpoint: &Checkpoint| standing.contains(&checkpoint.number);
    match arguments.output {
        Whole::Json => print::json(&json!({
            "task": task,
            "removed_through": pruned,
            "checkpoints": list.iter().map(|one| describe(one, stands(one))).collect::<Vec<_>>(),
        })),
        Whole::Text => {
            print::out(&print::visible(&format!("task {task}\n")));
            if let Some(through) = pruned {
                print::out(&format!("calls up to {through}: removed to keep the store under its cap\n"));
            }
            list.iter().for_each(|one| print::out(&print::visible(&line(one, stands(one)))));
        }
    }
    Ok(Exit::Completed)
}

/// `sabir diff`.
pub(crate) fn diff(arguments: &HistoryArguments) -> Result<Exit, Failure> {
    let place = Place::open(arguments.folder.as_deref())?;
    let (name, count) = arguments.names();
    let task = place.task(name.as_deref())?;
    let goal = count.map_or(Goal::Start, Goal::Last);
    let differences = place.checkpoints.differences(&task, &goal).map_err(failure)?;
    let pruned = place.checkpoints.pruned(&task).map_err(failure)?;
    if let (Goal::Start, Some(through)) = (&goal, pruned) {
        print::err(&format!("sabir: the checkpoints up to call {through} were removed; this is what changed since\n"));
    }
    match arguments.output {
        Whole::Json => {
            let one = |difference: &sabir_checkpoint::Difference| -> Result<Value, Failure> {
                let diff = place.checkpoints.diff(std::slice::from_ref(difference)).map_err(failure)?;
                let words = |node: &Option<_>| node.as_ref().map(sabir_checkpoint::Node::to_string);
                let (before, after) = (words(&difference.before), words(&difference.after));
                Ok(json!({"path": difference.path.to_string_lossy(), "before": before, "after": after, "diff": diff}))
            };
            let changes = differences.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            print::json(&json!({"task": task, "changes": changes}));
        }
        Whole::Text => {
            let text = place.checkpoints.diff(&differences).map_err(failure)?;
            // A patch that goes into a file goes there as it is.
            print::out(&if std::io::stdout().is_terminal() { print::visible(&text) } else { text });
        }
    }
    Ok(Exit::Completed)
}

impl Place {
    /// The checkpoints of that folder, or of the present one.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, Failure> {
        let folder = folder.unwrap_or(Path::new("."));
        let workspace = Arc::new(Workspace::open(folder).map_err(|error| Failure::usage(error.to_string()))?);
        // The cap of the store does not matter to whoever only goes back: what is taken for it is small.
        let checkpoints = checkpointer::store(&workspace, Caps::default(), surroundings::environment())?;
        Ok(Self { workspace, checkpoints })
    }

    /// The task whose name begins so, or the newest one of the folder.
    pub(crate) fn task(&self, name: Option<&str>) -> Result<String, Failure> {
        let list = self.checkpoints.list(None).map_err(failure)?;
        let here = self.workspace.root().display();
        let Some(name) = name else {
            return list.last().map(|newest| newest.mark.task.clone()).ok_or_else(|| {
                Failure::usage(format!(
                    "there are no checkpoints of {here}: no task has changed anything in it; if the folder was moved, its \
                     checkpoints belong to where it was (give that with -C, once it is there again)"
                ))
            });
        };
        let mut found: Vec<_> =
            list.into_iter().map(|one| one.mark.task).filter(|task| task.starts_with(name)).collect();
        found.dedup();
        found.sort();
        found.dedup();
        match found.as_slice() {
            [task] => Ok(task.clone()),
            [first, _, ..] if !found.iter().any(|task| task == name) => Err(Failure::usage(format!(
                "`{name}` begins {} tasks, among them {first}; give more of the name",
                found.len()
            ))),
            [_, ..] => Ok(name.to_owned()),
            [] => Err(self.unknown(name)),
        }
    }

    /// Why a task has no checkpoint here: it worked elsewhere, it changed nothing, its checkpoints were removed, or it is none.
    fn unknown(&self, name: &str) -> Failure {
        let tasks =
            surroundings::tasks_folder().and_then(|folder| Ok((sabir_session::find_task(&folder, name)?, folder)));
        let (id, folder) = match tasks {
            Ok(found) => found,
            Err(failure) => return failure,
        };
        if let Ok(Some(through)) = self.checkpoints.pruned(id.as_str()) {
            return failure(CheckpointError::Pruned { task: id.to_string(), through });
        }
        let all = sabir_journal::list(&folder).unwrap_or_default().into_iter();
        let start = all.filter(|listed| listed.id == id).find_map(|listed| listed.summary.ok());
        match start {
            Some(summary) if Path::new(&summary.workspace) != self.workspace.root() => Failure::usage(format!(
                "the task {id} worked in {there}: give that folder with -C {there}; if it was moved, move it back first",
                there = summary.workspace
            )),
            _ => Failure::usage(format!("the task {id} has changed nothing here, or took no checkpoints")),
        }
    }
}

impl HistoryArguments {
    /// The task's name and the number of calls. A short number alone is that of calls.
    pub(crate) fn names(&self) -> (Option<String>, Option<usize>) {
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

/// A checkpoint error as an end of the process.
pub(crate) fn failure(error: CheckpointError) -> Failure {
    let exit = match &error {
        CheckpointError::NoTask { .. }
        | CheckpointError::NoCall { .. }
        | CheckpointError::Pruned { .. }
        | CheckpointError::Nothing { .. }
        | CheckpointError::Unseen { .. }
        | CheckpointError::Workspace(_) => Exit::Usage,
        CheckpointError::Stale => Exit::Unfinished,
        _ => Exit::Internal,
    };
    Failure { message: error.to_string(), exit }
}

/// What a call did, in words.
pub(crate) fn about(checkpoint: &Checkpoint) -> String {
    let Checkpoint { mark, what, .. } = checkpoint;
    match what {
        What::Call => format!("{}: {}", mark.tool, name(Path::new(&mark.label))),
        What::Back { to } => format!("went back before call {to}"),
        What::Part => format!("brought back: {}", name(Path::new(&mark.label))),
    }
}

fn line(checkpoint: &Checkpoint, stands: bool) -> String {
    let state = match (checkpoint.is_sealed(), stands) {
        (false, _) => "  (at work, or interrupted)",
        (true, false) if checkpoint.what == What::Call => "  (gone back on)",
        _ => "",
    };
    format!("{:>4}  {}{state}\n", checkpoint.number, about(checkpoint))
}

fn describe(checkpoint: &Checkpoint, stands: bool) -> Value {
    let Checkpoint { mark, what, .. } = checkpoint;
    let (kind, to) = match what {
        What::Call => ("call", None),
        What::Back { to } => ("back", Some(*to)),
        What::Part => ("part", None),
    };
    json!({
        "number": checkpoint.number, "kind": kind, "to": to, "call": mark.call, "tool": mark.tool, "label": mark.label,
        "at": mark.time_ms, "stands": stands, "sealed": checkpoint.is_sealed(),
    })
}
