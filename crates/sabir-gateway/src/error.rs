//! What went wrong with a request, and how the client is told: in the error format of the wire that it speaks.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use sabir_call::{ModelError, ModelErrorKind};
use sabir_wire::{ProviderError, RequestError, Wire};

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "a token is needed: send `Authorization: Bearer TOKEN`, with the token that the gateway printed or was given"
    )]
    NoToken,
    #[error(
        "the host `{0}` is none of this gateway's: address it as 127.0.0.1 or localhost with its port, or name the host in its \
         configuration"
    )]
    Host(String),
    #[error("pages of `{0}` may not ask this gateway")]
    Origin(String),
    #[error("there is nothing at {0}")]
    Path(String),
    #[error("{0} is not allowed here: use {1}")]
    Method(String, Method),
    #[error("OPTIONS is answered for pages that may ask, and for nobody else")]
    Options,
    #[error("the body is larger than {0} bytes, which is the most that this gateway takes")]
    TooLarge(usize),
    #[error("the body of the request came too slowly: it was not there after {0} seconds")]
    TooSlow(u64),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Request(RequestError),
    #[error("the model `{0}` is unknown here; known are: {1}")]
    Model(String, String),
    #[error("the gateway makes {0} answers at once, which is its limit; try again")]
    Busy(usize),
    #[error("{0}")]
    Failed(ModelError),
}

impl Refusal {
    /// The HTTP status that says it.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::Host(_) | Self::Origin(_) | Self::Options => StatusCode::FORBIDDEN,
            Self::Path(_) | Self::Model(..) => StatusCode::NOT_FOUND,
            Self::Method(..) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed(_) | Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(error) => status_of(error.kind),
        }
    }

    /// The error as a wire says it.
    pub(crate) fn told(&self) -> ProviderError {
        let kind = match self {
            Self::NoToken => ModelErrorKind::Key,
            Self::Model(..) => ModelErrorKind::UnknownModel,
            Self::Busy(_) => ModelErrorKind::Unavailable,
            Self::Failed(error) => error.kind,
            _ => ModelErrorKind::Rejected,
        };
        let status = self.status();
        let place = match self {
            Self::Request(error) => Some(error.path.clone()),
            Self::Model(..) => Some("model".to_owned()),
            _ => None,
        };
        let code = code_of(kind, status).to_owned();
        ProviderError { kind, code, message: self.to_string(), status: Some(status.as_u16()), place }
    }

    /// The response, as the clients of that wire expect it.
    pub(crate) fn response(&self, front: Option<Wire>) -> Response {
        let body = front.unwrap_or(Wire::OpenAiChat).encode_error(&self.told()).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let headers = response.headers_mut();
        match self {
            Self::Busy(_) => _ = headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1")),
            Self::NoToken => _ = headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            // What is left of the body is not waited for.
            Self::TooSlow(_) => _ = headers.insert(header::CONNECTION, HeaderValue::from_static("close")),
            Self::Method(_, wanted) => {
                _ = HeaderValue::from_str(wanted.as_str()).map(|wanted| headers.insert(header::ALLOW, wanted));
            }
            _ => {}
        }
        response
    }
}

/// The status with which a failure of the model is passed on. A key that the provider refuses is the gateway's, not the
/// client's.
fn status_of(kind: ModelErrorKind) -> StatusCode {
    match kind {
        ModelErrorKind::Rejected | ModelErrorKind::TooLong => StatusCode::BAD_REQUEST,
        ModelErrorKind::UnknownModel => StatusCode::NOT_FOUND,
        ModelErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ModelErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// The word for it that Anthropic and OpenAI share or nearly share.
fn code_of(kind: ModelErrorKind, status: StatusCode) -> &'static str {
    match kind {
        ModelErrorKind::Key if status == StatusCode::UNAUTHORIZED => "authentication_error",
        ModelErrorKind::UnknownModel => "not_found_error",
        ModelErrorKind::TooLong => "context_length_exceeded",
        ModelErrorKind::RateLimited => "rate_limit_error",
        ModelErrorKind::Unavailable => "overloaded_error",
        ModelErrorKind::Rejected => match status {
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            _ => "invalid_request_error",
        },
        _ => "api_error",
    }
}
