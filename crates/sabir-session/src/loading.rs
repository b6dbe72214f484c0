//! Loads everything that a session needs, for a new task, a resumed one and a recorded one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{
    CancelToken, Record, ReplayError, SubtaskLimits, SubtaskSpawner, Task, TaskId, TaskOrigin,
    TaskStart, UserMessage,
};
use sabir_call::{Image, Model};
use sabir_journal::{Journal, JournalEntry};
use sabir_model::{Cassette, HttpModel, KeyRefreshingModel};
use sabir_tools::EditTool;
use sabir_workspace::{Sandbox, SandboxLevel};

use crate::config::{Config, ResolvedModel};
use crate::custom_commands::CustomCommands;
use crate::dialect_tables;
use crate::error::SessionError;
use crate::hooks::HookRunner;
use crate::host::Host;
use crate::hub::EventHub;
use crate::images::ImageSupport;
use crate::instructions;
use crate::locked;
use crate::mcp::{self, PROMPT_PREFIX, PromptCommands};
use crate::modes::{self, InitialMode, ModeRoutedModel};
use crate::notice::NoticeTopic;
use crate::recording::{self, CassetteHeader, NullStore, RecordingState};
use crate::seen_files;
use crate::setup::{self, NewTaskPlan, OpenedTask, TaskSetup, ToolResources};
use crate::spec::{RecordMode, SessionSpec};
use crate::subtasks::{self, SubtaskContext, publish_retry};
use crate::task_lookup::short_name;
use crate::telemetry;

/// Everything that a session drives.
pub(crate) struct LoadedSession {
    /// The spec; that of a resumed task names the mode that the task was last in.
    pub(crate) spec: SessionSpec,
    /// The configuration, as it was when the task was loaded.
    pub(crate) config: Arc<Config>,
    /// The tools, rules and limits.
    pub(crate) setup: TaskSetup,
    /// The task, with its store.
    pub(crate) opened: OpenedTask,
    /// The model, which follows the mode of the task.
    pub(crate) model: Box<dyn Model>,
    /// The recording or the replay, if there is one.
    pub(crate) recording: RecordingState,
    /// The message that the task continues with.
    pub(crate) words: Option<String>,
    /// The images of that message.
    pub(crate) images: Vec<Image>,
}

/// The facts that decide whether a task can start subtasks, and the parts of their context.
struct SubtaskRequest<'a> {
    spec: &'a SessionSpec,
    config: &'a Arc<Config>,
    /// The folder of the task, for subtasks of a spec that names none.
    workspace: PathBuf,
    /// The folder of all journals.
    journals: PathBuf,
    /// The model's name as the user gave it.
    model: &'a str,
    /// The number of tasks above it.
    depth: u32,
    /// True if the task has already started subtasks.
    has_started: bool,
    hub: &'a EventHub,
}

impl SubtaskRequest<'_> {
    /// Creates the spawner of subtasks, if the user wants them or the task already has some.
    fn build_spawner(
        self,
        task: &TaskId,
        mode: &modes::CurrentMode,
    ) -> Result<Option<Arc<dyn SubtaskSpawner>>, SessionError> {
        let keys = &self.config.limits.subtasks;
        let levels = keys.depth.unwrap_or(SubtaskLimits::default().depth);
        // The orchestrator changes nothing itself, so it is useless without subtasks.
        let is_wanted = self.spec.subtasks.offered
            || self.has_started
            || modes::mode_name(mode) == modes::ORCHESTRATOR;
        if !(is_wanted || keys.offered == Some(true)) || levels <= self.depth {
            return Ok(None);
        }
        if matches!(self.spec.record, RecordMode::Record(_)) {
            let why = "a recording holds one task: --record and subtasks do not go together";
            if is_wanted {
                return Err(SessionError::invalid(why));
            }
            self.config
                .notices
                .send(NoticeTopic::Subtasks, format!("{why}, so none are offered"));
            return Ok(None);
        }
        let family = SubtaskContext {
            spec: self.spec.clone(),
            config: Arc::clone(self.config),
            workspace: self.workspace,
            tasks_folder: self.journals,
            model: self.model.to_owned(),
            hub: self.hub.clone(),
        };
        Ok(Some(Arc::new(family).spawner_for(task, mode, self.depth)))
    }
}

/// Loads the configuration and the dialect files of a spec; notices go to the hub.
fn load_config(
    host: &Host,
    spec: &SessionSpec,
    hub: &EventHub,
) -> Result<Arc<Config>, SessionError> {
    let mut config = Config::load(
        host.environment(),
        spec.config.as_deref(),
        &hub.notice_sink(),
    )?;
    // After the configuration, so that it cannot shadow a file: a name that is taken is an
    // error.
    dialect_tables::load_dialect_files(&spec.dialect_files, &mut config.dialects)?;
    config.hook_callbacks = host.hook_callbacks.clone();
    config.editor = host.editor.clone();
    config.form_elicitor = host.form_elicitor.clone();
    config.retry_limits = spec.limits.retries;
    config.default_retry_duration = spec.interactivity.default_retry_duration();
    // A time that cannot be read is reported before anything begins.
    config.approval_timeout()?;
    Ok(Arc::new(config))
}

/// Returns resources without checkpoints and sandbox, which the setup adds.
fn plain_resources(
    edit_tool: EditTool,
    journals: &Path,
    task: &TaskId,
    spawner: Option<Arc<dyn SubtaskSpawner>>,
) -> ToolResources {
    ToolResources {
        edit_tool,
        jobs: setup::persistent_jobs(journals, task),
        checkpointer: None,
        sandbox: Sandbox::new(SandboxLevel::Off),
        subtask_spawner: spawner,
        seen_files: Vec::new(),
        sent_instructions: Vec::new(),
        skill_tool: None,
        editor: None,
    }
}

/// Creates a new task with this id, which no task has.
pub(crate) async fn create_session(
    host: &Host,
    id: TaskId,
    spec: &SessionSpec,
    first: UserMessage,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    // Checked before a journal is created, so that a mistake leaves no empty task behind.
    if first.text.trim().is_empty() {
        return Err(SessionError::invalid("there is no task: say what to do"));
    }
    let config = load_config(host, spec, hub)?;
    let mode = setup::initial_mode(spec, &config).to_owned();
    let chosen = config.resolve_model(
        spec.model
            .as_deref()
            .or_else(|| modes::model_of(&config, &mode)),
    )?;
    let image_support = ImageSupport::for_model(&chosen);
    let images = image_support.check_images(first.images)?;
    hub.image_support().set(image_support.clone());
    let named_edit_tool = spec.edit_tool.as_deref().or(config.edit_tool.as_deref());
    let edit_tool = locked::resolve_edit_tool(named_edit_tool, &chosen)?;
    let journals = host.environment().tasks_folder()?;
    let cancel = CancelToken::default();
    let now = modes::shared_mode(&mode);
    let subtasks = SubtaskRequest {
        spec,
        config: &config,
        workspace: PathBuf::from("."),
        journals: journals.clone(),
        model: &chosen.name,
        depth: 0,
        has_started: false,
        hub,
    };
    let resources = plain_resources(
        edit_tool,
        &journals,
        &id,
        subtasks.build_spawner(&id, &now)?,
    );
    let is_recorded = matches!(spec.record, RecordMode::Record(_));
    let setup = TaskSetup::new(spec, &config, None, resources)?.with_prices(&chosen)?;
    let setup = setup.at_depth(0, cancel).for_recording(is_recorded);
    let prompt = expand_first_message(first.text, &setup, &config)?;
    if names_prompt(&prompt) {
        // The text of the prompt is a part of the task's beginning. For other messages no server is
        // waited for.
        mcp::start_servers(spec, &config, &setup, hub);
    }
    let first = expand_prompt(UserMessage::from_text(prompt), hub).await?;
    let images = [images, image_support.check_images(first.images)?].concat();
    let prompt = first.text;
    setup.attach_hooks(&id, &journals, hub, false);
    // Before the journal is created: a message that a hook holds back leaves no task behind.
    let hooks = setup.hooks.clone();
    let prompt = begin_with_hooks(hooks, "startup", Some(prompt)).await?;
    let prompt = prompt.unwrap_or_default();
    let explicit = spec.protocol.as_deref().or(config.protocol.as_deref());
    let protocol = locked::task_protocol(&config.dialects, explicit, None, &chosen)?;
    let begun = InitialMode {
        mode: &mode,
        model: &chosen.name,
        protocol: &protocol,
    };
    let setup = setup
        .with_modes(&config, spec, begun, &chosen, is_recorded)?
        .with_current_mode(now);
    let attended = spec.interactivity.to_machine();
    let plan = NewTaskPlan {
        id,
        prompt,
        model: &chosen.name,
        model_id: &chosen.id,
        protocol,
        from: None,
    };
    let mut opened = setup::create_task(&setup, plan, attended, &journals, host.environment())?;
    opened.task = opened.task.with_images(images);
    opened
        .observers
        .extend(telemetry::task_observer(&opened, &config, &setup, &chosen));
    let header = setup.cassette_header(opened.task.start_record(), &chosen.id, &config);
    let (model, recording) = recorded_model(&setup, &chosen, spec, header, &config, hub)?;
    mcp::start_servers(spec, &config, &setup, hub);
    // No records yet: the driver publishes the start record itself.
    hub.set_history(opened.task.start_record().clone(), Vec::new());
    Ok(LoadedSession {
        spec: spec.clone(),
        config,
        setup,
        opened,
        model: Box::new(model),
        recording,
        words: None,
        images: Vec::new(),
    })
}

/// Runs the hooks of a beginning, and those about the message with which the task begins or continues.
pub(crate) async fn begin_with_hooks(
    hooks: Option<Arc<HookRunner>>,
    source: &str,
    message: Option<String>,
) -> Result<Option<String>, SessionError> {
    let Some(hooks) = hooks else {
        return Ok(message);
    };
    hooks.run_session_start_hooks(source).await;
    match message {
        Some(text) => {
            let checked = hooks.check_prompt(text).await;
            let checked = checked.map_err(|error| SessionError::invalid(error.to_string()))?;
            Ok(Some(checked))
        }
        None => Ok(None),
    }
}

/// Reports whether a message may begin with the name of a server's prompt.
fn names_prompt(text: &str) -> bool {
    text.strip_prefix('/')
        .is_some_and(|text| text.starts_with(PROMPT_PREFIX))
}

/// Puts in the text of the prompt that a message names, once its server is ready.
pub(crate) async fn expand_prompt(
    message: UserMessage,
    hub: &EventHub,
) -> Result<UserMessage, SessionError> {
    if !names_prompt(&message.text) {
        return Ok(message);
    }
    let prompts = PromptCommands::new(hub);
    prompts.wait_for_server(&message.text).await;
    match prompts.expand_line(&message.text).await {
        Some(expanded) => expanded.map_err(|error| SessionError::invalid(error.to_string())),
        None => {
            let name = message.text.split_whitespace().next().unwrap_or_default();
            let text = format!("{name} was not sent: no MCP server that is ready has this prompt");
            Err(SessionError::invalid(text))
        }
    }
}

/// Expands a first message that begins with a command of the folder or the user.
fn expand_first_message(
    text: String,
    setup: &TaskSetup,
    config: &Config,
) -> Result<String, SessionError> {
    if !text.starts_with('/') {
        return Ok(text);
    }
    // Through the workspace of the task, whose hidden files stay hidden.
    let commands = CustomCommands::find_in(&setup.workspace, config);
    match commands.expand_line(text.trim_end()) {
        Some(expanded) => expanded.map_err(|error| SessionError::invalid(error.to_string())),
        None => Ok(text),
    }
}

/// Sends a notice if a resumed task works in another folder than the one it began in, or than the current one.
fn notify_of_other_folder(begun: &Path, root: &Path, config: &Config) {
    let begun_in = begun.canonicalize().unwrap_or_else(|_| begun.to_owned());
    let is_elsewhere = || {
        Path::new(".")
            .canonicalize()
            .is_ok_and(|current| current != root)
    };
    let text = if begun_in != root {
        format!(
            "this task began in {} and now works in {}; what it read before may not hold here",
            begun.display(),
            root.display()
        )
    } else if is_elsewhere() {
        format!(
            "this task works in {}, where it began, and not in the current folder",
            root.display()
        )
    } else {
        return;
    };
    config.notices.send(NoticeTopic::Workspace, text);
}

/// Loads a task from its journal, to continue at once.
pub(crate) fn resume_session(
    host: &Host,
    id: &TaskId,
    spec: &SessionSpec,
    message: Option<UserMessage>,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    // A blank message is none, or a completed task could be resumed with nothing to do.
    let UserMessage { text, images } = message.unwrap_or_default();
    let words = Some(text).filter(|text| !text.trim().is_empty());
    load_session(host, id, spec, words, images, hub)
}

/// Loads the task of an idle session again, to continue with the next message.
pub(crate) fn resume_idle(
    host: &Host,
    id: &TaskId,
    spec: &SessionSpec,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    // With an empty message, because a completed task can be loaded only with one. The real one
    // comes later.
    let mut loaded = load_session(host, id, spec, Some(String::new()), Vec::new(), hub)?;
    loaded.words = None;
    Ok(loaded)
}

fn load_session(
    host: &Host,
    id: &TaskId,
    spec: &SessionSpec,
    words: Option<String>,
    images: Vec<Image>,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    let config = load_config(host, spec, hub)?;
    let journals = host.environment().tasks_folder()?;
    // Opened first: its lock keeps other processes from this task while it is being set up.
    let (journal, entries) = open_journal(host, &journals, id, &config)?;
    // A replay has no journal to learn from, so a recorded task does not learn from it either.
    let is_recorded = matches!(spec.record, RecordMode::Record(_));
    let seen_files = match is_recorded {
        true => Vec::new(),
        false => seen_files::find_seen_files(&entries),
    };
    let records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
    let start = first_start(id, &records)?;
    check_protocol(&config, start, spec)?;
    let spec = &setup::with_kept_mode(&records, spec);
    let mode = setup::initial_mode(spec, &config).to_owned();
    let begun = InitialMode {
        mode: setup::start_mode(start),
        model: &start.model,
        protocol: &start.protocol,
    };
    // The mode that the task was last in may have a model of its own.
    let (chosen, note) = modes::resolve_mode_model(&mode, begun, &config, spec)?;
    if let Some(note) = note {
        config
            .notices
            .send(NoticeTopic::Mode, format!("mode {mode}: {note}"));
    }
    let image_support = ImageSupport::for_model(&chosen);
    let images = image_support.check_images(images)?;
    hub.image_support().set(image_support);
    let now = modes::shared_mode(&mode);
    let workspace = setup::workspace_of(start);
    let subtasks = SubtaskRequest {
        spec,
        config: &config,
        workspace: workspace.clone(),
        journals: journals.clone(),
        model: &chosen.name,
        depth: start.depth(),
        has_started: records.iter().any(subtasks::requests_subtask),
        hub,
    };
    let edit_tool = locked::locked_edit_tool(start, spec)?;
    let resources = ToolResources {
        seen_files,
        sent_instructions: instructions::sent_instructions(&records),
        ..plain_resources(edit_tool, &journals, id, subtasks.build_spawner(id, &now)?)
    };
    let setup = TaskSetup::new(spec, &config, Some(&workspace), resources)?.with_prices(&chosen)?;
    notify_of_other_folder(&workspace, setup.workspace.root(), &config);
    let setup = setup
        .at_depth(start.depth(), CancelToken::default())
        .for_recording(is_recorded);
    let setup = setup
        .with_modes(&config, spec, begun, &chosen, is_recorded)?
        .with_current_mode(now);
    setup.attach_hooks(id, &journals, hub, false);
    let header = setup.cassette_header(start, &chosen.id, &config);
    // A recording of a resumed task includes its earlier records, so that it can be replayed alone.
    let header = CassetteHeader {
        records: records.clone(),
        words: words.clone(),
        ..header
    };
    let settings = setup.task_settings(&chosen.id, spec.interactivity.to_machine());
    hub.set_history(start.clone(), records.clone());
    mcp::start_servers(spec, &config, &setup, hub);
    let task = replay_records(id, records, settings, words.is_some())?;
    let task = task
        .with_context(setup.context.clone())
        .with_modes(setup.modes.mode_configs())
        .with_images(images);
    let mut opened = OpenedTask {
        task,
        store: Box::new(journal),
        first: None,
        observers: Vec::new(),
    };
    opened
        .observers
        .extend(telemetry::task_observer(&opened, &config, &setup, &chosen));
    let (model, recording) = recorded_model(&setup, &chosen, spec, header, &config, hub)?;
    Ok(LoadedSession {
        spec: spec.clone(),
        config,
        setup,
        opened,
        model: Box::new(model),
        recording,
        words,
        images: Vec::new(),
    })
}

/// Replays records into a task. A completed one continues only with a message.
fn replay_records(
    id: &TaskId,
    records: Vec<Record>,
    settings: sabir_agent::TaskSettings,
    has_message: bool,
) -> Result<Task, SessionError> {
    let replayed = if has_message {
        Task::replay_for_message(records, settings)
    } else {
        Task::replay(records, settings)
    };
    replayed.map_err(|error| match error {
        ReplayError::Completed => SessionError::invalid(format!(
            "{id}: the task is completed; say what to do next: `sabir resume {name} WORDS` continues it, `sabir fork {name} WORDS` starts a new task from it",
            name = short_name(id)
        )),
        error => SessionError::invalid(format!("{id}: {error}")),
    })
}

/// Opens the journal of a task, and sends a notice if it was recovered.
fn open_journal(
    host: &Host,
    folder: &Path,
    id: &TaskId,
    config: &Config,
) -> Result<(Journal, Vec<JournalEntry>), SessionError> {
    let (journal, entries, recovery) =
        Journal::open(folder, id, host.environment().journal_clock())
            .map_err(|error| SessionError::invalid(error.to_string()))?;
    if !recovery.is_clean() {
        config
            .notices
            .send(NoticeTopic::Recovery, recovery.to_string());
    }
    Ok((journal, entries))
}

/// Returns the start of a task that can continue. An imported task cannot: its tools were another program's.
pub(crate) fn first_start<'r>(
    id: &TaskId,
    records: &'r [Record],
) -> Result<&'r TaskStart, SessionError> {
    let Some(Record::Started(start)) = records.first() else {
        return Err(SessionError::invalid(format!(
            "the journal of {id} does not begin with the start of a task"
        )));
    };
    if matches!(start.from, Some(TaskOrigin::Import { .. })) {
        return Err(SessionError::invalid(format!(
            "the task {id} is another program's and cannot be resumed; `sabir fork {id} --model MODEL` continues it as a new task"
        )));
    }
    Ok(start)
}

/// Checks that a task's protocol is known and is not to be changed: a resumed task is locked to it.
fn check_protocol(
    config: &Config,
    start: &TaskStart,
    spec: &SessionSpec,
) -> Result<(), SessionError> {
    let locked = start.protocol.name();
    if locked != "native" && config.dialects.find(locked).is_none() {
        return Err(SessionError::invalid(format!(
            "this task is locked to the dialect `{locked}`, which is not defined here: give its table with --dialects FILE"
        )));
    }
    let wanted = spec
        .protocol
        .as_deref()
        .map(|name| locked::parse_protocol(&config.dialects, name))
        .transpose()?;
    if wanted.is_some_and(|protocol| protocol != start.protocol) {
        return Err(SessionError::invalid(format!(
            "this task is locked to the protocol `{locked}`; a new task may use another"
        )));
    }
    Ok(())
}

/// Builds the model, with a recorder around it if the spec asks for one.
fn recorded_model(
    setup: &TaskSetup,
    chosen: &ResolvedModel,
    spec: &SessionSpec,
    header: CassetteHeader,
    config: &Config,
    hub: &EventHub,
) -> Result<
    (
        ModeRoutedModel<KeyRefreshingModel<HttpModel>>,
        RecordingState,
    ),
    SessionError,
> {
    let RecordMode::Record(file) = &spec.record else {
        let model = |chosen: &ResolvedModel| {
            let hub = hub.clone();
            chosen.build_model(move |model| observe_retries(model, &hub))
        };
        return Ok((
            setup.modes.route_models(model(chosen), model),
            RecordingState::Off,
        ));
    };
    let header = CassetteHeader {
        renews: chosen.renews_key(),
        ..header
    };
    let recorder =
        // The recorder belongs to one client. Clients that replace it after a renewal of the key
        // record into it too.
        recording::start_recording(&chosen.fixed_key_model(), file, &header, &config.notices)?;
    let recording = RecordingState::Record(recorder.clone());
    let model = |chosen: &ResolvedModel| {
        let recorder = recorder.clone();
        let hub = hub.clone();
        chosen.build_model(move |model| observe_retries(model.recorded_by(&recorder), &hub))
    };
    Ok((setup.modes.route_models(model(chosen), model), recording))
}

/// Publishes retries of a model.
fn observe_retries(model: HttpModel, hub: &EventHub) -> HttpModel {
    let hub = hub.clone();
    model.on_retry(move |retry| publish_retry(&hub, None, retry))
}

/// Replays a recording of a new task.
pub(crate) fn replay_new(
    host: &Host,
    spec: &SessionSpec,
    file: &Path,
    first: UserMessage,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    let (cassette, mut header) = recording::read_cassette(file)?;
    if !header.records.is_empty() {
        return Err(SessionError::invalid(
            "the cassette is that of a resumed task: play it with `sabir resume --replay`",
        ));
    }
    if !first.text.trim().is_empty() {
        header.start.prompt = first.text;
    }
    replay_cassette(host, spec, cassette, header, hub)
}

/// Replays a recording as a new task with an id and a journal of its own.
pub(crate) fn replay_with_journal(
    host: &Host,
    spec: &SessionSpec,
    recording: &[u8],
    journals: &Path,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    let (cassette, mut header) = recording::parse_cassette(recording)?;
    header.start.task = host.new_task_id();
    let journal = Journal::create(
        journals,
        &header.start.task,
        host.environment().journal_clock(),
    )
    .map_err(|error| SessionError::internal(error.to_string()))?;
    let mut loaded = replay_cassette(host, spec, cassette, header, hub)?;
    loaded.opened.store = Box::new(journal);
    Ok(loaded)
}

/// Replays a recording of a resumed task, which includes the earlier records.
pub(crate) fn replay_resumed(
    host: &Host,
    spec: &SessionSpec,
    file: &Path,
    task: Option<&str>,
    message: Option<String>,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    let (cassette, mut header) = recording::read_cassette(file)?;
    let id = &header.start.task;
    if header.records.is_empty() {
        return Err(SessionError::invalid(
            "the cassette is that of a new task: play it with `sabir run --replay`",
        ));
    }
    if task.is_some_and(|name| !id.as_str().starts_with(name)) {
        return Err(SessionError::invalid(format!(
            "the cassette is that of the task {id}"
        )));
    }
    header.words = message.or(header.words);
    replay_cassette(host, spec, cassette, header, hub)
}

/// Replays a recording with the recorded settings of the task, except for those that the spec sets.
fn replay_cassette(
    host: &Host,
    spec: &SessionSpec,
    cassette: Cassette,
    header: CassetteHeader,
    hub: &EventHub,
) -> Result<LoadedSession, SessionError> {
    let recorded = &header.start.model;
    if spec.model.as_ref().is_some_and(|model| model != recorded) {
        return Err(SessionError::invalid(format!(
            "the cassette was recorded with the model `{recorded}`"
        )));
    }
    let config = load_config(host, spec, hub)?;
    check_protocol(&config, &header.start, spec)?;
    let all_records = std::iter::once(Record::Started(header.start.clone()))
        .chain(header.records.iter().cloned());
    let all_records: Vec<_> = all_records.collect();
    let spec = &setup::with_kept_mode(&all_records, spec);
    let setup = TaskSetup::for_replay(spec, &config, &header, cassette.results.clone())?;
    let begun = setup::start_mode(&header.start);
    let setup = setup.with_recorded_modes(&config, begun, &header.model, &header.modes)?;
    let retries_hub = hub.clone();
    let set_up = move |model| observe_retries(model, &retries_hub);
    let (model, recording) = recording::replay_model(cassette, header.renews, set_up)?;
    if let RecordingState::Replay { player, .. } = &recording
        // Cancels where the recorded task stopped reading, by an interrupt or its time limit. A
        // task with a time limit stops by itself.
        && setup.max_time.is_none()
    {
        let cancel = setup.cancel.clone();
        player.on_dropped(move || cancel.cancel());
    }
    let settings = setup.task_settings(&header.model, spec.interactivity.to_machine());
    let CassetteHeader {
        start,
        records,
        words,
        ..
    } = header;
    hub.set_history(start.clone(), records.clone());
    // With earlier records the recording is one of a resumed task.
    let (task, first) = if records.is_empty() {
        let (task, first) = Task::new(start, settings);
        (task, Some(first))
    } else {
        let id = start.task.clone();
        (
            replay_records(&id, records, settings, words.is_some())?,
            None,
        )
    };
    let task = task
        .with_context(setup.context.clone())
        .with_modes(setup.modes.mode_configs());
    let opened = OpenedTask {
        task,
        store: Box::new(NullStore),
        first,
        observers: Vec::new(),
    };
    Ok(LoadedSession {
        spec: spec.clone(),
        config,
        setup,
        opened,
        model: Box::new(model),
        recording,
        words,
        images: Vec::new(),
    })
}
