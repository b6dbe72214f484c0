//! Reads the agents that a repository defines in `.claude/agents`, `.opencode/agents` and `.sabir/agents`, and those of the user, each as
//! a mode.
//!
//! An agent only restricts, as every mode does: it has the groups of tools that it names. It does
//! not have groups that it names in part (`Bash(git:*)`), since that restriction cannot be
//! enforced. Its choice of a model is ignored. The user chooses a mode of the repository by its
//! name; a subtask may also use one.

use sabir_policy::{Mode, ToolGroup};
use sabir_workspace::{WorkPath, Workspace};
use serde_json::Value;

use super::roo::{ModeFault, RooModeError};
use crate::conventions::folder_reader::{list_text_files, read_text_start};
use crate::conventions::front_matter::FrontMatter;
use crate::environment::Environment;

/// The folders with agents, in the order of precedence.
const FOLDERS: [&str; 4] = [
    ".sabir/agents",
    ".claude/agents",
    ".opencode/agents",
    ".opencode/agent",
];
/// The folder with agents in the user's home.
const HOME_FOLDER: &str = ".claude/agents";
/// The folders with agents in the folder for configurations.
const CONFIG_FOLDERS: [&str; 2] = ["opencode/agents", "opencode/agent"];
/// The most agents of one folder, and the most bytes of one.
const MAX_AGENTS: usize = 50;
const MAX_BYTES: usize = 32 * 1024;
/// The groups that an agent has unless it says otherwise.
const USUAL_GROUPS: [ToolGroup; 5] = [
    ToolGroup::Read,
    ToolGroup::Edit,
    ToolGroup::Command,
    ToolGroup::Fetch,
    ToolGroup::Server,
];

/// The user's own agents.
#[derive(Debug, Default)]
pub(crate) struct PersonalAgents {
    /// The modes that they define.
    pub(super) modes: Vec<Mode>,
    /// The files that define none.
    faults: Vec<ModeFault>,
}

impl PersonalAgents {
    /// Returns the files that define no mode, with the reasons.
    pub(super) fn faults(&self) -> impl Iterator<Item = ModeFault> {
        self.faults.iter().map(|fault| ModeFault {
            file: fault.file.clone(),
            name: fault.name.clone(),
            // The reason itself cannot be copied.
            why: RooModeError::Syntax(fault.why.to_string()),
        })
    }

    /// Reads the user's own agents. `taken` returns who owns a name that cannot be used again.
    pub(crate) fn read(
        environment: &Environment,
        taken: impl Fn(&str) -> Option<&'static str>,
    ) -> Self {
        let mut found = Self::default();
        let own = environment
            .config_file(None)
            .map(|file| file.with_file_name("agents"));
        let home = environment.home_folder.as_deref();
        let settings = environment
            .config_folder
            .clone()
            .or_else(|| home.map(|home| home.join(".config")));
        let others = home.map(|home| home.join(HOME_FOLDER)).into_iter().chain(
            settings
                .into_iter()
                .flat_map(|folder| CONFIG_FOLDERS.map(|path| folder.join(path))),
        );
        // The user's folder for Sabir first: of two agents with one name the first counts.
        for folder in own.into_iter().chain(others) {
            if let Ok(folder) = Workspace::open(&folder) {
                let shown = folder.root().display().to_string();
                let top = WorkPath::root();
                let agents = AgentFolder {
                    workspace: &folder,
                    folder: &top,
                    shown: Some(&shown),
                };
                agents.add_agents(&taken, &mut found.modes, &mut found.faults);
            }
        }
        found
    }
}

/// Adds the agents of a folder to the modes of its repository. `taken` returns who owns a name that cannot be used again.
pub(super) fn add_agents(
    workspace: &Workspace,
    taken: impl Fn(&str) -> Option<&'static str>,
    modes: &mut Vec<Mode>,
    faults: &mut Vec<ModeFault>,
) {
    for folder in FOLDERS {
        if let Ok(folder) = workspace.parse_path(folder) {
            let agents = AgentFolder {
                workspace,
                folder: &folder,
                shown: None,
            };
            agents.add_agents(&taken, modes, faults);
        }
    }
}

/// A folder with agents.
struct AgentFolder<'a> {
    workspace: &'a Workspace,
    folder: &'a WorkPath,
    /// The path of the workspace in messages; `None` where paths are shown as the workspace names them.
    shown: Option<&'a str>,
}

impl AgentFolder<'_> {
    fn add_agents(
        &self,
        taken: &impl Fn(&str) -> Option<&'static str>,
        modes: &mut Vec<Mode>,
        faults: &mut Vec<ModeFault>,
    ) {
        let workspace = self.workspace;
        let files = list_text_files(workspace, self.folder, &["md"], MAX_AGENTS);
        for file in files.unwrap_or_default() {
            // One that cannot be read defines nothing, as a hidden file does.
            let Ok(read) = read_text_start(workspace, &file, MAX_BYTES) else {
                continue;
            };
            let stem = file.as_path().file_stem().and_then(|stem| stem.to_str());
            let is_known = |name: &str| {
                let mut names = modes.iter().map(|mode| &mode.name);
                names.any(|known| known.eq_ignore_ascii_case(name))
            };
            let agent = read_agent(&read.text, stem.unwrap_or_default());
            let agent = agent.and_then(|mode| {
                let twice = is_known(&mode.name).then_some("occurs twice; the first counts");
                match taken(&mode.name).or(twice) {
                    Some(whose) => Err(RooModeError::NameTaken(whose)),
                    None => Ok(mode),
                }
            });
            match agent {
                Ok(mode) => modes.push(mode),
                Err(why) => faults.push(ModeFault {
                    file: match self.shown {
                        Some(shown) => format!("{shown}/{file}"),
                        None => file.to_string(),
                    },
                    name: String::new(),
                    why,
                }),
            }
        }
    }
}

fn read_agent(text: &str, file_stem: &str) -> Result<Mode, RooModeError> {
    let header = FrontMatter::parse(text);
    let name = header.text("name").unwrap_or_else(|| file_stem.to_owned());
    let is_slug = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_slug) {
        return Err(RooModeError::AgentName);
    }
    let groups = agent_groups(&header);
    if groups.is_empty() {
        return Err(RooModeError::NoGroups);
    }
    let about = header.text("description").unwrap_or_default();
    let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = about.floor_char_boundary(300);
    Ok(Mode {
        name,
        about: about.get(..end).unwrap_or_default().to_owned(),
        instructions: header.body.trim().to_owned(),
        groups,
        write: Vec::new(),
    })
}

/// Returns the groups of tools that the header of an agent leaves it.
fn agent_groups(header: &FrontMatter<'_>) -> Vec<ToolGroup> {
    let mut groups = match (header.value("tools"), header.list("tools")) {
        (None, _) => USUAL_GROUPS.to_vec(),
        // opencode: names with truth values, which only take away.
        (Some(Value::Object(tools)), _) => {
            let mut groups = USUAL_GROUPS.to_vec();
            for (tool, is_on) in tools {
                // A value that is not a truth value takes away too: it was meant as some limit.
                if is_on != &Value::Bool(true) {
                    remove_tool(&mut groups, tool);
                }
            }
            groups
        }
        (Some(_), named) => named
            .unwrap_or_default()
            .iter()
            // A tool that is not known gives nothing.
            .filter_map(|tool| tool_group(tool))
            .collect(),
    };
    for tool in header.list("disallowedTools").unwrap_or_default() {
        // A part that is forbidden forbids the whole.
        remove_tool(&mut groups, tool.split('(').next().unwrap_or_default());
    }
    if let Some(Value::Object(permissions)) = header.value("permission") {
        for (tool, permission) in permissions {
            // `ask` is what Sabir does anyway; a list of patterns cannot be enforced as it is
            // written.
            if !matches!(permission.as_str(), Some("allow" | "ask")) {
                remove_tool(&mut groups, tool);
            }
        }
    }
    // An agent whose permission mode is `plan` must not write, whatever else it names.
    if header.text("permissionMode").as_deref() == Some("plan") {
        groups.retain(|group| !matches!(group, ToolGroup::Edit | ToolGroup::Command));
    }
    let mut once = Vec::new();
    for group in groups {
        if !once.contains(&group) {
            once.push(group);
        }
    }
    once
}

/// Takes the group of a tool away. A tool that is not known may be any tool of a server.
fn remove_tool(groups: &mut Vec<ToolGroup>, tool: &str) {
    if tool == "*" {
        groups.clear();
        return;
    }
    let removed = tool_group(tool).unwrap_or(ToolGroup::Server);
    groups.retain(|group| *group != removed);
}

/// Returns the group of another program's tool; `None` for a tool that Sabir does not have, and for a part of one.
fn tool_group(tool: &str) -> Option<ToolGroup> {
    let tool = tool.trim().to_ascii_lowercase();
    Some(match tool.as_str() {
        "read" | "grep" | "glob" | "ls" | "list" | "notebookread" => ToolGroup::Read,
        "edit" | "write" | "multiedit" | "notebookedit" | "patch" => ToolGroup::Edit,
        "bash" => ToolGroup::Command,
        "webfetch" | "websearch" | "fetch" => ToolGroup::Fetch,
        name if name.starts_with("mcp__") => ToolGroup::Server,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_have_no_more_than_they_name() {
        let check = |header: &str, expected: &str| {
            let text = format!("---\n{header}\n---\nDo it.");
            let told = match read_agent(&text, "stem") {
                Ok(mode) => {
                    let groups: Vec<_> = mode.groups.iter().map(|group| group.name()).collect();
                    format!("{} {}", mode.name, groups.join(","))
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(told, expected, "{header}");
        };
        check("description: x", "stem read,edit,command,fetch,server");
        check("name: a\ntools: Read, Grep, Bash(git:*)", "a read");
        check("tools: [Edit, Bash]", "stem edit,command");
        check(
            "tools:\n  write: false\n  bash: false",
            "stem read,fetch,server",
        );
        check(
            "tools:\n  \"*\": false",
            "it has no `groups`: nothing may be done in it",
        );
        check(
            "tools: Unknown",
            "it has no `groups`: nothing may be done in it",
        );
        check(
            "disallowedTools: Bash(rm:*), mcp__x",
            "stem read,edit,fetch",
        );
        check(
            "permission:\n  edit: deny\n  bash:\n    \"*\": ask",
            "stem read,fetch,server",
        );
        check("permissionMode: plan", "stem read,fetch,server");
        check(
            "permissionMode: bypassPermissions\ntools: Read",
            "stem read",
        );
        check(
            "name: ../x",
            "its name must consist of letters, digits and hyphens",
        );
    }
}
