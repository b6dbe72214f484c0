//! Defines the reasons why messages and requests of the program are refused.

use sabir_session::hooks::HookEvent;
use sabir_session::images::ImageError;
use sabir_session::{Rejected, SessionError};

/// The reasons why a control request of the program is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The request is not known.
    #[error("Sabir does not support the request `{0}`")]
    Unknown(String),
    /// Hooks are registered for an event that is not known. A guard that never runs is worse than none.
    #[error("hooks for `{event}` are not supported, only for {}", HookEvent::ALL.map(HookEvent::name).join(", "))]
    HookEvent {
        /// The event.
        event: String,
    },
    /// A hook has no id.
    #[error("a hook for `{event}` has no id")]
    HookId {
        /// The event.
        event: String,
    },
    /// Hooks or servers come too late.
    #[error("hooks and servers can be registered only before the first message")]
    Late,
    /// The mode sets rules, which are fixed when a task begins.
    #[error("the mode {0} can be set only at the start")]
    Mode(String),
    /// The request names no model.
    #[error("the model to use is missing")]
    NoModel,
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] SessionError),
    /// The session does not take it now.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// The reasons why a message of the program is not sent to the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    /// It holds neither a text nor a list of blocks.
    #[error("it has no content")]
    NoContent,
    /// It holds nothing.
    #[error("it is empty")]
    Empty,
    /// It holds a block of another kind.
    #[error("only text and images can be sent")]
    Block,
    /// An image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
}
