//! Keeps keys in Redis, which gateways of several machines can share.
//!
//! Each step is a script, which Redis runs alone. A reservation is two of them, because
//! [`check_limits`] decides in between: the second one only reserves if no other gateway has reserved
//! for this key since the first, and otherwise both are repeated.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, Client, FromRedisValue, RedisError, Script};
use sabir_gateway::{
    ClientKey, DailyUsage, KeyHash, KeyState, KeyStore, LEASE_TIME, ModelUsage, OpenLeases,
    Reservation, ReserveError, Spending, StoreError, StoreFuture, check_limits, day_start,
    minute_start,
};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::{LEASE_MEMORY_MS, MINUTE_MEMORY_MS};

/// The time that Redis has for an answer, and for a connection.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The attempts of a reservation while other gateways reserve for the same key.
const MAX_ATTEMPTS: u32 = 100;

/// The attempts that follow each other without a pause.
const EAGER_ATTEMPTS: u32 = 10;

/// The number of locks by which the reservations of one gateway take turns.
const TURNS: usize = 64;

/// The most of a number that one lease reserves or adds, so that sums stay in a signed integer.
const MAX_NUMBER: u64 = 1 << 46;

/// The time for which the usage of a minute is kept, by the clock of Redis, in milliseconds.
const MINUTE_LIFE_MS: u64 = MINUTE_MEMORY_MS + 60_000;

/// Functions that all scripts share.
///
/// Per key there are the open leases with the times of their expiry, the expired ones, what each
/// lease reserves (`TOKENS:NANO_USD:MODEL`), and the sums of the open ones by model. Large numbers stay
/// text: those of Lua are floating-point numbers.
const SHARED: &str = r#"
local function names(id)
  return {
    open = 'sabir:open_leases:' .. id,
    expired = 'sabir:expired_leases:' .. id,
    leases = 'sabir:leases:' .. id,
    reserved = 'sabir:reserved:' .. id,
    version = 'sabir:version:' .. id,
  }
end
local function hold(name, lease, expires)
  local tokens, nano_usd, model = redis.call('HGET', name.leases, lease):match('^(%d+):(%d+):(.*)$')
  redis.call('HINCRBY', name.reserved, 'requests:' .. model, 1)
  redis.call('HINCRBY', name.reserved, 'tokens:' .. model, tokens)
  redis.call('HINCRBY', name.reserved, 'nano_usd:' .. model, nano_usd)
  redis.call('ZADD', name.open, expires, lease)
end
-- Redis takes no `-0`, and keeps what a script has done before an error.
local function minus(number)
  return number == '0' and '0' or '-' .. number
end
local function release(name, lease)
  local tokens, nano_usd, model = redis.call('HGET', name.leases, lease):match('^(%d+):(%d+):(.*)$')
  if redis.call('HINCRBY', name.reserved, 'requests:' .. model, -1) == 0 then
    redis.call('HDEL', name.reserved, 'requests:' .. model, 'tokens:' .. model, 'nano_usd:' .. model)
  else
    redis.call('HINCRBY', name.reserved, 'tokens:' .. model, minus(tokens))
    redis.call('HINCRBY', name.reserved, 'nano_usd:' .. model, minus(nano_usd))
  end
  redis.call('ZREM', name.open, lease)
end
local function count(id, model, requests, tokens, nano_usd, minute, day, minute_life)
  local function add(key)
    redis.call('HINCRBY', key, 'requests:' .. model, requests)
    redis.call('HINCRBY', key, 'tokens:' .. model, tokens)
    redis.call('HINCRBY', key, 'nano_usd:' .. model, nano_usd)
  end
  local minute_key = 'sabir:usage:' .. id .. ':minute:' .. minute
  add(minute_key)
  redis.call('PEXPIRE', minute_key, minute_life)
  add('sabir:usage:' .. id .. ':day:' .. day)
  redis.call('ZADD', 'sabir:days:' .. id, day, day)
end
"#;

/// Adds a key, if its id, name and hash are new. Arguments: id, name, hash, JSON.
const ADD_KEY: &str = r#"
local id, name, hash, json = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HEXISTS', 'sabir:client_keys', id) == 1 or redis.call('HEXISTS', 'sabir:key_names', name) == 1
  or redis.call('HEXISTS', 'sabir:key_hashes', hash) == 1 then
  return 0
end
redis.call('HSET', 'sabir:client_keys', id, json)
redis.call('HSET', 'sabir:key_names', name, id)
redis.call('HSET', 'sabir:key_hashes', hash, id)
return 1
"#;

/// Revokes a key and frees its name. Arguments: id or name, time. Returns the key's JSON.
const REVOKE_KEY: &str = r#"
local id = redis.call('HGET', 'sabir:key_names', ARGV[1])
if not id then
  id = ARGV[1]
end
local json = redis.call('HGET', 'sabir:client_keys', id)
if not json or redis.call('HEXISTS', 'sabir:revoked_keys', id) == 1 then
  return false
end
redis.call('HSET', 'sabir:revoked_keys', id, ARGV[2])
redis.call('HDEL', 'sabir:key_names', cjson.decode(json).name)
return json
"#;

/// Finds a key that was not revoked, by its hash. Returns its JSON.
const FIND_KEY: &str = r#"
local id = redis.call('HGET', 'sabir:key_hashes', ARGV[1])
if not id or redis.call('HEXISTS', 'sabir:revoked_keys', id) == 1 then
  return false
end
return redis.call('HGET', 'sabir:client_keys', id)
"#;

/// Reads the state of a key that was not revoked, after moving its expired leases. Arguments: id, now,
/// the time before which expired leases are forgotten, minute, day.
const READ_STATE: &str = r#"
local id = ARGV[1]
local json = redis.call('HGET', 'sabir:client_keys', id)
if not json or redis.call('HEXISTS', 'sabir:revoked_keys', id) == 1 then
  return false
end
local name = names(id)
for _, lease in ipairs(redis.call('ZRANGE', name.open, '-inf', ARGV[2], 'BYSCORE')) do
  redis.call('ZADD', name.expired, redis.call('ZSCORE', name.open, lease), lease)
  release(name, lease)
end
for _, lease in ipairs(redis.call('ZRANGE', name.expired, '-inf', '(' .. ARGV[3], 'BYSCORE')) do
  redis.call('ZREM', name.expired, lease)
  redis.call('HDEL', name.leases, lease)
  redis.call('HDEL', 'sabir:lease_keys', lease)
end
return {
  json,
  redis.call('GET', name.version) or '0',
  redis.call('HGETALL', 'sabir:usage:' .. id .. ':minute:' .. ARGV[4]),
  redis.call('HGETALL', 'sabir:usage:' .. id .. ':day:' .. ARGV[5]),
  redis.call('HGETALL', name.reserved),
}
"#;

/// Reserves, if nobody else has reserved since the state of that version. Arguments: id, version, lease,
/// model, tokens, nano_usd, expiry, minute, day, life of a minute. Returns 1, 0 for another
/// version, or -1 for a revoked key.
const RESERVE: &str = r#"
local id, lease, model = ARGV[1], ARGV[3], ARGV[4]
if redis.call('HEXISTS', 'sabir:client_keys', id) == 0 or redis.call('HEXISTS', 'sabir:revoked_keys', id) == 1 then
  return -1
end
local name = names(id)
if (redis.call('GET', name.version) or '0') ~= ARGV[2] then
  return 0
end
redis.call('INCR', name.version)
redis.call('HSET', 'sabir:lease_keys', lease, id)
redis.call('HSET', name.leases, lease, ARGV[5] .. ':' .. ARGV[6] .. ':' .. model)
hold(name, lease, ARGV[7])
count(id, model, 1, 0, 0, ARGV[8], ARGV[9], ARGV[10])
return 1
"#;

/// Settles a lease, once. Arguments: lease, tokens, nano_usd, minute, day, life of a minute.
const SETTLE: &str = r#"
local lease = ARGV[1]
local id = redis.call('HGET', 'sabir:lease_keys', lease)
if not id then
  return 0
end
local name = names(id)
local model = redis.call('HGET', name.leases, lease):match('^%d+:%d+:(.*)$')
if redis.call('ZSCORE', name.open, lease) then
  release(name, lease)
else
  -- Nobody who read the state before counted it.
  redis.call('INCR', name.version)
end
redis.call('ZREM', name.expired, lease)
redis.call('HDEL', name.leases, lease)
redis.call('HDEL', 'sabir:lease_keys', lease)
count(id, model, 0, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
return 1
"#;

/// Renews leases. An expired one counts again: its request is still running. Arguments: expiry, leases.
const RENEW: &str = r#"
for index = 2, #ARGV do
  local lease = ARGV[index]
  local id = redis.call('HGET', 'sabir:lease_keys', lease)
  if id then
    local name = names(id)
    if redis.call('ZREM', name.expired, lease) == 1 then
      hold(name, lease, ARGV[1])
      redis.call('INCR', name.version)
    else
      redis.call('ZADD', name.open, 'XX', ARGV[1], lease)
    end
  end
end
return 1
"#;

/// A store of keys in Redis. The connection is opened again after it broke.
pub struct RedisStore {
    /// The connection, over which requests run side by side.
    connection: ConnectionManager,
    /// Locks that serialize this gateway's reservations for a key, so that only those of other gateways make attempts fail.
    turns: Vec<Mutex<()>>,
    scripts: Scripts,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The connection knows the address, which may hold a password.
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

/// The scripts with their hashes.
struct Scripts {
    add_key: Script,
    revoke_key: Script,
    find_key: Script,
    read_state: Script,
    reserve: Script,
    settle: Script,
    renew: Script,
}

impl Scripts {
    fn new() -> Self {
        let script = |text: &str| Script::new(&format!("{SHARED}{text}"));
        Self {
            add_key: script(ADD_KEY),
            revoke_key: script(REVOKE_KEY),
            find_key: script(FIND_KEY),
            read_state: script(READ_STATE),
            reserve: script(RESERVE),
            settle: script(SETTLE),
            renew: script(RENEW),
        }
    }
}

/// The usage or the reservations of a key, as fields such as `tokens:MODEL` with their numbers.
type UsageFields = Vec<(String, u64)>;

/// The answer of [`READ_STATE`]: the key, the version, the minute, the day, the reservations.
type StateReply = (String, String, UsageFields, UsageFields, UsageFields);

/// Describes a failure of Redis.
fn unavailable(error: &RedisError) -> StoreError {
    // The whole error may hold arguments of a command.
    let reason = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.category()),
        None => error.category().to_owned(),
    };
    StoreError::Unavailable(reason)
}

/// Returns true if an error is one of the connection, so that another attempt may connect again.
fn is_of_connection(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_connection_refusal() || error.is_io_error()
}

/// Reads a key from its JSON.
fn read_key(json: &str, revoked_ms: Option<u64>) -> Result<ClientKey, StoreError> {
    let key: ClientKey =
        serde_json::from_str(json).map_err(|error| StoreError::Invalid(error.to_string()))?;
    Ok(ClientKey { revoked_ms, ..key })
}

/// Collects the fields of a hash by their models.
fn read_usage(fields: UsageFields) -> Result<Vec<ModelUsage>, StoreError> {
    let mut all: Vec<ModelUsage> = Vec::new();
    for (field, number) in fields {
        let invalid = || StoreError::Invalid(format!("`{field}` is not a field of usage"));
        let (kind, model) = field.split_once(':').ok_or_else(invalid)?;
        let index = all.iter().position(|usage| usage.model == model);
        let index = index.unwrap_or_else(|| {
            all.push(ModelUsage {
                model: model.to_owned(),
                ..ModelUsage::default()
            });
            all.len() - 1
        });
        let usage = all.get_mut(index).ok_or_else(invalid)?;
        match kind {
            "requests" => usage.requests = number,
            "tokens" => usage.tokens = number,
            "nano_usd" => usage.nano_usd = number,
            _ => return Err(invalid()),
        }
    }
    all.sort_by(|one, other| one.model.cmp(&other.model));
    Ok(all)
}

impl RedisStore {
    /// Connects to the server of an address. The connection is not encrypted.
    ///
    /// # Errors
    /// The address is invalid, or the server cannot be reached.
    pub async fn connect(address: &str) -> Result<Self, StoreError> {
        // The parser's error is dropped, since it may quote a part of an address with a password.
        let client = Client::open(address).map_err(|_| {
            StoreError::Unavailable(
                "the address is invalid: use redis://USER:PASSWORD@HOST:PORT/NUMBER".to_owned(),
            )
        })?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(TIME_LIMIT))
            .set_response_timeout(Some(TIME_LIMIT))
            .set_number_of_retries(1);
        let connection = client
            .get_connection_manager_with_config(config)
            .await
            .map_err(|error| unavailable(&error))?;
        Ok(Self {
            connection,
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
            scripts: Scripts::new(),
        })
    }

    /// Runs a script with arguments.
    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[&str],
    ) -> Result<T, StoreError> {
        self.invoke(script, arguments)
            .await
            .map_err(|error| unavailable(&error))
    }

    /// Runs a script that may run twice, once more after an error of the connection.
    async fn run_repeatable<T: FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[&str],
    ) -> Result<T, StoreError> {
        match self.invoke(script, arguments).await {
            // After an outage, the first error may be that of the last connection attempt, long
            // after Redis is back. It starts a new attempt, for which the second run waits.
            Err(error) if is_of_connection(&error) => self.run(script, arguments).await,
            result => result.map_err(|error| unavailable(&error)),
        }
    }

    /// Runs a script once.
    async fn invoke<T: FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[&str],
    ) -> Result<T, RedisError> {
        let mut invocation = script.prepare_invoke();
        for argument in arguments {
            invocation.arg(*argument);
        }
        let mut connection = self.connection.clone();
        invocation.invoke_async(&mut connection).await
    }

    /// Reserves once. Returns false if another gateway reserved meanwhile.
    async fn try_reserve(&self, asked: &Reservation) -> Result<bool, ReserveError> {
        let now = asked.now_ms.to_string();
        let old_lease = asked.now_ms.saturating_sub(LEASE_MEMORY_MS).to_string();
        let minute = minute_start(asked.now_ms).to_string();
        let day = day_start(asked.now_ms).to_string();
        let arguments = [&*asked.key, &*now, &*old_lease, &*minute, &*day];
        let read: Option<StateReply> = self
            .run_repeatable(&self.scripts.read_state, &arguments)
            .await?;
        let (json, version, minute_usage, day_usage, reserved) =
            read.ok_or(ReserveError::Revoked)?;
        let leases = read_usage(reserved)?.into_iter().map(|usage| OpenLeases {
            model: usage.model,
            count: usage.requests,
            reserved: Spending {
                tokens: usage.tokens,
                nano_usd: usage.nano_usd,
            },
        });
        let state = KeyState {
            minute: read_usage(minute_usage)?,
            day: read_usage(day_usage)?,
            leases: leases.collect(),
        };
        check_limits(&read_key(&json, None)?, &state, asked)?;
        let tokens = asked.most.tokens.min(MAX_NUMBER).to_string();
        let nano_usd = asked.most.nano_usd.min(MAX_NUMBER).to_string();
        let expires = lease_expiry(asked.now_ms);
        let life = MINUTE_LIFE_MS.to_string();
        let arguments = [
            &*asked.key,
            &*version,
            &*asked.lease,
            &*asked.model,
            &*tokens,
            &*nano_usd,
            &*expires,
            &*minute,
            &*day,
            &*life,
        ];
        match self.run::<i64>(&self.scripts.reserve, &arguments).await? {
            1 => Ok(true),
            0 => Ok(false),
            _ => Err(ReserveError::Revoked),
        }
    }
}

/// Returns the time at which a lease expires that is reserved or renewed now.
fn lease_expiry(now_ms: u64) -> String {
    let life = u64::try_from(LEASE_TIME.as_millis()).unwrap_or(u64::MAX);
    now_ms.saturating_add(life).to_string()
}

impl KeyStore for RedisStore {
    fn add_key<'a>(
        &'a self,
        key: &'a ClientKey,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let json = serde_json::to_string(key)
                .map_err(|error| StoreError::Invalid(error.to_string()))?;
            let arguments = [&*key.id, &*key.name, &*hash.to_hex(), &*json];
            match self.run::<i64>(&self.scripts.add_key, &arguments).await? {
                1 => Ok(()),
                _ => Err(StoreError::NameTaken(key.name.clone())),
            }
        })
    }

    fn list_keys(&self) -> StoreFuture<'_, Result<Vec<ClientKey>, StoreError>> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let failed = |error: RedisError| unavailable(&error);
            // Reads the keys first: one that is revoked in between is listed with its new state.
            let all: Vec<(String, String)> = connection
                .hgetall("sabir:client_keys")
                .await
                .map_err(failed)?;
            let revoked: Vec<(String, u64)> = connection
                .hgetall("sabir:revoked_keys")
                .await
                .map_err(failed)?;
            let mut keys = Vec::with_capacity(all.len());
            for (id, json) in all {
                let revocation = revoked.iter().find(|(key, _)| *key == id);
                keys.push(read_key(&json, revocation.map(|(_, at)| *at))?);
            }
            keys.sort_by(|one: &ClientKey, other| {
                (&one.name, one.created_ms).cmp(&(&other.name, other.created_ms))
            });
            Ok(keys)
        })
    }

    fn find_key<'a>(
        &'a self,
        hash: &'a KeyHash,
    ) -> StoreFuture<'a, Result<Option<ClientKey>, StoreError>> {
        Box::pin(async move {
            let json: Option<String> = self
                .run_repeatable(&self.scripts.find_key, &[&hash.to_hex()])
                .await?;
            json.map(|json| read_key(&json, None)).transpose()
        })
    }

    fn revoke_key<'a>(
        &'a self,
        key: &'a str,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<ClientKey, StoreError>> {
        Box::pin(async move {
            let json: Option<String> = self
                .run(&self.scripts.revoke_key, &[key, &now_ms.to_string()])
                .await?;
            let json = json.ok_or_else(|| StoreError::UnknownKey(key.to_owned()))?;
            read_key(&json, Some(now_ms))
        })
    }

    fn reserve<'a>(
        &'a self,
        reservation: &'a Reservation,
    ) -> StoreFuture<'a, Result<(), ReserveError>> {
        Box::pin(async move {
            let mut hasher = DefaultHasher::new();
            reservation.key.hash(&mut hasher);
            let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or(0);
            let _turn = match self.turns.get(turn) {
                Some(lock) => Some(lock.lock().await),
                None => None,
            };
            for attempt in 0..MAX_ATTEMPTS {
                if self.try_reserve(reservation).await? {
                    return Ok(());
                }
                if attempt >= EAGER_ATTEMPTS {
                    // Different pauses, so that two gateways do not meet again and again.
                    sleep(Duration::from_millis(
                        hasher.finish() % 5 + u64::from(attempt % 7),
                    ))
                    .await;
                    reservation.lease.hash(&mut hasher);
                }
            }
            let busy = format!("{MAX_ATTEMPTS} attempts met reservations of other gateways");
            Err(StoreError::Unavailable(busy).into())
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a str,
        used: Spending,
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let arguments = [
                lease,
                &*used.tokens.min(MAX_NUMBER).to_string(),
                &*used.nano_usd.min(MAX_NUMBER).to_string(),
                &*minute_start(now_ms).to_string(),
                &*day_start(now_ms).to_string(),
                &*MINUTE_LIFE_MS.to_string(),
            ];
            // 0 means that the lease was already settled, for example if only a reply was lost, or
            // is forgotten by now.
            self.run_repeatable::<i64>(&self.scripts.settle, &arguments)
                .await
                .map(drop)
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [String],
        now_ms: u64,
    ) -> StoreFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let expires = lease_expiry(now_ms);
            let mut arguments = vec![&*expires];
            arguments.extend(leases.iter().map(String::as_str));
            self.run_repeatable::<i64>(&self.scripts.renew, &arguments)
                .await
                .map(drop)
        })
    }

    fn daily_usage<'a>(
        &'a self,
        key: &'a str,
        days: u32,
    ) -> StoreFuture<'a, Result<Vec<DailyUsage>, StoreError>> {
        Box::pin(async move {
            let failed = |error: RedisError| unavailable(&error);
            let mut connection = self.connection.clone();
            let Some(last) = isize::try_from(days).unwrap_or(isize::MAX).checked_sub(1) else {
                return Ok(Vec::new());
            };
            if last < 0 {
                return Ok(Vec::new());
            }
            let starts: Vec<u64> = connection
                .zrevrange(format!("sabir:days:{key}"), 0, last)
                .await
                .map_err(failed)?;
            let mut all = Vec::new();
            for day_ms in starts {
                let fields: UsageFields = connection
                    .hgetall(format!("sabir:usage:{key}:day:{day_ms}"))
                    .await
                    .map_err(failed)?;
                let usage = read_usage(fields)?.into_iter();
                all.extend(usage.map(|usage| DailyUsage { day_ms, usage }));
            }
            Ok(all)
        })
    }
}
