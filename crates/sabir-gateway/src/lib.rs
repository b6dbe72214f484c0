//! Native calling for any model.
//!
//! A server that speaks the providers' APIs to clients: what comes in on one wire is asked on another, of a model that calls
//! natively, that knows calls only as words, or whose calls leak into its text. The client sees native calls, while they
//! stream.
//!
//! The main decision: **an answer is made while it is taken.** Nothing runs beside a response: its body *is* the request to
//! the model (`answer.rs`). When the client reads slowly, less is read from the model; when it leaves, the body is dropped
//! and the request to the model with it. There is no queue that could grow and no task that could stay.
//!
//! ```text
//! bytes ─ connection ─ guard ─ respond ─ exchange ─ Incoming ─ Route ─ Model ─ events ─ Mender ─ Encoder ─ bytes
//! ```
//!
//! The gateway keeps nothing from request to request, so that any number of it can stand behind a balancer. Nothing here
//! reads the environment or files, prints, or looks at the wall clock: the caller passes [`RouteTable`], [`GatewaySettings`] and a
//! [`GatewayObserver`].

mod access_control;
mod call_repair;
mod client_wires;
mod connection;
mod delivery;
mod error;
mod exchange;
mod exchange_log;
mod framing;
mod gateway_event;
mod interruptible_model;
mod local_endpoints;
mod metrics;
mod request_body;
mod request_handler;
mod response_body;
mod route;
mod serve;
mod settings;

pub use call_repair::RepairMode;
pub use gateway_event::{ExchangeSummary, GatewayEvent, GatewayObserver, NullObserver};
pub use route::{ModelRoute, ProviderWire, RouteTable};
pub use serve::{Gateway, ServeError};
pub use settings::{GatewayLimits, GatewaySettings};
