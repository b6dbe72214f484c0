//! Defines the exit codes and the error type of commands.

use std::process::ExitCode;

use sabir_agent::TaskOutcome;
use sabir_agent_sdk::SdkArgumentError;
use sabir_session::checkpoint_history::{CheckpointError, HistoryError};
use sabir_terminal::control_input::FirstMessageError;
use sabir_terminal::piped_input::PipedInputError;
use sabir_terminal::serving_command::ServingError;
use sabir_toolbox::ToolboxError;
use sabir_toolbox::edit::EditError;
use sabir_toolbox::import::ImportError;

/// The exit status of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// 0: success.
    Completed,
    /// 1: a bug, or a failure of the machine.
    Internal,
    /// 2: usage or configuration.
    Usage,
    /// 3: the task ended without completing.
    Unfinished,
    /// 4: a call was not understood (`parse`, `check`, `explain`, `wire decode`), a tool cannot be used (`lint`), or a test found something (`torture`, `corpus score`).
    NotUnderstood,
    /// 5: the task could not continue because calls were denied.
    Denied,
    /// 6: a limit was reached.
    Limit,
    /// 7: the provider failed.
    Provider,
    /// 130: interrupted.
    Interrupted,
    /// The exit code of the user's command (`sandbox`).
    Passed(u8),
}

impl ExitStatus {
    /// Returns the exit code.
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

    /// Returns the status of a command that did something, or did not because the user said no.
    pub(crate) fn from_confirmation(done: bool) -> Self {
        if done { Self::Completed } else { Self::Denied }
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
            // An unknown outcome must not count as success.
            _ => Self::Unfinished,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(exit.code())
    }
}

/// An error of a command: one sentence for the user, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// The problem, its place, and the remedy.
    pub(crate) message: String,
    /// The exit status of the process.
    pub(crate) exit: ExitStatus,
}

impl From<sabir_session::SessionError> for CommandError {
    fn from(error: sabir_session::SessionError) -> Self {
        let message = error.to_string();
        if error.is_internal() {
            Self::internal(message)
        } else {
            Self::usage(message)
        }
    }
}

impl From<std::io::Error> for CommandError {
    // Of the machine itself, such as signals that cannot be received; errors of files are reported
    // with their names.
    fn from(error: std::io::Error) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<HistoryError> for CommandError {
    fn from(error: HistoryError) -> Self {
        let exit = match &error {
            HistoryError::Checkpoint(CheckpointError::Stale) => ExitStatus::Unfinished,
            error if error.is_internal() => ExitStatus::Internal,
            _ => ExitStatus::Usage,
        };
        Self {
            message: error.to_string(),
            exit,
        }
    }
}

impl From<FirstMessageError> for CommandError {
    fn from(error: FirstMessageError) -> Self {
        let exit = match error {
            FirstMessageError::Cancelled => ExitStatus::Interrupted,
            FirstMessageError::Ended => ExitStatus::Usage,
        };
        Self {
            message: error.to_string(),
            exit,
        }
    }
}

impl From<ToolboxError> for CommandError {
    fn from(error: ToolboxError) -> Self {
        match error {
            ToolboxError::Output(_) => Self::internal(error.to_string()),
            error => Self::usage(error.to_string()),
        }
    }
}

/// Makes errors that the user can fix usage errors of commands.
macro_rules! usage_errors {
    ($($error:ty),*) => {$(impl From<$error> for CommandError {
        fn from(error: $error) -> Self {
            Self::usage(error.to_string())
        }
    })*};
}

usage_errors!(
    PipedInputError,
    EditError,
    ImportError,
    SdkArgumentError,
    ServingError
);

impl CommandError {
    /// Creates an error that the user can fix.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit: ExitStatus::Usage,
        }
    }

    /// Creates an error of the machine or of Sabir.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit: ExitStatus::Internal,
        }
    }
}
