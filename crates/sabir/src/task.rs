//! Tasks, put together: configuration, model, tools, journal, and whoever watches.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sabir_agent::{
    Attended, Cancel, Conditions, Context, Driver, Household, Instructions, Limits, NewTask, OpenTodos, Origin,
    Outcome, Record, Registry, Settings, Start, Store, Task, TaskId, Tool, Totals, Trail, User,
};
use sabir_call::{Model, Prices, Protocol, ToolSet};
use sabir_check::Repairs;
use sabir_journal::Journal;
use sabir_policy::{Mode, Rules};
use sabir_tools::EditTool;
use sabir_workspace::{Jobs, Lifetime, Sandbox, Workspace};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cassette::Told;
use crate::cli::TaskOptions;
use crate::config::{self, Chosen, CompletionKeys, Config, LimitKeys};
use crate::ends;
use crate::exit::Failure;
use crate::kept::{Keeper, Kept};
use crate::moved::Moved;
use crate::{instructions, modes, print, repairs, sandbox, trust};

pub(crate) use locked::{edit_tool, kept_edit_tool, named_protocol, protocol};

mod locked;

/// Everything that a task needs besides its records.
pub(crate) struct Bench {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) registry: Registry,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) completion: Conditions,
    pub(crate) repairs: Repairs,
    pub(crate) max_time: Option<Duration>,
    pub(crate) prices: Prices,
    /// Interrupts the task.
    pub(crate) cancel: Cancel,
    /// What its tools work with.
    pub(crate) means: Means,
    /// What else fills the model's context, and the room there is.
    pub(crate) context: Context,
    /// What it may switch to.
    pub(crate) modes: modes::Modes,
    /// What the model is told of its place.
    place: Place,
}

/// What a model is told of the place where it works.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The folder.
    pub(crate) folder: String,
    /// The operating system.
    pub(crate) system: String,
    /// What commands printed there.
    pub(crate) results: Vec<String>,
}

/// What the tools of a task work with, besides its folder.
pub(crate) struct Means {
    /// What the model changes parts of files with.
    pub(crate) edit_tool: EditTool,
    /// What commands leave: outputs and jobs.
    pub(crate) jobs: Arc<Jobs>,
    /// Takes checkpoints, unless they are off.
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// What commands are confined to.
    pub(crate) sandbox: Sandbox,
    /// Makes subtasks, where they are offered.
    pub(crate) household: Option<Arc<dyn Household>>,
}

/// What a new task is to do, and with what.
pub(crate) struct Plan<'a> {
    pub(crate) id: TaskId,
    pub(crate) prompt: String,
    /// The model's name as the user gives it, and as the provider does.
    pub(crate) model: &'a str,
    pub(crate) model_id: &'a str,
    pub(crate) protocol: Protocol,
    /// Where it comes from, if no user began it.
    pub(crate) from: Option<Origin>,
}

/// A task with the place where its records are kept.
pub(crate) struct Open {
    pub(crate) task: Task,
    pub(crate) store: Box<dyn Store>,
    /// The record of the start, where it has not been kept yet.
    pub(crate) first: Option<Record>,
    /// What the user says to a resumed task.
    pub(crate) words: Option<String>,
}

/// How a task ended, with what can be said of it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) message: String,
    pub(crate) turns: u32,
    pub(crate) totals: Totals,
}

/// What the built-in tools offer a model, wherever they may work.
pub(crate) fn offered() -> ToolSet {
    let specs = sabir_tools::specs().into_iter().chain(sabir_agent::control::specs()).collect();
    let more = sabir_tools::unoffered_specs().into_iter().chain(sabir_agent::control::rare_specs()).collect();
    // The built-in names are distinct and valid; a test holds that.
    ToolSet::with_unoffered(specs, more).unwrap_or_default()
}

impl Bench {
    /// Sets up the tools in the folder of the options, or in `folder`. Says what a user would not expect there.
    pub(crate) fn new(
        options: &TaskOptions,
        config: &Config,
        folder: Option<&Path>,
        means: Means,
    ) -> Result<Self, Failure> {
        let bench = Self::quiet(options, config, folder, means)?;
        bench.remark();
        Ok(bench)
    }

    /// As [`new`](Self::new), without a word.
    pub(crate) fn quiet(
        options: &TaskOptions,
        config: &Config,
        folder: Option<&Path>,
        means: Means,
    ) -> Result<Self, Failure> {
        let folder = options.folder.as_deref().or(folder).unwrap_or(Path::new("."));
        let (workspace, rules) = place(folder, options, config)?;
        let limits = ends::limits(&options.ends, &config.limits)?;
        let max_time = options.ends.max_time.as_deref().map(config::duration).transpose()?;
        let workspace = Arc::new(workspace);
        let (keeper, sandbox) = (Keeper::of(options, config, &workspace)?, sandbox::of_task(options, config)?);
        let (context, watch) = instructions::context(&workspace, config, rules.mode().map(|mode| mode.name.as_str()));
        let bench = Self::with(workspace, Means { keeper, sandbox, ..means }, rules, limits, None)?;
        let completion = ends::conditions(&options.ends, &config.limits);
        let registry = bench.registry.clone().amid(Some(watch));
        Ok(Self { repairs: repairs::without(&config.repairs_off)?, max_time, completion, context, registry, ..bench })
    }

    /// The bench for a task that is recorded: a recording knows what was told at the beginning, and no later looks at the place.
    pub(crate) fn recorded(self, is: bool) -> Self {
        let registry = if is { self.registry.clone().amid(None) } else { self.registry.clone() };
        Self { registry, ..self }
    }

    /// Sets what the model costs. A limit of cost can be kept only where that is known.
    pub(crate) fn priced(mut self, chosen: &Chosen) -> Result<Self, Failure> {
        if self.limits.cost.is_some() && !chosen.prices.is_known() {
            return Err(Failure::usage(format!(
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

    /// Sets up the tools as for [`new`](Self::new), for a replay: they are spoken to as if they worked in the recorded place, and
    /// the recorded limits hold. A check comes from the options alone, as what is approved: a recording cannot bring a command.
    pub(crate) fn replaying(
        options: &TaskOptions,
        config: &Config,
        told: &Told,
        results: Vec<String>,
    ) -> Result<Self, Failure> {
        let folder = options.folder.as_deref().unwrap_or(Path::new("."));
        let (workspace, rules) = place(folder, options, config)?;
        let completion = CompletionKeys { todos: Some(told.require_todos), check: None };
        let recorded = LimitKeys {
            max_turns: told.max_turns,
            max_tokens: told.max_tokens,
            max_cost: told.max_cost,
            completion,
            ..LimitKeys::default()
        };
        let limits = ends::limits(&options.ends, &recorded)?;
        let max_time = options.ends.max_time.as_deref().map(config::duration).transpose()?;
        let place = Place { folder: told.start.workspace.clone(), system: told.system.clone(), results };
        let workspace = Arc::new(workspace);
        let (keeper, sandbox) = (Keeper::of(options, config, &workspace)?, sandbox::of_task(options, config)?);
        let edit_tool = kept_edit_tool(&told.start, options)?;
        let means = Means { edit_tool, jobs: passing_jobs(), keeper, sandbox, household: None };
        let bench = Self::with(workspace, means, rules, limits, Some(place))?;
        let (repairs, completion) = (repairs::without(&told.repairs_off)?, ends::conditions(&options.ends, &recorded));
        let context = told.context.clone();
        bench.remark();
        Ok(Self { repairs, max_time, prices: told.prices, completion, context, ..bench })
    }

    /// Sets up the tools in a workspace. `place`: another than the one where they are, to be spoken of.
    pub(crate) fn with(
        workspace: Arc<Workspace>,
        means: Means,
        rules: Rules,
        limits: Limits,
        place: Option<Place>,
    ) -> Result<Self, Failure> {
        let helper = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("this program cannot find itself: {error}")))?;
        let settings = sabir_tools::Settings {
            workspace: Arc::clone(&workspace),
            helper,
            environment: config::command_environment(),
            edit_tool: means.edit_tool,
            sandbox: means.sandbox.clone(),
            jobs: Arc::clone(&means.jobs),
            reach: sabir_tools::Reach::Public,
        };
        let here = workspace.root().display().to_string();
        let mut tools = sabir_tools::builtin(settings);
        if let Some(keeper) = &means.keeper {
            tools = Kept::all(tools, keeper);
        }
        if let Some(place) = &place {
            tools = Moved::all(tools, (&place.folder, &here), place.results.clone());
        }
        let household = means.household.clone();
        tools.extend(household.map(|household| Arc::new(NewTask::new(household)) as Arc<dyn Tool>));
        let system = std::env::consts::OS.to_owned();
        let place = place.unwrap_or(Place { folder: here, system, results: Vec::new() });
        let fits = |name: &str| modes::offered(rules.mode(), name);
        let registry = Registry::offering(tools, &fits).map_err(|error| Failure::internal(error.to_string()))?;
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
            means,
            modes: modes::Modes::default(),
            place,
        })
    }

    /// For a task above which so many others stand: fewer levels may stand below it. `cancel` interrupts it.
    pub(crate) fn below(mut self, depth: u32, cancel: Cancel) -> Self {
        self.limits.subtasks.depth = self.limits.subtasks.depth.saturating_sub(depth);
        self.cancel = cancel;
        self
    }

    /// Says what a user would not expect in the folder.
    fn remark(&self) {
        if let Some(why) = modes::too_wide(self.workspace.root()) {
            print::err(&format!("sabir: {why}: every change of a file is asked about, whatever is approved\n"));
        }
        if self.workspace.root().join(".sabir").is_dir() {
            print::err("sabir: a repository cannot approve anything: the folder `.sabir` in it is not read\n");
        }
    }

    /// How a task is run on this bench.
    pub(crate) fn settings(&self, model: &str, attended: Attended) -> Settings {
        let Place { folder, system, .. } = &self.place;
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

    /// What a recording must hold of a task on this bench.
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

    /// Drives a task to its end. Interrupts (SIGINT, SIGTERM, SIGHUP) cancel it; a second one ends the process.
    pub(crate) fn drive(&self, open: &mut Open, model: &dyn Model, user: &mut dyn User) -> Result<End, Failure> {
        let Open { task, store, first, words } = open;
        if let Some(keeper) = &self.means.keeper {
            keeper.begin(&task.start().task);
        }
        let (trail, modes, workspace) = (task.trail().clone(), &self.modes, &*self.workspace);
        let mut store = modes::Followed { store: store.as_mut(), trail, modes, workspace };
        let (runtime, store, cancel) = (runtime()?, &mut store, self.cancel.clone());
        listen(&cancel)?;
        let (outcome, message) = runtime.block_on(async {
            let max_time = self.max_time;
            let driver = Driver { model, registry: &self.registry, store, user, cancel, max_time };
            let ended = driver.run(task, first.take(), words.take()).await;
            self.means.jobs.end().await;
            ended
        });
        // A search that is still reading a large tree must not hold up the end; writes are whole or not at all.
        runtime.shutdown_timeout(Duration::from_millis(200));
        Ok(End { outcome, message, turns: task.turns(), totals: task.totals() })
    }
}

/// The mode of a task that names none.
pub(crate) const USUAL_MODE: &str = "code";

/// The name of the mode that a task is begun in.
pub(crate) fn first_mode<'a>(options: &'a TaskOptions, config: &'a Config) -> &'a str {
    Mode::usual_name(options.mode.as_deref().or(config.rules.mode.as_deref()).unwrap_or(USUAL_MODE))
}

/// The name of the mode that a task was begun in.
pub(crate) fn begun_mode(start: &Start) -> &str {
    Mode::usual_name(start.mode.as_deref().unwrap_or(USUAL_MODE))
}

/// The folder with all that holds in it, and the rules.
fn place(folder: &Path, options: &TaskOptions, config: &Config) -> Result<(Workspace, Rules), Failure> {
    let workspace = Workspace::open(folder).map_err(|error| Failure::usage(error.to_string()))?;
    let mut rules = config.rules.rules(&options.rules, workspace.root())?;
    rules = rules.within(modes::find(first_mode(options, config), config, &workspace)?);
    if let Some(why) = modes::too_wide(workspace.root()) {
        rules = rules.asking_to_write(why);
    }
    let bounds = modes::bounds_of(&rules, config)?;
    Ok((workspace.bounded(bounds).trusting(trust::load()), rules))
}

/// Options under which a task of these records goes on: its mode stays, unless another is asked for.
pub(crate) fn kept_mode<'a>(records: impl IntoIterator<Item = &'a Record>, options: &TaskOptions) -> TaskOptions {
    let kept = || Some(Trail::of(records).mode().to_owned());
    TaskOptions { mode: options.mode.clone().or_else(kept), ..options.clone() }
}

/// A name that no task has.
pub(crate) fn new_id() -> TaskId {
    TaskId::new(unique().to_string())
}

/// A name that nothing else has, in the order of time. A clock from before 1970 gives no order, and is no reason to break down.
pub(crate) fn unique() -> uuid::Uuid {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos()))
}

/// The outputs and jobs of a task, kept beside its journal in that folder.
pub(crate) fn jobs(folder: &Path, id: &TaskId) -> Arc<Jobs> {
    Arc::new(Jobs::new(folder.join(format!("{id}.outputs")), Lifetime::Lasting))
}

/// The outputs and jobs of a task that leaves nothing behind.
pub(crate) fn passing_jobs() -> Arc<Jobs> {
    let name = format!("sabir-outputs-{}", unique().simple());
    Arc::new(Jobs::new(std::env::temp_dir().join(name), Lifetime::Passing))
}

/// A new task with its journal.
pub(crate) fn start(bench: &Bench, plan: Plan<'_>, attended: Attended, folder: &Path) -> Result<Open, Failure> {
    let journal = Journal::create(folder, &plan.id, clock()).map_err(|error| Failure::internal(error.to_string()))?;
    let (task, first) = begun(bench, plan, attended);
    Ok(Open { task, store: Box::new(journal), first: Some(first), words: None })
}

/// A new task, with the record of its start.
pub(crate) fn begun(bench: &Bench, plan: Plan<'_>, attended: Attended) -> (Task, Record) {
    let start = Start {
        task: plan.id,
        prompt: plan.prompt,
        workspace: bench.workspace.root().display().to_string(),
        model: plan.model.to_owned(),
        protocol: plan.protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edit_tool: Some(bench.means.edit_tool.name().to_owned()),
        mode: bench.rules.mode().map(|mode| mode.name.clone()).filter(|name| name != USUAL_MODE),
        from: plan.from,
    };
    let (task, first) = Task::new(start, bench.settings(plan.model_id, attended));
    (task.within(bench.context.clone()).among(bench.modes.outfits()), first)
}

/// The journal's clock: milliseconds since 1970.
pub(crate) fn clock() -> impl Fn() -> u64 + Send + 'static {
    || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The task whose name is, or begins with, `name`.
pub(crate) fn find(folder: &Path, name: &str) -> Result<TaskId, Failure> {
    let all = sabir_journal::names(folder).map_err(|error| Failure::internal(error.to_string()))?;
    let mut ids: Vec<_> = all.into_iter().filter(|id| id.as_str().starts_with(name)).collect();
    // The name of a subtask begins with that of its task, which is meant by what begins both.
    if let [first, rest @ ..] = ids.as_slice()
        && rest.iter().all(|id| id.as_str().strip_prefix(first.as_str()).is_some_and(|rest| rest.starts_with('-')))
    {
        ids.truncate(1);
    }
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(Failure::usage(format!("there is no task `{name}`; `sabir tasks` lists them"))),
        [first, ..] => match ids.iter().find(|id| id.as_str() == name) {
            Some(id) => Ok(id.clone()),
            None => Err(Failure::usage(format!(
                "`{name}` begins {} tasks, among them {first}; give more of the name",
                ids.len()
            ))),
        },
    }
}

/// How many files a task has open at least. The runtime does not survive that it cannot open its own.
const FILES: usize = 16;

/// What requests and tools run in: one thread.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let room = (0..FILES).map(|_| std::fs::File::open("/dev/null")).collect::<std::io::Result<Vec<_>>>();
    let room = room.map_err(|error| {
        Failure::internal(format!(
            "a task needs {FILES} more open files than there may be ({error}): raise the limit with `ulimit -n 1024`"
        ))
    })?;
    drop(room);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the runtime cannot be started: {error}")))
}

/// Cancels the task at the first signal, and ends the process at the second. A thread of its own hears them: the one that works may
/// be waiting for a disk.
fn listen(cancel: &Cancel) -> Result<(), Failure> {
    let ears = runtime()?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals: Vec<Signal> = {
        let _inside = ears.enter();
        // A signal that cannot be listened for keeps its usual effect, which is to end the process.
        kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
    };
    let cancel = cancel.clone();
    let hear = move || {
        ears.block_on(any(&mut signals));
        cancel.cancel();
        ears.block_on(any(&mut signals));
        std::process::exit(i32::from(crate::exit::Exit::Interrupted.code()));
    };
    let begun = std::thread::Builder::new().name("signals".to_owned()).spawn(hear);
    begun.map_err(|error| Failure::internal(format!("there is no thread to hear signals: {error}")))?;
    Ok(())
}

/// Waits for one of these signals.
async fn any(signals: &mut [Signal]) {
    poll_fn(|context| match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// The folder that a task was begun in, if it is still there.
pub(crate) fn workspace_of(start: &Start) -> PathBuf {
    PathBuf::from(&start.workspace)
}
