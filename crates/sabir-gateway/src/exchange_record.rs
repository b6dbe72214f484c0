//! Describes whole exchanges for an audit: what was asked, answered and repaired.
//!
//! Nothing is collected unless the gateway has a recorder.

use sabir_call::redact::{redact_json, redact_text};
use sabir_call::{ArgumentEncoding, DraftArgument, DraftResponse, Event, EventSink};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gateway_event::{ExchangeSummary, GatewayEvent};

/// The most characters of text in a record, and of each call's arguments.
const MAX_RECORDED_CHARS: usize = 64 << 10;

/// The most repairs and faults of one exchange that are named.
const MAX_NAMED: usize = 100;

/// A call in a recorded answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The tool.
    pub name: String,
    /// The arguments.
    pub arguments: Value,
}

/// An exchange as it is recorded. It contains texts of clients and models, with whatever secrets they
/// hold: a recorder redacts them. Only texts that are cut are redacted already.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeRecord {
    /// The time of the end, in seconds since 1970.
    pub time: u64,
    /// The id of the exchange, as in the request log.
    pub id: String,
    /// The client's wire.
    pub front: Option<String>,
    /// The model's name as given by the client.
    pub model: String,
    /// The upstream that answered.
    pub upstream: Option<String>,
    /// The name of the client's key.
    pub key: Option<String>,
    /// The HTTP status.
    pub status: u16,
    /// True if the answer ended properly.
    pub whole: bool,
    /// The time that it took, in milliseconds.
    pub took_ms: u64,
    /// The tokens of the request, if the provider reported them.
    pub input_tokens: Option<u64>,
    /// The tokens of the answer, if the provider reported them.
    pub output_tokens: Option<u64>,
    /// The tokens of the request that count: those that were reported, or an estimate.
    pub counted_input_tokens: Option<u64>,
    /// The tokens of the answer that count: those that were reported, or an estimate.
    pub counted_output_tokens: Option<u64>,
    /// The cost in billionths of a dollar.
    pub nano_usd: Option<u64>,
    /// The error.
    pub error: Option<String>,
    /// The rules of the repairs, in order.
    #[serde(alias = "mended")]
    pub repairs: Vec<String>,
    /// The messages of the faults, in order.
    pub faults: Vec<String>,
    /// The number of times that the model was asked again.
    pub retries: u32,
    /// The client's request.
    pub request: Value,
    /// The text of the answer.
    pub text: String,
    /// The calls of the answer.
    pub calls: Vec<RecordedCall>,
}

/// Keeps the exchanges of a gateway. It is called when an exchange ends, so it must be quick.
pub trait ExchangeRecorder: Send + Sync {
    /// Keeps an exchange.
    fn record_exchange(&self, record: ExchangeRecord);
}

/// The record of a running exchange, filled while it runs.
#[derive(Default)]
pub(crate) struct RecordDraft {
    /// The request.
    request: Value,
    /// The answer as the client gets it.
    answer: DraftResponse,
    /// The rules of the repairs.
    repairs: Vec<String>,
    /// The messages of the faults.
    faults: Vec<String>,
    /// The number of times that the model was asked again.
    retries: u32,
}

impl RecordDraft {
    /// Begins the record of a request.
    pub(crate) fn new(request: Value) -> Self {
        Self {
            request,
            ..Self::default()
        }
    }

    /// Takes an event of the answer.
    pub(crate) fn push_event(&mut self, event: &Event<'_>) {
        self.answer.push_event(*event);
    }

    /// Takes an event of the gateway.
    pub(crate) fn note_event(&mut self, note: &GatewayEvent<'_>) {
        match note {
            GatewayEvent::Repaired { rule, .. } if self.repairs.len() < MAX_NAMED => {
                self.repairs.push((*rule).to_owned());
            }
            GatewayEvent::FaultFound(fault) if self.faults.len() < MAX_NAMED => {
                self.faults.push(fault.message.clone());
            }
            GatewayEvent::Retried { .. } => self.retries += 1,
            _ => {}
        }
    }

    /// Makes the record of an exchange that is over.
    pub(crate) fn finish(self, id: &str, time: u64, ended: &ExchangeSummary<'_>) -> ExchangeRecord {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        ExchangeRecord {
            time,
            id: id.to_owned(),
            front: ended.front.map(|front| front.name().to_owned()),
            model: ended.model.to_owned(),
            upstream: owned(ended.upstream),
            key: owned(ended.key),
            status: ended.status,
            whole: ended.whole,
            took_ms: u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
            input_tokens: ended.usage.input,
            output_tokens: ended.usage.output,
            counted_input_tokens: ended.counted.input,
            counted_output_tokens: ended.counted.output,
            nano_usd: ended.nano_usd,
            error: owned(ended.error),
            repairs: self.repairs,
            faults: self.faults,
            retries: self.retries,
            request: self.request,
            text: cut(&redact_text(&self.answer.text())),
            calls: self
                .answer
                .calls()
                .map(|call| RecordedCall {
                    name: call.name.clone(),
                    arguments: recorded_arguments(&call.arguments),
                })
                .collect(),
        }
    }
}

/// Cuts a text without secrets: half of one would no longer be found by its form.
fn cut(redacted: &str) -> String {
    redacted.chars().take(MAX_RECORDED_CHARS).collect()
}

/// Returns the arguments of a call, as far as they were complete.
fn recorded_arguments(arguments: &[DraftArgument]) -> Value {
    let value = |argument: &DraftArgument| match argument.form {
        ArgumentEncoding::Json => {
            let text = cut(&redact_json(&argument.text));
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        _ => Value::String(cut(&redact_text(&argument.text))),
    };
    match arguments {
        // Native calls have their whole object in one nameless argument.
        [only] if only.name.is_empty() => value(only),
        _ => arguments
            .iter()
            .map(|argument| (argument.name.clone(), value(argument)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_across_the_cut_is_not_recorded_in_part() {
        let secret = ["sk-proj-", "abcdefghijklmnopqrstuvwxyz0123456789"].concat();
        let long = format!("{} {secret} rest", "x".repeat(MAX_RECORDED_CHARS - 15));
        let argument = |form, text: &str| DraftArgument {
            name: String::new(),
            form,
            text: text.to_owned(),
            partial: false,
            span: sabir_call::Span::default(),
        };
        let json = serde_json::json!({ "a": long }).to_string();
        for argument in [
            argument(ArgumentEncoding::String, &long),
            argument(ArgumentEncoding::Json, &json),
        ] {
            let recorded = recorded_arguments(&[argument]).to_string();
            assert!(!recorded.contains("sk-proj"));
        }
        let mut draft = RecordDraft::default();
        draft.push_event(&Event::Text { text: &long });
        let ended = ExchangeSummary {
            front: None,
            key: None,
            upstream: None,
            first_output: None,
            asks_model: true,
            nano_usd: None,
            refusal: None,
            model: "m",
            status: 200,
            whole: true,
            took: std::time::Duration::ZERO,
            first: None,
            bytes: 0,
            calls: 0,
            usage: sabir_call::Usage::default(),
            counted: sabir_call::Usage::default(),
            error: None,
            trace_parent: None,
        };
        let record = draft.finish("id", 0, &ended);
        assert_eq!(record.text.chars().count(), MAX_RECORDED_CHARS);
        assert!(!record.text.contains("sk-proj"));
    }
}
