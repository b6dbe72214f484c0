//! Describes a failure of a model to clients: the status and the headers that their API has for it,
//! in words that name neither the model's server nor its key.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use sabir_call::{ModelError, ModelErrorKind, ProviderReport};
use sabir_wire::{ProviderError, Wire, translate_rate_limits};

/// The header with a wait in milliseconds, which the official clients of OpenAI and Anthropic read
/// before `retry-after`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The longest wait that is passed on. Clients multiply it, and a senseless one overflows in them.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// A failure of a model, with what its provider said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamFailure {
    /// The error, with details that only the operator may see.
    pub(crate) error: ModelError,
    /// The provider's own words, status and headers.
    pub(crate) report: ProviderReport,
    /// The time of the failure, in seconds since 1970.
    pub(crate) at: u64,
}

impl UpstreamFailure {
    /// Converts the failure to the wires' common form, for clients.
    pub(crate) fn to_provider_error(&self) -> ProviderError {
        let Self { error, report, .. } = self;
        let kind = error.kind;
        let usual = default_message(kind);
        let message = match kind {
            // The key is the gateway's, so its provider's words about it are not for clients.
            ModelErrorKind::Key => usual,
            _ if report.message.is_empty() => usual,
            _ => report.message.as_str(),
        };
        let status = self.status();
        let code = match kind {
            ModelErrorKind::RateLimited => "rate_limit_error",
            ModelErrorKind::TooLong => "context_length_exceeded",
            ModelErrorKind::UnknownModel => "model_not_found",
            ModelErrorKind::Rejected if status == 429 => "insufficient_quota",
            ModelErrorKind::Rejected if status == 400 => "invalid_request_error",
            // Each wire has its own name for the others.
            ModelErrorKind::Rejected => "",
            ModelErrorKind::Unavailable if status == 504 => "timeout_error",
            ModelErrorKind::Unavailable if matches!(status, 503 | 529) => "overloaded_error",
            _ => "api_error",
        };
        ProviderError {
            kind,
            status: Some(status),
            ..ProviderError::new(code, message)
        }
    }

    /// Returns the status for clients, before it is adapted to their wire.
    fn status(&self) -> u16 {
        let report = &self.report;
        // An error inside a stream came with status 200, which says nothing.
        let reported = report.status.filter(|status| (400..600).contains(status));
        match self.error.kind {
            ModelErrorKind::Rejected => reported.filter(|status| *status < 500).unwrap_or(400),
            ModelErrorKind::TooLong => 400,
            ModelErrorKind::UnknownModel => 404,
            ModelErrorKind::RateLimited => 429,
            ModelErrorKind::Unavailable => match reported {
                Some(408) => 504,
                Some(status) => status,
                None if report.code.contains("overloaded") => 529,
                // The error of a stream.
                None if report.status.is_some() => 500,
                None => 504,
            },
            ModelErrorKind::Key
            | ModelErrorKind::Unreachable
            | ModelErrorKind::Broken
            | ModelErrorKind::Format => 502,
            _ => 500,
        }
    }

    /// Adds the wait that the provider asked for, and its limits, in the form of the client's wire.
    pub(crate) fn write_headers(&self, front: Wire, headers: &mut HeaderMap) {
        if let Some(wait) = self.report.retry_after {
            let wait = wait.min(MAX_RETRY_AFTER);
            let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole));
            if wait != Duration::from_secs(whole) {
                let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                headers.insert(RETRY_AFTER_MS, HeaderValue::from(milliseconds));
            }
        }
        write_limits(&self.report, front, self.at, headers);
    }
}

/// Adds the headers with the provider's rate limits, in the form of the client's wire. `now` is in
/// seconds since 1970.
pub(crate) fn write_limits(
    report: &ProviderReport,
    front: Wire,
    now: u64,
    headers: &mut HeaderMap,
) {
    for (name, value) in translate_rate_limits(front, &report.headers, now) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

/// Returns the message for a failure about which the provider said nothing.
fn default_message(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::Key => "the model's provider refused the key of the gateway",
        ModelErrorKind::UnknownModel => "the model's provider does not know the model",
        ModelErrorKind::Rejected => "the model's provider refused the request",
        ModelErrorKind::TooLong => "the request is longer than the context of the model",
        ModelErrorKind::RateLimited => "the model's provider allows no more requests at present",
        ModelErrorKind::Unavailable => "the model's provider failed or did not answer in time",
        ModelErrorKind::Unreachable => "the model cannot be reached",
        ModelErrorKind::Broken => "the model's answer broke off",
        ModelErrorKind::Format => "the model's server sent something that is not an answer",
        _ => "the model failed",
    }
}
