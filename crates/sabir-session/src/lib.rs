//! Everything that a front end of Sabir needs to start, resume, fork, drive and observe coding tasks.
//!
//! A [`Host`] stands for the surroundings: environment, configuration, journals. It starts a [`Session`] from a [`SessionSpec`]. Whoever
//! watches subscribes to owned, serializable [`SessionEvent`]s; whoever commands submits a [`Command`]. A session outlives a completion:
//! when its task ends, an interactive session waits for the next message.
//!
//! This crate does not print, does not parse flags, does not handle signals, and reads the environment only through
//! [`Environment`].

pub mod checkpointer;
pub mod config;
pub mod dialect_tables;
pub mod locked;
pub mod modes;
pub mod pictures;
pub mod providers;
pub mod remember;
pub mod sandbox;
pub mod trust;

mod amazon;
mod command;
mod context;
mod ends;
mod environment;
mod error;
mod event;
mod host;
mod hub;
mod instructions;
mod key_command;
mod loading;
mod notice;
mod recording;
mod relocated_tool;
mod repairs;
mod sandbox_probe;
mod session;
mod setup;
mod spec;
mod subtasks;
mod telemetry;

pub use command::{Command, Decision, Delivery, Rejected};
pub use context::TaskContext;
pub use environment::Environment;
pub use error::SessionError;
pub use sabir_agent::{SummaryAuthor, UserMessage};

pub use event::{
    CloseReason, RequestId, RetryAttempt, SessionEvent, SessionEventKind, SessionSnapshot, SessionState, StreamEvent,
    SubtaskLabel, WaitingEvent,
};
pub use host::{Host, TaskFilter};
pub use hub::{SessionUpdate, Subscription};
pub use notice::{Notice, NoticeSink, NoticeTopic};
pub use repairs::without_rules as repairs_without;
pub use session::{Session, SessionHandle, SessionOutcome};
pub use setup::{TaskEnd, TaskSetup, built_in_tools, find_task, temporary_jobs};
pub use spec::{CompletionSpec, Interactivity, LimitSpec, RecordMode, RuleSpec, SandboxSpec, SessionSpec, SubtaskSpec};
