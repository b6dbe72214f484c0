//! Parses the command line that the SDK gives to the program it starts.
//!
//! Every flag is in one table. A flag that restricts what may happen, and that Sabir cannot obey, is an error, and so is one that is not
//! in the table: a program must not rely on a limit that does not exist.

use std::ffi::OsString;
use std::path::PathBuf;

use sabir_session::{Host, SessionError, SessionSpec};
use serde_json::Value;

/// The treatment of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagKind {
    /// It takes a value and is used.
    Value,
    /// It is used and takes no value.
    Switch,
    /// It takes a value and does nothing.
    IgnoredValue,
    /// It does nothing and takes no value.
    IgnoredSwitch,
    /// It cannot be obeyed.
    Refused,
}

/// All flags that the two packages send.
const FLAGS: [(&str, FlagKind); 53] = [
    ("output-format", FlagKind::Value),
    ("input-format", FlagKind::Value),
    ("model", FlagKind::Value),
    ("max-turns", FlagKind::Value),
    ("max-budget-usd", FlagKind::Value),
    ("permission-mode", FlagKind::Value),
    ("permission-prompt-tool", FlagKind::Value),
    ("allowedTools", FlagKind::Value),
    ("disallowedTools", FlagKind::Value),
    ("tools", FlagKind::Value),
    ("mcp-config", FlagKind::Value),
    ("resume", FlagKind::Value),
    ("session-id", FlagKind::Value),
    ("continue", FlagKind::Switch),
    ("fork-session", FlagKind::Switch),
    ("include-partial-messages", FlagKind::Switch),
    ("verbose", FlagKind::IgnoredSwitch),
    ("print", FlagKind::IgnoredSwitch),
    ("await-initialize", FlagKind::IgnoredSwitch),
    (
        "allow-dangerously-skip-permissions",
        FlagKind::IgnoredSwitch,
    ),
    ("permission-prompts", FlagKind::IgnoredSwitch),
    ("include-hook-events", FlagKind::IgnoredSwitch),
    ("debug", FlagKind::IgnoredSwitch),
    ("debug-to-stderr", FlagKind::IgnoredSwitch),
    ("replay-user-messages", FlagKind::IgnoredSwitch),
    ("session-mirror", FlagKind::IgnoredSwitch),
    ("initialize-fields", FlagKind::IgnoredValue),
    ("system-prompt", FlagKind::IgnoredValue),
    ("append-system-prompt", FlagKind::IgnoredValue),
    ("system-prompt-file", FlagKind::IgnoredValue),
    ("setting-sources", FlagKind::IgnoredValue),
    ("settings", FlagKind::IgnoredValue),
    ("betas", FlagKind::IgnoredValue),
    ("thinking", FlagKind::IgnoredValue),
    ("thinking-display", FlagKind::IgnoredValue),
    ("max-thinking-tokens", FlagKind::IgnoredValue),
    ("effort", FlagKind::IgnoredValue),
    ("fallback-model", FlagKind::IgnoredValue),
    ("add-dir", FlagKind::IgnoredValue),
    ("plugin-dir", FlagKind::IgnoredValue),
    ("plugin-dir-no-mcp", FlagKind::IgnoredValue),
    ("debug-file", FlagKind::IgnoredValue),
    ("agent", FlagKind::IgnoredValue),
    ("project-config-root", FlagKind::IgnoredValue),
    ("task-budget", FlagKind::Refused),
    ("json-schema", FlagKind::Refused),
    ("resume-session-at", FlagKind::Refused),
    ("resume-drops-turn", FlagKind::Refused),
    ("strict-mcp-config", FlagKind::Refused),
    ("no-session-persistence", FlagKind::Refused),
    ("managed-settings", FlagKind::Refused),
    ("sdk-url", FlagKind::Refused),
    ("channels", FlagKind::Refused),
];

/// Flags that say nothing worth a warning, because every program sends them.
const QUIET_FLAGS: [&str; 5] = [
    "verbose",
    "print",
    "await-initialize",
    "allow-dangerously-skip-permissions",
    "setting-sources",
];

/// The tools of Claude Code with the approval of Sabir that covers them.
const APPROVALS: [(&str, &str); 10] = [
    ("Read", "reads"),
    ("Glob", "reads"),
    ("Grep", "reads"),
    ("LS", "reads"),
    ("Edit", "edits"),
    ("MultiEdit", "edits"),
    ("Write", "edits"),
    ("NotebookEdit", "edits"),
    ("Bash", "commands"),
    ("WebFetch", "network"),
];

/// A parsed command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SdkArguments {
    /// The settings of the session.
    pub spec: SessionSpec,
    /// The task to continue.
    pub resumed: Option<ResumedTask>,
    /// Continues a copy of the task instead of the task itself.
    pub forks: bool,
    /// The id for a new task.
    pub session_id: Option<String>,
    /// A file with more MCP servers.
    pub server_file: Option<PathBuf>,
    /// The names of the MCP servers that live in the program's own process.
    pub program_servers: Vec<String>,
    /// The program answers questions about calls.
    pub has_permission_callback: bool,
    /// Pieces of answers are printed while they arrive.
    pub partial_messages: bool,
    /// Messages are read from standard input.
    pub reads_input: bool,
    /// The prompt on the command line; empty if there is none.
    pub prompt: String,
    /// The flags that were given and do nothing.
    pub ignored: Vec<String>,
}

/// A task to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumedTask {
    /// The one with this id, or the only one whose id begins with it.
    Named(String),
    /// The newest of the folder.
    Newest,
}

/// The reasons why a command line cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdkArgumentError {
    /// The flag is not known.
    #[error("the flag --{0} is not known; docs/agent-sdk.md lists the known ones")]
    Unknown(String),
    /// The flag restricts or changes what happens in a way that Sabir does not support.
    #[error("--{0} is not supported; remove the option of the SDK that sends it")]
    Refused(String),
    /// The value cannot be used.
    #[error("--{flag} {value} cannot be used: {reason}")]
    Value {
        /// The flag.
        flag: String,
        /// The beginning of the value.
        value: String,
        /// The reason.
        reason: String,
    },
}

impl SdkArguments {
    /// Parses a command line with the name of the program; `None` if it is not one of the SDK.
    pub fn from_command_line(words: &[OsString]) -> Option<Result<Self, SdkArgumentError>> {
        let words = words.iter().skip(1);
        let words: Option<Vec<_>> = words.map(|word| word.to_str().map(str::to_owned)).collect();
        let words = words.filter(|words| Self::is_sdk_command_line(words))?;
        Some(Self::parse(&words))
    }

    /// Returns true if a command line, without the name of the program, is one of the SDK: it asks for `--output-format stream-json`, or
    /// begins with `run` and asks for `--output stream-json`.
    fn is_sdk_command_line(arguments: &[String]) -> bool {
        let asks = |flag: &str| {
            let assigned = format!("{flag}=stream-json");
            let before_prompt = arguments.split(|word| word == "--").next();
            let words = before_prompt.unwrap_or_default();
            words.windows(2).any(|pair| pair == [flag, "stream-json"]) || words.contains(&assigned)
        };
        let is_run = arguments.first().is_some_and(|word| word == "run");
        asks("--output-format") || is_run && asks("--output")
    }

    /// Parses a command line, without the name of the program.
    ///
    /// # Errors
    /// When a flag is unknown, cannot be obeyed, or has a wrong value.
    pub fn parse(arguments: &[String]) -> Result<Self, SdkArgumentError> {
        let mut parsed = Self::default();
        let is_run = arguments.first().is_some_and(|word| word == "run");
        let mut words = arguments.iter().skip(usize::from(is_run));
        while let Some(word) = words.next() {
            if word == "--" {
                // The SDK puts the prompt behind it, which may begin with a dash.
                parsed.prompt = words.by_ref().cloned().collect::<Vec<_>>().join(" ");
                break;
            }
            let Some(flag) = word.strip_prefix("--") else {
                match word.as_str() {
                    // Everything is printed anyway.
                    "-p" => {}
                    "-c" => parsed.resumed = Some(ResumedTask::Newest),
                    word => {
                        if !parsed.prompt.is_empty() {
                            parsed.prompt.push(' ');
                        }
                        parsed.prompt.push_str(word);
                    }
                }
                continue;
            };
            let (name, given) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            // The name that `run` has for it.
            let name = if is_run && name == "output" {
                "output-format"
            } else {
                name
            };
            let Some((_, used)) = FLAGS.iter().find(|(known, _)| *known == name) else {
                return Err(SdkArgumentError::Unknown(name.to_owned()));
            };
            match used {
                FlagKind::Refused => return Err(SdkArgumentError::Refused(name.to_owned())),
                FlagKind::Switch => parsed.apply_switch(name),
                FlagKind::IgnoredSwitch => parsed.note_ignored(name),
                FlagKind::Value | FlagKind::IgnoredValue => {
                    let value = given.or_else(|| words.next().cloned());
                    let value =
                        value.ok_or_else(|| wrong_value(name, "", "the value is missing"))?;
                    if *used == FlagKind::Value {
                        parsed.apply_value(name, &value)?;
                    // An empty text is how packages say that an option was not set.
                    } else if !value.is_empty() {
                        parsed.note_ignored(name);
                    }
                }
            }
        }
        Ok(parsed)
    }

    fn note_ignored(&mut self, flag: &str) {
        if !QUIET_FLAGS.contains(&flag) {
            self.ignored.push(format!("--{flag}"));
        }
    }

    fn apply_switch(&mut self, name: &str) {
        match name {
            "continue" => self.resumed = Some(ResumedTask::Newest),
            "fork-session" => self.forks = true,
            _ => self.partial_messages = true,
        }
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<(), SdkArgumentError> {
        match name {
            "input-format" => self.reads_input = value == "stream-json",
            "model" => self.spec.model = Some(value.to_owned()),
            "max-turns" => {
                let turns = value.parse();
                let turns = turns.map_err(|_| wrong_value(name, value, "it is not a number"))?;
                self.spec.limits.max_turns = Some(turns);
            }
            "max-budget-usd" => {
                let cost = value.parse();
                let cost = cost.map_err(|_| wrong_value(name, value, "it is not an amount"))?;
                self.spec.limits.max_cost = Some(cost);
            }
            "permission-mode" => self.apply_mode(value)?,
            "permission-prompt-tool" if value == "stdio" => self.has_permission_callback = true,
            "permission-prompt-tool" => {
                let reason = "only a callback of the SDK (`canUseTool`) can be asked";
                return Err(wrong_value(name, value, reason));
            }
            "allowedTools" => {
                for tool in split_names(value) {
                    // Calls that are not allowed here need an approval, so a tool without a
                    // counterpart only costs a question.
                    match find_approval(tool) {
                        Some(approval) => self.spec.rules.approve.push(approval.to_owned()),
                        None if tool.starts_with("mcp__") => {
                            self.spec.rules.allow.push(mcp_rule(tool));
                        }
                        None => self.ignored.push(format!("--allowedTools {tool}")),
                    }
                }
            }
            "disallowedTools" => {
                for tool in split_names(value) {
                    let rule = deny_rule(tool).ok_or_else(|| {
                        let reason = format!(
                            "there is no rule for `{tool}`; write deny rules into config.toml"
                        );
                        wrong_value(name, value, &reason)
                    })?;
                    if !rule.is_empty() {
                        self.spec.rules.deny.push(rule);
                    }
                }
            }
            "tools" if value != "default" => {
                let reason = "choose a mode of config.toml instead, which has its own tools";
                return Err(wrong_value(name, value, reason));
            }
            "mcp-config" if value.trim_start().starts_with('{') => self.apply_servers(value)?,
            "mcp-config" => self.server_file = Some(PathBuf::from(value)),
            "resume" => self.resumed = Some(ResumedTask::Named(value.to_owned())),
            "session-id" => {
                // It names the file of the journal.
                if !is_uuid(value) {
                    return Err(wrong_value(name, value, "it is not a UUID"));
                }
                self.session_id = Some(value.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the file that the command line names for MCP servers.
    ///
    /// # Errors
    /// When it cannot be read, or a server in it cannot be used.
    pub(crate) fn load_files(&mut self, host: &Host) -> Result<(), SessionError> {
        let Some(file) = self.server_file.take() else {
            return Ok(());
        };
        let text = host.read_settings_file(&file)?;
        self.apply_servers(&text)
            .map_err(|error| SessionError::invalid(error.to_string()))
    }

    /// Adds the servers of `{"mcpServers": {NAME: SERVER}}`.
    fn apply_servers(&mut self, value: &str) -> Result<(), SdkArgumentError> {
        let wrong = |reason: &str| wrong_value("mcp-config", value, reason);
        let config: Value = serde_json::from_str(value).map_err(|_| wrong("it is not JSON"))?;
        let servers = config.get("mcpServers").and_then(Value::as_object);
        for (name, server) in servers.into_iter().flatten() {
            // The entry is that of Sabir's own configuration, but for its type and its name.
            let mut server = server.as_object().cloned().unwrap_or_default();
            let kind = server.remove("type");
            match kind.as_ref().and_then(Value::as_str).unwrap_or("stdio") {
                "sdk" => {
                    self.program_servers.push(name.clone());
                    continue;
                }
                "stdio" | "http" => {}
                other => {
                    return Err(wrong(&format!(
                        "the server `{name}` has the type `{other}`, which is not supported"
                    )));
                }
            }
            server.insert("name".to_owned(), Value::from(name.clone()));
            let spec = serde_json::from_value(Value::Object(server));
            let spec = spec.map_err(|error| wrong(&format!("the server `{name}`: {error}")))?;
            self.spec.mcp_servers.push(spec);
        }
        Ok(())
    }

    fn apply_mode(&mut self, mode: &str) -> Result<(), SdkArgumentError> {
        match mode {
            "default" | "dontAsk" => {}
            "acceptEdits" => self.spec.rules.approve.push("edits".to_owned()),
            "bypassPermissions" => self.spec.rules.approve.push("all".to_owned()),
            "plan" => self.spec.mode = Some("plan".to_owned()),
            other => {
                return Err(wrong_value(
                    "permission-mode",
                    other,
                    "there is no such mode",
                ));
            }
        }
        Ok(())
    }
}

fn split_names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').map(str::len).collect();
    let is_digit = |c: char| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c);
    groups == [8, 4, 4, 4, 12] && text.chars().all(is_digit)
}

fn find_approval(tool: &str) -> Option<&'static str> {
    let found = APPROVALS.iter().find(|(known, _)| *known == tool);
    found.map(|(_, approval)| *approval)
}

/// Tools of Claude Code that no tool of Sabir does the work of, so that forbidding them needs no rule.
const ABSENT_TOOLS: [&str; 6] = [
    "WebSearch",
    "NotebookEdit",
    "NotebookRead",
    "ExitPlanMode",
    "EnterPlanMode",
    "LSP",
];

/// Returns the deny rule for a tool, which is empty for one that Sabir does not have; `None` if no rule says the same.
fn deny_rule(tool: &str) -> Option<String> {
    if ABSENT_TOOLS.contains(&tool) {
        return Some(String::new());
    }
    if tool.starts_with("mcp__") {
        return Some(mcp_rule(tool));
    }
    if tool == "Bash" {
        return Some("**".to_owned());
    }
    let command = tool.strip_prefix("Bash(")?.strip_suffix(')')?;
    let start = command
        .strip_suffix(":*")
        .or_else(|| command.strip_suffix(" *"));
    // A star elsewhere has another meaning there.
    let is_plain = !start.unwrap_or(command).contains('*');
    is_plain.then(|| match start {
        Some(start) => format!("{start} **"),
        None => command.to_owned(),
    })
}

/// Returns the rule for `mcp__SERVER__TOOL`, or for all tools of `mcp__SERVER`.
fn mcp_rule(tool: &str) -> String {
    let name = tool.trim_start_matches("mcp__");
    match name.split_once("__") {
        Some((server, tool)) => format!("mcp={server}/{tool}"),
        None => format!("mcp={name}/*"),
    }
}

fn wrong_value(flag: &str, value: &str, reason: &str) -> SdkArgumentError {
    SdkArgumentError::Value {
        flag: flag.to_owned(),
        value: value.chars().take(100).collect(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<SdkArguments, SdkArgumentError> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        SdkArguments::parse(&words)
    }

    #[test]
    fn command_lines_of_both_packages_are_parsed() {
        let python = "--output-format stream-json --verbose --system-prompt  --model openai/gpt-5 --permission-mode acceptEdits \
                      --permission-prompt-tool stdio --resume=abc --input-format stream-json";
        let parsed = parse(python).unwrap();
        assert_eq!(parsed.spec.model.as_deref(), Some("openai/gpt-5"));
        assert_eq!(parsed.spec.rules.approve, ["edits"]);
        assert_eq!(parsed.resumed, Some(ResumedTask::Named("abc".to_owned())));
        assert!(parsed.has_permission_callback && parsed.reads_input);
        // An empty system prompt, which the package always sends, changes nothing.
        assert_eq!(parsed.ignored, [""; 0]);
        let typescript = "--output-format stream-json --verbose --input-format stream-json --thinking=adaptive --max-turns=3 \
                          --allowedTools=Read,Bash,Skill,mcp__notes__add --include-partial-messages --disallowedTools=WebSearch,mcp__notes";
        let parsed = parse(typescript).unwrap();
        assert_eq!(parsed.spec.limits.max_turns, Some(3));
        assert_eq!(parsed.spec.rules.approve, ["reads", "commands"]);
        assert_eq!(parsed.spec.rules.allow, ["mcp=notes/add"]);
        assert_eq!(parsed.spec.rules.deny, ["mcp=notes/*"]);
        assert_eq!(parsed.ignored, ["--thinking", "--allowedTools Skill"]);
        assert!(parsed.partial_messages && !parsed.has_permission_callback);
        let line = "run --output stream-json --input-format=stream-json";
        assert!(parse(line).unwrap().reads_input);
        assert_eq!(
            parse("run fix the --output stream-json bug")
                .unwrap()
                .prompt,
            "fix the bug"
        );
        let id = "01a20e66-44e8-7551-a9b3-b5ea7ef8755a";
        let parsed = parse(&format!("--session-id={id}")).unwrap();
        assert_eq!(parsed.session_id.as_deref(), Some(id));
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        assert!(SdkArguments::is_sdk_command_line(&words));
        assert!(!SdkArguments::is_sdk_command_line(&words[1..]));
        assert_eq!(
            parse("-p -- --what is this").unwrap().prompt,
            "--what is this"
        );
    }

    #[test]
    fn limits_that_cannot_be_obeyed_are_refused() {
        for line in [
            "--disallowedTools=Edit",
            "--disallowedTools=Bash(git *push)",
            "--tools=Read",
            "--json-schema {}",
            "--permission-mode nobodyAsks",
            "--permission-prompt-tool=mcp__x",
            "--brand-new-limit 3",
            "--session-id=../../elsewhere",
            "--max-turns=many",
            "--mcp-config={\"mcpServers\":{\"a\":{\"type\":\"sse\",\"url\":\"x\"}}}",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn servers_of_programs_are_passed_on() {
        let parsed =
            parse("--mcp-config={\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":[\"y\"]}}}")
                .unwrap();
        assert_eq!(parsed.spec.mcp_servers[0].name, "a");
        let line = "--mcp-config={\"mcpServers\":{\"b\":{\"type\":\"sdk\",\"name\":\"b\"}}}";
        assert_eq!(parse(line).unwrap().program_servers, ["b"]);
    }
}
