//! The command line of rules, modes and the sandbox.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sabir_session::{NetworkChoice, RuleSpec};

use super::ReportFormat;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a command line as if a model had requested it in this folder, and explain the verdict part by part. Nothing is run; the
    /// exit code is 0 for every verdict.
    Explain(PolicyExplainArguments),
    /// Check the calls of a task again, in its folder as it is now, and show which of them other
    /// rules would have asked about or denied.
    Simulate(SimulateArguments),
}

/// Rules, besides those of the configuration.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Rules")]
pub(crate) struct RuleFlags {
    /// Allow these actions without asking, besides reading: `reads`, `edits`, `commands`, `all`, `network`, `registries`, `none`,
    /// `command=LINE` for one exact command line, `kind=NAME` for a kind of command as `policy explain` proposes it, `host=NAME`, or
    /// `mcp=SERVER/TOOL`. May be given several times.
    #[arg(long, value_name = "POLICY")]
    pub(crate) approve: Vec<String>,
    /// Allow calls that match this pattern: `cargo test **`. `*` is one word, `**` at the end any
    /// number; `kind=NAME`, `path=GLOB`, `host=NAME` and `mcp=SERVER/TOOL` too. May be given
    /// several times, as may the others.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) allow: Vec<String>,
    /// Ask about calls that match this pattern, even if they are allowed elsewhere.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) ask: Vec<String>,
    /// Deny calls that match this pattern, even if they are allowed elsewhere.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) deny: Vec<String>,
}

impl RuleFlags {
    /// Returns the rules of a session with these flags.
    pub(crate) fn rule_spec(&self) -> RuleSpec {
        RuleSpec {
            approve: self.approve.clone(),
            allow: self.allow.clone(),
            ask: self.ask.clone(),
            deny: self.deny.clone(),
        }
    }
}

/// Rules, with the options that determine the others.
#[derive(Debug, Args)]
pub(crate) struct RuleOptions {
    #[command(flatten)]
    pub(crate) rules: RuleFlags,
    /// The mode, as for a task.
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ModesArguments {
    /// A folder whose own modes are listed too.
    #[arg(short = 'C', long)]
    pub(crate) folder: Option<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArguments {
    /// Review, trust or revoke the hooks in this folder, instead of the programs that git would
    /// run.
    #[arg(long)]
    pub(crate) hooks: bool,
    /// Trust it without being asked.
    #[arg(long)]
    pub(crate) yes: bool,
    /// List the trusted repositories.
    #[arg(long, conflicts_with_all = ["yes", "revoke", "folder", "hooks"])]
    pub(crate) list: bool,
    /// Revoke the trust.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// A folder of the repository; by default this one.
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExplainArguments {
    #[command(flatten)]
    pub(crate) rules: RuleOptions,
    /// The shell that would get the line: `bash`, `sh` or `zsh`. By default `SABIR_SHELL` decides, then the shell of tasks.
    #[arg(long)]
    pub(crate) shell: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The command line as one argument, or its words. Options of `sabir` go in front.
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArguments {
    #[command(flatten)]
    pub(crate) rules: RuleOptions,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, the beginning of it, or the file of its journal.
    pub(crate) task: String,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArguments {
    /// The level: `1`, `2`, `best` for the highest that this machine supports, or `off`.
    #[arg(long, default_value = "best")]
    pub(crate) level: String,
    /// Allow the network: TCP and UDP, but not the Unix sockets of other programs; or only package registries: `--network
    /// registries`.
    #[arg(long, value_name = "registries", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) network: Option<NetworkChoice>,
    /// Another folder that may be written; it must exist. May be given several times.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Vec<PathBuf>,
    /// The folder to work in.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    /// Run nothing, and print the sandbox as a profile for another system, where it has never been tested.
    #[arg(long, value_enum)]
    pub(crate) profile: Option<SandboxProfile>,
    /// The command: one word is a line for the shell, several are a program and its arguments.
    #[arg(required_unless_present = "profile", last = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SecurityArguments {
    /// `1`, `2`, or `best` for the highest that this machine supports; by default the level in the configuration.
    #[arg(long)]
    pub(crate) level: Option<String>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// The format of another system's sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxProfile {
    /// A profile for `sandbox-exec` of macOS.
    Seatbelt,
}
