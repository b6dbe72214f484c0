//! Imports settings of other programs into the user's configuration: MCP servers, rules and the
//! model.
//!
//! The files of the other programs are only read. Nothing is written before the user has seen the
//! plan. Settings that cannot be imported are listed with the reason, and no imported setting
//! allows more than the original: a rule that would allow more is left out. Only settings of the
//! user are read, none of a repository.

mod rules;
mod sources;
mod write;

use std::path::PathBuf;

use sabir_mcp::McpServerSpec;
use serde::Serialize;

pub use sources::plan_import;
pub use write::apply_import;

/// A program whose settings can be carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingsProgram {
    /// Claude Code.
    ClaudeCode,
    /// Cline, in an editor.
    Cline,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    Opencode,
    /// Roo Code, in an editor.
    Roo,
}

impl SettingsProgram {
    /// All programs, in the order in which their settings count.
    pub const ALL: [Self; 6] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Gemini,
        Self::Opencode,
        Self::Cline,
        Self::Roo,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Cline => "cline",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Roo => "roo",
        }
    }

    /// Finds a program by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }
}

/// A list of rules in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleList {
    /// The calls that run without a question.
    Allow,
    /// The calls that are always asked about.
    Ask,
    /// The calls that never run.
    Deny,
}

impl RuleList {
    /// Returns the key in the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A setting that is carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a plan has a few dozen settings, and lives for one command"
)]
pub enum ImportedSetting {
    /// An MCP server.
    Server(McpServerSpec),
    /// A rule.
    Rule {
        /// The list that it is added to.
        list: RuleList,
        /// The rule.
        rule: String,
    },
    /// The model of tasks that name none.
    Model(String),
}

impl ImportedSetting {
    /// Describes the setting in one line, without secrets.
    pub fn describe(&self) -> String {
        match self {
            Self::Server(spec) => format!("mcp.servers.{}: {}", spec.name, spec.launch_line()),
            Self::Rule { list, rule } => format!("{}: {rule}", list.key()),
            Self::Model(model) => format!("model: {model}"),
        }
    }
}

/// A setting of another program that is imported, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportItem {
    /// The program.
    pub program: SettingsProgram,
    /// The file.
    pub file: PathBuf,
    /// The setting.
    pub setting: ImportedSetting,
}

/// A setting of another program that is not carried over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutSetting {
    /// The program.
    pub program: SettingsProgram,
    /// The file.
    pub file: PathBuf,
    /// The setting, with the reason.
    pub text: String,
}

/// Everything that an import would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportPlan {
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The settings that are carried over.
    pub items: Vec<ImportItem>,
    /// The settings that are not.
    pub left_out: Vec<LeftOutSetting>,
}
