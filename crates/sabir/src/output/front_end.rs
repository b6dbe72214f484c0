//! Implements the front ends of a session: terminal line mode, headless progress, JSON lines with
//! or without control input, and notices only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sabir_agent::{
    CommandQueue, FrontEnd, Record, TaskEvent, TaskId, TaskOutcome, TransientEvent, UserCommand,
    UserNotice, UserQuestion, UserReply,
};
use sabir_session::{
    CloseReason, Command, Decision, Delivery, RequestId, SessionEvent, SessionEventKind,
    SessionHandle, SessionState, SessionUpdate, Subscription, SubtaskLabel, TaskEnd, UserMessage,
    WaitingEvent,
};

use crate::output::control_input::ControlInput;
use crate::output::event_lines::EventLines;
use crate::output::subtask_renderer::SubtaskRenderer;
use crate::output::{cost_text, print};
use crate::surroundings;

/// A front end for a person that can also show lines about subtasks.
pub(crate) trait Audience: FrontEnd {
    /// Shows whole lines about a subtask, between the events of the task.
    fn write(&mut self, lines: &str);

    /// Reports that a question timed out.
    fn show_timeout(&mut self) {}
}

/// Shows a session to a person and asks them one question at a time, in the order in which the
/// questions came up.
///
/// While a question is open, events of other tasks are held back and shown when it closes, so that
/// nothing is drawn between a question and its answer.
pub(crate) struct PersonFrontEnd<'a> {
    audience: Box<dyn Audience + 'a>,
    session: SessionHandle,
    /// The renderers of subtasks.
    nested: HashMap<TaskId, SubtaskRenderer>,
    /// The updates that are not shown yet.
    queue: VecDeque<SessionUpdate>,
    current: Option<OpenQuestion>,
    /// The commands that the person types while no question is open.
    commands: Option<CommandQueue>,
    shows_notices: bool,
    /// True if the last end of the task has been shown.
    has_shown_end: bool,
}

/// The question that the person is asked.
struct OpenQuestion {
    /// The request of a task; `None` where the session is idle and waits for a message.
    request: Option<RequestId>,
    question: UserQuestion,
    /// True if a subtask asks.
    is_nested: bool,
}

/// The outcome of waiting for an answer.
enum WhileAsked {
    /// The person answered.
    Replied(UserReply),
    /// An update that must be shown at once.
    Update(SessionUpdate),
    /// The session ended.
    Over,
}

impl OpenQuestion {
    /// Returns true if the event closes this question.
    fn is_closed_by(&self, event: &SessionEvent) -> bool {
        self.request
            .as_ref()
            .is_some_and(|request| closes(event, request))
    }
}

impl<'a> PersonFrontEnd<'a> {
    /// Creates a front end that shows the session to `audience`.
    pub(crate) fn new(mut audience: Box<dyn Audience + 'a>, session: SessionHandle) -> Self {
        let commands = audience.commands();
        Self {
            audience,
            session,
            nested: HashMap::new(),
            queue: VecDeque::new(),
            current: None,
            commands,
            shows_notices: true,
            has_shown_end: false,
        }
    }

    /// Hides notices.
    pub(crate) fn without_notices(self) -> Self {
        Self {
            shows_notices: false,
            ..self
        }
    }

    /// Shows the session until it ends. Returns true if the last end of the task was shown already,
    /// because the session stayed open after it.
    pub(crate) async fn attend(mut self, mut events: Subscription) -> bool {
        loop {
            while self.current.is_none()
                && let Some(update) = self.queue.pop_front()
            {
                self.show(update);
            }
            if let Some(current) = self.current.take() {
                if current
                    .request
                    .as_ref()
                    .is_some_and(|request| self.is_closed_in_queue(request))
                {
                    continue;
                }
                if !self.ask(current, &mut events).await {
                    return self.has_shown_end;
                }
                continue;
            }
            let update = tokio::select! {
                // Updates come first: a typed command must not overtake the events before it.
                biased;
                update = events.next() => update,
                heard = next_command(&mut self.commands) => {
                    self.submit(heard);
                    continue;
                }
            };
            match update {
                Some(update) => self.queue.push_back(update),
                None => return self.has_shown_end,
            }
        }
    }

    /// Asks the current question until it is answered or closed. Returns false if the session has
    /// ended.
    async fn ask(&mut self, current: OpenQuestion, events: &mut Subscription) -> bool {
        // The block ends the borrow of `audience`, which the future holds, before anything is
        // shown.
        let happened = {
            let Self {
                audience,
                commands,
                session,
                queue,
                ..
            } = self;
            let mut answer = audience.request(&current.question);
            loop {
                tokio::select! {
                    biased;
                    heard = next_command(commands) => submit(session, heard),
                    update = events.next() => match update {
                        None => break WhileAsked::Over,
                        Some(update) if interrupts(&update, &current) => break WhileAsked::Update(update),
                        Some(update) => queue.push_back(update),
                    },
                    reply = &mut answer => break WhileAsked::Replied(reply),
                }
            }
        };
        match happened {
            WhileAsked::Over => return false,
            WhileAsked::Replied(reply) => self.answer(current, reply),
            WhileAsked::Update(update) => {
                let is_over =
                    matches!(&update, SessionUpdate::Event(event) if current.is_closed_by(event));
                self.show(update);
                if !is_over {
                    self.current = Some(current);
                }
            }
        }
        true
    }

    /// Submits the user's reply to a question.
    fn answer(&mut self, current: OpenQuestion, reply: UserReply) {
        let leaves = reply == UserReply::Leave;
        let Some(request) = current.request else {
            // The session is idle: the reply continues it.
            let command = match reply {
                UserReply::Text(text) | UserReply::No(text) => Command::Send {
                    message: UserMessage::from_text(text),
                    delivery: Delivery::Queue,
                },
                _ => Command::End,
            };
            _ = self.session.submit(command);
            return;
        };
        let decision = Decision::from(reply);
        // Rejected if another client answered first or the task has ended; both are fine.
        _ = self.session.submit(Command::Answer { request, decision });
        if leaves && current.is_nested {
            // The user leaves the whole session, not only the subtask that happens to ask.
            _ = self.session.submit(Command::End);
        }
    }

    /// Returns true if an update that is not shown yet closes the request.
    fn is_closed_in_queue(&self, request: &RequestId) -> bool {
        self.queue
            .iter()
            .any(|update| matches!(update, SessionUpdate::Event(event) if closes(event, request)))
    }

    /// Shows one update.
    fn show(&mut self, update: SessionUpdate) {
        let event = match update {
            SessionUpdate::Snapshot(snapshot) => {
                if self.shows_notices {
                    snapshot.notices.iter().for_each(surroundings::print_notice);
                }
                return;
            }
            SessionUpdate::Event(event) => event,
        };
        match &event.kind {
            SessionEventKind::Notice(_) if !self.shows_notices => {}
            SessionEventKind::Notice(notice) => surroundings::print_notice(notice),
            SessionEventKind::Waiting(waiting) if waiting.attempt.is_some() => print_retry(waiting),
            SessionEventKind::ContextUsage(filling) => {
                self.audience.notify(UserNotice::ContextUsage(filling))
            }
            SessionEventKind::CompactionStatus(status) => {
                self.audience.notify(UserNotice::Compaction(*status))
            }
            SessionEventKind::RequestClosed {
                reason: CloseReason::TimedOut,
                ..
            } => self.audience.show_timeout(),
            SessionEventKind::State(SessionState::Idle(end)) => self.await_message(end),
            SessionEventKind::State(SessionState::Working) => self.has_shown_end = false,
            SessionEventKind::Request { request, question } => {
                self.show_question(&event, request, question);
            }
            kind => {
                if let Some(task_event) = kind.as_task_event() {
                    self.show_task_event(task_event, event.subtask.as_ref());
                }
            }
        }
    }

    /// Shows the end of the task and asks for the next message.
    fn await_message(&mut self, end: &TaskEnd) {
        print_end(end);
        self.has_shown_end = true;
        let question = UserQuestion::Next {
            reason: String::new(),
        };
        self.audience
            .on_event(TaskEvent::Moment(TransientEvent::Question(&question)));
        self.current = Some(OpenQuestion {
            request: None,
            question,
            is_nested: false,
        });
    }

    fn show_question(
        &mut self,
        event: &SessionEvent,
        request: &RequestId,
        question: &UserQuestion,
    ) {
        if self.is_closed_in_queue(request) {
            return;
        }
        if let Some(label) = &event.subtask {
            let lines = self.nested(label).question_prefix();
            self.audience.write(&lines);
        }
        self.audience
            .on_event(TaskEvent::Moment(TransientEvent::Question(question)));
        self.current = Some(OpenQuestion {
            request: Some(request.clone()),
            question: question.clone(),
            is_nested: event.subtask.is_some(),
        });
    }

    fn show_task_event(&mut self, event: TaskEvent<'_>, subtask: Option<&Arc<SubtaskLabel>>) {
        let Some(label) = subtask else {
            return self.audience.on_event(event);
        };
        let lines = self.nested(label).render_lines(event);
        if !lines.is_empty() {
            self.audience.write(&lines);
        }
    }

    fn nested(&mut self, label: &SubtaskLabel) -> &mut SubtaskRenderer {
        let make = || SubtaskRenderer::new(&label.task, &label.mode, label.depth);
        self.nested.entry(label.task.clone()).or_insert_with(make)
    }

    fn submit(&self, heard: UserCommand) {
        submit(&self.session, heard);
    }
}

/// Returns the next typed command; never resolves for an audience without commands.
async fn next_command(commands: &mut Option<CommandQueue>) -> UserCommand {
    match commands {
        Some(queue) => queue.receive().await,
        None => std::future::pending().await,
    }
}

/// Submits a typed command and reports it if the session rejects it.
fn submit(session: &SessionHandle, heard: UserCommand) {
    if let Some(command) = command_of(heard)
        && let Err(rejected) = session.submit(command)
    {
        print::write_stderr(&print::sanitize_text(&format!("sabir: {rejected}\n")));
    }
}

/// Converts typed input into a session command; `None` for answers, which are submitted with their
/// request.
fn command_of(heard: UserCommand) -> Option<Command> {
    match heard {
        UserCommand::Send { message, delivery } => Some(Command::Send { message, delivery }),
        UserCommand::Compact => Some(Command::Compact),
        UserCommand::ShowContextUsage => Some(Command::ContextUsage),
        UserCommand::SetMode(mode) => Some(Command::SetMode { mode }),
        UserCommand::Disconnect => Some(Command::Detach),
        UserCommand::Cancel => Some(Command::End),
        UserCommand::Answer(..) => None,
    }
}

/// Returns true if an update concerns the open question, or was requested while it was open, and
/// must be shown at once.
fn interrupts(update: &SessionUpdate, current: &OpenQuestion) -> bool {
    let SessionUpdate::Event(event) = update else {
        return true;
    };
    match &event.kind {
        SessionEventKind::ContextUsage(_) | SessionEventKind::CompactionStatus(_) => true,
        SessionEventKind::Record(record) => {
            let is_said = matches!(
                **record,
                Record::Said {
                    by: sabir_agent::MessageAuthor::User,
                    ..
                }
            );
            is_said && event.subtask.is_none()
        }
        _ => current.is_closed_by(event),
    }
}

/// Returns true if an event closes that request.
fn closes(event: &SessionEvent, request: &RequestId) -> bool {
    matches!(&event.kind, SessionEventKind::RequestClosed { request: closed, .. } if closed == request)
}

/// Prints how a run of a task ended: turns, tokens, cost, and the reason where it did not complete.
pub(crate) fn print_end(end: &TaskEnd) {
    print::write_stderr(&format!(
        "{}: {}\n",
        print::count_noun(end.turns as usize, "turn"),
        cost_text::usage_text(&end.totals)
    ));
    if end.outcome != TaskOutcome::Completed {
        print::write_stderr(&print::sanitize_text(&format!("sabir: {}\n", end.message)));
    }
}

/// Reports that a request failed and is retried.
fn print_retry(waiting: &WaitingEvent) {
    let Some(attempt) = waiting.attempt else {
        return;
    };
    let seconds = std::time::Duration::from_millis(waiting.milliseconds).as_secs_f64();
    let number = attempt.number;
    let limit = attempt.limit;
    print::write_stderr(&print::sanitize_text(&format!(
        "attempt {number} of {limit} failed: {}; again in {seconds:.1} s\n",
        waiting.reason
    )));
}

/// Prints a session as JSON lines. Records open questions for `controls`, if given, so that control
/// lines can answer them.
pub(crate) async fn print_lines(mut events: Subscription, controls: Option<ControlInput>) {
    // One printer per task, because each merges and redacts its own streamed texts.
    let mut printers: HashMap<Option<TaskId>, EventLines> = HashMap::new();
    while let Some(update) = events.next().await {
        let event = match update {
            SessionUpdate::Snapshot(snapshot) => {
                snapshot.notices.iter().for_each(surroundings::print_notice);
                continue;
            }
            SessionUpdate::Event(event) => event,
        };
        if let SessionEventKind::Notice(notice) = &event.kind {
            surroundings::print_notice(notice);
            continue;
        }
        // Must come before the line is printed: a program that reads a question may answer it at
        // once.
        if let Some(controls) = &controls {
            controls.note_event(&event);
        }
        let Some(task_event) = event.kind.as_task_event() else {
            continue;
        };
        let subtask = event.subtask.as_ref().map(|label| label.task.clone());
        let printer = printers
            .entry(subtask.clone())
            .or_insert_with(|| EventLines::new(subtask));
        printer.print(task_event);
    }
}

/// Shows only notices and retries of a session, on standard error.
pub(crate) async fn print_notices(mut events: Subscription) {
    while let Some(update) = events.next().await {
        match update {
            SessionUpdate::Snapshot(snapshot) => {
                snapshot.notices.iter().for_each(surroundings::print_notice)
            }
            SessionUpdate::Event(event) => match &event.kind {
                SessionEventKind::Notice(notice) => surroundings::print_notice(notice),
                SessionEventKind::Waiting(waiting) => print_retry(waiting),
                _ => {}
            },
        }
    }
}
