//! The integration tests of the binary, in one binary: real processes, real HTTP, real files.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that fails by panicking is doing its work, and a long one prints its figures"
)]

mod again;
mod approval;
mod attacks;
mod bad_input;
mod completion;
mod config_cases;
mod context;
mod cuts;
mod dialects;
mod docs;
mod doctor;
mod edit;
mod edit_tools;
mod ends;
mod events;
mod explain;
mod exports;
mod family_kills;
mod faults;
mod gateway;
mod gateway_examples;
mod gateway_ways;
mod headless;
mod imports;
mod interactive;
mod jobs;
mod journals;
mod kills;
mod limits;
mod lint;
mod models;
mod modes;
mod parse;
mod pictures;
mod policy;
mod recordings;
mod repairs;
mod sandboxes;
mod secrets;
mod subtasks;
mod switching;
mod telemetry;
mod tools;
mod tour;
mod trust;
mod undo;
mod ways;
mod wires;
mod world;
