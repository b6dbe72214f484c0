//! Serves the providers' APIs over HTTP and gives any model native tool calls.
//!
//! A request on one wire is forwarded on another, to a model that calls natively, that can call
//! only in text, or whose calls leak into its text. The client always sees native calls, streamed.
//!
//! The main decision: **a response is produced while the client reads it.** No task runs beside a
//! response: its body *is* the request to the model (`response_body.rs`). If the client reads
//! slowly, less is read from the model; if it disconnects, the body is dropped, and the request to
//! the model with it. There is no queue that could grow and no task that could be left behind.
//!
//! ```text
//! bytes ─ connection ─ access_control ─ request_handler ─ exchange ─ RouteTable ─ Model ─ events ─ CallRepairer
//!                                                                                                      │
//!                                                     bytes ─ response_body ─ ResponseEncoder ─────────┘
//! ```
//!
//! A WebSocket of the Responses API enters at `request_handler` too, once for each of its requests
//! (`web_socket.rs`).
//!
//! The gateway keeps nothing between requests but the answers that clients refer to by id
//! (`response_store.rs`), so any number of instances can run behind a load balancer. This crate does not read the environment or files, print, or read the wall clock: the
//! caller passes a [`RouteTable`], [`GatewaySettings`] and a [`GatewayObserver`].

mod access_control;
mod call_repair;
mod client_settings;
mod client_stream;
mod client_wires;
mod connection;
mod delivery;
#[cfg(test)]
mod empty_model;
mod error;
mod exchange;
mod exchange_log;
mod exchange_meter;
mod exchange_record;
mod form_data;
mod forwarded_answer;
mod forwarded_output;
mod framing;
mod gateway_event;
mod interruptible_model;
mod key_ledger;
mod key_store;
mod local_endpoints;
mod metrics;
mod passthrough;
mod request_body;
mod request_handler;
mod request_log;
mod response_body;
mod response_store;
mod route;
mod serve;
mod settings;
mod streamed_response;
mod upstream_failure;
mod upstream_group;
mod upstream_state;
mod web_socket;

pub use call_repair::{RepairMode, UnknownRepairMode};
pub use client_settings::{ClientSettingsInput, render_client_settings};
pub use client_stream::{TlsError, TlsIdentity};
pub use exchange_record::{ExchangeRecord, ExchangeRecorder, RecordedCall};
pub use gateway_event::{ExchangeSummary, GatewayEvent, GatewayObserver, NullObserver};
pub use key_ledger::SettlementCounts;
pub use key_store::{
    ClientKey, DailyUsage, KEY_PREFIX, KeyHash, KeyState, KeyStore, LEASE_TIME, LimitReached,
    ModelLimit, ModelUsage, OpenLeases, Reservation, ReserveError, Spending, StoreError,
    StoreFuture, check_limits, day_start, format_dollars, minute_start,
};
pub use request_log::{LogFormat, LogLine, LogOptions, LogWriter, RequestLog, SharedLogOptions};
pub use route::{ModelLimits, ModelRoute, ProviderWire, RouteTable, UpstreamPrices};
pub use serve::{Gateway, Listeners, ServeError};
pub use settings::{GatewayLimits, GatewaySettings};
pub use upstream_group::{
    BalancePolicy, CircuitRules, GroupRules, NoUpstream, ProbeFuture, Upstream, UpstreamGroup,
    UpstreamProbe,
};
