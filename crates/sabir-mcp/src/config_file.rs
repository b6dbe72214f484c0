//! Reads the configuration files of other programs that list MCP servers.
//!
//! | program | file | shape |
//! | --- | --- | --- |
//! | Claude Code | `.mcp.json`, `~/.claude.json` | `mcpServers` |
//! | Cline, Roo, Cursor, Windsurf | `cline_mcp_settings.json`, `.roo/mcp.json`, `.cursor/mcp.json` | `mcpServers` |
//! | Gemini CLI | `settings.json` | `mcpServers`, with `httpUrl` and times in milliseconds |
//! | VS Code | `.vscode/mcp.json`, `settings.json` | `servers`, `mcp.servers`; with comments |
//! | Codex | `~/.codex/config.toml` | `[mcp_servers.NAME]` |
//! | opencode | `opencode.json` | `mcp`, with the command as a list |
//!
//! Entries that cannot be used are reported one by one, and the others are read. Keys that would
//! approve calls are always ignored.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::login::OAuthSettings;
use crate::spec::{McpServerSpec, McpTransport, ToolSelection};

/// The servers of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedServers {
    /// The servers that can be used, in the order of the file.
    pub servers: Vec<McpServerSpec>,
    /// The entries that cannot be used or lose something, each as a sentence.
    pub problems: Vec<String>,
}

/// An error of a whole file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerFileError {
    /// It is neither JSON nor TOML.
    #[error("it is neither JSON nor TOML: {0}")]
    Syntax(String),
    /// It has no list of servers.
    #[error("it has none of `mcpServers`, `servers`, `mcp` and `mcp_servers`")]
    NoServers,
}

/// The reason why an entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum EntryProblem {
    #[error("it is not a table")]
    Shape,
    #[error("`{0}` is not a list")]
    NoList(String),
    #[error("`{0}` is not a table")]
    NoTable(String),
    #[error("`{0}` is not a string")]
    NotPlain(String),
    #[error("it has both a command and an address")]
    CommandAndAddress,
    #[error("it has neither `command` nor `url`")]
    NoTransport,
    #[error("`command` is empty")]
    EmptyCommand,
    #[error("`command` is not text")]
    CommandShape,
    #[error("`envFile` is not read; write the variables under `env`")]
    EnvFile,
    #[error("`cwd` is not supported: servers run in the folder of the task, not in {0}")]
    Folder(String),
    #[error(
        "it uses the transport `sse`, which the protocol has given up; most such servers offer streamable HTTP at another address"
    )]
    Sse,
    #[error(
        "it asks for {0} when it starts, which is not supported; use a variable of the environment, such as ${{TOKEN}}"
    )]
    Input(String),
}

/// Reads the servers of a file of any known program. Variables are left as they are.
///
/// # Errors
/// When the file cannot be parsed, or has no servers in any known shape.
pub fn parse_server_file(text: &str) -> Result<ParsedServers, ServerFileError> {
    let root = parse_settings_text(text)?;
    let object = |value: &Value| value.as_object().cloned();
    let nested = || {
        let mcp = root.get("mcp").and_then(object)?;
        Some(mcp.get("servers").and_then(object).unwrap_or(mcp))
    };
    let entries = ["mcpServers", "servers", "mcp_servers", "mcp.servers"]
        .iter()
        .find_map(|key| root.get(*key).and_then(object))
        .or_else(nested)
        .ok_or(ServerFileError::NoServers)?;
    let mut parsed = ParsedServers::default();
    for (name, entry) in &entries {
        match parse_entry(name, entry, &mut parsed.problems) {
            Ok(spec) => parsed.servers.push(spec),
            Err(problem) => parsed.problems.push(format!("`{name}`: {problem}")),
        }
    }
    Ok(parsed)
}

/// Parses a settings file of another program: JSON, also with comments, or TOML.
///
/// # Errors
/// When it is neither.
pub fn parse_settings_text(text: &str) -> Result<Map<String, Value>, ServerFileError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['{', '/']) {
        let plain = strip_comments(text);
        return serde_json::from_str(&plain)
            .map_err(|error| ServerFileError::Syntax(error.to_string()));
    }
    toml::from_str(text).map_err(|error| ServerFileError::Syntax(error.message().to_owned()))
}

/// Removes comments and commas before a closing bracket, which VS Code allows in its JSON.
fn strip_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                plain.push(c);
                plain.extend(rest.next());
                continue;
            }
            '/' if !in_string && rest.peek() == Some(&'/') => {
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
                continue;
            }
            '/' if !in_string && rest.peek() == Some(&'*') => {
                rest.next();
                let mut last = ' ';
                for c in rest.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                continue;
            }
            '}' | ']' if !in_string => {
                let kept = plain.trim_end().len();
                if plain.trim_end().ends_with(',') {
                    plain.truncate(kept - 1);
                }
            }
            _ => {}
        }
        plain.push(c);
    }
    plain
}

fn text_of<'a>(entry: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a str> {
    keys.iter()
        .find_map(|key| entry.get(*key))
        .and_then(Value::as_str)
}

/// Reads a list of texts; numbers and truth values are written as text.
fn list_of(entry: &Map<String, Value>, key: &str) -> Result<Vec<String>, EntryProblem> {
    match entry.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| plain_text(item).ok_or_else(|| EntryProblem::NotPlain(key.to_owned())))
            .collect(),
        Some(_) => Err(EntryProblem::NoList(key.to_owned())),
    }
}

fn string_map(
    entry: &Map<String, Value>,
    key: &str,
) -> Result<BTreeMap<String, String>, EntryProblem> {
    match entry.get(key) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(values)) => values
            .iter()
            .map(|(name, value)| {
                let text = plain_text(value)
                    .ok_or_else(|| EntryProblem::NotPlain(format!("{key}.{name}")))?;
                Ok((name.clone(), text))
            })
            .collect(),
        Some(_) => Err(EntryProblem::NoTable(key.to_owned())),
    }
}

fn plain_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_on) => Some(is_on.to_string()),
        _ => None,
    }
}

fn parse_entry(
    name: &str,
    entry: &Value,
    problems: &mut Vec<String>,
) -> Result<McpServerSpec, EntryProblem> {
    let entry = entry.as_object().ok_or(EntryProblem::Shape)?;
    let kind = text_of(entry, &["type", "transport"]).unwrap_or_default();
    let url = text_of(entry, &["url", "serverUrl", "httpUrl"]);
    let transport = match (entry.get("command"), url) {
        (Some(_), Some(_)) => return Err(EntryProblem::CommandAndAddress),
        (None, None) => return Err(EntryProblem::NoTransport),
        (Some(command), None) => {
            let mut args = list_of(entry, "args")?;
            let command = match command {
                Value::String(command) => command.clone(),
                // opencode writes the whole command line as a list.
                Value::Array(_) => {
                    let mut words = list_of(entry, "command")?;
                    if words.is_empty() {
                        return Err(EntryProblem::EmptyCommand);
                    }
                    let rest = words.split_off(1);
                    args.splice(0..0, rest);
                    words.concat()
                }
                _ => return Err(EntryProblem::CommandShape),
            };
            if command.trim().is_empty() {
                return Err(EntryProblem::EmptyCommand);
            }
            let mut env = string_map(entry, "env")?;
            env.extend(string_map(entry, "environment")?);
            if entry.contains_key("envFile") {
                return Err(EntryProblem::EnvFile);
            }
            if let Some(folder) = text_of(entry, &["cwd"])
                && !["", ".", "${workspaceFolder}"].contains(&folder)
            {
                return Err(EntryProblem::Folder(folder.to_owned()));
            }
            McpTransport::Stdio { command, args, env }
        }
        (None, Some(url)) => {
            if kind.eq_ignore_ascii_case("sse") {
                return Err(EntryProblem::Sse);
            }
            let mut headers = string_map(entry, "headers")?;
            headers.extend(string_map(entry, "http_headers")?);
            for (header, variable) in string_map(entry, "env_http_headers")? {
                headers.insert(header, format!("${{{variable}}}"));
            }
            if let Some(variable) = text_of(entry, &["bearer_token_env_var"]) {
                headers.insert(
                    "Authorization".to_owned(),
                    format!("Bearer ${{{variable}}}"),
                );
            }
            McpTransport::Http {
                url: url.to_owned(),
                headers,
                oauth: parse_oauth(entry)?,
            }
        }
    };
    let mut spec = McpServerSpec::new(name, transport);
    if let Some(input) = find_input(&spec.transport) {
        return Err(EntryProblem::Input(input));
    }
    spec.disabled = entry.get("disabled").and_then(Value::as_bool) == Some(true)
        || entry.get("enabled").and_then(Value::as_bool) == Some(false);
    spec.required = entry.get("required").and_then(Value::as_bool) == Some(true);
    let seconds = |key: &str| entry.get(key).and_then(Value::as_f64);
    spec.start_seconds = seconds("startup_timeout_sec").and_then(whole_seconds);
    spec.call_seconds = seconds("tool_timeout_sec")
        // Cline and Roo write seconds, Gemini milliseconds; nobody means a limit of an hour.
        .or_else(|| {
            seconds("timeout").map(|time| {
                if time >= 3_600.0 {
                    time / 1_000.0
                } else {
                    time
                }
            })
        })
        .and_then(whole_seconds);
    let only = ["enabled_tools", "includeTools"]
        .iter()
        .find(|key| entry.contains_key(**key));
    spec.tools = ToolSelection {
        only: only.map(|key| list_of(entry, key)).transpose()?,
        except: ["disabled_tools", "disabledTools", "excludeTools"]
            .iter()
            .map(|key| list_of(entry, key))
            .collect::<Result<Vec<_>, _>>()?
            .concat(),
    };
    for key in ["alwaysAllow", "autoApprove", "trust"] {
        let approves = match entry.get(key) {
            Some(Value::Array(tools)) => !tools.is_empty(),
            Some(Value::Bool(is_on)) => *is_on,
            _ => false,
        };
        if approves {
            problems.push(format!(
                "`{name}`: `{key}` is not carried over; approve tools with `approve = [\"mcp={name}/TOOL\"]`"
            ));
        }
    }
    Ok(spec)
}

/// Reads the settings of a login, as Claude Code, Gemini CLI and opencode write them. Addresses of authorization servers are left out:
/// Sabir asks the server for them.
fn parse_oauth(entry: &Map<String, Value>) -> Result<Option<OAuthSettings>, EntryProblem> {
    let oauth = match entry.get("oauth") {
        Some(Value::Object(oauth)) => oauth,
        // opencode writes `false` for a server that needs no login.
        None | Some(Value::Null | Value::Bool(_)) => return Ok(None),
        Some(_) => return Err(EntryProblem::NoTable("oauth".to_owned())),
    };
    let text = |keys: &[&str]| text_of(oauth, keys).map(str::to_owned);
    let scopes = match oauth.get("scopes") {
        Some(Value::Array(_)) => list_of(oauth, "scopes")?,
        _ => text_of(oauth, &["scopes", "scope"])
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    };
    let port = oauth.get("callbackPort").and_then(Value::as_u64);
    let settings = OAuthSettings {
        client_id: text(&["clientId", "client_id"]),
        client_secret: text(&["clientSecret", "client_secret"]),
        issuer: text(&["issuer"]),
        client_metadata_url: text(&["clientMetadataUrl"]),
        scopes,
        redirect_port: port.and_then(|port| u16::try_from(port).ok()),
        ..OAuthSettings::default()
    };
    Ok((settings != OAuthSettings::default()).then_some(settings))
}

/// Rounds a time to whole seconds, at least one.
fn whole_seconds(time: f64) -> Option<u64> {
    let time = time.round().clamp(1.0, 86_400.0);
    // A whole number up to a day is exact in text.
    format!("{time:.0}").parse().ok()
}

/// Returns an input of VS Code that a transport mentions, such as `${input:token}`.
fn find_input(transport: &McpTransport) -> Option<String> {
    let texts: Vec<&String> = match transport {
        McpTransport::Stdio { command, args, env } => std::iter::once(command)
            .chain(args)
            .chain(env.values())
            .collect(),
        McpTransport::Http { url, headers, .. } => {
            std::iter::once(url).chain(headers.values()).collect()
        }
    };
    texts.into_iter().find_map(|text| {
        let (_, rest) = text.split_once("${input:")?;
        let (name, _) = rest.split_once('}')?;
        Some(format!("the input `{name}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ParsedServers {
        parse_server_file(text).unwrap()
    }

    fn only_server(text: &str) -> McpServerSpec {
        let parsed = parse(text);
        assert_eq!(parsed.problems, Vec::<String>::new());
        parsed.servers.into_iter().next().unwrap()
    }

    fn only_problem(text: &str) -> String {
        let parsed = parse(text);
        assert_eq!(parsed.servers, Vec::new());
        parsed.problems.into_iter().next().unwrap()
    }

    fn launch(text: &str) -> String {
        only_server(text).launch_line()
    }

    #[test]
    fn real_world_files_load() {
        // Shapes from public repositories' issues and documentation, rewritten.
        let cases = [
            (
                r#"{"mcpServers": {"fs": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]}}}"#,
                "npx -y @modelcontextprotocol/server-filesystem /tmp",
            ),
            (
                r#"{"mcpServers": {"gh": {"type": "stdio", "command": "docker", "args": ["run", "-i", "--rm", "-e", "TOKEN", "img"], "env": {"TOKEN": "${GH}"}}}}"#,
                "TOKEN=… docker run -i --rm -e TOKEN img",
            ),
            (
                r#"{"mcpServers": {"api": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${T}"}}}}"#,
                "https://mcp.example.com/mcp (headers: Authorization)",
            ),
            (
                r#"{"mcpServers": {"r": {"type": "streamable-http", "url": "http://localhost:3000/mcp", "disabled": false, "alwaysAllow": []}}}"#,
                "http://localhost:3000/mcp",
            ),
            (
                r#"{"mcpServers": {"w": {"serverUrl": "https://w.example/mcp"}}}"#,
                "https://w.example/mcp",
            ),
            (
                r#"{"mcpServers": {"g": {"httpUrl": "https://g.example/mcp", "timeout": 5000}}}"#,
                "https://g.example/mcp",
            ),
            (
                "{\n// servers of the team\n\"servers\": {\"a\": {\"type\": \"stdio\", \"command\": \"uvx\", \"args\": [\"mcp-server-git\",],},},}",
                "uvx mcp-server-git",
            ),
            (
                r#"{"mcp": {"servers": {"p": {"command": "python", "args": ["-m", "srv", 8080]}}}}"#,
                "python -m srv 8080",
            ),
            (
                r#"{"mcp": {"o": {"type": "local", "command": ["bun", "x", "srv"], "environment": {"A": "1"}, "enabled": true}}}"#,
                "A=… bun x srv",
            ),
            (
                r#"{"mcp.servers": {"d": {"command": "node", "args": ["${workspaceFolder}/srv.js"]}}}"#,
                "node '${workspaceFolder}/srv.js'",
            ),
            (
                "[mcp_servers.c]\ncommand = \"npx\"\nargs = [\"-y\", \"c\"]\nstartup_timeout_sec = 20",
                "npx -y c",
            ),
            (
                "model = \"x\"\n[mcp_servers.h]\nurl = \"https://h.example/mcp\"\nbearer_token_env_var = \"H\"",
                "https://h.example/mcp (headers: Authorization)",
            ),
            (
                r#"{"mcpServers": {"n": {"command": "x", "args": null, "env": {"PORT": 80, "ON": true}}}}"#,
                "ON=… PORT=… x",
            ),
            (
                "\u{feff}{\"mcpServers\": {\"b\": {\"command\": \"x\", \"cwd\": \"${workspaceFolder}\"}}}",
                "x",
            ),
            (
                r#"{"projects": {}, "mcpServers": {"u": {"url": "https://u.example/a//b"}}}"#,
                "https://u.example/a//b",
            ),
        ];
        for (text, line) in cases {
            assert_eq!(launch(text), line, "{text}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_say_why() {
        let cases = [
            (
                r#"{"mcpServers": {"s": {"type": "sse", "url": "https://s.example/sse"}}}"#,
                "`sse`",
            ),
            (
                r#"{"servers": {"i": {"command": "x", "env": {"T": "${input:token}"}}}}"#,
                "the input `token`",
            ),
            (
                r#"{"servers": {"e": {"command": "x", "envFile": ".env"}}}"#,
                "`envFile`",
            ),
            (
                r#"{"mcpServers": {"b": {"command": "x", "url": "https://y"}}}"#,
                "both",
            ),
            (r#"{"mcpServers": {"b": {}}}"#, "neither"),
            (r#"{"mcpServers": {"b": {"command": " "}}}"#, "empty"),
            (
                r#"{"mcpServers": {"b": {"command": "x", "args": "-y"}}}"#,
                "`args` is not a list",
            ),
            (
                r#"{"mcpServers": {"b": {"command": "x", "cwd": "/srv"}}}"#,
                "`cwd`",
            ),
            (r#"{"mcpServers": {"b": "npx x"}}"#, "not a table"),
        ];
        for (text, problem) in cases {
            let found = only_problem(text);
            assert!(found.contains(problem), "{text}: {found}");
        }
        assert_eq!(
            parse_server_file("{\"a\": 1}"),
            Err(ServerFileError::NoServers)
        );
        assert!(matches!(
            parse_server_file("{\"mcpServers\": {"),
            Err(ServerFileError::Syntax(_))
        ));
    }

    #[test]
    fn approvals_of_other_programs_are_not_carried_over() {
        let parsed = parse(
            r#"{"mcpServers": {"s": {"command": "x", "autoApprove": ["a"], "disabledTools": ["b"], "timeout": 60}}}"#,
        );
        assert_eq!(parsed.problems.len(), 1);
        let spec = parsed.servers.into_iter().next().unwrap();
        assert_eq!(spec.call_seconds, Some(60));
        assert!(!spec.tools.includes("b") && spec.tools.includes("a"));
    }
}
