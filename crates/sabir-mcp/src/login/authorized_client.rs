//! The HTTP client of a connection, which adds the token of the login to each request.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;

use super::ServerLogin;
use crate::sent_secrets::SentSecrets;

/// The headers of a request, as rmcp passes them.
type Headers = HashMap<HeaderName, HeaderValue>;
/// The result of a request.
type HttpResult<T> = Result<T, StreamableHttpError<reqwest::Error>>;

/// The HTTP client of a connection.
#[derive(Clone)]
pub(crate) struct AuthorizedClient {
    pub(crate) http: reqwest::Client,
    /// `None`: the configuration has a header with a token of its own.
    pub(crate) login: Option<Arc<ServerLogin>>,
    /// The secrets that answers must not repeat.
    pub(crate) sent_secrets: SentSecrets,
}

impl AuthorizedClient {
    /// Makes a request with the current token, and retries once with another token if the server refuses it. `own_token` is the token of
    /// the configuration.
    async fn request<T, F>(
        &self,
        own_token: Option<String>,
        send: impl Fn(Option<String>) -> F,
    ) -> HttpResult<T>
    where
        F: Future<Output = HttpResult<T>>,
    {
        let Some(login) = self.login.as_ref().filter(|_| own_token.is_none()) else {
            return send(own_token).await.map_err(to_login_error);
        };
        let token = login.bearer_token().await?;
        let first = send(token.clone()).await.map_err(to_login_error);
        let result = match (first, token) {
            (Err(StreamableHttpError::AuthRequired(refusal)), Some(token)) => {
                match login.replace_token(&token).await? {
                    Some(other) => send(Some(other)).await.map_err(to_login_error),
                    None => Err(StreamableHttpError::AuthRequired(refusal)),
                }
            }
            (first, _) => first,
        };
        if let Err(error) = &result
            && let Some(challenge) = error.auth_challenge()
        {
            login.keep_challenge(challenge)?;
        }
        result
    }
}

/// Converts the refusal of a server that does not say how to log in into an error that asks for a login.
fn to_login_error(
    error: StreamableHttpError<reqwest::Error>,
) -> StreamableHttpError<reqwest::Error> {
    let is_refusal = match &error {
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        StreamableHttpError::Client(error) => {
            error.status() == Some(reqwest::StatusCode::UNAUTHORIZED)
        }
        _ => false,
    };
    match is_refusal {
        true => StreamableHttpError::AuthRequired(AuthRequiredError::new("Bearer".to_owned())),
        false => error,
    }
}

impl StreamableHttpClient for AuthorizedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            limits,
        )
        .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let answer = self.request(auth_header, |token| {
            self.http.post_message_with_response_limits(
                Arc::clone(&uri),
                message.clone(),
                session_id.clone(),
                token,
                custom_headers.clone(),
                limits,
            )
        });
        Ok(self.sent_secrets.redact_answer(answer.await?))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> HttpResult<()> {
        self.request(auth_header, |token| {
            self.http.delete_session(
                Arc::clone(&uri),
                Arc::clone(&session_id),
                token,
                custom_headers.clone(),
            )
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        let size = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            size,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        let stream = self.request(auth_header, |token| {
            self.http.get_stream_with_max_sse_event_size(
                Arc::clone(&uri),
                session_id.clone(),
                last_event_id.clone(),
                token,
                custom_headers.clone(),
                max_sse_event_size,
            )
        });
        Ok(self.sent_secrets.redact_stream(stream.await?))
    }
}
