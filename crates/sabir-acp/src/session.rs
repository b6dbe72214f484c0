//! Drives one session of a client: prompts, cancels and settings go in, updates go out.
//!
//! One worker owns everything about its session, so requests of the client are processed in order.
//! A session has no task before its first prompt, and a loaded session runs nothing before its next
//! prompt.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    AvailableCommandsUpdate, ConfigOptionUpdate, Notice as ClientNotice, NoticeSeverity,
    PromptResponse, RequestPermissionResponse, SessionId, SessionInfoUpdate, SessionNotification,
    SessionUpdate as ClientUpdate, SetSessionConfigOptionResponse, SetSessionModeResponse,
    StopReason, TerminalId, Usage,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error, ErrorCode};
use sabir_session::agent::{
    CompactionTiming, ContextChange, Record, TaskId, TaskOutcome, UserQuestion,
};
use sabir_session::call::{CallId, StopReason as ModelStop};
use sabir_session::{
    Command, Decision, Delivery, Host, Notice, NoticeTopic, Rejected, RequestId, Session,
    SessionChoices, SessionError, SessionEvent, SessionEventKind, SessionSpec, SessionState,
    SessionUpdate, Subscription, SubtaskLabel, TaskEnd, UserMessage, task_title,
};
use sabir_terminal::sanitizer::sanitize_text;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::editor_connection::EditorConnection;
use crate::form::{ServerFormAsker, question_form, read_answer};
use crate::message_text::{context_text, followup_text, origin_warning, show_hidden_characters};
use crate::permission::{permission_request, read_decision};
use crate::session_settings::{
    MODE_OPTION, MODEL_OPTION, SabirCommand, available_commands, config_options,
};
use crate::tool_view::text_content;
use crate::update_mapper::{RecordSource, UpdateMapper, agent_thought};

/// The time between two updates that show the output of running commands.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(150);
/// The time that a session gets to end before it is stopped as if it were killed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The capabilities of the client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientFeatures {
    /// It shows notices.
    pub(crate) notices: bool,
    /// It shows compactions.
    pub(crate) compactions: bool,
    /// It reads files for the agent, from its buffers.
    pub(crate) reads_files: bool,
    /// It writes files for the agent.
    pub(crate) writes_files: bool,
    /// It runs commands in terminals that it shows.
    pub(crate) terminals: bool,
    /// It shows forms.
    pub(crate) forms: bool,
    /// It can run this program in a terminal for the user to set it up.
    pub(crate) terminal_setup: bool,
}

/// Something that a client wants of its session.
#[derive(Debug)]
pub(crate) enum SessionInput {
    /// Work on a message.
    Prompt {
        message: UserMessage,
        responder: Responder<PromptResponse>,
    },
    /// Stop the work, and forget the prompts that wait.
    Cancel,
    /// Switch the mode.
    SetMode {
        mode: String,
        responder: Responder<SetSessionModeResponse>,
    },
    /// Set an option.
    SetOption {
        option: String,
        value: String,
        responder: Responder<SetSessionConfigOptionResponse>,
    },
    /// Repeat the history, then say that it was.
    Replay {
        done: tokio::sync::oneshot::Sender<SessionChoices>,
    },
    /// Announce the commands.
    Announce,
    /// The client answered a permission request or a form, or failed to.
    Answer {
        request: RequestId,
        decision: Decision,
    },
    /// The client's user left a form, so that the next prompt answers its question.
    FormDismissed {
        request: RequestId,
        question: String,
    },
    /// A command runs in a terminal of the client.
    Terminal {
        call: CallId,
        /// The command line.
        command: String,
        terminal: TerminalId,
    },
    /// End the session.
    Close {
        done: tokio::sync::oneshot::Sender<()>,
    },
}

/// The task of a session.
enum TaskState {
    /// There is none yet.
    New,
    /// It is in its journal, and does not run.
    Stored {
        /// The number of its records that the client knows or does not want.
        known: usize,
    },
    /// It runs, or waits for a message.
    Live(Box<LiveTask>),
}

struct LiveTask {
    session: Session,
    updates: Subscription,
    /// The number of records in the snapshot that the client knows already.
    known: usize,
}

/// A prompt that is being worked on.
struct Turn {
    responder: Responder<PromptResponse>,
    /// The end of the turn.
    ends_with: TurnEnd,
    /// True if the client has cancelled it.
    is_cancelled: bool,
}

/// The event that ends a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    /// The task stops working, or asks for a text.
    TaskIdle,
    /// The context was compacted, or need not be.
    Compaction,
    /// The contents of the context are known.
    ContextUsage,
    /// The result of an undo is known.
    Undo,
}

/// The parts of a session that the server knows when it opens it.
pub(crate) struct SessionSetup {
    pub(crate) id: SessionId,
    pub(crate) task: TaskId,
    /// The folder as the client names it.
    pub(crate) named_folder: PathBuf,
    /// The spec for the task, with the folder and the servers of the client.
    pub(crate) spec: SessionSpec,
    pub(crate) choices: SessionChoices,
    pub(crate) features: ClientFeatures,
    /// The number of records that the task has; `None` for a session without a task.
    pub(crate) stored: Option<usize>,
}

/// The worker of one session.
pub(crate) struct SessionWorker {
    host: Host,
    connection: ConnectionTo<Client>,
    seed: SessionSetup,
    inputs: UnboundedReceiver<SessionInput>,
    /// For the tasks that wait for answers.
    sender: UnboundedSender<SessionInput>,
    state: TaskState,
    mapper: UpdateMapper,
    /// The prompts that wait, the oldest first.
    queue: VecDeque<(UserMessage, Responder<PromptResponse>)>,
    turn: Option<Turn>,
    /// A cancel ends the run, and the session is not idle yet.
    awaits_idle: bool,
    /// The question that the next prompt answers.
    text_question: Option<RequestId>,
    /// The last question that was shown as a text. One that is asked again is not shown again.
    shown_question: Option<(RequestId, String)>,
    /// The permission requests and forms that wait for the client.
    questions: HashMap<RequestId, JoinHandle<()>>,
    /// Commands that need a session that is idle.
    deferred: Vec<Command>,
    /// The calls whose newest output was not shown.
    unshown: Vec<(Option<Arc<SubtaskLabel>>, CallId)>,
    /// True if the model has written something of a call that was not shown.
    has_draft: bool,
    next_output: Instant,
}

impl SessionWorker {
    /// Creates the worker of a session. `sender` leads to `inputs`.
    pub(crate) fn new(
        host: Host,
        connection: ConnectionTo<Client>,
        seed: SessionSetup,
        inputs: UnboundedReceiver<SessionInput>,
        sender: UnboundedSender<SessionInput>,
    ) -> Self {
        // The server has made the folder absolute and real, as clients and journals name it.
        let folder = seed.spec.workspace.clone().unwrap_or_default();
        let host = if seed.features.reads_files || seed.features.terminals {
            let editor = EditorConnection::new(
                connection.clone(),
                seed.id.clone(),
                folder.clone(),
                seed.named_folder.clone(),
                seed.features,
                sender.clone(),
            );
            host.with_editor(Arc::new(editor))
        } else {
            host
        };
        let host = if seed.features.forms {
            host.with_form_elicitor(Arc::new(ServerFormAsker {
                connection: connection.clone(),
                session: seed.id.clone(),
            }))
        } else {
            host
        };
        let mut mapper = UpdateMapper::new(folder);
        mapper.window = seed.choices.model.window;
        mapper.shows_compactions = seed.features.compactions;
        let state = match seed.stored {
            Some(known) => TaskState::Stored { known },
            None => TaskState::New,
        };
        Self {
            host,
            connection,
            seed,
            inputs,
            sender,
            state,
            mapper,
            queue: VecDeque::new(),
            turn: None,
            awaits_idle: false,
            text_question: None,
            shown_question: None,
            questions: HashMap::new(),
            deferred: Vec::new(),
            unshown: Vec::new(),
            has_draft: false,
            next_output: Instant::now(),
        }
    }

    /// Works until the session is closed or the connection ends.
    pub(crate) async fn run(mut self) {
        let connection = self.connection.clone();
        let mut done = None;
        loop {
            // Without output to show, the timer must not wake the worker: idle sessions cost
            // nothing.
            let has_unshown = !self.unshown.is_empty() || self.has_draft;
            // Fair, not biased: a flood of updates must not delay a cancel, nor the reverse.
            tokio::select! {
                update = next_update(&mut self.state) => self.handle_update(update).await,
                () = tokio::time::sleep_until(self.next_output), if has_unshown => self.show_output(),
                input = self.inputs.recv() => match input {
                    Some(SessionInput::Close { done: closed }) => {
                        done = Some(closed);
                        break;
                    }
                    Some(input) => self.handle_input(input).await,
                    None => break,
                },
                () = connection.incoming_closed() => break,
            }
        }
        self.end().await;
        // Nobody waits any more if the connection has ended.
        _ = done.map(|done| done.send(()));
    }

    /// Ends the task with everything that it started, and answers the prompts that are open.
    async fn end(mut self) {
        // A question that nobody can answer any more is withdrawn at the client first.
        for waiting in self.questions.values() {
            waiting.abort();
        }
        self.cancel_queue();
        if let TaskState::Live(live) = std::mem::replace(&mut self.state, TaskState::New) {
            let LiveTask {
                session, updates, ..
            } = *live;
            drop(updates);
            _ = session.submit(Command::End);
            // What does not end in time is dropped, which stops it as a kill would.
            _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, session.wait()).await;
        }
        if let Some(turn) = self.turn.take() {
            _ = turn
                .responder
                .respond(PromptResponse::new(StopReason::Cancelled));
        }
    }

    /// Sends an update. A client that is gone gets none: the end of the connection is noticed elsewhere.
    fn send(&self, update: ClientUpdate) {
        let notification = SessionNotification::new(self.seed.id.clone(), update);
        _ = self.connection.send_notification(notification);
    }

    fn send_all(&self, updates: impl IntoIterator<Item = ClientUpdate>) {
        updates.into_iter().for_each(|update| self.send(update));
    }

    /// Shows a text as one of the agent.
    fn send_agent_text(&mut self, text: &str) {
        let update = self.mapper.separate_text(sanitize_text(text), false);
        self.send_all(update);
    }

    async fn handle_input(&mut self, input: SessionInput) {
        match input {
            SessionInput::Prompt { message, responder } => {
                // Queued here, not in the inbox of the task: a cancel removes it, and each prompt
                // ends with its own turn.
                self.queue.push_back((message, responder));
                self.begin_next_turn().await;
            }
            SessionInput::Cancel => self.cancel(),
            SessionInput::SetMode { mode, responder } => {
                let response = self.set_mode(mode);
                _ = responder.respond_with_result(response.map(|()| SetSessionModeResponse::new()));
            }
            SessionInput::SetOption {
                option,
                value,
                responder,
            } => {
                let done = match option.as_str() {
                    MODE_OPTION => self.set_mode(value),
                    MODEL_OPTION => self.set_model(&value),
                    _ => Err(invalid(format!("there is no option `{option}`"))),
                };
                let response = done.map(|()| {
                    SetSessionConfigOptionResponse::new(config_options(&self.seed.choices))
                });
                _ = responder.respond_with_result(response);
            }
            SessionInput::Replay { done } => {
                self.replay();
                _ = done.send(self.seed.choices.clone());
            }
            SessionInput::Announce => {
                let commands = available_commands(&self.seed.choices);
                self.send(ClientUpdate::AvailableCommandsUpdate(
                    AvailableCommandsUpdate::new(commands),
                ));
            }
            SessionInput::Answer { request, decision } => {
                // A question that was answered or withdrawn meanwhile takes no answer.
                if self.questions.remove(&request).is_some() {
                    _ = self.submit(Command::Answer { request, decision });
                }
            }
            SessionInput::FormDismissed { request, question } => {
                if self.questions.remove(&request).is_some() {
                    self.ask_for_text(request, question);
                }
            }
            SessionInput::Terminal {
                call,
                command,
                terminal,
            } => {
                let update = self.mapper.attach_terminal(&call, &command, terminal);
                self.send_all(update);
            }
            // `run` has taken it.
            SessionInput::Close { .. } => {}
        }
    }

    fn submit(&self, command: Command) -> Result<(), Rejected> {
        match &self.state {
            TaskState::Live(live) => live.session.submit(command),
            _ => Err(Rejected::Ended),
        }
    }

    /// Begins the next turn, if there is a prompt and none is worked on.
    async fn begin_next_turn(&mut self) {
        // A deferred command was given before the waiting prompts, so it runs first.
        while self.turn.is_none() && !self.awaits_idle && self.deferred.is_empty() {
            let Some((message, responder)) = self.queue.pop_front() else {
                return;
            };
            let mut turn = Turn {
                responder,
                ends_with: TurnEnd::TaskIdle,
                is_cancelled: false,
            };
            self.mapper.note_prompt();
            self.shown_question = None;
            let begun = match SabirCommand::parse(&message.text) {
                Some(command) => self.begin_command(command, &mut turn),
                None => self.begin_message(message).await,
            };
            match begun {
                Ok(()) => self.turn = Some(turn),
                Err(error) => _ = turn.responder.respond_with_error(error),
            }
        }
    }

    /// Begins a turn for a message to the model.
    async fn begin_message(&mut self, message: UserMessage) -> Result<(), Error> {
        let spec = self.seed.spec.clone();
        let (session, known) = match &self.state {
            TaskState::Live(live) => {
                let expanded = live
                    .session
                    .custom_commands()
                    .expand_line(message.text.trim_end());
                let text = expanded
                    .transpose()
                    .map_err(|error| invalid(error.to_string()))?
                    .unwrap_or(message.text);
                // A task that runs has a worker, which takes the message itself.
                return self.send_message(UserMessage { text, ..message });
            }
            TaskState::New => {
                // The title is what `session/list` will show, so that the client need not ask
                // again.
                let title = SessionInfoUpdate::new().title(task_title(&message.text));
                let task = self.seed.task.clone();
                // It expands a command of the folder itself, through the workspace of the task.
                let session = self.host.start_with_id(task, spec, message).await;
                let session = session.map_err(|error| session_error(&error))?;
                self.send(ClientUpdate::SessionInfoUpdate(title));
                (session, 0)
            }
            TaskState::Stored { known } => {
                let commands = &self.seed.choices.commands;
                let expanded = commands.expand_line(message.text.trim_end());
                let text = expanded
                    .transpose()
                    .map_err(|error| invalid(error.to_string()))?
                    .unwrap_or(message.text);
                let message = UserMessage { text, ..message };
                let task = self.seed.task.clone();
                let session = self.host.load(&task, spec, Some(message)).await;
                (session.map_err(|error| session_error(&error))?, *known)
            }
        };
        let updates = session.subscribe();
        self.state = TaskState::Live(Box::new(LiveTask {
            session,
            updates,
            known,
        }));
        // From now on the records of the task know its mode.
        self.seed.spec.mode = None;
        Ok(())
    }

    /// Sends a message to a task that runs: as the answer to the question that ended the last turn, if it is still open.
    fn send_message(&mut self, message: UserMessage) -> Result<(), Error> {
        if let Some(request) = self.text_question.take() {
            let decision = Decision::Text {
                text: message.text.clone(),
                images: message.images.clone(),
            };
            match self.submit(Command::Answer { request, decision }) {
                // It was withdrawn meanwhile, so the words are a message.
                Err(Rejected::NoSuchRequest(_)) => {}
                answered => return answered.map_err(|rejected| invalid(rejected.to_string())),
            }
        }
        // No turn is worked on, so there is nothing to interrupt.
        let delivery = Delivery::Queue;
        self.submit(Command::Send { message, delivery })
            .map_err(|rejected| invalid(rejected.to_string()))
    }

    fn begin_command(&mut self, command: SabirCommand, turn: &mut Turn) -> Result<(), Error> {
        if !matches!(self.state, TaskState::Live(_)) {
            return Err(invalid("the task does not work yet: send a message first"));
        }
        let (command, ends_with) = match command {
            SabirCommand::Compact => (Command::Compact, TurnEnd::Compaction),
            SabirCommand::Context => (Command::ContextUsage, TurnEnd::ContextUsage),
            SabirCommand::Undo { calls, checkpoint } => {
                (Command::Undo { calls, checkpoint }, TurnEnd::Undo)
            }
        };
        // Set before the command is submitted: its result may come at once.
        turn.ends_with = ends_with;
        self.submit_when_idle(command)
    }

    /// Submits a command now, or after the task has come to rest if only an idle session takes it.
    fn submit_when_idle(&mut self, command: Command) -> Result<(), Error> {
        match self.submit(command.clone()) {
            Err(Rejected::Busy) => {
                self.deferred.push(command);
                // Nothing runs between two turns, so only the open question ends.
                if self.turn.is_none() {
                    self.text_question = None;
                    _ = self.submit(Command::Interrupt);
                }
                Ok(())
            }
            done => done.map_err(|rejected| invalid(rejected.to_string())),
        }
    }

    fn cancel(&mut self) {
        self.cancel_queue();
        if let Some(turn) = &mut self.turn {
            turn.is_cancelled = true;
            let is_idle = match &self.state {
                TaskState::Live(live) => live.session.handle().is_idle(),
                _ => true,
            };
            // The run may end its turn at this moment and ask for the next message, and the
            // interrupt would then be lost.
            self.awaits_idle = self.submit(Command::Interrupt).is_ok() && !is_idle;
        }
    }

    /// Answers the prompts that wait. Their texts were not sent to anybody.
    fn cancel_queue(&mut self) {
        for (_, responder) in self.queue.drain(..) {
            _ = responder.respond(PromptResponse::new(StopReason::Cancelled));
        }
    }

    fn set_mode(&mut self, mode: String) -> Result<(), Error> {
        // An unknown mode would only become a notice later, when the client believes that it holds.
        let known = self.seed.choices.modes.iter();
        if !known.map(|mode| &mode.name).any(|name| *name == mode) {
            return Err(invalid(format!("there is no mode `{mode}`")));
        }
        if matches!(self.state, TaskState::Live(_)) {
            let command = Command::SetMode { mode: mode.clone() };
            self.submit(command)
                .map_err(|rejected| invalid(rejected.to_string()))?;
        } else {
            self.seed.spec.mode = Some(mode.clone());
        }
        self.note_mode(mode);
        Ok(())
    }

    /// Notes a mode, which may have a model of its own, and shows the options that changed.
    fn note_mode(&mut self, mode: String) {
        if self.seed.choices.mode == mode {
            return;
        }
        let spec = SessionSpec {
            mode: Some(mode.clone()),
            ..self.seed.spec.clone()
        };
        // The model that a mode has depends on the model and the protocol that the task began with.
        let records = match self.state {
            TaskState::New => Vec::new(),
            _ => self.host.read_records(&self.seed.task).unwrap_or_default(),
        };
        match self.host.session_choices(&spec, &records) {
            Ok(choices) => self.seed.choices = choices,
            Err(_) => self.seed.choices.mode = mode,
        }
        self.mapper.window = self.seed.choices.model.window;
        self.send(ClientUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(
            config_options(&self.seed.choices),
        )));
    }

    fn set_model(&mut self, name: &str) -> Result<(), Error> {
        let model = self
            .host
            .find_model(&self.seed.spec, name)
            .map_err(|error| invalid(error.to_string()))?;
        if matches!(self.state, TaskState::Live(_)) {
            let model = model.name.clone();
            self.submit_when_idle(Command::SetModel { model })?;
        }
        self.seed.spec.model = Some(model.name.clone());
        // A model with its full name need not be in the list, but the current value of an option
        // must be.
        let models = &mut self.seed.choices.models;
        if !models.iter().any(|known| known.name == model.name) {
            models.insert(0, model.clone());
        }
        self.mapper.window = model.window;
        self.seed.choices.model = model;
        Ok(())
    }

    /// Repeats the history of the task.
    fn replay(&mut self) {
        let records = match &self.state {
            TaskState::New => return,
            _ => self.host.read_records(&self.seed.task).unwrap_or_default(),
        };
        let folder = self.seed.spec.workspace.clone().unwrap_or_default();
        // A mapper of its own: what a live task has open must stay so.
        let mut past = UpdateMapper::new(folder);
        for record in &records {
            self.send_all(past.map_record(record, RecordSource::Past));
        }
        if matches!(self.state, TaskState::Live(_)) {
            return;
        }
        // Nothing of a stored task runs, so a call without a result will not get one here.
        self.send_all(past.close_open_calls());
        let window = self.mapper.window;
        self.mapper = past;
        self.mapper.window = window;
        self.mapper.shows_compactions = self.seed.features.compactions;
        self.state = TaskState::Stored {
            known: records.len(),
        };
    }

    async fn handle_update(&mut self, update: Option<SessionUpdate>) {
        match update {
            // The session is over, and its task is in the journal.
            None => {
                // The client has seen all of them, so the next prompt shows only what comes after.
                let known = self.host.read_records(&self.seed.task);
                self.state = TaskState::Stored {
                    known: known.map_or(0, |records| records.len()),
                };
                self.forget_questions();
                self.awaits_idle = false;
            }
            Some(SessionUpdate::Snapshot(snapshot)) => {
                let known = match &self.state {
                    TaskState::Live(live) => live.known,
                    _ => 0,
                };
                // Most notices are sent while the task is set up, before anybody can subscribe.
                for notice in &snapshot.notices {
                    self.handle_notice(notice);
                }
                // Those before were repeated by a load, or not wanted by a resume.
                for record in snapshot.records.iter().skip(known) {
                    self.handle_record(None, record);
                }
                for (request, question) in snapshot.requests {
                    self.handle_question(None, request, question);
                }
                self.handle_state(snapshot.state).await;
            }
            Some(SessionUpdate::Event(event)) => self.handle_event(&event).await,
        }
        self.begin_next_turn().await;
    }

    async fn handle_event(&mut self, event: &SessionEvent) {
        let subtask = event.subtask.clone();
        match &event.kind {
            SessionEventKind::Record(record) => self.handle_record(subtask, record),
            SessionEventKind::Delta(delta) if subtask.is_none() => {
                let update = self.mapper.map_delta(delta);
                self.send_all(update);
                if self.mapper.note_draft(delta) && !std::mem::replace(&mut self.has_draft, true) {
                    // A call that is written quickly is shown once, as a whole.
                    self.next_output = self.next_output.max(Instant::now() + OUTPUT_INTERVAL);
                }
            }
            SessionEventKind::Output { call, text } => {
                self.mapper.note_output(subtask.as_deref(), call, text);
                let is_known =
                    |one: &(Option<Arc<SubtaskLabel>>, CallId)| one.1 == *call && one.0 == subtask;
                // Shown by the timer: a command may write a line a microsecond.
                if !self.unshown.iter().any(is_known) {
                    self.unshown.push((subtask, call.clone()));
                }
            }
            SessionEventKind::Preview { call, text } => {
                let update = self.mapper.map_preview(subtask.as_deref(), call, text);
                self.send_all(update);
            }
            SessionEventKind::Waiting(waiting) if subtask.is_none() => {
                // A pause without a word looks like a client that hangs.
                let text = waiting.reason.clone();
                self.show_notice(NoticeSeverity::Warning, &text);
            }
            SessionEventKind::Request { request, question } => {
                self.handle_question(subtask, request.clone(), question.clone());
            }
            SessionEventKind::RequestClosed { request, .. } => {
                if let Some(waiting) = self.questions.remove(request) {
                    // Tells the client that no answer is needed any more.
                    waiting.abort();
                }
                if self.text_question.as_ref() == Some(request) {
                    self.text_question = None;
                }
            }
            SessionEventKind::ContextUsage(usage) if self.is_turn_for(TurnEnd::ContextUsage) => {
                self.send_agent_text(&context_text(usage));
                self.end_turn(StopReason::EndTurn);
            }
            SessionEventKind::CompactionStatus(timing) if self.is_turn_for(TurnEnd::Compaction) => {
                match timing {
                    CompactionTiming::Now => {}
                    CompactionTiming::Nothing => {
                        self.send_agent_text("There is nothing to compact.");
                        self.end_turn(StopReason::EndTurn);
                    }
                    CompactionTiming::Later => {
                        self.send_agent_text("The context is compacted before the next request.");
                        self.end_turn(StopReason::EndTurn);
                    }
                }
            }
            SessionEventKind::Notice(notice) => self.handle_notice(notice),
            SessionEventKind::State(state) => self.handle_state(state.clone()).await,
            _ => {}
        }
    }

    fn is_turn_for(&self, end: TurnEnd) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.ends_with == end)
    }

    fn handle_record(&mut self, subtask: Option<Arc<SubtaskLabel>>, record: &Record) {
        // What a subtask says is for its parent; a user sees only what it does.
        if let Some(subtask) = &subtask {
            let updates = self.mapper.map_subtask_record(subtask, record);
            self.send_all(updates);
            return;
        }
        if let Record::Result(result) = record {
            // The result has all of the output.
            self.unshown
                .retain(|(subtask, call)| subtask.is_some() || *call != result.id);
        }
        // The update comes before the end of the turn that the record may lead to.
        let updates = self.mapper.map_record(record, RecordSource::Live);
        self.send_all(updates);
        match record {
            Record::Failed(failed) => {
                let text = format!("The answer broke off: {}", failed.message);
                self.show_notice(NoticeSeverity::Warning, &text);
                if self.is_turn_for(TurnEnd::Compaction) {
                    self.end_turn(StopReason::EndTurn);
                }
            }
            Record::Context(change) => match change {
                ContextChange::Moded { mode, .. } => self.note_mode(mode.clone()),
                ContextChange::Compacted(compaction) if self.is_turn_for(TurnEnd::Compaction) => {
                    self.send_agent_text(&format!(
                        "The context was compacted: {} tokens before, about {} now.",
                        compaction.before, compaction.after
                    ));
                    self.end_turn(StopReason::EndTurn);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Asks the client's user, or ends the turn so that the next prompt answers.
    fn handle_question(
        &mut self,
        subtask: Option<Arc<SubtaskLabel>>,
        request: RequestId,
        question: UserQuestion,
    ) {
        match question {
            UserQuestion::Approval {
                call,
                detail,
                reason,
                proposals,
                recovered_from_text,
                echo_of,
                ..
            } => {
                let mut shown = self
                    .mapper
                    .describe_question(subtask.as_deref(), &call, &detail);
                // A call that the model may only have repeated deserves a second look.
                let warning = origin_warning(recovered_from_text, echo_of.as_ref());
                let notes = [Some(show_hidden_characters(&reason)), warning];
                let notes = notes.into_iter().flatten().filter(|text| !text.is_empty());
                // Behind the diff or the command: what the call does comes first.
                let content = shown.fields.content.get_or_insert_default();
                content.extend(notes.map(|text| text_content(&text)));
                let asked = permission_request(self.seed.id.clone(), shown, &proposals);
                let sent = self.connection.send_request(asked);
                let sender = self.sender.clone();
                let of_request = request.clone();
                let waiting = tokio::spawn(async move {
                    // Dropped if the question is closed, which withdraws it at the client.
                    let answer: Result<RequestPermissionResponse, Error> = sent.block_task().await;
                    let decision = read_decision(answer, &proposals);
                    // The session may be gone.
                    _ = sender.send(SessionInput::Answer {
                        request: of_request,
                        decision,
                    });
                });
                self.questions.insert(request, waiting);
            }
            UserQuestion::Followup {
                question, options, ..
            } if self.seed.features.forms => self.ask_by_form(request, &question, &options),
            UserQuestion::Followup {
                question, options, ..
            } => self.ask_for_text(request, followup_text(&question, &options)),
            UserQuestion::Completion { result, .. } => self.ask_for_text(request, result),
            UserQuestion::Next { reason } => self.ask_for_text(request, reason),
            // An unknown question has no safe answer but none.
            _ => {}
        }
    }

    /// Asks a question as a form. The turn continues, since the answer arrives within it.
    fn ask_by_form(&mut self, request: RequestId, question: &str, options: &[String]) {
        // A question that is asked again, behind a command of the user, is already shown.
        if self.questions.contains_key(&request) {
            return;
        }
        let form = question_form(self.seed.id.clone(), question, options);
        let sent = self.connection.send_request(form);
        let sender = self.sender.clone();
        let of_request = request.clone();
        let question = followup_text(question, options);
        let waiting = tokio::spawn(async move {
            // Dropped if the question is closed, which withdraws it at the client.
            let answer = read_answer(sent.block_task().await);
            let request = of_request;
            // The session may be gone.
            _ = sender.send(match answer {
                Some(text) => SessionInput::Answer {
                    request,
                    decision: Decision::Text {
                        text,
                        images: Vec::new(),
                    },
                },
                None => SessionInput::FormDismissed { request, question },
            });
        });
        self.questions.insert(request, waiting);
    }

    /// Shows a question and ends the turn: the next prompt is the answer.
    fn ask_for_text(&mut self, request: RequestId, text: String) {
        let shown = (request.clone(), text);
        if !shown.1.is_empty() && self.shown_question.as_ref() != Some(&shown) {
            self.send_agent_text(&shown.1);
        }
        self.shown_question = Some(shown);
        self.text_question = Some(request);
        // A command that needs an idle session waits for this moment; the open question is
        // withdrawn for it.
        if !self.deferred.is_empty() {
            self.text_question = None;
            _ = self.submit(Command::Interrupt);
        }
        if self.is_turn_for(TurnEnd::TaskIdle) {
            let stop = match self.mapper.last_stop {
                Some(ModelStop::Length) => StopReason::MaxTokens,
                Some(ModelStop::Refused) => StopReason::Refusal,
                _ => StopReason::EndTurn,
            };
            self.end_turn(stop);
        }
    }

    fn handle_notice(&mut self, notice: &Notice) {
        // The notice is the only answer to an undo.
        if notice.about == NoticeTopic::Checkpoints && self.is_turn_for(TurnEnd::Undo) {
            self.send_agent_text(&notice.text);
            self.end_turn(StopReason::EndTurn);
            return;
        }
        self.show_notice(NoticeSeverity::Info, &notice.text);
    }

    /// Shows a notice. A client without a place for notices gets the warnings among the thoughts, since they are not words of the model.
    fn show_notice(&mut self, severity: NoticeSeverity, text: &str) {
        let text = sanitize_text(text);
        if self.seed.features.notices {
            self.send(ClientUpdate::Notice(ClientNotice::new(severity, text)));
        } else if severity != NoticeSeverity::Info {
            self.send_all(agent_thought(format!("[{text}]\n")));
        }
    }

    async fn handle_state(&mut self, state: SessionState) {
        let (end, is_over) = match state {
            SessionState::Idle(end) => (end, false),
            SessionState::Ended(end) => (end, true),
            _ => return,
        };
        self.forget_questions();
        self.awaits_idle = false;
        if !is_over {
            // In the order in which the client gave them.
            for command in std::mem::take(&mut self.deferred) {
                if let Err(rejected) = self.submit(command) {
                    self.show_notice(NoticeSeverity::Error, &rejected.to_string());
                }
            }
        }
        if is_over {
            self.deferred.clear();
            self.end_run(&end);
            return;
        }
        let is_idle = match &self.state {
            TaskState::Live(live) => live.session.handle().is_idle(),
            _ => true,
        };
        // A task that was loaded again reports once more that it is idle, even if a prompt arrived
        // meanwhile. The turns of Sabir's commands end with their results.
        let is_cancelled = self.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
        if is_idle && (self.is_turn_for(TurnEnd::TaskIdle) || is_cancelled) {
            self.end_run(&end);
        }
    }

    /// Ends the turn with the end of a run.
    fn end_run(&mut self, end: &TaskEnd) {
        match end.outcome {
            TaskOutcome::Completed => self.end_turn(StopReason::EndTurn),
            TaskOutcome::Cancelled => self.end_turn(StopReason::Cancelled),
            TaskOutcome::Limit => {
                self.send_agent_text(&end.message);
                self.end_turn(StopReason::MaxTurnRequests);
            }
            TaskOutcome::ProviderFailed | TaskOutcome::Misconfigured | TaskOutcome::StoreFailed => {
                if let Some(turn) = self.turn.take() {
                    let error = Error::new(ErrorCode::INTERNAL_ERROR, end.message.clone());
                    _ = turn.responder.respond_with_error(error);
                }
            }
            _ => {
                self.send_agent_text(&end.message);
                self.end_turn(StopReason::EndTurn);
            }
        }
    }

    fn end_turn(&mut self, stop: StopReason) {
        self.show_output();
        let cut = self.mapper.close_drafts();
        self.send_all(cut);
        let Some(turn) = self.turn.take() else {
            return;
        };
        let stop = if turn.is_cancelled {
            StopReason::Cancelled
        } else {
            stop
        };
        // For the whole session, as the protocol requires, and only if the provider reported
        // tokens.
        let used = self.mapper.total_usage();
        let usage = used.input.zip(used.output).map(|(input, output)| {
            Usage::new(input.saturating_add(output), input, output)
                .thought_tokens(used.reasoning)
                .cached_read_tokens(used.cache_read)
                .cached_write_tokens(used.cache_write)
        });
        _ = turn
            .responder
            .respond(PromptResponse::new(stop).usage(usage));
    }

    /// Withdraws all questions.
    fn forget_questions(&mut self) {
        self.text_question = None;
        for (_, waiting) in self.questions.drain() {
            waiting.abort();
        }
    }

    /// Shows the newest output of the commands that run.
    fn show_output(&mut self) {
        self.next_output = Instant::now() + OUTPUT_INTERVAL;
        if std::mem::take(&mut self.has_draft) {
            let updates = self.mapper.draft_updates();
            self.send_all(updates);
        }
        for (subtask, call) in std::mem::take(&mut self.unshown) {
            let update = self.mapper.output_update(subtask.as_deref(), &call);
            self.send_all(update);
        }
    }
}

/// Waits for the next update of a live task; forever, if there is none.
async fn next_update(state: &mut TaskState) -> Option<SessionUpdate> {
    match state {
        TaskState::Live(live) => live.updates.next().await,
        _ => std::future::pending().await,
    }
}

/// Creates the error for parameters that cannot be used.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, message)
}

/// Converts the error of a session.
pub(crate) fn session_error(error: &SessionError) -> Error {
    let code = match error {
        SessionError::UnknownTask(_) => ErrorCode::RESOURCE_NOT_FOUND,
        error if error.is_internal() => ErrorCode::INTERNAL_ERROR,
        _ => ErrorCode::INVALID_PARAMS,
    };
    Error::new(code, error.to_string())
}
