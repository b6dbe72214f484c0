//! Options of a model: its callers (one task, or many), and the part of its text that is searched
//! for calls.

use std::time::Duration;

use crate::retry::RetryPolicy;

/// The callers that share a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallerScope {
    /// One task with a growing history: the outcome of one request is remembered for the next.
    #[default]
    Task,
    /// Independent callers: nothing but open connections is kept between requests.
    Many,
}

impl CallerScope {
    /// Returns true if the provider asks for a wait so long that independent callers should decide
    /// about it themselves.
    pub(crate) fn declines_wait(self, wish: Option<Duration>, retries: &RetryPolicy) -> bool {
        self == Self::Many && wish.is_some_and(|wish| wish > retries.longest_asked)
    }
}

/// The text of a response that is searched for calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextParsing {
    /// All text, if tools are offered: models leak calls into it.
    #[default]
    Text,
    /// No text, unless the protocol is prompted.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_declined_for_many_callers_only() {
        let retries = RetryPolicy {
            longest_asked: Duration::from_secs(1),
            ..RetryPolicy::default()
        };
        let check = |callers: CallerScope, seconds: Option<u64>, expected: bool| {
            assert_eq!(
                callers.declines_wait(seconds.map(Duration::from_secs), &retries),
                expected,
                "{callers:?} {seconds:?}"
            );
        };
        check(CallerScope::Many, Some(2), true);
        check(CallerScope::Many, Some(1), false);
        check(CallerScope::Many, None, false);
        check(CallerScope::Task, Some(60), false);
    }
}
