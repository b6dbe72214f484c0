//! Provides the token for the requests to one server, and renews it.

use std::sync::{Arc, PoisonError};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig,
    OAuthClientConfig, StoredCredentials,
};
use tokio::sync::Mutex;
use url::Url;

use super::guarded_http::GuardedHttp;
use super::store::{LoginStore, ServerCredentialStore, StoredLogin};
use crate::sent_secrets::SentSecrets;
use crate::servers::HttpClientFactory;

use super::{LoginKey, OAuthGrant, OAuthSettings};

/// The login of one server as its connection uses it.
pub(crate) struct ServerLogin {
    url: Url,
    settings: OAuthSettings,
    kept: ServerCredentialStore,
    http: Arc<GuardedHttp>,
    /// The tokens of this connection so far, which a server may repeat in its answers.
    sent_secrets: SentSecrets,
    /// One request at a time renews the token; the others wait for it.
    session: Mutex<TokenSession>,
}

/// rmcp's state of a login.
#[derive(Default)]
struct TokenSession {
    manager: Option<AuthorizationManager>,
    /// The client that the manager was set up for, after a discovery. `None`: it can hand out tokens and not renew them.
    ready_client: Option<String>,
}

impl ServerLogin {
    /// Creates the login of a server. `begin_client` begins HTTP clients that do not follow redirects, and tokens are added to
    /// `sent_secrets`.
    pub(crate) fn new(
        key: LoginKey,
        url: Url,
        settings: OAuthSettings,
        store: Arc<dyn LoginStore>,
        begin_client: HttpClientFactory,
        sent_secrets: SentSecrets,
    ) -> Self {
        Self {
            http: Arc::new(GuardedHttp::new(url.clone(), begin_client)),
            url,
            settings,
            kept: ServerCredentialStore::new(store, key),
            sent_secrets,
            session: Mutex::default(),
        }
    }

    /// Returns the token for the next request, renewed if it is about to expire; `None` without a login.
    pub(crate) async fn bearer_token(&self) -> Result<Option<String>, AuthError> {
        let mut session = self.session.lock().await;
        let token = self.current_token(&mut session).await;
        self.remember_token(token)
    }

    /// Returns another token in place of one that the server refused; `None` if the user has to log in.
    pub(crate) async fn replace_token(&self, refused: &str) -> Result<Option<String>, AuthError> {
        let mut session = self.session.lock().await;
        let token = self.renewed_token(&mut session, refused).await;
        self.remember_token(token)
    }

    fn remember_token(
        &self,
        token: Result<Option<String>, AuthError>,
    ) -> Result<Option<String>, AuthError> {
        if let Ok(Some(token)) = &token {
            self.sent_secrets.add_secret(token);
        }
        token
    }

    /// Notes the other secrets of a login, which an authorization server may repeat in its errors.
    fn register_secrets(&self, credentials: &StoredCredentials, client_secret: Option<&str>) {
        let kept = serde_json::to_value(credentials).unwrap_or_default();
        let refresh_token = kept
            .pointer("/token_response/refresh_token")
            .and_then(|token| token.as_str());
        for secret in [refresh_token, client_secret].into_iter().flatten() {
            self.sent_secrets.add_secret(secret);
        }
    }

    async fn renewed_token(
        &self,
        session: &mut TokenSession,
        refused: &str,
    ) -> Result<Option<String>, AuthError> {
        let current = self.current_token(session).await?;
        // Another request, another process or the user may have renewed it meanwhile.
        if current.as_deref() != Some(refused) {
            return Ok(current);
        }
        if self.settings.grant == OAuthGrant::ClientCredentials {
            return self.request_client_token(session).await.map(Some);
        }
        let Some(login) = self.kept.load_login()? else {
            return Ok(None);
        };
        let Some(credentials) = &login.credentials else {
            return Ok(None);
        };
        let manager = self.prepare_renewal(session, &login, credentials).await?;
        match manager.refresh_token().await {
            Ok(_) => manager.get_access_token().await.map(Some),
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps the header with which the server refused a request.
    pub(crate) fn keep_challenge(&self, challenge: &str) -> Result<(), AuthError> {
        self.kept.save_challenge(challenge)
    }

    /// Returns the scopes that the present login has.
    pub(crate) fn granted_scopes(&self) -> Vec<String> {
        let login = self.kept.load_login().ok().flatten();
        login
            .and_then(|login| login.credentials)
            .map(|own| own.granted_scopes)
            .unwrap_or_default()
    }

    async fn current_token(&self, session: &mut TokenSession) -> Result<Option<String>, AuthError> {
        if self.settings.grant == OAuthGrant::ClientCredentials {
            return self.current_client_token(session).await.map(Some);
        }
        let Some(login) = self.kept.load_login()? else {
            return Ok(None);
        };
        let Some(credentials) = &login.credentials else {
            return Ok(None);
        };
        if session.ready_client.as_deref() != Some(credentials.client_id.as_str()) {
            session.manager = None;
            session.ready_client = None;
        }
        let manager = match &session.manager {
            Some(manager) => manager,
            None => session.manager.insert(self.create_manager().await?),
        };
        let token = match manager.get_access_token().await {
            // A manager without metadata returns this error if the token must be renewed. Most
            // starts need no renewal, so the discovery is done only now.
            Err(AuthError::InternalError(_)) if session.ready_client.is_none() => {
                let manager = self.prepare_renewal(session, &login, credentials).await?;
                manager.get_access_token().await
            }
            other => other,
        };
        match token {
            Ok(token) => Ok(Some(token)),
            Err(AuthError::AuthorizationRequired) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create_manager(&self) -> Result<AuthorizationManager, AuthError> {
        let mut manager = self.create_client_manager().await?;
        manager.set_credential_store(self.kept.clone());
        Ok(manager)
    }

    /// Creates a manager that keeps nothing.
    async fn create_client_manager(&self) -> Result<AuthorizationManager, AuthError> {
        let http = Arc::clone(&self.http);
        AuthorizationManager::new_with_oauth_http_client(self.url.clone(), http).await
    }

    /// Finds the authorization server, which must still be the one that issued the tokens.
    async fn prepare_renewal<'a>(
        &self,
        session: &'a mut TokenSession,
        login: &StoredLogin,
        credentials: &StoredCredentials,
    ) -> Result<&'a AuthorizationManager, AuthError> {
        if session.ready_client.is_none() {
            let mut manager = self.create_manager().await?;
            let metadata = manager.resolve_metadata().await?.metadata;
            if metadata.issuer != credentials.issuer {
                // Its refresh token belongs to the other one, and is not sent here.
                return Err(AuthError::AuthorizationRequired);
            }
            let is_configured = self.settings.client_id.as_ref() == Some(&credentials.client_id);
            if is_configured {
                self.check_issuer(&metadata)?;
            }
            manager.set_metadata(metadata);
            let secret = match is_configured {
                true => self.settings.client_secret.clone(),
                false => login.client_secret.clone(),
            };
            let mut kept = self
                .kept
                .client_secret
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            kept.clone_from(&login.client_secret);
            drop(kept);
            let client = OAuthClientConfig::new(&credentials.client_id, self.url.as_str());
            self.register_secrets(credentials, secret.as_deref());
            manager.configure_client(match secret {
                Some(secret) => client.with_client_secret(secret),
                None => client,
            })?;
            session.manager = Some(manager);
            session.ready_client = Some(credentials.client_id.clone());
        }
        session
            .manager
            .as_ref()
            .ok_or(AuthError::AuthorizationRequired)
    }

    fn check_issuer(&self, metadata: &AuthorizationMetadata) -> Result<(), AuthError> {
        let checked = self.settings.check_issuer(metadata);
        checked.map_err(|error| AuthError::ClientCredentialsError(error.to_string()))
    }

    /// Returns the client's own token, or a new one.
    async fn current_client_token(&self, session: &mut TokenSession) -> Result<String, AuthError> {
        if let Some(manager) = &session.manager {
            match manager.get_access_token().await {
                Err(AuthError::AuthorizationRequired) => {}
                other => return other,
            }
        }
        self.request_client_token(session).await
    }

    /// Gets a token for the client itself. It is never kept: another one needs no login.
    async fn request_client_token(&self, session: &mut TokenSession) -> Result<String, AuthError> {
        let missing = || {
            AuthError::ClientCredentialsError(
                "the grant client_credentials needs client_id and client_secret".to_owned(),
            )
        };
        let client_id = self.settings.client_id.clone().ok_or_else(missing)?;
        let client_secret = self.settings.client_secret.clone().ok_or_else(missing)?;
        self.sent_secrets.add_secret(&client_secret);
        let mut manager = self.create_client_manager().await?;
        let metadata = manager.resolve_metadata().await?.metadata;
        self.check_issuer(&metadata)?;
        manager.set_metadata(metadata);
        let scopes = match self.settings.scopes.is_empty() {
            true => manager.select_initial_scopes(&[]).await,
            false => self.settings.scopes.clone(),
        };
        let client = ClientCredentialsConfig::ClientSecret {
            client_id,
            client_secret,
            scopes,
            resource: Some(self.url.to_string()),
        };
        manager.validate_client_credentials_metadata(&client)?;
        manager.configure_client_credentials(&client)?;
        manager.exchange_client_credentials(&client).await?;
        let token = manager.get_access_token().await;
        session.manager = Some(manager);
        token
    }
}
