//! Defines the events at which hooks run.

use serde::{Deserialize, Serialize};

/// The seconds that all hooks of the end of a session have together.
pub(super) const END_SECONDS: u64 = 60;

/// A moment at which hooks run. The names are those of Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HookEvent {
    /// Before a call of a tool runs, after its approval.
    PreToolUse,
    /// After a call of a tool has run without failing.
    PostToolUse,
    /// Before a message of the user reaches the model.
    UserPromptSubmit,
    /// When a task begins or is resumed.
    SessionStart,
    /// When a session is over.
    SessionEnd,
    /// When the model is done.
    Stop,
    /// When the model of a subtask is done.
    SubagentStop,
    /// Before the context is compacted by a summary.
    PreCompact,
    /// When the user is asked something.
    Notification,
}

impl HookEvent {
    /// All events.
    pub const ALL: [Self; 9] = [
        Self::PreToolUse,
        Self::PostToolUse,
        Self::UserPromptSubmit,
        Self::SessionStart,
        Self::SessionEnd,
        Self::Stop,
        Self::SubagentStop,
        Self::PreCompact,
        Self::Notification,
    ];

    /// Returns the name in files and on the standard input of hooks.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::SessionStart => "SessionStart",
            Self::SessionEnd => "SessionEnd",
            Self::Stop => "Stop",
            Self::SubagentStop => "SubagentStop",
            Self::PreCompact => "PreCompact",
            Self::Notification => "Notification",
        }
    }

    /// Finds an event by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }

    /// Returns the seconds that a hook gets if it names none: as in Claude Code, but more at the end of a session, where 1.5 s are too
    /// few for a busy machine.
    pub(super) fn default_timeout_seconds(self) -> u64 {
        match self {
            // The user waits for these.
            Self::UserPromptSubmit | Self::SessionEnd => 30,
            _ => 600,
        }
    }

    /// Returns the most seconds that a hook may ask for.
    pub(super) fn max_timeout_seconds(self) -> u64 {
        match self {
            // The program cannot be left before.
            Self::SessionEnd => END_SECONDS,
            _ => 3600,
        }
    }

    /// Returns true if plain output of a hook is meant for the model.
    pub(super) fn prints_context(self) -> bool {
        matches!(self, Self::UserPromptSubmit | Self::SessionStart)
    }
}
