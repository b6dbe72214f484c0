//! One GET: its redirects, its limits, and what came.
//!
//! Every hop is looked up and checked anew and gets a client of its own, which can connect to exactly the checked addresses:
//! between the check and the connection no name is looked up again. No proxy, no cookie, no key and no referrer goes along.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION,
};
use reqwest::{Client, Response};

use super::network_scope::NetworkScope;
use super::web_url::WebUrl;

/// To connect, TLS included, and for a name server's answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// For everything.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// The most bytes of a body that are read.
pub(crate) const MAX_BODY_BYTES: usize = 5 << 20;

/// What a server said.
#[derive(Debug)]
pub(crate) struct WebResponse {
    /// Where it came from, redirects followed.
    pub(crate) place: WebUrl,
    pub(crate) status: u16,
    /// As the server wrote it; empty where it wrote none.
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body was longer.
    pub(crate) cut: bool,
}

/// What a GET led to.
#[derive(Debug)]
pub(crate) enum FetchOutcome {
    /// An answer of the host that was asked.
    Answer(WebResponse),
    /// A redirect to another host, port or scheme, which nobody has approved.
    RedirectedElsewhere {
        /// Where it redirected.
        from: WebUrl,
        /// Where to.
        to: WebUrl,
    },
}

/// Asks for a document. Dropping the future ends the request.
pub(crate) async fn fetch_document(
    place: WebUrl,
    reach: &NetworkScope,
) -> Result<FetchOutcome, String> {
    let shown = place.to_string();
    let late = || {
        format!(
            "`{shown}` took longer than {} seconds. Try again later, or another address.",
            TOTAL_TIMEOUT.as_secs()
        )
    };
    tokio::time::timeout(TOTAL_TIMEOUT, follow_redirects(place, reach))
        .await
        .unwrap_or_else(|_| Err(late()))
}

async fn follow_redirects(start: WebUrl, reach: &NetworkScope) -> Result<FetchOutcome, String> {
    let mut place = start.clone();
    for _ in 0..=MAX_REDIRECTS {
        let addresses = reach.resolve_addresses(&place, CONNECT_TIMEOUT).await?;
        let response = send_request(&place, addresses).await?;
        let status = response.status().as_u16();
        let location = header_value(&response, &LOCATION);
        if !matches!(status, 301 | 302 | 303 | 307 | 308) || location.is_empty() {
            return read_response(place, response)
                .await
                .map(FetchOutcome::Answer);
        }
        let refused = |why: String| {
            format!("`{place}` redirects to an address that cannot be followed. {why}")
        };
        let to = place.join(&location).map_err(refused)?;
        if let Some(why) = reach.refusal_reason(&to) {
            return Err(refused(why));
        }
        if !place.covers_url(&to) {
            return Ok(FetchOutcome::RedirectedElsewhere { from: place, to });
        }
        place = to;
    }
    Err(format!(
        "`{start}` redirects more than {MAX_REDIRECTS} times, at last to `{place}`. Nothing was read."
    ))
}

/// Every name is at these addresses.
struct PinnedResolver(Vec<SocketAddr>);

impl Resolve for PinnedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

async fn send_request(place: &WebUrl, addresses: Vec<SocketAddr>) -> Result<Response, String> {
    // An error says that there is one already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .dns_resolver(Arc::new(PinnedResolver(addresses)))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("sabir/", env!("CARGO_PKG_VERSION")))
        .no_proxy();
    if place.url().scheme() == "http" {
        // Reading the certificates takes a while, and none is needed.
        builder = builder.tls_certs_only([]);
    }
    let client = builder
        .build()
        .map_err(|error| format!("TLS cannot be used here: {}.", root_cause(&error)))?;
    let sending = client
        .get(place.url().clone())
        .header(ACCEPT, "text/html, text/markdown, text/plain, application/json, image/png, image/jpeg, */*;q=0.5")
        .header(ACCEPT_ENCODING, "identity")
        .send();
    sending.await.map_err(|error| {
        let what = if error.is_timeout() {
            "did not answer in time"
        } else {
            "did not answer"
        };
        format!(
            "`{place}` {what}: {}. Try again later, or another address.",
            root_cause(&error)
        )
    })
}

async fn read_response(place: WebUrl, mut response: Response) -> Result<WebResponse, String> {
    let encoding = header_value(&response, &CONTENT_ENCODING);
    if !matches!(encoding.to_ascii_lowercase().as_str(), "" | "identity") {
        let short: String = encoding
            .chars()
            .take(40)
            .flat_map(char::escape_debug)
            .collect();
        return Err(format!(
            "`{place}` answered compressed ({short}) though that was not asked for, so it cannot be read."
        ));
    }
    let (status, content_type) = (
        response.status().as_u16(),
        header_value(&response, &CONTENT_TYPE),
    );
    let (mut body, mut cut) = (Vec::new(), false);
    loop {
        match response.chunk().await {
            Ok(None) => break,
            Ok(Some(chunk)) => {
                let room = MAX_BODY_BYTES - body.len();
                body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
                if chunk.len() > room {
                    cut = true;
                    break;
                }
            }
            Err(error) => {
                return Err(format!(
                    "The answer of `{place}` broke off after {} bytes: {}.",
                    body.len(),
                    root_cause(&error)
                ));
            }
        }
    }
    Ok(WebResponse {
        place,
        status,
        content_type,
        body,
        cut,
    })
}

fn header_value(response: &Response, name: &HeaderName) -> String {
    let value = response.headers().get(name);
    value
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

/// The innermost cause, which says what really happened.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
