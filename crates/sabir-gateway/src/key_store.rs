//! Defines the keys of clients, their limits, and the store that keeps both.
//!
//! A request first *reserves* what it may use at most, and *settles* what it really used when it is
//! over. So any number of requests, also through several gateways over one store, cannot use more
//! than a limit allows, except by what one request may exceed its estimate. A reservation is a
//! *lease*: if its gateway dies, it expires.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The beginning of every client key.
pub const KEY_PREFIX: &str = "sk-sabir-";

/// The time after which a lease expires that is not renewed.
pub const LEASE_TIME: Duration = Duration::from_secs(90);

/// A minute in milliseconds, the period of limits for requests and tokens.
const MINUTE_MS: u64 = 60_000;

/// A day in milliseconds, the period of limits for money.
const DAY_MS: u64 = 86_400_000;

/// The hash of a client key. The key itself is random, so a fast hash without a salt protects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of_key(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Returns the hash as hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A key that a client may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientKey {
    /// Its id, which is no secret.
    pub id: String,
    /// Its name for people, in metrics and logs.
    pub name: String,
    /// The time of its creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// The time of its revocation.
    pub revoked_ms: Option<u64>,
    /// Its limits.
    pub limits: Vec<ModelLimit>,
}

/// The limits of a key for one model, or for all models together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelLimit {
    /// The model's name; `None` counts all models together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The most requests in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// The most tokens in a minute, input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// The most requests at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u64>,
    /// The most money in a day (UTC), in billionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nano_usd_per_day: Option<u64>,
}

/// The part of a request that limits count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spending {
    /// Input and output tokens.
    pub tokens: u64,
    /// Billionths of a dollar.
    pub nano_usd: u64,
}

impl Spending {
    /// The most of each number that one request may reserve or use.
    // A store keeps sums of them in signed integers, and a client may ask for any number of tokens.
    const MAX: u64 = 1 << 46;

    /// Limits both numbers, so that the sums over many requests cannot overflow.
    pub(crate) fn clamped(self) -> Self {
        Self {
            tokens: self.tokens.min(Self::MAX),
            nano_usd: self.nano_usd.min(Self::MAX),
        }
    }
}

/// A request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The id of the lease, unique among all gateways.
    pub lease: String,
    /// The id of the key.
    pub key: String,
    /// The model.
    pub model: String,
    /// The upper bound of the usage of the request.
    pub most: Spending,
    /// The time in milliseconds since 1970.
    pub now_ms: u64,
}

/// The usage of a key by one model in one period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// The model.
    pub model: String,
    /// The requests that began.
    pub requests: u64,
    /// The tokens that were settled.
    pub tokens: u64,
    /// The money that was settled, in billionths of a dollar.
    pub nano_usd: u64,
}

/// The open leases of a key for one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenLeases {
    /// The model.
    pub model: String,
    /// The number of leases.
    pub count: u64,
    /// The sum of what they reserve.
    pub reserved: Spending,
}

/// The present state of a key, as a store reads it before it decides about a reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyState {
    /// The usage in the present minute.
    pub minute: Vec<ModelUsage>,
    /// The usage in the present day.
    pub day: Vec<ModelUsage>,
    /// The leases that have neither ended nor expired.
    pub leases: Vec<OpenLeases>,
}

/// A limit that a request would exceed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key `{key}` has reached its limit of {limit}{}", for_model(.model.as_deref()))]
pub struct LimitReached {
    /// The name of the key.
    pub key: String,
    /// The limit in words, such as `60 requests per minute`.
    pub limit: String,
    /// The model, if the limit is for one.
    pub model: Option<String>,
    /// True if the limit is one of money.
    pub is_money: bool,
    /// The time after which it makes sense to ask again.
    pub retry_after: Duration,
}

/// Adds the model of a limit to a sentence.
fn for_model(model: Option<&str>) -> String {
    model.map_or_else(String::new, |model| format!(" for `{model}`"))
}

/// A failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be opened or reached.
    #[error("the store of keys cannot be used: {0}")]
    Unavailable(String),
    /// The store holds something unexpected.
    #[error("the store of keys holds something invalid: {0}")]
    Invalid(String),
    /// No key has this id or name.
    #[error("there is no key `{0}`")]
    UnknownKey(String),
    /// Another key has this name.
    #[error("there is a key `{0}` already; choose another name, or revoke that one")]
    NameTaken(String),
}

/// The reason why a reservation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// A limit is reached.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// The key was revoked, or does not exist.
    #[error("the key was revoked")]
    Revoked,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The future of a store's method.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store of keys and of what they use. Several gateways may share one.
pub trait KeyStore: Send + Sync {
    /// Adds a key. Its secret is known by its hash only.
    fn add_key<'a>(
        &'a self,
        key: &'a ClientKey,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<(), StoreError>>;

    /// Returns the keys, also revoked ones, by their names.
    fn list_keys(&self) -> StoreFuture<'_, Result<Vec<ClientKey>, StoreError>>;

    /// Finds a key that was not revoked.
    fn find_key<'a>(
        &'a self,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<Option<ClientKey>, StoreError>>;

    /// Revokes a key, by its id or name.
    fn revoke_key<'a>(
        &'a self,
        key: &'a str,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<ClientKey, StoreError>>;

    /// Reserves what a request may use, or says which limit forbids that. Reading the state and
    /// reserving are one transaction.
    fn reserve<'a>(
        &'a self,
        reservation: &'a Reservation,
    ) -> StoreFuture<'a, Result<(), ReserveError>>;

    /// Ends a lease, and counts what the request really used. A second settlement of a lease changes
    /// nothing, so it may be repeated after an error.
    fn settle<'a>(
        &'a self,
        lease: &'a str,
        used: Spending,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>>;

    /// Renews leases whose requests are still running.
    fn renew<'a>(
        &'a self,
        leases: &'a [String],
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>>;

    /// Returns the usage of a key by day, the latest day first, with the day's beginning in
    /// milliseconds since 1970.
    fn daily_usage<'a>(
        &'a self,
        key: &'a str,
        days: u32,
    ) -> StoreFuture<'a, Result<Vec<DailyUsage>, StoreError>>;
}

/// The usage of a key by one model on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyUsage {
    /// The beginning of the day (UTC), in milliseconds since 1970.
    pub day_ms: u64,
    /// The usage.
    #[serde(flatten)]
    pub usage: ModelUsage,
}

/// Returns the beginning of the minute of a time.
pub fn minute_start(now_ms: u64) -> u64 {
    now_ms - now_ms % MINUTE_MS
}

/// Returns the beginning of the day (UTC) of a time.
pub fn day_start(now_ms: u64) -> u64 {
    now_ms - now_ms % DAY_MS
}

/// Checks whether the limits of a key permit a request in the key's present state. Stores call it within their transaction.
///
/// A request whose estimate alone exceeds a limit may run if nothing else is reserved: otherwise it could never run. So a limit is exceeded
/// by one request at most.
///
/// # Errors
/// The limit that the request would exceed.
pub fn check_limits(
    key: &ClientKey,
    state: &KeyState,
    asked: &Reservation,
) -> Result<(), LimitReached> {
    let until_minute = Duration::from_millis(MINUTE_MS - asked.now_ms % MINUTE_MS);
    let until_day = Duration::from_millis(DAY_MS - asked.now_ms % DAY_MS);
    for limit in &key.limits {
        if limit
            .model
            .as_ref()
            .is_some_and(|model| *model != asked.model)
        {
            continue;
        }
        let counts = |model: &str| limit.model.as_ref().is_none_or(|known| known == model);
        let sum = |usage: &[ModelUsage], value: fn(&ModelUsage) -> u64| -> u64 {
            let usage = usage.iter().filter(|usage| counts(&usage.model));
            usage.map(value).fold(0, u64::saturating_add)
        };
        let open = |value: fn(&OpenLeases) -> u64| -> u64 {
            let leases = state.leases.iter().filter(|leases| counts(&leases.model));
            leases.map(value).fold(0, u64::saturating_add)
        };
        let reached = |words: String, is_money: bool, retry_after: Duration| LimitReached {
            key: key.name.clone(),
            limit: words,
            model: limit.model.clone(),
            is_money,
            retry_after,
        };
        let running = open(|leases| leases.count);
        if let Some(most) = limit.concurrent
            && running >= most
        {
            let words = format!("{most} requests at the same time");
            // Nobody knows when a running request ends, so clients may ask again soon.
            return Err(reached(words, false, Duration::from_secs(1)));
        }
        if let Some(most) = limit.requests_per_minute
            && sum(&state.minute, |usage| usage.requests) >= most
        {
            let words = format!("{most} requests per minute");
            return Err(reached(words, false, until_minute));
        }
        if let Some(most) = limit.tokens_per_minute {
            let used = sum(&state.minute, |usage| usage.tokens);
            let reserved = open(|leases| leases.reserved.tokens);
            if exceeds(most, used, reserved, asked.most.tokens, running) {
                // Settlements may free reserved tokens sooner than the minute ends.
                let wait = if used >= most {
                    until_minute
                } else {
                    Duration::from_secs(1)
                };
                return Err(reached(format!("{most} tokens per minute"), false, wait));
            }
        }
        if let Some(most) = limit.nano_usd_per_day {
            let used = sum(&state.day, |usage| usage.nano_usd);
            let reserved = open(|leases| leases.reserved.nano_usd);
            if exceeds(most, used, reserved, asked.most.nano_usd, running) {
                // Reserved money may be released soon. Only if spent money exceeds the budget is it
                // reported as used up, after which clients stop retrying.
                let is_spent = used >= most;
                let wait = if is_spent {
                    until_day
                } else {
                    Duration::from_secs(1)
                };
                let words = format!("{} dollars per day", format_dollars(most));
                return Err(reached(words, is_spent, wait));
            }
        }
    }
    Ok(())
}

/// Returns true if a request must wait because of a limit.
fn exceeds(most: u64, used: u64, reserved: u64, asked: u64, running: u64) -> bool {
    let all = used.saturating_add(reserved).saturating_add(asked);
    // If nothing is running, nothing would be freed by waiting.
    used >= most || running > 0 && all > most
}

/// Formats billionths of a dollar as dollars, without trailing zeros.
pub fn format_dollars(nano_usd: u64) -> String {
    let whole = nano_usd / 1_000_000_000;
    let part = format!("{:09}", nano_usd % 1_000_000_000);
    match part.trim_end_matches('0') {
        "" => whole.to_string(),
        part => format!("{whole}.{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_what_requests_reserve_fit_into_a_signed_integer() {
        let most = Spending {
            tokens: u64::MAX,
            nano_usd: u64::MAX,
        }
        .clamped();
        for number in [most.tokens, most.nano_usd] {
            assert!(number > 1_000_000_000_000);
            let all = number.checked_mul(100_000).unwrap();
            assert!(i64::try_from(all).is_ok(), "{all}");
        }
    }

    fn key(limits: Vec<ModelLimit>) -> ClientKey {
        ClientKey {
            id: "k1".to_owned(),
            name: "team".to_owned(),
            created_ms: 0,
            revoked_ms: None,
            limits,
        }
    }

    fn asked(model: &str, tokens: u64, nano_usd: u64) -> Reservation {
        Reservation {
            lease: "l".to_owned(),
            key: "k1".to_owned(),
            model: model.to_owned(),
            most: Spending { tokens, nano_usd },
            now_ms: DAY_MS + 15_000,
        }
    }

    fn usage(model: &str, requests: u64, tokens: u64, nano_usd: u64) -> ModelUsage {
        ModelUsage {
            model: model.to_owned(),
            requests,
            tokens,
            nano_usd,
        }
    }

    fn leases(model: &str, count: u64, tokens: u64, nano_usd: u64) -> OpenLeases {
        OpenLeases {
            model: model.to_owned(),
            count,
            reserved: Spending { tokens, nano_usd },
        }
    }

    #[test]
    fn limits_for_all_models_count_them_together() {
        let key = key(vec![ModelLimit {
            requests_per_minute: Some(3),
            ..ModelLimit::default()
        }]);
        let mut state = KeyState {
            minute: vec![usage("a", 1, 0, 0), usage("b", 1, 0, 0)],
            ..KeyState::default()
        };
        assert_eq!(check_limits(&key, &state, &asked("a", 1, 0)), Ok(()));
        state.minute[0].requests = 2;
        let reached = check_limits(&key, &state, &asked("c", 1, 0)).unwrap_err();
        assert_eq!(
            reached.to_string(),
            "the key `team` has reached its limit of 3 requests per minute"
        );
        assert_eq!(reached.retry_after, Duration::from_secs(45));
    }

    #[test]
    fn limits_for_a_model_do_not_count_others() {
        let key = key(vec![ModelLimit {
            model: Some("a".to_owned()),
            concurrent: Some(1),
            ..ModelLimit::default()
        }]);
        let state = KeyState {
            leases: vec![leases("a", 1, 0, 0), leases("b", 9, 0, 0)],
            ..KeyState::default()
        };
        assert_eq!(check_limits(&key, &state, &asked("b", 1, 0)), Ok(()));
        let reached = check_limits(&key, &state, &asked("a", 1, 0)).unwrap_err();
        assert!(reached.to_string().ends_with("for `a`"), "{reached}");
    }

    #[test]
    fn reservations_count_like_usage() {
        let key = key(vec![ModelLimit {
            tokens_per_minute: Some(100),
            nano_usd_per_day: Some(1_500_000_000),
            ..ModelLimit::default()
        }]);
        let mut state = KeyState {
            minute: vec![usage("a", 1, 40, 0)],
            leases: vec![leases("a", 1, 40, 0)],
            ..KeyState::default()
        };
        assert_eq!(check_limits(&key, &state, &asked("a", 20, 0)), Ok(()));
        let reached = check_limits(&key, &state, &asked("a", 21, 0)).unwrap_err();
        assert_eq!(reached.retry_after, Duration::from_secs(1));
        // Alone, a request may exceed its limit once.
        state.leases.clear();
        assert_eq!(check_limits(&key, &state, &asked("a", 900, 0)), Ok(()));
        state.day = vec![usage("a", 1, 40, 1_500_000_000)];
        let reached = check_limits(&key, &state, &asked("a", 1, 0)).unwrap_err();
        assert!(reached.is_money && reached.retry_after > Duration::from_secs(80_000));
        assert!(reached.limit.starts_with("1.5 dollars"), "{reached}");
    }

    #[test]
    fn keys_are_known_by_their_hash() {
        let hash = KeyHash::of_key("sk-sabir-1");
        assert_eq!(hash.to_hex().len(), 64);
        assert_ne!(hash, KeyHash::of_key("sk-sabir-2"));
    }
}
