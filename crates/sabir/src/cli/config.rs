//! The command line of `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ReportFormat;

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
    /// The output format.
    #[arg(long, global = true, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report every mistake in the file with its line. The exit code is 2 if there is one.
    Check {
        /// The file, instead of yours or that of `--config`.
        file: Option<PathBuf>,
    },
    /// List the files from which a task in this folder reads its settings, in order.
    Path,
    /// Print a value and its origin: the file with the line, a variable, or the default.
    Get {
        /// A key with its tables, such as `subtasks.at_once`, or a table; by default all that are set.
        key: Option<String>,
    },
    /// Set a value. Comments are kept; an invalid value is refused.
    Set {
        /// Write your own file, even if `--config` names another.
        #[arg(long)]
        user: bool,
        /// A key with its tables, such as `subtasks.at_once`.
        key: String,
        /// The value; several make a list.
        #[arg(required = true, allow_negative_numbers = true)]
        values: Vec<String>,
    },
    /// Remove a key, so that its default applies.
    Unset {
        /// Change your own file, even if `--config` names another.
        #[arg(long)]
        user: bool,
        /// A key with its tables, or a table.
        key: String,
    },
}
