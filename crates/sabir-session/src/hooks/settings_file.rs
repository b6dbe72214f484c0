//! Reads the hooks of a settings file of Claude Code, or of a file that holds the same.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::PROJECT_VARIABLES;
use super::event::HookEvent;
use super::matcher::{Condition, Matcher};

/// The most hooks of one file.
const MAX_HOOKS: usize = 100;

/// A hook, as a file defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookSpec {
    /// The moment.
    pub event: HookEvent,
    /// The names of tools, or the reasons of the event, that it is for; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub matcher: String,
    /// A narrower condition over the command or the path of a call, such as `Bash(git push *)`.
    #[serde(rename = "if", default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The command line.
    pub command: String,
    /// The seconds after which it is ended.
    pub timeout_seconds: u64,
    /// True if a hook that fails blocks, as one that exits with 2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocks_on_failure: bool,
}

impl HookSpec {
    /// Returns the time after which it is ended.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

/// The hooks of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedHooks {
    pub(super) hooks: Vec<HookSpec>,
    /// The entries that cannot be used, each as a sentence.
    pub(super) problems: Vec<String>,
}

/// The reason why an entry cannot be used.
#[derive(Debug, thiserror::Error)]
enum HookProblem {
    #[error("it is not an object")]
    Shape,
    #[error("the matcher cannot be used: {0}")]
    Matcher(regex::Error),
    #[error("the condition `if` cannot be used: {0}")]
    Condition(regex::Error),
    #[error("hooks of the type `{0}` are not supported, only `command`")]
    Type(String),
    #[error("it has no `command`")]
    NoCommand,
    #[error("its `args` are not a list of texts")]
    Arguments,
}

/// Reads the hooks of a file.
///
/// # Errors
/// When it is not a JSON object.
pub(super) fn parse_hooks(text: &str) -> Result<ParsedHooks, serde_json::Error> {
    let root: Map<String, Value> = serde_json::from_str(text.trim_start_matches('\u{feff}'))?;
    let mut parsed = ParsedHooks::default();
    // It speaks for its own file alone: a repository must not switch off the hooks of the user.
    if root.get("disableAllHooks").and_then(Value::as_bool) == Some(true) {
        return Ok(parsed);
    }
    let Some(events) = root.get("hooks").and_then(Value::as_object) else {
        return Ok(parsed);
    };
    for (name, groups) in events {
        let Some(event) = HookEvent::from_name(name) else {
            let known = HookEvent::ALL.map(HookEvent::name).join(", ");
            parsed.problems.push(format!(
                "hooks of the event `{name}` do not run: there are {known}"
            ));
            continue;
        };
        for group in groups.as_array().into_iter().flatten() {
            parsed.add_group(event, group);
        }
    }
    Ok(parsed)
}

impl ParsedHooks {
    fn add_group(&mut self, event: HookEvent, group: &Value) {
        let matcher = group.get("matcher").and_then(Value::as_str);
        let entries = group.get("hooks").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            // Each of them costs a process for every call that it fits.
            if self.hooks.len() >= MAX_HOOKS {
                let text = format!("hooks after the first {MAX_HOOKS} do not run");
                return self.problems.push(text);
            }
            match parse_hook(event, matcher.unwrap_or_default(), entry) {
                Ok(hook) => self.hooks.push(hook),
                Err(problem) => self.problems.push(format!(
                    "a hook of {} does not run: {problem}",
                    event.name()
                )),
            }
        }
    }
}

fn parse_hook(event: HookEvent, matcher: &str, entry: &Value) -> Result<HookSpec, HookProblem> {
    let entry = entry.as_object().ok_or(HookProblem::Shape)?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let kind = text("type").unwrap_or("command");
    if kind != "command" {
        return Err(HookProblem::Type(kind.to_owned()));
    }
    let command = text("command")
        .filter(|command| !command.trim().is_empty())
        .ok_or(HookProblem::NoCommand)?;
    // Compiled here, so that a mistake is a problem of the file and not a hook that never fits.
    Matcher::parse(matcher).map_err(HookProblem::Matcher)?;
    if let Some(condition) = text("if") {
        Condition::parse(condition).map_err(HookProblem::Condition)?;
    }
    // Written as a whole number or with a part of a second.
    let seconds = entry.get("timeout").and_then(Value::as_f64);
    let longest = Duration::from_secs(event.max_timeout_seconds());
    let time = seconds
        .filter(|seconds| *seconds > 0.0)
        .map(|seconds| Duration::from_secs_f64(seconds.min(longest.as_secs_f64())));
    // A part of a second is rounded up: 0 would be no time at all.
    let whole = time.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    Ok(HookSpec {
        event,
        matcher: matcher.trim().to_owned(),
        condition: text("if").map(str::to_owned),
        command: command_line(command, entry.get("args"))?,
        timeout_seconds: whole.unwrap_or(event.default_timeout_seconds()),
        blocks_on_failure: text("onFailure") == Some("block"),
    })
}

/// Returns the command line of a hook. With `args` the command is a program, and each of them one word that no shell looks at.
fn command_line(command: &str, args: Option<&Value>) -> Result<String, HookProblem> {
    let Some(args) = args.filter(|args| !args.is_null()) else {
        return Ok(command.to_owned());
    };
    let args = args.as_array().ok_or(HookProblem::Arguments)?;
    let mut line = quote_word(command);
    for argument in args {
        let argument = argument.as_str().ok_or(HookProblem::Arguments)?;
        line.push(' ');
        line.push_str(&quote_word(argument));
    }
    Ok(line)
}

/// Quotes a word for the shell, in which only the folder of the project has its meaning.
fn quote_word(word: &str) -> String {
    let quoted = format!("'{}'", word.replace('\'', r"'\''"));
    PROJECT_VARIABLES.iter().fold(quoted, |text, name| {
        text.replace(&format!("${{{name}}}"), &format!("'\"${name}\"'"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_file_is_read_entry_by_entry() {
        let text = r#"{"permissions": {}, "hooks": {
            "PreToolUse": [
                {"matcher": "Bash", "hooks": [
                    {"type": "command", "command": "check", "timeout": 5, "if": "Bash(rm *)"},
                    {"type": "prompt", "prompt": "x"},
                    {"type": "command", "command": " "}
                ]},
                {"matcher": "(", "hooks": [{"type": "command", "command": "x"}]}
            ],
            "Stop": [{"hooks": [{"type": "command", "command": "done", "timeout": 1e9, "onFailure": "block"}]}],
            "SessionEnd": [{"hooks": [{"command": "bye", "timeout": 3600}]}],
            "Sometimes": []
        }}"#;
        let parsed = parse_hooks(text).unwrap();
        let check = HookSpec {
            event: HookEvent::PreToolUse,
            matcher: "Bash".to_owned(),
            condition: Some("Bash(rm *)".to_owned()),
            command: "check".to_owned(),
            timeout_seconds: 5,
            blocks_on_failure: false,
        };
        assert_eq!(parsed.hooks[0], check);
        let find = |event| parsed.hooks.iter().find(|hook| hook.event == event);
        let stop = find(HookEvent::Stop).unwrap();
        assert_eq!(stop.timeout_seconds, 3600);
        assert!(stop.blocks_on_failure);
        let end = find(HookEvent::SessionEnd).unwrap();
        assert_eq!(end.timeout_seconds, 60);
        assert_eq!(parsed.hooks.len(), 3);
        let problems = parsed.problems.join("\n");
        for said in ["`prompt`", "no `command`", "matcher", "`Sometimes`"] {
            assert!(problems.contains(said), "{said}: {problems}");
        }
        let with_args = r#"{"hooks": {"Stop": [{"hooks": [
            {"command": "node", "args": ["${CLAUDE_PROJECT_DIR}/a b.js", "it's $HOME"]},
            {"command": "node", "args": "x"}
        ]}]}}"#;
        let parsed = parse_hooks(with_args).unwrap();
        let line = r#"'node' ''"$CLAUDE_PROJECT_DIR"'/a b.js' 'it'\''s $HOME'"#;
        assert_eq!(parsed.hooks[0].command, line);
        assert_eq!(parsed.hooks[0].timeout_seconds, 600);
        assert!(parsed.problems[0].contains("`args`"));
        assert!(parse_hooks("[]").is_err());
        assert_eq!(parse_hooks("{}").unwrap(), ParsedHooks::default());
        let off =
            r#"{"disableAllHooks": true, "hooks": {"Stop": [{"hooks": [{"command": "x"}]}]}}"#;
        assert_eq!(parse_hooks(off).unwrap(), ParsedHooks::default());
    }
}
