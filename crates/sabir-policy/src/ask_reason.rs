//! Reasons why a command asks: the error type of every check in this crate.

/// The reason why a command, word or path is not known to be harmless, as a phrase for the user.
///
/// The checks share one type because the caller does the same with all of them: it asks the user and shows the phrase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AskReason(String);

impl From<String> for AskReason {
    /// Takes a reason that names a word of the line.
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<&str> for AskReason {
    /// Takes a reason that is the same for every line.
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<AskReason> for String {
    /// Returns the phrase, for a finding.
    fn from(reason: AskReason) -> Self {
        reason.0
    }
}
