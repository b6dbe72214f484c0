//! Starts the servers of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use sabir_mcp::{McpServerSpec, McpServers, McpSettings, StartCheck, UserElicitor};

use super::definitions::SessionDefinitions;
use super::elicitation::HubElicitor;
use super::sources::{LaunchState, ServerList, ServerSource, expand_spec, find_servers};
use crate::config::Config;
use crate::error::SessionError;
use crate::hub::EventHub;
use crate::notice::NoticeTopic;
use crate::setup::TaskSetup;
use crate::spec::{Interactivity, RecordMode, SessionSpec};

/// Starts the servers of a session in the background, and keeps their tools in the registry of its task. Servers that an earlier load of
/// the same session started keep running. Must be called within a tokio runtime, unless there are no servers.
pub(crate) fn start_servers(
    spec: &SessionSpec,
    config: &Arc<Config>,
    setup: &TaskSetup,
    hub: &EventHub,
) {
    let root = setup.workspace.root();
    let list = find_servers(&spec.mcp_servers, config, root);
    if list.servers.is_empty() && list.problems.is_empty() {
        hub.set_servers(None);
        return;
    }
    if spec.record != RecordMode::Off {
        // A replay could not repeat what a server did.
        let text = "MCP servers are not started while a task is recorded";
        config.notices.send(NoticeTopic::Mcp, text);
        return;
    }
    let is_first = hub.servers().is_none();
    if is_first {
        notify_of_list(&list, config);
    }
    let mut scopes = BTreeMap::new();
    let mut specs = Vec::new();
    let mut of_repository = BTreeSet::new();
    for found in list.servers {
        if found.launch != LaunchState::Allowed {
            continue;
        }
        // `find_servers` has tried it.
        if let Ok(expanded) = expand_spec(&found.spec, config, root) {
            scopes.insert(expanded.name.clone(), found.source.scope(root));
            if matches!(found.source, ServerSource::Project(_)) {
                of_repository.insert(expanded.name.clone());
            }
            specs.push(expanded);
        }
    }
    if specs.is_empty() {
        hub.set_servers(None);
        return;
    }
    let running = hub.servers().filter(|servers| servers.specs() == specs);
    let servers = running.unwrap_or_else(|| {
        let definitions = SessionDefinitions::new(
            Arc::clone(&config.environment),
            config.notices.clone(),
            scopes,
        );
        let settings = McpSettings {
            refuse_start: refuse_changed_servers(config, root, of_repository),
            ..session_settings(spec, config, setup, hub, definitions)
        };
        Arc::new(McpServers::start(specs, settings))
    });
    servers.attach_registry(&setup.registry);
    hub.set_servers(Some(servers));
}

/// Returns a check of the servers of a repository, which refuses one that has changed since it was trusted. A command of the task may
/// have changed it, and a server that ends is started again, outside of the sandbox.
fn refuse_changed_servers(
    config: &Arc<Config>,
    root: &Path,
    of_repository: BTreeSet<String>,
) -> StartCheck {
    let config = Arc::clone(config);
    let root = root.to_owned();
    Arc::new(move |spec| {
        if !of_repository.contains(&spec.name) {
            return None;
        }
        let list = find_servers(&[], &config, &root);
        match startable_server(&list, &spec.name, &config, &root) {
            Ok(now) if now == *spec => None,
            Ok(_) => Some("the repository has changed it".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    })
}

fn session_settings(
    spec: &SessionSpec,
    config: &Arc<Config>,
    setup: &TaskSetup,
    hub: &EventHub,
    definitions: SessionDefinitions,
) -> McpSettings {
    let notices = config.notices.clone();
    let elicitor = (spec.interactivity != Interactivity::Headless).then(|| {
        Arc::new(HubElicitor::new(hub, config.form_elicitor.clone())) as Arc<dyn UserElicitor>
    });
    McpSettings {
        definitions: Arc::new(definitions),
        notify: Arc::new(move |notice| {
            notices.send(
                NoticeTopic::Mcp,
                format!("MCP server {}: {}", notice.server, notice.text),
            );
        }),
        elicitor,
        ..super::manage::server_settings(config, Arc::clone(&setup.workspace))
    }
}

/// Tells the user which servers are not started, and why.
fn notify_of_list(list: &ServerList, config: &Config) {
    for problem in &list.problems {
        config.notices.send(NoticeTopic::Mcp, problem.clone());
    }
    let untrusted: Vec<&str> = list
        .servers
        .iter()
        .filter(|found| found.launch == LaunchState::Untrusted)
        .map(|found| found.spec.name.as_str())
        .collect();
    if !untrusted.is_empty() {
        let text = format!(
            "MCP servers of this repository are not started: {}; `sabir mcp list` shows them, `sabir mcp trust` starts them from the next task on",
            untrusted.join(", ")
        );
        config.notices.send(NoticeTopic::Mcp, text);
    }
    for found in &list.servers {
        let name = &found.spec.name;
        let text = match &found.launch {
            LaunchState::Changed { .. } => {
                let now = found.spec.launch_line();
                let change = found.launch.describe_change(&now).unwrap_or_default();
                format!(
                    "the MCP server {name}, `{now}`, is not started: the repository has changed it since you trusted it ({change}); \
                     `sabir mcp trust {name}` trusts it again"
                )
            }
            LaunchState::Unusable { reason } => {
                format!("the MCP server {name} is not started: {reason}")
            }
            LaunchState::Allowed | LaunchState::Untrusted => continue,
        };
        config.notices.send(NoticeTopic::Mcp, text);
    }
}

/// Returns the spec of one server with its variables replaced, if it may be started.
pub(super) fn startable_server(
    list: &ServerList,
    name: &str,
    config: &Config,
    root: &Path,
) -> Result<McpServerSpec, SessionError> {
    let found = list.servers.iter().find(|found| found.spec.name == name);
    let found = found.ok_or_else(|| {
        SessionError::invalid(format!(
            "there is no MCP server `{name}`; `sabir mcp list` lists them"
        ))
    })?;
    match &found.launch {
        LaunchState::Allowed => expand_spec(&found.spec, config, root)
            .map_err(|error| SessionError::invalid(format!("{name}: {error}"))),
        LaunchState::Unusable { reason } => Err(SessionError::invalid(format!("{name}: {reason}"))),
        LaunchState::Untrusted | LaunchState::Changed { .. } => {
            Err(SessionError::invalid(format!(
                "{name} belongs to this repository and is not trusted as it is; look at it with `sabir mcp list`, then use `sabir mcp trust {name}`"
            )))
        }
    }
}
