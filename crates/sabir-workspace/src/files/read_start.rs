//! The beginning of a file, for whoever wants no more of it: nothing behind that is read, however long the file is.

use std::io::Read;

use super::Workspace;
use crate::{WorkPath, WorkspaceError};

impl Workspace {
    /// The first `limit_bytes` bytes of a regular file, and its size in bytes. Opened as for [`read_file`](Self::read_file), but without a
    /// version.
    ///
    /// # Errors
    /// As for [`read_file`](Self::read_file).
    pub fn read_start(&self, path: &WorkPath, limit_bytes: usize) -> Result<(Vec<u8>, u64), WorkspaceError> {
        let fail = |error| WorkspaceError::from_io("read", path, error);
        let file = self.open_regular(path)?;
        let size = file.metadata().map_err(fail)?.len();
        let mut bytes = Vec::new();
        file.take(u64::try_from(limit_bytes).unwrap_or(u64::MAX)).read_to_end(&mut bytes).map_err(fail)?;
        Ok((bytes, size))
    }
}
