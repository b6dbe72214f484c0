//! The integration tests of `sabir-call`, in one binary.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that fails by panicking is doing its work"
)]

#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod chunks;
mod contract;
mod define;
mod elements;
mod free;
mod last_close;
mod missing_tags;
mod notation;
mod prefixes;
mod prompt;
mod reasoning;
mod roundtrip;
mod specs;
mod tags;
mod true_calls;
mod unknown_notations;
