//! Decides how many cases are tried by tests that could try any number.
//!
//! Test crates include this file by its path, since some of them are below this crate.

#![allow(dead_code, reason = "not every test crate needs both")]

/// Returns the number of cases of a property test: `count`, times `SABIR_CASES` if that is set, as `.ci/slow-tests` does.
pub(crate) fn case_count(count: u32) -> u32 {
    count * case_factor()
}

/// Returns the positions below `end` that a test of every position tries: every `step`-th from `first` on, and all with `SABIR_CASES`.
pub(crate) fn sampled_positions(
    first: usize,
    end: usize,
    step: usize,
) -> impl Iterator<Item = usize> {
    let is_sample = case_factor() == 1;
    let step = if is_sample { step } else { 1 };
    (first % step..end).step_by(step)
}

fn case_factor() -> u32 {
    std::env::var("SABIR_CASES")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1)
}
