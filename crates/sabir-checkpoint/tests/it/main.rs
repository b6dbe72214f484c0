//! Tests checkpoints on a real file system, with processes that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]

mod checkpoints;
