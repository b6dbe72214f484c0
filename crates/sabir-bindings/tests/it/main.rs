//! Integration tests of the interface that the bindings share.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails by panicking is doing its work"
)]

mod deltas;
mod functions;
mod streams;
