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

mod again;
mod any_input;
mod approval;
mod completion;
mod context;
mod costs;
mod cycles;
mod laws;
mod live_tools;
mod machine;
mod modes;
mod observers;
mod order;
mod panics;
mod shown;
mod story;
mod subtasks;
mod todos;
mod words;
