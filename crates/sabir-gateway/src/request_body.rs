//! Reads the body of a request within its limits.
//!
//! Most clients read the response only after they have sent the whole body. So the body of a refused request is still read,
//! within limits, and discarded: otherwise the client would see a broken connection instead of the reason.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::error::Refusal;
use crate::settings::GatewayLimits;

/// The slowest accepted upload: each 16 KiB of a body extend its deadline by a second.
const BYTES_PER_SECOND: u64 = 16 << 10;

/// The time for reading the body of a refused request.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the body of a request.
pub(crate) async fn read_body(
    parts: &Parts,
    mut body: Body,
    limits: &GatewayLimits,
) -> Result<Bytes, Refusal> {
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
    // The client's word for the length is trusted up to 64 KiB only.
    let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(64 << 10));
    loop {
        // The deadline moves with the received bytes, so that a large body has time but a stalled one does not.
        let deadline =
            start + limits.upload + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
        let late = |_| Refusal::TooSlow(start.elapsed().as_secs());
        let frame = match timeout_at(deadline, body.frame()).await.map_err(late)? {
            None => return Ok(bytes.into()),
            Some(frame) => frame.map_err(|error| {
                Refusal::Malformed(format!("the body could not be read: {error}"))
            })?,
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

/// Reads and discards the body of a refused request, for a while. A client that expects `100 Continue` has sent nothing yet.
pub(crate) async fn discard_body(headers: &HeaderMap, mut body: Body, limits: &GatewayLimits) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let deadline = Instant::now() + DISCARD_TIMEOUT;
    let mut taken = 0;
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        taken += frame.data_ref().map_or(0, Bytes::len);
        if taken > limits.body.max(64 << 20) {
            return;
        }
    }
}

/// Returns the encoding of the body, if it has one.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let coding = headers
        .get(header::CONTENT_ENCODING)?
        .to_str()
        .unwrap_or("?");
    (!coding.eq_ignore_ascii_case("identity")).then(|| coding.chars().take(40).collect())
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}
