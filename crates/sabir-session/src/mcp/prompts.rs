//! Offers the prompts of a session's servers as commands: `/mcp__SERVER__PROMPT`, the names that Claude Code gives them.

use std::collections::HashSet;
use std::sync::Arc;

use sabir_agent::UserMessage;
use sabir_mcp::{McpServers, PromptArgument, ServerPrompt};
use serde_json::{Map, Value};

use crate::custom_commands::{CustomCommand, CustomCommandError, clean_foreign_text, split_words};
use crate::hub::EventHub;

/// The beginning of the names of these commands.
pub(crate) const PROMPT_PREFIX: &str = "mcp__";

/// The prompts of the servers of a session.
#[derive(Clone)]
pub(crate) struct PromptCommands {
    hub: EventHub,
}

impl PromptCommands {
    pub(crate) fn new(hub: &EventHub) -> Self {
        Self { hub: hub.clone() }
    }

    /// Returns the commands of the servers that are ready now.
    pub(crate) fn commands(&self) -> Vec<CustomCommand> {
        let servers = self.hub.servers();
        let prompts = servers.map(|servers| servers.prompts()).unwrap_or_default();
        let mut seen = HashSet::new();
        let mut commands: Vec<_> = prompts.iter().map(describe_prompt).collect();
        // Those with one name are one line, which is refused when it is sent.
        commands.retain(|command| seen.insert(command.name.clone()));
        commands
    }

    /// Returns true if a line begins with the name of a prompt of a server that is ready.
    pub(crate) fn is_prompt_line(&self, line: &str) -> bool {
        self.find_prompt(line).is_some()
    }

    /// Waits for the server that a line names, if it is being started.
    pub(crate) async fn wait_for_server(&self, line: &str) {
        if let Some(servers) = self.hub.servers() {
            servers
                .wait_started(|spec| {
                    let prefix = format!("/{PROMPT_PREFIX}{}__", plain_name(&spec.name));
                    line.starts_with(&prefix)
                })
                .await;
        }
    }

    /// Returns the message for a line that begins with the name of a prompt; `None` for any other line.
    ///
    /// # Errors
    /// When an argument is missing, or the server does not give the prompt.
    pub(crate) async fn expand_line(
        &self,
        line: &str,
    ) -> Option<Result<UserMessage, CustomCommandError>> {
        let found = self.find_prompt(line)?;
        Some(found.expand(line).await)
    }

    fn find_prompt(&self, line: &str) -> Option<FoundPrompt> {
        let name = line.split_whitespace().next()?.strip_prefix('/')?;
        // Most messages are not prompts, so no server is searched for them.
        if !name.starts_with(PROMPT_PREFIX) {
            return None;
        }
        let servers = self.hub.servers()?;
        let mut prompts: Vec<_> = servers
            .prompts()
            .into_iter()
            .filter(|prompt| command_name(prompt) == name)
            .collect();
        if prompts.is_empty() {
            return None;
        }
        let prompt = prompts.remove(0);
        let others = prompts;
        Some(FoundPrompt {
            servers,
            prompt,
            others,
        })
    }
}

impl std::fmt::Debug for PromptCommands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.commands()).finish()
    }
}

/// A prompt with the servers that can be asked for it.
struct FoundPrompt {
    servers: Arc<McpServers>,
    prompt: ServerPrompt,
    /// Those that have the same name as a command.
    others: Vec<ServerPrompt>,
}

impl FoundPrompt {
    async fn expand(self, line: &str) -> Result<UserMessage, CustomCommandError> {
        let prompt = &self.prompt;
        let fail = |reason: String| CustomCommandError {
            name: command_name(prompt),
            path: describe_server(prompt),
            reason,
        };
        // One server must not answer for another, and which of them was meant cannot be known.
        if let Some(other) = self.others.first() {
            return Err(fail(format!(
                "and {} have prompts of this name, `{}` and `{}`; give one server another name in your configuration",
                describe_server(other),
                plain_name(&prompt.name),
                plain_name(&other.name)
            )));
        }
        let line = line.trim_end();
        let (_, given) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let arguments = assign_words(&prompt.arguments, given);
        let missing = prompt
            .arguments
            .iter()
            .find(|argument| argument.is_required && !arguments.contains_key(&argument.name));
        if let Some(missing) = missing {
            return Err(fail(format!(
                "needs `{}`: /{} {}",
                missing.name,
                command_name(prompt),
                argument_hint(&prompt.arguments)
            )));
        }
        let content = self
            .servers
            .get_prompt(&prompt.server, &prompt.name, arguments)
            .await
            .map_err(|error| fail(format!("gave no text: {error}")))?;
        // The line that was typed comes first, so that the history shows what the user did.
        let mut text = format!(
            "{line}\n\nThe text of this command, from {}:\n\n{}",
            describe_server(prompt),
            clean_foreign_text(content.text.trim())
        );
        if prompt.arguments.is_empty() && !given.trim().is_empty() {
            text.push_str(&format!("\n\nArguments: {}", given.trim()));
        }
        Ok(UserMessage {
            text,
            images: content.images,
        })
    }
}

/// Gives each argument a word, in order, and the last one all that is left.
fn assign_words(arguments: &[PromptArgument], given: &str) -> Map<String, Value> {
    let mut words = split_words(given).into_iter();
    let mut assigned = Map::new();
    for (at, argument) in arguments.iter().enumerate() {
        let is_last = at + 1 == arguments.len();
        let value = match is_last {
            true => words.by_ref().collect::<Vec<_>>().join(" "),
            false => words.next().unwrap_or_default(),
        };
        if !value.is_empty() {
            assigned.insert(argument.name.clone(), Value::from(value));
        }
    }
    assigned
}

fn describe_prompt(prompt: &ServerPrompt) -> CustomCommand {
    CustomCommand::from_mcp_prompt(
        command_name(prompt),
        &prompt.description,
        &argument_hint(&prompt.arguments),
        describe_server(prompt),
    )
}

fn describe_server(prompt: &ServerPrompt) -> String {
    format!("the MCP server {}", prompt.server)
}

fn command_name(prompt: &ServerPrompt) -> String {
    let server = plain_name(&prompt.server);
    format!("{PROMPT_PREFIX}{server}__{}", plain_name(&prompt.name))
}

/// Returns a name with a `_` in the place of everything that cannot be in a command's name.
fn plain_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

/// Returns what a user writes after the name: `TOPIC [STYLE]`.
fn argument_hint(arguments: &[PromptArgument]) -> String {
    let hints = arguments.iter().map(|argument| {
        let name = plain_name(&argument.name).to_ascii_uppercase();
        match argument.is_required {
            true => name,
            false => format!("[{name}]"),
        }
    });
    hints.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_arguments_in_order() {
        let argument = |name: &str| PromptArgument {
            name: name.to_owned(),
            is_required: name == "topic",
        };
        let both = [argument("topic"), argument("style")];
        let check = |arguments: &[PromptArgument], given: &str, expected: &str| {
            let assigned = Value::Object(assign_words(arguments, given));
            assert_eq!(assigned.to_string(), expected, "{given}");
        };
        check(&both, "", "{}");
        check(&both, "a", r#"{"topic":"a"}"#);
        check(&both, "\"a b\" c d", r#"{"topic":"a b","style":"c d"}"#);
        check(&[], "a", "{}");
        assert_eq!(argument_hint(&both), "TOPIC [STYLE]");
        assert_eq!(plain_name("my server/1"), "my_server_1");
    }
}
