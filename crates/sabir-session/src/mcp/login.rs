//! Logs in to servers and out again, for the command line.

use std::path::Path;
use std::sync::Arc;

use sabir_mcp::{LoginAttempt, LoginStore, McpServerSpec, McpTransport, Revocation, revoke_login};
use serde::Serialize;

use super::login_store::FileLoginStore;
use super::manage::{address_transport, find_target, is_address, open_workspace, server_settings};
use super::sources::{FoundServer, expand_spec, find_servers};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;

/// The state of a server's login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginState {
    /// Tokens are stored, and are renewed automatically as long as the server allows it.
    LoggedIn,
    /// The server has asked for a login.
    Needed,
    /// The server has asked for more rights than the login has.
    MoreNeeded,
}

/// The result of an attempt to open a page in the user's browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageOpening {
    /// The browser was started.
    Opened,
    /// There is no desktop to open it on, as on a server.
    NoDesktop,
    /// The browser cannot be started, with the reason.
    Failed(String),
}

/// Opens the page of a login in the browser of the user: `$BROWSER`, or the one of their desktop.
pub fn open_login_page(url: &str, config: &Config) -> PageOpening {
    open_page(url, &config.environment)
}

pub(super) fn open_page(url: &str, environment: &Environment) -> PageOpening {
    let is_set = |name: &str| {
        environment
            .variable(name)
            .is_some_and(|value| !value.is_empty())
    };
    let browser = environment
        .variable("BROWSER")
        .filter(|text| !text.is_empty());
    let has_desktop = cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    if browser.is_none() && !has_desktop {
        // `xdg-open` would start a browser in this terminal.
        return PageOpening::NoDesktop;
    }
    match sabir_workspace::open_web_page(url, browser) {
        Ok(()) => PageOpening::Opened,
        Err(error) => PageOpening::Failed(error.to_string()),
    }
}

/// Begins the login of a configured server, or of the one with this address.
///
/// # Errors
/// When there is no such server, it is not trusted, it needs no login, or one is not possible.
pub async fn start_login(
    target: &str,
    config: &Config,
    folder: &Path,
) -> Result<LoginAttempt, SessionError> {
    let workspace = open_workspace(folder)?;
    let spec = find_target(target, config, &workspace)?;
    let settings = server_settings(config, workspace);
    LoginAttempt::start(&spec, &settings)
        .await
        .map_err(|error| login_error(target, &error))
}

/// Describes the failure of a login.
pub fn login_error(target: &str, error: &sabir_mcp::LoginError) -> SessionError {
    SessionError::invalid(format!("no login to the MCP server {target}: {error}"))
}

/// Removes the login of a server from this machine, and withdraws its tokens where the authorization server offers that. Returns `None`
/// if there was no login. A server of the repository need not be trusted for that.
///
/// # Errors
/// When there is no such server, or the login cannot be removed.
pub async fn log_out(
    target: &str,
    config: &Config,
    folder: &Path,
) -> Result<Option<Revocation>, SessionError> {
    let workspace = open_workspace(folder)?;
    let spec = if is_address(target) {
        McpServerSpec::new(target, address_transport(target))
    } else {
        let list = find_servers(&[], config, workspace.root());
        let found = list.servers.iter().find(|found| found.spec.name == target);
        let found = found.ok_or_else(|| {
            SessionError::invalid(format!(
                "there is no MCP server `{target}`; `sabir mcp list` lists them"
            ))
        })?;
        expand_spec(&found.spec, config, workspace.root())
            .map_err(|error| SessionError::invalid(format!("{target}: {error}")))?
    };
    let settings = server_settings(config, workspace);
    revoke_login(&spec, &settings)
        .await
        .map_err(|error| SessionError::invalid(error.to_string()))
}

/// Returns the state of a server's login; `None` where none is known to be needed.
pub fn login_state(found: &FoundServer, config: &Config, root: &Path) -> Option<LoginState> {
    if !matches!(found.spec.transport, McpTransport::Http { .. }) {
        return None;
    }
    let spec = expand_spec(&found.spec, config, root).ok()?;
    let key = spec.transport.login_key(&spec.name)?;
    let store = FileLoginStore::new(Arc::clone(&config.environment));
    let login = store.load_login(&key).ok().flatten()?;
    Some(match (&login.credentials, &login.challenge) {
        (None, _) => LoginState::Needed,
        (Some(_), None) => LoginState::LoggedIn,
        (Some(_), Some(_)) => LoginState::MoreNeeded,
    })
}
