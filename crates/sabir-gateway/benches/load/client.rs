//! Runs one client of one stream: sends the request, decodes the response, and compares every record to the expected one.

use std::io;
use std::net::SocketAddr;

use sabir_call::{Event, EventSink, Message, Request, ToolSet, ToolSpec};
use sabir_wire::{BodyEnd, ResponseDecoder, Wire, WireOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::back::{ARGUMENT, BEGIN, Order, TOOL, now};

/// The measurements of one stream.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The time from writing a record to reading it, in microseconds.
    pub(crate) late: Vec<u32>,
    /// The number of records that belong to other streams or are out of order.
    pub(crate) crossed: u32,
    /// The reason why the stream is incomplete.
    pub(crate) error: Option<String>,
    /// True if the answer, or the refusal, was sent to its end as HTTP wants it.
    pub(crate) is_whole: bool,
    /// True if the answer began: the status was 200.
    pub(crate) has_begun: bool,
}

/// The server and the request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) address: SocketAddr,
    pub(crate) front: Wire,
    pub(crate) model: String,
    /// Further headers, each with its line end.
    pub(crate) headers: String,
    /// The number of records after which the client disconnects.
    pub(crate) leaves_after: Option<usize>,
}

/// Sends the request and reads the response to its end.
pub(crate) async fn ask(asked: &Asked, order: Order) -> Outcome {
    let mut collector = Collector {
        order,
        text: String::new(),
        begun: false,
        at: 0,
        outcome: Outcome::default(),
    };
    let result = read(asked, &mut collector).await;
    let mut outcome = collector.outcome;
    outcome.is_whole = !matches!(result, Ok(ResponseEnd::Closed) | Err(_));
    outcome.has_begun = !matches!(result, Ok(ResponseEnd::Refused(_)));
    let failed = match result {
        Ok(ResponseEnd::Complete | ResponseEnd::Left) => None,
        Ok(ResponseEnd::Failed) => Some("the answer ended with an error".to_owned()),
        Ok(ResponseEnd::Refused(words)) => Some(words),
        Ok(ResponseEnd::Closed) => Some("the connection was closed".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let got = outcome.late.len();
    let missing = got != order.events as usize && asked.leaves_after.is_none();
    outcome.error =
        failed.or_else(|| missing.then(|| format!("{got} records of {}", order.events)));
    outcome
}

/// The way in which a response ended.
enum ResponseEnd {
    /// The whole answer.
    Complete,
    /// An answer that ended with an error of its wire, or without its end.
    Failed,
    /// A status other than 200.
    Refused(String),
    /// The connection was closed before the end.
    Closed,
    /// The client has disconnected.
    Left,
}

/// Reads a response to its end.
async fn read(asked: &Asked, collector: &mut Collector) -> io::Result<ResponseEnd> {
    let mut stream = TcpStream::connect(asked.address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&request(asked, &collector.order)).await?;
    let mut decoder = ResponseDecoder::new(asked.front);
    let mut transfer = Transfer::default();
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        buffer.clear();
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(ResponseEnd::Closed);
        }
        collector.at = now();
        let over = transfer.push(&buffer, |piece| decoder.push(piece, collector))?;
        if asked
            .leaves_after
            .is_some_and(|records| collector.outcome.late.len() >= records)
        {
            return Ok(ResponseEnd::Left);
        }
        if let Some(refusal) = transfer.refusal.take() {
            return Ok(ResponseEnd::Refused(refusal));
        }
        if over {
            let report = decoder.finish(BodyEnd::Clean, collector);
            return Ok(if report.ended && report.error.is_none() {
                ResponseEnd::Complete
            } else {
                ResponseEnd::Failed
            });
        }
    }
}

fn request(asked: &Asked, order: &Order) -> Vec<u8> {
    let schema = json!({"type": "object", "properties": {ARGUMENT: {"type": "string"}}, "required": [ARGUMENT]});
    let request = Request {
        model: asked.model.clone(),
        messages: vec![Message::user(order.words())].into(),
        tools: ToolSet::new(vec![ToolSpec::new(TOOL, "Writes a file.", schema)]).unwrap(),
        max_output_tokens: Some(4096),
        ..Request::default()
    };
    let body = asked
        .front
        .encode_request(
            &request,
            &WireOptions {
                streamed: true,
                ..WireOptions::default()
            },
        )
        .to_string();
    let version = if asked.front.name().starts_with("openai") {
        "/v1"
    } else {
        ""
    };
    let path = asked.front.endpoint_path(&asked.model, true);
    let mut head = format!(
        "POST {version}{path} HTTP/1.1\r\nhost: {}\r\n",
        asked.address
    );
    for (name, value) in asked.front.required_headers() {
        head += &format!("{name}: {value}\r\n");
    }
    head += &asked.headers;
    head += "authorization: Bearer k\r\ncontent-type: application/json\r\n";
    head += &format!("content-length: {}\r\n\r\n{body}", body.len());
    head.into_bytes()
}

/// Removes the chunked framing of HTTP.
#[derive(Default)]
struct Transfer {
    kept: Vec<u8>,
    headed: bool,
    left: usize,
    /// An answer with another status than 200.
    refusal: Option<String>,
}

impl Transfer {
    /// Takes bytes of the transfer, and returns true if it is complete.
    fn push(&mut self, bytes: &[u8], mut give: impl FnMut(&[u8])) -> io::Result<bool> {
        self.kept.extend_from_slice(bytes);
        let mut at = 0;
        if !self.headed {
            let Some(end) = self
                .kept
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            else {
                return Ok(false);
            };
            if !self.kept.starts_with(b"HTTP/1.1 200") {
                self.refusal = Some(String::from_utf8_lossy(&self.kept).into_owned());
                return Ok(true);
            }
            (self.headed, at) = (true, end + 4);
        }
        let over = loop {
            if self.left > 0 {
                let end = self.kept.len().min(at + self.left);
                give(&self.kept[at..end]);
                self.left -= end - at;
                at = end;
            }
            let rest = &self.kept[at..];
            // The line feed after a chunk is read together with the next length.
            let skip = if rest.starts_with(b"\r\n") { 2 } else { 0 };
            let Some(line) = rest[skip..].windows(2).position(|window| window == b"\r\n") else {
                break false;
            };
            let size = std::str::from_utf8(&rest[skip..skip + line]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            self.left = size.ok_or_else(|| io::Error::other("a chunk without a length"))?;
            at += skip + line + 2;
            if self.left == 0 {
                break true;
            }
        };
        self.kept.drain(..at);
        Ok(over)
    }
}

/// Reads records from an argument's value or from text.
struct Collector {
    order: Order,
    text: String,
    begun: bool,
    /// The time at which the current piece was read.
    at: u64,
    outcome: Outcome,
}

impl EventSink for Collector {
    fn push_event(&mut self, event: Event<'_>) {
        if let Event::Text { text } | Event::ArgDelta { text, .. } = event {
            self.text.push_str(text);
            self.records();
        }
    }
}

impl Collector {
    fn records(&mut self) {
        if !self.begun {
            let Some(at) = self.text.find(BEGIN) else {
                return;
            };
            self.text.drain(..at + BEGIN.len());
            self.begun = true;
        }
        while self.text.len() >= self.order.size
            && self.outcome.late.len() < self.order.events as usize
        {
            let rest = self.text.split_off(self.order.size);
            let record = std::mem::replace(&mut self.text, rest);
            let mut fields = record.split(' ').map_while(|word| word.parse::<u64>().ok());
            let expected = [u64::from(self.order.stream), self.outcome.late.len() as u64];
            if [fields.next(), fields.next()] != expected.map(Some) {
                self.outcome.crossed += 1;
            }
            let late = self.at.saturating_sub(fields.next().unwrap_or_default()) / 1000;
            self.outcome
                .late
                .push(u32::try_from(late).unwrap_or(u32::MAX));
        }
    }
}
