//! Connects to one server, and makes requests to it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientRequest, GetPromptRequestParams, GetPromptResult, InputRequest, InputRequests,
    InputResponses, PaginatedRequestParams, Prompt, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResult, RequestId, Resource, ResourceTemplate, ServerNotification, ServerResult,
    SubscribeRequestParams, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, RoleClient, serve_client_with_lifecycle};
use sabir_agent::{ProgressSink, ToolOutput};
use sabir_workspace::{ServerCommand, ServerExit, ServerProcess};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::client_handler::{ClientFactory, SabirClient};
use crate::definition::{ToolDefinition, clean_description};
use crate::error::McpError;
use crate::limits::{
    CALL_TIME, KEPT_STDERR_BYTES, LONGEST_CALL, MAX_FRAME_BYTES, MAX_PAGES, MAX_RESOURCES,
    MAX_TOOLS, PROGRESS_INTERVAL, START_TIME,
};
use crate::line_guard::{LineGuard, LineStats};
use crate::login::{AuthorizedClient, ServerLogin, is_loopback, missing_scopes};
use crate::result_content::{convert_result, one_line};
use crate::sent_secrets::{self, SecretFilter, SentSecrets};
use crate::servers::McpSettings;
use crate::spec::{McpServerSpec, McpTransport};
use crate::watched_resources::WatchedResources;

/// The most rounds of a request that the server answers with questions.
const MAX_ROUNDS: usize = 10;
/// The time that a server gets to end after its input is closed.
const STOP_TIME: Duration = Duration::from_secs(2);
/// The longest time in which the last words of a server that has ended are awaited.
const STDERR_TIME: Duration = Duration::from_secs(1);
/// The interval at which a remote connection is checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The most streams of changes that are opened one after another.
const MAX_LISTENS: usize = 1_000;
/// The pause between two such streams.
const LISTEN_PAUSE: Duration = Duration::from_secs(5);

/// A future of a known type: the compiler cannot prove of the nested ones that they may move between threads.
pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The lists of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ServerLists {
    pub(crate) tools: Vec<ToolDefinition>,
    /// The number of tools beyond the limit.
    pub(crate) left_out: usize,
    /// The number of tools and prompts that are not used because their names repeat a token.
    pub(crate) secret_names: usize,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
    pub(crate) prompts: Vec<Prompt>,
    /// The server's own words on its use.
    pub(crate) instructions: String,
    /// True if it has resources to read.
    pub(crate) has_resources: bool,
    /// The protocol version.
    pub(crate) protocol: String,
}

/// A connection to a server, to make requests on.
pub(crate) struct Connection {
    service: RunningService<RoleClient, SabirClient>,
    call_time: Duration,
    /// The way in which a remote server is logged in to.
    access: RemoteAccess,
    /// Woken when the server refuses the login.
    login_lost: Arc<Notify>,
    /// Follows changes of the server's lists and resources in the newest protocol, until the connection ends.
    _follower: AbortOnDrop,
}

/// A background task that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The way in which a server is logged in to, for the words about a refusal.
#[derive(Clone, Default)]
struct RemoteAccess {
    server: String,
    /// `None` for a program, and for a server with a token in its headers.
    login: Option<Arc<ServerLogin>>,
    address: Option<url::Url>,
    /// The secrets that requests carry.
    sent_secrets: SentSecrets,
}

/// A connected server: the connection, and what ends with it.
pub(crate) struct ConnectedServer {
    pub(crate) connection: Arc<Connection>,
    process: Option<ServerProcess>,
    facts: Arc<LineStats>,
    errors: StderrTail,
}

/// The end of a server's standard error.
#[derive(Debug, Clone)]
struct StderrTail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    /// Becomes false at the end of the stream.
    is_open: tokio::sync::watch::Receiver<bool>,
    /// Secrets that must not be repeated from the stream.
    secrets: SentSecrets,
}

/// The failure of one attempt to connect.
enum AttemptError {
    /// The server refused the handshake with an answer. Another kind of handshake may work.
    Refused(McpError),
    Failed(McpError),
}

/// Connects to a server. A remote server is first asked for the stateless protocol, and answers at once if it knows only older ones. A
/// program is first asked with the older handshake, since some answer nothing before it. `spec` contains no variables.
pub(crate) fn connect_server(
    spec: McpServerSpec,
    settings: McpSettings,
    clients: ClientFactory,
) -> BoxedFuture<'static, Result<ConnectedServer, McpError>> {
    Box::pin(async move {
        let limit = spec.start_seconds.map_or(START_TIME, Duration::from_secs);
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let [first_way, second_way] = match &spec.transport {
            McpTransport::Stdio { .. } => [
                ClientLifecycleMode::Initialize,
                ClientLifecycleMode::Discover { preferred_versions },
            ],
            McpTransport::Http { .. } => [
                ClientLifecycleMode::Auto {
                    preferred_versions,
                    legacy_version: Some(ProtocolVersion::V_2025_11_25),
                },
                // For servers that fail at an unknown request instead of refusing it.
                ClientLifecycleMode::Initialize,
            ],
        };
        let connecting = async move {
            let attempt =
                |way| attempt_connect(spec.clone(), settings.clone(), clients.create_client(), way);
            match attempt(first_way).await {
                Err(AttemptError::Refused(first)) => {
                    attempt(second_way).await.map_err(|error| match error {
                        // It speaks that protocol, and wants a login for it.
                        AttemptError::Failed(refusal) if refusal.is_login_error() => refusal,
                        // What was refused first says more about a server that speaks neither.
                        _ => first,
                    })
                }
                Err(AttemptError::Failed(error)) => Err(error),
                Ok(connected) => Ok(connected),
            }
        };
        timeout(limit, connecting)
            .await
            .unwrap_or(Err(McpError::StartTimeout(limit.as_secs())))
    })
}

fn attempt_connect(
    spec: McpServerSpec,
    settings: McpSettings,
    client: SabirClient,
    lifecycle: ClientLifecycleMode,
) -> BoxedFuture<'static, Result<ConnectedServer, AttemptError>> {
    Box::pin(async move {
        let call_time = spec.call_seconds.map_or(CALL_TIME, Duration::from_secs);
        match &spec.transport {
            McpTransport::Stdio { command, args, env } => {
                let mut environment = settings.environment.clone();
                environment.extend(
                    env.iter()
                        .map(|(name, value)| (name.clone(), value.clone())),
                );
                let command = ServerCommand::new(command.clone(), args.clone(), environment);
                let started = command.start(&settings.workspace, &settings.helper);
                let (mut process, streams) = started
                    .map_err(|error| AttemptError::Failed(McpError::Start(error.to_string())))?;
                let secrets = SentSecrets::of_program(env, args);
                let errors = StderrTail::follow(streams.errors, secrets.clone());
                let facts = Arc::new(LineStats::default());
                let output = LineGuard::new(streams.output, Arc::clone(&facts));
                let transport = AsyncRwTransport::<RoleClient, _, _>::new(output, streams.input)
                    .with_max_line_length(MAX_FRAME_BYTES + 1);
                let transport = SecretFilter {
                    transport,
                    secrets: secrets.clone(),
                };
                let serving: BoxedFuture<'static, _> =
                    Box::pin(serve_client_with_lifecycle(client, transport, lifecycle));
                let served = serving.await;
                let access = RemoteAccess {
                    sent_secrets: secrets,
                    ..RemoteAccess::default()
                };
                let service = match served {
                    Ok(service) => service,
                    Err(error) if facts.is_oversized.load(Ordering::Relaxed) => {
                        drop(error);
                        return Err(AttemptError::Failed(oversized_error()));
                    }
                    Err(error @ ClientInitializeError::JsonRpcError(_)) => {
                        return Err(AttemptError::Refused(handshake_error(&error)));
                    }
                    Err(error) => {
                        // A server that ended says why, in its code and on its standard error.
                        let error = match timeout(STOP_TIME, process.wait()).await {
                            Ok(exit) => McpError::Closed(errors.describe_exit(&exit).await),
                            Err(_) => handshake_error(&error),
                        };
                        return Err(AttemptError::Failed(error));
                    }
                };
                Ok(ConnectedServer {
                    connection: Connection::new(service, call_time, access),
                    process: Some(process),
                    facts,
                    errors,
                })
            }
            McpTransport::Http { url, headers, .. } => {
                let config = http_config(url, headers).map_err(AttemptError::Failed)?;
                let mut builder = (settings.http_client)();
                if url::Url::parse(url).is_ok_and(|url| is_loopback(&url)) {
                    // A proxy would read the token.
                    builder = builder.no_proxy();
                }
                // Reads the certificates of the system, which would block the first request of the
                // task.
                let built = tokio::task::spawn_blocking(move || builder.build()).await;
                let http = built
                    .map_err(|error| AttemptError::Failed(unusable_client(url, &error)))?
                    .map_err(|error| AttemptError::Failed(unusable_client(url, &error)))?;
                let access = RemoteAccess::new(&spec, &settings).map_err(AttemptError::Failed)?;
                let client_of_login = AuthorizedClient {
                    http,
                    login: access.login.clone(),
                    sent_secrets: access.sent_secrets.clone(),
                };
                let transport = StreamableHttpClientTransport::with_client(client_of_login, config);
                let serving: BoxedFuture<'static, _> =
                    Box::pin(serve_client_with_lifecycle(client, transport, lifecycle));
                let served = serving.await;
                let service = served.map_err(|error| {
                    if let Some(refusal) =
                        access.refusal(error.is_authorization_required(), error.auth_challenge())
                    {
                        return AttemptError::Failed(refusal);
                    }
                    match &error {
                        // Older servers refuse an unknown request in one of these ways; some send
                        // an empty answer.
                        ClientInitializeError::JsonRpcError(_)
                        | ClientInitializeError::ExpectedInitResult(_)
                        | ClientInitializeError::TransportError { .. } => {
                            AttemptError::Refused(access.redact_error(handshake_error(&error)))
                        }
                        _ => AttemptError::Failed(access.redact_error(handshake_error(&error))),
                    }
                })?;
                Ok(ConnectedServer {
                    connection: Connection::new(service, call_time, access),
                    process: None,
                    facts: Arc::default(),
                    errors: StderrTail::follow(
                        Box::new(tokio::io::empty()),
                        SentSecrets::default(),
                    ),
                })
            }
        }
    })
}

fn unusable_client(url: &str, error: &dyn std::error::Error) -> McpError {
    McpError::Address {
        url: url.to_owned(),
        reason: error.to_string(),
    }
}

impl RemoteAccess {
    /// Removes the tokens of the login from an error that repeats words of the server outside of its messages.
    fn redact_error(&self, error: McpError) -> McpError {
        match error {
            McpError::Answer(text) => McpError::Answer(self.sent_secrets.redact_text(text)),
            McpError::Closed(text) => McpError::Closed(self.sent_secrets.redact_text(text)),
            McpError::Handshake(text) => McpError::Handshake(self.sent_secrets.redact_text(text)),
            McpError::ScopeAlreadyGranted(text) => {
                McpError::ScopeAlreadyGranted(self.sent_secrets.redact_text(text))
            }
            McpError::ScopeRequired { server, scopes } => McpError::ScopeRequired {
                server,
                scopes: self.sent_secrets.redact_text(scopes),
            },
            other => other,
        }
    }

    fn new(spec: &McpServerSpec, settings: &McpSettings) -> Result<Self, McpError> {
        let McpTransport::Http {
            url,
            oauth,
            headers,
        } = &spec.transport
        else {
            return Ok(Self::default());
        };
        let sent_secrets = SentSecrets::of_headers(headers);
        let address = parse_address(url)?;
        let login = match spec.transport.login_key(&spec.name) {
            None => None,
            Some(key) => {
                let login = ServerLogin::new(
                    key,
                    address.clone(),
                    oauth.clone().unwrap_or_default(),
                    Arc::clone(&settings.logins),
                    Arc::clone(&settings.http_client),
                    sent_secrets.clone(),
                );
                Some(Arc::new(login))
            }
        };
        Ok(Self {
            server: spec.name.clone(),
            login,
            address: Some(address),
            sent_secrets,
        })
    }

    /// Returns the error for a request that the server refused for want of a login or of rights.
    fn refusal(&self, needs_login: bool, challenge: Option<&str>) -> Option<McpError> {
        let address = self.address.as_ref()?;
        let Some(login) = &self.login else {
            return (needs_login || challenge.is_some()).then_some(McpError::TokenRefused);
        };
        if let Some(missing) = challenge.and_then(|text| missing_scopes(text, address)) {
            let granted = login.granted_scopes();
            let scopes = one_line(&missing.join(" "));
            // Another login would change nothing, however often it is repeated.
            if !missing.is_empty() && missing.iter().all(|scope| granted.contains(scope)) {
                return Some(McpError::ScopeAlreadyGranted(scopes));
            }
            return Some(McpError::ScopeRequired {
                server: self.server.clone(),
                scopes,
            });
        }
        let is_refused = needs_login || challenge.is_some();
        is_refused.then(|| McpError::LoginRequired(self.server.clone()))
    }
}

/// Parses the address of a remote server.
pub(crate) fn parse_address(url: &str) -> Result<url::Url, McpError> {
    let wrong = |reason: String| McpError::Address {
        url: url.to_owned(),
        reason,
    };
    let parsed = url::Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    match parsed.scheme() {
        "http" | "https" => Ok(parsed),
        _ => Err(wrong(
            "write one that begins with https:// or http://".to_owned(),
        )),
    }
}

/// Builds the settings of a remote connection.
fn http_config(
    url: &str,
    headers: &std::collections::BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransportConfig, McpError> {
    let wrong = |reason: &str| McpError::Address {
        url: url.to_owned(),
        reason: reason.to_owned(),
    };
    parse_address(url)?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(MAX_FRAME_BYTES)
        .max_json_response_size(MAX_FRAME_BYTES);
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name.as_str())
            .map_err(|_| wrong(&format!("`{}` is not a name of a header", one_line(name))))?;
        let bearer = value.strip_prefix("Bearer ");
        if let Some(token) = bearer.filter(|_| header == AUTHORIZATION) {
            config = config.auth_header(token);
            continue;
        }
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| {
            wrong(&format!(
                "the value of the header `{name}` has characters that no header may have"
            ))
        })?;
        value.set_sensitive(true);
        custom.insert(header, value);
    }
    Ok(config.custom_headers(custom))
}

fn handshake_error(error: &ClientInitializeError) -> McpError {
    McpError::Handshake(plain_reason(&error.to_string()))
}

/// Removes the names of types that rmcp puts before the reason.
fn plain_reason(text: &str) -> String {
    let reason = text
        .rsplit_once("] error: ")
        .map_or(text, |(_, reason)| reason);
    one_line(reason)
}

fn oversized_error() -> McpError {
    McpError::Closed(format!(
        "it sent a message of more than {} MiB",
        MAX_FRAME_BYTES >> 20
    ))
}

impl StderrTail {
    /// Reads a stream to its end, and keeps the last bytes of it.
    fn follow(mut stream: Box<dyn AsyncRead + Send + Unpin>, secrets: SentSecrets) -> Self {
        let (sender, is_open) = tokio::sync::watch::channel(true);
        let tail = Self {
            kept: Arc::default(),
            is_open,
            secrets,
        };
        let kept = Arc::clone(&tail.kept);
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            // An error is the end of a pipe as well.
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(buffer.get(..count).unwrap_or_default());
                let excess = kept.len().saturating_sub(KEPT_STDERR_BYTES);
                kept.drain(..excess);
            }
            _ = sender.send(false);
        });
        tail
    }

    /// Describes the end of a server, with the last line that it wrote.
    async fn describe_exit(&self, exit: &ServerExit) -> String {
        // Its last output may not have been read yet. The stream may stay open, because processes
        // that the server started have it too.
        let mut is_open = self.is_open.clone();
        _ = timeout(STDERR_TIME, is_open.wait_for(|is_open| !is_open)).await;
        let text = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(kept.make_contiguous()).into_owned()
        };
        let text = self.secrets.redact_text(text);
        let last = text
            .lines()
            .rev()
            .map(one_line)
            .find(|line| !line.is_empty());
        match last {
            Some(line) => format!("{exit}; its last words: {line}"),
            None => exit.to_string(),
        }
    }
}

impl ConnectedServer {
    /// Waits until the server has ended, or the connection to it.
    pub(crate) fn wait_closed(&mut self) -> BoxedFuture<'_, McpError> {
        Box::pin(async move {
            let connection = Arc::clone(&self.connection);
            let closed = async move {
                while !connection.service.is_transport_closed() {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
            };
            let Some(process) = &mut self.process else {
                closed.await;
                return McpError::Closed("the server closed it".to_owned());
            };
            tokio::select! {
                exit = process.wait() => McpError::Closed(self.errors.describe_exit(&exit).await),
                () = closed => {
                    if self.facts.is_oversized.load(Ordering::Relaxed) {
                        return oversized_error();
                    }
                    // Usually the process ends with its output; its exit says more.
                    match timeout(STOP_TIME, process.wait()).await {
                        Ok(exit) => McpError::Closed(self.errors.describe_exit(&exit).await),
                        Err(_) => McpError::Closed("it closed its output".to_owned()),
                    }
                }
            }
        })
    }

    /// Returns the number of lines that were not messages.
    pub(crate) fn non_message_lines(&self) -> u64 {
        self.facts.non_message_lines.load(Ordering::Relaxed)
    }

    /// Ends the connection, and the server's process with all that it started.
    pub(crate) fn close(self) -> BoxedFuture<'static, ()> {
        Box::pin(async move {
            // Its input is closed first, which is how a server is asked to end.
            if let Some(connection) = Arc::into_inner(self.connection) {
                let _ = timeout(STOP_TIME, connection.service.cancel()).await;
            }
            if let Some(mut process) = self.process {
                let _ = timeout(STOP_TIME, process.wait()).await;
                process.stop().await;
            }
        })
    }
}

/// Tells the server that nobody waits for a request any more, unless its answer has come.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else {
            return;
        };
        let peer = self.peer.clone();
        // Without a runtime the whole process ends, and the server with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let cancelled =
                    CancelledNotificationParam::new(Some(id), Some("cancelled".to_owned()));
                let _ = peer.notify_cancelled(cancelled).await;
            });
        }
    }
}

impl Connection {
    fn new(
        service: RunningService<RoleClient, SabirClient>,
        call_time: Duration,
        access: RemoteAccess,
    ) -> Arc<Self> {
        let changed = Arc::clone(&service.service().lists_changed);
        let resources = Arc::clone(&service.service().resources);
        let follower = tokio::spawn(follow_changes(service.peer().clone(), changed, resources));
        Arc::new(Self {
            service,
            call_time,
            access,
            login_lost: Arc::default(),
            _follower: AbortOnDrop(follower),
        })
    }

    /// Wakes when the server refuses the login.
    pub(crate) fn login_lost(&self) -> Arc<Notify> {
        Arc::clone(&self.login_lost)
    }

    /// Describes the failure of a request, and notes the end of a login.
    fn describe_failure(&self, error: &ServiceError) -> McpError {
        let refusal = self
            .access
            .refusal(error.is_authorization_required(), error.auth_challenge());
        if matches!(refusal, Some(McpError::LoginRequired(_))) {
            self.login_lost.notify_one();
        }
        self.access
            .redact_error(refusal.unwrap_or_else(|| service_error(error)))
    }

    /// Wakes when a list of the server has changed.
    pub(crate) fn lists_changed(&self) -> Arc<tokio::sync::Notify> {
        Arc::clone(&self.service.service().lists_changed)
    }

    /// Reads the server's lists. A server without a kind of list has an empty one.
    pub(crate) fn read_lists(
        self: Arc<Self>,
    ) -> BoxedFuture<'static, Result<ServerLists, McpError>> {
        Box::pin(async move {
            let info = self.service.peer_info();
            let capabilities = info
                .as_ref()
                .map(|info| info.capabilities.clone())
                .unwrap_or_default();
            let mut lists = ServerLists {
                has_resources: capabilities.resources.is_some(),
                ..ServerLists::default()
            };
            if let Some(info) = &info {
                lists.protocol = info.protocol_version.to_string();
                let words = info.instructions.as_deref().unwrap_or_default();
                lists.instructions = crate::result_content::cut_text(
                    &clean_description(words),
                    crate::limits::MAX_INSTRUCTION_BYTES,
                );
            }
            if capabilities.tools.is_some() {
                let mut cursor = None;
                for _ in 0..MAX_PAGES {
                    let page = self
                        .service
                        .list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor)))
                        .await
                        .map_err(|error| self.describe_failure(&error))?;
                    let room = MAX_TOOLS.saturating_sub(lists.tools.len());
                    lists.left_out += page.tools.len().saturating_sub(room);
                    for tool in page.tools.iter().take(room) {
                        match tool.name.contains(sent_secrets::MARKER) {
                            true => lists.secret_names += 1,
                            false => lists.tools.push(ToolDefinition::from_server(tool)),
                        }
                    }
                    cursor = page.next_cursor;
                    if cursor.is_none() {
                        break;
                    }
                }
            }
            // A server that announces resources or prompts and cannot list them keeps its tools.
            if capabilities.resources.is_some() {
                let mut cursor = None;
                for _ in 0..MAX_PAGES {
                    let params = PaginatedRequestParams::default().with_cursor(cursor);
                    let Ok(page) = self.service.list_resources(Some(params)).await else {
                        break;
                    };
                    lists.resources.extend(page.resources);
                    cursor = page.next_cursor;
                    if cursor.is_none() || lists.resources.len() >= MAX_RESOURCES {
                        break;
                    }
                }
                lists.resources.truncate(MAX_RESOURCES);
                let mut cursor = None;
                for _ in 0..MAX_PAGES {
                    let params = PaginatedRequestParams::default().with_cursor(cursor);
                    // Many servers with resources have none, and no answer for that.
                    let Ok(page) = self.service.list_resource_templates(Some(params)).await else {
                        break;
                    };
                    lists.templates.extend(page.resource_templates);
                    cursor = page.next_cursor;
                    if cursor.is_none() || lists.templates.len() >= MAX_RESOURCES {
                        break;
                    }
                }
                lists.templates.truncate(MAX_RESOURCES);
            }
            if capabilities.prompts.is_some() {
                let mut cursor = None;
                for _ in 0..MAX_PAGES {
                    let params = PaginatedRequestParams::default().with_cursor(cursor);
                    let Ok(page) = self.service.list_prompts(Some(params)).await else {
                        break;
                    };
                    for prompt in page.prompts {
                        match prompt.name.contains(sent_secrets::MARKER) {
                            true => lists.secret_names += 1,
                            false => lists.prompts.push(prompt),
                        }
                    }
                    cursor = page.next_cursor;
                    if cursor.is_none() || lists.prompts.len() >= MAX_RESOURCES {
                        break;
                    }
                }
                lists.prompts.truncate(MAX_RESOURCES);
            }
            Ok(lists)
        })
    }

    /// Calls a tool, and returns the part of its result that a model may see. Dropping the future
    /// cancels the call at the server.
    pub(crate) async fn run_tool(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        progress: ProgressSink<'_>,
    ) -> Result<ToolOutput, McpError> {
        let result = self.call_tool(tool, arguments, progress).await?;
        Ok(convert_result(&result))
    }

    async fn call_tool(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        progress: ProgressSink<'_>,
    ) -> Result<CallToolResult, McpError> {
        let mut params =
            CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        for _ in 0..MAX_ROUNDS {
            match self.call_once(params.clone(), progress).await? {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::EmptyResult(_) => return Ok(CallToolResult::success(Vec::new())),
                ServerResult::InputRequiredResult(asked) => {
                    let answers = self
                        .answer_input(asked.input_requests.unwrap_or_default())
                        .await?;
                    params.input_responses = (!answers.is_empty()).then_some(answers);
                    params.request_state = asked.request_state;
                }
                _ => return Err(McpError::Unexpected),
            }
        }
        Err(McpError::Answer(format!(
            "it asked for input more than {MAX_ROUNDS} times"
        )))
    }

    async fn call_once(
        &self,
        params: CallToolRequestParams,
        progress: ProgressSink<'_>,
    ) -> Result<ServerResult, McpError> {
        let options = PeerRequestOptions::with_timeout(self.call_time)
            .reset_timeout_on_progress()
            .with_max_total_timeout(LONGEST_CALL.max(self.call_time));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let handle = self
            .service
            .send_cancellable_request(request, options)
            .await
            .map_err(|error| self.describe_failure(&error))?;
        let mut guard = CancelOnDrop {
            peer: self.service.peer().clone(),
            id: Some(handle.id.clone()),
        };
        let mut updates = self
            .service
            .service()
            .watch_progress(handle.progress_token.clone());
        let response = handle.await_response();
        tokio::pin!(response);
        let mut next_report = Instant::now();
        let mut is_followed = true;
        let result = loop {
            let update = async {
                sleep_until(next_report).await;
                updates.changed().await
            };
            tokio::select! {
                result = &mut response => break result,
                changed = update, if is_followed => {
                    is_followed = changed.is_ok();
                    next_report = Instant::now() + PROGRESS_INTERVAL;
                    let latest = updates.borrow_and_update().clone();
                    if let Some(latest) = latest {
                        progress(&describe_progress(&latest));
                    }
                }
            }
        };
        // The answer has come, or rmcp has cancelled the call because its time was over.
        guard.id = None;
        result.map_err(|error| match error {
            ServiceError::Timeout { timeout } => McpError::CallTimeout(timeout.as_secs()),
            error => self.describe_failure(&error),
        })
    }

    /// Returns the resources that have changed since the model read them, or was last told.
    pub(crate) fn take_changed_resources(&self) -> BTreeSet<String> {
        self.service.service().resources.take_changed()
    }

    /// Follows the changes of a resource from now on, if the server tells them.
    fn watch_resource(&self, uri: &str) {
        let Some(info) = self.service.peer_info() else {
            return;
        };
        let resources = info.capabilities.resources.as_ref();
        let is_supported = resources.and_then(|own| own.subscribe) == Some(true);
        if !is_supported || !self.service.service().resources.watch_resource(uri) {
            return;
        }
        // In the newest protocol the follower asks for it.
        if info.protocol_version != ProtocolVersion::V_2026_07_28 {
            let peer = self.service.peer().clone();
            let params = SubscribeRequestParams::new(uri);
            // Reading does not wait for it, and works without.
            tokio::spawn(async move {
                #[expect(deprecated, reason = "most servers speak older protocols")]
                let _ = peer.subscribe(params).await;
            });
        }
    }

    /// Reads a resource, and follows its changes from now on.
    pub(crate) async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, McpError> {
        self.watch_resource(uri);
        let reading = self
            .service
            .read_resource(ReadResourceRequestParams::new(uri));
        match timeout(self.call_time, reading).await {
            Ok(result) => result.map_err(|error| self.describe_failure(&error)),
            Err(_) => Err(McpError::CallTimeout(self.call_time.as_secs())),
        }
    }

    /// Gets the messages of a prompt.
    pub(crate) async fn get_prompt(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<GetPromptResult, McpError> {
        let params = GetPromptRequestParams::new(name).with_arguments(arguments);
        match timeout(self.call_time, self.service.get_prompt(params)).await {
            Ok(result) => result.map_err(|error| self.describe_failure(&error)),
            Err(_) => Err(McpError::CallTimeout(self.call_time.as_secs())),
        }
    }

    /// Answers the questions in a result of the stateless protocol.
    async fn answer_input(&self, requests: InputRequests) -> Result<InputResponses, McpError> {
        let mut answers = InputResponses::new();
        for (key, request) in requests {
            let answer = match request {
                InputRequest::Elicitation(request) => serde_json::to_value(
                    self.service
                        .service()
                        .answer_elicitation(request.params)
                        .await,
                ),
                InputRequest::ListRoots(_) => serde_json::to_value(self.service.service().roots()),
                _ => {
                    return Err(McpError::Answer(
                        "it asked for sampling, which is refused".to_owned(),
                    ));
                }
            };
            answers.insert(key, answer.map_err(|_| McpError::Unexpected)?);
        }
        Ok(answers)
    }
}

/// Follows changes of a server's lists and resources in the newest protocol, in which a server tells them only to a client that listens.
async fn follow_changes(
    peer: Peer<RoleClient>,
    changed: Arc<Notify>,
    resources: Arc<WatchedResources>,
) {
    let Some(info) = peer.peer_info() else { return };
    if info.protocol_version != ProtocolVersion::V_2026_07_28 {
        return;
    }
    let capabilities = &info.capabilities;
    let mut filter = SubscriptionFilter::new();
    let is_supported = |support: Option<bool>| support.filter(|is_supported| *is_supported);
    filter.tools_list_changed = capabilities
        .tools
        .as_ref()
        .and_then(|own| is_supported(own.list_changed));
    filter.prompts_list_changed = capabilities
        .prompts
        .as_ref()
        .and_then(|own| is_supported(own.list_changed));
    filter.resources_list_changed = capabilities
        .resources
        .as_ref()
        .and_then(|own| is_supported(own.list_changed));
    for _ in 0..MAX_LISTENS {
        let watched = resources.watched_uris();
        filter.resource_subscriptions = (!watched.is_empty()).then_some(watched);
        if filter == SubscriptionFilter::new() {
            resources.wait_added().await;
            continue;
        }
        let Ok(mut subscription) = peer.listen(filter.clone()).await else {
            return;
        };
        loop {
            let notification = tokio::select! {
                notification = subscription.next() => notification,
                // A stream cannot be changed: another one follows the new resource too.
                () = resources.wait_added() => break,
            };
            match notification {
                Ok(Some(ServerNotification::ResourceUpdatedNotification(update))) => {
                    resources.note_change(&update.params.uri);
                }
                Ok(Some(_)) => changed.notify_one(),
                Ok(None) | Err(_) => {
                    tokio::time::sleep(LISTEN_PAUSE).await;
                    break;
                }
            }
        }
        // No client was notified of changes between two streams.
        changed.notify_one();
    }
}

/// Writes progress as a line.
fn describe_progress(progress: &rmcp::model::ProgressNotificationParam) -> String {
    let message = one_line(progress.message.as_deref().unwrap_or_default());
    let numbers = match progress.total {
        Some(total) => format!("{} of {total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match message.is_empty() {
        true => format!("{numbers}\n"),
        false => format!("{numbers}: {message}\n"),
    }
}

fn service_error(error: &ServiceError) -> McpError {
    match error {
        ServiceError::McpError(answer) => McpError::Answer(one_line(&answer.message)),
        ServiceError::TransportClosed => McpError::Closed("before it answered".to_owned()),
        ServiceError::UnexpectedResponse => McpError::Unexpected,
        error => McpError::Closed(plain_reason(&error.to_string())),
    }
}
