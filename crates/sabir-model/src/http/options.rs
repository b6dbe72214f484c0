//! How a model is asked: by whom, and what of its answer is read for calls.

use std::time::Duration;

use crate::retry::RetryPolicy;

/// Who asks a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallerScope {
    /// One task, whose history only grows: what one request met with is remembered for the next.
    #[default]
    Task,
    /// Anybody: nothing is remembered from request to request but open connections.
    Many,
}

impl CallerScope {
    /// Whether a wait that the provider asks for is so long that callers decide about it: one of many has patience of its own.
    pub(crate) fn declines_wait(self, wish: Option<Duration>, retries: &RetryPolicy) -> bool {
        self == Self::Many && wish.is_some_and(|wish| wish > retries.longest_asked)
    }
}

/// Which text of an answer is read for calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextParsing {
    /// All of it, wherever tools are offered: models leak calls there.
    #[default]
    Text,
    /// None of it, unless the protocol is prompted: text stays what it is.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_decide_about_long_waits() {
        let retries = RetryPolicy { longest_asked: Duration::from_secs(1), ..RetryPolicy::default() };
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
