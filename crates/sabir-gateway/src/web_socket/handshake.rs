//! Answers the handshake of a WebSocket (RFC 6455, 4.2).

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::error::Refusal;

/// The only version of the protocol.
pub(crate) const WEB_SOCKET_VERSION: &str = "13";

/// The length of the client's key, which is 16 bytes in base64.
const KEY_LENGTH: usize = 24;

/// Returns true for the first request of a WebSocket.
pub(crate) fn wants_web_socket(parts: &Parts) -> bool {
    let wanted = parts.headers.get(header::UPGRADE);
    parts.method == Method::GET
        && wanted.is_some_and(|wanted| wanted.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns the response that accepts a handshake. It agrees to no extension and no subprotocol, so
/// messages are not compressed.
///
/// # Errors
/// Another version of the protocol, or a handshake that lacks something.
pub(crate) fn accept_handshake(headers: &HeaderMap) -> Result<Response, Refusal> {
    let version = headers.get(header::SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != WEB_SOCKET_VERSION) {
        return Err(Refusal::WebSocketVersion);
    }
    let is_upgrade = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
    if !is_upgrade {
        return Err(invalid_handshake("`Connection: Upgrade`"));
    }
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|key| key.len() == KEY_LENGTH)
        .ok_or_else(|| invalid_handshake("`Sec-WebSocket-Key` with 16 bytes in base64"))?;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()))
        .map_err(|_| invalid_handshake("a key"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
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
        headers.insert("sec-websocket-key", HeaderValue::from_static("short"));
        assert!(matches!(
            accept_handshake(&headers),
            Err(Refusal::Malformed(_))
        ));
    }
}
