//! Follows a session for a person or a program: line by line with questions, as JSON lines with or
//! without control input, and notices only.
//!
//! A session publishes updates whether or not anybody reads them, and several tasks may ask at the
//! same time. A person can answer one question at a time, so [`SessionPresenter`] keeps a queue of
//! updates while a question is open; a program gets every line at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sabir_session::agent::{
    CommandQueue, FrontEnd, MessageAuthor, OTHER_TOOL, Record, TaskEvent, TaskId, TaskOutcome,
    ToolUsage, ToolUsageTable, TransientEvent, UserCommand, UserNotice, UserQuestion, UserReply,
};
use sabir_session::call::redact;
use sabir_session::{
    CloseReason, Command, Decision, Delivery, NoticeTopic, RequestId, RunSummary, SessionEvent,
    SessionEventKind, SessionHandle, SessionState, SessionUpdate, Subscription, SubtaskLabel,
    TaskEnd, UserMessage, WaitingEvent,
};
use serde_json::{Value, json};

use crate::control_input::ControlInput;
use crate::event_lines::EventLinePrinter;
use crate::margin::wrap_rows;
use crate::subtask_renderer::SubtaskRenderer;
use crate::{print, screen};

/// A front end for a person that can also show lines about subtasks.
///
/// [`FrontEnd`] knows one task. Lines about the others come as text, because only their records are
/// shown.
pub trait SessionFrontEnd: FrontEnd {
    /// Shows whole lines about a subtask, between the events of the task.
    fn write(&mut self, lines: &str);

    /// Reports that a question timed out.
    fn show_timeout(&mut self) {}
}

/// Shows a session to a person and asks them one question at a time, in order.
///
/// While a question is open, events of other tasks are held back and shown when it closes, so that
/// nothing is drawn between a question and its answer.
pub struct SessionPresenter<'a> {
    front_end: Box<dyn SessionFrontEnd + 'a>,
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
    /// The reason of the last retry.
    last_retry: String,
    /// The end of the pause before a request is sent again.
    next_attempt: Option<Instant>,
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
enum AskOutcome {
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
        match &self.request {
            Some(request) => closes(event, request),
            // The session works again: it received a message that does not answer this question,
            // such as one typed before the question was shown.
            None => matches!(event.kind, SessionEventKind::State(SessionState::Working)),
        }
    }
}

impl<'a> SessionPresenter<'a> {
    /// Creates a front end that shows the session to `front_end`.
    pub fn new(mut front_end: Box<dyn SessionFrontEnd + 'a>, session: SessionHandle) -> Self {
        let commands = front_end.commands();
        Self {
            front_end,
            session,
            nested: HashMap::new(),
            queue: VecDeque::new(),
            current: None,
            commands,
            shows_notices: true,
            has_shown_end: false,
            last_retry: String::new(),
            next_attempt: None,
        }
    }

    /// Hides notices.
    pub fn without_notices(self) -> Self {
        Self {
            shows_notices: false,
            ..self
        }
    }

    /// Shows the session until it ends. Returns true if the last end of the task was shown already,
    /// because the session stayed open after it.
    pub async fn show_until_end(mut self, mut events: Subscription) -> bool {
        loop {
            // Showing an update may open a question, which ends this loop until it is answered.
            while self.current.is_none()
                && let Some(update) = self.queue.pop_front()
            {
                self.show(update);
            }
            if let Some(current) = self.current.take() {
                // Another client or a time limit may have closed the question while earlier events
                // were shown. Nobody would need its answer.
                if self.is_closed_in_queue(|event| current.is_closed_by(event)) {
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
                command = next_command(&mut self.commands) => {
                    self.submit(command);
                    continue;
                }
                () = next_second(self.next_attempt) => {
                    self.show_countdown();
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
        // The block ends the borrow of `front_end`, which the future holds, before anything is
        // shown.
        let happened = {
            let Self {
                front_end,
                commands,
                session,
                queue,
                ..
            } = self;
            let mut answer = front_end.request(&current.question);
            loop {
                tokio::select! {
                    // Commands and updates are handled before the reply: either may close the
                    // question, and the reply must not count for the next question.
                    biased;
                    command = next_command(commands) => submit(session, command),
                    update = events.next() => match update {
                        None => break AskOutcome::Over,
                        Some(update) if interrupts(&update, &current) => break AskOutcome::Update(update),
                        Some(update) => queue.push_back(update),
                    },
                    reply = &mut answer => break AskOutcome::Replied(reply),
                }
            }
        };
        match happened {
            AskOutcome::Over => return false,
            AskOutcome::Replied(reply) => self.answer(current, reply),
            AskOutcome::Update(update) => {
                let is_over =
                    matches!(&update, SessionUpdate::Event(event) if current.is_closed_by(event));
                self.show(update);
                // Still open, so it is asked again; the terminal does not draw it a second time.
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
            // The session is idle: a text continues it, and leaving ends it.
            let command = match reply {
                UserReply::Text(message) => Command::Send {
                    message,
                    delivery: Delivery::Queue,
                },
                UserReply::No(text) => Command::Send {
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

    /// Returns true if an update that is not shown yet closes a question.
    fn is_closed_in_queue(&self, closes: impl Fn(&SessionEvent) -> bool) -> bool {
        self.queue
            .iter()
            .any(|update| matches!(update, SessionUpdate::Event(event) if closes(event)))
    }

    /// Shows the time until the next attempt, if the terminal can redraw it each second.
    fn show_countdown(&mut self) {
        let left = self
            .next_attempt
            .map(|next| next.saturating_duration_since(Instant::now()))
            .filter(|left| !left.is_zero());
        match left {
            Some(left) => screen::show_status(&format!(
                "next attempt in {}; Ctrl-C returns to the prompt",
                print::duration_text(left)
            )),
            None => self.end_countdown(),
        }
    }

    fn end_countdown(&mut self) {
        if self.next_attempt.take().is_some() {
            screen::show_status("");
        }
    }

    /// Shows one update.
    fn show(&mut self, update: SessionUpdate) {
        self.end_countdown();
        let event = match update {
            // Sent once, first. Its notices were published before this client subscribed.
            SessionUpdate::Snapshot(snapshot) => {
                if self.shows_notices {
                    snapshot.notices.iter().for_each(print::print_notice);
                }
                return;
            }
            SessionUpdate::Event(event) => event,
        };
        match &event.kind {
            SessionEventKind::Notice(_) if !self.shows_notices => {}
            SessionEventKind::Notice(notice) => print::print_notice(notice),
            SessionEventKind::Waiting(waiting) if waiting.attempt.is_some() => {
                print_retry(waiting, &mut self.last_retry);
                let pause = Duration::from_millis(waiting.milliseconds);
                if screen::has_status() && pause >= MIN_COUNTDOWN {
                    self.next_attempt = Instant::now().checked_add(pause);
                    self.show_countdown();
                }
            }
            SessionEventKind::ContextUsage(filling) => {
                self.front_end.notify(UserNotice::ContextUsage(filling))
            }
            SessionEventKind::CompactionStatus(status) => {
                self.front_end.notify(UserNotice::Compaction(*status))
            }
            SessionEventKind::RequestClosed {
                reason: CloseReason::TimedOut,
                ..
            } => self.front_end.show_timeout(),
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
        // A session that was changed while it was idle is idle again.
        if !std::mem::replace(&mut self.has_shown_end, true) {
            print_end(end);
            if end.outcome == TaskOutcome::Misconfigured {
                print::write_stderr(CORRECTION_HINT);
            }
        }
        let question = UserQuestion::Next {
            reason: String::new(),
        };
        self.front_end
            .on_event(TaskEvent::Transient(TransientEvent::Question(&question)));
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
        // Drawing a question that is answered already would leave a prompt on the screen.
        if self.is_closed_in_queue(|event| closes(event, request)) {
            return;
        }
        if let Some(label) = &event.subtask {
            let lines = self.nested(label).question_prefix();
            self.front_end.write(&lines);
        }
        self.front_end
            .on_event(TaskEvent::Transient(TransientEvent::Question(question)));
        self.current = Some(OpenQuestion {
            request: Some(request.clone()),
            question: question.clone(),
            is_nested: event.subtask.is_some(),
        });
    }

    fn show_task_event(&mut self, event: TaskEvent<'_>, subtask: Option<&Arc<SubtaskLabel>>) {
        let Some(label) = subtask else {
            return self.front_end.on_event(event);
        };
        let lines = self.nested(label).render_lines(event);
        if !lines.is_empty() {
            self.front_end.write(&lines);
        }
    }

    fn nested(&mut self, label: &SubtaskLabel) -> &mut SubtaskRenderer {
        let make = || SubtaskRenderer::new(&label.task, &label.mode, label.depth);
        self.nested.entry(label.task.clone()).or_insert_with(make)
    }

    fn submit(&self, command: UserCommand) {
        submit(&self.session, command);
    }
}

/// The next step after a wrong key or model.
const CORRECTION_HINT: &str = "Correct it, and your next message tries again. For another model: /quit, then `sabir -c -m MODEL`.\n";

/// The shortest pause with a countdown.
const MIN_COUNTDOWN: Duration = Duration::from_secs(2);

/// Waits a moment if a countdown is shown.
async fn next_second(next_attempt: Option<Instant>) {
    match next_attempt {
        // A little less than a second, so that no number is skipped.
        Some(_) => tokio::time::sleep(Duration::from_millis(950)).await,
        None => std::future::pending().await,
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
fn submit(session: &SessionHandle, command: UserCommand) {
    if let Some(command) = command_of(command)
        && let Err(rejected) = session.submit(command)
    {
        print::write_stderr(&print::sanitize_text(&format!("sabir: {rejected}\n")));
    }
}

/// Converts typed input into a session command; `None` for answers, which are submitted with their
/// request.
fn command_of(command: UserCommand) -> Option<Command> {
    match command {
        UserCommand::Send { message, delivery } => Some(Command::Send { message, delivery }),
        UserCommand::Compact => Some(Command::Compact),
        UserCommand::ShowContextUsage => Some(Command::ContextUsage),
        UserCommand::SetMode(mode) => Some(Command::SetMode { mode }),
        UserCommand::LogIn { server, address } => Some(Command::LogIn { server, address }),
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
        // It may answer `/mcp login`.
        SessionEventKind::Notice(notice) if notice.about == NoticeTopic::Mcp => true,
        SessionEventKind::Record(record) => {
            // Echoes a message that was typed while the question was open, so that the user sees
            // that it was not taken as the answer.
            let is_said = matches!(
                **record,
                Record::Said {
                    by: MessageAuthor::User,
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

/// The maximum number of calls and files in a summary; JSON lists them all.
const MAX_LISTED: usize = 10;

/// Prints the calls that were denied or failed in a run, and the files that it changed.
pub fn print_summary(summary: &RunSummary) {
    let mut text = String::new();
    for (word, calls) in [("denied", &summary.denied), ("failed", &summary.failed)] {
        for call in calls.iter().take(MAX_LISTED) {
            text.push_str(&format!("{word}: {} {}\n", call.tool, call.subject));
        }
        if let Some(more @ 1..) = calls.len().checked_sub(MAX_LISTED) {
            text.push_str(&format!("{word}: {more} more\n"));
        }
    }
    let is_own = |path: &&String| !summary.ignored_files.contains(*path);
    let own: Vec<_> = summary.changed_files.iter().filter(is_own).collect();
    if !own.is_empty() {
        let shown: Vec<_> = own
            .iter()
            .take(MAX_LISTED)
            .map(|path| path.as_str())
            .collect();
        let more = match own.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!("changed: {}{more}\n", shown.join(", ")));
    }
    let ignored = summary.changed_files.len() - own.len();
    if ignored > 0 {
        let paths = print::count_noun(ignored, "path");
        text.push_str(&format!("changed: {paths} that git ignores\n"));
    }
    let text = print::sanitize_text(&redact::redact_text(&text));
    print::write_stderr(&wrap_rows(&text));
}

/// Prints how a run of a task ended: turns, tokens, cost, and the reason where it did not complete.
pub fn print_end(end: &TaskEnd) {
    // Nothing was used where no answer came.
    if end.turns > 0 {
        print::write_stderr(&format!(
            "{}: {}\n",
            print::count_noun(end.turns as usize, "turn"),
            print::usage_text(&end.totals)
        ));
    }
    if !end.tools.is_empty() {
        print::write_stderr(&print::sanitize_text(&format!(
            "tools: {}\n",
            tool_usage_text(&end.tools)
        )));
    }
    // Who leaves after an answer need not be told.
    if end.session_outcome() != TaskOutcome::Completed {
        let text = print::sanitize_text(&format!("sabir: {}\n", end.message));
        print::write_stderr(&wrap_rows(&text));
    }
}

/// The choice of what is printed at the end of a session, as text.
#[derive(Debug, Clone, Copy)]
pub struct SessionEndText<'a> {
    /// The name of the task.
    pub task: &'a str,
    /// True if no user could be asked: the result and a summary are printed.
    pub is_unattended: bool,
    /// True if a recording was replayed, which cannot be continued.
    pub is_replay: bool,
    /// True if the end was already shown while the session was still open, or the result of a headless task was.
    pub is_end_shown: bool,
}

impl SessionEndText<'_> {
    /// Prints the end of a session, and how to continue it.
    pub fn print(self, end: &TaskEnd) {
        let is_completed = end.outcome == TaskOutcome::Completed;
        if self.is_unattended || !self.is_end_shown {
            print_end(end);
        }
        if self.is_unattended {
            print_summary(&end.summary);
        }
        if self.is_unattended && is_completed && !self.is_end_shown {
            print::write_stdout(&print::sanitize_text(&format!("{}\n", end.message)));
        }
        if !is_completed && !self.is_replay {
            print::write_stderr(&format!("Continue with: sabir resume {}\n", self.task));
        }
    }
}

/// Describes the use of each tool, such as `read_file 3, execute_command 2 (1 failed, 1 denied)`.
fn tool_usage_text(tools: &ToolUsageTable) -> String {
    let describe_tool = |(name, used): (&String, &ToolUsage)| {
        let name = if name == OTHER_TOOL {
            "unknown tools"
        } else {
            name
        };
        let problems: Vec<_> = [(used.failures, "failed"), (used.denials, "denied")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if problems.is_empty() {
            format!("{name} {}", used.calls)
        } else {
            format!("{name} {} ({})", used.calls, problems.join(", "))
        }
    };
    tools
        .iter()
        .map(describe_tool)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Renders how a run of a task ended as the JSON of `sabir run --output json`.
pub fn end_json(task: &str, end: &TaskEnd, exit_code: u8) -> Value {
    json!({
        "task": task, "outcome": end.outcome, "exit_code": exit_code, "message": end.message,
        "turns": end.turns, "usage": end.totals.usage, "estimate": end.totals.estimate, "cost": end.totals.cost,
        "denied": end.summary.denied, "failed": end.summary.failed, "changed_files": end.summary.changed_files,
        "tools": end.tools,
    })
}

/// Reports that a request failed and is retried. A reason that was just given is not repeated.
fn print_retry(waiting: &WaitingEvent, last_reason: &mut String) {
    let Some(attempt) = waiting.attempt else {
        return;
    };
    let reason = if *last_reason == waiting.reason && attempt.number > 1 {
        " again".to_owned()
    } else {
        format!(": {}", waiting.reason)
    };
    last_reason.clone_from(&waiting.reason);
    let seconds = Duration::from_millis(waiting.milliseconds).as_secs_f64();
    let number = attempt.number;
    let count = match attempt.milliseconds_left {
        None => format!("attempt {number} of {}", attempt.limit),
        Some(left) => format!(
            "attempt {number}, with {} left for more,",
            print::duration_text(Duration::from_millis(left))
        ),
    };
    print::write_stderr(&print::sanitize_text(&format!(
        "{count} failed{reason}; the next in {seconds:.1} s\n"
    )));
}

/// Prints a session as JSON lines. Records open questions for `controls`, if given, so that control
/// lines can answer them.
pub async fn print_json_lines(mut events: Subscription, controls: Option<ControlInput>) {
    // One printer per task, because each merges and redacts its own streamed texts.
    let mut printers: HashMap<Option<TaskId>, EventLinePrinter> = HashMap::new();
    while let Some(update) = events.next().await {
        let event = match update {
            SessionUpdate::Snapshot(snapshot) => {
                snapshot.notices.iter().for_each(print::print_notice);
                continue;
            }
            SessionUpdate::Event(event) => event,
        };
        if let SessionEventKind::Notice(notice) = &event.kind {
            print::print_notice(notice);
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
            .or_insert_with(|| EventLinePrinter::new(subtask));
        printer.push_event(task_event, &mut |line| print::print_redacted_json(line));
    }
}

/// Shows only notices and retries of a session, on standard error.
pub async fn print_notices(mut events: Subscription) {
    let mut last_retry = String::new();
    while let Some(update) = events.next().await {
        match update {
            SessionUpdate::Snapshot(snapshot) => {
                snapshot.notices.iter().for_each(print::print_notice)
            }
            SessionUpdate::Event(event) => match &event.kind {
                SessionEventKind::Notice(notice) => print::print_notice(notice),
                SessionEventKind::Waiting(waiting) => print_retry(waiting, &mut last_retry),
                _ => {}
            },
        }
    }
}
