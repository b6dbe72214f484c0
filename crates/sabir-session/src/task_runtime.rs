//! Builds the async runtime of a program that runs tasks.

use tokio::runtime::{Builder, Runtime};

use crate::SessionError;

/// The number of files that a task must be able to open. The runtime panics if it cannot open its own.
const FILES: usize = 16;

/// Builds a single-threaded runtime for requests and tools, after checking that enough files can be opened.
///
/// # Errors
/// When the limit of open files is too low, or the system refuses what the runtime needs.
pub fn build_task_runtime() -> Result<Runtime, SessionError> {
    let probes = (0..FILES)
        .map(|_| std::fs::File::open("/dev/null"))
        .collect::<std::io::Result<Vec<_>>>();
    let probes = probes.map_err(|error| {
        SessionError::internal(format!(
            "a task needs {FILES} more open files than the limit allows ({error}): raise the limit with `ulimit -n 1024`"
        ))
    })?;
    drop(probes);
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SessionError::internal(format!("the runtime cannot be started: {error}")))
}

/// Builds a multi-threaded runtime for a server.
///
/// # Errors
/// When the system refuses what the runtime needs.
pub fn build_server_runtime() -> Result<Runtime, SessionError> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| SessionError::internal(format!("the runtime cannot be started: {error}")))
}
