//! Lists the tasks that have a journal, as a tree of tasks and subtasks.

use std::path::Path;

use sabir_agent::{TaskId, TaskOrigin};
use sabir_journal::JournalError;
pub use sabir_journal::{JournalEntry, JournalListing};

use crate::environment::Environment;
use crate::error::SessionError;

/// Tasks that have a journal, the newest first.
///
/// Unlike [`Host::list`](crate::Host::list) it keeps journals that cannot be read, so that a user sees that they are there.
#[derive(Debug)]
pub struct TaskList {
    folder: std::path::PathBuf,
    tasks: Vec<JournalListing>,
}

impl TaskList {
    /// Reads the tasks of a folder, or of all folders, whose prompt contains all of `words`, in any order and case. Journals that
    /// cannot be read belong to every folder.
    ///
    /// # Errors
    /// When there is no data folder, or it cannot be read.
    pub fn read(
        environment: &Environment,
        workspace: Option<&Path>,
        words: &[String],
    ) -> Result<Self, SessionError> {
        let folder = environment.tasks_folder()?;
        let mut tasks = sabir_journal::list_journals(&folder)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        // An empty journal has no task: its process was killed before the first record, or is just
        // starting. The file is kept for the second case.
        tasks.retain(|listed| !matches!(listed.summary, Err(JournalError::Empty { .. })));
        if let Some(workspace) = workspace {
            let is_here = |listed: &JournalListing| {
                let summary = listed.summary.as_ref();
                summary.map_or(true, |summary| Path::new(&summary.workspace) == workspace)
            };
            tasks.retain(is_here);
        }
        let wanted: Vec<_> = words
            .iter()
            .flat_map(|words| words.split_whitespace())
            .map(str::to_lowercase)
            .collect();
        if !wanted.is_empty() {
            // All words must be in the prompt. A journal that cannot be read has none, so it
            // matches no search.
            tasks.retain(|listed| {
                let prompt = listed
                    .summary
                    .as_ref()
                    .map(|summary| summary.prompt.to_lowercase());
                prompt.is_ok_and(|prompt| wanted.iter().all(|word| prompt.contains(word)))
            });
        }
        Ok(Self { folder, tasks })
    }

    /// Reads the records of a task; none if that cannot be done.
    pub fn read_records(&self, task: &TaskId) -> Vec<JournalEntry> {
        sabir_journal::read_journal(&self.folder, task)
            .map(|(entries, _)| entries)
            .unwrap_or_default()
    }

    /// Returns all tasks of the list.
    pub fn tasks(&self) -> &[JournalListing] {
        &self.tasks
    }

    /// Returns the tasks that belong at the top: those without a parent in the list.
    pub fn top_tasks(&self) -> impl Iterator<Item = &JournalListing> {
        // A subtask whose parent was left out, or has no journal any more, is listed at the top.
        let is_here = |id: &TaskId| self.tasks.iter().any(|other| other.id == *id);
        self.tasks
            .iter()
            .filter(move |one| parent_id(one).is_none_or(|parent| !is_here(parent)))
    }

    /// Returns the subtasks that a task started, oldest first.
    pub fn subtasks(&self, task: &TaskId) -> impl Iterator<Item = &JournalListing> {
        self.tasks
            .iter()
            // The list begins with the newest, and subtasks are shown in the order in which they
            // began.
            .rev()
            .filter(move |one| parent_id(one) == Some(task))
    }

    /// Counts the subtasks of a task on all levels.
    pub fn count_descendants(&self, task: &TaskId) -> usize {
        self.subtasks(task)
            .map(|child| 1 + self.count_descendants(&child.id))
            .sum()
    }

    /// Counts the records of a task, which reads its whole journal; `None` if that cannot be done.
    pub fn count_records(&self, task: &TaskId) -> Option<u64> {
        sabir_journal::count_records(&self.folder, task).ok()
    }
}

/// Returns the parent of a subtask.
fn parent_id(listed: &JournalListing) -> Option<&TaskId> {
    match &listed.summary.as_ref().ok()?.from {
        // A damaged journal could name itself, and the tree would have no end.
        Some(TaskOrigin::Subtask { task, .. }) if *task != listed.id => Some(task),
        _ => None,
    }
}
