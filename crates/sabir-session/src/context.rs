//! Shows, compacts and restores the context of a task without continuing the task. No tool runs, and a model is asked only for a
//! summary.

use std::sync::Arc;

use sabir_agent::{
    CompactionPreview, ContextChange, ContextUsage, Interactivity, ModeHistory, Record,
    RecordStore, SummaryAuthor, Task, TaskEffect, TaskId, TaskInput, TaskOutcome, TaskStart,
};
use sabir_call::{Event, Model};
use sabir_journal::Journal;
use sabir_workspace::{Sandbox, SandboxLevel};

use crate::config::{Config, ResolvedModel};
use crate::error::SessionError;
use crate::host::Host;
use crate::instructions;
use crate::locked;
use crate::modes::{self, InitialMode};
use crate::setup::{self, TaskSetup, ToolResources};
use crate::spec::{SandboxSpec, SessionSpec};

/// The context of a task that does not run.
#[derive(Debug)]
pub struct TaskContext {
    task: Task,
    /// The journal, if the context may be changed.
    journal: Option<Journal>,
    config: Arc<Config>,
    /// The name of a model to use instead of the task's own.
    model: Option<String>,
}

impl TaskContext {
    /// Opens the context of a task for inspection.
    ///
    /// # Errors
    /// When the task cannot be read.
    pub fn open_read_only(
        host: &Host,
        id: &TaskId,
        config: Config,
        model: Option<&str>,
    ) -> Result<Self, SessionError> {
        let folder = host.environment().tasks_folder()?;
        // Read without the lock, so that the context of a working task can be shown.
        let (entries, _) = sabir_journal::read_journal(&folder, id)
            .map_err(|error| SessionError::invalid(error.to_string()))?;
        let mut records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
        // A completed task cannot be replayed to continue. Without its end, its context can still
        // be shown.
        records.pop_if(|last| {
            matches!(
                last,
                Record::Ended {
                    outcome: TaskOutcome::Completed,
                    ..
                }
            )
        });
        let task = replay_for_context(records, &config, model)?;
        Ok(Self {
            task,
            journal: None,
            config: Arc::new(config),
            model: model.map(str::to_owned),
        })
    }

    /// Opens the context of a task to change it. No other process can work on the task meanwhile.
    ///
    /// # Errors
    /// When the task cannot be read, is completed, or another process works on it.
    pub fn open_for_change(
        host: &Host,
        id: &TaskId,
        config: Config,
        model: Option<&str>,
    ) -> Result<Self, SessionError> {
        let folder = host.environment().tasks_folder()?;
        // Opened with the lock: a running task would not see what is appended here.
        let (journal, entries, _) = Journal::open(&folder, id, host.environment().journal_clock())
            .map_err(|error| SessionError::invalid(error.to_string()))?;
        let records = entries.into_iter().map(|entry| entry.record).collect();
        let task = replay_for_context(records, &config, model)?;
        Ok(Self {
            task,
            journal: Some(journal),
            config: Arc::new(config),
            model: model.map(str::to_owned),
        })
    }

    /// Returns the contents of the context and their sizes.
    pub fn context_usage(&self) -> ContextUsage {
        self.task.context_usage()
    }

    /// Returns the result that a compaction would have; `None` if there is nothing to leave out.
    pub fn preview_compaction(&self) -> Option<CompactionPreview> {
        self.task.preview_compaction()
    }

    /// Compacts the context; returns `None` if there was nothing to leave out.
    ///
    /// # Errors
    /// When the journal cannot be written, or the model cannot be chosen.
    pub async fn compact_context(
        &mut self,
        author: SummaryAuthor,
    ) -> Result<Option<ContextChange>, SessionError> {
        self.apply_input(TaskInput::Compact(author)).await
    }

    /// Undoes the last compaction; returns `None` if there was none.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub async fn undo_compaction(&mut self) -> Result<Option<ContextChange>, SessionError> {
        self.apply_input(TaskInput::UndoCompaction).await
    }

    async fn apply_input(
        &mut self,
        input: TaskInput<'_>,
    ) -> Result<Option<ContextChange>, SessionError> {
        let mut changed = None;
        let mut effects = self.task.step(input);
        while !effects.is_empty() {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    TaskEffect::PersistRecord(record) => {
                        if let Some(journal) = &mut self.journal {
                            journal
                                // Kept before the next effect, as the driver does it.
                                .append(&record)
                                .map_err(|error| SessionError::internal(error.to_string()))?;
                        }
                        changed = if let Record::Context(shift) = record {
                            Some(shift)
                        } else {
                            changed
                        };
                    }
                    TaskEffect::RequestModel => effects = self.request_summary().await?,
                    // A task that does not run asks nobody and runs no tool.
                    _ => {}
                }
            }
        }
        Ok(changed)
    }

    async fn request_summary(&mut self) -> Result<Vec<TaskEffect>, SessionError> {
        let mode = self.task.mode_history().current_mode().to_owned();
        let chosen = present_model(
            self.task.start_record(),
            &mode,
            &self.config,
            self.model.as_deref(),
        )?;
        // Retries are not shown: there is no session that could publish them.
        let model = chosen.build_model(|model| model);
        let request = self.task.model_request();
        let task = &mut self.task;
        let mut sink = |event: Event<'_>| _ = task.step(TaskInput::ModelEvent(event));
        let answer = model.stream_response(&request, &mut sink).await;
        Ok(self
            .task
            .step(answer.map_or_else(TaskInput::ModelFailed, |()| TaskInput::ModelFinished)))
    }
}

/// Replays a task from its records, with the context that it would be resumed in.
fn replay_for_context(
    records: Vec<Record>,
    config: &Config,
    model: Option<&str>,
) -> Result<Task, SessionError> {
    let Some(Record::Started(start)) = records.first() else {
        return Err(SessionError::invalid(
            "the journal does not begin with the start of a task",
        ));
    };
    let sandbox = SandboxSpec {
        // No command runs here, so no sandbox is set up.
        level: Some("off".to_owned()),
        network: None,
    };
    let spec = SessionSpec {
        no_checkpoints: true,
        sandbox,
        ..SessionSpec::default()
    };
    let spec = setup::with_kept_mode(&records, &spec);
    let resources = ToolResources {
        edit_tool: locked::locked_edit_tool(start, &spec)?,
        jobs: setup::temporary_jobs(&config.environment),
        checkpointer: None,
        sandbox: Sandbox::new(SandboxLevel::Off),
        subtask_spawner: None,
        seen_files: Vec::new(),
        sent_instructions: instructions::sent_instructions(&records),
        skill_tool: None,
        editor: None,
    };
    let folder = setup::workspace_of(start);
    let setup = TaskSetup::new(&spec, config, Some(&folder), resources)?;
    // The model is needed for the size of its window only, so a missing key or provider is not an
    // error here.
    let chosen = present_model(
        start,
        ModeHistory::from_records(&records).current_mode(),
        config,
        model,
    )
    .ok();
    let (setup, model_id) = match chosen {
        Some(chosen) => (setup.with_prices(&chosen)?, chosen.id),
        None => (setup, start.model.clone()),
    };
    let settings = setup.task_settings(&model_id, Interactivity::Headless);
    let id = start.task.clone();
    let task = Task::replay(records, settings)
        .map_err(|error| SessionError::invalid(format!("{id}: {error}")))?;
    Ok(task.with_context(setup.context))
}

/// Returns the model of a task in a mode; `model` overrides it.
fn present_model(
    start: &TaskStart,
    mode: &str,
    config: &Config,
    model: Option<&str>,
) -> Result<ResolvedModel, SessionError> {
    let spec = SessionSpec {
        model: model.map(str::to_owned),
        ..SessionSpec::default()
    };
    let begun = InitialMode {
        mode: setup::start_mode(start),
        model: &start.model,
        protocol: &start.protocol,
    };
    modes::resolve_mode_model(mode, begun, config, &spec).map(|(chosen, _)| chosen)
}
