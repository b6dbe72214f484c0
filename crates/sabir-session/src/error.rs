//! Defines the errors of sessions, their configuration and their tasks.

use sabir_agent::TaskId;

/// An error of starting, loading or running a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The request or the configuration cannot be used; the message says what to change.
    #[error("{0}")]
    Invalid(String),
    /// No task has an id that begins with this name.
    #[error("there is no task `{0}`; `sabir tasks` lists them")]
    UnknownTask(String),
    /// The ids of several tasks begin with this name.
    #[error(
        "the names of {count} tasks begin or end with `{name}`, among them {example}; give more of the name"
    )]
    AmbiguousTask {
        /// The requested name.
        name: String,
        /// The number of tasks that begin with it.
        count: usize,
        /// One of them.
        example: TaskId,
    },
    /// The first messages of several tasks contain these words.
    #[error(
        "{count} tasks have the words `{words}`: {tasks}; give more words, or one of these names"
    )]
    AmbiguousWords {
        /// The words.
        words: String,
        /// The number of tasks that have them.
        count: usize,
        /// Some of them, for people.
        tasks: String,
    },
    /// The machine or the program failed: no thread, no file descriptors, an impossible state.
    #[error("{0}")]
    Internal(String),
}

impl SessionError {
    /// Creates an error that the user can fix by changing the request or the configuration.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Creates an error of the machine or of the program.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal(message.into())
    }

    /// Reports whether the machine or the program is at fault, not the request.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Internal(_))
    }
}
