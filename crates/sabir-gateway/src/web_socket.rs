//! Serves the Responses API over WebSockets.
//!
//! A client opens a connection with `GET /v1/responses` and sends `response.create` messages, each
//! with the body of a request. The events of the answers come back as text messages of one JSON
//! object each. The protocol is that of OpenAI's guide
//! (<https://developers.openai.com/api/docs/guides/websocket-mode>) and of the types
//! `ResponsesClientEvent` and `ResponsesServerEvent` of the npm package `openai` (7.59.0). What Codex
//! reads beyond them is in `codex-api/src/endpoint/responses_websocket.rs` of
//! <https://github.com/openai/codex>.
//!
//! The main decision: **each `response.create` becomes a POST request** that the handler of HTTP
//! requests answers, with the headers of the handshake. So access, keys, limits, the log, the metrics
//! and the audit are those of a POST, and a key that was revoked meanwhile is refused. The session
//! only splits the response's stream into messages.
//!
//! As with HTTP, an answer is produced while the client reads it: the session runs in the task of its
//! connection, polls the answers only when everything before was written, and drops them when the
//! client goes away, which cancels the requests to the models.

mod answer_events;
mod client_message;
mod frame_tracker;
mod handshake;
mod message_refusal;
mod metered_stream;
mod server_event;
mod session;
mod stream_queues;

pub(crate) use client_message::AnswerOptions;
pub(crate) use handshake::{
    WEB_SOCKET_VERSION, accept_handshake, invalid_handshake, wants_web_socket,
};
pub(crate) use message_refusal::MessageRefusal;
pub(crate) use session::{PendingSession, RequestTemplate};
