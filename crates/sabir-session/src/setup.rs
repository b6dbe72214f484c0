//! Puts a task together: its folder, tools, rules, limits, modes and context, from a [`SessionSpec`] and the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{
    Attended, Cancel, Conditions, Context, Household, Instructions, Limits, NewTask, OpenTodos, Origin, Outcome,
    Record, Registry, Settings, Start, Store, Task, TaskId, Tool, Totals, Trail,
};
use sabir_call::{Prices, Protocol, ToolSet};
use sabir_check::Repairs;
use sabir_journal::Journal;
use sabir_policy::{Mode, Rules};
use sabir_tools::EditTool;
use sabir_workspace::{Jobs, Lifetime, Sandbox, Workspace};

use crate::checkpointer::{Keeper, Kept};
use crate::config::{Chosen, CompletionKeys, Config, LimitKeys};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::locked::kept_edit_tool;
use crate::notice::NoticeTopic;
use crate::recording::Told;
use crate::relocated_tool::Moved;
use crate::spec::SessionSpec;
use crate::{ends, instructions, modes, repairs, sandbox, trust};

/// Everything that a task needs besides its records.
pub struct TaskSetup {
    /// The folder, with the limits on paths that hold in it.
    pub workspace: Arc<Workspace>,
    pub(crate) registry: Registry,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) completion: Conditions,
    pub(crate) repairs: Repairs,
    pub(crate) max_time: Option<Duration>,
    pub(crate) prices: Prices,
    /// Interrupts the task.
    pub(crate) cancel: Cancel,
    pub(crate) resources: ToolResources,
    /// What else fills the model's context, and the size of its window.
    pub context: Context,
    /// The modes that the task may switch to.
    pub(crate) modes: modes::Modes,
    /// How the model is told where it works.
    place: PromptPlace,
}

/// How the system prompt describes the place where the tools work. A replay describes the recorded place, not the present one.
#[derive(Debug, Clone)]
pub(crate) struct PromptPlace {
    /// The folder.
    pub(crate) folder: String,
    /// The operating system.
    pub(crate) system: String,
    /// Results of commands in the recording, whose order of lines a replay reproduces.
    pub(crate) results: Vec<String>,
}

/// What the tools of a task work with, besides its folder.
pub(crate) struct ToolResources {
    /// The tool that the model edits files with.
    pub(crate) edit_tool: EditTool,
    /// Outputs and background jobs of commands.
    pub(crate) jobs: Arc<Jobs>,
    /// Takes checkpoints, unless they are off.
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// What confines commands.
    pub(crate) sandbox: Sandbox,
    /// Starts subtasks, where they are offered.
    pub(crate) household: Option<Arc<dyn Household>>,
}

/// The identity of a new task: what it is asked, and which model answers.
pub(crate) struct NewTaskPlan<'a> {
    pub(crate) id: TaskId,
    pub(crate) prompt: String,
    /// The model's name as the user gives it.
    pub(crate) model: &'a str,
    /// The model's name as the provider gives it.
    pub(crate) model_id: &'a str,
    pub(crate) protocol: Protocol,
    /// Where the task comes from, if no user began it.
    pub(crate) from: Option<Origin>,
}

/// A task with the store that keeps its records.
pub(crate) struct OpenedTask {
    pub(crate) task: Task,
    pub(crate) store: Box<dyn Store>,
    /// The record of the start, where it has not been kept yet.
    pub(crate) first: Option<Record>,
}

/// How a run of a task ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// The result, or why there is none.
    pub message: String,
    /// Turns since the start or the resume.
    pub turns: u32,
    /// Tokens and money in the task's whole life.
    pub totals: Totals,
}

/// The built-in tools as a model is offered them, independent of a folder.
pub fn built_in_tools() -> ToolSet {
    let offered = sabir_tools::specs().into_iter().chain(sabir_agent::control::specs()).collect();
    let more = sabir_tools::unoffered_specs().into_iter().chain(sabir_agent::control::rare_specs()).collect();
    // The built-in names are distinct and valid; a test holds that.
    ToolSet::with_unoffered(offered, more).unwrap_or_default()
}

impl TaskSetup {
    /// Sets up the tools in the folder of the spec, or in `folder`. Sends notices about what a user would not expect there.
    pub(crate) fn new(
        spec: &SessionSpec,
        config: &Config,
        folder: Option<&Path>,
        resources: ToolResources,
    ) -> Result<Self, SessionError> {
        let setup = Self::without_notices(spec, config, folder, resources)?;
        setup.notify_of_folder(config);
        Ok(setup)
    }

    /// Does the same as [`new`](Self::new), without notices about the folder.
    pub(crate) fn without_notices(
        spec: &SessionSpec,
        config: &Config,
        folder: Option<&Path>,
        resources: ToolResources,
    ) -> Result<Self, SessionError> {
        let folder = spec.workspace.as_deref().or(folder).unwrap_or(Path::new("."));
        let (workspace, rules) = open_folder(folder, spec, config)?;
        let limits = ends::limits(&spec.limits, &config.limits);
        let workspace = Arc::new(workspace);
        let keeper = Keeper::of(spec, config, &workspace)?;
        let sandbox = sandbox::of_task(&spec.sandbox, config)?;
        let mode = rules.mode().map(|mode| mode.name.as_str());
        let (context, watch) = instructions::context(&workspace, config, mode);
        let resources = ToolResources { keeper, sandbox, ..resources };
        let setup = Self::with_resources(&config.environment, workspace, resources, rules, limits, None)?;
        let registry = setup.registry.clone().amid(Some(watch));
        Ok(Self {
            repairs: repairs::without(&config.repairs_off)?,
            max_time: spec.limits.max_seconds.map(Duration::from_secs),
            completion: ends::conditions(&spec.completion, &config.limits),
            context,
            registry,
            ..setup
        })
    }

    /// Stops looking for changes of the folder's instructions: a recording knows only those of the beginning.
    pub(crate) fn recorded(self, is_recorded: bool) -> Self {
        let registry = if is_recorded { self.registry.clone().amid(None) } else { self.registry.clone() };
        Self { registry, ..self }
    }

    /// Sets what the model costs.
    ///
    /// # Errors
    /// When there is a limit on cost and the prices are not known.
    pub(crate) fn priced(mut self, chosen: &Chosen) -> Result<Self, SessionError> {
        if self.limits.cost.is_some() && !chosen.prices.is_known() {
            return Err(SessionError::invalid(format!(
                "--max-cost cannot be kept: what {} costs at {} is not known; give its prices under [[models]] in config.toml \
                 (see docs/models.md), or leave the limit out",
                chosen.id,
                chosen.provider()
            )));
        }
        self.prices = chosen.prices;
        let known = || chosen.entry.as_ref().and_then(|entry| entry.context);
        self.context.window = self.context.window.or_else(known);
        Ok(self)
    }

    /// Sets up the tools for a replay: they act as if they worked in the recorded folder, and the recorded limits hold. A check comes
    /// from the spec alone, as approvals do: a recording cannot bring a command.
    pub(crate) fn replaying(
        spec: &SessionSpec,
        config: &Config,
        told: &Told,
        results: Vec<String>,
    ) -> Result<Self, SessionError> {
        let folder = spec.workspace.as_deref().unwrap_or(Path::new("."));
        let (workspace, rules) = open_folder(folder, spec, config)?;
        let recorded = LimitKeys {
            max_turns: told.max_turns,
            max_tokens: told.max_tokens,
            max_cost: told.max_cost,
            completion: CompletionKeys { todos: Some(told.require_todos), check: None },
            ..LimitKeys::default()
        };
        let limits = ends::limits(&spec.limits, &recorded);
        let place = PromptPlace { folder: told.start.workspace.clone(), system: told.system.clone(), results };
        let workspace = Arc::new(workspace);
        let resources = ToolResources {
            edit_tool: kept_edit_tool(&told.start, spec)?,
            jobs: passing_jobs(&config.environment),
            keeper: Keeper::of(spec, config, &workspace)?,
            sandbox: sandbox::of_task(&spec.sandbox, config)?,
            household: None,
        };
        let setup = Self::with_resources(&config.environment, workspace, resources, rules, limits, Some(place))?;
        setup.notify_of_folder(config);
        Ok(Self {
            repairs: repairs::without(&told.repairs_off)?,
            max_time: spec.limits.max_seconds.map(Duration::from_secs),
            prices: told.prices,
            completion: ends::conditions(&spec.completion, &recorded),
            context: told.context.clone(),
            ..setup
        })
    }

    /// Sets up the tools in a workspace. `place` is how the prompt describes the place, where that is not the real one.
    pub(crate) fn with_resources(
        environment: &Environment,
        workspace: Arc<Workspace>,
        resources: ToolResources,
        rules: Rules,
        limits: Limits,
        place: Option<PromptPlace>,
    ) -> Result<Self, SessionError> {
        let settings = sabir_tools::Settings {
            workspace: Arc::clone(&workspace),
            helper: environment.helper_program.clone(),
            environment: environment.command_variables(),
            edit_tool: resources.edit_tool,
            sandbox: resources.sandbox.clone(),
            jobs: Arc::clone(&resources.jobs),
            reach: sabir_tools::Reach::Public,
        };
        let here = workspace.root().display().to_string();
        let mut tools = sabir_tools::builtin(settings);
        if let Some(keeper) = &resources.keeper {
            tools = Kept::all(tools, keeper);
        }
        if let Some(place) = &place {
            tools = Moved::all(tools, &place.folder, &here, place.results.clone());
        }
        let household = resources.household.clone();
        tools.extend(household.map(|household| Arc::new(NewTask::new(household)) as Arc<dyn Tool>));
        let system = std::env::consts::OS.to_owned();
        let place = place.unwrap_or(PromptPlace { folder: here, system, results: Vec::new() });
        let fits = |name: &str| modes::offered(rules.mode(), name);
        let registry = Registry::offering(tools, &fits).map_err(|error| SessionError::internal(error.to_string()))?;
        Ok(Self {
            workspace,
            registry,
            rules,
            limits,
            completion: Conditions::default(),
            repairs: Repairs::all(),
            max_time: None,
            prices: Prices::default(),
            cancel: Cancel::default(),
            context: Context::default(),
            resources,
            modes: modes::Modes::default(),
            place,
        })
    }

    /// Limits the levels of subtasks below a task that has `depth` tasks above it, and sets what interrupts it.
    pub(crate) fn at_depth(mut self, depth: u32, cancel: Cancel) -> Self {
        self.limits.subtasks.depth = self.limits.subtasks.depth.saturating_sub(depth);
        self.cancel = cancel;
        self
    }

    /// Sends notices about what a user would not expect in the folder.
    fn notify_of_folder(&self, config: &Config) {
        let home = config.environment.home_folder.as_deref();
        if let Some(why) = modes::too_wide(self.workspace.root(), home) {
            let text = format!("{why}: every change of a file is asked about, whatever is approved");
            config.notices.send(NoticeTopic::Workspace, text);
        }
        if self.workspace.root().join(".sabir").is_dir() {
            let text = "a repository cannot approve anything: the folder `.sabir` in it is not read";
            config.notices.send(NoticeTopic::Workspace, text);
        }
    }

    /// The settings of a task with this setup.
    pub(crate) fn settings(&self, model: &str, attended: Attended) -> Settings {
        let PromptPlace { folder, system, .. } = &self.place;
        let present = || self.rules.mode().map(Mode::words).unwrap_or_default();
        let mode = self.modes.words().map_or_else(present, str::to_owned);
        Settings {
            system: Instructions { workspace: folder, system, attended }.text() + &mode,
            model: model.to_owned(),
            tools: self.registry.set().clone(),
            readers: self.registry.readers(),
            pollers: self.registry.pollers(),
            rules: self.rules.clone(),
            attended,
            limits: self.limits,
            completion: self.completion.clone(),
            repairs: self.repairs,
            max_output: None,
            prices: self.prices,
        }
    }

    /// The header of a recording of a task with this setup.
    pub(crate) fn told(&self, start: &Start, model: &str, config: &Config) -> Told {
        Told {
            start: start.clone(),
            model: model.to_owned(),
            system: self.place.system.clone(),
            max_turns: self.limits.turns,
            max_tokens: self.limits.tokens,
            require_todos: self.completion.todos == OpenTodos::Refused,
            max_cost: self.limits.cost,
            prices: self.prices,
            renews: false,
            repairs_off: config.repairs_off.clone(),
            context: self.context.clone(),
            modes: self.modes.told(model),
            records: Vec::new(),
            words: None,
        }
    }
}

/// The mode of a task that names none.
pub(crate) const USUAL_MODE: &str = "code";

/// The name of the mode that a task is begun in.
pub(crate) fn first_mode<'a>(spec: &'a SessionSpec, config: &'a Config) -> &'a str {
    Mode::usual_name(spec.mode.as_deref().or(config.rules.mode.as_deref()).unwrap_or(USUAL_MODE))
}

/// The name of the mode that a task was begun in.
pub(crate) fn begun_mode(start: &Start) -> &str {
    Mode::usual_name(start.mode.as_deref().unwrap_or(USUAL_MODE))
}

/// Opens the folder with all bounds that hold in it, and reads the rules.
fn open_folder(folder: &Path, spec: &SessionSpec, config: &Config) -> Result<(Workspace, Rules), SessionError> {
    let workspace = Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    let home = config.environment.home_folder.as_deref();
    let mut rules = config.rules.rules(&spec.rules, workspace.root(), home)?;
    rules = rules.within(modes::find(first_mode(spec, config), config, &workspace)?);
    if let Some(why) = modes::too_wide(workspace.root(), home) {
        rules = rules.asking_to_write(why);
    }
    let bounds = modes::bounds_of(&rules, config)?;
    let trust = trust::load_trust(&config.environment, &config.notices);
    Ok((workspace.bounded(bounds).trusting(trust), rules))
}

/// The spec under which a task of these records continues: its mode stays, unless another is asked for.
pub(crate) fn with_kept_mode<'a>(records: impl IntoIterator<Item = &'a Record>, spec: &SessionSpec) -> SessionSpec {
    let kept = || Some(Trail::of(records).mode().to_owned());
    SessionSpec { mode: spec.mode.clone().or_else(kept), ..spec.clone() }
}

/// The outputs and jobs of a task, kept beside its journal in that folder.
pub(crate) fn lasting_jobs(folder: &Path, id: &TaskId) -> Arc<Jobs> {
    Arc::new(Jobs::new(folder.join(format!("{id}.outputs")), Lifetime::Lasting))
}

/// The outputs and jobs of a task that leaves nothing behind.
pub fn passing_jobs(environment: &Environment) -> Arc<Jobs> {
    let name = format!("sabir-outputs-{}", environment.unique_id().simple());
    Arc::new(Jobs::new(environment.temporary_folder.join(name), Lifetime::Passing))
}

/// Creates a new task and its journal.
pub(crate) fn create_task(
    setup: &TaskSetup,
    plan: NewTaskPlan<'_>,
    attended: Attended,
    journals: &Path,
    environment: &Environment,
) -> Result<OpenedTask, SessionError> {
    let journal = Journal::create(journals, &plan.id, environment.journal_clock())
        .map_err(|error| SessionError::internal(error.to_string()))?;
    let (task, first) = begin_task(setup, plan, attended);
    Ok(OpenedTask { task, store: Box::new(journal), first: Some(first) })
}

/// Makes a new task, with the record of its start.
pub(crate) fn begin_task(setup: &TaskSetup, plan: NewTaskPlan<'_>, attended: Attended) -> (Task, Record) {
    let start = Start {
        task: plan.id,
        prompt: plan.prompt,
        workspace: setup.workspace.root().display().to_string(),
        model: plan.model.to_owned(),
        protocol: plan.protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edit_tool: Some(setup.resources.edit_tool.name().to_owned()),
        mode: setup.rules.mode().map(|mode| mode.name.clone()).filter(|name| name != USUAL_MODE),
        from: plan.from,
    };
    let (task, first) = Task::new(start, setup.settings(plan.model_id, attended));
    (task.within(setup.context.clone()).among(setup.modes.outfits()), first)
}

/// Finds the task whose id is, or begins with, `name`.
///
/// # Errors
/// When there is none, or more than one.
pub fn find_task(folder: &Path, name: &str) -> Result<TaskId, SessionError> {
    let all = sabir_journal::names(folder).map_err(|error| SessionError::internal(error.to_string()))?;
    let mut ids: Vec<_> = all.into_iter().filter(|id| id.as_str().starts_with(name)).collect();
    // A subtask's id begins with its parent's, which is meant by what begins both.
    if let [first, rest @ ..] = ids.as_slice()
        && rest.iter().all(|id| id.as_str().strip_prefix(first.as_str()).is_some_and(|rest| rest.starts_with('-')))
    {
        ids.truncate(1);
    }
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(SessionError::UnknownTask(name.to_owned())),
        [first, ..] => match ids.iter().find(|id| id.as_str() == name) {
            Some(id) => Ok(id.clone()),
            None => {
                Err(SessionError::AmbiguousTask { name: name.to_owned(), count: ids.len(), example: first.clone() })
            }
        },
    }
}

/// The folder that a task was begun in, if it is still there.
pub(crate) fn workspace_of(start: &Start) -> PathBuf {
    PathBuf::from(&start.workspace)
}
