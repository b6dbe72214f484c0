//! Keeps keys in a database of PostgreSQL, which gateways of several machines can share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sabir_gateway::{
    ClientKey, DailyUsage, KeyHash, KeyState, KeyStore, LEASE_TIME, ModelUsage, OpenLeases,
    Reservation, ReserveError, Spending, StoreError, StoreFuture, check_limits, day_start,
    minute_start,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::AbortHandle;
use tokio::time::{error::Elapsed, timeout};
use tokio_postgres::{Client, Config, NoTls, Row, Transaction};

use crate::{LEASE_MEMORY_MS, MINUTE_MEMORY_MS, to_signed, to_unsigned};

/// The number of connections of one gateway.
const CONNECTIONS: usize = 4;

/// The time that the database has for each use of a connection, and before that for a connection.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The tables. Times are in milliseconds since 1970, money in billionths of a dollar. The lock keeps
/// gateways that start together from creating the same table twice.
// The lock's number is arbitrary, but gateways of all versions must use the same. Names are unique
// only among active keys, so that a new key can reuse the name of a revoked one.
const TABLES: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(731945210);
CREATE TABLE IF NOT EXISTS sabir_client_keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, created BIGINT NOT NULL,
    revoked BIGINT, limits TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS sabir_client_key_names ON sabir_client_keys (name) WHERE revoked IS NULL;
CREATE TABLE IF NOT EXISTS sabir_key_usage (
    key TEXT NOT NULL, model TEXT NOT NULL, period TEXT NOT NULL, start BIGINT NOT NULL,
    requests BIGINT NOT NULL DEFAULT 0, tokens BIGINT NOT NULL DEFAULT 0,
    nano_usd BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (key, period, start, model));
CREATE TABLE IF NOT EXISTS sabir_key_leases (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, model TEXT NOT NULL, tokens BIGINT NOT NULL,
    nano_usd BIGINT NOT NULL, expires BIGINT NOT NULL, settled BOOLEAN NOT NULL DEFAULT FALSE);
CREATE INDEX IF NOT EXISTS sabir_key_leases_by_key ON sabir_key_leases (key, settled, expires);
COMMIT;
";

/// A store of keys in a database. Connections are opened again after they broke.
pub struct PostgresStore {
    /// The address with user and password.
    config: Config,
    /// The connections.
    connections: Vec<Arc<Mutex<Option<OpenConnection>>>>,
    /// The number of uses, by which connections take turns.
    turn: AtomicUsize,
    /// The time limit.
    time_limit: Duration,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

/// A connection that was opened.
struct OpenConnection {
    /// The client of the connection.
    client: Client,
    /// The task that drives it.
    driver: AbortHandle,
}

/// Makes the error of a database that did not answer in time.
fn too_slow(_: Elapsed) -> StoreError {
    StoreError::Unavailable("the database did not answer in time".to_owned())
}

/// Describes a failure of PostgreSQL.
fn unavailable(error: &tokio_postgres::Error) -> StoreError {
    let reason = error
        .as_db_error()
        .map_or_else(|| error.to_string(), |error| error.message().to_owned());
    StoreError::Unavailable(reason)
}

impl PostgresStore {
    /// Connects to the database of an address, and creates the tables if they are missing. The
    /// connection is not encrypted.
    ///
    /// # Errors
    /// The address is invalid, or the database cannot be reached.
    pub async fn connect(address: &str) -> Result<Self, StoreError> {
        Self::connect_with_limit(address, TIME_LIMIT).await
    }

    /// Connects with another time limit.
    async fn connect_with_limit(address: &str, time_limit: Duration) -> Result<Self, StoreError> {
        // The parser's error is dropped, since it may quote a part of an address with a password.
        let config: Config = address.parse().map_err(|_| {
            StoreError::Unavailable(
                "the address is invalid: use postgres://USER:PASSWORD@HOST:PORT/DATABASE"
                    .to_owned(),
            )
        })?;
        let store = Self {
            config,
            connections: (0..CONNECTIONS).map(|_| Arc::default()).collect(),
            turn: AtomicUsize::new(0),
            time_limit,
        };
        // This connection only checks that the database can be reached, and creates the tables. The
        // store opens its own connection at its first use.
        let opening = timeout(time_limit, store.open_connection()).await;
        let opened = opening.map_err(too_slow)??;
        let made = timeout(time_limit, opened.client.batch_execute(TABLES)).await;
        if made.is_err() {
            opened.driver.abort();
        }
        made.map_err(too_slow)?
            .map_err(|error| unavailable(&error))?;
        Ok(store)
    }

    /// Opens a connection, and drives it in a task of its own until it is dropped.
    async fn open_connection(&self) -> Result<OpenConnection, StoreError> {
        let opened = self.config.connect(NoTls).await;
        let (client, connection) = opened.map_err(|error| unavailable(&error))?;
        let driver = tokio::spawn(async move {
            // Its error reaches the caller of the client, too.
            _ = connection.await;
        });
        Ok(OpenConnection {
            client,
            driver: driver.abort_handle(),
        })
    }

    /// Waits for a connection, but not longer than the time limit.
    async fn lock_connection(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        let locking = timeout(self.time_limit, self.lock_any_connection()).await;
        locking.map_err(too_slow)?
    }

    /// Waits for a connection, the next free one if possible.
    async fn lock_any_connection(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let free = self
            .connections
            .iter()
            .cycle()
            .skip(turn % CONNECTIONS)
            .take(CONNECTIONS)
            .find_map(|connection| connection.try_lock().ok());
        let mut guard = match free {
            Some(guard) => guard,
            // All are busy. Because of the turn, not everybody waits for the same one.
            None => match self.connections.get(turn % CONNECTIONS) {
                Some(connection) => connection.lock().await,
                None => return Err(StoreError::Unavailable("no connection".to_owned())),
            },
        };
        if guard.as_ref().is_none_or(|open| open.client.is_closed()) {
            *guard = Some(self.open_connection().await?);
        }
        Ok(ConnectionGuard(guard))
    }
}

/// A locked connection that is open.
struct ConnectionGuard<'a>(MutexGuard<'a, Option<OpenConnection>>);

impl ConnectionGuard<'_> {
    /// Returns the client.
    fn client(&mut self) -> Result<&mut Client, StoreError> {
        let open = self.0.as_mut().map(|open| &mut open.client);
        open.ok_or_else(|| StoreError::Unavailable("the connection is closed".to_owned()))
    }

    /// Returns the result of work on the connection. If the work took too long, the connection is
    /// closed, because its replies may never come.
    fn finish<T, E: From<StoreError>>(
        mut self,
        worked: Result<Result<T, E>, Elapsed>,
    ) -> Result<T, E> {
        worked.unwrap_or_else(|elapsed| {
            if let Some(open) = self.0.take() {
                // The driver would wait for those answers.
                open.driver.abort();
            }
            Err(too_slow(elapsed).into())
        })
    }
}

/// The columns of a key, in the order of [`read_key`].
const KEY_COLUMNS: &str = "id, name, created, revoked, limits";

/// Reads a key from a row.
fn read_key(row: &Row) -> Result<ClientKey, StoreError> {
    let invalid = |error: tokio_postgres::Error| StoreError::Invalid(error.to_string());
    let limits: String = row.try_get(4).map_err(invalid)?;
    Ok(ClientKey {
        id: row.try_get(0).map_err(invalid)?,
        name: row.try_get(1).map_err(invalid)?,
        created_ms: to_unsigned(row.try_get(2).map_err(invalid)?),
        revoked_ms: row
            .try_get::<_, Option<i64>>(3)
            .map_err(invalid)?
            .map(to_unsigned),
        limits: serde_json::from_str(&limits)
            .map_err(|error| StoreError::Invalid(error.to_string()))?,
    })
}

/// Reads usage from a row that begins with the model.
fn read_usage(row: &Row) -> Result<ModelUsage, tokio_postgres::Error> {
    Ok(ModelUsage {
        model: row.try_get(0)?,
        requests: to_unsigned(row.try_get(1)?),
        tokens: to_unsigned(row.try_get(2)?),
        nano_usd: to_unsigned(row.try_get(3)?),
    })
}

/// Reads the state of a key.
async fn read_state(
    transaction: &Transaction<'_>,
    key: &str,
    now_ms: u64,
) -> Result<KeyState, tokio_postgres::Error> {
    // One statement sees one snapshot. With two of them, a settlement that is committed in between
    // would count in neither, since it moves tokens from a lease to the usage. Expired leases stay
    // in the table for a late settlement, but no longer count. A sum of BIGINT is NUMERIC, which
    // cannot be read as an integer and may exceed its range.
    const STATE: &str = "SELECT model, requests, tokens, nano_usd, period FROM sabir_key_usage
         WHERE key = $1 AND (period = 'minute' AND start = $2 OR period = 'day' AND start = $3)
         UNION ALL SELECT model, COUNT(*), LEAST(SUM(tokens), 9223372036854775807)::BIGINT,
         LEAST(SUM(nano_usd), 9223372036854775807)::BIGINT, 'lease' FROM sabir_key_leases
         WHERE key = $1 AND NOT settled AND expires > $4 GROUP BY model";
    let minute = to_signed(minute_start(now_ms));
    let day = to_signed(day_start(now_ms));
    let now = to_signed(now_ms);
    let mut state = KeyState::default();
    for row in transaction
        .query(STATE, &[&key, &minute, &day, &now])
        .await?
    {
        let usage = read_usage(&row)?;
        match row.try_get::<_, &str>(4)? {
            "minute" => state.minute.push(usage),
            "day" => state.day.push(usage),
            _ => state.leases.push(OpenLeases {
                model: usage.model,
                count: usage.requests,
                reserved: Spending {
                    tokens: usage.tokens,
                    nano_usd: usage.nano_usd,
                },
            }),
        }
    }
    Ok(state)
}

/// Adds usage to the minute and the day of a time.
async fn add_usage(
    transaction: &Transaction<'_>,
    key: &str,
    used: &ModelUsage,
    now_ms: u64,
) -> Result<(), tokio_postgres::Error> {
    // One statement adds both rows, the minute first, so that two settlements cannot wait for each
    // other.
    const ADD: &str = "INSERT INTO sabir_key_usage AS known (key, model, period, start, requests, tokens, nano_usd)
         VALUES ($1, $2, 'minute', $3, $5, $6, $7), ($1, $2, 'day', $4, $5, $6, $7)
         ON CONFLICT (key, period, start, model) DO UPDATE SET requests = known.requests + excluded.requests,
         tokens = known.tokens + excluded.tokens, nano_usd = known.nano_usd + excluded.nano_usd";
    transaction
        .execute(
            ADD,
            &[
                &key,
                &used.model,
                &to_signed(minute_start(now_ms)),
                &to_signed(day_start(now_ms)),
                &to_signed(used.requests),
                &to_signed(used.tokens),
                &to_signed(used.nano_usd),
            ],
        )
        .await?;
    Ok(())
}

/// Reserves within a transaction, which waits for others of the same key.
async fn reserve_in(
    transaction: &Transaction<'_>,
    asked: &Reservation,
) -> Result<(), ReserveError> {
    let failed = |error: tokio_postgres::Error| ReserveError::Store(unavailable(&error));
    let key = transaction
        .query_opt(
            &format!(
                "SELECT {KEY_COLUMNS} FROM sabir_client_keys WHERE id = $1 AND revoked IS NULL FOR UPDATE"
            ),
            &[&asked.key],
        )
        .await
        .map_err(failed)?
        .ok_or(ReserveError::Revoked)?;
    let key = read_key(&key)?;
    let state = read_state(transaction, &asked.key, asked.now_ms)
        .await
        .map_err(failed)?;
    check_limits(&key, &state, asked)?;
    let old_lease = to_signed(asked.now_ms.saturating_sub(LEASE_MEMORY_MS));
    let old_minute = to_signed(asked.now_ms.saturating_sub(MINUTE_MEMORY_MS));
    transaction
        .execute(
            "DELETE FROM sabir_key_leases WHERE key = $1 AND expires < $2",
            &[&asked.key, &old_lease],
        )
        .await
        .map_err(failed)?;
    transaction
        .execute(
            "DELETE FROM sabir_key_usage WHERE key = $1 AND period = 'minute' AND start < $2",
            &[&asked.key, &old_minute],
        )
        .await
        .map_err(failed)?;
    transaction
        .execute(
            "INSERT INTO sabir_key_leases (id, key, model, tokens, nano_usd, expires) VALUES ($1, $2, $3, $4, $5, $6)",
            &[
                &asked.lease,
                &asked.key,
                &asked.model,
                &to_signed(asked.most.tokens),
                &to_signed(asked.most.nano_usd),
                &to_signed(asked.now_ms + LEASE_TIME.as_millis() as u64),
            ],
        )
        .await
        .map_err(failed)?;
    // The request counts at once. Its tokens count in the minute and the day of its settlement.
    let begun = ModelUsage {
        model: asked.model.clone(),
        requests: 1,
        ..ModelUsage::default()
    };
    add_usage(transaction, &asked.key, &begun, asked.now_ms)
        .await
        .map_err(failed)
}

impl KeyStore for PostgresStore {
    fn add_key<'a>(
        &'a self,
        key: &'a ClientKey,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let limits = serde_json::to_string(&key.limits)
                .map_err(|error| StoreError::Invalid(error.to_string()))?;
            let mut guard = self.lock_connection().await?;
            let work = async {
                let added = guard
                .client()?
                .execute(
                    "INSERT INTO sabir_client_keys (id, name, hash, created, limits) VALUES ($1, $2, $3, $4, $5)
                     ON CONFLICT DO NOTHING",
                    &[
                        &key.id,
                        &key.name,
                        &hash.to_hex(),
                        &to_signed(key.created_ms),
                        &limits,
                    ],
                )
                .await
                .map_err(|error| unavailable(&error))?;
                match added {
                    0 => Err(StoreError::NameTaken(key.name.clone())),
                    _ => Ok(()),
                }
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn list_keys(&self) -> StoreFuture<'_, Result<Vec<ClientKey>, StoreError>> {
        Box::pin(async move {
            let mut guard = self.lock_connection().await?;
            let work = async {
                let text =
                    format!("SELECT {KEY_COLUMNS} FROM sabir_client_keys ORDER BY name, created");
                let rows = guard.client()?.query(&text, &[]).await;
                let rows = rows.map_err(|error| unavailable(&error))?;
                rows.iter().map(read_key).collect()
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn find_key<'a>(
        &'a self,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<Option<ClientKey>, StoreError>> {
        Box::pin(async move {
            let mut guard = self.lock_connection().await?;
            let work = async {
                let text = format!(
                    "SELECT {KEY_COLUMNS} FROM sabir_client_keys WHERE hash = $1 AND revoked IS NULL"
                );
                let row = guard.client()?.query_opt(&text, &[&hash.to_hex()]).await;
                let row = row.map_err(|error| unavailable(&error))?;
                row.as_ref().map(read_key).transpose()
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn revoke_key<'a>(
        &'a self,
        key: &'a str,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<ClientKey, StoreError>> {
        Box::pin(async move {
            let mut guard = self.lock_connection().await?;
            let work = async {
                let text = format!(
                    "UPDATE sabir_client_keys SET revoked = $2 WHERE (id = $1 OR name = $1) AND revoked IS NULL RETURNING {KEY_COLUMNS}"
                );
                let row = guard
                    .client()?
                    .query_opt(&text, &[&key, &to_signed(now_ms)])
                    .await
                    .map_err(|error| unavailable(&error))?;
                let row = row.ok_or_else(|| StoreError::UnknownKey(key.to_owned()))?;
                read_key(&row)
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn reserve<'a>(
        &'a self,
        reservation: &'a Reservation,
    ) -> StoreFuture<'a, Result<(), ReserveError>> {
        Box::pin(async move {
            let failed = |error: tokio_postgres::Error| ReserveError::Store(unavailable(&error));
            let mut guard = self.lock_connection().await?;
            let work = async {
                let transaction = guard.client()?.transaction().await.map_err(failed)?;
                // Dropped without a commit, it is rolled back.
                reserve_in(&transaction, reservation).await?;
                transaction.commit().await.map_err(failed)
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a str,
        used: Spending,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut guard = self.lock_connection().await?;
            let work = async {
                let transaction = guard.client()?.transaction().await;
                let transaction = transaction.map_err(|error| unavailable(&error))?;
                let closed = transaction
                    .query_opt(
                        "UPDATE sabir_key_leases SET settled = TRUE WHERE id = $1 AND NOT settled RETURNING key, model",
                        &[&lease],
                    )
                    .await
                    .map_err(|error| unavailable(&error))?;
                // Already settled, for example if only the confirmation of a commit was lost, or
                // forgotten by now.
                let Some(row) = closed else {
                    return Ok(());
                };
                let invalid = |error: tokio_postgres::Error| StoreError::Invalid(error.to_string());
                let key: String = row.try_get(0).map_err(invalid)?;
                let used = ModelUsage {
                    model: row.try_get(1).map_err(invalid)?,
                    requests: 0,
                    tokens: used.tokens,
                    nano_usd: used.nano_usd,
                };
                add_usage(&transaction, &key, &used, now_ms)
                    .await
                    .map_err(|error| unavailable(&error))?;
                transaction
                    .commit()
                    .await
                    .map_err(|error| unavailable(&error))
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [String],
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            // A lease that has expired counts again, too: its request is still running.
            let expires = to_signed(now_ms + LEASE_TIME.as_millis() as u64);
            let mut guard = self.lock_connection().await?;
            let work = async {
                guard
                .client()?
                .execute(
                    "UPDATE sabir_key_leases SET expires = $2 WHERE id = ANY($1) AND NOT settled",
                    &[&leases, &expires],
                )
                .await
                .map_err(|error| unavailable(&error))?;
                Ok(())
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }

    fn daily_usage<'a>(
        &'a self,
        key: &'a str,
        days: u32,
    ) -> StoreFuture<'a, Result<Vec<DailyUsage>, StoreError>> {
        Box::pin(async move {
            let mut guard = self.lock_connection().await?;
            let work = async {
                // The last days with usage, which are not always the last ones of the calendar.
                let rows = guard
                .client()?
                .query(
                    "SELECT model, requests, tokens, nano_usd, start FROM sabir_key_usage WHERE key = $1 AND period = 'day'
                     AND start IN (SELECT DISTINCT start FROM sabir_key_usage WHERE key = $1 AND period = 'day'
                     ORDER BY start DESC LIMIT $2) ORDER BY start DESC, model",
                    &[&key, &i64::from(days)],
                )
                .await
                .map_err(|error| unavailable(&error))?;
                let read = |row: &Row| -> Result<DailyUsage, tokio_postgres::Error> {
                    Ok(DailyUsage {
                        day_ms: to_unsigned(row.try_get(4)?),
                        usage: read_usage(row)?,
                    })
                };
                let read_all: Result<Vec<_>, _> = rows.iter().map(read).collect();
                read_all.map_err(|error| StoreError::Invalid(error.to_string()))
            };
            let worked = timeout(self.time_limit, work).await;
            guard.finish(worked)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Lets a client in without a password, and confirms its simple queries, but no others.
    async fn serve_simple_queries(mut stream: TcpStream) -> std::io::Result<()> {
        const READY: &[u8] = b"Z\0\0\0\x05I";
        let length = stream.read_u32().await?;
        let mut rest = vec![0; length as usize - 4];
        stream.read_exact(&mut rest).await?;
        stream.write_all(b"R\0\0\0\x08\0\0\0\0").await?;
        stream.write_all(READY).await?;
        loop {
            let kind = stream.read_u8().await?;
            let length = stream.read_u32().await?;
            let mut rest = vec![0; length as usize - 4];
            stream.read_exact(&mut rest).await?;
            if kind == b'Q' {
                stream.write_all(READY).await?;
            }
        }
    }

    #[tokio::test]
    async fn a_database_that_is_silent_fails_the_store() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("postgres://u@{}/d", listener.local_addr().unwrap());
        let limit = Duration::from_millis(500);
        let refused = PostgresStore::connect_with_limit(&address, limit).await;
        assert_eq!(
            refused.err(),
            Some(StoreError::Unavailable(
                "the database did not answer in time".to_owned()
            ))
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_simple_queries(stream));
            }
        });
        let store = PostgresStore::connect_with_limit(&address, limit)
            .await
            .unwrap();
        let failed = store.list_keys().await.unwrap_err();
        assert!(failed.to_string().contains("in time"), "{failed}");
        // The connection that timed out is gone.
        for connection in &store.connections {
            assert!(connection.lock().await.is_none());
        }
    }
}
