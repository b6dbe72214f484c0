//! Finds the task that a user names on a command line, by one rule for all commands.
//!
//! A name is, in this order: an id or the beginning of one; `@N`, the N-th newest task of this
//! folder; the end of an id, which is random, while ids of the same minute share a prefix; or words of the
//! first message. Without a name the newest task of this folder is meant. *This folder* is the
//! current one, or the nearest folder with tasks above it, up to the root of the repository.

use std::path::{Path, PathBuf};

use sabir_agent::{TaskId, TaskOrigin, TaskOutcome};
use sabir_journal::TaskSummary;

use crate::environment::Environment;
use crate::error::SessionError;
use crate::setup;

/// The least number of characters of the end of an id.
const MIN_ENDING: usize = 4;
/// The number of characters of the end of an id that lists show.
const SHORT_NAME: usize = 6;
/// The most tasks that an error lists.
const MAX_LISTED: usize = 5;
/// The longest title in an error, in characters.
const MAX_TITLE_CHARS: usize = 50;

/// Finds tasks from the point of view of a folder.
#[derive(Debug)]
pub struct TaskLookup {
    journals: PathBuf,
    folder: PathBuf,
    /// The tasks of all folders that a user began, the newest first.
    tasks: Vec<TaskSummary>,
}

impl TaskLookup {
    /// Reads the tasks, to find them from this folder or the current one.
    ///
    /// # Errors
    /// When the folder cannot be opened, or the journals cannot be listed.
    pub fn open(environment: &Environment, folder: Option<&Path>) -> Result<Self, SessionError> {
        let given = folder.unwrap_or(Path::new("."));
        let here = std::fs::canonicalize(given).map_err(|error| {
            let shown = given.display();
            let problem = match error.kind() {
                std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
                _ => error.to_string(),
            };
            SessionError::invalid(format!("the folder {shown} cannot be opened: {problem}"))
        })?;
        let journals = environment.tasks_folder()?;
        let listed = sabir_journal::list_journals(&journals)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        // A subtask belongs to its parent, and an imported history was not begun here.
        let is_own = |summary: &TaskSummary| {
            !matches!(
                summary.from,
                Some(TaskOrigin::Import { .. } | TaskOrigin::Subtask { .. })
            )
        };
        let tasks: Vec<_> = listed
            .into_iter()
            // One damaged journal must not hide all other tasks.
            .filter_map(|listed| listed.summary.ok())
            .filter(is_own)
            .collect();
        let home = environment.home_folder.as_deref();
        // A folder that was named is meant exactly.
        let folder = match folder {
            Some(_) => here,
            None => nearest_workspace(&here, &tasks, home).unwrap_or(here),
        };
        Ok(Self {
            journals,
            folder,
            tasks,
        })
    }

    /// Returns the folder whose tasks are meant.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the tasks of the folder, the newest first: `@1`, `@2` and so on.
    pub fn folder_tasks(&self) -> impl Iterator<Item = &TaskSummary> {
        self.tasks
            .iter()
            .filter(|summary| Path::new(&summary.workspace) == self.folder)
    }

    /// Finds the task of that name, or the newest one of the folder.
    ///
    /// # Errors
    /// When there is none, or several could be meant.
    pub fn find(&self, name: Option<&str>) -> Result<TaskId, SessionError> {
        match name {
            Some(name) => self.find_named(name),
            None => self.newest(false),
        }
    }

    /// Finds the newest task of the folder; with `unfinished_only` the newest that did not complete.
    ///
    /// # Errors
    /// When there is none.
    pub fn newest(&self, unfinished_only: bool) -> Result<TaskId, SessionError> {
        let is_open =
            |task: &&TaskSummary| !unfinished_only || task.ended != Some(TaskOutcome::Completed);
        let newest = self.folder_tasks().find(is_open);
        newest.map(|task| task.id.clone()).ok_or_else(|| {
            let wanted = if unfinished_only {
                "no task that could be resumed"
            } else {
                "no task"
            };
            let folder = self.folder.display();
            let all = "`sabir tasks --everywhere` lists all";
            // Every task of the folder is completed, if it has any here.
            SessionError::invalid(match self.folder_tasks().next() {
                Some(_) => format!(
                    "there is {wanted} in this folder ({folder}): the newest is completed, and `sabir -c WORDS` continues it; {all}"
                ),
                None => format!("there is {wanted} in this folder ({folder}); {all}"),
            })
        })
    }

    fn find_named(&self, name: &str) -> Result<TaskId, SessionError> {
        if let Some(number) = name
            .strip_prefix('@')
            .and_then(|number| number.parse().ok())
        {
            return self.find_numbered(number);
        }
        match setup::find_task(&self.journals, name) {
            Err(SessionError::UnknownTask(_)) => {}
            found => return found,
        }
        if let Some(id) = self.find_by_ending(name)? {
            return Ok(id);
        }
        let here: Vec<_> = self
            .folder_tasks()
            .filter(|task| has_words(task, name))
            .collect();
        let everywhere = || {
            self.tasks
                .iter()
                .filter(|task| has_words(task, name))
                .collect()
        };
        let found: Vec<_> = if here.is_empty() { everywhere() } else { here };
        match found.as_slice() {
            [task] => Ok(task.id.clone()),
            [] => Err(SessionError::UnknownTask(name.to_owned())),
            several => Err(SessionError::AmbiguousWords {
                words: name.to_owned(),
                count: several.len(),
                tasks: describe_tasks(several),
            }),
        }
    }

    /// Finds the N-th newest task of the folder.
    fn find_numbered(&self, number: usize) -> Result<TaskId, SessionError> {
        let task = number
            .checked_sub(1)
            .and_then(|at| self.folder_tasks().nth(at));
        task.map(|task| task.id.clone()).ok_or_else(|| {
            let count = self.folder_tasks().count();
            let has = if count == 1 {
                "1 task".to_owned()
            } else {
                format!("{count} tasks")
            };
            SessionError::invalid(format!(
                "there is no task @{number}: {} has {has}; `sabir tasks` lists them",
                self.folder.display()
            ))
        })
    }

    /// Finds the task whose id ends so.
    fn find_by_ending(&self, ending: &str) -> Result<Option<TaskId>, SessionError> {
        let is_ending =
            ending.len() >= MIN_ENDING && ending.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if !is_ending {
            return Ok(None);
        }
        let all = sabir_journal::list_task_ids(&self.journals)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        let mut found = all.into_iter().filter(|id| id.as_str().ends_with(ending));
        let Some(first) = found.next() else {
            return Ok(None);
        };
        match found.count() {
            0 => Ok(Some(first)),
            more => Err(SessionError::AmbiguousTask {
                name: ending.to_owned(),
                count: more + 1,
                example: first,
            }),
        }
    }
}

/// Returns the short name of a task: the end of its id.
pub fn short_name(id: &TaskId) -> &str {
    let id = id.as_str();
    id.get(id.len().saturating_sub(SHORT_NAME)..).unwrap_or(id)
}

/// Returns the nearest folder, from `here` upwards, in which tasks worked. The search ends with the
/// repository; the home and the root count only if they are `here`.
fn nearest_workspace(here: &Path, tasks: &[TaskSummary], home: Option<&Path>) -> Option<PathBuf> {
    for folder in here.ancestors() {
        let is_wide = folder.parent().is_none() || Some(folder) == home;
        if is_wide && folder != here {
            return None;
        }
        if tasks
            .iter()
            .any(|task| Path::new(&task.workspace) == folder)
        {
            return Some(folder.to_path_buf());
        }
        if folder.join(".git").exists() {
            return None;
        }
    }
    None
}

/// Reports whether the first message of a task contains all of the words, in any order and case.
fn has_words(task: &TaskSummary, words: &str) -> bool {
    let prompt = task.prompt.to_lowercase();
    let mut words = words.split_whitespace().peekable();
    words.peek().is_some() && words.all(|word| prompt.contains(&word.to_lowercase()))
}

/// Names the first of several tasks, for an error.
fn describe_tasks(tasks: &[&TaskSummary]) -> String {
    let line = |task: &&TaskSummary| {
        let title: String = task
            .prompt
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(MAX_TITLE_CHARS)
            .collect();
        format!("{} ({title})", short_name(&task.id))
    };
    let named: Vec<_> = tasks.iter().take(MAX_LISTED).map(line).collect();
    named.join(", ")
}
