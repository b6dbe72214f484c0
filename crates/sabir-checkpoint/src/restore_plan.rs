//! Plans a restore: determines the target state of every path, and which paths must be left
//! alone.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use super::compare::{PathDifference, TaskDifferences, TreeReader, WorkspaceState};
use super::error::CheckpointError;
use super::object::{ObjectId, OmitReason, PathStates, TreeEntries, TreeNode};
use super::stamps::FileStamp;
use super::{ChangeAuthor, Checkpoint, CheckpointKind, CheckpointStore, LockedStore};

/// The point in a task's history to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestorePoint {
    /// Before this many of the last changing calls that are not undone yet.
    Last(usize),
    /// Before the first changing call.
    Start,
    /// Before the call of this number. If any paths are given, only these and everything below
    /// them.
    Before(u32, Vec<PathBuf>),
}

/// The changes that a restore would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePlan {
    /// The id of the task.
    pub task: String,
    /// The number of the first call that is undone.
    pub to: u32,
    /// True if only some paths are restored.
    pub part: bool,
    /// True if the changes of an undone call were found by comparing the whole workspace before and after it, as for a command. They then
    /// include changes that others made meanwhile.
    pub whole: bool,
    /// The affected paths, sorted. Paths that already are in their target state are left out.
    pub items: Vec<RestoreItem>,
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreItem {
    /// The path, relative to the workspace folder.
    pub path: PathBuf,
    /// The current state; `None` if nothing exists.
    pub now: Option<TreeNode>,
    /// The target state; `None` if nothing is to exist.
    pub target: Option<TreeNode>,
    /// The reason for leaving the path alone, if there is one.
    pub conflict: Option<RestoreConflict>,
    /// True if the path changed during a call that is not known to have written it: somebody else may have changed it.
    pub is_unattributed: bool,
}

/// A reason for leaving a path alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreConflict {
    /// The path is not in the state that the task left.
    ChangedSince,
    /// Another task, named here, has changed it since.
    OtherTask(String),
    /// A call of another task, named here, ran at the same moment, and the change may be that of either.
    SharedWith(String),
    /// The path changed while a call ran, and the call did not write it, or not alone.
    ChangedMeanwhile,
    /// The path changed while an unwatched call ran, and its current content may come from somebody else. Not for paths that the user has
    /// named.
    UnobservedCall,
    /// The target content was not kept. This cannot be forced.
    Omitted(OmitReason),
    /// Somebody else has changed it, and its current content could not be kept, so a restore would
    /// lose it. This cannot be forced.
    Lost(OmitReason),
    /// A FIFO, a socket or a device was there. This cannot be forced.
    Special,
    /// Its folder cannot be created, because another entry there is left alone.
    BlockedParent {
        /// The path of the obstacle.
        path: PathBuf,
        /// True if the obstacle may be overwritten by force.
        forceable: bool,
    },
}

/// The history of one path over a chain of calls: the state before the first (`target`) and after
/// the last (`expected`).
#[derive(Debug, Clone)]
struct PathHistory {
    target: Option<TreeNode>,
    expected: Option<TreeNode>,
    /// True if somebody else changed the path between two of the calls.
    broken: bool,
    authors: ChangeAuthors,
}

/// The makers of the changes of one path.
#[derive(Debug, Clone, Copy, Default)]
struct ChangeAuthors {
    has_call: bool,
    has_others: bool,
    has_unknown: bool,
}

/// A change of one path: its states before and after.
#[derive(PartialEq)]
struct PathTransition {
    before: Option<TreeNode>,
    after: Option<TreeNode>,
}

/// The changes that calls of other tasks made to paths, each with the task.
#[derive(Default)]
struct OtherChanges {
    /// Changes made by calls that named their files.
    since: BTreeMap<PathBuf, String>,
    /// Changes that a call of this task and one of another task both saw.
    shared: BTreeMap<PathBuf, String>,
}

impl ChangeAuthors {
    fn add(&mut self, maker: ChangeAuthor) {
        match maker {
            ChangeAuthor::Call => self.has_call = true,
            ChangeAuthor::Others => self.has_others = true,
            ChangeAuthor::Unknown => self.has_unknown = true,
        }
    }
}

impl PathHistory {
    /// Returns true if the calls together changed the path.
    fn has_changed(&self) -> bool {
        !is_same_state(self.target.as_ref(), self.expected.as_ref())
    }
}

/// The histories by path, sorted, so that a folder comes before its content.
type PathHistories = BTreeMap<PathBuf, PathHistory>;

impl RestoreConflict {
    /// Returns true if the user may force the restore of this path.
    #[must_use]
    pub fn can_be_forced(&self) -> bool {
        matches!(
            self,
            Self::ChangedSince
                | Self::OtherTask(_)
                | Self::SharedWith(_)
                | Self::ChangedMeanwhile
                | Self::UnobservedCall
                | Self::BlockedParent {
                    forceable: true,
                    ..
                }
        )
    }
}

impl CheckpointStore {
    /// Plans a restore. Nothing is changed.
    ///
    /// # Errors
    /// [`CheckpointError::NoTask`], [`NoCall`](CheckpointError::NoCall),
    /// [`NothingToUndo`](CheckpointError::NothingToUndo), [`Pruned`](CheckpointError::Pruned),
    /// [`UnknownPath`](CheckpointError::UnknownPath), [`Damaged`](CheckpointError::Damaged) and
    /// [`Io`](CheckpointError::Io).
    pub fn plan_restore(
        &self,
        task: &str,
        goal: &RestorePoint,
    ) -> Result<RestorePlan, CheckpointError> {
        let mut work = self
            .lock_existing()?
            .ok_or_else(|| CheckpointError::NoTask {
                task: task.to_owned(),
            })?;
        self.plan_restore_in(&mut work, task, goal)
    }

    /// Lists the differences between the state before the calls from the restore point on, and the
    /// state that the last of them left.
    ///
    /// # Errors
    /// Those of [`plan_restore`](Self::plan_restore).
    pub fn list_differences(
        &self,
        task: &str,
        goal: &RestorePoint,
    ) -> Result<TaskDifferences, CheckpointError> {
        let mut work = self
            .lock_existing()?
            .ok_or_else(|| CheckpointError::NoTask {
                task: task.to_owned(),
            })?;
        let chain = checkpoints_since(&work, task, goal)?;
        let mut memory = HashMap::new();
        let histories = self.collect_histories(&mut work, &chain, &mut memory)?;
        let mut differences = TaskDifferences::default();
        for (path, history) in histories {
            let authors = history.authors;
            if !history.has_changed() {
                continue;
            }
            if !authors.has_call && !authors.has_unknown {
                differences.by_others.push(path);
                continue;
            }
            if authors.has_others {
                differences.shared.push(path.clone());
            }
            differences.paths.push(PathDifference {
                path,
                before: history.target,
                after: history.expected,
            });
        }
        Ok(differences)
    }

    /// Returns the numbers of the calls that changed something and are not undone, oldest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`UnknownFormat`](CheckpointError::UnknownFormat).
    pub fn active_calls(&self, task: &str) -> Result<Vec<u32>, CheckpointError> {
        Ok(self.lock_existing()?.map_or_else(Vec::new, |work| {
            active_call_numbers(&task_checkpoints(&work, task))
        }))
    }

    /// Plans a restore with the store locked. The same files and checkpoints give the same plan,
    /// which is how `restore` notices that something changed since the plan was shown.
    pub(super) fn plan_restore_in(
        &self,
        work: &mut LockedStore<'_>,
        task: &str,
        goal: &RestorePoint,
    ) -> Result<RestorePlan, CheckpointError> {
        let chain = checkpoints_since(work, task, goal)?;
        let mut memory = HashMap::new();
        let mut histories = self.collect_histories(work, &chain, &mut memory)?;
        let to = chain.first().map_or(0, |first| first.number);
        let whole = chain.iter().any(|checkpoint| checkpoint.whole);
        let others = changes_by_other_tasks(work, &chain, &memory)?;
        let part = match goal {
            RestorePoint::Before(_, paths) if !paths.is_empty() => {
                histories = self.select_named_paths(work, &chain, paths, histories, &mut memory)?;
                true
            }
            _ => {
                // A path that the calls changed and changed back no longer belongs to the task.
                histories.retain(|_, history| history.broken || history.has_changed());
                false
            }
        };
        let paths: Vec<PathBuf> = histories.keys().cloned().collect();
        let now = self.scan_in_memory(work, &mut memory, |scanner| {
            scanner.scan_paths_shallow(&paths)
        })?;
        let now: HashMap<_, _> = now.into_iter().collect();
        let mut items = Vec::new();
        for (path, mut history) in histories {
            let now = now.get(&path).cloned().flatten();
            // A state without its content is compared by its stamp: the scan of single paths may
            // have read the file's content, which is no change by itself.
            let has_stamp_of = |known: Option<&TreeNode>| {
                matches!(
                    known,
                    Some(TreeNode::Omitted { folder: false, stamp, .. }) if self.read_stamp(&path) == Some(*stamp)
                )
            };
            if has_stamp_of(history.target.as_ref()) {
                continue;
            }
            if has_stamp_of(history.expected.as_ref()) {
                history.expected.clone_from(&now);
            }
            if !is_same_state(now.as_ref(), history.target.as_ref()) {
                let conflict = find_conflict(&history, now.as_ref(), &others, &path)
                    // A user who names a path has decided about it.
                    .filter(|conflict| !part || *conflict != RestoreConflict::UnobservedCall);
                items.push(RestoreItem {
                    path,
                    now,
                    target: history.target,
                    conflict,
                    is_unattributed: history.authors.has_others || history.authors.has_unknown,
                });
            }
        }
        // Needs the sorted order that the map of histories gives.
        block_below(&mut items);
        Ok(RestorePlan {
            task: task.to_owned(),
            to,
            part,
            whole,
            items,
        })
    }

    /// Returns the stamp of the file at this path now; `None` if there is none.
    fn read_stamp(&self, path: &Path) -> Option<u64> {
        let found = rustix::fs::statat(self.workspace.as_fd(), path, AtFlags::SYMLINK_NOFOLLOW);
        found
            .ok()
            .map(|found| FileStamp::from_stat(&found).to_number())
    }

    /// Collects the history of each path that the chain of checkpoints changed.
    fn collect_histories(
        &self,
        work: &mut LockedStore<'_>,
        chain: &[Checkpoint],
        memory: &mut HashMap<ObjectId, TreeEntries>,
    ) -> Result<PathHistories, CheckpointError> {
        let mut histories = PathHistories::new();
        for checkpoint in chain {
            let before = Self::load_state(work, checkpoint, checkpoint.before)?;
            let after =
                match (checkpoint.after, &before) {
                    (Some(after), _) => Self::load_state(work, checkpoint, after.root)?,
                    // For an unsealed call, the current state is the state that it left.
                    (None, WorkspaceState::Whole(_)) => WorkspaceState::Whole(
                        self.scan_in_memory(work, memory, |scanner| scanner.scan_workspace())?,
                    ),
                    (None, WorkspaceState::Paths(before)) => {
                        let paths: Vec<_> = before.iter().map(|(path, _)| path.clone()).collect();
                        WorkspaceState::Paths(self.scan_in_memory(work, memory, |scanner| {
                            match checkpoint.kind {
                                CheckpointKind::Call => scanner.scan_paths(&paths),
                                _ => scanner.scan_paths_shallow(&paths),
                            }
                        })?)
                    }
                };
            let trees = TreeReader {
                store: work.store(),
                memory,
            };
            for PathDifference {
                path,
                before,
                after,
            } in trees.diff_states(&before, &after)?
            {
                let maker = checkpoint.author_of(&path);
                match histories.get_mut(&path) {
                    // The chain is in order, so the first difference of a path has its target and
                    // the last one its expected state.
                    Some(history) => {
                        history.broken |=
                            !is_same_state(history.expected.as_ref(), before.as_ref());
                        history.expected = after;
                        history.authors.add(maker);
                    }
                    None => {
                        let mut authors = ChangeAuthors::default();
                        authors.add(maker);
                        histories.insert(
                            path,
                            PathHistory {
                                target: before,
                                expected: after,
                                broken: false,
                                authors,
                            },
                        );
                    }
                }
            }
        }
        Ok(histories)
    }

    /// Selects the histories of the named paths. Paths that no call touched are included if a
    /// checkpoint of the whole workspace saw them.
    fn select_named_paths(
        &self,
        work: &mut LockedStore<'_>,
        chain: &[Checkpoint],
        paths: &[PathBuf],
        histories: PathHistories,
        memory: &mut HashMap<ObjectId, TreeEntries>,
    ) -> Result<PathHistories, CheckpointError> {
        let whole = chain
            .iter()
            .find(|checkpoint| checkpoint.whole)
            .map(|checkpoint| checkpoint.before);
        let mut wanted = PathHistories::new();
        for path in paths {
            let touched = histories
                .iter()
                .filter(|(known, _)| known.starts_with(path));
            let touched = touched.map(|(path, history)| {
                let broken = history.broken || !history.has_changed();
                (
                    path.clone(),
                    PathHistory {
                        broken,
                        ..history.clone()
                    },
                )
            });
            let touched: Vec<_> = touched.collect();
            if touched.is_empty() && whole.is_none() {
                return Err(CheckpointError::UnknownPath { path: path.clone() });
            }
            if let Some(root) = whole {
                let now: PathStates = self.scan_in_memory(work, memory, |scanner| {
                    scanner.scan_paths(std::slice::from_ref(path))
                })?;
                let now = now
                    .into_iter()
                    .find(|(known, _)| known == path)
                    .and_then(|(_, node)| node);
                let trees = TreeReader {
                    store: work.store(),
                    memory,
                };
                let then = trees.list_below(path, trees.find_node(&root, path)?)?;
                let now = trees.list_below(path, now)?;
                if then.is_empty() && now.is_empty() && touched.is_empty() {
                    return Err(CheckpointError::UnknownPath { path: path.clone() });
                }
                // The task did not change these, so no state is expected: they count as changed by
                // others.
                let foreign = |target| PathHistory {
                    target,
                    expected: None,
                    broken: true,
                    authors: ChangeAuthors {
                        has_unknown: true,
                        ..ChangeAuthors::default()
                    },
                };
                // In this order, a path that existed then and exists now keeps its earlier state.
                wanted.extend(now.into_iter().map(|(path, _)| (path, foreign(None))));
                wanted.extend(then.into_iter().map(|(path, node)| (path, foreign(node))));
            }
            wanted.extend(touched);
        }
        Ok(wanted)
    }
}

/// Returns the checkpoints of a task, oldest first.
fn task_checkpoints(work: &LockedStore<'_>, task: &str) -> Vec<Checkpoint> {
    work.store()
        .checkpoints
        .iter()
        .filter(|checkpoint| checkpoint.mark.task == task)
        .cloned()
        .collect()
}

/// Returns the checkpoints from the restore point to the end.
fn checkpoints_since(
    work: &LockedStore<'_>,
    task: &str,
    goal: &RestorePoint,
) -> Result<Vec<Checkpoint>, CheckpointError> {
    let all = task_checkpoints(work, task);
    let pruned = work.store().pruned.get(task).copied().unwrap_or(0);
    let gone = || CheckpointError::Pruned {
        task: task.to_owned(),
        through: pruned,
    };
    let nothing = || CheckpointError::NothingToUndo {
        task: task.to_owned(),
    };
    if all.is_empty() {
        return Err(if pruned > 0 {
            gone()
        } else {
            CheckpointError::NoTask {
                task: task.to_owned(),
            }
        });
    }
    // Only active calls count for `Last` and `Start`; `Before` may name any call.
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
    let last = all
        .iter()
        .map(|checkpoint| checkpoint.number)
        .max()
        .unwrap_or(0);
    let chain: Vec<_> = all
        .into_iter()
        .filter(|checkpoint| checkpoint.number >= first)
        .collect();
    if first == 0 || first > last {
        return Err(CheckpointError::NoCall {
            task: task.to_owned(),
            number: first,
            last,
        });
    }
    Ok(chain)
}

/// Returns the numbers of the active calls: those left after all restores.
fn active_call_numbers(all: &[Checkpoint]) -> Vec<u32> {
    let mut before: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut standing = Vec::new();
    for checkpoint in all {
        before.insert(checkpoint.number, standing.clone());
        match checkpoint.kind {
            CheckpointKind::Call
                if checkpoint
                    .after
                    .is_some_and(|after| after.root == checkpoint.before) => {}
            CheckpointKind::Call | CheckpointKind::PartialRestore => {
                standing.push(checkpoint.number)
            }
            // An interrupted restore did not reliably undo any call, and must be repeated.
            CheckpointKind::Restore { to } if checkpoint.after.is_some_and(|after| !after.late) => {
                // The calls that were active before the first undone one are active again.
                standing = before.get(&to).cloned().unwrap_or_default();
            }
            CheckpointKind::Restore { .. } => {}
        }
    }
    standing
}

/// Returns what calls of other tasks have changed since the chain began, or while its calls ran.
fn changes_by_other_tasks(
    work: &LockedStore<'_>,
    chain: &[Checkpoint],
    memory: &HashMap<ObjectId, TreeEntries>,
) -> Result<OtherChanges, CheckpointError> {
    let mut found = OtherChanges::default();
    let Some(first) = chain.first() else {
        return Ok(found);
    };
    let commands: Vec<_> = chain.iter().filter(|own| own.whole).collect();
    // The changes that commands of this task observed, which a concurrent call may have made.
    let mut seen = HashMap::new();
    for other in &work.store().checkpoints {
        if other.mark.task == first.mark.task || other.kind != CheckpointKind::Call {
            continue;
        }
        let beside: Vec<_> = commands.iter().filter(|own| own.overlaps(other)).collect();
        // A command of another task, alone, may contain changes that this task made meanwhile.
        let is_since = !other.whole && other.id > first.id;
        if beside.is_empty() && !is_since {
            continue;
        }
        for own in &beside {
            if let Entry::Vacant(place) = seen.entry(own.id) {
                let changes = load_transitions(work, own, memory)?;
                place.insert(changes.into_iter().collect::<HashMap<_, _>>());
            }
        }
        for (path, transition) in load_transitions(work, other, memory)? {
            let is_shared = beside.iter().any(|own| {
                seen.get(&own.id).and_then(|changes| changes.get(&path)) == Some(&transition)
            });
            let task = &other.mark.task;
            if is_since || is_shared && !other.whole {
                found.since.insert(path, task.clone());
            } else if is_shared {
                found.shared.insert(path, task.clone());
            }
        }
    }
    Ok(found)
}

/// Returns the changes between the two states of a call, by path; none while it runs.
fn load_transitions(
    work: &LockedStore<'_>,
    checkpoint: &Checkpoint,
    memory: &HashMap<ObjectId, TreeEntries>,
) -> Result<Vec<(PathBuf, PathTransition)>, CheckpointError> {
    let Some(after) = checkpoint.after else {
        return Ok(Vec::new());
    };
    let trees = TreeReader {
        store: work.store(),
        memory,
    };
    let before = CheckpointStore::load_state(work, checkpoint, checkpoint.before)?;
    let after = CheckpointStore::load_state(work, checkpoint, after.root)?;
    let differences = trees.diff_states(&before, &after)?.into_iter();
    let transition = |difference: PathDifference| {
        let PathDifference {
            path,
            before,
            after,
        } = difference;
        (path, PathTransition { before, after })
    };
    Ok(differences.map(transition).collect())
}

/// Returns the reason for leaving a path alone. Reasons that cannot be forced come first, because
/// forcing them would lose content.
fn find_conflict(
    history: &PathHistory,
    now: Option<&TreeNode>,
    others: &OtherChanges,
    path: &Path,
) -> Option<RestoreConflict> {
    match &history.target {
        Some(TreeNode::Omitted { why, .. }) => return Some(RestoreConflict::Omitted(*why)),
        Some(TreeNode::Special) => return Some(RestoreConflict::Special),
        _ => {}
    }
    // Removing a folder that could not be kept would lose what it contains.
    if let Some(TreeNode::Omitted {
        why, folder: true, ..
    }) = &history.expected
    {
        return Some(RestoreConflict::Omitted(*why));
    }
    // Any other state than the one that the task left was made by somebody else.
    let changed = history.broken || !is_same_state(history.expected.as_ref(), now);
    match now {
        Some(TreeNode::Omitted { why, .. }) if changed || others.since.contains_key(path) => {
            Some(RestoreConflict::Lost(*why))
        }
        _ if changed => Some(RestoreConflict::ChangedSince),
        _ => {
            let since = others.since.get(path).cloned();
            let shared = || others.shared.get(path).cloned();
            let authors = history.authors;
            // Without content there is nothing to lose.
            let has_content = now.is_some_and(|now| !now.is_folder());
            since
                .map(RestoreConflict::OtherTask)
                .or_else(|| shared().map(RestoreConflict::SharedWith))
                .or_else(|| {
                    authors
                        .has_others
                        .then_some(RestoreConflict::ChangedMeanwhile)
                })
                .or_else(|| {
                    (authors.has_unknown && has_content).then_some(RestoreConflict::UnobservedCall)
                })
        }
    }
}

/// Marks items below a non-folder that is left alone, since nothing can be created there. `items`
/// are sorted, so a folder comes right before its content.
fn block_below(items: &mut [RestoreItem]) {
    let mut obstacle: Option<(PathBuf, bool)> = None;
    for item in items {
        let RestoreItem {
            path,
            now,
            target,
            conflict,
            ..
        } = item;
        match &obstacle {
            Some((above, forceable)) if path.starts_with(above) => {
                if target.is_some() && conflict.as_ref().is_none_or(RestoreConflict::can_be_forced)
                {
                    *conflict = Some(RestoreConflict::BlockedParent {
                        path: above.clone(),
                        forceable: *forceable,
                    });
                }
            }
            _ => {
                let stands = now.as_ref().is_some_and(|now| !now.is_folder());
                let comes = matches!(target, Some(TreeNode::Folder { .. }));
                obstacle = conflict
                    .as_ref()
                    .filter(|_| stands && comes)
                    .map(|why| (path.clone(), why.can_be_forced()));
            }
        }
    }
}

/// Returns true if two states of one path are the same when the path is considered alone.
fn is_same_state(one: Option<&TreeNode>, other: Option<&TreeNode>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_same_entry(other),
        (None, None) => true,
        _ => false,
    }
}

impl RestorePlan {
    /// Returns the paths that would be changed.
    pub(super) fn changed_paths(&self, force: bool) -> BTreeSet<&Path> {
        self.items
            .iter()
            .filter(|item| item.is_restored(force))
            .map(|item| item.path.as_path())
            .collect()
    }
}

impl RestoreItem {
    /// Returns true if a restore changes this path, given `force`.
    #[must_use]
    pub fn is_restored(&self, force: bool) -> bool {
        self.conflict
            .as_ref()
            .is_none_or(|conflict| force && conflict.can_be_forced())
    }
}
