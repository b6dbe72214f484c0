//! Prunes the stores of all folders, least recently used first.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::error::CheckpointError;

/// Removes the least recently used stores in `folder` until the rest takes at most `most_bytes` on
/// disk. The store named `keep`, and stores that are in use, are never removed. Returns the removed
/// paths.
///
/// # Errors
/// [`CheckpointError::Io`] if the folder cannot be read or a store cannot be removed. A missing
/// folder holds no stores.
pub fn prune_stores(
    folder: &Path,
    keep: &Path,
    most_bytes: u64,
) -> Result<Vec<PathBuf>, CheckpointError> {
    // Each workspace folder has its own store. Only this function removes the store of a deleted
    // folder.
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(CheckpointError::io_error("read", folder))?,
    };
    let stores: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("lock").is_file())
        .collect();
    let mut sized: Vec<(SystemTime, u64, PathBuf)> = stores
        .into_iter()
        .filter_map(|path| Some((last_used(&path)?, store_size(&path), path)))
        .collect();
    // The time is the first field, so the least recently used store comes first.
    sized.sort();
    let mut total: u64 = sized.iter().map(|(_, size, _)| size).sum();
    let mut removed = Vec::new();
    for (_, size, path) in sized {
        if total <= most_bytes {
            break;
        }
        if path != keep && remove_store(&path)? {
            total = total.saturating_sub(size);
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Returns the time of the last checkpoint of a store.
/// A store that never completed a checkpoint has no log; then the time of its lock file counts.
fn last_used(store: &Path) -> Option<SystemTime> {
    let log =
        std::fs::metadata(store.join("log")).or_else(|_| std::fs::metadata(store.join("lock")));
    log.ok()?.modified().ok()
}

/// Returns the number of bytes in a store's files. A file that disappears meanwhile counts as
/// empty.
fn store_size(store: &Path) -> u64 {
    let files = |folder: &Path| -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.metadata().ok())
            .filter(std::fs::Metadata::is_file)
            .map(|found| found.len())
            .sum()
    };
    files(store) + files(&store.join("packs"))
}

/// Removes a store unless it is in use. The log is removed first: after an interrupted removal, no record refers to a missing object.
fn remove_store(store: &Path) -> Result<bool, CheckpointError> {
    let fail = CheckpointError::io_error("remove", store);
    let lock = File::options()
        .write(true)
        .open(store.join("lock"))
        .map_err(&fail)?;
    // A store in use is never removed, even if the limit is exceeded.
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    match std::fs::remove_file(store.join("log")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    std::fs::remove_dir_all(store).map_err(&fail)?;
    Ok(true)
}
