//! Reads the body of a request within its limits.
//!
//! Most clients read the response only after they have sent the whole body. So the body of a
//! refused request is still read, within limits, and discarded: otherwise the client would see a
//! broken connection instead of the reason.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::error::Refusal;
use crate::settings::GatewayLimits;

/// The slowest accepted upload: each 16 KiB of a body extend its deadline by a second.
const BYTES_PER_SECOND: u64 = 16 << 10;

/// Returns the time in which so many bytes of a body must have arrived. It grows with them, so that a
/// large body has time but a stalled one does not.
pub(crate) fn upload_time_limit(limits: &GatewayLimits, bytes: usize) -> Duration {
    limits.upload + Duration::from_secs(bytes as u64 / BYTES_PER_SECOND)
}

/// The time for reading the body of a refused request.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The memory for the bodies of all requests together, in KiB: 1 GiB, which is also the largest body that can be configured.
const ALL_BODIES_KIB: usize = 1 << 20;

/// The memory for the bodies of requests that are being read or answered. Without it, the limits of the body size and of concurrent answers
/// would together permit far more memory than a machine has.
#[derive(Debug, Clone)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

/// The memory that one body takes from the budget, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct BodyShare(Option<OwnedSemaphorePermit>);

impl BodyBudget {
    /// Creates a budget of which nothing is taken.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ALL_BODIES_KIB)))
    }

    /// Grows a share by so many bytes. Returns false without a change if not enough memory is left.
    pub(crate) fn grow_share_by(&self, share: &mut BodyShare, bytes: usize) -> bool {
        let held = share
            .0
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        self.grow_share_to(share, held.saturating_mul(1024).saturating_add(bytes))
    }

    /// Grows a share to so many bytes. Returns false without a change if not enough memory is left.
    pub(crate) fn grow_share_to(&self, share: &mut BodyShare, bytes: usize) -> bool {
        let held = share
            .0
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(1024).saturating_sub(held);
        let Ok(missing @ 1..) = u32::try_from(missing) else {
            return missing == 0;
        };
        let Ok(more) = Arc::clone(&self.0).try_acquire_many_owned(missing) else {
            return false;
        };
        match &mut share.0 {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        true
    }
}

/// The memory that a parsed body may take, in multiples of the largest body. A list of small numbers takes many times the length of its
/// text, and several copies of a body exist at a time.
const PARSED_MULTIPLE: usize = 4;

/// The memory of a parsed value, and about that of the name of a member.
const PER_VALUE: usize = size_of::<serde_json::Value>();

/// Returns about how much memory a body takes once it is parsed; `None` if that exceeds the limit for parsed bodies.
pub(crate) fn parsed_size(body: &[u8], limits: &GatewayLimits) -> Option<usize> {
    let mut values = 1_usize;
    let mut signs = body.iter();
    while let Some(sign) = signs.next() {
        match sign {
            b',' | b':' | b'[' | b'{' => values += 1,
            b'"' => {
                while let Some(inside) = signs.next() {
                    match inside {
                        b'"' => break,
                        b'\\' => _ = signs.next(),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let size = body.len().saturating_add(values.saturating_mul(PER_VALUE));
    (size <= limits.body.saturating_mul(PARSED_MULTIPLE)).then_some(size)
}

/// The form of a body that an endpoint takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// JSON.
    Json,
    /// A form with files. A page of any origin can send one without a preflight, but its `Origin` header has been checked.
    Multipart,
}

/// Reads the body of a request.
///
/// # Errors
/// A body that is compressed, too large, too slow, or that breaks off.
pub(crate) async fn read_body(
    parts: &Parts,
    mut body: Body,
    form: BodyForm,
    limits: &GatewayLimits,
    budget: &BodyBudget,
) -> Result<(Bytes, BodyShare), Refusal> {
    if let Some(coding) = content_encoding(&parts.headers) {
        discard_body(&parts.headers, body, limits).await;
        return Err(Refusal::Encoded(coding));
    }
    let foreign = safelisted_content_type(&parts.headers).filter(|_| form == BodyForm::Json);
    if let Some(kind) = foreign {
        discard_body(&parts.headers, body, limits).await;
        return Err(Refusal::NotJson(kind));
    }
    let length = content_length(&parts.headers);
    // An announced length saves reading the body; a wrong one is found below.
    if length.is_some_and(|length| length > limits.body) {
        discard_body(&parts.headers, body, limits).await;
        return Err(Refusal::TooLarge(limits.body));
    }
    let start = Instant::now();
    // The client's word for the length is trusted up to 64 KiB only.
    let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(64 << 10));
    let mut share = BodyShare::default();
    loop {
        let deadline = start + upload_time_limit(limits, bytes.len());
        let late = |_| Refusal::TooSlow(start.elapsed().as_secs());
        let frame = match timeout_at(deadline, body.frame()).await.map_err(late)? {
            None => return Ok((bytes.into(), share)),
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
        if !budget.grow_share_to(&mut share, bytes.len() + piece.len()) {
            drop(bytes);
            discard_body(&parts.headers, body, limits).await;
            return Err(Refusal::BodiesFull);
        }
        bytes.extend_from_slice(&piece);
    }
}

/// Reads and discards the body of a refused request, for a while. A client that expects `100
/// Continue` has sent nothing yet.
pub(crate) async fn discard_body(headers: &HeaderMap, mut body: Body, limits: &GatewayLimits) {
    // Reading would ask it to send the body that is not wanted.
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

/// Returns the type of the body, if it is one that a page of any origin can send without a preflight request.
///
/// The third such type, that of forms, is curl's default, so it is accepted; the check of the origin
/// covers it.
fn safelisted_content_type(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let kind = given.split(';').next().unwrap_or_default().trim();
    ["text/plain", "multipart/form-data"]
        .iter()
        .any(|simple| kind.eq_ignore_ascii_case(simple))
        .then(|| kind.to_owned())
}

/// Returns the announced length of the body in bytes.
fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{ALL_BODIES_KIB, BodyBudget, BodyShare, PER_VALUE, parsed_size};
    use crate::settings::GatewayLimits;

    #[test]
    fn the_size_of_a_parsed_body_counts_its_values() {
        let limits = GatewayLimits {
            body: 1000,
            ..GatewayLimits::default()
        };
        let size = |body: &str| parsed_size(body.as_bytes(), &limits);
        assert_eq!(size(r#""a,b:[{\",,,""#), Some(13 + PER_VALUE));
        assert_eq!(size(r#"{"a": [1, 2]}"#), Some(13 + 5 * PER_VALUE));
        assert_eq!(
            size(&format!("\"{}\"", ",".repeat(900))),
            Some(902 + PER_VALUE)
        );
        assert_eq!(size(&format!("[{}1]", "1,".repeat(200))), None);
        assert_eq!(size("\"\\"), Some(2 + PER_VALUE));
    }

    #[test]
    fn all_bodies_together_have_a_limit() {
        let budget = BodyBudget::new();
        let mut first = BodyShare::default();
        assert!(budget.grow_share_to(&mut first, 0));
        assert!(budget.grow_share_to(&mut first, 1));
        assert!(budget.grow_share_to(&mut first, (ALL_BODIES_KIB - 1) << 10));
        let mut second = BodyShare::default();
        assert!(budget.grow_share_to(&mut second, 1024));
        assert!(!budget.grow_share_to(&mut second, 1025));
        drop(first);
        assert!(budget.grow_share_to(&mut second, 1025));
    }
}
