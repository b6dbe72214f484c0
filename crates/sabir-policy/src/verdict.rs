//! The policy's answer, as journals write it.

use serde::{Deserialize, Serialize};

/// Whether a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may.
    Allow,
    /// Somebody must be asked.
    Ask,
    /// It may not.
    Deny,
}
