//! Defines session events: owned and serializable, in one order for the task and all its subtasks.

use std::sync::Arc;

use sabir_agent::{
    CompactionTiming, ContextUsage, Record, TaskEvent, TaskId, TaskStart, TransientEvent,
    UserQuestion,
};
use sabir_call::{
    ArgumentEncoding, CallId, Certainty, Event, Fault, MarkupRole, MarkupSpan, OpaqueState, Span,
    StopReason, Truncation, Usage,
};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::notice::Notice;
use crate::setup::TaskEnd;

/// Something that happened in a session.
///
/// As JSON, a record and a passing event have the form of `docs/events.md`; the others carry a `kind` of their own (`notice`, `state`, …).
/// Events of a subtask carry its id in `task`.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEvent {
    /// Counts the events of a session from 1.
    pub sequence: u64,
    /// The subtask that it comes from; `None` for the session's own task.
    pub subtask: Option<Arc<SubtaskLabel>>,
    /// The event itself.
    pub kind: SessionEventKind,
}

/// A subtask as a front end shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubtaskLabel {
    /// The id of the subtask.
    pub task: TaskId,
    /// The mode of the subtask when it was started or resumed.
    pub mode: String,
    /// The number of tasks above it; 1 for a subtask of the session's task.
    pub depth: u32,
}

/// The kinds of session events, with their data.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SessionEventKind {
    /// A record that the journal keeps.
    Record(Arc<Record>),
    /// A request was sent to the model.
    Asking {
        /// The turn, counted from 1.
        turn: u32,
        /// The used part of the context window, in percent, if its size is known.
        full: Option<u64>,
    },
    /// A piece of the model's answer. Calls are not checked yet.
    Delta(StreamEvent),
    /// A piece of a running tool's output.
    Output {
        /// The call.
        call: CallId,
        /// The piece.
        text: String,
    },
    /// The change of files that a call is about to make. Published only if the spec asks for
    /// [`previews`](crate::SessionSpec::previews).
    Preview {
        /// The call.
        call: CallId,
        /// The change, as a diff.
        text: String,
    },
    /// The provider is asked again later, or something else comes first.
    Waiting(WaitingEvent),
    /// A question to the user. [`Command::Answer`](crate::Command::Answer) with this request answers it.
    Request {
        /// The id of the question.
        request: RequestId,
        /// The question.
        question: UserQuestion,
    },
    /// A question needs no answer any more.
    RequestClosed {
        /// The id of the question.
        request: RequestId,
        /// The reason.
        reason: CloseReason,
    },
    /// The contents of the context, as the answer to [`Command::ContextUsage`](crate::Command::ContextUsage).
    ContextUsage(ContextUsage),
    /// The time at which a requested compaction happens, if at all.
    CompactionStatus(CompactionTiming),
    /// A message for the user.
    Notice(Notice),
    /// The session works, waits for the user, or is over.
    State(SessionState),
}

/// A pause before a provider is asked again, or before something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingEvent {
    /// The reason, for the user.
    pub reason: String,
    /// The length of the pause, in milliseconds.
    pub milliseconds: u64,
    /// The failed attempt, if a request is repeated.
    pub attempt: Option<RetryAttempt>,
}

/// The failed attempt of a request that is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAttempt {
    /// The number of the failed attempt, counted from 1.
    pub number: u32,
    /// The most attempts.
    pub limit: u32,
    /// The time in which the request is still repeated after the pause, in milliseconds; `None` where attempts are counted.
    pub milliseconds_left: Option<u64>,
}

/// The activity of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SessionState {
    /// The task works, or waits for an answer.
    Working,
    /// The task has come to an end; a message continues it.
    Idle(TaskEnd),
    /// The session is over.
    Ended(TaskEnd),
}

/// Identifies an open question: the task that asks, and the call it asks about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The task or subtask that asks.
    pub task: TaskId,
    /// The call; `None` for a question that is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// The reason why a question is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CloseReason {
    /// It was answered.
    Answered,
    /// Its subject is over, or was changed by something else.
    Withdrawn,
    /// No answer came in time, which denies.
    TimedOut,
}

/// The state of a session at the moment of a subscription.
#[derive(Debug, Clone, Serialize)]
pub struct SessionSnapshot {
    /// The start of the task.
    pub start: TaskStart,
    /// Every record of the task so far, those before a resume included.
    pub records: Vec<Arc<Record>>,
    /// Notices so far.
    pub notices: Vec<Notice>,
    /// Questions that are open, the oldest first.
    #[serde(skip)]
    pub requests: Vec<(RequestId, UserQuestion)>,
    /// The activity of the session.
    #[serde(skip)]
    pub state: SessionState,
    /// The sequence number of the last event that the snapshot contains.
    pub sequence: u64,
}

/// An [`Event`] of the model's answer that owns its text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "each variant and field is that of `sabir_call::Event` of the same name"
)]
pub enum StreamEvent {
    Source {
        text: String,
        is_thought: bool,
    },
    Text {
        text: String,
    },
    Thought {
        text: String,
    },
    Mark {
        role: MarkupRole,
        dialect: Option<String>,
        span: Span,
        sure: Certainty,
        rule: &'static str,
    },
    CallStart {
        index: u32,
        id: Option<String>,
        name: String,
        dialect: Option<String>,
        at: usize,
        name_at: usize,
    },
    ArgStart {
        index: u32,
        name: String,
        form: ArgumentEncoding,
        at: usize,
    },
    ArgDelta {
        index: u32,
        text: String,
    },
    ArgEnd {
        index: u32,
        lead: String,
        at: usize,
    },
    CallEnd {
        index: u32,
        at: usize,
    },
    CallCut {
        index: u32,
        why: Truncation,
        at: usize,
    },
    Fault(Box<Fault>),
    Usage(Usage),
    Stop {
        reason: StopReason,
        raw: String,
    },
    Opaque(Box<OpaqueState>),
}

impl From<Event<'_>> for StreamEvent {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Source { text, is_thought } => Self::Source {
                text: text.to_owned(),
                is_thought,
            },
            Event::Text { text } => Self::Text {
                text: text.to_owned(),
            },
            Event::Thought { text } => Self::Thought {
                text: text.to_owned(),
            },
            Event::Mark(MarkupSpan {
                role,
                dialect,
                span,
                sure,
                rule,
            }) => Self::Mark {
                role,
                dialect: dialect.map(str::to_owned),
                span,
                sure,
                rule,
            },
            Event::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => Self::CallStart {
                index,
                id: id.map(str::to_owned),
                name: name.to_owned(),
                dialect: dialect.map(str::to_owned),
                at,
                name_at,
            },
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => Self::ArgStart {
                index,
                name: name.to_owned(),
                form,
                at,
            },
            Event::ArgDelta { index, text } => Self::ArgDelta {
                index,
                text: text.to_owned(),
            },
            Event::ArgEnd { index, lead, at } => Self::ArgEnd {
                index,
                lead: lead.to_owned(),
                at,
            },
            Event::CallEnd { index, at } => Self::CallEnd { index, at },
            Event::CallCut { index, why, at } => Self::CallCut { index, why, at },
            Event::Fault(fault) => Self::Fault(Box::new(fault.clone())),
            Event::Usage(usage) => Self::Usage(usage),
            Event::Stop { reason, raw } => Self::Stop {
                reason,
                raw: raw.to_owned(),
            },
            Event::Opaque(opaque) => Self::Opaque(Box::new(opaque.clone())),
        }
    }
}

impl StreamEvent {
    /// Borrows the event in the form of the parser.
    pub fn as_event(&self) -> Event<'_> {
        match self {
            Self::Source { text, is_thought } => Event::Source {
                text,
                is_thought: *is_thought,
            },
            Self::Text { text } => Event::Text { text },
            Self::Thought { text } => Event::Thought { text },
            Self::Mark {
                role,
                dialect,
                span,
                sure,
                rule,
            } => Event::Mark(MarkupSpan {
                role: *role,
                dialect: dialect.as_deref(),
                span: *span,
                sure: *sure,
                rule,
            }),
            Self::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => Event::CallStart {
                index: *index,
                id: id.as_deref(),
                name,
                dialect: dialect.as_deref(),
                at: *at,
                name_at: *name_at,
            },
            Self::ArgStart {
                index,
                name,
                form,
                at,
            } => Event::ArgStart {
                index: *index,
                name,
                form: *form,
                at: *at,
            },
            Self::ArgDelta { index, text } => Event::ArgDelta {
                index: *index,
                text,
            },
            Self::ArgEnd { index, lead, at } => Event::ArgEnd {
                index: *index,
                lead,
                at: *at,
            },
            Self::CallEnd { index, at } => Event::CallEnd {
                index: *index,
                at: *at,
            },
            Self::CallCut { index, why, at } => Event::CallCut {
                index: *index,
                why: *why,
                at: *at,
            },
            Self::Fault(fault) => Event::Fault(fault),
            Self::Usage(usage) => Event::Usage(*usage),
            Self::Stop { reason, raw } => Event::Stop {
                reason: *reason,
                raw,
            },
            Self::Opaque(opaque) => Event::Opaque(opaque),
        }
    }
}

impl SessionEventKind {
    /// Converts a task event; `None` for one that a session does not publish.
    pub(crate) fn from_task_event(event: TaskEvent<'_>, task: &TaskId) -> Option<Self> {
        Some(match event {
            TaskEvent::Record(record) => Self::Record(Arc::new(record.clone())),
            TaskEvent::Transient(TransientEvent::Asking { turn, full }) => {
                Self::Asking { turn, full }
            }
            TaskEvent::Transient(TransientEvent::Delta(event)) => Self::Delta(event.into()),
            TaskEvent::Transient(TransientEvent::Output { call, text }) => Self::Output {
                call: call.clone(),
                text: text.to_owned(),
            },
            TaskEvent::Transient(TransientEvent::Waiting {
                reason,
                milliseconds,
            }) => Self::Waiting(WaitingEvent {
                reason: reason.to_owned(),
                milliseconds,
                attempt: None,
            }),
            TaskEvent::Transient(TransientEvent::Question(question)) => Self::Request {
                request: RequestId {
                    task: task.clone(),
                    call: question.call_id().cloned(),
                },
                question: question.clone(),
            },
            // New kinds of events stay inside until a session has a form for them.
            TaskEvent::Transient(_) => return None,
        })
    }

    /// Borrows the event as a task event; `None` for an event of the session itself.
    pub fn as_task_event(&self) -> Option<TaskEvent<'_>> {
        Some(match self {
            Self::Record(record) => TaskEvent::Record(record),
            Self::Asking { turn, full } => TaskEvent::Transient(TransientEvent::Asking {
                turn: *turn,
                full: *full,
            }),
            Self::Delta(event) => TaskEvent::Transient(TransientEvent::Delta(event.as_event())),
            Self::Output { call, text } => {
                TaskEvent::Transient(TransientEvent::Output { call, text })
            }
            Self::Waiting(waiting) => TaskEvent::Transient(TransientEvent::Waiting {
                reason: &waiting.reason,
                milliseconds: waiting.milliseconds,
            }),
            Self::Request { question, .. } => {
                TaskEvent::Transient(TransientEvent::Question(question))
            }
            _ => return None,
        })
    }
}

impl Serialize for SessionEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct TaskEventLine<'a> {
            #[serde(flatten)]
            event: TaskEvent<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            task: Option<&'a TaskId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            request: Option<&'a RequestId>,
            sequence: u64,
        }
        let task = self.subtask.as_ref().map(|label| &label.task);
        if let Some(event) = self.kind.as_task_event() {
            // The record of a start names its task itself.
            let is_named = matches!(event, TaskEvent::Record(Record::Started(_)));
            let task = task.filter(|_| !is_named);
            let request = match &self.kind {
                SessionEventKind::Request { request, .. } => Some(request),
                _ => None,
            };
            return TaskEventLine {
                event,
                task,
                request,
                sequence: self.sequence,
            }
            .serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        match &self.kind {
            SessionEventKind::RequestClosed { request, reason } => {
                map.serialize_entry("kind", "request_closed")?;
                map.serialize_entry("request", request)?;
                map.serialize_entry("reason", reason)?;
            }
            SessionEventKind::ContextUsage(filling) => {
                map.serialize_entry("kind", "context_usage")?;
                map.serialize_entry("tokens", &filling.tokens)?;
                map.serialize_entry("window", &filling.window)?;
                map.serialize_entry("percent", &filling.percent())?;
            }
            SessionEventKind::CompactionStatus(status) => {
                map.serialize_entry("kind", "compaction_status")?;
                let status = match status {
                    CompactionTiming::Nothing => "nothing",
                    CompactionTiming::Now => "now",
                    CompactionTiming::Later => "later",
                };
                map.serialize_entry("status", status)?;
            }
            SessionEventKind::Preview { call, text } => {
                map.serialize_entry("kind", "preview")?;
                map.serialize_entry("call", call)?;
                map.serialize_entry("text", text)?;
            }
            SessionEventKind::Notice(notice) => {
                map.serialize_entry("kind", "notice")?;
                map.serialize_entry("notice", notice)?;
            }
            SessionEventKind::State(state) => {
                map.serialize_entry("kind", "state")?;
                let (name, end) = match state {
                    SessionState::Working => ("working", None),
                    SessionState::Idle(end) => ("idle", Some(end)),
                    SessionState::Ended(end) => ("ended", Some(end)),
                };
                map.serialize_entry("state", name)?;
                if let Some(end) = end {
                    map.serialize_entry("outcome", &end.outcome)?;
                    map.serialize_entry("message", &end.message)?;
                }
            }
            // The task's own events have returned above.
            _ => {}
        }
        if let Some(task) = task {
            map.serialize_entry("task", task)?;
        }
        map.serialize_entry("sequence", &self.sequence)?;
        map.end()
    }
}
