//! Runs the session of a WebSocket, from the handshake to the end of the connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::answer_events::answer_parts;
use super::client_message::{AnswerOptions, ClientMessage, CreateMessage};
use super::message_refusal::MessageRefusal;
use super::metered_stream::MeteredStream;
use super::server_event::{refusal_event, steer_failed_event};
use super::stream_queues::{AnswerEnd, AnswerPart, StreamQueues, TooManyErrors};
use crate::error::Refusal;
use crate::request_body::BodyShare;
use crate::request_handler::RequestHandler;
use crate::response_store::ScopeGuard;
use crate::settings::GatewayLimits;

/// The longest time that a connection takes requests, by OpenAI's guide.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// The time for the client to answer a close message, and for what it has sent to be read.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// The buffer for reading, which each connection has from its start.
const READ_BUFFER: usize = 8 << 10;

/// The size of a message after which the buffers are given back: a connection may be open for an hour.
const LARGE_MESSAGE: usize = 64 << 10;

/// The most bytes of replies to messages that are not written yet. At the limit, the session stops
/// reading until the client has read some.
const MAX_REPLIES: usize = 64 << 10;

/// The headers of a handshake that its requests do not have.
const HANDSHAKE_HEADERS: [HeaderName; 11] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::EXPECT,
    // A report is a comment in a stream, and messages have none.
    HeaderName::from_static(crate::exchange::REPORT_HEADER),
];

/// A session that begins when its handshake was answered.
#[derive(Debug)]
pub(crate) struct PendingSession {
    /// The connection, once it is no longer HTTP.
    pub(crate) upgrade: OnUpgrade,
    /// The handler of the session's requests.
    pub(crate) handler: RequestHandler,
    /// The address and headers of all requests of the session.
    pub(crate) template: RequestTemplate,
}

/// The address and the headers of the requests of a session.
#[derive(Clone)]
pub(crate) struct RequestTemplate {
    /// The address.
    uri: Uri,
    /// The headers, as those of the handshake.
    headers: HeaderMap,
}

impl std::fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The headers have the client's key.
        f.debug_struct("RequestTemplate")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

/// A running session.
struct Session<S> {
    /// The connection.
    socket: WebSocketStream<MeteredStream<S>>,
    /// The handler of the requests.
    handler: RequestHandler,
    /// The address and headers of all requests.
    template: RequestTemplate,
    /// The answers that only this connection may continue.
    scope: ScopeGuard,
    /// The requests and the answers.
    queues: StreamQueues,
    /// The limits when the connection was upgraded; a reload does not change them.
    limits: GatewayLimits,
    /// The times from which the limits run.
    times: SessionTimes,
    /// The bytes of replies to messages that may not be written yet.
    replies: usize,
    /// The memory of messages that such replies repeat.
    repeated: Vec<BodyShare>,
    /// The bytes of the largest message for which the buffers have grown.
    largest: usize,
    /// The reason why no further requests are answered.
    retirement: Option<MessageRefusal>,
    /// True if the client knows that reason from the refusal of a request.
    is_refused: bool,
}

/// The times from which the limits of a session run.
struct SessionTimes {
    /// The start.
    opened: Instant,
    /// The last message to the client.
    sent: Instant,
    /// The last time that a request or an answer was there.
    busy: Instant,
}

/// Something that a session reacts to.
enum SessionEvent {
    /// A message arrived.
    Message(Message),
    /// The connection has ended, or nothing more can be read.
    Broken(Option<Error>),
    /// There is a part of an answer.
    Answered(AnswerPart),
    /// The buffers are large and empty.
    LargeBuffers,
    /// The gateway shuts down.
    Draining,
    /// A limit may be reached.
    Timer,
}

/// A pause in a session.
enum SessionPause {
    /// The buffers must be replaced by small ones.
    LargeBuffers,
    /// The session must end.
    End(SessionEnd),
}

/// The end of a session.
enum SessionEnd {
    /// The client closes the connection, or it is broken.
    Left,
    /// The gateway closes the connection.
    Close(CloseCode, &'static str),
    /// The gateway closes the connection while the client is sending something that is not read.
    Abort(CloseCode, &'static str),
}

impl RequestTemplate {
    /// Makes the template from a handshake.
    pub(crate) fn from_handshake(parts: &Parts) -> Self {
        let mut headers = parts.headers.clone();
        for name in &HANDSHAKE_HEADERS {
            headers.remove(name);
        }
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        Self {
            uri: parts.uri.clone(),
            headers,
        }
    }

    /// Makes a request.
    fn make_post(&self, body: Body) -> Request {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.uri);
        request.headers_mut().clone_from(&self.headers);
        request
    }

    /// Makes the request for a message.
    fn make_request(&self, message: CreateMessage, scope: &ScopeGuard) -> Request {
        let mut request = self.make_post(Body::from(message.body));
        if let Some(parent) = message.trace_parent
            && let Ok(parent) = HeaderValue::try_from(parent)
        {
            request.headers_mut().insert("traceparent", parent);
        }
        request.extensions_mut().insert(AnswerOptions {
            scope: scope.scope(),
            generates: message.generates,
        });
        request
    }
}

impl PendingSession {
    /// Runs the session until the connection ends. Once `draining` is true, it ends after the answers
    /// that are being sent.
    pub(crate) async fn run(self, draining: watch::Receiver<bool>) {
        if let Ok(upgraded) = self.upgrade.await {
            run_session(
                TokioIo::new(upgraded),
                self.handler,
                self.template,
                draining,
            )
            .await;
        }
    }
}

/// Runs a session on a connection whose handshake is done.
async fn run_session<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    handler: RequestHandler,
    template: RequestTemplate,
    mut draining: watch::Receiver<bool>,
) {
    let mut session = Session::open(stream, handler, template).await;
    let must_end = async { _ = draining.wait_for(|draining| *draining).await };
    let mut must_end = std::pin::pin!(must_end);
    let end = loop {
        match session.serve(must_end.as_mut()).await {
            SessionPause::LargeBuffers => session = session.replace_buffers().await,
            SessionPause::End(end) => break end,
        }
    };
    // Cancels the requests to the models.
    session.queues = StreamQueues::default();
    session.close(end).await;
}

/// Returns false if the token or key of a client is not valid any more.
async fn is_still_allowed(handler: RequestHandler, request: Request) -> bool {
    let parts = request.into_parts().0;
    match handler.check_client(&parts).await {
        // Nothing is known about the key.
        Err(Refusal::KeyStore(_)) => true,
        checked => checked.is_ok(),
    }
}

/// Makes the reader and writer of messages.
async fn open_socket<S: AsyncRead + AsyncWrite + Unpin>(
    stream: MeteredStream<S>,
    limits: GatewayLimits,
) -> WebSocketStream<MeteredStream<S>> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(limits.body))
        .max_frame_size(Some(limits.body));
    WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Opens a session on a connection whose handshake is done.
    async fn open(stream: S, handler: RequestHandler, template: RequestTemplate) -> Self {
        let limits = handler.gateway.settings().limits;
        let stream = MeteredStream::new(stream, handler.gateway.body_budget().clone(), limits);
        let now = Instant::now();
        Self {
            socket: open_socket(stream, limits).await,
            scope: ScopeGuard::new(&handler.gateway),
            handler,
            template,
            queues: StreamQueues::default(),
            limits,
            times: SessionTimes {
                opened: now,
                sent: now,
                busy: now,
            },
            replies: 0,
            repeated: Vec::new(),
            largest: 0,
            retirement: None,
            is_refused: false,
        }
    }

    /// Replaces buffers that have grown, and in which nothing is, by small ones.
    async fn replace_buffers(self) -> Self {
        let stream = self.socket.into_inner();
        Self {
            socket: open_socket(stream, self.limits).await,
            largest: 0,
            ..self
        }
    }

    /// Answers messages until the connection must end, or its buffers must be replaced. `must_end`
    /// is ready when the gateway shuts down.
    async fn serve(&mut self, mut must_end: Pin<&mut impl Future<Output = ()>>) -> SessionPause {
        let mut timer = Box::pin(sleep(Duration::ZERO));
        loop {
            if let Some(reason) = self.retirement
                && self.queues.is_idle()
            {
                return SessionPause::End(self.notify_idle_client(reason).await);
            }
            self.start_answers();
            timer.as_mut().reset(self.next_deadline());
            let event = std::future::poll_fn(|context| {
                self.poll_event(context, must_end.as_mut(), timer.as_mut())
            })
            .await;
            let end = match event {
                SessionEvent::Message(message) => self.handle_message(message).await,
                SessionEvent::Broken(error) => Some(self.explain_error(error).await),
                SessionEvent::LargeBuffers => return SessionPause::LargeBuffers,
                SessionEvent::Answered(part) => {
                    part.messages
                        .into_iter()
                        .for_each(|message| self.send(message));
                    self.times.busy = Instant::now();
                    let is_draining = self.retirement == Some(MessageRefusal::Draining);
                    if part.end == Some(AnswerEnd::Unauthorized) && !is_draining {
                        self.is_refused = true;
                        self.stop_taking_requests(MessageRefusal::Unauthorized)
                            .await;
                    }
                    None
                }
                SessionEvent::Draining => {
                    self.stop_taking_requests(MessageRefusal::Draining).await;
                    None
                }
                SessionEvent::Timer => self.enforce_time_limits().await,
            };
            if let Some(end) = end {
                return SessionPause::End(end);
            }
        }
    }

    /// Tells an idle client why no further requests are answered.
    async fn notify_idle_client(&mut self, reason: MessageRefusal) -> SessionEnd {
        // Clients that wait for no answer read errors too.
        let is_known = reason == MessageRefusal::Draining || self.is_refused;
        if !is_known {
            self.refuse(&Refusal::Message(reason), None).await;
        }
        match reason {
            MessageRefusal::Unauthorized => {
                SessionEnd::Close(CloseCode::Policy, "the token or key is not valid")
            }
            _ => SessionEnd::Close(CloseCode::Away, "open another connection"),
        }
    }

    /// Starts the answers of all requests that need not wait any longer.
    fn start_answers(&mut self) {
        let Self {
            queues,
            handler,
            template,
            scope,
            ..
        } = self;
        queues.start_answers(|mut message, share| {
            let stream_id = message.stream_id.take();
            let request = template.make_request(message, scope);
            answer_parts(handler.clone(), request, share, stream_id)
        });
    }

    /// Polls everything that a session waits for.
    fn poll_event(
        &mut self,
        context: &mut Context<'_>,
        must_end: Pin<&mut impl Future<Output = ()>>,
        timer: Pin<&mut Sleep>,
    ) -> Poll<SessionEvent> {
        // Messages come first, so that a client can leave in the middle of an answer.
        let reads = self.replies < MAX_REPLIES;
        if reads && let Poll::Ready(message) = self.socket.poll_next_unpin(context) {
            return Poll::Ready(match message {
                Some(Ok(message)) => SessionEvent::Message(message),
                Some(Err(error)) => SessionEvent::Broken(Some(error)),
                None => SessionEvent::Broken(None),
            });
        }
        match self.socket.poll_flush_unpin(context) {
            Poll::Ready(Ok(())) => {
                let was_full = self.replies >= MAX_REPLIES;
                self.replies = 0;
                self.repeated.clear();
                if was_full {
                    // Reading must be polled again.
                    context.waker().wake_by_ref();
                }
                // Complete messages were returned, so at the end of a message the read buffer is
                // empty; the write buffer was just flushed.
                let are_empty = reads && self.socket.get_ref().is_between_messages();
                if self.largest > LARGE_MESSAGE && are_empty {
                    return Poll::Ready(SessionEvent::LargeBuffers);
                }
                // Only now, so that a client that reads slowly slows the models down.
                if let Poll::Ready(part) = self.queues.poll_parts(context) {
                    return Poll::Ready(SessionEvent::Answered(part));
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(SessionEvent::Broken(Some(error))),
            Poll::Pending => {}
        }
        if self.retirement != Some(MessageRefusal::Draining) && must_end.poll(context).is_ready() {
            return Poll::Ready(SessionEvent::Draining);
        }
        timer.poll(context).map(|()| SessionEvent::Timer)
    }

    /// Handles a message.
    async fn handle_message(&mut self, message: Message) -> Option<SessionEnd> {
        match message {
            Message::Text(text) => {
                let share = self.socket.get_mut().take_share();
                self.largest = self.largest.max(text.len());
                return self.handle_text(text.as_str(), share).await;
            }
            Message::Binary(bytes) => {
                drop(self.socket.get_mut().take_share());
                self.largest = self.largest.max(bytes.len());
                let refusal = Refusal::Message(MessageRefusal::NotText);
                return self.queue_refusal(&refusal, None).await;
            }
            Message::Close(_) => return Some(SessionEnd::Left),
            // The reader has answered a ping already: a client that does not read the answers is
            // not read.
            Message::Ping(payload) => {
                self.replies = self.replies.saturating_add(payload.len() + 2);
                let stream = self.socket.get_mut();
                stream.subtract_control_frame(payload.len());
            }
            Message::Pong(payload) => {
                let stream = self.socket.get_mut();
                stream.subtract_control_frame(payload.len());
            }
            Message::Frame(_) => {}
        }
        None
    }

    /// Handles a message with text.
    async fn handle_text(&mut self, text: &str, share: BodyShare) -> Option<SessionEnd> {
        let message = match ClientMessage::parse(text, &self.limits) {
            Ok(ClientMessage::Create(message)) => message,
            Ok(ClientMessage::Steer(message)) => {
                self.repeated.push(share);
                // It is about the answer that is running, which it does not end.
                self.reply(steer_failed_event(&message));
                return None;
            }
            Ok(ClientMessage::Processed) => return None,
            Err(invalid) => {
                let stream_id = invalid.stream_id.as_deref();
                return self.queue_refusal(&invalid.refusal, stream_id).await;
            }
        };
        self.times.busy = Instant::now();
        let stream_id = message.stream_id.clone();
        let queued = match self.retirement {
            Some(reason) => Err(reason),
            None => self
                .queues
                .enqueue(message, share, self.limits.body.saturating_mul(2)),
        };
        let refusal = Refusal::Message(queued.err()?);
        self.queue_refusal(&refusal, stream_id.as_deref()).await
    }

    /// Answers a message with an error event, once everything before it in its queue is answered.
    async fn queue_refusal(
        &mut self,
        refusal: &Refusal,
        stream_id: Option<&str>,
    ) -> Option<SessionEnd> {
        let response = self.handler.refuse_message(refusal);
        let event = refusal_event(response, stream_id).await;
        match self.queues.enqueue_error(stream_id, event) {
            Ok(at_once) => {
                at_once.into_iter().for_each(|event| self.reply(event));
                None
            }
            Err(TooManyErrors) => {
                let reason = "too many refused requests wait for their errors";
                Some(SessionEnd::Abort(CloseCode::Policy, reason))
            }
        }
    }

    /// Answers a message with an error event at once.
    async fn refuse(&mut self, refusal: &Refusal, stream_id: Option<&str>) {
        let response = self.handler.refuse_message(refusal);
        self.reply(refusal_event(response, stream_id).await);
    }

    /// Queues a reply to a message.
    fn reply(&mut self, message: String) {
        self.replies = self.replies.saturating_add(message.len());
        self.send(message);
    }

    /// Queues a message to the client.
    fn send(&mut self, message: String) {
        self.times.sent = Instant::now();
        self.largest = self.largest.max(message.len());
        // It is written by the next flush. If the connection is closing, reading says so.
        _ = self.socket.start_send_unpin(Message::text(message));
    }

    /// Lets running answers end, and refuses all others.
    async fn stop_taking_requests(&mut self, reason: MessageRefusal) {
        self.retirement = Some(reason);
        let mut events = Vec::new();
        for stream_id in self.queues.waiting_streams() {
            let response = self.handler.refuse_message(&Refusal::Message(reason));
            events.push(refusal_event(response, stream_id.as_deref()).await);
        }
        self.queues.refuse_waiting(events);
    }

    /// Returns the time after which a client that has sent nothing is gone: it has not answered pings.
    fn silence_limit(&self) -> Duration {
        self.limits.stalled.max(self.limits.ping.saturating_mul(2))
    }

    /// Returns true if nothing is asked, answered or sent.
    fn is_idle(&self) -> bool {
        self.queues.is_idle() && !self.socket.get_ref().is_receiving()
    }

    /// Returns the time of the next limit.
    fn next_deadline(&self) -> Instant {
        let heard = self.socket.get_ref().last_received();
        let mut next = (self.times.sent + self.limits.ping).min(heard + self.silence_limit());
        if self.retirement.is_none() {
            next = next.min(self.times.opened + MAX_AGE);
        }
        if self.is_idle() {
            next = next.min(self.times.busy + self.limits.websocket_idle);
        }
        next
    }

    /// Sends pings that are due, and ends the session where a limit is reached.
    async fn enforce_time_limits(&mut self) -> Option<SessionEnd> {
        let now = Instant::now();
        if now >= self.socket.get_ref().last_received() + self.silence_limit() {
            return Some(SessionEnd::Left);
        }
        if self.is_idle() && now >= self.times.busy + self.limits.websocket_idle {
            let reason = "the connection was idle for too long";
            return Some(SessionEnd::Close(CloseCode::Away, reason));
        }
        if self.retirement.is_none() && now >= self.times.opened + MAX_AGE {
            self.stop_taking_requests(MessageRefusal::TooOld).await;
        }
        if now >= self.times.sent + self.limits.ping {
            self.times.sent = now;
            // Requests are checked themselves, so only a connection without one can go unnoticed.
            if self.retirement.is_none() && self.is_idle() {
                let handshake = self.template.make_post(Body::empty());
                if !is_still_allowed(self.handler.clone(), handshake).await {
                    self.retirement = Some(MessageRefusal::Unauthorized);
                    return None;
                }
            }
            _ = self
                .socket
                .start_send_unpin(Message::Ping(Bytes::default()));
        }
        None
    }

    /// Sends the reason for the end of the connection to the client, if it is one that the client can read.
    async fn explain_error(&mut self, error: Option<Error>) -> SessionEnd {
        match error {
            Some(Error::Capacity(_)) => {
                let refusal = Refusal::TooLarge(self.limits.body);
                self.refuse(&refusal, None).await;
                SessionEnd::Abort(CloseCode::Size, "the message is too large")
            }
            Some(Error::Utf8(_)) => SessionEnd::Abort(CloseCode::Invalid, "not UTF-8"),
            Some(Error::Protocol(_)) => SessionEnd::Abort(CloseCode::Protocol, "invalid frame"),
            _ => match self.socket.get_mut().take_failure() {
                Some(refusal) => {
                    self.refuse(&refusal, None).await;
                    SessionEnd::Abort(CloseCode::Again, "the message cannot be taken")
                }
                None => SessionEnd::Left,
            },
        }
    }

    /// Closes the connection.
    async fn close(mut self, end: SessionEnd) {
        let frame = |code, reason: &'static str| {
            Message::Close(Some(CloseFrame {
                code,
                reason: reason.into(),
            }))
        };
        let closing = async {
            match end {
                SessionEnd::Left => {
                    // Writes the answer to the client's close message.
                    _ = self.socket.flush().await;
                }
                SessionEnd::Close(code, reason) => {
                    if self.socket.send(frame(code, reason)).await.is_ok() {
                        while let Some(Ok(_)) = self.socket.next().await {
                            drop(self.socket.get_mut().take_share());
                        }
                    }
                }
                SessionEnd::Abort(code, reason) => {
                    if self.socket.send(frame(code, reason)).await.is_ok() {
                        // Closing the socket with unread bytes would reset the connection before
                        // the client has read the reason.
                        let rest = self.socket.get_mut().stream_mut();
                        let mut rest = rest.take(self.limits.body as u64);
                        _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
                    }
                }
            }
            _ = self.socket.get_mut().shutdown().await;
        };
        _ = timeout(CLOSE_GRACE, closing).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::http::request::Builder;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::access_control::ConnectionOrigin;
    use crate::gateway_event::NullObserver;
    use crate::route::RouteTable;
    use crate::serve::{Gateway, test_settings};

    /// A session, with the client's side of its connection.
    struct TestSession {
        client: WebSocketStream<DuplexStream>,
        running: JoinHandle<()>,
        _draining: watch::Sender<bool>,
    }

    fn handler(change: impl Fn(&mut GatewayLimits)) -> RequestHandler {
        let mut settings = test_settings();
        change(&mut settings.limits);
        RequestHandler {
            gateway: Gateway::new(RouteTable::default(), settings, NullObserver),
            origin: ConnectionOrigin::Local,
            link: std::sync::Arc::default(),
        }
    }

    fn template() -> RequestTemplate {
        let handshake = Builder::new()
            .uri("/v1/responses")
            .header("authorization", "Bearer token");
        let (handshake, ()) = handshake.body(()).unwrap().into_parts();
        RequestTemplate::from_handshake(&handshake)
    }

    async fn start_session(change: impl Fn(&mut GatewayLimits)) -> TestSession {
        let handler = handler(change);
        let template = template();
        let (near, far) = tokio::io::duplex(64 << 10);
        let draining = watch::Sender::new(false);
        let watched = draining.subscribe();
        TestSession {
            client: WebSocketStream::from_raw_socket(far, Role::Client, None).await,
            running: tokio::spawn(run_session(near, handler, template, watched)),
            _draining: draining,
        }
    }

    /// Reads until the connection is closed, and returns the close code with the texts before.
    async fn read_to_end(
        client: &mut WebSocketStream<DuplexStream>,
    ) -> (Option<CloseCode>, Vec<String>) {
        let mut code = None;
        let mut texts = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Text(text) => texts.push(text.to_string()),
                Message::Close(frame) => code = frame.map(|frame| frame.code),
                _ => {}
            }
        }
        (code, texts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_takes_no_requests_after_an_hour() {
        let begun = Instant::now();
        let mut session = start_session(|limits| limits.websocket_idle = 2 * MAX_AGE).await;
        let (code, texts) = read_to_end(&mut session.client).await;
        assert_eq!(code, Some(CloseCode::Away));
        assert!(
            texts[0].contains("websocket_connection_limit_reached"),
            "{texts:?}"
        );
        assert_eq!(begun.elapsed().as_secs(), MAX_AGE.as_secs());
        session.running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn requests_put_the_limit_of_an_idle_connection_off() {
        let begun = Instant::now();
        let idle = Duration::from_secs(60);
        let mut session = start_session(|limits| limits.websocket_idle = idle).await;
        sleep(idle / 2).await;
        // Refused for want of a model, but a request.
        let message = Message::text(r#"{"type": "response.create"}"#);
        session.client.send(message).await.unwrap();
        let (code, texts) = read_to_end(&mut session.client).await;
        assert!(texts[0].contains("\"status\":400"), "{texts:?}");
        assert_eq!((code, texts.len()), (Some(CloseCode::Away), 1));
        assert_eq!(begun.elapsed().as_secs(), (idle / 2 + idle).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_answers_no_pings_is_gone() {
        let begun = Instant::now();
        let session = start_session(|_| {}).await;
        session.running.await.unwrap();
        let stalled = GatewayLimits::default().stalled;
        assert_eq!(begun.elapsed().as_secs(), stalled.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_no_replies_is_not_read() {
        let mut session = start_session(|_| {}).await;
        let mut sent = 0;
        let flood = async {
            while sent < 20_000 {
                session.client.send(Message::text("{}")).await.unwrap();
                sent += 1;
            }
        };
        // All of them would be taken at once.
        assert!(timeout(Duration::from_secs(1), flood).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_no_pongs_is_not_read() {
        let mut session = start_session(|_| {}).await;
        let flood = async {
            for _ in 0..20_000 {
                let ping = Message::Ping(Bytes::from_static(&[0; 125]));
                session.client.send(ping).await.unwrap();
            }
        };
        assert!(timeout(Duration::from_secs(1), flood).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_close_is_not_waited_for() {
        let begun = Instant::now();
        let session = start_session(|limits| {
            limits.websocket_idle = Duration::from_secs(1);
        })
        .await;
        session.running.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(1) + CLOSE_GRACE);
    }

    /// A connection may be idle for long after a large message.
    #[tokio::test(start_paused = true)]
    async fn the_buffers_of_large_messages_are_given_back() {
        let (near, far) = tokio::io::duplex(64 << 10);
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let mut session = Session::open(near, handler(|_| {}), template()).await;
        for (length, is_large) in [(LARGE_MESSAGE + 1, true), (1, false), (1 << 20, true)] {
            let text = format!(
                r#"{{"type": "response.create", "input": "{}"}}"#,
                "x".repeat(length)
            );
            let exchange = async {
                client.send(Message::text(text)).await.unwrap();
                // Refused for want of a model.
                assert!(client.next().await.unwrap().unwrap().is_text());
                sleep(Duration::from_secs(1)).await;
            };
            let mut never = std::pin::pin!(std::future::pending::<()>());
            let mut exchange = std::pin::pin!(exchange);
            let mut pauses = 0;
            loop {
                let serving = session.serve(never.as_mut());
                tokio::select! {
                    pause = serving => assert!(matches!(pause, SessionPause::LargeBuffers)),
                    () = exchange.as_mut() => break,
                }
                pauses += 1;
                session = session.replace_buffers().await;
                assert_eq!(session.largest, 0);
            }
            assert_eq!(pauses, usize::from(is_large), "{length}");
        }
    }
}
