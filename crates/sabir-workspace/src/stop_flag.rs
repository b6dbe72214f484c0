//! The wish that a long look at the disk ends early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag shared between those who wait for a listing or search and the threads at work on it. They look at it for each folder
/// and each 64 KiB of a file, and give up with [`Stopped`](crate::WorkspaceError::Stopped).
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

/// Asks for the stop when it is dropped, as the future is that nobody awaits any longer.
#[derive(Debug)]
pub struct StopOnDrop(StopFlag);

impl StopFlag {
    /// Asks for it. There is no way back.
    pub fn request_stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Something to hold beside the `await`: it asks for the stop when it goes.
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
