//! Specifies one MCP server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::login::{LoginKey, OAuthSettings};
use crate::variables::{UnsetVariable, expand_variables};

/// The specification of an MCP server: how it is reached, and which of its tools are used.
///
/// In `config.toml` it is a table `[mcp.servers.NAME]` with the keys of this type, where `command` or `url` decides on the transport.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServerSpec {
    /// The name, which rules and models use.
    pub name: String,
    /// The way to reach it.
    #[serde(flatten)]
    pub transport: McpTransport,
    /// The seconds until it must have listed its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_seconds: Option<u64>,
    /// The seconds that a call may take without reporting progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_seconds: Option<u64>,
    /// True if a task waits for the server, and does not begin if the server fails.
    #[serde(default)]
    pub required: bool,
    /// True if the server is not started.
    #[serde(default)]
    pub disabled: bool,
    /// The tools that are used.
    #[serde(default)]
    pub tools: ToolSelection,
}

/// The way to reach a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum McpTransport {
    /// A program on this machine that serves its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Variables of its environment, besides the few that every program needs.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// A server that speaks streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// Headers of each request.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// The settings of its login.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<OAuthSettings>,
    },
}

impl McpTransport {
    /// Creates the transport of a server at an address.
    pub fn at_address(url: impl Into<String>, headers: BTreeMap<String, String>) -> Self {
        Self::Http {
            url: url.into(),
            headers,
            oauth: None,
        }
    }

    /// Returns the key of the server's login, if it can have one: a program has none, nor a server with a token in its headers.
    pub fn login_key(&self, server: &str) -> Option<LoginKey> {
        match self {
            Self::Http { url, .. } if !self.has_own_token() => Some(LoginKey {
                server: server.to_owned(),
                url: url.clone(),
            }),
            _ => None,
        }
    }

    /// Reports whether the configuration gives requests an `Authorization` header.
    pub(crate) fn has_own_token(&self) -> bool {
        match self {
            Self::Stdio { .. } => false,
            Self::Http { headers, .. } => headers
                .keys()
                .any(|name| name.eq_ignore_ascii_case("authorization")),
        }
    }
}

/// Selects tools by their names at the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolSelection {
    /// The only tools that are used; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Tools that are not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

impl ToolSelection {
    /// Reports whether a tool is used.
    pub fn includes(&self, tool: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == tool);
        self.only.as_deref().is_none_or(named) && !named(&self.except)
    }
}

impl McpServerSpec {
    /// Creates the spec of a server with default settings.
    pub fn new(name: impl Into<String>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            transport,
            start_seconds: None,
            call_seconds: None,
            required: false,
            disabled: false,
            tools: ToolSelection::default(),
        }
    }

    /// Returns the hash of all settings that determine the server's program or address, before
    /// variables are replaced.
    pub fn launch_digest(&self) -> String {
        // Maps are sorted and fields in order, so equal specs have equal text.
        let text = serde_json::to_string(&self.transport).unwrap_or_default();
        crate::definition::hex_digest(Sha256::digest(text.as_bytes()).as_slice())
    }

    /// Describes the server's command or address on one line, before variables are replaced. Values
    /// of variables and headers may be secrets and are left out.
    pub fn launch_line(&self) -> String {
        match &self.transport {
            McpTransport::Stdio { command, args, env } => {
                let names = env.keys().map(|name| format!("{name}=… "));
                let words = std::iter::once(command).chain(args).map(|word| {
                    let is_plain = !word.is_empty()
                        && word
                            .chars()
                            .all(|c| c.is_alphanumeric() || "-_./:@=+,$".contains(c));
                    match is_plain {
                        true => word.clone(),
                        false => format!("'{}'", word.replace('\'', r"'\''")),
                    }
                });
                names.collect::<String>() + &words.collect::<Vec<_>>().join(" ")
            }
            McpTransport::Http { url, headers, .. } => {
                let names: Vec<_> = headers.keys().map(String::as_str).collect();
                match names.is_empty() {
                    true => url.clone(),
                    false => format!("{url} (headers: {})", names.join(", ")),
                }
            }
        }
    }

    /// Replaces variables such as `${HOME}` and `${PORT:-8080}` in the transport.
    ///
    /// # Errors
    /// When a variable without a default is not set.
    pub fn expand(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, UnsetVariable> {
        let expand = |text: &String| expand_variables(text, variable);
        let expand_values = |map: &BTreeMap<String, String>| {
            map.iter()
                .map(|(name, value)| Ok((name.clone(), expand(value)?)))
                .collect::<Result<BTreeMap<_, _>, UnsetVariable>>()
        };
        let transport = match &self.transport {
            McpTransport::Stdio { command, args, env } => McpTransport::Stdio {
                command: expand(command)?,
                args: args.iter().map(expand).collect::<Result<_, _>>()?,
                env: expand_values(env)?,
            },
            McpTransport::Http {
                url,
                headers,
                oauth,
            } => McpTransport::Http {
                url: expand(url)?,
                headers: expand_values(headers)?,
                oauth: match oauth {
                    Some(oauth) => Some(oauth.expand(variable)?),
                    None => None,
                },
            },
        };
        Ok(Self {
            transport,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(args: &[&str]) -> McpServerSpec {
        let transport = McpTransport::Stdio {
            command: "npx".to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::from([("TOKEN".to_owned(), "${TOKEN:-none}".to_owned())]),
        };
        McpServerSpec::new("s", transport)
    }

    #[test]
    fn the_launch_digest_changes_with_every_argument() {
        assert_eq!(stdio(&["a"]).launch_digest(), stdio(&["a"]).launch_digest());
        assert_ne!(stdio(&["a"]).launch_digest(), stdio(&["b"]).launch_digest());
    }

    #[test]
    fn the_launch_line_quotes_words_and_hides_values() {
        assert_eq!(stdio(&["-c", "a b"]).launch_line(), "TOKEN=… npx -c 'a b'");
    }

    #[test]
    fn a_spec_survives_json() {
        let spec = stdio(&["-y", "server"]);
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<McpServerSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn selections_name_tools() {
        let selection = ToolSelection {
            only: Some(vec!["a".to_owned(), "b".to_owned()]),
            except: vec!["b".to_owned()],
        };
        assert!(selection.includes("a"));
        assert!(!selection.includes("b") && !selection.includes("c"));
    }
}
