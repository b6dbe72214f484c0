//! Finds the files of a folder and its user for coding agents: rules, commands, skills, hooks and
//! agents, in the layouts of several programs.
//!
//! All of this is untrusted text: its size is limited, it is read through the workspace (links that
//! leave it, hidden files and files with the names of secrets are refused), and it approves
//! nothing.

pub(crate) mod folder_reader;
mod folder_report;
pub(crate) mod front_matter;
pub(crate) mod path_condition;

pub use folder_report::{FolderReport, ReportedServer, inspect_folder};
