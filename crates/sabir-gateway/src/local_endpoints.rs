//! Answers requests without a model: health, metrics, lists of models, and token counts.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use sabir_wire::model_listing::{self, InfoRequest, ListedModel};
use sabir_wire::{Wire, parse_request_body};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::serve::Gateway;

/// The headers that the scripts of an allowed page may read.
const EXPOSED_HEADERS: &str = "retry-after, retry-after-ms, x-request-id, request-id, sabir-report";

/// An endpoint that needs no model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocalEndpoint {
    /// The root, which some clients request first to see if the server runs.
    Root,
    /// The metrics.
    Metrics,
    /// Ollama's list of loaded models, which is always empty.
    Running,
    /// An information request of a wire, such as the list of models.
    Listing(InfoRequest),
}

/// The paths of the health check, which needs no token: the process answers.
pub(crate) const HEALTH_PATHS: [&str; 2] = ["/health", "/healthz"];

/// The paths of the readiness check, which needs no token: requests can be answered.
pub(crate) const READY_PATHS: [&str; 2] = ["/ready", "/readyz"];

impl LocalEndpoint {
    /// Returns the endpoint of a path.
    ///
    /// Paths of models are matched elsewhere; `None` is returned for them.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path {
            "/" => Some(Self::Root),
            "/metrics" => Some(Self::Metrics),
            "/api/ps" => Some(Self::Running),
            path => model_listing::match_info_path(path).map(Self::Listing),
        }
    }

    /// Returns the wire whose format is used for errors.
    pub(crate) fn error_wire(&self, headers: &HeaderMap) -> Option<Wire> {
        match self {
            Self::Root | Self::Metrics => None,
            Self::Running
            | Self::Listing(InfoRequest::Tags | InfoRequest::Show | InfoRequest::Version) => {
                Some(Wire::Ollama)
            }
            Self::Listing(InfoRequest::CountTokens) => Some(Wire::Anthropic),
            Self::Listing(
                InfoRequest::GeminiModels
                | InfoRequest::GeminiModel(_)
                | InfoRequest::GeminiCountTokens(_),
            ) => Some(Wire::Gemini),
            // Both APIs have these paths. Anthropic's clients always send this header.
            Self::Listing(_) if headers.contains_key("anthropic-version") => Some(Wire::Anthropic),
            Self::Listing(_) => Some(Wire::OpenAiChat),
        }
    }

    /// Returns true if requests have a body.
    fn has_body(&self) -> bool {
        matches!(
            self,
            Self::Listing(
                InfoRequest::Show | InfoRequest::CountTokens | InfoRequest::GeminiCountTokens(_)
            )
        )
    }

    /// Returns an error if the request's method is not allowed.
    pub(crate) fn check_method(&self, parts: &Parts) -> Result<(), Refusal> {
        let wanted = if self.has_body() {
            Method::POST
        } else {
            Method::GET
        };
        let fits = parts.method == wanted || wanted == Method::GET && parts.method == Method::HEAD;
        if fits {
            Ok(())
        } else {
            Err(Refusal::Method(parts.method.to_string(), wanted))
        }
    }

    /// Makes the response.
    pub(crate) fn respond(
        &self,
        gateway: &Gateway,
        path: &str,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let routes = gateway.routes();
        let listed = |name: &str| ListedModel {
            name: name.to_owned(),
            created: gateway.created_at(),
            context: None,
        };
        let list = || routes.model_names().map(listed).collect::<Vec<_>>();
        let one = |name: &str| match routes.find_route(name) {
            Some(_) => Ok(listed(name)),
            None => Err(routes.unknown_model(name)),
        };
        let asked = match self {
            Self::Root => {
                return Ok(text_response(
                    "text/plain; charset=utf-8",
                    "Sabir is running".to_owned(),
                ));
            }
            Self::Metrics => {
                let settlements = gateway.keys().map(|keys| keys.settlement_counts());
                let settlements = settlements.unwrap_or_default();
                return Ok(text_response(
                    "text/plain; version=0.0.4",
                    gateway.metrics().render_text(&routes.groups(), settlements),
                ));
            }
            Self::Running => return Ok(json_response(&json!({"models": []}))),
            Self::Listing(asked) => asked,
        };
        Ok(json_response(&match asked {
            InfoRequest::Models => model_listing::encode_model_list(&list()),
            InfoRequest::Tags => model_listing::encode_ollama_tags(&list()),
            InfoRequest::Version => model_listing::encode_ollama_version(env!("CARGO_PKG_VERSION")),
            InfoRequest::Model(name) => model_listing::encode_model(&one(name)?),
            InfoRequest::Show => {
                let unnamed = || Refusal::Malformed("model: a name is needed".to_owned());
                model_listing::encode_ollama_show(&one(
                    &model_listing::ollama_show_name(body).ok_or_else(unnamed)?
                )?)
            }
            InfoRequest::GeminiModels => model_listing::encode_gemini_models(&list()),
            InfoRequest::GeminiModel(name) => model_listing::encode_gemini_model(&one(name)?),
            InfoRequest::GeminiCountTokens(name) => {
                one(name)?;
                let body = parse_request_body(body).map_err(Refusal::Request)?;
                let counted = model_listing::gemini_counted_request(&body);
                let incoming = Wire::Gemini
                    .decode_request_value(path, counted)
                    .map_err(Refusal::Request)?;
                model_listing::encode_gemini_token_count(&incoming.request)
            }
            InfoRequest::CountTokens => {
                let incoming = Wire::Anthropic
                    .decode_request(path, body)
                    .map_err(Refusal::Request)?;
                // Refused as the later request would be, so that a client learns of a wrong name
                // early.
                one(&incoming.request.model)?;
                model_listing::encode_token_count(&incoming.request)
            }
        }))
    }
}

/// Makes the response to a health check.
pub(crate) fn health_response() -> Response {
    text_response("text/plain; charset=utf-8", "ok\n".to_owned())
}

/// Makes the response to a readiness check: 503 if requests should go to another gateway.
pub(crate) fn ready_response(is_ready: bool) -> Response {
    let text = if is_ready { "ready\n" } else { "not ready\n" };
    let mut response = text_response("text/plain; charset=utf-8", text.to_owned());
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// Makes the response to the CORS preflight request of an allowed page.
pub(crate) fn preflight_response(headers: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let known = response.headers_mut();
    known.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, DELETE"),
    );
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        // Any header may be sent: the token is what protects, and no cookie is read.
        known.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}

/// Allows the page to read the response. `access_control` has checked its origin.
pub(crate) fn allow_origin(origin: Option<HeaderValue>, response: &mut Response) {
    if let Some(origin) = origin {
        response
            .headers_mut()
            .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response
            .headers_mut()
            // A cache must not serve the permission of one page to another.
            .insert(header::VARY, HeaderValue::from_static("origin"));
        response.headers_mut().insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(EXPOSED_HEADERS),
        );
    }
}

/// Makes a response with a JSON body and status 200.
fn json_response(body: &Value) -> Response {
    text_response("application/json", body.to_string())
}

/// Makes a response with a body of this type and status 200.
fn text_response(kind: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
