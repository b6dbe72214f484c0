//! Logs in to remote servers by OAuth 2.1, as the protocol prescribes, and gives requests their tokens.
//!
//! [`LoginAttempt`] is the authorization code flow with PKCE: discovery, registration, the address for the user's browser, and the
//! redirect back to this machine. `ServerLogin` gives each request of a connection its token and renews it.
//!
//! * A login belongs to a server's name and address ([`LoginKey`]) and to the authorization server that issued it. A server elsewhere
//!   never gets its tokens, whatever it is called.
//! * All requests of the flow go through one guarded client: HTTPS except on this machine, no redirects, no addresses inside the user's
//!   network unless the server itself is there.
//! * The crate writes no file: a [`LoginStore`] keeps what has to be kept.

mod attempt;
mod authorized_client;
mod challenge;
mod guarded_http;
mod redirect_listener;
mod server_login;
mod store;

use serde::{Deserialize, Serialize};

use crate::variables::{UnsetVariable, expand_variables};

pub use attempt::{LoginAttempt, LoginError, LoginReport};
pub(crate) use authorized_client::AuthorizedClient;
pub(crate) use challenge::missing_scopes;
pub(crate) use guarded_http::is_loopback;
pub(crate) use server_login::ServerLogin;
pub use store::{ForgetfulLoginStore, LoginKey, LoginStore, LoginStoreError, StoredLogin};

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
    /// The address of a client metadata document, which serves as the id of the client where that is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_metadata_url: Option<String>,
    /// The scopes that are asked for, instead of those that the server names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The port of this machine that the browser is sent back to, for clients that were registered with it; otherwise any free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_port: Option<u16>,
    /// The way to a token.
    #[serde(skip_serializing_if = "OAuthGrant::is_default")]
    pub grant: OAuthGrant,
}

/// The way to a token.
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

impl std::fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}
