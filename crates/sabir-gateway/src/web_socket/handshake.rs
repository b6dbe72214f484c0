//! Answers the handshake of a WebSocket (RFC 6455, 4.2).

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::error::Refusal;

/// The only version of the protocol.
pub(crate) const WEB_SOCKET_VERSION: &str = "13";

/// The length of the client's key, which is 16 bytes in base64.
const KEY_LENGTH: usize = 24;

/// The only protocol to which a connection is upgraded.
const PROTOCOL: &str = "websocket";

/// Returns true for the first request of a WebSocket.
pub(crate) fn wants_web_socket(parts: &Parts) -> bool {
    parts.method == Method::GET && has_token(&parts.headers, &header::UPGRADE, PROTOCOL)
}

/// Returns the response that accepts a handshake. It agrees to no extension and no subprotocol, so
/// messages are not compressed.
///
/// # Errors
/// Another version of the protocol, or a handshake that lacks something.
pub(crate) fn accept_handshake(headers: &HeaderMap) -> Result<Response, Refusal> {
    if !has_token(headers, &header::CONNECTION, "upgrade") {
        return Err(invalid_handshake("`Connection: Upgrade`"));
    }
    let version = single_value(headers, &header::SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != WEB_SOCKET_VERSION) {
        return Err(Refusal::WebSocketVersion);
    }
    let key = single_value(headers, &header::SEC_WEBSOCKET_KEY)
        .filter(|key| is_key(key.as_bytes()))
        .ok_or_else(|| invalid_handshake("one `Sec-WebSocket-Key` with 16 bytes in base64"))?;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()))
        .map_err(|_| invalid_handshake("a key"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// Returns true if a header that lists words has this one, in any case of letters.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Returns the value of a header that may be given once only.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    values.next().filter(|_| values.next().is_none())
}

/// Returns true if a key is 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    let Some(signs) = key.strip_suffix(b"==") else {
        return false;
    };
    // The last character encodes two bits, followed by four zero bits.
    let ends_with_zeros = matches!(signs.last(), Some(b'A' | b'Q' | b'g' | b'w'));
    let is_base64 = |sign: &u8| sign.is_ascii_alphanumeric() || matches!(sign, b'+' | b'/');
    key.len() == KEY_LENGTH && signs.iter().all(is_base64) && ends_with_zeros
}

/// Makes the refusal of a handshake that lacks this.
pub(crate) fn invalid_handshake(lacks: &str) -> Refusal {
    Refusal::Malformed(format!("the handshake of a WebSocket needs {lacks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_of_the_rfc_is_accepted() {
        // The example of RFC 6455, 1.3.
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let response = accept_handshake(&headers).unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let accept = &response.headers()[header::SEC_WEBSOCKET_ACCEPT];
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for missing in ["connection", "sec-websocket-version", "sec-websocket-key"] {
            let mut headers = headers.clone();
            headers.remove(missing);
            let refused = accept_handshake(&headers).unwrap_err();
            let is_version = matches!(refused, Refusal::WebSocketVersion);
            assert_eq!(is_version, missing == "sec-websocket-version", "{missing}");
        }
        for key in [
            "short",
            "dGhlIHNhbXBsZSBub25jZQQ=",
            "dGhlIHNhbXBsZSBub25jZR==",
            "dGhlIHNhbXBsZSBub2 jZQ==",
            "dGhlIHNhbXBsZSBub25jZQ=a",
        ] {
            headers.insert("sec-websocket-key", HeaderValue::from_static(key));
            let refused = accept_handshake(&headers);
            assert!(matches!(refused, Err(Refusal::Malformed(_))), "{key}");
        }
    }

    #[test]
    fn headers_may_list_words_but_give_one_key_and_version() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive"),
            ("connection", "close , UPGRADE"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        assert!(accept_handshake(&headers).is_ok());
        for name in ["sec-websocket-version", "sec-websocket-key"] {
            let mut headers = headers.clone();
            let value = headers[name].clone();
            headers.append(name, value);
            assert!(accept_handshake(&headers).is_err(), "{name}");
        }
        let (mut parts, ()) = axum::http::Request::new(()).into_parts();
        for (upgrade, is_wanted) in [
            ("WebSocket", true),
            ("h2c, websocket", true),
            ("websocket2", false),
            ("", false),
        ] {
            let upgrade = HeaderValue::from_static(upgrade);
            parts.headers.insert(header::UPGRADE, upgrade);
            assert_eq!(wants_web_socket(&parts), is_wanted);
        }
        parts.method = Method::POST;
        parts
            .headers
            .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        assert!(!wants_web_socket(&parts));
    }
}
