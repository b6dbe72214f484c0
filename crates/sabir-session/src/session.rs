//! Implements a session: drives one task in the background, takes commands for it, and outlives its interruptions and completions.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use sabir_agent::{
    CancelToken, CompactionReason, CompactionTiming, ContextChange, FrontEnd, Record, StoreError,
    SummaryAuthor, TaskDriver, TaskEffect, TaskEvent, TaskId, TaskInput, TaskOutcome, UserCommand,
    UserMessage, UserReply,
};
use sabir_call::{Event, Image};
use sabir_checkpoint::display_path;
use sabir_mcp::ServerStatus;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::checkpointer::{UndoTarget, UndoneCalls};
use crate::command::{Command, Decision, Delivery, Rejected};
use crate::completion_options::completion_conditions;
use crate::custom_commands::CustomCommands;
use crate::error::SessionError;
use crate::event::{RequestId, SessionEventKind, SessionState, WaitingEvent};
use crate::hooks::HookRunner;
use crate::host::Host;
use crate::hub::{EventHub, Subscription};
use crate::images::CurrentImageSupport;
use crate::loading::LoadedSession;
use crate::mcp::{PromptCommands, ResourceChangeNotifier};
use crate::modes::ModeSwitcher;
use crate::notice::{NoticeSink, NoticeTopic};
use crate::preview_publisher::PreviewPublisher;
use crate::recording::{RecordingState, ReplayFrontEnd};
use crate::sandbox_probe::SandboxProbe;
use crate::setup::TaskEnd;
use crate::spec::{Interactivity, RecordMode};
use crate::user_command::UserCommandRunner;

/// A task that is driven in the background, on the tokio runtime that started it.
///
/// [`Host::start`](crate::Host::start) and [`Host::load`](crate::Host::load) create sessions. Dropping a session stops its task as a
/// kill would: the task can be resumed from its journal.
#[derive(Debug)]
pub struct Session {
    /// The id of the task.
    task: TaskId,
    /// The names of the modes that the task can switch to.
    modes: Vec<String>,
    /// The commands that the folder and the user define.
    custom_commands: CustomCommands,
    /// True if a recording is replayed.
    is_replay: bool,
    /// Runs the user's own commands.
    user_commands: UserCommandRunner,
    hub: HubHandle,
    control: Arc<SessionControl>,
    /// The worker; `None` once it is being waited for.
    worker: Option<JoinHandle<SessionOutcome>>,
}

/// The result of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOutcome {
    /// The end of the last run of the task.
    pub end: TaskEnd,
    /// The failure of the recording or the replay, if there was one.
    pub recording_error: Option<SessionError>,
}

/// The hub without its internals in `Debug`.
struct HubHandle(EventHub);

impl std::fmt::Debug for HubHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventHub")
    }
}

/// The part of a session that commands reach directly, besides the inbox of its task.
#[derive(Debug)]
struct SessionControl {
    /// Interrupts the run.
    cancel: CancelToken,
    /// Commands for a session that is idle.
    idle: UnboundedSender<IdleCommand>,
    /// Messages that hooks check first, or that name a prompt of a server.
    unchecked: UnboundedSender<UncheckedPrompt>,
    /// True if hooks check each message.
    has_prompt_hooks: bool,
    /// Locked before the hub, never after it: a command looks at the state and reaches an inbox in
    /// one step.
    state: std::sync::Mutex<ControlState>,
}

#[derive(Debug, Default)]
/// The state that decides where a command goes: to the worker between two runs, or to the inbox of
/// the task.
struct ControlState {
    /// True between two runs of the task.
    is_idle: bool,
    /// True when the session takes no more commands.
    is_ended: bool,
    /// True if the session ends after the current run.
    closes: bool,
    /// True if the user ended the run when the model had answered.
    ends_after_answer: bool,
    /// Counts the runs of the task, from 0.
    run: u64,
    /// The number of messages that are being checked.
    unchecked: usize,
    /// Stops the compaction that an idle session was asked for, until it is finished.
    compaction: Option<Arc<Notify>>,
}

/// A command for an idle session.
#[derive(Debug)]
enum IdleCommand {
    /// Continues the task with a message.
    Continue(UserMessage),
    /// Loads the task again in another mode.
    SetMode(String),
    /// Loads the task again with another model.
    SetModel(String),
    /// Undoes calls that changed files.
    Undo(UndoTarget),
    /// Compacts the context, unless the signal comes first.
    Compact(Arc<Notify>),
    /// Publishes the contents of the context.
    ContextUsage,
    /// Publishes once more that the session is idle: a hook has held a message back.
    StayIdle,
    End,
}

/// A message on its way to the task, which is not there before servers and hooks have answered.
#[derive(Debug)]
struct UncheckedPrompt {
    message: UserMessage,
    target: PromptTarget,
}

/// The destination of a message after its check.
#[derive(Debug)]
enum PromptTarget {
    /// The task.
    Task(Delivery),
    /// The question for the next message.
    Question(RequestId),
}

/// Puts in the texts of servers' prompts, passes messages of the user to the hooks, one after the other, and on to the task.
struct PromptChecker {
    hooks: Option<Arc<HookRunner>>,
    prompts: UnboundedReceiver<UncheckedPrompt>,
    task: TaskId,
    hub: EventHub,
    notices: NoticeSink,
    /// Weak: the checker must not keep the session alive, which holds the other end of its queue.
    control: Weak<SessionControl>,
}

impl PromptChecker {
    /// Works until the session is over.
    async fn run(mut self) {
        while let Some(UncheckedPrompt { message, target }) = self.prompts.recv().await {
            // One after the other: two messages must not overtake each other because a hook was
            // faster for one of them.
            let checked = self.check_message(message).await;
            let Some(control) = self.control.upgrade() else {
                return;
            };
            let handle = SessionHandle {
                task: self.task.clone(),
                hub: Arc::new(HubHandle(self.hub.clone())),
                control,
            };
            let is_idle = {
                let mut state = handle.control.lock_state();
                state.unchecked = state.unchecked.saturating_sub(1);
                state.is_idle
            };
            match (checked, target) {
                (Ok(message), target) => {
                    if let Err(error) = handle.submit_checked(target.into_command(message)) {
                        let text = format!("a message was not delivered: {error}");
                        self.notices.send(NoticeTopic::Hooks, text);
                    }
                }
                (Err(refused), target) => {
                    self.notices.send(refused.topic, refused.text);
                    // Front ends wait for the answer to the message: they must ask again.
                    match target {
                        PromptTarget::Task(_) if is_idle => {
                            _ = handle.control.send_idle(IdleCommand::StayIdle);
                        }
                        PromptTarget::Task(_) => {}
                        PromptTarget::Question(request) => self.hub.repeat_request(&request),
                    }
                }
            }
        }
    }
}

/// A message that does not pass the check, with the notice about it.
struct RefusedMessage {
    topic: NoticeTopic,
    text: String,
}

impl PromptChecker {
    /// Returns a message with the text of the prompt that it names, and with what hooks add to it.
    async fn check_message(&self, message: UserMessage) -> Result<UserMessage, RefusedMessage> {
        let prompts = PromptCommands::new(&self.hub);
        let mut message = match prompts.expand_line(&message.text).await {
            None => message,
            Some(Ok(mut expanded)) => {
                expanded.images.extend(message.images);
                expanded
            }
            Some(Err(error)) => {
                return Err(RefusedMessage {
                    topic: NoticeTopic::Mcp,
                    text: error.to_string(),
                });
            }
        };
        if let Some(hooks) = &self.hooks {
            let checked = hooks.check_prompt(message.text).await;
            message.text = checked.map_err(|refused| RefusedMessage {
                topic: NoticeTopic::Hooks,
                text: refused.to_string(),
            })?;
        }
        Ok(message)
    }
}

impl PromptTarget {
    /// Returns the command that delivers a message.
    fn into_command(self, message: UserMessage) -> Command {
        match self {
            Self::Task(delivery) => Command::Send { message, delivery },
            Self::Question(request) => Command::Answer {
                request,
                decision: Decision::Text {
                    text: message.text,
                    images: message.images,
                },
            },
        }
    }
}

impl ControlState {
    /// Stops the compaction of an idle session; false if there is none.
    fn stop_compaction(&self) -> bool {
        // The signal is kept for a compaction that has not begun.
        self.compaction
            .as_ref()
            .map(|stop| stop.notify_one())
            .is_some()
    }
}

impl Session {
    /// Starts to drive a loaded task.
    pub(crate) fn start_worker(host: Host, loaded: LoadedSession, hub: EventHub) -> Self {
        let (idle, commands) = unbounded_channel();
        let task = loaded.opened.task.start_record().task.clone();
        let hooks = loaded.setup.hooks.clone();
        let hooks = hooks.filter(|hooks| hooks.checks_prompts());
        let (unchecked, prompts) = unbounded_channel();
        let control = Arc::new(SessionControl {
            cancel: loaded.setup.cancel.clone(),
            idle,
            unchecked,
            has_prompt_hooks: hooks.is_some(),
            state: std::sync::Mutex::default(),
        });
        let checker = PromptChecker {
            hooks,
            prompts,
            task: task.clone(),
            hub: hub.clone(),
            notices: loaded.config.notices.clone(),
            control: Arc::downgrade(&control),
        };
        tokio::spawn(checker.run());
        // Opened before the task begins, so that no message from now on gets lost.
        hub.open_inbox(&task, None);
        let modes = loaded.setup.modes.mode_names();
        let custom_commands = CustomCommands::find_in(&loaded.setup.workspace, &loaded.config)
            .with_prompts(PromptCommands::new(&hub));
        let user_commands = UserCommandRunner::new(
            host.clone(),
            loaded.spec.clone(),
            loaded.opened.task.start_record(),
        );
        let is_replay = matches!(loaded.recording, RecordingState::Replay { .. });
        let worker = SessionWorker {
            host,
            loaded,
            hub: hub.clone(),
            control: Arc::clone(&control),
            commands,
            // The notice about the sandbox comes with the first run only: it does not change within
            // a session.
            is_sandbox_known: false,
        };
        let worker = tokio::spawn(worker.run_session());
        Self {
            task,
            modes,
            custom_commands,
            is_replay,
            user_commands,
            hub: HubHandle(hub),
            control,
            worker: Some(worker),
        }
    }

    /// Returns the id of the task.
    pub fn task(&self) -> &TaskId {
        &self.task
    }

    /// Returns the names of the modes that the task can switch to.
    pub fn modes(&self) -> &[String] {
        &self.modes
    }

    /// Returns the commands that the folder and the user define as files.
    pub fn custom_commands(&self) -> &CustomCommands {
        &self.custom_commands
    }

    /// Returns the support for images of the model that the task asks. It follows the mode of the task.
    pub fn image_support(&self) -> CurrentImageSupport {
        self.hub.0.image_support()
    }

    /// Returns the runner for commands that the user types.
    pub fn user_commands(&self) -> &UserCommandRunner {
        &self.user_commands
    }

    /// Reports whether the session replays a recording.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Subscribes to everything that happens from now on; the first update is a snapshot of what happened before.
    pub fn subscribe(&self) -> Subscription {
        self.hub.0.subscribe()
    }

    /// Submits a command for the session's own task. Never blocks.
    ///
    /// # Errors
    /// When the session is over, or the command is not possible in its present state.
    pub fn submit(&self, command: Command) -> Result<(), Rejected> {
        self.handle().submit(command)
    }

    /// Returns a handle that can submit commands and subscribe, but does not keep the session alive.
    pub fn handle(&self) -> SessionHandle {
        SessionHandle {
            task: self.task.clone(),
            hub: Arc::new(HubHandle(self.hub.0.clone())),
            control: Arc::clone(&self.control),
        }
    }

    /// Waits for the end of the session.
    ///
    /// # Errors
    /// When the session's worker panicked or its runtime was shut down.
    pub async fn wait(mut self) -> Result<SessionOutcome, SessionError> {
        let Some(worker) = self.worker.take() else {
            return Err(SessionError::internal(
                "the end of the session was already awaited",
            ));
        };
        worker
            .await
            .map_err(|error| SessionError::internal(format!("the session crashed: {error}")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abort();
            self.hub.0.set_servers(None);
        }
    }
}

/// Submits commands to a session. Clones reach the same session.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    task: TaskId,
    hub: Arc<HubHandle>,
    control: Arc<SessionControl>,
}

impl SessionHandle {
    /// Subscribes as [`Session::subscribe`] does.
    pub fn subscribe(&self) -> Subscription {
        self.hub.0.subscribe()
    }

    /// Returns the MCP servers of the session with their states.
    pub fn server_statuses(&self) -> Vec<ServerStatus> {
        let servers = self.hub.0.servers();
        servers
            .map(|servers| servers.statuses())
            .unwrap_or_default()
    }

    /// Submits a command for the session's own task. Never blocks.
    ///
    /// # Errors
    /// When the session is over, or the command is not possible in its present state.
    pub fn submit(&self, command: Command) -> Result<(), Rejected> {
        let text = match &command {
            Command::Send { message, .. } => &message.text,
            Command::Answer {
                decision: Decision::Text { text, .. },
                ..
            } => text,
            _ => return self.submit_checked(command),
        };
        let needs_check =
            self.control.has_prompt_hooks || PromptCommands::new(&self.hub.0).is_prompt_line(text);
        // A message waits behind those that are being checked. If there are none, the check for
        // them and the delivery happen under one lock.
        if !needs_check && self.control.lock_state().unchecked == 0 {
            return self.submit_checked(command);
        }
        let prompt = match command {
            Command::Send { message, delivery } => UncheckedPrompt {
                message,
                target: PromptTarget::Task(delivery),
            },
            Command::Answer {
                request,
                decision: Decision::Text { text, images },
            } if request.task == self.task && request.call.is_none() => UncheckedPrompt {
                message: UserMessage { text, images },
                target: PromptTarget::Question(request),
            },
            command => return self.submit_checked(command),
        };
        let mut state = self.control.lock_state();
        if state.is_ended {
            return Err(Rejected::Ended);
        }
        let message = &prompt.message;
        self.check_image_list(&message.images)?;
        if message.text.trim().is_empty() && message.images.is_empty() {
            return Err(Rejected::Invalid("the message is empty".to_owned()));
        }
        state.unchecked += 1;
        let sent = self.control.unchecked.send(prompt);
        sent.map_err(|_| Rejected::Ended)
    }

    /// Submits a command that has nothing to wait for.
    fn submit_checked(&self, command: Command) -> Result<(), Rejected> {
        let mut state = self.control.lock_state();
        if state.is_ended {
            return Err(Rejected::Ended);
        }
        let idle = state.is_idle;
        self.check_images(&command)?;
        match command {
            // Servers outlive the runs of the task, so it does not matter whether one works.
            Command::LogIn { server, address } => match self.hub.0.servers() {
                Some(servers) => {
                    servers.log_in(&server, address);
                    Ok(())
                }
                None => Err(Rejected::Invalid("this task has no MCP servers".to_owned())),
            },
            Command::Send { message, delivery } if idle => {
                if message.text.trim().is_empty() && message.images.is_empty() {
                    return Err(Rejected::Invalid("the message is empty".to_owned()));
                }
                // An idle session has nothing to queue behind or to interrupt.
                _ = delivery;
                // Set here, not by the worker, so that a second message goes to the inbox of the
                // new run.
                state.is_idle = false;
                state.run += 1;
                self.control.send_idle(IdleCommand::Continue(message))
            }
            // While the task works, the mode is switched by the task, since its rules must change
            // with a record.
            Command::SetMode { mode } if idle => self.control.send_idle(IdleCommand::SetMode(mode)),
            Command::SetModel { model } if idle => {
                self.control.send_idle(IdleCommand::SetModel(model))
            }
            Command::Undo { calls, checkpoint } => {
                let target = UndoTarget::new(calls, checkpoint)?;
                match idle {
                    true => self.control.send_idle(IdleCommand::Undo(target)),
                    false => self.end_prompt_for(IdleCommand::Undo(target), &mut state),
                }
            }
            Command::SetModel { model } => {
                self.end_prompt_for(IdleCommand::SetModel(model), &mut state)
            }
            Command::Compact if idle => {
                if state.compaction.is_some() {
                    return Err(Rejected::Busy);
                }
                let stop = Arc::new(Notify::new());
                state.compaction = Some(Arc::clone(&stop));
                self.control.send_idle(IdleCommand::Compact(stop))
            }
            Command::ContextUsage if idle => self.control.send_idle(IdleCommand::ContextUsage),
            Command::End => {
                state.closes = true;
                state.stop_compaction();
                if idle {
                    return self.control.send_idle(IdleCommand::End);
                }
                // A task that only waits for a message does nothing that could be cancelled.
                match self.end_prompt(&mut state) {
                    Err(Rejected::Busy) => self.hub.0.send_command(&self.task, UserCommand::Cancel),
                    ended => ended,
                }
            }
            // A message may be queued until the compaction ends. Its run has not begun, so the
            // interrupt stops only the compaction.
            Command::Interrupt if state.stop_compaction() || idle => Ok(()),
            command => self.deliver_command(&self.task, command, &mut state),
        }
    }

    /// Ends the session as a signal does. A task that waits for a message is cancelled too, since its user did not end it.
    ///
    /// # Errors
    /// When the session is over.
    pub fn cancel(&self) -> Result<(), Rejected> {
        let mut state = self.control.lock_state();
        if state.is_ended {
            return Err(Rejected::Ended);
        }
        state.closes = true;
        state.stop_compaction();
        if state.is_idle {
            return self.control.send_idle(IdleCommand::End);
        }
        self.hub.0.send_command(&self.task, UserCommand::Cancel)
    }

    /// Refuses images that the present model of the task cannot read.
    fn check_images(&self, command: &Command) -> Result<(), Rejected> {
        let images = match command {
            Command::Send { message, .. } => &message.images,
            Command::Answer {
                decision: Decision::Text { images, .. },
                request,
            } if request.task == self.task => images,
            _ => return Ok(()),
        };
        self.check_image_list(images)
    }

    fn check_image_list(&self, images: &[Image]) -> Result<(), Rejected> {
        let support = self.hub.0.image_support().get();
        support
            .check_images(images.to_vec())
            .map(drop)
            .map_err(|error| Rejected::Invalid(error.to_string()))
    }

    /// Returns the id of the session's task.
    pub fn task(&self) -> &TaskId {
        &self.task
    }

    /// Reports whether the session waits for a message and does nothing else.
    pub fn is_idle(&self) -> bool {
        let state = self.control.lock_state();
        state.is_idle && state.compaction.is_none() && state.unchecked == 0
    }

    /// Ends the session if it waits for a message and does nothing else; returns true if it did. Front ends call it for an
    /// interrupt while nothing runs.
    pub fn end_if_waiting(&self) -> bool {
        let mut state = self.control.lock_state();
        if state.is_ended || state.compaction.is_some() || state.unchecked > 0 {
            return false;
        }
        let ended = match state.is_idle {
            true => self.control.send_idle(IdleCommand::End),
            false => self.end_prompt(&mut state),
        };
        state.closes |= ended.is_ok();
        ended.is_ok()
    }

    /// Returns the number of the current run of the session's task, counted from 0. Each message after an end begins another run.
    pub fn run_number(&self) -> u64 {
        self.control.lock_state().run
    }

    /// Submits a command for a working task: the session's own, or a subtask.
    ///
    /// # Errors
    /// When the task does not work in this session, or the command is not possible for it.
    pub fn submit_to(&self, task: &TaskId, command: Command) -> Result<(), Rejected> {
        let is_own = *task == self.task;
        match command {
            Command::Interrupt | Command::End if !is_own => {
                self.hub.0.send_command(task, UserCommand::Cancel)
            }
            Command::SetModel { .. } | Command::Undo { .. } if !is_own => Err(Rejected::Invalid(
                "this is possible for the session's own task only".to_owned(),
            )),
            command if is_own => self.submit(command),
            command => self.deliver_command(task, command, &mut self.control.lock_state()),
        }
    }

    /// Ends a run that only waits for a message; rejected if it does anything else.
    fn end_prompt(&self, state: &mut ControlState) -> Result<(), Rejected> {
        let prompt = self.hub.0.single_prompt(&self.task).ok_or(Rejected::Busy)?;
        state.ends_after_answer = prompt.follows_answer;
        self.hub.0.answer_request(&prompt.request, UserReply::Leave)
    }

    /// Carries out a command of an idle session where the run only waits for a message: the user sees no difference between the two.
    fn end_prompt_for(
        &self,
        command: IdleCommand,
        state: &mut ControlState,
    ) -> Result<(), Rejected> {
        self.end_prompt(state)?;
        self.control.send_idle(command)
    }

    /// Passes a command on to a working task. The caller holds the lock of the state, so that the run cannot end in between.
    fn deliver_command(
        &self,
        task: &TaskId,
        command: Command,
        state: &mut ControlState,
    ) -> Result<(), Rejected> {
        let hub = &self.hub.0;
        match command {
            Command::Send { message, delivery } => {
                hub.send_command(task, UserCommand::Send { message, delivery })
            }
            Command::Answer { request, decision } => {
                // To leave a question is to leave the session, unless a subtask asked it.
                if decision == Decision::Leave && request.task == self.task {
                    state.closes = true;
                    let prompt = hub.single_prompt(&self.task);
                    state.ends_after_answer = prompt.is_some_and(|prompt| prompt.follows_answer);
                }
                hub.answer_request(&request, decision.into())
            }
            Command::SetMode { mode } => hub.send_command(task, UserCommand::SetMode(mode)),
            Command::Compact => hub.send_command(task, UserCommand::Compact),
            Command::ContextUsage => hub.send_command(task, UserCommand::ShowContextUsage),
            Command::Detach => {
                hub.detach_user();
                Ok(())
            }
            Command::Interrupt | Command::End => hub.send_command(task, UserCommand::Cancel),
            Command::SetModel { .. } | Command::Undo { .. } => Err(Rejected::Busy),
            Command::LogIn { .. } => {
                Err(Rejected::Invalid("a subtask has no MCP servers".to_owned()))
            }
        }
    }
}

impl SessionControl {
    /// Locks the state. It is held for moments only, and never across an `await`.
    fn lock_state(&self) -> std::sync::MutexGuard<'_, ControlState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Queues a command for the worker. It is carried out after the commands before it.
    fn send_idle(&self, command: IdleCommand) -> Result<(), Rejected> {
        self.idle.send(command).map_err(|_| Rejected::Ended)
    }
}

/// Drives the task of a session, run after run.
struct SessionWorker {
    host: Host,
    loaded: LoadedSession,
    hub: EventHub,
    control: Arc<SessionControl>,
    commands: UnboundedReceiver<IdleCommand>,
    /// True once a run has sent the notice about the sandbox.
    is_sandbox_known: bool,
}

impl SessionWorker {
    /// Drives the task, waits for a message, and drives it again, until the session is over.
    async fn run_session(mut self) -> SessionOutcome {
        loop {
            let mut end = self.drive_run().await;
            // Without a working store, another run would fail in the same way; a wrong key or model
            // can be corrected. A recording holds one run.
            let stays_open = self.loaded.spec.interactivity == Interactivity::Interactive
                && self.loaded.spec.record == RecordMode::Off
                && end.outcome != TaskOutcome::StoreFailed;
            let LoadedSession { spec, config, .. } = &self.loaded;
            // A check that the user demands has not succeeded, whatever the answer says.
            let has_check = completion_conditions(&spec.completion, &config.limits)
                .check
                .is_some();
            let unread = {
                // Messages are put into the inbox under this lock, so none can come between the
                // last look and the idle state.
                let mut state = self.control.lock_state();
                let unread = self.take_unread_messages();
                let ends_after_answer = std::mem::take(&mut state.ends_after_answer);
                end.follows_answer =
                    ends_after_answer && end.outcome == TaskOutcome::Unfinished && !has_check;
                if !stays_open || state.closes {
                    state.is_ended = true;
                } else if unread.is_some() {
                    state.run += 1;
                } else {
                    state.is_idle = true;
                }
                unread.filter(|_| !state.is_ended)
            };
            // A message arrived after the run took its last one: the user expects an answer, not a
            // prompt.
            if let Some(message) = unread {
                self.continue_with(message);
                continue;
            }
            if self.control.lock_state().is_ended {
                return self.finish_session(end).await;
            }
            self.hub.set_state(SessionState::Idle(end.clone()));
            if !self.wait_for_message(&mut end).await {
                self.control.lock_state().is_ended = true;
                return self.finish_session(end).await;
            }
            self.hub.set_state(SessionState::Working);
        }
    }

    /// Publishes the end of the session and ends all subscriptions.
    async fn finish_session(self, end: TaskEnd) -> SessionOutcome {
        if let Some(hooks) = &self.loaded.setup.hooks {
            let is_left = self.control.lock_state().closes;
            let reason = if is_left {
                "prompt_input_exit"
            } else {
                "other"
            };
            hooks.run_session_end_hooks(reason).await;
        }
        // A request that differs from the recorded one ends the task as misconfigured. The requests
        // that were therefore not made need no second report.
        let complaint = self
            .loaded
            .recording
            .final_error()
            .filter(|_| end.outcome != TaskOutcome::Misconfigured);
        self.hub.set_state(SessionState::Ended(end.clone()));
        // After the last event, so that every subscriber gets it before its stream ends.
        self.hub.close_subscriptions();
        SessionOutcome {
            end,
            recording_error: complaint,
        }
    }

    /// Drives the task until its run ends.
    async fn drive_run(&mut self) -> TaskEnd {
        let LoadedSession {
            setup,
            opened,
            model,
            recording,
            config,
            words,
            images,
            spec,
            ..
        } = &mut self.loaded;
        let task_id = opened.task.start_record().task.clone();
        if let Some(hooks) = &setup.hooks {
            hooks.set_cancel(&setup.cancel);
        }
        if let Some(checkpointer) = &setup.resources.checkpointer {
            checkpointer.set_task(&task_id);
        }
        // It was parsed when the configuration was loaded, so it is not an error here.
        let approval_timeout = config.approval_timeout().ok().flatten();
        let mut front_end = self.hub.front_end(&task_id, None, approval_timeout);
        let mut probe = if std::mem::replace(&mut self.is_sandbox_known, true) {
            SandboxProbe::without_probe(&mut front_end, &config.notices)
        } else {
            let sandbox = &setup.resources.sandbox;
            SandboxProbe::start_probe(
                &mut front_end,
                sandbox,
                &setup.workspace,
                &config.environment,
                &config.notices,
            )
        };
        let history = opened.task.mode_history().clone();
        let modes = ModeSwitcher::new(history, &setup.modes, &setup.workspace, &config.notices)
            .with_image_support(self.hub.image_support());
        // In this order: telemetry sees a record before the mode changes, and checkpoints are taken
        // last, right before a tool runs.
        let mut observers = opened.observers.clone();
        observers.push(Arc::new(modes));
        observers.extend(recording.output_observer());
        observers.extend(setup.common_observers());
        observers.push(Arc::new(ResourceChangeNotifier(self.hub.clone())));
        if spec.previews {
            observers.push(Arc::new(PreviewPublisher {
                hub: self.hub.clone(),
                subtask: None,
            }));
        }
        let ledger = self.hub.ledger();
        ledger.begin_run();
        observers.push(ledger.follow_task(setup.resources.checkpointer.as_ref()));
        if !images.is_empty() {
            opened.task.set_first_images(std::mem::take(images));
        }
        let driven = {
            let mut replayed = ReplayFrontEnd {
                inner: &mut probe,
                recording,
            };
            let driver = TaskDriver {
                model: model.as_ref(),
                registry: &setup.registry,
                store: opened.store.as_mut(),
                front_end: &mut replayed,
                observers,
                cancel: setup.cancel.clone(),
                max_time: setup.max_time,
            };
            driver
                .run(&mut opened.task, opened.first.take(), words.take())
                .await
        };
        // Every run begins with a paused task, so this error would be a mistake in this file.
        let (outcome, message) =
            driven.unwrap_or_else(|error| (TaskOutcome::Misconfigured, error.to_string()));
        probe.send_notice();
        // Nothing that the model started may outlive the run.
        setup.resources.jobs.stop_all().await;
        if outcome == TaskOutcome::StoreFailed {
            // The store could not keep this record, but subscribers still wait for it.
            let ended = Record::Ended {
                outcome,
                message: message.clone(),
                used: Some(Box::new(opened.task.task_usage())),
            };
            front_end.on_event(TaskEvent::Record(&ended));
        }
        TaskEnd {
            outcome,
            message,
            turns: opened.task.turn_count(),
            totals: opened.task.totals(),
            summary: ledger.summarize(),
            tools: opened.task.task_usage().tools,
            follows_answer: false,
        }
    }

    /// Waits for the message that continues the task. Returns false if the session is over.
    async fn wait_for_message(&mut self, end: &mut TaskEnd) -> bool {
        // One after the other: a command sees the effects of those before it. No sender means that
        // all handles and the session are gone.
        while let Some(command) = self.commands.recv().await {
            match command {
                IdleCommand::Continue(message) => {
                    // The user may have corrected the configuration meanwhile.
                    if end.outcome == TaskOutcome::Misconfigured && !self.reload(|_| {}) {
                        return false;
                    }
                    self.continue_with(message);
                    return true;
                }
                IdleCommand::SetMode(mode) => {
                    let wanted = Some(mode.clone());
                    if !self.reload_with(|spec| spec.mode = Some(mode), end) {
                        return false;
                    }
                    // The switch is recorded with the next message, but the user is notified now.
                    // If the mode cannot be used, the reason was sent instead.
                    if let Some(mode) = &self.loaded.spec.mode
                        && self.loaded.spec.mode == wanted
                    {
                        let text = format!("the mode is now {mode}");
                        self.loaded.config.notices.send(NoticeTopic::Mode, text);
                    }
                }
                IdleCommand::SetModel(model) => {
                    let wanted = Some(model.clone());
                    if !self.reload_with(|spec| spec.model = Some(model), end) {
                        return false;
                    }
                    // If the new model cannot be used, the old one stays, and the reason was sent.
                    if let Some(model) = &self.loaded.spec.model
                        && self.loaded.spec.model == wanted
                    {
                        let text = format!("the model is now {model}");
                        self.loaded.config.notices.send(NoticeTopic::Mode, text);
                    }
                }
                IdleCommand::Undo(target) => self.undo_calls(target).await,
                IdleCommand::Compact(stop) => {
                    let continues = self.compact_while_idle(&stop, end).await;
                    self.control.lock_state().compaction = None;
                    if !continues {
                        return false;
                    }
                }
                IdleCommand::ContextUsage => {
                    let usage = self.loaded.opened.task.context_usage();
                    self.hub
                        .publish_event(None, SessionEventKind::ContextUsage(usage));
                }
                IdleCommand::StayIdle => self.hub.set_state(SessionState::Idle(end.clone())),
                IdleCommand::End => return false,
            }
        }
        false
    }

    /// Prepares the next run, which begins with a message.
    fn continue_with(&mut self, message: UserMessage) {
        // Counters of turns and mistakes restart: the limit that ended the last run must not end
        // this one at once.
        self.loaded.opened.task.prepare_next_run();
        self.loaded.words = Some(message.text);
        self.loaded.images = message.images;
    }

    /// Returns the messages that the ended run did not take, combined into one. Other commands in the inbox were meant for that run,
    /// and are dropped.
    fn take_unread_messages(&self) -> Option<UserMessage> {
        let inbox = self
            .hub
            .open_inbox(&self.loaded.opened.task.start_record().task, None);
        let mut unread = UserMessage::default();
        // In the order in which they were sent.
        while let Some(command) = inbox.pop() {
            let UserCommand::Send { message, .. } = command else {
                continue;
            };
            if !unread.text.is_empty() {
                unread.text.push('\n');
            }
            unread.text.push_str(&message.text);
            unread.images.extend(message.images);
        }
        let says_something = !unread.text.trim().is_empty() || !unread.images.is_empty();
        says_something.then_some(unread)
    }

    /// Loads the task again with a changed spec, and stays idle. Returns false as [`Self::reload`] does.
    fn reload_with(
        &mut self,
        change: impl FnOnce(&mut crate::spec::SessionSpec),
        end: &TaskEnd,
    ) -> bool {
        let is_loaded = self.reload(change);
        if is_loaded {
            self.hub.set_state(SessionState::Idle(end.clone()));
        }
        is_loaded
    }

    /// Loads the task again with a changed spec. Returns false if it could be loaded neither with the new spec nor as before; nothing may run without a
    /// journal.
    fn reload(&mut self, change: impl FnOnce(&mut crate::spec::SessionSpec)) -> bool {
        let mut spec = self.loaded.spec.clone();
        // The mode may have been switched since the spec was made, while the task worked.
        let mode = self.loaded.opened.task.mode_history().current_mode();
        spec.mode = Some(mode.to_owned());
        change(&mut spec);
        let task = self.loaded.opened.task.start_record().task.clone();
        // The open store holds the lock of the journal, so it must be dropped before the journal is
        // opened again.
        self.loaded.opened.store = Box::new(crate::recording::NullStore);
        match self.host.reload_task(&task, &spec, &self.hub) {
            Ok(mut loaded) => {
                loaded.setup.cancel = self.control.cancel.clone();
                self.loaded = loaded;
            }
            Err(error) => {
                self.loaded
                    .config
                    .notices
                    .send(NoticeTopic::Mode, error.to_string());
                // Back to the spec that worked. Its store was dropped above, so the task must be
                // loaded again.
                let old = self.loaded.spec.clone();
                match self.host.reload_task(&task, &old, &self.hub) {
                    Ok(mut loaded) => {
                        loaded.setup.cancel = self.control.cancel.clone();
                        self.loaded = loaded;
                    }
                    Err(error) => {
                        let text = format!(
                            "the session ends, because its task cannot be loaded again: {error}"
                        );
                        self.loaded.config.notices.send(NoticeTopic::Recovery, text);
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Undoes calls, and sends a notice with the result. Nothing is undone if the files were changed since.
    async fn undo_calls(&mut self, target: UndoTarget) {
        let text = match &self.loaded.setup.resources.checkpointer {
            None => "checkpoints are off: nothing can be undone".to_owned(),
            Some(checkpointer) => {
                let checkpointer = Arc::clone(checkpointer);
                // It reads and writes files of the user. Awaited here, so that commands after it
                // see the restored files.
                let undone =
                    tokio::task::spawn_blocking(move || checkpointer.undo_calls(target)).await;
                match undone {
                    Ok(Ok(undone)) => undone_text(&undone),
                    Ok(Err(error)) => format!("nothing was undone: {error}"),
                    Err(error) => {
                        format!("the undo failed, and may be incomplete: {error}")
                    }
                }
            }
        };
        self.loaded
            .config
            .notices
            .send(NoticeTopic::Checkpoints, text);
    }

    /// Compacts the context between two runs, with the model's summary. Returns false if the session is over, because the journal
    /// cannot be written; `end` then says so.
    async fn compact_while_idle(&mut self, stop: &Notify, end: &mut TaskEnd) -> bool {
        let hooks = self.loaded.setup.hooks.clone();
        let LoadedSession { opened, model, .. } = &mut self.loaded;
        let task = &mut opened.task;
        // Only a paused task compacts at once; one whose run is over ignores the input.
        task.prepare_next_run();
        let timing = task.compaction_timing();
        self.hub
            .publish_event(None, SessionEventKind::CompactionStatus(timing));
        if timing == CompactionTiming::Nothing {
            return true;
        }
        if let Some(hooks) = &hooks {
            let announced = tokio::select! {
                biased;
                () = stop.notified() => return true,
                announced = hooks.run_pre_compact_hooks(CompactionReason::Asked) => announced,
            };
            if announced.is_err() {
                return true;
            }
        }
        task.step(TaskInput::Compact(SummaryAuthor::Model));
        let waiting = WaitingEvent {
            reason: "the model is asked for a summary of what came before".to_owned(),
            milliseconds: 0,
            attempt: None,
        };
        self.hub
            .publish_event(None, SessionEventKind::Waiting(waiting));
        let request = task.model_request();
        let mut sink = |event: Event<'_>| _ = task.step(TaskInput::ModelEvent(event));
        let answer = tokio::select! {
            biased;
            () = stop.notified() => None,
            answer = model.stream_response(&request, &mut sink) => Some(answer),
        };
        drop(request);
        let Some(answer) = answer else {
            // The task has a part of the summary in it. The journal has none, so the task is loaded
            // again as it was.
            return self.reload_with(|_| {}, end);
        };
        let input = answer.map_or_else(TaskInput::ModelFailed, |()| TaskInput::ModelFinished);
        let mut records: Vec<_> = task
            .step(input)
            .into_iter()
            .filter_map(|effect| match effect {
                TaskEffect::PersistRecord(record) => Some(record),
                _ => None,
            })
            .collect();
        let is_compacted = records
            .iter()
            .any(|record| matches!(record, Record::Context(ContextChange::Compacted(_))));
        // Task lists read only the last record, so the end of the task is recorded again after the
        // compaction.
        records.push(Record::Ended {
            outcome: end.outcome,
            message: end.message.clone(),
            used: Some(Box::new(task.task_usage())),
        });
        end.totals = task.totals();
        match self.keep_records(records) {
            Ok(()) => {
                if let Some(hooks) = hooks.filter(|_| is_compacted) {
                    tokio::select! {
                        biased;
                        () = stop.notified() => {}
                        () = hooks.run_session_start_hooks("compact") => {}
                    }
                }
                true
            }
            Err(error) => {
                end.outcome = TaskOutcome::StoreFailed;
                end.message = error.to_string();
                self.hub.publish_record(Record::Ended {
                    outcome: end.outcome,
                    message: end.message.clone(),
                    used: None,
                });
                false
            }
        }
    }

    /// Appends records of an idle session to the journal, and publishes each one after it was kept.
    ///
    /// Observers are not notified. Telemetry would measure the request from the previous record,
    /// the end of a run that may be hours ago; the other observers follow tools and modes, which a
    /// compaction does not change.
    fn keep_records(&mut self, records: Vec<Record>) -> Result<(), StoreError> {
        for record in records {
            self.loaded.opened.store.append(&record)?;
            self.hub.publish_record(record);
        }
        Ok(())
    }
}
/// Says how many paths were restored, and names the first ones.
fn undone_text(undone: &UndoneCalls) -> String {
    let restored = restored_text(&undone.paths);
    match undone.checkpoint {
        Some(number) => format!("{restored}; the state before is checkpoint @{number}"),
        None => restored,
    }
}

fn restored_text(paths: &[PathBuf]) -> String {
    /// The most paths that are named.
    const MAX_NAMED: usize = 5;
    let verb = if paths.len() == 1 {
        "path was"
    } else {
        "paths were"
    };
    let mut text = format!("{} {verb} restored", paths.len());
    for (at, path) in paths.iter().take(MAX_NAMED).enumerate() {
        text.push_str(if at == 0 { ": " } else { ", " });
        text.push_str(&display_path(path));
    }
    if paths.len() > MAX_NAMED {
        text.push_str(", …");
    }
    text
}
