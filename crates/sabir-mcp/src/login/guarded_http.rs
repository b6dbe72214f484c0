//! Makes the HTTP requests of a login, within limits: a server's metadata decides on their addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    #[error("{host} is not contacted: its address is {kind}, and the server is elsewhere")]
    PrivateAddress { host: String, kind: NetworkKind },
    #[error("the metadata of {url} is not used: it describes the authorization server {issuer}")]
    ForeignIssuer { url: String, issuer: String },
    #[error("the answer of {0} is larger than {size} KiB", size = MAX_ANSWER_BYTES >> 10)]
    TooLarge(String),
}

/// The HTTP client of a login.
pub(crate) struct GuardedHttp {
    /// Made for the first request; most connections never make one.
    client: OnceCell<reqwest::Client>,
    /// The same for addresses of this machine, which are never asked through a proxy: it would read their tokens.
    direct_client: OnceCell<reqwest::Client>,
    begin_client: HttpClientFactory,
    server: Url,
    resolver: GuardedResolver,
}

impl GuardedHttp {
    /// Creates the client for logins to one server. `begin_client` begins clients that do not follow redirects.
    pub(crate) fn new(server: Url, begin_client: HttpClientFactory) -> Self {
        Self {
            client: OnceCell::new(),
            direct_client: OnceCell::new(),
            begin_client,
            resolver: GuardedResolver {
                server: server.clone(),
                targets: Arc::default(),
                addresses: Arc::default(),
            },
            server,
        }
    }

    /// Returns the client for an address.
    async fn client_for(&self, url: &Url) -> Result<&reqwest::Client, OAuthHttpClientError> {
        let is_direct = is_loopback(url);
        let build = async || {
            let mut builder = (self.begin_client)()
                .dns_resolver(Arc::new(self.resolver.clone()))
                .timeout(REQUEST_TIME);
            if is_direct {
                builder = builder.no_proxy();
            }
            // Reads the certificates of the system, which takes long enough to hold others up.
            let built = tokio::task::spawn_blocking(move || builder.build()).await;
            Ok(built??)
        };
        match is_direct {
            true => self.direct_client.get_or_try_init(build).await,
            false => self.client.get_or_try_init(build).await,
        }
    }

    /// Makes a request, unless its address must not be asked.
    pub(super) async fn send_request(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let request = reqwest::Request::try_from(request)?;
        check_endpoint(request.url(), &self.server)?;
        self.check_literal_address(request.url())?;
        let url = request.url().clone();
        let host = url.host_str().unwrap_or_default().to_owned();
        self.resolver.watch_host(&host);
        let client = self.client_for(&url).await?;
        let mut response = client.execute(request).await?;
        if self.server.host_str() == Some(&host) {
            self.resolver.note_reached(response.remote_addr());
        }
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
        check_issuer(&url, &body)?;
        Ok(answer.body(body)?)
    }

    /// Refuses an address that is written as a number, for which no name is looked up.
    fn check_literal_address(&self, url: &Url) -> Result<(), GuardError> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            _ => return Ok(()),
        };
        let host = url.host_str().unwrap_or_default();
        self.resolver.check_address(host, address)
    }
}

impl OAuthHttpClient for GuardedHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send_request(request.request))
    }
}

/// Checks that metadata of an authorization server describe the server that they come from (RFC 8414, section 3.3): otherwise codes and
/// refresh tokens of one server could be sent to endpoints of another.
fn check_issuer(url: &Url, body: &[u8]) -> Result<(), GuardError> {
    let metadata: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    if metadata.get("token_endpoint").is_none() {
        return Ok(());
    }
    let issuer = metadata.get("issuer").and_then(|issuer| issuer.as_str());
    let issuer = issuer.unwrap_or_default();
    let is_own = Url::parse(issuer).is_ok_and(|issuer| {
        let path = issuer.path().trim_end_matches('/');
        let name = url.path();
        let is_placed = path.is_empty()
            || name.ends_with(&format!("/.well-known/oauth-authorization-server{path}"))
            || name.ends_with(&format!("/.well-known/openid-configuration{path}"))
            || name == format!("{path}/.well-known/openid-configuration")
            || name == format!("{path}/.well-known/oauth-authorization-server");
        issuer.origin() == url.origin() && is_placed
    });
    match is_own {
        true => Ok(()),
        false => Err(GuardError::ForeignIssuer {
            url: url.origin().ascii_serialization() + url.path(),
            issuer: crate::result_content::one_line(issuer),
        }),
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
    addresses: Arc<Mutex<ServerAddresses>>,
}

/// The addresses of the server that is logged in to.
#[derive(Default)]
struct ServerAddresses {
    /// The addresses that its name resolved to. The server's owner controls them.
    looked_up: BTreeSet<IpAddr>,
    /// The addresses that answered a request for the server, with its certificate.
    reached: BTreeSet<IpAddr>,
}

impl GuardedResolver {
    fn watch_host(&self, host: &str) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.insert(host.to_owned());
    }

    fn addresses(&self) -> MutexGuard<'_, ServerAddresses> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the address at which the server has answered. That of a proxy is not one of its own.
    fn note_reached(&self, address: Option<SocketAddr>) {
        let mut known = self.addresses();
        if let Some(address) = address.map(|address| address.ip())
            && known.looked_up.contains(&address)
        {
            known.reached.insert(address);
        }
    }

    /// Reports whether the server itself is in a network of this kind.
    fn is_server_in(&self, kind: NetworkKind) -> bool {
        let literal = match self.server.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            _ if is_loopback(&self.server) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            _ => None,
        };
        let known = self.addresses();
        let mut own = literal.iter().chain(&known.reached);
        own.any(|address| non_public_kind(*address) == Some(kind))
    }

    fn is_watched(&self, host: &str) -> bool {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.contains(host)
    }

    /// Refuses an address inside a private network, unless the server itself is in one: its authorization server may then be there too.
    fn check_address(&self, host: &str, address: IpAddr) -> Result<(), GuardError> {
        let Some(kind) = non_public_kind(address) else {
            return Ok(());
        };
        let refused = || GuardError::PrivateAddress {
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
        match self.is_server_in(kind) {
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
            if resolver.server.host_str() == Some(host) {
                let found = found.iter().map(|address| address.ip());
                resolver.addresses().looked_up.extend(found);
            }
            if resolver.is_watched(host) {
                for address in &found {
                    resolver.check_address(host, address.ip())?;
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

    #[test]
    fn addresses_inside_are_for_servers_inside() {
        let check = |server: &str, address: &str| {
            let resolver = GuardedResolver {
                server: url(server),
                targets: Arc::default(),
                addresses: Arc::default(),
            };
            resolver
                .check_address("other.example", address.parse().unwrap())
                .is_ok()
        };
        assert!(check("https://192.0.2.1/mcp", "8.8.8.8"));
        assert!(!check("https://8.8.8.8/mcp", "10.0.0.9"));
        assert!(check("https://10.1.1.1/mcp", "10.0.0.9"));
        assert!(!check("https://10.1.1.1/mcp", "127.0.0.1"));
        assert!(check("http://127.0.0.1/mcp", "127.0.0.1"));
        assert!(!check("http://169.254.1.1/mcp", "169.254.169.254"));
    }

    #[test]
    fn a_name_widens_nothing_until_its_server_has_answered_there() {
        let resolver = GuardedResolver {
            server: url("https://mcp.example/mcp"),
            targets: Arc::default(),
            addresses: Arc::default(),
        };
        let inside: IpAddr = "10.0.0.7".parse().unwrap();
        let other = "10.0.0.9".parse().unwrap();
        resolver.addresses().looked_up.insert(inside);
        assert!(resolver.check_address("other.example", other).is_err());
        // A proxy inside the network.
        resolver.note_reached(Some(([10, 0, 0, 1], 443).into()));
        assert!(resolver.check_address("other.example", other).is_err());
        resolver.note_reached(Some((inside, 443).into()));
        assert!(resolver.check_address("other.example", other).is_ok());
    }

    #[test]
    fn metadata_are_those_of_the_server_that_sends_them() {
        let check = |address: &str, issuer: &str| {
            let body = format!(r#"{{"issuer": "{issuer}", "token_endpoint": "https://x/token"}}"#);
            check_issuer(&url(address), body.as_bytes()).is_ok()
        };
        let at_root = "https://a.example/.well-known/oauth-authorization-server";
        assert!(check(at_root, "https://a.example"));
        assert!(check(at_root, "https://a.example/"));
        assert!(check(&format!("{at_root}/t/1"), "https://a.example/t/1"));
        assert!(check(
            "https://a.example/t/1/.well-known/openid-configuration",
            "https://a.example/t/1/"
        ));
        assert!(!check(at_root, "https://real.example"));
        assert!(!check(&format!("{at_root}/t/1"), "https://a.example/t/2"));
        assert!(!check(
            "https://evil.example/.well-known/x",
            "https://real.example"
        ));
        assert!(!check(at_root, ""));
        // A token is no metadata.
        assert!(check_issuer(&url(at_root), br#"{"access_token": "x"}"#).is_ok());
    }
}
