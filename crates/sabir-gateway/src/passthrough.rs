//! Forwards requests that are not for a chat model, such as those for embeddings, to an upstream of
//! their model. Nothing is translated: the upstream must serve the endpoint itself.
//!
//! Files belong to no model, and the APIs have no member for one: a request names it in its form or its
//! query, unless there is only one. All requests about files ask the upstreams in the same order, so that
//! a file is found at the upstream to which it was uploaded.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;
use futures_util::stream;
use sabir_call::{BYTES_PER_TOKEN, ProviderReportSlot};
use sabir_model::{ForwardError, ForwardedRequest, ForwardedResponse, ProviderClient};
use sabir_wire::{RequestError, is_limit_header, parse_request_body, percent_decode};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::exchange::{DEFAULT_OUTPUT_TOKENS, reserve_free_lease, reserve_lease};
use crate::exchange_log::ExchangeLog;
use crate::exchange_meter::RequestEnd;
use crate::form_data::find_model_field;
use crate::forwarded_answer::{AnswerRewriter, RecordFraming, StreamRewriter};
use crate::forwarded_output::{AnswerForm, OutputCounter, is_json_lines};
use crate::request_body::BodyForm;
use crate::route::RouteTable;
use crate::serve::Gateway;

/// The endpoints with a JSON body that names the model.
const JSON_PATHS: [&str; 9] = [
    "/v1/embeddings",
    "/v1/completions",
    "/v1/moderations",
    "/v1/rerank",
    "/v2/rerank",
    "/v1/score",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/responses/compact",
];

/// The endpoints with a form (`multipart/form-data`) that has a field `model`.
const FORM_PATHS: [&str; 4] = [
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/edits",
    FILES_PATH,
];

/// The endpoint for uploading and listing files. A single file has a path below it.
const FILES_PATH: &str = "/v1/files";

/// The longest id of a file.
const MAX_FILE_ID: usize = 256;

/// The headers of a client that are forwarded.
// No others, so that no upstream sees the client's key or cookies.
const REQUEST_HEADERS: [&str; 4] = ["content-type", "accept", "openai-beta", "anthropic-beta"];

/// The member of a query that names the model of a request about files.
const MODEL_IN_QUERY: &str = "model";

/// The longest answer that is read whole before it is sent on.
const MAX_READ_ANSWER: usize = 32 << 20;

/// The longest body of an error that is sent to the client.
const MAX_ERROR_BODY: usize = 1 << 20;

/// The endpoints that answer with text of a model, whose output costs something.
const TEXT_PATHS: [&str; 4] = [
    "/v1/completions",
    "/v1/responses/compact",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
];

/// The beginning of the endpoints for audio, whose answers may be plain text.
const AUDIO_PATHS: &str = "/v1/audio/";

/// The form of a forwarded request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardedForm {
    /// A JSON object.
    Json,
    /// A form with files.
    Form,
    /// No body: a request for the list of files.
    FileList,
    /// No body: a request about one file.
    File {
        /// True for a request for its content.
        is_content: bool,
    },
}

impl ForwardedForm {
    /// Returns the form of a request's body; `None` for a path that is not forwarded.
    pub(crate) fn of_request(method: &Method, path: &str) -> Option<Self> {
        if JSON_PATHS.contains(&path) {
            return Some(Self::Json);
        }
        if path == FILES_PATH && method == Method::GET {
            return Some(Self::FileList);
        }
        if FORM_PATHS.contains(&path) {
            return Some(Self::Form);
        }
        let file = path.strip_prefix(FILES_PATH)?.strip_prefix('/')?;
        let content = file.strip_suffix("/content");
        let id = content.unwrap_or(file);
        // An id with other characters could lead to another path of the provider.
        let is_id = !id.is_empty()
            && id.len() <= MAX_FILE_ID
            && id
                .bytes()
                .all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, b'-' | b'_'));
        is_id.then_some(Self::File {
            is_content: content.is_some(),
        })
    }

    /// Checks the method of a request.
    ///
    /// # Errors
    /// A method that the endpoint does not have.
    pub(crate) fn check_method(self, method: &Method) -> Result<(), Refusal> {
        let usual = match self {
            Self::Json | Self::Form => Method::POST,
            Self::FileList | Self::File { .. } => Method::GET,
        };
        let is_deletion = self == Self::File { is_content: false } && method == Method::DELETE;
        if *method == usual || is_deletion {
            Ok(())
        } else {
            Err(Refusal::Method(method.to_string(), usual))
        }
    }

    /// Returns the form in which the body is read.
    pub(crate) fn body_form(self) -> BodyForm {
        match self {
            Self::Form => BodyForm::Multipart,
            Self::Json | Self::FileList | Self::File { .. } => BodyForm::Json,
        }
    }
}

/// The source of an answer, which decides what is counted as usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerKind {
    /// The content of a file.
    FileContent,
    /// Data about files. Nothing in it is usage of a model.
    FileData,
    /// Text that a model wrote, in JSON.
    Text,
    /// Text that a model wrote, in JSON or alone.
    Transcript,
    /// Other output of a model.
    Other,
}

impl AnswerKind {
    /// Returns true if the answer comes from a model.
    fn has_usage(self) -> bool {
        matches!(self, Self::Text | Self::Transcript | Self::Other)
    }
}

/// A request whose model is known.
struct NamedRequest {
    /// The name of the model, as the client wrote it.
    model: String,
    /// The range of that name in the body, for a form that has it.
    model_range: Option<std::ops::Range<usize>>,
    /// The body, if it is JSON.
    json: Option<Value>,
}

/// Forwards a request and answers with what the upstream says.
///
/// # Errors
/// The request names no model that is known here, its key has reached a limit, or no upstream answers.
pub(crate) async fn forward_request(
    gateway: &Gateway,
    ledger: &ExchangeLog,
    parts: &Parts,
    body: Bytes,
    form: ForwardedForm,
) -> Result<Response, Refusal> {
    let path = parts.uri.path();
    let query = parts.uri.query().unwrap_or_default();
    let headers = &parts.headers;
    let routes = gateway.routes();
    let is_about_files = path.starts_with(FILES_PATH);
    let named = match form {
        ForwardedForm::Json => name_in_json(&body)?,
        ForwardedForm::Form => match name_in_form(headers, &body)? {
            Some(named) => named,
            None if is_about_files => name_of_files(query, &routes)?,
            None => return Err(missing_field()),
        },
        // A file's id is known only to the client that uploaded it; the list has the ids of all
        // clients.
        ForwardedForm::FileList if ledger.key().is_some() => {
            return Err(Refusal::NotForClients("the list of all files"));
        }
        ForwardedForm::FileList | ForwardedForm::File { .. } => name_of_files(query, &routes)?,
    };
    ledger.set_model(&named.model);
    let route = routes
        .find_route(&named.model)
        .ok_or_else(|| routes.unknown_model(&named.model))?;
    // Far too high for audio and images, but it stays in the account only if the answer reports no
    // usage.
    let estimate = body.len() as u64 / BYTES_PER_TOKEN;
    let has_text = TEXT_PATHS.contains(&path);
    let asked_output = named.json.as_ref().and_then(|body| {
        let names = ["max_tokens", "max_output_tokens"];
        names.iter().find_map(|name| body.get(name)?.as_u64())
    });
    let usual_output = match has_text {
        true => route.limits.output.unwrap_or(DEFAULT_OUTPUT_TOKENS),
        false => 0,
    };
    let output = asked_output.unwrap_or(usual_output);
    match is_about_files {
        // A file costs tokens only when a later request refers to it.
        true => reserve_free_lease(gateway, ledger, &route).await?,
        false => reserve_lease(gateway, ledger, &route, estimate, output).await?,
    }
    let group = route.group.as_ref().ok_or_else(|| {
        Refusal::Malformed(format!("the model `{}` has no such endpoint", named.model))
    })?;
    let is_streamed = named
        .json
        .as_ref()
        .and_then(|body| body.get("stream")?.as_bool())
        .unwrap_or(false);
    let forwarded = headers.iter().filter_map(|(name, value)| {
        let is_passed = REQUEST_HEADERS.contains(&name.as_str());
        Some((name.to_string(), value.to_str().ok()?.to_owned())).filter(|_| is_passed)
    });
    let forwarded: Vec<(String, String)> = forwarded.collect();
    let report = ProviderReportSlot::new();
    let make = |id: &str| ForwardedRequest {
        method: parts.method.to_string(),
        path: match is_about_files {
            true => with_query(path, query),
            false => path.to_owned(),
        },
        headers: forwarded.clone(),
        body: body_for(&named, &body, id),
    };
    if !is_about_files {
        ledger.begin_request(&report);
    }
    let answered = match is_about_files {
        true => group.forward_until_found(&make).await,
        false => group.forward(&make).await,
    };
    let (upstream, client, response) = answered.map_err(|error| {
        let message = match &error {
            None => "the model's upstreams have no such endpoint".to_owned(),
            Some(error) => error.to_string(),
        };
        ledger.set_error(&message);
        ledger.end_request(RequestEnd::Failed);
        Refusal::Forward(error.is_some())
    })?;
    report.update(|report| report.upstream = Some(upstream.clone()));
    ledger.set_upstream(Some(upstream));
    if (300..400).contains(&response.status) {
        ledger.set_error(&format!(
            "the upstream sends requests elsewhere ({}); change its address",
            response.status
        ));
        ledger.end_request(RequestEnd::Failed);
        return Err(Refusal::Forward(true));
    }
    if let Some(compression) = response.compression() {
        ledger.set_error(&format!(
            "the upstream answered with the content encoding `{compression}`, which was not asked for"
        ));
        ledger.end_request(RequestEnd::Failed);
        return Err(Refusal::CompressedAnswer(compression));
    }
    // What an upstream refuses costs nothing.
    if response.status >= 300 {
        ledger.end_request(RequestEnd::Failed);
    }
    ledger.set_first_output(ledger.elapsed());
    let kind = match form {
        ForwardedForm::File { is_content: true } => AnswerKind::FileContent,
        _ if is_about_files => AnswerKind::FileData,
        _ if has_text && path.starts_with(AUDIO_PATHS) => AnswerKind::Transcript,
        _ if has_text => AnswerKind::Text,
        _ => AnswerKind::Other,
    };
    forward_response(ledger, client, response, kind, is_streamed, &named.model).await
}

/// Finds the model in a JSON body.
fn name_in_json(body: &[u8]) -> Result<NamedRequest, Refusal> {
    let body = parse_request_body(body).map_err(Refusal::Request)?;
    let model = body.get("model").and_then(Value::as_str);
    let model = model.ok_or_else(|| {
        Refusal::Request(RequestError {
            path: "model".to_owned(),
            message: "a name is needed".to_owned(),
        })
    })?;
    Ok(NamedRequest {
        model: model.to_owned(),
        model_range: None,
        json: Some(body),
    })
}

/// Finds the model of a request about files: the one that its query names, or the only one.
fn name_of_files(query: &str, routes: &RouteTable) -> Result<NamedRequest, Refusal> {
    let mut named = query.split('&').filter(|pair| names_model(pair));
    let in_query = named
        .next()
        .and_then(|pair| pair.split_once('='))
        .map(|(_, model)| percent_decode(model));
    let model = in_query.or_else(|| Some(routes.only_route()?.name.clone()));
    let model = model.ok_or_else(|| {
        Refusal::Request(RequestError {
            path: "model".to_owned(),
            message: "several models are served here: name one in the query, as `?model=NAME`"
                .to_owned(),
        })
    })?;
    Ok(NamedRequest {
        model,
        model_range: None,
        json: None,
    })
}

/// Returns true if a member of a query names the model.
fn names_model(pair: &str) -> bool {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    percent_decode(name) == MODEL_IN_QUERY
}

/// Returns a path with what its query says to the provider.
fn with_query(path: &str, query: &str) -> String {
    let pairs = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !names_model(pair));
    let rest = pairs.collect::<Vec<_>>().join("&");
    match rest.as_str() {
        "" => path.to_owned(),
        rest => format!("{path}?{rest}"),
    }
}

/// Makes the refusal of a form that names no model.
fn missing_field() -> Refusal {
    Refusal::Request(RequestError {
        path: "model".to_owned(),
        message: "the form needs a field `model` with a name".to_owned(),
    })
}

/// Finds the model of a form; `None` if it has no field for it.
fn name_in_form(headers: &HeaderMap, body: &[u8]) -> Result<Option<NamedRequest>, Refusal> {
    let found = find_model_field(headers, body).map_err(|error| {
        Refusal::Request(RequestError {
            path: error.path().to_owned(),
            message: error.to_string(),
        })
    })?;
    Ok(found.map(|field| NamedRequest {
        model: field.model,
        model_range: Some(field.range),
        json: None,
    }))
}

/// Returns the body with the upstream's own name of the model.
fn body_for(named: &NamedRequest, body: &[u8], id: &str) -> Vec<u8> {
    if let Some(json) = &named.json {
        let mut json = json.clone();
        if let Some(place) = json.get_mut("model") {
            *place = json!(id);
        }
        return json.to_string().into_bytes();
    }
    let Some(range) = named.model_range.clone() else {
        return body.to_vec();
    };
    let before = body.get(..range.start).unwrap_or_default();
    let after = body.get(range.end..).unwrap_or_default();
    [before, id.as_bytes(), after].concat()
}

/// Returns true if a header of an upstream's response is sent to the client.
fn is_forwarded_header(name: &str) -> bool {
    // Not the length and the connection, because the body gets new frames on its way to the client.
    matches!(name, "content-type" | "retry-after" | "content-disposition") || is_limit_header(name)
}

/// Sends the response of an upstream to the client. A JSON answer is read first, so that the client
/// gets an error if it breaks off.
async fn forward_response(
    ledger: &ExchangeLog,
    client: Arc<ProviderClient>,
    mut response: ForwardedResponse,
    kind: AnswerKind,
    is_streamed: bool,
    model: &str,
) -> Result<Response, Refusal> {
    let status = response.status;
    let headers = std::mem::take(&mut response.headers);
    let content_type = headers.iter().find(|(name, _)| name == "content-type");
    let content_type = content_type.map_or("", |(_, value)| value);
    let form = AnswerForm::of_type(content_type);
    let is_streamed = is_streamed || is_json_lines(content_type);
    let is_page = content_type.contains("html");
    // The text of an error is none of a model.
    let has_text =
        matches!(kind, AnswerKind::Text | AnswerKind::Transcript) && (200..300).contains(&status);
    let counter = kind.has_usage().then(|| OutputCounter::new(form, has_text));
    let redactor = client.redactor();
    let mut state = ForwardedBody {
        client,
        response,
        ledger: ledger.clone(),
        counter,
        rewriter: None,
        begin: Vec::new(),
        is_over: false,
    };
    if status >= 400 {
        state.begin = state.read_redacted_error().await?;
        state.is_over = true;
    }
    if form == AnswerForm::Json && !is_streamed {
        // The rest of a longer answer is streamed after this part.
        while !state.is_over && state.begin.len() < MAX_READ_ANSWER {
            let read = state.read_chunk().await;
            let chunk = read.map_err(|_| Refusal::Forward(true))?;
            state.begin.extend(chunk.unwrap_or_default());
        }
    }
    // The body of an error was redacted above. A file has the bytes that its client uploaded.
    if status < 300 && kind != AnswerKind::FileContent {
        let model = kind.has_usage().then(|| model.to_owned());
        let rewriter = AnswerRewriter::new(model, Arc::clone(&redactor));
        if form == AnswerForm::Json && state.is_over {
            state.begin = rewriter.rewrite_answer(std::mem::take(&mut state.begin));
        } else {
            let mut rewriter = rewriter.into_stream(match form {
                AnswerForm::Events => RecordFraming::Events,
                AnswerForm::Json if is_streamed => RecordFraming::Json,
                AnswerForm::Text => RecordFraming::Text {
                    is_output: kind == AnswerKind::Transcript && !is_page,
                },
                AnswerForm::Json | AnswerForm::Binary => RecordFraming::Bytes,
            });
            state.begin = rewriter.push_bytes(&state.begin);
            state.rewriter = Some(rewriter);
        }
    }
    let pieces = stream::unfold(state, |mut state| async move {
        let piece = state.next_piece().await?;
        Some((piece, state))
    });
    let mut answer = Response::new(Body::from_stream(pieces));
    *answer.status_mut() =
        axum::http::StatusCode::from_u16(status).unwrap_or(axum::http::StatusCode::BAD_GATEWAY);
    let forwarded = headers
        .into_iter()
        .filter(|(name, _)| is_forwarded_header(name) && redactor.is_header_public(name));
    for (name, value) in forwarded {
        let value = redactor.redact_text(value);
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            answer.headers_mut().append(name, value);
        }
    }
    // A browser must not run what somebody uploaded, or an upstream wrote, as a page of the
    // gateway.
    let headers = answer.headers_mut();
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let sandbox = HeaderValue::from_static("sandbox");
    headers.insert(header::CONTENT_SECURITY_POLICY, sandbox);
    Ok(answer)
}

/// The body of a forwarded response.
struct ForwardedBody {
    /// The client of the upstream.
    client: Arc<ProviderClient>,
    /// The response.
    response: ForwardedResponse,
    /// The log of the exchange.
    ledger: ExchangeLog,
    /// Counts its tokens; `None` if it has none.
    counter: Option<OutputCounter>,
    /// Rewrites what was not read already.
    rewriter: Option<StreamRewriter>,
    /// The bytes of the body that were read already.
    begin: Vec<u8>,
    /// True if nothing follows.
    is_over: bool,
}

impl ForwardedBody {
    /// Returns the next piece; `None` at the end.
    async fn next_piece(&mut self) -> Option<Result<Bytes, ForwardError>> {
        if !self.begin.is_empty() {
            return Some(Ok(Bytes::from(std::mem::take(&mut self.begin))));
        }
        while !self.is_over {
            // An error ends the connection, so that the client does not take it for whole.
            let piece = match (self.read_chunk().await, &mut self.rewriter) {
                (Err(error), _) => return Some(Err(error)),
                (Ok(Some(chunk)), None) => chunk,
                (Ok(Some(chunk)), Some(rewriter)) => rewriter.push_bytes(&chunk),
                (Ok(None), Some(rewriter)) => rewriter.finish(),
                (Ok(None), None) => return None,
            };
            // A piece of a record waits for the rest.
            if !piece.is_empty() {
                return Some(Ok(Bytes::from(piece)));
            }
        }
        None
    }

    /// Reads the body of an error, and redacts secrets and the provider's address: some servers repeat the key that they reject, and
    /// proxies name an unreachable server. The rest of a body longer than [`MAX_ERROR_BODY`] is left out.
    ///
    /// # Errors
    /// The body broke off.
    async fn read_redacted_error(&mut self) -> Result<Vec<u8>, Refusal> {
        let mut body = Vec::new();
        while !self.is_over && body.len() < MAX_ERROR_BODY {
            let read = self.read_chunk().await;
            let chunk = read.map_err(|_| Refusal::Forward(true))?;
            body.extend(chunk.unwrap_or_default());
        }
        self.ledger.mark_done();
        let redactor = self.client.redactor();
        let body = redactor.redact_all(&body).unwrap_or(body);
        // Of a secret at the end, only the beginning may have come.
        let shown = match self.is_over {
            true => None,
            false => redactor.redact_cut_end(&body),
        };
        Ok(shown.unwrap_or(body))
    }

    /// Reads and counts what the upstream sends next; `None` at the end.
    async fn read_chunk(&mut self) -> Result<Option<Vec<u8>>, ForwardError> {
        let read = self.client.next_chunk(&mut self.response).await;
        match &read {
            Ok(Some(chunk)) => {
                if let Some(counter) = &mut self.counter {
                    counter.push_bytes(chunk);
                }
            }
            Ok(None) => {
                self.is_over = true;
                self.ledger.mark_done();
            }
            Err(error) => {
                self.is_over = true;
                self.ledger.set_error(error);
            }
        }
        read
    }
}

impl Drop for ForwardedBody {
    fn drop(&mut self) {
        // Also if the client went away: the upstream has produced what was read.
        let Some(counter) = &mut self.counter else {
            return;
        };
        let usage = counter.usage();
        if usage.input.is_some() || usage.output > Some(0) {
            self.ledger.meter_usage(usage);
        }
        self.ledger.end_request(match self.is_over {
            true => RequestEnd::Complete,
            false => RequestEnd::Abandoned,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_a_form_is_replaced() {
        let form = "--xy\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nname=\"model\"\r\n--xy\r\n\
                    Content-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--xy--\r\n";
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("multipart/form-data; boundary=\"xy\""),
        );
        let named = name_in_form(&headers, form.as_bytes()).unwrap().unwrap();
        assert_eq!(named.model, "whisper");
        let body = String::from_utf8(body_for(&named, form.as_bytes(), "large-v3")).unwrap();
        assert_eq!(body, form.replace("whisper", "large-v3"));
    }

    #[test]
    fn only_paths_of_files_are_forwarded() {
        let form = |method: &Method, path: &str| ForwardedForm::of_request(method, path);
        let file = |is_content| Some(ForwardedForm::File { is_content });
        let list = Some(ForwardedForm::FileList);
        assert_eq!(form(&Method::GET, "/v1/files"), list);
        assert_eq!(form(&Method::POST, "/v1/files"), Some(ForwardedForm::Form));
        assert_eq!(form(&Method::GET, "/v1/files/file-a_1"), file(false));
        assert_eq!(form(&Method::GET, "/v1/files/file-a/content"), file(true));
        for path in [
            "/v1/files/",
            "/v1/files/..",
            "/v1/files/a/b",
            "/v1/files/a%2fb",
            "/v1/files/content/../x",
            "/v1/files//content",
            "/v1/filesystem",
        ] {
            assert_eq!(form(&Method::GET, path), None, "{path}");
        }
        let deleted = |path: &str| form(&Method::DELETE, path).unwrap();
        assert!(deleted("/v1/files/a").check_method(&Method::DELETE).is_ok());
        for path in ["/v1/files", "/v1/files/a/content", "/v1/embeddings"] {
            assert!(
                deleted(path).check_method(&Method::DELETE).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn the_model_leaves_the_query() {
        for (query, sent) in [
            ("", "/v1/files"),
            ("model=a%2Fb", "/v1/files"),
            (
                "limit=2&model=x&after=file-1&mode%6c=y&model",
                "/v1/files?limit=2&after=file-1",
            ),
        ] {
            assert_eq!(with_query("/v1/files", query), sent);
        }
        let none = RouteTable::default();
        let named = name_of_files("limit=2&model=a%2Fb", &none).unwrap();
        assert_eq!(named.model, "a/b");
        assert!(name_of_files("limit=2", &none).is_err());
    }
}
