//! Looks at what fills a task's context, and compacts it, without continuing the task: nothing runs, and but for a summary no model is
//! asked.

use std::sync::Arc;

use sabir_agent::{
    Attended, Author, Effect, Filling, Input, Outcome, Preview, Record, Shift, Start, Store, Task, TaskId, Trail,
};
use sabir_call::{Event, Model};
use sabir_journal::Journal;
use sabir_workspace::{Level, Sandbox};

use crate::config::{Chosen, Config};
use crate::error::SessionError;
use crate::host::Host;
use crate::locked;
use crate::modes::{self, Begun};
use crate::setup::{self, TaskSetup, ToolResources};
use crate::spec::{SandboxSpec, SessionSpec};

/// The context of a task that does not run.
#[derive(Debug)]
pub struct TaskContext {
    task: Task,
    /// Open where the context may be changed.
    journal: Option<Journal>,
    config: Arc<Config>,
    /// The model that is asked instead of the task's own.
    model: Option<String>,
}

/// Who writes the summary of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryAuthor {
    /// The task's model.
    Model,
    /// Sabir: a line for each call. No model is asked.
    Sabir,
}

impl TaskContext {
    /// Opens the context of a task to look at it.
    ///
    /// # Errors
    /// When the task cannot be read.
    pub fn read(host: &Host, id: &TaskId, config: Config, model: Option<&str>) -> Result<Self, SessionError> {
        let folder = host.environment().tasks_folder()?;
        let (entries, _) =
            sabir_journal::read(&folder, id).map_err(|error| SessionError::invalid(error.to_string()))?;
        let mut records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
        // What fills a completed task can be looked at all the same.
        records.pop_if(|last| matches!(last, Record::Ended { outcome: Outcome::Completed, .. }));
        let task = replayed(records, &config, model)?;
        Ok(Self { task, journal: None, config: Arc::new(config), model: model.map(str::to_owned) })
    }

    /// Opens the context of a task to change it. No other process can work on the task meanwhile.
    ///
    /// # Errors
    /// When the task cannot be read, is completed, or another process works on it.
    pub fn open(host: &Host, id: &TaskId, config: Config, model: Option<&str>) -> Result<Self, SessionError> {
        let folder = host.environment().tasks_folder()?;
        let (journal, entries, _) = Journal::open(&folder, id, host.environment().journal_clock())
            .map_err(|error| SessionError::invalid(error.to_string()))?;
        let records = entries.into_iter().map(|entry| entry.record).collect();
        let task = replayed(records, &config, model)?;
        Ok(Self { task, journal: Some(journal), config: Arc::new(config), model: model.map(str::to_owned) })
    }

    /// What fills the context.
    pub fn filling(&self) -> Filling {
        self.task.filling()
    }

    /// What a compaction would make of it; `None` where there is nothing to leave out.
    pub fn preview(&self) -> Option<Preview> {
        self.task.preview()
    }

    /// Compacts the context; `None`: there was nothing to leave out.
    ///
    /// # Errors
    /// When the journal cannot be written, or the model cannot be chosen.
    pub async fn compact(&mut self, author: SummaryAuthor) -> Result<Option<Shift>, SessionError> {
        let author = match author {
            SummaryAuthor::Model => Author::Model,
            SummaryAuthor::Sabir => Author::Sabir,
        };
        self.change(Input::Compact(author)).await
    }

    /// Undoes the last compaction; `None`: there was none.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub async fn restore(&mut self) -> Result<Option<Shift>, SessionError> {
        self.change(Input::Restore).await
    }

    async fn change(&mut self, input: Input<'_>) -> Result<Option<Shift>, SessionError> {
        let mut changed = None;
        let mut effects = self.task.step(input);
        while !effects.is_empty() {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Keep(record) => {
                        if let Some(journal) = &mut self.journal {
                            journal.append(&record).map_err(|error| SessionError::internal(error.to_string()))?;
                        }
                        changed = if let Record::Context(shift) = record { Some(shift) } else { changed };
                    }
                    Effect::Ask => effects = self.summarise().await?,
                    _ => {}
                }
            }
        }
        Ok(changed)
    }

    async fn summarise(&mut self) -> Result<Vec<Effect>, SessionError> {
        let mode = self.task.trail().mode().to_owned();
        let chosen = present_model(self.task.start(), &mode, &self.config, self.model.as_deref())?;
        let model = chosen.model(|model| model);
        let request = self.task.request();
        let task = &mut self.task;
        let mut sink = |event: Event<'_>| _ = task.step(Input::Event(event));
        let answer = model.answer(&request, &mut sink).await;
        Ok(self.task.step(answer.map_or_else(Input::Failed, |()| Input::Answered)))
    }
}

/// The task of these records, in the context that it would be resumed in.
fn replayed(records: Vec<Record>, config: &Config, model: Option<&str>) -> Result<Task, SessionError> {
    let Some(Record::Started(start)) = records.first() else {
        return Err(SessionError::invalid("the journal does not begin with the start of a task"));
    };
    let sandbox = SandboxSpec { level: Some("off".to_owned()), network: false };
    let spec = SessionSpec { no_checkpoints: true, sandbox, ..SessionSpec::default() };
    let spec = setup::with_kept_mode(&records, &spec);
    let resources = ToolResources {
        edit_tool: locked::kept_edit_tool(start, &spec)?,
        jobs: setup::passing_jobs(&config.environment),
        keeper: None,
        sandbox: Sandbox::new(Level::Off),
        household: None,
    };
    let folder = setup::workspace_of(start);
    let setup = TaskSetup::new(&spec, config, Some(&folder), resources)?;
    // How much there is room for is good to know, and no more.
    let chosen = present_model(start, Trail::of(&records).mode(), config, model).ok();
    let (setup, model_id) = match chosen {
        Some(chosen) => (setup.priced(&chosen)?, chosen.id),
        None => (setup, start.model.clone()),
    };
    let settings = setup.settings(&model_id, Attended::No);
    let id = start.task.clone();
    let task = Task::replay(records, settings).map_err(|error| SessionError::invalid(format!("{id}: {error}")))?;
    Ok(task.within(setup.context))
}

/// The model of a task that is in that mode.
fn present_model(start: &Start, mode: &str, config: &Config, model: Option<&str>) -> Result<Chosen, SessionError> {
    let spec = SessionSpec { model: model.map(str::to_owned), ..SessionSpec::default() };
    let begun = Begun { mode: setup::begun_mode(start), model: &start.model, protocol: &start.protocol };
    modes::chosen(mode, begun, config, &spec).map(|(chosen, _)| chosen)
}
