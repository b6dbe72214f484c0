//! Keeps the servers of a task connected, and its tools up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_agent::{ProgressSink, Tool, ToolOutput, ToolRegistry};
use sabir_call::ToolSpec;
use sabir_workspace::Workspace;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client_handler::{ClientFactory, UserElicitor};
use crate::connection::{ConnectedServer, Connection, ServerLists, connect_server};
use crate::definition::{DefinitionState, DefinitionStore, ToolDefinition};
use crate::error::McpError;
use crate::find_tool::{FindTool, find_matching, list_names};
use crate::limits::{
    FIRST_BACK_OFF, LATEST_START, LOGIN_LOOK_INTERVAL, MAX_RESTARTS, REQUEST_TIME, STABLE_TIME,
};
use crate::login::{LoginKey, LoginStore, RunningLogins};
use crate::mcp_tool::McpTool;
use crate::names::NameTable;
use crate::prompts::{PromptContent, ServerPrompt, join_messages};
use crate::resource_tool::{ResourceTool, UseMcpTool, resource_lines};
use crate::spec::McpServerSpec;

/// Bytes of a definition for each token, on average.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the reason why a server must not be started, if there is one.
pub type StartCheck = Arc<dyn Fn(&McpServerSpec) -> Option<String> + Send + Sync>;

/// Begins HTTP clients.
pub type HttpClientFactory = Arc<dyn Fn() -> reqwest::ClientBuilder + Send + Sync>;

/// The settings of a task's servers: the folder, the environment, the stores and the functions that
/// they use.
#[derive(Clone)]
pub struct McpSettings {
    /// The folder in which local servers run, and which is announced to servers as a root.
    pub workspace: Arc<Workspace>,
    /// The program that supervises local servers: see [`sabir_workspace::supervise::main`].
    pub helper: PathBuf,
    /// The environment of local servers, to which each adds its own variables.
    pub environment: Vec<(String, String)>,
    /// Begins a client for remote servers. It must not follow redirects, which could lead to addresses of the local network.
    pub http_client: HttpClientFactory,
    /// Keeps the logins of remote servers.
    pub logins: Arc<dyn LoginStore>,
    /// Keeps the definitions of tools that were approved.
    pub definitions: Arc<dyn DefinitionStore>,
    /// Receives notices for the user.
    pub notify: Arc<dyn Fn(McpNotice) + Send + Sync>,
    /// Returns the reason why a server must not be started, if there is one. Called before each
    /// start and restart. Blocks.
    pub refuse_start: StartCheck,
    /// Opens the page of a login in the user's browser, if it can.
    pub open_page: Arc<dyn Fn(&str) + Send + Sync>,
    /// Asks the user questions of servers; `None` where nobody can be asked.
    pub elicitor: Option<Arc<dyn UserElicitor>>,
    /// The tokens that definitions may take in a request before models have to look for tools.
    pub definition_tokens: usize,
}

/// A notice about a server. Its text may quote the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpNotice {
    /// The server.
    pub server: String,
    /// The message.
    pub text: String,
}

/// A resource that has changed since the model read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedResource {
    /// The server.
    pub server: String,
    /// Its address.
    pub uri: String,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum ServerState {
    /// It is being started.
    Starting,
    /// It works.
    Ready {
        /// The version of the protocol.
        protocol: String,
    },
    /// It ended, and is started again.
    Restarting {
        /// The number of the restart.
        attempt: u32,
        /// The reason.
        reason: String,
    },
    /// The user has to log in to it. It is connected once they have.
    NeedsLogin {
        /// The command that does it.
        command: String,
    },
    /// It is not started again.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The configuration switches it off.
    Disabled,
}

impl std::fmt::Display for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Ready { .. } => f.write_str("ready"),
            Self::Restarting { attempt, reason } => {
                write!(f, "restarting (attempt {attempt}): {reason}")
            }
            Self::NeedsLogin { command } => write!(f, "in need of a login: run `{command}`"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
            Self::Disabled => f.write_str("disabled"),
        }
    }
}

/// A server with its state, for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// The name.
    pub name: String,
    /// The command or address of the server, without secrets.
    pub launch: String,
    /// The state.
    #[serde(flatten)]
    pub state: ServerState,
    /// The names of its tools, as models see them.
    pub tools: Vec<String>,
    /// The number of its resources.
    pub resources: usize,
    /// The names of its prompts.
    pub prompts: Vec<String>,
}

impl ServerStatus {
    fn new(spec: &McpServerSpec, state: ServerState, lists: &ServerLists) -> Self {
        let used = lists.tools.iter();
        Self {
            name: spec.name.clone(),
            launch: spec.launch_line(),
            state,
            tools: used
                .filter(|tool| spec.tools.includes(&tool.name))
                .map(|tool| crate::shown_tool_name(&spec.name, &tool.name))
                .collect(),
            resources: lists.resources.len(),
            prompts: lists
                .prompts
                .iter()
                .map(|prompt| prompt.name.clone())
                .collect(),
        }
    }
}

/// The running servers of a task. Dropping it ends all of them.
pub struct McpServers {
    pool: Arc<ServerPool>,
    workers: Vec<JoinHandle<()>>,
    logins: RunningLogins,
}

/// The shared state of the servers.
pub(crate) struct ServerPool {
    settings: McpSettings,
    state: Mutex<PoolState>,
    /// Changes whenever the state of a server does.
    version: watch::Sender<u64>,
    /// The moment at which the servers start that no task waits for.
    start_time: watch::Sender<Instant>,
    /// True once the model was asked.
    has_requested: AtomicBool,
}

struct PoolState {
    servers: Vec<ServerEntry>,
    /// The registry that has the tools; `None` before one is attached.
    registry: Option<ToolRegistry>,
    /// The tools in the registry, each with a text that differs when the tool does.
    registered: BTreeMap<String, String>,
    /// The shown names of the tools that the model has found.
    revealed: BTreeSet<String>,
}

struct ServerEntry {
    spec: McpServerSpec,
    state: ServerState,
    lists: ServerLists,
    connection: Option<Arc<Connection>>,
}

impl McpServers {
    /// Starts servers, in parallel and in the background. Those that nothing waits for start after the first request of the task
    /// ([`note_request`](Self::note_request)), or a moment later: on a machine with few cores their start would delay the request.
    /// Must be called within a tokio runtime. Of several specs with one name, the first counts.
    pub fn start(specs: Vec<McpServerSpec>, settings: McpSettings) -> Self {
        let mut servers: Vec<ServerEntry> = Vec::new();
        for spec in specs {
            if servers.iter().any(|entry| entry.spec.name == spec.name) {
                continue;
            }
            let state = match spec.disabled {
                true => ServerState::Disabled,
                false => ServerState::Starting,
            };
            servers.push(ServerEntry {
                spec,
                state,
                lists: ServerLists::default(),
                connection: None,
            });
        }
        let count = servers.len();
        let pool = Arc::new(ServerPool {
            settings,
            state: Mutex::new(PoolState {
                servers,
                registry: None,
                registered: BTreeMap::new(),
                revealed: BTreeSet::new(),
            }),
            version: watch::channel(0).0,
            start_time: watch::channel(Instant::now() + LATEST_START).0,
            has_requested: AtomicBool::new(false),
        });
        let workers = (0..count)
            .map(|index| tokio::spawn(run_server(Arc::clone(&pool), index)))
            .collect();
        Self {
            pool,
            workers,
            logins: RunningLogins::new(),
        }
    }

    /// Sets the registry that receives the tools of the servers from now on.
    pub fn attach_registry(&self, registry: &ToolRegistry) {
        let mut state = self.pool.lock_state();
        state.registry = Some(registry.clone());
        state.registered.clear();
        self.pool.publish_tools(&mut state);
    }

    /// Returns the specs of the servers.
    pub fn specs(&self) -> Vec<McpServerSpec> {
        let state = self.pool.lock_state();
        state
            .servers
            .iter()
            .map(|entry| entry.spec.clone())
            .collect()
    }

    /// Returns the states of the servers.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        let state = self.pool.lock_state();
        let servers = state.servers.iter();
        servers
            .map(|entry| ServerStatus::new(&entry.spec, entry.state.clone(), &entry.lists))
            .collect()
    }

    /// Returns the resources that the model has read and that have changed since it was last told, each with its server.
    pub fn take_changed_resources(&self) -> Vec<ChangedResource> {
        let state = self.pool.lock_state();
        let mut changed = Vec::new();
        for entry in &state.servers {
            if let Some(connection) = &entry.connection {
                let resources = connection.take_changed_resources().into_iter();
                changed.extend(resources.map(|uri| ChangedResource {
                    server: entry.spec.name.clone(),
                    uri,
                }));
            }
        }
        changed
    }

    /// Returns the prompts of the servers that are ready.
    pub fn prompts(&self) -> Vec<ServerPrompt> {
        let state = self.pool.lock_state();
        let ready = state.servers.iter().filter(|one| one.connection.is_some());
        ready
            .flat_map(|entry| {
                let prompts = entry.lists.prompts.iter();
                prompts.map(|prompt| ServerPrompt::new(&entry.spec.name, prompt))
            })
            .collect()
    }

    /// Gets the content of a prompt, with these arguments.
    ///
    /// # Errors
    /// When the server is not ready, or does not answer with the prompt.
    pub async fn get_prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<PromptContent, McpError> {
        let connection = self.pool.connection(server)?;
        let result = connection.get_prompt(name, arguments).await?;
        Ok(join_messages(&result))
    }

    /// Notes that a request is sent to the model. Servers that have not been started wait for the
    /// task's first request.
    pub fn note_request(&self) {
        if self.pool.has_requested.swap(true, Ordering::Relaxed) {
            return;
        }
        let after_request = Instant::now() + REQUEST_TIME;
        self.pool.start_time.send_if_modified(|start_time| {
            let is_waiting = *start_time > Instant::now();
            if is_waiting {
                *start_time = after_request;
            }
            is_waiting
        });
    }

    /// Logs in to a server in the background. Notices tell the user where to log in, and how it ended. With the `address` at which the
    /// browser ended, a login that waits for it is finished.
    pub fn log_in(&self, server: &str, address: Option<String>) {
        let spec = self
            .pool
            .lock_state()
            .find_server(server)
            .map(|entry| entry.spec.clone());
        match spec {
            Ok(spec) => self.logins.log_in(spec, &self.pool.settings, address),
            Err(error) => self.pool.notify(server, error.to_string()),
        }
    }

    /// Waits until no server that fits is being started any more.
    pub async fn wait_started(&self, fits: impl Fn(&McpServerSpec) -> bool) {
        let mut version = self.pool.version.subscribe();
        loop {
            version.borrow_and_update();
            let is_starting = self.pool.lock_state().servers.iter().any(|entry| {
                fits(&entry.spec)
                    && matches!(
                        entry.state,
                        ServerState::Starting | ServerState::Restarting { .. }
                    )
            });
            if !is_starting {
                return;
            }
            // Somebody waits now.
            self.pool.start_time.send_replace(Instant::now());
            // The sender lives as long as this value.
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until all required servers are ready.
    ///
    /// # Errors
    /// The name of the first that is not, with the reason.
    pub async fn wait_required(&self) -> Result<(), (String, McpError)> {
        self.wait_started(|spec| spec.required).await;
        let state = self.pool.lock_state();
        for entry in state.servers.iter().filter(|entry| entry.spec.required) {
            let error = match &entry.state {
                ServerState::Failed { reason } => McpError::Closed(reason.clone()),
                ServerState::NeedsLogin { .. } => McpError::LoginRequired(entry.spec.name.clone()),
                _ => continue,
            };
            return Err((entry.spec.name.clone(), error));
        }
        Ok(())
    }

    /// Ends all servers, and waits until all their processes have ended.
    pub async fn stop(mut self) {
        let workers = std::mem::take(&mut self.workers);
        self.pool.version.send_modify(|version| *version = u64::MAX);
        for worker in workers {
            let _ = worker.await;
        }
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        // The connection and the process of a server belong to its worker, and end with it.
        for worker in &self.workers {
            worker.abort();
        }
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.statuses().iter().map(|status| &status.name))
            .finish()
    }
}

impl ServerPool {
    fn lock_state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store of approved definitions.
    pub(crate) fn definitions(&self) -> &dyn DefinitionStore {
        self.settings.definitions.as_ref()
    }

    /// Returns the present definition of a tool.
    pub(crate) fn find_definition(&self, server: &str, tool: &str) -> Option<ToolDefinition> {
        let state = self.lock_state();
        let entry = state
            .servers
            .iter()
            .find(|entry| entry.spec.name == server)?;
        let mut tools = entry.lists.tools.iter();
        tools.find(|known| known.name == tool).cloned()
    }

    /// Returns the connection to a server that is ready.
    pub(crate) fn connection(&self, server: &str) -> Result<Arc<Connection>, McpError> {
        let state = self.lock_state();
        let entry = state.find_server(server)?;
        entry.connection.clone().ok_or_else(|| McpError::NotReady {
            server: server.to_owned(),
            state: entry.state.to_string(),
        })
    }

    /// Returns the lines of a listing of a server's resources.
    pub(crate) fn list_resources(&self, server: &str) -> Result<Vec<String>, McpError> {
        let state = self.lock_state();
        let lists = &state.find_server(server)?.lists;
        Ok(resource_lines(&lists.resources, &lists.templates))
    }

    /// Finds a tool by its server's name and its own.
    pub(crate) fn find_tool(
        self: &Arc<Self>,
        server: &str,
        tool: &str,
    ) -> Result<McpTool, McpError> {
        let state = self.lock_state();
        state.find_server(server)?;
        let mut tools = self.all_tools(&state).into_iter();
        tools
            .find(|known| {
                known.server == server
                    && (known.definition.name == tool || known.shown_name == tool)
            })
            .ok_or_else(|| McpError::Answer(format!("the server {server} has no tool `{tool}`")))
    }

    /// Returns the definitions that a query means, which the model is offered from now on.
    pub(crate) fn reveal_tools(self: &Arc<Self>, query: &str) -> Vec<ToolSpec> {
        let mut state = self.lock_state();
        let tools = self.all_tools(&state);
        let found: Vec<_> = find_matching(&tools, query)
            .into_iter()
            .map(McpTool::shown_spec)
            .collect();
        let names = found.iter().map(|spec| spec.name.clone());
        state.revealed.extend(names);
        self.publish_tools(&mut state);
        found
    }

    /// Returns all tools of the servers that are ready or restarting.
    fn all_tools(self: &Arc<Self>, state: &PoolState) -> Vec<McpTool> {
        let mut names = NameTable::default();
        let mut tools = Vec::new();
        for entry in &state.servers {
            let used = entry
                .lists
                .tools
                .iter()
                .filter(|tool| entry.spec.tools.includes(&tool.name));
            for definition in used {
                // Of a server that lists a name twice, the first definition counts.
                let is_known = tools.iter().any(|known: &McpTool| {
                    known.server == entry.spec.name && known.definition.name == definition.name
                });
                let Some(shown_name) = names.insert(&entry.spec.name, &definition.name) else {
                    continue;
                };
                if !is_known {
                    tools.push(McpTool {
                        shown_name,
                        server: entry.spec.name.clone(),
                        definition: definition.clone(),
                        is_offered: true,
                        pool: Arc::downgrade(self),
                    });
                }
            }
        }
        tools
    }

    /// Brings the registry in line with the servers.
    fn publish_tools(self: &Arc<Self>, state: &mut PoolState) {
        let Some(registry) = state.registry.clone() else {
            return;
        };
        let mut wanted: Vec<(String, Arc<dyn Tool>)> = Vec::new();
        let mut tools = self.all_tools(state);
        let sizes: usize = tools.iter().map(definition_bytes).sum();
        if sizes > self.settings.definition_tokens * BYTES_PER_TOKEN {
            // The names may take what the definitions may not, less the rest of the description.
            let room = (self.settings.definition_tokens * BYTES_PER_TOKEN).saturating_sub(600);
            let find = FindTool {
                name_list: list_names(&tools, room),
                pool: Arc::downgrade(self),
            };
            wanted.push((find.name_list.clone(), Arc::new(find)));
            for tool in &mut tools {
                tool.is_offered = state.revealed.contains(&tool.shown_name);
            }
        }
        let with_resources: Vec<String> = state
            .servers
            .iter()
            .filter(|entry| entry.lists.has_resources)
            .map(|entry| entry.spec.name.clone())
            .collect();
        if !with_resources.is_empty() {
            wanted.push((
                with_resources.join(" "),
                Arc::new(ResourceTool {
                    servers: with_resources,
                    pool: Arc::downgrade(self),
                }),
            ));
        }
        if !tools.is_empty() {
            let pool = Arc::downgrade(self);
            wanted.push((String::new(), Arc::new(UseMcpTool { pool })));
        }
        for tool in tools {
            let text = format!("{} {}", tool.is_offered, tool.definition.to_text());
            wanted.push((text, Arc::new(tool)));
        }
        let mut registered = BTreeMap::new();
        for (text, tool) in wanted {
            let name = tool.spec().name;
            let is_ours = state.registered.contains_key(&name);
            if state.registered.get(&name) == Some(&text) {
                registered.insert(name, text);
                continue;
            }
            // A name that belongs to a built-in tool, or to another source of tools, stays theirs.
            let changed = match is_ours {
                true => registry.replace(tool),
                false => registry.add(tool),
            };
            if changed.is_ok() {
                registered.insert(name, text);
            }
        }
        for name in state.registered.keys() {
            if !registered.contains_key(name) {
                registry.remove(name);
            }
        }
        state.registered = registered;
    }

    fn set_state(self: &Arc<Self>, index: usize, change: impl FnOnce(&mut ServerEntry)) {
        let mut state = self.lock_state();
        if let Some(entry) = state.servers.get_mut(index) {
            change(entry);
        }
        self.publish_tools(&mut state);
        drop(state);
        self.version
            .send_modify(|version| *version = version.saturating_add(1));
    }

    fn notify(&self, server: &str, text: impl Into<String>) {
        (self.settings.notify)(McpNotice {
            server: server.to_owned(),
            text: text.into(),
        });
    }

    /// Waits until a server that no task waits for may start.
    async fn wait_start_time(&self) {
        let mut start_time = self.start_time.subscribe();
        loop {
            let next = *start_time.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                // An error means that the pool is gone, which cannot be while it is borrowed here.
                _ = start_time.changed() => {}
            }
        }
    }

    /// Waits until [`McpServers::stop`] is called.
    async fn wait_stopped(&self) {
        let mut version = self.version.subscribe();
        // An error means that the pool is gone, which cannot be while it is borrowed here.
        let _ = version.wait_for(|version| *version == u64::MAX).await;
    }

    /// Says which definitions differ from the approved ones.
    fn notify_of_changes(&self, server: &str, tools: &[ToolDefinition]) {
        let changed: Vec<&str> = tools
            .iter()
            .filter(|tool| {
                matches!(
                    tool.compare(server, self.definitions()),
                    DefinitionState::Changed(_)
                )
            })
            .map(|tool| tool.name.as_str())
            .collect();
        if !changed.is_empty() {
            let names = crate::result_content::one_line(&changed.join(", "));
            self.notify(
                server,
                format!(
                    "it has changed tools that you approved: {names}; their calls are asked about again"
                ),
            );
        }
    }
}

impl PoolState {
    fn find_server(&self, server: &str) -> Result<&ServerEntry, McpError> {
        let mut servers = self.servers.iter();
        servers
            .find(|entry| entry.spec.name == server)
            .ok_or_else(|| McpError::UnknownServer(server.to_owned()))
    }
}

/// Returns the bytes of a tool's definition in a request.
fn definition_bytes(tool: &McpTool) -> usize {
    let schema = serde_json::to_string(&tool.definition.schema).unwrap_or_default();
    tool.shown_name.len() + tool.definition.description.len() + schema.len() + 40
}

/// Starts a server, and again when it ends, until it has failed too often in a row.
async fn run_server(pool: Arc<ServerPool>, index: usize) {
    let spec = match pool.lock_state().servers.get(index) {
        Some(entry) if !entry.spec.disabled => entry.spec.clone(),
        _ => return,
    };
    if !spec.required {
        tokio::select! {
            () = pool.wait_start_time() => {}
            () = pool.wait_stopped() => return,
        }
    }
    let mut attempt = 0;
    let mut back_off = FIRST_BACK_OFF;
    loop {
        let started = Instant::now();
        let reason = tokio::select! {
            reason = serve_until_end(Arc::clone(&pool), index, spec.clone()) => reason,
            () = pool.wait_stopped() => return,
        };
        let Some(reason) = reason else { return };
        if matches!(reason, McpError::LoginRequired(_))
            && let Some(key) = spec.transport.login_key(&spec.name)
        {
            tokio::select! {
                () = wait_for_login(&pool, index, &spec, &key) => {}
                () = pool.wait_stopped() => return,
            }
            attempt = 0;
            back_off = FIRST_BACK_OFF;
            continue;
        }
        if started.elapsed() >= STABLE_TIME {
            attempt = 0;
            back_off = FIRST_BACK_OFF;
        }
        attempt += 1;
        if attempt > MAX_RESTARTS || !is_worth_retrying(&reason) {
            pool.notify(&spec.name, format!("it is not available: {reason}"));
            pool.set_state(index, |entry| {
                entry.connection = None;
                entry.lists = ServerLists::default();
                entry.state = ServerState::Failed {
                    reason: reason.to_string(),
                };
            });
            return;
        }
        pool.set_state(index, |entry| {
            // Its tools stay, so that a model which calls one learns what has happened.
            entry.connection = None;
            entry.state = ServerState::Restarting {
                attempt,
                reason: reason.to_string(),
            };
        });
        tokio::select! {
            () = sleep(back_off) => {}
            () = pool.wait_stopped() => return,
        }
        back_off = back_off.saturating_mul(2).min(Duration::from_secs(30));
    }
}

/// Tells the user that a server needs a login, and waits until they have logged in, here or in another process.
async fn wait_for_login(
    pool: &Arc<ServerPool>,
    index: usize,
    spec: &McpServerSpec,
    key: &LoginKey,
) {
    let command = format!("sabir mcp login {}", spec.name);
    pool.notify(
        &spec.name,
        format!("it needs a login: run `{command}`; it is connected after that"),
    );
    pool.set_state(index, |entry| {
        // Its tools stay, so that a model which calls one learns what has happened.
        entry.connection = None;
        entry.state = ServerState::NeedsLogin { command };
    });
    let logins = Arc::clone(&pool.settings.logins);
    let load = || {
        let login = logins.load_login(key).ok().flatten();
        let credentials = login.and_then(|login| login.credentials)?;
        serde_json::to_string(&credentials).ok()
    };
    let refused = load();
    loop {
        sleep(LOGIN_LOOK_INTERVAL).await;
        let now = load();
        if now.is_some() && now != refused {
            pool.set_state(index, |entry| entry.state = ServerState::Starting);
            return;
        }
    }
}

/// Reports whether another start may end differently.
fn is_worth_retrying(reason: &McpError) -> bool {
    let is_final = matches!(
        reason,
        McpError::Address { .. } | McpError::Start(_) | McpError::Refused(_)
    );
    !(is_final || reason.is_login_error())
}

/// Connects to a server and keeps its lists up to date. Returns the reason of its end; `None` when it was asked to stop.
async fn serve_until_end(
    pool: Arc<ServerPool>,
    index: usize,
    spec: McpServerSpec,
) -> Option<McpError> {
    let settings = pool.settings.clone();
    let refuse = Arc::clone(&settings.refuse_start);
    let checked = spec.clone();
    // Files may have changed since the last start.
    match tokio::task::spawn_blocking(move || refuse(&checked)).await {
        Ok(None) => {}
        Ok(Some(reason)) => return Some(McpError::Refused(reason)),
        Err(error) => return Some(McpError::Refused(error.to_string())),
    }
    let clients = client_factory(&spec, &settings);
    let mut connected = match connect_server(spec.clone(), settings, clients).await {
        Ok(connected) => connected,
        Err(error) => return Some(error),
    };
    let limit = spec
        .start_seconds
        .map_or(crate::limits::START_TIME, Duration::from_secs);
    let changed = connected.connection.lists_changed();
    let login_lost = connected.connection.login_lost();
    let mut is_first = true;
    loop {
        let connection = Arc::clone(&connected.connection);
        let listed = tokio::time::timeout(limit, connection.read_lists()).await;
        match listed.unwrap_or(Err(McpError::StartTimeout(limit.as_secs()))) {
            Ok(lists) => accept_lists(&pool, index, &spec, &connected, lists, is_first),
            Err(error) => {
                let ended =
                    tokio::time::timeout(Duration::from_millis(500), connected.wait_closed());
                let reason = ended.await.unwrap_or(error);
                connected.close().await;
                return Some(reason);
            }
        }
        is_first = false;
        tokio::select! {
            () = login_lost.notified() => {
                pool.set_state(index, |entry| entry.connection = None);
                connected.close().await;
                return Some(McpError::LoginRequired(spec.name));
            }
            reason = connected.wait_closed() => {
                pool.set_state(index, |entry| entry.connection = None);
                connected.close().await;
                return Some(reason);
            }
            () = changed.notified() => {}
            () = pool.wait_stopped() => {
                pool.set_state(index, |entry| entry.connection = None);
                connected.close().await;
                return None;
            }
        }
    }
}

fn client_factory(spec: &McpServerSpec, settings: &McpSettings) -> ClientFactory {
    ClientFactory {
        server: spec.name.clone(),
        root: settings.workspace.root().to_path_buf(),
        elicitor: settings.elicitor.clone(),
        notify: Arc::clone(&settings.notify),
    }
}

/// Makes the lists of a server known.
fn accept_lists(
    pool: &Arc<ServerPool>,
    index: usize,
    spec: &McpServerSpec,
    connected: &ConnectedServer,
    lists: ServerLists,
    is_first: bool,
) {
    if is_first && connected.non_message_lines() > 0 {
        pool.notify(
            &spec.name,
            "it writes lines to its standard output that are not messages; they are ignored",
        );
    }
    if lists.left_out > 0 {
        pool.notify(
            &spec.name,
            format!(
                "it has {} tools; the first {} are used",
                lists.tools.len() + lists.left_out,
                lists.tools.len()
            ),
        );
    }
    if lists.secret_names > 0 {
        pool.notify(
            &spec.name,
            format!(
                "it repeats a secret that it was sent in names of its tools or prompts; {} of them are not used",
                lists.secret_names
            ),
        );
    }
    pool.notify_of_changes(&spec.name, &lists.tools);
    pool.set_state(index, |entry| {
        entry.connection = Some(Arc::clone(&connected.connection));
        entry.state = ServerState::Ready {
            protocol: lists.protocol.clone(),
        };
        entry.lists = lists;
    });
}

/// Connects to one server, lists its tools, and ends it: for `lint` and `test`.
///
/// # Errors
/// When it cannot be connected to, or does not answer.
pub async fn list_server_tools(
    spec: &McpServerSpec,
    settings: &McpSettings,
) -> Result<(ServerStatus, Vec<ToolSpec>), McpError> {
    let clients = client_factory(spec, settings);
    let connected = connect_server(spec.clone(), settings.clone(), clients).await?;
    let limit = spec
        .start_seconds
        .map_or(crate::limits::START_TIME, Duration::from_secs);
    let connection = Arc::clone(&connected.connection);
    let listed = tokio::time::timeout(limit, connection.read_lists()).await;
    connected.close().await;
    let lists = listed.unwrap_or(Err(McpError::StartTimeout(limit.as_secs())))?;
    let ready = ServerState::Ready {
        protocol: lists.protocol.clone(),
    };
    let status = ServerStatus::new(spec, ready, &lists);
    // As the server gives them, so that a lint sees what is wrong with them.
    let used = lists.tools.into_iter();
    let used = used.filter(|tool| spec.tools.includes(&tool.name));
    let tools = used.map(|tool| {
        ToolSpec::new(
            tool.name,
            tool.description,
            serde_json::Value::Object(tool.schema),
        )
    });
    Ok((status, tools.collect()))
}

/// Connects to one server, calls a tool of it, and ends it: for a user who tries a server. `progress` receives lines.
///
/// # Errors
/// When it cannot be connected to, or does not answer. A tool that fails is an output, not an error.
pub async fn call_server_tool(
    spec: &McpServerSpec,
    settings: &McpSettings,
    tool: &str,
    arguments: &serde_json::Map<String, serde_json::Value>,
    progress: ProgressSink<'_>,
) -> Result<ToolOutput, McpError> {
    let clients = client_factory(spec, settings);
    let connected = connect_server(spec.clone(), settings.clone(), clients).await?;
    let connection = Arc::clone(&connected.connection);
    let called = connection.run_tool(tool, arguments, progress).await;
    drop(connection);
    connected.close().await;
    called
}
