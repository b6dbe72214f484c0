//! Encodes spans as OTLP/HTTP JSON: ids in hexadecimal, 64-bit integers as strings, names in camel case.
//!
//! The numbers of kinds and states are those of `opentelemetry/proto/trace/v1/trace.proto`.

use sabir_call::redact;
use serde_json::{Value, json};

use super::spans::TraceSpan;

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `SPAN_KIND_CLIENT`.
const CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// Returns the body of a request with these spans. Known formats of secrets are redacted in it.
pub(super) fn request_body(spans: &[TraceSpan]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", json!("sabir")),
        ("service.version", json!(version)),
    ];
    let body = json!({"resourceSpans": [{
        "resource": {"attributes": attributes_json(&resource)},
        "scopeSpans": [{
            "scope": {"name": "sabir", "version": version},
            "spans": spans.iter().map(span_json).collect::<Vec<_>>(),
        }],
    }]});
    // Redacted as a whole: a secret can be in a name, an argument or a result.
    redact::redact_json(&body.to_string()).into_owned()
}

fn span_json(span: &TraceSpan) -> Value {
    let TraceSpan {
        trace,
        id,
        parent,
        name,
        is_client,
        time: (from, to),
        attributes: all,
        failed,
    } = span;
    let mut value = json!({
        "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name,
        "kind": if *is_client { CLIENT } else { INTERNAL },
        "startTimeUnixNano": from.to_string(), "endTimeUnixNano": to.to_string(), "attributes": attributes_json(all),
        "status": if *failed { json!({"code": ERROR}) } else { json!({}) },
    });
    if let (Some(parent), Some(members)) = (parent, value.as_object_mut()) {
        members.insert("parentSpanId".to_owned(), json!(format!("{parent:016x}")));
    }
    value
}

fn attributes_json(all: &[(&'static str, Value)]) -> Vec<Value> {
    all.iter()
        .map(|(key, value)| json!({"key": key, "value": value_json(value)}))
        .collect()
}

fn value_json(value: &Value) -> Value {
    match value {
        Value::String(text) => json!({"stringValue": text}),
        Value::Bool(yes) => json!({"boolValue": yes}),
        // The JSON form of protobuf writes 64-bit integers as strings.
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!({"intValue": number.to_string()}),
            None => json!({"doubleValue": number}),
        },
        Value::Array(items) => {
            json!({"arrayValue": {"values": items.iter().map(value_json).collect::<Vec<_>>()}})
        }
        other => json!({"stringValue": other.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_encoded_as_json() {
        let one = TraceSpan {
            trace: 0xab,
            id: 0xcd,
            parent: Some(1),
            name: "chat m".to_owned(),
            is_client: true,
            time: (1, 2),
            attributes: vec![("a", json!("x")), ("b", json!(3)), ("c", json!(["y"]))],
            failed: true,
        };
        let body: Value = serde_json::from_str(&request_body(&[one])).unwrap();
        let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let expected = json!({
            "traceId": "000000000000000000000000000000ab", "spanId": "00000000000000cd", "name": "chat m", "kind": 3,
            "startTimeUnixNano": "1", "endTimeUnixNano": "2", "status": {"code": 2}, "parentSpanId": "0000000000000001",
            "attributes": [
                {"key": "a", "value": {"stringValue": "x"}}, {"key": "b", "value": {"intValue": "3"}},
                {"key": "c", "value": {"arrayValue": {"values": [{"stringValue": "y"}]}}},
            ],
        });
        assert_eq!(span, &expected);
    }
}
