//! Finds model servers on this machine, and lists the models that they serve.
//!
//! Each target gets requests for `/v1/models`, `/api/tags` (Ollama) and `/props` (llama.cpp) at
//! once, and all targets are probed at the same time. A target that does not answer in time, or
//! answers with something else, is ignored. No key is sent, no proxy is used, and no redirect is
//! followed.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The largest response in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The largest number of models of one server that are listed.
const MAX_MODELS: usize = 500;

/// An address to probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTarget {
    /// The provider's name for models at this address.
    pub provider: String,
    /// The address, with or without `/v1` at its end.
    pub base_url: String,
}

/// A server that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalServer {
    /// The provider's name for its models.
    pub provider: String,
    /// Its address.
    pub base_url: String,
    /// The software, if its responses identify it: `ollama`, `llama.cpp` or `vllm`.
    pub software: Option<&'static str>,
    /// True if it lists its models only with a key.
    pub locked: bool,
    /// The models that it serves, in its own order.
    pub models: Vec<ServedModel>,
    /// The Jinja source of the chat template of its model, if it shows it: only llama.cpp does.
    #[serde(skip)]
    pub chat_template: Option<String>,
}

/// A model of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServedModel {
    /// The name for requests.
    pub id: String,
    /// The context in tokens for which the server has loaded it.
    pub context: Option<u64>,
}

/// Probes all targets at once, each for at most `limit`, and returns the servers that answered, in
/// the order of the targets.
///
/// Needs a tokio runtime with time and I/O.
///
/// A server that refuses to list its models without a key is returned as `locked`.
pub async fn probe_servers(places: &[ProbeTarget], limit: Duration) -> Vec<LocalServer> {
    let Some(client) = build_client(limit) else {
        return Vec::new();
    };
    let mut asked = JoinSet::new();
    for (at, place) in places.iter().enumerate() {
        let client = client.clone();
        let place = place.clone();
        asked.spawn(async move {
            (
                at,
                timeout(limit, probe_server(&client, &place))
                    .await
                    .ok()
                    .flatten(),
            )
        });
    }
    let mut found: Vec<_> = asked
        .join_all()
        .await
        .into_iter()
        .filter_map(|(at, server)| Some((at, server?)))
        .collect();
    // The tasks finish in any order.
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, server)| server).collect()
}

/// Makes a client that follows no redirect and uses no proxy; `None` if that fails.
fn build_client(limit: Duration) -> Option<Client> {
    // An error means that a default provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .connect_timeout(limit)
        // A redirect or a proxy could lead the probe away from this machine.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    builder.tls_certs_only([]).build().ok()
}

/// Probes one target; `None` if nothing there serves models.
async fn probe_server(client: &Client, place: &ProbeTarget) -> Option<LocalServer> {
    let root = place.base_url.trim_end_matches('/').trim_end_matches("/v1");
    let [models, tags, props] =
        ["/v1/models", "/api/tags", "/props"].map(|path| format!("{root}{path}"));
    // At once, because the time limit covers all three.
    let (models, tags, props) = tokio::join!(
        fetch_json(client, &models),
        fetch_json(client, &tags),
        fetch_json(client, &props)
    );
    let locked = matches!(models, ProbeResponse::Locked);
    let [models, tags, props] = [models, tags, props].map(ProbeResponse::into_json);
    let tagged = tags
        .as_ref()
        .and_then(|tags| parse_models(tags, "models", "name"));
    let context = props.as_ref().and_then(|props| {
        props
            .pointer("/default_generation_settings/n_ctx")?
            .as_u64()
    });
    let chat_template = props
        .as_ref()
        .and_then(|props| props.get("chat_template")?.as_str())
        .map(str::to_owned);
    let owner = models
        .as_ref()
        .and_then(|models| models.pointer("/data/0/owned_by")?.as_str());
    // Only Ollama has tags, and only llama.cpp has `/props`, which may be disabled; vLLM names
    // itself as the owner of a model.
    let software = match (&tagged, context, owner) {
        (Some(_), ..) => Some("ollama"),
        (_, Some(_), _) | (_, _, Some("llamacpp")) => Some("llama.cpp"),
        (_, _, Some("vllm")) => Some("vllm"),
        _ => None,
    };
    let mut served = tagged.or_else(|| {
        models
            .as_ref()
            .and_then(|models| parse_models(models, "data", "id"))
    });
    for model in served.iter_mut().flatten() {
        // llama.cpp reports one context for the server as a whole.
        model.context = model.context.or(context);
    }
    let found = served.is_some() || locked;
    found.then(|| LocalServer {
        provider: place.provider.clone(),
        base_url: place.base_url.clone(),
        software,
        locked,
        models: served.unwrap_or_default(),
        chat_template,
    })
}

/// Parses a list of models; `None` if the response is not such a list.
fn parse_models(answer: &Value, field: &str, name: &str) -> Option<Vec<ServedModel>> {
    let items = answer.get(field)?.as_array()?;
    let served = items.iter().filter_map(|item| {
        let id = item.get(name)?.as_str()?.to_owned();
        Some(ServedModel {
            id,
            context: item.get("max_model_len").and_then(Value::as_u64),
        })
    });
    let served: Vec<_> = served.take(MAX_MODELS).collect();
    // A server may have no models yet; a list of something else is not a model list.
    (items.is_empty() || !served.is_empty()).then_some(served)
}

/// The response to one request.
enum ProbeResponse {
    /// No answer, or one that is not JSON.
    Nothing,
    /// A key is needed: status 401 or 403.
    Locked,
    /// A JSON value.
    Json(Value),
}

impl ProbeResponse {
    /// Returns the JSON value, if there is one.
    fn into_json(self) -> Option<Value> {
        match self {
            Self::Json(value) => Some(value),
            _ => None,
        }
    }
}

/// Requests a JSON document. The caller limits the time.
async fn fetch_json(client: &Client, url: &str) -> ProbeResponse {
    let Ok(mut response) = client.get(url).send().await else {
        return ProbeResponse::Nothing;
    };
    if matches!(
        response.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) {
        return ProbeResponse::Locked;
    }
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece);
        // Any program may listen at a usual port and send an endless response.
        if body.len() > MAX_BODY_BYTES {
            return ProbeResponse::Nothing;
        }
    }
    serde_json::from_slice(&body).map_or(ProbeResponse::Nothing, ProbeResponse::Json)
}
