//! Reports all files of a folder and its user for coding agents, as a task that begins now would
//! find them.

use std::path::Path;
use std::sync::Arc;

use sabir_agent::InstructionFile;
use sabir_workspace::Workspace;
use serde::Serialize;

use crate::config::Config;
use crate::custom_commands::{CustomCommand, CustomCommands};
use crate::error::SessionError;
use crate::hooks::{FoundHook, HookState, find_hooks};
use crate::instructions::{FoundInstructions, find_instructions};
use crate::mcp::{LaunchState, find_servers};
use crate::modes;
use crate::skills::{Skill, Skills};

/// Files of other programs that give rights, and are not read, with the parts that are not read.
const UNREAD_FILES: [(&str, &str); 5] = [
    (
        ".claude/settings.json",
        "permissions and environment of Claude Code",
    ),
    (
        ".claude/settings.local.json",
        "permissions and environment of Claude Code",
    ),
    (
        ".sabir/config.toml",
        "configuration: a repository cannot configure Sabir",
    ),
    (".codex/config.toml", "configuration of Codex"),
    ("opencode.json", "configuration of opencode"),
];

/// The conventions of a folder.
#[derive(Debug, Clone, Serialize)]
pub struct FolderReport {
    /// The folder.
    pub folder: String,
    /// The rules, in the order of the prompt.
    pub rules: Vec<FoundInstructions>,
    /// The bytes of rules in a request.
    pub rule_bytes: usize,
    /// The most bytes of rules in a request.
    pub rule_limit: usize,
    /// The commands.
    pub commands: Vec<CustomCommand>,
    /// The skills.
    pub skills: Vec<Skill>,
    /// The bytes of the list of skills in a request.
    pub skill_bytes: usize,
    /// The modes of the repository.
    pub modes: Vec<String>,
    /// The MCP servers, each with its state.
    pub servers: Vec<ReportedServer>,
    /// The hooks, each with its state.
    pub hooks: Vec<FoundHook>,
    /// The files and entries that are not started or not read, each described by a sentence.
    pub not_started: Vec<String>,
}

/// An MCP server in a report.
#[derive(Debug, Clone, Serialize)]
pub struct ReportedServer {
    /// The name.
    pub name: String,
    /// The place that it is configured in.
    pub source: String,
    /// True if a task starts it.
    pub starts: bool,
}

/// Reports the conventions of a folder. Starts nothing.
///
/// # Errors
/// When the folder cannot be opened.
pub fn inspect_folder(folder: &Path, config: &Config) -> Result<FolderReport, SessionError> {
    let workspace =
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    // With the bounds of a task: a hidden file is not read.
    let rules = sabir_policy::PolicyRules::default();
    let bounds = modes::file_access_bounds(&rules, config)?;
    let workspace = Arc::new(workspace.with_bounds(bounds));
    // Each part by the function that a task uses, so that the view cannot differ from what happens.
    let rules = find_instructions(&workspace, config);
    let skills = Skills::find(&workspace, config);
    let list = find_servers(&[], config, workspace.root());
    let (all_modes, faults) = modes::all_modes(config, &workspace);
    let mut not_started: Vec<String> = list
        .servers
        .iter()
        .filter_map(|found| match &found.launch {
            LaunchState::Allowed => None,
            LaunchState::Unusable { reason } => {
                Some(format!("the MCP server {}: {reason}", found.spec.name))
            }
            LaunchState::Untrusted => Some(format!(
                "the MCP server {}, which runs `{}`: it is not trusted (`sabir mcp trust`)",
                found.spec.name,
                found.spec.launch_line()
            )),
            LaunchState::Changed { .. } => Some(format!(
                "the MCP server {}, which runs `{}`: it has changed since it was trusted",
                found.spec.name,
                found.spec.launch_line()
            )),
        })
        .collect();
    not_started.extend(list.problems.iter().cloned());
    let hooks = find_hooks(&workspace, config);
    not_started.extend(hooks.hooks.iter().filter_map(|hook| match hook.state {
        HookState::Allowed => None,
        HookState::Untrusted => Some(format!(
            "the hook {}: it is not trusted (`sabir trust --hooks`)",
            hook.describe()
        )),
        HookState::Changed => Some(format!(
            "the hook {}: it has changed since it was trusted",
            hook.describe()
        )),
    }));
    not_started.extend(hooks.problems.iter().cloned());
    not_started.extend(faults.iter().map(ToString::to_string));
    for (path, what) in UNREAD_FILES {
        // A link counts as well: it would be read where such files are.
        let is_there = workspace.root().join(path).symlink_metadata().is_ok();
        if is_there {
            not_started.push(format!("{path}: not read ({what})"));
        }
    }
    Ok(FolderReport {
        folder: workspace.root().display().to_string(),
        rule_bytes: rules.iter().map(|rule| rule.sent_bytes).sum(),
        rule_limit: InstructionFile::MAX_TOTAL_BYTES,
        rules,
        commands: CustomCommands::find_in(&workspace, config).commands(),
        skill_bytes: skills.fragment().map_or(0, |fragment| fragment.text.len()),
        skills: skills.skills().to_vec(),
        modes: all_modes
            .into_iter()
            .map(|mode| mode.name)
            .filter(|name| modes::is_from_repository(name, config))
            .collect(),
        servers: list
            .servers
            .iter()
            .map(|found| ReportedServer {
                name: found.spec.name.clone(),
                source: found.source.describe(),
                starts: found.launch == LaunchState::Allowed,
            })
            .collect(),
        hooks: hooks.hooks,
        not_started,
    })
}
