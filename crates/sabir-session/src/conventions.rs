//! Finds what a folder and its user bring for coding agents: rules, commands, skills, hooks and agents, in the layouts of several programs.
//!
//! All of it is foreign text: it is bounded, it is read through the workspace (a link that leaves it, a hidden file and a file with the
//! name of a secret are refused), and it approves nothing.

pub(crate) mod folder_reader;
mod folder_report;
pub(crate) mod front_matter;
pub(crate) mod path_condition;

pub use folder_report::{FolderReport, ReportedServer, inspect_folder};
