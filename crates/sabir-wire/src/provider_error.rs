//! Errors that a provider reports, instead of a response or in the middle of a stream.
//!
//! Providers agree neither on the shape nor on the wording. One decoder reads all of them:
//! `{"error": {…}}`, `{"error": "…"}`, `{"type": "error", …}`, `{"message": …}`, `{"detail": …}`.

use sabir_call::{ModelError, ModelErrorKind};
use serde_json::{Map, Value};

use crate::client_request::RequestError;
use crate::surrogates::parse_lossy;

/// The maximum number of characters of a message that are shown.
pub const MAX_MESSAGE_CHARS: usize = 600;

/// An error that a provider reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// The kind, derived from code, status and message.
    ///
    /// Retries and compaction depend on it alone.
    pub kind: ModelErrorKind,
    /// The provider's code or type, such as `overloaded_error`; may be empty.
    pub code: String,
    /// The message. One that a provider [reported](Self::reported) is whole.
    pub message: String,
    /// The HTTP status of the response, or the one to answer with.
    ///
    /// It is 200 for an error in the middle of a stream, if a caller sets it at all.
    pub status: Option<u16>,
    /// The path in the request that the error is about.
    ///
    /// Clients of OpenAI see it as `param`.
    pub request_path: Option<String>,
}

impl ProviderError {
    /// Creates an error from a code and a message.
    ///
    /// Messages of more than [`MAX_MESSAGE_CHARS`] characters are cut: they may quote the whole
    /// request.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Self::reported(code, message);
        Self {
            message: error.message.chars().take(MAX_MESSAGE_CHARS).collect(),
            ..error
        }
    }

    /// Creates an error from a provider's own code and message, which stays whole.
    ///
    /// Remove secrets from it before it is cut for display: a part of a secret would not be found.
    pub fn reported(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        let message = message.into();
        let kind = classify_error(None, &code, &message);
        Self {
            kind,
            code,
            message,
            status: None,
            request_path: None,
        }
    }

    /// Adds the HTTP status, which outweighs everything but a context overflow and an unknown
    /// model.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.kind = classify_error(Some(status), &self.code, &self.message);
        self.status = Some(status);
        self
    }

    /// Returns the HTTP status: its own, or the one that its code and kind suggest.
    /// [`Wire::error_status`](crate::Wire::error_status) adapts it to what a wire's clients expect.
    ///
    /// The order is: a status from 400 to 599, a code with a known word, the kind.
    pub fn http_status(&self) -> u16 {
        // An error inside a stream came with status 200, which says nothing.
        let known = self.status.filter(|status| (400..600).contains(status));
        let by_code = || {
            STATUS_BY_CODE
                .iter()
                .find(|(word, _)| self.code.contains(word))
                .map(|(_, status)| *status)
        };
        known.or_else(by_code).unwrap_or(match self.kind {
            ModelErrorKind::Rejected | ModelErrorKind::TooLong => 400,
            ModelErrorKind::Key => 401,
            ModelErrorKind::UnknownModel => 404,
            ModelErrorKind::RateLimited => 429,
            ModelErrorKind::Unavailable => 503,
            ModelErrorKind::Unreachable | ModelErrorKind::Broken | ModelErrorKind::Format => 502,
            _ => 500,
        })
    }

    /// Returns true if the provider is overloaded, which is not a defect.
    pub fn is_overload(&self) -> bool {
        self.status == Some(529) || self.code.contains("overloaded")
    }

    /// Decodes the body of an error response or of an error event. Returns `None` if it reports no
    /// readable error.
    ///
    /// HTML and plain text give `None`. The caller then has only the status, and the beginning of
    /// the body for a message.
    pub fn from_body(body: &[u8]) -> Option<Self> {
        let value: Value = parse_lossy(body).ok()?;
        Self::from_value(&value)
    }

    /// Decodes a JSON value as [`ProviderError::from_body`] does.
    pub fn from_value(value: &Value) -> Option<Self> {
        let outer = match value {
            // Google's OpenAI-compatible endpoint wraps the object in a list.
            Value::Array(items) => items.first()?.as_object()?,
            Value::Object(outer) => outer,
            _ => return None,
        };
        let inner = match outer.get("error") {
            Some(Value::Object(inner)) => inner,
            // Ollama and some proxies send the message alone.
            Some(Value::String(words)) => {
                return Some(Self::reported(error_code(outer), words.as_str()));
            }
            _ => outer,
        };
        let message = [
            "message",
            "Message",
            "detail",
            "error_description",
            "error_message",
        ]
        .iter()
        .find_map(|key| text_member(inner, key));
        // OpenRouter wraps the message of the provider behind it, and its own message says nothing.
        let raw = inner
            .get("metadata")
            .and_then(|metadata| metadata.get("raw")?.as_str());
        let message =
            message.map(|message| raw.map_or(message.clone(), |raw| format!("{message}: {raw}")));
        let message = message.map(|message| with_context_size(message, inner));
        let code = error_code(inner);
        // A `type` or `status` member also occurs in ordinary responses, so it means an error only
        // inside of `error`.
        if message.is_none() && (code.is_empty() || std::ptr::eq(inner, outer)) {
            return None;
        }
        Some(Self::reported(code, message.unwrap_or_default()))
    }
}

impl From<&RequestError> for ProviderError {
    fn from(error: &RequestError) -> Self {
        let place = (error.path != "body").then(|| error.path.clone());
        Self {
            request_path: place,
            ..Self::new("invalid_request_error", error.to_string()).with_status(400)
        }
    }
}

impl From<&ModelError> for ProviderError {
    fn from(error: &ModelError) -> Self {
        let code = match error.kind {
            ModelErrorKind::Key => "authentication_error",
            ModelErrorKind::UnknownModel => "model_not_found",
            ModelErrorKind::Rejected => "invalid_request_error",
            ModelErrorKind::TooLong => "context_length_exceeded",
            ModelErrorKind::RateLimited => "rate_limit_error",
            ModelErrorKind::Unavailable => "overloaded_error",
            _ => "api_error",
        };
        // The kind is known; the message must not be searched for another one.
        Self {
            kind: error.kind,
            ..Self::new(code, error.message.as_str())
        }
    }
}

/// Substrings of codes that determine the status better than the kind does.
///
/// The first row that fits decides.
const STATUS_BY_CODE: [(&str, u16); 6] = [
    ("too_large", 413),
    ("permission", 403),
    ("accessdenied", 403),
    ("insufficient_quota", 429),
    ("timeout", 504),
    ("internal", 500),
];

/// Returns a member as text. A message that is not a string is shown as JSON: FastAPI's `detail` may
/// be a list of problems.
fn text_member(object: &Map<String, Value>, key: &str) -> Option<String> {
    match object.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// Adds the numbers that llama.cpp's server has beside its message about a history that is too long.
fn with_context_size(message: String, object: &Map<String, Value>) -> String {
    let count = |key: &str| object.get(key).and_then(Value::as_u64);
    match (count("n_prompt_tokens"), count("n_ctx")) {
        (Some(used), Some(maximum)) => format!("{message} ({used} tokens > {maximum})"),
        _ => message,
    }
}

/// Returns the most specific of code, type and status.
fn error_code(object: &Map<String, Value>) -> String {
    let mut found = ["code", "type", "status", "__type"]
        .iter()
        .filter_map(|key| match object.get(*key)? {
            // Amazon prefixes the name with its namespace and may append a URL:
            // `com.amazon.x#Name:http://…`.
            Value::String(text) if *key == "__type" => {
                let name = text
                    .split(':')
                    .next()
                    .and_then(|name| name.rsplit('#').next());
                name.filter(|name| !name.is_empty()).map(str::to_owned)
            }
            Value::String(text) if !text.is_empty() && text != "error" => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        });
    found.next().unwrap_or_default()
}

/// Classifies an error by the HTTP status, the provider's code and its message.
///
/// The message counts only for an overflow and an unknown model, which providers report with any
/// status. Otherwise a status outweighs every code but `insufficient_quota`. Without a status and a
/// known code the error is `Unavailable`, which is retried.
pub fn classify_error(status: Option<u16>, code: &str, message: &str) -> ModelErrorKind {
    // Providers differ in case: `RESOURCE_EXHAUSTED`, `ThrottlingException`, `rate_limit_error`.
    let code = code.to_ascii_lowercase();
    let message = message.to_ascii_lowercase();
    // This is checked first: an overflow comes with any status, and the agent reacts by compaction.
    if is_overflow(&code, &message) {
        return ModelErrorKind::TooLong;
    }
    if code.contains("model_not_found")
        || (message.contains("model") && message.contains("does not exist"))
    {
        return ModelErrorKind::UnknownModel;
    }
    let by_code = kind_from_code(&code);
    if code == "insufficient_quota" {
        // It comes with status 429, but waiting does not add credit to an account.
        return ModelErrorKind::Rejected;
    }
    // Some providers put the HTTP status into the code.
    match status.or_else(|| code.parse().ok()) {
        Some(status) => {
            kind_from_status(status).unwrap_or_else(|| by_code.unwrap_or(ModelErrorKind::Rejected))
        }
        None => by_code.unwrap_or(ModelErrorKind::Unavailable),
    }
}

/// Returns true if the error says that the history is too long. Messages about rate limits mention
/// tokens as well and must not match; `tests/wire/overflow.rs` has cases of both.
fn is_overflow(code: &str, message: &str) -> bool {
    // Codes of OpenAI, Anthropic and llama.cpp, in this order.
    const CODES: [&str; 3] = [
        "context_length_exceeded",
        "model_context_window_exceeded",
        "exceed_context_size_error",
    ];
    // Only whole phrases: one word such as `tokens` also occurs in messages about rate limits.
    const PHRASES: [&str; 15] = [
        "prompt is too long",
        "maximum context length",
        "context window",
        "context length",
        "context size",
        "context limit",
        "too many input tokens",
        "exceeds the maximum number of tokens",
        "maximum prompt length",
        "maximum model length",
        "input is too long",
        "input length exceeds",
        "reduce the length of the messages",
        "`inputs` tokens + `max_new_tokens` must be",
        "exceeded model token limit",
    ];
    CODES.contains(&code) || PHRASES.iter().any(|phrase| message.contains(phrase))
}

/// Classifies an HTTP status; `None` for one that reports no error.
fn kind_from_status(status: u16) -> Option<ModelErrorKind> {
    Some(match status {
        // Both mean that another key may help, and a retry will not.
        401 | 403 => ModelErrorKind::Key,
        // Providers answer 404 for a model that they do not have.
        404 => ModelErrorKind::UnknownModel,
        429 => ModelErrorKind::RateLimited,
        // The official SDKs of OpenAI and Anthropic retry 408 and 409 as well.
        408 | 409 | 500..=599 => ModelErrorKind::Unavailable,
        400..=499 => ModelErrorKind::Rejected,
        _ => return None,
    })
}

/// Classifies a lower-case code. The first row whose word the code contains decides, so the order
/// matters.
fn kind_from_code(code: &str) -> Option<ModelErrorKind> {
    const TABLE: [(&str, ModelErrorKind); 25] = [
        // Words that must win over a shorter word of a later row come first.
        ("overloaded", ModelErrorKind::Unavailable),
        ("api_error", ModelErrorKind::Unavailable),
        ("server_error", ModelErrorKind::Unavailable),
        ("internal", ModelErrorKind::Unavailable),
        ("unavailable", ModelErrorKind::Unavailable),
        ("timeout", ModelErrorKind::Unavailable),
        ("rate_limit", ModelErrorKind::RateLimited),
        ("throttl", ModelErrorKind::RateLimited),
        ("resource_exhausted", ModelErrorKind::RateLimited),
        // Amazon's exception names.
        ("notready", ModelErrorKind::Unavailable),
        ("quotaexceeded", ModelErrorKind::Rejected),
        ("accessdenied", ModelErrorKind::Key),
        ("resourcenotfound", ModelErrorKind::UnknownModel),
        ("validation", ModelErrorKind::Rejected),
        ("unknownoperation", ModelErrorKind::Rejected),
        ("insufficient_quota", ModelErrorKind::Rejected),
        ("billing", ModelErrorKind::Rejected),
        ("authentication", ModelErrorKind::Key),
        ("invalid_api_key", ModelErrorKind::Key),
        ("permission", ModelErrorKind::Key),
        ("not_found", ModelErrorKind::UnknownModel),
        ("request_too_large", ModelErrorKind::Rejected),
        ("invalid", ModelErrorKind::Rejected),
        ("tool_use_failed", ModelErrorKind::Rejected),
        ("content_filter", ModelErrorKind::Rejected),
    ];
    TABLE
        .iter()
        .find(|(word, _)| code.contains(word))
        .map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, status: Option<u16>, kind: ModelErrorKind, message: &str) {
        let mut error =
            ProviderError::from_body(body.as_bytes()).unwrap_or_else(|| panic!("unread: {body}"));
        if let Some(status) = status {
            error = error.with_status(status);
        }
        assert_eq!(
            (error.kind, error.message.as_str()),
            (kind, message),
            "{body}"
        );
    }

    #[test]
    fn shapes_and_kinds() {
        use ModelErrorKind as K;
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            None,
            K::Unavailable,
            "Overloaded",
        );
        check(
            r#"{"error":{"message":"bad key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            Some(401),
            K::Key,
            "bad key",
        );
        check(
            r#"{"error":{"code":400,"message":"Token limit reached"}}"#,
            None,
            K::Rejected,
            "Token limit reached",
        );
        check(
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
            Some(400),
            K::TooLong,
            "This model's maximum context length is 8192 tokens",
        );
        check(
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8"}}"#,
            Some(400),
            K::TooLong,
            "prompt is too long: 9 tokens > 8",
        );
        check(
            r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
            None,
            K::RateLimited,
            "slow",
        );
        check(
            r#"{"error":"model 'x' not found"}"#,
            Some(404),
            K::UnknownModel,
            "model 'x' not found",
        );
        check(
            r#"{"detail":"Not authenticated"}"#,
            Some(401),
            K::Key,
            "Not authenticated",
        );
        check(
            r#"{"__type":"com.amazon.coral.service#AccessDeniedException:http://x","Message":"no"}"#,
            None,
            K::Key,
            "no",
        );
        check(
            r#"{"__type":"ThrottlingException","message":"slow"}"#,
            None,
            K::RateLimited,
            "slow",
        );
        check(
            r#"{"object":"error","message":"no","type":"BadRequestError","code":400}"#,
            None,
            K::Rejected,
            "no",
        );
    }

    #[test]
    fn bodies_without_an_error_are_none() {
        for body in [
            "",
            "<html>",
            "{}",
            "[]",
            "1",
            r#"{"choices":[]}"#,
            r#"{"error":null}"#,
        ] {
            assert_eq!(ProviderError::from_body(body.as_bytes()), None, "{body}");
        }
    }
}
