//! Provides a store of client keys that has only one key.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabir_gateway::{
    ClientKey, DailyUsage, KeyHash, KeyStore, LimitReached, ModelLimit, Reservation, ReserveError,
    Spending, StoreError, StoreFuture,
};

/// A store that knows every key as the same one. It keeps the reservations and what they cost.
#[derive(Clone, Default)]
pub(crate) struct TestStore {
    /// The limits of the key.
    limits: Vec<ModelLimit>,
    /// True if the key allows one request at a time.
    has_one_request: bool,
    /// The time that a settlement takes.
    settle_time: Duration,
    pub(crate) state: Arc<Mutex<TestStoreState>>,
}

#[derive(Default)]
pub(crate) struct TestStoreState {
    is_revoked: bool,
    open: HashSet<String>,
    pub(crate) reserved: Vec<Reservation>,
    pub(crate) settled: Vec<Spending>,
}

impl TestStore {
    /// Makes a store whose key has these limits.
    pub(crate) fn with_limits(limits: Vec<ModelLimit>) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Makes a store whose key allows one request at a time, which takes a while to settle.
    pub(crate) fn with_one_request() -> Self {
        Self {
            has_one_request: true,
            settle_time: Duration::from_millis(100),
            ..Self::default()
        }
    }

    /// Revokes the key.
    pub(crate) fn revoke(&self) {
        self.state.lock().unwrap().is_revoked = true;
    }

    fn key(&self) -> ClientKey {
        ClientKey {
            id: "k".to_owned(),
            name: "team".to_owned(),
            created_ms: 0,
            revoked_ms: None,
            limits: self.limits.clone(),
        }
    }
}

impl KeyStore for TestStore {
    fn add_key<'a>(
        &'a self,
        _: &'a ClientKey,
        _: &'a KeyHash,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn list_keys(&self) -> StoreFuture<'_, Result<Vec<ClientKey>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn find_key<'a>(
        &'a self,
        _: &'a KeyHash,
    ) -> StoreFuture<'a, Result<Option<ClientKey>, StoreError>> {
        let is_revoked = self.state.lock().unwrap().is_revoked;
        Box::pin(async move { Ok((!is_revoked).then(|| self.key())) })
    }

    fn revoke_key<'a>(
        &'a self,
        _: &'a str,
        _: u64,
    ) -> StoreFuture<'a, Result<ClientKey, StoreError>> {
        Box::pin(async move { Ok(self.key()) })
    }

    fn reserve<'a>(
        &'a self,
        reservation: &'a Reservation,
    ) -> StoreFuture<'a, Result<(), ReserveError>> {
        let mut state = self.state.lock().unwrap();
        let result = if state.is_revoked {
            Err(ReserveError::Revoked)
        } else if state.open.is_empty() || !self.has_one_request {
            state.open.insert(reservation.lease.clone());
            state.reserved.push(reservation.clone());
            Ok(())
        } else {
            Err(ReserveError::Limit(LimitReached {
                key: "team".to_owned(),
                limit: "1 request at a time".to_owned(),
                model: None,
                is_money: false,
                retry_after: Duration::from_secs(1),
            }))
        };
        Box::pin(async move { result })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a str,
        spent: Spending,
        _: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(self.settle_time).await;
            let mut state = self.state.lock().unwrap();
            state.open.remove(lease);
            state.settled.push(spent);
            Ok(())
        })
    }

    fn renew<'a>(&'a self, _: &'a [String], _: u64) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn daily_usage<'a>(
        &'a self,
        _: &'a str,
        _: u32,
    ) -> StoreFuture<'a, Result<Vec<DailyUsage>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
