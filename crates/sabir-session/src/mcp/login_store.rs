//! Keeps the logins of servers: a file for each beside the tasks, readable by the user only, in a folder that no command of a model can
//! read.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_mcp::{LoginKey, LoginStore, LoginStoreError, StoredLogin};

use crate::environment::Environment;
use crate::remember;

/// The logins of the user.
pub(super) struct FileLoginStore {
    environment: Arc<Environment>,
}

impl FileLoginStore {
    pub(super) fn new(environment: Arc<Environment>) -> Self {
        Self { environment }
    }

    /// Returns the path of a login.
    fn path(&self, key: &LoginKey) -> Result<PathBuf, LoginStoreError> {
        let data = self
            .environment
            .sabir_data_folder()
            .map_err(|error| LoginStoreError::NoFolder(error.to_string()))?;
        let name = format!("{}.json", key.digest());
        Ok(data.join("mcp-logins").join(name))
    }
}

fn write_error(path: &Path, reason: impl ToString) -> LoginStoreError {
    LoginStoreError::Write {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

impl LoginStore for FileLoginStore {
    fn load_login(&self, key: &LoginKey) -> Result<Option<StoredLogin>, LoginStoreError> {
        let Ok(path) = self.path(key) else {
            return Ok(None);
        };
        let unreadable = |reason: String| LoginStoreError::Read {
            path: path.display().to_string(),
            reason,
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error.to_string())),
        };
        // Not the error's own text, which may quote the file.
        let login: StoredLogin = serde_json::from_str(&text).map_err(|error| {
            unreadable(format!(
                "line {} is broken; `sabir mcp logout` removes it",
                error.line()
            ))
        })?;
        // The name is a hash of both; a copied file is of no use for another server.
        let is_same = login.server == key.server && login.url == key.url;
        Ok(is_same.then_some(login))
    }

    fn save_login(&self, login: &StoredLogin) -> Result<(), LoginStoreError> {
        let key = LoginKey {
            server: login.server.clone(),
            url: login.url.clone(),
        };
        let path = self.path(&key)?;
        let text =
            serde_json::to_string_pretty(login).map_err(|error| write_error(&path, error))?;
        // Replaced atomically. Only the user can read the file, since a new one is created that
        // way.
        remember::replace_file(&self.environment, &path, &format!("{text}\n"))
            .map_err(|error| write_error(&path, error))
    }

    fn remove_login(&self, key: &LoginKey) -> Result<bool, LoginStoreError> {
        let path = self.path(key)?;
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(write_error(&path, error)),
        }
    }

    fn lock_logins(&self) -> Result<Box<dyn Send>, LoginStoreError> {
        let any = LoginKey {
            server: String::new(),
            url: String::new(),
        };
        let path = self.path(&any)?;
        let locked = remember::lock_folder(&path).map_err(|error| write_error(&path, error))?;
        Ok(Box::new(locked))
    }
}
