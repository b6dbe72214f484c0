//! Keeps keys in a file of SQLite, which several gateways of one machine can share.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use sabir_gateway::{
    ClientKey, DailyUsage, KeyHash, KeyState, KeyStore, LEASE_TIME, ModelUsage, OpenLeases,
    Reservation, ReserveError, Spending, StoreError, StoreFuture, check_limits, day_start,
    minute_start,
};

use crate::{LEASE_MEMORY_MS, MINUTE_MEMORY_MS, to_signed, to_unsigned};

/// The tables. Times are in milliseconds since 1970, money in billionths of a dollar.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS client_keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, created INTEGER NOT NULL,
    revoked INTEGER, limits TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS client_key_names ON client_keys (name) WHERE revoked IS NULL;
CREATE TABLE IF NOT EXISTS key_usage (
    key TEXT NOT NULL, model TEXT NOT NULL, period TEXT NOT NULL, start INTEGER NOT NULL,
    requests INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0,
    nano_usd INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (key, period, start, model)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS key_leases (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, model TEXT NOT NULL, tokens INTEGER NOT NULL,
    nano_usd INTEGER NOT NULL, expires INTEGER NOT NULL, settled INTEGER NOT NULL DEFAULT 0)
    WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS key_leases_by_key ON key_leases (key, settled, expires);
";

/// The time for which a transaction waits for another one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A store of keys in a file.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    connection: Arc<Mutex<Connection>>,
}

/// Describes a failure of SQLite.
fn unavailable(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

impl SqliteStore {
    /// Opens a file, and creates it and its tables if they are missing.
    ///
    /// # Errors
    /// The file cannot be opened, or is no database.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let open = || -> Result<Connection, rusqlite::Error> {
            let connection = Connection::open(path)?;
            // Before any statement, since another gateway may be creating the tables right now.
            connection.busy_timeout(BUSY_TIMEOUT)?;
            // With a write-ahead log, readers do not wait, and a crash of the process loses no
            // committed transaction.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // A power failure may lose the last transactions. That costs less than a sync for each
            // request.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.execute_batch(TABLES)?;
            Ok(connection)
        };
        let connection = open()
            .map_err(|error| StoreError::Unavailable(format!("{}: {error}", path.display())))?;
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
        })
    }

    /// Runs work on the connection, on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, ReserveError> + Send + 'static,
    ) -> Result<T, ReserveError> {
        let connection = Arc::clone(&self.connection);
        // It may block for long, since another process can hold the lock of the file. After a panic
        // the connection is still usable, because dropping its transaction rolled it back.
        let worked = tokio::task::spawn_blocking(move || {
            work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        worked
            .await
            .map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    /// Runs work in a transaction that excludes other writers from its beginning.
    async fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, ReserveError> + Send + 'static,
    ) -> Result<T, ReserveError> {
        self.run(move |connection| {
            // A deferred transaction would take the write lock after its first read, and fail at
            // once if another process has written since.
            let transaction = connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(|error| unavailable(&error))?;
            let result = work(&transaction)?;
            transaction.commit().map_err(|error| unavailable(&error))?;
            Ok(result)
        })
        .await
    }
}

/// Takes the failure of a store out of the wider error.
fn store_error(error: ReserveError) -> StoreError {
    match error {
        ReserveError::Store(error) => error,
        // Only `reserve` makes these, and it does not come here.
        ReserveError::Limit(_) | ReserveError::Revoked => StoreError::Invalid(error.to_string()),
    }
}

/// The columns of a key, in the order of [`read_key`].
const KEY_COLUMNS: &str = "id, name, created, revoked, limits";

/// Reads a key from a row.
fn read_key(row: &Row<'_>) -> Result<ClientKey, rusqlite::Error> {
    let limits: String = row.get(4)?;
    Ok(ClientKey {
        id: row.get(0)?,
        name: row.get(1)?,
        created_ms: to_unsigned(row.get(2)?),
        revoked_ms: row.get::<_, Option<i64>>(3)?.map(to_unsigned),
        limits: serde_json::from_str(&limits).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                4,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })?,
    })
}

/// Reads usage from a row that begins with the model.
fn read_usage(row: &Row<'_>) -> Result<ModelUsage, rusqlite::Error> {
    Ok(ModelUsage {
        model: row.get(0)?,
        requests: to_unsigned(row.get(1)?),
        tokens: to_unsigned(row.get(2)?),
        nano_usd: to_unsigned(row.get(3)?),
    })
}

/// Reads the state of a key.
fn read_state(
    transaction: &Transaction<'_>,
    key: &str,
    now_ms: u64,
) -> Result<KeyState, rusqlite::Error> {
    let usage = |period: &str, start: u64| -> Result<Vec<ModelUsage>, rusqlite::Error> {
        let mut query = transaction.prepare_cached(
            "SELECT model, requests, tokens, nano_usd FROM key_usage WHERE key = ?1 AND period = ?2 AND start = ?3",
        )?;
        let rows = query.query_map(params![key, period, to_signed(start)], read_usage)?;
        rows.collect()
    };
    // SUM would fail at a sum above the largest integer, which the cast keeps to.
    let mut query = transaction.prepare_cached(
        "SELECT model, COUNT(*), CAST(TOTAL(tokens) AS INTEGER), CAST(TOTAL(nano_usd) AS INTEGER) FROM key_leases
         WHERE key = ?1 AND settled = 0 AND expires > ?2 GROUP BY model",
    )?;
    let leases = query.query_map(params![key, to_signed(now_ms)], |row| {
        Ok(OpenLeases {
            model: row.get(0)?,
            count: to_unsigned(row.get(1)?),
            reserved: Spending {
                tokens: to_unsigned(row.get(2)?),
                nano_usd: to_unsigned(row.get(3)?),
            },
        })
    })?;
    Ok(KeyState {
        minute: usage("minute", minute_start(now_ms))?,
        day: usage("day", day_start(now_ms))?,
        leases: leases.collect::<Result<_, _>>()?,
    })
}

/// Adds usage to the minute and the day of a time.
fn add_usage(
    transaction: &Transaction<'_>,
    key: &str,
    used: &ModelUsage,
    now_ms: u64,
) -> Result<(), rusqlite::Error> {
    let mut query = transaction.prepare_cached(
        "INSERT INTO key_usage (key, model, period, start, requests, tokens, nano_usd) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (key, period, start, model) DO UPDATE SET requests = requests + excluded.requests,
         tokens = tokens + excluded.tokens, nano_usd = nano_usd + excluded.nano_usd",
    )?;
    for (period, start) in [("minute", minute_start(now_ms)), ("day", day_start(now_ms))] {
        query.execute(params![
            key,
            used.model,
            period,
            to_signed(start),
            to_signed(used.requests),
            to_signed(used.tokens),
            to_signed(used.nano_usd)
        ])?;
    }
    Ok(())
}

/// Deletes what is no longer needed for limits. The usage of days is kept.
fn delete_old_usage(
    transaction: &Transaction<'_>,
    key: &str,
    now_ms: u64,
) -> Result<(), rusqlite::Error> {
    transaction
        .prepare_cached("DELETE FROM key_leases WHERE key = ?1 AND expires < ?2")?
        .execute(params![
            key,
            to_signed(now_ms.saturating_sub(LEASE_MEMORY_MS))
        ])?;
    transaction
        .prepare_cached(
            "DELETE FROM key_usage WHERE key = ?1 AND period = 'minute' AND start < ?2",
        )?
        .execute(params![
            key,
            to_signed(now_ms.saturating_sub(MINUTE_MEMORY_MS))
        ])?;
    Ok(())
}

/// Reserves within a transaction.
fn reserve_in(transaction: &Transaction<'_>, asked: &Reservation) -> Result<(), ReserveError> {
    let failed = |error: rusqlite::Error| ReserveError::Store(unavailable(&error));
    let key = transaction
        .prepare_cached(&format!(
            "SELECT {KEY_COLUMNS} FROM client_keys WHERE id = ?1 AND revoked IS NULL"
        ))
        .and_then(|mut query| query.query_row(params![asked.key], read_key).optional())
        .map_err(failed)?
        .ok_or(ReserveError::Revoked)?;
    let state = read_state(transaction, &asked.key, asked.now_ms).map_err(failed)?;
    check_limits(&key, &state, asked)?;
    let keep = || -> Result<(), rusqlite::Error> {
        delete_old_usage(transaction, &asked.key, asked.now_ms)?;
        transaction
            .prepare_cached(
                "INSERT INTO key_leases (id, key, model, tokens, nano_usd, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                asked.lease,
                asked.key,
                asked.model,
                to_signed(asked.most.tokens),
                to_signed(asked.most.nano_usd),
                to_signed(asked.now_ms + LEASE_TIME.as_millis() as u64)
            ])?;
        let begun = ModelUsage {
            model: asked.model.clone(),
            requests: 1,
            ..ModelUsage::default()
        };
        add_usage(transaction, &asked.key, &begun, asked.now_ms)
    };
    keep().map_err(failed)
}

/// Settles within a transaction. Only the first settlement finds the lease open.
fn settle_in(
    transaction: &Transaction<'_>,
    lease: &str,
    used: Spending,
    now_ms: u64,
) -> Result<(), rusqlite::Error> {
    let closed = transaction
        .prepare_cached(
            "UPDATE key_leases SET settled = 1 WHERE id = ?1 AND settled = 0 RETURNING key, model",
        )?
        .query_row(params![lease], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })
        .optional()?;
    let Some((key, model)) = closed else {
        return Ok(());
    };
    let used = ModelUsage {
        model,
        requests: 0,
        tokens: used.tokens,
        nano_usd: used.nano_usd,
    };
    add_usage(transaction, &key, &used, now_ms)
}

impl KeyStore for SqliteStore {
    fn add_key<'a>(
        &'a self,
        key: &'a ClientKey,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        let key = key.clone();
        let hash = hash.to_hex();
        Box::pin(async move {
            let added = self.transact(move |transaction| {
                let limits = serde_json::to_string(&key.limits)
                    .map_err(|error| StoreError::Invalid(error.to_string()))?;
                let row = params![key.id, key.name, hash, to_signed(key.created_ms), limits];
                let added = transaction.execute(
                    "INSERT INTO client_keys (id, name, hash, created, limits) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO NOTHING",
                    row,
                );
                match added.map_err(|error| unavailable(&error))? {
                    0 => Err(StoreError::NameTaken(key.name).into()),
                    _ => Ok(()),
                }
            });
            added.await.map_err(store_error)
        })
    }

    fn list_keys(&self) -> StoreFuture<'_, Result<Vec<ClientKey>, StoreError>> {
        Box::pin(async move {
            let listed = self.run(|connection| {
                let list = || -> Result<Vec<ClientKey>, rusqlite::Error> {
                    let mut query = connection.prepare(&format!(
                        "SELECT {KEY_COLUMNS} FROM client_keys ORDER BY name, created"
                    ))?;
                    let rows = query.query_map([], read_key)?;
                    rows.collect()
                };
                list().map_err(|error| unavailable(&error).into())
            });
            listed.await.map_err(store_error)
        })
    }

    fn find_key<'a>(
        &'a self,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<Option<ClientKey>, StoreError>> {
        let hash = hash.to_hex();
        Box::pin(async move {
            let found = self.run(move |connection| {
                let text = format!(
                    "SELECT {KEY_COLUMNS} FROM client_keys WHERE hash = ?1 AND revoked IS NULL"
                );
                connection
                    .prepare_cached(&text)
                    .and_then(|mut query| query.query_row(params![hash], read_key).optional())
                    .map_err(|error| unavailable(&error).into())
            });
            found.await.map_err(store_error)
        })
    }

    fn revoke_key<'a>(
        &'a self,
        key: &'a str,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<ClientKey, StoreError>> {
        let name = key.to_owned();
        Box::pin(async move {
            let revoked = self.transact(move |transaction| {
                let text = format!(
                    "UPDATE client_keys SET revoked = ?2 WHERE (id = ?1 OR name = ?1) AND revoked IS NULL RETURNING {KEY_COLUMNS}"
                );
                transaction
                    .query_row(&text, params![name, to_signed(now_ms)], read_key)
                    .optional()
                    .map_err(|error| unavailable(&error))?
                    .ok_or_else(|| StoreError::UnknownKey(name).into())
            });
            revoked.await.map_err(store_error)
        })
    }

    fn reserve<'a>(
        &'a self,
        reservation: &'a Reservation,
    ) -> StoreFuture<'a, Result<(), ReserveError>> {
        let asked = reservation.clone();
        Box::pin(self.transact(move |transaction| reserve_in(transaction, &asked)))
    }

    fn settle<'a>(
        &'a self,
        lease: &'a str,
        used: Spending,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        let lease = lease.to_owned();
        Box::pin(async move {
            let settled = self.transact(move |transaction| {
                settle_in(transaction, &lease, used, now_ms)
                    .map_err(|error| unavailable(&error).into())
            });
            settled.await.map_err(store_error)
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [String],
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        let leases = leases.to_vec();
        Box::pin(async move {
            let renewed = self.transact(move |transaction| {
                let expires = to_signed(now_ms + LEASE_TIME.as_millis() as u64);
                let renew = || -> Result<(), rusqlite::Error> {
                    let mut query = transaction.prepare_cached(
                        "UPDATE key_leases SET expires = ?2 WHERE id = ?1 AND settled = 0",
                    )?;
                    for lease in &leases {
                        query.execute(params![lease, expires])?;
                    }
                    Ok(())
                };
                renew().map_err(|error| unavailable(&error).into())
            });
            renewed.await.map_err(store_error)
        })
    }

    fn daily_usage<'a>(
        &'a self,
        key: &'a str,
        days: u32,
    ) -> StoreFuture<'a, Result<Vec<DailyUsage>, StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let found = self.run(move |connection| {
                let list = || -> Result<Vec<DailyUsage>, rusqlite::Error> {
                    let mut query = connection.prepare(
                        "SELECT model, requests, tokens, nano_usd, start FROM key_usage WHERE key = ?1 AND period = 'day'
                         AND start IN (SELECT DISTINCT start FROM key_usage WHERE key = ?1 AND period = 'day'
                         ORDER BY start DESC LIMIT ?2) ORDER BY start DESC, model",
                    )?;
                    let rows = query.query_map(params![key, days], |row| {
                        Ok(DailyUsage {
                            day_ms: to_unsigned(row.get(4)?),
                            usage: read_usage(row)?,
                        })
                    })?;
                    rows.collect()
                };
                list().map_err(|error| unavailable(&error).into())
            });
            found.await.map_err(store_error)
        })
    }
}
