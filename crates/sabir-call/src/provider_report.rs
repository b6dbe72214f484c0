//! Carries what a provider's response says about itself to a caller that passes it on, such as a
//! gateway.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The metadata of the response to the last attempt of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderReport {
    /// The HTTP status; `None` if no response came.
    pub status: Option<u16>,
    /// The headers about limits and retries, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The wait that the provider asked for.
    pub retry_after: Option<Duration>,
    /// The provider's own code of an error; empty if it sent none.
    pub code: String,
    /// The provider's own words about an error, without secrets and addresses; empty if it sent
    /// none.
    pub message: String,
    /// The name of the upstream that answered, if the model has several.
    pub upstream: Option<String>,
}

/// A slot for the [`ProviderReport`] of a request. Clones share it.
///
/// The default keeps nothing.
#[derive(Debug, Clone, Default)]
pub struct ProviderReportSlot(Option<Arc<Mutex<ProviderReport>>>);

impl ProviderReportSlot {
    /// Creates a slot that keeps the report.
    pub fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// Changes the report, if it is kept.
    pub fn update(&self, change: impl FnOnce(&mut ProviderReport)) {
        if let Some(report) = &self.0 {
            change(&mut report.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Returns the report so far; an empty one if none is kept.
    pub fn report(&self) -> ProviderReport {
        self.0
            .as_ref()
            .map_or_else(ProviderReport::default, |report| {
                report
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
            })
    }
}
