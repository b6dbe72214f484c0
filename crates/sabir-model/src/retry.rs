//! Decides when a failed request is retried, and how long to wait before.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_call::{ModelError, ModelErrorKind};
use serde::{Deserialize, Serialize};

/// The longest wait, regardless of the settings: a day.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// The shortest wait. Without it, "retry after 0" would cause requests in a tight loop.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The limits for retrying requests that failed before their first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// The largest number of retries of one request; 0 for none.
    pub limit: u32,
    /// The largest number of retries between two complete answers of a model, over all requests. Each complete answer
    /// refills it, so a long task does not end because a busy provider delays every turn a little.
    pub budget: u32,
    /// The time for which a request that is rate limited is retried beyond `limit`. The wait between two attempts counts, and `budget` still holds.
    pub patience: Duration,
    /// The wait after the first failure, before jitter. It doubles with each further one.
    pub base: Duration,
    /// The longest wait if the provider asked for none.
    pub longest: Duration,
    /// The longest wait that a provider may ask for. A longer one is cut to this, or ends the
    /// request if [many](crate::CallerScope::Many) callers share the model.
    pub longest_asked: Duration,
    /// Chooses the jitter of waits, together with the request and its number. Programs that start with the same request get
    /// different seeds, or they would retry in step and overload the provider together again.
    pub seed: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            limit: 4,
            budget: 60,
            patience: Duration::ZERO,
            base: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            longest_asked: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// An attempt that failed when the retries of a request were used up.
#[derive(Debug)]
pub(crate) struct ExhaustedAttempt<'a> {
    pub(crate) attempt: u32,
    /// The wait that the provider asked for.
    pub(crate) asked: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) error: &'a ModelError,
}

/// A notice about the wait before a retry, so that a user can see why nothing happens.
#[derive(Debug, Clone, Copy)]
pub struct RetryNotice<'a> {
    /// The number of the failed attempt, from 1.
    pub attempt: u32,
    /// The largest number of attempts, at least one more than `attempt`.
    pub attempts: u32,
    /// The time until the next attempt.
    pub wait: Duration,
    /// The time after that wait in which the request is still retried; `None` where only the number of attempts counts.
    pub patience_left: Option<Duration>,
    /// The error of the failed attempt.
    pub error: &'a ModelError,
}

/// The state of retries over all requests of a model.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget(Mutex<RetryState>);

/// The counters behind a `RetryBudget`.
#[derive(Debug, Default)]
struct RetryState {
    /// The retries since the last complete answer.
    retries: u32,
    /// The requests so far.
    requests: u32,
    /// True once a response was complete.
    answered: bool,
    /// The number of consecutive responses that broke off.
    broken_answers: u32,
    /// The error of the last response that broke off.
    last_error: Option<ModelError>,
    /// The number of messages at the beginning of the history whose opaque state the provider
    /// rejects.
    expired_messages: usize,
}

impl RetryBudget {
    /// Locks the counters. No lock is held while a request runs.
    fn lock_state(&self) -> MutexGuard<'_, RetryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spends one retry of the budget.
    ///
    /// # Errors
    /// The same error with a remark that the budget is used up.
    pub(crate) fn take_retry(
        &self,
        budget: u32,
        error: ModelError,
    ) -> Result<ModelError, ModelError> {
        let mut spent = self.lock_state();
        // Counted over all requests until one is answered, so that a provider that never answers
        // cannot prolong a task forever.
        if spent.retries >= budget {
            let message = format!(
                "{}; all {budget} retries since the last complete answer are used up",
                error.message
            );
            return Err(ModelError { message, ..error });
        }
        spent.retries += 1;
        Ok(error)
    }

    /// Records a complete response.
    pub(crate) fn record_success(&self) {
        let mut spent = self.lock_state();
        spent.broken_answers = 0;
        spent.last_error = None;
        spent.retries = 0;
        spent.answered = true;
    }

    /// Reports whether a response was complete so far.
    pub(crate) fn has_answered(&self) -> bool {
        self.lock_state().answered
    }

    /// Counts a request and returns its number, from 1.
    pub(crate) fn count_request(&self) -> u32 {
        let mut spent = self.lock_state();
        spent.requests = spent.requests.wrapping_add(1);
        spent.requests
    }

    /// Records a response that broke off after a part of it was delivered. The next request then
    /// waits before it is sent.
    pub(crate) fn record_interruption(&self, error: &ModelError) {
        let mut spent = self.lock_state();
        spent.broken_answers = spent.broken_answers.saturating_add(1);
        spent.last_error = Some(error.clone());
    }

    /// Returns the number of consecutive responses that broke off, and the last error; `None` if
    /// the last one was complete.
    pub(crate) fn last_interruption(&self) -> Option<(u32, ModelError)> {
        let spent = self.lock_state();
        spent
            .last_error
            .clone()
            .map(|error| (spent.broken_answers, error))
    }

    /// Returns the number of messages at the beginning of the history whose opaque state the
    /// provider rejects.
    pub(crate) fn expired_messages(&self) -> usize {
        self.lock_state().expired_messages
    }

    /// Records that the provider rejects the opaque state of the first `messages` messages. Returns
    /// false if that was known.
    pub(crate) fn record_expired(&self, messages: usize) -> bool {
        let mut spent = self.lock_state();
        let news = spent.expired_messages < messages;
        spent.expired_messages = spent.expired_messages.max(messages);
        news
    }
}

impl RetryPolicy {
    /// Returns the wait before a retry beyond `limit`; `None` if it exceeds the time limit, or if waiting cannot fix the error. `waited` is
    /// the time that the request has waited so far.
    pub(crate) fn extended_wait(
        &self,
        failed: &ExhaustedAttempt<'_>,
        waited: Duration,
    ) -> Option<Duration> {
        let mends = failed.error.kind == ModelErrorKind::RateLimited;
        let own = self.wait_time(failed.attempt, None, failed.seed);
        // A provider that always asks for the same short wait does not know when it will have room.
        let wait = failed.asked.map_or(own, |asked| {
            self.wait_time(failed.attempt, Some(asked), failed.seed)
                .max(own)
        });
        (mends && waited.saturating_add(wait) <= self.patience).then_some(wait)
    }

    /// Returns the wait after attempt number `attempt`, from 1.
    ///
    /// `asked` is the wait that the provider asked for. Without it, `seed` chooses the jitter: the
    /// wait is between half and all of its nominal length.
    pub fn wait_time(&self, attempt: u32, asked: Option<Duration>, seed: u64) -> Duration {
        let wait = match asked {
            // No jitter: the provider knows when it will have room.
            Some(asked) => asked.min(self.longest_asked),
            None => {
                // More than 16 doublings would exceed any sensible limit, and the shift must not
                // overflow.
                let doublings = attempt.saturating_sub(1).min(16);
                let full = self.base.saturating_mul(1 << doublings).min(self.longest);
                let part = u32::try_from(mix_seed(seed, attempt) % 1000).unwrap_or_default();
                full / 2 + full / 2 * part / 1000
            }
        };
        wait.clamp(MIN_WAIT, MAX_WAIT)
    }
}

/// Parses `retry-after-ms` (milliseconds, used by OpenAI and Azure), else `retry-after` (RFC 9110,
/// 10.2.3: seconds, or a date, which is compared to the response's own `date`, because this crate
/// has no clock). Senseless values are ignored.
pub(crate) fn parse_retry_after(header: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let number = |text: &str, scale: f64| {
        let seconds = text.trim().parse::<f64>().ok()? * scale;
        // `try_from` fails for numbers beyond the range of a duration, which are cut to the longest
        // wait.
        (seconds.is_finite() && seconds >= 0.0)
            .then(|| Duration::try_from_secs_f64(seconds).unwrap_or(MAX_WAIT))
    };
    if let Some(wait) = header("retry-after-ms").and_then(|text| number(&text, 0.001)) {
        return Some(wait);
    }
    let text = header("retry-after")?;
    number(&text, 1.0).or_else(|| {
        let at = httpdate::parse_http_date(text.trim()).ok()?;
        let now = httpdate::parse_http_date(header("date")?.trim()).ok()?;
        at.duration_since(now).ok()
    })
}

/// Mixes a seed and a count into a pseudorandom number (SplitMix64).
pub(crate) fn mix_seed(seed: u64, count: u32) -> u64 {
    let mut x = seed.wrapping_add(u64::from(count).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_jitter() {
        let retries = RetryPolicy::default();
        for (attempt, full) in [
            (1, 500),
            (2, 1000),
            (3, 2000),
            (7, 30_000),
            (u32::MAX, 30_000),
        ] {
            for seed in 0..50 {
                let wait = retries.wait_time(attempt, None, seed);
                let full = Duration::from_millis(full);
                assert!(
                    full / 2 <= wait && wait <= full,
                    "attempt {attempt}: {wait:?}"
                );
            }
        }
        assert_ne!(retries.wait_time(1, None, 1), retries.wait_time(1, None, 2));
    }

    #[test]
    fn patience_is_for_errors_that_time_mends() {
        let retries = RetryPolicy {
            patience: Duration::from_secs(60),
            ..RetryPolicy::default()
        };
        let wait = |kind, attempt, asked, waited| {
            let error = ModelError {
                kind,
                message: String::new(),
            };
            let failed = ExhaustedAttempt {
                attempt,
                asked,
                seed: 1,
                error: &error,
            };
            retries.extended_wait(&failed, Duration::from_secs(waited))
        };
        let second = Duration::from_secs(1);
        assert!(wait(ModelErrorKind::RateLimited, 9, None, 0) >= Some(15 * second));
        assert!(wait(ModelErrorKind::RateLimited, 9, Some(second), 0) >= Some(15 * second));
        assert_eq!(wait(ModelErrorKind::RateLimited, 9, None, 59), None);
        assert_eq!(wait(ModelErrorKind::Unreachable, 9, None, 0), None);
    }

    #[test]
    fn requested_waits_are_clamped() {
        let check = |headers: &[(&str, &str)], expected: Option<u64>| {
            let find = |name: &str| {
                headers
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            let wait = parse_retry_after(find).map(|asked| {
                RetryPolicy::default()
                    .wait_time(1, Some(asked), 0)
                    .as_millis()
            });
            assert_eq!(wait, expected.map(u128::from), "{headers:?}");
        };
        check(&[("retry-after", "2")], Some(2000));
        check(&[("retry-after", "0.5")], Some(500));
        check(&[("retry-after", "0")], Some(100));
        check(
            &[("retry-after-ms", "1500"), ("retry-after", "9")],
            Some(1500),
        );
        check(&[("retry-after", "1e12")], Some(60_000));
        check(&[("retry-after", "1e300")], Some(60_000));
        for nonsense in ["-1", "NaN", "inf", "", "soon"] {
            check(&[("retry-after", nonsense)], None);
        }
        let date = ("date", "Fri, 20 Nov 2026 12:00:00 GMT");
        check(
            &[("retry-after", "Fri, 20 Nov 2026 12:00:07 GMT"), date],
            Some(7000),
        );
        check(
            &[("retry-after", "Fri, 20 Nov 2026 11:00:00 GMT"), date],
            None,
        );
        check(&[("retry-after", "Fri, 20 Nov 2026 12:00:07 GMT")], None);
    }
}
