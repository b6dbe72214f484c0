//! Connections: accepting them, bounding them, and ending them without cutting answers off.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::error::Refusal;
use crate::exchange::{Exchange, REPORT};
use crate::front;
use crate::guard;
use crate::note::Watch;
use crate::route::Routes;
use crate::settings::Settings;

/// A gateway. Clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    routes: RwLock<Arc<Routes>>,
    settings: Settings,
    watch: Box<dyn Watch>,
    count: AtomicU64,
    connections: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

/// Why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The listener has no address.
    #[error("the address of the listener cannot be found: {0}")]
    Address(io::Error),
    /// Without a token only this machine may be served.
    #[error("{0} can be reached from other machines: a token is needed")]
    Open(std::net::SocketAddr),
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway to these models.
    pub fn new(routes: Routes, settings: Settings, watch: impl Watch + 'static) -> Self {
        let (connections, answers) = (settings.limits.connections, settings.limits.answers);
        Self(Arc::new(Inner {
            routes: RwLock::new(Arc::new(routes)),
            settings,
            watch: Box::new(watch),
            count: AtomicU64::new(0),
            connections: Arc::new(Semaphore::new(connections)),
            answers: Arc::new(Semaphore::new(answers)),
        }))
    }

    /// Takes other models from the next request on. Answers that are being made go on with theirs.
    pub fn replace(&self, routes: Routes) {
        *self.0.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.0.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn watch(&self) -> &dyn Watch {
        self.0.watch.as_ref()
    }

    /// Serves until `end`, then lets answers end as long as the limits say.
    ///
    /// # Errors
    /// If the listener is of no use; a connection that fails ends alone.
    pub async fn serve(&self, listener: TcpListener, end: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        if self.0.settings.token.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::Open(address));
        }
        let open = GracefulShutdown::new();
        let mut end = std::pin::pin!(end);
        loop {
            // Taken before the connection: who is over the limit waits in the kernel's queue.
            let permit = Arc::clone(&self.0.connections).acquire_owned();
            let (stream, permit) = tokio::select! {
                biased;
                () = &mut end => break,
                (permit, accepted) = async { (permit.await, listener.accept().await) } => match accepted {
                    Ok((stream, _)) => (stream, permit),
                    Err(_) => {
                        // No file descriptor is left, most likely: some connection has to end first.
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let connection = open.watch(self.connection(stream, address.port()));
            tokio::spawn(async move {
                let _ = connection.await;
                drop(permit);
            });
        }
        drop(listener);
        let _ = timeout(self.0.settings.limits.drain, open.shutdown()).await;
        Ok(())
    }

    fn connection(
        &self,
        stream: TcpStream,
        port: u16,
    ) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + use<> {
        let _ = stream.set_nodelay(true);
        let gateway = self.clone();
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let gateway = gateway.clone();
            async move { Ok::<_, std::convert::Infallible>(gateway.respond(port, request.map(Body::new)).await) }
        });
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.0.settings.limits.head)
            .serve_connection(TokioIo::new(stream), service)
    }

    async fn respond(&self, port: u16, request: Request) -> Response {
        let start = Instant::now();
        let path = request.uri().path().to_owned();
        let front = front::of_path(&path);
        let report = request.headers().get(REPORT).is_some_and(|value| value == "1");
        match self.received(port, request, start).await {
            Ok((Some(front), body)) => {
                let Ok(permit) = Arc::clone(&self.0.answers).try_acquire_owned() else {
                    return Refusal::Busy(self.0.settings.limits.answers).response(Some(front));
                };
                let exchange = Exchange { gateway: self.clone(), id: self.id(), front, start, report };
                let response = exchange.answer(&path, body).await;
                response.map(|body| {
                    Body::new(body.map_frame(move |frame| {
                        let _ = &permit;
                        frame
                    }))
                })
            }
            Ok((None, _)) => Refusal::Path(path.chars().take(200).collect()).response(None),
            Err(refusal) => refusal.response(front),
        }
    }

    async fn received(
        &self,
        port: u16,
        request: Request,
        _start: Instant,
    ) -> Result<(Option<sabir_wire::Wire>, Bytes), Refusal> {
        let (parts, body) = request.into_parts();
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        guard::admit(&self.0.settings, port, (&parts.method, host), &parts.headers)?;
        let Some(front) = front::of_path(parts.uri.path()) else { return Ok((None, Bytes::new())) };
        let limit = self.0.settings.limits.body;
        let body = Limited::new(body, limit).collect().await;
        let body = body.map_err(|error| match error.downcast::<http_body_util::LengthLimitError>() {
            Ok(_) => Refusal::TooLarge(limit),
            Err(error) => Refusal::Malformed(format!("the body could not be read: {error}")),
        })?;
        Ok((Some(front), body.to_bytes()))
    }

    /// An id that no other answer of this machine has.
    fn id(&self) -> String {
        let count = self.0.count.fetch_add(1, Ordering::Relaxed);
        format!("sabir_{:016x}{count:08x}", self.0.settings.seed)
    }
}

/// Settings for tests.
#[cfg(test)]
pub(crate) fn example() -> Settings {
    Settings {
        token: Some(sabir_model::Secret::new("token")),
        hosts: Vec::new(),
        origins: Vec::new(),
        limits: crate::settings::Limits::default(),
        seed: 1,
        clock: || std::time::UNIX_EPOCH,
    }
}
