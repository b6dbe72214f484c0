//! `[gateway]` in the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use sabir_gateway::{GatewayLimits, RepairMode};
use sabir_model::Secret;
use serde::{Deserialize, Deserializer};

use crate::providers::MAX_SECONDS;

/// How the gateway logs requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    /// A line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// Not at all.
    Off,
}

/// `[gateway]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayKeys {
    pub listen: Option<String>,
    pub token: Option<Secret>,
    pub token_env: Option<String>,
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    pub log: Option<LogForm>,
    pub explain: Option<bool>,
    limits: GatewayLimitKeys,
    /// The models, by the name that clients ask for.
    pub models: BTreeMap<String, GatewayModelKeys>,
}

/// `[gateway.models.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayModelKeys {
    /// `PROVIDER/NAME`, or an address, with `#NAME` behind it if the server's name is another one.
    pub to: String,
    pub wire: Option<String>,
    pub key_env: Option<String>,
    pub protocol: Option<String>,
    #[serde(default)]
    pub mend: MendKey,
    /// How often a request that failed before its answer is sent again.
    pub retries: Option<u32>,
    /// Further names; `*` for any other one.
    #[serde(default)]
    pub aliases: Vec<String>,
}

/// What is done about calls that are not right.
#[derive(Debug, Clone, Copy, Default)]
pub struct MendKey(pub RepairMode);

/// `[gateway.limits]`.
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
        String::deserialize(deserializer)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl GatewayKeys {
    /// Whether the file holds a token itself.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Finds what cannot be meant.
    pub fn check_keys(&self) -> Result<(), String> {
        if self.token.is_some() && self.token_env.is_some() {
            return Err("[gateway]: give one of token and token_env".to_owned());
        }
        if self.token.as_ref().is_some_and(Secret::is_empty) {
            return Err("[gateway]: `token` is empty; leave it out, and one is made at each start".to_owned());
        }
        let others = self.models.values().flat_map(|model| &model.aliases).filter(|alias| *alias == "*").count();
        if others > 1 {
            return Err("[gateway.models]: only one model can have the alias `*`".to_owned());
        }
        let mut names: Vec<_> = self.models.keys().chain(self.models.values().flat_map(|it| &it.aliases)).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair.first() == pair.last()) {
            Some([name, ..]) => Err(format!("[gateway.models]: `{name}` is the name of two models")),
            _ => Ok(()),
        }
    }

    /// The limits, where none is given the usual ones.
    pub fn gateway_limits(&self) -> GatewayLimits {
        let (keys, usual) = (&self.limits, GatewayLimits::default());
        let count = |key: Option<u32>, usual: usize| key.map_or(usual, |count| count.max(1) as usize);
        let time = |key: Option<u64>, usual: Duration| {
            key.map_or(usual, |seconds| Duration::from_secs(seconds.clamp(1, MAX_SECONDS)))
        };
        GatewayLimits {
            body: keys.body_mib.map_or(usual.body, |mib| (mib.clamp(1, 1024) as usize) << 20),
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
