//! The way back, before it is gone: which paths would become what, and which are better left alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::compare::{PathDifference, TreeReader, WorkspaceState};
use super::error::CheckpointError;
use super::object::{ObjectId, OmitReason, PathStates, TreeEntries, TreeNode};
use super::{Checkpoint, CheckpointKind, CheckpointStore, LockedStore};

/// Where to go back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestorePoint {
    /// Before the last so many changing calls that have not been gone back on.
    Last(usize),
    /// Before the first changing call.
    Start,
    /// Before the call of this number; only these paths, and what is below them, if any are given.
    Before(u32, Vec<PathBuf>),
}

/// What going back would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePlan {
    /// The task.
    pub task: String,
    /// The number of the first call that is gone back on.
    pub to: u32,
    /// Whether only some paths are brought back.
    pub part: bool,
    /// The paths, sorted. One that is as it would be is not among them.
    pub items: Vec<RestoreItem>,
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreItem {
    /// From the workspace folder.
    pub path: PathBuf,
    /// What is there; `None`: nothing.
    pub now: Option<TreeNode>,
    /// What would be there; `None`: nothing.
    pub target: Option<TreeNode>,
    /// Why it is better left alone.
    pub conflict: Option<RestoreConflict>,
}

/// Why a path is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreConflict {
    /// It is not what the task left there.
    ChangedSince,
    /// Another task has changed it meanwhile.
    OtherTask(String),
    /// What was there is not kept. This cannot be forced.
    Omitted(OmitReason),
    /// Somebody else has changed it, and what is there now could not be kept. This cannot be forced.
    Lost(OmitReason),
    /// A FIFO, a socket or a device was there. This cannot be forced.
    Special,
    /// Where its folder was, there is something else that is left alone.
    Under {
        /// What is there.
        path: PathBuf,
        /// Whether that may be gone over.
        forceable: bool,
    },
}

/// What is known of a path from a chain of calls.
#[derive(Debug, Clone)]
struct PathHistory {
    target: Option<TreeNode>,
    expected: Option<TreeNode>,
    /// Somebody else was there between two of the calls.
    broken: bool,
}

impl PathHistory {
    /// Whether the calls changed anything in the end.
    fn has_changed(&self) -> bool {
        !is_same_state(self.target.as_ref(), self.expected.as_ref())
    }
}

type PathHistories = BTreeMap<PathBuf, PathHistory>;

impl RestoreConflict {
    /// Whether the user may go over it.
    #[must_use]
    pub fn can_be_forced(&self) -> bool {
        matches!(self, Self::ChangedSince | Self::OtherTask(_) | Self::Under { forceable: true, .. })
    }
}

impl CheckpointStore {
    /// What the goal would do now. Nothing is changed.
    ///
    /// # Errors
    /// [`CheckpointError::NoTask`], [`NoCall`](CheckpointError::NoCall), [`NothingToUndo`](CheckpointError::NothingToUndo),
    /// [`Pruned`](CheckpointError::Pruned), [`UnknownPath`](CheckpointError::UnknownPath), [`Damaged`](CheckpointError::Damaged) and
    /// [`Io`](CheckpointError::Io).
    pub fn plan_restore(&self, task: &str, goal: &RestorePoint) -> Result<RestorePlan, CheckpointError> {
        let mut work = self.lock_existing()?.ok_or_else(|| CheckpointError::NoTask { task: task.to_owned() })?;
        self.plan_restore_in(&mut work, task, goal)
    }

    /// What the calls from the goal on have changed: the state before them against what the last of them left.
    ///
    /// # Errors
    /// Those of [`plan_restore`](Self::plan_restore).
    pub fn list_differences(&self, task: &str, goal: &RestorePoint) -> Result<Vec<PathDifference>, CheckpointError> {
        let mut work = self.lock_existing()?.ok_or_else(|| CheckpointError::NoTask { task: task.to_owned() })?;
        let chain = checkpoints_since(&work, task, goal)?;
        let mut memory = HashMap::new();
        let courses = self.collect_histories(&mut work, &chain, &mut memory)?;
        let changed =
            courses.into_iter().filter(|(_, course)| !is_same_state(course.target.as_ref(), course.expected.as_ref()));
        Ok(changed
            .map(|(path, course)| PathDifference { path, before: course.target, after: course.expected })
            .collect())
    }

    /// The calls that have changed something and have not been gone back on, the oldest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`UnknownFormat`](CheckpointError::UnknownFormat).
    pub fn active_calls(&self, task: &str) -> Result<Vec<u32>, CheckpointError> {
        Ok(self.lock_existing()?.map_or_else(Vec::new, |work| active_call_numbers(&task_checkpoints(&work, task))))
    }

    pub(super) fn plan_restore_in(
        &self,
        work: &mut LockedStore<'_>,
        task: &str,
        goal: &RestorePoint,
    ) -> Result<RestorePlan, CheckpointError> {
        let chain = checkpoints_since(work, task, goal)?;
        let mut memory = HashMap::new();
        let mut courses = self.collect_histories(work, &chain, &mut memory)?;
        let to = chain.first().map_or(0, |first| first.number);
        let others = changes_by_other_tasks(work, &chain, &memory)?;
        let part = match goal {
            RestorePoint::Before(_, paths) if !paths.is_empty() => {
                courses = self.select_named_paths(work, (&chain, paths), courses, &mut memory)?;
                true
            }
            _ => {
                // What went and came again is none of the task's any more, whoever changes it.
                courses.retain(|_, course| course.broken || course.has_changed());
                false
            }
        };
        let paths: Vec<PathBuf> = courses.keys().cloned().collect();
        let now = self.scan_in_memory(work, &mut memory, |look| look.scan_paths_shallow(&paths))?;
        let now: HashMap<_, _> = now.into_iter().collect();
        let mut items = Vec::new();
        for (path, course) in courses {
            let now = now.get(&path).cloned().flatten();
            if !is_same_state(now.as_ref(), course.target.as_ref()) {
                let hindrance = find_conflict(&course, now.as_ref(), others.get(&path));
                items.push(RestoreItem { path, now, target: course.target, conflict: hindrance });
            }
        }
        block_below(&mut items);
        Ok(RestorePlan { task: task.to_owned(), to, part, items })
    }

    /// What the chain did to each path.
    fn collect_histories(
        &self,
        work: &mut LockedStore<'_>,
        chain: &[Checkpoint],
        memory: &mut HashMap<ObjectId, TreeEntries>,
    ) -> Result<PathHistories, CheckpointError> {
        let mut courses = PathHistories::new();
        for checkpoint in chain {
            let before = Self::load_state(work, checkpoint, checkpoint.before)?;
            let after = match (checkpoint.after, &before) {
                (Some(after), _) => Self::load_state(work, checkpoint, after.root)?,
                // What it left is what is there.
                (None, WorkspaceState::Whole(_)) => {
                    WorkspaceState::Whole(self.scan_in_memory(work, memory, |look| look.scan_workspace())?)
                }
                (None, WorkspaceState::Paths(before)) => {
                    let paths: Vec<_> = before.iter().map(|(path, _)| path.clone()).collect();
                    WorkspaceState::Paths(self.scan_in_memory(work, memory, |look| match checkpoint.kind {
                        CheckpointKind::Call => look.scan_paths(&paths),
                        _ => look.scan_paths_shallow(&paths),
                    })?)
                }
            };
            let trees = TreeReader { store: work.store(), memory };
            for PathDifference { path, before, after } in trees.diff_states(&before, &after)? {
                match courses.get_mut(&path) {
                    Some(course) => {
                        course.broken |= !is_same_state(course.expected.as_ref(), before.as_ref());
                        course.expected = after;
                    }
                    None => {
                        courses.insert(path, PathHistory { target: before, expected: after, broken: false });
                    }
                }
            }
        }
        Ok(courses)
    }

    /// The courses of what the user named, also of what no call has touched, as far as a look at the whole has seen it.
    fn select_named_paths(
        &self,
        work: &mut LockedStore<'_>,
        (chain, paths): (&[Checkpoint], &[PathBuf]),
        courses: PathHistories,
        memory: &mut HashMap<ObjectId, TreeEntries>,
    ) -> Result<PathHistories, CheckpointError> {
        let whole = chain.iter().find(|checkpoint| checkpoint.whole).map(|checkpoint| checkpoint.before);
        let mut wanted = PathHistories::new();
        for path in paths {
            let touched = courses.iter().filter(|(known, _)| known.starts_with(path));
            let touched = touched.map(|(path, course)| {
                let broken = course.broken || !course.has_changed();
                (path.clone(), PathHistory { broken, ..course.clone() })
            });
            let touched: Vec<_> = touched.collect();
            if touched.is_empty() && whole.is_none() {
                return Err(CheckpointError::UnknownPath { path: path.clone() });
            }
            if let Some(root) = whole {
                let now: PathStates =
                    self.scan_in_memory(work, memory, |look| look.scan_paths(std::slice::from_ref(path)))?;
                let now = now.into_iter().find(|(known, _)| known == path).and_then(|(_, node)| node);
                let trees = TreeReader { store: work.store(), memory };
                let then = trees.list_below(path, trees.find_node(&root, path)?)?;
                let now = trees.list_below(path, now)?;
                if then.is_empty() && now.is_empty() && touched.is_empty() {
                    return Err(CheckpointError::UnknownPath { path: path.clone() });
                }
                // Nobody expects what stands there: it is not the task's.
                let foreign = |target| PathHistory { target, expected: None, broken: true };
                wanted.extend(now.into_iter().map(|(path, _)| (path, foreign(None))));
                wanted.extend(then.into_iter().map(|(path, node)| (path, foreign(node))));
            }
            wanted.extend(touched);
        }
        Ok(wanted)
    }
}

/// The checkpoints of a task, the oldest first.
fn task_checkpoints(work: &LockedStore<'_>, task: &str) -> Vec<Checkpoint> {
    work.store().checkpoints.iter().filter(|checkpoint| checkpoint.mark.task == task).cloned().collect()
}

/// The checkpoints from the goal to the end.
fn checkpoints_since(
    work: &LockedStore<'_>,
    task: &str,
    goal: &RestorePoint,
) -> Result<Vec<Checkpoint>, CheckpointError> {
    let all = task_checkpoints(work, task);
    let pruned = work.store().pruned.get(task).copied().unwrap_or(0);
    let gone = || CheckpointError::Pruned { task: task.to_owned(), through: pruned };
    let nothing = || CheckpointError::NothingToUndo { task: task.to_owned() };
    if all.is_empty() {
        return Err(if pruned > 0 { gone() } else { CheckpointError::NoTask { task: task.to_owned() } });
    }
    let standing = active_call_numbers(&all);
    let first = match goal {
        RestorePoint::Start => *standing.first().ok_or_else(nothing)?,
        RestorePoint::Last(count) => {
            let at = standing.len().checked_sub(*count);
            let missing = || if pruned > 0 { gone() } else { nothing() };
            match at {
                Some(at) => *standing.get(at).ok_or_else(nothing)?,
                None => return Err(missing()),
            }
        }
        RestorePoint::Before(number, _) if *number <= pruned => return Err(gone()),
        RestorePoint::Before(number, _) => *number,
    };
    let last = all.iter().map(|checkpoint| checkpoint.number).max().unwrap_or(0);
    let chain: Vec<_> = all.into_iter().filter(|checkpoint| checkpoint.number >= first).collect();
    if first == 0 || first > last {
        return Err(CheckpointError::NoCall { task: task.to_owned(), number: first, last });
    }
    Ok(chain)
}

/// The numbers of the calls that stand, after everything that was gone back on.
fn active_call_numbers(all: &[Checkpoint]) -> Vec<u32> {
    let mut before: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut standing = Vec::new();
    for checkpoint in all {
        before.insert(checkpoint.number, standing.clone());
        match checkpoint.kind {
            CheckpointKind::Call if checkpoint.after.is_some_and(|after| after.root == checkpoint.before) => {}
            CheckpointKind::Call | CheckpointKind::PartialRestore => standing.push(checkpoint.number),
            // One that was broken off has to be gone again.
            CheckpointKind::Restore { to } if checkpoint.after.is_some_and(|after| !after.late) => {
                standing = before.get(&to).cloned().unwrap_or_default();
            }
            CheckpointKind::Restore { .. } => {}
        }
    }
    standing
}

/// Paths that other tasks have changed since the chain began, and which task did.
fn changes_by_other_tasks(
    work: &LockedStore<'_>,
    chain: &[Checkpoint],
    memory: &HashMap<ObjectId, TreeEntries>,
) -> Result<BTreeMap<PathBuf, String>, CheckpointError> {
    let Some(first) = chain.first() else { return Ok(BTreeMap::new()) };
    let trees = TreeReader { store: work.store(), memory };
    let mut found = BTreeMap::new();
    // A command of another task may only have been there while this one worked; a file that a call named is its own.
    let foreign = |other: &&Checkpoint| {
        other.id > first.id && other.mark.task != first.mark.task && !other.whole && other.kind == CheckpointKind::Call
    };
    for other in work.store().checkpoints.iter().filter(foreign) {
        let Some(after) = other.after else { continue };
        let before = CheckpointStore::load_state(work, other, other.before)?;
        let after = CheckpointStore::load_state(work, other, after.root)?;
        let paths = trees.diff_states(&before, &after)?.into_iter().map(|difference| difference.path);
        found.extend(paths.map(|path| (path, other.mark.task.clone())));
    }
    Ok(found)
}

fn find_conflict(course: &PathHistory, now: Option<&TreeNode>, other: Option<&String>) -> Option<RestoreConflict> {
    match &course.target {
        Some(TreeNode::Omitted { why, .. }) => return Some(RestoreConflict::Omitted(*why)),
        Some(TreeNode::Special) => return Some(RestoreConflict::Special),
        _ => {}
    }
    // A folder that could not be kept cannot be taken away either: what it holds would be lost.
    if let Some(TreeNode::Omitted { why, folder: true, .. }) = &course.expected {
        return Some(RestoreConflict::Omitted(*why));
    }
    let changed = course.broken || !is_same_state(course.expected.as_ref(), now);
    match now {
        Some(TreeNode::Omitted { why, .. }) if changed || other.is_some() => Some(RestoreConflict::Lost(*why)),
        _ if changed => Some(RestoreConflict::ChangedSince),
        _ => other.map(|task| RestoreConflict::OtherTask(task.clone())),
    }
}

/// What is to come into a folder cannot, where something else stands in the folder's place and is left alone. `items` are
/// sorted, so that a folder comes right before what is in it.
fn block_below(items: &mut [RestoreItem]) {
    let mut obstacle: Option<(PathBuf, bool)> = None;
    for item in items {
        let RestoreItem { path, now, target, conflict: hindrance } = item;
        match &obstacle {
            Some((above, forceable)) if path.starts_with(above) => {
                if target.is_some() && hindrance.as_ref().is_none_or(RestoreConflict::can_be_forced) {
                    *hindrance = Some(RestoreConflict::Under { path: above.clone(), forceable: *forceable });
                }
            }
            _ => {
                let stands = now.as_ref().is_some_and(|now| !now.is_folder());
                let comes = matches!(target, Some(TreeNode::Folder { .. }));
                obstacle =
                    hindrance.as_ref().filter(|_| stands && comes).map(|why| (path.clone(), why.can_be_forced()));
            }
        }
    }
}

/// Whether two states of one path are the same to somebody who looks at this path alone.
fn is_same_state(one: Option<&TreeNode>, other: Option<&TreeNode>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_same_entry(other),
        (None, None) => true,
        _ => false,
    }
}

impl RestorePlan {
    /// The paths that would be changed.
    pub(super) fn changed_paths(&self, force: bool) -> BTreeSet<&Path> {
        self.items.iter().filter(|item| item.is_restored(force)).map(|item| item.path.as_path()).collect()
    }
}

impl RestoreItem {
    /// Whether it is gone back on.
    #[must_use]
    pub fn is_restored(&self, force: bool) -> bool {
        self.conflict.as_ref().is_none_or(|hindrance| force && hindrance.can_be_forced())
    }
}
