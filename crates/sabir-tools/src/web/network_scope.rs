//! Decides which hosts can be reached, and resolves their names to addresses that were checked.
//!
//! A request to an address inside the user's network could read metadata services, routers and
//! databases that trust their network. A name server can return such an address for any name
//! (DNS rebinding), so the addresses count and not the name, and the request connects to exactly the
//! addresses that were checked here.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sabir_workspace::{NetworkKind, non_public_kind};
use url::Host;

use super::web_url::WebUrl;

/// The hosts that tools can reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkScope {
    /// Any host with only public addresses: no loopback, private, link-local, shared, multicast or
    /// reserved one, in any spelling or embedding.
    #[default]
    Public,
    /// Only these names, each at the given address. No name server is asked and no address is checked. The port of the address replaces the
    /// default port of the scheme. For tests, and for mirrors in closed networks; neither a model nor a repository can choose it.
    Only(Vec<(String, SocketAddr)>),
}

/// The reason that there is no address to connect to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// The host is not public.
    #[error("`{host}` is refused: it is {kind}, and fetch_url reaches public hosts only.")]
    Refused {
        /// The host of the URL.
        host: String,
        /// The kind of network that it is in.
        kind: NetworkKind,
    },
    /// The name servers did not answer in time.
    #[error("No name server resolved `{host}` in time. Try again later.")]
    TimedOut {
        /// The host of the URL.
        host: String,
    },
    /// The host has no address.
    #[error(
        "No address is known for `{host}`. Check how it is spelt; without a network nothing can be fetched."
    )]
    Unknown {
        /// The host of the URL.
        host: String,
    },
}

impl NetworkScope {
    /// Checks a URL as far as possible before any request, so that the user is not asked about a
    /// call that cannot succeed.
    ///
    /// # Errors
    /// [`AddressError::Refused`] if the host is not public by its name or number.
    pub(crate) fn check_url(&self, url: &WebUrl) -> Result<(), AddressError> {
        if *self != Self::Public {
            return Ok(());
        }
        let kind = match url.host() {
            Host::Ipv4(address) => non_public_kind(IpAddr::V4(address)),
            Host::Ipv6(address) => non_public_kind(IpAddr::V6(address)),
            Host::Domain(_) => url.is_local_name().then_some("a machine nearby"),
        };
        kind.map_or(Ok(()), |kind| Err(refused_host(url, kind)))
    }

    /// Returns the addresses to connect to. Only this function queries name servers. A port of 0
    /// means the port of the URL.
    ///
    /// # Errors
    /// When the host is not public, or has no address.
    pub(crate) async fn resolve_addresses(
        &self,
        url: &WebUrl,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, AddressError> {
        self.check_url(url)?;
        let host = url.host().to_string();
        let found: Vec<SocketAddr> = match self {
            Self::Only(known) => known
                .iter()
                .filter(|(name, _)| *name == host)
                .map(|(_, address)| *address)
                .collect(),
            Self::Public => match url.host() {
                Host::Ipv4(address) => vec![SocketAddr::new(IpAddr::V4(address), 0)],
                Host::Ipv6(address) => vec![SocketAddr::new(IpAddr::V6(address), 0)],
                Host::Domain(name) => look_up_name(name, limit).await?,
            },
        };
        if found.is_empty() {
            return Err(AddressError::Unknown { host });
        }
        if *self == Self::Public {
            // A private address among public ones is an attack, so all of them are refused.
            let kind = found
                .iter()
                .find_map(|address| non_public_kind(address.ip()));
            if let Some(kind) = kind {
                return Err(refused_host(url, kind));
            }
        }
        Ok(found)
    }
}

/// Asks the name servers of the system for the addresses of a name. The result is empty if the name
/// has none.
async fn look_up_name(name: &str, limit: Duration) -> Result<Vec<SocketAddr>, AddressError> {
    // The dot at the end keeps the resolver from appending the domains of its search list.
    let lookup = tokio::net::lookup_host((format!("{name}."), 0));
    match tokio::time::timeout(limit, lookup).await {
        Ok(found) => Ok(found.map(Iterator::collect).unwrap_or_default()),
        Err(_) => Err(AddressError::TimedOut {
            host: name.to_owned(),
        }),
    }
}

/// Makes the error for a host that is not public.
fn refused_host(url: &WebUrl, kind: NetworkKind) -> AddressError {
    AddressError::Refused {
        host: url.host().to_string(),
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_closed_host_is_refused() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.1",
            "0.0.0.0",
            "0",
            "169.254.169.254",
            "0xa9fea9fe",
            "[::1]",
            "[::]",
            "[::ffff:169.254.169.254]",
            "[::ffff:7f00:1]",
            "[64:ff9b::10.0.0.1]",
            "[fd00::1]",
            "[fe80::1]",
            "localhost",
            "LocalHost.",
            "x.localhost",
            "metadata.google.internal",
            "metadata",
            "１２７.０.０.１",
            "127。0。0。1",
        ] {
            let place = WebUrl::parse(&format!("http://{host}/latest/meta-data/")).unwrap();
            let error = NetworkScope::Public.check_url(&place).unwrap_err();
            assert!(matches!(error, AddressError::Refused { .. }), "{error}");
        }
        assert_eq!(
            NetworkScope::Public.check_url(&WebUrl::parse("https://docs.rs/").unwrap()),
            Ok(())
        );
    }

    #[tokio::test]
    async fn only_listed_hosts_are_reachable() {
        let reach = NetworkScope::Only(vec![(
            "docs.test".to_owned(),
            "127.0.0.1:4".parse().unwrap(),
        )]);
        let at = async |text: &str| {
            reach
                .resolve_addresses(&WebUrl::parse(text).unwrap(), Duration::from_secs(1))
                .await
        };
        assert_eq!(
            at("http://Docs.test./").await,
            Ok(vec!["127.0.0.1:4".parse().unwrap()])
        );
        for other in [
            "http://127.0.0.1:4/",
            "http://docs.test.evil/",
            "https://docs.rs/",
        ] {
            assert!(
                matches!(at(other).await, Err(AddressError::Unknown { .. })),
                "{other}"
            );
        }
    }
}
