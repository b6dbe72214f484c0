//! Defines the errors of requests, and renders them in the format of the client's wire.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use sabir_call::{ModelError, ModelErrorKind};
use sabir_wire::{ProviderError, RequestError, Wire};

use crate::key_store::{LimitReached, ReserveError, StoreError};
use crate::upstream_failure::UpstreamFailure;
use crate::web_socket::{MessageRefusal, WEB_SOCKET_VERSION};

/// A reason why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The token is missing or wrong: 401.
    #[error(
        "a token is needed: send `Authorization: Bearer TOKEN`, with the token that the gateway printed or was given"
    )]
    NoToken,
    /// The key was revoked since its client connected: 401.
    #[error("this key was revoked")]
    KeyRevoked,
    /// A client's key may not read this: 403.
    #[error("a client's key may not read {0}: use the token of the gateway")]
    NotForClients(&'static str),
    /// The key has a limit of money, and the model's price is unknown: 403.
    #[error(
        "the key has a budget, but the price of the model `{0}` is unknown: its operator sets it under [[models]]"
    )]
    UnknownPrice(String),
    /// A limit of the client's key is reached: 429 with `retry-after`.
    #[error("{0}")]
    Limit(Box<LimitReached>),
    /// The store of keys failed: 503 with `retry-after: 1`. The text is for the operator.
    #[error("{0}")]
    KeyStore(StoreError),
    /// The host names another server, perhaps by DNS rebinding: 403.
    #[error(
        "the host `{0}` is not a name of this gateway: address it as 127.0.0.1 or localhost with its port, or name the host in its \
         configuration"
    )]
    Host(String),
    /// A browser's page of an origin that is not allowed: 403.
    #[error("pages of `{0}` may not use this gateway")]
    Origin(String),
    /// No endpoint has this path: 404.
    #[error("there is nothing at {0}")]
    Path(String),
    /// The endpoint has another method, which is the second value: 405.
    #[error("{0} is not allowed here: use {1}")]
    Method(String, Method),
    /// The client wants a WebSocket where there is none: 426. Codex then uses HTTP; after other
    /// statuses it first tries five more times.
    #[error(
        "there are WebSockets only for the Responses API, and only if they are switched on (`websocket_idle_seconds`) and answers are stored (`store_mib`): use POST"
    )]
    NoWebSocket,
    /// The client speaks another version of the WebSocket protocol: 426 with the one that is known.
    #[error("only version {WEB_SOCKET_VERSION} of the WebSocket protocol is known here")]
    WebSocketVersion,
    /// A message on a WebSocket is not answered.
    #[error("{0}")]
    Message(MessageRefusal),
    /// The answer that a request continues is not stored here: 400 with the code that clients of the Responses API expect.
    #[error(
        "previous_response_id: the response `{0}` is not stored here: send the whole history as `input`"
    )]
    UnknownResponse(String),
    /// A preflight request without an origin: 403.
    #[error("OPTIONS is answered only for pages that may use this gateway")]
    Options,
    /// The body exceeds this limit in bytes: 413.
    #[error("the body is larger than {0} bytes, which is the most that this gateway takes")]
    TooLarge(usize),
    /// The body was not complete after this many seconds: 408. The connection is closed.
    #[error("the body of the request came too slowly: it was not there after {0} seconds")]
    TooSlow(u64),
    /// The body is compressed: 415. A small compressed body could unpack to any size.
    #[error("bodies encoded as `{0}` are not supported: send the body unencoded")]
    Encoded(String),
    /// The body has a type that a web page can send to any server without asking first: 415.
    #[error("bodies of the type `{0}` are not accepted: send `Content-Type: application/json`")]
    NotJson(String),
    /// The request is not valid HTTP, or lacks a value: 400.
    #[error("{0}")]
    Malformed(String),
    /// The body cannot be decoded, or cannot be sent to the provider: 400 with a path.
    #[error("{0}")]
    Request(RequestError),
    /// No route has this model's name; the second value lists the known names: 404.
    #[error("the model `{0}` is unknown here; known are: {1}")]
    Model(String, String),
    /// All slots for concurrent responses are taken: 503 with `retry-after: 1`.
    #[error("the gateway already serves {0} answers, which is its limit; try again")]
    Busy(usize),
    /// The bodies of other requests take all the memory that there is for them: 503 with `retry-after: 1`.
    #[error("the requests that are being answered take all the memory for bodies; try again")]
    BodiesFull,
    /// No upstream answered a forwarded request: 502, or 404 if none has the endpoint.
    #[error("{}", if *.0 { "the model cannot be reached" } else { "the model has no such endpoint" })]
    Forward(bool),
    /// The answer to a forwarded request is compressed, although nothing asked for that: 502.
    #[error("{}", sabir_model::describe_compressed_answer(.0))]
    CompressedAnswer(String),
    /// A call of the model cannot be used: 502.
    #[error("{0}")]
    BrokenCall(ModelError),
    /// The model failed. Before the first byte, the response has the status of its error, or 502 if
    /// the provider rejected the gateway's key; later, the error is an event of the stream. The text
    /// is for the operator; clients get other words.
    #[error("{}", .0.error)]
    Upstream(Box<UpstreamFailure>),
}

impl From<ReserveError> for Refusal {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Limit(limit) => Self::Limit(Box::new(limit)),
            ReserveError::Revoked => Self::KeyRevoked,
            ReserveError::Store(error) => Self::KeyStore(error),
        }
    }
}

impl Refusal {
    /// Returns a short name of a refusal by the gateway itself, for metrics; `None` for failures of
    /// models.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoToken | Self::KeyRevoked => "token",
            Self::Host(_) | Self::Origin(_) | Self::Options => "origin",
            Self::NotForClients(_) => "forbidden",
            Self::UnknownPrice(_) => "price",
            Self::Limit(limit) if limit.is_money => "budget",
            Self::Limit(_) => "limit",
            Self::KeyStore(_) => "key_store",
            Self::Path(_) | Self::Method(..) | Self::NoWebSocket | Self::WebSocketVersion => "path",
            Self::TooLarge(_) | Self::TooSlow(_) | Self::Encoded(_) | Self::NotJson(_) => "body",
            Self::Malformed(_) | Self::Request(_) | Self::UnknownResponse(_) | Self::Message(_) => {
                "request"
            }
            Self::Model(..) => "model",
            Self::Busy(_) | Self::BodiesFull => "busy",
            Self::BrokenCall(_)
            | Self::Upstream(_)
            | Self::Forward(_)
            | Self::CompressedAnswer(_) => {
                return None;
            }
        })
    }

    /// Converts the error to the wires' common form.
    pub(crate) fn to_provider_error(&self) -> ProviderError {
        let error_with = |status: StatusCode, code: &str| ProviderError {
            status: Some(status.as_u16()),
            ..ProviderError::new(code, self.to_string())
        };
        match self {
            Self::Request(error) => ProviderError::from(error),
            Self::BrokenCall(error) => ProviderError::from(error),
            Self::Upstream(failure) => failure.to_provider_error(),
            Self::KeyStore(_) => ProviderError {
                status: Some(503),
                ..ProviderError::new(
                    "overloaded_error",
                    "the keys of clients cannot be checked at present; try again",
                )
            },
            Self::Limit(limit) if limit.is_money => ProviderError {
                kind: ModelErrorKind::RateLimited,
                ..error_with(StatusCode::TOO_MANY_REQUESTS, "insufficient_quota")
            },
            Self::Limit(_) => error_with(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
            Self::NotForClients(_) | Self::UnknownPrice(_) => {
                error_with(StatusCode::FORBIDDEN, "permission_error")
            }
            Self::KeyRevoked => error_with(StatusCode::UNAUTHORIZED, "authentication_error"),
            Self::Forward(true) | Self::CompressedAnswer(_) => {
                error_with(StatusCode::BAD_GATEWAY, "api_error")
            }
            Self::Forward(false) => error_with(StatusCode::NOT_FOUND, "not_found_error"),
            Self::NoToken => error_with(StatusCode::UNAUTHORIZED, "authentication_error"),
            Self::Host(_) | Self::Origin(_) | Self::Options => {
                error_with(StatusCode::FORBIDDEN, "permission_error")
            }
            // The code alone would say that the model is unknown.
            Self::Path(_) => ProviderError {
                kind: ModelErrorKind::Rejected,
                ..error_with(StatusCode::NOT_FOUND, "not_found_error")
            },
            Self::Model(..) => ProviderError {
                kind: ModelErrorKind::UnknownModel,
                request_path: Some("model".to_owned()),
                ..error_with(StatusCode::NOT_FOUND, "not_found_error")
            },
            Self::Method(..) => error_with(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error"),
            Self::NoWebSocket | Self::WebSocketVersion => {
                error_with(StatusCode::UPGRADE_REQUIRED, "invalid_request_error")
            }
            Self::Message(refusal) => refusal.to_provider_error(),
            Self::UnknownResponse(_) => ProviderError {
                kind: ModelErrorKind::Rejected,
                request_path: Some("previous_response_id".to_owned()),
                ..error_with(StatusCode::BAD_REQUEST, "previous_response_not_found")
            },
            Self::TooLarge(_) => error_with(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Self::TooSlow(_) => error_with(StatusCode::REQUEST_TIMEOUT, "timeout_error"),
            Self::Encoded(_) | Self::NotJson(_) => {
                error_with(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error")
            }
            Self::Malformed(_) => error_with(StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Busy(_) | Self::BodiesFull => {
                error_with(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error")
            }
        }
    }

    /// Makes the response in the format of that wire; `None` uses the format of OpenAI.
    pub(crate) fn to_response(&self, front: Option<Wire>) -> Response {
        let front = front.unwrap_or(Wire::OpenAiChat);
        let error = self.to_provider_error();
        let mut response = Response::new(Body::from(front.encode_error(&error).to_string()));
        *response.status_mut() =
            StatusCode::from_u16(front.error_status(&error)).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        match self {
            Self::Limit(limit) => {
                // Rounded up, so that a client does not come too early.
                let seconds = limit.retry_after.as_millis().div_ceil(1000).max(1);
                if let Ok(seconds) = HeaderValue::try_from(seconds.to_string()) {
                    headers.insert(header::RETRY_AFTER, seconds);
                }
            }
            Self::Busy(_) | Self::BodiesFull | Self::KeyStore(_) => {
                _ = headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))
            }
            Self::NoToken => {
                _ = headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            // The rest of the body is not read, so the connection cannot be used again.
            Self::TooSlow(_) => {
                _ = headers.insert(header::CONNECTION, HeaderValue::from_static("close"))
            }
            Self::Upstream(failure) => failure.write_headers(front, headers),
            // RFC 9110 requires the response to name the protocol to use, and the header in
            // `Connection`.
            Self::WebSocketVersion => {
                let version = HeaderValue::from_static(WEB_SOCKET_VERSION);
                headers.insert(header::SEC_WEBSOCKET_VERSION, version);
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                _ = headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            }
            Self::NoWebSocket => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
                _ = headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            }
            Self::Method(_, wanted) => {
                _ = HeaderValue::from_str(wanted.as_str())
                    .map(|wanted| headers.insert(header::ALLOW, wanted));
            }
            _ => {}
        }
        response
    }
}
