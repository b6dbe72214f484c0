//! Defines the settings of a gateway: access and limits.

use std::time::{Duration, SystemTime};

use sabir_call::dialect::DialectSet;
use sabir_model::Secret;

/// The settings of a gateway. They apply to connections and requests that begin after they were
/// set.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// The token that a client must send, as a bearer token or in the wire's own key header. `None`
    /// allows every client, and is accepted for an address on this machine only.
    pub token: Option<Secret>,
    /// The names, besides those of this machine, under which clients may address the gateway:
    /// `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
    /// The origins of web pages that may use the gateway, such as `https://app.example`. None by
    /// default.
    pub origins: Vec<String>,
    /// The limits.
    pub limits: GatewayLimits,
    /// The dialects that answers are read in.
    pub dialects: DialectSet,
    /// A number that is unique to this process, for the ids of responses.
    pub seed: u64,
    /// The clock, for the creation times in responses.
    pub clock: fn() -> SystemTime,
}

/// The limits of a gateway.
///
/// Every limit has a default. They bound what one client can use up: memory by `body` and
/// `answers`, connections by the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayLimits {
    /// The largest body of a request, in bytes.
    ///
    /// 32 MiB by default, since histories contain images.
    pub body: usize,
    /// The number of open connections; more wait to be accepted.
    pub connections: usize,
    /// The number of concurrent responses; more are refused with 503.
    pub answers: usize,
    /// The time from the first byte of the request's headers to their last, and from the opening of a
    /// connection to the first byte.
    pub head: Duration,
    /// The time for a request's body, plus a second for each 16 KiB of it.
    pub upload: Duration,
    /// The time that a connection may be idle between two requests.
    pub idle: Duration,
    /// The time that a WebSocket may be open without an answer; zero if there are none. It is longer, because a client that opens another
    /// one must send its history again.
    pub websocket_idle: Duration,
    /// The time that a client may read nothing while data waits for it.
    pub stalled: Duration,
    /// The time that responses may continue after a shutdown was requested.
    pub drain: Duration,
    /// The silence in a stream after which a keep-alive is sent, if the wire has one.
    pub ping: Duration,
    /// The memory for answers that clients may refer to by id, in bytes.
    pub store: usize,
}

impl GatewayLimits {
    /// Returns true if clients may use WebSockets. Their answers are kept in the store.
    pub(crate) fn has_web_sockets(&self) -> bool {
        self.store > 0 && !self.websocket_idle.is_zero()
    }
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
            websocket_idle: Duration::from_secs(600),
            stalled: Duration::from_secs(120),
            drain: Duration::from_secs(8),
            ping: Duration::from_secs(15),
            store: 64 << 20,
        }
    }
}
