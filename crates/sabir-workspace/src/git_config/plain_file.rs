//! Reads untrusted files: only regular ones, up to a size limit.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::GitConfigError;

/// Reads a file of at most `most` bytes; `None` if it does not exist. Does not block on special
/// files such as pipes.
pub(crate) fn read_plain_file(path: &Path, most: u64) -> Result<Option<Vec<u8>>, GitConfigError> {
    let unreadable = |_| GitConfigError::File(path.to_owned());
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    // Checked on the handle, so the path cannot be swapped in between.
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(GitConfigError::File(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > most {
        Err(GitConfigError::TooMuch)
    } else {
        Ok(Some(bytes))
    }
}

/// Returns true if an error means that nothing exists.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
