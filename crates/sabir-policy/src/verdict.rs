//! Verdicts: the policy's answer, in the form that journals store.

use serde::{Deserialize, Serialize};

/// The answer to whether a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Runs without a question.
    Allow,
    /// Needs the user's approval.
    Ask,
    /// Must not run.
    Deny,
}
