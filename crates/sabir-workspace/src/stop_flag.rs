//! Requests that a long listing or search ends early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag shared between the caller of a listing or search and the threads that run it. The threads
/// check it for each folder and each 64 KiB of a file, and then fail with
/// [`Stopped`](crate::WorkspaceError::Stopped).
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

/// A guard that requests the stop when it is dropped, for example together with a future that is no
/// longer awaited.
#[derive(Debug)]
pub struct StopOnDrop(StopFlag);

impl StopFlag {
    /// Requests the stop. It cannot be withdrawn.
    pub fn request_stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that requests the stop when it is dropped.
    #[must_use]
    pub fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.request_stop();
    }
}
