//! Turns the HTTP response to a request into the messages of its answer.

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use sabir_wire::sse::{SseDecoder, SseEvent};

use super::lanes::AnswerEvents;
use super::message_refusal::MessageRefusal;
use super::server_event::{event_in_lane, refusal_event};
use crate::error::Refusal;
use crate::request_body::BodyShare;
use crate::request_handler::RequestHandler;

/// The last events of an answer.
const LAST_EVENTS: [&str; 3] = [
    "response.completed",
    "response.incomplete",
    "response.failed",
];

/// The state of an answer.
enum AnswerState {
    /// The handler has not answered yet. The memory is that of the request, which is given back when it was read.
    Asked(Box<Request>, BodyShare),
    /// The events are arriving.
    Streaming(EventBody),
    /// The last message was made.
    Ended,
}

/// A body of server-sent events that is read.
struct EventBody {
    /// The body.
    body: Body,
    /// The decoder of its events.
    decoder: SseDecoder,
}

/// Returns the messages of the answer to a request. The last one is always the end of the answer or
/// an `error` event, and there is only one of them: clients take what follows for the next answer.
pub(crate) fn answer_events(
    handler: RequestHandler,
    request: Request,
    share: BodyShare,
    stream_id: Option<String>,
) -> AnswerEvents {
    let start = AnswerState::Asked(Box::new(request), share);
    stream::unfold(start, move |state| {
        next_events(handler.clone(), state, stream_id.clone())
    })
    .boxed()
}

/// Waits for the next messages.
async fn next_events(
    handler: RequestHandler,
    mut state: AnswerState,
    stream_id: Option<String>,
) -> Option<(Vec<String>, AnswerState)> {
    let lane = stream_id.as_deref();
    loop {
        state = match state {
            AnswerState::Asked(request, share) => {
                let response = handler.clone().respond(*request).await;
                drop(share);
                if response.status() != StatusCode::OK {
                    let event = refusal_event(response, lane).await;
                    return Some((vec![event], AnswerState::Ended));
                }
                AnswerState::Streaming(EventBody {
                    body: response.into_body(),
                    decoder: SseDecoder::new(),
                })
            }
            AnswerState::Streaming(mut events) => {
                let Some(Ok(frame)) = events.body.frame().await else {
                    // The last event was larger than the decoder takes.
                    let refusal = Refusal::Message(MessageRefusal::BrokenAnswer);
                    let response = handler.refuse_message(&refusal);
                    let event = refusal_event(response, lane).await;
                    return Some((vec![event], AnswerState::Ended));
                };
                let bytes = frame.into_data().unwrap_or_default();
                let (messages, is_last) = decode_events(&mut events.decoder, &bytes, lane);
                if is_last {
                    // Read to its end, or it would count as one that the client left.
                    while let Some(Ok(_)) = events.body.frame().await {}
                    return Some((messages, AnswerState::Ended));
                }
                if !messages.is_empty() {
                    return Some((messages, AnswerState::Streaming(events)));
                }
                AnswerState::Streaming(events)
            }
            AnswerState::Ended => return None,
        };
    }
}

/// Decodes the events in some bytes of a body. The flag is true after the last event of the answer.
fn decode_events(
    decoder: &mut SseDecoder,
    bytes: &[u8],
    stream_id: Option<&str>,
) -> (Vec<String>, bool) {
    let mut messages = Vec::new();
    let mut is_last = false;
    decoder.push(bytes, &mut |event| {
        let SseEvent::Message { name, data, .. } = event else {
            return;
        };
        // `response.failed` follows, and an answer may have one end only.
        if is_last || name == "error" {
            return;
        }
        is_last = LAST_EVENTS.contains(&name);
        messages.push(event_in_lane(data, stream_id));
    });
    (messages, is_last)
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
        let (messages, is_last) = decode_events(&mut decoder, text.as_bytes(), Some("s"));
        let expected = [
            "{\"stream_id\":\"s\",\"type\":\"response.created\"}",
            "{\"stream_id\":\"s\",\"type\":\"response.failed\"}",
        ];
        assert_eq!(
            (messages.as_slice(), is_last),
            (&expected.map(str::to_owned)[..], true)
        );
    }
}
