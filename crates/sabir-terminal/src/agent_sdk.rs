//! Serves programs that are written for the Claude Agent SDK: its messages as JSON lines, and the public part of its control protocol.
//!
//! A message of the program is a turn, and each turn ends with one `result`. Calls that no rule decides are asked about with
//! `can_use_tool`, if the program has a callback; otherwise they are denied. What is no clear yes to exactly the call that was shown is a no.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use sabir_session::agent::{Record, TaskId, UserQuestion};
use sabir_session::call::{Call, CallId, MessagePart, StopReason};
use sabir_session::pictures::ImageInput;
use sabir_session::{
    Command, CompletionSpec, Decision, Delivery, Host, Interactivity, RequestId, Session,
    SessionError, SessionEventKind, SessionSpec, SessionState, SessionUpdate, StreamEvent,
    SubtaskLabel, Subscription, TaskLookup, UserMessage,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, Lines};

use crate::print;
use arguments::ResumedTask;
use messages::{
    NamedCall, TurnResult, assistant_message, end_result, name_call, parent_id, result_message,
    usage_json,
};

pub use arguments::{SdkArgumentError, SdkArguments};

mod arguments;
mod messages;

/// Serves a program over lines of JSON until its input ends and its last turn is done. `spec` holds what the command line does not set.
/// Returns false if the last turn failed.
///
/// # Errors
/// When the configuration or the task cannot be used.
pub async fn serve_sdk(
    host: &Host,
    arguments: SdkArguments,
    input: impl AsyncBufRead + Unpin,
) -> Result<bool, SessionError> {
    for flag in &arguments.ignored {
        if flag != "verbose" {
            print::write_stderr(&print::sanitize_text(&format!(
                "sabir: --{flag} does nothing here\n"
            )));
        }
    }
    let spec = SessionSpec {
        interactivity: Interactivity::Interactive,
        completion: CompletionSpec {
            review: Some(false),
            ..CompletionSpec::default()
        },
        ..arguments.spec.clone()
    };
    let mut server = SdkServer::new(host, spec, &arguments)?;
    if !arguments.prompt.trim().is_empty() {
        server.queue.push_back(UserMessage::from_text(&arguments.prompt));
    }
    let mut lines = arguments.reads_stream.then(|| input.lines());
    server.is_ended = lines.is_none();
    server.begin_next_turn().await?;
    while !(server.is_ended && server.turn.is_none()) {
        tokio::select! {
            line = next_line(&mut lines) => match line {
                Some(line) => server.handle_line(&line).await?,
                None => {
                    lines = None;
                    server.end_input();
                }
            },
            update = next_update(&mut server.live) => server.handle_update(update).await?,
        }
    }
    if let Some(live) = server.live.take() {
        drop(live.updates);
        _ = live.session.submit(Command::End);
        live.session.wait().await?;
    }
    Ok(!server.has_failed)
}

async fn next_line(lines: &mut Option<Lines<impl AsyncBufRead + Unpin>>) -> Option<String> {
    match lines {
        // An input that cannot be read has ended.
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

async fn next_update(live: &mut Option<LiveTask>) -> Option<SessionUpdate> {
    match live {
        Some(live) => live.updates.next().await,
        None => std::future::pending().await,
    }
}

struct LiveTask {
    session: Session,
    updates: Subscription,
    /// The number of records in the snapshot that were printed before, or belong to an earlier process.
    known: usize,
}

/// A message that is worked on.
struct Turn {
    since: SystemTime,
    answers: u32,
    is_interrupted: bool,
}

/// A call that the program is asked about.
struct AskedCall {
    request: RequestId,
    input: Value,
}

/// The state of one connection.
struct SdkServer<'a> {
    host: &'a Host,
    spec: SessionSpec,
    task: TaskId,
    is_stored: bool,
    asks: bool,
    partial: bool,
    model: String,
    live: Option<LiveTask>,
    queue: VecDeque<UserMessage>,
    turn: Option<Turn>,
    text_question: Option<RequestId>,
    /// The questions that were sent, by the ids of their control requests.
    asked: HashMap<String, AskedCall>,
    requests: u64,
    /// The calls of the last answers, by task and id.
    calls: HashMap<(Option<TaskId>, CallId), Call>,
    denials: Vec<Value>,
    last_text: String,
    last_stop: Option<StopReason>,
    totals: sabir_session::agent::UsageTotals,
    is_ended: bool,
    has_begun: bool,
    has_failed: bool,
}

impl<'a> SdkServer<'a> {
    fn new(
        host: &'a Host,
        spec: SessionSpec,
        arguments: &SdkArguments,
    ) -> Result<Self, SessionError> {
        let found = match &arguments.resumed {
            None => None,
            Some(resumed) => {
                let lookup = TaskLookup::open(host.environment(), None)?;
                Some(match resumed {
                    ResumedTask::Named(name) => lookup.find(Some(name))?,
                    ResumedTask::Newest => lookup.newest(false)?,
                })
            }
        };
        let found = match found {
            Some(task) if arguments.forks => Some(host.fork(&task, None, &spec)?),
            found => found,
        };
        let records = found.as_ref().map(|task| host.read_records(task));
        let records = records.transpose()?.unwrap_or_default();
        let choices = host.session_choices(&spec, &records)?;
        let is_stored = found.is_some();
        let named = arguments.session_id.clone().map(TaskId::new);
        let task = found.or(named).unwrap_or_else(|| host.new_task_id());
        Ok(Self {
            host,
            spec,
            task,
            is_stored,
            asks: arguments.asks,
            partial: arguments.partial,
            model: choices.model.name,
            live: None,
            queue: VecDeque::new(),
            turn: None,
            text_question: None,
            asked: HashMap::new(),
            requests: 0,
            calls: HashMap::new(),
            denials: Vec::new(),
            last_text: String::new(),
            last_stop: None,
            totals: sabir_session::agent::UsageTotals::default(),
            is_ended: false,
            has_begun: false,
            has_failed: false,
        })
    }

    /// Prints a message with the id of the session and its own.
    fn print(&self, mut message: Value) {
        if let Some(fields) = message.as_object_mut() {
            let uuid = self.host.new_task_id();
            fields.insert("session_id".to_owned(), json!(self.task));
            fields.insert("uuid".to_owned(), json!(uuid));
        }
        print::print_redacted_json(&message);
    }

    fn submit(&self, command: Command) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| live.session.submit(command).is_ok())
    }

    /// Notes the end of the input: nobody can be asked any more, and the turns that are left are done.
    fn end_input(&mut self) {
        self.is_ended = true;
        for (_, asked) in std::mem::take(&mut self.asked) {
            self.deny(asked.request, "the program has closed its input");
        }
    }

    fn deny(&self, request: RequestId, reason: &str) {
        let reason = reason.to_owned();
        let decision = Decision::Deny { reason };
        _ = self.submit(Command::Answer { request, decision });
    }

    async fn handle_line(&mut self, line: &str) -> Result<(), SessionError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            print::write_stderr("sabir: a line of the input is no JSON, and was left out\n");
            return Ok(());
        };
        match message["type"].as_str() {
            Some("user") => match read_message(&message["message"]["content"]) {
                Ok(message) => {
                    self.queue.push_back(message);
                    self.begin_next_turn().await?;
                }
                Err(reason) => print::write_stderr(&print::sanitize_text(&format!(
                    "sabir: a message was not sent: {reason}\n"
                ))),
            },
            Some("control_request") => self.handle_request(&message),
            Some("control_response") => self.handle_response(&message["response"]),
            _ => {}
        }
        Ok(())
    }

    /// Answers a request of the program.
    fn handle_request(&mut self, message: &Value) {
        let request = &message["request"];
        let answer = match request["subtype"].as_str().unwrap_or_default() {
            "initialize" => self.initialize(request),
            "interrupt" => {
                if let Some(turn) = &mut self.turn {
                    turn.is_interrupted = true;
                }
                self.queue.clear();
                self.submit(Command::Interrupt);
                Ok(json!({}))
            }
            "set_permission_mode" if request["mode"] == "plan" => self.set_mode("plan"),
            "set_permission_mode" if request["mode"] == "default" => self.set_mode("code"),
            "mcp_status" => Ok(json!({"mcpServers": []})),
            other => Err(format!("`{other}` is not supported")),
        };
        let id = &message["request_id"];
        let response = match answer {
            Ok(response) => json!({"subtype": "success", "request_id": id, "response": response}),
            Err(error) => json!({"subtype": "error", "request_id": id, "error": error}),
        };
        print::print_redacted_json(&json!({"type": "control_response", "response": response}));
    }

    fn initialize(&self, request: &Value) -> Result<Value, String> {
        let hooks = request["hooks"].as_object();
        if hooks.is_some_and(|hooks| !hooks.is_empty()) {
            // A guard that never runs is worse than none.
            return Err("hooks are not supported: use canUseTool, or rules in config.toml".to_owned());
        }
        let model = json!({"value": self.model, "displayName": self.model, "description": ""});
        Ok(json!({
            "commands": [], "output_style": "default", "available_output_styles": ["default"],
            "models": [model], "account": {}, "agents": [],
        }))
    }

    fn set_mode(&mut self, mode: &str) -> Result<Value, String> {
        self.spec.mode = Some(mode.to_owned());
        if self.live.is_some() {
            let mode = mode.to_owned();
            self.submit(Command::SetMode { mode });
        }
        Ok(json!({}))
    }

    /// Takes the program's answer to a question about a call.
    fn handle_response(&mut self, response: &Value) {
        let id = response["request_id"].as_str().unwrap_or_default();
        // An answer to nothing, or a second one, has no effect.
        let Some(AskedCall { request, input }) = self.asked.remove(id) else {
            return;
        };
        let answer = &response["response"];
        let is_allowed = response["subtype"] == "success" && answer["behavior"] == "allow";
        let changed = answer.get("updatedInput").filter(|new| !new.is_null());
        if is_allowed && changed.is_none_or(|new| *new == input) {
            let decision = Decision::Allow;
            self.submit(Command::Answer { request, decision });
            return;
        }
        let reason = if is_allowed {
            // What was approved is another call than the model's, and that one is not to run.
            "the program wants other arguments, which Sabir does not change: call the tool with them"
        } else {
            answer["message"].as_str().unwrap_or_default()
        };
        self.deny(request, reason);
        if answer["interrupt"] == true {
            self.submit(Command::Interrupt);
        }
    }

    async fn begin_next_turn(&mut self) -> Result<(), SessionError> {
        if self.turn.is_some() {
            return Ok(());
        }
        let Some(message) = self.queue.pop_front() else {
            return Ok(());
        };
        self.turn = Some(Turn {
            since: (self.host.environment().clock)(),
            answers: 0,
            is_interrupted: false,
        });
        self.denials.clear();
        self.last_text.clear();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.print(json!({
                "type": "system", "subtype": "init", "cwd": self.folder(), "tools": [], "mcp_servers": [],
                "model": self.model, "permissionMode": "default", "apiKeySource": "user",
                "slash_commands": [], "agents": [], "skills": [], "plugins": [], "output_style": "default",
                "claude_code_version": env!("CARGO_PKG_VERSION"),
            }));
        }
        if self.live.is_some() {
            self.send_message(message);
            return Ok(());
        }
        let spec = self.spec.clone();
        let (session, known) = if self.is_stored {
            let known = self.host.read_records(&self.task)?.len();
            let session = self.host.load(&self.task, spec, Some(message)).await?;
            (session, known)
        } else {
            let task = self.task.clone();
            (self.host.start_as(task, spec, message).await?, 0)
        };
        self.is_stored = true;
        let updates = session.subscribe();
        self.live = Some(LiveTask {
            session,
            updates,
            known,
        });
        Ok(())
    }

    fn folder(&self) -> String {
        let folder = self.spec.workspace.as_deref();
        let folder = folder.unwrap_or_else(|| std::path::Path::new("."));
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        real.display().to_string()
    }

    /// Sends a message to a task that waits for one.
    fn send_message(&mut self, message: UserMessage) {
        if let Some(request) = self.text_question.take() {
            let decision = Decision::Text {
                text: message.text.clone(),
                images: message.images.clone(),
            };
            if self.submit(Command::Answer { request, decision }) {
                return;
            }
        }
        let delivery = Delivery::Queue;
        if !self.submit(Command::Send { message, delivery }) {
            self.end_turn(TurnResult {
                subtype: "error_during_execution",
                text: "the message cannot be sent".to_owned(),
                stop: "end_turn",
            });
        }
    }

    async fn handle_update(&mut self, update: Option<SessionUpdate>) -> Result<(), SessionError> {
        match update {
            None => {
                self.live = None;
                self.asked.clear();
                self.text_question = None;
            }
            Some(SessionUpdate::Snapshot(snapshot)) => {
                let known = self.live.as_ref().map_or(0, |live| live.known);
                for record in snapshot.records.iter().skip(known) {
                    self.handle_record(None, record);
                }
                for (request, question) in snapshot.requests {
                    self.handle_question(None, request, question);
                }
                self.handle_state(&snapshot.state);
            }
            Some(SessionUpdate::Event(event)) => {
                let subtask = event.subtask.as_ref();
                match &event.kind {
                    SessionEventKind::Record(record) => self.handle_record(subtask, record),
                    SessionEventKind::Delta(StreamEvent::Text { text }) if self.partial => {
                        let delta = json!({"type": "text_delta", "text": text});
                        self.print(json!({
                            "type": "stream_event", "parent_tool_use_id": parent_id(subtask.map(|label| &**label)),
                            "event": {"type": "content_block_delta", "index": 0, "delta": delta},
                        }));
                    }
                    SessionEventKind::Request { request, question } => {
                        self.handle_question(subtask, request.clone(), question.clone());
                    }
                    SessionEventKind::RequestClosed { request, .. } => self.withdraw(request),
                    SessionEventKind::State(state) => self.handle_state(state),
                    _ => {}
                }
            }
        }
        self.begin_next_turn().await
    }

    /// Tells the program that a question needs no answer any more.
    fn withdraw(&mut self, request: &RequestId) {
        if self.text_question.as_ref() == Some(request) {
            self.text_question = None;
        }
        let ids = self.asked.iter().filter(|(_, asked)| asked.request == *request);
        let ids: Vec<_> = ids.map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.asked.remove(&id);
            print::print_redacted_json(&json!({"type": "control_cancel_request", "request_id": id}));
        }
    }

    fn handle_record(&mut self, subtask: Option<&Arc<SubtaskLabel>>, record: &Record) {
        let of_task = subtask.map(|label| label.task.clone());
        let label = subtask.map(|label| &**label);
        self.totals.add_record(record);
        match record {
            Record::Answered(turn) => {
                for part in &turn.parts {
                    match part {
                        MessagePart::Call(call) => {
                            let key = (of_task.clone(), call.id.clone());
                            self.calls.insert(key, call.clone());
                        }
                        MessagePart::Text { text } if label.is_none() => {
                            self.last_text.clone_from(text);
                        }
                        _ => {}
                    }
                }
                if label.is_none() {
                    self.last_stop = turn.stop;
                    if let Some(turn) = &mut self.turn {
                        turn.answers += 1;
                    }
                }
                self.print(assistant_message(turn, &self.model, label));
            }
            Record::Result(result) => {
                let call = self.calls.remove(&(of_task, result.id.clone()));
                if result.ending == sabir_session::call::ToolResultStatus::Denied
                    && let Some(call) = &call
                {
                    let NamedCall { name, input } = name_call(call);
                    self.denials.push(json!({
                        "tool_name": name, "tool_use_id": call.id, "tool_input": input,
                    }));
                }
                self.print(result_message(result, label));
            }
            _ => {}
        }
    }

    fn handle_question(
        &mut self,
        subtask: Option<&Arc<SubtaskLabel>>,
        request: RequestId,
        question: UserQuestion,
    ) {
        let UserQuestion::Approval { call, .. } = &question else {
            return self.ask_for_text(request, &question);
        };
        let key = (subtask.map(|label| label.task.clone()), call.clone());
        let known = self.calls.get(&key).filter(|_| self.asks && !self.is_ended);
        let Some(known) = known else {
            return self.deny(request, "nobody can be asked");
        };
        let NamedCall { name, input } = name_call(known);
        self.requests += 1;
        let id = format!("sabir-{}", self.requests);
        print::print_redacted_json(&json!({
            "type": "control_request", "request_id": id,
            "request": {
                "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": call,
                "permission_suggestions": [], "blocked_path": null,
            },
        }));
        self.asked.insert(id, AskedCall { request, input });
    }

    /// Ends the turn: the next message is the answer.
    fn ask_for_text(&mut self, request: RequestId, question: &UserQuestion) {
        let text = match question {
            UserQuestion::Followup { question, .. } => question.clone(),
            UserQuestion::Next { reason } if !reason.is_empty() => reason.clone(),
            _ => self.last_text.clone(),
        };
        self.text_question = Some(request);
        let stop = match self.last_stop {
            Some(StopReason::Length) => "max_tokens",
            Some(StopReason::Refused) => "refusal",
            _ => "end_turn",
        };
        self.end_turn(TurnResult {
            subtype: "success",
            text,
            stop,
        });
    }

    fn handle_state(&mut self, state: &SessionState) {
        match state {
            SessionState::Idle(end) => {
                self.text_question = None;
                self.end_turn(end_result(end));
            }
            SessionState::Ended(end) => self.end_turn(end_result(end)),
            _ => {}
        }
    }

    /// Prints the result of a turn.
    fn end_turn(&mut self, result: TurnResult) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let now = (self.host.environment().clock)();
        let time = now.duration_since(turn.since).unwrap_or_default();
        let is_error = result.subtype != "success";
        self.has_failed = is_error;
        let known = !self.totals.cost.is_unknown();
        let nanos = self.totals.cost.known.as_nanos();
        #[expect(
            clippy::cast_precision_loss,
            reason = "billionths are exact in a float up to nine million dollars"
        )]
        let cost = known.then(|| nanos as f64 / 1e9);
        let errors = if is_error { vec![result.text.clone()] } else { Vec::new() };
        let mut message = json!({
            "type": "result", "subtype": result.subtype, "is_error": is_error,
            "duration_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX), "duration_api_ms": 0,
            "num_turns": turn.answers, "stop_reason": result.stop, "total_cost_usd": cost.unwrap_or(0.0),
            "usage": usage_json(&self.totals.usage), "modelUsage": {}, "permission_denials": self.denials,
            "errors": errors,
        });
        if let Some(fields) = message.as_object_mut().filter(|_| !is_error) {
            fields.insert("result".to_owned(), json!(result.text));
        }
        if turn.is_interrupted && let Some(fields) = message.as_object_mut() {
            fields.insert("terminal_reason".to_owned(), json!("aborted_streaming"));
        }
        self.print(message);
    }
}

/// Reads the content of a message: a text, or blocks of text and images.
fn read_message(content: &Value) -> Result<UserMessage, String> {
    let mut message = UserMessage::default();
    match content {
        Value::String(text) => message.text.clone_from(text),
        Value::Array(blocks) => {
            for block in blocks {
                match block["type"].as_str() {
                    Some("text") => message.text.push_str(block["text"].as_str().unwrap_or_default()),
                    Some("image") => {
                        let source = &block["source"];
                        let text = |name: &str| source[name].as_str().unwrap_or_default().to_owned();
                        let image = ImageInput::Data {
                            media_type: text("media_type"),
                            data: text("data"),
                        };
                        let image = image.decode_image().map_err(|error| error.to_string())?;
                        message.images.push(image);
                    }
                    _ => return Err("only text and images can be sent".to_owned()),
                }
            }
        }
        _ => return Err("it has no content".to_owned()),
    }
    if message.text.trim().is_empty() && message.images.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(message)
}
