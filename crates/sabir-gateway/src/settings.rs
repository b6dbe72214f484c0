//! What a gateway is told beside its models: who may ask, and how much.

use std::time::{Duration, SystemTime};

use sabir_call::dialect::DialectSet;
use sabir_model::Secret;

/// Settings of a gateway. They hold for connections and requests that begin after they were given.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// What a client must show: as a bearer token, or as the wire's own key header. `None`: anybody who reaches the address
    /// may ask; only for an address of this machine.
    pub token: Option<Secret>,
    /// Names, beside those of this machine, under which the gateway may be addressed: `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
    /// Origins whose pages may ask, such as `https://app.example`. None by default: a browser's page has no business here.
    pub origins: Vec<String>,
    /// How much.
    pub limits: GatewayLimits,
    /// The dialects in which models may be asked for calls, and may answer.
    pub dialects: DialectSet,
    /// A number that no other process has: ids of answers are made of it.
    pub seed: u64,
    /// The time, for the moment at which an answer was made.
    pub clock: fn() -> SystemTime,
}

/// How much a gateway takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayLimits {
    /// The largest body of a request, in bytes.
    pub body: usize,
    /// Open connections; more wait to be accepted.
    pub connections: usize,
    /// Answers being made at once; more are refused with 503.
    pub answers: usize,
    /// From the first byte of a request's head to its last, and from the opening of a connection to that first byte.
    pub head: Duration,
    /// For a request's body, and a second more for each 16 KiB of it.
    pub upload: Duration,
    /// How long a connection may be silent between two requests.
    pub idle: Duration,
    /// How long a client may take nothing of what waits for it.
    pub stalled: Duration,
    /// How long answers may go on after the gateway was told to end.
    pub drain: Duration,
    /// After so much silence in a stream a sign of life is sent, where the wire has one.
    pub ping: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            body: 32 << 20,
            connections: 4096,
            answers: 2048,
            head: Duration::from_secs(15),
            upload: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            stalled: Duration::from_secs(120),
            drain: Duration::from_secs(8),
            ping: Duration::from_secs(15),
        }
    }
}
