//! Drives the session of one program: its messages are turns, and each turn ends with one `result`.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use sabir_session::agent::{Record, RuleProposal, TaskId, UsageTotals, UserQuestion};
use sabir_session::call::{Call, CallId, MessagePart, StopReason, ToolResultStatus, Usage, redact};
use sabir_session::images::ImageInput;
use sabir_session::{
    Command, Decision, Delivery, Host, Interactivity, ModelChoice, Rejected, RequestId, Session,
    SessionError, SessionEvent, SessionEventKind, SessionSpec, SessionState, SessionUpdate,
    StreamEvent, Subscription, SubtaskLabel, TaskLookup, UserMessage,
};
use sabir_terminal::print;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::arguments::{ResumedTask, SdkArguments};
use crate::control::{ControlChannel, ProgramHooks};
use crate::error::{MessageError, RequestError};
use crate::json::value_at;
use crate::messages::{
    CallNames, NamedCall, TurnResult, assistant_message, result_message, stop_reason, usage_json,
};
use crate::partial_messages::PartialMessages;
use crate::program_servers::serve_program_servers;

/// The longest line of the input that is read, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// The mode that `plan` is left for.
const WORKING_MODE: &str = "code";

/// Serves a program until its input ends and its last turn is done, or until `end`. Returns false if the last turn failed.
///
/// # Errors
/// When the configuration or the task to continue cannot be used.
pub async fn serve(
    host: &Host,
    mut arguments: SdkArguments,
    mut input: impl AsyncBufRead + Unpin,
    end: impl Future<Output = ()>,
) -> Result<bool, SessionError> {
    for flag in &arguments.ignored {
        warn(&format!("{flag} has no effect in Sabir"));
    }
    let mut server = arguments
        .load_files(host)
        .and_then(|()| SdkServer::new(host, &arguments))
        .inspect_err(|error| print_startup_failure(host, error))?;
    if !arguments.prompt.trim().is_empty() {
        let prompt = UserMessage::from_text(&arguments.prompt);
        server.queue.push_back(Ok(prompt));
    }
    // Standard input is not read then.
    if !arguments.reads_input {
        server.end_input();
    }
    server.begin_next_turn().await;
    tokio::pin!(end);
    let mut line = Vec::new();
    while !(server.is_ended && server.turn.is_none() && server.queue.is_empty()) {
        tokio::select! {
            read = read_line(&mut input, &mut line), if !server.is_ended => match read {
                LineRead::Line => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    line.clear();
                    server.handle_line(&text).await;
                }
                LineRead::TooLong => {
                    warn("the input has a line that is too long, and is not read further");
                    server.end_input();
                }
                LineRead::End => server.end_input(),
            },
            update = next_update(&mut server.live) => server.handle_update(update).await,
            started = next_started(&mut server.starting) => {
                server.handle_started(started);
                server.begin_next_turn().await;
            }
            () = &mut end => break,
        }
        // Nobody sees what the session does, although the input may stay open for ever.
        if print::is_reader_gone() {
            break;
        }
    }
    if let Some(starting) = server.starting.take() {
        starting.abort();
    }
    if let Some(live) = server.live.take() {
        // Nobody reads it any more, and it would keep all events of the end in memory.
        drop(live.updates);
        // A session that has ended by itself needs no command.
        _ = live.session.submit(Command::End);
        live.session.wait().await?;
    }
    Ok(!server.has_failed)
}

/// Prints the result of a session that cannot begin: programs show it, while standard error often goes nowhere.
fn print_startup_failure(host: &Host, error: &SessionError) {
    let [session, id] = [(); 2].map(|()| host.new_task_id());
    print::print_redacted_json(&json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "duration_ms": 0,
        "duration_api_ms": 0, "num_turns": 0, "stop_reason": null, "total_cost_usd": 0.0,
        "usage": usage_json(&Usage::default()), "modelUsage": {}, "permission_denials": [],
        "errors": [error.to_string()], "session_id": session, "uuid": id,
    }));
}

/// The result of reading one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineRead {
    Line,
    TooLong,
    End,
}

/// Reads a line to the end of `line`. What was read stays there when the future is dropped, so that no byte is lost.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> LineRead {
    let room = MAX_LINE_BYTES.saturating_sub(line.len() as u64);
    let read = input.take(room).read_until(b'\n', line).await;
    match read {
        _ if line.last() == Some(&b'\n') => LineRead::Line,
        _ if line.len() as u64 >= MAX_LINE_BYTES => LineRead::TooLong,
        // The last line may lack its end. Input that cannot be read has ended.
        _ if !line.is_empty() => LineRead::Line,
        _ => LineRead::End,
    }
}

async fn next_update(live: &mut Option<LiveTask>) -> Option<SessionUpdate> {
    match live {
        Some(live) => live.updates.next().await,
        None => std::future::pending().await,
    }
}

async fn next_started(
    starting: &mut Option<JoinHandle<Result<(Session, usize), SessionError>>>,
) -> Result<(Session, usize), SessionError> {
    let Some(starting) = starting else {
        return std::future::pending().await;
    };
    starting.await.unwrap_or_else(|error| {
        Err(SessionError::invalid(format!(
            "the session did not start: {error}"
        )))
    })
}

/// Tells the user of the program something on standard error.
fn warn(text: &str) {
    print::write_stderr(&print::sanitize_text(&format!("sabir: {text}\n")));
}

/// A task that works or waits for a message.
struct LiveTask {
    session: Session,
    updates: Subscription,
    /// The number of records in the snapshot that an earlier process has printed.
    known: usize,
}

/// A message that the task works on.
struct Turn {
    began_at: SystemTime,
    answers: u32,
    is_interrupted: bool,
}

/// A question that the program is asked.
struct AskedQuestion {
    request: RequestId,
    /// The input as it was printed, without secrets.
    input: Value,
    subject: AskedSubject,
}

/// The subject of a question.
enum AskedSubject {
    /// A call, with the rules that the program may approve with it.
    Call {
        proposals: Vec<RuleProposal>,
        suggestions: Value,
    },
    /// The model's own question.
    Question,
}

/// The state of one connection.
struct SdkServer {
    host: Host,
    spec: SessionSpec,
    task: TaskId,
    /// True if the task has a journal.
    is_stored: bool,
    has_permission_callback: bool,
    prints_partial_messages: bool,
    model: ModelChoice,
    names: CallNames,
    /// The MCP servers in the program's own process that are not reachable yet.
    program_servers: Vec<String>,
    /// The session that is being started.
    starting: Option<JoinHandle<Result<(Session, usize), SessionError>>>,
    /// The start of a session that was interrupted, until it has ended.
    interrupted_start: Option<JoinHandle<Result<(Session, usize), SessionError>>>,
    live: Option<LiveTask>,
    /// The messages that wait, or the reasons why they cannot be sent.
    queue: VecDeque<Result<UserMessage, MessageError>>,
    turn: Option<Turn>,
    /// The question that the next message answers.
    text_question: Option<RequestId>,
    /// The model that a live task will use once its turn is done.
    wanted_model: Option<String>,
    /// The mode that was asked for while the session was being started.
    wanted_mode: Option<String>,
    /// A change of the model or an interrupt ends the run, and the session is not idle yet.
    awaits_idle: bool,
    channel: Arc<ControlChannel>,
    /// The questions that are open, by the ids of their control requests.
    asked: HashMap<String, AskedQuestion>,
    /// The calls without a result, by task and id.
    calls: HashMap<(Option<TaskId>, CallId), Call>,
    partial: PartialMessages,
    denials: Vec<Value>,
    last_text: String,
    last_stop: Option<StopReason>,
    totals: UsageTotals,
    is_ended: bool,
    is_announced: bool,
    has_failed: bool,
}

impl SdkServer {
    fn new(host: &Host, arguments: &SdkArguments) -> Result<Self, SessionError> {
        let mut spec = SessionSpec {
            interactivity: Interactivity::Interactive,
            ..arguments.spec.clone()
        };
        // The program gets the result and continues with a message.
        spec.completion.review = Some(false);
        let found = match &arguments.resumed {
            None => None,
            Some(resumed) => {
                let lookup = TaskLookup::open(host.environment(), spec.workspace.as_deref())?;
                Some(match resumed {
                    ResumedTask::Named(name) => lookup.find(Some(name))?,
                    ResumedTask::Newest => lookup.newest(false)?,
                })
            }
        };
        // Forks a copy, so that the task itself does not change.
        let found = match found {
            Some(task) if arguments.forks => Some(host.fork(&task, None, &spec)?),
            found => found,
        };
        // The mode and the model of a task that continues are in its records.
        let records = found.as_ref().map(|task| host.read_records(task));
        let records = records.transpose()?.unwrap_or_default();
        let choices = host.session_choices(&spec, &records)?;
        let named = arguments.session_id.clone().map(TaskId::new);
        let names = CallNames {
            servers: spec
                .mcp_servers
                .iter()
                .map(|server| server.name.clone())
                .collect(),
        };
        Ok(Self {
            host: host.clone(),
            is_stored: found.is_some(),
            task: found.or(named).unwrap_or_else(|| host.new_task_id()),
            spec,
            has_permission_callback: arguments.has_permission_callback,
            prints_partial_messages: arguments.partial_messages,
            model: choices.model,
            names,
            program_servers: arguments.program_servers.clone(),
            starting: None,
            interrupted_start: None,
            live: None,
            queue: VecDeque::new(),
            turn: None,
            text_question: None,
            wanted_model: None,
            wanted_mode: None,
            awaits_idle: false,
            channel: Arc::default(),
            asked: HashMap::new(),
            calls: HashMap::new(),
            partial: PartialMessages::default(),
            denials: Vec::new(),
            last_text: String::new(),
            last_stop: None,
            totals: UsageTotals::default(),
            is_ended: false,
            is_announced: false,
            has_failed: false,
        })
    }

    /// Prints a message with the id of the session and one of its own.
    fn print(&self, mut message: Value) {
        // Here and not by each message: programs drop messages that lack them.
        if let Some(fields) = message.as_object_mut() {
            let id = self.host.new_task_id();
            fields.insert("session_id".to_owned(), json!(self.task));
            fields.insert("uuid".to_owned(), json!(id));
        }
        print::print_redacted_json(&message);
    }

    /// Sends a command to the session. Where the outcome does not matter, the session has ended or the question is closed.
    fn submit(&self, command: Command) -> Result<(), Rejected> {
        let live = self.live.as_ref().ok_or(Rejected::Ended)?;
        live.session.submit(command)
    }

    /// Notes the end of the input: nobody can be asked any more, and the turns that are left are done.
    fn end_input(&mut self) {
        self.is_ended = true;
        // Hooks and servers of the program that are being waited for fail now.
        self.channel.close();
        for (_, asked) in std::mem::take(&mut self.asked) {
            self.deny(asked.request, "the program has closed its input");
        }
    }

    fn deny(&self, request: RequestId, reason: &str) {
        let reason = reason.to_owned();
        let decision = Decision::Deny { reason };
        _ = self.submit(Command::Answer { request, decision });
    }

    async fn handle_line(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return warn("a line of the input is not JSON, and is ignored");
        };
        match value_at(&message, "/type").as_str() {
            // A message that cannot be sent is a turn as well, since the program waits for a result
            // of each message.
            Some("user") => {
                let parsed = parse_message(value_at(&message, "/message/content"));
                self.queue.push_back(parsed);
                self.begin_next_turn().await;
            }
            Some("control_request") => self.handle_request(&message),
            // Messages of other types, such as keep-alives, ask for nothing.
            Some("control_response") => self.handle_response(value_at(&message, "/response")),
            _ => {}
        }
    }

    /// Answers a request of the program.
    fn handle_request(&mut self, message: &Value) {
        let request = value_at(message, "/request");
        let answer = match value_at(request, "/subtype").as_str().unwrap_or_default() {
            "initialize" => self.initialize(request),
            "interrupt" => {
                // Messages behind the one that is stopped would otherwise begin at once.
                self.queue.clear();
                if let Some(starting) = self.starting.take() {
                    starting.abort();
                    self.interrupted_start = Some(starting);
                    // The next start has what was asked for meanwhile.
                    self.wanted_model = None;
                    self.wanted_mode = None;
                    if let Some(turn) = &mut self.turn {
                        turn.is_interrupted = true;
                    }
                    self.end_turn(TurnResult::failed("interrupted".to_owned()));
                }
                self.interrupt();
                Ok(json!({"still_queued": []}))
            }
            "set_permission_mode" => self.set_permission_mode(value_at(request, "/mode")),
            "set_model" => self.set_model(value_at(request, "/model")),
            "mcp_status" => Ok(self.describe_servers()),
            // A notification of a server in the program, such as changed tools. Tools are listed
            // only once, so it is ignored.
            "mcp_message" => Ok(json!({})),
            other => Err(RequestError::Unknown(other.to_owned())),
        };
        let id = value_at(message, "/request_id");
        let response = match answer {
            Ok(response) => json!({"subtype": "success", "request_id": id, "response": response}),
            Err(error) => {
                let error = error.to_string();
                json!({"subtype": "error", "request_id": id, "error": error})
            }
        };
        print::print_redacted_json(&json!({"type": "control_response", "response": response}));
    }

    /// Interrupts the turn, if there is one.
    fn interrupt(&mut self) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        turn.is_interrupted = true;
        let Some(live) = &self.live else {
            return;
        };
        let handle = live.session.handle();
        let is_idle = handle.is_idle();
        if handle.submit(Command::Interrupt).is_ok() {
            // The run may end its turn at this moment and ask for the next message, and the
            // interrupt would then be lost.
            self.awaits_idle = !is_idle;
        }
    }

    fn initialize(&mut self, request: &Value) -> Result<Value, RequestError> {
        let is_late = self.live.is_some() || self.starting.is_some();
        let servers = value_at(request, "/sdkMcpServers").as_array();
        let servers = servers.into_iter().flatten().filter_map(Value::as_str);
        // The Python package names them on the command line as well.
        for server in servers.map(str::to_owned) {
            if is_late && !self.names.servers.contains(&server) {
                return Err(RequestError::Late);
            }
            if !is_late && !self.program_servers.contains(&server) {
                self.program_servers.push(server);
            }
        }
        if let Some(hooks) = ProgramHooks::parse(value_at(request, "/hooks"), &self.channel)? {
            if is_late {
                return Err(RequestError::Late);
            }
            self.host = self.host.clone().with_hook_callbacks(Arc::new(hooks));
        }
        // Programs fail without these lists, and use none of them here.
        let model = &self.model.name;
        let model = json!({"value": model, "displayName": model, "description": ""});
        Ok(json!({
            "commands": [], "output_style": "default", "available_output_styles": ["default"],
            "models": [model], "account": {}, "agents": [], "hooks_applied": true,
            "hook_on_failure_supported": true,
        }))
    }

    fn set_permission_mode(&mut self, mode: &Value) -> Result<Value, RequestError> {
        let mode = match mode.as_str() {
            Some("plan") => "plan",
            Some("default") => WORKING_MODE,
            // The others change rules, which are fixed when a task begins.
            _ => return Err(RequestError::Mode(mode.to_string())),
        };
        self.spec.mode = Some(mode.to_owned());
        let mode = mode.to_owned();
        if self.live.is_some() {
            self.submit(Command::SetMode { mode })?;
        } else if self.starting.is_some() {
            self.wanted_mode = Some(mode);
        }
        Ok(json!({}))
    }

    fn set_model(&mut self, model: &Value) -> Result<Value, RequestError> {
        let Some(model) = model.as_str() else {
            return Err(RequestError::NoModel);
        };
        let spec = SessionSpec {
            model: Some(model.to_owned()),
            ..self.spec.clone()
        };
        // Fails for an unknown model before anything is changed.
        let choices = self.host.session_choices(&spec, &[])?;
        let is_begun = self.live.is_some() || self.starting.is_some();
        self.wanted_model = is_begun.then(|| model.to_owned());
        self.apply_model()?;
        self.model = choices.model;
        self.spec = spec;
        Ok(json!({}))
    }

    /// Switches to the model that was asked for. A task that works switches when its turn is done.
    fn apply_model(&mut self) -> Result<(), Rejected> {
        let Some(live) = self.live.as_ref().filter(|_| self.turn.is_none()) else {
            return Ok(());
        };
        let Some(model) = self.wanted_model.take() else {
            return Ok(());
        };
        let handle = live.session.handle();
        let is_idle = handle.is_idle();
        let command = Command::SetModel {
            model: model.clone(),
        };
        match handle.submit(command) {
            Ok(()) => {
                // Unless it is idle, the run that asked for the next message ends first.
                self.awaits_idle = !is_idle;
                self.text_question = None;
                Ok(())
            }
            // Another change, such as that of the mode, is not done yet; its end is an update.
            Err(Rejected::Busy) => {
                self.wanted_model = Some(model);
                Ok(())
            }
            Err(rejected) => Err(rejected),
        }
    }

    fn describe_servers(&self) -> Value {
        let statuses = self
            .live
            .as_ref()
            .map(|live| live.session.handle().server_statuses())
            .unwrap_or_default();
        let servers: Vec<_> = statuses
            .iter()
            .map(|status| {
                // The SDK knows these two words among others.
                let state = match status.tools.is_empty() {
                    true => "pending",
                    false => "connected",
                };
                json!({"name": status.name, "status": state})
            })
            .collect();
        json!({"mcpServers": servers})
    }

    /// Handles the program's answer to a question. Only a clear yes to exactly what was shown is a yes.
    fn handle_response(&mut self, response: &Value) {
        let id = value_at(response, "/request_id")
            .as_str()
            .unwrap_or_default();
        if self.channel.resolve(id, response) {
            return;
        }
        // An answer to nothing, or a second one, has no effect.
        let Some(asked) = self.asked.remove(id) else {
            return;
        };
        let answer = value_at(response, "/response");
        let is_allowed =
            value_at(response, "/subtype") == "success" && value_at(answer, "/behavior") == "allow";
        let given = answer.get("updatedInput").filter(|input| !input.is_null());
        let request = asked.request;
        let (proposals, suggestions) = match asked.subject {
            AskedSubject::Call {
                proposals,
                suggestions,
            } => (proposals, suggestions),
            AskedSubject::Question => {
                // The key of the answer is the question as the program has seen it.
                let question = value_at(&asked.input, "/questions/0/question").as_str();
                let answers = given.map(|input| value_at(input, "/answers"));
                let text = answers.and_then(|answers| answers.get(question?)?.as_str());
                let decision = match text.filter(|_| is_allowed) {
                    Some(text) => Decision::Text {
                        text: text.to_owned(),
                        images: Vec::new(),
                    },
                    None => Decision::Deny {
                        reason: denial_reason(response),
                    },
                };
                _ = self.submit(Command::Answer { request, decision });
                return;
            }
        };
        if is_allowed && given.is_none_or(|input| *input == asked.input) {
            let is_suggested =
                *value_at(answer, "/updatedPermissions") == suggestions && !proposals.is_empty();
            let decision = match is_suggested {
                true => Decision::AllowAlways {
                    rules: proposals
                        .into_iter()
                        .map(|proposal| proposal.rule)
                        .collect(),
                },
                false => Decision::Allow,
            };
            _ = self.submit(Command::Answer { request, decision });
            return;
        }
        let reason = match given.filter(|_| is_allowed) {
            // What was approved is another call than the model's, and nobody has checked that one.
            Some(input) => format!(
                "The user wants other arguments, in the names of Claude Code: {input}. Call again with them."
            ),
            None => denial_reason(response),
        };
        self.deny(request, &reason);
        if value_at(answer, "/interrupt").as_bool() == Some(true) {
            self.interrupt();
        }
    }

    /// Begins the turn of the next message, unless one is worked on.
    async fn begin_next_turn(&mut self) {
        while self.turn.is_none()
            && !self.awaits_idle
            && self.wanted_model.is_none()
            && let Some(message) = self.queue.pop_front()
        {
            self.turn = Some(Turn {
                began_at: (self.host.environment().clock)(),
                answers: 0,
                is_interrupted: false,
            });
            // The result of a turn tells of this turn alone.
            self.denials.clear();
            self.last_text.clear();
            self.last_stop = None;
            let begun = match message {
                Ok(message) => self
                    .begin_turn(message)
                    .await
                    .map_err(|error| error.to_string()),
                Err(reason) => Err(format!("the message was not sent: {reason}")),
            };
            if let Err(reason) = begun {
                self.end_turn(TurnResult::failed(reason));
            }
        }
    }

    async fn begin_turn(&mut self, message: UserMessage) -> Result<(), SessionError> {
        if !std::mem::replace(&mut self.is_announced, true) {
            self.names
                .servers
                .extend(self.program_servers.iter().cloned());
            self.announce();
        }
        if self.live.is_some() {
            self.send_message(message);
            return Ok(());
        }
        let servers = std::mem::take(&mut self.program_servers);
        // Two ids hold more random bits than anyone can guess in the life of a task.
        let token = format!("{}{}", self.host.new_task_id(), self.host.new_task_id());
        let served = serve_program_servers(&servers, &token, &self.channel).await;
        let served = served.map_err(|error| {
            SessionError::invalid(format!(
                "the program's MCP servers cannot be reached: {error}"
            ))
        })?;
        self.spec.mcp_servers.extend(served);
        let host = self.host.clone();
        let spec = self.spec.clone();
        let task = self.task.clone();
        let is_stored = self.is_stored;
        let interrupted = self.interrupted_start.take();
        // In a separate task: the session waits for hooks and servers of the program, whose replies
        // the input loop reads.
        self.starting = Some(tokio::spawn(async move {
            // It may have created the journal or the whole session before it was stopped, and must
            // release them first.
            let was_interrupted = interrupted.is_some();
            if let Some(interrupted) = interrupted {
                drop(interrupted.await);
            }
            let has_journal = is_stored || was_interrupted && host.read_records(&task).is_ok();
            if !has_journal {
                return Ok((host.start_with_id(task, spec, message).await?, 0));
            }
            let known = host.read_records(&task)?.len();
            let session = host.load(&task, spec, Some(message)).await?;
            Ok((session, known))
        }));
        Ok(())
    }

    /// Takes a session that has started.
    fn handle_started(&mut self, started: Result<(Session, usize), SessionError>) {
        self.starting = None;
        match started {
            Ok((session, known)) => {
                self.is_stored = true;
                // From now on the records of the task know its mode.
                self.spec.mode = None;
                if let Some(mode) = self.wanted_mode.take() {
                    // The program was told that it is set.
                    _ = session.submit(Command::SetMode { mode });
                }
                let updates = session.subscribe();
                self.live = Some(LiveTask {
                    session,
                    updates,
                    known,
                });
            }
            Err(error) => {
                // The next start has what was asked for meanwhile.
                self.wanted_model = None;
                self.wanted_mode = None;
                self.end_turn(TurnResult::failed(error.to_string()));
            }
        }
    }

    /// Prints the message that begins a session.
    fn announce(&self) {
        let folder = self.spec.workspace.as_deref().unwrap_or(Path::new("."));
        // Programs compare it with the folder that they have given, which may be a link.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let servers: Vec<_> = self
            .names
            .servers
            .iter()
            .map(|name| json!({"name": name, "status": "pending"}))
            .collect();
        let mode = match self.spec.mode.as_deref() {
            Some("plan") => "plan",
            _ => "default",
        };
        self.print(json!({
            "type": "system", "subtype": "init", "cwd": folder.display().to_string(), "tools": [],
            "mcp_servers": servers, "model": self.model.name, "permissionMode": mode,
            "apiKeySource": "user", "slash_commands": [], "agents": [], "skills": [], "plugins": [],
            "output_style": "default", "claude_code_version": env!("CARGO_PKG_VERSION"),
        }));
    }

    /// Sends a message to a task that waits for one.
    fn send_message(&mut self, message: UserMessage) {
        let sent = match self.text_question.take() {
            Some(request) => {
                let UserMessage { text, images } = message;
                let decision = Decision::Text { text, images };
                self.submit(Command::Answer { request, decision })
            }
            None => {
                let delivery = Delivery::Queue;
                self.submit(Command::Send { message, delivery })
            }
        };
        if let Err(rejected) = sent {
            let text = format!("the message cannot be sent: {rejected}");
            self.end_turn(TurnResult::failed(text));
        }
    }

    async fn handle_update(&mut self, update: Option<SessionUpdate>) {
        match update {
            None => {
                self.live = None;
                self.asked.clear();
                self.text_question = None;
                self.awaits_idle = false;
                // The next run begins with it.
                self.wanted_model = None;
                // A session that ends without its state has failed.
                self.end_turn(TurnResult::failed("the session has ended".to_owned()));
            }
            Some(SessionUpdate::Snapshot(snapshot)) => {
                let known = self.live.as_ref().map_or(0, |live| live.known);
                for record in snapshot.records.iter().skip(known) {
                    self.handle_record(None, record);
                }
                snapshot.notices.iter().for_each(print::print_notice);
                for (request, question) in snapshot.requests {
                    self.handle_question(None, request, question);
                }
                self.handle_state(&snapshot.state);
            }
            Some(SessionUpdate::Event(event)) => self.handle_event(&event),
        }
        if let Err(rejected) = self.apply_model() {
            warn(&format!("the model cannot be changed: {rejected}"));
        }
        self.begin_next_turn().await;
    }

    fn handle_event(&mut self, event: &SessionEvent) {
        let subtask = event.subtask.as_ref();
        match &event.kind {
            SessionEventKind::Record(record) => self.handle_record(subtask, record),
            // Asked again after an answer that broke off: what was shown of that one is over.
            SessionEventKind::Asking { .. } if subtask.is_none() => {
                let events = self.partial.abandon();
                self.print_partial(events);
            }
            SessionEventKind::Delta(piece) if subtask.is_none() => self.handle_piece(piece),
            SessionEventKind::Request { request, question } => {
                self.handle_question(subtask, request.clone(), question.clone());
            }
            SessionEventKind::RequestClosed { request, .. } => self.withdraw(request),
            SessionEventKind::Notice(notice) => print::print_notice(notice),
            SessionEventKind::State(state) => self.handle_state(state),
            _ => {}
        }
    }

    fn handle_piece(&mut self, piece: &StreamEvent) {
        if self.prints_partial_messages {
            let events = self.partial.add_piece(piece, &self.model.name);
            self.print_partial(events);
        }
    }

    fn print_partial(&self, events: Vec<Value>) {
        for event in events {
            self.print(json!({"type": "stream_event", "parent_tool_use_id": null, "event": event}));
        }
    }

    /// Tells the program that a question needs no answer any more.
    fn withdraw(&mut self, request: &RequestId) {
        if self.text_question.as_ref() == Some(request) {
            self.text_question = None;
        }
        let withdrawn = self
            .asked
            .extract_if(|_, asked| asked.request == *request)
            .map(|(id, _)| id);
        for id in withdrawn {
            ControlChannel::cancel(&id);
        }
    }

    fn handle_record(&mut self, subtask: Option<&Arc<SubtaskLabel>>, record: &Record) {
        let label = subtask.map(|label| &**label);
        let task = label.map(|label| label.task.clone());
        self.totals.add_record(record);
        match record {
            Record::Answered(turn) => {
                for part in &turn.parts {
                    match part {
                        MessagePart::Call(call) => {
                            let key = (task.clone(), call.id.clone());
                            self.calls.insert(key, call.clone());
                        }
                        MessagePart::Text { text } if label.is_none() => {
                            self.last_text.clone_from(text);
                        }
                        _ => {}
                    }
                }
                // Before the calls are named, since some may be of these servers.
                self.add_configured_servers();
                if label.is_none() {
                    self.last_stop = turn.stop;
                    if let Some(turn) = &mut self.turn {
                        turn.answers += 1;
                    }
                    if self.prints_partial_messages {
                        let events = self.partial.finish(turn, &self.model.name, &self.names);
                        self.print_partial(events);
                    }
                }
                self.print(assistant_message(
                    turn,
                    &self.model.name,
                    &self.names,
                    label,
                ));
            }
            Record::Result(result) => {
                let call = self.calls.remove(&(task, result.id.clone()));
                // Also those that a rule or a mode has denied without a question.
                if result.ending == ToolResultStatus::Denied
                    && let Some(call) = call
                {
                    let NamedCall { name, input } = self.names.name_call(&call);
                    self.denials.push(json!({
                        "tool_name": name, "tool_use_id": call.id, "tool_input": input,
                    }));
                }
                self.print(result_message(result, label));
            }
            _ => {}
        }
    }

    /// Adds the servers of the configuration and the folder, which are known once the session runs.
    fn add_configured_servers(&mut self) {
        if let Some(live) = &self.live {
            let statuses = live.session.handle().server_statuses();
            let names = statuses.into_iter().map(|status| status.name);
            self.names.servers.extend(names);
        }
    }

    fn handle_question(
        &mut self,
        subtask: Option<&Arc<SubtaskLabel>>,
        request: RequestId,
        question: UserQuestion,
    ) {
        let can_ask = self.has_permission_callback && !self.is_ended;
        match question {
            UserQuestion::Approval {
                call,
                reason,
                proposals,
                subject,
                ..
            } => {
                let key = (subtask.map(|label| label.task.clone()), call.clone());
                // A call that was not printed could not be shown as it is.
                let Some(known) = self.calls.get(&key).filter(|_| can_ask) else {
                    return self.deny(
                        request,
                        "nobody can be asked: the program has no permission callback",
                    );
                };
                let NamedCall { name, input } = self.names.name_call(known);
                let suggestions = suggest_rules(&proposals);
                let asked = json!({
                    "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": call,
                    "permission_suggestions": suggestions, "decision_reason": reason, "description": subject,
                });
                let subject = AskedSubject::Call {
                    proposals,
                    suggestions,
                };
                self.ask(request, &asked, subject);
            }
            UserQuestion::Followup {
                call,
                question,
                options,
            } if can_ask => {
                let options: Vec<_> = options
                    .iter()
                    .map(|option| json!({"label": option, "description": ""}))
                    .collect();
                let asked = json!({
                    "subtype": "can_use_tool", "tool_name": "AskUserQuestion", "tool_use_id": call,
                    "input": {"questions": [{
                        "question": question, "header": "Question", "options": options, "multiSelect": false,
                    }]},
                });
                self.ask(request, &asked, AskedSubject::Question);
            }
            // A question of a subtask, which a message for the task would not answer.
            _ if subtask.is_some() => self.deny(request, "nobody can be asked: decide yourself"),
            UserQuestion::Followup { question, .. } => {
                self.end_turn_with_question(request, "success", question)
            }
            UserQuestion::Completion { result, .. } => {
                self.end_turn_with_question(request, "success", result)
            }
            UserQuestion::Next { reason } if reason.is_empty() => {
                let text = self.last_text.clone();
                self.end_turn_with_question(request, "success", text);
            }
            UserQuestion::Next { reason } => {
                self.end_turn_with_question(request, "error_during_execution", reason);
            }
            // An unknown question has no safe answer but a no.
            _ => self.deny(request, "the question is not supported"),
        }
    }

    fn ask(&mut self, request: RequestId, asked: &Value, subject: AskedSubject) {
        let id = self.channel.send(asked);
        // The program sees the input without secrets, and returns what it saw.
        let shown = redact::redact_json(&value_at(asked, "/input").to_string()).into_owned();
        let asked = AskedQuestion {
            request,
            input: serde_json::from_str(&shown).unwrap_or_default(),
            subject,
        };
        self.asked.insert(id, asked);
    }

    /// Ends the turn: the next message answers the question.
    fn end_turn_with_question(&mut self, request: RequestId, subtype: &'static str, text: String) {
        self.text_question = Some(request);
        self.end_turn(TurnResult {
            subtype,
            text,
            stop: stop_reason(self.last_stop),
        });
    }

    fn handle_state(&mut self, state: &SessionState) {
        match state {
            SessionState::Idle(end) => {
                self.text_question = None;
                self.awaits_idle = false;
                // A task that was loaded again, with another model, reports once more that it is
                // idle, even if a message arrived meanwhile.
                let live = self.live.as_ref();
                if live.is_none_or(|live| live.session.handle().is_idle()) {
                    self.end_turn(TurnResult::from_task_end(end));
                }
            }
            SessionState::Ended(end) => {
                self.text_question = None;
                self.awaits_idle = false;
                self.end_turn(TurnResult::from_task_end(end));
            }
            _ => {}
        }
    }

    /// Prints the result of the turn, if there is one.
    fn end_turn(&mut self, result: TurnResult) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        // Otherwise an interrupted answer has no end, and readers of its blocks would wait for it.
        let events = self.partial.abandon();
        self.print_partial(events);
        let now = (self.host.environment().clock)();
        let time = now.duration_since(turn.began_at).unwrap_or_default();
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let subtype = match turn.is_interrupted {
            true => "error_during_execution",
            false => result.subtype,
        };
        let is_error = subtype != "success";
        self.has_failed = is_error;
        let errors = match (is_error, turn.is_interrupted) {
            (false, _) => Vec::new(),
            (true, true) => vec!["the turn was interrupted".to_owned()],
            (true, false) => vec![result.text.clone()],
        };
        // Of the whole session, as the SDK documents them.
        let cost = self.cost();
        let usage = usage_json(&self.totals.usage);
        let mut models = Map::new();
        models.insert(
            self.model.name.clone(),
            json!({
                "inputTokens": value_at(&usage, "/input_tokens"), "outputTokens": value_at(&usage, "/output_tokens"),
                "cacheReadInputTokens": value_at(&usage, "/cache_read_input_tokens"),
                "cacheCreationInputTokens": value_at(&usage, "/cache_creation_input_tokens"),
                "webSearchRequests": 0, "costUSD": cost, "contextWindow": self.model.window.unwrap_or(0),
                "maxOutputTokens": 0,
            }),
        );
        let mut message = json!({
            "type": "result", "subtype": subtype, "is_error": is_error, "duration_ms": milliseconds,
            "duration_api_ms": 0, "num_turns": turn.answers, "stop_reason": result.stop,
            "total_cost_usd": cost, "usage": usage, "modelUsage": models,
            "permission_denials": self.denials, "errors": errors,
        });
        if let Some(fields) = message.as_object_mut().filter(|_| !is_error) {
            fields.insert("result".to_owned(), json!(result.text));
        }
        self.print(message);
    }

    /// Returns the cost in US dollars, as far as prices are known.
    fn cost(&self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "billionths are exact in a float up to nine million dollars"
        )]
        let dollars = self.totals.cost.known.as_nanos() as f64 / 1e9;
        dollars
    }
}

/// Returns rules as the suggestions of a permission request. A program that returns exactly these approves the rules.
fn suggest_rules(proposals: &[RuleProposal]) -> Value {
    if proposals.is_empty() {
        return json!([]);
    }
    let rules: Vec<_> = proposals
        .iter()
        .map(|proposal| json!({"toolName": "sabir", "ruleContent": proposal.rule}))
        .collect();
    json!([{"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}])
}

/// Returns the reason of a no: the program's own, or that its callback failed.
fn denial_reason(response: &Value) -> String {
    if value_at(response, "/subtype") == "success" {
        return value_at(response, "/response/message")
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    let error = value_at(response, "/error")
        .as_str()
        .unwrap_or("without a reason");
    format!("the program's permission callback failed: {error}")
}

/// Parses the content of a message: a text, or blocks of text and images.
fn parse_message(content: &Value) -> Result<UserMessage, MessageError> {
    let mut message = UserMessage::default();
    match content {
        Value::String(text) => message.text.clone_from(text),
        Value::Array(blocks) => {
            for block in blocks {
                match value_at(block, "/type").as_str() {
                    Some("text") => {
                        // Blocks are paragraphs to the programs that write them.
                        if !message.text.is_empty() {
                            message.text.push('\n');
                        }
                        message
                            .text
                            .push_str(value_at(block, "/text").as_str().unwrap_or_default());
                    }
                    Some("image") => {
                        let source = value_at(block, "/source");
                        let text = |name: &str| {
                            source
                                .get(name)
                                .and_then(Value::as_str)
                                .unwrap_or_default()
                                .to_owned()
                        };
                        let image = ImageInput::Data {
                            media_type: text("media_type"),
                            data: text("data"),
                        };
                        let image = image.decode_image()?;
                        message.images.push(image);
                    }
                    _ => return Err(MessageError::Block),
                }
            }
        }
        _ => return Err(MessageError::NoContent),
    }
    if message.text.trim().is_empty() && message.images.is_empty() {
        return Err(MessageError::Empty);
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_text_and_images() {
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(parse_message(&blocks).unwrap().text, "a\nb");
        assert_eq!(parse_message(&json!("a")).unwrap().text, "a");
        for wrong in [
            json!(""),
            json!([]),
            json!(null),
            json!([{"type": "document"}]),
            json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!"}}]),
        ] {
            assert!(parse_message(&wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_line_is_read_across_dropped_futures() {
        let (mut writer, reader) = tokio::io::duplex(8);
        let mut input = tokio::io::BufReader::new(reader);
        let mut line = Vec::new();
        use tokio::io::AsyncWriteExt;
        writer.write_all(b"{\"a\"").await.unwrap();
        let pending = futures_util::FutureExt::now_or_never(read_line(&mut input, &mut line));
        assert_eq!(pending, None);
        writer.write_all(b": 1}\n").await.unwrap();
        assert_eq!(read_line(&mut input, &mut line).await, LineRead::Line);
        assert_eq!(line, b"{\"a\": 1}\n");
        line.clear();
        drop(writer);
        assert_eq!(read_line(&mut input, &mut line).await, LineRead::End);
    }
}
