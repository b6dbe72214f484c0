//! Implements `mcp`: lists, adds, removes, trusts, tests and logs in to MCP servers, and serves
//! Sabir's tools over MCP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sabir_session::config::Config;
use sabir_session::mcp::protocol::{ToolServer, serve_over_streams};
use sabir_session::mcp::{
    FoundServer, LaunchState, LoginState, ServerSource, add_server, call_tool, find_servers,
    login_state, remove_server, served_tools, test_server, trust_servers,
};
use sabir_session::{McpServerSpec, McpTransport, RuleSpec, SessionError};
use serde_json::json;

use crate::mcp_http::{HttpOptions, serve_http};
use crate::mcp_login::{LoginArguments, run_login, run_logout};
use crate::mcp_toolbox::{help_resources, toolbox_tools};
use crate::screen::ExitBySignal;
use crate::{print, stdin_reader};

/// The words that models of other programs read about the served tools.
const INSTRUCTIONS: &str = "The tools of the coding agent Sabir, for one folder: reading, searching and changing files, running commands in a sandbox. \
    parse_calls, check_calls, lint_tools and edit_text read, check and lint tool calls in any format, and apply edits as models write them. \
    The resources are pages about all of this.";

/// Options of `sabir mcp`.
#[derive(Debug, Args)]
pub struct McpArguments {
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// List the MCP servers of this folder, with their commands and their origins.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a server to your configuration: `sabir mcp add NAME URL`, or `sabir mcp add NAME -- COMMAND ARGUMENTS`.
    Add {
        /// The name.
        name: String,
        /// The address, or the program with its arguments.
        #[arg(required = true)]
        target: Vec<String>,
        /// A variable for the program's environment; `${NAME}` stands for the value in your environment. May be given several
        /// times.
        #[arg(long, value_name = "NAME=VALUE")]
        env: Vec<String>,
        /// A header of each request to the address. May be given several times.
        #[arg(long, value_name = "NAME=VALUE")]
        header: Vec<String>,
    },
    /// Remove a server from your configuration.
    Remove {
        /// The name.
        name: String,
    },
    /// Trust servers of this repository in their present state: all, or those with these names. A server that changes must be
    /// trusted again.
    Trust {
        /// The names.
        names: Vec<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Start a server, list its tools, and end it.
    Test {
        /// The name.
        name: String,
        /// Print JSON, with the definitions of the tools.
        #[arg(long)]
        json: bool,
    },
    /// Log in to a server that asks for it, with your browser. The tokens are kept on this machine
    /// and renewed automatically.
    Login(LoginArguments),
    /// Remove the login of a server from this machine.
    Logout {
        /// The name of the server, or an address.
        name: String,
    },
    /// Call a tool of a server yourself, to try it.
    Call {
        /// The name of the server, or an address.
        server: String,
        /// The tool, by its name at the server.
        tool: String,
        /// The arguments, as a JSON object.
        #[arg(default_value = "{}")]
        arguments: String,
    },
    /// Serve Sabir's tools to another agent, over standard input and output, or over HTTP.
    Serve {
        /// The folder to work in.
        #[arg(long, short = 'C')]
        folder: Option<PathBuf>,
        /// Allow the other agent these actions without asking, as for `sabir run`. By default it may only read.
        #[arg(long, value_name = "RULE")]
        approve: Vec<String>,
        /// Allow calls that match this pattern. May be given several times.
        #[arg(long, value_name = "PATTERN")]
        allow: Vec<String>,
        /// Deny calls that match this pattern. May be given several times.
        #[arg(long, value_name = "PATTERN")]
        deny: Vec<String>,
        #[command(flatten)]
        http: HttpOptions,
    },
}

/// Runs `sabir mcp`. `named` is the configuration file that the command line names; `exit` ends the process at the second signal.
/// Returns false if the user said no, or a called tool failed.
///
/// # Errors
/// When a server does not exist or does not work, or a file cannot be read or changed.
pub async fn run_mcp_command(
    arguments: &McpArguments,
    config: &Config,
    named: Option<&Path>,
    exit: ExitBySignal,
) -> Result<bool, SessionError> {
    let here = Path::new(".");
    match &arguments.command {
        McpCommand::List { json } => list_servers(config, *json)?,
        McpCommand::Add {
            name,
            target,
            env,
            header,
        } => {
            let spec = McpServerSpec::new(name, parse_target(target, env, header)?);
            let path = add_server(&spec, config, named)?;
            print_message(&format!(
                "added {name} to {}: {}; `sabir mcp test {name}` tries it",
                path.display(),
                spec.launch_line()
            ));
        }
        McpCommand::Remove { name } => {
            let path = remove_server(name, config, named)?;
            print_message(&format!("removed {name} from {}", path.display()));
        }
        McpCommand::Trust { names, yes } => return trust_repository(config, names, *yes),
        McpCommand::Test { name, json } => {
            let test = test_server(name, config, here).await?;
            if *json {
                print::print_json(&test);
            } else {
                let mut text = format!(
                    "{name} works: {}, {}, {}\n",
                    print::count_noun(test.definitions.len(), "tool"),
                    print::count_noun(test.status.resources, "resource"),
                    print::count_noun(test.status.prompts.len(), "prompt"),
                );
                for (shown, tool) in test.status.tools.iter().zip(&test.definitions) {
                    let first = tool.description.lines().next().unwrap_or_default();
                    text.push_str(&format!("  {shown}  {first}\n"));
                }
                print::write_stdout(&print::sanitize_text(&text));
            }
        }
        McpCommand::Login(arguments) => run_login(arguments, config).await?,
        McpCommand::Logout { name } => run_logout(name, config).await?,
        McpCommand::Call {
            server,
            tool,
            arguments,
        } => {
            let arguments = serde_json::from_str(arguments).map_err(|error| {
                SessionError::invalid(format!("the arguments are not JSON object: {error}"))
            })?;
            let show = &mut |line: &str| print::write_stderr(&print::sanitize_text(line));
            let output = call_tool(server, tool, &arguments, config, show).await?;
            print::write_stdout(&print::sanitize_text(&format!("{}\n", output.content)));
            for image in &output.images {
                print_message(&format!("an image of the type {}", image.media_type));
            }
            return Ok(!output.failed);
        }
        McpCommand::Serve {
            folder,
            approve,
            allow,
            deny,
            http,
        } => {
            let rules = RuleSpec {
                approve: approve.clone(),
                allow: allow.clone(),
                deny: deny.clone(),
                ask: Vec::new(),
            };
            let mut tools = served_tools(config, folder.clone(), rules)?;
            tools.extend(toolbox_tools(config));
            let server = ToolServer::new(tools, help_resources(), INSTRUCTIONS);
            if let Some(address) = &http.http {
                serve_http(server, address, http, config, exit).await?;
            } else {
                let served = serve_over_streams(server, tokio::io::stdin(), tokio::io::stdout());
                served
                    .await
                    .map_err(|error| SessionError::invalid(error.to_string()))?;
            }
        }
    }
    Ok(true)
}

pub(crate) fn print_message(text: &str) {
    print::write_stderr(&print::sanitize_text(&format!("sabir: {text}\n")));
}

/// Parses the address or the command line of a new server.
fn parse_target(
    target: &[String],
    env: &[String],
    header: &[String],
) -> Result<McpTransport, SessionError> {
    let pairs = |list: &[String]| {
        list.iter()
            .map(|pair| {
                let (name, value) = pair.split_once('=').ok_or_else(|| {
                    SessionError::invalid(format!("`{pair}` is not a NAME=VALUE"))
                })?;
                Ok((name.to_owned(), value.to_owned()))
            })
            .collect::<Result<BTreeMap<_, _>, SessionError>>()
    };
    let env = pairs(env)?;
    let headers = pairs(header)?;
    match target {
        [url] if url.starts_with("http://") || url.starts_with("https://") => {
            if !env.is_empty() {
                return Err(SessionError::invalid("--env is for programs; use --header"));
            }
            Ok(McpTransport::at_address(url, headers))
        }
        [command, args @ ..] => {
            if !headers.is_empty() {
                return Err(SessionError::invalid(
                    "--header is for addresses; use --env",
                ));
            }
            Ok(McpTransport::Stdio {
                command: command.clone(),
                args: args.to_vec(),
                env,
            })
        }
        [] => Err(SessionError::invalid("give an address or a program")),
    }
}

fn current_folder() -> Result<PathBuf, SessionError> {
    Path::new(".").canonicalize().map_err(|error| {
        SessionError::invalid(format!("the current folder cannot be opened: {error}"))
    })
}

fn list_servers(config: &Config, as_json: bool) -> Result<(), SessionError> {
    let root = current_folder()?;
    let list = find_servers(&[], config, &root);
    if as_json {
        let servers: Vec<_> = list
            .servers
            .iter()
            .map(|found| {
                json!({
                    "name": found.spec.name,
                    "launch": found.spec.launch_line(),
                    "source": found.source.describe(),
                    "disabled": found.spec.disabled,
                    "state": found.launch,
                    "login": login_state(found, config, &root),
                })
            })
            .collect();
        print::print_json(&json!({"servers": servers, "problems": list.problems}));
        return Ok(());
    }
    let mut text = String::new();
    for found in &list.servers {
        text.push_str(&server_text(found, login_state(found, config, &root)));
    }
    for problem in &list.problems {
        text.push_str(&format!("problem: {problem}\n"));
    }
    if text.is_empty() {
        text.push_str("no MCP servers; `sabir mcp add NAME URL` or `sabir mcp add NAME -- COMMAND` adds one\n");
    }
    print::write_stdout(&print::sanitize_text(&text));
    Ok(())
}

/// Describes a server in two or three lines.
fn server_text(found: &FoundServer, login: Option<LoginState>) -> String {
    let name = &found.spec.name;
    let login = match login {
        None => String::new(),
        Some(LoginState::LoggedIn) => ", logged in".to_owned(),
        Some(LoginState::Needed) => format!(", needs a login: `sabir mcp login {name}`"),
        Some(LoginState::MoreNeeded) => {
            format!(", logged in, and has asked for more rights since: `sabir mcp login {name}`")
        }
    };
    let state = match &found.launch {
        _ if found.spec.disabled => "disabled".to_owned(),
        LaunchState::Allowed => "started with each task".to_owned(),
        LaunchState::Untrusted => {
            format!("not trusted: `sabir mcp trust {}`", found.spec.name)
        }
        LaunchState::Changed { .. } => format!(
            "changed since you trusted it ({}): `sabir mcp trust {}`",
            found
                .launch
                .describe_change(&found.spec.launch_line())
                .unwrap_or_default(),
            found.spec.name
        ),
        LaunchState::Unusable { reason } => format!("cannot be started: {reason}"),
    };
    format!(
        "{}  {}\n    {}, {state}{login}\n",
        found.spec.name,
        found.spec.launch_line(),
        found.source.describe()
    )
}

fn trust_repository(config: &Config, names: &[String], yes: bool) -> Result<bool, SessionError> {
    let root = current_folder()?;
    let list = find_servers(&[], config, &root);
    let open: Vec<_> = list
        .servers
        .iter()
        .filter(|found| matches!(found.source, ServerSource::Project(_)))
        .filter(|found| names.is_empty() || names.contains(&found.spec.name))
        .collect();
    let mut text = String::new();
    for found in &open {
        text.push_str(&server_text(found, None));
        // All of it, with the values: they come from the repository and decide what runs.
        let whole = serde_json::to_string(&found.spec.transport).unwrap_or_default();
        text.push_str(&format!("    {whole}\n"));
        let files: Vec<&str> = found.files.keys().map(String::as_str).collect();
        if !files.is_empty() {
            text.push_str(&format!("    files that count: {}\n", files.join(", ")));
        }
    }
    print::write_stdout(&print::sanitize_text(&text));
    let is_asked = open
        .iter()
        .any(|found| found.launch != LaunchState::Allowed);
    if is_asked && !yes {
        let answer = stdin_reader::confirm("Trust exactly these servers? [y/N] ");
        let is_yes = answer.map_err(|error| {
            SessionError::invalid(format!("standard input cannot be read: {error}"))
        })?;
        if !is_yes {
            print_message("nothing was changed; --yes trusts them where nobody can be asked");
            return Ok(false);
        }
    }
    let trusted = trust_servers(names, &list.servers, config, &root)?;
    match trusted.is_empty() {
        true => print_message("there is nothing to trust"),
        false => print_message(&format!("trusted as they are now: {}", trusted.join(", "))),
    }
    Ok(true)
}
