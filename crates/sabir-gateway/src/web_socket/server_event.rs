//! Makes the messages to a client.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::client_message::SteerMessage;

/// The headers of a refusal that the client gets in its event: when to try again, and what is left.
fn is_sent_in_event(name: &str) -> bool {
    matches!(name, "retry-after" | "retry-after-ms" | "x-request-id")
        || name.starts_with("x-ratelimit-")
}

/// Returns an event of an answer as a message: with the name of its queue, if it has one.
///
/// `data` is a JSON object with members, and the name has no characters that JSON escapes.
pub(crate) fn event_with_stream_id(data: &str, stream_id: Option<&str>) -> String {
    match (stream_id, data.strip_prefix('{')) {
        (Some(stream_id), Some(members)) => format!("{{\"stream_id\":\"{stream_id}\",{members}"),
        _ => data.to_owned(),
    }
}

/// Returns the error event for a response that refuses a request.
///
/// Clients look for its parts in different places: those of OpenAI for `error`, with its headers
/// inside (`ResponseWsError` of the npm package), Codex for `status`, `error` and `headers` at the
/// top, the Agents SDK for `status`, which tells it whether to try again.
pub(crate) async fn refusal_event(response: Response, stream_id: Option<&str>) -> String {
    let (parts, body) = response.into_parts();
    let error = read_error(body).await;
    error_event(parts.status, &parts.headers, error, stream_id)
}

/// Reads the member `error` of a refusal's body.
async fn read_error(body: Body) -> Map<String, Value> {
    let bytes = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match body.get("error") {
        Some(Value::Object(error)) => error.clone(),
        _ => Map::new(),
    }
}

/// Encodes an error event.
fn error_event(
    status: StatusCode,
    headers: &HeaderMap,
    mut error: Map<String, Value>,
    stream_id: Option<&str>,
) -> String {
    let headers: Map<String, Value> = headers
        .iter()
        .filter(|(name, _)| is_sent_in_event(name.as_str()))
        .filter_map(|(name, value)| Some((name.to_string(), json!(value.to_str().ok()?))))
        .collect();
    error.insert("headers".to_owned(), json!(headers));
    let event = json!({
        "type": "error", "status": status.as_u16(), "error": error, "headers": headers,
    });
    event_with_stream_id(&event.to_string(), stream_id)
}

/// The event that refuses to steer an answer (`ResponseSteerFailedEvent` of the npm package `openai`). The event returns the client's
/// input.
#[derive(Serialize)]
struct SteerFailedEvent<'a> {
    /// Always `response.steer.failed`.
    r#type: &'a str,
    /// The number among the events of the answer, of which there are none.
    sequence_number: u64,
    /// The input.
    steer: &'a SteerMessage,
    /// The reason.
    error: SteerError<'a>,
}

/// The reason why an answer is not steered.
#[derive(Serialize)]
struct SteerError<'a> {
    /// Always `invalid_request_error`.
    r#type: &'a str,
    /// The code that clients look for.
    code: &'a str,
    /// The words for people.
    message: &'a str,
}

/// Returns the event that refuses to steer an answer.
pub(crate) fn steer_failed_event(steer: &SteerMessage) -> String {
    let event = SteerFailedEvent {
        r#type: "response.steer.failed",
        sequence_number: 0,
        steer,
        error: SteerError {
            r#type: "invalid_request_error",
            code: "steering_not_supported",
            message: "answers cannot be steered here: send the input with the next `response.create`",
        },
    };
    // Texts and numbers alone can always be written.
    serde_json::to_string(&event).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_get_the_name_of_their_lane() {
        assert_eq!(event_with_stream_id(r#"{"a":1}"#, None), r#"{"a":1}"#);
        assert_eq!(
            event_with_stream_id(r#"{"a":1}"#, Some("x.y")),
            r#"{"stream_id":"x.y","a":1}"#
        );
    }

    #[tokio::test]
    async fn refusals_have_their_status_and_headers_in_the_event() {
        let body = r#"{"error": {"message": "m", "type": "t", "param": null, "code": "c"}}"#;
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        for (name, value) in [("retry-after", "3"), ("content-type", "application/json")] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        let event: Value = serde_json::from_str(&refusal_event(response, Some("s")).await).unwrap();
        let headers = json!({"retry-after": "3"});
        let error =
            json!({"message": "m", "type": "t", "param": null, "code": "c", "headers": headers});
        let expected = json!({"type": "error", "status": 429, "stream_id": "s", "error": error, "headers": headers});
        assert_eq!(event, expected);
    }
}
