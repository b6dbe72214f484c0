//! Tells public addresses from those inside the user's network.
//!
//! A connection to an address inside could reach metadata services, routers and databases that trust their network. A name
//! server can return such an address for any name, so the addresses count and not the name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of a network that is not public, for messages: "it is ...".
pub type NetworkKind = &'static str;

/// IPv4 networks that are not public: network, prefix length, kind. The source is the IANA IPv4
/// Special-Purpose Address Registry.
const NON_PUBLIC_V4: [(Ipv4Addr, u32, NetworkKind); 16] = [
    // Linux connects to the loopback interface for 0.0.0.0.
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (
        Ipv4Addr::new(100, 64, 0, 0),
        10,
        "a provider's inner network",
    ),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this machine"),
    // Azure's WireServer, which lies in a public network but answers inside the cloud only.
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
    // Benchmarking (RFC 2544).
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for measurements only"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for examples only"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for examples only"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// IPv6 networks that are not public: network, prefix length, kind. Networks outside of
/// [`GLOBAL_V6`] are listed only if their kind is worth a message. The source is the IANA IPv6
/// Special-Purpose Address Registry.
const NON_PUBLIC_V6: [(Ipv6Addr, u32, NetworkKind); 8] = [
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

/// The space that IANA assigns global unicast addresses from; everything else in IPv6 is reserved.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Returns the kind of an address that is not public; `None` for public ones.
#[must_use]
pub fn non_public_kind(address: IpAddr) -> Option<NetworkKind> {
    match address {
        IpAddr::V4(address) => non_public_kind_v4(address),
        IpAddr::V6(address) => non_public_kind_v6(address),
    }
}

/// Returns the kind of an IPv4 address that is not public.
fn non_public_kind_v4(address: Ipv4Addr) -> Option<NetworkKind> {
    let within = |network: Ipv4Addr, bits: u32| {
        (u32::from(address) ^ u32::from(network)).leading_zeros() >= bits
    };
    NON_PUBLIC_V4
        .iter()
        .find(|(network, bits, _)| within(*network, *bits))
        .map(|(.., kind)| *kind)
}

/// Returns the kind of an IPv6 address that is not public. One that embeds an IPv4 address is checked
/// by that.
fn non_public_kind_v6(address: Ipv6Addr) -> Option<NetworkKind> {
    let within = |network: Ipv6Addr, bits: u32| {
        (u128::from(address) ^ u128::from(network)).leading_zeros() >= bits
    };
    if let Some((.., kind)) = NON_PUBLIC_V6
        .iter()
        .find(|(network, bits, _)| within(*network, *bits))
    {
        return Some(kind);
    }
    match address.segments() {
        // IPv4 mapped into IPv6, or behind the well-known prefix of NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            non_public_kind_v4(embedded_v4(high, low))
        }
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => non_public_kind_v4(embedded_v4(high, low)),
        // Everything that IANA has not assigned is refused, so that new kinds of networks are too.
        _ if within(GLOBAL_V6.0, GLOBAL_V6.1) => None,
        _ => Some("reserved"),
    }
}

/// Joins the two segments of an IPv6 address that hold an IPv4 address.
fn embedded_v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// Returns the kind of an address that is never allowed, even if private networks are: metadata
/// services of clouds, and addresses that are not a single machine.
#[must_use]
pub fn never_reachable_kind(address: IpAddr) -> Option<NetworkKind> {
    // Amazon answers for its metadata service at this address, too.
    const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let is_metadata = match address {
        IpAddr::V4(address) => {
            address.is_link_local() || address == Ipv4Addr::new(168, 63, 129, 16)
        }
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => return never_reachable_kind(IpAddr::V4(mapped)),
            None => address.is_unicast_link_local() || address == METADATA_V6,
        },
    };
    if is_metadata {
        return Some("the local link, where clouds keep their metadata");
    }
    (address.is_multicast() || address.is_unspecified()).then_some("no single machine")
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
    fn metadata_services_are_never_reachable() {
        for address in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "168.63.129.16",
            "0.0.0.0",
            "::",
            "224.0.0.1",
        ] {
            assert!(
                never_reachable_kind(address.parse().unwrap()).is_some(),
                "{address}"
            );
        }
        for address in ["10.0.0.1", "127.0.0.2", "192.168.1.1", "fd00::1", "1.1.1.1"] {
            assert_eq!(
                never_reachable_kind(address.parse().unwrap()),
                None,
                "{address}"
            );
        }
    }
}
