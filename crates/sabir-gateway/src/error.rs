//! Defines the errors of requests, and renders them in the format of the client's wire.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use sabir_call::{ModelError, ModelErrorKind};
use sabir_wire::{ProviderError, RequestError, Wire};

/// A reason why a request is not answered.
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
    /// Converts the error to the wires' common form.
    pub(crate) fn to_provider_error(&self) -> ProviderError {
        let error_with = |status: StatusCode, code: &str| ProviderError {
            status: Some(status.as_u16()),
            ..ProviderError::new(code, self.to_string())
        };
        match self {
            Self::Request(error) => ProviderError::from(error),
            // The rejected key is the gateway's, not the client's.
            Self::Failed(error) if error.kind == ModelErrorKind::Key => {
                error_with(StatusCode::BAD_GATEWAY, "api_error")
            }
            Self::Failed(error) => ProviderError::from(error),
            Self::NoToken => error_with(StatusCode::UNAUTHORIZED, "authentication_error"),
            Self::Host(_) | Self::Origin(_) | Self::Options => {
                error_with(StatusCode::FORBIDDEN, "permission_error")
            }
            Self::Path(_) => error_with(StatusCode::NOT_FOUND, "not_found_error"),
            Self::Model(..) => ProviderError {
                kind: ModelErrorKind::UnknownModel,
                request_path: Some("model".to_owned()),
                ..error_with(StatusCode::NOT_FOUND, "not_found_error")
            },
            Self::Method(..) => error_with(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error"),
            Self::TooLarge(_) => error_with(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Self::TooSlow(_) => error_with(StatusCode::REQUEST_TIMEOUT, "timeout_error"),
            Self::Encoded(_) => {
                error_with(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error")
            }
            Self::Malformed(_) => error_with(StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Busy(_) => error_with(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error"),
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
            Self::Busy(_) => _ = headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1")),
            Self::NoToken => {
                _ = headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            // The rest of the body is not read, so the connection cannot be used again.
            Self::TooSlow(_) => {
                _ = headers.insert(header::CONNECTION, HeaderValue::from_static("close"))
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
