//! Defines the stored data of a login, and stores it for rmcp.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Identifies the server of a login. Both parts count, so that another entry of a configuration
/// never uses the login by accident.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoginKey {
    /// The server's name.
    pub server: String,
    /// The server's address.
    pub url: String,
}

impl LoginKey {
    /// Returns a hash of both parts, for the name of a file. An address may hold a secret.
    pub fn digest(&self) -> String {
        // No name has a line break, so two keys have two texts.
        let text = format!("{}\n{}", self.server, self.url);
        crate::definition::hex_digest(Sha256::digest(text.as_bytes()).as_slice())
    }
}

/// The kept login of a server.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredLogin {
    /// The server's name.
    pub server: String,
    /// The server's address.
    pub url: String,
    /// The secret that the authorization server gave to the registered client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The tokens, with the client and the authorization server that they belong to. `None`: the user has to log in.
    pub credentials: Option<StoredCredentials>,
    /// The last `WWW-Authenticate` header with which the server refused a request, until the next login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<String>,
}

impl StoredLogin {
    /// Creates the login of a server that was never logged in to.
    pub fn new(key: &LoginKey) -> Self {
        Self {
            server: key.server.clone(),
            url: key.url.clone(),
            client_secret: None,
            credentials: None,
            challenge: None,
        }
    }
}

impl std::fmt::Debug for StoredLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredLogin")
            .field("server", &self.server)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// An error of a store of logins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginStoreError {
    /// A login cannot be read.
    #[error("the login in {path} cannot be read: {reason}")]
    Read {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A login cannot be written or removed.
    #[error("the login in {path} cannot be changed: {reason}")]
    Write {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// There is no place to keep logins.
    #[error("there is no folder to keep logins in: {0}")]
    NoFolder(String),
}

/// Keeps the logins of servers. All functions may block for a moment.
pub trait LoginStore: Send + Sync {
    /// Returns the login of a server.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load_login(&self, key: &LoginKey) -> Result<Option<StoredLogin>, LoginStoreError>;

    /// Keeps the login of a server in place of an earlier one.
    ///
    /// # Errors
    /// When it cannot be written.
    fn save_login(&self, login: &StoredLogin) -> Result<(), LoginStoreError>;

    /// Removes the login of a server, and returns true if there was one.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_login(&self, key: &LoginKey) -> Result<bool, LoginStoreError>;

    /// Locks all logins against other processes that would renew them, until the returned value is dropped. May block for long.
    ///
    /// # Errors
    /// When there is nothing to lock.
    fn lock_logins(&self) -> Result<Box<dyn Send>, LoginStoreError>;
}

/// A store that keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullLoginStore;

impl LoginStore for NullLoginStore {
    fn load_login(&self, _: &LoginKey) -> Result<Option<StoredLogin>, LoginStoreError> {
        Ok(None)
    }

    fn save_login(&self, _: &StoredLogin) -> Result<(), LoginStoreError> {
        Ok(())
    }

    fn remove_login(&self, _: &LoginKey) -> Result<bool, LoginStoreError> {
        Ok(false)
    }

    fn lock_logins(&self) -> Result<Box<dyn Send>, LoginStoreError> {
        Ok(Box::new(()))
    }
}

/// Lets rmcp load and keep the tokens of one server.
#[derive(Clone)]
pub(crate) struct ServerCredentialStore {
    pub(crate) store: Arc<dyn LoginStore>,
    pub(crate) key: LoginKey,
    /// The secret of the client that was registered for the next login to be saved, and that of the loaded one.
    pub(crate) client_secret: Arc<Mutex<Option<String>>>,
    /// True for a new login, after which nothing is missing any more; false where tokens are only renewed.
    pub(crate) is_login: bool,
}

impl ServerCredentialStore {
    pub(crate) fn new(store: Arc<dyn LoginStore>, key: LoginKey) -> Self {
        Self {
            store,
            key,
            client_secret: Arc::default(),
            is_login: false,
        }
    }

    pub(crate) fn load_login(&self) -> Result<Option<StoredLogin>, AuthError> {
        self.store.load_login(&self.key).map_err(store_error)
    }

    /// Keeps the header with which the server refused a request, so that the next login asks for what is missing.
    pub(crate) fn save_challenge(&self, challenge: &str) -> Result<(), AuthError> {
        let known = self.load_login()?;
        let mut login = known.unwrap_or_else(|| StoredLogin::new(&self.key));
        if login.challenge.as_deref() == Some(challenge) {
            return Ok(());
        }
        login.challenge = Some(challenge.to_owned());
        self.store.save_login(&login).map_err(store_error)
    }
}

fn store_error(error: LoginStoreError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait::async_trait]
impl CredentialStore for ServerCredentialStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.load_login()?.and_then(|login| login.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let secret = self
            .client_secret
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let known = self.load_login()?.filter(|_| !self.is_login);
        let login = StoredLogin {
            client_secret: secret,
            credentials: Some(credentials),
            // A renewed token has no more rights than the one before.
            challenge: known
                .and_then(|login| login.challenge)
                .filter(|text| text.contains("insufficient_scope")),
            ..StoredLogin::new(&self.key)
        };
        self.store.save_login(&login).map_err(store_error)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.store
            .remove_login(&self.key)
            .map(drop)
            .map_err(store_error)
    }

    async fn on_refresh_token_rejected(
        &self,
        rejected: &StoredCredentials,
    ) -> Result<(), AuthError> {
        let Some(mut login) = self.load_login()? else {
            return Ok(());
        };
        let text = |credentials: &StoredCredentials| serde_json::to_string(credentials).ok();
        // The user may have logged in again meanwhile.
        if login.credentials.as_ref().and_then(text) == text(rejected) {
            login.credentials = None;
            self.store.save_login(&login).map_err(store_error)?;
        }
        Ok(())
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let store = Arc::clone(&self.store);
        // Another process may hold the lock during a request of its own.
        let locked = tokio::task::spawn_blocking(move || store.lock_logins()).await;
        let guard = locked
            .map_err(|error| AuthError::CredentialStoreError(error.to_string()))?
            .map_err(store_error)?;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}
