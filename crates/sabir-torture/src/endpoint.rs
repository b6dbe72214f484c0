//! Tests a gateway: plays its client and its provider, and checks what arrives at the client.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::{
    DraftCall, DraftResponse, DraftState, Message, MessagePart, Request, Role, StopReason, ToolSet,
};
use sabir_testkit::{ReceivedRequest, ReplyScript, ScriptedProvider};
use sabir_wire::{BodyEnd, BodyForm, DecodeReport, ResponseDecoder, Wire, WireOptions};

use crate::case::{Expectation, TortureCase, sentinel_command};
use crate::report::{CellResult, Verdict};
use crate::runner::TortureError;
use crate::tool_choice::ShellCall;

/// The tool that the client offers.
const TOOLS: &str = r#"[{"name": "run_command", "description": "Runs a command in a shell.", "parameters":
    {"type": "object", "required": ["command"], "properties": {"command": {"type": "string"}}}}]"#;
/// The time between two attempts to reach a gateway that is being started.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// The largest answer of a gateway that is read.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// An API that a client of a gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientApi {
    /// OpenAI's Chat Completions.
    OpenAi,
    /// Anthropic's Messages.
    Anthropic,
    /// Ollama's chat.
    Ollama,
}

impl ClientApi {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }

    fn wire(self) -> Wire {
        match self {
            Self::OpenAi => Wire::OpenAiChat,
            Self::Anthropic => Wire::Anthropic,
            Self::Ollama => Wire::Ollama,
        }
    }

    /// Returns the address of the API below the address of a gateway.
    fn url(self, endpoint: &str, model: &str) -> String {
        let root = endpoint.trim_end_matches('/').trim_end_matches("/v1");
        // The paths of this wire do not include the version.
        let version = match self {
            Self::OpenAi => "/v1",
            Self::Anthropic | Self::Ollama => "",
        };
        let path = self.wire().endpoint_path(model, true);
        format!("{root}{version}{path}")
    }
}

/// The settings of a test of a gateway.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// The address of the gateway, with or without `/v1`.
    pub endpoint: String,
    /// The model in the client's requests.
    pub model: String,
    /// The time limit for each case, and for the gateway to become ready.
    pub limit: Duration,
}

/// The provider that the gateway asks, and the client that asks the gateway.
#[derive(Debug)]
pub struct EndpointTest {
    options: EndpointOptions,
    provider: ScriptedProvider,
    current: Arc<Mutex<CurrentCase>>,
    tools: ToolSet,
    http: reqwest::Client,
}

/// The case that is being tried.
#[derive(Debug, Default)]
struct CurrentCase {
    case: Option<TortureCase>,
    /// Counts the cases. The client's message names it.
    number: usize,
    attempts: usize,
}

impl CurrentCase {
    /// Reports whether a request to the provider belongs to this case, and is not a late retry of one that is over.
    fn owns(&self, request: &ReceivedRequest) -> bool {
        request.body.to_string().contains(&case_mark(self.number))
    }
}

/// Returns the sentence in the client's message by which the provider recognizes the case. The full stop ends the number.
fn case_mark(number: usize) -> String {
    format!("This is request {number}.")
}

/// The answer as the client received it.
struct ClientAnswer {
    status: u16,
    draft: DraftResponse,
    report: DecodeReport,
    stop: Option<StopReason>,
    /// True if the connection broke before the end of the body.
    is_broken: bool,
}

impl EndpointTest {
    /// Starts the provider on this port of 127.0.0.1; 0 means any free one.
    ///
    /// # Errors
    /// The provider cannot listen, or the client cannot be made.
    pub async fn start(options: EndpointOptions, port: u16) -> Result<Self, TortureError> {
        let tools = ToolSet::from_json(TOOLS).map_err(|_| TortureError::Client)?;
        let shell = ShellCall::find(&tools).ok_or(TortureError::Client)?;
        let current = Arc::new(Mutex::new(CurrentCase::default()));
        let shared = Arc::clone(&current);
        // Unlike for agents, the tools of a request are ignored: a gateway may teach them in the
        // prompt.
        let script = ReplyScript::from_fn(move |_, request| {
            let mut current = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if !current.owns(request) {
                return sabir_testkit::ProviderReply::text("No such case is being tried.");
            }
            let attempt = current.attempts;
            current.attempts += 1;
            match current.case {
                Some(case) => case.reply(attempt, &shell),
                None => sabir_testkit::ProviderReply::text("No case is being tried."),
            }
        });
        let provider = ScriptedProvider::start_on(script, port)
            .await
            .map_err(TortureError::Provider)?;
        // An error means that a default provider is installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tls_certs_only([])
            .build()
            .map_err(|_| TortureError::Client)?;
        Ok(Self {
            options,
            provider,
            current,
            tools,
            http,
        })
    }

    /// Returns the address of the provider, which the gateway must be configured with.
    pub fn provider_address(&self) -> SocketAddr {
        self.provider.address()
    }

    /// Waits until the gateway accepts connections.
    ///
    /// # Errors
    /// It does not within the limit.
    pub async fn wait_for_gateway(&self) -> Result<(), TortureError> {
        let reached = async {
            while self.http.get(&self.options.endpoint).send().await.is_err() {
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
        };
        let waited = tokio::time::timeout(self.options.limit, reached).await;
        waited.map_err(|_| TortureError::NoGateway {
            endpoint: self.options.endpoint.clone(),
        })
    }

    /// Sends the client's request of a case, and checks the answer.
    pub async fn run_case(&self, case: &TortureCase, client: ClientApi) -> CellResult {
        let number = self.begin_case(*case);
        let asked = tokio::time::timeout(self.options.limit, self.ask(client, number)).await;
        let requests = self.end_case();
        let (verdict, end, detail) = match asked {
            Err(_) => (
                Verdict::Hung,
                "no end of the answer".to_owned(),
                String::new(),
            ),
            Ok(Err(error)) => (
                Verdict::Missed,
                format!("no answer: {error}"),
                String::new(),
            ),
            Ok(Ok(answer)) => (
                check_answer(case.expectation(), &answer),
                describe_end(&answer),
                describe_content(&answer),
            ),
        };
        CellResult {
            agent: client.name().to_owned(),
            case: case.name.to_owned(),
            verdict: match requests {
                // The gateway is not configured with the provider, so nothing was tested.
                0 => Verdict::NeverAsked,
                _ => verdict,
            },
            end,
            requests,
            detail,
            expected: case.expectation().describe(),
        }
    }

    /// Makes a case the current one, and returns its number.
    fn begin_case(&self, case: TortureCase) -> usize {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let number = current.number + 1;
        *current = CurrentCase {
            case: Some(case),
            number,
            attempts: 0,
        };
        number
    }

    /// Returns the number of requests that the provider got.
    fn end_case(&self) -> usize {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.case = None;
        current.attempts
    }

    async fn ask(&self, client: ClientApi, number: usize) -> Result<ClientAnswer, reqwest::Error> {
        let wire = client.wire();
        let request = Request {
            model: self.options.model.clone(),
            messages: vec![Message {
                role: Role::User,
                parts: vec![MessagePart::text(format!(
                    "Write ok into the file sentinel.txt. {}",
                    case_mark(number)
                ))],
            }]
            .into(),
            tools: self.tools.clone(),
            max_output_tokens: Some(4096),
            ..Request::default()
        };
        let options = WireOptions {
            streamed: true,
            ..WireOptions::default()
        };
        let body = wire.encode_request(&request, &options).to_string();
        let url = client.url(&self.options.endpoint, &self.options.model);
        let mut builder = self.http.post(url).body(body);
        builder = builder.header("content-type", "application/json");
        let key = wire.key_header();
        builder = builder.header(key.0, format!("{}torture", key.1));
        for header in wire.required_headers() {
            builder = builder.header(header.0, header.1);
        }
        let mut response = builder.send().await?;
        let status = response.status().as_u16();
        let mut decoder = ResponseDecoder::new(wire);
        let mut draft = DraftResponse::default();
        let mut read = 0;
        let end = loop {
            match response.chunk().await {
                Ok(Some(bytes)) if read <= MAX_ANSWER_BYTES => {
                    read += bytes.len();
                    decoder.push(&bytes, &mut draft);
                }
                Ok(None) => break BodyEnd::Clean,
                Ok(Some(_)) | Err(_) => break BodyEnd::Broken,
            }
        };
        let report = decoder.finish(end, &mut draft);
        Ok(ClientAnswer {
            status,
            stop: draft.stop.as_ref().map(|(reason, _)| *reason),
            draft,
            report,
            is_broken: end == BodyEnd::Broken,
        })
    }
}

impl ClientAnswer {
    /// Returns the calls that a client would run.
    fn closed_calls(&self) -> Vec<&DraftCall> {
        let calls = self.draft.calls();
        calls
            .filter(|call| call.state == DraftState::Closed)
            .collect()
    }

    /// Reports whether the client learns that something went wrong.
    fn has_error(&self) -> bool {
        // Only this decoder detects that a page or an empty body is no answer; other clients see no
        // error.
        let is_answer = !matches!(self.report.form, BodyForm::Empty | BodyForm::Foreign);
        self.status >= 400 || is_answer && self.report.error.is_some() || self.is_broken
    }

    /// Reports whether the answer is the one correct call, ended properly, and nothing is left of a call in the text.
    fn is_correct(&self) -> bool {
        let calls = self.closed_calls();
        let [call] = calls.as_slice() else {
            return false;
        };
        is_right_call(call)
            && self.report.ended
            && !self.has_error()
            && self.stop == Some(StopReason::Calls)
            && !self.draft.text().contains(&sentinel_command())
    }
}

fn is_right_call(call: &DraftCall) -> bool {
    let [argument] = call.arguments.as_slice() else {
        return false;
    };
    call.name == "run_command"
        && argument.name == "command"
        && argument.text == sentinel_command()
        && !argument.partial
}

/// Checks what arrived at the client.
fn check_answer(expectation: Expectation, answer: &ClientAnswer) -> Verdict {
    let calls = answer.closed_calls();
    if expectation == Expectation::NoCall {
        let shows_example = answer.draft.text().contains(&sentinel_command());
        return match calls.is_empty() {
            false => Verdict::Wrong,
            true if shows_example && !answer.has_error() => Verdict::Passed,
            true => Verdict::Missed,
        };
    }
    if answer.is_correct() {
        return Verdict::Passed;
    }
    if expectation == Expectation::AsSent {
        // The client gets the call as the model wrote it, or learns that there is none.
        let is_stopped =
            calls.is_empty() && (answer.has_error() || !answer.draft.text().is_empty());
        let is_as_sent = calls.iter().all(|call| !is_right_call(call));
        return match is_stopped || !calls.is_empty() && is_as_sent {
            true => Verdict::Passed,
            false => Verdict::Missed,
        };
    }
    if calls.iter().any(|call| !is_right_call(call)) {
        return Verdict::Wrong;
    }
    let is_told = calls.is_empty()
        && match expectation {
            Expectation::CallOrError => answer.has_error(),
            // A gateway may call any failure of its provider 502.
            Expectation::CallOrStatus(status) if status >= 500 => answer.status >= 500,
            Expectation::CallOrStatus(status) => answer.status == status,
            _ => false,
        };
    match is_told {
        true => Verdict::Passed,
        false => Verdict::Missed,
    }
}

fn describe_end(answer: &ClientAnswer) -> String {
    let mut end = format!("status {}", answer.status);
    if let Some(stop) = answer.stop {
        end.push_str(&format!(", stop reason {stop:?}"));
    }
    if let Some(error) = &answer.report.error {
        end.push_str(&format!(", error: {}", error.message));
    }
    if answer.is_broken {
        end.push_str(", the connection broke");
    } else if !answer.report.ended {
        end.push_str(", no end of the stream");
    }
    end
}

fn describe_content(answer: &ClientAnswer) -> String {
    let calls = answer.draft.calls().map(|call| {
        let state = match call.state {
            DraftState::Closed => "",
            _ => " (not closed)",
        };
        format!("call of {}{state}", call.name)
    });
    let mut parts: Vec<String> = calls.collect();
    let text: String = answer.draft.text().chars().take(80).collect();
    if !text.is_empty() {
        parts.push(format!("text {text:?}"));
    }
    parts.join(", ")
}
