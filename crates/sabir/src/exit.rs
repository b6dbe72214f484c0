//! Exit codes: the one place where an end becomes a number.

use std::process::ExitCode;

use sabir_agent::TaskOutcome;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// 0: what was asked for was done.
    Completed,
    /// 1: a bug, or the machine failed under us.
    Internal,
    /// 2: usage or configuration.
    Usage,
    /// 3: the task ended without completing.
    Unfinished,
    /// 4: a call was not understood (`parse`, `check`, `explain`, `wire decode`), or a tool cannot be used (`lint`).
    NotUnderstood,
    /// 5: the task could not go on because calls were denied.
    Denied,
    /// 6: a limit was reached.
    Limit,
    /// 7: the provider failed.
    Provider,
    /// 130: interrupted.
    Interrupted,
    /// That of a command of the user's (`sandbox`).
    Passed(u8),
}

impl ExitStatus {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::Unfinished => 3,
            Self::NotUnderstood => 4,
            Self::Denied => 5,
            Self::Limit => 6,
            Self::Provider => 7,
            Self::Interrupted => 130,
            Self::Passed(code) => code,
        }
    }
}

impl From<TaskOutcome> for ExitStatus {
    fn from(outcome: TaskOutcome) -> Self {
        match outcome {
            TaskOutcome::Completed => Self::Completed,
            TaskOutcome::Denied => Self::Denied,
            TaskOutcome::Limit => Self::Limit,
            TaskOutcome::ProviderFailed => Self::Provider,
            TaskOutcome::Misconfigured => Self::Usage,
            TaskOutcome::Cancelled => Self::Interrupted,
            TaskOutcome::StoreFailed => Self::Internal,
            // An end that is not known to be good is not (law 10).
            _ => Self::Unfinished,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command cannot be carried out: one sentence for the user, and the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// What is wrong, where, and what to do.
    pub(crate) message: String,
    /// How the process ends.
    pub(crate) exit: ExitStatus,
}

impl From<sabir_session::SessionError> for CommandError {
    fn from(error: sabir_session::SessionError) -> Self {
        let message = error.to_string();
        if error.is_internal() { Self::internal(message) } else { Self::usage(message) }
    }
}

/// The failure of a name that no dialect has. `also` is what else could be given.
pub(crate) fn unknown_dialect(name: &str, also: &str) -> CommandError {
    sabir_session::dialect_tables::unknown(crate::surroundings::dialects(), name, also).into()
}

impl CommandError {
    /// The user can put it right.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: ExitStatus::Usage }
    }

    /// The machine failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: ExitStatus::Internal }
    }
}
