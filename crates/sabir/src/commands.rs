//! The subcommands, one file each.

pub(crate) mod check_task;
pub(crate) mod checkpoint_history;
pub(crate) mod context;
pub(crate) mod dialects;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod gateway;
pub(crate) mod help;
pub(crate) mod import;
pub(crate) mod journal;
pub(crate) mod lint;
pub(crate) mod models;
pub(crate) mod modes;
pub(crate) mod parse;
pub(crate) mod policy;
pub(crate) mod prompt;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod tasks;
pub(crate) mod tour;
pub(crate) mod trust;
pub(crate) mod undo;
pub(crate) mod wire;
