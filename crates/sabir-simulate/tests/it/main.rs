//! Tests the simulator: it finds no broken law, detects each sabotage, and is deterministic.

mod honest;
mod sabotaged;
