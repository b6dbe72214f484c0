//! Serves TLS with a self-signed certificate, for tests that clients reject it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

/// A certificate for `localhost` and 127.0.0.1, valid for a century. It protects nothing, so its
/// key may be public.
const CERTIFICATE: &[u8] = include_bytes!("untrusted/certificate.der");
const KEY: &[u8] = include_bytes!("untrusted/key.der");

/// A server with an untrusted certificate. It serves until the process ends.
#[derive(Debug)]
pub struct UntrustedServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl UntrustedServer {
    /// Starts the server on a free port of the loopback interface.
    ///
    /// # Errors
    /// No port is available, or TLS cannot be set up.
    pub fn start() -> io::Result<Self> {
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
                if answer_connection(stream, &config).is_ok() {
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

    /// Returns the number of connections, and of those on which data followed the handshake.
    pub fn connection_counts(&self) -> (usize, usize) {
        (
            self.connections.load(Ordering::Relaxed),
            self.requests.load(Ordering::Relaxed),
        )
    }
}

/// Completes the handshake and answers one request.
fn answer_connection(mut stream: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    let mut connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut tls = Stream::new(&mut connection, &mut stream);
    let mut bytes = [0; 1024];
    if tls.read(&mut bytes)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    tls.write_all(b"HTTP/1.1 400 scripted\r\ncontent-length: 0\r\n\r\n")
}
