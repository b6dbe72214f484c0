//! Controls access to the gateway: by token, by host name, and by the origin of a browser's page.
//!
//! The host is checked because a gateway without a token would otherwise accept requests from a web
//! page whose name resolves to this machine (DNS rebinding). A token in the query is not accepted,
//! because queries end up in logs.

use std::net::SocketAddr;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};

use crate::error::Refusal;
use crate::settings::GatewaySettings;

/// The headers that may carry the token, besides `Authorization: Bearer`.
const KEY_HEADERS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];

/// The place where a connection came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// At an address of the network.
    Network {
        /// The local address.
        address: SocketAddr,
        /// True with TLS.
        is_secure: bool,
    },
    /// At a Unix socket, which no browser reaches.
    Local,
}

/// The result of a check that found nothing to refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    /// The client sent the gateway's token, or there is none.
    Known,
    /// The client sent these other tokens, one of which may be a key.
    Other(Vec<String>),
}

/// The most tokens of one request that are looked up.
const MAX_TOKENS: usize = 3;

/// Checks the host, the origin and the token of a request. `origin` is where the connection was
/// accepted.
///
/// `has_keys` is true if clients may have keys of their own, which the caller looks up.
///
/// The order is fixed: host, origin, preflight, token. A page on a foreign host name learns
/// nothing, not even that a token is wrong.
///
/// # Errors
/// The refusal for the first check that fails, with status 400, 401 or 403.
pub(crate) fn check_access(
    settings: &GatewaySettings,
    origin: ConnectionOrigin,
    parts: &Parts,
    has_keys: bool,
) -> Result<TokenCheck, Refusal> {
    let host = request_host(parts)?;
    if !is_own_host(settings, origin, &host) {
        // Cut, because the refusal quotes it and a log keeps it.
        return Err(Refusal::Host(host.chars().take(100).collect()));
    }
    // Only browsers send an origin, and a page that is not allowed must not even try tokens.
    for origin in parts.headers.get_all(header::ORIGIN) {
        // An origin that is not text is on no list.
        let origin = origin.to_str().unwrap_or("?");
        if !settings.origins.iter().any(|known| known == origin) {
            return Err(Refusal::Origin(origin.chars().take(100).collect()));
        }
    }
    if parts.method == Method::OPTIONS {
        // Browsers send preflight requests without the token.
        let asked = parts.headers.contains_key(header::ORIGIN);
        return if asked {
            Ok(TokenCheck::Known)
        } else {
            Err(Refusal::Options)
        };
    }
    // Some clients send their key in several headers; one right token is enough.
    let mut shown = presented_tokens(&parts.headers);
    let is_known = match &settings.token {
        Some(token) => shown.any(|shown| constant_time_eq(shown, token.expose())),
        None => !has_keys,
    };
    if is_known {
        return Ok(TokenCheck::Known);
    }
    let shown = presented_tokens(&parts.headers).take(MAX_TOKENS);
    let others: Vec<String> = shown.map(str::to_owned).collect();
    if has_keys && !others.is_empty() {
        Ok(TokenCheck::Other(others))
    } else {
        Err(Refusal::NoToken)
    }
}

/// Returns the host in a request. A host that is given twice, or differently in the URL, is an
/// error.
fn request_host(parts: &Parts) -> Result<String, Refusal> {
    let mut named = parts.headers.get_all(header::HOST).into_iter();
    let first = named.next().and_then(|host| host.to_str().ok());
    let second = named.next();
    let whole = parts.uri.authority().map(|authority| authority.as_str());
    match (first, second, whole) {
        // A proxy in front may have checked the other one.
        (_, Some(_), _) => Err(Refusal::Malformed(
            "the request names the host twice".to_owned(),
        )),
        (Some(first), None, Some(whole)) if first != whole => Err(Refusal::Malformed(
            "the host and the address are not the same".to_owned(),
        )),
        // Without any host the name is empty, which is not a name of this gateway.
        (first, None, whole) => Ok(whole.or(first).unwrap_or_default().to_owned()),
    }
}

/// Returns all tokens in a request's headers.
fn presented_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers
        .get_all(header::AUTHORIZATION)
        .into_iter()
        .filter_map(|value| {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
    let own = KEY_HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name))
        .filter_map(|value| value.to_str().ok());
    bearer.chain(own)
}

/// Compares two texts in a time that depends on their lengths only, so that timing does not reveal
/// the token.
fn constant_time_eq(shown: &str, token: &str) -> bool {
    let differences = shown
        .bytes()
        .zip(token.bytes())
        .fold(0, |all, (one, other)| all | (one ^ other));
    shown.len() == token.len() && differences == 0
}

/// Returns true if a host names this gateway: a name of this machine, the address of the
/// connection, or a name from the settings.
///
/// The literal address is safe, because a page that uses it has no host name that could be rebound
/// to another address.
fn is_own_host(settings: &GatewaySettings, origin: ConnectionOrigin, host: &str) -> bool {
    let ConnectionOrigin::Network {
        address: local,
        is_secure,
    } = origin
    else {
        return true;
    };
    let own = ["127.0.0.1", "localhost", "[::1]"];
    // A host without a port means the usual one.
    let usual_port = if is_secure { 443 } else { 80 };
    let (name, given) = match host.rsplit_once(':') {
        Some((name, given)) if given.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, given.parse().ok())
        }
        _ => (host, Some(usual_port)),
    };
    let of_machine =
        own.iter().any(|own| name.eq_ignore_ascii_case(own)) || is_local_address(name, local);
    of_machine && given == Some(local.port())
        || settings
            .hosts
            .iter()
            .any(|known| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name))
}

/// Returns true if a host is the literal address that the connection came to.
fn is_local_address(name: &str, local: SocketAddr) -> bool {
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    name.parse::<std::net::IpAddr>()
        .is_ok_and(|address| address == local.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_headers_must_name_the_gateway() {
        let settings = GatewaySettings {
            hosts: vec!["gw.example".into(), "lan:8080".into()],
            ..crate::serve::test_settings()
        };
        for (host, own) in [
            ("127.0.0.1:4141", true),
            ("localhost:4141", true),
            ("LOCALHOST:4141", true),
            ("[::1]:4141", true),
            ("192.168.7.9:4141", true),
            ("192.168.7.8:4141", false),
            ("192.168.7.9", false),
            ("127.0.0.1", false),
            ("127.0.0.1:4142", false),
            ("127.0.0.1.nip.io:4141", false),
            ("127.0.0.1.nip.io", false),
            ("localhost.evil.test", false),
            ("localhost.evil.test:4141", false),
            ("gw.example", true),
            ("gw.example:443", true),
            ("lan:8080", true),
            ("lan:8081", false),
            ("", false),
        ] {
            let origin = |is_secure| ConnectionOrigin::Network {
                address: "192.168.7.9:4141".parse().unwrap(),
                is_secure,
            };
            assert_eq!(is_own_host(&settings, origin(false), host), own, "{host}");
            assert_eq!(is_own_host(&settings, origin(true), host), own, "{host}");
            assert!(is_own_host(&settings, ConnectionOrigin::Local, host));
        }
    }

    #[test]
    fn only_equal_tokens_match() {
        assert!(constant_time_eq("abc", "abc"));
        assert!(
            !constant_time_eq("ab", "abc")
                && !constant_time_eq("abcd", "abc")
                && !constant_time_eq("", "abc")
                && !constant_time_eq("abd", "abc")
        );
    }
}
