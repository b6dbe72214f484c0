//! Turns the HTTP response to a request into the messages of its answer.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use sabir_wire::sse::{SseDecoder, SseEvent};
use tokio::time::timeout;

use super::message_refusal::MessageRefusal;
use super::server_event::{event_with_stream_id, refusal_event};
use super::stream_queues::{AnswerEnd, AnswerPart, AnswerParts};
use crate::error::Refusal;
use crate::request_body::BodyShare;
use crate::request_handler::RequestHandler;

/// The last events of an answer.
const LAST_EVENTS: [&str; 3] = [
    "response.completed",
    "response.incomplete",
    "response.failed",
];

/// The longest time that the next request waits for the settlement of an answer. A store that hangs
/// must not stop the connection.
const MAX_SETTLEMENT_WAIT: Duration = Duration::from_secs(2);

/// The state of an answer.
enum AnswerState {
    /// The handler has not answered yet. The memory is that of the request, which is given back when it was read.
    Asked(Box<Request>, BodyShare),
    /// The events are arriving.
    Streaming(EventBody),
    /// The last message was made. The lease of the request with this id may not be settled yet.
    Ended(String),
}

/// A body of server-sent events that is read.
struct EventBody {
    /// The id of the request.
    request_id: String,
    /// The body.
    body: Body,
    /// The decoder of its events.
    decoder: SseDecoder,
}

/// Returns the parts of the answer to a request. The last message is always the end of the answer or an `error` event, and there is only
/// one of them: clients take what follows for the next answer.
///
/// The stream ends when the lease of the request is settled. Otherwise a key that allows one request at a time would refuse the next one.
pub(crate) fn answer_parts(
    handler: RequestHandler,
    request: Request,
    share: BodyShare,
    stream_id: Option<String>,
) -> AnswerParts {
    let start = AnswerState::Asked(Box::new(request), share);
    stream::unfold(start, move |state| {
        next_part(handler.clone(), state, stream_id.clone())
    })
    .boxed()
}

/// Waits for the next part.
async fn next_part(
    handler: RequestHandler,
    mut state: AnswerState,
    stream_id: Option<String>,
) -> Option<(AnswerPart, AnswerState)> {
    let queue = stream_id.as_deref();
    loop {
        state = match state {
            AnswerState::Asked(request, share) => {
                let response = handler.clone().respond(*request).await;
                drop(share);
                let request_id = request_id(response.headers());
                if response.status() != StatusCode::OK {
                    let end = match response.status() {
                        StatusCode::UNAUTHORIZED => AnswerEnd::Unauthorized,
                        _ => AnswerEnd::Ended,
                    };
                    let part = AnswerPart {
                        messages: vec![refusal_event(response, queue).await],
                        end: Some(end),
                    };
                    return Some((part, AnswerState::Ended(request_id)));
                }
                AnswerState::Streaming(EventBody {
                    request_id,
                    body: response.into_body(),
                    decoder: SseDecoder::new(),
                })
            }
            AnswerState::Streaming(mut events) => {
                let Some(Ok(frame)) = events.body.frame().await else {
                    // The last event was larger than the decoder takes.
                    let refusal = Refusal::Message(MessageRefusal::BrokenAnswer);
                    let response = handler.refuse_message(&refusal);
                    let part = AnswerPart {
                        messages: vec![refusal_event(response, queue).await],
                        end: Some(AnswerEnd::Ended),
                    };
                    return Some((part, AnswerState::Ended(events.request_id)));
                };
                let bytes = frame.into_data().unwrap_or_default();
                let part = decode_events(&mut events.decoder, &bytes, queue);
                if part.end.is_some() {
                    // Read to its end, or it would count as one that the client left.
                    while let Some(Ok(_)) = events.body.frame().await {}
                    return Some((part, AnswerState::Ended(events.request_id)));
                }
                if !part.messages.is_empty() {
                    return Some((part, AnswerState::Streaming(events)));
                }
                AnswerState::Streaming(events)
            }
            AnswerState::Ended(request_id) => {
                if let Some(keys) = handler.gateway.keys() {
                    // Not longer, if the store hangs: the next request then gets its answer from
                    // the store.
                    _ = timeout(MAX_SETTLEMENT_WAIT, keys.wait_for_settlement(&request_id)).await;
                }
                return None;
            }
        };
    }
}

/// Returns the id of the request that a response answers.
fn request_id(headers: &HeaderMap) -> String {
    let id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    id.unwrap_or_default().to_owned()
}

/// Decodes the events in some bytes of a body.
fn decode_events(decoder: &mut SseDecoder, bytes: &[u8], stream_id: Option<&str>) -> AnswerPart {
    let mut part = AnswerPart::default();
    decoder.push(bytes, &mut |event| {
        let SseEvent::Message { name, data, .. } = event else {
            return;
        };
        // `response.failed` follows, and an answer may have one end only.
        if part.end.is_some() || name == "error" {
            return;
        }
        part.end = LAST_EVENTS.contains(&name).then_some(AnswerEnd::Ended);
        part.messages.push(event_with_stream_id(data, stream_id));
    });
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_one_end() {
        let mut decoder = SseDecoder::new();
        let text = concat!(
            ": ping\n\nevent: response.created\ndata: {\"type\":\"response.created\"}\n\n",
            "event: error\ndata: {\"type\":\"error\"}\n\n",
            "event: response.failed\ndata: {\"type\":\"response.failed\"}\n\n",
            "event: response.completed\ndata: {}\n\n",
        );
        let part = decode_events(&mut decoder, text.as_bytes(), Some("s"));
        let messages = [
            "{\"stream_id\":\"s\",\"type\":\"response.created\"}",
            "{\"stream_id\":\"s\",\"type\":\"response.failed\"}",
        ];
        let expected = AnswerPart {
            messages: messages.map(str::to_owned).to_vec(),
            end: Some(AnswerEnd::Ended),
        };
        assert_eq!(part, expected);
    }
}
