//! Serves one connection: answers requests that concern no session, and passes all others to the
//! worker of their session.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
    AuthenticateResponse, CancelNotification, CloseSessionRequest, CloseSessionResponse,
    ForkSessionRequest, ForkSessionResponse, Implementation, InitializeRequest, InitializeResponse,
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
    McpCapabilities, McpServer, NewSessionRequest, NewSessionResponse, Notice as ClientNotice,
    NoticeSeverity, PromptCapabilities, PromptRequest, PromptResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities, SessionConfigOptionValue,
    SessionForkCapabilities, SessionId, SessionInfo, SessionListCapabilities, SessionNotification,
    SessionResumeCapabilities, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent, Client, Error, ErrorCode, JsonRpcResponse, Lines, on_receive_notification,
    on_receive_request,
};
use futures_util::Sink;
use sabir_session::agent::{Record, TaskId};
use sabir_session::first_screen::FirstRunReport;
use sabir_session::{
    CompletionSpec, Host, Interactivity, RecordMode, SessionChoices, SessionError, SessionSpec,
    TaskFilter, format_timestamp, task_title,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::prompt_content::read_prompt;
use crate::session::{
    ClientFeatures, SessionInput, SessionSetup, SessionWorker, invalid, session_error,
};
use crate::session_settings::{config_options, mcp_servers, mode_state};
use crate::transport::{input_lines, output_lines};

/// The id of the method that uses keys of the environment or the configuration.
const KEY_METHOD: &str = "key";
/// The id of the method that sets Sabir up in a terminal.
const SETUP_METHOD: &str = "setup";
/// The argument behind `sabir acp` that sets Sabir up.
const SETUP_ARGUMENT: &str = "--setup";
/// The most sessions in one answer to `session/list`.
const PAGE_SESSIONS: usize = 100;

/// A failure of the connection itself.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke: {0}")]
pub struct AcpError(String);

/// Serves one client until its input ends or `end` resolves. `spec` is the spec of all sessions; each client's session sets folder, mode,
/// model and MCP servers. Must be called within a tokio runtime.
///
/// # Errors
/// When the output cannot be written, or the input cannot be read.
pub async fn serve(
    host: Host,
    spec: SessionSpec,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    end: impl Future<Output = ()>,
) -> Result<(), AcpError> {
    let server = Arc::new(AcpServer::new(host, spec));
    let is_closed = Arc::new(AtomicBool::new(false));
    let output = output_lines(output, Arc::clone(&is_closed));
    let served = tokio::select! {
        served = serve_connection(&server, input, output) => served,
        () = end => Ok(()),
    };
    server.end_sessions().await;
    match served {
        // A client that stops reading before it stops writing has ended the connection, too.
        Err(error) if !is_closed.load(Ordering::Relaxed) => Err(AcpError(error.message)),
        _ => Ok(()),
    }
}

/// Registers the handlers and drives the connection. A handler returns at once: the connection reads nothing while one works.
async fn serve_connection(
    server: &Arc<AcpServer>,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl Sink<String, Error = io::Error> + Send + 'static,
) -> Result<(), Error> {
    /// Answers a request with a method of the server.
    macro_rules! answered_by {
        ($request:ty, $response:ty, $method:ident) => {{
            let server = Arc::clone(server);
            async move |request: $request,
                        responder: Responder<$response>,
                        connection: ConnectionTo<Client>| {
                server.$method(request, responder, connection);
                Ok(())
            }
        }};
    }
    let cancelling = Arc::clone(server);
    Agent
        .v1()
        .name("sabir")
        .on_receive_request(
            answered_by!(InitializeRequest, InitializeResponse, initialize),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(AuthenticateRequest, AuthenticateResponse, authenticate),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(NewSessionRequest, NewSessionResponse, new_session),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(LoadSessionRequest, LoadSessionResponse, load_session),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(ResumeSessionRequest, ResumeSessionResponse, resume_session),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(ForkSessionRequest, ForkSessionResponse, fork_session),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(ListSessionsRequest, ListSessionsResponse, list_sessions),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(CloseSessionRequest, CloseSessionResponse, close_session),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(PromptRequest, PromptResponse, prompt),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(SetSessionModeRequest, SetSessionModeResponse, set_mode),
            on_receive_request!(),
        )
        .on_receive_request(
            answered_by!(
                SetSessionConfigOptionRequest,
                SetSessionConfigOptionResponse,
                set_option
            ),
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: CancelNotification, _connection: ConnectionTo<Client>| {
                // A session that is gone has nothing to cancel.
                _ = cancelling.send(&cancel.session_id, SessionInput::Cancel);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(Lines::new(Box::pin(output), Box::pin(input_lines(input))))
        .await
}

/// The sessions of one connection.
struct AcpServer {
    host: Host,
    spec: SessionSpec,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    features: ClientFeatures,
    /// The ways to the workers, by session.
    sessions: HashMap<SessionId, UnboundedSender<SessionInput>>,
    workers: JoinSet<()>,
}

/// The settings that a client requests for a session.
struct SessionRequest {
    cwd: PathBuf,
    servers: Vec<McpServer>,
}

impl AcpServer {
    fn new(host: Host, spec: SessionSpec) -> Self {
        let completion = CompletionSpec {
            // The user reviews a result by reading it, and says in the next prompt what is missing.
            review: Some(false),
            ..spec.completion
        };
        Self {
            host,
            spec: SessionSpec {
                completion,
                interactivity: Interactivity::Interactive,
                record: RecordMode::Off,
                previews: true,
                ..spec
            },
            state: Mutex::default(),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all sessions, and waits for them.
    async fn end_sessions(&self) {
        let mut workers = {
            let mut state = self.lock_state();
            // Without a sender each worker ends.
            for (_, sender) in state.sessions.drain() {
                let (done, _) = oneshot::channel();
                _ = sender.send(SessionInput::Close { done });
            }
            std::mem::take(&mut state.workers)
        };
        while workers.join_next().await.is_some() {}
    }

    /// Hands something to a session.
    fn send(&self, session: &SessionId, input: SessionInput) -> Result<(), Error> {
        let state = self.lock_state();
        let sender = state.sessions.get(session);
        // A worker that is gone has ended its session.
        sender
            .and_then(|sender| sender.send(input).ok())
            .ok_or_else(|| unknown_session(session))
    }

    fn initialize(
        &self,
        request: InitializeRequest,
        responder: Responder<InitializeResponse>,
        _: ConnectionTo<Client>,
    ) {
        // What the client does not name it cannot do: all capabilities default to none.
        let client = request.client_capabilities;
        let session = client.session.unwrap_or_default();
        let features = ClientFeatures {
            notices: session.notices.is_some(),
            compactions: session.compaction.is_some(),
            reads_files: client.fs.read_text_file,
            writes_files: client.fs.write_text_file,
            terminals: client.terminal,
            forms: client.elicitation.is_some_and(|one| one.supports_form()),
            terminal_setup: client.auth.terminal,
        };
        self.lock_state().features = features;
        // Always offered: a client shows the methods only after an answer that asks for them.
        let mut methods = vec![AuthMethod::Agent(
            AuthMethodAgent::new(KEY_METHOD, "A key of your own")
                .description("Set the key of a provider in the environment of Sabir or in its config.toml, then try again."),
        )];
        if features.terminal_setup {
            methods.push(AuthMethod::Terminal(
                AuthMethodTerminal::new(SETUP_METHOD, "Set up in a terminal")
                    .description("Finds keys and servers on this machine, and writes config.toml.")
                    .args(vec![SETUP_ARGUMENT.to_owned()]),
            ));
        }
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .fork(SessionForkCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true))
            .session_capabilities(sessions);
        let info =
            Implementation::new("sabir", env!("CARGO_PKG_VERSION")).title("Sabir".to_owned());
        let response = InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .auth_methods(methods)
            .agent_info(info);
        _ = responder.respond(response);
    }

    /// Checks that there is a model with a key now.
    fn authenticate(
        &self,
        request: AuthenticateRequest,
        responder: Responder<AuthenticateResponse>,
        _: ConnectionTo<Client>,
    ) {
        let result = if request.method_id.0.as_ref() != KEY_METHOD {
            let method = &request.method_id;
            Err(invalid(format!("there is no method `{method}`")))
        } else {
            self.host
                .image_support(&self.spec, None)
                .map(|_| AuthenticateResponse::new())
                .map_err(|error| Error::new(ErrorCode::AUTH_REQUIRED, error.to_string()))
        };
        _ = responder.respond_with_result(result);
    }

    fn new_session(
        &self,
        request: NewSessionRequest,
        responder: Responder<NewSessionResponse>,
        connection: ConnectionTo<Client>,
    ) {
        // The id is given out now, and the task begins with the first prompt.
        let task = self.host.new_task_id();
        let plan = SessionRequest {
            cwd: request.cwd,
            servers: request.mcp_servers,
        };
        let opened = self.open_session(task, plan, &[], None, &connection);
        let (id, choices) = match opened {
            Ok(opened) => opened,
            Err(error) => return refuse(responder, error),
        };
        let response = NewSessionResponse::new(id.clone())
            .modes(mode_state(&choices))
            .config_options(config_options(&choices));
        _ = responder.respond(response);
        self.announce(&id);
    }

    fn load_session(
        &self,
        request: LoadSessionRequest,
        responder: Responder<LoadSessionResponse>,
        connection: ConnectionTo<Client>,
    ) {
        let plan = SessionRequest {
            cwd: request.cwd,
            servers: request.mcp_servers,
        };
        let id = request.session_id;
        if let Err(error) = self.reopen_session(&id, plan, &connection) {
            return refuse(responder, error);
        }
        let (done, replayed) = oneshot::channel();
        if let Err(error) = self.send(&id, SessionInput::Replay { done }) {
            return refuse(responder, error);
        }
        let sender = self.find_sender(&id);
        tokio::spawn(async move {
            // The whole history comes before the response.
            let Ok(choices) = replayed.await else {
                return refuse(responder, unknown_session(&id));
            };
            let response = LoadSessionResponse::new()
                .modes(mode_state(&choices))
                .config_options(config_options(&choices));
            _ = responder.respond(response);
            if let Some(sender) = sender {
                // A session that has ended meanwhile announces nothing.
                _ = sender.send(SessionInput::Announce);
            }
        });
    }

    fn resume_session(
        &self,
        request: ResumeSessionRequest,
        responder: Responder<ResumeSessionResponse>,
        connection: ConnectionTo<Client>,
    ) {
        let plan = SessionRequest {
            cwd: request.cwd,
            servers: request.mcp_servers,
        };
        let id = request.session_id;
        let response = self.reopen_session(&id, plan, &connection).map(|choices| {
            ResumeSessionResponse::new()
                .modes(mode_state(&choices))
                .config_options(config_options(&choices))
        });
        _ = responder.respond_with_result(response);
        self.announce(&id);
    }

    fn fork_session(
        &self,
        request: ForkSessionRequest,
        responder: Responder<ForkSessionResponse>,
        connection: ConnectionTo<Client>,
    ) {
        let plan = SessionRequest {
            cwd: request.cwd,
            servers: request.mcp_servers,
        };
        let task = TaskId::new(request.session_id.to_string());
        let forked = self.fork_task(&task, plan, &connection);
        let (id, choices) = match forked {
            Ok(forked) => forked,
            Err(error) => return refuse(responder, error),
        };
        let response = ForkSessionResponse::new(id.clone())
            .modes(mode_state(&choices))
            .config_options(config_options(&choices));
        _ = responder.respond(response);
        self.announce(&id);
    }

    fn fork_task(
        &self,
        task: &TaskId,
        plan: SessionRequest,
        connection: &ConnectionTo<Client>,
    ) -> Result<(SessionId, SessionChoices), Error> {
        let spec = SessionSpec {
            workspace: Some(plan.cwd.clone()),
            ..self.spec.clone()
        };
        let fork = self
            .host
            .fork(task, None, &spec)
            .map_err(|error| session_error(&error))?;
        let records = self
            .host
            .read_records(&fork)
            .map_err(|error| session_error(&error))?;
        self.open_session(fork, plan, &records, Some(records.len()), connection)
    }

    fn list_sessions(
        &self,
        request: ListSessionsRequest,
        responder: Responder<ListSessionsResponse>,
        _: ConnectionTo<Client>,
    ) {
        _ = responder.respond_with_result(self.list_page(&request));
    }

    fn list_page(&self, request: &ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        let start: usize = match &request.cursor {
            Some(cursor) => cursor
                .parse()
                .map_err(|_| invalid("this cursor is not from here"))?,
            None => 0,
        };
        // Journals hold the real path of their folder.
        let workspace = request.cwd.as_ref().map(|cwd| real_path(cwd));
        let filter = TaskFilter {
            workspace,
            own_only: true,
            ..TaskFilter::default()
        };
        let all = self
            .host
            .list(&filter)
            .map_err(|error| session_error(&error))?;
        let page = all.iter().skip(start).take(PAGE_SESSIONS).map(|task| {
            SessionInfo::new(SessionId::new(task.id.as_str()), task.workspace.clone())
                .title(task_title(&task.prompt))
                .updated_at(format_timestamp(task.last_at / 1000))
        });
        let next = start.saturating_add(PAGE_SESSIONS);
        let cursor = (next < all.len()).then(|| next.to_string());
        Ok(ListSessionsResponse::new(page.collect()).next_cursor(cursor))
    }

    fn close_session(
        &self,
        request: CloseSessionRequest,
        responder: Responder<CloseSessionResponse>,
        _: ConnectionTo<Client>,
    ) {
        let removed = self.lock_state().sessions.remove(&request.session_id);
        let (done, closed) = oneshot::channel();
        let is_sent =
            removed.is_some_and(|sender| sender.send(SessionInput::Close { done }).is_ok());
        if !is_sent {
            return refuse(responder, unknown_session(&request.session_id));
        }
        tokio::spawn(async move {
            // The worker is gone either way.
            _ = closed.await;
            _ = responder.respond(CloseSessionResponse::new());
        });
    }

    fn prompt(
        &self,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
        _: ConnectionTo<Client>,
    ) {
        // Read before the session is looked for, so that a mistake in the content is named as such.
        let message = match read_prompt(request.prompt) {
            Ok(message) => message,
            Err(error) => return refuse(responder, invalid(error.to_string())),
        };
        let Some(sender) = self.find_sender(&request.session_id) else {
            return refuse(responder, unknown_session(&request.session_id));
        };
        // If the worker ends at this moment, it drops the responder, which then replies with an
        // error.
        _ = sender.send(SessionInput::Prompt { message, responder });
    }

    fn set_mode(
        &self,
        request: SetSessionModeRequest,
        responder: Responder<SetSessionModeResponse>,
        _: ConnectionTo<Client>,
    ) {
        let Some(sender) = self.find_sender(&request.session_id) else {
            return refuse(responder, unknown_session(&request.session_id));
        };
        let mode = request.mode_id.0.to_string();
        _ = sender.send(SessionInput::SetMode { mode, responder });
    }

    fn set_option(
        &self,
        request: SetSessionConfigOptionRequest,
        responder: Responder<SetSessionConfigOptionResponse>,
        _: ConnectionTo<Client>,
    ) {
        let Some(sender) = self.find_sender(&request.session_id) else {
            return refuse(responder, unknown_session(&request.session_id));
        };
        let value = match request.value {
            SessionConfigOptionValue::ValueId { value } => value.0.to_string(),
            _ => {
                return refuse(responder, invalid("this option takes a value id"));
            }
        };
        _ = sender.send(SessionInput::SetOption {
            option: request.config_id.0.to_string(),
            value,
            responder,
        });
    }

    /// Returns the way to a session.
    fn find_sender(&self, session: &SessionId) -> Option<UnboundedSender<SessionInput>> {
        self.lock_state().sessions.get(session).cloned()
    }

    /// Lets a session announce its commands, after the response that names it.
    fn announce(&self, session: &SessionId) {
        _ = self.send(session, SessionInput::Announce);
    }

    /// Opens a session of this connection again, or one that has a journal. A running session
    /// continues.
    fn reopen_session(
        &self,
        id: &SessionId,
        plan: SessionRequest,
        connection: &ConnectionTo<Client>,
    ) -> Result<SessionChoices, Error> {
        let task = TaskId::new(id.to_string());
        let records = self.host.read_records(&task);
        // Its worker holds the lock of the journal, so a second worker could not open it.
        let is_open = self.lock_state().sessions.contains_key(id);
        if is_open {
            let spec = SessionSpec {
                workspace: Some(real_path(&plan.cwd)),
                ..self.spec.clone()
            };
            let records = records.unwrap_or_default();
            let choices = self.host.session_choices(&spec, &records);
            return choices.map_err(|error| session_error(&error));
        }
        let records = records
            .map_err(|error| Error::new(ErrorCode::RESOURCE_NOT_FOUND, error.to_string()))?;
        let known = Some(records.len());
        let opened = self.open_session(task, plan, &records, known, connection);
        opened.map(|(_, choices)| choices)
    }

    /// Opens a session and starts its worker.
    fn open_session(
        &self,
        task: TaskId,
        plan: SessionRequest,
        records: &[Record],
        stored: Option<usize>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(SessionId, SessionChoices), Error> {
        // Relative to what? The folder of this process means nothing to the client.
        if !plan.cwd.is_absolute() {
            return Err(invalid("`cwd` must be an absolute path"));
        }
        let (servers, unreachable) = mcp_servers(plan.servers);
        let spec = SessionSpec {
            workspace: Some(real_path(&plan.cwd)),
            mcp_servers: self
                .spec
                .mcp_servers
                .iter()
                .cloned()
                .chain(servers)
                .collect(),
            ..self.spec.clone()
        };
        // Fails if the configuration cannot be used, so that the user learns of it before they
        // write a prompt.
        let choices = self
            .host
            .session_choices(&spec, records)
            .map_err(|error| self.setup_error(&error, &spec))?;
        let id = SessionId::new(task.as_str());
        let (sender, inputs) = unbounded_channel();
        let mut state = self.lock_state();
        let seed = SessionSetup {
            id: id.clone(),
            task,
            named_folder: plan.cwd,
            spec,
            choices: choices.clone(),
            features: state.features,
            stored,
        };
        if state.features.notices && !unreachable.is_empty() {
            let text = format!(
                "these MCP servers are not used, since they speak SSE: {}",
                unreachable.join(", ")
            );
            let notice = ClientNotice::new(NoticeSeverity::Warning, text);
            let notice = SessionNotification::new(id.clone(), SessionUpdate::Notice(notice));
            _ = connection.send_notification(notice);
        }
        let worker = SessionWorker::new(
            self.host.clone(),
            connection.clone(),
            seed,
            inputs,
            sender.clone(),
        );
        state.sessions.insert(id.clone(), sender);
        state.workers.spawn(worker.run());
        // Removes finished workers, so that their number stays that of the open sessions.
        while state.workers.try_join_next().is_some() {}
        Ok((id, choices))
    }

    /// Converts an error of the configuration. If a model or its key is missing, the client is
    /// asked to let its user set it up.
    fn setup_error(&self, error: &SessionError, spec: &SessionSpec) -> Error {
        // A wrong key of the configuration is no lack of a model, and is reported as it is.
        let lacks_model = FirstRunReport::is_needed(&self.host, spec).unwrap_or(false);
        let lacks_key = || self.host.image_support(spec, None).is_err();
        if lacks_model || lacks_key() {
            return Error::new(ErrorCode::AUTH_REQUIRED, error.to_string());
        }
        session_error(error)
    }
}

fn unknown_session(session: &SessionId) -> Error {
    Error::new(
        ErrorCode::RESOURCE_NOT_FOUND,
        format!("there is no session `{session}`"),
    )
}

/// Returns the path without links, or the path itself if it does not exist.
fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Answers a request with an error. A client that is gone gets none.
fn refuse<T: JsonRpcResponse>(responder: Responder<T>, error: Error) {
    _ = responder.respond_with_error(error);
}
