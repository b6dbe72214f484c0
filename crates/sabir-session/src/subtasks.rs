//! Starts and resumes the subtasks of a task, in the same process.
//!
//! A subtask is set up like a task that the user started in the same folder with the same spec and configuration. Some settings hold
//! for the user's own task only: the check command, the limits of the spec, and what the user allowed "always". A subtask has its own
//! journal and outputs folder beside those of its parent, and checkpoints under its own id. If its journal exists already, the subtask
//! is resumed from it, even if the process that wrote it was killed.

use std::path::PathBuf;
use std::sync::Arc;

use sabir_agent::control::{NEW_TASK_TOOL, SWITCH_MODE_TOOL, SubtaskRequest};
use sabir_agent::{
    CompletedSubtask, Interactivity, ModeHistory, Record, ReplayError, SubtaskHandle, SubtaskRun,
    SubtaskSpawner, Task, TaskId, TaskLimits, TaskOrigin, TaskStart,
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
use crate::setup::{self, NewTaskPlan, TaskSetup, ToolResources};
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

/// An open journal with its records.
type OpenedJournal = (Journal, Vec<Record>);

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

    /// Returns who answers a subtask's questions. A subtask never converses, even in an interactive session.
    fn attended(&self) -> Interactivity {
        match self.spec.interactivity.attended() {
            Interactivity::Headless => Interactivity::Headless,
            _ => Interactivity::Controlled,
        }
    }

    /// Returns the spec of a subtask in a mode.
    fn spec(&self, mode: &Mode) -> SessionSpec {
        let completion = CompletionSpec {
            // An empty check switches off the configured one: it applies to the finished work, not to a part of it.
            check: Some(String::new()),
            require_todos: self.spec.completion.require_todos,
        };
        // A model that the user named explicitly is for all tasks; otherwise each mode has its own.
        let own = modes::model_of(&self.config, &mode.name).filter(|_| self.spec.model.is_none());
        let model = Some(own.unwrap_or(&self.model).to_owned());
        SessionSpec {
            mode: Some(mode.name.clone()),
            completion,
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
    ) -> Result<SubtaskHandle, String> {
        let id = self.parent.child_id(call);
        let mode = self
            .resolve_mode(delegation)
            .map_err(|failure| failure.to_string());
        // A subtask that has already begun continues in its recorded mode, so an unusable mode matters for a new one only.
        if mode.is_err() && !self.has_journal(&id) {
            return Err(mode.err().unwrap_or_default());
        }
        let (journal, records) = self.open_journal(&id)?;
        // The id follows from the parent and the call, so a resumed parent that repeats its call finds the same journal.
        match records.first() {
            Some(Record::Started(start)) if !self.is_start_of(start, call) => Err(format!(
                "No subtask can be begun for this call: its name, {id}, is that of another task."
            )),
            Some(Record::Started(_)) => match CompletedSubtask::from_records(&records) {
                Some(completed) => Ok(SubtaskHandle::Completed(completed)),
                None => self.resume_subtask((journal, records), left),
            },
            _ => mode.and_then(|mode| {
                self.start_subtask(&id, (call, delegation), &mode, (journal, left))
            }),
        }
        .map_err(|words| format!("{words} The subtask was not started, or not resumed."))
    }
}

impl SessionSubtaskSpawner {
    /// Returns the mode of a new subtask: the requested one, else the parent's.
    ///
    /// A mode of the repository must have been named by the user, so a subtask gets one only from its parent. The parent's mode
    /// must allow subtasks at all.
    fn resolve_mode(&self, delegation: &SubtaskRequest) -> Result<Mode, SessionError> {
        let SubtaskContext {
            spec,
            config,
            workspace,
            ..
        } = &*self.context;
        let folder = spec.workspace.as_deref().unwrap_or(workspace);
        let workspace =
            Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
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
    fn open_journal(&self, id: &TaskId) -> Result<OpenedJournal, String> {
        let folder = &self.context.tasks_folder;
        match Journal::create(folder, id, self.context.config.environment.journal_clock()) {
            Ok(journal) => return Ok((journal, Vec::new())),
            Err(JournalError::Exists { .. }) => {}
            Err(error) => return Err(format!("The subtask's journal cannot be made: {error}.")),
        }
        let opened = Journal::open(folder, id, self.context.config.environment.journal_clock());
        let (journal, entries, recovery) = opened.map_err(|error| format!("{error}."))?;
        if !recovery.is_clean() {
            let text = format!("subtask {id}: {recovery}");
            self.context
                .config
                .notices
                .send_about(id, NoticeTopic::Recovery, text);
        }
        Ok((
            journal,
            entries.into_iter().map(|entry| entry.record).collect(),
        ))
    }

    /// Reports whether `start` is the start of the subtask that this call of the parent requested.
    fn is_start_of(&self, start: &TaskStart, call: &CallId) -> bool {
        matches!(&start.from, Some(TaskOrigin::Subtask { task, call: of, .. }) if *task == self.parent && of == call)
    }

    fn start_subtask(
        &self,
        id: &TaskId,
        (call, delegation): (&CallId, &SubtaskRequest),
        mode: &Mode,
        (journal, left): (Journal, TaskLimits),
    ) -> Result<SubtaskHandle, String> {
        let SubtaskContext { config, .. } = &*self.context;
        let spec = self.context.spec(mode);
        let made = || -> Result<_, SessionError> {
            let chosen = config.resolve_model(spec.model.as_deref())?;
            let named = spec.edit_tool.as_deref().or(config.edit_tool.as_deref());
            let edit_tool = locked::resolve_edit_tool(named, &chosen)?;
            let setup = self
                .setup(id, &spec, left, self.resources(id, edit_tool, mode, left))?
                .with_prices(&chosen)?;
            let explicit = spec.protocol.as_deref().or(config.protocol.as_deref());
            let protocol = locked::task_protocol(&config.dialects, explicit, None, &chosen)?;
            Ok((chosen, setup, protocol))
        };
        let (chosen, setup, protocol) = made().map_err(|error| format!("{error}."))?;
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
            id: id.clone(),
            prompt: delegation.message.clone(),
            model: &chosen.name,
            model_id: &chosen.id,
            protocol,
            from: Some(from),
        };
        let (task, first) = setup::begin_task(&setup, plan, self.context.attended());
        Ok(self.to_handle(&setup, &chosen, (task, Some(first)), journal))
    }

    /// Resumes a subtask from its journal.
    fn resume_subtask(
        &self,
        (journal, records): OpenedJournal,
        left: TaskLimits,
    ) -> Result<SubtaskHandle, String> {
        let SubtaskContext { config, .. } = &*self.context;
        let Some(Record::Started(start)) = records.first().cloned() else {
            return Err(String::new());
        };
        let made = || -> Result<_, SessionError> {
            let folder = self
                .context
                .spec
                .workspace
                .as_deref()
                .unwrap_or(&self.context.workspace);
            let workspace = Workspace::open(folder)
                .map_err(|error| SessionError::invalid(error.to_string()))?;
            let mode = modes::find_mode(
                ModeHistory::from_records(&records).current_mode(),
                config,
                &workspace,
            )?;
            let own = modes::find_mode(&modes::mode_name(&self.parent_mode), config, &workspace)?;
            // The parent may have switched to a stricter mode since: its subtasks must not keep more rights.
            if !own.can_delegate_to(&mode) {
                return Err(SessionError::invalid(format!(
                    "The subtask works in the mode `{}`, which allows more than `{}`",
                    mode.name, own.name
                )));
            }
            let spec = self.context.spec(&mode);
            let chosen = config.resolve_model(Some(&start.model))?;
            let edit_tool = locked::locked_edit_tool(&start, &SessionSpec::default())?;
            let resources = self.resources(&start.task, edit_tool, &mode, left);
            Ok((
                self.setup(&start.task, &spec, left, resources)?
                    .with_prices(&chosen)?,
                chosen,
            ))
        };
        let (setup, chosen) = made().map_err(|error| format!("{error}."))?;
        let settings = setup.task_settings(&chosen.id, self.context.attended());
        let replayed = Task::replay(records, settings);
        let task = replayed
            .map_err(|error: ReplayError| format!("{error}."))?
            .with_context(setup.context.clone());
        Ok(self.to_handle(&setup, &chosen, (task, None), journal))
    }

    /// Returns the resources for the tools of a subtask. It gets a spawner of its own while the limit allows deeper levels.
    fn resources(
        &self,
        id: &TaskId,
        edit_tool: sabir_tools::EditTool,
        mode: &Mode,
        left: TaskLimits,
    ) -> ToolResources {
        let spawner = (left.subtasks.depth > 0).then(|| {
            self.context
                .spawner_for(id, &modes::shared_mode(&mode.name), self.parent_depth + 1)
        });
        let jobs = setup::lasting_jobs(&self.context.tasks_folder, id);
        ToolResources {
            edit_tool,
            jobs,
            checkpointer: None,
            sandbox: Sandbox::new(SandboxLevel::Off),
            subtask_spawner: spawner,
        }
    }

    fn setup(
        &self,
        id: &TaskId,
        spec: &SessionSpec,
        left: TaskLimits,
        resources: ToolResources,
    ) -> Result<TaskSetup, SessionError> {
        let workspace = Some(self.context.workspace.as_path());
        let mut setup =
            TaskSetup::without_notices(spec, &self.context.config, workspace, resources)?;
        // A subtask spends what its parent has left, and cannot switch modes: the parent chose its mode.
        setup.limits = left;
        setup.registry = setup
            .registry
            .without_tool(SWITCH_MODE_TOOL)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        // Checkpoints belong to the subtask, so that undoing the parent's calls does not touch them.
        if let Some(checkpointer) = &setup.resources.checkpointer {
            checkpointer.set_task(id);
        }
        Ok(setup)
    }

    fn to_handle(
        &self,
        setup: &TaskSetup,
        chosen: &ResolvedModel,
        (task, first): (Task, Option<Record>),
        journal: Journal,
    ) -> SubtaskHandle {
        let id = task.start_record().task.clone();
        let mode = task.mode_history().current_mode().to_owned();
        let label = SubtaskLabel {
            task: id.clone(),
            mode,
            depth: self.parent_depth + 1,
        };
        let answer_limit = self.context.config.answer_limit().ok().flatten();
        let user = self
            .context
            .hub
            .front_end(&id, Some(label.clone()), answer_limit);
        let hub = self.context.hub.clone();
        let label = Arc::new(label);
        let model = chosen.build_model(move |model| {
            let hub = hub.clone();
            let label = Arc::clone(&label);
            model.on_retry(move |retry| publish_retry(&hub, Some(&label), retry))
        });
        SubtaskHandle::Working(Box::new(SubtaskRun {
            task,
            first,
            store: Box::new(journal),
            registry: setup.registry.clone(),
            model: Arc::new(model),
            front_end: Box::new(user),
            max_time: None,
            observers: setup.observers(),
        }))
    }
}

/// Reports whether a record contains a valid call for a subtask. This is known even if the record of the subtask's start was lost
/// in a crash.
pub(crate) fn requests_subtask(record: &Record) -> bool {
    let Record::Answered(answered) = record else {
        return false;
    };
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
    let waiting = WaitingEvent {
        reason: retry.error.message.clone(),
        milliseconds: u64::try_from(retry.wait.as_millis()).unwrap_or(u64::MAX),
        attempt: Some(RetryAttempt {
            number: retry.attempt,
            limit: retry.attempts,
        }),
    };
    hub.publish(subtask.cloned(), SessionEventKind::Waiting(waiting));
}
