//! Sends one GET, follows its redirects and reads the body, within limits.
//!
//! Every hop is resolved and checked again and gets a client of its own, which can connect to
//! exactly the checked addresses: no name is looked up between the check and the connection. No
//! proxy, cookie, key or referrer goes along.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION,
};
use reqwest::{Client, Response};

use super::network_scope::{AddressError, NetworkScope};
use super::web_url::{UrlError, WebUrl};

/// The time to connect, TLS included, and the time for the answer of a name server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The time for a whole fetch, redirects included.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// The size of a body above which the rest is not read.
pub(crate) const MAX_BODY_BYTES: usize = 5 << 20;
/// The length of a header value that error messages repeat.
const MAX_QUOTED_CHARS: usize = 40;

/// The response of a server.
#[derive(Debug)]
pub(crate) struct WebResponse {
    /// The URL that the response is for, after redirects.
    pub(crate) url: WebUrl,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The value of `Content-Type`; empty if there is none.
    pub(crate) content_type: String,
    /// The body, up to [`MAX_BODY_BYTES`].
    pub(crate) body: Vec<u8>,
    /// True if the body was longer.
    pub(crate) is_truncated: bool,
}

/// The outcome of a fetch.
#[derive(Debug)]
pub(crate) enum FetchOutcome {
    /// A response of the host that was requested.
    Response(WebResponse),
    /// A redirect to another host, port or scheme, which was not approved.
    RedirectedElsewhere {
        /// The URL that redirects.
        from: WebUrl,
        /// The URL that it redirects to.
        to: WebUrl,
    },
}

/// The reason that there is no response.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The whole fetch took too long.
    #[error(
        "`{url}` took longer than {} seconds. Try again later, or another address.",
        TOTAL_TIMEOUT.as_secs()
    )]
    TimedOut {
        /// The URL of the call.
        url: String,
    },
    /// There is no address that may be connected to.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A redirect leads to something that is not a URL which can be requested.
    #[error("`{from}` redirects to an address that cannot be followed. {reason}")]
    MalformedRedirect {
        /// The URL that redirects.
        from: String,
        /// The problem.
        reason: UrlError,
    },
    /// A redirect leads to a host that is not public.
    #[error("`{from}` redirects to an address that cannot be followed. {reason}")]
    RefusedRedirect {
        /// The URL that redirects.
        from: String,
        /// The problem.
        reason: AddressError,
    },
    /// There were too many redirects.
    #[error(
        "`{start}` redirects more than {MAX_REDIRECTS} times, at last to `{last}`. Nothing was read."
    )]
    TooManyRedirects {
        /// The URL of the call.
        start: String,
        /// The URL that was not requested any more.
        last: String,
    },
    /// The system lacks something that TLS needs.
    #[error("TLS cannot be used here: {reason}.")]
    NoTls {
        /// The innermost cause.
        reason: String,
    },
    /// The server did not respond, or not in time.
    #[error(
        "`{url}` did not answer{}: {reason}. Try again later, or another address.",
        if *.timed_out { " in time" } else { "" }
    )]
    NoResponse {
        /// The requested URL.
        url: String,
        /// True if the time to connect was over.
        timed_out: bool,
        /// The innermost cause.
        reason: String,
    },
    /// The body is compressed although the request forbade it.
    #[error(
        "`{url}` answered compressed ({encoding}) though that was not asked for, so it cannot be read."
    )]
    Compressed {
        /// The requested URL.
        url: String,
        /// The start of the value of `Content-Encoding`.
        encoding: String,
    },
    /// The connection broke within the body.
    #[error("The answer of `{url}` broke off after {bytes} bytes: {reason}.")]
    BrokenOff {
        /// The requested URL.
        url: String,
        /// The size of the part that arrived.
        bytes: usize,
        /// The innermost cause.
        reason: String,
    },
}

/// Fetches a document. Dropping the future ends the request.
///
/// # Errors
/// When there is no response. A response with an error status is none of them.
pub(crate) async fn fetch_document(
    url: WebUrl,
    scope: &NetworkScope,
) -> Result<FetchOutcome, FetchError> {
    // One limit for all of it: a server that sends a byte now and then would never hit a limit for
    // pauses.
    tokio::time::timeout(TOTAL_TIMEOUT, follow_redirects(&url, scope))
        .await
        .unwrap_or_else(|_| {
            Err(FetchError::TimedOut {
                url: url.to_string(),
            })
        })
}

/// Requests a URL and follows redirects within the same host.
async fn follow_redirects(
    start: &WebUrl,
    scope: &NetworkScope,
) -> Result<FetchOutcome, FetchError> {
    let mut url = start.clone();
    for _ in 0..=MAX_REDIRECTS {
        let addresses = scope.resolve_addresses(&url, CONNECT_TIMEOUT).await?;
        let response = send_request(&url, addresses).await?;
        let status = response.status().as_u16();
        let location = header_value(&response, &LOCATION);
        // 300 and 304 name no single document to go to.
        if !matches!(status, 301 | 302 | 303 | 307 | 308) || location.is_empty() {
            return read_response(url, response)
                .await
                .map(FetchOutcome::Response);
        }
        let to = match url.join_relative(&location) {
            Ok(to) => to,
            Err(reason) => {
                return Err(FetchError::MalformedRedirect {
                    from: url.to_string(),
                    reason,
                });
            }
        };
        if let Err(reason) = scope.check_url(&to) {
            return Err(FetchError::RefusedRedirect {
                from: url.to_string(),
                reason,
            });
        }
        // The user approved a host. Another one is for the model to ask for.
        if !url.covers_url(&to) {
            return Ok(FetchOutcome::RedirectedElsewhere { from: url, to });
        }
        url = to;
    }
    Err(FetchError::TooManyRedirects {
        start: start.to_string(),
        last: url.to_string(),
    })
}

/// A resolver that gives the same addresses for every name.
struct PinnedResolver(Vec<SocketAddr>);

impl Resolve for PinnedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// Sends one request to these addresses, and returns as soon as the headers are there.
async fn send_request(url: &WebUrl, addresses: Vec<SocketAddr>) -> Result<Response, FetchError> {
    // The call fails if the process has a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .dns_resolver(Arc::new(PinnedResolver(addresses)))
        .connect_timeout(CONNECT_TIMEOUT)
        // Each hop has to be checked before it is requested.
        .redirect(reqwest::redirect::Policy::none())
        // The next host must not learn which page led to it.
        .referer(false)
        .user_agent(concat!("sabir/", env!("CARGO_PKG_VERSION")))
        // A proxy would resolve names itself, past the check of the addresses.
        .no_proxy();
    if url.as_url().scheme() == "http" {
        // Loading the certificates of the system takes a while, and none is needed.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|error| FetchError::NoTls {
        reason: root_cause(&error),
    })?;
    let sending = client
        .get(url.as_url().clone())
        .header(ACCEPT, "text/html, text/markdown, text/plain, application/json, image/png, image/jpeg, */*;q=0.5")
        // A compressed body could grow beyond any limit when it is decompressed.
        .header(ACCEPT_ENCODING, "identity")
        .send();
    sending.await.map_err(|error| FetchError::NoResponse {
        url: url.to_string(),
        timed_out: error.is_timeout(),
        reason: root_cause(&error),
    })
}

/// Reads the body, up to its limit.
async fn read_response(url: WebUrl, mut response: Response) -> Result<WebResponse, FetchError> {
    let encoding = header_value(&response, &CONTENT_ENCODING);
    if !matches!(encoding.to_ascii_lowercase().as_str(), "" | "identity") {
        return Err(FetchError::Compressed {
            url: url.to_string(),
            encoding: encoding
                .chars()
                .take(MAX_QUOTED_CHARS)
                .flat_map(char::escape_debug)
                .collect(),
        });
    }
    let status = response.status().as_u16();
    let content_type = header_value(&response, &CONTENT_TYPE);
    let mut body = Vec::new();
    let mut is_truncated = false;
    loop {
        match response.chunk().await {
            Ok(None) => break,
            Ok(Some(chunk)) => {
                // `Content-Length` may be absent or wrong, so the bytes themselves are counted.
                let room = MAX_BODY_BYTES - body.len();
                body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
                if chunk.len() > room {
                    is_truncated = true;
                    break;
                }
            }
            Err(error) => {
                return Err(FetchError::BrokenOff {
                    url: url.to_string(),
                    bytes: body.len(),
                    reason: root_cause(&error),
                });
            }
        }
    }
    Ok(WebResponse {
        url,
        status,
        content_type,
        body,
        is_truncated,
    })
}

/// Returns the value of a header; empty if there is none.
fn header_value(response: &Response, name: &HeaderName) -> String {
    let value = response.headers().get(name);
    value
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

/// Returns the innermost cause of an error: the outer ones only name the step that failed.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    // reqwest wraps hyper, which wraps the system error.
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
