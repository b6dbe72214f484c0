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
    #[error("bodies that are encoded as `{0}` are not read here: send it as it is")]
    Encoded(String),
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
    /// The error as a wire says it.
    pub(crate) fn to_provider_error(&self) -> ProviderError {
        let of = |status: StatusCode, code: &str| ProviderError {
            status: Some(status.as_u16()),
            ..ProviderError::new(code, self.to_string())
        };
        match self {
            Self::Request(error) => ProviderError::from(error),
            // The key that the provider refuses is the gateway's, not the client's.
            Self::Failed(error) if error.kind == ModelErrorKind::Key => of(StatusCode::BAD_GATEWAY, "api_error"),
            Self::Failed(error) => ProviderError::from(error),
            Self::NoToken => of(StatusCode::UNAUTHORIZED, "authentication_error"),
            Self::Host(_) | Self::Origin(_) | Self::Options => of(StatusCode::FORBIDDEN, "permission_error"),
            Self::Path(_) => of(StatusCode::NOT_FOUND, "not_found_error"),
            Self::Model(..) => ProviderError {
                kind: ModelErrorKind::UnknownModel,
                request_path: Some("model".to_owned()),
                ..of(StatusCode::NOT_FOUND, "not_found_error")
            },
            Self::Method(..) => of(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error"),
            Self::TooLarge(_) => of(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Self::TooSlow(_) => of(StatusCode::REQUEST_TIMEOUT, "timeout_error"),
            Self::Encoded(_) => of(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error"),
            Self::Malformed(_) => of(StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Busy(_) => of(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error"),
        }
    }

    /// The response, as the clients of that wire expect it.
    pub(crate) fn to_response(&self, front: Option<Wire>) -> Response {
        let (front, told) = (front.unwrap_or(Wire::OpenAiChat), self.to_provider_error());
        let mut response = Response::new(Body::from(front.encode_error(&told).to_string()));
        *response.status_mut() = StatusCode::from_u16(front.error_status(&told)).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
