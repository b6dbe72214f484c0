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
mod call_order;
#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod completion;
mod context;
mod costs;
mod cycles;
mod images;
mod invariants;
mod live_tools;
mod machine;
mod modes;
mod observers;
mod panics;
mod refreshing;
mod repeated_reads;
mod started_tasks;
mod subtasks;
mod task_runs;
mod todos;
mod user_messages;
