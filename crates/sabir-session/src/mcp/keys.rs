//! The table `[mcp]` of the configuration.

use std::collections::BTreeMap;

use sabir_mcp::limits::DEFAULT_DEFINITION_TOKENS;
use sabir_mcp::{McpServerSpec, McpTransport, OAuthGrant, OAuthSettings, ToolSelection};
use serde::Deserialize;

/// The table `[mcp]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct McpConfig {
    /// The servers, by name.
    servers: BTreeMap<String, McpServerConfig>,
    /// Files of other programs whose servers are used too.
    pub(crate) import: Vec<String>,
    /// False: the files of repositories are ignored.
    project_files: Option<bool>,
    /// The tokens that the definitions of tools may take in a request.
    definition_tokens: Option<u64>,
}

/// A mistake in the table of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum McpConfigError {
    #[error("a server needs a name without `/`")]
    Name,
    #[error("mcp.servers.{0} has both `command` and `url`")]
    CommandAndAddress(String),
    #[error("mcp.servers.{0} needs `command` or `url`")]
    NoTransport(String),
    #[error(
        "mcp.servers.{0}: `args` and `env` belong to `command`, `headers` and `oauth` to `url`"
    )]
    MixedKeys(String),
    #[error(
        "mcp.servers.{0}: the grant client_credentials needs `oauth.client_id` and `oauth.client_secret`"
    )]
    NoClient(String),
}

/// One server.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct McpServerConfig {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    oauth: Option<OAuthSettings>,
    start_seconds: Option<u64>,
    call_seconds: Option<u64>,
    required: bool,
    disabled: bool,
    only_tools: Option<Vec<String>>,
    except_tools: Vec<String>,
}

impl std::fmt::Debug for McpServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of variables and headers are often secrets.
        f.debug_struct("McpServerConfig")
            .field("command", &self.command)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl McpServerConfig {
    fn to_spec(&self, name: &str) -> Result<McpServerSpec, McpConfigError> {
        if name.trim().is_empty() || name.contains('/') {
            return Err(McpConfigError::Name);
        }
        let transport = match (&self.command, &self.url) {
            (Some(command), None) if !command.trim().is_empty() => McpTransport::Stdio {
                command: command.clone(),
                args: self.args.clone(),
                env: self.env.clone(),
            },
            (None, Some(url)) => McpTransport::Http {
                url: url.clone(),
                headers: self.headers.clone(),
                oauth: self.oauth.clone(),
            },
            (Some(_), Some(_)) => {
                return Err(McpConfigError::CommandAndAddress(name.to_owned()));
            }
            _ => return Err(McpConfigError::NoTransport(name.to_owned())),
        };
        let is_mixed = match transport {
            McpTransport::Stdio { .. } => !self.headers.is_empty() || self.oauth.is_some(),
            McpTransport::Http { .. } => !self.args.is_empty() || !self.env.is_empty(),
        };
        if is_mixed {
            return Err(McpConfigError::MixedKeys(name.to_owned()));
        }
        if let Some(oauth) = &self.oauth
            && oauth.grant == OAuthGrant::ClientCredentials
            && (oauth.client_id.is_none() || oauth.client_secret.is_none())
        {
            return Err(McpConfigError::NoClient(name.to_owned()));
        }
        Ok(McpServerSpec {
            start_seconds: self.start_seconds,
            call_seconds: self.call_seconds,
            required: self.required,
            disabled: self.disabled,
            tools: ToolSelection {
                only: self.only_tools.clone(),
                except: self.except_tools.clone(),
            },
            ..McpServerSpec::new(name, transport)
        })
    }
}

impl McpConfig {
    /// Returns the servers, in the order of their names.
    pub(crate) fn specs(&self) -> Vec<McpServerSpec> {
        // Mistakes are reported when the configuration is loaded.
        let servers = self.servers.iter();
        servers
            .filter_map(|(name, keys)| keys.to_spec(name).ok())
            .collect()
    }

    /// Finds servers that cannot be used, each with its name.
    pub(crate) fn find_problems(&self) -> Vec<(String, McpConfigError)> {
        let servers = self.servers.iter();
        servers
            .filter_map(|(name, keys)| Some((name.clone(), keys.to_spec(name).err()?)))
            .collect()
    }

    /// Reports whether the table may hold a secret: a value of a variable or a header that is written out.
    pub(crate) fn has_secret(&self) -> bool {
        self.servers.values().any(|keys| {
            let oauth = keys.oauth.as_ref();
            let secret = oauth.and_then(|oauth| oauth.client_secret.as_ref());
            let mut values = keys.env.values().chain(keys.headers.values()).chain(secret);
            values.any(|value| !value.contains("${"))
        })
    }

    /// Returns true if the files of repositories are read.
    pub(crate) fn reads_project_files(&self) -> bool {
        self.project_files.unwrap_or(true)
    }

    /// Returns the tokens that definitions may take in a request.
    pub(crate) fn definition_budget(&self) -> usize {
        self.definition_tokens
            .and_then(|tokens| usize::try_from(tokens).ok())
            .unwrap_or(DEFAULT_DEFINITION_TOKENS)
    }
}
