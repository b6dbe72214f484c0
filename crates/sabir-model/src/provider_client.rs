//! Sends requests to a provider that are not questions to a chat model: checks of its health, and
//! requests of clients that are forwarded as they are, such as those for embeddings.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;

use crate::client_redaction::ClientRedactor;
use crate::network::NetworkTransport;
use crate::provider::Provider;
use crate::transport::{TransportErrorKind, compression_in};

/// A client of one provider. Connections are reused between requests.
pub struct ProviderClient {
    /// The provider.
    provider: Provider,
    /// The HTTP client.
    network: NetworkTransport,
    /// The time for the head of a response.
    first_byte: Duration,
    /// Removes what clients must not see.
    redactor: Arc<ClientRedactor>,
}

/// A request that is forwarded.
#[derive(Debug)]
pub struct ForwardedRequest {
    /// The method, such as `POST`.
    pub method: String,
    /// The path of the provider's API, with the version: `/v1/embeddings`. May have a query.
    pub path: String,
    /// The headers; the provider's key and own headers are added to them.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The response to a forwarded request, whose head has arrived.
#[derive(Debug)]
pub struct ForwardedResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The response with its body.
    body: reqwest::Response,
}

/// A forwarded request got no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The request cannot be sent: a part of it, or of the provider's configuration, is invalid.
    #[error("the request to {provider} cannot be sent: {reason}")]
    Invalid {
        /// The provider's name.
        provider: String,
        /// The reason.
        reason: String,
    },
    /// The provider cannot be reached.
    #[error("{provider} cannot be reached: {reason}")]
    Unreachable {
        /// The provider's name.
        provider: String,
        /// The reason.
        reason: String,
    },
    /// The provider did not answer in time.
    #[error("{provider} did not answer within {seconds} s")]
    TimedOut {
        /// The provider's name.
        provider: String,
        /// The time that it had.
        seconds: u64,
    },
    /// The connection broke in the middle of the body.
    #[error("the answer of {provider} broke off: {reason}")]
    Broken {
        /// The provider's name.
        provider: String,
        /// The reason.
        reason: String,
    },
}

impl ForwardedResponse {
    /// Returns the compression of the body, such as `gzip`; `None` for a plain one. None is asked for,
    /// and none is decoded.
    pub fn compression(&self) -> Option<String> {
        compression_in(&self.headers)
    }
}

impl std::fmt::Debug for ProviderClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderClient")
            .field("provider", &self.provider.name)
            .finish_non_exhaustive()
    }
}

impl ProviderClient {
    /// Makes a client with a time limit for connecting and one for the head of a response. No
    /// connection is opened before the first request.
    pub fn new(provider: Provider, connect: Duration, first_byte: Duration) -> Self {
        let network = NetworkTransport::new(&provider, connect);
        let redactor = Arc::new(ClientRedactor::new(&provider));
        Self {
            provider,
            network,
            first_byte,
            redactor,
        }
    }

    /// Returns the provider's name.
    pub fn provider_name(&self) -> &str {
        &self.provider.name
    }

    /// Requests a path at the root of the provider's server, and returns true if the status is one of
    /// success within the time limit. The key is sent, as some servers require it.
    pub async fn check_health(&self, path: &str, limit: Duration) -> bool {
        let mut headers = HeaderMap::new();
        let Ok(client) = self.network.http_client() else {
            return false;
        };
        if self.provider.insert_own_headers(&mut headers).is_err() {
            return false;
        }
        let asked = client.get(self.provider.root_url(path)).headers(headers);
        match timeout(limit, asked.send()).await {
            Ok(Ok(response)) => response.status().is_success(),
            _ => false,
        }
    }

    /// Forwards a request, and returns when the head of the response has arrived.
    ///
    /// # Errors
    /// No response came. A response with the status of an error is returned.
    pub async fn forward(
        &self,
        request: ForwardedRequest,
    ) -> Result<ForwardedResponse, ForwardError> {
        let provider = || self.provider.name.clone();
        let invalid = |reason: String| ForwardError::Invalid {
            provider: provider(),
            reason,
        };
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|error| invalid(error.to_string()))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name = HeaderName::try_from(name).map_err(|error| invalid(error.to_string()))?;
            let value = HeaderValue::try_from(value).map_err(|error| invalid(error.to_string()))?;
            headers.append(name, value);
        }
        for (name, value) in self.provider.wire.required_headers() {
            headers
                .entry(*name)
                .or_insert(HeaderValue::from_static(value));
        }
        // After the client's headers, so that those of the provider replace them.
        self.provider
            .insert_own_headers(&mut headers)
            .map_err(|error| invalid(error.to_string()))?;
        let client = self
            .network
            .http_client()
            .map_err(|error| invalid(error.cause))?;
        let asked = client
            .request(method, self.provider.path_url(&request.path))
            .headers(headers)
            .body(request.body)
            .send();
        let response = match timeout(self.first_byte, asked).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let error = crate::network::classify_error(&error);
                return Err(match error.kind {
                    TransportErrorKind::Address => invalid(error.cause),
                    _ => ForwardError::Unreachable {
                        provider: provider(),
                        reason: error.cause,
                    },
                });
            }
            Err(_) => {
                return Err(ForwardError::TimedOut {
                    provider: provider(),
                    seconds: self.first_byte.as_secs(),
                });
            }
        };
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter();
        Ok(ForwardedResponse {
            status: response.status().as_u16(),
            headers: headers
                .map(|(name, value)| (name.as_str().to_owned(), text(value)))
                .collect(),
            body: response,
        })
    }

    /// Returns the redactor of texts for clients.
    pub fn redactor(&self) -> Arc<ClientRedactor> {
        Arc::clone(&self.redactor)
    }

    /// Receives the next piece of a response's body; `None` at its end.
    ///
    /// # Errors
    /// The connection broke, or nothing came for as long as the head may take.
    pub async fn next_chunk(
        &self,
        response: &mut ForwardedResponse,
    ) -> Result<Option<Vec<u8>>, ForwardError> {
        let provider = || self.provider.name.clone();
        // A limit for each piece, as a whole body may take long.
        match timeout(self.first_byte, response.body.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk.map(Vec::from)),
            Ok(Err(error)) => Err(ForwardError::Broken {
                provider: provider(),
                reason: crate::network::root_cause(&error),
            }),
            Err(_) => Err(ForwardError::TimedOut {
                provider: provider(),
                seconds: self.first_byte.as_secs(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_base_url() {
        let provider = |base: &str| Provider::new("box", sabir_wire::Wire::OpenAiChat, base, None);
        let client = provider("http://box:8000/v1");
        assert_eq!(
            client.path_url("/v1/embeddings"),
            "http://box:8000/v1/embeddings"
        );
        assert_eq!(client.root_url("/health"), "http://box:8000/health");
        let client = provider("https://box/openai/v1?api-version=2");
        assert_eq!(
            client.path_url("/v1/embeddings"),
            "https://box/openai/v1/embeddings?api-version=2"
        );
        assert_eq!(
            client.path_url("/v1/files?limit=2&api-version=1&after=x"),
            "https://box/openai/v1/files?limit=2&after=x&api-version=2"
        );
        assert_eq!(client.root_url("/health"), "https://box/health");
        assert_eq!(
            provider("http://box").root_url("/health"),
            "http://box/health"
        );
    }
}
