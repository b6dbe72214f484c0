//! Implements the host, which starts, loads, forks and lists tasks with the environment, configuration and journals of one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{Record, TaskId, TaskOrigin, TaskOutcome, TaskStart, UserMessage};
use sabir_journal::{JournalEntry, TaskSummary};
use sabir_tools::Editor;

use crate::config::{Config, read_regular_file};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::hooks::HookCallbacks;
use crate::hub::EventHub;
use crate::images::ImageSupport;
use crate::loading::{self, LoadedSession};
use crate::locked;
use crate::mcp::FormElicitor;
use crate::modes::{self, InitialMode};
use crate::notice::{NoticeSink, NoticeTopic};
use crate::session::Session;
use crate::setup;
use crate::spec::{RecordMode, SessionSpec};
use crate::task_lookup::TaskLookup;

/// Starts, loads, forks and lists tasks. A process needs one; clones share everything.
#[derive(Debug, Clone)]
pub struct Host {
    /// The variables, folders and clock of the process.
    environment: Arc<Environment>,
    /// Receives notices that belong to no session.
    notices: NoticeSink,
    /// The hooks of the program that drives the sessions.
    pub(crate) hook_callbacks: Option<Arc<dyn HookCallbacks>>,
    /// The editor in which the user has files open.
    pub(crate) editor: Option<Arc<dyn Editor>>,
    /// Shows the questions of MCP servers as forms.
    pub(crate) form_elicitor: Option<Arc<dyn FormElicitor>>,
}

/// Selects tasks for a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// The folder whose tasks are listed; `None` for all folders.
    pub workspace: Option<PathBuf>,
    /// Leaves out tasks that were completed.
    pub unfinished_only: bool,
    /// Leaves out subtasks and imported histories.
    pub own_only: bool,
}

impl Host {
    /// Creates a host in an environment. It discards notices that belong to no session.
    pub fn new(environment: Environment) -> Self {
        Self {
            environment: Arc::new(environment),
            notices: NoticeSink::default(),
            hook_callbacks: None,
            editor: None,
            form_elicitor: None,
        }
    }

    /// Sets the receiver of notices that belong to no session.
    #[must_use]
    pub fn with_notices(self, notices: NoticeSink) -> Self {
        Self { notices, ..self }
    }

    /// Sets hooks that the program answers itself, beside those of files. They hold for the sessions that this host and its clones
    /// start afterwards, and for their subtasks.
    #[must_use]
    pub fn with_hook_callbacks(self, callbacks: Arc<dyn HookCallbacks>) -> Self {
        Self {
            hook_callbacks: Some(callbacks),
            ..self
        }
    }

    /// Sets the editor in which the user has files open. The file tools of the sessions that this host and its clones start afterwards,
    /// and of their subtasks, read and change the text of its buffers, also where it is not saved.
    #[must_use]
    pub fn with_editor(self, editor: Arc<dyn Editor>) -> Self {
        Self {
            editor: Some(editor),
            ..self
        }
    }

    /// Sets the front end's way to ask the questions of MCP servers as forms, in the sessions that this host and its clones start
    /// afterwards.
    #[must_use]
    pub fn with_form_elicitor(self, form_elicitor: Arc<dyn FormElicitor>) -> Self {
        Self {
            form_elicitor: Some(form_elicitor),
            ..self
        }
    }

    /// Reads a settings file that a command line names.
    ///
    /// # Errors
    /// When it cannot be read, or is not a regular file.
    pub fn read_settings_file(&self, path: &Path) -> Result<String, SessionError> {
        Ok(read_regular_file(path)?.0)
    }

    /// Returns the environment.
    pub fn environment(&self) -> &Arc<Environment> {
        &self.environment
    }

    /// Starts a new task with `first` as its prompt. Must be called within a tokio runtime, which then drives the task.
    ///
    /// With [`RecordMode::Replay`] the task is replayed from a recording; an empty `first` keeps the recorded prompt.
    ///
    /// # Errors
    /// When the spec or the configuration cannot be used, or the journal cannot be made.
    pub async fn start(
        &self,
        spec: SessionSpec,
        first: UserMessage,
    ) -> Result<Session, SessionError> {
        self.start_with_id(self.new_task_id(), spec, first).await
    }

    /// Starts a new task as [`Host::start`] does, with an id from [`Host::new_task_id`] that was given out before. A replay has an id of
    /// its own.
    ///
    /// # Errors
    /// When the spec or the configuration cannot be used, the journal cannot be made, or a task has this id.
    pub async fn start_with_id(
        &self,
        id: TaskId,
        spec: SessionSpec,
        first: UserMessage,
    ) -> Result<Session, SessionError> {
        let hub = EventHub::new();
        let loaded = match spec.record.clone() {
            RecordMode::Replay(file) => loading::replay_new(self, &spec, &file, first, &hub)?,
            _ => loading::create_session(self, id, &spec, first, &hub).await?,
        };
        wait_for_servers(&hub).await?;
        Ok(self.spawn_session(loaded, hub))
    }

    /// Loads a task to continue it, with `message` for the model. A completed task needs a message. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// When there is no such task, another process works on it, or it cannot be continued.
    pub async fn load(
        &self,
        task: &TaskId,
        spec: SessionSpec,
        message: Option<UserMessage>,
    ) -> Result<Session, SessionError> {
        let hub = EventHub::new();
        let images = message.as_ref().map(|message| message.images.clone());
        let mut loaded = loading::resume_session(self, task, &spec, message, &hub)?;
        if let Some(text) = loaded.words.take() {
            let images = images.unwrap_or_default();
            let message = loading::expand_prompt(UserMessage { text, images }, &hub).await?;
            let images = hub.image_support().get().check_images(message.images)?;
            loaded.opened.task.set_first_images(images);
            loaded.words = Some(message.text);
        }
        let hooks = loaded.setup.hooks.clone();
        let words = loaded.words.take();
        loaded.words = loading::begin_with_hooks(hooks, "resume", words).await?;
        wait_for_servers(&hub).await?;
        Ok(self.spawn_session(loaded, hub))
    }

    /// Replays a recording of a resumed task. `task`, if given, must be the recorded task or the beginning of its id; `message`
    /// replaces the recorded one.
    ///
    /// # Errors
    /// When the recording cannot be played.
    pub async fn replay_resumed(
        &self,
        file: &Path,
        task: Option<&str>,
        spec: SessionSpec,
        message: Option<String>,
    ) -> Result<Session, SessionError> {
        let hub = EventHub::new();
        let loaded = loading::replay_resumed(self, &spec, file, task, message, &hub)?;
        Ok(self.spawn_session(loaded, hub))
    }

    /// Returns the prompt of the task in a recording.
    ///
    /// # Errors
    /// When the recording cannot be played.
    pub fn recorded_prompt(recording: &[u8]) -> Result<String, SessionError> {
        Ok(crate::recording::parse_cassette(recording)?.1.start.prompt)
    }

    /// Replays a recording as a new task with a journal in the folder `journals`.
    ///
    /// # Errors
    /// When the recording cannot be played, or the journal cannot be made.
    pub async fn replay_with_journal(
        &self,
        recording: &[u8],
        spec: SessionSpec,
        journals: &Path,
    ) -> Result<Session, SessionError> {
        let hub = EventHub::new();
        let loaded = loading::replay_with_journal(self, &spec, recording, journals, &hub)?;
        Ok(Session::start_worker(self.clone(), loaded, hub))
    }

    /// Forks a task: creates a new one with the first `at` records of another, or with all of them. The other task does not change,
    /// and the new one does not run until it is loaded.
    ///
    /// # Errors
    /// When there is no such task or record, or the new task cannot be made.
    pub fn fork(
        &self,
        task: &TaskId,
        at: Option<usize>,
        spec: &SessionSpec,
    ) -> Result<TaskId, SessionError> {
        let (mut entries, recovery) =
            sabir_journal::read_journal(&self.environment.tasks_folder()?, task)
                .map_err(|error| SessionError::invalid(error.to_string()))?;
        let count = entries.len();
        let at = at.unwrap_or(count);
        if at == 0 || at > count {
            let records = if count == 1 {
                "1 record".to_owned()
            } else {
                format!("{count} records")
            };
            return Err(SessionError::invalid(format!(
                "the task {task} has {records}; `sabir log {task}` shows them"
            )));
        }
        // The journal of the other task is only read. The fork gets a journal of its own.
        entries.truncate(at);
        let Some(Record::Started(start)) = entries.first().map(|entry| &entry.record) else {
            return Err(SessionError::invalid(format!(
                "the journal of {task} does not begin with the start of a task"
            )));
        };
        let id = self.new_task_id();
        let start = TaskStart {
            task: id.clone(),
            from: Some(TaskOrigin::Fork {
                task: task.clone(),
                record: at as u64,
            }),
            ..self.forked_start(start.clone(), spec)?
        };
        // Without its end, so that the new task can continue.
        if entries
            .last()
            .is_some_and(|last| matches!(last.record, Record::Ended { .. }))
        {
            entries.pop();
        }
        let first = JournalEntry {
            at: self.environment.now_milliseconds(),
            record: Record::Started(start),
        };
        // The start is replaced, because it names the task, and the changed settings are in it.
        entries.splice(..1, [first]);
        // At the damage itself, calls without a result may have run in the original.
        if recovery.damaged_bytes > 0 && at == count {
            entries.push(JournalEntry {
                at: self.environment.now_milliseconds(),
                record: Record::Damaged {
                    bytes: recovery.damaged_bytes,
                    saved_as: None,
                },
            });
        }
        sabir_journal::write_journal(&self.environment.tasks_folder()?, &id, &entries)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        Ok(id)
    }

    /// Returns the start of a fork, with the changes of the spec.
    fn forked_start(
        &self,
        start: TaskStart,
        spec: &SessionSpec,
    ) -> Result<TaskStart, SessionError> {
        let config = self.load_config(spec.config.as_deref())?;
        let chosen = config.resolve_model(spec.model.as_deref().or(Some(&start.model)))?;
        let protocol = locked::task_protocol(
            &config.dialects,
            spec.protocol.as_deref(),
            Some(start.protocol),
            &chosen,
        )?;
        let edit_tool = match &spec.edit_tool {
            Some(wanted) => Some(
                locked::resolve_edit_tool(Some(wanted), &chosen)?
                    .name()
                    .to_owned(),
            ),
            None => start.edit_tool,
        };
        let folder = spec
            .workspace
            .as_deref()
            .unwrap_or(Path::new(&start.workspace));
        let workspace = std::fs::canonicalize(folder).map_err(|error| {
            let shown = folder.display();
            SessionError::invalid(format!(
                "the folder {shown} cannot be opened: {error}; give the one to work in with -C"
            ))
        })?;
        Ok(TaskStart {
            workspace: workspace.display().to_string(),
            model: chosen.name,
            protocol,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            edit_tool,
            // A later switch of modes is in the records, and wins over this one when the fork is
            // loaded.
            mode: spec.mode.clone().or(start.mode),
            ..start
        })
    }

    /// Lists tasks, the newest first. Journals that cannot be read are left out.
    ///
    /// # Errors
    /// When the folder of journals cannot be read.
    pub fn list(&self, filter: &TaskFilter) -> Result<Vec<TaskSummary>, SessionError> {
        let folder = self.environment.tasks_folder()?;
        let all = sabir_journal::list_journals(&folder)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        // A subtask belongs to its parent, and an imported history cannot be resumed.
        let is_wanted = |summary: &TaskSummary| {
            let is_foreign = matches!(
                summary.from,
                Some(TaskOrigin::Import { .. } | TaskOrigin::Subtask { .. })
            );
            let is_elsewhere = filter
                .workspace
                .as_ref()
                .is_some_and(|workspace| Path::new(&summary.workspace) != workspace);
            let is_finished = summary.ended == Some(TaskOutcome::Completed);
            !(filter.own_only && is_foreign
                || is_elsewhere
                || filter.unfinished_only && is_finished)
        };
        Ok(all
            .into_iter()
            // One damaged journal must not hide all other tasks.
            .filter_map(|listed| listed.summary.ok())
            .filter(is_wanted)
            .collect())
    }

    /// Reads the records of a task, also while it works.
    ///
    /// # Errors
    /// When there is no such task, or its journal cannot be read.
    pub fn read_records(&self, task: &TaskId) -> Result<Vec<Record>, SessionError> {
        let (entries, _) = sabir_journal::read_journal(&self.environment.tasks_folder()?, task)
            .map_err(|error| SessionError::invalid(error.to_string()))?;
        Ok(entries.into_iter().map(|entry| entry.record).collect())
    }

    /// Finds the task of that name, or the newest one of the current folder: see [`TaskLookup`].
    ///
    /// # Errors
    /// When there is none, or several could be meant.
    pub fn find_task(&self, name: Option<&str>) -> Result<TaskId, SessionError> {
        TaskLookup::open(&self.environment, None)?.find(name)
    }

    /// Returns a new id that no task has.
    pub fn new_task_id(&self) -> TaskId {
        TaskId::new(self.environment.unique_id().to_string())
    }

    /// Reports whether the model can read images: the model of a new task, or of a task to resume.
    ///
    /// # Errors
    /// When the model or the task is not known.
    pub fn image_support(
        &self,
        spec: &SessionSpec,
        task: Option<&TaskId>,
    ) -> Result<ImageSupport, SessionError> {
        let config = self.load_config(spec.config.as_deref())?;
        // A new task: its mode may have a model of its own.
        let Some(task) = task else {
            let own = || modes::model_of(&config, setup::initial_mode(spec, &config));
            return Ok(ImageSupport::for_model(
                &config.resolve_model(spec.model.as_deref().or_else(own))?,
            ));
        };
        let records = self.read_records(task)?;
        let start = loading::first_start(task, &records)?;
        let spec = setup::with_kept_mode(&records, spec);
        let mode = setup::initial_mode(&spec, &config);
        let begun = InitialMode {
            mode: setup::start_mode(start),
            model: &start.model,
            protocol: &start.protocol,
        };
        let (chosen, _) = modes::resolve_mode_model(mode, begun, &config, &spec)?;
        Ok(ImageSupport::for_model(&chosen))
    }

    /// Loads the configuration: the named file, or the user's.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn load_config(&self, named: Option<&Path>) -> Result<Config, SessionError> {
        Config::load(&self.environment, named, &self.notices)
    }

    /// Loads the task of an idle session again, with another spec.
    pub(crate) fn reload_task(
        &self,
        task: &TaskId,
        spec: &SessionSpec,
        hub: &EventHub,
    ) -> Result<LoadedSession, SessionError> {
        loading::resume_idle(self, task, spec, hub)
    }

    /// Starts the worker of a loaded task. Says that nothing can be undone, if checkpoints are off.
    fn spawn_session(&self, loaded: LoadedSession, hub: EventHub) -> Session {
        // Reported before the first change, when the user can still stop.
        if loaded.setup.resources.checkpointer.is_none() {
            let text = "checkpoints are off: `sabir undo` cannot undo what this task changes";
            loaded.config.notices.send(NoticeTopic::Checkpoints, text);
        }
        Session::start_worker(self.clone(), loaded, hub)
    }
}

/// Waits for the MCP servers without which the task must not begin.
async fn wait_for_servers(hub: &EventHub) -> Result<(), SessionError> {
    let Some(servers) = hub.servers() else {
        return Ok(());
    };
    servers.wait_required().await.map_err(|(name, error)| {
        SessionError::invalid(format!("the MCP server {name} is required, and {error}"))
    })
}
