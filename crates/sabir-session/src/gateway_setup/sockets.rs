//! Reads the certificate of a gateway, and opens its Unix socket.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use sabir_gateway::TlsIdentity;
use tokio::net::UnixListener;

use crate::config::Config;
use crate::error::SessionError;

/// Reads the certificate and the key that the configuration names, if it names some.
///
/// # Errors
/// A file cannot be read, or they cannot be used.
pub fn load_tls(config: &Config) -> Result<Option<TlsIdentity>, SessionError> {
    let keys = config.gateway_config();
    let (Some(certificate), Some(key)) = (&keys.tls_cert, &keys.tls_key) else {
        return Ok(None);
    };
    let read = |name: &str, path: &Path| {
        std::fs::read(path).map_err(|error| {
            let why = format!("{} cannot be read: {error}", path.display());
            config.error_at(&["gateway", name], why)
        })
    };
    let certificate_text = read("tls_cert", certificate)?;
    let key_text = read("tls_key", key)?;
    let identity = TlsIdentity::from_pem(&certificate_text, &key_text).map_err(|error| {
        let why = format!("{} and {}: {error}", certificate.display(), key.display());
        config.error_at(&["gateway", "tls_cert"], why)
    })?;
    Ok(Some(identity))
}

/// Opens the Unix socket that the configuration names, if it names one. A socket that nobody listens
/// on any more is replaced. Only its owner may connect.
///
/// # Errors
/// The socket cannot be opened, or another program listens on it.
pub fn open_unix_socket(config: &Config) -> Result<Option<UnixListener>, SessionError> {
    let Some(path) = &config.gateway_config().socket else {
        return Ok(None);
    };
    let open = || -> io::Result<UnixListener> {
        let is_socket =
            std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    open().map(Some).map_err(|error| {
        let why = format!("the gateway cannot listen on {}: {error}", path.display());
        config.error_at(&["gateway", "socket"], why)
    })
}
