//! Implements the commands that list, add, remove, trust and test servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{ProgressSink, ToolOutput};
use sabir_call::ToolSpec;
use sabir_mcp::{
    McpServerSpec, McpSettings, McpTransport, NullDefinitionStore, OAuthGrant, OAuthSettings,
    ServerStatus, call_server_tool, list_server_tools,
};
use sabir_workspace::Workspace;
use serde::Serialize;
use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use super::login::open_page;
use super::login_store::FileLoginStore;
use super::session_servers::startable_server;
use super::sources::{FoundServer, LaunchState, ServerSource, find_servers};
use super::store::{TrustedServer, change_store};
use crate::config::Config;
use crate::error::SessionError;
use crate::remember;

/// The result of a test of a server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerTest {
    /// The state and the lists of the server.
    #[serde(flatten)]
    pub status: ServerStatus,
    /// The definitions of its tools.
    pub definitions: Vec<ToolSpec>,
}

/// Returns the settings for servers outside of a session: nothing is stored, and no question is
/// asked.
pub fn server_settings(config: &Config, workspace: Arc<Workspace>) -> McpSettings {
    McpSettings {
        workspace,
        helper: config.environment.helper_program.clone(),
        environment: config.environment.command_variables(),
        http_client: Arc::new(begin_client),
        logins: Arc::new(FileLoginStore::new(Arc::clone(&config.environment))),
        definitions: Arc::new(NullDefinitionStore),
        notify: Arc::new(drop),
        refuse_start: Arc::new(|_| None),
        open_page: page_opener(config),
        elicitor: None,
        definition_tokens: config.mcp_config().definition_budget(),
    }
}

/// Returns a function that opens pages of logins. That they cannot be opened needs no words: their addresses are shown in any case.
fn page_opener(config: &Config) -> Arc<dyn Fn(&str) + Send + Sync> {
    let environment = Arc::clone(&config.environment);
    Arc::new(move |url| _ = open_page(url, &environment))
}

fn begin_client() -> reqwest::ClientBuilder {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        // A redirect could lead to an address of the local network.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(std::time::Duration::from_secs(10))
}

/// Starts a configured server, lists its tools, and ends it.
///
/// # Errors
/// When there is no such server, it is not trusted, or it does not work.
pub async fn test_server(
    name: &str,
    config: &Config,
    folder: &Path,
) -> Result<ServerTest, SessionError> {
    let workspace = open_workspace(folder)?;
    let list = find_servers(&[], config, workspace.root());
    let spec = startable_server(&list, name, config, workspace.root())?;
    run_test(&spec, config, workspace).await
}

/// Calls a tool of a configured server, or of the one with this address, and returns its output. `progress` receives lines.
///
/// # Errors
/// When there is no such server, it is not trusted, or it does not work.
pub async fn call_tool(
    target: &str,
    tool: &str,
    arguments: &Map<String, Value>,
    config: &Config,
    progress: ProgressSink<'_>,
) -> Result<ToolOutput, SessionError> {
    let workspace = open_workspace(Path::new("."))?;
    let spec = find_target(target, config, &workspace)?;
    let settings = server_settings(config, workspace);
    let called = call_server_tool(&spec, &settings, tool, arguments, progress).await;
    called.map_err(|error| {
        SessionError::invalid(format!("the MCP server {target} does not work: {error}"))
    })
}

/// Returns the configured server of this name, or the one with this address.
///
/// # Errors
/// When there is no such server, or it is not trusted.
pub(super) fn find_target(
    target: &str,
    config: &Config,
    workspace: &Workspace,
) -> Result<McpServerSpec, SessionError> {
    if is_address(target) {
        return Ok(McpServerSpec::new(target, address_transport(target)));
    }
    let list = find_servers(&[], config, workspace.root());
    startable_server(&list, target, config, workspace.root())
}

pub(super) fn is_address(target: &str) -> bool {
    target.starts_with("http://") || target.starts_with("https://")
}

pub(super) fn address_transport(url: &str) -> McpTransport {
    McpTransport::at_address(url, Default::default())
}

async fn run_test(
    spec: &McpServerSpec,
    config: &Config,
    workspace: Arc<Workspace>,
) -> Result<ServerTest, SessionError> {
    let settings = server_settings(config, workspace);
    let listed = list_server_tools(spec, &settings).await;
    let (status, definitions) = listed.map_err(|error| {
        SessionError::invalid(format!(
            "the MCP server {} does not work: {error}",
            spec.name
        ))
    })?;
    Ok(ServerTest {
        status,
        definitions,
    })
}

/// Lists the tools of the server with this command line or address, as a JSON array of tools.
///
/// # Errors
/// When the server does not work.
pub async fn lint_source(
    target: &str,
    config: &Config,
    folder: &Path,
) -> Result<String, SessionError> {
    let spec = if is_address(target) {
        McpServerSpec::new(target, address_transport(target))
    } else {
        // The user's own command line, in the words of their shell.
        let transport = McpTransport::Stdio {
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), format!("exec {target}")],
            env: Default::default(),
        };
        McpServerSpec::new("server", transport)
    };
    let test = run_test(&spec, config, open_workspace(folder)?).await?;
    serde_json::to_string(&test.definitions)
        .map_err(|error| SessionError::internal(error.to_string()))
}

pub(super) fn open_workspace(folder: &Path) -> Result<Arc<Workspace>, SessionError> {
    let opened = Workspace::open(folder);
    opened
        .map(Arc::new)
        .map_err(|error| SessionError::invalid(error.to_string()))
}

/// Trusts servers of the repository as they are now: those of these names, or all. Returns those that were not trusted before.
/// `reviewed` are the servers that the user has seen; one that differs from it now is not trusted.
///
/// # Errors
/// When a name is not that of a server of the repository, or the file cannot be written.
pub fn trust_servers(
    names: &[String],
    reviewed: &[FoundServer],
    config: &Config,
    root: &Path,
) -> Result<Vec<String>, SessionError> {
    let is_open = |found: &&FoundServer| {
        matches!(
            found.launch,
            LaunchState::Untrusted | LaunchState::Changed { .. }
        )
    };
    for name in names {
        let is_known = reviewed.iter().any(|found| {
            found.spec.name == *name && matches!(found.source, ServerSource::Project(_))
        });
        if !is_known {
            return Err(SessionError::invalid(format!(
                "this repository has no MCP server `{name}`"
            )));
        }
    }
    let chosen: Vec<_> = reviewed
        .iter()
        .filter(is_open)
        .filter(|found| names.is_empty() || names.contains(&found.spec.name))
        .collect();
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    change_store(&config.environment, |store| {
        let trusted = store.trusted.entry(root.to_owned()).or_default();
        for found in &chosen {
            trusted.insert(found.spec.name.clone(), TrustedServer::from_server(found));
        }
    })?;
    Ok(chosen.iter().map(|found| found.spec.name.clone()).collect())
}

/// Adds a server to the user's configuration, and returns the path of the file.
///
/// # Errors
/// When it has a server of that name, or cannot be changed.
pub fn add_server(
    spec: &McpServerSpec,
    config: &Config,
    named: Option<&Path>,
) -> Result<PathBuf, SessionError> {
    change_config(config, named, |servers| {
        if servers.contains_key(&spec.name) {
            return Err(SessionError::invalid(format!(
                "there is a server `{}` already; `sabir mcp remove {0}` removes it",
                spec.name
            )));
        }
        servers.insert(&spec.name, Item::Table(server_table(spec)));
        Ok(())
    })
}

/// Returns the table of a server in the configuration.
pub(crate) fn server_table(spec: &McpServerSpec) -> Table {
    let mut table = Table::new();
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        let mut inline = InlineTable::new();
        for (name, text) in map {
            inline.insert(name, text.as_str().into());
        }
        value(inline)
    };
    match &spec.transport {
        McpTransport::Stdio { command, args, env } => {
            table.insert("command", value(command));
            if !args.is_empty() {
                table.insert("args", value(args.iter().collect::<Array>()));
            }
            if !env.is_empty() {
                table.insert("env", pairs(env));
            }
        }
        McpTransport::Http {
            url,
            headers,
            oauth,
        } => {
            table.insert("url", value(url));
            if !headers.is_empty() {
                table.insert("headers", pairs(headers));
            }
            if let Some(oauth) = oauth {
                table.insert("oauth", value(oauth_table(oauth)));
            }
        }
    }
    for (key, seconds) in [
        ("start_seconds", spec.start_seconds),
        ("call_seconds", spec.call_seconds),
    ] {
        if let Some(seconds) = seconds.and_then(|seconds| i64::try_from(seconds).ok()) {
            table.insert(key, value(seconds));
        }
    }
    for (key, is_on) in [("required", spec.required), ("disabled", spec.disabled)] {
        if is_on {
            table.insert(key, value(true));
        }
    }
    if let Some(only) = &spec.tools.only {
        table.insert("only_tools", value(only.iter().collect::<Array>()));
    }
    if !spec.tools.except.is_empty() {
        let except = spec.tools.except.iter().collect::<Array>();
        table.insert("except_tools", value(except));
    }
    table
}

/// Returns the table of a server's login settings.
fn oauth_table(oauth: &OAuthSettings) -> InlineTable {
    let mut table = InlineTable::new();
    for (key, text) in [
        ("client_id", &oauth.client_id),
        ("client_secret", &oauth.client_secret),
        ("issuer", &oauth.issuer),
        ("client_metadata_url", &oauth.client_metadata_url),
    ] {
        if let Some(text) = text {
            table.insert(key, text.as_str().into());
        }
    }
    if !oauth.scopes.is_empty() {
        let scopes = oauth.scopes.iter().collect::<Array>();
        table.insert("scopes", scopes.into());
    }
    if let Some(port) = oauth.redirect_port {
        table.insert("redirect_port", i64::from(port).into());
    }
    if oauth.grant == OAuthGrant::ClientCredentials {
        table.insert("grant", "client_credentials".into());
    }
    table
}

/// Returns the table of all servers in a configuration, which is made first if it is missing. `None`: it is not written as a table.
pub(crate) fn server_tables(document: &mut DocumentMut) -> Option<&mut Table> {
    let new_table = || {
        let mut table = Table::new();
        // Only the headers of the servers themselves are written.
        table.set_implicit(true);
        Item::Table(table)
    };
    document
        .entry("mcp")
        .or_insert_with(new_table)
        .as_table_mut()
        .map(|mcp| mcp.entry("servers").or_insert_with(new_table))
        .and_then(Item::as_table_mut)
}

/// Removes a server from the user's configuration, and returns the path of the file.
///
/// # Errors
/// When it has no server of that name, or cannot be changed.
pub fn remove_server(
    name: &str,
    config: &Config,
    named: Option<&Path>,
) -> Result<PathBuf, SessionError> {
    change_config(config, named, |servers| match servers.remove(name) {
        Some(_) => Ok(()),
        None => Err(SessionError::invalid(format!(
            "config.toml has no MCP server `{name}`"
        ))),
    })
}

/// Changes the table of servers in the configuration file.
fn change_config(
    config: &Config,
    named: Option<&Path>,
    change: impl FnOnce(&mut Table) -> Result<(), SessionError>,
) -> Result<PathBuf, SessionError> {
    remember::edit_config(&config.environment, named, false, |document, kept| {
        let servers = server_tables(document)
            .ok_or_else(|| kept("its `mcp.servers` are not written as tables".to_owned()))?;
        change(servers)
    })
}
