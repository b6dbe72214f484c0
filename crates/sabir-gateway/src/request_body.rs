//! The body of a request, taken within its limits.
//!
//! A client that sends a body reads the answer when it is through with that. So what is refused because of its size or its head
//! is still taken, within the same limits, and thrown away: otherwise the client would see its connection break instead of the
//! reason.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::error::Refusal;
use crate::settings::GatewayLimits;

/// A second more is given for each so many bytes of a body.
const BYTES_PER_SECOND: u64 = 16 << 10;

/// How long the body of a refused request is taken.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a request.
pub(crate) async fn read_body(parts: &Parts, mut body: Body, limits: &GatewayLimits) -> Result<Bytes, Refusal> {
    if let Some(coding) = content_encoding(&parts.headers) {
        discard_body(&parts.headers, body, limits).await;
        return Err(Refusal::Encoded(coding));
    }
    let length = content_length(&parts.headers);
    if length.is_some_and(|length| length > limits.body) {
        discard_body(&parts.headers, body, limits).await;
        return Err(Refusal::TooLarge(limits.body));
    }
    let start = Instant::now();
    let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(64 << 10));
    loop {
        let deadline = start + limits.upload + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
        let late = |_| Refusal::TooSlow(start.elapsed().as_secs());
        let frame = match timeout_at(deadline, body.frame()).await.map_err(late)? {
            None => return Ok(bytes.into()),
            Some(frame) => frame.map_err(|error| Refusal::Malformed(format!("the body could not be read: {error}")))?,
        };
        let piece = frame.into_data().unwrap_or_default();
        if bytes.len() + piece.len() > limits.body {
            drop(bytes);
            discard_body(&parts.headers, body, limits).await;
            return Err(Refusal::TooLarge(limits.body));
        }
        bytes.extend_from_slice(&piece);
    }
}

/// Takes the body of a request that is refused, for a while. Who waits to be told to go on has sent nothing yet.
pub(crate) async fn discard_body(headers: &HeaderMap, mut body: Body, limits: &GatewayLimits) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let (deadline, mut taken) = (Instant::now() + DISCARD_TIMEOUT, 0);
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        taken += frame.data_ref().map_or(0, Bytes::len);
        if taken > limits.body.max(64 << 20) {
            return;
        }
    }
}

/// How the body is encoded, if it is.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let coding = headers.get(header::CONTENT_ENCODING)?.to_str().unwrap_or("?");
    (!coding.eq_ignore_ascii_case("identity")).then(|| coding.chars().take(40).collect())
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
