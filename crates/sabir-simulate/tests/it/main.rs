//! Tests the simulator: it finds no broken invariant, detects each sabotage, and is deterministic.

mod honest;
mod sabotaged;
