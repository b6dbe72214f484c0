//! Reads the beginning of a file, without touching the rest, however long it is.

use std::io::Read;

use super::Workspace;
use crate::{WorkPath, WorkspaceError};

impl Workspace {
    /// Returns the first `limit_bytes` bytes of a regular file, and its size in bytes. Opens it
    /// like [`read_file`](Self::read_file), but computes no version.
    ///
    /// # Errors
    /// Those of [`read_file`](Self::read_file).
    pub fn read_start(
        &self,
        path: &WorkPath,
        limit_bytes: usize,
    ) -> Result<(Vec<u8>, u64), WorkspaceError> {
        let fail = |error| WorkspaceError::from_io("read", path, error);
        let file = self.open_regular(path)?;
        let size = file.metadata().map_err(fail)?.len();
        let mut bytes = Vec::new();
        file.take(u64::try_from(limit_bytes).unwrap_or(u64::MAX))
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        Ok((bytes, size))
    }
}
