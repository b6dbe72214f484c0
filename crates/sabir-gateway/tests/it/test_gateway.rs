//! Provides the test environment: a provider, a gateway in front of it, and raw clients.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use sabir_call::{DraftResponse, ToolProtocol, Usage};
use sabir_gateway::{
    Gateway, GatewayEvent, GatewayLimits, GatewayObserver, GatewaySettings, ModelRoute,
    ProviderWire, RepairMode, RouteTable,
};
use sabir_model::{CallerScope, HttpModel, Provider, RetryPolicy, Secret};
use sabir_testkit::{ReplyScript, ScriptedProvider};
use sabir_wire::{BodyEnd, DecodeReport, ResponseDecoder, Wire};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The four client wires with their paths.
pub(crate) const FRONTS: [(Wire, &str); 4] = [
    (Wire::Anthropic, "/v1/messages"),
    (Wire::OpenAiChat, "/v1/chat/completions"),
    (Wire::OpenAiResponses, "/v1/responses"),
    (Wire::Ollama, "/api/chat"),
];

pub(crate) const TOKEN: &str = "token-for-tests";

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The facts that the observer got at the end of an exchange.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) front: Option<Wire>,
    pub(crate) model: String,
    pub(crate) status: u16,
    pub(crate) whole: bool,
    pub(crate) calls: u32,
    pub(crate) output: Option<u64>,
    pub(crate) counted: Usage,
    pub(crate) error: Option<String>,
}

#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<(String, End)>>>);

impl GatewayObserver for Ends {
    fn on_event(&self, id: &str, note: GatewayEvent<'_>) {
        if let GatewayEvent::Ended(ended) = note {
            let end = End {
                front: ended.front,
                model: ended.model.to_owned(),
                status: ended.status,
                whole: ended.whole,
                calls: ended.calls,
                output: ended.usage.output,
                counted: ended.counted,
                error: ended.error.map(str::to_owned),
            };
            self.0.lock().unwrap().push((id.to_owned(), end));
        }
    }
}

pub(crate) struct TestGateway {
    pub(crate) provider: ScriptedProvider,
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    ends: Ends,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

/// The response that a client received.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Reads the body as a client of that wire does.
    pub(crate) fn read(&self, front: Wire) -> (DraftResponse, DecodeReport) {
        let (mut decoder, mut draft) = (ResponseDecoder::new(front), DraftResponse::default());
        decoder.push(&self.body, &mut draft);
        let report = decoder.finish(BodyEnd::Clean, &mut draft);
        (draft, report)
    }
}

/// Makes a route to a provider that speaks Chat Completions.
pub(crate) fn route(provider: &ScriptedProvider) -> ModelRoute {
    route_on(provider, Wire::OpenAiChat)
}

/// Makes a route to a provider that speaks that wire.
pub(crate) fn route_on(provider: &ScriptedProvider, wire: Wire) -> ModelRoute {
    let reached = Provider::new(
        "scripted",
        wire,
        provider.base_url(wire),
        Some(Secret::new("sk-secret-1-of-the-provider")),
    );
    let form = reached.form.clone();
    let model = HttpModel::new(reached)
        .caller_scope(CallerScope::Many)
        .retries(RetryPolicy {
            limit: 0,
            ..RetryPolicy::default()
        });
    ModelRoute {
        name: "model".to_owned(),
        model: Arc::new(model),
        id: "behind".to_owned(),
        protocol: ToolProtocol::Native,
        repair_mode: RepairMode::Repair,
        provider_wires: vec![ProviderWire { wire, form }],
        limits: sabir_gateway::ModelLimits::default(),
        prices: Vec::new(),
        group: None,
    }
}

pub(crate) fn settings() -> GatewaySettings {
    GatewaySettings {
        token: Some(Secret::new(TOKEN)),
        hosts: Vec::new(),
        origins: Vec::new(),
        limits: GatewayLimits::default(),
        dialects: sabir_call::dialect::DialectSet::default(),
        seed: 7,
        clock: || UNIX_EPOCH,
    }
}

impl TestGateway {
    pub(crate) async fn new(script: ReplyScript) -> Self {
        Self::with(script, settings()).await
    }

    pub(crate) async fn with(script: ReplyScript, settings: GatewaySettings) -> Self {
        let provider = ScriptedProvider::start(script).await.unwrap();
        let routes = RouteTable::default().with_route("model", route(&provider));
        let ends = Ends::default();
        let gateway = Gateway::new(routes, settings, ends.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let serving = gateway.clone();
        let serving = tokio::spawn(async move {
            serving
                .serve(listener, async { _ = ended.await })
                .await
                .unwrap();
        });
        Self {
            provider,
            gateway,
            address,
            ends,
            end: Some(end),
            serving,
        }
    }

    /// Sends these bytes and reads until the connection ends.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Got {
        let mut stream = self.open().await;
        stream.write_all(bytes).await.unwrap();
        finished(stream).await
    }

    pub(crate) async fn open(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Makes a request with the token.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
        let address = self.address;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\
             Content-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Got {
        self.raw(&self.request("POST", path, "", &body.to_string()))
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.raw(&self.request("GET", path, "", "")).await
    }

    /// Shuts the gateway down, and waits until it has ended.
    pub(crate) async fn end(&mut self) {
        self.tell_to_end();
        tokio::time::timeout(LONG, &mut self.serving)
            .await
            .expect("an end")
            .unwrap();
    }

    pub(crate) fn tell_to_end(&mut self) {
        if let Some(end) = self.end.take() {
            _ = end.send(());
        }
    }

    /// Waits for this number of ended exchanges and returns them.
    pub(crate) async fn ends(&self, count: usize) -> Vec<End> {
        until("the ends of exchanges", || {
            self.ends.0.lock().unwrap().len() >= count
        })
        .await;
        let all = self.ends.0.lock().unwrap().clone();
        let mut ids: Vec<_> = all.iter().map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!((ids.len(), all.len()), (count, count), "{all:?}");
        all.into_iter().map(|(_, end)| end).collect()
    }

    /// Waits for this number of ended exchanges and returns their ids in order.
    pub(crate) async fn end_ids(&self, count: usize) -> Vec<String> {
        self.ends(count).await;
        let mut ids: Vec<_> = self
            .ends
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|(id, _)| id.clone())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Returns a value from the metrics.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").await.text();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {name}: {text}"))
            .parse()
            .unwrap()
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait)
        .await
        .unwrap_or_else(|_| panic!("still no {what}"));
}

/// Reads a response to its end.
pub(crate) async fn finished(mut stream: TcpStream) -> Got {
    let mut bytes = Vec::new();
    // A broken connection counts as the end of the response.
    _ = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes))
        .await
        .expect("an end of the connection");
    got(&bytes)
}

pub(crate) fn got(bytes: &[u8]) -> Got {
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map_or(bytes.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let rest = &bytes[end..];
    let body = if head.contains("transfer-encoding: chunked") {
        unchunked(rest)
    } else {
        rest.to_vec()
    };
    Got { status, head, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let chunk = &rest[line + 2..];
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        rest = chunk.get(size + 2..).unwrap_or_default();
    }
    body
}

/// Makes a request on that wire with this text.
pub(crate) fn body(front: Wire, words: &str, streamed: bool) -> Value {
    let tool = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let messages = json!([{"role": "user", "content": words}]);
    let function =
        json!({"type": "function", "function": {"name": "read_file", "parameters": tool}});
    match front {
        Wire::Anthropic => {
            json!({"model": "model", "max_tokens": 99, "messages": messages, "stream": streamed,
            "tools": [{"name": "read_file", "input_schema": tool}]})
        }
        Wire::OpenAiResponses => json!({"model": "model", "input": messages, "stream": streamed,
            "tools": [{"type": "function", "name": "read_file", "parameters": tool}]}),
        _ => {
            json!({"model": "model", "messages": messages, "stream": streamed, "tools": [function]})
        }
    }
}
