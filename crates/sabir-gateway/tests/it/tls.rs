//! Tests connections over TLS and over a Unix socket.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sabir_gateway::{Gateway, Listeners, NullObserver, RouteTable, TlsIdentity};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider, UntrustedServer};
use sabir_wire::Wire;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::test_gateway::{LONG, TOKEN, body, route, settings};

/// Returns the request of a client as bytes.
fn request(host: &str) -> Vec<u8> {
    let body = body(Wire::Anthropic, "hi", false).to_string();
    format!(
        "POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nx-api-key: {TOKEN}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Makes a WebSocket of a connection, gets an answer on it, and closes it.
async fn ask_over_web_socket(stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) {
    let mut request = format!("ws://{host}/v1/responses")
        .into_client_request()
        .unwrap();
    let key = TOKEN.parse().unwrap();
    request.headers_mut().insert("x-api-key", key);
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream)
        .await
        .unwrap();
    let message = r#"{"type": "response.create", "model": "model", "input": "hi"}"#;
    socket.send(Message::text(message)).await.unwrap();
    let answer = async {
        loop {
            let event = socket.next().await.unwrap().unwrap();
            if event.to_text().unwrap().contains("response.completed") {
                return event.to_text().unwrap().contains("hello");
            }
        }
    };
    assert!(tokio::time::timeout(LONG, answer).await.unwrap());
    socket.close(None).await.unwrap();
    let rest = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::time::timeout(LONG, rest).await.unwrap();
}

#[tokio::test]
async fn requests_come_over_tls_and_over_a_unix_socket() {
    let script = ReplyScript::from_fn(|_, _| ProviderReply::text("hello"));
    let provider = ScriptedProvider::start(script).await.unwrap();
    let routes = RouteTable::default().with_route("model", route(&provider));
    let gateway = Gateway::new(routes, settings(), NullObserver);
    let certificate = UntrustedServer::certificate_pem().as_bytes();
    let key = UntrustedServer::key_pem().as_bytes();
    gateway.use_tls(TlsIdentity::from_pem(certificate, key).unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let unix = Some(UnixListener::bind(&path).unwrap());
    let serving = gateway.clone();
    tokio::spawn(async move {
        let listeners = Listeners { tcp, unix };
        serving.serve_on(listeners, std::future::pending()).await
    });

    let mut roots = RootCertStore::empty();
    let authority = UntrustedServer::authority_pem().as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(authority).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let plain = TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name.clone(), plain).await.unwrap();
    stream
        .write_all(&request(&address.to_string()))
        .await
        .unwrap();
    let mut got = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut got))
        .await
        .unwrap()
        .unwrap();
    let got = String::from_utf8_lossy(&got).into_owned();
    assert!(
        got.starts_with("HTTP/1.1 200") && got.contains("hello"),
        "{got}"
    );

    let plain = TcpStream::connect(address).await.unwrap();
    let stream = connector.connect(name, plain).await.unwrap();
    ask_over_web_socket(stream, &address.to_string()).await;
    let local = UnixStream::connect(&path).await.unwrap();
    ask_over_web_socket(local, "anything").await;

    // Without TLS nothing is answered.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain
        .write_all(&request(&address.to_string()))
        .await
        .unwrap();
    let mut got = Vec::new();
    _ = tokio::time::timeout(LONG, plain.read_to_end(&mut got))
        .await
        .unwrap();
    assert!(!got.starts_with(b"HTTP"), "{got:?}");

    let mut local = UnixStream::connect(&path).await.unwrap();
    local.write_all(&request("anything")).await.unwrap();
    let mut got = String::new();
    local.read_to_string(&mut got).await.unwrap();
    assert!(
        got.starts_with("HTTP/1.1 200") && got.contains("hello"),
        "{got}"
    );
}

#[test]
fn unusable_certificates_are_errors() {
    let certificate = UntrustedServer::certificate_pem().as_bytes();
    let key = UntrustedServer::key_pem().as_bytes();
    let refused = |certificate, key| {
        TlsIdentity::from_pem(certificate, key)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(b"", key), "the file of the certificate holds none");
    assert!(refused(certificate, b"no key").starts_with("the key is not PEM"));
    let authority = UntrustedServer::authority_pem().as_bytes();
    assert!(refused(authority, key).contains("cannot be used"));
}
