//! Attacks, run for real: the binary, a scripted model and folders that give themselves away.

mod builds;
mod commands;
mod echo;
mod folders;
mod hard_links;
mod held;
mod lazy;
mod machine;
mod margins;
mod masks;
mod pages;
mod places;
mod presentation;
mod pushes;
mod registries;
mod secrets;
mod targets;
mod terminal;
mod walls;
