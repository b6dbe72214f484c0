//! Serves TLS with a certificate of an unknown authority, for tests that clients reject it unless they are configured to trust
//! that authority.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

/// The certificate of the authority, in PEM. Its key was thrown away.
const AUTHORITY: &str = include_str!("untrusted/authority.pem");
/// A certificate of that authority for `localhost` and 127.0.0.1, valid for a century. Its key may
/// be public, since it protects nothing.
const CERTIFICATE: &[u8] = include_bytes!("untrusted/certificate.der");
/// The key of the certificate, in PKCS #8.
const KEY: &[u8] = include_bytes!("untrusted/key.der");

/// A server with an untrusted certificate. It serves until the process ends.
#[derive(Debug)]
pub struct UntrustedServer {
    /// The address that it listens on.
    address: SocketAddr,
    /// The number of accepted connections.
    connections: Arc<AtomicUsize>,
    /// The number of connections on which a client sent data after the handshake.
    requests: Arc<AtomicUsize>,
}

impl UntrustedServer {
    /// Starts the server on a free port of the loopback interface. It answers every request with status 400.
    ///
    /// # Errors
    /// No port is available, or TLS cannot be set up.
    pub fn start() -> io::Result<Self> {
        Self::start_with(b"HTTP/1.1 400 scripted\r\ncontent-length: 0\r\n\r\n".to_vec())
    }

    /// Starts the server with the HTTP response that it gives to every request.
    ///
    /// # Errors
    /// No port is available, or TLS cannot be set up.
    pub fn start_with(response: Vec<u8>) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(KEY));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)
            .map_err(io::Error::other)?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let heard = Arc::clone(&requests);
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                // A correct client refuses the certificate, so this fails.
                if answer_connection(stream, &config, &response).is_ok() {
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self {
            address,
            connections,
            requests,
        })
    }

    /// Returns the base URL of the server.
    pub fn base_url(&self) -> String {
        format!("https://{}/v1", self.address)
    }

    /// Returns the server's certificate in PEM, for a server of another kind at 127.0.0.1.
    pub fn certificate_pem() -> &'static str {
        include_str!("untrusted/certificate.pem")
    }

    /// Returns the key of that certificate in PEM.
    pub fn key_pem() -> &'static str {
        include_str!("untrusted/key.pem")
    }

    /// Returns the certificate of the authority that a client has to trust, in PEM.
    pub fn authority_pem() -> &'static str {
        AUTHORITY
    }

    /// Returns the number of connections, and of those on which data followed the handshake.
    pub fn connection_counts(&self) -> (usize, usize) {
        (
            self.connections.load(Ordering::Relaxed),
            self.requests.load(Ordering::Relaxed),
        )
    }
}

/// Completes the handshake and answers one request.
fn answer_connection(
    mut stream: TcpStream,
    config: &Arc<ServerConfig>,
    response: &[u8],
) -> io::Result<()> {
    let mut connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut tls = Stream::new(&mut connection, &mut stream);
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    // Read to its end: closing a connection with unread data would cancel the response.
    while !is_complete_request(&request) {
        match tls.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend(bytes.iter().take(count)),
        }
    }
    tls.write_all(response)?;
    tls.conn.send_close_notify();
    tls.flush()
}

/// Returns true if these bytes are a head and as much of a body as it announces.
fn is_complete_request(bytes: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else {
        return false;
    };
    let length = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    bytes.len() >= head + length.unwrap_or(0)
}
