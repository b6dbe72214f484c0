//! Validates a command before it is handed to a shell.

use std::path::{Path, PathBuf};

use crate::error::WorkspaceError;

/// The limit of Linux for one argument, 128 KiB including its NUL.
const MAX_TEXT_BYTES: usize = 128 * 1024 - 1;

pub(super) fn check_text(text: &str) -> Result<(), WorkspaceError> {
    let reason = if text.trim().is_empty() {
        "it is empty; write the command to run".to_owned()
    } else if text.contains('\0') {
        "it holds a NUL byte; write it without".to_owned()
    } else if text.len() > MAX_TEXT_BYTES {
        let length = text.len();
        format!(
            "it has {length} bytes and the system takes {MAX_TEXT_BYTES}; write the long part to a file and use that"
        )
    } else {
        return Ok(());
    };
    Err(WorkspaceError::Command { reason })
}

pub(super) fn check_env(env: &[(String, String)]) -> Result<(), WorkspaceError> {
    match env
        .iter()
        .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
    {
        Some((name, _)) => Err(WorkspaceError::Command {
            reason: format!("its environment entry {name:?} is malformed"),
        }),
        None => Ok(()),
    }
}

/// Returns the shell that runs command lines: bash if it exists, otherwise `/bin/sh`.
#[must_use]
pub fn default_shell() -> PathBuf {
    let bash = Path::new("/bin/bash");
    if bash.exists() {
        bash.to_path_buf()
    } else {
        PathBuf::from("/bin/sh")
    }
}
