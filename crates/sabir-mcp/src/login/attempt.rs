//! The login of a user: the authorization code flow with PKCE and a redirect to this machine.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata,
    AuthorizationMetadataResolution, OAuthClientConfig,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use url::Url;

use super::challenge::widen_scopes;
use super::guarded_http::{GuardError, GuardedHttp, check_endpoint, is_loopback};
use super::redirect_listener::RedirectListener;
use super::store::{LoginStoreError, ServerCredentialStore};
use super::{IssuerMismatch, LoginKey, OAuthGrant, OAuthSettings};
use crate::error::McpError;
use crate::result_content::one_line;
use crate::servers::McpSettings;
use crate::spec::{McpServerSpec, McpTransport};

/// The name under which Sabir registers itself.
const CLIENT_NAME: &str = "Sabir";

/// The reason why a login failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The server is a program.
    #[error("it is a program on this machine; only servers with an address are logged in to")]
    NotRemote,
    /// The configuration has a token.
    #[error("its configuration has an Authorization header; remove that to log in")]
    TokenConfigured,
    /// The client's secret is enough.
    #[error("it has the grant client_credentials and needs no login; `sabir mcp test` tries it")]
    NoUserNeeded,
    /// The server answers without a login.
    #[error("it answers without a login")]
    NotNeeded,
    /// The server cannot be reached, or its address cannot be used.
    #[error(transparent)]
    Server(#[from] McpError),
    /// The port for the redirect is not free.
    #[error("the port {port} for the redirect from the browser cannot be opened: {reason}")]
    Port {
        /// The port; 0 for any.
        port: u16,
        /// The reason.
        reason: String,
    },
    /// The authorization server was not found.
    #[error("the way to log in cannot be determined: {0}")]
    Discovery(String),
    /// Sabir could not register itself.
    #[error(
        "Sabir cannot register itself at its authorization server ({reason}); register a client there with the redirect address {redirect} and configure its `oauth.client_id`"
    )]
    Register {
        /// The reason.
        reason: String,
        /// The address that the client must be registered with.
        redirect: String,
    },
    /// The authorization server must not be used.
    #[error("its authorization server cannot be used: {0}")]
    AuthorizationServer(String),
    /// The configured secret does not belong to the authorization server.
    #[error(transparent)]
    Issuer(#[from] IssuerMismatch),
    /// The user or the authorization server refused.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// The redirect does not belong to this login.
    #[error("that address belongs to another login: its state differs")]
    WrongState,
    /// The code was not exchanged for a token.
    #[error("the authorization server gave no token: {0}")]
    Token(String),
    /// The user did not finish the login in time.
    #[error("the login was not finished in the browser within {0} s")]
    Timeout(u64),
    /// The login cannot be kept.
    #[error(transparent)]
    Store(#[from] LoginStoreError),
}

impl From<GuardError> for LoginError {
    fn from(error: GuardError) -> Self {
        Self::AuthorizationServer(error.to_string())
    }
}

/// The outcome of a successful login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginReport {
    /// The authorization server.
    pub issuer: Option<String>,
    /// The scopes that were granted, as far as they are known.
    pub scopes: Vec<String>,
}

/// A login that waits for the user's browser.
pub struct LoginAttempt {
    manager: AuthorizationManager,
    kept: ServerCredentialStore,
    listener: RedirectListener,
    url: String,
    state: String,
}

/// The first answer of a server to a client without a token.
#[derive(Default)]
struct FirstAnswer {
    /// Its `WWW-Authenticate` header.
    challenge: Option<String>,
    /// True if it answered without a login.
    is_open: bool,
}

impl LoginAttempt {
    /// Finds the authorization server of a server, registers there, and opens the port for the way back. `spec` has no variables left.
    ///
    /// # Errors
    /// When the server needs no login, or one is not possible.
    pub async fn start(spec: &McpServerSpec, settings: &McpSettings) -> Result<Self, LoginError> {
        let McpTransport::Http {
            url,
            headers,
            oauth,
        } = &spec.transport
        else {
            return Err(LoginError::NotRemote);
        };
        if spec.transport.has_own_token() {
            return Err(LoginError::TokenConfigured);
        }
        let oauth = oauth.clone().unwrap_or_default();
        if oauth.grant == OAuthGrant::ClientCredentials {
            return Err(LoginError::NoUserNeeded);
        }
        let server = crate::connection::parse_address(url)?;
        let key = LoginKey {
            server: spec.name.clone(),
            url: url.clone(),
        };
        let kept = ServerCredentialStore {
            is_login: true,
            ..ServerCredentialStore::new(Arc::clone(&settings.logins), key)
        };
        let http = |error: reqwest::Error| McpError::Address {
            url: url.clone(),
            reason: error.to_string(),
        };
        let mut builder = (settings.http_client)();
        if is_loopback(&server) {
            // A proxy would read what programs of this machine say to each other.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(http)?;
        let first = probe_server(&client, &server, headers).await?;
        let guarded = GuardedHttp::new(server.clone(), Arc::clone(&settings.http_client));
        let created =
            AuthorizationManager::new_with_oauth_http_client(server.clone(), Arc::new(guarded));
        let mut manager = created.await.map_err(discovery_error)?;
        let metadata = discover(&manager, &first, &kept).await?;
        oauth.check_issuer(&metadata)?;
        let takes_documents = supports_metadata_documents(&metadata);
        let page = Url::parse(&metadata.authorization_endpoint)
            .map_err(|error| LoginError::AuthorizationServer(error.to_string()))?;
        check_endpoint(&page, &server)?;
        manager.set_metadata(metadata);
        manager.set_credential_store(kept.clone());
        let port = oauth.redirect_port;
        let listener = RedirectListener::bind(port)
            .await
            .map_err(|error| LoginError::Port {
                port: port.unwrap_or(0),
                reason: error.to_string(),
            })?;
        let scopes = choose_scopes(&manager, &oauth, &kept, &server).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = ClientChoice {
            oauth: &oauth,
            redirect: &listener.redirect_uri,
            takes_documents,
        };
        client.set_up(&mut manager, &kept, &scopes).await?;
        let url = manager
            .get_authorization_url(&scopes)
            .await
            .map_err(|error| LoginError::AuthorizationServer(describe_auth_error(&error)))?;
        let state = query_value(&url, "state").ok_or(LoginError::WrongState)?;
        Ok(Self {
            manager,
            kept,
            listener,
            url,
            state,
        })
    }

    /// Returns the address that the user opens in their browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until the user comes back, in the browser or with a pasted address, and keeps the tokens. `pasted` receives lines that the
    /// user types, and `notify` what was ignored.
    ///
    /// # Errors
    /// When the login is refused or not finished within `limit`, or the tokens cannot be kept.
    pub async fn finish(
        mut self,
        mut pasted: mpsc::Receiver<String>,
        limit: Duration,
        notify: &mut (dyn FnMut(&LoginError) + Send),
    ) -> Result<LoginReport, LoginError> {
        let end = Instant::now() + limit;
        let mut is_typing = true;
        loop {
            tokio::select! {
                redirect = self.listener.next_redirect() => {
                    // The listener ends with this value only.
                    let Some(redirect) = redirect else {
                        return Err(LoginError::Timeout(limit.as_secs()));
                    };
                    match self.accept_redirect(&redirect.url).await {
                        // Any page can send a browser here; the login continues.
                        Err(error @ LoginError::WrongState) => {
                            redirect.show_page("400 Bad Request", "This is not the login that Sabir waits for.").await;
                            notify(&error);
                        }
                        Err(error) => {
                            redirect.show_page("400 Bad Request", "The login failed. The terminal says why.").await;
                            return Err(error);
                        }
                        Ok(report) => {
                            redirect.show_page("200 OK", "You are logged in. You can close this page.").await;
                            return Ok(report);
                        }
                    }
                }
                line = pasted.recv(), if is_typing => match line.as_deref().map(str::trim) {
                    None => is_typing = false,
                    Some("") => {}
                    Some(line) => match self.accept_redirect(line).await {
                        Err(error @ LoginError::WrongState) => notify(&error),
                        result => return result,
                    },
                },
                () = sleep_until(end) => return Err(LoginError::Timeout(limit.as_secs())),
            }
        }
    }

    /// Accepts the address that the authorization server sent the browser to.
    async fn accept_redirect(&self, url: &str) -> Result<LoginReport, LoginError> {
        if query_value(url, "state").as_deref() != Some(self.state.as_str()) {
            return Err(LoginError::WrongState);
        }
        if let Some(error) = query_value(url, "error") {
            let description = query_value(url, "error_description").unwrap_or_default();
            let text = one_line(&format!("{error} {description}"));
            return Err(LoginError::Refused(text));
        }
        let callback = AuthorizationCallback::from_redirect_url(url)
            .map_err(|error| LoginError::Refused(describe_auth_error(&error)))?;
        // Another process must not put its renewed tokens in place of the new ones.
        let store = Arc::clone(&self.kept.store);
        let locked = tokio::task::spawn_blocking(move || store.lock_logins()).await;
        let _alone = locked.map_err(|error| LoginError::Token(error.to_string()))??;
        self.manager
            .exchange_code_for_token_with_issuer(
                &callback.code,
                &callback.csrf_token,
                callback.issuer.as_deref(),
            )
            .await
            .map_err(|error| LoginError::Token(describe_auth_error(&error)))?;
        let login = self.kept.store.load_login(&self.kept.key)?;
        let credentials = login.and_then(|login| login.credentials);
        Ok(LoginReport {
            issuer: credentials.as_ref().and_then(|own| own.issuer.clone()),
            scopes: credentials
                .map(|own| own.granted_scopes)
                .unwrap_or_default(),
        })
    }
}

/// Sends the first message of a connection without a token, to see how the server refuses it.
async fn probe_server(
    client: &reqwest::Client,
    server: &Url,
    headers: &BTreeMap<String, String>,
) -> Result<FirstAnswer, McpError> {
    let message = json!({
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "sabir", "version": env!("CARGO_PKG_VERSION")},
        },
    });
    let mut request = client
        .post(server.clone())
        .header(ACCEPT, "application/json, text/event-stream")
        .timeout(crate::limits::START_TIME);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = request
        .json(&message)
        .send()
        .await
        .map_err(|error| McpError::Address {
            // Without a user, a password and a query, which may be secrets of the configuration.
            url: server.origin().ascii_serialization() + server.path(),
            reason: error.without_url().to_string(),
        })?;
    let values = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let mut texts = values.filter_map(|value| value.to_str().ok());
    let is_refused = response.status() == reqwest::StatusCode::UNAUTHORIZED;
    Ok(FirstAnswer {
        challenge: texts
            .find(|text| text.to_ascii_lowercase().starts_with("bearer"))
            .filter(|_| is_refused)
            .map(str::to_owned),
        is_open: response.status().is_success(),
    })
}

/// Finds the authorization server.
async fn discover(
    manager: &AuthorizationManager,
    first: &FirstAnswer,
    kept: &ServerCredentialStore,
) -> Result<AuthorizationMetadata, LoginError> {
    // A server may ask for a login for some of its tools only, which a connection has seen.
    let later = kept
        .store
        .load_login(&kept.key)?
        .and_then(|login| login.challenge);
    let challenge = first.challenge.as_ref().or(later.as_ref());
    let AuthorizationMetadataResolution {
        metadata, source, ..
    } = manager
        .resolve_metadata_from_challenge(challenge.map(String::as_str))
        .await
        .map_err(discovery_error)?;
    if first.is_open && challenge.is_none() && !source.is_discovered() {
        return Err(LoginError::NotNeeded);
    }
    Ok(metadata)
}

fn discovery_error(error: AuthError) -> LoginError {
    LoginError::Discovery(describe_auth_error(&error))
}

/// Chooses the scopes to ask for: those of the configuration, else those that the server names.
async fn choose_scopes(
    manager: &AuthorizationManager,
    oauth: &OAuthSettings,
    kept: &ServerCredentialStore,
    server: &Url,
) -> Result<Vec<String>, LoginError> {
    let mut scopes = match oauth.scopes.is_empty() {
        true => manager.select_initial_scopes(&[]).await,
        false => oauth.scopes.clone(),
    };
    if let Some(login) = kept.store.load_login(&kept.key)? {
        widen_scopes(&mut scopes, &login, server);
    }
    Ok(scopes)
}

/// The facts that decide on the client.
struct ClientChoice<'a> {
    oauth: &'a OAuthSettings,
    redirect: &'a str,
    /// True if the authorization server takes the address of a metadata document for the id of a client.
    takes_documents: bool,
}

impl ClientChoice<'_> {
    /// Sets up the client: the configured one, the one of a metadata document where that is supported, or one that is registered now.
    async fn set_up(
        &self,
        manager: &mut AuthorizationManager,
        kept: &ServerCredentialStore,
        scopes: &[&str],
    ) -> Result<(), LoginError> {
        let register_error = |error: AuthError| LoginError::Register {
            reason: describe_auth_error(&error),
            redirect: self.redirect.to_owned(),
        };
        let document = self.oauth.client_metadata_url.as_ref();
        let client = match (&self.oauth.client_id, document) {
            (Some(id), _) => {
                let client = OAuthClientConfig::new(id, self.redirect);
                match &self.oauth.client_secret {
                    Some(secret) => client.with_client_secret(secret),
                    None => client,
                }
            }
            (None, Some(document)) if self.takes_documents => {
                OAuthClientConfig::new(document, self.redirect)
            }
            (None, _) => {
                let registered = manager.register_client(CLIENT_NAME, self.redirect, scopes);
                let client = registered.await.map_err(register_error)?;
                let mut secret = kept
                    .client_secret
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                secret.clone_from(&client.client_secret);
                client
            }
        };
        manager.configure_client(client).map_err(register_error)
    }
}

fn supports_metadata_documents(metadata: &AuthorizationMetadata) -> bool {
    let supported = metadata
        .additional_fields
        .get("client_id_metadata_document_supported");
    supported.and_then(Value::as_bool) == Some(true)
}

fn query_value(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let mut pairs = url.query_pairs();
    pairs
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// Describes an error of rmcp with its causes, in one line.
pub(super) fn describe_auth_error(error: &AuthError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    one_line(&text)
}
