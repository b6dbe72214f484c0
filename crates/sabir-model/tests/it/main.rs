//! Tests models over real HTTP, against a provider that misbehaves, and their recordings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failing test may panic"
)]

mod cassettes;
mod faults;
mod http;
mod local;
