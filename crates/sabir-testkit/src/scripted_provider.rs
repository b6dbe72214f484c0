//! Serves scripted replies over HTTP/1.1 with keep-alive, on every wire, with every fault of
//! [`ScriptedFault`].

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::MessagePart;
use sabir_wire::{DecodedRequest, ProviderError, RequestError, Wire};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::script::{ProviderReply, ReplyScript, ScriptedFault};

/// The maximum number of bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// The maximum number of bytes of a request's body. Requests with images are large.
const MAX_BODY: usize = 64 << 20;

/// A provider that follows a script. Dropping it ends it.
#[derive(Debug)]
pub struct ScriptedProvider {
    /// The address that it listens on.
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    flooded_bytes: Arc<AtomicU64>,
    abandoned: AbandonedRequests,
    /// The task that accepts connections, which ends with this value.
    accepting: JoinHandle<()>,
}

/// The last message texts of requests whose client left before the response ended.
type AbandonedRequests = Arc<Mutex<Vec<String>>>;

/// The path at which a client can ask which requests were abandoned; the response is a JSON list.
const ABANDONED_PATH: &str = "/left";

/// A request that the provider received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The number of its connection, counted from 0.
    pub connection: usize,
    /// The path, with the query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; JSON `null` if it is not JSON.
    pub body: Value,
    /// The wire that the path belongs to.
    pub wire: Option<Wire>,
    /// The decoded body, if the path belongs to a wire.
    pub incoming: Option<Result<DecodedRequest, RequestError>>,
}

impl ReceivedRequest {
    /// Returns the text of the last message, or an empty string.
    pub fn last_text(&self) -> String {
        let incoming = self
            .incoming
            .as_ref()
            .and_then(|incoming| incoming.as_ref().ok());
        let parts = incoming
            .and_then(|incoming| incoming.request.messages.last())
            .map_or(&[][..], |last| &last.parts);
        parts
            .iter()
            .filter_map(|part| {
                if let MessagePart::Text { text } = part {
                    Some(text.as_str())
                } else {
                    None
                }
            })
            .collect()
    }

    /// Returns a header's value. The name must be in lower case.
    pub fn header_value(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

impl ScriptedProvider {
    /// Starts a provider on a free port of the loopback interface.
    ///
    /// # Errors
    /// No port is available.
    pub async fn start(script: ReplyScript) -> io::Result<Self> {
        Self::start_on(script, 0).await
    }

    /// Starts a provider on a port; 0 means any free one.
    ///
    /// # Errors
    /// The port is not available.
    pub async fn start_on(script: ReplyScript, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let flooded = Arc::new(AtomicU64::new(0));
        let flood = Arc::clone(&flooded);
        let left = AbandonedRequests::default();
        let leaving = Arc::clone(&left);
        let accepting = tokio::spawn(async move {
            // The set is dropped together with this task, which ends every connection.
            let mut connections = JoinSet::new();
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let connection = ClientConnection {
                    stream,
                    number,
                    buffer: Vec::new(),
                    script: script.clone(),
                    requests: Arc::clone(&recorded),
                    flooded_bytes: Arc::clone(&flood),
                    abandoned: Arc::clone(&leaving),
                };
                connections.spawn(async move {
                    // A client that disconnects is not an error of the provider.
                    let _ = connection.serve_requests().await;
                });
                // Finished connections are removed, so that the set does not grow.
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            requests,
            flooded_bytes: flooded,
            abandoned: left,
            accepting,
        })
    }

    /// Returns the address of the provider.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients of this wire.
    pub fn base_url(&self, wire: Wire) -> String {
        // The endpoints of the OpenAI wires do not include the version, so the base URL does.
        let version = if wire.name().starts_with("openai") {
            "/v1"
        } else {
            ""
        };
        format!("http://{}{version}", self.address)
    }

    /// Returns the requests received so far.
    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns how many bytes of floods the clients have read.
    pub fn flooded_byte_count(&self) -> u64 {
        self.flooded_bytes.load(Ordering::Relaxed)
    }

    /// Returns the last message texts of the requests whose client left before the response ended.
    pub fn abandoned_requests(&self) -> Vec<String> {
        self.abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Serves until the process ends.
    pub async fn serve_forever(mut self) {
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for ScriptedProvider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// One connection of a client.
struct ClientConnection {
    stream: TcpStream,
    /// Counts the connections from 0.
    number: usize,
    /// Bytes that were received and not used yet.
    buffer: Vec<u8>,
    script: ReplyScript,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    flooded_bytes: Arc<AtomicU64>,
    abandoned: AbandonedRequests,
}

/// The state of the connection after a response.
#[derive(PartialEq, Eq)]
enum AfterResponse {
    /// The client may send another request.
    Request,
    /// The connection is closed without an orderly end of the response.
    Close,
}

impl ClientConnection {
    /// Serves requests until the client closes the connection or a fault does.
    async fn serve_requests(mut self) -> io::Result<()> {
        // Without this, small chunks would be merged on the network.
        self.stream.set_nodelay(true)?;
        // Recorded before the reply is chosen: a script may look at all requests so far.
        while let Some(request) = self.read_request().await? {
            let turn = {
                let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
                requests.push(request.clone());
                requests.len() - 1
            };
            if self.send_reply(turn, &request).await? == AfterResponse::Close {
                break;
            }
        }
        self.stream.shutdown().await
    }

    /// Reads one request; `None` at the end of the connection.
    async fn read_request(&mut self) -> io::Result<Option<ReceivedRequest>> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut head = httparse::Request::new(&mut headers);
            if let httparse::Status::Complete(length) =
                head.parse(&self.buffer).map_err(|_| malformed())?
            {
                let path = head.path.unwrap_or_default().to_owned();
                let headers: Vec<_> = head
                    .headers
                    .iter()
                    .map(|header| {
                        (
                            header.name.to_ascii_lowercase(),
                            String::from_utf8_lossy(header.value).into_owned(),
                        )
                    })
                    .collect();
                self.buffer.drain(..length);
                let size = headers.iter().find(|(name, _)| name == "content-length");
                let size = size
                    .and_then(|(_, value)| value.parse::<usize>().ok())
                    .unwrap_or(0);
                if size > MAX_BODY {
                    return Err(malformed());
                }
                // The last read of the head may already contain a part of the body, or even the
                // next request.
                while self.buffer.len() < size {
                    if self.stream.read_buf(&mut self.buffer).await? == 0 {
                        return Ok(None);
                    }
                }
                let body: Vec<u8> = self.buffer.drain(..size).collect();
                let takes_any_body = self.script.takes_any_body;
                return Ok(Some(parse_received(
                    self.number,
                    path,
                    headers,
                    &body,
                    takes_any_body,
                )));
            }
            if self.buffer.len() > MAX_HEAD || self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Sends the scripted reply to a request.
    async fn send_reply(
        &mut self,
        turn: usize,
        request: &ReceivedRequest,
    ) -> io::Result<AfterResponse> {
        if request.path == ABANDONED_PATH {
            let left = Value::from(
                self.abandoned
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone(),
            );
            return self
                .send_response(200, &[], "application/json", left.to_string().as_bytes())
                .await;
        }
        let (Some(wire), Some(incoming)) = (request.wire, &request.incoming) else {
            return self
                .send_response(
                    404,
                    &[],
                    "application/json",
                    b"{\"error\":{\"message\":\"no such path\"}}",
                )
                .await;
        };
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(error) => {
                let body = wire.encode_error(&ProviderError::new(
                    "invalid_request_error",
                    error.to_string(),
                ));
                return self
                    .send_response(400, &[], "application/json", body.to_string().as_bytes())
                    .await;
            }
        };
        let reply = self.script.reply_to(turn, request);
        match &reply.trouble {
            Some(ScriptedFault::StallBeforeHeaders) => return stall_forever().await,
            Some(ScriptedFault::Status {
                status,
                headers,
                body,
            }) => {
                let error =
                    ProviderError::new("scripted_error", format!("status {status} by script"));
                let known = wire.encode_error(&error).to_string();
                let body = if body.is_empty() { &known } else { body };
                return self
                    .send_response(*status, headers, "application/json", body.as_bytes())
                    .await;
            }
            Some(ScriptedFault::Body { content_type, body }) => {
                return self
                    .send_response(
                        200,
                        &[],
                        content_type.as_deref().unwrap_or_default(),
                        body.as_bytes(),
                    )
                    .await;
            }
            _ => {}
        }
        // A fixed time keeps the bytes of replies the same in every run.
        let head = incoming.response_metadata(format!("reply_{turn}"), 1_700_000_000);
        if incoming.streamed {
            let body = reply.encode_stream(wire, head);
            let end = self.send_stream(&reply, wire.stream_type(), &body).await;
            // A scripted reset does not count as an abandoned request, unless the reply pauses, so
            // that the client had time to leave.
            if end.as_ref().is_err_and(|error| {
                error.kind() != io::ErrorKind::ConnectionReset || reply.pause > 0
            }) {
                self.abandoned
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(request.last_text());
            }
            end
        } else {
            self.send_response(
                200,
                &[],
                "application/json",
                &reply.encode_body(wire, &head),
            )
            .await
        }
    }

    /// Sends a response with a content length.
    async fn send_response(
        &mut self,
        status: u16,
        headers: &[(String, String)],
        kind: &str,
        body: &[u8],
    ) -> io::Result<AfterResponse> {
        let mut head = format!(
            "HTTP/1.1 {status} scripted\r\ncontent-length: {}\r\n",
            body.len()
        );
        if !kind.is_empty() {
            head += &format!("content-type: {kind}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body).await?;
        Ok(AfterResponse::Request)
    }

    /// Sends a streamed response, as far as its fault allows.
    async fn send_stream(
        &mut self,
        reply: &ProviderReply,
        kind: &str,
        body: &[u8],
    ) -> io::Result<AfterResponse> {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes()).await?;
        let sent = match reply.trouble {
            Some(
                ScriptedFault::StallAfter(bytes)
                | ScriptedFault::PingAfter(bytes)
                | ScriptedFault::CutAfter(bytes)
                | ScriptedFault::ResetAfter(bytes)
                | ScriptedFault::TruncateAfter(bytes)
                | ScriptedFault::EndAfter(bytes),
            ) => body.get(..bytes).unwrap_or(body),
            Some(ScriptedFault::CutHalf) => body.get(..body.len() / 2).unwrap_or(body),
            Some(ScriptedFault::Flood) => {
                body.get(..crate::script::last_event(body)).unwrap_or(body)
            }
            _ => body,
        };
        for piece in reply.chunks.split_bytes(sent) {
            self.send_chunk(piece).await?;
            // A client that leaves during a pause is noticed at once; tests of cancellation rely on
            // that.
            self.pause_connected(reply.pause).await?;
        }
        match reply.trouble {
            Some(ScriptedFault::StallAfter(_) | ScriptedFault::NeverClose) => stall_forever().await,
            Some(ScriptedFault::PingAfter(_)) => loop {
                self.send_chunk(b": ping\n\n").await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            },
            Some(ScriptedFault::Flood) => loop {
                // Large enough that the client limits the flood, not the number of writes.
                const COMMENT: &[u8] = &[b':'; 16 << 10];
                self.send_chunk(COMMENT).await?;
                self.send_chunk(b"\n").await?;
                self.flooded_bytes
                    .fetch_add(COMMENT.len() as u64, Ordering::Relaxed);
            },
            Some(ScriptedFault::TruncateAfter(_)) => {
                self.stream
                    .write_all(b"40\r\n: thirty-two bytes of sixty-four")
                    .await?;
                Ok(AfterResponse::Close)
            }
            Some(ScriptedFault::CutAfter(_) | ScriptedFault::CutHalf) => Ok(AfterResponse::Close),
            Some(ScriptedFault::ResetAfter(_)) => {
                // The data must arrive before the reset, which would overtake it.
                tokio::time::sleep(Duration::from_millis(30)).await;
                // Without lingering, closing the socket sends a reset instead of an orderly end.
                self.stream.set_zero_linger()?;
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            }
            _ => {
                self.stream.write_all(b"0\r\n\r\n").await?;
                Ok(AfterResponse::Request)
            }
        }
    }

    /// Waits this many milliseconds. Returns an error if the client leaves meanwhile.
    async fn pause_connected(&mut self, milliseconds: u64) -> io::Result<()> {
        if milliseconds == 0 {
            return Ok(());
        }
        let waited = tokio::time::sleep(Duration::from_millis(milliseconds));
        tokio::pin!(waited);
        loop {
            tokio::select! {
                () = &mut waited => return Ok(()),
                read = self.stream.read_buf(&mut self.buffer) => if read? == 0 {
                    return Err(io::Error::from(io::ErrorKind::BrokenPipe));
                },
            }
        }
    }

    /// Sends a chunk of the transfer. An empty one would end it, so it is skipped.
    async fn send_chunk(&mut self, piece: &[u8]) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
        self.stream.write_all(&bytes).await
    }
}

/// Waits until the client leaves or the provider is dropped.
async fn stall_forever() -> io::Result<AfterResponse> {
    std::future::pending().await
}

/// Builds the record of a request, decoding its body if the path belongs to a wire.
fn parse_received(
    connection: usize,
    path: String,
    headers: Vec<(String, String)>,
    body: &[u8],
    takes_any_body: bool,
) -> ReceivedRequest {
    let wire = Wire::from_path(&path);
    let known: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let incoming = wire.map(|wire| match takes_any_body {
        true => wire.decode_for_same_wire(&path, &known),
        false => wire.decode_request(&path, body),
    });
    let body = known;
    ReceivedRequest {
        connection,
        path,
        headers,
        body,
        wire,
        incoming,
    }
}
