//! Accepts and limits connections, and shuts down gracefully.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access_control::ConnectionOrigin;
use crate::client_stream::{ClientStream, TlsIdentity};
use crate::connection::{ConnectionState, TimedStream};
use crate::error::Refusal;
use crate::exchange_log::ExchangeLog;
use crate::exchange_record::ExchangeRecorder;
use crate::framing::MAX_HEAD;
use crate::gateway_event::{GatewayEvent, GatewayObserver};
use crate::interruptible_model::InterruptibleModel;
use crate::key_ledger::{KeyLedger, SettlementCounts};
use crate::key_store::KeyStore;
use crate::metrics::Metrics;
use crate::request_body::BodyBudget;
use crate::request_handler::RequestHandler;
use crate::response_store::ResponseStore;
use crate::route::{ModelRoute, RouteTable};
use crate::settings::{GatewayLimits, GatewaySettings};
use crate::streamed_response::{OpenConnection, ResponseSlot, StreamedResponse};
use crate::upstream_group::UpstreamGroup;

/// The time for responses to report that they were cut off.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// The pause after a failed accept. Most likely no file descriptor is left, and some connection
/// must end first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// The time for counting what the last requests used.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// The interval at which due probes of upstreams are started.
const PROBE_TICK: Duration = Duration::from_millis(250);

/// A gateway. Clones share its state.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayState>);

/// The state that all clones of a gateway share.
struct GatewayState {
    /// The models. Requests keep the table that they began with.
    routes: RwLock<Arc<RouteTable>>,
    /// The settings, which a reload replaces as a whole.
    settings: RwLock<Arc<GatewaySettings>>,
    /// The observer of all exchanges.
    watch: Box<dyn GatewayObserver>,
    /// The counters.
    metrics: Metrics,
    /// The number of ids so far.
    count: AtomicU64,
    /// The time of its creation, in seconds since 1970.
    created: u64,
    /// The slots for connections.
    connections: Arc<Semaphore>,
    /// The slots for concurrent responses.
    answers: Arc<Semaphore>,
    /// The memory for the bodies of requests.
    bodies: BodyBudget,
    /// The answers that clients refer to by id.
    responses: ResponseStore,
    /// Becomes true when all responses must end.
    cut: watch::Sender<bool>,
    /// True once no new connections are accepted.
    draining: AtomicBool,
    /// The certificate, if the gateway serves TLS. A reload replaces it for new connections.
    tls: RwLock<Option<TlsIdentity>>,
    /// The recorder, if exchanges are recorded.
    recorder: OnceLock<Arc<dyn ExchangeRecorder>>,
    /// The keys of clients, if they have some.
    keys: OnceLock<Arc<KeyLedger>>,
}

/// The sockets that a gateway listens on.
#[derive(Debug)]
pub struct Listeners {
    /// The address for TCP, with TLS if the gateway has a certificate.
    pub tcp: TcpListener,
    /// A Unix socket, whose file permissions say who may connect.
    pub unix: Option<UnixListener>,
}

impl Listeners {
    /// Waits for the next connection on either socket.
    async fn accept(&self) -> io::Result<ClientStream> {
        let unix = async {
            match &self.unix {
                Some(unix) => unix.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => accepted.map(|(stream, _)| ClientStream::Tcp(stream)),
            accepted = unix => accepted.map(|(stream, _)| ClientStream::Unix(stream)),
        }
    }
}

/// A connection that is ready for requests.
struct Client {
    /// The stream.
    stream: ClientStream,
    /// The listener that accepted it.
    origin: ConnectionOrigin,
}

/// A connection that was taken out of hyper, because a response is streamed on it.
struct TakenConnection {
    /// The connection.
    connection: OpenConnection<TimedStream>,
    /// The response.
    response: StreamedResponse,
}

/// A reason why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The listener has no address.
    #[error("the address of the listener cannot be found: {0}")]
    Address(io::Error),
    /// The address can be reached from other machines, and there is no token.
    #[error("{0} can be reached from other machines: a token is needed")]
    MissingToken(SocketAddr),
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("settings", &self.settings())
            .finish_non_exhaustive()
    }
}

impl Gateway {
    /// Makes a gateway to these models.
    pub fn new(
        routes: RouteTable,
        settings: GatewaySettings,
        watch: impl GatewayObserver + 'static,
    ) -> Self {
        let GatewayLimits {
            connections,
            answers,
            ..
        } = settings.limits;
        let created = seconds_since_1970((settings.clock)());
        let gateway = Self(Arc::new(GatewayState {
            routes: RwLock::default(),
            settings: RwLock::new(Arc::new(settings)),
            watch: Box::new(watch),
            metrics: Metrics::default(),
            count: AtomicU64::new(0),
            created,
            connections: Arc::new(Semaphore::new(connections)),
            answers: Arc::new(Semaphore::new(answers)),
            bodies: BodyBudget::new(),
            responses: ResponseStore::default(),
            cut: watch::Sender::new(false),
            draining: AtomicBool::new(false),
            tls: RwLock::default(),
            recorder: OnceLock::new(),
            keys: OnceLock::new(),
        }));
        gateway.replace_routes(routes);
        gateway
    }

    /// Replaces the models from the next request on. Running responses continue with their models.
    pub fn replace_routes(&self, routes: RouteTable) {
        // Each model is wrapped, so that a shutdown can end its responses.
        let earlier = self.routes();
        let routes = routes.map_routes(|name, route| {
            // A reload must not forget which upstreams are failing.
            let route = route.inherit_states(earlier.named_route(name));
            ModelRoute {
                model: Arc::new(InterruptibleModel::new(
                    Arc::clone(&route.model),
                    self.0.cut.subscribe(),
                )),
                ..route
            }
        });
        *self
            .0
            .routes
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }

    /// Replaces the settings for new connections and requests. The limits for concurrent
    /// connections and responses stay as they were at the start, and a token can be changed, but
    /// not removed.
    pub fn replace_settings(&self, settings: GatewaySettings) {
        let known = self.settings();
        let GatewayLimits {
            connections,
            answers,
            ..
        } = known.limits;
        // Removing the token could expose a gateway to other machines, which `serve` checks only at
        // the start.
        let token = settings.token.or_else(|| known.token.clone());
        let limits = GatewayLimits {
            connections,
            answers,
            ..settings.limits
        };
        let settings = GatewaySettings {
            token,
            limits,
            seed: known.seed,
            ..settings
        };
        *self
            .0
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Lets clients use the keys of a store, besides the token. A gateway keeps the first store that it
    /// is given.
    pub fn use_key_store(&self, store: Arc<dyn KeyStore>) {
        let clock = self.settings().clock;
        _ = self.0.keys.set(Arc::new(KeyLedger::new(store, clock)));
    }

    /// Records exchanges. A gateway keeps the first recorder that it is given.
    pub fn use_recorder(&self, recorder: Arc<dyn ExchangeRecorder>) {
        _ = self.0.recorder.set(recorder);
    }

    /// Returns the recorder, if exchanges are recorded.
    pub(crate) fn recorder(&self) -> Option<&Arc<dyn ExchangeRecorder>> {
        self.0.recorder.get()
    }

    /// Serves TLS with this certificate on new connections over TCP.
    pub fn use_tls(&self, identity: TlsIdentity) {
        *self.0.tls.write().unwrap_or_else(PoisonError::into_inner) = Some(identity);
    }

    /// Returns the numbers of requests whose usage the store of keys has not counted. Those that wait when the
    /// gateway has ended are lost too.
    pub fn settlement_counts(&self) -> SettlementCounts {
        self.keys()
            .map(|keys| keys.settlement_counts())
            .unwrap_or_default()
    }

    /// Returns true if new connections over TCP get TLS.
    pub fn serves_tls(&self) -> bool {
        self.0
            .tls
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Returns the keys of clients, if they have some.
    pub(crate) fn keys(&self) -> Option<&Arc<KeyLedger>> {
        self.0.keys.get()
    }

    /// Returns the current models.
    pub(crate) fn routes(&self) -> Arc<RouteTable> {
        Arc::clone(&self.0.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the current settings.
    pub(crate) fn settings(&self) -> Arc<GatewaySettings> {
        Arc::clone(
            &self
                .0
                .settings
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Returns the counters.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Returns the current time, in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        seconds_since_1970((self.settings().clock)())
    }

    /// Returns the time of the gateway's creation, in seconds since 1970.
    pub(crate) fn created_at(&self) -> u64 {
        self.0.created
    }

    /// Counts an event and passes it to the observer.
    pub(crate) fn emit_event(&self, id: &str, model: &str, note: GatewayEvent<'_>) {
        // Only names of the configuration become labels of metrics.
        let routes = self.routes();
        self.0.metrics.count_event(&note, model, |model| {
            routes.model_names().any(|name| name == model)
        });
        self.0.watch.on_event(id, note);
    }

    /// Acquires one of the slots for concurrent responses.
    pub(crate) fn acquire_slot(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        // Without waiting: a client that is refused at once can choose another instance.
        let place = Arc::clone(&self.0.answers).try_acquire_owned();
        place.map_err(|_| Refusal::Busy(self.settings().limits.answers))
    }

    /// Returns the memory for the bodies of requests.
    pub(crate) fn body_budget(&self) -> &BodyBudget {
        &self.0.bodies
    }

    /// Returns the answers that clients refer to by id.
    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.0.responses
    }

    /// Makes an id that is unique on this machine, from the seed and a counter.
    pub(crate) fn new_id(&self) -> String {
        // The seed differs between processes, the count within one.
        let count = self.0.count.fetch_add(1, Ordering::Relaxed);
        format!("sabir_{:016x}{count:08x}", self.settings().seed)
    }

    /// Serves until `end` is ready, then waits for running responses, up to the `drain` limit.
    /// Responses that are still running then are cut off with an error.
    ///
    /// # Errors
    /// [`ServeError`] if the listener cannot be used. A failed connection does not affect the
    /// others.
    pub async fn serve(
        &self,
        listener: TcpListener,
        end: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let listeners = Listeners {
            tcp: listener,
            unix: None,
        };
        self.serve_on(listeners, end).await
    }

    /// Serves as [`serve`](Self::serve) does, also on a Unix socket.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub async fn serve_on(
        &self,
        listener: Listeners,
        end: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let address = listener.tcp.local_addr().map_err(ServeError::Address)?;
        // Checked by the address that is really bound, not by the configured name.
        let is_open = self.settings().token.is_none() && self.keys().is_none();
        if is_open && !address.ip().is_loopback() {
            return Err(ServeError::MissingToken(address));
        }
        // Each connection has a receiver until it has ended.
        let open = watch::Sender::new(false);
        let mut end = std::pin::pin!(end);
        let mut probes = std::pin::pin!(self.probe_upstreams());
        let mut renewals = std::pin::pin!(self.renew_leases());
        loop {
            // The permit comes before the connection: clients over the limit wait in the kernel's
            // queue.
            let permit = Arc::clone(&self.0.connections).acquire_owned();
            let (stream, permit) = tokio::select! {
                // The end comes first, so that a busy listener cannot delay a shutdown.
                biased;
                () = &mut end => break,
                // Neither ends by itself.
                () = &mut probes => continue,
                () = &mut renewals => continue,
                (permit, accepted) = async { (permit.await, listener.accept().await) } => match accepted {
                    Ok(stream) => (stream, permit),
                    Err(_) => {
                        tokio::time::sleep(ACCEPT_BACKOFF).await;
                        continue;
                    }
                },
            };
            let draining = open.subscribe();
            let gateway = self.clone();
            tokio::spawn(async move {
                gateway.metrics().connection_opened();
                if let Some(client) = gateway.secure_stream(stream, address).await {
                    gateway.serve_connection(client, draining).await;
                }
                gateway.metrics().connection_closed();
                drop(permit);
            });
        }
        // Closed before draining, so that a load balancer sends new clients elsewhere.
        drop(listener);
        self.0.draining.store(true, Ordering::Relaxed);
        let drained = async {
            open.send_replace(true);
            let mut closed = std::pin::pin!(open.closed());
            if timeout(self.settings().limits.drain, &mut closed)
                .await
                .is_err()
            {
                // Every response that still runs ends with an error now, which its client gets.
                self.0.cut.send_replace(true);
                let _ = timeout(CUT_GRACE, closed).await;
            }
        };
        // Answers that take long still need their leases.
        tokio::select! {
            () = drained => {}
            () = renewals => {}
        }
        if let Some(keys) = self.keys() {
            keys.wait_until_settled(SETTLE_TIME).await;
        }
        Ok(())
    }

    /// Renews the leases of running requests, if clients have keys.
    async fn renew_leases(&self) {
        match self.keys() {
            Some(keys) => keys.renew_leases().await,
            None => std::future::pending().await,
        }
    }

    /// Probes the upstreams whose models want that, again and again.
    async fn probe_upstreams(&self) {
        let mut probed: Vec<(Weak<UpstreamGroup>, Instant)> = Vec::new();
        loop {
            let routes = self.routes();
            let now = Instant::now();
            probed.retain(|(group, _)| group.strong_count() > 0);
            let due: Vec<Arc<UpstreamGroup>> = routes
                .groups()
                .into_iter()
                .filter(|(_, group)| {
                    let last = probed
                        .iter()
                        .find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(group)));
                    group.probe_interval().is_some_and(|interval| {
                        last.is_none_or(|(_, last)| now.duration_since(*last) >= interval)
                    })
                })
                .map(|(_, group)| Arc::clone(group))
                .collect();
            let probing = due.iter().map(|group| group.probe_members());
            join_all(probing).await;
            for group in due {
                let group = Arc::downgrade(&group);
                probed.retain(|(known, _)| !Weak::ptr_eq(known, &group));
                probed.push((group, now));
            }
            drop(routes);
            tokio::time::sleep(PROBE_TICK).await;
        }
    }

    /// Returns true if the gateway takes requests: it does not shut down, and some
    /// model has an upstream that can be reached.
    pub(crate) fn is_ready(&self) -> bool {
        let routes = self.routes();
        let groups = routes.groups();
        let is_reachable = groups.iter().any(|(_, group)| group.is_reachable());
        !self.0.draining.load(Ordering::Relaxed) && (groups.is_empty() || is_reachable)
    }

    /// Makes the TLS handshake of a connection, if the gateway has a certificate. Returns `None` if
    /// that fails or takes too long.
    async fn secure_stream(&self, stream: ClientStream, listener: SocketAddr) -> Option<Client> {
        let stream = match stream {
            ClientStream::Tcp(stream) => stream,
            stream => {
                return Some(Client {
                    stream,
                    origin: ConnectionOrigin::Local,
                });
            }
        };
        // Events of a stream are small, and each must be sent at once.
        let _ = stream.set_nodelay(true);
        let address = stream.local_addr().unwrap_or(listener);
        let identity = self
            .0
            .tls
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let is_secure = identity.is_some();
        let stream = match identity {
            None => ClientStream::Tcp(stream),
            Some(TlsIdentity(config)) => {
                // Boxed, so that a connection without TLS holds no memory for the handshake.
                let accepting = Box::pin(TlsAcceptor::from(config).accept(stream));
                let limit = self.settings().limits.head;
                let stream = timeout(limit, accepting).await.ok()?.ok()?;
                ClientStream::Tls(Box::new(stream))
            }
        };
        Some(Client {
            stream,
            origin: ConnectionOrigin::Network { address, is_secure },
        })
    }

    /// Serves one connection until it ends, first as HTTP, and then as a WebSocket if the client
    /// upgrades it. Once `draining` is true, it ends after the answers that are being sent.
    async fn serve_connection(&self, client: Client, mut draining: watch::Receiver<bool>) {
        let link = Arc::new(ConnectionState::default());
        let handler = RequestHandler {
            gateway: self.clone(),
            origin: client.origin,
            link: Arc::clone(&link),
        };
        let mut line = TimedStream::new(client.stream, link, self.settings().limits);
        // Each phase is boxed, and dropped before the next begins, so that a streamed response holds
        // nothing of hyper's memory.
        while let Some(taken) = Box::pin(self.serve_requests(line, &handler, &mut draining)).await {
            let TakenConnection {
                connection,
                response,
            } = *taken;
            let writing = Box::pin(response.write_to(connection, self.now(), &draining));
            let Some(kept) = writing.await else {
                return;
            };
            line = kept.stream.with_unread_bytes(kept.received);
        }
        if let Some(session) = handler.link.take_session() {
            // Boxed, because most connections have none.
            Box::pin(session.run(draining)).await;
        }
    }

    /// Serves requests with hyper, until the connection ends or a response is streamed. Returns the
    /// connection with that response.
    // Not an `async fn`, whose future would hold the stream twice.
    fn serve_requests(
        &self,
        line: TimedStream,
        handler: &RequestHandler,
        draining: &mut watch::Receiver<bool>,
    ) -> impl Future<Output = Option<Box<TakenConnection>>> {
        let link = Arc::clone(&handler.link);
        let handler = handler.clone();
        let slot = ResponseSlot::default();
        let offered = slot.clone();
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let request = offered.begin_request(request);
            // hyper keeps the memory of this future as long as the connection, so it is a pointer.
            let response = Box::pin(handler.clone().respond(request));
            let offered = offered.clone();
            async move {
                match offered.offer_response(response.await) {
                    Some(response) => Ok::<_, std::convert::Infallible>(response),
                    // The connection leaves hyper now, which drops this future.
                    None => std::future::pending().await,
                }
            }
        });
        // hyper's own limit for heads is off: the stream has limits for all phases.
        let mut connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(line), service)
            .with_upgrades();
        async move {
            let mut must_end =
                std::pin::pin!(async { _ = draining.wait_for(|draining| *draining).await });
            let mut is_ending = false;
            let ended = std::future::poll_fn(|context| {
                if !is_ending && must_end.as_mut().poll(context).is_ready() {
                    is_ending = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                match Pin::new(&mut connection).poll(context) {
                    Poll::Ready(ended) => Poll::Ready(Some(ended)),
                    // Bytes in hyper's buffer, such as those of `100 Continue`, would be lost.
                    Poll::Pending if slot.has_response() && link.has_flushed() => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            if let Some(ended) = ended {
                self.report_unparsed(&link, ended.err().as_ref());
                return None;
            }
            let parts = connection.into_parts()?;
            Some(Box::new(TakenConnection {
                connection: OpenConnection {
                    stream: parts.io.into_inner(),
                    // A copy, because the bytes share hyper's buffer.
                    received: parts.read_buf.to_vec(),
                },
                response: slot.take_response()?,
            }))
        }
    }

    /// Logs a request that could not be parsed, or did not arrive in time.
    fn report_unparsed(&self, link: &ConnectionState, error: Option<&hyper::Error>) {
        let (status, words) = match error {
            Some(error) if error.is_parse_too_large() => {
                (431, "the head of a request was too large")
            }
            Some(error) if error.is_parse() => (400, "something arrived that is not a request"),
            _ if link.is_slow() => (408, "the head of a request did not come in time"),
            _ => return,
        };
        let ledger = ExchangeLog::new(self, self.new_id(), None);
        ledger.set_status(status);
        ledger.set_error(&words);
    }
}

/// Returns a time in seconds since 1970, or 0 before.
fn seconds_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Settings for tests.
#[cfg(test)]
pub(crate) fn test_settings() -> GatewaySettings {
    GatewaySettings {
        token: Some(sabir_model::Secret::new("token")),
        hosts: Vec::new(),
        origins: Vec::new(),
        limits: crate::settings::GatewayLimits::default(),
        dialects: sabir_call::dialect::DialectSet::default(),
        seed: 1,
        clock: || UNIX_EPOCH,
    }
}
