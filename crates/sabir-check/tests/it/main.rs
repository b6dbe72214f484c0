//! Integration tests of sabir-check, one binary: each binary has to be linked.

#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod checks;
mod feedback;
mod lint;
mod missing_marks;
mod odd;
mod old_engines;
mod reader;
