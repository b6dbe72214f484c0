//! Defines the format of cassettes: recordings of requests and responses that can be replayed.
//!
//! A cassette is a file of JSON lines, each an object with a `kind`. The first line has the kind
//! `cassette`; all others are appended, so that a crash leaves a file that can be read up to its
//! last whole line. `docs/recording.md` documents the fields. Times (`at`) are microseconds since
//! the recording began.

use std::borrow::Cow;
use std::time::Duration;

use sabir_wire::WireOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::Deadlines;
use crate::redact::{self, ProviderRedactor, REDACTED};
use crate::retry::RetryPolicy;
use crate::transport::{HttpRequest, TransportErrorKind};

/// The version of the format that is written, and the highest that is read.
pub const CASSETTE_VERSION: u32 = 1;

/// A parsed recording.
#[derive(Debug, Clone)]
pub struct Cassette {
    /// The data about the task that the caller passed to the recorder, in addition to the requests.
    pub task: Value,
    /// The output of commands, in order: the id of the call and a piece of its output.
    pub outputs: Vec<(String, String)>,
    /// The results of calls whose commands printed something, in order.
    pub results: Vec<String>,
    /// The settings under which a replay makes the same requests.
    pub(crate) provider: RecordedProvider,
    /// The requests in the order in which they were sent.
    pub(crate) exchanges: Vec<CassetteExchange>,
}

/// An error in reading a cassette.
///
/// Each message continues a sentence that names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The first line is not the head of a cassette.
    #[error("it is not a recording: its first line is not one of kind `cassette`")]
    NotACassette,
    /// The cassette was written by a later version of Sabir.
    #[error(
        "it has version {0} of the format, and this Sabir reads versions up to {CASSETTE_VERSION}"
    )]
    Newer(u32),
    /// A line in the middle cannot be read.
    #[error("line {line} cannot be read: {message}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// The problem with it.
        message: String,
    },
}

/// The settings of the provider at the time of the recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedProvider {
    /// The provider's name, which is in messages.
    pub(crate) name: String,
    /// The wire's name, as text: an unknown one is an error of the replay, not of reading.
    pub(crate) wire: String,
    /// The address without user, password and query.
    pub(crate) base_url: String,
    /// The options of the wire, which change the bodies of requests.
    pub(crate) form: WireOptions,
    /// The output limit from the catalogue, in tokens.
    pub(crate) output: Option<u64>,
    /// True if the catalogue said that the model reads no images.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) blind: bool,
    /// The end of the prompt that the answers continued; empty if there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) prefill: String,
    /// True if a last call without its closing markup was accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) closes_last_call: bool,
    /// The deadlines, in force on the replay's own clock.
    pub(crate) deadlines: Deadlines,
    /// The retry policy: failed attempts are part of the recording and are repeated.
    pub(crate) retries: RetryPolicy,
}

/// One request with its response.
#[derive(Debug, Clone)]
pub(crate) struct CassetteExchange {
    /// The time at which the request was sent.
    pub(crate) at: Duration,
    /// The request, without its secrets.
    pub(crate) request: RecordedRequest,
    /// The head of the response; `None` if the connection failed before it.
    pub(crate) response: Option<ResponseHead>,
    /// The pieces of the body as the network delivered them, with their times.
    pub(crate) chunks: Vec<(Duration, Vec<u8>)>,
    /// The end of the response; `None` if the recording breaks off.
    pub(crate) end: Option<(Duration, ExchangeEnd, String)>,
}

/// The head of a response.
#[derive(Debug, Clone)]
pub(crate) struct ResponseHead {
    /// The time at which the head arrived.
    pub(crate) at: Duration,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The headers, with `[redacted]` for values that are not on the allowlist.
    pub(crate) headers: Vec<(String, String)>,
}

/// A request without secrets, in the form that is recorded and compared.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// The path and query. The host is left out, so that a replay may name another.
    pub(crate) path: String,
    /// The headers, with `[redacted]` for secrets.
    pub(crate) headers: Vec<(String, String)>,
    /// The body; a string if it is not JSON.
    pub(crate) body: Value,
}

/// One line of a cassette.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum CassetteLine {
    /// The first line: `{"kind": "cassette", "version": 1, "by": …, "provider": {…}, "task": …}`.
    Cassette {
        version: u32,
        by: String,
        provider: Box<RecordedProvider>,
        task: Value,
    },
    /// A request that is about to be sent. `number` counts from 1.
    Request {
        number: usize,
        at: u64,
        method: String,
        path: String,
        headers: Vec<(String, String)>,
        body: Value,
    },
    /// The head of the response to request `number`.
    Response {
        number: usize,
        at: u64,
        status: u16,
        headers: Vec<(String, String)>,
    },
    /// A piece of the body, with a member `text` or `hex`.
    Chunk {
        number: usize,
        at: u64,
        #[serde(flatten)]
        bytes: RecordedBytes,
    },
    /// The end of an exchange. `cause` explains a lost connection.
    End {
        number: usize,
        at: u64,
        how: ExchangeEnd,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
    },
    /// A piece of the output of a command.
    Output {
        /// The id of the call that runs the command.
        call: String,
        /// The piece, without secrets.
        text: String,
    },
    /// The result of a call that has printed something.
    Result {
        /// The call's id.
        call: String,
        /// The text of the result, without secrets.
        content: String,
    },
}

/// The end of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExchangeEnd {
    /// The whole body was received.
    Complete,
    /// The caller stopped reading.
    Dropped,
    /// The connection was lost.
    #[serde(untagged)]
    Lost(TransportErrorKind),
}

/// Bytes as text if they are UTF-8, else as hexadecimal digits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedBytes {
    /// Bytes that are valid UTF-8: nearly all of them, so that people can read the file.
    Text(String),
    /// Other bytes, such as binary frames or a piece that ends inside a character.
    Hex(String),
}

/// An error in the content of a line.
#[derive(Debug, thiserror::Error)]
enum LineError {
    /// Two recordings were written to one file.
    #[error("a cassette begins in the middle of another")]
    SecondHead,
    /// A line of the file is missing, or was moved.
    #[error("request {0} is out of order")]
    OutOfOrder(usize),
    /// The member `hex` has other characters, or an odd number of them.
    #[error("these are not hexadecimal digits")]
    NotHex,
    /// A line belongs to a request that is not in the file.
    #[error("there is no request {0}")]
    NoRequest(usize),
}

impl Cassette {
    /// Parses a file's bytes. An incomplete last line, from a crash, is ignored.
    ///
    /// # Errors
    /// [`CassetteError`] if it is not a cassette, has a later version, or is damaged before its
    /// last line.
    pub fn parse(bytes: &[u8]) -> Result<Self, CassetteError> {
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        let first = lines.next().map(|(_, line)| line).unwrap_or_default();
        let version = serde_json::from_slice::<Value>(first)
            .ok()
            .filter(|value| value["kind"] == "cassette");
        let version = version
            .as_ref()
            .and_then(|value| value["version"].as_u64())
            .ok_or(CassetteError::NotACassette)?;
        // Checked before the rest is parsed, because a later version may have other members.
        if version > u64::from(CASSETTE_VERSION) {
            return Err(CassetteError::Newer(
                u32::try_from(version).unwrap_or(u32::MAX),
            ));
        }
        let broken = |line: usize, message: String| CassetteError::Line {
            line: line + 1,
            message,
        };
        let CassetteLine::Cassette { provider, task, .. } =
            serde_json::from_slice(first).map_err(|error| broken(0, error.to_string()))?
        else {
            return Err(CassetteError::NotACassette);
        };
        let mut cassette = Self {
            task,
            outputs: Vec::new(),
            results: Vec::new(),
            provider: *provider,
            exchanges: Vec::new(),
        };
        for (at, line) in lines {
            match serde_json::from_slice(line) {
                Ok(line) => cassette
                    .apply_line(line)
                    .map_err(|error| broken(at, error.to_string()))?,
                // Lines are written whole, so a line without its end was torn by a crash.
                Err(_) if !line.ends_with(b"\n") => break,
                Err(error) => return Err(broken(at, error.to_string())),
            }
        }
        Ok(cassette)
    }

    /// Returns the number of recorded requests.
    pub fn request_count(&self) -> usize {
        self.exchanges.len()
    }

    /// Adds a line to the recording.
    fn apply_line(&mut self, line: CassetteLine) -> Result<(), LineError> {
        let time = Duration::from_micros;
        match line {
            CassetteLine::Cassette { .. } => return Err(LineError::SecondHead),
            CassetteLine::Output { call, text } => self.outputs.push((call, text)),
            CassetteLine::Result { content, .. } => self.results.push(content),
            CassetteLine::Request {
                number,
                at,
                path,
                headers,
                body,
                ..
            } => {
                // Numbers have no gaps, so this finds a lost line.
                if number != self.exchanges.len() + 1 {
                    return Err(LineError::OutOfOrder(number));
                }
                let request = RecordedRequest {
                    path,
                    headers,
                    body,
                };
                self.exchanges.push(CassetteExchange {
                    at: time(at),
                    request,
                    response: None,
                    chunks: Vec::new(),
                    end: None,
                });
            }
            CassetteLine::Response {
                number,
                at,
                status,
                headers,
            } => {
                self.exchange_mut(number)?.response = Some(ResponseHead {
                    at: time(at),
                    status,
                    headers,
                });
            }
            CassetteLine::Chunk { number, at, bytes } => {
                let bytes = bytes.decode().ok_or(LineError::NotHex)?;
                self.exchange_mut(number)?.chunks.push((time(at), bytes));
            }
            CassetteLine::End {
                number,
                at,
                how,
                cause,
            } => self.exchange_mut(number)?.end = Some((time(at), how, cause)),
        }
        Ok(())
    }

    /// Returns the exchange of a request; `number` counts from 1.
    fn exchange_mut(&mut self, number: usize) -> Result<&mut CassetteExchange, LineError> {
        let exchange = number
            .checked_sub(1)
            .and_then(|at| self.exchanges.get_mut(at));
        exchange.ok_or(LineError::NoRequest(number))
    }
}

impl RecordedRequest {
    /// Makes the recorded form of a request, without its secrets.
    pub(crate) fn new(post: &HttpRequest, redactor: &ProviderRedactor) -> Self {
        let headers = post.headers.iter().map(|(name, value)| {
            // Sensitive headers carry keys and signatures, and a replay needs neither.
            let shown = value.to_str().ok().filter(|_| !value.is_sensitive());
            let shown = shown.map_or(REDACTED.to_owned(), |value| {
                redactor.redact_text(&redact::redact_header(name.as_str(), value))
            });
            (name.as_str().to_owned(), shown)
        });
        let text = redactor.redact_json(&String::from_utf8_lossy(&post.body));
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self {
            path: redactor.redact_text(&redact::redact_path(&post.url)),
            headers: headers.collect(),
            body,
        }
    }

    /// Returns the request as one JSON value, so that a difference has a path.
    ///
    /// Redacted headers are left out, since a replay needs no key. Known secret formats are
    /// redacted once more, because earlier versions recorded them.
    pub(crate) fn comparable_value(&self) -> Value {
        let headers = self.headers.iter().filter(|(_, value)| value != REDACTED);
        let headers: Map<_, _> = headers
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let value = serde_json::json!({"path": self.path, "headers": headers, "body": self.body});
        match sabir_call::redact::redact_json(&value.to_string()) {
            Cow::Owned(redacted) => serde_json::from_str(&redacted).unwrap_or(value),
            Cow::Borrowed(_) => value,
        }
    }
}

impl RecordedBytes {
    /// Encodes bytes, as text if possible.
    pub(crate) fn encode(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// Decodes the bytes; `None` if the digits are malformed.
    fn decode(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Hex(digits) => {
                let pairs = digits
                    .as_bytes()
                    .chunks(2)
                    .map(|pair| std::str::from_utf8(pair).ok());
                pairs
                    .map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok())
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = concat!(
        r#"{"kind":"cassette","version":1,"by":"sabir 0","task":{},"provider":{"name":"p","wire":"anthropic","#,
        r#""base_url":"http://h","form":{},"output":null,"deadlines":{},"retries":{}}}"#
    );
    const REQUEST: &str =
        r#"{"kind":"request","number":1,"at":5,"method":"POST","path":"/","headers":[],"body":{}}"#;

    #[test]
    fn bytes_are_read_back() {
        for bytes in [&b"a\0\r\n"[..], b"\xff\x00", "ü".as_bytes(), b""] {
            let line = CassetteLine::Chunk {
                number: 1,
                at: 1,
                bytes: RecordedBytes::encode(bytes),
            };
            let text = serde_json::to_string(&line).unwrap();
            let CassetteLine::Chunk { bytes: again, .. } = serde_json::from_str(&text).unwrap()
            else {
                panic!("{text}")
            };
            assert_eq!(again.decode().unwrap(), bytes, "{text}");
        }
        assert_eq!(RecordedBytes::Hex("0".into()).decode(), None);
    }

    #[test]
    fn only_a_torn_last_line_is_left_out() {
        let whole = format!(
            "{FIRST}\n{REQUEST}\n{{\"kind\":\"end\",\"number\":1,\"at\":9,\"how\":\"silent\"}}\n"
        );
        let cassette = Cassette::parse(whole.as_bytes()).unwrap();
        assert_eq!(
            cassette.exchanges[0].end.as_ref().unwrap().1,
            ExchangeEnd::Lost(TransportErrorKind::Silent)
        );
        for cut in FIRST.len() + 1..whole.len() {
            let cassette = Cassette::parse(&whole.as_bytes()[..cut]).unwrap();
            assert!(cassette.request_count() <= 1, "cut at {cut}");
        }
        let check = |text: &str, words: &str| {
            let error = Cassette::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        check("", "not a recording");
        check("{\"kind\":\"end\"}\n", "not a recording");
        check(
            &FIRST.replace("\"version\":1", "\"version\":9"),
            "version 9",
        );
        check(&format!("{FIRST}\nnonsense\n{REQUEST}\n"), "line 2");
        check(&format!("{FIRST}\n{FIRST}\n"), "line 2");
        check(
            &format!("{FIRST}\n{REQUEST}\n{REQUEST}\n"),
            "line 3 cannot be read: request 1 is out of order",
        );
    }
}
