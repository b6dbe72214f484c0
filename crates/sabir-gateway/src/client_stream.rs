//! The connections of clients: over TCP, over TLS, or over a Unix socket.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// The connection of a client.
pub(crate) enum ClientStream {
    /// Over TCP, not encrypted.
    Tcp(TcpStream),
    /// Over TLS, after the handshake.
    Tls(Box<TlsStream<TcpStream>>),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// The certificate and the key of a gateway that serves TLS. Clones share them.
#[derive(Debug, Clone)]
pub struct TlsIdentity(pub(crate) Arc<ServerConfig>);

/// A certificate or a key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificates cannot be read.
    #[error("the certificate is not PEM: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    /// The key cannot be read.
    #[error("the key is not PEM: {0}")]
    Key(rustls::pki_types::pem::Error),
    /// There is no certificate.
    #[error("the file of the certificate holds none")]
    NoCertificate,
    /// They do not belong together, or have an unknown form.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl TlsIdentity {
    /// Reads the certificate, with those of its issuers after it, and its key, all in PEM.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> std::result::Result<Self, TlsError> {
        let chain: std::result::Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(TlsError::Certificate)?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // The server speaks nothing else, so HTTP/2 must not be negotiated.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl ClientStream {
    /// Writes at once what fits into the socket's buffer, if the connection is not encrypted.
    pub(crate) fn try_write(&self, bytes: &[u8]) {
        _ = match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tls(_) => Ok(0),
        };
    }
}

/// Calls a method on the stream that there is.
macro_rules! on_stream {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Tcp($stream) => $call,
            Self::Tls($stream) => {
                let $stream = $stream.as_mut();
                $call
            }
            Self::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        on_stream!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        on_stream!(self, stream => Pin::new(stream).poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
