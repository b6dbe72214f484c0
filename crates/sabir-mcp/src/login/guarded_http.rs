//! Makes the HTTP requests of a login, within limits: a server's metadata decides on their addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};
use sabir_workspace::{NetworkKind, never_reachable_kind, non_public_kind};
use tokio::sync::OnceCell;
use url::{Host, Url};

use crate::servers::HttpClientFactory;

/// The longest time of one request.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The reason why a request of a login is not made, or its answer not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GuardError {
    #[error("{0} is not used: a login needs https, except on this machine")]
    Insecure(String),
    #[error("{host} is not asked: its address is {kind}, and the server is elsewhere")]
    Inside { host: String, kind: NetworkKind },
    #[error("the answer of {0} is larger than {size} KiB", size = MAX_ANSWER_BYTES >> 10)]
    TooLarge(String),
}

/// The HTTP client of a login.
pub(crate) struct GuardedHttp {
    /// Made for the first request; most connections never make one.
    client: OnceCell<reqwest::Client>,
    begin_client: HttpClientFactory,
    server: Url,
    resolver: GuardedResolver,
}

impl GuardedHttp {
    /// Creates the client for logins to one server. `begin_client` begins clients that do not follow redirects.
    pub(crate) fn new(server: Url, begin_client: HttpClientFactory) -> Self {
        Self {
            client: OnceCell::new(),
            begin_client,
            resolver: GuardedResolver {
                server: server.clone(),
                targets: Arc::default(),
            },
            server,
        }
    }

    async fn client(&self) -> Result<&reqwest::Client, OAuthHttpClientError> {
        let build = async || {
            let builder = (self.begin_client)()
                .dns_resolver(Arc::new(self.resolver.clone()))
                .timeout(REQUEST_TIME);
            // Reads the certificates of the system, which takes long enough to hold others up.
            let built = tokio::task::spawn_blocking(move || builder.build()).await;
            Ok(built??)
        };
        self.client.get_or_try_init(build).await
    }

    async fn send(
        &self,
        request: OAuthHttpRequest,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let request = reqwest::Request::try_from(request.request)?;
        check_endpoint(request.url(), &self.server)?;
        self.check_literal_address(request.url()).await?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        self.resolver.watch_host(&host);
        let mut response = self.client().await?.execute(request).await?;
        let mut answer = http::Response::builder().status(response.status());
        for (name, value) in response.headers() {
            answer = answer.header(name, value);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(GuardError::TooLarge(host).into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(answer.body(body)?)
    }

    /// Refuses an address that is written as a number, for which no name is looked up.
    async fn check_literal_address(&self, url: &Url) -> Result<(), GuardError> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            _ => return Ok(()),
        };
        let host = url.host_str().unwrap_or_default();
        self.resolver.check_address(host, address).await
    }
}

impl OAuthHttpClient for GuardedHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send(request))
    }
}

/// Checks that an address of a login is encrypted, or on this machine like the server itself.
pub(crate) fn check_endpoint(url: &Url, server: &Url) -> Result<(), GuardError> {
    let is_secure = url.scheme() == "https"
        || (url.scheme() == "http" && is_loopback(url) && is_loopback(server));
    match is_secure {
        true => Ok(()),
        // Without its query, which may hold a code.
        false => Err(GuardError::Insecure(format!(
            "{}://{}{}",
            url.scheme(),
            url.host_str().unwrap_or_default(),
            url.path()
        ))),
    }
}

/// Reports whether an address is on this machine by its name alone.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Looks names up, and leaves out the addresses that a login must not reach.
#[derive(Clone)]
struct GuardedResolver {
    /// The server that is logged in to.
    server: Url,
    /// The hosts of requests so far. Other names are those of proxies, which the user has set up.
    targets: Arc<Mutex<BTreeSet<String>>>,
}

impl GuardedResolver {
    fn watch_host(&self, host: &str) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.insert(host.to_owned());
    }

    fn is_watched(&self, host: &str) -> bool {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.contains(host)
    }

    /// Refuses an address inside the user's network, unless the server is in such a network itself: then its authorization server may
    /// be too.
    async fn check_address(&self, host: &str, address: IpAddr) -> Result<(), GuardError> {
        let Some(kind) = non_public_kind(address) else {
            return Ok(());
        };
        let refused = || GuardError::Inside {
            host: host.to_owned(),
            kind,
        };
        if never_reachable_kind(address).is_some() {
            return Err(refused());
        }
        let server = self.server.host_str().unwrap_or_default();
        // The user named this host themselves.
        if host == server {
            return Ok(());
        }
        let known = tokio::net::lookup_host((server.trim_matches(['[', ']']), 0)).await;
        let mut kinds = known
            .into_iter()
            .flatten()
            .map(|address| non_public_kind(address.ip()));
        match kinds.any(|own| own == Some(kind)) {
            true => Ok(()),
            false => Err(refused()),
        }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            if resolver.is_watched(host) {
                for address in &found {
                    resolver.check_address(host, address.ip()).await?;
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        let check = |endpoint: &str, server: &str| check_endpoint(&url(endpoint), &url(server));
        assert!(check("https://a.example/token", "https://b.example/mcp").is_ok());
        assert!(check("http://127.0.0.1:9/token", "http://localhost:8/mcp").is_ok());
        // A server elsewhere must not send the browser or a code to a program of this machine.
        assert!(check("http://127.0.0.1:9/token", "https://b.example/mcp").is_err());
        let said = check("http://a.example/token?code=x", "https://b.example/mcp").unwrap_err();
        assert!(!said.to_string().contains("code"), "{said}");
        assert!(check("ftp://a.example/", "https://b.example/mcp").is_err());
    }

    #[tokio::test]
    async fn addresses_inside_are_for_servers_inside() {
        let check = async |server: &str, address: &str| {
            let resolver = GuardedResolver {
                server: url(server),
                targets: Arc::default(),
            };
            resolver
                .check_address("other.example", address.parse().unwrap())
                .await
                .is_ok()
        };
        assert!(check("https://192.0.2.1/mcp", "8.8.8.8").await);
        assert!(!check("https://8.8.8.8/mcp", "10.0.0.9").await);
        assert!(check("https://10.1.1.1/mcp", "10.0.0.9").await);
        assert!(!check("https://10.1.1.1/mcp", "127.0.0.1").await);
        assert!(check("http://127.0.0.1/mcp", "127.0.0.1").await);
        assert!(!check("http://169.254.1.1/mcp", "169.254.169.254").await);
    }
}
