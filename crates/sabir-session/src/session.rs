//! A session: drives one task in the background, takes commands for it, and outlives its interruptions and completions.

use std::sync::Arc;

use sabir_agent::{
    CancelToken, FrontEnd, Record, TaskDriver, TaskEvent, TaskId, TaskOutcome, UserCommand,
    UserMessage,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::command::{Command, Decision, Rejected};
use crate::error::SessionError;
use crate::event::SessionState;
use crate::host::Host;
use crate::hub::{EventHub, Subscription};
use crate::loading::LoadedSession;
use crate::modes::ModeSwitcher;
use crate::notice::NoticeTopic;
use crate::recording::{RecordingState, ReplayFrontEnd};
use crate::sandbox_probe::SandboxProbe;
use crate::setup::TaskEnd;
use crate::spec::{Interactivity, RecordMode};

/// A task that is driven in the background, on the tokio runtime that started it.
///
/// [`Host::start`](crate::Host::start) and [`Host::load`](crate::Host::load) create sessions. Dropping a session stops its task as a
/// kill would: the task can be resumed from its journal.
#[derive(Debug)]
pub struct Session {
    task: TaskId,
    modes: Vec<String>,
    is_replay: bool,
    hub: HubHandle,
    control: Arc<SessionControl>,
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
    state: std::sync::Mutex<ControlState>,
}

#[derive(Debug, Default)]
struct ControlState {
    /// True between two runs of the task.
    is_idle: bool,
    /// True when the session takes no more commands.
    is_ended: bool,
    /// True if the session ends after the current run.
    closes: bool,
    /// Counts the runs of the task, from 0.
    run: u64,
}

/// A command for an idle session.
#[derive(Debug)]
enum IdleCommand {
    Continue(UserMessage),
    SetMode(String),
    SetModel(String),
    Undo(usize),
    End,
}

impl Session {
    /// Starts to drive a loaded task.
    pub(crate) fn spawn(host: Host, loaded: LoadedSession, hub: EventHub) -> Self {
        let (idle, commands) = unbounded_channel();
        let control = Arc::new(SessionControl {
            cancel: loaded.setup.cancel.clone(),
            idle,
            state: std::sync::Mutex::default(),
        });
        let task = loaded.opened.task.start_record().task.clone();
        // Opened before the task begins, so that no message from now on gets lost.
        hub.open_inbox(&task, None);
        let modes = loaded.setup.modes.mode_names();
        let is_replay = matches!(loaded.recording, RecordingState::Replay { .. });
        let worker = SessionWorker {
            host,
            loaded,
            hub: hub.clone(),
            control: Arc::clone(&control),
            commands,
            is_sandbox_known: false,
        };
        let worker = tokio::spawn(worker.run());
        Self {
            task,
            modes,
            is_replay,
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
            return Err(SessionError::internal("the session was waited for before"));
        };
        worker
            .await
            .map_err(|error| SessionError::internal(format!("the session broke down: {error}")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abort();
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

    /// Submits a command for the session's own task. Never blocks.
    ///
    /// # Errors
    /// When the session is over, or the command is not possible in its present state.
    pub fn submit(&self, command: Command) -> Result<(), Rejected> {
        let mut state = self.control.lock();
        if state.is_ended {
            return Err(Rejected::Ended);
        }
        let idle = state.is_idle;
        match command {
            Command::Send { message, delivery } if idle => {
                if message.text.trim().is_empty() && message.images.is_empty() {
                    return Err(Rejected::Invalid("the message says nothing".to_owned()));
                }
                // An idle session has nothing to queue behind or to interrupt.
                _ = delivery;
                // Set here, not by the worker, so that a second message goes to the inbox of the new run.
                state.is_idle = false;
                state.run += 1;
                self.control.send_idle(IdleCommand::Continue(message))
            }
            Command::SetMode { mode } if idle => self.control.send_idle(IdleCommand::SetMode(mode)),
            Command::SetModel { model } if idle => {
                self.control.send_idle(IdleCommand::SetModel(model))
            }
            Command::Undo { calls } if idle => self.control.send_idle(IdleCommand::Undo(calls)),
            Command::SetModel { .. } | Command::Undo { .. } => Err(Rejected::Busy),
            Command::End => {
                state.closes = true;
                if idle {
                    return self.control.send_idle(IdleCommand::End);
                }
                self.hub.0.tell(&self.task, UserCommand::Cancel)
            }
            Command::Interrupt if idle => Ok(()),
            Command::Compact | Command::ContextUsage if idle => Err(Rejected::Invalid(
                "nothing is under way; `sabir context` shows and compacts the context of a task"
                    .to_owned(),
            )),
            command => self.deliver(&self.task, command, &mut state),
        }
    }

    /// Returns the id of the session's task.
    pub fn task(&self) -> &TaskId {
        &self.task
    }

    /// Reports whether the session waits for a message.
    pub fn is_idle(&self) -> bool {
        self.control.lock().is_idle
    }

    /// Returns the number of the current run of the session's task, counted from 0. Each message after an end begins another run.
    pub fn run_number(&self) -> u64 {
        self.control.lock().run
    }

    /// Submits a command for a working task: the session's own, or a subtask.
    ///
    /// # Errors
    /// When the task does not work in this session, or the command is not possible for it.
    pub fn submit_to(&self, task: &TaskId, command: Command) -> Result<(), Rejected> {
        let is_own = *task == self.task;
        match command {
            Command::Interrupt | Command::End if !is_own => {
                self.hub.0.tell(task, UserCommand::Cancel)
            }
            Command::SetModel { .. } | Command::Undo { .. } if !is_own => Err(Rejected::Invalid(
                "this is possible for the session's own task only".to_owned(),
            )),
            command if is_own => self.submit(command),
            command => self.deliver(task, command, &mut self.control.lock()),
        }
    }

    /// Passes a command on to a working task. The caller holds the lock of the state, so that the run cannot end in between.
    fn deliver(
        &self,
        task: &TaskId,
        command: Command,
        state: &mut ControlState,
    ) -> Result<(), Rejected> {
        let hub = &self.hub.0;
        match command {
            Command::Send { message, delivery } => {
                hub.tell(task, UserCommand::Send { message, delivery })
            }
            Command::Answer { request, decision } => {
                // To leave a question is to leave the session, unless a subtask asked it.
                if decision == Decision::Leave && request.task == self.task {
                    state.closes = true;
                }
                hub.answer(&request, decision.into())
            }
            Command::SetMode { mode } => hub.tell(task, UserCommand::SetMode(mode)),
            Command::Compact => hub.tell(task, UserCommand::Compact),
            Command::ContextUsage => hub.tell(task, UserCommand::ShowContextUsage),
            Command::Detach => {
                hub.detach();
                Ok(())
            }
            Command::Interrupt | Command::End => hub.tell(task, UserCommand::Cancel),
            Command::SetModel { .. } | Command::Undo { .. } => Err(Rejected::Busy),
        }
    }
}

impl SessionControl {
    fn lock(&self) -> std::sync::MutexGuard<'_, ControlState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

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
    async fn run(mut self) -> SessionOutcome {
        loop {
            let end = self.drive().await;
            // Without a working store or configuration, another run would fail in the same way. A recording holds one run.
            let stays_open = self.loaded.spec.interactivity == Interactivity::Interactive
                && self.loaded.spec.record == RecordMode::Off
                && !matches!(
                    end.outcome,
                    TaskOutcome::StoreFailed | TaskOutcome::Misconfigured
                );
            let unread = {
                // Messages are put into the inbox under this lock, so none can come between the last look and the idle state.
                let mut state = self.control.lock();
                let unread = self.take_unread_messages();
                if !stays_open || state.closes {
                    state.is_ended = true;
                } else if unread.is_some() {
                    state.run += 1;
                } else {
                    state.is_idle = true;
                }
                unread.filter(|_| !state.is_ended)
            };
            if let Some(message) = unread {
                self.continue_with(message);
                continue;
            }
            if self.control.lock().is_ended {
                return self.finish(end);
            }
            self.hub.set_state(SessionState::Idle(end.clone()));
            if !self.wait_for_message(&end).await {
                self.control.lock().is_ended = true;
                return self.finish(end);
            }
            self.hub.set_state(SessionState::Working);
        }
    }

    fn finish(self, end: TaskEnd) -> SessionOutcome {
        // A request that differs from the recorded one ends the task as misconfigured. That the later requests were not made either
        // is then no news.
        let complaint = self
            .loaded
            .recording
            .final_error()
            .filter(|_| end.outcome != TaskOutcome::Misconfigured);
        self.hub.set_state(SessionState::Ended(end.clone()));
        self.hub.close();
        SessionOutcome {
            end,
            recording_error: complaint,
        }
    }

    /// Drives the task until its run ends.
    async fn drive(&mut self) -> TaskEnd {
        let LoadedSession {
            setup,
            opened,
            model,
            recording,
            config,
            words,
            images,
            ..
        } = &mut self.loaded;
        let task_id = opened.task.start_record().task.clone();
        if let Some(checkpointer) = &setup.resources.checkpointer {
            checkpointer.set_task(&task_id);
        }
        let answer_limit = config.answer_limit().ok().flatten();
        let mut front_end = self.hub.front_end(&task_id, None, answer_limit);
        let mut probe = if std::mem::replace(&mut self.is_sandbox_known, true) {
            SandboxProbe::finished(&mut front_end, &config.notices)
        } else {
            let sandbox = &setup.resources.sandbox;
            SandboxProbe::start(
                &mut front_end,
                sandbox,
                &setup.workspace,
                &config.environment,
                &config.notices,
            )
        };
        let history = opened.task.mode_history().clone();
        let modes = ModeSwitcher::new(history, &setup.modes, &setup.workspace, &config.notices);
        let mut observers = opened.observers.clone();
        observers.push(Arc::new(modes));
        observers.extend(recording.observer());
        observers.extend(setup.observers());
        if !images.is_empty() {
            opened.task.bring(std::mem::take(images));
        }
        let (outcome, message) = {
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
        probe.finish();
        setup.resources.jobs.stop_all().await;
        if outcome == TaskOutcome::StoreFailed {
            // The store could not keep this record, but subscribers still wait for it.
            let ended = Record::Ended {
                outcome,
                message: message.clone(),
            };
            front_end.on_event(TaskEvent::Record(&ended));
        }
        TaskEnd {
            outcome,
            message,
            turns: opened.task.turn_count(),
            totals: opened.task.totals(),
        }
    }

    /// Waits for the message that continues the task. Returns false if the session is over.
    async fn wait_for_message(&mut self, end: &TaskEnd) -> bool {
        while let Some(command) = self.commands.recv().await {
            match command {
                IdleCommand::Continue(message) => {
                    self.continue_with(message);
                    return true;
                }
                IdleCommand::SetMode(mode) => {
                    if !self.reload(|spec| spec.mode = Some(mode), end) {
                        return false;
                    }
                }
                IdleCommand::SetModel(model) => {
                    if !self.reload(|spec| spec.model = Some(model), end) {
                        return false;
                    }
                }
                IdleCommand::Undo(calls) => self.undo(calls),
                IdleCommand::End => return false,
            }
        }
        false
    }

    fn continue_with(&mut self, message: UserMessage) {
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

    /// Loads the task again with a changed spec. False: it could be loaded neither so nor as before, and nothing may run without a
    /// journal.
    fn reload(
        &mut self,
        change: impl FnOnce(&mut crate::spec::SessionSpec),
        end: &TaskEnd,
    ) -> bool {
        let mut spec = self.loaded.spec.clone();
        change(&mut spec);
        let task = self.loaded.opened.task.start_record().task.clone();
        // The open store holds the lock of the journal, so it must be dropped before the journal is opened again.
        self.loaded.opened.store = Box::new(crate::recording::NullStore);
        match self.host.reload(&task, &spec, &self.hub) {
            Ok(mut loaded) => {
                loaded.setup.cancel = self.control.cancel.clone();
                self.loaded = loaded;
            }
            Err(error) => {
                self.loaded
                    .config
                    .notices
                    .send(NoticeTopic::Mode, error.to_string());
                // Back to the spec that worked. Its store was dropped above, so the task must be loaded again.
                let old = self.loaded.spec.clone();
                match self.host.reload(&task, &old, &self.hub) {
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
        self.hub.set_state(SessionState::Idle(end.clone()));
        true
    }

    /// Undoes the last changing calls, and sends a notice with the result. Nothing is undone if the files were changed since.
    fn undo(&self, calls: usize) {
        let Some(checkpointer) = &self.loaded.setup.resources.checkpointer else {
            let text = "checkpoints are off: nothing can be undone";
            return self
                .loaded
                .config
                .notices
                .send(NoticeTopic::Checkpoints, text);
        };
        let text = match checkpointer.undo(calls) {
            Ok(done) => format!(
                "{done} {} brought back",
                if done == 1 { "path was" } else { "paths were" }
            ),
            Err(error) => format!("nothing was undone: {error}"),
        };
        self.loaded
            .config
            .notices
            .send(NoticeTopic::Checkpoints, text);
    }
}
