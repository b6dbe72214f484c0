//! Connects a session's tasks with its front ends: tasks publish events, front ends subscribe, and commands reach their task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_agent::{
    CommandQueue, FrontEnd, MessageAuthor, Record, TaskEvent, TaskId, TaskStart, UserCommand,
    UserNotice, UserQuestion, UserReply,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::command::Rejected;
use crate::event::{
    CloseReason, RequestId, SessionEvent, SessionEventKind, SessionSnapshot, SessionState,
    SubtaskLabel,
};
use crate::notice::{Notice, NoticeSink};

/// Connects the tasks of a session with its front ends. Clones share the hub.
#[derive(Clone)]
pub(crate) struct EventHub(Arc<Mutex<HubState>>);

struct HubState {
    sequence: u64,
    start: Option<TaskStart>,
    records: Vec<Arc<Record>>,
    notices: Vec<Notice>,
    requests: Vec<OpenRequest>,
    inboxes: Vec<TaskInbox>,
    subscribers: Vec<UnboundedSender<Arc<SessionEvent>>>,
    state: SessionState,
    /// True when nobody can be asked any more.
    is_detached: bool,
}

/// A question that has no answer yet.
struct OpenRequest {
    id: RequestId,
    question: UserQuestion,
    /// Takes the answer; `None` while the driver does not wait for it.
    answer: Option<oneshot::Sender<UserReply>>,
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
    answer_limit: Option<Duration>,
}

/// A stream of session events. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    snapshot: Option<Box<SessionSnapshot>>,
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
        })))
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a sink whose notices become events of the session.
    pub(crate) fn notice_sink(&self) -> NoticeSink {
        let hub = self.clone();
        NoticeSink::new(move |notice| {
            let mut state = hub.lock();
            state.notices.push(notice.clone());
            state.publish(None, SessionEventKind::Notice(notice));
        })
    }

    /// Sets the start of the task and its earlier records. Snapshots are available from now on.
    pub(crate) fn set_history(&self, start: TaskStart, records: Vec<Record>) {
        let mut state = self.lock();
        state.start = Some(start);
        state.records = records.into_iter().map(Arc::new).collect();
    }

    pub(crate) fn publish(&self, subtask: Option<Arc<SubtaskLabel>>, kind: SessionEventKind) {
        self.lock().publish(subtask, kind);
    }

    pub(crate) fn set_state(&self, session_state: SessionState) {
        let mut state = self.lock();
        state.state = session_state.clone();
        state.publish(None, SessionEventKind::State(session_state));
    }

    /// Ends all subscriptions, after the events that were published.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.inboxes.clear();
        state.subscribers.clear();
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let (sender, events) = unbounded_channel();
        // Snapshot and registration under one lock, so that no event falls between them and none comes twice.
        let mut state = self.lock();
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
        answer_limit: Option<Duration>,
    ) -> HubFrontEnd {
        let commands = self.open_inbox(task, subtask.clone());
        let subtask = subtask.map(Arc::new);
        if self.lock().is_detached {
            commands.push(UserCommand::Disconnect);
        }
        HubFrontEnd {
            hub: self.clone(),
            task: task.clone(),
            subtask,
            commands: Some(commands),
            answer_limit,
        }
    }

    /// Returns the inbox of a task, and opens it first if necessary. The inbox of the session's own task stays open between its runs,
    /// so that no message gets lost.
    pub(crate) fn open_inbox(&self, task: &TaskId, subtask: Option<SubtaskLabel>) -> CommandQueue {
        let mut state = self.lock();
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
    pub(crate) fn tell(&self, task: &TaskId, heard: UserCommand) -> Result<(), Rejected> {
        let state = self.lock();
        let inbox = state.inboxes.iter().find(|inbox| inbox.task == *task);
        let inbox = inbox.ok_or_else(|| Rejected::NoSuchTask(task.clone()))?;
        inbox.commands.push(heard);
        Ok(())
    }

    /// Tells all tasks, also those that start later, that nobody can be asked.
    pub(crate) fn detach(&self) {
        let mut state = self.lock();
        state.is_detached = true;
        state
            .inboxes
            .iter()
            .for_each(|inbox| inbox.commands.push(UserCommand::Disconnect));
    }

    /// Answers an open question.
    pub(crate) fn answer(&self, request: &RequestId, reply: UserReply) -> Result<(), Rejected> {
        let mut state = self.lock();
        let unknown = || Rejected::NoSuchRequest(request.clone());
        let open = state
            .requests
            .iter_mut()
            .find(|open| open.id == *request)
            .ok_or_else(unknown)?;
        let Some(call) = request.call.clone() else {
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
        state.close_request(&request.task, label, CloseReason::Answered);
        Ok(())
    }
}

impl HubState {
    fn publish(&mut self, subtask: Option<Arc<SubtaskLabel>>, kind: SessionEventKind) {
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
        let Some(at) = self.requests.iter().position(|open| open.id.task == *task) else {
            return;
        };
        let request = self.requests.remove(at).id;
        self.publish(subtask, SessionEventKind::RequestClosed { request, reason });
    }
}

impl HubFrontEnd {
    async fn wait_for_answer(&mut self, question: &UserQuestion) -> UserReply {
        let id = RequestId {
            task: self.task.clone(),
            call: question.call_id().cloned(),
        };
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.hub.lock();
            match state.requests.iter_mut().find(|open| open.id == id) {
                Some(open) => open.answer = Some(sender),
                None => {
                    // Another event closed the question before the driver began to wait, so it is published again.
                    let kind = SessionEventKind::Request {
                        request: id.clone(),
                        question: question.clone(),
                    };
                    state.requests.push(OpenRequest {
                        id,
                        question: question.clone(),
                        answer: Some(sender),
                    });
                    state.publish(self.subtask.clone(), kind);
                }
            }
        }
        let limit = self
            .answer_limit
            .filter(|_| matches!(question, UserQuestion::Approval { .. }));
        let answered = async {
            match receiver.await {
                Ok(reply) => reply,
                // The hub dropped the question, so nobody will answer. The driver drops this future.
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
            .lock()
            .close_request(&self.task, self.subtask.clone(), reason);
    }
}

impl FrontEnd for HubFrontEnd {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        let mut state = self.hub.lock();
        let is_said = matches!(
            event,
            TaskEvent::Record(Record::Said {
                by: MessageAuthor::User,
                ..
            })
        );
        let is_question = matches!(
            event,
            TaskEvent::Moment(sabir_agent::TransientEvent::Question(_))
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
            state.publish(None, SessionEventKind::Record(record));
            return;
        }
        // Nobody listens: the event is only counted. A question is kept, for the snapshot of a later subscriber.
        if state.subscribers.is_empty() && !is_question {
            state.sequence += 1;
            return;
        }
        let Some(kind) = SessionEventKind::of_task_event(event, &self.task) else {
            return;
        };
        if let SessionEventKind::Request { request, question } = &kind {
            state.requests.push(OpenRequest {
                id: request.clone(),
                question: question.clone(),
                answer: None,
            });
        }
        state.publish(self.subtask.clone(), kind);
    }

    fn notify(&mut self, aside: UserNotice<'_>) {
        let kind = match aside {
            UserNotice::ContextUsage(filling) => SessionEventKind::ContextUsage(filling.clone()),
            UserNotice::Compaction(compaction) => SessionEventKind::CompactionStatus(compaction),
        };
        self.hub.publish(self.subtask.clone(), kind);
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
        let mut state = self.hub.lock();
        state.close_request(&self.task, self.subtask.clone(), CloseReason::Withdrawn);
        if self.subtask.is_some() {
            state.inboxes.retain(|inbox| inbox.task != self.task);
        }
    }
}
