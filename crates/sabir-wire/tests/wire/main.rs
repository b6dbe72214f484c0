//! Both wires, both directions: the recordings, the merge rules, every split, every cut, and back again.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failing test may panic")]

mod answers;
mod corpus;
mod histories;
mod merged;
mod rules;
mod splits;
