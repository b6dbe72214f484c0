//! The integration tests of `sabir-agent`, in one binary.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that fails by panicking is doing its work"
)]

mod any_input;
mod approval;
mod completion;
mod context;
mod costs;
mod cycles;
mod laws;
mod machine;
mod order;
mod panics;
mod policy;
mod story;
mod todos;
mod words;
