//! Keeps the leases of running requests: reserves them, renews them, and settles them when their
//! requests are over, also if a request was abandoned.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::key_store::{
    ClientKey, KEY_PREFIX, KeyHash, KeyStore, LEASE_TIME, Reservation, ReserveError, Spending,
    StoreError,
};

/// The time for which a key that was found is not looked up again. A revoked key is refused at once
/// nevertheless, because its next reservation fails.
const KEY_CACHE_TIME: Duration = Duration::from_secs(5);

/// The number of keys in that cache.
const MAX_CACHED_KEYS: usize = 1024;

/// The time for which a key that does not exist is not looked up again. It is short, since the key may
/// be added by another process.
const UNKNOWN_KEY_TIME: Duration = Duration::from_secs(1);

/// The pauses before the attempts to settle a lease while the store fails. The last one repeats.
const SETTLE_PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
];

/// The time for which settling a lease is attempted. Stores forget an expired lease after an hour.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(3_000);

/// The number of settlements that may wait for a failed store. Each takes a few hundred bytes.
const MAX_WAITING_SETTLEMENTS: usize = 20_000;

/// The longest time for which a request that a limit refuses waits for settlements of its key. A client
/// has the end of its answer before the lease is settled, and may ask again at once.
const MAX_ENDING_WAIT: Duration = Duration::from_secs(1);

/// The leases of one gateway.
pub(crate) struct KeyLedger {
    /// The store, which other gateways may share.
    store: Arc<dyn KeyStore>,
    /// The clock.
    clock: fn() -> SystemTime,
    /// Keys that were found lately.
    found: Mutex<HashMap<KeyHash, (Instant, ClientKey)>>,
    /// Keys that lately did not exist: a client with a revoked key asks again and again.
    unknown: Mutex<HashMap<KeyHash, Instant>>,
    /// The leases of running requests.
    open: Mutex<HashSet<String>>,
    /// The number of settlements that are running.
    settling: watch::Sender<usize>,
    /// The same by the ids of keys, without those that are zero.
    ending: Mutex<HashMap<String, usize>>,
    /// The number of settlements that were lost because the store failed.
    lost: AtomicU64,
}

/// The numbers of settlements that did not succeed at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettlementCounts {
    /// Settlements that are running or waiting for the store.
    pub waiting: u64,
    /// Settlements that were lost because the store failed.
    pub lost: u64,
}

/// A lease of a running request. It is settled when it is dropped.
pub(crate) struct KeyLease {
    /// The ledger.
    ledger: Arc<KeyLedger>,
    /// The id.
    id: String,
    /// The id of the key.
    key: String,
    /// The usage that is counted when the reservation is settled.
    pub(crate) used: Spending,
}

impl KeyLedger {
    /// Makes the ledger of a gateway.
    pub(crate) fn new(store: Arc<dyn KeyStore>, clock: fn() -> SystemTime) -> Self {
        Self {
            store,
            clock,
            found: Mutex::default(),
            unknown: Mutex::default(),
            open: Mutex::default(),
            settling: watch::Sender::new(0),
            ending: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// Returns the time in milliseconds since 1970.
    fn now_ms(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }

    /// Locks the set of open leases.
    fn lock_open(&self) -> MutexGuard<'_, HashSet<String>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the key that a client sent.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) async fn find_key(&self, shown: &str) -> Result<Option<ClientKey>, StoreError> {
        // A random token of another kind cannot be a key, so the store is not queried.
        if !shown.starts_with(KEY_PREFIX) {
            return Ok(None);
        }
        let hash = KeyHash::of_key(shown);
        // Taken before the store is queried, so that a slow reply does not prolong the time in the
        // cache.
        let now = Instant::now();
        let cached = {
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.get(&hash).cloned()
        };
        if let Some((at, key)) = cached
            && now.duration_since(at) < KEY_CACHE_TIME
        {
            return Ok(Some(key));
        }
        let asked = {
            let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            unknown.get(&hash).copied()
        };
        if asked.is_some_and(|at| now.duration_since(at) < UNKNOWN_KEY_TIME) {
            return Ok(None);
        }
        let key = self.store.find_key(&hash).await?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // Unknown keys have a map of their own: guesses of strangers would drive the real ones out.
        match &key {
            Some(key) => insert_bounded(&mut found, hash, (now, key.clone())),
            None => {
                found.remove(&hash);
                let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
                insert_bounded(&mut unknown, hash, now);
            }
        }
        Ok(key)
    }

    /// Reserves what a request may use. If a limit is reached, first waits until the finished requests of the key are settled, and tries
    /// again.
    ///
    /// # Errors
    /// A limit is reached, the key was revoked, or the store failed.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        key: &ClientKey,
        model: &str,
        lease: &str,
        most: Spending,
    ) -> Result<KeyLease, ReserveError> {
        let reserved = self.reserve_once(key, model, lease, most).await;
        if !matches!(reserved, Err(ReserveError::Limit(_))) || !self.is_ending(&key.id) {
            return reserved;
        }
        let mut settling = self.settling.subscribe();
        let ended = settling.wait_for(|_| !self.is_ending(&key.id));
        _ = timeout(MAX_ENDING_WAIT, ended).await;
        self.reserve_once(key, model, lease, most).await
    }

    /// Returns true if a request of that key is over and not settled.
    fn is_ending(&self, key: &str) -> bool {
        self.lock_ending().contains_key(key)
    }

    /// Locks the numbers of settlements by key.
    fn lock_ending(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves what a request may use, or says which limit is reached now.
    ///
    /// It runs in a task of its own: if the client disconnects meanwhile, the lease is settled
    /// without usage instead of staying open until it expires.
    ///
    /// # Errors
    /// A limit is reached, the key was revoked, or the store failed.
    async fn reserve_once(
        self: &Arc<Self>,
        key: &ClientKey,
        model: &str,
        lease: &str,
        most: Spending,
    ) -> Result<KeyLease, ReserveError> {
        let reservation = Reservation {
            lease: lease.to_owned(),
            key: key.id.clone(),
            model: model.to_owned(),
            most,
            now_ms: self.now_ms(),
        };
        let ledger = Arc::clone(self);
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let reserved = ledger.store.reserve(&reservation).await.map(|()| {
                // Inserted before there is a `KeyLease`, because its drop removes the entry. An
                // entry inserted after the drop would be renewed forever.
                ledger.lock_open().insert(reservation.lease.clone());
                KeyLease {
                    ledger: Arc::clone(&ledger),
                    id: reservation.lease,
                    key: reservation.key,
                    used: Spending::default(),
                }
            });
            // If nobody waits any longer, `send` returns the lease, and dropping it settles it.
            _ = sender.send(reserved);
        });
        receiver.await.unwrap_or_else(|_| {
            let ended = "the reservation was interrupted".to_owned();
            Err(StoreError::Unavailable(ended).into())
        })
    }

    /// Renews the open leases, again and again.
    pub(crate) async fn renew_leases(&self) {
        loop {
            sleep(LEASE_TIME / 3).await;
            let open: Vec<String> = self.lock_open().iter().cloned().collect();
            if !open.is_empty() {
                // The next round follows before the leases expire.
                _ = self.store.renew(&open, self.now_ms()).await;
            }
        }
    }

    /// Waits until all settlements are done, for a limited time.
    pub(crate) async fn wait_until_settled(&self, limit: Duration) {
        let mut settling = self.settling.subscribe();
        _ = timeout(limit, settling.wait_for(|running| *running == 0)).await;
    }

    /// Waits until the lease of a request is settled, if it has one and the request is over.
    pub(crate) async fn wait_for_settlement(&self, lease: &str) {
        let mut settling = self.settling.subscribe();
        let is_settled = |_: &usize| !self.lock_open().contains(lease);
        _ = settling.wait_for(is_settled).await;
    }

    /// Returns the number of settlements that are running or wait for the store.
    fn waiting_settlements(&self) -> usize {
        *self.settling.borrow()
    }

    /// Returns the numbers of settlements that wait and that were lost.
    pub(crate) fn settlement_counts(&self) -> SettlementCounts {
        SettlementCounts {
            waiting: self.waiting_settlements() as u64,
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Settles a lease, and repeats that while the store fails.
    async fn settle(self: Arc<Self>, lease: String, key: String, used: Spending) {
        let start = Instant::now();
        let last = SETTLE_PAUSES.last().copied().unwrap_or_default();
        for pause in SETTLE_PAUSES.into_iter().chain(std::iter::repeat(last)) {
            sleep(pause).await;
            if self.store.settle(&lease, used, self.now_ms()).await.is_ok() {
                break;
            }
            // The others go first: this one has waited longest, and has the least time left.
            let is_too_late = start.elapsed() >= MAX_SETTLE_TIME;
            if is_too_late || self.waiting_settlements() > MAX_WAITING_SETTLEMENTS {
                self.lost.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        // Not earlier: the lease is renewed as long as its settlement is attempted.
        self.lock_open().remove(&lease);
        {
            let mut ending = self.lock_ending();
            if let Entry::Occupied(mut count) = ending.entry(key) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        self.settling.send_modify(|running| *running -= 1);
    }
}

/// Inserts into a cache, which is emptied when it is full.
fn insert_bounded<T>(cache: &mut HashMap<KeyHash, T>, hash: KeyHash, value: T) {
    if cache.len() >= MAX_CACHED_KEYS {
        cache.clear();
    }
    cache.insert(hash, value);
}

impl Drop for KeyLease {
    fn drop(&mut self) {
        let ledger = Arc::clone(&self.ledger);
        let lease = std::mem::take(&mut self.id);
        let key = std::mem::take(&mut self.key);
        // Without a runtime the process is ending, and the lease expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Before the task starts, so that a gateway that is ending cannot miss it.
            *ledger.lock_ending().entry(key.clone()).or_default() += 1;
            ledger.settling.send_modify(|running| *running += 1);
            runtime.spawn(ledger.settle(lease, key, self.used));
        }
    }
}
