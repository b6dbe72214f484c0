//! Attacks, run for real: the binary, a scripted model and folders that give themselves away.

mod commands;
mod folders;
mod held;
mod lazy;
mod places;
mod terminal;
