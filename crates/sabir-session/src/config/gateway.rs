//! Settings of `sabir gateway`: the table `[gateway]` in the configuration. See `docs/gateway.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use sabir_gateway::{GatewayLimits, RepairMode};
use sabir_model::Secret;
use serde::{Deserialize, Deserializer};

use crate::providers::MAX_SECONDS;

/// The form in which the gateway logs requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    /// Plain lines for people.
    #[default]
    Text,
    /// JSON lines, one object for each request.
    Json,
    /// No log.
    Off,
}

/// The table `[gateway]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayKeys {
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
    pub log: Option<LogForm>,
    /// Prints on standard error, while it happens, how calls are taught, understood and repaired.
    pub explain: Option<bool>,
    limits: GatewayLimitKeys,
    /// The models, by the name that clients ask for.
    pub models: BTreeMap<String, GatewayModelKeys>,
}

/// The table `[gateway.models.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayModelKeys {
    /// The model behind it: `PROVIDER/NAME`, or an address, followed by `#NAME` if the server's name of the model differs.
    pub to: String,
    /// The API that the server speaks, where `to` is an address; Chat Completions by default.
    pub wire: Option<String>,
    /// The environment variable that holds the key of the server.
    pub key_env: Option<String>,
    /// The protocol for tool calls: `native` or a dialect; by default the catalogue decides.
    pub protocol: Option<String>,
    /// The handling of wrong calls.
    #[serde(default)]
    pub mend: MendKey,
    /// The number of times that a request is sent again after it failed before its response began.
    pub retries: Option<u32>,
    /// Further names of the model; `*` stands for every name that no other model has.
    #[serde(default)]
    pub aliases: Vec<String>,
}

/// The handling of wrong calls, written as `pass`, `heal` or `retry N`.
#[derive(Debug, Clone, Copy, Default)]
pub struct MendKey(pub RepairMode);

/// The table `[gateway.limits]`. Sizes are in MiB, times in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GatewayLimitKeys {
    body_mib: Option<u32>,
    connections: Option<u32>,
    answers: Option<u32>,
    head_seconds: Option<u64>,
    upload_seconds: Option<u64>,
    idle_seconds: Option<u64>,
    stalled_seconds: Option<u64>,
    drain_seconds: Option<u64>,
    ping_seconds: Option<u64>,
}

impl<'de> Deserialize<'de> for MendKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

impl GatewayKeys {
    /// Reports whether the file itself contains a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks for settings that contradict each other.
    ///
    /// # Errors
    /// With a message for the user: two sources of the token, an empty token, or two models with the same name.
    pub fn check_keys(&self) -> Result<(), String> {
        if self.token.is_some() && self.token_env.is_some() {
            return Err("[gateway]: give one of token and token_env".to_owned());
        }
        if self.token.as_ref().is_some_and(Secret::is_empty) {
            return Err(
                "[gateway]: `token` is empty; leave it out, and one is made at each start"
                    .to_owned(),
            );
        }
        let others = self
            .models
            .values()
            .flat_map(|model| &model.aliases)
            .filter(|alias| *alias == "*")
            .count();
        if others > 1 {
            return Err("[gateway.models]: only one model can have the alias `*`".to_owned());
        }
        let mut names: Vec<_> = self
            .models
            .keys()
            .chain(self.models.values().flat_map(|it| &it.aliases))
            .collect();
        names.sort_unstable();
        // The names are sorted, so equal ones are neighbours.
        match names.windows(2).find(|pair| pair.first() == pair.last()) {
            Some([name, ..]) => Err(format!(
                "[gateway.models]: `{name}` is the name of two models"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the limits of the gateway: the configured ones within a sane range, else the defaults.
    pub fn gateway_limits(&self) -> GatewayLimits {
        let keys = &self.limits;
        let usual = GatewayLimits::default();
        let count =
            |key: Option<u32>, usual: usize| key.map_or(usual, |count| count.max(1) as usize);
        let time = |key: Option<u64>, usual: Duration| {
            key.map_or(usual, |seconds| {
                Duration::from_secs(seconds.clamp(1, MAX_SECONDS))
            })
        };
        GatewayLimits {
            body: keys
                .body_mib
                .map_or(usual.body, |mib| (mib.clamp(1, 1024) as usize) << 20),
            connections: count(keys.connections, usual.connections),
            answers: count(keys.answers, usual.answers),
            head: time(keys.head_seconds, usual.head),
            upload: time(keys.upload_seconds, usual.upload),
            idle: time(keys.idle_seconds, usual.idle),
            stalled: time(keys.stalled_seconds, usual.stalled),
            drain: time(keys.drain_seconds, usual.drain),
            ping: time(keys.ping_seconds, usual.ping),
        }
    }
}
