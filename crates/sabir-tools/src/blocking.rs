//! Runs blocking work away from the threads of the async runtime.
//!
//! File functions of the workspace block. Every tool that uses them goes through [`run_blocking`],
//! which also turns a panic into an ordinary failure: a defect in one tool must not end the task.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sabir_workspace::StopFlag;

/// The reason that blocking work gave no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorkerError {
    /// The work panicked.
    #[error("The tool crashed, which is a defect of Sabir and not of the call. Try another way.")]
    Panicked,
    /// The system refused another thread, so the work never began.
    #[error(
        "The system allows no more processes and threads, so nothing was done. Stop what runs, or try again later."
    )]
    NoThread,
}

/// Runs blocking work on a thread for such work, and waits for its result.
///
/// Dropping the future does not stop the work: it continues to its end, unobserved. Use
/// [`run_stoppable`] for work that may take long.
///
/// # Errors
/// The error of the work, or a [`WorkerError`].
pub(crate) async fn run_blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<WorkerError> + Send + 'static,
{
    // `spawn_blocking` panics at once if the system gives it no thread. It has no fallible form, so
    // the panic is caught here.
    let spawned = catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_blocking(work)));
    let Ok(running) = spawned else {
        return Err(WorkerError::NoThread.into());
    };
    // A blocking task cannot be cancelled once it runs, so a join error means a panic.
    running
        .await
        .unwrap_or_else(|_| Err(WorkerError::Panicked.into()))
}

/// Runs blocking work that obeys a [`StopFlag`]. The flag is set when the future is dropped.
///
/// # Errors
/// As for [`run_blocking`].
pub(crate) async fn run_stoppable<T, E>(
    work: impl FnOnce(StopFlag) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<WorkerError> + Send + 'static,
{
    let stop = StopFlag::default();
    // The guard has to live as long as the future, and `_` alone would drop it here.
    let _guard = stop.stop_on_drop();
    run_blocking(move || work(stop)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let error = runtime
            .block_on(run_blocking::<(), WorkerError>(|| panic!("on purpose")))
            .unwrap_err();
        assert_eq!(error, WorkerError::Panicked);
    }
}
