//! From a request to its response: guard, path, body, and who answers.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use sabir_wire::Wire;

use crate::connection::Link;
use crate::delivery::watched;
use crate::error::Refusal;
use crate::exchange::{Exchange, REPORT};
use crate::front;
use crate::guard;
use crate::ledger::Ledger;
use crate::lists::{self, HEALTH, Own};
use crate::receive;
use crate::serve::Gateway;

/// Where the requests of one connection are answered.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) gateway: Gateway,
    /// The address at which the client came in.
    pub(crate) local: SocketAddr,
    pub(crate) link: Arc<Link>,
}

/// Who answers.
enum Who {
    Health,
    /// A browser asks what it may send.
    Permission,
    Own(Own),
    Model(Wire),
    Nobody,
}

impl Desk {
    pub(crate) async fn respond(self, request: Request) -> Response {
        let busy = self.link.busy();
        let (parts, body) = request.into_parts();
        let who = Who::of(&parts);
        // Balancers ask every few seconds: that is no exchange.
        if matches!(who, Who::Health) && !self.link.is_lost() {
            return lists::health();
        }
        let front = who.front(&parts);
        let ledger = Ledger::new(&self.gateway, self.gateway.id(), front);
        let mut response = match self.admitted(&who, &parts) {
            Ok(()) => {
                let answer = self.answer(&who, &parts, body, &ledger).await;
                answer.unwrap_or_else(|refusal| refused(&refusal, front, &ledger))
            }
            Err(refusal) => {
                receive::discard(&parts.headers, body, &self.gateway.settings().limits).await;
                refused(&refusal, front, &ledger)
            }
        };
        if let Some(report) = ledger.reported().and_then(|report| HeaderValue::try_from(report).ok()) {
            response.headers_mut().insert(REPORT, report);
        }
        if self.link.is_lost() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        lists::for_page(self.page(&parts), &mut response);
        watched(response, ledger, busy)
    }

    /// The page that asks, if it is one that may.
    fn page(&self, parts: &Parts) -> Option<HeaderValue> {
        let origin = parts.headers.get(header::ORIGIN)?;
        let known = &self.gateway.settings().origins;
        known.iter().any(|known| known.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }

    fn admitted(&self, who: &Who, parts: &Parts) -> Result<(), Refusal> {
        if self.link.is_lost() {
            return Err(Refusal::Malformed(
                "the length of a body is given in two ways, or not in a way that can be understood".to_owned(),
            ));
        }
        if !matches!(who, Who::Health) {
            guard::admit(&self.gateway.settings(), self.local, parts)?;
        }
        match who {
            Who::Nobody => Err(Refusal::Path(parts.uri.path().chars().take(200).collect())),
            Who::Own(own) => own.admits(parts),
            Who::Model(_) if parts.method != Method::POST => {
                Err(Refusal::Method(parts.method.to_string(), Method::POST))
            }
            _ => Ok(()),
        }
    }

    async fn answer(
        &self,
        who: &Who,
        parts: &Parts,
        body: axum::body::Body,
        ledger: &Ledger,
    ) -> Result<Response, Refusal> {
        let (gateway, path) = (&self.gateway, parts.uri.path());
        let limits = &{ gateway.settings().limits };
        let response = match who {
            Who::Nobody | Who::Health => lists::health(),
            Who::Permission => lists::permission(&parts.headers),
            Who::Own(own) => own.answer(gateway, path, &receive::body(parts, body, limits).await?)?,
            Who::Model(front) => {
                match gateway.place() {
                    Ok(place) => ledger.hold(place),
                    Err(refusal) => {
                        receive::discard(&parts.headers, body, limits).await;
                        return Err(refusal);
                    }
                }
                let body = receive::body(parts, body, limits).await?;
                let report = parts.headers.get(REPORT).is_some_and(|value| value == "1");
                let exchange = Exchange { gateway: gateway.clone(), front: *front, ledger: ledger.clone(), report };
                return exchange.answer(path, body).await;
            }
        };
        ledger.done();
        Ok(response)
    }
}

impl Who {
    fn of(parts: &Parts) -> Self {
        let path = parts.uri.path();
        if path == HEALTH {
            return Self::Health;
        }
        if parts.method == Method::OPTIONS {
            return Self::Permission;
        }
        match (Own::of_path(path), front::of_path(path)) {
            (Some(own), _) => Self::Own(own),
            (None, Some(front)) => Self::Model(front),
            (None, None) => Self::Nobody,
        }
    }

    /// The wire in whose format errors are told.
    fn front(&self, parts: &Parts) -> Option<Wire> {
        match self {
            Self::Model(front) => Some(*front),
            Self::Own(own) => own.front(&parts.headers),
            _ => None,
        }
    }
}

fn refused(refusal: &Refusal, front: Option<Wire>, ledger: &Ledger) -> Response {
    ledger.failed(refusal);
    refusal.response(front)
}
