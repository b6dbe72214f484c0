//! Who may ask: the token, the host under which the gateway was addressed, and the page that a browser asks for.
//!
//! The host is looked at although there is a token: a page whose name was made to lead to this machine (DNS rebinding) would
//! otherwise reach a gateway without one. A token in the query would be written to logs; it counts as none.

use axum::http::{HeaderMap, Method, header};

use crate::error::Refusal;
use crate::settings::Settings;

/// Headers that may carry the token beside `Authorization: Bearer`.
const KEY_HEADERS: [&str; 2] = ["x-api-key", "api-key"];

/// Whether a request may be looked at any further. `port` is the one that the gateway listens on.
pub(crate) fn admit(
    settings: &Settings,
    port: u16,
    (method, host): (&Method, &str),
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    if !is_own(settings, port, host) {
        return Err(Refusal::Host(host.chars().take(100).collect()));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("?");
        if !settings.origins.iter().any(|known| known == origin) {
            return Err(Refusal::Origin(origin.chars().take(100).collect()));
        }
    }
    let Some(token) = &settings.token else { return Ok(()) };
    if method != Method::OPTIONS && shown(headers).any(|shown| same(shown, token.expose())) {
        return Ok(());
    }
    Err(if method == Method::OPTIONS { Refusal::Method(method.to_string()) } else { Refusal::NoToken })
}

fn shown(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get_all(header::AUTHORIZATION).into_iter().filter_map(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let own = KEY_HEADERS.iter().flat_map(|name| headers.get_all(*name)).filter_map(|value| value.to_str().ok());
    bearer.chain(own)
}

/// Compares in a time that depends on lengths alone.
fn same(shown: &str, token: &str) -> bool {
    let (shown, token) = (shown.as_bytes(), token.as_bytes());
    let differences = shown.iter().zip(token).fold(0, |all, (one, other)| all | (one ^ other));
    shown.len() == token.len() && differences == 0
}

fn is_own(settings: &Settings, port: u16, host: &str) -> bool {
    let own = ["127.0.0.1", "localhost", "[::1]"];
    let (name, given) = match host.rsplit_once(':') {
        Some((name, given)) if given.bytes().all(|byte| byte.is_ascii_digit()) => (name, given.parse().ok()),
        _ => (host, Some(80)),
    };
    let of_machine = own.iter().any(|own| name.eq_ignore_ascii_case(own)) && given == Some(port);
    of_machine
        || settings.hosts.iter().any(|known| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_names_are_answered() {
        let settings = Settings { hosts: vec!["gw.example".into(), "lan:8080".into()], ..crate::serve::example() };
        for (host, own) in [
            ("127.0.0.1:4141", true),
            ("localhost:4141", true),
            ("LOCALHOST:4141", true),
            ("[::1]:4141", true),
            ("127.0.0.1", false),
            ("127.0.0.1:4142", false),
            ("127.0.0.1.nip.io:4141", false),
            ("localhost.evil.test:4141", false),
            ("gw.example", true),
            ("gw.example:443", true),
            ("lan:8080", true),
            ("lan:8081", false),
            ("", false),
        ] {
            assert_eq!(is_own(&settings, 4141, host), own, "{host}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same("abc", "abc"));
        assert!(!same("ab", "abc") && !same("abcd", "abc") && !same("", "abc") && !same("abd", "abc"));
    }
}
