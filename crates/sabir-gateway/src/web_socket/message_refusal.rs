//! The errors of messages on a WebSocket that no request over HTTP has.

use sabir_call::ModelErrorKind;
use sabir_wire::ProviderError;

use super::stream_queues::{MAX_STREAMS, MAX_WAITING};

/// A reason why a message of a client is not answered. Codes, parameters and the status 400 are those
/// of OpenAI's guide, as far as it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageRefusal {
    /// The name of a queue is empty, too long or has other characters.
    #[error(
        "`stream_id` must have 1 to 256 letters, digits, underscores, hyphens and periods; leave it out for the default stream"
    )]
    InvalidStream,
    /// The connection has too many queues.
    #[error(
        "a connection has at most {MAX_STREAMS} values of `stream_id`: use one of them again, or open another connection"
    )]
    TooManyStreams,
    /// Too many requests of the connection wait for their turn.
    #[error("{MAX_WAITING} requests of this connection wait for their turn already")]
    TooManyWaiting,
    /// The connection is too old. Codex opens another one when it sees the code.
    #[error("the connection has reached its limit of 60 minutes: open another one")]
    TooOld,
    /// The gateway shuts down. The code is the same, because the client has to do the same.
    #[error("the gateway shuts down: open another connection")]
    Draining,
    /// The token or key of the connection is not valid any more.
    #[error("the token or key of this connection is not valid any more")]
    Unauthorized,
    /// The message is not text.
    #[error("messages must be text")]
    NotText,
    /// The stream of an answer ended without its last event.
    #[error("the answer broke off")]
    BrokenAnswer,
}

impl MessageRefusal {
    /// Converts the error to the wires' common form.
    pub(crate) fn to_provider_error(self) -> ProviderError {
        let status = match self {
            Self::TooManyWaiting => 429,
            Self::BrokenAnswer => 502,
            Self::Unauthorized => 401,
            _ => 400,
        };
        let kind = match self {
            Self::TooManyWaiting => ModelErrorKind::RateLimited,
            Self::BrokenAnswer => ModelErrorKind::Broken,
            Self::Unauthorized => ModelErrorKind::Key,
            _ => ModelErrorKind::Rejected,
        };
        let code = match self {
            Self::InvalidStream => "invalid_stream_id",
            Self::TooManyStreams => "websocket_stream_limit_reached",
            Self::TooOld | Self::Draining => "websocket_connection_limit_reached",
            Self::Unauthorized => "authentication_error",
            Self::TooManyWaiting | Self::NotText | Self::BrokenAnswer => "",
        };
        let is_about_stream = matches!(self, Self::InvalidStream | Self::TooManyStreams);
        ProviderError {
            kind,
            status: Some(status),
            request_path: is_about_stream.then(|| "stream_id".to_owned()),
            ..ProviderError::new(code, self.to_string())
        }
    }
}
