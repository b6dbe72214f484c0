//! A back end that writes one call's argument at a steady rate, every piece with the stream's number and the time, and fails where an
//! order says so.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sabir_call::dialect::DialectSet;
use sabir_call::{ArgumentEncoding, Event, StopReason, ToolSet, Usage};
use sabir_wire::{ResponseEncoder, ResponseMetadata, Wire};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// The text before the first record of a value.
pub(crate) const BEGIN: &str = "BEGIN ";

/// The tool that is called, and its argument.
pub(crate) const TOOL: &str = "write_file";
pub(crate) const ARGUMENT: &str = "content";

/// The order that a client puts into its message: `load STREAM EVENTS GAP SIZE FAULT end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// The stream's number, below 10,000,000.
    pub(crate) stream: u32,
    /// The number of records.
    pub(crate) events: u32,
    /// The time between two records.
    pub(crate) gap: Duration,
    /// The bytes of a record, at least 40.
    pub(crate) size: usize,
    /// The fault of the answer.
    pub(crate) fault: Fault,
}

/// A fault that an order asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    None,
    /// The first request of a stream is answered with 503, the next ones in full.
    BusyOnce,
    /// The first request of a stream is answered by closing the connection, the next ones in full.
    ClosedOnce,
    /// Every request is answered with 500.
    Refused,
    /// The connection is closed in the middle of the answer.
    Cut,
    /// An event in the middle of the answer is not JSON, and the connection is closed after it.
    Garbage,
}

impl Fault {
    /// All faults; a place in it is the number in an order.
    pub(crate) const ALL: [Self; 6] = [
        Self::None,
        Self::BusyOnce,
        Self::ClosedOnce,
        Self::Refused,
        Self::Cut,
        Self::Garbage,
    ];
}

/// The streams that had their fault already.
type FailedStreams = Arc<Mutex<HashSet<u32>>>;

impl Order {
    pub(crate) fn words(&self) -> String {
        let Self {
            stream,
            events,
            gap,
            size,
            fault,
        } = self;
        let fault = Fault::ALL.iter().position(|known| known == fault).unwrap();
        let gap = gap.as_micros();
        format!("load {stream} {events} {gap} {size} {fault} end")
    }

    fn find(body: &str) -> Option<Self> {
        let (_, rest) = body.rsplit_once("load ")?;
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next();
        let (stream, events) = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
        Some(Self {
            stream,
            events,
            gap: Duration::from_micros(next()?),
            size: usize::try_from(next()?).ok()?,
            fault: *Fault::ALL.get(usize::try_from(next()?).ok()?)?,
        })
    }

    /// A record: the stream, its number, the time.
    fn record(&self, number: u32) -> String {
        let head = format!("{:07} {number:06} {:020} ", self.stream, now());
        // No blank at the end: in a call written as text it might belong to the closing tag, so it
        // would be held back.
        format!("{head:x<width$}", width = self.size)
    }
}

/// Nanoseconds since 1970: the clock that all processes share.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener) {
    let failed = FailedStreams::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let failed = Arc::clone(&failed);
        tokio::spawn(async move {
            // A client that disconnects is counted on the client's side.
            let _ = connection(stream, &failed).await;
        });
    }
}

async fn connection(mut stream: TcpStream, failed: &FailedStreams) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some((path, body)) = request(&mut stream, &mut buffer).await? {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let wire = Wire::from_path(&path).ok_or_else(malformed)?;
        let incoming = wire.decode_request(&path, &body).map_err(|_| malformed())?;
        let order = Order::find(&String::from_utf8_lossy(&body)).ok_or_else(malformed)?;
        let is_first = failed.lock().unwrap().insert(order.stream);
        match order.fault {
            Fault::BusyOnce if is_first => {
                send_error(&mut stream, "503 Service Unavailable").await?
            }
            Fault::ClosedOnce if is_first => return Ok(()),
            Fault::Refused => send_error(&mut stream, "500 Internal Server Error").await?,
            _ => answer(&mut stream, wire, &incoming.request.model, order).await?,
        }
    }
    Ok(())
}

/// Returns the path and the body of the next request; `None` at the end of the connection.
async fn request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(String, Vec<u8>)>> {
    let head = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let words = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let path = String::from_utf8_lossy(&buffer[..head])
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let length = words
        .split("content-length:")
        .nth(1)
        .and_then(|rest| rest.lines().next()?.trim().parse().ok());
    let end = head + length.unwrap_or(0);
    while buffer.len() < end {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[head..end].to_vec();
    buffer.drain(..end);
    Ok(Some((path, body)))
}

/// Answers with an error, and keeps the connection open.
async fn send_error(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    let body = r#"{"error":{"type":"server_error","message":"as ordered"}}"#;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).await
}

async fn answer(stream: &mut TcpStream, wire: Wire, model: &str, order: Order) -> io::Result<()> {
    let kind = wire.stream_type();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut writer = Writer::new(wire, model);
    let mut out = Vec::new();
    writer.open(&mut out);
    chunk(stream, &out).await?;
    // Streams that begin at the same time must not write at the same time.
    let start = Instant::now() + order.gap * (order.stream * 7919 % 1000) / 1000;
    for number in 0..order.events {
        if number == order.events / 2 && matches!(order.fault, Fault::Cut | Fault::Garbage) {
            if order.fault == Fault::Garbage {
                chunk(stream, b"data: {\"half\": \n\n").await?;
            }
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !order.gap.is_zero() {
            sleep_until(start + order.gap * number).await;
        }
        out.clear();
        let mark = if number == 0 { BEGIN } else { "" };
        writer.value(&format!("{mark}{}", order.record(number)), &mut out);
        chunk(stream, &out).await?;
    }
    out.clear();
    writer.close(&mut out);
    chunk(stream, &out).await?;
    stream.write_all(b"0\r\n\r\n").await
}

async fn chunk(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    stream.write_all(&framed).await
}

/// Writes one call, natively or as text.
struct Writer {
    encoder: Option<ResponseEncoder>,
    /// Returns the text before and after the value in a call written as text.
    words: Option<(String, String)>,
}

impl Writer {
    fn new(wire: Wire, model: &str) -> Self {
        let words = model
            .strip_prefix("as-")
            .and_then(|name| DialectSet::built_in().find(name))
            .map(|dialect| {
                let schema =
                    json!({"type": "object", "properties": {ARGUMENT: {"type": "string"}}});
                let tools =
                    ToolSet::new(vec![sabir_call::ToolSpec::new(TOOL, "", schema)]).unwrap();
                let arguments = json!({ARGUMENT: "@@"}).as_object().cloned().unwrap();
                let call = sabir_call::Call {
                    id: sabir_call::CallId::new("c"),
                    name: TOOL.to_owned(),
                    arguments,
                    dialect: None,
                };
                let text = dialect.render_calls([&call], &tools);
                let (before, behind) = text.split_once("@@").unwrap();
                (before.to_owned(), behind.to_owned())
            });
        let head = ResponseMetadata {
            id: "load".to_owned(),
            model: model.to_owned(),
            created: 1_700_000_000,
            ..ResponseMetadata::default()
        };
        Self {
            encoder: Some(ResponseEncoder::new(wire, head)),
            words,
        }
    }

    fn say(&mut self, events: &[Event<'_>], out: &mut Vec<u8>) {
        let encoder = self.encoder.as_mut().unwrap();
        events
            .iter()
            .for_each(|event| encoder.encode_event(*event, out));
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        match self.words.clone() {
            Some((before, _)) => self.say(&[Event::Text { text: &before }], out),
            None => self.say(
                &[
                    Event::CallStart {
                        index: 0,
                        id: Some("call_1"),
                        name: TOOL,
                        dialect: None,
                        at: 0,
                        name_at: 0,
                    },
                    Event::ArgStart {
                        index: 0,
                        name: ARGUMENT,
                        form: ArgumentEncoding::String,
                        at: 0,
                    },
                ],
                out,
            ),
        }
    }

    fn value(&mut self, text: &str, out: &mut Vec<u8>) {
        match self.words {
            Some(_) => self.say(&[Event::Text { text }], out),
            None => self.say(&[Event::ArgDelta { index: 0, text }], out),
        }
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let reason = match self.words.clone() {
            Some((_, behind)) => {
                self.say(&[Event::Text { text: &behind }], out);
                StopReason::End
            }
            None => {
                let end = [
                    Event::ArgEnd {
                        index: 0,
                        lead: "",
                        at: 0,
                    },
                    Event::CallEnd { index: 0, at: 0 },
                ];
                self.say(&end, out);
                StopReason::Calls
            }
        };
        self.say(
            &[
                Event::Usage(Usage {
                    input: Some(12),
                    output: Some(5),
                    ..Usage::default()
                }),
                Event::Stop { reason, raw: "" },
            ],
            out,
        );
        self.encoder.take().unwrap().finish(out);
    }
}
