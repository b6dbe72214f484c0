//! Integration tests of the interface.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by panicking, also in its helpers"
)]

mod choices;
mod folder_commands;
mod pictures;
mod random_inputs;
mod support;
mod transcripts;
