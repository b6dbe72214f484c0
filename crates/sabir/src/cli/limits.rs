//! The command line of what commands may do: rules and the sandbox.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sabir_session::RuleSpec;

use super::ReportFormat;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Judge a command line as if a model had asked for it in this folder, and say why, part by part. Nothing is run; the exit
    /// code is 0 whatever the verdict.
    Explain(PolicyExplainArguments),
    /// Judge the calls of a task again, in its folder as it is now: what other rules would have asked about or denied.
    Simulate(SimulateArguments),
}

/// Rules, besides those of the configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RuleFlags {
    /// What may be done without asking, besides reading: `reads`, `edits`, `commands`, `all`, `network`, `none`, `command=LINE` for
    /// one exact command line, `kind=NAME` for a kind of command as it is proposed, `host=NAME`, or `mcp=SERVER/TOOL`. May be given
    /// several times.
    #[arg(long, value_name = "POLICY")]
    pub(crate) approve: Vec<String>,
    /// Allow what these words match: `cargo test **`. `*` is one word, `**` at the end any number; `kind=NAME`, `path=GLOB`,
    /// `host=NAME` and `mcp=SERVER/TOOL` too. May be given several times, as all of these.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) allow: Vec<String>,
    /// Ask about it, whatever allows it.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) ask: Vec<String>,
    /// Deny it, whatever else is said.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) deny: Vec<String>,
}

impl RuleFlags {
    /// The same as a part of a session's spec.
    pub(crate) fn rule_spec(&self) -> RuleSpec {
        RuleSpec {
            approve: self.approve.clone(),
            allow: self.allow.clone(),
            ask: self.ask.clone(),
            deny: self.deny.clone(),
        }
    }
}

/// Rules and where others are.
#[derive(Debug, Args)]
pub(crate) struct RuleOptions {
    #[command(flatten)]
    pub(crate) rules: RuleFlags,
    /// The mode, as for a task.
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Option<String>,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ModesArguments {
    /// The folder whose modes are listed too.
    #[arg(short = 'C', long)]
    pub(crate) folder: Option<PathBuf>,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// How to print them.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArguments {
    /// Trust it without being asked.
    #[arg(long)]
    pub(crate) yes: bool,
    /// List the repositories that are trusted.
    #[arg(long, conflicts_with_all = ["yes", "revoke", "folder"])]
    pub(crate) list: bool,
    /// Trust it no longer.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// A folder of the repository; without it this one.
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExplainArguments {
    #[command(flatten)]
    pub(crate) rules: RuleOptions,
    /// The shell that would get the line: `bash`, `sh` or `zsh`. Without it, `SABIR_SHELL` decides, then the one that tasks get.
    #[arg(long)]
    pub(crate) shell: Option<String>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The command line as one argument, or its words.
    #[arg(required = true, last = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArguments {
    #[command(flatten)]
    pub(crate) rules: RuleOptions,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The task's name, the beginning of it, or the file of its journal.
    pub(crate) task: String,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArguments {
    /// `1`, `2`, `best` for the best that this machine has, or `off`.
    #[arg(long, default_value = "best")]
    pub(crate) level: String,
    /// Allow the network: TCP and UDP, but no unix sockets.
    #[arg(long)]
    pub(crate) network: bool,
    /// A folder that may be written besides; it must exist. May be given several times.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Vec<PathBuf>,
    /// The folder to work in.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    /// Run nothing, and print what the sandbox would be as the profile of another system. It was never tried there.
    #[arg(long, value_enum)]
    pub(crate) profile: Option<SandboxProfile>,
    /// The command: one word is a line for the shell, several are a program and its arguments.
    #[arg(required_unless_present = "profile", last = true)]
    pub(crate) words: Vec<String>,
}

/// How another system spells a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxProfile {
    /// For `sandbox-exec` of macOS.
    Seatbelt,
}
