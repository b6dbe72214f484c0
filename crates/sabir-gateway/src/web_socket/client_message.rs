//! Reads the messages of a client.

use std::collections::BTreeMap;

use axum::body::Bytes;
use sabir_wire::RequestError;
use serde_json::value::RawValue;

use super::message_refusal::MessageRefusal;
use crate::error::Refusal;
use crate::request_body::parsed_size;
use crate::response_store::ConnectionScope;
use crate::settings::GatewayLimits;

/// The longest name of a queue.
const MAX_STREAM_ID: usize = 256;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// `response.create`: a request.
    Create(CreateMessage),
    /// `response.steer`: input for an answer that is running. It is refused, since models behind other
    /// APIs cannot take it.
    Steer(SteerMessage),
    /// `response.processed`: Codex has handled an answer. Nothing depends on that here.
    Processed,
}

/// A request in a message.
#[derive(Debug)]
pub(crate) struct CreateMessage {
    /// The queue in which it waits for its turn; `None` for the default queue.
    pub(crate) stream_id: Option<String>,
    /// The body of the request: the message without the members that only messages have.
    pub(crate) body: Bytes,
    /// False if the client wants no output, only an id that a later request continues.
    pub(crate) generates: bool,
    /// The `traceparent` header of this request, which only Codex sends (`client_metadata`, see
    /// `codex-api/src/common.rs`): headers belong to the whole connection.
    pub(crate) trace_parent: Option<String>,
}

/// The member `client_metadata` of Codex.
#[derive(Default, serde::Deserialize)]
struct ClientMetadata {
    /// The `traceparent` header of the request.
    ws_request_header_traceparent: Option<String>,
}

/// Input for an answer that is running.
#[derive(Debug, serde::Serialize)]
pub(crate) struct SteerMessage {
    /// The id of the answer.
    previous_response_id: Box<RawValue>,
    /// The input.
    input: Box<RawValue>,
}

/// The options of a request that only a WebSocket has. They are an extension of the HTTP request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerOptions {
    /// The connection, whose later requests may refer to the answer even if it is not to be stored.
    pub(crate) scope: ConnectionScope,
    /// False if the client wants no output.
    pub(crate) generates: bool,
}

/// A message that cannot be read.
#[derive(Debug)]
pub(crate) struct InvalidMessage {
    /// The reason.
    pub(crate) refusal: Refusal,
    /// The queue that gets the error, as far as it is known.
    pub(crate) stream_id: Option<String>,
}

impl ClientMessage {
    /// Parses a message.
    ///
    /// # Errors
    /// It is not a JSON object of a known type, or its queue has an invalid name.
    pub(crate) fn parse(text: &str, limits: &GatewayLimits) -> Result<Self, InvalidMessage> {
        let without_lane = |refusal| InvalidMessage {
            refusal,
            stream_id: None,
        };
        // Small values take many times their length once they are parsed.
        if parsed_size(text.as_bytes(), limits).is_none() {
            let message = "it has too many values for its limit";
            return Err(without_lane(invalid_member("body", message)));
        }
        // The values stay text, because they are parsed when the request gets its turn.
        let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(text)
            .map_err(|error| without_lane(invalid_member("body", error)))?;
        let stream_id = take_stream_id(&mut members)
            .map_err(|refusal| without_lane(Refusal::Message(refusal)))?;
        match take_member::<String>(&mut members, "type").as_deref() {
            Some("response.create") => {
                let in_lane = |refusal| InvalidMessage {
                    refusal,
                    stream_id: stream_id.clone(),
                };
                let generates = match members.remove("generate").map(RawValue::get) {
                    None | Some("null" | "true") => true,
                    Some("false") => false,
                    Some(_) => {
                        let refusal = invalid_member("generate", "must be true or false");
                        return Err(in_lane(refusal));
                    }
                };
                // Implied by the connection; some clients send it nevertheless.
                members.insert("stream".to_owned(), RawValue::TRUE);
                // Left in the body: a provider of the same API gets the client's own.
                let metadata = members.get("client_metadata");
                let metadata: ClientMetadata = metadata
                    .and_then(|metadata| serde_json::from_str(metadata.get()).ok())
                    .unwrap_or_default();
                let body = serde_json::to_vec(&members)
                    .map_err(|error| in_lane(invalid_member("body", error)))?;
                Ok(Self::Create(CreateMessage {
                    stream_id,
                    body: body.into(),
                    generates,
                    trace_parent: metadata.ws_request_header_traceparent,
                }))
            }
            Some("response.steer") => {
                let mut member = |name| members.remove(name).unwrap_or(RawValue::NULL).to_owned();
                Ok(Self::Steer(SteerMessage {
                    previous_response_id: member("previous_response_id"),
                    input: member("input"),
                }))
            }
            Some("response.processed") => Ok(Self::Processed),
            _ => Err(InvalidMessage {
                refusal: invalid_member("type", "must be `response.create`"),
                stream_id,
            }),
        }
    }
}

/// Takes a member out and parses it; `None` if it is missing or has another type.
fn take_member<T: serde::de::DeserializeOwned>(
    members: &mut BTreeMap<String, &RawValue>,
    name: &str,
) -> Option<T> {
    serde_json::from_str(members.remove(name)?.get()).ok()
}

/// Takes the name of the queue out.
fn take_stream_id(
    members: &mut BTreeMap<String, &RawValue>,
) -> Result<Option<String>, MessageRefusal> {
    let Some(value) = members
        .remove("stream_id")
        .filter(|value| value.get() != "null")
    else {
        return Ok(None);
    };
    let is_valid = |id: &String| {
        (1..=MAX_STREAM_ID).contains(&id.len())
            && id
                .bytes()
                .all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, b'_' | b'-' | b'.'))
    };
    let id = serde_json::from_str(value.get()).ok().filter(is_valid);
    id.map(Some).ok_or(MessageRefusal::InvalidStream)
}

/// Makes the refusal of a member.
fn invalid_member(path: &str, message: impl ToString) -> Refusal {
    Refusal::Request(RequestError {
        path: path.to_owned(),
        message: message.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parse(text: &str) -> Result<ClientMessage, InvalidMessage> {
        ClientMessage::parse(text, &GatewayLimits::default())
    }

    #[test]
    fn the_members_of_messages_are_not_part_of_the_body() {
        let text = r#"{"type": "response.create", "stream_id": "a-1._B", "generate": false, "input": [{"type": "x"}], "model": "m", "stream": false}"#;
        let Ok(ClientMessage::Create(message)) = parse(text) else {
            panic!("no request");
        };
        assert_eq!(
            (message.stream_id.as_deref(), message.generates),
            (Some("a-1._B"), false)
        );
        let body: Value = serde_json::from_slice(&message.body).unwrap();
        let expected = serde_json::json!({"input": [{"type": "x"}], "model": "m", "stream": true});
        assert_eq!(body, expected);
        let Ok(ClientMessage::Create(message)) =
            parse(r#"{"type": "response.create", "stream_id": null, "generate": null}"#)
        else {
            panic!("no request");
        };
        assert_eq!((message.stream_id, message.generates), (None, true));
        let text = r#"{"type": "response.create", "client_metadata": {"x": "y", "ws_request_header_traceparent": "00-1-2-01"}}"#;
        let Ok(ClientMessage::Create(message)) = parse(text) else {
            panic!("no request");
        };
        assert_eq!(message.trace_parent.as_deref(), Some("00-1-2-01"));
    }

    #[test]
    fn invalid_messages_say_what_is_wrong() {
        let long = format!(
            r#"{{"type": "response.create", "stream_id": "{}"}}"#,
            "x".repeat(257)
        );
        for text in [
            r#"{"type": "response.create", "stream_id": ""}"#,
            r#"{"type": "response.create", "stream_id": "a b"}"#,
            r#"{"type": "response.create", "stream_id": 7}"#,
            &long,
        ] {
            let invalid = parse(text).unwrap_err();
            let expected = Refusal::Message(MessageRefusal::InvalidStream);
            assert_eq!(invalid.refusal, expected, "{text}");
        }
        for (text, path) in [
            ("", "body"),
            ("[]", "body"),
            ("{", "body"),
            ("{}", "type"),
            (r#"{"type": 1}"#, "type"),
            (r#"{"type": "response.cancel"}"#, "type"),
            (r#"{"type": "response.create", "generate": 0}"#, "generate"),
        ] {
            let Refusal::Request(error) = parse(text).unwrap_err().refusal else {
                panic!("{text}");
            };
            assert_eq!(error.path, path, "{text}");
        }
        let invalid = parse(r#"{"type": "x", "stream_id": "a"}"#).unwrap_err();
        assert_eq!(invalid.stream_id.as_deref(), Some("a"));
        let small = GatewayLimits {
            body: 100,
            ..GatewayLimits::default()
        };
        let text = format!(r#"{{"type": [{}0]}}"#, "0,".repeat(40));
        assert!(ClientMessage::parse(&text, &small).is_err());
        assert!(matches!(
            parse(r#"{"type": "response.processed", "response_id": "r"}"#),
            Ok(ClientMessage::Processed)
        ));
    }
}
