//! Logs in to remote servers by OAuth 2.1, as the protocol prescribes, and gives requests their tokens.
//!
//! [`LoginAttempt`] is the authorization code flow with PKCE: discovery, registration, the address for the user's browser, and the
//! redirect back to this machine. `ServerLogin` gives each request of a connection its token and renews it.
//!
//! * A login belongs to a server's name and address ([`LoginKey`]) and to the authorization server
//!   that issued it. A server with another address never gets its tokens, whatever its name is.
//! * All requests of the flow go through one guarded client: HTTPS except on this machine, no redirects, no addresses inside the user's
//!   network unless the server itself is there.
//! * The crate writes no files: a [`LoginStore`] stores the tokens.

mod attempt;
mod authorized_client;
mod challenge;
mod guarded_http;
mod redirect_listener;
mod revocation;
mod running_logins;
mod server_login;
mod store;

use rmcp::transport::auth::AuthorizationMetadata;
use serde::{Deserialize, Serialize};

use crate::variables::{UnsetVariable, expand_variables};

pub use attempt::{LoginAttempt, LoginError, LoginReport};
pub(crate) use authorized_client::AuthorizedClient;
pub(crate) use challenge::missing_scopes;
pub(crate) use guarded_http::is_loopback;
pub use revocation::{Revocation, revoke_login};
pub(crate) use running_logins::RunningLogins;
pub(crate) use server_login::ServerLogin;
pub use store::{LoginKey, LoginStore, LoginStoreError, NullLoginStore, StoredLogin};

/// The OAuth settings of a remote server. Without any, Sabir registers itself where the server's authorization server allows it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OAuthSettings {
    /// The id of a client that was registered by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret of that client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The authorization server that the client is registered at. Its secret is sent to no other one, whichever the server names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The address of a client metadata document, which serves as the id of the client where that is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_metadata_url: Option<String>,
    /// The scopes that are asked for, instead of those that the server names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The port of this machine that the browser is sent back to, for clients that were registered with it; otherwise any free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_port: Option<u16>,
    /// The way to get a token.
    #[serde(skip_serializing_if = "OAuthGrant::is_default")]
    pub grant: OAuthGrant,
}

/// The way to get a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuthGrant {
    /// The user logs in with their browser.
    #[default]
    AuthorizationCode,
    /// The client's own secret is enough, without a user.
    ClientCredentials,
}

impl OAuthSettings {
    /// Replaces variables such as `${CLIENT_SECRET}`.
    pub(crate) fn expand(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, UnsetVariable> {
        let expand = |text: &Option<String>| {
            text.as_ref()
                .map(|text| expand_variables(text, variable))
                .transpose()
        };
        Ok(Self {
            client_id: expand(&self.client_id)?,
            client_secret: expand(&self.client_secret)?,
            issuer: expand(&self.issuer)?,
            client_metadata_url: expand(&self.client_metadata_url)?,
            ..self.clone()
        })
    }
}

impl OAuthGrant {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The reason why a configured secret is not sent to an authorization server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerMismatch {
    /// The configuration does not say where the secret belongs.
    #[error(
        "the client's secret is not sent to {found}; if you have registered the client there, add `issuer = \"{found}\"` to its `oauth` table"
    )]
    Unknown {
        /// The authorization server that the server names.
        found: String,
    },
    /// The secret belongs to another authorization server.
    #[error(
        "the client's secret is not sent to {found}: it belongs to {expected}, the `oauth.issuer` of the configuration"
    )]
    Other {
        /// The authorization server that the server names.
        found: String,
        /// The one of the configuration.
        expected: String,
    },
}

impl OAuthSettings {
    /// Checks that the secret of the configuration, if there is one, belongs to the authorization server with this metadata. The MCP server
    /// names its authorization server, and could otherwise get the secret by naming its own.
    pub(crate) fn check_issuer(
        &self,
        metadata: &AuthorizationMetadata,
    ) -> Result<(), IssuerMismatch> {
        if self.client_secret.is_none() {
            return Ok(());
        }
        // Without metadata there is only the place to which the secret would go.
        let token_origin = || {
            let url = url::Url::parse(&metadata.token_endpoint).ok()?;
            Some(url.origin().ascii_serialization())
        };
        let found = metadata.issuer.clone().or_else(token_origin);
        let found = crate::result_content::one_line(&found.unwrap_or_default());
        match &self.issuer {
            None => Err(IssuerMismatch::Unknown { found }),
            // Authorization servers differ in whether they write a slash at the end.
            Some(expected) if expected.trim_end_matches('/') == found.trim_end_matches('/') => {
                Ok(())
            }
            Some(expected) => Err(IssuerMismatch::Other {
                found,
                expected: expected.clone(),
            }),
        }
    }
}

impl std::fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_goes_to_its_own_authorization_server_only() {
        let check = |expected: Option<&str>, found: Option<&str>| {
            let settings = OAuthSettings {
                client_secret: Some("s".to_owned()),
                issuer: expected.map(str::to_owned),
                ..OAuthSettings::default()
            };
            let metadata = serde_json::json!({
                "authorization_endpoint": "https://b.example/authorize",
                "token_endpoint": "https://b.example/token",
                "issuer": found,
            });
            let metadata = serde_json::from_value(metadata).unwrap();
            settings
                .check_issuer(&metadata)
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            check(Some("https://a.example/"), Some("https://a.example")),
            Ok(())
        );
        assert_eq!(check(Some("https://b.example"), None), Ok(()));
        for other in ["https://a.example.evil.example", "https://a.example/evil"] {
            let said = check(Some("https://a.example"), Some(other)).unwrap_err();
            assert!(said.contains("belongs to https://a.example,"), "{said}");
        }
        let said = check(None, Some("https://a.example")).unwrap_err();
        assert!(
            said.contains("add `issuer = \"https://a.example\"`"),
            "{said}"
        );
        let public = OAuthSettings::default();
        let metadata = serde_json::json!({"authorization_endpoint": "", "token_endpoint": ""});
        assert_eq!(
            public.check_issuer(&serde_json::from_value(metadata).unwrap()),
            Ok(())
        );
    }
}
