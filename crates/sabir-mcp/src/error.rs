//! Defines the errors of servers.

/// An error of a server, with a message for the user and, if it ends a call, for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The server's process could not be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// The server must not be started.
    #[error("it is not started: {0}")]
    Refused(String),
    /// The server ended, or the connection to it.
    #[error("the connection ended: {0}")]
    Closed(String),
    /// The server was not ready in time.
    #[error("it was not ready within {0} s")]
    StartTimeout(u64),
    /// The handshake failed.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The server has to be logged in to.
    #[error("it needs a login: run `sabir mcp login {0}`")]
    LoginRequired(String),
    /// The server refused the token of the configuration.
    #[error("it refused the Authorization header of its configuration")]
    TokenRefused,
    /// The login lacks the rights for a request.
    #[error("it asks for more rights ({scopes}): run `sabir mcp login {server}`")]
    ScopeRequired {
        /// The server.
        server: String,
        /// The scopes that it names.
        scopes: String,
    },
    /// The server refuses a request although the login has the rights that it names.
    #[error("it refuses the request although the login has the rights ({0}) that it asks for")]
    ScopeAlreadyGranted(String),
    /// Its address cannot be used.
    #[error("its address {url} cannot be used: {reason}")]
    Address {
        /// The address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The answer of the server is an error.
    #[error("the server answered with an error: {0}")]
    Answer(String),
    /// A call did not end in time.
    #[error("it did not answer within {0} s and reported no progress")]
    CallTimeout(u64),
    /// There is no server of that name.
    #[error("there is no server `{0}`")]
    UnknownServer(String),
    /// The server is not ready.
    #[error("the server {server} is {state}")]
    NotReady {
        /// The server.
        server: String,
        /// Its state, in words.
        state: String,
    },
    /// The server's message is not an answer to the request.
    #[error("the server sent an unexpected answer")]
    Unexpected,
}

impl McpError {
    /// Reports whether the user's login, or its rights, are what is missing.
    pub(crate) fn is_login_error(&self) -> bool {
        matches!(
            self,
            Self::LoginRequired(_)
                | Self::TokenRefused
                | Self::ScopeRequired { .. }
                | Self::ScopeAlreadyGranted(_)
        )
    }
}
