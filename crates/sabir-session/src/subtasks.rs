//! Subtasks, put together: a family is a task with all that stands below it, in one process.
//!
//! The decision: a subtask is set up as a task that its user had begun in the same folder, by the same options and configuration. What
//! the user said of his own task does not hold for it: a check of the completion, the most time, what he allowed "always". It has a
//! journal and a folder of outputs of its own beside those of its parent, and checkpoints under its own name. Where its journal is
//! there already it is opened and gone on with, whoever made it, this process or one that was killed.

use std::path::PathBuf;
use std::sync::Arc;

use sabir_agent::control::{Delegation, SUBTASK, SWITCH};
use sabir_agent::{
    Attended, Child, Completed, Household, Limits, Opened, Origin, Record, ReplayError, Start, Task, TaskId, Trail,
};
use sabir_call::{CallId, Part};
use sabir_journal::{Journal, JournalError};
use sabir_policy::{Group, Mode};
use sabir_workspace::{Level, Sandbox, Workspace};

use crate::config::{Chosen, Config};
use crate::error::SessionError;
use crate::event::{RetryAttempt, SessionEventKind, SubtaskLabel, WaitingEvent};
use crate::hub::EventHub;
use crate::locked;
use crate::modes::{self, Now};
use crate::notice::NoticeTopic;
use crate::setup::{self, NewTaskPlan, TaskSetup, ToolResources};
use crate::spec::{CompletionSpec, LimitSpec, SessionSpec};

/// What every task of a family has in common.
pub(crate) struct Family {
    /// Those of the task that the user began.
    pub(crate) spec: SessionSpec,
    pub(crate) config: Arc<Config>,
    /// The folder that it was begun in, where the options name none.
    pub(crate) workspace: PathBuf,
    /// Where journals lie.
    pub(crate) journals: PathBuf,
    /// The model, as the user names it.
    pub(crate) model: String,
    pub(crate) hub: EventHub,
}

/// The subtasks of one task.
pub(crate) struct Children {
    family: Arc<Family>,
    parent: TaskId,
    /// The mode of the parent, as it is now.
    mode: Now,
    /// How many tasks stand above the parent.
    depth: u32,
}

/// A journal that is open, and what it holds.
type Kept = (Journal, Vec<Record>);

impl Family {
    /// Those of the task of that name, in that mode.
    pub(crate) fn children(self: &Arc<Self>, parent: &TaskId, mode: &Now, depth: u32) -> Arc<dyn Household> {
        Arc::new(Children { family: Arc::clone(self), parent: parent.clone(), mode: Arc::clone(mode), depth })
    }

    /// Whether somebody answers what a subtask asks. It holds no conversation.
    fn attended(&self) -> Attended {
        match self.spec.interactivity.attended() {
            Attended::No => Attended::No,
            _ => Attended::Program,
        }
    }

    /// The spec of a subtask in that mode.
    fn spec(&self, mode: &Mode) -> SessionSpec {
        let completion = CompletionSpec {
            // An empty one switches off that of the configuration: it is the whole that is checked.
            check: Some(String::new()),
            require_todos: self.spec.completion.require_todos,
        };
        // The model that the user named is that of all, else each mode has its own.
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

impl Household for Children {
    fn child(&self, call: &CallId, delegation: &Delegation, left: Limits) -> Result<Opened, String> {
        let id = self.parent.child(call);
        let mode = self.delegated(delegation).map_err(|failure| failure.to_string());
        if mode.is_err() && !self.has_journal(&id) {
            return Err(mode.err().unwrap_or_default());
        }
        let (journal, records) = self.journal(&id)?;
        match records.first() {
            Some(Record::Started(start)) if !self.begun(start, call) => {
                Err(format!("No subtask can be begun for this call: its name, {id}, is that of another task."))
            }
            Some(Record::Started(_)) => match Completed::of(&records) {
                Some(completed) => Ok(Opened::Completed(completed)),
                None => self.again((journal, records), left),
            },
            _ => mode.and_then(|mode| self.begin(&id, (call, delegation), &mode, (journal, left))),
        }
        .map_err(|words| format!("{words} The subtask was not begun, or not gone on with."))
    }
}

impl Children {
    /// The mode of a new subtask: any but a repository's that the user has not named, where the parent's mode hands work on.
    fn delegated(&self, delegation: &Delegation) -> Result<Mode, SessionError> {
        let Family { spec, config, workspace, .. } = &*self.family;
        let folder = spec.workspace.as_deref().unwrap_or(workspace);
        let workspace = Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
        let own = modes::find(&modes::name(&self.mode), config, &workspace)?;
        if !own.has(Group::Delegate) {
            return Err(SessionError::invalid(format!(
                "The mode `{}` gives no work to subtasks; `--mode code` does.",
                own.name
            )));
        }
        let Some(name) = delegation.mode.as_ref().filter(|name| **name != own.name) else { return Ok(own) };
        let mode = modes::find(name, config, &workspace)?;
        if modes::is_foreign(&mode.name, config) {
            return Err(SessionError::invalid(format!(
                "The mode `{}` is the folder's own, and the user has not named it. Choose another.",
                mode.name
            )));
        }
        Ok(mode)
    }

    fn has_journal(&self, id: &TaskId) -> bool {
        sabir_journal::names(&self.family.journals).is_ok_and(|names| names.contains(id))
    }

    /// The journal of a subtask, with what it holds: nothing, where there was none, or its process died before it began.
    fn journal(&self, id: &TaskId) -> Result<Kept, String> {
        let folder = &self.family.journals;
        match Journal::create(folder, id, self.family.config.environment.journal_clock()) {
            Ok(journal) => return Ok((journal, Vec::new())),
            Err(JournalError::Exists { .. }) => {}
            Err(error) => return Err(format!("The subtask's journal cannot be made: {error}.")),
        }
        let opened = Journal::open(folder, id, self.family.config.environment.journal_clock());
        let (journal, entries, recovery) = opened.map_err(|error| format!("{error}."))?;
        if !recovery.is_clean() {
            let text = format!("subtask {id}: {recovery}");
            self.family.config.notices.send_about(id, NoticeTopic::Recovery, text);
        }
        Ok((journal, entries.into_iter().map(|entry| entry.record).collect()))
    }

    /// Whether that is how the subtask of this call begins.
    fn begun(&self, start: &Start, call: &CallId) -> bool {
        matches!(&start.from, Some(Origin::Subtask { task, call: of, .. }) if *task == self.parent && of == call)
    }

    fn begin(
        &self,
        id: &TaskId,
        (call, delegation): (&CallId, &Delegation),
        mode: &Mode,
        (journal, left): (Journal, Limits),
    ) -> Result<Opened, String> {
        let Family { config, .. } = &*self.family;
        let spec = self.family.spec(mode);
        let made = || -> Result<_, SessionError> {
            let chosen = config.choose(spec.model.as_deref())?;
            let named = spec.edit_tool.as_deref().or(config.edit_tool.as_deref());
            let edit_tool = locked::edit_tool(named, &chosen)?;
            let setup = self.setup(id, &spec, left, self.resources(id, edit_tool, mode, left))?.priced(&chosen)?;
            let explicit = spec.protocol.as_deref().or(config.protocol.as_deref());
            let protocol = locked::protocol(explicit, None, &chosen)?;
            Ok((chosen, setup, protocol))
        };
        let (chosen, setup, protocol) = made().map_err(|error| format!("{error}."))?;
        let todos = delegation.todos.as_ref().map(|todos| todos.text().to_owned());
        let from = Origin::Subtask { task: self.parent.clone(), call: call.clone(), depth: self.depth + 1, todos };
        let (id, prompt, from) = (id.clone(), delegation.message.clone(), Some(from));
        let plan = NewTaskPlan { id, prompt, model: &chosen.name, model_id: &chosen.id, protocol, from };
        let (task, first) = setup::begin_task(&setup, plan, self.family.attended());
        Ok(self.opened(&setup, &chosen, (task, Some(first)), journal))
    }

    /// Goes on with one that was begun.
    fn again(&self, (journal, records): Kept, left: Limits) -> Result<Opened, String> {
        let Family { config, .. } = &*self.family;
        let Some(Record::Started(start)) = records.first().cloned() else { return Err(String::new()) };
        let made = || -> Result<_, SessionError> {
            let folder = self.family.spec.workspace.as_deref().unwrap_or(&self.family.workspace);
            let workspace = Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
            let mode = modes::find(Trail::of(&records).mode(), config, &workspace)?;
            let own = modes::find(&modes::name(&self.mode), config, &workspace)?;
            if !own.delegates(&mode) {
                return Err(SessionError::invalid(format!(
                    "The subtask works in the mode `{}`, which allows more than `{}`",
                    mode.name, own.name
                )));
            }
            let spec = self.family.spec(&mode);
            let chosen = config.choose(Some(&start.model))?;
            let edit_tool = locked::kept_edit_tool(&start, &SessionSpec::default())?;
            let resources = self.resources(&start.task, edit_tool, &mode, left);
            Ok((self.setup(&start.task, &spec, left, resources)?.priced(&chosen)?, chosen))
        };
        let (setup, chosen) = made().map_err(|error| format!("{error}."))?;
        let settings = setup.settings(&chosen.id, self.family.attended());
        let replayed = Task::replay(records, settings);
        let task = replayed.map_err(|error: ReplayError| format!("{error}."))?.within(setup.context.clone());
        Ok(self.opened(&setup, &chosen, (task, None), journal))
    }

    /// What the tools of a subtask work with. It has subtasks of its own where there may be more levels.
    fn resources(&self, id: &TaskId, edit_tool: sabir_tools::EditTool, mode: &Mode, left: Limits) -> ToolResources {
        let household =
            (left.subtasks.depth > 0).then(|| self.family.children(id, &modes::now(&mode.name), self.depth + 1));
        let jobs = setup::lasting_jobs(&self.family.journals, id);
        ToolResources { edit_tool, jobs, keeper: None, sandbox: Sandbox::new(Level::Off), household }
    }

    fn setup(
        &self,
        id: &TaskId,
        spec: &SessionSpec,
        left: Limits,
        resources: ToolResources,
    ) -> Result<TaskSetup, SessionError> {
        let workspace = Some(self.family.workspace.as_path());
        let mut setup = TaskSetup::without_notices(spec, &self.family.config, workspace, resources)?;
        setup.limits = left;
        setup.registry = setup.registry.without(SWITCH).map_err(|error| SessionError::internal(error.to_string()))?;
        if let Some(keeper) = &setup.resources.keeper {
            keeper.begin(id);
        }
        Ok(setup)
    }

    fn opened(
        &self,
        setup: &TaskSetup,
        chosen: &Chosen,
        (task, first): (Task, Option<Record>),
        journal: Journal,
    ) -> Opened {
        let id = task.start().task.clone();
        let mode = task.trail().mode().to_owned();
        let label = SubtaskLabel { task: id.clone(), mode, depth: self.depth + 1 };
        let answer_limit = self.family.config.answer_limit().ok().flatten();
        let user = self.family.hub.front_end(&id, Some(label.clone()), answer_limit);
        let hub = self.family.hub.clone();
        let label = Arc::new(label);
        let model = chosen.model(move |model| {
            let (hub, label) = (hub.clone(), Arc::clone(&label));
            model.on_retry(move |retry| publish_retry(&hub, Some(&label), retry))
        });
        Opened::Working(Box::new(Child {
            task,
            first,
            store: Box::new(journal),
            registry: setup.registry.clone(),
            model: Arc::new(model),
            user: Box::new(user),
            max_time: None,
        }))
    }
}

/// Whether a record tells that a subtask was asked for where it could be had. The record of its beginning may have been lost.
pub(crate) fn is_asked_for(record: &Record) -> bool {
    let Record::Answered(answered) = record else { return false };
    let passed = |id: &CallId| answered.checks.iter().any(|check| check.call == *id && check.passed);
    answered.parts.iter().any(|part| matches!(part, Part::Call(call) if call.name == SUBTASK && passed(&call.id)))
}

/// Publishes that a request failed and is sent once more.
pub(crate) fn publish_retry(hub: &EventHub, subtask: Option<&Arc<SubtaskLabel>>, retry: &sabir_model::Retry<'_>) {
    let waiting = WaitingEvent {
        reason: retry.error.message.clone(),
        milliseconds: u64::try_from(retry.wait.as_millis()).unwrap_or(u64::MAX),
        attempt: Some(RetryAttempt { number: retry.attempt, limit: retry.attempts }),
    };
    hub.publish(subtask.cloned(), SessionEventKind::Waiting(waiting));
}
