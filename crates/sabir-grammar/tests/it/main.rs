//! Tests the grammars of all dialects against the parser, the checks and the renderer.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails by panicking is doing its work"
)]

#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod formats;
mod properties;
mod schemas;
mod tools;
