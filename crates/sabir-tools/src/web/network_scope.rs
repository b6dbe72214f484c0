//! Which machines may be asked: public ones, by exactly the addresses that were checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use url::Host;

use super::web_url::WebUrl;

/// How far tools reach into the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkScope {
    /// Any host whose addresses are all public: no loopback, private, link-local, shared, multicast or reserved one, in
    /// whatever spelling or embedding.
    #[default]
    Public,
    /// These names, each at the one address beside it, and nothing else. No name server is asked, and no address is checked;
    /// the port of the address stands in for the one that is the scheme's own. For tests and for a mirror inside a closed
    /// network: neither a model nor a repository can say it.
    Only(Vec<(String, SocketAddr)>),
}

/// IPv4 networks that are not public: network, bits, what it is. After IANA's registry of special-purpose addresses.
const NON_PUBLIC_V4: [(Ipv4Addr, u32, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (
        Ipv4Addr::new(100, 64, 0, 0),
        10,
        "a provider's inner network",
    ),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this machine"),
    // The address of a cloud's wire server, which stands in a public network.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata"),
    (
        Ipv4Addr::new(169, 254, 0, 0),
        16,
        "the local link, where clouds keep their metadata",
    ),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for examples only"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for measurements only"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for examples only"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for examples only"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// IPv6 networks that are not public although they lie in the public space, and those beyond it whose kind is worth a word.
const NON_PUBLIC_V6: [(Ipv6Addr, u32, &str); 8] = [
    (Ipv6Addr::LOCALHOST, 128, "this machine"),
    (Ipv6Addr::UNSPECIFIED, 128, "this machine"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        32,
        "for examples only",
    ),
    (
        Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0),
        20,
        "for examples only",
    ),
    (
        Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0),
        7,
        "a private network",
    ),
    (
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        10,
        "the local link",
    ),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// The public space of IPv6.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

impl NetworkScope {
    /// What can be said against an address before anything is asked.
    pub(crate) fn refusal_reason(&self, place: &WebUrl) -> Option<String> {
        if *self != Self::Public {
            return None;
        }
        let why = match place.host() {
            Host::Ipv4(address) => non_public_kind(IpAddr::V4(address))?,
            Host::Ipv6(address) => non_public_kind(IpAddr::V6(address))?,
            Host::Domain(_) if place.is_local_name() => "a machine nearby",
            Host::Domain(_) => return None,
        };
        Some(refusal_text(place, why))
    }

    /// The addresses to connect to, and no others. The only place where a name server is asked. A port of 0 means the one of
    /// the address that is asked for.
    pub(crate) async fn resolve_addresses(
        &self,
        place: &WebUrl,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, String> {
        if let Some(refusal) = self.refusal_reason(place) {
            return Err(refusal);
        }
        let name = place.host().to_string();
        let found: Vec<SocketAddr> = match self {
            Self::Only(known) => known
                .iter()
                .filter(|(host, _)| *host == name)
                .map(|(_, address)| *address)
                .collect(),
            Self::Public => match place.host() {
                Host::Ipv4(address) => vec![SocketAddr::new(IpAddr::V4(address), 0)],
                Host::Ipv6(address) => vec![SocketAddr::new(IpAddr::V6(address), 0)],
                // The dot at the end keeps the machine's search list out.
                Host::Domain(name) => {
                    match tokio::time::timeout(
                        limit,
                        tokio::net::lookup_host((format!("{name}."), 0)),
                    )
                    .await
                    {
                        Ok(found) => found.map(Iterator::collect).unwrap_or_default(),
                        Err(_) => {
                            return Err(format!(
                                "No name server told the address of `{name}` in time. Try again later."
                            ));
                        }
                    }
                }
            },
        };
        if found.is_empty() {
            return Err(format!(
                "No address is known for `{name}`. Check how it is spelt; without a network nothing can be fetched."
            ));
        }
        // One that is closed among public ones is a trap, so all are refused.
        match found
            .iter()
            .find_map(|address| non_public_kind(address.ip()))
            .filter(|_| *self == Self::Public)
        {
            Some(why) => Err(refusal_text(place, why)),
            None => Ok(found),
        }
    }
}

fn refusal_text(place: &WebUrl, why: &str) -> String {
    format!(
        "`{}` is refused: it is {why}, and fetch_url reaches public hosts only.",
        place.host()
    )
}

/// What an address is, if it is not public.
fn non_public_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => non_public_kind_v4(address),
        IpAddr::V6(address) => non_public_kind_v6(address),
    }
}

fn non_public_kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    let within = |network: Ipv4Addr, bits: u32| {
        (u32::from(address) ^ u32::from(network)).leading_zeros() >= bits
    };
    NON_PUBLIC_V4
        .iter()
        .find(|(network, bits, _)| within(*network, *bits))
        .map(|(.., what)| *what)
}

fn non_public_kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    let within = |network: Ipv6Addr, bits: u32| {
        (u128::from(address) ^ u128::from(network)).leading_zeros() >= bits
    };
    if let Some((.., what)) = NON_PUBLIC_V6
        .iter()
        .find(|(network, bits, _)| within(*network, *bits))
    {
        return Some(what);
    }
    match address.segments() {
        // IPv4 in other clothes: mapped, or behind the well-known prefix of NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            non_public_kind_v4(embedded_v4(high, low))
        }
        // 6to4.
        [0x2002, high, low, ..] => non_public_kind_v4(embedded_v4(high, low)),
        _ if within(GLOBAL_V6.0, GLOBAL_V6.1) => None,
        _ => Some("reserved"),
    }
}

fn embedded_v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_addresses() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:1::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(
                non_public_kind(address.parse().unwrap()).is_some(),
                "{address} is not public"
            );
        }
    }

    #[test]
    fn public_addresses() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert_eq!(
                non_public_kind(address.parse().unwrap()),
                None,
                "{address} is public"
            );
        }
    }

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
            let words = NetworkScope::Public
                .refusal_reason(&place)
                .unwrap_or_else(|| panic!("{host} passes"));
            assert!(words.contains("is refused: it is "), "{words}");
        }
        assert_eq!(
            NetworkScope::Public.refusal_reason(&WebUrl::parse("https://docs.rs/").unwrap()),
            None
        );
    }

    #[tokio::test]
    async fn only_what_is_listed_is_reached() {
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
                at(other)
                    .await
                    .unwrap_err()
                    .starts_with("No address is known"),
                "{other}"
            );
        }
    }
}
