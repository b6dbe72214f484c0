//! The session layer of Sabir: starts, resumes, forks, drives and observes coding tasks for a front end.
//!
//! * A [`Host`] knows the environment, the configuration and the folder of journals. A process has one, for any number of sessions.
//! * A [`SessionSpec`] says what to work on. It is serializable, and all its fields have defaults.
//! * A [`Session`] drives one task in the background. It publishes owned, serializable [`SessionEvent`]s to its subscribers, and takes
//!   a [`Command`] from anyone with a [`SessionHandle`].
//! * An interactive session outlives a completion: when its task ends, it waits for the next message.
//!
//! # Example
//!
//! A headless session, which denies every call that needs a question:
//!
//! ```no_run
//! use std::path::PathBuf;
//! use std::time::SystemTime;
//!
//! use sabir_session::{Environment, Host, RuleSpec, SessionError, SessionSpec, SessionUpdate, UserMessage};
//!
//! # async fn example() -> Result<(), SessionError> {
//! // The model's commands run under this program, whose `main` must call
//! // `sabir_session::supervise::main`.
//! let helper = std::env::current_exe().unwrap_or_default();
//! let mut environment = Environment::new(std::env::vars_os(), helper, SystemTime::now);
//! environment.home_folder = Some(PathBuf::from("/home/me"));
//! environment.config_folder = Some(PathBuf::from("/home/me/.config"));
//! environment.data_folder = Some(PathBuf::from("/home/me/.local/share"));
//! let host = Host::new(environment);
//!
//! let spec = SessionSpec {
//!     workspace: Some(PathBuf::from("/home/me/project")),
//!     model: Some("openai/gpt-5".to_owned()),
//!     rules: RuleSpec { approve: vec!["edits".to_owned()], ..RuleSpec::default() },
//!     ..SessionSpec::default()
//! };
//!
//! // Must be called within a tokio runtime, which then drives the task.
//! let session = host.start(spec, UserMessage::from_text("Fix the failing test.")).await?;
//! let mut updates = session.subscribe();
//! while let Some(update) = updates.next().await {
//!     match update {
//!         SessionUpdate::Snapshot(snapshot) => println!("task {}", snapshot.start.task),
//!         SessionUpdate::Event(event) => println!("{:?}", event.kind),
//!     }
//! }
//! let outcome = session.wait().await?;
//! println!("{}", outcome.end.message);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/json_front_end.rs` is a complete front end over JSON lines: it serves several sessions, answers, interrupts and resumes.
//!
//! # Boundaries
//!
//! This crate does not print, does not parse flags, does not handle signals, and reads the process environment only through
//! [`Environment`]. Messages for the user arrive as [`Notice`]s; failures are [`SessionError`]s.

pub mod chat_templates;
pub mod checkpoint_history;
pub mod checkpointer;
pub mod config;
pub mod custom_commands;
pub mod dialect_tables;
pub mod doctor;
pub mod draft_store;
pub mod file_names;
pub mod first_screen;
pub mod gateway_setup;
pub mod hooks;
pub mod images;
pub mod input_history;
pub mod locked;
pub mod mcp;
pub mod memory;
pub mod modes;
pub mod policy_review;
pub mod providers;
mod proxy;
pub mod remember;
pub mod sandbox;
pub mod settings_import;
pub mod skills;
pub mod tool_help;
pub mod tour;
pub mod trust;

mod amazon;
mod command;
mod completion_options;
mod context;
pub mod conventions;
mod environment;
mod error;
mod event;
mod host;
mod hub;
mod instructions;
mod interface_choice;
mod key_command;
mod loading;
mod notice;
mod preview_publisher;
mod recording;
mod relocated_tool;
mod repairs;
mod run_summary;
mod sandbox_probe;
mod seen_files;
mod session;
mod session_choices;
mod setup;
mod spec;
mod subtasks;
pub mod symbol_names;
mod task_list;
mod task_lookup;
mod task_runtime;
mod telemetry;
mod user_command;

pub use command::{Command, Decision, Delivery, Rejected};
pub use context::TaskContext;
pub use environment::Environment;
pub use error::SessionError;
pub use sabir_agent::{SummaryAuthor, UserMessage};
pub use sabir_edit::partial_marker_len;
pub use sabir_mcp::{
    ElicitationAnswer, ElicitationForm, ElicitationRequest, McpServerSpec, McpTransport,
    ServerStatus,
};
pub use sabir_policy::command_names_secret_file;
pub use sabir_tools::{
    Editor, EditorFailure, EditorFuture, TerminalCommand, TerminalEnd, TerminalOutcome,
};
pub use sabir_wire::format_timestamp;
pub use sabir_workspace::{
    EditorError, StopFlag, TerminalGuard, TerminalLock, edit_text, find_branch,
    is_in_process_group, is_session_leader, supervise,
};
// The crates whose types appear in events and reports, so that a front end depends on this crate
// alone.
pub use {sabir_agent as agent, sabir_call as call};

pub use event::{
    CloseReason, RequestId, RetryAttempt, SessionEvent, SessionEventKind, SessionSnapshot,
    SessionState, StreamEvent, SubtaskLabel, WaitingEvent,
};
pub use host::{Host, TaskFilter};
pub use hub::{SessionUpdate, Subscription};
pub use instructions::{FoundInstructions, InstructionOrigin, InstructionState, find_instructions};
pub use interface_choice::InterfaceChoice;
pub use mcp::FormElicitor;
pub use notice::{Notice, NoticeSink, NoticeTopic};
pub use repairs::{closes_last_call, without_rules as repairs_without};
pub use run_summary::{RunSummary, SummarizedCall};
pub use session::{Session, SessionHandle, SessionOutcome};
pub use session_choices::{ModeChoice, ModelChoice, SessionChoices, task_title};
pub use setup::{TaskEnd, TaskSetup, built_in_tools, temporary_jobs};
pub use spec::{
    CompletionSpec, Interactivity, LimitSpec, NetworkChoice, RecordMode, ResultForm, RetryLimits,
    RuleSpec, SandboxSpec, SessionSpec, SubtaskSpec,
};
pub use task_list::{JournalEntry, JournalListing, TaskList};
pub use task_lookup::{TaskLookup, short_name};
pub use task_runtime::{build_server_runtime, build_task_runtime};
pub use user_command::{UserCommandError, UserCommandOutput, UserCommandRunner};
