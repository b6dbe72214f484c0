//! Tests of all wires in both directions: recordings, rules, splits, cuts, and round trips.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::cloned_ref_to_slice_refs,
    reason = "a failing test may panic, and a uniform case reads better"
)]

mod answers;
mod asked;
mod bedrock;
#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod corpus;
mod custom;
mod cuts;
mod fields;
mod frames;
mod fronts;
mod gemini;
mod histories;
mod hosts;
mod merged;
mod noted;
mod ollama;
mod overflow;
mod pictures;
mod responses;
mod result_files;
mod rules;
mod same_wire;
mod splits;
mod surrogates;
mod translated;

/// Says that a machine lacks what a test needs, also where the output of tests is captured.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
