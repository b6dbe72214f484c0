//! Reads the settings files of other programs.

use std::path::{Path, PathBuf};

use sabir_mcp::{parse_server_file, parse_settings_text};
use serde_json::{Map, Value};

use super::rules::{RuleProblem, TranslatedRule, command_rule, prefix_rule, translate_claude_rule};
use super::{ImportItem, ImportPlan, ImportedSetting, LeftOutSetting, RuleList, SettingsProgram};
use crate::config::{self, Config};

/// The editors whose extensions keep settings, by their folders below the folder of configuration.
const EDITORS: [&str; 6] = [
    "Code",
    "Code - Insiders",
    "VSCodium",
    "Cursor",
    "Windsurf",
    "Positron",
];

/// Reads one file for a plan.
struct FileReader<'a> {
    plan: &'a mut ImportPlan,
    program: SettingsProgram,
    file: &'a Path,
    home: Option<&'a Path>,
}

/// Looks for settings of these programs in the user's home. Reads files only.
pub fn plan_import(programs: &[SettingsProgram], config: &Config) -> ImportPlan {
    let mut plan = ImportPlan::default();
    let environment = &config.environment;
    let Some(home) = environment.home_folder.as_deref() else {
        return plan;
    };
    let settings = environment
        .config_folder
        .clone()
        .unwrap_or_else(|| home.join(".config"));
    // Each editor has a folder on Linux and one on macOS; VS Code has another on remote machines.
    let editors: Vec<PathBuf> = EDITORS
        .iter()
        .flat_map(|name| {
            [
                settings.join(name),
                home.join("Library/Application Support").join(name),
            ]
        })
        .chain([home.join(".vscode-server/data")])
        .map(|folder| folder.join("User"))
        .collect();
    for program in programs {
        let files: Vec<PathBuf> = match program {
            SettingsProgram::ClaudeCode => {
                vec![
                    home.join(".claude.json"),
                    home.join(".claude/settings.json"),
                ]
            }
            SettingsProgram::Codex => vec![home.join(".codex/config.toml")],
            SettingsProgram::Gemini => vec![home.join(".gemini/settings.json")],
            SettingsProgram::Opencode => ["opencode.json", "opencode.jsonc", "config.json"]
                .map(|name| settings.join("opencode").join(name))
                .to_vec(),
            SettingsProgram::Cline => {
                let place = "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
                editors.iter().map(|user| user.join(place)).collect()
            }
            SettingsProgram::Roo => {
                let place = "globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json";
                editors
                    .iter()
                    .flat_map(|user| [user.join(place), user.join("settings.json")])
                    .collect()
            }
        };
        for file in files {
            if file.is_file() {
                let mut reader = FileReader {
                    plan: &mut plan,
                    program: *program,
                    file: &file,
                    home: Some(home),
                };
                reader.read();
            }
        }
    }
    plan.drop_repeated();
    plan.drop_present(config);
    plan
}

impl ImportPlan {
    /// Keeps the first of several equal settings, of several servers with one name, and of several models.
    fn drop_repeated(&mut self) {
        let mut kept: Vec<ImportItem> = Vec::new();
        for item in std::mem::take(&mut self.items) {
            // The order of the programs decides, as `SettingsProgram::ALL` has it.
            let other = kept
                .iter()
                .find(|known| match (&known.setting, &item.setting) {
                    (ImportedSetting::Server(one), ImportedSetting::Server(other)) => {
                        one.name == other.name
                    }
                    (ImportedSetting::Model(_), ImportedSetting::Model(_)) => true,
                    (one, other) => one == other,
                });
            let Some(other) = other else {
                kept.push(item);
                continue;
            };
            if other.setting != item.setting {
                let text = format!(
                    "{}: {} already gives one",
                    item.setting.describe(),
                    other.program.name()
                );
                self.leave_out(item, text);
            }
        }
        self.items = kept;
    }

    /// Leaves out settings that the configuration already has.
    fn drop_present(&mut self, config: &Config) {
        let servers = config.mcp_config().specs();
        for item in std::mem::take(&mut self.items) {
            // What the user has written here is newer than what another program has.
            let present = match &item.setting {
                ImportedSetting::Server(spec) => {
                    servers.iter().any(|known| known.name == spec.name)
                }
                ImportedSetting::Rule { list, rule } => config.rules.has_rule(list.key(), rule),
                ImportedSetting::Model(_) => config.model.is_some(),
            };
            if present {
                let text = format!("{}: your config.toml has one", item.setting.describe());
                self.leave_out(item, text);
            } else {
                self.items.push(item);
            }
        }
    }

    fn leave_out(&mut self, item: ImportItem, text: String) {
        self.left_out.push(LeftOutSetting {
            program: item.program,
            file: item.file,
            text,
        });
    }
}

impl FileReader<'_> {
    fn add(&mut self, setting: ImportedSetting) {
        self.plan.items.push(ImportItem {
            program: self.program,
            file: self.file.to_owned(),
            setting,
        });
    }

    fn leave_out(&mut self, text: impl Into<String>) {
        self.plan.left_out.push(LeftOutSetting {
            program: self.program,
            file: self.file.to_owned(),
            text: text.into(),
        });
    }

    fn add_rule(&mut self, text: &str, translated: Result<TranslatedRule, RuleProblem>) {
        match translated {
            Ok(TranslatedRule { list, rule }) => {
                // Reports the error of the configuration's check, which a translated rule must
                // pass.
                match config::rule_mistake(list.key(), &rule, self.home) {
                    None => self.add(ImportedSetting::Rule { list, rule }),
                    Some(why) => self.leave_out(format!("the rule `{text}`: {why}")),
                }
            }
            Err(why) => self.leave_out(format!("the rule `{text}`: {why}")),
        }
    }

    fn read(&mut self) {
        self.plan.files.push(self.file.to_owned());
        let text = match config::read_text(self.file) {
            Ok(text) => text,
            Err(error) => return self.leave_out(format!("the whole file: {error}")),
        };
        let root = match parse_settings_text(&text) {
            Ok(root) => root,
            Err(error) => return self.leave_out(format!("the whole file: {error}")),
        };
        // VS Code keeps its own servers in the same file as the settings of Roo.
        if self
            .file
            .file_name()
            .is_none_or(|name| name != "settings.json")
            || self.program != SettingsProgram::Roo
        {
            self.read_servers(&text, &root);
        }
        match self.program {
            SettingsProgram::ClaudeCode => self.read_claude(&root),
            SettingsProgram::Codex => self.read_codex(&root),
            SettingsProgram::Gemini => self.read_gemini(&root),
            SettingsProgram::Opencode => self.read_opencode(&root),
            SettingsProgram::Roo => self.read_roo(&root),
            SettingsProgram::Cline => {}
        }
    }

    fn read_servers(&mut self, text: &str, root: &Map<String, Value>) {
        // Asked before, since a file without servers is not a mistake here.
        let has_servers = ["mcpServers", "mcp_servers", "mcp", "servers"]
            .iter()
            .any(|key| root.contains_key(*key));
        if !has_servers {
            return;
        }
        match parse_server_file(text) {
            Ok(parsed) => {
                for problem in parsed.problems {
                    self.leave_out(format!("the MCP server {problem}"));
                }
                for spec in parsed.servers {
                    self.add(ImportedSetting::Server(spec));
                }
            }
            Err(error) => self.leave_out(format!("its MCP servers: {error}")),
        }
    }

    fn read_claude(&mut self, root: &Map<String, Value>) {
        let permissions = root.get("permissions").and_then(Value::as_object);
        for list in [RuleList::Allow, RuleList::Ask, RuleList::Deny] {
            let rules = permissions.and_then(|all| all.get(list.key()));
            for rule in texts(rules) {
                self.add_rule(&rule, translate_claude_rule(list, &rule));
            }
        }
        if permissions.is_some_and(|all| all.contains_key("defaultMode")) {
            self.leave_out("permissions.defaultMode: a mode of Claude Code; see `sabir modes`");
        }
        if let Some(model) = root.get("model").and_then(Value::as_str) {
            // `opus` and the like mean another model every few months.
            match model.starts_with("claude-") {
                true => self.add(ImportedSetting::Model(format!("anthropic/{model}"))),
                false => self.leave_out(format!("the model `{model}`: no full name of a model")),
            }
        }
        if root.contains_key("hooks") {
            let file = self.file.display();
            self.leave_out(format!(
                "hooks: they run with `import = [\"{file}\"]` under `[hooks]`"
            ));
        }
        for key in ["env", "apiKeyHelper"] {
            if root.contains_key(key) {
                self.leave_out(format!(
                    "{key}: see `sabir help config` for keys and variables"
                ));
            }
        }
        let projects = root.get("projects").and_then(Value::as_object);
        for (folder, project) in projects.into_iter().flatten() {
            let servers = project.get("mcpServers").and_then(Value::as_object);
            if servers.is_some_and(|servers| !servers.is_empty()) {
                self.leave_out(format!("the MCP servers of the folder {folder} alone"));
            }
        }
    }

    fn read_codex(&mut self, root: &Map<String, Value>) {
        let text = |key: &str| root.get(key).and_then(Value::as_str);
        if let Some(model) = text("model") {
            match text("model_provider").unwrap_or("openai") {
                "openai" => self.add(ImportedSetting::Model(format!("openai/{model}"))),
                other => self.leave_out(format!(
                    "the model `{model}` of the provider `{other}`: define it under `[providers.{other}]`"
                )),
            }
        }
        for key in [
            "approval_policy",
            "sandbox_mode",
            "profiles",
            "model_providers",
            "notify",
        ] {
            if root.contains_key(key) {
                self.leave_out(format!("{key}: nothing here means exactly the same"));
            }
        }
    }

    fn read_gemini(&mut self, root: &Map<String, Value>) {
        let model = match root.get("model") {
            Some(Value::String(model)) => Some(model.as_str()),
            Some(model) => model.get("name").and_then(Value::as_str),
            None => None,
        };
        if let Some(model) = model {
            self.add(ImportedSetting::Model(format!("gemini/{model}")));
        }
        let tools = root.get("tools");
        let inner = |key: &str| tools.and_then(|tools| tools.get(key));
        let lists = [
            (
                RuleList::Allow,
                inner("allowed").or(root.get("allowedTools")),
            ),
            (
                RuleList::Deny,
                inner("exclude").or(root.get("excludeTools")),
            ),
        ];
        for (list, rules) in lists {
            for text in texts(rules) {
                let command = text
                    .strip_prefix("run_shell_command(")
                    .or_else(|| text.strip_prefix("ShellTool("))
                    .map(|rest| rest.trim_end_matches(')').to_owned());
                let translated = match command {
                    Some(command) => prefix_rule(list, &command),
                    None => Err(RuleProblem::UnknownTool),
                };
                let translated = translated.map(|rule| TranslatedRule { list, rule });
                self.add_rule(&text, translated);
            }
        }
    }

    fn read_opencode(&mut self, root: &Map<String, Value>) {
        if let Some(model) = root.get("model").and_then(Value::as_str) {
            match model.contains('/') {
                true => self.add(ImportedSetting::Model(model.to_owned())),
                false => self.leave_out(format!("the model `{model}`: it names no provider")),
            }
        }
        let permission = root.get("permission").and_then(Value::as_object);
        let Some(permission) = permission else {
            return;
        };
        for (tool, value) in permission {
            let commands = value.as_object().filter(|_| tool == "bash");
            let Some(commands) = commands else {
                self.leave_out(format!(
                    "permission.{tool}: nothing here means exactly the same"
                ));
                continue;
            };
            for (pattern, verdict) in commands {
                // A verdict that is not known must not become a permission.
                let list = match verdict.as_str() {
                    Some("allow") => RuleList::Allow,
                    Some("ask") => RuleList::Ask,
                    Some("deny") => RuleList::Deny,
                    _ => {
                        self.leave_out(format!("permission.bash.{pattern}: it is not a verdict"));
                        continue;
                    }
                };
                let translated = command_rule(list, pattern);
                let translated = translated.map(|rule| TranslatedRule { list, rule });
                self.add_rule(pattern, translated);
            }
        }
    }

    fn read_roo(&mut self, root: &Map<String, Value>) {
        for (key, list) in [
            ("roo-cline.allowedCommands", RuleList::Allow),
            ("roo-cline.deniedCommands", RuleList::Deny),
        ] {
            for prefix in texts(root.get(key)) {
                let translated = prefix_rule(list, &prefix);
                let translated = translated.map(|rule| TranslatedRule { list, rule });
                self.add_rule(&prefix, translated);
            }
        }
    }
}

/// Returns the texts of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
