//! Turns exchanges of the gateway into spans.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_gateway::{ExchangeSummary, GatewayEvent, GatewayObserver};
use serde_json::{Value, json};

use crate::config::Config;
use crate::environment::Environment;

use super::send::SpanSender;
use super::spans::{TraceIds, TraceSpan, usage_attributes};
use super::{open_sender, span_id, unix_nanoseconds};

/// Sends a span for each exchange of a gateway in which a model was asked.
pub struct ExchangeTracer {
    spans: Mutex<SpanSender>,
    environment: Arc<Environment>,
}

/// The span of the client's request, as its `traceparent` header names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TraceParent {
    trace: u128,
    span: u64,
    /// False if the client's tracer decided that this trace is not exported.
    is_sampled: bool,
}

impl std::fmt::Debug for ExchangeTracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeTracer").finish_non_exhaustive()
    }
}

impl ExchangeTracer {
    /// Creates a tracer, if the configuration names a collector.
    pub fn from_config(config: &Config) -> Option<Self> {
        Some(Self {
            spans: Mutex::new(open_sender(config)?),
            environment: Arc::clone(&config.environment),
        })
    }
}

impl GatewayObserver for ExchangeTracer {
    fn on_event(&self, id: &str, note: GatewayEvent<'_>) {
        let GatewayEvent::Ended(ended) = note else {
            return;
        };
        // Lists of models, metrics and refused strangers are not exchanges with a model.
        if !ended.asks_model {
            return;
        }
        let parent = ended.trace_parent.and_then(parse_trace_parent);
        // The client's tracer drops its own part of the trace, so this part would have no parent.
        if parent.is_some_and(|parent| !parent.is_sampled) {
            return;
        }
        let ids = TraceIds {
            trace: self.environment.unique_id().as_u128(),
            base: span_id(self.environment.unique_id().as_u128()),
        };
        let span = exchange_span(
            id,
            ended,
            parent,
            ids,
            unix_nanoseconds(self.environment.clock),
        );
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.queue_span(span);
    }
}

/// Makes the span of an exchange that ended now, in nanoseconds since 1970. It is part of the client's trace if
/// the client sent one.
fn exchange_span(
    id: &str,
    ended: &ExchangeSummary<'_>,
    parent: Option<TraceParent>,
    ids: TraceIds,
    now: u64,
) -> TraceSpan {
    let took = u64::try_from(ended.took.as_nanos()).unwrap_or(u64::MAX);
    let mut attributes: Vec<(&'static str, Value)> = vec![
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.request.model", json!(ended.model)),
        ("sabir.request.id", json!(id)),
        ("http.response.status_code", json!(ended.status)),
        ("sabir.gateway.calls", json!(ended.calls)),
    ];
    let words = [
        ("sabir.gateway.upstream", ended.upstream),
        ("sabir.gateway.key", ended.key),
        ("sabir.gateway.api", ended.front.map(|front| front.name())),
    ];
    attributes.extend(
        words
            .into_iter()
            .filter_map(|(name, word)| Some((name, json!(word?)))),
    );
    attributes.extend(usage_attributes(ended.usage));
    if let Some(first) = ended.first_output {
        let seconds = first.as_secs_f64();
        attributes.push(("sabir.gateway.first_output_seconds", json!(seconds)));
    }
    if let Some(nano_usd) = ended.nano_usd {
        attributes.push(("sabir.gateway.cost_nano_usd", json!(nano_usd)));
    }
    let failed = !ended.whole || ended.status >= 400;
    if failed {
        // The words of an error may quote the conversation, so only its kind is sent.
        let kind = match (ended.refusal, ended.status) {
            (Some(reason), _) => reason.to_owned(),
            (None, status @ 400..) => status.to_string(),
            (None, _) if ended.error.is_some() => "stream".to_owned(),
            (None, _) => "client_disconnected".to_owned(),
        };
        attributes.push(("error.type", json!(kind)));
    }
    TraceSpan {
        trace: parent.map_or(ids.trace, |parent| parent.trace),
        id: ids.base,
        parent: parent.map(|parent| parent.span),
        name: format!("chat {}", ended.model),
        is_client: true,
        time: (now.saturating_sub(took), now),
        attributes,
        failed,
    }
}

/// Parses a `traceparent` header of version 00 (W3C Trace Context): `00-TRACE-SPAN-FLAGS` in hexadecimal digits. Later versions
/// begin with the same fields.
fn parse_trace_parent(header: &str) -> Option<TraceParent> {
    let mut fields = header.trim().split('-');
    let is_hex = |field: &str, length: usize| {
        field.len() == length
            && field
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let version = fields.next().filter(|field| is_hex(field, 2))?;
    let trace = fields.next().filter(|field| is_hex(field, 32))?;
    let span = fields.next().filter(|field| is_hex(field, 16))?;
    let flags = fields.next().filter(|field| is_hex(field, 2))?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    if version == "ff" || version == "00" && fields.next().is_some() {
        return None;
    }
    let parent = TraceParent {
        trace: u128::from_str_radix(trace, 16).ok()?,
        span: u64::from_str_radix(span, 16).ok()?,
        is_sampled: flags & 1 == 1,
    };
    (parent.trace != 0 && parent.span != 0).then_some(parent)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sabir_call::Usage;

    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn trace_parents_are_parsed() {
        let parent = parse_trace_parent(HEADER).unwrap();
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.span, 0x00f0_67aa_0ba9_02b7);
        // Only the last bit of the flags says that the trace is exported.
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("03", true)] {
            let header = HEADER.replacen("-01", &format!("-{flags}"), 1);
            let parent = parse_trace_parent(&header).unwrap();
            assert_eq!(parent.is_sampled, is_sampled, "{flags}");
        }
        assert!(parse_trace_parent(&HEADER.replacen("00", "cc", 1)).is_some());
        assert!(parse_trace_parent(&(HEADER.replacen("00", "cc", 1) + "-later")).is_some());
        for wrong in [
            String::new(),
            format!("{HEADER}-more"),
            HEADER.to_uppercase(),
            HEADER.replacen("00", "ff", 1),
            HEADER.replace("00f067aa0ba902b7", "0000000000000000"),
            HEADER.replace(
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "+bf92f3577b34da6a3ce929d0e0e4736",
            ),
        ] {
            assert_eq!(parse_trace_parent(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_exchange_becomes_a_span_without_words_of_it() {
        let mut ended = ExchangeSummary {
            front: None,
            key: Some("team"),
            upstream: Some("gpu-1"),
            first_output: Some(Duration::from_millis(250)),
            asks_model: true,
            nano_usd: Some(7),
            refusal: None,
            model: "qwen",
            status: 200,
            whole: false,
            took: Duration::from_secs(2),
            first: None,
            bytes: 0,
            calls: 1,
            usage: Usage {
                input: Some(5),
                ..Usage::default()
            },
            error: Some("the upstream said: secret words"),
            counted: Usage::default(),
            trace_parent: Some(HEADER),
        };
        let ids = TraceIds { trace: 1, base: 2 };
        let parent = parse_trace_parent(HEADER);
        let span = exchange_span("r1", &ended, parent, ids, 5_000_000_000);
        assert_eq!(span.time, (3_000_000_000, 5_000_000_000));
        assert_eq!(span.parent, Some(0x00f0_67aa_0ba9_02b7));
        assert_eq!(span.id, 2);
        let attribute = |span: &TraceSpan, name: &str| {
            let found = span.attributes.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(
            attribute(&span, "gen_ai.usage.input_tokens"),
            Some(json!(5))
        );
        assert_eq!(attribute(&span, "error.type"), Some(json!("stream")));
        assert!(span.failed && !format!("{span:?}").contains("secret"));
        ended.whole = true;
        let span = exchange_span("r1", &ended, None, ids, 5_000_000_000);
        assert_eq!(span.trace, 1);
        assert_eq!(span.parent, None);
        assert!(!span.failed && attribute(&span, "error.type").is_none());
    }
}
