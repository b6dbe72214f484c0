//! Starts and resumes the subtasks of a task, in the same process.
//!
//! A subtask is set up like a task that the user started in the same folder with the same spec and configuration. Some settings hold
//! for the user's own task only: the check command, the limits of the spec, and what the user allowed "always". A subtask has its own
//! journal and outputs folder beside those of its parent, and checkpoints under its own id. If its journal exists already, the subtask
//! is resumed from it, even if the process that wrote it was killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::control::{NEW_TASK_TOOL, SWITCH_MODE_TOOL, SubtaskRequest};
use sabir_agent::{
    CompletedSubtask, Interactivity, ModeHistory, Record, ReplayError, SubtaskHandle, SubtaskRun,
    SubtaskSpawnError, SubtaskSpawner, Task, TaskId, TaskLimits, TaskOrigin, TaskStart,
};
use sabir_call::{CallId, MessagePart};
use sabir_journal::{Journal, JournalError};
use sabir_policy::{Mode, ToolGroup};
use sabir_workspace::{Sandbox, SandboxLevel, Workspace};

use crate::config::{Config, ResolvedModel};
use crate::error::SessionError;
use crate::event::{RetryAttempt, SessionEventKind, SubtaskLabel, WaitingEvent};
use crate::hub::EventHub;
use crate::locked;
use crate::modes::{self, CurrentMode};
use crate::notice::NoticeTopic;
use crate::preview_publisher::PreviewPublisher;
use crate::setup::{self, NewTaskPlan, OpenedTask, TaskSetup, ToolResources};
use crate::spec::{CompletionSpec, LimitSpec, SessionSpec};

/// Everything that a task and all its subtasks share.
pub(crate) struct SubtaskContext {
    /// The spec of the task that the user started.
    pub(crate) spec: SessionSpec,
    pub(crate) config: Arc<Config>,
    /// The folder of that task, for a spec that names none.
    pub(crate) workspace: PathBuf,
    /// The folder of all journals.
    pub(crate) tasks_folder: PathBuf,
    /// The model's name as the user gave it.
    pub(crate) model: String,
    pub(crate) hub: EventHub,
}

/// Spawns the subtasks of one task.
pub(crate) struct SessionSubtaskSpawner {
    context: Arc<SubtaskContext>,
    parent: TaskId,
    /// The current mode of the parent.
    parent_mode: CurrentMode,
    /// The number of tasks above the parent.
    parent_depth: u32,
}

/// The journal of a subtask, opened for writing.
struct SubtaskJournal {
    journal: Journal,
    /// The records so far; empty for a new subtask.
    records: Vec<Record>,
}

/// A subtask to start.
struct NewSubtask<'a> {
    id: TaskId,
    /// The call of the parent that requests it.
    call: &'a CallId,
    delegation: &'a SubtaskRequest,
    mode: Mode,
}

/// The reason why a subtask was not started or resumed. The texts are for the model, in whole sentences.
#[derive(Debug, thiserror::Error)]
enum SubtaskError {
    /// The journal with the id of the subtask belongs to a task that another call, or the user, started.
    #[error("No subtask can be started for this call: its name, {0}, belongs to another task.")]
    IdTaken(TaskId),
    /// The requested mode, or that of the parent, is not possible.
    #[error(transparent)]
    Mode(SessionError),
    /// The model, the tools or the folder cannot be set up.
    #[error("{0}.")]
    Setup(#[from] SessionError),
    #[error("The subtask's journal cannot be created: {0}.")]
    JournalCreation(JournalError),
    /// The journal is there and cannot be opened: it is damaged, or another process works on it.
    #[error("{0}.")]
    JournalOpening(JournalError),
    /// The records make no task.
    #[error("{0}.")]
    Replay(#[from] ReplayError),
}

impl SubtaskContext {
    /// Creates the spawner for the subtasks of `parent`, which has `depth` tasks above it.
    pub(crate) fn spawner_for(
        self: &Arc<Self>,
        parent: &TaskId,
        mode: &CurrentMode,
        depth: u32,
    ) -> Arc<dyn SubtaskSpawner> {
        Arc::new(SessionSubtaskSpawner {
            context: Arc::clone(self),
            parent: parent.clone(),
            parent_mode: Arc::clone(mode),
            parent_depth: depth,
        })
    }

    /// Opens the folder that all the tasks work in.
    fn open_workspace(&self) -> Result<Workspace, SessionError> {
        let folder = self.spec.workspace.as_deref().unwrap_or(&self.workspace);
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))
    }

    /// Returns the kind of user that answers a subtask's questions. A subtask never converses, even in an interactive session.
    fn child_interactivity(&self) -> Interactivity {
        match self.spec.interactivity.to_machine() {
            Interactivity::Headless => Interactivity::Headless,
            _ => Interactivity::Controlled,
        }
    }

    /// Returns the spec of a subtask in a mode.
    fn subtask_spec(&self, mode: &Mode) -> SessionSpec {
        let completion = CompletionSpec {
            // An empty check switches off the configured one: it applies to the finished work, not
            // to a part of it.
            check: Some(String::new()),
            require_todos: self.spec.completion.require_todos,
            review: Some(self.config.limits.subtasks.review == Some(true)),
            ..self.spec.completion.clone()
        };
        // A model that the user named explicitly is for all tasks; otherwise each mode has its own.
        let own = modes::model_of(&self.config, &mode.name).filter(|_| self.spec.model.is_none());
        let model = Some(own.unwrap_or(&self.model).to_owned());
        SessionSpec {
            mode: Some(mode.name.clone()),
            completion,
            // The limits of the spec are the parent's; a subtask gets what is left of them when it
            // begins.
            limits: LimitSpec::default(),
            model,
            ..self.spec.clone()
        }
    }
}

impl SubtaskSpawner for SessionSubtaskSpawner {
    fn spawn(
        &self,
        call: &CallId,
        delegation: &SubtaskRequest,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskSpawnError> {
        let id = self.parent.child_id(call);
        let mode = match self.resolve_mode(delegation) {
            // A subtask that has already begun continues in its recorded mode, so an unusable mode
            // matters for a new one only.
            Err(error) if !self.has_journal(&id) => {
                return Err(SubtaskSpawnError::Mode(error.to_string()));
            }
            mode => mode,
        };
        let opened = self
            .open_journal(&id)
            .map_err(|error| SubtaskSpawnError::Journal(error.to_string()))?;
        self.open_subtask(id, call, delegation, mode, opened, left)
            .map_err(|error| {
                SubtaskSpawnError::Setup(format!(
                    "{error} The subtask was not started, or not resumed."
                ))
            })
    }
}

impl SessionSubtaskSpawner {
    /// Starts the subtask of a call, resumes it, or returns its result if it is completed. `mode` is for a new one.
    fn open_subtask(
        &self,
        id: TaskId,
        call: &CallId,
        delegation: &SubtaskRequest,
        mode: Result<Mode, SessionError>,
        opened: SubtaskJournal,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskError> {
        // The id follows from the parent and the call, so a resumed parent that repeats its call
        // finds the same journal.
        let Some(Record::Started(start)) = opened.records.first() else {
            let subtask = NewSubtask {
                id,
                call,
                delegation,
                mode: mode.map_err(SubtaskError::Mode)?,
            };
            return self.start_subtask(subtask, opened.journal, left);
        };
        if !self.is_start_of(start, call) {
            return Err(SubtaskError::IdTaken(id));
        }
        match CompletedSubtask::from_records(&opened.records) {
            Some(completed) => Ok(SubtaskHandle::Completed(completed)),
            None => self.resume_subtask(&start.clone(), opened, left),
        }
    }

    /// Returns the mode of a new subtask: the requested one, else the parent's.
    ///
    /// A mode of the repository must have been named by the user, so a subtask gets one only from its parent. The parent's mode
    /// must allow subtasks at all.
    fn resolve_mode(&self, delegation: &SubtaskRequest) -> Result<Mode, SessionError> {
        let config = &self.context.config;
        let workspace = self.context.open_workspace()?;
        let own = modes::find_mode(&modes::mode_name(&self.parent_mode), config, &workspace)?;
        if !own.has_group(ToolGroup::Delegate) {
            return Err(SessionError::invalid(format!(
                "The mode `{}` gives no work to subtasks; `--mode code` does.",
                own.name
            )));
        }
        let Some(name) = delegation.mode.as_ref().filter(|name| **name != own.name) else {
            return Ok(own);
        };
        let mode = modes::find_mode(name, config, &workspace)?;
        if modes::is_from_repository(&mode.name, config) {
            return Err(SessionError::invalid(format!(
                "The mode `{}` is the folder's own, and the user has not named it. Choose another.",
                mode.name
            )));
        }
        Ok(mode)
    }

    fn has_journal(&self, id: &TaskId) -> bool {
        sabir_journal::list_task_ids(&self.context.tasks_folder)
            .is_ok_and(|names| names.contains(id))
    }

    /// Opens the journal of a subtask, or creates it. It has no records if it is new, or if an earlier process died before the
    /// first one.
    fn open_journal(&self, id: &TaskId) -> Result<SubtaskJournal, SubtaskError> {
        let folder = &self.context.tasks_folder;
        match Journal::create(folder, id, self.context.config.environment.journal_clock()) {
            Ok(journal) => {
                return Ok(SubtaskJournal {
                    journal,
                    records: Vec::new(),
                });
            }
            // Creating is tried first and fails if the file exists, so two calls cannot both create
            // it.
            Err(JournalError::Exists { .. }) => {}
            Err(error) => return Err(SubtaskError::JournalCreation(error)),
        }
        let opened = Journal::open(folder, id, self.context.config.environment.journal_clock());
        let (journal, entries, recovery) = opened.map_err(SubtaskError::JournalOpening)?;
        if !recovery.is_clean() {
            let text = format!("subtask {id}: {recovery}");
            self.context
                .config
                .notices
                .send_about(id, NoticeTopic::Recovery, text);
        }
        Ok(SubtaskJournal {
            journal,
            records: entries.into_iter().map(|entry| entry.record).collect(),
        })
    }

    /// Reports whether `start` is the start of the subtask that this call of the parent requested.
    fn is_start_of(&self, start: &TaskStart, call: &CallId) -> bool {
        matches!(&start.from, Some(TaskOrigin::Subtask { task, call: of, .. }) if *task == self.parent && of == call)
    }

    fn start_subtask(
        &self,
        subtask: NewSubtask<'_>,
        journal: Journal,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskError> {
        let NewSubtask {
            id,
            call,
            delegation,
            mode,
        } = subtask;
        let SubtaskContext { config, .. } = &*self.context;
        let spec = self.context.subtask_spec(&mode);
        let chosen = config.resolve_model(spec.model.as_deref())?;
        let named = spec.edit_tool.as_deref().or(config.edit_tool.as_deref());
        let edit_tool = locked::resolve_edit_tool(named, &chosen)?;
        let resources = self.tool_resources(&id, edit_tool, &mode, left);
        let setup = self
            .set_up_subtask(&id, &spec, left, resources)?
            .with_prices(&chosen)?;
        let explicit = spec.protocol.as_deref().or(config.protocol.as_deref());
        let protocol = locked::task_protocol(&config.dialects, explicit, None, &chosen)?;
        let todos = delegation
            .todos
            .as_ref()
            .map(|todos| todos.text().to_owned());
        let from = TaskOrigin::Subtask {
            task: self.parent.clone(),
            call: call.clone(),
            depth: self.parent_depth + 1,
            todos,
        };
        let plan = NewTaskPlan {
            id,
            prompt: delegation.message.clone(),
            model: &chosen.name,
            model_id: &chosen.id,
            protocol,
            from: Some(from),
        };
        let (task, first) = setup::begin_task(&setup, plan, self.context.child_interactivity());
        let opened = OpenedTask {
            task,
            store: Box::new(journal),
            first: Some(first),
            observers: setup.common_observers(),
        };
        Ok(self.to_handle(&setup, &chosen, opened))
    }

    /// Resumes a subtask from its journal.
    fn resume_subtask(
        &self,
        start: &TaskStart,
        opened: SubtaskJournal,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, SubtaskError> {
        let SubtaskJournal { journal, records } = opened;
        let SubtaskContext { config, .. } = &*self.context;
        let workspace = self.context.open_workspace()?;
        let mode = modes::find_mode(
            ModeHistory::from_records(&records).current_mode(),
            config,
            &workspace,
        )?;
        let own = modes::find_mode(&modes::mode_name(&self.parent_mode), config, &workspace)?;
        // The parent may have switched to a stricter mode since: its subtasks must not keep more
        // rights.
        if !own.can_delegate_to(&mode) {
            let error = SessionError::invalid(format!(
                "The subtask works in the mode `{}`, which allows more than `{}`",
                mode.name, own.name
            ));
            return Err(error.into());
        }
        let spec = self.context.subtask_spec(&mode);
        let chosen = config.resolve_model(Some(&start.model))?;
        let edit_tool = locked::locked_edit_tool(start, &SessionSpec::default())?;
        let resources = self.tool_resources(&start.task, edit_tool, &mode, left);
        let setup = self
            .set_up_subtask(&start.task, &spec, left, resources)?
            .with_prices(&chosen)?;
        let settings = setup.task_settings(&chosen.id, self.context.child_interactivity());
        let opened = OpenedTask {
            task: Task::replay(records, settings)?.with_context(setup.context.clone()),
            store: Box::new(journal),
            first: None,
            observers: setup.common_observers(),
        };
        Ok(self.to_handle(&setup, &chosen, opened))
    }

    /// Returns the resources for the tools of a subtask. It gets a spawner of its own while the limit allows deeper levels.
    fn tool_resources(
        &self,
        id: &TaskId,
        edit_tool: sabir_tools::EditTool,
        mode: &Mode,
        left: TaskLimits,
    ) -> ToolResources {
        // The last level gets no spawner, and so no tool that would always be refused.
        let spawner = (left.subtasks.depth > 0).then(|| {
            self.context
                .spawner_for(id, &modes::shared_mode(&mode.name), self.parent_depth + 1)
        });
        let jobs = setup::persistent_jobs(&self.context.tasks_folder, id);
        ToolResources {
            edit_tool,
            jobs,
            checkpointer: None,
            sandbox: Sandbox::new(SandboxLevel::Off),
            subtask_spawner: spawner,
            seen_files: Vec::new(),
            sent_instructions: Vec::new(),
            skill_tool: None,
            editor: None,
        }
    }

    fn set_up_subtask(
        &self,
        id: &TaskId,
        spec: &SessionSpec,
        left: TaskLimits,
        resources: ToolResources,
    ) -> Result<TaskSetup, SessionError> {
        let workspace = Some(self.context.workspace.as_path());
        let mut setup =
            TaskSetup::without_notices(spec, &self.context.config, workspace, resources)?;
        // A subtask spends what its parent has left, and cannot switch modes: the parent chose its
        // mode.
        setup.limits = left;
        setup.registry = setup
            .registry
            .without_tool(SWITCH_MODE_TOOL)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        // Checkpoints belong to the subtask, so that undoing the parent's calls does not touch
        // them.
        if let Some(checkpointer) = &setup.resources.checkpointer {
            checkpointer.set_task(id);
        }
        setup.attach_hooks(id, &self.context.tasks_folder, &self.context.hub, true);
        Ok(setup)
    }

    fn to_handle(
        &self,
        setup: &TaskSetup,
        chosen: &ResolvedModel,
        opened: OpenedTask,
    ) -> SubtaskHandle {
        let OpenedTask {
            task,
            store,
            first,
            mut observers,
        } = opened;
        let checkpointer = setup.resources.checkpointer.as_ref();
        observers.push(self.context.hub.ledger().follow_task(checkpointer));
        let id = task.start_record().task.clone();
        let mode = task.mode_history().current_mode().to_owned();
        let label = SubtaskLabel {
            task: id.clone(),
            mode,
            depth: self.parent_depth + 1,
        };
        // It was parsed when the configuration was loaded, so it is not an error here.
        let approval_timeout = self.context.config.approval_timeout().ok().flatten();
        let user = self
            .context
            .hub
            .front_end(&id, Some(label.clone()), approval_timeout);
        let hub = self.context.hub.clone();
        let label = Arc::new(label);
        if self.context.spec.previews {
            observers.push(Arc::new(PreviewPublisher {
                hub: hub.clone(),
                subtask: Some(Arc::clone(&label)),
            }));
        }
        let model = chosen.build_model(move |model| {
            let hub = hub.clone();
            let label = Arc::clone(&label);
            model.on_retry(move |retry| publish_retry(&hub, Some(&label), retry))
        });
        SubtaskHandle::Working(Box::new(SubtaskRun {
            task,
            first,
            store,
            registry: setup.registry.clone(),
            model: Arc::new(model),
            front_end: Box::new(user),
            // The parent's time holds for it: its work is dropped with the parent's.
            max_time: None,
            observers,
        }))
    }
}

/// Reports whether a record contains a valid call for a subtask. This is known even if the record of the subtask's start was lost
/// in a crash.
pub(crate) fn requests_subtask(record: &Record) -> bool {
    let Record::Answered(answered) = record else {
        return false;
    };
    // A call that a check stopped has started nothing.
    let passed = |id: &CallId| {
        answered
            .checks
            .iter()
            .any(|check| check.call == *id && check.passed)
    };
    answered
        .parts
        .iter()
        .any(|part| matches!(part, MessagePart::Call(call) if call.name == NEW_TASK_TOOL && passed(&call.id)))
}

/// Publishes that a request failed and will be sent again.
pub(crate) fn publish_retry(
    hub: &EventHub,
    subtask: Option<&Arc<SubtaskLabel>>,
    retry: &sabir_model::RetryNotice<'_>,
) {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let waiting = WaitingEvent {
        reason: retry.error.message.clone(),
        milliseconds: milliseconds(retry.wait),
        attempt: Some(RetryAttempt {
            number: retry.attempt,
            limit: retry.attempts,
            milliseconds_left: retry.patience_left.map(milliseconds),
        }),
    };
    hub.publish_event(subtask.cloned(), SessionEventKind::Waiting(waiting));
}
