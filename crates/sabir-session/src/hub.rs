//! Connects a session's tasks with its front ends: tasks publish events, front ends subscribe, and commands reach their task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_agent::{
    CommandQueue, FrontEnd, MessageAuthor, Record, TaskEvent, TaskId, TaskStart, UserCommand,
    UserNotice, UserQuestion, UserReply,
};
use sabir_mcp::McpServers;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::command::Rejected;
use crate::event::{
    CloseReason, RequestId, SessionEvent, SessionEventKind, SessionSnapshot, SessionState,
    SubtaskLabel,
};
use crate::images::CurrentImageSupport;
use crate::notice::{Notice, NoticeSink};
use crate::run_summary::RunLedger;

/// Connects the tasks of a session with its front ends. Clones share the hub.
#[derive(Clone)]
pub(crate) struct EventHub(Arc<Mutex<HubState>>);

/// The shared state of a hub. Everything is behind one lock, so that each subscriber sees all
/// events in one order.
struct HubState {
    /// The number of events so far.
    sequence: u64,
    /// The start of the task; `None` while it is being loaded, when there are notices only.
    start: Option<TaskStart>,
    /// The records of the session's own task, for snapshots.
    records: Vec<Arc<Record>>,
    /// The notices so far, for snapshots: most are sent before anybody can subscribe.
    notices: Vec<Notice>,
    /// The open questions, the oldest first.
    requests: Vec<OpenRequest>,
    /// The inboxes of the tasks that work, and that of the session's own task.
    inboxes: Vec<TaskInbox>,
    /// One channel for each subscriber. They are unbounded: a slow one must not delay the task.
    subscribers: Vec<UnboundedSender<Arc<SessionEvent>>>,
    /// The activity of the session.
    state: SessionState,
    /// True when questions can no longer be asked.
    is_detached: bool,
    /// The summary of the present run.
    ledger: RunLedger,
    /// The support for images of the model of the session's own task.
    image_support: CurrentImageSupport,
    /// The MCP servers of the session, which outlive the runs of its task.
    servers: Option<Arc<McpServers>>,
    /// The number of questions that servers have asked.
    server_questions: u64,
}

/// A question that has no answer yet.
struct OpenRequest {
    id: RequestId,
    question: UserQuestion,
    /// True if an MCP server asks during a call; the request stays open while the task continues.
    is_from_server: bool,
    /// Takes the answer; `None` while the driver does not wait for it.
    answer: Option<oneshot::Sender<UserReply>>,
}

/// The request for a message of a task that waits for nothing else.
pub(crate) struct SinglePrompt {
    pub(crate) request: RequestId,
    /// True if the model has answered; false if something went wrong, and the user must say how to continue.
    pub(crate) follows_answer: bool,
}

/// The queue of commands for a working task.
struct TaskInbox {
    task: TaskId,
    subtask: Option<Arc<SubtaskLabel>>,
    commands: CommandQueue,
}

/// The front end of one task: the driver sends its events to it and asks it questions, and it passes both to the hub.
pub(crate) struct HubFrontEnd {
    hub: EventHub,
    task: TaskId,
    subtask: Option<Arc<SubtaskLabel>>,
    commands: Option<CommandQueue>,
    /// The time after which an unanswered approval is denied; `None` for no limit.
    approval_timeout: Option<Duration>,
}

/// A stream of session events. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    /// The first update; `None` once it was taken.
    snapshot: Option<Box<SessionSnapshot>>,
    /// The events after the snapshot.
    events: UnboundedReceiver<Arc<SessionEvent>>,
}

/// One item of a [`Subscription`].
#[derive(Debug, Clone)]
pub enum SessionUpdate {
    /// The session as it was when the subscription began; always the first update.
    Snapshot(Box<SessionSnapshot>),
    /// An event.
    Event(Arc<SessionEvent>),
}

impl Subscription {
    /// Waits for the next update; `None` means that the session is over and everything was delivered. Dropping the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<SessionUpdate> {
        if let Some(snapshot) = self.snapshot.take() {
            return Some(SessionUpdate::Snapshot(snapshot));
        }
        self.events.recv().await.map(SessionUpdate::Event)
    }

    /// Returns the next update, if there is one already.
    pub fn try_next(&mut self) -> Option<SessionUpdate> {
        if let Some(snapshot) = self.snapshot.take() {
            return Some(SessionUpdate::Snapshot(snapshot));
        }
        self.events.try_recv().ok().map(SessionUpdate::Event)
    }
}

impl EventHub {
    /// Returns the ledger of the present run, which the session's task and its subtasks share.
    pub(crate) fn ledger(&self) -> RunLedger {
        self.lock_state().ledger.clone()
    }

    /// Returns the support for images of the model that the task asks, which follows its mode.
    pub(crate) fn image_support(&self) -> CurrentImageSupport {
        self.lock_state().image_support.clone()
    }

    /// Creates a hub without subscribers.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(HubState {
            sequence: 0,
            start: None,
            records: Vec::new(),
            notices: Vec::new(),
            requests: Vec::new(),
            inboxes: Vec::new(),
            subscribers: Vec::new(),
            state: SessionState::Working,
            is_detached: false,
            ledger: RunLedger::default(),
            image_support: CurrentImageSupport::default(),
            servers: None,
            server_questions: 0,
        })))
    }

    /// Returns the MCP servers of the session.
    pub(crate) fn servers(&self) -> Option<Arc<McpServers>> {
        self.lock_state().servers.clone()
    }

    /// Sets the MCP servers of the session; those before it end.
    pub(crate) fn set_servers(&self, servers: Option<Arc<McpServers>>) {
        let before = std::mem::replace(&mut self.lock_state().servers, servers);
        // After the lock is released: ending servers may send notices.
        drop(before);
    }

    /// Asks the user a question of an MCP server. `question` makes it with the id of a call of its own. Dropping the future withdraws it.
    pub(crate) async fn ask_for_server(
        &self,
        question: impl FnOnce(String) -> UserQuestion,
    ) -> UserReply {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut state = self.lock_state();
            let Some(task) = state.start.as_ref().map(|start| start.task.clone()) else {
                return UserReply::Leave;
            };
            if state.is_detached {
                return UserReply::Leave;
            }
            state.server_questions += 1;
            let question = question(format!("server-question-{}", state.server_questions));
            let id = RequestId {
                task,
                call: question.call_id().cloned(),
            };
            state.requests.push(OpenRequest {
                id: id.clone(),
                question: question.clone(),
                is_from_server: true,
                answer: Some(sender),
            });
            let kind = SessionEventKind::Request {
                request: id.clone(),
                question,
            };
            state.publish_event(None, kind);
            id
        };
        let _withdrawn = ServerQuestion {
            hub: self.clone(),
            id,
        };
        receiver.await.unwrap_or(UserReply::Leave)
    }

    /// Locks the state. Nothing is called under this lock that could take it again, or wait.
    fn lock_state(&self) -> MutexGuard<'_, HubState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a sink whose notices become events of the session.
    pub(crate) fn notice_sink(&self) -> NoticeSink {
        let hub = self.clone();
        NoticeSink::new(move |notice| {
            let mut state = hub.lock_state();
            // Kept and published under one lock, or a new subscriber could get it twice or not at
            // all.
            state.notices.push(notice.clone());
            state.publish_event(None, SessionEventKind::Notice(notice));
        })
    }

    /// Sets the start of the task and its earlier records. Snapshots are available from now on.
    pub(crate) fn set_history(&self, start: TaskStart, records: Vec<Record>) {
        let mut state = self.lock_state();
        state.start = Some(start);
        // No event is published for these records: new subscribers get them in the snapshot.
        state.records = records.into_iter().map(Arc::new).collect();
    }

    /// Publishes an event of the session's own task, or of a subtask.
    pub(crate) fn publish_event(&self, subtask: Option<Arc<SubtaskLabel>>, kind: SessionEventKind) {
        self.lock_state().publish_event(subtask, kind);
    }

    /// Publishes a record of the session's own task that no driver has kept, and adds it to later snapshots.
    pub(crate) fn publish_record(&self, record: Record) {
        let mut state = self.lock_state();
        // Shared by the snapshot list and all subscribers: a record can hold a whole file.
        let record = Arc::new(record);
        state.records.push(Arc::clone(&record));
        state.publish_event(None, SessionEventKind::Record(record));
    }

    /// Sets the activity of the session, and publishes it.
    pub(crate) fn set_state(&self, session_state: SessionState) {
        let mut state = self.lock_state();
        state.state = session_state.clone();
        state.publish_event(None, SessionEventKind::State(session_state));
    }

    /// Ends all subscriptions, after the events that were published.
    pub(crate) fn close_subscriptions(&self) {
        self.set_servers(None);
        let mut state = self.lock_state();
        state.inboxes.clear();
        state.subscribers.clear();
    }

    /// Subscribes to the events from now on, after a snapshot of the session.
    pub(crate) fn subscribe(&self) -> Subscription {
        let (sender, events) = unbounded_channel();
        // Snapshot and registration under one lock, so that no event falls between them and none
        // comes twice.
        let mut state = self.lock_state();
        // A late subscriber misses passing events: deltas of answers, the output of tools, and
        // everything of subtasks but their open questions. The results of calls and subtasks are in
        // the records.
        let snapshot = state.start.clone().map(|start| {
            Box::new(SessionSnapshot {
                start,
                records: state.records.clone(),
                notices: state.notices.clone(),
                requests: state
                    .requests
                    .iter()
                    .map(|open| (open.id.clone(), open.question.clone()))
                    .collect(),
                state: state.state.clone(),
                sequence: state.sequence,
            })
        });
        // A session that is over publishes nothing any more: the stream ends after the snapshot.
        if !matches!(state.state, SessionState::Ended(_)) {
            state.subscribers.push(sender);
        }
        Subscription { snapshot, events }
    }

    /// Creates the front end of a task. `subtask` is `None` for the session's own task.
    pub(crate) fn front_end(
        &self,
        task: &TaskId,
        subtask: Option<SubtaskLabel>,
        approval_timeout: Option<Duration>,
    ) -> HubFrontEnd {
        let commands = self.open_inbox(task, subtask.clone());
        let subtask = subtask.map(Arc::new);
        // A task that begins after the user went away must not ask them.
        if self.lock_state().is_detached {
            commands.push(UserCommand::Disconnect);
        }
        HubFrontEnd {
            hub: self.clone(),
            task: task.clone(),
            subtask,
            commands: Some(commands),
            approval_timeout,
        }
    }

    /// Returns the inbox of a task, and opens it first if necessary. The inbox of the session's own task stays open between its runs,
    /// so that no message gets lost.
    pub(crate) fn open_inbox(&self, task: &TaskId, subtask: Option<SubtaskLabel>) -> CommandQueue {
        let mut state = self.lock_state();
        // Found where a run begins: the session opened it before, and messages may wait in it.
        if let Some(inbox) = state.inboxes.iter().find(|inbox| inbox.task == *task) {
            return inbox.commands.clone();
        }
        let commands = CommandQueue::default();
        let inbox = TaskInbox {
            task: task.clone(),
            subtask: subtask.map(Arc::new),
            commands: commands.clone(),
        };
        state.inboxes.push(inbox);
        commands
    }

    /// Passes a command on to a working task.
    pub(crate) fn send_command(&self, task: &TaskId, command: UserCommand) -> Result<(), Rejected> {
        // The lock is held while the command is pushed, so that the inbox is not dropped in
        // between.
        let state = self.lock_state();
        let inbox = state.inboxes.iter().find(|inbox| inbox.task == *task);
        let inbox = inbox.ok_or_else(|| Rejected::NoSuchTask(task.clone()))?;
        inbox.commands.push(command);
        Ok(())
    }

    /// Tells all tasks, also those that start later, that nobody can be asked.
    pub(crate) fn detach_user(&self) {
        let mut state = self.lock_state();
        state.is_detached = true;
        state
            .inboxes
            .iter()
            .for_each(|inbox| inbox.commands.push(UserCommand::Disconnect));
    }

    /// Returns the request for a message that a task waits for, if it waits for nothing else and no command is on its way to it.
    pub(crate) fn single_prompt(&self, task: &TaskId) -> Option<SinglePrompt> {
        let state = self.lock_state();
        let has_commands = state
            .inboxes
            .iter()
            .any(|inbox| inbox.task == *task && !inbox.commands.is_empty());
        let is_prompt = |open: &&OpenRequest| open.id.task == *task && open.answer.is_some();
        let open = state.requests.iter().find(is_prompt)?;
        let UserQuestion::Next { reason } = &open.question else {
            return None;
        };
        (!has_commands).then(|| SinglePrompt {
            request: open.id.clone(),
            follows_answer: reason.is_empty(),
        })
    }

    /// Publishes an open question once more, whose answer a hook has held back.
    pub(crate) fn repeat_request(&self, request: &RequestId) {
        let mut state = self.lock_state();
        let open = state.requests.iter().find(|open| open.id == *request);
        let Some(question) = open.map(|open| open.question.clone()) else {
            return;
        };
        // Closed first: a front end takes a question that it knows for one that it has answered.
        let request = request.clone();
        let closed = SessionEventKind::RequestClosed {
            request: request.clone(),
            reason: CloseReason::Withdrawn,
        };
        state.publish_event(None, closed);
        state.publish_event(None, SessionEventKind::Request { request, question });
    }

    /// Answers an open question.
    pub(crate) fn answer_request(
        &self,
        request: &RequestId,
        reply: UserReply,
    ) -> Result<(), Rejected> {
        let mut state = self.lock_state();
        let unknown = || Rejected::NoSuchRequest(request.clone());
        let open = state
            .requests
            .iter_mut()
            .find(|open| open.id == *request)
            .ok_or_else(unknown)?;
        if open.is_from_server {
            let answer = open.answer.take().ok_or_else(unknown)?;
            return answer.send(reply).map_err(|_| unknown());
        }
        let Some(call) = request.call.clone() else {
            // A question without a call is answered through the driver's wait, which may not have
            // begun yet.
            let answer = open.answer.take().ok_or_else(unknown)?;
            return answer.send(reply).map_err(|_| unknown());
        };
        // Through the inbox, so that an answer and the messages after it keep their order.
        let inbox = state
            .inboxes
            .iter()
            .find(|inbox| inbox.task == request.task)
            .ok_or_else(unknown)?;
        inbox.commands.push(UserCommand::Answer(call, reply));
        let label = inbox.subtask.clone();
        // Closed at once: a second answer must be rejected, also before the driver has taken the
        // first.
        state.close_request(&request.task, label, CloseReason::Answered);
        Ok(())
    }
}

impl HubState {
    /// Numbers an event and sends it to all subscribers. Those that are gone are removed.
    fn publish_event(&mut self, subtask: Option<Arc<SubtaskLabel>>, kind: SessionEventKind) {
        self.sequence += 1;
        if self.subscribers.is_empty() {
            return;
        }
        let event = Arc::new(SessionEvent {
            sequence: self.sequence,
            subtask,
            kind,
        });
        self.subscribers
            .retain(|subscriber| subscriber.send(Arc::clone(&event)).is_ok());
    }

    /// Removes the open question of a task, if it has one.
    fn close_request(
        &mut self,
        task: &TaskId,
        subtask: Option<Arc<SubtaskLabel>>,
        reason: CloseReason,
    ) {
        let mut requests = self.requests.iter();
        let Some(at) = requests.position(|open| open.id.task == *task && !open.is_from_server)
        else {
            return;
        };
        let request = self.requests.remove(at).id;
        self.publish_event(subtask, SessionEventKind::RequestClosed { request, reason });
    }
}

/// Removes a question of a server when it was answered or withdrawn.
struct ServerQuestion {
    hub: EventHub,
    id: RequestId,
}

impl Drop for ServerQuestion {
    fn drop(&mut self) {
        let mut state = self.hub.lock_state();
        let mut requests = state.requests.iter();
        let Some(at) = requests.position(|open| open.id == self.id) else {
            return;
        };
        let open = state.requests.remove(at);
        let reason = match open.answer {
            None => CloseReason::Answered,
            Some(_) => CloseReason::Withdrawn,
        };
        let request = open.id;
        state.publish_event(None, SessionEventKind::RequestClosed { request, reason });
    }
}

impl HubFrontEnd {
    /// Waits for the answer to a question that was published, or publishes it again.
    async fn wait_for_answer(&mut self, question: &UserQuestion) -> UserReply {
        let id = RequestId {
            task: self.task.clone(),
            call: question.call_id().cloned(),
        };
        // A new channel for each wait: the driver drops the wait and begins another when a message
        // comes in.
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.hub.lock_state();
            match state.requests.iter_mut().find(|open| open.id == id) {
                Some(open) => open.answer = Some(sender),
                None => {
                    // Another event closed the question before the driver began to wait, so it is
                    // published again.
                    let kind = SessionEventKind::Request {
                        request: id.clone(),
                        question: question.clone(),
                    };
                    state.requests.push(OpenRequest {
                        id,
                        question: question.clone(),
                        is_from_server: false,
                        answer: Some(sender),
                    });
                    state.publish_event(self.subtask.clone(), kind);
                }
            }
        }
        let limit = self
            .approval_timeout
            // Only approvals have a safe answer, which is no. Other questions wait for the user.
            .filter(|_| matches!(question, UserQuestion::Approval { .. }));
        let answered = async {
            match receiver.await {
                Ok(reply) => reply,
                // The hub dropped the question, so nobody will answer. The driver drops this
                // future.
                Err(_) => std::future::pending().await,
            }
        };
        let Some(limit) = limit else {
            let reply = answered.await;
            self.close_request(CloseReason::Answered);
            return reply;
        };
        match tokio::time::timeout(limit, answered).await {
            Ok(reply) => {
                self.close_request(CloseReason::Answered);
                reply
            }
            Err(_) => {
                self.close_request(CloseReason::TimedOut);
                UserReply::No(format!(
                    "nobody answered within {} seconds",
                    limit.as_secs()
                ))
            }
        }
    }

    fn close_request(&self, reason: CloseReason) {
        self.hub
            .lock_state()
            .close_request(&self.task, self.subtask.clone(), reason);
    }
}

impl FrontEnd for HubFrontEnd {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        let mut state = self.hub.lock_state();
        if let TaskEvent::Transient(sabir_agent::TransientEvent::Asking { .. }) = event
            && let Some(servers) = &state.servers
        {
            // Their start would compete with the request for the processors.
            servers.note_request();
        }
        let is_said = matches!(
            event,
            TaskEvent::Record(Record::Said {
                by: MessageAuthor::User,
                ..
            })
        );
        let is_question = matches!(
            event,
            TaskEvent::Transient(sabir_agent::TransientEvent::Question(_))
        );
        // A user's message leaves the question open; any other event means that the task moved on.
        if !is_said {
            state.close_request(&self.task, self.subtask.clone(), CloseReason::Withdrawn);
        }
        if self.subtask.is_none()
            && let TaskEvent::Record(record) = event
        {
            let record = Arc::new(record.clone());
            state.records.push(Arc::clone(&record));
            state.publish_event(None, SessionEventKind::Record(record));
            return;
        }
        // Without subscribers the event is only counted. A question is kept, for the snapshot of a
        // later subscriber.
        if state.subscribers.is_empty() && !is_question {
            state.sequence += 1;
            return;
        }
        let Some(kind) = SessionEventKind::from_task_event(event, &self.task) else {
            return;
        };
        if let SessionEventKind::Request { request, question } = &kind {
            state.requests.push(OpenRequest {
                id: request.clone(),
                question: question.clone(),
                is_from_server: false,
                answer: None,
            });
        }
        state.publish_event(self.subtask.clone(), kind);
    }

    fn notify(&mut self, aside: UserNotice<'_>) {
        let kind = match aside {
            UserNotice::ContextUsage(filling) => SessionEventKind::ContextUsage(filling.clone()),
            UserNotice::Compaction(compaction) => SessionEventKind::CompactionStatus(compaction),
        };
        self.hub.publish_event(self.subtask.clone(), kind);
    }

    fn commands(&mut self) -> Option<CommandQueue> {
        self.commands.take()
    }

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        Box::pin(self.wait_for_answer(question))
    }
}

impl Drop for HubFrontEnd {
    fn drop(&mut self) {
        let mut state = self.hub.lock_state();
        state.close_request(&self.task, self.subtask.clone(), CloseReason::Withdrawn);
        if self.subtask.is_some() {
            state.inboxes.retain(|inbox| inbox.task != self.task);
        }
    }
}
