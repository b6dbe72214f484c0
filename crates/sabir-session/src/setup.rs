//! Assembles a task: its folder, tools, rules, limits, modes and context, from a [`SessionSpec`] and the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{
    CancelToken, CompletionConditions, CompletionForm, ContextSource, DriverObserver,
    InstructionTemplate, Interactivity, ModeHistory, NewTaskTool, OpenTodos, Record, RecordStore,
    RequestContext, SubtaskSpawner, Task, TaskId, TaskLimits, TaskOrigin, TaskOutcome,
    TaskSettings, TaskStart, Tool, ToolRegistry, ToolUsageTable, UnresolvedDenials, UsageTotals,
};
use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, TextRecovery, TokenPrices, ToolProtocol, ToolSet};
use sabir_check::RepairSet;
use sabir_journal::Journal;
use sabir_mcp::DocumentationTool;
use sabir_model::ModelEntry;
use sabir_policy::{Mode, PolicyRules, ToolGroup};
use sabir_tools::{EditTool, Editor, SeenFile};
use sabir_workspace::{JobManager, OutputLifetime, Sandbox, Workspace};

use crate::checkpointer::TaskCheckpointer;
use crate::config::{CompletionConfig, Config, LimitConfig, ResolvedModel};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::hooks::{HookObserver, HookRunner, HookTask, find_hooks};
use crate::hub::EventHub;
use crate::locked::locked_edit_tool;
use crate::notice::NoticeTopic;
use crate::recording::CassetteHeader;
use crate::relocated_tool::RelocatedTool;
use crate::run_summary::RunSummary;
use crate::skills::{Skills, UseSkill};
use crate::spec::{RecordMode, ResultForm, SessionSpec};
use crate::{completion_options, instructions, modes, repairs, sandbox, trust};

/// Everything that a task needs besides its records.
pub struct TaskSetup {
    /// The folder, with the limits on its paths.
    pub workspace: Arc<Workspace>,
    /// The tools.
    pub(crate) registry: ToolRegistry,
    /// The rules, with the mode that the task begins in.
    pub(crate) rules: PolicyRules,
    /// The limits that end the task.
    pub(crate) limits: TaskLimits,
    /// The conditions of a completion.
    pub(crate) completion: CompletionConditions,
    /// The repairs of wrong calls that are on.
    pub(crate) repairs: RepairSet,
    /// The dialects that the session knows.
    pub(crate) dialects: DialectSet,
    /// The most time of a run; `None` for no limit.
    pub(crate) max_time: Option<Duration>,
    /// The prices of the model, which limits on cost are computed with.
    pub(crate) prices: TokenPrices,
    /// The treatment of calls in the text of a native session.
    pub(crate) recovery: RecoveryChoice,
    /// The number of calls that a message may hold.
    pub(crate) parallel_calls: ParallelCalls,
    /// True if the server of the model renders a chat template.
    pub(crate) renders_template: bool,
    /// Interrupts the task.
    pub(crate) cancel: CancelToken,
    /// The resources of the tools.
    pub(crate) resources: ToolResources,
    /// The fragments that go into the model's context, and the size of its window.
    pub context: RequestContext,
    /// Runs the hooks of the task, where there are any.
    pub(crate) hooks: Option<Arc<HookRunner>>,
    /// Notes the paths that calls touch, for the rules about them.
    pub(crate) instruction_watcher: Option<Arc<instructions::InstructionWatcher>>,
    /// The modes that the task may switch to.
    pub(crate) modes: modes::SessionModes,
    /// The description of the folder in the system prompt.
    described: PromptEnvironment,
}

/// The folder and system that the prompt describes: in a replay the recorded ones, not the present ones.
#[derive(Debug, Clone)]
pub(crate) struct PromptEnvironment {
    /// The folder.
    pub(crate) folder: String,
    /// The operating system.
    pub(crate) system: String,
    /// The results of commands in the recording. A replay reproduces their order of lines.
    pub(crate) results: Vec<String>,
}

/// The treatment of calls in the text of a native session, as the user chose it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecoveryChoice {
    /// The choice for this session, which precedes that for a model.
    session: Option<TextRecovery>,
    /// The choice for the model that the task began with.
    model: Option<TextRecovery>,
    /// The choice for all models that have none of their own.
    usual: Option<TextRecovery>,
}

impl RecoveryChoice {
    pub(crate) fn new(spec: &SessionSpec, config: &Config) -> Self {
        Self {
            session: spec.recovery,
            model: None,
            usual: config.recovery,
        }
    }

    /// Returns the same choice for another model.
    pub(crate) fn for_model(self, entry: Option<&ModelEntry>) -> Self {
        Self {
            model: entry.and_then(|entry| entry.recovery),
            ..self
        }
    }

    /// Returns the treatment that follows.
    pub(crate) fn resolve(self) -> TextRecovery {
        self.session
            .or(self.model)
            .or(self.usual)
            .unwrap_or_default()
    }
}

/// The resources that the tools of a task use, besides its folder.
pub(crate) struct ToolResources {
    /// The tool that the model edits files with.
    pub(crate) edit_tool: EditTool,
    /// The outputs and background jobs of commands.
    pub(crate) jobs: Arc<JobManager>,
    /// Takes checkpoints, unless they are off.
    pub(crate) checkpointer: Option<Arc<TaskCheckpointer>>,
    /// The sandbox of commands.
    pub(crate) sandbox: Sandbox,
    /// Starts subtasks, where they are offered.
    pub(crate) subtask_spawner: Option<Arc<dyn SubtaskSpawner>>,
    /// The files that the model of a resumed task has seen.
    pub(crate) seen_files: Vec<SeenFile>,
    /// The rules that the model of a resumed task has received.
    pub(crate) sent_instructions: Vec<String>,
    /// The tool that reads skills, where there are any.
    pub(crate) skill_tool: Option<Arc<dyn Tool>>,
    /// The editor in which the user has files open.
    pub(crate) editor: Option<Arc<dyn Editor>>,
}

/// The identity of a new task: its prompt, its model and its origin.
pub(crate) struct NewTaskPlan<'a> {
    /// The id of the task.
    pub(crate) id: TaskId,
    /// The first message.
    pub(crate) prompt: String,
    /// The model's name as the user gave it.
    pub(crate) model: &'a str,
    /// The model's name at its provider.
    pub(crate) model_id: &'a str,
    /// The protocol for tool calls, to which the task is locked.
    pub(crate) protocol: ToolProtocol,
    /// The origin of a task that the user did not start, such as its parent.
    pub(crate) from: Option<TaskOrigin>,
}

/// A task with the store that keeps its records.
pub(crate) struct OpenedTask {
    /// The task, paused.
    pub(crate) task: Task,
    /// The store of its records. A journal in it is locked until it is dropped.
    pub(crate) store: Box<dyn RecordStore>,
    /// The record of the start, if it was not appended yet.
    pub(crate) first: Option<Record>,
    /// The observers of the task, besides those that every task has.
    pub(crate) observers: Vec<Arc<dyn DriverObserver>>,
}

/// The end of a run of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEnd {
    /// The outcome.
    pub outcome: TaskOutcome,
    /// The result of the task, or the reason why there is none.
    pub message: String,
    /// The number of turns since the start or the resume.
    pub turns: u32,
    /// The total tokens and money that the task used, over all runs.
    pub totals: UsageTotals,
    /// The calls that were denied or failed in this run, and the files that it changed.
    pub summary: RunSummary,
    /// The use of each tool, over all runs of the task.
    pub tools: ToolUsageTable,
    /// True if the user ended the run when the model had answered and waited for a message: nothing was completed, and nothing failed.
    pub follows_answer: bool,
}

impl TaskEnd {
    /// Returns the outcome for the exit code of a session. A user who leaves after an answer does not make the session a failure.
    pub fn session_outcome(&self) -> TaskOutcome {
        match self.outcome {
            TaskOutcome::Unfinished if self.follows_answer => TaskOutcome::Completed,
            outcome => outcome,
        }
    }
}

/// Returns the built-in tools as models see them, independent of a folder.
pub fn built_in_tools() -> ToolSet {
    let offered = sabir_tools::builtin_specs()
        .into_iter()
        .chain(sabir_agent::control::control_specs())
        .collect::<Vec<_>>();
    let more = sabir_tools::unoffered_specs()
        .into_iter()
        .chain(sabir_agent::control::mode_dependent_specs())
        .collect();
    // The built-in names are distinct and valid; a test holds that.
    ToolSet::with_unoffered(offered, more)
        .unwrap_or_default()
        .with_foreign_tools()
}

impl TaskSetup {
    /// Sets up the tools in the folder of the spec, or in `folder`. Sends notices about unusual facts there.
    pub(crate) fn new(
        spec: &SessionSpec,
        config: &Config,
        folder: Option<&Path>,
        resources: ToolResources,
    ) -> Result<Self, SessionError> {
        let setup = Self::assemble(spec, config, folder, resources, true)?;
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
        Self::assemble(spec, config, folder, resources, false)
    }

    fn assemble(
        spec: &SessionSpec,
        config: &Config,
        folder: Option<&Path>,
        resources: ToolResources,
        with_notices: bool,
    ) -> Result<Self, SessionError> {
        let folder = spec
            .workspace
            .as_deref()
            .or(folder)
            .unwrap_or(Path::new("."));
        let (workspace, rules) = open_folder(folder, spec, config)?;
        let limits = completion_options::task_limits(&spec.limits, &config.limits);
        let workspace = Arc::new(workspace);
        let checkpointer = TaskCheckpointer::from_options(spec, config, &workspace)?;
        let sandbox = sandbox::task_sandbox(&spec.sandbox, config)?;
        let mode = rules.mode().map(|mode| mode.name.as_str());
        // Read through the workspace with its bounds: a hidden file is not an instruction file.
        // A recording knows neither the skills of the folder nor their tool.
        let is_recorded = matches!(spec.record, RecordMode::Record(_));
        let skills = if is_recorded || !config.limits.sends_instructions() {
            Skills::default()
        } else {
            Skills::find(&workspace, config)
        };
        // A replay could not repeat what a hook did.
        let hooks = if is_recorded {
            if with_notices && !find_hooks(&workspace, config).hooks.is_empty() {
                let text = "hooks do not run while a task is recorded";
                config.notices.send(NoticeTopic::Hooks, text);
            }
            None
        } else {
            HookRunner::for_task(&workspace, config, &sandbox, with_notices)
        };
        let (context, watch) = instructions::task_context(
            &workspace,
            config,
            &instructions::ContextNeeds {
                mode,
                sent_instructions: &resources.sent_instructions,
                skills: skills.fragment(),
            },
        );
        let resources = ToolResources {
            checkpointer,
            sandbox,
            skill_tool: UseSkill::for_skills(&skills),
            // A replay could not repeat what the user typed.
            editor: config.editor.clone().filter(|_| !is_recorded),
            ..resources
        };
        let setup = Self::with_resources(
            &config.environment,
            workspace,
            resources,
            rules,
            limits,
            None,
        )?;
        let source: Arc<dyn ContextSource> = Arc::clone(&watch) as _;
        let registry = setup.registry.clone().with_context_source(Some(source));
        Ok(Self {
            repairs: repairs::without_rules(&config.repairs_off)?,
            dialects: config.dialects.clone(),
            max_time: spec.limits.max_seconds.map(Duration::from_secs),
            recovery: RecoveryChoice::new(spec, config),
            parallel_calls: config.parallel_calls(spec),
            completion: completion_options::completion_conditions(&spec.completion, &config.limits),
            context,
            registry,
            instruction_watcher: Some(watch),
            hooks,
            ..setup
        })
    }

    /// Stops looking for changes of the folder's instructions: a recording knows only those of the beginning.
    pub(crate) fn for_recording(self, is_recorded: bool) -> Self {
        let registry = if is_recorded {
            self.registry.clone().with_context_source(None)
        } else {
            self.registry.clone()
        };
        Self { registry, ..self }
    }

    /// Sets the prices of the model.
    ///
    /// # Errors
    /// When there is a limit on cost and the prices are not known.
    pub(crate) fn with_prices(mut self, chosen: &ResolvedModel) -> Result<Self, SessionError> {
        if self.limits.cost.is_some() && !chosen.prices.is_known() {
            return Err(SessionError::invalid(format!(
                "--max-cost cannot be enforced: the price of {} at {} is not known; give its prices under [[models]] in config.toml \
                 (see docs/models.md), or leave the limit out",
                chosen.id,
                chosen.provider_name()
            )));
        }
        self.prices = chosen.prices;
        self.recovery = self.recovery.for_model(chosen.entry.as_ref());
        self.renders_template = chosen.renders_template();
        // A configured window takes precedence over that of the catalogue.
        let known = || chosen.entry.as_ref().and_then(|entry| entry.context);
        self.context.window = self.context.window.or_else(known);
        Ok(self)
    }

    /// Sets up the tools for a replay: they act as if they worked in the recorded folder, and the recorded limits hold. A check comes
    /// from the spec alone, as approvals do: a recording cannot bring a command.
    pub(crate) fn for_replay(
        spec: &SessionSpec,
        config: &Config,
        header: &CassetteHeader,
        results: Vec<String>,
    ) -> Result<Self, SessionError> {
        let folder = spec.workspace.as_deref().unwrap_or(Path::new("."));
        let (workspace, rules) = open_folder(folder, spec, config)?;
        let recorded = LimitConfig {
            max_turns: header.max_turns,
            max_tokens: header.max_tokens,
            max_cost: header.max_cost,
            completion: CompletionConfig {
                review: None,
                todos: Some(header.require_todos),
                check: None,
                allow_denied: Some(!header.ends_denied),
                by: Some(if header.takes_answers {
                    ResultForm::Answer
                } else {
                    ResultForm::Call
                }),
            },
            ..LimitConfig::default()
        };
        let limits = completion_options::task_limits(&spec.limits, &recorded);
        let described = PromptEnvironment {
            folder: header.start.workspace.clone(),
            system: header.system.clone(),
            results,
        };
        let workspace = Arc::new(workspace);
        let resources = ToolResources {
            edit_tool: locked_edit_tool(&header.start, spec)?,
            jobs: temporary_jobs(&config.environment),
            checkpointer: TaskCheckpointer::from_options(spec, config, &workspace)?,
            sandbox: sandbox::task_sandbox(&spec.sandbox, config)?,
            subtask_spawner: None,
            seen_files: Vec::new(),
            sent_instructions: Vec::new(),
            skill_tool: None,
            editor: None,
        };
        let setup = Self::with_resources(
            &config.environment,
            workspace,
            resources,
            rules,
            limits,
            Some(described),
        )?;
        setup.notify_of_folder(config);
        Ok(Self {
            repairs: repairs::without_rules(&header.repairs_off)?,
            dialects: config.dialects.clone(),
            max_time: spec.limits.max_seconds.map(Duration::from_secs),
            recovery: RecoveryChoice::new(spec, config),
            parallel_calls: header.parallel_calls,
            prices: header.prices,
            renders_template: header.renders_template,
            completion: completion_options::completion_conditions(&spec.completion, &recorded),
            context: header.context.clone(),
            ..setup
        })
    }

    /// Sets up the tools in a workspace. `described` replaces the real folder and system in the prompt.
    pub(crate) fn with_resources(
        environment: &Environment,
        workspace: Arc<Workspace>,
        resources: ToolResources,
        rules: PolicyRules,
        limits: TaskLimits,
        described: Option<PromptEnvironment>,
    ) -> Result<Self, SessionError> {
        let settings = sabir_tools::ToolSettings {
            workspace: Arc::clone(&workspace),
            helper: environment.helper_program.clone(),
            environment: environment.command_variables(),
            edit_tool: resources.edit_tool,
            sandbox: resources.sandbox.clone(),
            jobs: Arc::clone(&resources.jobs),
            reach: sabir_tools::NetworkScope::Public,
            editor: resources.editor.clone(),
        };
        let here = workspace.root().display().to_string();
        let mut tools = sabir_tools::resumed_tools(settings, &resources.seen_files);
        if let Some(described) = &described {
            // The recorded requests name files of the recorded folder, and must be repeated byte
            // for byte.
            tools =
                RelocatedTool::wrap_all(tools, &described.folder, &here, described.results.clone());
        }
        tools.push(Arc::new(DocumentationTool));
        tools.extend(resources.skill_tool.clone());
        let spawner = resources.subtask_spawner.clone();
        // Added after the wrapping: a replay has no subtasks, and their tool has no paths.
        tools.extend(spawner.map(|spawner| Arc::new(NewTaskTool::new(spawner)) as Arc<dyn Tool>));
        let system = std::env::consts::OS.to_owned();
        let described = described.unwrap_or(PromptEnvironment {
            folder: here,
            system,
            results: Vec::new(),
        });
        // Tools that the mode does not offer stay known, so that a call of one is refused with the
        // reason.
        let fits = |group: Option<ToolGroup>| modes::is_offered(rules.mode(), group);
        let registry = ToolRegistry::with_filter(tools, &fits)
            .map_err(|error| SessionError::internal(error.to_string()))?;
        Ok(Self {
            workspace,
            registry,
            rules,
            limits,
            completion: CompletionConditions::default(),
            repairs: RepairSet::all(),
            dialects: environment.dialects.clone(),
            max_time: None,
            prices: TokenPrices::default(),
            recovery: RecoveryChoice::default(),
            parallel_calls: ParallelCalls::default(),
            renders_template: false,
            cancel: CancelToken::default(),
            context: RequestContext::default(),
            instruction_watcher: None,
            hooks: None,
            resources,
            modes: modes::SessionModes::default(),
            described,
        })
    }

    /// The observers that every task with this setup has.
    pub(crate) fn common_observers(&self) -> Vec<Arc<dyn DriverObserver>> {
        // Hooks first: a call that they refuse needs no checkpoint, and what they write after a
        // call belongs to it.
        let hooks = self.hooks.iter();
        let keeper = self.resources.checkpointer.iter();
        let watcher = self.instruction_watcher.iter();
        hooks
            .map(|hooks| Arc::new(HookObserver(Arc::clone(hooks))) as Arc<dyn DriverObserver>)
            .chain(keeper.map(|keeper| Arc::clone(keeper) as Arc<dyn DriverObserver>))
            .chain(watcher.map(|watcher| Arc::clone(watcher) as Arc<dyn DriverObserver>))
            .collect()
    }

    /// Tells the hooks which task they run for. `hub` is where its user can be asked.
    pub(crate) fn attach_hooks(
        &self,
        task: &TaskId,
        journals: &Path,
        hub: &EventHub,
        is_subtask: bool,
    ) {
        if let Some(hooks) = &self.hooks {
            hooks.attach(HookTask {
                task: task.clone(),
                journal: journals.join(format!("{task}.journal")),
                hub: hub.clone(),
                is_subtask,
            });
        }
    }

    /// Limits the levels of subtasks below a task that has `depth` tasks above it, and sets what interrupts it.
    pub(crate) fn at_depth(mut self, depth: u32, cancel: CancelToken) -> Self {
        self.limits.subtasks.depth = self.limits.subtasks.depth.saturating_sub(depth);
        self.cancel = cancel;
        self
    }

    /// Sends notices about unusual facts in the folder.
    fn notify_of_folder(&self, config: &Config) {
        let home = config.environment.home_folder.as_deref();
        if let Some(why) = modes::wide_folder_warning(self.workspace.root(), home) {
            let text =
                format!("{why}: Sabir asks about every change of a file, even if it is approved");
            config.notices.send(NoticeTopic::Workspace, text);
        }
        if has_configuration(self.workspace.root()) {
            let text = "a repository cannot approve anything: the configuration in its folder `.sabir` is not read";
            config.notices.send(NoticeTopic::Workspace, text);
        }
    }

    /// Returns the settings for the task machine.
    pub(crate) fn task_settings(&self, model: &str, attended: Interactivity) -> TaskSettings {
        let PromptEnvironment { folder, system, .. } = &self.described;
        let present = || self.rules.mode().map(Mode::prompt_text).unwrap_or_default();
        let mode = self.modes.mode_prompt().map_or_else(present, str::to_owned);
        TaskSettings {
            system: InstructionTemplate {
                workspace: folder,
                system,
                interactivity: attended,
            }
            .render_prompt()
                + &mode,
            model: model.to_owned(),
            tools: self.registry.tool_set().clone(),
            read_only_tools: self.registry.read_only_tool_names(),
            polling_tools: self.registry.polling_tool_names(),
            rules: self.rules.clone(),
            interactivity: attended,
            limits: self.limits,
            completion: self.completion.clone(),
            repairs: self.repairs,
            dialects: self.dialects.clone(),
            recovery: self.recovery.resolve(),
            parallel_calls: self.parallel_calls,
            renders_template: self.renders_template,
            max_output: None,
            prices: self.prices,
        }
    }

    /// Returns the header of a recording of a task with this setup.
    pub(crate) fn cassette_header(
        &self,
        start: &TaskStart,
        model: &str,
        config: &Config,
    ) -> CassetteHeader {
        CassetteHeader {
            start: start.clone(),
            model: model.to_owned(),
            system: self.described.system.clone(),
            max_turns: self.limits.turns,
            max_tokens: self.limits.tokens,
            require_todos: self.completion.open_todos == OpenTodos::Refused,
            takes_answers: match self.completion.form {
                CompletionForm::ByProtocol => start.protocol == ToolProtocol::Native,
                form => form == CompletionForm::Answer,
            },
            ends_denied: self.completion.denials == UnresolvedDenials::EndDenied,
            max_cost: self.limits.cost,
            prices: self.prices,
            renders_template: self.renders_template,
            parallel_calls: self.parallel_calls,
            renews: false,
            repairs_off: config.repairs_off.clone(),
            context: self.context.clone(),
            modes: self.modes.recorded_modes(model),
            records: Vec::new(),
            words: None,
        }
    }
}

/// The parts of a folder `.sabir` that are read: texts for the model, which approve nothing.
const READ_PARTS: [&str; 5] = ["rules", "commands", "skills", "agents", "hooks.json"];

/// Returns true if the folder `.sabir` of a repository holds anything that is not read.
fn has_configuration(root: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(root.join(".sabir")) else {
        return false;
    };
    // An empty folder is not named: after a kill it may be the placeholder of our own sandbox.
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        !READ_PARTS.iter().any(|part| name == **part)
    })
}

/// The mode of tasks that name none.
pub(crate) const DEFAULT_MODE: &str = "code";

/// Returns the name of the mode that a new task begins in.
pub(crate) fn initial_mode<'a>(spec: &'a SessionSpec, config: &'a Config) -> &'a str {
    Mode::canonical_name(
        spec.mode
            .as_deref()
            .or(config.rules.mode.as_deref())
            .unwrap_or(DEFAULT_MODE),
    )
}

/// Returns the name of the mode that a task was started in.
pub(crate) fn start_mode(start: &TaskStart) -> &str {
    Mode::canonical_name(start.mode.as_deref().unwrap_or(DEFAULT_MODE))
}

/// Opens a folder with all its limits, and parses the rules.
fn open_folder(
    folder: &Path,
    spec: &SessionSpec,
    config: &Config,
) -> Result<(Workspace, PolicyRules), SessionError> {
    let workspace =
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    let home = config.environment.home_folder.as_deref();
    let mut rules = config
        .rules
        .build_rules(&spec.rules, workspace.root(), home)?;
    rules = rules.with_mode(modes::find_mode(
        initial_mode(spec, config),
        config,
        &workspace,
    )?);
    // In a home or at the root, an approval such as `edits` would cover far more than a project.
    if let Some(why) = modes::wide_folder_warning(workspace.root(), home) {
        rules = rules.ask_before_writes(why);
    }
    // The bounds hold whatever is approved, so they are part of the workspace and not of the rules.
    let bounds = modes::file_access_bounds(&rules, config)?;
    // Trust is read from the user's data folder, never from the repository that it is about.
    let trust = trust::load_trust(&config.environment, &config.notices)
        .with_builds(config.allows_trusted_builds());
    Ok((workspace.with_bounds(bounds).with_trust(trust), rules))
}

/// Returns the spec to continue a task with: it keeps the last mode of the records, unless the spec names another.
pub(crate) fn with_kept_mode<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    spec: &SessionSpec,
) -> SessionSpec {
    let kept = || Some(ModeHistory::from_records(records).current_mode().to_owned());
    SessionSpec {
        mode: spec.mode.clone().or_else(kept),
        ..spec.clone()
    }
}

/// Creates the manager of a task's outputs and jobs. The outputs are kept beside its journal in `folder`.
pub(crate) fn persistent_jobs(folder: &Path, id: &TaskId) -> Arc<JobManager> {
    Arc::new(JobManager::new(
        folder.join(format!("{id}.outputs")),
        OutputLifetime::Persistent,
    ))
}

/// Creates the manager of outputs and jobs for a task that leaves nothing behind.
pub fn temporary_jobs(environment: &Environment) -> Arc<JobManager> {
    let name = format!("sabir-outputs-{}", environment.unique_id().simple());
    Arc::new(JobManager::new(
        environment.temporary_folder.join(name),
        OutputLifetime::Temporary,
    ))
}

/// Creates a new task and its journal.
pub(crate) fn create_task(
    setup: &TaskSetup,
    plan: NewTaskPlan<'_>,
    attended: Interactivity,
    journals: &Path,
    environment: &Environment,
) -> Result<OpenedTask, SessionError> {
    let journal = Journal::create(journals, &plan.id, environment.journal_clock())
        .map_err(|error| SessionError::internal(error.to_string()))?;
    let (task, first) = begin_task(setup, plan, attended);
    Ok(OpenedTask {
        task,
        store: Box::new(journal),
        first: Some(first),
        observers: Vec::new(),
    })
}

/// Creates a new task in memory, with the record of its start.
pub(crate) fn begin_task(
    setup: &TaskSetup,
    plan: NewTaskPlan<'_>,
    attended: Interactivity,
) -> (Task, Record) {
    let start = TaskStart {
        task: plan.id,
        prompt: plan.prompt,
        workspace: setup.workspace.root().display().to_string(),
        model: plan.model.to_owned(),
        protocol: plan.protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edit_tool: Some(setup.resources.edit_tool.name().to_owned()),
        mode: setup
            .rules
            .mode()
            .map(|mode| mode.name.clone())
            .filter(|name| name != DEFAULT_MODE),
        from: plan.from,
    };
    let (task, first) = Task::new(start, setup.task_settings(plan.model_id, attended));
    (
        task.with_context(setup.context.clone())
            .with_modes(setup.modes.mode_configs()),
        first,
    )
}

/// Finds the task in `folder` whose id is, or begins with, `name`.
///
/// # Errors
/// When there is none, or more than one.
pub(crate) fn find_task(folder: &Path, name: &str) -> Result<TaskId, SessionError> {
    let all = sabir_journal::list_task_ids(folder)
        .map_err(|error| SessionError::internal(error.to_string()))?;
    let mut ids: Vec<_> = all
        .into_iter()
        .filter(|id| id.as_str().starts_with(name))
        .collect();
    // A subtask's id begins with its parent's id, followed by a hyphen. A prefix of both means the
    // parent.
    if let [first, rest @ ..] = ids.as_slice()
        && rest.iter().all(|id| {
            id.as_str()
                .strip_prefix(first.as_str())
                .is_some_and(|rest| rest.starts_with('-'))
        })
    {
        ids.truncate(1);
    }
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(SessionError::UnknownTask(name.to_owned())),
        [first, ..] => match ids.iter().find(|id| id.as_str() == name) {
            Some(id) => Ok(id.clone()),
            None => Err(SessionError::AmbiguousTask {
                name: name.to_owned(),
                count: ids.len(),
                example: first.clone(),
            }),
        },
    }
}

/// Returns the folder that a task was started in. It may not exist any more.
pub(crate) fn workspace_of(start: &TaskStart) -> PathBuf {
    PathBuf::from(&start.workspace)
}
