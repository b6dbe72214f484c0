//! Reads the command line that the Claude Agent SDK gives to the program it drives.
//!
//! Every flag is in one table: what Sabir does with it, or that it does nothing. A flag that restricts what may happen, and that Sabir
//! cannot carry out, is an error, and so is one that is not in the table: a program must not believe in a limit that is not there.

use sabir_session::{McpServerSpec, SessionSpec};
use serde_json::Value;

/// The treatment of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagUse {
    /// It takes a value and is used.
    Value,
    /// It is used and takes no value.
    Switch,
    /// It takes a value and does nothing.
    IgnoredValue,
    /// It does nothing and takes no value.
    IgnoredSwitch,
    /// It cannot be carried out.
    Refused,
}

/// All flags.
const FLAGS: [(&str, FlagUse); 47] = [
    ("output-format", FlagUse::Value),
    ("input-format", FlagUse::Value),
    ("model", FlagUse::Value),
    ("max-turns", FlagUse::Value),
    ("max-budget-usd", FlagUse::Value),
    ("permission-mode", FlagUse::Value),
    ("permission-prompt-tool", FlagUse::Value),
    ("allowedTools", FlagUse::Value),
    ("disallowedTools", FlagUse::Value),
    ("tools", FlagUse::Value),
    ("mcp-config", FlagUse::Value),
    ("resume", FlagUse::Value),
    ("session-id", FlagUse::Value),
    ("continue", FlagUse::Switch),
    ("fork-session", FlagUse::Switch),
    ("include-partial-messages", FlagUse::Switch),
    ("verbose", FlagUse::IgnoredSwitch),
    ("print", FlagUse::IgnoredSwitch),
    ("allow-dangerously-skip-permissions", FlagUse::IgnoredSwitch),
    ("include-hook-events", FlagUse::IgnoredSwitch),
    ("debug", FlagUse::IgnoredSwitch),
    ("debug-to-stderr", FlagUse::IgnoredSwitch),
    ("replay-user-messages", FlagUse::IgnoredSwitch),
    ("session-mirror", FlagUse::IgnoredSwitch),
    ("await-initialize", FlagUse::IgnoredSwitch),
    ("system-prompt", FlagUse::IgnoredValue),
    ("append-system-prompt", FlagUse::IgnoredValue),
    ("system-prompt-file", FlagUse::IgnoredValue),
    ("setting-sources", FlagUse::IgnoredValue),
    ("settings", FlagUse::IgnoredValue),
    ("betas", FlagUse::IgnoredValue),
    ("thinking", FlagUse::IgnoredValue),
    ("thinking-display", FlagUse::IgnoredValue),
    ("max-thinking-tokens", FlagUse::IgnoredValue),
    ("effort", FlagUse::IgnoredValue),
    ("fallback-model", FlagUse::IgnoredValue),
    ("add-dir", FlagUse::IgnoredValue),
    ("plugin-dir", FlagUse::IgnoredValue),
    ("debug-file", FlagUse::IgnoredValue),
    ("agent", FlagUse::IgnoredValue),
    ("project-config-root", FlagUse::IgnoredValue),
    ("task-budget", FlagUse::Refused),
    ("json-schema", FlagUse::Refused),
    ("resume-session-at", FlagUse::Refused),
    ("resume-drops-turn", FlagUse::Refused),
    ("strict-mcp-config", FlagUse::Refused),
    ("no-session-persistence", FlagUse::Refused),
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

/// The command line, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SdkArguments {
    /// The changes to the spec of the session.
    pub spec: SessionSpec,
    /// The task to continue: its name, or the newest of the folder.
    pub resumed: Option<ResumedTask>,
    /// True if the resumed task is forked.
    pub forks: bool,
    /// The id for a new task.
    pub session_id: Option<String>,
    /// True if the program answers questions about calls.
    pub asks: bool,
    /// True if pieces of answers are printed.
    pub partial: bool,
    /// True if messages come on standard input.
    pub reads_stream: bool,
    /// The prompt on the command line.
    pub prompt: String,
    /// The flags that were given and do nothing.
    pub ignored: Vec<String>,
}

/// The task that is continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumedTask {
    /// The one of this name.
    Named(String),
    /// The newest of the folder.
    Newest,
}

/// The reason why a command line cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdkArgumentError {
    /// The flag is not known.
    #[error("--{0} is not known, so it cannot be kept to; see `sabir help agent-sdk`")]
    Unknown(String),
    /// The flag cannot be carried out.
    #[error("--{0} cannot be carried out; see `sabir help agent-sdk`")]
    Refused(String),
    /// The flag has no value, or one that cannot be used.
    #[error("--{flag} {value}: {reason}")]
    Value {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
        /// The reason.
        reason: String,
    },
}

impl SdkArguments {
    /// Returns true if a command line, without the name of the program, is that of the SDK: it asks for `--output-format stream-json`.
    pub fn is_meant(arguments: &[String]) -> bool {
        let pair = ["--output-format", "stream-json"];
        arguments.windows(2).any(|words| words == pair)
            || arguments
                .iter()
                .any(|word| word == "--output-format=stream-json")
    }

    /// Parses a command line, without the name of the program.
    ///
    /// # Errors
    /// When a flag is unknown, cannot be carried out, or has a wrong value.
    pub fn parse(arguments: &[String]) -> Result<Self, SdkArgumentError> {
        let mut read = Self::default();
        let mut words = arguments.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else {
                match word.as_str() {
                    "-p" => {}
                    "-c" => read.resumed = Some(ResumedTask::Newest),
                    prompt => read.prompt = prompt.to_owned(),
                }
                continue;
            };
            let (name, given) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let known = FLAGS.iter().find(|(known, _)| *known == name);
            let Some((_, used)) = known else {
                return Err(SdkArgumentError::Unknown(name.to_owned()));
            };
            match used {
                FlagUse::Refused => return Err(SdkArgumentError::Refused(name.to_owned())),
                FlagUse::Switch => read.apply_switch(name),
                FlagUse::IgnoredSwitch => read.ignored.push(name.to_owned()),
                FlagUse::Value | FlagUse::IgnoredValue => {
                    let value = given.or_else(|| words.next().cloned());
                    let value = value.ok_or_else(|| wrong(name, "", "the value is missing"))?;
                    if *used == FlagUse::Value {
                        read.apply_value(name, &value)?;
                    } else if !value.is_empty() {
                        read.ignored.push(name.to_owned());
                    }
                }
            }
        }
        Ok(read)
    }

    fn apply_switch(&mut self, name: &str) {
        match name {
            "continue" => self.resumed = Some(ResumedTask::Newest),
            "fork-session" => self.forks = true,
            _ => self.partial = true,
        }
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<(), SdkArgumentError> {
        match name {
            "input-format" => self.reads_stream = value == "stream-json",
            "model" => self.spec.model = Some(value.to_owned()),
            "max-turns" => {
                let turns = value.parse();
                let turns = turns.map_err(|_| wrong(name, value, "it is no number"))?;
                self.spec.limits.max_turns = Some(turns);
            }
            "max-budget-usd" => {
                let cost = value.parse();
                let cost = cost.map_err(|_| wrong(name, value, "it is no amount"))?;
                self.spec.limits.max_cost = Some(cost);
            }
            "permission-mode" => self.apply_mode(value)?,
            "permission-prompt-tool" if value == "stdio" => self.asks = true,
            "permission-prompt-tool" => {
                return Err(wrong(name, value, "only the SDK itself can be asked"));
            }
            "allowedTools" => {
                for tool in value.split(',').map(str::trim) {
                    // What is not allowed here is asked about, so a tool without a counterpart loses nothing but comfort.
                    let found = APPROVALS.iter().find(|(known, _)| *known == tool);
                    match found {
                        Some((_, approval)) => self.spec.rules.approve.push((*approval).to_owned()),
                        None => self.ignored.push(format!("allowedTools {tool}")),
                    }
                }
            }
            "disallowedTools" if !value.is_empty() => {
                return Err(wrong(name, value, "write deny rules into config.toml"));
            }
            "tools" if value != "default" => {
                return Err(wrong(name, value, "choose a mode of config.toml instead"));
            }
            "mcp-config" => self.spec.mcp_servers = parse_servers(value)?,
            "resume" => self.resumed = Some(ResumedTask::Named(value.to_owned())),
            "session-id" => self.session_id = Some(value.to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn apply_mode(&mut self, mode: &str) -> Result<(), SdkArgumentError> {
        match mode {
            "default" => {}
            "acceptEdits" => self.spec.rules.approve.push("edits".to_owned()),
            "bypassPermissions" => self.spec.rules.approve.push("all".to_owned()),
            "plan" => self.spec.mode = Some("plan".to_owned()),
            other => return Err(wrong("permission-mode", other, "there is no such mode")),
        }
        Ok(())
    }
}

fn wrong(flag: &str, value: &str, reason: &str) -> SdkArgumentError {
    SdkArgumentError::Value {
        flag: flag.to_owned(),
        value: value.chars().take(100).collect(),
        reason: reason.to_owned(),
    }
}

/// Reads `{"mcpServers": {NAME: SERVER}}`. Servers inside the SDK's own process cannot be reached.
fn parse_servers(text: &str) -> Result<Vec<McpServerSpec>, SdkArgumentError> {
    let wrong = |reason: &str| wrong("mcp-config", text, reason);
    let config: Value = serde_json::from_str(text).map_err(|_| wrong("it is no JSON"))?;
    let servers = config.get("mcpServers").and_then(Value::as_object);
    let mut specs = Vec::new();
    for (name, server) in servers.into_iter().flatten() {
        let mut server = server.as_object().cloned().unwrap_or_default();
        let kind = server.remove("type");
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or("stdio");
        if !matches!(kind, "stdio" | "http") {
            return Err(wrong("only servers of the types stdio and http can be used"));
        }
        server.insert("name".to_owned(), Value::from(name.clone()));
        let spec = serde_json::from_value(Value::Object(server));
        specs.push(spec.map_err(|_| wrong("a server is not written as it should be"))?);
    }
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<SdkArguments, SdkArgumentError> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        SdkArguments::parse(&words)
    }

    #[test]
    fn the_command_lines_of_both_sdks_are_read() {
        let python = "--output-format stream-json --verbose --system-prompt  --model openai/gpt-5 --permission-mode acceptEdits \
                      --permission-prompt-tool stdio --resume=abc --input-format stream-json";
        let read = parse(python).unwrap();
        assert_eq!(read.spec.model.as_deref(), Some("openai/gpt-5"));
        assert_eq!(read.spec.rules.approve, ["edits"]);
        assert_eq!(read.resumed, Some(ResumedTask::Named("abc".to_owned())));
        assert!(read.asks && read.reads_stream);
        // The empty system prompt that the SDK always sends is not worth a word.
        assert_eq!(read.ignored, ["verbose"]);
        let typescript = "--output-format stream-json --verbose --input-format stream-json --thinking=adaptive --max-turns=3 \
                          --allowedTools=Read,Bash,Skill --include-partial-messages";
        let read = parse(typescript).unwrap();
        assert_eq!(read.spec.limits.max_turns, Some(3));
        assert_eq!(read.spec.rules.approve, ["reads", "commands"]);
        assert_eq!(read.ignored, ["verbose", "thinking", "allowedTools Skill"]);
        assert!(read.partial && !read.asks);
    }

    #[test]
    fn limits_that_cannot_be_kept_to_are_refused() {
        for line in [
            "--disallowedTools=Bash",
            "--tools=Read",
            "--json-schema {}",
            "--permission-mode nobodyAsks",
            "--permission-prompt-tool=mcp__x",
            "--brand-new-limit 3",
            "--max-turns=many",
            "--mcp-config={\"mcpServers\":{\"a\":{\"type\":\"sdk\",\"name\":\"a\"}}}",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn servers_of_programs_are_passed_on() {
        let read = parse("--mcp-config={\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":[\"y\"]}}}").unwrap();
        assert_eq!(read.spec.mcp_servers[0].name, "a");
    }
}
