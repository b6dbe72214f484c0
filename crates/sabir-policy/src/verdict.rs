//! Verdicts: the policy's answer, in the form that journals store.
//!
//! The names are an on-disk format: journals record each verdict, and a resumed task reads it again.

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
