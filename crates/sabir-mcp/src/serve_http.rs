//! Serves MCP over streamable HTTP: connections, access control and limits. `rmcp` implements the
//! protocol itself, in both versions: sessions that begin with `initialize`, and requests without a
//! session.
//!
//! The `Host` is checked because a server without a token would otherwise obey a web page whose name resolves to this machine (DNS
//! rebinding), and the `Origin` because a page may also send requests to `127.0.0.1` itself. All checks come before the body is read.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::abandoned_call::{AbandonedCalls, AnswerBody, AnsweredCall};
use crate::connection_slots::{ConnectionSlot, ConnectionSlots};

/// The only path that is served.
pub const HTTP_PATH: &str = "/mcp";

/// The header that names the session of a request.
const SESSION_HEADER: &str = "mcp-session-id";

/// The header of a client that resumes a stream.
const LAST_EVENT_HEADER: &str = "last-event-id";

/// The pause after a failed accept. Most likely no file descriptor is left, and some connection must end first.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);

/// The time for responses to end once their work was cancelled.
const CUT_TIME: Duration = Duration::from_secs(1);

/// The settings of a server over HTTP.
#[derive(Clone)]
pub struct HttpServerSettings {
    /// The token that each request must carry, as `Authorization: Bearer TOKEN`. Without one, only loopback addresses are served.
    pub token: Option<String>,
    /// More names by which clients reach the server, with a port unless it is that of the scheme: `build.example:8080`.
    pub hosts: Vec<String>,
    /// The limits.
    pub limits: HttpServerLimits,
}

/// The limits of a server over HTTP.
#[derive(Debug, Clone)]
pub struct HttpServerLimits {
    /// The most open connections with an accepted request.
    pub connections: usize,
    /// The most open connections without one, beside those. The oldest is closed for one more.
    pub pending_connections: usize,
    /// The most requests that are answered at the same time.
    pub requests: u32,
    /// The most open sessions.
    pub sessions: usize,
    /// The time without a request after which a session is closed.
    pub session_idle: Duration,
    /// The most bytes of a request's body.
    pub body_bytes: usize,
    /// The time in which the head of a request must arrive.
    pub head_arrival: Duration,
    /// The time in which the body must arrive after it.
    pub arrival: Duration,
    /// The time in which a client of a session may come back for the answer to a call whose connection broke off. After it the call is
    /// cancelled.
    pub return_time: Duration,
    /// The time for running calls to end when the server is stopped.
    pub drain: Duration,
}

/// A reason why a server cannot serve over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpServeError {
    /// The listener has no address.
    #[error("the address of the listener cannot be found: {0}")]
    Address(io::Error),
    /// The address can be reached from other machines, and there is no token.
    #[error("{0} can be reached from other machines: a token is needed")]
    MissingToken(SocketAddr),
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The parts of the server that all connections share.
struct HttpServer<H> {
    settings: HttpServerSettings,
    service: StreamableHttpService<H, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// The slots for requests that are answered.
    requests: Arc<Semaphore>,
    /// The calls whose clients went away.
    abandoned: AbandonedCalls,
}

/// A reason why a request does not reach the protocol.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is nothing at this path; the server is at {HTTP_PATH}")]
    Path,
    #[error("the request must name its host once")]
    Hosts,
    #[error("`{0}` is not a name of this server")]
    Host(String),
    #[error("pages of `{0}` may not use this server")]
    Origin(String),
    #[error(
        "the request needs the header `Authorization: Bearer TOKEN`, with the token of this server"
    )]
    Token,
    #[error("{0} connections are open; try again later")]
    Connections(usize),
    #[error("{0} requests are being answered; try again later")]
    Requests(u32),
    #[error("{0} sessions are open; close one, or try again later")]
    Sessions(usize),
    #[error("the body has more than {0} bytes")]
    BodyLength(usize),
    #[error("the body did not arrive within {0} s")]
    BodyTime(u64),
    #[error("the body broke off: {0}")]
    Body(String),
}

/// The parts of a message that identify its request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MessageStart {
    method: String,
    id: serde_json::Value,
}

/// Serves a handler over HTTP until `end` is ready, then waits for running requests up to the limit `drain`.
///
/// # Errors
/// When the listener cannot be used. A failed connection does not affect the others.
pub async fn serve_over_http<H>(
    listener: TcpListener,
    settings: HttpServerSettings,
    handler: H,
    end: impl Future<Output = ()>,
) -> Result<(), HttpServeError>
where
    H: ServerHandler + Clone + Send + Sync + 'static,
{
    let address = listener.local_addr().map_err(HttpServeError::Address)?;
    // Checked by the address that is really bound, not by the name that was given.
    if settings.token.is_none() && !address.ip().is_loopback() {
        return Err(HttpServeError::MissingToken(address));
    }
    let limits = settings.limits.clone();
    let mut session_config = SessionConfig::default();
    session_config.keep_alive = Some(limits.session_idle);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = session_config;
    let sessions = Arc::new(sessions);
    // This module checks hosts itself: the names depend on the connection.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(limits.body_bytes);
    let stop_sessions = config.cancellation_token.clone();
    let server = Arc::new(HttpServer {
        service: StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::clone(&sessions),
            config,
        ),
        sessions,
        requests: Arc::new(Semaphore::new(limits.requests as usize)),
        abandoned: AbandonedCalls::default(),
        settings,
    });
    let slots = ConnectionSlots::new(limits.pending_connections, limits.connections);
    let open = GracefulShutdown::new();
    let mut end = std::pin::pin!(end);
    loop {
        let stream = tokio::select! {
            biased;
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(ACCEPT_BACK_OFF).await;
                    continue;
                }
            },
        };
        let slot = slots.assign_slot();
        let serving = serve_connection(stream, Arc::clone(&server), address, Arc::clone(&slot));
        let connection = open.watch(serving);
        tokio::spawn(async move {
            tokio::select! {
                // A client that breaks off concerns nobody else.
                _ = connection => {}
                () = slot.wait_evicted() => {}
            }
        });
    }
    drop(listener);
    // All slots are free once every request was answered. Streams that only wait for messages hold
    // none.
    let _ = timeout(limits.drain, server.requests.acquire_many(limits.requests)).await;
    stop_sessions.cancel();
    let _ = timeout(CUT_TIME, open.shutdown()).await;
    Ok(())
}

/// Serves one connection until it ends.
fn serve_connection<H>(
    stream: TcpStream,
    server: Arc<HttpServer<H>>,
    listener: SocketAddr,
    slot: Arc<ConnectionSlot>,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error>
where
    H: ServerHandler + Clone + Send + Sync + 'static,
{
    // Events of a stream are small, and each must be sent at once.
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().unwrap_or(listener);
    let head_arrival = server.settings.limits.head_arrival;
    let service = service_fn(move |request: Request<Incoming>| {
        let server = Arc::clone(&server);
        let slot = Arc::clone(&slot);
        async move {
            let response = server.respond(request, local, &slot).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|refusal| refusal.into_response()))
        }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_arrival)
        .serve_connection(TokioIo::new(stream), service)
}

impl<H> HttpServer<H>
where
    H: ServerHandler + Clone + Send + Sync + 'static,
{
    /// Answers a request that came to this address.
    async fn respond(
        &self,
        request: Request<Incoming>,
        local: SocketAddr,
        connection_slot: &ConnectionSlot,
    ) -> Result<HttpResponse, Refusal> {
        if request.uri().path() != HTTP_PATH {
            return Err(Refusal::Path);
        }
        self.check_access(request.headers(), local)?;
        if !connection_slot.admit_client() {
            return Err(Refusal::Connections(self.settings.limits.connections));
        }
        let session = session_of(request.headers());
        if request.method() != Method::POST {
            let resumed = session.filter(|_| request.headers().contains_key(LAST_EVENT_HEADER));
            let request = request.map(|_| Full::new(Bytes::new()));
            let response = self.service.handle(request).await;
            if let Some(session) = resumed.filter(|_| response.status().is_success()) {
                self.abandoned.note_reconnect(&session);
            }
            return Ok(response);
        }
        // Does not wait for a slot: the client learns that it was refused, and a shutdown has no
        // queue to wait for.
        let slot = Arc::clone(&self.requests)
            .try_acquire_owned()
            .map_err(|_| Refusal::Requests(self.settings.limits.requests))?;
        let (head, body) = request.into_parts();
        let body = self.read_body(body).await?;
        let message: MessageStart = serde_json::from_slice(&body).unwrap_or_default();
        if session.is_none() && message.method == "initialize" {
            let open = self.sessions.sessions.read().await.len();
            if open >= self.settings.limits.sessions {
                return Err(Refusal::Sessions(open));
            }
        }
        let response = self
            .service
            .handle(Request::from_parts(head, Full::new(body)))
            .await;
        let call = session.filter(|_| message.method == "tools/call");
        let call = call.map(|session| AnsweredCall {
            sessions: Arc::clone(&self.sessions),
            abandoned: self.abandoned.clone(),
            session,
            id: message.id,
            return_time: self.settings.limits.return_time,
        });
        // The slot is free again when the last byte of the answer was sent, or its client is gone.
        Ok(response.map(|body| {
            AnswerBody::new(body, call)
                .map_frame(move |frame| {
                    let _ = &slot;
                    frame
                })
                .boxed()
        }))
    }

    /// Checks the host, the origin and the token of a request, in this order: a page on a foreign host name does not learn whether a token
    /// was right.
    fn check_access(&self, headers: &HeaderMap, local: SocketAddr) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).into_iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => String::from_utf8_lossy(host.as_bytes()).to_ascii_lowercase(),
            _ => return Err(Refusal::Hosts),
        };
        let own = own_authorities(local);
        let mut others = self.settings.hosts.iter();
        if !own.contains(&host) && !others.any(|known| known.eq_ignore_ascii_case(&host)) {
            return Err(Refusal::Host(shorten_name(&host)));
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes()).to_ascii_lowercase();
            let authority = origin.strip_prefix("http://").unwrap_or_default();
            if !own.iter().any(|known| known == authority) {
                return Err(Refusal::Origin(shorten_name(&origin)));
            }
        }
        match &self.settings.token {
            Some(token) if !carries_token(headers, token) => Err(Refusal::Token),
            _ => Ok(()),
        }
    }

    /// Reads a body, within the limits of bytes and time.
    async fn read_body(&self, body: Incoming) -> Result<Bytes, Refusal> {
        let limits = &self.settings.limits;
        let read = Limited::new(body, limits.body_bytes).collect();
        match timeout(limits.arrival, read).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(Refusal::BodyLength(limits.body_bytes))
            }
            Ok(Err(error)) => Err(Refusal::Body(error.to_string())),
            Err(_) => Err(Refusal::BodyTime(limits.arrival.as_secs())),
        }
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Path => StatusCode::NOT_FOUND,
            Self::Hosts | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Host(_) | Self::Origin(_) => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::Connections(_) | Self::Requests(_) | Self::Sessions(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::BodyLength(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTime(_) => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// Makes the response: a JSON-RPC error without an id, whose message clients show.
    fn into_response(self) -> HttpResponse {
        let status = self.status();
        let error = json!({"code": -32_000, "message": self.to_string()});
        let body = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
        let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A client that may not use the server must not hold one of its connections.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}

impl Default for HttpServerLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            pending_connections: 64,
            requests: 32,
            sessions: 64,
            session_idle: Duration::from_secs(3_600),
            body_bytes: 4 << 20,
            head_arrival: Duration::from_secs(5),
            arrival: Duration::from_secs(30),
            return_time: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

impl std::fmt::Debug for HttpServerSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("HttpServerSettings")
            .field("has_token", &self.token.is_some())
            .field("hosts", &self.hosts)
            .field("limits", &self.limits)
            .finish()
    }
}

/// Returns the values of `Host` by which a client on this machine, or by the literal address, reaches a connection. A literal address
/// is safe: a page that uses it has no name that could be bound to another address.
fn own_authorities(local: SocketAddr) -> Vec<String> {
    let port = local.port();
    let literal = SocketAddr::new(local.ip().to_canonical(), port);
    let mut own: Vec<String> = ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .map(|name| format!("{name}:{port}"))
        .chain([literal.to_string()])
        .collect();
    if port == 80 {
        let without_port: Vec<_> = own
            .iter()
            .filter_map(|name| Some(name.strip_suffix(":80")?.to_owned()))
            .collect();
        own.extend(without_port);
    }
    own
}

/// Returns true if a request carries this token. Digests are compared, so that the time does not reveal how much of it was right.
fn carries_token(headers: &HeaderMap, token: &str) -> bool {
    headers.get_all(AUTHORIZATION).into_iter().any(|value| {
        let shown = value.to_str().ok().and_then(|text| text.split_once(' '));
        shown.is_some_and(|(scheme, shown)| {
            scheme.eq_ignore_ascii_case("bearer")
                && Sha256::digest(shown.trim()) == Sha256::digest(token)
        })
    })
}

/// Returns the session that a request names.
fn session_of(headers: &HeaderMap) -> Option<String> {
    let session = headers.get(SESSION_HEADER)?;
    Some(String::from_utf8_lossy(session.as_bytes()).into_owned())
}

/// Cuts a name that a message repeats.
fn shorten_name(name: &str) -> String {
    name.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use reqwest::header::{HeaderName, HeaderValue};
    use sabir_agent::ProgressSink;
    use sabir_call::ToolSpec;
    use serde_json::{Map, Value};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::{Notify, oneshot, watch};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::serve::{ServedFuture, ServedResource, ServedResult, ServedTool, ToolServer};

    /// A tool that ends when it is told to, and counts its running calls.
    struct WaitingTool(Arc<Notify>, watch::Sender<usize>);

    /// Counts a running call until it is dropped.
    struct RunningCall(watch::Sender<usize>);

    impl Drop for RunningCall {
        fn drop(&mut self) {
            self.0.send_modify(|count| *count -= 1);
        }
    }

    impl ServedTool for WaitingTool {
        fn spec(&self) -> ToolSpec {
            ToolSpec::new("wait", "Waits.", json!({"type": "object"}))
        }

        fn is_read_only(&self) -> bool {
            true
        }

        fn run<'a>(
            &'a self,
            _: Map<String, Value>,
            progress: ProgressSink<'a>,
        ) -> ServedFuture<'a> {
            Box::pin(async move {
                self.1.send_modify(|count| *count += 1);
                let _running = RunningCall(self.1.clone());
                progress("half\n");
                self.0.notified().await;
                ServedResult::done("waited")
            })
        }
    }

    /// A running server, with the tool `wait` and one text.
    struct TestServer {
        address: SocketAddr,
        released: Arc<Notify>,
        /// The number of running calls.
        running: watch::Sender<usize>,
        end: Mutex<Option<oneshot::Sender<()>>>,
        served: JoinHandle<Result<(), HttpServeError>>,
    }

    impl TestServer {
        async fn start(token: Option<&str>, limits: HttpServerLimits) -> Self {
            let released = Arc::new(Notify::new());
            let text = ServedResource {
                uri: "sabir://help/a".to_owned(),
                name: "a".to_owned(),
                description: "A page.".to_owned(),
                text: "the page",
            };
            let running = watch::Sender::new(0);
            let tool = WaitingTool(Arc::clone(&released), running.clone());
            let tools: Vec<Arc<dyn ServedTool>> = vec![Arc::new(tool)];
            let server = ToolServer::new(tools, vec![text], "");
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let settings = HttpServerSettings {
                token: token.map(str::to_owned),
                hosts: vec!["proxy.example:8443".to_owned()],
                limits,
            };
            let (end, ended) = oneshot::channel();
            let served = tokio::spawn(serve_over_http(listener, settings, server, async {
                let _ = ended.await;
            }));
            Self {
                address,
                released,
                running,
                end: Mutex::new(Some(end)),
                served,
            }
        }

        fn url(&self) -> String {
            format!("http://{}{HTTP_PATH}", self.address)
        }

        /// Sends a message as an honest client would, with these headers in addition.
        async fn post(&self, body: &str, headers: &[(&'static str, &str)]) -> reqwest::Response {
            let mut request = client()
                .post(self.url())
                .header("accept", "application/json, text/event-stream")
                .header("content-type", "application/json")
                .body(body.to_owned());
            for (name, value) in headers {
                let name = HeaderName::from_static(name);
                request = request.header(name, HeaderValue::from_str(value).unwrap());
            }
            request.send().await.unwrap()
        }

        fn stop(&self) {
            self.end.lock().unwrap().take().unwrap().send(()).unwrap();
        }
    }

    fn client() -> reqwest::Client {
        // An error says that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder().no_proxy().build().unwrap()
    }

    fn initialize() -> String {
        let info = json!({"name": "t", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string()
    }

    /// A request of the generation without sessions, and the headers that repeat it.
    fn stateless(method: &str, mut params: Value) -> String {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": 7
        });
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
    }

    const NEWER: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

    #[tokio::test]
    async fn foreign_hosts_pages_and_clients_without_the_token_are_refused() {
        let server = TestServer::start(Some("t0ken"), HttpServerLimits::default()).await;
        let port = server.address.port();
        let own = format!("127.0.0.1:{port}");
        let page = format!("http://localhost:{port}");
        let rebound = format!("evil.example:{port}");
        let right = ("authorization", "Bearer t0ken");
        for (headers, status) in [
            (vec![right], 200),
            (vec![right, ("host", own.as_str())], 200),
            (vec![right, ("host", "PROXY.example:8443")], 200),
            (vec![right, ("origin", page.as_str())], 200),
            (vec![("authorization", "bearer t0ken")], 200),
            (vec![], 401),
            (vec![("authorization", "Bearer t0ke")], 401),
            (vec![("authorization", "Bearer t0ken0")], 401),
            (vec![("authorization", "Basic t0ken")], 401),
            (vec![right, ("host", rebound.as_str())], 403),
            (vec![right, ("host", "127.0.0.1:1")], 403),
            (vec![right, ("host", "localhost")], 403),
            (vec![right, ("origin", "http://evil.example")], 403),
            (vec![right, ("origin", "null")], 403),
            (vec![right, ("origin", "https://localhost")], 403),
            // The host is checked first: a page that uses DNS rebinding learns nothing about the
            // token.
            (vec![("host", rebound.as_str())], 403),
        ] {
            let response = server.post(&initialize(), &headers).await;
            assert_eq!(response.status().as_u16(), status, "{headers:?}");
        }
        let elsewhere = client()
            .get(format!("http://{}/", server.address))
            .send()
            .await
            .unwrap();
        assert_eq!(elsewhere.status(), 404);
    }

    #[tokio::test]
    async fn an_address_that_others_reach_needs_a_token() {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let settings = HttpServerSettings {
            token: None,
            hosts: Vec::new(),
            limits: HttpServerLimits::default(),
        };
        let server = ToolServer::new(Vec::new(), Vec::new(), "");
        let served = serve_over_http(listener, settings, server, std::future::pending()).await;
        assert!(
            matches!(served, Err(HttpServeError::MissingToken(_))),
            "{served:?}"
        );
    }

    #[tokio::test]
    async fn sessions_bodies_and_their_arrival_are_limited() {
        let limits = HttpServerLimits {
            sessions: 1,
            body_bytes: 1_000,
            arrival: Duration::from_millis(300),
            ..HttpServerLimits::default()
        };
        let server = TestServer::start(None, limits).await;
        let first = server.post(&initialize(), &[]).await;
        assert_eq!(first.status(), 200);
        let session = first.headers()[SESSION_HEADER].to_str().unwrap().to_owned();
        let second = server.post(&initialize(), &[]).await;
        assert_eq!(second.status(), 503);
        assert_eq!(second.headers()["retry-after"], "5");
        assert!(second.text().await.unwrap().contains("1 sessions are open"));
        // The requests of the open session, and those without one, do not count.
        let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}).to_string();
        let headers = [(SESSION_HEADER, session.as_str())];
        assert_eq!(server.post(&ping, &headers).await.status(), 200);
        let listed = server
            .post(
                &stateless("tools/list", json!({})),
                &[NEWER, ("mcp-method", "tools/list")],
            )
            .await;
        assert_eq!(listed.status(), 200);
        let closed = client()
            .delete(server.url())
            .header(SESSION_HEADER, &session)
            .send()
            .await
            .unwrap();
        assert!(closed.status().is_success(), "{}", closed.status());
        assert_eq!(server.post(&initialize(), &[]).await.status(), 200);

        let long = server.post(&" ".repeat(1_001), &[]).await;
        assert_eq!(long.status(), 413);
        let mut slow = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST {HTTP_PATH} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{{",
            server.address
        );
        slow.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        slow.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 408");
    }

    #[tokio::test]
    async fn silent_connections_do_not_keep_clients_out() {
        let limits = HttpServerLimits {
            connections: 1,
            pending_connections: 3,
            head_arrival: Duration::from_secs(3_600),
            ..HttpServerLimits::default()
        };
        let server = TestServer::start(None, limits).await;
        let mut silent = Vec::new();
        for _ in 0..8 {
            silent.push(TcpStream::connect(server.address).await.unwrap());
        }
        let answer = timeout(Duration::from_secs(60), server.post(&initialize(), &[])).await;
        assert_eq!(answer.unwrap().status(), 200);
        // The oldest was closed, and the newest still has its time.
        let mut byte = [0];
        assert_eq!(silent[0].read(&mut byte).await.unwrap(), 0);
        assert!(silent[7].try_read(&mut byte).is_err());
    }

    #[tokio::test]
    async fn the_call_of_a_session_ends_if_its_client_does_not_come_back() {
        let limits = HttpServerLimits {
            return_time: Duration::from_millis(50),
            ..HttpServerLimits::default()
        };
        let server = TestServer::start(None, limits).await;
        let opened = server.post(&initialize(), &[]).await;
        let session = opened.headers()[SESSION_HEADER]
            .to_str()
            .unwrap()
            .to_owned();
        let headers = [(SESSION_HEADER, session.as_str())];
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        assert_eq!(server.post(&ready, &headers).await.status(), 202);
        let params = json!({"name": "wait", "arguments": {}, "_meta": {"progressToken": 7}});
        let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
        let mut called = server.post(&call.to_string(), &headers).await;
        // The call runs, and then its client is gone.
        while !String::from_utf8_lossy(&called.chunk().await.unwrap().unwrap()).contains("half") {}
        drop(called);
        let mut running = server.running.subscribe();
        let ended = timeout(
            Duration::from_secs(60),
            running.wait_for(|count| *count == 0),
        );
        ended.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_stop_lets_running_calls_end() {
        let limits = HttpServerLimits {
            requests: 1,
            ..HttpServerLimits::default()
        };
        let server = TestServer::start(None, limits).await;
        let body = stateless("tools/call", json!({"name": "wait", "arguments": {}}));
        let headers = [NEWER, ("mcp-method", "tools/call"), ("mcp-name", "wait")];
        // The answer begins with what the tool has written so far.
        let mut called = server.post(&body, &headers).await;
        let first = called.chunk().await.unwrap().unwrap();
        let first = String::from_utf8_lossy(&first);
        assert!(first.contains("\"message\":\"half\""), "{first}");
        let other = server.post(&initialize(), &[]).await;
        assert_eq!(other.status(), 503);
        server.stop();
        // Nobody is let in any more, and the call still runs.
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        server.released.notify_one();
        let answer = called.text().await.unwrap();
        assert!(answer.contains("waited"), "{answer}");
        server.served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn texts_are_resources() {
        let server = TestServer::start(None, HttpServerLimits::default()).await;
        for (uri, expected) in [
            ("sabir://help/a", "the page"),
            ("sabir://help/b", "there is no resource"),
        ] {
            let body = stateless("resources/read", json!({"uri": uri}));
            let headers = [NEWER, ("mcp-method", "resources/read"), ("mcp-name", uri)];
            let answer = server.post(&body, &headers).await.text().await.unwrap();
            assert!(answer.contains(expected), "{answer}");
        }
    }
}
