//! A server on this machine that nobody should trust: TLS with a certificate that it signed itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

/// For `localhost` and 127.0.0.1, valid for a century. They protect nothing.
const CERTIFICATE: &[u8] = include_bytes!("untrusted/certificate.der");
const KEY: &[u8] = include_bytes!("untrusted/key.der");

/// A server whose certificate cannot be trusted. It serves until the process ends.
#[derive(Debug)]
pub struct UntrustedServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl UntrustedServer {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// If no port can be had, or TLS cannot be set up.
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
                // A client that refuses is what is hoped for.
                if answer_connection(stream, &config).is_ok() {
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { address, connections, requests })
    }

    /// Where it listens.
    pub fn base_url(&self) -> String {
        format!("https://{}/v1", self.address)
    }

    /// How many connections were made, and on how many of them something was said behind the handshake.
    pub fn connection_counts(&self) -> (usize, usize) {
        (self.connections.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }
}

fn answer_connection(mut stream: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    let mut connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut tls = Stream::new(&mut connection, &mut stream);
    let mut bytes = [0; 1024];
    if tls.read(&mut bytes)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    tls.write_all(b"HTTP/1.1 400 scripted\r\ncontent-length: 0\r\n\r\n")
}
