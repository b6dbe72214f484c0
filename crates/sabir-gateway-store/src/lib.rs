//! Keeps the gateway's client keys, their limits and their usage, in SQLite, PostgreSQL or Redis.
//!
//! All stores decide with the same function
//! ([`check_limits`](sabir_gateway::check_limits)) about one state of a key:
//! SQLite's transactions exclude each other, PostgreSQL locks the row of the key, and Redis
//! refuses a reservation after another one. So a limit holds over all gateways
//! that share a store.
//!
//! Usage is added when a lease is settled, and only by the settlement that closes the lease. A lease
//! that its gateway did not renew no longer counts; if that gateway still settles it, the usage is
//! added then, once.

mod postgres_store;
mod redis_store;
mod sqlite_store;

use std::path::Path;
use std::sync::Arc;

use sabir_gateway::{KeyStore, StoreError};

pub use postgres_store::PostgresStore;
pub use redis_store::RedisStore;
pub use sqlite_store::SqliteStore;

/// Opens the store of an address: `postgres://…`, `redis://…`, or the path of a file for SQLite, which is created
/// if it is missing.
///
/// # Errors
/// The store cannot be opened or reached.
pub async fn open_store(address: &str) -> Result<Arc<dyn KeyStore>, StoreError> {
    if address.starts_with("postgres://") || address.starts_with("postgresql://") {
        return Ok(Arc::new(PostgresStore::connect(address).await?));
    }
    if address.starts_with("redis://") {
        return Ok(Arc::new(RedisStore::connect(address).await?));
    }
    // Without this, a mistyped scheme would silently become the name of a new file.
    if let Some((scheme, _)) = address.split_once("://") {
        return Err(StoreError::Unavailable(format!(
            "`{scheme}` is not a kind of store: give the path of a file, postgres://USER@HOST/DATABASE or redis://HOST/NUMBER"
        )));
    }
    Ok(Arc::new(SqliteStore::open(Path::new(address))?))
}

/// The time for which settled and expired leases are kept, so that a late settlement finds them, in
/// milliseconds.
const LEASE_MEMORY_MS: u64 = 3_600_000;

/// The time for which the usage of minutes is kept, in milliseconds.
// Limits use the current minute only. The rest allows for gateways whose clocks differ.
const MINUTE_MEMORY_MS: u64 = 120_000;

/// Converts a number for a database, whose integers are signed.
fn to_signed(number: u64) -> i64 {
    // A client may request any number of output tokens; it must not become a negative reservation.
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number from a database.
fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
