//! Tests the gateway over real sockets, between raw clients and the scripted provider.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    reason = "a failing test may panic"
)]

mod bodies;
mod custom_tools;
mod ends;
mod files;
mod gemini_candidates;
mod kept_connections;
mod legacy_functions;
mod limits;
mod lists;
mod metering;
mod model_limits;
mod recorded;
mod repairs;
mod report;
mod same_wire;
mod security;
mod stored_responses;
mod surrogates;
mod test_gateway;
mod test_store;
mod tls;
mod upstream_errors;
mod web_socket_keys;
mod web_sockets;
