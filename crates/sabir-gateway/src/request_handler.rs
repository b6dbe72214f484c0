//! Handles a request: checks access, dispatches by path, and reads the body.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;
use sabir_wire::Wire;

use crate::access_control::{self, ConnectionOrigin, TokenCheck};
use crate::client_wires;
use crate::connection::ConnectionState;
use crate::delivery::track_delivery;
use crate::error::Refusal;
use crate::exchange::{Exchange, REPORT_HEADER};
use crate::exchange_log::ExchangeLog;
use crate::key_store::ClientKey;
use crate::local_endpoints::{self, HEALTH_PATHS, LocalEndpoint, READY_PATHS};
use crate::passthrough::{ForwardedForm, forward_request};
use crate::request_body::{self, BodyForm};
use crate::serve::Gateway;
use crate::web_socket::{
    AnswerOptions, PendingSession, RequestTemplate, accept_handshake, invalid_handshake,
    wants_web_socket,
};

/// The handler of the requests of one connection.
#[derive(Debug, Clone)]
pub(crate) struct RequestHandler {
    /// The gateway.
    pub(crate) gateway: Gateway,
    /// The listener that accepted the connection.
    pub(crate) origin: ConnectionOrigin,
    /// The state of the connection.
    pub(crate) link: Arc<ConnectionState>,
}

/// The kind of endpoint that answers a request.
enum EndpointKind {
    /// The health or readiness check, which needs no token and no known host.
    Health,
    /// A CORS preflight request.
    CorsPreflight,
    /// An endpoint that needs no model.
    Local(LocalEndpoint),
    /// The endpoint of a client's wire.
    Model(Wire),
    /// The handshake of a WebSocket for the Responses API.
    WebSocket,
    /// An endpoint whose requests are forwarded.
    Forwarded(ForwardedForm),
    /// No endpoint has this path.
    NotFound,
}

impl RequestHandler {
    /// Answers a request. Every request gets a response; a refused one gets an error in the format
    /// of its wire.
    pub(crate) async fn respond(self, request: Request) -> Response {
        // Held until the body of the response was read, see `delivery`.
        let busy = self.link.mark_busy();
        let (parts, body) = request.into_parts();
        let who = EndpointKind::from_parts(&parts);
        // Load balancers request this every few seconds, so it is not logged as an exchange.
        if matches!(who, EndpointKind::Health) && !self.link.has_lost_framing() {
            return if READY_PATHS.contains(&parts.uri.path()) {
                local_endpoints::ready_response(self.gateway.is_ready())
            } else {
                local_endpoints::health_response()
            };
        }
        let front = who.error_wire(&parts);
        let ledger = ExchangeLog::new(&self.gateway, self.gateway.new_id(), front);
        if let Some(header) = parts.headers.get("traceparent")
            && let Ok(header) = header.to_str()
        {
            ledger.set_trace_parent(header);
        }
        let mut response = match self.check_request(&who, &parts, &ledger).await {
            Ok(()) => {
                let answer = self.dispatch_request(&who, &parts, body, &ledger).await;
                answer.unwrap_or_else(|refusal| refusal_response(&refusal, front, &ledger))
            }
            Err(refusal) => {
                request_body::discard_body(&parts.headers, body, &self.gateway.settings().limits)
                    .await;
                refusal_response(&refusal, front, &ledger)
            }
        };
        if let Some(report) = ledger
            .take_report()
            .and_then(|report| HeaderValue::try_from(report).ok())
        {
            response.headers_mut().insert(REPORT_HEADER, report);
        }
        add_request_id(&mut response, front, &ledger);
        // Bytes after this request cannot be trusted, see `framing`.
        if self.link.has_lost_framing() {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        local_endpoints::allow_origin(self.allowed_origin(&parts), &mut response);
        track_delivery(response, ledger, busy)
    }

    /// Returns the origin of the requesting page, if it is allowed.
    fn allowed_origin(&self, parts: &Parts) -> Option<HeaderValue> {
        let origin = parts.headers.get(header::ORIGIN)?;
        let known = &self.gateway.settings().origins;
        known
            .iter()
            .any(|known| known.as_bytes() == origin.as_bytes())
            .then(|| origin.clone())
    }

    /// Checks everything that is known before the body is read.
    ///
    /// # Errors
    /// The refusal of the first check that fails. Access comes first, so that a stranger cannot
    /// find out which paths exist.
    async fn check_request(
        &self,
        who: &EndpointKind,
        parts: &Parts,
        ledger: &ExchangeLog,
    ) -> Result<(), Refusal> {
        if self.link.has_lost_framing() {
            return Err(Refusal::Malformed(
                "the length of a body is given in two ways, or not in a way that can be understood"
                    .to_owned(),
            ));
        }
        if !matches!(who, EndpointKind::Health)
            && let Some(key) = self.check_client(parts).await?
        {
            // The metrics are about all clients.
            if matches!(who, EndpointKind::Local(LocalEndpoint::Metrics)) {
                return Err(Refusal::NotForClients("the metrics"));
            }
            ledger.set_key(key);
        }
        match who {
            EndpointKind::NotFound => {
                Err(Refusal::Path(parts.uri.path().chars().take(200).collect()))
            }
            EndpointKind::Local(own) => own.check_method(parts),
            EndpointKind::Forwarded(form) => form.check_method(&parts.method),
            EndpointKind::Model(_) if wants_web_socket(parts) => Err(Refusal::NoWebSocket),
            // Its requests refer to answers of the same connection.
            EndpointKind::WebSocket if !self.gateway.settings().limits.has_web_sockets() => {
                Err(Refusal::NoWebSocket)
            }
            EndpointKind::Model(_) if parts.method != Method::POST => {
                Err(Refusal::Method(parts.method.to_string(), Method::POST))
            }
            _ => Ok(()),
        }
    }

    /// Checks the host, the origin and the token of a request. Returns the client's key, if it has one
    /// of its own.
    ///
    /// # Errors
    /// The refusal of the first check that fails.
    pub(crate) async fn check_client(&self, parts: &Parts) -> Result<Option<ClientKey>, Refusal> {
        let settings = self.gateway.settings();
        let has_keys = self.gateway.keys().is_some();
        match access_control::check_access(&settings, self.origin, parts, has_keys)? {
            TokenCheck::Known => Ok(None),
            TokenCheck::Other(shown) => {
                let key = self.find_key(&shown).await?;
                key.map(Some).ok_or(Refusal::NoToken)
            }
        }
    }

    /// Reads the body of a request for a model, once there is a slot for it.
    async fn read_for_model(
        &self,
        parts: &Parts,
        body: Body,
        form: BodyForm,
        ledger: &ExchangeLog,
    ) -> Result<Bytes, Refusal> {
        let gateway = &self.gateway;
        let limits = &{ gateway.settings().limits };
        // The slot is taken before the body is read, so that waiting bodies cannot fill the
        // memory.
        match gateway.acquire_slot() {
            Ok(place) => ledger.hold_slot(place),
            Err(refusal) => {
                request_body::discard_body(&parts.headers, body, limits).await;
                return Err(refusal);
            }
        }
        let (body, share) =
            request_body::read_body(parts, body, form, limits, gateway.body_budget()).await?;
        ledger.hold_body_share(share);
        Ok(body)
    }

    /// Finds the key among the tokens of a client.
    async fn find_key(&self, shown: &[String]) -> Result<Option<ClientKey>, Refusal> {
        let Some(keys) = self.gateway.keys() else {
            return Ok(None);
        };
        for token in shown {
            if let Some(key) = keys.find_key(token).await.map_err(Refusal::KeyStore)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Reads the body and answers the request.
    ///
    /// # Errors
    /// A refusal before the first byte of the response.
    async fn dispatch_request(
        &self,
        who: &EndpointKind,
        parts: &Parts,
        body: Body,
        ledger: &ExchangeLog,
    ) -> Result<Response, Refusal> {
        let gateway = &self.gateway;
        let path = parts.uri.path();
        let limits = &{ gateway.settings().limits };
        let response = match who {
            EndpointKind::NotFound | EndpointKind::Health => local_endpoints::health_response(),
            EndpointKind::CorsPreflight => local_endpoints::preflight_response(&parts.headers),
            EndpointKind::Local(own) => {
                let form = BodyForm::Json;
                let (body, _share) =
                    request_body::read_body(parts, body, form, limits, gateway.body_budget())
                        .await?;
                own.respond(gateway, path, &body)?
            }
            EndpointKind::Forwarded(form) => {
                let body = self
                    .read_for_model(parts, body, form.body_form(), ledger)
                    .await?;
                return forward_request(gateway, ledger, parts, body, *form).await;
            }
            EndpointKind::WebSocket => self.open_web_socket(parts, &body)?,
            EndpointKind::Model(front) => {
                let body = self
                    .read_for_model(parts, body, BodyForm::Json, ledger)
                    .await?;
                let report = parts
                    .headers
                    .get(REPORT_HEADER)
                    .is_some_and(|value| value == "1");
                let exchange = Exchange {
                    gateway: gateway.clone(),
                    front: *front,
                    ledger: ledger.clone(),
                    report,
                    beta_headers: beta_headers(&parts.headers),
                    options: parts.extensions.get::<AnswerOptions>().copied(),
                };
                return exchange.answer_request(path, body).await;
            }
        };
        ledger.mark_done();
        Ok(response)
    }

    /// Accepts the handshake of a WebSocket. Its session begins when the response was sent.
    ///
    /// # Errors
    /// An invalid handshake.
    fn open_web_socket(&self, parts: &Parts, body: &Body) -> Result<Response, Refusal> {
        let response = accept_handshake(&parts.headers)?;
        if !body.is_end_stream() {
            return Err(invalid_handshake("no body"));
        }
        // Older versions of HTTP cannot be upgraded.
        let upgrade = parts.extensions.get::<OnUpgrade>().cloned();
        let upgrade = upgrade.ok_or_else(|| invalid_handshake("HTTP/1.1"))?;
        self.link.upgrade(PendingSession {
            upgrade,
            handler: Self {
                link: Arc::default(),
                ..self.clone()
            },
            template: RequestTemplate::from_handshake(parts),
        });
        Ok(response)
    }

    /// Logs the refusal of a message on a WebSocket, and makes the response that a request of the
    /// same kind would get.
    pub(crate) fn refuse_message(&self, refusal: &Refusal) -> Response {
        let front = Some(Wire::OpenAiResponses);
        let ledger = ExchangeLog::new(&self.gateway, self.gateway.new_id(), front);
        let mut response = refusal_response(refusal, front, &ledger);
        add_request_id(&mut response, front, &ledger);
        track_delivery(response, ledger, self.link.mark_busy())
    }
}

impl EndpointKind {
    /// Returns the endpoint of a request.
    fn from_parts(parts: &Parts) -> Self {
        let path = parts.uri.path();
        if HEALTH_PATHS.contains(&path) || READY_PATHS.contains(&path) {
            return Self::Health;
        }
        // Preflight requests are for any path, and their permission does not depend on it.
        if parts.method == Method::OPTIONS {
            return Self::CorsPreflight;
        }
        match (
            LocalEndpoint::from_path(path),
            client_wires::client_wire_of(path),
        ) {
            (Some(own), _) => Self::Local(own),
            (None, Some(Wire::OpenAiResponses)) if wants_web_socket(parts) => Self::WebSocket,
            (None, Some(front)) => Self::Model(front),
            (None, None) => ForwardedForm::of_request(&parts.method, path)
                .map_or(Self::NotFound, Self::Forwarded),
        }
    }

    /// Returns the wire whose format is used for errors.
    fn error_wire(&self, parts: &Parts) -> Option<Wire> {
        match self {
            Self::Model(front) => Some(*front),
            Self::WebSocket => Some(Wire::OpenAiResponses),
            Self::Local(own) => own.error_wire(&parts.headers),
            _ => None,
        }
    }
}

/// The headers that switch on members of bodies that are not in the stable API.
const BETA_HEADERS: [&str; 2] = ["anthropic-beta", "openai-beta"];

/// Returns the client's headers that a provider of the same wire needs with the body.
fn beta_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    BETA_HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name).iter().map(|value| (*name, value)))
        .filter_map(|(name, value)| Some((name.to_owned(), value.to_str().ok()?.to_owned())))
        // Of Codex, about its connection to the gateway.
        .filter(|(_, value)| !value.starts_with("responses_websockets"))
        .collect()
}

/// Adds the id of the exchange to its response.
fn add_request_id(response: &mut Response, front: Option<Wire>, ledger: &ExchangeLog) {
    if let Ok(id) = HeaderValue::try_from(ledger.id()) {
        response.headers_mut().insert(request_id_header(front), id);
    }
}

/// Returns the header in which the official clients of a wire look for the id of a request.
fn request_id_header(front: Option<Wire>) -> HeaderName {
    match front {
        Some(Wire::Anthropic) => HeaderName::from_static("request-id"),
        _ => HeaderName::from_static("x-request-id"),
    }
}

/// Logs a refusal and makes its response.
fn refusal_response(refusal: &Refusal, front: Option<Wire>, ledger: &ExchangeLog) -> Response {
    ledger.set_error(refusal);
    if let Some(reason) = refusal.reason() {
        ledger.set_refusal(reason);
    }
    refusal.to_response(front)
}
