//! Describes what a session's user can choose: modes, models and slash commands.

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, EnvVariable, HttpHeader, McpServer,
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode,
    SessionModeState, UnstructuredCommandInput,
};
use sabir_session::{McpServerSpec, McpTransport, ModelChoice, SessionChoices};

/// The id of the option that chooses the mode.
pub(crate) const MODE_OPTION: &str = "mode";
/// The id of the option that chooses the model.
pub(crate) const MODEL_OPTION: &str = "model";

/// A line of a prompt that is for Sabir and not for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SabirCommand {
    /// Compacts the context.
    Compact,
    /// Shows what fills the context.
    Context,
    /// Undoes this many changing calls, those from a checkpoint on, or those since the last message.
    Undo {
        /// The number of calls.
        calls: Option<usize>,
        /// The number of the checkpoint.
        checkpoint: Option<u32>,
    },
}

impl SabirCommand {
    /// Parses a prompt that consists of a command of Sabir alone. Any other text is a message.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        match words.as_slice() {
            ["/compact"] => Some(Self::Compact),
            ["/context"] => Some(Self::Context),
            ["/undo"] => Some(Self::Undo {
                calls: None,
                checkpoint: None,
            }),
            ["/undo", number] => match number.strip_prefix('@') {
                Some(number) => number.parse().ok().map(|number| Self::Undo {
                    calls: None,
                    checkpoint: Some(number),
                }),
                None => {
                    let calls = number.parse().ok().filter(|calls| *calls > 0);
                    calls.map(|calls| Self::Undo {
                        calls: Some(calls),
                        checkpoint: None,
                    })
                }
            },
            _ => None,
        }
    }
}

/// Returns the modes, and the present one.
pub(crate) fn mode_state(choices: &SessionChoices) -> SessionModeState {
    let modes = choices.modes.iter().map(|mode| {
        SessionMode::new(mode.name.clone(), mode.name.clone()).description(mode.about.clone())
    });
    SessionModeState::new(choices.mode.clone(), modes.collect())
}

/// Returns the options with their present values.
pub(crate) fn config_options(choices: &SessionChoices) -> Vec<SessionConfigOption> {
    let modes = choices.modes.iter().map(|mode| {
        SessionConfigSelectOption::new(mode.name.clone(), mode.name.clone())
            .description(mode.about.clone())
    });
    let models = choices.models.iter().map(|model| {
        SessionConfigSelectOption::new(model.name.clone(), model.name.clone())
            .description(window_text(model))
    });
    vec![
        SessionConfigOption::select(
            MODE_OPTION,
            "Mode",
            choices.mode.clone(),
            modes.collect::<Vec<_>>(),
        )
        .category(SessionConfigOptionCategory::Mode),
        SessionConfigOption::select(
            MODEL_OPTION,
            "Model",
            choices.model.name.clone(),
            models.collect::<Vec<_>>(),
        )
        .category(SessionConfigOptionCategory::Model),
    ]
}

fn window_text(model: &ModelChoice) -> Option<String> {
    let window = model.window?;
    Some(format!("{} K tokens of context", window.div_ceil(1000)))
}

/// Returns the commands that a prompt may begin with: Sabir's own, and those of the folder and the user.
pub(crate) fn available_commands(choices: &SessionChoices) -> Vec<AvailableCommand> {
    let hint = |text: &str| {
        AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(text.to_owned()))
    };
    let own = [
        AvailableCommand::new("compact", "Compact the context"),
        AvailableCommand::new("context", "Show what fills the context"),
        AvailableCommand::new(
            "undo",
            "Undo what was changed since your last message, by the last N calls, or from checkpoint @N on",
        )
        .input(hint("number of calls, or @ and the number of a checkpoint")),
    ];
    let custom = choices.commands.commands().into_iter().map(|command| {
        let input = Some(command.argument_hint.as_str()).filter(|text| !text.is_empty());
        AvailableCommand::new(command.name.clone(), command.description.clone())
            .input(input.map(hint))
    });
    own.into_iter().chain(custom).collect()
}

/// Converts the MCP servers of a client, and returns the names of those that cannot be reached from here.
pub(crate) fn mcp_servers(servers: Vec<McpServer>) -> (Vec<McpServerSpec>, Vec<String>) {
    let mut specs = Vec::new();
    let mut others = Vec::new();
    for server in servers {
        let (name, transport) = match server {
            McpServer::Stdio(server) => (
                server.name,
                McpTransport::Stdio {
                    command: server.command.display().to_string(),
                    args: server.args,
                    env: server
                        .env
                        .into_iter()
                        .map(|EnvVariable { name, value, .. }| (name, value))
                        .collect(),
                },
            ),
            McpServer::Http(server) => (
                server.name,
                McpTransport::at_address(
                    server.url,
                    server
                        .headers
                        .into_iter()
                        .map(|HttpHeader { name, value, .. }| (name, value))
                        .collect(),
                ),
            ),
            McpServer::Sse(server) => {
                others.push(server.name);
                continue;
            }
            _ => continue,
        };
        specs.push(McpServerSpec {
            name,
            transport,
            start_seconds: None,
            call_seconds: None,
            required: false,
            disabled: false,
            tools: Default::default(),
        });
    }
    (specs, others)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{McpServerHttp, McpServerSse, McpServerStdio};

    use super::*;

    #[test]
    fn only_a_whole_line_is_a_command() {
        let parse = SabirCommand::parse;
        assert_eq!(parse("/compact"), Some(SabirCommand::Compact));
        assert_eq!(parse(" /context\n"), Some(SabirCommand::Context));
        let undo = |calls, checkpoint| Some(SabirCommand::Undo { calls, checkpoint });
        assert_eq!(parse("/undo"), undo(None, None));
        assert_eq!(parse("/undo 3"), undo(Some(3), None));
        assert_eq!(parse("/undo @3"), undo(None, Some(3)));
        for message in [
            "/undo 0",
            "/undo x",
            "/undo @x",
            "/compact it",
            "compact",
            "/etc/hosts",
        ] {
            assert_eq!(parse(message), None, "{message}");
        }
    }

    #[test]
    fn servers_that_cannot_be_reached_are_named() {
        let stdio = McpServerStdio::new("a", "/bin/a")
            .args(vec!["-x".to_owned()])
            .env(vec![EnvVariable::new("K", "v")]);
        let http = McpServerHttp::new("b", "http://localhost/mcp")
            .headers(vec![HttpHeader::new("H", "w")]);
        let (specs, others) = mcp_servers(vec![
            McpServer::Stdio(stdio),
            McpServer::Http(http),
            McpServer::Sse(McpServerSse::new("c", "http://localhost/sse")),
        ]);
        assert_eq!(others, ["c"]);
        let [first, second] = specs.try_into().unwrap();
        assert!(
            matches!(first.transport, McpTransport::Stdio { command, args, env }
            if command == "/bin/a" && args == ["-x"] && env["K"] == "v")
        );
        assert!(
            matches!(second.transport, McpTransport::Http { url, headers, .. }
            if url.ends_with("/mcp") && headers["H"] == "w")
        );
    }
}
