//! Decides how many cases are tried by tests that could try any number.
//!
//! Test crates include this file by its path, since some of them are below this crate.

#![allow(dead_code, reason = "not every test crate needs both")]

/// Divides the counts where `SABIR_CASES` is not set, as in `cargo test --workspace`, for which people wait. `.ci/run` sets it.
const DEFAULT_DIVISOR: u32 = 3;

/// Returns the number of cases of a property test: `count` times `SABIR_CASES`, and a third of `count` where that is not set.
pub(crate) fn case_count(count: u32) -> u32 {
    match case_factor() {
        Some(factor) => count.saturating_mul(factor),
        None => count.div_ceil(DEFAULT_DIVISOR),
    }
}

/// Returns the positions below `end` that a test of every position tries: all with `SABIR_CASES`, and without it some, three times
/// `step` apart. `first` is one of them, if it is below `end`.
pub(crate) fn sampled_positions(
    first: usize,
    end: usize,
    step: usize,
) -> impl Iterator<Item = usize> {
    let step = match case_factor() {
        Some(_) => 1,
        None => step.saturating_mul(DEFAULT_DIVISOR as usize).max(1),
    };
    (first % step..end).step_by(step)
}

/// Returns the value of `SABIR_CASES`; `None` if it is not set, or is no number.
fn case_factor() -> Option<u32> {
    std::env::var("SABIR_CASES").ok()?.parse().ok()
}
