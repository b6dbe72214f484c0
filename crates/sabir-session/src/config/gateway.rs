//! Settings of `sabir gateway`: the table `[gateway]` in the configuration. See `docs/gateway.md`.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use sabir_gateway::{GatewayLimits, LogFormat, RepairMode};
use sabir_model::Secret;
use serde::{Deserialize, Deserializer};

use crate::providers::MAX_SECONDS;

/// The table `[gateway]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// The address to listen on, as `HOST:PORT`.
    pub listen: Option<String>,
    /// The token that clients must send.
    pub token: Option<Secret>,
    /// The environment variable that holds the token.
    pub token_env: Option<String>,
    /// Further host names under which clients may address the gateway.
    pub hosts: Vec<String>,
    /// The origins of web pages whose requests are accepted.
    pub origins: Vec<String>,
    /// The form of the request log.
    pub log: Option<LogFormat>,
    /// Prints on standard error, while it happens, how calls are taught, understood and repaired.
    pub explain: Option<bool>,
    /// The file with the certificate for TLS, in PEM.
    pub tls_cert: Option<PathBuf>,
    /// The file with its key, in PEM.
    pub tls_key: Option<PathBuf>,
    /// A Unix socket to listen on, beside the address.
    pub socket: Option<PathBuf>,
    /// The store of client keys: a file, or the address of a database.
    pub keys: Option<Secret>,
    /// The environment variable that holds the address of the store.
    pub keys_env: Option<String>,
    /// The limits, which are read by [`gateway_limits`](Self::gateway_limits).
    limits: GatewayLimitConfig,
    /// The models, by the name that clients ask for.
    pub models: BTreeMap<String, GatewayModelConfig>,
}

/// The table `[gateway.models.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayModelConfig {
    /// The model that serves it: `PROVIDER/NAME`, or an address, followed by `#NAME` if the
    /// server's name of the model differs. `None` if there are `upstreams`.
    pub to: Option<String>,
    /// Several servers of the model, in place of `to`.
    #[serde(default)]
    pub upstreams: Vec<GatewayUpstreamConfig>,
    /// The order in which the upstreams are chosen.
    pub balance: Option<UpstreamSelection>,
    /// The silence in milliseconds after which a second upstream is asked too.
    pub hedge_ms: Option<u64>,
    /// The path at which the health of the upstreams is checked.
    pub health: Option<String>,
    /// The time between two checks, in seconds.
    pub health_seconds: Option<u64>,
    /// The number of failures in a row after which an upstream is left out.
    pub max_failures: Option<u32>,
    /// The time in seconds for which it is left out at first.
    pub eject_seconds: Option<u64>,
    /// The API that the server speaks, where `to` is an address; Chat Completions by default.
    pub wire: Option<String>,
    /// The environment variable that holds the key of the server.
    pub key_env: Option<String>,
    /// The protocol for tool calls: `native` or a dialect; by default the catalogue decides.
    pub protocol: Option<String>,
    /// The handling of wrong calls.
    #[serde(default, alias = "mend")]
    pub faulty_calls: RepairSetting,
    /// The number of times that a request is sent again after it failed before its response began.
    pub retries: Option<u32>,
    /// A JSON object with members of the body for requests that do not have them, in the form of the
    /// model's API.
    pub defaults: Option<String>,
    /// A JSON object with members of the body that replace those of a request.
    pub overrides: Option<String>,
    /// Further names of the model; `*` matches every name that no other model has.
    #[serde(default)]
    pub aliases: Vec<String>,
}

/// The table `[[gateway.models.NAME.upstreams]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayUpstreamConfig {
    /// The model: `PROVIDER/NAME`, or an address, as for a model with one server.
    pub to: String,
    /// The name in metrics and logs.
    pub name: Option<String>,
    /// The share of the requests, relative to the other upstreams.
    pub weight: Option<u32>,
    /// The API that the server speaks, where `to` is an address.
    pub wire: Option<String>,
    /// The environment variable that holds the key of the server.
    pub key_env: Option<String>,
}

/// The order in which upstreams are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamSelection {
    /// Requests with the same beginning go to the same upstream.
    #[default]
    Prefix,
    /// The upstream with the fewest outstanding requests.
    Least,
    /// The first available one.
    Order,
}

/// The handling of wrong calls, written as `pass`, `repair` or `retry N`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairSetting(pub RepairMode);

/// The table `[gateway.limits]`. Sizes are in MiB, times in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GatewayLimitConfig {
    /// The largest request body.
    body_mib: Option<u32>,
    /// The most open connections.
    connections: Option<u32>,
    /// The most responses that are being sent at the same time.
    answers: Option<u32>,
    /// The longest time for the head of a request, and for a new connection to send the first byte
    /// of one.
    head_seconds: Option<u64>,
    /// The longest time for the body of a request; each 16 KiB of it adds a second.
    upload_seconds: Option<u64>,
    /// The longest time that a connection may be open without a request.
    idle_seconds: Option<u64>,
    /// The time that a WebSocket may be open without an answer.
    websocket_idle_seconds: Option<u64>,
    /// The longest time that a client may read nothing of its response.
    stalled_seconds: Option<u64>,
    /// The longest time that the end of the gateway waits for responses.
    drain_seconds: Option<u64>,
    /// The interval of keep-alives in a silent stream.
    ping_seconds: Option<u64>,
    /// The memory for answers to which later requests may refer.
    store_mib: Option<u32>,
}

/// Settings of the gateway that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayConfigError {
    /// The token has two sources.
    #[error("[gateway]: give one of token and token_env")]
    TwoTokens,
    /// TLS needs both files.
    #[error("[gateway]: TLS needs both `tls_cert` and `tls_key`")]
    HalfTls {
        /// The key that is set.
        given: &'static str,
    },
    /// The store of keys has two sources.
    #[error("[gateway]: give one of keys and keys_env")]
    TwoStores,
    /// The token is empty, which would let every client in.
    #[error("[gateway]: `token` is empty; leave it out, and one is generated at each start")]
    EmptyToken,
    /// More than one model would serve the names that no other model has.
    #[error("[gateway.models]: only one model can have the alias `*`")]
    TwoCatchAlls,
    /// A model has no server, or two descriptions of it.
    #[error("[gateway.models.{0}]: give one of `to` and `upstreams`")]
    NoServer(String),
    /// Two upstreams of a model would be the same in metrics and logs.
    #[error(
        "[gateway.models.{model}]: two upstreams are named `{label}`; give them different `name`s"
    )]
    SameUpstream {
        /// The model.
        model: String,
        /// The name of both.
        label: String,
        /// The position of the second one in the list, from 0.
        index: usize,
    },
    /// A number is 0 and must be at least 1.
    #[error("[gateway.{}]: `{key}` must be at least 1", .table.join("."))]
    Zero {
        /// The keys that lead to the table, below `gateway`.
        table: Vec<String>,
        /// The position in the list, from 0, if the table is an item of one.
        index: Option<usize>,
        /// The key.
        key: &'static str,
    },
    /// A host with a scheme or a path, which no request names.
    #[error(
        "[gateway]: `hosts` has `{0}`; write the name alone, as in `gateway.example`, without a scheme, a port and a path"
    )]
    Host(String),
    /// An origin that no browser sends.
    #[error(
        "[gateway]: `origins` has `{0}`; write it as browsers do, as in `https://app.example`, with a scheme and without a path"
    )]
    Origin(String),
    /// Two models have the same name or alias.
    #[error("[gateway.models]: `{0}` is the name of two models")]
    SameName(String),
}

impl GatewayConfigError {
    /// Returns the path of keys that leads to the mistake. An item of a list is named by its index.
    pub(super) fn keys(&self) -> Vec<String> {
        let index: String;
        let below_gateway: Vec<&str> = match self {
            Self::TwoTokens | Self::EmptyToken => vec!["token"],
            Self::HalfTls { given } => vec![given],
            Self::TwoStores => vec!["keys"],
            Self::TwoCatchAlls => vec!["models"],
            Self::NoServer(name) | Self::SameName(name) => vec!["models", name],
            Self::SameUpstream {
                model, index: at, ..
            } => {
                index = at.to_string();
                vec!["models", model, "upstreams", &index]
            }
            Self::Zero {
                table,
                index: at,
                key,
            } => {
                index = at.map(|at| at.to_string()).unwrap_or_default();
                let table = table.iter().map(String::as_str);
                let item = at.is_some().then_some(index.as_str());
                table.chain(item).chain([*key]).collect()
            }
            Self::Host(_) => vec!["hosts"],
            Self::Origin(_) => vec!["origins"],
        };
        let path = std::iter::once("gateway").chain(below_gateway);
        path.map(str::to_owned).collect()
    }
}

/// Refuses a 0, which would stop everything or be treated as 1. `table` leads to the key's table, or to the list whose item at `index`
/// is that table.
fn check_positive(
    table: &[&str],
    index: Option<usize>,
    key: &'static str,
    value: Option<impl Into<u64>>,
) -> Result<(), GatewayConfigError> {
    match value.map(Into::into) {
        Some(0) => Err(GatewayConfigError::Zero {
            table: table.iter().map(|&key| key.to_owned()).collect(),
            index,
            key,
        }),
        _ => Ok(()),
    }
}

impl GatewayModelConfig {
    /// Returns the servers of the model: its upstreams, or the only one.
    pub fn servers(&self) -> Vec<GatewayUpstreamConfig> {
        let only = self.to.iter().map(|to| GatewayUpstreamConfig {
            to: to.clone(),
            name: None,
            weight: None,
            wire: self.wire.clone(),
            key_env: self.key_env.clone(),
        });
        only.chain(self.upstreams.iter().cloned()).collect()
    }

    /// Checks that the model has servers, that their names differ, and that no number is 0.
    fn check_upstreams(&self, name: &str) -> Result<(), GatewayConfigError> {
        let table = ["models", name];
        check_positive(&table, None, "hedge_ms", self.hedge_ms)?;
        check_positive(&table, None, "max_failures", self.max_failures)?;
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let table = ["models", name, "upstreams"];
            check_positive(&table, Some(index), "weight", upstream.weight)?;
        }
        if self.to.is_some() != self.upstreams.is_empty() {
            return Err(GatewayConfigError::NoServer(name.to_owned()));
        }
        let mut labels = HashSet::new();
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let label = upstream.label();
            if !labels.insert(label.clone()) {
                return Err(GatewayConfigError::SameUpstream {
                    model: name.to_owned(),
                    label,
                    index,
                });
            }
        }
        Ok(())
    }
}

impl GatewayUpstreamConfig {
    /// Returns the name in metrics and logs: the given one, or the host of an address without a
    /// password, or the name of a provider and its model.
    pub fn label(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        match self.to.split_once("://") {
            Some((_, rest)) => {
                let authority = rest.split(['/', '#', '?']).next().unwrap_or_default();
                authority.rsplit('@').next().unwrap_or_default().to_owned()
            }
            None => self.to.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for RepairSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

impl GatewayConfig {
    /// Reports whether the file itself contains a token, or a password of the store of keys.
    pub fn has_token(&self) -> bool {
        let has_password = |address: &Secret| {
            address
                .expose()
                .split_once("://")
                .and_then(|(_, rest)| rest.split_once('@'))
                .is_some_and(|(user, _)| user.contains(':'))
        };
        self.token.is_some() || self.keys.as_ref().is_some_and(has_password)
    }

    /// Checks for settings that contradict each other.
    ///
    /// # Errors
    /// When the token has two sources or is empty, or two models have the same name.
    pub fn check_settings(&self) -> Result<(), GatewayConfigError> {
        if self.token.is_some() && self.token_env.is_some() {
            return Err(GatewayConfigError::TwoTokens);
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let given = match self.tls_cert {
                Some(_) => "tls_cert",
                None => "tls_key",
            };
            return Err(GatewayConfigError::HalfTls { given });
        }
        if self.keys.is_some() && self.keys_env.is_some() {
            return Err(GatewayConfigError::TwoStores);
        }
        if self.token.as_ref().is_some_and(Secret::is_empty) {
            return Err(GatewayConfigError::EmptyToken);
        }
        let limits = [
            ("body_mib", self.limits.body_mib),
            ("connections", self.limits.connections),
            ("answers", self.limits.answers),
        ];
        for (key, value) in limits {
            check_positive(&["limits"], None, key, value)?;
        }
        if let Some(host) = self.hosts.iter().find(|host| host.contains('/')) {
            return Err(GatewayConfigError::Host(host.clone()));
        }
        let is_origin = |origin: &str| {
            origin
                .split_once("://")
                .is_some_and(|(_, host)| !host.is_empty() && !host.contains('/'))
        };
        if let Some(origin) = self.origins.iter().find(|origin| !is_origin(origin)) {
            return Err(GatewayConfigError::Origin(origin.clone()));
        }
        // With two of them, the choice would depend on their order in the file.
        let others = self
            .models
            .values()
            .flat_map(|model| &model.aliases)
            .filter(|alias| *alias == "*")
            .count();
        if others > 1 {
            return Err(GatewayConfigError::TwoCatchAlls);
        }
        for (name, model) in &self.models {
            model.check_upstreams(name)?;
        }
        let mut names: Vec<_> = self
            .models
            .keys()
            .chain(self.models.values().flat_map(|it| &it.aliases))
            .collect();
        names.sort_unstable();
        // The names are sorted, so equal ones are neighbours.
        match names.windows(2).find(|pair| pair.first() == pair.last()) {
            Some([name, ..]) => Err(GatewayConfigError::SameName(String::clone(name))),
            _ => Ok(()),
        }
    }

    /// Returns the limits of the gateway: the configured ones within a sane range, else the defaults.
    pub fn gateway_limits(&self) -> GatewayLimits {
        let keys = &self.limits;
        let usual = GatewayLimits::default();
        // `check_settings` has refused a limit of 0, which would refuse every client.
        let count =
            |key: Option<u32>, usual: usize| key.map_or(usual, |count| count.max(1) as usize);
        let time = |key: Option<u64>, usual: Duration| {
            key.map_or(usual, |seconds| {
                Duration::from_secs(seconds.clamp(1, MAX_SECONDS))
            })
        };
        GatewayLimits {
            // At most 1 GiB: the whole body is in memory while it is decoded.
            body: keys
                .body_mib
                .map_or(usual.body, |mib| (mib.clamp(1, 1024) as usize) << 20),
            connections: count(keys.connections, usual.connections),
            answers: count(keys.answers, usual.answers),
            head: time(keys.head_seconds, usual.head),
            upload: time(keys.upload_seconds, usual.upload),
            idle: time(keys.idle_seconds, usual.idle),
            // Without the key there are no WebSockets.
            websocket_idle: Duration::from_secs(
                keys.websocket_idle_seconds.unwrap_or(0).min(MAX_SECONDS),
            ),
            stalled: time(keys.stalled_seconds, usual.stalled),
            drain: time(keys.drain_seconds, usual.drain),
            ping: time(keys.ping_seconds, usual.ping),
            store: keys
                .store_mib
                .map_or(usual.store, |mib| (mib.min(16 << 10) as usize) << 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_sockets_are_off_until_their_limit_is_set() {
        let idle = |text: &str| {
            let keys: GatewayConfig = toml::from_str(text).unwrap();
            keys.gateway_limits().websocket_idle
        };
        assert_eq!(idle(""), Duration::ZERO);
        assert_eq!(
            idle("[limits]\nwebsocket_idle_seconds = 600"),
            Duration::from_secs(600)
        );
    }

    #[test]
    fn the_earlier_name_of_the_repair_mode_is_read() {
        let text = "[models.m]\nto = \"a/b\"\nmend = \"heal\"";
        let keys: GatewayConfig = toml::from_str(text).unwrap();
        assert_eq!(keys.models["m"].faulty_calls.0, RepairMode::Repair);
    }

    #[test]
    fn values_that_would_never_work_are_refused() {
        let check = |text: &str| {
            let keys: GatewayConfig = toml::from_str(text).unwrap();
            keys.check_settings().map_err(|error| error.to_string())
        };
        let model = |rest: &str| format!("[models.m]\n{rest}");
        for (text, part) in [
            (
                "[limits]\nanswers = 0".to_owned(),
                "`answers` must be at least 1",
            ),
            ("[limits]\nconnections = 0".to_owned(), "`connections`"),
            ("[limits]\nbody_mib = 0".to_owned(), "[gateway.limits]"),
            (model("to = \"a/b\"\nhedge_ms = 0"), "`hedge_ms`"),
            (
                model("to = \"a/b\"\nmax_failures = 0"),
                "[gateway.models.m]",
            ),
            (
                model("[[models.m.upstreams]]\nto = \"a/b\"\nweight = 0"),
                "`weight`",
            ),
            ("hosts = [\"http://x\"]".to_owned(), "without a scheme"),
            (
                "origins = [\"app.example\"]".to_owned(),
                "https://app.example",
            ),
            (
                "origins = [\"https://app.example/\"]".to_owned(),
                "without a path",
            ),
        ] {
            let error = check(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let right = "hosts = [\"x.example\"]\norigins = [\"http://127.0.0.1:3000\"]\n[limits]\nstore_mib = 0";
        assert_eq!(check(right), Ok(()));
    }
}
