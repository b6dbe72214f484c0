//! Tests the stores of client keys: the same rules for SQLite, PostgreSQL and Redis.
//!
//! The tests of PostgreSQL need a server at 127.0.0.1:5432 that lets `postgres` in without a password
//! and has a database `test`, those of Redis one at 127.0.0.1:6379, of which they use number 7. Where there is
//! none, they say so and do nothing.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a failing test may panic, and a skipped one says so"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sabir_gateway::{
    ClientKey, KeyHash, KeyStore, LEASE_TIME, ModelLimit, Reservation, ReserveError, Spending,
    StoreError,
};
use sabir_gateway_store::open_store;

/// The address of the server for tests.
const POSTGRES: &str = "postgres://postgres@127.0.0.1:5432/test";

/// A time in the midst of a minute and of a day.
const NOW: u64 = 1_800_000_030_000;

/// A store with two connections, as two gateways have them.
struct SharedStore {
    one: Arc<dyn KeyStore>,
    two: Arc<dyn KeyStore>,
    _folder: tempfile::TempDir,
}

/// The address of the Redis for tests.
const REDIS: &str = "redis://127.0.0.1:6379/7";

/// Opens a file of SQLite twice.
async fn sqlite() -> Option<SharedStore> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.db");
    let path = path.to_str().unwrap();
    Some(SharedStore {
        one: open_store(path).await.unwrap(),
        two: open_store(path).await.unwrap(),
        _folder: folder,
    })
}

/// Connects to PostgreSQL twice; `None` where it is missing.
async fn postgres() -> Option<SharedStore> {
    connect_twice(POSTGRES).await
}

/// Connects to Redis twice; `None` where it is missing.
async fn redis() -> Option<SharedStore> {
    connect_twice(REDIS).await
}

/// Connects to a server twice; says that the test is skipped where there is none.
async fn connect_twice(address: &str) -> Option<SharedStore> {
    match (open_store(address).await, open_store(address).await) {
        (Ok(one), Ok(two)) => Some(SharedStore {
            one,
            two,
            _folder: tempfile::tempdir().unwrap(),
        }),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("SKIPPED: no store at {address}: {error}");
            None
        }
    }
}

/// Returns a text that no other test and no other run has.
fn unique(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{count}-{}", std::process::id(), since.as_nanos())
}

/// Adds a key with a limit.
async fn add(store: &Arc<dyn KeyStore>, limit: ModelLimit) -> ClientKey {
    let key = ClientKey {
        id: unique("id"),
        name: unique("name"),
        created_ms: NOW,
        revoked_ms: None,
        limits: vec![limit],
    };
    store
        .add_key(&key, &KeyHash::of_key(&key.id))
        .await
        .unwrap();
    key
}

fn asked(key: &ClientKey, tokens: u64, nano_usd: u64, now_ms: u64) -> Reservation {
    Reservation {
        lease: unique("lease"),
        key: key.id.clone(),
        model: "qwen".to_owned(),
        most: Spending { tokens, nano_usd },
        now_ms,
    }
}

async fn keys_live_and_are_revoked(store: SharedStore) {
    let SharedStore { one, two, .. } = &store;
    let key = add(one, ModelLimit::default()).await;
    let hash = KeyHash::of_key(&key.id);
    assert_eq!(two.find_key(&hash).await.unwrap().as_ref(), Some(&key));
    assert!(two.list_keys().await.unwrap().contains(&key));
    let again = ClientKey {
        id: unique("id"),
        ..key.clone()
    };
    let taken = one.add_key(&again, &KeyHash::of_key(&again.id)).await;
    assert_eq!(taken, Err(StoreError::NameTaken(key.name.clone())));
    let revoked = two.revoke_key(&key.name, NOW + 5).await.unwrap();
    assert_eq!(revoked.revoked_ms, Some(NOW + 5));
    assert_eq!(one.find_key(&hash).await, Ok(None));
    let refused = one.reserve(&asked(&key, 1, 0, NOW)).await;
    assert_eq!(refused, Err(ReserveError::Revoked));
    let unknown = one.revoke_key(&key.id, NOW).await;
    assert_eq!(unknown, Err(StoreError::UnknownKey(key.id.clone())));
    // The name is free again.
    one.add_key(&again, &KeyHash::of_key(&again.id))
        .await
        .unwrap();
}

async fn usage_is_counted_once(store: SharedStore) {
    let SharedStore { one, two, .. } = &store;
    let key = add(
        one,
        ModelLimit {
            tokens_per_minute: Some(100),
            ..ModelLimit::default()
        },
    )
    .await;
    let first = asked(&key, 90, 0, NOW);
    one.reserve(&first).await.unwrap();
    // The other gateway sees what is reserved.
    assert!(two.reserve(&asked(&key, 20, 0, NOW)).await.is_err());
    let used = Spending {
        tokens: 30,
        nano_usd: 7,
    };
    for _ in 0..3 {
        one.settle(&first.lease, used, NOW).await.unwrap();
    }
    let days = two.daily_usage(&key.id, 7).await.unwrap();
    let [day] = days.as_slice() else {
        panic!("{days:?}");
    };
    assert_eq!(
        (day.usage.requests, day.usage.tokens, day.usage.nano_usd),
        (1, 30, 7)
    );
    two.reserve(&asked(&key, 70, 0, NOW)).await.unwrap();
    // A lease that nobody knows changes nothing.
    one.settle("no such lease", used, NOW).await.unwrap();
    assert_eq!(
        one.daily_usage(&key.id, 7).await.unwrap()[0].usage.tokens,
        30
    );
}

/// Models of this machine cost nothing, and a request may reserve nothing.
async fn free_requests_are_settled(store: SharedStore) {
    let SharedStore { one, two, .. } = &store;
    let limit = ModelLimit {
        concurrent: Some(3),
        ..ModelLimit::default()
    };
    let key = add(one, limit).await;
    let leases = [(100, 0), (0, 7), (0, 0)].map(|(tokens, nano)| asked(&key, tokens, nano, NOW));
    for lease in &leases {
        one.reserve(lease).await.unwrap();
    }
    assert!(two.reserve(&asked(&key, 0, 0, NOW)).await.is_err());
    let used = Spending {
        tokens: 5,
        nano_usd: 0,
    };
    for lease in &leases {
        two.settle(&lease.lease, used, NOW).await.unwrap();
    }
    let usage = &two.daily_usage(&key.id, 1).await.unwrap()[0].usage;
    assert_eq!((usage.requests, usage.tokens, usage.nano_usd), (3, 15, 0));
    for _ in 0..3 {
        one.reserve(&asked(&key, 0, 0, NOW)).await.unwrap();
    }
    // Leases that expire free their places as well.
    let later = NOW + 2 * u64::try_from(LEASE_TIME.as_millis()).unwrap();
    for _ in 0..3 {
        two.reserve(&asked(&key, 0, 0, later)).await.unwrap();
    }
    assert!(one.reserve(&asked(&key, 0, 0, later)).await.is_err());
}

async fn leases_of_dead_gateways_expire(store: SharedStore) {
    let SharedStore { one, two, .. } = &store;
    let key = add(
        one,
        ModelLimit {
            concurrent: Some(1),
            ..ModelLimit::default()
        },
    )
    .await;
    let lost = asked(&key, 10, 0, NOW);
    one.reserve(&lost).await.unwrap();
    let lease_ms = u64::try_from(LEASE_TIME.as_millis()).unwrap();
    // Renewed, it lives on.
    one.renew(std::slice::from_ref(&lost.lease), NOW + 60_000)
        .await
        .unwrap();
    let later = NOW + lease_ms + 1000;
    assert!(two.reserve(&asked(&key, 10, 0, later)).await.is_err());
    let expired = NOW + 60_000 + lease_ms;
    let next = asked(&key, 10, 0, expired);
    two.reserve(&next).await.unwrap();
    // The gateway was only slow: what it used is still counted, once.
    for _ in 0..2 {
        let used = Spending {
            tokens: 5,
            nano_usd: 0,
        };
        one.settle(&lost.lease, used, expired).await.unwrap();
    }
    let usage = two.daily_usage(&key.id, 1).await.unwrap();
    let tokens: u64 = usage.iter().map(|day| day.usage.tokens).sum();
    assert_eq!(tokens, 5);
}

/// Two gateways ask at once, as often as they can; the money must hold.
async fn budgets_hold_under_load(store: SharedStore) {
    const BUDGET: u64 = 1_000_000;
    const COST: u64 = 30_000;
    let key = add(
        &store.one,
        ModelLimit {
            nano_usd_per_day: Some(BUDGET),
            ..ModelLimit::default()
        },
    )
    .await;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..200 {
        let store = if number % 2 == 0 {
            &store.one
        } else {
            &store.two
        };
        let store = Arc::clone(store);
        let key = key.clone();
        running.spawn(async move {
            let asked = asked(&key, 1, COST, NOW);
            match store.reserve(&asked).await {
                Ok(()) => {
                    tokio::task::yield_now().await;
                    let used = Spending {
                        tokens: 1,
                        nano_usd: COST,
                    };
                    store.settle(&asked.lease, used, NOW).await.unwrap();
                    1
                }
                Err(ReserveError::Limit(limit)) => {
                    assert!(limit.retry_after.as_secs() >= 1);
                    0
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
    let answered: u64 = running.join_all().await.into_iter().sum();
    let days = store.one.daily_usage(&key.id, 1).await.unwrap();
    let spent = days[0].usage.nano_usd;
    assert_eq!(spent, answered * COST, "every settlement counts once");
    assert!(spent < BUDGET + COST, "{spent}");
    // Nothing else would have fitted: the budget was used as far as possible.
    assert!(spent + COST > BUDGET, "{spent}");
}

/// A settlement that is committed while another gateway reads the state counts all the same.
async fn running_settlements_count(store: SharedStore) {
    let limit = ModelLimit {
        nano_usd_per_day: Some(100),
        ..ModelLimit::default()
    };
    for _ in 0..200 {
        let key = add(&store.one, limit.clone()).await;
        let first = asked(&key, 1, 100, NOW);
        store.one.reserve(&first).await.unwrap();
        let one = Arc::clone(&store.one);
        let settling = tokio::spawn(async move {
            let used = Spending {
                tokens: 1,
                nano_usd: 100,
            };
            one.settle(&first.lease, used, NOW).await.unwrap();
        });
        while !settling.is_finished() {
            let second = store.two.reserve(&asked(&key, 1, 100, NOW)).await;
            assert!(matches!(second, Err(ReserveError::Limit(_))), "{second:?}");
        }
        settling.await.unwrap();
    }
}

async fn huge_reservations_do_not_overflow(store: SharedStore) {
    let limit = ModelLimit {
        concurrent: Some(3),
        ..ModelLimit::default()
    };
    let key = add(&store.one, limit).await;
    for _ in 0..3 {
        let huge = asked(&key, u64::MAX, u64::MAX, NOW);
        store.one.reserve(&huge).await.unwrap();
    }
    let refused = store.two.reserve(&asked(&key, 1, 1, NOW)).await;
    assert!(
        matches!(refused, Err(ReserveError::Limit(_))),
        "{refused:?}"
    );
}

macro_rules! for_all_stores {
    ($($test:ident),*) => {
        $(mod $test {
            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                super::$test(super::sqlite().await.unwrap()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                if let Some(store) = super::postgres().await {
                    super::$test(store).await;
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn redis() {
                if let Some(store) = super::redis().await {
                    super::$test(store).await;
                }
            }
        })*
    };
}

for_all_stores!(
    keys_live_and_are_revoked,
    usage_is_counted_once,
    free_requests_are_settled,
    leases_of_dead_gateways_expire,
    budgets_hold_under_load,
    running_settlements_count,
    huge_reservations_do_not_overflow
);

/// A Redis server of a test, which ends when it is dropped.
struct RedisServer(std::process::Child);

impl Drop for RedisServer {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts a Redis server of the test's own; `None` where the program is missing.
fn start_redis(port: u16) -> Option<RedisServer> {
    let started = std::process::Command::new("redis-server")
        .args([
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--bind",
            "127.0.0.1",
        ])
        .stdout(std::process::Stdio::null())
        .spawn();
    match started {
        Ok(child) => Some(RedisServer(child)),
        Err(error) => {
            eprintln!("SKIPPED: redis-server cannot be started: {error}");
            None
        }
    }
}

/// Connects to a server that is starting.
async fn connect_when_ready(address: &str) -> Arc<dyn KeyStore> {
    for _ in 0..3000 {
        if let Ok(store) = open_store(address).await {
            return store;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("no server at {address}");
}

/// A server that dies fails the store, and one that comes back, also without its data and the scripts,
/// serves it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_restarted_is_used_again() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = {
        let free = port.local_addr().unwrap().port();
        drop(port);
        free
    };
    let Some(server) = start_redis(port) else {
        return;
    };
    let store = connect_when_ready(&format!("redis://127.0.0.1:{port}/")).await;
    let key = add(&store, ModelLimit::default()).await;
    store.reserve(&asked(&key, 1, 1, NOW)).await.unwrap();
    drop(server);
    let failed = store.reserve(&asked(&key, 1, 1, NOW)).await.unwrap_err();
    assert!(
        matches!(failed, ReserveError::Store(StoreError::Unavailable(_))),
        "{failed:?}"
    );
    let _server = start_redis(port).unwrap();
    let mut is_back = false;
    for _ in 0..3000 {
        match store.reserve(&asked(&key, 1, 1, NOW)).await {
            // The key went with the data.
            Err(ReserveError::Revoked) => {
                is_back = true;
                break;
            }
            Err(ReserveError::Store(StoreError::Unavailable(_))) => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(is_back);
    let key = add(&store, ModelLimit::default()).await;
    store.reserve(&asked(&key, 1, 1, NOW)).await.unwrap();
}

#[tokio::test]
async fn an_error_repeats_no_password_of_redis() {
    let secret = "geheim";
    for address in [
        format!("redis://user:{secret}@127.0.0.1:1/"),
        format!("redis://user:{secret}@:x/"),
    ] {
        let error = open_store(&address).await.err().unwrap();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
}

#[tokio::test]
async fn addresses_of_other_kinds_are_refused() {
    let refused = open_store("mysql://127.0.0.1").await.err().unwrap();
    assert!(
        refused.to_string().contains("`mysql` is not a kind"),
        "{refused}"
    );
    let missing = open_store("/nonexistent/folder/keys.db")
        .await
        .err()
        .unwrap();
    assert!(missing.to_string().contains("/nonexistent"), "{missing}");
}
