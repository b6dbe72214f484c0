//! The way back, before it is gone: which paths would become what, and which are better left alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::compare::{Difference, State, Trees};
use super::error::CheckpointError;
use super::object::{Node, NotKept, ObjectId, Places, Tree};
use super::{Checkpoint, Checkpoints, What, Work};

/// Where to go back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Before the last so many changing calls that have not been gone back on.
    Last(usize),
    /// Before the first changing call.
    Start,
    /// Before the call of this number; only these paths, and what is below them, if any are given.
    Before(u32, Vec<PathBuf>),
}

/// What going back would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The task.
    pub task: String,
    /// The number of the first call that is gone back on.
    pub to: u32,
    /// Whether only some paths are brought back.
    pub part: bool,
    /// The paths, sorted. One that is as it would be is not among them.
    pub items: Vec<Item>,
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// From the workspace folder.
    pub path: PathBuf,
    /// What is there; `None`: nothing.
    pub now: Option<Node>,
    /// What would be there; `None`: nothing.
    pub target: Option<Node>,
    /// Why it is better left alone.
    pub hindrance: Option<Hindrance>,
}

/// Why a path is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// It is not what the task left there.
    ChangedSince,
    /// Another task has changed it meanwhile.
    OtherTask(String),
    /// What was there is not kept. This cannot be forced.
    NotKept(NotKept),
    /// Somebody else has changed it, and what is there now could not be kept. This cannot be forced.
    Lost(NotKept),
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
struct Course {
    target: Option<Node>,
    expected: Option<Node>,
    /// Somebody else was there between two of the calls.
    broken: bool,
}

impl Course {
    /// Whether the calls changed anything in the end.
    fn differs(&self) -> bool {
        !alike(self.target.as_ref(), self.expected.as_ref())
    }
}

type Courses = BTreeMap<PathBuf, Course>;

impl Hindrance {
    /// Whether the user may go over it.
    #[must_use]
    pub fn can_be_forced(&self) -> bool {
        matches!(self, Self::ChangedSince | Self::OtherTask(_) | Self::Under { forceable: true, .. })
    }
}

impl Checkpoints {
    /// What the goal would do now. Nothing is changed.
    ///
    /// # Errors
    /// [`CheckpointError::NoTask`], [`NoCall`](CheckpointError::NoCall), [`Nothing`](CheckpointError::Nothing),
    /// [`Pruned`](CheckpointError::Pruned), [`Unseen`](CheckpointError::Unseen), [`Damaged`](CheckpointError::Damaged) and
    /// [`Io`](CheckpointError::Io).
    pub fn plan(&self, task: &str, goal: &Goal) -> Result<Plan, CheckpointError> {
        let mut work = self.work()?.ok_or_else(|| CheckpointError::NoTask { task: task.to_owned() })?;
        self.plan_in(&mut work, task, goal)
    }

    /// What the calls from the goal on have changed: the state before them against what the last of them left.
    ///
    /// # Errors
    /// Those of [`plan`](Self::plan).
    pub fn differences(&self, task: &str, goal: &Goal) -> Result<Vec<Difference>, CheckpointError> {
        let mut work = self.work()?.ok_or_else(|| CheckpointError::NoTask { task: task.to_owned() })?;
        let chain = chain(&work, task, goal)?;
        let mut memory = HashMap::new();
        let courses = self.courses(&mut work, &chain, &mut memory)?;
        let changed =
            courses.into_iter().filter(|(_, course)| !alike(course.target.as_ref(), course.expected.as_ref()));
        Ok(changed.map(|(path, course)| Difference { path, before: course.target, after: course.expected }).collect())
    }

    /// The calls that have changed something and have not been gone back on, the oldest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`Format`](CheckpointError::Format).
    pub fn standing(&self, task: &str) -> Result<Vec<u32>, CheckpointError> {
        Ok(self.work()?.map_or_else(Vec::new, |work| standing(&of_task(&work, task))))
    }

    pub(super) fn plan_in(&self, work: &mut Work<'_>, task: &str, goal: &Goal) -> Result<Plan, CheckpointError> {
        let chain = chain(work, task, goal)?;
        let mut memory = HashMap::new();
        let mut courses = self.courses(work, &chain, &mut memory)?;
        let to = chain.first().map_or(0, |first| first.number);
        let others = others(work, &chain, &memory)?;
        let part = match goal {
            Goal::Before(_, paths) if !paths.is_empty() => {
                courses = self.named(work, (&chain, paths), courses, &mut memory)?;
                true
            }
            _ => {
                // What went and came again is none of the task's any more, whoever changes it.
                courses.retain(|_, course| course.broken || course.differs());
                false
            }
        };
        let paths: Vec<PathBuf> = courses.keys().cloned().collect();
        let now = self.look_only(work, &mut memory, |look| look.alone(&paths))?;
        let now: HashMap<_, _> = now.into_iter().collect();
        let mut items = Vec::new();
        for (path, course) in courses {
            let now = now.get(&path).cloned().flatten();
            if !alike(now.as_ref(), course.target.as_ref()) {
                let hindrance = hindrance(&course, now.as_ref(), others.get(&path));
                items.push(Item { path, now, target: course.target, hindrance });
            }
        }
        hinder_below(&mut items);
        Ok(Plan { task: task.to_owned(), to, part, items })
    }

    /// What the chain did to each path.
    fn courses(
        &self,
        work: &mut Work<'_>,
        chain: &[Checkpoint],
        memory: &mut HashMap<ObjectId, Tree>,
    ) -> Result<Courses, CheckpointError> {
        let mut courses = Courses::new();
        for checkpoint in chain {
            let before = Self::state(work, checkpoint, checkpoint.before)?;
            let after = match (checkpoint.after, &before) {
                (Some(after), _) => Self::state(work, checkpoint, after.root)?,
                // What it left is what is there.
                (None, State::Whole(_)) => State::Whole(self.look_only(work, memory, |look| look.whole())?),
                (None, State::Places(before)) => {
                    let paths: Vec<_> = before.iter().map(|(path, _)| path.clone()).collect();
                    State::Places(self.look_only(work, memory, |look| match checkpoint.what {
                        What::Call => look.places(&paths),
                        _ => look.alone(&paths),
                    })?)
                }
            };
            let trees = Trees { store: work.store(), memory };
            for Difference { path, before, after } in trees.differences(&before, &after)? {
                match courses.get_mut(&path) {
                    Some(course) => {
                        course.broken |= !alike(course.expected.as_ref(), before.as_ref());
                        course.expected = after;
                    }
                    None => {
                        courses.insert(path, Course { target: before, expected: after, broken: false });
                    }
                }
            }
        }
        Ok(courses)
    }

    /// The courses of what the user named, also of what no call has touched, as far as a look at the whole has seen it.
    fn named(
        &self,
        work: &mut Work<'_>,
        (chain, paths): (&[Checkpoint], &[PathBuf]),
        courses: Courses,
        memory: &mut HashMap<ObjectId, Tree>,
    ) -> Result<Courses, CheckpointError> {
        let whole = chain.iter().find(|checkpoint| checkpoint.whole).map(|checkpoint| checkpoint.before);
        let mut wanted = Courses::new();
        for path in paths {
            let touched = courses.iter().filter(|(known, _)| known.starts_with(path));
            let touched = touched.map(|(path, course)| {
                let broken = course.broken || !course.differs();
                (path.clone(), Course { broken, ..course.clone() })
            });
            let touched: Vec<_> = touched.collect();
            if touched.is_empty() && whole.is_none() {
                return Err(CheckpointError::Unseen { path: path.clone() });
            }
            if let Some(root) = whole {
                let now: Places = self.look_only(work, memory, |look| look.places(std::slice::from_ref(path)))?;
                let now = now.into_iter().find(|(known, _)| known == path).and_then(|(_, node)| node);
                let trees = Trees { store: work.store(), memory };
                let then = trees.below(path, trees.find(&root, path)?)?;
                let now = trees.below(path, now)?;
                if then.is_empty() && now.is_empty() && touched.is_empty() {
                    return Err(CheckpointError::Unseen { path: path.clone() });
                }
                // Nobody expects what stands there: it is not the task's.
                let foreign = |target| Course { target, expected: None, broken: true };
                wanted.extend(now.into_iter().map(|(path, _)| (path, foreign(None))));
                wanted.extend(then.into_iter().map(|(path, node)| (path, foreign(node))));
            }
            wanted.extend(touched);
        }
        Ok(wanted)
    }
}

/// The checkpoints of a task, the oldest first.
fn of_task(work: &Work<'_>, task: &str) -> Vec<Checkpoint> {
    work.store().checkpoints.iter().filter(|checkpoint| checkpoint.mark.task == task).cloned().collect()
}

/// The checkpoints from the goal to the end.
fn chain(work: &Work<'_>, task: &str, goal: &Goal) -> Result<Vec<Checkpoint>, CheckpointError> {
    let all = of_task(work, task);
    let pruned = work.store().pruned.get(task).copied().unwrap_or(0);
    let gone = || CheckpointError::Pruned { task: task.to_owned(), through: pruned };
    let nothing = || CheckpointError::Nothing { task: task.to_owned() };
    if all.is_empty() {
        return Err(if pruned > 0 { gone() } else { CheckpointError::NoTask { task: task.to_owned() } });
    }
    let standing = standing(&all);
    let first = match goal {
        Goal::Start => *standing.first().ok_or_else(nothing)?,
        Goal::Last(count) => {
            let at = standing.len().checked_sub(*count);
            let missing = || if pruned > 0 { gone() } else { nothing() };
            match at {
                Some(at) => *standing.get(at).ok_or_else(nothing)?,
                None => return Err(missing()),
            }
        }
        Goal::Before(number, _) if *number <= pruned => return Err(gone()),
        Goal::Before(number, _) => *number,
    };
    let last = all.iter().map(|checkpoint| checkpoint.number).max().unwrap_or(0);
    let chain: Vec<_> = all.into_iter().filter(|checkpoint| checkpoint.number >= first).collect();
    if first == 0 || first > last {
        return Err(CheckpointError::NoCall { task: task.to_owned(), number: first, last });
    }
    Ok(chain)
}

/// The numbers of the calls that stand, after everything that was gone back on.
fn standing(all: &[Checkpoint]) -> Vec<u32> {
    let mut before: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut standing = Vec::new();
    for checkpoint in all {
        before.insert(checkpoint.number, standing.clone());
        match checkpoint.what {
            What::Call if checkpoint.after.is_some_and(|after| after.root == checkpoint.before) => {}
            What::Call | What::Part => standing.push(checkpoint.number),
            // One that was broken off has to be gone again.
            What::Back { to } if checkpoint.after.is_some_and(|after| !after.late) => {
                standing = before.get(&to).cloned().unwrap_or_default();
            }
            What::Back { .. } => {}
        }
    }
    standing
}

/// Paths that other tasks have changed since the chain began, and which task did.
fn others(
    work: &Work<'_>,
    chain: &[Checkpoint],
    memory: &HashMap<ObjectId, Tree>,
) -> Result<BTreeMap<PathBuf, String>, CheckpointError> {
    let Some(first) = chain.first() else { return Ok(BTreeMap::new()) };
    let trees = Trees { store: work.store(), memory };
    let mut found = BTreeMap::new();
    // A command of another task may only have been there while this one worked; a file that a call named is its own.
    let foreign = |other: &&Checkpoint| {
        other.id > first.id && other.mark.task != first.mark.task && !other.whole && other.what == What::Call
    };
    for other in work.store().checkpoints.iter().filter(foreign) {
        let Some(after) = other.after else { continue };
        let before = Checkpoints::state(work, other, other.before)?;
        let after = Checkpoints::state(work, other, after.root)?;
        let paths = trees.differences(&before, &after)?.into_iter().map(|difference| difference.path);
        found.extend(paths.map(|path| (path, other.mark.task.clone())));
    }
    Ok(found)
}

fn hindrance(course: &Course, now: Option<&Node>, other: Option<&String>) -> Option<Hindrance> {
    match &course.target {
        Some(Node::NotKept { why, .. }) => return Some(Hindrance::NotKept(*why)),
        Some(Node::Special) => return Some(Hindrance::Special),
        _ => {}
    }
    // A folder that could not be kept cannot be taken away either: what it holds would be lost.
    if let Some(Node::NotKept { why, folder: true, .. }) = &course.expected {
        return Some(Hindrance::NotKept(*why));
    }
    let changed = course.broken || !alike(course.expected.as_ref(), now);
    match now {
        Some(Node::NotKept { why, .. }) if changed || other.is_some() => Some(Hindrance::Lost(*why)),
        _ if changed => Some(Hindrance::ChangedSince),
        _ => other.map(|task| Hindrance::OtherTask(task.clone())),
    }
}

/// What is to come into a folder cannot, where something else stands in the folder's place and is left alone. `items` are
/// sorted, so that a folder comes right before what is in it.
fn hinder_below(items: &mut [Item]) {
    let mut obstacle: Option<(PathBuf, bool)> = None;
    for item in items {
        let Item { path, now, target, hindrance } = item;
        match &obstacle {
            Some((above, forceable)) if path.starts_with(above) => {
                if target.is_some() && hindrance.as_ref().is_none_or(Hindrance::can_be_forced) {
                    *hindrance = Some(Hindrance::Under { path: above.clone(), forceable: *forceable });
                }
            }
            _ => {
                let stands = now.as_ref().is_some_and(|now| !now.is_folder());
                let comes = matches!(target, Some(Node::Folder { .. }));
                obstacle =
                    hindrance.as_ref().filter(|_| stands && comes).map(|why| (path.clone(), why.can_be_forced()));
            }
        }
    }
}

/// Whether two states of one path are the same to somebody who looks at this path alone.
fn alike(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.same(other),
        (None, None) => true,
        _ => false,
    }
}

impl Plan {
    /// The paths that would be changed.
    pub(super) fn paths(&self, force: bool) -> BTreeSet<&Path> {
        self.items.iter().filter(|item| item.goes(force)).map(|item| item.path.as_path()).collect()
    }
}

impl Item {
    /// Whether it is gone back on.
    #[must_use]
    pub fn goes(&self, force: bool) -> bool {
        self.hindrance.as_ref().is_none_or(|hindrance| force && hindrance.can_be_forced())
    }
}
